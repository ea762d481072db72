"""The keeper of one job: starts its program, holds its limits, and lets no process outlive it.

It is the subreaper of its job, so that whatever an agent starts, detached or with a clean environment, becomes its child
when orphaned, and is found and ended without guessing whose it was. The job's directory gets `pid` (before the program
starts), `sock` (while it runs, for engines that come later), `stdout`, `stderr` and at last `exit`.
"""

import contextlib
import json
import os
import select
import selectors
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from typing import Any

from ralph.supervisor.capped_output import Capped
from ralph.supervisor.processes import become_subreaper, descendants, signal_all
from ralph.supervisor.wire import Message, drain, first_message, listen, say, wake_on_signals

GIVE_UP = 10.0
"""How long unkillable processes are waited for (they are in the kernel's hands) before they are reported."""
LONGEST_NAP = 3600.0
"""Seconds that are slept at once, for the kernel takes no longer ones."""
EXIT_ROOM = 4096
"""Room set aside for the exit record when the job starts, so that a full disk cannot swallow it."""


def serve_jobs(jobs: socket.socket, keeper_alive: int, tell: Callable[[bytes], object]) -> int:
    """Keep one job after the other, as long as the keeper of the run lives and nothing of a job is left over."""
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
        tell(b"b")
        spec = first_message(connection)
        if spec and not _keep(spec, connection, wakeup, tell):
            return 1
        connection.close()
        if not spec:
            tell(b"i")


def _keep(spec: Message, connection: socket.socket, wakeup: int, tell: Callable[[bytes], object]) -> bool:
    """Keep a job to its end; whether nothing of it is left."""
    drain(wakeup)
    job = Job(spec, connection, wakeup)
    is_free = False
    last: Message
    try:
        last = {"ev": "ended", "exit": job.keep()}
        is_free = job.childless
    except FileExistsError:
        last, is_free = {"ev": "running"}, True
    except BaseException as error:  # noqa: BLE001 - whatever happens here must reach the engine
        last = {"ev": "broken", "error": str(error), "errno": getattr(error, "errno", None)}
    if is_free:
        # Before the engine hears of the end: it may leave at once, and the keeper must know that no job is left.
        tell(b"i")
    job.close(last)
    return is_free


class Job:
    """One program under supervision, from its start until nothing of it is left."""

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
        self.reaped = False
        self.childless = False
        self.stage_ends: float | None = None
        self.killing_since: float | None = None
        self.announced = 0.0
        self.unannounced = False

    def keep(self) -> Message:
        """Start the program, hold its limits, and write `exit` when its whole tree is gone; what is written there."""
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
            os.write(self.exit_file, b" " * EXIT_ROOM)
        self.started_at = time.time()
        self.started = self.last_output = time.monotonic()
        self._start()
        while not self._over():
            for key, _ in self.selector.select(self._patience()):
                key.data(key.fileobj)
            self._hold_limits()
        return self._finish()

    def _start(self) -> None:
        secrets, cap = self.spec.get("secrets", ()), self.spec["cap"]
        stdin = os.open(self.spec.get("stdin") or os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        out_read, out_write = os.pipe()
        self.streams = {out_read: Capped("stdout", cap, secrets)}
        err_write = out_write
        if not self.spec.get("merge"):
            err_read, err_write = os.pipe()
            self.streams[err_read] = Capped("stderr", cap, secrets)
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
            self.reason, self.reaped, self.childless = "exec", True, True
            self.error = f"{error.strerror}: {error.filename or self.spec['argv'][0]}"
        for ours in {stdin, out_write, err_write}:
            os.close(ours)
        for stream in self.streams:
            os.set_blocking(stream, False)
            self.selector.register(stream, selectors.EVENT_READ, self._on_output)
        self._tell({"ev": "started", "pid": self.agent})

    def _over(self) -> bool:
        if self.killing_since is not None and time.monotonic() - self.killing_since > GIVE_UP:
            return True
        return self.reaped and self.childless and not self.streams

    def _patience(self) -> float | None:
        """Seconds until the next thing that time alone brings about."""
        now = time.monotonic()
        moments = [self.stage_ends]
        if self.stage_ends is None and self.reason == "exit":
            moments += [
                self.last_output + idle if (idle := self.spec.get("idle")) else None,
                self.started + wall if (wall := self.spec.get("wall")) else None,
            ]
        if self.unannounced:
            moments.append(self.announced + 0.1)
        known = [moment for moment in moments if moment is not None]
        return min(max(0.0, min(known) - now), LONGEST_NAP) if known else None

    def _hold_limits(self) -> None:
        now = time.monotonic()
        if self.unannounced and now - self.announced >= 0.1:
            self.announced, self.unannounced = now, False
            self._tell({"ev": "output"})
        if self.stage_ends is not None:
            if now >= self.stage_ends and not self.childless:
                self.killing_since = self.killing_since or now
                self.stage_ends = now + 0.05
                self.ended_by_us = max(self.ended_by_us, signal_all(signal.SIGKILL))
            return
        wall, idle = self.spec.get("wall"), self.spec.get("idle")
        if wall and now - self.started >= wall:
            self._end("wall")
        elif idle and now - self.last_output >= idle:
            self._end("idle")

    def _end(self, reason: str) -> None:
        """Ask the whole tree to go; what is left after the grace time is killed."""
        if self.stage_ends is not None:
            return
        if not self.reaped:
            self.reason = reason
        self.stage_ends = time.monotonic() + self.spec.get("grace", 5.0)
        found = signal_all(signal.SIGTERM)
        self.ended_by_us = found if self.reaped else 0

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
            self.unannounced = True
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
                self.childless = True
                self._drain_streams()
                return
            if pid == 0:
                break
            if pid == self.agent:
                self.reaped = True
                self.code = os.waitstatus_to_exitcode(status)
        if self.reaped:
            self._end("exit")

    def _drain_streams(self) -> None:
        """Nothing of the job is left: what its pipes hold is all there will be, whoever else kept them open."""
        for stream in list(self.streams):
            with contextlib.suppress(BlockingIOError):
                while data := os.read(stream, 1 << 20):
                    self.streams[stream].write(data)
            self._close_stream(stream)

    def _on_connect(self, listener: socket.socket) -> None:
        connection, _ = listener.accept()
        connection.setblocking(False)
        self.watchers[connection.fileno()] = connection
        self.selector.register(connection, selectors.EVENT_READ, self._on_message)
        say(connection, {"ev": "started", "pid": self.agent})

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
            connection.close()
            return
        for line in data.splitlines():
            with contextlib.suppress(ValueError, RecursionError):
                message = json.loads(line)
                if isinstance(message, dict) and message.get("op") == "stop":
                    self._end(str(message.get("reason", "stopped")))

    def _tell(self, message: Message) -> None:
        for watcher in self.watchers.values():
            say(watcher, message)

    def _finish(self) -> Message:
        for stream in list(self.streams):
            self._close_stream(stream)
        alive = 0 if self.childless else len(descendants(os.getpid()))
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

    def close(self, last: Message) -> None:
        """Say a last word to who watches, and give back what the job held, so that the next one starts clean."""
        for watcher in self.watchers.values():
            watcher.settimeout(5.0)
            say(watcher, last)
            watcher.close()
        if self.listener:
            self.listener.close()
        if self.exit_file >= 0:
            os.close(self.exit_file)
        self.selector.close()
