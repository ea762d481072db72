"""What an agent does to the user's branches, tags and stash is said at once, whatever the checks say, and can be undone."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from test_loop import Done, Project, project

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


def restore(project: Project, said: str, expected: int = 3) -> None:
    """Type what was advised."""
    commands = set(re.findall(r"CHANGED: [^`]*`(git [^`]*)`", said))
    assert len(commands) == expected, said
    for command in commands:
        subprocess.run(command, shell=True, cwd=project.root, env=project.environment, check=True)


@pytest.mark.more_are_slow(1)
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
    assert "CHANGED" not in project.ralph("status").out, "the user restored it"
    for script in project.home.glob("agent-*.sh"):
        script.write_text("touch other.txt\n")
    assert "branches, tags and stash are as they were before the run" in project.ralph("resume").out
    assert "CHANGED" not in project.ralph("status").out


def test_commits_of_the_agent_are_reported(project: Project) -> None:
    script = "touch work.txt; git add work.txt; git -c user.name=A -c user.email=a@x commit -q -m work"
    done = project.work(script, "--max-iterations", "1")
    assert done.out.count("turn 1: the agent made 1 commit on main") == 1
    assert "Commits: in turn 1, by the agent\n" in done.out
    assert "CHANGED" not in done.out


COMMITS_ELSEWHERE = """
make() { touch $1; git add $1; git -c user.name=A -c user.email=a@x commit -q -m $1; }
case $(git rev-list --count HEAD) in
    1) make a; git checkout -q -b feature; make b; make c; git branch same ;;
    4) git checkout -q --detach; make d; make e ;;
    6) git checkout -q main; git merge -q --ff-only same ;;
esac
"""


def test_commits_on_a_new_branch_and_on_a_detached_head_are_reported(project: Project) -> None:
    done = project.work(COMMITS_ELSEWHERE, "--max-iterations", "3")
    made = [line.partition("the agent made ")[::2] for line in done.out.splitlines() if "the agent made" in line]
    assert made == [
        ("turn 1: ", "1 commit on main"),
        ("turn 1: ", "2 commits on feature"),
        ("turn 2: ", "2 commits on a detached HEAD"),
    ]
    assert "Commits: in turns 1, 2, by the agent\n" in done.out


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


DELETES_OUR_REFS = """
git for-each-ref --format='delete %(refname)' | grep refs/ralph | git update-ref --stdin
"""


def names(project: Project) -> dict[str, str]:
    """Where the branch, the tag and the stash stand now."""
    listed = {"branch": "feature", "tag": "v1", "stash": "stash@{0}"}
    return {what: project.git("rev-parse", name).strip() for what, name in listed.items()}


class TestAnAgentThatDeletesTheRefsOfRalph:
    def test_missing_refs_are_reported_and_can_be_restored(self, project: Project, precious: dict[str, str]) -> None:
        script = "git stash drop -q; git branch -q -D feature; git tag -d v1 >/dev/null; touch work.txt"
        done = project.work(script + DELETES_OUR_REFS, "--max-iterations", "2")
        assert done.code == 3, done.said
        project.git("reflog", "expire", "--expire=now", "--all")
        project.git("gc", "-q", "--prune=now")
        restore(project, done.out.partition("LIMIT")[2] or done.out)
        assert names(project) == precious
        assert project.ralph("diff").out.count("work.txt"), "the snapshots are there again as well"

    def test_refs_whose_objects_are_collected_cannot_be_restored(
        self, project: Project, precious: dict[str, str]
    ) -> None:
        assert precious
        done = project.work(DELETES_OUR_REFS + DESTROYS, "--max-iterations", "2")
        assert "the branch feature was deleted" in done.out, done.said
        assert done.out.count("cannot be restored") >= 3
        assert "restores it" not in done.out
        assert done.code == 5, "what the run changed can no longer be compared"
        assert "the snapshots of this run were removed" in done.out
        assert project.journal("run.ended")


@pytest.mark.more_are_slow(1)
@pytest.mark.parametrize("checks", ["fail", "pass"])
def test_without_snapshots_lost_work_is_named_too(project: Project, precious: dict[str, str], checks: str) -> None:
    made = "touch done.txt" if checks == "pass" else ""
    done = project.work(DESTROYS + made, "--no-snapshots", "--max-iterations", "1")
    assert done.code == 3, done.said
    assert "not noticed" not in done.out
    restore(project, project.ralph("status").out)
    assert names(project) == precious
    assert project.ralph("clean", project.run.name).code == 0
    assert "ralph-pins" not in project.git("for-each-ref")


class TestAdviceThatWorks:
    def test_a_branch_whose_name_became_a_directory(self, project: Project, precious: dict[str, str]) -> None:
        script = "git branch -q -D feature; git branch feature/x; git branch feature/y; touch work.txt"
        project.work(script, "--max-iterations", "1")
        restore(project, project.ralph("status").out, 1)
        assert names(project) == precious
        assert "CHANGED" not in project.ralph("status").out

    def test_a_branch_whose_directory_became_a_branch(self, project: Project) -> None:
        project.git("branch", "feat/x")
        project.git("tag", "v/1")
        script = "git branch -q -D feat/x; git branch feat; git tag -d v/1 >/dev/null; git tag v; touch work.txt"
        project.work(script, "--max-iterations", "1")
        restore(project, project.ralph("status").out, 2)
        assert project.git("rev-parse", "feat/x", "v/1").split() == project.git("rev-parse", "main", "main").split()

    def test_a_branch_that_was_replaced_by_a_symbolic_ref(self, project: Project, precious: dict[str, str]) -> None:
        main = project.git("rev-parse", "main")
        project.work("git symbolic-ref refs/heads/feature refs/heads/main", "--max-iterations", "1")
        restore(project, project.ralph("status").out, 1)
        assert names(project) == precious
        assert project.git("rev-parse", "main") == main, "the advice does not write through the symbolic ref"

    def test_a_symbolic_ref_that_is_gone(self, project: Project) -> None:
        project.git("symbolic-ref", "refs/heads/stable", "refs/heads/main")
        project.work("git symbolic-ref --delete refs/heads/stable", "--max-iterations", "1")
        restore(project, project.ralph("status").out, 1)
        assert project.git("symbolic-ref", "refs/heads/stable").strip() == "refs/heads/main"


@pytest.mark.slow
class TestRefsBesideBranchesAndTags:
    @pytest.fixture
    def refs(self, project: Project) -> str:
        """Notes, and a ref of the user's own."""
        project.git("notes", "add", "-m", "reviewed")
        project.git("update-ref", "refs/backup/main", "main")
        return project.git("for-each-ref", "refs/notes", "refs/backup")

    def test_deleted_ones_are_named_and_the_advice_works(self, project: Project, refs: str) -> None:
        script = "git update-ref -d refs/notes/commits; git update-ref -d refs/backup/main; touch work.txt"
        done = project.work(script, "--max-iterations", "1")
        assert "CHANGED: the ref refs/notes/commits was deleted" in done.out
        assert "CHANGED: the ref refs/backup/main was deleted" in done.out
        restore(project, project.ralph("status").out, 2)
        assert project.git("for-each-ref", "refs/notes", "refs/backup") == refs
        assert "CHANGED" not in project.ralph("status").out

    def test_rewritten_notes_are_named(self, project: Project, refs: str) -> None:
        rewrite = "git update-ref refs/notes/commits $(git commit-tree -m x $(git rev-parse refs/notes/commits^{tree}))"
        identity = "export GIT_AUTHOR_NAME=A GIT_AUTHOR_EMAIL=a@x GIT_COMMITTER_NAME=A GIT_COMMITTER_EMAIL=a@x"
        done = project.work(f"{identity}; {rewrite}; touch work.txt", "--max-iterations", "1")
        assert "CHANGED: the ref refs/notes/commits was reset or rewritten" in done.out
        restore(project, project.ralph("status").out, 1)
        assert project.git("for-each-ref", "refs/notes", "refs/backup") == refs

    def test_new_notes_and_new_refs_are_work(self, project: Project, refs: str) -> None:
        assert refs
        script = (
            "git -c user.name=A -c user.email=a@x notes append -m more; git update-ref refs/mine/x HEAD; touch work.txt"
        )
        assert "CHANGED" not in project.work(script, "--max-iterations", "2").out


@pytest.mark.slow
class TestAnExpiredStashList:
    EXPIRES = "git reflog expire --expire=now --all; touch work.txt"

    def test_expired_stash_list_is_not_a_loss_and_the_advice_restores_it(
        self, project: Project, precious: dict[str, str]
    ) -> None:
        (project.root / "README").write_text("stashed later\n")
        project.git("stash", "-q")
        entries = project.git("stash", "list", "--format=%H %s")
        done = project.work(self.EXPIRES, "--max-iterations", "2")
        assert "dropped" not in done.out
        assert "stashed work" not in done.out
        assert "CHANGED: the list of stash entries is empty" in done.out
        restore(project, project.ralph("status").out, 1)
        assert project.git("stash", "list", "--format=%H %s") == entries
        assert precious["stash"] in entries
        assert "CHANGED" not in project.ralph("status").out

    def test_a_single_entry_is_listed_again_too(self, project: Project, precious: dict[str, str]) -> None:
        project.work(self.EXPIRES, "--max-iterations", "1")
        restore(project, project.ralph("status").out, 1)
        assert project.git("stash", "list", "--format=%H").strip() == precious["stash"]


def session_with(project: Project, script: str, *options: str) -> Done:
    """A session whose executors run a script before they do their task."""
    agent = Path(__file__).with_name("session_agent.py")
    plan = project.home / "script.json"
    plan.write_text("{}")
    project.extra["SCRIPT"] = str(plan)
    wrapper = f'if [ "$RALPH_ROLE" = executor ]; then\n{script}\nfi\nexec {sys.executable} -I {agent}\n'
    return project.ralph(
        "session", "new", "Build the files", "--agent-command", project.agent(wrapper), "--yes", *options
    )


@pytest.mark.slow
class TestSessions:
    def test_missing_refs_are_on_the_end_screen_and_in_show(self, project: Project, precious: dict[str, str]) -> None:
        done = session_with(project, "git branch -q -D feature 2>/dev/null || true")
        closing = done.out.rpartition("Spent:")[2]
        assert "CHANGED: the branch feature was deleted" in closing, done.said
        shown = project.ralph("session", "show")
        assert "CHANGED: the branch feature was deleted" in shown.out
        assert project.ralph("session", "show", "--json").json["missing"]
        restore(project, shown.out, 1)
        assert names(project) == precious
        assert "CHANGED" not in project.ralph("session", "show").out

    @pytest.mark.parametrize("option", [(), ("--no-snapshots",)], ids=["with snapshots", "without"])
    def test_executors_that_delete_the_refs_of_ralph(
        self, project: Project, precious: dict[str, str], option: tuple[str, ...]
    ) -> None:
        done = session_with(project, f"git branch -q -D feature 2>/dev/null || true\n{DELETES_OUR_REFS}", *option)
        assert "CHANGED: the branch feature was deleted" in done.out.rpartition("Spent:")[2], done.said
        restore(project, project.ralph("status").out, 1)
        assert names(project) == precious
