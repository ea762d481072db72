"""The prompts of a loop: the role, the rules, the task, what the checks say, and what is known, each within its budget."""

from collections.abc import Mapping, Sequence

from ralph.core.checks import Check, CheckStatus, Evidence
from ralph.core.prompt import (
    PartSpec,
    Place,
    Prompt,
    build_prompt,
    fill_parts,
    fill_template,
    fits_budget,
    name_program,
    quote_text,
)
from ralph.core.turns import INBOX, OUTBOX, Change, FileStat, list_changed_files
from ralph.workflows.loop.learning import describe_changed_results, render_attempts, render_lessons
from ralph.workflows.loop.report import describe_change
from ralph.workflows.loop.state import Attempt, Iteration, LoopParameters, LoopState, TaskType

Templates = Mapping[str, str]
"""The templates of a loop, by their names."""
NAMES = (
    *("loop-actor", "loop-reflector", "loop-judge", "loop-pivot"),
    *("role-implementer", "role-test-engineer", "role-debugger"),
)
DEBUGGER_AFTER = 2
"""Iterations in a row without progress after which a debugger takes over."""
TASK_BUDGET = 8000
"""Tokens of the user's task in a prompt; of a longer one, all is in the inbox."""
TASK_FILE = "task.md"
_TASK = PartSpec(
    "What the user asked for.", Place.RUN, budget=TASK_BUDGET, source=f"{INBOX}/{TASK_FILE}", is_quoted=True
)
ACTOR_PARTS = {
    # The role changes at most a few times in a run, and a prompt begins with who is spoken to.
    "loop-actor": PartSpec("Who the agent is, and how a loop works.", Place.RUN),
    "rules": PartSpec("What holds for every iteration.", Place.RUN),
    "task": _TASK,
    "checks": PartSpec("What the engine runs to decide whether the work is done.", Place.RUN),
    "where-you-are": PartSpec("The iteration and the count of failures."),
    "check-results": PartSpec("What the checks said last.", budget=2500),
    "results-that-the-previous-iteration-changed": PartSpec("Which tests pass or fail since then.", budget=300),
    "findings": PartSpec("What the guards found.", budget=1500),
    "changed-by-this-run": PartSpec("Which files are the work of this run.", budget=500),
    "lessons": PartSpec("What earlier iterations did and learned.", budget=2500),
    "lessons-of-earlier-runs": PartSpec("What earlier runs learned about such failures.", budget=400),
    "another-approach": PartSpec("All that was tried without progress.", budget=4000),
    "your-answer": PartSpec("What to hand over.", Place.ANSWER),
}
JUDGE_PARTS = {
    "loop-judge": PartSpec("What a judge does.", Place.RUN),
    "request": _TASK,
    "files-to-judge": PartSpec("The judge files that the run changed.", budget=1500),
    "how-to-judge": PartSpec("What to accept and what to reject."),
    "your-own-tests": PartSpec("Which tests the judge adds."),
    "your-answer": PartSpec("What to hand over.", Place.ANSWER),
}
REFLECTOR_PARTS = {
    "loop-reflector": PartSpec("What a reflector does.", Place.RUN),
    "task-of-the-loop": _TASK,
    "what-iteration-did": PartSpec("What the iteration did."),
    "check-results-after-it": PartSpec("What the checks said last.", budget=2500),
    "lessons": PartSpec("What earlier iterations did and learned.", budget=1500),
    "your-answer": PartSpec("What to hand over.", Place.ANSWER),
}


def list_inbox(state: LoopState) -> dict[str, str]:
    """The files of the inbox: the task, if a prompt has no room for all of it."""
    return list_task_inbox(state.task)


def list_task_inbox(task: str) -> dict[str, str]:
    """The task as a file of the inbox, if a prompt has no room for all of it."""
    return {} if fits_budget(task.strip(), TASK_BUDGET) else {TASK_FILE: task}


def choose_role(state: LoopState, settings: LoopParameters) -> str:
    """Who does the next turn: a debugger if there is no progress, a test engineer if tests are the work."""
    if state.progress.stalled >= DEBUGGER_AFTER:
        return "debugger"
    return "test-engineer" if settings.type is TaskType.COVERAGE else "implementer"


def build_actor_prompt(
    templates: Templates,
    settings: LoopParameters,
    checks: Sequence[Check],
    state: LoopState,
    lessons: Sequence[Iteration],
) -> Prompt:
    """The prompt of an iteration."""
    is_last = settings.max_iterations is not None and state.iteration >= settings.max_iterations
    values = {
        "role": templates[f"role-{choose_role(state, settings)}"].strip(),
        "task": state.task,
        "checks": "\n".join(f"- {check.title}" for check in checks),
        "scope": "\n".join(filter(None, (_describe_scope(settings), _describe_may_change(settings)))),
        "iteration": str(state.iteration),
        "most": str(settings.max_iterations) if settings.max_iterations else "as many as it takes",
        "final": ", the final one" if is_last else "",
        "last": _LAST if is_last else "",
        "counts": _describe_counts(state),
        "failure": f"{_WHEN}\n{state.check_results}" if state.check_results else "",
        "news": describe_changed_results(state.fixed, state.broken),
        "findings": state.findings,
        "changed": name_program(_describe_changes(state.changed, settings)),
        "lessons": _describe_lessons(state, lessons),
        "recalled": "\n".join(f"- {line}" for line in state.recalled),
        "pivot": _describe_attempts(templates, state) if state.pivot else "",
        "inbox": INBOX,
        "outbox": OUTBOX,
    }
    return build_prompt(fill_parts("loop-actor", templates["loop-actor"], values, ACTOR_PARTS))


def _describe_lessons(state: LoopState, lessons: Sequence[Iteration]) -> str:
    """What earlier iterations taught. After a pivot, what had no success is listed there, and here is what helped."""
    if not state.pivot:
        return render_lessons(lessons, state.iteration - 1, state.tried)
    in_vain = {number for one in state.tried for number in one.iterations}
    text = render_lessons([one for one in lessons if one.number not in in_vain], state.iteration - 1)
    return f"{text}\n{_OTHERS_BELOW}" if text else ""


_WHEN = "The engine ran the checks just before this iteration."
_OTHERS_BELOW = "What the other iterations tried is listed below."
_LAST = "Leave the files in the best state that you can reach, and say in `next` what is missing."


def build_reflector_prompt(templates: Templates, settings: LoopParameters, state: LoopState) -> Prompt:
    """The prompt of a reflector."""
    last = state.iterations[-1]
    values = {
        "task": state.task,
        "iteration": str(last.number),
        "action": quote_text(last.action),
        "changes": describe_change(Change("", last.files, last.added, last.removed)),
        "diff": name_program(f"`ralph diff {settings.run_id}` shows all changes of this run.") if state.changed else "",
        "failure": "\n\n".join(text for text in (state.check_results, state.findings) if text),
        "lessons": render_lessons(
            [one for one in state.iterations[:-1] if one.learnings][-3:], last.number, _list_other_attempts(state, last)
        ),
        "inbox": INBOX,
        "outbox": OUTBOX,
    }
    return build_prompt(fill_parts("loop-reflector", templates["loop-reflector"], values, REFLECTOR_PARTS))


def build_judge_prompt(template: str, run: str, task: str, checks: Sequence[Check], evidence: Evidence) -> Prompt:
    """The prompt of a judge. It does not say what the checks found: the judge must come to its own conclusion."""
    show = (
        f"`ralph diff {run}` shows all changes of the run. Files that are not in the list are the product. "
        "Of a source file or a manifest in the list, judge only the tests and settings in it."
    )
    values = {
        "task": task,
        "files": "\n".join(f"- `{path}`" for path in evidence.to_judge)
        or "- none: tests and settings are as they were before the work",
        "diff": name_program(show),
        "checks": "\n".join(f"  - `{check.command or check.title}`" for check in checks),
        "inbox": INBOX,
        "outbox": OUTBOX,
    }
    return build_prompt(fill_parts("loop-judge", template, values, JUDGE_PARTS))


def _list_other_attempts(state: LoopState, last: Iteration) -> list[Attempt]:
    """What was tried without progress, without the iteration that a prompt is about."""
    return [one for one in state.tried if last.number not in one.iterations]


def compose_commit_message(task: str, iteration: Iteration) -> str:
    """What the commit of an iteration says: what was done, for what, and what the checks made of it."""
    action = " ".join(iteration.action.split())
    subject = action if len(action) <= 60 else action[:57] + "..."
    body = "" if action == subject else f"{action}\n\n"
    return (
        f"ralph: iteration {iteration.number} - {subject}\n\n{body}"
        f"Task: {' '.join(task.split())[:200]}\n"
        f"Checks: {iteration.result[:500]}\n"
    )


def _describe_counts(state: LoopState) -> str:
    if not state.progress.failures:
        return ""
    first, now, best = (f"{count:g}" for count in state.progress.failures if count is not None)
    if not state.iterations:
        return f"Failures in the output of the checks: {first}."
    known = f"Failures in the output of the checks: {first} before the first iteration"
    previous = state.iterations[-1]
    if previous.blocking:
        return f"{known}, lowest so far {best}. The previous result does not count because of the findings."
    if not _has_counted(previous):
        return f"{known}, lowest so far {best}. After the previous iteration they could not be counted."
    return f"{known}, {now} after the previous one, lowest so far {best}."


def _has_counted(iteration: Iteration) -> bool:
    """Whether the checks of an iteration say how much fails: they all ran."""
    known = (CheckStatus.PASSED, CheckStatus.FAILED)
    return all(check.status in known for check in iteration.checks)


def _describe_scope(settings: LoopParameters) -> str:
    if not settings.scope:
        return "- Work only in this directory, and only on what the task and its checks need."
    patterns = ", ".join(f"`{glob}`" for glob in settings.scope)
    return f"- Change only files that match {patterns}. A change to any other file fails the run."


def _describe_may_change(settings: LoopParameters) -> str:
    if not settings.may_change:
        return ""
    patterns = ", ".join(f"`{glob}`" for glob in settings.may_change)
    return (
        f"- You may change tests and settings of checks that match {patterns}, if the task needs it. Say why in `summary`."
        " The next rule is about all others."
    )


def _describe_changes(changed: Sequence[FileStat], settings: LoopParameters) -> str:
    """The files that this run changed, the latest last."""
    if not changed:
        return ""
    command = f"See these changes, without those of the user, with `ralph diff {settings.run_id}`."
    return "\n".join([*list_changed_files(changed), command])


def _describe_attempts(templates: Templates, state: LoopState) -> str:
    values = {"tried": render_attempts(state.tried), "times": str(state.progress.stalled)}
    return fill_template("loop-pivot", templates["loop-pivot"], values)
