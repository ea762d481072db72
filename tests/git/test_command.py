"""The runner of git: what passes by itself is not told as a failure."""

import os
import stat
from pathlib import Path

import pytest
from repos import REAL_GIT, git

from ralph.git.command import Git, GitError

STUMBLES = [
    "failed to read {common}/worktrees/other/commondir: No such file or directory",
    "Invalid path '{common}/worktrees/other': No such file or directory",
    "could not create directory of '{common}/worktrees/other': No such file or directory",
    "bad object worktrees/other/HEAD",
    "Unable to create '{common}/index.lock': File exists.",
    "cannot lock ref 'refs/heads/main': Unable to create '{common}/refs/heads/main.lock': File exists.",
    "could not lock config file {common}/config: File exists",
    "unable to stat 'a.tmp': No such file or directory",
    'open(\\"a.tmp\\"): No such file or directory',
    "short read while indexing a.log",
]
"""What git 2.39 says while others make and remove worktrees of the same repository, hold its locks, or change files."""


@pytest.mark.parametrize("said", STUMBLES)
def test_another_git_process_does_not_cause_a_failure(repo: Path, monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    left = _stumbling(repo, monkeypatch, said, times=3)
    assert Git(repo).run("for-each-ref", "--format=%(refname)").text == "refs/heads/main"
    assert left.read_text().strip() == "0"


def test_a_failure_that_stays_is_an_error(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ralph.git.command._PAUSE", 0)
    _stumbling(repo, monkeypatch, STUMBLES[1], times=1000)
    with pytest.raises(GitError, match="Invalid path"):
        Git(repo).run("for-each-ref")


def test_another_failure_is_an_error_at_once(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Git(repo).run("for-each-ref")  # reads the settings of the repository, which takes a command of its own
    left = _stumbling(repo, monkeypatch, "Invalid path 'somewhere': No such file or directory", times=9)
    with pytest.raises(GitError, match="somewhere"):
        Git(repo).run("for-each-ref")
    assert left.read_text().strip() == "8"


def _stumbling(repo: Path, monkeypatch: pytest.MonkeyPatch, said: str, times: int) -> Path:
    """Put a git in front of the real one that fails so many times; the file that counts how many are left."""
    place = repo.parent / "stumbling"
    place.mkdir()
    left = place / "left"
    left.write_text(str(times))
    said = said.format(common=git(repo, "rev-parse", "--absolute-git-dir").strip())
    program = place / "git"
    program.write_text(
        "#!/bin/sh\n"
        f'left=$(cat "{left}")\n'
        f'[ "$left" -gt 0 ] || exec "{REAL_GIT}" "$@"\n'
        f'echo $((left - 1)) >"{left}"\n'
        f'echo "fatal: {said}" >&2\nexit 128\n'
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{place}{os.pathsep}{os.environ['PATH']}")
    return left
