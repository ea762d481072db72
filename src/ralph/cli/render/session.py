"""How the command line tells what happens in a session, and how it shows one."""

import re
from itertools import groupby
from typing import Any

from ralph.cli.render.journal import Renderer
from ralph.core.events import RunEnded
from ralph.core.limits import ways_to_go_on
from ralph.core.outcomes import Outcome
from ralph.documents.session import reports, timestamps
from ralph.documents.session.metadata import State, Status
from ralph.workflows.session.closing import counts, new_feedback, reviews
from ralph.workflows.session.keys import Kind, WorkKey
from ralph.workflows.session.state import SessionState, Step
from ralph.workflows.session.terms import SessionTerms
from ralph.workflows.session.working import is_open


class SessionRenderer(Renderer):
    """Tells the records of one session, one after the other."""

    noun = "session"

    def about(self, key: str) -> str:
        return about(key)

    def then(self, ended: RunEnded) -> str:
        run = self.run
        if ways_to_go_on(ended.outcome, ended.limits, ended.spent):
            return super().then(ended)
        todo = {
            Outcome.AWAITING_FEEDBACK: f"ralph session feedback {run}, then ralph session resume {run}",
            Outcome.AWAITING_APPROVAL: f"ralph session approve {run}, or skip",
        }
        usual = f"ralph session resume {run}" if ended.outcome.resumable else f"ralph session show {run}"
        return todo.get(ended.outcome, usual)


def about(key: str) -> str:
    """What a turn or a check is for, in words."""
    work = WorkKey.parse(key)
    match work.kind if work else None:
        case Kind.PLAN if work:
            return work.step.removeprefix("plan-") + (f" ({work.category})" if work.category else "")
        case Kind.EXECUTE | Kind.CHECK | Kind.REVIEW if work:
            return work.task + (f", attempt {work.attempt}" if work.attempt != 1 else "")
        case Kind.SPLIT if work:
            return f"{work.task} is to be split"
        case Kind.CRITIQUE:
            return "tasks for the gaps"
        case Kind.EXTRACT:
            return "what was learned"
        case Kind.BASELINE:
            return "before any turn"
        case Kind.SESSION_CHECK | Kind.SESSION_REVIEW:
            return "the whole"
    return key


_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT[\d:]+(?:Z|[+-]\d\d:?\d\d)")
MARKS = {" ": "[ ]", "/": "[/]", "P": "[P]", "x": "[x]", "F": "[F]", "C": "[C]"}


def shown(
    terms: SessionTerms, state: SessionState, spent: str = "", *, alive: bool = False, aborted: bool = False
) -> list[str]:
    """A session at a glance: where it is, its tasks with their markers, what it cost, and what happens next."""
    if not terms.layout.has_metadata:
        return _shown_as_list(terms, state, spent, alive=alive, aborted=aborted)
    data = state.metadata
    facts = [f"Session {data.session_id}", f"iteration {data.iteration}", data.status.replace("_", " ")]
    facts += [data.state] if state.state is not State.COMPLETE else []
    lines = [" · ".join(facts), "", data.request.strip(), ""]
    planning = [item for item in state.progress.items.values() if item.is_planning]
    for number, steps in groupby(planning, lambda item: item.iteration or 1):
        said = "  ".join(f"{MARKS[item.marker.value]} {item.id.removeprefix('plan-')}" for item in steps)
        lines.append(f"Planning {number}  {said}")
    for number, names in enumerate(state.board.waves, 1):
        lines.append(f"Wave {number}")
        lines += [f"  {MARKS[state.marker(name).value]} {name}  {_about(terms, state, name)}" for name in names]
    return [*lines, "", *([f"Spent:  {spent}"] if spent else []), f"Next:   {next_action(terms, state, alive=alive)}"]


def _about(terms: SessionTerms, state: SessionState, name: str) -> str:
    flow, task = state.of(name), state.tasks[name]
    facts = ["no definition"] if task.is_missing else [task.title or task.objective[:60]]
    if others := state.metadata.replaced.get(name):
        return " · ".join([*facts, f"split into {', '.join(others)}"])
    facts += [f"attempt {state.attempt(name)}"] if state.attempt(name) else []
    facts += [flow.step.value] if flow.step is not Step.REST else []
    if verdict := reports.parse(terms.report(state, name)).verdict:
        facts.append(verdict.value)
    if by := state.board.blocked.get(name):
        facts.append(f"blocked by {by}")
    if flow.branch:
        facts.append(f"its work is on {flow.branch}")
    elif flow.why and state.marker(name).value == "F":
        facts.append(" ".join(flow.why.partition("\n$ ")[0].split())[:100])
    return " · ".join(fact for fact in facts if fact)


def contract(terms: SessionTerms, state: SessionState, *, alive: bool = False, aborted: bool = False) -> dict[str, Any]:
    """The session in the form that other tools know."""
    data = state.metadata
    if not terms.layout.has_metadata:
        return {
            "status": "blocked" if aborted else _short_status(state),
            "session_id": data.session_id,
            "request": data.request,
            "current_state": state.layout.state_names.get(data.state, data.state),
            "last_action": _last_action(state),
            "next_action": next_action(terms, state, alive=alive, aborted=aborted),
            "summary": _summary(state),
            "tasks_summary": counts(state),
        }
    return {
        "status": data.status,
        "session_id": data.session_id,
        "request": data.request,
        "iteration": data.iteration,
        "current_state": data.state,
        "current_wave": data.current_wave,
        "tasks_summary": counts(state),
        "next_action": next_action(terms, state, alive=alive),
    }


def next_action(terms: SessionTerms, state: SessionState, *, alive: bool = False, aborted: bool = False) -> str:
    """What happens next, or what the user should do."""
    run = state.metadata.session_id
    if alive:
        return under_way(run)
    say = f"`ralph session feedback {run}`"
    if not terms.layout.has_metadata:
        say = f'`ralph session update {run} "..."`'
    if state.state in (State.COMPLETE, State.KNOWLEDGE_APPROVAL) and new_feedback(terms, state):
        return f"`ralph session resume {run}` plans again, with the feedback that was given"
    if aborted and not terms.layout.has_metadata:
        return f"it was aborted; say how it goes on with {say}, then `ralph session resume {run}`"
    if state.flow.stop:
        return f"{'paused' if state.flow.paused else 'blocked'}: {state.flow.stop}; `ralph session resume {run}` tries again"
    if state.fault:
        return f"the tasks cannot be put in order: {state.fault}; correct them, then `ralph session resume {run}`"
    if state.state is State.KNOWLEDGE_APPROVAL and state.guardrails.approval == "signal" and not state.flow.approved:
        return f"`ralph session approve {run}` keeps what was learned, `ralph session skip {run}` does not"
    if state.state is State.COMPLETE and state.metadata.status == Status.COMPLETED and not is_open(state):
        return f"done; {say} begins another iteration" if terms.layout.has_metadata else f"done; {say} asks for more"
    if _waits_for_user(state):
        return f"look at the result and give feedback: {say}, then `ralph session resume {run}`"
    return f"`ralph session resume {run}` goes on ({state.layout.state_names.get(state.state, state.state.value)})"


def _waits_for_user(state: SessionState) -> bool:
    """Whether the session goes on only after the user said how."""
    if is_open(state):
        return False
    return state.state is State.COMPLETE or (state.layout.shares_tree and state.state is State.BATCHING)


def _shown_as_list(terms: SessionTerms, state: SessionState, spent: str, *, alive: bool, aborted: bool) -> list[str]:
    """A classic session at a glance: its steps and tasks in their order, and its reviews."""
    told = contract(terms, state, alive=alive, aborted=aborted)
    lines = [f"Session {told['session_id']}  {told['current_state']}  {told['status']}  classic"]
    lines += ["", terms.request.strip(), ""]
    blocked = {} if state.fault else state.board.blocked
    for item in state.progress.items.values():
        about = _about_listed(state, item.id, blocked.get(item.id, ""))
        lines.append(f"  {MARKS[item.marker.value]} {item.id}  {about}".rstrip())
    for review in reviews(state):
        found = "complete" if review.complete else "gaps identified"
        lines.append(f"  progress.review{review.number}.md: {found}")
    lines += ["", *([f"Spent:  {spent}"] if spent else [])]
    return [*lines, f"Last:   {told['last_action']}", f"Next:   {told['next_action']}"]


def _about_listed(state: SessionState, id: str, blocked_by: str) -> str:
    task, attempts = state.tasks.get(id), state.layout.reports_in(state.texts, 1, id)
    facts = [task.title or task.objective[:60]] if task else []
    facts += ["no definition"] if task and task.is_missing else []
    facts += [f"{len(attempts)} attempts"] if len(attempts) > 1 else []
    facts += [f"inherits from {', '.join(task.inherits)}"] if task and task.inherits else []
    facts += [f"blocked by {blocked_by}"] if blocked_by else []
    return " · ".join(fact for fact in facts if fact)


def _short_status(state: SessionState) -> str:
    """The status in the three words that a classic session has for it."""
    if state.metadata.status == Status.COMPLETED:
        return "completed"
    return "blocked" if state.flow.stop or state.fault or _waits_for_user(state) else "in_progress"


def _summary(state: SessionState) -> str:
    done = counts(state)
    told = [f"{done['completed']} of {done['total']} tasks are done"]
    told += [f"{done['failed']} failed"] if done["failed"] else []
    blocked = {} if state.fault else state.board.blocked
    told += [f"{len(blocked)} blocked"] if blocked else []
    number = len(reviews(state))
    told += [f"{number} review{'s' * (number > 1)} of the whole"] if number else []
    return ", ".join(told)


def _last_action(state: SessionState) -> str:
    """The latest thing that the files tell of."""
    found = reviews(state)
    if state.state is State.COMPLETE and found:
        return f"the whole was reviewed: progress.review{found[-1].number}.md"
    told = []
    for item in state.progress.items.values():
        at = timestamps.parse(match[0]) if (match := _MOMENT.search(item.note)) else None
        told.append((at.timestamp() if at else 0.0, item.marker.value != " ", f"{item.id}: {item.note}"))
    timed = [one for one in told if one[0]]
    if timed:
        return max(timed)[2]
    return next((words for _, begun, words in reversed(told) if begun), "nothing yet")


def under_way(run: str) -> str:
    """What happens next where an engine works on it."""
    return f"it is under way; `ralph logs -f {run}` follows it"
