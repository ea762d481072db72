"""Has one agent do one turn, in the pool that runs use, and passes on words for it: one JSON object a line, both ways."""

import argparse
import asyncio
import json
import os
import sys
from pathlib import Path

from ralph.agents import registry
from ralph.core.stream import AgentEvent, Kind
from ralph.core.turns import Turn, TurnRequest
from ralph.documents.config import Config
from ralph.documents.run_record import RunRecord
from ralph.supervisor.client import Keeper
from ralph.workspace.local import LocalTurns
from ralph.workspace.turn_files import TurnFiles


def tell(**about: object) -> None:
    sys.stdout.write(json.dumps(about) + "\n")
    sys.stdout.flush()


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--agent", action="append", default=[])
    parser.add_argument("--agent-acp")
    parser.add_argument("--task", required=True)
    given, root = parser.parse_args(), Path.cwd()
    crew = registry.crew(Config(), tuple(given.agent), None, None, root, given.agent_acp)
    run_dir = root / ".ralph" / "runs" / "261115-093000"
    run_dir.mkdir(parents=True)
    keeper, agents = Keeper(run_dir), {label: registry.make(spec) for label, spec in crew.everyone.items()}
    [(label, agent)] = agents.items()
    tell(notice=agent.ready(os.environ))
    record = RunRecord(run_dir.name, "loop", given.task, "", (), crew, 0.0)
    turns = LocalTurns(run_dir, record, root, root, TurnFiles(root, ()), keeper, agents, {}, dict(os.environ))
    turn = Turn(1, 1, TurnRequest("work", "worker", given.task), agent=label)
    hearing = asyncio.create_task(hear(turns, turn))
    try:
        result = await turns.run(turn, watch)
        tell(
            end=result.end,
            heard=result.heard,
            error=result.error,
            tokens=[result.usage.input_tokens, result.usage.output_tokens],
        )
    finally:
        hearing.cancel()
        await keeper.close()


def watch(event: AgentEvent) -> None:
    if event.kind is Kind.HEARD:
        tell(event=event.kind, name=event.text, means=event.tool)


async def hear(turns: LocalTurns, turn: Turn) -> None:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        words = json.loads(line)
        tell(told=await turns.tell(turn, words["name"], words["text"]))


if __name__ == "__main__":
    asyncio.run(main())
