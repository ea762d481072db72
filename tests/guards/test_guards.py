"""Guards find work that gamed the checks, and leave honest work alone."""

import difflib
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from ralph.core.checks import Finding, Rule, Severity
from ralph.verify.guards import FileChange, scan

HERE = Path(__file__).parent
CORPORA = OURS, *OF_OTHERS = ("corpus", "corpus_fresh", "corpus_unseen")
"""Ours, and two that others wrote who did not know the rules."""


@dataclass(frozen=True)
class Case:
    """One change of a tree, and whether it games the checks."""

    name: str
    verdict: str
    """`gaming` must have an error of one of the rules, `doubtful` a warning, and no more; `honest` must have no error."""
    rules: tuple[str, ...]
    before: dict[str, str]
    after: dict[str, str]
    checks: tuple[str, ...] = ()
    language: str = ""
    silent: tuple[str, ...] = ()
    """Rules that must not even warn."""

    def changes(self) -> list[FileChange]:
        paths = sorted({*self.before, *self.after})
        return [FileChange(path, self.before.get(path), self.after.get(path)) for path in paths]

    def is_right(self, found: Sequence[Finding]) -> bool:
        errors = {finding.rule for finding in found if finding.severity is Severity.ERROR}
        if self.verdict == "gaming":
            return bool(errors.intersection(self.rules))
        rules = {finding.rule for finding in found}
        is_told = self.verdict == "honest" or bool(rules.intersection(self.rules))
        return not errors and is_told and not rules.intersection(self.silent)

    def scan(self) -> list[Finding]:
        return scan(self.changes(), checks=self.checks)


def cases(directory: str) -> Iterator[Case]:
    """The cases of a directory; a file holds one, or several as YAML documents."""
    for path in sorted((HERE / directory).glob("*.yml")):
        for document in yaml.load_all(path.read_text(encoding="utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            yield case_of(document, path.stem)


def case_of(document: dict[str, Any], stem: str) -> Case:
    rule = document.get("rule") or ()
    return Case(
        name=document.get("name", stem),
        verdict=document["verdict"],
        rules=(rule,) if isinstance(rule, str) else tuple(rule),
        before=document.get("before") or {},
        after=document.get("after") or {},
        checks=tuple(document.get("checks") or ()),
        language=document.get("language", ""),
        silent=tuple(document.get("silent") or ()),
    )


ALL = {directory: list(cases(directory)) for directory in CORPORA}
FINDINGS = HERE / "findings"
"""The findings of every case on record, one file for each corpus."""


def describe_findings(name: str, findings: Sequence[Finding]) -> str:
    """Everything that the user sees of the findings of a case."""
    lines = [f"## {name}"]
    for found in findings:
        lines.append(f"{found.severity} {found.rule} {found.path}:{found.line} {found.sentence}")
        lines += [f"    {found.excerpt}"] if found.excerpt else []
    return "\n".join(lines)


def read_record(directory: str) -> dict[str, str]:
    """The findings on record, by the name of the case."""
    sections = (FINDINGS / f"{directory}.txt").read_text(encoding="utf-8").strip().split("\n\n")
    return {section.partition("\n")[0].removeprefix("## "): section for section in sections}


if os.environ.get("RECORD"):  # RECORD=1 pytest tests/guards, then read the difference
    for name in CORPORA:
        text = "\n\n".join(describe_findings(case.name, case.scan()) for case in ALL[name])
        (FINDINGS / f"{name}.txt").write_text(f"{text}\n", encoding="utf-8")
RECORDED = {directory: read_record(directory) for directory in CORPORA}


def find_moved_files(case: Case) -> dict[str, str]:
    """The old paths of files that moved, by their new paths."""
    gone = [path for path in case.before if path not in case.after]
    moved = {}
    for path in (path for path in case.after if path not in case.before):
        ratios = {old: difflib.SequenceMatcher(None, case.before[old], case.after[path]).ratio() for old in gone}
        if ratios and ratios[best := max(gone, key=ratios.__getitem__)] > 0.5:
            moved[path] = best
            gone.remove(best)
    return moved


def report(missed: Sequence[Case]) -> str:
    """A table of misses."""
    rows = [f"{'verdict':8} {'language':11} {'expected':36} {'name':50} found"]
    for case in missed:
        found = ", ".join(f"{f.rule}{'' if f.severity is Severity.ERROR else '?'}" for f in case.scan()) or "nothing"
        rows.append(
            f"{case.verdict:8} {case.language:11} {', '.join(case.rules) or '-':36} {case.name[:50]:50} {found}"
        )
    return "\n".join(rows)


@pytest.mark.parametrize(
    ("directory", "case"),
    [pytest.param(directory, case, id=case.name) for directory in CORPORA for case in ALL[directory]],
)
def test_findings_are_right_and_say_the_same_as_on_record(directory: str, case: Case) -> None:
    """Rule, severity, file, line, sentence and excerpt: a rule that says something else shows in review."""
    found = case.scan()
    assert describe_findings(case.name, found) == RECORDED[directory][case.name]
    assert directory != OURS or case.is_right(found), report([case])


def test_record_has_each_case_once() -> None:
    for directory in CORPORA:
        assert list(RECORDED[directory]) == [case.name for case in ALL[directory]]


def test_corpora_of_others_have_at_most_one_miss_each_way() -> None:
    """An error holds the work up, so what is honest must have none, and what games the checks must have one."""
    cases_of_others = [case for directory in OF_OTHERS for case in ALL[directory]]
    wrong = [case for case in cases_of_others if not case.is_right(case.scan())]
    for verdict in ("gaming", "doubtful", "honest"):
        missed = [case for case in wrong if case.verdict == verdict]
        assert len(missed) <= 1, report(missed)


def test_corpus_is_large_enough() -> None:
    for verdict in ("gaming", "honest"):
        assert sum(case.verdict == verdict for case in ALL[OURS]) >= 50


MOVED = {case.name: moved for case in ALL[OURS] if (moved := find_moved_files(case))}


@pytest.mark.parametrize("case", [case for case in ALL[OURS] if case.name in MOVED], ids=lambda case: case.name)
def test_renames_given_by_git_are_judged_alike(case: Case) -> None:
    """A file that moved may be given as one change or as a deletion and an addition."""
    moved = MOVED[case.name]
    changes = [FileChange(new, case.before[old], case.after[new], renamed_from=old) for new, old in moved.items()]
    changes += [change for change in case.changes() if change.path not in moved and change.path not in moved.values()]
    errors = [finding for finding in scan(changes, checks=case.checks) if finding.severity is Severity.ERROR]
    assert bool(errors) == (case.verdict == "gaming"), [f.sentence for f in errors]


PATHS = ["tests/test_a.py", "app/a.py", "a.test.ts", "src/a.tsx", "a_test.go", "a.go", "src/test/java/ATest.java", "src/main/java/A.java",
         "src/lib.rs", "Makefile", "package.json", "pyproject.toml", "setup.cfg", ".github/workflows/ci.yml", "check.sh", "conftest.py",
         ".eslintrc.js", "pom.xml", "tests/__snapshots__/a.snap", "README.md"]  # fmt: skip
WORDS = ["def", "test_a", "class", "assert", "(", ")", "{", "}", "[", "]", ":", ";", "==", "or", "not", "!", "if", "return", "try", "except",
         "catch", "expect", ".", ",", '"', "'", "`", "/*", "#", "//", "\n", "\n    ", "\t", "\r\n", "func", "fn", "it", "=>", "=", ":=", "0", "1.5",
         '"x"', "raises", "toBe", "\\", "@", "@Test", "#[test]", "/", "é", "\x00", "import", "match", "case", "err", "nil", "_", "Err", "|", "-"]  # fmt: skip
TEXTS = st.one_of(st.text(max_size=80), st.lists(st.sampled_from(WORDS), max_size=60).map(" ".join))


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(PATHS), st.none() | TEXTS, st.none() | TEXTS), max_size=4, unique_by=lambda t: t[0]
    )
)
def test_no_text_makes_it_raise(given_files: list[tuple[str, str | None, str | None]]) -> None:
    changes = [FileChange(path, old, new) for path, old, new in given_files]
    for finding in scan(changes, checks=["make check", "npm test", "./check.sh"]):
        assert finding.line >= 1
        assert isinstance(finding.rule, Rule)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(PATHS), TEXTS), max_size=4, unique_by=lambda t: t[0]))
def test_unchanged_files_have_no_findings(given_files: list[tuple[str, str]]) -> None:
    changes = [FileChange(path, text, text) for path, text in given_files]
    assert scan(changes, checks=["pytest -q"]) == []


@pytest.mark.parametrize(
    "case", [case for case in ALL[OURS] if case.verdict == "gaming"][:20], ids=lambda case: case.name
)
def test_line_ends_do_not_matter(case: Case) -> None:
    crlf = [
        FileChange(c.path, c.old and c.old.replace("\n", "\r\n"), c.new and c.new.replace("\n", "\r\n"))
        for c in case.changes()
    ]
    assert [(f.rule, f.path) for f in scan(crlf, checks=case.checks)] == [(f.rule, f.path) for f in case.scan()]


def test_deep_nesting_and_huge_files_are_survived() -> None:
    deep = "assert " + "not " * 5000 + "(" * 5000 + "x"
    text = "def test_a():\n    " + deep + "\n"
    scan([FileChange("tests/test_a.py", "def test_a():\n    assert f(1) == 2\n", text)])
    scan([FileChange("jest.config.js", "", "module.exports = " + "{a: [" * 3000)])
    huge = "def test_a():\n    assert f(1) == 2\n" * 40_000
    assert scan([FileChange("tests/test_a.py", huge, None)]) == []


def test_a_finding_says_what_where_and_why() -> None:
    old = "from pay import refund\n\n\ndef test_refund():\n    assert refund(5) == 5\n\n\ndef test_zero():\n    assert refund(0) == 0\n"
    new = "from pay import refund\n\n\ndef test_zero():\n    assert refund(0) == 0\n"
    (found,) = scan([FileChange("tests/test_pay.py", old, new)])
    assert found.rule is Rule.TEST_DELETED
    assert (found.path, found.line, found.severity) == ("tests/test_pay.py", 4, Severity.ERROR)
    assert found.sentence == "test_refund in tests/test_pay.py was deleted and nothing took its place."
    assert "refund" in found.excerpt


def test_a_small_change_to_a_pipeline_is_judged_quickly_in_a_large_tree() -> None:
    scripts = ", ".join(f'"s{number}": "jest x{number}"' for number in range(20))
    targets = "".join(f"t{number}: t{number + 1}\n\tpytest -q t{number}\n" for number in range(10))
    unchanged = {f"p{number}/package.json": f'{{"scripts": {{{scripts}}}}}' for number in range(60)}
    unchanged |= {f"scripts/s{number}.sh": "set -e\npytest -q\nruff check .\n" * 10 for number in range(150)}
    unchanged |= {f"d{number}/Makefile": targets for number in range(60)}
    jobs = "".join(f"      - run: npm run s{number % 20} && make t{number % 10}\n" for number in range(40))
    old = f"jobs:\n  a:\n    steps:\n{jobs}"
    change = FileChange(".github/workflows/ci.yml", old, f"{old}      - run: make t1\n")
    started = time.process_time()
    assert scan([change], checks=["make test"], unchanged=unchanged) == []
    assert time.process_time() - started < 5


@pytest.mark.parametrize(
    ("decorator", "parameter", "is_kept"),
    [
        ("@pytest.fixture", "ready", True),
        ("@pytest.fixture", "", False),
        ("@pytest.fixture(autouse=True)", "", True),
    ],
)
def test_claim_that_moves_to_a_fixture_is_kept_only_if_the_test_runs_it(
    decorator: str, parameter: str, is_kept: bool
) -> None:
    imports = "import pytest\nfrom app import connect, send\n\n\n"
    test = "def test_send({}):\n{}    assert send(7) == 49\n"
    claim = '    assert connect("db-1") == "connected"\n'
    old = imports + test.format("", claim)
    new = f"{imports}{decorator}\ndef ready():\n{claim}\n\n{test.format(parameter, '')}"
    found = scan([FileChange("tests/test_app.py", old, new)], checks=["pytest"])
    assert (not [one for one in found if one.rule is Rule.ASSERTION_WEAKENED]) == is_kept, found
