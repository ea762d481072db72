"""The one loop that runs any workflow.

`run` calls `step` until the run has a reason to end. A step takes what people said, asks the workflow what should
be under way, starts what is not yet, and accepts the next thing that happens. Retry, limits, money and recovery are
policies beside it.
"""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, assert_never

from ralph.core.entries import (
    ChecksStarted,
    Entry,
    LimitExtended,
    Notice,
    Record,
    RunStarted,
    SnapshotTaken,
    TurnStarted,
)
from ralph.core.errors import StateError
from ralph.core.events import (
    ChecksEnded,
    Commit,
    DocumentEdited,
    Event,
    RunChecks,
    RunEnded,
    SignalTaken,
    StartTurns,
    Stop,
    TurnEnded,
    WorkCommitted,
)
from ralph.core.limits import Limits, Usage
from ralph.core.outcomes import Outcome
from ralph.core.signals import Signal, SignalType
from ralph.core.stream import AgentEvent, Kind
from ralph.core.turns import CHECKED, Change, Turn, TurnEnd, TurnRequest
from ralph.engine.activity import Activity
from ralph.engine.ledger import Ledger, Work
from ralph.engine.ports import Checker, Clock, Committer, Mailbox, Observer, S, Snapshots, Store, Turns, Workflow
from ralph.engine.roster import Roster
from ralph.engine.settling import mended, pick, session_of, unsettled, what_follows

Happening = TurnEnded | ChecksEnded | WorkCommitted
"""What the kernel waits for."""
POLL = 0.25
"""Seconds between two looks into the mailbox while turns run."""
MOST_FILES = 200
"""How many changed files the end of a run lists."""


@dataclass(frozen=True)
class World:
    """Everything outside that the kernel acts through."""

    store: Store
    turns: Turns
    checker: Checker
    mailbox: Mailbox
    clock: Clock
    observer: Observer
    snapshots: Snapshots | None = None
    committer: Committer | None = None


@dataclass(frozen=True)
class Start:
    """How this engine takes the run up."""

    entry: RunStarted
    roster: Roster
    limits: Limits
    """The limits from here on: those of the journal, or what a resume grants."""
    unwritten: tuple[Record, ...] = ()
    """Events that were journaled after the documents were last written."""
    notices: tuple[str, ...] = ()


class Kernel(Generic[S]):
    """One run of a workflow, from where its journal ends to its next outcome."""

    def __init__(self, workflow: Workflow[S], world: World, ledger: Ledger, start: Start) -> None:
        self.workflow = workflow
        self.world = world
        self.ledger = ledger
        self._start = start
        self._jobs: dict[str, asyncio.Task[Happening]] = {}
        self._running: dict[int, tuple[Turn, Usage]] = {}
        self._waiting: set[str] = set()
        self._asked: list[Signal] = []
        self._activity = Activity(world.clock.now)
        self._wake = asyncio.Event()
        self._stop: Stop | None = None
        self._over_limit = False
        self._snapshot_notices = 0

    async def run(self) -> Stop:
        """Run until there is a reason to end, and say which."""
        self._take_up()
        try:
            while (stop := await self.step()) is None:
                pass
            await self._end_all(stop)
        except StateError:
            await self._stop_turns("stopped")
            raise
        files = self.world.snapshots.changed_files() if self.world.snapshots else ()
        listed, more = tuple(files[:MOST_FILES]), max(0, len(files) - MOST_FILES)
        self._commit(RunEnded(stop.outcome, stop.reason, self.ledger.spent, self.ledger.limits, listed, more))
        return stop

    async def step(self) -> Stop | None:
        """Take signals, decide, start, and accept what happens next."""
        self._take_signals()
        self._take_edits()
        if self._stop:
            return self._stop
        decision = self.workflow.decide(self.state, self.world.clock.now())
        match decision:
            case Stop():
                return decision
            case StartTurns(turns):
                limit = None if self.ledger.paused else self._start_turns(turns)
                if limit and not self._jobs:
                    return limit
            case RunChecks(key):
                if key not in self._jobs and not self.ledger.paused:
                    self._jobs[key] = asyncio.create_task(self._check(decision))
            case Commit(key):
                if key not in self._jobs and not self.ledger.paused:
                    self._jobs[key] = asyncio.create_task(self._commit_work(decision))
            case _:
                assert_never(decision)
        if self._waiting.issuperset(self._jobs) and (stop := self._reason_not_to_wait()):
            return stop
        events = await self._next_events()
        self._take_edits()
        return self._accept(events)

    def ask(self, signal: Signal) -> None:
        """Take a signal that did not come through the mailbox."""
        self._asked.append(signal)
        self._wake.set()

    def ask_leave(self, reason: str) -> None:
        """End the turns under way and leave the run to be resumed."""
        self._stop = Stop(Outcome.INTERRUPTED, reason)
        self._wake.set()

    def _take_up(self) -> None:
        """Journal that this engine is here, and carry on where the journal ends."""
        if self._start.limits != self.ledger.limits:
            ended = self.ledger.ended
            self._journal(LimitExtended(self._start.limits, f"resumed after {ended.outcome}" if ended else "resumed"))
        self._journal(self._start.entry)
        for notice in self._start.notices:
            self._journal(Notice(notice))
        if self.ledger.aborted:
            self._stop = _aborted(self.ledger.aborted)
        self.state = self._load()
        if not self.ledger.snapshots and (base := self._snapshot("before the run")):
            self._journal(SnapshotTaken("before the run", base.snapshot))
        for key, work in self.ledger.work.items():
            if work.open:
                self._start_turn(self._request(key, work.open), work)

    def _load(self) -> S:
        """The state that the documents describe, and what has happened since they were written."""
        state = self.workflow.load(self.world.store.read())
        for record in self._start.unwritten:
            entry = record.entry
            if isinstance(entry, Event) and not (isinstance(entry, TurnEnded) and unsettled(entry)):
                state = self.workflow.accept(state, entry, record.at).state
        return state

    def _request(self, key: str, started: TurnStarted) -> TurnRequest:
        """What a turn that an earlier engine started was asked for."""
        decision = self.workflow.decide(self.state, self.world.clock.now())
        wanted = decision.turns if isinstance(decision, StartTurns) else ()
        bare = TurnRequest(key, started.role, "", counts=started.counts)
        return next((request for request in wanted if request.key == key), bare)

    def _take_signals(self) -> None:
        while self._asked:
            self._heed(self._asked.pop(0))
        for signal in self.world.mailbox.peek():
            if (signal.name, signal.stamp) not in self.ledger.taken:
                self._heed(signal)
            self.world.mailbox.settle(signal, _ACTIONS[signal.type])

    def _heed(self, signal: Signal) -> None:
        self._commit(SignalTaken(signal))
        if signal.type is SignalType.ABORT:
            self._stop = _aborted(signal)

    def _take_edits(self) -> None:
        for path, content in list(self.world.store.edited()):
            self._commit(DocumentEdited(path, content))

    def _start_turns(self, requests: tuple[TurnRequest, ...]) -> Stop | None:
        """Start what is not under way yet; the limit that keeps the rest from starting."""
        for request in requests:
            if request.key in self._jobs:
                continue
            if limit := self._limit_before(request):
                return limit
            self._start_turn(request, self.ledger.work.get(request.key) or Work())
        return None

    def _start_turn(self, request: TurnRequest, work: Work) -> None:
        """Start a turn, or wait until it may be tried again."""
        until = work.last.retry_at if work.last and not work.open else None
        if until is not None and until > self.world.clock.now():
            self._jobs[request.key] = asyncio.create_task(self._turn_later(request, work, until))
        else:
            self._jobs[request.key] = asyncio.create_task(self._turn(request, self._open(request, work)))

    def _limit_before(self, request: TurnRequest) -> Stop | None:
        """The limit that keeps this turn from starting."""
        ledger, limits = self.ledger, self.ledger.limits
        reached = limits.reached(ledger.spent, self.world.clock.now())
        under_way = ledger.iterations_under_way(but=request.key)
        if reached is None and request.counts and limits.out_of_iterations(ledger.spent, under_way):
            reached = Outcome.LIMIT_ITERATIONS
        estimate = ledger.estimate(request.role)
        if reached is None and self._running and not limits.may_reserve(ledger.spent, ledger.reserved, estimate):
            reached = Outcome.LIMIT_COST
        return Stop(reached, limit_reason(reached, limits)) if reached else None

    def _reason_not_to_wait(self) -> Stop | None:
        """Why the run ends although a turn is to be tried again later."""
        if self.ledger.paused:
            return Stop(Outcome.PAUSED, "paused by a signal")
        spent = self.ledger.with_activity(self._activity.peek())
        reached = self.ledger.limits.reached(spent, self.world.clock.now()) if self._jobs else None
        return Stop(reached, limit_reason(reached, self.ledger.limits)) if reached else None

    async def _next_events(self) -> list[Happening]:
        """Wait until something happens: a turn or checks end, a signal comes, a limit is reached."""
        waker = asyncio.create_task(self._wake.wait())
        done, _ = await asyncio.wait([waker, *self._jobs.values()], timeout=POLL, return_when=asyncio.FIRST_COMPLETED)
        waker.cancel()
        self._wake.clear()
        await self._hold_limits()
        ended = [key for key, job in self._jobs.items() if job in done]
        return [self._jobs.pop(key).result() for key in ended]

    def _accept(self, events: list[Happening]) -> Stop | None:
        stop = None
        for event in events:
            self._commit(self._accounted(event))
            if isinstance(event, TurnEnded) and event.result.end is TurnEnd.UNAVAILABLE and event.retry_at is None:
                stop = Stop(Outcome.AGENT_UNAVAILABLE, event.result.error)
        return stop

    async def _hold_limits(self) -> None:
        """Cut the turns under way when a limit of the run is crossed."""
        if not self._running or self._over_limit:
            return
        used = sum((usage for _, usage in self._running.values()), Usage())
        spent = self.ledger.with_activity(self._activity.peek())
        if self.ledger.limits.reached(spent, self.world.clock.now(), running=used):
            self._over_limit = True
            await self._stop_turns("cut")

    async def _stop_turns(self, reason: str) -> None:
        for turn, _ in list(self._running.values()):
            await self.world.turns.stop(turn, reason)

    async def _end_all(self, stop: Stop) -> None:
        """End what is under way, and account for it."""
        running = {turn.request.key for turn, _ in self._running.values()}
        for key, job in self._jobs.items():
            if key not in running and not job.done():
                job.cancel()
        await self._stop_turns("interrupted" if stop.outcome is Outcome.INTERRUPTED else "stopped")
        for ended in await asyncio.gather(*self._jobs.values(), return_exceptions=True):
            if isinstance(ended, TurnEnded | WorkCommitted):
                self._commit(self._accounted(ended))
            elif isinstance(ended, Exception):
                raise ended

    async def _turn_later(self, request: TurnRequest, work: Work, until: float) -> TurnEnded:
        """Let the time until the next try pass; only a wait for the provider is not active time."""
        limited = work.last is not None and work.last.result.end is TurnEnd.LIMITED
        self._waiting.add(request.key)
        try:
            with contextlib.nullcontext() if limited else self._activity.working():
                await self.world.clock.sleep(until - self.world.clock.now())
        finally:
            self._waiting.discard(request.key)
        return await self._turn(request, self._open(request, work))

    def _open(self, request: TurnRequest, work: Work) -> Turn:
        """Number a turn and journal it before it starts; one that was journaled already is the one to adopt."""
        errors = work.broken.result.answer_errors if work.broken else ()
        if work.open:
            last = work.last.result.session if work.last else ""
            before = work.used.get(last, Usage())
            adopted = Turn(work.open.turn, work.open.attempt, request, None, errors, work.open.agent, "", before)
            return self._enter(adopted)
        ledger = self.ledger
        agent, _ = pick(request, work, self._start.roster, ledger.resting, self.world.clock.now())
        session = session_of(work) if work.agent == agent else ""
        number, reserved = ledger.turns + 1, ledger.estimate(request.role)
        budget = ledger.limits.remaining_cost(ledger.spent, ledger.reserved)
        self._journal(
            TurnStarted(
                number,
                request.key,
                request.role,
                work.attempt,
                agent,
                reserved,
                repair=bool(errors),
                counts=request.counts,
            )
        )
        before = work.used.get(session, Usage())
        return self._enter(Turn(number, work.attempt, request, budget, errors, agent, session, before))

    def _enter(self, turn: Turn) -> Turn:
        self._running[turn.number] = (turn, Usage())
        return turn

    async def _turn(self, request: TurnRequest, turn: Turn) -> TurnEnded:
        """Run or adopt one turn, record the tree it left, and say what follows for the work behind it."""
        work = self.ledger.work[request.key]
        adopted_at = self.world.clock.now()
        with self._activity.working():
            result = await self.world.turns.run(turn, self._watcher(turn))
        del self._running[turn.number]
        if result.end is not TurnEnd.INTERRUPTED:
            self._activity.credit(min(adopted_at, result.ended_at) - work.opened_at)
        result = replace(result, change=self._snapshot(f"turn {turn.number} ({request.role})"))
        if work.broken:
            result = mended(work.broken.result, result)
        ended = TurnEnded(request.key, turn.number, request.role, turn.attempt, result, request.counts)
        return what_follows(ended, turn, work, self._start.roster, self.ledger.resting, self.world.clock.now())

    def _accounted(self, event: Happening) -> Happening:
        """The event with the counters after it; where the limits leave nothing for another try, it was the last."""
        if isinstance(event, WorkCommitted):
            return event
        spent = self.ledger.with_activity(self._activity.take())
        if isinstance(event, ChecksEnded):
            return replace(event, spent=spent)
        after = spent.with_turn(event.result.usage, counts=False)
        goes_on = event.retry_at is not None and not self._stop and event.result.end is not TurnEnd.INTERRUPTED
        if goes_on and self.ledger.limits.reached(after, self.world.clock.now()):
            result = replace(event.result, end=TurnEnd.FINISHED if event.repair else TurnEnd.CUT)
            event = replace(event, result=result, retry_at=None, retry_reason="", repair=False)
        counts = event.counts and not unsettled(event) and event.result.end is not TurnEnd.UNAVAILABLE
        return replace(event, spent=spent.with_turn(event.result.usage, counts=counts))

    def _snapshot(self, label: str) -> Change | None:
        """Record the tree, and say what could not be recorded."""
        if self.world.snapshots is None:
            return None
        change = self.world.snapshots.take(label)
        for notice in self.world.snapshots.notices[self._snapshot_notices :]:
            self._journal(Notice(notice))
            self._snapshot_notices += 1
        return change

    def _watcher(self, turn: Turn) -> Callable[[AgentEvent], None]:
        def watch(event: AgentEvent) -> None:
            self.world.observer.told(turn, event)
            if event.kind is Kind.USAGE and turn.number in self._running:
                self._running[turn.number] = (turn, self._running[turn.number][1] + event.usage)
                self._wake.set()

        return watch

    async def _check(self, decision: RunChecks) -> ChecksEnded:
        self._journal(ChecksStarted(decision.key, tuple(check.title for check in decision.checks)))
        with self._activity.working():
            verdict = await self.world.checker.run(decision.key, decision.checks)
            if not self.ledger.turns:
                self._snapshot(CHECKED)
        return ChecksEnded(decision.key, verdict)

    async def _commit_work(self, decision: Commit) -> WorkCommitted:
        if self.world.committer is None:
            return WorkCommitted(decision.key, notice="nothing can be committed here")
        return await asyncio.to_thread(self.world.committer.commit, decision)

    def _commit(self, event: Event) -> None:
        """Accept an event: the journal, the documents and the state move on together."""
        if isinstance(event, TurnEnded) and unsettled(event):
            self._journal(event)
            return
        now = self.world.clock.now()
        changes = self.workflow.accept(self.state, event, now)
        entry = replace(event, content="") if isinstance(event, DocumentEdited) else event
        record = self.world.store.commit(now, entry, changes.documents, changes.aside)
        self.state = changes.state
        self._note(record)

    def _journal(self, entry: Entry) -> None:
        self._note(self.world.store.commit(self.world.clock.now(), entry, {}))

    def _note(self, record: Record) -> None:
        self.ledger.apply(record)
        self.world.observer.recorded(record)


_ACTIONS = {
    SignalType.PAUSE: "pausing after the turn under way",
    SignalType.RESUME: "going on",
    SignalType.ABORT: "aborting",
}


def _aborted(signal: Signal) -> Stop:
    return Stop(Outcome.ABORTED, signal.message or f"aborted by {signal.name}")


def limit_reason(reached: Outcome, limits: Limits) -> str:
    """The limit that was reached, in words."""
    match reached:
        case Outcome.LIMIT_ITERATIONS:
            return f"all {limits.iterations} iterations were used"
        case Outcome.LIMIT_TIME:
            return f"the {(limits.active_seconds or 0) / 60:g} minutes of active time were used"
        case Outcome.LIMIT_COST:
            return f"the budget of ${limits.cost:g} was used"
        case Outcome.LIMIT_TOKENS:
            return f"the allowance of {limits.tokens} tokens was used"
        case _:
            return "the deadline has passed"
