"""A pytest plugin for bench/mutants.py: writes down how long each test takes, or runs the tests of a list in its order."""

import json
import os
from pathlib import Path

import pytest

_seconds: dict[str, float] = {}
_failed: set[str] = set()


def plain_id(item: pytest.Item) -> str:
    """The id of a test without the group that xdist adds to it."""
    group = item.get_closest_marker("xdist_group")
    if group is None:
        return item.nodeid
    name = group.args[0] if group.args else group.kwargs.get("name", "default")
    return item.nodeid.removesuffix(f"@{name}")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "MUTANTS_TESTS" in os.environ:
        wanted = {test: place for place, test in enumerate(Path(os.environ["MUTANTS_TESTS"]).read_text().splitlines())}
        items[:] = sorted((item for item in items if plain_id(item) in wanted), key=lambda item: wanted[plain_id(item)])


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed and "MUTANTS_FAILED" in os.environ:
        Path(os.environ["MUTANTS_FAILED"]).write_text(report.nodeid)
    if report.failed:
        _failed.add(report.nodeid)
    _seconds[report.nodeid] = _seconds.get(report.nodeid, 0.0) + report.duration


def pytest_sessionfinish(session: pytest.Session) -> None:
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker and "MUTANTS_RECORD" in os.environ:
        ran = [item for item in session.items if item.nodeid in _seconds]
        rows = [(item.nodeid, plain_id(item), round(_seconds[item.nodeid], 4), item.nodeid in _failed) for item in ran]
        (Path(os.environ["MUTANTS_RECORD"]) / f"tests-{worker}.json").write_text(json.dumps(rows))
