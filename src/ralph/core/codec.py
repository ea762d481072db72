"""Frozen dataclasses to plain JSON values and back, by their type hints.

The hot path writes and reads thousands of these; a validation library would cost more to import than a whole `ralph status`.
Fields at their default are left out when written, unknown keys are ignored when read.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from datetime import UTC, datetime
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from ralph.core.errors import StateError

T = TypeVar("T")

_FORMER_NAME = "former name"


def former_name(name: str) -> dict[str, str]:
    """The metadata of a field that files of earlier versions have under another name. It is read under both."""
    return {_FORMER_NAME: name}


def list_field_names(kind: type[Any]) -> set[str]:
    """The names under which the fields of a dataclass are read, former names included."""
    names = {field.name for field in fields(kind)}
    return names | {field.metadata[_FORMER_NAME] for field in fields(kind) if _FORMER_NAME in field.metadata}


def to_plain(value: object) -> Any:
    """The value as JSON can hold it."""
    kind: Any = type(value)
    if value is None or kind in _PLAIN:
        return value
    if (shape := _shape(kind)) is not None:
        return {name: to_plain(item) for name, default in shape if (item := getattr(value, name)) != default}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [to_plain(item) for item in value]
    return value


_readable = json.JSONEncoder(ensure_ascii=False).encode


def dump(data: object) -> str:
    """JSON on one line, readable where that is possible: what UTF-8 cannot hold is escaped."""
    text = _readable(data)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(data)
    return text


def format_time(at: float) -> str:
    """A time as files have it: ISO 8601, UTC, to the millisecond, so that text sorts by time."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def parse_time(text: str) -> float:
    """The reverse of `format_time`. A time without a zone is UTC; other text is a ValueError."""
    at = datetime.fromisoformat(text)
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def to_json(value: object) -> str:
    """The text of a JSON file that holds a value."""
    return dump(to_plain(value)) + "\n"


def from_json(kind: type[T], text: str, where: str, todo: str = "restore the file") -> T:
    """The value of that dataclass that a JSON file holds; a StateError if it cannot be read."""
    return from_plain(kind, read_json(text, where, todo), where)


def read_json(text: str, where: str, todo: str) -> Any:
    """What a JSON file holds; a StateError if it cannot be read."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise StateError(f"not readable as JSON ({error})", where=where, todo=todo) from error


def parse_json_object(text: str | bytes) -> dict[str, Any]:
    """The JSON object in an untrusted text; an empty one if there is none."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def from_plain(kind: type[T], data: object, where: str = "") -> T:
    """A value of that dataclass, or a StateError that names the path of what is wrong."""
    reader: Reader = _find_reader(cast(Any, kind))
    result: T = reader(data, where)
    return result


_PLAIN = frozenset((str, int, float, bool))


@cache
def _shape(kind: Any) -> tuple[tuple[str, object], ...] | None:
    """The fields of a dataclass with their defaults; None if it is not a dataclass."""
    if not is_dataclass(kind):
        return None
    return tuple((field.name, field.default) for field in fields(kind))


Reader = Callable[[Any, Any], Any]
"""Reads a plain value. The second argument is its place: a text, or another place with a key or an index inside it.

Places are put into words only for errors."""


@cache
def _find_reader(kind: Any) -> Reader:
    """The function that reads values of a type. Types are examined once, because journals have many lines."""
    if kind is Any or kind is object:
        return _read_anything
    if (origin := get_origin(kind)) is not None:
        return _make_generic_reader(kind, origin)
    if is_dataclass(kind):
        return _DataclassReader(kind)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _make_enum_reader(kind)
    return _make_plain_reader(kind)


def _read_anything(data: Any, place: Any) -> Any:
    return data


def _make_plain_reader(kind: Any) -> Reader:
    def read(data: Any, place: Any) -> Any:
        if type(data) is kind:
            return data
        if kind is float and type(data) is int:
            return _read_float(data, place)
        raise _make_error(place, f"a {getattr(kind, '__name__', kind)}", data)

    return read


def _make_generic_reader(kind: Any, origin: Any) -> Reader:
    """Reads a type with arguments: one or none, a tuple of any length, or a mapping with text as keys."""
    arguments = get_args(kind)
    if origin in (Union, UnionType):
        return _make_optional_reader(
            _find_reader(next(one for one in arguments if one is not NoneType)), NoneType in arguments
        )
    if origin is tuple:
        return _make_tuple_reader(arguments[0])
    if issubclass(origin, Mapping):
        return _make_mapping_reader(arguments[1])
    raise TypeError(f"no field can be a {kind}")


def _make_optional_reader(read_value: Reader, can_be_none: bool) -> Reader:
    def read(data: Any, place: Any) -> Any:
        return None if data is None and can_be_none else read_value(data, place)

    return read


def _make_tuple_reader(kind: Any) -> Reader:
    read_item = _find_reader(kind)

    def read(data: Any, place: Any) -> Any:
        if not isinstance(data, list):
            raise _make_error(place, "a list", data)
        return tuple([read_item(item, (place, index)) for index, item in enumerate(data)])

    return read


def _make_mapping_reader(kind: Any) -> Reader:
    read_item = _find_reader(kind)

    def read(data: Any, place: Any) -> Any:
        if not isinstance(data, dict):
            raise _make_error(place, "an object", data)
        return {str(key): read_item(item, (place, key)) for key, item in data.items()}

    return read


def _make_enum_reader(kind: type[Enum]) -> Reader:
    def read(data: Any, place: Any) -> Any:
        try:
            return kind(data)
        except ValueError:
            raise _make_error(place, f"one of {', '.join(str(member.value) for member in kind)}", data) from None

    return read


class _DataclassReader:
    """Reads a dataclass. Its fields are examined when the first value is read, because a type can contain itself."""

    def __init__(self, kind: Any) -> None:
        self._kind = kind
        self._fields: list[tuple[str, str, bool, Reader]] | None = None

    def __call__(self, data: Any, place: Any) -> Any:
        if not isinstance(data, dict):
            raise _make_error(place, f"an object ({self._kind.__name__})", data)
        if self._fields is None:
            self._fields = self._examine()
        given: dict[str, Any] = {}
        for name, former, is_required, read in self._fields:
            key = name if name in data else former
            if key in data:
                given[name] = read(data[key], (place, key))
            elif is_required:
                raise StateError(f"the key {name!r} is missing", where=_describe(place) or self._kind.__name__)
        return self._kind(**given)

    def _examine(self) -> list[tuple[str, str, bool, Reader]]:
        hints = get_type_hints(self._kind)
        found = []
        for one in fields(self._kind):
            is_required = one.default is MISSING and one.default_factory is MISSING
            former = one.metadata.get(_FORMER_NAME, one.name)
            found.append((one.name, former, is_required, _find_reader(hints[one.name])))
        return found


def _read_float(data: int, place: Any) -> float:
    try:
        return float(data)
    except OverflowError:
        raise _make_error(place, "a number that is not too large", data) from None


def _describe(place: Any) -> str:
    """A place in words: `run.json: checks[2].command`."""
    if isinstance(place, str):
        return place
    parent, key = place
    before = _describe(parent)
    if isinstance(key, int):
        return f"{before}[{key}]"
    return f"{before}.{key}" if before else str(key)


def _make_error(place: Any, wanted: str, got: object) -> StateError:
    return StateError(f"expected {wanted}, found {str(got)[:80]!r}", where=_describe(place))
