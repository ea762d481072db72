"""Runs that start in a directory below the root of the repository: agent and checks work there, the state is at the root."""

import json
import shlex
import sys
from pathlib import Path
from textwrap import dedent

import pytest
from test_loop import Done, Project, project  # noqa: F401 - the fixture

AGENT = dedent(
    """
    import json, os, pathlib, subprocess
    pathlib.Path("done.txt").write_text("done\\n")
    seen = {"cwd": os.getcwd(), "inbox": sorted(os.listdir(".ralph/turn/inbox"))}
    status = subprocess.run([os.environ["RALPH_BIN"], "status", "--json"], capture_output=True, text=True)
    seen["runs"] = len(json.loads(status.stdout)["runs"])
    pathlib.Path(os.environ["SEEN"]).write_text(json.dumps(seen))
    """
)
CHECK = "`test -f done.txt` passes"


@pytest.fixture
def package(project: Project) -> Path:  # noqa: F811
    """The directory of a package in a repository with several of them."""
    package = project.root / "packages" / "app"
    package.mkdir(parents=True)
    (package / "agent.py").write_text(AGENT)
    (package / "pyproject.toml").write_text('[tool.pytest.ini_options]\ntestpaths = ["tests"]\n')
    (package / "tests").mkdir()
    (package / "tests" / "test_app.py").write_text("def test_app():\n    assert True\n")
    project.git("add", "-A")
    project.git("commit", "-qm", "two packages")
    project.extra["SEEN"] = str(project.home / "seen.json")
    return package


def loop(project: Project, cwd: Path, *options: str) -> Done:  # noqa: F811
    agent = shlex.join([sys.executable, str(Path("agent.py") if cwd.name == "app" else Path("packages/app/agent.py"))])
    command = ("loop", "Make done.txt", "--until", CHECK, "--agent-command", agent, "--yes", *options)
    return project.ralph(*command, cwd=cwd)


def test_agent_and_checks_work_in_the_directory_of_the_user(project: Project, package: Path) -> None:  # noqa: F811
    done = loop(project, package)
    assert done.code == 0, done.said
    seen = json.loads((project.home / "seen.json").read_text())
    assert seen == {"cwd": str(package), "inbox": ["result.schema.json"], "runs": 1}
    assert (package / "done.txt").exists()
    assert not (project.root / "done.txt").exists()
    assert not (package / ".ralph").exists(), "the user's directory is left as it was"
    assert project.git("status", "--porcelain").split() == ["??", "packages/app/done.txt"]
    [row] = project.ralph("status", "--json", cwd=package).json["runs"]
    assert row["state"] == "success"
    assert "You work in `packages/app`" in project.ralph("prompt", "--turn", "1").out


@pytest.mark.slow
def test_dir_chooses_the_directory(project: Project, package: Path) -> None:  # noqa: F811
    done = loop(project, project.root, "--dir", "packages/app", "--worktree")
    assert done.code == 0, done.said
    assert json.loads((project.home / "seen.json").read_text())["cwd"].endswith("/packages/app")
    assert project.ralph("land").code == 0
    assert (package / "done.txt").exists()


def test_unknown_dir_is_refused(project: Project) -> None:  # noqa: F811
    done = project.ralph("loop", "x", "--until", CHECK, "--dir", "nowhere", "--agent-command", "true", "--yes")
    assert done.code == 2
    assert "there is no directory nowhere" in done.err


def test_phrases_mean_the_package(project: Project, package: Path) -> None:  # noqa: F811
    arguments = ("loop", "x", "--until", "tests pass", "--agent-command", "true", "--dry-run")
    assert "pytest" in project.ralph(*arguments, cwd=package).out
    assert project.ralph(*arguments).code == 2, "the root has no tests of its own"


@pytest.mark.slow
def test_scope_is_meant_below_the_directory(project: Project, package: Path) -> None:  # noqa: F811
    assert loop(project, package, "--scope", "*.txt").code == 0
    (package / "done.txt").unlink()
    (package / "agent.py").write_text(AGENT + "pathlib.Path('../lib.txt').write_text('x')\n")
    held = loop(project, package, "--scope", "*.txt", "--max-iterations", "1")
    assert held.code == 3, held.said
    assert "packages/lib.txt" in held.said


@pytest.mark.slow
def test_undo_restores_a_directory_that_the_agent_removed(project: Project, package: Path) -> None:  # noqa: F811
    (package / "agent.py").write_text("import shutil; shutil.rmtree('../app')\n")
    project.git("commit", "-qam", "an agent that removes its directory")
    assert loop(project, package, "--max-iterations", "1").code != 0
    assert not (package / "agent.py").exists()
    assert project.ralph("undo").code == 0
    assert (package / "agent.py").exists()


def test_settings_of_a_package_hold_there_and_the_state_is_at_the_root(project: Project, package: Path) -> None:  # noqa: F811
    (project.root / "ralph.yml").write_text("limits: {iterations: 9}\n")
    (package / "ralph.yml").write_text("limits: {iterations: 1}\nscenario: play.yml\n")
    (package / "play.yml").write_text("turns: [{steps: [{say: Nothing}]}]\n")
    command = ("loop", "Make done.txt", "--until", CHECK, "--yes")
    done = project.ralph(*command, cwd=package)
    assert done.code == 3, done.said
    assert "Iteration 1/1" in done.out
    assert not (package / ".ralph").exists()
    assert [row["state"] for row in project.ralph("status", "--json").json["runs"]] == ["limit-iterations"]
    agreed = project.ralph("trust", "--show", "--json", cwd=package).json["agreed"]
    assert "packages/app/ralph.yml: scenario" in agreed
    (package / "play.yml").write_text("turns: [{steps: [{write: {path: done.txt, content: x}}]}]\n")
    (package / "ralph.yml").write_text("limits: {iterations: 2}\nscenario: play.yml\nnotify: [json://localhost:1]\n")
    refused = project.ralph("resume", "--max-iterations", "2")
    assert refused.code == 2
    assert "packages/app/ralph.yml: notify" in refused.err, "the settings of the run's directory are read again"


def test_settings_of_a_package_do_not_evade_the_lock_of_the_tree(project: Project, package: Path) -> None:  # noqa: F811
    (package / "ralph.yml").write_text("limits: {iterations: 1}\n")
    command = ("loop", "x", "--until", CHECK, "--agent-command", "sleep 100", "--yes")
    assert project.ralph(*command, "--detach").code == 0
    refused = project.ralph(*command, cwd=package)
    assert refused.code == 10, refused.said
    assert project.ralph("abort", cwd=package).code == 0


@pytest.mark.slow
def test_session_works_in_the_directory(project: Project, package: Path) -> None:  # noqa: F811
    (project.home / "script.json").write_text("{}")
    project.extra["SCRIPT"] = str(project.home / "script.json")
    agent = shlex.join([sys.executable, "-I", str(Path(__file__).with_name("session_agent.py"))])
    options = ("--check", "`test -f d.txt`", "--agent-command", agent, "--yes")
    done = project.ralph("session", "new", "Build the files", *options, cwd=package)
    assert done.code == 0, done.said
    assert {"a.txt", "b.txt", "c.txt", "d.txt"} <= {path.name for path in package.iterdir()}
    assert not (project.root / "a.txt").exists()
    assert not (package / ".ralph").exists()
    assert project.git("status", "--porcelain") == ""
