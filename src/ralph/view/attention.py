"""How much a run needs the user: its state, its tier, what it needs, and the order of a list of runs.

Everything here is a rule over the facts of the journal, the time, and whether an engine is at work.
"""

from collections.abc import Mapping
from dataclasses import field
from datetime import datetime

from ralph.core.checks import CheckStatus, Severity
from ralph.core.events import MergeResult, RunEnded, TaskState
from ralph.core.ids import SESSION_WORKFLOWS
from ralph.core.limits import Limits, describe_cost, list_options_to_continue
from ralph.core.outcomes import Outcome
from ralph.core.signals import ASKED_FOR, SignalType
from ralph.core.values import copy_with, value
from ralph.documents.hats.definition import show_role
from ralph.view.fold import usage_of
from ralph.view.graph import draw_graph
from ralph.view.headline import describe_finding, describe_work, headline
from ralph.view.model import (
    GROUPS,
    TAKEN_BACK,
    CommentView,
    LimitView,
    MergeView,
    Need,
    NeedKind,
    RunGraph,
    RunRow,
    RunView,
    SignalView,
    Tier,
    TurnView,
)
from ralph.view.work import name_task

UNRECEIVED_SECONDS = 60.0
IDLE_SECONDS = 120.0
NEARLY_USED = 0.8
_ASKING = {
    Outcome.AWAITING_APPROVAL: NeedKind.APPROVAL,
    Outcome.AWAITING_FEEDBACK: NeedKind.FEEDBACK,
    Outcome.AWAITING_GUIDANCE: NeedKind.GUIDANCE,
}


@value
class Present:
    """What the journal does not say: the time, and what is beside the journal."""

    now: float
    alive: bool = False
    doubt: str = ""
    waiting: tuple[SignalView, ...] = ()
    """The signals in the mailbox that the run has not accepted."""
    hats: RunGraph | None = None
    """The hats of the run and their topics, if it has any."""
    missing: tuple[str, ...] = ()
    """What of the user's branches, tags and stash is still missing."""
    progress: Mapping[int, str] = field(default_factory=dict)
    """What the agents of running turns reported about their progress, by turn."""
    comments: tuple[CommentView, ...] = ()
    """The comments on lines of the diff."""
    asks_for_approval: bool = False
    """Whether a session that is running waits for the user to say whether what it learned is kept."""
    feedback_at: float = 0.0
    """When the user last gave feedback to a session; 0 if there is none."""


def assess(view: RunView, present: Present) -> RunView:
    """The view with everything that depends on the present."""
    # An engine that has recorded the end of the run only cleans up.
    is_alive = present.alive and view.ended is None
    view = copy_with(view, alive=is_alive, doubt=present.doubt, missing=present.missing)
    view = copy_with(view, has_feedback=view.ended_at is not None and present.feedback_at > view.ended_at)
    view = copy_with(view, signals=(*view.signals, *_list_waiting(view, present.waiting)))
    view = copy_with(view, state=state_of(view, present.now), limits=_measure_limits(view, present.now))
    view = copy_with(view, needs=_list_needs(view, present.now), since=_since(view))
    if view.alive and present.asks_for_approval and not view.running_turns:
        view = copy_with(view, needs=(*view.needs, _ask_for_approval(view)))
    tier, reasons = tier_of(view, present.now)
    return copy_with(
        view,
        attention=tier,
        group=GROUPS[tier],
        reasons=reasons,
        headline=headline(view, present.now),
        doing=describe_work(view, present.progress) if view.alive else "",
        cost_text=_describe_cost(view),
        next=_next_command(view),
        graph=draw_graph(view, present.hats),
        comments=present.comments,
    )


def state_of(view: RunView, now: float) -> str:
    """`new`, `running`, `waiting`, `interrupted` (its engine is gone), or the outcome.

    A success whose files the user changed back is `reverted`, `undone` or `restored`.

    What a run that Ralph may not have written says of itself is only claimed.
    """
    if view.alive:
        return "waiting" if waits_until(view, now) is not None else "running"
    state = "interrupted" if view.seq else "new"
    if view.ended:
        state = view.ended.outcome.value
        if view.taken_back and view.ended.outcome.succeeded:
            state = TAKEN_BACK[view.taken_back.action]
    return f"claimed: {state}" if view.doubt else state


def waits_until(view: RunView, now: float) -> float | None:
    """When the next turn starts, if the run only waits for that."""
    if view.running_turns or view.checking or not view.turns:
        return None
    until = view.turns[-1].retry_at
    return until if until is not None and until > now else None


def tier_of(view: RunView, now: float) -> tuple[Tier, tuple[str, ...]]:
    """How urgent a run is, and why if its state does not say so."""
    if any(need.kind in (NeedKind.QUESTION, *_ASKING.values()) for need in view.needs):
        return Tier.ASKS, ()
    if view.doubt and not view.alive:
        return Tier.FAILED, ()
    if not view.alive:
        return _tier_of_stopped(view), ()
    if any(need.kind is NeedKind.CONFLICT for need in view.needs):
        return Tier.FAILED, ()
    if reasons := _list_warnings(view, now):
        return Tier.WATCH, reasons
    return (Tier.WAITING if view.state == "waiting" else Tier.WORKING), ()


def _tier_of_stopped(view: RunView) -> Tier:
    if view.ended is None:
        return Tier.FAILED if view.seq else Tier.WAITING
    if view.has_feedback:
        return Tier.ASKS
    outcome = view.ended.outcome
    if outcome is Outcome.PAUSED:
        return Tier.WAITING
    if outcome is Outcome.ABORTED:
        return Tier.DONE
    if not outcome.succeeded:
        return Tier.FAILED
    if view.missing and set(view.missing_places) != {"HEAD"}:
        # If only HEAD is on another branch, nothing is lost. A HEAD that lost commits is no success.
        return Tier.FAILED
    return Tier.UNLANDED if _is_unlanded(view) else Tier.DONE


def _is_unlanded(view: RunView) -> bool:
    """Whether the work is on a branch of the run only."""
    did_something = view.ended is not None and view.ended.outcome is Outcome.SUCCESS
    return did_something and bool(view.run.branch) and not (view.landed and view.landed.moved)


def _list_waiting(view: RunView, waiting: tuple[SignalView, ...]) -> list[SignalView]:
    """The signals in the mailbox that the journal does not know yet, each with what it waits for."""
    known = {one.name for one in view.signals}
    return [copy_with(one, reason=_explain_waiting(view, one)) for one in waiting if one.name not in known]


def _explain_waiting(view: RunView, signal: SignalView) -> str:
    if signal.type in ASKED_FOR:
        when = f" in iteration {signal.iteration}" if signal.iteration is not None else ""
        return f"waits until the session asks whether to keep what it learned{when}"
    if signal.iteration is not None:
        return f"waits for iteration {signal.iteration}"
    if view.alive:
        return "waits"
    is_over = view.ended is not None and not view.ended.outcome.resumable
    return "will not be delivered: the run is over" if is_over else "waits until you resume the run"


def _describe_cost(view: RunView) -> str:
    """The money spent. What a run that Ralph did not verify claims to have spent says nothing."""
    if view.doubt or view.spent.cost_is_unknown:
        return "cost unknown"
    return describe_cost(view.spent) if view.spent.turns else "-"


def _list_warnings(view: RunView, now: float) -> tuple[str, ...]:
    """Why a running run deserves a look."""
    found = []
    for signal in view.signals:
        age = now - signal.at
        is_lost = signal.is_message and signal.type is SignalType.STEER and not signal.receipts
        if is_lost and signal.state != "refused" and age > UNRECEIVED_SECONDS:
            found.append(f"no turn has received your message of {clock(signal.at)}")
    for limit in view.limits:
        if limit.share > NEARLY_USED and limit.name in ("cost", "tokens", "time"):
            found.append(f"{limit.share:.0%} of the {limit.name.removesuffix('s')} limit is used")
    for turn in view.running_turns:
        silent = now - _last_sign(turn)
        if silent > IDLE_SECONDS:
            found.append(f"turn {turn.number} ({show_role(turn.role)}) has been silent for {span(silent)}")
    return tuple(found)


def _last_sign(turn: TurnView) -> float:
    return max(turn.started_at, turn.activity.at if turn.activity else 0.0)


def _measure_limits(view: RunView, now: float) -> tuple[LimitView, ...]:
    """Every limit of the run, with how much of it is used, running turns included."""
    allowed, spent, running = view.allowed, view.spent, usage_of(view)
    active = spent.active_seconds + (measure_open_seconds(view, now) if view.alive else 0.0)
    return tuple(
        LimitView(name, used=used, limit=limit, share=round(used / limit, 4) if limit else 1.0)
        for name, used, limit in (
            ("iterations", float(spent.iterations), allowed.iterations),
            ("time", active, allowed.active_seconds),
            ("cost", spent.cost + (running.cost or 0.0), allowed.cost),
            ("tokens", float(spent.tokens + running.tokens), allowed.tokens),
            *_measure_deadline(view, allowed, now),
        )
        if limit is not None
    )


def measure_open_seconds(view: RunView, now: float) -> float:
    """Seconds of work in progress that the counters do not contain yet."""
    begun = [*(turn.started_at for turn in view.running_turns), *(checks.since for checks in view.checking)]
    return max(0.0, now - max(min(begun), view.spent_at)) if begun else 0.0


def _measure_deadline(view: RunView, allowed: Limits, now: float) -> list[tuple[str, float, float]]:
    begin = view.started_at or view.run.created_at
    if allowed.deadline is None or allowed.deadline <= begin:
        return []
    return [("deadline", max(0.0, now - begin), allowed.deadline - begin)]


def _since(view: RunView) -> float:
    """Since when the run is in its state: what has waited longest comes first."""
    if view.needs and view.alive:
        return min(need.since for need in view.needs)
    if view.ended_at is not None:
        return view.ended_at
    if view.alive:
        return view.resumed_at or view.started_at or view.run.created_at
    return view.at or view.run.created_at


def _list_needs(view: RunView, now: float) -> tuple[Need, ...]:
    """What the user has to do, the most urgent first."""
    needs = [*_open_questions(view, now)]
    if view.doubt and not view.alive:
        # How a run ended that Ralph did not verify says nothing about what it needs: the user has to adopt it first.
        return tuple(_describe_missing(view))
    if view.ended and not view.alive:
        needs += _needs_of_end(view, view.ended)
    elif not view.alive and view.seq:
        text = "The engine stopped without an outcome."
        needs.append(Need(NeedKind.RESUME, text, _resume(view), view.at))
    needs += [_conflict(view, merge) for merge in _open_conflicts(view)]
    return (*needs, *_describe_missing(view))


def _ask_for_approval(view: RunView) -> Need:
    """What a session that is running waits for after its last turn."""
    text = "What the session learned waits for your approval."
    command = f"ralph session approve {view.run.id}"
    return Need(NeedKind.APPROVAL, text, command, view.at, options=("approve", "skip"))


def _describe_missing(view: RunView) -> list[Need]:
    """What of the user's branches, tags and stash is missing."""
    at = view.ended_at or view.at
    return [Need(NeedKind.MISSING, sentence, f"ralph status {view.run.id}", at) for sentence in view.missing]


def _open_questions(view: RunView, now: float) -> list[Need]:
    if not view.alive:
        return []
    return [
        Need(
            kind=NeedKind.QUESTION,
            text=one.question.question,
            command=f'ralph answer {one.question.id} "..." --run {view.run.id}',
            since=one.question.asked_at or one.at,
            id=one.question.id,
            options=one.question.options,
            default=one.question.default,
            until=one.question.asked_at + one.question.timeout,
        )
        for one in view.questions
        if one.question.waits(now)
    ]


def _needs_of_end(view: RunView, ended: RunEnded) -> list[Need]:
    """What a run that ended needs, if it ended before it was done. What only the guards hold up can be accepted."""
    needs = _describe_end(view, ended)
    findings = _list_blocking_findings(view)
    if not findings or not needs:
        return needs
    return [copy_with(needs[0], options=("accept",), findings=findings), *needs[1:]]


def _list_blocking_findings(view: RunView) -> tuple[str, ...]:
    """What the guards found in work that passes all checks of the run."""
    checks = view.run_checks
    has_passed = bool(checks) and all(check.status is CheckStatus.PASSED for check in checks)
    if not has_passed or view.workflow in SESSION_WORKFLOWS:
        return ()
    errors = [one.finding for one in view.findings if one.is_open and one.finding.severity is Severity.ERROR]
    return tuple(map(describe_finding, errors))


def _describe_end(view: RunView, ended: RunEnded) -> list[Need]:
    run, at = view.run.id, view.ended_at or view.at
    outcome = ended.outcome
    if view.has_feedback:
        text = "You gave feedback. The session plans again with it when you resume it."
        return [Need(NeedKind.RESUME, text, f"ralph session resume {run}", at)]
    if outcome in _ASKING:
        command = {
            Outcome.AWAITING_APPROVAL: f"ralph session approve {run}",
            Outcome.AWAITING_FEEDBACK: f"ralph session feedback {run}",
            Outcome.AWAITING_GUIDANCE: f'ralph resume {run} --guidance "..."',
        }[outcome]
        options = ("approve", "skip") if outcome is Outcome.AWAITING_APPROVAL else ()
        return [Need(_ASKING[outcome], ended.reason, command, at, options=options, unfinished=ended.unfinished)]
    if outcome is Outcome.UNPROVEN:
        command = f'ralph accept {run} --because "..."'
        why = ended.evidence.reason if ended.evidence else ended.reason
        return [Need(NeedKind.UNPROVEN, why, command, at, options=("accept",))]
    if outcome is Outcome.UNVERIFIABLE:
        return [Need(NeedKind.UNPROVEN, ended.reason, _resume(view), at)]
    if not outcome.resumable:
        return []
    return [Need(NeedKind.RESUME, ended.reason, _resume(view), at)]


def _open_conflicts(view: RunView) -> list[MergeView]:
    """The merges that could not be made and whose task was not finished since."""
    latest: dict[str, MergeView] = {}
    for merge in view.merges:
        latest[_task_of(view, merge)] = merge
    done = {task.id for task in view.tasks if task.state in (TaskState.DONE, TaskState.CANCELLED)}
    failed = {task.id for task in view.tasks if task.state is TaskState.FAILED}
    found = []
    for task, merge in latest.items():
        is_bad = merge.end in (MergeResult.CONFLICT, MergeResult.REVERTS, MergeResult.CHECKS_FAILED)
        # While attempts are left, a resolver works on it: the user need not do anything.
        if is_bad and task not in done and (task in failed or not view.alive):
            found.append(merge)
    return found


def _task_of(view: RunView, merge: MergeView) -> str:
    return name_task(merge.workspace, view.tasks) or merge.workspace


def _conflict(view: RunView, merge: MergeView) -> Need:
    what = {
        MergeResult.CHECKS_FAILED: "merges, but the checks fail on the merged tree",
        MergeResult.REVERTS: "would revert work that is already merged",
    }
    reason = what.get(merge.end, "has a merge conflict") if merge.end else "is not merged"
    text = f"{_task_of(view, merge)} {reason}" + (f": {', '.join(merge.files[:5])}" if merge.files else "")
    command = f"git log -p {merge.branch}" if merge.branch else f"ralph logs {view.run.id}"
    return Need(
        kind=NeedKind.CONFLICT,
        text=text,
        command=command,
        since=merge.ended_at or merge.started_at,
        id=merge.key,
        files=merge.files,
        branch=merge.branch,
    )


def _resume(view: RunView) -> str:
    """The command that continues a run, with the option that raises the limit on which it ended."""
    command = f"ralph {'session ' if view.workflow in SESSION_WORKFLOWS else ''}resume {view.run.id}"
    if view.ended is None:
        return command
    ended = view.ended
    if ways := list_options_to_continue(ended.outcome, ended.limits, ended.spent, ended.allowance):
        return f"ralph resume {view.run.id} {ways[0].option}"
    if ended.outcome is Outcome.STUCK:
        return f'ralph resume {view.run.id} --guidance "..."'
    return command


def _next_command(view: RunView) -> str:
    """What to type next; empty while the run works."""
    if view.doubt and not view.alive:
        return f"ralph resume {view.run.id} --adopt"
    if view.needs:
        return view.needs[0].command
    if view.alive:
        return ""
    if view.attention is Tier.UNLANDED or _is_unlanded(view):
        return f"ralph land {view.run.id}"
    if view.ended and view.ended.outcome is Outcome.PAUSED:
        return _resume(view)
    if view.taken_back and view.taken_back.action != "undo":
        return f"ralph undo {view.run.id}"
    return f"ralph diff {view.run.id}" if view.run.has_snapshots and view.seq else ""


def row_of(view: RunView) -> RunRow:
    """A run as one row of a list."""
    checks = view.run_checks
    return RunRow(
        id=view.run.id,
        project=view.run.project,
        workflow=view.workflow,
        task=view.run.task,
        criterion=view.run.criterion,
        state=view.state,
        alive=view.alive,
        attention=view.attention,
        group=view.group,
        headline=view.headline,
        since=view.since,
        seq=view.seq,
        at=view.at,
        created_at=view.run.created_at,
        agent=view.agent or ", ".join(view.run.agents),
        workspace=view.run.workspace,
        branch=view.run.branch,
        iteration=view.iteration,
        max_iterations=view.allowed.iterations,
        checks_passed=sum(check.status is CheckStatus.PASSED for check in checks),
        checks_total=len(checks) or len(view.run.checks),
        spent=view.spent,
        cost_limit=view.allowed.cost,
        reason=view.ended.reason if view.ended else "",
        doing=view.doing,
        cost=view.cost_text,
        needs=view.needs,
        reasons=view.reasons,
        missing=view.missing,
        hand_overs=tuple(one.text for one in view.hand_overs),
        sandbox=view.sandbox,
        doubt=view.doubt,
        grade=view.ended.evidence.grade if view.ended and view.ended.evidence and not view.taken_back else "",
        next=view.next,
    )


def clock(at: float) -> str:
    """A moment of today as `HH:MM`."""
    return datetime.fromtimestamp(at).strftime("%H:%M")


def span(seconds: float) -> str:
    """A span of time in its largest unit."""
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{int(seconds)} s"
