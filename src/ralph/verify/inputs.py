"""What the checks are made of: scripts and programs that they start. Those that no snapshot holds are known by their hashes."""

import hashlib
import os
import re
import shlex
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from ralph.core.checks import Check
from ralph.core.findings import Finding, Rule

LARGEST = 32 * 1024 * 1024
_TOOLS = frozenset((".venv", "venv", "node_modules", ".tox", ".nox", "vendor"))
_SHELL = re.compile(rb"#!.*\b(?:ba|da|z)?sh\b")


def input_hashes(checks: Iterable[Check], workspace: Path) -> dict[str, str]:
    """The hash of every file that a check names or starts: in the workspace, or anywhere by its path."""
    files = {file for check in checks for file in _files(check.command, workspace)}
    return {str(file): _hash(file) for file in sorted(files)}


def changed_inputs(before: Mapping[str, str], judged: Collection[str]) -> list[Finding]:
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
    if _TOOLS.intersection(inside[:-1]):
        return True
    with file.open("rb") as content:
        return bool(_SHELL.match(content.readline(200)))


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
