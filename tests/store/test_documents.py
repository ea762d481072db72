"""Commits of several documents: whole or not at all, and never over what a person wrote."""

import errno
import json
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from test_files import failing, names_in

from ralph.core.entries import Notice
from ralph.core.errors import StateError, StorageError
from ralph.core.events import DocumentEdited
from ralph.store import files, journal
from ralph.store.documents import Documents, digest
from ralph.store.journal import read_records

AT = 1_800_000_000.0
OLD = {"notes/a.md": "a, old\n", "b.json": '{"b": "old"}\n'}
NEW = {"notes/a.md": "a, new\n", "b.json": '{"b": "new"}\n'}


class Cut(BaseException):
    """The engine dies."""


class Place:
    """A project with one run in it."""

    def __init__(self, root: Path) -> None:
        self.root, self.run_dir = root / "project", root / "project" / ".ralph" / "run"
        self.run_dir.mkdir(parents=True)
        self.documents = self.opened()

    def opened(self) -> Documents:
        self.documents, self.records = Documents.open(self.root, self.run_dir)
        return self.documents

    def on_disk(self) -> dict[str, str]:
        return {path: (self.root / path).read_text() for path in OLD if (self.root / path).exists()}

    @property
    def notices(self) -> list[str]:
        return [record.entry.text for record in self.records if isinstance(record.entry, Notice)]

    def cut_off(self, monkeypatch: Any, number: int) -> None:
        """Commit NEW over OLD, but die at the system call with that number."""
        self.documents.commit(AT, Notice("old"), OLD)
        calls = 0

        def counting(function: Callable[..., Any], *args: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == number:
                raise Cut
            return function(*args)

        with monkeypatch.context() as patch:
            patch.setattr(files, "_syscall", counting)
            patch.setattr(journal, "_syscall", counting)
            try:
                self.documents.commit(AT, Notice("new"), NEW)
            except Cut:
                pass


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


class TestCommits:
    def test_an_entry_and_its_documents_are_written_together(self, place: Place) -> None:
        record = place.documents.commit(AT, Notice("old"), OLD)
        assert place.on_disk() == OLD
        assert record.documents == {path: digest(text.encode()) for path, text in OLD.items()}
        assert read_records(place.run_dir / "journal.jsonl") == [record]
        assert names_in(place.run_dir) == ["journal.jsonl"]

    def test_an_entry_without_documents_is_only_journaled(self, place: Place) -> None:
        place.documents.commit(AT, Notice("hello"), {})
        place.opened()
        assert place.notices == ["hello"]
        assert place.documents.read() == {}

    def test_written_document_is_read_and_is_not_an_edit(self, place: Place) -> None:
        place.documents.commit(AT, Notice("old"), OLD)
        assert place.documents.read() == OLD
        assert list(place.documents.find_edits()) == []
        assert place.opened().read() == OLD
        assert list(place.documents.find_edits()) == []

    def test_text_in_every_script_survives(self, place: Place) -> None:
        text = "naïve 日本語 🙂 \u2028\x85\r\n\0"
        place.documents.commit(AT, Notice(text), {"b.json": text})
        assert (place.root / "b.json").read_bytes().decode() == text
        assert place.opened().read() == {"b.json": text}

    def test_text_with_half_a_surrogate_pair_does_not_stop_the_engine(self, place: Place) -> None:
        place.documents.commit(AT, Notice("cut in two"), {"b.json": "an emoji cut in two: \ud83d"})
        assert "an emoji cut in two" in place.documents.read()["b.json"]

    def test_files_of_the_user_beside_the_documents_are_left_alone(self, place: Place) -> None:
        (place.root / "mine.txt").write_text("mine")
        place.documents.commit(AT, Notice("old"), OLD)
        assert (place.root / "mine.txt").read_text() == "mine"
        assert "mine.txt" not in place.documents.read()


class TestRollingForward:
    @pytest.mark.parametrize("number", range(1, 30))
    def test_a_commit_that_was_cut_off_is_finished_or_never_was(
        self, place: Place, monkeypatch: Any, number: int
    ) -> None:
        place.cut_off(monkeypatch, number)
        place.opened()
        if "new" in place.notices:
            assert (place.on_disk(), place.notices) == (NEW, ["old", "new"])
        else:
            assert (place.on_disk(), place.notices) == (OLD, ["old"])
            assert number <= 4, "once the write-ahead record is there, the commit is done"
        assert not (place.run_dir / "commit.json").exists()
        assert list(place.documents.find_edits()) == []

    @pytest.mark.parametrize("number", range(5, 22))
    def test_opening_again_and_again_changes_nothing_more(self, place: Place, monkeypatch: Any, number: int) -> None:
        place.cut_off(monkeypatch, number)
        place.opened()
        before = (place.on_disk(), (place.run_dir / "journal.jsonl").read_bytes())
        place.opened()
        assert (place.on_disk(), (place.run_dir / "journal.jsonl").read_bytes()) == before

    @pytest.mark.parametrize("number", range(1, 25))
    def test_an_edit_in_between_stays_and_is_reported(self, place: Place, monkeypatch: Any, number: int) -> None:
        place.cut_off(monkeypatch, number)
        (place.root / "b.json").write_text('{"b": "by hand"}\n')
        place.opened()
        assert (place.root / "b.json").read_text() == '{"b": "by hand"}\n'
        assert list(place.documents.find_edits()) == [("b.json", '{"b": "by hand"}\n')]
        assert place.on_disk()["notes/a.md"] in (OLD["notes/a.md"], NEW["notes/a.md"])

    @pytest.mark.parametrize("first", range(6, 20, 3))
    @pytest.mark.parametrize("second", range(1, 14, 2))
    def test_a_recovery_that_is_cut_off_is_finished_by_the_next(
        self, place: Place, monkeypatch: Any, first: int, second: int
    ) -> None:
        place.cut_off(monkeypatch, first)
        calls = 0

        def counting(function: Callable[..., Any], *args: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == second:
                raise Cut
            return function(*args)

        with monkeypatch.context() as patch:
            patch.setattr(files, "_syscall", counting)
            patch.setattr(journal, "_syscall", counting)
            try:
                place.opened()
            except Cut:
                pass
        place.opened()
        assert (place.on_disk(), place.notices) == (NEW, ["old", "new"])

    def test_a_first_commit_that_was_cut_off_makes_its_directories(self, place: Place, monkeypatch: Any) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(files, "remove", failing(os.unlink, errno.EIO))
            patch.setattr(Documents, "_write", lambda *args: (_ for _ in ()).throw(Cut()))
            with pytest.raises(Cut):
                place.documents.commit(AT, Notice("new"), NEW)
        assert place.on_disk() == {}
        place.opened()
        assert (place.on_disk(), place.notices) == (NEW, ["new"])

    @pytest.mark.parametrize(
        "text",
        ["", "{", "[]", "7", "null", "{}", '{"seq": "x"}', '{"seq": 1, "lines": [7], "documents": {}}', "[" * 5000],
        ids=lambda text: text[:40] or "empty",
    )
    def test_a_record_that_is_not_ours_is_refused_by_name(self, place: Place, text: str) -> None:
        (place.run_dir / "commit.json").write_text(text)
        with pytest.raises(StateError) as caught:
            place.opened()
        assert "commit.json" in caught.value.where

    def test_a_record_that_leads_out_of_the_project_writes_nothing(self, place: Place, tmp_path: Path) -> None:
        place.documents.commit(AT, Notice("old"), OLD)
        change = {"before": "", "after": digest(b"x"), "content": "x"}
        forged = {"schema": 1, "seq": 1, "lines": [], "documents": {"../out": change}}
        (place.run_dir / "commit.json").write_text(json.dumps(forged))
        with suppress(StateError):
            place.opened()
        assert not (tmp_path / "out").exists()


class TestEdits:
    def test_an_edited_document_is_seen_with_what_is_in_it_now(self, place: Place) -> None:
        place.documents.commit(AT, Notice("old"), OLD)
        (place.root / "b.json").write_text("by hand")
        assert list(place.documents.find_edits()) == [("b.json", "by hand")]
        assert list(place.opened().find_edits()) == [("b.json", "by hand")]

    def test_edit_is_found_until_it_is_committed(self, place: Place) -> None:
        place.documents.commit(AT, Notice("old"), OLD)
        (place.root / "b.json").write_text("by hand")
        place.documents.commit(AT, DocumentEdited("b.json"), {})
        assert list(place.documents.find_edits()) == []
        assert list(place.opened().find_edits()) == []
        assert (place.root / "b.json").read_text() == "by hand"

    def test_edit_that_a_commit_overwrites_is_copied_beside_the_journal(self, place: Place) -> None:
        place.documents.commit(AT, Notice("old"), OLD)
        (place.root / "b.json").write_text("by hand")
        place.documents.commit(AT, Notice("new"), NEW)
        assert place.on_disk() == NEW
        (copy,) = (place.run_dir / "edited").iterdir()
        assert copy.read_text() == "by hand"

    def test_an_edit_that_restores_what_was_there_is_none(self, place: Place) -> None:
        place.documents.commit(AT, Notice("old"), OLD)
        (place.root / "b.json").write_text(OLD["b.json"])
        assert list(place.documents.find_edits()) == []

    def test_a_document_that_was_removed_is_written_again_by_the_next_commit(self, place: Place) -> None:
        place.documents.commit(AT, Notice("old"), OLD)
        (place.root / "b.json").unlink()
        assert place.documents.read() == {"notes/a.md": OLD["notes/a.md"]}
        assert list(place.documents.find_edits()) == []
        place.documents.commit(AT, Notice("new"), NEW)
        assert place.on_disk() == NEW

    @pytest.mark.parametrize("data", [b"\xff\xfe", b"\0\0\0", b""], ids=["no text", "null bytes", "empty"])
    def test_edits_with_any_bytes_are_reported_and_stay_as_they_were(self, place: Place, data: bytes) -> None:
        place.documents.commit(AT, Notice("old"), OLD)
        (place.root / "b.json").write_bytes(data)
        assert [path for path, _ in place.documents.find_edits()] == ["b.json"]
        place.documents.commit(AT, Notice("new"), NEW)
        assert place.on_disk() == NEW
        assert [copy.read_bytes() for copy in (place.run_dir / "edited").iterdir()] == [data]

    def test_a_document_that_grew_too_large_is_not_read_and_stays(self, place: Place) -> None:
        place.documents.commit(AT, Notice("old"), OLD)
        with (place.root / "b.json").open("wb") as file:
            file.truncate(files.READ_LIMIT + 1)
        with pytest.raises(StateError, match="larger than"):
            place.documents.read()
        assert list(place.documents.find_edits()) == [("b.json", "")]
        place.documents.commit(AT, Notice("new"), NEW)
        (copy,) = (place.run_dir / "edited").iterdir()
        assert copy.stat().st_size == files.READ_LIMIT + 1


class TestHostileTrees:
    def test_a_link_that_leads_out_is_not_written_through(self, place: Place, tmp_path: Path) -> None:
        (tmp_path / "outside").mkdir()
        (place.root / "notes").symlink_to(tmp_path / "outside")
        with pytest.raises(StateError, match="leads out of the project"):
            place.documents.commit(AT, Notice("old"), OLD)
        assert names_in(tmp_path / "outside") == []
        with suppress(StateError):
            place.opened()
        assert names_in(tmp_path / "outside") == []
        (place.root / "notes").unlink()
        place.opened()
        assert (place.on_disk(), place.notices) in ((OLD, ["old"]), ({}, []))

    def test_a_document_replaced_by_a_link_that_leads_out_is_not_read(self, place: Place, tmp_path: Path) -> None:
        place.documents.commit(AT, Notice("old"), OLD)
        (tmp_path / "secret").write_text("the key")
        (place.root / "b.json").unlink()
        (place.root / "b.json").symlink_to(tmp_path / "secret")
        try:
            found = dict(place.documents.find_edits())
        except StateError:
            return
        assert "the key" not in found.values()

    def test_a_link_that_stays_inside_is_followed(self, place: Place) -> None:
        (place.root / "elsewhere").mkdir()
        (place.root / "notes").symlink_to("elsewhere")
        place.documents.commit(AT, Notice("old"), OLD)
        assert (place.root / "elsewhere" / "a.md").read_text() == OLD["notes/a.md"]

    @pytest.mark.parametrize("kind", ["file in place of the directory", "directory in place of the file"])
    def test_something_else_at_the_path_of_a_document_is_a_readable_error(self, place: Place, kind: str) -> None:
        place.documents.commit(AT, Notice("old"), OLD)
        (place.root / "notes" / "a.md").unlink()
        if kind.startswith("file"):
            (place.root / "notes").rmdir()
            (place.root / "notes").write_text("a file")
        else:
            (place.root / "notes" / "a.md").mkdir()
        with pytest.raises(StateError, match="not a regular file") as caught:
            place.opened().read()
        assert caught.value.where.endswith("notes/a.md")

    def test_a_blocked_commit_is_finished_when_the_path_is_free(self, place: Place) -> None:
        place.documents.commit(AT, Notice("old"), OLD)
        shutil.rmtree(place.root / "notes")
        (place.root / "notes").write_text("a file")
        with suppress(StateError):
            place.documents.commit(AT, Notice("new"), NEW)
        if (place.root / "notes").is_file():
            (place.root / "notes").unlink()
        place.opened()
        assert (place.on_disk(), place.notices) == (NEW, ["old", "new"])

    def test_a_journal_that_was_changed_meanwhile_stops_the_commit_before_the_documents(self, place: Place) -> None:
        place.documents.commit(AT, Notice("old"), OLD)
        with (place.run_dir / "journal.jsonl").open("a") as file:
            file.write("forged\n")
        with pytest.raises(StateError, match="something other than Ralph"):
            place.documents.commit(AT, Notice("new"), NEW)
        assert place.on_disk() == OLD


class TestFullDisks:
    @pytest.mark.parametrize("number", range(1, 20))
    def test_a_disk_that_fills_up_at_any_moment_loses_nothing(
        self, place: Place, monkeypatch: Any, number: int
    ) -> None:
        place.documents.commit(AT, Notice("old"), OLD)
        calls = 0

        def filling(function: Callable[..., Any], *args: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls >= number and function in (os.open, os.write, os.fsync, os.rename):
                raise OSError(errno.ENOSPC, "No space left on device")
            return function(*args)

        with monkeypatch.context() as patch:
            patch.setattr(files, "_syscall", filling)
            patch.setattr(journal, "_syscall", filling)
            try:
                place.documents.commit(AT, Notice("new"), NEW)
            except StorageError:
                pass
        place.opened()
        assert place.on_disk() in (OLD, NEW)
        assert (place.on_disk() == NEW) == (place.notices == ["old", "new"])
        place.documents.commit(AT, Notice("later"), NEW)
        assert place.on_disk() == NEW
