"""`ralph resume`: go on with a run."""

import click

from ralph.cli.console import here, json_option, say_json
from ralph.cli.engine import detach, refuse_inside_a_turn, work_on
from ralph.core.errors import UsageError
from ralph.core.signals import SignalType


@click.command("resume")
@click.argument("run", required=False)
@click.option("--detach", "detached", is_flag=True, help="Work in the background.")
@json_option
def command(run: str | None, detached: bool, as_json: bool) -> int:
    """Go on with RUN, or with the only one that can go on.

    A run that ended on a limit gets that allowance once more. One whose engine was killed takes over the agent that is
    still at work.
    """
    refuse_inside_a_turn()
    project = here()
    chosen = project.only((r for r in project.runs() if r.can_go_on and not r.alive), "resume", run)
    if chosen.alive:
        chosen.mailbox.post(SignalType.RESUME)
        if as_json:
            say_json(command="resume", run=chosen.id, signalled=True)
        else:
            click.echo(f"Run {chosen.id} is under way; a pause that was asked for is taken back.")
        return 0
    outcome = chosen.outcome()
    if outcome and not outcome.resumable:
        raise UsageError(
            f"run {chosen.id} is over: {outcome}",
            where=str(chosen.path),
            todo="start a new one with `ralph loop`",
        )
    mailbox = chosen.mailbox
    for signal in mailbox.peek():
        if signal.type is SignalType.PAUSE:
            mailbox.settle(signal, "taken back by `ralph resume`")
    if detached:
        return detach(project, chosen, as_json=as_json)
    return work_on(project, chosen, (), as_json=as_json)
