"""Test cases that were deleted, skipped, emptied or weakened."""

import re
from collections import Counter
from collections.abc import Iterator
from functools import cached_property

from ralph.core.findings import Finding, Rule
from ralph.verify.guards.assertions import Assertion, Key, all_literals
from ralph.verify.guards.changes import finding, is_ignored, is_test_path, language_of
from ralph.verify.guards.claims import Kind
from ralph.verify.guards.comparison import Comparison
from ralph.verify.guards.skips import Mark, build_tags, marks
from ralph.verify.guards.strength import Helpers, Loss, Weaker, losses, rows
from ralph.verify.guards.units import Source, Unit, likeness

_RECORDED = re.compile(
    r"\.(snap|golden|approved\.\w+)$|(^|/)(golden|snapshots|__snapshots__)/.*|(expected|golden)[^/]*\.\w+$"
)
_MOCKS = re.compile(
    r'(?:\bpatch(?: \. object)?|setattr|spyOn|stub|replace) \( (?:[\w. ]+ , )?"([\w.]+)"|\b[\w.]+ \. (\w+) = (?:jest|vi|sinon|mock|Mock|MagicMock)\b'
)


def case_findings(work: Comparison) -> Iterator[Finding]:
    """All findings about test cases."""
    yield from _Cases(work).findings()
    yield from _recorded(work)


class _Cases:
    def __init__(self, work: Comparison) -> None:
        self.work = work
        self.old_helpers = Helpers([old for old, _ in work.helper_pairs])
        self.new_helpers = Helpers(
            [unit for source in work.new for unit in source.units if unit.in_tests and not unit.is_test]
        )

    @cached_property
    def new_tests(self) -> list[Unit]:
        return [unit for source in self.work.new for unit in source.units if unit.is_test]

    @cached_property
    def changed_tests(self) -> list[Unit]:
        """Tests that are new, or say something new."""
        return [unit for unit in self.work.fresh if unit.is_test]

    @cached_property
    def claimed(self) -> frozenset[Key]:
        """What tests claim that are new or say something new, by themselves or through helpers."""
        return frozenset(
            claim.key for unit in self.changed_tests for claim in (*unit.assertions, *self.new_helpers.claims(unit))
        )

    @cached_property
    def twins(self) -> dict[frozenset[str], list[Unit]]:
        """Tests by what they name, to find one that says the same as another."""
        found: dict[frozenset[str], list[Unit]] = {}
        for unit in self.new_tests:
            found.setdefault(unit.literals, []).append(unit)
        return found

    @cached_property
    def added(self) -> Counter[Key]:
        """What tests claim now and did not before."""
        changed = (old for old, new in self.work.test_pairs if new is None or new.tokens != old.tokens)
        before = Counter(claim.key for old in changed for claim in old.assertions)
        return Counter(claim.key for unit in self.changed_tests for claim in unit.assertions) - before

    @cached_property
    def prepared(self) -> frozenset[str]:
        """The literals of fixtures and helpers."""
        units = (unit for source in self.work.new for unit in source.everything if unit.in_tests and not unit.is_test)
        return frozenset(literal for unit in units for literal in unit.literals)

    @cached_property
    def by_literal(self) -> dict[str, set[Unit]]:
        found: dict[str, set[Unit]] = {}
        for unit in self.changed_tests:
            for literal in unit.literals:
                found.setdefault(literal, set()).add(unit)
        return found

    def findings(self) -> Iterator[Finding]:
        gone: dict[str, list[Unit]] = {}
        for old, new in self.work.test_pairs:
            if new is not None and (self._as_good(old, new) or not self._absorbed(old)):
                yield from self._pair(old, new)
            elif new is None and not self._absorbed(old):
                gone.setdefault(old.path, []).append(old)
        for old, new in self.work.helper_pairs:
            if new is not None and old.assertions:
                yield from self._claims(old, new)
        for path, units in gone.items():
            yield from self._gone(path, units)
        yield from self._fresh()
        yield from self._outside()

    def _as_good(self, old: Unit, new: Unit) -> bool:
        return old.name == new.name or likeness(old.words, new.words) >= 0.8

    def _pair(self, old: Unit, new: Unit) -> Iterator[Finding]:
        if old.collected and not new.collected:
            sentence = f"{old.name} is in {new.path} now, where the test runner does not find it."
            yield finding(Rule.TEST_SKIPPED, new.path, new.line, sentence, self.work.excerpt(new.path, new.line))
        if old.tokens != new.tokens:
            yield from self._marks(old, new)
            yield from self._claims(old, new)
            yield from self._rows(old, new)
            yield from self._mocked(old, new)

    def _mocked(self, old: Unit, new: Unit) -> Iterator[Finding]:
        """A test that replaces what it tests checks only itself."""
        tested = {name for claim in old.assertions for side in claim.sides for name in re.findall(r"(\w+) \(", side)}
        for match in _MOCKS.finditer(new.text):
            name = (match[1] or match[2]).rsplit(".", 1)[-1]
            if name in tested and match[0] not in old.text:
                line = new.line_of(match.start())
                sentence = f"{new.name} replaces {name}, which it is there to test."
                yield finding(Rule.ASSERTION_WEAKENED, new.path, line, sentence, self.work.excerpt(new.path, line))

    def _marks(self, old: Unit | None, new: Unit) -> Iterator[Finding]:
        before = Counter(mark.label for mark in marks(old)) if old else Counter[str]()
        for mark in marks(new):
            if before[mark.label] > 0:
                before[mark.label] -= 1
                continue
            warn = (mark.weak and not any("-short" in check for check in self.work.checks)) or (
                old is None and not mark.hides_others
            )
            yield self._marked(mark, new, warn)

    def _marked(self, mark: Mark, unit: Unit, warn: bool) -> Finding:
        what = unit.name or unit.path
        sentence = f"{what} no longer runs in full: `{mark.label[:60]}` was added."
        if mark.hides_others:
            sentence = f"`{mark.label[:60]}` in {unit.path} keeps all other tests there from running."
        return finding(
            Rule.TEST_SKIPPED, unit.path, mark.line, sentence, self.work.excerpt(unit.path, mark.line), warn=warn
        )

    def _claims(self, old: Unit, new: Unit) -> Iterator[Finding]:
        if old.tokens == new.tokens:
            return
        dropped, taken = old.calls - new.calls, new.calls - old.calls
        helped_old, helped_new = self.old_helpers.claims(old, dropped), self.new_helpers.claims(new, taken)
        real = [claim for claim in (*new.assertions, *self.new_helpers.claims(new)) if claim.rank]
        had = [claim for claim in (*old.assertions, *self.old_helpers.claims(old)) if claim.is_real]
        empty_now = not new.calls - {"print", new.name} and bool(old.calls) and new.is_test
        trivial = [claim for claim in new.assertions if claim.was_real]
        if (had and not real and not all(map(self._moved, had))) or (
            not had and empty_now and len(old.tokens) - old.body > 3
        ):
            how = "checks only what is always true" if new.assertions else "has no assertion any more"
            sentence = f"{new.name} in {new.path} {how}."
            yield finding(Rule.TEST_EMPTIED, new.path, new.line, sentence, self.work.excerpt(new.path, new.line))
            if not trivial:
                return
        for weaker in losses(old, new, (helped_old, helped_new), self.prepared, self._moved):
            if real or (weaker.now is not None and weaker.now.was_real):
                yield self._weaker(weaker, old, new)

    def _moved(self, claim: Assertion) -> bool:
        """Whether another test took the claim over."""
        return self.added[claim.key] > 0 and claim.kind is not Kind.TRIVIAL

    def _weaker(self, weaker: Weaker, old: Unit, new: Unit) -> Finding:
        was, now = weaker.before, weaker.now
        line = now.line if now else new.line
        warn = False
        if weaker.loss is Loss.CHANGED:
            sentence = f"{new.name} expects something else than before: `{was.text[:80]}` became `{now.text[:80] if now else ''}`"
            warn = self.work.product_changed
            sentence += "." if warn else ", though no code changed that could explain it."
        elif weaker.loss is Loss.INPUT:
            sentence, warn = f"{new.name} tries something else than `{was.text[:80]}`.", True
        elif weaker.loss is Loss.WEAKENED:
            sentence = f"{new.name} checks only for {now.kind if now else 'nothing'} where it had `{was.text[:80]}`."
        else:
            sentence = f"{new.name} no longer checks `{was.text[:80]}`."
            silent = was.kind is Kind.PASSES and not re.search(r"(^|[ ,;{])_ (:?=|,)", new.text)
            warn = bool(was.names & self.work.gone) or (silent and self.work.product_changed)
        return finding(Rule.ASSERTION_WEAKENED, new.path, line, sentence, now.text if now else was.text, warn=warn)

    def _rows(self, old: Unit, new: Unit) -> Iterator[Finding]:
        before, now = Counter(rows(old)), Counter(rows(new))
        lost = before - now
        if not lost or all(self._row_kept(row, new) for row in lost):
            return
        row = next(row for row in lost if not self._row_kept(row, new))
        if now.total() < before.total():
            sentence = f"{new.name} lost {before.total() - now.total()} of its {before.total()} cases, `{row[:80]}` among them."
            yield finding(Rule.TEST_DELETED, new.path, new.line, sentence, row)
        elif now.total() == before.total():
            sentence = f"A case of {new.name} was changed: `{row[:80]}` is gone."
            yield finding(Rule.ASSERTION_WEAKENED, new.path, new.line, sentence, row, warn=self.work.product_changed)

    def _row_kept(self, row: str, new: Unit) -> bool:
        wanted = all_literals(row)
        others = (unit for unit in self.changed_tests if unit is not new)
        return any(wanted <= all_literals(now) for now in rows(new)) or any(wanted <= unit.literals for unit in others)

    def _absorbed(self, old: Unit) -> bool:
        """Whether other tests took over everything that a test claimed: merged, split, put into a table."""
        had = [claim for claim in (*old.assertions, *self.old_helpers.claims(old)) if claim.rank]
        if any(
            unit.tokens[unit.body :] == old.tokens[old.body :] and unit.scope == old.scope
            for unit in self.twins.get(old.literals, ())
        ):
            return True
        if not had:
            return any(likeness(old.words, unit.words) > 0.5 for unit in self.changed_tests[:200])
        return all(claim.key in self.claimed or self._taken_over(claim) for claim in had)

    def _taken_over(self, claim: Assertion) -> bool:
        if not claim.literals:
            about = claim.names - {"new", "get", "self"}
            others = (other for unit in self.changed_tests if about & unit.words.keys() for other in unit.assertions)
            return any(other.rank >= claim.rank and about & other.names and (other.kind is not claim.kind or other.detail == claim.detail) for other in others)
        wanted = claim.literals - self.prepared or claim.literals
        sets = [self.by_literal.get(literal, set()) for literal in wanted]
        return any(
            claim.names & unit.words.keys()
            and any(wanted <= example for example in self._examples(unit))
            and any(other.rank >= claim.rank for other in (*unit.assertions, *self.new_helpers.claims(unit)))
            for unit in set.intersection(*sets)
        )

    def _examples(self, unit: Unit) -> list[frozenset[str]]:
        """What a test tries: each row of its table, or all of it."""
        return [all_literals(row) for row in rows(unit)] or [unit.literals]

    def _gone(self, path: str, units: list[Unit]) -> Iterator[Finding]:
        commented, uncollected, deleted = [], [], []
        here = self.work.renames.get(path, path)
        known = {text for source in self.work.old if source.path == path for _, text in source.comments}
        comments = [
            text for source in self.work.new if source.path == here for _, text in source.comments if text not in known
        ]
        others = [unit for source in self.work.new for unit in source.units if not unit.is_test and unit.words]
        for unit in units:
            name = re.compile(rf"(def|func|fn|void|it|test|fun)\b.{{0,12}}\b{re.escape(unit.name)}")
            twin = next(
                (other for other in others if likeness(unit.words, other.words) > 0.8 or _hidden(unit, other)), None
            )
            if any(name.search(text) for text in comments):
                commented.append(unit)
            elif twin and (twin.in_tests or twin.name == unit.name):
                uncollected.append((unit, twin))
            else:
                deleted.append(unit)
        for unit in commented:
            yield finding(Rule.TEST_SKIPPED, here, unit.line, f"{unit.name} in {here} was commented out.", unit.name)
        for unit, twin in uncollected:
            sentence = f"{unit.name} became {twin.name} in {twin.path}, which the test runner does not run."
            yield finding(Rule.TEST_SKIPPED, twin.path, twin.line, sentence, self.work.excerpt(twin.path, twin.line))
        for unit in deleted:
            with_code = bool(self.work.gone & unit.words.keys())
            sentence = f"{unit.name} in {path} was deleted " + (
                "together with code that it tested." if with_code else "and nothing took its place."
            )
            yield finding(Rule.TEST_DELETED, path, unit.line, sentence, unit.text, warn=with_code)

    def _fresh(self) -> Iterator[Finding]:
        """New tests count too: they may hide others, or pretend to check."""
        continued = {new for _, new in self.work.test_pairs}
        for unit in self.new_tests:
            if unit in continued:
                continue
            yield from self._marks(None, unit)
            claims = (*unit.assertions, *self.new_helpers.claims(unit))
            if claims and not any(claim.is_real for claim in claims):
                sentence = f"The new test {unit.name} checks only what is always true."
                yield finding(Rule.TEST_EMPTIED, unit.path, unit.line, sentence, claims[0].text)

    def _outside(self) -> Iterator[Finding]:
        for source in self.work.new:
            before = self.work.origin.get(source.outside)
            is_test_code = is_test_path(source.path) or any(unit.is_test for unit in source.units)
            if is_test_code and (before is None or before.tokens != source.outside.tokens):
                yield from self._marks(before or (source.outside if not source.units else None), source.outside)
            if is_test_code and source.path.endswith(".go"):
                yield from self._tags(source)

    def _tags(self, source: Source) -> Iterator[Finding]:
        back = {new: old for old, new in self.work.renames.items()}
        before = next((old for old in self.work.old if old.path == back.get(source.path, source.path)), None)
        known = {mark.label for mark in build_tags(before.comments)} if before else None
        for mark in build_tags(source.comments):
            if known is not None and mark.label not in known:
                yield self._marked(mark, source.outside, mark.weak)


def _hidden(unit: Unit, other: Unit) -> bool:
    """Whether a name was bent so that the runner passes by: `test_x` to `_test_x`, `TestX` to `xTestX`."""
    bent = (
        unit.name.lower() in other.name.lower()
        or unit.name.lower().removeprefix("test").strip("_") == other.name.lower()
    )
    return bent and likeness(unit.words, other.words) > 0.5


def _recorded(work: Comparison) -> Iterator[Finding]:
    """Recorded expectations, and test files in languages that are not read."""
    fresh = {change.path.rsplit("/", 1)[-1] for change in work.files if change.old is None}
    for change in work.files:
        if change.old is None or change.old == change.new or is_ignored(change.path) or not is_test_path(change.path):
            continue
        name = change.path.rsplit("/", 1)[-1]
        recorded = _RECORDED.search(change.path) and (language_of(change.path) is None or change.path.endswith(".snap"))
        if change.new is not None and recorded and not {*change.old.split()} <= {*change.new.split()}:
            sentence = f"{change.path} records what tests expect, and was changed."
            yield finding(Rule.ASSERTION_WEAKENED, change.path, 1, sentence, warn=work.product_changed)
        elif (
            change.new is None
            and language_of(change.path) is None
            and re.search(r"(?i)(test|spec)\w*\.\w+$", name)
            and name not in fresh
        ):
            yield finding(Rule.TEST_DELETED, change.path, 1, f"{change.path} was deleted and nothing took its place.")
