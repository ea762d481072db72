"""What follows from work on a task and its review: a report with a verdict, and the marker that it tells of."""

from ralph.core.checks import Verdict
from ralph.core.turns import TurnEnd, TurnResult
from ralph.documents.session import reports, review
from ralph.documents.session.markers import Marker
from ralph.documents.session.progress import MISSING
from ralph.documents.session.review import Assessment
from ralph.documents.session.timestamps import render as stamp
from ralph.workflows.classic.planning import with_tasks
from ralph.workflows.classic.state import MOST_REVIEWS, ClassicState, ClassicTerms
from ralph.workflows.session.working import told as told_of

_QUOTED = 4000


def started(state: ClassicState, now: float) -> ClassicState:
    """The next task is begun, or what was left of one is to be reviewed; the same state where neither can be."""
    if task := state.first(Marker.WIP):
        attempt, last = [(0, None), *state.reports(task).items()][-1]
        is_left = last and last.verdict is None and last.part1
        return state.marked(task, Marker.PENDING, f"Attempt {attempt}, recovered") if is_left else state
    task = state.ready()
    if not task:
        return state
    note = f"Attempt {state.attempt(task)}, started: {stamp(now)}{_since(state, task)}"
    return state.marked(task, Marker.WIP, note)


def fail_undefined_tasks(state: ClassicState) -> ClassicState:
    """Mark every task that is listed, not over and defined nowhere as failed."""
    for id, task in state.tasks.items():
        if task.is_missing and state.marker(id) in (Marker.TODO, Marker.WIP, Marker.PENDING):
            state = state.marked(id, Marker.FAILED, MISSING)
    return state


def executed(state: ClassicState, task: str, result: TurnResult, now: float) -> ClassicState:
    """After an executor: to be reviewed, or failed; either way there is a report."""
    attempt, answer = state.attempt(task), result.answer or {}
    body = result.papers.get("report.md") or result.text
    state = state.with_text(state.layout.report(task, attempt), reports.compose_classic(task, attempt, body))
    met = answer.get("status") == "completed" and answer.get("success_criteria_met")
    if result.end is TurnEnd.FINISHED and met:
        return state.marked(task, Marker.PENDING, f"Attempt {attempt}: {stamp(now)}{_since(state, task)}")
    why = "; ".join(map(str, answer.get("blockers") or ())) or result.error
    why = why or ("it ran out of time" if result.end is TurnEnd.WALL else "its criteria are not met")
    part = f"### Review Summary\nThe attempt came to nothing, and no reviewer was asked: {why}"
    return _failed(_reviewed(state, task, attempt, part, qualified=False), task, attempt, now)


def checked(state: ClassicState, key: str, verdict: Verdict) -> ClassicState:
    """After checks of the engine's own: what they saw fail, nobody can pass."""
    told = told_of(verdict)
    state = state.checked(key, told or "all pass", passed=verdict.passed)
    task = key.removeprefix("check:").rpartition("-")[0]
    if key.startswith("session-") or verdict.passed or state.marker(task) is not Marker.PENDING:
        return state
    summary = "The engine ran the checks that the success criteria name. They do not hold; no reviewer was asked."
    part = f"### Review Summary\n{summary}\n\n```\n{told[:_QUOTED]}\n```"
    return _reviewed(state, task, state.attempt(task), part, qualified=False)


def reviewed(state: ClassicState, task: str, result: TurnResult) -> ClassicState:
    """After a reviewer of a task: the review is in its report."""
    answer = result.answer or {}
    part = result.papers.get("review.md") or str(answer.get("feedback") or "")
    return _reviewed(state, task, state.attempt(task), part, qualified=answer.get("verdict") == "Qualified")


def settled(terms: ClassicTerms, state: ClassicState, task: str, now: float) -> ClassicState:
    """A task whose report has a verdict: done, where the engine's own checks agree, or to be done again."""
    attempt = state.attempt(task)
    report = state.reports(task).get(attempt)
    if report is None or report.verdict is None:
        return state
    if report.verdict is reports.Verdict.FAILED:
        return _failed(state, task, attempt, now)
    if terms.criteria(state, task) and state.flow.key != f"check:{task}-{attempt}":
        return state
    return state.marked(task, Marker.DONE, f"qualified: {stamp(now)}")


def judged(terms: ClassicTerms, state: ClassicState, number: int, result: TurnResult) -> ClassicState:
    """After a review of the whole: it is complete, or gaps become tasks, or a person has to say."""
    answer = result.answer or {}
    good = answer.get("assessment") == Assessment.COMPLETE and (state.flow.passed or not terms.checks)
    body = result.papers.get("review.md") or f"# Session Review {number}\n\n{answer.get('summary', '')}"
    assessment = Assessment.COMPLETE if good else Assessment.GAPS
    text = review.compose_classic(number, body, assessment, state.progress.items)
    state = state.with_text(state.layout.review(number), text)
    if good or state.rounds >= MOST_REVIEWS:
        return state
    after = with_tasks(state, result.papers.get("tasks.md", ""))
    return state if after.fault() else after


def aborted(state: ClassicState, now: float) -> ClassicState:
    """What was under way has failed; no file is taken back."""
    task = state.first(Marker.WIP)
    note = f"Aborted by signal: {stamp(now)}"
    return state.marked(task, Marker.FAILED, f"{note}{_since(state, task)}") if task else state


def _reviewed(state: ClassicState, task: str, attempt: int, part: str, *, qualified: bool) -> ClassicState:
    """The report with the review in it; the verdict at its end is the one that counts."""
    path = state.layout.report(task, attempt)
    verdict = reports.Verdict.QUALIFIED if qualified else reports.Verdict.FAILED
    text = f"{part.rstrip()}\n\n**Status**: {verdict}\n"
    return state.with_text(path, reports.with_review(state.texts.get(path, ""), text))


def _failed(state: ClassicState, task: str, attempt: int, now: float) -> ClassicState:
    """A task that failed is to be done again, until it was tried often enough."""
    begins = state.progress.items[task].begins_at
    again = attempt - begins + 1 < state.guardrails.rework_attempts
    note = f"Attempt {attempt} failed: {stamp(now)}{_since(state, task)}"
    return state.marked(task, Marker.TODO if again else Marker.FAILED, note)


def _since(state: ClassicState, task: str) -> str:
    begins = state.progress.items[task].begins_at
    return f", from Attempt {begins}" if begins > 1 else ""
