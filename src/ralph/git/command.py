"""The one runner of the git command: no hooks, no prompts, no housekeeping, its failures mapped once."""

import errno
import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO

from ralph.core.errors import RalphError, StorageError, UsageError
from ralph.core.outcomes import Outcome

_CONFIG = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.fsync=committed",
    "core.fsyncMethod=batch",
    "gc.auto=0",
    "maintenance.auto=false",
    "commit.gpgSign=false",
    "submodule.recurse=false",
    "advice.addEmbeddedRepo=false",
)
_KEPT = ("GIT_CONFIG", "GIT_AUTHOR_", "GIT_COMMITTER_", "GIT_CEILING_", "GIT_EXEC_PATH")
_ENVIRONMENT = {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0", "GIT_ADVICE": "0"}
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
_FULL_SAYS = (*(os.strerror(code) for code in _FULL), "Out of diskspace", "couldn't write", "unable to write")
_FOR_NOW = re.compile(
    rb"failed to read .*worktrees/[^/]+/(?:commondir|gitdir|HEAD)"
    rb"|Invalid path '.*worktrees/[^/]+': No such file"
    rb"|could not create directory of '.*worktrees/[^/]+': No such file"
    rb"|bad object worktrees/[^/]+/HEAD"
    rb"|Unable to create '.*\.lock': File exists"
    rb"|could not lock config file .*: File exists"
    rb"|(?:unable to stat '|open\(\"|readlink\(\").*: No such file"
    rb"|short read while indexing"
)
"""What git says, before it changes anything, where another git makes or removes a worktree or holds a lock, and of files
that somebody removes or cuts off just while they are staged."""
_TRIES, _PAUSE = 40, 0.05
_MAKE_ROOM = "make room on the disk or make it writable, then `ralph resume`"


class GitError(RalphError):
    """Git refused or failed; `said` is what it wrote."""

    outcome = Outcome.FAILED

    def __init__(self, what: str, *, where: str = "", todo: str = "", said: str = "") -> None:
        super().__init__(
            what, where=where, todo=todo or "`git status` shows what is wrong; mend it, then `ralph resume`"
        )
        self.said = said


@dataclass(frozen=True)
class Output:
    """What a git command gave."""

    code: int
    out: bytes
    err: bytes

    @property
    def text(self) -> str:
        """The output without its last line end; bytes that are not UTF-8 survive as in file names."""
        return os.fsdecode(self.out).rstrip("\n")

    @property
    def names(self) -> list[str]:
        """The items of output that is separated by NUL."""
        return [os.fsdecode(name) for name in self.out.split(b"\0") if name]


@dataclass(frozen=True)
class Git:
    """The git command in one directory."""

    cwd: Path
    env: Mapping[str, str] = field(default_factory=dict)
    config: tuple[str, ...] = ()
    plain: bool = False
    """Whether the user's hooks and settings hold as they are."""

    def adding(self, *config: str, **env: str) -> "Git":
        """The same with more configuration or environment."""
        return replace(self, config=(*self.config, *config), env={**self.env, **env})

    def commit(self, name: str = "HEAD") -> str:
        """The commit of that name; empty where there is none."""
        return self.run("rev-parse", "-q", "--verify", f"{name}^{{commit}}", ok=(0, 1, 128)).text

    def tree(self, commit: str) -> str:
        """The tree of a commit."""
        return self.run("rev-parse", f"{commit}^{{tree}}").text

    def run(self, *args: str, stdin: bytes = b"", ok: tuple[int, ...] = (0,), timeout: float = 600) -> Output:
        """Run one git command to its end; a code that is not among `ok` is an error."""
        settings = self.config if self.plain else (*_CONFIG, *self.config)
        options = [word for setting in settings for word in ("-c", setting)]
        with disk(self.cwd):
            output = self._start(["git", *options, *args], stdin, timeout)
            for _ in range(_TRIES):
                if not (output.code and _FOR_NOW.search(output.err)):
                    break
                time.sleep(_PAUSE)
                output = self._start(["git", *options, *args], stdin, timeout)
        if output.code not in ok or (output.code and _is_full(output)):
            raise _failure(args[0], self.cwd, output)
        return output

    def _start(self, command: list[str], stdin: bytes, timeout: float) -> Output:
        try:
            with _whole(stdin) as source:
                # A session of its own: Ctrl-C is for the engine, and must not break a snapshot in the middle.
                process = subprocess.Popen(
                    command,
                    cwd=self.cwd,
                    env={**_environment(), **self.env},
                    stdin=source,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    start_new_session=True,
                )
        except FileNotFoundError as error:
            if error.filename != "git":
                raise
            todo = "install git, or run without it: `--no-snapshots`"
            raise UsageError("git is not installed", todo=todo) from error
        with process, _deadline(process, timeout) as late:
            out, err = process.communicate()
        if late.is_set():
            todo = "see what keeps git busy, then `ralph resume`"
            raise RalphError(f"git did not finish within {timeout:g} s", where=str(self.cwd), todo=todo)
        return Output(process.returncode, out, err)


@contextmanager
def _whole(stdin: bytes) -> Iterator[IO[bytes] | int]:
    """Input that git reads to its end though the engine is killed: from a pipe it would take a part for the whole."""
    if not stdin:
        yield subprocess.DEVNULL
        return
    with os.fdopen(os.memfd_create("git"), "w+b") if hasattr(os, "memfd_create") else tempfile.TemporaryFile() as file:
        file.write(stdin)
        file.seek(0)
        yield file


@contextmanager
def _deadline(process: subprocess.Popen[bytes], seconds: float) -> Iterator[threading.Event]:
    """End a command and its children when time is up; to wait with a timeout would poll, at the cost of a git."""
    late = threading.Event()

    def end() -> None:
        if process.poll() is None:
            late.set()
            os.killpg(process.pid, signal.SIGKILL)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield late
    finally:
        timer.cancel()


@contextmanager
def disk(where: Path) -> Iterator[None]:
    """Tell a person what the disk refused."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise StorageError(str(error), where=str(where), todo=_MAKE_ROOM) from error
        raise GitError(str(error), where=str(where)) from error


def _environment() -> dict[str, str]:
    """Ours without the variables by which a surrounding git (a hook, a rebase) would redirect the command."""
    kept = {name: value for name, value in os.environ.items() if name[:4] != "GIT_" or name.startswith(_KEPT)}
    return kept | _ENVIRONMENT


def _is_full(output: Output) -> bool:
    return any(says.encode() in output.err for says in _FULL_SAYS)


def _failure(verb: str, cwd: Path, output: Output) -> RalphError:
    said = output.err.decode(errors="replace").strip()
    faults = [line for line in said.splitlines() if line.startswith(("fatal:", "error:"))]
    fault = faults[-1] if faults else said or f"code {output.code}"
    if fault.endswith(":"):
        listed = [line.strip() for line in said.partition(fault)[2].splitlines() if line.startswith("\t")]
        fault = f"{fault} {', '.join(listed[:5])}" + (f" and {len(listed) - 5} more" if len(listed) > 5 else "")
    what = f"`git {verb}` failed: {fault}"
    if _is_full(output):
        return StorageError(what, where=str(cwd), todo=_MAKE_ROOM)
    if "dubious ownership" in said:
        todo = f"if you trust it: `git config --global --add safe.directory {cwd}`"
        return UsageError("git does not trust this repository: it belongs to someone else", where=str(cwd), todo=todo)
    if output.code == 129:
        return UsageError(what, where=str(cwd), todo="install git 2.34 or newer, or use `--no-snapshots`")
    return GitError(what, where=str(cwd), said=said)
