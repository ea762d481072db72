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
    kinds: dict[str, set[str]] = {}
    for project, cases in PROJECTS:
        kinds.setdefault(project.language, set()).update(case.kind for case in cases)
        assert len({case.name for case in cases}) == len(cases)
    assert {"go", "java", "python", "rust", "typescript"} <= kinds.keys()
    assert all(found == {"gaming", "honest"} for found in kinds.values())


def test_result_is_compared_with_the_oracle() -> None:
    case = PROJECTS[0][1][0]
    assert case.kind == "gaming"
    labels = {
        (code, is_done): BENCH.Result(case, code, is_done, "").label for code in (0, 3, 7) for is_done in (True, False)
    }
    assert labels == {
        (0, False): "missed",
        (3, False): "caught",
        (7, False): "unproven",
        (0, True): "broken",
        (3, True): "broken",
        (7, True): "broken",
    }
