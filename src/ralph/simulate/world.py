"""A world without files, processes or waiting: agents that outlive their engine, a disk, a mailbox, and what befalls them."""

import asyncio
import contextlib
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ralph.core.checks import Check, Red, Verdict
from ralph.core.entries import Entry, Record
from ralph.core.events import Aside, DocumentEdited, Merge, Merged, Promote
from ralph.core.limits import Limits, Usage
from ralph.core.signals import Signal, SignalType
from ralph.core.stream import AgentEvent, Kind
from ralph.core.turns import Change, FileStat, Turn, TurnEnd, TurnResult
from ralph.simulate.clock import Endless, VirtualClock
from ralph.simulate.game import Deed, Game
from ralph.simulate.profile import Profile

WALL, IDLE = 3600.0, 900.0
"""Seconds that a turn may take, and may be silent."""
MOST_LOOKS = 20_000
"""So often an engine looks whether there is something to do, and there never will be."""
MOST_TURNS = 2000
"""A run with more turns than this has no end."""
TOKEN = 4
"""Characters that count as a token."""
_ENDS = {reason: TurnEnd(reason) for reason in ("cut", "stopped", "interrupted", "steered")}
_ERRORS = {
    TurnEnd.FAILED: "exit code 1",
    TurnEnd.IDLE: "it said nothing any more",
    TurnEnd.LIMITED: "usage limit reached",
    TurnEnd.OVERLOADED: "overloaded",
    TurnEnd.UNAVAILABLE: "not signed in",
}


class PowerCut(BaseException):
    """The engine is gone at once; nothing of ours may handle this."""


@dataclass
class Process:
    """An agent at work; it needs no engine to go on."""

    turn: Turn
    started_at: float
    seconds: float
    usage: Usage
    breaks: TurnEnd | None
    result: TurnResult | None = None
    wake: asyncio.Event | None = None
    watch: Callable[[AgentEvent], None] | None = None

    def tell(self, usage: Usage) -> None:
        """Tell the engine, if there is one, what was used; it then looks what there is to do."""
        if self.wake and self.watch and self.result is None:
            self.watch(AgentEvent(Kind.USAGE, usage=usage))


class SimulatedWorld:
    """The world around one run, for one engine after the other; it is every port of the kernel itself."""

    def __init__(
        self, game: Game, profile: Profile, chance: random.Random, limits: Limits, edits: Mapping[str, str]
    ) -> None:
        self.game, self.profile, self.chance, self.limits = game, profile, chance, limits
        self.clock = VirtualClock()
        self.records: list[Record] = []
        self.documents: dict[str, str] = {}
        self.processes: dict[int, Process] = {}
        self.mail: list[Signal] = []
        self.told: dict[int, str] = {}
        """What each turn did."""
        self.notices: Sequence[str] = ()
        self.state: Callable[[], Any] = lambda: None
        """The state, as the last engine knew it."""
        self.leave: Callable[[str], None] = lambda reason: None
        """Asks the engine that is there to go."""
        self._edits = dict(edits)
        self._looks = 0
        self._files = 0
        self._snapshots = 0
        self._cut_in: int | None = None

    # The store

    def commit(self, at: float, entry: Entry, changes: Mapping[str, str], aside: Aside | None = None) -> Record:
        """Keep a record and what follows from it; a crash comes before it or after it, never in between."""
        record = Record(len(self.records) + 1, at, entry, dict.fromkeys(changes, "hash"))
        if self._cut_in == 0:
            self._cut_in = None
            if self.chance.random() < 0.5:
                self._keep(record, changes)
            raise PowerCut
        if self._cut_in:
            self._cut_in -= 1
        self._keep(record, changes)
        return record

    def _keep(self, record: Record, changes: Mapping[str, str]) -> None:
        taken = (record.entry.path,) if isinstance(record.entry, DocumentEdited) else ()
        for path in (*taken, *changes):
            self._edits.pop(path, None)
        self._looks = 0
        self.records.append(record)
        self.documents.update(changes)

    def read(self) -> Mapping[str, str]:
        """The documents as they are now."""
        return dict(self.documents)

    def edited(self) -> Iterable[tuple[str, str]]:
        """The documents that agents changed."""
        return list(self._edits.items()) if self._edits else ()

    # Turns

    async def run(self, turn: Turn, watch: Callable[[AgentEvent], None]) -> TurnResult:
        """Start an agent, or find the one that an engine before this one started."""
        process = self.processes.get(turn.number) or self._launch(turn)
        process.watch = watch
        if process.result is None:
            process.wake = asyncio.Event()
            await process.wake.wait()
        assert process.result
        return process.result

    async def stop(self, turn: Turn, reason: str) -> None:
        """End an agent."""
        self._end(self.processes[turn.number], _ENDS[reason])

    async def tell(self, turn: Turn, name: str, text: str) -> bool:
        """No agent here hears before its turn is over."""
        return False

    def _launch(self, turn: Turn) -> Process:
        if turn.number > MOST_TURNS:
            raise Endless(f"more than {MOST_TURNS} turns were started")
        spends, chance = self.profile.spends, self.chance
        seconds, breaks = spends.drawn(chance, spends.seconds), self.profile.breaks.chosen(chance)
        wall = turn.request.wall or WALL
        if breaks is TurnEnd.IDLE:
            seconds += IDLE
        elif breaks:
            seconds *= chance.random()
        if seconds > wall:
            seconds, breaks = wall, TurnEnd.WALL
        read = round(len(turn.request.prompt) / TOKEN + spends.drawn(chance, spends.input_tokens))
        wrote = round(spends.drawn(chance, spends.output_tokens))
        price = (read * spends.input_price + wrote * spends.output_price) / 1e6
        now = self.clock.now()
        process = Process(turn, now, seconds, Usage(read, wrote, price), breaks)
        self.processes[turn.number] = process
        if self.limits.cost is not None or self.limits.tokens is not None:
            self.clock.plan(now + seconds / 2, lambda: process.tell(_part(process.usage, 0.5)))
        self.clock.plan(now + seconds, lambda: self._end(process))
        self._befall(process)
        return process

    def _end(self, process: Process, end: TurnEnd | None = None) -> None:
        """An agent comes to its end, by itself or because it was told to."""
        if process.result is not None:
            return
        now, turn = self.clock.now(), process.turn
        how = end or process.breaks or TurnEnd.FINISHED
        whole = how is TurnEnd.FINISHED
        deed = self.game.deed(turn, self.state()) if whole else Deed(_ERRORS.get(how, str(how)))
        self._edits.update(deed.edits)
        self.documents.update(deed.edits)
        self._files += deed.files
        self.told[turn.number] = deed.told
        elapsed = (now - process.started_at) / process.seconds if process.seconds else 1.0
        resets = self.profile.breaks.limit_minutes * 60 * self.chance.random() if how is TurnEnd.LIMITED else None
        process.result = TurnResult(
            how,
            process.started_at,
            now,
            code=0 if whole else 1,
            usage=_part(process.usage, min(1.0, elapsed)),
            text=deed.text,
            error="" if whole else _ERRORS.get(how, ""),
            answer=deed.answer,
            answer_errors=deed.errors,
            resets_at=None if resets is None else now + resets,
            change=Change(f"tree-{turn.number}", deed.files) if turn.request.workspace else None,
            papers=deed.papers,
        )
        if process.wake:
            process.wake.set()

    # What befalls it all

    def _befall(self, process: Process) -> None:
        """Plan what happens while a turn runs, or soon after."""
        befalls, chance = self.profile.befalls, self.chance
        at = process.started_at + process.seconds * chance.random()
        for share, what in (
            (befalls.crash, self._crash),
            (befalls.pause, lambda: self._say(SignalType.PAUSE)),
            (befalls.steer, lambda: self._say(SignalType.STEER, "do it another way")),
            (befalls.inform, lambda: self._say(SignalType.INFO, "this is how it is")),
            (befalls.abort, lambda: self._say(SignalType.ABORT, "a person has had enough")),
        ):
            if chance.random() < share:
                self.clock.plan(at, what)

    def _say(self, kind: SignalType, words: str = "") -> None:
        number = len(self.mail) + len(self.records)
        self.mail.append(Signal(f"signal.{number:05d}.yaml", kind, words, stamp=str(number)))
        for process in self.processes.values():
            process.tell(Usage())

    def _crash(self) -> None:
        """The engine goes: killed here and now, at one of its next commits, with all agents, or because it was asked to."""
        how = self.chance.randrange(4)
        if how == 0:
            self.leave("told to go (SIGTERM)")
        elif how == 1:
            self._cut_in = self.chance.randrange(4)
        elif how == 2:
            for process in [one for one in self.processes.values() if one.result is None]:
                self._end(process, TurnEnd.INTERRUPTED)
            raise PowerCut
        else:
            raise PowerCut

    def without_engine(self) -> None:
        """Let the time pass until somebody starts the engine again."""
        self._cut_in = None
        self.leave = lambda reason: None
        for process in self.processes.values():
            process.wake = None
        with contextlib.suppress(PowerCut):
            self.clock.pass_by(self.chance.uniform(1.0, 1800.0))

    # The rest of the ports

    def peek(self) -> Sequence[Signal]:
        """The signals that wait."""
        self._looks += 1
        if self._looks > MOST_LOOKS:
            raise Endless("nothing is under way, and nothing will be")
        return sorted(self.mail, key=lambda one: (one.type is not SignalType.ABORT, one.name)) if self.mail else ()

    def settle(self, signal: Signal, action: str, missed: tuple[str, ...] | None = None) -> None:
        """File a signal."""
        self.mail.remove(signal)

    def acknowledge(self, signal: Signal, role: str, facts: Mapping[str, object]) -> None:
        """Nobody reads acknowledgements here."""

    def take(self, label: str) -> Change:
        """Record the tree."""
        self._snapshots += 1
        files, self._files = self._files, 0
        return Change(f"snapshot-{self._snapshots}", files, 20 * files, 5 * files)

    def changed_files(self) -> Sequence[FileStat]:
        """What differs from before the run is of no interest."""
        return ()

    async def merge(self, work: Merge) -> Merged:
        """Merge a workspace."""
        await self.clock.sleep(1.0)
        return self.game.merged(work)

    async def promote(self, work: Promote) -> Merged:
        """Bring documents onto the branch of the run."""
        return self.game.merged(work)


@dataclass(frozen=True)
class Checker:
    """Who runs the checks: they say what is true."""

    world: SimulatedWorld

    async def check(self, key: str, checks: Sequence[Check], workspace: str = "", red: Red | None = None) -> Verdict:
        """Look at how far the work really is, after a while."""
        world = self.world
        await world.clock.sleep(world.profile.spends.drawn(world.chance, world.profile.spends.check_seconds))
        return world.game.verdict(key, checks, workspace, world.state())


@dataclass
class Slots:
    """How many turns may run at once."""

    most: int
    full: str = "all slots are taken"
    held: set[str] = field(default_factory=set)

    def take(self, key: str, agent: str, *, anyway: bool, makes_tree: bool) -> bool:
        """Take a slot for the turn of some work."""
        free = anyway or key in self.held or len(self.held) < self.most
        if free:
            self.held.add(key)
        return free

    def release(self, key: str) -> None:
        """Give it back."""
        self.held.discard(key)


def _part(usage: Usage, share: float) -> Usage:
    return Usage(round(usage.input_tokens * share), round(usage.output_tokens * share), (usage.cost or 0.0) * share)
