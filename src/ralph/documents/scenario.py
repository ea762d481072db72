"""Scenarios: what the scripted agent does in each turn, as YAML that the user writes, and how they are read.

Every mapping of the format is a dataclass here and its keys are the fields; a step is called as its class is.
A value in the place of a mapping stands for its first required key: `run: make` means `run: {command: make}`.
Every mistake is an error with file, line and the nearest known key.

These are no pydantic models, unlike the configuration: every scripted turn is a process that reads the scenario, and
importing pydantic adds a third to what its start takes (measured: 74 ms of processor time without it, 100 ms with it).
"""

import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, fields
from functools import partial
from pathlib import PurePosixPath
from signal import Signals
from typing import Any, Literal, NewType, TypeAlias, TypeVar, get_args

from yaml import MappingNode, Node, ScalarNode, SequenceNode  # type: ignore[import-untyped]

from ralph.core.errors import UsageError
from ralph.core.limits import Usage
from ralph.documents.yaml_codec import MAX_VALUES, YamlError, compose

T = TypeVar("T")
Words = NewType("Words", str)
"""Text that is not empty."""
RelativePath = NewType("RelativePath", str)
"""A path below the workspace or the outbox: not absolute, without `..`."""
ExitCode = NewType("ExitCode", int)
SignalName = NewType("SignalName", str)
Stream: TypeAlias = Literal["stdout", "stderr"]
Otherwise: TypeAlias = Literal["fail", "finish"]

RESULT = RelativePath("result.json")
DEEPEST = 50


@dataclass(frozen=True)
class Say:
    """Say something; the last thing said is the text of the result."""

    text: str


@dataclass(frozen=True)
class Error:
    """Report an error, as agents do before they give up, and continue."""

    message: str


@dataclass(frozen=True)
class Write:
    """Write a file of the workspace, with the directories it needs."""

    path: RelativePath
    content: str


@dataclass(frozen=True)
class Patch:
    """Replace a text wherever it occurs in a file of the workspace."""

    path: RelativePath
    find: Words
    replace: str
    optional: bool = False
    """Continue when the file or the text is not there."""


@dataclass(frozen=True)
class Delete:
    """Delete a file or a directory of the workspace."""

    path: RelativePath
    optional: bool = False


@dataclass(frozen=True)
class Run:
    """Run a command by the shell, in the workspace."""

    command: Words
    check: bool = False
    """Fail when it exits with anything but 0."""


@dataclass(frozen=True)
class Outbox:
    """Hand back a document; answers are the document `result.json`."""

    path: RelativePath
    content: str


@dataclass(frozen=True)
class Emit:
    """Publish an event."""

    topic: Words
    payload: object = None
    """Any value that JSON can hold."""


@dataclass(frozen=True)
class RateLimit:
    """Run into the provider's limit: tell of it and exit with 1."""

    resets_in: float
    """Seconds from now."""
    message: str = "rate limit reached"


@dataclass(frozen=True)
class Sleep:
    """Do nothing for a while."""

    seconds: float


@dataclass(frozen=True)
class Listen:
    """Wait for a message from the user, unless one came during earlier steps. It is reported as text."""

    seconds: float
    """How long it waits at most."""
    into: RelativePath | None = None
    """The file of the workspace to which the words are added."""


@dataclass(frozen=True)
class Hang:
    """Do nothing for ever."""


@dataclass(frozen=True)
class IgnoreTerm:
    """Ignore SIGTERM from here on."""


@dataclass(frozen=True)
class Orphan:
    """Leave a process behind whose parent is gone."""

    seconds: float
    """How long it lives."""
    setsid: bool = True
    """Whether it leaves the process group and session of the agent."""
    writes: RelativePath | None = None
    """The file that it writes when its time is over."""
    scrub_env: bool = False
    """Whether it starts with an empty environment, so without the mark of the turn."""
    hold_output: bool = False
    """Whether it keeps the agent's stdout and stderr open."""


@dataclass(frozen=True)
class Spew:
    """Print raw bytes that are no events, ending with a newline."""

    bytes: int
    line: int = 100
    """Bytes in each line; 0 is one line of it all."""
    stream: Stream = "stdout"
    invalid_utf8: bool = False


@dataclass(frozen=True)
class Crash:
    """Die by a signal."""

    signal: SignalName


@dataclass(frozen=True)
class Exit:
    """Exit at once, without a result."""

    code: ExitCode


@dataclass(frozen=True)
class Choose:
    """Play one of these by seeded chance."""

    options: tuple["Option", ...]


Deed: TypeAlias = Write | Patch | Delete | Run | Outbox | Emit
Trouble: TypeAlias = Sleep | Hang | IgnoreTerm | Orphan | Spew | Crash
Talk: TypeAlias = Say | Listen | Usage | RateLimit | Error | Exit | Choose
Action: TypeAlias = Deed | Talk | Trouble


@dataclass(frozen=True)
class ScriptStep:
    """One action and the line that asks for it."""

    action: Action
    line: int


@dataclass(frozen=True)
class Option:
    """One of the ways a turn may go."""

    steps: tuple[ScriptStep, ...]
    weight: float = 1.0


@dataclass(frozen=True)
class Identity:
    """Which turn is played, and what was asked; a number that is not known is -1."""

    role: str = ""
    hat: str = ""
    task: str = ""
    attempt: int = -1
    turn: int = -1
    prompt: str = ""


@dataclass(frozen=True)
class When:
    """The turns that an entry is for; what is not given matches all."""

    role: tuple[str, ...] = ()
    hat: tuple[str, ...] = ()
    task: tuple[str, ...] = ()
    attempt: tuple[range, ...] = ()
    turn: tuple[range, ...] = ()
    prompt: re.Pattern[str] | None = None

    def matches(self, turn: Identity) -> bool:
        """Whether everything that is given matches."""
        words = ((self.role, turn.role), (self.hat, turn.hat), (self.task, turn.task))
        for wanted, word in words:
            if wanted and word not in wanted:
                return False
        numbers = ((self.attempt, turn.attempt), (self.turn, turn.turn))
        for spans, number in numbers:
            if spans and not any(number in span for span in spans):
                return False
        return self.prompt is None or self.prompt.search(turn.prompt) is not None


@dataclass(frozen=True)
class TurnScript:
    """What to do in the turns that match."""

    steps: tuple[ScriptStep, ...]
    when: When = When()


@dataclass(frozen=True)
class Scenario:
    """A whole scenario; the first entry that matches a turn is played."""

    turns: tuple[TurnScript, ...]
    seed: int = 0
    otherwise: Otherwise = "fail"

    def steps_for(self, turn: Identity) -> tuple[ScriptStep, ...] | None:
        """The steps of the first entry that matches, if any does."""
        return next((entry.steps for entry in self.turns if entry.when.matches(turn)), None)


def parse_scenario(text: str, name: str) -> Scenario:
    """The scenario in that text, or a UsageError that says where the file of that name is wrong."""
    try:
        return _build(Scenario, _compose(text, name), "a scenario")
    except YamlError as error:
        raise UsageError(
            error.what,
            where=name if error.line is None else f"{name}:{error.line}",
            todo="check the indentation, and quote what begins with a special character such as > * & @ or %",
        ) from None


def _compose(text: str, name: str) -> Node:
    root = compose(text, name=name)
    if root is None:
        raise UsageError("the scenario is empty", where=name, todo="give it `turns:` with at least one entry")
    waiting, seen = [(root, 1)], 0
    while waiting:
        (node, level), seen = waiting.pop(), seen + 1
        if seen > MAX_VALUES:
            raise _wrong(root, f"more than {MAX_VALUES} values, with aliases expanded", "use fewer aliases")
        if level > DEEPEST:
            raise _wrong(
                node, f"nested deeper than {DEEPEST} levels, with aliases expanded", "write it with fewer levels"
            )
        waiting.extend((child, level + 1) for child in _children(node))
    return root


def _children(node: Node) -> Iterable[Node]:
    if isinstance(node, MappingNode):
        return (part for pair in node.value for part in pair)
    return node.value if isinstance(node, SequenceNode) else ()


def _build(kind: type[T], node: Node, name: str) -> T:
    """A value of that dataclass; errors call it by its name in the file."""
    # Fields that no reader is for are the engine's own, such as `unpriced` of a usage.
    known = {f.name: f for f in fields(kind) if f.type in _READERS}  # type: ignore[arg-type]
    required = [f.name for f in known.values() if f.default is MISSING]
    if isinstance(node, MappingNode):
        given = {key: (part, key) for key, part in _pairs(node, known).items()}
    elif required:
        given = {required[0]: (node, name)}
    else:
        raise _type_error(node, name, f"a mapping with keys of these: {', '.join(known)}")
    for missing in (key for key in required if key not in given):
        raise _wrong(node, f"{name} has no {missing!r}", f"its keys are: {', '.join(known)}")
    return kind(**{key: _READERS[known[key].type](*part) for key, part in given.items()})


def _pairs(node: MappingNode, known: Iterable[str] | None = None) -> dict[str, Node]:
    pairs: dict[str, Node] = {}
    for key, value in node.value:
        if not isinstance(key, ScalarNode):
            raise _wrong(key, "a key must be a word", "write `key: value`")
        if known is not None and key.value not in known:
            raise _unknown(key, "key", known)
        if key.value in pairs:
            raise _wrong(key, f"the key {key.value!r} appears twice", "keep one of them")
        pairs[key.value] = value
    return pairs


def _plain(node: Node, name: str) -> Any:
    """The node as JSON can hold it; a date stays the text it was."""
    if isinstance(node, MappingNode):
        return {key: _plain(value, key) for key, value in _pairs(node).items()}
    if isinstance(node, SequenceNode):
        return [_plain(item, name) for item in node.value]
    try:
        match str(node.tag).removeprefix("tag:yaml.org,2002:"):
            case "str" | "timestamp":
                return node.value
            case "null":
                return None
            case "bool":
                return {"true": True, "false": False}[node.value.lower()]
            case "int":
                return int(node.value, 0 if re.match("[-+]?0[xo]", node.value) else 10)
            case "float" if math.isfinite(number := float(node.value)):
                return number
    except (ValueError, KeyError):
        pass
    raise _type_error(node, name, "text, a finite number, true, false or null")


def _scalar(kind: type, wanted: str, fits: Callable[[Any], bool], node: Node, name: str) -> Any:
    value = _plain(node, name)
    allowed = (float, int) if kind is float else (kind,)
    if type(value) not in allowed or not fits(value):
        raise _type_error(node, name, wanted)
    return kind(value)


def _choice(known: Iterable[str], node: Node, name: str) -> str:
    if not isinstance(node, ScalarNode) or node.value not in known:
        raise _unknown(node, name, known)
    return str(node.value)


def _items(read: Callable[[Node, str], T], node: Node, name: str) -> tuple[T, ...]:
    if not isinstance(node, SequenceNode) or not node.value:
        raise _type_error(node, name, "a list with at least one item")
    return tuple(read(item, name) for item in node.value)


def _one_or_more(read: Callable[[Node, str], T], node: Node, name: str) -> tuple[T, ...]:
    return (read(node, name),) if isinstance(node, ScalarNode) else _items(read, node, name)


def _step(node: Node, name: str) -> ScriptStep:
    if not isinstance(node, MappingNode) or len(node.value) != 1:
        raise _wrong(node, "a step has one key, like `say: hello`", "begin each step with a dash")
    ((key, value),) = _pairs(node, _ACTIONS).items()
    return ScriptStep(_ACTIONS[key](value, key), _line(node))


def _bare(kind: type[T], node: Node, name: str) -> T:
    _scalar(bool, "true", bool, node, name)
    return kind()


def _answer(node: Node, name: str) -> Outbox:
    if not isinstance(node, MappingNode):
        raise _type_error(node, name, "a mapping; for an answer that is not a mapping, use answer_raw")
    return Outbox(RESULT, json.dumps(_plain(node, name), indent=2, ensure_ascii=False) + "\n")


def _options(node: Node, name: str) -> tuple[Option, ...]:
    options = _items(partial(_build, Option), node, name)
    if not any(option.weight for option in options):
        raise _wrong(node, f"{name}: every weight is 0", "give one of them a weight")
    return options


def _entries(node: Node, name: str) -> tuple[TurnScript, ...]:
    entries = _items(partial(_build, TurnScript), node, name)
    for entry, later in zip(entries, node.value[1:], strict=False):
        if entry.when == When():
            raise _wrong(later, "never played: the entry before matches every turn", "give that one a `when`")
    return entries


def _span(node: Node, name: str) -> range:
    match = re.fullmatch(r"(?P<first>\d{1,9})(-(?P<last>\d{1,9}))?|>=(?P<least>\d{1,9})", str(node.value))
    if match and match["least"]:
        return range(int(match["least"]), sys.maxsize)
    span = range(int(match["first"]), int(match["last"] or match["first"]) + 1) if match else range(0)
    if not span:
        raise _type_error(node, name, 'a number, a range like 3-5, or ">=3" in quotes')
    return span


def _pattern(node: Node, name: str) -> re.Pattern[str]:
    try:
        return re.compile(_text(node, name))
    except re.error as error:
        todo = "correct it (it is Python's `re`), or escape what is meant literally with a backslash"
        raise _wrong(node, f"{name} is not a valid regular expression: {error}", todo) from None


def _stays_inside(path: str) -> bool:
    parts = PurePosixPath(path).parts
    return bool(parts) and ".." not in parts and not path.startswith("/") and "\0" not in path


def _in_reason(number: float) -> bool:
    return 0 <= number <= 1e9


def _key_of(kind: type) -> str:
    """The key of a step: `rate_limit` for RateLimit."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()


_text = partial(_scalar, str, "text (in quotes if it looks like something else)", lambda value: True)
_path = partial(_scalar, str, "a relative path without `..`", _stays_inside)
_number = partial(_scalar, float, "a number from 0 to 1e9", _in_reason)

_READERS: Mapping[Any, Callable[[Node, str], Any]] = {
    str: _text,
    Words: partial(_scalar, str, "text that is not empty", bool),
    RelativePath: _path,
    RelativePath | None: _path,
    int: partial(_scalar, int, "a whole number from 0 to 1_000_000_000", _in_reason),
    ExitCode: partial(_scalar, int, "an exit code from 0 to 255", range(256).__contains__),
    float: _number,
    float | None: _number,
    bool: partial(_scalar, bool, "true or false", lambda value: True),
    object: _plain,
    Stream: partial(_choice, get_args(Stream)),
    Otherwise: partial(_choice, get_args(Otherwise)),
    SignalName: partial(_choice, Signals.__members__),
    re.Pattern[str] | None: _pattern,
    tuple[str, ...]: partial(_one_or_more, _text),
    tuple[range, ...]: partial(_one_or_more, _span),
    tuple[ScriptStep, ...]: partial(_items, _step),
    tuple[TurnScript, ...]: _entries,
    tuple["Option", ...]: _options,
    When: partial(_build, When),
}
"""How a key is read, by the type of its field."""

_ACTIONS: Mapping[str, Callable[[Node, str], Action]] = {
    **{_key_of(kind): partial(_build if fields(kind) else _bare, kind) for kind in get_args(Action)},
    "answer": _answer,
    "answer_raw": lambda node, name: Outbox(RESULT, _text(node, name)),
}
"""How a step is read, by its key."""


def _line(node: Node) -> int:
    return int(node.start_mark.line) + 1


def _wrong(node: Node, what: str, todo: str) -> UsageError:
    return UsageError(what, where=f"{node.start_mark.name}:{_line(node)}", todo=todo)


def _describe_node(node: Node) -> str:
    if isinstance(node, ScalarNode):
        return repr(node.value[:60])
    if isinstance(node, SequenceNode):
        return "a list" if node.value else "an empty list"
    return "a mapping"


def _type_error(node: Node, name: str, wanted: str) -> UsageError:
    return _wrong(node, f"{name} cannot be {_describe_node(node)}", f"give it {wanted}")


def _unknown(node: Node, what: str, known: Iterable[str]) -> UsageError:
    from difflib import get_close_matches

    near = get_close_matches(str(node.value)[:60], list(known), n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return _wrong(node, f"unknown {what}: {_describe_node(node)}", f"{hint}known values: {', '.join(known)}")
