"""`ralph prompt`: what a turn was told, and what each part of it costs."""

import click

from ralph.cli.console import here, json_option, say_json
from ralph.core.errors import UsageError
from ralph.store.files import read_limited, to_text
from ralph.workflows.hats.prompt import sections, tokens


@click.command("prompt")
@click.argument("run", required=False)
@click.option("--turn", type=int, help="The number of the turn. Default: the latest.")
@click.option("--sections", "only", is_flag=True, help="Show only the parts and their tokens.")
@json_option
def command(run: str | None, turn: int | None, only: bool, as_json: bool) -> int:
    """Show the prompt of a turn of RUN as it was sent, with the tokens of each part. Default: the latest run.

    Four characters count as one token.
    """
    project = here()
    runs = project.runs()
    if not run and not runs:
        raise UsageError("there is no run yet", where=str(project.root), todo="start one with `ralph run`")
    chosen = project.run(run) if run else runs[-1]
    turns = {
        int(path.name[:5]): path for path in (chosen.path / "turns").glob("[0-9]*-*") if (path / "prompt.md").exists()
    }
    if not turns or (turn is not None and turn not in turns):
        known = f"{min(turns)} to {max(turns)}" if turns else "none"
        raise UsageError(
            f"run {chosen.id} has no turn {'' if turn is None else turn}".strip(), todo=f"there are {known}"
        )
    number = turn if turn is not None else max(turns)
    text = to_text(read_limited(turns[number] / "prompt.md", 16 << 20))
    parts = list(sections(text))
    if as_json:
        rows = [{"section": name, "tokens": count} for name, count in parts]
        say_json(command="prompt", run=chosen.id, turn=number, tokens=tokens(text), sections=rows, prompt=text)
        return 0
    if not only:
        click.echo(text)
    click.echo(f"Turn {number} of {chosen.id}: about {tokens(text)} tokens")
    for name, count in parts:
        click.echo(f"  {name:<16} {count:>6}")
    return 0
