"""`ralph restore`: the files as an iteration left them, and the way back."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_loop import NEVER_DONE, Project, eventually, make_project

pytestmark = pytest.mark.xdist_group("restore")
THREE = """
turns:
  - when: {turn: 1}
    steps:
      - write: {path: README, content: "one\\n"}
      - write: {path: "only 1.txt", content: "1\\n"}
      - answer: {summary: one}
  - when: {turn: 2}
    steps:
      - write: {path: README, content: "two\\n"}
      - delete: "only 1.txt"
      - answer: {summary: two}
  - steps:
      - write: {path: done.txt, content: "done\\n"}
      - answer: {summary: three}
"""
BEFORE = {"README": "first\n", "mine.txt": "mine\n"}
AFTER = {
    1: {"README": "one\n", "mine.txt": "mine\n", "only 1.txt": "1\n"},
    2: {"README": "two\n", "mine.txt": "mine\n"},
    3: {"README": "two\n", "mine.txt": "mine\n", "done.txt": "done\n"},
}


def files(project: Project) -> dict[str, str]:
    return {path.name: path.read_text() for path in project.root.iterdir() if path.is_file() and path.name != ".git"}


@pytest.fixture(scope="module", params=["git", "no-git"])
def three(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Project]:
    """A run of three iterations that is over; every test leaves the tree as the third left it."""
    for project in make_project(tmp_path_factory.mktemp("three"), with_git=request.param == "git"):
        (project.root / "mine.txt").write_text("mine\n")
        assert project.play(THREE, until="`ls | grep -q ^done`").code == 0
        assert files(project) == AFTER[3]
        yield project


@pytest.fixture
def project(three: Project) -> Iterator[Project]:
    yield three
    assert three.ralph("restore", "3", "--force").code == 0
    assert files(three) == AFTER[3]


@pytest.mark.more_are_slow(2)
@pytest.mark.parametrize(("which", "expected"), [("base", BEFORE), ("1", AFTER[1]), ("2", AFTER[2])])
def test_the_files_are_as_the_iteration_left_them(project: Project, which: str, expected: dict[str, str]) -> None:
    done = project.ralph("restore", which)
    assert done.code == 0
    assert files(project) == expected
    assert "README" in done.out or which == "2"
    assert f"ralph undo {project.run.name}" in done.out
    assert project.ralph("undo").code == 0
    assert files(project) == AFTER[3], "the restore is what was taken back"


def test_restore_records_the_tree_first_and_writes_nothing_if_unneeded(project: Project) -> None:
    (project.root / "README").write_text("edited by hand\n")
    done = project.ralph("restore", "1", project.run.name, "--force", "--json").json
    assert set(done["files"]) == {"README", "only 1.txt", "done.txt"}
    assert (done["iteration"], len(done["before"])) == (1, 40)
    again = project.ralph("restore", "1")
    assert "Nothing was written" in again.out
    assert project.ralph("undo").code == 0
    assert (project.root / "README").read_text() == "edited by hand\n"


@pytest.mark.more_are_slow(1)
def test_diff_shows_the_restored_state(project: Project) -> None:
    project.ralph("restore", "base")
    assert "changed nothing" in project.ralph("diff").out
    project.ralph("restore", "1")
    assert "only 1.txt" in project.ralph("diff").out
    assert "+done" in project.ralph("diff", "3").out, "what a turn changed stays what it changed"


@pytest.mark.more_are_slow(1)
def test_the_best_iteration_is_named_by_the_state(project: Project) -> None:
    [path] = (project.root / ".aiwg" / "ralph" / "loops").glob("*/state.json")
    whole = path.read_text()
    state = json.loads(whole)
    try:
        snapshot = next(t["result"]["change"]["snapshot"] for t in project.journal("turn.ended") if t["turn"] == 2)
        for best in ({"number": 2, "snapshot": snapshot}, {"number": 2}, {"number": 2, "snapshot": "HEAD"}):
            path.write_text(json.dumps({**state, "best": best}))
            assert project.ralph("restore", "best", "--json").json["iteration"] == 2
            assert files(project) == AFTER[2]
        for junk in (None, {}, [], 5, {"number": "2"}, {"number": 77, "snapshot": "--output=x"}):
            path.write_text(json.dumps({**state, "best": junk}))
            done = project.ralph("restore", "best")
            assert (done.code, "no best iteration" in done.err, "1, 2, 3" in done.err) == (2, True, True)
        for text in ("", "[]", "\xff", "[" * 100_000):
            path.write_text(text)
            assert project.ralph("restore", "best").code == 2
        path.unlink()
        assert project.ralph("restore", "best").code == 2
    finally:
        path.write_text(whole)


@pytest.mark.more_are_slow(1)
def test_unknown_iteration_error_lists_known_ones(project: Project) -> None:
    for which in ("0", "4", "99999999999999999999", "-1", "²", "worst", "", "HEAD"):
        done = project.ralph("restore", "--", which)
        assert (done.code, "1, 2, 3" in done.err) == (2, True), f"{which}: {done.said}"
        assert files(project) == AFTER[3]


@pytest.mark.more_are_slow(1)
def test_a_file_that_no_snapshot_has_is_not_written_over(project: Project) -> None:
    project.ralph("restore", "2")
    (project.root / ".gitignore").write_text("only*\n")
    (project.root / "only 1.txt").write_text("mine, ignored\n")
    done = project.ralph("restore", "1")
    assert (done.code, "only 1.txt" in done.err) == (2, True)
    assert (project.root / "only 1.txt").read_text() == "mine, ignored\n"
    (project.root / "only 1.txt").unlink()
    (project.root / ".gitignore").unlink()


@pytest.mark.slow
def test_another_run_in_the_same_tree_is_not_disturbed(tmp_path: Path) -> None:
    for project in make_project(tmp_path):
        assert project.ralph("restore", "base").code == 2, "there is no run yet"
        project.play(NEVER_DONE, "--max-iterations", "1")
        first = project.run.name
        engine = project.start(*project.working("touch here; sleep 300"))
        eventually(lambda project=project: (project.root / "here").exists())
        other = project.ralph("restore", "base", first)
        assert (other.code, "works in this tree" in other.err) == (10, True)
        second = project.ralph("restore", "base")
        assert (second.code, "is running" in second.err) == (2, True)
        assert (project.root / "here").exists()
        engine.terminate()
        engine.communicate(timeout=120)
        kept = project.ralph("restore", "base", first)
        [later] = [run.name for run in project.runs if run.name != first]
        assert (kept.code, f"Kept as run {later} left them: here" in kept.out) == (0, True), "another run made it"
        assert project.ralph("restore", "base", first, "--force").code == 0
        assert not (project.root / "here").exists()


def test_a_run_without_snapshots_says_so(tmp_path: Path) -> None:
    for project in make_project(tmp_path):
        project.play(NEVER_DONE, "--max-iterations", "1", "--no-snapshots")
        done = project.ralph("restore", "base")
        assert (done.code, "--no-snapshots" in done.err) == (2, True)
