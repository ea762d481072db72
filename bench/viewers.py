"""Measures the web server under load: 50 pages that watch one run at 40 events a second, against one page.

Called by bench/run.py. Every event carries the time at which it was written, so a viewer knows how late it came.
"""

import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from ralph.core.entries import RunStarted, TurnStarted
from ralph.store.journal import Journal
from ralph.store.projects import name_project
from ralph.store.runs import Project, RunDir
from views import Row, create_run

VIEWERS, EVENTS_PER_SECOND = 50, 40
LATE, PROCESSOR, MEMORY = 5.0, 50.0, 2.0
"""How much later an event may come with all viewers, and how much more of the processor and the memory it may take."""


@dataclass
class Load:
    """What the viewers saw, and what it cost the server."""

    lost: int = 0
    delays: list[float] = field(default_factory=list)
    processor: float = 0.0
    memory: float = 0.0
    """The most that the server had in memory, in MB."""


def bench_viewers(row: Row, seconds: float) -> None:
    """Delay of an event and processor time of the server, with many viewers and with one. None may lose an event."""
    one, many = measure_load(1, seconds), measure_load(VIEWERS, seconds)
    if one.lost or many.lost:
        print(f"viewers: LOST {one.lost} events with one viewer, {many.lost} with {VIEWERS}")
    what = f"with {VIEWERS} pages at {EVENTS_PER_SECOND} events/s for {seconds:g} s, {many.lost} events lost"
    delays = [statistics.quantiles(load.delays, n=20)[-1] * 1000 for load in (many, one)]
    row(f"delay (95 %) {what}", f"{delays[0]:.0f} ms", f"{delays[1]:.0f} ms", delays[0] / delays[1], LATE)
    ratio = many.processor / max(one.processor, 0.01)
    row("processor time of the server", f"{many.processor:.2f} s", f"{one.processor:.2f} s", ratio, PROCESSOR)
    more = many.memory / one.memory
    row("memory of the server", f"{many.memory:.0f} MB", f"{one.memory:.0f} MB", more, MEMORY)


def measure_load(viewers: int, seconds: float) -> Load:
    """Serve one run to that many viewers while a turn of it writes events."""
    place = Path(tempfile.mkdtemp(prefix="ralph-bench-viewers-"))
    environment = {**os.environ, "XDG_STATE_HOME": str(place / "state")}
    root = place / "project"
    root.mkdir()
    run = create_run(Project(root), "261117-093000-k3x9", 0)
    journal, _ = Journal.open(run.path / "journal.jsonl")
    journal.append(1000.0, RunStarted(1, "1", run.id, {}))
    journal.append(1001.0, TurnStarted(1, "iteration-1", "implementer", 1, "scripted", is_iteration=True))
    command = [sys.executable, "-P", "-m", "ralph", "web", "--json", "--port", "0"]
    server = subprocess.Popen(command, cwd=root, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout
        link = json.loads(server.stdout.readline())["link"]
        port, token = int(link.split(":")[2].partition("/")[0]), link.rpartition("=")[2]
        path = f"/api/stream?run={run.id}@{name_project(root)}"
        before = processor_seconds(server.pid)
        load = asyncio.run(watch_and_write(run, viewers, seconds, port, token, path))
        load.processor = processor_seconds(server.pid) - before
        load.memory = peak_memory(server.pid)
        return load
    finally:
        server.terminate()
        server.wait(30)
        shutil.rmtree(place, ignore_errors=True)


async def watch_and_write(run: RunDir, viewers: int, seconds: float, port: int, token: str, path: str) -> Load:
    load, count = Load(), round(seconds * EVENTS_PER_SECOND)
    ready = asyncio.Barrier(viewers + 1)
    watching = [asyncio.create_task(watch(count, ready, port, token, path)) for _ in range(viewers)]
    await ready.wait()
    file = run.path / "turns" / "00001-implementer" / "events.jsonl"
    file.parent.mkdir(parents=True)
    start = time.monotonic()
    with file.open("a") as events:
        for number in range(count):
            await asyncio.sleep(max(0.0, start + number / EVENTS_PER_SECOND - time.monotonic()))
            events.write(json.dumps({"kind": "text", "text": f"{number} {time.time()}"}) + "\n")
            events.flush()
    for seen in await asyncio.gather(*watching):
        load.lost += count - len(seen)
        load.delays += seen.values()
    return load


async def watch(count: int, ready: asyncio.Barrier, port: int, token: str, path: str) -> dict[int, float]:
    """The delay of every event that one viewer got, by the number of the event."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
    seen: dict[int, float] = {}
    is_ready = False
    try:
        while len(seen) < count:
            line = await asyncio.wait_for(reader.readline(), 30)
            if not line:
                break
            if not is_ready and line.startswith(b"event: start"):
                is_ready = True
                await ready.wait()
            if line.startswith(b"data: ") and b'"text"' in line:
                number, written = json.loads(line[6:])["text"].split()
                seen[int(number)] = time.time() - float(written)
    except TimeoutError:
        pass
    finally:
        writer.close()
    return seen


def processor_seconds(process: int) -> float:
    """The processor time that a process used so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_memory(process: int) -> float:
    """The most that a process had in memory so far, in MB."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024
