"""Which of these tests run: a few with installed agents by default, all of them with RALPH_REAL_AGENTS=1.

The results of all of them are saved as the proof of each agent (`proof_records`).
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from agent_project import AgentProject, may_install, open_project
from install import Unavailable, directory_of
from isolation import describe_isolation
from proof_records import CaseResults, case_name, save_proofs
from subject import SUBJECTS

RESULTS: dict[str, CaseResults] = {}
QUICK = ("claude", "codex", "gemini")
"""The agents with which a test runs without RALPH_REAL_AGENTS, if they are installed."""
SLOW_TO_START = ("gemini",)
"""Agents with which it runs only in `make test-slow`."""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "real_agents: drives real agent programs from npm against a scripted model")
    config.addinivalue_line("markers", "quick_agents: runs by default if the agent's program is installed")
    config.addinivalue_line("markers", "needs_agents: the agents whose programs a test needs, beside its parameter")


def pytest_report_header() -> list[str]:
    return [
        f"real agents: {', '.join(f'{name} {one.package.version}' for name, one in SUBJECTS.items())}; {describe_isolation()}"
    ]


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if agent := _agent_of(item):
            item.user_properties.append(("agent", agent))
            item.user_properties.append(("case", item.originalname))
            if "observed" in item.fixturenames:
                # With xdist: one process plays the turn that these tests of an agent share.
                item.add_marker(pytest.mark.xdist_group(agent))
            if reason := SUBJECTS[agent].cannot.get(item.originalname):
                item.user_properties.append(("cannot", reason))
                item.add_marker(pytest.mark.skip(reason=f"not possible with {agent}: {reason}"))
    if may_install():
        return
    reason = "drives real agents: set RALPH_REAL_AGENTS=1 (make test-agents)"
    for item in items:
        agents = _agents_of(item)
        quick = item.get_closest_marker("quick_agents") and agents and set(agents) <= set(QUICK)
        # A test without the parameter `agent` plays a whole run with many turns.
        if quick and (not _agent_of(item) or set(agents) & set(SLOW_TO_START)):
            item.add_marker(pytest.mark.slow)
        if item.get_closest_marker("real_agents") and not quick:
            item.add_marker(pytest.mark.skip(reason=reason))


def _agent_of(item: pytest.Item) -> str:
    """The agent of a test in this directory; empty if the test has none."""
    callspec = getattr(item, "callspec", None) if item.path.parent == Path(__file__).parent else None
    return callspec.params.get("agent", "") if callspec else ""


def _agents_of(item: pytest.Item) -> tuple[str, ...]:
    """The agents whose programs a test needs: that of its parameter, else those of its marker."""
    agent = _agent_of(item)
    needed = item.get_closest_marker("needs_agents")
    if agent:
        return (agent,)
    return needed.args if needed else ()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    properties = dict(report.user_properties)
    if agent := properties.get("agent"):
        results = RESULTS.setdefault(agent, CaseResults(SUBJECTS[agent].package.version))
        passed = report.passed and report.when == "call"
        results.add(
            case_name(properties["case"]), failed=report.failed, passed=passed, why_not=properties.get("cannot", "")
        )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    is_worker = hasattr(config, "workerinput")
    if may_install() and not is_worker and (new := save_proofs(RESULTS)):
        summary = ", ".join(f"{agent} {proof.version}: {proof.score}" for agent, proof in new.items())
        terminalreporter.write_line(f"proofs.json is up to date ({summary}); run `make docs` for the table")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "agent" in metafunc.fixturenames:
        metafunc.parametrize("agent", sorted(SUBJECTS))
    if "raw" in metafunc.fixturenames:
        metafunc.parametrize("raw", [name for name, one in sorted(SUBJECTS.items()) if one.raw])


@pytest.fixture
def directory(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A directory for the test. The sandbox of Codex hides /dev/shm and opens /tmp, so its tests use neither."""
    if "codex" not in request.node.name:
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="ralph-agents-", dir="/var/tmp", ignore_cleanup_errors=True) as path:
        yield Path(path)


@pytest.fixture
def project(directory: Path) -> Iterator[AgentProject]:
    """A project with its own network and scripted model. Checks every prompt that reached the model."""
    with open_project(directory) as opened:
        yield opened
        # The tests of proofs copy this directory without its neighbours.
        from received_prompts import find_prompt_faults

        assert find_prompt_faults(opened.root, opened.model.requests) == []


@pytest.fixture(autouse=True)
def _programs(request: pytest.FixtureRequest) -> None:
    """Skip a test if the program of one of its agents is not available."""
    marker = request.node.get_closest_marker("needs_agents")
    callspec = getattr(request.node, "callspec", None)
    named = [callspec.params[name] for name in ("agent", "raw", "acp") if name in callspec.params] if callspec else []
    for agent in (*(marker.args if marker else ()), *named):
        try:
            directory_of(SUBJECTS[agent].package, may_install=may_install())
        except Unavailable as reason:
            pytest.skip(str(reason))
