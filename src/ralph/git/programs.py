"""The programs that git starts because a repository says so: filters, merge drivers, helpers and hooks.

Git reads them from `.git/config` and `.git/hooks`, which an agent without a sandbox can change. When a run starts, Ralph
records the programs that are there (`record_programs`). Later, its own git commands start only these: `list_overrides` turns
all others off. Programs in the user's own settings (`~/.gitconfig`, the system's) are the user's choice and stay on.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from ralph.core.codec import dump
from ralph.core.errors import StateError
from ralph.store.files import read_limited, to_bytes, to_text, write_atomic
from ralph.store.user_state import ensure_state_directory, state_directory

_TEXT_MERGE = "git merge-file --marker-size=%L %A %O %B"
"""What git does for a file without a merge driver. An empty driver would silently keep one side."""
_NEUTRAL = {
    r"filter\..*\.(?:clean|smudge|process)": "",
    r"filter\..*\.required": "false",
    r"merge\..*\.driver": _TEXT_MERGE,
    r"gpg\.(?:openpgp\.)?program": "gpg",
    r"gpg\.x509\.program": "gpgsm",
    r"gpg\.ssh\.program": "ssh-keygen",
    r"gpg\.ssh\.defaultkeycommand": "",
    r"core\.sshcommand": "ssh",
    r"core\.gitproxy": "none",
    r"core\.askpass": "",
    r"core\.alternaterefscommand": "true",
    r"remote\..*\.uploadpack": "git-upload-pack",
    r"remote\..*\.receivepack": "git-receive-pack",
    r"submodule\..*\.update": "checkout",
    r"credential\.(?:.*\.)?helper": "",
    r"(?:core\.pager|pager\..*)": "cat",
    r"diff\..*\.(?:command|textconv)": "",
    r"diff\.external": "",
}
"""The settings that name a program, each with the value that git uses in its place."""
_PROGRAM = re.compile("|".join(f"(?:{pattern})" for pattern in _NEUTRAL), re.I | re.S)
_FIXED = re.compile(r"core\.(?:hookspath|fsmonitor)", re.I)
"""Settings that start programs and that every git command of Ralph sets itself."""
_HARMLESS = re.compile(
    r"(?:branch|user|author|committer|color|column|gc|maintenance|advice|pull|fetch|push|index|feature)\..*"
    r"|core\.(?:repositoryformatversion|bare|filemode|ignorecase|precomposeunicode|symlinks|logallrefupdates|sparse.*|worktree)"
    r"|extensions\.worktreeconfig|submodule\..*\.(?:url|active)|lfs\.(?:repositoryformatversion|.*\.access)",
    re.I | re.S,
)
"""Settings that agents and git itself write in honest work, and that can neither start a program nor redirect one."""
_STARTED_BY_USER = re.compile(
    r"alias\..*|core\.editor|sequence\.editor|interactive\.difffilter|trailer\..*\.(?:command|cmd)"
    r"|(?:difftool|mergetool|browser|man)\..*\.(?:cmd|path)|tar\..*\.command|include(?:if\..*)?\.path",
    re.I | re.S,
)
"""Settings that start programs only in commands that Ralph does not run, or that come from another file."""
_OWN_SCOPES = ("local", "worktree")
_GITLINK = b"\x00\x00\xe0\x00"
"""The mode of a repository inside another one, as the index has it."""
_BOOLEANS = ("true", "false", "yes", "no", "on", "off", "0", "1", "")
"""Values of `core.fsmonitor` that name no program."""
_DEEPEST = 5
_MAX_RECORD = 16 * 1024 * 1024


class PlainGit(Protocol):
    """The git command in a directory, for questions that start no program of the repository."""

    @property
    def cwd(self) -> Path: ...

    @property
    def env(self) -> Mapping[str, str]: ...

    def ask(self, *args: str, **env: str) -> bytes:
        """What a command prints, with the settings of the repository as they are."""


@dataclass(frozen=True)
class GitSetting:
    """One setting of git."""

    scope: str
    key: str
    value: str


@dataclass(frozen=True)
class Programs:
    """What a repository can start: its own settings, and the files of its hooks and of `info`."""

    settings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """All settings of the repository that are not harmless."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Hashes by name, such as `hooks/pre-push` or `info/attributes`."""

    def describe_changes(self, now: "Programs") -> list[str]:
        """What is different now, one sentence each."""
        found = []
        for kind, before, after in (("git setting", self.settings, now.settings), ("file", self.files, now.files)):
            for name in sorted({*before, *after}):
                if before.get(name) == after.get(name):
                    continue
                change = "has changed"
                if name not in before:
                    change = "is new"
                elif name not in after:
                    change = "is gone"
                value = f" ({', '.join(after[name])[:200]})" if kind == "git setting" and name in after else ""
                found.append(f"the {kind} {name} {change}{value}")
        return found


@dataclass(frozen=True)
class GitDirectory:
    """A git directory and the one that it shares with other worktrees."""

    path: Path
    common: Path

    def signatures(self) -> tuple[object, ...]:
        """A value that changes when the settings in it change."""
        return tuple(_compute_signature(file) for file in self.list_settings_files())

    def list_settings_files(self) -> tuple[Path, ...]:
        """The files with its settings; they need not exist."""
        return (self.common / "config", self.path / "config.worktree", self.common / "config.worktree")


def _compute_signature(path: Path) -> tuple[int, ...] | None:
    """What changes with every change to a file. The time of the last change of its status cannot be set back."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def locate_git_directory(cwd: Path, environment: Mapping[str, str]) -> GitDirectory | None:
    """The git directory that a command in a directory uses; None if there is none."""
    named = environment.get("GIT_DIR")
    if named:
        return with_common(Path(cwd, named))
    for directory in (cwd.absolute(), *cwd.absolute().parents):
        found = follow_link(directory / ".git")
        if found is None and is_git_directory(directory):
            found = directory
        if found is not None:
            return with_common(found)
    return None


def is_git_directory(path: Path) -> bool:
    """Whether git takes a directory for a repository, although it is not named `.git`."""
    return all((path / name).exists() for name in ("HEAD", "objects", "refs"))


def follow_link(path: Path) -> Path | None:
    """The git directory at `.git`, which is a directory or a file that names one."""
    if (path / "HEAD").is_symlink() or (path / "HEAD").exists():
        return path
    try:
        text = to_text(read_limited(path, 4096)) if path.is_file() else ""
    except (OSError, StateError):
        return None
    return Path(path.parent, text[8:].rstrip("\n")) if text.startswith("gitdir: ") else None


def with_common(path: Path) -> GitDirectory:
    """A git directory, with the one that it shares its settings with."""
    try:
        return GitDirectory(path, path / to_text(read_limited(path / "commondir", 4096)).rstrip("\n"))
    except (OSError, StateError):
        return GitDirectory(path, path)


def list_overrides(git: PlainGit, *, reads_tree: bool) -> list[tuple[str, str]]:
    """The settings for a git command that turn off the programs of the repository that no run began with.

    Commands that compare files with the index also start git in the repositories inside the tree, with their settings.
    """
    directory = locate_git_directory(git.cwd, git.env)
    if directory is None:
        return []
    found = dict(_list_overrides(git, directory))
    if reads_tree:
        top = Path(git.env.get("GIT_WORK_TREE") or git.cwd)
        index = Path(git.env.get("GIT_INDEX_FILE") or directory.path / "index")
        for inner in _find_nested(git, top, directory, index, depth=0):
            found.update(_list_overrides(git, inner))
    return list(found.items())


_read: dict[Path, tuple[tuple[object, ...], tuple[GitSetting, ...]]] = {}
"""The settings by git directory, as long as its files stay the same. A cache: reading them costs a process."""


def _list_overrides(git: PlainGit, directory: GitDirectory) -> Iterator[tuple[str, str]]:
    settings = _read_settings(git, directory)
    own = [one for one in settings if one.scope in _OWN_SCOPES and _PROGRAM.fullmatch(one.key)]
    if not own:
        return
    agreed = read_programs(directory.common)
    for key in dict.fromkeys(one.key for one in own):
        values = tuple(one.value for one in own if one.key == key)
        if agreed is not None and agreed.settings.get(key) == values:
            continue
        outer = [one.value for one in settings if one.key == key and one.scope not in _OWN_SCOPES]
        if key.startswith("credential."):
            # An empty helper empties the list of helpers.
            yield "credential.helper", ""
        else:
            yield key, outer[-1] if outer else _choose_neutral_value(key)


def _choose_neutral_value(key: str) -> str:
    return next(value for pattern, value in _NEUTRAL.items() if re.fullmatch(pattern, key, re.I | re.S))


def _read_settings(git: PlainGit, directory: GitDirectory, *, fresh: bool = False) -> tuple[GitSetting, ...]:
    before = directory.signatures()
    known = _read.get(directory.path)
    if known is not None and known[0] == before and not fresh:
        return known[1]
    what = ("config", "--list", "--null", "--show-scope", "--includes")
    listed = git.ask(*what, GIT_DIR=str(directory.path))
    fields = [os.fsdecode(one) for one in listed.split(b"\0")]
    settings = []
    for scope, pair in zip(fields[::2], fields[1::2], strict=False):
        key, separator, value = pair.partition("\n")
        settings.append(GitSetting(scope, key, value if separator else "true"))
    found = tuple(settings)
    includes = any(one.scope in _OWN_SCOPES and one.key.startswith("include") for one in found)
    if not includes and directory.signatures() == before:
        _read[directory.path] = (before, found)
    else:
        # An included file can change while the files here stay the same.
        _read.pop(directory.path, None)
    return found


_gitlinks: dict[Path, tuple[object, tuple[str, ...]]] = {}
"""The repositories inside a tree, by index file, as long as that stays the same."""


def _find_nested(
    git: PlainGit, top: Path, directory: GitDirectory, index: Path, *, depth: int
) -> Iterator[GitDirectory]:
    """The git directories of repositories inside a tree that its index names, and of those inside them."""
    if depth > _DEEPEST:
        return
    for path in _list_gitlinks(git, top, directory, index):
        found = follow_link(top / path / ".git")
        if found is not None:
            inner = with_common(found)
            yield inner
            yield from _find_nested(git, top / path, inner, inner.path / "index", depth=depth + 1)


def _list_gitlinks(git: PlainGit, top: Path, directory: GitDirectory, index: Path) -> tuple[str, ...]:
    now = _compute_signature(index)
    known = _gitlinks.get(index)
    if known is not None and known[0] == now:
        return known[1]
    try:
        may_have = _GITLINK in index.read_bytes()
    except OSError:
        may_have = False
    found: tuple[str, ...] = ()
    if may_have:
        names = {"GIT_DIR": str(directory.path), "GIT_WORK_TREE": str(top), "GIT_INDEX_FILE": str(index)}
        listed = git.ask("-c", "core.fsmonitor=false", "ls-files", "--stage", "-z", **names)
        lines = [os.fsdecode(line) for line in listed.split(b"\0") if line.startswith(b"160000 ")]
        found = tuple(line.partition("\t")[2] for line in lines)
    _gitlinks[index] = (now, found)
    return found


def find_programs(git: PlainGit) -> Programs:
    """What the repository of a git command can start now."""
    directory = locate_git_directory(git.cwd, git.env)
    if directory is None:
        return Programs()
    settings: dict[str, tuple[str, ...]] = {}
    for one in _read_settings(git, directory, fresh=True):
        if one.scope in _OWN_SCOPES and not _HARMLESS.fullmatch(one.key):
            settings[one.key] = (*settings.get(one.key, ()), one.value)
    files = {f"hooks/{path.name}": compute_digest(path) for path in list_hooks(find_hooks(git))}
    for name in ("attributes", "exclude", "grafts"):
        data = _read_info(directory.common / "info" / name)
        if data:
            files[f"info/{name}"] = hashlib.sha256(data).hexdigest()
    return Programs(settings, files)


def find_hooks(git: PlainGit) -> Path:
    """The directory with the hooks that git runs for the user."""
    return Path(git.cwd, os.fsdecode(git.ask("rev-parse", "--git-path", "hooks")).rstrip("\n"))


def list_hooks(directory: Path) -> Iterable[Path]:
    """The hooks in a directory, without the samples that git puts there."""
    if not directory.is_dir():
        return []
    return sorted(path for path in directory.iterdir() if path.is_file() and path.suffix != ".sample")


def compute_digest(path: Path) -> str:
    """A value that changes if a file changes, or whether it can be executed."""
    try:
        # The mode counts: git skips hooks that are not executable.
        return hashlib.sha256(path.read_bytes() + bytes([path.stat().st_mode & 0o100])).hexdigest()
    except OSError:
        return "unreadable"


def _read_info(path: Path) -> bytes:
    """The rules in a file of `info`, without comments and without the lines that Ralph adds for its own directories."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError:
        return b""
    own = re.compile(rb"/.*(?:\.ralph|\.aiwg/ralph|\.ralph-sessions)/|\s*(?:#.*)?")
    return b"\n".join(line for line in lines if not own.fullmatch(line))


def remember_programs(git: PlainGit) -> None:
    """Record what a repository can start, because a run starts in it now."""
    directory = locate_git_directory(git.cwd, git.env)
    if directory is not None:
        record_programs(directory.common, find_programs(git))


def list_new_programs(git: PlainGit) -> dict[str, str]:
    """The settings and hooks that start a program and are new since the latest run started, with their texts."""
    directory = locate_git_directory(git.cwd, git.env)
    before = read_programs(directory.common) if directory else None
    if before is None:
        # No run has started here. Cloning brings neither settings nor hooks along, so these are the user's own.
        return {}
    found: dict[str, str] = {}
    now, hooks = find_programs(git), find_hooks(git)
    for key, values in now.settings.items():
        if (_PROGRAM.fullmatch(key) or _FIXED.fullmatch(key)) and before.settings.get(key) != values:
            found[f"git setting {key}"] = "\n".join(values)
    for name, digest in now.files.items():
        if name.startswith("hooks/") and before.files.get(name) != digest:
            found[f"git hook {name.removeprefix('hooks/')}"] = _read_hook(hooks / name.removeprefix("hooks/"))
    return found


def _read_hook(path: Path) -> str:
    try:
        return to_text(read_limited(path, follow=True))
    except (OSError, StateError) as error:
        return f"(cannot be read: {error})"


def list_starting_settings(git: PlainGit, directory: GitDirectory) -> list[str]:
    """The names of the settings of a repository that start programs when the user runs git in it."""
    own = [one for one in _read_settings(git, directory) if one.scope in _OWN_SCOPES]
    switched_off = [one for one in own if one.key == "core.fsmonitor" and one.value.lower() in _BOOLEANS]
    return list(
        dict.fromkeys(
            one.key
            for one in own
            if one not in switched_off and any(rule.fullmatch(one.key) for rule in (_PROGRAM, _FIXED, _STARTED_BY_USER))
        )
    )


def describe_changes_since_start(git: PlainGit) -> list[str]:
    """What changed in the settings, hooks and `info` of a repository since the latest run in it started."""
    directory = locate_git_directory(git.cwd, git.env)
    before = read_programs(directory.common) if directory else None
    return before.describe_changes(find_programs(git)) if before else []


def find_hooks_in_tree(git: PlainGit) -> str:
    """The directory in the work tree that has the hooks, or contains their directory; empty if they are not in the tree.

    Hooks in `.husky/_` start scripts in `.husky`, so that is the directory which counts.
    """
    hooks, top = Path(os.path.normpath(find_hooks(git))), Path(os.path.normpath(git.cwd))
    inside = hooks.relative_to(top).parts if hooks.is_relative_to(top) else ()
    return inside[0] if inside and inside[0] != ".git" else ""


def record_programs(common: Path, programs: Programs) -> None:
    """Remember what a repository can start."""
    directory = ensure_state_directory() / "git"
    directory.mkdir(exist_ok=True, mode=0o700)
    settings = {key: list(values) for key, values in programs.settings.items()}
    data = {"schema": 1, "path": str(_real(common)), "settings": settings, "files": dict(programs.files)}
    write_atomic(_record_path(common), to_bytes(dump(data)), mode=0o600)


def read_programs(common: Path) -> Programs | None:
    """What a repository could start when the latest run in it started; None if no run did."""
    try:
        data = json.loads(to_text(read_limited(_record_path(common), _MAX_RECORD)))
        if data["path"] != str(_real(common)):
            return None
        settings = {str(key): tuple(str(one) for one in values) for key, values in data["settings"].items()}
        return Programs(settings, {str(name): str(digest) for name, digest in data["files"].items()})
    except (OSError, ValueError, StateError, RecursionError, KeyError, TypeError, AttributeError):
        return None


def _real(common: Path) -> Path:
    return Path(os.path.realpath(common))


def _record_path(common: Path) -> Path:
    name = hashlib.sha256(os.fsencode(_real(common))).hexdigest()[:32]
    return state_directory() / "git" / f"{name}.json"
