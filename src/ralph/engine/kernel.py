"""The one loop that runs any workflow.

`run` calls `step` until the run has a reason to end. A step processes signals, asks the workflow what should be in progress,
starts what is not yet, and accepts the next result. `follow_up` decides what follows a turn, `ledger` counts, `jobs`
runs the work, and `signal_delivery` brings signals to turns.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
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
)
from ralph.core.errors import RalphError
from ralph.core.events import (
    ChecksEnded,
    Decision,
    Do,
    DocumentEdited,
    Event,
    MergeEnded,
    RunEnded,
    Stop,
    TaskChanged,
    Transition,
    TurnEnded,
    TurnStarted,
    Work,
    WorkCommitted,
)
from ralph.core.limits import Limits, Spent, describe_grants
from ralph.core.outcomes import Outcome
from ralph.core.prompt import Prompt
from ralph.core.signals import RESUMED, Signal, SignalType, Stage
from ralph.core.text import count
from ralph.core.turns import Change, Turn, TurnRequest
from ralph.engine.follow_up import AgentChain, NextStep, PendingWork, ReturnedTurn, Situation, decide_follow_up
from ralph.engine.jobs import JobResult, Jobs
from ralph.engine.ledger import Ledger
from ralph.engine.ports import Ports, S, Workflow
from ralph.engine.signal_delivery import SignalDelivery

MAX_LISTED_FILES = 200
"""How many changed files the end of a run lists."""


@dataclass(frozen=True)
class StartOptions:
    """How this engine starts or resumes the run."""

    started_entry: RunStarted
    agents: AgentChain
    limits: Limits
    """The limits from here on: those of the journal, or what a resume grants."""
    records_to_replay: tuple[Record, ...] = ()
    """Events that were journaled after the documents were last written."""
    notices: tuple[str, ...] = ()
    user_resumes: bool = False
    """Whether the user resumes the run, which ends a pause."""
    message_template: str = "{{messages}}"
    """The template for new messages from the user."""
    may_reopen_aborted: bool = False
    """Whether an aborted run may continue, because the user asks for something else now."""
    later_changes: Mapping[str, str] = field(default_factory=dict)
    """The files that other runs changed while this one was stopped, each with the id of the other run."""


class Kernel(Generic[S]):
    """One run of a workflow, from where its journal ends to its next outcome."""

    def __init__(self, workflow: Workflow[S], ports: Ports, ledger: Ledger, start: StartOptions) -> None:
        self.workflow = workflow
        self.ports = ports
        self.ledger = ledger
        self._start = start
        self.state: S
        """The state of the workflow, from the moment at which it is loaded."""
        self._unwritten_documents: dict[str, str] = {}
        """Documents that differ from those on the disk since the journal was replayed; the next commit writes them."""
        self._jobs = Jobs(
            ports=ports,
            ledger=ledger,
            agents=start.agents,
            journal=self._journal,
            accept_event=self._accept_event,
            iteration=lambda: self._stage().iteration,
            message_template=start.message_template,
        )
        self._delivery = SignalDelivery(
            ports=ports,
            ledger=ledger,
            jobs=self._jobs,
            message_template=start.message_template,
            accept_event=self._accept_event,
            journal=self._journal,
        )
        self._direct_signals: list[Signal] = []
        self._stop: Stop | None = None
        self._over_limit = False
        self._interrupt_requested = False
        """Whether the user asked for a pause that interrupts running turns."""
        self._last_decision: tuple[S | None, Decision] = (None, Do(()))

    async def run(self) -> Stop:
        """Run until there is a reason to end, and return it."""
        self._start_or_resume()
        try:
            await self._deliver_leftover_signals()
            while (stop := await self.step()) is None:
                pass
            reason = "interrupted" if stop.outcome is Outcome.INTERRUPTED else "stopped"
            self._handle_results(await self._jobs.end_all(reason))
            # Before the work lands: that moves the user's branch, too.
            missing = self._jobs.journal_ref_changes(self.ledger.last_turn_number, ignore_commits=True)
            if self.ports.lander and (landed := await self.ports.lander.land(succeeded=stop.outcome.succeeded)):
                self._accept_event(landed)
            self._delivery.archive_unreceived(stop.outcome)
        except RalphError:
            await self._jobs.stop_turns("stopped")
            raise
        files = self.ports.snapshots.changed_files() if self.ports.snapshots else ()
        starts_programs = tuple(self.ports.snapshots.list_planted_programs()) if self.ports.snapshots else ()
        self._jobs.snapshot_after_checks()
        self._accept_event(
            RunEnded(
                outcome=stop.outcome,
                reason=stop.reason,
                spent=self.ledger.with_activity(self._jobs.activity.drain()),
                limits=self.ledger.limits,
                files=tuple(files[:MAX_LISTED_FILES]),
                more_files=max(0, len(files) - MAX_LISTED_FILES),
                missing=missing,
                sandbox=self._start.started_entry.sandbox,
                agents=self._start.agents.chain,
                hand_overs=self.ledger.hand_overs,
                evidence=stop.evidence,
                allowance=self.ledger.allowance,
                unverified_change=self.ledger.add_up_unsettled_changes(),
                unfinished=stop.unfinished,
                starts_programs=starts_programs,
            )
        )
        return stop

    async def step(self) -> Stop | None:
        """Process signals, decide, start work, and accept the next results."""
        await self._process_signals()
        self._journal_questions()
        self._record_edits()
        if self._stop:
            return self._stop
        if self._interrupt_requested and not self._jobs.has_running_turns and (stop := self._make_pause_stop()):
            return stop
        if lost := self._jobs.lost_snapshots:
            return Stop(Outcome.UNVERIFIABLE, f"{lost.what}; {lost.todo}")
        decision = self._decide()
        if isinstance(decision, Stop):
            return decision
        limit = None if self.ledger.paused else self._start_work(decision.work)
        if limit and self._jobs.is_empty:
            return limit
        if self._jobs.only_waits and (stop := self._stop_instead_of_waiting()):
            return stop
        results = await self._jobs.wait_for_results()
        await self._enforce_limits()
        self._record_edits()
        return self._handle_results(results)

    def post_directly(self, signal: Signal) -> None:
        """Post a signal without the mailbox, such as Ctrl-C."""
        self._direct_signals.append(signal)
        self._jobs.wake.set()

    def wake(self) -> None:
        """Look for signals, answers and edits now."""
        self._jobs.wake.set()

    def poll_every(self, seconds: float) -> None:
        """Set the seconds between two polls while a job is in progress. A watcher that calls `wake` needs few polls."""
        self._jobs.poll = seconds

    def notice(self, text: str) -> None:
        """Journal a notice for the user."""
        self._journal(Notice(text))

    def shut_down(self, reason: str) -> None:
        """End the turns in progress; the run can be resumed."""
        self._stop = Stop(Outcome.INTERRUPTED, reason)
        self._jobs.wake.set()

    def _start_or_resume(self) -> None:
        """Journal that this engine has started, and adopt the turns that an earlier engine left running."""
        was_stopped = self.ledger.ended is not None or self._start.user_resumes
        if self._start.limits != self.ledger.limits:
            grants = describe_grants(self.ledger.limits, self._start.limits, self.ledger.spent)
            self._journal(LimitExtended(self._start.limits, "; ".join(grants) or "changed"))
        self._journal(self._start.started_entry)
        for notice in self._start.notices:
            self._journal(Notice(notice))
        if self.ledger.aborted and not (self._start.may_reopen_aborted and self.ledger.abort_completed):
            self._stop = _make_abort_stop(self.ledger.aborted)
        self.state, unjournaled = self._load()
        for entry in unjournaled:
            self._journal(entry)
        if not self.ledger.snapshots and (base := self._jobs.snapshot("before the run")):
            self._journal(SnapshotTaken("before the run", base.snapshot))
        elif was_stopped:
            self._record_user_changes()
        self._jobs.journal_ref_changes(self.ledger.last_turn_number, ignore_commits=True)
        for key, pending in self.ledger.pending.items():
            if pending.open_turn:
                self._jobs.start_turn(self._find_request(key, pending.open_turn), pending)

    def _record_user_changes(self) -> None:
        """Record what the user changed while the run was stopped, so that it does not count as the next turn's work.

        What a killed turn left cannot be told apart from that: it counts as the turn's.
        """
        snapshots = self.ports.snapshots
        if snapshots is None or any(pending.open_turn for pending in self.ledger.pending.values()):
            return
        change = snapshots.take_user_changes()
        if change.files:
            self._journal(SnapshotTaken("changed by the user", change.snapshot))
            self._journal(Notice(_describe_later_changes(change, self._start.later_changes)))

    def _load(self) -> tuple[S, list[Entry]]:
        """The state that the documents describe, with the events since they were written.

        Also the notices and the changes of tasks that the journal does not have: the user may have edited documents meanwhile.
        """
        documents = self.ports.store.read()
        state = self.workflow.load(documents)
        journaled = [record.entry for record in self._start.records_to_replay]
        unjournaled: list[Entry] = []
        for record in self._start.records_to_replay:
            entry = record.entry
            if isinstance(entry, DocumentEdited):
                # The journal has no content: what counts is what is there now.
                entry = replace(entry, content=documents.get(entry.path, ""))
            is_unsettled = isinstance(entry, TurnEnded) and not entry.settles_work
            if isinstance(entry, Event) and not is_unsettled:
                transition = self.workflow.accept(state, entry, record.at)
                state = transition.state
                found: list[Entry] = [*map(Notice, transition.notices), *self._list_task_changes(transition)]
                unjournaled += [one for one in found if one not in journaled]
                # The user may have changed documents while no engine ran: what follows from that is not on the disk yet.
                self._unwritten_documents.update(transition.documents)
        return state, unjournaled

    def _find_request(self, key: str, started: TurnStarted) -> TurnRequest:
        """The request of a turn that an earlier engine started; a bare one if the workflow no longer wants it."""
        decision = self._decide()
        if isinstance(decision, Do):
            for work in decision.work:
                if isinstance(work, TurnRequest) and work.key == key:
                    return work
        return TurnRequest(key, started.role, Prompt(), is_iteration=started.is_iteration, is_withdrawn=True)

    async def _deliver_leftover_signals(self) -> None:
        """Acknowledge and send what an earlier engine had no time for. If the user resumed the run, also end its pause."""
        for record in self._start.records_to_replay:
            self._delivery.write_acks_for(record)
        await self._delivery.send_to_adopted_turns()
        await self._process_signals()
        if self._start.user_resumes and not self._stop and (self.ledger.paused or self.ledger.aborted):
            await self._delivery.deliver(Signal(f"{RESUMED}{self.ports.clock.now()}", SignalType.RESUME))

    async def _process_signals(self) -> None:
        accepted = []
        while self._direct_signals:
            accepted.append(await self._delivery.deliver(self._direct_signals.pop(0)))
        accepted += await self._delivery.process_mailbox(self._stage)
        for signal in accepted:
            if signal.type is SignalType.ABORT:
                self._stop = _make_abort_stop(signal)
            elif signal.type is SignalType.PAUSE:
                self._interrupt_requested = signal.now

    def _stage(self) -> Stage:
        return self._decide().stage

    def _decide(self) -> Decision:
        """What should be in progress.

        Reuse the last decision while the state is unchanged and all its work, including at least one turn, is running.
        This avoids building prompts at every poll.
        """
        state, decision = self._last_decision
        if isinstance(decision, Do) and state is self.state:
            has_turn = any(isinstance(work, TurnRequest) for work in decision.work)
            if has_turn and all(work.key in self._jobs for work in decision.work):
                return decision
        decision = self.workflow.decide(self.state, self.ports.clock.now())
        self._last_decision = (self.state, decision)
        return decision

    def _journal_questions(self) -> None:
        """Journal new questions of turns, and new answers."""
        if self.ports.questions is None:
            return
        for question in self.ports.questions.read_all():
            if question.id not in self.ledger.asked:
                self._journal(QuestionAsked(replace(question, answer=None, by="")))
            if question.answer is not None and question.id not in self.ledger.answered:
                self._journal(QuestionAnswered(question.id, question.answer, question.by))

    def _record_edits(self) -> None:
        for path, content in self.ports.store.find_edits():
            self._accept_event(DocumentEdited(path, content))

    def _start_work(self, works: tuple[Work, ...]) -> Stop | None:
        """Start what is not in progress yet; return the limit that keeps turns from starting."""
        limit = None
        for work in works:
            if work.key in self._jobs:
                continue
            if isinstance(work, TurnRequest):
                limit = limit or self._find_limit(work)
                if limit:
                    continue
            self._jobs.start(work)
        return limit

    def _find_limit(self, request: TurnRequest) -> Stop | None:
        """The limit that keeps this turn from starting."""
        ledger, limits = self.ledger, self.ledger.limits
        reached = limits.find_reached(ledger.spent, self.ports.clock.now())
        if reached is None and request.is_iteration:
            in_progress = ledger.count_iterations_in_progress(excluding=request.key)
            if limits.is_out_of_iterations(ledger.spent, in_progress):
                reached = Outcome.LIMIT_ITERATIONS
        if reached is None and self._jobs.has_running_turns:
            estimate = ledger.estimate(request.role)
            if not limits.may_reserve(ledger.spent, ledger.reserved, estimate):
                reached = Outcome.LIMIT_COST
        if reached is None:
            return self._find_quota_limit(request)
        return Stop(reached, describe_limit(reached, limits, ledger.spent))

    def _find_quota_limit(self, request: TurnRequest) -> Stop | None:
        """Why a turn may not start although nothing of the run is used up: its agent's share of a quota is."""
        ledger, now = self.ledger, self.ports.clock.now()
        pending = ledger.pending.get(request.key) or PendingWork()
        agent, at = self._start.agents.pick(request, pending, ledger.list_unavailable(now), now)
        quota = ledger.quotas.get(agent)
        if at <= now or not ledger.limits.is_over_quota(quota, now):
            return None
        reason = f"{agent} has used {quota}; the limit is {ledger.limits.quota or 0:.0%}"
        return Stop(Outcome.LIMIT_QUOTA, reason)

    def _stop_instead_of_waiting(self) -> Stop | None:
        """Why the run ends while nothing runs, although a turn may wait for its next attempt."""
        if stop := self._make_pause_stop():
            return stop
        spent = self.ledger.with_activity(self._jobs.activity.peek())
        reached = self.ledger.limits.find_reached(spent, self.ports.clock.now())
        if reached and (not self._jobs.is_empty or reached is Outcome.LIMIT_DEADLINE):
            return Stop(reached, describe_limit(reached, self.ledger.limits, spent))
        return None

    def _make_pause_stop(self) -> Stop | None:
        """The end of a run that the user paused."""
        if not self.ledger.paused:
            return None
        message = self.ledger.pause_message
        reason = "you pressed Ctrl-C" if self.ledger.paused_by_ctrl_c else "you paused it"
        return Stop(Outcome.PAUSED, f"{reason}: {message}" if message else reason)

    def _handle_results(self, results: list[JobResult]) -> Stop | None:
        """Account for results, and return why the run ends with them, if it does."""
        stop = None
        for result in results:
            match result:
                case ReturnedTurn():
                    stop = self._handle_turn(result) or stop
                case ChecksEnded() | MergeEnded():
                    spent = self.ledger.with_activity(self._jobs.activity.drain())
                    if isinstance(result, ChecksEnded) and self.ledger.completes_interrupted_iteration(result):
                        spent = replace(spent, iterations=spent.iterations + 1)
                    self._accept_event(replace(result, spent=spent))
                case WorkCommitted():
                    self._accept_event(result)
        return stop

    def _handle_turn(self, returned: ReturnedTurn) -> Stop | None:
        """Decide what follows a turn, and journal it with the counters after it."""
        turn, ledger, now = returned.turn, self.ledger, self.ports.clock.now()
        spent = ledger.with_activity(self._jobs.activity.drain())
        after = spent.with_turn(returned.result.usage, is_iteration=False)
        situation = Situation(
            agents=self._start.agents,
            unavailable=ledger.list_unavailable(now),
            is_over_limit=ledger.limits.find_reached(after, now) is not None,
            is_ending=self._stop is not None,
            now=now,
        )
        follow_up = decide_follow_up(returned, situation)
        if follow_up.notice:
            self._journal(Notice(follow_up.notice))
        ended = TurnEnded(
            key=turn.request.key,
            turn=turn.number,
            role=turn.request.role,
            attempt=turn.attempt,
            result=follow_up.result,
            is_iteration=turn.request.is_iteration,
            spent=spent.with_turn(follow_up.result.usage, is_iteration=follow_up.completes_iteration(turn.request)),
            retry_at=follow_up.at,
            retry_reason=follow_up.reason,
            repair_follows=follow_up.next is NextStep.REPAIR,
            missed_messages=returned.missed_messages,
            earlier=returned.pending.earlier,
        )
        was_over = ledger.limits.is_over_quota(ledger.quotas.get(turn.agent), now)
        self._accept_event(ended)
        if not was_over:
            self._announce_quota(turn)
        return follow_up.stop

    def _announce_quota(self, turn: Turn) -> None:
        """Say that another agent takes over because the agent of this turn has used up its share of a quota."""
        ledger, now = self.ledger, self.ports.clock.now()
        quota = ledger.quotas.get(turn.agent)
        if not ledger.limits.is_over_quota(quota, now):
            return
        agent, at = self._start.agents.pick(turn.request, PendingWork(), ledger.list_unavailable(now), now)
        if agent != turn.agent and at <= now:
            share = f"{turn.agent} has used {quota}; the limit is {ledger.limits.quota or 0:.0%}"
            self._journal(Notice(f"{share}: {agent} takes over"))

    async def _enforce_limits(self) -> None:
        """Cut the turns in progress when a limit of the run is crossed."""
        if not self._jobs.has_running_turns or self._over_limit:
            return
        await self._jobs.cut_over_quota()
        spent = self.ledger.with_activity(self._jobs.activity.peek())
        if self.ledger.limits.find_reached(spent, self.ports.clock.now(), running=self._jobs.used):
            self._over_limit = True
            await self._jobs.stop_turns("cut")

    def _accept_event(self, event: Event) -> None:
        """Accept an event: journal, documents and state change together.

        A turn that did not settle its work is only journaled.
        """
        if isinstance(event, TurnEnded) and not event.settles_work:
            self._journal(_without_documents(event))
            return
        now = self.ports.clock.now()
        transition = self.workflow.accept(self.state, event, now)
        documents = {**self._unwritten_documents, **transition.documents}
        record = self.ports.store.commit(now, _without_documents(event), documents, transition.side_files)
        self._unwritten_documents = {}
        self.state = transition.state
        self._distribute_record(record)
        for notice in transition.notices:
            self._journal(Notice(notice))
        for task in self._list_task_changes(transition):
            self._journal(task)

    def _list_task_changes(self, transition: Transition[S]) -> list[TaskChanged]:
        """The changes of tasks to journal. An engine that died after a commit may not have journaled what it changed."""
        known = self.ledger.task_states
        earlier = [one for one in transition.earlier_tasks if known.get(one.task) != (one.state, one.reason)]
        return [*earlier, *transition.tasks]

    def _journal(self, entry: Entry) -> None:
        self._distribute_record(self.ports.store.commit(self.ports.clock.now(), entry, {}))

    def _distribute_record(self, record: Record) -> None:
        self.ledger.apply(record)
        self._delivery.write_acks_for(record)
        self.ports.observer.on_record(record)


def _without_documents(event: Event) -> Event:
    """An event as it is journaled: whole documents are kept elsewhere."""
    match event:
        case DocumentEdited():
            return replace(event, content="")
        case TurnEnded() if event.result.documents:
            return replace(event, result=replace(event.result, documents={}))
        case _:
            return event


def _describe_later_changes(change: Change, later: Mapping[str, str]) -> str:
    """Who changed which files while a run was stopped: the user, or other runs."""
    more = change.files - len(change.names)
    by_user = [name for name in change.names if name not in later]
    by_runs: dict[str, list[str]] = {}
    for name in change.names:
        if name in later:
            by_runs.setdefault(later[name], []).append(name)
    sentences = [f"run {run} changed {', '.join(names)}" for run, names in by_runs.items()]
    if by_user or more:
        names = [*by_user, *([f"{more} more"] if more else [])]
        sentences.insert(0, f"you changed {', '.join(names)}")
    text = ", and ".join(sentences)
    return f"{text[0].upper()}{text[1:]} while this run was stopped. Undo and revert leave that alone."


def _make_abort_stop(signal: Signal) -> Stop:
    return Stop(Outcome.ABORTED, signal.message or f"aborted by {signal.name}")


def describe_limit(reached: Outcome, limits: Limits, spent: Spent) -> str:
    """The limit that was reached, for the user."""
    match reached:
        case Outcome.LIMIT_ITERATIONS:
            return f"the limit of {count(limits.iterations or 0, 'iteration')} was reached"
        case Outcome.LIMIT_TIME:
            minutes = f"{(limits.active_seconds or 0) / 60:.3g}"
            return f"the limit of {minutes} {'minute' if minutes == '1' else 'minutes'} of active time was reached"
        case Outcome.LIMIT_COST:
            return f"the cost limit of ${limits.cost:g} was reached"
        case Outcome.COST_UNKNOWN:
            whose = f"the price of {spent.unpriced} is" if spent.unpriced else "an agent used tokens whose price is"
            return f"{whose} not known, so Ralph cannot enforce the limit of ${limits.cost:g}"
        case Outcome.LIMIT_TOKENS:
            return f"the limit of {count(limits.tokens or 0, 'token')} was reached"
        case _:
            when = datetime.fromtimestamp(limits.deadline or 0).strftime("%Y-%m-%d %H:%M")
            return f"the deadline {when} has passed"
