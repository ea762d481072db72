"""A project, a home directory with secrets, and the real command line with the sandbox that a user gets by default."""

import json
import os
import shlex
import stat
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

RALPH = Path(sys.executable).with_name("ralph")
DONE = "`test -f done.txt` passes"


@dataclass
class Place:
    """A project and a home directory."""

    root: Path
    home: Path
    extra: dict[str, str] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("RALPH_", "GIT_", "XDG_"))}
        own = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1", "HOME": str(self.home)}
        return {**kept, **own, **self.extra}

    def git(self, *words: str, cwd: Path | None = None) -> str:
        command = ["git", "-c", "user.name=User", "-c", "user.email=user@example.com", *words]
        done = subprocess.run(
            command, cwd=cwd or self.root, env=self.environment, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    def start(self, *words: str, **variables: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [str(RALPH), *words],
            cwd=self.root,
            env={**self.environment, **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def ralph(self, *words: str, code: int | None = 0, **variables: str) -> str:
        with self.start(*words, **variables) as process:
            out = process.communicate(timeout=180)[0]
        assert code is None or process.returncode == code, out
        return out

    def loop(self, script: str, *options: str, code: int | None = 0, until: str = DONE, **variables: str) -> str:
        """A loop whose agent is a shell script. It ends after one iteration."""
        options = ("--max-iterations", "1", "--yes", *options)
        return self.ralph(
            "loop", "work", "--until", until, "--agent-command", self.agent(script), *options, code=code, **variables
        )

    def agent(self, script: str) -> str:
        path = self.home / "agent.sh"
        path.write_text(f"#!/bin/sh\ncat > /dev/null\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return shlex.quote(str(path))

    def python(self, code: str, name: str = "agent.py") -> str:
        """A command that runs a Python program of the home directory."""
        path = self.home / name
        path.write_text(code)
        return shlex.join([sys.executable, "-S", "-I", str(path)])

    @property
    def run(self) -> Path:
        [run] = (self.root / ".ralph" / "runs").iterdir()
        return run

    def journal(self, kind: str) -> list[dict[str, Any]]:
        lines = (self.run / "journal.jsonl").read_text().splitlines()
        return [entry for entry in map(json.loads, lines) if entry["type"] == kind]

    def turn_output(self) -> str:
        turns = sorted((self.run / "turns").iterdir())
        return "".join((turn / name).read_text() for turn in turns for name in ("stdout", "stderr"))
