"""The diff of a run, with the comments of the user at their lines."""

from collections.abc import Sequence
from typing import Any

from ralph.core.text import count
from ralph.documents.hats.definition import show_role
from ralph.view.model import CommentView, RunView
from ralph.view.page.markup import Markup, box, empty, icon, prose, tag

_KINDS = {"+": "add", "-": "del"}
_OPEN_FILES = 12
"""How many files are unfolded. A page with hundreds of files stays readable."""


def show_diff(view: RunView, files: Sequence[dict[str, Any]], problem: str) -> Markup:
    """The changed files with their hunks, or why there is no diff."""
    placed: set[int] = set()
    shown = [_file(view, file, number < _OPEN_FILES, placed) for number, file in enumerate(files)]
    rest = [_comment(one) for number, one in enumerate(view.comments) if number not in placed]
    others = tag("div", tag("h3", "Comments on lines that have changed since"), rest, class_="in cmts") if rest else ""
    if problem:
        return box("Diff", empty("There is no diff", problem), others, id="diff")
    if not files:
        return box("Diff", empty("No changes", "The run changed no file."), others, id="diff")
    total = _stat(sum(file["added"] for file in files), sum(file["removed"] for file in files))
    return box("Diff", *shown, others, id="diff", note=[f"{count(len(files), 'file')} ", total])


def _stat(added: int, removed: int) -> Markup:
    plus, minus = tag("span", f"+{added}", class_="plus"), tag("span", f"−{removed}", class_="minus")
    return tag("span", plus, minus, class_="dstat")


def _file(view: RunView, file: dict[str, Any], is_open: bool, placed: set[int]) -> Markup:
    status = "" if file["status"] == "changed" else file["status"]
    turns = [str(turn.number) for turn in view.turns if file["path"] in turn.names]
    by = f"changed in {'turns' if len(turns) > 1 else 'turn'} {', '.join(turns[-8:])}" if turns else ""
    summary = tag(
        "summary",
        icon("down"),
        tag("code", file["path"]),
        _stat(file["added"], file["removed"]),
        tag("span", status, class_="dim sm"),
        tag("span", class_="grow"),
        tag("span", by, class_="dimmer sm"),
    )
    if file["binary"]:
        return tag("details", summary, empty("Binary file"), open=is_open)
    rows = [row for hunk in file["hunks"] for row in _hunk(view, file["path"], hunk, placed)]
    left_out = f"{count(file['left_out'], 'more line')}; `ralph diff` shows all." if file["left_out"] else ""
    cut = tag("p", *prose(left_out), class_="in sm dimmer") if left_out else ""
    return tag("details", summary, tag("table", tag("tbody", rows), class_="hunk"), cut, open=is_open)


def _hunk(view: RunView, path: str, hunk: dict[str, Any], placed: set[int]) -> list[Markup]:
    at = (tag("td", class_="n"), tag("td", class_="n"), tag("td", class_="s"))
    rows = [tag("tr", *at, tag("td", f"{hunk['head']} {hunk['context']}"), class_="at")]
    for sign, old, new, text in hunk["lines"]:
        shown = "−" if sign == "-" else sign
        numbers = (tag("td", old or "", class_="n"), tag("td", new or "", class_="n"), tag("td", shown, class_="s"))
        rows.append(tag("tr", *numbers, tag("td", text), class_=_KINDS.get(sign)))
        for number, comment in enumerate(view.comments):
            if number not in placed and _is_at(comment, path, sign, old, new, text):
                placed.add(number)
                rows.append(tag("tr", tag("td", _comment(comment), class_="cm", colspan="4")))
    return rows


def _is_at(comment: CommentView, path: str, sign: str, old: int | None, new: int | None, text: str) -> bool:
    """Whether a comment is about a line that still has the text on which it was written."""
    line = comment.last_line or comment.line
    is_here = sign == "-" and line == old if comment.side == "old" else sign != "-" and line == new
    known = {quoted[1:].rstrip() for quoted in comment.snippet.splitlines()}
    return comment.path == path and is_here and text.rstrip() in known


def _comment(comment: CommentView) -> Markup:
    lines = f"lines {comment.line} to {comment.last_line}" if comment.last_line else f"line {comment.line}"
    place = f"{comment.path}, {'removed ' if comment.side == 'old' else ''}{lines}"
    meta = tag("div", tag("b", "Comment"), tag("span", place), class_="meta")
    acks = []
    for receipt in comment.receipts[:1]:
        acks.append(
            ("pass", "pass", f"Received by turn {receipt.turn} ({show_role(receipt.role)}), by {receipt.means}")
        )
    if not acks:
        acks.append(("wait", "idle", "No turn has received it"))
    if comment.changed_by:
        acks.append(("check", "pass", f"Turn {comment.changed_by} changed these lines"))
    elif comment.file_changed_by:
        acks.append(("none", "idle", f"Turn {comment.file_changed_by} changed the file, but not these lines"))
    listed = [tag("p", icon(symbol, tone), tag("span", text), class_="ack") for symbol, tone, text in acks]
    return tag("div", meta, tag("p", comment.text), listed, class_="cmt")
