"""The headline of a run: one sentence by rule, never by a model."""

from collections.abc import Mapping
from datetime import datetime

from ralph.core.check_output import find_complaint
from ralph.core.checks import CheckStatus, Finding, Rule
from ralph.core.events import TaskState
from ralph.core.ids import describe_worktree
from ralph.core.outcomes import Outcome
from ralph.core.speakers import show_speaker
from ralph.core.text import clean_text, count, shorten
from ralph.core.turns import TurnEnd
from ralph.documents.hats.definition import show_role
from ralph.view.model import CheckView, NeedKind, RunView

_NAMED_TESTS = 2
_LONGEST, _LONGEST_COMMAND = 240, 40


def headline(view: RunView, now: float) -> str:
    """What a user wants to know first about a run. The view must have its state and its needs."""
    return shorten(_clean(_choose(view, now)), _LONGEST)


def _choose(view: RunView, now: float) -> str:
    question = next((need for need in view.needs if need.kind is NeedKind.QUESTION), None)
    if question:
        role = next((one.question.role for one in view.questions if one.question.id == question.id), "")
        return f"{show_role(role) or 'an agent'} asks: {question.text}"
    if view.alive:
        return _describe_running(view)
    if view.doubt:
        return f"not verified: {view.doubt}"
    if view.ended and view.taken_back:
        by = show_speaker(view.taken_back.by).removeprefix("web:")
        return f"{by} {view.taken_back.result}; before that, {_describe_end(view)}"
    if view.ended:
        return _describe_end(view)
    if not view.seq:
        return "not started yet"
    current, progress = _current(view), _progress(view)
    when = f"with {progress}" if progress and not current else f"during {current or 'its work'}"
    return _join(f"the engine stopped {when}", describe_checks(view))


def _describe_running(view: RunView) -> str:
    if any(need.kind is NeedKind.APPROVAL for need in view.needs):
        return _join("waits for your approval of what it learned", _progress(view))
    if view.state == "waiting" and view.turns:
        return _join(_describe_wait(view), _progress(view))
    first = ": ".join(part for part in (_progress(view), _current(view)) if part) or "starting"
    return _join(first, describe_checks(view))


def _describe_end(view: RunView) -> str:
    assert view.ended is not None
    outcome, reason = view.ended.outcome, view.ended.reason
    if view.has_feedback:
        return _join("continues with your feedback when you resume it", _progress(view))
    if outcome is Outcome.SUCCESS:
        after = f" after {count(view.spent.iterations, 'iteration')}" if view.spent.iterations else ""
        return f"{_what_is_done(view)}{after}"
    if outcome is Outcome.NOTHING_TO_DO:
        return "nothing to do: the checks passed before the first turn"
    if outcome is Outcome.UNPROVEN and view.ended.evidence:
        return f"unproven: {view.ended.evidence.reason}".rstrip(".")
    words = outcome.value.replace("-", " ")
    says_outcome = bool(reason) and (outcome in _NAMED_BY_REASON or reason.lower().startswith(words))
    first = reason if says_outcome else ": ".join(part for part in (words, reason) if part)
    if outcome in _REASON_IS_ENOUGH:
        return first.rstrip(".")
    if _is_last_turn_unverified(view):
        return _join(first.rstrip("."), "what the last turn changed is not verified yet")
    return _join(first.rstrip("."), describe_checks(view))


def _is_last_turn_unverified(view: RunView) -> bool:
    """Whether the last turn changed files and no check ran after it."""
    checked = [check.history[-1].at for check in view.run_checks if check.history]
    if not checked or not view.turns:
        return False
    last = view.turns[-1]
    return last.is_iteration and last.files > 0 and last.ended_at is not None and last.ended_at > max(checked)


_NAMED_BY_REASON = (
    Outcome.LIMIT_ITERATIONS,
    Outcome.LIMIT_TIME,
    Outcome.LIMIT_DEADLINE,
    Outcome.LIMIT_COST,
    Outcome.LIMIT_TOKENS,
    Outcome.LIMIT_QUOTA,
    Outcome.AWAITING_APPROVAL,
)
"""Outcomes whose reason always names the limit, or what waits."""
_REASON_IS_ENOUGH = (
    Outcome.UNVERIFIABLE,
    Outcome.UNPROVEN,
    Outcome.AWAITING_APPROVAL,
    Outcome.AWAITING_FEEDBACK,
    Outcome.ABORTED,
)


def _what_is_done(view: RunView) -> str:
    evidence = view.ended.evidence if view.ended else None
    grade = evidence.grade if evidence else "done"
    if view.tasks:
        return f"{grade}: {_count_tasks(view)}"
    return f"{grade}: {describe_checks(view)}" if view.run_checks else "done, without checks"


def _progress(view: RunView) -> str:
    """How far the run is: its iteration, or its tasks."""
    if view.tasks:
        return _count_tasks(view)
    if not view.iteration:
        return ""
    most = view.allowed.iterations
    return f"iteration {view.iteration}" + (f" of {most}" if most else "")


def _count_tasks(view: RunView) -> str:
    tasks = [task for task in view.tasks if task.state is not TaskState.CANCELLED]
    done = sum(task.state is TaskState.DONE for task in tasks)
    failed = sum(task.state is TaskState.FAILED for task in tasks)
    blocked = sum(task.state is TaskState.BLOCKED for task in tasks)
    open_waves = [task.wave for task in tasks if task.wave and task.state in _OPEN]
    wave = f"wave {min(open_waves)} of {max(task.wave for task in tasks)}, " if open_waves else ""
    rest = [f", {failed} failed" if failed else "", f", {blocked} blocked" if blocked else ""]
    return f"{wave}{done} of {count(len(tasks), 'task')} done{''.join(rest)}"


_OPEN = (TaskState.PLANNED, TaskState.RETRY, TaskState.QUALIFIED)


def _current(view: RunView) -> str:
    """What is in progress."""
    turns = view.running_turns
    if len(turns) > 1:
        return f"{len(turns)} turns ({', '.join(turn.task or show_role(turn.role) for turn in turns[:4])})"
    if turns:
        task = f" on {turns[0].task}" if turns[0].task else ""
        return f"turn {turns[0].number} ({show_role(turns[0].role)}){task}"
    if view.checking:
        return f"checking {count(len(view.checking[-1].titles), 'condition')}"
    merging = [merge for merge in view.merges if merge.end is None]
    return f"merging {describe_worktree(merging[0].workspace)}" if merging else ""


def describe_work(view: RunView, progress: Mapping[int, str]) -> str:
    """What is in progress, with what the agent reported last; or what the run waits for."""
    if view.state == "waiting" and view.turns:
        return _describe_wait(view)
    if view.checking and not view.running_turns:
        return "checking " + " AND ".join(view.checking[-1].titles)
    reports = [_clean(progress[turn.number]) for turn in view.running_turns if turn.number in progress]
    return ": ".join(part for part in (_current(view), *reports[-1:]) if part)


def _describe_wait(view: RunView) -> str:
    last = view.turns[-1]
    at = datetime.fromtimestamp(last.retry_at or 0.0).strftime("%H:%M")
    if last.end is TurnEnd.LIMITED:
        return f"waits for the provider's limit until {at}"
    return _clean(f"waits until {at}: {last.retry_reason or 'the next attempt'}")


def _clean(text: str) -> str:
    return " ".join(clean_text(text).split())


def describe_checks(view: RunView) -> str:
    """How many checks of the run pass, and what the first failing one complains about."""
    checks = [check for check in view.run_checks if check.status is not None]
    if not checks:
        return ""
    failing = [check for check in checks if check.status is not CheckStatus.PASSED]
    if not failing:
        text = f"all {len(checks)} checks pass" if len(checks) > 1 else "the check passes"
        return f"{text}{_describe_findings(view)}"
    if len(checks) == 1:
        return describe_failure(failing[0])
    return f"{len(checks) - len(failing)} of {len(checks)} checks pass; {describe_failure(failing[0])}"


def describe_failure(check: CheckView) -> str:
    """One failing check, with the tests that fail and since when they do."""
    name = f"`{_shorten(check.command)}`" if check.command else check.title
    if check.status is not CheckStatus.FAILED:
        return f"{name} could not run" + (f" ({check.reason})" if check.reason else "")
    tests = ", ".join(map(_shorten_test, check.failing[:_NAMED_TESTS]))
    more = f" and {len(check.failing) - _NAMED_TESTS} more" if len(check.failing) > _NAMED_TESTS else ""
    text = f"{name} fails" + (f" in {tests}{more}" if tests else _explain(check))
    same = check.same_since
    if same and check.history and same.seq != check.history[-1].seq:
        text += " (same as before the first turn)" if same.iteration == 0 else f" (same as iteration {same.iteration})"
    return text


def _explain(check: CheckView) -> str:
    """Why a check without named tests fails: how it says so itself, or its first complaint if only the exit code says so."""
    reason = check.reason
    if check.code is not None and reason == f"exit code {check.code}":
        reason = find_complaint(check.output)
    return f": {reason}" if reason else ""


def _describe_findings(view: RunView) -> str:
    errors = [one for one in view.findings if one.is_open and one.finding.severity == "error"]
    if not errors:
        return ""
    return f", but {count(len(errors), 'finding')}: {describe_finding(errors[0].finding)}"


def describe_finding(finding: Finding) -> str:
    """What a guard found, and where. The sentence about a check already names the check."""
    return finding.sentence if finding.rule is Rule.CLEAN_ROOM else f"`{finding.place}`: {finding.sentence}"


def _shorten_test(name: str) -> str:
    """unittest names a test twice: `test_total (test_cart.Cart.test_total)`."""
    short, _, place = name.partition(" (")
    return short if place.endswith(f".{short})") else name


def _shorten(command: str) -> str:
    return shorten(command.strip().partition("\n")[0], _LONGEST_COMMAND)


def _join(*parts: str) -> str:
    return "; ".join(part for part in parts if part)
