"""A project in a repository, agents that talk to a scripted model, and the real `ralph` command."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from install import directory_of
from isolation import Network, network
from model import Model, serve
from subject import SUBJECTS

RALPH = Path(sys.executable).with_name("ralph")
MARK = "REAL_AGENTS_TEST"
HIDDEN_VARIABLES = re.compile(
    r"(RALPH|GIT|COV|COVERAGE|PYTEST|npm|ANTHROPIC|CLAUDE|OPENAI|CODEX|GEMINI|GOOGLE|AWS|AZURE|XDG|GOOSE|QWEN|PI_"
    r"|OPENCODE|COPILOT|GH_|CLINE|AIDER|MSWEA|LITELLM)_?"
)
"""Variables of this machine that an agent must not see."""


def may_install() -> bool:
    return os.environ.get("RALPH_REAL_AGENTS") == "1"


@dataclass(frozen=True)
class CommandResult:
    """A command that has ended."""

    code: int
    out: str
    err: str
    seconds: float

    @property
    def output(self) -> str:
        return self.out + self.err

    @property
    def json(self) -> dict[str, Any]:
        data: dict[str, Any] = json.loads(self.out)
        return data

    @property
    def stream(self) -> list[dict[str, Any]]:
        """The lines that are objects."""
        return [json.loads(line) for line in self.out.splitlines() if line.startswith("{")]


@dataclass
class AgentProject:
    """A project, a home directory and its own network, with a scripted model in it."""

    root: Path
    home: Path
    network: Network
    model: Model
    environment: dict[str, str]
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)
    started: "list[subprocess.Popen[str]]" = field(default_factory=list)

    def set_up(self, *agents: str, tries: int | None = None, **variables: str) -> None:
        """Set up agents: their programs, environment and files in the home directory."""
        for agent in agents:
            subject = SUBJECTS[agent]
            directory = directory_of(subject.package, may_install=may_install())
            variables_of_agent = subject.set_up(self.home, self.model.url, tries)
            self.model.has_no_tools, self.model.ending = subject.has_no_tools, subject.ending
            self.environment |= {**variables_of_agent, "PATH": f"{directory}:{self.environment['PATH']}"}
        self.environment |= {**variables, MARK: self.mark}

    def start(self, *command: str, stdin: int = subprocess.DEVNULL) -> "subprocess.Popen[str]":
        """Start a program in the project, in the network of this test."""
        process = subprocess.Popen(
            [*self.network.prefix, *command],
            cwd=self.root,
            env=self.environment,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.started.append(process)
        return process

    def finish(self, *command: str, prompt: str | None = None, timeout: float = 120) -> CommandResult:
        """Run a program to its end."""
        before = time.monotonic()
        with self.start(*command, stdin=subprocess.DEVNULL if prompt is None else subprocess.PIPE) as process:
            try:
                out, err = process.communicate(prompt, patience(timeout))
            except subprocess.TimeoutExpired:
                self.end()
                out, err = process.communicate()
                pytest.fail(
                    f"`{' '.join(command)[:200]}` did not end within {timeout} s:\n{out[-3000:]}\n{err[-3000:]}"
                )
        return CommandResult(process.returncode, out, err, time.monotonic() - before)

    def ralph(self, *args: str, timeout: float = 120) -> CommandResult:
        done = self.finish(str(RALPH), *args, timeout=timeout)
        assert "Traceback" not in done.err, done.err
        return done

    def write(self, name: str, content: str) -> None:
        (self.root / name).write_text(content)

    def git(self, *args: str) -> str:
        done = subprocess.run(["git", *args], cwd=self.root, env=self.environment, capture_output=True, check=True)
        return done.stdout.decode()

    @property
    def run(self) -> Path:
        """The only run."""
        [only] = (self.root / ".ralph" / "runs").iterdir()
        return only

    def journal(self, *types: str) -> list[dict[str, Any]]:
        """The entries of the journal; none if there is no run yet."""
        journals = list((self.root / ".ralph" / "runs").glob("*/journal.jsonl"))
        lines = journals[0].read_bytes().split(b"\n")[:-1] if journals else []
        records = [json.loads(line) for line in lines]
        return [record for record in records if not types or record["type"] in types]

    def turn_ends(self) -> list[str]:
        """How the turns ended."""
        return [record["result"]["end"] for record in self.journal("turn.ended")]

    def living_processes(self) -> list[int]:
        """The processes of this test, by the mark in their environment."""
        return _processes("environ", f"{MARK}={self.mark}")

    def end(self) -> None:
        """Kill every process of this test."""
        for _ in range(200):
            if not (left := self.living_processes()):
                return
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)


@contextmanager
def open_project(directory: Path) -> Iterator[AgentProject]:
    """A project with one commit. Every process that was started in it is ended afterwards."""
    root, home = directory / "project", directory / "home"
    root.mkdir()
    (home / "tmp").mkdir(parents=True)
    with network() as net, serve(Model(root), net.listener) as model:
        project = AgentProject(root=root, home=home, network=net, model=model, environment=_environment(home))
        project.write("README", "first\n")
        for command in (["init", "-q", "-b", "main"], ["add", "README"], ["commit", "-q", "-m", "first"]):
            project.git(*command)
        try:
            yield project
        finally:
            project.end()
            for process in project.started:
                process.communicate(timeout=120)


def _environment(home: Path) -> dict[str, str]:
    variables = {name: value for name, value in os.environ.items() if not HIDDEN_VARIABLES.match(name)}
    return {
        **variables,
        "HOME": str(home),
        "TMPDIR": str(home / "tmp"),
        "NO_COLOR": "1",
        "RALPH_SANDBOX": os.environ["RALPH_SANDBOX"],
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_NAME": "U",
        "GIT_AUTHOR_EMAIL": "u@example.org",
        "GIT_COMMITTER_NAME": "U",
        "GIT_COMMITTER_EMAIL": "u@example.org",
    }


def patience(seconds: float) -> float:
    """A time limit that suits the load of this machine: it is for what hangs, and not for what is slow."""
    return seconds * min(6.0, max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)))


def wait_until(condition: Callable[[], object], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + patience(seconds)
    while not condition():
        assert time.monotonic() < deadline, "the condition did not become true in time"
        time.sleep(0.05)


def processes_with(text: str) -> list[int]:
    """The processes with a text in their command line."""
    return _processes("cmdline", text)


def _processes(what: str, text: str) -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if text.encode() in (entry / what).read_bytes():
                found.append(int(entry.name))
    return found
