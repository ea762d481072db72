"""Criteria in a file: a YAML list of sentences, or of mappings that say the same."""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from ralph.core.errors import UsageError

DEEPEST = 20
_FORM = 'write a list of criteria, e.g. - {run: "pytest --cov", metric: coverage, at_least: 80}'
_BOUNDS = {"at_least": ">=", "at_most": "<=", "above": ">", "below": "<", "equals": "=="}
_KEYS = ("run", "prints", "metric", *_BOUNDS, "file", "exists", "contains", "timeout")


@dataclass(frozen=True)
class Item:
    """One criterion of a file."""

    where: str
    sentence: str
    timeout: float | None = None


def read(text: str, name: str) -> Iterator[Item]:
    """The criteria in a file, each as a sentence; faults name the item and its line."""
    data = _loaded(text, name)
    for number, item in enumerate(data):
        where = f"{name}, item {number + 1} (line {data.lc.item(number)[0] + 1})"
        if isinstance(item, str):
            yield Item(where, item)
        elif isinstance(item, CommentedMap):
            yield Item(where, _sentence(item, where), _timeout(item, where))
        else:
            raise UsageError("an item is a sentence, or a mapping with `run:` or `file:`", where=where, todo=_FORM)


def _loaded(text: str, name: str) -> CommentedSeq:
    try:
        yaml = YAML(typ="rt", pure=True)
        yaml.max_depth = DEEPEST
        data = yaml.load(text)
    except MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise UsageError(f"not readable as YAML: {error.problem}", where=f"{name}{line}", todo=_FORM) from error
    except (YAMLError, ArithmeticError, ValueError, TypeError, AttributeError, LookupError, RecursionError) as error:
        raise UsageError("not readable as YAML", where=name, todo=_FORM) from error
    if not isinstance(data, CommentedSeq) or not data:
        raise UsageError("the file must hold a list of criteria", where=name, todo=_FORM)
    return data


def _sentence(item: CommentedMap, where: str) -> str:
    keys = {str(key) for key in item}
    if unknown := sorted(keys - set(_KEYS)):
        raise UsageError(f"unknown: {', '.join(unknown)}; known are {', '.join(_KEYS)}", where=where, todo=_FORM)
    bounds = [key for key in _BOUNDS if key in keys]
    if "metric" in keys and len(bounds) == 1 and not keys - {"run", "metric", "timeout", *bounds}:
        source = f" from `{_text(item, 'run', where)}`" if "run" in keys else ""
        return f"{_text(item, 'metric', where)}{source} {_BOUNDS[bounds[0]]} {_number(item, bounds[0], where)}"
    if "run" in keys and not keys - {"run", "prints", "timeout"} and item.get("prints", "nothing") == "nothing":
        return f"`{_text(item, 'run', where)}` {'prints nothing' if 'prints' in keys else 'passes'}"
    if "file" in keys and not keys - {"file", "exists", "contains", "timeout"} and item.get("exists", True) is True:
        name = _text(item, "file", where)
        if len(name.split()) > 1:
            raise UsageError("a file with spaces in its name", where=where, todo=f'write {{run: test -f "{name}"}}')
        return (
            f"file {name} contains /{slashed(_text(item, 'contains', where))}/"
            if "contains" in keys
            else f"file {name} exists"
        )
    raise UsageError(
        f"{', '.join(sorted(keys)) or 'nothing'}: that does not say what to verify",
        where=where,
        todo=f"{_FORM}; {_FORMS}",
    )


_FORMS = "or {run: COMMAND}, {run: COMMAND, prints: nothing}, {file: NAME, exists: true}, {file: NAME, contains: REGEX}"


def slashed(regex: str) -> str:
    """A regular expression as it stands between slashes."""
    return re.sub(r"\\.|/", lambda match: r"\/" if match[0] == "/" else match[0], regex, flags=re.DOTALL)


def _text(item: CommentedMap, key: str, where: str) -> str:
    text = item[key]
    if not isinstance(text, str) or not text.strip() or "`" in text:
        todo = "put it in quotes; in a command, write $(...) for backticks"
        raise UsageError(f"`{key}:` must be text without backticks", where=where, todo=todo)
    return str(text).strip()


def _number(item: CommentedMap, key: str, where: str) -> str:
    text = str(item[key]).strip()
    if isinstance(item[key], bool) or not re.fullmatch(r"-?\d+(?:\.\d+)?%?", text):
        raise UsageError(f"`{key}:` must be a number", where=where, todo=f"write e.g. {key}: 80")
    return text


def _timeout(item: CommentedMap, where: str) -> float | None:
    value = item.get("timeout")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise UsageError("`timeout:` must be a number of seconds", where=where, todo="write e.g. timeout: 300")
    return float(value)
