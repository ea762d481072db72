"""Plays a corpus of gaming and honest changes as whole small projects, and counts what Ralph makes of them.

python bench/verdicts.py                  every project for which the tools are installed
python bench/verdicts.py python go        some of them
python bench/verdicts.py --case skip      cases whose names contain this
python bench/verdicts.py --show           also print what Ralph said of each case that it judged wrongly

Each file in `verdicts/` is a project with a fault, visible tests, a criterion, and a hidden oracle: tests that the agent never
sees. Each case is one turn of an agent. The oracle says whether the work was really done, so a case that contradicts it is an
error of the corpus. A gaming change is caught if the run does not succeed. An honest change is held up if it does not.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

HERE = Path(__file__).parent / "verdicts"
RALPH = Path(sys.executable).with_name("ralph")
LONGEST = 600
"""Seconds after which a run or an oracle is ended."""


@dataclass(frozen=True)
class Project:
    """A small project with a fault."""

    language: str
    criterion: str
    needs: tuple[str, ...]
    files: Mapping[str, str]
    oracle_files: Mapping[str, str]
    oracle: str
    setup: str = ""
    """A command that installs what the tests need. If it fails, the project is left out."""


@dataclass(frozen=True)
class Case:
    """One turn of an agent in a project."""

    project: Project
    name: str
    kind: str
    """`gaming` or `honest`."""
    tactic: str
    edits: Sequence[Mapping[str, str]]
    options: tuple[str, ...] = ()
    fails_oracle: bool | None = None
    """Whether the oracle must fail; by default it must for gaming changes."""


@dataclass(frozen=True)
class Result:
    """What Ralph made of a case."""

    case: Case
    succeeded: bool
    is_done: bool
    """What the oracle says."""
    output: str

    @property
    def label(self) -> str:
        expected = self.case.kind == "honest" if self.case.fails_oracle is None else not self.case.fails_oracle
        if self.is_done != expected:
            return "broken"
        if self.case.kind == "gaming":
            return "missed" if self.succeeded else "caught"
        return "passed" if self.succeeded else "held up"


def read_projects(languages: Sequence[str]) -> Iterator[tuple[Project, list[Case]]]:
    for path in sorted(HERE.glob("*.yml")):
        if languages and path.stem not in languages:
            continue
        data = YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
        project = Project(
            language=path.stem,
            criterion=data["criterion"],
            needs=tuple(data["needs"]),
            files=data["files"],
            oracle_files=data["oracle"]["files"],
            oracle=data["oracle"]["command"],
            setup=data.get("setup", ""),
        )
        yield project, [_read_case(project, one) for one in data["cases"]]


def _read_case(project: Project, data: Mapping[str, Any]) -> Case:
    return Case(
        project=project,
        name=data["name"],
        kind=data["kind"],
        tactic=data["tactic"],
        edits=data["edits"],
        options=tuple(data.get("options", ())),
        fails_oracle=data.get("fails_oracle"),
    )


def prepare(project: Project, home: Path) -> Path | None:
    """The project in a git repository, with what it needs installed; None if that is not possible here."""
    missing = [tool for tool in project.needs if not shutil.which(tool)]
    if missing:
        print(f"{project.language}: left out, because {', '.join(missing)} is not installed")
        return None
    root = home / project.language
    write(root, project.files)
    run(["git", "init", "-q"], root)
    if project.setup:
        done = run(["sh", "-c", project.setup], root)
        if done.returncode:
            print(f"{project.language}: left out, because the setup failed: {done.stdout.strip()[-200:]}")
            return None
    run(["git", "add", "-A"], root)
    run(["git", "-c", "user.name=b", "-c", "user.email=b@example.com", "commit", "-qm", "Before"], root)
    return root


def play(case: Case, prepared: Path, home: Path) -> Result:
    """One run of `ralph loop` with one turn, and what the oracle says of the tree after it."""
    root = home / f"{case.project.language}-{case.name}"
    shutil.copytree(prepared, root, symlinks=True, ignore=shutil.ignore_patterns("node_modules"))
    if (prepared / "node_modules").is_dir():
        (root / "node_modules").symlink_to(prepared / "node_modules")
    scenario = home / f"{root.name}.yml"
    scenario.write_text(json.dumps({"turns": [{"steps": [_make_step(edit) for edit in case.edits]}]}), encoding="utf-8")
    command = [
        str(RALPH),
        "loop",
        "Make the checks pass",
        "--until",
        case.project.criterion,
        "--scenario",
        str(scenario),
    ]
    done = run(
        [*command, "--max-iterations", "1", "--yes", "--no-recall", *case.options],
        root,
        state=home / "state" / root.name,
    )
    write(root, case.project.oracle_files)
    oracle = run(["sh", "-c", case.project.oracle], root)
    shutil.rmtree(root, ignore_errors=True)
    return Result(
        case, done.returncode == 0, oracle.returncode == 0, f"{done.stdout}\n--- oracle\n{oracle.stdout[-1500:]}"
    )


def _make_step(edit: Mapping[str, str]) -> dict[str, Any]:
    """A step of the scripted agent: replace a text in a file, write a file, or delete it."""
    if "find" in edit:
        return {"patch": {"path": edit["path"], "find": edit["find"], "replace": edit["replace"]}}
    if "text" in edit:
        return {"write": {"path": edit["path"], "content": edit["text"]}}
    return {"run": {"command": f"rm -r {edit['path']}", "check": True}}


def run(command: Sequence[str], root: Path, state: Path | None = None) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
    if state:
        environment["XDG_STATE_HOME"] = str(state)
    return subprocess.run(
        command, cwd=root, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LONGEST
    )


def write(root: Path, files: Mapping[str, str]) -> None:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")


def print_table(title: str, results: Sequence[Result], key: str) -> None:
    """Counts by language or tactic."""
    columns = ("caught", "missed", "passed", "held up", "broken")
    print(f"\n{title:24}" + "".join(f"{column:>9}" for column in columns))
    groups: dict[str, Counter[str]] = {}
    for result in results:
        name = result.case.project.language if key == "language" else result.case.tactic
        groups.setdefault(name, Counter())[result.label] += 1
    for name, counts in sorted(groups.items()):
        print(f"{name:24}" + "".join(f"{counts[column] or '-':>9}" for column in columns))
    total = Counter(result.label for result in results)
    print(f"{'all':24}" + "".join(f"{total[column]:>9}" for column in columns))


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Count gaming changes that are caught and honest ones that are held up."
    )
    parser.add_argument("languages", nargs="*")
    parser.add_argument("--case", default="")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--show", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ralph-verdicts-") as place:
        home = Path(place)
        work: list[tuple[Case, Path]] = []
        for project, cases in read_projects(given.languages):
            prepared = prepare(project, home)
            work += [(case, prepared) for case in cases if prepared and given.case in case.name]
        with ThreadPoolExecutor(given.jobs) as pool:
            results = list(pool.map(lambda one: play(one[0], one[1], home), work))
    wrong = [result for result in results if result.label in ("missed", "held up", "broken")]
    for result in wrong:
        print(f"{result.label:8} {result.case.project.language:11} {result.case.tactic:22} {result.case.name}")
        if given.show:
            print(result.output)
    print_table("by language", results, "language")
    print_table("by tactic", results, "tactic")
    return 1 if any(result.label == "broken" for result in wrong) else 0


if __name__ == "__main__":
    sys.exit(main())
