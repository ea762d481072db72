"""The tasks of a run in their worktrees, merged onto its branch, as the engine does it with real git."""

from dataclasses import dataclass
from pathlib import Path

from repos import RUN, git, write

from ralph.git import merge, worktree
from ralph.git.command import Git
from ralph.git.merge import Candidate
from ralph.git.worktree import Worktree

BRANCH = f"ralph/{RUN}/run"


@dataclass
class Run:
    """A run whose tasks have worktrees."""

    root: Path
    scratch: Worktree | None = None

    @classmethod
    def begin(cls, root: Path) -> "Run":
        worktree.create_branch(root, RUN)
        return cls(root)

    @property
    def tip(self) -> str:
        return merge.read_position(Git(self.root), BRANCH)

    def task(self, name: str, files: dict[str, str | bytes] | None = None) -> Worktree:
        """The worktree of a task, with work in it that is saved."""
        tree = worktree.create_for_task(self.root, RUN, f"{name}/1", self.tip)
        if files:
            write(tree.path, files)
            self.save(tree)
        return tree

    def save(self, tree: Worktree, *leaving_out: str) -> str:
        return merge.save_worktree(tree, "work", leaving_out=leaving_out, known=(git(self.root, "rev-parse", "main"),))

    def attempt(self, tree: Worktree) -> Candidate:
        onto = self.tip
        self.scratch = self.scratch or worktree.create_scratch(self.root, RUN, onto)
        work = git(self.root, "rev-parse", tree.branch)
        return merge.try_merge(self.scratch, onto, work, f"merge\n\nRalph-Task: {tree.name}\n", tree)

    def merge(self, tree: Worktree) -> str:
        """Merge the work of a task; the branch of the run afterwards."""
        candidate = self.attempt(tree)
        assert candidate.commit, candidate.conflicts
        merge.advance_branch(Git(self.root), BRANCH, self.tip, candidate.commit)
        return candidate.commit

    def files(self, commit: str = BRANCH) -> set[str]:
        """The files on the branch of the run."""
        return set(git(self.root, "ls-tree", "-r", "-z", "--name-only", commit).split("\0")) - {""}

    def text(self, path: str, commit: str = BRANCH) -> str:
        return git(self.root, "show", f"{commit}:{path}")
