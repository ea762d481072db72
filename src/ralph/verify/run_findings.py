"""Findings that need no reading of code: fewer tests than before, files out of scope, checks that are not what they were."""

import hashlib
import os
import re
import shlex
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from ralph.core.checks import Check, Verdict
from ralph.core.findings import Finding, Rule, Severity
from ralph.verify.guards.changes import FileChange
from ralph.verify.judge_files import is_test_path

_DECLARES = re.compile(
    r"^\s*(?:async )?def test|\b(?:it|test|specify)(?:\.\w+)*\s*\(|^func (?:Test|Fuzz|Example)\w*\("
    r"|@(?:Parameterized)?Test\b|#\[(?:\w+::)?test",
    re.MULTILINE,
)
_GLOB_TOKEN = re.compile(r"\*\*/|\*\*|\*|\?|\[[^]]+\]|.", re.DOTALL)
_MEANING = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
LARGEST = 32 * 1024 * 1024
_TOOL_DIRECTORIES = frozenset((".venv", "venv", "node_modules", ".tox", ".nox", "vendor"))
_SHELL_SCRIPT = re.compile(rb"#!.*\b(?:ba|da|z)?sh\b")


def find_fewer_tests(before: Verdict | None, now: Verdict, changes: Sequence[FileChange]) -> list[Finding]:
    """A finding for every check that ran fewer tests than before the run.

    Where the changed test files hold fewer tests themselves, reading them judges better than counting does: then it only warns.
    """
    if before is None:
        return []
    tests = [change for change in changes if is_test_path(change.path)]
    explained = sum(map(_count_declared, (c.new for c in tests))) < sum(map(_count_declared, (c.old for c in tests)))
    known = {result.title: result for result in before.results}
    pairs = [(known[new.title], new) for new in now.results if new.title in known]
    return [
        Finding(
            Rule.FEWER_TESTS,
            new.title,
            0,
            f"{new.tests.ran} tests ran, and {old.tests.ran} before the run: some are not run any more.",
            Severity.WARNING if explained else Severity.ERROR,
        )
        for old, new in pairs
        if old.tests and new.tests and new.tests.ran < old.tests.ran
    ]


def _count_declared(text: str | None) -> int:
    return len(_DECLARES.findall(text or ""))


def find_out_of_scope(scope: Sequence[str], paths: Iterable[str]) -> list[Finding]:
    """A finding for every file that was changed and may not be."""
    if not scope:
        return []
    allowed = ", ".join(scope)
    return [
        Finding(Rule.OUT_OF_SCOPE, path, 1, f"{path} was changed, and only {allowed} may be: take that change back.")
        for path in sorted(paths)
        if not any(compile_glob(glob).fullmatch(path) for glob in scope)
    ]


@cache
def compile_glob(glob: str) -> re.Pattern[str]:
    """A pattern as a regular expression: one without a slash matches at any depth, one that names a directory all below."""
    plain = glob.removeprefix("./").strip("/")
    anywhere = "" if "/" in glob.removeprefix("./").rstrip("/") else "(?:.*/)?"
    pattern = f"{anywhere}{''.join(map(_translate_token, _GLOB_TOKEN.findall(plain)))}(?:/.*)?"
    try:
        return re.compile(pattern, re.DOTALL)
    except re.error:
        return re.compile(f"{anywhere}{re.escape(plain)}(?:/.*)?", re.DOTALL)


def _translate_token(token: str) -> str:
    if token in _MEANING:
        return _MEANING[token]
    if token[0] != "[" or len(token) == 1:
        return re.escape(token)
    inner = token[1:-1]
    kind = "^" if inner[0] in "!^" and len(inner) > 1 else ""
    ranged = re.sub(r"(\w)\\-(\w)", r"\1-\2", re.escape(inner[len(kind) :]))
    return f"[{kind}{ranged}]"


def hash_inputs(checks: Iterable[Check], workspace: Path) -> dict[str, str]:
    """The hash of every file that a check names or starts: in the workspace, or anywhere by its path."""
    files = {file for check in checks for file in _files(check.command, workspace)}
    return {str(file): _hash(file) for file in sorted(files)}


def find_changed_inputs(before: Mapping[str, str], judged: Collection[str]) -> list[Finding]:
    """A finding for every one of them that is not what it was; those among the `judged` changes were looked at more closely."""
    return [
        Finding(
            Rule.VERIFIER_EDITED,
            path,
            1,
            f"{path}, which a check uses, is not what it was before the run: put it back as it was.",
        )
        for path, known in before.items()
        if not any(path.endswith(f"/{other}") for other in judged) and _hash(Path(path)) != known
    ]


def _files(command: str, workspace: Path) -> Iterator[Path]:
    for word in _words(command):
        candidate = Path(os.path.normpath(workspace / word))
        found = candidate if "/" in word or candidate.is_file() else Path(shutil.which(word) or "/nowhere")
        if found.is_file() and (_is_tool(found, workspace) if found.is_relative_to(workspace) else "/" in word):
            yield found


def _is_tool(file: Path, workspace: Path) -> bool:
    """Whether a file of the workspace is there to check the work; what the work itself builds is not."""
    inside = file.relative_to(workspace).parts
    if _TOOL_DIRECTORIES.intersection(inside[:-1]):
        return True
    with file.open("rb") as content:
        return bool(_SHELL_SCRIPT.match(content.readline(200)))


def _words(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError:
        words = command.split()
    return [part for word in words for part in re.split(r"[;&|()<>=]+", word) if part]


def _hash(path: Path) -> str:
    try:
        if path.stat().st_size > LARGEST:
            return f"size {path.stat().st_size}"
        return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    except OSError:
        return "absent"
