"""The Python API for asyncio: the same functions and classes as in `ralph`, to be awaited."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ralph import api
from ralph.core.checks import CheckResult
from ralph.view.model import CheckView, RunRow, RunView

__all__ = ["AsyncMessage", "AsyncRun", "hats", "loop", "open", "runs", "session", "verify"]


@dataclass(frozen=True)
class AsyncMessage:
    """A message that was sent to a run."""

    sync: api.Message

    async def wait(self, timeout: float | None = 60.0) -> api.Ack:
        """Wait until a turn has received the message, for at most `timeout` seconds."""
        return await asyncio.to_thread(self.sync.wait, timeout)


@dataclass(frozen=True)
class AsyncRun:
    """One run of a project."""

    sync: api.RunHandle

    @property
    def id(self) -> str:
        """Its id."""
        return self.sync.id

    async def view(self) -> RunView:
        """Everything about it as it is now."""
        return await asyncio.to_thread(lambda: self.sync.view)

    async def at(self, seq: int) -> RunView:
        """The view as it was after a line of the journal."""
        return await asyncio.to_thread(self.sync.at, seq)

    async def evidence(self) -> tuple[CheckView, ...]:
        """The checks with their commands, results and history."""
        return (await self.view()).checks

    async def follow(self, from_seq: int | str = 0) -> AsyncIterator[api.RunChange]:
        """Everything that happens after a line of the journal or the position of a change, until no engine works on the run."""
        changes = self.sync.follow(from_seq)
        while (change := await asyncio.to_thread(next, changes, None)) is not None:
            yield change

    async def wait(self, timeout: float | None = None) -> api.Result:
        """Wait until no engine works on the run, for at most `timeout` seconds, and return how it ended."""
        return await asyncio.to_thread(self.sync.wait, timeout)

    async def steer(self, text: str, *, to: str = "", now: bool = False) -> AsyncMessage:
        """Change direction: the text stays in force until the run ends."""
        return AsyncMessage(await asyncio.to_thread(self.sync.steer, text, to=to, now=now))

    async def comment(self, *comments: tuple[str, str], to: str = "", removed: bool = False) -> AsyncMessage:
        """Comment on lines of the diff: pairs of a place (`path:12` or `path:12-15`) and a text, sent together."""
        return AsyncMessage(await asyncio.to_thread(lambda: self.sync.comment(*comments, to=to, removed=removed)))

    async def inform(self, text: str, *, to: str = "") -> AsyncMessage:
        """Tell the agents a fact."""
        return AsyncMessage(await asyncio.to_thread(self.sync.inform, text, to=to))

    async def pause(self, *, now: bool = False) -> AsyncMessage:
        """Stop after the turn in progress; `now` interrupts it."""
        return AsyncMessage(await asyncio.to_thread(self.sync.pause, now=now))

    async def abort(self, reason: str = "aborted through the Python API") -> AsyncMessage:
        """End the run for good."""
        return AsyncMessage(await asyncio.to_thread(self.sync.abort, reason))

    async def answer(self, text: str, question: str = "") -> str:
        """Answer an open question. Returns its id."""
        return await asyncio.to_thread(self.sync.answer, text, question)

    async def resume(self) -> "AsyncRun":
        """Continue a run that has stopped, in the background."""
        await asyncio.to_thread(self.sync.resume)
        return self

    async def accept(self, because: str) -> str:
        """Accept work that Ralph could not prove. Returns the id of the action."""
        return await asyncio.to_thread(self.sync.accept, because)

    async def diff(self) -> str:
        """What the run has changed so far, as a unified diff."""
        return await asyncio.to_thread(self.sync.diff)

    async def export_html(self) -> str:
        """The run as one page that needs no network."""
        return await asyncio.to_thread(self.sync.export_html)


async def loop(task: str, *, until: str, **options: Any) -> AsyncRun:
    """Start a loop in the background. The options are those of `ralph.loop`."""
    return AsyncRun(await asyncio.to_thread(lambda: api.loop(task, until=until, **options)))


async def session(request: str, **options: Any) -> AsyncRun:
    """Start a session in the background. The options are those of `ralph.session`."""
    return AsyncRun(await asyncio.to_thread(lambda: api.session(request, **options)))


async def hats(objective: str, **options: Any) -> AsyncRun:
    """Start a run of hats in the background. The options are those of `ralph.hats`."""
    return AsyncRun(await asyncio.to_thread(lambda: api.hats(objective, **options)))


async def runs(root: str | Path = ".") -> list[RunRow]:
    """All runs of the project around a directory, those that need you first."""
    return await asyncio.to_thread(api.runs, root)


async def open(id: str, root: str | Path = ".") -> AsyncRun:
    """A run by its id, or by the beginning of its id."""
    return AsyncRun(await asyncio.to_thread(api.open_run, id, root))


async def verify(criterion: str, cwd: str | Path = ".", *, timeout: float = 600.0) -> tuple[CheckResult, ...]:
    """Run the checks of a criterion once, and return their results."""
    return await asyncio.to_thread(lambda: api.verify(criterion, cwd, timeout=timeout))
