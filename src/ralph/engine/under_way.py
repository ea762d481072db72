"""All that is under way in a run, by its key: turns, checks, commits and merges."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import assert_never

from ralph.core.entries import ChecksStarted, Entry, HistoryChanged, MergeStarted, Notice, SignalHeard, TurnStarted
from ralph.core.events import ChecksEnded, Commit, Merge, Merged, Promote, RunChecks, Work, WorkCommitted
from ralph.core.limits import Usage
from ralph.core.stream import AgentEvent, Kind
from ralph.core.turns import CHECKED, Change, Turn, TurnEnd, TurnRequest
from ralph.documents.guidance import GUIDANCE_FILE, render_guidance
from ralph.engine.ledger import Ledger
from ralph.engine.ports import (
    Checker,
    Clock,
    Committer,
    Lander,
    Mailbox,
    Merger,
    Observer,
    Questions,
    Slots,
    Snapshots,
    Store,
    Turns,
)
from ralph.engine.turn_outcome import AgentChain, PendingWork, ReturnedTurn

Happening = ReturnedTurn | ChecksEnded | WorkCommitted | Merged
"""What comes of work that was under way."""
POLL = 0.25
"""Seconds between two looks around: into the mailbox, at documents, limits, and slots that others hold."""


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
    merger: Merger | None = None
    slots: Slots | None = None
    lander: Lander | None = None
    questions: Questions | None = None


class ActiveTime:
    """The active time of a run: while at least one turn or check is under way."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._workers = 0
        self._since = 0.0
        self._collected = 0.0

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        """Time spent in here is active time, counted once however many work at once."""
        if self._workers == 0:
            self._since = self._now()
        self._workers += 1
        try:
            yield
        finally:
            self._collect()
            self._workers -= 1

    def credit(self, seconds: float) -> None:
        """Count work that went on while no engine was there."""
        self._collected += max(0.0, seconds)

    def take(self) -> float:
        """The active seconds since they were last taken."""
        self._collect()
        taken, self._collected = self._collected, 0.0
        return taken

    def peek(self) -> float:
        """The active seconds that were not taken yet."""
        self._collect()
        return self._collected

    def _collect(self) -> None:
        if self._workers:
            now = self._now()
            self._collected += max(0.0, now - self._since)
            self._since = now


class UnderWay:
    """Starts work, and hands over what came of it."""

    def __init__(
        self,
        world: World,
        ledger: Ledger,
        agents: AgentChain,
        journal: Callable[[Entry], None],
        iteration: Callable[[], int | None],
        steering: str = "{{messages}}",
    ) -> None:
        self.world, self.ledger, self.agents, self.steering = world, ledger, agents, steering
        self._iteration = iteration
        self.activity = ActiveTime(world.clock.now)
        self.wake = asyncio.Event()
        self.poll: float | None = None
        """Seconds between two looks around while something is under way, where they are others than usual."""
        self._journal = journal
        self._jobs: dict[str, asyncio.Task[Happening]] = {}
        self._running: dict[int, tuple[Turn, Usage]] = {}
        self._waiting: set[str] = set()
        self._merging = asyncio.Lock()
        self._snapshot_notices = 0
        self._said_full = False

    def __contains__(self, key: str) -> bool:
        return key in self._jobs

    def __len__(self) -> int:
        return len(self._jobs)

    @property
    def turns(self) -> int:
        """How many turns run."""
        return len(self._running)

    @property
    def running(self) -> list[Turn]:
        """The turns that run."""
        return [turn for turn, _ in self._running.values()]

    @property
    def used(self) -> Usage:
        """What the turns that run have used so far."""
        return sum((usage for _, usage in self._running.values()), Usage())

    @property
    def only_waits(self) -> bool:
        """Whether there is nothing but turns that are to be tried again later."""
        return self._waiting.issuperset(self._jobs)

    def start(self, work: Work) -> None:
        """Start what is not under way yet; a turn only where a slot is free for it."""
        if work.key in self._jobs:
            return
        match work:
            case TurnRequest():
                self.start_turn(work, self.ledger.work.get(work.key) or PendingWork())
            case RunChecks():
                self._jobs[work.key] = asyncio.create_task(self._check(work))
            case Commit():
                self._jobs[work.key] = asyncio.create_task(self._commit(work))
            case Merge() | Promote():
                self._jobs[work.key] = asyncio.create_task(self._merge(work))
            case _:
                assert_never(work)

    def start_turn(self, request: TurnRequest, pending: PendingWork) -> None:
        """Start a turn, take over one that an earlier engine started, or wait until it may be tried again."""
        until = pending.last.retry_at if pending.last and not pending.open else None
        if until is not None and until > self.world.clock.now():
            self._jobs[request.key] = asyncio.create_task(self._turn_later(request, pending, until))
        elif self._slot(request, pending):
            self._jobs[request.key] = asyncio.create_task(self._turn(request, self._open(request, pending)))

    async def next(self) -> list[Happening]:
        """What comes to its end next; nothing where something else woke us, or the time is over."""
        waker = asyncio.create_task(self.wake.wait())
        timeout = self.poll if self.poll and self._jobs else POLL
        done, _ = await asyncio.wait(
            [waker, *self._jobs.values()], timeout=timeout, return_when=asyncio.FIRST_COMPLETED
        )
        waker.cancel()
        self.wake.clear()
        ended = [key for key, job in self._jobs.items() if job in done]
        return [self._jobs.pop(key).result() for key in ended]

    async def stop_turns(self, reason: str) -> None:
        """Ask every turn that runs to end."""
        for turn, _ in list(self._running.values()):
            await self.world.turns.stop(turn, reason)

    async def end_all(self, reason: str) -> list[Happening]:
        """End all of it; what has come of turns and commits is still accounted for, the rest is done again."""
        running = {turn.request.key for turn, _ in self._running.values()}
        for key, job in self._jobs.items():
            if key not in running and not job.done():
                job.cancel()
        await self.stop_turns(reason)
        ended = await asyncio.gather(*self._jobs.values(), return_exceptions=True)
        for error in ended:
            if isinstance(error, Exception):
                raise error
        return [one for one in ended if isinstance(one, ReturnedTurn | WorkCommitted | Merged)]

    def snapshot(self, label: str) -> Change | None:
        """Record the run's own tree, and say what could not be recorded."""
        if self.world.snapshots is None:
            return None
        change = self.world.snapshots.take(label)
        for notice in self.world.snapshots.notices[self._snapshot_notices :]:
            self._journal(Notice(notice))
            self._snapshot_notices += 1
        return change

    def look_at_history(self, turn: int, *, elsewhere: bool = False) -> tuple[str, ...]:
        """Journal what was done to the user's branches, tags and stash; what of them is missing now.

        If the turn worked `elsewhere` than in the user's tree, new commits on the user's branches are not the agent's.
        """
        if self.world.snapshots is None:
            return ()
        change = self.world.snapshots.look_at_history()
        if elsewhere:
            change = replace(change, commits=())
        if change.commits or change.missing != self.ledger.missing:
            self._journal(HistoryChanged(turn, change))
        return change.missing

    def _slot(self, request: TurnRequest, pending: PendingWork) -> bool:
        """Whether there is a slot for the turn; one that is already under way has its own."""
        if self.world.slots is None:
            return True
        agent = pending.open.agent if pending.open else self._pick(request, pending)
        works = bool(request.workspace) and not request.brings_in and not request.reads_only
        if self.world.slots.take(request.key, agent, anyway=pending.open is not None, makes_tree=works):
            self._said_full = False
            return True
        if not self._running and not self._said_full:
            self._said_full = True
            self._journal(Notice(f"waiting for a slot: {self.world.slots.full}"))
        return False

    def _pick(self, request: TurnRequest, pending: PendingWork) -> str:
        return self.agents.pick_for(request, pending, self.ledger.unavailable, self.world.clock.now())[0]

    async def _turn_later(self, request: TurnRequest, pending: PendingWork, until: float) -> ReturnedTurn:
        """Let the time until the next try pass; only a wait for the provider is not active time."""
        limited = pending.last is not None and pending.last.result.end is TurnEnd.LIMITED
        self._waiting.add(request.key)
        try:
            with contextlib.nullcontext() if limited else self.activity.working():
                await self.world.clock.sleep(until - self.world.clock.now())
            while not self._slot(request, pending):
                await self.world.clock.sleep(POLL)
        finally:
            self._waiting.discard(request.key)
        return await self._turn(request, self._open(request, pending))

    def _open(self, request: TurnRequest, pending: PendingWork) -> Turn:
        """Number a turn and journal it before it starts; one that was journaled already is the one to adopt."""
        errors = pending.broken.result.answer_errors if pending.broken else ()
        mends = pending.broken.turn if pending.broken else 0
        if pending.open:
            last = pending.last.result.session if pending.last else ""
            opened = pending.open
            turn = Turn(
                number=opened.turn,
                attempt=opened.attempt,
                request=request,
                repair=errors,
                agent=opened.agent,
                before=pending.used.get(last, Usage()),
                mends=mends,
            )
            return self._enter(self._with_guidance(turn, opened.words))
        ledger, agent = self.ledger, self._pick(request, pending)
        session = pending.session if pending.agent == agent else ""
        mends = pending.last.turn if session and pending.last else mends
        number, reserved = ledger.turns + 1, ledger.estimate(request.role)
        budget = ledger.limits.remaining_cost(ledger.spent, ledger.reserved)
        new = () if errors else self._words_for(request, pending, anew=not session)
        self._journal(
            TurnStarted(
                turn=number,
                key=request.key,
                role=request.role,
                attempt=pending.attempt,
                agent=agent,
                reserved=reserved,
                repair=bool(errors),
                counts=request.counts,
                words=new,
            )
        )
        turn = Turn(
            number=number,
            attempt=pending.attempt,
            request=request,
            budget=budget,
            repair=errors,
            agent=agent,
            session=session,
            before=pending.used.get(session, Usage()),
            mends=mends,
        )
        return self._enter(self._with_guidance(turn, new))

    def _words_for(self, request: TurnRequest, pending: PendingWork, *, anew: bool) -> tuple[str, ...]:
        """The messages that are new to a turn: in a new conversation also those that earlier turns of this work had."""
        taken = self.ledger.signals.taken
        known = dict.fromkeys((*(pending.words if anew else ()), *pending.unheard))
        waiting = (signal.id for signal in self.ledger.signals.waiting(request.role, acts=request.counts))
        return tuple(one for one in dict.fromkeys((*known, *waiting)) if one in taken)

    def _with_guidance(self, turn: Turn, new: tuple[str, ...]) -> Turn:
        """The turn with the user's messages; what its prompt has no room for is in its inbox."""
        request, is_fresh = turn.request, not turn.session and not turn.repair
        messages = self.ledger.signals.messages_for(
            request.role, acts=request.counts, new=new, iteration=self._iteration(), reminds=is_fresh
        )
        guidance = render_guidance(self.steering, messages)
        if guidance.file:
            request = replace(request, inbox={**request.inbox, GUIDANCE_FILE: guidance.file})
        return replace(turn, request=request, guidance=guidance.text)

    def _enter(self, turn: Turn) -> Turn:
        self._running[turn.number] = (turn, Usage())
        return turn

    async def _turn(self, request: TurnRequest, turn: Turn) -> ReturnedTurn:
        """Run or adopt one turn, and record the tree it left."""
        pending = self.ledger.work[request.key]
        adopted_at = self.world.clock.now()
        try:
            with self.activity.working():
                result = await self.world.turns.run(turn, self._watcher(turn))
        finally:
            del self._running[turn.number]
            if self.world.slots:
                self.world.slots.release(request.key)
        if result.end is not TurnEnd.INTERRUPTED:
            self.activity.credit(min(adopted_at, result.ended_at) - pending.opened_at)
        if not request.workspace:
            result = replace(result, change=self.snapshot(f"turn {turn.number} ({request.role})"))
        self.look_at_history(turn.number, elsewhere=bool(request.workspace))
        heard = (*pending.words, *result.heard)
        return ReturnedTurn(
            turn=turn,
            result=result,
            work=pending,
            unheard=self.ledger.signals.unheard(pending.opened_at, request.role, acts=request.counts, heard=heard),
        )

    def _watcher(self, turn: Turn) -> Callable[[AgentEvent], None]:
        def watch(event: AgentEvent) -> None:
            self.world.observer.told(turn, event)
            if event.kind is Kind.USAGE and turn.number in self._running:
                self._running[turn.number] = (turn, self._running[turn.number][1] + event.usage)
                self.wake.set()
            if event.kind is Kind.HEARD and self.ledger.signals.is_news(event.text, turn.number):
                self._journal(SignalHeard(event.text, turn.number, turn.request.role, event.tool))

        return watch

    async def _check(self, work: RunChecks) -> ChecksEnded:
        self._journal(ChecksStarted(work.key, tuple(check.title for check in work.checks)))
        with self.activity.working():
            verdict = await self.world.checker.check(work.key, work.checks, work.workspace, work.red)
            if not self.ledger.turns:
                self.snapshot(CHECKED)
        return ChecksEnded(work.key, verdict)

    async def _commit(self, work: Commit) -> WorkCommitted:
        if self.world.committer is None:
            return WorkCommitted(work.key, notice="nothing can be committed here")
        return await asyncio.to_thread(self.world.committer.commit, work)

    async def _merge(self, work: Merge | Promote) -> Merged:
        """One merge after the other, each onto what the last one left."""
        if self.world.merger is None:
            raise NotImplementedError("a workflow that merges needs a merger")
        async with self._merging:
            self._journal(MergeStarted(work.key, work.workspace))
            with self.activity.working():
                if isinstance(work, Promote):
                    return await self.world.merger.promote(work)
                return await self.world.merger.merge(work)
