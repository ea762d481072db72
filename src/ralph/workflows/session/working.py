"""What follows from the work on tasks: executors, the engine's own checks, reviewers, splits and merges."""

from dataclasses import replace

from ralph.core.checks import Verdict
from ralph.core.errors import RalphError
from ralph.core.signals import scope_change
from ralph.core.turns import TurnEnd, TurnResult
from ralph.documents.session import progress, reports, tasks
from ralph.documents.session.markers import Marker
from ralph.documents.session.metadata import State, Status
from ralph.documents.session.timestamps import render as stamp
from ralph.workflows.merging import Settled
from ralph.workflows.session.board import Board
from ralph.workflows.session.state import SessionState, SessionTerms, Step, workspace

SPLIT_AFTER = 2
"""So many attempts that ran out of time, and a task is split."""
FEWEST_CHILDREN, MOST_CHILDREN = 2, 4
_QUOTED = 4000


def scheduled(terms: SessionTerms, state: SessionState, now: float) -> SessionState:
    """Begin what can begin, and say where that leaves the session."""
    state = state.followed()
    for name in [] if state.flow.stops else _to_start(terms, state):
        state = _begun(state, name, attempt_after(terms, state, name), now)
    state = state.followed()
    board = state.board
    state = state.with_metadata(current_wave=board.wave)
    steps = {state.of(name).step for name in board.active}
    if Step.EXECUTE in steps or Step.SPLIT in steps:
        return state.to(State.EXECUTING_BATCH)
    if steps - {Step.REST} or state.flow.queue.waiting:
        return state.to(State.REVIEWING_BATCH)
    if state.flow.stops:
        return state
    return state.with_flow(checked="", passed=False).to(State.SESSION_REVIEW)


def is_open(state: SessionState) -> bool:
    """Whether there is something to do after all: a person set back what had failed, or put in a task."""
    board = state.board
    return state.metadata.status != Status.ABORTED and (bool(board.active) or any(board.startable()))


def executed(terms: SessionTerms, state: SessionState, task: str, result: TurnResult, now: float) -> SessionState:
    """After an executor: to be checked, failed, or too large."""
    flow, answer = state.of(task), result.answer or {}
    if result.end is TurnEnd.WALL or (result.end is not TurnEnd.FINISHED and not answer):
        return _came_to_nothing(terms, state, task, result, now)
    body = result.papers.get("report.md") or result.text or "(the executor wrote no report)"
    text = reports.compose(task, state.metadata.iteration, flow.attempt, stamp(now), body)
    state = _filed(terms, state, task, text)
    if rescoped := scope_change(answer):
        state = state.with_task(task, rescoped=True)
        return closed(state, task, Marker.FAILED, f"failed: {stamp(now)}, {rescoped[:200]}", rescoped)
    if answer.get("status") != "completed" or not answer.get("success_criteria_met"):
        why = "; ".join(map(str, answer.get("blockers") or ())) or result.error or "its criteria are not met"
        return closed(state, task, Marker.FAILED, f"failed: {stamp(now)}", why)
    note = progress.annotation(flow.attempt, state.metadata.iteration, "review-pending")
    step = Step.CHECK if terms.criteria(state.tasks[task]) else Step.REVIEW
    return state.marked(task, Marker.PENDING, note).with_task(task, step=step, checked="")


def checked(terms: SessionTerms, state: SessionState, task: str, verdict: Verdict, now: float) -> SessionState:
    """After checks of the engine's own: what they saw fail, nobody can pass."""
    outputs = told(verdict)
    if verdict.passed:
        return state.with_task(task, step=Step.REVIEW, checked=outputs)
    said = "The engine ran the checks that the success criteria name. They do not hold; no reviewer was asked."
    state = _with_review(terms, state, task, f"### Review Summary\n{said}\n\n```\n{outputs}\n```", qualified=False)
    return closed(state, task, Marker.FAILED, f"failed: {stamp(now)}", outputs[:_QUOTED])


def reviewed(terms: SessionTerms, state: SessionState, task: str, result: TurnResult, now: float) -> SessionState:
    """After a reviewer: to be merged, or failed."""
    answer = result.answer or {}
    if result.end is not TurnEnd.FINISHED or answer.get("status") != "completed":
        why = "; ".join(map(str, answer.get("blockers") or ())) or result.error or str(result.end)
        return state.with_task(task, held=True).stopped(f"the review of {task} came to nothing: {why}")
    qualified = answer.get("verdict") == "Qualified"
    part = result.papers.get("review.md") or str(answer.get("feedback") or "")
    state = _with_review(terms, state, task, part, qualified)
    if not qualified:
        why = str(answer.get("feedback") or "the reviewer did not qualify it")
        return closed(state, task, Marker.FAILED, f"failed: {stamp(now)}", why)
    one = state.tasks[task]
    title = f"{task}: {one.title or one.objective}"[:72]
    queue = state.flow.queue.add(task, workspace(state, task), title, one.objective)
    return state.with_task(task, step=Step.MERGE).with_flow(queue=queue)


def split(terms: SessionTerms, state: SessionState, task: str, result: TurnResult, now: float) -> SessionState:
    """After a planner split a task: its children take its place, also for those that depend on it."""
    parsed = [tasks.parse(text, name) for name, text in sorted(result.papers.items())]
    new = [one for one in parsed if one.id not in state.tasks]
    if result.end is not TurnEnd.FINISHED or not FEWEST_CHILDREN <= len(new) <= MOST_CHILDREN:
        return closed(state, task, Marker.FAILED, f"failed: {stamp(now)}", state.of(task).why)
    number, needed = state.metadata.iteration, state.tasks[task].depends_on
    own = {one.id: [name for name in one.depends_on if name != task] for one in new}
    children = {one.id: replace(one, depends_on=tuple(dict.fromkeys((*own[one.id], *needed)))) for one in new}
    replaced = {**state.metadata.replaced, task: tuple(children)}
    try:
        Board({**state.tasks, **children}, replaced)
    except RalphError as error:
        why = f"the tasks that it was split into cannot be put in order: {error.what}"
        return closed(state, task, Marker.FAILED, f"failed: {stamp(now)}", why)
    texts = {terms.layout.task(number, name): tasks.render(one, stamp(now)) for name, one in children.items()}
    state = state.marked(task, Marker.CANCELLED, f"split due to timeouts: {', '.join(children)}")
    lines = [(name, Marker.TODO, f"split from {task}") for name in children]
    listed = state.progress.with_section(progress.implementation_title(number), lines)
    state = replace(state.with_texts(texts), tasks={**state.tasks, **children}, progress=listed)
    return state.with_task(task, step=Step.REST).with_metadata(replaced=replaced)


def settled(state: SessionState, work: Settled, now: float) -> SessionState:
    """After the merge queue is through with a task."""
    if work.is_in:
        return closed(state, work.task, Marker.DONE, f"qualified: {stamp(now)}")
    why = f"it could not be merged ({work.merged.end}); its work is on {work.merged.branch}"
    state = state.with_task(work.task, branch=work.merged.branch)
    return closed(state, work.task, Marker.FAILED, f"failed: {stamp(now)}", why)


def closed(state: SessionState, task: str, marker: Marker, note: str, why: str = "") -> SessionState:
    """A task at rest, with the marker that says what came of it."""
    head = f"Attempt {max(1, state.of(task).attempt)}, Iteration {state.metadata.iteration}, "
    state = state.marked(task, marker, head + note)
    return state.without_flow(task) if marker is Marker.DONE else state.with_task(task, step=Step.REST, why=why)


def reopened(terms: SessionTerms, state: SessionState) -> SessionState:
    """After replanning, what had failed is to be done again."""
    number = state.metadata.iteration
    failed = [name for name, task in state.tasks.items() if not task.is_missing]
    for name in [name for name in failed if state.marker(name) is Marker.FAILED]:
        why, attempt = state.of(name).why, 0 if terms.layout.nested else state.attempt(name)
        state = state.marked(name, Marker.TODO, f"Iteration {number}, reset")
        state = state.without_flow(name).with_task(name, why=why, attempt=attempt)
    return state


def attempt_after(terms: SessionTerms, state: SessionState, task: str) -> int:
    """The number of the next attempt; one that has a report is never used again."""
    number = state.attempt(task) + 1
    while terms.layout.report(state.metadata.iteration, task, number) in state.texts:
        number += 1
    return number


def told(verdict: Verdict) -> str:
    """What checks gave, for a reviewer and the next attempt: what failed comes first."""
    lines = [
        f"$ {r.command or r.title}\n" + ("(passed)" if r.passed else f"({r.reason})\n{r.output[-_QUOTED:].strip()}")
        for r in sorted(verdict.results, key=lambda r: r.passed)
    ]
    found = [f"{f.place} [{f.rule}] {f.sentence}" for f in verdict.gamed]
    return "\n".join([*lines, *found]).strip()


def _to_start(terms: SessionTerms, state: SessionState) -> list[str]:
    """The tasks that begin now: nobody works on the same files, and nothing beside one that has to be alone."""
    board = state.board
    room = state.guardrails.max_executors - sum(state.of(name).step is Step.EXECUTE for name in board.active)
    taken = {file for name in board.active for file in state.tasks[name].files}
    alone = any(_is_sequential(state, name) for name in board.active)
    chosen: list[str] = []
    for name in board.startable():
        if len(chosen) >= room or alone:
            break
        if terms.by_waves and not (board.wave and board.is_in_wave(name)):
            continue
        files, is_sequential = state.tasks[name].files, _is_sequential(state, name)
        if taken.intersection(files) or (is_sequential and (board.active or chosen)):
            continue
        chosen.append(name)
        taken.update(files)
        alone = is_sequential
    return chosen


def _begun(state: SessionState, task: str, attempt: int, now: float) -> SessionState:
    if state.marker(task) is Marker.FAILED:
        state = state.marked(task, Marker.TODO)
    note = progress.annotation(attempt, state.metadata.iteration, "started", stamp(now))
    state = state.marked(task, Marker.WIP, note)
    return state.with_task(task, step=Step.EXECUTE, attempt=attempt, tries=state.of(task).tries + 1)


def _came_to_nothing(
    terms: SessionTerms, state: SessionState, task: str, result: TurnResult, now: float
) -> SessionState:
    """After an executor that ran out of time, or failed again and again: a report, and smaller tasks where that helps."""
    flow, late = state.of(task), result.end is TurnEnd.WALL
    minutes = state.guardrails.task_wip_minutes
    why = f"it ran out of time ({minutes:g} minutes)" if late else result.error or "the agent failed again and again"
    text = reports.minimal(task, state.metadata.iteration, flow.attempt, stamp(now), why[:1].upper() + why[1:])
    state = _filed(terms, state, task, text).with_task(task, timeouts=flow.timeouts + late)
    is_child = any(task in children for children in state.metadata.replaced.values())
    if not is_child and (not late or flow.timeouts + 1 >= SPLIT_AFTER):
        return state.with_task(task, step=Step.SPLIT, why=why)
    return closed(state, task, Marker.FAILED, f"failed: {stamp(now)}, {why}", why)


def _filed(terms: SessionTerms, state: SessionState, task: str, text: str) -> SessionState:
    return state.with_texts({terms.layout.report(state.metadata.iteration, task, state.of(task).attempt): text})


def _with_review(terms: SessionTerms, state: SessionState, task: str, part: str, qualified: bool) -> SessionState:
    """The report with a review; where it says another verdict than the one that counts, or none, that one is added."""
    report = terms.report(state, task, state.of(task).attempt)
    verdict = reports.Verdict.QUALIFIED if qualified else reports.Verdict.FAILED
    text = reports.with_review(report, part)
    if reports.parse(text).verdict is not verdict:
        text = reports.with_review(report, f"{part.rstrip()}\n\n**Status**: {verdict}\n")
    return _filed(terms, state, task, text)


def _is_sequential(state: SessionState, name: str) -> bool:
    return state.tasks[name].type.lower() == "sequential"
