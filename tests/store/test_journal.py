"""The journal: what was appended is read back, what was changed is found out, what was torn is put aside."""

import contextlib
import errno
import json
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_files import failing, tiny_disk

from ralph.core.checks import CheckResult, CheckStatus, Verdict
from ralph.core.codec import format_time, parse_time
from ralph.core.entries import NAMES, Notice, RunStarted
from ralph.core.errors import StateError, StorageError
from ralph.core.events import ChecksEnded, TurnEnded, TurnStarted
from ralph.core.limits import Limits, Spent, Usage
from ralph.core.signals import Signal, SignalType
from ralph.core.turns import TurnEnd, TurnResult
from ralph.store import files, journal
from ralph.store.journal import Journal, read_last_lines, read_raw, read_records, read_tail

__all__ = ["tiny_disk"]

AT = 1_800_000_000.125


def filled(path: Path, lines: int = 5) -> Journal:
    """A journal with a few notices in it."""
    book, _ = Journal.open(path)
    for number in range(lines):
        book.append(AT + number, Notice(f"notice {number}"))
    return book


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.jsonl"


class TestAppending:
    def test_appended_entries_are_read_back(self, path: Path) -> None:
        filled(path)
        assert [(record.seq, record.at, record.entry) for record in read_records(path)] == [
            (number + 1, AT + number, Notice(f"notice {number}")) for number in range(5)
        ]

    def test_a_reopened_journal_continues_where_it_ended(self, path: Path) -> None:
        filled(path)
        book, records = Journal.open(path)
        assert len(records) == 5
        record = book.append(AT, Notice("after"), {"state.json": "0123456789abcdef"})
        assert (record.seq, record.documents) == (6, {"state.json": "0123456789abcdef"})
        assert read_records(path)[-1] == record

    def test_a_journal_that_is_not_there_is_an_empty_one(self, path: Path) -> None:
        book, records = Journal.open(path)
        assert (book.seq, records, path.exists()) == (0, [], False)

    def test_no_entry_has_a_field_by_a_name_that_the_line_itself_uses(self) -> None:
        for kind in NAMES.values():
            assert not {"seq", "at", "type", "documents", "hash"} & {field.name for field in fields(kind)}

    def test_every_kind_of_entry_has_one_name(self) -> None:
        assert len(set(NAMES.values())) == len(NAMES)

    def test_text_with_half_a_surrogate_pair_does_not_stop_the_engine(self, path: Path) -> None:
        book, _ = Journal.open(path)
        book.append(AT, Notice("an agent cut an emoji in two: \ud83d"))
        assert len(read_records(path)) == 1

    def test_a_line_that_could_not_be_read_again_is_not_written(self, path: Path) -> None:
        book, _ = Journal.open(path)
        try:
            book.append(AT, Notice("x" * (5 * 1024 * 1024)))
        except StateError:
            pass
        book, _ = Journal.open(path)
        book.append(AT, Notice("the run goes on"))
        assert read_records(path)[-1].entry == Notice("the run goes on")

    def test_a_line_that_another_process_appends_is_found_at_once(self, path: Path) -> None:
        book = filled(path)
        before = path.read_bytes()
        with path.open("ab") as file:
            file.write(b'{"seq": 6, "type": "run.ended", "outcome": "success"}\n')
        with pytest.raises(StateError, match="something other than Ralph changed"):
            book.append(AT, Notice("next"))
        assert path.read_bytes().startswith(before)

    @pytest.mark.parametrize("deed", [os.unlink, lambda path: os.truncate(path, 10)], ids=["removed", "truncated"])
    def test_a_journal_that_was_cut_short_meanwhile_is_found_out_at_once(
        self, path: Path, deed: Callable[[Path], None]
    ) -> None:
        book = filled(path)
        deed(path)
        with pytest.raises(StateError, match="something other than Ralph changed"):
            book.append(AT, Notice("next"))


class TestTampering:
    def lines(self, path: Path) -> list[bytes]:
        filled(path)
        return path.read_bytes().splitlines(keepends=True)

    @pytest.mark.parametrize("number", range(5))
    def test_a_changed_line_is_found(self, path: Path, number: int) -> None:
        lines = self.lines(path)
        lines[number] = lines[number].replace(b'"notice ', b'"NOTICE ')
        path.write_bytes(b"".join(lines))
        with pytest.raises(StateError, match="cannot be trusted") as caught:
            Journal.open(path)
        assert f"line {number + 1}" in caught.value.where

    @pytest.mark.parametrize("number", range(4))
    def test_a_removed_line_is_found(self, path: Path, number: int) -> None:
        lines = self.lines(path)
        del lines[number]
        path.write_bytes(b"".join(lines))
        with pytest.raises(StateError, match="cannot be trusted"):
            Journal.open(path)

    @pytest.mark.parametrize("number", range(4))
    def test_swapped_lines_are_found(self, path: Path, number: int) -> None:
        lines = self.lines(path)
        lines[number], lines[number + 1] = lines[number + 1], lines[number]
        path.write_bytes(b"".join(lines))
        with pytest.raises(StateError, match="cannot be trusted"):
            Journal.open(path)

    @pytest.mark.parametrize(
        "line",
        [b"{}\n", b"null\n", b"[]\n", b"7\n", b"\n", b"\xff\xfe\n", b'{"seq": 6}\n', b"[" * 5000 + b"\n"],
        ids=lambda line: repr(line[:12]),
    )
    def test_a_line_that_is_not_ours_is_found(self, path: Path, line: bytes) -> None:
        filled(path)
        with path.open("ab") as file:
            file.write(line)
        with pytest.raises(StateError) as caught:
            Journal.open(path)
        assert "line 6" in caught.value.where

    def test_a_repeated_line_is_found(self, path: Path) -> None:
        lines = self.lines(path)
        path.write_bytes(b"".join([*lines, lines[-1]]))
        with pytest.raises(StateError, match="cannot be trusted"):
            Journal.open(path)

    def test_keys_added_behind_the_hash_are_found(self, path: Path) -> None:
        lines = self.lines(path)
        lines[2] = lines[2].replace(b'"}\n', b'", "text": "all checks pass"}\n')
        path.write_bytes(b"".join(lines))
        with pytest.raises(StateError):
            Journal.open(path)

    @settings(deadline=None, max_examples=150)
    @given(st.data())
    def test_no_changed_byte_goes_unnoticed(self, tmp_path_factory: Any, data: st.DataObject) -> None:
        path = tmp_path_factory.mktemp("tampered") / "journal.jsonl"
        filled(path, lines=3)
        whole = path.read_bytes()
        place = data.draw(st.integers(0, len(whole) - 2))
        other = data.draw(st.integers(0, 255).filter(lambda byte: byte != whole[place]))
        path.write_bytes(whole[:place] + bytes([other]) + whole[place + 1 :])
        try:
            records = read_records(path)
        except StateError:
            return
        pytest.fail(f"byte {place} was changed to {other}, and {len(records)} records were read")

    def test_file_that_is_not_a_journal_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "journal.jsonl").write_text("hello\n")
        with pytest.raises(StateError, match="cannot be trusted"):
            Journal.open(tmp_path / "journal.jsonl")


class TestTornTails:
    @pytest.mark.parametrize("kept", [1, 10, 60, -1])
    def test_half_a_line_is_put_aside_and_the_rest_continues(self, path: Path, kept: int) -> None:
        filled(path)
        *lines, last = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join(lines) + last[:kept])
        book, records = Journal.open(path)
        assert len(records) == 4
        assert path.with_suffix(".torn").read_bytes() == last[:kept]
        book.append(AT, Notice("instead"))
        assert [record.seq for record in read_records(path)] == [1, 2, 3, 4, 5]

    def test_reading_changes_nothing(self, path: Path) -> None:
        filled(path)
        with path.open("ab") as file:
            file.write(b'{"seq": 6, "at"')
        before = path.read_bytes()
        assert len(read_records(path)) == 5
        assert len(list(read_raw(path))) == 5
        assert path.read_bytes() == before

    def test_a_tail_without_end_is_put_aside_too(self, path: Path) -> None:
        filled(path)
        with path.open("ab") as file:
            file.write(b"\xff" * 3_000_000)
        _, records = Journal.open(path)
        assert len(records) == 5


class TestFullDisks:
    @pytest.mark.parametrize("step", [os.write, os.fsync], ids=lambda step: step.__name__)
    def test_a_line_that_does_not_fit_leaves_no_trace(
        self, path: Path, monkeypatch: Any, step: Callable[..., Any]
    ) -> None:
        book = filled(path)
        before = path.read_bytes()
        with monkeypatch.context() as patch:
            patch.setattr(files, "_syscall", failing(step, errno.ENOSPC))
            patch.setattr(journal, "_syscall", failing(step, errno.ENOSPC))
            with pytest.raises(StorageError):
                book.append(AT, TurnStarted(1, "iteration-1", "actor", 1, "scripted"))
        assert path.read_bytes() == before
        book.append(AT, Notice("there is room again"))
        assert len(read_records(path)) == 6

    def test_incomplete_line_is_removed(self, path: Path, monkeypatch: Any) -> None:
        book = filled(path)
        before = path.read_bytes()
        calls = 0

        def half(function: Callable[..., Any], *args: Any) -> Any:
            nonlocal calls
            if function is not os.write:
                return function(*args)
            calls += 1
            if calls > 1:
                raise OSError(errno.ENOSPC, "No space left on device")
            return os.write(args[0], args[1][:20])

        monkeypatch.setattr(files, "_syscall", half)
        with pytest.raises(StorageError):
            book.append(AT, Notice("next"))
        assert path.read_bytes() == before

    def test_a_disk_that_is_really_full_leaves_no_partial_line(self, tiny_disk: Path) -> None:
        book, _ = Journal.open(tiny_disk / "journal.jsonl")
        with pytest.raises(StorageError, match="No space left"):
            for number in range(200):
                book.append(AT, Notice(f"{number} " + "x" * 1000))
        whole = (tiny_disk / "journal.jsonl").read_bytes()
        assert whole.endswith(b"\n")
        assert len(read_records(tiny_disk / "journal.jsonl")) == book.seq > 20
        assert not (tiny_disk / "journal.torn").exists()

    def test_a_torn_tail_on_a_full_disk_is_a_storage_error(self, tiny_disk: Path) -> None:
        path = tiny_disk / "journal.jsonl"
        filled(path)
        with path.open("ab") as file:
            file.write(b'{"seq": 6, ' + b"x" * 9000)
        with (tiny_disk / "filler").open("wb", buffering=0) as filler, suppress(OSError):
            while True:
                filler.write(b"x" * 1024)
        with pytest.raises(StorageError):
            Journal.open(path)
        (tiny_disk / "filler").unlink()
        _, records = Journal.open(path)
        assert len(records) == 5

    def test_a_journal_whose_directory_is_gone_is_a_readable_error(self, tmp_path: Path) -> None:
        (tmp_path / "run").mkdir()
        book = filled(tmp_path / "run" / "journal.jsonl")
        book.path.unlink()
        book.path.parent.rmdir()
        with pytest.raises(StateError, match="No such file") as caught:
            book.append(AT, Notice("next"))
        assert caught.value.where == str(book.path)


class TestLooking:
    def test_the_last_lines_are_found_at_a_cost_that_does_not_grow(self, path: Path) -> None:
        filled(path, lines=300)
        found = read_last_lines(path, size=2000)
        assert 5 < len(found) < 40
        assert found[-1]["text"] == "notice 299"

    def test_lines_that_an_engine_writes_meanwhile_are_not_missing(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        book, read = filled(path), journal._read_last_whole_lines

        def read_and_write(path: Path, size: int) -> tuple[list[bytes], bool]:
            found = read(path, size)
            line, _ = book.encode(AT, Notice("written after the lines were read"), {})
            book.append_line(line, durable=True)
            return found

        monkeypatch.setattr(journal, "_read_last_whole_lines", read_and_write)
        assert read_tail(path).doubt == ""

    def test_a_journal_that_is_not_there_has_no_last_lines(self, path: Path) -> None:
        assert read_last_lines(path) == []

    def test_reading_continues_at_an_offset(self, path: Path) -> None:
        book = filled(path, lines=3)
        offset = list(read_raw(path))[-1][0]
        book.append(AT, Notice("new"))
        assert [line["text"] for _, line in read_raw(path, offset)] == ["new"]

    @given(st.floats(0, 4_000_000_000))
    @settings(deadline=None)
    def test_a_moment_survives_its_timestamp_to_the_millisecond(self, at: float) -> None:
        assert parse_time(format_time(at)) == pytest.approx(at, abs=0.001)


SENSIBLE = {
    float: st.floats(allow_nan=False, allow_infinity=False),
    str: st.text(max_size=40),
    object: st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.lists(st.integers(), max_size=3),
}
ANSWERS = st.dictionaries(st.text(max_size=8), SENSIBLE[object], max_size=3)
TEXTS = SENSIBLE[str]


@pytest.fixture(scope="module", autouse=True)
def signatures_that_hypothesis_can_read() -> None:
    """A value has the `__init__` that `builds` reads only once its class was called."""
    modules = [module for name, module in sys.modules.items() if name.startswith("ralph.core.")]
    for one in [one for module in modules for one in vars(module).values() if is_dataclass(one)]:
        with contextlib.suppress(TypeError):
            cast(Any, one)()


def entries(kind: type[Any]) -> st.SearchStrategy[Any]:
    """Entries of one kind, with everything in them that may be."""
    spent, limits = st.builds(Spent, active_seconds=st.floats(0, 1e6)), st.builds(Limits)
    usage = st.builds(Usage, st.integers(), st.integers(), st.none() | st.floats(0, 1e6))
    results = st.builds(
        TurnResult,
        end=st.sampled_from(TurnEnd),
        started_at=st.floats(0, 1e10),
        ended_at=st.floats(0, 1e10),
        usage=usage,
        text=TEXTS,
        error=TEXTS,
        answer=st.none() | ANSWERS,
        answer_errors=st.lists(TEXTS, max_size=3).map(tuple),
    )
    checks = st.builds(CheckResult, TEXTS, st.sampled_from(CheckStatus), st.floats(0, 1e6), reason=TEXTS, output=TEXTS)
    special: dict[type[Any], dict[str, st.SearchStrategy[Any]]] = {
        RunStarted: {"frozen": st.dictionaries(TEXTS, TEXTS, max_size=3)},
        TurnEnded: {"result": results, "spent": spent, "retry_at": st.none() | st.floats(0, 1e10)},
        ChecksEnded: {"verdict": st.builds(Verdict, st.lists(checks, max_size=3).map(tuple)), "spent": spent},
    }
    given_ones = special.get(kind, {})
    for field in fields(kind):
        if field.name in ("spent", "limits"):
            given_ones.setdefault(field.name, spent if field.name == "spent" else limits)
        if field.name == "signal":
            given_ones["signal"] = st.builds(Signal, TEXTS, st.sampled_from(SignalType), TEXTS)
    return st.builds(kind, **given_ones)


@pytest.mark.parametrize("name", NAMES)
@settings(deadline=None, max_examples=25)
@given(data=st.data())
def test_every_kind_of_entry_survives_the_file(tmp_path_factory: Any, name: str, data: st.DataObject) -> None:
    path = tmp_path_factory.mktemp("trip") / "journal.jsonl"
    book, _ = Journal.open(path)
    documents = data.draw(st.dictionaries(TEXTS, TEXTS, max_size=2))
    entry = data.draw(entries(NAMES[name]))
    record = book.append(AT, entry, documents)
    (read,) = read_records(path)
    assert read == record
    assert json.loads(path.read_text())["type"] == name
