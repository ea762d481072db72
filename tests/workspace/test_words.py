"""Words of a person for an agent that works: left once, taken in once, and known by files alone."""

import asyncio
import contextlib
import multiprocessing
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ralph.agents import hook, registry
from ralph.core.errors import StateError
from ralph.core.stream import AgentEvent, Kind
from ralph.core.turns import Turn, TurnEnd, TurnRequest
from ralph.documents.run_record import AgentSpec, Crew, RunRecord
from ralph.supervisor.client import Keeper
from ralph.workspace.local import LocalTurns
from ralph.workspace.turn_files import TurnFiles

SLEEPER = (sys.executable, "-c", "import time; time.sleep(0.3)")
TURN = Turn(1, 0, TurnRequest("k", "actor", "Do it."), agent="scripted")


@asynccontextmanager
async def pool(root: Path, *steps: str) -> AsyncIterator[LocalTurns]:
    """A pool whose agent plays these steps."""
    scenario = root / "s.yaml"
    scenario.write_text("turns:\n- steps:\n" + "".join(f"  - {step}\n" for step in steps or ("say: done",)))
    specs = (AgentSpec("scripted", scenario=str(scenario)), AgentSpec("command", SLEEPER))
    workspace, run_dir = root / "workspace", root / "run"
    workspace.mkdir(exist_ok=True)
    run_dir.mkdir(exist_ok=True)
    keeper = Keeper(run_dir)
    record = RunRecord("261115-093000", "loop", "", "", (), Crew(specs), 0.0)
    agents = {spec.label: registry.make(spec) for spec in specs}
    try:
        yield LocalTurns(
            run_dir, record, workspace, workspace, TurnFiles(workspace, ()), keeper, agents, {}, dict(os.environ)
        )
    finally:
        await keeper.close()


def words_of(root: Path) -> list[str]:
    return sorted(os.listdir(root / "run/turns/00001-actor/words"))


async def appearance(path: Path) -> None:
    while not path.exists():
        await asyncio.sleep(0.01)


def test_words_reach_an_agent_that_works(tmp_path: Path) -> None:
    async def main() -> None:
        async with pool(tmp_path, "write: {path: here, content: x}", "listen: {seconds: 99, into: heard.txt}") as turns:
            events: list[AgentEvent] = []
            running = asyncio.create_task(turns.run(TURN, events.append))
            await appearance(tmp_path / "workspace/here")
            assert await turns.tell(TURN, "001-steer.yaml", "Use httpx.\nNot requests.")
            result = await running
            assert (result.end, result.heard) == (TurnEnd.FINISHED, ("001-steer.yaml",))
            told = [event for event in events if event.kind is Kind.HEARD]
            assert told == [AgentEvent(Kind.HEARD, "001-steer.yaml", tool="hook")]
            assert (tmp_path / "workspace/heard.txt").read_text() == "Use httpx.\nNot requests.\n"
            assert '"heard"' in (tmp_path / "run/turns/00001-actor/events.jsonl").read_text()

    asyncio.run(main())


def test_words_may_come_before_the_agent_has_started(tmp_path: Path) -> None:
    async def main() -> None:
        async with pool(tmp_path, "say: one", "listen: {seconds: 0, into: heard.txt}") as turns:
            for name in ("b", "a"):
                await turns.tell(TURN, name, f"words {name}")
                await asyncio.sleep(0.02)  # the clock of some file systems goes in steps
            result = await turns.run(TURN, lambda event: None)
            assert result.heard == ("b", "a"), "in the order in which they were said"
            assert (tmp_path / "workspace/heard.txt").read_text() == "words b\nwords a\n"

    asyncio.run(main())


def test_another_engine_knows_what_was_heard(tmp_path: Path) -> None:
    async def main() -> None:
        async with pool(tmp_path, "say: one") as turns:
            await turns.tell(TURN, "a", "words")
            first = await turns.run(TURN, lambda event: None)
        async with pool(tmp_path) as turns:
            events: list[AgentEvent] = []
            again = await turns.run(TURN, events.append)
            assert again == first and again.heard == ("a",)
            assert [event.text for event in events if event.kind is Kind.HEARD] == ["a"]
            assert await turns.tell(TURN, "a", "words") and words_of(tmp_path) == ["a.heard.hook"]

    asyncio.run(main())


def test_an_agent_that_was_taken_over_hears(tmp_path: Path) -> None:
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
            assert await turns.tell(TURN, "a", "to the first engine's agent")
            await appearance(tmp_path / "workspace/there")
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running
            events: list[AgentEvent] = []
            taken_over = asyncio.create_task(turns.run(TURN, events.append))
            assert await turns.tell(TURN, "a", "again") and await turns.tell(TURN, "b", "to the second's")
            result = await taken_over
            assert (result.end, result.heard) == (TurnEnd.FINISHED, ("a", "b"))
            assert [event.text for event in events if event.kind is Kind.HEARD] == ["a", "b"]

    asyncio.run(main())


def test_words_that_nobody_took_in_are_not_heard(tmp_path: Path) -> None:
    async def main() -> None:
        async with pool(tmp_path) as turns:
            await turns.run(TURN, lambda event: None)
            assert await turns.tell(TURN, "late", "too late")
            assert await turns.tell(TURN, "late", "too late"), "left once"
            assert (await turns.run(TURN, lambda event: None)).heard == ()
            assert words_of(tmp_path) == ["late.txt"]

    asyncio.run(main())


def test_a_program_of_which_nothing_is_known_cannot_hear(tmp_path: Path) -> None:
    async def main() -> None:
        async with pool(tmp_path) as turns:
            deaf = Turn(1, 0, TurnRequest("k", "actor", "Do it."), agent=" ".join(SLEEPER))
            assert not await turns.tell(deaf, "a", "words")
            assert (tmp_path / "run/turns/00001-actor/words/a.txt").exists(), "it may ask by itself"

    asyncio.run(main())


@pytest.mark.parametrize("name", ["../a", "a/b", "/a", ".a", ""])
def test_names_that_lead_elsewhere_are_refused(name: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with pool(tmp_path) as turns:
            with pytest.raises(StateError, match="plain file name"):
                await turns.tell(TURN, name, "words")

    asyncio.run(main())


def test_one_of_many_takes_words_in(tmp_path: Path) -> None:
    names = [f"{number:03d}.heard.yaml" for number in range(200)]
    for name in names:
        (tmp_path / f"{name}.txt").write_text(name)
    with multiprocessing.Pool(4) as claimers:
        taken = claimers.starmap(hook.claim, [(str(tmp_path), "hook")] * 4)
    assert sorted(text for texts in taken for text in texts) == names
    assert sorted(hook.heard(str(tmp_path))) == [(name, "hook") for name in names]
