"""The files of submodules in `diff`, `--scope`, `undo`, `restore`, `--commit` and `abort --revert`."""

import subprocess
from pathlib import Path

import pytest
from test_loop import Project, make_project, project  # noqa: F401 - the fixture

COMMITS = "git -C vendor/lib -c user.name=A -c user.email=a@x commit -q -am work"


def make_library(project: Project, path: Path, *, inner: Path | None = None) -> Path:  # noqa: F811
    """Another repository, for a submodule."""
    subprocess.run(["git", "init", "-q", "-b", "main", str(path)], check=True, env=project.environment)
    (path / "lib.txt").write_text("lib\n")
    (path / "gone.txt").write_text("still there\n")
    (path / ".gitignore").write_text("*.o\n")
    if inner:
        project.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(inner), "inner", cwd=path)
    project.git("add", "-A", cwd=path)
    project.git("commit", "-qm", "lib", cwd=path)
    return path


@pytest.fixture
def library(project: Project, tmp_path: Path) -> Path:  # noqa: F811
    """The submodule `vendor/lib` of the project, which has the submodule `inner`."""
    inner = make_library(project, tmp_path / "inner")
    outer = make_library(project, tmp_path / "outer", inner=inner)
    allowed = ("-c", "protocol.file.allow=always")
    project.git(*allowed, "submodule", "add", "-q", str(outer), "vendor/lib")
    project.git(*allowed, "submodule", "update", "-q", "--init", "--recursive")
    project.git("commit", "-qm", "a submodule")
    library = project.root / "vendor" / "lib"
    (library / "mine.txt").write_text("not committed\n")
    (library / "inner" / "lib.txt").write_text("edited by the user\n")
    return library


CHANGES = """
echo changed > vendor/lib/lib.txt
echo new > vendor/lib/new.txt
rm vendor/lib/gone.txt
echo overwritten > vendor/lib/mine.txt
echo changed > vendor/lib/inner/lib.txt
echo object > vendor/lib/a.o
echo x > made.txt
"""


def contents(library: Path) -> dict[str, str]:
    """The files of the submodule that git does not ignore."""
    files = (path for path in library.rglob("*") if path.is_file() and path.name != ".git" and path.suffix != ".o")
    return {str(path.relative_to(library)): path.read_text() for path in files}


def test_revert_restores_the_files_of_submodules(project: Project, library: Path) -> None:  # noqa: F811
    before = contents(library)
    project.work(CHANGES, "--max-iterations", "1")
    assert contents(library) != before
    done = project.ralph("abort", "--revert", "--yes")
    assert done.code == 0, done.said
    assert contents(library) == before
    assert not (project.root / "made.txt").exists()
    assert "All files that git does not ignore are as they were before the run" in done.out
    assert "Not restored: files that git ignores" in done.out
    assert (library / "a.o").exists(), "the submodule ignores it"
    assert "NOT RESTORED" not in done.out
    assert "reset" not in done.out, "no commit was made"
    project.ralph("undo")
    assert (library / "new.txt").read_text() == "new\n", "a revert can be undone"


@pytest.mark.slow
def test_diff_and_the_changes_of_an_iteration_name_files_of_submodules(project: Project, library: Path) -> None:  # noqa: F811
    assert library.exists()
    done = project.work(CHANGES, "--max-iterations", "1")
    assert "vendor/lib/inner/lib.txt" in done.out.partition("- Changes: ")[2].splitlines()[0]
    diff = project.ralph("diff").out
    assert "-edited by the user\n+changed\n" in diff
    assert "+++ b/vendor/lib/new.txt" in diff
    assert "a.o" not in diff


@pytest.mark.slow
def test_undo_restores_one_turn_in_a_submodule(project: Project, library: Path) -> None:  # noqa: F811
    project.work("echo again >> vendor/lib/lib.txt", "--max-iterations", "2")
    assert (library / "lib.txt").read_text() == "lib\nagain\nagain\n"
    assert project.ralph("undo").code == 0
    assert (library / "lib.txt").read_text() == "lib\nagain\n"
    assert project.ralph("restore", "base").code == 0
    assert (library / "lib.txt").read_text() == "lib\n"


@pytest.mark.slow
def test_scope_covers_submodules(project: Project, library: Path) -> None:  # noqa: F811
    assert library.exists()
    done = project.work("touch done.txt; echo x > vendor/lib/lib.txt", "--scope", "done.txt", "--max-iterations", "1")
    assert done.code == 3, done.said
    assert "vendor/lib/lib.txt" in done.out
    assert "[out-of-scope]" in done.out


@pytest.mark.slow
def test_commits_in_submodules_are_reported_and_stay(project: Project, library: Path) -> None:  # noqa: F811
    before = project.git("rev-parse", "HEAD", cwd=library).strip()
    done = project.work(f"echo changed > vendor/lib/lib.txt; {COMMITS}", "--max-iterations", "1")
    assert "turn 1: the agent made 1 commit in the submodule vendor/lib\n" in done.out
    reverted = project.ralph("abort", "--revert", "--yes")
    assert (library / "lib.txt").read_text() == "lib\n"
    advice = f"git -C vendor/lib reset {before}"
    assert advice in reverted.out, reverted.out
    subprocess.run(advice, shell=True, check=True, cwd=project.root, env=project.environment, capture_output=True)
    assert project.git("status", "--porcelain", "--ignore-submodules=untracked") == " M vendor/lib\n", "the user's edit"


@pytest.mark.slow
def test_commit_of_an_iteration_leaves_submodules_to_the_user(project: Project, library: Path) -> None:  # noqa: F811
    done = project.work("echo x >> made.txt; echo x > vendor/lib/lib.txt", "--max-iterations", "1", "--commit")
    assert "note: vendor/lib is a submodule: its files are not committed" in done.out
    assert project.git("show", "--format=", "--name-only", "HEAD").split() == ["made.txt"]
    assert (library / "lib.txt").read_text() == "x\n"
    assert project.git("ls-tree", "HEAD", "vendor/lib").startswith("160000 commit")


@pytest.mark.slow
def test_submodule_that_the_agent_deletes_gets_its_files_back(project: Project, library: Path) -> None:  # noqa: F811
    before = contents(library)
    project.work("rm -rf vendor .gitmodules", "--max-iterations", "1")
    done = project.ralph("abort", "--revert", "--yes")
    assert done.code == 0, done.said
    assert contents(library) == before
    assert "vendor/lib is no longer a submodule: its files are restored, its git directory is not" in done.out


@pytest.mark.slow
def test_submodule_that_the_agent_adds_is_named(project: Project, tmp_path: Path) -> None:  # noqa: F811
    other = make_library(project, tmp_path / "other")
    script = f"git -c protocol.file.allow=always submodule add -q {other} added; echo x > added/lib.txt"
    project.work(script, "--max-iterations", "1")
    done = project.ralph("abort", "--revert", "--yes")
    assert done.code == 0, done.said
    assert "added is a separate git repository: not changed" in done.out


@pytest.mark.slow
def test_users_repository_stays_sound(project: Project, library: Path) -> None:  # noqa: F811
    assert library.exists()
    index = project.git("ls-files", "--stage")
    own = project.git("ls-files", "--stage", cwd=library)
    project.work(CHANGES, "--max-iterations", "1")
    project.git("gc", "-q", "--prune=now")
    project.git("fsck", "--strict", "--no-dangling")
    assert project.git("ls-files", "--stage") == index
    assert project.git("ls-files", "--stage", cwd=library) == own
    assert project.ralph("abort", "--revert", "--yes").code == 0


@pytest.mark.slow
def test_run_in_a_worktree_leaves_the_users_submodules_alone(tmp_path: Path) -> None:
    for place in make_project(tmp_path):
        other = make_library(place, tmp_path / "other")
        place.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(other), "lib")
        place.git("commit", "-qm", "a submodule")
        done = place.work("touch done.txt; echo x > lib/lib.txt", "--worktree", "--max-iterations", "1")
        assert done.code == 0, done.said
        assert (place.root / "lib" / "lib.txt").read_text() == "lib\n"
