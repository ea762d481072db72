"""What an agent leaves in the tree that starts programs later, outside the sandbox.

Git repositories inside the tree name programs in their settings and hooks, and the user's next `git status` starts them. Editors,
shells, CI, agents and Ralph itself read files that do the same. The mounts of the sandbox cannot prevent any of it, so Ralph
searches the whole tree, including what git ignores, and compares it with what was there when the run started.
"""

import hashlib
import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ralph.core.codec import dump
from ralph.core.errors import StateError
from ralph.git.command import printable
from ralph.git.programs import (
    GitDirectory,
    PlainGit,
    compute_digest,
    follow_link,
    is_git_directory,
    list_hooks,
    list_starting_settings,
    locate_git_directory,
    with_common,
)
from ralph.store.files import read_limited, to_bytes, to_text, write_atomic

_STARTED_LATER = re.compile(
    r"(?:^|/)(?:\.(?:husky|githooks|claude|codex|gemini|cursor|opencode|devcontainer|github/workflows)/"
    r"|\.vscode/(?:tasks|settings|launch)\.json$|\.(?:envrc|mcp\.json|gitlab-ci\.yml|pre-commit-config\.yaml)$|lefthook\.ya?ml$"
    r"|ralph\.yml$)"
)
"""Files that make other programs start something: hooks, settings of editors, shells, agents and Ralph, workflows of CI."""
_PACKAGES = frozenset(("node_modules", "site-packages"))
"""Directories of installed packages. They contain such files, but no program looks for its own settings there."""
_MAX_ENTRIES = 2_000_000
"""Where the search of a tree ends."""
_MAX_RECORD = 16 * 1024 * 1024


@dataclass(frozen=True)
class FoundPrograms:
    """What of a tree can start programs: a digest of each repository and file, by path."""

    repositories: Mapping[str, str]
    files: Mapping[str, str]
    is_complete: bool = True
    """Whether the whole tree was searched."""


def find_planted_programs(git: PlainGit, leaving_out: tuple[str, ...]) -> FoundPrograms:
    """The repositories inside a tree, and the files that start programs later. Submodules do not count.

    The git directories of submodules are in that of the user's repository, which agents in the sandbox cannot change.
    """
    own = locate_git_directory(git.cwd, git.env)
    top = find_top(git)
    repositories: dict[str, str] = {}
    files: dict[str, str] = {}
    entries = 0
    for path, names, number in _walk(top, leaving_out):
        entries += number
        if entries > _MAX_ENTRIES:
            return FoundPrograms(repositories, files, is_complete=False)
        repository = _find_repository(top / path)
        if repository is not None and not _belongs_to(repository, own):
            repositories[path] = _digest_repository(git, repository)
        for name in names:
            file = f"{path}/{name}" if path else name
            if starts_later(file):
                files[file] = _digest_file(top / file)
    return FoundPrograms(repositories, files)


def find_top(git: PlainGit) -> Path:
    """The directory of the work tree."""
    return Path(git.env.get("GIT_WORK_TREE") or git.cwd)


def starts_later(path: str) -> bool:
    """Whether a file of a project makes other programs start something."""
    return bool(_STARTED_LATER.search(path)) and _PACKAGES.isdisjoint(path.split("/"))


def _walk(top: Path, leaving_out: tuple[str, ...]) -> Iterator[tuple[str, list[str], int]]:
    """The directories of a tree without git directories: path, names of files, and how many entries each has."""
    waiting = [""]
    while waiting:
        path = waiting.pop()
        directories: list[str] = []
        files: list[str] = []
        try:
            with os.scandir(top / path) as entries:
                for entry in entries:
                    kind = directories if entry.is_dir(follow_symlinks=False) else files
                    kind.append(entry.name)
        except OSError:
            continue
        yield path, files, len(directories) + len(files)
        below = [f"{path}/{name}" if path else name for name in directories if name != ".git"]
        waiting += [one for one in below if one not in leaving_out]


def _find_repository(directory: Path) -> GitDirectory | None:
    """The repository that git uses in a directory: by its `.git`, or the directory itself if it is a bare one."""
    found = follow_link(directory / ".git")
    if found is None and is_git_directory(directory):
        found = directory
    return with_common(found) if found is not None else None


def _belongs_to(repository: GitDirectory, own: GitDirectory | None) -> bool:
    """Whether a git directory is the user's own, or is in it."""
    return own is not None and repository.path.resolve().is_relative_to(own.common.resolve())


def _digest_repository(git: PlainGit, repository: GitDirectory) -> str:
    """A value that is another one if the repository starts other programs."""
    digest = hashlib.sha256()
    for file in repository.list_settings_files():
        text = _read_quietly(file)
        digest.update(text + b"\0")
        if b"include" in text.lower():
            # Its settings are also in other files.
            digest.update(repr(list_starting_settings(git, repository)).encode(errors="replace"))
    for hook in list_hooks(repository.common / "hooks"):
        digest.update(os.fsencode(hook.name) + compute_digest(hook).encode())
    return digest.hexdigest()


def _digest_file(path: Path) -> str:
    """A value that changes with a file. An agent can leave a pipe, a device or an endless link there, so only files are read."""
    try:
        status = path.lstat()
        if stat.S_ISLNK(status.st_mode):
            return f"link to {os.readlink(path)}"
        if stat.S_ISREG(status.st_mode):
            return hashlib.sha256(read_limited(path)).hexdigest()
    except (OSError, StateError):
        return "unreadable"
    return "not a file"


def _read_quietly(file: Path) -> bytes:
    try:
        return read_limited(file)
    except (OSError, StateError):
        return b""


def describe_planted_programs(git: PlainGit, before: FoundPrograms, now: FoundPrograms) -> list[str]:
    """What is new or changed in a tree and starts programs later, one sentence each."""
    texts = []
    for path, digest in sorted(now.files.items()):
        if before.files.get(path) != digest:
            texts.append(f"{printable(path)} can start programs later: read the change")
    for path, digest in sorted(now.repositories.items()):
        repository = _find_repository(find_top(git) / path)
        if before.repositories.get(path) == digest or repository is None:
            continue
        hooks = [f"hooks/{hook.name}" for hook in list_hooks(repository.common / "hooks")]
        names = [*list_starting_settings(git, repository), *hooks]
        if names:
            place = printable(path) or "this directory"
            texts.append(
                f"{place} is a separate git repository that starts programs ({printable(', '.join(names))}): read its settings "
                "and hooks before you use git in it"
            )
    if not now.is_complete:
        texts.append(
            "the tree has too many files to search it for git repositories and files that start programs later"
        )
    return texts


def save_found_programs(path: Path, found: FoundPrograms) -> None:
    """Record what was in the tree when the run started."""
    data = {"schema": 1, "repositories": dict(found.repositories), "files": dict(found.files)}
    write_atomic(path, to_bytes(dump(data)), mode=0o600)


def load_found_programs(path: Path) -> FoundPrograms:
    """What was in the tree when the run started; nothing if that was not recorded."""
    try:
        data = json.loads(to_text(read_limited(path, _MAX_RECORD)))
        return FoundPrograms(dict(data["repositories"]), dict(data["files"]))
    except (OSError, ValueError, StateError, KeyError, TypeError):
        return FoundPrograms({}, {})
