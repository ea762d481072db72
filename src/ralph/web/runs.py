"""The runs of all projects as the server shows them: found by key, listed, and folded once per change.

A key is `RUN@PROJECT`: run ids are unique in a project only. Nothing here is stored: after a restart everything is read again.
"""

import contextlib
import json
import os
import re
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

from ralph.app.run_watch import RunWatch
from ralph.app.views import list_runs, open_view
from ralph.core.errors import RalphError, StateError, UsageError
from ralph.core.ids import is_run_id
from ralph.store.files import read_limited, to_bytes, to_text, write_atomic
from ralph.store.projects import list_registered_projects, name_project
from ralph.store.runs import Project, RunDir
from ralph.view.attention import row_of
from ralph.view.model import RunRow, RunView

_KEY = re.compile(r"([A-Za-z0-9._-]{1,80})@([0-9a-f]{1,40})")
_OPEN_WATCHES = 200
"""How many runs are kept folded in memory: more than this are folded again when they are opened."""


class NoSuchRunError(UsageError):
    """There is no run with that key."""


@dataclass(frozen=True)
class FoundRun:
    """A run, and its project."""

    key: str
    project: Project
    run: RunDir


@dataclass
class _ProjectRows:
    """The rows of a project, and the state of the files from which they were made."""

    stamps: dict[str, tuple[int, int, bool]]
    rows: dict[str, RunRow]


class RunIndex:
    """All runs of the user, or one of them."""

    def __init__(self, only: FoundRun | None = None) -> None:
        self._only = only
        self._lock = threading.RLock()
        self._watches: OrderedDict[str, RunWatch] = OrderedDict()
        self._rows: dict[Path, _ProjectRows] = {}

    @property
    def shows_all(self) -> bool:
        """Whether it shows all runs, and not one alone."""
        return self._only is None

    def projects(self) -> list[Project]:
        """The projects that are shown."""
        return [self._only.project] if self._only else list_registered_projects()

    def find(self, key: str) -> FoundRun:
        """The run with a key. Anything else than the key of a run that is there is refused."""
        match = _KEY.fullmatch(key)
        unknown = NoSuchRunError("there is no such run", where=key[:120], todo="go back to the inbox")
        if not match or not is_run_id(match[1]):
            raise unknown
        for project in self.projects():
            if name_project(project.root) == match[2]:
                run = RunDir(project.runs_dir / match[1])
                is_hidden = self._only is not None and self._only.key != key
                if run.path.is_dir() and not run.path.is_symlink() and not is_hidden:
                    return FoundRun(key, project, run)
                removal = "" if is_hidden else project.describe_removal(match[1])
                if removal:
                    raise NoSuchRunError(removal, where=key[:120], todo="go back to the inbox")
        raise unknown

    def view(self, found: FoundRun, at: int | None = None) -> RunView:
        """The view of a run, now or after a line of its journal."""
        if at is not None:
            return open_view(found.project, found.run, at=at)
        with self._lock:
            return self._refresh_watch(found).view

    def rows(self) -> list[tuple[FoundRun, RunRow]]:
        """The rows of all runs, those that need the user first."""
        with self._lock:
            found: list[tuple[FoundRun, RunRow]] = []
            for project in self.projects():
                rows = self._rows_of(project)
                for run in self._runs_of(project):
                    if row := rows.get(run.id):
                        found.append((FoundRun(run_key(project, run), project, run), row))
            return sorted(found, key=lambda one: _order(one[1]))

    def _rows_of(self, project: Project) -> dict[str, RunRow]:
        """The rows of a project. While no run starts, ends or is removed, only those of runs that work are made again."""
        stamps = {run.id: _stamp(run) for run in self._runs_of(project)}
        known = self._rows.get(project.root)
        if known is None or _at_rest(known.stamps) != _at_rest(stamps):
            known = _ProjectRows(stamps, {row.id: row for row in list_runs(project)})
            self._rows[project.root] = known
        known.stamps = stamps
        for id in (id for id, stamp in stamps.items() if stamp[2]):
            run = RunDir(project.runs_dir / id)
            with contextlib.suppress(RalphError, OSError):
                known.rows[id] = row_of(self._refresh_watch(FoundRun(run_key(project, run), project, run)).view)
        return known.rows

    def _runs_of(self, project: Project) -> list[RunDir]:
        return [self._only.run] if self._only else project.runs()

    def _refresh_watch(self, found: FoundRun) -> RunWatch:
        watch = self._watches.pop(found.key, None)
        if watch is None:
            watch = RunWatch(found.project, found.run)
            watch.catch_up()
        else:
            watch.refresh()
        self._watches[found.key] = watch
        while len(self._watches) > _OPEN_WATCHES:
            self._watches.popitem(last=False)
        return watch


def _at_rest(stamps: dict[str, tuple[int, int, bool]]) -> dict[str, tuple[int, int, bool]]:
    """The stamps, with those of runs that work replaced by one that stays the same."""
    return {id: (0, 0, True) if stamp[2] else stamp for id, stamp in stamps.items()}


def _order(row: RunRow) -> tuple[int, float, str]:
    """By tier. Within a tier, what has waited longest comes first; of what is done, the latest does."""
    return row.attention, -row.since if row.group == "done" else row.since, row.id


def run_key(project: Project, run: RunDir) -> str:
    """The key of a run."""
    return f"{run.id}@{name_project(project.root)}"


def _stamp(run: RunDir) -> tuple[int, int, bool]:
    """What changes when a run does: its journal, its mailbox, and whether an engine works on it."""
    return _stamp_file(run.path / "journal.jsonl"), _stamp_file(run.path / "signals" / "inputs"), run.alive


def _stamp_file(path: Path) -> int:
    try:
        status = os.stat(path)
    except OSError:
        return 0
    return status.st_mtime_ns ^ status.st_size


class Snoozes:
    """Runs that the user put aside for a while. A question or an approval wakes them."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> dict[str, float]:
        """The runs that are put aside, with the time until which they are."""
        try:
            data = json.loads(to_text(read_limited(self._path)))
            now = time.time()
            return {str(key): float(until) for key, until in data.items() if float(until) > now}
        except (OSError, StateError, ValueError, TypeError, AttributeError):
            return {}

    def set(self, key: str, minutes: float) -> None:
        """Put a run aside; with 0 minutes, take it back."""
        known = self.read()
        known.pop(key, None)
        if minutes > 0:
            known[key] = time.time() + minutes * 60
        write_atomic(self._path, to_bytes(json.dumps(known)), mode=0o600)
