"""`ralph hats`: what a preset comes to, before it costs anything."""

from collections.abc import Sequence

import click

from ralph.cli import hats_graph
from ralph.cli.console import json_option, say_json
from ralph.cli.hats_checked import GIVEN, Located, examined, shown
from ralph.core.outcomes import Outcome
from ralph.store.presets import Loaded
from ralph.workflows.hats.checking.exploring import Search, shortest
from ralph.workflows.hats.checking.finding import Severity
from ralph.workflows.hats.checking.model import Model


@click.group("hats")
def command() -> None:
    """Check a preset before it costs anything, or draw it.

    \b
    ralph hats check                     the hats of ralph.yml: can they finish, and what is wrong?
    ralph hats check code-assist         a preset by its name, or the path of its file
    ralph hats graph                     what each hat publishes and who takes it, as a picture
    """


command.add_command(hats_graph.command)


@command.command("check")
@click.argument("preset", required=False)
@GIVEN
@click.option("--strict", is_flag=True, help="Exit with 2 for warnings too.")
@json_option
def check(preset: str | None, given: tuple[str, ...], strict: bool, as_json: bool) -> int:
    """Say whether the hats of PRESET can finish, and what is wrong with them; docs/hats-check.md explains each finding.

    PRESET is a name or a file, over the settings of the project as with `ralph run -H`; without it, ralph.yml. Exits with 2
    where there are errors: `ralph run` refuses those too.
    """
    loaded, model, found = examined(preset, given)
    ahead = shortest(model) if model.settings.hats else Search()
    bad = any(strict or one.finding.severity is Severity.ERROR for one in found)
    if as_json:
        say_json(
            command="hats check",
            files=loaded.files,
            hats=[hat.id for hat in model.settings.hats],
            shortest=[turn._asdict() for turn in ahead.way],
            findings=[_plain(one) for one in found],
            notes=loaded.notices,
        )
    else:
        told = (f"{one}\n    {one.finding.todo}" for one in found)
        notes = (f"note: {notice}" for notice in loaded.notices)
        for line in (*told, *notes, _summary(loaded, model, found, ahead)):
            click.echo(line)
    return Outcome.USAGE.exit_code if bad else 0


def _plain(one: Located) -> dict[str, object]:
    found = one.finding
    return {
        **{"code": found.code, "severity": found.severity, "file": one.place.file, "line": one.place.line},
        **{"key": ".".join(found.path), "hat": found.hat, "what": found.what, "todo": found.todo},
    }


def _summary(loaded: Loaded, model: Model, found: Sequence[Located], ahead: Search) -> str:
    """What it all comes to, in a line."""
    name = shown(loaded.files[-1]) if loaded.files else "these settings"
    if not model.settings.hats:
        return f"{name}: no hats. One agent works alone until `{model.settings.completion}`; there is nothing to check"
    errors = sum(one.finding.severity is Severity.ERROR for one in found)
    counts = f"{errors} errors, {len(found) - errors} warnings" if found else "nothing is wrong"
    hats, which = " -> ".join(turn.who for turn in ahead.way), "a" if ahead.open else "the shortest"
    turns = f"; {which} way to the end is {len(ahead.way)} turns: {hats}" if ahead.way else ""
    return f"{name}: {len(model.settings.hats)} hats, {counts}{turns}"
