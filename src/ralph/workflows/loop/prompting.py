"""The prompts of a loop: the role, the task, what done means, what is known, each within its budget."""

from collections.abc import Mapping, Sequence

from ralph.core.checks import Check
from ralph.core.turns import Change
from ralph.documents.templates import fill, fill_parts
from ralph.workflows.loop.kinds import TaskType
from ralph.workflows.loop.learning import lessons_text
from ralph.workflows.loop.report import changes_text
from ralph.workflows.loop.state import Fixed, Iteration, LoopState

Prompts = Mapping[str, str]
"""The templates of a loop, by their names."""
NAMES = ("loop-actor", "loop-reflector", "loop-pivot", "role-implementer", "role-test-engineer", "role-debugger")
INBOX, OUTBOX = ".ralph/turn/inbox", ".ralph/turn/outbox"
LESSONS_BUDGET = 2000
"""Characters of what past iterations learned."""
TRIED_BUDGET = 3000
"""Characters of what was tried without progress."""
DEBUGGER_AFTER = 2
"""Iterations in a row without progress after which a debugger takes over."""


def role_for(state: LoopState, fixed: Fixed) -> str:
    """Who does the next turn: a debugger if there is no progress, a test engineer if tests are the work."""
    if state.progress.stalled >= DEBUGGER_AFTER:
        return "debugger"
    return "test-engineer" if fixed.type is TaskType.COVERAGE else "implementer"


def actor_prompt(
    prompts: Prompts, fixed: Fixed, checks: Sequence[Check], state: LoopState, lessons: Sequence[Iteration]
) -> tuple[str, str]:
    """The prompt of a turn, and its end, before which messages of the user come."""
    role = f"role-{role_for(state, fixed)}"
    values = {
        "role": prompts[role].strip(),
        "task": state.task,
        "checks": "\n".join(f"- {check.title}" for check in checks),
        "scope": _scope(fixed),
        "iteration": str(state.iteration),
        "most": str(fixed.most or "as many as it takes"),
        "failure": _failure(state),
        "lessons": "" if state.pivot else _lessons(lessons),
        "recalled": _recalled(fixed),
        "pivot": _pivot(prompts, state) if state.pivot else "",
        "inbox": INBOX,
        "outbox": OUTBOX,
    }
    return fill_parts("loop-actor", prompts["loop-actor"], values)


def reflector_prompt(prompts: Prompts, state: LoopState) -> tuple[str, str]:
    """The prompt of a reflector, and its end, before which messages of the user come."""
    last = state.iterations[-1]
    values = {
        "task": state.task,
        "iteration": str(last.number),
        "action": last.action,
        "changes": changes_text(Change("", last.files, last.added, last.removed)),
        "failure": state.failure,
        "lessons": _lessons([i for i in state.iterations[:-1] if i.learnings][-3:]),
        "inbox": INBOX,
        "outbox": OUTBOX,
    }
    return fill_parts("loop-reflector", prompts["loop-reflector"], values)


def commit_message(task: str, iteration: Iteration) -> str:
    """What the commit of an iteration says: what was done, for what, and what the checks made of it."""
    subject = " ".join(iteration.action.split())
    subject = subject if len(subject) <= 60 else subject[:57] + "..."
    said = " ".join(iteration.action.split())
    return (
        f"ralph: iteration {iteration.number} - {subject}\n\n"
        f"{'' if said == subject else said + chr(10) * 2}"
        f"Task: {' '.join(task.split())[:200]}\n"
        f"Checks: {iteration.result[:500]}\n"
    )


def _failure(state: LoopState) -> str:
    if not state.failure:
        return ""
    counted = ""
    if state.progress.failures:
        first, now, best = (f"{count:g}" for count in state.progress.failures if count is not None)
        counted = f"Failures: {first} before the first iteration, {now} now, {best} at best.\n"
    return f"{counted}The checks do not pass yet:\n{state.failure}"


def _scope(fixed: Fixed) -> str:
    if not fixed.scope:
        return "- Work only in this directory, and only on what the task asks for."
    return f"- Change only files that match {', '.join(f'`{glob}`' for glob in fixed.scope)}; other changes fail the checks."


def _lessons(iterations: Sequence[Iteration]) -> str:
    if not iterations:
        return ""
    return "What earlier iterations did and learned:\n" + lessons_text(iterations, LESSONS_BUDGET)


def _recalled(fixed: Fixed) -> str:
    if not fixed.recalled:
        return ""
    return "What was learned here before, on tasks like this one:\n" + "\n".join(f"- {line}" for line in fixed.recalled)


def _pivot(prompts: Prompts, state: LoopState) -> str:
    stalled = state.iterations[-state.progress.stalled :]
    values = {"tried": lessons_text(stalled, TRIED_BUDGET), "times": str(state.progress.stalled)}
    return fill("loop-pivot", prompts["loop-pivot"], values).strip()
