"""The report of a run of hats: what was asked, what came of it, and the evidence."""

from ralph.core.events import RunEnded
from ralph.documents.agent import decisions
from ralph.documents.agent.tasks import Tasks
from ralph.documents.hats.definition import HatsSettings
from ralph.workflows.hats.gates import Gate
from ralph.workflows.hats.prompt import DECISIONS
from ralph.workflows.hats.state import HatsState
from ralph.workflows.loop.report import changes_text, cost, duration, missing_section, totals


def build_report(run: str, settings: HatsSettings, state: HatsState, ended: RunEnded, tasks: Tasks) -> str:
    """The report in Markdown."""
    spent = ended.spent
    rows = [
        ("Objective", state.objective),
        ("Run", run),
        ("Status", f"{ended.outcome}: {ended.reason}"),
        ("Turns", f"{spent.turns}, {spent.iterations} of {ended.limits.iterations or 'any number'} iterations"),
        ("By hat", ", ".join(f"{hat} {count}" for hat, count in state.activations.items())),
        ("Duration", f"{duration(spent.active_seconds)} of active work"),
        ("Cost", cost(spent)),
        ("Changes", changes_text(totals(ended))),
        ("Required events", ", ".join(f"{topic} {_gate(state.gates.get(topic))}" for topic in settings.required)),
    ]
    own = [task for task in tasks.by_id.values() if task.run == run]
    parts = [
        f"# Ralph run: {ended.outcome}",
        "| | |\n| --- | --- |\n" + "\n".join(f"| {name} | {_cell(value)} |" for name, value in rows if value),
        "## Verification\n\n" + (f"```\n{state.verification}\n```" if state.verification else "No check was run."),
        "## Tasks\n\n" + "\n".join(f"- {task.status}: {task.title} ({task.id})" for task in own) if own else "",
        _decisions(state),
        "## Last events\n\n" + "\n".join(f"- `{e.topic}` by {e.source}: {_cell(e.payload)}" for e in state.recent),
        missing_section(ended),
        "## Next\n\n" + _next(run, ended),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _decisions(state: HatsState) -> str:
    """What hats of this run decided without being sure."""
    found = decisions.parse(state.texts.get(DECISIONS, ""))[state.earlier_decisions :]
    if not found:
        return ""
    lines = []
    for one in found:
        confidence = one.fields.get("confidence", "")
        sure = f" (confidence {confidence})" if confidence else ""
        why = one.fields.get("reasoning", "")
        lines.append(f"- {one.id}: {_cell(one.title)}{sure}" + (f"; {_cell(why)}" if why else ""))
    return "## Decisions\n\n" + "\n".join(lines)


def _gate(gate: Gate | None) -> str:
    if gate is None or not gate.passed:
        return "missing"
    return "stale" if gate.stale else "passed"


def _next(run: str, ended: RunEnded) -> str:
    if ended.outcome.resumable:
        return (
            f'Go on with `ralph resume {run}`, with a hint by `--guidance "..."`, or end it with `ralph abort {run}`.'
        )
    return f"See what changed with `ralph diff {run}`; take it back with `ralph undo {run}`."


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")[:300]
