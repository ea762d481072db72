"""Configuration files as flat settings, whatever their format."""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence

from ralph.verify.guards.lexer import lex, partners

Settings = dict[str, list[str]]

_DEEPEST = 30
_CONFIG = re.compile(
    r"(^|/)(pyproject\.toml|setup\.cfg|tox\.ini|pytest\.(ini|toml)|\.?pytest\.ini|\.coveragerc|mypy\.ini|\.mypy\.ini|\.flake8|\.?ruff\.toml|\.pylintrc|pylintrc|pyrightconfig\.json|"
    r"tsconfig[\w.-]*\.json|package\.json|\.eslintrc[\w.]*|eslint\.config\.\w+|(jest|vitest|vite|playwright|cypress|karma|ava|nyc)\.(config|conf)\.\w+|\.nycrc(\.json)?|\.c8rc(\.json)?|"
    r"biome\.jsonc?|\.golangci\.(ya?ml|toml)|\.?codecov\.ya?ml|pom\.xml|build\.gradle(\.kts)?|Cargo\.toml|clippy\.toml|\.mocharc[\w.]*|sonar-project\.properties|"
    r"\.pre-commit-config\.yaml|\.bandit|jest\.config\.json|deno\.jsonc?|\.stylelintrc[\w.]*|tslint\.json|checkstyle\.xml)$"
)


def is_config(path: str) -> bool:
    """Whether the file configures tests, linters, types, coverage or the build."""
    return bool(_CONFIG.search(path))


def settings_of(path: str, text: str) -> Settings:
    """The settings of a file, key paths to values; a file that cannot be read has none."""
    found: Settings = {}
    for key, value in _pairs(path.rsplit("/", 1)[-1], text.replace("\r\n", "\n")):
        found.setdefault(key, []).append(value.lower() if value in ("True", "False") else value)
    return found


def _pairs(name: str, text: str) -> Iterator[tuple[str, str]]:
    if name.endswith(".toml"):
        try:
            yield from _nested(tomllib.loads(text), "", 0)
        except (tomllib.TOMLDecodeError, RecursionError):
            return
    elif name.endswith(".xml"):
        yield from re.findall(r"<([\w.-]+)>\s*([^<]*?)\s*</\1>", text)
    elif re.search(r"\.gradle(\.kts)?$", name):
        yield from (
            (key, value.strip("\"' ")) for key, value in re.findall(r"(\w+)[ \t]*(?:=|\.set\()[ \t]*([^\n)]+)", text)
        )
    elif re.search(r"\.(ya?ml)$", name) or (
        name.startswith(".eslintrc") and not text.lstrip().startswith(("{", "/", "module"))
    ):
        yield from _yaml(text)
    elif re.search(r"\.(ini|cfg|properties)$|^\.(coveragerc|flake8|bandit|pylintrc)$|^pylintrc$", name):
        yield from _ini(text)
    else:
        tokens = lex(text, "js").tokens
        yield from _objects(tokens, partners(tokens), 0, len(tokens), "", 0)


def _nested(value: object, key: str, depth: int) -> Iterator[tuple[str, str]]:
    if depth > _DEEPEST:
        return
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _nested(inner, f"{key}.{name}" if key else str(name), depth + 1)
    elif isinstance(value, list):
        for inner in value:
            yield from _nested(inner, key, depth + 1)
    else:
        yield key, str(value).lower() if isinstance(value, bool) else str(value)


def _objects(
    tokens: Sequence[str], pairs: Mapping[int, int], start: int, stop: int, key: str, depth: int
) -> Iterator[tuple[str, str]]:
    """Object literals of JavaScript and JSON."""
    at = start
    while at < stop and depth < _DEEPEST:
        token = tokens[at]
        if token in ("{", "[", "("):
            closing = min(pairs.get(at, stop), stop)
            yield from _objects(tokens, pairs, at + 1, closing, key, depth + 1)
            at = closing + 1
        elif at + 1 < stop and tokens[at + 1] == ":" and (token[0].isalnum() or token[0] in '"_$'):
            end = _value_end(tokens, pairs, at + 2, stop)
            name = f"{key}.{token.strip(chr(34))}" if key else token.strip('"')
            if tokens[at + 2 : at + 3] and tokens[at + 2] in ("{", "["):
                yield from _objects(tokens, pairs, at + 2, end, name, depth + 1)
            else:
                yield name, " ".join(tokens[at + 2 : end]).strip('"')
            at = end
        else:
            if token[0] == '"' or token[0].isdigit():
                yield key, token.strip('"')
            at += 1


def _value_end(tokens: Sequence[str], pairs: Mapping[int, int], at: int, stop: int) -> int:
    while at < stop and tokens[at] not in (",", ";"):
        at = pairs.get(at, at) + 1
    return min(at, stop)


def _ini(text: str) -> Iterator[tuple[str, str]]:
    section = key = ""
    for line in text.splitlines():
        plain = re.sub(r"(^|\s)[#;].*", "", line).rstrip()
        if header := re.match(r"\[(.+)\]", plain):
            section, key = header[1], ""
        elif plain and plain[0].isspace() and key:
            yield from _listed(key, plain)
        elif setting := re.match(r"([\w.:-]+)\s*[=:]\s*(.*)", plain):
            key = f"{section}.{setting[1]}" if section else setting[1]
            yield from _listed(key, setting[2])


def _listed(key: str, value: str) -> Iterator[tuple[str, str]]:
    if re.search(r"(addopts|commands?)$", key):
        yield key, value.strip()
    else:
        yield from ((key, item) for item in re.split(r"[,\s]+", value.strip()) if item)


def _yaml(text: str) -> Iterator[tuple[str, str]]:
    """Block mappings and lists by their indentation; flow lists by their commas."""
    parents: list[tuple[int, str]] = []
    for line in text.splitlines():
        plain = re.sub(r"(^|\s)#.*", "", line).rstrip()
        if not plain.strip():
            continue
        body = plain.lstrip(" ")
        indent = len(plain) - len(body)
        while body.startswith("- "):
            indent, body = indent + 2, body[2:]
        while parents and parents[-1][0] >= indent:
            parents.pop()
        prefix = ".".join(name for _, name in parents)
        if setting := re.match(r"[\"']?([^\"':\s][^\"':]*)[\"']?:(?:\s+(.*))?$", body):
            parents.append((indent, setting[1]))
            key, body = f"{prefix}.{setting[1]}".lstrip("."), setting[2] or ""
        else:
            key = prefix
        values = body[1:-1].split(",") if body[:1] == "[" and body[-1:] == "]" else [body]
        yield from ((key, value.strip().strip("\"'")) for value in values if value.strip())
