"""Measures how fast runs are listed and opened: 1,000 runs of which 10 are alive, and a run with 100,000 journal lines.

Called by bench/run.py. The bounds are the times of DESIGN.md on a quiet machine, as ratios.
"""

import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from unittest import mock

from ralph.app.run_watch import RunWatch
from ralph.core.checks import CheckResult, CheckStatus, Verdict
from ralph.core.entries import ChecksStarted, Entry, RunStarted
from ralph.core.events import ChecksEnded, RunEnded, TurnEnded, TurnStarted
from ralph.core.limits import Limits, Spent, Usage
from ralph.core.outcomes import Outcome
from ralph.core.turns import TurnEnd, TurnResult
from ralph.documents.run_record import AgentSelection, AgentSpec, RunRecord
from ralph.store.journal import Journal
from ralph.store.runs import Project, RunDir

RUNS, ALIVE, LINES = 1000, 10, 100_000
LIST_SECONDS, OPEN_SECONDS = 0.150, 0.300
Row = Callable[[str, str, str, float, float], None]


def bench_views(row: Row) -> None:
    """Time of `ralph status` with many runs, and of opening a long run, cold and with a snapshot."""
    place = Path(tempfile.mkdtemp(prefix="ralph-bench-views-"))
    with mock.patch.dict(os.environ, XDG_STATE_HOME=str(place / "state")):
        try:
            _bench_list(row, place / "many")
            _bench_long_run(row, place / "long")
        finally:
            shutil.rmtree(place, ignore_errors=True)


def _bench_list(row: Row, place: Path) -> None:
    place.mkdir()
    project = Project(place)
    locks = []
    for number in range(RUNS):
        run = create_run(
            project, f"2611{number // 100 + 1:02d}-09{number % 100 // 10:02d}{number % 10:02d}-k3x9", number
        )
        alive = number >= RUNS - ALIVE
        write_journal(run, 5, Outcome.SUCCESS if number % 2 and not alive else None)
        if alive:
            locks.append(run.lock())
    command = [str(Path(sys.executable).with_name("ralph")), "status"]
    measure([command[0], "--help"], place)
    show(
        row,
        f"first `ralph status` with {RUNS} runs ({ALIVE} alive), nothing cached",
        [measure(command, place)],
        LIST_SECONDS,
    )
    show(
        row,
        f"`ralph status` with {RUNS} runs ({ALIVE} alive)",
        [measure(command, place) for _ in range(7)],
        LIST_SECONDS,
    )
    for lock in locks:
        lock.release()


def _bench_long_run(row: Row, place: Path) -> None:
    place.mkdir()
    project = Project(place)
    run = create_run(project, "261117-093000-k3x9", 0)
    write_journal(run, LINES // 4, None)
    cold = []
    start = time.process_time()
    open_run(project, run)
    cold.append(time.process_time() - start)
    show(row, f"open a run with {LINES} journal lines, nothing cached", cold, OPEN_SECONDS)
    warm = []
    for _ in range(7):
        start = time.process_time()
        open_run(project, run)
        warm.append(time.process_time() - start)
    show(row, f"open a run with {LINES} journal lines", warm, OPEN_SECONDS)
    back = []
    for seq in range(LINES // 8, LINES, LINES // 8):
        start = time.process_time()
        watch = RunWatch(project, run)
        watch.catch_up(seq)
        watch.view_back_then()
        back.append(time.process_time() - start)
    show(row, f"open an earlier moment of a run with {LINES} journal lines", back, OPEN_SECONDS)


def open_run(project: Project, run: RunDir) -> None:
    """Read everything and assess it, as every interface does."""
    watch = RunWatch(project, run)
    watch.catch_up()
    assert watch.view.headline


def measure(command: list[str], place: Path) -> float:
    """Seconds of the processor that a command takes, with the start of the interpreter. Other programs do not count."""
    # An installed program is compiled already. The first call compiles it here if that is still to do.
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    start = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, cwd=place, check=True, stdout=subprocess.DEVNULL, env=environment)
    end = resource.getrusage(resource.RUSAGE_CHILDREN)
    return end.ru_utime + end.ru_stime - start.ru_utime - start.ru_stime


def show(row: Row, what: str, seconds: list[float], bound: float) -> None:
    """One line of the table: the median against the bound."""
    middle = statistics.median(seconds)
    row(what, f"{middle * 1000:.0f} ms", f"{bound * 1000:.0f} ms", middle / bound, 1.0)


def create_run(project: Project, id: str, number: int) -> RunDir:
    """A run that was created and has done nothing."""
    agents = AgentSelection((AgentSpec("scripted"),))
    run = project.claim_id(id)
    project.create(run, RunRecord(id, "loop", f"task {number}", "`make test` passes", (), agents, 1000.0 + number))
    return run


def write_journal(run: RunDir, turns: int, outcome: Outcome | None) -> None:
    """Write a journal of turns with their checks, as the engine does, but without syncing each line."""
    journal, _ = Journal.open(run.path / "journal.jsonl")
    lines: list[bytes] = []

    def append(at: float, entry: Entry) -> None:
        line, _ = journal.encode(at, entry, {})
        journal._advance(line, line.decode())
        lines.append(line)

    append(1000.0, RunStarted(1, "1", run.id, {}))
    for turn in range(1, turns + 1):
        key, at, spent = f"iteration-{turn}", 1000.0 + turn, Spent(iterations=turn, turns=turn, cost=turn * 0.01)
        append(at, TurnStarted(turn, key, "implementer", 1, "scripted", is_iteration=True))
        result = TurnResult(
            TurnEnd.FINISHED, at, at + 0.5, usage=Usage(1000, 200, cost=0.01), text="I changed the parser."
        )
        append(at + 0.5, TurnEnded(key, turn, "implementer", 1, result, is_iteration=True, spent=spent))
        append(at + 0.6, ChecksStarted(key, ("`make test` passes",)))
        check = CheckResult("`make test` passes", CheckStatus.FAILED, 1.0, 1, "1 test fails", command="make test")
        append(at + 0.7, ChecksEnded(key, Verdict((check,)), spent))
    if outcome:
        append(9000.0, RunEnded(outcome, "all checks pass", Spent(turns=turns), Limits()))
    with suppress(FileNotFoundError):
        (run.path / "journal.jsonl").unlink()
    (run.path / "journal.jsonl").write_bytes(b"".join(lines))
