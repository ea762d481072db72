"""Commands show what `app` and `view` give them: none reads a journal itself, and few functions of `app` do."""

import re
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "ralph"
READING = re.compile(r"\b(?:read_raw|read_records|read_last_lines|JournalReader|Journal\.open)\b")
READERS = {
    "resume.py": "the state of the engine",
    "run_log.py": "`ralph logs` and `ralph events` print lines",
    "run_watch.py": "the fold of the view",
    "sessions.py": "the state of the engine, by which documents are repaired",
}
"""The modules of `app` that read journals, and what for."""


def find_readers(directory: str) -> set[str]:
    return {path.name for path in (SOURCE / directory).rglob("*.py") if READING.search(path.read_text())}


def test_no_command_reads_a_journal() -> None:
    assert find_readers("cli") == set()
    assert not [path.name for path in (SOURCE / "cli").rglob("*.py") if "journal.jsonl" in path.read_text()]


def test_use_cases_that_show_something_read_the_view() -> None:
    assert find_readers("app") == set(READERS)
