"""Compile the user's criterion to checks: a sentence, or a YAML file of sentences and mappings.

A criterion consists of commands, numbers that they print, files, and phrases, joined by AND.
"""

import math
import os.path
import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ralph.core.checks import Check, Measure
from ralph.core.errors import NoCommandError, UsageError
from ralph.documents.yaml_codec import YamlDocument, YamlError, YamlRules, load
from ralph.verify import measures
from ralph.verify.rewrites import (
    EXITS,
    FORM,
    QUOTED,
    find_bare_command,
    reads_as_prose,
    suggest_for_verdict,
    suggest_rewrite,
)
from ralph.verify.toolchains import CheckKind, ResolvedPhrase, describe_search, find_commands, resolve_phrase

_SILENT = r"(?:prints nothing|has no output|is silent)".replace(" ", r"\s+")
_COMMAND = re.compile(rf"`([^`]+)`\s*(?:{EXITS}|({_SILENT}))?", re.IGNORECASE)
_REGEX = r"/(?:\\.|[^/\\])+/"
_TOKEN = re.compile(rf'`[^`]*`|"[^"]*"|(?<!\S){_REGEX}(?!\S)|(?<!\S)(AND|and)(?!\S)|(,)(?:\s+and)?(?=\s)', re.DOTALL)
_COMPARATORS = {
    ">=": (">=", "≥", "at least"),
    "<=": ("<=", "≤", "at most"),
    ">": (">", "above", "over", "more than", "greater than"),
    "<": ("<", "below", "under", "less than", "fewer than"),
    "==": ("==", "=", "exactly", "equals"),
}
_METRICS = {
    "coverage": r"(?:the )?(?:total |test |code |line )*coverage",
    "tests": r"tests(?: passed| passing)?|(?:passing|passed) tests",
    "failures": r"(?:test )?failures|(?:failing|failed) tests",
    "skipped": r"skipped(?: tests)?",
    "errors": r"errors",
    "warnings": r"warnings",
}
_NAME = "|".join(f"(?P<{name}>{form})" for name, form in _METRICS.items()).replace(" ", r"\s+")
_FROM = r"(?:\s+(?:from|of|in|by|with|using)\s+`(?P<command{}>[^`]+)`)?"
_BOUND = (
    rf"(?P<comparator>{'|'.join(word for words in _COMPARATORS.values() for word in words)})".replace(" ", r"\s+")
    + r"\s*(?P<target>-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)\s*(?P<unit>%|percent\b)?"
)
_MEASURE = re.compile(
    rf"(?:(?P<regex>{_REGEX})|{_NAME}){_FROM.format(1)}\s*(?:\b(?:is|are|be|of)\s+)?{_BOUND}{_FROM.format(2)}",
    re.IGNORECASE | re.DOTALL,
)
_MEASURE_AFTER = re.compile(rf"{_BOUND}\s*(?:{_NAME}){_FROM.format(1)}", re.IGNORECASE)
_FROM_BARE = re.compile(
    rf"(?P<metric>{_REGEX}|{_NAME})\s+(?P<from>from|of|in|by|with|using)\s+(?P<command>[^`]+?)\s+(?:(?:is|are)\s+)?{_BOUND}",
    re.IGNORECASE | re.DOTALL,
)
_BOUND_FIRST = re.compile(
    rf"(?P<metric>{_REGEX}|{_NAME})\s*(?:(?:is|are)\s+)?{_BOUND}\s+(?P<from>from|in|by|with|using)\s+(?P<command>[^`]+)",
    re.IGNORECASE | re.DOTALL,
)
"""Measures whose command has no backticks."""
_SILENT_END = re.compile(rf"(?P<command>[^`]+?)\s+{_SILENT}", re.IGNORECASE)
_EXISTS = re.compile(r"(?P<file>file\s+)?(?P<path>\S+)\s+exists", re.IGNORECASE)
_CONTAINS = re.compile(
    rf"(?:file\s+)?(?P<path>\S+)\s+contains\s+(?:(?P<regex>{_REGEX})|\"(?P<text>[^\"]+)\")", re.IGNORECASE | re.DOTALL
)
_CITES = re.compile(r"(?:file\s+)?(?P<path>\S+)\s+cites\s+lines\s+that\s+exist", re.IGNORECASE)
_EXPRESSION = re.compile(
    r"(?P<call>(?P<name>[A-Za-z_][\w.]*)\([^()`]*\))\s*(?:==|is|returns|equals)\s*(?P<value>[^`]+)"
)
"""What a function must return."""
_NO_FILE = frozenset(("file", "it", "output", "stdout", "stderr", "code"))


@dataclass(frozen=True)
class Criterion:
    """What must hold for the work to be done."""

    text: str
    """The canonical form, which compiles to the same checks."""
    checks: tuple[Check, ...]
    notes: tuple[str, ...] = ()
    """What the user should know of how it was understood."""


@dataclass(frozen=True)
class CriterionItem:
    """One criterion of a file."""

    location: str
    sentence: str
    timeout: float | None = None


@dataclass(frozen=True)
class _Scope:
    timeout: float
    root: Path


def compile_criterion(text: str, timeout: float, root: Path) -> Criterion:
    """The checks that a criterion asks for; text that nothing can verify is refused with a rewrite."""
    if not text.strip():
        raise _refuse("the criterion is empty: nothing could ever be verified", FORM)
    if "\0" in text:
        raise _refuse("the criterion contains a null byte", FORM)
    scope = _Scope(timeout, root)
    parts = _split(text, "AND")
    if not all(parts):
        rest = " AND ".join(part for part in parts if part)
        todo = f"write --until {shlex.quote(rest)}" if rest else FORM
        raise _refuse("a condition is missing before or after an AND", todo)
    return _join(_compile_part(part, scope) for part in parts)


def compile_named_commands(text: str, timeout: float, root: Path) -> tuple[Check, ...]:
    """The checks that a sentence of another author plainly names; none if only the user can judge it."""
    sentence = text.strip().rstrip(".;")
    if not sentence.startswith("`") and " from `" not in sentence:
        return ()
    try:
        return compile_criterion(sentence, timeout, root).checks
    except UsageError:
        return ()


def compile_yaml(text: str, name: str, timeout: float, root: Path) -> Criterion:
    """The checks that a file of criteria asks for; faults name the item and its line."""
    return _join(_compile_item(item, timeout, root) for item in read_criteria_file(text, name))


def _compile_item(item: CriterionItem, timeout: float, root: Path) -> Criterion:
    try:
        return compile_criterion(item.sentence, item.timeout or timeout, root)
    except UsageError as error:
        raise UsageError(error.what, where=item.location, todo=error.todo) from None


def _refuse(what: str, todo: str) -> UsageError:
    return UsageError(what, where="--until", todo=todo)


def _join(parts: Iterable[Criterion]) -> Criterion:
    found = list(parts)
    checks = tuple(check for part in found for check in part.checks)
    notes = dict.fromkeys(
        note for part in found for note in (*part.notes, *map(_warn_about_exit_code, part.checks)) if note
    )
    return Criterion(" AND ".join(check.title for check in checks), checks, tuple(notes))


def _make_criterion(check: Check, *notes: str) -> Criterion:
    return Criterion(check.title, (check,), notes)


def _split(text: str, joiner: str) -> list[str]:
    """The parts between joiners; one inside backticks, double quotes or a regular expression belongs to it."""
    parts, start = [], 0
    for match in _TOKEN.finditer(text):
        if match[1] == joiner or (match[2] and joiner == "and"):
            parts.append(text[start : match.start()])
            start = match.end()
    return [part.strip() for part in (*parts, text[start:])]


def _compile_part(part: str, scope: _Scope) -> Criterion:
    """One part, or several that are joined by a small `and` or a comma."""
    part = _add_backticks(part, scope)
    if match := _EXPRESSION.fullmatch(part):
        test = f'python3 -c "from MODULE import {match["name"]}; assert {match["call"]} == {match["value"]}"'
        todo = f"write it in the language of the program, for example --until {shlex.quote(f'`{test}` passes')}"
        raise _refuse(f"{_shorten(part)!r} is an expression, not a command", todo)
    found = _compile_command(part, scope) or _compile_measure(part, scope) or _compile_file(part, scope)
    if found:
        return found
    command = find_bare_command(part, scope.root)
    # `mypy . passes` names its command in full; `mypy passes` leaves the arguments to the repository.
    if not _has_arguments(command) and (found := _compile_phrase(part, scope)):
        return found
    if command and (rewrite := suggest_for_verdict(command, scope.root)):
        raise _refuse(f"{_shorten(part)!r} is a sentence, not a command", rewrite)
    pieces = _split(part, "and")
    if len(pieces) > 1 and not (pieces[0] and pieces[-1]):
        rest = " and ".join(piece for piece in pieces if piece)
        todo = f"write --until {shlex.quote(rest)}" if rest else FORM
        raise _refuse("a condition is missing before or after an `and`", todo)
    if len(pieces) > 1:
        try:
            return _join(_compile_part(piece, scope) for piece in _repeat_verdict(pieces))
        except UsageError:
            if not command:
                raise
    if command:
        return _make_criterion(Check(command, scope.timeout))
    raise _refuse(f"Ralph cannot verify {_shorten(part)!r} with a command", _suggest(part, scope))


def _repeat_verdict(pieces: list[str]) -> list[str]:
    """The pieces of `pytest, mypy and ruff pass`, each with its verdict."""
    *tools, last = pieces
    tools = [re.sub(r"^both\s+", "", tool) for tool in tools]
    if re.fullmatch(r"\S+\s+(?:all\s+|both\s+)?pass", last) and all(re.fullmatch(r"[\w-]+", tool) for tool in tools):
        return [*(f"{tool} passes" for tool in tools), f"{last.split()[0]} passes"]
    return pieces


def _suggest(part: str, scope: _Scope) -> str:
    def compiles(text: str) -> bool:
        try:
            _compile_part(text, scope)
        except UsageError:
            return False
        return True

    return suggest_rewrite(part, scope.root, compiles)


def _has_arguments(command: str) -> bool:
    """Whether a command names options, files or directories."""
    return any(word.startswith("-") or "." in word or "/" in word for word in command.split()[1:])


def _add_backticks(part: str, scope: _Scope) -> str:
    """The part with backticks around a command that stands before `prints nothing`, or in a measure, without any."""
    if match := _SILENT_END.fullmatch(part):
        rewritten = f"`{match['command']}` prints nothing"
    elif match := _FROM_BARE.fullmatch(part) or _BOUND_FIRST.fullmatch(part):
        bound = f"{match['comparator']} {match['target']}{match['unit'] or ''}"
        rewritten = f"{match['metric']} from `{match['command']}` {bound}"
    else:
        return part
    if find_bare_command(match["command"], scope.root):
        return rewritten
    words = match["command"].split()
    if len(words) < 2 or reads_as_prose(words) or _compile_phrase(part, scope):
        return part
    raise _refuse(
        f"{_shorten(match['command'])!r} is not a command that Ralph can find", f"write --until '{rewritten}'"
    )


def _compile_command(part: str, scope: _Scope) -> Criterion | None:
    match = _COMMAND.fullmatch(part)
    if not match or not match[1].strip():
        return None
    verdict_inside = re.fullmatch(rf"(.+?)\s+(?:passes|succeeds|{_SILENT})", match[1].strip(), re.DOTALL)
    if verdict_inside and find_bare_command(verdict_inside[1], scope.root):
        rest = match[1].strip()[len(verdict_inside[1]) :]
        todo = f"write --until {shlex.quote(f'`{verdict_inside[1]}`{rest}')}"
        raise _refuse(f"{_shorten(match[1])!r} is a sentence, not a command", todo)
    return _make_criterion(Check(match[1].strip(), scope.timeout, silent=match[2] is not None))


def _warn_about_exit_code(check: Check) -> str:
    """A note about a command that hides its exit code."""
    bare = QUOTED.sub("", check.command)
    if re.search(r"(?:\|\|\s*(?:true|:)|;\s*(?:true|:|exit 0))\s*$", bare):
        return (
            f"`{check.command}` always exits with 0: Ralph sees a failure in it only if the output counts failing tests"
        )
    if not check.silent and re.search(r"(?<!\|)\|(?![|&])", bare):
        last = [*bare.rsplit("|", 1)[1].split(), "its last command"][0]
        return f"`{check.command}` is a pipe: its exit code is that of {last}, so Ralph does not see an earlier failure"
    return ""


def _compile_measure(part: str, scope: _Scope) -> Criterion | None:
    match = _MEASURE.fullmatch(part) or _MEASURE_AFTER.fullmatch(part)
    if not match:
        return None
    groups = match.groupdict()
    command = next((found.strip() for name in ("command1", "command2") if (found := groups.get(name))), "")
    name = groups.get("regex") or next(name for name in _METRICS if groups[name])
    comparator = next(
        sign for sign, words in _COMPARATORS.items() if " ".join(groups["comparator"].lower().split()) in words
    )
    measure = _make_measure(name, comparator, float(groups["target"]), "%" if groups["unit"] else "")
    return _compile_measured(part, command, measure, scope)


def _make_measure(metric: str, comparator: str, target: float, unit: str) -> Measure:
    if not math.isfinite(target) or float(f"{target:g}") != target:
        raise _refuse("the number is too long", "use at most six digits")
    if metric.startswith("/"):
        metric = f"/{_check_expression(metric[1:-1])}/"
        if not measures.compile_pattern(metric[1:-1]).groups:
            example = r"/score: (\d+\.?\d*)/ from `make score` >= 8"
            raise _refuse(
                f"{metric} has no group that captures the number", f"put the number in parentheses: {example}"
            )
    elif metric == "coverage":
        unit = "%"
        if not 0 <= target <= 100 or (comparator, target) in ((">", 100), ("<", 0)):
            raise _refuse("coverage is a number from 0% to 100%", "write, for example, coverage >= 80%")
    elif unit:
        raise _refuse(f"{metric} is a count, not a percentage", f"write {metric} {comparator} {target:g}")
    return Measure(metric, comparator, target, unit)


def _compile_measured(part: str, command: str, measure: Measure, scope: _Scope) -> Criterion:
    fraction = f"`{measure.title}` is a percentage: for the fraction, write {measure.target * 100:g}%"
    notes = (fraction,) if measure.metric == "coverage" and 0 < measure.target <= 1 else ()
    if command:
        return _make_criterion(Check(command, scope.timeout, measure=measure), *notes)
    form = Check("COMMAND", measure=measure).title
    if measure.metric not in ("coverage", *measures.COUNTED):
        raise _refuse(f"{_shorten(part)!r} does not say which command prints the number", f"write --until '{form}'")
    kind = CheckKind.COVERAGE if measure.metric == "coverage" else CheckKind.TESTS
    found = find_commands(kind, scope.root)
    checks = [Check(one.command, scope.timeout, measure=measure) for one in found]
    return _compile_resolved(part, scope, ResolvedPhrase(kind, found), checks, form, *notes)


def _compile_file(part: str, scope: _Scope) -> Criterion | None:
    if match := _CONTAINS.fullmatch(part):
        _refuse_no_file(match["path"], part, scope)
        regex = match["regex"][1:-1] if match["regex"] else re.escape(match["text"])
        return _make_criterion(
            Check(timeout=scope.timeout, path=_normalize_path(match["path"]), pattern=_check_expression(regex))
        )
    if match := _CITES.fullmatch(part):
        return _make_criterion(Check(timeout=scope.timeout, path=_normalize_path(match["path"]), cites=True))
    match = _EXISTS.fullmatch(part)
    if not match:
        return None
    _refuse_no_file(match["path"], part, scope)
    path = _normalize_path(match["path"])
    if not match["file"] and not re.search(r"[./A-Z]", path) and not os.path.exists(scope.root / path):
        raise _refuse(f"{_shorten(part)!r} names no file", f"if it is one, write: file {path} exists; {FORM}")
    return _make_criterion(Check(timeout=scope.timeout, path=path))


def _refuse_no_file(path: str, part: str, scope: _Scope) -> None:
    if path.lower() in _NO_FILE and not os.path.isfile(scope.root / path):
        todo = "name the file: file README.md exists; for what a command prints: `COMMAND | grep -q TEXT` passes"
        raise _refuse(f"{_shorten(part)!r} names no file", todo)


def _normalize_path(text: str) -> str:
    """A path inside the workspace, in one spelling."""
    path = os.path.normpath(text.strip("\"'`"))
    if path.startswith(("/", "~")) or path in (".", "..") or path.startswith("../") or "\\" in path:
        fault, todo = "leads out of the workspace", "name a file inside it, for example: file docs/guide.md exists"
    elif text.endswith("/"):
        fault, todo = "is a directory", f"write `test -d {path}` passes"
    elif re.search(r"[\s*?`\"'\0-\x1f\x7f]", path):
        fault, todo = "has characters that Ralph does not support here", "write it as a command: `test -f NAME` passes"
    else:
        return path
    raise _refuse(f"the path {_shorten(text)!r} {fault}", todo)


def _check_expression(regex: str) -> str:
    """A regular expression that can stand between slashes."""
    try:
        measures.compile_pattern(regex)
    except ValueError as error:
        what = f"/{_shorten(regex)}/ is not a valid regular expression: {error}"
        raise _refuse(what, r"correct it; a backslash makes a character literal: \( \. \[") from error
    return escape_slashes(regex)


def _compile_phrase(part: str, scope: _Scope) -> Criterion | None:
    resolved = resolve_phrase(part, scope.root)
    if resolved is None:
        return None
    checks = [Check(one.command, scope.timeout) for one in resolved.found]
    return _compile_resolved(part, scope, resolved, checks, "`COMMAND` passes")


def _compile_resolved(
    part: str, scope: _Scope, resolved: ResolvedPhrase, checks: list[Check], form: str, *notes: str
) -> Criterion:
    """Checks that the repository has the commands for, with why."""
    if not resolved.found:
        searched = describe_search(resolved.kind, scope.root)
        what = f"{_shorten(part)!r}: Ralph found no command for it in this repository; it looked for {searched}"
        raise NoCommandError(what, where="--until", todo=f"write the command: --until '{form}'")
    means = " and ".join(f"{check.title} ({one.because})" for check, one in zip(checks, resolved.found, strict=True))
    return Criterion("", tuple(checks), (*notes, f"`{part}` means {means}"))


def _shorten(text: str) -> str:
    return text if len(text) <= 80 else text[:77] + "..."


_YAML_FORM = 'write a list of criteria, for example: - {run: "pytest --cov", metric: coverage, at_least: 80}'
_BOUNDS = {"at_least": ">=", "at_most": "<=", "above": ">", "below": "<", "equals": "=="}
_YAML_KEYS = ("run", "prints", "metric", *_BOUNDS, "file", "exists", "contains", "timeout")


def read_criteria_file(text: str, name: str) -> Iterator[CriterionItem]:
    """The criteria in a file, each as a sentence; faults name the item and its line."""
    document = _load_yaml(text, name)
    for number, item in enumerate(document.data):
        location = f"{name}, item {number + 1} (line {document.line_of([number])})"
        if isinstance(item, str):
            yield CriterionItem(location, item)
        elif isinstance(item, dict):
            yield CriterionItem(location, _compose_sentence(item, location), _read_timeout(item, location))
        else:
            raise UsageError(
                "an item is a sentence, or a mapping with `run:` or `file:`", where=location, todo=_YAML_FORM
            )


def _load_yaml(text: str, name: str) -> YamlDocument:
    try:
        document = load(text, YamlRules(allow_aliases=True))
    except YamlError as error:
        location = name if error.line is None else f"{name}, line {error.line}"
        raise UsageError(error.what, where=location, todo=_YAML_FORM) from error
    if not isinstance(document.data, list) or not document.data:
        raise UsageError("the file must contain a list of criteria", where=name, todo=_YAML_FORM)
    return document


def _compose_sentence(item: dict[str, Any], location: str) -> str:
    keys = {str(key) for key in item}
    if unknown := sorted(keys - set(_YAML_KEYS)):
        raise UsageError(
            f"unknown: {', '.join(unknown)}; known values: {', '.join(_YAML_KEYS)}", where=location, todo=_YAML_FORM
        )
    bounds = [key for key in _BOUNDS if key in keys]
    if "metric" in keys and len(bounds) == 1 and not keys - {"run", "metric", "timeout", *bounds}:
        source = f" from `{_read_text(item, 'run', location)}`" if "run" in keys else ""
        return f"{_read_text(item, 'metric', location)}{source} {_BOUNDS[bounds[0]]} {_read_number(item, bounds[0], location)}"
    if "run" in keys and not keys - {"run", "prints", "timeout"} and item.get("prints", "nothing") == "nothing":
        return f"`{_read_text(item, 'run', location)}` {'prints nothing' if 'prints' in keys else 'passes'}"
    if "file" in keys and not keys - {"file", "exists", "contains", "timeout"} and item.get("exists", True) is True:
        name = _read_text(item, "file", location)
        if len(name.split()) > 1:
            raise UsageError(
                "`file:` does not support names with spaces", where=location, todo=f'write {{run: test -f "{name}"}}'
            )
        return (
            f"file {name} contains /{escape_slashes(_read_text(item, 'contains', location))}/"
            if "contains" in keys
            else f"file {name} exists"
        )
    raise UsageError(
        f"{', '.join(sorted(keys)) or 'nothing'}: that does not say what to verify",
        where=location,
        todo=f"{_YAML_FORM}; {_YAML_FORMS}",
    )


_YAML_FORMS = (
    "or {run: COMMAND}, {run: COMMAND, prints: nothing}, {file: NAME, exists: true}, {file: NAME, contains: REGEX}"
)


def escape_slashes(regex: str) -> str:
    """A regular expression, as it is written between slashes."""
    return re.sub(r"\\.|/", lambda match: r"\/" if match[0] == "/" else match[0], regex, flags=re.DOTALL)


def _read_text(item: dict[str, Any], key: str, location: str) -> str:
    text = item[key]
    if not isinstance(text, str) or not text.strip() or "`" in text:
        todo = "put it in quotes; in a command, write $(...) for backticks"
        raise UsageError(f"`{key}:` must be text without backticks", where=location, todo=todo)
    return str(text).strip()


def _read_number(item: dict[str, Any], key: str, location: str) -> str:
    text = str(item[key]).strip()
    if isinstance(item[key], bool) or not re.fullmatch(r"-?\d+(?:\.\d+)?%?", text):
        raise UsageError(f"`{key}:` must be a number", where=location, todo=f"write, for example, {key}: 80")
    return text


def _read_timeout(item: dict[str, Any], location: str) -> float | None:
    value = item.get("timeout")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise UsageError(
            "`timeout:` must be a number of seconds", where=location, todo="write, for example, timeout: 300"
        )
    return float(value)
