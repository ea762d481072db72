"""What a failing check complains about: its failure set, and how many failures that is.

A loop compares failure sets to tell work that gets somewhere from work that does not. A set has the names of failing tests
and the lines that complain, without what differs between two runs on the same tree: line numbers, times, addresses, order.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable

from ralph.core.checks import Check, Counts, FailureSet
from ralph.core.fingerprints import normalised
from ralph.verify import measures

LONGEST = 300
"""Characters of a line that are read."""
MOST_LINES = 20_000
"""Lines of output that are read; the last ones, since summaries stand at the end."""
_ERROR_LINE = re.compile(
    r"\w\.\w{1,6}(?::\d|\(\d+[,)]|:\[\d+,)"  # a.py:3, a.ts(3,5), A.java:[3,5]
    r"|^\s*File \".+\", line \d"
    r"|\b[Ee]rror(?:\[\w{1,9}\]| TS\d{1,6})?:"
    r"|^\s*\d+:\d+\s+(?:error|warning)\s"  # eslint
    r"|^[A-Z]{1,5}\d{2,5}\s"  # ruff
    r"|^E\s+\S"  # pytest
    r"|\bpanicked at\b"
)
_COMPLAINT = re.compile(
    r"(?i)\b(?:error|fail|assert|exception|expected|received|panic|undefined|cannot|not ok|not found|missing)|[✕✗×]"
)
_DIRECTORIES = re.compile(r"(?:[\w.@+~-]*/)+")
_SUMMARY_LINE = re.compile(r"(?i)\b\d+ (?:failed|passed|errors?|warnings?|problems?)\b")
_STOPPED_EARLY = (
    re.compile(r"errors? prevented further checking"),  # mypy after a syntax error
    re.compile(r"error TS1\d{3}:"),  # tsc reports syntax errors alone
    re.compile(r"\[(?:build|setup) failed\]"),  # go test
    re.compile(r"Interrupted: \d+ errors? during collection|no tests ran"),  # pytest
)
"""How tools say that they stopped before they had looked at everything: then their count says nothing."""
_NOT_BUILT = re.compile(r"could not compile")
_RUNS_TESTS = re.compile(r"\b(?:test|nextest)\b")


def failure_set(check: Check, output: str, tests: Counts | None, value: float | None) -> FailureSet:
    """What a failed check complains about in plain output."""
    lines = [line[:LONGEST] for line in output.splitlines()[-MOST_LINES:] if line.strip()]
    names = measures.failing_tests(output)
    errors = [line for line in lines if _ERROR_LINE.search(line) and not _SUMMARY_LINE.search(line)]
    items = Counter([*names, *normalised("\n".join(errors)).splitlines()])
    if check.measure:
        distance = None if value is None else abs(value - check.measure.target)
        return FailureSet(distance, _digest(items))
    counts = not _stopped_early(check.command, output)
    told = _count_failures(output, tests, len(names)) if counts else None
    if items:
        count = told or (len(errors) if counts and errors else None)
        return FailureSet(count, _digest({**items, "failures": count or 0}))
    complaints = [line for line in lines if _COMPLAINT.search(_DIRECTORIES.sub("", line))]
    distinct = set(normalised("\n".join(complaints or lines)).splitlines())
    count = told or (len(distinct) if counts and complaints else None)
    return FailureSet(count, _digest(dict.fromkeys(distinct, count or 1)))


def _count_failures(output: str, tests: Counts | None, named: int) -> float | None:
    """How many failures the tool itself counts; None if it does not say."""
    if tests and tests.failed:
        return tests.failed
    if named:
        return named
    found = [measures.measured(metric, output) or 0.0 for metric in ("errors", "warnings")]
    return sum(found) or None


def _stopped_early(command: str, output: str) -> bool:
    """Whether the tool stopped before it had seen everything."""
    if _NOT_BUILT.search(output) and _RUNS_TESTS.search(command):
        return True
    return any(pattern.search(output) for pattern in _STOPPED_EARLY)


def _digest(items: dict[str, float] | Counter[str]) -> str:
    """A short name for the set, in whatever order the lines came; empty if there is nothing in it."""
    if not items:
        return ""
    lines: Iterable[str] = (f"{number:g} {line}" for line, number in items.items())
    return hashlib.sha256("\n".join(sorted(lines)).encode(errors="replace")).hexdigest()[:12]
