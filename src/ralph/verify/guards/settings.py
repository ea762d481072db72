"""Configuration files as flat settings, whatever their format."""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from configparser import Error as ConfigError
from configparser import RawConfigParser

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from ralph.verify.guards.lexer import lex, partners
from ralph.verify.guards.syntax import split

Settings = dict[str, list[str]]

_DEEPEST = 30


def settings_of(path: str, text: str) -> Settings:
    """The settings of a file, key paths to values; a file that cannot be read has none."""
    found: Settings = {}
    for key, value in _pairs(path.rsplit("/", 1)[-1], text.replace("\r\n", "\n")):
        found.setdefault(key, []).append(value.lower() if value in ("True", "False") else value)
    return found


def _pairs(name: str, text: str) -> Iterator[tuple[str, str]]:
    try:
        if name.endswith(".toml"):
            yield from _nested(tomllib.loads(text))
        elif name.endswith((".yml", ".yaml")):
            yield from _nested(YAML(typ="safe", pure=True).load(text))
        elif re.search(r"\.(ini|cfg|properties)$|^\.(coveragerc|flake8|bandit|pylintrc)$|^pylintrc$", name):
            yield from _ini(text if text.lstrip().startswith("[") else f"[]\n{text}")
        elif name.endswith("ignore"):
            yield from (("ignore", line) for line in map(str.strip, text.splitlines()) if line and line[0] != "#")
        elif name.endswith(".xml"):
            yield from re.findall(r"<([\w.-]+)>\s*([^<]*?)\s*</\1>", text)
        elif name.endswith((".gradle", ".gradle.kts")):
            found = re.findall(r"(\w+)[ \t]*(?:=|\.set\()[ \t]*([^\n)]+)", text)
            yield from ((key, value.strip("\"' ")) for key, value in found)
        else:
            yield from _objects(lex(text, "js")[0])
    except (tomllib.TOMLDecodeError, YAMLError, ConfigError, RecursionError, ValueError):
        return


def _nested(value: object, key: str = "", depth: int = 0) -> Iterator[tuple[str, str]]:
    if depth > _DEEPEST or value is None:
        return
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _nested(inner, f"{key}.{name}" if key else str(name), depth + 1)
    elif isinstance(value, list):
        for inner in value:
            yield from _nested(inner, key, depth + 1)
    else:
        yield key, str(value)


def _ini(text: str) -> Iterator[tuple[str, str]]:
    """Values are lists of words, those of commands whole lines."""
    parser = RawConfigParser(strict=False, allow_no_value=True, inline_comment_prefixes=("#", ";"), default_section="")
    parser.optionxform = str  # type: ignore[assignment,method-assign] # keys keep their case
    parser.read_string(text)
    for section in parser.sections():
        for name, value in parser.items(section):
            by = r"\n" if re.search(r"(addopts|commands?)$", name) else r"[,\s]+"
            yield from ((f"{section}.{name}", item.strip()) for item in re.split(by, value or "") if item.strip())


def _objects(tokens: Sequence[str], key: str = "", depth: int = 0) -> Iterator[tuple[str, str]]:
    """Object literals of JavaScript and JSON."""
    for part in split(tokens, ",", ";") if depth < _DEEPEST else ():
        name, value, at = key, part, 0
        if len(part) > 2 and part[1] == ":" and (part[0][0].isalnum() or part[0][0] in '"_$'):
            name, value = f"{key}.{part[0].strip(chr(34))}".lstrip("."), part[2:]
            if value[0] not in ("{", "[") and "=" not in value:
                yield name, " ".join(value).strip('"')
                continue
        pairs = partners(value)
        while at < len(value):
            if at in pairs:
                yield from _objects(value[at + 1 : pairs[at]], name, depth + 1)
            elif value[at][0] == '"' or value[at][0].isdigit():
                yield name, value[at].strip('"')
            at = pairs.get(at, at) + 1
