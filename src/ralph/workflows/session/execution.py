"""Starts tasks, and accepts the results of executors, checks, reviewers, splits and merges."""

from dataclasses import replace

from ralph.core.check_output import excerpt_output, fence
from ralph.core.checks import Verdict
from ralph.core.errors import RalphError
from ralph.core.events import MergeEnded, TurnEnded
from ralph.core.signals import find_scope_change
from ralph.core.turns import TurnEnd, TurnResult
from ralph.documents.session import progress, tasks
from ralph.documents.session.layout import ClassicLayout
from ralph.documents.session.metadata import State, Status
from ralph.documents.session.progress import Marker
from ralph.documents.session.reports import (
    ReviewVerdict,
    append_review,
    compose_classic_report,
    compose_failed_report,
    compose_report,
    parse_report,
)
from ralph.documents.session.values import render_timestamp as stamp
from ralph.workflows.merge_rules import MERGE_FAILURES, SettledMerge
from ralph.workflows.session.state import SessionSettings, SessionState, Step, describe_failure, name_task_worktree
from ralph.workflows.session.task_graph import TaskGraph

MAX_REPLANS = 2
"""How often a task is planned again in an iteration because the user asked for something else."""
SPLIT_AFTER = 2
"""A task is split after this number of attempts that ran out of time."""
MIN_CHILDREN, MAX_CHILDREN = 2, 4
_MAX_QUOTED_CHARS = 4000
"""Characters of the output of checks for a reviewer, and in a report."""
MAX_WHY_CHARS = 2000
"""Characters of the output of checks for the next attempt; its prompt has room for a few more (`prompts.WHY_BUDGET`)."""
_MAX_FILES = 20
REVIEW_FAILURES = {
    TurnEnd.WALL: "its review ran out of time in every try",
    TurnEnd.IDLE: "its review ran out of time in every try",
    TurnEnd.FAILED: "its reviewer failed in every try",
}
"""How a reviewer ends that gives no verdict although it was tried again, and what the task's line says about it."""


def advance_tasks(settings: SessionSettings, state: SessionState) -> SessionState:
    """Start the tasks that can start, and choose the next state of the session."""
    state = mark_startable_tasks(settings, state)
    if state.fault:
        # No task starts, and the decision says why.
        return state
    graph = state.graph
    state = state.with_metadata(current_wave=graph.wave or len(graph.waves))
    steps = {state.flow_of(name).step for name in graph.active}
    if steps & {Step.EXECUTE, Step.SPLIT, Step.REPLAN}:
        return state.with_state(State.EXECUTING_BATCH)
    if steps - {Step.REST} or state.flow.queue.waiting:
        return state.with_state(State.REVIEWING_BATCH)
    if state.flow.is_stopped:
        return state
    if settings.layout.is_classic and state.has_work_left:
        # A session with unfinished tasks is not reviewed. The user decides first how it continues.
        return state.with_state(State.BATCHING)
    return state.with_flow(check_results="", session_checks_passed=False).with_state(State.SESSION_REVIEW)


def mark_startable_tasks(settings: SessionSettings, state: SessionState) -> SessionState:
    """The state in which the tasks that can start have the step EXECUTE."""
    if state.fault:
        return state
    state = state.with_current_graph()
    for name in [] if state.flow.is_stopped else _choose_tasks(settings, state):
        state = _request_attempt(state, name, choose_next_attempt(settings, state, name))
    return state.with_current_graph()


def has_open_work(state: SessionState) -> bool:
    """Whether tasks can run again: the user reset a failed task, or added a task."""
    if state.fault:
        return False
    graph = state.graph
    return state.metadata.status != Status.ABORTED and (bool(graph.active) or any(graph.startable()))


def accept_execution(
    settings: SessionSettings, state: SessionState, task: str, result: TurnResult, now: float
) -> SessionState:
    """Accept an executor's result: check it, review it, fail the attempt, split the task, or plan it again."""
    answer = result.answer or {}
    has_no_result = result.end is TurnEnd.WALL or (result.end is not TurnEnd.FINISHED and not answer)
    if has_no_result and not settings.layout.is_classic:
        return _fail_without_answer(settings, state, task, result, now)
    state = _store_report(settings, state, task, _compose_report(settings, state, task, result, now))
    if rescoped := find_scope_change(answer):
        return _plan_task_again(settings, state, task, rescoped, now)
    if has_no_result or answer.get("status") != "completed" or not answer.get("success_criteria_met"):
        why = describe_failure(result)
        if not why:
            why = "it ran out of time" if result.end is TurnEnd.WALL else "its criteria are not met"
        if settings.layout.is_classic:
            part = f"### Review Summary\nThe attempt produced no usable result, so no reviewer was started: {why}"
            state = _with_review(settings, state, task, part, qualified=False)
        return fail_attempt(state, task, now, why)
    step = Step.CHECK if settings.compile_task_checks(state.tasks[task]) else Step.REVIEW
    return state.with_annotation(task, Marker.PENDING, "pending", stamp(now)).with_task_flow(
        task, step=step, check_results=""
    )


def _plan_task_again(
    settings: SessionSettings, state: SessionState, task: str, rescoped: str, now: float
) -> SessionState:
    """The user asked for something else: a planner changes the task. If that does not help, the user has to say more."""
    replans = state.flow_of(task).replans
    state = state.with_task_flow(task, rescoped=True, replans=replans + 1)
    state = fail_attempt(state, task, now, rescoped, note=rescoped[:200])
    if replans >= MAX_REPLANS:
        return state
    if not settings.layout.is_classic:
        return state.with_task_flow(task, step=Step.REPLAN)
    return add_update(state, rescoped, f"asked for during {task}")


def add_update(state: SessionState, asked: str, when: str) -> SessionState:
    """The state of a classic session with an update of the plan, in the words of the user."""
    layout = state.layout
    assert isinstance(layout, ClassicLayout)
    number = max(layout.updates_in(state.texts), default=0) + 1
    said = state.texts.get(layout.notes, "")
    text = f"# Update {number}\n\n- {asked} ({when})\n\n{said}".rstrip() + "\n"
    return state.with_texts({layout.update(number): text})


def accept_checks(
    settings: SessionSettings, state: SessionState, task: str, verdict: Verdict, now: float
) -> SessionState:
    """After the checks of a task: if one fails, or a guard found something, the attempt fails without a review."""
    outputs = describe_verdict(verdict)
    if verdict.passed:
        return state.with_task_flow(task, step=Step.REVIEW, check_results=outputs)
    summary = "The engine ran the checks that the success criteria name. They failed, so no reviewer was started."
    if verdict.results and not verdict.not_passed:
        summary = (
            "The engine ran the checks that the success criteria name. They passed, but the work cannot be accepted,"
            " so no reviewer was started."
        )
    part = f"### Review Summary\n{summary}\n\n{fence(outputs)}"
    state = _with_review(settings, state, task, part, qualified=False)
    return fail_attempt(state, task, now, describe_verdict(verdict, MAX_WHY_CHARS))


def accept_review(
    settings: SessionSettings, state: SessionState, task: str, result: TurnResult, now: float
) -> SessionState:
    """After a reviewer: to be merged, or failed."""
    answer = result.answer or {}
    if state.flow_of(task).reviewing:
        state = state.with_task_flow(task, reviewing=False)
    if rescoped := find_scope_change(answer):
        part = f"### Review Summary\nThe user asked for something else, so the work was not reviewed: {rescoped}"
        state = _with_review(settings, state, task, part, qualified=False)
        return _plan_task_again(settings, state, task, rescoped, now)
    if result.end in REVIEW_FAILURES and not settings.layout.is_classic:
        return _fail_without_review(settings, state, task, result, now)
    if result.end is not TurnEnd.FINISHED or answer.get("status") != "completed":
        why = describe_failure(result) or str(result.end)
        if result.end is TurnEnd.WALL:
            # A classic session cannot split a task, so the user has to make it smaller.
            why = f'it ran out of time in every try; reduce the scope: ralph resume {settings.id} --guidance "Only ..."'
        reason = f"the review of {task} produced no usable result: {why}"
        others = f"{state.flow.stop_reason}; " if state.flow.is_stopped and not state.flow.is_pause else ""
        return state.with_task_flow(task, waits_for_resume=True).with_stop(others + reason)
    qualified = answer.get("verdict") == "Qualified"
    part = result.documents.get("review.md") or str(answer.get("feedback") or "")
    state = _with_review(settings, state, task, part, qualified)
    if not qualified:
        return fail_attempt(state, task, now, str(answer.get("feedback") or "the reviewer did not qualify it"))
    if settings.layout.is_classic:
        # The review in its report finishes the task, also if someone else wrote it: see `finish_tasks_by_reports`.
        checks_again = state.flow_of(task).checks_again
        return state.with_task_flow(task, step=Step.CHECK, checks_again=False) if checks_again else state
    one = state.tasks[task]
    title = f"{task}: {one.title or one.objective}"[:72]
    queue = state.flow.queue.add(task, name_task_worktree(state, task), title, one.objective)
    return state.with_task_flow(task, step=Step.MERGE).with_flow(queue=queue)


def _fail_without_review(
    settings: SessionSettings, state: SessionState, task: str, result: TurnResult, now: float
) -> SessionState:
    """After a reviewer that gave no verdict in any try: split the task. A task that is a part already fails."""
    failure = REVIEW_FAILURES[result.end]
    why = f"{failure}: {result.error}" if result.end is TurnEnd.FAILED and result.error else failure
    part = f"### Review Summary\nNobody reviewed the work: {why}"
    state = _with_review(settings, state, task, part, qualified=False)
    is_part = _is_part_of_split(state, task)
    state = fail_attempt(state, task, now, why, note=failure)
    return state if is_part else state.with_task_flow(task, step=Step.SPLIT, review_failure=failure)


def finish_tasks_by_reports(settings: SessionSettings, state: SessionState, now: float) -> SessionState:
    """In a shared tree nothing is merged: the verdict in its report finishes a task whose checks have passed."""
    if not settings.layout.is_classic:
        return state
    for task in [name for name in state.tasks if state.marker(name) is Marker.PENDING]:
        report = state.reports(task).get(state.flow_of(task).attempt)
        if report and report.verdict is ReviewVerdict.FAILED:
            state = fail_attempt(state, task, now, "the reviewer did not qualify it")
        elif report and report.verdict and state.flow_of(task).step is Step.REVIEW:
            state = state.with_finished_task(task, stamp(now))
    return state


def require_checks_again(settings: SessionSettings, state: SessionState) -> SessionState:
    """The state in which all checks have to run again, because the tree has changed."""
    for name in state.tasks:
        if state.flow_of(name).step is Step.REVIEW and settings.compile_task_checks(state.tasks[name]):
            state = state.with_task_flow(name, step=Step.CHECK)
    return state.with_flow(check_results="", session_checks_passed=False)


def has_changed_tree(ended: TurnEnded) -> bool:
    """Whether the turns for some work changed files, so that earlier checks do not count for the tree."""
    change = ended.change
    return change is not None and change.files > 0


def accept_split(
    settings: SessionSettings, state: SessionState, task: str, result: TurnResult, now: float
) -> SessionState:
    """After a planner split a task: its children replace it, also as dependencies of other tasks."""
    parsed = [tasks.parse_task(text, name) for name, text in sorted(result.documents.items())]
    new = [one for one in parsed if one.id not in state.tasks]
    if result.end is not TurnEnd.FINISHED or not MIN_CHILDREN <= len(new) <= MAX_CHILDREN:
        return fail_attempt(state, task, now, state.flow_of(task).why)
    number, needed = state.metadata.iteration, state.tasks[task].depends_on
    children = {}
    for one in new:
        others = [name for name in one.depends_on if name != task]
        children[one.id] = replace(one, depends_on=tuple(dict.fromkeys((*others, *needed))))
    replaced = {**state.metadata.replaced, task: tuple(children)}
    try:
        TaskGraph({**state.tasks, **children}, replaced)
    except RalphError as error:
        why = f"the dependencies of the tasks that it was split into are invalid: {error.what}"
        return fail_attempt(state, task, now, why)
    texts = {settings.layout.task(number, name): tasks.render_task(one, stamp(now)) for name, one in children.items()}
    flow, cause = state.flow_of(task), "split because the agent failed in every try"
    if flow.review_failure:
        cause = f"split because {flow.review_failure}"
    elif flow.timeouts >= SPLIT_AFTER:
        cause = "split due to timeouts"
    state = state.with_marker(task, Marker.CANCELLED, f"{cause}: {', '.join(children)}")
    lines = [(name, Marker.TODO, f"split from {task}") for name in children]
    listed = state.progress.with_section(progress.implementation_title(number), lines)
    state = replace(state.with_texts(texts), tasks={**state.tasks, **children}, progress=listed)
    return state.with_task_flow(task, step=Step.REST).with_metadata(replaced=replaced)


def accept_merge(state: SessionState, work: SettledMerge, now: float) -> SessionState:
    """After the merge queue merged a task, or gave it up."""
    if work.is_merged:
        return state.with_finished_task(work.task, stamp(now))
    state = state.with_task_flow(work.task, branch=work.merge.branch)
    return fail_attempt(state, work.task, now, _describe_merge(work.merge))


def _describe_merge(merged: MergeEnded) -> str:
    """Why a merge was given up, for the next attempt."""
    lines = [f"it could not be merged (its work is on {merged.branch}): {MERGE_FAILURES[merged.end]}"]
    if merged.files:
        lines.append(f"files: {', '.join(merged.files[:_MAX_FILES])}")
    if merged.verdict and not merged.verdict.passed:
        lines.append(describe_verdict(merged.verdict, MAX_WHY_CHARS))
    return "\n".join(lines)


def fail_attempt(state: SessionState, task: str, now: float, why: str, *, note: str = "") -> SessionState:
    """The state after an attempt that failed: the task rests, and its line says that it failed, with the note."""
    is_tried_again = (
        state.layout.retries_as_todo and state.flow_of(task).attempts_in_iteration < state.limits.rework_attempts
    )
    marker = Marker.TODO if is_tried_again else Marker.FAILED
    return state.with_annotation(task, marker, "failed", stamp(now), note).with_task_flow(task, step=Step.REST, why=why)


def reopen_failed_tasks(settings: SessionSettings, state: SessionState) -> SessionState:
    """After planning an update of the user, make failed tasks to do again and start their number of attempts again."""
    defined = [name for name, task in state.tasks.items() if not task.is_missing]
    for name in [name for name in defined if state.marker(name) is Marker.FAILED]:
        attempt = 0 if settings.layout.nested else state.attempt(name)
        state = reopen_task(settings, state, name).with_task_flow(name, attempt=attempt, replans=0)
    return state


def reopen_task(settings: SessionSettings, state: SessionState, name: str) -> SessionState:
    """The state in which a failed task is to do again, with all its attempts."""
    flow = state.flow_of(name)
    attempt = state.attempt(name)
    state = state.with_annotation(name, Marker.TODO, "reset", attempt=choose_next_attempt(settings, state, name))
    return state.without_task_flow(name).with_task_flow(name, why=flow.why, attempt=attempt, replans=flow.replans)


def choose_next_attempt(settings: SessionSettings, state: SessionState, task: str) -> int:
    """The number of the next attempt; one that has a report is never used again."""
    number = state.attempt(task) + 1
    while settings.layout.report(state.metadata.iteration, task, number) in state.texts:
        number += 1
    return number


def describe_verdict(verdict: Verdict, room: int = _MAX_QUOTED_CHARS) -> str:
    """The results of checks, for a reviewer and the next attempt. Failed checks come first and share the room."""
    share = room // max(1, len(verdict.not_passed))
    lines = []
    for result in sorted(verdict.results, key=lambda result: result.passed):
        said = "(passed)" if result.passed else f"({result.reason})\n{excerpt_output(result.output, share)[0]}"
        lines.append(f"$ {result.command or result.title}\n{said}".rstrip())
    if verdict.blocking_findings:
        lines.append("The work does not count, because these changes may make the checks pass without it:")
        lines += [f"- {finding.place} [{finding.rule}] {finding.sentence}" for finding in verdict.blocking_findings]
    return "\n".join(lines).strip()


def _choose_tasks(settings: SessionSettings, state: SessionState) -> list[str]:
    """The tasks to start now. Tasks that run together share no file, and a sequential task runs alone."""
    graph = state.graph
    if settings.layout.is_classic:
        return _choose_classic_task(state)
    executors = [name for name in graph.active if state.flow_of(name).step is Step.EXECUTE]
    free_executors = state.limits.max_executors - len(executors)
    used_files: set[str] = set()
    for name in graph.active:
        used_files.update(state.tasks[name].files)
    is_exclusive = any(_is_sequential(state, name) for name in graph.active)
    chosen: list[str] = []
    for name in graph.startable():
        if len(chosen) >= free_executors or is_exclusive:
            break
        if settings.by_waves and not (graph.wave and graph.is_in_wave(name)):
            continue
        files, is_sequential = state.tasks[name].files, _is_sequential(state, name)
        if used_files.intersection(files) or (is_sequential and (graph.active or chosen)):
            continue
        chosen.append(name)
        used_files.update(files)
        is_exclusive = is_sequential
    return chosen


def _choose_classic_task(state: SessionState) -> list[str]:
    """The first task of the list that can start. The classic layout runs one task at a time."""
    if state.graph.active:
        return []
    startable = set(state.graph.startable())
    return [name for name in state.tasks if name in startable][:1]


def _request_attempt(state: SessionState, task: str, attempt: int) -> SessionState:
    """Ask for a turn. The marker changes when the turn starts: a slot, a limit or a pause may keep it waiting."""
    attempts_in_iteration = state.flow_of(task).attempts_in_iteration + 1
    return state.with_task_flow(
        task, step=Step.EXECUTE, attempt=attempt, attempts_in_iteration=attempts_in_iteration, started=False
    )


def mark_started(state: SessionState, task: str, now: float) -> SessionState:
    """The state after the turn of an executor has started."""
    flow = state.flow_of(task)
    if flow.step is not Step.EXECUTE or flow.started:
        return state
    if state.marker(task) is Marker.FAILED:
        state = state.with_marker(task, Marker.TODO)
    return state.with_task_flow(task, started=True).with_annotation(task, Marker.WIP, "started", stamp(now))


def withdraw_attempt(state: SessionState, task: str) -> SessionState:
    """The state in which an attempt that no turn has started was never asked for."""
    flow = state.flow_of(task)
    return state.with_task_flow(
        task, step=Step.REST, attempt=flow.attempt - 1, attempts_in_iteration=flow.attempts_in_iteration - 1
    )


def _fail_without_answer(
    settings: SessionSettings, state: SessionState, task: str, result: TurnResult, now: float
) -> SessionState:
    """After an executor that ran out of time or failed in all its turns: write a report, and split the task if that helps."""
    flow, ran_out_of_time = state.flow_of(task), result.end is TurnEnd.WALL
    minutes = settings.limit_attempt(state) / 60
    why = result.error or "the agent failed in every try"
    if ran_out_of_time:
        why = f"it ran out of time ({minutes:g} {'minute' if minutes == 1 else 'minutes'})"
    text = compose_failed_report(task, state.metadata.iteration, flow.attempt, stamp(now), why[:1].upper() + why[1:])
    state = _store_report(settings, state, task, text).with_task_flow(task, timeouts=flow.timeouts + ran_out_of_time)
    if not _is_part_of_split(state, task) and (not ran_out_of_time or flow.timeouts + 1 >= SPLIT_AFTER):
        return state.with_task_flow(task, step=Step.SPLIT, why=why)
    return fail_attempt(state, task, now, why, note=why)


def _is_part_of_split(state: SessionState, task: str) -> bool:
    """Whether a planner made this task when it split another. Such a task is not split again."""
    return any(task in children for children in state.metadata.replaced.values())


def _compose_report(settings: SessionSettings, state: SessionState, task: str, result: TurnResult, now: float) -> str:
    body, attempt = result.documents.get("report.md") or result.text, state.flow_of(task).attempt
    if settings.layout.is_classic:
        return compose_classic_report(task, attempt, body)
    body = body or "(the executor wrote no report)"
    return compose_report(task, state.metadata.iteration, attempt, stamp(now), body)


def _store_report(settings: SessionSettings, state: SessionState, task: str, text: str) -> SessionState:
    return state.with_texts({settings.layout.report(state.metadata.iteration, task, state.flow_of(task).attempt): text})


def _with_review(settings: SessionSettings, state: SessionState, task: str, part: str, qualified: bool) -> SessionState:
    """Add a review to the report. The verdict that counts is added if the review has none or another."""
    report = settings.report(state, task, state.flow_of(task).attempt)
    verdict = ReviewVerdict.QUALIFIED if qualified else ReviewVerdict.FAILED
    text = append_review(report, part)
    if parse_report(text).verdict is not verdict:
        text = append_review(report, f"{part.rstrip()}\n\n**Status**: {verdict}\n")
    return _store_report(settings, state, task, text)


def _is_sequential(state: SessionState, name: str) -> bool:
    return state.tasks[name].type.lower() == "sequential"
