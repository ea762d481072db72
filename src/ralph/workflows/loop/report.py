"""The completion report of a loop: what was asked, what came of it, and the evidence."""

from datetime import UTC, datetime

from ralph.core.checks import Check
from ralph.core.events import RunEnded
from ralph.core.limits import Spent
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
        "## Iterations\n\n" + _history(state),
        _lessons(state),
        "## Next\n\n" + _next(fixed, ended),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def _facts(state: LoopState, fixed: Fixed, ended: RunEnded) -> str:
    spent = ended.spent
    files = sum(i.files for i in state.iterations)
    rows = [
        ("Task", state.task),
        ("Run", fixed.loop),
        ("Status", f"{ended.outcome}: {ended.reason}"),
        ("Criterion", fixed.criterion),
        ("Iterations", f"{spent.iterations} of {fixed.most or 'any number'}"),
        ("Active time", duration(spent.active_seconds)),
        ("Turns", str(spent.turns)),
        ("Cost", cost(spent)),
        (
            "Changes",
            f"{files} file changes, +{sum(i.added for i in state.iterations)}, -{sum(i.removed for i in state.iterations)}",
        ),
    ]
    return "| | |\n| --- | --- |\n" + "\n".join(f"| {name} | {_cell(value)} |" for name, value in rows)


def _history(state: LoopState) -> str:
    if not state.iterations:
        return "No turn was started."
    head = "| # | what was done | verdict | time | cost | changes |\n| --- | --- | --- | --- | --- | --- |\n"
    return head + "\n".join(_row(iteration) for iteration in state.iterations)


def _row(i: Iteration) -> str:
    price = "unknown" if i.cost is None else f"${i.cost:.4f}"
    verdict = "PASS" if i.passed else f"FAIL: {i.result}"
    cells = (
        str(i.number),
        i.action,
        verdict,
        duration(i.seconds),
        price,
        f"{i.files} files, +{i.added}, -{i.removed}",
    )
    return "| " + " | ".join(_cell(cell) for cell in cells) + " |"


def _lessons(state: LoopState) -> str:
    lines = [f"- Iteration {i.number}: {i.learnings}" for i in state.iterations if i.learnings]
    return "## Learned\n\n" + "\n".join(lines) if lines else ""


def _next(fixed: Fixed, ended: RunEnded) -> str:
    if ended.outcome.succeeded:
        return f"See what changed with `ralph diff {fixed.loop}`; take it back with `ralph undo {fixed.loop}`."
    if not ended.outcome.resumable:
        return f"The run is closed; its work is still in the tree. See it with `ralph diff {fixed.loop}`."
    return f"Go on with `ralph resume {fixed.loop}`, or end it with `ralph abort {fixed.loop}`."


def _never_ran(checks: tuple[Check, ...]) -> str:
    return "The checks were not run:\n\n" + "\n".join(f"- `{check.command}`" for check in checks)


def _fenced(text: str) -> str:
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}\n{text}\n{fence}"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


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
        return "unknown (the agent reports no cost)"
    known = f"${spent.cost:.4f}"
    return f"at least {known} ({spent.unpriced_turns} turns without a price)" if spent.unpriced_turns else known
