"""Files that git ignores: what they were before the run, and how a clean room gets those that are still the same.

Installed dependencies, build products of sibling packages and local settings are not in a snapshot, and many checks need them.
An agent can change them without a trace in the diff. So each is fingerprinted before the first turn, and a clean room gets only
those whose fingerprint is still the same. The fingerprint includes the time of the last change of the inode, which a process
cannot set.
"""

import hashlib
import hmac
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ralph.git.command import Repository
from ralph.store.files import write_atomic
from ralph.store.user_state import find_key
from ralph.supervisor.sandbox import Mount, read_only

_CACHES = frozenset(
    (
        *(
            "__pycache__",
            ".pytest_cache",
            ".mypy_cache",
            ".ruff_cache",
            ".hypothesis",
            ".coverage",
            "htmlcov",
            "coverage",
        ),
        *(
            ".cache",
            ".vite",
            ".vite-temp",
            ".turbo",
            ".next",
            ".nyc_output",
            ".gradle",
            ".parcel-cache",
            ".eslintcache",
        ),
    )
)
"""Caches and reports that tools write during every honest run. A clean room never gets them."""
_BUILT_ANEW = frozenset(("target",))
"""Directories in which a build tool finds its own results again. A clean room builds them once for itself."""
_INSTALLED = frozenset((".venv", "venv", ".tox", ".nox", "vendor", "site-packages"))
"""Directories of installed packages that nothing writes to. They are mounted, because copying them takes long."""
_MAX_FILES = 200_000
_MAX_MOUNTS = 400
"""A directory with more entries is copied: a mount for each entry would take longer."""
_MAX_COPIED = 64 * 1024 * 1024


def list_ignored(repository: Repository, own: Sequence[str] = ()) -> list[str]:
    """The files and directories that git ignores, relative to the top. A directory stands for all that is in it."""
    listed = repository.git.run(
        "-C", str(repository.top), "ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory"
    )
    names = [name.rstrip("/") for name in listed.names]
    return [name for name in names if not _is_left_out(name, own)]


def _is_left_out(name: str, own: Sequence[str]) -> bool:
    parts = name.split("/")
    if not _CACHES.isdisjoint(parts) or parts[-1].endswith((".pyc", ".tsbuildinfo")):
        return True
    return any(name == path or name.startswith(f"{path}/") or path.startswith(f"{name}/") for path in own)


def fingerprint_all(top: Path, names: Sequence[str]) -> dict[str, str]:
    """A fingerprint of each, without those that are too large or that a build makes anew."""
    found = {}
    for name in names:
        if name.rsplit("/", 1)[-1] in _BUILT_ANEW:
            continue
        fingerprint = _fingerprint(top / name)
        if fingerprint:
            found[name] = fingerprint
    return found


def write_record(path: Path, fingerprints: Mapping[str, str]) -> None:
    """Store fingerprints, with a code that shows that this user's Ralph wrote them."""
    text = json.dumps(fingerprints, sort_keys=True)
    key = find_key()
    record = {"ignored": text, "code": key.code(text) if key else ""}
    write_atomic(path, json.dumps(record).encode())


def read_record(path: Path) -> dict[str, str] | None:
    """The fingerprints from before the run; None if there are none. Empty if the record was changed."""
    try:
        record = json.loads(path.read_bytes())
        text, code = record["ignored"], record["code"]
        key = find_key()
        is_own = hmac.compare_digest(code, key.code(text) if key else "")
        found = json.loads(text) if is_own else {}
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return {str(name): str(known) for name, known in found.items()} if isinstance(found, dict) else {}


def _fingerprint(path: Path) -> str:
    """A name for the state of a file or directory; empty if it is gone or too large."""
    digest = hashlib.sha256()
    number = 0
    try:
        for entry in _walk(path):
            number += 1
            if number > _MAX_FILES:
                return ""
            state = os.lstat(entry)
            record = (os.path.relpath(entry, path), state.st_mode, state.st_size, state.st_mtime_ns, state.st_ctime_ns)
            digest.update(repr(record).encode("utf-8", "surrogateescape"))
    except OSError:
        return ""
    return digest.hexdigest()[:24]


def _walk(path: Path) -> Iterator[str]:
    """The files of a directory in a stable order, without caches; a file itself."""
    if path.is_symlink() or not path.is_dir():
        yield str(path)
        return
    for directory, subdirectories, files in os.walk(path):
        subdirectories[:] = sorted(name for name in subdirectories if name not in _CACHES)
        for name in sorted(files):
            if not name.endswith(".pyc"):
                yield os.path.join(directory, name)
        for name in subdirectories:
            if os.path.islink(os.path.join(directory, name)):
                yield os.path.join(directory, name)


@dataclass(frozen=True)
class KeptFiles:
    """What a clean room gets of the files that git ignores."""

    kept: tuple[str, ...]
    """Those that are as they were before the run."""
    changed: tuple[str, ...]
    """Those that were changed or removed during the run. The room does not have them."""
    added: tuple[str, ...]
    """Those that the run added. The room does not have them either."""

    @classmethod
    def compare(cls, repository: Repository, before: Mapping[str, str], own: Sequence[str]) -> "KeptFiles":
        """What is still as it was."""
        names = list_ignored(repository, own)
        now = fingerprint_all(repository.top, names)
        kept = tuple(name for name, known in before.items() if now.get(name) == known)
        changed = tuple(name for name in before if name not in kept)
        added = tuple(name for name in names if name not in before and name.rsplit("/", 1)[-1] not in _BUILT_ANEW)
        return cls(kept, changed, added)

    def mount(self, top: Path, tree: Path) -> list[Mount]:
        """Put them into a copy of the tree that is mounted over `top`; returns the mounts that it needs."""
        mounts: list[Mount] = []
        for name in self.kept:
            source = top / name
            if source.is_symlink():
                copy_entry(source, tree / name)
            elif source.name == "node_modules" and _count_packages(source) <= _MAX_MOUNTS:
                # Test runners write a cache into this directory, so it is writable, and each package in it is read-only.
                mounts += _mount_packages(source, tree / name)
            elif source.is_dir() and (source.name in _INSTALLED or _is_large(source)):
                (tree / name).mkdir(parents=True, exist_ok=True)
                mounts.append(read_only(source))
            else:
                copy_entry(source, tree / name)
        return mounts

    def link(self, top: Path, tree: Path) -> None:
        """Put them into a copy of the tree that is not mounted anywhere."""
        for name in self.kept:
            target = tree / name
            if not os.path.lexists(target):
                target.parent.mkdir(parents=True, exist_ok=True)
                target.symlink_to((top / name).resolve())


def _mount_packages(source: Path, target: Path) -> list[Mount]:
    """A directory for packages, with a read-only mount for each package and a link for each link."""
    target.mkdir(parents=True, exist_ok=True)
    mounts = []
    for entry in sorted(source.iterdir()):
        if entry.name in _CACHES:
            continue
        if entry.name.startswith("@") and entry.is_dir() and not entry.is_symlink():
            mounts += _mount_packages(entry, target / entry.name)
        elif entry.is_dir() and not entry.is_symlink():
            (target / entry.name).mkdir()
            mounts.append(read_only(entry))
        else:
            copy_entry(entry, target / entry.name)
    return mounts


def _count_packages(directory: Path) -> int:
    number = 0
    for entry in directory.iterdir():
        number += 1
        if entry.name.startswith("@") and entry.is_dir() and not entry.is_symlink():
            number += sum(1 for _ in entry.iterdir())
    return number


def _is_large(directory: Path) -> bool:
    size = 0
    for folder, _, files in os.walk(directory):
        for name in files:
            size += os.lstat(os.path.join(folder, name)).st_size
            if size > _MAX_COPIED:
                return True
    return False


def copy_entry(source: Path, target: Path) -> None:
    """Copy a file, a link or a directory."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_symlink():
        target.symlink_to(os.readlink(source))
    elif source.is_dir():
        shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True, ignore=shutil.ignore_patterns(*_CACHES))
    else:
        shutil.copy2(source, target)
