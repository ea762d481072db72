"""How the command line shows a session: what happens in it, and its state."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from ralph.cli.console import one_line
from ralph.cli.render.journal import Renderer
from ralph.core.entries import Record
from ralph.core.events import RunEnded, TaskChanged, TurnEnded
from ralph.core.ids import WorkKey, describe_worktree
from ralph.core.limits import list_options_to_continue
from ralph.core.outcomes import Outcome
from ralph.core.text import count, count_are, shorten
from ralph.documents.session.metadata import State, Status
from ralph.documents.session.progress import Marker
from ralph.documents.session.reports import parse_report
from ralph.documents.session.values import parse_timestamp
from ralph.workflows.loop.report import accept_command
from ralph.workflows.session.execution import has_open_work
from ralph.workflows.session.iterations import count_tasks, find_new_feedback, list_misplaced_feedback, reviews
from ralph.workflows.session.state import SessionSettings, SessionState, Step
from ralph.workflows.session.work_keys import SessionKey, SessionWork


@dataclass
class SessionRenderer(Renderer):
    """Renders the records of one session."""

    noun = "session"

    titles: dict[str, str] = field(default_factory=dict)
    """The titles of the tasks that are known so far."""

    def about(self, key: str) -> str:
        words, work = about(key), SessionKey.parse(key)
        title = self.titles.get(work.task, "") if work else ""
        return words.replace(work.task, f"{work.task} {title}", 1) if work and title else words

    def entry_lines(self, record: Record) -> list[str]:
        lines = super().entry_lines(record)
        if isinstance(record.entry, TaskChanged):
            self.titles[record.entry.task] = record.entry.title
        if isinstance(record.entry, TurnEnded) and record.entry.settles_work:
            lines += _answer_lines(record.entry.result.answer or {})
        return lines

    def then(self, ended: RunEnded) -> str:
        run = self.run
        if list_options_to_continue(ended.outcome, ended.limits, ended.spent, ended.allowance):
            return super().then(ended)
        todo = {
            Outcome.AWAITING_FEEDBACK: f'ralph session feedback {run} "..."\n        ralph session resume {run}',
            Outcome.AWAITING_APPROVAL: f"ralph session approve {run}, or skip",
            Outcome.BLOCKED: f'ralph session resume {run}   (--guidance "Only ..." reduces the scope)',
            Outcome.UNPROVEN: f"ralph diff {run}, then {accept_command(run)}",
        }
        usual = f"ralph session resume {run}" if ended.outcome.resumable else f"ralph session show {run}"
        return todo.get(ended.outcome, usual)


def _answer_lines(answer: Mapping[str, Any]) -> list[str]:
    """What an answer decides for the whole session: what blocks its role, and what a review of the whole found."""
    lines = []
    if answer.get("status") == "blocked":
        lines.append("✗ blocked: " + "; ".join(map(str, answer.get("blockers") or ["it gives no reason"])))
    if assessment := answer.get("assessment"):
        achieved = f" ({answer['goals_achieved']} goals achieved)" if answer.get("goals_achieved") else ""
        rejected = [one for one in answer.get("files") or () if not one["accept"]]
        mark = "✓" if assessment == "Complete" and not rejected else "✗"
        lines.append(f"{mark} review of the whole session: {assessment}{achieved}")
        lines += [f"    gap: {one_line(gap)}" for gap in answer.get("gaps") or ()]
        lines += [f"    rejected: {one_line(one['path'])}: {one_line(one['why'])}" for one in rejected]
    return lines


def about(key: str) -> str:
    """What a turn or a check is for, as the user reads it."""
    work = SessionKey.parse(key)
    match work.kind if work else None:
        case SessionWork.PLAN if work:
            return _describe_step(work)
        case SessionWork.EXECUTE | SessionWork.CHECK | SessionWork.REVIEW if work:
            return work.task + (f", attempt {work.attempt}" if work.attempt != 1 else "")
        case SessionWork.SPLIT if work:
            return f"split {work.task}"
        case SessionWork.REPLAN if work:
            return f"replan {work.task}"
        case SessionWork.SELECT:
            return "what to keep"
        case SessionWork.CRITIQUE:
            return "tasks for the gaps"
        case SessionWork.EXTRACT:
            return "what was learned"
        case SessionWork.BASELINE:
            return "before the first turn"
        case SessionWork.SESSION_CHECK | SessionWork.SESSION_REVIEW:
            return "the whole session"
    merge = WorkKey.parse(key)
    return f"the merge of {describe_worktree(merge.worktree)}" if merge and merge.worktree else key


_STEPS = {
    "plan-init": "the plan",
    "plan-brainstorm": "questions about the plan",
    "plan-research": "answers",
    "plan-breakdown": "the tasks",
    "plan-rebrainstorm": "questions about your feedback",
    "plan-reresearch": "answers",
    "plan-update": "the plan after your feedback",
    "plan-rebreakdown": "the tasks after your feedback",
}
"""What the steps of planning are for, by their names in `progress.md`."""


def _describe_step(work: SessionKey) -> str:
    """What a step of planning is for, with its name in `progress.md`. The classic layout has a step for each update."""
    words = _STEPS.get(work.step, "the plan and the tasks after your update")
    topic = f": {work.category}" if work.category and not work.step.startswith("plan-re") else ""
    return f"{words}{topic} ({work.step})"


_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT[\d:]+(?:Z|[+-]\d\d:?\d\d)")
_STAGES = {
    State.INITIALIZING: "the plan",
    State.PLANNING: "planning",
    State.REPLANNING: "planning again",
    State.BATCHING: "the tasks",
    State.EXECUTING_BATCH: "the tasks",
    State.REVIEWING_BATCH: "the review of tasks",
    State.SESSION_REVIEW: "the review of the whole session",
    State.CRITIQUE: "tasks for the gaps that the review found",
    State.KNOWLEDGE_EXTRACTION: "what was learned",
    State.KNOWLEDGE_APPROVAL: "the decision about what was learned",
    State.COMPLETE: "the end of the session",
}
"""What a session is at, by its state, in words."""
MARKS = {" ": "[ ]", "/": "[/]", "P": "[P]", "x": "[x]", "F": "[F]", "C": "[C]"}


def session_lines(
    settings: SessionSettings, state: SessionState, spent: str = "", *, alive: bool = False, aborted: bool = False
) -> list[str]:
    """The state of a session: its tasks with their markers, what it cost, and what happens next."""
    if settings.layout.is_classic:
        return _list_lines(settings, state, spent, alive=alive, aborted=aborted)
    data = state.metadata
    facts = [f"Session {data.session_id}", f"iteration {data.iteration}", data.status.replace("_", " ")]
    facts += [f"at {_STAGES[state.state]}"] if state.state is not State.COMPLETE else []
    lines = [" · ".join(facts), "", data.request.strip(), ""]
    # Each iteration plans with the same steps, so the latest lines of all steps would hide those of earlier iterations.
    planning = [item for _, item in state.progress.items_by_line() if item.is_planning]
    for number, steps in groupby(planning, lambda item: item.iteration or 1):
        listed = "  ".join(f"{MARKS[item.marker.value]} {item.id.removeprefix('plan-')}" for item in steps)
        lines.append(f"Planning {number}  {listed}")
    for number, names in enumerate(state.graph.waves, 1):
        lines.append(f"Wave {number}")
        lines += [f"  {MARKS[state.marker(name).value]} {name}  {_about(settings, state, name)}" for name in names]
    return [
        *lines,
        "",
        *([f"Spent:  {spent}"] if spent else []),
        f"Next:   {next_action(settings, state, alive=alive)}",
    ]


def _about(settings: SessionSettings, state: SessionState, name: str) -> str:
    flow, task = state.flow_of(name), state.tasks[name]
    facts = ["no definition"] if task.is_missing else [task.title or shorten(task.objective, 60)]
    if others := state.metadata.replaced.get(name):
        return " · ".join([*facts, f"split into {', '.join(others)}"])
    if state.marker(name) is Marker.CANCELLED:
        return " · ".join([*facts, state.progress.items[name].note or "cancelled"])
    is_queued = flow.step is Step.EXECUTE and not flow.started
    attempt = state.attempt(name) - is_queued
    facts += [f"attempt {attempt}"] if attempt else []
    if is_queued:
        facts.append("waits to start")
    elif flow.step is not Step.REST:
        facts.append(flow.step.value)
    if verdict := parse_report(settings.report(state, name)).verdict:
        facts.append(verdict.value)
    if by := state.graph.blocked.get(name):
        facts.append(f"blocked by {by}")
    if flow.branch:
        facts.append(f"work on {flow.branch}")
    elif flow.why and state.marker(name).value == "F":
        facts.append(shorten(" ".join(flow.why.partition("\n$ ")[0].split()), 100))
    return " · ".join(fact for fact in facts if fact)


def build_status_document(
    settings: SessionSettings, state: SessionState, *, alive: bool = False, aborted: bool = False
) -> dict[str, Any]:
    """The status of a session, as other tools know it."""
    data = state.metadata
    if settings.layout.is_classic:
        return {
            "status": "blocked" if aborted else _short_status(state),
            "session_id": data.session_id,
            "request": data.request,
            "current_state": state.layout.state_names.get(data.state, data.state),
            "last_action": _last_action(state),
            "next_action": next_action(settings, state, alive=alive, aborted=aborted),
            "summary": _summary(state),
            "tasks_summary": count_tasks(state),
        }
    return {
        "status": data.status,
        "session_id": data.session_id,
        "request": data.request,
        "iteration": data.iteration,
        "current_state": data.state,
        "current_wave": data.current_wave,
        "tasks_summary": count_tasks(state),
        "next_action": next_action(settings, state, alive=alive),
    }


def next_action(settings: SessionSettings, state: SessionState, *, alive: bool = False, aborted: bool = False) -> str:
    """What happens next, or what the user should do."""
    run = state.metadata.session_id
    asks = state.limits.approval == "signal" and not state.flow.approved
    approve = f"`ralph session approve {run}` keeps what it learned, `ralph session skip {run}` drops it"
    if alive:
        return approve if asks and state.state is State.KNOWLEDGE_APPROVAL else describe_running(run)
    say = f"`ralph session feedback {run}`"
    if settings.layout.is_classic:
        say = f'`ralph session update {run} "..."`'
    is_over = state.state in (State.COMPLETE, State.KNOWLEDGE_APPROVAL)
    if is_over and (find_new_feedback(settings, state) or list_misplaced_feedback(settings, state)):
        return f"`ralph session resume {run}` plans again with your feedback"
    if aborted and settings.layout.is_classic:
        return f"the session was aborted; to continue, give feedback with {say}, then `ralph session resume {run}`"
    if state.flow.stop_reason:
        if state.flow.is_pause:
            return f"{state.flow.stop_reason}; `ralph session resume {run}` continues"
        return f"blocked: {state.flow.stop_reason}; `ralph session resume {run}` tries again"
    if state.fault:
        return (
            f"the dependencies of the tasks are invalid: {state.fault}; correct them, then `ralph session resume {run}`"
        )
    if state.state is State.KNOWLEDGE_APPROVAL and asks:
        is_unfinished = state.metadata.status == Status.AWAITING_FEEDBACK
        return f"{approve}; the tasks that are left need feedback: {say}" if is_unfinished else approve
    if state.state is State.COMPLETE and state.metadata.status == Status.COMPLETED and not has_open_work(state):
        more = f"done; {say} {'asks for more' if settings.layout.is_classic else 'starts another iteration'}"
        return f"{more}; {approve}" if state.flow.undecided else more
    if state.flow.review_accepted and state.flow.lacks_proof:
        return f"`ralph diff {run}` shows the changes; if they are right: `{accept_command(run)}`"
    if _waits_for_user(state):
        return f"look at the result and give feedback: {say}, then `ralph session resume {run}`"
    return f"`ralph session resume {run}` continues with {_STAGES[state.state]}"


def _waits_for_user(state: SessionState) -> bool:
    """Whether the session continues only with feedback of the user."""
    if has_open_work(state):
        return False
    return state.state is State.COMPLETE or (state.layout.is_classic and state.state is State.BATCHING)


def _list_lines(settings: SessionSettings, state: SessionState, spent: str, *, alive: bool, aborted: bool) -> list[str]:
    """A classic session at a glance: its steps and tasks in their order, and its reviews."""
    facts = build_status_document(settings, state, alive=alive, aborted=aborted)
    head = [f"Session {facts['session_id']}", "classic", _describe_status(state, aborted=aborted)]
    head += [f"at {_STAGES[state.state]}"] if state.state is not State.COMPLETE else []
    lines = [" · ".join(head), "", settings.request.strip(), ""]
    blocked = {} if state.fault else state.graph.blocked
    for item in state.progress.items.values():
        about = _about_listed(state, item.id, blocked.get(item.id, ""))
        lines.append(f"  {MARKS[item.marker.value]} {item.id}  {about}".rstrip())
    for review in reviews(state):
        found = "complete" if review.complete else "gaps identified"
        lines.append(f"  progress.review{review.number}.md: {found}")
    lines += ["", *([f"Spent:  {spent}"] if spent else [])]
    return [*lines, f"Last:   {facts['last_action']}", f"Next:   {facts['next_action']}"]


def _about_listed(state: SessionState, id: str, blocked_by: str) -> str:
    task, attempts = state.tasks.get(id), state.layout.reports_in(state.texts, 1, id)
    facts = [task.title or shorten(task.objective, 60)] if task else []
    facts += ["no definition"] if task and task.is_missing else []
    facts += [f"{len(attempts)} attempts"] if len(attempts) > 1 else []
    facts += [f"inherits from {', '.join(task.inherits)}"] if task and task.inherits else []
    facts += [f"blocked by {blocked_by}"] if blocked_by else []
    return " · ".join(fact for fact in facts if fact)


def _short_status(state: SessionState) -> str:
    """One of the three statuses of a classic session."""
    if state.metadata.status == Status.COMPLETED:
        return "completed"
    is_stopped = bool(state.flow.stop_reason) and not state.flow.is_pause
    return "blocked" if is_stopped or state.fault or _waits_for_user(state) else "in_progress"


def _describe_status(state: SessionState, *, aborted: bool) -> str:
    """The status of a classic session in words."""
    if aborted:
        return "aborted"
    if state.metadata.status == Status.COMPLETED:
        return "completed"
    if state.flow.stop_reason:
        return "paused" if state.flow.is_pause else "blocked"
    return "awaiting feedback" if _waits_for_user(state) else "in progress"


def _summary(state: SessionState) -> str:
    done = count_tasks(state)
    facts = [f"{done['completed']} of {count_are(done['total'], 'task')} done"]
    if done["failed"]:
        facts.append(f"{done['failed']} failed")
    if not state.fault and state.graph.blocked:
        facts.append(f"{len(state.graph.blocked)} blocked")
    if number := len(reviews(state)):
        facts.append(f"{count(number, 'review')} of the whole session")
    return ", ".join(facts)


def _last_action(state: SessionState) -> str:
    """The latest action in the files of a session."""
    found = reviews(state)
    if state.state is State.COMPLETE and found:
        return f"the whole session was reviewed: progress.review{found[-1].number}.md"
    latest, latest_at = "nothing yet", 0.0
    for item in state.progress.items.values():
        match = _MOMENT.search(item.note)
        moment = parse_timestamp(match[0]) if match else None
        at = moment.timestamp() if moment else 0.0
        is_newest = at >= latest_at if at else not latest_at and item.marker.value != " "
        if is_newest:
            latest, latest_at = f"{item.id}: {item.note}", at
    return latest


def describe_running(run: str) -> str:
    """What the user can do while an engine runs the session."""
    return f"the session is running; `ralph logs -f {run}` follows it"
