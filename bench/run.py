"""Measures the engine against the plainest thing that does the same work, as ratios in one run.

python bench/run.py                     every figure (some ten minutes)
python bench/run.py --iterations 10,1000     fewer iterations
python bench/run.py --only loop,git,sandbox,start,tools,prompt,memory,parallel,worktree,session,views,viewers
"""

import argparse
import asyncio
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from viewers import bench_viewers
from views import bench_views

PYTHON = sys.executable
RALPH = [str(Path(PYTHON).with_name("ralph"))]
ENVIRONMENT = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
# The shell loop has no sandbox either. `sandbox` measures what it costs.
ENVIRONMENT["RALPH_SANDBOX"] = "off"
ENVIRONMENT.pop("PYTHONDONTWRITEBYTECODE", None)  # where Ralph is installed, its modules are compiled

AGENT = "#!/bin/sh\ncat > /dev/null\nread n < count\necho $((n + 1)) > count\n"
CHECK = '#!/bin/sh\nread n < count\n[ "$n" -ge "$MOST" ]\n'
SHELL_LOOP = """#!/bin/sh
while ! ./check.sh; do
  ./agent.sh < prompt
  {snapshot}
  echo "one line" >> log
  sync log
done
"""
SNAPSHOT = """
  export GIT_INDEX_FILE=.git/bench.index GIT_AUTHOR_NAME=b GIT_AUTHOR_EMAIL=b GIT_COMMITTER_NAME=b GIT_COMMITTER_EMAIL=b
  git -c core.fsync=committed add -A
  tree=$(git write-tree)
  commit=$(echo turn | git -c core.fsync=committed commit-tree $tree -p $(git rev-parse refs/bench))
  git update-ref refs/bench $commit
  git diff-tree -r --numstat $commit^ $commit > /dev/null
"""


def main() -> None:
    """Run the figures that were asked for and print them as a table."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--iterations", default="10,1000,10000")
    options.add_argument("--git-iterations", default="10,300")
    options.add_argument("--runs", type=int, default=200, help="runs at once in one engine")
    options.add_argument(
        "--only", default="loop,git,sandbox,start,tools,prompt,memory,parallel,worktree,session,views,viewers"
    )
    options.add_argument("--files", type=int, default=50_000, help="files of the repository that worktrees are made of")
    options.add_argument("--sleep", type=float, default=60.0, help="seconds that each of the tasks side by side takes")
    options.add_argument("--watching", type=float, default=60.0, help="seconds that the pages of the web watch a run")
    given = options.parse_args()
    wanted = given.only.split(",")
    print(f"{'what':<66}{'ours':>12}{'against':>12}{'ratio':>8}{'at most':>9}", flush=True)
    if "start" in wanted:
        bench_start()
    if "tools" in wanted:
        bench_tools()
    if "prompt" in wanted:
        bench_prompt()
    if "loop" in wanted:
        for most in map(int, given.iterations.split(",")):
            bench_loop(most, git=False, bound=3.0)
    if "git" in wanted:
        for most in map(int, given.git_iterations.split(",")):
            bench_loop(most, git=True, bound=2.0)
    if "sandbox" in wanted:
        bench_sandbox(20)
    if "memory" in wanted:
        bench_memory(given.runs)
    if "parallel" in wanted:
        bench_parallel(given.sleep)
    if "worktree" in wanted:
        bench_worktree(given.files)
    if "session" in wanted:
        bench_session()
    if "views" in wanted:
        bench_views(row)
    if "viewers" in wanted:
        bench_viewers(row, given.watching)


def row(what: str, ours: str, against: str, ratio: float, bound: float) -> None:
    """One line of the table."""
    print(
        f"{what:<66}{ours:>12}{against:>12}{ratio:>8.2f}{bound:>9.2f}{'' if ratio <= bound else '  OVER'}", flush=True
    )


def bench_loop(most: int, *, git: bool, bound: float) -> None:
    """Time per iteration of the engine, against a shell loop that starts the same agent and the same check."""
    times = [loop_times(most, git=git) for _ in range(9 if most < 100 else 1)]
    each, base = (statistics.median(column) / most * 1000 for column in zip(*times, strict=True))
    kind = "in a git repository" if git else "no git"
    row(f"engine time per iteration, {kind}, {most} iterations", f"{each:.2f} ms", f"{base:.2f} ms", each / base, bound)


def bench_sandbox(most: int) -> None:
    """Time per iteration, a turn and a check, with the sandbox and a git directory for each, against the same without."""
    if not shutil.which("bwrap"):
        print("sandbox: not measured, because bubblewrap is not installed")
        return
    for git in (False, True):
        times: dict[str, float] = {}
        for level in ("off", "write"):
            ENVIRONMENT["RALPH_SANDBOX"] = level
            times[level] = statistics.median(loop_times(most, git=git)[0] for _ in range(3)) / most * 1000
        ENVIRONMENT["RALPH_SANDBOX"] = "off"
        kind = "in a git repository" if git else "no git"
        what, ratio = f"iteration in the sandbox, {kind}", times["write"] / times["off"]
        row(what, f"{times['write']:.2f} ms", f"{times['off']:.2f} ms", ratio, 10.0)


def loop_times(most: int, *, git: bool) -> tuple[float, float]:
    """Seconds that the iterations take: ours, without start-up and baseline, and those of the shell loop."""
    with project(git=git, most=most) as place:
        plain = timed(["./loop.sh"], place)
        (place / "count").write_text("0\n")
        ours = timed([*RALPH, *loop_arguments(most, git=git)], place)
        empty = timed([*RALPH, *loop_arguments(most, git=git)], place)
    return ours - empty, plain


def loop_arguments(most: int, *, git: bool) -> list[str]:
    """A loop that ends when the agent has been started often enough; done already, it only starts and checks."""
    arguments = ["loop", "count", "--until", "`./check.sh` passes", "--agent-command", "./agent.sh", "--yes"]
    return [
        *arguments,
        "--timeout",
        "600",
        "--on-stuck",
        "continue",
        "--max-iterations",
        str(most + 1),
        *([] if git else ["--no-snapshots"]),
    ]


@contextmanager
def project(*, git: bool, most: int) -> Iterator[Path]:
    """A directory with the agent, the check and the shell loop."""
    place = Path(tempfile.mkdtemp(prefix="ralph-bench-"))
    ENVIRONMENT["MOST"] = str(most)
    try:
        loop = SHELL_LOOP.format(snapshot=SNAPSHOT if git else "")
        for name, text in (
            ("agent.sh", AGENT),
            ("check.sh", CHECK),
            ("loop.sh", loop),
            ("prompt", "go\n"),
            ("count", "0\n"),
        ):
            (place / name).write_text(text)
            (place / name).chmod(0o755)
        if git:
            identity = "-c user.name=b -c user.email=b@localhost"
            script = f"git init -q && git add . && git {identity} commit -qm start && git update-ref refs/bench HEAD"
            subprocess.run(["sh", "-c", script], cwd=place, env=ENVIRONMENT, check=True)
        yield place
    finally:
        shutil.rmtree(place)


def timed(command: list[str], place: Path) -> float:
    """Seconds that a command takes."""
    start = time.perf_counter()
    done = subprocess.run(command, cwd=place, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    if done.returncode:
        sys.exit(f"{command} failed: {done.stderr.decode()}")
    return time.perf_counter() - start


def bench_start() -> None:
    """Start-up of the commands that people type most, and of an engine, against the interpreter itself."""
    with project(git=False, most=1) as place:
        timed([*RALPH, *loop_arguments(1, git=False)], place)
        cases = {
            "python -c pass": [PYTHON, "-c", "pass"],
            "ralph --help": [*RALPH, "--help"],
            "ralph status": [*RALPH, "status"],
        }
        against_python(cases, place, 8.0)
        engine = [*RALPH, *loop_arguments(1, git=False), "--dry-run"]
        against_python({"python -c pass": [PYTHON, "-c", "pass"], "ralph loop --dry-run": engine}, place, 30.0)


def bench_tools() -> None:
    """What agents call hundreds of times in a run, as a turn finds it, against the interpreter itself."""
    from ralph.workspace.local import write_launcher

    with project(git=False, most=1) as place:
        (place / ".ralph").mkdir()
        ralph, events = str(write_launcher(place)), ["--file", "events.jsonl"]
        for number in range(100):
            timed([ralph, "tools", "task", "add", f"task {number}", "--description", "what has to hold " * 20], place)
        timed([ralph, "tools", "memory", "add", "the cache has to be cleared"], place)
        cases = {
            "python -c pass": [PYTHON, "-c", "pass"],
            "ralph emit": [ralph, "emit", "review.ready", "task_id: 1", *events],
            "ralph tools task ready (100 tasks)": [ralph, "tools", "task", "ready"],
            "ralph tools memory search": [ralph, "tools", "memory", "search", "cache"],
        }
        against_python(cases, place, 3.0)
        cases = {
            "python that replaces a file": [PYTHON, "-c", REPLACE, ".ralph/agent/tasks.jsonl"],
            "ralph tools task add (100 tasks)": [ralph, "tools", "task", "add", "a task"],
        }
        against_python(cases, place, 3.0)


REPLACE = """
import os, sys
data = open(sys.argv[1], "rb").read()
file = open("new", "wb")
file.write(data)
file.flush()
os.fsync(file.fileno())
os.rename("new", "copy")
"""
"""The least that changes a file so that it is whole at every instant, also after a power cut."""


def against_python(cases: dict[str, list[str]], place: Path, bound: float) -> None:
    """Rows for commands, against the first of them; all in turn, so that a busy moment hits every one."""
    times: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(31):
        for name, command in cases.items():
            times[name].append(timed(command, place))
    middle = {name: statistics.median(values) * 1000 for name, values in times.items()}
    first, *others = cases
    for name in others:
        ratio = middle[name] / middle[first]
        row(f"{name} against {first}", f"{middle[name]:.0f} ms", f"{middle[first]:.0f} ms", ratio, bound)


def bench_prompt() -> None:
    """The fixed part of a prompt, in tokens of about four characters, against the peer's."""
    from ralph.core.checks import Check
    from ralph.store import settings
    from ralph.workflows.loop.prompt import NAMES
    from ralph.workflows.loop.rules import Loop
    from ralph.workflows.loop.state import LoopParameters, Phase

    templates = {name: settings.load_prompt(name, Path("/nonexistent")) for name in NAMES}
    loop = Loop("", (Check("x"),), templates, LoopParameters("", "", 10, 0.0, None))
    decision = loop.decide(replace(loop.load({}), phase=Phase.ACT, iteration=1), 0.0)
    tokens = len(decision.work[0].prompt.text) / 4
    row("fixed prompt overhead against 3,200 tokens", f"{tokens:.0f}", "3200", tokens / 3200, 1 / 3)


def bench_memory(runs: int) -> None:
    """Memory of one engine process that drives many runs at once, each with an agent at work."""
    place = Path(tempfile.mkdtemp(prefix="ralph-bench-"))
    os.environ["XDG_STATE_HOME"] = str(place)
    try:
        megabytes = asyncio.run(drive_many(place, runs))
    finally:
        shutil.rmtree(place, ignore_errors=True)
    row(f"memory of the engine with {runs} runs at once", f"{megabytes:.0f} MB", "500 MB", megabytes / 500, 1.0)


async def drive_many(place: Path, runs: int) -> float:
    """Start that many runs in this process, let all their agents work at once, and read our own memory."""
    import io
    from datetime import datetime

    from ralph.app.build_kernel import build_kernel
    from ralph.cli.render.journal import renderer_for
    from ralph.cli.render.live import PlainView
    from ralph.documents.run_record import AgentSelection, AgentSpec, RunRecord, SlotLimits
    from ralph.store.runs import Project
    from ralph.supervisor.client import KeeperClient
    from ralph.verify.criterion import compile_criterion

    async def one(number: int) -> None:
        root = place / str(number)
        (root / ".ralph").mkdir(parents=True)
        own = Project(root)
        run = own.claim(datetime.now())
        checks = compile_criterion("`test -e done`", 60, root).checks
        agent = AgentSelection((AgentSpec("command", ("sh", "-c", "sleep 20; touch done")),))
        slots = SlotLimits(machine=runs)
        record = RunRecord(
            run.id, "loop", "wait", "`test -e done`", checks, agent, time.time(), snapshots=False, slots=slots
        )
        own.create(run, record)
        keeper = KeeperClient(run.path)
        view = PlainView(renderer_for(own, record, record.limits), record.limits, io.StringIO())
        kernel = build_kernel(own, run, record, keeper=keeper, cluster=None, observer=view, notices=())
        stop = await kernel.run()
        await keeper.close()
        assert stop.outcome.succeeded, stop

    await asyncio.gather(*(one(number) for number in range(runs)))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def repository(place: Path, files: int) -> None:
    """A git repository with that many small files."""
    for number in range(files):
        directory = place / f"d{number // 500}"
        directory.mkdir(exist_ok=True)
        (directory / f"f{number}.txt").write_text(f"{number}\n" * 20)
    identity = "-c user.name=b -c user.email=b@localhost"
    subprocess.run(
        ["sh", "-c", f"git init -q && git add . && git {identity} commit -qm start"],
        cwd=place,
        env=ENVIRONMENT,
        check=True,
    )


def bench_parallel(seconds: float) -> None:
    """The time of eight equal tasks on eight slots, each in a worktree, checked and merged, against that of one alone."""
    import json

    from ralph.app.start import WorkLocation, create_run
    from ralph.core.checks import Check
    from ralph.core.limits import Limits
    from ralph.documents.run_record import AgentSelection, AgentSpec, RunRecord, SlotLimits
    from ralph.store.runs import Project

    place = Path(tempfile.mkdtemp(prefix="ralph-bench-"))
    ENVIRONMENT["XDG_STATE_HOME"] = str(place / "state")
    root = place / "repo"
    root.mkdir()
    try:
        repository(root, 100)
        agent = AgentSpec("command", ("sh", "-c", f"cat > /dev/null; sleep {seconds}; echo x > $RALPH_TASK"))
        task = json.dumps({f"t{number}": [] for number in range(1, 9)})
        record = RunRecord(
            *("", "graph", task, "", (Check("true"),), AgentSelection((agent,)), time.time()),
            limits=Limits(None, None),
            slots=SlotLimits(8, machine=8),
        )
        run, _ = create_run(Project(root), record, WorkLocation.BRANCH)
        engine = Path(__file__).parents[1] / "tests" / "parallel" / "engine.py"
        took = timed([PYTHON, str(engine), str(root), run.id], place)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    row("8 equal tasks on 8 slots against one of them", f"{took:.1f} s", f"{seconds:.1f} s", took / seconds, 1 / 0.95)


def bench_worktree(files: int) -> None:
    """Making, saving and removing the worktree of a task, against `git worktree add`, `commit` and `remove`."""
    from ralph.git import merge, worktree

    place = Path(tempfile.mkdtemp(prefix="ralph-bench-"))
    try:
        repository(place, files)
        script = (
            "git worktree add -q -b b ../{0} && cd ../{0} && echo x > new && git add -A && "
            "git -c user.name=b -c user.email=b@localhost commit -qm x && cd ../{1} && git worktree remove ../{0} && "
            "git branch -qD b"
        )
        plain = timed(["sh", "-c", script.format(f"{place.name}-plain", place.name)], place)
        begun = time.perf_counter()
        tree = worktree.create_for_task(place, "000000-000000", "task/1", "HEAD")
        made = time.perf_counter() - begun
        (tree.path / "new").write_text("x")
        tip = merge.save_worktree(tree, "x")
        removal = worktree.remove(tree, tip)
        took = time.perf_counter() - begun
        assert removal, removal.why_not
    finally:
        shutil.rmtree(place, ignore_errors=True)
    what = f"a worktree of {files} files, {made:.1f} s to make, against plain git"
    row(what, f"{took:.2f} s", f"{plain:.2f} s", took / plain, 1.5)


def bench_session() -> None:
    """The makespan of sessions whose tasks take known times, against the longest chain and the work that slots can do."""
    ratios = [makespan(seed) for seed in range(20)]
    mean = statistics.mean(ratios)
    what = f"makespan of 20 pipelined sessions against their lower bounds (worst {max(ratios):.3f})"
    row(what, f"{mean:.3f}", "1", mean, 1.05)
    python = 1000 * statistics.median(timed([PYTHON, "-c", "pass"], Path.cwd()) for _ in range(9))
    rules = per_task(30)
    what = "rules of a session of 30 tasks, per task, against starting Python once"
    row(what, f"{rules:.1f} ms", f"{python:.1f} ms", rules / python, 1.5)
    few, many = (per_task(count) for count in (1000, 10_000))
    row(
        "rules of a session of 10,000 tasks, per task, against one of 1,000",
        f"{many:.2f} ms",
        f"{few:.2f} ms",
        many / few,
        2.0,
    )


def per_task(count: int) -> float:
    """Milliseconds of the processor that the rules take for each task of a session, from its plan to its end."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "workflows"))
    from test_session_rules import TASK, Driver, session

    class Large(Driver):
        """Whatever is asked for is done at once, and goes well."""

        def content(self, work):
            if "TASK_BREAKDOWN" not in work.prompt.text:
                return super().content(work)
            papers = {}
            for number in range(1, count + 1):
                needed = f"task-{number - 7}, task-{number // 2}" if number > 14 else ""
                text = TASK.format(id=f"task-{number}", type="Parallelizable", file=f"{number}.py", needed=needed)
                papers[f"tasks/task-{number}.md"] = text
            return {"status": "completed"}, papers

        def take(self, event) -> None:
            self.state = self.rules.accept(self.state, event, 0.0).state

        def find_ref_changes(self, works) -> None:
            """Nothing: that would take longer than the rules."""

    driver = Large(session(), Certain())
    driver.state = replace(driver.state, limits=replace(driver.state.limits, max_cycles=1))
    began = time.process_time()
    driver.run(most=count * 6 + 100)
    assert len(driver.state.tasks) == count
    return (time.process_time() - began) / count * 1000


def makespan(seed: int) -> float:
    """How much longer a session takes than it must: its rules alone, with time that passes at once."""

    sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "workflows"))
    from test_session_rules import TASK, Driver, session, with_settings

    from ralph.core.events import Stop

    chance, slots, count = random.Random(seed), 4, 60
    needed = {n: chance.sample(range(1, n), min(n - 1, chance.choice((0, 1, 1, 2)))) for n in range(1, count + 1)}
    seconds = {n: chance.uniform(5, 20) for n in needed}
    chain: dict[int, float] = {}
    for number in needed:
        chain[number] = seconds[number] + max((chain[one] for one in needed[number]), default=0.0)
    bound = max(max(chain.values()), sum(seconds.values()) / slots)

    class Timed(Driver):
        """Executors take their time; everybody else, and every merge, takes none and goes well."""

        def content(self, work):
            if "TASK_BREAKDOWN" in work.prompt.text:
                papers = {}
                for number, others in needed.items():
                    names = ", ".join(f"task-{one}" for one in others)
                    text = TASK.format(id=f"task-{number}", type="Parallelizable", file=f"{number}.py", needed=names)
                    papers[f"tasks/task-{number}.md"] = text
                return {"status": "completed"}, papers
            return super().content(work)

    driver = Timed(session(), random.Random(0))
    limits = replace(driver.state.limits, max_executors=slots, max_reviewers=count, max_cycles=1)
    driver.state = replace(driver.state, limits=limits)
    driver.rules = with_settings(driver.rules, compile_criterion=lambda _: ())
    driver.chance = Certain()
    ends: dict[str, float] = {}
    clock = 0.0
    while not isinstance(decision := driver.rules.decide(driver.state, clock), Stop):
        works = {work.key: work for work in decision.work}
        quick = [work for work in works.values() if not is_executor(work)]
        for key, work in works.items():
            if is_executor(work):
                ends.setdefault(key, clock + seconds[int(work.task.split("-")[1])])
        if quick:
            driver.take(driver.answer(quick[0]))
        else:
            key = min(ends, key=lambda one: ends[one])
            clock = ends.pop(key)
            driver.take(driver.answer(works[key]))
        driver.state = replace(driver.state, limits=limits)
    return clock / bound


def is_executor(work) -> bool:
    """Whether some work is the turn of an executor."""
    return getattr(work, "role", "") == "executor"


class Certain:
    """Chance that always chooses the best."""

    def random(self) -> float:
        """High enough for everything to go well, low enough for checks to pass."""
        return 0.5

    def choice(self, options):
        """The first."""
        return options[0]

    def sample(self, options, count):
        """The first ones."""
        return list(options)[:count]

    def randint(self, low, high):
        """The lowest."""
        return low


if __name__ == "__main__":
    main()
