"""`ralph hats graph`: a preset as a picture."""

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from ralph.cli.hats_checked import GIVEN, Located, examined, shown
from ralph.core.errors import UsageError
from ralph.store.files import refuse_unwritable, write_text
from ralph.workflows.hats.drawing.graph import graph_of
from ralph.workflows.hats.drawing.mermaid import mermaid
from ralph.workflows.hats.drawing.plain import plain
from ralph.workflows.hats.drawing.svg import svg

_ENDINGS = {".svg": "svg", ".mmd": "mermaid", ".mermaid": "mermaid", ".txt": "text"}


@click.command("graph")
@click.argument("preset", required=False)
@GIVEN
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "mermaid", "svg"]),
    help="By -o's name; else text, or mermaid in a pipe.",
)
@click.option("-o", "--output", metavar="FILE", help="Write it there; its ending says what it is (.svg, .mmd, .txt).")
def command(preset: str | None, given: tuple[str, ...], form: str | None, output: str | None) -> int:
    """Draw the hats of PRESET: what each publishes and who takes it, gates, and what `ralph hats check` found.

    What comes without being said is dashed: defaults, and what is published where checks fail.
    """
    loaded, model, found = examined(preset, given)
    name = shown(loaded.files[-1]) if loaded.files else "these settings"
    if not model.settings.hats:
        raise UsageError("there are no hats to draw", where=name, todo="name a preset: `ralph hats graph code-assist`")
    output = None if output == "-" else output
    form = form or (_by_name(Path(output)) if output else "text" if sys.stdout.isatty() else "mermaid")
    graph = graph_of(model, [one.finding for one in found])
    text = {
        "text": lambda: plain(graph) + _told(found),
        "mermaid": lambda: mermaid(graph),
        "svg": lambda: svg(graph, name),
    }[form]()
    if output:
        write_text(Path(output), text)
        click.echo(f"Wrote {output}")
    else:
        click.echo(text, nl=False)
    return 0


def _by_name(path: Path) -> str:
    refuse_unwritable(path)
    if path.suffix not in _ENDINGS:
        todo = f"end it with one of {', '.join(_ENDINGS)}, or say what it is with --format"
        raise UsageError("its name does not say what kind of picture it is", where=str(path), todo=todo)
    return _ENDINGS[path.suffix]


def _told(found: Sequence[Located]) -> str:
    return "".join(f"{one}\n" for one in found)
