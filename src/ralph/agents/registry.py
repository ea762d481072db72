"""The agents that Ralph knows, and which of them do the turns of a run."""

import difflib
import importlib
import importlib.util
import os
import shlex
import shutil
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ralph.agents import plugins
from ralph.agents.acp import Acp
from ralph.agents.adapter import Adapter
from ralph.agents.agent import Call
from ralph.agents.prices import Prices, has_price
from ralph.agents.programs import Program, Scripted
from ralph.core.errors import AgentUnavailableError, UsageError
from ralph.documents.config import AgentSettings, Config
from ralph.documents.run_record import AgentSpec, Crew
from ralph.store.files import read_text

if TYPE_CHECKING:
    from ralph.documents.scenario import Scenario

ADAPTERS = {
    "claude": ("ralph.agents.claude", "Claude"),
    "codex": ("ralph.agents.codex", "Codex"),
    "gemini": ("ralph.agents.gemini", "Gemini"),
    "opencode": ("ralph.agents.opencode", "OpenCode"),
    "copilot": ("ralph.agents.copilot", "Copilot"),
    "goose": ("ralph.agents.goose", "Goose"),
    "qwen": ("ralph.agents.qwen", "Qwen"),
    "pi": ("ralph.agents.pi", "Pi"),
    "cline": ("ralph.agents.cline", "Cline"),
    "aider": ("ralph.agents.aider", "Aider"),
    "mini": ("ralph.agents.mini", "Mini"),
    "amp": ("ralph.agents.amp", "Amp"),
    "kiro": ("ralph.agents.kiro", "Kiro"),
    "cursor": ("ralph.agents.cursor", "Cursor"),
}
"""The agent programs, in the order in which they are looked for where none is named."""
OTHERS = {
    "scripted": "plays a scenario file (--scenario FILE); needs no model",
    "acp": "any agent that speaks the Agent Client Protocol (--agent-acp 'opencode acp')",
    "command": "any program (--agent-command): prompt on stdin, works in the workspace",
}


def crew(
    config: Config,
    names: tuple[str, ...],
    command: str | None,
    scenario_file: str | None,
    cwd: Path,
    acp: str | None = None,
) -> Crew:
    """Who does the turns: what the options say, else what the settings do, else the first agent that is there."""
    if acp is not None:
        if names or command is not None or scenario_file is not None:
            raise UsageError("--agent-acp is an agent of its own", todo="leave the other options for agents out")
        chain: tuple[AgentSpec, ...] = (_acp(acp, "--agent-acp"),)
    elif names or command is not None or scenario_file is not None:
        chain = tuple(_named(name, command, scenario_file, cwd) for name in names or ("",))
    elif config.agents:
        chain = tuple(_settled(one) for one in config.agents)
    elif config.agent or config.agent_command or config.scenario:
        chain = (_configured(config, cwd),)
    else:
        chain = (_first_there(),)
    roles = {role: (_settled(asked, chain[0]), *chain[1:]) for role, asked in config.roles.items()}
    escalation = _settled(config.escalate, chain[0]) if config.escalate else None
    after = config.escalate.after if config.escalate else 2
    able = {role: _available(order, f"for {role}, ") for role, order in roles.items()}
    return Crew(_available(chain), able, escalation, after)


def make(spec: AgentSpec, prices: Prices | None = None) -> Adapter:
    """The agent, ready to be started."""
    if spec.kind == "scripted":
        words = (sys.executable, "-P", "-m", "ralph.agents.scripted", "--scenario", spec.scenario)
        return Scripted("scripted", words)
    if spec.kind == "command":
        return Program(spec.label, spec.command)
    if spec.kind == "acp":
        return Acp(spec.label, spec.command, prices)
    try:
        agent = known(spec.kind, spec.command[0] if spec.command else "", prices)
        agent.variables = spec.environment
        return agent
    except AgentUnavailableError as error:
        why = f"{error.what} ({error.where})" if error.where else error.what
        return plugins.Absent(spec.kind, error.todo, why)


@dataclass(frozen=True)
class UnknownCost:
    """Why the cost of an agent's turns cannot be known, and what the user can do about it."""

    why: str
    cure: str


def unknown_cost(spec: AgentSpec, prices: Prices, workspace: Path) -> UnknownCost | None:
    """Why the cost of an agent's turns cannot be known before they start; None if it can, or the agent will tell."""
    agent = make(spec, prices)
    can = agent.abilities
    if can.cost or spec.kind == "acp":
        return None
    if not can.tokens:
        return UnknownCost(f"{spec.label} reports neither cost nor tokens", "remove the limit")
    model = agent.model_of(Call(workspace, spec.model, spec.arguments))
    if model and has_price(model, prices):
        return None
    if can.names_model and (not model or model.startswith("auto")):
        return None
    if model:
        cure = f"write its price into ralph.yml (`prices: {{{model}: [IN, CACHED, OUT]}}`, US dollars for a million tokens)"
        return UnknownCost(f"the price of {model}, the model of {spec.kind}, is not known", cure)
    why = f"{spec.label} reports tokens and does not say of which model; its own settings name none"
    return UnknownCost(why, "name the model with --model" if can.model else "remove the limit")


def known(name: str, program: str = "", prices: Prices | None = None) -> Adapter:
    """The adapter of an agent program: one of Ralph's own, else the one that an installed package has."""
    if name not in ADAPTERS:
        return plugins.load(name, program, prices)
    module, adapter = ADAPTERS[name]
    agent: Adapter = getattr(importlib.import_module(module), adapter)(program, prices)
    return agent


def third_parties() -> dict[str, AgentUnavailableError | None]:
    """The agents that installed packages have adapters for, each with what is wrong with it, where anything is."""
    return {name: _wrong_with(name, found) for name, found in plugins.claims().items()}


def _wrong_with(name: str, found: tuple[EntryPoint, ...]) -> AgentUnavailableError | None:
    if name in ADAPTERS or name in OTHERS:
        return plugins.refusal(name, found, f"an installed package claims {name}, an agent that Ralph has itself")
    try:
        plugins.load(name)
    except AgentUnavailableError as error:
        return error
    return None


def read_scenario(path: Path) -> "Scenario":
    """A scenario file, validated as a whole."""
    from ralph.agents.scripted import SCENARIO_LIMIT
    from ralph.documents.scenario import parse

    return parse(read_text(path, SCENARIO_LIMIT, "the scenario", "give the path of a scenario file"), str(path))


def _configured(config: Config, cwd: Path) -> AgentSpec:
    """The one agent that the settings name, with what else they say of it."""
    asked = config.agent or AgentSettings()
    if asked.acp and (config.agent_command or config.scenario):
        both = "agent_command" if config.agent_command else "scenario"
        raise UsageError(f"`acp` and `{both}` exclude each other", where="ralph.yml", todo="keep one of them")
    if asked.acp:
        return _settled(asked)
    spec = _named(asked.agent or "", config.agent_command, config.scenario, cwd)
    return _settled(asked.model_copy(update={"agent": None}), spec)


def _named(name: str, command: str | None, scenario_file: str | None, cwd: Path) -> AgentSpec:
    """The agent that is asked for by its name, a program or a scenario."""
    if command is not None:
        if name not in ("", "command"):
            raise UsageError(f"--agent {name} and --agent-command exclude each other", todo="give one of them")
        return _program(command)
    name = name or "scripted"
    if name in ("acp", "command"):
        raise UsageError(f"--agent {name} needs the program", todo=f"give --agent-{name} 'PROGRAM ...'")
    if name == "scripted":
        if scenario_file is None:
            raise UsageError(
                "the scripted agent needs a scenario", todo="give --scenario FILE (see docs/scripted-agent.md)"
            )
        path = (cwd / scenario_file).resolve()
        read_scenario(path)
        return AgentSpec("scripted", scenario=str(path))
    if scenario_file is not None:
        raise UsageError(f"--agent {name} plays no scenario", todo="give --scenario with --agent scripted")
    return AgentSpec(known_name(name))


def known_name(name: str) -> str:
    """The name itself, where an agent has it whose adapter can be used."""
    if name in ADAPTERS:
        return name
    others = plugins.claims()
    if name in others and name not in OTHERS:
        plugins.load(name)
        return name
    names = tuple(dict.fromkeys((*ADAPTERS, *others, *OTHERS)))
    near = difflib.get_close_matches(name, names, 1)
    guess = f"did you mean {near[0]}? " if near else ""
    raise UsageError(f"unknown agent {name!r}", todo=f"{guess}known are {', '.join(names)}")


def _settled(asked: AgentSettings, default: AgentSpec | None = None) -> AgentSpec:
    """The agent of a section of the settings; what it does not say is as in the default."""
    if asked.agent is None and not asked.acp and default is None:
        raise UsageError("an entry of `agents` names no agent", where="ralph.yml", todo="write `agent: claude`")
    if asked.acp:
        spec = _acp(asked.acp, "`acp` in ralph.yml")
    else:
        spec = AgentSpec(known_name(asked.agent)) if asked.agent else default or AgentSpec("")
    if asked.program and spec.kind in OTHERS:
        raise UsageError(f"`program` is not for {spec.label}", where="ralph.yml", todo="name the agent that it is of")
    given: dict[str, Any] = {
        "model": asked.model,
        "arguments": asked.args,
        "environment": asked.env,
        "command": (asked.program,) if asked.program else (),
        "without_tools": asked.without_tools,
        "permissions": asked.permissions,
    }
    spec = replace(spec, **{name: value for name, value in given.items() if value})
    levels = make(spec).permission_modes
    if spec.permissions not in levels:
        what = f"{spec.kind} has no mode for `permissions: {spec.permissions}`"
        raise UsageError(what, where="ralph.yml", todo=f"use one of {', '.join(levels)}, or another agent")
    return spec


def _available(chain: Iterable[AgentSpec], whose: str = "") -> tuple[AgentSpec, ...]:
    """Those whose program is there; an error where it is none."""
    order = tuple({spec.label: spec for spec in chain}.values())
    there = tuple(spec for spec in order if _found(spec))
    if there:
        return there
    spec = order[0]
    if spec.kind == "acp":
        todo = "install it, or give its full path"
        what = f"{whose}the program of `{spec.label}` was not found"
        raise AgentUnavailableError(what, where=spec.command[0], todo=todo)
    raise AgentUnavailableError(
        f"{whose}the program of {spec.kind} was not found",
        where=spec.command[0] if spec.command else "PATH",
        todo=f"install it with `{known(spec.kind).install}`, or name another agent; `ralph doctor` lists them",
    )


def _found(spec: AgentSpec) -> bool:
    if spec.kind in OTHERS and spec.kind != "acp":
        return True
    return shutil.which(spec.command[0] if spec.command else known(spec.kind).program) is not None


def installed(names: Iterable[str] = ADAPTERS) -> Iterator[tuple[str, Adapter]]:
    """The agents whose program is on the PATH, in the order of preference."""
    for name in names:
        agent = known(name)
        if shutil.which(agent.program):
            yield name, agent


def _first_there() -> AgentSpec:
    """The first agent on this machine, one that is signed in before others; those of third parties come last."""
    there = list(installed()) or list(installed(name for name, wrong in third_parties().items() if not wrong))
    signed_in = [name for name, agent in there if agent.sign_in(os.environ, Path.home())[0] is not False]
    if names := [*signed_in, *(name for name, _ in there)]:
        return AgentSpec(names[0])
    first = next(iter(ADAPTERS))
    ways = f"{first} for example: `{known(first).install}`; `ralph doctor` lists all"
    raise AgentUnavailableError(
        "no agent was named, and none was found on this machine",
        todo=f"install one ({ways}), or give --agent-command 'PROGRAM ...', or try --scenario FILE",
    )


def _program(text: str) -> AgentSpec:
    words = _words(text, "--agent-command", "python3 my_agent.py")
    if shutil.which(words[0]) is None:
        raise AgentUnavailableError(
            f"the program {words[0]!r} was not found", where="--agent-command", todo="install it, or give its full path"
        )
    return AgentSpec("command", words)


def _acp(text: str, where: str) -> AgentSpec:
    """An agent that speaks the Agent Client Protocol, by its command."""
    if importlib.util.find_spec("acp") is None:
        todo = f"install it beside Ralph: `{Acp.install}`"
        raise AgentUnavailableError("the SDK of the Agent Client Protocol is missing", where=where, todo=todo)
    return AgentSpec("acp", _words(text, where, "opencode acp"))


def _words(text: str, where: str, example: str) -> tuple[str, ...]:
    """The words of a command, as a shell would split them."""
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise UsageError(f"{where} cannot be split into words: {error}", where=text, todo="close the quotes") from error
    if not words:
        raise UsageError(f"{where} is empty", todo=f"give a program, e.g. '{example}'")
    return words
