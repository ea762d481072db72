"""Test cases that were deleted, skipped, emptied or weakened."""

import re
from collections import Counter
from collections.abc import Iterator

from ralph.core.findings import Finding, Rule
from ralph.verify.guards.assertions import all_literals
from ralph.verify.guards.changes import finding, is_ignored, is_test_path, language_of
from ralph.verify.guards.claims import Kind
from ralph.verify.guards.comparison import Comparison
from ralph.verify.guards.heirs import Heirs
from ralph.verify.guards.skips import Mark, build_tags, marks
from ralph.verify.guards.strength import Loss, Weaker, losses, rows
from ralph.verify.guards.units import Unit, likeness, matched

_RECORDED = re.compile(
    r"\.(snap|golden|approved\.\w+)$|(^|/)(golden|snapshots|__snapshots__)/.*|(expected|golden)[^/]*\.\w+$"
)
_MOCKS = re.compile(
    r'(?:\bpatch(?: \. object)?|setattr|spyOn|stub|replace) \( (?:[\w. ]+ , )?"([\w.]+)"|\b[\w.]+ \. (\w+) = (?:jest|vi|sinon|mock|Mock|MagicMock)\b'
)
_DEFINES = r"(def|func|fn|void|it|test|fun)\b.{0,12}\b"
_MANY = 3
"""More tests than this that went with their file are told in one finding."""


def case_findings(work: Comparison) -> Iterator[Finding]:
    """All findings about test cases."""
    yield from _Cases(work).findings()
    yield from _recorded(work)


class _Cases:
    def __init__(self, work: Comparison) -> None:
        self.work = work
        self.heirs = Heirs(work)

    def findings(self) -> Iterator[Finding]:
        gone: dict[str, list[Unit]] = {}
        for old, new in self.work.test_pairs:
            is_sure = new is not None and (old.name == new.name or likeness(old.words, new.words) >= 0.8)
            if not is_sure and self.heirs.took_all(old):
                continue
            if new is None:
                gone.setdefault(old.path, []).append(old)
            else:
                yield from self._pair(old, new)
        for old, new in self.work.helper_pairs:
            if new is not None and old.assertions and old.tokens != new.tokens:
                yield from self._claims(old, new)
        for path, units in gone.items():
            yield from self._gone(path, units)
        yield from self._fresh()
        yield from self._outside()

    def _found(self, rule: Rule, unit: Unit, line: int, sentence: str, *, warn: bool = False) -> Finding:
        return finding(rule, unit.path, line, sentence, self.work.excerpt(unit.path, line), warn=warn)

    def _pair(self, old: Unit, new: Unit) -> Iterator[Finding]:
        if old.collected and not new.collected:
            sentence = f"{old.name} is in {new.path} now, where the test runner does not find it."
            yield self._found(Rule.TEST_SKIPPED, new, new.line, sentence)
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
                sentence = f"{new.name} replaces {name}, which it is there to test."
                yield self._found(Rule.ASSERTION_WEAKENED, new, new.line_of(match.start()), sentence)

    def _marks(self, old: Unit | None, new: Unit) -> Iterator[Finding]:
        before = Counter(mark.label for mark in marks(old)) if old else Counter[str]()
        asked_short = any("-short" in check for check in self.work.checks)
        for mark in marks(new):
            before[mark.label] -= 1
            if before[mark.label] < 0:
                is_new = old is None and not mark.hides_others
                yield self._marked(mark, new, warn=is_new or (mark.weak and not asked_short))

    def _marked(self, mark: Mark, unit: Unit, *, warn: bool) -> Finding:
        sentence = f"{unit.name or unit.path} no longer runs in full: `{mark.label[:60]}` was added."
        if mark.hides_others:
            sentence = f"`{mark.label[:60]}` in {unit.path} keeps all other tests there from running."
        return self._found(Rule.TEST_SKIPPED, unit, mark.line, sentence, warn=warn)

    def _claims(self, old: Unit, new: Unit) -> Iterator[Finding]:
        had = [claim for claim in self.heirs.old_claims(old) if claim.is_real]
        known = {claim.key for claim in had}
        left = [claim for claim in self.heirs.claims(new) if claim.rank or claim.key in known]
        stopped = not had and new.is_test and bool(old.calls) and not new.calls - {"print"}
        if stopped or (had and not left and not all(map(self.heirs.took, had))):
            how = "checks only what is always true" if new.assertions else "has no assertion any more"
            yield self._found(Rule.TEST_EMPTIED, new, new.line, f"{new.name} in {new.path} {how}.")
        helped_old = self.heirs.old_helpers.claims(old, old.calls - new.calls)
        helped_new = self.heirs.new_helpers.claims(new, new.calls - old.calls)
        for weaker in losses(old, new, (helped_old, helped_new), self.heirs.prepared, self.heirs.took):
            if left or (weaker.now is not None and weaker.now.was_real):
                yield self._weaker(weaker, new)

    def _weaker(self, weaker: Weaker, new: Unit) -> Finding:
        was, now = weaker.before, weaker.now
        before, after = f"`{was.text[:80]}`", f"`{now.text[:80]}`" if now else "nothing"
        warn = False
        if weaker.loss is Loss.CHANGED:
            warn = self.work.product_changed
            why = "" if warn else ", though no code changed that could explain it"
            sentence = f"{new.name} expects something else than before: {before} became {after}{why}."
        elif weaker.loss is Loss.INPUT:
            sentence, warn = f"{new.name} tries something else than {before}.", True
        elif weaker.loss is Loss.WEAKENED:
            less = f"checks only for {now.kind}" if now and now.kind is not was.kind else f"asks for less with {after}"
            sentence = f"{new.name} {less} where it had {before}."
        else:
            sentence = f"{new.name} no longer checks {before}."
            is_heeded = was.kind is Kind.PASSES and not re.search(r"(^|[ ,;{])_ (:?=|,)", new.text)
            warn = bool(was.names & self.work.gone) or (is_heeded and self.work.product_changed)
        return finding(
            Rule.ASSERTION_WEAKENED, new.path, now.line if now else new.line, sentence, (now or was).text, warn=warn
        )

    def _rows(self, old: Unit, new: Unit) -> Iterator[Finding]:
        before, now = rows(old), rows(new)
        kept = [all_literals(row) for row in now]
        lost = [row for row in before - now if not self._row_kept(all_literals(row), kept, new)]
        if lost and now.total() < before.total():
            sentence = f"{new.name} lost {before.total() - now.total()} of its {before.total()} cases, `{lost[0][:80]}` among them."
            yield finding(Rule.TEST_DELETED, new.path, new.line, sentence, lost[0])
        elif lost and now.total() == before.total():
            sentence = f"A case of {new.name} was changed: `{lost[0][:80]}` is gone."
            yield finding(
                Rule.ASSERTION_WEAKENED, new.path, new.line, sentence, lost[0], warn=self.work.product_changed
            )

    def _row_kept(self, wanted: frozenset[str], kept: list[frozenset[str]], new: Unit) -> bool:
        return any(wanted <= row for row in kept) or bool(self.heirs.naming(wanted) - {new})

    def _gone(self, path: str, units: list[Unit]) -> Iterator[Finding]:
        here = self.work.renames.get(path, path)
        known = {text for source in self.work.old if source.path == path for _, text in source.comments}
        now = [text for source in self.work.new if source.path == here for _, text in source.comments]
        comments = "\n".join(text for text in now if text not in known)
        others = [unit for unit in self.work.fresh if unit.name and unit.in_tests and not unit.is_test]
        deleted = []
        for unit, twin in matched(units, others, self.work.renames):
            if re.search(_DEFINES + re.escape(unit.name), comments):
                yield finding(
                    Rule.TEST_SKIPPED, here, unit.line, f"{unit.name} in {here} was commented out.", unit.name
                )
            elif twin is not None:
                sentence = f"{unit.name} became {twin.name} in {twin.path}, which the test runner does not run."
                yield self._found(Rule.TEST_SKIPPED, twin, twin.line, sentence)
            else:
                deleted.append(unit)
        is_whole = here not in self.work.lines and len(deleted) > _MANY
        for unit in deleted[:1] if is_whole else deleted:
            with_code = bool(self.work.gone & unit.words.keys())
            what = (
                f"{path} was deleted with its {len(deleted)} tests"
                if is_whole
                else f"{unit.name} in {path} was deleted"
            )
            end = "together with code that it tested" if with_code else "and nothing took its place"
            yield finding(Rule.TEST_DELETED, path, unit.line, f"{what} {end}.", unit.text, warn=with_code)

    def _fresh(self) -> Iterator[Finding]:
        """New tests count too: they may hide others, or pretend to check."""
        for unit in self.heirs.tests:
            if unit in self.work.origin:
                continue
            yield from self._marks(None, unit)
            claims = self.heirs.claims(unit)
            if claims and not any(claim.is_real for claim in claims):
                sentence = f"The new test {unit.name} checks only what is always true."
                yield self._found(Rule.TEST_EMPTIED, unit, claims[0].line, sentence)

    def _outside(self) -> Iterator[Finding]:
        """Marks on classes, groups and whole files."""
        for source in self.work.new:
            before = self.work.source_before(source.path)
            if not (is_test_path(source.path) or any(unit.is_test for unit in source.units)):
                continue
            was = before.outside if before else None
            yield from self._marks(was if was or source.units else source.outside, source.outside)
            known = {mark.label for mark in build_tags(before.comments)} if before else None
            for mark in build_tags(source.comments):
                if known is not None and mark.label not in known:
                    yield self._marked(mark, source.outside, warn=mark.weak)


def _recorded(work: Comparison) -> Iterator[Finding]:
    """Recorded expectations, and test files in languages that are not read."""
    fresh = {change.path.rsplit("/", 1)[-1] for change in work.files if change.old is None}
    for change in work.files:
        path, is_read = change.path, language_of(change.path) is not None and not change.path.endswith(".snap")
        if change.old is None or is_read or is_ignored(path) or not is_test_path(path):
            continue
        name = path.rsplit("/", 1)[-1]
        if change.new is None:
            if re.search(r"(?i)(test|spec)\w*\.\w+$", name) and name not in fresh:
                yield finding(Rule.TEST_DELETED, path, 1, f"{path} was deleted and nothing took its place.")
        elif _RECORDED.search(path) and not {*change.old.split()} <= {*change.new.split()}:
            sentence = f"{path} records what tests expect, and was changed."
            yield finding(Rule.ASSERTION_WEAKENED, path, 1, sentence, warn=work.product_changed)
