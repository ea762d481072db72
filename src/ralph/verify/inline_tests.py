"""Tests that stand in the same file as the code they test: `mod tests` in Rust, `if (import.meta.vitest)` in JavaScript.

The code is the work, and the tests judge it. To put back only the tests, the file is parsed by tree-sitter, which comes with the
extra `inline-tests`. Without it, a file whose tests changed cannot be split, and the verdict is left to a judge.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from ralph.core.text import regex

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

_RUST_TEST = regex(r"#\s*\[\s*(cfg\s*\(.*\btest\b|(\w+::)*(test|rstest|test_case|proptest)\b)")
_VITEST = regex(r"\bimport\.meta\.vitest\b")
_RUST_FILE = regex(r"\.rs$")
_SCRIPT_FILE = regex(r"\.[cm]?[jt]sx?$")
_ATTRIBUTES = frozenset(("attribute_item", "line_comment", "block_comment"))
_HARMLESS = frozenset(("function_item", "const_item", "static_item", "struct_item", "enum_item", "impl_item"))
"""New items that cannot change what the tests beside them do. A macro or an import can: `assert_eq!` could be another one."""
_SCRIPT_FUNCTIONS = frozenset(
    (
        "function_declaration",
        "function_expression",
        "arrow_function",
        "method_definition",
        "generator_function_declaration",
    )
)
_TEST_CALL = regex(r"(it|test|describe)(\.\w+)*\s*\(")


class CannotSplitError(ValueError):
    """The tests of a file cannot be told apart from its code."""


@dataclass(frozen=True)
class SourceItem:
    """A part of a file, with the attributes in front of it."""

    kind: str
    name: str
    start: int
    end: int
    text: str
    is_test: bool
    inner: "tuple[SourceItem, ...]" = ()

    @property
    def key(self) -> tuple[str, str]:
        return self.kind, self.name

    @property
    def words(self) -> str:
        """The text without its layout."""
        return " ".join(self.text.split())


def has_inline_tests(path: str, old: str, new: str) -> bool:
    """Whether a file had tests beside its code, or has them now."""
    if _RUST_FILE.search(path):
        return bool(_RUST_TEST.search(old) or _RUST_TEST.search(new))
    return bool(_SCRIPT_FILE.search(path) and (_VITEST.search(old) or _VITEST.search(new)))


def restore_inline_tests(path: str, old: str, new: str) -> str:
    """The new text with the tests as they were; the new text itself if its tests are the old ones and perhaps more.

    Raises CannotSplitError.
    """
    before, now = _read_tests(path, old), _read_tests(path, new)
    if _only_adds(before, now):
        return new
    remaining = {block.key: block for block in before}
    data = new.encode()
    pieces, position = [], 0
    for block in now:
        known = remaining.pop(block.key, None)
        pieces += [data[position : block.start], known.text.encode() if known else b""]
        position = block.end
    pieces.append(data[position:])
    pieces += [f"\n{block.text}\n".encode() for block in remaining.values()]
    return b"".join(pieces).decode()


def find_function_bodies(path: str, text: str) -> list[tuple[int, int]]:
    """Where the bodies of the functions of a script begin and end, in bytes; raises CannotSplitError.

    Constructors and functions that make other functions are left out: without them, modules could not be loaded.
    """
    bodies: list[tuple[int, int]] = []
    remaining = [_parse("tsx" if path.endswith("x") else "typescript", text)]
    while remaining:
        node = remaining.pop()
        body = node.child_by_field_name("body") if node.type in _SCRIPT_FUNCTIONS else None
        is_emptied = body is not None and body.type == "statement_block"
        is_constructor = _read(node.child_by_field_name("name")) == "constructor"
        if body is not None and is_emptied and not is_constructor and not _makes_function(body):
            bodies.append((body.start_byte, body.end_byte))
        else:
            remaining += node.named_children
    return sorted(bodies)


def _makes_function(body: "Node") -> bool:
    """Whether a body declares a function, or returns one or an object."""
    for statement in body.named_children:
        if statement.type == "function_declaration":
            return True
        if statement.type == "return_statement":
            return any(value.type == "object" or value.type in _SCRIPT_FUNCTIONS for value in statement.named_children)
    return False


def _only_adds(before: Sequence[SourceItem], now: Sequence[SourceItem]) -> bool:
    """Whether all tests that were there are there unchanged, and nothing new can change what they do."""
    known = {block.key: block for block in now}
    for block in before:
        other = known.get(block.key)
        if other is None:
            return False
        if other.words != block.words and not _only_adds_inside(block, other):
            return False
    return True


def _only_adds_inside(block: SourceItem, other: SourceItem) -> bool:
    had, has = Counter(one.words for one in block.inner), Counter(one.words for one in other.inner)
    if not block.inner or had - has:
        return False
    gained = has - had
    return all(one.kind in _HARMLESS or one.is_test for one in other.inner if one.words in gained)


def _read_tests(path: str, text: str) -> list[SourceItem]:
    if _RUST_FILE.search(path):
        return [block for block in _read_rust_blocks(_parse("rust", text)) if block.is_test]
    return _read_vitest_blocks(_parse("tsx" if path.endswith("x") else "typescript", text))


def _parse(language: str, text: str) -> "Node":
    root = _load_parser(language).parse(text.encode()).root_node
    if root.has_error:
        raise CannotSplitError
    return root


@cache
def _load_parser(language: str) -> "Parser":
    try:
        import tree_sitter_rust
        import tree_sitter_typescript
        from tree_sitter import Language, Parser
    except ImportError:
        raise CannotSplitError from None
    makers = {
        "rust": tree_sitter_rust.language,
        "typescript": tree_sitter_typescript.language_typescript,
        "tsx": tree_sitter_typescript.language_tsx,
    }
    return Parser(Language(makers[language]()))


def _read_rust_blocks(parent: "Node") -> list[SourceItem]:
    """The items of a file or module, each with the attributes and comments in front of it."""
    blocks = []
    leading: list[Node] = []
    for node in parent.named_children:
        if node.type in _ATTRIBUTES:
            leading.append(node)
            continue
        first = leading[0] if leading else node
        attributes = " ".join(_read(one) for one in leading if one.type == "attribute_item")
        body = node.child_by_field_name("body") if node.type == "mod_item" else None
        blocks.append(
            SourceItem(
                kind=node.type,
                name=_read(node.child_by_field_name("name")) or _read(node),
                start=first.start_byte,
                end=node.end_byte,
                text=_cut(parent, first.start_byte, node.end_byte),
                is_test=bool(_RUST_TEST.search(attributes)),
                inner=tuple(_read_rust_blocks(body)) if body else (),
            )
        )
        leading = []
    return blocks


def _read_vitest_blocks(root: "Node") -> list[SourceItem]:
    """The `if (import.meta.vitest)` statements of a module."""
    blocks: list[SourceItem] = []
    for node in root.named_children:
        condition = node.child_by_field_name("condition") if node.type == "if_statement" else None
        if condition is None or not _VITEST.search(_read(condition)):
            continue
        body = node.child_by_field_name("consequence")
        blocks.append(
            SourceItem(
                kind=node.type,
                name=str(len(blocks)),
                start=node.start_byte,
                end=node.end_byte,
                text=_read(node),
                is_test=True,
                inner=tuple(map(_read_statement, body.named_children)) if body else (),
            )
        )
    return blocks


def _read_statement(node: "Node") -> SourceItem:
    text = _read(node)
    is_test = bool(_TEST_CALL.match(text))
    return SourceItem(kind=node.type, name=text, start=node.start_byte, end=node.end_byte, text=text, is_test=is_test)


def _read(node: "Node | None") -> str:
    return node.text.decode() if node is not None and node.text is not None else ""


def _cut(parent: "Node", start: int, end: int) -> str:
    data = parent.text or b""
    return data[start - parent.start_byte : end - parent.start_byte].decode()
