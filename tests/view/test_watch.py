"""Reading a run while another process writes it: nothing breaks, nothing is reported twice, caches are never believed blindly."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from ralph.app import views
from ralph.app.run_watch import RunWatch, ViewRecorder
from ralph.app.views import follow, list_runs, open_view, read_run_list, read_turns
from ralph.core.entries import Notice, RunStarted
from ralph.core.errors import UsageError
from ralph.core.events import RunEnded, TurnEnded, TurnStarted
from ralph.core.limits import Limits, Spent, Usage
from ralph.core.outcomes import Outcome
from ralph.core.turns import TurnEnd, TurnResult
from ralph.documents.run_record import AgentSelection, AgentSpec, RunRecord
from ralph.store import view_cache
from ralph.store.journal import Journal
from ralph.store.runs import Project, RunDir
from ralph.view.model import RunView
from ralph.view.rows import FORM

ID = "261117-093000-k3x9"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "project").mkdir()
    return Project(tmp_path / "project")


def create_run(project: Project, id: str = ID, task: str = "Fix the cart") -> RunDir:
    record = RunRecord(id, "loop", task, "`x` passes", (), AgentSelection((AgentSpec("scripted"),)), 1000.0)
    run = project.claim_id(id)
    project.create(run, record)
    return run


def write(run: RunDir, turns: int, outcome: Outcome | None = None) -> None:
    """Append turns to the journal of a run, and its end."""
    journal, records = Journal.open(run.path / "journal.jsonl")
    if not records:
        journal.append(1000.0, RunStarted(1, "1", run.id, {}))
    first = journal.seq
    for number in range(first, first + turns):
        key = f"iteration-{number}"
        journal.append(1000.0 + number, TurnStarted(number, key, "implementer", 1, "scripted", is_iteration=True))
        result = TurnResult(TurnEnd.FINISHED, 1.0, 2.0, usage=Usage(10, 5, cost=0.1))
        journal.append(1000.5 + number, TurnEnded(key, number, "implementer", 1, result, spent=Spent(turns=number)))
    if outcome:
        journal.append(9000.0, RunEnded(outcome, "because", Spent(), Limits()))


def facts_of(view: RunView) -> object:
    return json.dumps([view.seq, view.at, view.headline, view.cost.total.cost, len(view.turns), view.doubt])


def test_a_writer_killed_at_any_byte_leaves_a_readable_view(project: Project) -> None:
    run = create_run(project)
    write(run, 3, Outcome.STUCK)
    path = run.path / "journal.jsonl"
    data = path.read_bytes()
    ends = [place + 1 for place, byte in enumerate(data) if byte == ord("\n")]
    for size in range(len(data) + 1):
        path.write_bytes(data[:size])
        assert open_view(project, run).seq == sum(end <= size for end in ends)


def test_each_record_is_reported_once_however_it_is_written(project: Project) -> None:
    run = create_run(project)
    write(run, 3)
    path = run.path / "journal.jsonl"
    data = path.read_bytes()
    path.write_bytes(b"")
    watch, seen = RunWatch(project, run), []
    for size in range(0, len(data) + 7, 7):
        path.write_bytes(data[:size])
        seen += [update.record.seq for update in watch.refresh() if update.record]
    assert seen == list(range(1, 8))


def test_a_line_that_ralph_did_not_write_makes_the_view_doubtful(project: Project) -> None:
    run = create_run(project)
    write(run, 2)
    with (run.path / "journal.jsonl").open("a") as file:
        file.write('{"seq": 6, "at": "2026-11-17T09:30:00Z", "type": "run.ended", "outcome": "success", "reason": "x",'
                   ' "spent": {}, "limits": {}}\n{"seq": "7", "type": 3}\nnot json\n')  # fmt: skip
    view = open_view(project, run)
    assert view.doubt == "something other than Ralph changed its journal"
    assert (view.seq, view.state) == (6, "claimed: success")
    assert view.attention == 1


def test_lines_missing_at_the_end_make_the_view_doubtful(project: Project) -> None:
    run = create_run(project)
    write(run, 3)
    path = run.path / "journal.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-2]))
    assert open_view(project, run).doubt == "lines are missing at the end of its journal"


def test_a_journal_that_is_replaced_is_read_again(project: Project) -> None:
    run = create_run(project)
    write(run, 3)
    watch = RunWatch(project, run)
    assert len(watch.refresh()) == 7
    path = run.path / "journal.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:3]))
    assert [update.record.seq for update in watch.refresh() if update.record] == [1, 2, 3]
    assert watch.view.seq == 3


@pytest.fixture
def long_run(project: Project, monkeypatch: pytest.MonkeyPatch) -> RunDir:
    """A run with snapshots after 100, 200 and 300 lines."""
    monkeypatch.setattr("ralph.app.run_watch.STRIDE", 100)
    run = create_run(project)
    write(run, 170, Outcome.STUCK)
    open_view(project, run)
    return run


def test_opening_a_long_run_again_reads_only_what_is_new(
    project: Project, long_run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = open_view(project, long_run)
    assert sorted(path.name for path in (long_run.path / "views").iterdir()) == [
        "000000100.json", "000000200.json", "000000300.json",
    ]  # fmt: skip
    write(long_run, 1)
    folded = []
    original = RunWatch._fold_new

    def count(watch: RunWatch, seq: int | None = None) -> Iterator[object]:
        for record in original(watch, seq):
            folded.append(record.seq)
            yield record

    monkeypatch.setattr(RunWatch, "_fold_new", count)
    after = open_view(project, long_run)
    assert (before.seq, after.seq, folded) == (342, 344, list(range(301, 345)))


@pytest.mark.parametrize("damage", ["cut", "changed", "of another run", "other version", "not json"])
def test_a_snapshot_that_cannot_be_trusted_is_not_used(
    project: Project, long_run: RunDir, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = facts_of(open_view(project, long_run))
    for path in (long_run.path / "views").iterdir():
        data = path.read_bytes()
        if damage == "cut":
            path.write_bytes(data[: len(data) // 2])
        elif damage == "changed":
            path.write_bytes(data.replace(b'"turns": 170', b'"turns": 17').replace(b"scripted", b"scripter"))
        elif damage == "not json":
            path.write_bytes(b"\xff\x00")
    if damage == "of another run":
        other = create_run(project, "261117-093001-k3x9")
        write(other, 2)
        shutil.copytree(long_run.path / "views", other.path / "views")
        assert open_view(project, other).seq == 5
    if damage == "other version":
        monkeypatch.setattr("ralph.app.run_watch.FORM", "999")
    assert facts_of(open_view(project, long_run)) == right


def test_a_snapshot_of_lines_that_are_gone_is_not_used(project: Project, long_run: RunDir) -> None:
    path = long_run.path / "journal.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:150]))
    assert open_view(project, long_run).seq == 150


@pytest.mark.parametrize("seq", [0, 1, 2, 99, 100, 101, 250, 342])
def test_any_moment_of_a_run_can_be_shown(project: Project, long_run: RunDir, seq: int) -> None:
    then = open_view(project, long_run, at=seq)
    shutil.rmtree(long_run.path / "views")
    assert open_view(project, long_run, at=seq) == then
    assert then.seq == seq
    assert then.alive == (0 < seq < 342)


@pytest.mark.parametrize(
    ("seq", "what"),
    [
        (-1, "-1 is not a line"),
        ("5", "'5' is not a line"),
        (True, "True is not a line"),
        (999_999, "has 6 lines, so there is no"),
    ],
)
def test_a_line_that_does_not_exist_is_refused(project: Project, seq: int, what: str) -> None:
    run = create_run(project)
    write(run, 2, Outcome.STUCK)
    with pytest.raises(UsageError, match=what):
        open_view(project, run, at=seq)


def test_following_starts_after_the_line_that_is_known(project: Project) -> None:
    run = create_run(project)
    write(run, 2, Outcome.STUCK)
    assert [update.record.seq for update in follow(project, run, 3) if update.record] == [4, 5, 6]
    assert [update.view.state for update in follow(project, run, 4)] == ["running", "stuck"]


def test_the_engine_leaves_a_snapshot_of_a_long_run(project: Project) -> None:
    run = create_run(project)
    write(run, 150, Outcome.STUCK)
    journal, records = Journal.open(run.path / "journal.jsonl")
    recorder = ViewRecorder(project, run)
    for record in records:
        recorder.on_record(record)
    assert [snapshot.position.seq for snapshot in view_cache.ViewSnapshots(run.path, FORM).load()] == [302]
    assert journal.seq == 302


def test_rows_of_unchanged_runs_are_not_read_again(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        write(create_run(project, f"261117-09300{number}-k3x9", f"task {number}"), 1, Outcome.STUCK)
    first = list_runs(project)
    opened: list[str] = []
    original = open_view

    def count(project: Project, run: RunDir) -> RunView:
        opened.append(run.id)
        return original(project, run)

    monkeypatch.setattr(views, "open_view", count)
    assert (list_runs(project), opened) == (first, [])
    write(project.run("261117-093001-k3x9"), 1)
    rows = list_runs(project)
    assert opened == ["261117-093001-k3x9"]
    assert [row.state for row in rows if row.id in opened] == ["stuck"]


def test_run_whose_task_was_done_later_does_not_need_the_user(project: Project) -> None:
    write(create_run(project, "261117-093000-k3x9"), 1, Outcome.STUCK)
    write(create_run(project, "261117-093001-k3x9"), 1, Outcome.SUCCESS)
    rows = {row.id: row for row in list_runs(project)}
    assert rows["261117-093000-k3x9"].done_by == "261117-093001-k3x9"
    assert {row.group for row in rows.values()} == {"done"}


def test_a_run_that_cannot_be_read_is_listed_with_the_reason(project: Project) -> None:
    (create_run(project).path / "run.json").write_text("{")
    row = list_runs(project)[0]
    assert (row.state, row.group) == ("unreadable", "needs you")
    assert "not readable as JSON" in row.problem


def test_a_removed_run_leaves_the_list_and_its_cache(project: Project) -> None:
    run = create_run(project)
    write(run, 1, Outcome.STUCK)
    assert len(list_runs(project)) == 1
    project.remove(run)
    assert read_run_list(project).rows == ()
    cached = next((project.root.parent / "state" / "ralph" / "rows").iterdir())
    assert json.loads(cached.read_text())["rows"] == {}


def test_turns_that_the_view_does_not_list_any_more_are_found(project: Project) -> None:
    run = create_run(project)
    write(run, 620, Outcome.STUCK)
    assert open_view(project, run).more_turns == 120
    turns = read_turns(project, run).turns
    assert [turn.number for turn in turns] == list(range(1, 621))
    assert all(turn.end is TurnEnd.FINISHED for turn in turns)


def test_a_notice_is_part_of_the_view(project: Project) -> None:
    run = create_run(project)
    write(run, 0)
    journal, _ = Journal.open(run.path / "journal.jsonl")
    journal.append(1001.0, Notice("the agent has a new version"))
    assert [notice.text for notice in open_view(project, run).notices] == ["the agent has a new version"]
