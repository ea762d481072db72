"""Import what an agent committed in its private git directory: objects, branches, HEAD and the index.

Git never runs on the private directory: its settings, hooks and alternates are the agent's. Its refs are read as text. Its
objects go through a repository that only Ralph writes, and are checked on the way. Deleted branches, settings and hooks are
not imported.
"""

import contextlib
import os
import re
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path

from ralph.core.errors import RalphError
from ralph.git.command import RALPH_IDENTITY, Git, disk
from ralph.git.private_repository import PrivateRepository, is_object_id, read_head, read_refs, select_branches

_OBJECT_DIRECTORY = re.compile(r"[0-9a-f]{2}")
_OBJECT_NAME = re.compile(r"[0-9a-f]{38}|[0-9a-f]{62}")
_PACK_NAME = re.compile(r"pack-[0-9a-f]{40,64}\.pack")
_MERGE_FILES = ("MERGE_HEAD", "MERGE_MSG", "MERGE_MODE", "CHERRY_PICK_HEAD", "REVERT_HEAD")
_CHECKED = ("transfer.fsckObjects=true", "protocol.file.allow=always", "fetch.recurseSubmodules=false")
_TEMPORARY = "refs/ralph-taken"
_MAX_BYTES = 512 << 20
_REF_NAME = re.compile(r"refs/(?:heads|tags)/[^\x00-\x20\x7f~^:?*\[\\]+")


@dataclass(frozen=True)
class Difference:
    """What an agent changed in its private git directory."""

    head: str
    """What HEAD names now; empty if that did not change."""
    refs: dict[str, str]
    """New and moved branches and tags."""
    stash: str
    """The newest stash entry, if the agent made one."""
    index: bool

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to import."""
        return not (self.head or self.refs or self.stash or self.index)


def import_commits(private: PrivateRepository, label: str) -> list[str]:
    """Import what the agent committed, and remove its git directory. Returns notices. A second call changes nothing.

    Submodules come first: a commit of the repository around them can name their new commits.
    """
    notices: list[str] = []
    try:
        for one in (*private.submodules(), private):
            before = one.read_before()
            difference = _compare(one, before) if before is not None else None
            if before is not None and difference is not None and not difference.is_empty:
                notices += _Taking(one, difference, label, before).run()
    except RalphError as error:
        notices.append(
            f"the commits of {label} could not be imported: {error.what}; Ralph keeps them in {private.directory}"
        )
        with contextlib.suppress(OSError):
            (private.home / "before.json").unlink()
        return notices
    shutil.rmtree(private.home, ignore_errors=True)
    return notices


def _compare(private: PrivateRepository, before: dict[str, object]) -> Difference:
    old_refs, now = before.get("refs"), read_refs(private.directory)
    known: dict[str, str] = old_refs if isinstance(old_refs, dict) else {}
    changed = {name: sha for name, sha in select_branches(now).items() if known.get(name) != sha}
    head, old_head = read_head(private.git_dir), str(before.get("head", "")).strip().removeprefix("ref: ")
    stash = now.get("refs/stash", "")
    return Difference(
        head=head if head != old_head else "",
        refs={name: sha for name, sha in changed.items() if _REF_NAME.fullmatch(name) and ".." not in name},
        stash=stash if stash != known.get("refs/stash", "") else "",
        index=private.has_index_changed(before.get("index")),
    )


@dataclass
class _Taking:
    private: PrivateRepository
    difference: Difference
    label: str
    before: dict[str, object]

    def run(self) -> list[str]:
        git = self.private.place.git
        bare = self._make_bare()
        wanted = dict(self.difference.refs)
        if self.difference.stash:
            wanted["stash"] = self.difference.stash
        if is_object_id(self.difference.head):
            wanted["HEAD"] = self.difference.head
        tree = self._write_index_tree(bare) if self.difference.index else ""
        if tree:
            # A commit, so that the fetch brings and checks the objects of what is staged.
            commit = bare.with_options(**RALPH_IDENTITY).run("commit-tree", tree, "-m", "index").text
            wanted["index"] = commit
        self._fetch(bare, git, wanted)
        notices = self._move_refs(git)
        if self.difference.stash:
            left = f"refs/ralph-left/{self.label.replace(' ', '-')}/stash"
            git.run("update-ref", left, self.difference.stash)
            notices.append(f"the agent stashed changes: `git stash apply {left}` applies them")
        if self.difference.index or self.difference.head or self.difference.refs:
            self._write_index(git, tree)
            self._copy_merge_state()
        for number in range(len(wanted)):
            git.run("update-ref", "-d", f"{_TEMPORARY}/{number}")
        return notices

    def _make_bare(self) -> Git:
        """A repository of Ralph's own with the agent's objects. Packs are checked and indexed anew."""
        path = self.private.home / "taken"
        with disk(path):
            shutil.rmtree(path, ignore_errors=True)
            Git(self.private.home).run("init", "-q", "--bare", "--template=", *self._format(), str(path))
            (path / "objects" / "info").mkdir(exist_ok=True)
            alternates = self.private.place.common / "objects"
            (path / "objects" / "info" / "alternates").write_text(f"{alternates}\n")
            bare = Git(path, {"GIT_DIR": str(path)})
            room = _MAX_BYTES
            for source, name in _list_objects(self.private.directory / "objects"):
                room -= source.stat().st_size
                if room < 0:
                    raise RalphError(f"they have more than {_MAX_BYTES >> 20} MiB")
                if source.suffix == ".pack":
                    bare.run("index-pack", "--strict", "--fix-thin", "--stdin", stdin=_read_regular(source))
                else:
                    target = path / "objects" / name
                    target.parent.mkdir(exist_ok=True)
                    target.write_bytes(_read_regular(source))
        return bare

    def _format(self) -> tuple[str, ...]:
        known = self.private.place.git.run("rev-parse", "--show-object-format").text
        return ("--object-format=sha256",) if known == "sha256" else ()

    def _write_index_tree(self, bare: Git) -> str:
        """The tree of the agent's index; empty if it has conflicts or cannot be read."""
        copy = self.private.home / "index"
        try:
            copy.write_bytes(_read_regular(self.private.git_dir / "index"))
        except OSError:
            return ""
        done = bare.with_options(GIT_INDEX_FILE=str(copy)).run("write-tree", ok=(0, 1, 128))
        return done.text if done.code == 0 else ""

    def _fetch(self, bare: Git, git: Git, wanted: dict[str, str]) -> None:
        """Bring the objects of all wanted commits and tags into the user's repository."""
        pairs = []
        for number, sha in enumerate(wanted.values()):
            bare.run("update-ref", f"{_TEMPORARY}/{number}", sha)
            pairs.append(f"+{_TEMPORARY}/{number}:{_TEMPORARY}/{number}")
        if pairs:
            options = ("--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance", "--update-head-ok")
            git.with_options(*_CHECKED).run("fetch", *options, bare.env["GIT_DIR"], *pairs)

    def _move_refs(self, git: Git) -> list[str]:
        """Move branches as the agent did. Only the branch that is checked out may lose commits: they are pinned."""
        known = self.before.get("refs")
        old = known if isinstance(known, dict) else {}
        current = read_head(self.private.git_dir)
        notices = []
        for name, sha in self.difference.refs.items():
            was = old.get(name, "")
            if was and name != current and not self._is_forward(git, was, sha):
                notices.append(f"the agent moved {name} to {sha[:10]}, which would lose commits; it stays where it was")
                continue
            there = git.run("rev-parse", "-q", "--verify", name, ok=(0, 1)).text
            if there not in (was, sha):
                notices.append(f"something other than this turn moved {name}; the agent's {sha[:10]} was not imported")
                continue
            if there != sha:
                git.run("update-ref", "-m", f"ralph: {self.label}", name, sha, was or "0" * len(sha))
        head = self.difference.head
        if head.startswith("refs/heads/"):
            git.run("symbolic-ref", "-m", f"ralph: {self.label}", "HEAD", head)
        elif head:
            git.run("update-ref", "--no-deref", "-m", f"ralph: {self.label}", "HEAD", head)
        return notices

    @staticmethod
    def _is_forward(git: Git, old: str, new: str) -> bool:
        return git.run("merge-base", "--is-ancestor", old, new, ok=(0, 1, 128)).code == 0

    def _write_index(self, git: Git, tree: str) -> None:
        """Give the user's index the content of the agent's, without its flags and extensions."""
        target = self.private.place.git_dir / "index"
        if git.run("config", "--bool", "core.sparseCheckout", ok=(0, 1)).text == "true":
            # The flags of a sparse checkout are in the user's index, so only the commit is followed.
            git.run("read-tree", "-m", "HEAD", ok=(0, 128))
            return
        fresh = self.private.home / "fresh-index"
        fresh.unlink(missing_ok=True)
        own = git.with_options(GIT_INDEX_FILE=str(fresh))
        if tree:
            own.run("read-tree", tree)
        else:
            listed = git.with_options(GIT_INDEX_FILE=str(self.private.home / "index")).run(
                "ls-files", "--stage", "-z", ok=(0, 128)
            )
            if listed.code:
                return
            own.run("update-index", "-z", "--index-info", stdin=listed.out)
        own.run("update-index", "-q", "--refresh", ok=(0, 1))
        if fresh.exists():
            _replace_locked(fresh, target)

    def _copy_merge_state(self) -> None:
        """Whether a merge is in progress, as in the agent's directory. What a rebase would run is not imported."""
        source, target = self.private.git_dir, self.private.place.git_dir
        for name in _MERGE_FILES:
            try:
                data = _read_regular(source / name, 1 << 20)
            except OSError:
                (target / name).unlink(missing_ok=True)
                continue
            is_id_list = name.endswith("_HEAD")
            if is_id_list and not all(is_object_id(line) for line in data.decode(errors="replace").split()):
                continue
            if not (target / name).is_symlink():
                (target / name).write_bytes(data)


def _replace_locked(fresh: Path, target: Path) -> None:
    """Replace the index as git does: by way of its lock file."""
    lock = target.with_name("index.lock")
    with disk(target):
        descriptor = os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o644)
        try:
            with open(descriptor, "wb") as file:
                file.write(fresh.read_bytes())
            os.rename(lock, target)
        except OSError:
            lock.unlink(missing_ok=True)
            raise


def _list_objects(objects: Path) -> list[tuple[Path, str]]:
    """The regular files in an object directory that are named as git names objects and packs; nothing through links."""
    found = []
    for entry in _scan(objects):
        if _OBJECT_DIRECTORY.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False):
            for one in _scan(Path(entry.path)):
                if _OBJECT_NAME.fullmatch(one.name) and one.is_file(follow_symlinks=False):
                    found.append((Path(one.path), f"{entry.name}/{one.name}"))
    if not (objects / "pack").is_symlink():
        for one in _scan(objects / "pack"):
            if _PACK_NAME.fullmatch(one.name) and one.is_file(follow_symlinks=False):
                found.append((Path(one.path), one.name))
    return sorted(found)


def _scan(directory: Path) -> "list[os.DirEntry[str]]":
    try:
        with os.scandir(directory) as entries:
            return list(entries)
    except OSError:
        return []


def _read_regular(path: Path, limit: int = _MAX_BYTES) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"{path} is not a regular file")
        data = file.read(limit + 1)
    if len(data) > limit:
        raise OSError(f"{path} is too large")
    return data
