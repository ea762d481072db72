"""Reflections: written quickly, read back whatever was in them, edited by people, and never a danger to read."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from ralph.core.codec import format_time, parse_time
from ralph.core.errors import StateError
from ralph.documents.reflection import ReflectedCheck, Reflection, fit_parts, lesson, load, parse, render
from ralph.documents.yaml_codec import dump

ONE = Reflection(
    loop="251115-093000-k3x9",
    iteration=2,
    at=1_763_200_000.125,
    task="Fix the date parser",
    task_type="test-fix",
    outcome="failure",
    action="Parsed with strptime",
    files=2,
    added=10,
    removed=3,
    checks=(
        ReflectedCheck("`pytest -q` passes", "failed", "exit 1", "baseline-broken", tests_passed=10, tests_failed=2),
        ReflectedCheck("coverage >= 80%", "passed", value=81.5),
    ),
    gaming=("A test was deleted.",),
    reward=0.83,
    reward_before=0.5,
    what_failed="test_offset\nE   TypeError: can't compare\n\n    deep",
    why="naive and aware datetimes: both occur",
    try_next="convert to UTC",
    used=(1,),
    window=2,
)


def whole(text: str) -> str:
    """What UTF-8 can hold of it."""
    return "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in text)


texts = st.text(st.characters(), max_size=60) | st.lists(
    st.sampled_from(
        ["", " ", "  x", "a: b", "- c", "# d", "\t", "|-", '"', "\\ud800", "---", "...", "é", "\x85", "null"]
    ),
    max_size=6,
).map("\n".join)
counts = st.integers(0, 10**6)
rewards = st.floats(0, 1)
checks = st.builds(
    ReflectedCheck,
    texts,
    texts,
    texts,
    texts,
    st.none() | st.floats(allow_nan=False, allow_infinity=False),
    st.none() | counts,
    st.none() | counts,
)
reflections = st.builds(
    Reflection,
    loop=texts,
    iteration=counts,
    at=st.integers(0, 4 * 10**12).map(lambda ms: parse_time(format_time(ms / 1000))),
    task=texts,
    task_type=texts,
    outcome=st.sampled_from(["success", "failure"]),
    action=texts,
    role=texts,
    files=counts,
    added=counts,
    removed=counts,
    checks=st.lists(checks, max_size=3).map(tuple),
    gaming=st.lists(texts, max_size=3).map(tuple),
    reward=rewards,
    reward_before=st.none() | rewards,
    what_failed=texts,
    why=texts,
    try_next=texts,
    strategy=texts,
    used=st.lists(counts, max_size=4).map(tuple),
    window=counts,
)


class TestRoundTrip:
    @settings(max_examples=80, deadline=None)
    @given(reflections)
    def test_whatever_is_in_it_comes_back(self, one: Reflection) -> None:
        again = parse(render(one), "x.yaml")
        assert again == parse(render(again), "x.yaml")
        for name in ("loop", "task", "action", "what_failed", "why", "try_next", "strategy"):
            assert getattr(again, name) == whole(getattr(one, name))
        assert again.gaming == tuple(map(whole, one.gaming))
        assert [(c.title, c.value) for c in again.checks] == [(whole(c.title), c.value) for c in one.checks]
        assert (again.at, again.reward, again.reward_before, again.used) == (
            one.at,
            one.reward,
            one.reward_before,
            one.used,
        )

    @settings(max_examples=40, deadline=None)
    @given(reflections)
    def test_every_yaml_reader_reads_a_reflection_alike(self, one: Reflection) -> None:
        text = render(one)
        assert text.encode()
        library = YAML(typ="safe", pure=True).load(text)
        ours = load(text, "x")
        # Other readers take a moment for a date; everything else is the same.
        assert {**library, "timestamp": ours["timestamp"]} == ours

    def test_people_can_read_it(self) -> None:
        text = render(ONE)
        assert "  what_failed: |-\n    test_offset\n    E   TypeError: can't compare\n\n        deep\n  why:" in text
        assert "timestamp: 2025-11-15T09:46:40.125Z" in text
        assert "reward_change: 0.33\n  is_improvement: true" in text
        assert list(load(text, "x")) == [
            *("schema", "loop_id", "iteration", "timestamp", "task_description", "task_type", "outcome"),
            *(
                "actor_output",
                "evaluator_output",
                "self_reflection",
                "memory_metadata",
                "performance_delta",
                "strategy",
            ),
        ]

    def test_reflection_text_is_in_the_first_person_and_begins_with_what_was_done(self) -> None:
        said = load(render(ONE), "x")["self_reflection"]["reflection_text"]
        assert said.startswith("What I did was not enough: Parsed with strptime. What failed: test_offset")
        assert said.endswith(
            "I think the cause is: naive and aware datetimes: both occur. Next I will try: convert to UTC."
        )
        done = load(render(replace(ONE, outcome="success")), "x")
        assert done["self_reflection"]["reflection_text"] == "What I did made every check pass: Parsed with strptime."
        assert done["evaluator_output"]["passed"] is True

    def test_numbers_that_are_none_are_left_open(self) -> None:
        assert parse(render(replace(ONE, reward=float("nan"), reward_before=None)), "x").reward == 0.0
        assert dump({"a_a": 1e-07, "b_b": 1e22, "c_c": float("inf")}) == "a_a: 1.0e-07\nb_b: 1.0e+22\nc_c: null\n"


class TestEditedByHand:
    def test_plain_words_comments_and_unknown_keys_are_fine(self) -> None:
        text = """
# my notes
schema: 1
loop_id: 251115-093000-k3x9
iteration: 3
timestamp: 2025-11-15T09:46:40Z
task_description: >
  Fix the
  parser
task_type: bug-fix
outcome: failure
actor_output: {summary: did it, mood: fine}
evaluator_output:
  results:
    - title: tests
      status: failed
      reason:
self_reflection:
  why: 42
mine: [1, {a: b}]
"""
        one = parse(text, "x.yaml")
        assert (one.task, one.action, one.why, one.at) == ("Fix the parser\n", "did it", "42", 1_763_200_000.0)
        assert one.checks == (ReflectedCheck("tests", "failed"),)
        assert one.role == "implementer"

    @pytest.mark.parametrize(
        ("before", "after", "says"),
        [
            ("iteration: 2", "iteration: two", "x.yaml: iteration"),
            ("outcome: failure", "outcome: partly", "x.yaml: outcome"),
            ('  summary: "Parsed with strptime"\n', "", "`actor_output.summary` is missing"),
            ("timestamp: ", "timestamp: soon # ", "x.yaml: timestamp"),
            ("  gaming:\n    - ", "  gaming: ", "x.yaml: evaluator_output.gaming"),
            ("status: ", "status: [] # ", "x.yaml: evaluator_output.results[0].status"),
            ("schema: 1", "schema: 2", "`schema` is 2"),
            ("schema: 1\n", "", "`schema` is None"),
            ("schema: 1", "schema: [", "not readable as YAML"),
            ("loop_id: ", "loop_id: !!python/object:os.system ", "not readable as YAML"),
            ("reflections_in_context: [1]", "reflections_in_context: [" * 1000, "not readable as YAML"),
            ("schema: 1", "schema: 1\na: &x [1]\nb: *x", "aliases"),
        ],
    )
    def test_error_names_the_wrong_field(self, before: str, after: str, says: str) -> None:
        assert before in render(ONE)
        with pytest.raises(StateError) as caught:
            parse(render(ONE).replace(before, after, 1), "x.yaml")
        assert says in str(caught.value)
        assert "x.yaml" in caught.value.where
        assert "correct the file" in caught.value.todo or "version" in caught.value.todo

    @pytest.mark.parametrize("text", ["", "\n", "just words", "[1, 2]", "\0", "- a\n- b\n", "x" * 300_000])
    def test_text_that_is_not_a_reflection_is_refused(self, text: str) -> None:
        with pytest.raises(StateError):
            parse(text, "x.yaml")

    @settings(max_examples=100, deadline=None)
    @given(st.text(st.sampled_from('ab:-#"\\|>[]{}&*!%@`\n  \t1.,'), max_size=60))
    def test_no_text_is_anything_but_read_or_refused(self, text: str) -> None:
        with pytest.raises(StateError):
            parse(text, "x.yaml")


class TestLesson:
    def test_lesson_is_one_line_with_the_cause_and_the_next_step(self) -> None:
        said = "tried: Parsed with strptime; failed because naive and aware datetimes: both occur; next: convert to UTC"
        assert lesson(ONE) == said

    def test_without_a_cause_it_says_what_failed(self) -> None:
        assert "failed because test_offset E TypeError" in lesson(replace(ONE, why=""))
        assert "failed because A test was deleted; next: convert" in lesson(replace(ONE, why="", what_failed=""))
        bare = replace(ONE, why="", what_failed="", gaming=(), try_next="")
        assert lesson(bare) == "tried: Parsed with strptime; failed"

    def test_a_success_says_what_passed(self) -> None:
        done = replace(ONE, outcome="success", why="")
        assert lesson(done) == "Parsed with strptime; this passed"

    @settings(deadline=None)
    @given(texts, texts, st.integers(0, 200))
    def test_lesson_is_short_and_has_one_line(self, action: str, why: str, most: int) -> None:
        said = lesson(replace(ONE, action=action * 20, why=why * 20), most)
        assert len(said) <= most
        assert len(said.splitlines()) <= 1

    def test_the_longest_part_gives_way_first(self) -> None:
        said = fit_parts((("a: ", "x" * 500), ("b: ", "short")), 60)
        assert said.endswith("…; b: short")
        assert len(said) == 60
