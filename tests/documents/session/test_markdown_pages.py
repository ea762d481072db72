"""Markdown by line: sections as a reader sees them, and changes that touch nothing else."""

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from ralph.documents.session.markdown import Page, contain_markdown, fields, parse_bullets, parse_cells, row, rows

LINES = [
    "",
    "# One",
    "## Two ##",
    "  ### Three",
    "    # code",
    "#no heading",
    "text",
    "```",
    "````",
    "~~~",
    "```python",
    "``` a`b",
    "<!-- begin",
    "end -->",
    "<!-- both -->",
    "---",
    "## PART 2: REVIEW REPORT",
    "| a | b |",
    "> ## quoted",
    "##",
]
texts = st.lists(st.sampled_from(LINES), max_size=12).map("\n".join)


def headings(text: str) -> list[tuple[int, int]]:
    """What a whole parser of Markdown makes of it; underlined headings are none of ours."""
    tokens = MarkdownIt("commonmark").disable("lheading").parse(text)
    return [(t.map[0], int(t.tag[1])) for t in tokens if t.type == "heading_open" and t.level == 0 and t.map]


class TestSections:
    @settings(max_examples=150, deadline=None)
    @given(texts.map(lambda text: "begin\n" + text))
    def test_headings_agree_with_a_full_markdown_parser(self, text: str) -> None:
        assert [(one.start, one.level) for one in Page(text).sections] == headings(text)

    def test_a_section_ends_before_the_next_of_its_level(self) -> None:
        page = Page("# A\n## B\nb\n### C\nc\n## D\nd")
        assert [(one.title, one.text) for one in page.sections] == [
            ("A", "## B\nb\n### C\nc\n## D\nd"),
            ("B", "b\n### C\nc"),
            ("C", "c"),
            ("D", "d"),
        ]
        assert page.sections[2].path == ("a", "b", "c")
        assert page.sections[1].own == ("b",)

    def test_of_several_sections_of_a_name_the_last_that_says_something_counts(self) -> None:
        assert Page("## **Notes:**\nold\n## Notes\nnew\n## notes\n").says("notes") == "new"
        assert Page("text").says("notes") == ""

    def test_code_in_a_list_is_code(self) -> None:
        page = Page("- item\n\n     ```sh\n     # no heading\n     ```\n# heading")
        assert [one.title for one in page.sections] == ["heading"]

    def test_front_matter_is_found_after_a_byte_order_mark_and_empty_lines(self) -> None:
        page = Page("\ufeff\r\n---\r\nid: a\r\n---\r\n# Task\r\n")
        assert (page.front, page.front_start, page.body, page.newline) == ("id: a\r\n", 2, 4, "\r\n")

    @pytest.mark.parametrize(
        "text", ["---\n\n# A rule, and a heading\ntext\n---\n", "---\nid: a\n", "", "---", "x\n---\na: 1\n---\n"]
    )
    def test_horizontal_rule_is_not_front_matter(self, text: str) -> None:
        page = Page(text)
        assert (page.front, page.body) == ("", 0)


class TestChanges:
    @settings(max_examples=150, deadline=None)
    @given(texts, st.sampled_from(["\n", "\r\n"]), st.booleans(), st.sampled_from(["", "\ufeff"]), st.data())
    def test_lines_put_back_change_nothing(
        self, text: str, newline: str, final: bool, bom: str, data: st.DataObject
    ) -> None:
        text = bom + text.replace("\n", newline) + (newline if final and text else "")
        page = Page(text)
        assume(page.newline == newline and page.lines)
        start = data.draw(st.integers(0, len(page.lines) - 1))
        end = data.draw(st.integers(start, len(page.lines)))
        assert page.replace_lines(start, end, page.lines[start:end]) == text

    def test_lines_end_as_the_others_do(self) -> None:
        assert Page("a\r\nb").replace_lines(1, 2, ["c", "d"]) == "a\r\nc\r\nd"
        assert Page("a\r\nb").replace_lines(2, 2, ["c"]) == "a\r\nb\r\nc\r\n"
        assert Page("a\nb\n").replace_lines(1, 2, []) == "a\n"
        assert Page("\ufeffa\n").replace_lines(0, 1, ["b"]) == "\ufeffb\n"
        assert Page("").append_lines(["a"]) == "a\n"
        assert Page("a\n").insert_lines(1, ["b"]) == "a\n\nb\n"

    @settings(max_examples=150, deadline=None)
    @given(texts | st.text(max_size=40))
    def test_contained_text_stays_inside_its_section(self, text: str) -> None:
        page = Page(f"## Before\n{contain_markdown(text)}\n\n## After\n")
        assert [one.title for one in page.sections if one.level <= 2] == ["Before", "After"]

    def test_contained_text_without_top_headings_is_unchanged(self) -> None:
        text = "### A\n\n- b\n\n```\n# c\n```\n"
        assert contain_markdown(text) == text.strip()


class TestParts:
    def test_bullets_have_boxes_and_lines_below_them(self) -> None:
        found = parse_bullets(
            [
                "Some:",
                "* [ ] one",
                "  - deep",
                "* [x] two",
                "goes on",
                "",
                "  more",
                "",
                "Text.",
                "1. three",
                "- [] four",
            ]
        )
        assert [(one.text, one.checked, one.whole) for one in found] == [
            ("one", False, "one\n- deep"),
            ("two", True, "two\ngoes on\n  more"),
            ("three", None, "three"),
            ("four", False, "four"),
        ]

    def test_fields_are_read_in_all_their_spellings(self) -> None:
        text = "- **ID**: Q-1\n- **Question:** What\n  is it?\n**Status** : Open\n- Impact: high\n\n"
        assert fields(f"{text}no: field\n- Steps:\n  1. a\n- http://x".split("\n")) == {
            "id": "Q-1",
            "question": "What\nis it?",
            "status": "Open",
            "impact": "high",
            "steps": "1. a\n- http://x",
        }

    def test_tables_keep_escaped_bars(self) -> None:
        assert rows(["| A | B |", "|---|:-:|", row("a|b", "c\nd"), "text", "| e"]) == [
            ["A", "B"],
            ["a|b", "c d"],
            ["e"],
        ]
        assert parse_cells("|---|") is None
