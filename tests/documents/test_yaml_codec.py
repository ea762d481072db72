"""YAML that is changed in place: nothing but what changed is touched, and nothing is a danger to read."""

from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from ralph.core.errors import StateError
from ralph.documents import yaml_codec
from ralph.documents.session.markdown import Page
from ralph.documents.session.values import (
    describe_fault,
    number_of,
    read_front_matter,
    read_front_values,
    read_mapping,
    read_text,
    read_words,
    with_front_matter,
)
from ralph.documents.yaml_codec import (
    SIZE_LIMIT,
    WholeMapping,
    YamlError,
    YamlRules,
    dump,
    edit,
    load,
    load_mapping,
    render_inline,
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
    | st.sampled_from(["  more", "a: |-", "  b: |-", "    more", "", "- a", "...", "a\r"]),
    max_size=7,
).map("\n".join)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(10**12), 10**12)
    | st.text(max_size=12)
    | st.lists(st.text(max_size=4), max_size=3)
)


class PureLoader(yaml.SafeLoader):  # type: ignore[misc]
    yaml_implicit_resolvers = yaml_codec._Loader.yaml_implicit_resolvers


sections = st.dictionaries(st.sampled_from(["total", "state", "extra", "x y"]), scalars, max_size=3)


class TestReading:
    @settings(max_examples=150, deadline=None)
    @given(yaml_texts | st.text(max_size=60))
    def test_any_text_is_a_mapping_or_an_error_with_the_file(self, text: str) -> None:
        try:
            data = read_mapping(text, "x.yaml").data
        except StateError as error:
            assert error.what and error.where.startswith("x.yaml")
        else:
            assert isinstance(data, dict)

    @settings(max_examples=150, deadline=None)
    @given(yaml_texts)
    def test_the_pure_parser_reads_the_same_as_libyaml(self, text: str) -> None:
        """PyYAML can be built without libyaml. The two differ on what they refuse, and on what no file of ours has."""
        try:
            found = load(text).data
        except YamlError:
            return
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(yaml_codec, "_Loader", PureLoader)
            try:
                pure = load(text).data
            except YamlError:
                return
        assert render_inline(pure) == render_inline(found)

    @pytest.mark.parametrize(
        ("text", "value"),
        [
            ("on", "on"),
            ("No", "No"),
            ("~", None),
            ("", None),
            ("TRUE", True),
            ("007", 7),
            ("0x1F", 31),
            ("0o17", 15),
            ("1_000", "1_000"),
            ("1e3", 1000.0),
            ("-.5", -0.5),
            ("1:30", "1:30"),
            ("2026-02-10", "2026-02-10"),
            ("2026-02-10T16:39:00Z", "2026-02-10T16:39:00Z"),
            ("260210-163900", "260210-163900"),
            ("!!str 3", "3"),
            ("'it''s'", "it's"),
            ("[1, x y]", [1, "x y"]),
        ],
    )
    def test_values_have_the_types_of_yaml_1_2(self, text: str, value: object) -> None:
        assert load(f"a: {text}\n").data == {"a": value}

    def test_every_key_is_text(self) -> None:
        assert load("1: a\ntrue: b\n2026-02-10: c\nnull: d\n").data == {
            "1": "a",
            "true": "b",
            "2026-02-10": "c",
            "null": "d",
        }

    def test_of_a_repeated_key_the_last_one_counts_unless_it_is_refused(self) -> None:
        assert load("a: 1\na: 2\n").data == {"a": 2}
        with pytest.raises(YamlError, match="'a' appears twice") as error:
            load("a: 1\na: 2\n", YamlRules(allow_repeated_keys=False))
        assert error.value.line == 2

    def test_aliases_and_merge_keys_are_written_out_within_bounds(self) -> None:
        rules = YamlRules(allow_aliases=True)
        text = "base: &b {x: 1, y: 2}\nmore: &m {z: 3}\na: {<<: *b, y: 5}\nc: {<<: [*m, *b]}\n"
        found = load(text, rules).data
        assert (found["a"], found["c"]) == ({"x": 1, "y": 5}, {"x": 1, "y": 2, "z": 3})
        laughs = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
            f"{new}: &{new} [{','.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcdefg", "bcdefgh", strict=True)
        )
        with pytest.raises(YamlError, match="more than 100000 values"):
            load(laughs, rules)
        with pytest.raises(YamlError, match="nested deeper"):
            load("a: &a [*a]\n", rules)

    @pytest.mark.parametrize("text", ["[" * 250_000, "- " * 120_000 + "x", "{a: " * 60_000])
    def test_nesting_that_would_end_the_process_is_refused(self, text: str) -> None:
        with pytest.raises(YamlError, match="nested too deeply"):
            load(text)

    def test_the_line_of_a_control_character_is_named(self) -> None:
        with pytest.raises(YamlError, match="control characters") as error:
            load("a: 1\nb: \x07\n")
        assert error.value.line == 2

    def test_lines_are_found_through_lists(self) -> None:
        document = load("a:\n  - b: 1\n    c: 2\n  - d\n")
        assert [document.line_of(keys) for keys in (["a"], ["a", 0, "c"], ["a", 1], ["a", 0, "x"], ["z"])] == [
            1,
            3,
            4,
            2,
            1,
        ]

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
    def test_unsafe_or_invalid_yaml_is_refused(self, text: str, what: str) -> None:
        with pytest.raises(StateError, match=what):
            read_mapping(text, "x.yaml")

    def test_values_are_found_by_path_with_their_line(self) -> None:
        yaml = load(OLD)
        assert yaml.get("orchestrator.state") == "PLANNING"
        assert (yaml.line("orchestrator.state"), yaml.line("nothing")) == (7, 1)
        assert (yaml.has("orchestrator.current_wave"), yaml.get("orchestrator.current_wave")) == (True, None)
        assert (yaml.has("version.x"), yaml.get("created_at")) == (False, "2026-02-10T16:39:00+0700")

    def test_values_are_read_for_what_they_mean(self) -> None:
        assert (read_text(None), read_text(3), read_text(True), read_text(" a ")) == ("", "3", "true", "a")
        assert (number_of("7"), number_of(7), number_of(True), number_of("x"), number_of("²")) == (
            7,
            7,
            None,
            None,
            None,
        )
        assert read_words("[a, 'b',]") == read_words(["a", "b", None]) == ("a", "b")


class TestChanging:
    def test_edit_rewrites_only_changed_lines(self) -> None:
        new = edit(
            OLD,
            {
                "version": 4,
                "orchestrator.state": "BATCHING",
                "orchestrator.current_wave": 2,
                "orchestrator.paused": True,
            }
            | {"tasks.total": 5, "tasks.failed": 1, "feedback.processed": {"20260211-101500": "abc"}},
        )
        expected = OLD.replace("version: 3", "version: 4").replace("PLANNING", "BATCHING")
        expected = expected.replace("    current_wave:\n", "    current_wave: 2\n    paused: true\n")
        expected = expected.replace("{total: 0, completed: 0}", "{total: 5, completed: 0, failed: 1}")
        assert new == expected + "feedback:\n    processed:\n        20260211-101500: abc\n"

    def test_edit_with_the_same_values_changes_nothing(self) -> None:
        assert edit(OLD, {"version": 3, "tasks.total": 0, "session_id": "260210-163900"}) == OLD

    def test_windows_line_ends_a_mark_and_no_final_newline_stay(self) -> None:
        text = "\ufeffa: 1\r\nb:\r\n  c: 2"
        assert edit(text, {"a": 3, "b.d": 4, "e": "x"}) == "\ufeffa: 3\r\nb:\r\n  c: 2\r\n  d: 4\r\ne: x\r\n"

    def test_json_stays_json(self) -> None:
        assert edit('{"a": {"b": 1}}\n', {"a.b": 2, "a.c": "3"}) == '{"a": {"b": 2, c: "3"}}\n'

    def test_yaml_that_cannot_be_edited_in_place_is_rewritten_with_all_values(self) -> None:
        text = "# gone\na: 1\na: {b: 1}\nbig: 0x1F\n"
        assert edit(text, {"a.c": 2}) == "a:\n  b: 1\n  c: 2\nbig: 31\n"

    def test_a_mapping_can_take_the_place_of_another(self) -> None:
        text = "a:\n  b: 1 # one\n  c: 2\nd: 3\n"
        assert edit(text, {"a": {"b": 5}}) == text.replace("1", "5", 1)
        assert load(edit(text, {"a": WholeMapping(b=5)})).data == {"a": {"b": 5}, "d": 3}

    def test_a_block_keeps_the_comment_behind_it(self) -> None:
        assert edit("a:\n  - x # one\n  - y\n# keep\nb: 1.5\n", {"b": 2}) == "a:\n  - x # one\n  - y\n# keep\nb: 2\n"

    @settings(max_examples=150, deadline=None)
    @given(yaml_texts, st.dictionaries(st.sampled_from(["a", "b", "new", "task-1"]), scalars | sections, max_size=4))
    def test_whatever_was_there_the_values_are_as_wanted_and_all_else_stays(
        self, text: str, wanted: dict[str, Any]
    ) -> None:
        try:
            before = load_mapping(text).data
        except YamlError:
            return
        wanted = {key: value for key, value in wanted.items() if value != {}}
        edited = edit(text, wanted)
        assert render_inline(load(edited).data or {}) == render_inline(
            load(dump(yaml_codec._merge(before, wanted))).data or {}
        )
        assert edit(edited, wanted) == edited

    @settings(max_examples=60, deadline=None)
    @given(st.dictionaries(st.text(min_size=1, max_size=6), scalars | sections, max_size=4))
    def test_dumped_yaml_is_read_back(self, data: dict[str, Any]) -> None:
        text = dump(data)
        assert text.encode() or not data
        assert render_inline(load_mapping(text).data) == render_inline(data)


class TestFrontMatter:
    def test_front_matter_is_changed_in_place(self) -> None:
        text = "\ufeff---\r\na: 1 # x\r\n---\r\n# Body\r\n"
        assert with_front_matter(text, "x", {"a": 2, "b": "c"}) == "\ufeff---\r\na: 2 # x\r\nb: c\r\n---\r\n# Body\r\n"

    def test_missing_front_matter_is_created(self) -> None:
        assert with_front_matter("# Body", "x", {"a": 1}) == "---\na: 1\n---\n\n# Body"

    def test_faults_name_the_line_of_the_file(self) -> None:
        page = Page("\n---\na: 1\nb: [\n---\n")
        assert read_front_values(page) == {}
        with pytest.raises(StateError) as error:
            read_front_matter(page, "task.md")
        assert error.value.where == "task.md, line 5"
        assert describe_fault(error.value).startswith("line 5: not readable")
