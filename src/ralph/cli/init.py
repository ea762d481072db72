"""`ralph init`: a ralph.yml to begin with."""

import json
from pathlib import Path

import click

from ralph.agents.registry import known_name
from ralph.app.trust import project_items
from ralph.cli.console import here, json_option, say_json
from ralph.core.errors import UsageError
from ralph.documents.hats.schema import schema
from ralph.store.files import to_bytes, write_atomic
from ralph.store.presets import layer_of, preset_named, presets
from ralph.store.trust import record_trust
from ralph.verify.phrases import phrases_here

_OTHER_BACKENDS = ("auto", "custom", "kiro-acp")
PLAIN = """\
# Settings of this project: docs/reference.md lists the keys, docs/hats.md those of presets.
event_loop:
  # What the engine itself checks before it believes that all is done.
  checks: ["tests pass"]
"""


@click.command("init")
@click.option("--preset", "name", help="The preset to start from: a name or a file. --list-presets shows the names.")
@click.option("-b", "--backend", help="The agent to write into the file.")
@click.option(
    "--list-presets", "listing", is_flag=True, help="List the names of the presets. `ralph hats list` explains them."
)
@click.option("--schema", "as_schema", is_flag=True, help="Print the JSON Schema of ralph.yml.")
@click.option("--force", is_flag=True, help="Overwrite an existing ralph.yml.")
@json_option
def command(name: str | None, backend: str | None, listing: bool, as_schema: bool, force: bool, as_json: bool) -> int:
    """Write ralph.yml into this directory."""
    if as_schema:
        click.echo(json.dumps(schema(), indent=2))
        return 0
    if listing:
        names = sorted({one.name for one in presets(here().root)})
        say_json(command="init", presets=names) if as_json else click.echo("\n".join(names))
        return 0
    path = Path.cwd() / "ralph.yml"
    if path.exists() and not force:
        raise UsageError("there is a ralph.yml already", where=str(path), todo="--force writes over it")
    text = preset_named(here().root, name).text if name is not None else PLAIN
    if backend is not None:
        if backend not in _OTHER_BACKENDS:
            known_name(backend)
        if "cli" in layer_of(text, path, []):
            raise UsageError(
                f"{name} names its agent itself", todo="leave -b out, and change `cli.backend` in the file"
            )
        text += f'\ncli:\n  backend: "{backend}"\n'
    layer_of(text, path, [])
    write_atomic(path, to_bytes(text))
    # The user chose this text just now: it is not asked about again until it changes.
    record_trust(path.parent.resolve(), project_items(path.parent.resolve()))
    if as_json:
        say_json(command="init", path=str(path), preset=name or "")
    else:
        click.echo(f"Wrote {path}")
        click.echo("What phrases in checks and --until would run here:")
        for phrase, commands in phrases_here(here().root):
            click.echo(f"  {phrase:<16} {commands or '-'}")
        click.echo('Next:   ralph run -p "what is to be done"   (or write it into PROMPT.md)')
    return 0
