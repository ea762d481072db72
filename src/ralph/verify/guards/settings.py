"""Configuration files as flat settings, whatever their format."""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from configparser import Error as ConfigError
from configparser import RawConfigParser

from ralph.documents.yaml_codec import YamlRules, load
from ralph.verify.guards.tokens import lex, match_brackets, split

Settings = dict[str, list[str]]

_DEEPEST = 30
_NO_SECTION = "no section"
"""Stands for a section in files that need none, such as sonar-project.properties. The parser refuses an empty name."""


def read_settings(path: str, text: str) -> Settings:
    """The settings of a file, key paths to values; a file that cannot be read has none."""
    found: Settings = {}
    for key, value in _read_pairs(path.rsplit("/", 1)[-1], text.replace("\r\n", "\n")):
        found.setdefault(key, []).append(value.lower() if value in ("True", "False") else value)
    return found


def _read_pairs(name: str, text: str) -> Iterator[tuple[str, str]]:
    try:
        if name.endswith(".toml"):
            yield from _flatten(tomllib.loads(text))
        elif name.endswith((".yml", ".yaml")):
            yield from _flatten(
                load(text, YamlRules(most_levels=_DEEPEST, size_limit=len(text), allow_aliases=True)).data
            )
        elif re.search(r"\.(ini|cfg|properties)$|^\.(coveragerc|flake8|bandit|pylintrc)$|^pylintrc$", name):
            yield from _read_ini(text if text.lstrip().startswith("[") else f"[{_NO_SECTION}]\n{text}")
        elif name.endswith("ignore"):
            yield from (("ignore", line) for line in map(str.strip, text.splitlines()) if line and line[0] != "#")
        elif name.endswith(".xml"):
            yield from re.findall(r"<([\w.-]+)>\s*([^<]*?)\s*</\1>", text)
        elif name.endswith((".gradle", ".gradle.kts")):
            found = re.findall(r"(\w+)[ \t]*(?:=|\.set\()[ \t]*([^\n)]+)", text)
            yield from ((key, value.strip("\"' ")) for key, value in found)
        else:
            yield from _read_objects(lex(text, "js")[0])
    except (tomllib.TOMLDecodeError, ConfigError, RecursionError, ValueError, AttributeError):
        # RawConfigParser raises AttributeError for an indented line after a key without a value.
        return


def _flatten(value: object, key: str = "", depth: int = 0) -> Iterator[tuple[str, str]]:
    if depth > _DEEPEST or value is None:
        return
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _flatten(inner, f"{key}.{name}" if key else str(name), depth + 1)
    elif isinstance(value, list):
        for inner in value:
            yield from _flatten(inner, key, depth + 1)
    else:
        yield key, str(value)


def _read_ini(text: str) -> Iterator[tuple[str, str]]:
    """Values are lists of words, those of commands whole lines."""
    parser = RawConfigParser(strict=False, allow_no_value=True, inline_comment_prefixes=("#", ";"), default_section="")
    parser.optionxform = str  # type: ignore[assignment,method-assign] # keys keep their case
    parser.read_string(text)
    for section in parser.sections():
        for name, value in parser.items(section):
            key = name if section == _NO_SECTION else f"{section}.{name}"
            by = r"\n" if re.search(r"(addopts|commands?)$", name) else r"[,\s]+"
            yield from ((key, item.strip()) for item in re.split(by, value or "") if item.strip())


def _read_objects(tokens: Sequence[str], key: str = "", depth: int = 0) -> Iterator[tuple[str, str]]:
    """Object literals of JavaScript and JSON."""
    for part in split(tokens, ",", ";") if depth < _DEEPEST else ():
        name, value, at = key, part, 0
        if len(part) > 2 and part[1] == ":" and (part[0][0].isalnum() or part[0][0] in '"_$'):
            name, value = f"{key}.{part[0].strip(chr(34))}".lstrip("."), part[2:]
            if value[0] not in ("{", "[") and "=" not in value:
                yield name, " ".join(value).strip('"')
                continue
        pairs = match_brackets(value)
        while at < len(value):
            if at in pairs:
                yield from _read_objects(value[at + 1 : pairs[at]], name, depth + 1)
            elif value[at][0] == '"' or value[at][0].isdigit():
                yield name, value[at].strip('"')
            at = pairs.get(at, at) + 1
