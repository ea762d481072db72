"""`ralph hats`: list, show, check and draw presets."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from ralph.app.hats import Located, examine_preset, shorten_path
from ralph.cli.console import json_option, note_old_name, open_project
from ralph.cli.terminal import print_json, print_text
from ralph.core.checks import Severity
from ralph.core.errors import RalphError, UsageError
from ralph.core.outcomes import Outcome
from ralph.core.text import count
from ralph.store.files import refuse_unwritable, write_text
from ralph.store.presets import BUILTIN, LoadedPreset, NamedPreset, find_preset
from ralph.store.presets import list_presets as find_presets
from ralph.workflows.hats.drawing import build_graph, render_mermaid, render_text
from ralph.workflows.hats.preset_completion import Search, find_shortest_route
from ralph.workflows.hats.preset_model import Model

_FORMATS = {".mmd": "mermaid", ".mermaid": "mermaid", ".txt": "text"}
"""The format of a file, by its suffix."""
_CONFIG = click.option(
    "-c", "--config", "given", multiple=True, metavar="FILE|KEY=VALUE", help="The same as in `ralph run`."
)


@click.group("hats")
def hats() -> None:
    """List, show, check or draw presets before you run them.

    \b
    ralph hats list                      the presets, and when to use each
    ralph hats show tdd                  what is in one; `ralph run -H tdd` runs it
    ralph hats check                     whether the hats of ralph.yml can finish
    ralph hats check code-assist         a preset by its name, or the path of its file
    ralph hats graph                     who publishes what, and who receives it
    """


@hats.command("list")
@json_option
def list_(as_json: bool) -> int:
    """List the presets, and when to use each."""
    return _list_presets(as_json=as_json)


@hats.command("show")
@click.argument("preset")
@click.option("--path", "path_only", is_flag=True, help="Print only the path of the file.")
@json_option
def show(preset: str, path_only: bool, as_json: bool) -> int:
    """Show what is in PRESET."""
    return _show_preset(preset, path_only=path_only, as_json=as_json)


@hats.command("check")
@click.argument("preset", required=False)
@_CONFIG
@click.option("--strict", is_flag=True, help="Exit with 2 for warnings too.")
@json_option
def check(preset: str | None, given: tuple[str, ...], strict: bool, as_json: bool) -> int:
    """Check whether the hats of PRESET can finish, and what is wrong with them. Default: the hats of ralph.yml.

    PRESET is a name or a file, as in `ralph run -H`. docs/hats-check.md explains each finding. The exit code is 2 if there are
    errors; `ralph run` then refuses to start.
    """
    loaded, model, found = examine_preset(open_project(), preset, given)
    ahead = find_shortest_route(model) if model.settings.hats else Search()
    bad = any(strict or one.finding.severity is Severity.ERROR for one in found)
    if as_json:
        print_json(
            command="hats check",
            files=loaded.files,
            hats=[hat.id for hat in model.settings.hats],
            shortest=[turn._asdict() for turn in ahead.route],
            findings=[_plain(one) for one in found],
            notes=loaded.notices,
        )
    else:
        for one in found:
            print_text(f"{one}\n    {one.finding.todo}")
        for notice in loaded.notices:
            print_text(f"note: {notice}")
        print_text(_summary(loaded, model, found, ahead))
    return Outcome.USAGE.exit_code if bad else 0


@hats.command("graph")
@click.argument("preset", required=False)
@_CONFIG
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "mermaid"]),
    help="The format of the output. Default: the one that the suffix of -o names; without -o, text in a terminal and mermaid"
    " in a pipe.",
)
@click.option("-o", "--output", metavar="FILE", help="Write to this file. Its suffix sets the format: .mmd or .txt.")
def graph(preset: str | None, given: tuple[str, ...], form: str | None, output: str | None) -> int:
    """Draw which hat of PRESET publishes what, who receives it, the gates, and the findings. Default: the hats of ralph.yml.

    Dashed lines are default events, and events that are published if checks fail.
    """
    loaded, model, found = examine_preset(open_project(), preset, given)
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
        print_text(f"Wrote {output}")
    else:
        print_text(text, newline=False, wraps=False)
    return 0


def _format_of(path: Path) -> str:
    refuse_unwritable(path)
    if path.suffix not in _FORMATS:
        todo = f"use a suffix of {', '.join(_FORMATS)}, or add --format"
        raise UsageError("the suffix of the file is not a known format", where=str(path), todo=todo)
    return _FORMATS[path.suffix]


def _plain(one: Located) -> dict[str, object]:
    found = one.finding
    return {
        **{"code": found.code, "severity": found.severity, "file": one.place.file, "line": one.place.line},
        **{"key": ".".join(found.path), "hat": found.hat, "what": found.what, "todo": found.todo},
    }


def _summary(loaded: LoadedPreset, model: Model, found: Sequence[Located], ahead: Search) -> str:
    """The result of the check in one line."""
    name = shorten_path(loaded.files[-1]) if loaded.files else "these settings"
    if not model.settings.hats:
        return f"{name}: no hats. One agent works alone until `{model.settings.completion}`; there is nothing to check"
    errors = sum(one.finding.severity is Severity.ERROR for one in found)
    summary = f"{name}: {count(len(model.settings.hats), 'hat')}, "
    summary += f"{count(errors, 'error')}, {count(len(found) - errors, 'warning')}" if found else "no problems"
    if ahead.route:
        path, which = " -> ".join(turn.who for turn in ahead.route), "a" if ahead.open else "the shortest"
        summary += f"; {which} path to the end takes {count(len(ahead.route), 'turn')}: {path}"
    return summary


def _show_preset(name: str, *, path_only: bool, as_json: bool) -> int:
    """Print a preset, or only its path."""
    found = find_preset(open_project().root, name)
    path = str(found.path or f"{BUILTIN}{found.name}")
    if as_json:
        print_json(command="presets", name=found.name, origin=found.origin, path=path, text=found.text)
    else:
        print_text(path if path_only else found.text.rstrip("\n"), wraps=False)
    return 0


def _list_presets(*, as_json: bool) -> int:
    """Print every preset that can be named here, and when to use it."""
    rows = [_describe(one) for one in find_presets(open_project().root)]
    if as_json:
        print_json(command="presets", presets=rows)
        return 0
    width = max(len(row["name"]) for row in rows)
    for row in rows:
        about = row["fault"] or f"{count(row['hats'], 'hat')}. {row['use']}"
        path = "" if row["origin"] == "built in" else f" ({row['origin']}: {row['path']})"
        hidden = " (hidden by another preset of this name)" if row["shadowed"] else ""
        print_text(f"{row['name']:<{width}}  {about}{path}{hidden}")
    return 0


def _describe(found: NamedPreset) -> dict[str, Any]:
    """The description of a preset. The first line of its file says when to use it."""
    path = str(found.path or f"{BUILTIN}{found.name}")
    row = {"name": found.name, "origin": found.origin, "path": path, "shadowed": found.shadowed}
    try:
        use = found.text.partition("\n")[0]
        hats = len(found.layer([]).get("hats", {}))
    except RalphError as error:
        return {**row, "use": "", "hats": 0, "fault": f"cannot be read: {error.what}"}
    return {**row, "use": use.lstrip("# ") if use.startswith("#") else "", "hats": hats, "fault": ""}


@click.command("presets", hidden=True)
@click.argument("words", nargs=-1, metavar="[show NAME]")
@click.option("--path", "path_only", is_flag=True, help="With show: print only the path of the file.")
@json_option
def presets(words: tuple[str, ...], path_only: bool, as_json: bool) -> int:
    """The old name of `ralph hats list` and `ralph hats show`."""
    note_old_name("presets", "hats show" if words else "hats list")
    match words:
        case ():
            return _list_presets(as_json=as_json)
        case ("show", name):
            return _show_preset(name, path_only=path_only, as_json=as_json)
        case ("show",):
            raise click.UsageError("show needs the name of a preset")
        case _:
            raise click.UsageError(f"{' '.join(words)!r} is unknown here: give nothing, or show NAME")
