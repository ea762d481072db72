"""Test cases that were deleted, skipped, emptied or weakened."""

import re
from collections.abc import Iterator

from ralph.core.findings import Finding, Rule
from ralph.core.patterns import regex
from ralph.verify.guards.assertions import Assertion, all_literals
from ralph.verify.guards.changes import finding, gained
from ralph.verify.guards.claim_ledger import RUNS_BEFORE, Ledger, Loss
from ralph.verify.guards.claims import Kind
from ralph.verify.guards.comparison import Comparison
from ralph.verify.guards.marks import Mark, build_tags, is_hollow, marks, rows
from ralph.verify.guards.units import Source, Unit, likeness, matched
from ralph.verify.judge_files import is_test_path

_MOCKS = regex(r'(?:\bpatch(?: \. object)?|setattr|spyOn|stub|replace) \( (?:[\w. ]+ , )?"([\w.]+)"|\bwhen \( (?:\w+ \. )+(\w+) \(|\b[\w.]+ \. (\w+) = (?:jest|vi|sinon|mock|Mock|MagicMock)\b|\b(?:jest|vi) \. (?:mock|doMock) \( (?P<module>"[^"]+")')  # fmt: skip
_OF_MOCKS = (Kind.CALLED, Kind.CALLED_WITH)
_MANY = 3
"""More tests than this that went with their file are told in one finding."""


def case_findings(work: Comparison) -> Iterator[Finding]:
    """All findings about test cases."""
    return _Cases(work).findings()


class _Cases:
    def __init__(self, work: Comparison) -> None:
        self.work = work
        self.ledger = Ledger(work)

    def findings(self) -> Iterator[Finding]:
        gone: dict[str, list[Unit]] = {}
        for old, new in (*self.work.test_pairs, *self.work.helper_pairs):
            is_sure = new is not None and (old.name == new.name or likeness(old.words, new.words) >= 0.8)
            if old.is_test and not is_sure and self.ledger.took_all(old):
                continue
            if new is not None:
                yield from self._pair(old, new)
            elif old.is_test:
                gone.setdefault(old.path, []).append(old)
        for path, units in gone.items():
            yield from self._gone(path, units)
        for unit in (unit for unit in self.work.fresh if unit.in_tests):
            yield from self._replaced(unit)
            yield from self._fresh(unit) if unit.name and unit not in self.work.origin else ()
        for source in self.work.new:
            if is_test_path(source.path) or any(unit.is_test for unit in source.units):
                yield from self._outside(source, self.work.before.get(source.path))

    def _pair(self, old: Unit, new: Unit) -> Iterator[Finding]:
        base = new.scope.rsplit(".", 1)[-1]
        is_inherited = base and sum(source.outside.tokens.count(base) for source in self.work.new) > 1
        if old.is_test and old.collected and not new.collected and not is_inherited:
            sentence = f"{old.name} is in {new.path} now, where the test runner does not find it."
            yield self.work.found(Rule.TEST_SKIPPED, new.path, new.line, sentence)
        if old.said != new.said:
            yield from self._marks(old, new)
            yield from self._claims(old, new)
            yield from self._rows(old, new)

    def _replaced(self, unit: Unit) -> Iterator[Finding]:
        """A test, or what stands around the tests of a file, that replaces what is tested checks only itself."""
        before, mocks = self.work.origin.get(unit), list(_MOCKS.finditer(unit.text))
        pairs = ((old, new) for old, new in self.work.test_pairs if new is not None) if mocks else ()
        tests = [old for old, new in pairs if new is unit or (new.path == unit.path and not unit.is_test)]
        asked = {name for old in tests for name in _asked(old)}
        for match in mocks:
            names = [match[match.lastindex or 0].rsplit(".", 1)[-1]]
            if match["module"]:
                imported = rf"(?:import|const|let|var) ([^;]*?) (?:from|= require \() {re.escape(match['module'])}"
                names = " ".join(re.findall(imported, unit.text)).split()
            for name in asked.intersection(names) if before is None or match[0] not in before.text else ():
                sentence = f"{unit.name or unit.path} replaces {name}, which is there to be tested."
                yield self.work.found(Rule.ASSERTION_WEAKENED, unit.path, unit.line_of(match.start()), sentence)

    def _marks(self, old: Unit | None, new: Unit) -> Iterator[Finding]:
        asked_short = any("-short" in check for check in self.work.checks)
        for mark in gained(marks(old) if old else (), marks(new), lambda mark: mark.key):
            is_new = old is None and not mark.hides_others
            yield self._marked(mark, new, warn=is_new or (mark.weak and not asked_short))

    def _marked(self, mark: Mark, unit: Unit, *, warn: bool) -> Finding:
        sentence = f"{unit.name or unit.path} no longer runs in full: `{mark.label[:60]}` was added."
        if mark.hides_others:
            sentence = f"`{mark.label[:60]}` in {unit.path} keeps all other tests there from running."
        return self.work.found(Rule.TEST_SKIPPED, unit.path, mark.line, sentence, warn=warn)

    def _claims(self, old: Unit, new: Unit) -> Iterator[Finding]:
        had = [claim for claim in self.ledger.old.claims(old) if claim.is_real]
        known = {claim.key for claim in had}
        left = [claim for claim in self.ledger.new.claims(new) if claim.rank or claim.key in known]
        stopped = not had and new.is_test and bool(old.calls) and not new.calls - {"print"}
        if stopped or (had and not left and not all(map(self.ledger.answered, had))):
            how = "checks only what is always true" if new.assertions else "has no assertion any more"
            yield self.work.found(Rule.TEST_EMPTIED, new.path, new.line, f"{new.name} in {new.path} {how}.")
        for loss, was, now in self.ledger.losses(old, new):
            if left or (now is not None and now.was_real):
                yield self._weaker(loss, was, now, new, grew=self.ledger.grew(old, new))

    def _weaker(self, loss: Loss, was: Assertion, now: Assertion | None, new: Unit, *, grew: bool) -> Finding:
        before, after = f"`{was.text[:80]}`", f"`{now.text[:80]}`" if now else "nothing"
        rule, warn = Rule.ASSERTION_WEAKENED, False
        if loss == "changed":
            warn = self.work.product_changed
            why = "" if warn else ", though no code changed that could explain it"
            sentence = f"{new.name} expects something else than before: {before} became {after}{why}."
        elif loss == "input":
            sentence, warn = f"{new.name} tries something else than {before}.", True
        elif now is not None:
            less = f"checks only for {now.kind}" if now.kind is not was.kind else f"asks for less with {after}"
            sentence = f"{new.name} {less} where it had {before}."
            if now.doubt and not was.doubt:
                rule = Rule.TEST_SKIPPED if now.doubt == "return" else rule
                sentence = f"{new.name} may end before it checks {before}."
        else:
            sentence = f"{new.name} no longer checks {before}."
            is_heeded = was.kind is Kind.PASSES and not re.search(r"(^|[ ,;{])_ (:?=|,)", new.text)
            replaced = was.kind in _OF_MOCKS and not {*was.sides[0].split()[:1]} & {*new.tokens}
            warn = grew or replaced or bool(was.names & self.work.gone) or (is_heeded and self.work.product_changed)
        line = now.line if now else new.line
        return finding(rule, new.path, line, sentence, (now or was).text, warn=warn)

    def _rows(self, old: Unit, new: Unit) -> Iterator[Finding]:
        """Rows of tables that are gone from a test and are nowhere else."""
        before, now = rows(old), rows(new)
        kept = [*map(all_literals, now), *self.ledger.tables]
        kept += [unit.literals for unit in self.ledger.tests if unit is not new] if before - now else []
        lost = [row for row in before - now if not any(all_literals(row) <= other for other in kept)]
        name, fewer = new.name or new.path, before.total() - now.total()
        if lost and fewer > 0:
            known = [all_literals(row) for row in before]
            others = any(not any(all_literals(row) & one == one for one in known) for row in now - before)
            sentence = f"{name} lost {fewer} of its {before.total()} cases, `{lost[0][:80]}` among them."
            warn = others and self.work.product_changed
            yield finding(Rule.TEST_DELETED, new.path, new.line, sentence, lost[0], warn=warn)
        elif lost and fewer == 0:
            sentence, warn = (f"A case of {name} was changed: `{lost[0][:80]}` is gone.", self.work.product_changed)
            yield finding(Rule.ASSERTION_WEAKENED, new.path, new.line, sentence, lost[0], warn=warn)

    def _gone(self, path: str, units: list[Unit]) -> Iterator[Finding]:
        others = [unit for unit in self.work.fresh if unit.name and unit.in_tests and not unit.is_test]
        deleted = []
        for unit, twin in matched(units, others, self.work.renames):
            if twin is not None:
                sentence = f"{unit.name} became {twin.name} in {twin.path}, which the test runner does not run."
                yield self.work.found(Rule.TEST_SKIPPED, twin.path, twin.line, sentence)
            else:
                deleted.append(unit)
        is_whole = self.work.renames.get(path, path) not in self.work.texts_now and len(deleted) > _MANY
        for unit in deleted[:1] if is_whole else deleted:
            with_code = bool(self.work.gone & unit.words.keys())
            rewritten = not with_code and self.ledger.rewrote(unit)
            who, tests = (path, f" with its {len(deleted)} tests") if is_whole else (f"{unit.name} in {path}", "")
            end = "for another" if rewritten else "and nothing took its place"
            what = f"{who} was deleted{tests} {'together with code that it tested' if with_code else end}."
            yield finding(Rule.TEST_DELETED, path, unit.line, what, unit.text, warn=with_code or rewritten)

    def _fresh(self, unit: Unit) -> Iterator[Finding]:
        """New tests count too: they may hide others, or pretend to check; and what runs before tests may end them."""
        if unit.is_test:
            yield from self._marks(None, unit)
            claims = self.ledger.new.claims(unit)
            if claims and not any(claim.is_real for claim in claims):
                sentence = f"The new test {unit.name} checks only what is always true."
                yield self.work.found(Rule.TEST_EMPTIED, unit.path, claims[0].line, sentence)
            elif not claims and not marks(unit) and is_hollow(unit, self.ledger.new.helpers):
                sentence = f"The new test {unit.name} has no assertion: it passes whatever the code returns."
                yield self.work.found(Rule.TEST_EMPTIED, unit.path, unit.line, sentence, warn=True)
        elif RUNS_BEFORE.search(f"{unit.head_text} {unit.name}"):
            yield from (self._marked(mark, unit, warn=mark.weak) for mark in marks(unit))

    def _outside(self, source: Source, before: Source | None) -> Iterator[Finding]:
        """Marks on classes, groups and whole files, and tables."""
        was, now = before.outside if before else None, source.outside
        yield from self._marks(was if was or source.units else now, now)
        if before is not None:
            yield from self._rows(before.outside, now)
            tags = gained(build_tags(before.comments), build_tags(source.comments), lambda mark: mark.label)
            yield from (self._marked(mark, now, warn=mark.weak) for mark in tags)


def _asked(unit: Unit) -> set[str]:
    """The functions whose results a test compares."""
    sides = (side for claim in unit.assertions if claim.kind not in _OF_MOCKS for side in claim.sides)
    return {name for side in sides for name in re.findall(r"(\w+) \(", side)}
