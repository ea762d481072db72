"""Comments on lines of the diff: anchor them, send them to a run, and find the turn that changed these lines."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from pathlib import Path

from ralph.app.changes import diff_run, open_file_reader
from ralph.app.runs import find_live_run, refuse_inside_a_turn
from ralph.app.sessions import find_next_batch, find_session
from ralph.app.steer import post_signal
from ralph.app.views import open_view
from ralph.core.errors import RalphError, UsageError
from ralph.core.ids import SESSION_WORKFLOWS
from ralph.core.outcomes import Outcome
from ralph.core.signals import Signal, SignalType
from ralph.core.text import clean_text, count, show_directions
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
_SEARCHED_TURNS = 50
"""In how many of the latest turns quoted lines are looked for."""
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

    path: str
    line: int
    text: str
    last_line: int = 0
    """The last line that is meant, if it is not the only one; 0 for one line."""
    side: str = "new"
    """`new`, or `old` for lines that the run removed."""
    quote: str = ""
    """The lines of the diff around it, as the user saw them; empty to quote the lines as they are now."""
    marks: tuple[int, ...] = ()
    """Which lines of the quote are meant, counted from 0."""

    @classmethod
    def at(cls, place: str, text: str, side: str = "new") -> "NewComment":
        """A comment on `path:line` or `path:line-line`."""
        found = parse_place(place)
        if found is None:
            raise UsageError(f"{place[:80]!r} is not a place in a file", todo=_PLACE_FORM)
        path, line, last = found
        return cls(path=path, line=line, last_line=last, text=text, side=side)

    @property
    def place(self) -> str:
        """The file and the lines, as the user types them."""
        return f"{self.path}:{self.line}" + (f"-{self.last_line}" if self.last_line else "")


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
    return [NewComment.at(place, said, side) for place, said in found]


def list_changed_files(project: Project, wanted: str | None) -> list[str]:
    """The files that a run changed so far."""
    return [file["path"] for file in parse_diff(diff_run(project, find_live_run(project, wanted, "comment on")).text)]


def send_comments(
    project: Project,
    run: RunDir,
    comments: Sequence[NewComment],
    *,
    role: str = "",
    by: str = "",
    directory: Path | None = None,
) -> SentComments:
    """Send comments on lines: as one STEER, or as one round of feedback to a session that has stopped.

    Each must be about lines that `ralph diff` shows, or that were there when the user quoted them. Paths are those of the
    diff; with `directory`, they can also be relative to it.
    """
    refuse_inside_a_turn("an agent cannot comment", "put it into your answer instead")
    if not 0 < len(comments) <= MAX_COMMENTS:
        raise UsageError(f"{len(comments)} comments at once", todo=f"send 1 to {MAX_COMMENTS} comments")
    _refuse_over(run)
    anchor = _Anchor(project, run, directory)
    message = render_comments([anchor.place(one) for one in comments])
    if run.record().workflow in SESSION_WORKFLOWS and run.outcome() and not run.alive:
        batch = find_next_batch(find_session(project, run.id))
        batch.give(batch.requirement(message.replace("\n", "\n  ").rstrip()))
        return SentComments(run, len(comments), feedback=batch.path, iteration=batch.number)
    sent = post_signal(project, Signal("", SignalType.STEER, message, by=by), role, run.id)
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

    def __init__(self, project: Project, run: RunDir, directory: Path | None) -> None:
        self._project, self._run, self._directory = project, run, directory
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
        text = comment.text.strip()
        if not text:
            raise UsageError("the comment is empty", where=comment.place, todo="write it in quotes after the place")
        if len(text) > MAX_CHARS:
            todo = "shorten it, or send it with `ralph steer`"
            raise UsageError(f"the comment is longer than {MAX_CHARS} characters", where=comment.place, todo=todo)
        side = self._find_side(comment.path, comment.side)
        if comment.quote and self._was_quoted(comment, side):
            snippet, marks = comment.quote, comment.marks
        else:
            self._check_lines(side, comment.line, comment.last_line)
            if comment.quote:
                what = f"line {comment.line} of {side.path} is not what was quoted"
                raise UsageError(what, todo="look at the diff again, and comment on the line as it is now")
            last, before = comment.last_line or comment.line, min(comment.line - 1, _CONTEXT)
            snippet = side.quote(comment.line, last)
            marks = tuple(range(before, before + last - comment.line + 1))
        return DiffComment(
            path=side.path,
            line=comment.line,
            side=comment.side,
            snippet=snippet,
            text=text,
            last_line=comment.last_line,
            marks=marks,
        )

    def _was_quoted(self, comment: NewComment, side: _Side) -> bool:
        """Whether the quoted lines are in the file at that line, or were there when a turn began or ended.

        The user may have read the changes of one turn, or the file may have changed while the user wrote.
        """
        quote = _Quote.of(comment.quote, comment.side, comment.marks)
        if quote.is_at([_cut_line(line) for line in side.lines], comment.line):
            return True
        if self._commits is None:
            return False
        earlier = _Places(self._read)
        snapshots = [turn.snapshot for turn in open_view(self._project, self._run).turns if turn.snapshot]
        for snapshot in snapshots[: -_SEARCHED_TURNS - 1 : -1]:
            versions = (snapshot, f"{snapshot}^")
            if any(quote.is_at(earlier.read_lines(version, side.path), comment.line) for version in versions):
                return True
        return False

    def _check_lines(self, side: _Side, line: int, last: int) -> None:
        if line < 1 or (last and last < line):
            raise UsageError(f"{side.path} has no lines {line} to {last or line}", todo=_PLACE_FORM)
        if max(line, last) > len(side.lines):
            what = f"{side.path} has {count(len(side.lines), 'line')}, so there is no line {max(line, last)}"
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
        """The path as the diff has it: as it was given, or from the directory in which the user is."""
        names = [given.removeprefix("./")]
        if self._directory:
            tree = self._project.tree(self._run.record()).resolve()
            for place in (tree / given, self._directory / given):
                if place.resolve().is_relative_to(tree):
                    names.append(place.resolve().relative_to(tree).as_posix())
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
        quote = _Quote.of(comment.snippet, comment.side, comment.marks)
        before, after = self.read_lines(f"{snapshot}^", comment.path), self.read_lines(snapshot, comment.path)
        if comment.side == "old":
            return not quote.find(before, comment.line) and bool(quote.find(after, comment.line))
        start = quote.find(before, comment.line)
        if not start:
            return False
        return _is_replaced(before, after, start - 1 + quote.meant[0], start - 1 + quote.meant[-1])

    def read_lines(self, commit: str, path: str) -> list[str]:
        """The lines of a file in a commit, cut as those of a message are; none if the file is not there."""
        key = (commit, path)
        if key not in self._known:
            text = (self._read(commit, path) or b"").decode(errors="replace")
            self._known[key] = [_cut_line(line) for line in text.splitlines()]
        return self._known[key]


@dataclass(frozen=True)
class _Quote:
    """The lines of one side of the diff that a comment quotes."""

    lines: list[str]
    meant: list[int]
    """Which of them are meant, counted from 0; all of them if the comment does not say."""

    @classmethod
    def of(cls, text: str, side: str, marks: tuple[int, ...]) -> "_Quote":
        """The quoted lines, without those that are only on the other side."""
        hidden = "+" if side == "old" else "-"
        shown = [(at, line) for at, line in enumerate(text.splitlines()) if line[:1] != hidden]
        meant = [index for index, (at, _) in enumerate(shown) if at in marks]
        return cls([_cut_line(line[1:]) for _, line in shown], meant or list(range(len(shown))))

    def find(self, lines: list[str], line: int) -> int:
        """The line, counted from 1, at which the quote begins, nearest to where `line` is meant; 0 if it is nowhere."""
        if not self.lines:
            return 0
        near = line - self.meant[0]
        return min(self._list_places(lines), key=lambda at: abs(at - near), default=0)

    def is_at(self, lines: list[str], line: int) -> bool:
        """Whether the quote is there, and the line is one of those that are meant."""
        return any(line - start in self.meant for start in self._list_places(lines))

    def _list_places(self, lines: list[str]) -> list[int]:
        size = len(self.lines)
        if not size:
            return []
        return [at + 1 for at in range(len(lines) - size + 1) if lines[at : at + size] == self.lines]


def _cut_line(line: str) -> str:
    """A line as a message quotes it, and as a page shows it."""
    return show_directions(clean_text(line))[: LINE_CHARS - 1].rstrip()


def _is_replaced(before: list[str], after: list[str], first: int, last: int) -> bool:
    """Whether lines first to last, counted from 0, are no longer the same and together."""
    for kind, start, end, _, _ in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if kind == "insert" and first < start <= last:
            return True
        if kind in ("replace", "delete") and start <= last and end > first:
            return True
    return False
