"""One turn on a machine of a cluster: its tree, its sandbox, its keeper and its agent, all of this machine.

Ray starts a `TurnWorker` as an actor; the class itself works without Ray. Everything that the turn needs comes by value or as
git objects. Keys and logins of agents are those of this machine, and stay here.

If this process is killed, the agent runs on for `ADOPTION_SECONDS`, in which another worker on this machine can take it over.
"""

import asyncio
import contextlib
import fcntl
import os
import pickle
import platform
import shutil
import socket
import tarfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ralph import __version__
from ralph.agents import registry
from ralph.app.sandbox import describe_sandbox, open_sandbox
from ralph.core.codec import to_json, to_plain
from ralph.core.errors import RalphError
from ralph.core.ids import turn_name
from ralph.core.redaction import find_secrets
from ralph.core.turns import ENDED_BY, AgentEvent, TurnEnd, TurnResult
from ralph.documents.run_record import AgentSelection, AgentSpec, RunRecord
from ralph.git import transfer
from ralph.git.command import Repository
from ralph.git.worktree import Worktree
from ralph.store.questions import ANSWERS, QUESTIONS
from ralph.supervisor import sandbox
from ralph.supervisor.client import KeeperClient
from ralph.supervisor.processes import TURN_MARK, end_marked
from ralph.verify.runner import CheckRunner, check_environment
from ralph.workspace.isolation import Isolation
from ralph.workspace.local import SHARED_DIRECTORY, LocalTurns
from ralph.workspace.ray import CHUNK, SCENARIO, TurnOrder
from ralph.workspace.turn_files import TurnFiles
from ralph.workspace.worktree_setup import SetupError, WorktreeSetup

ADOPTION_SECONDS = 30.0
"""How long an agent runs on after its worker process was killed, unless another one takes it over."""
_UNUSED_SECONDS = 900.0
"""After this time without a call, a worker whose turn is over ends itself. Its result stays on the disk."""
_KEPT_SECONDS = 7 * 86400.0
"""After this time, trees that no turn used are removed."""
_FILE_LIMIT, _PACK_LIMIT = 64 << 20, 512 << 20
HOME_VARIABLE = "RALPH_WORKER_HOME"
WORKER_MARK = "RALPH_WORKER_MARK"
"""Marks the processes of a worker that `ralph workers start` started."""
_NOT_FOR_AGENTS = ("OMP_NUM_THREADS", "PYTHONBREAKPOINT", "SPT_NOENV", HOME_VARIABLE)
"""Variables that Ray or Ralph sets for workers. `RAY_*` is left out too."""


def worker_home() -> Path:
    """Where a worker keeps mirrors and trees."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(os.environ.get(HOME_VARIABLE) or f"{cache}/ralph/worker").expanduser()


def clean_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of this machine's user, without what Ray adds for its own processes."""
    return {
        name: value
        for name, value in environment.items()
        if not name.startswith("RAY_") and name not in _NOT_FOR_AGENTS
    }


class TurnWorker:
    """Runs one turn. All methods are calls of the engine."""

    def __init__(self) -> None:
        self._home = worker_home()
        self._events: list[AgentEvent] = []
        self._changed = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._turns: LocalTurns | None = None
        self._order: TurnOrder | None = None
        self._result: dict[str, Any] | None = None
        self._stop_reason = ""
        self._stopped = asyncio.Event()
        self._last_call = time.monotonic()
        self._incoming = self._home / "incoming" / f"{os.getpid()}-{os.urandom(4).hex()}.bundle"

    async def describe(self) -> dict[str, str]:
        """Who this is: machine, process and versions."""
        self._note_call()
        asyncio.get_running_loop().call_later(_UNUSED_SECONDS, self._exit_if_unused)
        return {
            "host": socket.gethostname(),
            "pid": str(os.getpid()),
            "ralph": __version__,
            "python": platform.python_version(),
            "node": _find_node_id(),
        }

    async def find_known(self, repository: str, offered: list[str]) -> list[str]:
        """Which of these commits the mirror of a repository has."""
        self._note_call()
        with self._lock_mirror(repository) as mirror:
            return await asyncio.to_thread(transfer.find_known, transfer.open_mirror(mirror), offered)

    async def receive(self, offset: int, data: bytes) -> None:
        """Take one piece of a bundle."""
        self._note_call()
        self._incoming.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self._incoming.open("r+b" if offset else "wb") as file:
            file.seek(offset)
            file.write(data)

    async def start(self, data: bytes) -> None:
        """Start the turn, or adopt it if it runs here already. Asked again, it does nothing."""
        self._note_call()
        if self._running is None:
            self._order = pickle.loads(data)
            self._running = asyncio.create_task(self._run(self._order))

    async def poll(self, after: int, seconds: float, wants_files: bool, known_questions: list[str]) -> dict[str, Any]:
        """What is new since the last poll; waits for something new, but not longer than some seconds."""
        self._note_call()
        questions = self._list_questions(known_questions)
        if len(self._events) <= after and self._result is None and not questions:
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), seconds)
            questions = self._list_questions(known_questions)
        return {
            "events": [to_plain(event) for event in self._events[after:]],
            "files": self._read_start_files() if wants_files else {},
            "questions": questions,
            "result": self._result,
        }

    async def read_pack(self, offset: int) -> bytes:
        """A piece of what the turn left, as a tar file; empty at its end."""
        self._note_call()
        with self._pack_path().open("rb") as file:
            file.seek(offset)
            return file.read(CHUNK)

    async def stop(self, reason: str) -> None:
        """End the turn."""
        self._note_call()
        self._stop_reason = reason
        self._stopped.set()
        if self._turns and self._order:
            await self._turns.stop(self._order.turn, reason)

    async def tell(self, name: str, text: str) -> None:
        """Leave a message for the agent."""
        self._note_call()
        while self._turns is None and self._result is None:
            await asyncio.sleep(0.1)  # the tree is still set up
        if self._turns and self._order:
            await self._turns.send_message(self._order.turn, name, text)

    async def answer(self, id: str, data: bytes) -> None:
        """Write the user's answer to a question of the agent."""
        self._note_call()
        if self._turns:
            answers = self._turns.run_dir / ANSWERS
            answers.mkdir(exist_ok=True)
            (answers / f"{id}.json").write_bytes(data)

    async def finish(self) -> None:
        """Remove what only this turn needed. The tree stays for the next turn in it."""
        self._note_call()
        self._pack_path().unlink(missing_ok=True)
        if self._turns and self._order:
            shutil.rmtree(self._turns.run_dir / "turns" / _name_turn(self._order), ignore_errors=True)

    async def check(self, agents: list[str], asked_sandbox: str) -> dict[str, str]:
        """Prove what this machine can do: git works, the sandbox works, each agent starts."""
        return {"git": await asyncio.to_thread(_try_git, self._home), **_try_sandbox(asked_sandbox), **_try(agents)}

    def _note_call(self) -> None:
        self._last_call = time.monotonic()

    def _exit_if_unused(self) -> None:
        is_working = self._running is not None and not self._running.done()
        if not is_working and time.monotonic() - self._last_call >= _UNUSED_SECONDS:
            os._exit(0)
        asyncio.get_running_loop().call_later(60, self._exit_if_unused)

    async def _run(self, order: TurnOrder) -> None:
        began = time.time()
        try:
            result = await self._run_turn(order)
        except SetupError as error:
            result = TurnResult(TurnEnd.FAILED, began, time.time(), error=str(error), lacks_worktree=True)
        except RalphError as error:
            result = TurnResult(TurnEnd.UNAVAILABLE, began, time.time(), error=f"{error.what}; {error.todo}")
        except Exception as error:  # noqa: BLE001 - whatever happens here must reach the engine
            result = TurnResult(TurnEnd.FAILED, began, time.time(), error=f"{type(error).__name__}: {error}")
        self._result = await asyncio.to_thread(self._pack, order, result)
        self._changed.set()

    async def _run_turn(self, order: TurnOrder) -> TurnResult:
        root = self._tree(order) / order.prefix
        run_dir = root / ".ralph" / "runs" / order.record.id
        is_prepared = (run_dir / "turns" / _name_turn(order) / "turn.json").exists()
        if order.adopts and not is_prepared:
            now = time.time()
            return TurnResult(TurnEnd.INTERRUPTED, now, now, error="its worker was killed before the agent started")
        if not is_prepared:
            await asyncio.to_thread(self._prepare_tree, order, run_dir)
        keeper_dir = run_dir / "keepers" / f"{order.turn.number:05d}"
        keeper_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        keeper = KeeperClient(keeper_dir, abandoned_after=ADOPTION_SECONDS)
        try:
            turns, warnings = self._build_turns(order, root, run_dir, keeper)
            if not is_prepared and not await self._set_up_unless_stopped(order, turns):
                now = time.time()
                return TurnResult(ENDED_BY[self._stop_reason], now, now, error="it was ended before it started")
            self._turns = turns
            turn = replace(order.turn, is_new=not is_prepared)
            result = await turns.run(turn, self._watch)
        finally:
            await keeper.close()
        return replace(result, warnings=(*result.warnings, *warnings))

    def _watch(self, event: AgentEvent) -> None:
        self._events.append(event)
        self._changed.set()

    def _tree(self, order: TurnOrder) -> Path:
        """The tree of the turn: the same for all turns of a run in one worktree, so that conversations can continue."""
        return self._home / "trees" / order.project / order.tree_name

    def _prepare_tree(self, order: TurnOrder, run_dir: Path) -> None:
        """Make the tree as the engine has it, and write the files that came by value."""
        tree = self._tree(order)
        _remove_unused_trees(tree.parent.parent)
        marker = tree.with_name(f"{tree.name}.turn")
        if marker.exists():
            # The turn before in this tree may have been given up while its agent still ran.
            end_marked(TURN_MARK, marker.read_text())
        with self._lock_mirror(order.repository) as mirror:
            git = transfer.open_mirror(mirror)
            if self._incoming.exists():
                transfer.read_bundle(git, self._incoming, order.ref)
                self._incoming.unlink()
            transfer.check_out(mirror, tree, order.prefix, order.commit, order.branch, order.identity)
        marker.write_text(f"{order.record.id}/{order.turn.number:05d}")
        for base, files in ((run_dir, order.run_files), (tree / order.prefix, order.root_files)):
            for name, data in files.items():
                path = base / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)

    async def _set_up_unless_stopped(self, order: TurnOrder, turns: LocalTurns) -> bool:
        """Set the tree up; False if the turn was stopped before that was done. What still runs ends as abandoned."""
        setup = asyncio.ensure_future(self._set_up(order, turns))
        stopped = asyncio.ensure_future(self._stopped.wait())
        await asyncio.wait([setup, stopped], return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if self._stopped.is_set():
            setup.cancel()
            return False
        await setup
        return True

    async def _set_up(self, order: TurnOrder, turns: LocalTurns) -> None:
        """Run the setup commands of the project, if they have not run in this tree, or a manifest has changed."""
        tree, isolation = self._tree(order), turns.isolation
        assert isolation
        ready = tree.with_name(f"{tree.name}.ready")
        worktree = Worktree(root=turns.root, path=tree, workspace=turns.root, branch=order.branch)
        runner = CheckRunner(
            run_dir=turns.run_dir,
            run_id=order.record.id,
            workspace=turns.workspace,
            keeper=turns.keeper,
            environment=check_environment(turns.environment),
            secrets=turns.hidden,
            isolate=isolation.isolate_check,
        )
        since = ready.read_text() if ready.exists() else ""
        name = f"{order.tree_name}-{order.turn.number}"
        ready.write_text(
            await WorktreeSetup(turns.root, order.record.tree_settings).set_up(worktree, runner, name, since)
            or order.commit
        )

    def _build_turns(
        self, order: TurnOrder, root: Path, run_dir: Path, keeper: KeeperClient
    ) -> tuple[LocalTurns, tuple[str, ...]]:
        """What runs turns here, as on the machine of a user; and what the user should know about it."""
        environment = clean_environment(os.environ)
        record = _with_scenario(order.record, run_dir)
        chosen = open_sandbox(record.sandbox, environment, record.agents)
        agents = {label: registry.make_adapter(spec, record.prices) for label, spec in record.agents.by_label.items()}
        notices = [agents[order.turn.agent].prepare(environment)]
        if not chosen.is_on and record.sandbox != sandbox.OFF:
            notices.append(f"on {socket.gethostname()}: {describe_sandbox(chosen)}")
        workspace = root / record.directory
        workspace.mkdir(parents=True, exist_ok=True)
        secrets = find_secrets(environment)
        isolation = Isolation(sandbox=chosen, root=root, run_dir=run_dir, top=root).move(self._tree(order))
        turns = LocalTurns(
            run_dir=run_dir,
            record=record,
            root=root,
            workspace=workspace,
            files=TurnFiles(workspace, secrets),
            keeper=keeper,
            agents=agents,
            templates=order.templates,
            environment={**environment, "GIT_CEILING_DIRECTORIES": str(self._tree(order).parent)},
            hidden=secrets,
            isolation=isolation,
        )
        return turns, tuple(notice for notice in notices if notice)

    @contextlib.contextmanager
    def _lock_mirror(self, repository: str) -> Iterator[Path]:
        """The mirror of a repository, for one turn at a time."""
        mirror = self._home / "mirrors" / f"{repository}.git"
        mirror.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with mirror.with_suffix(".lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield mirror

    def _read_start_files(self) -> dict[str, bytes]:
        """The files of the turn that the user may read while it runs."""
        if self._turns is None or self._order is None:
            return {}
        directory = self._turns.run_dir / "turns" / _name_turn(self._order)
        if not (directory / "turn.json").exists():
            return {}
        return {name: (directory / name).read_bytes() for name in ("prompt.md", "turn.json")}

    def _list_questions(self, known: list[str]) -> dict[str, bytes]:
        """The questions of the agent that the engine does not know yet, by id."""
        if self._turns is None:
            return {}
        found = {}
        for path in (self._turns.run_dir / QUESTIONS).glob("q*.json"):
            if path.stem not in known and "." not in path.stem:
                found[path.stem] = path.read_bytes()
        return found

    def _pack_path(self) -> Path:
        assert self._order
        return self._home / "outgoing" / f"{self._order.project}-{self._order.turn.number:05d}.tar"

    def _pack(self, order: TurnOrder, result: TurnResult) -> dict[str, Any]:
        """Pack what the turn left: its directory, the files that agents share, and its changes as git objects."""
        tree, path = self._tree(order), self._pack_path()
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        commit = made = order.commit
        root = tree / order.prefix
        directory = root / ".ralph" / "runs" / order.record.id / "turns" / _name_turn(order)
        with tarfile.open(path, "w") as pack:
            if directory.is_dir():
                result = replace(result, warnings=(*result.warnings, *_add_files(pack, directory, "turn")))
                _add_files(pack, root / SHARED_DIRECTORY, "shared")
                repository = Repository(tree, tree / ".git", tree / ".git")
                message = f"ralph: turn {order.turn.number}"
                commit, made = transfer.commit_result(repository, order.commit, order.leaving_out, message)
                bundle = path.with_suffix(".bundle")
                if transfer.write_bundle(repository.git, bundle, order.ref, commit, [order.commit]):
                    pack.add(bundle, "result.bundle")
                    bundle.unlink()
        return {"result": to_json(result), "commit": commit, "made": made}


def _name_turn(order: TurnOrder) -> str:
    return turn_name(order.turn.number, order.turn.request.role)


def _find_node_id() -> str:
    """The Ray node that this process runs on; empty outside of Ray."""
    if "RAY_JOB_ID" not in os.environ:
        return ""
    import ray

    return str(ray.get_runtime_context().get_node_id())


def _with_scenario(record: RunRecord, run_dir: Path) -> RunRecord:
    """The record with the scenario of the scripted agent in its place here."""

    def move(spec: AgentSpec) -> AgentSpec:
        return replace(spec, scenario=str(run_dir / SCENARIO)) if spec.scenario else spec

    agents = record.agents
    roles = {role: tuple(move(spec) for spec in chain) for role, chain in agents.roles.items()}
    moved = AgentSelection(
        chain=tuple(move(spec) for spec in agents.chain),
        roles=roles,
        escalation=move(agents.escalation) if agents.escalation else None,
        escalate_after=agents.escalate_after,
    )
    return replace(record, agents=moved)


def _add_files(pack: tarfile.TarFile, directory: Path, name: str) -> list[str]:
    """Add the regular files of a directory to a pack. Returns a notice for each that is too large."""
    notices = []
    size = 0
    for path in sorted(directory.rglob("*")):
        if path.is_symlink() or not path.is_file():
            continue
        length = path.stat().st_size
        if length > _FILE_LIMIT or size + length > _PACK_LIMIT:
            notices.append(f"{path.relative_to(directory)} is too large to send, and stays on {socket.gethostname()}")
            continue
        size += length
        pack.add(path, f"{name}/{path.relative_to(directory)}", recursive=False)
    return notices


def _remove_unused_trees(home: Path) -> None:
    """Remove the trees of runs that no turn has used for a week."""
    oldest = time.time() - _KEPT_SECONDS
    for project in home.glob("*"):
        if project.is_dir() and max((one.stat().st_mtime for one in project.glob("*.turn")), default=oldest) < oldest:
            shutil.rmtree(project, ignore_errors=True)


def _try_git(home: Path) -> str:
    """Empty if git can make a mirror and a tree; else why not."""
    place = home / f"check-{os.urandom(4).hex()}"
    try:
        git = transfer.open_mirror(place / "mirror.git")
        empty = git.run("hash-object", "-t", "tree", "-w", "--stdin").text
        identity = {"user.name": "Ralph", "user.email": "ralph@localhost"}
        own = git.with_options(*(f"{name}={text}" for name, text in identity.items()))
        commit = own.run("commit-tree", empty, "-m", "check").text
        transfer.check_out(place / "mirror.git", place / "tree", "", commit, "check", identity)
    except (RalphError, OSError) as error:
        return str(error)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return ""


def _try_sandbox(asked: str) -> dict[str, str]:
    try:
        chosen = open_sandbox(asked, clean_environment(os.environ))
    except RalphError as error:
        return {"sandbox": error.what}
    return {"sandbox": "", "sandbox_level": describe_sandbox(chosen)}


def _try(agents: list[str]) -> dict[str, str]:
    """For each agent, empty if its program starts; else why not."""
    from ralph.app.doctor import read_version

    found = {}
    for name in agents:
        agent = registry.get_adapter(name)
        path = shutil.which(agent.program)
        problem = f"not installed (`{agent.install}`)"
        if path is not None:
            signed_in, how = agent.sign_in(os.environ, Path.home())
            problem = "" if signed_in is not False else f"not signed in: {how}"
            if read_version(path) == "unknown version":
                problem = f"{path} does not start"
        found[f"agent:{name}"] = problem
    return found
