"""The ref of a run's snapshots. It keeps them from garbage collection, and out of `git log --all`.

Snapshots are commits. If the ref named the latest one, `git log --all` would list them all. So it names a tree, which git does
not list there. The tree holds the files of every snapshot, and the text of its commit:

    first, latest         the texts of the first and of the latest commit
    00000/00.commit       the text of the first commit
    00000/00.tree/        its files

Garbage collection removes the commits themselves, since no ref names them. Ralph then writes them again from their texts,
with the same ids. Older versions of Ralph made the ref name the latest commit. Such a ref is read, and replaced by the next
snapshot.
"""

import hashlib
import os
import re
import struct
import time
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ralph.git.command import RALPH_IDENTITY, Git, GitError

_WIDTH = 64
"""How many snapshots a directory has at most, so that the 10,000th snapshot costs about what the first did."""
_KINDS = {"commit": 1, "tree": 2, "blob": 3}
"""The numbers of object types in a pack."""
_FILE, _DIRECTORY = "100644", "40000"
Entries = dict[str, tuple[str, str]]
"""The entries of a tree: mode and object by name."""


@dataclass(frozen=True)
class LatestSnapshot:
    """What the ref says about the snapshots of a run."""

    commit: str
    tree: str
    first: str = ""
    """The first commit; empty if an older version of Ralph wrote the ref."""


@dataclass(frozen=True)
class StoredObject:
    """An object as git stores it."""

    kind: str
    id: str
    body: bytes


@dataclass(frozen=True)
class _Levels:
    """The trees on the way to the latest snapshot."""

    count: int = 0
    root: Entries = field(default_factory=dict)
    group: Entries = field(default_factory=dict)


class SnapshotRef:
    """One ref, and the snapshots that it keeps."""

    def __init__(self, git: Git, name: str, objects: Path) -> None:
        self.name = name
        self._git, self._objects = git, objects
        self._latest: LatestSnapshot | None = None
        self._levels: _Levels | None = None
        self._root = ""

    def read(self) -> LatestSnapshot | None:
        """The latest snapshot; None if there is none. Commits that garbage collection removed are back after it."""
        latest, first = f"{self.name}:latest", f"{self.name}:first"
        found = read_objects(self._git, (self.name, latest, first))
        own = found.get(self.name)
        self._latest, self._levels, self._root = None, None, ""
        if own is not None and own.kind == "commit":
            self._latest = LatestSnapshot(own.id, _find_tree(own.body))
        elif own is not None and own.kind == "tree" and _is_commit(found.get(latest)) and _is_commit(found.get(first)):
            self._latest = _describe(found[latest].body, found[first].body, like=own.id)
            self._root = own.id
            self.ensure_commits()
        return self._latest

    def append(self, tree: str, message: str) -> str:
        """Write a commit of a tree that follows the latest one, and make the ref keep it. Returns the commit."""
        latest = self._latest
        if latest is not None and not latest.first:
            self.rebuild(latest.commit)
            latest = self._latest
        body = _format_commit(tree, latest.commit if latest else "", message)
        commit = _store("commit", body, like=tree)
        self._write([commit], self._read_levels(), new=[commit])
        return commit.id

    def rebuild(self, commit: str) -> None:
        """Make the ref keep a commit and all before it."""
        chain = self._git.run("rev-list", "--reverse", commit).text.split()
        found = read_objects(self._git, chain)
        self._write([found[sha] for sha in chain], _Levels(), new=())

    def write_again(self) -> None:
        """Make the ref keep what it kept, if something else removed or moved it."""
        if self._latest is None:
            return
        try:
            self._git.run("update-ref", self.name, self._root or self._latest.commit)
        except GitError:
            # Garbage collection has removed the tree, since no ref named it.
            self.rebuild(self._latest.commit)

    def delete(self) -> None:
        """Forget the snapshots."""
        self._git.run("update-ref", "-d", self.name)
        self._latest, self._levels, self._root = None, None, ""

    def ensure_commits(self) -> None:
        """Write the commits again if the first or the latest is gone. Garbage collection removes the oldest first."""
        latest = self._latest
        if latest is None or not latest.first:
            return
        # Looking for files is cheap. Git rarely packs what no ref names.
        unseen = [sha for sha in (latest.first, latest.commit) if not self._is_loose(sha)]
        if unseen and len(read_objects(self._git, unseen)) < len(set(unseen)):
            self._restore_commits(latest.commit)

    def _is_loose(self, sha: str) -> bool:
        return os.path.exists(self._objects / sha[:2] / sha[2:])

    def _restore_commits(self, like: str) -> None:
        """Write all commits again. If the ref was deleted before, nothing is left to write them from."""
        top = read_objects(self._git, [self._root]).get(self._root)
        if top is None:
            return
        root = _parse_tree(top)
        groups = read_objects(self._git, (sha for mode, sha in root.values() if mode == _DIRECTORY))
        texts: list[str] = []
        for group in groups.values():
            texts += [sha for name, (_, sha) in _parse_tree(group).items() if name.endswith(".commit")]
        bodies = read_objects(self._git, texts)
        commits = [_store("commit", found.body, like=like) for found in bodies.values()]
        self._git.run("unpack-objects", "-q", stdin=_pack(commits, like=like))

    def _read_levels(self) -> _Levels:
        if self._levels is None:
            self._levels = self._load_levels() if self._root else _Levels()
        return self._levels

    def _load_levels(self) -> _Levels:
        root = _parse_tree(read_objects(self._git, [self._root])[self._root])
        name = max(name for name, (mode, _) in root.items() if mode == _DIRECTORY)
        group = _parse_tree(read_objects(self._git, [root[name][1]])[root[name][1]])
        return _Levels(int(name) * _WIDTH + len(group) // 2, root, group)

    def _write(self, commits: Sequence[StoredObject], levels: _Levels, *, new: Sequence[StoredObject]) -> None:
        """Add commits to the trees of the ref, and move the ref. Those in `new` are not in the repository yet."""
        stored = list(new)
        for commit in commits:
            levels = _add(levels, commit.body, stored)
        like = commits[-1].id
        top = _store_tree(levels.root, like=like)
        # With `--strict`, git refuses objects that name others which are missing.
        self._git.run("unpack-objects", "-q", "--strict", stdin=_pack([*stored, top], like=like))
        self._git.run("update-ref", self.name, top.id)
        first = self._latest.first if self._latest and levels.count > len(commits) else commits[0].id
        latest = LatestSnapshot(commits[-1].id, _find_tree(commits[-1].body), first)
        self._latest, self._levels, self._root = latest, levels, top.id


def _add(levels: _Levels, body: bytes, stored: list[StoredObject]) -> _Levels:
    """The trees with one more commit. Adds the objects that are new to `stored`."""
    number, place = divmod(levels.count, _WIDTH)
    tree = _find_tree(body)
    text = _store("blob", body, like=tree)
    group = dict(levels.group) if place else {}
    group |= {f"{place:02}.commit": (_FILE, text.id), f"{place:02}.tree": (_DIRECTORY, tree)}
    directory = _store_tree(group, like=tree)
    root = {**levels.root, f"{number:05}": (_DIRECTORY, directory.id), "latest": (_FILE, text.id)}
    if not levels.count:
        root["first"] = (_FILE, text.id)
    stored += [text, directory]
    return _Levels(levels.count + 1, root, group)


def _is_commit(text: StoredObject | None) -> bool:
    """Whether a file of the ref has the text of a commit."""
    return text is not None and re.match(rb"tree (?:[0-9a-f]{40}|[0-9a-f]{64})\n", text.body) is not None


def _describe(latest: bytes, first: bytes, *, like: str) -> LatestSnapshot:
    commit = _identify("commit", latest, like=like)
    return LatestSnapshot(commit, _find_tree(latest), _identify("commit", first, like=like))


def read_objects(git: Git, names: Iterable[str]) -> dict[str, StoredObject]:
    """Objects by the names in the request. Those that do not exist are left out."""
    asked = list(dict.fromkeys(names))
    if not asked:
        return {}
    out = git.run("cat-file", "--batch", stdin=os.fsencode("".join(f"{name}\n" for name in asked))).out
    found: dict[str, StoredObject] = {}
    at = 0
    for name in asked:
        end = out.index(b"\n", at)
        header, at = out[at:end].split(), end + 1
        if header[-1].isdigit():
            size = int(header[-1])
            found[name] = StoredObject(header[1].decode(), header[0].decode(), out[at : at + size])
            at += size + 1
    return found


def _format_commit(tree: str, parent: str, message: str) -> bytes:
    who = f"{RALPH_IDENTITY['GIT_AUTHOR_NAME']} <{RALPH_IDENTITY['GIT_AUTHOR_EMAIL']}> {int(time.time())} +0000"
    lines = [
        f"tree {tree}",
        *([f"parent {parent}"] if parent else []),
        f"author {who}",
        f"committer {who}",
        "",
        message,
    ]
    return os.fsencode("\n".join(lines))


def _find_tree(body: bytes) -> str:
    return body[5 : body.index(b"\n")].decode()


def _find_algorithm(like: str) -> str:
    return "sha1" if len(like) == 40 else "sha256"


def _identify(kind: str, body: bytes, *, like: str) -> str:
    return hashlib.new(_find_algorithm(like), f"{kind} {len(body)}\0".encode() + body).hexdigest()


def _store(kind: str, body: bytes, *, like: str) -> StoredObject:
    return StoredObject(kind, _identify(kind, body, like=like), body)


def _store_tree(entries: Mapping[str, tuple[str, str]], *, like: str) -> StoredObject:
    # Git sorts directories as if their names ended with a slash.
    ordered = sorted(entries.items(), key=lambda item: item[0] + ("/" if item[1][0] == _DIRECTORY else ""))
    body = b"".join(f"{mode} {name}\0".encode() + bytes.fromhex(sha) for name, (mode, sha) in ordered)
    return _store("tree", body, like=like)


def _parse_tree(tree: StoredObject) -> Entries:
    size, at = len(tree.id) // 2, 0
    entries: Entries = {}
    while at < len(tree.body):
        end = tree.body.index(b"\0", at)
        mode, _, name = tree.body[at:end].decode().partition(" ")
        entries[name] = (mode, tree.body[end + 1 : end + 1 + size].hex())
        at = end + 1 + size
    return entries


def _pack(objects: Iterable[StoredObject], *, like: str) -> bytes:
    """Objects in git's pack format, so that one command writes them all.

    `git fast-import` cannot make a ref name a tree. `hash-object`, `commit-tree` and twice `mktree` would be four processes
    per snapshot instead of one, which costs every turn about 5 ms.
    """
    unique = {one.id: one for one in objects}.values()
    out = bytearray(b"PACK" + struct.pack(">II", 2, len(unique)))
    for one in unique:
        size = len(one.body)
        byte, size = (_KINDS[one.kind] << 4) | (size & 15), size >> 4
        while size:
            out.append(byte | 0x80)
            byte, size = size & 0x7F, size >> 7
        out.append(byte)
        out += zlib.compress(one.body)
    return bytes(out) + hashlib.new(_find_algorithm(like), out).digest()
