"""Kills a program of ours at one of its git commands, with SIGKILL: a `git` in its PATH counts the commands."""

import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from repos import REAL_GIT

_NEVER = 1000
_SAMPLE = 3


@dataclass(frozen=True)
class KilledProgram:
    """A Python program whose only argument is a repository."""

    program: str
    directory: Path
    """An empty directory for copies of the repository."""
    is_after: bool
    """Whether the command still runs before the program is killed."""

    def kill_copies(self, repo: Path) -> Iterator[Path]:
        """Kill the program at several commands, each time in a copy of the repository, which is yielded then.

        With RALPH_CHAOS=1 it is killed at each of its commands, else at the first, the last and some in between.
        """
        copy = shutil.copytree(repo, self.directory / "whole", symlinks=True)
        left = self._run(copy, _NEVER)
        assert left[0] == 0, left[1]
        total = _NEVER - int((self.directory / "count").read_text())
        assert total > 10
        for number in _choose_commands(total):
            copy = shutil.copytree(repo, self.directory / f"killed-at-{number}", symlinks=True)
            code, errors = self._run(copy, number)
            assert code == -signal.SIGKILL, errors
            yield copy

    def _run(self, repo: Path, number: int) -> tuple[int, str]:
        """Run the program, and kill it at the command with this number."""
        count, wrapper = self.directory / "count", self.directory / "bin" / "git"
        count.write_text(str(number))
        wrapper.parent.mkdir(exist_ok=True)
        real = f'{REAL_GIT} "$@"'
        last = f"{real}; kill -KILL $PPID" if self.is_after else "kill -KILL $PPID; exit 9"
        lines = (f"n=$(($(cat {count}) - 1)); echo $n >{count}", f"if [ $n = 0 ]; then {last}; else exec {real}; fi")
        wrapper.write_text("\n".join(("#!/bin/sh", *lines, "")))
        wrapper.chmod(0o755)
        environment = {**os.environ, "PATH": f"{wrapper.parent}:{os.environ['PATH']}"}
        done = subprocess.run([sys.executable, "-c", self.program, repo], env=environment, capture_output=True)
        return done.returncode, done.stderr.decode()


def _choose_commands(total: int) -> list[int]:
    every = range(1, total + 1)
    if os.environ.get("RALPH_CHAOS"):
        return list(every)
    return sorted({1, total, *random.Random(total).sample(every, _SAMPLE)})
