"""`ralph reflect`: what loops learned, for people and programs."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from past import keep, keep_past, loop_id, reflection

from ralph.cli import reflect as command
from ralph.core.errors import UsageError
from ralph.documents.reflection import HOME
from ralph.memory.learning import learn_patterns
from ralph.memory.reflections import Reflections
from ralph.store.runs import Project

HOLDER = """
import sys, time
from pathlib import Path
from ralph.store.runs import RunDir
lock = RunDir(Path(sys.argv[1])).lock()
print("held", flush=True)
time.sleep(60)
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "ralph.yml").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RALPH_TURN", raising=False)
    return tmp_path


def reflect(*args: str) -> Result:
    return CliRunner().invoke(command.reflect, args, standalone_mode=False)


def told(*args: str) -> str:
    done = reflect(*args)
    assert done.exception is None, done.exception
    return done.output


def as_json(*args: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(told(*args, "--json"))
    return data


@pytest.mark.usefixtures("root")
def test_without_lessons_it_says_how_to_begin() -> None:
    assert "No reflections yet" in told()
    assert "ralph loop" in told("show")
    assert "No patterns yet" in told("patterns")
    assert "nothing to archive" in told("clear", "--yes")
    assert as_json() == {"schema": 1, "command": "reflect", "loop": None, "reflections": [], "faults": []}


def test_the_latest_loop_is_shown_as_text(root: Path) -> None:
    loops = keep_past(root)
    assert told() == told("show") == told("show", loops[-1]) == told(loops[-1])
    said = told(loops[0], "--last", "2")
    assert said.startswith("# Fix failing tests of the date parser\n\nLoop ")
    assert "## Iteration 2: failure (reward 0.00; " in said
    assert "- **Did**: Convert every parsed date to UTC" in said
    assert "Iteration 1" not in said


def test_other_forms_are_for_other_readers(root: Path) -> None:
    loop = keep_past(root)[0]
    summary = told(loop, "--format", "summary").splitlines()
    assert len(summary) == 3
    assert summary[0].startswith("   1  failure  0.00  tried: Parsed with strptime; failed because parse_date")
    yaml = told(loop, "--format", "yaml", "--last", "1")
    assert yaml == (root / HOME / "loops" / loop / "iteration-3.yaml").read_text()
    assert told(loop, "--format", "yaml").count("---\n") == 2
    data = as_json(loop, "--last", "1")
    assert data["loop"] == loop
    assert data["reflections"][0]["outcome"] == "success"


def test_a_beginning_of_an_id_is_enough_if_there_is_one(root: Path) -> None:
    loops = keep_past(root)
    assert told(loops[4][:13]) == told(loops[4])
    for wanted, says in ((loops[0][:6], "several loops"), ("260101-000000-aaaa", "no reflections"), ("../x", "no")):
        error = reflect(wanted).exception
        assert isinstance(error, UsageError), wanted
        assert says in str(error)


def test_broken_files_are_named_and_terminals_are_safe(root: Path) -> None:
    keep(root, reflection(loop_id(1), 1, action="evil \x1b]0;title\x07 \x9b31m text"), reflection(loop_id(1), 2))
    (root / HOME / "loops" / loop_id(1) / "iteration-2.yaml").write_text("{")
    done = reflect()
    assert "\x1b" not in done.output
    assert "\x9b" not in done.output
    assert "skipped: " in done.stderr
    assert "iteration-2.yaml" in as_json()["faults"][0]


def test_patterns_are_listed_by_kind(root: Path) -> None:
    for loop in keep_past(root):
        learn_patterns(root, loop)
    said = told("patterns")
    assert said.index("# Errors that happened more than once") < said.index("# What worked")
    assert "-> Looked closer" not in said.split("# What worked")[1]
    assert len(as_json("patterns")["patterns"]) == 40
    (root / HOME / "patterns" / "error-patterns.yaml").write_text("{")
    assert "error-patterns.yaml" in reflect("patterns").stderr
    assert len(as_json("patterns")["patterns"]) == 19


class TestClear:
    def test_clear_needs_a_confirmation(self, root: Path) -> None:
        keep_past(root)
        error = reflect("clear").exception
        assert isinstance(error, UsageError)
        assert "--yes" in error.todo
        assert len(Reflections(root).loops()) == 21

    def test_clear_archives_all_reflections(self, root: Path) -> None:
        keep_past(root)
        data = as_json("clear", "--yes")
        assert data["loops"] == 21
        assert len(list(Path(data["archive"]).glob("loops/*"))) == 21
        assert "No reflections yet" in told()

    def test_clear_is_refused_while_a_loop_runs(self, root: Path, living: Path) -> None:
        keep_past(root)
        error = reflect("clear", "--yes").exception
        assert isinstance(error, UsageError)
        assert living.name in error.what
        assert len(Reflections(root).loops()) == 21

    @pytest.fixture
    def living(self, root: Path) -> Iterator[Path]:
        run = Project(root).runs_dir / loop_id(50)
        run.mkdir(parents=True)
        holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(run)], stdout=subprocess.PIPE)
        assert holder.stdout
        assert holder.stdout.readline() == b"held\n"
        yield run
        holder.kill()
        holder.wait()
        holder.stdout.close()


def test_help_is_that_of_the_group() -> None:
    said = told("--help")
    assert all(word in said for word in ("show", "patterns", "clear"))
