"""Recorded turns, played to the reader of an adapter."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ralph.agents.adapter import Adapter, Call
from ralph.core.limits import Usage
from ralph.core.turns import AgentEvent, EventKind, Failure
from ralph.workspace.turn_files import OutputSummary

STREAMS = Path(__file__).with_name("streams")
Line = bytes | dict[str, Any]


def lines_of(stream: str) -> list[bytes]:
    """The lines of a recorded stream."""
    return (STREAMS / f"{stream}.jsonl").read_bytes().splitlines()


def played(
    agent: Adapter, told: str | Iterable[Line], model: str = "", before: Usage | None = None
) -> tuple[list[AgentEvent], OutputSummary]:
    """What a reader makes of a recorded stream, or of lines: the events, and the account of them."""
    reader, account, events = agent.reader(Call(Path(), model), before or Usage()), OutputSummary(), []
    for line in lines_of(told) if isinstance(told, str) else told:
        for event in reader.read(line if isinstance(line, bytes) else json.dumps(line).encode()):
            events.append(event)
            account.take(event)
    return events, account


def billed(usage: Usage) -> Usage:
    """Only what is paid for of a usage, without the details that people want to see."""
    return Usage(usage.input_tokens, usage.output_tokens, usage.cost, usage.unpriced)


def texts(events: Iterable[AgentEvent], kind: EventKind) -> list[str]:
    """The texts of the events of a kind."""
    return [event.text for event in events if event.kind is kind]


def refuse_success(agent: Adapter, stream: str, failure: Failure, said: str) -> str:
    """Holds a recorded turn to have failed, for a reason that is told once; what is told of it."""
    events, account = played(agent, stream)
    assert not account.finished and account.failure is failure and said in account.error
    assert len([event for event in events if event.kind in (EventKind.LIMIT, EventKind.ERROR)]) == 1, (
        "a failure is told once"
    )
    return account.error


def signed_in(agent: Adapter, environment: dict[str, str], file: str, home: Path) -> bool | None:
    """Whether it is known to be signed in, with a file in the home directory; keys named `sk` are not told."""
    if file:
        (home / file).parent.mkdir(parents=True)
        (home / file).touch()
    known, how = agent.sign_in(environment, home)
    assert how and "sk" not in how.split()
    return known
