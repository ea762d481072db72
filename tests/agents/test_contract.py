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
from ralph.agents.adapter import Adapter
from ralph.agents.agent import Abilities, Call
from ralph.agents.contract import ASKED, FAILURES, SECRET, AdapterContract, recorded
from ralph.core.limits import Usage
from ralph.core.stream import AgentEvent, Failure, Kind

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
EXAMPLES = recorded(TEMPLATE / "tests" / "streams", "parrot")


@pytest.fixture(autouse=True)
def place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the prompt is: copilot tells what it used in a file beside it."""
    monkeypatch.chdir(STREAMS)


def own_streams(name: str) -> dict[str, tuple[Path, ...]]:
    """The recorded streams of one of our agents; `claude-acp.jsonl` is none of claude's where there is a claude-acp."""
    longer = tuple(f"{other}" for other in registry.ADAPTERS if other.startswith(f"{name}-"))
    found = recorded(STREAMS, name)
    return {kind: tuple(one for one in files if not one.stem.startswith(longer)) for kind, files in found.items()}


def contract(name: str) -> type[AdapterContract]:
    """The tests of one of our agents."""
    about = {"adapter": registry.known(name), "streams": own_streams(name), "tokens": TOKENS}
    return type(f"Test{name.title()}", (AdapterContract,), about)


globals().update({f"Test{name.title()}": contract(name) for name in registry.ADAPTERS})


class TestTemplate(AdapterContract):
    """The example of an adapter of a third party."""

    adapter = Parrot()
    streams = EXAMPLES
    tokens = {"parrot": (1240, 30)}  # noqa: RUF012 - as people will write it


def test_every_recorded_stream_is_somebodys() -> None:
    own = {path for name in registry.ADAPTERS for files in own_streams(name).values() for path in files}
    assert not {path for path in STREAMS.iterdir() if path.suffix in (".jsonl", ".txt")} - own


def test_the_names_of_files_say_how_a_turn_ended(tmp_path: Path) -> None:
    failing = [f"a-{suffix}.jsonl" for suffix in FAILURES]
    for name in (*failing, "a.jsonl", "a-resumed.txt", "ab.jsonl", "a.md"):
        (tmp_path / name).touch()
    found = {kind: {path.name for path in files} for kind, files in recorded(tmp_path, "a").items()}
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


def words(call: Call) -> tuple[str, ...]:
    """What the true one says."""
    return Parrot().command(call)


def changed(kind: Kind, **changes: Any) -> Callable[[list[AgentEvent]], list[AgentEvent]]:
    """Events of a kind are told with something else about them."""
    return lambda events: [replace(event, **changes) if event.kind is kind else event for event in events]


def without(*kinds: Kind) -> Callable[[list[AgentEvent]], list[AgentEvent]]:
    """Events of these kinds are not told."""
    return lambda events: [event for event in events if event.kind not in kinds]


def raising(*_: object) -> Any:
    """What no method may do."""
    raise ValueError("a line that nobody expected")


class Trusting:
    """Takes a line for the end by how it begins, as if lines were never cut."""

    def read(self, line: bytes) -> Iterator[AgentEvent]:
        if line.startswith(b'{"type": "end", "ok": true'):
            yield AgentEvent(Kind.RESULT, "done")


class Sharing:
    """Keeps what it has read for all turns."""

    seen: dict[bytes, int] = {}  # noqa: RUF012 - that is what is wrong with it

    def read(self, line: bytes) -> Iterator[AgentEvent]:
        self.seen[line] = self.seen.get(line, 0) + 1
        yield AgentEvent(Kind.TEXT, f"line {self.seen[line]}")


class Unguarded:
    """Reads JSON as if every line were an object."""

    def read(self, line: bytes) -> Iterator[AgentEvent]:
        yield AgentEvent(Kind.TEXT, importlib.import_module("json").loads(line)["type"])


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
    return (*words(replace(call, model="")), *((self.last,) if self.last else ()))  # type: ignore[attr-defined]


def furnishing(self: Adapter, environment: object, home: Path) -> tuple[bool, str]:
    home.mkdir(exist_ok=True)
    (home / "settings.json").touch()
    return False, self.advice


CAN, ONE = Parrot.abilities, Trusting()
RESULT, SESSION, USAGE = Kind.RESULT, Kind.SESSION, Kind.USAGE
BROKEN: list[tuple[str, type[Adapter] | dict[str, Any], str]] = [
    ("it_says_who_it_is", with_(install=""), "its install is ''"),
    ("it_says_who_it_is", with_(keys="PARROT_API_KEY"), "its keys are a str"),
    ("it_says_who_it_is", with_(abilities={"tokens": True}), "not of the class Abilities"),
    ("its_abilities_agree", with_(abilities=Abilities(resume=True)), "whose id it does not tell"),
    ("its_abilities_agree", with_(keys=(), credentials=()), "nothing says how a person is known"),
    ("it_hears_only_where_it_can", with_(hears=lambda self, call: True), "neither hooks nor live_input"),
    ("turns_are_recorded", {"streams": {"success": EXAMPLES["success"]}}, "no recorded turn of the kind failure"),
    ("turns_are_recorded", {"streams": {**EXAMPLES, "success": (Path(os.devnull),)}}, "a recorded success is empty"),
    ("turns_are_recorded", {"tokens": {}}, "says of no success"),
    ("the_command_is_words", with_(command=lambda self, call: list(words(call))), "and no tuple of words"),
    ("the_command_is_words", saying(lambda call: (*words(call), "")), "a word is none"),
    (
        "the_command_is_words",
        saying(lambda call: ("parrot", "--json", "--model", str(call.model or None))),
        "a value that is none",
    ),
    (
        "the_command_is_words",
        saying(lambda call: (*words(call), os.urandom(8).hex())),
        "another command the second time",
    ),
    ("the_program_may_be_elsewhere", saying(lambda call: ("parrot", *words(call)[1:])), "is not started"),
    ("what_is_asked_for_is_said", saying(lambda call: words(replace(call, model=""))), "it can .model."),
    ("what_is_asked_for_is_said", saying(lambda call: words(replace(call, session=""))), "it can .resume."),
    ("what_is_asked_for_is_said", with_(abilities=replace(CAN, budget=True)), "it can .budget."),
    ("what_is_asked_for_is_said", with_(abilities=replace(CAN, step_limit=True)), "it can .step_limit."),
    ("what_is_asked_for_is_said", with_(abilities=replace(CAN, tool_limits=True)), "it can .tool_limits."),
    ("what_is_asked_for_is_said", with_(abilities=replace(CAN, model=False)), "it cannot .model."),
    (
        "nothing_is_said_that_was_not_asked_for",
        saying(lambda call: words(replace(call, model=call.model or "big"))),
        "'big' stands where nothing",
    ),
    (
        "nothing_is_said_that_was_not_asked_for",
        saying(lambda call: (*words(call), "--continue")),
        "a new conversation was asked for",
    ),
    ("nothing_is_said_that_was_not_asked_for", with_(command=leaking), "is left from another call"),
    ("arguments_of_the_user_are_handed_on", saying(lambda call: words(replace(call, arguments=()))), "is not in"),
    ("every_level_of_permissions_is_passed_on", with_(permission_modes={}), "full-auto"),
    ("every_level_of_permissions_is_passed_on", with_(permission_modes={"full-auto": (), "some": ()}), "its levels"),
    (
        "every_level_of_permissions_is_passed_on",
        with_(
            permission_modes={"full-auto": (), "plan": ("--plan",)},
            command=lambda self, call: words(replace(call, permissions="full-auto")),
        ),
        "is not in",
    ),
    (
        "a_permission_mode_of_the_user_wins",
        with_(
            permission_modes={"full-auto": ("--all",)},
            permission_options=("--mode",),
            command=lambda self, call: (*words(call), "--all"),
        ),
        "the user asked for --mode",
    ),
    ("the_prompt_is_no_word", saying(lambda call: (*words(call), call.prompt.read_text())), "No such file"),
    (
        "the_prompt_is_no_word",
        saying(lambda call: (*words(call), call.prompt.read_text() if call.prompt.exists() else "?")),
        "on the command line",
    ),
    ("the_environment_is_variables", environment(PARROT_QUIET=1), "PARROT_QUIET is 1"),
    ("the_environment_is_variables", environment(**{"A=B": "1"}), "names no variable"),
    ("the_environment_is_variables", with_(environment=meddling), "environment of Ralph itself"),
    ("a_success_is_told_once_and_last", reading(to_events=without(RESULT)), "told 0 times"),
    ("a_success_is_told_once_and_last", reading(to_events=lambda events: [*events, *events]), "told 2 times"),
    (
        "a_success_is_told_once_and_last",
        reading(to_events=lambda events: [*events, AgentEvent(Kind.TEXT, "And...")]),
        "after the end comes",
    ),
    (
        "a_success_is_told_once_and_last",
        reading(to_events=changed(RESULT, is_error=True, failure=Failure.AGENT)),
        "a failure is told",
    ),
    ("it_tells_what_it_can_tell", reading(to_events=without(SESSION)), "session is True"),
    ("it_tells_what_it_can_tell", reading(to_events=without(USAGE)), "tokens is True"),
    ("it_tells_what_it_can_tell", with_(abilities=replace(CAN, cost=True)), "cost is True"),
    ("it_tells_what_it_can_tell", with_(abilities=replace(CAN, tokens=False)), "tokens is False"),
    ("tokens_are_counted_once", with_(reader=lambda self, call, before: Counting()), "counted as .1860, 50."),
    ("tokens_are_counted_once", reading(to_events=changed(USAGE, usage=Usage(-5, 1))), "negative"),
    ("a_failure_is_told", reading(to_events=changed(RESULT, is_error=False, failure=None)), "told as a success"),
    ("a_failure_is_told", reading(to_events=without(RESULT, Kind.ERROR, Kind.LIMIT)), "no failure is told"),
    ("a_failure_is_told", reading(to_events=changed(RESULT, failure=Failure.OVERLOAD)), "the failure is limit"),
    ("a_stream_that_is_cut_is_no_success", with_(reader=lambda self, call, before: Trusting()), "of 449 bytes"),
    (
        "a_stream_that_is_cut_is_no_success",
        reading(to_events=lambda events: events or [AgentEvent(RESULT, "nothing more is said")]),
        "cut after 0 of",
    ),
    ("spoilt_lines_do_no_harm", with_(reader=lambda self, call, before: Unguarded()), "not clean"),
    (
        "spoilt_lines_do_no_harm",
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
        reading(to_events=lambda events: events or [AgentEvent(Kind.ERROR, "what is that?", failure=Failure.AGENT)]),
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
        "readers_know_nothing_of_each_other",
        with_(reader=lambda self, call, before: Sharing()),
        "depends on another reader",
    ),
    ("readers_know_nothing_of_each_other", with_(reader=lambda self, call, before: ONE), "the same reader"),
    ("exits_are_explained", with_(failure=raising), "nobody expected"),
    (
        "exits_are_explained",
        with_(failure=lambda self, code, stderr: (Failure.AGENT, stderr)),
        "said of exit None is ''",
    ),
    (
        "exits_are_explained",
        with_(failure=lambda self, code, stderr: ("agent", "it failed")),
        "the failure of exit None",
    ),
    (
        "nobody_is_signed_in_on_an_empty_machine",
        with_(sign_in=lambda self, environment, home: (True, "surely")),
        "neither a key nor a file",
    ),
    (
        "nobody_is_signed_in_on_an_empty_machine",
        with_(sign_in=lambda self, environment, home: (False, "")),
        "nothing is said of how",
    ),
    ("nobody_is_signed_in_on_an_empty_machine", with_(sign_in=furnishing), "wrote files"),
    (
        "keys_are_seen_and_not_told",
        with_(sign_in=lambda self, environment, home: (False, self.advice)),
        "is not looked at",
    ),
    (
        "keys_are_seen_and_not_told",
        with_(sign_in=lambda self, environment, home: (True, str(environment) if environment else "a file")),
        "a key is told",
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
        "ability": tuple(ASKED),
        "tmp_path": (place,),
    }
    named = [name for name in inspect.signature(method).parameters if name in values]
    for value in values[named[0]] if named else ((),):
        method(*((value,) if named else ()))


@pytest.mark.parametrize(("check", "broken", "why"), BROKEN, ids=[f"{one[0]}: {one[2]}" for one in BROKEN])
def test_a_check_sees_what_is_wrong(check: str, broken: Any, why: str, tmp_path: Path) -> None:
    about = broken if isinstance(broken, dict) else {"adapter": broken()}
    one = type("Contract", (TestTemplate,), about)()
    with pytest.raises((AssertionError, ValueError, FileNotFoundError), match=why):
        run(check, one, tmp_path)


@pytest.mark.parametrize("check", checks())
def test_every_check_is_seen_to_fail_and_to_pass(check: str, tmp_path: Path) -> None:
    assert check in {name for name, *_ in BROKEN}
    run(check, TestTemplate(), tmp_path)


def test_a_failure_may_be_told_on_standard_error_alone(tmp_path: Path) -> None:
    (tmp_path / "parrot-signed-out.jsonl").touch()
    one = type("Contract", (TestTemplate,), {"streams": recorded(tmp_path, "parrot")})()
    with pytest.raises(AssertionError, match="no failure is told"):
        run("a_failure_is_told", one, tmp_path)
    (tmp_path / "parrot-signed-out").mkdir()
    (tmp_path / "parrot-signed-out" / "stderr").write_text("parrot: error: 401 Unauthorized\n")
    run("a_failure_is_told", one, tmp_path)


def test_a_key_that_is_told_is_seen(tmp_path: Path) -> None:
    telling = with_(sign_in=lambda self, environment, home: (True, f"with {environment.get('PARROT_API_KEY')}"))
    with pytest.raises(AssertionError, match="a key is told") as told:
        run("keys_are_seen_and_not_told", type("Contract", (TestTemplate,), {"adapter": telling()})(), tmp_path)
    assert SECRET not in str(told.value), "not by the contract either"
