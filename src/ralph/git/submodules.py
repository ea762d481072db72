"""Submodules in snapshots.

Git stores only the commit of a submodule. A snapshot stores the files of a submodule as if they belonged to the repository
around it, so that they can be compared and restored like all others. It leaves out what the submodule ignores. The commit at
which each submodule was is in the message of the snapshot.
"""

import os
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from ralph.git.command import Git, Repository, disk, printable
from ralph.git.tree_index import NESTED, PrivateIndex

_LINE = re.compile(r"^Ralph-Submodule: ([0-9a-f]*) (.+)$", re.M)


def find_covered_submodules(git: Git, repository: Repository, latest: str, *, with_submodules: bool) -> tuple[str, ...]:
    """The submodules whose files are in the snapshots up to the latest. A submodule comes before those inside it.

    The first snapshot decides. If there is none yet and they are wanted, these are all that are checked out.
    """
    is_worth_a_look = (repository.top / ".gitmodules").exists() or (repository.common / "modules").is_dir()
    if repository.private or not is_worth_a_look:
        return ()
    if latest:
        first = git.run("rev-list", "--max-parents=0", latest).text
        return tuple(parse_record(git.run("cat-file", "commit", first).text))
    if not with_submodules:
        return ()
    return tuple(path for path in _find_below(repository.git, repository.top) if path.isprintable())


def _find_below(git: Git, top: Path) -> Iterator[str]:
    """The paths of the submodules that are checked out in a tree, and in each other."""
    for row in git.run("ls-files", "--stage", "-z").names:
        fields, path = row.split("\t", 1)
        if fields.startswith(NESTED) and (top / path / ".git").exists():
            yield path
            yield from (f"{path}/{inner}" for inner in _find_below(Git(top / path), top / path))


def read_positions(top: Path, paths: tuple[str, ...]) -> dict[str, str]:
    """The commit at which each submodule is; empty if it is gone or has none."""
    found = {}
    for path in paths:
        is_there = (top / path / ".git").exists()
        found[path] = Git(top / path).resolve_commit() if is_there else ""
    return found


def format_record(positions: Mapping[str, str]) -> str:
    """The lines of a commit message that hold the positions of submodules."""
    return "".join(f"Ralph-Submodule: {commit} {path}\n" for path, commit in positions.items())


def parse_record(message: str) -> dict[str, str]:
    """The positions in a commit message; empty if it has none."""
    return {path: commit for commit, path in _LINE.findall(message)}


def describe_moved(top: Path, before: Mapping[str, str]) -> tuple[str, ...]:
    """A sentence for each submodule that is not at the commit at which it was."""
    sentences = []
    for path, now in read_positions(top, tuple(before)).items():
        was, name = before[path], printable(path)
        if now == was or not was:
            continue
        if not now:
            sentences.append(f"{name} is no longer a submodule: its files are restored, its git directory is not")
            continue
        back = f"`git -C {shlex.quote(path)} reset {was}` moves it back and changes no file"
        sentences.append(f"the submodule {name} is at the commit {now[:12]} and was at {was[:12]}; {back}")
    return tuple(sentences)


class IndexWithSubmodules(PrivateIndex):
    """Ralph's own index, with another one for each submodule. Their trees together are the tree of a snapshot."""

    def __init__(
        self,
        git: Git,
        repository: Repository,
        own: tuple[str, ...],
        file: Path,
        *,
        raw: bool,
        outputs: tuple[str, ...],
        submodules: tuple[str, ...],
    ) -> None:
        super().__init__(git, repository, (*own, *submodules), file, raw=raw, outputs=outputs)
        self.own_paths, self._submodules = own, submodules
        self._parts = {path: self._open_part(number, path) for number, path in enumerate(submodules)}
        self._whole_file = file.with_name(f"{file.name}.whole")
        self._composed: tuple[object, str] | None = None

    @property
    def whole(self) -> Git:
        """Git with an index that has the files of submodules, too."""
        return self.git.with_options(GIT_INDEX_FILE=str(self._whole_file))

    def tree(self, latest: str | None) -> str:
        """The work tree as it is now, with the files of submodules."""
        own = super().tree(latest)
        trees: dict[str, str] = {}
        for path, part in self._parts.items():
            place = self._repository.top / path
            if place.is_symlink() or not place.is_dir():
                continue
            trees[path] = part.tree(f"{latest}:{path}" if latest else None)
            self.skipped |= {f"{path}/{name}" for name in part.skipped}
            self.notices.update(dict.fromkeys(f"in {printable(path)}, {notice}" for notice in part.notices))
        return self._compose(own, trees)

    def files(self) -> set[str]:
        """All that it holds."""
        return set(self.whole.run("ls-files", "-z").names)

    def drop(self) -> None:
        """Delete it, and those of the submodules."""
        super().drop()
        self._composed = None
        for part in self._parts.values():
            part.drop()
        with disk(self._whole_file):
            self._whole_file.unlink(missing_ok=True)

    def _at(self, file: Path) -> PrivateIndex:
        return IndexWithSubmodules(
            self.git,
            self._repository,
            self.own_paths,
            file,
            raw=self.raw,
            outputs=self._outputs,
            submodules=self._submodules,
        )

    def _caches(self) -> list[Path]:
        caches = super()._caches()
        for part in self._parts.values():
            caches += part._caches()
        return caches

    def _claim(self, latest: str | None) -> None:
        super()._claim(latest)
        with disk(self._whole_file):
            # A killed git left it.
            self._whole_file.with_name(f"{self._whole_file.name}.lock").unlink(missing_ok=True)

    def _open_part(self, number: int, path: str) -> "_SubmoduleIndex":
        place = self._repository.top / path
        git = replace(self.git, cwd=place).with_options(GIT_WORK_TREE=str(place))
        inside = _list_below(path, self._submodules)
        outputs = _list_below(path, self._outputs)
        file = self._file.with_name(f"{self._file.name}.submodule-{number}")
        return _SubmoduleIndex(git, replace(self._repository, top=place), inside, file, raw=self.raw, outputs=outputs)

    def _compose(self, own: str, trees: Mapping[str, str]) -> str:
        """One tree of the trees of the repository and of its submodules."""
        parts = (own, tuple(trees.items()))
        if self._composed and self._composed[0] == parts:
            return self._composed[1]
        self.whole.run("read-tree", own)
        for path, tree in trees.items():
            self.whole.run("read-tree", f"--prefix={path}/", tree)
        composed = self.whole.run("write-tree").text
        self._composed = (parts, composed)
        return composed


def _list_below(directory: str, paths: tuple[str, ...]) -> tuple[str, ...]:
    """The paths in a directory, relative to it."""
    return tuple(os.path.relpath(path, directory) for path in paths if path.startswith(f"{directory}/"))


class _SubmoduleIndex(PrivateIndex):
    """The index of one submodule's files. The objects are in the repository around the submodule."""

    def _seed(self, latest: str | None) -> None:
        """Start from the last snapshot. The submodule's own index names objects that the repository around it does not have."""
        self.drop()
        tree = self.git.run("rev-parse", "-q", "--verify", f"{latest}^{{tree}}", ok=(0, 1, 128)).text if latest else ""
        if tree:
            self.git.run("read-tree", tree)
        if tree and self.own:
            git = self.git.with_options(GIT_LITERAL_PATHSPECS="1")
            git.run("rm", "-r", "--quiet", "--force", "--cached", "--sparse", "--ignore-unmatch", "--", *self.own)
