"""The project and its runs: found, made, named and removed."""

import errno
import os
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ralph.core.checks import Check
from ralph.core.entries import Notice, RunStarted
from ralph.core.errors import StateError, StorageError, UsageError
from ralph.core.events import RunEnded
from ralph.core.ids import parse_run_id, run_id, turn_name
from ralph.core.limits import Limits, Spent
from ralph.core.outcomes import Outcome
from ralph.documents.run_record import AgentSelection, AgentSpec, RunRecord, parse_record, render_record
from ralph.store.journal import Journal
from ralph.store.runs import Project, RunDir

AT = datetime(2026, 11, 15, 9, 30, 0)
IDS = ("261115-093000-aaaa", "261115-093000-bbbb", "261116-100000-cccc")


def record(run: str, task: str = "fix it") -> RunRecord:
    return RunRecord(
        run, "loop", task, "`make` passes", (Check("make"),), AgentSelection((AgentSpec("scripted"),)), 1_800_000_000.0
    )


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


@pytest.fixture
def three(project: Project) -> Project:
    """A project with three runs."""
    for name in IDS:
        (project.runs_dir / name).mkdir(parents=True)
        project.create(RunDir(project.runs_dir / name), record(name, f"task of {name[-4:]}"))
    return project


def ended(run: RunDir, outcome: Outcome) -> Journal:
    """Give a run a journal with an end."""
    book, _ = Journal.open(run.path / "journal.jsonl")
    book.append(1.0, RunStarted(1, "0", run.id, {}))
    book.append(2.0, RunEnded(outcome, "because", Spent(iterations=2), Limits()))
    return book


class TestIds:
    @pytest.mark.parametrize("text", ["261115-093000", "261115-093000-k3x9", "000000-000000-0000"])
    def test_an_id_is_a_date_a_time_and_maybe_four_characters(self, text: str) -> None:
        assert parse_run_id(text) == text

    @pytest.mark.parametrize(
        "text",
        [
            "",
            ".",
            "..",
            "../261115-093000-aaaa",
            "261115-093000-aaaa/..",
            "261115-093000-aaaa/../../x",
            "/etc/passwd",
            "261115-093000-AAAA",
            "261115-093000-aaaa\n",
            " 261115-093000",
            "261115-093000-a/b",
            "261115-093000-aaaaa",
            "261115_093000",
            "261115-093000-\0aaa",
            "٢٦١١١٥-٠٩٣٠٠٠",
            "~",
            "*",
        ],
    )
    def test_other_texts_are_not_run_ids(self, text: str) -> None:
        with pytest.raises(UsageError, match="not a run id"):
            parse_run_id(text)

    @given(st.text(max_size=30))
    @settings(deadline=None)
    def test_whatever_passes_is_one_plain_name(self, text: str) -> None:
        try:
            passed = parse_run_id(text)
        except UsageError:
            return
        assert Path(passed).name == passed
        assert passed.isascii()

    def test_an_id_is_made_of_a_time(self) -> None:
        assert run_id(AT) == "261115-093000"
        assert run_id(AT, "k3x9") == "261115-093000-k3x9"

    def test_turns_are_named_by_number_and_role(self) -> None:
        assert turn_name(7, "actor") == "00007-actor"


class TestFinding:
    @pytest.mark.parametrize("sign", [".ralph", "ralph.yml"])
    def test_without_git_the_project_is_the_nearest_parent_with_a_sign(self, tmp_path: Path, sign: str) -> None:
        (tmp_path / "a" / "b" / "c").mkdir(parents=True)
        (tmp_path / ".ralph").mkdir()
        if sign == ".ralph":
            (tmp_path / "a" / sign).mkdir()
        else:
            (tmp_path / "a" / sign).touch()
        assert Project.around(tmp_path / "a" / "b" / "c").root == (tmp_path / "a").resolve()

    @pytest.mark.parametrize("sign", [".ralph", "ralph.yml"])
    def test_a_directory_of_a_repository_belongs_to_the_repository(self, tmp_path: Path, sign: str) -> None:
        (tmp_path / "a" / "b" / sign).mkdir(parents=True)
        (tmp_path / "a" / ".git").touch()
        (tmp_path / ".git").mkdir()
        assert Project.around(tmp_path / "a" / "b") == Project((tmp_path / "a").resolve(), directory="b")

    def test_the_nearest_settings_hold(self, tmp_path: Path) -> None:
        (tmp_path / "a" / "b" / "c").mkdir(parents=True)
        (tmp_path / ".git").mkdir()
        project = Project.around(tmp_path / "a" / "b" / "c")
        assert project.settings_dir == project.root
        (tmp_path / "a" / "b" / "ralph.yml").touch()
        assert project.settings_dir == project.root / "a" / "b"
        assert project.find_settings_dir("a") == project.root

    def test_links_are_resolved(self, tmp_path: Path) -> None:
        (tmp_path / "real" / ".git").mkdir(parents=True)
        (tmp_path / "link").symlink_to("real")
        assert Project.around(tmp_path / "link").root == (tmp_path / "real").resolve()

    def test_runs_come_oldest_first_and_strangers_are_left_out(self, three: Project) -> None:
        for stranger in ("notes", ".removed-261115-093000-dddd", "261115-093000-dddd.bak"):
            (three.runs_dir / stranger).mkdir()
        (three.runs_dir / "261115-093000-eeee").touch()
        assert [run.id for run in three.runs()] == list(IDS)

    def test_a_project_without_runs_has_none(self, project: Project) -> None:
        assert project.runs() == []

    def test_a_run_is_found_by_its_id_or_its_beginning(self, three: Project) -> None:
        assert three.run(IDS[0]).id == IDS[0]
        assert three.run("261116").id == IDS[2]

    def test_a_beginning_that_fits_several_lists_them_with_their_tasks(self, three: Project) -> None:
        with pytest.raises(UsageError, match="several runs") as caught:
            three.run("261115")
        assert "task of aaaa" in caught.value.where
        assert "task of bbbb" in caught.value.where

    @pytest.mark.parametrize("wanted", ["999999-999999-zzzz", "../..", "", "..", "/"])
    def test_a_run_that_is_not_there_is_refused(self, three: Project, wanted: str) -> None:
        with pytest.raises(UsageError):
            three.run(wanted)

    def test_a_run_with_an_unreadable_record_can_still_be_listed(self, three: Project) -> None:
        (three.runs_dir / IDS[0] / "run.json").write_text("{")
        with pytest.raises(UsageError, match="several") as caught:
            three.run("261115")
        assert "unreadable" in caught.value.where


class TestMaking:
    def test_every_claim_gets_a_directory_of_its_own(self, project: Project) -> None:
        claimed = [project.claim(AT) for _ in range(20)]
        assert len({run.id for run in claimed}) == 20
        assert all(run.path.is_dir() and parse_run_id(run.id) for run in claimed)

    def test_id_in_use_is_not_used_twice(self, project: Project, monkeypatch: Any) -> None:
        names = iter([b"\0\0", b"\0\0", b"\0\1"])
        monkeypatch.setattr("os.urandom", lambda count: next(names))
        assert [project.claim(AT).id[-4:] for _ in range(2)] == ["0000", "0001"]

    def test_a_record_is_read_as_it_was_written(self, three: Project) -> None:
        assert three.run(IDS[0]).record() == record(IDS[0], "task of aaaa")

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("", "not readable"),
            ("[]", "not contain a JSON object"),
            ("{}", "schema version None"),
            ('{"schema": 99}', "schema version 99"),
            ('{"schema": 1}', "'id' is missing"),
            ("[" * 5000, "not readable"),
        ],
        ids=lambda text: text[:20],
    )
    def test_a_record_that_cannot_be_used_is_refused_by_name(self, three: Project, text: str, said: str) -> None:
        run = three.run(IDS[0])
        (run.path / "run.json").write_text(text)
        with pytest.raises(StateError, match=said) as caught:
            run.record()
        assert "run.json" in caught.value.where

    def test_a_run_without_a_record_says_so(self, project: Project) -> None:
        with pytest.raises(StateError, match=r"no run\.json"):
            project.claim(AT).record()

    def test_unknown_keys_of_a_record_do_no_harm(self) -> None:
        text = render_record(record(IDS[0])).replace('"id"', '"later": {"x": 1}, "id"')
        assert parse_record(text, "run.json") == record(IDS[0])

    def test_a_full_disk_is_a_storage_error(self, project: Project, monkeypatch: Any) -> None:
        def full(*args: object, **kwargs: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(Path, "mkdir", full)
        with pytest.raises(StorageError):
            project.claim(AT)

    def test_a_removed_run_is_gone_whole(self, three: Project) -> None:
        three.remove(three.run(IDS[0]))
        assert [run.id for run in three.runs()] == list(IDS[1:])
        assert sorted(os.listdir(three.runs_dir)) == list(IDS[1:])

    def test_a_run_is_removed_though_its_keeper_is_just_leaving(self, three: Project, monkeypatch: Any) -> None:
        real, left = os.rmdir, [three.run(IDS[0]).path.name]

        def rmdir(path: Any, *args: Any, **kwargs: Any) -> None:
            if left and left[0] in str(path):
                (three.runs_dir / f".removed-{left.pop()}" / "exit").touch()
            real(path, *args, **kwargs)

        monkeypatch.setattr(os, "rmdir", rmdir)
        three.remove(three.run(IDS[0]))
        assert left == []
        assert [path.name for path in three.runs_dir.iterdir() if IDS[0] in path.name] == []

    def test_interrupted_removal_can_be_repeated(self, three: Project, monkeypatch: Any) -> None:
        with monkeypatch.context() as patch:
            patch.setattr("shutil.rmtree", lambda *_, **__: (None for _ in ()).throw(KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                three.remove(three.run(IDS[0]))
        assert [run.id for run in three.runs()] == list(IDS[1:])
        with pytest.raises(UsageError):
            three.run(IDS[0])


class TestTailSummary:
    def test_a_run_that_ended_says_why(self, three: Project) -> None:
        run = three.run(IDS[0])
        ended(run, Outcome.LIMIT_COST)
        assert run.outcome() is Outcome.LIMIT_COST
        assert run.read_tail_summary().spent == Spent(iterations=2)

    def test_a_run_that_was_resumed_has_no_outcome_yet(self, three: Project) -> None:
        run = three.run(IDS[0])
        ended(run, Outcome.PAUSED).append(3.0, RunStarted(2, "0", run.id, {}, resumed=True))
        assert run.outcome() is None

    def test_a_run_that_an_engine_holds_has_no_outcome_yet(self, three: Project) -> None:
        run = three.run(IDS[0])
        ended(run, Outcome.PAUSED)
        lock = run.lock()
        assert run.outcome() is None
        lock.release()
        assert run.outcome() is Outcome.PAUSED

    def test_a_run_without_a_journal_has_none(self, three: Project) -> None:
        assert three.run(IDS[0]).outcome() is None

    def test_a_long_journal_is_not_read_whole(self, three: Project) -> None:
        run = three.run(IDS[0])
        book, _ = Journal.open(run.path / "journal.jsonl")
        for number in range(400):
            book.append(float(number), Notice("x" * 300))
        book.append(500.0, RunEnded(Outcome.FAILED, "because", Spent(), Limits()))
        assert run.outcome() is Outcome.FAILED

    @pytest.mark.parametrize(
        "line",
        [
            b"5\n",
            b"null\n",
            b"[]\n",
            b"\xff\n",
            b'"x"\n',
            b'{"type": "run.ended"}\n',
            b"[" * 5000 + b"\n",
            b'{"type": 7}\n',
        ],
        ids=lambda line: repr(line[:20]),
    )
    def test_a_line_that_is_not_ours_does_not_stop_readers(self, three: Project, line: bytes) -> None:
        run = three.run(IDS[0])
        ended(run, Outcome.PAUSED)
        with (run.path / "journal.jsonl").open("ab") as file:
            file.write(line)
        assert run.outcome() in (Outcome.PAUSED, None)


EARLIER_RECORD = """\
{
  "schema": 1,
  "id": "261118-071024",
  "workflow": "session",
  "task": "Build a URL shortener",
  "criterion": "`make test` passes",
  "checks": [{"command": "make test"}],
  "agents": {"chain": [{"kind": "command", "command": ["agent"], "environment": {}}], "roles": {}},
  "created_at": 1794985824.5,
  "branch": "ralph/261118-071024/run",
  "limits": {"iterations": null, "active_seconds": null},
  "turn_limits": {},
  "allowed": {},
  "accepted": {},
  "prices": {},
  "sandbox": "auto",
  "land": "ff",
  "slots": {"agents": {}},
  "pool": {"resources": {}, "labels": {}},
  "tree_settings": {},
  "loop": {"inputs": {}},
  "session": {}
}
"""


def test_a_new_field_of_run_json_does_not_change_the_hash_of_runs_that_lack_it() -> None:
    """The journal has the hash of the record, so a run that an earlier version started could not be resumed.

    Give a new field a default value, and not a default factory, whose value is always written.
    """
    assert render_record(parse_record(EARLIER_RECORD, "run.json")) == EARLIER_RECORD
