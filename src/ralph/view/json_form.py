"""The JSON form of views, which `--json`, the web server and the Python API give to programs, and its JSON Schema."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from ralph.core.codec import from_plain
from ralph.view.model import SCHEMA, RunRow, RunView

_SIMPLE = {str: "string", int: "integer", float: "number", bool: "boolean"}


def to_json(value: RunView | RunRow) -> dict[str, Any]:
    """A view, or a row of a list, as plain values with all fields."""
    return {"schema": SCHEMA, **to_full(value)}


def from_json(data: object, where: str = "the view") -> RunView:
    """The view that a JSON object holds; a StateError if it holds none."""
    return from_plain(RunView, data, where)


def to_full(value: object) -> Any:
    """A value as JSON can hold it, with the fields that have their default."""
    kind: Any = type(value)
    if value is None or kind in _PLAIN:
        return value
    if names := _field_names(kind):
        return {name: to_full(getattr(value, name)) for name in names}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): to_full(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [to_full(item) for item in value]
    return value


_PLAIN = frozenset((str, int, float, bool))


@cache
def _field_names(kind: type[Any]) -> tuple[str, ...]:
    return tuple(one.name for one in fields(kind)) if is_dataclass(kind) else ()


def view_schema() -> dict[str, Any]:
    """The schema of a `RunView`, with that of a `RunRow` among its definitions."""
    definitions: dict[str, Any] = {}
    describe_type(RunRow, definitions)
    describe_type(RunView, definitions)
    view = definitions.pop("RunView")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A run of Ralph",
        "description": "The `view` of `ralph status RUN --json`, which the web server and the Python API also return.",
        **view,
        "properties": {"schema": {"const": SCHEMA}, **view["properties"]},
        "$defs": dict(sorted(definitions.items())),
    }


def describe_type(kind: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    """The schema of a type. Dataclasses and enumerations are defined once, by name."""
    if kind is object:
        return {}
    if kind in _SIMPLE:
        return {"type": _SIMPLE[kind]}
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        options = [describe_type(one, definitions) for one in get_args(kind) if one is not NoneType]
        return {"anyOf": [*options, {"type": "null"}]}
    if origin in (tuple, list):
        return {"type": "array", "items": describe_type(get_args(kind)[0], definitions)}
    if origin is not None and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": describe_type(get_args(kind)[1], definitions)}
    name = kind.__name__
    if name not in definitions:
        definitions[name] = {}
        definitions[name] = _define(kind, definitions)
    return {"$ref": f"#/$defs/{name}"}


def _define(kind: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    if isinstance(kind, type) and issubclass(kind, Enum):
        return {"enum": [member.value for member in kind]}
    if not is_dataclass(kind):
        raise TypeError(f"{kind} has no JSON form")
    hints = get_type_hints(kind)
    names = [one.name for one in fields(kind)]
    properties = {name: describe_type(hints[name], definitions) for name in names}
    return {"type": "object", "properties": properties, "required": names}
