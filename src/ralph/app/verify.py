"""Verify a criterion once, without a run: compile it, and run its checks."""

import asyncio
import os
import tempfile
from pathlib import Path

from ralph.app.runs import refuse_inside_a_turn
from ralph.core.checks import Verdict
from ralph.core.redaction import find_secrets
from ralph.store.runs import Project
from ralph.supervisor.client import KeeperClient
from ralph.verify.criterion import compile_criterion
from ralph.verify.runner import CheckRunner, check_environment


def verify_criterion(project: Project, criterion: str, timeout: float = 600.0) -> Verdict:
    """Run the checks that a criterion asks for on the files as they are, each for at most `timeout` seconds."""
    refuse_inside_a_turn("an agent cannot verify its own work this way", "run the command of the check yourself")
    checks = compile_criterion(criterion, timeout, project.work_dir).checks

    async def run(directory: Path) -> Verdict:
        keeper = KeeperClient(directory)
        keeper.attach()
        try:
            runner = CheckRunner(
                run_dir=directory,
                run_id="verify",
                workspace=project.work_dir,
                keeper=keeper,
                environment=check_environment(os.environ),
                secrets=tuple(find_secrets(os.environ)),
            )
            return await runner.run("verify", checks)
        finally:
            await keeper.close()

    with tempfile.TemporaryDirectory(prefix="ralph-verify-") as directory:
        return asyncio.run(run(Path(directory)))
