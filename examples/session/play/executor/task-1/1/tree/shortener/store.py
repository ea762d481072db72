"""Where links and their visits are kept: one SQLite file."""

import sqlite3
from datetime import datetime
from pathlib import Path

_SCHEMA = """
CREATE TABLE IF NOT EXISTS links (number INTEGER PRIMARY KEY, url TEXT NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS visits (number INTEGER NOT NULL REFERENCES links, at TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS visits_of ON visits (number, at);
"""


class Store:
    """Links by number, and when each was visited."""

    def __init__(self, path: Path | str) -> None:
        self._db = sqlite3.connect(path)
        self._db.executescript(_SCHEMA)

    def add(self, url: str) -> int:
        """The number of a link; one that is there already keeps its own."""
        with self._db:
            self._db.execute("INSERT OR IGNORE INTO links (url) VALUES (?)", (url,))
        return int(self._db.execute("SELECT number FROM links WHERE url = ?", (url,)).fetchone()[0])

    def url(self, number: int) -> str | None:
        """Where a link leads; None where there is no such link."""
        found = self._db.execute("SELECT url FROM links WHERE number = ?", (number,)).fetchone()
        return str(found[0]) if found else None

    def visit(self, number: int, at: datetime) -> None:
        """Count a visit."""
        with self._db:
            self._db.execute("INSERT INTO visits VALUES (?, ?)", (number, at.isoformat()))

    def visits(self, number: int) -> list[datetime]:
        """When a link was visited, the first visit first."""
        rows = self._db.execute("SELECT at FROM visits WHERE number = ? ORDER BY at", (number,))
        return [datetime.fromisoformat(at) for (at,) in rows]

    def numbers(self) -> list[int]:
        """Every link."""
        return [number for (number,) in self._db.execute("SELECT number FROM links ORDER BY number")]

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()
