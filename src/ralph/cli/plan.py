"""What a run would do, before it does anything: `--dry-run`."""

import shlex
import time
from dataclasses import asdict, replace

import click

from ralph.agents import registry
from ralph.agents.agent import Call
from ralph.app.workflows import kind_of
from ralph.cli.console import say_json
from ralph.core.events import Do
from ralph.core.turns import TurnRequest
from ralph.documents.run_record import RunRecord
from ralph.store.runs import Project
from ralph.workflows.loop.state import Phase


def show_plan(project: Project, record: RunRecord, notes: tuple[str, ...], *, as_json: bool) -> int:
    """What a run would do, and what it could cost at worst."""
    now = time.time()
    workflow = kind_of(record.workflow).workflow(record, project.root, None)
    state = workflow.load({})
    if record.workflow == "loop":
        state = replace(state, phase=Phase.ACT, iteration=1)
    first = workflow.decide(state, now)
    works = first.work if isinstance(first, Do) else ()
    prompt = next((work.full_prompt for work in works if isinstance(work, TurnRequest)), "")
    limits = record.limits
    money = f"${limits.cost:g}" if limits.cost else "no limit on money: give --max-cost"
    tries = f"each up to 5 tries of {record.turn_limits.wall / 60:g} min"
    worst = f"{limits.iterations or 'any number of'} iterations, {tries}; {money}"
    if as_json:
        say_json(command="plan", settings=asdict(record), prompt=prompt, worst_case=worst, notes=notes)
        return 0
    click.echo("Checks:")
    for check in record.checks:
        click.echo(f"  {check.title}" + (f"   (at most {check.timeout:g} s)" if check.command else ""))
    for note in notes:
        click.echo(f"  note: {note}")
    if record.workflow == "loop":
        click.echo(f"Type:       {record.loop.type}")
    for label, spec in record.crew.everyone.items():
        agent = registry.make(spec, record.prices)
        call = Call(
            workspace=project.root,
            model=spec.model,
            arguments=spec.arguments,
            budget=limits.cost,
            most_steps=record.most_steps,
            without_tools=spec.without_tools,
            permissions=spec.permissions,
        )
        words = agent.command(call)
        click.echo(f"Agent:      {label}: {shlex.join(words)} < prompt")
    click.echo(f"Root:       {project.root}")
    click.echo(f"Worst case: {worst}")
    for name, value in (*asdict(limits).items(), *asdict(record.turn_limits).items()):
        if not isinstance(value, bool):
            click.echo(f"  {name.replace('_', ' '):<16} {'no limit' if value is None else f'{value:g}'}")
    click.echo(f"\nFirst prompt:\n\n{prompt}")
    return 0
