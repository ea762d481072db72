"""A simulated world for the kernel: time that passes at once, agents that outlive their engine, a disk that can fail.

The store and the workflow are the real ones. What is simulated lives in a `Simulation`, outside every engine: an engine
may be killed at any instant, and the next one finds agents, tree, mailbox and disk as the world left them.
"""

import asyncio
import contextlib
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

import pytest
from virtual_clock import EPOCH, Endless, VirtualClock, VirtualLoop

from ralph.core.checks import Check, CheckResult, CheckStatus, FailingTests, Verdict
from ralph.core.entries import Record, RunStarted
from ralph.core.events import DocumentEdited, RunEnded, Stop
from ralph.core.limits import Limits, Quota, Spent, Usage
from ralph.core.signals import Signal, SignalType
from ralph.core.turns import AgentEvent, Change, EventKind, FileStat, Turn, TurnEnd, TurnResult
from ralph.engine.follow_up import AgentChain
from ralph.engine.kernel import Kernel, StartOptions
from ralph.engine.ledger import Ledger, find_records_to_replay
from ralph.engine.ports import Ports
from ralph.store import settings
from ralph.store.documents import Documents
from ralph.store.journal import read_records
from ralph.workflows.loop.prompt import NAMES
from ralph.workflows.loop.rules import Loop
from ralph.workflows.loop.state import LoopParameters

RUN = "261115-093000-k3x9"
E = TypeVar("E")
HEARS_AFTER = 2.0
"""Seconds after which an agent that hears has taken in what was left for it."""


def later(*values: object) -> Any:
    """Values of a parameter that only `make test-slow` tries."""
    return pytest.param(*values, marks=pytest.mark.slow)


class PowerCut(BaseException):
    """The machine is gone; nothing of ours may handle this."""


class Cut(Enum):
    """When, in a system call, the power goes."""

    BEFORE = "before"
    AFTER = "after"
    HALF = "half"
    """After half of the bytes of a write."""
    LOST = "lost"
    """Before the call, and everything that was not synced to the disk is lost."""


class Disk:
    """Stands where the store makes its system calls; at the chosen one the power goes, and stays away."""

    def __init__(self, cut_at: int | None = None, how: Cut = Cut.BEFORE) -> None:
        self._cut_at, self._how = cut_at, how
        self.calls: list[str] = []
        self._dead = False
        self._unfinished: int | None = None
        """The descriptor of a temporary file, which dies with the process."""
        self._unsynced: list[tuple[str, Callable[[], object]]] = []
        """How to take back what was not synced yet, by the file or directory whose sync makes it last."""

    def __call__(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self._dead:
            raise PowerCut
        self.calls.append(function.__name__)
        if len(self.calls) != self._cut_at:
            return self._done(function, *args, **kwargs)
        self._dead = True
        if self._how is Cut.AFTER:
            self._done(function, *args, **kwargs)
        elif self._how is Cut.HALF and function is os.write:
            os.write(args[0], args[1][: len(args[1]) // 2])
        elif self._how is Cut.LOST:
            for _, take_back in reversed(self._unsynced):
                take_back()
        raise PowerCut

    def _done(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self._how is Cut.LOST:
            self._note(function, *args)
        if function is os.fsync:
            return None  # what a process sees of its files does not depend on it, and it is slow
        result = function(*args, **kwargs)
        if function is os.open:
            self._unfinished = result
        if function is os.rename:
            self._unfinished = None
        return result

    def _note(self, function: Callable[..., Any], *args: Any) -> None:
        """Remember what a call changes until it is synced: the bytes of a file, the names in a directory."""
        if function is os.write:
            path, size = os.readlink(f"/proc/self/fd/{args[0]}"), os.fstat(args[0]).st_size
            self._unsynced.append((path, lambda: os.path.exists(path) and os.truncate(path, size)))
        elif function is os.fsync:
            synced = os.readlink(f"/proc/self/fd/{args[0]}")
            self._unsynced = [(path, take_back) for path, take_back in self._unsynced if path != synced]
        elif function in (os.rename, os.unlink):
            changed = Path(args[-1])
            old = changed.read_bytes() if changed.exists() else None
            self._unsynced.append((str(changed.parent), lambda: _restore(changed, old)))

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """The disk under every module of the store."""
        places: list[Any] = []
        for name, module in sys.modules.items():
            if name.startswith("ralph.store.") and hasattr(module, "_syscall"):
                places.append(module)
        before = [module._syscall for module in places]
        for module in places:
            module._syscall = self
        try:
            yield
        finally:
            for module, own in zip(places, before, strict=True):
                module._syscall = own
            if self._dead and self._unfinished is not None and self.calls[-1] != "rename":
                with contextlib.suppress(OSError):
                    os.close(self._unfinished)


def _restore(path: Path, data: bytes | None) -> None:
    if data is None:
        path.unlink(missing_ok=True)
    else:
        path.write_bytes(data)


def _nothing(sim: "Simulation") -> None:
    """An agent that leaves the tree as it is."""


def works(sim: "Simulation") -> None:
    """An agent that does the work."""
    sim.tree.add("works")


def breaks(sim: "Simulation") -> None:
    """An agent that undoes it."""
    sim.tree.discard("works")


@dataclass(frozen=True)
class Play:
    """What one agent process does."""

    does: Callable[["Simulation"], None] = _nothing
    """What it has done to the world when it ends by itself."""
    end: TurnEnd = TurnEnd.FINISHED
    seconds: float = 4.0
    meanwhile: Callable[["Simulation"], None] = _nothing
    """What it does when half of its time is over."""
    cost: float | None = 0.25
    tokens: int = 100
    tells: int = 4
    """In how many portions, spread over its time, it tells what it used; with 0 only its end tells."""
    errors: tuple[str, ...] = ()
    answer: Mapping[str, Any] | None = None
    resets_in: float | None = None
    """Seconds from its end until the provider's limit is over."""
    error: str = ""
    text: str = ""
    session: str = ""
    hears: bool = False
    """Whether it takes in words while it works, a while after they were left."""
    documents: Mapping[str, str] = field(default_factory=dict)
    quota: Quota | None = None
    """What it tells of the subscription with each portion."""

    def portion(self) -> Usage:
        return Usage(self.tokens // self.tells, 0, None if self.cost is None else self.cost / self.tells)


@dataclass
class Process:
    """An agent process; it needs no engine to go on."""

    turn: Turn
    play: Play
    started_at: float
    result: TurnResult | None = None
    told: int = 0
    stopped: str = ""
    messages: dict[str, str] = field(default_factory=dict)
    """What was left for it, by name."""
    heard: list[str] = field(default_factory=list)
    offered: list[str] = field(default_factory=list)
    """What engines left for it, by name, each time."""
    wake: asyncio.Event | None = None

    def hear(self, name: str) -> None:
        if self.result is None:
            self.heard.append(name)
            self.notify()

    def notify(self) -> None:
        if self.wake:
            self.wake.set()


_ENDS = {
    "cut": TurnEnd.CUT,
    "stopped": TurnEnd.STOPPED,
    "interrupted": TurnEnd.INTERRUPTED,
    "steered": TurnEnd.STEERED,
}


class SimTurns:
    """Starts agents, or finds them where an engine before us started them."""

    def __init__(self, sim: "Simulation") -> None:
        self._sim = sim

    async def run(self, turn: Turn, watch: Callable[[AgentEvent], None]) -> TurnResult:
        process = self._sim.processes.get(turn.number) or self._launch(turn)
        if process.turn.request.key != turn.request.key:
            raise AssertionError(f"turn {turn.number} was started for {process.turn.request.key}")
        heard, listened = 0, 0
        while True:
            for _ in range(process.told - heard):
                watch(AgentEvent(EventKind.USAGE, usage=process.play.portion(), quota=process.play.quota))
            heard = process.told
            for name in process.heard[listened:]:
                watch(AgentEvent(EventKind.RECEIVED, name, means="hook"))
            listened = len(process.heard)
            if process.result:
                return process.result
            process.wake = asyncio.Event()
            try:
                await process.wake.wait()
            finally:
                process.wake = None

    async def stop(self, turn: Turn, reason: str) -> None:
        process = self._sim.processes.get(turn.number)
        if process and process.result is None:
            process.stopped = reason
            self._sim.end(process, _ENDS[reason])

    async def send_message(self, turn: Turn, name: str, text: str) -> None:
        process = self._sim.processes.get(turn.number)
        if process:
            process.offered.append(name)
        if not process or not process.play.hears or process.result:
            return
        if name not in process.messages:
            process.messages[name] = text
            self._sim.clock.plan(self._sim.clock.now() + HEARS_AFTER, lambda: process.hear(name))

    def _launch(self, turn: Turn) -> Process:
        sim = self._sim
        if len(sim.processes) >= sim.most_turns:
            raise Endless(f"more than {sim.most_turns} turns were started")
        play = sim.script(turn)
        process = sim.processes[turn.number] = Process(turn, play, sim.clock.now())
        for number in range(1, play.tells + 1):
            sim.clock.plan(process.started_at + play.seconds * number / play.tells, lambda: sim.tell(process))
        sim.clock.plan(process.started_at + play.seconds / 2, lambda: process.result or play.meanwhile(sim))
        if play.seconds:
            sim.clock.plan(process.started_at + play.seconds, lambda: sim.end(process))
        else:
            sim.end(process)
        return process


class SimChecker:
    """Looks at the simulated tree: a check passes when what it names is there."""

    def __init__(self, sim: "Simulation") -> None:
        self._sim = sim

    async def check(
        self,
        key: str,
        checks: Sequence[Check],
        worktree: str = "",
        seen_failing: FailingTests | None = None,
        *,
        is_final: bool = False,
    ) -> Verdict:
        await asyncio.sleep(self._sim.check_seconds)
        verdict = Verdict(tuple(self._result(check) for check in checks))
        self._sim.verdicts.append((key, verdict.passed))
        return verdict

    async def check_with_tests(self, key: str, checks: Sequence[Check], tests: Mapping[str, str]) -> Verdict:
        return await self.check(key, checks)

    def _result(self, check: Check) -> CheckResult:
        status = CheckStatus.PASSED if check.command in self._sim.tree else CheckStatus.FAILED
        status = self._sim.broken_checks.get(check.command, status)
        reason = "" if status is CheckStatus.PASSED else f"{check.command} is {status}"
        output = f"output of {check.command}, {len(self._sim.processes)} {_word(len(self._sim.processes))}"
        return CheckResult(check.title, status, self._sim.check_seconds, 0, reason, output, command=check.command)


def _word(number: int) -> str:
    """A word that is another for every number: failures that are not the same."""
    return "".join("abcdefghij"[int(digit)] for digit in str(number))


class SimMailbox:
    """Signals in memory, in the order in which they are to be taken."""

    def __init__(self) -> None:
        self.waiting: list[Signal] = []
        self.settled: list[Signal] = []
        self.actions: dict[str, str] = {}
        self.missed: dict[str, tuple[str, ...] | None] = {}
        self.acks: dict[tuple[str, str], Mapping[str, object]] = {}
        self._posted = 0

    def post(self, kind: SignalType, message: str = "", name: str = "", **more: Any) -> None:
        self._posted += 1
        name = name or f"signal.{self._posted:03d}.yaml"
        self.waiting.append(Signal(name, kind, message, stamp=str(self._posted), **more))

    def read_inputs(self) -> Sequence[Signal]:
        return sorted(self.waiting, key=lambda signal: (signal.type is not SignalType.ABORT, signal.name))

    def archive(self, signal: Signal, action: str, missed: tuple[str, ...] | None = None) -> None:
        self.waiting.remove(signal)
        self.settled.append(signal)
        self.actions[signal.name], self.missed[signal.name] = action, missed

    def reject(self, signal: Signal, reason: str) -> None:
        self.archive(signal, f"rejected: {reason}")

    def record_receipt(self, signal: Signal, action: str, at: float) -> None:
        self.actions[signal.name] = action

    def acknowledge(self, signal: Signal, role: str, facts: Mapping[str, object]) -> None:
        self.acks[signal.name, role] = facts


class SimSnapshots:
    """Counts the snapshots. A turn that failed without doing anything has changed nothing."""

    def __init__(self, processes: Mapping[int, Process]) -> None:
        self.processes = processes
        self.labels: list[str] = []
        self.notices: list[str] = []

    def take(self, label: str) -> Change:
        self.labels.append(label)
        name = f"snapshot-{len(self.labels)}"
        turn = re.match(r"turn (\d+) ", label)
        process = self.processes.get(int(turn[1])) if turn else None
        if process and process.play.end is TurnEnd.FAILED and process.play.does is _nothing:
            return Change(name)
        return Change(name, files=1, added=2, removed=1)

    def take_after_checks(self) -> None:
        pass

    def take_user_changes(self) -> Change:
        return Change(f"snapshot-{len(self.labels)}")

    def changed_files(self) -> Sequence[FileStat]:
        return [FileStat("works.py", 2, 1)]

    def list_planted_programs(self) -> Sequence[str]:
        return []


@dataclass
class Onlooker:
    """Keeps what it was shown."""

    records: list[Record] = field(default_factory=list)
    events: list[tuple[int, AgentEvent]] = field(default_factory=list)

    def on_record(self, record: Record) -> None:
        self.records.append(record)

    def on_agent_event(self, turn: Turn, event: AgentEvent) -> None:
        self.events.append((turn.number, event))


class Simulation:
    """The world around one run."""

    def __init__(
        self,
        root: Path,
        plays: Sequence[Play] | Callable[[Turn], Play] = (),
        *,
        limits: Limits | None = None,
        checks: Sequence[str] = ("works",),
        mailbox: Any = None,
        workflow: Any = None,
        watched: tuple[str, ...] = (),
        checker: Any = None,
        roster: AgentChain = AgentChain(("simulated",)),  # noqa: B008 - it does not change
        snapshots: bool = False,
        merger: Any = None,
        loop_id: str = RUN,
        task: str = "make it work",
        most_turns: int = 60,
        clock: VirtualClock | None = None,
        **fixed: Any,
    ) -> None:
        self.root = root
        self.run_dir = root / ".ralph" / "runs" / loop_id
        self.run_dir.mkdir(parents=True)
        self.clock = clock or VirtualClock()
        self.script = plays if callable(plays) else lambda turn: _in_order(plays, turn)
        self.limits = limits or Limits()
        self.mailbox = SimMailbox() if mailbox is None else mailbox
        self.processes: dict[int, Process] = {}
        self.snapshots = SimSnapshots(self.processes) if snapshots else None
        self.most_turns = most_turns
        self.check_seconds = 1.0
        self.power_was_lost = False
        self.tree: set[str] = set()
        self.checker, self.roster, self.merger = checker, roster, merger
        self.slots: Any = None
        self.roles: tuple[str, ...] = ()
        """The roles of the run, if they are known."""
        self.other_ports: dict[str, Any] = {}
        """Ports that most runs do without: `user_refs`, `committer`, `lander`, `questions`."""
        self.broken_checks: dict[str, CheckStatus] = {}
        self.notices: tuple[str, ...] = ()
        self.resumes = True
        self.verdicts: list[tuple[str, bool]] = []
        self.onlooker = Onlooker()
        self._read: tuple[object, list[Record]] = (None, [])
        self.kernel: Kernel[Any] | None = None
        self.loop = Loop(
            task,
            tuple(Check(command) for command in checks),
            {name: settings.load_prompt(name, root) for name in NAMES},
            LoopParameters(
                loop_id, "`works` passes", self.limits.iterations, EPOCH, self.limits.active_seconds, **fixed
            ),
        )
        self.workflow = workflow or self.loop
        self.watched = watched

    def run(self, disk: Disk | None = None) -> Stop:
        """Be an engine of this run, built from what is on the disk, until its next outcome."""
        with (
            (disk or Disk()).installed(),
            asyncio.Runner(loop_factory=lambda: VirtualLoop(self.clock)) as runner,
        ):
            try:
                return runner.run(self.drive())
            finally:
                self.kernel = None

    async def drive(self) -> Stop:
        """The same inside a loop that is there already."""
        self.kernel = self.build()
        return await self.kernel.run()

    def build(self) -> Kernel[Any]:
        """A kernel over what is on the disk."""
        documents, records = Documents.open(self.root, self.run_dir)
        documents.watched = self.watched
        ports = Ports(
            documents,
            SimTurns(self),
            self.checker or SimChecker(self),
            self.mailbox,
            self.clock,
            self.onlooker,
            self.snapshots,
            merger=self.merger,
            slots=self.slots,
            **self.other_ports,
        )
        resumed = any(isinstance(record.entry, RunStarted) for record in records)
        entry = RunStarted(1, "0", self.run_dir.name, {}, resumed=resumed)
        ledger = Ledger.of(self.limits, records)
        ledger.signals.roles = self.roles
        limits = ledger.extend_limits()
        steering = settings.load_prompt("steering", self.root)
        start = StartOptions(
            entry,
            self.roster,
            limits,
            find_records_to_replay(records),
            self.notices,
            resumed and self.resumes,
            steering,
        )
        return Kernel(self.workflow, ports, ledger, start)

    def tell(self, process: Process) -> None:
        """An agent tells what it used."""
        if process.result is None:
            process.told += 1
            process.notify()

    def end(self, process: Process, end: TurnEnd | None = None) -> None:
        """An agent comes to its end, by itself or because it was told to."""
        if process.result is not None:
            return
        play, now = process.play, self.clock.now()
        if end is None:
            play.does(self)
        used = sum((play.portion() for _ in range(process.told)), Usage()) if play.tells else Usage()
        by_itself = end is None or end is TurnEnd.INTERRUPTED
        process.result = TurnResult(
            end or play.end,
            process.started_at,
            now,
            code=0 if (end or play.end) is TurnEnd.FINISHED else 1,
            usage=Usage(play.tokens, 0, play.cost) if end is None and not play.tells else used,
            text=play.text,
            error=play.error if by_itself else "",
            answer=play.answer if by_itself else None,
            answer_errors=play.errors if by_itself else (),
            resets_at=None if play.resets_in is None else now + play.resets_in,
            agent_session=play.session,
            received=tuple(process.heard),
            documents=play.documents if by_itself else {},
            quota=play.quota if process.told else None,
        )
        process.notify()

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Let something happen so many seconds after the beginning of the world."""
        self.clock.plan(EPOCH + seconds, action)

    def kill_engine(self) -> None:
        """`kill -9` the engine, if there is one."""
        if self.kernel:
            self.kernel = None
            raise PowerCut

    def records(self) -> list[Record]:
        """The journal, verified; read again only where it has changed."""
        path = self.run_dir / "journal.jsonl"
        status = path.stat()
        mark = (status.st_size, status.st_mtime_ns)
        if self._read[0] != mark:
            self._read = (mark, read_records(path))
        return self._read[1]

    def entries(self, kind: type[E]) -> list[E]:
        """All entries of one kind."""
        return [record.entry for record in self.records() if isinstance(record.entry, kind)]

    def ledger(self) -> Ledger:
        """What the journal accounts for."""
        return Ledger.of(self.limits, self.records())

    @property
    def spent(self) -> Spent:
        return self.ledger().spent

    @property
    def ended(self) -> RunEnded | None:
        return self.ledger().ended

    @property
    def edits(self) -> list[str]:
        """The paths of the edits that were taken in."""
        return [entry.path for entry in self.entries(DocumentEdited)]

    @property
    def starts(self) -> list[float]:
        """When each turn was started, in seconds since the beginning of the world."""
        return [self.processes[number].started_at - EPOCH for number in sorted(self.processes)]

    @property
    def state_path(self) -> Path:
        return self.root / self.loop.state_path


def _in_order(plays: Sequence[Play], turn: Turn) -> Play:
    if turn.number > len(plays):
        raise AssertionError(f"turn {turn.number} ({turn.request.key}) was not expected")
    return plays[turn.number - 1]
