"""The network between the engine and a worker fails, for a moment and for good: each is in a network namespace of its own."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from engines import git, write

from ralph.app.cluster_worker import WORKER_MARK
from ralph.app.workers import list_local_workers, stop_workers
from ralph.supervisor.processes import TURN_MARK, find_marked

pytest.importorskip("ray")
from clusters import eventually, set_environment

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cluster")]
RALPH = (sys.executable, "-P", "-m", "ralph")
PORT = 6379
HERE, THERE = "10.251.77.1", "10.251.77.2"
"""Addresses that exist only in the two namespaces."""
IMPATIENT = {
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "2000",
    "RAY_health_check_failure_threshold": "4",
    "RAY_gcs_rpc_server_reconnect_timeout_s": "15",
}
"""Ray gives up on a node after about ten seconds. By default that takes about a minute."""
SLOW = """turns:
  - steps:
      - run: "echo start >> starts.txt; while [ ! -e {go} ]; do sleep 0.1; done; echo made > made.txt"
"""


@dataclass
class TwoMachines:
    """Two namespaces with one cable between them: the user's machine with the head, and the machine `far`."""

    home: Path
    near: str
    far: str

    @property
    def address(self) -> str:
        return f"{HERE}:{PORT}"

    @property
    def go(self) -> Path:
        return self.home / "go"

    @property
    def root(self) -> Path:
        return self.home / "repo"

    def start_worker(self, where: str, name: str, *options: str) -> None:
        host = HERE if where == self.near else THERE
        words = ("workers", "start", "--host", host, "--name", name, "--agent", "none=0", *options)
        run_in(where, *RALPH, *words, "--home", str(self.home / name))

    def set_cable(self, state: str) -> None:
        run("ip", "-n", self.near, "link", "set", "cable0", state)

    def start_loop(self) -> "subprocess.Popen[bytes]":
        write(self.root, {"a.txt": "one\n", "play.yml": SLOW.format(go=self.go)})
        for words in ("init -q -b main", "add -A", "commit -q -m first"):
            git(self.root, *words.split())
        command = ("loop", "make it", "--until", "`test -e made.txt` passes", "--scenario", "play.yml", "--yes")
        prefix = ("ip", "netns", "exec", self.near)
        with (self.home / "out").open("wb") as out:
            return subprocess.Popen(
                [*prefix, *RALPH, *command, "--pool", self.address], cwd=self.root, stdout=out, stderr=out
            )

    def find_run(self) -> str:
        return next(path.name for path in (self.root / ".ralph" / "runs").glob("*"))

    def find_agents(self) -> list[int]:
        runs = list((self.root / ".ralph" / "runs").glob("*"))
        return find_marked(TURN_MARK, f"{runs[0].name}/") if runs else []

    def read_output(self) -> str:
        return " ".join((self.home / "out").read_text().split())

    def read_turns(self) -> list[dict[str, object]]:
        shown = run(*RALPH, "status", self.find_run(), "--json", cwd=self.root)
        turns: list[dict[str, object]] = json.loads(shown)["view"]["turns"]
        return turns


def run(*words: str, cwd: Path | None = None) -> str:
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout


def run_in(namespace: str, *words: str) -> str:
    return run("ip", "netns", "exec", namespace, *words)


def can_make_namespaces() -> bool:
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return False
    name = f"ralph-try-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True).returncode == 0
    subprocess.run(["ip", "netns", "del", name], capture_output=True)
    return made


@contextlib.contextmanager
def connect_namespaces(near: str, far: str) -> Iterator[None]:
    made = []
    try:
        for name in (near, far):
            run("ip", "netns", "add", name)
            made.append(name)
            run("ip", "-n", name, "link", "set", "lo", "up")
        run(*f"ip link add cable0 netns {near} type veth peer name cable1 netns {far}".split())
        for name, device, address in ((near, "cable0", HERE), (far, "cable1", THERE)):
            run("ip", "-n", name, "addr", "add", f"{address}/24", "dev", device)
            run("ip", "-n", name, "link", "set", device, "up")
        yield
    finally:
        for name in made:
            subprocess.run(["ip", "netns", "del", name], check=False)


@pytest.fixture
def machines() -> Iterator[TwoMachines]:
    if not can_make_namespaces():
        pytest.skip("network namespaces need root and the program ip (iproute2)")
    home = Path(tempfile.mkdtemp(prefix="rn", dir="/tmp"))
    near, far = f"ralph-near-{os.getpid()}", f"ralph-far-{os.getpid()}"
    variables = {"XDG_STATE_HOME": str(home / "state"), "RAY_TMPDIR": str(home), **IMPATIENT}
    with set_environment(**variables), connect_namespaces(near, far):
        machines = TwoMachines(home, near, far)
        machines.root.mkdir()
        try:
            machines.start_worker(near, "head", "--head", "--port", str(PORT), "--cpus", "0")
            machines.start_worker(far, "far", "--join", machines.address, "--cpus", "2")
            yield machines
        finally:
            marks = [worker.mark for worker in list_local_workers()]
            stop_workers()
            assert not [pid for mark in marks for pid in find_marked(WORKER_MARK, mark)]
            shutil.rmtree(home, ignore_errors=True)


def test_a_short_network_failure_does_not_disturb_a_turn(machines: TwoMachines) -> None:
    engine = machines.start_loop()
    try:
        eventually(machines.find_agents)
        machines.set_cable("down")
        time.sleep(3)
        machines.set_cable("up")
        machines.go.touch()
        assert engine.wait(120) == 0, machines.read_output()
    finally:
        end(engine)
    assert [(turn["place"], turn["end"]) for turn in machines.read_turns()] == [("far", "finished")]
    assert (machines.root / "starts.txt").read_text() == "start\n"
    assert not machines.find_agents()


def test_a_lasting_network_failure_moves_the_work_and_drops_the_late_result(machines: TwoMachines) -> None:
    engine = machines.start_loop()
    try:
        eventually(machines.find_agents)
        cut_off = machines.find_agents()
        machines.set_cable("down")
        eventually(lambda: "lost with its worker on far" in machines.read_output())
        machines.start_worker(machines.near, "near", "--join", machines.address, "--cpus", "2")
        assert set(cut_off) & set(machines.find_agents()), "the agent on the other machine should still be at work"
        # The network comes back while both agents are at work, and both finish.
        machines.set_cable("up")
        eventually(lambda: set(machines.find_agents()) - set(cut_off))
        machines.go.touch()
        assert engine.wait(120) == 0, machines.read_output()
    finally:
        end(engine)
    turns = machines.read_turns()
    assert [(turn["place"], turn["end"]) for turn in turns] == [("far", "interrupted"), ("near", "finished")]
    assert (machines.root / "starts.txt").read_text() == "start\n"
    logs = run(*RALPH, "logs", machines.find_run(), cwd=machines.root)
    assert "lost with its worker on far" in " ".join(logs.split())
    assert "a worker was lost; waiting for another one that offers 1 CPU" in machines.read_output()
    eventually(lambda: not machines.find_agents())


def end(engine: "subprocess.Popen[bytes]") -> None:
    if engine.poll() is None:
        engine.send_signal(signal.SIGKILL)
        engine.wait()
