"""Commands show what `app` and `view` give them: none reads a journal itself."""

import re
from pathlib import Path

COMMANDS = Path(__file__).parents[2] / "src" / "ralph" / "cli"
READING = re.compile(
    r"journal\.jsonl|\b(?:read_raw|read_records|read_claimed|read_last_lines|JournalReader|Journal\.open)\b"
)


def test_no_command_reads_a_journal() -> None:
    found = [path.name for path in sorted(COMMANDS.rglob("*.py")) if READING.search(path.read_text())]
    assert found == []
