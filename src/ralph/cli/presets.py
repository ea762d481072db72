"""`ralph hats list` and `ralph hats show`: which presets there are, when to use each, and what is in one."""

from typing import Any

import click

from ralph.cli.console import here, json_option, note_old_name, say_json
from ralph.core.errors import RalphError
from ralph.store.presets import BUILTIN, Found, preset_named, presets


@click.command("presets", hidden=True)
@click.argument("words", nargs=-1, metavar="[show NAME]")
@click.option("--path", "where", is_flag=True, help="With show: print where it is, not what is in it.")
@json_option
def command(words: tuple[str, ...], where: bool, as_json: bool) -> int:
    """The old name of `ralph hats list` and `ralph hats show`."""
    note_old_name("presets", "hats show" if words else "hats list")
    match words:
        case ():
            return list_presets(as_json=as_json)
        case ("show", name):
            return show_preset(name, where=where, as_json=as_json)
        case ("show",):
            raise click.UsageError("show what? Give the name of a preset.")
        case _:
            raise click.UsageError(f"there is no {' '.join(words)!r} here: it takes nothing, or show NAME.")


def show_preset(name: str, *, where: bool, as_json: bool) -> int:
    """Print a preset, or where it is."""
    found = preset_named(here().root, name)
    path = str(found.path or f"{BUILTIN}{found.name}")
    if as_json:
        say_json(command="presets", name=found.name, origin=found.origin, path=path, text=found.text)
    else:
        click.echo(path if where else found.text.rstrip("\n"))
    return 0


def list_presets(*, as_json: bool) -> int:
    """Print every preset that can be named here, and when to use it."""
    rows = [_about(one) for one in presets(here().root)]
    if as_json:
        say_json(command="presets", presets=rows)
        return 0
    width = max(len(row["name"]) for row in rows)
    for row in rows:
        told = row["fault"] or f"{row['hats']} hats. {row['use']}"
        place = "" if row["origin"] == "built in" else f" ({row['origin']}: {row['path']})"
        hidden = " (another of this name comes first)" if row["shadowed"] else ""
        click.echo(f"{row['name']:<{width}}  {told}{place}{hidden}")
    return 0


def _about(found: Found) -> dict[str, Any]:
    """What is told of a preset; when to use it stands in the first line of its file."""
    path = str(found.path or f"{BUILTIN}{found.name}")
    row = {"name": found.name, "origin": found.origin, "path": path, "shadowed": found.shadowed}
    try:
        use = found.text.partition("\n")[0]
        hats = len(found.layer([]).get("hats", {}))
    except RalphError as error:
        return {**row, "use": "", "hats": 0, "fault": f"cannot be read: {error.what}"}
    return {**row, "use": use.lstrip("# ") if use.startswith("#") else "", "hats": hats, "fault": ""}
