"""Finds a worker of the cluster for a turn or for checks, and sends it a work tree. Both need this in the same way."""

import asyncio
import contextlib
import hashlib
import platform
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ralph import __version__
from ralph.core.errors import AgentUnavailableError
from ralph.documents.run_record import PoolSpec, RunRecord
from ralph.git import transfer
from ralph.git.command import Repository, identify_repository, list_own_paths
from ralph.git.history import HEADS, read_head
from ralph.workspace.cluster_client import ClusterClient, ClusterNode
from ralph.workspace.local import SHARED_DIRECTORY

CHUNK = 8 << 20
"""Bytes of a file that are sent at once."""
MAX_LOSSES = 4
"""How often the worker of a turn or of checks may be lost before they are given up."""
_NOTICE_SECONDS = 5.0
_REPLACEMENT_POLL_SECONDS = 2.0
_LABEL_SHARE = 0.001
"""How much of a label a turn uses. Nodes offer 1000 of each, so that labels never limit the number of turns."""


@dataclass(frozen=True, kw_only=True)
class TreeOrder:
    """A work tree for another machine. Its git objects are sent separately."""

    record: RunRecord
    project: str
    """Names the run among all runs of all users."""
    repository: str
    """Names the mirror: the first commit of the repository."""
    commit: str
    """The content of the workspace."""
    ref: str
    """The ref that keeps the commit, and then its result."""
    branch: str
    prefix: str
    """The root of the project below the top of the repository; empty if they are the same."""
    tree_name: str
    identity: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class FoundWorker:
    """A worker process that runs."""

    node: str
    place: str
    """The name of the node for the user."""


@dataclass(frozen=True)
class SentTree:
    """The work tree around a directory, as it is sent."""

    record: RunRecord
    root: Path
    """The root of the project on this machine."""
    workspace: Path
    """The directory in the work tree in which turns and checks run."""
    repository: Repository

    @classmethod
    def find(cls, record: RunRecord, root: Path, workspace: Path) -> "SentTree":
        """The work tree around a workspace. Raises UsageError if it cannot be sent."""
        return cls(record, root, workspace, transfer.require_sendable(workspace))

    @property
    def prefix(self) -> Path:
        """The root of the project below the top of the work tree. In a worktree, that is not `root`."""
        depth = len(Path(self.record.directory).parts)
        workspace = self.workspace.resolve()
        root = workspace.parents[depth - 1] if depth else workspace
        return root.relative_to(self.repository.top.resolve())

    @property
    def leaving_out(self) -> tuple[str, ...]:
        """The paths of the work tree that are not part of the work."""
        trees, inside = self.record.tree_settings, self.prefix
        root = self.repository.top / inside
        named = (*trees.copy, *trees.share, SHARED_DIRECTORY)
        own = list_own_paths(self.repository.top, self.root, root, self.workspace)
        return tuple(dict.fromkeys((*own, *((inside / name).as_posix() for name in named))))

    @property
    def repository_name(self) -> str:
        """Names the mirror on workers."""
        return identify_repository(self.repository)[:40]

    @property
    def branch(self) -> str:
        """The branch that is checked out, or a name for the tree of a worker if none is."""
        head = read_head(self.repository.git)
        return head.removeprefix(HEADS) if head.startswith(HEADS) else "work"

    @property
    def identity(self) -> dict[str, str]:
        """Who commits in the repository, by git's settings."""
        return transfer.read_identity(self.repository.git)

    def commit_content(self, message: str) -> str:
        """The commit that has the content of the work tree."""
        return transfer.commit_content(self.repository, self.leaving_out, self.repository.git.resolve_commit(), message)


def name_project(record: RunRecord, run_dir: Path) -> str:
    """Names a run among those of all projects and machines."""
    origin = f"{platform.node()}:{run_dir.resolve()}"
    return f"{record.id}-{hashlib.sha256(origin.encode()).hexdigest()[:8]}"


def list_needs(pool: PoolSpec, names: Iterable[str]) -> dict[str, float]:
    """What a node must offer, by the resources of the pool and the labels under some names."""
    resources = dict(pool.resources)
    needs = {"CPU": resources.pop("cpu", 1.0)}
    if "memory" in resources:
        needs["memory"] = resources.pop("memory") * (1 << 30)
    needs |= resources
    for name in ("*", *names):
        needs |= {f"label:{label}": _LABEL_SHARE for label in pool.labels.get(name, ())}
    return needs


async def place_worker(
    cluster: ClusterClient,
    worker: str,
    needs: Mapping[str, float],
    *,
    run: str,
    node: str = "",
    stopped: asyncio.Event,
    report: Callable[[str], None],
    ends_with_engine: bool = False,
) -> FoundWorker | None:
    """Create a worker, and wait until the cluster has room for it; None if it was stopped before."""
    nodes = await _find_nodes(cluster, needs, stopped, report)
    if not nodes:
        return None
    await cluster.create(worker, needs, node, ends_with_engine=ends_with_engine)
    facts = await _wait_for_worker(cluster, worker, needs, stopped, report)
    if facts is None:
        await cluster.kill(worker)
        return None
    place = next((one.name for one in nodes if one.id == facts["node"]), facts["host"])
    if problem := compare_versions(facts):
        await cluster.kill(worker)
        todo = f"install the same versions there, then `ralph workers check`, then `ralph resume {run}`"
        raise AgentUnavailableError(f"the worker {place} cannot run turns: {problem}", where=place, todo=todo)
    return FoundWorker(facts["node"], place)


async def _find_nodes(
    cluster: ClusterClient, needs: Mapping[str, float], stopped: asyncio.Event, report: Callable[[str], None]
) -> list[ClusterNode]:
    """The nodes, of which one offers enough. After a loss, wait for a replacement. Empty if it was stopped."""
    has_reported = False
    while True:
        nodes = await cluster.list_nodes()
        if any(one.can_run(needs) for one in nodes):
            return nodes
        if not cluster.waits_for_replacement():
            raise _explain_no_node(needs, nodes)
        if not has_reported:
            has_reported = True
            report(f"a worker was lost; waiting for another one that offers {_format_needs(needs)}")
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stopped.wait(), _REPLACEMENT_POLL_SECONDS)
            return []


async def _wait_for_worker(
    cluster: ClusterClient,
    worker: str,
    needs: Mapping[str, float],
    stopped: asyncio.Event,
    report: Callable[[str], None],
) -> dict[str, str] | None:
    """Wait until the cluster has room for a worker; None if it was stopped before."""
    described = asyncio.ensure_future(cluster.call(worker, "describe"))
    stopping = asyncio.ensure_future(stopped.wait())
    has_reported = False
    try:
        while True:
            done, _ = await asyncio.wait(
                [described, stopping], timeout=_NOTICE_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )
            if stopping in done:
                return None
            if described in done:
                return dict(described.result())
            if not has_reported:
                has_reported = True
                report(f"waiting for a free worker that offers {_format_needs(needs)}")
    finally:
        described.cancel()
        stopping.cancel()


async def send_commit(cluster: ClusterClient, worker: str, tree: SentTree, ref: str, commit: str, aside: Path) -> None:
    """Send what a worker lacks of a commit. The ref keeps it here; temporary files are in the directory `aside`."""
    git = tree.repository.git
    offered = await asyncio.to_thread(transfer.list_offered, git, commit)
    known = await cluster.call(worker, "find_known", tree.repository_name, offered)
    git.run("update-ref", ref, commit)
    with tempfile.TemporaryDirectory(dir=aside) as place:
        bundle = Path(place) / "bundle"
        if await asyncio.to_thread(transfer.write_bundle, git, bundle, ref, commit, known):
            with bundle.open("rb") as file:
                while data := file.read(CHUNK):
                    await cluster.call(worker, "receive", file.tell() - len(data), data)


def compare_versions(facts: Mapping[str, str]) -> str:
    """Why a worker with other versions cannot be used; empty if they are the same."""
    if facts["ralph"] != __version__:
        return f"it has Ralph {facts['ralph']}, and this machine has {__version__}"
    here = platform.python_version()
    if facts["python"].rpartition(".")[0] != here.rpartition(".")[0]:
        return f"it has Python {facts['python']}, and this machine has {here}"
    return ""


def _format_needs(needs: Mapping[str, float]) -> str:
    """What is needed of a worker, for the user."""
    words = []
    for name, amount in needs.items():
        if name == "memory":
            words.append(f"{amount / (1 << 30):g} GiB of memory")
        elif name == "CPU":
            words.append(f"{amount:g} CPU")
        else:
            words.append(name.replace(":", " "))
    return ", ".join(words)


def _explain_no_node(needs: Mapping[str, float], nodes: list[ClusterNode]) -> AgentUnavailableError:
    offers = "; ".join(f"{node.name}: {_describe_offer(node)}" for node in nodes) or "there is no worker"
    todo = "start one with `ralph workers start --join ADDRESS`; `ralph workers` lists what each offers"
    return AgentUnavailableError(f"no worker offers {_format_needs(needs)} ({offers})", where="the cluster", todo=todo)


def _describe_offer(node: ClusterNode) -> str:
    words = [f"{node.offers.get('CPU', 0):g} CPU"]
    words += [f"agent {name}" for name in node.agents]
    words += [f"label {name}" for name in node.labels]
    return ", ".join(words)
