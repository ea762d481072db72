"""What the engine expects of whatever runs its turns, on this machine and on a cluster."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from engines import AGENT, begin, git, write

from ralph.agents import registry
from ralph.app.start import WorkLocation
from ralph.core.prompt import Prompt
from ralph.core.turns import AgentEvent, EventKind, Turn, TurnEnd, TurnRequest, TurnResult
from ralph.documents.run_record import PoolSpec
from ralph.engine.ports import TurnsPort
from ralph.store.questions import QuestionFiles
from ralph.store.runs import RunDir
from ralph.supervisor.client import KeeperClient
from ralph.supervisor.processes import TURN_MARK, find_marked
from ralph.workspace.cluster_client import ClusterClient
from ralph.workspace.local import LocalTurns
from ralph.workspace.ray import RayTurns
from ralph.workspace.turn_files import TurnFiles

pytestmark = pytest.mark.xdist_group("cluster")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    pytest.importorskip("ray")
    from clusters import cluster_of

    with cluster_of(one=("a",)) as cluster:
        yield cluster.address


@pytest.fixture(params=["local", pytest.param("ray", marks=pytest.mark.cluster)])
def pool(request: pytest.FixtureRequest, tmp_path: Path) -> "Pool":
    spec = PoolSpec()
    if request.param == "ray":
        spec = PoolSpec("ray", request.getfixturevalue("address"))
    root = tmp_path / "repo"
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    write(root, {"a.txt": "one\n", "b.txt": "two\n", ".gitignore": "*.log\n"})
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "first")
    return Pool(root, begin(root, WorkLocation.HERE, pool=spec))


@dataclass
class Pool:
    """A project with a run, and a pool for its turns."""

    root: Path
    run: RunDir

    @asynccontextmanager
    async def engine(self) -> AsyncIterator[TurnsPort]:
        """What one engine has of the pool. When it goes, turns in progress run on."""
        record, keeper = self.run.record(), KeeperClient(self.run.path)
        turns: LocalTurns = LocalTurns(
            run_dir=self.run.path,
            record=record,
            root=self.root,
            workspace=self.root,
            files=TurnFiles(self.root, ()),
            keeper=keeper,
            agents={AGENT.label: registry.make_adapter(AGENT, {})},
            templates={"repair": "", "continue": ""},
            environment=dict(os.environ),
        )
        cluster = ClusterClient(record.pool, self.run.path / "cluster.log")
        if record.pool.kind == "ray":
            turns = RayTurns(**vars(turns), cluster=cluster)
        try:
            yield turns
        finally:
            await keeper.close()
            await cluster.close()

    def turn(self, script: str, **more: Any) -> Turn:
        """A turn of an agent that runs its prompt as a shell script."""
        request = TurnRequest("k", "executor", Prompt.of(f"{script}\nexit"), outputs=("*.md",), **more)
        return Turn(1, 1, request, agent=AGENT.label, is_new=True)

    def processes(self) -> list[int]:
        """What the agent started."""
        return find_marked(TURN_MARK, f"{self.run.id}/00001")


class Watcher:
    """Remembers events, and wakes whoever waits for a text."""

    def __init__(self) -> None:
        self.events: list[AgentEvent] = []
        self.changed = asyncio.Event()

    def __call__(self, event: AgentEvent) -> None:
        self.events.append(event)
        self.changed.set()

    def texts(self, kind: EventKind = EventKind.TEXT) -> list[str]:
        return [event.text.strip() for event in self.events if event.kind is kind]

    async def wait_for(self, text: str) -> None:
        while not any(text in one for one in self.texts()):
            await self.changed.wait()
            self.changed.clear()


def do(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(work(), 90))


def run_once(pool: Pool, turn: Turn) -> tuple[TurnResult, Watcher]:
    async def main() -> TurnResult:
        async with pool.engine() as turns:
            return await turns.run(turn, watcher)

    watcher = Watcher()
    return asyncio.run(asyncio.wait_for(main(), 90)), watcher


def test_a_turn_reports_its_events_documents_and_changes(pool: Pool) -> None:
    (pool.root / "b.txt").write_text("changed by the user\n")
    script = "cat b.txt; echo new > new.txt; rm a.txt; echo note > $RALPH_OUTBOX/note.md; echo junk > x.log"
    result, watcher = run_once(pool, pool.turn(script))
    assert (result.end, result.code, result.error) == (TurnEnd.FINISHED, 0, "")
    assert "changed by the user" in watcher.texts()
    assert dict(result.documents) == {"note.md": "note\n"}
    assert (pool.root / "new.txt").read_text() == "new\n"
    assert (pool.root / "b.txt").read_text() == "changed by the user\n"
    assert not (pool.root / "a.txt").exists()
    directory = pool.run.path / "turns" / "00001-executor"
    assert {"prompt.md", "turn.json", "stdout", "exit", "outbox"} <= {path.name for path in directory.iterdir()}
    assert git(pool.root, "log", "--format=%s") == "first"


def test_an_inbox_reaches_the_agent(pool: Pool) -> None:
    (pool.root / ".ralph" / "agent").mkdir(parents=True, exist_ok=True)
    (pool.root / ".ralph" / "agent" / "memories.md").write_text("remember\n")
    script = 'cat $RALPH_INBOX/brief.md .ralph/agent/memories.md; echo "and more" >> .ralph/agent/memories.md'
    _, watcher = run_once(pool, pool.turn(script, inbox={"brief.md": "the brief\n"}))
    assert "the brief\nremember" in "\n".join(watcher.texts())
    assert (pool.root / ".ralph" / "agent" / "memories.md").read_text() == "remember\nand more\n"


def test_a_failed_turn_has_its_exit_code(pool: Pool) -> None:
    result, _ = run_once(pool, pool.turn("echo oh no >&2; exit 3"))
    assert (result.end, result.code) == (TurnEnd.FAILED, 3)
    assert "oh no" in result.error


def test_a_stopped_turn_ends_for_the_reason_given_and_leaves_no_process(pool: Pool) -> None:
    async def main() -> None:
        watcher, turn = Watcher(), pool.turn("setsid sleep 300 & echo ready; sleep 300")
        async with pool.engine() as turns:
            running = asyncio.create_task(turns.run(turn, watcher))
            await watcher.wait_for("ready")
            await turns.stop(turn, "cut")
            assert (await running).end is TurnEnd.CUT
        assert pool.processes() == []

    do(main)


def test_a_message_reaches_the_agent_once(pool: Pool) -> None:
    async def main() -> None:
        script = 'echo ready; until "$RALPH_BIN" tools signals > said.log; grep hello said.log; do sleep 0.2; done'
        watcher, turn = Watcher(), pool.turn(script)
        async with pool.engine() as turns:
            running = asyncio.create_task(turns.run(turn, watcher))
            await watcher.wait_for("ready")
            await turns.send_message(turn, "m1", "hello there")
            await turns.send_message(turn, "m1", "hello there")
            result = await running
        assert result.end is TurnEnd.FINISHED
        assert result.received == ("m1",)
        assert watcher.texts(EventKind.RECEIVED) == ["m1"]

    do(main)


def test_a_message_to_a_turn_that_is_being_started_is_not_lost(pool: Pool) -> None:
    async def main() -> None:
        script = 'until "$RALPH_BIN" tools signals > said.log; grep hello said.log; do sleep 0.2; done'
        turn = pool.turn(script)
        async with pool.engine() as turns:
            await turns.send_message(turn, "m1", "hello there")
            result = await turns.run(turn, lambda event: None)
        assert result.received == ("m1",)

    do(main)


def test_a_question_of_the_agent_is_answered_by_the_user(pool: Pool) -> None:
    async def main() -> None:
        watcher, questions = Watcher(), QuestionFiles(pool.run.path)
        turn = pool.turn('"$RALPH_BIN" tools interact ask "Which color?"')
        async with pool.engine() as turns:
            running = asyncio.create_task(turns.run(turn, watcher))
            while not questions.read_all():
                await asyncio.sleep(0.1)
            assert [one.question for one in questions.read_all()] == ["Which color?"]
            questions.answer("q1", "blue", "the user", 0.0)
            result = await running
        assert (result.end, watcher.texts()) == (TurnEnd.FINISHED, ["blue"])
        assert len(questions.read_all()) == 1

    do(main)


def test_a_new_engine_adopts_a_running_turn(pool: Pool, tmp_path: Path) -> None:
    go = tmp_path / "go"
    script = f"echo start >> starts.txt; echo ready; while [ ! -e {go} ]; do sleep 0.1; done; echo done"

    async def main() -> None:
        watcher, turn = Watcher(), pool.turn(script)
        async with pool.engine() as turns:
            running = asyncio.create_task(turns.run(turn, watcher))
            await watcher.wait_for("ready")
            running.cancel()
        assert pool.processes()
        again = Watcher()
        async with pool.engine() as turns:
            go.touch()
            result = await turns.run(replace(turn, is_new=False), again)
        assert (result.end, again.texts()) == (TurnEnd.FINISHED, ["ready", "done"])
        assert (pool.root / "starts.txt").read_text() == "start\n"

    do(main)


def test_a_new_engine_stops_a_turn_that_it_did_not_start(pool: Pool) -> None:
    async def main() -> None:
        watcher, turn = Watcher(), pool.turn("echo ready; sleep 300")
        async with pool.engine() as turns:
            running = asyncio.create_task(turns.run(turn, watcher))
            await watcher.wait_for("ready")
            running.cancel()
        adopted = replace(turn, is_new=False)
        async with pool.engine() as turns:
            running = asyncio.create_task(turns.run(adopted, Watcher()))
            await turns.stop(adopted, "stopped")
            assert (await running).end is TurnEnd.STOPPED
        assert pool.processes() == []

    do(main)


def test_a_finished_turn_is_not_repeated(pool: Pool) -> None:
    turn = pool.turn("echo start >> starts.txt; echo note > $RALPH_OUTBOX/note.md")
    first, _ = run_once(pool, turn)
    second, _ = run_once(pool, replace(turn, is_new=False))
    assert (pool.root / "starts.txt").read_text() == "start\n"
    assert (second.end, second.started_at, dict(second.documents)) == (
        first.end,
        first.started_at,
        {"note.md": "note\n"},
    )


def test_a_withdrawn_turn_that_never_began_is_not_started(pool: Pool) -> None:
    turn = replace(pool.turn("echo start >> starts.txt", is_withdrawn=True), is_new=False)
    result, _ = run_once(pool, turn)
    assert result.end is TurnEnd.INTERRUPTED
    assert not (pool.root / "starts.txt").exists()
