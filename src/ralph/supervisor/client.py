"""The engine's side of the keeper: start it or find it again, give it jobs, and read how they ended."""

import asyncio
import contextlib
import errno
import json
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ralph.core.codec import from_plain
from ralph.core.errors import RalphError, StateError
from ralph.store.files import read_limited, storage_errors

STREAM_CAP = 64 * 1024 * 1024
EXIT_LIMIT = 65536
ATTEMPTS, PAUSE = 40, 0.05
"""How often, and after how many seconds, the client looks again for a job that is just starting."""
KEEPER_SECONDS = 30.0
"""How long a keeper may take to start, and to exit."""


@dataclass(frozen=True)
class JobRequest:
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
    sandboxed: bool = False
    """Whether its first process is bubblewrap, whose end would end the job at once."""
    durable: bool = True
    """Whether its exit record must survive a power cut. A job that can simply run again does not need that."""
    abandoned_after: float | None = None
    """Seconds without a connected engine after which the job ends as interrupted; None if it runs on without one."""

    def encode(self) -> bytes:
        """The message that starts it."""
        return json.dumps({**vars(self), "umask": _read_umask()}, default=str).encode() + b"\n"


@dataclass(frozen=True)
class JobExit:
    """How a job ended, as its keeper recorded it."""

    reason: str
    """exit, exec (could not start), wall, idle, or the reason for which it was stopped."""
    started_at: float
    ended_at: float
    code: int | None = None
    signal: int | None = None
    error: str = ""
    survivors: int = 0
    unkillable: int = 0
    streams: dict[str, Any] = field(default_factory=dict)

    def has_output(self, stream: str) -> bool:
        """Whether the job printed anything to a stream; True if that is not known."""
        return bool(self.streams.get(stream, {}).get("bytes", 1))


class KeeperLost(Exception):
    """The job's keeper died: how the job ended will never be known."""


class KeeperClient:
    """The engine's connection to the keeper process of a run."""

    def __init__(
        self, run_dir: Path, tree_lock: Callable[[], int] = lambda: -1, abandoned_after: float | None = None
    ) -> None:
        self._run_dir = run_dir
        self._abandoned_after = abandoned_after
        self._tree_lock = tree_lock
        self._lifeline: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._starting = asyncio.Lock()

    async def run(self, job: JobRequest, on_output: Callable[[], None] | None = None) -> JobExit:
        """Start a job, or adopt one that is running or has ended, and wait for its end. Raises KeeperLost."""
        if self._abandoned_after is not None:
            job = replace(job, abandoned_after=self._abandoned_after)
        for _ in range(ATTEMPTS):
            if job.dir.exists():
                if ended := read_exit(job.dir):
                    return ended
                if (job.dir / "pid").exists():
                    return await self._watch(job.dir, on_output)
            else:
                job.dir.mkdir(parents=True)
            async with self._connect_keeper() as (reader, writer):
                writer.write(job.encode())
                if (ended := await _follow(reader, job.dir, on_output)) is not None:
                    return ended
        raise RalphError("the keeper process does not start jobs", where=str(self._run_dir / "keeper.log"))

    async def _watch(self, job_dir: Path, on_output: Callable[[], None] | None) -> JobExit:
        """Follow a job that was started before, by this engine or another."""
        for _ in range(ATTEMPTS):
            try:
                async with _connect(job_dir, "sock") as (reader, _):
                    ended = await _follow(reader, job_dir, on_output)
            except ConnectionRefusedError:
                ended = None
            except FileNotFoundError:
                if not (job_dir / "exit").exists():
                    await asyncio.sleep(PAUSE)
                    continue
                ended = None
            if ended := ended or read_exit(job_dir):
                return ended
            break
        raise KeeperLost(str(job_dir))

    @contextlib.asynccontextmanager
    async def _connect_keeper(self) -> AsyncIterator["Streams"]:
        """A connection to the keeper, which is started if it is not running."""
        async with self._starting, contextlib.AsyncExitStack() as stack:
            try:
                if self._lifeline is None or _is_closed(self._lifeline):
                    raise ConnectionRefusedError
                streams = await stack.enter_async_context(_connect(self._run_dir, "jobs.sock"))
            except OSError:
                self._attach_or_start()
                streams = await stack.enter_async_context(_connect(self._run_dir, "jobs.sock"))
            opened = stack.pop_all()
        async with opened:
            yield streams

    def attach(self) -> None:
        """Connect to a keeper that an earlier engine left. The connection keeps it alive, and it holds the lock on the tree."""
        self._lifeline = self._try_attach()
        if self._lifeline is not None:
            self._lifeline.setblocking(False)

    def _attach_or_start(self) -> None:
        """Connect to the running keeper, or start one. The connection keeps it alive."""
        if self._lifeline is not None:
            self._lifeline.close()
        self._lifeline = self._try_attach() or self._start_keeper()
        self._lifeline.setblocking(False)

    def _try_attach(self) -> socket.socket | None:
        lifeline = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        lifeline.settimeout(10.0)
        try:
            with _short_path(self._run_dir, "keeper.sock") as path:
                lifeline.connect(path)
            if lifeline.recv(64):
                return lifeline
        except OSError:
            pass
        lifeline.close()
        return None

    def _start_keeper(self) -> socket.socket:
        if self._process is not None:
            self._process.wait()
        ours, theirs = socket.socketpair()
        lock = self._tree_lock()
        command = [sys.executable, "-P", "-m", "ralph.supervisor.keeper", str(self._run_dir)]
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
        ours.settimeout(KEEPER_SECONDS)
        with contextlib.suppress(OSError):
            if ours.recv(64) == b"ready\n":
                return ours
        ours.close()
        self._process.kill()
        self._process.wait()
        log_path = self._run_dir / "keeper.log"
        raise RalphError("the keeper did not start", where=str(log_path), todo="read that file")

    async def close(self) -> None:
        """Disconnect from the keeper. If it has no job left, it has exited when this returns."""
        if self._lifeline is None:
            return
        lifeline, self._lifeline = self._lifeline, None
        with lifeline, contextlib.suppress(OSError):
            lifeline.shutdown(socket.SHUT_WR)
            reply = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(lifeline, 64), KEEPER_SECONDS)
            if self._process is not None and not reply:
                self._process.wait()
        if self._process is not None and self._process.poll() is None:
            # It has jobs left and outlives this process on purpose. This prevents a ResourceWarning.
            self._process.returncode = 0


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def stop(job_dir: Path, reason: str) -> None:
    """Ask a job's keeper to end the job; `run` returns soon after."""
    for _ in range(ATTEMPTS):
        try:
            async with _connect(job_dir, "sock") as (_, writer):
                writer.write(_encode_stop(reason))
                await writer.drain()
            return
        except OSError:
            if (job_dir / "exit").exists():
                return
            await asyncio.sleep(PAUSE)


async def end(job_dir: Path, reason: str) -> None:
    """Ask a job's keeper to end the job, and wait until it has ended."""
    with contextlib.suppress(OSError):
        async with _connect(job_dir, "sock") as (reader, writer):
            writer.write(_encode_stop(reason))
            while await reader.readline():
                pass


def read_exit(job_dir: Path) -> JobExit | None:
    """The exit record of a job, if it has ended."""
    path = job_dir / "exit"
    try:
        return from_plain(JobExit, json.loads(read_limited(path, EXIT_LIMIT)), str(path))
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError, OSError) as error:
        raise StateError(
            f"the exit record cannot be read ({error})",
            where=str(path),
            todo="remove it; the turn then counts as interrupted",
        ) from error


def _encode_stop(reason: str) -> bytes:
    return json.dumps({"op": "stop", "reason": reason}).encode() + b"\n"


def _is_closed(lifeline: socket.socket) -> bool:
    """Whether the other side has closed the connection."""
    try:
        return lifeline.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


async def _follow(reader: asyncio.StreamReader, job_dir: Path, on_output: Callable[[], None] | None) -> JobExit | None:
    """Read a job's messages until its end; None if the connection closes before."""
    with contextlib.suppress(ConnectionError):
        while line := await reader.readline():
            message = json.loads(line)
            if message["ev"] == "output" and on_output:
                on_output()
            elif message["ev"] == "ended":
                return from_plain(JobExit, message["exit"], str(job_dir))
            elif message["ev"] == "broken":
                if message.get("errno") == errno.ENOENT:
                    raise KeeperLost(f"{job_dir}: {message['error']}")
                with storage_errors(job_dir):
                    if message.get("errno"):
                        raise OSError(message["errno"], message["error"])
                raise RalphError(f"the keeper of a job failed: {message['error']}", where=str(job_dir))
    return None


@contextlib.asynccontextmanager
async def _connect(directory: Path, name: str) -> AsyncIterator[Streams]:
    with _short_path(directory, name) as path:
        reader, writer = await asyncio.open_unix_connection(path, limit=1 << 20)
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


@contextlib.contextmanager
def _short_path(directory: Path, name: str) -> Iterator[str]:
    """A path to a socket in any directory. The kernel takes at most 108 bytes."""
    plain = str(directory / name)
    if len(os.fsencode(plain)) < 100:
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


def _read_umask() -> int:
    current = os.umask(0o077)
    os.umask(current)
    return current
