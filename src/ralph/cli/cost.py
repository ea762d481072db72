"""`ralph cost`: the receipt of a run, and of all runs of the project."""

from collections.abc import Iterable, Iterator
from typing import Any

import click

from ralph.cli.console import here, json_option, latest_run, tell
from ralph.core.entries import TurnStarted
from ralph.core.errors import RalphError
from ralph.core.events import TurnEnded
from ralph.store.journal import read_claimed
from ralph.store.runs import RunDir

_TOKENS = ("input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens")


@click.command("cost")
@click.argument("run", required=False)
@click.option("--all", "everything", is_flag=True, help="Add up all runs of this project.")
@json_option
def command(run: str | None, everything: bool, as_json: bool) -> int:
    """Show what RUN cost, by turn, role, agent and model. Default: the latest run.

    Costs are what the agents report. If an agent reports tokens only, Ralph computes the cost from a table of prices
    (`prices:` in ralph.yml). If no price is known, the cost is shown as unknown.
    """
    project = here()
    runs = project.runs() if everything else [latest_run(project, run)]
    items = [item for one in runs for item in receipt(one)]
    by = {name: _grouped(items, name) for name in ("role", "agent", "model", *(("run",) if everything else ()))}
    lines = [
        f"turn {item['turn']:<4} {item['work']:<16} {item['role']:<14} {item['agent'][:24]:<24} {_money(item)}"
        for item in (() if everything else items)
    ]
    for name, groups in by.items():
        lines.append(f"\nby {name}")
        lines += [f"  {key[:40]:<42} {sums['turns']:>5} turns  {_money(sums)}" for key, sums in groups.items()]
    lines.append(f"\ntotal {'':<39} {len(items):>5} turns  {_money(_total(items))}")
    facts = {"runs": [one.id for one in runs], "turns": items, "total": _total(items)}
    return tell(as_json, lines, command="cost", **facts, **{f"by_{name}": groups for name, groups in by.items()})


def receipt(run: RunDir) -> Iterator[dict[str, Any]]:
    """The turns of a run, what each was for and what it used; a journal that cannot be read has none."""
    agents: dict[int, str] = {}
    path = run.path / "journal.jsonl"
    try:
        records = read_claimed(path) if path.exists() else []
    except RalphError:
        return
    for entry in (record.entry for record in records):
        match entry:
            case TurnStarted(turn=turn, agent=agent):
                agents[turn] = agent
            case TurnEnded(turn=turn, key=key, role=role, result=result):
                used = result.usage
                cost = None if used.cost is None else round(used.cost, 6)
                facts = {"run": run.id, "turn": turn, "work": key, "role": role, "agent": agents.get(turn, "")}
                tokens = {name: getattr(used, name) for name in _TOKENS}
                yield {**facts, "model": used.model, **tokens, "cost": cost}


def _grouped(items: Iterable[dict[str, Any]], name: str) -> dict[str, dict[str, Any]]:
    groups: dict[str, list[dict[str, Any]]] = {}
    for item in items:
        groups.setdefault(item[name] or "not told", []).append(item)
    return {key: _total(group) for key, group in groups.items()}


def _total(items: list[dict[str, Any]]) -> dict[str, Any]:
    """What turns used together; the cost is that of those whose cost is known."""
    known = [item["cost"] for item in items if item["cost"] is not None]
    return {
        "turns": len(items),
        **{name: sum(item[name] for item in items) for name in _TOKENS},
        "cost": round(sum(known), 6) if known else None,
        "unpriced_turns": len(items) - len(known),
    }


def _money(sums: dict[str, Any]) -> str:
    tokens = f"{sums['input_tokens']:>9} in {sums['output_tokens']:>8} out"
    details = [f"{sums['cached_tokens']} cached"] if sums["cached_tokens"] else []
    details += [f"{sums['reasoning_tokens']} reasoning"] if sums["reasoning_tokens"] else []
    if details:
        tokens += f" ({', '.join(details)})"
    cost = "cost unknown" if sums["cost"] is None else f"${sums['cost']:.4f}"
    missing = sums.get("unpriced_turns", 0)
    return f"{tokens}  {cost}" + (f" ({missing} turns unknown)" if missing and sums["cost"] is not None else "")
