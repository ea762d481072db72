"""How the guards read source files: units, what tests claim, the rows of tables, and the marks that keep tests from running.

`sources/NAME.txt` has the forms that tests are written in, and `sources/NAME.reading` what the guards make of them.
After a change: RECORD=1 pytest tests/guards, and read the difference.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ralph.verify.changed_files import FileChange
from ralph.verify.guards import scan
from ralph.verify.guards.assertions import Assertion
from ralph.verify.guards.units import Unit, find_rows, read_source
from ralph.verify.guards.weakened_tests import cannot_fail, find_build_tags, find_marks

SOURCES = Path(__file__).parent / "sources"
PATHS = {
    "tests.test_sample.py": "tests/test_sample.py",
    "src.sample.test.ts": "src/sample.test.ts",
    "pkg.sample_test.go": "pkg/sample_test.go",
    "src.test.java.SampleTest.java": "src/test/java/SampleTest.java",
    "src.sample.rs": "src/sample.rs",
}


def describe_claim(claim: Assertion) -> str:
    """One claim: its line, kind and sides, and what else is known of it."""
    more = [claim.detail, f"within {claim.tolerance:g}" if claim.tolerance else "", claim.doubt]
    more += ["was real"] if claim.was_real else []
    about = f" ({', '.join(filter(None, more))})" if any(more) else ""
    return f"  {claim.line} {claim.kind}{about}: {' | '.join(claim.sides)}"


def describe_unit(unit: Unit) -> Iterator[str]:
    """One unit, with its tokens, claims, rows and marks."""
    flags = [name for name in ("is_test", "collected", "in_tests") if getattr(unit, name)]
    scope = f"{unit.scope}." if unit.scope else ""
    yield f"## {unit.line} {scope}{unit.name or '(outside)'}: {' '.join(flags)}"
    yield f"  head: {unit.head_text}"
    yield f"  body: {unit.body_text}"
    yield f"  calls: {' '.join(sorted(unit.calls))}"
    yield from map(describe_claim, unit.assertions)
    yield from (f"  row: {row}" for row in sorted(find_rows(unit).elements()))
    for mark in find_marks(unit):
        yield f"  mark: {mark.line} {mark.label} ({mark.key}{', weak' * mark.weak}{', hides others' * mark.hides_others})"
    if unit.is_test and cannot_fail(unit, ()):
        yield "  cannot fail"


def describe_source(name: str) -> str:
    text = (SOURCES / f"{name}.txt").read_text(encoding="utf-8")
    source = read_source(PATHS[name], text)
    assert source is not None
    lines = [line for unit in source.everything for line in describe_unit(unit)]
    lines += [f"named number: {key} = {value}" for key, value in sorted(source.outside.constants.items())]
    lines += [f"comment: {line} {comment}" for line, comment in source.comments]
    lines += [f"build tag: {mark.line} {mark.label}{', weak' * mark.weak}" for mark in find_build_tags(source.comments)]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("name", PATHS)
def test_source_is_read_as_on_record(name: str) -> None:
    record = SOURCES / f"{name}.reading"
    if os.environ.get("RECORD"):
        record.write_text(describe_source(name), encoding="utf-8")
    assert describe_source(name) == record.read_text(encoding="utf-8")


SNIPPETS = {
    "tests/test_a.py": "@mark.skipif(x)\ndef test_a(b: int = 1):\n    if (b): return\n    with raises(E, match='x') as e:\n        f()\n"
    "    try:\n        assert not (a and b), 'm'\n    except E as e:\n        x: T = {1: [2, (3,)]}\n    assert x is not None\n",
    "src/a.test.ts": "const f = async (x: T): R => { if (x) return; else y() }\nclass A { m(): void {} }\nit.each([[1], [2]])('a', () => {"
    " expect(f(`a ${b}`)).not.toBe(/x/g); p.catch((e) => {}) })\n@Dec.a() export function g() {}",
    "pkg/a_test.go": "func (s *S) TestA(t *testing.T) {\n\tif err := f(); err != nil {\n\t\tt.Fatal(err)\n\t}\n\tx, _ := g()\n"
    "\tdefer func() { recover() }()\n\tfor _, c := range map[string]int{`a`: 1} {}\n}\n",
    "src/test/java/ATest.java": "@A.B(x) class ATest { @Test void a() throws E { assertThat(a, is(not(b))); try { f(); } catch (E e) { return; } } }",
    "src/a.rs": "#![allow(x)]\n#[cfg(test)]\nmod tests { #[test] #[should_panic(expected = \"a\")] fn a() { if let Some(x) = f()? { assert!(x == r#\"b\"#); } } }",
}  # fmt: skip


@pytest.mark.parametrize("path", SNIPPETS)
def test_a_file_may_end_anywhere(path: str) -> None:
    """An agent may be stopped in the middle of a line. The guards read what is there, and report only lines that exist."""
    text = SNIPPETS[path]
    for end in range(len(text) + 1):
        source = read_source(path, text[:end])
        assert source is not None
        for unit in source.everything:
            assert list(describe_unit(unit))
        for changes in ([FileChange(path, text, text[:end])], [FileChange(path, text[:end], text)]):
            assert all(1 <= found.line <= text.count("\n") + 1 for found in scan(changes, checks=["make"]))


def test_the_last_line_needs_no_end() -> None:
    source = read_source("tests/test_a.py", "def test_a():\n    assert f() == 1")
    assert source is not None
    assert [describe_claim(claim) for claim in source.units[0].assertions] == ["  2 equality: f ( ) | 1"]
