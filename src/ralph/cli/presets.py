"""`ralph presets`: which presets there are, when to use each, and what is in one."""

from typing import Any

import click

from ralph.cli.console import here, json_option, say_json
from ralph.core.errors import RalphError
from ralph.store.presets import BUILTIN, Found, preset_named, presets


@click.command("presets")
@click.argument("words", nargs=-1, metavar="[show NAME]")
@click.option("--path", "where", is_flag=True, help="With show: print where it is, not what is in it.")
@json_option
def command(words: tuple[str, ...], where: bool, as_json: bool) -> int:
    """List the presets that can be named here, or show one.

    \b
    ralph presets show tdd
    ralph run -H tdd -p "..."      or   ralph init --preset tdd
    """
    match words:
        case ():
            return _list(as_json=as_json)
        case ("show", name):
            return _show(preset_named(here().root, name), where=where, as_json=as_json)
        case ("show",):
            raise click.UsageError("show what? Give the name of a preset.")
        case _:
            raise click.UsageError(f"there is no {' '.join(words)!r} here: it takes nothing, or show NAME.")


def _show(found: Found, *, where: bool, as_json: bool) -> int:
    path = str(found.path or f"{BUILTIN}{found.name}")
    if as_json:
        say_json(command="presets", name=found.name, origin=found.origin, path=path, text=found.text)
    else:
        click.echo(path if where else found.text.rstrip("\n"))
    return 0


def _list(*, as_json: bool) -> int:
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
