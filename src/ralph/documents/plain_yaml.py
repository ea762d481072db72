"""The YAML that Ralph itself writes: whole files, lines of a mapping, and values on one line."""

import json
import math
import re
from collections.abc import Mapping
from typing import Any

# The YAML that Ralph writes: mappings and lists in block style, literal blocks for text of several lines, and else JSON scalars.
STAMP = re.compile(r"\d{4}-\d\d-\d\d(?:T[\d:]+(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)?)?|\d{6,8}-\d{6}(?:-[0-9a-z]+)*", re.ASCII)
_SAFE = re.compile(r"[A-Za-z_][\w./-]*", re.ASCII)
_RESERVED = frozenset(("null", "true", "false", "yes", "no", "on", "off", "y", "n"))
UNPRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")
_NO_BLOCK = re.compile(f"[\x00-\x08\x0b-\x1f]|{UNPRINTABLE.pattern}|\\A\\s|\\s\\Z")
_encode = json.JSONEncoder(ensure_ascii=False).encode


def dump(data: Mapping[str, object]) -> str:
    """Mappings, lists and scalars as YAML; half a surrogate pair is no text, and is replaced."""
    lines: list[str] = []
    _write(data, "", lines)
    return "\n".join(lines) + "\n"


def lines_of(data: Mapping[str, Any], indent: str = "") -> str:
    """A mapping in lines, text of several lines as such."""
    lines: list[str] = []
    for key, value in data.items():
        name = flow(str(key))
        if isinstance(value, Mapping) and value:
            lines += (f"{indent}{name}:\n", lines_of(value, indent + "  "))
        elif isinstance(value, str) and "\n" in value and not indent:
            lines.append(dump({name: value}))
        else:
            lines.append(f"{indent}{name}: {flow(value)}\n")
    return "".join(lines)


def flow(value: Any) -> str:
    """A value on one line."""
    if isinstance(value, str):
        if STAMP.fullmatch(value) or (_SAFE.fullmatch(value) and value.lower() not in _RESERVED):
            return value
        return UNPRINTABLE.sub(_escaped, json.dumps(value, ensure_ascii=False))
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{flow(str(key))}: {flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(flow(item) for item in value) + "]"
    return json.dumps(value)


def _write(data: Mapping[str, object], indent: str, lines: list[str]) -> None:
    for key, value in data.items():
        if isinstance(value, Mapping):
            lines.append(f"{indent}{key}:")
            _write(value, indent + "  ", lines)
        elif isinstance(value, list | tuple) and not all(type(item) is int for item in value):
            lines.append(f"{indent}{key}:")
            for item in value:
                start = len(lines)
                if isinstance(item, Mapping):
                    _write(item, indent + "    ", lines)
                    lines[start] = f"{indent}  - {lines[start].lstrip(' ')}"
                else:
                    lines.append(f"{indent}  - {_scalar(item, indent + '    ')}")
        else:
            lines.append(f"{indent}{key}: {_scalar(value, indent + '  ')}")


def _scalar(value: object, indent: str) -> str:
    if isinstance(value, str):
        if "\n" in value and not _NO_BLOCK.search(value):
            return "|-" + "".join(f"\n{indent}{line}" if line else "\n" for line in value.split("\n"))
        return UNPRINTABLE.sub(_escaped, _encode(value))
    if isinstance(value, float):
        number = repr(value) if math.isfinite(value) else "null"
        return number if "." in number else number.replace("e", ".0e")
    return _encode(value)


def _escaped(match: re.Match[str]) -> str:
    return "\ufffd" if "\ud800" <= match[0] <= "\udfff" else f"\\u{ord(match[0]):04x}"
