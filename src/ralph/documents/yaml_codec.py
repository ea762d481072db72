"""YAML: one way to read it, one way to change a file that users edit, and one way to write a new one.

Reading is by libyaml (PyYAML's C loader) with the types of YAML 1.2: `on` and `no` are words, and a moment stays text.
Changing a file is by ruamel's round trip, so comments, unknown keys and the order of lines survive.
Writing is our own: Ralph writes block mappings whose scalars are JSON, which takes 0.05 ms for a reflection. The library
takes 4 ms, and libyaml's emitter escapes every emoji, which agents use in each summary.
"""

import io
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import yaml  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from ruamel.yaml.comments import CommentedMap

SIZE_LIMIT = 256 * 1024
MAX_VALUES = 100_000
"""The maximum number of values of a file with its aliases expanded: a few lines can expand to billions."""
BOM = "\ufeff"
STAMP = re.compile(r"\d{4}-\d\d-\d\d(?:T[\d:]+(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)?)?|\d{6,8}-\d{6}(?:-[0-9a-z]+)*", re.ASCII)
_SAFE_WORD = re.compile(r"[A-Za-z_][\w./-]*", re.ASCII)
# Words that other readers, which follow YAML 1.1, take for truth values.
_RESERVED = frozenset(("null", "true", "false", "yes", "no", "on", "off", "y", "n"))
_UNPRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_NO_BLOCK = re.compile(f"[\x00-\x08\x0b-\x1f\ud800-\udfff]|{_UNPRINTABLE.pattern}|\\A\\s|\\s\\Z")
_SURROGATE = re.compile("[\ud800-\udfff]")
_INDENT = re.compile(r"^[\w.\"'-]+:[^\S\n]*(?:#.*)?\n( +)[^\s#-]", re.MULTILINE)
_TAG = "tag:yaml.org,2002:"
_SAFE_DEPTH = 1000
_encode_json = json.JSONEncoder(ensure_ascii=False).encode


class YamlError(ValueError):
    """Why a text is not the YAML that was expected, and the line; None if that is not known."""

    def __init__(self, what: str, line: int | None = None) -> None:
        super().__init__(what)
        self.what, self.line = what, line


class WholeMapping(dict[str, Any]):
    """A mapping that replaces another one when a document is changed, instead of being merged into it."""


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """libyaml, if PyYAML was built with it, with the core schema of YAML 1.2."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012


for _name, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("null", r"~|null|Null|NULL|", "~nN"),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
    (
        "float",
        r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.nan",
        "-+0123456789.",
    ),
    ("merge", r"<<", "<"),
):
    _firsts = [*_first, ""] if _name == "null" else [*_first]
    _Loader.add_implicit_resolver(_TAG + _name, re.compile(rf"(?:{_pattern})\Z"), _firsts)


class YamlDocument:
    """What a text says, and in which line it says it."""

    def __init__(self, text: str, data: Any, root: yaml.Node | None, first_line: int = 1) -> None:
        self.text, self.data = text, data
        self._root, self._first_line = root, first_line

    def get(self, path: str) -> Any:
        """The value at `key` or `section.key`; None if there is none."""
        value = self.data
        for key in self._keys(path):
            value = value.get(key) if isinstance(value, dict) else None
        return value

    def has(self, path: str) -> bool:
        """Whether the key is there, whatever its value is."""
        section: Any = self.data
        *above, last = self._keys(path)
        for key in above:
            section = section.get(key)
        return isinstance(section, dict) and last in section

    def line(self, path: str) -> int:
        """The line of that key; the first if it is not there."""
        return self.line_of(self._keys(path)) if self.has(path) else self._first_line

    def line_of(self, keys: Iterable[str | int]) -> int:
        """The line of a value by the keys and indexes down to it; of the nearest one above it if it is not there."""
        node, line = self._root, 1
        for key in keys:
            if isinstance(node, yaml.MappingNode):
                found = [pair for pair in node.value if _key_text(pair[0]) == key]
                if not found:
                    break
                line, node = found[-1][0].start_mark.line + 1, found[-1][1]
            elif isinstance(node, yaml.SequenceNode) and str(key).isdigit() and int(key) < len(node.value):
                node = node.value[int(key)]
                line = node.start_mark.line + 1
            else:
                break
        return int(line) + self._first_line - 1

    def _keys(self, path: str) -> list[str]:
        if path in self.data or "." not in path:
            return [path]
        return path.split(".", 1)


@dataclass(frozen=True)
class YamlRules:
    """What a text may hold."""

    most_levels: int = 20
    size_limit: int = SIZE_LIMIT
    allow_aliases: bool = False
    allow_repeated_keys: bool = True
    """Whether a key may be there twice; the last one counts."""


_DEFAULT_RULES = YamlRules()


def load(text: str, rules: YamlRules = _DEFAULT_RULES, *, first_line: int = 1) -> YamlDocument:
    """Read a text, or raise a YamlError with the line. Every key is text; an empty text has None as its data."""
    if len(text) > rules.size_limit:
        raise YamlError(f"the file is larger than {rules.size_limit // 1024} KiB")
    root = compose(text, first_line=first_line)
    data = None if root is None else _ValueReader(rules, first_line).read(root, 1)
    return YamlDocument(text, data, root, first_line)


def load_mapping(text: str, rules: YamlRules = _DEFAULT_RULES, *, first_line: int = 1) -> YamlDocument:
    """Read `key: value` lines; a YamlError if the text holds anything else. An empty text has no keys."""
    document = load(text, rules, first_line=first_line)
    if document.data is None:
        document.data = {}
    if not isinstance(document.data, dict):
        raise YamlError("the file must contain `key: value` lines", first_line)
    return document


def compose(text: str, *, name: str = "", first_line: int = 1) -> yaml.Node | None:
    """The nodes of a text, for a reader that wants the line of every value; with a name, each node knows its file."""
    stream: Any = text
    if name:
        stream = io.StringIO(text)
        stream.name = name
    try:
        # libyaml composes by recursion in C, and 200,000 levels end the process. Each level needs one of these
        # characters, so most texts need no look at their events.
        if sum(map(text.count, "[{-:?")) > _SAFE_DEPTH:
            _refuse_depth(text, first_line)
        return yaml.compose(stream, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        # At the end of a text without a final newline, libyaml names a line that is not there.
        line = min(error.problem_mark.line, text.count("\n")) + first_line if error.problem_mark else None
        raise YamlError(f"not readable as YAML: {error.problem or error.context}", line) from error
    except yaml.reader.ReaderError as error:
        before = text.encode("utf-8", "surrogatepass")[: error.position]
        raise YamlError(f"not readable as YAML: {error.reason}", before.count(b"\n") + first_line) from error
    except (yaml.YAMLError, UnicodeError, RecursionError) as error:
        raise YamlError(f"not readable as YAML: {' '.join(str(error).split())[:200]}") from error


def _refuse_depth(text: str, first_line: int) -> None:
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _SAFE_DEPTH:
            raise YamlError("not readable as YAML: nested too deeply", event.start_mark.line + first_line)


class _ValueReader:
    """Turns nodes into values, within bounds."""

    def __init__(self, rules: YamlRules, first_line: int) -> None:
        self._rules, self._first_line = rules, first_line
        self._seen: set[int] = set()
        self._count = 0

    def read(self, node: yaml.Node, level: int) -> Any:
        self._count += 1
        if not self._rules.allow_aliases and id(node) in self._seen:
            raise self._fault(node, "aliases are not supported in this file")
        self._seen.add(id(node))
        if self._rules.allow_aliases and self._count > MAX_VALUES:
            raise self._fault(node, f"more than {MAX_VALUES} values, with aliases expanded")
        if level > self._rules.most_levels:
            what = f"nested deeper than {self._rules.most_levels} levels, with aliases expanded"
            raise self._fault(node, f"not readable as YAML: {what}")
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node)
        if isinstance(node, yaml.SequenceNode):
            return [self.read(item, level + 1) for item in node.value]
        return self._mapping(node, level)

    def _mapping(self, node: yaml.MappingNode, level: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        inherited: dict[str, Any] = {}
        for key, value in node.value:
            if key.tag == f"{_TAG}merge" and self._rules.allow_aliases:
                inherited = {**self._read_merge_key(value, level), **inherited}
                continue
            name = _key_text(key)
            if not self._rules.allow_repeated_keys and name in found:
                raise self._fault(key, f"not readable as YAML: the key {name!r} appears twice")
            found[name] = self.read(value, level + 1)
        return {**inherited, **found}

    def _read_merge_key(self, node: yaml.Node, level: int) -> dict[str, Any]:
        """The keys that `<<` stands for: those of a mapping, or of several, of which the first counts."""
        found: dict[str, Any] = {}
        for one in node.value if isinstance(node, yaml.SequenceNode) else [node]:
            if not isinstance(one, yaml.MappingNode):
                raise self._fault(one, "not readable as YAML: `<<` needs a mapping")
            found = {**self.read(one, level + 1), **found}
        return found

    def _scalar(self, node: yaml.ScalarNode) -> Any:
        kind, text = str(node.tag).removeprefix(_TAG), node.value
        try:
            match kind:
                case "str" | "merge":
                    return text
                case "null":
                    return None
                case "bool":
                    return {"true": True, "false": False}[text.lower()]
                case "int":
                    return int(text, 0) if text[:2] in ("0x", "0o") else int(text)
                case "float":
                    return float(re.sub(r"\.(inf|nan)", r"\1", text.lower()))
        except (ValueError, KeyError):
            raise self._fault(node, f"not readable as YAML: {text[:80]!r} is not a valid {kind}") from None
        raise self._fault(node, f"not readable as YAML: the tag {kind[:80]} is unknown")

    def _fault(self, node: yaml.Node, what: str) -> YamlError:
        return YamlError(what, node.start_mark.line + self._first_line)


def _key_text(node: yaml.Node) -> str:
    """A key as it is written. A key that is a list or a mapping has no text."""
    return str(node.value) if isinstance(node, yaml.ScalarNode) else f"line {node.start_mark.line + 1}"


def edit(text: str, changes: Mapping[str, Any]) -> str:
    """The text with these values at these paths, `key` or `section.key`. What is not changed stays as it is written.

    A mapping is merged into the one that is there, unless it is a WholeMapping.
    """
    wanted: dict[str, Any] = {}
    for path, value in changes.items():
        section, _, key = path.rpartition(".")
        (wanted.setdefault(section, {}) if section else wanted)[key] = value
    data = load_mapping(text).data
    merged = _merge(data, wanted)
    if merged == data and render_inline(merged) == render_inline(data):
        return text
    if not text.strip():
        return dump(merged)
    edited = _edit_in_place(text, data, wanted)
    # The round trip has its limits (duplicate keys, a document that is one flow mapping, ...): what it made is read
    # again, and a file that would say something else is written anew with all of its values.
    try:
        if render_inline(load_mapping(edited).data) == render_inline(merged):
            return edited
    except YamlError:
        pass
    return dump(merged)


def _edit_in_place(text: str, data: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    from ruamel.yaml.error import YAMLError

    newline = "\r\n" if "\r\n" in text else "\n"
    plain = text.removeprefix(BOM).replace("\r\n", "\n")
    try:
        root = _trees.pop(plain, None) or _parse_tree(plain)
        _change(root, data, wanted)
        edited = _render_tree(root, plain)
    except (YAMLError, ArithmeticError, ValueError, TypeError, AttributeError, LookupError, RecursionError):
        return ""
    _trees.clear()
    _trees[edited] = root
    mark = BOM if text.startswith(BOM) else ""
    return mark + edited.replace("\n", newline)


_trees: "dict[str, CommentedMap]" = {}
"""The tree of the text that was made last: the next change is mostly one to the same file, and parsing takes longest."""


def _parse_tree(text: str) -> "CommentedMap":
    from ruamel.yaml.comments import CommentedMap

    root = _round_trip(_indent_of(text)).load(text)
    return CommentedMap() if root is None else root


def _render_tree(root: "CommentedMap", text: str) -> str:
    if not root:
        return text
    stream = io.StringIO()
    _round_trip(_indent_of(text)).dump(root, stream)
    return stream.getvalue()


@cache
def _round_trip(indent: int) -> Any:
    """The library, set up so that every scalar is text: what is not changed is written as it was read."""
    from ruamel.yaml import YAML

    codec = YAML()
    codec.Resolver = _verbatim_resolver()
    codec.preserve_quotes = True
    codec.width = 2**31
    codec.max_depth = _DEFAULT_RULES.most_levels
    codec.indent(mapping=indent, sequence=4, offset=2)
    return codec


def _indent_of(text: str) -> int:
    found = _INDENT.search(text)
    return len(found[1]) if found else 2


@cache
def _verbatim_resolver() -> Any:
    from ruamel.yaml.resolver import VersionedResolver

    class VerbatimResolver(VersionedResolver):
        @property
        def versioned_resolver(self) -> Any:
            """An empty value is the only one that the library could not write back as text."""
            return {"": [(f"{_TAG}null", re.compile(r"\Z"))]}

    return VerbatimResolver


def _change(node: "CommentedMap", data: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Put values into a tree; `data` is what the tree says."""
    for key, value in wanted.items():
        old: Any = data.get(key)
        if _is_merged(old, value):
            _change(node[key], old, value)
        elif key not in data or render_inline(old) != render_inline(value):
            node[key] = _to_tree(value, in_flow=bool(node.fa.flow_style()))


def _merge(data: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(data)
    for key, value in wanted.items():
        old: Any = merged.get(key)
        merged[key] = _merge(old, value) if _is_merged(old, value) else value
    return merged


def _is_merged(old: Any, value: Any) -> bool:
    return isinstance(old, dict) and bool(old) and isinstance(value, Mapping) and not isinstance(value, WholeMapping)


def _to_tree(value: Any, *, in_flow: bool) -> Any:
    """A new value as the library writes it: scalars are text in this tree, and those that need quotes get them."""
    from ruamel.yaml.comments import CommentedMap, CommentedSeq
    from ruamel.yaml.scalarstring import DoubleQuotedScalarString, LiteralScalarString

    if isinstance(value, Mapping):
        mapping = CommentedMap({str(key): _to_tree(one, in_flow=in_flow) for key, one in value.items()})
        if not value:
            mapping.fa.set_flow_style()
        return mapping
    if isinstance(value, list | tuple):
        is_flow = in_flow or _fits_on_a_line(value)
        items = CommentedSeq(_to_tree(one, in_flow=is_flow) for one in value)
        if is_flow:
            items.fa.set_flow_style()
        return items
    if not isinstance(value, str):
        return render_inline(value)
    if _is_block(value):
        return LiteralScalarString(value)
    text = _replace_surrogates(value)
    return text if _is_plain(text, in_flow=in_flow) else DoubleQuotedScalarString(text)


def dump(data: Mapping[str, Any]) -> str:
    """A new text: block style, texts of several lines as such, lists of words on one line."""
    return "".join(f"{line}\n" for line in _block(data, ""))


def render_inline(value: Any, *, in_flow: bool = False) -> str:
    """A value on one line; `in_flow` if it is in a list or a mapping on that line."""
    if isinstance(value, str):
        if _is_plain(value, in_flow=in_flow):
            return value
        return _UNPRINTABLE.sub(_escape, _encode_json(_replace_surrogates(value)))
    if isinstance(value, Mapping):
        return (
            "{"
            + ", ".join(
                f"{render_inline(str(key), in_flow=True)}: {render_inline(item, in_flow=True)}"
                for key, item in value.items()
            )
            + "}"
        )
    if isinstance(value, list | tuple):
        return "[" + ", ".join(render_inline(item, in_flow=True) for item in value) + "]"
    if isinstance(value, float):
        return _number(value)
    return _encode_json(value)


def _block(data: Mapping[str, Any], indent: str) -> Iterator[str]:
    for key, value in data.items():
        name = f"{indent}{render_inline(str(key))}:"
        if isinstance(value, Mapping) and value:
            yield name
            yield from _block(value, f"{indent}  ")
        elif isinstance(value, list | tuple) and not _fits_on_a_line(value):
            yield name
            for item in value:
                yield from _item(item, f"{indent}  ")
        else:
            yield f"{name} {_scalar(value, f'{indent}  ')}"


def _item(item: Any, indent: str) -> Iterator[str]:
    if not isinstance(item, Mapping) or not item:
        yield f"{indent}- {_scalar(item, f'{indent}  ')}"
        return
    first, *more = _block(item, f"{indent}  ")
    yield f"{indent}- {first.lstrip(' ')}"
    yield from more


def _scalar(value: Any, indent: str) -> str:
    if not isinstance(value, str) or not _is_block(value):
        return render_inline(value)
    return "|-" + "".join(f"\n{indent}{line}" if line else "\n" for line in value.split("\n"))


def _is_plain(text: str, *, in_flow: bool = False) -> bool:
    """Whether a text means the same without quotes, to every reader; some read no `:` in a list on one line."""
    if STAMP.fullmatch(text):
        return not in_flow or ":" not in text
    return bool(_SAFE_WORD.fullmatch(text)) and text.lower() not in _RESERVED


def _is_block(text: str) -> bool:
    return "\n" in text and not _NO_BLOCK.search(text)


def _fits_on_a_line(items: Iterable[Any]) -> bool:
    """Whether a list is one of words and numbers."""
    return not any(
        isinstance(item, Mapping | list | tuple) or (isinstance(item, str) and not _is_plain(item)) for item in items
    )


def _number(value: float) -> str:
    """YAML needs a point in a number with an exponent; what is not finite has no place in a file."""
    number = repr(value) if math.isfinite(value) else "null"
    return number if "." in number else number.replace("e", ".0e")


def _replace_surrogates(text: str) -> str:
    """Half of a surrogate pair is no text."""
    return _SURROGATE.sub("\ufffd", text)


def _escape(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"
