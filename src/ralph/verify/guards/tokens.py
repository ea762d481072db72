"""Source text as tokens, the same shape for every language, and how to read lists of them.

Comments are kept apart, strings get one kind of quote, statements end in `;` and blocks stand in braces. If a language
says that by line ends (JavaScript, Go, Kotlin) or by indentation (Python), the lexer adds the tokens. Python is read by
its layout and not by `ast`, so that one model serves all rules, and files that are broken or use newer syntax than our
own interpreter are judged too. A token is a plain string; its first character tells its kind.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from ralph.core.text import regex

_DOUBLE, _SINGLE = r'"(?:\\[\s\S]|[^"\\\n])*"?', r"'(?:\\[\s\S]|[^'\\\n])*'?"
_TICKS = r"`(?:\\[\s\S]|[^`\\])*`?"
_TRIPLE = r'"""(?:\\[\s\S]|[^\\])*?(?:"""|\Z)'
_SLASHES = r"//[^\n]*|/\*[\s\S]*?(?:\*/|\Z)"
_REGEX = r"(?:(?<=[(,=:\[!&|?{};\n])|(?<=return))[ \t]*/(?![*/])(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n\[])+/[a-z]*"
_WORD = r"[^\W\d][\w$]*|\$[\w$]*"
_NUMBER = r"0[xXbBoO]\w+|\d[\d_]*(?:\.\d[\d_]*)?(?:[eE][+-]?\d+)?\w*"
_OPERATOR = r"===|!==|\.\.\.|\.\.=|==|!=|<=|>=|=>|->|:=|<-|&&|\|\||\?\?|\?\.|::|\+\+|--|[-+*/%&|^]=|\*\*|//|\.\.|\S"


def word_set(text: str) -> frozenset[str]:
    """A set of words, written as a line of them."""
    return frozenset(text.split())


def is_word(token: str) -> bool:
    """Whether a token is a name or a keyword."""
    return token[:1].isalpha() or token[:1] in ("_", "$")


def _grammar(comments: str, *strings: str) -> re.Pattern[str]:
    return regex(rf"(\n)|({comments})|({'|'.join(strings)})|({_NUMBER}|{_WORD}|{_OPERATOR})")


_PREFIX = r"(?:[rRbBuUfFtT]{1,2}(?=[\"']))?"
_GRAMMARS = {
    "python": _grammar(
        r"#[^\n]*|\\\n", _PREFIX + "(?:" + "|".join((_TRIPLE, _TRIPLE.replace('"', "'"), _DOUBLE, _SINGLE)) + ")"
    ),
    "js": _grammar(_SLASHES, _DOUBLE, _SINGLE, _TICKS, _REGEX),
    "go": _grammar(_SLASHES, _DOUBLE, _SINGLE, r"`[^`]*`?"),
    "java": _grammar(_SLASHES, _TRIPLE, _DOUBLE, _SINGLE),
    "rust": _grammar(
        _SLASHES, r'b?r(?P<hashes>#*)"[\s\S]*?(?:"(?P=hashes)|\Z)', "b?" + _DOUBLE.replace(r"\n", ""),
        r"b?'(?:\\[^'\n]+|[^'\\\n])'",
    ),
}  # fmt: skip
_INSERTED = regex(r"\{([^{}]+)\}")
_WORDS = regex(_WORD)
_QUOTES = regex(r"""\A[a-zA-Z]{0,2}#*("{3}|'{3}|["'`])""")
_OPENERS = {"(": ")", "[": "]", "{": "}"}
_CLOSERS = frozenset(_OPENERS.values())
_BLOCKS = word_set("if elif else for while try except finally with def class async match case")
_UNFINISHED = word_set("else do try finally const let var new in of case extends export import async await")
_GOES_ON = regex(r"[.)\],;:?=&|+*/%<>^]|->?$|else$|catch$|finally$|in$|instanceof$")
_ENDS = regex(r'[\w$")\]}]|\+\+|--')


class Token(str):
    """A token, with the line and the column where it stands."""

    __slots__ = ("column", "line")
    line: int
    column: int


def make_token(text: str, line: int, column: int = 0) -> Token:
    """A text as a token."""
    token = Token(text)
    token.line, token.column = line, column
    return token


Comments = list[tuple[int, str]]


def lex(text: str, language: str) -> tuple[list[Token], Comments]:
    """The tokens of a text, and its comments with their lines. An invalid program yields tokens, too."""
    comments: Comments = []
    raw = _read_tokens(text.replace("\r\n", "\n"), language, comments)
    tokens = (
        _add_braces(raw, comments) if language == "python" else _add_semicolons(raw, by_lines=language in ("js", "go"))
    )
    # A comma before a closing bracket is layout.
    kept = [token for token, after in pairwise(tokens) if token != "," or after not in _CLOSERS]
    return kept + tokens[-1:], comments


def _read_tokens(text: str, language: str, comments: Comments) -> Iterator[Token]:
    """Tokens, line ends among them."""
    line, begins = 1, 0
    for found in _GRAMMARS[language].finditer(text):
        kind, token = found.lastindex or 0, found[0]
        column = found.start() - begins
        if kind > 3:
            yield make_token(token, line, column)
            continue
        if kind == 2:
            comments.append((line, token))
        else:
            yield make_token(token if kind == 1 else _unquote(token), line, column)
        inserted = _WORDS.findall(" ".join(_INSERTED.findall(token))) if kind == 3 and token[0] in "`fF" else None
        yield from (make_token(more, line) for more in ("%", "(", *inserted, ")")) if inserted else ()
        line, begins = line + token.count("\n"), max(begins, text.rfind("\n", found.start(), found.end()) + 1)


def _unquote(token: str) -> str:
    quote = _QUOTES.match(token)
    if not quote:
        return '"' + token.strip().replace('"', "'") + '"'
    closing = quote[1] + "#" * token.count("#", 0, quote.end())
    body = token[quote.end() :].removesuffix(closing).replace('"', "'")
    return f'"{body}"'


def _add_semicolons(raw: Iterable[Token], *, by_lines: bool) -> list[Token]:
    tokens: list[Token] = []
    brackets = ["{"]
    new_line = False
    for token in raw:
        if token == "\n":
            new_line = by_lines
            continue
        if new_line and tokens and brackets[-1] == "{" and _ends_statement(tokens[-1], token):
            tokens.append(make_token(";", token.line - 1))
        new_line = False
        if token in _OPENERS:
            brackets.append(token)
        elif token in _CLOSERS:
            brackets[1:] = brackets[1:-1]
            if token == "}" and tokens[-1:] == [";"]:
                tokens.pop()
        tokens.append(token)
    return tokens


def _ends_statement(last: str, token: str) -> bool:
    if token == "{":
        return last in ("}", "]")
    return bool(_ENDS.match(last)) and last not in _UNFINISHED and not _GOES_ON.match(token)


def _add_braces(raw: Iterable[Token], comments: Comments) -> list[Token]:
    """Python's logical lines with their blocks in braces; a string by itself documents, as a comment does."""
    tokens: list[Token] = []
    indents = [0]
    awaited = False

    def close() -> None:
        while tokens[-1:] == [";"]:
            tokens.pop()
        tokens.append(make_token("}", tokens[-1].line if tokens else 1))

    for logical in _join_lines(raw):
        first = logical[0]
        if len(logical) == 1 and first[0] == '"':
            comments.append((first.line, first))
            continue
        if awaited and first.column > indents[-1]:
            indents.append(first.column)
        elif awaited:
            close()
        while len(indents) > 1 and first.column < indents[-1]:
            indents.pop()
            close()
        colon = _find_block_colon(logical) if first in _BLOCKS else None
        awaited = colon == len(logical) - 1
        tokens += logical
        if colon is None:
            tokens.append(make_token(";", logical[-1].line))
        else:
            at = len(tokens) - len(logical) + colon
            tokens[at] = make_token("{", tokens[at].line)
            if not awaited:
                close()
    for _ in range(len(indents) - 1 + awaited):
        close()
    return tokens


def _join_lines(raw: Iterable[Token]) -> Iterator[list[Token]]:
    """Lines that brackets hold together."""
    depth, line = 0, list[Token]()
    for token in raw:
        if token != "\n":
            line.append(token)
            depth += (token in _OPENERS) - (token in _CLOSERS)
        elif line and depth <= 0:
            yield line
            depth, line = 0, []
    if line:
        yield line


def _find_block_colon(tokens: Sequence[str]) -> int | None:
    """Where the header of a compound statement ends: at the end of the line, else at the first colon of its own."""
    depths = accumulate((token in _OPENERS) - (token in _CLOSERS) for token in tokens)
    colons = [at for at, (token, depth) in enumerate(zip(tokens, depths, strict=True)) if token == ":" and depth == 0]
    if not colons:
        return None
    return colons[-1] if tokens[-1] == ":" else colons[0]


def match_brackets(tokens: Sequence[str]) -> dict[int, int]:
    """The closing bracket of every opening one; if it is missing, the end."""
    found: dict[int, int] = {}
    stack: list[int] = []
    pending = dict.fromkeys(_OPENERS.values(), 0)
    for index, token in enumerate(tokens):
        if token in _OPENERS:
            stack.append(index)
            pending[_OPENERS[token]] += 1
        elif pending.get(token):
            while True:
                opener = stack.pop()
                pending[_OPENERS[tokens[opener]]] -= 1
                found[opener] = index
                if _OPENERS[tokens[opener]] == token:
                    break
    found.update(dict.fromkeys(stack, len(tokens)))
    return found


Tokens = Sequence[str]
Pairs = Mapping[int, int]

_LONGEST_VALUE = 80
"""Tokens of a value that a name is given."""
_LONGEST_RESULT = 300
"""Tokens after which no more names are replaced."""
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


def strip_brackets(tokens: Tokens) -> Tokens:
    """Without brackets around the whole."""
    while len(tokens) > 1 and tokens[0] == "(" and match_brackets(tokens).get(0) == len(tokens) - 1:
        tokens = tokens[1:-1]
    return tokens


def find_stop(tokens: Tokens, pairs: Pairs, index: int, stops: Collection[str] = (";", "}", ")", "]")) -> int:
    """Where a walk comes to a stop that steps over brackets, by default at the end of a statement."""
    while index < len(tokens) and tokens[index] not in stops:
        index = pairs.get(index, index) + 1
    return min(index, len(tokens))


def read_branch(tokens: Tokens, pairs: Pairs, index: int) -> Block | None:
    """The branch of an `if` or `elif`, with braces or a single statement."""
    if index and tokens[index - 1] not in _BEGINS:
        return None
    closing = pairs.get(index + 1, -1) if index + 1 < len(tokens) and tokens[index + 1] == "(" else -1
    if 0 < closing < len(tokens) - 1 and tokens[closing + 1] != "{" and not _OPERATES.match(tokens[closing + 1]):
        stop = find_stop(tokens, pairs, closing + 1)
        return Block(index, tokens[index + 2 : closing], tokens[closing + 1 : stop], closing)
    at, declares = index + 1, False
    while at < len(tokens) and tokens[at] != "{":
        declares = declares or tokens[at] in (":=", "let")
        if tokens[at] in ("}", ")") or (tokens[at] == ";" and not declares):
            return None
        at = pairs.get(at, at) + 1
    return Block(index, strip_brackets(tokens[index + 1 : at]), tokens[at + 1 : pairs.get(at, at)], at)


def find_branches(tokens: Tokens, pairs: Pairs) -> Iterator[Block]:
    """Every `if` with its condition and its block."""
    for index, token in enumerate(tokens):
        if token in ("if", "elif") and (block := read_branch(tokens, pairs, index)):
            yield block


def find_handlers(tokens: Tokens, pairs: Pairs) -> Iterator[Block]:
    """Every `except` and `catch` clause."""
    for index, token in enumerate(tokens):
        if token not in ("except", "catch") or (index and tokens[index - 1] == "."):
            continue
        at = find_stop(tokens, pairs, index + 1, ("{", ";", "}"))
        if at < len(tokens) and tokens[at] == "{":
            yield Block(index, strip_brackets(tokens[index + 1 : at]), tokens[at + 1 : pairs.get(at, at)], at)


def find_bindings(tokens: Tokens) -> list[tuple[int, str, Tokens]]:
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
            found.extend((index, name, value) for name, value in _read_binding(tokens, index))
    return [binding for binding in found if binding[1] not in changed]


def _read_binding(tokens: Tokens, index: int) -> Iterator[tuple[str, Tokens]]:
    stop, depth = index + 1, 0
    while stop < len(tokens) and stop - index < _LONGEST_VALUE:
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


def substitute_names(tokens: Tokens, names: Mapping[str, Tokens], depth: int = 3) -> list[str]:
    """The tokens with local names replaced by their values."""
    result: list[str] = []
    for index, token in enumerate(tokens):
        before = tokens[index - 1] if index else ""
        after = tokens[index + 1] if index + 1 < len(tokens) else ""
        value = names.get(token) if depth and before not in (".", "?.") and after not in ("=", "(") else None
        if value is None or token in value or len(result) > _LONGEST_RESULT:
            result.append(token)
        else:
            result.extend(substitute_names(value, names, depth - 1))
    return result
