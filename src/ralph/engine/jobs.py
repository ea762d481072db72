"""The jobs of a run, one for each work key: turns, checks, commits and merges that are in progress."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from typing import assert_never

from ralph.core.entries import (
    ChecksStarted,
    Entry,
    HistoryChanged,
    MergeStarted,
    Notice,
    RefsRecorded,
    SignalReceived,
    TurnPlaced,
)
from ralph.core.errors import SnapshotsLostError
from ralph.core.events import (
    ChecksEnded,
    Commit,
    Event,
    Merge,
    MergeEnded,
    Promote,
    RunChecks,
    TurnStarted,
    Work,
    WorkCommitted,
)
from ralph.core.limits import Quota, Usage
from ralph.core.turns import CHECKED, AgentEvent, Change, EventKind, Turn, TurnEnd, TurnRequest
from ralph.documents.signals import GUIDANCE_FILE, render_guidance
from ralph.engine.follow_up import NEVER, AgentChain, PendingWork, ReturnedTurn
from ralph.engine.ledger import Ledger
from ralph.engine.ports import Ports

JobResult = ReturnedTurn | ChecksEnded | WorkCommitted | MergeEnded
"""The result of a job."""
POLL_SECONDS = 0.25
"""Seconds between two polls of the mailbox, documents, limits, and slots that others hold."""


class ActiveTime:
    """The active time of a run: while at least one turn or check is in progress."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._workers = 0
        self._since = 0.0
        self._collected = 0.0

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        """Count the time inside as active time, once however many work at the same time."""
        if self._workers == 0:
            self._since = self._now()
        self._workers += 1
        try:
            yield
        finally:
            self._collect()
            self._workers -= 1

    def credit(self, seconds: float) -> None:
        """Count work that was done while there was no engine."""
        self._collected += max(0.0, seconds)

    def drain(self) -> float:
        """The active seconds since the last call."""
        self._collect()
        seconds, self._collected = self._collected, 0.0
        return seconds

    def peek(self) -> float:
        """The active seconds that `drain` would return."""
        self._collect()
        return self._collected

    def _collect(self) -> None:
        if self._workers:
            now = self._now()
            self._collected += max(0.0, now - self._since)
            self._since = now


class Jobs:
    """Starts work, and returns its results as they come."""

    def __init__(
        self,
        ports: Ports,
        ledger: Ledger,
        agents: AgentChain,
        journal: Callable[[Entry], None],
        accept_event: Callable[[Event], None],
        iteration: Callable[[], int | None],
        message_template: str,
    ) -> None:
        self.ports, self.ledger, self.agents, self._message_template = ports, ledger, agents, message_template
        self._iteration = iteration
        self._accept_event = accept_event
        self.activity = ActiveTime(ports.clock.now)
        self.wake = asyncio.Event()
        self.poll: float | None = None
        """Seconds between two polls while a job is in progress; None for `POLL_SECONDS`."""
        self._journal = journal
        self._jobs: dict[str, asyncio.Task[JobResult]] = {}
        self._running_turns: dict[int, tuple[Turn, Usage]] = {}
        self._waiting: set[str] = set()
        self._merging = asyncio.Lock()
        self._quotas: dict[int, Quota] = {}
        """The latest reports about subscriptions, by turn, that no poll has handled yet."""
        self._snapshot_notices = 0
        self.lost_snapshots: SnapshotsLostError | None = None
        """Why no verdict about the run can hold any more."""
        self._reported_full = False

    def __contains__(self, key: str) -> bool:
        return key in self._jobs

    @property
    def is_empty(self) -> bool:
        """Whether no job is in progress, not even a turn that waits for its next attempt."""
        return not self._jobs

    @property
    def has_running_turns(self) -> bool:
        """Whether a turn is running."""
        return bool(self._running_turns)

    @property
    def running_turns(self) -> list[Turn]:
        """The turns that are running."""
        return [turn for turn, _ in self._running_turns.values()]

    @property
    def used(self) -> Usage:
        """What the running turns have used so far."""
        return sum((usage for _, usage in self._running_turns.values()), Usage())

    @property
    def only_waits(self) -> bool:
        """Whether no job runs: there is none, or only turns that wait for their next attempt."""
        return self._waiting.issuperset(self._jobs)

    def start(self, work: Work) -> None:
        """Start work that is not in progress yet; a turn only if a slot is free for it."""
        if work.key in self._jobs:
            return
        match work:
            case TurnRequest():
                self.start_turn(work, self.ledger.pending.get(work.key) or PendingWork())
            case RunChecks():
                self._jobs[work.key] = asyncio.create_task(self._run_checks(work))
            case Commit():
                self._jobs[work.key] = asyncio.create_task(self._commit(work))
            case Merge() | Promote():
                self._jobs[work.key] = asyncio.create_task(self._merge(work))
            case _:
                assert_never(work)

    def start_turn(self, request: TurnRequest, pending: PendingWork) -> None:
        """Start a turn, adopt one that an earlier engine started, or wait until it may be tried again."""
        until = self._find_start_time(request, pending)
        if until > self.ports.clock.now():
            self._jobs[request.key] = asyncio.create_task(self._run_turn_later(request, pending, until))
        elif self._acquire_slot(request, pending):
            self._jobs[request.key] = asyncio.create_task(self._run_turn(request, self._begin_turn(request, pending)))

    def _find_start_time(self, request: TurnRequest, pending: PendingWork) -> float:
        """When the turn may start: a turn that is running already at once, a new attempt when its wait is over."""
        now = self.ports.clock.now()
        if pending.open_turn:
            return now
        if pending.last_ended:
            return pending.last_ended.retry_at or now
        return self._find_agent_start_time(request, pending, now + request.delay)

    async def wait_for_results(self) -> list[JobResult]:
        """The results of the next jobs that end; none if `wake` was set or `poll` seconds have passed."""
        waker = asyncio.create_task(self.wake.wait())
        timeout = self.poll if self.poll and self._jobs else POLL_SECONDS
        done, _ = await asyncio.wait(
            [waker, *self._jobs.values()], timeout=timeout, return_when=asyncio.FIRST_COMPLETED
        )
        waker.cancel()
        self.wake.clear()
        ended = [key for key, job in self._jobs.items() if job in done]
        return [self._jobs.pop(key).result() for key in ended]

    async def stop_turns(self, reason: str) -> None:
        """Ask every running turn to end."""
        for turn, _ in list(self._running_turns.values()):
            await self.ports.turns.stop(turn, reason)

    async def cut_over_quota(self) -> None:
        """Ask each running turn to end, once, if its agent has used up its share of a quota."""
        now = self.ports.clock.now()
        for turn, _ in list(self._running_turns.values()):
            if self.ledger.limits.is_over_quota(self._quotas.pop(turn.number, None), now):
                await self.ports.turns.stop(turn, "cut")

    async def end_all(self, reason: str) -> list[JobResult]:
        """End all jobs. Results of turns, commits and merges still count; checks are run again after a resume."""
        running = {turn.request.key for turn, _ in self._running_turns.values()}
        for key, job in self._jobs.items():
            if key not in running and not job.done():
                job.cancel()
        await self.stop_turns(reason)
        ended = await asyncio.gather(*self._jobs.values(), return_exceptions=True)
        for error in ended:
            if isinstance(error, Exception):
                raise error
        return [one for one in ended if isinstance(one, ReturnedTurn | WorkCommitted | MergeEnded)]

    def snapshot(self, label: str) -> Change | None:
        """Take a snapshot of the run's own tree, and journal what it could not record."""
        if self.ports.snapshots is None:
            return None
        change = self.ports.snapshots.take(label)
        for notice in self.ports.snapshots.notices[self._snapshot_notices :]:
            self._journal(Notice(notice))
            self._snapshot_notices += 1
        return change

    def snapshot_after_checks(self) -> None:
        """Record what the checks wrote after the last turn, if snapshots still work."""
        if self.ports.snapshots is None or self.lost_snapshots:
            return
        with contextlib.suppress(SnapshotsLostError):
            self.ports.snapshots.take_after_checks()

    def _snapshot_after(self, turn: Turn) -> Change | None:
        """Record the tree that a turn left; without the snapshots before it, that is of no use."""
        try:
            return self.snapshot(f"turn {turn.number} ({turn.request.role})")
        except SnapshotsLostError as error:
            self.lost_snapshots = error
            return None

    def journal_ref_changes(self, turn: int, *, ignore_commits: bool = False) -> tuple[str, ...]:
        """Journal changes to the user's branches, tags and stash. Returns what is missing now.

        `ignore_commits` is for turns outside the user's tree: new commits on the user's branches are not the agent's then.
        """
        refs = self.ports.user_refs
        if refs is None:
            return ()
        if refs.before is None:
            self._journal(RefsRecorded(refs.record()))
        change = refs.find_ref_changes()
        if ignore_commits:
            change = replace(change, commits=())
        if change.commits or change.missing != self.ledger.missing:
            self._journal(HistoryChanged(turn, change))
        return change.missing

    def _acquire_slot(self, request: TurnRequest, pending: PendingWork) -> bool:
        """Acquire a slot for the turn, if one is free; a turn that is already running has its own."""
        if self.ports.slots is None:
            return True
        agent = pending.open_turn.agent if pending.open_turn else self._pick_agent(request, pending)
        needs_worktree = bool(request.worktree) and not request.merges_run_branch and not request.reads_only
        if self.ports.slots.take(
            request.key, agent, is_running=pending.open_turn is not None, needs_worktree=needs_worktree
        ):
            self._reported_full = False
            return True
        if not self._running_turns and not self._reported_full:
            self._reported_full = True
            self._journal(Notice(f"waiting for a slot: {self.ports.slots.why_full}"))
        return False

    def _find_agent_start_time(self, request: TurnRequest, pending: PendingWork, until: float) -> float:
        """When a first turn may start: after `until`, and after the limit of its provider that an earlier turn ran into."""
        now = self.ports.clock.now()
        agent, at = self.agents.pick(request, pending, self.ledger.list_unavailable(now), now)
        if at <= now or at == NEVER:
            return until
        self._journal(Notice(f"{agent} waits for its provider's limit until {datetime.fromtimestamp(at):%H:%M:%S}"))
        return max(at, until)

    def _pick_agent(self, request: TurnRequest, pending: PendingWork) -> str:
        now = self.ports.clock.now()
        return self.agents.pick(request, pending, self.ledger.list_unavailable(now), now)[0]

    async def _run_turn_later(self, request: TurnRequest, pending: PendingWork, until: float) -> ReturnedTurn:
        """Wait until the next attempt, then run the turn. Waiting is not active time."""
        self._waiting.add(request.key)
        try:
            await self.ports.clock.sleep(until - self.ports.clock.now())
            while not self._acquire_slot(request, pending):
                await self.ports.clock.sleep(POLL_SECONDS)
        finally:
            self._waiting.discard(request.key)
        return await self._run_turn(request, self._begin_turn(request, pending))

    def _begin_turn(self, request: TurnRequest, pending: PendingWork) -> Turn:
        """Adopt a turn that an earlier engine journaled, or create and journal a new one, and register it as running."""
        if pending.open_turn:
            turn, messages = self._adopt_turn(request, pending, pending.open_turn), pending.open_turn.messages
        else:
            turn, messages = self._create_turn(request, pending)
        turn = self._with_guidance(turn, messages)
        self._running_turns[turn.number] = (turn, Usage())
        return turn

    def _adopt_turn(self, request: TurnRequest, pending: PendingWork, opened: TurnStarted) -> Turn:
        session = pending.last_ended.result.agent_session if pending.last_ended else ""
        broken = pending.turn_to_repair
        return Turn(
            number=opened.turn,
            attempt=opened.attempt,
            request=request,
            errors_to_repair=broken.result.answer_errors if broken else (),
            agent=opened.agent,
            used_before=pending.used.get(session, Usage()),
            rejected=_list_rejected(pending),
            continued_turn=_find_continued_turn(pending),
            earlier=pending.earlier,
        )

    def _create_turn(self, request: TurnRequest, pending: PendingWork) -> tuple[Turn, tuple[str, ...]]:
        """Number a new turn and journal it; the turn, and the ids of the messages that are new to it."""
        ledger, broken = self.ledger, pending.turn_to_repair
        agent = self._pick_agent(request, pending)
        preferred, because = self.agents.list_order(request, pending)[0], ""
        if agent != preferred:
            because = ledger.explain_unavailable(preferred, self.ports.clock.now())
        session = pending.agent_session if pending.agent == agent else ""
        errors = broken.result.answer_errors if broken else ()
        continued_turn = _find_continued_turn(pending)
        if session and pending.last_ended:
            continued_turn = pending.last_ended.turn
        turn = Turn(
            number=ledger.last_turn_number + 1,
            attempt=pending.attempt,
            request=request,
            budget=ledger.limits.compute_remaining_cost(ledger.spent, ledger.reserved),
            errors_to_repair=errors,
            agent=agent,
            agent_session=session,
            used_before=pending.used.get(session, Usage()),
            rejected=_list_rejected(pending),
            continued_turn=continued_turn,
            earlier=pending.earlier,
            is_new=True,
        )
        messages = () if errors else self._list_new_messages(request, pending, in_new_conversation=not session)
        self._accept_event(
            TurnStarted(
                turn=turn.number,
                key=request.key,
                role=request.role,
                attempt=turn.attempt,
                agent=agent,
                reserved=ledger.estimate(request.role),
                is_repair=bool(errors),
                is_iteration=request.is_iteration,
                messages=messages,
                head=self._record_branches_before(request),
                took_over_from=preferred if because else "",
                took_over_because=because,
            )
        )
        return turn, messages

    def _record_branches_before(self, request: TurnRequest) -> str:
        """Note where the branches of the user's tree stand, and return the commit of HEAD."""
        refs = self.ports.user_refs
        if refs is None or request.worktree:
            return ""
        refs.record_branch_tips()
        return refs.head

    def _list_new_messages(
        self, request: TurnRequest, pending: PendingWork, *, in_new_conversation: bool
    ) -> tuple[str, ...]:
        """The messages that are new to a turn: in a new conversation also those that earlier turns of this work had."""
        log = self.ledger.signals
        ids = [*(pending.messages if in_new_conversation else ()), *pending.missed_messages]
        ids += [signal.id for signal in log.list_owed_to(request.role, is_actor=request.is_actor)]
        # A PAUSE without text asks only the paused turn.
        return tuple(
            id for id in dict.fromkeys(ids) if id in log.accepted and log.accepted[id].signal.has_message_for_agents
        )

    def _with_guidance(self, turn: Turn, new: tuple[str, ...]) -> Turn:
        """The turn with the user's messages; what its prompt has no room for is in its inbox."""
        request, is_fresh = turn.request, not turn.agent_session and not turn.errors_to_repair
        messages = self.ledger.signals.select_messages(
            request.role, is_actor=request.is_actor, new=new, iteration=self._iteration(), reminds=is_fresh
        )
        guidance = render_guidance(self._message_template, messages, writes_result=bool(request.answer_schema))
        if guidance.file:
            request = replace(request, inbox={**request.inbox, GUIDANCE_FILE: guidance.file})
        return replace(turn, request=request, guidance=guidance.text)

    async def _run_turn(self, request: TurnRequest, turn: Turn) -> ReturnedTurn:
        """Run or adopt one turn, and take a snapshot of the tree it left."""
        pending = self.ledger.pending[request.key]
        adopted_at = self.ports.clock.now()
        try:
            with self.activity.working():
                result = await self.ports.turns.run(turn, self._make_watcher(turn))
        finally:
            del self._running_turns[turn.number]
            if self.ports.slots:
                self.ports.slots.release(request.key)
        if result.end is not TurnEnd.INTERRUPTED:
            self.activity.credit(min(adopted_at, result.ended_at) - pending.opened_at)
        # Before the snapshot: if that fails, the user must know by then what else is gone.
        self.journal_ref_changes(turn.number, ignore_commits=bool(request.worktree))
        if not request.worktree:
            head = self.ports.user_refs.head if self.ports.user_refs else ""
            result = replace(result, change=self._snapshot_after(turn), head=head)
        received = (*pending.messages, *result.received)
        return ReturnedTurn(
            turn=turn,
            result=result,
            pending=pending,
            missed_messages=self.ledger.signals.list_steers_missed_by(
                pending.opened_at, request.role, is_actor=request.is_actor, received=received
            ),
        )

    def _make_watcher(self, turn: Turn) -> Callable[[AgentEvent], None]:
        def watch(event: AgentEvent) -> None:
            self.ports.observer.on_agent_event(turn, event)
            if event.kind is EventKind.USAGE and turn.number in self._running_turns:
                self._running_turns[turn.number] = (turn, self._running_turns[turn.number][1] + event.usage)
                self.wake.set()
            if event.quota:
                self._quotas[turn.number] = event.quota
                self.wake.set()
            if event.kind is EventKind.RECEIVED and self.ledger.signals.is_new_to_turn(event.text, turn.number):
                self._journal(SignalReceived(event.text, turn.number, turn.request.role, event.means))
            if event.kind is EventKind.PLACED:
                self._journal(TurnPlaced(turn.number, event.text))

        return watch

    async def _run_checks(self, work: RunChecks) -> ChecksEnded:
        self._journal(ChecksStarted(work.key, tuple(check.title for check in work.checks)))
        with self.activity.working():
            if work.added_tests:
                verdict = await self.ports.checker.check_with_tests(work.key, work.checks, dict(work.added_tests))
            else:
                verdict = await self.ports.checker.check(
                    work.key, work.checks, work.worktree, work.seen_failing, is_final=work.is_final
                )
            if not self.ledger.last_turn_number:
                self.snapshot(CHECKED)
        return ChecksEnded(work.key, verdict)

    async def _commit(self, work: Commit) -> WorkCommitted:
        if self.ports.committer is None:
            return WorkCommitted(work.key, notice="nothing can be committed here")
        return await asyncio.to_thread(self.ports.committer.commit, work)

    async def _merge(self, work: Merge | Promote) -> MergeEnded:
        """Merge or promote. Only one merge runs at a time, each onto what the last one left."""
        if self.ports.merger is None:
            raise NotImplementedError("a workflow that merges needs a merger")
        async with self._merging:
            self._journal(MergeStarted(work.key, work.worktree))
            with self.activity.working():
                if isinstance(work, Promote):
                    return await self.ports.merger.promote(work)
                return await self.ports.merger.merge(work)


def _list_rejected(pending: PendingWork) -> tuple[str, ...]:
    """What was wrong with the last answer, if the work is done again because of it."""
    return pending.rejected_turn.result.answer_errors if pending.rejected_turn and not pending.turn_to_repair else ()


def _find_continued_turn(pending: PendingWork) -> int:
    """The turn whose documents the next one finds in its outbox, to correct or continue them; 0 for none."""
    repaired = pending.turn_to_repair or pending.rejected_turn
    if repaired:
        return repaired.turn
    last = pending.last_ended
    return last.turn if last and last.result.end is TurnEnd.STEERED else 0
