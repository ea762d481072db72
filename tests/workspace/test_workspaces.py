"""Workspaces of tasks and the merger of their work: set up, saved, resolved, merged once, and cleared away."""

import asyncio
import json
import os
import shutil
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest
from engines import Engine, begin, engine, git, write

from ralph.app.start import WorkLocation
from ralph.core.checks import Check
from ralph.core.errors import UsageError
from ralph.core.events import Landed, Merge, MergeResult, TurnEnded
from ralph.core.prompt import Prompt
from ralph.core.turns import Turn, TurnEnd, TurnRequest, TurnResult
from ralph.documents.run_record import TreeSettings
from ralph.git import merge
from ralph.git.command import Git
from ralph.store.runs import RunDir
from ralph.workflows.merge_rules import Queue
from ralph.workspace.workspaces import MERGED_DIFF, TASK_DIFF
from ralph.workspace.worktree_setup import SetupError, WorktreeRecords, explain_no_room

A = "one\ntwo\n"


@pytest.fixture(autouse=True)
def no_configuration_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    root = tmp_path / "repo"
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    write(root, {"a.txt": A, "src/b.py": "b = 1\n", ".gitignore": "*.log\n.env\nnode_modules/\n"})
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "first")
    return root


@pytest.fixture
def run(repo: Path) -> RunDir:
    return begin(repo)


def do(work: Coroutine[Any, Any, Any]) -> None:
    asyncio.run(asyncio.wait_for(work, 300))


def left(root: Path) -> dict[str, list[str]]:
    """What runs have left in the repository."""
    refs = git(root, "for-each-ref", "--format=%(refname)", "refs/heads", "refs/ralph-work", "refs/ralph-left").split()
    trees = [line.split()[0] for line in git(root, "worktree", "list").split("\n")[1:]]
    return {"refs": refs, "trees": [Path(tree).name.partition(".")[2] for tree in trees]}


class TestTurns:
    def test_a_turn_works_on_a_branch_of_its_own_and_is_saved(self, repo: Path, run: RunDir) -> None:
        async def main() -> None:
            async with engine(repo, run) as e:
                result = await e.turn(
                    "t1/1", "pwd > x.log; git symbolic-ref HEAD; echo new > new.txt; echo $RALPH_INBOX"
                )
                assert result.end is TurnEnd.FINISHED
                assert result.change and result.change.files == 1
                path = repo / ".ralph/worktrees" / f"{run.id}.t1.1"
                assert (path / "x.log").read_text() == f"{path}\n"
                assert result.text.split() == [f"refs/heads/ralph/{run.id}/t1/1", str(path / ".ralph/turn/inbox")]
                assert git(repo, "show", f"ralph/{run.id}/t1/1:new.txt") == "new"
                assert git(repo, "status", "--porcelain") == ""
                verdict = await e.workspaces.check("c", [Check("test -f new.txt")], "t1/1")
                assert verdict.passed
                assert not (await e.workspaces.check("c2", [Check("test -f new.txt")], "")).passed

        do(main())

    def test_an_agent_that_breaks_its_worktree_does_not_reach_the_users(self, repo: Path, run: RunDir) -> None:
        (repo / "a.txt").write_text("uncommitted work of the user\n")
        before = git(repo, "status", "--porcelain=v2", "--branch")

        async def main() -> None:
            async with engine(repo, run) as e:
                for number, script in enumerate(
                    (
                        "echo w > work.txt; rm .git; git reset --hard; git checkout -b gotcha; true",
                        "echo w > work.txt; rm .git; mkdir .git; git clean -dfx; git add -A; true",
                        "git worktree remove --force .; true",
                        'rm -rf "$PWD"',
                    ),
                    1,
                ):
                    result = await e.turn(f"t{number}/1", script)
                    assert result.end is TurnEnd.FINISHED, result.error
                    assert git(repo, "status", "--porcelain=v2", "--branch") == before
                    verdict = await e.workspaces.check(
                        f"c{number}", [Check("git rev-parse --show-toplevel")], f"t{number}/1"
                    )
                    assert verdict.passed
                    assert verdict.results[0].output.strip().endswith(f".t{number}.1")
                for name in ("t1/1", "t2/1"):
                    assert (await e.merge(name, key=f"m-{name[:2]}")).end is MergeResult.MERGED
                await e.merger.finish()
                assert "work.txt" in e.files()

        do(main())
        assert (repo / "a.txt").read_text() == "uncommitted work of the user\n"

    def test_a_turn_that_is_ended_while_its_worktree_is_made_does_not_begin(self, repo: Path) -> None:
        run = begin(repo, tree_settings=TreeSettings(setup=(f"touch {repo.parent}/making; sleep 3",)))

        async def main() -> None:
            async with engine(repo, run) as e:
                running = asyncio.create_task(e.turn("t1/1", f"touch {repo.parent}/begun"))
                while not (repo.parent / "making").exists():
                    await asyncio.sleep(0.02)
                request = TurnRequest("turn-1", "executor", Prompt.of(""), worktree="t1/1")
                await e.workspaces.stop(Turn(1, 1, request), "stopped")
                assert (await running).end is TurnEnd.STOPPED
                assert not (repo.parent / "begun").exists()

        do(main())

    def test_a_resolver_has_both_sides_before_it(self, repo: Path, run: RunDir) -> None:
        async def main() -> None:
            async with engine(repo, run) as e:
                await e.site("other/1", {"a.txt": "other\n"})
                await e.site("mine/1", {"a.txt": "mine\n"})
                assert (await e.merge("other/1")).end is MergeResult.MERGED
                merged = await e.merge("mine/1")
                assert (merged.end, merged.files, merged.others_merged) == (MergeResult.CONFLICT, ("a.txt",), True)
                script = f"cat .ralph/turn/inbox/{MERGED_DIFF} .ralph/turn/inbox/{TASK_DIFF} a.txt"
                result = await e.turn("mine/1", script, "resolve-1", merges_run_branch=True)
                assert "+other" in result.text and "+mine" in result.text and "<<<<<<<" in result.text
                merged = await e.merge("mine/1")
                assert (merged.end, merged.files, merged.others_merged) == (MergeResult.CONFLICT, ("a.txt",), False)
                await e.turn(
                    "mine/1",
                    "grep -c '<<<<' a.txt; git checkout -q --ours a.txt; echo x > idea",
                    "resolve-2",
                    merges_run_branch=True,
                )
                merged = await e.merge("mine/1")
                assert (merged.end, merged.files) == (MergeResult.REVERTS, ("a.txt",))
                await e.turn("mine/1", "grep -q '<<<<' a.txt && echo both > a.txt", "resolve-3", merges_run_branch=True)
                assert (await e.merge("mine/1")).end is MergeResult.MERGED
                await e.merger.finish()
                assert git(repo, "show", f"{e.branch}:a.txt") == "both"

        do(main())
        work = f"ralph-work/{run.id}/run"
        kept = f"refs/ralph-left/{run.id}/mine/1/resolve-3"
        assert left(repo) == {
            "refs": ["refs/heads/main", f"refs/heads/ralph/{run.id}/run", kept, f"refs/{work}"],
            "trees": ["merge"],
        }

    def test_a_conflict_in_a_file_of_any_name_outlives_an_engine(self, repo: Path, run: RunDir) -> None:
        names = (os.fsdecode(b"not-utf8-\xff.txt"), "line\nend", "quo`te\"s'")

        async def main() -> None:
            e = Engine.of(repo, run)
            await e.site("other/1", dict.fromkeys(names, "other\n"))
            await e.site("mine/1", dict.fromkeys(names, "mine\n"))
            await e.merge("other/1")
            assert sorted((await e.merge("mine/1")).files) == sorted(names)
            request = TurnRequest("resolve-1", "resolver", Prompt.of(""), worktree="mine/1", merges_run_branch=True)
            await e.workspaces.open("mine/1", request)
            await e.merger.finish()
            e = Engine.of(repo, run)
            site = await e.workspaces.open("mine/1", request)
            assert sorted((await e.merge("mine/1")).files) == sorted(names)
            write(site.tree.path, dict.fromkeys(names, "both\n"))
            assert (await e.merge("mine/1")).end is MergeResult.MERGED
            await e.merger.finish()
            assert e.files() >= set(names)

        do(main())

    def test_a_deleted_worktree_is_made_again(self, repo: Path, run: RunDir) -> None:
        async def main() -> None:
            e = Engine.of(repo, run)
            site = await e.site("t1/1", {"w.txt": "w\n"})
            shutil.rmtree(site.tree.path)
            assert ((await e.workspaces.open("t1/1")).tree.path / "w.txt").exists()
            assert (await e.merge("t1/1")).end is MergeResult.MERGED
            await e.merger.finish()

        do(main())

    def test_of_a_sparse_checkout_nothing_looks_deleted(self, repo: Path) -> None:
        git(repo, "sparse-checkout", "set", "--no-cone", "/a.txt")
        run = begin(repo)

        async def main() -> None:
            e = Engine.of(repo, run)
            site = await e.workspaces.open("t1/1")
            assert sorted(os.listdir(site.tree.path)) == [".git", "a.txt"]
            write(site.tree.path, {"w.txt": "w\n"})
            change = e.workspaces._save_turn(site, "turn 1")
            assert change and (change.files, change.removed) == (1, 0)
            assert (await e.merge("t1/1")).end is MergeResult.MERGED
            await e.merger.finish()
            assert e.files() == {".gitignore", "a.txt", "src/b.py", "w.txt"}

        do(main())

    def test_a_name_that_is_none_is_refused_before_anything_is_made(self, repo: Path, run: RunDir) -> None:
        before = left(repo)

        async def main() -> None:
            for name in ("../../x/1", "run/1", "a b/1", "t1"):
                with pytest.raises(UsageError, match="cannot name a workspace"):
                    await Engine.of(repo, run).workspaces.open(name)

        do(main())
        assert left(repo) == before


class TestWorktreeSetup:
    def test_copied_files_are_in_every_worktree_and_in_no_commit(self, repo: Path) -> None:
        write(repo, {".env": "KEY=1\n", "data/deep/x": "x", "node_modules/m/index.js": "m"})
        (repo / "data/link").symlink_to("nowhere")
        trees = TreeSettings(copy=(".env", "data", "missing"), share=("node_modules", "cache/of/mine"))
        run = begin(repo, tree_settings=trees)
        check = "test -f .env && test -f data/deep/x && test -f node_modules/m/index.js && test -d cache/of/mine"

        async def main() -> None:
            async with engine(repo, run) as e:
                await e.turn(
                    "t1/1", f"{check} && echo w > w.txt; echo more >> .env; touch cache/of/mine/x; git add -Af"
                )
                await e.turn("t2/1", "echo w > w2.txt; rm node_modules")
                site = await e.workspaces.open("t1/1")
                assert os.readlink(site.tree.path / "data/link") == "nowhere"
                for name in ("t1/1", "t2/1"):
                    merged = await e.merge(name, check, key=name[:2])
                    assert merged.end is MergeResult.MERGED, merged
                await e.merger.finish()
                assert e.files() == {".gitignore", "a.txt", "src/b.py", "w.txt", "w2.txt"}

        do(main())
        assert left(repo)["trees"] == ["merge"]
        assert (repo / ".env").read_text() == "KEY=1\n"
        assert (repo / "node_modules/m/index.js").exists()
        assert (repo / "cache/of/mine/x").exists()

    def test_incomplete_copy_is_never_used_as_complete(self, repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        write(repo, {"data/1": "1", "data/2": "2"})
        run = begin(repo, tree_settings=TreeSettings(copy=("data",)))
        copied: list[Path] = []

        def full(source: str, target: str, **more: Any) -> None:
            copied.append(Path(target))
            if len(copied) == 2:
                raise OSError(28, "No space left on device")
            shutil.copy(source, target)

        async def main() -> None:
            e = Engine.of(repo, run)
            with monkeypatch.context() as patch:
                patch.setattr(shutil, "copy2", full)
                patch.setattr(shutil, "copytree", lambda s, t, **more: [full(str(f), str(t)) for f in s.iterdir()])
                with pytest.raises(SetupError, match="data cannot be put into a worktree"):
                    await e.workspaces.open("t1/1")
            site = await Engine.of(repo, run).workspaces.open("t1/1")
            assert sorted(os.listdir(site.tree.path / "data")) == ["1", "2"]

        do(main())

    def test_the_worktree_of_a_run_is_set_up_before_any_check_and_again_after_a_failure(self, repo: Path) -> None:
        ready, broken = repo.parent / "ready", repo.parent / "broken"
        broken.touch()
        setup = f"test ! -f {broken} && sleep 0.3 && touch {ready}"
        run = begin(repo, WorkLocation.WORKTREE, tree_settings=TreeSettings(setup=(setup,)))
        checks = [Check(f"test -f {ready}")]

        async def main() -> None:
            async with engine(repo, run) as e:
                with pytest.raises(SetupError, match="failed"):
                    await e.workspaces.check("c1", checks)
                broken.unlink()
                verdicts = await asyncio.gather(e.workspaces.check("c2", checks), e.workspaces.check("c3", checks))
                assert [verdict.passed for verdict in verdicts] == [True, True]

        do(main())

    def test_setup_commands_run_again_only_if_their_files_change(self, repo: Path) -> None:
        told = repo.parent / "told"
        setup = (f"pwd >> {told}", "! grep -q broken package.json")
        write(repo, {"package.json": "{}\n"})
        git(repo, "add", "-A")
        git(repo, "commit", "-q", "-m", "package")
        run = begin(repo, tree_settings=TreeSettings(setup=setup, most_bytes=1))

        async def main() -> None:
            async with engine(repo, run) as e:
                await e.turn("t1/1", "echo w > w.txt")
                await e.turn("t1/1", "echo w > w2.txt")
                assert len(told.read_text().split()) == 1
                await e.turn("t1/1", 'echo "{ }" > package.json')
                assert (await e.merge("t1/1", "true")).end is MergeResult.MERGED
                assert len(told.read_text().split()) == 3, "once more for the task, once to merge"
                await e.turn("t2/1", "echo broken > package.json")
                verdict = await e.workspaces.check("c", [Check("true")], "t2/1")
                assert not verdict.passed
                assert "package.json` failed" in verdict.results[0].reason
                merged = await e.merge("t2/1", "true", key="m2")
                assert merged.end is MergeResult.CHECKS_FAILED
                assert "package.json` failed" in merged.notice
                failed = await e.turn("t2/1", "echo never")
                assert failed.end is TurnEnd.FAILED
                await e.merger.finish()

        do(main())
        noted = json.loads((run.path / "workspaces/t2.1.json").read_text())
        assert noted["size"] > 1000
        assert explain_no_room(repo, None) == ""
        assert explain_no_room(repo, 1 << 40) == ""
        assert "`ralph worktrees --prune`" in explain_no_room(repo, noted["size"])


class TestMerging:
    def test_only_a_green_tree_moves_the_branch(self, repo: Path, run: RunDir) -> None:
        async def main() -> None:
            async with engine(repo, run) as e:
                start = git(repo, "rev-parse", e.branch)
                await e.site("t1/1", {"one.txt": "1\n"})
                await e.site("t2/1", {"two.txt": "2\n"})
                await e.workspaces.open("t3/1")
                fits = "test ! -f one.txt -o ! -f two.txt"
                assert (await e.merge("t1/1", fits, key="m1")).end is MergeResult.MERGED
                one = git(repo, "rev-parse", e.branch)
                red = await e.merge("t2/1", fits, "echo seen", key="m2")
                assert (red.end, red.branch, red.commit, red.others_merged) == (
                    MergeResult.CHECKS_FAILED,
                    f"ralph/{run.id}/t2/1",
                    one,
                    True,
                )
                assert red.verdict and [result.passed for result in red.verdict.results] == [False, True]
                assert git(repo, "rev-parse", e.branch) == one != start
                nothing = await e.merge("t3/1", "false", key="m3")
                assert nothing.end is MergeResult.NOTHING
                assert nothing.commit == one
                again = await e.merge("t1/1", "false", key="m1")
                assert (again.end, again.commit) == (MergeResult.MERGED, one), "it is in, whatever is asked again"
                await e.merger.finish()

        do(main())
        branches = [ref.removeprefix("refs/heads/") for ref in left(repo)["refs"] if ref.startswith("refs/heads/")]
        assert branches == ["main", f"ralph/{run.id}/run", f"ralph/{run.id}/t2/1"]
        assert left(repo)["trees"] == ["merge", "t2.1"]

    def test_files_left_in_a_worktree_are_kept_under_a_ref(self, repo: Path, run: RunDir) -> None:
        async def main() -> None:
            e = Engine.of(repo, run)
            site = await e.site("t1/1", {"one.txt": "1\n"})
            write(site.tree.path, {"report.xml": "<x/>", "one.txt": "edited later\n"})
            assert (await e.merge("t1/1")).end is MergeResult.MERGED
            await e.merger.finish()

        do(main())
        kept = f"refs/ralph-left/{run.id}/t1/1/end"
        assert git(repo, "show", f"{kept}:report.xml") == "<x/>"
        assert git(repo, "show", f"{kept}:one.txt") == "edited later"
        assert git(repo, "show", f"ralph/{run.id}/run:one.txt") == "1"
        assert left(repo)["trees"] == ["merge"]

    def test_an_agent_that_moves_the_branch_of_the_run_changes_nothing(self, repo: Path, run: RunDir) -> None:
        async def main() -> None:
            e = Engine.of(repo, run)
            await e.site("t1/1", {"one.txt": "1\n"})
            await e.merge("t1/1", key="m1")
            site = await e.site("t2/1", {"two.txt": "2\n"})
            git(site.tree.path, "update-ref", f"refs/heads/{e.branch}", f"ralph/{run.id}/t2/1")
            third = await e.site("t3/1", {"three.txt": "3\n"})
            assert (third.tree.path / "one.txt").exists()
            merged = await e.merge("t2/1", key="m2")
            assert merged.end is MergeResult.MERGED
            assert "Ralph restored it" in merged.notice
            assert e.files() >= {"one.txt", "two.txt"}
            git(repo, "update-ref", f"refs/heads/{e.branch}", "main")
            await e.lander.land(succeeded=False)
            assert e.files() >= {"one.txt", "two.txt"}

        do(main())

    def test_without_worktrees_a_merge_only_runs_the_checks(self, tmp_path: Path) -> None:
        root = tmp_path / "plain"
        root.mkdir()
        run = begin(root)

        async def main() -> None:
            async with engine(root, run) as e:
                assert not e.workspaces.has_worktrees
                assert (await e.turn("t1/1", "echo w > w.txt")).end is TurnEnd.FINISHED
                assert (await e.merge("t1/1")).end is MergeResult.MERGED
                assert (await e.merge("t1/1", "test -f w.txt")).end is MergeResult.MERGED
                assert (await e.merge("t1/1", "test -f no.txt")).end is MergeResult.CHECKS_FAILED
                await e.merger.finish()

        do(main())
        assert (root / "w.txt").exists()


class TestLanding:
    def test_work_lands_only_if_the_run_succeeded(self, repo: Path) -> None:
        run = begin(repo, land="ff")

        async def main() -> None:
            e = Engine.of(repo, run)
            assert await e.lander.land(succeeded=True) is None, "nothing was done"
            await e.site("t1/1", {"one.txt": "1\n"})
            await e.merge("t1/1")
            stays = await e.lander.land(succeeded=False)
            assert stays and not stays.moved
            assert f"git merge {e.branch}" in stays.notice
            landed = Landed(git(repo, "rev-parse", e.branch), "main", moved=True)
            assert await e.lander.land(succeeded=True) == landed
            assert await e.lander.land(succeeded=True) == landed, "an engine that was killed did not tell of it"
            assert await Engine.of(repo, run, land="branch").lander.land(succeeded=True) is None

        do(main())
        assert (repo / "one.txt").exists()

    def test_the_worktree_of_a_whole_run_is_saved_first(self, repo: Path) -> None:
        run = begin(repo, WorkLocation.WORKTREE, TreeSettings(copy=(".env",)), land="ff")
        tree = repo / run.record().workspace
        stray = git(tree, "commit-tree", "-m", "a history of its own", "HEAD^{tree}")
        git(tree, "update-ref", "HEAD", stray)
        write(tree, {"work.txt": "w\n", ".env": "x"})
        (tree / ".git").unlink()

        async def main() -> None:
            landed = await Engine.of(repo, run).lander.land(succeeded=True)
            assert landed and landed.moved, landed

        do(main())
        assert git(repo, "for-each-ref", "--format=%(objectname)", "refs/ralph-left") == stray
        assert git(repo, "ls-tree", "-r", "--name-only", "main").split() == [
            ".gitignore",
            "a.txt",
            "src/b.py",
            "work.txt",
        ]


HARMLESS = frozenset(
    (
        *("rev-parse", "ls-files", "rev-list", "merge-base", "for-each-ref", "config", "var", "cat-file", "status"),
        *("diff", "diff-tree", "grep", "add", "rm", "write-tree", "commit-tree"),
    )
)
"""Commands that read, and those that only make objects: ours have indexes of their own."""


class Story:
    """A task that conflicts with what is merged, and its resolver; told on by one engine after the other."""

    def __init__(self, root: Path, run: RunDir, queue: Queue, worked: Sequence[str] = ()) -> None:
        self.root, self.run, self.queue, self.worked = root, run, queue, list(worked)

    async def go_on(self) -> None:
        """As a kernel does: what was not accepted is asked for again."""
        e = Engine.of(self.root, self.run)
        while self.queue.waiting:
            work = self.queue.list_work(lambda task: (), "")[0]
            if isinstance(work, Merge):
                self.queue, _ = self.queue.accept(await e.merger.merge(work))
            elif isinstance(work, TurnRequest):
                site = await e.workspaces.open(work.worktree, work)
                if work.key not in self.worked:
                    # An agent works once: its turn outlives the engine.
                    (site.tree.path / "a.txt").write_text("both\n")
                    self.worked.append(work.key)
                e.workspaces._save_turn(site, "turn 2")
                ended = TurnEnded(work.key, 2, work.role, 1, TurnResult(TurnEnd.FINISHED, 0.0, 1.0))
                self.queue, _ = self.queue.accept(ended)
        await e.merger.finish()

    def end(self) -> tuple[object, ...]:
        """What the story comes to."""
        branch = f"ralph/{self.run.id}/run"
        merges = git(
            self.root, "log", "--first-parent", "--format=%(trailers:key=Ralph-Task,valueonly)", f"main..{branch}"
        )
        tree = git(self.root, "rev-parse", f"{branch}^{{tree}}")
        notes = sorted(path.name for path in (self.run.path / "workspaces").iterdir())
        found = left(self.root)
        refs = [ref for ref in found["refs"] if "ralph-left" not in ref]
        return tree, merges.split(), refs, found["trees"], notes, git(self.root, "status", "--porcelain")


@pytest.mark.slow
def test_the_end_is_the_same_wherever_an_engine_is_killed(
    repo: Path, run: RunDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before every single step that changes something: each change comes in once, and nothing is left behind."""

    async def before() -> None:
        e = Engine.of(repo, run)
        await e.site("other/1", {"a.txt": "other\n", "o.txt": "o\n"})
        site = await e.site("mine/1", {"a.txt": "mine\n", "m.txt": "m\n"})
        write(site.tree.path, {"by-a-check.xml": "<x/>"})
        await e.merge("other/1")
        await e.merger.finish()

    do(before())
    story = Story(repo, run, Queue().add("mine", "mine/1", "task mine"))
    moments: list[tuple[Path, Queue, list[str]]] = []
    command, note = Git.run, WorktreeRecords.write

    def moment() -> None:
        place = tmp_path / f"moment-{len(moments)}"
        shutil.copytree(repo, place, symlinks=True)
        moments.append((place, story.queue, [*story.worked]))

    def running(self: Git, *args: str, **more: Any) -> Any:
        if args[0] not in HARMLESS and args[:2] != ("worktree", "list"):
            moment()
        return command(self, *args, **more)

    def noting(*args: Any) -> None:
        moment()
        note(*args)

    with monkeypatch.context() as patch:
        patch.setattr(Git, "run", running)
        patch.setattr(WorktreeRecords, "write", noting)
        do(story.go_on())
    expected = story.end()
    assert expected[1] == ["mine/1", "other/1"]
    assert expected[3:] == (["merge"], [], "")
    assert len(moments) > 25
    for number, (place, queue, worked) in enumerate(moments):
        shutil.rmtree(repo)
        place.rename(repo)
        again = Story(repo, run, queue, worked)
        do(again.go_on())
        assert again.end() == expected, f"killed before step {number}"


class TestBesideTheRunsOwnWorktree:
    """A run that works in a worktree of its own, and for a while in others beside it."""

    def test_task_worktrees_start_from_the_runs_worktree_and_merge_into_it(self, repo: Path) -> None:
        run = begin(repo, WorkLocation.WORKTREE)
        own = repo / ".ralph/worktrees" / run.id
        write(own, {"before.txt": "by the run\n"})

        async def main() -> None:
            async with engine(repo, run) as e:
                await e.turn("t1/1", "cat before.txt > t1.txt")
                await e.turn("t2/1", "cat before.txt > t2.txt")
                assert (await e.merger.merge(Merge("m1", "t1/1", "one"))).end is MergeResult.MERGED
                assert (await e.merger.merge(Merge("m2", "t2/1", "two"))).end is MergeResult.MERGED
                assert (own / "t1.txt").read_text() == (own / "t2.txt").read_text() == "by the run\n"
                write(own, {"after.txt": "by the run\n"})
                await e.turn("t3/1", "cat t1.txt after.txt > t3.txt")
                await e.merger.merge(Merge("m3", "t3/1", "three"))
                assert (own / "t3.txt").read_text() == "by the run\n" * 2
                await e.merger.finish()

        do(main())
        assert git(own, "status", "--porcelain") == ""
        assert not (repo / "t1.txt").exists(), "the user's own tree is left alone"

    @pytest.mark.parametrize("lands", [True, False])
    def test_a_kill_between_a_merge_and_that_worktree_takes_nothing_back(
        self, repo: Path, monkeypatch: pytest.MonkeyPatch, lands: bool
    ) -> None:
        run = begin(repo, WorkLocation.WORKTREE)
        own = repo / ".ralph/worktrees" / run.id

        async def killed() -> None:
            async with engine(repo, run) as e:
                await e.turn("t1/1", "echo one > t1.txt")
                with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
                    patch.setattr("ralph.git.merge.reset_worktree", _killed)
                    await e.merger.merge(Merge("m1", "t1/1", "one"))

        async def then() -> None:
            async with engine(repo, run) as e:
                if lands:
                    await e.lander.land(succeeded=False)
                else:
                    await e.turn("t2/1", "cat t1.txt > t2.txt")
                assert (await e.merger.merge(Merge("m1", "t1/1", "one"))).end is MergeResult.MERGED

        do(killed())
        assert not (own / "t1.txt").exists()
        do(then())
        assert (own / "t1.txt").read_text() == "one\n"
        assert git(repo, "show", f"ralph/{run.id}/run:t1.txt") == "one"

    @pytest.mark.parametrize(
        "step", ["ralph.workspace.worktree_setup.WorktreeRecords.write", "ralph.git.command.Git.run"]
    )
    def test_a_kill_while_it_hands_over_takes_nothing_back(
        self, repo: Path, monkeypatch: pytest.MonkeyPatch, step: str
    ) -> None:
        run = begin(repo, WorkLocation.WORKTREE)
        own = repo / ".ralph/worktrees" / run.id
        write(own, {"before.txt": "by the run\n"})

        original = merge.save_worktree

        def save(*given: Any, **more: Any) -> str:
            saved = original(*given, **more)
            patch.setattr(step, _killed)
            return saved

        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr("ralph.git.merge.save_worktree", save)
            Engine.of(repo, run).workspaces.commit_run_worktree("left")
        write(own, {"after.txt": "by the run\n"})
        do(Engine.of(repo, run).lander.land(succeeded=False))
        for name in ("before.txt", "after.txt"):
            assert git(repo, "show", f"ralph/{run.id}/run:{name}") == "by the run"


def _killed(*_: object, **__: object) -> None:
    raise KeyboardInterrupt
