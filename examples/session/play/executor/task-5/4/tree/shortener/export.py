"""Links with their visits as a table that others can read."""

import csv
import io
from collections.abc import Iterable
from datetime import date
from typing import NamedTuple


class Row(NamedTuple):
    """One link."""

    code: str
    url: str
    visits: int
    last: date | None


def as_csv(rows: Iterable[Row]) -> bytes:
    """The rows under a line of names, in the form that samples/export.csv has: a byte order mark, `;`, day.month.year, CRLF."""
    out = io.StringIO()
    table = csv.writer(out, delimiter=";", lineterminator="\r\n")
    table.writerow(["code", "url", "visits", "last visit"])
    for row in rows:
        table.writerow([row.code, row.url, row.visits, f"{row.last:%d.%m.%Y}" if row.last else ""])
    return out.getvalue().encode("utf-8-sig")
