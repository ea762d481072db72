"""What the error text of an agent or of its provider means: the class of a failure, and when a limit is over."""

import re
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from ralph.agents.stream_lines import LONGEST_LIMIT, brief
from ralph.core.stream import Failure

_STATUS = re.compile(r"(?:\b(?:status|error|code)\b[\"':=\s(]{0,4}|rejected \()([45]\d\d)\b", re.IGNORECASE)
_PLACE = re.compile(r"(?<![^\s\"'(){}<>\[\],])[^\s/\"'(){}<>\[\],]*/[^\s/\"'(){}<>\[\],]*/[^\s\"'(){}<>\[\],]*")
"""Paths and addresses: their words say nothing of a failure."""
_NOISE = re.compile(r"reading prompt|warning|yolo mode|ripgrep|at \S+ \(", re.IGNORECASE)
_UNPAID = r"credit balance|insufficient_quota|check your plan and billing|out of (?:usage )?credits|add funds"
_LIMIT = (
    r"(?:usage|rate|session|weekly|hour|daily|monthly|spend)[ _-]?limit|rate.limited|too many requests|quota"
    r"|hit your .{0,40}limit|limit (?:was |has been )?reached|reached your .{0,40}limit|resource.?exhausted"
)
_ACCESS = (
    r"unauthori[sz]ed|unauthenticated|forbidden|invalid.{0,20}api.?key|api.?key.{0,20}(?:invalid|not valid|missing)"
    r"|not (?:logged|signed) in|/login\b|codex login|please (?:log|sign) in|authentication|failed to authenticate"
    r"|token.{0,20}(?:expired|revoked)|_API_KEY\b|missing environment variable|(?:root|sudo) privileges"
    r"|model\b.{0,80}(?:not found|not exist|not supported|not available)|unknown model|model_not_found"
    r"|unknown (?:option|argument)|unexpected argument|unrecognized (?:option|argument)"
)
_OVERLOAD = (
    r"overloaded|high demand|at capacity|service unavailable|internal server error|bad gateway|server-side"
    r"|stream (?:disconnected|closed|ended|error)|connection|network|\be(?:connre\w+|timedout|notfound|ai_again|pipe)\b"
    r"|timed out|timeout|failed to lookup|fetch failed|socket hang up|api error: terminated|temporarily"
    r"|capacity .{0,20}unavailable|(?:unable to|cannot|could not|failed to) connect"
)


def failure_of(text: str, status: float | None = None) -> Failure:
    """The class of failure that an error of a provider or of an agent program speaks of."""
    text = _PLACE.sub(" ", text)
    told = _STATUS.search(text)
    code = int(status or (told and told[1]) or 0)
    if code == 429:
        return Failure.LIMIT
    if code in (401, 402, 403, 404):
        return Failure.ACCESS
    if code == 408 or 500 <= code < 600:
        return Failure.OVERLOAD
    kinds = (_UNPAID, Failure.ACCESS), (_LIMIT, Failure.LIMIT), (_ACCESS, Failure.ACCESS), (_OVERLOAD, Failure.OVERLOAD)
    return next((kind for words, kind in kinds if re.search(words, text, re.IGNORECASE)), Failure.AGENT)


def failure_in(stderr: str) -> tuple[Failure, str] | None:
    """What the last lines of standard error say of a failure; where none does, the last of them."""
    told = map(brief, stderr.splitlines()[-50:])
    lines = [line for line in told if len(line.split()) > 2 and not _NOISE.match(line)]
    for line in reversed(lines):
        if (kind := failure_of(line)) is not Failure.AGENT:
            return kind, line
    return (Failure.AGENT, lines[-1]) if lines else None


_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SPAN = r"(\d+(?:\.\d+)?)\s*(ms|milliseconds?|s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?)(?![a-z])"
_AGAIN = r"(?:try again|retry(?:ing)?|wait|resets?|available|again)"
_IN = re.compile(rf"{_AGAIN}\s+(?:in|after|for)\s+((?:{_SPAN}(?:,|\s|and)*)+)", re.IGNORECASE)
_SECONDS = re.compile(r"(?:resets_in_seconds|retry_?delay|retry[-_]after)\W{1,4}(\d+(?:\.\d+)?)", re.IGNORECASE)
_EPOCH = re.compile(r"(?:\||resets_?at\W{1,4})(\d{10}(?:\d{3})?)\b", re.IGNORECASE)
_CLOCK = re.compile(
    rf"{_AGAIN}\s+(?:at\s+|on\s+)?(?:(?P<month>[a-z]{{3}})[a-z]*\.?\s+(?P<day>\d{{1,2}})(?:st|nd|rd|th)?,?\s+"
    r"(?:(?P<year>20\d\d),?\s+)?(?:at\s+)?)?(?P<hour>\d{1,2})(?::(?P<minute>\d\d))?\s*(?P<half>[ap]m\b)?"
    r"(?:\s*\((?P<zone>[\w/+-]+)\))?",
    re.IGNORECASE,
)
_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]


def end_of_limit(text: str, now: float) -> float | None:
    """When a limit is over, by what an error says of it: a moment, a time of the day, or a time to wait."""
    if found := _EPOCH.search(text):
        return sensible(float(found[1]), now)
    if found := _IN.search(text):
        spans = re.findall(_SPAN, found[1], re.IGNORECASE)
        return sensible(now + sum(float(size) * _unit(unit.lower()) for size, unit in spans), now)
    if found := _SECONDS.search(text):
        return sensible(now + float(found[1]), now)
    return _clock(found, now) if (found := _CLOCK.search(text)) else None


def sensible(moment: float | None, now: float) -> float | None:
    """A moment at which a limit may end, in seconds; None for what cannot be one."""
    if moment is not None and moment > 1e11:
        moment /= 1000
    return moment if moment is not None and now - 86400 < moment < now + LONGEST_LIMIT else None


def _unit(name: str) -> float:
    return _UNITS["ms" if name == "ms" or name.startswith("milli") else name[0]]


def _clock(found: re.Match[str], now: float) -> float | None:
    """The next time that a clock shows what was told."""
    if not found["half"] and not found["minute"]:
        return None
    try:
        zone = ZoneInfo(found["zone"]) if found["zone"] else None
        today = datetime.fromtimestamp(now, zone) if zone else datetime.fromtimestamp(now).astimezone()
        hour = int(found["hour"])
        if found["half"]:
            hour = hour % 12 + (12 if found["half"].lower() == "pm" else 0)
        told = today.replace(hour=hour, minute=int(found["minute"] or 0), second=0, microsecond=0)
        if found["month"]:
            month = _MONTHS.index(found["month"].lower()) + 1
            told = told.replace(year=int(found["year"] or today.year), month=month, day=int(found["day"]))
            if not found["year"] and told < today - timedelta(days=180):
                told = told.replace(year=today.year + 1)
        elif told + timedelta(minutes=2) <= today:
            told += timedelta(days=1)
        elif told <= today:
            # Only the minute was told, and it is this one or has just gone by.
            told = today + timedelta(minutes=1)
        return sensible(told.timestamp(), now)
    except (ValueError, KeyError, OSError, OverflowError):
        return None
