"""The part of the fold that follows checks and findings."""

from ralph.core.checks import Attribution, CheckResult, CheckStatus, Verdict, attribution
from ralph.core.entries import Record
from ralph.core.ids import BASELINE
from ralph.core.values import copy_with
from ralph.view.model import MAX_HISTORY, MOST, OUTPUT_CHARS, CheckPoint, CheckView, FindingView, RunView
from ralph.view.work import task_of


def add_verdict(view: RunView, record: Record, key: str, verdict: Verdict, iteration: int) -> RunView:
    """The view after the engine judged some work."""
    scope = task_of(view.workflow, key, view.tasks)
    checks = view.checks
    for result in verdict.results:
        before = next((one for one in checks if (one.scope, one.title) == (scope, result.title)), None)
        point = _make_point(record, key, iteration, result)
        after = _update(before or CheckView(scope, result.title), result, point, is_baseline=key == str(BASELINE))
        if before is None:
            checks = (*checks[max(0, len(checks) + 1 - MOST) :], after)
        else:
            checks = tuple(after if one is before else one for one in checks)
    return copy_with(view, checks=checks, findings=_update_findings(view, record, key, scope, verdict))


def _make_point(record: Record, key: str, iteration: int, result: CheckResult) -> CheckPoint:
    return CheckPoint(
        seq=record.seq,
        at=record.at,
        key=key,
        iteration=iteration,
        status=result.status,
        seconds=result.seconds,
        flaky=result.flaky,
        failing=len(result.failing),
    )


def _update(check: CheckView, result: CheckResult, point: CheckPoint, *, is_baseline: bool) -> CheckView:
    baseline = result.status if is_baseline else check.baseline
    failures = _name_failures(result)
    is_same = bool(failures) and failures == check.failures and check.same_since is not None
    return CheckView(
        scope=check.scope,
        title=check.title,
        command=result.command or check.command,
        status=result.status,
        baseline=baseline,
        attribution=None if is_baseline else _attribute(baseline, result.status),
        code=result.code,
        reason=result.reason,
        seconds=result.seconds,
        output="" if result.passed else _shorten(result.output),
        log=result.log,
        value=result.value,
        tests=result.tests,
        failing=result.failing[:20],
        flaky=result.flaky,
        since=check.since if check.status is result.status else point,
        same_since=(check.same_since if is_same else point) if failures else None,
        failures=failures,
        runs=check.runs + 1,
        history=(*check.history[-MAX_HISTORY + 1 :], point),
    )


def _name_failures(result: CheckResult) -> str:
    """A name for what a check complains about and how much of it there is; empty if that cannot be compared."""
    failures = result.failures
    if not failures or not failures.digest:
        return ""
    parts = [failures.digest]
    if failures.count is not None:
        parts.append(f"{failures.count:g}")
    parts += [f"{value:g}" for value in failures.figures.values() if value is not None]
    return " ".join(parts)


def _attribute(baseline: CheckStatus | None, status: CheckStatus) -> Attribution | None:
    """What the work did to a check; None if it was not run before the work."""
    if baseline is None:
        return None
    return attribution(before=baseline is CheckStatus.PASSED, now=status is CheckStatus.PASSED)


def _shorten(output: str) -> str:
    """The beginning and the end of a long output."""
    if len(output) <= OUTPUT_CHARS:
        return output
    half = OUTPUT_CHARS // 2
    return f"{output[:half]}\n... {len(output) - 2 * half} characters left out\n{output[-half:]}"


def _update_findings(view: RunView, record: Record, key: str, scope: str, verdict: Verdict) -> tuple[FindingView, ...]:
    """The findings of this verdict are open. Earlier ones about the same work are open no longer, unless they came again.

    Guards read the work only if the checks pass, so a verdict with failed checks says nothing about earlier findings.
    """
    found = set(verdict.findings)
    is_judged = bool(found) or not verdict.not_passed
    kept = []
    for one in view.findings:
        if task_of(view.workflow, one.key, view.tasks) != scope or not is_judged:
            kept.append(one)
        elif one.finding not in found:
            kept.append(copy_with(one, is_open=False))
    known = {one.finding: one for one in view.findings if task_of(view.workflow, one.key, view.tasks) == scope}
    for finding in verdict.findings:
        first = known.get(finding)
        kept.append(
            copy_with(first, is_open=True) if first else FindingView(finding, key=key, seq=record.seq, at=record.at)
        )
    return tuple(kept[-MOST:])
