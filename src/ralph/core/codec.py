"""Frozen dataclasses to plain JSON values and back, by their type hints.

The hot path writes and reads thousands of these; a validation library would cost more to import than a whole `ralph status`.
Fields at their default are left out when written, unknown keys are ignored when read.
"""

import json
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from ralph.core.errors import StateError

T = TypeVar("T")

_FORMER_NAME = "former name"


def former_name(name: str) -> dict[str, str]:
    """The metadata of a field that files of earlier versions have under another name. It is read under both."""
    return {_FORMER_NAME: name}


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


def json_object(text: str | bytes) -> dict[str, Any]:
    """The JSON object in an untrusted text; an empty one if there is none."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def from_plain(kind: type[T], data: object, where: str = "") -> T:
    """A value of that dataclass, or a StateError that names the path of what is wrong."""
    result: T = _read(kind, data, where)
    return result


_PLAIN = frozenset((str, int, float, bool))


@cache
def _shape(kind: Any) -> tuple[tuple[str, object], ...] | None:
    """The fields of a dataclass with their defaults; None if it is not a dataclass."""
    return tuple((f.name, f.default) for f in fields(kind)) if is_dataclass(kind) else None


@cache
def _hints(kind: type[Any]) -> dict[str, Any]:
    return get_type_hints(kind)


def _read(kind: Any, data: Any, where: str) -> Any:
    """A value of any type that a field can have."""
    if kind is Any or kind is object:
        return data
    if (origin := get_origin(kind)) is not None:
        return _read_generic(kind, origin, data, where)
    if is_dataclass(kind):
        return _read_dataclass(kind, data, where)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _read_enum(kind, data, where)
    if kind is float and type(data) is int:
        return _read_float(data, where)
    if type(data) is not kind:
        raise _wrong(where, f"a {getattr(kind, '__name__', kind)}", data)
    return data


def _read_generic(kind: Any, origin: Any, data: Any, where: str) -> Any:
    """A value of a type with arguments: one or none, a tuple of any length, or a mapping with text as keys."""
    arguments = get_args(kind)
    if origin in (Union, UnionType):
        if data is None and NoneType in arguments:
            return None
        return _read(next(option for option in arguments if option is not NoneType), data, where)
    if origin is tuple:
        if not isinstance(data, list):
            raise _wrong(where, "a list", data)
        return tuple(_read(arguments[0], item, f"{where}[{i}]") for i, item in enumerate(data))
    if issubclass(origin, Mapping):
        if not isinstance(data, dict):
            raise _wrong(where, "an object", data)
        return {str(key): _read(arguments[1], item, f"{where}.{key}") for key, item in data.items()}
    raise TypeError(f"no field can be a {kind}")


def _read_enum(kind: type[Enum], data: Any, where: str) -> Enum:
    try:
        return kind(data)
    except ValueError:
        raise _wrong(where, f"one of {', '.join(str(member.value) for member in kind)}", data) from None


def _read_float(data: int, where: str) -> float:
    try:
        return float(data)
    except OverflowError:
        raise _wrong(where, "a number of ordinary size", data) from None


def _read_dataclass(kind: Any, data: Any, where: str) -> Any:
    if not isinstance(data, dict):
        raise _wrong(where, f"an object ({kind.__name__})", data)
    hints = _hints(kind)
    given: dict[str, Any] = {}
    for f in fields(kind):
        key = f.name if f.name in data else f.metadata.get(_FORMER_NAME, f.name)
        if key in data:
            given[f.name] = _read(hints[f.name], data[key], f"{where}.{key}" if where else key)
        elif f.default is MISSING and f.default_factory is MISSING:
            raise StateError(f"the key {f.name!r} is missing", where=where or kind.__name__)
    return kind(**given)


def _wrong(where: str, wanted: str, got: object) -> StateError:
    return StateError(f"expected {wanted}, found {str(got)[:80]!r}", where=where)
