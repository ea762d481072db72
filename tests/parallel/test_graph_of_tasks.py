"""Forty tasks on eight slots, with conflicts that git sees and one that it does not, and an engine that is killed."""

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from ralph.app.start import WorkLocation, create_run
from ralph.core.checks import Check
from ralph.core.limits import Limits
from ralph.documents.run_record import AgentSelection, AgentSpec, RunRecord, SlotLimits, TreeSettings
from ralph.store.runs import Project, RunDir

HERE = Path(__file__).parent
TASKS = 40
CHECK = Check("python3 check.py", timeout=60)


def git(cwd: Path, *args: str) -> str:
    done = subprocess.run(["git", *args], cwd=cwd, capture_output=True, check=True, text=True)
    return done.stdout.rstrip("\n")


@pytest.fixture(autouse=True)
def _one_state_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The key that signs a run is the same where the run is created and in its engines."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    root = tmp_path / "repo"
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    git(root, "config", "user.name", "Ada")
    git(root, "config", "user.email", "ada@example.org")
    (root / "shared.txt").write_text("line of nobody\n")
    (root / "lib.py").write_text("def old_name():\n    return 1\n")
    (root / "check.py").write_text((HERE / "check.py").read_text())
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "first")
    (tmp_path / "tried").mkdir()
    return root


def graph(seed: int, tasks: int = TASKS) -> dict[str, list[str]]:
    """Each task waits for up to two of those before it; what conflicts does not wait for each other."""
    chance = random.Random(seed)
    names = [f"t{number}" for number in range(1, tasks + 1)]
    conflicts = {name for name in names if int(name[1:]) % 5 == 0} | {"t3", "t4"}
    free = {name: [other for other in names[:index] if other not in conflicts] for index, name in enumerate(names)}
    return {
        name: [] if name in conflicts else chance.sample(free[name], min(chance.randint(0, 2), len(free[name])))
        for name in names
    }


def started(root: Path, tasks: dict[str, list[str]], slots: int = 8) -> RunDir:
    agent = AgentSpec("command", (sys.executable, "-I", str(HERE / "agent.py")))
    record = RunRecord(
        id="",
        workflow="graph",
        task=json.dumps(tasks),
        criterion="",
        checks=(CHECK,),
        agents=AgentSelection((agent,)),
        created_at=time.time(),
        limits=Limits(None, None),
        slots=SlotLimits(slots, machine=64),
    )
    return create_run(Project(root), record, WorkLocation.BRANCH)[0]


def engine(root: Path, run: RunDir, **environment: str) -> "subprocess.Popen[str]":
    tried = {"TRIED": str(root.parent / "tried"), "XDG_STATE_HOME": str(root.parent / "state")}
    return subprocess.Popen(
        [sys.executable, str(HERE / "engine.py"), str(root), run.id],
        env={**os.environ, **tried, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def driven(root: Path, run: RunDir, chance: random.Random | None = None, kills: int = 0) -> str:
    """Run to the end, killing the engine a few times on the way; what the last engine said."""
    for _ in range(kills):
        process = engine(root, run)
        try:
            out, _ = process.communicate(timeout=chance.uniform(0.3, 2.5) if chance else None)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
        else:
            return out
    return finished(engine(root, run))


def finished(process: "subprocess.Popen[str]", seconds: float = 900) -> str:
    """What an engine said, once it has ended; one that does not is ended."""
    try:
        return process.communicate(timeout=seconds)[0]
    except subprocess.TimeoutExpired:
        process.terminate()
        raise


def journal(run: RunDir, kind: str) -> list[dict[str, object]]:
    lines = (json.loads(line) for line in (run.path / "journal.jsonl").read_bytes().split(b"\n")[:-1])
    return [line for line in lines if line["type"] == kind]


def assert_all_is_in(root: Path, run: RunDir, tasks: dict[str, list[str]]) -> None:
    """Every task is on the branch of the run exactly once, and the checks pass on it."""
    branch = f"ralph/{run.id}/run"
    form = "--format=%(trailers:key=Ralph-Task,valueonly,separator=%x2C)"
    merged = git(root, "log", "--merges", "--first-parent", form, f"main..{branch}").split()
    assert Counter(name.split("/")[0] for name in merged) == Counter(dict.fromkeys(tasks, 1))
    files = set(git(root, "ls-tree", "-r", "--name-only", branch).split("\n"))
    assert {f"tasks/{name}.txt" for name in tasks} <= files
    shared = git(root, "show", f"{branch}:shared.txt").split("\n")
    assert sorted(shared) == sorted(
        ["line of nobody", *(f"line of {name}" for name in tasks if int(name[1:]) % 5 == 0)]
    )
    aside = root.parent / f"aside-{run.id}"
    git(root, "worktree", "add", "-q", "--detach", str(aside), branch)
    subprocess.run([sys.executable, "check.py"], cwd=aside, check=True)
    git(root, "worktree", "remove", "--force", str(aside))


def worktrees_left(root: Path) -> list[str]:
    return [
        line
        for line in git(root, "worktree", "list").split("\n")
        if "/.ralph/worktrees/" in line and ".merge" not in line
    ]


SEEDS = [pytest.param(seed, marks=pytest.mark.slow) for seed in range(6)]
"""Each with its own graph, moments of killing and order of ends."""


@pytest.mark.parametrize("seed", SEEDS)
def test_every_passed_change_is_merged_exactly_once(repo: Path, seed: int) -> None:
    tasks = graph(seed)
    run = started(repo, tasks)
    before = git(repo, "status", "--porcelain=v2"), git(repo, "rev-parse", "main")
    said = driven(repo, run, random.Random(seed), kills=3 * seed)
    assert "all is merged" in said, said
    assert_all_is_in(repo, run, tasks)
    assert (git(repo, "status", "--porcelain=v2"), git(repo, "rev-parse", "main")) == before
    branches = git(repo, "branch", "--list", "--format=%(refname:short)", "ralph/*").split()
    assert branches == [f"ralph/{run.id}/run", f"ralph/{run.id}/t7/1"], "an attempt that failed keeps its branch"
    assert len(worktrees_left(repo)) == 1
    ends = Counter(str(entry["end"]) for entry in journal(run, "merge.ended"))
    assert ends["conflict"] and ends["red"], "there were conflicts to resolve"


def contents(root: Path) -> dict[str, bytes]:
    """Every file of the user's, to the byte; git's index too, for what is staged is theirs."""
    files = [
        path for path in root.rglob("*") if path.is_file() and ".ralph" not in path.parts and ".git" not in path.parts
    ]
    return {**{str(path): path.read_bytes() for path in files}, "staged": git(root, "ls-files", "-s").encode()}


@pytest.mark.slow
def test_two_runs_at_once_leave_a_dirty_tree_as_it_is(repo: Path) -> None:
    (repo / "lib.py").write_text("half an edit of the user\n")
    (repo / "shared.txt").write_text("staged\n")
    git(repo, "add", "shared.txt")
    (repo / "notes").write_text("untracked\n")
    before, head = contents(repo), git(repo, "rev-parse", "HEAD")
    graphs = [graph(11, 12), graph(12, 12)]
    runs = [started(repo, tasks, slots=3) for tasks in graphs]
    first, second = (engine(repo, run) for run in runs)
    with pytest.raises(subprocess.TimeoutExpired):
        first.communicate(timeout=1.0)
    first.kill()
    first.communicate()
    again = engine(repo, runs[0])
    said = [finished(process) for process in (again, second)]
    assert all("all is merged" in one for one in said), said
    for run, tasks in zip(runs, graphs, strict=True):
        assert_all_is_in(repo, run, tasks)
    assert (contents(repo), git(repo, "rev-parse", "HEAD")) == (before, head)
    assert git(repo, "stash", "list") == ""
    assert json.loads((repo.parent / "state" / "ralph" / "slots.json").read_text()) == {}


@pytest.mark.slow
def test_no_more_turns_than_slots_and_no_agent_beside_itself(repo: Path) -> None:
    tasks: dict[str, list[str]] = {f"t{number}": [] for number in (1, 2, 6, 8, 9, 11)}
    run = started(repo, tasks, slots=2)
    assert "all is merged" in driven(repo, run)
    most = in_progress = 0
    for line in (run.path / "journal.jsonl").read_text().splitlines():
        kind = json.loads(line)["type"]
        in_progress += {"turn.started": 1, "turn.ended": -1}.get(kind, 0)
        most = max(most, in_progress)
    assert most == 2


def test_without_git_one_turn_after_the_other(tmp_path: Path) -> None:
    root = tmp_path / "plain"
    root.mkdir()
    (tmp_path / "tried").mkdir()
    (root / "shared.txt").write_text("line of nobody\n")
    (root / "check.py").write_text((HERE / "check.py").read_text())
    tasks: dict[str, list[str]] = {"t1": [], "t2": ["t1"], "t5": []}
    run = started(root, tasks, slots=4)
    assert run.record().branch == ""
    said = driven(root, run)
    assert "all is merged" in said, said
    assert {path.stem for path in (root / "tasks").iterdir()} == set(tasks)
    kinds = [line["type"] for line in map(json.loads, (run.path / "journal.jsonl").read_text().splitlines())]
    turns = [kind for kind in kinds if kind.startswith("turn.")]
    assert turns == ["turn.started", "turn.ended"] * 3


def test_a_set_up_command_that_fails_fails_the_turn_and_says_why(repo: Path) -> None:
    agent = AgentSpec("command", (sys.executable, "-I", str(HERE / "agent.py")))
    trees = TreeSettings(setup=("echo no such package >&2; exit 4",))
    record = RunRecord(
        "",
        "graph",
        json.dumps({"t1": []}),
        "",
        (CHECK,),
        AgentSelection((agent,)),
        time.time(),
        limits=Limits(None, 1.0),
        tree_settings=trees,
    )
    run = create_run(Project(repo), record, WorkLocation.BRANCH)[0]
    driven(repo, run)
    ended = journal(run, "turn.ended")[0]["result"]
    assert isinstance(ended, dict)
    assert "no such package" in ended["error"] and "exit code 4" in ended["error"]
