"""`ralph abort`: end a run for good."""

import io
import time

import click

from ralph.cli.console import here, json_option, say_json
from ralph.cli.view import PlainView
from ralph.core.errors import UsageError
from ralph.core.limits import Limits
from ralph.core.signals import SignalType
from ralph.store.runs import RunDir


@click.command("abort")
@click.argument("run", required=False)
@click.option("--message", default="", help="Why; it is kept in the journal.")
@json_option
def command(run: str | None, message: str, as_json: bool) -> int:
    """End RUN, or the only one that is not over. Its turn is ended with every process of it; files stay as they are."""
    project = here()
    chosen = project.only((r for r in project.runs() if r.can_go_on), "abort", run)
    outcome = chosen.outcome()
    if outcome and not outcome.resumable:
        raise UsageError(f"run {chosen.id} is over: {outcome}", todo="there is nothing to abort")
    if chosen.alive:
        chosen.mailbox.post(SignalType.ABORT, message or "aborted by `ralph abort`")
        _wait_until_over(chosen)
    else:
        from ralph.wiring import abort_on_disk

        abort_on_disk(project, chosen, PlainView(Limits(), io.StringIO()), message or "aborted by `ralph abort`")
    outcome = chosen.outcome()
    if as_json:
        say_json(command="abort", run=chosen.id, outcome=outcome, alive=chosen.alive)
    else:
        click.echo(f"Run {chosen.id}: {outcome or 'still ending its turn'}. The files are as the last turn left them.")
        click.echo(f"Next:   ralph diff {chosen.id}   ralph undo {chosen.id}")
    return 0


def _wait_until_over(run: RunDir) -> None:
    """Wait as long as an engine may need to end its turn: grace, kill, and the report."""
    deadline = time.monotonic() + 60
    while run.alive and time.monotonic() < deadline:
        time.sleep(0.05)
