"""Which change of an assertion the guards report: `sources/pairs.txt` has the changes, `sources/pairs.reading` the findings."""

import os
import textwrap
from pathlib import Path

import pytest

from ralph.verify.changed_files import FileChange
from ralph.verify.guards import scan

SOURCES = Path(__file__).parent / "sources"
PAIRS = (SOURCES / "pairs.txt").read_text(encoding="utf-8").strip().split("\n\n")
RECORD = SOURCES / "pairs.reading"


def make_test(pair: str, sign: str) -> str:
    lines = [line[2:] for line in pair.splitlines() if line[0] == sign]
    return f"from app import f\n\n\ndef test_f():\n{textwrap.indent(chr(10).join(lines), '    ')}\n"


def describe(pair: str) -> str:
    """What is found if only the test changed, and if the product changed with it."""
    test = FileChange("tests/test_app.py", make_test(pair, "-"), make_test(pair, "+"))
    product = FileChange("app.py", "def f(x):\n    return x\n", "def f(x):\n    return abs(x) + 1\n")
    lines = [pair]
    for name, changes in (("test", [test]), ("both", [test, product])):
        found = scan(changes, checks=["pytest"])
        lines += [f"{name}: {one.severity} {one.rule} {one.path}:{one.line} {one.sentence}" for one in found]
    return "\n".join(lines)


if os.environ.get("RECORD"):  # RECORD=1 pytest tests/guards, then read the difference
    RECORD.write_text("\n\n".join(map(describe, PAIRS)) + "\n", encoding="utf-8")
RECORDED = RECORD.read_text(encoding="utf-8").strip().split("\n\n")


@pytest.mark.parametrize("number", range(len(PAIRS)), ids=lambda number: PAIRS[number].replace("\n", " "))
def test_a_changed_assertion_is_reported_as_on_record(number: int) -> None:
    assert describe(PAIRS[number]) == RECORDED[number]


def test_every_pair_is_on_record() -> None:
    assert len(RECORDED) == len(PAIRS)
