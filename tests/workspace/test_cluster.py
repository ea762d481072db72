"""Turns on a real cluster of two workers, and what happens when parts of it are lost."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from engines import begin, git, write
from test_pool_contract import Pool, Watcher, do, run_once

from ralph.app.start import WorkLocation
from ralph.core.turns import EventKind, TurnEnd
from ralph.documents.run_record import PoolSpec
from ralph.supervisor.processes import TURN_MARK, find_marked

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


def make_pool(tmp_path: Path, cluster: "TestCluster", *labels: str, **more: object) -> Pool:
    root = tmp_path / "repo"
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    write(root, {"a.txt": "one\n", ".gitignore": "*.log\n"})
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "first")
    spec = PoolSpec("ray", cluster.address, labels={"*": labels}, **more)  # type: ignore[arg-type]
    return Pool(root, begin(root, WorkLocation.HERE, pool=spec))


def waiting_script(go: Path) -> str:
    return f"echo start >> starts.txt; echo ready; while [ ! -e {go} ]; do sleep 0.1; done; echo done"


def test_labels_decide_where_a_turn_runs(tmp_path: Path, cluster: "TestCluster") -> None:
    for label, name in (("a", "one"), ("b", "two")):
        (tmp_path / label).mkdir()
        pool = make_pool(tmp_path / label, cluster, label)
        _, watcher = run_once(pool, pool.turn("true"))
        assert watcher.texts(EventKind.PLACED) == [name]


def test_a_label_that_no_worker_has_is_named_with_what_there_is(tmp_path: Path, cluster: "TestCluster") -> None:
    pool = make_pool(tmp_path, cluster, "gpu")
    result, _ = run_once(pool, pool.turn("true"))
    assert result.end is TurnEnd.UNAVAILABLE
    assert "no worker offers 1 CPU, label gpu" in result.error
    assert "one: 3 CPU, label a" in result.error
    assert "ralph workers start --join" in result.error


def test_a_turn_waits_for_a_full_worker_and_says_so(tmp_path: Path, cluster: "TestCluster") -> None:
    async def main() -> None:
        go = tmp_path / "go"
        first = make_pool(tmp_path, cluster, "a", resources={"cpu": 3})
        (tmp_path / "second").mkdir()
        second = make_pool(tmp_path / "second", cluster, "a", resources={"cpu": 3})
        one, two = Watcher(), Watcher()
        async with first.engine() as busy, second.engine() as waiting:
            running = asyncio.create_task(busy.run(first.turn(waiting_script(go)), one))
            await one.wait_for("ready")
            queued = asyncio.create_task(waiting.run(second.turn("true"), two))
            while not any("waiting for a free worker" in text for text in two.texts(EventKind.PROGRESS)):
                await two.changed.wait()
                two.changed.clear()
            go.touch()
            assert (await running).end is TurnEnd.FINISHED
            assert (await queued).end is TurnEnd.FINISHED

    do(main)


def test_a_killed_worker_process_is_replaced_and_the_agent_is_adopted(tmp_path: Path, cluster: "TestCluster") -> None:
    pool, go = make_pool(tmp_path, cluster, "a"), tmp_path / "go"

    async def main() -> None:
        watcher = Watcher()
        async with pool.engine() as turns:
            running = asyncio.create_task(turns.run(pool.turn(waiting_script(go)), watcher))
            await watcher.wait_for("ready")
            for pid in cluster.find_turn_workers("one"):
                os.kill(pid, signal.SIGKILL)
            while len(watcher.texts(EventKind.PLACED)) < 2:
                await watcher.changed.wait()
                watcher.changed.clear()
            go.touch()
            result = await running
        assert result.end is TurnEnd.FINISHED
        assert "the worker process on one is gone; another one adopts the turn" in watcher.texts(EventKind.PROGRESS)
        assert (pool.root / "starts.txt").read_text() == "start\n"

    do(main)


def test_changes_of_the_user_during_a_turn_are_kept(tmp_path: Path, cluster: "TestCluster") -> None:
    pool, go = make_pool(tmp_path, cluster), tmp_path / "go"

    async def main(script: str, edit: str) -> str:
        watcher = Watcher()
        async with pool.engine() as turns:
            running = asyncio.create_task(turns.run(pool.turn(f"echo ready; {waiting_script(go)}; {script}"), watcher))
            await watcher.wait_for("ready")
            (pool.root / "a.txt").write_text(edit)
            go.touch()
            return (await running).error

    error = asyncio.run(main("echo two >> a.txt", "other\n"))
    assert "you and the turn changed the same lines (a.txt)" in error
    assert (pool.root / "a.txt").read_text() == "other\n"
    ref = error.partition("git merge ")[2].partition("`")[0]
    assert git(pool.root, "show", f"{ref}:a.txt") == "one\ntwo"


def start_loop(root: Path, address: str, scenario: str) -> "subprocess.Popen[bytes]":
    (root / "play.yml").write_text(scenario)
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "scenario")
    command = ("loop", "make it", "--until", "`test -e made.txt` passes", "--scenario", "play.yml", "--yes")
    with (root.parent / "out").open("wb") as out:
        return subprocess.Popen([*RALPH, *command, "--pool", address], cwd=root, stdout=out, stderr=out)


SLOW = """turns:
  - steps:
      - run: "echo start >> starts.txt; while [ ! -e {go} ]; do sleep 0.1; done; echo made > made.txt"
"""


def resume(root: Path) -> str:
    run = next((root / ".ralph" / "runs").iterdir()).name
    done = subprocess.run([*RALPH, "resume", run], cwd=root, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return subprocess.run([*RALPH, "status", run], cwd=root, capture_output=True, text=True).stdout


def find_agents(root: Path) -> list[int]:
    runs = list((root / ".ralph" / "runs").glob("*"))
    return find_marked(TURN_MARK, f"{runs[0].name}/") if runs else []


def test_a_killed_engine_is_resumed_and_adopts_the_turn(tmp_path: Path, cluster: "TestCluster") -> None:
    pool, go = make_pool(tmp_path, cluster), tmp_path / "go"
    shutil.rmtree(pool.root / ".ralph")
    engine = start_loop(pool.root, cluster.address, SLOW.format(go=go))
    eventually(lambda: find_agents(pool.root))
    agents = find_agents(pool.root)
    engine.kill()
    engine.wait()
    go.touch()
    status = resume(pool.root)
    assert "on one" in status or "on two" in status
    assert (pool.root / "starts.txt").read_text() == "start\n"
    assert agents
    assert not find_agents(pool.root)


def ralph(root: Path, *words: str) -> str:
    done = subprocess.run([*RALPH, *words], cwd=root, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_turn_on_a_worker_is_shown_and_steered_like_a_local_one(tmp_path: Path, cluster: "TestCluster") -> None:
    pool, go = make_pool(tmp_path, cluster), tmp_path / "go"
    root = pool.root
    shutil.rmtree(root / ".ralph")
    engine = start_loop(root, cluster.address, SLOW.format(go=go) + '      - run: "echo more > more.txt"\n')
    try:
        eventually(lambda: find_agents(root))
        run = next((root / ".ralph" / "runs").iterdir()).name
        # The prompt comes with the first events of the worker.
        eventually(lambda: list((root / ".ralph").glob("runs/*/turns/*/turn.json")), 30)
        assert "make it" in ralph(root, "prompt", run)
        assert "runs on" in ralph(root, "logs", run)
        ralph(root, "steer", "use British spelling", "--run", run)
        go.touch()
        assert engine.wait(90) == 0, (tmp_path / "out").read_text()
    finally:
        engine.kill()
        engine.wait()
    place = json.loads(ralph(root, "status", run, "--json"))["view"]["turns"][0]["place"]
    assert place in ("one", "two")
    assert f"on {place}" in ralph(root, "status", run)
    assert f"turn 1 runs on {place}" in ralph(root, "logs", run)
    assert "+made" in ralph(root, "diff", run)
    assert "+more" in ralph(root, "diff", run, "1")
    assert "use British spelling" in ralph(root, "signals", run, "--json")
    journal = (root / ".ralph" / "runs" / run / "journal.jsonl").read_text().splitlines()
    ended = next(entry for entry in map(json.loads, journal) if entry["type"] == "turn.ended")
    assert len(ended["result"]["received"]) == 1


def test_slots_of_an_agent_are_counted_across_the_cluster(tmp_path: Path, cluster: "TestCluster") -> None:
    """Each of two workers offers one slot of an agent. Of three turns that need one, the third waits."""
    go, waits = tmp_path / "go", "waiting for a free worker that offers 1 CPU, agent slow"
    for name in ("four", "five"):
        cluster.start(name, agents=("slow=1",))

    async def main() -> None:
        pools, watchers = [], [Watcher() for _ in range(3)]
        for number in range(3):
            (tmp_path / str(number)).mkdir()
            pools.append(make_pool(tmp_path / str(number), cluster, resources={"agent:slow": 1}))
        async with pools[0].engine() as first, pools[1].engine() as second, pools[2].engine() as third:
            running = []
            for pool, turns, watcher in zip(pools[:2], (first, second), watchers, strict=False):
                running.append(asyncio.create_task(turns.run(pool.turn(waiting_script(go)), watcher)))
                await watcher.wait_for("ready")
            running.append(asyncio.create_task(third.run(pools[2].turn("true"), watchers[2])))
            while waits not in watchers[2].texts(EventKind.PROGRESS):
                await watchers[2].changed.wait()
                watchers[2].changed.clear()
            go.touch()
            assert [(await one).end for one in running] == [TurnEnd.FINISHED] * 3
        assert {watcher.texts(EventKind.PLACED)[0] for watcher in watchers[:2]} == {"four", "five"}

    try:
        asyncio.run(asyncio.wait_for(main(), 150))
    finally:
        for name in ("four", "five"):
            cluster.stop(name)


def test_a_worker_with_another_version_is_refused(tmp_path: Path, cluster: "TestCluster") -> None:
    other = tmp_path / "other"
    shutil.copytree(Path(sys.modules["ralph"].__file__ or "").parent, other / "ralph")
    file = other / "ralph" / "__init__.py"
    file.write_text(file.read_text().replace('"0.', '"9.'))
    cluster.start("old", "old", PYTHONPATH=str(other))
    try:
        pool = make_pool(tmp_path, cluster, "old")
        result, _ = run_once(pool, pool.turn("true"))
        assert result.end is TurnEnd.UNAVAILABLE
        assert "the worker old cannot run turns: it has Ralph 9." in result.error
        checked = subprocess.run(
            [*RALPH, "workers", "check", "--pool", cluster.address], capture_output=True, text=True, timeout=200
        )
        assert checked.returncode == 2
        assert "ok   one" in checked.stdout
        assert "FAIL old" in checked.stdout
    finally:
        cluster.stop("old")


def test_a_turn_on_a_killed_node_is_interrupted_and_tried_elsewhere(tmp_path: Path, cluster: "TestCluster") -> None:
    cluster.start("three", "c")
    pool, go = make_pool(tmp_path, cluster, "c"), tmp_path / "go"

    async def main() -> None:
        watcher, turn = Watcher(), pool.turn(waiting_script(go))
        async with pool.engine() as turns:
            running = asyncio.create_task(turns.run(turn, watcher))
            await watcher.wait_for("ready")
            cluster.kill_node("three")
            result = await running
            assert result.end is TurnEnd.INTERRUPTED
            assert "the turn was lost with its worker on three" in result.error
            assert not (pool.root / "starts.txt").exists()
            await asyncio.to_thread(eventually, lambda: not pool.processes())
            go.touch()
            # Asked again for the same turn, the pool does not start it a second time.
            again = await turns.run(replace(turn, is_new=False), Watcher())
            assert again.end is TurnEnd.INTERRUPTED

    asyncio.run(asyncio.wait_for(main(), 200))
    cluster.stop("three")


def test_a_lost_head_interrupts_turns_and_a_new_head_continues(tmp_path: Path) -> None:
    with cluster_of(one=("a",)) as cluster:
        pool, go = make_pool(tmp_path, cluster), tmp_path / "go"
        shutil.rmtree(pool.root / ".ralph")
        engine = start_loop(pool.root, cluster.address, SLOW.format(go=go))
        try:
            eventually(lambda: find_agents(pool.root))
            for name in ("one", "head"):
                cluster.kill_node(name)
            eventually(lambda: not find_agents(pool.root))
            for name in ("one", "head"):
                cluster.stop(name)
            go.touch()
            cluster.start_head()
            cluster.start("one", "a")
            engine.wait(240)
        finally:
            engine.kill()
            engine.wait()
        if engine.returncode != 0:
            resume(pool.root)
        assert (pool.root / "made.txt").read_text() == "made\n"
        # Of the turn that was lost with the cluster, nothing was merged.
        assert (pool.root / "starts.txt").read_text() == "start\n"
        out = " ".join((tmp_path / "out").read_text().split())
        assert "the turn was lost with its worker on one" in out or "cannot be reached" in out, out


def test_a_killed_head_comes_back_with_its_workers_and_the_run_continues(tmp_path: Path) -> None:
    with cluster_of(one=("a",)) as cluster:
        pool, go = make_pool(tmp_path, cluster), tmp_path / "go"
        shutil.rmtree(pool.root / ".ralph")
        engine = start_loop(pool.root, cluster.address, SLOW.format(go=go))
        try:
            eventually(lambda: find_agents(pool.root))
            first = find_agents(pool.root)
            cluster.kill_head_process()
            # Nobody starts anything again. The first agent ends, and another one begins.
            eventually(lambda: set(find_agents(pool.root)) - set(first), 240)
            eventually(lambda: not set(find_agents(pool.root)) & set(first))
            go.touch()
            assert engine.wait(120) == 0, (tmp_path / "out").read_text()
        finally:
            engine.kill()
            engine.wait()
        # Of the turn that was lost with the cluster, nothing was merged.
        assert (pool.root / "starts.txt").read_text() == "start\n"
        assert not find_agents(pool.root)
        out = " ".join((tmp_path / "out").read_text().split())
        assert f"the connection to the Ray cluster at {cluster.address} is lost; reconnecting" in out
        assert "the turn was lost with its worker on one" in out


def test_a_session_with_six_parallel_tasks_uses_both_workers_and_lands(tmp_path: Path, cluster: "TestCluster") -> None:
    root = make_pool(tmp_path, cluster).root
    shutil.rmtree(root / ".ralph")
    agent = Path(__file__).parents[2] / "examples" / "cluster" / "agent.py"
    options = ("--agent-command", f"{sys.executable} -I {agent}", "--pool", cluster.address, "--parallel", "6", "--yes")
    command = [*RALPH, "session", "new", "Make six files", *options]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    run = next((root / ".ralph" / "runs").iterdir()).name
    shown = subprocess.run([*RALPH, "status", run, "--json"], cwd=root, capture_output=True, text=True, check=True)
    turns = [turn for turn in json.loads(shown.stdout)["view"]["turns"] if turn["role"] == "executor"]
    assert {turn["task"]: turn["end"] for turn in turns} == {f"task-{n}": "finished" for n in range(1, 7)}
    assert {turn["place"] for turn in turns} == {"one", "two"}
    assert len(git(root, "ls-files", "task-*.txt").split()) == 6
    merges = git(root, "log", "--format=%(trailers:key=Ralph-Task,valueonly,separator=)", "main").split()
    assert sorted(merges) == sorted(set(merges))
    assert len(merges) == 6
