"""The verdict on a tree: run the checks, confirm them, look for gaming, and run the old tests on the new work.

`Verifier.run` is the whole path. The parts are in `runner` (one check), `summaries` and `measures` (its output),
`tree_comparison` (what changed), `guards` (rules on what changed) and `counterproof` (old tests, new work). The rules that
need no reading of code are at the end of this module: fewer tests than before, files out of scope, inputs of checks that
changed.
"""

import asyncio
import hashlib
import os
import re
import shlex
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from ralph.core.checks import (
    Check,
    CheckResult,
    CheckStatus,
    Evidence,
    FailingTests,
    Finding,
    Grade,
    Rehearsal,
    Rule,
    Severity,
    Verdict,
)
from ralph.core.ids import BASELINE, WorkKey
from ralph.core.text import count
from ralph.git.history import UserRefs
from ralph.git.snapshots import Snapshots
from ralph.store.rejected_trees import RejectedTrees
from ralph.supervisor.sandbox import OFF, Sandbox
from ralph.verify.changed_files import FileChange, is_collected, is_judge_file, is_test_path
from ralph.verify.clean_room import CleanRoom, CleanRoomSettings, RoomError
from ralph.verify.counterproof import (
    MAX_NAMED,
    REBUTTABLE,
    Counterproof,
    drop_fail_fast,
    is_about_tests,
    leave_to_judge,
    measures_coverage,
)
from ralph.verify.guards import scan
from ralph.verify.judge_parts import is_mixed, touches_judge_part
from ralph.verify.measures import mark_unstable_figures
from ralph.verify.results import find_missing_tests, find_own_name
from ralph.verify.runner import CheckRunner
from ralph.verify.summaries import has_lasting_summary
from ralph.verify.tree_comparison import TreeComparison
from ralph.workspace.isolation import Isolation

_RULES_THAT_EXPLAIN_FEWER_TESTS = frozenset((Rule.TEST_SKIPPED, Rule.TEST_DELETED))
_SHORT_CHECK_SECONDS = 20.0
"""Seconds that a check may take to be run twice before the first turn, to see which numbers in its output move by themselves."""
MAX_RECORDED = 20_000
"""Tests whose names are recorded with the baseline."""
FLAKY_RERUNS = 2
"""How often a flaky check is run again, and must pass each time."""
_DECLARES = re.compile(
    r"^\s*(?:async )?def test|\b(?:it|test|specify)(?:\.\w+)*\s*\(|^func (?:Test|Fuzz|Example)\w*\("
    r"|@(?:Parameterized)?Test\b|#\[(?:\w+::)?test",
    re.MULTILINE,
)
_GLOB_TOKEN = re.compile(r"\*\*/|\*\*|\*|\?|\[[^]]+\]|.", re.DOTALL)
_GLOB_REGEX = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
MAX_INPUT_BYTES = 32 * 1024 * 1024
_COMMAND_ENDS = re.compile(r"&&|\|\||[;\n]")
_CODE_OPTIONS = ("-c", "-m", "--eval", "-p")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_INTERPRETER = re.compile(r"(?:\S*/)?(?:python[\d.]*|(?:ba|da|z)?sh|node|deno|bun|ruby|perl|php|Rscript|lua)")
_TOOL_DIRECTORIES = frozenset((".venv", "venv", "node_modules", ".tox", ".nox", "vendor"))
_SHELL_SCRIPT = re.compile(rb"#!.*\b(?:ba|da|z)?sh\b")


@dataclass(frozen=True)
class VerdictSettings:
    """What the user asked of the verdicts of a run."""

    confirm: int = 1
    """How often in a row the checks must pass on the same tree."""
    scope: tuple[str, ...] = ()
    inputs: Mapping[str, str] = field(default_factory=dict)
    """The hashes, before the run, of files that the checks use and no snapshot holds."""
    allowed: Mapping[str, str] = field(default_factory=dict)
    """Rules of the guards that the user lifted for this run, with the reason."""
    may_change: tuple[str, ...] = ()
    """Patterns of judge files that the user lets the run change."""
    accepted: Mapping[str, str] = field(default_factory=dict)
    """Snapshots that the user accepted although nothing proves them, with who, when and why."""
    clean_room: CleanRoomSettings = field(default_factory=CleanRoomSettings)
    has_judge: bool = False
    """Whether a judge decides about changed judge files that an agent keeps after it read what is wrong with them."""

    def without_clean_room(self) -> "VerdictSettings":
        """The same for the worktree of a task. The clean room confirms what is merged, and not each task."""
        return replace(self, clean_room=replace(self.clean_room, is_on=False))


@dataclass
class Verifier:
    """Gives the verdict on the trees of one run, each compared with the baseline of that run."""

    runner: CheckRunner
    snapshots: Snapshots | None
    rules: VerdictSettings
    baseline: Verdict | None = None
    last: Verdict | None = None
    """The last verdict before this one; one on the same tree shows which checks are flaky."""
    flaky: set[str] = field(default_factory=set)
    rejected_trees: RejectedTrees | None = None
    """Trees that the guards rejected; starting again does not make them right."""
    user_refs: UserRefs | None = None
    """Where the user's branches, tags and stash stood before the run."""
    isolation: Isolation | None = None
    """What the checks of a clean room may read and write."""
    worktree: str = ""
    """The name of the worktree; empty for the run's own tree."""
    room_lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Shared by all verifiers of a run: one clean room exists at a time."""
    _comparison: TreeComparison | None = field(default=None, init=False)
    _room: CleanRoom | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if self.snapshots:
            self._comparison = TreeComparison(self.snapshots, self.runner, self.rejected_trees)

    def _open_room(self, snapshots: Snapshots) -> CleanRoom:
        """The clean room of this tree, made when it is first needed."""
        if self._room is None:
            self._room = self._make_room(snapshots)
        return self._room

    def _make_room(self, snapshots: Snapshots) -> CleanRoom:
        isolation = self.isolation or Isolation(
            sandbox=Sandbox(OFF),
            root=self.runner.workspace,
            run_dir=self.runner.run_dir,
            top=snapshots.repository.top,
        )
        known = self.baseline.rehearsal if self.baseline and self.rules.clean_room.is_on else None
        return CleanRoom(
            runner=self.runner,
            snapshots=snapshots,
            isolation=isolation,
            settings=self.rules.clean_room,
            rehearsal=known or Rehearsal(),
            worktree=self.worktree,
            lock=self.room_lock,
        )

    async def run(
        self,
        key: str,
        checks: Sequence[Check],
        seen_failing: FailingTests | None = None,
        *,
        is_final: bool = False,
    ) -> Verdict:
        """The verdict on the tree as it is now. Tests in `seen_failing` must pass as they were then.

        `is_final` is whether the work is done if the checks pass. Then a clean room has to confirm it.
        """
        is_baseline = WorkKey.parse(key) == BASELINE
        snapshot = (self.snapshots.latest() or "") if self.snapshots else ""
        results = await self._run_checks(key, checks, snapshot)
        verdict = Verdict(tuple(self._require_tests(result) for result in results), snapshot=snapshot)
        if is_baseline:
            verdict = await self._complete_baseline(verdict, checks)
            verdict = _cap_names(verdict, MAX_RECORDED)
            if self._has_room and verdict.results and not verdict.first_unrunnable and self.snapshots:
                rehearsal = await self._open_room(self.snapshots).rehearse(verdict, checks)
                verdict = replace(verdict, rehearsal=rehearsal)
            self.baseline = verdict
        elif verdict.passed and self._comparison:
            verdict = await self._make_counterproof(self._comparison).require_go_tests(verdict, checks)
        # Before the first turn there is no work yet, unless an earlier run left some.
        is_begun = not is_baseline or (self._comparison is not None and self._comparison.earlier is not None)
        if verdict.passed and is_begun:
            verdict = await self.review_changes(
                verdict, checks, seen_failing, is_baseline=is_baseline, is_final=is_final and not is_baseline
            )
        elif is_begun:
            verdict = await self._warn_early(verdict, checks)
        if not is_baseline:
            verdict = _cap_names(verdict, 0)
        self.last = verdict
        return verdict

    async def run_with_tests(self, key: str, checks: Sequence[Check], tests: Mapping[str, str]) -> Verdict:
        """Run the checks in a clean checkout of the tree as it is now, with further tests in it."""
        snapshot = (self.snapshots.latest() or "") if self.snapshots else ""
        try:
            if self.snapshots is None or not snapshot:
                raise RoomError("there is no snapshot")
            known = set(self.snapshots.paths(snapshot))
            if replaced := [path for path in tests if path in known]:
                raise RoomError(f"{replaced[0]} is a file of the project")
            verdict = await self._open_room(self.snapshots).run(key, checks, snapshot, texts=tests)
        except RoomError as error:
            reason = str(error)
            results = [CheckResult(check.title, CheckStatus.COULD_NOT_RUN, 0.0, reason=reason) for check in checks]
            return Verdict(tuple(results), snapshot=snapshot)
        return _cap_names(replace(verdict, snapshot=snapshot), 0)

    def note_turn(self) -> None:
        """Before a turn: record that the tree is not verified any more, and which files git ignores."""
        if self._comparison:
            self._comparison.note_turn(self._before)
        self.record_ignored()

    def record_ignored(self) -> None:
        """Record, once and before the first turn, which files git ignores."""
        if self._has_room and self.snapshots:
            self._open_room(self.snapshots).record_ignored()

    async def _complete_baseline(self, verdict: Verdict, checks: Sequence[Check]) -> Verdict:
        """The baseline with all tests that fail and all that ran, also if the runner stops at the first failure."""
        results = []
        for check, result in zip(checks, verdict.results, strict=True):
            command = drop_fail_fast(check.command)
            if result.status is CheckStatus.FAILED and command != check.command:
                again = await self.runner.run_one("baseline-complete", replace(check, command=command))
                if again.status is CheckStatus.FAILED:
                    failing = tuple(dict.fromkeys((*result.failing, *again.failing)))
                    tests, named = again.tests or result.tests, again.named or result.named
                    result = replace(result, failing=failing, tests=tests, named=named)
            results.append(await self._compare_figures(check, result))
        return replace(verdict, results=tuple(results))

    async def _compare_figures(self, check: Check, result: CheckResult) -> CheckResult:
        """The result with the numbers of its output that differ in a second run marked: they say nothing about the work."""
        if not result.failures or not result.failures.figures or result.seconds > _SHORT_CHECK_SECONDS:
            return result
        again = await self.runner.run_one("baseline-again", check)
        return replace(result, failures=mark_unstable_figures(result.failures, again.failures))

    async def _warn_early(self, verdict: Verdict, checks: Sequence[Check]) -> Verdict:
        """The verdict with warnings of what would hold the work up if the checks passed, so that no turn builds on it."""
        if self._comparison is None or not verdict.not_passed or verdict.first_unrunnable:
            return verdict
        changes = await asyncio.to_thread(self._comparison.find_changes)
        findings = await asyncio.to_thread(self._collect, checks, verdict, changes)
        # A failing check runs fewer tests for many reasons.
        counts = [one for one in findings if one.severity is Severity.ERROR and one.rule is not Rule.FEWER_TESTS]
        standing = self._without_allowed(counts, changes)
        early = [replace(one, severity=Severity.WARNING) for one in standing if one.severity is Severity.ERROR]
        return replace(verdict, findings=tuple(early))

    def _without_allowed(self, findings: Sequence[Finding], changes: Sequence[FileChange]) -> list[Finding]:
        """The findings without rules that the user lifted; about judge files that may change, they only warn."""
        allowed = [change.path for change in changes if self._may_change(change.path)]
        kept = []
        for finding in findings:
            if finding.rule in self.rules.allowed:
                continue
            is_counted = finding.rule is Rule.FEWER_TESTS and bool(allowed)
            if finding.rule in REBUTTABLE and (is_counted or self._may_change(finding.path)):
                finding = replace(finding, severity=Severity.WARNING)
            kept.append(finding)
        return kept

    def _may_change(self, path: str) -> bool:
        """Whether the user let the run change this judge file."""
        return is_judge_file(path) and any(compile_glob(glob).fullmatch(path) for glob in self.rules.may_change)

    async def _run_checks(self, key: str, checks: Sequence[Check], snapshot: str) -> list[CheckResult]:
        """Run all checks, and those in doubt again."""
        first = await self.runner.run(key, checks)
        known: dict[str, CheckResult] = {}
        if self.last is not None and snapshot and self.last.snapshot == snapshot:
            known = {result.title: result for result in self.last.results}
        return [
            await self._confirm(key, check, result, known.get(check.title))
            for check, result in zip(checks, first.results, strict=True)
        ]

    async def _confirm(self, key: str, check: Check, result: CheckResult, before: CheckResult | None) -> CheckResult:
        """The result after as many further runs as it takes to trust it. `before` is the last one on the same tree."""
        has_flipped = before is not None and {before.status, result.status} == {CheckStatus.PASSED, CheckStatus.FAILED}
        if has_flipped or result.flaky:
            self.flaky.add(check.title)
        is_flaky = check.title in self.flaky
        if not has_flipped and not result.passed:
            return replace(result, flaky=is_flaky)
        wanted = max(self.rules.confirm - result.passed, FLAKY_RERUNS if is_flaky else 0)
        for number in range(1, wanted + 1):
            again = await self.runner.run_one(f"{key}-again-{number}", check)
            if not again.passed:
                self.flaky.add(check.title)
                reason = f"{again.reason}; only some of {number + 1} runs on the same tree passed"
                return replace(again, reason=reason, flaky=True, runs=number + 1)
            result = again
        return replace(result, flaky=is_flaky, runs=wanted + 1)

    def _require_tests(self, result: CheckResult) -> CheckResult:
        """The result; it cannot be judged if tests ran before the run and nothing shows that any ran now."""
        known = {before.title: before for before in self._before.results} if self._before else {}
        before = known.get(result.title)
        if before is None or not result.passed:
            return result
        known_silent = before.named.silent if before.named else ()
        silent = [part for part in result.named.silent if part not in known_silent] if result.named else []
        if silent:
            reason = (
                f"no test of {', '.join(silent[:MAX_NAMED])} ran, and it says ok anyway: "
                "look for os.Exit in init or TestMain, or for a test flag that the code sets"
            )
            return replace(result, status=CheckStatus.COULD_NOT_RUN, reason=reason)
        if before.tests is None:
            return result
        if result.tests is None and has_lasting_summary(before.output):
            reason = "it printed a test summary before the run and prints none now, so nothing shows that the tests ran"
        elif result.tests is not None and before.tests.ran and not result.tests.ran:
            reason = f"no tests ran, but {count(before.tests.ran, 'test')} ran before the run"
        else:
            return result
        return replace(result, status=CheckStatus.COULD_NOT_RUN, reason=reason)

    async def review_changes(
        self,
        verdict: Verdict,
        checks: Sequence[Check],
        seen_failing: FailingTests | None,
        *,
        is_baseline: bool,
        is_final: bool = False,
    ) -> Verdict:
        """The verdict with what the guards found, without what the counter-proof rebuts."""
        changes = await asyncio.to_thread(self._comparison.find_changes) if self._comparison else []
        findings = await asyncio.to_thread(self._collect, checks, verdict, changes)
        if self._comparison:
            findings += self._comparison.find_earlier_findings()
            all_changes = [*changes, *self._comparison.find_user_changes()]
            findings += find_unexplained_success(self._before, verdict, checks, all_changes)
        findings = self._without_allowed(findings, changes)
        if self._comparison is None:
            return replace(verdict, findings=tuple(findings))
        counterproof = self._make_counterproof(self._comparison)
        findings = await counterproof.review(findings, changes, checks)
        verdict = replace(verdict, findings=tuple(findings))
        named = self._comparison.name_earlier_run(verdict.blocking_findings) if is_baseline else None
        if named:
            verdict = replace(verdict, findings=(*verdict.findings, named))
        if seen_failing and verdict.passed and not self._may_change_tests:
            since = await counterproof.find_changed_since_failure(seen_failing, checks)
            verdict = replace(verdict, findings=(*verdict.findings, *since))
        is_kept = is_final and self._is_left_to_judge(verdict, changes, checks)
        if is_kept:
            verdict = replace(
                verdict, findings=tuple(replace(one, severity=Severity.WARNING) for one in verdict.findings)
            )
        if verdict.passed and is_final:
            verdict = await self._confirm_in_room(counterproof, verdict, changes, checks, is_kept=is_kept)
        if not verdict.passed and verdict.snapshot in self.rules.accepted:
            verdict = _accept(verdict, self.rules.accepted[verdict.snapshot])
        reason = self.rules.allowed.get(Rule.CLEAN_ROOM)
        if (
            reason
            and verdict.blocking_findings
            and all(finding.rule is Rule.CLEAN_ROOM for finding in verdict.blocking_findings)
        ):
            verdict = _accept(verdict, reason)
        self._comparison.record(verdict, self._before)
        return verdict

    async def _confirm_in_room(
        self,
        counterproof: Counterproof,
        verdict: Verdict,
        changes: Sequence[FileChange],
        checks: Sequence[Check],
        *,
        is_kept: bool,
    ) -> Verdict:
        """The verdict with its grade: in a clean checkout, and there with the judge files as they were before the run.

        If the agent keeps what the guards found (`is_kept`), the work is at best left to a judge.
        """
        verdict = await counterproof.room.confirm(verdict, checks, has_changes=bool(changes))
        if verdict.evidence is None or not verdict.passed:
            return verdict
        if verdict.evidence.grade is not Grade.PROVEN:
            return verdict
        judge_files = self._find_changed_judge_files(changes, checks)
        back = sorted(change.path for change in judge_files)
        if not judge_files:
            evidence = verdict.evidence
        elif all(_only_adds_tests(change) for change in judge_files) and counterproof.rests_on_new_tests(
            verdict, checks
        ):
            evidence = await counterproof.grade_new_tests(verdict, back, checks)
        else:
            evidence = await counterproof.grade_changed_judge_files(verdict.evidence, back, checks)
        if is_kept and not evidence.to_judge:
            evidence = leave_to_judge(evidence, back, "the guards found changes in them that the agent keeps")
        if evidence.to_judge and self._may_change_tests:
            reasons = "; ".join(f"{rule}: {reason}" for rule, reason in self.rules.allowed.items())
            evidence = Evidence(Grade.ACCEPTED, f"{evidence.reason} You allowed it: {reasons}", evidence.compared)
        return replace(verdict, evidence=evidence)

    def _is_left_to_judge(self, verdict: Verdict, changes: Sequence[FileChange], checks: Sequence[Check]) -> bool:
        """Whether the agent read what the guards found, keeps it, and it is all about judge files."""
        blocking = verdict.blocking_findings
        if not blocking or verdict.not_passed or not (self.rules.has_judge and self.rules.clean_room.is_on):
            return False
        read = self.last
        if read is None or not read.blocking_findings or read.snapshot != verdict.snapshot:
            return False
        if read.rehearsal:
            # The baseline found it, in what an earlier run left. The agent of this run gets a turn to fix it first.
            return False
        judge_files = {change.path for change in self._find_changed_judge_files(changes, checks)}
        product = {change.path for change in changes} - judge_files
        return bool(judge_files) and all(one.rule in REBUTTABLE and one.path not in product for one in blocking)

    def _find_changed_judge_files(self, changes: Sequence[FileChange], checks: Sequence[Check]) -> list[FileChange]:
        """The changes of what decides what passes: whole files, or the parts of manifests and of files with tests inside."""
        scripts = self._find_check_scripts(checks)
        judge_files = []
        for change in changes:
            if is_mixed(change.path) or not (is_judge_file(change.path) or change.path in scripts):
                decides = touches_judge_part(change)
            else:
                decides = True
            if decides:
                judge_files.append(change)
        return judge_files

    def _find_check_scripts(self, checks: Sequence[Check]) -> set[str]:
        """The files that the checks execute, relative to the top of the work tree: they decide what passes."""
        if self.snapshots is None:
            return set()
        inside = self.runner.workspace.resolve().relative_to(self.snapshots.repository.top.resolve())
        return {os.path.normpath(inside / script) for check in checks for script in find_scripts(check.command)}

    def _collect(self, checks: Sequence[Check], verdict: Verdict, changes: Sequence[FileChange]) -> list[Finding]:
        """What the rules find, on the changes and on the run."""
        found = find_changed_inputs(self.rules.inputs, {change.path for change in changes})
        if self.snapshots is None or self._comparison is None:
            history = self.user_refs.findings() if self.user_refs else []
            return [*found, *find_fewer_tests(self._before, verdict, changes), *history]
        commands = [check.command for check in checks if check.command]
        texts = [change for change in changes if (change.old, change.new) != (None, None)]
        failed_before = [
            test for result in (self._before.not_passed if self._before else ()) for test in result.failing
        ]
        unchanged = self._comparison.read_unchanged(changes)
        scanned = scan(
            texts, checks=commands, unchanged=unchanged, failed_before=() if verdict.not_passed else failed_before
        )
        found += _raise_for_coverage(scanned, checks)
        if not any(finding.rule in _RULES_THAT_EXPLAIN_FEWER_TESTS for finding in found):
            found += find_fewer_tests(self._before, verdict, changes, self._comparison.find_user_changes())
        own = self._comparison.find_own_changes() if self.rules.scope else []
        return [*found, *find_out_of_scope(self.rules.scope, own), *self.snapshots.history()]

    def _make_counterproof(self, work: TreeComparison) -> Counterproof:
        return Counterproof(
            runner=self.runner,
            snapshots=work.snapshots,
            base=work.base_with_user_changes,
            baseline=self._before,
            room=self._open_room(work.snapshots),
            may_change_tests=self._may_change_tests,
            may_change=self._may_change,
        )

    @property
    def _has_room(self) -> bool:
        """Whether a success must be confirmed in a clean room."""
        return self.rules.clean_room.is_on

    @property
    def _before(self) -> Verdict | None:
        """What the checks said before the work began; if it began in a run that was rejected, before that run."""
        earlier = self._comparison.earlier if self._comparison else None
        return earlier.baseline if earlier and earlier.baseline else self.baseline

    @property
    def _may_change_tests(self) -> bool:
        return any(rule in self.rules.allowed for rule in REBUTTABLE)


def find_scripts(command: str) -> list[str]:
    """The scripts whose exit code is the result of a command. If another program reads their output, that one decides."""
    if "|" in command.replace("||", ""):
        return []
    scripts: list[str] = []
    directory = ""
    for part in _COMMAND_ENDS.split(command):
        try:
            words = [word for word in shlex.split(part) if not _ASSIGNMENT.match(word)]
        except ValueError:
            continue
        if words[:1] == ["cd"] and len(words) == 2:
            directory = os.path.join(directory, words[1])
        elif words and _INTERPRETER.fullmatch(words[0]):
            # The first word that is no option is the script, unless an option such as `-c` or `-m` says what to run.
            arguments = [word for word in words[1:] if not word.startswith("-") or word in _CODE_OPTIONS]
            if arguments and not arguments[0].startswith("-"):
                scripts.append(os.path.join(directory, arguments[0]))
        elif words and "/" in words[0]:
            scripts.append(os.path.join(directory, words[0]))
    return scripts


def _accept(verdict: Verdict, why: str) -> Verdict:
    """A verdict with passing checks that the user accepted: its findings are only warnings."""
    findings = tuple(replace(finding, severity=Severity.WARNING) for finding in verdict.findings)
    return replace(verdict, findings=findings, evidence=Evidence(Grade.ACCEPTED, f"By {why}"))


def _only_adds_tests(change: FileChange) -> bool:
    """Whether a changed judge file is new and has tests, going by its name."""
    return change.old is None and is_collected(change.path)


def _raise_for_coverage(findings: Sequence[Finding], checks: Sequence[Check]) -> list[Finding]:
    """The findings; if a check measures coverage, tests that assert nothing are an error and no warning."""
    if not measures_coverage(checks):
        return list(findings)
    empty = [replace(one, severity=Severity.ERROR) for one in findings if one.rule is Rule.TEST_EMPTIED]
    return [*empty, *(one for one in findings if one.rule is not Rule.TEST_EMPTIED)]


def find_unexplained_success(
    before: Verdict | None, now: Verdict, checks: Sequence[Check], changes: Sequence[FileChange]
) -> list[Finding]:
    """A finding for every check that failed before the run and passes now, though no file changed.

    If it runs tests, something outside the tree decides: an ignored file, an installed package, a service, chance. Other
    checks may ask for just that, for example for a build product.
    """
    if before is None or changes:
        return []
    failed = {result.title: result for result in before.not_passed}
    found = []
    for check, result in zip(checks, now.results, strict=True):
        if result.title not in failed:
            continue
        sentence = (
            f"{check.title.removesuffix(' passes')} failed before the run and passes now, though no file of the project changed: "
            "what made the difference is not in the work. Is it flaky, or was something changed that git ignores?"
        )
        severity = Severity.ERROR if is_about_tests(check, failed[result.title]) else Severity.WARNING
        found.append(
            Finding(rule=Rule.VERIFIER_EDITED, path=result.title, line=0, sentence=sentence, severity=severity)
        )
    return found


def find_fewer_tests(
    before: Verdict | None, now: Verdict, changes: Sequence[FileChange], by_user: Sequence[FileChange] = ()
) -> list[Finding]:
    """A finding for every check that ran fewer tests than before the run.

    It only warns if reading is better evidence than counting: the changed test files declare fewer tests themselves, or the
    number before may have counted tests twice. It also only warns if the user changed tests while the run was stopped.
    """
    if before is None:
        return []
    has_edited_tests = any(is_test_path(change.path) for change in by_user)
    tests = [change for change in changes if is_test_path(change.path)]
    declared_before = sum(_count_declared(change.old) for change in tests)
    declared_now = sum(_count_declared(change.new) for change in tests)
    known = {result.title: result for result in before.results}
    found = []
    for result in now.results:
        if result.title not in known:
            continue
        if lost := _find_lost_tests(known[result.title], result, [*changes, *by_user]):
            found.append(_report_lost_tests(result.title, lost))
            continue
        old, new = known[result.title].tests, result.tests
        if old is None or new is None or new.ran >= old.ran:
            continue
        is_certain = declared_now >= declared_before and new.ran < old.ran - old.repeated
        why = "some no longer run"
        if new.ran >= old.ran - old.repeated:
            why = "the runner may have counted some of them twice"
        if has_edited_tests:
            is_certain, why = False, "you changed tests while the run was stopped"
        sentence = f"{count(new.ran, 'test')} ran, and {old.ran} before the run: {why}."
        severity = Severity.ERROR if is_certain else Severity.WARNING
        found.append(Finding(rule=Rule.FEWER_TESTS, path=result.title, line=0, sentence=sentence, severity=severity))
    return found


def _find_lost_tests(before: CheckResult, now: CheckResult, changes: Sequence[FileChange]) -> list[str]:
    """The tests that ran before and do not run now, though no file that changed has them."""
    if before.named is None or now.named is None:
        return []
    texts = [change.old for change in changes if change.old]
    missing = find_missing_tests(before.named, now.named)
    return [name for name in missing if not any(find_own_name(name) in text for text in texts)]


def _report_lost_tests(title: str, lost: Sequence[str]) -> Finding:
    named = ", ".join(lost[:MAX_NAMED]) + (f" and {len(lost) - MAX_NAMED} more" if len(lost) > MAX_NAMED else "")
    runs, them = ("runs", "it") if len(lost) == 1 else ("run", "them")
    sentence = (
        f"{count(len(lost), 'test')} ran before the run and no longer {runs}, though nothing changed {them}: {named}."
    )
    return Finding(Rule.FEWER_TESTS, title, 0, sentence)


def _cap_names(verdict: Verdict, most: int) -> Verdict:
    """The verdict as it is recorded: the names of tests only if there are not too many."""
    results = [
        replace(result, named=None) if result.named and len(result.named.ran) > most else result
        for result in verdict.results
    ]
    return replace(verdict, results=tuple(results))


def _count_declared(text: str | None) -> int:
    return len(_DECLARES.findall(text or ""))


def find_out_of_scope(scope: Sequence[str], paths: Iterable[str]) -> list[Finding]:
    """A finding for every file that was changed and may not be."""
    if not scope:
        return []
    allowed = ", ".join(scope)
    return [
        Finding(Rule.OUT_OF_SCOPE, path, 1, f"{path} was changed, and only {allowed} may be: undo that change.")
        for path in sorted(paths)
        if not any(compile_glob(glob).fullmatch(path) for glob in scope)
    ]


@cache
def compile_glob(glob: str) -> re.Pattern[str]:
    """A pattern as a regular expression: one without a slash matches at any depth, one that names a directory all below."""
    plain = glob.removeprefix("./").strip("/")
    anywhere = "" if "/" in glob.removeprefix("./").rstrip("/") else "(?:.*/)?"
    pattern = f"{anywhere}{''.join(map(_translate_token, _GLOB_TOKEN.findall(plain)))}(?:/.*)?"
    try:
        return re.compile(pattern, re.DOTALL)
    except re.error:
        return re.compile(f"{anywhere}{re.escape(plain)}(?:/.*)?", re.DOTALL)


def _translate_token(token: str) -> str:
    if token in _GLOB_REGEX:
        return _GLOB_REGEX[token]
    if token[0] != "[" or len(token) == 1:
        return re.escape(token)
    inner = token[1:-1]
    kind = "^" if inner[0] in "!^" and len(inner) > 1 else ""
    ranged = re.sub(r"(\w)\\-(\w)", r"\1-\2", re.escape(inner[len(kind) :]))
    return f"[{kind}{ranged}]"


def hash_inputs(checks: Iterable[Check], workspace: Path) -> dict[str, str]:
    """The hash of every file that a check names or starts: in the workspace, or anywhere by its path."""
    files = {file for check in checks for file in _files(check.command, workspace)}
    return {str(file): _hash(file) for file in sorted(files)}


def find_changed_inputs(before: Mapping[str, str], judged: Collection[str]) -> list[Finding]:
    """A finding for every one of them that is not what it was; those among the `judged` changes were looked at more closely."""
    return [
        Finding(
            Rule.VERIFIER_EDITED,
            path,
            1,
            f"{path}, which a check uses, is not what it was before the run: restore it.",
        )
        for path, known in before.items()
        if not any(path.endswith(f"/{other}") for other in judged) and _hash(Path(path)) != known
    ]


def _files(command: str, workspace: Path) -> Iterator[Path]:
    for word in _words(command):
        candidate = Path(os.path.normpath(workspace / word))
        found = candidate if "/" in word or candidate.is_file() else Path(shutil.which(word) or "/nowhere")
        if found.is_file() and (_is_tool(found, workspace) if found.is_relative_to(workspace) else "/" in word):
            yield found


def _is_tool(file: Path, workspace: Path) -> bool:
    """Whether a file of the workspace is there to check the work; what the work itself builds is not."""
    inside = file.relative_to(workspace).parts
    if _TOOL_DIRECTORIES.intersection(inside[:-1]):
        return True
    with file.open("rb") as content:
        return bool(_SHELL_SCRIPT.match(content.readline(200)))


def _words(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError:
        words = command.split()
    return [part for word in words for part in re.split(r"[;&|()<>=]+", word) if part]


def _hash(path: Path) -> str:
    try:
        if path.stat().st_size > MAX_INPUT_BYTES:
            return f"size {path.stat().st_size}"
        return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    except OSError:
        return "absent"
