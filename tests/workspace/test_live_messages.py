"""Messages of the user to an agent that works: left once, received once, and known by files alone."""

import asyncio
import contextlib
import multiprocessing
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from ralph.agents import live_messages, registry
from ralph.core.errors import StateError
from ralph.core.prompt import Prompt
from ralph.core.turns import AgentEvent, EventKind, Turn, TurnEnd, TurnRequest
from ralph.documents.run_record import AgentSelection, AgentSpec, RunRecord
from ralph.supervisor.client import KeeperClient
from ralph.workspace.local import LocalTurns
from ralph.workspace.turn_files import TurnFiles

SLEEPER = (sys.executable, "-c", "import time; time.sleep(0.3)")
TURN = Turn(1, 0, TurnRequest("k", "actor", Prompt.of("Do it.")), agent="scripted")


@asynccontextmanager
async def pool(root: Path, *steps: str) -> AsyncIterator[LocalTurns]:
    """A pool whose agent plays these steps."""
    scenario = root / "s.yaml"
    scenario.write_text("turns:\n- steps:\n" + "".join(f"  - {step}\n" for step in steps or ("say: done",)))
    specs = (AgentSpec("scripted", scenario=str(scenario)), AgentSpec("command", SLEEPER))
    workspace, run_dir = root / "workspace", root / "run"
    workspace.mkdir(exist_ok=True)
    run_dir.mkdir(exist_ok=True)
    keeper = KeeperClient(run_dir)
    record = RunRecord("261115-093000", "loop", "", "", (), AgentSelection(specs), 0.0)
    agents = {spec.label: registry.make_adapter(spec) for spec in specs}
    try:
        yield LocalTurns(
            run_dir, record, workspace, workspace, TurnFiles(workspace, ()), keeper, agents, {}, dict(os.environ)
        )
    finally:
        await keeper.close()


def list_messages(root: Path) -> list[str]:
    return sorted(os.listdir(root / "run/turns/00001-actor/messages"))


async def appearance(path: Path) -> None:
    while not path.exists():
        await asyncio.sleep(0.01)


def test_a_message_reaches_a_working_agent(tmp_path: Path) -> None:
    async def main() -> None:
        async with pool(tmp_path, "write: {path: here, content: x}", "listen: {seconds: 99, into: heard.txt}") as turns:
            events: list[AgentEvent] = []
            running = asyncio.create_task(turns.run(TURN, events.append))
            await appearance(tmp_path / "workspace/here")
            await turns.send_message(TURN, "001-steer.yaml", "Use httpx.\nNot requests.")
            result = await running
            assert (result.end, result.received) == (TurnEnd.FINISHED, ("001-steer.yaml",))
            told = [event for event in events if event.kind is EventKind.RECEIVED]
            assert told == [AgentEvent(EventKind.RECEIVED, "001-steer.yaml", means="hook")]
            assert (tmp_path / "workspace/heard.txt").read_text() == "Use httpx.\nNot requests.\n"
            assert '"received"' in (tmp_path / "run/turns/00001-actor/events.jsonl").read_text()

    asyncio.run(main())


def test_a_message_may_come_before_the_agent_has_started(tmp_path: Path) -> None:
    async def main() -> None:
        async with pool(tmp_path, "say: one", "listen: {seconds: 0, into: heard.txt}") as turns:
            for name in ("b", "a"):
                await turns.send_message(TURN, name, f"words {name}")
                await asyncio.sleep(0.02)  # the clock of some file systems goes in steps
            result = await turns.run(TURN, lambda event: None)
            assert result.received == ("b", "a"), "in the order in which they were said"
            assert (tmp_path / "workspace/heard.txt").read_text() == "words b\nwords a\n"

    asyncio.run(main())


def test_a_message_to_a_turn_whose_directory_is_not_there_yet_reaches_it(tmp_path: Path) -> None:
    """A worktree is set up first, which takes a while. What others put in the place of the turn is moved away."""

    async def main() -> None:
        async with pool(tmp_path, "say: one", "listen: {seconds: 0, into: heard.txt}") as turns:
            new = replace(TURN, is_new=True)
            for name in ("b", "a"):
                await turns.send_message(new, name, f"words {name}")
            result = await turns.run(new, lambda event: None)
            assert (sorted(result.received), result.warnings) == (["a", "b"], ())
            assert not list((tmp_path / "run/turns").glob("refused-*"))
            await turns.send_message(new, "late", "words late")
            assert "late.txt" in list_messages(tmp_path)

    asyncio.run(main())


def test_another_engine_knows_which_messages_were_received(tmp_path: Path) -> None:
    async def main() -> None:
        async with pool(tmp_path, "say: one") as turns:
            await turns.send_message(TURN, "a", "words")
            first = await turns.run(TURN, lambda event: None)
        async with pool(tmp_path) as turns:
            events: list[AgentEvent] = []
            again = await turns.run(TURN, events.append)
            assert again == first and again.received == ("a",)
            assert [event.text for event in events if event.kind is EventKind.RECEIVED] == ["a"]
            await turns.send_message(TURN, "a", "words")
            assert list_messages(tmp_path) == ["a.received.hook"], "once for each name"

    asyncio.run(main())


def test_adopted_agent_receives_messages(tmp_path: Path) -> None:
    steps = (
        "write: {path: here, content: x}",
        "listen: {seconds: 300}",
        "write: {path: there, content: x}",
        "listen: 300",
    )

    async def main() -> None:
        async with pool(tmp_path, *steps) as turns:
            running = asyncio.create_task(turns.run(TURN, lambda event: None))
            await appearance(tmp_path / "workspace/here")
            await turns.send_message(TURN, "a", "to the first engine's agent")
            await appearance(tmp_path / "workspace/there")
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running
            events: list[AgentEvent] = []
            taken_over = asyncio.create_task(turns.run(TURN, events.append))
            await turns.send_message(TURN, "a", "again")
            await turns.send_message(TURN, "b", "to the second's")
            result = await taken_over
            assert (result.end, result.received) == (TurnEnd.FINISHED, ("a", "b"))
            assert [event.text for event in events if event.kind is EventKind.RECEIVED] == ["a", "b"]

    asyncio.run(main())


def test_messages_that_the_agent_did_not_take_are_not_received(tmp_path: Path) -> None:
    async def main() -> None:
        async with pool(tmp_path) as turns:
            await turns.run(TURN, lambda event: None)
            await turns.send_message(TURN, "late", "too late")
            await turns.send_message(TURN, "late", "too late")
            assert (await turns.run(TURN, lambda event: None)).received == ()
            assert list_messages(tmp_path) == ["late.txt"]

    asyncio.run(main())


def test_a_message_for_an_unknown_program_waits_in_its_directory(tmp_path: Path) -> None:
    async def main() -> None:
        async with pool(tmp_path) as turns:
            deaf = Turn(1, 0, TurnRequest("k", "actor", Prompt.of("Do it.")), agent=" ".join(SLEEPER))
            await turns.send_message(deaf, "a", "words")
            assert (tmp_path / "run/turns/00001-actor/messages/a.txt").exists(), "it may ask by itself"

    asyncio.run(main())


@pytest.mark.parametrize("name", ["../a", "a/b", "/a", ".a", ""])
def test_message_names_with_a_path_are_refused(name: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with pool(tmp_path) as turns:
            with pytest.raises(StateError, match="plain file name"):
                await turns.send_message(TURN, name, "words")

    asyncio.run(main())


def test_only_one_process_claims_a_message(tmp_path: Path) -> None:
    names = [f"{number:03d}.received.yaml" for number in range(200)]
    for name in names:
        (tmp_path / f"{name}.txt").write_text(name)
    with multiprocessing.Pool(4) as claimers:
        taken = claimers.starmap(live_messages.claim_messages, [(str(tmp_path), "hook")] * 4)
    assert sorted(text for texts in taken for text in texts) == names
    assert sorted(live_messages.list_received(str(tmp_path))) == [(name, "hook") for name in names]
