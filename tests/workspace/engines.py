"""Engines for tests: what the kernel has of the world for work side by side, with real git and a real keeper."""

import os
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ralph.agents import registry
from ralph.app.start import WorkLocation, create_run
from ralph.core.checks import Check
from ralph.core.events import Merge, MergeEnded
from ralph.core.prompt import Prompt
from ralph.core.turns import Turn, TurnRequest, TurnResult
from ralph.documents.run_record import AgentSelection, AgentSpec, RunRecord, TreeSettings
from ralph.store.runs import Project, RunDir
from ralph.supervisor.client import KeeperClient
from ralph.verify.runner import CheckRunner, check_environment
from ralph.verify.verifier import VerdictSettings, Verifier
from ralph.workspace.local import LocalTurns
from ralph.workspace.merger import Lander, Merger
from ralph.workspace.turn_files import TurnFiles
from ralph.workspace.workspaces import OpenWorktree, Workspaces

AGENT = AgentSpec("command", ("/bin/sh", "-s"))
"""It does what its prompt says."""


def git(cwd: Path, *args: str) -> str:
    identity = ("-c", "user.name=User", "-c", "user.email=user@example.org")
    done = subprocess.run(["git", *identity, *args], cwd=cwd, capture_output=True, check=True)
    return os.fsdecode(done.stdout).rstrip("\n")


def write(root: Path, files: dict[str, str]) -> None:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)


def begin(
    root: Path, location: WorkLocation = WorkLocation.BRANCH, tree_settings: TreeSettings | None = None, **more: Any
) -> RunDir:
    """A run whose tasks have worktrees."""
    record = RunRecord(
        "",
        "graph",
        "the task",
        "",
        (),
        AgentSelection((AGENT,)),
        time.time(),
        tree_settings=tree_settings or TreeSettings(),
        **more,
    )
    return create_run(Project(root), record, location)[0]


@dataclass
class Engine:
    """One engine of a run: what it remembers is gone with it."""

    root: Path
    run: RunDir
    workspaces: Workspaces
    merger: Merger
    turns: int = 0

    @classmethod
    def of(cls, root: Path, run: RunDir, keeper: KeeperClient | None = None, **changes: Any) -> "Engine":
        record, keeper = replace(run.record(), **changes), keeper or KeeperClient(run.path)
        environment = dict(os.environ)
        agents = {AGENT.label: registry.make_adapter(AGENT, {})}
        desk = TurnFiles(root, ())
        turns = LocalTurns(
            run.path, record, root, root, desk, keeper, agents, {"repair": "", "continue": ""}, environment
        )
        runner = CheckRunner(run.path, run.id, root, keeper, check_environment(environment))
        workspaces = Workspaces(turns, Verifier(runner, None, VerdictSettings()), runner, record)
        return cls(root, run, workspaces, Merger(workspaces, record.base))

    @property
    def branch(self) -> str:
        return self.workspaces.record.branch

    @property
    def lander(self) -> Lander:
        return Lander(self.root, self.workspaces.record, self.merger)

    async def turn(self, name: str, script: str, key: str = "", *, merges_run_branch: bool = False) -> TurnResult:
        """A turn of an agent in a workspace. The agent is a shell that runs its prompt."""
        self.turns += 1
        request = TurnRequest(
            key or f"turn-{self.turns}",
            "executor",
            # Ralph adds a paragraph for agents without hooks behind it.
            Prompt.of(f"{script}\nexit"),
            worktree=name,
            merges_run_branch=merges_run_branch,
        )
        return await self.workspaces.run(Turn(self.turns, 1, request, agent=AGENT.label), lambda event: None)

    async def site(self, name: str, files: dict[str, str]) -> OpenWorktree:
        """A workspace in which an agent has worked."""
        site = await self.workspaces.open(name)
        write(site.tree.path, files)
        self.workspaces.save(site, f"work in {name}")
        return site

    async def merge(self, name: str, *commands: str, key: str = "merge") -> MergeEnded:
        return await self.merger.merge(Merge(key, name, f"task {name}", tuple(Check(command) for command in commands)))

    def files(self) -> set[str]:
        """The files on the branch of the run."""
        return set(git(self.root, "ls-tree", "-r", "-z", "--name-only", self.branch).split("\0")) - {""}


@asynccontextmanager
async def engine(root: Path, run: RunDir, **changes: Any) -> AsyncIterator[Engine]:
    """An engine with a keeper, which goes with it."""
    keeper = KeeperClient(run.path)
    try:
        yield Engine.of(root, run, keeper, **changes)
    finally:
        await keeper.close()
