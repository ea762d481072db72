"""YAML mappings that are changed in place: only the lines of what changed are touched, and comments and unknown keys stay.

The plain `key: value` lines of most files are read here, a hundred times as quickly as by the library; it reads all else.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, ScalarNode, SequenceNode

from ralph.core.errors import StateError
from ralph.documents.plain_yaml import STAMP, UNPRINTABLE, flow, lines_of
from ralph.documents.session.markdown import BOM, Page

SIZE_LIMIT = 256 * 1024
DEEPEST = 20
CORRECT = "correct the file by hand, or let `ralph session repair` rebuild it"
_TOKEN = r"-?[\w.+/][\w./+-]*(?::[\w./+-]+)*"
_PLAIN = rf"{_TOKEN}(?: (?:{_TOKEN}))*"
_QUOTED = r"\"(?:[^\"\\\x00-\x1f]|\\.)*\"|'[^'\x00-\x1f]*'"
_VALUE = rf"({_PLAIN}|{_QUOTED}|\[(?: *{_TOKEN}(?: *, *{_TOKEN})*)? *\]|\|-)"
_PAIR = re.compile(rf"( *)([\w][\w.-]*):(?: +{_VALUE})?(?: *| +#[\x20-\x7e]*)", re.ASCII)
_ITEM = re.compile(rf"{_VALUE}(?: *| +#[\x20-\x7e]*)", re.ASCII)
_WORDS: dict[str, object] = {"null": None, "true": True, "false": False}
_WORDS |= {form(word): value for word, value in _WORDS.copy().items() for form in (str.title, str.upper)}
_KINDS = ("str", "int", "float", "bool", "null", "timestamp", "value", "merge")
_INTEGER, _FLOAT = re.compile(r"-?(?:0|[1-9]\d{0,17})"), re.compile(r"-?\d+\.\d+(?:e[-+]\d+)?")
_ODD = re.compile(f"[\x00-\x08\x0b-\x1f]|{UNPRINTABLE.pattern}")
_NUMBER_LIKE = re.compile(r"[-+.]*\d")


class Exactly(dict[str, Any]):
    """A mapping that takes the place of another, instead of being put into it."""


@dataclass
class _Node:
    """A value, and where it stands in the text."""

    value: Any
    start: int
    end: int
    line: int
    pairs: dict[str, "_Node"] = field(default_factory=dict)
    flow: bool = False
    column: int = 0


class YamlLines:
    """The mapping in a text; a StateError where there is none."""

    def __init__(self, text: str, where: str, first_line: int = 1, most: int = SIZE_LIMIT) -> None:
        if len(text) > most:
            raise StateError(f"the file is larger than {most // 1024} KiB", where=where, todo=CORRECT)
        self.text = text
        self._where, self._first = where, first_line
        self._root = _quick(text) or _careful(text, where, first_line)
        self.data: dict[str, Any] = self._root.value

    def get(self, path: str) -> Any:
        """The value at `key` or `section.key`; None where there is none."""
        node = self._at(path)
        return node.value if node else None

    def has(self, path: str) -> bool:
        """Whether the key is there, whatever its value is."""
        return self._at(path) is not None

    def line(self, path: str) -> int:
        """The line of that key; the first where there is none."""
        node = self._at(path)
        return (node.line if node else 1) + self._first - 1

    def edited(self, values: Mapping[str, Any]) -> str:
        """The text with these values at these paths."""
        wanted: dict[str, Any] = {}
        for path, value in values.items():
            section, _, key = path.rpartition(".")
            (wanted.setdefault(section, {}) if section else wanted)[key] = value
        text = self._with(sorted(self._edits(self._root, wanted), key=lambda edit: edit[0]))
        merged = _merged(self.data, wanted)
        try:
            if flow(YamlLines(text, self._where).data) == flow(merged):
                return text
        except StateError:
            pass
        return lines_of(merged)

    def _with(self, edits: list[tuple[int, int, str]]) -> str:
        newline = "\r\n" if "\r\n" in self.text else "\n"
        text, at = "", 0
        for start, end, new in edits:
            text += self.text[at:start]
            if new.endswith("\n") and text.removeprefix(BOM) and not text.endswith("\n"):
                text += newline
            text, at = text + new.replace("\n", newline), end
        return text + self.text[at:]

    def _at(self, path: str) -> _Node | None:
        section, _, key = path.partition(".")
        inside = self._root.pairs.get(section)
        return self._root.pairs.get(path) or (inside.pairs.get(key) if inside else None)

    def _edits(self, node: _Node, wanted: Mapping[str, Any]) -> Iterator[tuple[int, int, str]]:
        fresh: dict[str, Any] = {}
        for key, value in wanted.items():
            child = node.pairs.get(key)
            if child is None:
                fresh[key] = value
            elif child.pairs and isinstance(value, Mapping) and not isinstance(value, Exactly):
                yield from self._edits(child, value)
            elif flow(child.value) != flow(value):
                yield (
                    child.start,
                    child.end,
                    (" " if self.text[child.start - 1 : child.start] == ":" else "") + flow(value),
                )
        if fresh and node.flow:
            yield node.end - 1, node.end - 1, (", " if node.pairs else "") + flow(fresh)[1:-1]
        elif fresh:
            newline = self.text.find("\n", node.end)
            after = newline + 1 if newline >= 0 and node.pairs else len(self.text)
            yield after, after, lines_of(fresh, " " * node.column)


def told(error: StateError) -> str:
    """An error as one of a list of problems: a sentence that begins with its line."""
    _, _, line = error.where.rpartition("line ")
    return f"line {line if line.isdigit() else 1}: {error.what}"


def front_matter(page: Page, where: str) -> YamlLines:
    """The front matter of a page; empty where it has none, a StateError where it is not readable."""
    return YamlLines(page.front, where, page.front_start + 1)


def front_values(page: Page) -> dict[str, Any]:
    """The front matter of a page that can be read without; empty where it is not readable."""
    try:
        return front_matter(page, "").data
    except StateError:
        return {}


def with_front_matter(text: str, where: str, values: Mapping[str, Any]) -> str:
    """The text with these values in its front matter, which it gets where it has none."""
    page = Page(text)
    front = front_matter(page, where).edited(values)
    return page.with_front(front) if page.body else page.replaced(0, 0, ["---", *front.split("\n")[:-1], "---", ""])


def _merged(data: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(data)
    for key, value in wanted.items():
        old = merged.get(key)
        if isinstance(old, dict) and old and isinstance(value, Mapping) and not isinstance(value, Exactly):
            value = _merged(old, value)
        merged[key] = value
    return merged


def _quick(text: str) -> _Node | None:
    """Reads mappings and lists of plain lines and literal blocks, and gives up on everything else."""
    try:
        return _Quick(text).document()
    except ValueError:
        return None


class _Quick:
    """What Ralph itself writes, and most of what people write; a ValueError for anything else."""

    def __init__(self, text: str) -> None:
        if _ODD.search(text.replace("\r\n", "\n")):
            raise ValueError("characters that YAML may have a meaning for")
        raw = text.split("\n")
        self._starts = [0, *accumulate(len(line) + 1 for line in raw)]
        self._lines = [line.removesuffix("\r") for line in raw]
        self._at = self._end = 0
        """The next line, and where the last value ended."""

    def document(self) -> _Node:
        found = self._mapping(_Node({}, 0, 0, 1), 0) if self._depth() >= 0 else _Node({}, 0, 0, 1)
        if self._depth() >= 0:
            raise ValueError("something is behind it")
        return found

    def _depth(self) -> int:
        """How far the next line that says something is indented; -1 where there is none."""
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if (said := line.lstrip(" ")) and said[0] != "#":
                return len(line) - len(said)
            self._at += 1
        return -1

    def _mapping(self, node: _Node, level: int) -> _Node:
        """Put the lines that are as far indented as the next one into a node."""
        node.column = depth = self._depth()
        while self._depth() == depth:
            index = self._at
            match = _PAIR.fullmatch(self._lines[index])
            if match is None or level > DEEPEST:
                raise ValueError(self._lines[index])
            self._at += 1
            start = self._starts[index] + (match.end(2) + 1 if match[3] is None else match.start(3))
            child = _Node(None, start, start + len(match[3] or ""), index + 1)
            if match[3] == "|-":
                child.value, child.end = self._literal(index, depth)
            elif match[3] is not None:
                child.value = _scalar(match[3])
            elif (inner := self._depth()) > depth:
                if self._lines[self._at].startswith("- ", inner):
                    child.start, child.value = self._starts[self._at] + inner, self._list(level + 1)
                    child.end = self._end
                else:
                    child = self._mapping(replace(child, value={}), level + 1)
            node.pairs[match[2]], node.value[match[2]] = child, child.value
            node.end = self._end = child.end
        if self._depth() > depth:
            raise ValueError(self._lines[self._at])
        return node

    def _list(self, level: int) -> list[Any]:
        found: list[Any] = []
        depth = self._depth()
        while self._depth() == depth and (line := self._lines[self._at]).startswith("- ", depth):
            if _PAIR.fullmatch(line, depth + 2):
                self._lines[self._at] = " " * (depth + 2) + line[depth + 2 :]
                found.append(self._mapping(_Node({}, 0, 0, 1), level + 1).value)
            elif match := _ITEM.fullmatch(line, depth + 2):
                self._at, self._end = self._at + 1, self._starts[self._at] + match.end(1)
                found.append(_scalar(match[1]))
                if match[1] == "|-":
                    found[-1], self._end = self._literal(self._at - 1, depth)
            else:
                raise ValueError(line)
        return found

    def _literal(self, index: int, indent: int) -> tuple[str, int]:
        """The text below a line that says `|-`, and where it ends; a ValueError where it is not written plainly."""
        end = index + 1
        while end < len(self._lines) and (not self._lines[end].strip() or _indent(self._lines[end]) > indent):
            end += 1
        block = self._lines[index + 1 : end]
        while block and not block[-1]:
            block.pop()
        width = _indent(block[0]) if block else 0
        if not width or block[-1].isspace() or any(line[:width].strip(" ") for line in block):
            raise ValueError("|-")
        self._at = index + 1 + len(block)
        return "\n".join(line[width:] for line in block), self._starts[self._at - 1] + len(block[-1].rstrip())


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _scalar(raw: str) -> Any:
    """A plain value; a ValueError for a number that is not written plainly."""
    if raw[0] in "\"'":
        if "\\" in raw and raw[0] == '"':
            if "\\ud" in raw.lower():
                raise ValueError(raw)
            return json.loads(raw)
        return raw[1:-1]
    if raw[0] == "[":
        return [_scalar(part.strip()) for part in raw[1:-1].split(",") if part.strip()]
    if raw in _WORDS:
        return _WORDS[raw]
    if _NUMBER_LIKE.match(raw) and not STAMP.fullmatch(raw):
        if _FLOAT.fullmatch(raw):
            return float(raw)
        if not _INTEGER.fullmatch(raw):
            raise ValueError(raw)
        return int(raw)
    return raw


def _careful(text: str, where: str, first_line: int) -> _Node:
    """Reads any YAML that is safe to read: aliases and deep nesting are refused."""
    yaml = YAML(typ="safe", pure=True)
    yaml.max_depth, yaml.composer.warn_double_anchors = DEEPEST, False
    try:
        node = yaml.compose(text)
    except MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + first_line}" if error.problem_mark else ""
        what = f"not readable as YAML: {error.problem or error.context}"
        raise StateError(what, where=where + line, todo=CORRECT) from error
    except (YAMLError, ArithmeticError, ValueError, TypeError, AttributeError, LookupError, RecursionError) as error:
        what = f"not readable as YAML: {' '.join(str(error).split())[:200]}"
        raise StateError(what, where=where, todo=CORRECT) from error
    if node is None:
        return _Node({}, 0, 0, 1)
    if not isinstance(node, MappingNode):
        raise StateError("the file must hold `key: value` lines", where=where, todo=CORRECT)
    return _read(node, text, where, set())


def _read(node: Any, text: str, where: str, seen: set[int]) -> _Node:
    if id(node) in seen:
        raise StateError("the file has no use for aliases", where=where, todo=CORRECT)
    seen.add(id(node))
    start, end, line = node.start_mark.index, node.end_mark.index, node.start_mark.line + 1
    if isinstance(node, ScalarNode):
        return _Node(_resolved(node, where), start, start + len(text[start:end].rstrip()), line)
    is_flow = bool(node.flow_style)
    if isinstance(node, SequenceNode):
        items = [_read(item, text, where, seen) for item in node.value]
        return _Node([item.value for item in items], start, end if is_flow or not items else items[-1].end, line)
    found = _Node({}, start, end, line, flow=is_flow)
    for key, value in node.value:
        child = _read(value, text, where, seen)
        if child.value is None and child.start == child.end:
            child.start = child.end = text.find(":", key.end_mark.index) + 1
        child.line = key.start_mark.line + 1
        name = key.value if isinstance(key, ScalarNode) else text[key.start_mark.index : key.end_mark.index]
        found.pairs[name], found.value[name] = child, child.value
        found.column = key.start_mark.column
        found.end = end if is_flow else max(child.end, found.start)
    return found


def _resolved(node: ScalarNode, where: str) -> Any:
    """The value of a scalar; moments stay text, and so does what is no number after all."""
    kind, text = str(node.tag).removeprefix("tag:yaml.org,2002:"), node.value
    if kind not in _KINDS:
        raise StateError(f"not readable as YAML: the tag {kind[:80]} is unknown", where=where, todo=CORRECT)
    if kind in ("bool", "null"):
        return _WORDS.get(text, None if kind == "null" else text)
    try:
        if kind == "int":
            digits = text.replace("_", "")
            return int(digits, 0) if re.match(r"[-+]?0[xob]", digits) else int(digits)
        return float(text) if kind == "float" else text
    except ValueError:
        return text
