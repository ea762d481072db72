"""The mailbox: what people drop is taken in order, and what nobody can read does no harm."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from ralph.core.errors import StateError
from ralph.core.events import SignalTaken
from ralph.core.signals import Signal, SignalType
from ralph.documents import signals
from ralph.store.journal import Journal, read_records
from ralph.store.mailbox import Mailbox


class Box:
    """A mailbox with its directory."""

    def __init__(self, directory: Path) -> None:
        self.inputs, self.processed, self.rejected = (directory / name for name in ("inputs", "processed", "rejected"))
        self.inputs.mkdir(parents=True)
        self.mailbox = Mailbox(directory)

    def drop(self, name: str, text: str | bytes) -> Path:
        path = self.inputs / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    def types(self) -> list[SignalType]:
        return [signal.type for signal in self.mailbox.peek()]

    def settle_all(self) -> list[Signal]:
        found = list(self.mailbox.peek())
        for signal in found:
            self.mailbox.settle(signal, "done")
        return found


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path / "signals")


def yaml(path: Path) -> dict[str, object]:
    loaded: dict[str, object] = YAML(typ="safe").load(path.read_text())
    return loaded


class TestOrder:
    def test_signals_come_in_the_order_of_their_names(self, box: Box) -> None:
        for name, kind in (("3", "PAUSE"), ("1", "RESUME"), ("2", "PAUSE")):
            box.drop(f"signal.{name}.yaml", f"type: {kind}\n")
        assert [signal.name for signal in box.mailbox.peek()] == [f"signal.{n}.yaml" for n in (1, 2, 3)]

    def test_an_abort_comes_first(self, box: Box) -> None:
        for name, kind in (("1", "PAUSE"), ("2", "RESUME"), ("3", "ABORT"), ("4", "PAUSE"), ("5", "STOP")):
            box.drop(f"{name}.yaml", f"type: {kind}\n")
        assert [signal.name[0] for signal in box.mailbox.peek()] == ["3", "5", "1", "2", "4"]

    def test_posted_signals_sort_by_time_and_never_collide(self, box: Box) -> None:
        paths = [box.mailbox.post(SignalType.PAUSE, str(number)) for number in range(20)]
        assert len(set(paths)) == 20
        assert [signal.message for signal in box.mailbox.peek()] == [str(number) for number in range(20)]

    def test_a_mailbox_that_is_not_there_is_empty(self, tmp_path: Path) -> None:
        assert list(Mailbox(tmp_path / "nowhere").peek()) == []

    def test_posting_makes_the_mailbox(self, tmp_path: Path) -> None:
        Mailbox(tmp_path / "new").post(SignalType.ABORT, "wrong: task # really")
        (signal,) = Mailbox(tmp_path / "new").peek()
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
        assert box.mailbox.peek() == box.mailbox.peek()
        assert (box.inputs / "a.yaml").exists()


class TestSettling:
    TEXT = "# please\ntype: PAUSE   # now\ntarget: ALL\nmine: {a: [1, 2]}\nmessage: |\n  two\n  lines\n"

    def test_a_settled_signal_keeps_its_name_its_comments_and_its_own_keys(self, box: Box) -> None:
        box.drop("a.yaml", self.TEXT)
        box.settle_all()
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
        box.settle_all()
        assert yaml(box.processed / "a.yaml")["type"] == "PAUSE"
        assert "handling_metadata" in yaml(box.processed / "a.yaml")

    def test_settling_what_is_gone_does_nothing(self, box: Box) -> None:
        path = box.drop("a.yaml", "type: PAUSE\n")
        (signal,) = box.mailbox.peek()
        path.unlink()
        box.mailbox.settle(signal, "done")
        assert not box.processed.exists()

    def test_settling_twice_is_settling_once(self, box: Box) -> None:
        box.drop("a.yaml", "type: PAUSE\n")
        (signal,) = box.mailbox.peek()
        box.mailbox.settle(signal, "one")
        box.mailbox.settle(signal, "two")
        assert "one" in (box.processed / "a.yaml").read_text()

    def test_a_second_signal_of_the_same_name_is_another_signal(self, box: Box) -> None:
        box.drop("a.yaml", "type: PAUSE\n")
        (first,) = box.settle_all()
        time.sleep(0.01)
        box.drop("a.yaml", "type: PAUSE\n")
        (second,) = box.settle_all()
        assert first != second

    def test_a_name_as_long_as_the_file_system_allows_is_settled(self, box: Box) -> None:
        box.drop("n" * 250 + ".yaml", "type: PAUSE\n")
        assert len(box.settle_all()) == 1
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
    "deep": "type: PAUSE\na: " + "[" * 500,
    "deep braces": "type: PAUSE\na: " + "{a: " * 500,
    "python objects": "type: !!python/object/apply:os.system ['touch /tmp/pwned']\n",
    "two documents": "type: PAUSE\n---\ntype: ABORT\n",
    "the same key twice": "type: PAUSE\ntype: ABORT\n",
    "no number": "type: PAUSE\na: !!int ''\n",
    "no float": "type: PAUSE\na: !!float ''\n",
    "no time": "type: PAUSE\na: !!timestamp 'tomorrow'\n",
    "no base64": "type: PAUSE\na: !!binary 'ä'\n",
    "an impossible date": "type: PAUSE\na: 2026-99-99\n",
}


class TestMalformed:
    @pytest.mark.parametrize("kind", BROKEN)
    def test_it_is_rejected_with_a_reason_but_only_at_the_second_look(self, box: Box, kind: str) -> None:
        path = box.drop("a.yaml", BROKEN[kind])
        good = box.drop("b.yaml", "type: PAUSE\n")
        assert [signal.name for signal in box.mailbox.peek()] == ["b.yaml"]
        assert path.exists(), "it may be half-written"
        assert [signal.name for signal in box.mailbox.peek()] == ["b.yaml"]
        assert not path.exists()
        assert good.exists()
        assert (box.rejected / "a.yaml").exists()
        assert len((box.rejected / "a.yaml.reason").read_text().strip()) > 5
        assert not Path("/tmp/pwned").exists()

    def test_a_file_that_was_half_written_at_the_first_look_is_taken_at_the_next(self, box: Box) -> None:
        box.drop("a.yaml", "type: [PA")
        assert box.types() == []
        box.drop("a.yaml", "type: PAUSE\n")
        assert box.types() == [SignalType.PAUSE]

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
    def test_what_is_no_file_is_rejected_without_waiting(self, box: Box, make: Callable[[Path], None]) -> None:
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

    def test_a_name_that_is_no_text_does_not_stop_the_engine(self, box: Box) -> None:
        name = os.path.join(os.fsencode(box.inputs), b"a-\xff.yaml")
        with open(name, "wb") as file:
            file.write(b"type: PAUSE\n")
        book, _ = Journal.open(box.inputs.parent / "journal.jsonl")
        for _ in range(2):
            for signal in box.mailbox.peek():
                book.append(1_800_000_000.0, SignalTaken(signal))
                box.mailbox.settle(signal, "done")
        assert not os.path.exists(name)
        read_records(book.path)

    @pytest.mark.parametrize("kind", ["deep", "deep braces"])
    def test_what_is_nested_deeper_than_any_signal_is_refused_for_that(self, kind: str) -> None:
        with pytest.raises(StateError, match=r"dep|deep|nest"):
            signals.parse("a.yaml", str(BROKEN[kind]))

    def test_a_bomb_of_aliases_does_not_go_off(self) -> None:
        levels = "".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]\n" for n in range(1, 6))
        bomb = f"l0: &l0 [x, x, x]\n{levels}"
        for key in ("message", "type"):
            other = "type: PAUSE\n" if key == "message" else ""
            try:
                signal = signals.parse("a.yaml", f"{bomb}{other}{key}: *l5\n")
            except StateError as error:
                assert len(str(error)) < 10_000
            else:
                assert len(signal.message) <= signals.SIZE_LIMIT


YAMLISH = st.text(alphabet=st.sampled_from(list("typePAUSE:[]{}&*!|>-#%@`'\"\\,?0129. \n\t\x00é~=<")), max_size=60)


@settings(deadline=None, max_examples=300)
@given(st.one_of(YAMLISH, YAMLISH.map(lambda text: f"type: PAUSE\na: {text}"), st.text(max_size=40)))
def test_every_text_is_a_signal_or_a_state_error(text: str) -> None:
    try:
        signal = signals.parse("a.yaml", text)
    except StateError:
        return
    assert signal.type in SignalType


@settings(deadline=None)
@given(st.sampled_from(SignalType), st.text(alphabet=st.characters(exclude_categories=["Cs", "Cc"]), max_size=200))
def test_what_is_posted_is_what_is_read(kind: SignalType, message: str) -> None:
    signal = signals.parse("a.yaml", signals.render(kind, message))
    assert (signal.type, signal.message) == (kind, message)
