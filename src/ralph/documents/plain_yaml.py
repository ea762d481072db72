"""The YAML that Ralph itself writes: a writer, and a reader that is quick with it and hands everything else to a library."""

import io
import json
import math
import re
from collections.abc import Mapping
from typing import Any

from ralph.core.errors import StateError

SCHEMA = 1
SIZE_LIMIT = 256 * 1024
DEEPEST = 20
CORRECT = "correct the file, or delete it: only this memory is lost"
# The YAML that Ralph writes: mappings and lists in block style, literal blocks for text of several lines, and else JSON scalars.
_KEY = re.compile(r"([a-z][a-z_]+):(?: (.+))?")
_BARE = re.compile(r"-?[0-9]+(?:\.[0-9]+(?:e[+-][0-9]+)?)?|null|true|false|\[[-0-9, ]*\]")
_UNPRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")
_NO_BLOCK = re.compile(f"[\x00-\x08\x0b-\x1f]|{_UNPRINTABLE.pattern}|\\A\\s|\\s\\Z")
_NO_KEYS = frozenset(("null", "true", "false", "yes", "no", "on", "off"))
_encode = json.JSONEncoder(ensure_ascii=False).encode
_decode = json.JSONDecoder().decode


def dump(data: Mapping[str, object]) -> str:
    """Mappings, lists and scalars as YAML; half a surrogate pair is no text, and is replaced."""
    lines: list[str] = []
    _write(data, "", lines)
    return "\n".join(lines) + "\n"


def load(text: str, where: str, limit: int = SIZE_LIMIT) -> dict[str, Any]:
    """The mapping of this schema version that a YAML file holds, or a StateError; moments stay text."""
    if len(text) > limit:
        raise StateError(f"the file is larger than {limit // 1024} KiB", where=where, todo=CORRECT)
    try:
        data: object = _Reader(text).document()
    except _NotOurs:
        data = _load_any(text, where)
    if not isinstance(data, dict):
        raise StateError("the file must hold `key: value` lines", where=where, todo=CORRECT)
    if data.get("schema") != SCHEMA:
        what = f"`schema` is {str(data.get('schema'))[:40]}; this Ralph reads version {SCHEMA}"
        raise StateError(what, where=where, todo="use the version of ralph-engine that wrote it, or delete the file")
    return data


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
        return _UNPRINTABLE.sub(_escaped, _encode(value))
    if isinstance(value, float):
        number = repr(value) if math.isfinite(value) else "null"
        return number if "." in number else number.replace("e", ".0e")
    return _encode(value)


def _escaped(match: re.Match[str]) -> str:
    return "\ufffd" if "\ud800" <= match[0] <= "\udfff" else f"\\u{ord(match[0]):04x}"


class _NotOurs(Exception):
    """The text is not of the shape that `dump` writes."""


class _Reader:
    """Reads what `dump` writes, a hundred times as quickly as the library, and gives up on everything else."""

    def __init__(self, text: str) -> None:
        if _UNPRINTABLE.search(text) or "\\ud" in text or "\\uD" in text:
            raise _NotOurs
        self._lines = [*text.split("\n"), ""]
        self._at = 0

    def document(self) -> dict[str, Any]:
        found = self._mapping(0)
        if self._lines[self._at :] != ["", ""]:
            raise _NotOurs
        return found

    def _at_depth(self, indent: int) -> bool:
        """Whether the next line is at this depth; else it is the end of what is read here."""
        line = self._lines[self._at]
        depth = len(line) - len(line.lstrip(" "))
        if depth > indent or indent > 2 * DEEPEST:
            raise _NotOurs
        return depth == indent and line != ""

    def _mapping(self, indent: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while self._at_depth(indent):
            match = _KEY.fullmatch(self._lines[self._at], indent)
            if match is None or match[1] in found or match[1] in _NO_KEYS:
                raise _NotOurs
            self._at += 1
            if match[2] is not None:
                found[match[1]] = self._scalar(match[2], indent + 2)
            elif not self._at_depth(indent + 2):
                raise _NotOurs
            elif self._lines[self._at].startswith("- ", indent + 2):
                found[match[1]] = self._list(indent + 2)
            else:
                found[match[1]] = self._mapping(indent + 2)
        return found

    def _list(self, indent: int) -> list[Any]:
        found: list[Any] = []
        while self._at_depth(indent):
            line = self._lines[self._at]
            if not line.startswith("- ", indent):
                raise _NotOurs
            if _KEY.fullmatch(line, indent + 2):
                self._lines[self._at] = " " * (indent + 2) + line[indent + 2 :]
                found.append(self._mapping(indent + 2))
            else:
                self._at += 1
                found.append(self._scalar(line[indent + 2 :], indent + 2))
        return found

    def _scalar(self, text: str, indent: int) -> Any:
        if text == "|-":
            return self._block(indent)
        quoted = text.startswith('"')
        if quoted and text.isprintable() and text.find('"', 1) == len(text) - 1 and "\\" not in text:
            return text[1:-1]
        if not quoted and not _BARE.fullmatch(text):
            raise _NotOurs
        try:
            return _decode(text)
        except ValueError:
            raise _NotOurs from None

    def _block(self, indent: int) -> str:
        prefix, start = " " * indent, self._at
        while self._at < len(self._lines) and (not (line := self._lines[self._at]) or line.startswith(prefix)):
            self._at += 1
        while self._at > start and not self._lines[self._at - 1]:
            self._at -= 1
        text = "\n".join(line[indent:] for line in self._lines[start : self._at])
        if not text or _NO_BLOCK.search(text):
            raise _NotOurs
        return text


def _load_any(text: str, where: str) -> object:
    """Any YAML that is safe to read: aliases and deep nesting are refused."""
    from ruamel.yaml import YAML
    from ruamel.yaml.constructor import SafeConstructor
    from ruamel.yaml.error import YAMLError
    from ruamel.yaml.events import AliasEvent

    class Plain(SafeConstructor):
        """Leaves moments as the text they are."""

    Plain.add_constructor("tag:yaml.org,2002:timestamp", lambda _, node: node.value)
    yaml = YAML(typ="safe", pure=True)
    yaml.Constructor, yaml.max_depth = Plain, DEEPEST
    try:
        if any(isinstance(event, AliasEvent) for event in YAML(typ="safe", pure=True).parse(io.StringIO(text))):
            raise StateError("a reflection has no use for aliases", where=where, todo=CORRECT)
        return yaml.load(text)
    except (YAMLError, ArithmeticError, ValueError, TypeError, AttributeError, LookupError, RecursionError) as error:
        what = f"not readable as YAML: {' '.join(str(error).split())[:200]}"
        raise StateError(what, where=where, todo=CORRECT) from error
