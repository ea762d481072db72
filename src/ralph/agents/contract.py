"""What every adapter must keep, as tests to run with pytest: the engine relies on each of them.

class TestParrot(AdapterContract):
    adapter = Parrot()
    streams = recorded(Path(__file__).with_name("streams"), "parrot")
    tokens = {"parrot": (1800, 90)}
"""

import json
import os
import random
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from ralph.agents.adapter import Adapter
from ralph.agents.agent import FULL_AUTO, PERMISSIONS, Abilities, Call, Reader
from ralph.agents.stream_lines import TEXT_CHARS, TOOL_CHARS
from ralph.core.codec import json_object
from ralph.core.limits import Usage
from ralph.core.stream import AgentEvent, Failure, Kind, clean_text
from ralph.workspace.stream import Account

POISON = "\x1b[31m\x00\x7f\x9b\ud800 " * 4_000
"""A text without an end, full of what commands a terminal."""
NOISE = (
    *(b"", b"  ", b"Welcome! A new version is there.", b"\xff\xfe\x00\x1b[31m", b"{", b"}", b"null", b"[]", b'"a"'),
    *(b"{}", b'{"type": null}', b'{"type": ["a"]}', b'{"type": {"a": 1}}', b'{"type": "nobody-knows-it"}'),
)
"""Lines that are no events of anybody's."""
MONSTERS = (b'{"a":' * 100_000, b"x" * 2_000_000)
"""The same, deeper and longer than anybody's."""
_WRONG: tuple[Any, ...] = (
    *(None, True, False, -1, 7, 10**400, 1e308, float("nan")),
    *("", POISON, [], [[]], {}, {"a": [1]}),
)


def spoilt(line: bytes, chance: random.Random) -> list[bytes]:
    """A line cut, doubled, torn, between garbage, or with other values in it; often as it was."""
    garbage = chance.randbytes(chance.randrange(40))
    at = chance.randrange(len(line) + 1)
    match chance.randrange(9):
        case 0:
            return [line[:at]]
        case 1:
            return [line, line]
        case 2:
            return [garbage, line, b"{" + garbage]
        case 3:
            return [line[:at] + garbage, line[at:]]
        case 4 | 5 | 6:
            return [_changed(line, chance)]
        case _:
            return [line]


def _changed(line: bytes, chance: random.Random) -> bytes:
    """A line with some of its values changed or dropped; some of its bytes where it holds no object."""
    data = json_object(line)
    if not data:
        return bytes(chance.randrange(256) if chance.random() < 0.1 else byte for byte in line)
    for _ in range(chance.randrange(1, 4)):
        if places := list(_places(data)):
            holder, key = chance.choice(places)
            if chance.random() < 0.3:
                del holder[key]
            else:
                holder[key] = deepcopy(chance.choice(_WRONG))
    return json.dumps(data).encode()


def poisoned(line: bytes, chance: random.Random) -> bytes:
    """A line with poison in some of its texts."""
    data = json_object(line)
    if not data:
        return line + POISON.encode(errors="replace") + line
    for holder, key in list(_places(data)):
        if isinstance(holder[key], str) and chance.random() < 0.5:
            holder[key] += POISON
    return json.dumps(data).encode()


def _places(data: Any) -> Iterator[tuple[Any, Any]]:
    """Every place in it that holds a value, as its holder and its key there."""
    for key in list(data) if isinstance(data, dict) else range(len(data)):
        yield data, key
        if isinstance(data[key], dict | list):
            yield from _places(data[key])


FAILURES: Mapping[str, Failure | None] = {
    "limited": Failure.LIMIT,
    "overloaded": Failure.OVERLOAD,
    "signed-out": Failure.ACCESS,
    "budget": None,
    "turns": None,
    "failed": None,
}
"""How the file of a recorded turn that failed ends, and the class of its failure where that follows from it."""
SECRET = "sk-a-key-that-nobody-may-see"
ASKED: Mapping[str, tuple[Call, str]] = {
    "model": (Call(Path("/repo"), model="model-that-is-asked-for"), "model-that-is-asked-for"),
    "resume": (
        Call(Path("/repo"), session="7f9c24e5-1b1d-4d0b-9d6e-3a2f1c0b9a88"),
        "7f9c24e5-1b1d-4d0b-9d6e-3a2f1c0b9a88",
    ),
    "budget": (Call(Path("/repo"), budget=1.2345), "1.2345"),
    "step_limit": (Call(Path("/repo"), most_steps=7919), "7919"),
    "tool_limits": (Call(Path("/repo"), without_tools=("a-tool-to-do-without",)), "a-tool-to-do-without"),
}
"""By the ability that it needs: a call that asks for one thing, and the word by which that is recognised."""
_BARE = Call(Path("/repo"))
_CONTINUE = {"--continue", "--resume", "--last", "continue", "resume"}
_MOST_WORDS = 100_000
_CUTS, _ROUNDS = 100, 40
_EXITS = (None, 0, 1, 2, 41, 124, 130, 137, 143, 173, 255, -9, -15)
_LAST_WORDS = (
    *("", " \n\n", "Error: 401 Unauthorized", "429 Too Many Requests, retry in 20s", POISON, "{" * 5000),
    *('{"error": {"message": 7}}', '{"error": []}', "\udcff\udcfe", "a b c\n" * 10_000),
)
_SHORT = (Kind.TOOL, Kind.TOOL_RESULT, Kind.DENIED, Kind.RETRY)


def recorded(directory: Path, name: str) -> dict[str, tuple[Path, ...]]:
    """The recorded output of an agent in a directory: `NAME.jsonl` and `NAME-WHAT.jsonl` (or .txt), by how it ended."""
    files = sorted(path for path in directory.iterdir() if path.suffix in (".jsonl", ".txt"))
    own = [path for path in files if path.stem == name or path.stem.startswith(f"{name}-")]
    failing = tuple(path for path in own if _suffix(path))
    return {"success": tuple(path for path in own if path not in failing), "failure": failing}


def _suffix(path: Path) -> str:
    return next((suffix for suffix in FAILURES if path.stem.endswith(f"-{suffix}")), "")


class AdapterContract:
    """The tests of one adapter: derive a class from it, and say which."""

    adapter: Adapter
    streams: Mapping[str, Sequence[Path]] = {}
    """What the real program printed in whole turns: files under `success` and `failure`, one of each at least.

    A directory of the same name beside a file (`NAME/` for `NAME.jsonl`) may hold what else there was: `stderr`, where a
    failure is only told there, and files that the program left beside its prompt. Such files may also be beside them all.
    """
    tokens: Mapping[str, tuple[int, int]] = {}
    """What those turns used in truth, in and out, by the name of the file without its ending; one at least."""

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """One test for each file."""
        kinds = {"success": ("success",), "failing": ("failure",), "stream": ("success", "failure")}
        for argument in kinds.keys() & set(metafunc.fixturenames):
            files = [path for kind in kinds[argument] for path in self.streams.get(kind, ())]
            metafunc.parametrize(argument, files, ids=[path.stem for path in files])

    def test_it_says_who_it_is(self) -> None:
        agent = self.adapter
        for what in ("name", "install", "advice"):
            text = getattr(agent, what, None)
            assert isinstance(text, str) and text.strip() and text == clean_text(text), f"its {what} is {text!r}"
        for what in ("keys", "services", "credentials"):
            names = getattr(agent, what)
            assert isinstance(names, tuple), f"its {what} are a {type(names).__name__}, and no tuple"
            assert all(isinstance(one, str) and one for one in names), f"its {what} are {names!r}"
        assert isinstance(agent.abilities, Abilities), "its abilities are not of the class Abilities"
        assert isinstance(agent.announces_end, bool), "announces_end is neither True nor False"

    def test_its_abilities_agree(self) -> None:
        can = self.adapter.abilities
        assert can.session or not can.resume, "it cannot go on with a conversation (resume) whose id it does not tell"
        declared = type(self.adapter).sign_in is not Adapter.sign_in or self.adapter.keys or self.adapter.credentials
        assert declared, (
            "nothing says how a person is known to be signed in: name keys or credentials, or define sign_in"
        )

    def test_it_hears_only_where_it_can(self) -> None:
        can = self.adapter.abilities
        assert not self.adapter.hears(_BARE) or can.hooks or can.live_input, (
            "words are left for it (hears), and it has neither hooks nor live_input"
        )

    def test_turns_are_recorded(self) -> None:
        for kind in ("success", "failure"):
            assert self.streams.get(kind), f"there is no recorded turn of the kind {kind}"
        assert all(path.stat().st_size for path in self.streams["success"]), "a recorded success is empty"
        known = self.tokens.keys() & {path.stem for path in self.streams["success"]}
        assert known or not self.adapter.abilities.tokens, "`tokens` says of no success what it used in truth"

    def test_the_command_is_words(self) -> None:
        for call in (_BARE, *(call for call, _ in ASKED.values())):
            words = self.adapter.command(call)
            assert isinstance(words, tuple) and words, f"the command is {words!r}, and no tuple of words"
            assert all(isinstance(one, str) and one and "\0" not in one for one in words), f"a word is none: {words!r}"
            assert not {"None", "True", "False"} & set(words), f"a value that is none became a word: {words!r}"
            assert words == self.adapter.command(call), "the same call gives another command the second time"

    def test_the_program_may_be_elsewhere(self) -> None:
        words = type(self.adapter)("/opt/elsewhere/agent").command(_BARE)
        assert "/opt/elsewhere/agent" in words, f"the program that is asked for is not started: {words!r}"

    @pytest.mark.parametrize("ability", ASKED)
    def test_what_is_asked_for_is_said(self, ability: str) -> None:
        call, mark = ASKED[ability]
        bare, asked = self._said(_BARE), self._said(call)
        if getattr(self.adapter.abilities, ability):
            assert mark in asked, f"it can ({ability}), and is not told: {mark!r} is in no word and no variable"
        else:
            assert asked == bare, f"it cannot ({ability}), and is told something all the same"

    def test_nothing_is_said_that_was_not_asked_for(self) -> None:
        bare = self.adapter.command(_BARE)
        assert not _CONTINUE & set(bare), f"a new conversation was asked for, not {bare!r}"
        for ability in ("model", "budget", "step_limit"):
            asked = iter(self.adapter.command(ASKED[ability][0]))
            dropped = [word for word in bare if word not in asked]
            assert not dropped, f"{dropped[0]!r} stands where nothing was asked for ({ability})"
        for call, mark in ASKED.values():
            self.adapter.command(call)
            assert mark not in self._said(_BARE), f"{mark!r} is left from another call"

    def test_arguments_of_the_user_are_handed_on(self) -> None:
        given = ("--an-option-of-theirs", "two words")
        words = self.adapter.command(Call(Path("/repo"), arguments=given))
        assert any(words[at : at + 2] == given for at in range(len(words))), f"{given!r} is not in {words!r}"

    def test_every_level_of_permissions_is_passed_on(self) -> None:
        levels = self.adapter.permission_modes
        assert FULL_AUTO in levels, "it must be able to work without anybody to ask (full-auto)"
        assert set(levels) <= set(PERMISSIONS), f"its levels are {list(levels)}, and the known ones {PERMISSIONS}"
        for level, mode in levels.items():
            words = self.adapter.command(Call(Path("/repo"), permissions=level))
            assert any(words[at : at + len(mode)] == mode for at in range(len(words))), f"{mode} is not in {words}"

    def test_a_permission_mode_of_the_user_wins(self) -> None:
        full_auto = self.adapter.permission_modes[FULL_AUTO]
        for option in self.adapter.permission_options:
            given = f"{option}=theirs"
            words = self.adapter.command(Call(Path("/repo"), arguments=(given,)))
            assert given in words and not set(full_auto) & set(words), f"the user asked for {option}, not for {words}"

    def test_the_prompt_is_no_word(self, tmp_path: Path) -> None:
        prompt = tmp_path / "prompt.md"
        self.adapter.command(Call(tmp_path, prompt=prompt))  # --dry-run shows it before there is a prompt
        prompt.write_text(f"{SECRET} " * 20_000)
        call = Call(tmp_path, prompt=prompt)
        words = (*self.adapter.command(call), *self.adapter.environment(call).values())
        assert SECRET not in " ".join(words), "the prompt is on the command line, which is too short for long ones"
        assert sum(map(len, words)) < _MOST_WORDS, "the command line is too long"

    def test_the_environment_is_variables(self) -> None:
        before = dict(os.environ)
        for call in (_BARE, *(call for call, _ in ASKED.values())):
            for name, value in self.adapter.environment(call).items():
                assert isinstance(name, str) and name and not set("=\0") & set(name), f"{name!r} names no variable"
                assert isinstance(value, str) and "\0" not in value, f"{name} is {value!r}"
        assert dict(os.environ) == before, "it changes the environment of Ralph itself"

    def test_a_success_is_told_once_and_last(self, success: Path) -> None:
        events, account = self._played(success)
        ends = [event for event in events if event.kind is Kind.RESULT]
        assert account.failure is None, f"a failure is told ({account.failure}): {account.error}"
        assert not any(event.is_error for event in ends), "the end is told as an error"
        if self.adapter.announces_end:
            assert len(ends) == 1, f"the end is told {len(ends)} times"
            assert events[-1].kind is Kind.RESULT, f"after the end comes {events[-1]}"

    def test_it_tells_what_it_can_tell(self, success: Path) -> None:
        _, account = self._played(success)
        can = self.adapter.abilities
        assert bool(account.session) == can.session, f"session is {can.session}; the conversation: {account.session!r}"
        assert bool(account.usage.tokens) == can.tokens, f"tokens is {can.tokens}; used were {account.usage}"
        assert account.usage.cost is not None or not can.cost, f"cost is True; used were {account.usage}"

    def test_tokens_are_counted_once(self, success: Path) -> None:
        if success.stem in self.tokens:
            used = self._played(success)[1].usage
            told, true = (used.input_tokens, used.output_tokens), self.tokens[success.stem]
            assert told == tuple(true), f"in and out are counted as {told}, and were {true}"

    def test_a_failure_is_told(self, failing: Path) -> None:
        _, account = self._played(failing)
        wanted, stderr = FAILURES.get(_suffix(failing)), failing.with_suffix("") / "stderr"
        told, error = account.failure, account.error
        if told is None and stderr.exists():
            told, error = self.adapter.failure(1, stderr.read_text(errors="replace")) or (None, "")
        assert not account.finished, "a turn that failed is told as a success"
        assert told is not None, "no failure is told"
        assert wanted in (None, told), f"the failure is {wanted}, and told as {told}"
        assert error.strip(), "nothing is said of the failure"

    def test_a_stream_that_is_cut_is_no_success(self, stream: Path) -> None:
        if not self.adapter.announces_end:
            return
        lines = _lines(stream)
        last = self._last_line(stream)
        whole, end = b"\n".join(lines[: last + 1]), lines[last]
        sizes = {*range(0, len(whole), max(1, len(whole) // _CUTS))}
        sizes |= {len(whole) - left for left in range(1, len(end) + 1, max(1, len(end) // _CUTS))}
        for size in sorted(sizes - {len(whole)}):
            finished = self._played(stream, whole[:size].split(b"\n"))[1].finished
            assert not finished, f"cut after {size} of {len(whole)} bytes, it is a success: ...{whole[:size][-80:]!r}"

    def test_spoilt_lines_do_no_harm(self, stream: Path) -> None:
        for seed in range(_ROUNDS):
            chance = random.Random(seed)
            self._played(stream, [piece for line in _lines(stream) for piece in spoilt(line, chance)])

    def test_foreign_lines_change_nothing(self, stream: Path) -> None:
        lines = _lines(stream)
        for start, step in ((0, 1), (5, 7), (11, 3)):
            noise = (NOISE[(start + step * number) % len(NOISE)] for number in range(len(lines)))
            mixed = [one for pair in zip(noise, lines, strict=True) for one in pair]
            told, plain = self._played(stream, [*MONSTERS, *mixed])[1], self._played(stream)[1]
            for what in ("finished", "session", "usage", "failure"):
                before, after = getattr(plain, what), getattr(told, what)
                assert before == after, f"with foreign lines, {what} is {after} instead of {before}"

    def test_texts_are_clean_and_short(self, stream: Path) -> None:
        for seed in range(_ROUNDS // 8):
            chance = random.Random(seed)
            self._played(stream, [poisoned(line, chance) for line in _lines(stream)])

    def test_readers_know_nothing_of_each_other(self, stream: Path) -> None:
        lines = _lines(stream)
        alone = self._played(stream)[0]
        one, other = (self._reader(stream) for _ in range(2))
        assert one is not other, "two turns have the same reader"
        both = [(tuple(one.read(line)), tuple(other.read(line))) for line in lines]
        for side in range(2):
            told = [event for pair in both for event in pair[side]]
            assert _timeless(told) == _timeless(alone), "what a reader tells depends on another reader"

    def test_exits_are_explained(self) -> None:
        for code in _EXITS:
            for stderr in _LAST_WORDS:
                told = self.adapter.failure(code, stderr)
                if told is not None:
                    kind, why = told
                    assert isinstance(kind, Failure), f"the failure of exit {code} is {kind!r}"
                    assert why.strip() and _is_clean(why, TEXT_CHARS), f"what is said of exit {code} is {why[:200]!r}"

    def test_nobody_is_signed_in_on_an_empty_machine(self, tmp_path: Path) -> None:
        for home in (tmp_path, tmp_path / "missing"):
            signed_in, told = self.adapter.sign_in({}, home)
            assert signed_in is not True, "it is said to be signed in where there is neither a key nor a file"
            assert told.strip(), "nothing is said of how to sign in"
        assert not list(tmp_path.iterdir()), "looking for a sign-in wrote files"

    def test_keys_are_seen_and_not_told(self, tmp_path: Path) -> None:
        place = tmp_path / self.adapter.settings[1]
        for name in self.adapter.credentials:
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_text(SECRET)
        with_key = [({name: SECRET}, tmp_path / "missing") for name in (*self.adapter.keys, *self.adapter.services)]
        with_file: list[tuple[dict[str, str], Path]] = [({}, tmp_path)] if self.adapter.credentials else []
        for environment, home in (*with_key, *with_file):
            signed_in, told = self.adapter.sign_in(environment, home)
            assert signed_in is not False, f"{', '.join(environment) or self.adapter.credentials[0]} is not looked at"
            assert SECRET not in told, "a key is told"

    def _said(self, call: Call) -> str:
        variables = (f"{name}={value}" for name, value in sorted(self.adapter.environment(call).items()))
        return "\n".join((*self.adapter.command(call), *variables))

    def _reader(self, stream: Path) -> Reader:
        beside = stream.with_suffix("")
        place = beside if beside.is_dir() else stream.parent
        return self.adapter.reader(Call(Path("/repo"), prompt=place / "prompt.md"), Usage())

    def _played(self, stream: Path, lines: Iterable[bytes] | None = None) -> tuple[list[AgentEvent], Account]:
        """What a new reader makes of a recorded turn, or of other lines in its place; each event of it is as it may be."""
        reader, account, events = self._reader(stream), Account(), []
        for line in _lines(stream) if lines is None else lines:
            for event in reader.read(line):
                _refuse_unfit(event)
                events.append(event)
                account.take(event)
        return events, account

    def _last_line(self, stream: Path) -> int:
        """The line by which a turn is told to have ended; the last one where none is."""
        reader, lines = self._reader(stream), _lines(stream)
        ends = [at for at, line in enumerate(lines) if any(event.kind is Kind.RESULT for event in reader.read(line))]
        return ends[0] if ends else len(lines) - 1


def _lines(path: Path) -> list[bytes]:
    return path.read_bytes().removesuffix(b"\n").split(b"\n")


def _is_clean(text: str, most: int) -> bool:
    return isinstance(text, str) and len(text) <= most and text == clean_text(text)


def _refuse_unfit(event: AgentEvent) -> None:
    """Every event can be stored, shown and counted with."""
    assert isinstance(event, AgentEvent), f"{event!r} is no event"
    used, most = event.usage, TOOL_CHARS if event.kind in _SHORT else TEXT_CHARS
    assert used.input_tokens >= 0 and used.output_tokens >= 0 and (used.cost or 0) >= 0, f"negative: {used}"
    assert used.tokens < 10**13 and (used.cost or 0) < 10**9, f"nobody uses as much: {used}"
    assert _is_clean(event.text, most), f"{event.kind}: longer than {most}, or not clean: {event.text[:200]!r}"
    assert _is_clean(event.session, TOOL_CHARS), f"the conversation's id is {event.session[:200]!r}"
    assert event.session or event.kind is not Kind.SESSION, "a conversation without an id"
    assert event.resets_at is None or abs(event.resets_at - time.time()) < 100 * 86400, f"ends at {event.resets_at}"
    if event.kind is Kind.RESULT:
        assert event.is_error == (event.failure is not None), "an end is an error exactly where it names a failure"


def _timeless(events: Iterable[AgentEvent]) -> list[tuple[object, ...]]:
    """Events without the moments in them, which the clock moves on."""
    return [(event.kind, event.text, event.usage, event.session, event.is_error, event.failure) for event in events]
