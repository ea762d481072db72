"""The contract of the adapters: every one of ours keeps it, and each of its checks sees an adapter that does not."""

import importlib
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from ralph.agents import registry
from ralph.agents.adapter import Abilities, Adapter, Call
from ralph.agents.contract import FAILURES, REQUESTS, SECRET, AdapterContract, find_recordings
from ralph.core.limits import Usage
from ralph.core.turns import AgentEvent, EventKind, Failure

STREAMS = Path(__file__).with_name("streams")
TEMPLATE = Path(__file__).parents[2] / "examples" / "agent-plugin"
TOKENS = {
    "claude": (2000, 57),
    "claude-older": (3000, 150),
    "codex": (1500, 57),
    "gemini": (1500, 80),
    "opencode": (3000, 150),
    "copilot": (3000, 150),
    "goose": (2000, 100),
    "qwen": (2000, 100),
    "pi": (2000, 100),
    "cline": (2000, 80),
    "aider": (1000, 50),
    "mini": (2000, 80),
    "amp": (25683, 58),
    "cursor": (8000, 96),
}
"""What the turns used that were recorded, by what the model's server answered."""

sys.path.insert(0, str(TEMPLATE / "src"))
parrot = importlib.import_module("ralph_agent_parrot.adapter")
sys.path.remove(str(TEMPLATE / "src"))
Parrot: type[Adapter] = parrot.Parrot
EXAMPLES = find_recordings(TEMPLATE / "tests" / "streams", "parrot")


@pytest.fixture(autouse=True)
def place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the prompt is: copilot tells what it used in a file beside it."""
    monkeypatch.chdir(STREAMS)


def own_streams(name: str) -> dict[str, tuple[Path, ...]]:
    """The recorded streams of one of our agents; `claude-acp.jsonl` is none of claude's where there is a claude-acp."""
    longer = tuple(f"{other}" for other in registry.ADAPTERS if other.startswith(f"{name}-"))
    found = find_recordings(STREAMS, name)
    return {kind: tuple(one for one in files if not one.stem.startswith(longer)) for kind, files in found.items()}


def contract(name: str) -> type[AdapterContract]:
    """The tests of one of our agents."""
    about = {"adapter": registry.get_adapter(name), "streams": own_streams(name), "tokens": TOKENS}
    return type(f"Test{name.title()}", (AdapterContract,), about)


globals().update({f"Test{name.title()}": contract(name) for name in registry.ADAPTERS})


class TestTemplate(AdapterContract):
    """The example of an adapter of a third party."""

    adapter = Parrot()
    streams = EXAMPLES
    tokens = {"parrot": (1240, 30)}  # noqa: RUF012 - as people will write it


def test_every_recorded_stream_belongs_to_an_agent() -> None:
    own = {path for name in registry.ADAPTERS for files in own_streams(name).values() for path in files}
    assert not {path for path in STREAMS.iterdir() if path.suffix in (".jsonl", ".txt")} - own


def test_file_names_say_how_a_turn_ended(tmp_path: Path) -> None:
    failing = [f"a-{suffix}.jsonl" for suffix in FAILURES]
    for name in (*failing, "a.jsonl", "a-resumed.txt", "ab.jsonl", "a.md"):
        (tmp_path / name).touch()
    found = {kind: {path.name for path in files} for kind, files in find_recordings(tmp_path, "a").items()}
    assert found == {"success": {"a.jsonl", "a-resumed.txt"}, "failure": set(failing)}


@dataclass
class Read:
    """A reader of parrot's that does something to what the true one tells, or to what it is given."""

    to_events: Callable[[list[AgentEvent]], Iterable[AgentEvent]] = lambda events: events
    to_line: Callable[[bytes], bytes] = lambda line: line
    true: Any = field(default_factory=lambda: Parrot().reader(Call(Path()), Usage()))

    def read(self, line: bytes) -> list[AgentEvent]:
        return list(self.to_events(list(self.true.read(self.to_line(line)))))


def reading(**how: Any) -> type[Adapter]:
    """Parrot with another reader."""
    return with_(reader=lambda self, call, before: Read(**how))


def with_(**attributes: Any) -> type[Adapter]:
    """Parrot with something else about it."""
    return type("Broken", (Parrot,), attributes)


def saying(say: Callable[[Call], Iterable[str]]) -> type[Adapter]:
    """Parrot with another command."""
    return with_(command=lambda self, call: tuple(say(call)))


def real_command(call: Call) -> tuple[str, ...]:
    """The command of the real adapter."""
    return Parrot().command(call)


def changed(kind: EventKind, **changes: Any) -> Callable[[list[AgentEvent]], list[AgentEvent]]:
    """Events of a kind are told with something else about them."""
    return lambda events: [replace(event, **changes) if event.kind is kind else event for event in events]


def without(*kinds: EventKind) -> Callable[[list[AgentEvent]], list[AgentEvent]]:
    """Events of these kinds are not told."""
    return lambda events: [event for event in events if event.kind not in kinds]


def raising(*_: object) -> Any:
    """What no method may do."""
    raise ValueError("a line that nobody expected")


class Trusting:
    """Takes a line for the end by how it begins, as if lines were never cut."""

    def read(self, line: bytes) -> Iterator[AgentEvent]:
        if line.startswith(b'{"type": "end", "ok": true'):
            yield AgentEvent(EventKind.RESULT, "done")


class Sharing:
    """Keeps what it has read for all turns."""

    seen: dict[bytes, int] = {}  # noqa: RUF012 - that is what is wrong with it

    def read(self, line: bytes) -> Iterator[AgentEvent]:
        self.seen[line] = self.seen.get(line, 0) + 1
        yield AgentEvent(EventKind.TEXT, f"line {self.seen[line]}")


class Unguarded:
    """Reads JSON as if every line were an object."""

    def read(self, line: bytes) -> Iterator[AgentEvent]:
        yield AgentEvent(EventKind.TEXT, importlib.import_module("json").loads(line)["type"])


class Counting:
    """Counts the usage of every line that tells one, although it is a running total."""

    def read(self, line: bytes) -> Iterator[AgentEvent]:
        yield from (event for event in Read().true.read(line))


def environment(**variables: Any) -> type[Adapter]:
    return with_(environment=lambda self, call: variables)


def meddling(self: Adapter, call: Call) -> dict[str, str]:
    os.environ["PARROT_MEDDLES"] = os.environ.get("PARROT_MEDDLES", "") + "x"
    return {}


def leaking(self: Adapter, call: Call) -> tuple[str, ...]:
    """Remembers the model of the call before."""
    told = getattr(self, "last", "")
    self.last = call.model or told  # type: ignore[attr-defined]
    return (*real_command(replace(call, model="")), *((self.last,) if self.last else ()))  # type: ignore[attr-defined]


def writing_settings(self: Adapter, environment: object, home: Path) -> tuple[bool, str]:
    home.mkdir(exist_ok=True)
    (home / "settings.json").touch()
    return False, self.advice


CAN, ONE = Parrot.abilities, Trusting()
RESULT, SESSION, USAGE = EventKind.RESULT, EventKind.SESSION, EventKind.USAGE
BROKEN: list[tuple[str, type[Adapter] | dict[str, Any], str]] = [
    ("it_describes_itself", with_(install=""), "its install is ''"),
    ("it_describes_itself", with_(keys="PARROT_API_KEY"), "its keys are a str"),
    ("it_describes_itself", with_(abilities={"tokens": True}), "not of the class Abilities"),
    ("its_abilities_agree", with_(abilities=Abilities(resume=True)), "whose id it does not report"),
    ("its_abilities_agree", with_(keys=(), credentials=()), "nothing shows whether the user is signed in"),
    (
        "it_receives_messages_only_if_its_abilities_say_so",
        with_(can_receive_messages=lambda self, call: True),
        "neither hooks nor live_input",
    ),
    ("turns_are_recorded", {"streams": {"success": EXAMPLES["success"]}}, "no recorded turn of the kind failure"),
    ("turns_are_recorded", {"streams": {**EXAMPLES, "success": (Path(os.devnull),)}}, "a recorded success is empty"),
    ("turns_are_recorded", {"tokens": {}}, "has no entry for a recorded success"),
    (
        "the_command_is_a_tuple_of_strings",
        with_(command=lambda self, call: list(real_command(call))),
        "not a tuple of strings",
    ),
    ("the_command_is_a_tuple_of_strings", saying(lambda call: (*real_command(call), "")), "not an argument"),
    (
        "the_command_is_a_tuple_of_strings",
        saying(lambda call: ("parrot", "--json", "--model", str(call.model or None))),
        "a missing value",
    ),
    (
        "the_command_is_a_tuple_of_strings",
        saying(lambda call: (*real_command(call), os.urandom(8).hex())),
        "another command the second time",
    ),
    ("the_program_can_be_named", saying(lambda call: ("parrot", *real_command(call)[1:])), "is not started"),
    (
        "every_request_is_passed_on",
        saying(lambda call: real_command(replace(call, model=""))),
        "its abilities have model",
    ),
    (
        "every_request_is_passed_on",
        saying(lambda call: real_command(replace(call, session=""))),
        "its abilities have resume",
    ),
    ("every_request_is_passed_on", with_(abilities=replace(CAN, budget=True)), "its abilities have budget"),
    ("every_request_is_passed_on", with_(abilities=replace(CAN, step_limit=True)), "its abilities have step_limit"),
    ("every_request_is_passed_on", with_(abilities=replace(CAN, tool_limits=True)), "its abilities have tool_limits"),
    ("every_request_is_passed_on", with_(abilities=replace(CAN, model=False)), "its abilities do not have model"),
    (
        "nothing_else_is_passed_on",
        saying(lambda call: real_command(replace(call, model=call.model or "big"))),
        "'big' is passed although the call",
    ),
    (
        "nothing_else_is_passed_on",
        saying(lambda call: (*real_command(call), "--continue")),
        "the request is for a new conversation",
    ),
    ("nothing_else_is_passed_on", with_(command=leaking), "is left from another call"),
    (
        "arguments_of_the_user_are_handed_on",
        saying(lambda call: real_command(replace(call, arguments=()))),
        "is not in",
    ),
    ("every_level_of_permissions_is_passed_on", with_(permission_modes={}), "full-auto"),
    ("every_level_of_permissions_is_passed_on", with_(permission_modes={"full-auto": (), "some": ()}), "its levels"),
    (
        "every_level_of_permissions_is_passed_on",
        with_(
            permission_modes={"full-auto": (), "plan": ("--plan",)},
            command=lambda self, call: real_command(replace(call, permissions="full-auto")),
        ),
        "is not in",
    ),
    (
        "a_permission_mode_of_the_user_wins",
        with_(
            permission_modes={"full-auto": ("--all",)},
            permission_options=("--mode",),
            command=lambda self, call: (*real_command(call), "--all"),
        ),
        "the user chose --mode",
    ),
    (
        "the_prompt_is_not_on_the_command_line",
        saying(lambda call: (*real_command(call), call.prompt.read_text())),
        "No such file",
    ),
    (
        "the_prompt_is_not_on_the_command_line",
        saying(lambda call: (*real_command(call), call.prompt.read_text() if call.prompt.exists() else "?")),
        "on the command line",
    ),
    ("the_environment_has_valid_variables", environment(PARROT_QUIET=1), "PARROT_QUIET is 1"),
    ("the_environment_has_valid_variables", environment(**{"A=B": "1"}), "is not the name of a variable"),
    ("the_environment_has_valid_variables", with_(environment=meddling), "environment of Ralph"),
    ("a_success_is_reported_once_and_last", reading(to_events=without(RESULT)), "reported 0 times"),
    ("a_success_is_reported_once_and_last", reading(to_events=lambda events: [*events, *events]), "reported 2 times"),
    (
        "a_success_is_reported_once_and_last",
        reading(to_events=lambda events: [*events, AgentEvent(EventKind.TEXT, "And...")]),
        "after the end comes",
    ),
    (
        "a_success_is_reported_once_and_last",
        reading(to_events=changed(RESULT, is_error=True, failure=Failure.AGENT)),
        "a failure is reported",
    ),
    ("it_reports_what_its_abilities_say", reading(to_events=without(SESSION)), "session is True"),
    ("it_reports_what_its_abilities_say", reading(to_events=without(USAGE)), "tokens is True"),
    ("it_reports_what_its_abilities_say", with_(abilities=replace(CAN, cost=True)), "cost is True"),
    ("it_reports_what_its_abilities_say", with_(abilities=replace(CAN, tokens=False)), "tokens is False"),
    ("tokens_are_counted_once", with_(reader=lambda self, call, before: Counting()), "tokens are .1860, 50."),
    ("tokens_are_counted_once", reading(to_events=changed(USAGE, usage=Usage(-5, 1))), "negative"),
    (
        "a_failure_is_reported",
        reading(to_events=changed(RESULT, is_error=False, failure=None)),
        "reported as a success",
    ),
    (
        "a_failure_is_reported",
        reading(to_events=without(RESULT, EventKind.ERROR, EventKind.LIMIT)),
        "no failure is reported",
    ),
    ("a_failure_is_reported", reading(to_events=changed(RESULT, failure=Failure.OVERLOAD)), "the failure is limit"),
    ("a_stream_that_is_cut_is_not_a_success", with_(reader=lambda self, call, before: Trusting()), "of 449 bytes"),
    (
        "a_stream_that_is_cut_is_not_a_success",
        reading(to_events=lambda events: events or [AgentEvent(RESULT, "nothing more is said")]),
        "cut after 0 of",
    ),
    ("malformed_lines_do_no_harm", with_(reader=lambda self, call, before: Unguarded()), "not clean"),
    (
        "malformed_lines_do_no_harm",
        reading(to_line=lambda line: line if line.endswith(b"}") else raising()),
        "nobody expected",
    ),
    (
        "foreign_lines_change_nothing",
        reading(to_line=lambda line: line if line.startswith(b"{") else raising()),
        "nobody expected",
    ),
    (
        "foreign_lines_change_nothing",
        reading(
            to_events=lambda events: events or [AgentEvent(EventKind.ERROR, "what is that?", failure=Failure.AGENT)]
        ),
        "failure is agent instead",
    ),
    (
        "texts_are_clean_and_short",
        reading(to_events=lambda events: [replace(event, text=event.text + "\x1b[0m") for event in events]),
        "not clean",
    ),
    (
        "texts_are_clean_and_short",
        reading(to_events=lambda events: [replace(event, text=event.text * 1000) for event in events]),
        "longer than 300",
    ),
    (
        "readers_share_no_state",
        with_(reader=lambda self, call, before: Sharing()),
        "depend on another reader",
    ),
    ("readers_share_no_state", with_(reader=lambda self, call, before: ONE), "the same reader"),
    ("exits_are_explained", with_(failure=raising), "nobody expected"),
    (
        "exits_are_explained",
        with_(failure=lambda self, code, stderr: (Failure.AGENT, stderr)),
        "message for exit None is ''",
    ),
    (
        "exits_are_explained",
        with_(failure=lambda self, code, stderr: ("agent", "it failed")),
        "the failure of exit None",
    ),
    (
        "an_empty_machine_is_not_signed_in",
        with_(sign_in=lambda self, environment, home: (True, "surely")),
        "neither a key nor a file",
    ),
    (
        "an_empty_machine_is_not_signed_in",
        with_(sign_in=lambda self, environment, home: (False, "")),
        "does not say how to sign in",
    ),
    ("an_empty_machine_is_not_signed_in", with_(sign_in=writing_settings), "wrote files"),
    (
        "keys_are_found_and_not_shown",
        with_(sign_in=lambda self, environment, home: (False, self.advice)),
        "is ignored",
    ),
    (
        "keys_are_found_and_not_shown",
        with_(sign_in=lambda self, environment, home: (True, str(environment) if environment else "a file")),
        "a key is shown",
    ),
]


def checks() -> list[str]:
    """The checks of the contract, by name."""
    return sorted(name.removeprefix("test_") for name in vars(AdapterContract) if name.startswith("test_"))


def run(check: str, one: AdapterContract, place: Path) -> None:
    """Do one check, with everything that it is done with."""
    method = getattr(one, f"test_{check}")
    both = [path for files in one.streams.values() for path in files]
    values = {
        "success": one.streams.get("success", ()),
        "failing": one.streams.get("failure", ()),
        "stream": both,
        "ability": tuple(REQUESTS),
        "tmp_path": (place,),
    }
    named = [name for name in inspect.signature(method).parameters if name in values]
    for value in values[named[0]] if named else ((),):
        method(*((value,) if named else ()))


@pytest.mark.parametrize(("check", "broken", "why"), BROKEN, ids=[f"{one[0]}: {one[2]}" for one in BROKEN])
def test_each_check_detects_a_broken_adapter(check: str, broken: Any, why: str, tmp_path: Path) -> None:
    about = broken if isinstance(broken, dict) else {"adapter": broken()}
    one = type("Contract", (TestTemplate,), about)()
    with pytest.raises((AssertionError, ValueError, FileNotFoundError), match=why):
        run(check, one, tmp_path)


@pytest.mark.parametrize("check", checks())
def test_every_check_can_fail_and_pass(check: str, tmp_path: Path) -> None:
    assert check in {name for name, *_ in BROKEN}
    run(check, TestTemplate(), tmp_path)


def test_a_failure_can_be_reported_on_standard_error_only(tmp_path: Path) -> None:
    (tmp_path / "parrot-signed-out.jsonl").touch()
    one = type("Contract", (TestTemplate,), {"streams": find_recordings(tmp_path, "parrot")})()
    with pytest.raises(AssertionError, match="no failure is reported"):
        run("a_failure_is_reported", one, tmp_path)
    (tmp_path / "parrot-signed-out").mkdir()
    (tmp_path / "parrot-signed-out" / "stderr").write_text("parrot: error: 401 Unauthorized\n")
    run("a_failure_is_reported", one, tmp_path)


def test_the_contract_does_not_show_a_key(tmp_path: Path) -> None:
    leaky = with_(sign_in=lambda self, environment, home: (True, f"with {environment.get('PARROT_API_KEY')}"))
    with pytest.raises(AssertionError, match="a key is shown") as error:
        run("keys_are_found_and_not_shown", type("Contract", (TestTemplate,), {"adapter": leaky()})(), tmp_path)
    assert SECRET not in str(error.value), "not even by the contract"
