"""What an agent does to the user's branches, tags and stash is said at once, whatever the checks say, and can be undone."""

import re
import shlex
import subprocess

import pytest
from test_loop import Project, project

__all__ = ["project"]

DESTROYS = """
git stash drop -q
git branch -q -D feature
git tag -d v1 >/dev/null
git reflog expire --expire=now --all
git gc -q --prune=now
touch work.txt
"""


@pytest.fixture
def precious(project: Project) -> dict[str, str]:
    """A branch, an annotated tag and a stash that only the user has."""
    project.git("switch", "-q", "-c", "feature")
    (project.root / "feature.txt").write_text("mine\n")
    project.git("add", "feature.txt")
    project.git("commit", "-q", "-m", "feature")
    project.git("tag", "-a", "-m", "release", "v1")
    project.git("switch", "-q", "main")
    (project.root / "README").write_text("stashed\n")
    project.git("stash", "-q")
    names = {"branch": "feature", "tag": "v1", "stash": "stash@{0}"}
    return {what: project.git("rev-parse", name).strip() for what, name in names.items()}


def restore(project: Project, said: str) -> None:
    """Type what was advised."""
    commands = set(re.findall(r"MISSING: [^`]*`(git [^`]*)`", said))
    assert len(commands) == 3, said
    for command in commands:
        subprocess.run(shlex.split(command), cwd=project.root, env=project.environment, check=True)


@pytest.mark.parametrize("option", [(), ("--worktree",)], ids=["in the user's tree", "in a worktree"])
def test_lost_work_is_named_though_the_checks_fail_and_the_advice_works(
    project: Project,
    precious: dict[str, str],
    option: tuple[str, ...],
) -> None:
    done = project.work(DESTROYS, "--max-iterations", "1", *option)
    assert done.code == 3, done.said
    status, report = project.ralph("status").out, project.ralph("report").out
    for said in (done.out, status, report):
        assert "the branch feature was deleted" in said
        assert "the tag v1 was deleted" in said
        assert f"stash entry {precious['stash'][:12]}" in said
    restore(project, status)
    after = {
        what: project.git("rev-parse", name).strip()
        for what, name in {"branch": "feature", "tag": "v1", "stash": "stash@{0}"}.items()
    }
    assert after == precious
    for script in project.home.glob("agent-*.sh"):
        script.write_text("touch other.txt\n")
    assert "nothing is missing any more" in project.ralph("resume").out
    assert "MISSING" not in project.ralph("status").out


def test_commits_of_the_agent_are_said(project: Project) -> None:
    script = "touch work.txt; git add work.txt; git -c user.name=A -c user.email=a@x commit -q -m work"
    done = project.work(script, "--max-iterations", "1")
    assert "turn 1: the agent made 1 commit on main" in done.out
    assert "MISSING" not in done.out


def test_commits_of_ralph_itself_are_not_the_agents(project: Project) -> None:
    done = project.work("echo x >> work.txt", "--max-iterations", "2", "--commit")
    assert "the agent made" not in done.out


def test_nothing_is_left_pinned_by_a_run_that_lost_nothing(project: Project, precious: dict[str, str]) -> None:
    assert precious
    assert project.work("touch done.txt").code == 0
    assert "ralph-pins" not in project.git("for-each-ref")


def test_pins_go_with_the_run(project: Project, precious: dict[str, str]) -> None:
    assert precious
    project.work(DESTROYS, "--max-iterations", "1")
    assert "ralph-pins" in project.git("for-each-ref")
    assert project.ralph("clean", project.run.name).code == 0
    assert "ralph-pins" not in project.git("for-each-ref")
