"""The project and its runs: their directories, how runs are created, and finding a run by its id."""

import contextlib
import json
import os
import time
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from ralph.core.codec import from_plain, parse_time
from ralph.core.entries import ChecksStarted, RefsRecorded
from ralph.core.errors import LockedError, StateError, UsageError
from ralph.core.events import RunEnded, TurnStarted
from ralph.core.ids import SESSION_WORKFLOWS, is_run_id, parse_run_id, run_id
from ralph.core.limits import Limits, Spent
from ralph.core.outcomes import Outcome
from ralph.core.text import clean_text
from ralph.core.values import value
from ralph.documents import run_record
from ralph.documents.run_record import RunRecord
from ralph.documents.session import HOME as SESSIONS
from ralph.store import locks
from ralph.store.documents import find_state_doubt
from ralph.store.files import read_limited, storage_errors, to_bytes, to_text, write_atomic
from ralph.store.journal import (
    advise_to_adopt,
    cut_claimed,
    find_doubt,
    find_last_of_type,
    find_untrusted_line,
    forget_head,
    read_last_lines,
    read_tail,
)
from ralph.store.mailbox import Mailbox
from ralph.store.questions import ANSWERS, QUESTIONS, QuestionFiles
from ralph.store.user_state import Key, ensure_key, find_key

T = TypeVar("T")
SETTINGS = "ralph.yml"
"""The file with the settings of a project, or of a directory in it."""
ALLOWED_HOSTS_FILE = "allowed-hosts"
"""The file of a run with the hosts that the user let it reach while it was going on, one in each line."""
_WORKTREES = (".ralph", "worktrees")
_TRIES, _PAUSE = 20, 0.05
_SECOND = len("261117-093000")
"""How much of an id is the second in which the run started."""
_STAYS_WHEN_ADOPTED = ("run.json", "signals", QUESTIONS, ANSWERS, "lock")
"""What stays in place if a run starts over."""
UNSIGNED_RECORD = "this machine did not start it, or an older version of Ralph did"
FOREIGN_RECORD = "its run.json was changed, or the run comes from another machine or directory"


@value
class TailSummary:
    """The state of a run, read from the end of its journal."""

    at: str
    """The time of the last line; empty if there is none."""
    spent: Spent
    limits: Limits | None
    """The limits that hold, if the end of the journal has them."""
    ended: RunEnded | None
    """How the run ended; None if it has not, or continues."""
    started: TurnStarted | ChecksStarted | None
    """The turn or the checks in progress."""
    doubt: str
    """Why all of this is only claimed; empty if Ralph wrote it."""
    sandbox: str = ""
    """How its agents are isolated: the level, or `not isolated` with the reason; empty if that was not recorded."""

    def state(self, *, alive: bool) -> str:
        """`running`, the outcome, `interrupted` if the engine died, or `new`."""
        if alive:
            return "running"
        state = "interrupted" if self.at else "new"
        if self.ended:
            state = str(self.ended.outcome)
        return f"claimed: {state}" if self.doubt else state


@value
class RunDir:
    """One run's directory."""

    path: Path

    @property
    def id(self) -> str:
        """The run's id."""
        return self.path.name

    @property
    def mailbox(self) -> Mailbox:
        """The mailbox for the user's signals. That of a session is beside its other documents."""
        try:
            session = self.record().workflow in SESSION_WORKFLOWS
        except StateError:
            session = False
        return Mailbox((self.path.parents[2] / SESSIONS / self.id if session else self.path) / "signals")

    @property
    def questions(self) -> QuestionFiles:
        """The questions of its turns to the user."""
        return QuestionFiles(self.path)

    @property
    def alive(self) -> bool:
        """Whether an engine is working on it."""
        return locks.is_held(self.path / "lock")

    def record(self) -> RunRecord:
        """What it was started with."""
        path = self.path / "run.json"
        try:
            return run_record.parse_record(to_text(read_limited(path)), str(path))
        except FileNotFoundError:
            raise StateError("the run has no run.json", where=str(path), todo=f"`ralph clean {self.id}`") from None

    @property
    def can_go_on(self) -> bool:
        """Whether it can be resumed: it is not over, and its `run.json` was written."""
        outcome = self.outcome()
        return (outcome is None or outcome.resumable) and (self.path / "run.json").exists()

    def lock(self) -> locks.Lock:
        """Become the one engine of this run."""
        taken = locks.acquire(self.path / "lock", {"pid": os.getpid(), "run": self.id})
        if isinstance(taken, locks.Lock):
            return taken
        raise LockedError(
            f"run {self.id} is already running, in process {taken.get('pid', '?')}",
            where=str(self.path / "lock"),
            todo=f"follow it with `ralph logs -f {self.id}`",
        )

    def read_tail_summary(self) -> TailSummary:
        """Read the state of the run from the end of its journal, at a cost that does not grow with it."""
        tail = read_tail(self.path / "journal.jsonl")
        spent: object = {}
        limits: object = None
        ended: dict[str, Any] | None = None
        last: dict[str, Any] | None = None
        for line in tail.lines:
            spent = line.get("spent") or spent
            limits = line.get("limits") or limits
            match line.get("type"):
                case "run.started":
                    ended = None
                case "run.ended":
                    ended = line
                case "turn.started" | "turn.ended" | "checks.started" | "checks.ended":
                    last = line
        return TailSummary(
            at=str(tail.lines[-1].get("at")) if tail.lines else "",
            spent=_read_value(Spent, spent) or Spent(),
            limits=_read_value(Limits, limits),
            ended=_read_value(RunEnded, ended),
            started=_read_started(last),
            doubt=tail.doubt or self.find_record_doubt(),
            sandbox=str((find_last_of_type(self.path / "journal.jsonl", "run.started") or {}).get("sandbox") or ""),
        )

    @property
    def was_killed_in_a_turn(self) -> bool:
        """Whether the last turn has no end in the journal, so that no snapshot has what it changed."""
        return isinstance(self.read_tail_summary().started, TurnStarted)

    def read_recorded_refs(self) -> Mapping[str, str] | None:
        """The user's refs and stash before the run, if they were recorded."""
        recorded = _read_value(RefsRecorded, find_last_of_type(self.path / "journal.jsonl", "refs.recorded"))
        return recorded.refs if recorded else None

    def outcome(self, *, claimed: bool = False) -> Outcome | None:
        """Why it ended; None if it is running, or its engine died. An end that is only claimed counts with `claimed` alone."""
        summary = self.read_tail_summary()
        if (summary.doubt and not claimed) or summary.ended is None or self.alive:
            return None
        return summary.ended.outcome

    def sign(self) -> None:
        """Record that this user's Ralph wrote `run.json` as it is."""
        write_atomic(self.path / "run.mac", self._code(ensure_key()).encode(), mode=0o600)

    def find_doubt(self) -> str:
        """Why this user's Ralph may not have written the whole run; empty if it has. Reads the whole journal."""
        return self.find_record_doubt() or find_doubt(self.path / "journal.jsonl") or self._find_state_doubt()

    def _find_state_doubt(self) -> str:
        """Why the state of the engine counts as changed; empty if it does not. A live engine writes it all the time."""
        is_journaled = not self.alive and (self.path / "journal.jsonl").exists()
        return find_state_doubt(self.path) if is_journaled else ""

    def refuse_untrusted(self) -> None:
        """Refuse a run that someone else may have written. Opening its journal verifies the rest of it."""
        self.record()
        if not (doubt := self.read_tail_summary().doubt):
            return
        where = self.path / "run.json" if self.find_record_doubt() else find_untrusted_line(self.path / "journal.jsonl")
        raise StateError(f"run {self.id} cannot be trusted: {doubt}", where=str(where), todo=advise_to_adopt(self.id))

    def refuse_doubtful(self) -> None:
        """Refuse to speak to a run that someone else may have written, wherever its journal does not verify.

        A live engine is just writing the journal, and verified it when it started, so only its end is looked at.
        """
        self.refuse_untrusted()
        journal = self.path / "journal.jsonl"
        if self.alive or not journal.exists():
            return
        if doubt := find_doubt(journal):
            where = find_untrusted_line(journal)
            raise StateError(f"run {self.id} cannot be trusted: {doubt}", where=where, todo=advise_to_adopt(self.id))

    def adopt(self, at: datetime) -> tuple[bool, Path]:
        """Make a run that someone else may have written the user's own.

        If Ralph wrote the beginning of the journal, the other lines are moved aside and the run continues from there.
        Otherwise everything but its settings, signals and questions is moved aside, and it starts over. So does a run
        whose state was changed, because the journal does not contain it; that of a session can be rebuilt. Returns
        whether it continues, and the directory with the rest.
        """
        aside, journal = self.path / f"claimed-{at:%Y%m%d-%H%M%S}", self.path / "journal.jsonl"
        with storage_errors(aside):
            aside.mkdir(exist_ok=True)
            goes_on = not self.find_record_doubt() and cut_claimed(journal, aside / "journal.jsonl")
            forget_head(journal)
            if goes_on and (self.record().workflow in SESSION_WORKFLOWS or not find_state_doubt(self.path)):
                return True, aside
            if goes_on:
                os.rename(aside / "journal.jsonl", aside / "journal-end.jsonl")
            for entry in list(self.path.iterdir()):
                if entry.name not in _STAYS_WHEN_ADOPTED and not entry.name.startswith("claimed-"):
                    os.rename(entry, aside / entry.name)
        self.sign()
        return False, aside

    def find_record_doubt(self) -> str:
        """Why Ralph may not have written `run.json`; empty if it has."""
        key = find_key()
        try:
            code = read_limited(self.path / "run.mac", 1024).decode(errors="replace")
            matches = key is not None and code == self._code(key)
        except (OSError, StateError):
            return UNSIGNED_RECORD
        return "" if matches else FOREIGN_RECORD

    def _code(self, key: Key) -> str:
        """The authentication code of `run.json`. It holds for this directory only, because consent is per project."""
        directory = os.path.realpath(self.path)
        return key.code(f"{directory}/run.json\n{to_text(read_limited(self.path / 'run.json'))}")


def _find_root(start: Path) -> Path:
    """The root of the project around a directory: the root of its git repository, so that one tree has one state and one lock.

    Without git, it is the nearest parent with `.ralph/` or `ralph.yml`.
    """
    parents = (start, *start.parents)
    for directory in parents:
        if (directory / ".git").exists():
            return directory
    for directory in parents:
        # A run that works below the root needs a `.ralph` there for its turns, with a link to the files that agents share.
        has_state = (directory / ".ralph").is_dir() and not (directory / ".ralph" / "agent").is_symlink()
        if has_state or (directory / SETTINGS).exists():
            return directory
    return start


@value
class Project:
    """A directory with Ralph's state in it."""

    root: Path
    inside: str = ""
    """The run in whose worktree the user stands."""
    directory: str = "."
    """The user's current directory below the root. New runs work there."""

    @classmethod
    def around(cls, start: Path) -> "Project":
        """The project that a directory belongs to. A worktree of a run belongs to the project of the run."""
        start = start.resolve()
        for directory in (start, *start.parents):
            if directory.parent.parts[-2:] == _WORKTREES:
                return cls(directory.parents[2], directory.name.partition(".")[0])
        root = _find_root(start)
        return cls(root, directory=start.relative_to(root).as_posix())

    @property
    def work_dir(self) -> Path:
        """The directory in which new runs work."""
        return self.root / self.directory

    @property
    def settings_dir(self) -> Path:
        """The directory whose `ralph.yml` holds for new runs."""
        return self.find_settings_dir(self.directory)

    def find_settings_dir(self, directory: str) -> Path:
        """The directory whose `ralph.yml` holds for runs in a directory of the project: the nearest one that has the file."""
        place = self.root / directory
        while place != self.root and not (place / SETTINGS).exists():
            place = place.parent
        return place

    @property
    def runs_dir(self) -> Path:
        """The directory of the runs."""
        return self.root / ".ralph" / "runs"

    def claim(self, at: datetime, *, plain: bool = False) -> RunDir:
        """Create a run directory. `mkdir` fails if it exists, so two processes never get the same id.

        A plain id is the time alone. If that id is in use, it is one of the next seconds.
        """
        for later in range(100):
            name = run_id(at + timedelta(seconds=later)) if plain else run_id(at, os.urandom(2).hex())
            directory = self.runs_dir / name
            with storage_errors(directory):
                self.runs_dir.mkdir(parents=True, exist_ok=True)
                try:
                    directory.mkdir()
                except FileExistsError:
                    continue
            forget_head(directory / "journal.jsonl")
            return RunDir(directory)
        raise UsageError("Ralph found no free run id", where=str(self.runs_dir))

    def claim_id(self, id: str) -> RunDir:
        """Create the run directory with an id that must not exist yet."""
        directory = self.runs_dir / parse_run_id(id)
        with storage_errors(directory):
            self.runs_dir.mkdir(parents=True, exist_ok=True)
            try:
                directory.mkdir()
            except FileExistsError:
                raise UsageError(
                    f"run {id} already exists", where=str(directory), todo=f"`ralph resume {id}`"
                ) from None
        forget_head(directory / "journal.jsonl")
        return RunDir(directory)

    def create(self, run: RunDir, record: RunRecord) -> None:
        """Write and sign the `run.json` of a new run."""
        write_atomic(run.path / "run.json", to_bytes(run_record.render_record(record)))
        run.sign()

    def runs(self) -> list[RunDir]:
        """All runs, oldest first."""
        place = self.runs_dir
        try:
            names = sorted(entry.name for entry in os.scandir(place) if is_run_id(entry.name) and entry.is_dir())
        except FileNotFoundError:
            return []
        runs = [RunDir(place / name) for name in names]
        if len({name[:_SECOND] for name in names}) < len(names):
            runs.sort(key=lambda run: (run.id[:_SECOND], _read_start(run), run.id))
        return runs

    def workspace(self, record: RunRecord) -> Path:
        """The directory in which a run's turns and checks run."""
        return self.tree(record) / record.directory

    def tree(self, record: RunRecord) -> Path:
        """The tree of files that a run works on; one that is not below the root is refused."""
        path = self.root / record.workspace
        where = str(self.runs_dir / record.id / "run.json")
        if "\0" in str(path) or not (path / record.directory).resolve().is_relative_to(self.root.resolve()):
            raise StateError(f"the workspace {record.workspace!r} is not in the project", where=where)
        if not path.is_dir() and record.branch:
            todo = f"`ralph diff {record.id}` shows what it did; undo what you have merged with `git revert`"
            raise UsageError(f"the worktree of run {record.id} was removed", where=str(path), todo=todo)
        if not path.is_dir():
            raise StateError(f"the workspace {record.workspace!r} is not there", where=where)
        return path

    def run(self, wanted: str) -> RunDir:
        """The run with an id, or with an id that begins like this."""
        for run in self.runs():
            if run.id == wanted:
                return run
        matching = []
        if wanted:
            matching = [run for run in self.runs() if run.id.startswith(wanted)]
        if len(matching) == 1:
            return matching[0]
        if matching:
            raise make_several_runs_error(f"several runs begin with {wanted}", matching)
        parse_run_id(wanted)
        raise UsageError(
            self.describe_removal(wanted) or f"there is no run {wanted}",
            where=str(self.runs_dir),
            todo="list them with `ralph status --all`",
        )

    def open_runs(self) -> list[RunDir]:
        """The runs that are alive or can be resumed, oldest first.

        If a run succeeded, earlier runs of the same task that stopped do not count.
        """
        found: list[RunDir] = []
        done: dict[tuple[str, str], str] = {}
        for run in self.runs():
            outcome = run.outcome()
            if outcome and outcome.succeeded:
                done[_describe_task(run)] = max(done.get(_describe_task(run), ""), run.read_tail_summary().at)
            elif run.alive or run.can_go_on:
                found.append(run)
        return [run for run in found if run.alive or run.read_tail_summary().at >= done.get(_describe_task(run), "")]

    @property
    def _removals(self) -> Path:
        return self.root / ".ralph" / "removed.jsonl"

    def record_removal(self, id: str, action: str, by: str) -> None:
        """Remember that the user removed a run, so that Ralph can say so later. Nothing depends on it."""
        line = json.dumps({"run": id, "at": time.time(), "action": action, "by": by})
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
        with contextlib.suppress(OSError):
            descriptor = os.open(self._removals, flags, 0o600)
            try:
                os.write(descriptor, f"{line}\n".encode())
            finally:
                os.close(descriptor)

    def describe_removal(self, id: str) -> str:
        """When and by whom a run was removed; empty if that is not known."""
        with contextlib.suppress(OSError, ValueError, OverflowError):
            for line in reversed(read_last_lines(self._removals)):
                if line.get("run") == id:
                    at = datetime.fromtimestamp(float(line.get("at") or 0)).strftime("%Y-%m-%d %H:%M")
                    by = f" by {clean_text(str(line['by']))[:80]}" if line.get("by") else ""
                    return f"run {id} was removed on {at}{by} ({clean_text(str(line.get('action')))[:40]})"
        return ""

    def remove(self, run: RunDir) -> None:
        """Delete a run's directory. It is renamed first, so that no command finds an incomplete run."""
        import shutil

        hidden = self.runs_dir / f".removed-{run.id}"
        forget_head(run.path / "journal.jsonl")
        with storage_errors(run.path):
            os.rename(run.path, hidden)
            for _ in range(_TRIES):
                # A keeper that is shutting down may still write files there.
                shutil.rmtree(hidden, ignore_errors=True)
                if not hidden.exists():
                    return
                time.sleep(_PAUSE)
            shutil.rmtree(hidden)


def make_several_runs_error(what: str, runs: list[RunDir], by: str = "") -> UsageError:
    """The error that lists the runs from which the user has to choose. `by` is the option that names one."""
    listing = "".join(f"\n    {describe_run(run)}" for run in runs)
    todo = f"name one of them with {by}" if by else "name one of them"
    return UsageError(what, where=f"one of these:{listing}", todo=todo)


def describe_run(run: RunDir) -> str:
    """A run on one line: id, state, age and task."""
    summary = run.read_tail_summary()
    state, age = summary.state(alive=run.alive), format_time_ago(summary.at)
    task = " ".join(_describe_task(run)[1].split())
    return f"{run.id}  {state:<18} {age:<14} {task[:60]}".rstrip()


def format_time_ago(at: str) -> str:
    """How long ago a timestamp of the journal is; empty if it is none."""
    try:
        seconds = time.time() - parse_time(at)
    except ValueError:
        return ""
    for unit, size in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= size:
            number = int(seconds // size)
            return f"{number} {unit} ago" if number == 1 else f"{number} {unit}s ago"
    return "just now"


def _read_start(run: RunDir) -> float:
    try:
        return run.record().created_at
    except (StateError, OSError):
        return 0.0


def _describe_task(run: RunDir) -> tuple[str, str]:
    """The workflow and the task of a run."""
    try:
        record = run.record()
    except StateError:
        return "", "(unreadable run.json)"
    return record.workflow, record.task


def _read_started(line: dict[str, Any] | None) -> TurnStarted | ChecksStarted | None:
    kind = (line or {}).get("type")
    if kind == "turn.started":
        return _read_value(TurnStarted, line)
    if kind == "checks.started":
        return _read_value(ChecksStarted, line)
    return None


def _read_value(kind: type[T], data: object) -> T | None:
    """The value in a line of a journal; None if there is no valid one."""
    try:
        return from_plain(kind, data) if data is not None else None
    except StateError:
        return None
