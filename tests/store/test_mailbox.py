"""The mailbox: signals are taken in order, unreadable files do no harm, and new files are reported at once."""

import asyncio
import ctypes
import os
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from ralph.core.errors import StateError
from ralph.core.events import SignalAccepted
from ralph.core.signals import InvalidSignalFile, Question, Signal, SignalType
from ralph.documents.signals import SIZE_LIMIT, parse_signal, render_signal
from ralph.store import mailbox
from ralph.store.journal import Journal, read_records
from ralph.store.mailbox import Mailbox, watch_directories
from ralph.store.questions import QuestionFiles


class Box:
    """A mailbox with its directory."""

    def __init__(self, directory: Path) -> None:
        self.inputs, self.processed, self.rejected = (directory / name for name in ("inputs", "processed", "rejected"))
        self.inputs.mkdir(parents=True, exist_ok=True)
        self.mailbox = Mailbox(directory)
        self._later = (number / 1000 for number in count())

    def drop(self, name: str, text: str | bytes) -> Path:
        path = self.inputs / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        before = time.time() - 60 + next(self._later)
        os.utime(path, (before, before))
        return path

    def types(self) -> list[SignalType]:
        return [signal.type for signal in self.signals()]

    def signals(self) -> list[Signal]:
        """The signals that wait. Invalid files are rejected, as the engine does."""
        found = self.mailbox.read_inputs()
        for one in found:
            if isinstance(one, InvalidSignalFile):
                self.mailbox.reject(one, one.reason)
        return [one for one in found if isinstance(one, Signal)]

    def archive_all(self) -> list[Signal]:
        found = self.signals()
        for signal in found:
            self.mailbox.archive(signal, "done")
        return found


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path / "signals")


def yaml(path: Path) -> dict[str, object]:
    loaded: dict[str, object] = YAML(typ="safe").load(path.read_text())
    return loaded


class TestOrder:
    STYLES = (
        "signal.260208-143000.yaml",
        "signal.20260208-143001.yaml",
        "260208-143002.yaml",
        "signal.260208-143003-250.yaml",
        "signal.260208-143003-a1b2.yaml",
        "signal.260208-143003-9999.yaml",
        "signal.2026-02-08T14-30-04.yaml",
        "signal.260208-143005Z.yaml",
        "signal.260208-143005Z-000001-ab12.yaml",
        "signal.260208-163006+0200.yaml",
        "signal.260208-143007Z.yml",
        "signal.2026-02-08T14:30:08Z.yaml",
    )

    def test_signals_come_by_the_time_in_their_names_in_every_style(
        self, box: Box, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TZ", "UTC")
        time.tzset()
        for name in reversed(self.STYLES):
            box.drop(name, "type: PAUSE\n")
        names = [signal.name for signal in box.signals()]
        same = [name for name in names if "143003" in name]
        assert same == sorted(same, key=lambda name: (name.endswith("250.yaml"), name)), (
            "in a second: by fraction, name"
        )
        assert [name for name in names if name not in same] == [name for name in self.STYLES if name not in same]
        monkeypatch.undo()
        time.tzset()

    @pytest.mark.parametrize(
        "name", ["hello.yaml", "signal.999999-999999.yaml", "signal.1.yaml", "signal.260230-010101"]
    )
    def test_without_a_time_in_its_name_a_signal_is_as_old_as_its_file(self, box: Box, name: str) -> None:
        box.drop("first", "type: PAUSE\n")
        box.drop(name, "type: PAUSE\n")
        box.drop("last", "type: PAUSE\n")
        assert [signal.name for signal in box.signals()] == ["first", name, "last"]

    def test_an_abort_comes_first(self, box: Box) -> None:
        for name, kind in (("1", "PAUSE"), ("2", "RESUME"), ("3", "ABORT"), ("4", "PAUSE"), ("5", "STOP")):
            box.drop(f"{name}.yaml", f"type: {kind}\n")
        assert [signal.name[0] for signal in box.signals()] == ["3", "5", "1", "2", "4"]

    def test_posted_signals_sort_by_time_and_never_collide(self, box: Box) -> None:
        paths = [box.mailbox.post(Signal("", SignalType.PAUSE, str(number))) for number in range(20)]
        assert len(set(paths)) == 20
        assert [signal.message for signal in box.signals()] == [str(number) for number in range(20)]

    def test_a_mailbox_that_is_not_there_is_empty(self, tmp_path: Path) -> None:
        assert list(Mailbox(tmp_path / "nowhere").read_inputs()) == []

    def test_posting_makes_the_mailbox(self, tmp_path: Path) -> None:
        Mailbox(tmp_path / "new").post(Signal("", SignalType.ABORT, "wrong: task # really"))
        (signal,) = Mailbox(tmp_path / "new").read_inputs()
        assert (signal.type, signal.message) == (SignalType.ABORT, "wrong: task # really")

    @pytest.mark.parametrize("word", ["PAUSE", "pause", " Pause ", "'PAUSE'"])
    def test_a_type_is_known_in_any_case(self, box: Box, word: str) -> None:
        box.drop("a.yaml", f"type: {word}\n")
        assert box.types() == [SignalType.PAUSE]

    def test_stop_is_an_abort(self, box: Box) -> None:
        box.drop("a.yaml", "type: STOP\nmessage: enough\n")
        assert box.types() == [SignalType.ABORT]

    def test_hidden_and_temporary_files_are_not_signals(self, box: Box) -> None:
        box.drop(".a.yaml.12345678.tmp", "type: ABORT\n")
        assert box.types() == []
        assert box.types() == []
        assert (box.inputs / ".a.yaml.12345678.tmp").exists()

    def test_peeking_takes_nothing(self, box: Box) -> None:
        box.drop("a.yaml", "type: PAUSE\n")
        assert box.mailbox.read_inputs() == box.mailbox.read_inputs()
        assert (box.inputs / "a.yaml").exists()


class TestContent:
    @pytest.mark.parametrize(
        ("target", "role"),
        [
            ("ALL", ""),
            ("", ""),
            ("all", ""),
            ("Ralph-Orchestrator", ""),
            ("Ralph-v2", ""),
            ("Executor", "executor"),
            ("Ralph-Executor", "executor"),
            ("Ralph-v2-Executor", "executor"),
            ("ralph_v2_EXECUTOR", "executor"),
            ("test-engineer", "test-engineer"),
            ("Security_Reviewer", "security-reviewer"),
        ],
    )
    def test_a_target_is_known_in_all_its_spellings(self, box: Box, target: str, role: str) -> None:
        box.drop("a.yaml", f"type: INFO\ntarget: '{target}'\nmessage: hello\n")
        assert [signal.target for signal in box.signals()] == [role]
        assert not role or box.signals()[0].is_for(role)

    def test_the_role_that_does_the_work_is_the_executor(self) -> None:
        signal = Signal("a", SignalType.STEER, "x", target="executor")
        assert signal.is_for("implementer", is_actor=True)
        assert not signal.is_for("reflector")

    @pytest.mark.parametrize(
        ("text", "why"),
        [
            ("type: STEER\nto: planner\nmessage: x\n", "names its role as `target:`"),
            ("type: STEER\n", "needs a message"),
            ("type: INFO\nmessage: '  '\n", "needs a message"),
            ("type: STEER\nmessage: {a: 1}\n", "message of a signal is text"),
            ("type: PAUSE\ntarget: [a]\n", "target of a signal is text"),
            ("type: PAUSE\niteration: soon\n", "iteration of a signal is a number"),
            ("type: PAUSE\niteration: -1\n", "iteration of a signal is a number"),
            ("type: APPROVE\nitems: api\n", "items of a signal are a list"),
        ],
    )
    def test_invalid_signal_is_refused(self, text: str, why: str) -> None:
        with pytest.raises(StateError, match=why):
            parse_signal("a.yaml", text)

    def test_a_file_that_ends_in_the_middle_of_a_line_gets_time(self, box: Box) -> None:
        path = box.inputs / "a.yaml"
        path.write_text("type: STEER\nmessage: Use htt")
        assert (box.types(), box.types(), box.types()) == ([], [], [])
        assert path.exists()
        box.drop("a.yaml", "type: STEER\nmessage: Use httpx")
        assert [signal.message for signal in box.signals()] == ["Use httpx"]


class TestAcks:
    def test_an_ack_names_the_role_and_the_channel(self, box: Box) -> None:
        box.drop("signal.1.yaml", "type: INFO\nmessage: x\n")
        (signal,) = box.signals()
        box.mailbox.acknowledge(signal, "executor", {"turn": 3, "means": "hook"})
        ack = yaml(box.inputs.parent / "acks" / "signal.1" / "executor.yaml")
        assert (ack["signal"], ack["role"], ack["turn"], ack["means"]) == ("signal.1.yaml", "executor", 3, "hook")

    def test_a_signal_that_did_not_reach_everybody_says_whom(self, box: Box) -> None:
        box.drop("a.yaml", "type: INFO\nmessage: x\n")
        (signal,) = box.signals()
        box.mailbox.archive(signal, "the run is over", ("reviewer",))
        handling = yaml(box.processed / "a.yaml")["handling_metadata"]
        assert handling["delivery_status"] == "partial"  # type: ignore[index]
        assert handling["unacked_agents"] == ["reviewer"]  # type: ignore[index]

    def test_another_signal_of_the_same_name_does_not_take_its_place(self, box: Box) -> None:
        for message in ("one", "two"):
            box.drop("a.yaml", f"type: INFO\nmessage: {message}\n")
            box.archive_all()
        texts = [path.read_text() for path in box.processed.iterdir()]
        assert sorted(text.splitlines()[1] for text in texts) == ["message: one", "message: two"]


class TestLooking:
    def test_unchanged_signals_are_not_parsed_again(self, box: Box) -> None:
        box.drop("a.yaml", "type: PAUSE\n")
        assert box.signals()[0] is box.signals()[0]

    def test_a_signal_that_comes_right_after_the_last_look_is_seen(self, box: Box) -> None:
        for number in range(50):
            assert box.types() == []
            path = box.drop(f"{number}.yaml", "type: PAUSE\n")
            assert box.types() == [SignalType.PAUSE]
            path.unlink()

    def test_listing_rejects_nothing(self, box: Box) -> None:
        box.drop("a.yaml", "junk")
        box.drop("b.yaml", "type: PAUSE\n")
        for _ in range(3):
            assert [signal.name for signal in box.mailbox.list_waiting()] == ["b.yaml"]
        assert (box.inputs / "a.yaml").exists()


class TestSettling:
    TEXT = "# please\ntype: PAUSE   # now\ntarget: ALL\nmine: {a: [1, 2]}\nmessage: |\n  two\n  lines\n"

    def test_a_settled_signal_keeps_its_name_its_comments_and_its_own_keys(self, box: Box) -> None:
        box.drop("a.yaml", self.TEXT)
        box.archive_all()
        text = (box.processed / "a.yaml").read_text()
        assert text.startswith(self.TEXT)
        assert yaml(box.processed / "a.yaml")["mine"] == {"a": [1, 2]}
        assert yaml(box.processed / "a.yaml")["message"] == "two\nlines\n"
        assert yaml(box.processed / "a.yaml")["handling_metadata"]["action_taken"] == "done"  # type: ignore[index]
        assert not (box.inputs / "a.yaml").exists()

    @pytest.mark.parametrize(
        "text", ["type: PAUSE", "{type: PAUSE, a: 1}\n", '{"type": "PAUSE"}', "---\ntype: PAUSE\n...\n"]
    )
    def test_a_settled_signal_is_readable_whatever_its_style(self, box: Box, text: str) -> None:
        box.drop("a.yaml", text)
        box.archive_all()
        assert yaml(box.processed / "a.yaml")["type"] == "PAUSE"
        assert "handling_metadata" in yaml(box.processed / "a.yaml")

    def test_archiving_a_missing_signal_does_nothing(self, box: Box) -> None:
        path = box.drop("a.yaml", "type: PAUSE\n")
        (signal,) = box.signals()
        path.unlink()
        box.mailbox.archive(signal, "done")
        assert not box.processed.exists()

    def test_settling_twice_is_settling_once(self, box: Box) -> None:
        box.drop("a.yaml", "type: PAUSE\n")
        (signal,) = box.signals()
        box.mailbox.archive(signal, "one")
        box.mailbox.archive(signal, "two")
        assert "one" in (box.processed / "a.yaml").read_text()

    def test_a_second_signal_of_the_same_name_is_another_signal(self, box: Box) -> None:
        box.drop("a.yaml", "type: PAUSE\n")
        (first,) = box.archive_all()
        time.sleep(0.01)
        box.drop("a.yaml", "type: PAUSE\n")
        (second,) = box.archive_all()
        assert first != second

    def test_a_name_as_long_as_the_file_system_allows_is_settled(self, box: Box) -> None:
        box.drop("n" * 250 + ".yaml", "type: PAUSE\n")
        assert len(box.archive_all()) == 1
        assert box.types() == []


BROKEN: dict[str, str | bytes] = {
    "not YAML": "type: [PAUSE\n",
    "no mapping": "PAUSE\n",
    "a list": "- type: PAUSE\n",
    "empty": "",
    "no type": "message: hello\n",
    "an unknown type": "type: DANCE\n",
    "a type that is a list": "type: [PAUSE]\n",
    "bytes": b"\xff\xfe\x00type: PAUSE",
    "null bytes": b"type: PAUSE\x00\n",
    "huge": "type: PAUSE\nmessage: " + "x" * 100_000,
    "deep": "type: PAUSE\na: " + "[" * 500 + "]" * 500,
    "deep braces": "type: PAUSE\na: " + "{a: " * 500 + "1" + "}" * 500,
    "python objects": "type: !!python/object/apply:os.system ['touch /tmp/pwned']\n",
    "two documents": "type: PAUSE\n---\ntype: ABORT\n",
    "the same key twice": "type: PAUSE\ntype: ABORT\n",
    "no number": "type: PAUSE\na: !!int ''\n",
    "no float": "type: PAUSE\na: !!float ''\n",
    "no time": "type: PAUSE\na: !!timestamp 'tomorrow'\n",
    "no base64": "type: PAUSE\na: !!binary 'ä'\n",
}


class TestMalformed:
    @pytest.mark.parametrize("kind", BROKEN)
    def test_malformed_signal_is_rejected_with_a_reason_when_it_is_read_twice(self, box: Box, kind: str) -> None:
        path = box.drop("a.yaml", BROKEN[kind])
        good = box.drop("b.yaml", "type: PAUSE\n")
        assert [signal.name for signal in box.signals()] == ["b.yaml"]
        assert path.exists(), "it may be half-written"
        assert [signal.name for signal in box.signals()] == ["b.yaml"]
        assert not path.exists()
        assert good.exists()
        assert (box.rejected / "a.yaml").exists()
        assert len((box.rejected / "a.yaml.reason").read_text().strip()) > 5
        assert not Path("/tmp/pwned").exists()

    def test_half_written_file_is_accepted_when_it_is_complete(self, box: Box) -> None:
        box.drop("a.yaml", "type: [PA")
        assert box.types() == []
        box.drop("a.yaml", "type: PAUSE\n")
        assert box.types() == [SignalType.PAUSE]

    def test_a_file_whose_writer_is_slow_is_not_rejected(self, box: Box) -> None:
        path = box.inputs / "a.yaml"
        path.write_text("type: STEER\n")
        for _ in range(3):
            assert list(box.mailbox.read_inputs()) == []
        path.write_text("type: STEER\nmessage: go\n")
        assert box.types() == [SignalType.STEER]

    def test_a_file_that_is_still_being_written_gets_more_time(self, box: Box) -> None:
        for length in range(3, 9):
            box.drop("a.yaml", "type: [PAUSE"[:length])
            assert box.types() == []
        assert (box.inputs / "a.yaml").exists()

    def test_a_link_is_not_followed(self, box: Box, tmp_path: Path) -> None:
        (tmp_path / "secret").write_text("type: ABORT\n")
        (box.inputs / "a.yaml").symlink_to(tmp_path / "secret")
        assert box.types() == []
        assert box.types() == []
        assert (box.rejected / "a.yaml").is_symlink()
        assert (tmp_path / "secret").read_text() == "type: ABORT\n"

    @pytest.mark.parametrize("make", [os.mkfifo, os.mkdir], ids=["pipe", "directory"])
    def test_entry_that_is_not_a_file_is_rejected_without_waiting(self, box: Box, make: Callable[[Path], None]) -> None:
        for _ in range(2):
            make(box.inputs / "a.yaml")
            assert box.types() == []
            assert box.types() == []
            assert not (box.inputs / "a.yaml").exists()
        assert (box.rejected / "a.yaml").exists()

    def test_a_directory_with_something_in_it_can_be_rejected_twice(self, box: Box) -> None:
        for _ in range(2):
            (box.inputs / "a.yaml").mkdir()
            (box.inputs / "a.yaml" / "inner").touch()
            assert (box.types(), box.types()) == ([], [])
            assert not (box.inputs / "a.yaml").exists()

    def test_undecodable_name_does_not_stop_the_engine(self, box: Box) -> None:
        name = os.path.join(os.fsencode(box.inputs), b"a-\xff.yaml")
        with open(name, "wb") as file:
            file.write(b"type: PAUSE\n")
        os.utime(name, (1, 1))
        book, _ = Journal.open(box.inputs.parent / "journal.jsonl")
        for _ in range(2):
            for signal in box.signals():
                book.append(1_800_000_000.0, SignalAccepted(signal))
                box.mailbox.archive(signal, "done")
        assert not os.path.exists(name)
        read_records(book.path)

    @pytest.mark.parametrize("kind", ["deep", "deep braces"])
    def test_deeply_nested_signal_is_refused(self, kind: str) -> None:
        with pytest.raises(StateError, match=r"dep|deep|nest"):
            parse_signal("a.yaml", str(BROKEN[kind]))

    def test_a_bomb_of_aliases_does_not_go_off(self) -> None:
        levels = "".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]\n" for n in range(1, 6))
        bomb = f"l0: &l0 [x, x, x]\n{levels}"
        for key in ("message", "type"):
            other = "type: PAUSE\n" if key == "message" else ""
            try:
                signal = parse_signal("a.yaml", f"{bomb}{other}{key}: *l5\n")
            except StateError as error:
                assert len(str(error)) < 10_000
            else:
                assert len(signal.message) <= SIZE_LIMIT


YAMLISH = st.text(alphabet=st.sampled_from(list("typePAUSE:[]{}&*!|>-#%@`'\"\\,?0129. \n\t\x00é~=<")), max_size=60)


@settings(deadline=None, max_examples=300)
@given(st.one_of(YAMLISH, YAMLISH.map(lambda text: f"type: PAUSE\na: {text}"), st.text(max_size=40)))
def test_every_text_is_a_signal_or_a_state_error(text: str) -> None:
    try:
        signal = parse_signal("a.yaml", text)
    except StateError:
        return
    assert signal.type in SignalType


@settings(deadline=None)
@given(
    st.builds(
        Signal,
        name=st.just("a.yaml"),
        type=st.sampled_from(SignalType),
        message=st.text(alphabet=st.characters(exclude_categories=["Cs", "Cc", "Z"]), min_size=1, max_size=200),
        target=st.sampled_from(["", "executor", "reviewer"]),
        iteration=st.none() | st.integers(1, 99),
        items=st.lists(st.text(alphabet="abc/.-", min_size=1), max_size=3).map(tuple),
        now=st.booleans(),
    )
)
def test_signals_survive_a_round_trip(signal: Signal) -> None:
    assert parse_signal("a.yaml", render_signal(signal)) == signal


def test_a_signal_that_is_written_while_it_is_read_has_the_stamp_of_its_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the next engine would take it for another signal."""
    place = tmp_path / "inputs" / "mine.yaml"
    place.parent.mkdir()
    place.touch()
    os.utime(place, (1, 1))
    read = mailbox.read_limited

    def write_and_read(path: Path, *limits: int) -> bytes:
        if path == place and not place.stat().st_size:
            place.write_text("type: PAUSE\n")
        return read(path, *limits)

    monkeypatch.setattr(mailbox, "read_limited", write_and_read)
    first, second = Mailbox(tmp_path), Mailbox(tmp_path)
    assert list(first.read_inputs()) == []
    [found], [later] = first.read_inputs(), second.read_inputs()
    assert isinstance(found, Signal) and isinstance(later, Signal)
    assert found.stamp == later.stamp


def _by_hand(place: Path) -> None:
    (place / "signals" / "inputs" / "mine.yaml").write_text("type: PAUSE\n")


def _moved_in(place: Path) -> None:
    (place / "elsewhere.yaml").write_text("type: PAUSE\n")
    os.rename(place / "elsewhere.yaml", place / "signals" / "inputs" / "mine.yaml")


def _asked(place: Path) -> None:
    QuestionFiles(place).ask(Question("", "Which way?"))


def _by_command(place: Path) -> None:
    Mailbox(place / "signals").post(Signal("", SignalType.PAUSE))


@pytest.mark.parametrize("comes", [_by_command, _by_hand, _moved_in, _asked])
def test_watching_reports_new_files(tmp_path: Path, comes: Callable[[Path], None]) -> None:
    async def rung() -> None:
        heard = asyncio.Event()
        with watch_directories(heard.set, tmp_path / "signals" / "inputs", tmp_path / "questions") as rings:
            assert rings
            await asyncio.sleep(0)
            assert not heard.is_set()
            comes(tmp_path)
            await asyncio.wait_for(heard.wait(), 60)

    asyncio.run(rung())


def test_watching_is_impossible_if_the_system_has_no_events_to_spare(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Exhausted:
        @staticmethod
        def inotify_init1(flags: int) -> int:
            return -1

    async def rings() -> bool:
        with watch_directories(lambda: None, tmp_path) as rings:
            return rings

    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: Exhausted)
    assert not asyncio.run(rings())


def test_watching_closes_its_descriptor(tmp_path: Path) -> None:
    async def hang() -> None:
        with watch_directories(lambda: None, tmp_path):
            pass

    before = len(os.listdir("/proc/self/fd"))
    asyncio.run(hang())
    assert len(os.listdir("/proc/self/fd")) == before
