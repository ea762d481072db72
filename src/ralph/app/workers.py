"""The workers of a cluster: list them, prove what each can do, and start or stop those of this machine.

`start_worker` wraps `ray start`, and starts a node again that ended (`cluster_node`). Everything that it starts carries a mark
in its environment, by which `stop_workers` ends it and nothing else.
"""

import asyncio
import json
import os
import platform
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

from ralph import __version__
from ralph.agents.registry import installed_agents
from ralph.app import cluster_node
from ralph.app.cluster_worker import HOME_VARIABLE, WORKER_MARK
from ralph.app.run_options import choose_pool
from ralph.app.sandbox import find_asked_level
from ralph.core.errors import AgentUnavailableError, RalphError, UsageError
from ralph.store.files import read_limited, write_atomic
from ralph.store.user_state import ensure_state_directory, state_directory
from ralph.supervisor.processes import end_marked, find_marked
from ralph.workspace.cluster_client import ClusterClient, ClusterLost, WorkerGone, require_ray
from ralph.workspace.cluster_client import ClusterNode as ClusterNode  # interfaces show them

T = TypeVar("T")
PORT = 6379
_LABEL_AMOUNT = 1000
"""How much of a label a node offers. A turn uses a thousandth of one, so labels never limit the number of turns."""
_AGENT_TURNS = 4
"""How many turns of an agent run on a machine at once, unless the user says otherwise."""
_STORE_BYTES = 100 << 20
"""Memory for Ray's object store. Ralph only passes small messages through it."""
_START_SECONDS = 120.0
_CHECK_SECONDS = 120.0


@dataclass(frozen=True)
class WorkerOptions:
    """What a worker on this machine offers, and which cluster it belongs to."""

    join: str = ""
    """The address of the head; empty to start a head."""
    host: str = ""
    """The address of this machine for the others; empty if Ray finds it."""
    port: int = PORT
    name: str = ""
    labels: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    """`NAME` or `NAME=TURNS`; empty for all that are installed."""
    cpus: float | None = None
    home: str = ""


@dataclass(frozen=True)
class LocalWorker:
    """A worker that was started on this machine."""

    name: str
    address: str
    """Of the head of the cluster."""
    mark: str
    is_head: bool
    log: str


@dataclass(frozen=True)
class WorkerProof:
    """What a worker was seen to do."""

    node: ClusterNode
    problems: Mapping[str, str]
    """What does not work, with the reason."""
    sandbox: str = ""
    ralph: str = ""
    python: str = ""

    @property
    def ok(self) -> bool:
        """Whether turns can run there."""
        return not self.problems


def list_workers(pool: str | None = None) -> list[ClusterNode]:
    """The nodes of the cluster."""
    return asyncio.run(_with_cluster(pool, ClusterClient.list_nodes))


def check_workers(pool: str | None = None) -> list[WorkerProof]:
    """Prove of each node that turns can run there."""

    async def check(cluster: ClusterClient) -> list[WorkerProof]:
        nodes = [node for node in await cluster.list_nodes() if node.offers.get("CPU")]
        return list(await asyncio.gather(*(_check_node(cluster, node) for node in nodes)))

    return asyncio.run(_with_cluster(pool, check))


async def _with_cluster(pool: str | None, work: Callable[[ClusterClient], Awaitable[T]]) -> T:
    require_ray()
    cluster = ClusterClient(choose_pool(pool or "ray"), ensure_state_directory() / "cluster.log")
    try:
        return await work(cluster)
    except ClusterLost:
        raise AgentUnavailableError("the connection to the cluster was lost", where=cluster.pool.address) from None
    finally:
        await cluster.close()


async def _check_node(cluster: ClusterClient, node: ClusterNode) -> WorkerProof:
    """Start a worker on a node, and let it try everything that a turn needs."""
    worker = f"check/{node.id[:8]}/{os.urandom(4).hex()}"
    try:
        async with asyncio.timeout(_CHECK_SECONDS):
            await cluster.create(worker, {"CPU": 0.0}, node.id)
            facts = await cluster.call(worker, "describe")
            tried = await cluster.call(worker, "check", list(node.agents), find_asked_level(None))
        await cluster.kill(worker)
    except (WorkerGone, AgentUnavailableError, TimeoutError) as error:
        what = str(error) or "it does not answer"
        return WorkerProof(node, {"ralph": f"Ralph does not start there: {what}. Install ralph-engine[ray] there"})
    level = tried.pop("sandbox_level", "")
    problems = {name: why for name, why in tried.items() if why}
    if facts["ralph"] != __version__:
        problems["ralph"] = f"it has Ralph {facts['ralph']}, and this machine has {__version__}"
    here = platform.python_version()
    if facts["python"].rpartition(".")[0] != here.rpartition(".")[0]:
        problems["python"] = f"it has Python {facts['python']}, and this machine has {here}"
    return WorkerProof(node, problems, level, facts["ralph"], facts["python"])


def start_worker(options: WorkerOptions) -> LocalWorker:
    """Start a node of a cluster on this machine, in the background, and wait until it is ready."""
    require_ray()
    name = options.name or socket.gethostname()
    if any(worker.name == name for worker in list_local_workers()):
        todo = "stop it with `ralph workers stop`, or name the new one with `--name`"
        raise UsageError(f"the worker {name} is already running on this machine", todo=todo)
    home = ensure_state_directory() / "workers"
    home.mkdir(exist_ok=True, mode=0o700)
    mark = os.urandom(8).hex()
    log = home / f"{name}.log"
    environment = {**os.environ, WORKER_MARK: mark, "RAY_USAGE_STATS_ENABLED": "0"}
    if options.home:
        environment[HOME_VARIABLE] = str(Path(options.home).resolve())
    # Each write goes to the end of the log, also those of nodes that are started later.
    log.unlink(missing_ok=True)
    with log.open("ab") as out:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", cluster_node.__name__, str(log), *_build_command(options, name)],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env=environment,
            start_new_session=True,
        )
    address = options.join or f"{options.host or '127.0.0.1'}:{options.port}"
    try:
        address = _wait_until_ready(process, log, options)
    except RalphError:
        end_marked(WORKER_MARK, mark)
        process.wait()
        raise
    # It outlives this process on purpose. This prevents a ResourceWarning.
    process.returncode = 0
    worker = LocalWorker(name=name, address=address, mark=mark, is_head=not options.join, log=str(log))
    write_atomic(home / f"{name}.json", json.dumps(asdict(worker)).encode())
    return worker


def _build_command(options: WorkerOptions, name: str) -> list[str]:
    """The command line of `ray start`. It stays in the foreground, so that its end ends the node."""
    resources: dict[str, float] = {f"name:{name}": 1}
    resources |= {f"label:{label}": _LABEL_AMOUNT for label in options.labels}
    resources |= {f"agent:{agent}": turns for agent, turns in _list_agents(options.agents).items()}
    where = [f"--address={options.join}"] if options.join else ["--head", f"--port={options.port}"]
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", *where, "--block", "--disable-usage-stats"]
    command += [f"--resources={json.dumps(resources)}", f"--object-store-memory={_STORE_BYTES}"]
    if not options.join:
        command += ["--include-dashboard=false"]
    if options.host:
        command += [f"--node-ip-address={options.host}"]
    if options.cpus is not None:
        command += [f"--num-cpus={options.cpus:g}"]
    return command


def _list_agents(named: Sequence[str]) -> dict[str, int]:
    """How many turns of each agent run here at once."""
    if not named:
        return {name: _AGENT_TURNS for name, _ in installed_agents()}
    found = {}
    for text in named:
        name, _, turns = text.partition("=")
        if turns and not turns.isdigit():
            raise UsageError(f"--agent {text} is invalid", todo="write it like `--agent claude=2`")
        found[name] = int(turns) if turns else _AGENT_TURNS
    return found


def _wait_until_ready(process: subprocess.Popen[bytes], log: Path, options: WorkerOptions) -> str:
    """Wait until Ray says that the node runs; return the address of the head."""
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        text = log.read_text(errors="replace")
        if cluster_node.READY in text:
            if options.join or options.host:
                return options.join or f"{options.host}:{options.port}"
            words = text.replace("'", " ").replace('"', " ").split()
            found = next((word for word in words if word.endswith(f":{options.port}")), f"127.0.0.1:{options.port}")
            return found.removeprefix("--address=")
        if process.poll() is not None:
            last = [line for line in text.strip().splitlines() if line.strip()][-3:]
            what = f"Ray did not start: {' '.join(last)[:500]}"
            raise RalphError(what, where=str(log), todo="read that file; is the port free, and the head reachable?")
        time.sleep(0.2)
    raise RalphError("Ray did not start in time", where=str(log), todo="read that file, then try again")


def list_local_workers() -> list[LocalWorker]:
    """The workers that were started on this machine and still run."""
    found = []
    for path in sorted((state_directory() / "workers").glob("*.json")):
        worker = LocalWorker(**json.loads(read_limited(path)))
        if find_marked(WORKER_MARK, worker.mark):
            found.append(worker)
        else:
            path.unlink(missing_ok=True)
    return found


def stop_workers(name: str = "") -> list[LocalWorker]:
    """End the workers that `start_worker` started on this machine, with everything that they started; the head last."""
    chosen = [worker for worker in list_local_workers() if name in ("", worker.name)]
    if name and not chosen:
        raise UsageError(f"no worker {name} was started on this machine", todo="`ralph workers` lists all workers")
    for worker in sorted(chosen, key=lambda one: one.is_head):
        end_marked(WORKER_MARK, worker.mark, grace=10.0)
        (state_directory() / "workers" / f"{worker.name}.json").unlink(missing_ok=True)
    return chosen
