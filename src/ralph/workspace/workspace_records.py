"""What is written down of the workspaces of a run: an engine that was killed finds them again, half made or whole."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from ralph.core.codec import from_json, to_json
from ralph.git.merging import Brought
from ralph.store.files import read_limited, to_bytes, to_text, write_atomic

OWN = "own"
"""What the run's own workspace is called where its name is needed."""


@dataclass(frozen=True)
class WorkspaceRecord:
    """What is written down of a workspace."""

    branch: str
    base: str
    """The commit that it started from."""
    brought: Brought | None = None
    taken_in: str = ""
    """Where the branch of the run stood when it was last brought in."""
    brought_for: str = ""
    """The work for which it was brought in."""
    ready: str = ""
    """The commit on which the set-up commands were last run; empty where they were not."""
    size: int = 0
    """What it took up then, in bytes."""
    schema: int = 1


@dataclass(frozen=True)
class WorkspaceRecords:
    """The notes of one run, a file for each workspace, with a directory beside it."""

    directory: Path

    def read(self, name: str) -> WorkspaceRecord | None:
        """What is noted of a workspace; None where it was not made yet."""
        return _read(self._file(name))

    def write(self, name: str, noted: WorkspaceRecord) -> None:
        """Note it."""
        self.directory.mkdir(parents=True, exist_ok=True)
        write_atomic(self._file(name), to_bytes(to_json(noted)))

    def home(self, name: str) -> Path:
        """Where more is kept of a workspace."""
        return self.directory / name.replace("/", ".")

    def forget(self, name: str) -> None:
        """The workspace is no more."""
        shutil.rmtree(self.home(name), ignore_errors=True)
        self._file(name).unlink(missing_ok=True)

    def names(self) -> list[str]:
        """The workspaces of tasks that were made, and not removed again."""
        stems = (file.stem for file in self.directory.glob("*.json"))
        return [stem.replace(".", "/") for stem in stems if stem != OWN]

    def _file(self, name: str) -> Path:
        return self.directory / f"{name.replace('/', '.')}.json"


def _read(file: Path) -> WorkspaceRecord | None:
    try:
        return from_json(WorkspaceRecord, to_text(read_limited(file)), str(file), "restore the file, or abort the run")
    except FileNotFoundError:
        return None


def room_for(root: Path, most: int | None) -> str:
    """Why there is no room for another worktree; empty where there is."""
    if most is None:
        return ""
    sizes = [noted.size for file in root.glob(".ralph/runs/*/workspaces/*.json") if (noted := _read(file))]
    needed = sum(sizes) + max(sizes, default=0)
    if needed <= most:
        return ""
    gib = 1 << 30
    return (
        f"the worktrees take {sum(sizes) / gib:.1f} GiB, and `workspace.disk_gib` allows {most / gib:.1f};"
        " `ralph worktrees --prune` removes those that are merged"
    )
