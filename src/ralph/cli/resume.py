"""`ralph resume`: continue a run."""

from collections.abc import Mapping
from dataclasses import fields
from datetime import datetime
from typing import Any

import click

from ralph.app.resume import (
    ResumeOptions,
    accept_work,
    adopt_run,
    find_run_to_accept,
    find_run_to_resume,
    list_programs,
    plan_acceptance,
    plan_resume,
    prepare_resume,
    withdraw_pause,
)
from ralph.app.runs import refuse_inside_a_turn
from ralph.app.sessions import UserSession, refuse_unread_guidance
from ralph.cli.console import DOLLARS, MINUTES, agree, json_option, open_project, print_result, run_argument
from ralph.cli.start import detach, run_in_foreground
from ralph.cli.terminal import print_text
from ralph.cli.trust import ask_consent
from ralph.core.ids import SESSION_WORKFLOWS
from ralph.core.text import remove_controls
from ralph.store.runs import Project, RunDir, describe_run

guidance_option = click.option(
    "--guidance", metavar="TEXT", default="", help="What the agent should know or do differently from now on."
)


@click.command("resume")
@run_argument
@guidance_option
@click.option(
    "--agent",
    "agents",
    multiple=True,
    help="Use this agent from now on. Repeat the option to add agents that take over.",
)
@click.option("--agent-command", help="Use this program as the agent from now on.")
@click.option("--scenario", help="Use this scenario file for the scripted agent from now on.")
@click.option("--model", default="", help="Use this model from now on.")
@click.option("--max-iterations", type=int, help="The maximum number of iterations, including those already used.")
@click.option("--timeout", type=MINUTES, help="The maximum active time, in minutes, including the time already used.")
@click.option("--deadline", help="The new local time at which all work stops, for example 2026-11-16T07:00.")
@click.option("--no-deadline", is_flag=True, help="Continue without a deadline.")
@click.option("--max-cost", type=DOLLARS, help="The maximum cost, in US dollars, including the cost so far.")
@click.option(
    "--allow-unpriced", is_flag=True, help="Continue even if Ralph cannot enforce --max-cost because a cost is unknown."
)
@click.option("--max-tokens", type=int, help="The maximum number of tokens, including those already used.")
@click.option(
    "--max-quota",
    help="Stop using an agent when this share of its subscription is used up, by this run or by anything else. For example: 90%.",
)
@click.option(
    "--allow",
    multiple=True,
    metavar="RULE=REASON",
    help="Switch off a guard rule from now on. The reason goes into the journal. Can be repeated.",
)
@click.option(
    "--may-change",
    multiple=True,
    metavar="GLOB",
    help="Let the run change tests and settings of checks that match from now on. Can be repeated.",
)
@click.option("--detach", "detached", is_flag=True, help="Work in the background.")
@click.option("--adopt", "adopts", is_flag=True, help="Take over a run that this machine did not start or verify.")
@click.option("--yes", is_flag=True, help="Agree to everything that the run starts. Don't ask.")
@json_option
def resume(run: str | None, guidance: str, detached: bool, adopts: bool, yes: bool, as_json: bool, **given: Any) -> int:
    """Continue RUN. Default: the run that stopped last.

    A run that this machine did not start, or whose journal was changed, continues only with --adopt. Ralph first shows what
    it would start. Ralph does not rely on what the run claims about earlier turns and checks.

    A run that reached a limit gets the same allowance once more, or the limits that you give here. A run whose deadline has
    passed needs --deadline or --no-deadline. If the engine was killed, Ralph adopts the agent that is still working.
    """
    refuse_inside_a_turn()
    project = open_project()
    options = resume_options(given)
    chosen = find_run_to_resume(project, run)
    if chosen.alive:
        name = withdraw_pause(chosen, options, guidance)
        lines = [f"Run {chosen.id} is already running. If you had paused it, it continues."]
        return print_result(as_json, lines, command="resume", run=chosen.id, signalled=True, name=name)
    if guidance and chosen.record().workflow in SESSION_WORKFLOWS:
        refuse_unread_guidance(UserSession(project, chosen.id, chosen), guidance)
    adopted = (_adopt(project, chosen, yes=yes),) if adopts else ()
    planned = plan_resume(project, chosen, options, guidance=guidance)
    for consent in planned.find_consents():
        ask_consent(consent, yes=yes)
    if not run and not as_json:
        print_text(f"Resuming {describe_run(chosen)}")
    name = prepare_resume(planned, guidance)

    def describe(run: RunDir) -> dict[str, Any]:
        return {"name": name} if name else {}

    if detached:
        return detach(project, chosen, as_json=as_json, options=options.as_arguments(), describe=describe)
    return run_in_foreground(
        project,
        chosen,
        (*adopted, *planned.notices),
        as_json=as_json,
        granted=planned.limits,
        resumes=True,
        describe=describe,
    )


@click.command("accept")
@run_argument
@click.option("--because", required=True, metavar="TEXT", help="Why the work is right. It goes into the journal.")
@click.option("--yes", is_flag=True, help="Agree to everything that the run starts. Don't ask.")
@json_option
def accept(run: str | None, because: str, yes: bool, as_json: bool) -> int:
    """Accept the work of RUN, whose checks pass, although Ralph could not prove it. Default: the run that stopped last.

    Ralph runs the checks again. If they pass and nothing has changed, the run succeeds with the grade `accepted`.
    """
    refuse_inside_a_turn()
    project = open_project()
    chosen = find_run_to_accept(project, run)
    planned = plan_acceptance(project, chosen, because)
    for consent in planned.find_consents():
        ask_consent(consent, yes=yes)
    action = accept_work(planned, because)
    return run_in_foreground(
        project,
        chosen,
        planned.notices,
        as_json=as_json,
        granted=planned.limits,
        resumes=True,
        describe=lambda run: {"action": action},
    )


def resume_options(given: Mapping[str, Any]) -> ResumeOptions:
    """The options of a resume among the parameters of a command."""
    return ResumeOptions(**{one.name: given[one.name] for one in fields(ResumeOptions) if one.name in given})


def _adopt(project: Project, run: RunDir, *, yes: bool) -> str:
    """Show what a run starts that someone else may have written, and take the run over if the user agrees."""
    doubt = run.find_doubt()
    if not doubt:
        return f"run {run.id} is already yours: there was nothing to adopt"
    shown = "\n".join(
        f"  {purpose:<8}{' '.join(remove_controls(command).split())}"
        for purpose, command in list_programs(run.record())
    )
    print_text(f"Run {run.id}: {doubt}.", err=True)
    print_text(f"If you adopt it, it starts these in {project.root} without asking again:\n{shown}", err=True)
    agree(yes=yes, where=str(run.path), todo=f"`ralph resume {run.id} --adopt --yes`")
    return adopt_run(project, run, doubt, datetime.now())
