"""Diffs as lines with numbers, and comments as one message that can be read back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralph.documents.diff import (
    DiffComment,
    parse_comment_list,
    parse_comments,
    parse_diff,
    parse_feedback_comments,
    parse_place,
    render_comments,
)

DIFF = """diff --git a/app/a.py b/app/a.py
index 1..2 100644
--- a/app/a.py
+++ b/app/a.py
@@ -10,3 +10,3 @@ class A:
 same
-old <script>
+new
 last
diff --git a/gone.txt b/gone.txt
deleted file mode 100644
--- a/gone.txt
+++ /dev/null
@@ -1 +0,0 @@
-bye
diff --git a/logo.png b/logo.png
new file mode 100644
Binary files /dev/null and b/logo.png differ
"""


def test_lines_have_the_numbers_of_both_sides() -> None:
    changed, gone, logo = parse_diff(DIFF)
    assert (changed["path"], changed["added"], changed["removed"]) == ("app/a.py", 1, 1)
    assert changed["hunks"][0]["context"] == "class A:"
    assert changed["hunks"][0]["lines"] == [
        [" ", 10, 10, "same"],
        ["-", 11, None, "old <script>"],
        ["+", None, 11, "new"],
        [" ", 12, 12, "last"],
    ]
    assert (gone["path"], gone["status"]) == ("gone.txt", "deleted")
    assert (logo["path"], logo["status"], logo["binary"]) == ("logo.png", "new", True)


def test_a_long_file_is_cut_and_says_how_much_is_left_out() -> None:
    text = "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -0,0 +1,3000 @@\n" + "+line\n" * 3000
    [file] = parse_diff(text)
    assert (file["added"], file["shown"], file["left_out"]) == (3000, 2000, 1000)


LINES = (
    st.text(st.characters(blacklist_categories=("Cs", "Cc", "Zl", "Zp")), min_size=1, max_size=60)
    .map(str.strip)
    .filter(bool)
)
TEXTS = st.lists(LINES.filter(lambda line: not line.startswith(">")), min_size=1, max_size=4).map("\n".join)
COMMENTS = st.builds(
    DiffComment,
    path=LINES.filter(lambda path: "`" not in path),
    line=st.integers(1, 9999),
    side=st.sampled_from(["new", "old"]),
    snippet=st.lists(LINES.map(lambda line: f"+{line}"), min_size=2, max_size=4).map("\n".join),
    text=TEXTS,
    last_line=st.sampled_from([0, 10_000]),
    marks=st.sampled_from([(), (0,), (1,), (0, 1)]),
)


@given(st.lists(COMMENTS, min_size=1, max_size=4))
def test_comments_can_be_read_back_from_their_message(comments: list[DiffComment]) -> None:
    assert parse_comments(render_comments(comments)) == comments


@given(st.lists(COMMENTS, min_size=1, max_size=4))
def test_comments_can_be_read_back_from_feedback(comments: list[DiffComment]) -> None:
    requirement = render_comments(comments).replace("\n", "\n  ").rstrip()
    feedback = f"# Feedback\n\n## New Requirements\n- {requirement}\n\n## Other\n- no comment\n"
    assert parse_feedback_comments(feedback) == comments
    assert parse_feedback_comments("# Feedback\n- something else\n") == []


def test_a_list_of_comments_has_one_place_per_line() -> None:
    text = "# mine\nsrc/a b.py:3: Why: this?\n  More.\n\ndoc.md:4-6: All of it.\n"
    assert parse_comment_list(text) == [("src/a b.py:3", "Why: this?\nMore."), ("doc.md:4-6", "All of it.")]
    with pytest.raises(ValueError, match="2"):
        parse_comment_list("a.py:1: fine\nno place\n")


@pytest.mark.parametrize(
    ("word", "place"),
    [
        ("a.py:3", ("a.py", 3, 0)),
        ("a:b.py:3-9", ("a:b.py", 3, 9)),
        ("a.py:3-3", ("a.py", 3, 0)),
        ("a.py", None),
        (":3", None),
    ],
)
def test_places_are_a_path_and_lines(word: str, place: tuple[str, int, int] | None) -> None:
    assert parse_place(word) == place


def test_other_messages_are_not_comments() -> None:
    assert parse_comments("use httpx") == []
    assert parse_comments("") == []
