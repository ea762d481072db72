"""Programs that an agent plants in a repository: no git command of Ralph starts one of them."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from repos import RUN, git, opened, start_run_here, write
from runs import Run

from ralph.core.events import Commit
from ralph.git import merge, worktree
from ralph.git.command import Git
from ralph.git.commits import Committer
from ralph.git.programs import list_new_programs

MAIN = "refs/heads/main"
BRANCH = f"ralph/{RUN}/run"
HOOKS = [
    "applypatch-msg",
    "pre-applypatch",
    "post-applypatch",
    "pre-commit",
    "pre-merge-commit",
    "prepare-commit-msg",
    "commit-msg",
    "post-commit",
    "pre-rebase",
    "post-checkout",
    "post-merge",
    "pre-push",
    "reference-transaction",
    "post-index-change",
    "post-rewrite",
    "pre-auto-gc",
]


class Trap:
    """A program that notes that it ran, and passes its input on."""

    def __init__(self, place: Path) -> None:
        self.log, self.program = place / "ran", place / "trap"
        self.program.write_text(f'#!/bin/sh\necho "$1" >>"{self.log}"\ncat\n')
        self.program.chmod(0o755)

    def call(self, name: str) -> str:
        """The command for a setting, with the name under which it is noted."""
        return f"{self.program} {name}"

    def ran(self) -> list[str]:
        return self.log.read_text().split() if self.log.exists() else []

    def plant_hooks(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        for name in HOOKS:
            (directory / name).write_text(f"#!/bin/sh\n{self.call(name)} </dev/null\n")
            (directory / name).chmod(0o755)


@pytest.fixture
def trap(tmp_path: Path) -> Trap:
    return Trap(tmp_path)


def settings(trap: Trap) -> dict[str, str]:
    return {
        "filter.evil.clean": trap.call("clean"),
        "filter.evil.smudge": trap.call("smudge"),
        "filter.evil.required": "true",
        "filter.process.process": trap.call("process"),
        "merge.evil.driver": trap.call("merge"),
        "diff.evil.command": trap.call("diff"),
        "diff.evil.textconv": trap.call("textconv"),
        "diff.external": trap.call("external"),
        "core.fsmonitor": trap.call("fsmonitor"),
        "core.sshCommand": trap.call("ssh"),
        "core.pager": trap.call("pager"),
        "core.editor": trap.call("editor"),
        "core.alternateRefsCommand": trap.call("alternates"),
        "credential.helper": f"!{trap.call('credential')}",
        "gpg.program": str(trap.program),
        "commit.gpgSign": "true",
        "alias.add": f"!{trap.call('alias')}",
        "alias.write-tree": f"!{trap.call('alias')}",
        "submodule.sub.update": f"!{trap.call('submodule')}",
    }


def plant(trap: Trap, where: Path) -> None:
    for key, value in settings(trap).items():
        git(where, "config", key, value)


ATTRIBUTES = "*.txt filter=evil diff=evil merge=evil\n*.py filter=process diff=evil merge=evil\n"
PLACES: dict[str, Callable[[Path], Path]] = {
    ".gitattributes": lambda repo: repo / ".gitattributes",
    "info/attributes": lambda repo: repo / ".git" / "info" / "attributes",
}


@pytest.mark.parametrize("place", PLACES)
def test_snapshots_commits_and_merges_start_nothing_that_an_agent_planted(repo: Path, trap: Trap, place: str) -> None:
    git(repo, "config", "user.name", "Ada")
    git(repo, "config", "user.email", "ada@example.org")
    start_run_here(repo)
    run = Run.begin(repo)
    snapshots = opened(repo)
    base = snapshots.take("base").snapshot
    plant(trap, repo)
    trap.plant_hooks(repo / ".git" / "hooks")
    PLACES[place](repo).write_text(ATTRIBUTES)
    write(repo, {"a.txt": "changed\n", "src/b.py": "b = 2\n", "new.txt": "new\n"})
    turn = snapshots.take("turn 1").snapshot
    assert snapshots.diff(base, turn) and snapshots.diff(base, turn, stat=True) and snapshots.tree_now()
    assert Committer(snapshots, RUN).commit(Commit("commit-1", 1, turn, "the work")).commit
    assert snapshots.undo().restored.files
    assert snapshots.restore(base, "the base").snapshot
    for name in ("one", "two"):
        run.merge(run.task(name, {"a.txt": "one\ntwo\nmore\n", f"{name}.txt": "x\n", ".gitattributes": ATTRIBUTES}))
    assert trap.ran() == []
    assert (repo / "a.txt").read_text() == "one\ntwo\n"


def test_hooks_that_a_setting_names_in_the_tree_do_not_run(repo: Path, trap: Trap) -> None:
    start_run_here(repo)
    run = Run.begin(repo)
    git(repo, "config", "core.hooksPath", "tools/hooks")
    trap.plant_hooks(repo / "tools" / "hooks")
    snapshots = opened(repo)
    snapshots.take("base")
    write(repo, {"a.txt": "changed\n"})
    snapshots.take("turn 1")
    run.merge(run.task("one", {"one.txt": "x\n"}))
    assert trap.ran() == []


@pytest.mark.parametrize("link", [False, True])
def test_a_repository_inside_the_tree_starts_nothing(repo: Path, trap: Trap, link: bool) -> None:
    start_run_here(repo)
    snapshots = opened(repo)
    snapshots.take("base")
    inner = repo / "sub"
    inner.mkdir()
    git(inner, "init", "-q")
    write(inner, {"f.txt": "1\n", ".gitattributes": ATTRIBUTES})
    git(inner, "add", "-A")
    git(inner, "commit", "-q", "-m", "inner")
    if link:
        elsewhere = repo.parent / "elsewhere"
        shutil.move(inner / ".git", elsewhere)
        (inner / ".git").write_text(f"gitdir: {elsewhere}\n")
    plant(trap, inner)
    for number in range(3):
        # Git asks the repository inside for its status if the time of a file has changed.
        os.utime(inner / "f.txt", (number, number))
        write(repo, {"a.txt": f"{number}\n"})
        snapshots.take(f"turn {number}")
    Git(repo).run("status", "--porcelain")
    assert trap.ran() == []


def test_an_included_file_starts_nothing(repo: Path, trap: Trap) -> None:
    start_run_here(repo)
    included = repo.parent / "included"
    git(repo, "config", "include.path", str(included))
    snapshots = opened(repo)
    snapshots.take("base")
    included.write_text(f'[filter "late=r"]\n\tclean = {trap.call("included")}\n')
    write(repo, {".gitattributes": "*.txt filter=late=r\n", "a.txt": "changed\n"})
    snapshots.take("turn 1")
    assert trap.ran() == []


def test_filters_from_before_the_run_and_of_the_user_stay_on(
    repo: Path, monkeypatch: pytest.MonkeyPatch, trap: Trap
) -> None:
    own = repo.parent / "gitconfig"
    own.write_text('[filter "upper"]\n\tclean = tr a-z A-Z\n\tsmudge = tr A-Z a-z\n')
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(own))
    git(repo, "config", "filter.swap.clean", "tr a-z 0")
    start_run_here(repo)
    run = Run.begin(repo)
    attributes = "*.up filter=upper\n*.sw filter=swap\n"
    mine = run.task("mine", {".gitattributes": attributes, "x.up": "abc\n", "x.sw": "abc\n"})
    assert (run.text("x.up", mine.branch), run.text("x.sw", mine.branch)) == ("ABC", "000")
    git(repo, "config", "filter.swap.clean", trap.call("swap"))
    write(mine.path, {"y.sw": "abc\n"})
    run.save(mine)
    assert (run.text("y.sw", mine.branch), trap.ran()) == ("abc", [])


def test_a_planted_merge_driver_is_replaced_by_the_merge_of_git(repo: Path, trap: Trap) -> None:
    start_run_here(repo)
    run = Run.begin(repo)
    write(repo, {"a.txt": "1\n2\n3\n4\n5\n6\n7\n"})
    git(repo, "commit", "-qam", "lines")
    first, second = run.task("first"), run.task("second")
    git(repo, "config", "merge.evil.driver", trap.call("merge"))
    for tree, text in ((first, "one\ntwo\nlast\n"), (second, "first\ntwo\n")):
        write(tree.path, {"a.txt": text, ".gitattributes": "*.txt merge=evil\n"})
        run.save(tree)
    run.merge(first)
    assert run.attempt(second).conflicts == ("a.txt",)
    assert trap.ran() == []


class TestLanding:
    @pytest.fixture
    def work(self, repo: Path) -> worktree.Worktree:
        git(repo, "config", "user.name", "Ada")
        git(repo, "config", "user.email", "ada@example.org")
        start_run_here(repo)
        made = worktree.ensure_worktree(repo, RUN)
        write(made.path, {"new.txt": "new\n"})
        merge.save_worktree(made, "the work")
        return made

    @pytest.mark.parametrize(
        ("key", "name"),
        [
            ("core.sshCommand", "core.sshcommand"),
            ("core.hooksPath", "core.hookspath"),
            ("include.path", "include.path"),
        ],
    )
    def test_a_changed_setting_is_named_and_nothing_lands(
        self, repo: Path, work: worktree.Worktree, trap: Trap, key: str, name: str
    ) -> None:
        value = str(trap.program)
        if key == "include.path":
            value = str(repo.parent / "included")
            Path(value).write_text("[core]\n\tpager = less\n")
        git(repo, "config", key, value)
        landed = merge.fast_forward(repo, BRANCH, git(repo, "rev-parse", BRANCH), MAIN)
        assert not landed.moved
        assert f"the git setting {name} is new ({value})" in landed.notice
        assert f"`ralph land {RUN}` lands it after you have undone these changes" in landed.notice
        assert trap.ran() == []

    def test_no_other_answer_names_a_command_that_would_start_them(
        self, repo: Path, work: worktree.Worktree, trap: Trap
    ) -> None:
        git(repo, "config", "core.fsmonitor", str(trap.program))
        git(repo, "config", "commit.gpgSign", "true")
        (repo / "uncommitted.txt").write_text("x\n")
        git(repo, "-c", "core.fsmonitor=false", "add", "uncommitted.txt")
        landed = merge.fast_forward(repo, BRANCH, git(repo, "rev-parse", BRANCH), MAIN)
        assert "the git setting core.fsmonitor is new" in landed.notice
        assert "git merge" not in landed.notice

    @pytest.mark.parametrize("where", ["hooks/post-merge", "info/attributes"])
    def test_a_changed_file_is_named_and_nothing_lands(
        self, repo: Path, work: worktree.Worktree, trap: Trap, where: str
    ) -> None:
        path = repo / ".git" / where
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{trap.call('hook')} </dev/null\n")
        path.chmod(0o755)
        landed = merge.fast_forward(repo, BRANCH, git(repo, "rev-parse", BRANCH), MAIN)
        assert not landed.moved and f"the file {where} is new" in landed.notice
        assert trap.ran() == []

    def test_work_that_changes_hooks_in_the_tree_does_not_land(self, repo: Path, trap: Trap) -> None:
        git(repo, "config", "core.hooksPath", ".husky/_")
        trap.plant_hooks(repo / ".husky" / "_")
        for hook in (repo / ".husky" / "_").iterdir():
            hook.write_text("#!/bin/sh\nexit 0\n")
        git(repo, "add", "-A")
        git(repo, "commit", "-qm", "hooks")
        start_run_here(repo)
        made = worktree.ensure_worktree(repo, RUN)
        write(made.path, {".husky/pre-push": trap.call("husky")})
        merge.save_worktree(made, "the work")
        landed = merge.fast_forward(repo, BRANCH, git(repo, "rev-parse", BRANCH), MAIN)
        assert not landed.moved
        assert "the work changes the hooks that git runs for you (.husky/pre-push)" in landed.notice

    def test_hooks_from_before_the_run_get_no_agent_keys(
        self, repo: Path, trap: Trap, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret")
        hook = repo / ".git" / "hooks" / "post-merge"
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f'#!/bin/sh\necho "key=$ANTHROPIC_API_KEY" >>"{trap.log}"\n')
        hook.chmod(0o755)
        start_run_here(repo)
        made = worktree.ensure_worktree(repo, RUN)
        write(made.path, {"new.txt": "new\n"})
        merge.save_worktree(made, "the work")
        assert merge.fast_forward(repo, BRANCH, git(repo, "rev-parse", BRANCH), MAIN).moved
        assert trap.ran() == ["key="]

    def test_honest_settings_of_agents_do_not_stop_the_landing(self, repo: Path, work: worktree.Worktree) -> None:
        git(repo, "config", "branch.main.remote", "origin")
        git(repo, "config", "user.signingKey", "ABC")
        assert merge.fast_forward(repo, BRANCH, git(repo, "rev-parse", BRANCH), MAIN).moved


def test_programs_that_are_new_since_the_last_run_are_listed_for_consent(repo: Path, trap: Trap) -> None:
    git(repo, "config", "filter.mine.clean", "cat")
    assert list_new_programs(Git(repo)) == {}
    start_run_here(repo)
    git(repo, "config", "filter.evil.clean", trap.call("clean"))
    trap.plant_hooks(repo / ".git" / "hooks")
    found = list_new_programs(Git(repo))
    assert found["git setting filter.evil.clean"] == trap.call("clean")
    assert trap.call("pre-push") in found["git hook pre-push"]
    start_run_here(repo)
    assert list_new_programs(Git(repo)) == {}
