"""The JSON Schema of views and rows, from the types themselves."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from ralph.view.model import SCHEMA, RunRow, RunView

_SIMPLE = {str: "string", int: "integer", float: "number", bool: "boolean"}


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
