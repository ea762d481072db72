"""How the command line shows a classic session, and tells of it in the form that other tools know."""

import re
from collections import Counter
from typing import Any

from ralph.cli.session_words import MARKS, under_way
from ralph.documents.session import markers, timestamps
from ralph.documents.session.markers import Marker
from ralph.workflows.classic.state import MOST_REVIEWS, ClassicState, State

_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT[\d:]+(?:Z|[+-]\d\d:?\d\d)")


def shown(state: ClassicState, request: str, spent: str = "", *, alive: bool = False, over: bool = False) -> list[str]:
    """A session at a glance: where it is, its tasks with their markers, what it cost, and what happens next."""
    told = contract(state, alive=alive, over=over)
    lines = [
        f"Session {told['session_id']}  {told['current_state']}  {told['status']}  classic",
        "",
        request.strip(),
        "",
    ]
    for item in state.progress.items.values():
        lines.append(f"  {MARKS[item.marker.value]} {item.id}  {_about(state, item.id)}".rstrip())
    for review in state.reviews:
        found = "complete" if review.complete else "gaps identified"
        lines.append(f"  progress.review{review.number}.md: {found}")
    lines += ["", *([f"Spent:  {spent}"] if spent else [])]
    return [*lines, f"Last:   {told['last_action']}", f"Next:   {told['next_action']}"]


def contract(state: ClassicState, *, alive: bool = False, over: bool = False) -> dict[str, Any]:
    """The session in the form that other tools know, and how many tasks there are of each kind; `over` where it was aborted."""
    counts = markers.counts(Counter(map(state.marker, state.tasks)))
    done = f"{counts['completed']} of {counts['total']} tasks are done"
    rest = [f"{counts['failed']} failed"] if counts["failed"] else []
    rest += [f"{len(state.blocked())} blocked"] if state.blocked() else []
    reviews = len(state.reviews)
    rest += [f"{reviews} review{'s' * (reviews > 1)} of the whole"] if reviews else []
    return {
        "status": "blocked" if over else _status(state),
        "session_id": state.layout.session_id,
        "current_state": state.state.value,
        "last_action": _last(state),
        "next_action": under_way(state.layout.session_id) if alive else _next(state, "it was aborted" if over else ""),
        "summary": ", ".join([done, *rest]),
        "tasks_summary": counts,
    }


def _about(state: ClassicState, id: str) -> str:
    task, attempts = state.tasks.get(id), state.layout.reports_in(state.texts, id)
    facts = [task.title or task.objective[:60]] if task else []
    facts += [f"{len(attempts)} attempts"] if len(attempts) > 1 else []
    facts += [f"inherits from {', '.join(task.inherits)}"] if task and task.inherits else []
    if by := state.blocked().get(id):
        facts.append(f"blocked by {by}")
    return " · ".join(fact for fact in facts if fact)


def _is_over(state: ClassicState) -> bool:
    return state.state is State.COMPLETE and state.judged is not None and state.judged.complete


def _waits(state: ClassicState) -> str:
    """Why a person has to say how it goes on; empty where it goes on by itself."""
    if state.was_blocked:
        return state.was_blocked
    if state.state is State.EXECUTING and not state.first(Marker.WIP) and not state.ready():
        return state.fault() or "what is left has failed, or waits for what has"
    if state.state is State.COMPLETE and (state.judged or state.rounds >= MOST_REVIEWS) and not _is_over(state):
        return "the last review found gaps"
    return ""


def _status(state: ClassicState) -> str:
    return "completed" if _is_over(state) else "blocked" if _waits(state) else "in_progress"


def _last(state: ClassicState) -> str:
    """The latest thing that the files tell of."""
    reviews = state.layout.reviews_in(state.texts)
    if state.state is State.COMPLETE and reviews:
        return f"the whole was reviewed: {list(reviews.values())[-1].rpartition('/')[2]}"
    told = []
    for item in state.progress.items.values():
        at = timestamps.parse(match[0]) if (match := _MOMENT.search(item.note)) else None
        told.append((at.timestamp() if at else 0.0, item.marker is not Marker.TODO, f"{item.id}: {item.note}"))
    timed = [one for one in told if one[0]]
    if timed:
        return max(timed)[2]
    return next((words for _, begun, words in reversed(told) if begun), "nothing yet")


def _next(state: ClassicState, why: str = "") -> str:
    """What happens next, or what a person should do."""
    id = state.layout.session_id
    if _is_over(state):
        return f'done; `ralph session update {id} "..."` asks for more'
    if waits := why or _waits(state):
        return f'{waits}; say how it goes on with `ralph session update {id} "..."`, then `ralph session resume {id}`'
    match state.state:
        case State.INITIALIZING:
            what = "the planner writes the plan"
        case State.PLANNING:
            what = f"{state.steps()[0]} is done"
        case State.REVIEWING:
            what = f"{state.first(Marker.PENDING)} is reviewed"
        case State.EXECUTING:
            what = f"{state.first(Marker.WIP) or state.ready()} is done"
        case State.COMPLETE:
            what = "the whole is reviewed"
    return f"`ralph session resume {id}` goes on: {what}"
