"""The JSON form of views: what `--json`, the web server and the Python API give to programs."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any

from ralph.core.codec import from_plain
from ralph.view.model import SCHEMA, RunRow, RunView


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
