"""Moments as they are found in session files, and as they are written: RFC 3339 with an offset."""

import re
from datetime import UTC, datetime, timedelta, timezone

_MOMENT = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)(?:[T ](\d\d):(\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)?)?\s*(Z|(?:UTC|GMT)?[+-]\d\d?(?::?\d\d)?|UTC|GMT)?",
    re.IGNORECASE,
)
_STAMP = re.compile(
    r"(\d{2}|\d{4})(\d\d)(\d\d)[-T](\d\d)(\d\d)(\d\d)()(Z|[+-]\d\d:?\d\d)?(?:-[0-9a-z]{1,4})?", re.IGNORECASE
)
_OFFSET = re.compile(r"([+-])(\d\d?):?(\d\d)?$")


def parse(text: str) -> datetime | None:
    """The moment that a text tells, in any of the ways in use, UTC where it has no offset; None for what is no moment."""
    text = text.strip().strip("\"'")
    match = _MOMENT.fullmatch(text) or _STAMP.fullmatch(text)
    if match is None:
        return None
    *numbers, fraction, zone = match.groups()
    year, month, day, hour, minute, second = (int(number or 0) for number in numbers)
    year += 2000 if len(match[1]) == 2 else 0
    try:
        at = datetime(year, month, day, hour, minute, second, tzinfo=_zone(zone or ""))
        at.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return at.replace(microsecond=int(f"{fraction or 0:0<6}"[:6]))


def render(at: datetime | float) -> str:
    """A moment to the second, with its offset; seconds since 1970 are written in UTC."""
    if not isinstance(at, datetime):
        at = datetime.fromtimestamp(at, UTC)
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return at.isoformat(timespec="seconds").replace("+00:00", "Z")


def _zone(text: str) -> timezone:
    match = _OFFSET.search(text)
    if match is None:
        return UTC
    offset = timedelta(hours=int(match[2]), minutes=int(match[3] or 0))
    return timezone(-offset if match[1] == "-" else offset)
