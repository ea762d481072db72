"""Contracts: a good answer is taken, a broken one is answered with everything that is wrong with it."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ralph.core.codec import dump, to_plain
from ralph.documents.answers import _LOOP_ANSWERS, parse_answer, render_schema
from ralph.documents.session.answers import ANSWERS as SESSION

CONTRACT = "loop.actor"


def faults(text: str) -> tuple[str, ...]:
    answer, errors = parse_answer(CONTRACT, text)
    assert answer is None
    assert errors
    return errors


class TestGoodAnswers:
    def test_complete_answer_is_accepted(self) -> None:
        given_one = {"summary": "did it", "learned": "a lot", "next": "rest"}
        assert parse_answer(CONTRACT, json.dumps(given_one)) == (given_one, ())

    def test_only_the_summary_is_required(self) -> None:
        answer, errors = parse_answer(CONTRACT, '{"summary": "did it"}')
        assert answer is not None
        assert (answer["summary"], answer["learned"], errors) == ("did it", "", ())

    def test_keys_of_its_own_do_no_harm(self) -> None:
        answer, errors = parse_answer(CONTRACT, '{"summary": "did it", "outcome": "success", "passed": true}')
        assert (answer is not None, errors) == (True, ())

    @pytest.mark.parametrize("summary", ["ünï", "日本語", "🙂", "two\nlines", "a\ttab", '"quoted"'])
    def test_text_in_every_script_is_accepted(self, summary: str) -> None:
        answer, _ = parse_answer(CONTRACT, json.dumps({"summary": summary}))
        assert answer is not None
        assert answer["summary"].split() == summary.split()


class TestBrokenAnswers:
    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("", "not valid JSON"),
            ("{", "not valid JSON"),
            ("did it", "not valid JSON"),
            ('{"summary": "a"} and more', "not valid JSON"),
            ("[" * 100_000, "not valid JSON"),
            ("{}", "result.json: the field `summary` is missing"),
            ("[]", "result.json: it must be a JSON object"),
            ("null", "result.json: it must be a JSON object"),
            ('"did it"', "result.json: it must be a JSON object"),
            ('{"summary": ""}', "result.json: `summary`:"),
            ('{"summary": 7}', "result.json: `summary`:"),
            ('{"summary": null}', "result.json: `summary`:"),
            ('{"summary": ["a"]}', "result.json: `summary`:"),
            (json.dumps({"summary": "x" * 2001}), "result.json: `summary`:"),
            ('{"summary": "a", "learned": 7}', "result.json: `learned`:"),
            ('{"summary": "a", "next": {}}', "result.json: `next`:"),
            ('{"Summary": "a"}', "result.json: the field `summary` is missing"),
        ],
        ids=lambda text: str(text)[:24] or "empty",
    )
    def test_error_says_what_is_wrong(self, text: str, said: str) -> None:
        assert any(said in fault for fault in faults(text))

    def test_all_errors_are_reported_at_once(self) -> None:
        assert faults('{"learned": 7, "next": []}') == (
            "result.json: the field `summary` is missing",
            "result.json: `learned`: it must be a text, not `7`: put it in quotes",
            "result.json: `next`: it must be a text, not a list",
        )

    def test_allowed_values_are_named(self) -> None:
        _, errors = parse_answer("session.reviewer", '{"status": "done", "verdict": "ok"}')
        assert errors == (
            "result.json: `status`: it must be `completed`, `blocked` or `paused`, not `done`",
            "result.json: `verdict`: it must be `Qualified` or `Failed`, not `ok`",
        )

    def test_an_error_fits_into_a_prompt(self) -> None:
        assert (
            sum(len(fault) for fault in faults(json.dumps({"summary": "x" * 500_000, "learned": ["y"] * 100_000})))
            < 2000
        )


class TestHostileAnswers:
    @pytest.mark.parametrize("depth", [10, 100, 200, 300, 500, 900, 5000])
    def test_nesting_does_not_stop_the_engine(self, depth: int) -> None:
        answer, errors = parse_answer(CONTRACT, f'{{"summary": "x", "more": {"[" * depth}{"]" * depth}}}')
        assert (answer is None) == bool(errors)
        dump(to_plain(answer))

    @pytest.mark.parametrize(
        "summary", ['"half a pair \\ud83d"', '"\\udcff"', '"null \\u0000 byte"', '"\\u001b[31mred"']
    )
    def test_characters_that_files_or_terminals_cannot_show_are_refused_or_removed(self, summary: str) -> None:
        answer, errors = parse_answer(CONTRACT, f'{{"summary": {summary}}}')
        assert (answer is None) == bool(errors)
        if answer is not None:
            answer["summary"].encode()
            assert not {"\0", "\x1b"} & set(answer["summary"])
        for error in errors:
            error.encode()

    def test_summary_without_visible_text_is_not_a_summary(self) -> None:
        assert parse_answer(CONTRACT, r'{"summary": "\u001f\u0000"}')[0] is None

    @pytest.mark.parametrize("number", ["1e999", "-1e999", "NaN", "1" * 5000])
    def test_numbers_beyond_all_bounds_do_not_stop_the_engine(self, number: str) -> None:
        answer, errors = parse_answer(CONTRACT, f'{{"summary": "x", "more": {number}}}')
        assert (answer is None) == bool(errors)

    @settings(deadline=None, max_examples=200)
    @given(
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(st.sampled_from(["summary", "learned", "next", "x"]), inner, max_size=4)
            ),
            max_leaves=6,
        )
    )
    def test_every_json_is_an_answer_or_refused(self, value: Any) -> None:
        answer, errors = parse_answer(CONTRACT, json.dumps(value))
        assert (answer is None) == bool(errors)
        if answer is not None:
            assert json.loads(dump(to_plain(answer)))["summary"]

    @settings(deadline=None, max_examples=100)
    @given(st.text(max_size=60))
    def test_every_text_is_an_answer_or_refused(self, text: str) -> None:
        answer, errors = parse_answer(CONTRACT, text)
        assert (answer is None) == bool(errors)


def test_steered_reflector_can_say_how_it_responded() -> None:
    steering = {"response": "adjusted", "note": "looked at the parser"}
    answer, errors = parse_answer("loop.reflector", json.dumps({"why": "x", "next": "y", "steering": steering}))
    assert not errors
    assert answer is not None and answer["steering"] == steering


@pytest.mark.parametrize("schema", [*_LOOP_ANSWERS, *SESSION])
def test_a_contract_is_shown_as_json_schema(schema: str) -> None:
    shown = json.loads(render_schema(schema))
    assert shown["type"] == "object"
    assert shown["properties"]
    assert all("description" in field for field in shown["properties"].values())
