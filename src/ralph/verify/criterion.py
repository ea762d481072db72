"""The user's sentence, compiled to checks: commands, numbers that they print, files, and phrases, joined by AND."""

import math
import os.path
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ralph.core.checks import Check, Measure
from ralph.core.errors import NoCommandError, UsageError
from ralph.verify import criteria_file, measures, phrases
from ralph.verify.advice import FORM, advice
from ralph.verify.bare_commands import EXITS, QUOTED, bare_command, reads_as_prose
from ralph.verify.toolchains import Found, Kind, commands_for, sought

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
_NO_FILE = frozenset(("file", "it", "output", "stdout", "stderr", "code"))


@dataclass(frozen=True)
class Criterion:
    """What must hold for the work to be done."""

    text: str
    """The canonical form, which compiles to the same checks."""
    checks: tuple[Check, ...]
    notes: tuple[str, ...] = ()
    """What a person should know of how it was understood."""


@dataclass(frozen=True)
class _Scope:
    timeout: float
    root: Path


def compile_criterion(text: str, timeout: float, root: Path) -> Criterion:
    """The checks that a criterion asks for; text that nothing can verify is refused with a rewrite."""
    if not text.strip():
        raise _refused("the criterion is empty: nothing could ever be verified", FORM)
    if "\0" in text:
        raise _refused("the criterion has a null byte in it", FORM)
    scope = _Scope(timeout, root)
    return _joined(_part(part, scope) for part in _split(text, "AND"))


def commands_in(text: str, timeout: float, root: Path) -> tuple[Check, ...]:
    """The checks that a sentence plainly names, which others wrote; none where it is for a person to judge."""
    sentence = text.strip().rstrip(".;")
    if not sentence.startswith("`") and " from `" not in sentence:
        return ()
    try:
        return compile_criterion(sentence, timeout, root).checks
    except UsageError:
        return ()


def compile_yaml(text: str, name: str, timeout: float, root: Path) -> Criterion:
    """The checks that a file of criteria asks for; faults name the item and its line."""
    return _joined(_item(item, timeout, root) for item in criteria_file.read(text, name))


def _item(item: criteria_file.Item, timeout: float, root: Path) -> Criterion:
    try:
        return compile_criterion(item.sentence, item.timeout or timeout, root)
    except UsageError as error:
        raise UsageError(error.what, where=item.where, todo=error.todo) from None


def _refused(what: str, todo: str) -> UsageError:
    return UsageError(what, where="--until", todo=todo)


def _joined(parts: Iterable[Criterion]) -> Criterion:
    found = list(parts)
    checks = tuple(check for part in found for check in part.checks)
    notes = dict.fromkeys(note for part in found for note in (*part.notes, *map(_hidden, part.checks)) if note)
    return Criterion(" AND ".join(check.title for check in checks), checks, tuple(notes))


def _of(check: Check, *notes: str) -> Criterion:
    return Criterion(check.title, (check,), notes)


def _split(text: str, joiner: str) -> list[str]:
    """The parts between joiners; one inside backticks, double quotes or a regular expression belongs to it."""
    parts, start = [], 0
    for match in _TOKEN.finditer(text):
        if match[1] == joiner or (match[2] and joiner == "and"):
            parts.append(text[start : match.start()])
            start = match.end()
    return [part.strip() for part in (*parts, text[start:])]


def _part(part: str, scope: _Scope) -> Criterion:
    """One part; where it is several joined by a small `and` or a comma, all of those."""
    part = _add_backticks(part, scope)
    if found := _command(part, scope) or _measure(part, scope) or _file(part, scope) or _phrase(part, scope):
        return found
    command = bare_command(part, scope.root)
    pieces = _split(part, "and")
    if len(pieces) > 1:
        try:
            return _joined(_part(piece, scope) for piece in pieces)
        except UsageError:
            if not command:
                raise
    if command:
        return _of(Check(command, scope.timeout))
    raise _refused(f"{_short(part)!r} cannot be verified by running it", advice(part, scope.root))


def _add_backticks(part: str, scope: _Scope) -> str:
    """The part with backticks around a command that stands before `prints nothing`, or in a measure, without any."""
    if match := _SILENT_END.fullmatch(part):
        rewritten = f"`{match['command']}` prints nothing"
    elif match := _FROM_BARE.fullmatch(part) or _BOUND_FIRST.fullmatch(part):
        bound = f"{match['comparator']} {match['target']}{match['unit'] or ''}"
        rewritten = f"{match['metric']} from `{match['command']}` {bound}"
    else:
        return part
    if bare_command(match["command"], scope.root):
        return rewritten
    words = match["command"].split()
    if len(words) < 2 or reads_as_prose(words) or _phrase(part, scope):
        return part
    raise _refused(f"{_short(match['command'])!r} is not a command that Ralph finds", f"write --until '{rewritten}'")


def _command(part: str, scope: _Scope) -> Criterion | None:
    match = _COMMAND.fullmatch(part)
    if not match or not match[1].strip():
        return None
    return _of(Check(match[1].strip(), scope.timeout, silent=match[2] is not None))


def _hidden(check: Check) -> str:
    """What a command does to its exit code, where that counts."""
    bare = QUOTED.sub("", check.command)
    if re.search(r"(?:\|\|\s*(?:true|:)|;\s*(?:true|:|exit 0))\s*$", bare):
        return (
            f"`{check.command}` always exits with 0: Ralph sees a failure in it only if the output counts failing tests"
        )
    if not check.silent and re.search(r"(?<!\|)\|(?![|&])", bare):
        last = [*bare.rsplit("|", 1)[1].split(), "its last command"][0]
        return f"`{check.command}` is a pipe: the exit code is that of {last}, a failure before it is not seen"
    return ""


def _measure(part: str, scope: _Scope) -> Criterion | None:
    match = _MEASURE.fullmatch(part) or _MEASURE_AFTER.fullmatch(part)
    if not match:
        return None
    groups = match.groupdict()
    command = next((found.strip() for name in ("command1", "command2") if (found := groups.get(name))), "")
    name = groups.get("regex") or next(name for name in _METRICS if groups[name])
    comparator = next(
        sign for sign, words in _COMPARATORS.items() if " ".join(groups["comparator"].lower().split()) in words
    )
    measure = _compared(name, comparator, float(groups["target"]), "%" if groups["unit"] else "")
    return _measured(part, command, measure, scope)


def _compared(metric: str, comparator: str, target: float, unit: str) -> Measure:
    if not math.isfinite(target) or float(f"{target:g}") != target:
        raise _refused("the number is too long", "use at most six digits")
    if metric.startswith("/"):
        metric = f"/{_expression(metric[1:-1])}/"
        if not measures.pattern(metric[1:-1]).groups:
            example = r"/score: (\d+\.?\d*)/ from `make score` >= 8"
            raise _refused(f"{metric} has no group that holds the number", f"put the number in parentheses: {example}")
    elif metric == "coverage":
        unit = "%"
        if not 0 <= target <= 100 or (comparator, target) in ((">", 100), ("<", 0)):
            raise _refused("coverage lies between 0% and 100%", "write e.g. coverage >= 80%")
    elif unit:
        raise _refused(f"{metric} is a count, not a percentage", f"write {metric} {comparator} {target:g}")
    return Measure(metric, comparator, target, unit)


def _measured(part: str, command: str, measure: Measure, scope: _Scope) -> Criterion:
    fraction = f"`{measure.title}` is a percentage: for the fraction, write {measure.target * 100:g}%"
    notes = (fraction,) if measure.metric == "coverage" and 0 < measure.target <= 1 else ()
    if command:
        return _of(Check(command, scope.timeout, measure=measure), *notes)
    form = Check("COMMAND", measure=measure).title
    if measure.metric not in ("coverage", *measures.COUNTED):
        raise _refused(f"{_short(part)!r} does not say which command prints the number", f"write --until '{form}'")
    kind = Kind.COVERAGE if measure.metric == "coverage" else Kind.TESTS
    found = commands_for(kind, scope.root)
    checks = [Check(one.command, scope.timeout, measure=measure) for one in found]
    return _resolved(part, kind, found, checks, form, *notes)


def _file(part: str, scope: _Scope) -> Criterion | None:
    if match := _CONTAINS.fullmatch(part):
        _refuse_no_file(match["path"], part, scope)
        regex = match["regex"][1:-1] if match["regex"] else re.escape(match["text"])
        return _of(Check(timeout=scope.timeout, path=_path(match["path"]), pattern=_expression(regex)))
    if match := _CITES.fullmatch(part):
        return _of(Check(timeout=scope.timeout, path=_path(match["path"]), cites=True))
    match = _EXISTS.fullmatch(part)
    if not match:
        return None
    _refuse_no_file(match["path"], part, scope)
    path = _path(match["path"])
    if not match["file"] and not re.search(r"[./A-Z]", path) and not os.path.exists(scope.root / path):
        raise _refused(f"{_short(part)!r} names no file", f"if it is one, write: file {path} exists; {FORM}")
    return _of(Check(timeout=scope.timeout, path=path))


def _refuse_no_file(path: str, part: str, scope: _Scope) -> None:
    if path.lower() in _NO_FILE and not os.path.isfile(scope.root / path):
        todo = "name the file: file README.md exists; for what a command prints: `COMMAND | grep -q TEXT` passes"
        raise _refused(f"{_short(part)!r} names no file", todo)


def _path(text: str) -> str:
    """A path inside the workspace, in one spelling."""
    path = os.path.normpath(text.strip("\"'`"))
    if path.startswith(("/", "~")) or path in (".", "..") or path.startswith("../") or "\\" in path:
        fault, todo = "leads out of the workspace", "name a file inside of it, e.g. file docs/guide.md exists"
    elif text.endswith("/"):
        fault, todo = "is a directory", f"write `test -d {path}` passes"
    elif re.search(r"[\s*?`\"'\0-\x1f\x7f]", path):
        fault, todo = "has characters that are not understood here", "write it as a command: `test -f NAME` passes"
    else:
        return path
    raise _refused(f"the path {_short(text)!r} {fault}", todo)


def _expression(regex: str) -> str:
    """A regular expression that can stand between slashes."""
    try:
        measures.pattern(regex)
    except ValueError as error:
        what = f"/{_short(regex)}/ is no regular expression: {error}"
        raise _refused(what, r"correct it; a backslash makes a sign literal: \( \. \[") from error
    return criteria_file.slashed(regex)


def _phrase(part: str, scope: _Scope) -> Criterion | None:
    resolved = phrases.resolve(part, scope.root)
    if resolved is None:
        return None
    checks = [Check(one.command, scope.timeout) for one in resolved.found]
    return _resolved(part, resolved.kind, resolved.found, checks, "`COMMAND` passes")


def _resolved(
    part: str, kind: Kind, found: tuple[Found, ...], checks: list[Check], form: str, *notes: str
) -> Criterion:
    """Checks that the repository has the commands for, with why."""
    if not found:
        what = f"{_short(part)!r}: this repository shows no command for it; looked for {sought(kind)}"
        raise NoCommandError(what, where="--until", todo=f"write the command: --until '{form}'")
    means = " and ".join(f"{check.title} ({one.because})" for check, one in zip(checks, found, strict=True))
    return Criterion("", tuple(checks), (*notes, f"`{part}` means {means}"))


def _short(text: str) -> str:
    return text if len(text) <= 80 else text[:77] + "..."
