"""`ralph signal`: a word from a person to a run."""

import os

import click

from ralph.app.workflows import roles_of
from ralph.cli.choose_run import live_run
from ralph.cli.console import here, json_option, tell
from ralph.core.errors import UsageError
from ralph.core.signals import ASKED_FOR, Signal, SignalType, addressee, is_known
from ralph.store.runs import Project, RunDir

_INTERRUPTS = (SignalType.STEER, SignalType.PAUSE)

run_option = click.option("--run", metavar="ID", help="The run. Default: the one that is alive.")
to_option = click.option(
    "--to", "role", default="", metavar="ROLE", help="The role that should receive it. Default: all."
)
now_option = click.option("--now", is_flag=True, help="Interrupt the turn and continue the same conversation.")


@click.command("signal")
@click.argument("type", type=click.Choice([kind.lower() for kind in SignalType], case_sensitive=False))
@click.argument("message", default="")
@to_option
@run_option
@now_option
@click.option("--iteration", type=click.IntRange(min=0), help="The iteration that it is about.")
@click.option("--item", "items", multiple=True, help="What you approve. Default: everything.")
@json_option
def command(
    type: str,
    message: str,
    role: str,
    run: str | None,
    now: bool,
    iteration: int | None,
    items: tuple[str, ...],
    as_json: bool,
) -> int:
    """Leave a signal of that TYPE, with a MESSAGE, for the run that is under way.

    steer changes direction, info only tells something, pause ends the run after its turn, resume takes that back, abort ends
    it for good; approve and skip say whether what a session learned is kept.
    """
    signal = Signal("", SignalType.named(type), message, iteration=iteration, items=items, now=now)
    return send(signal, role, run, as_json=as_json)


def send(signal: Signal, role: str, run: str | None, *, as_json: bool) -> int:
    """Leave a signal for the run that is meant, and say what becomes of it."""
    if os.environ.get("RALPH_TURN"):
        raise UsageError("signals come from people, not from turns", todo="say it in your answer instead")
    if signal.type in (SignalType.STEER, SignalType.INFO) and not signal.message.strip():
        raise UsageError("the message is empty", todo=f'say what is meant: ralph signal {signal.type.lower()} "..."')
    if signal.now and signal.type not in _INTERRUPTS:
        raise UsageError(
            f"--now does not go with {signal.type.lower()}", todo="leave it out; it is for steer and pause"
        )
    if signal.items and signal.type is not SignalType.APPROVE:
        raise UsageError(f"--item does not go with {signal.type.lower()}", todo="leave it out; it is for approve")
    project = here()
    chosen = meant(project, run)
    signal = _addressed(signal, role, chosen)
    if signal.type is SignalType.ABORT:
        from ralph.cli.abort import end

        end(project, chosen, signal.message or "aborted by `ralph signal`")
        return _say(chosen, signal, "", f"{chosen.outcome() or 'still ending its turn'}", as_json=as_json)
    if not chosen.alive and signal.type in (SignalType.PAUSE, SignalType.RESUME):
        todo = f"`ralph resume {chosen.id}` goes on with it"
        raise UsageError(f"nobody works on run {chosen.id}: there is nothing to {signal.type.lower()}", todo=todo)
    name = chosen.mailbox.post(signal).name
    waits = "when the session asks whether what it learned is kept" if signal.type in ASKED_FOR else "in a moment"
    when = waits if chosen.alive else f"when the run goes on: ralph resume {chosen.id}"
    return _say(chosen, signal, name, f"it is taken {when}", as_json=as_json)


def meant(project: Project, wanted: str | None) -> RunDir:
    """The run that a person means: the named one, the one that is under way, or the only one that can go on."""
    if wanted:
        chosen = project.run(wanted)
        outcome = chosen.outcome()
        if outcome and not outcome.resumable:
            raise UsageError(f"run {chosen.id} is over: {outcome}", todo="`ralph status` lists the others")
        return chosen
    return live_run(project, None, "signal", "--run ID")


def _addressed(signal: Signal, role: str, run: RunDir) -> Signal:
    """The signal with its addressee; a role that the workflow does not have is refused."""
    record, target = run.record(), addressee(role)
    if not is_known(target, known := roles_of(record)):
        kind = "run of hats" if record.hats else record.workflow.replace("classic", "classic session")
        raise UsageError(f"a {kind} has no role {role!r}", todo=f"it has {', '.join(known)}")
    return Signal("", signal.type, signal.message, "", target, signal.iteration, signal.items, signal.now)


def _say(run: RunDir, signal: Signal, name: str, then: str, *, as_json: bool) -> int:
    whom = f" for {signal.target}" if signal.target else ""
    look = f"ralph signals --run {run.id} --watch" if run.alive else f"ralph status {run.id}"
    lines = [f"{signal.type}{whom} to run {run.id}: {then}.", f"Next:   {look}"]
    facts = {"type": signal.type, "to": signal.target or "ALL", "name": name, "alive": run.alive}
    return tell(as_json, lines, command="signal", run=run.id, **facts)
