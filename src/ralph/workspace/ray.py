"""Runs turns on a Ray cluster: one worker process for each turn, found again by its name after the engine restarts.

The workspace travels by git, everything else by value. What a turn changed is written into the engine's own worktree, so that
checks, snapshots and merges work as for a local turn. Files and git stay authoritative: if the cluster is lost, a turn is
interrupted and its work is tried again. Only the result of the turn that the journal has open is ever applied.

`remote.json` in the directory of a turn says where the turn runs. From the moment it exists, the turn may have started.
"""

import asyncio
import contextlib
import hashlib
import json
import pickle
import platform
import shutil
import tarfile
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from ralph import __version__
from ralph.core.codec import dump, from_json, from_plain, to_json
from ralph.core.errors import AgentUnavailableError
from ralph.core.signals import Question
from ralph.core.turns import ENDED_BY, AgentEvent, EventKind, Turn, TurnEnd, TurnResult
from ralph.documents.run_record import RunRecord
from ralph.git import transfer
from ralph.git.command import Repository, identify_repository, list_own_paths
from ralph.git.history import HEADS, read_head
from ralph.store.files import read_limited, write_atomic
from ralph.store.questions import QuestionFiles
from ralph.workspace.cluster_client import RECONNECT_SECONDS, ClusterClient, ClusterLost, ClusterNode, WorkerGone
from ralph.workspace.local import SHARED_DIRECTORY, LocalTurns
from ralph.workspace.turn_files import COPY_LIMIT, EventLog

CHUNK = 8 << 20
"""Bytes of a file that are sent at once."""
REMOTE, RESULT = "remote.json", "result.json"
SCENARIO = "bin/scenario.yml"
"""Where a worker has the scenario of the scripted agent, in the directory of the run. Agents can read `bin`."""
_VALUE_LIMIT = 64 << 20
"""Bytes of all files that are sent by value with one turn."""
_POLL_SECONDS = 2.0
"""How long a poll waits for events. Questions and answers wait no longer than that."""
_MAX_LOSSES = 4
"""How often the worker of a turn may be lost before the turn is given up."""
_PLACEMENT_NOTICE_SECONDS = 5.0
_REPLACEMENT_POLL_SECONDS = 2.0
_LABEL_SHARE = 0.001
"""How much of a label a turn uses. Nodes offer 1000 of each, so that labels never limit the number of turns."""
_AGENTS_EVERYWHERE = ("scripted", "command", "acp")
"""Agents that no node has to announce: they come with Ralph, or the user names a program."""


@dataclass(frozen=True)
class TurnOrder:
    """One turn, with everything that it needs on another machine except for the git objects."""

    record: RunRecord
    turn: Turn
    templates: Mapping[str, str]
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
    leaving_out: tuple[str, ...] = ()
    """Paths that are not part of the work, from the top of the repository."""
    run_files: Mapping[str, bytes] = field(default_factory=dict)
    """Files for the directory of the run."""
    root_files: Mapping[str, bytes] = field(default_factory=dict)
    """Files for the root of the project that git does not carry."""
    adopts: bool = False
    """Whether the turn was started before, and is only to be adopted."""


@dataclass
class Placement:
    """Where a turn runs, as `remote.json` has it."""

    worker: str
    """The name of the worker process in the cluster."""
    node: str
    place: str
    """The name of the node for the user."""
    commit: str
    """The content of the workspace when the turn was sent."""
    questions: dict[str, str] = field(default_factory=dict)
    """The agent's questions: the id on the worker, and the id here."""
    answered: list[str] = field(default_factory=list)
    is_over: bool = False
    """Whether its result was taken, or given up."""


@dataclass
class RemoteTurns:
    """What the engine knows about the turns on the cluster; shared by the workspaces of a run."""

    stop_reasons: dict[int, str] = field(default_factory=dict)
    started: dict[int, str] = field(default_factory=dict)
    """The workers of turns that were started, by number of the turn."""
    stopping: dict[int, asyncio.Event] = field(default_factory=dict)
    messages: dict[int, dict[str, str]] = field(default_factory=dict)
    """The messages for turns that have not started yet."""
    has_cleaned_up: bool = False
    lost_at: float | None = None
    """When a worker, its machine or the cluster was last lost, by the monotonic clock."""

    def note_loss(self) -> None:
        """Remember that something was lost. Until it is replaced, there may be no worker for the next turn."""
        self.lost_at = time.monotonic()

    def waits_for_replacement(self) -> bool:
        """Whether the last loss was so short ago that another worker may still join."""
        return self.lost_at is not None and time.monotonic() - self.lost_at < RECONNECT_SECONDS


@dataclass(frozen=True, kw_only=True)
class RayTurns(LocalTurns):
    """Runs the turns of one run in one workspace, on a cluster.

    Turns that resolve a merge conflict run on this machine, because the state of the merge is in the worktree here.
    """

    cluster: ClusterClient
    remote: RemoteTurns = field(default_factory=RemoteTurns)

    def is_prepared(self, turn: Turn) -> bool:
        """Whether a worker has the turn, or had it."""
        return (self._directory(turn) / REMOTE).exists() or super().is_prepared(turn)

    async def stop(self, turn: Turn, reason: str) -> None:
        """Ask the turn's worker to end it."""
        if _runs_here(turn):
            await super().stop(turn, reason)
            return
        self.remote.stop_reasons[turn.number] = reason
        self._stop_event(turn).set()
        if worker := self.remote.started.get(turn.number):
            with contextlib.suppress(WorkerGone, ClusterLost, AgentUnavailableError):
                await self.cluster.call(worker, "stop", reason)

    async def send_message(self, turn: Turn, name: str, text: str) -> None:
        """Pass a message on to the agent of a turn, once for each name."""
        if _runs_here(turn):
            await super().send_message(turn, name, text)
            return
        worker = self.remote.started.get(turn.number)
        if worker is None:
            self.remote.messages.setdefault(turn.number, {})[name] = text
            return
        with contextlib.suppress(WorkerGone, ClusterLost, AgentUnavailableError):
            await self.cluster.call(worker, "tell", name, text)

    async def _run(self, turn: Turn, watch: Callable[[AgentEvent], None]) -> TurnResult:
        if _runs_here(turn):
            return await super()._run(turn, watch)
        directory = self._directory(turn)
        planted = self._move_planted(directory) if turn.is_new else []
        if (directory / RESULT).exists():
            text = read_limited(directory / RESULT, _VALUE_LIMIT).decode()
            return from_json(TurnResult, text, str(directory / RESULT))
        directory.mkdir(parents=True, exist_ok=True)
        try:
            result = await self._run_until_known(turn, directory, watch)
        finally:
            self.remote.started.pop(turn.number, None)
            self.remote.stopping.pop(turn.number, None)
        return replace(result, warnings=(*result.warnings, *planted))

    async def _run_until_known(self, turn: Turn, directory: Path, watch: Callable[[AgentEvent], None]) -> TurnResult:
        """Run the turn, through losses of the cluster, until its result is known."""
        began = time.time()
        for _ in range(_MAX_LOSSES):
            placement = _read_placement(directory)
            adopts = placement is not None
            try:
                if placement is None:
                    placement = await self._place(turn, directory, watch)
                if placement is None:
                    return self._end_before_start(turn, began)
                if adopts and not await self._ensure_worker(placement, watch):
                    return self._give_up(directory, placement, began, "the machine is no longer in the cluster")
                return await self._follow(turn, directory, placement, watch, adopts=adopts)
            except WorkerGone as gone:
                why = str(gone)
            except ClusterLost:
                if turn.number in self.remote.stop_reasons:
                    return self._give_up(directory, placement, began, "the cluster was lost while the turn was ended")
                _report(
                    watch, f"the connection to the Ray cluster at {self.cluster.pool.address} is lost; reconnecting"
                )
                self.remote.note_loss()
                await self.cluster.reconnect()
                self.remote.note_loss()
                why = "the cluster was lost"
        return self._give_up(directory, _read_placement(directory), began, why)

    async def _place(self, turn: Turn, directory: Path, watch: Callable[[AgentEvent], None]) -> Placement | None:
        """Find a worker for a new turn, and send it the workspace; None if the turn was stopped before."""
        await self._end_workers_of_ended_turns()
        turn, node = await self._choose_node(turn)
        needs = self._list_needs(turn)
        nodes = await self._find_nodes(turn, needs, watch)
        if not nodes:
            return None
        worker = self._name_worker(turn)
        await self.cluster.create(worker, needs, node)
        facts = await self._wait_for_worker(turn, worker, needs, watch)
        if facts is None:
            await self.cluster.kill(worker)
            return None
        place = next((one.name for one in nodes if one.id == facts["node"]), facts["host"])
        if problem := _compare_versions(facts):
            await self.cluster.kill(worker)
            todo = f"install the same versions there, then `ralph workers check`, then `ralph resume {self.record.id}`"
            raise AgentUnavailableError(f"the worker {place} cannot run turns: {problem}", where=place, todo=todo)
        commit = await self._send_workspace(turn, worker)
        placement = Placement(worker=worker, node=facts["node"], place=place, commit=commit)
        _write_placement(directory, placement)
        return placement

    async def _choose_node(self, turn: Turn) -> tuple[Turn, str]:
        """The node on which the conversation of the turn can be continued; else any node, and a new conversation."""
        if not turn.agent_session or not turn.continued_turn:
            return replace(turn, agent_session=""), ""
        before = _read_placement(self._directory(replace(turn, number=turn.continued_turn)))
        if before and any(node.id == before.node for node in await self.cluster.list_nodes()):
            return turn, before.node
        return replace(turn, agent_session=""), ""

    async def _find_nodes(
        self, turn: Turn, needs: Mapping[str, float], watch: Callable[[AgentEvent], None]
    ) -> list[ClusterNode]:
        """The nodes, of which one can run the turn. After a loss, wait for a replacement. Empty if the turn was stopped."""
        has_reported = False
        while True:
            nodes = await self.cluster.list_nodes()
            if any(one.can_run(needs) for one in nodes):
                return nodes
            if not self.remote.waits_for_replacement():
                raise _explain_no_node(needs, nodes)
            if not has_reported:
                has_reported = True
                _report(watch, f"a worker was lost; waiting for another one that offers {_format_needs(needs)}")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop_event(turn).wait(), _REPLACEMENT_POLL_SECONDS)
                return []

    def _list_needs(self, turn: Turn) -> dict[str, float]:
        """What the node of a turn must offer."""
        pool = self.record.pool
        kind = self.record.agents.by_label[turn.agent].kind
        resources = dict(pool.resources)
        needs = {"CPU": resources.pop("cpu", 1.0)}
        if "memory" in resources:
            needs["memory"] = resources.pop("memory") * (1 << 30)
        needs |= resources
        if kind not in _AGENTS_EVERYWHERE:
            needs[f"agent:{kind}"] = 1.0
        for name in ("*", turn.request.role, turn.request.task):
            needs |= {f"label:{label}": _LABEL_SHARE for label in pool.labels.get(name, ())}
        return needs

    def _name_worker(self, turn: Turn) -> str:
        return f"{self._project_key()}/{turn.number:05d}"

    def _project_key(self) -> str:
        """Names this run among those of all projects and machines."""
        origin = f"{platform.node()}:{self.run_dir.resolve()}"
        return f"{self.record.id}-{hashlib.sha256(origin.encode()).hexdigest()[:8]}"

    async def _wait_for_worker(
        self, turn: Turn, worker: str, needs: Mapping[str, float], watch: Callable[[AgentEvent], None]
    ) -> dict[str, str] | None:
        """Wait until the cluster has room for the worker; None if the turn was stopped before."""
        described = asyncio.ensure_future(self.cluster.call(worker, "describe"))
        stopped = asyncio.ensure_future(self._stop_event(turn).wait())
        has_reported = False
        try:
            while True:
                done, _ = await asyncio.wait(
                    [described, stopped], timeout=_PLACEMENT_NOTICE_SECONDS, return_when=asyncio.FIRST_COMPLETED
                )
                if stopped in done:
                    return None
                if described in done:
                    return dict(described.result())
                if not has_reported:
                    has_reported = True
                    _report(watch, f"waiting for a free worker that offers {_format_needs(needs)}")
        finally:
            described.cancel()
            stopped.cancel()

    async def _send_workspace(self, turn: Turn, worker: str) -> str:
        """Send what the worker lacks of the workspace; return the commit that has its content."""
        repository = transfer.require_sendable(self.workspace)
        git, ref = repository.git, self._name_ref(turn)
        message = f"ralph: before turn {turn.number}"
        head = git.resolve_commit()
        commit = await asyncio.to_thread(
            transfer.commit_content, repository, self._leaving_out(repository), head, message
        )
        offered = await asyncio.to_thread(transfer.list_offered, git, commit)
        known = await self.cluster.call(worker, "find_known", _name_repository(repository), offered)
        with tempfile.TemporaryDirectory(dir=self.run_dir) as aside:
            bundle = Path(aside) / "bundle"
            git.run("update-ref", ref, commit)
            if await asyncio.to_thread(transfer.write_bundle, git, bundle, ref, commit, known):
                with bundle.open("rb") as file:
                    while data := file.read(CHUNK):
                        await self.cluster.call(worker, "receive", file.tell() - len(data), data)
        return commit

    def _leaving_out(self, repository: Repository) -> tuple[str, ...]:
        """The paths of the work tree that are not part of the work."""
        trees, inside = self.record.tree_settings, self._find_prefix(repository)
        root = repository.top / inside
        named = (*trees.copy, *trees.share, SHARED_DIRECTORY)
        own = list_own_paths(repository.top, self.root, root, self.workspace)
        return tuple(dict.fromkeys((*own, *((inside / name).as_posix() for name in named))))

    def _find_prefix(self, repository: Repository) -> Path:
        """The root of the project below the top of the work tree. In a worktree, that is not `root`."""
        depth = len(Path(self.record.directory).parts)
        workspace = self.workspace.resolve()
        root = workspace.parents[depth - 1] if depth else workspace
        return root.relative_to(repository.top.resolve())

    def _name_ref(self, turn: Turn) -> str:
        return f"refs/ralph-work/{self.record.id}/remote-turns/{turn.number}"

    def _build_order(self, turn: Turn, placement: Placement, *, adopts: bool) -> TurnOrder:
        repository = transfer.require_sendable(self.workspace)
        head = read_head(repository.git)
        prefix = self._find_prefix(repository).as_posix()
        tree_name = (turn.request.worktree or "own").replace("/", ".")
        run_files = {} if adopts else self._read_run_files(turn)
        root_files = {} if adopts else self._read_root_files(turn)
        size = sum(len(data) for data in (*run_files.values(), *root_files.values()))
        if size > _VALUE_LIMIT:
            what = f"the files for turn {turn.number} have {size >> 20} MiB, but Ralph can send only {_VALUE_LIMIT >> 20} MiB"
            raise AgentUnavailableError(what, where=str(self.root), todo="run it without a cluster: `--pool local`")
        return TurnOrder(
            record=self.record,
            turn=turn,
            templates=dict(self.templates),
            project=self._project_key(),
            repository=_name_repository(repository),
            commit=placement.commit,
            ref=self._name_ref(turn),
            branch=head.removeprefix(HEADS) if head.startswith(HEADS) else "work",
            prefix="" if prefix == "." else prefix,
            tree_name=tree_name,
            identity=transfer.read_identity(repository.git),
            leaving_out=self._leaving_out(repository),
            run_files=run_files,
            root_files=root_files,
            adopts=adopts,
        )

    def _read_run_files(self, turn: Turn) -> dict[str, bytes]:
        """The files of the run that agents' tools read, the scenario, and the documents of the turn that is continued."""
        found = {name: read_limited(self.run_dir / name) for name in ("run.json", "hats.json") if self._has(name)}
        scenario = self.record.agents.by_label[turn.agent].scenario
        if scenario:
            found[SCENARIO] = Path(scenario).read_bytes()
        if turn.continued_turn:
            before = self._directory(replace(turn, number=turn.continued_turn))
            for path in sorted((before / "outbox").rglob("*")):
                if path.is_file() and not path.is_symlink():
                    found[path.relative_to(self.run_dir).as_posix()] = read_limited(path, COPY_LIMIT)
        return found

    def _has(self, name: str) -> bool:
        return (self.run_dir / name).is_file()

    def _read_root_files(self, turn: Turn) -> dict[str, bytes]:
        """The files of the project that the turn finds in its inbox, and those that agents share."""
        found: dict[str, bytes] = {}
        for source in (*turn.request.copied_files.values(), SHARED_DIRECTORY):
            lent = self.root / source
            for path in [lent] if lent.is_file() else sorted(lent.glob("*")):
                if path.is_file() and not path.is_symlink() and path.stat().st_size <= COPY_LIMIT:
                    found[path.relative_to(self.root).as_posix()] = path.read_bytes()
        return found

    async def _follow(
        self,
        turn: Turn,
        directory: Path,
        placement: Placement,
        watch: Callable[[AgentEvent], None],
        *,
        adopts: bool,
    ) -> TurnResult:
        """Start the turn on its worker, or adopt it, and pass its events on until its end."""
        worker = placement.worker
        watch(AgentEvent(EventKind.PLACED, placement.place))
        sent = self._build_order(turn, placement, adopts=adopts)
        await self.cluster.call(worker, "start", pickle.dumps(sent))
        self.remote.started[turn.number] = worker
        for name, text in self.remote.messages.pop(turn.number, {}).items():
            await self.cluster.call(worker, "tell", name, text)
        if reason := self.remote.stop_reasons.get(turn.number):
            await self.cluster.call(worker, "stop", reason)
        log, seen = EventLog(directory / "events.jsonl"), 0
        while True:
            wants_files = not (directory / "turn.json").exists()
            known = [*placement.questions]
            update = await self.cluster.call(worker, "poll", seen, _POLL_SECONDS, wants_files, known)
            for name, data in update["files"].items():
                write_atomic(directory / name, data)
            events = [from_plain(AgentEvent, one, "an event of a worker") for one in update["events"]]
            for event in events:
                log.append(event)
                watch(event)
            log.flush()
            seen += len(events)
            await self._pass_questions_on(directory, placement, update["questions"])
            if update["result"] is not None:
                return await self._take_result(turn, directory, placement, update["result"], sent.leaving_out)

    async def _pass_questions_on(self, directory: Path, placement: Placement, asked: Mapping[str, bytes]) -> None:
        """Ask the user what the agent asks, and bring the answers to the worker."""
        files = QuestionFiles(self.run_dir)
        for id, data in asked.items():
            fields = json.loads(data)
            known = {name: fields[name] for name in Question.__dataclass_fields__ if name in fields}
            placement.questions[id] = files.ask(Question(**known)).id
            _write_placement(directory, placement)
        for id, here in placement.questions.items():
            answer = files.answers / f"{here}.json"
            if id not in placement.answered and answer.exists():
                await self.cluster.call(placement.worker, "answer", id, answer.read_bytes())
                placement.answered.append(id)
                _write_placement(directory, placement)

    async def _take_result(
        self, turn: Turn, directory: Path, placement: Placement, reply: Mapping[str, Any], leaving_out: tuple[str, ...]
    ) -> TurnResult:
        """Bring what the turn left to this machine: its files, what agents share, and its changes."""
        result = from_json(TurnResult, reply["result"], f"the result of turn {turn.number}")
        with tempfile.TemporaryDirectory(dir=self.run_dir) as aside:
            pack = Path(aside) / "pack.tar"
            with pack.open("wb") as file:
                while data := await self.cluster.call(placement.worker, "read_pack", file.tell()):
                    file.write(data)
            try:
                await asyncio.to_thread(self._unpack, turn, directory, placement, reply, Path(aside), leaving_out)
            except transfer.TransferError as error:
                ref = self._name_ref(turn)
                error_text = f"{error.what}; its work is kept: `git merge {ref}` merges it"
                result = replace(result, end=TurnEnd.FAILED, error=error_text)
        if result.end is not TurnEnd.FINISHED and result.error:
            result = replace(result, error=f"{result.error} (on {placement.place})")
        # From here on the worker is not needed: if the engine dies now, the next one reads the result here.
        write_atomic(directory / RESULT, to_json(result).encode())
        await self._close(directory, placement)
        return result

    def _unpack(
        self,
        turn: Turn,
        directory: Path,
        placement: Placement,
        reply: Mapping[str, Any],
        aside: Path,
        leaving_out: tuple[str, ...],
    ) -> None:
        incoming = aside / "pack"
        _extract_files(aside / "pack.tar", incoming)
        for path in sorted((incoming / "turn").rglob("*")) if (incoming / "turn").is_dir() else ():
            if path.is_file():
                target = directory / path.relative_to(incoming / "turn")
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.move(path, target)
        self._merge_shared_files(incoming / "shared", turn)
        repository = transfer.require_sendable(self.workspace)
        if (incoming / "result.bundle").exists():
            transfer.read_bundle(repository.git, incoming / "result.bundle", self._name_ref(turn))
            transfer.apply_result(repository, leaving_out, placement.commit, reply["commit"])
            transfer.take_commits(repository, placement.commit, reply["made"])
        repository.git.run("update-ref", "-d", self._name_ref(turn))

    def _merge_shared_files(self, incoming: Path, turn: Turn) -> None:
        """Take in what the turn changed of the files that agents share. Of files that changed here too, new lines are added."""
        for path in sorted(incoming.glob("*")) if incoming.is_dir() else ():
            target = self.root / SHARED_DIRECTORY / path.name
            data = path.read_bytes()
            own = target.read_bytes() if target.is_file() else b""
            if data == own:
                continue
            known = set(own.splitlines())
            new = [line for line in data.splitlines() if line not in known]
            target.parent.mkdir(parents=True, exist_ok=True)
            joined = own if own.endswith(b"\n") or not own else own + b"\n"
            write_atomic(target, joined + b"".join(line + b"\n" for line in new))

    async def _close(self, directory: Path, placement: Placement) -> None:
        """Record that the turn is over, and end its worker."""
        placement.is_over = True
        _write_placement(directory, placement)
        with contextlib.suppress(WorkerGone, ClusterLost, AgentUnavailableError):
            await self.cluster.call(placement.worker, "finish")
            await self.cluster.kill(placement.worker)

    async def _ensure_worker(self, placement: Placement, watch: Callable[[AgentEvent], None]) -> bool:
        """Create a worker that adopts the turn, if its own is gone; False if the node is gone, too."""
        if placement.worker in await self.cluster.list_workers(placement.worker):
            return True
        if not any(node.id == placement.node for node in await self.cluster.list_nodes()):
            return False
        _report(watch, f"the worker process on {placement.place} is gone; another one adopts the turn")
        await self.cluster.create(placement.worker, {"CPU": 0.0}, placement.node)
        return True

    def _give_up(self, directory: Path, placement: Placement | None, began: float, why: str) -> TurnResult:
        """The result of a turn of which nothing will ever be known."""
        self.remote.note_loss()
        where = ""
        if placement:
            where = f" on {placement.place}"
            placement.is_over = True
            _write_placement(directory, placement)
        error = f"the turn was lost with its worker{where}: {why}. Ralph discards what it did there"
        return TurnResult(TurnEnd.INTERRUPTED, began, time.time(), error=error)

    def _end_before_start(self, turn: Turn, began: float) -> TurnResult:
        end = ENDED_BY[self.remote.stop_reasons[turn.number]]
        return TurnResult(end, began, time.time(), error="it was ended before it started")

    def _stop_event(self, turn: Turn) -> asyncio.Event:
        return self.remote.stopping.setdefault(turn.number, asyncio.Event())

    async def _end_workers_of_ended_turns(self) -> None:
        """End workers that an earlier engine left, of turns that are over. They would keep their slots."""
        if self.remote.has_cleaned_up:
            return
        self.remote.has_cleaned_up = True
        over = set()
        for path in (self.run_dir / "turns").glob(f"*/{REMOTE}"):
            placement = _read_placement(path.parent)
            if placement and placement.is_over:
                over.add(placement.worker)
        for worker in await self.cluster.list_workers(self._project_key()):
            if worker in over:
                await self.cluster.kill(worker)


def _runs_here(turn: Turn) -> bool:
    """Whether a turn runs on this machine: git keeps the state of a merge in the worktree."""
    return turn.request.merges_run_branch


def _read_placement(directory: Path) -> Placement | None:
    try:
        return Placement(**json.loads(read_limited(directory / REMOTE)))
    except FileNotFoundError:
        return None


def _write_placement(directory: Path, placement: Placement) -> None:
    write_atomic(directory / REMOTE, dump(asdict(placement)).encode() + b"\n")


def _extract_files(pack: Path, target: Path) -> None:
    """Extract the regular files of a pack. Names that lead out of the directory are refused."""
    with tarfile.open(pack) as opened:
        for member in opened:
            parts = Path(member.name).parts
            content = opened.extractfile(member) if member.isfile() else None
            if content is None or ".." in parts or Path(member.name).is_absolute():
                continue
            path = target.joinpath(*parts)
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as file:
                shutil.copyfileobj(content, file)


def _report(watch: Callable[[AgentEvent], None], text: str) -> None:
    watch(AgentEvent(EventKind.PROGRESS, text))


def _name_repository(repository: Repository) -> str:
    return identify_repository(repository)[:40]


def _compare_versions(facts: Mapping[str, str]) -> str:
    """Why a worker with other versions cannot be used; empty if they are the same."""
    if facts["ralph"] != __version__:
        return f"it has Ralph {facts['ralph']}, and this machine has {__version__}"
    here = platform.python_version()
    if facts["python"].rpartition(".")[0] != here.rpartition(".")[0]:
        return f"it has Python {facts['python']}, and this machine has {here}"
    return ""


def _format_needs(needs: Mapping[str, float]) -> str:
    """What a turn needs, for the user."""
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
