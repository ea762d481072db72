"""The program on the other side of the Agent Client Protocol: started, spoken with a line a message, and ended."""

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from typing import Any

from ralph.agents.failures import failure_in
from ralph.agents.stream_lines import brief, parse
from ralph.core.stream import Failure
from ralph.supervisor.processes import become_subreaper, descendants, signal_all

LONGEST_LINE = 50_000_000
"""Bytes of one message: whole files come in some."""
STDERR_KEPT = 8000
LEAVING, ENDING, DYING = 2.0, 1.5, 5.0
"""Seconds that it has to go by itself when it is told that nothing more comes, after it was asked to, and to be killed."""


class Trouble(Exception):
    """What ends a turn before its time, in the words that a person is told."""

    def __init__(self, told: str, failure: Failure | None = None, code: object = None) -> None:
        super().__init__(told)
        self.failure = failure
        self.code = code
        """Of an error that the agent answered with."""


class AgentProgram:
    """A running agent; what the SDK calls a transport."""

    def __init__(self, words: Sequence[str], process: Process) -> None:
        self.words = words
        self.strange = ""
        """The first thing that it printed and that is no message."""
        self._process = process
        self._said = bytearray()
        self._listening = asyncio.create_task(self._listen())

    @classmethod
    async def start(cls, words: Sequence[str]) -> "AgentProgram":
        """Start it in the current directory; whatever it starts itself becomes ours, should it leave it behind."""
        become_subreaper()
        try:
            process = await asyncio.create_subprocess_exec(
                *words, stdin=PIPE, stdout=PIPE, stderr=PIPE, limit=LONGEST_LINE, start_new_session=True
            )
        except OSError as error:
            told = f"{words[0]} cannot be started: {error.strerror}; install it, or give its full path"
            raise Trouble(told, Failure.ACCESS) from error
        return cls(words, process)

    async def send(self, message: dict[str, Any]) -> None:
        """One message to it."""
        assert self._process.stdin
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        await self._process.stdin.drain()

    async def receive(self) -> dict[str, Any] | None:
        """The next message of it; None where none comes any more. What is no message is only remembered."""
        assert self._process.stdout
        while True:
            try:
                line = await self._process.stdout.readline()
            except ValueError:
                self.strange = f"a line of more than {LONGEST_LINE // 1_000_000} MB"
                return None
            if not line:
                return None
            if message := parse(line):
                return dict(message)
            self.strange = self.strange or brief(line[:2000].decode(errors="replace"))

    async def close(self) -> None:
        """Say that nothing more comes."""
        assert self._process.stdin
        with contextlib.suppress(OSError, RuntimeError):
            self._process.stdin.close()

    async def fate(self) -> tuple[Failure | None, str]:
        """What became of it where it says nothing more: its exit, and its last words."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), LEAVING)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._listening), LEAVING)
        code = self._process.returncode
        how = "closed its output" if code is None else f"ended with exit code {code}"
        how = f"was killed by signal {-code}" if code is not None and code < 0 else how
        failure, words = failure_in(self._said.decode(errors="replace")) or (None, "")
        told = "; ".join(part for part in (self.strange and f"it printed: {self.strange}", words) if part)
        return failure, f"it {how}" + (f" ({told})" if told else "")

    async def end(self) -> None:
        """Have it go by itself, then end what is left of it and of all that it started."""
        await self.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), LEAVING)
        for number, patience in ((signal.SIGTERM, ENDING), (signal.SIGKILL, DYING)):
            deadline = time.monotonic() + patience
            signal_all(number)
            while descendants(os.getpid()) and time.monotonic() < deadline:
                await asyncio.sleep(0.02)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.gather(self._process.wait(), self._listening), DYING)

    async def _listen(self) -> None:
        """Hand on what it says to people, and keep the end of it."""
        assert self._process.stderr
        while chunk := await self._process.stderr.read(1 << 16):
            self._said += chunk
            del self._said[:-STDERR_KEPT]
            with contextlib.suppress(OSError):
                sys.stderr.buffer.write(chunk)
                sys.stderr.buffer.flush()
