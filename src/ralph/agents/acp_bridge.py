"""The bridge to any agent that speaks the Agent Client Protocol: `python -P -m ralph.agents.acp_bridge -- PROGRAM ...`.

It reads a prompt from standard input, has the agent work on it in the current directory, and tells what it does as events
in Ralph's own form, one a line. Every permission is given, except for tools that are forbidden.

Of the files, only writing is offered to the agent: it is then confined to the workspace where the agent writes through us.
Reading is not: Gemini CLI does not understand that a file is not there, whatever it is told, and could make no new ones.
An agent that reads through us all the same is answered, within the workspace. Terminals are the agent's own.
"""

import argparse
import asyncio
import contextlib
import importlib.util
import logging
import signal
import sys
import time
from collections.abc import Sequence

from ralph.agents.acp_program import AgentProgram, Trouble
from ralph.agents.acp_turn import PATIENCE, AcpTurn, Asked
from ralph.agents.agent import FULL_AUTO, PERMISSIONS
from ralph.agents.failures import failure_of
from ralph.agents.programs import event_line
from ralph.agents.reader import Complaints, gone_wrong
from ralph.core.stream import AgentEvent, Failure

CANCELLING = 2.0
"""Seconds in which an agent may end a turn that is cancelled."""
SIGN_OF_LIFE = 5.0
"""Seconds after which something is printed while the agent does what is no event, so that nobody thinks that it hangs."""
MISSING = "the SDK of the Agent Client Protocol is missing; install it with `pip install 'ralph-engine[acp]'`"


def main(arguments: Sequence[str] | None = None) -> int:
    """Do one turn; 0 only where the agent has ended it by itself."""
    asked, output = _asked(arguments), EventOutput()
    logging.disable()
    try:
        if importlib.util.find_spec("acp") is None:
            raise Trouble(MISSING, Failure.ACCESS)
        prompt = sys.stdin.buffer.read().decode(errors="replace")
        return asyncio.run(converse(asked, prompt, output))
    except Trouble as trouble:
        output.complain(trouble)
        return 1


async def converse(asked: Asked, prompt: str, output: "EventOutput") -> int:
    """Have one turn to its end, or until a signal ends it; the exit code."""
    signals: asyncio.Queue[int] = asyncio.Queue()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, signals.put_nowait, number)
    program = await AgentProgram.start(asked.words)
    try:
        turn = AcpTurn(asked, program, output.tell)
        work = asyncio.create_task(turn.run(prompt))
        stopped, halted = asyncio.create_task(signals.get()), asyncio.create_task(turn.halted.wait())
        await asyncio.wait({work, stopped, halted}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            with contextlib.suppress(OSError, TimeoutError):
                await asyncio.wait_for(turn.cancel(), CANCELLING)
            await asyncio.wait({work}, timeout=CANCELLING)
            work.cancel()
        await asyncio.wait({work})
        trouble = None if work.cancelled() else work.exception()
        if isinstance(trouble, Trouble) and stopped.done():
            output.complain(trouble)
        elif trouble:
            raise trouble
        return 128 + stopped.result() if stopped.done() else 0
    finally:
        await program.end()


class EventOutput:
    """Where events are printed, at once."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def tell(self, event: AgentEvent | None, **more: object) -> None:
        """Print an event; where there is none, an empty line as a sign of life, now and then."""
        now = time.monotonic()
        if event or now - self._last > SIGN_OF_LIFE:
            self._last = now
            sys.stdout.buffer.write(event_line(event, **more) if event else b"\n")
            sys.stdout.buffer.flush()

    def complain(self, trouble: Trouble) -> None:
        """Print why a turn failed, and that it is over."""
        kind = trouble.failure or failure_of(str(trouble))
        for event in (*Complaints().about(str(trouble), time.time(), kind), gone_wrong(str(trouble), kind)):
            self.tell(event)


def _asked(arguments: Sequence[str] | None) -> Asked:
    parser = argparse.ArgumentParser(prog="ralph acp-bridge", description=main.__doc__)
    parser.add_argument("--model", default="", help="the model that the agent shall use")
    parser.add_argument("--session", default="", help="the conversation to go on with")
    parser.add_argument("--without-tool", action="append", default=[], help="a tool that it may not use")
    parser.add_argument(
        "--permissions", default=FULL_AUTO, choices=PERMISSIONS, help="what it may do without being asked"
    )
    parser.add_argument("--patience", type=float, default=PATIENCE, help="seconds in which it must greet")
    parser.add_argument("words", nargs=argparse.REMAINDER, metavar="-- PROGRAM ...", help="the agent")
    given = parser.parse_args(arguments)
    words = given.words[1:] if given.words[:1] == ["--"] else given.words
    if not words:
        parser.error("the program of the agent is missing")
    return Asked(
        words=words,
        model=given.model,
        session=given.session,
        without_tools=given.without_tool,
        patience=given.patience,
        permissions=given.permissions,
    )


if __name__ == "__main__":
    sys.exit(main())
