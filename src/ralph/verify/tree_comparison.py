"""Compares the tree with its state before the run, or before an earlier run that left changes that no verdict accepts.

A run leaves changes that no verdict covers if it is killed or aborted before its checks ran, or ends with failing checks,
where a finding of the guards is only a warning. If the next run took such a tree as its baseline, a skipped test would
look as if it had always been skipped.
"""

import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ralph.core.checks import Finding, Rule, Severity, Verdict
from ralph.git.snapshots import Snapshots
from ralph.store.rejected_trees import RejectedTree, RejectedTrees, UnjudgedRun, hash_content
from ralph.store.runs import RunDir
from ralph.verify.changed_files import FileChange, is_judge_file, is_recipe, is_test_path
from ralph.verify.runner import CheckRunner

MAX_TESTS = 400
"""Unchanged test files that are read, to see whether results were copied out of them."""
_SAYS_WHAT_CHECKS_DO = re.compile(
    r"(^|/)(tox\.ini|noxfile\.py|pyproject\.toml|setup\.cfg|pytest\.ini|\.coveragerc|\w+\.config\.\w+)$|\.sh$"
)
"""Files beside recipes that say what checks do."""
_MAX_NAMED = 5
"""How many files a command that is advised names."""


@dataclass
class TreeComparison:
    """The tree now and the tree that it is compared with."""

    snapshots: Snapshots
    runner: CheckRunner
    rejected_trees: RejectedTrees | None = None
    """Trees that the guards rejected, and runs that nothing judged; starting again does not make them right."""
    _earlier: tuple[str, RejectedTree | None] = field(default=("", None), init=False)
    """The tree that this run began with, and what is known of it."""
    _is_noted: bool = field(default=False, init=False)
    """Whether it is on record that no verdict covers the changes of this run yet."""

    @property
    def earlier(self) -> RejectedTree | None:
        """What the guards rejected in an earlier run, or it left unjudged, if this run began with those files."""
        base = self.snapshots.base()
        if self.rejected_trees is None or base is None:
            return None
        if self._earlier[0] != base:
            self._earlier = (base, self._find_earlier(self.rejected_trees, base))
        return self._earlier[1]

    @property
    def base(self) -> str:
        """The snapshot that the work is compared with; if it began in a run that was rejected, the one before that run."""
        earlier = self.earlier
        if earlier and self.snapshots.has(earlier.base):
            return earlier.base
        return self.snapshots.base() or ""

    @property
    def base_with_user_changes(self) -> str:
        """The tree to compare with: `base`, with what the user changed while the run was stopped."""
        return self.snapshots.with_user_changes(self.base) if self.base else ""

    def find_changes(self) -> list[FileChange]:
        """All files that the work changed. Binary files have no text."""
        return self._compare(self.base_with_user_changes)

    def find_user_changes(self) -> list[FileChange]:
        """The files that the user changed while the run was stopped."""
        before, after = self.base, self.base_with_user_changes
        if before == after:
            return []
        changed = self.snapshots.read_changed(before, after)
        return [FileChange(path, _decode(old), _decode(new)) for path, (old, new) in changed.items()]

    def _compare(self, base: str) -> list[FileChange]:
        """All files that differ from a tree."""
        latest = self.snapshots.latest()
        if not base or latest is None or base == latest:
            return []
        changed = self.snapshots.read_changed(base, latest)
        return [FileChange(path, _decode(old), _decode(new)) for path, (old, new) in changed.items()]

    def read_unchanged(self, changes: Sequence[FileChange]) -> dict[str, str]:
        """The files beside the changes that the guards need: tests, and what defines the checks."""
        latest = self.snapshots.latest()
        if latest is None:
            return {}
        changed = {change.path for change in changes}
        paths = [path for path in self.snapshots.paths(latest) if path not in changed]
        recipes = [path for path in paths if is_recipe(path) or _SAYS_WHAT_CHECKS_DO.search(path)][:MAX_TESTS]
        tests = [path for path in paths if is_test_path(path)][:MAX_TESTS]
        contents = self.snapshots.contents(latest, dict.fromkeys([*recipes, *tests]))
        texts = {path: _decode(data) for path, data in contents.items()}
        return {path: text for path, text in texts.items() if text is not None}

    def find_own_changes(self) -> list[str]:
        """The files that this run changed itself, without those that checks write."""
        base, latest = self.snapshots.base_with_user_changes(), self.snapshots.latest()
        if not base or not latest:
            return []
        return [path for path in self.snapshots.read_changed(base, latest) if not self.snapshots.is_by_product(path)]

    def find_earlier_findings(self) -> list[Finding]:
        """What is known of an earlier run and the tree still has, if that run's own base is not known here any more."""
        earlier = self.earlier
        if earlier is None or self.base == earlier.base:
            return []
        if earlier.is_unjudged:
            return list(earlier.findings)
        latest = self.snapshots.latest()
        same = self._find_same_files(earlier, latest) if latest else set()
        return [
            finding
            for finding in earlier.findings
            if finding.path in same or (same and finding.path not in earlier.files)
        ]

    def name_earlier_run(self, findings: Sequence[Finding]) -> Finding | None:
        """Which run left what was found, and what the user can do about it; None if there is nothing to say."""
        earlier = self.earlier
        if earlier is None or not (findings or earlier.is_unjudged):
            return None
        see = f"`ralph diff {earlier.run}`"
        if not self._has_run(earlier.run):
            named = sorted({one.path for one in findings} & earlier.files.keys()) or sorted(earlier.files)
            command = ["git", "log", "-p"]
            if self.snapshots.has(earlier.base):
                command = ["git", "diff", earlier.base[:12]]
            see = f"`{shlex.join([*command, '--', *named[:_MAX_NAMED]])}`"
        what = f"Run {earlier.run} had this finding, and it is still in the tree."
        if earlier.is_unjudged:
            what = (
                f"Run {earlier.run} ended before its changes were verified: "
                "this run is compared with the state before it."
            )
        if not findings:
            return Finding(
                rule=Rule.VERIFIER_EDITED,
                path=earlier.run,
                line=0,
                sentence=f"{what} See them with {see}.",
                severity=Severity.WARNING,
            )
        rules = sorted({one.rule for one in findings})
        options = " ".join(f"--allow '{rule}=why it is right'" for rule in rules)
        sentence = f"{what} See it with {see}; then undo it, or start again with {options}."
        first = findings[0]
        return Finding(rule=first.rule, path=first.path, line=first.line, sentence=sentence, severity=Severity.WARNING)

    def note_turn(self, baseline: Verdict | None) -> None:
        """Put on record, before a turn starts, that no verdict covers what it changes."""
        if self._is_noted or self.rejected_trees is None or not self.base:
            return
        unjudged = UnjudgedRun(
            run=self.runner.run_id, base=self.base, workspace=str(self.runner.workspace), baseline=baseline
        )
        self.rejected_trees.note_unjudged(unjudged, self.snapshots.identify_repository)
        self._is_noted = True

    def record(self, verdict: Verdict, baseline: Verdict | None) -> None:
        """Remember a rejected tree, and forget those that a verdict clears."""
        latest = self.snapshots.latest()
        if self.rejected_trees is None or latest is None:
            return
        if not verdict.blocking_findings:
            self._forget(self.rejected_trees, latest)
            return
        changed = {change.path for change in self.find_changes()}
        paths = {finding.path for finding in verdict.blocking_findings} & changed
        if not paths:
            paths = {path for path in changed if is_judge_file(path)} or changed
        now = self.snapshots.contents(latest, paths)
        files = {path: hash_content(now.get(path)) for path in sorted(paths)}
        if not files:
            return
        run = self.runner.run_id
        rejected = RejectedTree(
            run=run, base=self.base, findings=verdict.blocking_findings, files=files, baseline=baseline
        )
        self.rejected_trees.remember(rejected, self.snapshots.identify_repository)
        self.rejected_trees.forget_unjudged(run)
        self._is_noted = False

    def _forget(self, rejected_trees: RejectedTrees, latest: str) -> None:
        """Drop all records of what is in a tree that was found to be right."""
        covered = {self.runner.run_id, self.earlier.run if self.earlier else ""}
        copies = rejected_trees.find_copies(self.snapshots.identify_repository)
        for trees, is_same in ((rejected_trees, self._find_same_files), *((copy, self._is_copy_of) for copy in copies)):
            for rejected in trees.all():
                if is_same(rejected, latest):
                    trees.forget(rejected)
            for unjudged in trees.list_unjudged():
                if unjudged.run in covered or unjudged.base == self.base:
                    trees.forget_unjudged(unjudged.run)
        self._is_noted = False

    def _find_earlier(self, rejected_trees: RejectedTrees, base: str) -> RejectedTree | None:
        for rejected in rejected_trees.all():
            if self._find_same_files(rejected, base):
                return rejected
        if found := self._find_unjudged(rejected_trees.list_unjudged(), base):
            return found
        for copy in rejected_trees.find_copies(self.snapshots.identify_repository):
            for rejected in copy.all():
                if self._is_copy_of(rejected, base):
                    return rejected
            moved = (one.move(copy.root, rejected_trees.root) for one in copy.list_unjudged() if self._has_run(one.run))
            if found := self._find_unjudged(moved, base):
                return found
        return None

    def _find_unjudged(self, unjudged_runs: Iterable[UnjudgedRun], base: str) -> RejectedTree | None:
        """What an earlier run left in the tree that this run began with, and no verdict covers."""
        workspace = self.runner.workspace
        for unjudged in unjudged_runs:
            if unjudged.run == self.runner.run_id:
                continue
            run = RunDir(self.runner.run_dir.parent / unjudged.run)
            if rejected := find_left_changes(unjudged, run, snapshots=self.snapshots, workspace=workspace, now=base):
                return rejected
        return None

    def _is_copy_of(self, rejected: RejectedTree, tree: str) -> bool:
        """Whether a tree is a copy of one that was rejected at another path.

        A clone may be older or newer than that tree: all files have to be the same, and a file that is absent in both says
        nothing. If the project was copied or moved with its runs, one file is enough, as at the same path.
        """
        same = self._find_same_files(rejected, tree)
        if self._has_run(rejected.run) and self.snapshots.has(rejected.base):
            return bool(same)
        return same == rejected.files.keys() and any(rejected.files.values())

    def _has_run(self, run: str) -> bool:
        """Whether the directory of a run is in this project."""
        return (self.runner.run_dir.parent / run).is_dir()

    def _find_same_files(self, rejected: RejectedTree, tree: str) -> set[str]:
        """The files that are in a tree what they were when the guards rejected them."""
        contents = self.snapshots.contents(tree, rejected.files)
        return {path for path, known in rejected.files.items() if hash_content(contents.get(path)) == known}


def _decode(data: bytes | None) -> str | None:
    """A file as text; None if it is binary."""
    return None if data is None or b"\0" in data[:8192] else data.decode(errors="replace")


def find_left_changes(
    unjudged: UnjudgedRun, run: RunDir, *, snapshots: Snapshots, workspace: Path, now: str
) -> RejectedTree | None:
    """What an earlier run left and is still in a tree, to be compared with the state before that run; None if nothing is.

    `now` is the tree. If the run recorded the tree after its last turn, only what is still as it was then counts, so that
    changes that the user made since do not count as the agent's. Otherwise all that differs counts.
    """
    is_same_workspace = unjudged.workspace == str(workspace)
    if not snapshots.has(unjudged.base):
        is_unknown = is_same_workspace and run.path.is_dir()
        return _hold_tree(unjudged, {}, (_say_lost_base(unjudged),)) if is_unknown else None
    last = "" if run.was_killed_in_a_turn else snapshots.find_latest_of(unjudged.run)
    if not last and not is_same_workspace:
        return None
    changed = snapshots.read_changed(unjudged.base, last or now)
    files = {path: hash_content(new) for path, (_, new) in changed.items()}
    present = snapshots.contents(now, files)
    if any(hash_content(present.get(path)) == left for path, left in files.items()):
        return _hold_tree(unjudged, files, ())
    return None


def _hold_tree(unjudged: UnjudgedRun, files: dict[str, str], findings: tuple[Finding, ...]) -> RejectedTree:
    return RejectedTree(
        run=unjudged.run,
        base=unjudged.base,
        findings=findings,
        files=files,
        baseline=unjudged.baseline,
        is_unjudged=True,
    )


def _say_lost_base(unjudged: UnjudgedRun) -> Finding:
    sentence = (
        f"Run {unjudged.run} changed this tree and nothing verified it. Its snapshots are gone, so Ralph cannot tell what it "
        "changed: look at the files yourself with `git status` and `git diff`."
    )
    return Finding(Rule.VERIFIER_EDITED, unjudged.run, 0, sentence)
