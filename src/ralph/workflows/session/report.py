"""The completion report of a session: how it ended, what became of each task, and what to do next."""

from collections.abc import Iterator

from ralph.core.events import RunEnded
from ralph.core.limits import describe_cost
from ralph.core.outcomes import Outcome
from ralph.core.text import count
from ralph.documents.session.markdown import row
from ralph.documents.session.progress import MARKER_MEANINGS
from ralph.workflows.loop.report import accept_command, format_duration, render_missing_refs
from ralph.workflows.session.iterations import count_tasks, review_number
from ralph.workflows.session.state import SessionSettings, SessionState


def build_session_report(settings: SessionSettings, state: SessionState, ended: RunEnded) -> str:
    """The report of a run of a session that has ended."""
    return "\n\n".join(part.strip() for part in _list_parts(settings, state, ended) if part.strip()) + "\n"


def _list_parts(settings: SessionSettings, state: SessionState, ended: RunEnded) -> Iterator[str]:
    done, spent = count_tasks(state), ended.spent
    yield f"# Session {settings.id}: {ended.outcome.replace('-', ' ')}"
    yield ended.reason
    yield f"## Request\n\n{(state.metadata.request or settings.request).strip()}"
    facts = [
        f"- Iteration: {state.metadata.iteration}",
        f"- Tasks: {done['completed']} of {done['total'] - done['cancelled']} done, {done['failed']} failed",
        f"- Turns: {spent.turns}, {format_duration(spent.active_seconds)} active, cost {describe_cost(spent)}",
    ]
    facts += [f"- Hand-over: {one.text}" for one in ended.hand_overs]
    if ended.evidence:
        facts.append(f"- Evidence: {ended.evidence.sentence}")
    yield "## Result\n\n" + "\n".join(facts)
    yield "## Tasks\n\n" + "\n".join(_list_rows(state)) if state.tasks else ""
    yield _describe_checks(settings, state)
    number = review_number(state) if settings.layout.reviewer_adds_tasks else state.metadata.iteration
    review = settings.layout.review(number)
    yield f"## Review\n\nThe review of the whole session is in `{review}`." if review in state.texts else ""
    yield render_missing_refs(ended)
    yield f"## Next\n\n{_suggest_next_command(settings, ended)}"


def _list_rows(state: SessionState) -> Iterator[str]:
    yield row("Task", "Title", "Status", "Attempts", "Note")
    yield "| --- | --- | --- | --- | --- |"
    blocked = {} if state.fault else state.blocked_tasks
    for name, task in state.tasks.items():
        item = state.progress.items.get(name)
        note = item.note if item else ""
        if not note and name in blocked:
            note = f"blocked by {blocked[name]}"
        title = task.title or task.objective[:60]
        yield row(name, title, MARKER_MEANINGS[state.marker(name)], len(state.reports(name)), note)


def _describe_checks(settings: SessionSettings, state: SessionState) -> str:
    if not settings.checks:
        return "## Checks\n\nThe session has no checks of its own. The checks of its tasks are in the task reports."
    titles = "\n".join(f"- `{check.command or check.title}`" for check in settings.checks)
    if not state.flow.check_results:
        return f"## Checks\n\n{titles}\n\nThey have not run since the last task was merged."
    verdict = "All pass." if not state.flow.failed_checks else "Not all pass."
    if state.flow.lacks_proof and not state.flow.session_checks_passed:
        verdict = f"All pass, but the work does not count: {state.flow.why_not_proven}"
    return f"## Checks\n\n{titles}\n\n{verdict} ({count(len(settings.checks), 'check')})"


def _suggest_next_command(settings: SessionSettings, ended: RunEnded) -> str:
    match ended.outcome:
        case Outcome.SUCCESS:
            return f"`ralph diff {settings.id}`"
        case Outcome.AWAITING_FEEDBACK:
            return f'`ralph session feedback {settings.id} "..."`, then `ralph session resume {settings.id}`'
        case Outcome.UNPROVEN:
            return (
                f"See the changes with `ralph diff {settings.id}`. If they are right, accept them: "
                f"`{accept_command(settings.id)}`."
            )
        case Outcome.AWAITING_APPROVAL:
            return f"`ralph session approve {settings.id}`, or `ralph session skip {settings.id}`"
        case Outcome.BLOCKED:
            resume = f"ralph session resume {settings.id}"
            return f'`{resume}`, or with less to do: `{resume} --guidance "Only ..."`'
        case _ if ended.outcome.resumable:
            return f"`ralph session resume {settings.id}`"
        case _:
            return f"`ralph session show {settings.id}`"
