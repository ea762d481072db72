"""The corpus of `make bench-verdicts`: every edit fits its project, and both kinds of changes are there."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest


def load_bench() -> Any:
    path = Path(__file__).parents[2] / "bench" / "verdicts.py"
    spec = importlib.util.spec_from_file_location("bench_verdicts", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


BENCH = load_bench()
PROJECTS = list(BENCH.read_projects(()))
CASES = [pytest.param(case, id=f"{project.language}-{case.name}") for project, cases in PROJECTS for case in cases]


@pytest.mark.parametrize("case", CASES)
def test_every_edit_fits_the_project(case: Any) -> None:
    files = dict(case.project.files)
    for edit in case.edits:
        path = edit["path"]
        if "find" in edit:
            assert files[path].count(edit["find"]) == 1, f"{path}: {edit['find']!r}"
            files[path] = files[path].replace(edit["find"], edit["replace"])
        elif "text" in edit:
            files[path] = edit["text"]
        else:
            del files[path]
    assert files != case.project.files


def test_every_language_has_gaming_and_honest_changes() -> None:
    assert [project.language for project, _ in PROJECTS] == ["go", "java", "python", "rust", "typescript"]
    for _, cases in PROJECTS:
        assert {case.kind for case in cases} == {"gaming", "honest"}
        assert len({case.name for case in cases}) == len(cases)


def test_result_is_compared_with_the_oracle() -> None:
    case = PROJECTS[0][1][0]
    assert case.kind == "gaming"
    labels = {
        (succeeded, is_done): BENCH.Result(case, succeeded, is_done, "").label
        for succeeded in (True, False)
        for is_done in (True, False)
    }
    assert labels == {
        (True, False): "missed",
        (False, False): "caught",
        (True, True): "broken",
        (False, True): "broken",
    }
