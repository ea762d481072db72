"""The agents that Ralph knows, and making one ready to start."""

import difflib
import shlex
import shutil
import sys
from pathlib import Path

from ralph.agents.agent import Agent, EventLines, PlainText
from ralph.core.errors import AgentUnavailableError, UsageError
from ralph.documents import scenario, scenario_reader
from ralph.documents.run_record import AgentSpec
from ralph.store.files import read_limited

KNOWN = {
    "scripted": "plays a scenario file (--scenario FILE); needs no model",
    "command": "any program (--agent-command): prompt on stdin, works in the workspace",
}
_SCENARIO_LIMIT = 1024 * 1024


def choose(name: str | None, command: str | None, scenario_file: str | None, cwd: Path) -> AgentSpec:
    """The agent that the options ask for, or an error that says what to write."""
    if command is not None:
        if name not in (None, "command"):
            raise UsageError(f"--agent {name} and --agent-command exclude each other", todo="give one of them")
        return _command(command)
    if name is None and scenario_file is None:
        raise AgentUnavailableError(
            "no agent was named",
            todo="give --agent-command 'PROGRAM ...', or try --agent scripted --scenario FILE; `ralph doctor` lists them",
        )
    name = name or "scripted"
    if name == "command":
        raise UsageError("--agent command needs the program", todo="give --agent-command 'PROGRAM ...'")
    if name not in KNOWN:
        near = difflib.get_close_matches(name, KNOWN, 1)
        guess = f"did you mean {near[0]}? " if near else ""
        raise UsageError(f"unknown agent {name!r}", todo=f"{guess}known are {', '.join(KNOWN)}")
    if scenario_file is None:
        raise UsageError(
            "the scripted agent needs a scenario", todo="give --scenario FILE (see docs/scripted-agent.md)"
        )
    path = (cwd / scenario_file).resolve()
    read_scenario(path)
    return AgentSpec("scripted", scenario=str(path))


def read_scenario(path: Path) -> scenario.Scenario:
    """A scenario file, validated as a whole."""
    try:
        text = read_limited(path, _SCENARIO_LIMIT, follow=True).decode()
    except OSError as error:
        raise UsageError(
            f"the scenario cannot be read: {error.strerror}", where=str(path), todo="give the path of a scenario file"
        ) from error
    except UnicodeDecodeError as error:
        raise UsageError("the scenario is not UTF-8 text", where=str(path), todo="write it as UTF-8") from error
    return scenario_reader.parse(text, str(path))


def make(spec: AgentSpec) -> Agent:
    """The agent, ready to be started."""
    if spec.kind == "scripted":
        command = (sys.executable, "-P", "-m", "ralph.agents.scripted", "--scenario", spec.scenario)
        return Agent("scripted", command, EventLines(), announces_end=True)
    return Agent(spec.label, spec.command, PlainText(), announces_end=False)


def _command(text: str) -> AgentSpec:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(
            f"--agent-command cannot be split into words: {error}", where=text, todo="close the quotes"
        ) from error
    if not words:
        raise UsageError("--agent-command is empty", todo="give a program, e.g. --agent-command 'python3 my_agent.py'")
    if shutil.which(words[0]) is None:
        raise AgentUnavailableError(
            f"the program {words[0]!r} was not found",
            where="--agent-command",
            todo="install it, or give its full path",
        )
    return AgentSpec("command", tuple(words))
