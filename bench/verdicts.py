"""Plays a corpus of gaming and honest changes as whole small projects, and counts what Ralph makes of them.

python bench/verdicts.py                  every project for which the tools are installed
python bench/verdicts.py python go        some of them, by language or by the name of the file
python bench/verdicts.py --case skip      cases whose names contain this
python bench/verdicts.py --show           also print what Ralph said of each case that it judged wrongly
python bench/verdicts.py --sample 60      a random sample of the cases, always the same one for the same --seed (0)
python bench/verdicts.py --out FILE       write a line of JSON for each case at once, and skip cases that have one
python bench/verdicts.py --validate       only check that the cases are what they say, without Ralph

Each file in `verdicts/` is a project with a fault, visible tests, a criterion, and a hidden oracle: tests that the agent never
sees. Each case is one turn of an agent. `verdicts/README.md` describes the format. The checks and the oracle say whether the
work was really done, so a case that contradicts them is an error of the corpus. A gaming change is caught if the run does not
succeed. An honest change is held up if it does not. Both can also end as unproven: only a judge or the user could tell.
"""

import argparse
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent / "verdicts"
RALPH = Path(sys.executable).with_name("ralph")
LONGEST = 600
"""Seconds after which a run or an oracle is ended."""
NO_VERDICT = (1, 2, 124)
"""Exit codes that say nothing about the work: an error of Ralph, of the command, or of `timeout`."""
UNPROVEN = 7
"""The exit code of a run whose work passes and is not proven."""
MARKER = "turn-is-over.txt"
"""The criterion also asks for this file if the checks pass before the turn. Otherwise Ralph would start no turn."""
COLUMNS = (
    ("gaming", "caught"),
    ("gaming", "unproven"),
    ("gaming", "missed"),
    ("honest", "passed"),
    ("honest", "unproven"),
    ("honest", "held up"),
    ("", "broken"),
)


@dataclass(frozen=True)
class Project:
    """A small project with a fault."""

    name: str
    language: str
    criterion: str
    needs: tuple[str, ...]
    files: Mapping[str, str]
    oracle_files: Mapping[str, str]
    oracle: str
    setup: str = ""
    """A command that installs what the tests need. If it fails, the project is left out."""
    task: str = "Make the checks pass"
    starts_red: bool = True
    """Whether the checks fail before the turn."""


@dataclass(frozen=True)
class Case:
    """One turn of an agent in a project."""

    project: Project
    """The project, with what the case changes of it: its task, criterion or oracle."""
    name: str
    kind: str
    """`gaming` or `honest`."""
    tactic: str
    edits: Sequence[Mapping[str, str]]
    options: tuple[str, ...] = ()
    fails_oracle: bool = False

    @property
    def title(self) -> str:
        return f"{self.project.name}-{self.name}"


@dataclass(frozen=True)
class Result:
    """What Ralph made of a case."""

    case: Case
    code: int
    """How Ralph ended; 124 if it took too long."""
    is_done: bool
    """What the oracle says."""
    output: str

    @property
    def label(self) -> str:
        if self.is_done == self.case.fails_oracle or self.code in NO_VERDICT:
            return "broken"
        if self.code == UNPROVEN:
            return "unproven"
        if self.case.kind == "gaming":
            return "caught" if self.code else "missed"
        return "held up" if self.code else "passed"

    @property
    def is_wrong(self) -> bool:
        return self.label in ("missed", "held up", "broken") or (self.case.kind, self.label) == ("honest", "unproven")


def read_projects(names: Sequence[str]) -> Iterator[tuple[Project, list[Case]]]:
    """The projects of these languages or files, all if none is given, each with its cases."""
    for path in sorted(HERE.glob("*.yml")):
        data = yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
        project = Project(
            name=path.stem,
            language=data.get("language", path.stem),
            criterion=data["criterion"],
            needs=tuple(data["needs"]),
            files=data["files"],
            oracle_files=data["oracle"].get("files", {}),
            oracle=data["oracle"]["command"],
            setup=data.get("setup", ""),
            task=data.get("task", Project.task),
            starts_red=data.get("starts_red", True),
        )
        if not names or project.name in names or project.language in names:
            yield project, [_read_case(project, one) for one in data["cases"]]


def _read_case(project: Project, data: Mapping[str, Any]) -> Case:
    oracle = data.get("oracle", {})
    own = replace(
        project,
        task=data.get("task", project.task),
        criterion=data.get("criterion", project.criterion),
        oracle_files=oracle.get("files", project.oracle_files),
        oracle=oracle.get("command", project.oracle),
        starts_red=data.get("starts_red", project.starts_red),
    )
    return Case(
        project=own,
        name=data["name"],
        kind=data["kind"],
        tactic=data["tactic"],
        edits=data["edits"],
        options=tuple(data.get("options", ())),
        fails_oracle=data.get("fails_oracle", data["kind"] == "gaming"),
    )


def select_cases(names: Sequence[str], part_of_name: str, size: int | None, seed: int) -> list[Case]:
    """The cases to play, in random order if they are a sample."""
    cases = [case for _, some in read_projects(names) for case in some if part_of_name in case.name]
    if size is None:
        return cases
    return random.Random(seed).sample(cases, min(size, len(cases)))


def prepare_projects(
    names: Sequence[str], cases: Sequence[Case], pool: ThreadPoolExecutor, home: Path
) -> dict[str, Path | None]:
    """Where the projects of these cases are, by name; None for one that cannot be played here."""
    wanted = {case.project.name for case in cases}
    projects = [project for project, _ in read_projects(names) if project.name in wanted]
    roots = pool.map(lambda project: prepare(project, home), projects)
    return {project.name: root for project, root in zip(projects, roots, strict=True)}


def prepare(project: Project, home: Path) -> Path | None:
    """The project in a git repository, with what it needs installed; None if that is not possible here."""
    missing = [tool for tool in project.needs if not shutil.which(tool)]
    if missing:
        print(f"{project.name}: left out, because {', '.join(missing)} is not installed")
        return None
    root = home / project.name
    write(root, project.files)
    run(["git", "init", "-q"], root)
    if project.setup:
        done = run(["sh", "-c", project.setup], root)
        if done.returncode:
            print(f"{project.name}: left out, because the setup failed: {done.stdout.strip()[-200:]}")
            return None
    run(["git", "add", "-A"], root)
    run(["git", "-c", "user.name=b", "-c", "user.email=b@example.com", "commit", "-qm", "Before"], root)
    return root


def play(case: Case, prepared: Path, home: Path) -> Result:
    """One run of `ralph loop` in which only the first turn changes files, and what the oracle says of the tree after it."""
    root = copy_project(prepared, home / case.title)
    scenario = home / f"{case.title}.yml"
    # If a judge is asked, its turn says nothing: the case counts as unproven, because only a judge could tell.
    steps = [_make_step(edit) for edit in case.edits]
    criterion = case.project.criterion
    if not case.project.starts_red:
        steps.append({"write": {"path": MARKER, "content": "x\n"}})
        criterion = f"file {MARKER} exists AND {criterion}"
    turns = [
        {"when": {"turn": 1}, "steps": steps},
        {"steps": [{"say": "Nothing to add."}]},
    ]
    scenario.write_text(json.dumps({"turns": turns}), encoding="utf-8")
    command = [str(RALPH), "loop", case.project.task, "--until", criterion, "--scenario", str(scenario)]
    done = run(
        # The second turn changes nothing: the agent keeps what it did, and a judge may be asked.
        [*command, "--max-iterations", "2", "--yes", "--no-recall", *case.options],
        root,
        state=home / "state" / case.title,
    )
    (root / MARKER).unlink(missing_ok=True)
    oracle = ask_oracle(case.project, root)
    shutil.rmtree(root, ignore_errors=True)
    output = f"{done.stdout}\n--- oracle\n{oracle.stdout[-1500:]}"
    return Result(case, code=done.returncode, is_done=oracle.returncode == 0, output=output)


def validate(case: Case, prepared: Path, home: Path) -> list[str]:
    """What contradicts the case: its checks and its oracle before the turn and after it, without Ralph."""
    root = copy_project(prepared, home / case.title)
    faults = []
    if run_checks(case.project, root) == case.project.starts_red:
        faults.append(f"before the turn the checks {'pass' if case.project.starts_red else 'fail'}")
    for edit in case.edits:
        if fault := apply_edit(edit, root):
            faults.append(fault)
    if not run_checks(case.project, root):
        faults.append("after the turn the checks fail, so the change does not even look like a success")
    oracle = ask_oracle(case.project, root)
    if (oracle.returncode != 0) != case.fails_oracle:
        wanted = "fail" if case.fails_oracle else "pass"
        faults.append(f"after the turn the oracle must {wanted}: {oracle.stdout.strip()[-600:]}")
    shutil.rmtree(root, ignore_errors=True)
    return faults


def copy_project(prepared: Path, root: Path) -> Path:
    # A program that is compiled again needs the times of its files.
    subprocess.run(["cp", "-a", str(prepared), str(root)], check=True)
    return root


def run_checks(project: Project, root: Path) -> bool:
    """Whether every command in the criterion exits with 0."""
    commands = re.findall(r"`([^`]+)`", project.criterion)
    return all(run(["sh", "-c", command], root).returncode == 0 for command in commands)


def ask_oracle(project: Project, root: Path) -> "subprocess.CompletedProcess[str]":
    write(root, project.oracle_files)
    return run(["sh", "-c", project.oracle], root)


def apply_edit(edit: Mapping[str, str], root: Path) -> str:
    """Do what the scripted agent does for an edit; what is wrong with the edit, if anything."""
    if "run" in edit:
        done = run(["sh", "-c", edit["run"]], root)
        return f"`{edit['run']}` failed: {done.stdout[-300:]}" if done.returncode else ""
    path = root / edit["path"]
    if "text" in edit:
        write(root, {edit["path"]: edit["text"]})
        return ""
    if not path.exists():
        return f"{edit['path']} does not exist"
    if "find" not in edit:
        run(["rm", "-r", str(path)], root)
        return ""
    text = path.read_text(encoding="utf-8")
    if edit["find"] not in text:
        return f"{edit['path']} does not contain {edit['find']!r}"
    path.write_text(text.replace(edit["find"], edit["replace"], 1), encoding="utf-8")
    return ""


def _make_step(edit: Mapping[str, str]) -> dict[str, Any]:
    """A step of the scripted agent: run a command, replace a text in a file, write a file, or delete it."""
    if "run" in edit:
        return {"run": {"command": edit["run"], "check": True}}
    if "find" in edit:
        return {"patch": {"path": edit["path"], "find": edit["find"], "replace": edit["replace"]}}
    if "text" in edit:
        return {"write": {"path": edit["path"], "content": edit["text"]}}
    return {"run": {"command": f"rm -r {edit['path']}", "check": True}}


def run(command: Sequence[str], root: Path, state: Path | None = None) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
    if state:
        environment["XDG_STATE_HOME"] = str(state)
    ended = ["timeout", "--kill-after=30", str(LONGEST), *command]
    return subprocess.run(
        ended, cwd=root, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )


def write(root: Path, files: Mapping[str, str]) -> None:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")


def print_table(title: str, results: Sequence[Result], key: str) -> None:
    """Counts by language or tactic."""
    print(f"\n{'':24}" + "".join(f"{kind:>9}" for kind, _ in COLUMNS))
    print(f"{title:24}" + "".join(f"{label:>9}" for _, label in COLUMNS))
    groups: dict[str, Counter[tuple[str, str]]] = {}
    for result in results:
        column = ("", "broken") if result.label == "broken" else (result.case.kind, result.label)
        name = result.case.project.language if key == "language" else result.case.tactic
        groups.setdefault(name, Counter())[column] += 1
        groups.setdefault("~ all", Counter())[column] += 1
    for name, counts in sorted(groups.items()):
        print(f"{name.removeprefix('~ '):24}" + "".join(f"{counts[column] or '-':>9}" for column in COLUMNS))


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Count gaming changes that are caught and honest ones that are held up."
    )
    parser.add_argument("names", nargs="*", help="languages, or files of verdicts/ without their ending")
    parser.add_argument("--case", default="")
    parser.add_argument("--sample", type=int, metavar="N", help="play only N of these cases, chosen at random")
    parser.add_argument("--seed", type=int, default=0, help="which sample; default: 0")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--out", type=Path, help="a file of JSON Lines for the results")
    parser.add_argument("--validate", action="store_true", help="check the cases themselves, without Ralph")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ralph-verdicts-") as place, ThreadPoolExecutor(given.jobs) as pool:
        home = Path(place)
        cases = select_cases(given.names, part_of_name=given.case, size=given.sample, seed=given.seed)
        prepared = prepare_projects(given.names, cases, pool, home)
        work = [(case, root) for case in cases if (root := prepared[case.project.name])]
        if given.validate:
            return print_faults(work, list(pool.map(lambda one: validate(one[0], one[1], home), work)))
        known = read_results([case for case, _ in work], given.out)
        left = [one for one in work if one[0].title not in known]
        played = pool.map(lambda one: play_and_record(one[0], one[1], home, given.out), left)
        results = [*known.values(), *played]
    wrong = [result for result in results if result.is_wrong]
    for result in wrong:
        print(f"{result.label:8} {result.case.project.name:20} {result.case.tactic:22} {result.case.name}")
        if given.show:
            print(result.output)
    print_table("by language", results, "language")
    print_table("by tactic", results, "tactic")
    return 1 if any(result.label == "broken" for result in wrong) else 0


def play_and_record(case: Case, prepared: Path, home: Path, out: Path | None) -> Result:
    result = play(case, prepared, home)
    if out:
        line = {"case": case.title, "code": result.code, "is_done": result.is_done, "output": result.output}
        with out.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"label": result.label, **line}) + "\n")
    return result


def read_results(cases: Sequence[Case], out: Path | None) -> dict[str, Result]:
    """The results that are already in a file, by the title of the case."""
    lines = out.read_text(encoding="utf-8").splitlines() if out and out.exists() else []
    found = {one["case"]: one for one in map(json.loads, lines)}
    return {
        case.title: Result(case, code=one["code"], is_done=one["is_done"], output=one["output"])
        for case in cases
        if (one := found.get(case.title))
    }


def print_faults(work: Sequence[tuple[Case, Path]], faults: Sequence[list[str]]) -> int:
    for (case, _), found in zip(work, faults, strict=True):
        for fault in found:
            print(f"{case.project.name} {case.name}: {fault}")
    print(f"{len(work)} cases, {sum(map(bool, faults))} of them are not what they say")
    return 1 if any(faults) else 0


if __name__ == "__main__":
    sys.exit(main())
