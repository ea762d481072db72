"""The bell at a mailbox: it rings for whatever comes, however it comes."""

import asyncio
import ctypes
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ralph.core.questions import Question
from ralph.core.signals import Signal, SignalType
from ralph.store import watch_directories
from ralph.store.mailbox import Mailbox
from ralph.store.questions import Questions


def _by_hand(place: Path) -> None:
    (place / "signals" / "inputs" / "mine.yaml").write_text("type: PAUSE\n")


def _moved_in(place: Path) -> None:
    (place / "elsewhere.yaml").write_text("type: PAUSE\n")
    os.rename(place / "elsewhere.yaml", place / "signals" / "inputs" / "mine.yaml")


def _asked(place: Path) -> None:
    Questions(place / "questions").ask(Question("", "Which way?"))


def _by_command(place: Path) -> None:
    Mailbox(place / "signals").post(Signal("", SignalType.PAUSE))


@pytest.mark.parametrize("comes", [_by_command, _by_hand, _moved_in, _asked])
def test_it_rings_for_what_comes(tmp_path: Path, comes: Callable[[Path], None]) -> None:
    async def rung() -> None:
        heard = asyncio.Event()
        with watch_directories.watch(heard.set, tmp_path / "signals" / "inputs", tmp_path / "questions") as rings:
            assert rings
            await asyncio.sleep(0)
            assert not heard.is_set()
            comes(tmp_path)
            await asyncio.wait_for(heard.wait(), 60)

    asyncio.run(rung())


def test_where_the_system_has_no_events_to_spare_nobody_rings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Exhausted:
        @staticmethod
        def inotify_init1(flags: int) -> int:
            return -1

    async def rings() -> bool:
        with watch_directories.watch(lambda: None, tmp_path) as rings:
            return rings

    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: Exhausted)
    assert not asyncio.run(rings())


def test_nothing_stays_open(tmp_path: Path) -> None:
    async def hang() -> None:
        with watch_directories.watch(lambda: None, tmp_path):
            pass

    before = len(os.listdir("/proc/self/fd"))
    asyncio.run(hang())
    assert len(os.listdir("/proc/self/fd")) == before
