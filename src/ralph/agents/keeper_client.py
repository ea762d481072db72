"""The engine's side of the keeper: start it or find it again, give it jobs, and learn how they ended."""

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ralph.core.codec import from_plain
from ralph.core.errors import RalphError

STREAM_CAP = 64 * 1024 * 1024


@dataclass(frozen=True)
class Job:
    """A program to run under the keeper."""

    dir: Path
    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: Path
    stdin: Path | None = None
    wall: float | None = None
    idle: float | None = None
    grace: float = 5.0
    merge: bool = False
    """One stream for both outputs, in the order in which they were printed."""
    secrets: tuple[str, ...] = ()
    cap: int = STREAM_CAP

    def request(self) -> bytes:
        """The message that starts it."""
        spec = {
            "dir": str(self.dir),
            "argv": self.argv,
            "env": self.env,
            "cwd": str(self.cwd),
            "stdin": str(self.stdin) if self.stdin else None,
            "wall": self.wall,
            "idle": self.idle,
            "grace": self.grace,
            "merge": self.merge,
            "secrets": self.secrets,
            "cap": self.cap,
            "umask": _umask(),
        }
        return json.dumps(spec).encode() + b"\n"


@dataclass(frozen=True)
class Exit:
    """How a job ended, as its keeper recorded it."""

    reason: str
    """exit, exec (could not be started), wall, idle, or the reason it was stopped for."""
    started_at: float
    ended_at: float
    code: int | None = None
    signal: int | None = None
    error: str = ""
    survivors: int = 0
    unkillable: int = 0
    streams: dict[str, Any] = field(default_factory=dict)


class Lost(Exception):
    """The job's keeper died: nothing more will be known of the job."""


class Keeper:
    """A run's keeper process, as its engine knows it."""

    def __init__(self, run_dir: Path, tree_lock: Callable[[], int] = lambda: -1) -> None:
        self._run_dir = run_dir
        self._tree_lock = tree_lock
        self._lifeline: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._starting = asyncio.Lock()

    async def run(self, job: Job, on_output: Callable[[], None] | None = None) -> Exit:
        """Start a job, or take over one that is under way or has ended, and wait for its end; raises Lost."""
        if job.dir.exists():
            if ended := read_exit(job.dir):
                return ended
            if (job.dir / "pid").exists():
                return await self._watch(job.dir, on_output)
        else:
            job.dir.mkdir(parents=True)
        async with self._keeper() as (reader, writer):
            writer.write(job.request())
            if (ended := await _follow(reader, job.dir, on_output)) is not None:
                return ended
        return await self._watch(job.dir, on_output)

    async def _watch(self, job_dir: Path, on_output: Callable[[], None] | None) -> Exit:
        try:
            async with _connected(job_dir, "sock") as (reader, _):
                ended = await _follow(reader, job_dir, on_output)
        except OSError:
            ended = None
        if ended := ended or read_exit(job_dir):
            return ended
        raise Lost(str(job_dir))

    @contextlib.asynccontextmanager
    async def _keeper(self) -> AsyncIterator["Streams"]:
        """A connection to the living keeper; one that is not there is started."""
        async with self._starting, contextlib.AsyncExitStack() as stack:
            try:
                if self._lifeline is None:
                    raise ConnectionRefusedError
                streams = await stack.enter_async_context(_connected(self._run_dir, "jobs.sock"))
            except OSError:
                self._attach_or_start()
                streams = await stack.enter_async_context(_connected(self._run_dir, "jobs.sock"))
            opened = stack.pop_all()
        async with opened:
            yield streams

    def _attach_or_start(self) -> None:
        with contextlib.suppress(OSError), _short_path(self._run_dir, "keeper.sock") as path:
            lifeline = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            lifeline.settimeout(10.0)
            lifeline.connect(path)
            if lifeline.recv(65536):
                self._lifeline = lifeline
                return
        ours, theirs = socket.socketpair()
        lock = self._tree_lock()
        command = [sys.executable, "-P", "-m", "ralph.agents.keeper", str(self._run_dir)]
        log = os.open(self._run_dir / "keeper.log", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
        self._process = subprocess.Popen(
            [*command, str(theirs.fileno()), str(lock)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            pass_fds=[theirs.fileno(), *([lock] if lock >= 0 else [])],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        )
        os.close(log)
        theirs.close()
        ours.settimeout(30.0)
        if ours.recv(64) != b"ready\n":
            raise RalphError("the keeper did not start", where=str(self._run_dir / "keeper.log"), todo="read that file")
        self._lifeline = ours

    async def close(self) -> None:
        """Let the keeper go; where it has no job left, it is gone when this returns."""
        if self._lifeline is None:
            return
        self._lifeline.close()
        self._lifeline = None
        for _ in range(200):
            if not (self._run_dir / "keeper.sock").exists():
                break
            await asyncio.sleep(0.005)
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=1.0)


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def stop(job_dir: Path, reason: str) -> None:
    """Ask a job's keeper to end it; its end comes as any other does."""
    with contextlib.suppress(OSError):
        async with _connected(job_dir, "sock") as (_, writer):
            writer.write(json.dumps({"op": "stop", "reason": reason}).encode() + b"\n")
            await writer.drain()


async def end(job_dir: Path, reason: str) -> None:
    """Ask a job's keeper to end it, and wait until it has; a job whose keeper is gone has ended."""
    with contextlib.suppress(OSError):
        async with _connected(job_dir, "sock") as (reader, writer):
            writer.write(json.dumps({"op": "stop", "reason": reason}).encode() + b"\n")
            while await reader.readline():
                pass


def read_exit(job_dir: Path) -> Exit | None:
    """The exit record of a job, if it has ended."""
    try:
        data = (job_dir / "exit").read_bytes()[:65536]
    except FileNotFoundError:
        return None
    return from_plain(Exit, json.loads(data), str(job_dir / "exit"))


async def _follow(reader: asyncio.StreamReader, job_dir: Path, on_output: Callable[[], None] | None) -> Exit | None:
    """Read a job's messages until its end; None when the connection ends before."""
    with contextlib.suppress(ConnectionError):
        while line := await reader.readline():
            message = json.loads(line)
            if message["ev"] == "output" and on_output:
                on_output()
            elif message["ev"] == "ended":
                return from_plain(Exit, message["exit"], str(job_dir))
            elif message["ev"] == "broken":
                raise RalphError(f"the keeper of a job broke: {message['error']}", where=str(job_dir))
    return None


@contextlib.asynccontextmanager
async def _connected(directory: Path, name: str) -> AsyncIterator[Streams]:
    with _short_path(directory, name) as path:
        reader, writer = await asyncio.open_unix_connection(path, limit=1 << 20)
    try:
        yield reader, writer
    finally:
        writer.close()


@contextlib.contextmanager
def _short_path(directory: Path, name: str) -> Iterator[str]:
    """A path to a socket that is short enough for the kernel (108 bytes), however deep the directory is."""
    plain = str(directory / name)
    if len(plain.encode()) < 100:
        yield plain
        return
    if not Path("/proc/self/fd").is_dir():
        before = os.getcwd()
        os.chdir(directory)
        try:
            yield name
        finally:
            os.chdir(before)
        return
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{name}"
    finally:
        os.close(descriptor)


def _umask() -> int:
    current = os.umask(0o077)
    os.umask(current)
    return current
