"""`ralph hats`: what a preset comes to, before it costs anything."""

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from ralph.cli.console import json_option, say_json
from ralph.cli.hats_findings import GIVEN, Located, examine_preset, shorten_path
from ralph.core.errors import UsageError
from ralph.core.outcomes import Outcome
from ralph.store.files import refuse_unwritable, write_text
from ralph.store.presets import Loaded
from ralph.workflows.hats.checking.findings import Severity
from ralph.workflows.hats.checking.model import Model
from ralph.workflows.hats.checking.search import Search, shortest
from ralph.workflows.hats.drawing.graph import build_graph
from ralph.workflows.hats.drawing.render import render_mermaid, render_text

_FORMATS = {".mmd": "mermaid", ".mermaid": "mermaid", ".txt": "text"}
"""The format of a file, by its suffix."""


@click.group("hats")
def command() -> None:
    """List, show, check or draw presets, before they cost anything.

    \b
    ralph hats list                      the presets that can be named here, and when to use each
    ralph hats show tdd                  what is in one; `ralph run -H tdd` runs it
    ralph hats check                     the hats of ralph.yml: can they finish, and what is wrong?
    ralph hats check code-assist         a preset by its name, or the path of its file
    ralph hats graph                     what each hat publishes and who takes it, as a graph
    """


@command.command("list")
@json_option
def list_(as_json: bool) -> int:
    """List the presets that can be named here, and when to use each."""
    from ralph.cli.presets import list_presets

    return list_presets(as_json=as_json)


@command.command("show")
@click.argument("preset")
@click.option("--path", "where", is_flag=True, help="Print where it is, not what is in it.")
@json_option
def show(preset: str, where: bool, as_json: bool) -> int:
    """Show what is in PRESET."""
    from ralph.cli.presets import show_preset

    return show_preset(preset, where=where, as_json=as_json)


@command.command("check")
@click.argument("preset", required=False)
@GIVEN
@click.option("--strict", is_flag=True, help="Also exit with 2 for warnings.")
@json_option
def check(preset: str | None, given: tuple[str, ...], strict: bool, as_json: bool) -> int:
    """Say whether the hats of PRESET can finish, and what is wrong with them; docs/hats-check.md explains each finding.

    PRESET is a name or a file, over the settings of the project as with `ralph run -H`; without it, ralph.yml. Exits with 2
    where there are errors: `ralph run` refuses those too.
    """
    loaded, model, found = examine_preset(preset, given)
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


@command.command("graph")
@click.argument("preset", required=False)
@GIVEN
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "mermaid"]),
    help="Default: by the name of -o; else text, or mermaid in a pipe.",
)
@click.option("-o", "--output", metavar="FILE", help="Write it to this file; its suffix is the format (.mmd, .txt).")
def graph(preset: str | None, given: tuple[str, ...], form: str | None, output: str | None) -> int:
    """Draw the hats of PRESET: what each publishes and who takes it, gates, and what `ralph hats check` found.

    Dashed: default events, and what is published if checks fail.
    """
    loaded, model, found = examine_preset(preset, given)
    name = shorten_path(loaded.files[-1]) if loaded.files else "these settings"
    if not model.settings.hats:
        raise UsageError("there are no hats to draw", where=name, todo="name a preset: `ralph hats graph code-assist`")
    output = None if output == "-" else output
    if not form and output:
        form = _format_of(Path(output))
    elif not form:
        form = "text" if sys.stdout.isatty() else "mermaid"
    drawn = build_graph(model, [one.finding for one in found])
    text = render_mermaid(drawn) if form == "mermaid" else render_text(drawn) + "".join(f"{one}\n" for one in found)
    if output:
        write_text(Path(output), text)
        click.echo(f"Wrote {output}")
    else:
        click.echo(text, nl=False)
    return 0


def _format_of(path: Path) -> str:
    refuse_unwritable(path)
    if path.suffix not in _FORMATS:
        todo = f"use a suffix of {', '.join(_FORMATS)}, or add --format"
        raise UsageError("its name does not say which format it has", where=str(path), todo=todo)
    return _FORMATS[path.suffix]


def _plain(one: Located) -> dict[str, object]:
    found = one.finding
    return {
        **{"code": found.code, "severity": found.severity, "file": one.place.file, "line": one.place.line},
        **{"key": ".".join(found.path), "hat": found.hat, "what": found.what, "todo": found.todo},
    }


def _summary(loaded: Loaded, model: Model, found: Sequence[Located], ahead: Search) -> str:
    """What it all comes to, in a line."""
    name = shorten_path(loaded.files[-1]) if loaded.files else "these settings"
    if not model.settings.hats:
        return f"{name}: no hats. One agent works alone until `{model.settings.completion}`; there is nothing to check"
    errors = sum(one.finding.severity is Severity.ERROR for one in found)
    counts = f"{_count(errors, 'error')}, {_count(len(found) - errors, 'warning')}" if found else "nothing is wrong"
    hats, which = " -> ".join(turn.who for turn in ahead.way), "a" if ahead.open else "the shortest"
    turns = f"; {which} way to the end is {_count(len(ahead.way), 'turn')}: {hats}" if ahead.way else ""
    return f"{name}: {_count(len(model.settings.hats), 'hat')}, {counts}{turns}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
