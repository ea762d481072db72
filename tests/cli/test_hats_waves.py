"""Hats side by side through the real command line: real worktrees, real agents, conflicts, and engines that are killed."""

import json
import os
import shlex
import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from test_loop import Done, Project, eventually, project  # noqa: F401 - the fixture

from ralph.cli.render.hats import HatsRenderer
from ralph.core.entries import Record
from ralph.core.events import TurnEnded
from ralph.core.turns import TurnEnd, TurnResult
from ralph.documents.agent.events import render_event
from ralph.store.documents import digest

AGENT = Path(__file__).with_name("waves_agent.py")
PRESET = """\
event_loop:
  starting_event: build.start
  required_events: [piece.done]
  max_consecutive_failures: 1
  checkpoint_interval: 2
hats:
  planner: {triggers: [build.start, round.done], publishes: [piece.ready, LOOP_COMPLETE]}
  builder: {triggers: [piece.ready], publishes: [piece.done], concurrency: 2}
  gatherer: {triggers: [piece.done], publishes: [round.done], aggregate: {mode: wait_for_all, timeout: 300}}
"""


def words(project: Project, **script: Any) -> list[str]:  # noqa: F811
    (project.root / "ralph.yml").write_text(PRESET)
    (project.root / "shared.txt").write_text("0\n")
    if (project.root / ".git").exists():
        project.git("add", "-A")
        project.git("commit", "-qm", "preset")
    path = project.home / "script.json"
    path.write_text(json.dumps(script))
    project.extra["SCRIPT"] = str(path)
    return ["run", "-p", "Build it", "--agent-command", shlex.join([sys.executable, str(AGENT)]), "--yes"]


def begin(project: Project, *args: str, **script: Any) -> Done:  # noqa: F811
    return project.ralph(*words(project, **script), *args)


def turns(project: Project) -> Counter[str]:  # noqa: F811
    return Counter((project.home / "turns").read_text().splitlines())


def payloads(project: Project, topic: str) -> list[str]:  # noqa: F811
    [path] = (project.root / ".ralph").glob("events-*.jsonl")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [row["payload"] for row in rows if row["topic"] == topic]


def test_refused_event_of_a_worker_that_just_ends_is_shown_to_the_user_and_to_the_next_hat(project: Project) -> None:  # noqa: F811
    done = begin(project, rash="1.2")
    refusal = "`LOOP_COMPLETE` counts only from planner"
    assert f"builder, `piece.ready` 3: an event was refused: {refusal}" in done.out, done.said
    prompts = {}
    for entry in project.journal("turn.started"):
        text = project.ralph("prompt", "--turn", str(entry["turn"]), "--json").json["prompt"]
        prompts[entry["turn"]] = f"an event of builder was refused: {refusal}" in text
    assert any(prompts.values()), prompts
    assert not prompts[1]


def test_two_waves_with_conflicts_are_merged_on_one_branch(project: Project) -> None:  # noqa: F811
    done = begin(project, "--land", "ff", rounds=2)
    assert done.code == 0, done.said
    told = [f"built {round}.{number}" for round in (1, 2) for number in (1, 2, 3)]
    assert payloads(project, "piece.done") == told
    assert [line for line in turns(project) if line.startswith("resolver")], "they changed the same lines"
    root = project.root
    assert sorted((root / "shared.txt").read_text().split()) == ["0", "1.1", "1.2", "1.3", "2.1", "2.2", "2.3"]
    assert len(list(root.glob("piece-*.txt"))) == 6
    assert project.git("status", "--porcelain") == ""
    page = (root / "gathered.txt").read_text()
    assert "3 events, all of them yours now" in page and all(f"built 2.{number}" in page for number in (1, 2, 3))
    agent = root / ".ralph" / "agent"
    rows = [json.loads(line) for line in (agent / "tasks.jsonl").read_text().splitlines()]
    assert (len(rows), {row["status"] for row in rows}) == (6, {"closed"})
    assert (agent / "memories.md").read_text().count("was easy") == 6
    assert [f"DEC-00{n}" in (agent / "decisions.md").read_text() for n in range(1, 8)] == [True] * 6 + [False]
    assert [row["end"] for row in project.journal("merge.ended")].count("merged") == 6
    assert "ralph: checkpoint after turn" in project.git("log", "--format=%s")
    assert list((root / ".ralph" / "worktrees").glob("*.*")) == [], "those that are merged are gone"
    logs = project.ralph("logs").out
    assert logs.rindex("  merged ") < logs.index("-> LOOP_COMPLETE"), "each is told when it was published"
    worker = next(row["turn"] for row in project.journal("turn.started") if row["key"].startswith("wave"))
    assert project.ralph("diff", str(worker)).out.count("+++ b/piece-") == 1, "only what this worker made"


@pytest.mark.slow
def test_failed_and_unmergeable_workers_lose_no_other_work(project: Project) -> None:  # noqa: F811
    done = begin(project, fails="1.2", stubborn=True)
    assert done.code == 0, done.said
    # The two that work write the same file: the one that is done first is merged.
    [built] = payloads(project, "piece.done")
    first, other = ("1.1", "1.3") if built == "built 1.1" else ("1.3", "1.1")
    assert built == f"built {first}"
    failures = payloads(project, "wave.worker.failed")
    failed, conflict = sorted(failures, key=lambda payload: "could not be merged" in payload)
    assert "I cannot" in failed and "piece 1.2" in failed
    assert "could not be merged" in conflict and "shared.txt" in conflict
    branch = conflict.split("stays on the branch ")[1].split()[0]
    assert other in project.git("show", f"{branch}:shared.txt")
    run = f"ralph/{project.run.name}/run"
    assert project.git("show", f"{run}:shared.txt").split() == ["0", first]
    page = project.git("show", f"{run}:gathered.txt")
    assert "`wave.worker.failed` from coordinator" in page and built in page


def test_events_of_a_wave_are_shown_if_its_last_worker_was_not_merged(tmp_path: Path) -> None:
    """The turn that fails ends the wave: then the others' events are published too."""
    rows = zip(("piece.done", "wave.worker.failed", "round.done"), (2, 3, 4), strict=True)
    lines = [render_event(topic, "", "2026-11-16T09:30:00Z", turn=turn) for topic, turn in rows]
    (tmp_path / "events").write_bytes(b"".join(lines))
    renderer = HatsRenderer("r", events=tmp_path / "events")
    hashes = [digest(line) for line in lines]
    ends = [(3, TurnEnd.FAILED, hashes[:2]), (4, TurnEnd.FINISHED, hashes[2:])]
    told = []
    for turn, end, written in ends:
        entry = TurnEnded("k", turn, "hat", 1, TurnResult(end, 1, 2), True)
        record = Record(1, 2, entry, lines={".ralph/events": tuple(written)})
        told.append([line for line in renderer.lines(record) if "->" in line])
    assert told == [["  -> piece.done", "  -> wave.worker.failed"], ["  -> round.done"]]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "count"), [("turn.started", 2), ("merge.started", 1), ("merge.ended", 1)])
def test_an_engine_that_is_killed_in_a_wave_loses_and_repeats_nothing(
    project: Project,  # noqa: F811
    kind: str,
    count: int,
) -> None:
    engine = project.start(*words(project, slow=0.3))
    eventually(lambda: len(project.journal(kind)) >= count)
    engine.kill()
    engine.communicate()
    done = project.real("resume")
    assert done.code == 0, done.said
    assert payloads(project, "piece.done") == ["built 1.1", "built 1.2", "built 1.3"]
    assert "-> piece.ready" not in done.out, "that was told before"
    assert done.out.count("-> piece.done") == 3
    had = turns(project)
    assert [had[f"builder builder-{number}"] for number in (2, 3, 4)] == [1, 1, 1]
    run = f"ralph/{project.run.name}/run"
    assert sorted(project.git("show", f"{run}:shared.txt").split()) == ["0", "1.1", "1.2", "1.3"]
    assert project.git("show", f"{run}:round.txt") == "1"


@pytest.mark.slow
def test_abort_during_a_merge_leaves_no_process_in_the_tree(project: Project) -> None:  # noqa: F811
    real, shim = shutil.which("git"), project.home / "bin" / "git"
    ended = f"grep -qs run.ended {project.root}/.ralph/runs/*/journal.jsonl"
    slow = f"for i in $(seq 100); do {ended} && break; sleep 0.1; done; sleep 1"
    shim.parent.mkdir()
    shim.write_text(
        f'#!/bin/sh\ncase "$*" in *" merge "*) touch $HOME/begun; {slow}; {real} "$@"; touch $HOME/over;;\n'
        f'*) exec {real} "$@";; esac\n'
    )
    shim.chmod(0o755)
    engine = project.start(*words(project), PATH=f"{shim.parent}:{os.environ['PATH']}")
    eventually(lambda: (project.home / "begun").exists())
    assert project.ralph("abort").code == 0
    assert (project.home / "over").exists()
    engine.communicate(timeout=120)
    assert engine.returncode == 8


def test_without_git_they_take_turns_in_one_tree(project: Project) -> None:  # noqa: F811
    shutil.rmtree(project.root / ".git")
    done = begin(project)
    assert done.code == 0, done.said
    assert "one turn at a time: worktrees need a git repository" in done.out
    assert (project.root / "shared.txt").read_text().split() == ["0", "1.1", "1.2", "1.3"]
    assert payloads(project, "piece.done") == ["built 1.1", "built 1.2", "built 1.3"]
