"""Checks, the clean room and trials of merges on a real cluster."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from engines import Engine, begin, git, write

from ralph.app.start import WorkLocation
from ralph.core.checks import Check, CheckStatus
from ralph.core.events import MergeResult
from ralph.documents.run_record import PoolSpec, TreeSettings
from ralph.store.runs import RunDir
from ralph.supervisor.client import KeeperClient
from ralph.supervisor.processes import CHECK_MARK, find_marked
from ralph.verify.runner import CheckRunner
from ralph.workspace.cluster_client import ClusterClient
from ralph.workspace.ray_checks import RayChecks

if TYPE_CHECKING:
    from clusters import TestCluster

pytest.importorskip("ray")
from clusters import cluster_of, eventually

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cluster")]
RALPH = (sys.executable, "-P", "-m", "ralph")


@pytest.fixture(scope="module")
def cluster() -> Iterator["TestCluster"]:
    with cluster_of(one=("a",), two=("b",)) as made:
        yield made


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "repo"
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    write(root, {"a.txt": "one\n", ".gitignore": "*.log\n"})
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "first")
    return root


@asynccontextmanager
async def checks_on(
    root: Path, cluster: "TestCluster", *labels: str, setup: tuple[str, ...] = ()
) -> AsyncIterator[tuple[CheckRunner, RunDir]]:
    """What runs checks of one engine."""
    spec = PoolSpec("ray", cluster.address, labels={"checks": labels}, checks=True)
    run = begin(root, WorkLocation.HERE, tree_settings=TreeSettings(setup=setup), pool=spec)
    client, keeper = ClusterClient(spec, run.path / "cluster.log"), KeeperClient(run.path)
    pool = RayChecks(run.record(), root, run.path, client)
    try:
        yield CheckRunner(run.path, run.id, root, keeper, dict(os.environ), pool=pool), run
    finally:
        await keeper.close()
        await client.close()


def find_checks(run: RunDir) -> list[int]:
    return find_marked(CHECK_MARK, f"{run.id}/")


def test_checks_run_on_the_worker_that_their_label_names(root: Path, cluster: "TestCluster") -> None:
    async def main() -> None:
        async with checks_on(root, cluster, "b") as (runner, run):
            (root / "a.txt").write_text("changed\n")
            (root / "secret.log").write_text("ignored\n")
            commands = ("pwd; cat a.txt; touch left.txt", "test -e left.txt", "! test -e secret.log", "echo no; exit 3")
            verdict = await runner.run("k", [Check(command) for command in commands])
            passed, second, ignored, failed = verdict.results
            assert (passed.status, second.status, ignored.status) == (CheckStatus.PASSED,) * 3
            assert {result.place for result in verdict.results} == {"two"}
            assert (failed.status, failed.code, failed.output) == (CheckStatus.FAILED, 3, "no")
            # The log has what the worker printed; the prompt gets the paths of this machine.
            assert str(cluster.home / "two") in (run.path / passed.log).read_text()
            assert passed.output == f"{root}\nchanged"
            assert not (root / "left.txt").exists()
            assert not find_checks(run)

    asyncio.run(asyncio.wait_for(main(), 90))


def test_a_check_over_its_time_ends_with_everything_it_started(root: Path, cluster: "TestCluster") -> None:
    async def main() -> None:
        async with checks_on(root, cluster) as (runner, run):
            verdict = await runner.run("k", [Check("sleep 300 & sleep 300", timeout=1.0), Check("true")])
            assert verdict.results[0].reason == "still running after 1 s"
            assert verdict.results[1].passed
            assert not find_checks(run)

    asyncio.run(asyncio.wait_for(main(), 90))


def test_setup_commands_run_on_the_worker_and_their_failure_fails_the_checks(
    root: Path, cluster: "TestCluster"
) -> None:
    async def main() -> None:
        async with checks_on(root, cluster, "a", setup=("echo made > tool.log",)) as (runner, _):
            assert (await runner.run("k", [Check("cat tool.log")])).passed
            assert not (root / "tool.log").exists()
        async with checks_on(root, cluster, "a", setup=("echo oops; exit 7",)) as (runner, _):
            (result,) = (await runner.run("k", [Check("true")])).results
            assert result.status is CheckStatus.FAILED
            assert "the setup command `echo oops; exit 7` failed: exit code 7; oops" in result.reason

    asyncio.run(asyncio.wait_for(main(), 90))


def test_checks_on_a_killed_worker_run_again_on_another(root: Path, tmp_path: Path, cluster: "TestCluster") -> None:
    go, begun = tmp_path / "go", tmp_path / "begun"

    async def main() -> None:
        async with checks_on(root, cluster) as (runner, run):
            script = f"echo $$ >> {begun}; while [ ! -e {go} ]; do sleep 0.1; done"
            checking = asyncio.create_task(runner.run("k", [Check(script)]))
            await asyncio.to_thread(eventually, begun.exists)
            first = find_checks(run)
            for pid in (*cluster.find_turn_workers("one"), *cluster.find_turn_workers("two")):
                os.kill(pid, signal.SIGKILL)
            await asyncio.to_thread(eventually, lambda: len(begun.read_text().split()) == 2)
            await asyncio.to_thread(eventually, lambda: not set(find_checks(run)) & set(first))
            go.touch()
            assert (await checking).passed
            assert not find_checks(run)

    asyncio.run(asyncio.wait_for(main(), 150))


def test_checks_end_on_the_worker_when_the_engine_stops_them(
    root: Path, tmp_path: Path, cluster: "TestCluster"
) -> None:
    begun = tmp_path / "begun"

    async def main() -> None:
        async with checks_on(root, cluster) as (runner, run):
            checking = asyncio.create_task(runner.run("k", [Check(f"touch {begun}; sleep 300")]))
            await asyncio.to_thread(eventually, begun.exists)
            assert find_checks(run)
            checking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await checking
            assert not find_checks(run)

    asyncio.run(asyncio.wait_for(main(), 90))


def test_a_label_that_no_worker_has_says_why_checks_cannot_run(root: Path, cluster: "TestCluster") -> None:
    async def main() -> None:
        async with checks_on(root, cluster, "gpu") as (runner, _):
            (result,) = (await runner.run("k", [Check("true")])).results
            assert result.status is CheckStatus.COULD_NOT_RUN
            assert "no worker offers 1 CPU, label gpu" in result.reason
            assert "ralph workers start --join" in result.reason

    asyncio.run(asyncio.wait_for(main(), 90))


def test_a_merge_is_tried_on_a_worker(root: Path, cluster: "TestCluster") -> None:
    spec = PoolSpec("ray", cluster.address, checks=True)
    run = begin(root, pool=spec, tree_settings=TreeSettings(setup=("echo ready > setup.log",)))

    async def main() -> None:
        client, keeper = ClusterClient(spec, run.path / "cluster.log"), KeeperClient(run.path)
        engine = Engine.of(root, run, keeper)
        pool = RayChecks(run.record(), root, run.path, client)
        workspaces = engine.workspaces
        workspaces.runner = replace(workspaces.runner, pool=pool)
        workspaces.verifier.runner = workspaces.runner
        try:
            await engine.site("good/1", {"good.txt": "good\n"})
            await engine.site("bad/1", {"bad.txt": "bad\n"})
            merged = await engine.merge("good/1", "test -e good.txt && test -e setup.log", key="good")
            assert merged.end is MergeResult.MERGED
            assert merged.verdict
            assert merged.verdict.results[0].place in ("one", "two")
            refused = await engine.merge("bad/1", "test -e good.txt && ! test -e bad.txt", key="bad")
            assert refused.end is MergeResult.CHECKS_FAILED
            assert engine.files() == {"a.txt", ".gitignore", "good.txt"}
            # Nothing was set up on this machine.
            assert not list((root / ".ralph").glob("worktrees/*/setup.log"))
        finally:
            await keeper.close()
            await client.close()

    asyncio.run(asyncio.wait_for(main(), 120))


SCENARIO = """turns:
  - steps:
      - write: {path: made.txt, content: "made\\n"}
"""


def test_a_loop_is_judged_and_proven_on_the_cluster(root: Path, tmp_path: Path, cluster: "TestCluster") -> None:
    (tmp_path / "config" / "ralph").mkdir(parents=True)
    settings = f"pool: {{kind: ray, address: '{cluster.address}', checks: true, labels: {{checks: [b], '*': []}}}}\n"
    (tmp_path / "config" / "ralph" / "config.yml").write_text(settings)
    write(root, {"play.yml": SCENARIO})
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "scenario")
    words = ("loop", "make it", "--until", "`pwd; test -e made.txt` passes", "--scenario", "play.yml", "--yes")
    environment = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path / "config")}
    done = subprocess.run([*RALPH, *words], cwd=root, capture_output=True, text=True, timeout=200, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    run = next((root / ".ralph" / "runs").iterdir())
    logs = {path.parent.name: path.read_text() for path in run.glob("checks/*/stdout")}
    assert "clean-room-1" in logs, logs
    # No check ran on this machine, neither before the first turn, nor after it, nor in the clean room.
    assert all(text.startswith(str(cluster.home / "two")) for text in logs.values()), logs
    journal = [json.loads(line) for line in (run / "journal.jsonl").read_text().splitlines()]
    ended = [entry for entry in journal if entry["type"] == "checks.ended"]
    assert {result["place"] for entry in ended for result in entry["verdict"]["results"]} == {"two"}
    assert ended[-1]["verdict"]["evidence"]["grade"] == "proven"
