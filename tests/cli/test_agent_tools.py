"""The tools in the hands of agents: called in real turns, seen from outside."""

import json
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_loop import Project, eventually, make_project

CODE_ASSIST = """
set -e
id=$(ralph tools task ensure "Add --verbose, with tests" --key code-assist:verbose:step-01:flag \\
    --description "AC: it prints more" --format quiet)
ralph tools task ready > ready.txt
"$RALPH_BIN" emit tasks.ready "task_id: $id task_key: code-assist:verbose:step-01:flag"
"$RALPH_BIN" tools task show "$id" --format json > task.json
"$RALPH_BIN" tools task start "$id"
"$RALPH_BIN" tools memory search verbose
"$RALPH_BIN" tools interact progress "the flag is parsed"
"$RALPH_BIN" tools memory add "uv needs a lock file" -t fix --tags uv
"$RALPH_BIN" tools decision add "Use -v" -c 70 --alternatives "-V" --reasoning "usual" --reversibility "one line"
"$RALPH_BIN" emit review.ready "{\\"task_id\\": \\"$id\\"}" --json
"$RALPH_BIN" tools task reopen "$id"
"$RALPH_BIN" tools task close "$id"
grep -q "$id" .ralph/agent/tasks.jsonl
printf '\\n## DEC-001: by hand\\n' >> .ralph/agent/decisions.md
"$RALPH_BIN" tools decision add "Use -q" -c 70 --alternatives "-Q" --reasoning "usual" --reversibility "one line"
touch done.txt
"""
"""Every call that the instructions of a code-assist preset make, in their order."""


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    yield from make_project(tmp_path)


@pytest.mark.more_are_slow(1)
@pytest.mark.parametrize("where", [(), ("--worktree",)], ids=["here", "worktree"])
def test_every_call_of_a_code_assist_preset_works_and_is_seen(project: Project, where: tuple[str, ...]) -> None:
    done = project.work(CODE_ASSIST, *where)
    assert done.code == 0, done.said
    agent, run = project.root / ".ralph" / "agent", project.run.name
    [task] = [json.loads(line) for line in (agent / "tasks.jsonl").read_text().splitlines()]
    assert (task["status"], task["loop_id"]) == ("closed", run)
    assert "> uv needs a lock file" in (agent / "memories.md").read_text()
    decided = json.loads(project.ralph("tools", "decision", "list", "--format", "json").out)
    assert [(one["id"], one["decision"]) for one in decided] == [
        *(("DEC-001", "Use -v"), ("DEC-002", "by hand"), ("DEC-003", "Use -q")),
    ]
    assert "turn 1 (implementer) reports: the flag is parsed" in project.ralph("logs").out
    listed = [json.loads(line) for line in project.ralph("logs", "--events", "--json").out.splitlines()]
    assert [event["topic"] for event in listed] == ["tasks.ready", "review.ready"]
    assert listed[1]["payload"] == {"task_id": task["id"]}
    assert project.ralph("logs", run, "--events", "--topic", "*.ready", "--last", "1").out.split()[1] == "review.ready"
    assert "No events match build.* in run" in project.ralph("logs", "--events", "--topic", "build.*").out
    assert project.ralph("logs", "--events", "--topic", "build.*", "--json").out == ""
    assert project.ralph("tools", "task", "list", "--all", "--format", "quiet").out.strip() == task["id"]
    assert project.git("status", "--porcelain", "--", ".ralph") == ""
    project.ralph("land", run)
    project.ralph("worktrees", "--prune")
    project.ralph("clean", run)
    assert not list((project.root / ".ralph").glob("worktrees/*"))
    assert {path.name for path in agent.iterdir()} >= {"tasks.jsonl", "memories.md", "decisions.md"}


def test_another_ralph_on_the_path_is_not_used(project: Project) -> None:
    other = project.home / "bin" / "ralph"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\nexit 9\n")
    other.chmod(other.stat().st_mode | stat.S_IXUSR)
    path = f"{other.parent}:/usr/bin:/bin"
    done = project.work("ralph tools task add x > added.txt; ralph --version >> added.txt; touch done.txt", PATH=path)
    assert done.code == 0, done.said
    added = (project.root / "added.txt").read_text()
    assert "Created task" in added
    assert "ralph, version" in added


@pytest.mark.slow
def test_progress_is_seen_while_the_turn_continues(project: Project) -> None:
    script = 'ralph tools interact progress "nearly there"; while [ ! -f go ]; do sleep 0.05; done; touch done.txt'
    process = project.start(*project.working(script))
    eventually(lambda: "nearly there" in project.ralph("status").out)
    followed = project.start("logs", "-f")
    (project.root / "go").touch()
    assert process.wait(120) == 0
    out, _ = followed.communicate(timeout=120)
    assert out.count("reports: nearly there") == 1
    assert "nearly there" not in project.ralph("status").out


@pytest.mark.slow
def test_events_can_be_followed(project: Project) -> None:
    script = "ralph emit first.one; ralph emit second.one; touch done.txt"
    process = project.start(*project.working(script))
    eventually(lambda: project.journal("turn.started"))
    followed = project.start("logs", "--events", "--follow", "--topic", "second.*", "--json")
    assert process.wait(120) == 0
    out, err = followed.communicate(timeout=120)
    assert [json.loads(line)["topic"] for line in out.splitlines()] == ["second.one"], err


def test_events_of_no_run_are_an_error_that_helps(project: Project) -> None:
    done = project.ralph("logs", "--events")
    assert (done.code, "there is no run yet" in done.err) == (2, True)
