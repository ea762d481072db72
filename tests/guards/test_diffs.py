"""What the guards report of small changes to a product and its settings.

`sources/diffs.txt` has the changes: a path after `#`, then lines that stay, go (`-`) or come (`+`).
A sentence before the first path says what the change shows.
`sources/diffs.reading` has the findings. A change without findings passes.
"""

import os
from pathlib import Path

import pytest

from ralph.verify.changed_files import FileChange
from ralph.verify.guards import scan

SOURCES = Path(__file__).parent / "sources"
DIFFS = (SOURCES / "diffs.txt").read_text(encoding="utf-8").strip().split("\n\n")
RECORD = SOURCES / "diffs.reading"
CHECKS = ["make test", "./check.sh", "python3 tools/verify.py", "pytest --cov", "mypy .", "ruff check ."]


def read_changes(diff: str) -> list[FileChange]:
    changes = []
    for part in f"\n{diff}".split("\n# ")[1:]:
        path, _, rest = part.partition("\n")
        lines = rest.split("\n")
        old = "".join(f"{line[1:]}\n" for line in lines if line[:1] in ("-", " "))
        new = "".join(f"{line[1:]}\n" for line in lines if line[:1] in ("+", " "))
        changes.append(FileChange(path, old or None, new or None))
    return changes


def describe(diff: str) -> str:
    found = scan(read_changes(diff), checks=CHECKS)
    lines = [f"{one.severity} {one.rule} {one.path}:{one.line} {one.sentence} [{one.excerpt}]" for one in found]
    return "\n".join([diff, "=>", *(lines or ["nothing"])])


if os.environ.get("RECORD"):  # RECORD=1 pytest tests/guards, then read the difference
    RECORD.write_text("\n\n".join(map(describe, DIFFS)) + "\n", encoding="utf-8")
RECORDED = RECORD.read_text(encoding="utf-8").strip().split("\n\n")


@pytest.mark.parametrize("number", range(len(DIFFS)), ids=lambda number: " ".join(DIFFS[number].split())[:80])
def test_a_change_is_reported_as_on_record(number: int) -> None:
    assert describe(DIFFS[number]) == RECORDED[number]


def test_every_change_is_on_record() -> None:
    assert len(RECORDED) == len(DIFFS)
