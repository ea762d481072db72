"""The one loop that runs any workflow.

`run` calls `step` until the run has a reason to end. A step takes what people said, asks the workflow what should
be under way, starts what is not yet, and accepts the next thing that happens. Retry, limits, money and recovery are
policies beside it.
"""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Generic

from ralph.core.entries import (
    Entry,
    LimitExtended,
    Notice,
    QuestionAnswered,
    QuestionAsked,
    Record,
    RunStarted,
    SnapshotTaken,
    TurnStarted,
)
from ralph.core.errors import RalphError
from ralph.core.events import (
    ChecksEnded,
    Decision,
    Do,
    DocumentEdited,
    Event,
    Merged,
    RunEnded,
    Stop,
    TurnEnded,
    Work,
    WorkCommitted,
)
from ralph.core.limits import Limits, Spent
from ralph.core.outcomes import Outcome
from ralph.core.signals import Signal, SignalType, Stage
from ralph.core.turns import TurnRequest
from ralph.engine.intake import Intake
from ralph.engine.ledger import Ledger
from ralph.engine.ports import S, Workflow
from ralph.engine.turn_outcome import AgentChain, Next, ReturnedTurn, Situation, decide_outcome
from ralph.engine.under_way import Happening, UnderWay, World

MOST_FILES = 200
"""How many changed files the end of a run lists."""


@dataclass(frozen=True)
class Start:
    """How this engine takes the run up."""

    entry: RunStarted
    agents: AgentChain
    limits: Limits
    """The limits from here on: those of the journal, or what a resume grants."""
    unwritten: tuple[Record, ...] = ()
    """Events that were journaled after the documents were last written."""
    notices: tuple[str, ...] = ()
    resumes: bool = False
    """Whether a person asks the run to go on, so that a pause is over."""
    steering: str = "{{messages}}"
    """The template for new messages from the user."""
    reopens: bool = False
    """Whether a run that was aborted goes on all the same, because a person asks for something else now."""


class Kernel(Generic[S]):
    """One run of a workflow, from where its journal ends to its next outcome."""

    def __init__(self, workflow: Workflow[S], world: World, ledger: Ledger, start: Start) -> None:
        self.workflow = workflow
        self.world = world
        self.ledger = ledger
        self._start = start
        self._under_way = UnderWay(
            world, ledger, start.agents, self._journal, lambda: self._stage().iteration, start.steering
        )
        self._intake = Intake(world, ledger, self._under_way, start.steering, self._commit, self._journal)
        self._asked: list[Signal] = []
        self._stop: Stop | None = None
        self._over_limit = False
        self._decided: tuple[S | None, Decision] = (None, Do(()))

    async def run(self) -> Stop:
        """Run until there is a reason to end, and say which."""
        self._take_up()
        try:
            await self._welcome()
            while (stop := await self.step()) is None:
                pass
            await self._end_all(stop)
            # Before the work lands: that moves the user's branch, too.
            missing = self._under_way.look_at_history(self.ledger.turns, elsewhere=True)
            await self._land(stop)
            self._intake.close(stop.outcome)
        except RalphError:
            await self._under_way.stop_turns("stopped")
            raise
        files = self.world.snapshots.changed_files() if self.world.snapshots else ()
        listed, more = tuple(files[:MOST_FILES]), max(0, len(files) - MOST_FILES)
        spent = self.ledger.with_activity(self._under_way.activity.take())
        self._commit(
            RunEnded(
                outcome=stop.outcome,
                reason=stop.reason,
                spent=spent,
                limits=self.ledger.limits,
                files=listed,
                more_files=more,
                missing=missing,
            )
        )
        return stop

    async def step(self) -> Stop | None:
        """Take signals, decide, start, and accept what happens next."""
        await self._take_signals()
        self._take_questions()
        self._take_edits()
        if self._stop:
            return self._stop
        decision = self._decide()
        if isinstance(decision, Stop):
            return decision
        limit = None if self.ledger.paused else self._begin(decision.work)
        if limit and not self._under_way:
            return limit
        if self._under_way.only_waits and (stop := self._reason_not_to_wait()):
            return stop
        events = await self._under_way.next()
        await self._hold_limits()
        self._take_edits()
        return self._accept(events)

    def ask(self, signal: Signal) -> None:
        """Take a signal that did not come through the mailbox."""
        self._asked.append(signal)
        self._under_way.wake.set()

    def look(self) -> None:
        """Look around now: somebody may have left something."""
        self._under_way.wake.set()

    def look_every(self, seconds: float) -> None:
        """While something is under way, look around that often by itself: whoever leaves something will tell."""
        self._under_way.poll = seconds

    def notice(self, text: str) -> None:
        """Journal what a person should know."""
        self._journal(Notice(text))

    def ask_leave(self, reason: str) -> None:
        """End the turns under way and leave the run to be resumed."""
        self._stop = Stop(Outcome.INTERRUPTED, reason)
        self._under_way.wake.set()

    def _take_up(self) -> None:
        """Journal that this engine is here, and carry on where the journal ends."""
        if self._start.limits != self.ledger.limits:
            ended = self.ledger.ended
            self._journal(LimitExtended(self._start.limits, f"resumed after {ended.outcome}" if ended else "resumed"))
        self._journal(self._start.entry)
        for notice in self._start.notices:
            self._journal(Notice(notice))
        if self.ledger.aborted and not (self._start.reopens and self.ledger.carried_out):
            self._stop = _aborted(self.ledger.aborted)
        self.state = self._load()
        if not self.ledger.snapshots and (base := self._under_way.snapshot("before the run")):
            self._journal(SnapshotTaken("before the run", base.snapshot))
        self._under_way.look_at_history(self.ledger.turns, elsewhere=True)
        for key, pending in self.ledger.work.items():
            if pending.open:
                self._under_way.start_turn(self._request(key, pending.open), pending)

    def _load(self) -> S:
        """The state that the documents describe, and what has happened since they were written."""
        documents = self.world.store.read()
        state = self.workflow.load(documents)
        for record in self._start.unwritten:
            entry = record.entry
            if isinstance(entry, DocumentEdited):
                # The journal has no content: what counts is what is there now.
                entry = replace(entry, content=documents.get(entry.path, ""))
            if isinstance(entry, Event) and not (isinstance(entry, TurnEnded) and not entry.is_final):
                state = self.workflow.accept(state, entry, record.at).state
        return state

    def _request(self, key: str, started: TurnStarted) -> TurnRequest:
        """What a turn that an earlier engine started was asked for."""
        decision = self._decide()
        wanted = decision.work if isinstance(decision, Do) else ()
        bare = TurnRequest(key, started.role, "", counts=started.counts)
        return next((work for work in wanted if isinstance(work, TurnRequest) and work.key == key), bare)

    async def _welcome(self) -> None:
        """Acknowledge and tell what an earlier engine had no time for; a person who resumes takes a pause back."""
        for record in self._start.unwritten:
            self._intake.noted(record)
        await self._intake.tell_again()
        await self._take_signals()
        if self._start.resumes and not self._stop and (self.ledger.paused or self.ledger.aborted):
            await self._intake.heed(Signal(f"resumed.{self.world.clock.now()}", SignalType.RESUME))

    async def _take_signals(self) -> None:
        taken = [await self._intake.heed(self._asked.pop(0)) for _ in self._asked[:]]
        for signal in [*taken, *await self._intake.take(self._stage)]:
            if signal.type is SignalType.ABORT:
                self._stop = _aborted(signal)

    def _stage(self) -> Stage:
        return self._decide().stage

    def _decide(self) -> Decision:
        """What should be under way; while all turns of it are, and nothing has happened, that is what was decided before."""
        state, known = self._decided
        works = known.work if isinstance(known, Do) and state is self.state else ()
        if not any(isinstance(work, TurnRequest) for work in works) or any(w.key not in self._under_way for w in works):
            self._decided = (self.state, self.workflow.decide(self.state, self.world.clock.now()))
        return self._decided[1]

    def _take_questions(self) -> None:
        """Journal what turns ask the person, and what was answered."""
        for question in self.world.questions.look() if self.world.questions else ():
            if question.id not in self.ledger.asked:
                self._journal(QuestionAsked(replace(question, answer=None, by="")))
            if question.answer is not None and question.id not in self.ledger.answered:
                self._journal(QuestionAnswered(question.id, question.answer, question.by))

    def _take_edits(self) -> None:
        for path, content in self.world.store.edited():
            self._commit(DocumentEdited(path, content))

    def _begin(self, works: tuple[Work, ...]) -> Stop | None:
        """Start what is not under way yet; the limit that keeps turns from starting."""
        limit = None
        for work in works:
            if work.key in self._under_way:
                continue
            if isinstance(work, TurnRequest):
                limit = limit or self._limit_before(work)
                if limit:
                    continue
            self._under_way.start(work)
        return limit

    def _limit_before(self, request: TurnRequest) -> Stop | None:
        """The limit that keeps this turn from starting."""
        ledger, limits = self.ledger, self.ledger.limits
        reached = limits.reached(ledger.spent, self.world.clock.now())
        under_way = ledger.iterations_under_way(but=request.key)
        if reached is None and request.counts and limits.out_of_iterations(ledger.spent, under_way):
            reached = Outcome.LIMIT_ITERATIONS
        estimate = ledger.estimate(request.role)
        if (
            reached is None
            and self._under_way.turns
            and not limits.may_reserve(ledger.spent, ledger.reserved, estimate)
        ):
            reached = Outcome.LIMIT_COST
        return Stop(reached, limit_reason(reached, limits, ledger.spent)) if reached else None

    def _reason_not_to_wait(self) -> Stop | None:
        """Why the run ends although a turn is to be tried again later."""
        if self.ledger.paused:
            return Stop(Outcome.PAUSED, "Paused by signal")
        spent = self.ledger.with_activity(self._under_way.activity.peek())
        reached = self.ledger.limits.reached(spent, self.world.clock.now())
        holds = self._under_way or reached is Outcome.LIMIT_DEADLINE
        return Stop(reached, limit_reason(reached, self.ledger.limits, spent)) if reached and holds else None

    def _accept(self, happenings: list[Happening]) -> Stop | None:
        """Account for what happened, and say why the run ends with it, if it does."""
        stop = None
        for one in happenings:
            match one:
                case ReturnedTurn():
                    stop = self._accept_turn(one) or stop
                case ChecksEnded() | Merged():
                    self._commit(replace(one, spent=self.ledger.with_activity(self._under_way.activity.take())))
                case WorkCommitted():
                    self._commit(one)
        return stop

    def _accept_turn(self, returned: ReturnedTurn) -> Stop | None:
        """Decide what follows a turn, and journal it with the counters after it."""
        turn, ledger, now = returned.turn, self.ledger, self.world.clock.now()
        spent = ledger.with_activity(self._under_way.activity.take())
        after = spent.with_turn(returned.result.usage, counts=False)
        situation = Situation(
            agents=self._start.agents,
            unavailable=ledger.unavailable,
            is_over_limit=ledger.limits.reached(after, now) is not None,
            is_ending=self._stop is not None,
            now=now,
        )
        outcome = decide_outcome(returned, situation)
        if outcome.notice:
            self._journal(Notice(outcome.notice))
        ended = TurnEnded(
            key=turn.request.key,
            turn=turn.number,
            role=turn.request.role,
            attempt=turn.attempt,
            result=outcome.result,
            counts=turn.request.counts,
            spent=spent.with_turn(outcome.result.usage, counts=outcome.counts(turn.request)),
            retry_at=outcome.at,
            retry_reason=outcome.reason,
            repair=outcome.next is Next.REPAIR,
            unheard=returned.unheard,
        )
        self._commit(ended)
        return outcome.stop

    async def _hold_limits(self) -> None:
        """Cut the turns under way when a limit of the run is crossed."""
        if not self._under_way.turns or self._over_limit:
            return
        spent = self.ledger.with_activity(self._under_way.activity.peek())
        if self.ledger.limits.reached(spent, self.world.clock.now(), running=self._under_way.used):
            self._over_limit = True
            await self._under_way.stop_turns("cut")

    async def _end_all(self, stop: Stop) -> None:
        """End what is under way, and account for it."""
        reason = "interrupted" if stop.outcome is Outcome.INTERRUPTED else "stopped"
        self._accept(await self._under_way.end_all(reason))

    async def _land(self, stop: Stop) -> None:
        """Bring work that succeeded to where the user wants it; what did not stays where it is."""
        if self.world.lander and (landed := await self.world.lander.land(succeeded=stop.outcome.succeeded)):
            self._commit(landed)

    def _commit(self, event: Event) -> None:
        """Accept an event: the journal, the documents and the state move on together."""
        if isinstance(event, TurnEnded) and not event.is_final:
            self._journal(_slim(event))
            return
        now = self.world.clock.now()
        changes = self.workflow.accept(self.state, event, now)
        entry = _slim(event)
        record = self.world.store.commit(now, entry, changes.documents, changes.aside)
        self.state = changes.state
        self._note(record)
        for notice in changes.notices:
            self._journal(Notice(notice))

    def _journal(self, entry: Entry) -> None:
        self._note(self.world.store.commit(self.world.clock.now(), entry, {}))

    def _note(self, record: Record) -> None:
        self.ledger.apply(record)
        self._intake.noted(record)
        self.world.observer.recorded(record)


def _slim(event: Event) -> Event:
    """An event as it is journaled: without whole documents, which are kept elsewhere."""
    match event:
        case DocumentEdited():
            return replace(event, content="")
        case TurnEnded() if event.result.papers:
            return replace(event, result=replace(event.result, papers={}))
        case _:
            return event


def _aborted(signal: Signal) -> Stop:
    return Stop(Outcome.ABORTED, signal.message or f"aborted by {signal.name}")


def limit_reason(reached: Outcome, limits: Limits, spent: Spent) -> str:
    """The limit that was reached, in words."""
    match reached:
        case Outcome.LIMIT_ITERATIONS:
            return (
                "the only iteration was used"
                if limits.iterations == 1
                else f"all {limits.iterations} iterations were used"
            )
        case Outcome.LIMIT_TIME:
            return f"the {(limits.active_seconds or 0) / 60:.3g} minutes of active time were used"
        case Outcome.LIMIT_COST:
            return f"the budget of ${limits.cost:g} was used"
        case Outcome.COST_UNKNOWN:
            whose = f"the price of {spent.unpriced} is" if spent.unpriced else "an agent used tokens whose price is"
            return f"{whose} not known, so the limit of ${limits.cost:g} cannot hold"
        case Outcome.LIMIT_TOKENS:
            return f"the allowance of {limits.tokens} tokens was used"
        case _:
            when = datetime.fromtimestamp(limits.deadline or 0).strftime("%Y-%m-%d %H:%M")
            return f"the deadline has passed ({when})"
