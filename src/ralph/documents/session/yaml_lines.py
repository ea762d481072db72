"""YAML mappings that are changed in place: only the lines of what changed are touched, and comments and unknown keys stay.

The plain `key: value` lines of most files are read here, a hundred times as quickly as by the library; it reads all else.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, ScalarNode, SequenceNode

from ralph.core.errors import StateError
from ralph.documents.plain_yaml import dump
from ralph.documents.session.markdown import BOM, Page

SIZE_LIMIT = 256 * 1024
DEEPEST = 20
CORRECT = "correct the file by hand, or let `ralph session repair` rebuild it"
_TOKEN = r"-?[\w.+/][\w./+-]*(?::[\w./+-]+)*"
_PLAIN = rf"{_TOKEN}(?: (?:{_TOKEN}))*"
_PAIR = re.compile(
    rf"( *)([\w][\w.-]*):(?: +({_PLAIN}|\"[^\"\\\x00-\x1f]*\"|'[^'\x00-\x1f]*'|\[(?: *{_TOKEN}(?: *, *{_TOKEN})*)? *\]|\|-))?"
    r"(?: *| +#[\x20-\x7e]*)",
    re.ASCII,
)
_WORDS: dict[str, object] = {"null": None, "true": True, "false": False}
_WORDS |= {form(word): value for word, value in _WORDS.copy().items() for form in (str.title, str.upper)}
_NUMBER_LIKE = re.compile(r"[-+.]*\d")
_STAMP = re.compile(
    r"\d{4}-\d\d-\d\d(?:T[\d:]+(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)?)?|\d{6,8}-\d{6}(?:-[0-9a-z]+)*", re.ASCII
)
_SAFE = re.compile(r"[A-Za-z_][\w./-]*", re.ASCII)
_RESERVED = frozenset(("null", "true", "false", "yes", "no", "on", "off", "y", "n"))
_UNPRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")


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

    def __init__(self, text: str, where: str, first_line: int = 1) -> None:
        if len(text) > SIZE_LIMIT:
            raise StateError(f"the file is larger than {SIZE_LIMIT // 1024} KiB", where=where, todo=CORRECT)
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
        if _STAMP.fullmatch(value) or (_SAFE.fullmatch(value) and value.lower() not in _RESERVED):
            return value
        return _UNPRINTABLE.sub(_escaped, json.dumps(value, ensure_ascii=False))
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{flow(str(key))}: {flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(flow(item) for item in value) + "]"
    return json.dumps(value)


def _escaped(match: re.Match[str]) -> str:
    return "\ufffd" if "\ud800" <= match[0] <= "\udfff" else f"\\u{ord(match[0]):04x}"


def _merged(data: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(data)
    for key, value in wanted.items():
        old = merged.get(key)
        if isinstance(old, dict) and old and isinstance(value, Mapping) and not isinstance(value, Exactly):
            value = _merged(old, value)
        merged[key] = value
    return merged


def _quick(text: str) -> _Node | None:
    """Reads mappings of plain lines and literal blocks, and gives up on everything else."""
    root = last = _Node({}, 0, 0, 1)
    stack, is_open, below = [root], False, 0
    raw_lines = text.split("\n")
    starts = [0, *accumulate(len(line) + 1 for line in raw_lines)]
    lines = [line.removesuffix("\r") for line in raw_lines]
    for index, line in enumerate(lines):
        if index < below or not line.strip(" ") or (line.lstrip(" ").startswith("#") and line.isprintable()):
            continue
        match = _PAIR.fullmatch(line) if line.isprintable() else None
        if match is None:
            return None
        indent, key, raw = len(match[1]), match[2], match[3]
        if is_open and indent > stack[-1].column:
            last.value, last.column = {}, indent
            stack.append(last)
        while len(stack) > 1 and stack[-1].column > indent:
            stack.pop()
        if stack[-1].column != indent or len(stack) > DEEPEST:
            return None
        start, is_open = starts[index] + (match.end(2) + 1 if raw is None else match.start(3)), raw is None
        last = _Node(None, start, start + len(raw or ""), index + 1)
        try:
            if raw == "|-":
                last.value, below = _literal(lines, index, indent)
                last.end = starts[below - 1] + len(lines[below - 1].rstrip())
            elif raw is not None:
                last.value = _scalar(raw)
        except ValueError:
            return None
        stack[-1].pairs[key] = last
        for node in stack:
            node.end = last.end
    _settle(root)
    return root


def _literal(lines: list[str], index: int, indent: int) -> tuple[str, int]:
    """The text below a line that says `|-`, and where it ends; a ValueError where it is not written plainly."""
    end = index + 1
    while end < len(lines) and (not lines[end].strip() or _indent(lines[end]) > indent):
        end += 1
    block = lines[index + 1 : end]
    while block and not block[-1]:
        block.pop()
    width = _indent(block[0]) if block else 0
    if not width or any(not line.isprintable() or line.isspace() or (line and _indent(line) < width) for line in block):
        raise ValueError("|-")
    return "\n".join(line[width:] for line in block), index + 1 + len(block)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _settle(node: _Node) -> None:
    """Put the values of the parts into the whole."""
    for key, child in node.pairs.items():
        if child.pairs:
            _settle(child)
        node.value[key] = child.value


def _scalar(raw: str) -> Any:
    """A plain value; a ValueError for a number that is not written plainly."""
    if raw[0] in "\"'":
        return raw[1:-1]
    if raw[0] == "[":
        return [_scalar(part.strip()) for part in raw[1:-1].split(",") if part.strip()]
    if raw in _WORDS:
        return _WORDS[raw]
    if _NUMBER_LIKE.match(raw) and not _STAMP.fullmatch(raw):
        if not re.fullmatch(r"-?(?:0|[1-9]\d{0,17})", raw):
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
        return _Node(_resolved(node), start, start + len(text[start:end].rstrip()), line)
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


def _resolved(node: ScalarNode) -> Any:
    """The value of a scalar; moments stay text, and so does what is no number after all."""
    kind, text = (node.tag or "").rpartition(":")[2], node.value
    if kind in ("bool", "null"):
        return _WORDS.get(text, None if kind == "null" else text)
    try:
        if kind == "int":
            digits = text.replace("_", "")
            return int(digits, 0) if re.match(r"[-+]?0[xob]", digits) else int(digits)
        return float(text) if kind == "float" else text
    except ValueError:
        return text
