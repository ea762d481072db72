"""Tests that were deleted, skipped, emptied or weakened."""

import re
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from ralph.core.checks import Finding, Rule
from ralph.core.text import count, regex
from ralph.verify.changed_files import FileChange, detect_language, find_gained, is_ignored, is_test_path, make_finding
from ralph.verify.guards.assertions import Assertion, find_all_literals
from ralph.verify.guards.claims import ClaimKind
from ralph.verify.guards.comparison import Comparison
from ralph.verify.guards.lost_claims import RUNS_BEFORE, ClaimTracker, Loss
from ralph.verify.guards.units import SourceFile, Unit, find_rows, match_units, measure_likeness
from ralph.verify.guards.weakened_product import CLEANS_UP

_WAYS = {
    "python": r"@ (?:\w+ \. )*(?:skip|skipif|skipIf|skipUnless|xfail|expectedFailure)\b(?: \( .*?(?= ;))?"
    r"|\b(?:pytest|unittest) \. (?:skip|xfail|importorskip) \(|\bself \. skipTest \(|raise (?:\w+ \. )?SkipTest"
    r"|\bpytestmark = [^;]*\b(?:skip|skipif|xfail)\b[^;]*|__test__ = False|collect_ignore(?:_glob)? (?:= \[ [^\]]|\+=|\. \w+ \()",
    "js": r"\b(?:it|test|describe|context|suite|specify)(?: \. \w+)* \. (?:skip|only|todo|fixme|failing|fails|skipIf|runIf)\b"
    r"|(?<!\. )\b(?:xit|xtest|xdescribe|xcontext|fit|fdescribe)\b(?= [(.])|\bthis \. skip \(|\bpending \( |\bt \. skip \("
    r"|(?<=, )\{ (?:skip|todo|only) : (?:true|\")",
    "go": r"(?:if testing \. Short \( \) \{ |if runtime \. GOOS [^{]*\{ )?\b\w+ \. Skip(?:f|Now)? \(",
    "java": r"@ (?:Disabled\w*|Ignore|EnabledIf\w*|EnabledOn\w*)\b|enabled = false|\bassume(?:True|False|That|NotNull) \(",
    "rust": r"# \[ (?:ignore|cfg_attr \( [^\]]*ignore)[^\]]*|# \[ cfg \( (?!test \) \]|all \( test \) )[^\]]*\](?= (?:# \[ [^\]]*\] )*(?:mod tests?\b|(?:async )?fn))",
}
_PATTERNS = {language: regex(ways) for language, ways in _WAYS.items()}
_ENDS = regex(
    r"\b(?:sys|os|process|System|Runtime)(?: \. \w+ \( \))? \. (?:_?exit|Exit|halt|_exit) \( 0? ?\)|process :: exit \( 0"
    r"|\b(?:if|while) (?:\( )?(?:False|false|0)(?: \))? \{|\bif (?:\( )?(?:False and|false &&)"
)
_ONLY = regex(r"\. only\b|\b(?:fit|fdescribe)\b|only :")
_PLATFORM = regex(r"sys \. platform|os \. name\b|version_info|platform \. system|GOOS|OnOs|OnJre|target_os|\b(?:unix|windows)\b|Short \(")  # fmt: skip
_NEVER = regex(r"(?i)skip|ignore|disabled|enabled=false|todo|pending|\b(xit|xtest|xdescribe|xcontext)\b")
_MUST_FAIL = regex(r"xfail(\((reason|strict|raises|run)=.*)?$|expectedFailure$")
_SOMETIMES = regex(r"(?i)if|unless|importor|only|collect|disabled\w|cfg")
_CONDITIONAL = regex(r"(?i)skipif|skipunless|runif|enabledif|enabledon|disabledif|disabledon|cfg")
_CONSTANT = regex(r"\((?:not)?(?:True|False|true|false|\d+|\"[^\"]*\")[,)]|\(not")
_ERRORS = (ClaimKind.FAILS, ClaimKind.RAISES)


@dataclass(frozen=True)
class Mark:
    """One such mark."""

    label: str
    line: int
    weak: bool = False
    """It holds on some platforms only, or on request."""
    hides_others: bool = False

    @property
    def head(self) -> str:
        """The mark without its condition."""
        return self.label.partition("(")[0]

    @property
    def is_conditional(self) -> bool:
        """Whether it has a condition that may hold or not."""
        return bool(_CONDITIONAL.search(self.label)) and not _CONSTANT.search(self.label)

    @property
    def key(self) -> str:
        """When two marks are one: every framework has its own word for a test that never runs, or that must fail."""
        if _MUST_FAIL.search(self.label):
            return "xfail"
        return "skip" if _NEVER.search(self.label) and not _SOMETIMES.search(self.label) else self.label


def find_marks(unit: Unit) -> list[Mark]:
    """The marks of a unit, its decorators included."""
    found = []
    for pattern in filter(None, (_PATTERNS.get(unit.language), _ENDS if unit.in_tests else None)):
        for match in pattern.finditer(unit.text):
            weak, hides_others = (bool(_PLATFORM.search(match[0])), bool(_ONLY.search(match[0])))
            found.append(Mark(match[0].replace(" ", ""), unit.line_of(match.start()), weak, hides_others))
    if "# [ should_panic" in unit.head_text and any(claim.kind not in _ERRORS for claim in unit.assertions):
        found.append(Mark("should_panic", unit.line))
    if unit.name == "TestMain" and "m . Run (" not in unit.text:
        found.append(Mark("TestMain without m.Run", unit.line))
    return found


def find_build_tags(comments: tuple[tuple[int, str], ...]) -> Iterator[Mark]:
    """Go's build constraints, which keep whole files out."""
    for line, text in comments:
        if tag := re.match(r"//(go:build| \+build) (.+)", text):
            weak = bool(re.fullmatch(r"!?(linux|darwin|windows|unix|amd64|arm64|cgo|[ |&!]|go1\.\d+)+", tag[2].strip()))
            yield Mark(text.strip(), line, weak)


_NO_CASE = regex(r"TestMain$|(Benchmark|Example|Fuzz|bench_|test_bench)|.*[bB]enchmark")
_CLAIMS = regex(
    r"_?assert\w*|\w*assert(_\w+|!)?|\w*[eE]xpect\w*|raises\w*|warns|deprecated_call|verify\w*|should\w*|\w*[fF]ail\w*|[fF]atal\w*|Errorf?|panic|throws?|"
    r"raise|AssertionError|unreachable|_?(require|ensure|validate|check|must)([A-Z_]\w*)?|\w*[sS]napshot\w*|approve\w*|[tT]imeout|benchmark|compare\w*|(to|not)?[mM]atch\w*"
)
"""Words of assertions, of helpers that make them, and of results that a test expects by a mark."""
_IN = {
    "python": regex(r"given"),
    "rust": regex(r"unwrap\w*|\?|prop_\w+|pass|compile_fail"),
    "js": regex(r"(get|find)(All)?By\w+|cy|waitFor\w*|page|t"),
    "java": regex(r"andExpect\w*|doesNot\w+|then\w*|await\w*|StepVerifier"),
}
"""Words that fail by themselves, by language."""
_HANDED_ON = regex(r"([^\W\d]\w*) \( (?:t|tb|s \. T \( \)) [,)]")


def cannot_fail(unit: Unit, helpers: Collection[str]) -> bool:
    """Whether a test without claims has no other way to fail either: Go's may hand themselves to helpers not known here."""
    if _NO_CASE.match(unit.name) or "# [ bench" in unit.head_text:
        return False
    own = _IN.get(unit.language)
    if any(_CLAIMS.fullmatch(token) or (own and own.fullmatch(token)) for token in {*unit.tokens} - {unit.name}):
        return False
    handed = _HANDED_ON.findall(unit.body_text) if unit.language == "go" else ()
    return all(name in helpers for name in handed)


_MOCKS = regex(r'(?:\bpatch(?: \. object)?|setattr|spyOn|stub|replace) \( (?:[\w. ]+ , )?"([\w.]+)"|\bwhen \( (?:\w+ \. )+(\w+) \(|\b[\w.]+ \. (\w+) = (?:jest|vi|sinon|mock|Mock|MagicMock)\b|\b(?:jest|vi) \. (?:mock|doMock) \( (?P<module>"[^"]+")')  # fmt: skip
_OF_MOCKS = (ClaimKind.CALLED, ClaimKind.CALLED_WITH)
_CLASS_HEAD = regex(r"\bclass (\w+) \( ([^)]*) \)")
_MANY = 3
"""More tests than this that were deleted with their file make one finding."""


def find_weakened_cases(work: Comparison) -> Iterator[Finding]:
    """All findings about test cases."""
    return _Cases(work).find_all()


class _Cases:
    def __init__(self, work: Comparison) -> None:
        self.work = work
        self.tracker = ClaimTracker(work)

    def find_all(self) -> Iterator[Finding]:
        gone: dict[str, list[Unit]] = {}
        for old, new in (*self.work.test_pairs, *self.work.helper_pairs):
            is_sure = new is not None and (old.name == new.name or measure_likeness(old.words, new.words) >= 0.8)
            if old.is_test and not is_sure and self.tracker.is_fully_covered(old):
                continue
            if new is not None:
                yield from self._compare_pair(old, new)
            elif old.is_test:
                gone.setdefault(old.path, []).append(old)
        for path, units in gone.items():
            yield from self._report_removed(path, units)
        for unit in (unit for unit in self.work.changed_units if unit.in_tests):
            yield from self._find_replaced(unit)
            yield from self._check_new(unit) if unit.name and unit not in self.work.origin else ()
        for source in self.work.new:
            if is_test_path(source.path) or any(unit.is_test for unit in source.units):
                yield from self._compare_outside(source, self.work.before.get(source.path))

    def _compare_pair(self, old: Unit, new: Unit) -> Iterator[Finding]:
        base = new.scope.rsplit(".", 1)[-1]
        is_inherited = base and sum(source.outside.tokens.count(base) for source in self.work.new) > 1
        if old.is_test and old.collected and not new.collected and not is_inherited and not self._extends_tests(new):
            sentence = f"{old.name} is in {new.path} now, where the test runner does not find it."
            yield self.work.report(Rule.TEST_SKIPPED, new.path, new.line, sentence)
        if old.expanded_tokens != new.expanded_tokens:
            yield from self._compare_marks(old, new)
            yield from self._compare_claims(old, new)
            yield from self._compare_rows(old, new)

    def _extends_tests(self, unit: Unit) -> bool:
        """Whether the class of a Python test extends another one that is a test case."""
        sources = [*self.work.new, *self.work.unchanged_tests]
        name = unit.scope.rsplit(".", 1)[-1]
        heads = {match[1]: match[2] for source in sources for match in _CLASS_HEAD.finditer(source.outside.text)}
        return any("Test" in heads.get(base, "") for base in heads.get(name, "").replace(",", " ").split())

    def _find_replaced(self, unit: Unit) -> Iterator[Finding]:
        """A test, or what stands around the tests of a file, that replaces what is tested checks only itself."""
        before, mocks = self.work.origin.get(unit), list(_MOCKS.finditer(unit.text))
        pairs = ((old, new) for old, new in self.work.test_pairs if new is not None) if mocks else ()
        tests = [old for old, new in pairs if new is unit or (new.path == unit.path and not unit.is_test)]
        asked = {name for old in tests for name in _find_asked(old)}
        for match in mocks:
            names = [match[match.lastindex or 0].rsplit(".", 1)[-1]]
            if match["module"]:
                imported = rf"(?:import|const|let|var) ([^;]*?) (?:from|= require \() {re.escape(match['module'])}"
                names = " ".join(re.findall(imported, unit.text)).split()
            for name in asked.intersection(names) if before is None or match[0] not in before.text else ():
                sentence = f"{unit.name or unit.path} replaces {name}, which the test is meant to test."
                yield self.work.report(Rule.ASSERTION_WEAKENED, unit.path, unit.line_of(match.start()), sentence)

    def _compare_marks(self, old: Unit | None, new: Unit) -> Iterator[Finding]:
        asked_short = any("-short" in check for check in self.work.checks)
        had, has = (find_marks(unit) if unit else [] for unit in (old, new))
        lost = Counter(mark.head for mark in find_gained(has, had, lambda mark: mark.key) if mark.is_conditional)
        for mark in find_gained(had, has, lambda mark: mark.key):
            is_new = old is None and not mark.hides_others
            is_reworded = mark.is_conditional and lost[mark.head] > 0
            lost[mark.head] -= is_reworded
            warn = is_new or is_reworded or (mark.weak and not asked_short)
            yield self._report_mark(mark, new, warn=warn, verb="changed" if is_reworded else "added")

    def _report_mark(self, mark: Mark, unit: Unit, *, warn: bool, verb: str = "added") -> Finding:
        sentence = f"{unit.name or unit.path} no longer runs in full: `{mark.label[:60]}` was {verb}."
        if verb == "changed":
            sentence = (
                f"The condition under which {unit.name or unit.path} is skipped was changed: `{mark.label[:60]}`."
            )
        if mark.hides_others:
            sentence = f"`{mark.label[:60]}` in {unit.path} keeps all other tests there from running."
        return self.work.report(Rule.TEST_SKIPPED, unit.path, mark.line, sentence, warn=warn)

    def _compare_claims(self, old: Unit, new: Unit) -> Iterator[Finding]:
        had = [claim for claim in self.tracker.old.find_claims(old) if claim.is_real]
        known = {claim.key for claim in had}
        left = [claim for claim in self.tracker.new.find_claims(new) if claim.rank or claim.key in known]
        stopped = not had and new.is_test and bool(old.calls) and not new.calls - {"print"}
        if stopped or (had and not left and not all(map(self.tracker.is_answered, had))):
            how = "checks only what is always true" if new.assertions else "no longer has an assertion"
            yield self.work.report(Rule.TEST_EMPTIED, new.path, new.line, f"{new.name} in {new.path} {how}.")
        for loss, was, now in self.tracker.find_losses(old, new):
            if left or (now is not None and now.was_real):
                yield self._report_weaker(loss, was, now, new, has_grown=self.tracker.has_grown(old, new))

    def _report_weaker(
        self, loss: Loss, was: Assertion, now: Assertion | None, new: Unit, *, has_grown: bool
    ) -> Finding:
        before = f"`{was.text[:80]}`"
        rule, warn = Rule.ASSERTION_WEAKENED, False
        if loss == "changed":
            warn = self.work.product_changed
            after = f"`{now.text[:80]}`" if now else "nothing"
            why = "" if warn else ", though no code changed that could explain it"
            sentence = f"{new.name} expects something different than before: {before} became {after}{why}."
        elif loss == "input":
            sentence, warn = f"{new.name} tries something other than {before}.", True
        elif now is None:
            sentence = f"{new.name} no longer checks {before}."
            warn = has_grown or self._is_loss_explained(was, new)
        elif now.doubt and not was.doubt:
            sentence = f"{new.name} may end before it checks {before}."
            rule = Rule.TEST_SKIPPED if now.doubt == "return" else rule
        else:
            sentence = f"{new.name} {_describe_weaker(was, now)} instead of {before}."
        line = now.line if now else new.line
        return make_finding(rule, new.path, line, sentence, (now or was).text, warn=warn)

    def _is_loss_explained(self, was: Assertion, new: Unit) -> bool:
        """Whether a claim is gone for a reason that is not gaming: what it is about is gone, too, or still has to pass."""
        if was.names & self.work.removed_names:
            return True
        if new.language == "go" and CLEANS_UP.search(was.text.partition(" (")[0]):
            return True
        if was.kind in _OF_MOCKS and not {*was.sides[0].split()[:1]} & {*new.tokens}:
            return True
        is_honored = was.kind is ClaimKind.PASSES and not re.search(r"(^|[ ,;{])_ (:?=|,)", new.text)
        return is_honored and self.work.product_changed

    def _compare_rows(self, old: Unit, new: Unit) -> Iterator[Finding]:
        """Rows of tables that are gone from a test and are nowhere else."""
        before, now = find_rows(old), find_rows(new)
        kept = [*map(find_all_literals, now), *self.tracker.tables]
        kept += [unit.literals for unit in self.tracker.tests if unit is not new] if before - now else []
        lost = [row for row in before - now if not any(find_all_literals(row) <= other for other in kept)]
        name, fewer = new.name or new.path, before.total() - now.total()
        if lost and fewer > 0:
            known = [find_all_literals(row) for row in before]
            others = any(not any(find_all_literals(row) & one == one for one in known) for row in now - before)
            sentence = f"{name} lost {fewer} of its {count(before.total(), 'case')}, `{lost[0][:80]}` among them."
            warn = others and self.work.product_changed
            yield make_finding(Rule.TEST_DELETED, new.path, new.line, sentence, lost[0], warn=warn)
        elif lost and fewer == 0:
            sentence, warn = (f"A case of {name} was changed: `{lost[0][:80]}` is gone.", self.work.product_changed)
            yield make_finding(Rule.ASSERTION_WEAKENED, new.path, new.line, sentence, lost[0], warn=warn)

    def _report_removed(self, path: str, units: list[Unit]) -> Iterator[Finding]:
        others = [unit for unit in self.work.changed_units if unit.name and unit.in_tests and not unit.is_test]
        deleted = []
        for unit, twin in match_units(units, others, self.work.renames):
            if twin is not None:
                sentence = f"{unit.name} became {twin.name} in {twin.path}, which the test runner does not run."
                yield self.work.report(Rule.TEST_SKIPPED, twin.path, twin.line, sentence)
            else:
                deleted.append(unit)
        is_whole = self.work.renames.get(path, path) not in self.work.texts_now and len(deleted) > _MANY
        for unit in deleted[:1] if is_whole else deleted:
            with_code = bool(self.work.removed_names & unit.words.keys())
            rewritten = not with_code and self.tracker.is_rewritten(unit)
            who, tests = (path, f" with its {len(deleted)} tests") if is_whole else (f"{unit.name} in {path}", "")
            end = "for another" if rewritten else "and nothing took its place"
            what = f"{who} was deleted{tests} {'together with code that it tested' if with_code else end}."
            yield make_finding(Rule.TEST_DELETED, path, unit.line, what, unit.text, warn=with_code or rewritten)

    def _check_new(self, unit: Unit) -> Iterator[Finding]:
        """New tests count too: they may hide others, or pretend to check; and what runs before tests may end them."""
        if unit.is_test:
            yield from self._compare_marks(None, unit)
            claims = self.tracker.new.find_claims(unit)
            if claims and not any(claim.is_real for claim in claims):
                sentence = f"The new test {unit.name} checks only what is always true."
                yield self.work.report(Rule.TEST_EMPTIED, unit.path, claims[0].line, sentence)
            elif not claims and not find_marks(unit) and cannot_fail(unit, self.tracker.new.helpers):
                sentence = f"The new test {unit.name} has no assertion: it passes for every return value."
                yield self.work.report(Rule.TEST_EMPTIED, unit.path, unit.line, sentence, warn=True)
        elif RUNS_BEFORE.search(f"{unit.head_text} {unit.name}"):
            yield from (self._report_mark(mark, unit, warn=mark.weak) for mark in find_marks(unit))

    def _compare_outside(self, source: SourceFile, before: SourceFile | None) -> Iterator[Finding]:
        """Marks on classes, groups and whole files, and tables."""
        was, now = before.outside if before else None, source.outside
        yield from self._compare_marks(was if was or source.units else now, now)
        if before is not None:
            yield from self._compare_rows(before.outside, now)
            tags = find_gained(
                find_build_tags(before.comments), find_build_tags(source.comments), lambda mark: mark.label
            )
            yield from (self._report_mark(mark, now, warn=mark.weak) for mark in tags)


def _describe_weaker(was: Assertion, now: Assertion) -> str:
    if now.kind is ClaimKind.TRIVIAL:
        return f"has `{now.text[:80]}`, which is always true,"
    if now.kind is not was.kind:
        return f"checks only for {now.kind}"
    return f"asks for less with `{now.text[:80]}`"


def _find_asked(unit: Unit) -> set[str]:
    """The functions whose results a test compares."""
    sides = (side for claim in unit.assertions if claim.kind not in _OF_MOCKS for side in claim.sides)
    return {name for side in sides for name in re.findall(r"(\w+) \(", side)}


_RECORDED = regex(r"\.(snap|golden|approved\.\w+)$|(^|/)(golden|snapshots|__snapshots__)/.*|(expected|golden)[^/]*\.\w+$")  # fmt: skip
_BROKEN = regex(r"\bNaN\b|\bundefined\b|\[object Object\]|Traceback|\b\w+(Error|Exception):")
"""What no one would want to see recorded."""
_HOLDS_TESTS = regex(r"(?i)(test|spec)\w*\.(?!log|txt|md|xml|csv|out|html)\w+$")
_CASE = regex(
    r"^\s*(?:@test\s|it\s+[\"']|specify\s+[\"']|test\s+[\"']|TEST(?:_F|_P)?\s*\(|def test_|func test\w|public function test\w|"
    r"(?:public )?(?:async )?(?:void|Task) \w*[Tt]est\w*\().*"
)
_SKIP = regex(r"^\s*(?:skip\b|pending\b|xit\b|xdescribe\b|xcontext\b|GTEST_SKIP|\$this->markTest|throw XCTSkip|\[(?:Ignore|Fact\(Skip))|\bDISABLED_\w|,\s*skip:")  # fmt: skip


def find_weakened_other_files(work: Comparison) -> Iterator[Finding]:
    """Expectations that were recorded anew, and cases that are gone or skipped, by comparing lines."""
    files = [change for change in work.files if _is_other_file(change.path) and change.old is not None]
    kept = {line.strip() for change in work.files for line in (change.new or "").splitlines() if _CASE.match(line)}
    names = {change.path.rsplit("/", 1)[-1] for change in work.files if change.old is None}
    for change in files:
        path, old, new = (change.path, (change.old or "").splitlines(), (change.new or "").splitlines())
        if change.new is None:
            if _HOLDS_TESTS.search(path) and path.rsplit("/", 1)[-1] not in names:
                yield make_finding(Rule.TEST_DELETED, path, 1, f"{path} was deleted and nothing took its place.")
        elif _RECORDED.search(path):
            yield from _compare_recorded(work, change)
        else:
            for line in (line for line in old if _CASE.match(line) and line.strip() not in kept):
                yield make_finding(Rule.TEST_DELETED, path, 1, f"`{line.strip()[:80]}` in {path} is gone.", line)
            for line in (Counter(filter(_SKIP.search, new)) - Counter(filter(_SKIP.search, old))).elements():
                sentence = f"A test in {path} no longer runs: `{line.strip()[:80]}`."
                yield make_finding(Rule.TEST_SKIPPED, path, new.index(line) + 1, sentence, line)


def _is_other_file(path: str) -> bool:
    is_read = detect_language(path) is not None and not path.endswith(".snap")
    return not is_read and not is_ignored(path) and is_test_path(path)


def _compare_recorded(work: Comparison, change: FileChange) -> Iterator[Finding]:
    """Recorded expectations. If code changed too, they may have to change, but not to nonsense."""
    old, new = change.old or "", change.new or ""
    if {*old.split()} <= {*new.split()}:
        return
    broken = next((match for match in _BROKEN.finditer(new) if match[0] not in old), None)
    what = f"now has {broken[0]} in it" if broken else "was changed"
    line = new.count("\n", 0, broken.start()) + 1 if broken else 1
    sentence = f"{change.path} records what tests expect, and {what}."
    warn = work.product_changed and broken is None
    yield make_finding(Rule.ASSERTION_WEAKENED, change.path, line, sentence, broken[0] if broken else "", warn=warn)
