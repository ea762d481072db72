"""Setting up worktrees: files that git does not hold, setup commands, and a record of each.

After a kill, the next engine finds the worktrees by these records, complete or not.
"""

import asyncio
import contextlib
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from ralph.core.checks import Check
from ralph.core.codec import former_name, from_json, to_json
from ralph.core.errors import RalphError
from ralph.core.outcomes import Outcome
from ralph.documents.run_record import TreeSettings
from ralph.git.command import Git
from ralph.git.merge import UnresolvedMerge
from ralph.git.worktree import Worktree
from ralph.store.files import is_inside, read_limited, to_bytes, to_text, write_atomic
from ralph.verify.runner import CheckRunner
from ralph.workspace.local import SHARED_DIRECTORY

_MANIFESTS = frozenset(
    (
        *("package.json", "package-lock.json", "npm-shrinkwrap.json", "yarn.lock", "pnpm-lock.yaml", "bun.lockb"),
        *("pyproject.toml", "setup.py", "setup.cfg", "requirements.txt", "uv.lock", "poetry.lock", "Pipfile.lock"),
        *("go.mod", "go.sum", "Cargo.toml", "Cargo.lock", "pom.xml", "build.gradle", "Gemfile.lock", "composer.lock"),
    )
)
"""Files that name what a project needs. If one of them changes, a worktree is set up again."""


class SetupError(RalphError):
    """A worktree could not be made ready."""

    outcome = Outcome.FAILED
    in_new_worktree = True
    """Whether no turn has worked in the worktree yet, so that the settings are at fault."""


@dataclass(frozen=True)
class WorktreeSetup:
    """Sets up worktrees by the settings of a project."""

    root: Path
    tree_settings: TreeSettings

    def paths(self, tree: Worktree) -> tuple[str, ...]:
        """The paths in a worktree that are not part of the work, relative to its top."""
        inside = tree.workspace.relative_to(tree.path)
        linked = (SHARED_DIRECTORY,) if (tree.workspace / SHARED_DIRECTORY).is_symlink() else ()
        return tuple(
            (inside / name).as_posix() for name in (*self.tree_settings.copy, *self.tree_settings.share, *linked)
        )

    def size(self, tree: Worktree) -> int:
        """The bytes of a worktree on disk, if they are limited; else 0."""
        return _measure_size(tree.path) if self.tree_settings.most_bytes is not None else 0

    def copy_files(self, tree: Worktree) -> None:
        """Copy untracked files into a worktree, and link shared directories. Existing files are not replaced."""
        for name in (*self.tree_settings.copy, *self.tree_settings.share):
            if not is_inside(self.root / name, self.root):
                # What is there may be a link that an agent made, or that came with a clone.
                what = f"{name} leads out of the project, to {(self.root / name).resolve()}"
                todo = "put the file or directory itself in the place of the link, or correct `workspace` in ralph.yml"
                raise SetupError(what, where=str(self.root / name), todo=todo)
        try:
            for name in self.tree_settings.copy:
                source, target = self.root / name, tree.workspace / name
                if source.exists() and not os.path.lexists(target):
                    _copy_whole(source, target, tree.workspace / ".ralph")
            for name in self.tree_settings.share:
                source, target = self.root / name, tree.workspace / name
                if not os.path.lexists(target):
                    source.mkdir(parents=True, exist_ok=True)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.symlink_to(source, target_is_directory=True)
        except OSError as error:
            todo = "correct `workspace.copy` or `workspace.share` in ralph.yml"
            raise SetupError(
                f"{name} cannot be put into a worktree: {error}", where=str(tree.path), todo=todo
            ) from error

    async def set_up(self, tree: Worktree, runner: CheckRunner, name: str, since: str) -> str:
        """Run the setup commands if they were not run in a worktree yet, or a manifest has changed; return the commit."""
        head = await asyncio.to_thread(Git(tree.path).resolve_commit)
        commands = self.tree_settings.setup
        if not commands or (since and not await asyncio.to_thread(_must_set_up_again, Git(tree.path), since, head)):
            return since or head
        checks = [Check(command, timeout=self.tree_settings.setup_seconds) for command in commands]
        runner = replace(runner, workspace=tree.workspace)
        verdict = await runner.run(f"setup-{name.replace('/', '-')}", checks)
        if bad := next((result for result in verdict.results if not result.passed), None):
            last_line = (bad.output.strip().splitlines() or [""])[-1]
            todo = (
                f"try it in {tree.path} until it passes, then resume; if the command is wrong, correct `workspace.setup` in"
                " ralph.yml and start a new run"
            )
            what = f"the setup command `{bad.command}` failed: {bad.reason}; {last_line[:300]}"
            error = SetupError(what, todo=todo)
            error.in_new_worktree = not since
            raise error
        return head


def _copy_whole(source: Path, target: Path, aside: Path) -> None:
    """Copy a file or a directory in one step, so that a kill does not leave an incomplete copy."""
    temporary = aside / f"copy-{os.urandom(4).hex()}"
    temporary.parent.mkdir(parents=True, exist_ok=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, temporary, symlinks=True)
    else:
        shutil.copy2(source, temporary)
    temporary.rename(target)


def with_git_ceiling(environment: Mapping[str, str], tree: Worktree) -> dict[str, str]:
    """An environment in which git does not look for a repository above a worktree, where the user's is."""
    fences = [environment.get("GIT_CEILING_DIRECTORIES", ""), str(tree.path.parent)]
    return {**environment, "GIT_CEILING_DIRECTORIES": os.pathsep.join(filter(None, fences))}


def _must_set_up_again(git: Git, since: str, head: str) -> bool:
    """Whether a manifest has changed between two commits."""
    if since == head:
        return False
    return any(Path(name).name in _MANIFESTS for name in git.run("diff", "--name-only", "-z", since, head).names)


def _measure_size(path: Path) -> int:
    """The bytes of a directory on disk. Links are not followed."""
    size = 0
    for directory, _, names in os.walk(path):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                # POSIX counts `st_blocks` in units of 512 bytes on every file system.
                size += os.lstat(os.path.join(directory, name)).st_blocks * 512
    return size


RUN_WORKTREE = "own"
"""The name of the run's own workspace in records."""


@dataclass(frozen=True)
class WorktreeRecord:
    """How far the worktree of a task is set up, and what was merged into it."""

    branch: str
    base: str
    """The commit that it started from."""
    unresolved_merge: UnresolvedMerge | None = field(default=None, metadata=former_name("brought"))
    run_branch_at: str = field(default="", metadata=former_name("taken_in"))
    """The tip of the run's branch when it was last merged into the workspace."""
    merged_for: str = field(default="", metadata=former_name("brought_for"))
    """The work for which it was merged in."""
    ready: str = ""
    """The commit on which the setup commands were last run; empty if they were not."""
    size: int = 0
    """Its size then, in bytes."""
    schema: int = 1


@dataclass(frozen=True)
class WorktreeRecords:
    """The records of one run: a file for each worktree, and a directory beside it."""

    directory: Path

    def read(self, name: str) -> WorktreeRecord | None:
        """The record of a workspace; None if it was not made yet."""
        return _read(self._record_path(name))

    def write(self, name: str, record: WorktreeRecord) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        write_atomic(self._record_path(name), to_bytes(to_json(record)))

    def home(self, name: str) -> Path:
        """The directory for other files about a workspace."""
        return self.directory / name.replace("/", ".")

    def forget(self, name: str) -> None:
        """Delete the record of a workspace that was removed."""
        shutil.rmtree(self.home(name), ignore_errors=True)
        self._record_path(name).unlink(missing_ok=True)

    def names(self) -> list[str]:
        """The workspaces of tasks that exist."""
        stems = (file.stem for file in self.directory.glob("*.json"))
        return [stem.replace(".", "/") for stem in stems if stem != RUN_WORKTREE]

    def _record_path(self, name: str) -> Path:
        return self.directory / f"{name.replace('/', '.')}.json"


def _read(file: Path) -> WorktreeRecord | None:
    try:
        return from_json(WorktreeRecord, to_text(read_limited(file)), str(file), "restore the file, or abort the run")
    except FileNotFoundError:
        return None


def explain_no_room(root: Path, most: int | None) -> str:
    """Why there is no room for another worktree; empty if there is."""
    if most is None:
        return ""
    records = [_read(file) for file in root.glob(".ralph/runs/*/workspaces/*.json")]
    sizes = [record.size for record in records if record]
    needed = sum(sizes) + max(sizes, default=0)
    if needed <= most:
        return ""
    gib = 1 << 30
    return (
        f"the worktrees take {sum(sizes) / gib:.1f} GiB, but `workspace.disk_gib` allows {most / gib:.1f};"
        " `ralph worktrees --prune` removes those that are merged"
    )
