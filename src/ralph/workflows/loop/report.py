"""The completion report of a loop: what was asked, what came of it, and the evidence."""

from datetime import UTC, datetime

from ralph.core.checks import Check
from ralph.core.events import RunEnded
from ralph.core.limits import Spent
from ralph.core.outcomes import Outcome
from ralph.core.turns import Change
from ralph.documents.session.markdown import row
from ralph.workflows.loop.state import Fixed, Iteration, LoopState


def report_path(home: str, now: float, loop: str, ends: int) -> str:
    """Where the report of a loop that has ended so often goes."""
    stamp = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H-%M-%S")
    again = f"-{ends}" if ends > 1 else ""
    return f"{home}/completion-{stamp}-{loop[-4:]}{again}.md"


def completion_report(state: LoopState, fixed: Fixed, ended: RunEnded, checks: tuple[Check, ...]) -> str:
    """The report in Markdown."""
    sections = [
        f"# Ralph loop: {ended.outcome}",
        _facts(state, fixed, ended),
        "## Verification\n\n" + (_fenced(state.verification) if state.verification else _never_ran(checks)),
        _files(ended),
        missing_section(ended),
        "## Iterations\n\n" + _history(state),
        _lessons(state),
        "## Next\n\n" + _next(state, fixed, ended),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def _facts(state: LoopState, fixed: Fixed, ended: RunEnded) -> str:
    spent, best, total = ended.spent, state.best, totals(ended)
    rows = [
        ("Task", state.task),
        ("Type", fixed.type),
        ("Run", fixed.loop),
        ("Status", f"{ended.outcome}: {ended.reason}"),
        ("Criterion", fixed.criterion),
        ("Iterations", f"{spent.iterations} of {ended.limits.iterations or 'any number'}"),
        ("Duration", f"{duration(spent.active_seconds)} of active work"),
        ("Turns", str(spent.turns)),
        ("Cost", cost(spent)),
        ("Tokens", f"{spent.input_tokens} in, {spent.output_tokens} out"),
        ("Changes", changes_text(total)),
        ("Best iteration", f"{best.number} ({best.result})" if best else "none was recorded"),
    ]
    return "| | |\n| --- | --- |\n" + "\n".join(row(*one) for one in rows)


def _files(ended: RunEnded) -> str:
    if not ended.files:
        return ""
    rows = [row(stat.path, stat.added, stat.removed) for stat in ended.files]
    rows += [row(f"and {ended.more_files} more", "", "")] if ended.more_files else []
    return "## Files\n\n| file | added | removed |\n| --- | --- | --- |\n" + "\n".join(rows)


def missing_section(ended: RunEnded) -> str:
    """What of the user's branches, tags and stash is missing, with the commands that bring it back."""
    if not ended.missing:
        return ""
    return "## Missing from the repository\n\n" + "\n".join(f"- {sentence}" for sentence in ended.missing)


def _history(state: LoopState) -> str:
    if not state.iterations:
        return "No turn was started."
    first = state.iterations[0].number
    older = f"Iterations 1 to {first - 1} are in `iterations.jsonl` beside the loop's state.\n\n" if first > 1 else ""
    head = row("#", "role", "what was done", "verdict", "time", "cost", "changes")
    return older + "\n".join([head, row(*["---"] * 7), *map(_row, state.iterations)])


def _row(i: Iteration) -> str:
    price = "unknown" if i.cost is None else f"${i.cost:.4f}"
    verdict = "PASS" if i.passed else f"FAIL: {i.result}"
    role = i.role + (" (other approach)" if i.pivot else "")
    changes = changes_text(Change("", i.files, i.added, i.removed))
    return row(i.number, role, i.action, verdict, duration(i.seconds), price, changes)


def _lessons(state: LoopState) -> str:
    lines = [f"- Iteration {i.number}: {i.learnings}" for i in state.iterations if i.learnings]
    return "## Learned\n\n" + "\n".join(lines) if lines else ""


def _next(state: LoopState, fixed: Fixed, ended: RunEnded) -> str:
    run, best = fixed.loop, state.best
    if ended.outcome.succeeded:
        return f"See what changed with `ralph diff {run}`; take it back with `ralph undo {run}`."
    if not ended.outcome.resumable:
        return (
            f"The run is closed; its work is still in the tree. See it with `ralph diff {run}`, "
            f"take all of it back with `ralph abort {run} --revert`."
        )
    lines = [f"Go on with `ralph resume {run}`, or end it with `ralph abort {run}`."]
    if ended.outcome in (Outcome.STUCK, Outcome.AWAITING_GUIDANCE):
        lines = [f'Say what to do differently: `ralph resume {run} --guidance "..."`, or end it: `ralph abort {run}`.']
    if best and state.iterations and best.snapshot != state.iterations[-1].snapshot:
        lines.append(f"Iteration {best.number} was the best: bring it back with `ralph restore best {run}`.")
    return "\n\n".join(lines)


def totals(ended: RunEnded) -> Change:
    """All changes since before the run, added up."""
    files = len(ended.files) + ended.more_files
    return Change("", files, sum(f.added for f in ended.files), sum(f.removed for f in ended.files))


def changes_text(change: Change) -> str:
    """How much was changed, in words."""
    return f"{change.files} file{'s'[: change.files != 1]}, +{change.added}, -{change.removed}"


def _never_ran(checks: tuple[Check, ...]) -> str:
    return "The checks were not run:\n\n" + "\n".join(f"- {check.title}" for check in checks)


def _fenced(text: str) -> str:
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}\n{text}\n{fence}"


def duration(seconds: float) -> str:
    """A span of time as people say it."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def cost(spent: Spent) -> str:
    """The money spent, honest about turns whose agent told none."""
    if spent.turns and spent.unpriced_turns == spent.turns:
        return "unknown (no price is known for what the agent used)"
    known = f"${spent.cost:.4f}"
    return f"at least {known} ({spent.unpriced_turns} turns without a price)" if spent.unpriced_turns else known
