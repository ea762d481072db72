"""The keeper of a run: a small process that outlives the engine and runs the run's jobs, an agent's turn or a check each.

Standard library only, single-threaded, in a session of its own. Each job has a keeper of its own, forked from this one: a
few of them wait for jobs to come in by `jobs.sock`, and serve one after the other, so that a job costs no start of Python
and no fork. Who connects to `keeper.sock` keeps the keeper alive; when no engine is connected and no job is left, it goes.
"""

import contextlib
import os
import selectors
import signal
import socket
import sys
import time
from typing import NoReturn

from ralph.supervisor.job_keeper import serve_jobs
from ralph.supervisor.processes import become_subreaper, descendants, send
from ralph.supervisor.wire import drain, listen, say, wake_on_signals

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
    """Sees to it that a job keeper is always free, and ends what a dead one leaves."""

    def __init__(self, lifeline: int) -> None:
        self.engines: dict[int, socket.socket | None] = {lifeline: None}
        self.selector = selectors.DefaultSelector()
        self.wakeup = wake_on_signals(signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        self.listener = listen("keeper.sock")
        self.jobs = listen("jobs.sock")
        self.alive_read, self.alive_write = os.pipe()
        self.told_read, self.told_write = os.pipe()
        os.set_blocking(self.told_read, False)
        self.workers: dict[int, bool] = {}
        """The job keepers, and whether each has a job."""
        self.sweeping = False
        """Whether a job keeper was killed, and what it left may not all be gone."""
        self.selector.register(lifeline, selectors.EVENT_READ, self._on_engine)
        self.selector.register(self.wakeup, selectors.EVENT_READ, self._on_signal)
        self.selector.register(self.listener, selectors.EVENT_READ, self._on_connect)
        self.selector.register(self.told_read, selectors.EVENT_READ, self._on_word)

    def serve(self) -> None:
        """Serve until no engine is connected and no job is left."""
        self._have_one_free()
        os.write(next(iter(self.engines)), b"ready\n")
        while self.engines or any(self.workers.values()):
            for key, _ in self.selector.select(SWEEP_PAUSE if self.sweeping else None):
                key.data(key.fd)
            if self.sweeping:
                self.sweeping = self._sweep()
        self._dismiss()
        for name in ("jobs.sock", "keeper.sock"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)

    def _dismiss(self) -> None:
        """Let the free job keepers go, and wait until all have: nobody may find a process of a run that is over."""
        os.close(self.alive_write)
        with contextlib.suppress(ChildProcessError):
            while True:
                if self.sweeping:
                    self._sweep()
                    time.sleep(SWEEP_PAUSE)
                ended = os.waitpid(-1, os.WNOHANG if self.sweeping else 0)[0]
                self.sweeping = self.sweeping or ended not in self.workers

    def _have_one_free(self) -> None:
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
                connection.close() if connection else os.close(engine)
            for ours in (self.listener.detach(), self.alive_write, self.told_read):
                os.close(ours)
            me = os.getpid()
            code = serve_jobs(
                self.jobs, self.alive_read, lambda word: os.write(self.told_write, word + me.to_bytes(4, "big"))
            )
        finally:
            os._exit(code)

    def _on_word(self, _: int = -1) -> None:
        """A job keeper took a job (b), or has become free (i)."""
        words = drain(self.told_read)
        for at in range(0, len(words), 5):
            pid = int.from_bytes(words[at + 1 : at + 5], "big")
            if pid in self.workers:
                self.workers[pid] = words[at : at + 1] == b"b"
        self._have_one_free()

    def _on_connect(self, _: int) -> None:
        connection, _address = self.listener.accept()
        self.engines[connection.fileno()] = connection
        self.selector.register(connection, selectors.EVENT_READ, self._on_engine)
        say(connection, {"ev": "attached"})

    def _on_engine(self, engine: int) -> None:
        """An engine has nothing to say here; what comes is its end. It is told that we stay, or sees when we are gone."""
        self.selector.unregister(engine)
        if connection := self.engines.pop(engine):
            connection.detach()
        self._on_word()
        if self.engines or any(self.workers.values()):
            with contextlib.suppress(OSError):
                os.write(engine, b"staying\n")
            os.close(engine)

    def _on_signal(self, _: int) -> None:
        if bytes([signal.SIGTERM]) in drain(self.wakeup):
            send(self.workers, signal.SIGTERM)
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                self._on_end(ended[0])

    def _on_end(self, pid: int) -> None:
        """Whatever ends here may have left processes to us: a killed job keeper, and each of those that it left."""
        self.sweeping = True
        if self.workers.pop(pid, None) is not None:
            self._have_one_free()

    def _sweep(self) -> bool:
        """End the orphans that a killed job keeper left to us; whether there were any."""
        orphans = descendants(os.getpid(), skip=self.workers)
        send(orphans, signal.SIGKILL)
        return bool(orphans)


if __name__ == "__main__":
    main()
