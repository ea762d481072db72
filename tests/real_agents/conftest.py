"""Which of these tests run: a quick one with a few installed agents by default, all of them with RALPH_REAL_AGENTS=1.

What all of them saw is written down as the proof of each agent (`proving`).
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from install import Unavailable, directory_of
from isolation import described
from place import Place, may_install, place
from proving import Seen, case_of, write_down
from subject import SUBJECTS

SEEN: dict[str, Seen] = {}
QUICK = ("claude", "codex", "gemini")
"""The agents with which one test runs by default, where they are installed."""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "real_agents: drives real agent programs from npm against a scripted model")
    config.addinivalue_line("markers", "quick_agents: runs by default where the agent's program is installed already")
    config.addinivalue_line("markers", "needs_agents: the agents whose programs a test needs, beside its parameter")


def pytest_report_header() -> list[str]:
    return [
        f"real agents: {', '.join(f'{name} {one.package.version}' for name, one in SUBJECTS.items())}; {described()}"
    ]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if agent := _agent_of(item):
            item.user_properties.append(("agent", agent))
            item.user_properties.append(("case", item.originalname))
            if reason := SUBJECTS[agent].cannot.get(item.originalname):
                item.user_properties.append(("cannot", reason))
                item.add_marker(pytest.mark.skip(reason=f"cannot be with {agent}: {reason}"))
    if may_install():
        return
    reason = "drives real agents: set RALPH_REAL_AGENTS=1 (make test-agents)"
    for item in items:
        quick = item.get_closest_marker("quick_agents") and _agent_of(item) in QUICK
        if item.get_closest_marker("real_agents") and not quick:
            item.add_marker(pytest.mark.skip(reason=reason))


def _agent_of(item: pytest.Item) -> str:
    """The agent whose matrix a test is a case of; other tests come along here too."""
    callspec = getattr(item, "callspec", None) if item.path.parent == Path(__file__).parent else None
    return callspec.params.get("agent", "") if callspec else ""


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    about = dict(report.user_properties)
    if agent := about.get("agent"):
        seen = SEEN.setdefault(agent, Seen(SUBJECTS[agent].package.version))
        passed = report.passed and report.when == "call"
        seen.take(case_of(about["case"]), failed=report.failed, passed=passed, why_not=about.get("cannot", ""))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    is_worker = hasattr(config, "workerinput")
    if may_install() and not is_worker and (new := write_down(SEEN)):
        told = ", ".join(f"{agent} {one.version}: {one.score}" for agent, one in new.items())
        terminalreporter.write_line(f"proofs.json is brought up to date ({told}); `make docs` brings the table")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "agent" in metafunc.fixturenames:
        metafunc.parametrize("agent", sorted(SUBJECTS))
    if "raw" in metafunc.fixturenames:
        metafunc.parametrize("raw", [name for name, one in sorted(SUBJECTS.items()) if one.raw])


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Place]:
    """A project, a model and a network of its own."""
    with place(tmp_path) as made:
        yield made


@pytest.fixture(autouse=True)
def _programs(request: pytest.FixtureRequest) -> None:
    """Skip where a program cannot be had; every agent of a test is needed."""
    marker = request.node.get_closest_marker("needs_agents")
    callspec = getattr(request.node, "callspec", None)
    named = [callspec.params[name] for name in ("agent", "raw", "acp") if name in callspec.params] if callspec else []
    for agent in (*(marker.args if marker else ()), *named):
        try:
            directory_of(SUBJECTS[agent].package, may_install=may_install())
        except Unavailable as reason:
            pytest.skip(str(reason))
