"""What the user changes while a run is stopped stays the user's: in `undo`, `restore`, `abort --revert`, `diff` and prompts."""

import sys
from pathlib import Path

import pytest
from test_loop import Project, eventually, make_project, project  # noqa: F401 - the fixture

pytestmark = pytest.mark.xdist_group("user-changes")
COUNT = 'n=$(($(cat "$HOME/turns" 2>/dev/null || echo 0) + 1)); echo $n > "$HOME/turns"; '
TURNS = f"""{COUNT}
case $n in
1) echo one > app.txt; echo one > first.txt;;
2) echo two >> app.txt; echo two > second.txt;;
3) echo three >> app.txt; touch done.txt;;
esac
"""


def read(project: Project) -> dict[str, str]:  # noqa: F811
    return {path.name: path.read_text() for path in project.root.iterdir() if path.is_file() and path.name != ".git"}


def stop_and_resume(project: Project, **edits: str | None) -> None:  # noqa: F811
    """A run of one turn that stops, edits of the user, and a second turn. None deletes a file."""
    assert project.work(TURNS, "--max-iterations", "1").code == 3
    for name, text in edits.items():
        path = project.root / name.replace("_", ".")
        path.unlink() if text is None else path.write_text(text)
    resumed = project.ralph("resume", "--max-iterations", "2", "--yes")
    assert resumed.code == 3, resumed.said


@pytest.mark.slow
@pytest.mark.parametrize("with_git", [True, False], ids=["git", "no-git"])
def test_undo_of_several_turns_leaves_the_users_files_alone(tmp_path: Path, with_git: bool) -> None:
    for project in make_project(tmp_path, with_git=with_git):  # noqa: F402
        stop_and_resume(project, mine_txt="mine\n", README=None)
        undone = project.ralph("undo")
        assert "Undid turn 2" in undone.out and "ralph undo" in undone.out
        assert read(project) == {"app.txt": "one\n", "first.txt": "one\n", "mine.txt": "mine\n"}
        first = project.ralph("undo").out
        assert "Undid turn 1" in first and "No earlier turn is left to undo" in first and "ralph undo" not in first
        assert read(project) == {"mine.txt": "mine\n"}
        assert project.ralph("undo").code == 2, "the user's changes are no turn"


@pytest.mark.more_are_slow(1)
@pytest.mark.parametrize("with_git", [True, False], ids=["git", "no-git"])
def test_revert_leaves_the_users_files_alone(tmp_path: Path, with_git: bool) -> None:
    for project in make_project(tmp_path, with_git=with_git):  # noqa: F402
        stop_and_resume(project, mine_txt="mine\n", README="mine, too\n")
        (project.root / "late.txt").write_text("made after the run\n")
        done = project.ralph("abort", "--revert", "--yes")
        assert done.code == 0, done.said
        assert read(project) == {"README": "mine, too\n", "mine.txt": "mine\n", "late.txt": "made after the run\n"}
        assert "Kept as you left them: README, late.txt, mine.txt" in done.out
        assert "3 files deleted" in done.out


def test_a_file_of_both_is_named_and_as_the_user_left_it(project: Project) -> None:  # noqa: F811
    stop_and_resume(project, app_txt="one\nmine\n")
    assert (project.root / "app.txt").read_text() == "one\nmine\ntwo\n"
    name = project.run.name
    done = project.ralph("abort", "--revert", "--yes")
    assert (project.root / "app.txt").read_text() == "one\nmine\n", "the state when the run was resumed"
    assert not (project.root / "first.txt").exists()
    assert "app.txt (your changes stay)" in done.out
    assert "Changes that the run made before you did are still in: app.txt" in done.out
    assert "NOT RESTORED" not in done.out and "Kept as you left them" not in done.out, "a written file is not kept"
    assert f"ralph abort {name} --revert --force" in done.out
    assert project.ralph("abort", name, "--revert", "--force", "--yes").code == 0
    assert read(project) == {"README": "first\n"}


def test_a_file_of_both_that_the_run_did_not_change_again_is_not_called_written(project: Project) -> None:  # noqa: F811
    assert project.work(TURNS, "--max-iterations", "1").code == 3
    (project.root / "app.txt").write_text("one\nmine\n")
    done = project.ralph("abort", "--revert", "--yes")
    assert "NOT RESTORED, because you changed them after the run did: app.txt" in done.out
    assert "1 file deleted" in done.out and "written" not in done.out


@pytest.mark.slow
def test_diff_shows_the_runs_lines_of_a_file_of_both(project: Project) -> None:  # noqa: F811
    lines = [f"line {number}" for number in range(20)]
    (project.root / "app.txt").write_text("\n".join(lines) + "\n")
    turns = f"{COUNT} case $n in 1) sed -i 's/^line 3$/by the run/' app.txt;; 2) echo late >> app.txt;; esac"
    assert project.work(turns, "--max-iterations", "1").code == 3
    edited = (project.root / "app.txt").read_text().replace("line 12\n", "by me\n")
    (project.root / "app.txt").write_text(edited)
    assert "by the run" in project.ralph("diff").out, "before the run is resumed, too"
    assert project.ralph("resume", "--max-iterations", "2", "--yes").code == 3
    shown = project.ralph("diff")
    assert "+by the run" in shown.out and "-line 3\n" in shown.out and "+late" in shown.out
    assert "+by me" not in shown.out
    assert project.ralph("undo").code == 0
    assert "+by the run" in project.ralph("diff").out
    undone = project.ralph("undo")
    assert undone.code == 0, undone.said
    assert "  app.txt (your changes stay)\n" in undone.out
    mine = [line.replace("line 12", "by me") for line in lines]
    assert (project.root / "app.txt").read_text().splitlines() == mine, "only the run's line is undone"
    assert "changed nothing" in project.ralph("diff").out


@pytest.mark.slow
def test_revert_removes_the_runs_lines_of_a_file_of_both(project: Project) -> None:  # noqa: F811
    lines = [f"line {number}" for number in range(20)]
    (project.root / "app.txt").write_text("\n".join(lines) + "\n")
    assert project.work("sed -i 's/^line 3$/by the run/' app.txt", "--max-iterations", "1").code == 3
    edited = (project.root / "app.txt").read_text().replace("line 12\n", "by me\n")
    (project.root / "app.txt").write_text(edited)
    done = project.ralph("abort", "--revert", "--yes")
    assert "  app.txt (your changes stay)\n" in done.out and "NOT RESTORED" not in done.out
    mine = [line.replace("line 12", "by me") for line in lines]
    assert (project.root / "app.txt").read_text().splitlines() == mine
    assert project.ralph("undo").code == 0
    assert (project.root / "app.txt").read_text() == edited, "the revert is undone"


@pytest.mark.slow
def test_diff_names_a_file_in_which_the_lines_of_both_cannot_be_told_apart(project: Project) -> None:  # noqa: F811
    stop_and_resume(project, app_txt="one\nmine\n")
    for shown in (project.ralph("diff"), project.ralph("diff", "--stat")):
        assert "app.txt" in shown.out
        assert "these files also contain changes by you: app.txt" in shown.err
    assert project.ralph("diff", "--json").json["mixed"] == ["app.txt"]
    assert project.ralph("undo").code == 0
    assert "+one" in project.ralph("diff").out, "turn 1 is not undone yet"


@pytest.mark.slow
def test_a_test_that_the_user_deletes_is_not_held_against_the_run(project: Project) -> None:  # noqa: F811
    tests = "".join(f"def test_{name}():\n    assert open('app.txt').read()\n\n\n" for name in ("a", "b", "c"))
    (project.root / "test_app.py").write_text(tests)
    until = f"`{sys.executable} -m pytest -q -p no:cacheprovider` passes"
    turns = f"{COUNT} case $n in 1) echo try > notes.txt;; 2) echo one > app.txt;; esac"
    assert project.work(turns, "--max-iterations", "1", until=until).code == 3
    (project.root / "test_app.py").write_text(tests.partition("def test_c")[0])
    done = project.ralph("resume", "--max-iterations", "2", "--yes")
    assert done.code == 0, done.said


@pytest.mark.slow
def test_a_test_that_the_agent_deletes_counts_even_if_the_user_edited_the_file(project: Project) -> None:  # noqa: F811
    tests = "".join(f"def test_{name}():\n    assert {name == 'a'}\n\n\n" for name in ("a", "b", "c"))
    (project.root / "test_app.py").write_text(tests)
    until = f"`{sys.executable} -m pytest -q -p no:cacheprovider` passes"
    delete = "import re; t = open('test_app.py').read(); open('test_app.py', 'w').write(t[:t.index('def test_b')])"
    turns = f'{COUNT} case $n in 1) true;; 2) {sys.executable} -c "{delete}";; esac'
    assert project.work(turns, "--max-iterations", "1", until=until).code == 3
    (project.root / "test_app.py").write_text(tests.replace("def test_a", "# mine\ndef test_a"))
    done = project.ralph("resume", "--max-iterations", "2", "--yes")
    assert done.code == 3, done.said
    assert "test_app.py" in done.said


@pytest.mark.slow
def test_undo_refuses_a_file_of_both(project: Project) -> None:  # noqa: F811
    stop_and_resume(project, app_txt="one\nmine\n")
    assert project.ralph("undo").code == 0
    assert (project.root / "app.txt").read_text() == "one\nmine\n"
    refused = project.ralph("undo")
    assert (refused.code, "app.txt" in refused.err, "--force" in refused.err) == (2, True, True)
    assert (project.root / "app.txt").read_text() == "one\nmine\n"


@pytest.mark.more_are_slow(1)
@pytest.mark.parametrize("which", ["1", "base"])
def test_restore_leaves_the_users_files_alone(project: Project, which: str) -> None:  # noqa: F811
    stop_and_resume(project, mine_txt="mine\n", app_txt="one\nmine\n")
    done = project.ralph("restore", which)
    of_the_run = {"first.txt": "one\n"} if which == "1" else {}
    expected = {"README": "first\n", "mine.txt": "mine\n", "app.txt": "one\nmine\n"}
    assert read(project) == expected | of_the_run
    assert "Kept as you left them" in done.out and "mine.txt" in done.out
    assert project.ralph("undo").code == 0
    assert read(project)["app.txt"] == "one\nmine\ntwo\n", "the restore is undone"
    assert project.ralph("restore", which, "--force").code == 0
    assert "mine.txt" not in read(project)


@pytest.mark.slow
def test_restore_best_leaves_the_users_files_alone(project: Project) -> None:  # noqa: F811
    stop_and_resume(project, mine_txt="mine\n")
    assert project.ralph("resume", "--max-iterations", "3", "--yes").code == 0
    (project.root / "app.txt").write_text("spoiled\n")
    done = project.ralph("restore", "best", "--json").json
    assert done["iteration"] == 3
    assert (done["kept"], done["shared"]) == (["app.txt"], []), "only the user changed it since"
    assert read(project)["mine.txt"] == "mine\n"


def test_diff_report_and_prompt_show_only_the_runs_changes(project: Project) -> None:  # noqa: F811
    stop_and_resume(project, mine_txt="mine\n", README=None)
    text = project.ralph("diff").out
    assert "second.txt" in text and "first.txt" in text
    assert "mine.txt" not in text and "README" not in text
    assert "mine.txt" not in project.ralph("diff", "2").out
    files = [one["path"] for one in project.journal("run.ended")[-1]["files"]]
    assert sorted(files) == ["app.txt", "first.txt", "second.txt"]
    assert project.ralph("resume", "--max-iterations", "3", "--yes").code == 0
    assert "mine.txt" not in (project.turn(3) / "prompt.md").read_text()
    assert "mine.txt" not in project.ralph("report").out


def test_the_resumed_run_names_what_the_user_changed(project: Project) -> None:  # noqa: F811
    assert project.work(TURNS, "--max-iterations", "1").code == 3
    (project.root / "mine.txt").write_text("mine\n")
    resumed = project.ralph("resume", "--max-iterations", "2", "--yes")
    assert resumed.said.count("You changed mine.txt while this run was stopped") == 1


def test_changes_of_another_run_are_not_called_the_users(project: Project) -> None:  # noqa: F811
    assert project.work("echo one > app.txt", "--max-iterations", "1").code == 3
    first = project.run.name
    assert project.work("echo other > app.txt; echo other > theirs.txt; touch done.txt").code == 0
    [second] = [run.name for run in project.runs if run.name != first]
    (project.root / "mine.txt").write_text("mine\n")
    (project.root / "done.txt").unlink()
    resumed = project.ralph("resume", first, "--yes")
    said = f"You changed mine.txt, and run {second} changed app.txt, theirs.txt while this run was stopped."
    assert said in resumed.out, resumed.said
    reverted = project.ralph("abort", first, "--revert", "--yes").out
    assert f"except those that you and run {second} changed" in reverted
    assert "Kept as you left them: mine.txt\n" in reverted
    assert f"Kept as run {second} left them: theirs.txt\n" in reverted
    assert f"  app.txt (the changes of run {second} stay)\n" in reverted
    assert f"Changes that the run made before run {second} did are still in: app.txt\n" in reverted


def test_files_outside_the_scope_are_the_users_to_change(project: Project) -> None:  # noqa: F811
    scoped = COUNT + "case $n in 1) echo one > app.txt;; 2) echo two >> app.txt; touch done.txt;; esac"
    assert project.work(scoped, "--max-iterations", "1", "--scope", "*.txt").code == 3
    (project.root / "notes.md").write_text("mine\n")
    done = project.ralph("resume", "--max-iterations", "2", "--yes")
    assert done.code == 0, done.said


@pytest.mark.slow
def test_commits_leave_the_users_changes_out(project: Project) -> None:  # noqa: F811
    assert project.work(TURNS, "--max-iterations", "1", "--commit").code == 3
    (project.root / "mine.txt").write_text("mine\n")
    assert project.ralph("resume", "--max-iterations", "3", "--yes").code == 0
    committed = project.git("log", "--name-only", "--format=").split()
    assert "second.txt" in committed and "mine.txt" not in committed


@pytest.mark.slow
def test_files_written_by_checks_are_not_the_users(project: Project) -> None:  # noqa: F811
    until = "`test -f app.txt && date +%N > built.txt; test -f done.txt`"
    assert project.work(TURNS, "--max-iterations", "1", until=until).code == 3
    resumed = project.ralph("resume", "--max-iterations", "2", "--yes")
    assert "You changed" not in resumed.said
    assert project.ralph("abort", "--revert", "--yes").code == 0
    assert read(project) == {"README": "first\n"}


@pytest.mark.slow
def test_changes_of_a_killed_turn_are_reverted(project: Project) -> None:  # noqa: F811
    engine = project.start(*project.working("touch here; sleep 300"))
    eventually(lambda: (project.root / "here").exists())
    engine.kill()
    engine.wait()
    done = project.ralph("abort", "--revert", "--yes")
    assert done.code == 0, done.said
    assert read(project) == {"README": "first\n"}


def test_force_without_revert_is_refused(project: Project) -> None:  # noqa: F811
    stop_and_resume(project)
    refused = project.ralph("abort", "--force")
    assert (refused.code, "--revert" in refused.err) == (2, True)
