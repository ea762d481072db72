"""Runs checks on a Ray cluster, so that this machine only coordinates (`pool: {kind: ray, checks: true}`).

The tree that is judged travels by git, as for a turn. A worker checks it out into a tree in which no agent works, runs the setup
commands of the project and then all checks of one verdict, under its own keeper and in its own sandbox. The verdict and the
output of each check come back by value. What checks write into the tree stays there, and is not part of the work.
"""

import asyncio
import contextlib
import os
import pickle
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ralph.core.checks import Check, CheckResult, CheckStatus, Verdict
from ralph.core.codec import from_json
from ralph.core.errors import AgentUnavailableError
from ralph.documents.run_record import RunRecord
from ralph.git import transfer
from ralph.store.files import write_atomic
from ralph.verify.runner import CheckRunner
from ralph.workspace.cluster_client import ClusterClient, ClusterLost, WorkerGone
from ralph.workspace.cluster_placement import (
    MAX_LOSSES,
    SentTree,
    TreeOrder,
    list_needs,
    name_project,
    place_worker,
    send_commit,
)

LABEL_NAME = "checks"
"""The name under which the user gives labels for checks."""
_ROOM_TREE = "check-room"
_END_SECONDS = 15.0


@dataclass(frozen=True, kw_only=True)
class CheckOrder(TreeOrder):
    """The checks of one verdict, for a worker."""

    key: str
    checks: tuple[Check, ...]
    is_room: bool
    """Whether they run in a clean room: a checkout in which nothing has run before."""


@dataclass(frozen=True)
class RayChecks:
    """Runs the checks of one run on a cluster."""

    record: RunRecord
    root: Path
    run_dir: Path
    cluster: ClusterClient
    room: Path | None = None
    """The clean checkout to send, in place of the work tree."""

    def open_room(self, checkout: Path) -> "RayChecks":
        """The same for checks in a clean room, whose files are in that directory."""
        return replace(self, room=checkout)

    async def run(self, runner: CheckRunner, key: str, checks: Sequence[Check]) -> Verdict:
        """Run checks on a worker; if it is lost, on another one."""
        why = ""
        for _ in range(MAX_LOSSES):
            try:
                return await self._run_once(runner, key, checks)
            except WorkerGone as gone:
                why = f"the worker was lost: {gone}"
                self.cluster.note_loss()
            except ClusterLost:
                why = "the connection to the cluster was lost"
                self.cluster.note_loss()
                with contextlib.suppress(AgentUnavailableError):
                    await self.cluster.reconnect()
            except AgentUnavailableError as error:
                why = f"{error.what}; {error.todo}"
                break
        results = [
            CheckResult(check.title, CheckStatus.COULD_NOT_RUN, 0.0, reason=why, command=check.command)
            for check in checks
        ]
        return Verdict(tuple(results))

    async def _run_once(self, runner: CheckRunner, key: str, checks: Sequence[Check]) -> Verdict:
        worker = f"{name_project(self.record, self.run_dir)}/check-{key}-{os.urandom(4).hex()}"
        needs = list_needs(self.record.pool, (LABEL_NAME,))
        try:
            found = await place_worker(
                self.cluster,
                worker,
                needs,
                run=self.record.id,
                stopped=asyncio.Event(),
                report=lambda text: None,
                ends_with_engine=True,
            )
            assert found  # nothing sets the event
            order = await self._send(worker, runner.workspace, key, checks)
            reply = await self.cluster.call(worker, "run_checks", pickle.dumps(order))
        finally:
            await self._end(worker)
        for name, data in reply["logs"].items():
            directory = self.run_dir / "checks" / name
            directory.mkdir(parents=True, exist_ok=True)
            write_atomic(directory / "stdout", data)
        verdict = from_json(Verdict, reply["verdict"], f"the verdict of {found.place}")
        # The prompt of the next turn quotes the output. Paths of the worker's own tree would not help anybody.
        return Verdict(
            tuple(
                replace(
                    result, output=result.output.replace(reply["workspace"], str(runner.workspace)), place=found.place
                )
                for result in verdict.results
            )
        )

    async def _send(self, worker: str, workspace: Path, key: str, checks: Sequence[Check]) -> CheckOrder:
        """Send the tree to a worker; return what to do with it."""
        tree = SentTree.find(self.record, self.root, workspace)
        message = f"ralph: before the checks {key}"
        if self.room is None:
            commit = await asyncio.to_thread(tree.commit_content, message)
        else:
            commit = await asyncio.to_thread(transfer.commit_directory, tree.repository, self.room, message)
        ref = f"refs/ralph-work/{self.record.id}/remote-checks/{re.sub(r'[^A-Za-z0-9_-]', '-', key)}"
        try:
            await send_commit(self.cluster, worker, tree, ref, commit, self.run_dir)
        finally:
            tree.repository.git.run("update-ref", "-d", ref)
        prefix = tree.prefix.as_posix()
        return CheckOrder(
            record=self.record,
            project=name_project(self.record, self.run_dir),
            repository=tree.repository_name,
            commit=commit,
            ref=ref,
            branch=tree.branch,
            prefix="" if prefix == "." else prefix,
            tree_name=_ROOM_TREE if self.room else f"check-{tree.repository.top.name}",
            identity=tree.identity,
            key=key,
            checks=tuple(checks),
            is_room=self.room is not None,
        )

    async def _end(self, worker: str) -> None:
        """End the checks and their worker, also if the engine stops in the middle of them."""
        with contextlib.suppress(WorkerGone, ClusterLost, AgentUnavailableError, TimeoutError):
            async with asyncio.timeout(_END_SECONDS):
                await self.cluster.call(worker, "stop_checks")
                await self.cluster.kill(worker)
