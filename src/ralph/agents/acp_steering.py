"""Words of a person that are said to an agent by the Agent Client Protocol while it works.

The protocol has no way for it. Some agents take a second prompt as that, some have a method of their own, and of the others
a second prompt ends the first, so that they are not told.
"""

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable

from ralph.agents import hook
from ralph.agents.acp_program import Trouble
from ralph.agents.stream_lines import Data

ANSWERED = ("@agentclientprotocol/claude-agent-acp", "OpenCode")
"""Agents that take a second prompt as words for the first, and answer both: the turn is over when all are answered."""
UNANSWERED = ("codex-acp",)
"""Agents that take it so, and do not answer it."""
BY_METHOD = {"goose": "_goose/unstable/session/steer"}
"""Agents with a method of their own; it wants the id of what they are at."""
PROGRAMS = ("claude-agent-acp", "codex-acp", "goose", "opencode")
"""The programs of all these."""
LOOK, REFUSAL = 0.2, 0.5
"""Seconds between looks for words, and in which a second prompt is refused where it is."""
_HELD, _SAID = ".held", f"{hook.HEARD}live"


class AcpSteering:
    """The prompts of one turn: the first, and words that come while it is worked on."""

    def __init__(self, agent: str, ask: Callable[..., Awaitable[Data]], session: str) -> None:
        self.agent = agent
        self.ask = ask
        self.session = session
        self.run = ""
        """What goose is at."""
        self._answers: list[asyncio.Future[Data]] = []
        self._over = False

    def update(self, update: Data) -> None:
        """Take note of an update of the conversation."""
        self.run = update.inner("_meta", "goose").word("activeRunId") or self.run

    async def converse(self, prompt: str) -> list[Data]:
        """Have the agent work on a prompt, and hear what comes meanwhile; its answers."""
        first = self._prompt(prompt)
        hearing = asyncio.create_task(self._hear(os.environ.get("RALPH_WORDS", "")))
        try:
            while not first.done() or (self.agent in ANSWERED and self._left()):
                await asyncio.wait(self._left(), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._over = True
            hearing.cancel()
            await asyncio.wait({hearing})
        return [answer.result() for answer in self._answers if answer.done()]

    def _left(self) -> list[asyncio.Future[Data]]:
        return [answer for answer in self._answers if not answer.done()]

    def _prompt(self, text: str) -> asyncio.Future[Data]:
        content = [{"type": "text", "text": text}]
        answer = asyncio.ensure_future(self.ask("session/prompt", sessionId=self.session, prompt=content))
        self._answers.append(answer)
        return answer

    async def _hear(self, words: str) -> None:
        """Look for words, say them, and take note that they were said; those that are refused wait for the next turn."""
        while words and not self._over and self.agent in (*ANSWERED, *UNANSWERED, *BY_METHOD):
            await asyncio.sleep(LOOK)
            if self.agent in BY_METHOD and not self.run:
                continue
            if not (taken := hook.take(words, _HELD)):
                continue
            said = False
            try:
                said = await self._say("\n\n".join(text for _, text in taken))
            finally:
                for name, _ in taken:
                    hook.rename(words, name, _HELD, _SAID if said else hook.WAITING)
            if not said:
                return

    async def _say(self, text: str) -> bool:
        """Whether the agent took it in."""
        try:
            if method := BY_METHOD.get(self.agent):
                content = [{"type": "text", "text": text}]
                await self.ask(method, sessionId=self.session, expectedRunId=self.run, prompt=content)
                return True
        except Trouble:
            return False
        answer = self._prompt(text)
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait({answer}, timeout=REFUSAL)
        if answer.done() and answer.exception():
            self._answers.remove(answer)
            return False
        return True
