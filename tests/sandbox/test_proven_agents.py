"""The level `auto` isolates only agents that were seen to work inside the sandbox."""

import stat
from pathlib import Path

import pytest
from sandbox_place import DONE, Place

from ralph.agents.registry import ADAPTERS
from ralph.agents.state_paths import PROVEN, PROVEN_BY_ACP, find_named_state_paths, is_proven

WORK = 'cat > /dev/null; touch done.txt; touch "$HOME/escaped"'


@pytest.fixture
def programs(place: Place, tmp_path: Path) -> dict[str, str]:
    """A PATH with a program in the place of each known agent."""
    directory = tmp_path / "programs"
    directory.mkdir()
    for name in ("claude", "kiro-cli", "some-agent"):
        path = directory / name
        path.write_text(f"#!/bin/sh\n{WORK}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return {"PATH": f"{directory}:{place.environment['PATH']}"}


def loop(place: Place, programs: dict[str, str], *options: str) -> str:
    options = ("--max-iterations", "1", "--yes", *options)
    return place.ralph("loop", "work", "--until", DONE, *options, code=None, **programs)


def sandbox_of(place: Place) -> str:
    return str(place.journal("run.started")[0]["sandbox"])


def test_a_proven_agent_is_isolated(place: Place, programs: dict[str, str]) -> None:
    said = loop(place, programs, "--agent", "claude")
    assert (sandbox_of(place), "not isolated" in said) == ("write", False), said
    assert not (place.home / "escaped").exists()


def test_another_agent_is_not_and_the_run_says_why(place: Place, programs: dict[str, str]) -> None:
    said = loop(place, programs, "--agent", "kiro")
    reason = "not isolated: Ralph has not been tested with kiro in the sandbox. To isolate agents: pass --sandbox write"
    assert f"note: {reason}" in said
    assert sandbox_of(place) == reason
    assert (place.home / "escaped").exists()


def test_the_user_can_isolate_it(place: Place, programs: dict[str, str]) -> None:
    said = loop(place, programs, "--agent", "kiro", "--sandbox", "write")
    assert (sandbox_of(place), "not isolated" in said) == ("write", False), said
    assert not (place.home / "escaped").exists()


def test_an_agent_can_write_its_own_files_of_the_turn_and_nothing_beside_them(
    place: Place, programs: dict[str, str], tmp_path: Path
) -> None:
    program = tmp_path / "programs" / "mini"
    # Its command names the file after `-o`.
    find = 'while [ "$1" != -o ]; do shift; done; cat > /dev/null; touch done.txt'
    program.write_text(f'#!/bin/sh\n{find}\necho kept > "$2"\necho x > "$(dirname "$2")/../planted"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    loop(place, programs, "--agent", "mini")
    [turn] = (place.run / "turns").iterdir()
    assert (turn / "agent" / "mini.traj.json").read_text() == "kept\n"
    assert not (turn / "planted").exists()


def test_one_such_agent_in_a_run_is_enough(place: Place, programs: dict[str, str]) -> None:
    said = loop(place, programs, "--agent", "claude", "--agent", "kiro")
    assert "not been tested with kiro in the sandbox" in said


def test_consent_does_not_promise_what_does_not_hold(place: Place, programs: dict[str, str]) -> None:
    said = place.ralph("loop", "x", "--until", DONE, "--agent", "kiro", code=2, **programs)
    assert "every file that you can" in said


@pytest.mark.parametrize(
    ("kind", "command", "proven"),
    [
        ("scripted", (), True),
        ("command", ("/opt/own-agent",), True),
        ("claude", (), True),
        ("kiro", (), False),
        ("from-a-package", (), False),
        ("acp", ("opencode", "acp"), True),
        ("acp", ("/opt/bin/claude-agent-acp",), True),
        ("acp", ("kiro-cli", "acp"), False),
        ("acp", ("some-agent",), False),
    ],
)
def test_which_agents_are_proven(kind: str, command: tuple[str, ...], proven: bool) -> None:
    assert is_proven(kind, command) is proven


def test_the_lists_name_known_agents() -> None:
    assert set(ADAPTERS) >= PROVEN | PROVEN_BY_ACP


def test_the_programs_that_speak_acp_for_an_agent_use_its_state() -> None:
    assert find_named_state_paths(["claude-agent-acp"]) == find_named_state_paths(["claude"]) != ()
    assert find_named_state_paths(["/opt/codex-acp"]) == find_named_state_paths(["codex"]) != ()
