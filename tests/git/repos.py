"""Real repositories for tests: git as its user calls it, files, and the snapshots of a run."""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from ralph.git.command import Git
from ralph.git.programs import remember_programs
from ralph.git.snapshots import Snapshots

RUN = "261115-093000-k3x9"
REF = f"refs/ralph/{RUN}"
REAL_GIT = shutil.which("git") or "git"


def git(cwd: Path, *args: str) -> str:
    identity = ("-c", "user.name=User", "-c", "user.email=user@example.org")
    done = subprocess.run([REAL_GIT, *identity, *args], cwd=cwd, capture_output=True, check=True)
    return os.fsdecode(done.stdout).rstrip("\n")


def write(root: Path, files: dict[str, str | bytes]) -> None:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)


def start_run_here(root: Path) -> None:
    """Record the filters, drivers and hooks of a repository, as the start of a run does."""
    remember_programs(Git(root))


def latest_snapshot(root: Path, ref: str = REF) -> str:
    """The latest commit that the ref of a run's snapshots keeps."""
    text = subprocess.run([REAL_GIT, "show", f"{ref}:latest"], cwd=root, capture_output=True, check=True).stdout
    return hashlib.sha1(b"commit %d\0" % len(text) + text).hexdigest()


def opened(root: Path, workspace: Path | None = None) -> Snapshots:
    return Snapshots.open(root, workspace or root, RUN, root / ".ralph" / "runs" / RUN)


def tree(root: Path) -> dict[str, bytes | str]:
    """All that is in a work tree, but for git's and Ralph's own."""
    paths = [path for path in root.rglob("*") if not {".git", ".ralph"} & set(path.relative_to(root).parts)]
    files = [path for path in paths if path.is_symlink() or not path.is_dir()]
    return {
        str(path.relative_to(root)): os.readlink(path) if path.is_symlink() else path.read_bytes() for path in files
    }


def held(root: Path, sha: str | None) -> set[str]:
    listed = git(root, "ls-tree", "-r", "-z", "--name-only", str(sha))
    return {name for name in listed.split("\0") if name}
