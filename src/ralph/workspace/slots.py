"""Slots: how many turns may run at once, of a run, of an agent and on the whole machine, shared fairly by all runs.

All runs of a user keep one small file of the slots in use and of who waits. A free slot goes to the waiting run that has
the fewest, and among those to the one that has waited longest. A run whose engine is gone keeps the slots of agents
that still work, and no others.
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
from ralph.documents.run_record import SlotLimits
from ralph.store.files import open_regular, storage
from ralph.store.locks import is_held
from ralph.store.user_state import state_directory
from ralph.supervisor.processes import TURN_MARK, marked

PATIENCE = 5.0
"""Seconds after which somebody who has not asked again no longer waits."""


@dataclass(frozen=True)
class Use:
    """A slot in use."""

    run: str
    key: str
    agent: str
    lock: str
    """The lock of the run: held while its engine lives."""


@dataclass(frozen=True)
class Wait:
    """A run that waits for a slot."""

    run: str
    agent: str
    since: float
    asked: float


@dataclass(frozen=True)
class Table:
    """What all runs have on this machine."""

    uses: tuple[Use, ...] = ()
    waits: tuple[Wait, ...] = ()


def machine_slots() -> int:
    """How many turns run at once on this machine where nobody says otherwise: agents mostly wait for their models."""
    return max(8, 2 * (os.cpu_count() or 1))


def usual_place() -> Path:
    """Where the slots of this user are kept."""
    return state_directory() / "slots.json"


@dataclass
class Slots:
    """The slots of one run among all."""

    run: str
    run_lock: Path
    limits: SlotLimits
    place: Path
    kinds: Mapping[str, str] = field(default_factory=dict)
    """The names of agents by their labels: limits are by name."""
    room: Callable[[], str] = lambda: ""
    """Why there is no room for another worktree; empty where there is."""
    full: str = ""
    """Why there was no slot the last time."""

    def take(self, key: str, agent: str, *, anyway: bool = False, makes_tree: bool = False) -> bool:
        """Take a slot for the turn of some work, if one is free and it is our turn; `anyway` where it runs already.

        A turn that makes a worktree needs room for it as well.
        """
        kind = self.kinds.get(agent, agent)
        with self._table() as (table, write):
            mine = [use for use in table.uses if use.run == self.run]
            if any(use.key == key for use in mine):
                return True
            room = self.room() if makes_tree and not anyway else ""
            self.full = "" if anyway else self._why_not(table, mine, kind) or room
            others = [wait for wait in table.waits if wait.run != self.run]
            if self.full:
                before = next((wait for wait in table.waits if wait.run == self.run), None)
                now = time.time()
                own = Wait(self.run, kind, before.since if before else now, now)
                write(Table(table.uses, (*others, own) if self._could_use_more(mine, room) else tuple(others)))
                return False
            write(Table((*table.uses, Use(self.run, key, kind, str(self.run_lock))), tuple(others)))
            return True

    def release(self, key: str) -> None:
        """Give it back."""
        with self._table() as (table, write):
            left = tuple(use for use in table.uses if (use.run, use.key) != (self.run, key))
            write(Table(left, table.waits))

    def leave(self) -> None:
        """Give all of the run's slots back, and wait no more."""
        with self._table() as (table, write):
            write(
                Table(
                    tuple(use for use in table.uses if use.run != self.run),
                    tuple(wait for wait in table.waits if wait.run != self.run),
                )
            )

    def _could_use_more(self, mine: list[Use], room: str) -> bool:
        """Whether we wait for a slot, and not for our own turns or for room: nobody else has to stand back then."""
        return len(mine) < self.limits.run and not room

    def _why_not(self, table: Table, mine: list[Use], kind: str) -> str:
        limits = self.limits
        if len(mine) >= limits.run:
            return f"{len(mine)} of {limits.run} turns of this run are under way"
        most = limits.agents.get(kind)
        if most is not None and sum(use.agent == kind for use in table.uses) >= most:
            return f"all {most} slots of {kind} are in use"
        machine = limits.machine or machine_slots()
        if len(table.uses) >= machine:
            runs = sorted({use.run for use in table.uses})
            return f"all {machine} slots of this machine are in use, by {', '.join(runs[:5])}"
        if ahead := self._ahead(table, len(mine), kind):
            return f"run {ahead} waits longer and has fewer"
        return ""

    def _ahead(self, table: Table, mine: int, kind: str) -> str:
        """A run that gets the free slot before us: it waits, it could use the slot, and has fewer or waits longer."""
        machine, most = self.limits.machine or machine_slots(), self.limits.agents.get(kind)
        own = next((wait for wait in table.waits if wait.run == self.run), None)
        since = own.since if own else time.time()
        first = [
            wait
            for wait in table.waits
            if wait.run != self.run
            and self._could(table, wait)
            and (sum(use.run == wait.run for use in table.uses), wait.since) < (mine, since)
        ]
        if len(first) >= machine - len(table.uses):
            return first[0].run
        rivals = [wait.run for wait in first if wait.agent == kind]
        free = most - sum(use.agent == kind for use in table.uses) if most is not None else len(rivals) + 1
        return rivals[0] if len(rivals) >= free else ""

    def _could(self, table: Table, wait: Wait) -> bool:
        """Whether a waiting run still asks, and its agent has a slot left as far as we know its limits."""
        most = self.limits.agents.get(wait.agent)
        busy = most is not None and sum(use.agent == wait.agent for use in table.uses) >= most
        return _asks_still(wait) and not busy

    @contextmanager
    def _table(self) -> Iterator[tuple[Table, Callable[[Table], None]]]:
        """The table, without what is left of runs that are gone, and how to write it; nobody else has it meanwhile."""
        with storage(self.place):
            self.place.parent.mkdir(parents=True, exist_ok=True)
            descriptor = open_regular(self.place, os.O_CREAT | os.O_RDWR)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            table = _read(descriptor, but=self.run)

            def write(new: Table) -> None:
                # One step, and never less than there was: half a table, left by a kill, would be nobody's slots.
                data = json.dumps(to_plain(new)).encode().ljust(os.fstat(descriptor).st_size)
                with storage(self.place):
                    os.pwrite(descriptor, data, 0)

            yield table, write
        finally:
            os.close(descriptor)


def _read(descriptor: int, but: str) -> Table:
    """What is in the file of living runs; what cannot be read is nothing, for it can be built anew."""
    with contextlib.suppress(ValueError, OverflowError, RecursionError, StateError):
        data = json.loads(os.pread(descriptor, os.fstat(descriptor).st_size, 0) or b"{}")
        return _living(from_plain(Table, data), but)
    return Table()


def _living(table: Table, but: str) -> Table:
    dead = {use.run for use in table.uses if use.run != but and not is_held(Path(use.lock))}
    gone = {run for run in dead if not marked(TURN_MARK, f"{run}/")}
    waits = tuple(wait for wait in table.waits if _asks_still(wait) or wait.run == but)
    return Table(tuple(use for use in table.uses if use.run not in gone), waits)


def _asks_still(wait: Wait) -> bool:
    """Whether somebody still waits; a time that is yet to come is from before the clock was set."""
    return abs(time.time() - wait.asked) < PATIENCE
