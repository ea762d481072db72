"""What a worktree needs before anybody can work in it: files that git does not hold, and what set-up commands make."""

import asyncio
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ralph.core.checks import Check
from ralph.core.errors import RalphError
from ralph.core.outcomes import Outcome
from ralph.documents.run_record import TreeSettings
from ralph.git.command import Git
from ralph.git.worktree import Worktree
from ralph.verify.runner import CheckRunner
from ralph.workspace.local import SHARED

_MANIFESTS = frozenset(
    (
        *("package.json", "package-lock.json", "npm-shrinkwrap.json", "yarn.lock", "pnpm-lock.yaml", "bun.lockb"),
        *("pyproject.toml", "setup.py", "setup.cfg", "requirements.txt", "uv.lock", "poetry.lock", "Pipfile.lock"),
        *("go.mod", "go.sum", "Cargo.toml", "Cargo.lock", "pom.xml", "build.gradle", "Gemfile.lock", "composer.lock"),
    )
)
"""Files that say what a project needs: where one of them changes, a worktree is set up again."""


class SetupError(RalphError):
    """A worktree could not be made ready."""

    outcome = Outcome.FAILED


@dataclass(frozen=True)
class WorktreeSetup:
    """What a project wants in its worktrees."""

    root: Path
    trees: TreeSettings

    def paths(self, tree: Worktree) -> tuple[str, ...]:
        """What is in a worktree and is no work, by its paths from the top of it."""
        place = tree.workspace.relative_to(tree.path)
        linked = (SHARED,) if (tree.workspace / SHARED).is_symlink() else ()
        return tuple((place / name).as_posix() for name in (*self.trees.copy, *self.trees.share, *linked))

    def size(self, tree: Worktree) -> int:
        """What a worktree takes up, where that is limited."""
        return _size(tree.path) if self.trees.most_bytes is not None else 0

    def copy_files(self, tree: Worktree) -> None:
        """Copy untracked files into a worktree, and link what is shared; never over what is there."""
        try:
            for name in self.trees.copy:
                source, target = self.root / name, tree.workspace / name
                if source.exists() and not os.path.lexists(target):
                    _copy(source, target, tree.workspace / ".ralph")
            for name in self.trees.share:
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
        """Run the set-up commands in a worktree where they were not, or where what they depend on has changed."""
        head = await asyncio.to_thread(Git(tree.path).commit)
        commands = self.trees.setup
        if not commands or (since and not await asyncio.to_thread(_needs_again, Git(tree.path), since, head)):
            return since or head
        checks = [Check(command, timeout=self.trees.setup_seconds) for command in commands]
        verdict = await runner.run(f"setup-{name.replace('/', '-')}", checks)
        if bad := next((result for result in verdict.results if not result.passed), None):
            said = bad.output.strip().splitlines()[-1:] or [""]
            todo = f"try it in {tree.path}, then correct `workspace.setup` in ralph.yml"
            raise SetupError(f"the set-up command `{bad.command}` failed: {bad.reason}; {said[0][:300]}", todo=todo)
        return head


def _copy(source: Path, target: Path, aside: Path) -> None:
    """Copy a file or a directory in one step: half a copy, left by a kill, would be taken for the whole."""
    half = aside / f"copy-{os.urandom(4).hex()}"
    half.parent.mkdir(parents=True, exist_ok=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, half, symlinks=True)
    else:
        shutil.copy2(source, half)
    half.rename(target)


def fenced(environment: Mapping[str, str], tree: Worktree) -> dict[str, str]:
    """An environment in which git never looks for a repository above a worktree: the user's is there."""
    fences = [environment.get("GIT_CEILING_DIRECTORIES", ""), str(tree.path.parent)]
    return {**environment, "GIT_CEILING_DIRECTORIES": os.pathsep.join(filter(None, fences))}


def _needs_again(git: Git, since: str, head: str) -> bool:
    """Whether something that set-up commands depend on has changed between two commits."""
    if since == head:
        return False
    return any(Path(name).name in _MANIFESTS for name in git.run("diff", "--name-only", "-z", since, head).names)


def _size(path: Path) -> int:
    """What a directory takes up; links are not followed."""
    return sum(
        os.lstat(os.path.join(top, name)).st_blocks * 512
        for top, _, names in os.walk(path)
        for name in names
        if os.path.lexists(os.path.join(top, name))
    )
