"""Amp, Cursor CLI and Kiro CLI cannot be installed for tests: programs that follow their documentation stand in for them."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from test_loop import Done, Project, project  # noqa: F401 - the fixture

PROGRAMS = {"amp": "amp", "cursor": "cursor-agent", "kiro": "kiro-cli"}
KEYS = {"amp": "AMP_API_KEY", "cursor": "CURSOR_API_KEY", "kiro": "KIRO_API_KEY"}
ANSWER = ".ralph/turn/outbox/result.json"
each_agent = pytest.mark.parametrize("agent", PROGRAMS)


def prepare(project: Project, agent: str, *turns: list[str], **variables: str) -> None:  # noqa: F811
    """Install the program, and plan the commands of its turns."""
    place = project.home / "bin"
    place.mkdir()
    program = place / PROGRAMS[agent]
    program.write_text(f"#!{sys.executable}\n" + Path(__file__).with_name("documented_agent.py").read_text())
    program.chmod(0o755)
    (project.home / "plan.json").write_text(json.dumps(turns))
    path = f"{place}:/usr/bin:/bin"
    project.extra = {"PATH": path, "HOME": str(project.home), KEYS[agent]: "mock", **variables}


def loop(project: Project, agent: str, *options: str) -> Done:  # noqa: F811
    return project.ralph("loop", "Say hello", "--until", "`test -f done.txt`", "--agent", agent, "--yes", *options)


def calls(project: Project) -> list[dict[str, Any]]:  # noqa: F811
    return [json.loads(line) for line in (project.home / "calls.jsonl").read_text().splitlines()]


@each_agent
def test_a_loop_ends_when_the_check_passes(project: Project, agent: str) -> None:  # noqa: F811
    prepare(project, agent, [], ["echo hello > done.txt", "ls no-such-file"])
    done = loop(project, agent)
    assert done.code == 0, done.said
    assert [one["result"]["end"] for one in project.journal("turn.ended")] == ["finished", "finished"]
    assert "Say hello" in calls(project)[0]["prompt"], "the whole prompt comes on standard input"
    assert "Done." in project.ralph("logs", "--tools").out


@pytest.mark.parametrize("agent", ["amp", "cursor"])
def test_tokens_and_tools_are_reported(project: Project, agent: str) -> None:  # noqa: F811
    prepare(project, agent, ["echo hello > done.txt", "ls no-such-file"])
    assert loop(project, agent).code == 0
    assert project.ralph("cost", "--json").json["total"]["input_tokens"] > 0
    assert "no-such-file" in project.ralph("logs", "--tools").out


@pytest.mark.parametrize("agent", ["amp", "cursor"])
def test_an_answer_is_repaired_in_the_same_conversation(project: Project, agent: str) -> None:  # noqa: F811
    broken, repaired = f"echo '{{\"nonsense\": 1}}' > {ANSWER}", f'echo \'{{"summary": "hello"}}\' > {ANSWER}'
    prepare(project, agent, ["echo hello > done.txt", broken], [repaired])
    done = loop(project, agent)
    assert done.code == 0, done.said
    assert [one["session"] != "" for one in calls(project)] == [False, True]


@each_agent
def test_a_model_is_passed_on(project: Project, agent: str) -> None:  # noqa: F811
    prepare(project, agent, ["echo hello > done.txt"])
    assert loop(project, agent, "--model", "high").code == 0
    assert [one["model"] for one in calls(project)] == ["high"]


@pytest.mark.more_are_slow(1)
@each_agent
def test_an_agent_that_is_not_signed_in_ends_the_run_with_advice(project: Project, agent: str) -> None:  # noqa: F811
    prepare(project, agent, DOCUMENTED_FAILURE="signed-out")
    done = loop(project, agent)
    assert (done.code, KEYS[agent] in done.out) == (6, True), done.said


@each_agent
def test_permissions_are_its_own_mode_or_refused(project: Project, agent: str) -> None:  # noqa: F811
    prepare(project, agent, ["echo hello > done.txt"])
    (project.root / "ralph.yml").write_text(
        f"agent_command: touch done.txt\nroles: {{judge: {{agent: {agent}, permissions: read-only}}}}\n"
    )
    done = project.ralph("loop", "Say hello", "--until", "`test -f done.txt`", "--yes", "--require", "judged")
    if agent == "amp":
        assert (done.code, "has no mode for `permissions: read-only`" in done.err) == (2, True)
        return
    given = calls(project)[0]["arguments"]
    assert "--trust-tools=fs_read" in given or given[given.index("--mode") + 1] == "ask"
    assert not {"--force", "--trust-all-tools"} & set(given)
