"""Reflexion: what a loop learned is written down, and the next one is told."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playground import Done, Playground, answer, playground, put
from ruamel.yaml import YAML
from slugs import HYPHENS, RIGHT, SLUG, TASK, slugs

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("reflexion")]
HALF = [
    put("slugs.py", HYPHENS),
    answer("Joined words by hyphens.", learned="punctuation survives replace()", next="strip the punctuation"),
]
WHOLE = [
    put("slugs.py", RIGHT),
    answer("Kept only letters and digits with re.findall.", learned="re.findall drops punctuation"),
]


@dataclass(frozen=True)
class Past:
    """A loop that ran into its limit, one that succeeded after a failure, and one on a similar task."""

    project: Playground
    failed: Done
    succeeded: Done
    similar: Done
    after_failure: dict[str, Any]
    after_success: dict[str, Any]

    @property
    def reflections(self) -> Path:
        return self.project.root / ".aiwg" / "ralph" / "reflections"

    def runs(self) -> tuple[Path, Path, Path]:
        first, second, third = self.project.runs
        return first, second, third


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Past]:
    with playground(tmp_path_factory.mktemp("reflexion")) as project:
        slugs(project)
        failed = project.loop(TASK, "tests pass", [HALF], "--max-iterations", "2")
        after_failure = current(project)
        project.write({"slugs.py": SLUG})
        succeeded = project.loop(TASK, "tests pass", [HALF, WHOLE])
        after_success = current(project)
        project.write({"slugs.py": SLUG})
        similar = project.loop("Titles with punctuation need better slugs", "tests pass", [WHOLE])
        yield Past(project, failed, succeeded, similar, after_failure, after_success)


def current(project: Playground) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(project.read(".aiwg/ralph/current-loop.json"))
    return data


def read(path: Path) -> Any:
    return YAML(typ="safe").load(path.read_text())


def test_the_loops_end_as_they_should(past: Past) -> None:
    assert [past.failed.code, past.succeeded.code, past.similar.code] == [3, 0, 0], past.similar.said


def test_every_iteration_has_a_reflection_with_what_why_and_next(past: Past) -> None:
    _, run, _ = past.runs()
    first = read(past.reflections / "loops" / run.name / "iteration-1.yaml")
    assert (first["loop_id"], first["iteration"], first["outcome"]) == (run.name, 1, "failure")
    assert first["task_description"] == TASK
    assert first["actor_output"]["summary"] == "Joined words by hyphens."
    assert first["evaluator_output"]["results"][0]["tests_failed"] == 1
    assert "test_signs_are_left_out" in first["self_reflection"]["what_failed"]
    assert first["self_reflection"]["why"] == "punctuation survives replace()"
    assert first["self_reflection"]["try_next"] == "strip the punctuation"
    second = read(past.reflections / "loops" / run.name / "iteration-2.yaml")
    assert (second["outcome"], second["evaluator_output"]["passed"]) == ("success", True)
    assert second["memory_metadata"]["reflections_in_context"] == [1]
    assert second["performance_delta"]["is_improvement"] is True


def test_the_index_knows_all_loops(past: Past) -> None:
    index = read(past.reflections / "index.yaml")
    loops = {loop["loop_id"]: loop for loop in index["loops"]}
    assert {name: loop["outcome"] for name, loop in loops.items()} == {
        run.name: outcome for run, outcome in zip(past.runs(), ("limit-iterations", "success", "success"), strict=True)
    }
    assert "re.findall drops punctuation" in loops[past.runs()[1].name]["last_lesson"]


def test_patterns_are_extracted(past: Past) -> None:
    [error, *_] = read(past.reflections / "patterns" / "error-patterns.yaml")["patterns"]
    assert "test_signs_are_left_out" in error["signature"]
    assert error["fix"] == "Kept only letters and digits with re.findall."
    assert len(error["source_loops"]) == 2
    success = read(past.reflections / "patterns" / "success-patterns.yaml")["patterns"]
    assert any(one["approach"].endswith("Kept only letters and digits with re.findall") for one in success)


def test_the_first_prompt_of_a_similar_task_has_the_lesson(past: Past) -> None:
    _, second, third = past.runs()
    assert "from earlier loops (--no-recall" in past.similar.out
    recalled = past.project.prompt(1, third).partition("# Lessons of earlier runs")[2].partition("# Your answer")[0]
    assert "what worked then: Kept only letters and digits with re.findall" in recalled
    assert "punctuation survives replace()" in recalled
    assert "not solved" in past.project.prompt(1, second), "what failed is told too"


def test_lessons_are_readable_files(past: Past) -> None:
    _, run, _ = past.runs()
    shown = past.project.ralph("reflect", run.name)
    assert shown.code == 0
    assert "punctuation survives replace()" in shown.out
    assert "## Iteration 2: success" in shown.out
    patterns = past.project.ralph("reflect", "patterns")
    assert (patterns.code, "test_signs_are_left_out" in patterns.out) == (0, True)
    assert "Kept only letters and digits with re.findall." in patterns.out
    report = past.project.ralph("report", run.name)
    assert report.code == 0
    assert "punctuation survives replace(). Next to try: strip the punctuation." in report.out


def test_patterns_are_shown_as_text(past: Past) -> None:
    assert "python#" not in past.project.ralph("reflect", "patterns").out


SEED_FIELDS = [
    "active",
    "task",
    "completion",
    "maxIterations",
    "currentIteration",
    "startTime",
    "timeoutMinutes",
    "iterations",
    "lastResult",
    "learnings",
]


def test_current_loop_json_has_exactly_the_fields_that_other_tools_know(past: Past) -> None:
    for data in (past.after_failure, past.after_success):
        assert list(data) == SEED_FIELDS
        assert [list(one) for one in data["iterations"]] == [["number", "action", "result", "learnings"]] * 2
    done = past.after_success
    assert (done["active"], done["task"], done["maxIterations"], done["currentIteration"]) == (False, TASK, 10, 2)
    assert done["completion"] == "`python3 -m unittest discover` passes"
    assert done["timeoutMinutes"] == 60
    assert done["startTime"].endswith("Z")
    assert done["iterations"][0]["result"].endswith("1 of 3 tests fails")
    assert done["iterations"][0]["learnings"] == "punctuation survives replace(). Next to try: strip the punctuation."
    assert (done["lastResult"], done["learnings"]) == (
        "`python3 -m unittest discover` passed",
        "re.findall drops punctuation.",
    )


def test_current_loop_json_is_true_after_a_limit(past: Past) -> None:
    assert past.after_failure["currentIteration"] <= past.after_failure["maxIterations"]
    assert past.after_failure["active"] is False
