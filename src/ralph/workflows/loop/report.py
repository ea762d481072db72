"""How a loop describes verdicts and changes, in prompts and in its completion report."""

from collections.abc import Collection, Sequence
from datetime import UTC, datetime

from ralph.core.check_output import excerpt_output, fence, find_complaint
from ralph.core.checks import Attribution, Check, CheckResult, CheckStatus, Verdict, attribution
from ralph.core.events import RunEnded
from ralph.core.limits import describe_cost, list_options_to_continue, suggest_option_to_continue
from ralph.core.outcomes import Outcome
from ralph.core.text import count, format_dollars
from ralph.core.turns import Change
from ralph.documents.session.markdown import row
from ralph.workflows.loop.state import Best, Iteration, LoopParameters, LoopState

QUOTED = 6000
"""How many characters of the failing checks' output a prompt quotes, all checks together."""
REPORTED = 3000
"""How many characters of each check's output a report quotes."""
MAX_NAMES = 20
"""Tests that a sentence names at most."""


def summarize_verdict(verdict: Verdict) -> str:
    """One line: which checks passed, how the others did not, and what the guards found."""
    checks = "; ".join(f"{name_check(r)} {explain_result(r)}" for r in (verdict.not_passed or verdict.results))
    return (
        f"{checks}; but {' '.join(f.sentence for f in verdict.blocking_findings)}"
        if verdict.blocking_findings
        else checks
    )


def render_failures(
    verdict: Verdict, baseline: tuple[CheckStatus, ...] = (), failed_before: Collection[str] = ()
) -> str:
    """The failing checks and the guards' findings, for the prompt of a hat."""
    findings = render_findings(verdict, asks_user=False)
    parts = [render_results(verdict, baseline, failed_before, {}) if verdict.not_passed else "", findings]
    return "\n\n".join(part for part in parts if part)


def render_results(
    verdict: Verdict, baseline: tuple[CheckStatus, ...], failed_before: Collection[str], logs: dict[str, str]
) -> str:
    """Every check with its result; of one that failed also what it printed, and where all of it is.

    `logs` has the paths of whole outputs, by the titles of the checks.
    """
    if verdict.results and not verdict.not_passed:
        if verdict.blocking_findings:
            return "All checks pass, but this does not count yet: see the findings."
        return "All checks pass."
    share = compute_quoted_share(verdict)
    regressed = {r.title for r, what in attribute_checks(verdict, baseline) if what is Attribution.REGRESSED}
    lines = []
    if _has_passed(verdict):
        passed = [name_check(result) for result in verdict.results if result.passed]
        lines.append(f"Passed: {', '.join(passed)}.")
    for result in verdict.not_passed:
        lines.append(
            _render_failed_check(result, share, logs.get(result.title, ""), is_regression=result.title in regressed)
        )
    if broken := find_newly_failing(verdict, failed_before):
        # Not "broken": a recipe that stopped early may not have run them before.
        lines.append(f"These tests fail now and did not fail before this run: {list_names(broken)}")
    return "\n\n".join(lines)


def compute_quoted_share(verdict: Verdict) -> int:
    """How many characters of the output of each failing check a prompt quotes."""
    return QUOTED // max(1, len(verdict.not_passed))


def _render_failed_check(result: CheckResult, room: int, log: str, *, is_regression: bool) -> str:
    output, left_out = excerpt_output(result.output, room)
    before = ", and passed before this run" if is_regression else ""
    lines = [f"$ {result.command or result.title}\n({describe_result(result)}{before})"]
    if output:
        lines.append(fence(output))
    if left_out and log:
        lines.append(f"The whole output is in `{log}`.")
    return "\n".join(lines)


def _has_passed(verdict: Verdict) -> bool:
    return any(result.passed for result in verdict.results)


def render_findings(verdict: Verdict, *, asks_user: bool = True) -> str:
    """What the guards found: what prevents success, and what only looks wrong.

    `asks_user` is whether the run asks the user if the agent keeps a change.
    """
    blocking = verdict.blocking_findings
    others = [finding for finding in verdict.findings if finding not in blocking]
    lines = []
    if blocking:
        lines.append("The run cannot succeed with these changes unless a judge or the user accepts them:")
        lines += [f"- {one.place} [{one.rule}] {one.sentence}" for one in blocking[:MAX_NAMES]]
        lines.append(
            "Does a change only make a check pass? Then undo it, and do the work. Does the task ask for it, or was a test"
            " wrong? Then keep it, and say why in `summary`. Do not make the product wrong to satisfy a wrong test."
        )
        if asks_user:
            lines[-1] += (
                " If nothing else is left to do, change nothing more, write your answer and stop:"
                " the engine asks a judge or the user."
            )
    if others and verdict.not_passed:
        lines.append(
            "The checks do not pass yet. Even when they do, the user may have to allow these changes first. Undo each that the"
            " task does not ask for, by editing. Keep the others, and say why in `summary`:"
        )
        lines += [f"- {one.place} [{one.rule}] {one.sentence}" for one in others[:MAX_NAMES]]
    elif others:
        lines.append(
            "Check these too. If one only makes a check pass, replace it with a real solution. If it is right, keep it and"
            " say why in `summary`:"
        )
        lines += [f"- {one.place} [{one.rule}] {one.sentence}" for one in others[:MAX_NAMES]]
    return "\n".join(lines)


_BEFORE_THE_RUN = {
    Attribution.CLEAN: "; passed before the run, too",
    Attribution.FIXED: "; failed before the run",
    Attribution.REGRESSED: "; passed before the run",
    Attribution.BASELINE_BROKEN: "; failed before the run, too",
}


def render_verification(verdict: Verdict, baseline: tuple[CheckStatus, ...] = ()) -> str:
    """What the report shows of all checks, and of the guards."""
    changes = {result.title: what for result, what in attribute_checks(verdict, baseline)}
    parts = []
    for result in verdict.results:
        lines = [f"$ {result.command or result.title}"]
        if output := excerpt_output(result.output, REPORTED)[0].strip("\n"):
            lines.append(output)
        before = _BEFORE_THE_RUN[changes[result.title]] if result.title in changes else ""
        lines.append(f"({describe_result(result)}{before})")
        parts.append("\n".join(lines))
    found = [f"{f.severity}: {f.place} [{f.rule}] {f.sentence}" for f in verdict.findings]
    return "\n\n".join([*parts, "\n".join(found)]).strip()


def list_failing_names(verdict: Verdict) -> tuple[str, ...]:
    """What fails, by name: tests if a check names them, else the check itself."""
    return tuple(
        dict.fromkeys(one for result in verdict.not_passed for one in (result.failing or (name_check(result),)))
    )


def find_newly_failing(verdict: Verdict, failed_before: Collection[str]) -> list[str]:
    """Tests that fail now and did not before the run, if it is known which did."""
    if not failed_before:
        return []
    found: list[str] = []
    for result in verdict.not_passed:
        found += [test for test in result.failing if test not in failed_before]
    return found


def list_names(names: Sequence[str], most: int = MAX_NAMES) -> str:
    """The first names, as a sentence."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def attribute_checks(verdict: Verdict, baseline: tuple[CheckStatus, ...]) -> list[tuple[CheckResult, Attribution]]:
    """Each check with what the work did to it."""
    pairs = zip(verdict.results, baseline, strict=False)
    return [(now, attribution(before=before is CheckStatus.PASSED, now=now.passed)) for now, before in pairs]


def name_check(result: CheckResult) -> str:
    """A check as sentences name it."""
    return f"`{result.command}`" if result.command else result.title


def explain_result(result: CheckResult) -> str:
    """How a check came out. If only its exit code says that it failed, also the first line of its complaints."""
    text = describe_result(result)
    has_only_code = result.code is not None and text == f"failed: exit code {result.code}"
    complaint = find_complaint(result.output) if has_only_code else ""
    return f"{text}: {complaint}" if complaint else text


def describe_result(result: CheckResult) -> str:
    """How a check came out."""
    facts = [result.reason] if result.reason else []
    # A count of tests is already in the reason.
    has_tests = result.tests is not None and result.tests.failed
    is_counted = result.failures and result.failures.is_reported and result.failures.count
    if is_counted and result.failures and result.failures.count and not result.passed and not has_tests:
        facts.append(count(int(result.failures.count), "failure"))
    if result.value is not None:
        facts.append(f"{result.value:g} was measured")
    if result.flaky:
        facts.append(
            "it gave different results for the same tree: it is flaky, or it depends on files that git ignores"
        )
    status = "passed" if result.passed else str(result.status).replace("-", " ")
    return f"{status}: {', '.join(facts)}" if facts else status


def name_report_path(home: str, now: float, loop: str, ends: int) -> str:
    """Where the report of a loop that has ended so often goes."""
    stamp = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H-%M-%S")
    again = f"-{ends}" if ends > 1 else ""
    return f"{home}/completion-{stamp}-{loop[-4:]}{again}.md"


def render_completion_report(
    state: LoopState, settings: LoopParameters, ended: RunEnded, checks: tuple[Check, ...]
) -> str:
    """The report in Markdown."""
    sections = [
        f"# Ralph loop: {ended.outcome}",
        _render_facts(state, settings, ended),
        "## Verification\n\n" + (fence(state.verification) if state.verification else _list_never_ran(checks)),
        _render_files(ended),
        render_missing_refs(ended),
        "## Iterations\n\n" + _render_history(state),
        _render_lessons(state),
        "## Next\n\n" + _render_next(state, settings, ended),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def _render_facts(state: LoopState, settings: LoopParameters, ended: RunEnded) -> str:
    spent, best, total = ended.spent, state.best, add_up_changes(ended)
    rows = [
        ("Task", state.task),
        ("Type", settings.type),
        ("Run", settings.run_id),
        ("Status", f"{ended.outcome} ({ended.reason})"),
        *render_evidence_row(ended),
        ("Criterion", settings.criterion),
        ("Iterations", f"{spent.iterations} of {ended.limits.iterations or 'any number'}"),
        ("Duration", f"{format_duration(spent.active_seconds)} of active work"),
        ("Turns", str(spent.turns)),
        ("Cost", describe_cost(spent)),
        ("Tokens", f"{spent.input_tokens} in, {spent.output_tokens} out"),
        ("Changes", describe_change(total)),
        ("Best iteration", _describe_best(best) if best else "none was recorded"),
        *render_agent_rows(ended),
    ]
    return "| | |\n| --- | --- |\n" + "\n".join(row(*one) for one in rows)


def render_evidence_row(ended: RunEnded) -> list[tuple[str, str]]:
    """The row of a report about the grade; none if the run has no grade."""
    return [("Evidence", ended.evidence.sentence)] if ended.evidence else []


def render_agent_rows(ended: RunEnded) -> list[tuple[str, str]]:
    """The rows of a report about agents and sandbox; none if an older version of Ralph recorded the run."""
    rows = [
        ("Agents", ", then ".join(ended.agents)),
        ("Hand-overs", "; ".join(one.text for one in ended.hand_overs)),
        ("Sandbox", ended.sandbox),
        ("Starts programs", "; ".join(ended.starts_programs)),
    ]
    return [(name, text) for name, text in rows if text]


def _render_files(ended: RunEnded) -> str:
    if not ended.files:
        return ""
    rows = [row(stat.path, stat.added, stat.removed) for stat in ended.files]
    rows += [row(f"and {ended.more_files} more", "", "")] if ended.more_files else []
    return "## Files\n\n| file | added | removed |\n| --- | --- | --- |\n" + "\n".join(rows)


def render_missing_refs(ended: RunEnded) -> str:
    """What of HEAD and the user's branches, tags and stash is not as it was, with the commands that bring it back."""
    if not ended.missing:
        return ""
    return "## Changed in the repository\n\n" + "\n".join(f"- {sentence}" for sentence in ended.missing)


def _render_history(state: LoopState) -> str:
    if not state.iterations:
        return "No turn was started."
    first = state.iterations[0].number
    older = ""
    if first > 1:
        which = "Iteration 1 is" if first == 2 else f"Iterations 1 to {first - 1} are"
        older = f"{which} in `iterations.jsonl`, next to the loop's state.\n\n"
    head = row("#", "role", "what was done", "verdict", "time", "cost", "changes")
    return older + "\n".join([head, row(*["---"] * 7), *map(_render_row, state.iterations)])


def _render_row(i: Iteration) -> str:
    price = "unknown" if i.cost is None else format_dollars(i.cost)
    verdict = "PASS" if i.passed else f"{'NOT PROVEN' if i.is_unproven else 'FAIL'}: {i.result}"
    role = i.role + (" (different approach)" if i.pivot else "")
    changes = describe_change(Change("", i.files, i.added, i.removed))
    return row(i.number, role, i.action, verdict, format_duration(i.seconds), price, changes)


def _render_lessons(state: LoopState) -> str:
    lines = list_lessons(state.iterations)
    return "## Learned\n\n" + "\n".join(lines) if lines else ""


def list_lessons(iterations: Sequence[Iteration]) -> list[str]:
    """What iterations taught, a line for each lesson. Iterations that taught the same share a line."""
    taught: dict[str, list[int]] = {}
    for iteration in iterations:
        if iteration.learnings:
            taught.setdefault(iteration.learnings, []).append(iteration.number)
    return [f"- {name_iterations(numbers)}: {lesson}" for lesson, numbers in taught.items()]


def name_iterations(numbers: Sequence[int]) -> str:
    """Iterations by their numbers: `Iterations 1, 3`."""
    return f"Iteration{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"


def _render_next(state: LoopState, settings: LoopParameters, ended: RunEnded) -> str:
    run, best = settings.run_id, state.best
    if ended.outcome.succeeded:
        return f"See what changed with `ralph diff {run}`; undo it with `ralph undo {run}`."
    if not ended.outcome.resumable:
        return (
            f"The run is closed; its work is still in the tree. See it with `ralph diff {run}`, "
            f"undo all of it with `ralph abort {run} --revert`."
        )
    if state.blocking_rules:
        allow = allow_command(run, state.blocking_rules)
        return (
            f"See the changes with `ralph diff {run}`. If they are right, allow them: `{allow}`. "
            f'If not, say so: `ralph resume {run} --guidance "..."`, or end it: `ralph abort {run}`.'
        )
    if ended.outcome is Outcome.UNPROVEN:
        return (
            f"See the changes with `ralph diff {run}`. If they are right, accept them: `{accept_command(run)}`. "
            f'If not, say so: `ralph resume {run} --guidance "..."`, or end it: `ralph abort {run}`.'
        )
    ways = list_options_to_continue(ended.outcome, ended.limits, ended.spent, ended.allowance)
    more = suggest_option_to_continue(ended.outcome, ended.limits, ended.spent, ended.allowance)
    way = " ".join(("ralph resume", run, ways[0].option if ways else more.option)).strip()
    lines = [f"Continue with `{way}`, or end it with `ralph abort {run}`."]
    if ended.outcome in (Outcome.STUCK, Outcome.AWAITING_GUIDANCE):
        guide = f'ralph resume {run} --guidance "..."'
        lines = [f"Say what to do differently: `{guide}`, or end it: `ralph abort {run}`."]
    if best and is_worth_restoring(best, state):
        lines.append(f"{name_best(best).capitalize()}: restore it with `ralph restore best {run}`.")
    return "\n\n".join(lines)


def is_worth_restoring(best: Best, state: LoopState) -> bool:
    """Whether the tree is another one than after the best iteration, and the last iteration is not as good."""
    if not state.iterations:
        return False
    last = state.iterations[-1]
    is_as_good = bool(best.score) and best.score == last.score and not last.blocking
    has_changed = any(one.files for one in state.iterations if one.number > best.number)
    return has_changed and not is_as_good and best.snapshot != last.snapshot


def name_best(best: Best) -> str:
    """Which iteration was the best, as a sentence without its end."""
    return f"iteration {best.number} was the best" if best.number else "the state before the run was the best"


def _describe_best(best: Best) -> str:
    return f"{best.number or 'none: the state before the run was better'} ({best.result})"


def allow_command(run: str, rules: Sequence[str]) -> str:
    """The command with which the user allows what holds a run up."""
    return " ".join((f"ralph resume {run}", *(f"--allow '{rule}=REASON'" for rule in rules)))


def accept_command(run: str) -> str:
    """The command with which the user accepts work that Ralph could not prove."""
    return f'ralph accept {run} --because "..."'


def add_up_changes(ended: RunEnded) -> Change:
    """All changes since before the run, added up."""
    files = len(ended.files) + ended.more_files
    return Change("", files, sum(f.added for f in ended.files), sum(f.removed for f in ended.files))


def describe_change(change: Change) -> str:
    """How much was changed."""
    if not change.files:
        return "no files"
    return f"{count(change.files, 'file')}, +{change.added}, -{change.removed}"


def _list_never_ran(checks: tuple[Check, ...]) -> str:
    return "The checks were not run:\n\n" + "\n".join(f"- {check.title}" for check in checks)


def format_duration(seconds: float) -> str:
    """A span of time in hours, minutes and seconds."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"
