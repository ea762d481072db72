"""Runs one turn of one agent as runs do, and passes messages to it: one JSON object per line, both ways."""

import argparse
import asyncio
import json
import os
import sys
from dataclasses import replace
from pathlib import Path

from ralph.agents import registry
from ralph.core.prompt import Prompt
from ralph.core.turns import AgentEvent, EventKind, Turn, TurnRequest
from ralph.documents.config import Config
from ralph.documents.run_record import RunRecord
from ralph.supervisor.client import KeeperClient
from ralph.workspace.local import LocalTurns
from ralph.workspace.turn_files import TurnFiles


def print_json(**fields: object) -> None:
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--agent", action="append", default=[])
    parser.add_argument("--agent-acp")
    parser.add_argument("--agent-arg", action="append", default=[])
    parser.add_argument("--permissions", default="full-auto")
    parser.add_argument("--task", required=True)
    options, root = parser.parse_args(), Path.cwd()
    selection = registry.select_agents(Config(), tuple(options.agent), None, None, root, options.agent_acp)
    [spec] = selection.chain
    spec = replace(spec, arguments=tuple(options.agent_arg), permissions=options.permissions)
    selection = replace(selection, chain=(spec,))
    run_dir = root / ".ralph" / "runs" / "261115-093000"
    run_dir.mkdir(parents=True)
    keeper, agents = (
        KeeperClient(run_dir),
        {label: registry.make_adapter(spec) for label, spec in selection.by_label.items()},
    )
    [(label, agent)] = agents.items()
    print_json(notice=agent.prepare(os.environ))
    record = RunRecord(run_dir.name, "loop", options.task, "", (), selection, 0.0)
    turns = LocalTurns(run_dir, record, root, root, TurnFiles(root, ()), keeper, agents, {}, dict(os.environ))
    turn = Turn(1, 1, TurnRequest("work", "worker", Prompt.of(options.task)), agent=label)
    sender = asyncio.create_task(send_messages(turns, turn))
    try:
        result = await turns.run(turn, report_received)
        print_json(
            end=result.end,
            received=result.received,
            error=result.error,
            tokens=[result.usage.input_tokens, result.usage.output_tokens],
        )
    finally:
        sender.cancel()
        await keeper.close()


def report_received(event: AgentEvent) -> None:
    if event.kind is EventKind.RECEIVED:
        print_json(event=event.kind, name=event.text, means=event.means)


async def send_messages(turns: LocalTurns, turn: Turn) -> None:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        message = json.loads(line)
        await turns.send_message(turn, message["name"], message["text"])
        print_json(sent=True)


if __name__ == "__main__":
    asyncio.run(main())
