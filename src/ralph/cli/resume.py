"""`ralph resume`: go on with a run."""

import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

import click

from ralph.app.adopt import adopt, programs_of
from ralph.app.change_agents import change_agents, with_changed_crew
from ralph.app.run_options import RunOptions, build_crew, parse_deadline, positive
from ralph.app.start_checks import cost_notices
from ralph.app.workflows import SESSIONS
from ralph.cli.choose_run import nothing_to_resume, stopped_run
from ralph.cli.console import agree, here, json_option, one_line, tell
from ralph.cli.engine import detach, refuse_inside_a_turn, work_on
from ralph.cli.trust import ask_consent, ask_consent_again
from ralph.core.errors import UsageError
from ralph.core.limits import Limits
from ralph.core.signals import Signal, SignalType
from ralph.documents.run_record import Crew
from ralph.engine.ledger import Ledger
from ralph.store.journal import read_records
from ralph.store.runs import Project, RunDir, describe_run
from ralph.store.settings import load_config

_LIMITS = (
    ("max_iterations", "iterations", 1),
    ("timeout", "active_seconds", 60),
    ("max_tokens", "tokens", 1),
    ("max_cost", "cost", 1),
)
"""Options that set a limit, the field of `Limits`, and how many of its units one of theirs is."""
_AGENTS = ("agents", "agent_command", "scenario", "model")
"""Options that say who does the turns."""
_FLAGS = ("no_deadline", "allow_unpriced")


@click.command("resume")
@click.argument("run", required=False)
@click.option("--guidance", metavar="TEXT", help="What the agent should know or do differently from here on.")
@click.option("--agent", "agents", multiple=True, help="Another agent from here on; again for one that takes over.")
@click.option("--agent-command", help="Any program as the agent from here on.")
@click.option("--scenario", help="Another scenario file of the scripted agent.")
@click.option("--model", default="", help="Another model from here on.")
@click.option("--max-iterations", type=int, help="Iterations at most, including those already made.")
@click.option("--timeout", type=float, help="Active minutes at most, including those already used.")
@click.option("--deadline", help="The new local time at which all work stops, for example 2026-11-16T07:00.")
@click.option("--no-deadline", is_flag=True, help="Continue without a deadline.")
@click.option("--max-cost", type=float, help="US dollars at most, including those already spent.")
@click.option(
    "--allow-unpriced", is_flag=True, help="Continue although --max-cost cannot hold, because a cost is unknown."
)
@click.option("--max-tokens", type=int, help="Tokens at most, including those already used.")
@click.option("--detach", "detached", is_flag=True, help="Work in the background.")
@click.option("--adopt", "adopts", is_flag=True, help="Take over a run that this machine did not start or verify.")
@click.option("--yes", is_flag=True, help="Agree to what would be started without asking.")
@json_option
def command(
    run: str | None, guidance: str | None, detached: bool, adopts: bool, yes: bool, as_json: bool, **given: Any
) -> int:
    """Go on with RUN. Default: the run that stopped last.

    A run that this machine did not start, or whose journal was changed, goes on only with --adopt: what it would start is
    shown first, and what it claims of earlier turns and checks does not count.

    A run that ended on a limit gets that allowance once more, or the limits that are given here; one whose deadline has
    passed needs --deadline or --no-deadline. If the engine was killed, the agent that is still at work is taken over.
    """
    refuse_inside_a_turn()
    project = here()
    chosen = stopped_run(project, run)
    if chosen is None:
        raise nothing_to_resume(project)
    if not run and not as_json:
        click.echo(f"Resuming {describe_run(chosen)}")
    if chosen.alive:
        if _asked(given) or _names_agent(given):
            what = f"run {chosen.id} is under way: its limits and its agents stay until it ends"
            raise UsageError(what, todo="pause it first (`ralph signal pause`), or leave the options out")
        chosen.mailbox.post(Signal("", SignalType.RESUME, guidance or ""))
        lines = [f"Run {chosen.id} is under way; a pause that was asked for is taken back."]
        return tell(as_json, lines, command="resume", run=chosen.id, signalled=True)
    notices: tuple[str, ...] = (_adopt(project, chosen, yes=yes),) if adopts else ()
    outcome = chosen.outcome()
    if outcome and not outcome.resumable:
        of_session = chosen.record().workflow in SESSIONS
        todo = f"`ralph session feedback {chosen.id}` begins another iteration" if of_session else "start a new one"
        raise UsageError(f"run {chosen.id} is over: {outcome}", where=str(chosen.path), todo=todo)
    chosen.refuse_claimed()
    granted = _limits(chosen, given)
    record = chosen.record()
    if _names_agent(given):
        record = replace(record, crew=_crew(project, chosen, given))
    notices += tuple(cost_notices(project, record, granted))
    ask_consent_again(project, yes=yes)
    if _names_agent(given):
        ask_consent(project, record, yes=yes)
        change_agents(chosen, record.crew)
    if guidance:
        chosen.mailbox.post(Signal("", SignalType.RESUME, guidance))
    if detached:
        return detach(project, chosen, as_json=as_json, options=_as_options(given))
    return work_on(project, chosen, notices, as_json=as_json, granted=granted, resumes=True)


def _names_agent(given: Mapping[str, Any]) -> bool:
    return any(given[name] for name in _AGENTS)


def _crew(project: Project, run: RunDir, given: Mapping[str, Any]) -> Crew:
    """The agents from here on: those that the options name, or those of the run with another model."""
    options = RunOptions(**{name: given[name] for name in _AGENTS})
    if options.name_an_agent:
        return build_crew(project, load_config(project.root), options)
    record = run.record()
    crew = with_changed_crew(record, Ledger.of(record.limits, read_records(run.path / "journal.jsonl"))).crew
    first, *rest = crew.chain
    return replace(crew, chain=(replace(first, model=options.model), *rest))


def _adopt(project: Project, run: RunDir, *, yes: bool) -> str:
    """Show what a run would start that somebody else may have written, and take it over if the user agrees."""
    doubt = run.find_doubt()
    if not doubt:
        return f"run {run.id} is your own: there was nothing to adopt"
    shown = "\n".join(f"  {what:<8}{one_line(words)}" for what, words in programs_of(run.record()))
    click.echo(f"Run {run.id}: {doubt}.\nIt would start without asking again, in {project.root}:\n{shown}", err=True)
    agree(yes=yes, where=str(run.path), todo=f"`ralph resume {run.id} --adopt --yes`")
    return adopt(project, run, doubt, datetime.now())


def _limits(run: RunDir, given: Mapping[str, Any]) -> Limits:
    """The limits of a run from here on, with those that were set anew; one that leaves nothing is refused."""
    record = run.record()
    records = read_records(run.path / "journal.jsonl") if (run.path / "journal.jsonl").exists() else []
    ledger = Ledger.of(record.limits, records)
    asked = _asked(given)
    if "iterations" in asked and record.workflow in SESSIONS:
        what = f"run {run.id} is a session: each feedback of yours begins one iteration"
        raise UsageError(what, todo="leave --max-iterations out")
    for name, value in asked.items():
        spent = getattr(ledger.spent, name, 0.0)
        if value is not None and value <= spent:
            what = name.replace("active_seconds", "seconds of active time")
            raise UsageError(f"{spent:g} {what} are used already; {value:g} leaves nothing", todo="give more")
    limits = replace(ledger.extended_limits(record.limits), **asked)
    if limits.deadline is not None and limits.deadline <= time.time():
        tomorrow = datetime.fromtimestamp(time.time() + 86_400).strftime("%Y-%m-%dT07:00")
        when = datetime.fromtimestamp(limits.deadline).strftime("%Y-%m-%d %H:%M")
        todo = f"`ralph resume {run.id} --no-deadline`, or give a later one: --deadline {tomorrow}"
        raise UsageError(f"the deadline of run {run.id} has passed: {when}", where=str(run.path), todo=todo)
    return limits


def _asked(given: Mapping[str, Any]) -> dict[str, Any]:
    """The limits that the options set, by their names in `Limits`."""
    if given["deadline"] and given["no_deadline"]:
        raise UsageError("--deadline and --no-deadline exclude each other", todo="give one of them")
    asked: dict[str, Any] = {}
    for option, name, unit in _LIMITS:
        value = positive(f"--{option.replace('_', '-')}", given[option], None)
        if value is not None:
            asked[name] = value * unit
    if given["deadline"]:
        asked["deadline"] = parse_deadline(given["deadline"])
    if given["no_deadline"]:
        asked["deadline"] = None
    if given["allow_unpriced"]:
        asked["allow_unpriced"] = True
    return asked


def _as_options(given: Mapping[str, Any]) -> tuple[str, ...]:
    """The options on limits again, for an engine in the background; the agents are in the journal."""
    flags = tuple(f"--{name.replace('_', '-')}" for name in _FLAGS if given[name])
    named = {name: value for name, value in given.items() if value is not None and name not in (*_FLAGS, *_AGENTS)}
    return (*flags, *(f"--{name.replace('_', '-')}={value}" for name, value in named.items()))
