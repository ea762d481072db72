"""The agents that Ralph knows, which of them work in a run, and with which version each was last tested."""

import difflib
import importlib
import importlib.util
import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from importlib import resources
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ralph.agents import third_party
from ralph.agents.adapter import PLAN, READ_ONLY, Adapter, Call, OwnMode, parse_version
from ralph.agents.prices import Prices, has_price
from ralph.agents.programs import Acp, Program, Scripted
from ralph.core.errors import AgentUnavailableError, UsageError
from ralph.core.text import count
from ralph.documents.config import AgentSettings, Config
from ralph.documents.run_record import AgentSelection, AgentSpec
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
    "amp": ("ralph.agents.claude", "Amp"),
    "kiro": ("ralph.agents.kiro", "Kiro"),
    "cursor": ("ralph.agents.claude", "Cursor"),
}
"""The agent programs, in the order in which Ralph looks for them if the user names none."""
OTHERS = {
    "scripted": "plays a scenario file (--scenario FILE); needs no model",
    "acp": "any agent that speaks the Agent Client Protocol (--agent-acp 'opencode acp')",
    "command": "any program (--agent-command): prompt on stdin, works in the workspace",
}


def select_agents(
    config: Config,
    names: tuple[str, ...],
    command: str | None,
    scenario_file: str | None,
    cwd: Path,
    acp: str | None = None,
    *,
    must_be_installed: bool = True,
) -> AgentSelection:
    """Choose the agents of a run: from the options, else from the settings, else the first that is installed.

    A dry run can name agents that are not installed: it starts none of them.
    """
    if acp is not None:
        if names or command is not None or scenario_file is not None:
            raise UsageError("--agent-acp already names the agent", todo="remove the other options for agents")
        chain: tuple[AgentSpec, ...] = (_parse_acp(acp, "--agent-acp"),)
    elif names or command is not None or scenario_file is not None:
        chain = tuple(_choose_named(config, name, command, scenario_file, cwd) for name in names or ("",))
    elif config.agents:
        chain = tuple(_apply_defaults(settings) for settings in config.agents)
    elif config.agent or config.agent_command or config.scenario:
        chain = (_read_configured(config, cwd),)
    else:
        chain = (_first_installed(must_be_installed=must_be_installed),)
    roles = {role: (_apply_defaults(settings, chain[0]), *chain[1:]) for role, settings in config.roles.items()}
    escalation = _apply_defaults(config.escalate, chain[0]) if config.escalate else None
    after = config.escalate.after if config.escalate else 2
    keep = partial(_keep_installed, must_be_installed=must_be_installed)
    by_role = {role: keep(order, f"for {role}, ") for role, order in roles.items()}
    return AgentSelection(keep(chain), by_role, escalation, after)


def find_own_mode(spec: AgentSpec, workspace: Path) -> OwnMode | None:
    """The safer mode in the agent's own settings; None if there is none, or if the user passes a mode."""
    agent = make_adapter(spec)
    if agent.chooses_mode(spec.arguments):
        return None
    return agent.find_own_mode(Call(workspace, arguments=spec.arguments), {**os.environ, **spec.environment})


def can_change_files(spec: AgentSpec, workspace: Path) -> bool:
    """Whether an agent can change files with its permissions and its arguments."""
    call = Call(workspace, arguments=spec.arguments, permissions=spec.permissions)
    return make_adapter(spec).can_change_files(call, {**os.environ, **spec.environment})


def keep_own_mode(spec: AgentSpec, workspace: Path) -> AgentSpec:
    """The agent with the level of a safer mode in its own settings, if ralph.yml names no level.

    An agent that has no such level is refused: the user decides between the two.
    """
    own = find_own_mode(spec, workspace)
    if own and own.prevents_acp and spec.kind == "acp":
        todo = "remove the setting, or use the agent without ACP (`--agent codex`)"
        raise UsageError(f"{spec.name} does not start with {own.text}", where="agents", todo=todo)
    if own is None or not own.level or spec.permissions_given:
        return spec
    if own.level in make_adapter(spec).permission_modes:
        return replace(spec, permissions=own.level)
    raise refuse_reader(spec, own)


def choose_model(spec: AgentSpec, model: str) -> AgentSpec:
    """The agent with the model that `--model` names. An agent that has no option for the model is refused."""
    if make_adapter(spec).abilities.model:
        return replace(spec, model=model)
    todo = "omit --model"
    if spec.kind == "command":
        todo += "; if the program has an option for the model, add it to its command (--agent-command 'PROGRAM ...')"
    raise UsageError(f"{spec.name} has no option for the model", where=f"--model {model}", todo=todo)


def refuse_reader(spec: AgentSpec, own: OwnMode | None, role: str = "", reading_role: str = "") -> UsageError:
    """The error for an agent that must change files and cannot.

    `own` is the mode of its own settings, if that is the reason. `role` is the role that ralph.yml gives to just this agent,
    and `reading_role` one that it could have.
    """
    named = f"acp: {' '.join(spec.command)}" if spec.kind == "acp" else f"agent: {spec.kind}"
    full = f"{{{named}, permissions: full-auto}}"
    full = f"`roles: {{{role}: {full}}}`" if role else f"`agents: [{full}]`"
    work = f"the work of {role}" if role else "the work"
    if own and not spec.permissions_given:
        what = f"{spec.name}: your own settings choose a mode in which it cannot do {work}: {own.text}"
        todo = f"write {full} into ralph.yml to give it every permission"
    elif spec.permissions_given:
        what = f"{spec.name} cannot do {work}: with `permissions: {spec.permissions}`, it changes no files"
        todo = f"write {full} or `permissions: edits` into ralph.yml"
    else:
        what = f"{spec.name} cannot do {work}: with your arguments or variables for it, it changes no files"
        todo = f"remove them ({' '.join(spec.arguments) or 'from its environment'})"
    if reading_role and spec.permissions in (READ_ONLY, PLAN):
        reader = f"{{{reading_role}: {{{named}, permissions: {spec.permissions}}}}}"
        todo += f", or use it only as {reading_role}: `roles: {reader}`"
    return UsageError(what, where="agents", todo=todo)


def make_adapter(spec: AgentSpec, prices: Prices | None = None) -> Adapter:
    """The adapter of an agent, ready to start turns."""
    if spec.kind == "scripted":
        command = (sys.executable, "-P", "-m", "ralph.agents.scripted", "--scenario", spec.scenario)
        return Scripted("scripted", command)
    if spec.kind == "command":
        return Program(spec.label, spec.command)
    if spec.kind == "acp":
        acp = Acp(spec.label, spec.command, prices)
        acp.variables = spec.environment
        return acp
    try:
        agent = get_adapter(spec.kind, spec.command[0] if spec.command else "", prices)
        agent.variables = spec.environment
        return agent
    except AgentUnavailableError as error:
        reason = f"{error.what} ({error.where})" if error.where else error.what
        return third_party.MissingAdapter(spec.kind, error.todo, reason)


@dataclass(frozen=True)
class UnknownCost:
    """Why the cost of an agent's turns is not known in advance, and what the user can do about it."""

    reason: str
    todo: str


def unknown_cost(spec: AgentSpec, prices: Prices, workspace: Path, *, is_first: bool) -> UnknownCost | None:
    """Why the cost of an agent's turns cannot be known before they start; None if it can, or if the agent reports it.

    `--model` is the model of the first agent only.
    """
    agent = make_adapter(spec, prices)
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
        todo = (
            f"write its price into ralph.yml (`prices: {{{model}: [IN, CACHED, OUT]}}`, US dollars per million tokens)"
        )
        return UnknownCost(f"the price of {model}, the model of {spec.kind}, is not known", todo)
    reason = f"{spec.label} reports tokens, but neither its output nor its settings name the model"
    if not can.model:
        return UnknownCost(reason, "remove the limit")
    todo = f"name the model in ralph.yml (`{{agent: {spec.kind}, model: NAME}}`)"
    return UnknownCost(reason, "name the model with --model" if is_first else todo)


def get_adapter(name: str, program: str = "", prices: Prices | None = None) -> Adapter:
    """The adapter of an agent program: one of Ralph's own, else the one of an installed package."""
    if name not in ADAPTERS:
        return third_party.load(name, program, prices)
    module, adapter = ADAPTERS[name]
    agent: Adapter = getattr(importlib.import_module(module), adapter)(program, prices)
    return agent


def list_third_party() -> dict[str, AgentUnavailableError | None]:
    """The agents of third-party packages, each with the error of its adapter, if any."""
    return {name: _find_load_error(name, found) for name, found in third_party.find_entry_points().items()}


def _find_load_error(name: str, found: tuple[EntryPoint, ...]) -> AgentUnavailableError | None:
    if name in ADAPTERS or name in OTHERS:
        return third_party.refusal(name, found, f"an installed package claims {name}, an agent that Ralph ships")
    try:
        third_party.load(name)
    except AgentUnavailableError as error:
        return error
    return None


def read_scenario(path: Path) -> "Scenario":
    """Read and validate a scenario file."""
    from ralph.agents.scripted import SCENARIO_LIMIT
    from ralph.documents.scenario import parse_scenario

    return parse_scenario(
        read_text(path, SCENARIO_LIMIT, "the scenario", "give the path of a scenario file"), str(path)
    )


def _read_configured(config: Config, cwd: Path) -> AgentSpec:
    """The one agent that the settings name, with its other settings."""
    settings = config.agent or AgentSettings()
    if settings.acp and (config.agent_command or config.scenario):
        other = "agent_command" if config.agent_command else "scenario"
        raise UsageError(f"`acp` and `{other}` cannot be used together", where="ralph.yml", todo="keep one of them")
    if settings.acp:
        return _apply_defaults(settings)
    spec = _find_named(settings.agent or "", config.agent_command, config.scenario, cwd)
    return _apply_defaults(settings.model_copy(update={"agent": None}), spec)


def _choose_named(config: Config, name: str, command: str | None, scenario_file: str | None, cwd: Path) -> AgentSpec:
    """The agent that the options name, with what ralph.yml says about the same agent."""
    spec = _find_named(name, command, scenario_file, cwd)
    for settings in (*config.agents, *((config.agent,) if config.agent else ())):
        if settings.agent == spec.kind:
            return _apply_defaults(settings, spec)
    return spec


def _find_named(name: str, command: str | None, scenario_file: str | None, cwd: Path) -> AgentSpec:
    """The agent that a name, a command or a scenario file asks for."""
    if command is not None:
        if name not in ("", "command"):
            raise UsageError(f"--agent {name} and --agent-command cannot be used together", todo="use only one of them")
        return _parse_program(command)
    name = name or "scripted"
    if name in ("acp", "command"):
        raise UsageError(f"--agent {name} needs the program", todo=f"pass --agent-{name} 'PROGRAM ...'")
    if name == "scripted":
        if scenario_file is None:
            todo = "pass --scenario FILE (see docs/scripted-agent.md)"
            raise UsageError("the scripted agent needs a scenario", todo=todo)
        path = (cwd / scenario_file).resolve()
        read_scenario(path)
        return AgentSpec("scripted", scenario=str(path))
    if scenario_file is not None:
        raise UsageError(f"--agent {name} plays no scenario", todo="pass --scenario with --agent scripted")
    return AgentSpec(known_name(name))


def known_name(name: str) -> str:
    """The name, if there is a usable adapter for it; else an error with the closest name."""
    if name in ADAPTERS:
        return name
    others = third_party.find_entry_points()
    if name in others and name not in OTHERS:
        third_party.load(name)
        return name
    names = tuple(dict.fromkeys((*ADAPTERS, *others, *OTHERS)))
    close = difflib.get_close_matches(name, names, 1)
    guess = f"did you mean {close[0]}? " if close else ""
    raise UsageError(f"unknown agent {name!r}", todo=f"{guess}known values: {', '.join(names)}")


def _apply_defaults(settings: AgentSettings, default: AgentSpec | None = None) -> AgentSpec:
    """The agent of one section of the settings. The default fills in what the section leaves out."""
    if settings.agent is None and not settings.acp and default is None:
        raise UsageError("an entry of `agents` names no agent", where="ralph.yml", todo="write `agent: claude`")
    if settings.acp:
        spec = _parse_acp(settings.acp, "`acp` in ralph.yml")
    elif settings.agent:
        spec = AgentSpec(known_name(settings.agent))
    else:
        spec = default or AgentSpec("")
    if settings.program and spec.kind in OTHERS:
        todo = "name the agent that the program belongs to"
        raise UsageError(f"`program` does not apply to {spec.label}", where="ralph.yml", todo=todo)
    changes: dict[str, Any] = {
        "model": settings.model,
        "arguments": settings.args,
        "environment": settings.env,
        "command": (settings.program,) if settings.program else (),
        "without_tools": settings.without_tools,
        "permissions": settings.permissions,
        "permissions_given": bool(settings.permissions),
    }
    spec = replace(spec, **{name: value for name, value in changes.items() if value})
    levels = make_adapter(spec).permission_modes
    if spec.permissions not in levels:
        what = f"{spec.kind} has no mode for `permissions: {spec.permissions}`"
        raise UsageError(what, where="ralph.yml", todo=f"use one of {', '.join(levels)}, or another agent")
    return spec


def _keep_installed(chain: Iterable[AgentSpec], prefix: str = "", *, must_be_installed: bool) -> tuple[AgentSpec, ...]:
    """The agents whose program is installed. If there are none: an error, with the prefix, or all of them."""
    order = tuple({spec.label: spec for spec in chain}.values())
    missing = {spec.label: find_missing_program(spec) for spec in order}
    installed = tuple(spec for spec in order if missing[spec.label] is None)
    if installed or not must_be_installed:
        return installed or order
    error = missing[order[0].label]
    assert error
    error.what = prefix + error.what
    raise error


def find_missing_program(spec: AgentSpec) -> AgentUnavailableError | None:
    """The error for an agent whose program is not installed; None if it is."""
    if spec.kind == "scripted":
        return None
    if spec.kind == "command":
        if shutil.which(spec.command[0]):
            return None
        what = f"the program {spec.command[0]!r} was not found"
        return AgentUnavailableError(what, where="--agent-command", todo="install it, or use its full path")
    if spec.kind == "acp" and importlib.util.find_spec("acp") is None:
        todo = f"install it in the same environment as Ralph: `{Acp.install}`"
        return AgentUnavailableError("the SDK of the Agent Client Protocol is missing", where=spec.label, todo=todo)
    if shutil.which(spec.command[0] if spec.command else get_adapter(spec.kind).program):
        return None
    if spec.kind == "acp":
        todo = "install it, or use its full path"
        return AgentUnavailableError(f"the program of `{spec.label}` was not found", where=spec.command[0], todo=todo)
    return AgentUnavailableError(
        f"the program of {spec.kind} was not found",
        where=spec.command[0] if spec.command else "PATH",
        todo=f"install it with `{get_adapter(spec.kind).install}`, or name another agent; `ralph doctor` lists them",
    )


def installed_agents(names: Iterable[str] = ADAPTERS) -> Iterator[tuple[str, Adapter]]:
    """The agents whose program is on PATH, in the order of preference."""
    for name in names:
        agent = get_adapter(name)
        if shutil.which(agent.program):
            yield name, agent


def _first_installed(*, must_be_installed: bool) -> AgentSpec:
    """The first agent on this machine that is signed in, or that may be, else the first. Third-party agents come last."""
    installed = list(installed_agents())
    if not installed:
        installed = list(installed_agents(name for name, error in list_third_party().items() if not error))
    states = {name: agent.sign_in(os.environ, Path.home())[0] for name, agent in installed}
    for wanted in (True, None):
        for name, signed_in in states.items():
            if signed_in is wanted:
                return AgentSpec(name)
    if installed:
        return AgentSpec(installed[0][0])
    first = next(iter(ADAPTERS))
    if not must_be_installed:
        return AgentSpec(first)
    example = f"for example {first}: `{get_adapter(first).install}`; `ralph doctor` lists all"
    raise AgentUnavailableError(
        "no agent was named, and none was found on this machine",
        todo=f"install one ({example}), or pass --agent-command 'PROGRAM ...', or try --scenario FILE",
    )


def _parse_program(text: str) -> AgentSpec:
    return AgentSpec("command", _split_command(text, "--agent-command", "python3 my_agent.py"))


def _parse_acp(text: str, source: str) -> AgentSpec:
    """An agent that speaks the Agent Client Protocol, by its command."""
    return AgentSpec("acp", _split_command(text, source, "opencode acp"))


def _split_command(text: str, source: str, example: str) -> tuple[str, ...]:
    """Split a command as a shell does. The source is the option or setting that it comes from."""
    try:
        command = tuple(shlex.split(text))
    except ValueError as error:
        raise UsageError(
            f"{source} cannot be split into words: {error}", where=text, todo="close the quotes"
        ) from error
    if not command:
        raise UsageError(f"{source} is empty", todo=f"give a program, for example '{example}'")
    if operator := _find_shell_operator(text):
        in_shell = f"sh -c {shlex.quote(text)}"
        raise UsageError(
            f"{source} starts one program and no shell, so `{operator}` means nothing",
            where=text,
            todo=f"start a shell: {source} {shlex.quote(in_shell)}",
        )
    return command


def _find_shell_operator(text: str) -> str:
    """The first unquoted operator of a shell, such as `;` or `&&`; empty if there is none."""
    words = shlex.shlex(text, posix=True, punctuation_chars=";|&<>")
    words.whitespace_split = True
    words.commenters = ""
    return next((word for word in words if not word.strip(";|&<>")), "")


class ProofStatus(StrEnum):
    """How the installed version of an agent compares with the tested one."""

    PROVEN = "proven"
    OTHER_VERSION = "other-version"
    """Another version was tested, and this one is older or cannot be compared."""
    NEWER_VERSION = "newer-version"
    """An older version was tested."""
    UNPROVEN = "unproven"
    """No version was tested."""


@dataclass(frozen=True)
class Proof:
    """The result of the tests with the real program of an agent. `make test-agents` writes it."""

    version: str
    date: str
    """The day on which all of the tests ran, as YYYY-MM-DD."""
    passed: tuple[str, ...] = ()
    """The names of the cases that passed."""
    failed: tuple[str, ...] = ()
    cannot: Mapping[str, str] = field(default_factory=dict)
    """The cases that are not possible with this program, each with the reason."""

    @property
    def score(self) -> str:
        """How many of the cases passed."""
        return f"{len(self.passed)} of {count(len(self.passed) + len(self.failed), 'case')}"

    def status_of(self, version: str) -> ProofStatus:
        """Whether this is a proof for a program that prints this as its version."""
        match = re.search(rf"(?<![\w.]){re.escape(self.version)}(?![\w.])", version)
        if match:
            return ProofStatus.PROVEN
        installed, tested = parse_version(version), parse_version(self.version)
        is_newer = installed is not None and tested is not None and installed > tested
        return ProofStatus.NEWER_VERSION if is_newer else ProofStatus.OTHER_VERSION


def load_proofs() -> dict[str, Proof]:
    """The latest proof of every agent that has one."""
    return parse_proofs(resources.files("ralph.agents").joinpath("proofs.json").read_text())


def parse_proofs(text: str) -> dict[str, Proof]:
    """The proofs in a file."""
    proofs = {}
    for name, fields in json.loads(text).items():
        proofs[name] = Proof(
            version=fields["version"],
            date=fields["date"],
            passed=tuple(fields["passed"]),
            failed=tuple(fields["failed"]),
            cannot=fields["cannot"],
        )
    return proofs
