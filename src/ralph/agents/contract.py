"""The contract for every adapter, as tests to run with pytest. The engine relies on each of them.

class TestParrot(AdapterContract):
    adapter = Parrot()
    streams = find_recordings(Path(__file__).with_name("streams"), "parrot")
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

from ralph.agents.adapter import FULL_AUTO, PERMISSIONS, Abilities, Adapter, Call, Reader
from ralph.agents.stream_lines import TEXT_CHARS, TOOL_CHARS
from ralph.core.codec import parse_json_object
from ralph.core.limits import Usage
from ralph.core.text import clean_text
from ralph.core.turns import AgentEvent, EventKind, Failure
from ralph.workspace.turn_files import OutputSummary

POISON = "\x1b[31m\x00\x7f\x9b\ud800 " * 4_000
"""A very long text, full of control characters for terminals."""
FOREIGN_LINES = (
    *(b"", b"  ", b"Welcome! A new version is there.", b"\xff\xfe\x00\x1b[31m", b"{", b"}", b"null", b"[]", b'"a"'),
    *(b"{}", b'{"type": null}', b'{"type": ["a"]}', b'{"type": {"a": 1}}', b'{"type": "nobody-knows-it"}'),
)
"""Lines that are not events of any agent."""
HUGE_LINES = (b'{"a":' * 100_000, b"x" * 2_000_000)
"""The same, nested deeper and longer than any real line."""
_WRONG_VALUES: tuple[Any, ...] = (
    *(None, True, False, -1, 7, 10**400, 1e308, float("nan")),
    *("", POISON, [], [[]], {}, {"a": [1]}),
)


def malform(line: bytes, chance: random.Random) -> list[bytes]:
    """A line cut, doubled, torn, between garbage, or with other values in it; often unchanged."""
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
            return [_change_values(line, chance)]
        case _:
            return [line]


def _change_values(line: bytes, chance: random.Random) -> bytes:
    """A line with some of its values changed or dropped; with some of its bytes changed if it is not an object."""
    data = parse_json_object(line)
    if not data:
        return bytes(chance.randrange(256) if chance.random() < 0.1 else byte for byte in line)
    for _ in range(chance.randrange(1, 4)):
        if slots := list(_slots(data)):
            container, key = chance.choice(slots)
            if chance.random() < 0.3:
                del container[key]
            else:
                container[key] = deepcopy(chance.choice(_WRONG_VALUES))
    return json.dumps(data).encode()


def poison_texts(line: bytes, chance: random.Random) -> bytes:
    """A line with poison in some of its texts."""
    data = parse_json_object(line)
    if not data:
        return line + POISON.encode(errors="replace") + line
    for container, key in list(_slots(data)):
        if isinstance(container[key], str) and chance.random() < 0.5:
            container[key] += POISON
    return json.dumps(data).encode()


def _slots(data: Any) -> Iterator[tuple[Any, Any]]:
    """Every value in it, as its container and its key there."""
    for key in list(data) if isinstance(data, dict) else range(len(data)):
        yield data, key
        if isinstance(data[key], dict | list):
            yield from _slots(data[key])


FAILURES: Mapping[str, Failure | None] = {
    "limited": Failure.LIMIT,
    "overloaded": Failure.OVERLOAD,
    "signed-out": Failure.ACCESS,
    "budget": None,
    "turns": None,
    "failed": None,
}
"""The endings of files with a failed turn, and the class of the failure if the ending implies it."""
SECRET = "sk-a-key-that-must-stay-secret"
REQUESTS: Mapping[str, tuple[Call, str]] = {
    "model": (Call(Path("/repo"), model="model-that-is-asked-for"), "model-that-is-asked-for"),
    "resume": (
        Call(Path("/repo"), session="7f9c24e5-1b1d-4d0b-9d6e-3a2f1c0b9a88"),
        "7f9c24e5-1b1d-4d0b-9d6e-3a2f1c0b9a88",
    ),
    "budget": (Call(Path("/repo"), budget=1.2345), "1.2345"),
    "step_limit": (Call(Path("/repo"), most_steps=7919), "7919"),
    "tool_limits": (Call(Path("/repo"), without_tools=("a-tool-to-do-without",)), "a-tool-to-do-without"),
}
"""By the ability that it needs: a call that asks for one feature, and the text by which to recognize it."""
_PLAIN_CALL = Call(Path("/repo"))
_CONTINUE = {"--continue", "--resume", "--last", "continue", "resume"}
_MAX_COMMAND_CHARS = 100_000
_CUT_COUNT, _ROUND_COUNT = 100, 40
_EXITS = (None, 0, 1, 2, 41, 124, 130, 137, 143, 173, 255, -9, -15)
_STDERR_ENDS = (
    *("", " \n\n", "Error: 401 Unauthorized", "429 Too Many Requests, retry in 20s", POISON, "{" * 5000),
    *('{"error": {"message": 7}}', '{"error": []}', "\udcff\udcfe", "a b c\n" * 10_000),
)
_SHORT_KINDS = (EventKind.TOOL, EventKind.TOOL_RESULT, EventKind.DENIED, EventKind.RETRY)


def find_recordings(directory: Path, name: str) -> dict[str, tuple[Path, ...]]:
    """The recorded turns of an agent in a directory: `NAME.jsonl` and `NAME-WHAT.jsonl` (or .txt), by how they ended."""
    files = sorted(path for path in directory.iterdir() if path.suffix in (".jsonl", ".txt"))
    own = [path for path in files if path.stem == name or path.stem.startswith(f"{name}-")]
    failing = tuple(path for path in own if _suffix(path))
    return {"success": tuple(path for path in own if path not in failing), "failure": failing}


def _suffix(path: Path) -> str:
    return next((suffix for suffix in FAILURES if path.stem.endswith(f"-{suffix}")), "")


class AdapterContract:
    """The tests of one adapter. Derive a class from it that names the adapter."""

    adapter: Adapter
    streams: Mapping[str, Sequence[Path]] = {}
    """What the real program printed in whole turns: files under `success` and `failure`, at least one of each.

    A directory beside a file (`NAME/` for `NAME.jsonl`) can contain more: `stderr`, if a failure is reported only there,
    and files that the program left beside its prompt. Those can also be beside all recorded turns.
    """
    tokens: Mapping[str, tuple[int, int]] = {}
    """What those turns really used, tokens in and out, by file name without its suffix; at least one."""

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """One test for each file."""
        kinds = {"success": ("success",), "failing": ("failure",), "stream": ("success", "failure")}
        for argument in kinds.keys() & set(metafunc.fixturenames):
            files = [path for kind in kinds[argument] for path in self.streams.get(kind, ())]
            metafunc.parametrize(argument, files, ids=[path.stem for path in files])

    def test_it_describes_itself(self) -> None:
        agent = self.adapter
        for attribute in ("name", "install", "advice"):
            text = getattr(agent, attribute, None)
            assert isinstance(text, str) and text.strip() and text == clean_text(text), f"its {attribute} is {text!r}"
        for attribute in ("keys", "services", "credentials"):
            names = getattr(agent, attribute)
            assert isinstance(names, tuple), f"its {attribute} are a {type(names).__name__}, not a tuple"
            assert all(isinstance(name, str) and name for name in names), f"its {attribute} are {names!r}"
        assert isinstance(agent.abilities, Abilities), "its abilities are not of the class Abilities"
        assert isinstance(agent.announces_end, bool), "announces_end is neither True nor False"

    def test_its_abilities_agree(self) -> None:
        can = self.adapter.abilities
        assert can.session or not can.resume, "it cannot continue a conversation (resume) whose id it does not report"
        declared = type(self.adapter).sign_in is not Adapter.sign_in or self.adapter.keys or self.adapter.credentials
        assert declared, "nothing shows whether the user is signed in: name keys or credentials, or define sign_in"

    def test_it_receives_messages_only_if_its_abilities_say_so(self) -> None:
        can = self.adapter.abilities
        assert not self.adapter.can_receive_messages(_PLAIN_CALL) or can.hooks or can.live_input, (
            "can_receive_messages() is True, but its abilities have neither hooks nor live_input"
        )

    def test_turns_are_recorded(self) -> None:
        for kind in ("success", "failure"):
            assert self.streams.get(kind), f"there is no recorded turn of the kind {kind}"
        assert all(path.stat().st_size for path in self.streams["success"]), "a recorded success is empty"
        known = self.tokens.keys() & {path.stem for path in self.streams["success"]}
        assert known or not self.adapter.abilities.tokens, "`tokens` has no entry for a recorded success"

    def test_the_command_is_a_tuple_of_strings(self) -> None:
        for call in (_PLAIN_CALL, *(call for call, _ in REQUESTS.values())):
            command = self.adapter.command(call)
            assert isinstance(command, tuple) and command, f"the command is {command!r}, not a tuple of strings"
            for argument in command:
                assert isinstance(argument, str) and argument and "\0" not in argument, f"not an argument: {argument!r}"
            assert not {"None", "True", "False"} & set(command), f"a missing value became an argument: {command!r}"
            assert command == self.adapter.command(call), "the same call gives another command the second time"

    def test_the_program_can_be_named(self) -> None:
        command = type(self.adapter)("/opt/elsewhere/agent").command(_PLAIN_CALL)
        assert "/opt/elsewhere/agent" in command, f"the requested program is not started: {command!r}"

    @pytest.mark.parametrize("ability", REQUESTS)
    def test_every_request_is_passed_on(self, ability: str) -> None:
        call, mark = REQUESTS[ability]
        plain, requested = self._join_command(_PLAIN_CALL), self._join_command(call)
        if getattr(self.adapter.abilities, ability):
            assert mark in requested, f"its abilities have {ability}, but {mark!r} is in no argument and no variable"
        else:
            assert requested == plain, f"its abilities do not have {ability}, but the command changes"

    def test_nothing_else_is_passed_on(self) -> None:
        plain = self.adapter.command(_PLAIN_CALL)
        assert not _CONTINUE & set(plain), f"the request is for a new conversation, not for {plain!r}"
        for ability in ("model", "budget", "step_limit"):
            # `in` consumes the iterator: the plain command must be a subsequence of the requested one.
            requested = iter(self.adapter.command(REQUESTS[ability][0]))
            dropped = [argument for argument in plain if argument not in requested]
            assert not dropped, f"{dropped[0]!r} is passed although the call does not ask for {ability}"
        for call, mark in REQUESTS.values():
            self.adapter.command(call)
            assert mark not in self._join_command(_PLAIN_CALL), f"{mark!r} is left from another call"

    def test_arguments_of_the_user_are_handed_on(self) -> None:
        arguments = ("--an-option-of-theirs", "two words")
        command = self.adapter.command(Call(Path("/repo"), arguments=arguments))
        assert _contains(command, arguments), f"{arguments!r} is not in {command!r}"

    def test_every_level_of_permissions_is_passed_on(self) -> None:
        levels = self.adapter.permission_modes
        assert FULL_AUTO in levels, "it must be able to work without approvals (full-auto)"
        assert set(levels) <= set(PERMISSIONS), f"its levels are {list(levels)}; the known levels are {PERMISSIONS}"
        for level, mode in levels.items():
            command = self.adapter.command(Call(Path("/repo"), permissions=level))
            assert _contains(command, mode), f"{mode} is not in {command}"

    def test_a_permission_mode_of_the_user_wins(self) -> None:
        full_auto = self.adapter.permission_modes[FULL_AUTO]
        for option in self.adapter.permission_options:
            theirs = f"{option}=theirs"
            command = self.adapter.command(Call(Path("/repo"), arguments=(theirs,)))
            assert theirs in command and not set(full_auto) & set(command), f"the user chose {option}, not {command}"

    def test_the_prompt_is_not_on_the_command_line(self, tmp_path: Path) -> None:
        prompt = tmp_path / "prompt.md"
        self.adapter.command(Call(tmp_path, prompt=prompt))  # --dry-run shows it before there is a prompt
        prompt.write_text(f"{SECRET} " * 20_000)
        call = Call(tmp_path, prompt=prompt)
        texts = (*self.adapter.command(call), *self.adapter.environment(call).values())
        assert SECRET not in " ".join(texts), "the prompt is on the command line, which is too short for long ones"
        assert sum(map(len, texts)) < _MAX_COMMAND_CHARS, "the command line is too long"

    def test_the_environment_has_valid_variables(self) -> None:
        before = dict(os.environ)
        for call in (_PLAIN_CALL, *(call for call, _ in REQUESTS.values())):
            for name, value in self.adapter.environment(call).items():
                assert isinstance(name, str) and name and not set("=\0") & set(name), (
                    f"{name!r} is not the name of a variable"
                )
                assert isinstance(value, str) and "\0" not in value, f"{name} is {value!r}"
        assert dict(os.environ) == before, "it changes the environment of Ralph"

    def test_a_success_is_reported_once_and_last(self, success: Path) -> None:
        events, summary = self._play(success)
        ends = [event for event in events if event.kind is EventKind.RESULT]
        assert summary.failure is None, f"a failure is reported ({summary.failure}): {summary.error}"
        assert not any(event.is_error for event in ends), "the end is reported as an error"
        if self.adapter.announces_end:
            assert len(ends) == 1, f"the end is reported {len(ends)} times"
            assert events[-1].kind is EventKind.RESULT, f"after the end comes {events[-1]}"

    def test_it_reports_what_its_abilities_say(self, success: Path) -> None:
        _, summary = self._play(success)
        can = self.adapter.abilities
        assert bool(summary.session) == can.session, f"session is {can.session}; the conversation: {summary.session!r}"
        assert bool(summary.usage.tokens) == can.tokens, f"tokens is {can.tokens}; the turn used {summary.usage}"
        assert summary.usage.cost is not None or not can.cost, f"cost is True; the turn used {summary.usage}"

    def test_tokens_are_counted_once(self, success: Path) -> None:
        if success.stem in self.tokens:
            used = self._play(success)[1].usage
            reported, expected = (used.input_tokens, used.output_tokens), self.tokens[success.stem]
            assert reported == tuple(expected), f"the input and output tokens are {reported}; expected {expected}"

    def test_a_failure_is_reported(self, failing: Path) -> None:
        _, summary = self._play(failing)
        wanted, stderr = FAILURES.get(_suffix(failing)), failing.with_suffix("") / "stderr"
        reported, error = summary.failure, summary.error
        if reported is None and stderr.exists():
            reported, error = self.adapter.failure(1, stderr.read_text(errors="replace")) or (None, "")
        assert not summary.finished, "a failed turn is reported as a success"
        assert reported is not None, "no failure is reported"
        assert wanted in (None, reported), f"the failure is {wanted}, but is reported as {reported}"
        assert error.strip(), "the failure has no message"

    def test_a_stream_that_is_cut_is_not_a_success(self, stream: Path) -> None:
        if not self.adapter.announces_end:
            return
        lines = _lines(stream)
        last = self._last_line(stream)
        whole, end = b"\n".join(lines[: last + 1]), lines[last]
        sizes = {*range(0, len(whole), max(1, len(whole) // _CUT_COUNT))}
        sizes |= {len(whole) - left for left in range(1, len(end) + 1, max(1, len(end) // _CUT_COUNT))}
        for size in sorted(sizes - {len(whole)}):
            finished = self._play(stream, whole[:size].split(b"\n"))[1].finished
            assert not finished, f"cut after {size} of {len(whole)} bytes, it is a success: ...{whole[:size][-80:]!r}"

    def test_malformed_lines_do_no_harm(self, stream: Path) -> None:
        for seed in range(_ROUND_COUNT):
            chance = random.Random(seed)
            lines: list[bytes] = []
            for line in _lines(stream):
                lines += malform(line, chance)
            self._play(stream, lines)

    def test_foreign_lines_change_nothing(self, stream: Path) -> None:
        lines = _lines(stream)
        for start, step in ((0, 1), (5, 7), (11, 3)):
            foreign = (FOREIGN_LINES[(start + step * number) % len(FOREIGN_LINES)] for number in range(len(lines)))
            mixed: list[bytes] = []
            for pair in zip(foreign, lines, strict=True):
                mixed += pair
            with_foreign, plain = self._play(stream, [*HUGE_LINES, *mixed])[1], self._play(stream)[1]
            for attribute in ("finished", "session", "usage", "failure"):
                before, after = getattr(plain, attribute), getattr(with_foreign, attribute)
                assert before == after, f"with foreign lines, {attribute} is {after} instead of {before}"

    def test_texts_are_clean_and_short(self, stream: Path) -> None:
        for seed in range(_ROUND_COUNT // 8):
            chance = random.Random(seed)
            self._play(stream, [poison_texts(line, chance) for line in _lines(stream)])

    def test_readers_share_no_state(self, stream: Path) -> None:
        lines = _lines(stream)
        alone = self._play(stream)[0]
        one, other = (self._reader(stream) for _ in range(2))
        assert one is not other, "two turns have the same reader"
        from_one: list[AgentEvent] = []
        from_other: list[AgentEvent] = []
        for line in lines:
            from_one += one.read(line)
            from_other += other.read(line)
        for events in (from_one, from_other):
            assert _without_times(events) == _without_times(alone), "the events of a reader depend on another reader"

    def test_exits_are_explained(self) -> None:
        for code in _EXITS:
            for stderr in _STDERR_ENDS:
                failure = self.adapter.failure(code, stderr)
                if failure is not None:
                    kind, reason = failure
                    assert isinstance(kind, Failure), f"the failure of exit {code} is {kind!r}"
                    is_fit = reason.strip() and _is_clean(reason, TEXT_CHARS)
                    assert is_fit, f"the message for exit {code} is {reason[:200]!r}"

    def test_an_empty_machine_is_not_signed_in(self, tmp_path: Path) -> None:
        for home in (tmp_path, tmp_path / "missing"):
            signed_in, detail = self.adapter.sign_in({}, home)
            assert signed_in is not True, "it says that it is signed in although there is neither a key nor a file"
            assert detail.strip(), "it does not say how to sign in"
        assert not list(tmp_path.iterdir()), "looking for a sign-in wrote files"

    def test_keys_are_found_and_not_shown(self, tmp_path: Path) -> None:
        directory = tmp_path / self.adapter.settings[1]
        for name in self.adapter.credentials:
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            (directory / name).write_text(SECRET)
        with_key = [({name: SECRET}, tmp_path / "missing") for name in (*self.adapter.keys, *self.adapter.services)]
        with_file: list[tuple[dict[str, str], Path]] = [({}, tmp_path)] if self.adapter.credentials else []
        for environment, home in (*with_key, *with_file):
            signed_in, detail = self.adapter.sign_in(environment, home)
            source = ", ".join(environment) or self.adapter.credentials[0]
            assert signed_in is not False, f"{source} is ignored"
            assert SECRET not in detail, "a key is shown"

    def _join_command(self, call: Call) -> str:
        variables = (f"{name}={value}" for name, value in sorted(self.adapter.environment(call).items()))
        return "\n".join((*self.adapter.command(call), *variables))

    def _reader(self, stream: Path) -> Reader:
        own = stream.with_suffix("")
        directory = own if own.is_dir() else stream.parent
        return self.adapter.reader(Call(Path("/repo"), prompt=directory / "prompt.md"), Usage())

    def _play(self, stream: Path, lines: Iterable[bytes] | None = None) -> tuple[list[AgentEvent], OutputSummary]:
        """The events of a new reader for a recorded turn, or for other lines. Each of them must be valid."""
        reader, summary, events = self._reader(stream), OutputSummary(), []
        for line in _lines(stream) if lines is None else lines:
            for event in reader.read(line):
                _check_event(event)
                events.append(event)
                summary.take(event)
        return events, summary

    def _last_line(self, stream: Path) -> int:
        """The index of the line that ends a turn; of the last line if none does."""
        reader, lines = self._reader(stream), _lines(stream)
        ends = [
            at for at, line in enumerate(lines) if any(event.kind is EventKind.RESULT for event in reader.read(line))
        ]
        return ends[0] if ends else len(lines) - 1


def _lines(path: Path) -> list[bytes]:
    return path.read_bytes().removesuffix(b"\n").split(b"\n")


def _contains(command: tuple[str, ...], arguments: tuple[str, ...]) -> bool:
    starts = range(len(command))
    return any(command[start : start + len(arguments)] == arguments for start in starts)


def _is_clean(text: str, most: int) -> bool:
    return isinstance(text, str) and len(text) <= most and text == clean_text(text)


def _check_event(event: AgentEvent) -> None:
    """Every event can be stored, shown and counted."""
    assert isinstance(event, AgentEvent), f"{event!r} is not an event"
    used, most = event.usage, TOOL_CHARS if event.kind in _SHORT_KINDS else TEXT_CHARS
    assert used.input_tokens >= 0 and used.output_tokens >= 0 and (used.cost or 0) >= 0, f"negative: {used}"
    assert used.tokens < 10**13 and (used.cost or 0) < 10**9, f"implausible: {used}"
    assert _is_clean(event.text, most), f"{event.kind}: longer than {most}, or not clean: {event.text[:200]!r}"
    assert _is_clean(event.session, TOOL_CHARS), f"the conversation's id is {event.session[:200]!r}"
    assert event.session or event.kind is not EventKind.SESSION, "a conversation without an id"
    assert event.resets_at is None or abs(event.resets_at - time.time()) < 100 * 86400, f"ends at {event.resets_at}"
    if event.kind is EventKind.RESULT:
        assert event.is_error == (event.failure is not None), "an end is an error exactly if it names a failure"


def _without_times(events: Iterable[AgentEvent]) -> list[tuple[object, ...]]:
    """Events without the times in them, which depend on the clock."""
    return [(event.kind, event.text, event.usage, event.session, event.is_error, event.failure) for event in events]
