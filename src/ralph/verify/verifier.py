"""Verdicts that hold: checks count only where they say the same twice, and where the guards find that nobody gamed them."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ralph.core.checks import Check, CheckResult, CheckStatus, Red, Verdict
from ralph.core.findings import Finding, Rule, Severity
from ralph.core.work_keys import BASELINE, WorkKey
from ralph.git.snapshots import Snapshots
from ralph.store.held_trees import HeldTree, HeldTrees, content_hash
from ralph.verify.counterproof import REBUTTABLE, find_changed_since_red, run_counterproof
from ralph.verify.guards.changes import FileChange
from ralph.verify.guards.scan import scan
from ralph.verify.judge_files import is_judge_file, is_recipe, is_test_path
from ralph.verify.measures import has_lasting_summary
from ralph.verify.run_findings import find_changed_inputs, find_fewer_tests, find_out_of_scope
from ralph.verify.runner import CheckRunner

MOST_TESTS = 400
"""Unchanged test files that are read, to see whether results were copied out of them."""
_TESTS_GONE = frozenset((Rule.TEST_SKIPPED, Rule.TEST_DELETED))
"""Findings that say themselves why fewer tests run."""
_RECIPE = re.compile(
    r"(^|/)(tox\.ini|noxfile\.py|pyproject\.toml|setup\.cfg|pytest\.ini|\.coveragerc|\w+\.config\.\w+)$|\.sh$"
)
"""Files beside recipes that say what checks do."""
AGAIN = 2
"""How often a flaky check is run again, and must pass each time."""


@dataclass(frozen=True)
class Rules:
    """What a person asked of the verdicts of a run."""

    confirm: int = 1
    """How often in a row the checks must pass on the same tree."""
    scope: tuple[str, ...] = ()
    inputs: Mapping[str, str] = field(default_factory=dict)
    """The hashes, before the run, of files that the checks use and no snapshot holds."""
    allowed: Mapping[str, str] = field(default_factory=dict)
    """Rules of the guards that a person lifted for this run, with the reason."""


@dataclass
class Verifier:
    """Runs the checks, again where they are in doubt; where they pass, looks at all that was changed since before the run."""

    runner: CheckRunner
    snapshots: Snapshots | None
    rules: Rules
    baseline: Verdict | None = None
    last: Verdict | None = None
    """The last verdict before this one; one on the same tree shows which checks are flaky."""
    flaky: set[str] = field(default_factory=set)
    held_trees: HeldTrees | None = None
    """Trees for which a run was held up; starting again does not make them right."""
    _held: tuple[str, HeldTree | None] = field(default=("", None), init=False)
    """What is known of the tree that the run began with, which is named first."""

    async def run(self, key: str, checks: Sequence[Check], red: Red | None = None) -> Verdict:
        """The verdict of the checks, with what the guards found; tests that were seen red must pass as they were."""
        tree = (self.snapshots.latest() or "") if self.snapshots else ""
        first = await self.runner.run(key, checks)
        is_same_tree = self.last is not None and bool(tree) and self.last.tree == tree
        known = {result.title: result for result in self.last.results} if self.last and is_same_tree else {}
        results = [
            await self._confirm(key, check, result, known.get(check.title))
            for check, result in zip(checks, first.results, strict=True)
        ]
        verdict = Verdict(tuple(map(self._with_its_summary, results)), tree=tree)
        held = self._held_before()
        # Before the first turn there is no work yet to be guarded.
        is_baseline = WorkKey.parse(key) == BASELINE
        if is_baseline:
            self.baseline = verdict
        if verdict.passed and (held or not is_baseline):
            verdict = replace(verdict, findings=tuple(await self._findings(checks, verdict)))
            if held and is_baseline and verdict.gamed:
                verdict = replace(verdict, findings=(*verdict.findings, _name_run(held, verdict.gamed)))
            if red and self.snapshots and verdict.passed and not self._may_change_tests:
                since = await find_changed_since_red(red, checks, runner=self.runner, snapshots=self.snapshots)
                verdict = replace(verdict, findings=(*verdict.findings, *since))
            self._remember(verdict)
        self.last = verdict
        return verdict

    async def _confirm(self, key: str, check: Check, result: CheckResult, before: CheckResult | None) -> CheckResult:
        """The result after as many further runs as it takes to trust it."""
        flips = before is not None and {before.status, result.status} == {CheckStatus.PASSED, CheckStatus.FAILED}
        if flips or result.flaky:
            self.flaky.add(check.title)
        doubted = check.title in self.flaky
        if not flips and not result.passed:
            return replace(result, flaky=doubted)
        wanted = max(self.rules.confirm - result.passed, AGAIN if doubted else 0)
        for number in range(1, wanted + 1):
            again = (await self.runner.run(f"{key}-again-{number}", [check])).results[0]
            if not again.passed:
                self.flaky.add(check.title)
                reason = f"{again.reason}; of {number + 1} runs on the same tree only some passed"
                return replace(again, reason=reason, flaky=True, runs=number + 1)
            result = again
        return replace(result, flaky=doubted, runs=wanted + 1)

    def _with_its_summary(self, result: CheckResult) -> CheckResult:
        """The result; it cannot be judged if the test summary that the check printed before the run is gone."""
        known = {before.title: before for before in self._before.results} if self._before else {}
        before = known.get(result.title)
        is_gone = before is not None and before.tests is not None and result.tests is None
        if before is None or not is_gone or not result.passed or not has_lasting_summary(before.output):
            return result
        reason = "it printed a test summary before the run and prints none now, so nothing shows that the tests ran"
        return replace(result, status=CheckStatus.COULD_NOT_RUN, reason=reason)

    async def _findings(self, checks: Sequence[Check], verdict: Verdict) -> list[Finding]:
        """What the guards found, without the rules that a person lifted and what a counter-proof rebuts."""
        held = self._held_before()
        changes = await asyncio.to_thread(self._changes)
        found = await asyncio.to_thread(self._collect, checks, verdict, changes)
        if held and self._base() != held.base:
            found += [one for one in held.findings if self._is_as_held(held, one.path)]
        found = [finding for finding in found if finding.rule not in self.rules.allowed]
        if self.snapshots is None:
            return found
        return await run_counterproof(
            found,
            changes,
            checks,
            runner=self.runner,
            snapshots=self.snapshots,
            base=self._base(),
            baseline=self._before,
            may_change_tests=self._may_change_tests,
        )

    @property
    def _before(self) -> Verdict | None:
        """What the checks said before the work began; if it began in a run that was held up, before that run."""
        held = self._held_before()
        return held.baseline if held and held.baseline else self.baseline

    def _base(self) -> str:
        """The snapshot that the work is compared with."""
        base = (self.snapshots.base() or "") if self.snapshots else ""
        held = self._held_before()
        return held.base if self.snapshots and held and self.snapshots.has(held.base) else base

    def _held_before(self) -> HeldTree | None:
        """The record of an earlier run that was held up, if what it was held up for is in the tree that this run began with."""
        base = self.snapshots.base() if self.snapshots else None
        if self.held_trees is None or base is None:
            return None
        if self._held[0] != base:
            found = (held for held in self.held_trees.all() if self._same_files(held, base))
            self._held = (base, next(found, None))
        return self._held[1]

    def _same_files(self, held: HeldTree, tree: str) -> set[str]:
        """The files that are in a tree what they were when a run was held up for them."""
        known = self.snapshots.contents(tree, held.files) if self.snapshots else {}
        return {path for path, was in held.files.items() if content_hash(known.get(path)) == was}

    def _is_as_held(self, held: HeldTree, path: str) -> bool:
        latest = self.snapshots.latest() if self.snapshots else None
        same = self._same_files(held, latest) if latest else set()
        return path in same or (path not in held.files and bool(same))

    def _remember(self, verdict: Verdict) -> None:
        """Keep a tree that is held up, and forget those that this verdict clears."""
        latest = self.snapshots.latest() if self.snapshots else None
        if self.held_trees is None or self.snapshots is None or latest is None:
            return
        if not verdict.gamed:
            for held in self.held_trees.all():
                if self._same_files(held, latest):
                    self.held_trees.forget(held)
            return
        changes = {change.path: change for change in self._changes()}
        paths = {finding.path for finding in verdict.gamed} & changes.keys()
        paths = paths or {path for path in changes if is_judge_file(path)} or set(changes)
        now = self.snapshots.contents(latest, paths)
        files = {path: content_hash(now.get(path)) for path in sorted(paths)}
        if files:
            held = HeldTree(self.runner.run_id, self._base(), verdict.gamed, files, self._before)
            self.held_trees.remember(held)

    @property
    def _may_change_tests(self) -> bool:
        return any(rule in self.rules.allowed for rule in REBUTTABLE)

    def _collect(self, checks: Sequence[Check], verdict: Verdict, changes: Sequence[FileChange]) -> list[Finding]:
        found = find_changed_inputs(self.rules.inputs, {change.path for change in changes})
        if self.snapshots is None:
            return [*found, *find_fewer_tests(self._before, verdict, changes)]
        commands = [check.command for check in checks if check.command]
        texts = [change for change in changes if (change.old, change.new) != (None, None)]
        found += _raise_for_coverage(scan(texts, checks=commands, unchanged=self._unchanged(changes)), checks)
        if not any(finding.rule in _TESTS_GONE for finding in found):
            found += find_fewer_tests(self._before, verdict, changes)
        ours = [change.path for change in changes if not self.snapshots.is_by_product(change.path)]
        return [*found, *find_out_of_scope(self.rules.scope, ours), *self.snapshots.history()]

    def _changes(self) -> list[FileChange]:
        """All that differs from before the run; what is binary has no text."""
        base, latest = (self._base(), self.snapshots.latest()) if self.snapshots else ("", None)
        if self.snapshots is None or not base or latest is None or base == latest:
            return []
        changed = self.snapshots.changed(base, latest)
        return [FileChange(path, _text(old), _text(new)) for path, (old, new) in changed.items()]

    def _unchanged(self, changes: Sequence[FileChange]) -> dict[str, str]:
        """The files beside the changes that the guards need: tests, and what defines the checks."""
        latest = self.snapshots.latest() if self.snapshots else None
        if self.snapshots is None or latest is None:
            return {}
        changed = {change.path for change in changes}
        paths = [path for path in self.snapshots.paths(latest) if path not in changed]
        recipes = [path for path in paths if is_recipe(path) or _RECIPE.search(path)][:MOST_TESTS]
        tests = [path for path in paths if is_test_path(path)][:MOST_TESTS]
        found = self.snapshots.contents(latest, dict.fromkeys([*recipes, *tests]))
        return {path: text for path, data in found.items() if (text := _text(data)) is not None}


def _name_run(held: HeldTree, findings: Sequence[Finding]) -> Finding:
    """Which run was held up for these findings, and what the user can do about it."""
    first = findings[0]
    lifted = " ".join(f"--allow '{rule}=why it is right'" for rule in sorted({finding.rule for finding in findings}))
    sentence = (
        f"Run {held.run} was held up for this, and the tree still has it. See it with `ralph diff {held.run}`; then undo it, "
        f"or start again with {lifted}."
    )
    return Finding(first.rule, first.path, first.line, sentence, Severity.WARNING)


def _raise_for_coverage(findings: Sequence[Finding], checks: Sequence[Check]) -> list[Finding]:
    """Where coverage is what counts, tests that assert nothing are no longer only odd."""
    if not any(check.measure and check.measure.metric == "coverage" for check in checks):
        return list(findings)
    empty = [replace(one, severity=Severity.ERROR) for one in findings if one.rule is Rule.TEST_EMPTIED]
    return [*empty, *(one for one in findings if one.rule is not Rule.TEST_EMPTIED)]


def _text(data: bytes | None) -> str | None:
    """A file as text; what is binary is not judged."""
    return None if data is None or b"\0" in data[:8192] else data.decode(errors="replace")
