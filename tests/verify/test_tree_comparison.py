"""What a run is compared with: its own start, or the start of an earlier run whose changes no verdict covers."""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ralph.core.checks import CheckResult, CheckStatus, Finding, Rule, Severity, Verdict
from ralph.git.snapshots import Snapshots
from ralph.store.rejected_trees import RejectedTree, RejectedTrees, UnjudgedRun, hash_content
from ralph.verify.runner import CheckRunner
from ralph.verify.tree_comparison import TreeComparison

FIRST, SECOND = "261115-093000-aaaa", "261115-101500-bbbb"
BASELINE = Verdict((CheckResult("`pytest` passes", CheckStatus.FAILED, 1.0),))
SKIPPED = Finding(Rule.TEST_SKIPPED, "tests/test_a.py", 3, "test_a no longer runs in full.")
GAMED = Verdict((), findings=(SKIPPED,))
CLEAN = Verdict(())


class Project:
    """A repository with runs, one after the other."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.held = RejectedTrees(root.parent / "held" / "own", root)
        self.git("init", "-q")
        (root / ".git" / "info" / "exclude").write_text(".ralph\n")
        self.write({"app.py": "x = 1\n", "tests/test_a.py": "def test_a():\n    assert x\n", "README.md": "r\n"})
        self.git("add", ".")
        self.git("-c", "user.name=u", "-c", "user.email=u@localhost", "commit", "-qm", "start")

    def git(self, *arguments: str) -> None:
        subprocess.run(["git", *arguments], cwd=self.root, check=True)

    def write(self, files: Mapping[str, str | None]) -> None:
        for name, content in files.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if content is None:
                path.unlink()
            else:
                path.write_text(content)

    def run_dir(self, run: str) -> Path:
        return self.root / ".ralph" / "runs" / run

    def start(self, run: str, held: RejectedTrees | None = None) -> TreeComparison:
        """A run that has taken its first snapshot."""
        run_dir = self.run_dir(run)
        run_dir.mkdir(parents=True, exist_ok=True)
        snapshots = Snapshots.open(self.root, self.root, run, run_dir)
        snapshots.take("start")
        keeper: Any = None
        return TreeComparison(snapshots, CheckRunner(run_dir, run, self.root, keeper, {}), held or self.held)

    def change(self, work: TreeComparison, files: Mapping[str, str | None]) -> None:
        self.write(files)
        work.snapshots.take("turn")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    root = tmp_path / "project"
    root.mkdir()
    return Project(root)


CHANGE = {"tests/test_a.py": "def test_a():\n    skip()\n"}


def test_changes_are_those_since_the_start_and_binary_files_have_no_text(project: Project) -> None:
    project.write({"gone.py": "g\n"})
    work = project.start(FIRST)
    assert work.find_changes() == []
    (project.root / "logo.bin").write_bytes(b"a\0b")
    project.change(work, {"app.py": "x = 2\n", "gone.py": None})
    found = {change.path: (change.old, change.new) for change in work.find_changes()}
    assert found == {"app.py": ("x = 1\n", "x = 2\n"), "gone.py": ("g\n", None), "logo.bin": (None, None)}
    assert sorted(work.find_own_changes()) == ["app.py", "gone.py", "logo.bin"]


def test_text_far_into_a_file_does_not_make_it_binary(project: Project) -> None:
    work = project.start(FIRST)
    (project.root / "late.txt").write_bytes(b"a" * 8192 + b"\0")
    (project.root / "early.txt").write_bytes(b"a" * 8191 + b"\0")
    work.snapshots.take("turn")
    assert {change.path: change.new is None for change in work.find_changes()} == {"late.txt": False, "early.txt": True}


def test_unchanged_tests_and_recipes_are_read_for_the_guards(project: Project) -> None:
    project.write({"Makefile": "test:\n", "check.sh": "true\n", "tests/test_b.py": "b\n", "lib.py": "l\n"})
    (project.root / "tests" / "data.bin").write_bytes(b"\0")
    work = project.start(FIRST)
    project.change(work, {"tests/test_b.py": "c\n"})
    unchanged = work.read_unchanged(work.find_changes())
    assert sorted(unchanged) == ["Makefile", "check.sh", "tests/test_a.py"]
    assert unchanged["Makefile"] == "test:\n"


class TestRejected:
    """A run was rejected for gaming, and another one starts on the same tree."""

    def hold(self, project: Project) -> RejectedTree:
        work = project.start(FIRST)
        project.change(work, {**CHANGE, "app.py": "x = 2\n"})
        work.note_turn(BASELINE)
        work.record(GAMED, BASELINE)
        (held,) = project.held.all()
        return held

    def test_the_record_has_the_files_of_the_findings(self, project: Project) -> None:
        held = self.hold(project)
        assert (held.run, held.findings, held.baseline) == (FIRST, (SKIPPED,), BASELINE)
        assert list(held.files) == ["tests/test_a.py"]
        assert not held.is_unjudged
        assert list(project.held.list_unjudged()) == []

    def test_the_next_run_is_compared_with_the_state_before_the_first(self, project: Project) -> None:
        held = self.hold(project)
        work = project.start(SECOND)
        assert work.earlier == held
        assert work.base == held.base
        assert sorted(change.path for change in work.find_changes()) == ["app.py", "tests/test_a.py"]
        assert work.find_own_changes() == []
        assert work.find_earlier_findings() == []

    def test_if_that_state_is_lost_the_findings_of_the_first_run_count(self, project: Project) -> None:
        held = self.hold(project)
        project.held.forget(held)
        project.held.remember(
            RejectedTree(run=FIRST, base="0" * 40, findings=held.findings, files=held.files), lambda: "r"
        )
        work = project.start(SECOND)
        assert work.find_earlier_findings() == [SKIPPED]
        project.change(work, {"tests/test_a.py": "def test_a():\n    assert x\n"})
        assert work.find_earlier_findings() == []

    def test_a_finding_about_no_file_counts_while_any_file_is_the_same(self, project: Project) -> None:
        held = self.hold(project)
        project.held.forget(held)
        about_run = Finding(Rule.FEWER_TESTS, "`pytest` passes", 0, "2 tests ran, and 3 before the run.")
        files = {**held.files, "app.py": hash_content(b"x = 2\n")}
        project.held.remember(
            RejectedTree(run=FIRST, base="0" * 40, findings=(SKIPPED, about_run), files=files), lambda: "r"
        )
        work = project.start(SECOND)
        assert work.find_earlier_findings() == [SKIPPED, about_run]
        project.change(work, {"tests/test_a.py": "fixed\n"})
        assert work.find_earlier_findings() == [about_run]
        project.change(work, {"app.py": "fixed\n"})
        assert work.find_earlier_findings() == []

    def test_other_files_are_another_tree(self, project: Project) -> None:
        self.hold(project)
        project.write({"tests/test_a.py": "def test_a():\n    assert x\n"})
        assert project.start(SECOND).earlier is None

    def test_without_records_or_snapshots_nothing_is_known(self, project: Project) -> None:
        self.hold(project)
        work = project.start(SECOND)
        work.rejected_trees = None
        assert work.earlier is None
        work.record(CLEAN, None)
        assert len(list(project.held.all())) == 1

    def test_a_verdict_without_findings_clears_the_tree(self, project: Project) -> None:
        self.hold(project)
        work = project.start(SECOND)
        work.record(CLEAN, BASELINE)
        assert list(project.held.all()) == []

    def test_a_run_is_compared_with_what_was_on_record_when_it_began(self, project: Project) -> None:
        held = self.hold(project)
        work = project.start(SECOND)
        assert work.base == held.base
        project.held.forget(held)
        assert work.base == held.base

    def test_a_finding_that_names_no_changed_file_is_recorded_with_the_judge_files(self, project: Project) -> None:
        work = project.start(FIRST)
        project.change(work, {**CHANGE, "app.py": "x = 2\n"})
        about_run = Verdict((), findings=(Finding(Rule.FEWER_TESTS, "`pytest` passes", 0, "Fewer tests ran."),))
        work.record(about_run, BASELINE)
        (held,) = project.held.all()
        assert list(held.files) == ["tests/test_a.py"]

    def test_without_judge_files_all_changes_are_recorded(self, project: Project) -> None:
        work = project.start(FIRST)
        project.change(work, {"app.py": "x = 2\n", "README.md": None})
        about_run = Verdict((), findings=(Finding(Rule.FEWER_TESTS, "`pytest` passes", 0, "Fewer tests ran."),))
        work.record(about_run, BASELINE)
        (held,) = project.held.all()
        assert held.files == {"README.md": "", "app.py": hash_content(b"x = 2\n")}

    def test_a_finding_without_any_change_is_not_recorded(self, project: Project) -> None:
        work = project.start(FIRST)
        work.record(GAMED, BASELINE)
        assert list(project.held.all()) == []

    def test_the_user_reads_which_run_it_was_and_what_to_type(self, project: Project) -> None:
        held = self.hold(project)
        work = project.start(SECOND)
        assert work.name_earlier_run([]) is None
        named = work.name_earlier_run([SKIPPED])
        assert named == Finding(
            Rule.TEST_SKIPPED,
            "tests/test_a.py",
            3,
            f"Run {FIRST} had this finding, and it is still in the tree. See it with `ralph diff {FIRST}`; "
            "then undo it, or start again with --allow 'test-skipped=why it is right'.",
            Severity.WARNING,
        )
        subprocess.run(["rm", "-r", project.run_dir(FIRST)], check=True)
        named = work.name_earlier_run([SKIPPED])
        assert named is not None
        assert f"`git diff {held.base[:12]} -- tests/test_a.py`" in named.sentence

    def test_a_run_on_another_tree_has_no_earlier_run_to_name(self, project: Project) -> None:
        assert project.start(FIRST).name_earlier_run([SKIPPED]) is None


class TestUnjudged:
    """A run ended before a verdict covered its changes."""

    def leave(self, project: Project, *, is_killed: bool = False) -> UnjudgedRun:
        work = project.start(FIRST)
        work.note_turn(BASELINE)
        if is_killed:
            turn = {
                "type": "turn.started",
                "turn": 1,
                "key": "iteration-1",
                "role": "worker",
                "attempt": 1,
                "agent": "a",
            }
            (project.run_dir(FIRST) / "journal.jsonl").write_text(json.dumps(turn) + "\n")
            project.write(CHANGE)
        else:
            project.change(work, CHANGE)
        (unjudged,) = project.held.list_unjudged()
        return unjudged

    def test_a_turn_is_noted_once_with_what_it_started_from(self, project: Project) -> None:
        work = project.start(FIRST)
        work.note_turn(BASELINE)
        work.note_turn(None)
        assert list(project.held.list_unjudged()) == [
            UnjudgedRun(run=FIRST, base=work.base, workspace=str(project.root), baseline=BASELINE)
        ]

    @pytest.mark.parametrize("is_killed", [True, False])
    def test_the_next_run_is_compared_with_the_state_before_the_first(self, project: Project, is_killed: bool) -> None:
        unjudged = self.leave(project, is_killed=is_killed)
        work = project.start(SECOND)
        assert work.earlier == RejectedTree(
            run=FIRST,
            base=unjudged.base,
            findings=(),
            files={"tests/test_a.py": hash_content(CHANGE["tests/test_a.py"].encode())},
            baseline=BASELINE,
            is_unjudged=True,
        )
        assert work.base == unjudged.base
        named = work.name_earlier_run([])
        assert named is not None
        assert (named.path, named.line, named.severity) == (FIRST, 0, Severity.WARNING)
        assert named.sentence == (
            f"Run {FIRST} ended before its changes were verified: this run is compared with the state before it. "
            f"See them with `ralph diff {FIRST}`."
        )

    def test_a_run_is_not_its_own_earlier_run(self, project: Project) -> None:
        self.leave(project)
        assert project.start(FIRST).earlier is None

    def test_changes_that_the_user_undid_do_not_matter(self, project: Project) -> None:
        self.leave(project)
        project.write({"tests/test_a.py": "def test_a():\n    assert x\n"})
        assert project.start(SECOND).earlier is None

    def test_changes_of_the_user_since_are_not_the_agents(self, project: Project) -> None:
        unjudged = self.leave(project)
        project.write({"tests/test_a.py": "rewritten by the user\n"})
        work = project.start(SECOND)
        assert work.earlier is None
        assert work.base != unjudged.base

    @pytest.mark.parametrize(("is_killed", "is_found"), [(True, False), (False, True)])
    def test_of_another_workspace_only_recorded_changes_count(
        self, project: Project, is_killed: bool, is_found: bool
    ) -> None:
        unjudged = self.leave(project, is_killed=is_killed)
        project.held.note_unjudged(UnjudgedRun(FIRST, unjudged.base, "/elsewhere", BASELINE), lambda: "r")
        assert (project.start(SECOND).earlier is not None) is is_found

    def test_lost_snapshots_are_reported_while_the_run_is_there(self, project: Project) -> None:
        self.leave(project)
        project.held.note_unjudged(UnjudgedRun(FIRST, "0" * 40, str(project.root), BASELINE), lambda: "r")
        work = project.start(SECOND)
        earlier = work.earlier
        assert earlier is not None
        assert (earlier.files, earlier.is_unjudged) == ({}, True)
        (finding,) = work.find_earlier_findings()
        assert (finding.rule, finding.path, finding.line) == (Rule.VERIFIER_EDITED, FIRST, 0)
        assert "Its snapshots are gone" in finding.sentence
        subprocess.run(["rm", "-r", project.run_dir(FIRST)], check=True)
        assert project.start("261115-120000-cccc").earlier is None

    def test_lost_snapshots_of_another_workspace_do_not_matter(self, project: Project) -> None:
        self.leave(project)
        project.held.note_unjudged(UnjudgedRun(FIRST, "0" * 40, "/elsewhere", BASELINE), lambda: "r")
        assert project.start(SECOND).earlier is None

    def test_a_verdict_without_findings_clears_the_earlier_run_and_this_one(self, project: Project) -> None:
        self.leave(project)
        project.held.note_unjudged(UnjudgedRun("261115-080000-zzzz", "1" * 40, "/elsewhere", None), lambda: "r")
        work = project.start(SECOND)
        work.note_turn(BASELINE)
        assert len(list(project.held.list_unjudged())) == 3
        work.record(CLEAN, BASELINE)
        assert [one.run for one in project.held.list_unjudged()] == ["261115-080000-zzzz"]
        work.note_turn(BASELINE)
        assert {one.run for one in project.held.list_unjudged()} == {SECOND, "261115-080000-zzzz"}

    def test_after_it_was_held_up_the_next_turn_is_noted_again(self, project: Project) -> None:
        work = project.start(FIRST)
        work.note_turn(BASELINE)
        project.change(work, CHANGE)
        work.record(GAMED, BASELINE)
        assert list(project.held.list_unjudged()) == []
        work.note_turn(BASELINE)
        assert [one.run for one in project.held.list_unjudged()] == [FIRST]


HELD_FILES = {"tests/test_a.py": hash_content(CHANGE["tests/test_a.py"].encode()), "README.md": hash_content(b"r\n")}


class TestCopy:
    """A run was rejected in another directory, from which this project was moved, copied or cloned."""

    def hold_elsewhere(self, project: Project, repository: str | None = None, **fields: Any) -> RejectedTrees:
        identity = repository or project.start("261115-080000-zzzz").snapshots.identify_repository()
        other = RejectedTrees(project.held.directory.parent / "other", Path("/elsewhere"))
        held = RejectedTree(**{"run": FIRST, "base": "0" * 40, "findings": (SKIPPED,), "files": HELD_FILES, **fields})
        other.remember(held, lambda: identity)
        return other

    def test_a_clone_with_all_files_of_the_rejected_tree_is_recognized(self, project: Project) -> None:
        other = self.hold_elsewhere(project)
        project.write(CHANGE)
        work = project.start(SECOND)
        assert work.earlier is not None
        assert work.earlier.run == FIRST
        assert work.find_earlier_findings() == [SKIPPED]
        work.record(CLEAN, None)
        assert list(other.all()) == []

    def test_a_clone_with_some_of_the_files_is_another_tree(self, project: Project) -> None:
        other = self.hold_elsewhere(project)
        project.write({**CHANGE, "README.md": "another\n"})
        work = project.start(SECOND)
        assert work.earlier is None
        work.record(CLEAN, None)
        assert len(list(other.all())) == 1

    def test_another_repository_is_not_asked(self, project: Project) -> None:
        self.hold_elsewhere(project, repository="another")
        project.write(CHANGE)
        assert project.start(SECOND).earlier is None

    def test_files_that_are_absent_in_both_say_nothing(self, project: Project) -> None:
        self.hold_elsewhere(project, files={"gone.py": ""})
        assert project.start(SECOND).earlier is None

    def test_if_the_runs_were_moved_too_one_file_is_enough(self, project: Project) -> None:
        base = project.start(FIRST).snapshots.base() or ""
        self.hold_elsewhere(project, base=base)
        project.write({**CHANGE, "README.md": "another\n"})
        work = project.start(SECOND)
        assert work.earlier is not None
        assert work.base == base

    @pytest.mark.parametrize("is_moved", [True, False])
    def test_unjudged_work_is_found_after_the_project_moved(self, project: Project, is_moved: bool) -> None:
        first = project.start(FIRST)
        unjudged = UnjudgedRun(FIRST, first.base, "/elsewhere", BASELINE)
        project.change(first, CHANGE)
        other = RejectedTrees(project.held.directory.parent / "other", Path("/elsewhere"))
        other.note_unjudged(unjudged, first.snapshots.identify_repository)
        if not is_moved:
            subprocess.run(["rm", "-r", project.run_dir(FIRST)], check=True)
        assert (project.start(SECOND).earlier is not None) is is_moved
