"""YAML that is changed in place: nothing but what changed is touched, and nothing is a danger to read."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ralph.core.errors import StateError
from ralph.documents.plain_yaml import flow, lines_of
from ralph.documents.session import yaml_lines
from ralph.documents.session.markdown import Page
from ralph.documents.session.values import number_of, text_of, words_of
from ralph.documents.session.yaml_lines import (
    SIZE_LIMIT,
    Exactly,
    YamlLines,
    front_matter,
    front_values,
    told,
    with_front_matter,
)

OLD = """# Kept by the engine
version: 3   # counts
session_id: '260210-163900'
created_at: 2026-02-10T16:39:00+0700

orchestrator:
    state: PLANNING  # where
    current_wave:
unknown: {a: 1, b: [x, y]}
tasks: {total: 0, completed: 0}
note: |
  two
  lines
# the end
"""
WORDS = r"""
a|b c|1|-3|007|1.5|1e3|0x1f|null|~|true|No|2026-02-10T16:39:00Z|260210-163900|"q"|'s'|[a, b]|[]|{}|{a: 1}|a # c|# c|a:b|x: y
- z||&a b|*a|!!str 3|>-|é|1_000|.inf|0o17|+1|1:30|yes|---|a,b|[1, x y]|'it''s'|\|@a|%b|`c`|?|"a\tb"|'a "b" c'
"""
words = st.sampled_from([*WORDS.strip().replace("\n", "|").split("|"), "|", "|-"])
keys = st.sampled_from(["a", "b", "task-1.2", "20260211-101500", "null", "x y", '"k"', "<<", "?"])
yaml_texts = st.lists(
    st.builds(
        "{}{}:{}{}".format, st.sampled_from(["", "", "  ", "    ", "\t"]), keys, st.sampled_from(["", " ", "  "]), words
    )
    | words
    | st.sampled_from(["  more", "a: |-", "  b: |-", "    more", "", "- a", "...", "\ufeff", "a\r"]),
    max_size=7,
).map("\n".join)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(10**12), 10**12)
    | st.text(max_size=12)
    | st.lists(st.text(max_size=4), max_size=3)
)
sections = st.dictionaries(st.sampled_from(["total", "state", "extra", "x y"]), scalars, max_size=3)


def careful(text: str) -> Any:
    return yaml_lines._careful(text, "x", 1)


class TestReading:
    @settings(max_examples=250, deadline=None)
    @given(yaml_texts)
    def test_the_quick_reader_reads_as_the_library_does_or_not_at_all(self, text: str) -> None:
        quick = yaml_lines._quick(text)
        if quick is None:
            return
        slow = careful(text)
        assert flow(quick.value) == flow(slow.value)
        assert [(k, v.start, v.end, v.line) for k, v in quick.pairs.items() if not v.pairs] == [
            (k, v.start, v.end, v.line) for k, v in slow.pairs.items() if not v.pairs
        ]

    def test_the_quick_reader_reads_plain_files(self) -> None:
        found = yaml_lines._quick("a: |-\n  b\n\n    c: 😀\n\nd: 1\n")
        assert found is not None and found.value == {"a": "b\n\n  c: 😀", "d": 1}
        assert (
            yaml_lines._quick("a: 1\r\nb:\r\n  c: x  # y\r\n  d: [p, q-1]\r\n# e\r\nf: 2026-02-10T16:39:00Z\r\n")
            is not None
        )

    def test_the_quick_reader_reads_lists_and_knows_where_they_are(self) -> None:
        text = "a:\n  - x # one\n  - y\n# keep\nb: 1.5\nc:\n  - k: v\n    l: |-\n      t\n       u\n  - m: 2\n# end\n"
        quick, slow = yaml_lines._quick(text), careful(text)
        assert quick is not None and quick.value == slow.value
        assert [(v.start, v.end) for v in quick.pairs.values()] == [(v.start, v.end) for v in slow.pairs.values()]
        assert YamlLines(text, "x").edited({"a": ["z"]}).startswith("a:\n  [z]\n# keep\nb: 1.5\n")

    @settings(max_examples=150, deadline=None)
    @given(yaml_texts | st.text(max_size=60))
    def test_nothing_but_a_state_error_comes_of_any_text(self, text: str) -> None:
        try:
            data = YamlLines(text, "x.yaml").data
        except StateError as error:
            assert error.what and error.where.startswith("x.yaml")
        else:
            assert isinstance(data, dict)

    @pytest.mark.parametrize(
        ("text", "what"),
        [
            ("- a", "`key: value`"),
            ("a: &x [1]\nb: *x", "aliases"),
            ("a: [", "not readable"),
            ("a: " + "[" * 5000, "not readable"),
            ("a: 1\n---\nb: 2", "not readable"),
            ("a: b: c", "not readable"),
            pytest.param("#" * (SIZE_LIMIT + 1), "larger", id="huge"),
        ],
    )
    def test_what_is_not_safe_or_not_sound_is_refused(self, text: str, what: str) -> None:
        with pytest.raises(StateError, match=what):
            YamlLines(text, "x.yaml")

    def test_values_are_found_by_path_with_their_line(self) -> None:
        yaml = YamlLines(OLD, "x")
        assert yaml.get("orchestrator.state") == "PLANNING"
        assert (yaml.line("orchestrator.state"), yaml.line("nothing")) == (7, 1)
        assert (yaml.has("orchestrator.current_wave"), yaml.get("orchestrator.current_wave")) == (True, None)
        assert (yaml.has("version.x"), yaml.get("created_at")) == (False, "2026-02-10T16:39:00+0700")

    def test_values_are_read_for_what_they_mean(self) -> None:
        assert (text_of(None), text_of(3), text_of(True), text_of(" a ")) == ("", "3", "true", "a")
        assert (number_of("7"), number_of(7), number_of(True), number_of("x"), number_of("²")) == (
            7,
            7,
            None,
            None,
            None,
        )
        assert words_of("[a, 'b',]") == words_of(["a", "b", None]) == ("a", "b")


class TestChanging:
    def test_only_the_lines_that_changed_are_touched(self) -> None:
        new = YamlLines(OLD, "x").edited(
            {
                "version": 4,
                "orchestrator.state": "BATCHING",
                "orchestrator.current_wave": 2,
                "orchestrator.paused": True,
            }
            | {"tasks.total": 5, "tasks.failed": 1, "feedback.processed": {"20260211-101500": "abc"}}
        )
        assert new == OLD.replace("version: 3", "version: 4").replace("PLANNING", "BATCHING").replace(
            "    current_wave:\n", "    current_wave: 2\n    paused: true\n"
        ).replace("{total: 0, completed: 0}", "{total: 5, completed: 0, failed: 1}").replace(
            "  lines\n", "  lines\nfeedback:\n  processed:\n    20260211-101500: abc\n"
        )

    def test_nothing_to_change_changes_nothing(self) -> None:
        assert YamlLines(OLD, "x").edited({"version": 3, "tasks.total": 0, "session_id": "260210-163900"}) == OLD

    def test_windows_line_ends_a_mark_and_no_final_newline_stay(self) -> None:
        text = "\ufeffa: 1\r\nb:\r\n  c: 2"
        assert (
            YamlLines(text, "x").edited({"a": 3, "b.d": 4, "e": "x"})
            == "\ufeffa: 3\r\nb:\r\n  c: 2\r\n  d: 4\r\ne: x\r\n"
        )

    def test_json_stays_json(self) -> None:
        assert YamlLines('{"a": {"b": 1}}\n', "x").edited({"a.b": 2, "a.c": "3"}) == '{"a": {"b": 2, c: "3"}}\n'

    def test_what_cannot_be_changed_in_place_is_written_anew_with_all_that_was_there(self) -> None:
        text = "# gone\na: {b: 1,}\nbig: 0x1F\n"
        assert YamlLines(text, "x").edited({"a.c": 2}) == "a:\n  b: 1\n  c: 2\nbig: 31\n"

    def test_a_mapping_can_take_the_place_of_another(self) -> None:
        text = "a:\n  b: 1 # one\n  c: 2\nd: 3\n"
        assert YamlLines(text, "x").edited({"a": {"b": 5}}) == text.replace("1", "5", 1)
        assert YamlLines(YamlLines(text, "x").edited({"a": Exactly(b=5)}), "x").data == {"a": {"b": 5}, "d": 3}

    @settings(max_examples=150, deadline=None)
    @given(yaml_texts, st.dictionaries(st.sampled_from(["a", "b", "new", "task-1"]), scalars | sections, max_size=4))
    def test_whatever_was_there_the_values_are_as_wanted_and_all_else_stays(
        self, text: str, wanted: dict[str, Any]
    ) -> None:
        try:
            before = YamlLines(text, "x")
        except StateError:
            return
        wanted = {key: value for key, value in wanted.items() if value != {}}
        after = YamlLines(before.edited(wanted), "x").data
        assert flow(after) == flow(YamlLines(lines_of(yaml_lines._merged(before.data, wanted)), "x").data)
        assert YamlLines(before.edited(wanted), "x").edited(wanted) == before.edited(wanted)

    @settings(max_examples=60, deadline=None)
    @given(st.dictionaries(st.text(min_size=1, max_size=6), scalars | sections, max_size=4))
    def test_any_reader_reads_what_is_written(self, data: dict[str, Any]) -> None:
        text = lines_of(data)
        assert text.encode() or not data
        assert flow(careful(text).value) == flow(YamlLines(text, "x").data)


class TestFrontMatter:
    def test_it_is_changed_in_place(self) -> None:
        text = "\ufeff---\r\na: 1 # x\r\n---\r\n# Body\r\n"
        assert with_front_matter(text, "x", {"a": 2, "b": "c"}) == "\ufeff---\r\na: 2 # x\r\nb: c\r\n---\r\n# Body\r\n"

    def test_it_is_made_where_there_is_none(self) -> None:
        assert with_front_matter("# Body", "x", {"a": 1}) == "---\na: 1\n---\n\n# Body"

    def test_faults_are_told_by_the_line_of_the_file(self) -> None:
        page = Page("\n---\na: 1\nb: [\n---\n")
        assert front_values(page) == {}
        with pytest.raises(StateError) as error:
            front_matter(page, "task.md")
        assert error.value.where == "task.md, line 5"
        assert told(error.value).startswith("line 5: not readable")
