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
from ralph.workflows.session.state import SessionState, Step, workspace
from ralph.workflows.session.terms import SessionTerms

SPLIT_AFTER = 2
"""So many attempts that ran out of time, and a task is split."""
FEWEST_CHILDREN, MOST_CHILDREN = 2, 4
_QUOTED = 4000


def scheduled(terms: SessionTerms, state: SessionState, now: float) -> SessionState:
    """Begin what can begin, and say where that leaves the session."""
    try:
        state = settle_by_reports(terms, state, now).followed()
    except RalphError:
        # The tasks cannot be put in order: nothing begins, and the decision says why.
        return state
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
    if terms.layout.shares_tree and state.has_work_left:
        # Nobody reviews a whole of which a part is missing: the user says first how it goes on.
        return state.to(State.BATCHING)
    return state.with_flow(checked="", passed=False).to(State.SESSION_REVIEW)


def is_open(state: SessionState) -> bool:
    """Whether there is something to do after all: a person set back what had failed, or put in a task."""
    if state.fault:
        return False
    board = state.board
    return state.metadata.status != Status.ABORTED and (bool(board.active) or any(board.startable()))


def executed(terms: SessionTerms, state: SessionState, task: str, result: TurnResult, now: float) -> SessionState:
    """After an executor: to be checked, failed, or too large."""
    answer = result.answer or {}
    came_to_nothing = result.end is TurnEnd.WALL or (result.end is not TurnEnd.FINISHED and not answer)
    if came_to_nothing and not terms.layout.shares_tree:
        return _came_to_nothing(terms, state, task, result, now)
    state = _filed(terms, state, task, _compose_report(terms, state, task, result, now))
    if rescoped := scope_change(answer):
        state = state.with_task(task, rescoped=True)
        return failed(state, task, now, rescoped, rescoped[:200])
    if came_to_nothing or answer.get("status") != "completed" or not answer.get("success_criteria_met"):
        why = "; ".join(map(str, answer.get("blockers") or ())) or result.error
        why = why or ("it ran out of time" if result.end is TurnEnd.WALL else "its criteria are not met")
        if terms.layout.shares_tree:
            part = f"### Review Summary\nThe attempt came to nothing, and no reviewer was asked: {why}"
            state = _with_review(terms, state, task, part, qualified=False)
        return failed(state, task, now, why)
    step = Step.CHECK if terms.criteria(state.tasks[task]) else Step.REVIEW
    return state.annotated(task, Marker.PENDING, "pending", stamp(now)).with_task(task, step=step, checked="")


def checked(terms: SessionTerms, state: SessionState, task: str, verdict: Verdict, now: float) -> SessionState:
    """After checks of the engine's own: what they saw fail, nobody can pass."""
    outputs = told(verdict)
    if verdict.passed:
        return state.with_task(task, step=Step.REVIEW, checked=outputs)
    said = "The engine ran the checks that the success criteria name. They do not hold; no reviewer was asked."
    part = f"### Review Summary\n{said}\n\n```\n{outputs}\n```"
    state = _with_review(terms, state, task, part, qualified=False)
    return failed(state, task, now, outputs[:_QUOTED])


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
        return failed(state, task, now, str(answer.get("feedback") or "the reviewer did not qualify it"))
    if terms.layout.shares_tree:
        return state
    one = state.tasks[task]
    title = f"{task}: {one.title or one.objective}"[:72]
    queue = state.flow.queue.add(task, workspace(state, task), title, one.objective)
    return state.with_task(task, step=Step.MERGE).with_flow(queue=queue)


def settle_by_reports(terms: SessionTerms, state: SessionState, now: float) -> SessionState:
    """In a tree that all share, nothing is merged: the verdict in the report settles a task, once its checks agree."""
    if not terms.layout.shares_tree:
        return state
    for task in [name for name in state.tasks if state.marker(name) is Marker.PENDING]:
        report = state.reports(task).get(state.of(task).attempt)
        if report and report.verdict is reports.Verdict.FAILED:
            state = failed(state, task, now, "the reviewer did not qualify it")
        elif report and report.verdict and state.of(task).step is Step.REVIEW:
            state = state.annotated(task, Marker.DONE, "qualified", stamp(now)).without_flow(task)
    return state


def recheck(terms: SessionTerms, state: SessionState) -> SessionState:
    """The state in which nothing counts as checked: the tree is not the one that the checks saw."""
    for name in state.tasks:
        if state.of(name).step is Step.REVIEW and terms.criteria(state.tasks[name]):
            state = state.with_task(name, step=Step.CHECK)
    return state.with_flow(checked="", passed=False)


def changed_tree(result: TurnResult) -> bool:
    """Whether a turn changed files: what was checked before says nothing of the tree then."""
    return result.change is not None and result.change.files > 0


def split(terms: SessionTerms, state: SessionState, task: str, result: TurnResult, now: float) -> SessionState:
    """After a planner split a task: its children take its place, also for those that depend on it."""
    parsed = [tasks.parse(text, name) for name, text in sorted(result.papers.items())]
    new = [one for one in parsed if one.id not in state.tasks]
    if result.end is not TurnEnd.FINISHED or not FEWEST_CHILDREN <= len(new) <= MOST_CHILDREN:
        return failed(state, task, now, state.of(task).why)
    number, needed = state.metadata.iteration, state.tasks[task].depends_on
    own = {one.id: [name for name in one.depends_on if name != task] for one in new}
    children = {one.id: replace(one, depends_on=tuple(dict.fromkeys((*own[one.id], *needed)))) for one in new}
    replaced = {**state.metadata.replaced, task: tuple(children)}
    try:
        Board({**state.tasks, **children}, replaced)
    except RalphError as error:
        why = f"the tasks that it was split into cannot be put in order: {error.what}"
        return failed(state, task, now, why)
    texts = {terms.layout.task(number, name): tasks.render(one, stamp(now)) for name, one in children.items()}
    state = state.marked(task, Marker.CANCELLED, f"split due to timeouts: {', '.join(children)}")
    lines = [(name, Marker.TODO, f"split from {task}") for name in children]
    listed = state.progress.with_section(progress.implementation_title(number), lines)
    state = replace(state.with_texts(texts), tasks={**state.tasks, **children}, progress=listed)
    return state.with_task(task, step=Step.REST).with_metadata(replaced=replaced)


def settled(state: SessionState, work: Settled, now: float) -> SessionState:
    """After the merge queue is through with a task."""
    if work.is_in:
        return state.annotated(work.task, Marker.DONE, "qualified", stamp(now)).without_flow(work.task)
    why = f"it could not be merged ({work.merged.end}); its work is on {work.merged.branch}"
    state = state.with_task(work.task, branch=work.merged.branch)
    return failed(state, work.task, now, why)


def failed(state: SessionState, task: str, now: float, why: str, told: str = "") -> SessionState:
    """An attempt came to nothing: the task is at rest, and its line says so; `told` is what else the line says."""
    is_tried_again = state.layout.retries_as_todo and state.of(task).tries < state.guardrails.rework_attempts
    marker = Marker.TODO if is_tried_again else Marker.FAILED
    return state.annotated(task, marker, "failed", stamp(now), told).with_task(task, step=Step.REST, why=why)


def reopened(terms: SessionTerms, state: SessionState) -> SessionState:
    """After planning with what the user asked for, what had failed is to be done again; its tries are counted anew."""
    defined = [name for name, task in state.tasks.items() if not task.is_missing]
    for name in [name for name in defined if state.marker(name) is Marker.FAILED]:
        why, attempt = state.of(name).why, 0 if terms.layout.nested else state.attempt(name)
        state = state.annotated(name, Marker.TODO, "reset", attempt=attempt_after(terms, state, name))
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
    if terms.layout.shares_tree:
        startable = set(board.startable())
        return [] if board.active else [name for name in state.tasks if name in startable][:1]
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
    state = state.with_task(task, step=Step.EXECUTE, attempt=attempt, tries=state.of(task).tries + 1)
    return state.annotated(task, Marker.WIP, "started", stamp(now))


def _came_to_nothing(
    terms: SessionTerms, state: SessionState, task: str, result: TurnResult, now: float
) -> SessionState:
    """After an executor that ran out of time, or failed again and again: a report, and smaller tasks if that helps."""
    flow, late = state.of(task), result.end is TurnEnd.WALL
    minutes = state.guardrails.task_wip_minutes
    why = f"it ran out of time ({minutes:g} minutes)" if late else result.error or "the agent failed again and again"
    text = reports.minimal(task, state.metadata.iteration, flow.attempt, stamp(now), why[:1].upper() + why[1:])
    state = _filed(terms, state, task, text).with_task(task, timeouts=flow.timeouts + late)
    is_child = any(task in children for children in state.metadata.replaced.values())
    if not is_child and (not late or flow.timeouts + 1 >= SPLIT_AFTER):
        return state.with_task(task, step=Step.SPLIT, why=why)
    return failed(state, task, now, why, why)


def _compose_report(terms: SessionTerms, state: SessionState, task: str, result: TurnResult, now: float) -> str:
    body, attempt = result.papers.get("report.md") or result.text, state.of(task).attempt
    if not terms.layout.has_metadata:
        return reports.compose_classic(task, attempt, body)
    body = body or "(the executor wrote no report)"
    return reports.compose(task, state.metadata.iteration, attempt, stamp(now), body)


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
