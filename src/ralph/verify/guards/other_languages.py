"""Test files that are not read as code: recorded expectations, and languages that the guards do not know."""

from collections import Counter
from collections.abc import Iterator

from ralph.core.findings import Finding, Rule
from ralph.core.patterns import regex
from ralph.verify.guards.changes import FileChange, finding, is_ignored, language_of
from ralph.verify.guards.comparison import Comparison
from ralph.verify.judge_files import is_test_path

_RECORDED = regex(r"\.(snap|golden|approved\.\w+)$|(^|/)(golden|snapshots|__snapshots__)/.*|(expected|golden)[^/]*\.\w+$")  # fmt: skip
_BROKEN = regex(r"\bNaN\b|\bundefined\b|\[object Object\]|Traceback|\b\w+(Error|Exception):")
"""What no one would want to see recorded."""
_HOLDS_TESTS = regex(r"(?i)(test|spec)\w*\.(?!log|txt|md|xml|csv|out|html)\w+$")
_CASE = regex(
    r"^\s*(?:@test\s|it\s+[\"']|specify\s+[\"']|test\s+[\"']|TEST(?:_F|_P)?\s*\(|def test_|func test\w|public function test\w|"
    r"(?:public )?(?:async )?(?:void|Task) \w*[Tt]est\w*\().*"
)
_SKIP = regex(r"^\s*(?:skip\b|pending\b|xit\b|xdescribe\b|xcontext\b|GTEST_SKIP|\$this->markTest|throw XCTSkip|\[(?:Ignore|Fact\(Skip))|\bDISABLED_\w|,\s*skip:")  # fmt: skip


def foreign_findings(work: Comparison) -> Iterator[Finding]:
    """What was recorded anew, and cases that are gone or skipped, as far as lines tell."""
    files = [change for change in work.files if _is_foreign(change.path) and change.old is not None]
    kept = {line.strip() for change in work.files for line in (change.new or "").splitlines() if _CASE.match(line)}
    names = {change.path.rsplit("/", 1)[-1] for change in work.files if change.old is None}
    for change in files:
        path, old, new = (change.path, (change.old or "").splitlines(), (change.new or "").splitlines())
        if change.new is None:
            if _HOLDS_TESTS.search(path) and path.rsplit("/", 1)[-1] not in names:
                yield finding(Rule.TEST_DELETED, path, 1, f"{path} was deleted and nothing took its place.")
        elif _RECORDED.search(path):
            yield from _recorded(work, change)
        else:
            for line in (line for line in old if _CASE.match(line) and line.strip() not in kept):
                yield finding(Rule.TEST_DELETED, path, 1, f"`{line.strip()[:80]}` in {path} is gone.", line)
            for line in (Counter(filter(_SKIP.search, new)) - Counter(filter(_SKIP.search, old))).elements():
                sentence = f"A test in {path} no longer runs: `{line.strip()[:80]}`."
                yield finding(Rule.TEST_SKIPPED, path, new.index(line) + 1, sentence, line)


def _is_foreign(path: str) -> bool:
    is_read = language_of(path) is not None and not path.endswith(".snap")
    return not is_read and not is_ignored(path) and is_test_path(path)


def _recorded(work: Comparison, change: FileChange) -> Iterator[Finding]:
    """Recorded expectations; where code changed too, they may have to, but not to nonsense."""
    old, new = change.old or "", change.new or ""
    if {*old.split()} <= {*new.split()}:
        return
    broken = next((match for match in _BROKEN.finditer(new) if match[0] not in old), None)
    what = f"now has {broken[0]} in it" if broken else "was changed"
    line = new.count("\n", 0, broken.start()) + 1 if broken else 1
    sentence = f"{change.path} records what tests expect, and {what}."
    warn = work.product_changed and broken is None
    yield finding(Rule.ASSERTION_WEAKENED, change.path, line, sentence, broken[0] if broken else "", warn=warn)
