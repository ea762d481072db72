"""A real Ray cluster on this machine for tests: a head without CPUs, and workers with homes of their own."""

import contextlib
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ralph.app.cluster_worker import WORKER_MARK
from ralph.app.workers import LocalWorker, WorkerOptions, start_worker, stop_workers
from ralph.supervisor.processes import end_marked, find_marked


def find_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def eventually(condition: Callable[[], object], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.1)


@dataclass
class TestCluster:
    """A cluster that a test can take apart."""

    __test__ = False
    home: Path
    port: int
    workers: dict[str, LocalWorker] = field(default_factory=dict)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start_head(self) -> None:
        options = WorkerOptions(host="127.0.0.1", port=self.port, cpus=0, name="head", agents=("none=0",))
        self.workers["head"] = start_worker(options)

    def start(
        self, name: str, *labels: str, cpus: float = 3, agents: tuple[str, ...] = ("none=0",), **environment: str
    ) -> LocalWorker:
        """A worker with a home of its own, as on another machine."""
        options = WorkerOptions(
            join=self.address,
            host="127.0.0.1",
            cpus=cpus,
            name=name,
            labels=labels,
            agents=agents,
            home=str(self.home / name),
        )
        with set_environment(**environment):
            self.workers[name] = start_worker(options)
        return self.workers[name]

    def find_processes(self, name: str) -> list[int]:
        return find_marked(WORKER_MARK, self.workers[name].mark)

    def find_turn_workers(self, name: str) -> list[int]:
        """The processes that run turns on a worker. Ray names them after the class."""
        found = []
        for pid in self.find_processes(name):
            with contextlib.suppress(OSError):
                if b"TurnWorker" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.append(pid)
        return found

    def kill_node(self, name: str) -> None:
        """Kill a node as a power cut does, except for keepers and agents, whose end the keepers must bring about."""
        for pid in self.find_processes(name):
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes()
                if b"raylet" in words or b"gcs_server" in words or b"ray.scripts" in words or b"ray::" in words:
                    os.kill(pid, 9)

    def kill_head_process(self) -> None:
        """Kill only the process that holds the state of the cluster."""
        for pid in self.find_processes("head"):
            with contextlib.suppress(OSError):
                if b"gcs_server" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]:
                    os.kill(pid, 9)

    def stop(self, name: str) -> None:
        end_marked(WORKER_MARK, self.workers.pop(name).mark, grace=10.0)


@contextlib.contextmanager
def set_environment(**variables: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


@contextlib.contextmanager
def cluster_of(**workers: tuple[str, ...]) -> Iterator[TestCluster]:
    """A cluster with a head and workers of these names and labels. Nothing of it is left afterwards."""
    # A short path: Ray puts Unix sockets below it.
    home = Path(tempfile.mkdtemp(prefix="rc", dir="/tmp"))
    cluster = TestCluster(home, find_free_port())
    with set_environment(XDG_STATE_HOME=str(home / "state"), RAY_TMPDIR=str(home)):
        try:
            cluster.start_head()
            for name, labels in workers.items():
                cluster.start(name, *labels)
            yield cluster
        finally:
            stop_workers()
            for worker in cluster.workers.values():
                end_marked(WORKER_MARK, worker.mark)
                assert not find_marked(WORKER_MARK, worker.mark)
            shutil.rmtree(home, ignore_errors=True)
