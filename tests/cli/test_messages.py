"""What users read: numbers with their units, advice that works, and the reason that applies."""

import shutil
from pathlib import Path

import pytest
from test_loop import NEVER_DONE, SUCCEEDS, Project, plain, project  # noqa: F401 - the fixtures

from ralph.cli.render.journal import LINES
from ralph.core.entries import NAMES


def test_dry_run_shows_values_with_their_units(project: Project) -> None:  # noqa: F811
    done = project.play(SUCCEEDS, "--dry-run", "--deadline", "2099-01-02T07:30", "--max-tokens", "5000")
    assert done.code == 0, done.said
    lines = [" ".join(line.split()) for line in done.out.splitlines()]
    for line in (
        "iterations 10",
        "active time 60 minutes",
        "deadline 2099-01-02 07:30",
        "tokens 5000",
        "cost no limit",
        "one turn 60 minutes",
        "without output 15 minutes",
    ):
        assert line in lines
    assert "e+09" not in done.out


def test_a_run_without_snapshots_is_not_sent_to_diff(project: Project) -> None:  # noqa: F811
    done = project.play(SUCCEEDS, "--no-snapshots")
    assert done.code == 0, done.said
    assert "ralph diff" not in done.out
    assert f"Next:   ralph report {project.run.name}" in done.out


def test_stopped_run_without_snapshots_offers_only_commands_that_work(project: Project) -> None:  # noqa: F811
    done = project.play(NEVER_DONE, "--no-snapshots", "--max-iterations", "1")
    assert "ralph diff" not in done.out and "--revert" not in done.out
    aborted = project.ralph("abort")
    assert aborted.code == 0, aborted.said
    assert not any(word in aborted.out for word in ("ralph diff", "ralph undo", "--revert"))


def test_hats_without_snapshots_are_not_sent_to_diff(project: Project) -> None:  # noqa: F811
    agent = project.agent("echo LOOP_COMPLETE")
    done = project.ralph("run", "-p", "Go", "--agent-command", agent, "--yes", "--no-snapshots")
    assert done.code == 0, done.said
    assert "ralph diff" not in done.out


def test_diff_and_undo_of_a_cloned_run_name_the_reason(project: Project, tmp_path: Path) -> None:  # noqa: F811
    project.play(SUCCEEDS)
    name = project.run.name
    clone = Project(tmp_path / "clone", project.home, project.mark)
    project.git("clone", "-q", str(project.root), str(clone.root))
    shutil.copytree(project.root / ".ralph" / "runs", clone.root / ".ralph" / "runs")
    for command in ("diff", "undo"):
        refused = clone.ralph(command, name)
        assert refused.code == 2
        assert "its snapshots are not in this repository" in refused.err
        assert "--no-snapshots" not in refused.err


def test_diff_of_a_run_without_snapshots_names_the_reason(project: Project) -> None:  # noqa: F811
    project.play(SUCCEEDS, "--no-snapshots")
    refused = project.ralph("diff")
    assert refused.code == 2
    assert "it was started without snapshots" in refused.err


def test_removing_one_run_is_not_plural(plain: Project) -> None:  # noqa: F811
    plain.play(SUCCEEDS)
    assert "Removed 1 run: " in plain.ralph("clean", "--keep", "0", "--older-than", "0").out
    assert "Removed 0 runs." in plain.ralph("clean").out


def test_one_turn_without_a_price_is_not_plural(project: Project) -> None:  # noqa: F811
    scenario = NEVER_DONE.replace("turns:", "turns:\n  - when: {turn: 2}\n    steps: [{write: {path: a, content: b}}]")
    project.play(scenario, "--max-iterations", "2", until="`false`")
    assert "(1 turn without a price)" in project.ralph("cost").out


@pytest.mark.slow
def test_resume_says_which_run_only_if_it_continues(project: Project) -> None:  # noqa: F811
    project.play(NEVER_DONE, "--max-iterations", "1")
    refused = project.ralph("resume", "--max-iterations", "1")
    assert refused.code == 2
    assert "Resuming" not in refused.said
    assert f"Resuming {project.run.name}" in project.ralph("resume").out


def test_every_entry_of_the_journal_has_its_lines() -> None:
    assert set(LINES) == set(NAMES.values())
