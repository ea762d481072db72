"""Identities: run ids, which are made from a time, and the typed keys of work.

Run ids are claimed by `mkdir`, and validated wherever they come in.
"""

import re
import zlib
from datetime import datetime
from enum import StrEnum

from ralph.core.errors import UsageError
from ralph.core.values import value

SESSION_WORKFLOWS = ("session", "classic")
"""The workflows with tasks: sessions in their two layouts."""
_RUN_ID = re.compile(r"(?:[0-9]{2})?[0-9]{6}-[0-9]{6}(-[0-9a-z]{4})?")
"""Old sessions have years of four digits."""
_START_OF_RUN_ID = re.compile(r"[0-9]{4,8}(?:-[0-9a-z-]*)?")


def run_id(at: datetime, suffix: str = "") -> str:
    """The id of a run started at that time; loops and hats add four random characters."""
    stamp = at.strftime("%y%m%d-%H%M%S")
    return parse_run_id(f"{stamp}-{suffix}" if suffix else stamp)


def is_run_id(text: str) -> bool:
    """Whether a text could be the id of a run."""
    return bool(_RUN_ID.fullmatch(text))


def is_start_of_run_id(text: str) -> bool:
    """Whether a text could be the id of a run, or how it begins. Commands then do not take it for a message."""
    return bool(_START_OF_RUN_ID.fullmatch(text))


def parse_run_id(text: str) -> str:
    """The id itself, or an error: an id is used in paths, so nothing else may pass."""
    if not is_run_id(text):
        raise UsageError(
            f"{text!r} is not a run id",
            where="an id looks like 261115-093000-k3x9 (date, time, four characters)",
            todo="list the runs with `ralph status --all`",
        )
    return text


def parse_session_id(text: str) -> str:
    """The id of a session itself, or an error with the form of such an id."""
    if not is_run_id(text):
        raise UsageError(
            f"{text!r} is not a session id",
            where="a session id has the form <YYMMDD>-<hhmmss>, for example 261115-093000",
            todo="list the sessions with `ralph session list`",
        )
    return text


def turn_name(number: int, role: str) -> str:
    """The directory of a turn: `00007-implementer`."""
    return f"{number:05d}-{role}"


class WorkKind(StrEnum):
    """What a piece of work is for."""

    BASELINE = "baseline"
    """The checks before the first turn."""
    ITERATION = "iteration"
    """A turn of a loop or of a hat, and the checks after it."""
    REFLECTION = "reflection"
    """What a loop learns from an iteration."""
    JUDGMENT = "judgment"
    """A turn that looks at the judge files that a loop changed."""
    JUDGE_TESTS = "judge-tests"
    """The checks with the tests that this turn wrote."""
    COMMIT = "commit"
    """The commit of an iteration."""
    CHECKPOINT = "checkpoint"
    """The commit after a turn of a hat."""
    CLAIM = "claim"
    """The checks of what a hat claims with an event."""
    WAVE = "wave"
    """A turn of a hat that works on several events side by side."""
    MERGE = "merge"
    """The merge of a worktree."""
    RESOLVE = "resolve"
    """A turn that resolves what keeps a worktree from being merged."""


_FIELDS = {
    WorkKind.BASELINE: (),
    WorkKind.ITERATION: ("number",),
    WorkKind.REFLECTION: ("number",),
    WorkKind.JUDGMENT: ("number",),
    WorkKind.JUDGE_TESTS: ("number",),
    WorkKind.COMMIT: ("number",),
    WorkKind.CHECKPOINT: ("number",),
    WorkKind.CLAIM: ("number",),
    WorkKind.WAVE: ("number", "attempt"),
    WorkKind.MERGE: ("worktree", "attempt"),
    WorkKind.RESOLVE: ("worktree", "attempt"),
}
"""The fields that tell the keys of a kind apart, in the order of the text."""
_PATTERNS = {"number": r"(?P<number>\d+)", "attempt": r"(?P<attempt>\d+)", "worktree": r"(?P<worktree>.+-[^-]+)"}


@value
class WorkKey:
    """The name of a piece of work."""

    kind: WorkKind
    number: int = 0
    """The iteration, or the event of a wave."""
    worktree: str = ""
    """As `<task>/<attempt>`."""
    attempt: int = 0

    def __str__(self) -> str:
        """The key as text: `iteration-3`, `wave-7-1`, `merge-task-1-1-2`."""
        # The name of a worktree is part of file names, so its only slash becomes a hyphen.
        values = {"number": self.number, "worktree": "-".join(self.worktree.rsplit("/", 1)), "attempt": self.attempt}
        return "-".join([self.kind, *(str(values[name]) for name in _FIELDS[self.kind])])

    @classmethod
    def parse(cls, text: str) -> "WorkKey | None":
        """The key in a text; None if it is a key of a session."""
        for kind, fields in _FIELDS.items():
            if found := re.fullmatch("-".join([kind, *(_PATTERNS[name] for name in fields)]), text):
                given = found.groupdict()
                return cls(
                    kind=kind,
                    number=int(given.get("number", 0)),
                    worktree="/".join(given.get("worktree", "").rsplit("-", 1)),
                    attempt=int(given.get("attempt", 0)),
                )
        return None


def find_task_of_worktree(worktree: str) -> str:
    """The task of a worktree `<task>/<attempt>`; empty if it is of no task."""
    task = worktree.rpartition("/")[0]
    # Names of worktrees have no dots: `task-4_1` is of task-4.1, a part of task-4.
    return re.sub(r"(?<=\d)_(?=\d)", ".", task)


def describe_worktree(worktree: str) -> str:
    """What a worktree of a task is for, as the user reads it: the task, and its attempt if that is not the first."""
    task, attempt = find_task_of_worktree(worktree), worktree.rpartition("/")[2]
    if task == "knowledge":
        return "what was learned"
    if not task or attempt == "1":
        return task or worktree
    return f"{task}, attempt {attempt}"


BASELINE = WorkKey(WorkKind.BASELINE)
"""The checks before the first turn."""

READ_ONLY_PREFIX = "look/"
"""The prefix of the names of worktrees whose turns only read. Such a worktree follows the branch of the run."""


def name_read_only_worktree(number: int) -> str:
    """A worktree for turns that only read. Turns that run at the same time use different numbers."""
    return f"{READ_ONLY_PREFIX}{number}"


def name_planning_worktree(task: str) -> str:
    """The worktree of a turn that plans one task again. Several tasks can be planned again at the same time."""
    return name_read_only_worktree(100_000 + zlib.crc32(task.encode()) % 900_000)


READ_ONLY_WORKTREE = name_read_only_worktree(1)
"""The worktree of the turns of a session without a task, which only read, one at a time."""


def name_wave_worktree(hat: str, number: int) -> str:
    """The worktree of a hat's turn in a wave, by the number of its event."""
    return f"{hat}-{number}/1"
