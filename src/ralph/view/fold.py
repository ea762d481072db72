"""The fold of a journal into a view: one pure function per kind of entry.

Each step costs the same however long the run is, so lists are capped and sums are kept beside them.
"""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from ralph.core.entries import (
    ActionDone,
    AgentsChanged,
    ChecksStarted,
    Entry,
    GuardRulesChanged,
    HistoryChanged,
    LimitExtended,
    MergeStarted,
    Notice,
    QuestionAnswered,
    QuestionAsked,
    Record,
    RefsRecorded,
    RunAdopted,
    RunStarted,
    SignalReceived,
    SignalRefused,
    SnapshotTaken,
    TurnPlaced,
)
from ralph.core.events import (
    ChecksEnded,
    DocumentEdited,
    Landed,
    MergeEnded,
    RunEnded,
    SignalAccepted,
    TaskChanged,
    TurnEnded,
    TurnStarted,
    WorkCommitted,
    add_hand_over,
)
from ralph.core.ids import WorkKey, WorkKind
from ralph.core.limits import Usage
from ralph.core.signals import IN_PROMPT, SignalType
from ralph.core.turns import AgentEvent, EventKind, TurnEnd, TurnResult
from ralph.core.values import copy_with
from ralph.documents.run_record import RunRecord
from ralph.view import fold_checks, fold_signals
from ralph.view.fold_cost import add_turn_cost
from ralph.view.model import (
    MAX_NOTICES,
    MOST,
    TEXT_CHARS,
    ActionView,
    Activity,
    ChecksRun,
    CommitView,
    MergeView,
    NoticeView,
    QuestionView,
    ReportView,
    RunFacts,
    RunView,
    TaskView,
    TurnView,
)
from ralph.view.work import iteration_of, task_of

T = TypeVar("T")


def new_view(record: RunRecord, project: str = "") -> RunView:
    """The view of a run whose journal is empty."""
    facts = RunFacts(
        id=record.id,
        project=project,
        workflow=record.workflow,
        task=record.task,
        criterion=record.criterion,
        agents=tuple(spec.label for spec in record.agents.chain),
        workspace=record.workspace,
        directory=record.directory,
        branch=record.branch,
        onto=record.onto,
        land=record.land,
        created_at=record.created_at,
        has_snapshots=record.snapshots,
        checks=tuple(check.title for check in record.checks),
        by=record.by,
    )
    return RunView(run=facts, workflow=record.workflow, allowed=record.limits, since=record.created_at)


def fold(view: RunView, record: Record) -> RunView:
    """The view after one more journal record."""
    step = _STEPS[type(record.entry)]
    return copy_with(step(view, record, record.entry), seq=record.seq, at=record.at)


def fold_all(view: RunView, records: Iterable[Record]) -> RunView:
    """The view after all these records."""
    for record in records:
        view = fold(view, record)
    return view


def fold_event(view: RunView, turn: int, event: AgentEvent, at: float) -> RunView:
    """The view after an agent reported something in a running turn. Events of other turns change nothing."""
    running = next((one for one in reversed(view.turns) if one.number == turn), None)
    if running is None or running.end is not None:
        return view
    before = running.activity or Activity()
    text = " ".join(event.text.split())[:TEXT_CHARS]
    shows = bool(text) and event.kind not in (EventKind.USAGE, EventKind.SESSION)
    if event.kind is EventKind.TOOL_RESULT and before.kind == EventKind.TOOL:
        shows = True  # a tool that printed nothing has ended, too
    activity = Activity(
        events=before.events + 1,
        tools=before.tools + (event.kind is EventKind.TOOL),
        kind=event.kind.value if shows else before.kind,
        text=text if shows else before.text,
        at=max(at, before.at),
        usage=before.usage + event.usage if event.kind is EventKind.USAGE else before.usage,
    )
    return _replace_turn(view, copy_with(running, activity=activity))


def _start_run(view: RunView, record: Record, entry: RunStarted) -> RunView:
    is_first = not view.started_at
    # An engine that starts knows of no running checks or merges: it starts them again.
    return copy_with(
        view,
        started_at=record.at if is_first else view.started_at,
        resumed_at=None if is_first else record.at,
        resumes=view.resumes + (not is_first),
        ended=None,
        ended_at=None,
        checking=(),
        merges=tuple(one for one in view.merges if one.end is not None),
        sandbox=entry.sandbox,
    )


def _adopt_run(view: RunView, record: Record, entry: RunAdopted) -> RunView:
    return copy_with(view, adopted=entry.reason)


def _change_history(view: RunView, record: Record, entry: HistoryChanged) -> RunView:
    return copy_with(view, missing=entry.change.missing, missing_places=entry.change.places)


def _extend_limits(view: RunView, record: Record, entry: LimitExtended) -> RunView:
    return copy_with(_add_notice(view, record, f"limits from now on: {entry.reason}"), allowed=entry.limits)


def _allow_changes(view: RunView, record: Record, entry: GuardRulesChanged) -> RunView:
    for rule, reason in entry.allowed.items():
        view = _add_notice(view, record, f"the user switched off the guard rule {rule}: {reason}")
    for glob in entry.may_change:
        view = _add_notice(view, record, f"the user allowed changes to tests and settings that match {glob}")
    for why in entry.accepted.values():
        view = _add_notice(view, record, f"the user accepted the work so far: {why}")
    return view


def _change_agents(view: RunView, record: Record, entry: AgentsChanged) -> RunView:
    return copy_with(_add_notice(view, record, f"{entry.label} runs the turns from now on"), agent=entry.label)


def _start_turn(view: RunView, record: Record, entry: TurnStarted) -> RunView:
    turn = TurnView(
        number=entry.turn,
        key=entry.key,
        role=entry.role,
        agent=entry.agent,
        attempt=entry.attempt,
        task=task_of(view.workflow, entry.key, view.tasks),
        is_iteration=entry.is_iteration,
        is_repair=entry.is_repair,
        started_at=record.at,
        head_before=entry.head,
    )
    work = WorkKey.parse(entry.key)
    iteration = view.spent.iterations + 1 if entry.is_iteration else 0
    if entry.is_iteration and work and work.kind is WorkKind.ITERATION:
        iteration = work.number
    view = copy_with(
        view,
        hand_overs=add_hand_over(view.hand_overs, entry),
        turns=_append(view.turns, turn),
        more_turns=max(view.more_turns, view.more_turns + len(view.turns) + 1 - MOST),
        agent=entry.agent,
        iteration=max(view.iteration, iteration),
        tasks=_set_task_turn(view.tasks, turn.task, entry.turn),
    )
    return fold_signals.receive(view, entry.messages, entry.role, entry.turn, IN_PROMPT, record.at)


def _end_turn(view: RunView, record: Record, entry: TurnEnded) -> RunView:
    result = entry.result
    before = next((one for one in reversed(view.turns) if one.number == entry.turn), None)
    known = before or TurnView(number=entry.turn, key=entry.key, role=entry.role, started_at=result.started_at)
    change = result.change
    turn = copy_with(
        known,
        ended_at=record.at,
        end=result.end,
        is_final=entry.settles_work,
        usage=result.usage,
        summary=_summarize(result),
        error=result.error[:TEXT_CHARS],
        files=change.files if change else 0,
        added=change.added if change else 0,
        removed=change.removed if change else 0,
        names=change.names if change else (),
        snapshot=change.snapshot if change else "",
        head_after=result.head,
        session=result.agent_session,
        denied=result.denied[:20],
        warnings=result.warnings[:20],
        # The work of a turn that ran into a limit may be verified first. If it does not pass, the next turn waits.
        retry_at=result.resets_at if result.end is TurnEnd.LIMITED and entry.settles_work else entry.retry_at,
        retry_reason=entry.retry_reason
        or ("waiting for the provider's limit" if result.end is TurnEnd.LIMITED else ""),
        activity=None,
    )
    view = _replace_turn(view, turn) if before else view
    view = copy_with(
        view,
        spent=entry.spent,
        spent_at=record.at,
        iteration=max(view.iteration, entry.spent.iterations),
        tasks=_set_task_turn(view.tasks, turn.task, 0),
        cost=add_turn_cost(view.cost, turn, record.at),
    )
    view = fold_signals.receive(view, result.received, entry.role, entry.turn, "turn", record.at)
    return fold_signals.respond(view, entry)


def _start_checks(view: RunView, record: Record, entry: ChecksStarted) -> RunView:
    others = tuple(one for one in view.checking if one.key != entry.key)
    return copy_with(view, checking=(*others, ChecksRun(entry.key, entry.checks, record.at)))


def _end_checks(view: RunView, record: Record, entry: ChecksEnded) -> RunView:
    view = fold_checks.add_verdict(view, record, entry.key, entry.verdict, iteration_of(view.workflow, entry.key))
    running = tuple(one for one in view.checking if one.key != entry.key)
    verdict = entry.verdict
    is_unproven = not verdict.not_passed and not verdict.passed
    return copy_with(
        view,
        spent=entry.spent,
        spent_at=record.at,
        checking=running,
        unproven_snapshot=verdict.snapshot if is_unproven else "",
    )


def _start_merge(view: RunView, record: Record, entry: MergeStarted) -> RunView:
    others = tuple(one for one in view.merges if one.key != entry.key or one.end is not None)
    return copy_with(view, merges=_append(others, MergeView(entry.key, entry.worktree, record.at)))


def _end_merge(view: RunView, record: Record, entry: MergeEnded) -> RunView:
    running = next((one for one in view.merges if one.key == entry.key and one.end is None), None)
    merge = copy_with(
        running or MergeView(entry.key, entry.worktree, record.at),
        ended_at=record.at,
        end=entry.end,
        branch=entry.branch,
        commit=entry.commit,
        files=entry.files[:100],
        notice=entry.notice,
        failed=tuple(result.title for result in entry.verdict.not_passed) if entry.verdict else (),
    )
    if entry.verdict:
        view = fold_checks.add_verdict(view, record, entry.key, entry.verdict, iteration_of(view.workflow, entry.key))
    others = tuple(one for one in view.merges if one is not running)
    return copy_with(view, spent=entry.spent, spent_at=record.at, merges=_append(others, merge))


def _take_snapshot(view: RunView, record: Record, entry: SnapshotTaken) -> RunView:
    return copy_with(view, snapshot=entry.snapshot)


def _take_signal(view: RunView, record: Record, entry: SignalAccepted) -> RunView:
    view = fold_signals.take(view, entry.signal, record.at)
    if entry.signal.type in (SignalType.PAUSE, SignalType.RESUME):
        view = copy_with(view, paused=entry.signal.type is SignalType.PAUSE)
    return view


def _hear_signal(view: RunView, record: Record, entry: SignalReceived) -> RunView:
    return fold_signals.receive(view, (entry.id,), entry.role, entry.turn, entry.means, record.at)


def _place_turn(view: RunView, record: Record, entry: TurnPlaced) -> RunView:
    turn = next((one for one in reversed(view.turns) if one.number == entry.turn), None)
    return _replace_turn(view, copy_with(turn, place=entry.place)) if turn else view


def _refuse_signal(view: RunView, record: Record, entry: SignalRefused) -> RunView:
    return fold_signals.refuse(view, entry, record.at)


def _ask_question(view: RunView, record: Record, entry: QuestionAsked) -> RunView:
    others = tuple(one for one in view.questions if one.question.id != entry.question.id)
    return copy_with(view, questions=_append(others, QuestionView(entry.question, record.at)))


def _answer_question(view: RunView, record: Record, entry: QuestionAnswered) -> RunView:
    def answer(one: QuestionView) -> QuestionView:
        if one.question.id != entry.id:
            return one
        return copy_with(one, question=copy_with(one.question, answer=entry.answer, by=entry.by))

    return copy_with(view, questions=tuple(map(answer, view.questions)))


def _note(view: RunView, record: Record, entry: Notice) -> RunView:
    # After `ralph abort --revert`, the report is written again.
    reports = [copy_with(one, hash=record.documents.get(one.path, one.hash)) for one in view.reports]
    return copy_with(_add_notice(view, record, entry.text), reports=tuple(reports))


def _act(view: RunView, record: Record, entry: ActionDone) -> RunView:
    done = ActionView(id=entry.id, action=entry.action, result=entry.result[:TEXT_CHARS], by=entry.by, at=record.at)
    return copy_with(view, actions=_append(view.actions, done))


def _change_task(view: RunView, record: Record, entry: TaskChanged) -> RunView:
    before = next((one for one in view.tasks if one.id == entry.task), None)
    task = TaskView(
        id=entry.task,
        title=entry.title,
        state=entry.state,
        reason=entry.reason[:TEXT_CHARS],
        attempt=entry.attempt,
        most_attempts=entry.most_attempts,
        wave=entry.wave,
        needs=entry.needs or (before.needs if before else ()),
        since=record.at,
        turn=before.turn if before else 0,
    )
    if before is None:
        return copy_with(view, tasks=(*view.tasks, task))
    return copy_with(view, tasks=tuple(task if one is before else one for one in view.tasks))


def _commit(view: RunView, record: Record, entry: WorkCommitted) -> RunView:
    if entry.notice:
        view = _add_notice(view, record, entry.notice)
    if not entry.commit:
        return view
    return copy_with(view, commits=_append(view.commits, CommitView(entry.key, entry.commit, record.at)))


def _land(view: RunView, record: Record, entry: Landed) -> RunView:
    return copy_with(view, landed=entry)


def _edit_document(view: RunView, record: Record, entry: DocumentEdited) -> RunView:
    return _add_notice(view, record, f"read your change to {entry.path}")


def _end_run(view: RunView, record: Record, entry: RunEnded) -> RunView:
    paths = [path for path in record.documents if "/completion-" in path]
    reports = [ReportView(path, record.documents[path], entry.outcome.value, record.at) for path in paths]
    return copy_with(
        view,
        ended=entry,
        ended_at=record.at,
        spent=entry.spent,
        spent_at=record.at,
        allowed=entry.limits,
        missing=entry.missing,
        missing_places=view.missing_places if entry.missing else (),
        checking=(),
        changed_files=tuple(file.path for file in entry.files),
        changed_at=record.at,
        reports=(*view.reports, *reports)[-MOST:],
    )


def _keep(view: RunView, record: Record, entry: RefsRecorded) -> RunView:
    return view


_STEPS: dict[type[Entry], Callable[[RunView, Record, Any], RunView]] = {
    RunStarted: _start_run,
    RunAdopted: _adopt_run,
    RefsRecorded: _keep,
    HistoryChanged: _change_history,
    LimitExtended: _extend_limits,
    AgentsChanged: _change_agents,
    GuardRulesChanged: _allow_changes,
    TurnStarted: _start_turn,
    TurnEnded: _end_turn,
    ChecksStarted: _start_checks,
    ChecksEnded: _end_checks,
    MergeStarted: _start_merge,
    MergeEnded: _end_merge,
    SnapshotTaken: _take_snapshot,
    SignalAccepted: _take_signal,
    SignalReceived: _hear_signal,
    TurnPlaced: _place_turn,
    SignalRefused: _refuse_signal,
    QuestionAsked: _ask_question,
    QuestionAnswered: _answer_question,
    Notice: _note,
    ActionDone: _act,
    TaskChanged: _change_task,
    WorkCommitted: _commit,
    Landed: _land,
    DocumentEdited: _edit_document,
    RunEnded: _end_run,
}
"""What each kind of entry does to a view."""


def _append(items: tuple[T, ...], item: T, most: int = MOST) -> tuple[T, ...]:
    """The items with one more, without the oldest if there are too many."""
    return (*items[max(0, len(items) + 1 - most) :], item)


def _add_notice(view: RunView, record: Record, text: str) -> RunView:
    notice = NoticeView(record.seq, record.at, text[:TEXT_CHARS])
    return copy_with(view, notices=_append(view.notices, notice, MAX_NOTICES))


def _replace_turn(view: RunView, turn: TurnView) -> RunView:
    # The turn that changes is nearly always one of the last.
    for at in range(len(view.turns) - 1, -1, -1):
        if view.turns[at].number == turn.number:
            return copy_with(view, turns=(*view.turns[:at], turn, *view.turns[at + 1 :]))
    return view


def _set_task_turn(tasks: tuple[TaskView, ...], task: str, turn: int) -> tuple[TaskView, ...]:
    if not task:
        return tasks
    return tuple(copy_with(one, turn=turn) if one.id == task else one for one in tasks)


def _summarize(result: TurnResult) -> str:
    """What the agent says that it did: its summary, or else the last line of its last message."""
    summary = str((result.answer or {}).get("summary", "")).strip()
    return (summary or result.text.strip().rpartition("\n")[2])[:TEXT_CHARS]


def usage_of(view: RunView) -> Usage:
    """What the turns in progress have used so far."""
    used = Usage()
    for turn in view.running_turns:
        if turn.activity:
            used += turn.activity.usage
    return used
