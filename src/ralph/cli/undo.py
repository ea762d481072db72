"""`ralph undo`: take back the last change that a run made to the files."""

import click

from ralph.cli.console import here, json_option, latest_run, tell
from ralph.cli.restore import at_rest


@click.command("undo")
@click.argument("run", required=False)
@click.option(
    "--force", is_flag=True, help="Undo even if you changed the same files since. Your version is recorded first."
)
@json_option
def command(run: str | None, force: bool, as_json: bool) -> int:
    """Undo what the last turn of RUN changed; call it again for the turn before. Default: the latest run.

    The tree is recorded first, and only files that the turn had changed are written.
    """
    project = here()
    chosen = latest_run(project, run)
    with at_rest(project, chosen) as snapshots:
        undone = snapshots.undo(force=force)
    label, restored = undone.undone.label, undone.restored
    lines = [
        f"Took back {label}: {len(restored.files)} written.",
        *(f"  {line}" for line in (*restored.files[:20], *restored.notices)),
        f"Nothing is lost: the tree as it was is recorded as {restored.before[:12]}.",
    ]
    facts = {"run": chosen.id, "undone": label, "files": restored.files, "notices": restored.notices}
    return tell(as_json, lines, command="undo", **facts)
