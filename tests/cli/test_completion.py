"""Shells complete commands, options and the ids of runs."""

import os
import shutil
import subprocess

import pytest
from test_loop import RALPH, SUCCEEDS, Project, project  # noqa: F401 - the fixture


def complete(place: Project, *words: str) -> list[str]:
    """What bash is offered for the last of these words."""
    environment = {
        **place.environment,
        "_RALPH_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(words),
        "COMP_CWORD": str(len(words) - 1),
    }
    done = subprocess.run([str(RALPH)], cwd=place.root, env=environment, capture_output=True, text=True, check=True)
    return [line.partition(",")[2] for line in done.stdout.split()]


def test_commands_options_and_run_ids_are_completed(project: Project) -> None:  # noqa: F811
    project.play(SUCCEEDS)
    run = project.run.name
    assert "status" in complete(project, "ralph", "st")
    assert "--worktree" in complete(project, "ralph", "loop", "--wo")
    for command in ("status", "logs", "diff", "resume", "report", "cost"):
        assert complete(project, "ralph", command, run[:6]) == [run], command
    assert complete(project, "ralph", "steer", "--run", run[:6]) == [run]
    assert complete(project, "ralph", "session", "show", run[:6]) == [], "it is a loop"
    assert complete(project, "ralph", "status", "99") == []


def test_tools_and_ids_of_tasks_are_completed(project: Project) -> None:  # noqa: F811
    project.real("tools", "task", "add", "Write the parser")
    [id] = complete(project, "ralph", "tools", "task", "close", "task-")
    assert id.startswith("task-")
    assert complete(project, "ralph", "tools", "task", "show", id[:-1]) == [id]
    assert complete(project, "ralph", "tools", "ta") == ["task"]
    assert set(complete(project, "ralph", "tools", "task", "re")) == {"ready", "reopen"}
    assert complete(project, "ralph", "tools", "task", "add", "task-") == []
    project.real("tools", "task", "close", id)
    assert complete(project, "ralph", "tools", "task", "close", "task-") == [], "it is closed"


@pytest.mark.slow
def test_a_comment_completes_the_run_and_the_files_that_it_changed(project: Project) -> None:  # noqa: F811
    project.play(SUCCEEDS)
    run = project.run.name
    assert complete(project, "ralph", "comment", run[:6]) == [run]
    assert complete(project, "ralph", "comment", run, "do") == ["done.txt:"]
    assert complete(project, "ralph", "comment", run, "done.txt:1", "x") == []
    assert complete(project, "ralph", "comment", "nothing", "do") == []


@pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")
def test_bash_completes_with_the_printed_script(project: Project) -> None:  # noqa: F811
    project.play(SUCCEEDS)
    run = project.run.name
    script = """
eval "$(ralph completion bash)"
COMP_WORDS=(ralph status "$1"); COMP_CWORD=2; COMPREPLY=()
_ralph_completion ralph
printf '%s' "${COMPREPLY[*]}"
"""
    environment = {**project.environment, "PATH": f"{RALPH.parent}:{project.environment['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", script, "bash", run[:6]], cwd=project.root, env=environment, capture_output=True, text=True
    )
    assert (done.stdout, done.returncode) == (run, 0), done.stderr


FISH = "source (ralph completion fish | psub); complete -C $argv[1]"
# A shell in a terminal of its own, because zsh completes only there. Each read waits until its pattern comes.
ZSH = """
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell 'autoload -Uz compinit && compinit -u -D; eval "$(ralph completion zsh)"; print REA""DY'
zpty -r shell seen '*READY*'
zpty -w -n shell "$1"$'\t'
zpty -r shell seen "*$2*"
print -r -- $seen
"""


@pytest.mark.parametrize("shell", ["fish", "zsh"])
def test_fish_and_zsh_complete_ids_with_the_printed_script(project: Project, shell: str) -> None:  # noqa: F811
    program = shutil.which(shell)
    if not program:
        pytest.skip(f"needs {shell}")
    project.play(SUCCEEDS)
    project.real("tools", "task", "add", "Write the parser")
    [task] = complete(project, "ralph", "tools", "task", "close", "task-")
    run = project.run.name
    environment = {**project.environment, "PATH": f"{RALPH.parent}:{project.environment['PATH']}", "TERM": "xterm"}
    for line, wanted in ((f"ralph status {run[:6]}", run), ("ralph tools task close task-", task)):
        script = (FISH, line) if shell == "fish" else (ZSH, "zsh", line, wanted)
        command = [program, *(("-f",) if shell == "zsh" else ()), "-c", *script]
        done = subprocess.run(
            command, cwd=project.root, env=environment, capture_output=True, text=True, timeout=120, check=False
        )
        assert wanted in done.stdout, done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_valid_for_its_shell(project: Project, shell: str) -> None:  # noqa: F811
    done = project.ralph("completion", shell)
    assert (done.code, "_RALPH_COMPLETE" in done.out) == (0, True)
    if program := shutil.which(shell):
        checked = subprocess.run([program, "-n"], input=done.out, text=True, capture_output=True, env=dict(os.environ))
        assert checked.returncode == 0, checked.stderr


def test_an_unknown_shell_is_refused(project: Project) -> None:  # noqa: F811
    done = project.ralph("completion", "cmd")
    assert done.code == 2
    assert "'cmd' is not one of 'bash', 'zsh', 'fish'" in done.err
