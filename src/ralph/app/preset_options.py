"""What a preset says of a run: its limits, and the agents of its hats."""

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import ralph.agents
from ralph.app.run_options import RunOptions, build_crew
from ralph.documents.config import AgentSettings, Config
from ralph.documents.hats.preset import HatKeys, Preset
from ralph.documents.run_record import AgentSpec, Crew
from ralph.store.runs import Project

_PROMPT_AS_ARGUMENT = ("sh", str(Path(ralph.agents.__file__).with_name("prompt_argument.sh")))
"""Hands standard input to a program as its last argument, or as a file if it is too long for one."""


def with_limits(preset: Preset, config: Config) -> Config:
    """The settings with the limits of the preset, where it sets any, or nobody does."""
    loop_keys, own = preset.event_loop, config.limits.model_fields_set
    iterations, seconds, cost = preset.max_iterations, preset.max_runtime, preset.max_cost
    given: dict[str, Any] = {}
    if iterations or "max_iterations" in loop_keys.model_fields_set or "iterations" not in own:
        given["iterations"] = iterations or loop_keys.max_iterations
    if seconds or "max_runtime_seconds" in loop_keys.model_fields_set or "minutes" not in own:
        given["minutes"] = (seconds or loop_keys.max_runtime_seconds) / 60
    if cost or loop_keys.max_cost_usd:
        given["cost"] = cost or loop_keys.max_cost_usd
    turn = config.turn
    if found := preset.adapters.get(preset.cli.backend or "claude"):
        turn = turn.model_copy(update={"idle_minutes": found.timeout / 60})
    return config.model_copy(update={"limits": config.limits.model_copy(update=given), "turn": turn})


def hats_crew(project: Project, preset: Preset, config: Config, options: RunOptions) -> Crew:
    """Who does the turns: of all hats, and of those that have an agent, a model or arguments of their own."""
    config = config if options.name_an_agent else _with_cli(config, preset)
    hats = {id: hat for id, hat in preset.hats.items() if hat.backend and hat.backend.type}
    roles = {id: _own_agent(hat) for id, hat in hats.items()}
    config = config.model_copy(update={"roles": {**config.roles, **roles}})
    crew = build_crew(project, config, options)
    others = {id: _own_spec(hat, crew.chain[0], preset) for id, hat in preset.hats.items() if id not in hats}
    return replace(crew, roles={**crew.roles, **{id: (spec, *crew.chain[1:]) for id, spec in others.items() if spec}})


def _with_cli(config: Config, preset: Preset) -> Config:
    """The settings with the agent that the preset names."""
    cli = preset.cli
    if cli.backend == "custom":
        words = _custom(cli.command, cli.args, preset)
        return config.model_copy(update={"agent": None, "agents": (), "agent_command": shlex.join(words)})
    if preset.agent_priority and not config.agents:
        return config.model_copy(update={"agents": tuple(AgentSettings(agent=name) for name in preset.agent_priority)})
    if not cli.backend or cli.backend == "auto":
        chosen = config.agent if config.agent and config.agent.agent != "auto" else None
        return config.model_copy(update={"agent": chosen})
    agent = _settings(cli.backend, program=cli.command, args=cli.args, model=cli.model)
    return config.model_copy(update={"agent": agent, "agents": ()})


def _settings(backend: str, **more: Any) -> AgentSettings:
    return AgentSettings(acp="kiro-cli acp", **more) if backend == "kiro-acp" else AgentSettings(agent=backend, **more)


def _own_agent(hat: HatKeys) -> AgentSettings:
    """The agent that a hat names."""
    backend = hat.backend
    assert backend
    agent = ("--agent", backend.agent) if backend.agent else ()
    args = (*agent, *backend.args, *hat.backend_args)
    model = hat.model or backend.model
    return _settings(backend.type, model=model, args=args, without_tools=hat.disallowed_tools)


def _own_spec(hat: HatKeys, usual: AgentSpec, preset: Preset) -> AgentSpec | None:
    """The usual agent with what a hat wants of it, or the program that it names; None where it wants nothing."""
    if hat.backend and hat.backend.command:
        return AgentSpec("command", _custom(hat.backend.command, (*hat.backend.args, *hat.backend_args), preset))
    spec = replace(
        usual,
        model=hat.model or usual.model,
        arguments=(*usual.arguments, *hat.backend_args),
        without_tools=tuple(dict.fromkeys((*usual.without_tools, *hat.disallowed_tools))),
    )
    return spec if spec != usual else None


def _custom(program: str, args: tuple[str, ...], preset: Preset) -> tuple[str, ...]:
    """The words of any program, with its prompt on standard input or as its last argument."""
    words = (*shlex.split(program), *args)
    if preset.cli.prompt_mode == "stdin":
        return words
    flag = (preset.cli.prompt_flag,) if preset.cli.prompt_flag else ()
    return (*_PROMPT_AS_ARGUMENT, *words, *flag)
