"""The keeper of a run: a small process that outlives the engine and runs the run's jobs. A job is a turn or a check.

It uses only the standard library, has one thread, and runs in its own session. A job keeper is a fork of this process. It
waits for jobs on `jobs.sock` and serves one after the other, so that most jobs need no new fork. A connection to
`keeper.sock` keeps the keeper alive. It exits when no engine is connected and no job is left.
"""

import contextlib
import os
import selectors
import signal
import socket
import sys
import time
from typing import NoReturn

from ralph.supervisor.job_keeper import drain, is_from_inside, listen, send_message, serve_jobs, wake_on_signals
from ralph.supervisor.processes import become_subreaper, descendants, signal_processes

SWEEP_PAUSE = 0.02


def main() -> None:
    """Serve the run directory given on the command line: `keeper RUN_DIR LIFELINE_FD LOCK_FD`."""
    run_dir, lifeline, lock = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    for inherited in (lifeline, lock):
        if inherited >= 0:
            os.set_inheritable(inherited, False)
    os.chdir(run_dir)
    os.umask(0o077)
    become_subreaper()
    Keeper(lifeline).serve()


class Keeper:
    """Keeps one job keeper free at all times, and ends the processes that a killed one leaves."""

    def __init__(self, lifeline: int) -> None:
        self.engines: dict[int, socket.socket | None] = {lifeline: None}
        self.selector = selectors.DefaultSelector()
        self.wakeup = wake_on_signals(signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        self.listener = listen("keeper.sock")
        self.jobs = listen("jobs.sock")
        self.alive_read, self.alive_write = os.pipe()
        self.status_read, self.status_write = os.pipe()
        os.set_blocking(self.status_read, False)
        self.workers: dict[int, bool] = {}
        """The job keepers by pid, and whether each has a job."""
        self.sweeping = False
        """Whether a killed job keeper may have left processes that still run."""
        self.selector.register(lifeline, selectors.EVENT_READ, self._on_engine)
        self.selector.register(self.wakeup, selectors.EVENT_READ, self._on_signal)
        self.selector.register(self.listener, selectors.EVENT_READ, self._on_connect)
        self.selector.register(self.status_read, selectors.EVENT_READ, self._on_status)

    def serve(self) -> None:
        """Serve until no engine is connected and no job is left."""
        self._ensure_free_worker()
        os.write(next(iter(self.engines)), b"ready\n")
        while self.engines or any(self.workers.values()):
            for key, _ in self.selector.select(SWEEP_PAUSE if self.sweeping else None):
                key.data(key.fd)
            if self.sweeping:
                self.sweeping = self._sweep()
        self._end_workers()
        for name in ("jobs.sock", "keeper.sock"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)

    def _end_workers(self) -> None:
        """End the free job keepers and wait for them: a run that is over must have no process."""
        os.close(self.alive_write)
        with contextlib.suppress(ChildProcessError):
            while True:
                if self.sweeping:
                    self._sweep()
                    time.sleep(SWEEP_PAUSE)
                ended = os.waitpid(-1, os.WNOHANG if self.sweeping else 0)[0]
                self.sweeping = self.sweeping or ended not in self.workers

    def _ensure_free_worker(self) -> None:
        if not all(self.workers.values()):
            return
        pid = os.fork()
        if pid == 0:
            self._become_job_keeper()
        self.workers[pid] = False

    def _become_job_keeper(self) -> NoReturn:
        code = 1
        try:
            for engine, connection in self.engines.items():
                if connection:
                    connection.close()
                else:
                    os.close(engine)
            for descriptor in (self.listener.detach(), self.alive_write, self.status_read):
                os.close(descriptor)
            pid = os.getpid().to_bytes(4, "big")
            code = serve_jobs(self.jobs, self.alive_read, lambda status: os.write(self.status_write, status + pid))
        finally:
            os._exit(code)

    def _on_status(self, _: int = -1) -> None:
        """A job keeper became busy (b) or idle (i). Each report is that letter and four bytes for its pid."""
        reports = drain(self.status_read)
        for start in range(0, len(reports), 5):
            pid = int.from_bytes(reports[start + 1 : start + 5], "big")
            if pid in self.workers:
                self.workers[pid] = reports[start : start + 1] == b"b"
        self._ensure_free_worker()

    def _on_connect(self, _: int) -> None:
        connection, _address = self.listener.accept()
        if is_from_inside(connection, os.getpid()):
            connection.close()
            return
        self.engines[connection.fileno()] = connection
        self.selector.register(connection, selectors.EVENT_READ, self._on_engine)
        send_message(connection, {"ev": "attached"})

    def _on_engine(self, engine: int) -> None:
        """An engine disconnects. It gets `staying` if jobs are left; else its connection closes when this process exits."""
        self.selector.unregister(engine)
        if connection := self.engines.pop(engine):
            connection.detach()
        self._on_status()
        if self.engines or any(self.workers.values()):
            with contextlib.suppress(OSError):
                os.write(engine, b"staying\n")
            os.close(engine)

    def _on_signal(self, _: int) -> None:
        if bytes([signal.SIGTERM]) in drain(self.wakeup):
            signal_processes(self.workers, signal.SIGTERM)
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                self._on_end(ended[0])

    def _on_end(self, pid: int) -> None:
        """A process ended that can have left others to this one: a killed job keeper, or one of its orphans."""
        self.sweeping = True
        if self.workers.pop(pid, None) is not None:
            self._ensure_free_worker()

    def _sweep(self) -> bool:
        """Kill the orphans of a killed job keeper; whether there were any."""
        orphans = descendants(os.getpid(), skip=self.workers)
        signal_processes(orphans, signal.SIGKILL)
        return bool(orphans)


if __name__ == "__main__":
    main()
