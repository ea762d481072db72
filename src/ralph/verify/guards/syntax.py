"""Reading token lists: parts, branches, handlers, local names."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ralph.core.patterns import regex
from ralph.verify.guards.lexer import partners

Tokens = Sequence[str]
Pairs = Mapping[int, int]

_BEGINS = frozenset((";", "{", "}", "else", "=", "=>", "(", ",", "return", ")"))
_OPERATES = regex(r"(and|or|in|is|not|if|else)$|[^\w$\"(\[{!+-]")
_CHANGES = regex(r"[-+*/%&|^]=$|\+\+$|--$")


@dataclass(frozen=True)
class Block:
    """A part of the code in braces, with what stands before it: `if (cond) {...}`, `catch (e) {...}`."""

    index: int
    head: Tokens
    body: Tokens
    opener: int


def split(tokens: Tokens, *separators: str) -> list[Tokens]:
    """The parts between separators that stand in no bracket."""
    parts: list[Tokens] = []
    depth = start = 0
    for index, token in enumerate(tokens):
        if token in "([{":
            depth += 1
        elif token in ")]}":
            depth -= 1
        elif depth == 0 and token in separators:
            parts.append(tokens[start:index])
            start = index + 1
    return [*parts, tokens[start:]]


def unwrapped(tokens: Tokens) -> Tokens:
    """Without brackets around the whole."""
    while len(tokens) > 1 and tokens[0] == "(" and partners(tokens).get(0) == len(tokens) - 1:
        tokens = tokens[1:-1]
    return tokens


def stop_at(tokens: Tokens, pairs: Pairs, index: int, stops: Collection[str] = (";", "}", ")", "]")) -> int:
    """Where a walk comes to a stop that steps over brackets, by default at the end of a statement."""
    while index < len(tokens) and tokens[index] not in stops:
        index = pairs.get(index, index) + 1
    return min(index, len(tokens))


def branch_at(tokens: Tokens, pairs: Pairs, index: int) -> Block | None:
    """The branch of an `if` or `elif`, with braces or a single statement."""
    if index and tokens[index - 1] not in _BEGINS:
        return None
    closing = pairs.get(index + 1, -1) if index + 1 < len(tokens) and tokens[index + 1] == "(" else -1
    if 0 < closing < len(tokens) - 1 and tokens[closing + 1] != "{" and not _OPERATES.match(tokens[closing + 1]):
        stop = stop_at(tokens, pairs, closing + 1)
        return Block(index, tokens[index + 2 : closing], tokens[closing + 1 : stop], closing)
    at, declares = index + 1, False
    while at < len(tokens) and tokens[at] != "{":
        declares = declares or tokens[at] in (":=", "let")
        if tokens[at] in ("}", ")") or (tokens[at] == ";" and not declares):
            return None
        at = pairs.get(at, at) + 1
    return Block(index, unwrapped(tokens[index + 1 : at]), tokens[at + 1 : pairs.get(at, at)], at)


def branches(tokens: Tokens, pairs: Pairs) -> Iterator[Block]:
    """Every `if` with its condition and its block."""
    for index, token in enumerate(tokens):
        if token in ("if", "elif") and (block := branch_at(tokens, pairs, index)):
            yield block


def handlers(tokens: Tokens, pairs: Pairs) -> Iterator[Block]:
    """Every `except` and `catch` clause."""
    for index, token in enumerate(tokens):
        if token not in ("except", "catch") or (index and tokens[index - 1] == "."):
            continue
        at = stop_at(tokens, pairs, index + 1, ("{", ";", "}"))
        if at < len(tokens) and tokens[at] == "{":
            yield Block(index, unwrapped(tokens[index + 1 : at]), tokens[at + 1 : pairs.get(at, at)], at)


def bindings(tokens: Tokens) -> list[tuple[int, str, Tokens]]:
    """Where local names are given values; names that are counted up or otherwise changed in place are left out."""
    found: list[tuple[int, str, Tokens]] = []
    changed: set[str] = set()
    brackets: list[str] = []
    for index, token in enumerate(tokens):
        if token in "([{":
            brackets.append(token)
        elif token in ")]}" and brackets:
            brackets.pop()
        elif _CHANGES.match(token):
            changed.update((*tokens[index - 1 : index], *tokens[index + 1 : index + 2]))
        elif token in ("=", ":=") and index and (not brackets or brackets[-1] == "{"):
            found.extend((index, name, value) for name, value in _bound(tokens, index))
    return [binding for binding in found if binding[1] not in changed]


def _bound(tokens: Tokens, index: int) -> Iterator[tuple[str, Tokens]]:
    stop, depth = index + 1, 0
    while stop < len(tokens) and stop - index < 80:
        depth += (tokens[stop] in "([{") - (tokens[stop] in ")]}")
        if depth < 0 or (depth == 0 and tokens[stop] == ";"):
            break
        stop += 1
    value = tokens[index + 1 : stop]
    at = index - 1 - 2 * (index > 2 and tokens[index - 2] == ":")
    position = 0
    while at >= 0 and (tokens[at][0].isalpha() or tokens[at][0] == "_"):
        if at and tokens[at - 1] in (".", "?."):
            return
        yield tokens[at], value
        if at < 2 or tokens[at - 1] != ",":
            return
        at, position = at - 2, position + 1
        value = [*value, f"#{position}"]


def resolved(tokens: Tokens, names: Mapping[str, Tokens], depth: int = 3) -> list[str]:
    """The tokens with local names replaced by their values."""
    result: list[str] = []
    for index, token in enumerate(tokens):
        before = tokens[index - 1] if index else ""
        after = tokens[index + 1] if index + 1 < len(tokens) else ""
        value = names.get(token) if depth and before not in (".", "?.") and after not in ("=", "(") else None
        if value is None or token in value or len(result) > 300:
            result.append(token)
        else:
            result.extend(resolved(value, names, depth - 1))
    return result
