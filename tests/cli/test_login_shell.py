"""Agents whose shells set PATH anew, as codex does: the commands of their prompts work, and one that does not is pointed out."""

import re
from pathlib import Path

import pytest
from test_agents import bin_dir, program, says  # noqa: F401 - the fixture
from test_hats_gates import SEED
from test_loop import Project, project  # noqa: F401 - the fixture

FOLLOWS = """\
import os, re, subprocess, sys
page = sys.stdin.read()
# The words of the prompt itself, with a topic and a payload of this hat, in a login shell that finds no `ralph`.
[command] = re.findall(r'Publish with `(.*?) TOPIC .PAYLOAD.`', page)
topics = {"planner": "tasks.ready", "builder": "review.ready", "critic": "review.passed", "finalizer": "LOOP_COMPLETE"}
topic = topics[os.environ["RALPH_HAT"]]
kept = {name: value for name, value in os.environ.items() if re.fullmatch("KEPT|HOME", name)}
words = ["env", "-i", *(f"{name}={value}" for name, value in kept.items()), "bash", "-lc"]
assert subprocess.run([*words, "ralph --help"], capture_output=True).returncode == 127
sys.exit(subprocess.run([*words, f'{command} {topic} "task_id: t-1"']).returncode)
"""
QWEN = """\
#!/usr/bin/env python3
import json, os, re, subprocess, sys
page = sys.stdin.read()
[command] = re.findall(r'Publish with `(.*?) TOPIC .PAYLOAD.`', page)
if "$" in command.split()[0]:
    sys.exit("Could not identify command root to obtain permission from user")
topics = {"planner": "tasks.ready", "builder": "review.ready", "critic": "review.passed", "finalizer": "LOOP_COMPLETE"}
call = f'{command} {topics[os.environ["RALPH_HAT"]]} "task_id: t-1"'
environment = {**os.environ, "PATH": "/usr/bin:/bin"}
code = subprocess.run(["bash", "-lc", call], env=environment, stdout=sys.stderr).returncode
done = {"type": "result", "subtype": "success", "is_error": False, "result": "Done.", "session_id": "s-1", "usage": {}}
print(json.dumps(done))
sys.exit(code)
"""


@pytest.mark.more_are_slow(1)
@pytest.mark.parametrize("kept", ["RALPH_.*", "RALPH_BIN|RALPH_TURN"], ids=["exported variables", "almost none"])
def test_the_command_of_the_prompt_works_in_a_login_shell(project: Project, kept: str) -> None:  # noqa: F811
    (project.home / "follows.py").write_text(FOLLOWS.replace("KEPT", kept))
    agent = f"python3 {project.home}/follows.py"
    done = project.ralph("run", "-c", str(SEED), "-p", "Build it", "--agent-command", agent, "--yes")
    assert done.code == 0, done.said


def test_agent_that_refuses_variables_is_given_the_path_of_the_command(project: Project, bin_dir: Path) -> None:  # noqa: F811
    (bin_dir / "qwen").write_text(QWEN)
    (bin_dir / "qwen").chmod(0o755)
    done = project.ralph("run", "-c", str(SEED), "-p", "Build it", "--agent", "qwen", "--yes", OPENAI_API_KEY="x")
    assert done.code == 0, done.said


def test_hat_with_only_its_turn_variable_is_held_to_its_own_gates(project: Project) -> None:  # noqa: F811
    call = 'env -i RALPH_BIN="$RALPH_BIN" RALPH_TURN="$RALPH_TURN" "$RALPH_BIN" emit review.passed "task_id: t-1"'
    agent = f"sh -c 'cat >/dev/null; cd /; {call} 2> {project.home}/told; true'"
    options = ("--agent-command", agent, "--yes", "--max-iterations", "1")
    project.ralph("run", "-c", str(SEED), "-p", "Build it", *options)
    told = (project.home / "told").read_text()
    assert "`review.passed` counts only from critic" in told
    assert "publish one of: tasks.ready" in told, "the planner reads what it may publish itself"


def test_turn_that_is_not_known_publishes_nothing(project: Project) -> None:  # noqa: F811
    done = project.real("emit", "build.done", RALPH_TURN="261117-010203/00001")
    assert done.code == 2
    assert "RALPH_TURN" in done.err


@pytest.mark.more_are_slow(1)
@pytest.mark.parametrize("preset", ["code-assist", "tdd", "debug", "review"])
def test_no_prompt_names_a_bare_command(project: Project, preset: str) -> None:  # noqa: F811
    options = ("--check", "`false`", "--agent-command", "true", "--yes", "--max-iterations", "1")
    project.ralph("run", "-H", preset, "-p", "Explain `ralph emit` in the docs", *options)
    page = project.ralph("prompt", "--turn", "1", "--json").json["prompt"]
    told, _, rest = page.partition("<objective>")
    objective, _, rest = rest.partition("</objective>")
    assert '"$RALPH_BIN" emit TOPIC' in told and '"$RALPH_BIN" tools task' in told + rest
    assert not re.findall(r"\bralph (?:emit|tools|wave|diff)\b", told + rest)
    assert "Explain `ralph emit` in the docs" in objective, "what the user wrote stays as it is"


def test_a_shell_that_finds_no_ralph_is_pointed_out(project: Project, bin_dir: Path) -> None:  # noqa: F811
    tool = {
        **{"id": "c", "type": "command_execution", "command": "ralph emit x.y", "status": "failed"},
        "aggregated_output": "bash: line 1: ralph: command not found",
    }
    body = "echo hello > done.txt\n" + says(
        {"type": "thread.started", "thread_id": "t-1"},
        {"type": "item.completed", "item": tool},
        {"type": "turn.completed", "usage": {"input_tokens": 10, "output_tokens": 1}},
    )
    program(bin_dir, "codex", body)
    done = project.ralph("loop", "Hello", "--until", "`test -f done.txt` passes", "--agent", "codex", "--yes")
    assert done.code == 0, done.said
    assert "warning: the agent's shell did not find `ralph`" in done.out
    assert "did not find `ralph`" in project.ralph("logs").out
