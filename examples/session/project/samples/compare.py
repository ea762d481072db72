"""Exports two links, compares that with export.csv, which the accounts department can read, and says what differs first."""

import sys
from datetime import date
from pathlib import Path

from shortener.export import Row, as_csv

ROWS = [Row("2", "https://example.com/Read.me", 3, date(2026, 11, 5)), Row("3", "https://example.org/news", 0, None)]


def difference(ours: bytes, sample: bytes) -> str:
    """What differs first; empty where nothing does."""
    text, theirs = ours.decode("utf-8-sig"), sample.decode("utf-8-sig")
    for mine, other in zip(text.splitlines(), theirs.splitlines(), strict=False):
        if mine != other:
            return f"we write  {mine}\nthey have {other}"
    if text != theirs:
        return "the number of lines, or how they end"
    return "" if ours == sample else "the first bytes are different"


if __name__ == "__main__":
    sys.exit(difference(as_csv(ROWS), Path(__file__).with_name("export.csv").read_bytes()) or 0)
