"""Source text as tokens, the same shape for every language.

Comments go aside, strings get one kind of quote, statements end in `;` and blocks stand in braces: where a
language says that by line ends (JavaScript, Go, Kotlin) or by indentation (Python), the tokens are put in. Python is
read by its layout and not by `ast`, so that one model serves all rules, and files with syntax newer than our own
interpreter's, or broken ones, are judged too. A token is a plain string; its first character tells its kind.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise

from ralph.core.patterns import regex

_DOUBLE, _SINGLE = r'"(?:\\[\s\S]|[^"\\\n])*"?', r"'(?:\\[\s\S]|[^'\\\n])*'?"
_TICKS = r"`(?:\\[\s\S]|[^`\\])*`?"
_TRIPLE = r'"""(?:\\[\s\S]|[^\\])*?(?:"""|\Z)'
_SLASHES = r"//[^\n]*|/\*[\s\S]*?(?:\*/|\Z)"
_REGEX = r"(?:(?<=[(,=:\[!&|?{};\n])|(?<=return))[ \t]*/(?![*/])(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n\[])+/[a-z]*"
_WORD = r"[^\W\d][\w$]*|\$[\w$]*"
_NUMBER = r"0[xXbBoO]\w+|\d[\d_]*(?:\.\d[\d_]*)?(?:[eE][+-]?\d+)?\w*"
_OPERATOR = r"===|!==|\.\.\.|\.\.=|==|!=|<=|>=|=>|->|:=|<-|&&|\|\||\?\?|\?\.|::|\+\+|--|[-+*/%&|^]=|\*\*|//|\.\.|\S"


def words(text: str) -> frozenset[str]:
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
_BLOCKS = words("if elif else for while try except finally with def class async match case")
_UNFINISHED = words("else do try finally const let var new in of case extends export import async await")
_GOES_ON = regex(r"[.)\],;:?=&|+*/%<>^]|->?$|else$|catch$|finally$|in$|instanceof$")
_ENDS = regex(r'[\w$")\]}]|\+\+|--')


class Token(str):
    """A token, with the line and the column where it stands."""

    __slots__ = ("column", "line")
    line: int
    column: int


def token_of(text: str, line: int, column: int = 0) -> Token:
    """A text as a token."""
    token = Token(text)
    token.line, token.column = line, column
    return token


Comments = list[tuple[int, str]]


def lex(text: str, language: str) -> tuple[list[Token], Comments]:
    """The tokens of a text, and its comments with their lines; what is no valid program gives tokens all the same."""
    comments: Comments = []
    raw = _raw(text.replace("\r\n", "\n"), language, comments)
    tokens = _indented(raw, comments) if language == "python" else _braced(raw, by_lines=language in ("js", "go"))
    # A comma before a closing bracket is layout.
    kept = [token for token, after in pairwise(tokens) if token != "," or after not in _CLOSERS]
    return kept + tokens[-1:], comments


def _raw(text: str, language: str, comments: Comments) -> Iterator[Token]:
    """Tokens, line ends among them."""
    line, begins = 1, 0
    for found in _GRAMMARS[language].finditer(text):
        kind, token = found.lastindex or 0, found[0]
        column = found.start() - begins
        if kind > 3:
            yield token_of(token, line, column)
            continue
        if kind == 2:
            comments.append((line, token))
        else:
            yield token_of(token if kind == 1 else _unquoted(token), line, column)
        inserted = _WORDS.findall(" ".join(_INSERTED.findall(token))) if kind == 3 and token[0] in "`fF" else None
        yield from (token_of(more, line) for more in ("%", "(", *inserted, ")")) if inserted else ()
        line, begins = line + token.count("\n"), max(begins, text.rfind("\n", found.start(), found.end()) + 1)


def _unquoted(token: str) -> str:
    quote = _QUOTES.match(token)
    if not quote:
        return '"' + token.strip().replace('"', "'") + '"'
    closing = quote[1] + "#" * token.count("#", 0, quote.end())
    body = token[quote.end() :].removesuffix(closing).replace('"', "'")
    return f'"{body}"'


def _braced(raw: Iterable[Token], *, by_lines: bool) -> list[Token]:
    tokens: list[Token] = []
    brackets = ["{"]
    new_line = False
    for token in raw:
        if token == "\n":
            new_line = by_lines
            continue
        if new_line and tokens and brackets[-1] == "{" and _ended(tokens[-1], token):
            tokens.append(token_of(";", token.line - 1))
        new_line = False
        if token in _OPENERS:
            brackets.append(token)
        elif token in _CLOSERS:
            brackets[1:] = brackets[1:-1]
            if token == "}" and tokens[-1:] == [";"]:
                tokens.pop()
        tokens.append(token)
    return tokens


def _ended(last: str, token: str) -> bool:
    if token == "{":
        return last in ("}", "]")
    return bool(_ENDS.match(last)) and last not in _UNFINISHED and not _GOES_ON.match(token)


def _indented(raw: Iterable[Token], comments: Comments) -> list[Token]:
    """Python's logical lines with their blocks in braces; a string by itself documents, as a comment does."""
    tokens: list[Token] = []
    indents = [0]
    awaited = False

    def close() -> None:
        while tokens[-1:] == [";"]:
            tokens.pop()
        tokens.append(token_of("}", tokens[-1].line if tokens else 1))

    for logical in _logical_lines(raw):
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
        colon = _block_colon(logical) if first in _BLOCKS else None
        awaited = colon == len(logical) - 1
        tokens += logical
        if colon is None:
            tokens.append(token_of(";", logical[-1].line))
        else:
            at = len(tokens) - len(logical) + colon
            tokens[at] = token_of("{", tokens[at].line)
            if not awaited:
                close()
    for _ in range(len(indents) - 1 + awaited):
        close()
    return tokens


def _logical_lines(raw: Iterable[Token]) -> Iterator[list[Token]]:
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


def _block_colon(tokens: Sequence[str]) -> int | None:
    """Where the header of a compound statement ends: at the end of the line, else at the first colon of its own."""
    depths = accumulate((token in _OPENERS) - (token in _CLOSERS) for token in tokens)
    colons = [at for at, (token, depth) in enumerate(zip(tokens, depths, strict=True)) if token == ":" and depth == 0]
    return colons[-1 if tokens[-1] == ":" else 0] if colons else None


def partners(tokens: Sequence[str]) -> dict[int, int]:
    """The closing bracket of every opening one; where it is missing, the end."""
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
