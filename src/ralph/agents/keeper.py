"""The keeper: runs the processes of one run, outlives the engine, and lets no process outlive its turn.

Standard library only, single-threaded. `serve` is the keeper of a run: it sits in a session of its own, accepts one request a
connection, and forks a keeper for each job (an agent's turn, or a check), which is cheaper than starting Python each time. Each
job's keeper is the subreaper of its own job, so that whatever an agent starts, detached or with a clean environment, becomes
its child when orphaned, and is found and ended without guessing whose it was.

A job's directory gets `pid` (before the program starts), `sock` (while it runs), `stdout`, `stderr` and at last `exit`.
"""

import contextlib
import ctypes
import errno
import json
import os
import selectors
import signal
import socket
import sys
import time
from typing import Any, NoReturn

from ralph.core.redaction import Redactor

TAIL = 256 * 1024
"""How much of the end of a stream is kept once its cap is reached: the last event of an agent is in it."""
GIVE_UP = 10.0
"""How long unkillable processes are waited for (they are in the kernel's hands) before they are reported."""
EXIT_ROOM = 4096
"""Room set aside for the exit record when the job starts, so that a full disk cannot swallow it."""

Message = dict[str, Any]


def main() -> None:
    """Serve the run directory given on the command line: `keeper RUN_DIR LIFELINE_FD LOCK_FD`."""
    run_dir, lifeline, lock = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    for inherited in (lifeline, lock):
        if inherited >= 0:
            os.set_inheritable(inherited, False)
    os.chdir(run_dir)
    os.umask(0o077)
    for ignored in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(ignored, signal.SIG_IGN)
    serve(lifeline)


def serve(lifeline: int) -> None:
    """Fork a keeper for each job that is asked for, until no engine is attached and no job is left."""
    become_subreaper()
    listener = listen("keeper.sock")
    wakeup = wake_on_signals(signal.SIGCHLD, signal.SIGTERM)
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ, "accept")
    selector.register(wakeup, selectors.EVENT_READ, "signal")
    selector.register(lifeline, selectors.EVENT_READ, "engine")
    attached = {lifeline}
    connections: dict[int, socket.socket] = {}
    jobs: dict[int, str] = {}
    os.write(lifeline, b"ready\n")
    while jobs or attached:
        for key, _ in selector.select():
            if key.data == "accept":
                connection, _ = listener.accept()
                request = first_message(connection)
                if request.get("op") == "start":
                    start_job(request["job"], connection, jobs, [listener, *connections.values()])
                elif request.get("op") == "attach":
                    selector.register(connection, selectors.EVENT_READ, "engine")
                    connections[connection.fileno()] = connection
                    attached.add(connection.fileno())
                    say(connection, {"ev": "attached", "jobs": list(jobs.values())})
                else:
                    connection.close()
            elif key.data == "signal":
                if bytes([signal.SIGTERM]) in drain(wakeup):
                    for pid in jobs:
                        os.kill(pid, signal.SIGTERM)
                reap_jobs(jobs)
            else:
                selector.unregister(key.fileobj)
                attached.discard(key.fd)
                if gone := connections.pop(key.fd, None):
                    gone.close()
                else:
                    os.close(key.fd)
    with contextlib.suppress(FileNotFoundError):
        os.unlink("keeper.sock")


def start_job(spec: Message, connection: socket.socket, jobs: dict[int, str], close: list[socket.socket]) -> None:
    """Fork the keeper of one job, unless that job is under way already."""
    if spec["dir"] in jobs.values():
        say(connection, {"ev": "running"})
        connection.close()
        return
    pid = os.fork()
    if pid == 0:
        keep_and_exit(spec, connection, close)
    jobs[pid] = spec["dir"]
    connection.close()


def keep_and_exit(spec: Message, connection: socket.socket, close: list[socket.socket]) -> NoReturn:
    """The life of a job's keeper, in the forked child."""
    code = 1
    try:
        for unused in close:
            unused.close()
        Job(spec, connection).keep()
        code = 0
    except BaseException as error:  # noqa: BLE001 - whatever happens here must reach the engine, and must not return into `serve`
        say(connection, {"ev": "broken", "error": f"{type(error).__name__}: {error}"})
    finally:
        with contextlib.suppress(OSError):
            signal_all(signal.SIGKILL)
        os._exit(code)


def reap_jobs(jobs: dict[int, str]) -> None:
    """Collect ended children; where a job's keeper was killed, end the orphans that it left to us."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        if jobs.pop(pid, None) is not None and status != 0:
            for orphan in descendants(os.getpid(), skip=set(jobs)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(orphan, signal.SIGKILL)


class Job:
    """One program under supervision, from its start until nothing of it is left."""

    def __init__(self, spec: Message, connection: socket.socket) -> None:
        self.spec = spec
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

    def keep(self) -> None:
        """Start the program, hold its limits, and write `exit` when its whole tree is gone."""
        become_subreaper()
        os.chdir(self.spec["dir"])
        listener = listen("sock")
        self.wakeup = wake_on_signals(signal.SIGCHLD, signal.SIGTERM)
        self.selector.register(listener, selectors.EVENT_READ, self._on_connect)
        self.selector.register(self.wakeup, selectors.EVENT_READ, self._on_signal)
        for watcher in self.watchers.values():
            watcher.setblocking(False)
            self.selector.register(watcher, selectors.EVENT_READ, self._on_message)
        self.exit_file = os.open("exit.tmp", os.O_CREAT | os.O_RDWR | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        reserve(self.exit_file)
        self.started_at = time.time()
        self.started = self.last_output = time.monotonic()
        self._start()
        while not self._over():
            for key, _ in self.selector.select(self._patience()):
                key.data(key.fileobj)
            self._hold_limits()
        self._finish()

    def _start(self) -> None:
        write_file("pid", f"{os.getpid()}\n".encode())
        secrets = self.spec.get("secrets", ())
        cap = self.spec["cap"]
        out_read, out_write = os.pipe()
        self.streams = {out_read: Stream("stdout", cap, secrets)}
        err_write = out_write
        if not self.spec.get("merge"):
            err_read, err_write = os.pipe()
            self.streams[err_read] = Stream("stderr", cap, secrets)
        failure_read, failure_write = os.pipe()
        self.agent = os.fork()
        if self.agent == 0:
            run_program(self.spec, out_write, err_write, failure_write)
        for written in {out_write, err_write, failure_write}:
            os.close(written)
        failure = os.read(failure_read, 4096)
        os.close(failure_read)
        for stream in self.streams:
            os.set_blocking(stream, False)
            self.selector.register(stream, selectors.EVENT_READ, self._on_output)
        if failure:
            self.reason, self.error = "exec", failure.decode(errors="replace")
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
        return max(0.0, min(known) - now) if known else None

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
            if b'"stop"' in line:
                self._end(json.loads(line).get("reason", "stopped"))

    def _tell(self, message: Message) -> None:
        for watcher in self.watchers.values():
            say(watcher, message)

    def _finish(self) -> None:
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
        os.fsync(self.exit_file)
        os.rename("exit.tmp", "exit")
        with contextlib.suppress(FileNotFoundError):
            os.unlink("sock")
        for watcher in self.watchers.values():
            watcher.settimeout(5.0)
            say(watcher, {"ev": "ended", "exit": record})


class Stream:
    """One output stream on disk: its beginning up to a cap, and its end."""

    def __init__(self, name: str, cap: int, secrets: list[str]) -> None:
        self.name = name
        self.cap = cap
        self.redactor = Redactor(secrets)
        self.file = os.open(name, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        self.total = self.kept = 0
        self.tail = bytearray()
        self.failed = ""

    def write(self, data: bytes) -> None:
        """Take in what the program printed."""
        self.total += len(data)
        self._keep(self.redactor.feed(data))

    def _keep(self, data: bytes) -> None:
        head = data[: max(0, self.cap - self.kept)]
        self._put(head)
        self.kept += len(head)
        if len(head) < len(data):
            self.tail += data[len(head) :]
            if len(self.tail) > 4 * TAIL:
                self._trim()

    def _trim(self) -> None:
        del self.tail[: max(0, len(self.tail) - TAIL)]

    def _put(self, data: bytes) -> None:
        view = memoryview(data)
        while view and not self.failed:
            try:
                view = view[os.write(self.file, view) :]
            except OSError as error:
                self.failed = error.strerror or str(error)

    def close(self) -> None:
        """Write what was held back, and the end of a stream that grew over its cap."""
        self._keep(self.redactor.flush())
        self._trim()
        left_out = self.total - self.kept - len(self.tail)
        if left_out > 0:
            self._put(f"\n[ralph: {left_out} bytes left out]\n".encode())
        self._put(bytes(self.tail))
        os.close(self.file)

    def account(self) -> Message:
        """What was seen and what was kept."""
        return {"bytes": self.total, "kept": self.kept + len(self.tail), "error": self.failed}


def run_program(spec: Message, out: int, err: int, failure: int) -> NoReturn:
    """Become the program, in the forked child; what hinders it is written to `failure`."""
    try:
        os.setsid()
        stdin = os.open(spec.get("stdin") or os.devnull, os.O_RDONLY)
        for target, source in ((0, stdin), (1, out), (2, err)):
            os.dup2(source, target, inheritable=True)
        for reset in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGCHLD, signal.SIGTERM):
            signal.signal(reset, signal.SIG_DFL)
        os.umask(spec.get("umask", 0o022))
        os.chdir(spec["cwd"])
        os.execvpe(spec["argv"][0], spec["argv"], spec["env"])
    except OSError as error:
        os.write(failure, f"{error.strerror}: {spec['argv'][0]} (in {spec['cwd']})".encode())
    except BaseException as error:  # noqa: BLE001 - the child must never return into the keeper's loop
        os.write(failure, repr(error).encode())
    os._exit(127)


def become_subreaper() -> None:
    """Have orphans of our descendants become our children (Linux); elsewhere the process group must do."""
    if sys.platform == "linux":
        pr_set_child_subreaper = 36
        ctypes.CDLL(None, use_errno=True).prctl(pr_set_child_subreaper, 1, 0, 0, 0)


def listen(path: str) -> socket.socket:
    """A listening Unix socket in the current directory, by a short relative name."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    listener.listen(64)
    return listener


def wake_on_signals(*numbers: signal.Signals) -> int:
    """A descriptor that becomes readable when one of the signals arrives."""
    read, write = os.pipe()
    os.set_blocking(read, False)
    os.set_blocking(write, False)
    for number in numbers:
        signal.signal(number, lambda *_: None)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    return read


def drain(descriptor: int) -> bytes:
    """All that can be read at once."""
    try:
        return os.read(descriptor, 65536)
    except BlockingIOError:
        return b""


def first_message(connection: socket.socket) -> Message:
    """The request that a connection opens with; one that does not come soon is as none."""
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


def say(connection: socket.socket, message: Message) -> None:
    """Send one message; a peer that does not listen is not waited for."""
    with contextlib.suppress(OSError):
        connection.sendall(json.dumps(message).encode() + b"\n")


def write_file(path: str, data: bytes) -> None:
    """Write a small file that need not survive a power cut."""
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
    os.write(descriptor, data)
    os.close(descriptor)


def reserve(descriptor: int) -> None:
    """Set room aside on the disk for the exit record."""
    os.write(descriptor, b" " * EXIT_ROOM)


def signal_all(number: signal.Signals) -> int:
    """Signal every living descendant of this process; how many there were."""
    found = descendants(os.getpid())
    for pid in found:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
    return len(found)


def descendants(root: int, skip: set[int] | None = None) -> list[int]:
    """All living processes below one, except those below `skip`."""
    children: dict[int, list[int]] = {}
    for pid, parent in process_table():
        children.setdefault(parent, []).append(pid)
    found: list[int] = []
    unseen = [root]
    while unseen:
        for child in children.get(unseen.pop(), ()):
            if child not in (skip or ()):
                found.append(child)
                unseen.append(child)
    return found


def process_table() -> list[tuple[int, int]]:
    """Every process that is not a zombie, with its parent."""
    if not os.path.isdir("/proc/self"):
        lines = os.popen("ps -axo pid=,ppid=,stat=").read().splitlines()  # noqa: S605 - a constant
        rows = [line.split() for line in lines]
        return [(int(row[0]), int(row[1])) for row in rows if len(row) > 2 and not row[2].startswith("Z")]
    table = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                state, parent = file.read().rpartition(b")")[2].split()[:2]
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ESRCH):
                continue
            raise
        if state not in (b"Z", b"X"):
            table.append((int(name), int(parent)))
    return table


if __name__ == "__main__":
    main()
