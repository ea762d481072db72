"""A git directory of its own for one job in the sandbox, mounted over the user's.

It has its own configuration, refs and index. The user's objects are a read-only alternate. The agent can commit, branch, stash
and configure in it. The user's git directory is not writable. `import_commits` brings back what the agent committed.
"""

import json
import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ralph.git.command import Git, Repository, disk
from ralph.supervisor.sandbox import Mount, read_only, writable

STORES = Path("/run/ralph")
"""Where the user's objects are inside the sandbox: `/run/ralph/store-N/objects`."""
_STATE_FILES = (
    *("HEAD", "ORIG_HEAD", "FETCH_HEAD", "MERGE_HEAD", "MERGE_MSG", "MERGE_MODE", "CHERRY_PICK_HEAD", "REVERT_HEAD"),
    *("REBASE_HEAD", "SQUASH_MSG", "AUTO_MERGE", "BISECT_LOG", "BISECT_START", "BISECT_TERMS", "index", "logs/HEAD"),
)
_STATE_DIRECTORIES = ("rebase-merge", "rebase-apply", "sequencer")
_COMMON_FILES = ("shallow", "logs/refs/stash", "info/exclude", "info/attributes", "info/sparse-checkout", "packed-refs")
_SECTIONS = (
    "extensions",
    "user",
    "author",
    "committer",
    "branch",
    "remote",
    "submodule",
    "filter",
    "lfs",
    "pull",
    "init",
)
"""Sections of the configuration that a private git directory has. Filters run inside, where the agent can run anything."""
_CORE = (
    *("repositoryformatversion", "filemode", "bare", "logallrefupdates", "autocrlf", "eol", "ignorecase", "symlinks"),
    *("precomposeunicode", "sparsecheckout", "sparsecheckoutcone", "worktree", "quotepath", "safecrlf", "longpaths"),
)
_OWN_SETTINGS = "[gc]\n\tauto = 0\n[maintenance]\n\tauto = false\n"
_OWN_REFS = "refs/ralph"
"""Ralph's own refs begin with this. Agents do not see them."""


@dataclass(frozen=True)
class PrivateRepository:
    """The git directory of one job."""

    place: Repository
    """The user's."""
    home: Path
    """The directory for it, and for what Ralph remembers about it."""
    inner: Path | None = None
    """Where the git directory is, if it is that of a submodule: in the one of the repository around it."""

    @property
    def directory(self) -> Path:
        """The git directory that the job sees."""
        return self.inner or self.home / "git"

    @property
    def git_dir(self) -> Path:
        """The part of it that belongs to the work tree of the job: itself, unless that is a linked worktree."""
        return self.directory / self.place.git_dir.relative_to(self.place.common)

    def prepare(self) -> tuple[Mount, ...]:
        """Make it from the user's git directory, and return its mounts."""
        with disk(self.home):
            shutil.rmtree(self.home, ignore_errors=True)
            self.home.mkdir(parents=True, mode=0o700)
            stores = _Stores()
            mounts = [writable(self.place.common, self.directory), *self._link_mounts()]
            _copy_git_directory(self.place.common, self.directory, stores)
            for linked in _list_directory(self.place.common / "worktrees"):
                _copy_worktree(linked, self.directory / "worktrees" / linked.name, whole=linked == self.place.git_dir)
            for module in self.submodules():
                _copy_git_directory(module.place.common, module.directory, stores)
                mounts += module._link_mounts()
                module.home.mkdir(mode=0o700)
                module.remember()
            self.remember()
        return (*mounts, *stores.mounts())

    def submodules(self) -> Iterator["PrivateRepository"]:
        """The private git directories of the submodules, also of nested ones."""
        roots = dict.fromkeys((self.place.common, self.place.git_dir))
        found = [path for root in roots for path in _find_modules(root)]
        for number, path in enumerate(found):
            work_tree = dict(_read_settings(path / "config")).get("core.worktree", "")
            top = Path(os.path.normpath(path / work_tree))
            if work_tree and top.is_dir():
                place = Repository(top, path, path)
                inner = self.directory / path.relative_to(self.place.common)
                yield PrivateRepository(place, self.home / f"submodule-{number}", inner)

    def remember(self) -> None:
        """Record where HEAD, the refs and the index are now, to see later what the job changed."""
        record = {
            "head": _read_small(self.git_dir / "HEAD"),
            "refs": read_refs(self.directory),
            "index": _describe(self.git_dir / "index"),
        }
        (self.home / "before.json").write_text(json.dumps(record))

    def read_before(self) -> dict[str, object] | None:
        """That record; None if there is no private git directory."""
        try:
            found = json.loads((self.home / "before.json").read_text())
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) else None

    def has_index_changed(self, before: object) -> bool:
        """Whether the job changed its index."""
        return _describe(self.git_dir / "index") != before

    def _link_mounts(self) -> list[Mount]:
        """The file `.git` of a linked worktree or a submodule: without a mount, it could be pointed elsewhere."""
        link = self.place.top / ".git"
        return [read_only(link)] if link.is_file() and not link.is_symlink() else []


def can_be_private(place: Repository) -> bool:
    """Whether Ralph can make such a git directory. It cannot for links, and for refs that are not in files."""
    if (place.top / ".git").is_symlink() or not place.git_dir.is_relative_to(place.common):
        return False
    settings = _read_settings(place.common / "config")
    return not any(key == "extensions.refstorage" and value != "files" for key, value in settings)


class _Stores:
    """The object stores of the user, by number."""

    def __init__(self) -> None:
        self.paths: list[Path] = []

    def add(self, objects: Path) -> str:
        """The path of a store inside the sandbox."""
        real = Path(os.path.realpath(objects))
        if real not in self.paths:
            self.paths.append(real)
        return str(STORES / f"store-{self.paths.index(real)}" / "objects")

    def mounts(self) -> list[Mount]:
        """The stores, read-only. Git LFS looks for its own store beside them."""
        found = []
        for number, path in enumerate(self.paths):
            found.append(read_only(STORES / f"store-{number}" / "objects", path))
            if (path.parent / "lfs").is_dir():
                found.append(read_only(STORES / f"store-{number}" / "lfs", path.parent / "lfs"))
        return found


def _copy_git_directory(source: Path, target: Path, stores: _Stores) -> None:
    """Copy what git needs to work on the same history with other objects, refs and settings."""
    for name in ("objects/info", "objects/pack", "refs/heads", "refs/tags", "info", "logs/refs", "hooks"):
        (target / name).mkdir(parents=True, exist_ok=True)
    alternates = [stores.add(path) for path in _find_stores(source / "objects")]
    (target / "objects" / "info" / "alternates").write_text("".join(f"{path}\n" for path in alternates))
    (target / "config").write_text(_render_settings(_read_settings(source / "config")) + _OWN_SETTINGS)
    if (source / "config.worktree").is_file():
        (target / "config.worktree").write_text(_render_settings(_read_settings(source / "config.worktree")))
    _write_refs(source, target)
    _copy_state(source, target)
    for name in _COMMON_FILES:
        if name != "packed-refs":
            _copy_file(source / name, target / name)


def _copy_worktree(source: Path, target: Path, *, whole: bool) -> None:
    """Copy what belongs to a linked worktree; of others only what git lists."""
    target.mkdir(parents=True)
    for name in ("commondir", "gitdir", "HEAD", "locked"):
        _copy_file(source / name, target / name)
    if whole:
        (target / "logs").mkdir()
        _copy_state(source, target)
        if (source / "config.worktree").is_file():
            (target / "config.worktree").write_text(_render_settings(_read_settings(source / "config.worktree")))
        _copy_file(source / "info" / "sparse-checkout", target / "info" / "sparse-checkout")


def _copy_state(source: Path, target: Path) -> None:
    for name in _STATE_FILES:
        _copy_file(source / name, target / name)
    for path in source.glob("sharedindex.*"):
        _copy_file(path, target / path.name)
    for name in _STATE_DIRECTORIES:
        if (source / name).is_dir():
            shutil.copytree(source / name, target / name, symlinks=True)


def _copy_file(source: Path, target: Path) -> None:
    """Copy a file with its time: git compares the time of the index with those of files."""
    if source.is_file() and not source.is_symlink():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)


def _find_stores(objects: Path) -> Iterator[Path]:
    """An object store, and those that its alternates name."""
    unseen, seen = [objects], set()
    while unseen:
        store = Path(os.path.realpath(unseen.pop(0)))
        if store in seen or not store.is_dir():
            continue
        seen.add(store)
        yield store
        alternates = store / "info" / "alternates"
        if alternates.is_file():
            lines = [line for line in alternates.read_text(errors="surrogateescape").splitlines() if line]
            unseen += [store / line for line in lines if not line.startswith("#")]


def _find_modules(git_dir: Path) -> Iterator[Path]:
    """The git directories of submodules in a git directory, also nested ones."""
    for directory, names, _ in os.walk(git_dir / "modules"):
        path = Path(directory)
        if (path / "HEAD").is_file() and (path / "objects").is_dir():
            yield path
            # Only `modules` below it can have others.
            names[:] = [name for name in names if name == "modules"]


def _list_directory(path: Path) -> list[Path]:
    return sorted(one for one in path.iterdir() if one.is_dir()) if path.is_dir() else []


def _write_refs(source: Path, target: Path) -> None:
    """Write all refs of the user, except Ralph's own, as packed refs.

    The file has no header: git needs none, and GitPython refuses one that does not promise peeled tags.
    """
    git = Git(source, {"GIT_DIR": str(source)})
    listed = git.run("for-each-ref", "--format=%(objectname) %(refname)").out
    lines = [line for line in listed.splitlines() if not line.partition(b" ")[2].startswith(_OWN_REFS.encode())]
    (target / "packed-refs").write_bytes(b"".join(line + b"\n" for line in lines))


def _read_settings(file: Path) -> list[tuple[str, str]]:
    """The settings in a file, without those of files that it includes."""
    if not file.is_file():
        return []
    listed = Git(file.parent).run("config", "--file", str(file), "--no-includes", "--null", "--list", ok=(0, 1, 128))
    pairs = []
    for item in listed.names:
        key, separator, value = item.partition("\n")
        pairs.append((key, value if separator else "true"))
    return pairs


def _render_settings(settings: list[tuple[str, str]]) -> str:
    lines = []
    for key, value in settings:
        section, _, rest = key.partition(".")
        subsection, _, name = rest.rpartition(".")
        if section != "core" and section not in _SECTIONS:
            continue
        if section == "core" and name not in _CORE:
            continue
        if key.startswith("remote.") and name in ("url", "pushurl"):
            value = _without_password(value)
        title = f'{section} "{_escape(subsection)}"' if subsection else section
        lines.append(f'[{title}]\n\t{name} = "{_escape(value)}"\n')
    return "".join(lines)


def _without_password(url: str) -> str:
    scheme, separator, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    return (
        f"{scheme}://{host.rpartition('@')[2]}{slash}{path}" if separator and "@" in host and scheme != "ssh" else url
    )


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")


def read_refs(directory: Path) -> dict[str, str]:
    """The refs of a git directory, read as text. Git itself must not run there: its settings are the agent's."""
    refs: dict[str, str] = {}
    for line in (_read_small(directory / "packed-refs", 64 << 20) or "").splitlines():
        sha, _, name = line.partition(" ")
        if is_object_id(sha) and name.startswith("refs/"):
            refs[name] = sha
    for folder, names, files in os.walk(directory / "refs"):
        names[:] = [name for name in names if not os.path.islink(os.path.join(folder, name))]
        for file in files:
            path = Path(folder, file)
            sha = (_read_small(path) or "").strip()
            if is_object_id(sha):
                refs[path.relative_to(directory).as_posix()] = sha
    return refs


def is_object_id(text: str) -> bool:
    """Whether a text is the full id of an object."""
    return len(text) in (40, 64) and all(sign in "0123456789abcdef" for sign in text)


def _read_small(path: Path, limit: int = 4096) -> str:
    """A small regular file as text; empty if it is missing, a link, or larger."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return ""
        data = file.read(limit + 1)
    return data.decode(errors="surrogateescape") if len(data) <= limit else ""


def _describe(path: Path) -> list[int] | None:
    try:
        found = path.lstat()
    except OSError:
        return None
    return [found.st_size, found.st_mtime_ns, found.st_ino]


def read_head(git_dir: Path) -> str:
    """What HEAD names: a branch (`refs/heads/...`), or a commit; empty if it cannot be read."""
    text = _read_small(git_dir / "HEAD").strip()
    if text.startswith("ref: refs/heads/"):
        return text.removeprefix("ref: ")
    return text if is_object_id(text) else ""


def select_branches(refs: Mapping[str, str]) -> dict[str, str]:
    """The branches and tags among refs."""
    return {name: sha for name, sha in refs.items() if name.startswith(("refs/heads/", "refs/tags/"))}
