"""The keeper of one job: starts its program, enforces its limits, and lets no process outlive it.

It is the subreaper of its job. Whatever an agent starts, detached or with a clean environment, becomes its child when
orphaned, so that it can be found and ended. The job's directory gets `pid` (before the program starts), `sock` (while it
runs, for engines that connect later), `stdout`, `stderr` (capped, without secrets) and finally `exit`.

Keepers and engine exchange JSON, one object per line, over Unix sockets.
"""

import contextlib
import fcntl
import json
import os
import select
import selectors
import shutil
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Callable
from typing import Any

from ralph.core.redaction import Redactor
from ralph.supervisor.processes import become_subreaper, descendants, is_descendant, signal_all

Message = dict[str, Any]


def listen(path: str) -> socket.socket:
    """Listen on a Unix socket in the current directory. Once its file is visible, it accepts connections."""
    temporary = f"{path}.{os.getpid()}"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(temporary)
    listener.listen(64)
    os.rename(temporary, path)
    return listener


def wake_on_signals(*numbers: signal.Signals) -> int:
    """A file descriptor that becomes readable when one of the signals arrives."""
    read, write = os.pipe()
    os.set_blocking(read, False)
    os.set_blocking(write, False)
    for number in numbers:
        signal.signal(number, lambda *_: None)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    return read


def drain(descriptor: int) -> bytes:
    """Read what is there without waiting."""
    try:
        return os.read(descriptor, 65536)
    except BlockingIOError:
        return b""


def receive_request(connection: socket.socket) -> Message:
    """The first message of a connection; empty if none comes within five seconds."""
    connection.settimeout(5.0)
    data = b""
    try:
        while not data.endswith(b"\n"):
            chunk = connection.recv(1 << 20)
            if not chunk:
                return {}
            data += chunk
        message = json.loads(data)
    except (OSError, ValueError):
        return {}
    return message if isinstance(message, dict) else {}


def is_from_inside(connection: socket.socket, keeper: int) -> bool:
    """Whether a process of one of this keeper's own jobs is at the other end. Agents must not give the keeper orders."""
    if not hasattr(socket, "SO_PEERCRED"):
        return False
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return is_descendant(struct.unpack("3i", data)[0], keeper)


def send_message(connection: socket.socket, message: Message) -> None:
    """Send one message. A peer that is gone is not an error."""
    with contextlib.suppress(OSError):
        connection.sendall(json.dumps(message).encode() + b"\n")


GIVE_UP_SECONDS = 10.0
"""How long to wait for processes that SIGKILL does not end (they hang in the kernel), before they are reported."""
MAX_WAIT = 3600.0
"""The longest wait in seconds: the kernel rejects longer ones."""
_SANDBOX_ERROR_BYTES = 4096
EXIT_RECORD_BYTES = 4096
"""Space that is reserved for the exit record when the job starts, so that a full disk cannot lose it."""


def serve_jobs(jobs: socket.socket, keeper_alive: int, report_status: Callable[[bytes], object]) -> int:
    """Run one job after the other, until the keeper of the run dies or a job leaves a process that cannot be ended."""
    wakeup = wake_on_signals(signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    become_subreaper()
    os.set_blocking(jobs.fileno(), False)
    while True:
        ready, _, _ = select.select([jobs.fileno(), keeper_alive], [], [])
        if keeper_alive in ready:
            return 0
        try:
            connection, _ = jobs.accept()
        except BlockingIOError:
            continue
        if is_from_inside(connection, os.getppid()):
            connection.close()
            continue
        report_status(b"b")
        spec = receive_request(connection)
        if spec and not _run_job(spec, connection, wakeup, report_status):
            return 1
        connection.close()
        if not spec:
            report_status(b"i")


def _open_input(path: str) -> int:
    """A copy of a file for a job to read. A job could open the file itself again by `/dev/stdin`, and write to it."""
    if path == os.devnull or not hasattr(os, "memfd_create"):
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    copy = os.memfd_create("input", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with open(path, "rb") as source, open(copy, "wb", closefd=False) as target:
        shutil.copyfileobj(source, target)
    os.lseek(copy, 0, os.SEEK_SET)
    fcntl.fcntl(
        copy, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
    )
    return copy


def _run_job(spec: Message, connection: socket.socket, wakeup: int, report_status: Callable[[bytes], object]) -> bool:
    """Run a job to its end; whether none of its processes is left."""
    drain(wakeup)
    job = JobKeeper(spec, connection, wakeup)
    is_free = False
    last: Message
    try:
        last = {"ev": "ended", "exit": job.run()}
        is_free = job.is_childless
    except FileExistsError:
        last, is_free = {"ev": "running"}, True
    except BaseException as error:  # noqa: BLE001 - whatever happens here must reach the engine
        last = {"ev": "broken", "error": str(error), "errno": getattr(error, "errno", None)}
    if is_free:
        # Before the engine receives the end: it may exit at once, and the keeper must know that no job is left.
        report_status(b"i")
    job.close(last)
    return is_free


class JobKeeper:
    """One program under supervision, from its start until none of its processes is left."""

    def __init__(self, spec: Message, connection: socket.socket, wakeup: int) -> None:
        self.spec = spec
        self.wakeup = wakeup
        self.listener: socket.socket | None = None
        self.exit_file = -1
        self.watchers = {connection.fileno(): connection}
        self.selector = selectors.DefaultSelector()
        self.code: int | None = None
        self.reason = "exit"
        self.error = ""
        self.ended_by_us = 0
        self.agent = 0
        self.is_reaped = False
        self.is_childless = False
        self.stage_ends: float | None = None
        self.killing_since: float | None = None
        self.announced = 0.0
        self.has_new_output = False
        self.alone_since = time.monotonic()
        """When the last engine disconnected."""

    def run(self) -> Message:
        """Start the program, enforce its limits, and write `exit` when its whole process tree is gone. Returns that record."""
        os.chdir(self.spec["dir"])
        os.close(os.open("pid", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        self.listener = listen("sock")
        self.selector.register(self.listener, selectors.EVENT_READ, self._on_connect)
        self.selector.register(self.wakeup, selectors.EVENT_READ, self._on_signal)
        for watcher in self.watchers.values():
            watcher.setblocking(False)
            self.selector.register(watcher, selectors.EVENT_READ, self._on_message)
        self.exit_file = os.open("exit.tmp", os.O_CREAT | os.O_RDWR | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        if self.spec.get("durable", True):
            os.write(self.exit_file, b" " * EXIT_RECORD_BYTES)
        self.started_at = time.time()
        self.started = self.last_output = time.monotonic()
        self._start()
        while not self._is_over():
            for key, _ in self.selector.select(self._next_deadline()):
                key.data(key.fileobj)
            self._enforce_limits()
        return self._finish()

    def _start(self) -> None:
        secrets, cap = self.spec.get("secrets", ()), self.spec["cap"]
        stdin = _open_input(self.spec.get("stdin") or os.devnull)
        out_read, out_write = os.pipe()
        self.streams = {out_read: CappedStream("stdout", cap, secrets)}
        err_write = out_write
        if not self.spec.get("merge"):
            err_read, err_write = os.pipe()
            self.streams[err_read] = CappedStream("stderr", cap, secrets)
        try:
            self.program = subprocess.Popen(
                self.spec["argv"],
                stdin=stdin,
                stdout=out_write,
                stderr=err_write,
                cwd=self.spec["cwd"],
                env=self.spec["env"],
                umask=self.spec.get("umask", -1),
                start_new_session=True,
            )
            self.agent = self.program.pid
        except OSError as error:
            self.reason, self.is_reaped, self.is_childless = "exec", True, True
            self.error = f"{error.strerror}: {error.filename or self.spec['argv'][0]}"
        for descriptor in {stdin, out_write, err_write}:
            os.close(descriptor)
        for stream in self.streams:
            os.set_blocking(stream, False)
            self.selector.register(stream, selectors.EVENT_READ, self._on_output)
        self._notify_watchers({"ev": "started", "pid": self.agent})

    def _is_over(self) -> bool:
        if self.killing_since is not None and time.monotonic() - self.killing_since > GIVE_UP_SECONDS:
            return True
        return self.is_reaped and self.is_childless and not self.streams

    def _next_deadline(self) -> float | None:
        """Seconds until the next deadline; None if there is none."""
        deadlines: list[float] = []
        if self.stage_ends is not None:
            deadlines.append(self.stage_ends)
        elif self.reason == "exit":
            if idle := self.spec.get("idle"):
                deadlines.append(self.last_output + idle)
            if wall := self.spec.get("wall"):
                deadlines.append(self.started + wall)
            if (patience := self.spec.get("abandoned_after")) is not None and not self.watchers:
                deadlines.append(self.alone_since + patience)
        if self.has_new_output:
            deadlines.append(self.announced + 0.1)
        if not deadlines:
            return None
        return min(max(0.0, min(deadlines) - time.monotonic()), MAX_WAIT)

    def _enforce_limits(self) -> None:
        now = time.monotonic()
        if self.has_new_output and now - self.announced >= 0.1:
            self.announced, self.has_new_output = now, False
            self._notify_watchers({"ev": "output"})
        if self.stage_ends is not None:
            if now >= self.stage_ends and not self.is_childless:
                self.killing_since = self.killing_since or now
                self.stage_ends = now + 0.05
                self.ended_by_us = max(self.ended_by_us, signal_all(signal.SIGKILL))
            return
        wall, idle = self.spec.get("wall"), self.spec.get("idle")
        if wall and now - self.started >= wall:
            self._end("wall")
        elif idle and now - self.last_output >= idle:
            self._end("idle")
        elif self._is_abandoned(now):
            self._end("interrupted")

    def _is_abandoned(self, now: float) -> bool:
        """Whether no engine has been connected for so long that none will adopt the job."""
        patience = self.spec.get("abandoned_after")
        return patience is not None and not self.watchers and now - self.alone_since >= patience

    def _end(self, reason: str) -> None:
        """Send SIGTERM to the whole process tree. What is left after the grace time is killed."""
        if self.stage_ends is not None:
            return
        if not self.is_reaped:
            self.reason = reason
        self.stage_ends = time.monotonic() + self.spec.get("grace", 5.0)
        # If bubblewrap ended first, the kernel would kill its job without the grace time.
        is_sandboxed = bool(self.spec.get("sandboxed"))
        found = signal_all(signal.SIGTERM, spare=self.agent if is_sandboxed else 0)
        # In a sandbox, the kernel ends what is left, and its first process is still ending itself.
        self.ended_by_us = found if self.is_reaped and not is_sandboxed else 0

    def _on_output(self, stream: int) -> None:
        if stream not in self.streams:
            return
        try:
            data = os.read(stream, 1 << 20)
        except BlockingIOError:
            return
        if data:
            self.last_output = time.monotonic()
            self.streams[stream].write(data)
            self.has_new_output = True
            return
        self._close_stream(stream)

    def _close_stream(self, stream: int) -> None:
        self.selector.unregister(stream)
        os.close(stream)
        closed = self.streams.pop(stream)
        closed.close()
        self.spec.setdefault("written", {})[closed.name] = closed.account()

    def _on_signal(self, _: Any) -> None:
        if bytes([signal.SIGTERM]) in drain(self.wakeup):
            self._end("stopped")
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self.is_childless = True
                self._drain_streams()
                return
            if pid == 0:
                break
            if pid == self.agent:
                self.is_reaped = True
                self.code = os.waitstatus_to_exitcode(status)
        if self.is_reaped:
            self._end("exit")

    def _drain_streams(self) -> None:
        """Read the rest. No process of the job is left, so its pipes contain all output, even if another process holds them."""
        for stream in list(self.streams):
            with contextlib.suppress(BlockingIOError):
                while data := os.read(stream, 1 << 20):
                    self.streams[stream].write(data)
            self._close_stream(stream)

    def _on_connect(self, listener: socket.socket) -> None:
        connection, _ = listener.accept()
        if is_from_inside(connection, os.getppid()):
            connection.close()
            return
        connection.setblocking(False)
        self.watchers[connection.fileno()] = connection
        self.selector.register(connection, selectors.EVENT_READ, self._on_message)
        send_message(connection, {"ev": "started", "pid": self.agent})

    def _on_message(self, connection: socket.socket) -> None:
        try:
            data = connection.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.selector.unregister(connection)
            self.watchers.pop(connection.fileno(), None)
            self.alone_since = time.monotonic()
            connection.close()
            return
        for line in data.splitlines():
            with contextlib.suppress(ValueError, RecursionError):
                message = json.loads(line)
                if isinstance(message, dict) and message.get("op") == "stop":
                    self._end(str(message.get("reason", "stopped")))

    def _notify_watchers(self, message: Message) -> None:
        for watcher in self.watchers.values():
            send_message(watcher, message)

    def _finish(self) -> Message:
        for stream in list(self.streams):
            self._close_stream(stream)
        if error := self._find_sandbox_error():
            self.reason, self.error, self.code = "exec", error, None
        alive = 0 if self.is_childless else len(descendants(os.getpid()))
        record = {
            "schema": 1,
            "reason": self.reason,
            "code": self.code if self.code is not None and self.code >= 0 else None,
            "signal": -self.code if self.code is not None and self.code < 0 else None,
            "error": self.error,
            "started_at": self.started_at,
            "ended_at": time.time(),
            "survivors": self.ended_by_us,
            "unkillable": alive,
            "streams": self.spec.get("written", {}),
        }
        data = json.dumps(record).encode() + b"\n"
        os.pwrite(self.exit_file, data, 0)
        os.ftruncate(self.exit_file, len(data))
        if self.spec.get("durable", True):
            os.fsync(self.exit_file)
        os.rename("exit.tmp", "exit")
        with contextlib.suppress(FileNotFoundError):
            os.unlink("sock")
        return record

    def _find_sandbox_error(self) -> str:
        """Why the sandbox did not start the program; empty if it did. Bubblewrap then prints one line and exits with 1."""
        if not self.spec.get("sandboxed") or self.reason != "exit" or self.code != 1:
            return ""
        name = "stdout" if self.spec.get("merge") else "stderr"
        with open(name, "rb") as file:
            text = file.read(_SANDBOX_ERROR_BYTES).decode(errors="replace")
        if not text.startswith("bwrap: ") or text.count("\n") != 1:
            return ""
        error = text.removeprefix("bwrap: ").strip()
        return error.removeprefix("execvp ") if error.startswith("execvp ") else f"the sandbox did not start: {error}"

    def close(self, last: Message) -> None:
        """Send the last message to all watchers, and release what the job used."""
        for watcher in self.watchers.values():
            watcher.settimeout(5.0)
            send_message(watcher, last)
            watcher.close()
        if self.listener:
            self.listener.close()
        if self.exit_file >= 0:
            os.close(self.exit_file)
        self.selector.close()


TAIL = 256 * 1024
"""Bytes of the end of a stream that are kept once its cap is reached. They contain the agent's last event."""


class CappedStream:
    """One output stream on disk: its beginning up to a cap, and its end."""

    def __init__(self, name: str, cap: int, secrets: list[str]) -> None:
        self.name = name
        self.cap = cap
        self.redactor = Redactor(secrets)
        self.file = os.open(name, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        self.total = self.head_bytes = self.omitted = 0
        self.tail = bytearray()
        self.failed = ""

    def write(self, data: bytes) -> None:
        """Add what the program printed."""
        self.total += len(data)
        self._append(self.redactor.feed(data))

    def _append(self, data: bytes) -> None:
        head = data[: max(0, self.cap - self.head_bytes)]
        self._write_all(head)
        self.head_bytes += len(head)
        if len(head) < len(data):
            self.tail += data[len(head) :]
            if len(self.tail) > 4 * TAIL:
                self._trim_tail()

    def _trim_tail(self) -> None:
        excess = max(0, len(self.tail) - TAIL)
        del self.tail[:excess]
        self.omitted += excess

    def _write_all(self, data: bytes) -> None:
        view = memoryview(data)
        while view and not self.failed:
            try:
                view = view[os.write(self.file, view) :]
            except OSError as error:
                self.failed = error.strerror or str(error)

    def close(self) -> None:
        """Write what the redactor held back, and the end of a stream that exceeded its cap."""
        self._append(self.redactor.flush())
        self._trim_tail()
        if self.omitted:
            self._write_all(f"\n[ralph: {self.omitted} bytes left out]\n".encode())
        self._write_all(bytes(self.tail))
        os.close(self.file)

    def account(self) -> dict[str, Any]:
        """How many bytes came, how many were kept, and the error of a failed write."""
        return {"bytes": self.total, "kept": self.head_bytes + len(self.tail), "error": self.failed}
