"""Source text as tokens, the same shape for every language.

Comments go aside, strings get one kind of quote, statements end in `;` and blocks stand in braces: where a
language says that by line ends (JavaScript, Go, Kotlin) or by indentation (Python), the tokens are put in. Python is
read by its layout and not by `ast`, so that one model serves all rules, and files with syntax newer than our own
interpreter's, or broken ones, are judged too. A token is a plain string; its first character tells its kind.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

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
    return re.compile(rf"(\n)|({comments})|({'|'.join(strings)})|({_NUMBER}|{_WORD}|{_OPERATOR})")


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
_INSERTED = re.compile(r"\{([^{}]+)\}")
_WORDS = re.compile(_WORD)
_QUOTES = re.compile(r"""\A[a-zA-Z]{0,2}#*("{3}|'{3}|["'`])""")
_OPENERS = {"(": ")", "[": "]", "{": "}"}
_CLOSERS = frozenset(_OPENERS.values())
_BLOCKS = words("if elif else for while try except finally with def class async match case")
_UNFINISHED = words("else do try finally const let var new in of case extends export import async await")
_GOES_ON = re.compile(r"[.)\],;:?=&|+*/%<>^]|->?$|else$|catch$|finally$|in$|instanceof$")
_ENDS = re.compile(r'[\w$")\]}]|\+\+|--')


@dataclass(frozen=True)
class Code:
    """The tokens of a text with the line of each, and its comments."""

    tokens: list[str]
    lines: list[int]
    comments: list[tuple[int, str]]


def lex(text: str, language: str) -> Code:
    """Read a text; what is no valid program gives tokens all the same."""
    comments: list[tuple[int, str]] = []
    raw, lines, indents = _raw(text.replace("\r\n", "\n"), language, comments)
    if language == "python":
        return Code(*_indented(raw, lines, indents, comments), comments)
    return Code(*_braced(raw, lines, by_lines=language in ("js", "go")), comments)


def _raw(text: str, language: str, comments: list[tuple[int, str]]) -> tuple[list[str], list[int], dict[int, int]]:
    """Tokens with their lines, line ends among them, and the columns of tokens that begin a line."""
    tokens: list[str] = []
    lines: list[int] = []
    columns: dict[int, int] = {0: 0}
    line, fresh = 1, True
    for found in _GRAMMARS[language].finditer(text):
        kind, token = found.lastindex, found[0]
        if kind == 1:
            tokens.append("\n")
            lines.append(line)
            line, fresh = line + 1, True
            continue
        if kind == 2:
            comments.append((line, token))
            line += token.count("\n")
            continue
        if fresh:
            columns[len(tokens)] = found.start() - text.rfind("\n", 0, found.start()) - 1
            fresh = False
        if kind == 3:
            plain = _unquoted(token)
            inserted = _WORDS.findall(" ".join(_INSERTED.findall(token))) if token[0] in "`fF" else None
            more = [plain, "%", "(", *inserted, ")"] if inserted else [plain]
            tokens += more
            lines += [line] * len(more)
            line += token.count("\n")
            continue
        if token in _CLOSERS:
            _drop_comma(tokens, lines)
        tokens.append(token)
        lines.append(line)
    return tokens, lines, columns


def _drop_comma(tokens: list[str], lines: list[int]) -> None:
    """A comma before a closing bracket is layout."""
    at = len(tokens) - 1
    while at >= 0 and tokens[at] == "\n":
        at -= 1
    if at >= 0 and tokens[at] == ",":
        del tokens[at], lines[at]


def _unquoted(token: str) -> str:
    quote = _QUOTES.match(token)
    if not quote:
        return '"' + token.strip().replace('"', "'") + '"'
    closing = quote[1] + "#" * token.count("#", 0, quote.end())
    body = token[quote.end() :].removesuffix(closing).replace('"', "'")
    return f'"{body}"'


def _braced(raw: list[str], raw_lines: list[int], *, by_lines: bool) -> tuple[list[str], list[int]]:
    tokens: list[str] = []
    lines: list[int] = []
    brackets: list[str] = ["{"]
    last, new_line = ";", False
    for token, line in zip(raw, raw_lines, strict=True):
        if token == "\n":
            new_line = by_lines
            continue
        if new_line and brackets[-1] == "{" and _ended(last, token):
            tokens.append(";")
            lines.append(line - 1)
        new_line = False
        if token in _OPENERS:
            brackets.append(token)
        elif token in _CLOSERS:
            if len(brackets) > 1:
                brackets.pop()
            if token == "}" and tokens and tokens[-1] == ";":
                tokens.pop()
                lines.pop()
        last = token
        tokens.append(token)
        lines.append(line)
    return tokens, lines


def _ended(last: str, token: str) -> bool:
    if token == "{":
        return last in ("}", "]")
    return bool(_ENDS.match(last)) and last not in _UNFINISHED and not _GOES_ON.match(token)


def _indented(
    raw: list[str], raw_lines: list[int], columns: dict[int, int], comments: list[tuple[int, str]]
) -> tuple[list[str], list[int]]:
    """Python's logical lines with their blocks in braces; a string by itself documents, as a comment does."""
    tokens: list[str] = []
    lines: list[int] = []
    indents = [0]
    awaited = False

    def close() -> None:
        while tokens and tokens[-1] == ";":
            tokens.pop()
            lines.pop()
        tokens.append("}")
        lines.append(lines[-1] if lines else 1)

    for start, stop in _logical_lines(raw):
        first, at, column = raw[start], raw_lines[start], columns.get(start, 0)
        if stop - start == 1 and first[0] == '"':
            comments.append((at, first))
            continue
        if awaited and column > indents[-1]:
            indents.append(column)
        elif awaited:
            close()
        while len(indents) > 1 and column < indents[-1]:
            indents.pop()
            close()
        logical, where = raw[start:stop], raw_lines[start:stop]
        if "\n" in logical:
            where = [line for token, line in zip(logical, where, strict=True) if token != "\n"]
            logical = [token for token in logical if token != "\n"]
        colon = _block_colon(logical) if first in _BLOCKS else None
        awaited = colon == len(logical) - 1
        if colon is not None:
            logical[colon] = "{"
        tokens += logical
        lines += where
        if colon is None:
            tokens.append(";")
            lines.append(where[-1])
        elif not awaited:
            close()
    for _ in range(len(indents) - 1 + awaited):
        close()
    return tokens, lines


def _logical_lines(raw: list[str]) -> Iterator[tuple[int, int]]:
    """Where lines begin and end that brackets hold together."""
    depth, start = 0, -1
    for index, token in enumerate(raw):
        if token == "\n":
            if start >= 0 and depth <= 0:
                yield start, index
                start, depth = -1, 0
            continue
        if start < 0:
            start = index
        if token in _OPENERS:
            depth += 1
        elif token in _CLOSERS:
            depth -= 1
    if start >= 0:
        yield start, len(raw)


def _block_colon(tokens: list[str]) -> int | None:
    """Where the header of a compound statement ends."""
    depth = lambdas = 0
    for index, token in enumerate(tokens):
        if token in _OPENERS:
            depth += 1
        elif token in _CLOSERS:
            depth -= 1
        elif token == "lambda":
            lambdas += 1
        elif token == ":" and depth == 0:
            if not lambdas:
                return index
            lambdas -= 1
    return None


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
