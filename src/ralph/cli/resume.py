"""`ralph resume`: go on with a run."""

from dataclasses import asdict, replace
from datetime import datetime
from typing import Any

import click

from ralph.app.adopt import adopt, programs_of
from ralph.app.workflows import SESSIONS
from ralph.cli.console import agree, here, json_option, one_line, positive, tell
from ralph.cli.engine import detach, refuse_inside_a_turn, work_on
from ralph.cli.trust import ask_consent_again
from ralph.core.errors import UsageError
from ralph.core.limits import Limits
from ralph.core.signals import Signal, SignalType
from ralph.engine.ledger import Ledger
from ralph.store.journal import read_records
from ralph.store.runs import Project, RunDir

NONE = Limits(None, None)


@click.command("resume")
@click.argument("run", required=False)
@click.option("--guidance", metavar="TEXT", help="What the agent should know or do differently from here on.")
@click.option("--max-iterations", type=int, help="Iterations at most, those already made included.")
@click.option("--timeout", type=float, help="Active minutes at most, those already used included.")
@click.option("--max-cost", type=float, help="US dollars at most, those already spent included.")
@click.option("--max-tokens", type=int, help="Tokens at most, those already used included.")
@click.option("--detach", "detached", is_flag=True, help="Work in the background.")
@click.option("--adopt", "adopts", is_flag=True, help="Take over a run that this machine did not start or verify.")
@click.option("--yes", is_flag=True, help="Agree to what would be started without asking.")
@json_option
def command(
    run: str | None, guidance: str | None, detached: bool, adopts: bool, yes: bool, as_json: bool, **given: Any
) -> int:
    """Go on with RUN, or with the only one that can go on.

    A run that this machine did not start, or whose journal was changed, goes on only with --adopt: what it would start is
    shown first, and what it claims of earlier turns and checks does not count.

    A run that ended on a limit gets that allowance once more, or the limits that are given here. One whose engine was killed
    takes over the agent that is still at work.
    """
    refuse_inside_a_turn()
    project = here()
    chosen = project.only((r for r in project.runs() if r.can_go_on and not r.alive), "resume", run)
    more = {name: positive(f"--{name.replace('_', '-')}", value, None) for name, value in given.items()}
    seconds = None if more["timeout"] is None else 60 * more["timeout"]
    asked = Limits(more["max_iterations"], seconds, None, more["max_tokens"], more["max_cost"])
    if chosen.alive:
        if asked != NONE:
            raise UsageError(
                f"run {chosen.id} is under way: its limits hold until it ends", todo="leave the limits out"
            )
        chosen.mailbox.post(Signal("", SignalType.RESUME, guidance or ""))
        lines = [f"Run {chosen.id} is under way; a pause that was asked for is taken back."]
        return tell(as_json, lines, command="resume", run=chosen.id, signalled=True)
    notices = (_adopt(project, chosen, yes=yes),) if adopts else ()
    outcome = chosen.outcome()
    if outcome and not outcome.resumable:
        of_session = chosen.record().workflow in SESSIONS
        todo = f"`ralph session feedback {chosen.id}` begins another iteration" if of_session else "start a new one"
        raise UsageError(f"run {chosen.id} is over: {outcome}", where=str(chosen.path), todo=todo)
    chosen.refuse_claimed()
    granted = _granted(chosen, asked)
    ask_consent_again(project, yes=yes)
    if guidance:
        chosen.mailbox.post(Signal("", SignalType.RESUME, guidance))
    if detached:
        options = tuple(f"--{name.replace('_', '-')}={value}" for name, value in given.items() if value is not None)
        return detach(project, chosen, as_json=as_json, options=options)
    return work_on(project, chosen, notices, as_json=as_json, granted=granted, resumes=True)


def _adopt(project: Project, run: RunDir, *, yes: bool) -> str:
    """Show what a run would start that somebody else may have written, and take it over if the user agrees."""
    doubt = run.find_doubt()
    if not doubt:
        return f"run {run.id} is your own: there was nothing to adopt"
    shown = "\n".join(f"  {what:<8}{one_line(words)}" for what, words in programs_of(run.record()))
    click.echo(f"Run {run.id}: {doubt}.\nIt would start without asking again, in {project.root}:\n{shown}", err=True)
    agree(yes=yes, where=str(run.path), todo=f"`ralph resume {run.id} --adopt --yes`")
    return adopt(project, run, doubt, datetime.now())


def _granted(run: RunDir, asked: Limits) -> Limits | None:
    """The limits of a run with those that were set anew; one that is used up already is refused."""
    if asked == NONE:
        return None
    record = run.record()
    records = read_records(run.path / "journal.jsonl") if (run.path / "journal.jsonl").exists() else []
    ledger = Ledger.of(record.limits, records)
    given = {name: value for name, value in asdict(asked).items() if value is not None}
    spent = {name: getattr(ledger.spent, name) for name in given}
    for name, value in given.items():
        if value <= spent[name]:
            what = name.replace("active_seconds", "seconds of active time")
            raise UsageError(f"{spent[name]:g} {what} are used already; {value:g} leaves nothing", todo="give more")
    return replace(ledger.extended_limits(record.limits), **given)
