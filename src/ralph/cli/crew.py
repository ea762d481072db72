"""Who does the turns, by options and settings."""

from dataclasses import replace
from pathlib import Path

from ralph.agents import registry
from ralph.documents.config import Config
from ralph.documents.run_record import AgentSpec, Crew
from ralph.store.runs import Project


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
