"""`ralph steer`: say something to the agents of a run."""

import click

from ralph.cli.console import json_option
from ralph.cli.signal import now_option, run_option, send, to_option
from ralph.core.signals import Signal, SignalType


@click.command("steer")
@click.argument("message")
@to_option
@run_option
@now_option
@json_option
def command(message: str, role: str, run: str | None, now: bool, as_json: bool) -> int:
    """Say MESSAGE to the agents of the run that is under way.

    An agent that can hear while it works has it with its next step; another with its next turn. With --now its turn is
    interrupted, and it goes on with what you said. `ralph signals` shows when it was taken in, and what came of it.
    """
    return send(Signal("", SignalType.STEER, message, now=now), role, run, as_json=as_json)
