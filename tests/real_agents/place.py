"""A project in a repository, agents that talk to a model of ours, and the real `ralph` command."""

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
from model import Model, served
from subject import SUBJECTS

RALPH = Path(sys.executable).with_name("ralph")
MARK = "REAL_AGENTS_TEST"
FOREIGN = re.compile(
    r"(RALPH|GIT|COV|COVERAGE|PYTEST|npm|ANTHROPIC|CLAUDE|OPENAI|CODEX|GEMINI|GOOGLE|AWS|AZURE|XDG|GOOSE|QWEN|PI_"
    r"|OPENCODE|COPILOT|GH_|CLINE|AIDER|MSWEA|LITELLM)_?"
)
"""The variables of the machine that an agent shall not see."""


def may_install() -> bool:
    return os.environ.get("RALPH_REAL_AGENTS") == "1"


@dataclass(frozen=True)
class Done:
    """A command that has ended."""

    code: int
    out: str
    err: str
    seconds: float

    @property
    def said(self) -> str:
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
class Place:
    """A project, a home directory and a network of its own, with a model in it."""

    root: Path
    home: Path
    network: Network
    model: Model
    environment: dict[str, str]
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)
    started: "list[subprocess.Popen[str]]" = field(default_factory=list)

    def furnish(self, *agents: str, tries: int | None = None, **variables: str) -> None:
        """Make agents ready to be called: their programs, environment and home files."""
        for agent in agents:
            subject = SUBJECTS[agent]
            directory = directory_of(subject.package, may_install=may_install())
            own = subject.furnish(self.home, self.model.url, tries)
            self.model.in_words, self.model.ending = subject.in_words, subject.ending
            self.environment |= {**own, "PATH": f"{directory}:{self.environment['PATH']}"}
        self.environment |= {**variables, MARK: self.mark}

    def start(self, *words: str, stdin: int = subprocess.DEVNULL) -> "subprocess.Popen[str]":
        """A program in the project, in the network of this test."""
        process = subprocess.Popen(
            [*self.network.prefix, *words],
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

    def finish(self, *words: str, prompt: str | None = None, timeout: float = 120) -> Done:
        """Run a program to its end."""
        before = time.monotonic()
        with self.start(*words, stdin=subprocess.DEVNULL if prompt is None else subprocess.PIPE) as process:
            try:
                out, err = process.communicate(prompt, timeout)
            except subprocess.TimeoutExpired:
                self.end()
                out, err = process.communicate()
                pytest.fail(f"`{' '.join(words)[:200]}` did not end within {timeout} s:\n{out[-3000:]}\n{err[-3000:]}")
        return Done(process.returncode, out, err, time.monotonic() - before)

    def ralph(self, *args: str, timeout: float = 120) -> Done:
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
        """What was journaled; nothing while there is no run yet."""
        found = list((self.root / ".ralph" / "runs").glob("*/journal.jsonl"))
        lines = found[0].read_bytes().split(b"\n")[:-1] if found else []
        records = [json.loads(line) for line in lines]
        return [record for record in records if not types or record["type"] in types]

    def ends(self) -> list[str]:
        """How the turns ended."""
        return [record["result"]["end"] for record in self.journal("turn.ended")]

    def living(self) -> list[int]:
        """The processes of this test, by the mark in their environment."""
        return _processes("environ", f"{MARK}={self.mark}")

    def end(self) -> None:
        """Kill every process of this test."""
        for _ in range(200):
            if not (left := self.living()):
                return
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)


@contextmanager
def place(directory: Path) -> Iterator[Place]:
    """A project with one commit; whatever was started in it is ended afterwards."""
    root, home = directory / "project", directory / "home"
    root.mkdir()
    (home / "tmp").mkdir(parents=True)
    with network() as net, served(Model(root), net.listener) as model:
        made = Place(root, home, net, model, _environment(home))
        made.write("README", "first\n")
        for words in (["init", "-q", "-b", "main"], ["add", "README"], ["commit", "-q", "-m", "first"]):
            made.git(*words)
        try:
            yield made
        finally:
            made.end()
            for process in made.started:
                process.communicate(timeout=120)


def _environment(home: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not FOREIGN.match(name)}
    return {
        **kept,
        "HOME": str(home),
        "TMPDIR": str(home / "tmp"),
        "NO_COLOR": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_NAME": "U",
        "GIT_AUTHOR_EMAIL": "u@example.org",
        "GIT_COMMITTER_NAME": "U",
        "GIT_COMMITTER_EMAIL": "u@example.org",
    }


def eventually(condition: Callable[[], object], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.05)


def started_with(text: str) -> list[int]:
    """The processes that have a text in their command line, whatever their environment."""
    return _processes("cmdline", text)


def _processes(what: str, text: str) -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if text.encode() in (entry / what).read_bytes():
                found.append(int(entry.name))
    return found
