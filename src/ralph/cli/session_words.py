"""How the command line tells what happens in a session, and how it shows one."""

from itertools import groupby
from typing import Any

from ralph.cli.words import Teller
from ralph.core.events import RunEnded
from ralph.core.limits import ways_to_go_on
from ralph.core.outcomes import Outcome
from ralph.documents.session import reports
from ralph.documents.session.metadata import State, Status
from ralph.workflows.session.closing import counts, new_feedback
from ralph.workflows.session.state import SessionState, SessionTerms, Step
from ralph.workflows.session.working import is_open


class SessionTeller(Teller):
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
    kind, _, rest = key.partition(":")
    task, _, attempt = rest.rpartition("-")
    match kind:
        case "plan":
            step, _, place = rest.partition("@")
            category = "".join(place.split(".", 2)[2:])
            return step.removeprefix("plan-") + (f" ({category})" if category else "")
        case "execute" | "check" | "review" if task and task != "session":
            return task + (f", attempt {attempt}" if attempt != "1" else "")
        case "split":
            return f"{task} is to be split"
        case "critique":
            return "tasks for the gaps"
        case "extract":
            return "what was learned"
        case "baseline":
            return "before any turn"
    return "the whole" if "session-" in key else key


MARKS = {" ": "[ ]", "/": "[/]", "P": "[P]", "x": "[x]", "F": "[F]", "C": "[C]"}


def shown(terms: SessionTerms, state: SessionState, spent: str = "", *, alive: bool = False) -> list[str]:
    """A session at a glance: where it is, its waves with their markers, what it cost, and what happens next."""
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


def contract(terms: SessionTerms, state: SessionState, *, alive: bool = False) -> dict[str, Any]:
    """The session in the form that other tools know."""
    data = state.metadata
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


def next_action(terms: SessionTerms, state: SessionState, *, alive: bool = False) -> str:
    """What happens next, or what a person should do."""
    run = state.metadata.session_id
    if alive:
        return under_way(run)
    if state.state in (State.COMPLETE, State.KNOWLEDGE_APPROVAL) and new_feedback(terms, state):
        return f"`ralph session resume {run}` plans again, with the feedback that was given"
    if state.flow.stop:
        return f"{'paused' if state.flow.paused else 'blocked'}: {state.flow.stop}; `ralph session resume {run}` tries again"
    if state.state is State.KNOWLEDGE_APPROVAL and state.guardrails.approval == "signal" and not state.flow.approved:
        return f"`ralph session approve {run}` keeps what was learned, `ralph session skip {run}` does not"
    if state.state is not State.COMPLETE or is_open(state):
        return f"`ralph session resume {run}` goes on ({state.state.value})"
    if state.metadata.status == Status.COMPLETED:
        return f"done; `ralph session feedback {run}` begins another iteration"
    return f"look at the result and give feedback: `ralph session feedback {run}`, then `ralph session resume {run}`"


def under_way(run: str) -> str:
    """What happens next where an engine works on it."""
    return f"it is under way; `ralph logs -f {run}` follows it"
