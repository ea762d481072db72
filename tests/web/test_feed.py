"""The stream of a run: nothing is lost or doubled, slow viewers are dropped, and files may vanish at any moment."""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ralph.web import feed as module
from ralph.web.feed import RunFeed, StreamPosition, Viewer


class Journal:
    """A journal that a test writes, line by line."""

    def __init__(self, path: Path) -> None:
        self.run = path
        path.mkdir()
        self.seq = 0

    def add(self, kind: str, **facts: Any) -> None:
        self.seq += 1
        line = {"seq": self.seq, "at": "2026-01-01T00:00:00Z", "type": kind, **facts}
        with (self.run / "journal.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")

    def say(self, turn: int, *texts: str) -> None:
        directory = self.run / "turns" / f"{turn:05d}-actor"
        directory.mkdir(parents=True, exist_ok=True)
        with (directory / "events.jsonl").open("a") as file:
            file.writelines(json.dumps({"kind": "text", "text": text}) + "\n" for text in texts)


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "run")


def parse(data: bytes) -> tuple[str, str, dict]:
    fields = dict(line.split(": ", 1) for line in data.decode().strip().splitlines())
    return fields["event"], fields.get("id", ""), json.loads(fields["data"])


async def take(frames: AsyncIterator[bytes], count: int) -> list[tuple[str, str, dict]]:
    """So many frames. Frames that come together are one piece of the stream."""
    found: list[tuple[str, str, dict]] = []
    while len(found) < count:
        piece = await asyncio.wait_for(anext(frames), 30)
        found += [parse(one) for one in piece.split(b"\n\n") if one]
    return found


def opened(journal: Journal) -> RunFeed:
    feed = RunFeed(journal.run)
    feed.open()
    return feed


def test_a_viewer_that_comes_back_misses_nothing_and_sees_nothing_twice(journal: Journal) -> None:
    async def story() -> list[tuple[str, str, dict]]:
        journal.add("run.started")
        feed = opened(journal)
        frames = feed.watch(None)
        first = await take(frames, 1)
        journal.add("turn.started", turn=1)
        journal.say(1, "one")
        first += await take(frames, 2)
        await frames.aclose()
        journal.say(1, "two", "three")
        journal.add("checks.started", key="x")
        again = opened(journal).watch(StreamPosition.parse(first[-1][1]))
        return first + await take(again, 4)

    frames = asyncio.run(story())
    assert [kind for kind, _, _ in frames] == ["start", "entry", "output", "start", "entry", "output", "output"]
    assert [data["text"] for kind, _, data in frames if kind == "output"] == ["one", "two", "three"]
    assert [data["seq"] for kind, _, data in frames if kind == "entry"] == [2, 3]


def test_output_of_turns_that_ended_meanwhile_is_not_lost(journal: Journal) -> None:
    async def story() -> list[tuple[str, str, dict]]:
        journal.add("run.started")
        journal.add("turn.started", turn=1)
        journal.say(1, "one")
        first = await take(opened(journal).watch(StreamPosition(1)), 3)
        journal.say(1, "two", "three")
        journal.add("turn.ended", turn=1)
        journal.add("turn.started", turn=2)
        journal.say(2, "four")
        journal.add("turn.ended", turn=2)
        # The server was killed meanwhile: another one has never read these turns.
        again = await take(opened(journal).watch(StreamPosition.parse(first[-1][1])), 7)
        last = await take(opened(journal).watch(StreamPosition.parse(again[-1][1])), 1)
        return [*first, *again, *last]

    frames = asyncio.run(story())
    assert [data["text"] for kind, _, data in frames if kind == "output"] == ["one", "two", "three", "four"]
    assert [data["seq"] for kind, _, data in frames if kind == "entry"] == [2, 3, 4, 5]
    assert not any(data.get("gap") for _, _, data in frames)


def test_viewer_that_was_away_too_long_must_fetch_again(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TAIL_BYTES", 200)
    for _ in range(50):
        journal.add("notice", text="x" * 50)

    async def story() -> list[tuple[str, str, dict]]:
        return await take(opened(journal).watch(StreamPosition(1)), 1)

    assert asyncio.run(story())[0][2]["gap"] is True


def test_a_slow_viewer_is_dropped_and_others_are_not(journal: Journal) -> None:
    viewer = Viewer(asyncio.Queue(2))
    for _ in range(3):
        viewer.offer(None)
    assert (viewer.is_dropped, viewer.queue.qsize()) == (True, 2)


def test_a_journal_that_starts_over_is_a_gap(journal: Journal) -> None:
    async def story() -> list[tuple[str, str, dict]]:
        journal.add("run.started")
        journal.add("notice", text="a long line that is gone later")
        frames = opened(journal).watch(None)
        await take(frames, 1)
        (journal.run / "journal.jsonl").write_text('{"seq": 1, "type": "run.started"}\n')
        return await take(frames, 2)

    gap, entry = asyncio.run(story())
    assert (gap[0], entry[0], entry[2]["seq"]) == ("gap", "entry", 1)


def test_a_run_that_is_removed_ends_the_stream(journal: Journal) -> None:
    async def story() -> list[tuple[str, str, dict]]:
        journal.add("run.started")
        frames = opened(journal).watch(None)
        await take(frames, 1)
        shutil.rmtree(journal.run)
        return await take(frames, 1)

    assert asyncio.run(story())[0][0] == "bye"


def test_lines_that_are_broken_or_incomplete_are_skipped(journal: Journal) -> None:
    async def story() -> list[tuple[str, str, dict]]:
        journal.add("run.started")
        frames = opened(journal).watch(None)
        await take(frames, 1)
        with (journal.run / "journal.jsonl").open("ab") as file:
            file.write(b'\xff\xfe not json\n[1, 2]\n{"seq": "x"}\n{"seq": 9, "ty')
        with (journal.run / "journal.jsonl").open("ab") as file:
            file.write(b'pe": "notice"}\n')
        return await take(frames, 1)

    assert asyncio.run(story())[0][2]["seq"] == 9


def test_markup_in_output_stays_text_in_one_frame(journal: Journal) -> None:
    async def story() -> list[tuple[str, str, dict]]:
        journal.add("run.started")
        journal.add("turn.started", turn=1)
        feed = opened(journal)
        frames = feed.watch(None)
        await take(frames, 1)
        journal.say(1, "<script>x</script>\n\nevent: bye\ndata: {}\n\n\x1b[31m")
        return await take(frames, 1)

    kind, _, data = asyncio.run(story())[0]
    assert (kind, data["text"].startswith("<script>")) == ("output", True)


@pytest.mark.parametrize("text", ["", "x", "1;", "1;2", "-1", "1;2:3;", "9" * 20])
def test_other_ids_are_not_positions(text: str) -> None:
    assert StreamPosition.parse(text) is None
