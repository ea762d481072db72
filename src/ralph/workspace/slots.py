"""Slots: how many turns may run at once in a run, for an agent and on the whole machine, shared fairly by all runs.

All runs of a user share one small file of the slots in use and of the runs that wait. A free slot goes to the waiting run
that has the fewest, and among those to the one that has waited longest. If the engine of a run is gone, only the slots of
agents that still work stay in use.
"""

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ralph.core.codec import from_plain, to_plain
from ralph.core.errors import StateError
from ralph.core.text import count
from ralph.documents.run_record import SlotLimits
from ralph.store.files import open_regular, storage_errors
from ralph.store.locks import is_held
from ralph.store.user_state import state_directory
from ralph.supervisor.processes import TURN_MARK, find_marked

PATIENCE = 5.0
"""Seconds after which a run that has not asked again no longer waits."""


@dataclass(frozen=True)
class Use:
    """A slot in use."""

    run: str
    key: str
    agent: str
    lock: str
    """The lock of the run: held while its engine lives. Its path names the run: two projects may have runs of one id."""


@dataclass(frozen=True)
class Wait:
    """A run that waits for a slot."""

    run: str
    agent: str
    since: float
    asked: float
    lock: str = ""


@dataclass(frozen=True)
class Table:
    """The slots of all runs on this machine."""

    uses: tuple[Use, ...] = ()
    waits: tuple[Wait, ...] = ()


def count_machine_slots() -> int:
    """How many turns run at once on this machine by default. Agents mostly wait for their models."""
    return max(8, 2 * (os.cpu_count() or 1))


def slots_path() -> Path:
    """The file with the slots of this user."""
    return state_directory() / "slots.json"


@dataclass
class Slots:
    """The slots of one run among all."""

    run: str
    run_lock: Path
    limits: SlotLimits
    path: Path
    kinds: Mapping[str, str] = field(default_factory=dict)
    """The names of agents by their labels: limits are by name."""
    room: Callable[[], str] = lambda: ""
    """Why there is no room for another worktree; empty if there is."""
    why_full: str = ""
    """Why there was no slot the last time."""

    @property
    def _lock(self) -> str:
        return str(self.run_lock)

    def take(self, key: str, agent: str, *, is_running: bool = False, needs_worktree: bool = False) -> bool:
        """Take a slot for the turn of some work, if one is free and it is our turn; `is_running` if it runs already.

        A turn that makes a worktree needs room for it as well.
        """
        kind = self.kinds.get(agent, agent)
        with self._open_table() as (table, write):
            mine = [use for use in table.uses if use.lock == self._lock]
            if any(use.key == key for use in mine):
                return True
            room = self.room() if needs_worktree and not is_running else ""
            self.why_full = "" if is_running else self._explain_refusal(table, mine, kind) or room
            others = [wait for wait in table.waits if wait.lock != self._lock]
            if self.why_full:
                before = next((wait for wait in table.waits if wait.lock == self._lock), None)
                now = time.time()
                own = Wait(run=self.run, agent=kind, since=before.since if before else now, asked=now, lock=self._lock)
                write(Table(table.uses, (*others, own) if self._could_use_more(mine, room) else tuple(others)))
                return False
            write(Table((*table.uses, Use(self.run, key, kind, self._lock)), tuple(others)))
            return True

    def release(self, key: str) -> None:
        """Release the slot of some work."""
        with self._open_table() as (table, write):
            left = tuple(use for use in table.uses if (use.lock, use.key) != (self._lock, key))
            write(Table(left, table.waits))

    def release_all(self) -> None:
        """Release all slots of the run, and stop waiting."""
        with self._open_table() as (table, write):
            write(
                Table(
                    tuple(use for use in table.uses if use.lock != self._lock),
                    tuple(wait for wait in table.waits if wait.lock != self._lock),
                )
            )

    def _could_use_more(self, mine: list[Use], room: str) -> bool:
        """Whether we wait for a slot, and not for our own turns or for room: only then do other runs let us go first."""
        return len(mine) < self.limits.run and not room

    def _explain_refusal(self, table: Table, mine: list[Use], kind: str) -> str:
        limits = self.limits
        if len(mine) >= limits.run:
            return f"{len(mine)} of {count(limits.run, 'turn')} of this run {'is' if len(mine) == 1 else 'are'} running"
        most = limits.agents.get(kind)
        if most is not None and sum(use.agent == kind for use in table.uses) >= most:
            return f"all slots of {kind} are in use: {most}"
        machine = limits.machine or count_machine_slots()
        if len(table.uses) >= machine:
            runs = sorted({use.run for use in table.uses})
            return f"all slots of this machine are in use: {machine}, by {', '.join(runs[:5])}"
        if ahead := self._find_run_ahead(table, len(mine), kind):
            return f"run {ahead} has waited longer and uses fewer slots"
        return ""

    def _find_run_ahead(self, table: Table, mine: int, kind: str) -> str:
        """A run that gets the free slot before us: it waits, it could use the slot, and has fewer or waits longer."""
        machine, most = self.limits.machine or count_machine_slots(), self.limits.agents.get(kind)
        own = next((wait for wait in table.waits if wait.lock == self._lock), None)
        since = own.since if own else time.time()
        ahead = []
        for wait in table.waits:
            if wait.lock == self._lock or not self._can_use_slot(table, wait):
                continue
            slots = sum(use.lock == wait.lock for use in table.uses)
            if (slots, wait.since) < (mine, since):
                ahead.append(wait)
        if len(ahead) >= machine - len(table.uses):
            return ahead[0].run
        rivals = [wait.run for wait in ahead if wait.agent == kind]
        if most is None or not rivals:
            return ""
        free = most - sum(use.agent == kind for use in table.uses)
        return rivals[0] if len(rivals) >= free else ""

    def _can_use_slot(self, table: Table, wait: Wait) -> bool:
        """Whether a waiting run still asks, and its agent has a slot left as far as we know its limits."""
        most = self.limits.agents.get(wait.agent)
        busy = most is not None and sum(use.agent == wait.agent for use in table.uses) >= most
        return _is_waiting(wait) and not busy

    @contextmanager
    def _open_table(self) -> Iterator[tuple[Table, Callable[[Table], None]]]:
        """The table without dead runs, and a function that writes it; locked meanwhile."""
        with storage_errors(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = open_regular(self.path, os.O_CREAT | os.O_RDWR)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            table = _read(descriptor, excluding=self._lock)

            def write(new: Table) -> None:
                # One write, never shorter than before: a kill must not leave half a table.
                data = json.dumps(to_plain(new)).encode().ljust(os.fstat(descriptor).st_size)
                with storage_errors(self.path):
                    os.pwrite(descriptor, data, 0)

            yield table, write
        finally:
            os.close(descriptor)


def _read(descriptor: int, excluding: str) -> Table:
    """The table in the file, without dead runs. A file that cannot be read counts as empty: runs fill it again."""
    with contextlib.suppress(ValueError, OverflowError, RecursionError, StateError):
        data = json.loads(os.pread(descriptor, os.fstat(descriptor).st_size, 0) or b"{}")
        return _drop_dead_runs(from_plain(Table, data), excluding)
    return Table()


def _drop_dead_runs(table: Table, excluding: str) -> Table:
    dead = {(use.run, use.lock) for use in table.uses if use.lock != excluding and not is_held(Path(use.lock))}
    gone = {lock for run, lock in dead if not find_marked(TURN_MARK, f"{run}/")}
    waits = tuple(wait for wait in table.waits if _is_waiting(wait) or wait.lock == excluding)
    return Table(tuple(use for use in table.uses if use.lock not in gone), waits)


def _is_waiting(wait: Wait) -> bool:
    """Whether a run still waits. A time in the future is from before the clock was set."""
    return abs(time.time() - wait.asked) < PATIENCE
