"""Diffs as lines with numbers, and comments as one message that can be read back."""

from hypothesis import given
from hypothesis import strategies as st

from ralph.documents.diff_comments import DiffComment, parse_comments, render_comments
from ralph.web.diffs import parse_diff

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
    snippet=st.lists(LINES.map(lambda line: f"+{line}"), max_size=4).map("\n".join),
    text=TEXTS,
)


@given(st.lists(COMMENTS, min_size=1, max_size=4))
def test_comments_can_be_read_back_from_their_message(comments: list[DiffComment]) -> None:
    assert parse_comments(render_comments(comments)) == comments


def test_other_messages_are_no_comments() -> None:
    assert parse_comments("use httpx") == []
    assert parse_comments("") == []
