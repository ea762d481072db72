"""Replays real commits of repositories as the work of an agent, and counts how many Ralph holds up.

python bench/replay.py PLAN.yml                       print a table, one row for each repository
python bench/replay.py PLAN.yml --out results.jsonl   write a line for each commit, and skip those that have one
python bench/replay.py PLAN.yml --only NAME --commit HASH --show    play one commit and print what Ralph said

The plan is a list of repositories on this machine:

    - name: click
      language: python
      path: /path/to/click/.git       # a git directory, or a working copy
      check: python3 -m pytest -q     # what the user asks for; leave it out if the tests cannot run here
      setup: ln -s /some/venv .venv   # optional: runs in each checkout; PYTHONPATH and so on belong into the check
      count: 30                       # how many commits are drawn
      newest: 300                     # from how many of the newest ones; older ones rarely run with the tools of today

Commits are drawn with the seed, so that two people get the same ones. Each is the turn of an agent: the project is at the
parent, the agent applies the commit. A commit is held up if all checks pass and Ralph finds something all the same. It is
unproven if only a judge could tell, because it changed tests or settings. If the tests do not pass after the commit, they cannot
run here: then it is played once more without them.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

RALPH = Path(sys.executable).with_name("ralph")
MARKER = "replayed.txt"
"""The checks also ask for a line in this file: without it they would pass before the turn. It is committed before the turn,
because some repositories ignore all files that they do not name."""
UNPROVEN = 7
"""The exit code of a run whose work passes and is not proven."""
LONGEST_CHECK = 180
"""Seconds after which a check is ended. Then the commit is played without its tests."""
LONGEST = 1800
"""Seconds after which a replay is ended."""


@dataclass(frozen=True)
class Repository:
    """A repository of the plan."""

    name: str
    language: str
    path: str
    check: str = ""
    setup: str = ""
    count: int = 30
    newest: int = 300


@dataclass(frozen=True)
class Replay:
    """What Ralph made of one commit."""

    name: str
    language: str
    commit: str
    subject: str
    ran_tests: bool
    label: str
    """`passed`, `held up`, `unproven`, or `not played` if the commit could not be applied or Ralph could not judge it."""
    findings: tuple[str, ...]
    output: str = ""


def draw_commits(repository: Repository, seed: int) -> list[str]:
    """A random sample of the newest commits that have one parent."""
    command = ["git", f"--git-dir={repository.path}", "rev-list", "--no-merges", "--min-parents=1"]
    listed = run([*command, f"--max-count={repository.newest}", "HEAD"], Path.cwd())
    commits = listed.stdout.split()
    return random.Random(f"{seed}/{repository.name}").sample(commits, min(repository.count, len(commits)))


def replay(repository: Repository, commit: str) -> Replay:
    """Play a commit, with the tests of the repository if they pass after it."""
    subject = run(["git", f"--git-dir={repository.path}", "log", "-1", "--format=%s", commit], Path.cwd()).stdout
    played: dict[str, Any] = {"label": "not played", "findings": (), "output": ""}
    ran_tests = False
    for check in dict.fromkeys((repository.check, "")):
        with tempfile.TemporaryDirectory(prefix="ralph-replay-") as place:
            played = play(repository, commit, check=check, subject=subject.strip(), home=Path(place))
        ran_tests = bool(check)
        if played["label"] != "not played":
            break
    return Replay(
        name=repository.name,
        language=repository.language,
        commit=commit,
        subject=subject.strip(),
        ran_tests=ran_tests,
        **played,
    )


def play(repository: Repository, commit: str, *, check: str, subject: str, home: Path) -> dict[str, Any]:
    root = home / "project"
    run(["git", "clone", "-q", "--no-checkout", "--shared", repository.path, str(root)], home)
    run(["git", "checkout", "-q", "-B", "replay", f"{commit}^"], root)
    (root / MARKER).write_text("before\n", encoding="utf-8")
    run(["git", "add", "--force", MARKER], root)
    run(["git", "commit", "-q", "--no-verify", "-m", "Before the turn"], root)
    excluded = root / ".git" / "info" / "exclude"
    excluded.parent.mkdir(exist_ok=True)
    excluded.write_text("node_modules\n.venv\ntarget\n", encoding="utf-8")
    if repository.setup and check:
        run(["sh", "-c", repository.setup], root)
    patch = home / "commit.patch"
    with patch.open("wb") as file:
        command = ["git", "diff", "--binary", "--full-index", f"{commit}^", commit]
        subprocess.run(command, cwd=root, stdout=file, check=True)
    steps = [
        {"run": {"command": f"git apply --binary --whitespace=nowarn {patch}", "check": True}},
        {"write": {"path": MARKER, "content": "after\n"}},
    ]
    scenario = home / "scenario.yml"
    scenario.write_text(json.dumps({"turns": [{"steps": steps}]}), encoding="utf-8")
    criterion = f"`grep -q after {MARKER}` passes" + (f" AND `{check}` passes" if check else "")
    arguments = ["--scenario", str(scenario), "--max-iterations", "1", "--yes", "--no-recall", "--json"]
    # In a sandbox, neither the agent nor the checks could read the patch and what `setup` links to.
    arguments += ["--check-timeout", str(LONGEST_CHECK), "--sandbox", "off"]
    done = run([str(RALPH), "loop", subject or "Replay", "--until", criterion, *arguments], root, state=home / "state")
    shutil.rmtree(root, ignore_errors=True)
    return {**read_outcome(done.stdout, done.returncode), "output": done.stdout}


def read_outcome(output: str, code: int) -> dict[str, Any]:
    """The label and the findings, from what Ralph printed after the turn."""
    verified = output.rpartition("Verifying:")[2] if "Verifying:" in output else ""
    lines = [line.strip() for line in verified.splitlines()]
    findings = tuple(line for line in lines if line.startswith("ERROR "))
    if code == 0:
        return {"label": "passed", "findings": ()}
    if code == UNPROVEN:
        return {"label": "unproven", "findings": tuple(line for line in lines if line.startswith("UNPROVEN"))}
    checks = [line for line in lines if line.startswith(("PASS ", "FAIL "))]
    if findings and checks and all(line.startswith("PASS ") for line in checks):
        return {"label": "held up", "findings": findings}
    return {"label": "not played", "findings": ()}


def run(command: Sequence[str], root: Path, state: Path | None = None) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
    environment.update({"GIT_AUTHOR_NAME": "r", "GIT_AUTHOR_EMAIL": "r@example.com"})
    environment.update({"GIT_COMMITTER_NAME": "r", "GIT_COMMITTER_EMAIL": "r@example.com"})
    if state:
        environment["XDG_STATE_HOME"] = str(state)
    return subprocess.run(
        command,
        cwd=root,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=LONGEST,
    )


def print_table(replays: Sequence[Replay]) -> None:
    columns = ("passed", "held up", "unproven", "not played")
    print(f"{'repository':24}{'language':12}" + "".join(f"{column:>12}" for column in columns) + "  with tests")
    names = sorted({(one.language, one.name) for one in replays})
    for language, name in names:
        _print_row(name, language, [one for one in replays if one.name == name], columns)
    _print_row("all", "", replays, columns)
    judged = [one for one in replays if one.label != "not played"]
    held = sum(one.label == "held up" for one in judged)
    if judged:
        unproven = sum(one.label == "unproven" for one in judged)
        print(f"\n{held} of {len(judged)} commits were held up ({100 * held / len(judged):.1f} %)")
        print(f"{unproven} of {len(judged)} commits are unproven ({100 * unproven / len(judged):.1f} %)")


def _print_row(name: str, language: str, replays: Sequence[Replay], columns: Sequence[str]) -> None:
    counts = Counter(one.label for one in replays)
    with_tests = sum(one.ran_tests for one in replays)
    print(f"{name:24}{language:12}" + "".join(f"{counts[column]:>12}" for column in columns) + f"{with_tests:>12}")


def read_plan(path: Path, only: str) -> list[Repository]:
    listed: list[Mapping[str, Any]] = YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
    repositories = [Repository(**one) for one in listed]
    return [one for one in repositories if only in ("", one.name)]


def main() -> int:
    parser = argparse.ArgumentParser(description="Count real commits that Ralph holds up.")
    parser.add_argument("plan", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", default="", help="the name of one repository")
    parser.add_argument("--commit", default="", help="one commit instead of the sample")
    parser.add_argument("--out", type=Path, help="a file of JSON Lines for the results")
    parser.add_argument("--show", action="store_true", help="print all that Ralph said of commits that were not passed")
    given = parser.parse_args()
    repositories = read_plan(given.plan, given.only)
    known = _read_known(given.out) if given.out else []
    played = {(one.name, one.commit) for one in known}
    drawn = [
        (one, commit)
        for one in repositories
        for commit in ([given.commit] if given.commit else draw_commits(one, given.seed))
    ]
    # By turns, so that a run that is ended early has some of each repository.
    random.Random(given.seed).shuffle(drawn)
    work = [one for one in drawn if (one[0].name, one[1]) not in played]
    results = list(known)
    with ThreadPoolExecutor(given.jobs) as pool:
        for done in as_completed([pool.submit(replay, *one) for one in work]):
            result = done.result()
            results.append(result)
            _tell(result, given.out, show=given.show)
    print_table(results)
    return 0


def _tell(result: Replay, out: Path | None, *, show: bool) -> None:
    print(f"{result.label:11}{result.name:20}{result.commit[:10]} {result.subject[:70]}", flush=True)
    for finding in result.findings:
        print(f"    {finding}", flush=True)
    if show and result.label != "passed":
        print(result.output)
    if out:
        with out.open("a", encoding="utf-8") as file:
            file.write(json.dumps({**asdict(result), "output": ""}) + "\n")


def _read_known(out: Path) -> list[Replay]:
    if not out.exists():
        return []
    lines = out.read_text(encoding="utf-8").splitlines()
    return [Replay(**{**json.loads(line), "findings": tuple(json.loads(line)["findings"])}) for line in lines]


if __name__ == "__main__":
    sys.exit(main())
