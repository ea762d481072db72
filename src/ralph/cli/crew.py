"""Who does the turns, by options and settings, and having a person agree to it."""

import sys
from dataclasses import replace
from pathlib import Path

import click

from ralph.agents import registry
from ralph.core.errors import UsageError
from ralph.documents.config import Config
from ralph.documents.run_record import AgentSpec, Crew
from ralph.store.runs import Project
from ralph.store.settings import give_consent, has_consent


def crew_for(
    project: Project,
    config: Config,
    agents: tuple[str, ...],
    agent_command: str | None,
    scenario: str | None,
    agent_acp: str | None = None,
) -> Crew:
    """Who does the turns; a scenario of the settings is beside them, one of an option where we are."""
    named = agents or agent_command is not None or scenario is not None
    return registry.crew(config, agents, agent_command, scenario, Path.cwd() if named else project.root, agent_acp)


def with_options(crew: Crew, model: str, arguments: tuple[str, ...], *, no_sub_agents: bool) -> Crew:
    """The crew with what options say of its first agent, and of all where it is about what they may do."""

    def one(spec: AgentSpec, *, first: bool) -> AgentSpec:
        without = ("sub-agents",) if no_sub_agents else ()
        return replace(
            spec,
            model=model if model and first else spec.model,
            arguments=(*spec.arguments, *(arguments if first else ())),
            without_tools=tuple(dict.fromkeys((*spec.without_tools, *without))),
        )

    roles = {role: tuple(one(spec, first=False) for spec in order) for role, order in crew.roles.items()}
    chain = tuple(one(spec, first=number == 0) for number, spec in enumerate(crew.chain))
    return replace(crew, chain=chain, roles=roles)


def ask_consent(project: Project, config: Config, crew: Crew, *, yes: bool) -> None:
    """Say once in every project what the agents may do, and have a person agree."""
    new = [label for label in crew.everyone if not has_consent(project.root, label)]
    if yes or config.permissions == "full-auto" or not new:
        return
    push = "may push to remotes" if config.push else "cannot push to remotes"
    click.echo(
        f"To be started without asking: {', '.join(f'`{label}`' for label in new)}. Such an agent can read and change\n"
        f"every file you can, run any program, and {push}.\n"
        f"Its changes in {project.root} are recorded after every turn; `ralph undo` takes them back.",
        err=True,
    )
    if not sys.stdin.isatty():
        raise UsageError(
            "nobody is here to agree",
            where=str(project.root),
            todo="answer once in a terminal, give --yes, or put `permissions: full-auto` into ralph.yml",
        )
    if not click.confirm("Go ahead?", err=True):
        raise click.Abort
    for label in new:
        give_consent(project.root, label)
