"""Merging the work of tasks: tried aside, resolved in the task's own worktree, and nothing of others taken back."""

import os
import subprocess
from pathlib import Path

import pytest
from repos import RUN, git, start_run_here, write
from runs import BRANCH, Run

from ralph.core.errors import UsageError
from ralph.git import merge, worktree
from ralph.git.command import Git, GitError
from ralph.git.merge import UnresolvedMerge
from ralph.git.worktree import Worktree

ODD = ("a b.txt", "line\nend.txt", "quo'te\".txt", os.fsdecode(b"not-utf8-\xff\xfe.txt"), "back\\slash", ":(top)x", "*")
"""Names of files that stumble over whoever quotes them wrongly."""


@pytest.fixture
def run(repo: Path) -> Run:
    return Run.begin(repo)


def conflicting(run: Run, ours: dict[str, str | bytes], theirs: dict[str, str | bytes]) -> Worktree:
    """A task whose work does not fit that of another, which is merged."""
    mine, other = run.task("mine", ours), run.task("other", theirs)
    run.merge(other)
    return mine


def brought_in(run: Run, tree: Worktree) -> UnresolvedMerge:
    return merge.merge_into_worktree(tree, run.tip, ())


def judged(tree: Worktree, unresolved: UnresolvedMerge) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What is undecided, and what would be taken back."""
    return merge.find_undecided(tree, unresolved), merge.find_reverted(tree, merge.write_tree(tree), unresolved)


def settled(run: Run, tree: Worktree, unresolved: UnresolvedMerge) -> str:
    assert judged(tree, unresolved) == ((), ())
    return merge.save_worktree(tree, "resolved", brought_in=unresolved.commit)


class TestAttempt:
    def test_a_merge_is_made_aside_and_moves_nothing(self, run: Run) -> None:
        before = git(run.root, "status", "--porcelain=v2", "--branch"), git(run.root, "for-each-ref")
        mine = run.task("mine", {"new.txt": "x\n"})
        candidate = run.attempt(mine)
        assert run.files(candidate.commit) == {".gitignore", "a.txt", "src/b.py", "new.txt"}
        assert git(run.root, "rev-parse", f"{candidate.commit}^1") == run.tip == git(run.root, "rev-parse", "main")
        assert git(run.root, "rev-parse", f"{candidate.commit}^2") == git(run.root, "rev-parse", mine.branch)
        assert git(run.root, "status", "--porcelain=v2", "--branch") == before[0]
        assert (run.root / ".ralph/worktrees" / f"{RUN}.merge" / "new.txt").exists()
        assert merge.find_merge(Git(run.root), "main", run.tip, "Ralph-Task", "mine/1") == ""
        merge.advance_branch(Git(run.root), BRANCH, run.tip, candidate.commit)
        assert merge.find_merge(Git(run.root), "main", run.tip, "Ralph-Task", "mine/1") == candidate.commit
        assert merge.find_merge(Git(run.root), "main", run.tip, "Ralph-Task", "mine/11") == ""

    def test_conflicts_are_named_even_for_odd_file_names(self, run: Run) -> None:
        write(run.root, dict.fromkeys(ODD, "base\n"))
        git(run.root, "add", "-A")
        git(run.root, "commit", "-q", "-m", "odd")
        git(run.root, "update-ref", f"refs/heads/{BRANCH}", "main")
        git(run.root, "update-ref", f"refs/ralph-work/{RUN}/run", "main")
        mine = conflicting(run, dict.fromkeys(ODD, "ours\n"), dict.fromkeys(ODD, "theirs\n"))
        assert sorted(run.attempt(mine).conflicts) == sorted(ODD)
        unresolved = brought_in(run, mine)
        assert sorted(merge.find_undecided(mine, unresolved)) == sorted(ODD)
        write(mine.path, dict.fromkeys(ODD[:-1], "both\n"))
        assert merge.find_undecided(mine, unresolved) == ODD[-1:]
        write(mine.path, {ODD[-1]: "ours\n"})
        assert judged(mine, unresolved) == ((), ODD[-1:])
        write(mine.path, {ODD[-1]: "both\n"})
        settled(run, mine, unresolved)
        run.merge(mine)
        assert git(run.root, "grep", "-c", "both", BRANCH).count("both") == 0
        assert {run.text(name) for name in ODD if name not in ("*", ":(top)x")} == {"both"}

    def test_the_scratch_worktree_is_cleared_of_what_checks_left(self, run: Run) -> None:
        first, second = run.task("first", {"one.txt": "1\n"}), run.task("second", {"two.txt": "2\n"})
        run.merge(first)
        scratch = run.root / ".ralph/worktrees" / f"{RUN}.merge"
        write(scratch, {"two.txt": "in the way\n", "a.txt": "changed\n", "report/x.xml": "<x/>", "kept.log": "cache"})
        (run.root / ".git/worktrees" / f"{RUN}.merge" / "index.lock").write_bytes(b"")
        run.merge(second)
        assert run.text("two.txt") == "2"
        assert run.text("a.txt") == "one\ntwo"
        assert not (scratch / "report").exists()
        assert (scratch / "kept.log").exists(), "what is ignored may be a cache"

    def test_a_branch_that_a_check_switched_to_is_not_moved(self, run: Run) -> None:
        git(run.root, "branch", "feature")
        run.merge(run.task("first", {"one.txt": "1\n"}))
        git(run.root / ".ralph/worktrees" / f"{RUN}.merge", "switch", "-q", "feature")
        run.merge(run.task("second", {"two.txt": "2\n"}))
        assert git(run.root, "rev-parse", "feature") == git(run.root, "rev-parse", "main")

    def test_broken_scratch_worktree_leaves_the_users_tree_alone(self, run: Run) -> None:
        run.merge(run.task("first", {"one.txt": "1\n"}))
        second = run.task("second", {"two.txt": "2\n"})
        write(run.root, {"a.txt": "work of the user\n", "untracked.txt": "theirs\n"})
        before = git(run.root, "status", "--porcelain=v2", "--branch"), (run.root / ".git/HEAD").read_text()
        broken = run.root / ".ralph/worktrees" / f"{RUN}.merge"
        for what in ("nothing", "an empty directory", "a repository", "rubbish", "a link"):
            (broken / ".git").unlink()
            if what == "an empty directory":
                (broken / ".git").mkdir()
            elif what == "a repository":
                git(broken, "init", "-q")
            elif what == "rubbish":
                (broken / ".git").write_text("gitdir: /nowhere")
            elif what == "a link":
                (broken / ".git").symlink_to(run.root / ".git")
            assert run.files(run.attempt(second).commit) >= {"one.txt", "two.txt"}, what
            now = git(run.root, "status", "--porcelain=v2", "--branch"), (run.root / ".git/HEAD").read_text()
            assert now == before, what
        assert (run.root / "a.txt").read_text() == "work of the user\n"

    def test_settings_of_the_user_do_not_change_what_is_found(self, run: Run) -> None:
        for setting in ("log.showSignature=true", "grep.patternType=fixed", "merge.ff=only", "format.pretty=oneline"):
            git(run.root, "config", *setting.split("="))
        git(run.root, "config", "merge.conflictStyle", "merge")
        commit = run.merge(run.task("mine", {"new.txt": "x\n"}))
        assert merge.find_merge(Git(run.root), "main", run.tip, "Ralph-Task", "mine/1") == commit

    def test_commit_message_that_names_another_task_is_not_its_merge(self, run: Run) -> None:
        mine = run.task("mine", {"new.txt": "x\n"})
        scratch = worktree.create_scratch(run.root, RUN, run.tip)
        text = "title\nRalph-Task: other/1\n\nRalph-Task: third/1\n\nRalph-Task: mine/1\n"
        made = merge.try_merge(scratch, run.tip, git(run.root, "rev-parse", mine.branch), text)
        merge.advance_branch(Git(run.root), BRANCH, run.tip, made.commit)
        found = [
            merge.find_merge(Git(run.root), "main", run.tip, "Ralph-Task", f"{name}/1") for name in ("other", "third")
        ]
        assert found == ["", ""]
        assert merge.find_merge(Git(run.root), "main", run.tip, "Ralph-Task", "mine/1") == made.commit

    def test_filters_of_the_user_hold_in_every_worktree(self, run: Run) -> None:
        """As LFS does it: what is in the repository is not what is in the tree."""
        git(run.root, "config", "filter.swap.clean", "tr a-z A-Z")
        git(run.root, "config", "filter.swap.smudge", "tr A-Z a-z")
        git(run.root, "config", "filter.swap.required", "true")
        start_run_here(run.root)
        mine = run.task("mine", {".gitattributes": "*.big filter=swap\n", "x.big": "large\n"})
        assert run.text("x.big", mine.branch) == "LARGE"
        run.merge(mine)
        scratch = run.root / ".ralph/worktrees" / f"{RUN}.merge"
        assert (scratch / "x.big").read_text() == "large\n"
        second = run.task("second", {"new.txt": "x\n"})
        assert (second.path / "x.big").read_text() == "large\n"
        assert git(run.root, "diff", "--name-only", f"{BRANCH}..{second.branch}") == "new.txt"

    def test_unrelated_histories_are_an_error(self, run: Run) -> None:
        alone = git(run.root, "commit-tree", "-m", "no history", "HEAD^{tree}")
        scratch = worktree.create_scratch(run.root, RUN, run.tip)
        with pytest.raises(GitError, match="unrelated histories"):
            merge.try_merge(scratch, run.tip, alone, "x")


class TestResolving:
    def test_both_sides_lie_there_with_marks_and_the_result_has_both_parents(self, run: Run) -> None:
        mine = conflicting(run, {"a.txt": "mine\ntwo\n", "mine.txt": "m\n"}, {"a.txt": "other\ntwo\n", "o.txt": "o\n"})
        unresolved = brought_in(run, mine)
        assert unresolved.conflicts == ("a.txt",)
        assert "|||||||" in (mine.path / "a.txt").read_text(), "with what both began from"
        assert (mine.path / "o.txt").exists()
        assert judged(mine, unresolved)[0] == ("a.txt",)
        write(mine.path, {"a.txt": "mine and other\ntwo\n"})
        commit = settled(run, mine, unresolved)
        parents = git(run.root, "show", "-s", "--format=%P", commit).split()
        assert parents == [unresolved.own, unresolved.commit]
        assert git(mine.path, "status", "--porcelain=v2", "--branch").split("\n") == [
            f"# branch.oid {commit}",
            f"# branch.head {mine.branch}",
        ]
        run.merge(mine)
        assert run.files() >= {"mine.txt", "o.txt"}

    def test_marks_in_one_of_two_files_are_seen(self, run: Run) -> None:
        mine = conflicting(run, {"a.txt": "m\n", "src/b.py": "m\n"}, {"a.txt": "o\n", "src/b.py": "o\n"})
        unresolved = brought_in(run, mine)
        write(mine.path, {"a.txt": "m o\n"})
        git(mine.path, "add", "-A")
        assert merge.find_undecided(mine, unresolved) == ("src/b.py",), "though the agent said that it is resolved"

    def test_the_mark_of_what_both_sides_began_with_is_one_too(self, run: Run) -> None:
        mine = conflicting(run, {"a.txt": "m\n"}, {"a.txt": "o\n"})
        unresolved = brought_in(run, mine)
        left = [
            line
            for line in (mine.path / "a.txt").read_text().splitlines()
            if line[:7] not in ("<" * 7, "=" * 7, ">" * 7)
        ]
        write(mine.path, {"a.txt": "\n".join(left) + "\n"})
        assert any(line.startswith("|" * 7) for line in left)
        assert merge.find_undecided(mine, unresolved) == ("a.txt",)

    def test_markers_that_were_always_in_another_file_are_not_a_conflict(self, run: Run) -> None:
        mine = conflicting(run, {"a.txt": "m\n", "doc.md": "<<<<<<< HEAD\n"}, {"a.txt": "o\n"})
        unresolved = brought_in(run, mine)
        write(mine.path, {"a.txt": "m o\n"})
        assert judged(mine, unresolved) == ((), ())

    def test_keeping_only_ones_own_side_takes_back_what_others_did(self, run: Run) -> None:
        mine = conflicting(run, {"a.txt": "m\n"}, {"a.txt": "o\n", "src/b.py": "b = 2\n", "new.txt": "n\n"})
        unresolved = brought_in(run, mine)
        git(mine.path, "checkout", "--ours", "a.txt")
        git(mine.path, "add", "a.txt")
        assert judged(mine, unresolved) == ((), ("a.txt",))
        (mine.path / "new.txt").unlink()
        assert judged(mine, unresolved) == ((), ("a.txt", "new.txt"))

    def test_an_aborted_merge_reverts_all_work_of_others(self, run: Run) -> None:
        mine = conflicting(run, {"a.txt": "m\n"}, {"a.txt": "o\n", "src/b.py": "b = 2\n", "new.txt": "n\n"})
        unresolved = brought_in(run, mine)
        git(mine.path, "merge", "--abort")
        assert judged(mine, unresolved) == ((), ("a.txt", "new.txt", "src/b.py"))
        git(mine.path, "merge", "-q", "-s", "ours", "-m", "done", run.tip)
        assert judged(mine, unresolved) == ((), ("a.txt", "new.txt", "src/b.py"))

    def test_a_resolver_may_commit_by_itself(self, run: Run) -> None:
        mine = conflicting(run, {"a.txt": "m\n"}, {"a.txt": "o\n", "new.txt": "n\n"})
        unresolved = brought_in(run, mine)
        write(mine.path, {"a.txt": "m o\n"})
        git(mine.path, "commit", "-q", "-a", "-m", "resolved")
        write(mine.path, {"a.txt": "m o, better\n"})
        commit = settled(run, mine, unresolved)
        assert git(run.root, "log", "-2", "--format=%s|%an", commit).split("\n") == ["resolved|Ralph", "resolved|User"]
        run.merge(mine)
        assert run.text("a.txt") == "m o, better"

    def test_a_binary_file_must_be_decided_by_word(self, run: Run) -> None:
        mine = conflicting(run, {"x.bin": b"\0mine"}, {"x.bin": b"\0other"})
        unresolved = brought_in(run, mine)
        assert judged(mine, unresolved)[0] == ("x.bin",)
        write(mine.path, {"x.bin": b"\0both"})
        assert merge.find_undecided(mine, unresolved) == ("x.bin",), "it may as well be half done"
        for data in (b"\0both", b"\0other", b"\0mine"):
            write(mine.path, {"x.bin": data})
            git(mine.path, "add", "x.bin")
            assert judged(mine, unresolved) == ((), ()), "it cannot have both sides"

    @pytest.mark.parametrize("how", [("merge", "--abort"), ("checkout", "-q", "-f", "HEAD")])
    def test_aborting_a_merge_decides_nothing(self, run: Run, how: tuple[str, ...]) -> None:
        mine, other = run.task("mine", {"x.bin": b"\0mine"}), run.task("other", {"x.bin": b"\0other"})
        (mine.path / "a.txt").unlink()
        write(other.path, {"a.txt": "one\ntwo\nthree\n"})
        (other.path / "src/b.py").unlink()
        write(mine.path, {"src/b.py": "b = 3\n"})
        run.save(mine), run.save(other)
        run.merge(other)
        unresolved = brought_in(run, mine)
        assert sorted(unresolved.conflicts) == ["a.txt", "src/b.py", "x.bin"]
        git(mine.path, *how)
        undecided, lost = judged(mine, unresolved)
        assert {*undecided, *lost} == {"a.txt", "src/b.py", "x.bin"}

    def test_a_file_that_others_changed_may_stay_deleted_by_word(self, run: Run) -> None:
        mine, other = run.task("mine"), run.task("other", {"a.txt": "one\ntwo\nthree\n", "new.txt": "n\n"})
        (mine.path / "a.txt").unlink()
        write(mine.path, {"parts/1.txt": "something else altogether\n"})
        run.save(mine)
        run.merge(other)
        unresolved = brought_in(run, mine)
        assert judged(mine, unresolved)[0] == ("a.txt",)
        git(mine.path, "rm", "-q", "a.txt")
        assert judged(mine, unresolved) == ((), ())
        settled(run, mine, unresolved)
        run.merge(mine)
        assert run.files() == {".gitignore", "new.txt", "parts/1.txt", "src/b.py"}

    def test_a_file_that_others_deleted_may_stay_by_word(self, run: Run) -> None:
        mine, other = run.task("mine", {"a.txt": "one\ntwo\nthree\n"}), run.task("other")
        (other.path / "a.txt").unlink()
        run.save(other)
        run.merge(other)
        unresolved = brought_in(run, mine)
        assert judged(mine, unresolved)[0] == ("a.txt",)
        git(mine.path, "add", "a.txt")
        assert judged(mine, unresolved) == ((), ())

    def test_a_red_without_a_conflict_is_brought_in_as_well(self, run: Run) -> None:
        mine = conflicting(run, {"mine.txt": "m\n"}, {"other.txt": "o\n"})
        unresolved = brought_in(run, mine)
        assert unresolved.conflicts == ()
        assert (mine.path / "other.txt").exists()
        assert git(run.root, "rev-parse", mine.branch) == unresolved.own, "nothing is committed yet"
        write(mine.path, {"mine.txt": "fits now\n"})
        settled(run, mine, unresolved)
        run.merge(mine)
        assert run.text("mine.txt") == "fits now"

    def test_work_of_a_resolver_is_kept_before_a_new_attempt(self, run: Run) -> None:
        mine = conflicting(run, {"a.txt": "m\n"}, {"a.txt": "o\n", "new.txt": "n\n"})
        unresolved, ref = brought_in(run, mine), f"refs/ralph-left/{RUN}/mine/1/x"
        write(mine.path, {"a.txt": "m\n", "idea.txt": "good\n"})
        git(mine.path, "commit", "-q", "-a", "-m", "by the agent")
        (run.root / ".git/worktrees" / f"{RUN}.mine.1" / "index.lock").write_bytes(b"")
        merge.keep_under_ref(mine, ref, (), since=unresolved.own)
        merge.reset_worktree(mine, unresolved.own)
        assert git(mine.path, "status", "--porcelain") == ""
        assert git(run.root, "rev-parse", mine.branch) == unresolved.own
        assert run.text("idea.txt", ref) == "good"
        assert git(run.root, "log", "-1", "--skip=1", "--format=%s", ref) == "by the agent"
        (mine.path / "half").write_text("of a clearing that was killed")
        merge.keep_under_ref(mine, ref, (), since=unresolved.own)
        assert run.text("half", ref)
        assert run.text("idea.txt", f"{ref}^2") == "good", "what was kept before is not lost"


class TestTheBranchOfTheRun:
    def test_branch_that_an_agent_moved_is_moved_back(self, run: Run) -> None:
        run.merge(run.task("first", {"one.txt": "1\n"}))
        right = run.tip
        assert merge.repair_branch(Git(run.root), BRANCH) == ""
        agent = run.task("agent")
        git(agent.path, "switch", "-q", BRANCH)
        write(agent.path, {"unseen.txt": "nobody checked this\n"})
        git(agent.path, "add", "-A")
        git(agent.path, "commit", "-q", "-m", "straight onto the branch")
        moved = git(run.root, "rev-parse", BRANCH)
        assert run.tip == right, "new worktrees begin where the merges have come to"
        kept = merge.repair_branch(Git(run.root), BRANCH)
        assert git(run.root, "rev-parse", BRANCH, kept).split() == [right, moved]
        git(run.root, "update-ref", f"refs/heads/{BRANCH}", "main")
        assert merge.repair_branch(Git(run.root), BRANCH), "merges that were thrown away come back"
        git(run.root, "update-ref", "-d", f"refs/heads/{BRANCH}")
        assert merge.repair_branch(Git(run.root), BRANCH) == ""
        assert git(run.root, "rev-parse", BRANCH) == right

    def test_branch_moves_only_from_its_known_position(self, run: Run) -> None:
        made = run.attempt(run.task("mine", {"new.txt": "x\n"})).commit
        git(run.root, "update-ref", f"refs/heads/{BRANCH}", made)
        with pytest.raises(GitError):
            merge.advance_branch(Git(run.root), BRANCH, git(run.root, "rev-parse", "main"), made)
        assert run.tip == git(run.root, "rev-parse", "main")


def test_a_name_that_is_none_is_refused(repo: Path) -> None:
    for name in ("", "a", "a/", "/1", "a/b", "a/1/2", "../1", "a b/1", "-a/1", "a.b/1", "run/1", "a/1234567", "ä/1"):
        with pytest.raises(UsageError, match="cannot name a workspace"):
            worktree.create_for_task(repo, RUN, name, "HEAD")
    assert git(repo, "worktree", "list").count("\n") == 0


def test_a_repository_in_the_task_stays_in_its_worktree(run: Run) -> None:
    mine = run.task("mine", {"own.txt": "x\n"})
    for name, commits in (("with-commits", True), ("without", False)):
        (mine.path / name).mkdir()
        git(mine.path / name, "init", "-q")
        write(mine.path / name, {"inner.txt": "work\n"})
        if commits:
            git(mine.path / name, "add", "-A")
            git(mine.path / name, "commit", "-q", "-m", "inner")
    with pytest.raises(subprocess.CalledProcessError):
        git(mine.path, "add", "-A")
    git(mine.path, "add", "with-commits")
    git(mine.path, "commit", "-q", "-m", "by the agent")
    run.save(mine)
    run.merge(mine)
    assert run.files() == {".gitignore", "a.txt", "own.txt", "src/b.py"}
    removal = worktree.remove(mine, BRANCH)
    assert "2 uncommitted changes" in removal.why_not, "none of its files is anywhere else"
    assert (mine.path / "with-commits" / "inner.txt").exists()
