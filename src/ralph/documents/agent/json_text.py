"""JSON of the files that agents share: strict when it is read, compact and in plain UTF-8 when it is written."""

import json

MAX_DEPTH = 100
"""Deeper values are refused: the encoder could not write them again."""


def loads(text: str) -> object:
    """Parse a JSON text. Raises ValueError with what is wrong, also for NaN, Infinity and values nested too deep."""
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError(f"it is nested more than {MAX_DEPTH} deep") from None
    if text.count("[") + text.count("{") > MAX_DEPTH and _is_deeper(value, MAX_DEPTH):
        raise ValueError(f"it is nested more than {MAX_DEPTH} deep")
    return value


def dumps(value: object, indent: int | None = None) -> str:
    """Write a value as JSON: on one line without spaces, as other tools for these files do, or indented."""
    separators = (",", ":") if indent is None else None
    return json.dumps(value, indent=indent, separators=separators, ensure_ascii=False)


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


def _is_deeper(value: object, depth: int) -> bool:
    items: list[object] = []
    if isinstance(value, dict):
        items = list(value.values())
    elif isinstance(value, list):
        items = value
    return any(depth == 0 or _is_deeper(item, depth - 1) for item in items)
