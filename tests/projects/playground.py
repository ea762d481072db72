"""A small project of its own, the real `ralph` command in it, and scenarios for the scripted agent."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

RALPH = Path(sys.executable).with_name("ralph")
TOOLS = str(RALPH.parent)
"""Where pytest, ruff and python of this environment are."""
MARK = "PROJECTS_TEST"
Step = dict[str, Any]
Files = Mapping[str, str]


@dataclass(frozen=True)
class Done:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def said(self) -> str:
        return self.out + self.err

    @property
    def json(self) -> dict[str, Any]:
        """What it printed with --json."""
        data: dict[str, Any] = json.loads(self.out)
        return data


@dataclass
class Playground:
    """A project in a git repository, without any configuration of the machine."""

    root: Path
    home: Path
    extra: dict[str, str] = field(default_factory=dict)
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def environment(self) -> dict[str, str]:
        dropped = ("RALPH_", "GIT_", "XDG_STATE_", "COV_", "COVERAGE_", "PYTEST_", "npm_")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
        own = {
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_AUTHOR_NAME": "U",
            "GIT_AUTHOR_EMAIL": "u@example.org",
            "GIT_COMMITTER_NAME": "U",
            "GIT_COMMITTER_EMAIL": "u@example.org",
            "HOME": str(self.home),
            "PATH": f"{TOOLS}:{os.environ['PATH']}",
            # Turns take a fraction of a second: a bytecode cache would be as old as the source that replaced its own.
            "PYTHONDONTWRITEBYTECODE": "1",
            "NO_COLOR": "1",
            # Without plugins that these projects do not use, pytest starts twice as fast.
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "RUFF_NO_CACHE": "true",
            MARK: self.mark,
        }
        return {**kept, **own, **self.extra}

    def ralph(self, *args: str, timeout: float = 120) -> Done:
        """A command in a process of its own, as a person types it."""
        try:
            done = subprocess.run(
                [str(RALPH), *args],
                cwd=self.root,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=timeout,
                check=False,
            )
        except subprocess.TimeoutExpired as late:
            pytest.fail(f"`ralph {' '.join(args)}` did not end:\n{late.stdout!r}\n{late.stderr!r}")
        assert "Traceback" not in done.stderr, done.stderr
        return Done(done.returncode, done.stdout, done.stderr)

    def loop(
        self, task: str, until: str, turns: Sequence[Sequence[Step]], *args: str, **by_role: Sequence[Step]
    ) -> Done:
        """A loop in which the agent plays these turns, the last of them again and again."""
        scenario = self.scenario(turns, **by_role)
        return self.ralph("loop", task, "--until", until, "--scenario", scenario, "--yes", *args)

    def scenario(self, turns: Sequence[Sequence[Step]], **by_role: Sequence[Step]) -> str:
        """A scenario file beside the project; those for a role come first."""
        entries: list[dict[str, Any]] = [
            {"when": {"role": role}, "steps": list(steps)} for role, steps in by_role.items()
        ]
        for number, steps in enumerate(turns, 1):
            last = number == len(turns)
            entries.append({"when": {"turn": f">={number}" if last else number}, "steps": list(steps)})
        path = self.home / f"scenario-{len(list(self.home.glob('scenario-*')))}.yaml"
        path.write_text(json.dumps({"turns": entries}, indent=1))
        return str(path)

    def write(self, files: Files) -> None:
        for name, content in files.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)

    def read(self, name: str) -> str:
        return (self.root / name).read_text()

    def git(self, *args: str) -> str:
        done = subprocess.run(["git", *args], cwd=self.root, env=self.environment, capture_output=True, check=True)
        return done.stdout.decode()

    def commit_all(self, message: str = "first") -> None:
        self.git("add", "-A")
        self.git("commit", "-q", "-m", message)

    def files(self) -> dict[str, str]:
        """Every file of the project that git does not ignore, with its content."""
        names = self.git("ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
        return {name: self.read(name) for name in sorted({*names} - {""}) if (self.root / name).is_file()}

    @property
    def runs(self) -> list[Path]:
        return sorted((self.root / ".ralph" / "runs").iterdir())

    @property
    def run(self) -> Path:
        """The latest run."""
        return self.runs[-1]

    def prompt(self, turn: int, run: Path | None = None) -> str:
        """What the agent was told in a turn."""
        return (self.turn(turn, run) / "prompt.md").read_text()

    def turn(self, number: int, run: Path | None = None) -> Path:
        [found] = ((run or self.run) / "turns").glob(f"{number:05d}-*")
        return found

    def role(self, turn: int) -> str:
        return self.turn(turn).name.partition("-")[2]

    def journal(self, *types: str) -> list[dict[str, Any]]:
        lines = (self.run / "journal.jsonl").read_bytes().split(b"\n")[:-1]
        records: list[dict[str, Any]] = [json.loads(line) for line in lines]
        return [record for record in records if not types or record["type"] in types]

    def findings(self, iteration: int) -> list[tuple[str, str]]:
        """What the guards found when an iteration was verified: rule and path."""
        [ended] = [one for one in self.journal("checks.ended") if one["key"] == f"iteration-{iteration}"]
        return [(one["rule"], one["path"]) for one in ended["verdict"].get("findings", [])]

    def state(self) -> dict[str, Any]:
        path = self.root / ".aiwg" / "ralph" / "loops" / self.run.name / "state.json"
        state: dict[str, Any] = json.loads(path.read_text())
        return state

    def end(self) -> None:
        """End whatever this test left running."""
        wanted = f"{MARK}={self.mark}".encode()
        for _ in range(100):
            left = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _has(pid, wanted)]
            if not left:
                return
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            time.sleep(0.05)


def _has(pid: int, mark: bytes) -> bool:
    try:
        return pid != os.getpid() and mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False


@contextmanager
def playground(place: Path) -> Iterator[Playground]:
    """An empty project with a repository in a directory, and whatever it started ended afterwards."""
    project = Playground(place / "project", place / "home")
    project.root.mkdir()
    project.home.mkdir()
    project.git("init", "-q", "-b", "main")
    try:
        yield project
    finally:
        project.end()


def say(text: str) -> Step:
    return {"say": text}


def put(path: str, content: str) -> Step:
    return {"write": {"path": path, "content": content}}


def patch(path: str, find: str, replace: str) -> Step:
    return {"patch": {"path": path, "find": find, "replace": replace}}


def delete(path: str) -> Step:
    return {"delete": path}


def run(command: str) -> Step:
    return {"run": command}


def answer(summary: str, **more: str) -> Step:
    return {"answer": {"summary": summary, **more}}


def used(cost: float = 0.01) -> Step:
    return {"usage": {"input_tokens": 1000, "output_tokens": 100, "cost": cost}}


def needs(program: str) -> None:
    """Skip where a program is not installed."""
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
