"""Comments on lines of the diff: anchor them, send them to a run, and find the turn that changed these lines."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from pathlib import Path

from ralph.app.changes import diff_run, open_file_reader
from ralph.app.runs import find_live_run, refuse_inside_a_turn
from ralph.app.sessions import find_next_batch, find_session
from ralph.app.steer import send_signal
from ralph.core.errors import RalphError, UsageError
from ralph.core.ids import SESSION_WORKFLOWS
from ralph.core.outcomes import Outcome
from ralph.core.signals import Signal, SignalType
from ralph.documents.diff import (
    LINE_CHARS,
    DiffComment,
    parse_comment_list,
    parse_diff,
    parse_place,
    render_comments,
)
from ralph.store.files import read_limited
from ralph.store.runs import Project, RunDir
from ralph.view.comments import turns_since_receipt
from ralph.view.model import CommentView, RunView

MAX_COMMENTS = 50
MAX_CHARS = 4000
"""The longest text of one comment."""
_CONTEXT = 2
"""How many lines before and after the place are quoted."""
_FILE_LIMIT = 16 << 20
_PLACE_FORM = "write it as path:line or path:line-line, for example src/cart.py:12-15"


@dataclass(frozen=True)
class SentComments:
    """Comments that were sent to a run together."""

    run: RunDir
    count: int
    signal: str = ""
    """The name of the STEER that has them; empty if they became feedback."""
    feedback: str = ""
    """The file of the feedback that has them; empty if they became a STEER."""
    iteration: int = 0
    """The iteration that the feedback is for."""


@dataclass(frozen=True)
class NewComment:
    """A comment as the user gives it."""

    place: str
    """`path:line` or `path:line-line`."""
    text: str
    side: str = "new"
    """`new`, or `old` for lines that the run removed."""


@dataclass(frozen=True)
class _Side:
    """One file of the diff as lines, on the side that a comment is about."""

    path: str
    lines: list[str]
    signs: dict[int, str] = field(default_factory=dict)
    """`+` or `-` for the lines that the run added or removed."""

    def quote(self, line: int, last: int) -> str:
        first, end = max(1, line - _CONTEXT), min(len(self.lines), last + _CONTEXT)
        return "\n".join(f"{self.signs.get(number, ' ')}{self.lines[number - 1]}" for number in range(first, end + 1))


def read_comment_list(text: str, where: str, *, side: str = "new") -> list[NewComment]:
    """The comments of a file with one `path:line: text` per line."""
    try:
        found = parse_comment_list(text)
    except ValueError as error:
        todo = "begin a comment with `path:line: text`; indent the lines that continue it"
        raise UsageError(f"line {error} is not a comment", where=where, todo=todo) from None
    if not found:
        raise UsageError("there is no comment in the file", where=where, todo="write one `path:line: text` per line")
    return [NewComment(place, said, side) for place, said in found]


def list_changed_files(project: Project, wanted: str | None) -> list[str]:
    """The files that a run changed so far."""
    return [file["path"] for file in parse_diff(diff_run(project, find_live_run(project, wanted, "comment on")).text)]


def send_comments(
    project: Project, run: RunDir, comments: Sequence[NewComment], *, role: str = "", by: str = ""
) -> SentComments:
    """Anchor comments at the lines that `ralph diff` shows, and send them together."""
    refuse_inside_a_turn("an agent cannot comment", "put it into your answer instead")
    _refuse_over(run)
    anchor = _Anchor(project, run)
    return post_comments(project, run, [anchor.place(one) for one in comments], role=role, by=by)


def post_comments(
    project: Project, run: RunDir, comments: Sequence[DiffComment], *, role: str = "", by: str = ""
) -> SentComments:
    """Send anchored comments: as one STEER, or as one round of feedback to a session that has stopped."""
    refuse_inside_a_turn("an agent cannot comment", "put it into your answer instead")
    if not 0 < len(comments) <= MAX_COMMENTS:
        raise UsageError(f"{len(comments)} comments at once", todo=f"send 1 to {MAX_COMMENTS} comments")
    _refuse_over(run)
    message = render_comments(comments)
    if run.record().workflow in SESSION_WORKFLOWS and run.outcome() and not run.alive:
        batch = find_next_batch(find_session(project, run.id))
        batch.give(batch.requirement(message.replace("\n", "\n  ").rstrip()))
        return SentComments(run, len(comments), feedback=batch.path, iteration=batch.number)
    sent = send_signal(project, Signal("", SignalType.STEER, message, by=by), role, run.id)
    return SentComments(run, len(comments), signal=sent.name)


def _refuse_over(run: RunDir) -> None:
    """Refuse a run that will never read comments. A session that is complete continues with feedback."""
    outcome = run.outcome()
    can_continue = outcome is None or outcome.resumable
    if run.record().workflow in SESSION_WORKFLOWS:
        can_continue = outcome is not Outcome.ABORTED
    if not can_continue:
        todo = "comment on a run that works or can continue (`ralph status`), or start another run with your comments"
        raise UsageError(f"run {run.id} is over: {outcome}", todo=todo)


class _Anchor:
    """Finds the lines that comments are about, in the diff of a run."""

    def __init__(self, project: Project, run: RunDir) -> None:
        self._project, self._run = project, run
        try:
            diff = diff_run(project, run)
        except UsageError:
            # Without snapshots there is no diff, but the files are there.
            self._files, self._commits = [], None
            return
        self._files = parse_diff(diff.text)
        self._commits = {"old": diff.old, "new": diff.new}
        self._read = open_file_reader(project, run)

    def place(self, comment: NewComment) -> DiffComment:
        """The comment with the lines that it is about."""
        found = parse_place(comment.place)
        if found is None:
            raise UsageError(f"{comment.place[:80]!r} is not a place in a file", todo=_PLACE_FORM)
        path, line, last = found
        text = comment.text.strip()
        if not text:
            raise UsageError("the comment is empty", where=comment.place, todo="write it in quotes after the place")
        if len(text) > MAX_CHARS:
            todo = "shorten it, or send it with `ralph steer`"
            raise UsageError(f"the comment is longer than {MAX_CHARS} characters", where=comment.place, todo=todo)
        side = self._find_side(path, comment.side)
        self._check_lines(side, line, last)
        return DiffComment(
            path=side.path,
            line=line,
            side=comment.side,
            snippet=side.quote(line, last or line),
            text=text,
            last_line=last,
            marks=tuple(range(min(line - 1, _CONTEXT), min(line - 1, _CONTEXT) + (last or line) - line + 1)),
        )

    def _check_lines(self, side: _Side, line: int, last: int) -> None:
        if line < 1 or (last and last < line):
            raise UsageError(f"{side.path} has no lines {line} to {last or line}", todo=_PLACE_FORM)
        if max(line, last) > len(side.lines):
            what = f"{side.path} has {len(side.lines)} lines, so there is no line {max(line, last)}"
            raise UsageError(what, todo=f"`ralph diff {self._run.id}` shows the lines with their places")

    def _find_side(self, given: str, side: str) -> _Side:
        """The file as it is after the run so far, or before it."""
        for path in self._candidates(given):
            changed = next((file for file in self._files if path in (file["path"], file["old_path"])), None)
            name = (changed["old_path"] or path) if changed and side == "old" else path
            content = self._content(name, side)
            if content is None:
                continue
            if b"\0" in content[:8000]:
                raise UsageError(f"{path} is not a text file", todo="use `ralph steer` to say something about it")
            return _Side(path, content.decode(errors="replace").splitlines(), _list_signs(changed, side))
        raise self._unknown(given, side)

    def _candidates(self, given: str) -> list[str]:
        """The path as the diff has it: as it was typed, or from the directory in which the user is."""
        tree = self._project.tree(self._run.record())
        places = [Path(given), Path.cwd() / given]
        names = [given.removeprefix("./")]
        for place in places:
            absolute = place if place.is_absolute() else tree / place
            if absolute.resolve().is_relative_to(tree.resolve()):
                names.append(absolute.resolve().relative_to(tree.resolve()).as_posix())
        return [name for name in dict.fromkeys(names) if name and not set(name) & set("`\n\r")]

    def _content(self, path: str, side: str) -> bytes | None:
        if self._commits is not None:
            return self._read(self._commits[side], path)
        tree = self._project.tree(self._run.record()).resolve()
        place = (tree / path).resolve()
        if side == "old" or not place.is_relative_to(tree) or not place.is_file():
            return None
        return read_limited(place, _FILE_LIMIT)

    def _unknown(self, path: str, side: str) -> UsageError:
        changed = [file["path"] for file in self._files][:10]
        when = "before the run" if side == "old" else "in the work of the run"
        todo = f"the run changed {', '.join(changed)}" if changed else "the run has changed no file yet"
        return UsageError(f"there is no file {path[:200]!r} {when}", where=f"run {self._run.id}", todo=todo)


def _list_signs(file: dict[str, object] | None, side: str) -> dict[int, str]:
    if file is None:
        return {}
    signs: dict[int, str] = {}
    hunks = file["hunks"]
    assert isinstance(hunks, list)
    for hunk in hunks:
        for sign, old, new, _ in hunk["lines"]:
            number = old if side == "old" else new
            if number is not None and sign != " ":
                signs[number] = sign
    return signs


def find_changed_places(
    project: Project, run: RunDir, view: RunView, comments: Iterable[CommentView]
) -> tuple[CommentView, ...]:
    """The comments, each with the first turn that changed its lines since a turn received it."""
    found = []
    reader: _Places | None = None
    for comment in comments:
        turns = [turn for turn in turns_since_receipt(view, comment) if turn.snapshot]
        if turns and reader is None:
            try:
                reader = _Places(open_file_reader(project, run))
            except RalphError:
                return tuple(comments)
        changed = next((turn.number for turn in turns if reader and reader.is_changed(comment, turn.snapshot)), 0)
        found.append(replace(comment, changed_by=changed))
    return tuple(found)


class _Places:
    """Whether a turn changed the quoted lines of a comment. Each file is read once per snapshot."""

    def __init__(self, read: Callable[[str, str], bytes | None]) -> None:
        self._read = read
        self._known: dict[tuple[str, str], list[str]] = {}

    def is_changed(self, comment: CommentView, snapshot: str) -> bool:
        """Whether the turn that left a snapshot changed the lines that are meant. Removed lines are changed if they are back."""
        hidden = "+" if comment.side == "old" else "-"
        quoted = [(at, line) for at, line in enumerate(comment.snippet.splitlines()) if line[:1] != hidden]
        block = [line[1:].rstrip() for _, line in quoted]
        meant = [index for index, (at, _) in enumerate(quoted) if at in comment.marks] or list(range(len(quoted)))
        before, after = self._lines(f"{snapshot}^", comment.path), self._lines(snapshot, comment.path)
        if comment.side == "old":
            return not _find_block(before, block, comment.line) and bool(_find_block(after, block, comment.line))
        start = _find_block(before, block, comment.line - meant[0]) if meant else 0
        if not start:
            return False
        first, last = start - 1 + meant[0], start - 1 + meant[-1]
        return _is_replaced(before, after, first, last)

    def _lines(self, commit: str, path: str) -> list[str]:
        key = (commit, path)
        if key not in self._known:
            text = (self._read(commit, path) or b"").decode(errors="replace")
            self._known[key] = [line[: LINE_CHARS - 1].rstrip() for line in text.splitlines()]
        return self._known[key]


def _find_block(lines: list[str], block: list[str], near: int) -> int:
    """The line, counted from 1, at which the block begins, the nearest to a line; 0 if it is nowhere."""
    size = len(block)
    places = [at + 1 for at in range(len(lines) - size + 1) if lines[at : at + size] == block] if size else []
    return min(places, key=lambda at: abs(at - near), default=0)


def _is_replaced(before: list[str], after: list[str], first: int, last: int) -> bool:
    """Whether lines first to last, counted from 0, are no longer the same and together."""
    for kind, start, end, _, _ in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if kind == "insert" and first < start <= last:
            return True
        if kind in ("replace", "delete") and start <= last and end > first:
            return True
    return False
