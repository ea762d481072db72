"""What the readers of the agents' JSON lines share: careful access, short texts, and what an error text means."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from time import time
from typing import Any
from zoneinfo import ZoneInfo

from ralph.agents.agent import amount
from ralph.core.limits import Usage
from ralph.core.stream import AgentEvent, Failure, Kind, clean_text

TOOL_CHARS, TEXT_CHARS = 300, 20_000
_MOST_TOKENS, _MOST_MONEY = 10**12, 10**6
_LONGEST_LIMIT = 45 * 86400.0
"""No limit ends later than in a month and a half: another date was misread."""

Data = Mapping[str, Any]


def parse(line: bytes) -> Data:
    """The JSON object in a line; an empty one where there is none."""
    try:
        data = json.loads(line) if line.lstrip()[:1] == b"{" else {}
    except (ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def inner(data: object, *keys: str) -> Data:
    """The object under the keys; an empty one where there is none."""
    for key in keys:
        data = data.get(key) if isinstance(data, dict) else None
    return data if isinstance(data, dict) else {}


def objects(data: Data, key: str) -> list[Data]:
    """The objects in a list."""
    found = data.get(key)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def word(data: Data, key: str) -> str:
    """The text under a key; empty where there is none."""
    found = data.get(key)
    return found if isinstance(found, str) else ""


def number(data: Data, key: str) -> float | None:
    """The number under a key, where it can be counted with."""
    try:
        return amount(data.get(key))
    except OverflowError:
        return None


def count(data: Data, *keys: str) -> int:
    """The tokens under the keys in all; what is no number of tokens is nothing."""
    found = [number(data, key) or 0.0 for key in keys]
    return sum(int(one) for one in found if one <= _MOST_TOKENS)


def money(data: Data, key: str) -> float | None:
    """The US dollars under a key; None for what no turn can have cost."""
    found = number(data, key)
    return found if found is not None and found <= _MOST_MONEY else None


def prose(text: str) -> str:
    """What an agent says, as long as it may be."""
    return clean_text(text[:TEXT_CHARS]).strip()


def brief(text: str) -> str:
    """A text in one short line."""
    line = " ".join(clean_text(text[: TOOL_CHARS * 8]).split())
    return line if len(line) <= TOOL_CHARS else line[: TOOL_CHARS - 1] + "…"


_TELLING = (
    *("command", "cmd", "file_path", "absolute_path", "path", "notebook_path"),
    *("pattern", "query", "url", "prompt", "description"),
)


def tool_text(name: str, given: object) -> str:
    """The name of a tool and the part of its input that says most."""
    what = next((word(given, key) for key in _TELLING if word(given, key)), "") if isinstance(given, dict) else ""
    what = what or (json.dumps(given, ensure_ascii=False) if given else "")
    return brief(f"{name or 'a tool'}: {what}" if what else name or "a tool")


def said(content: object) -> str:
    """The text of a message or a tool's result: a string, or blocks of which some are text."""
    if isinstance(content, list):
        return "\n".join(said(block) for block in content[:100] if isinstance(block, dict | str))
    return content if isinstance(content, str) else word(content, "text") if isinstance(content, dict) else ""


def moment(data: Data) -> float:
    """When a line was written, by its own word (a date, or milliseconds) where it can be true, else by the clock."""
    now, milliseconds = time(), number(data, "timestamp")
    try:
        told = milliseconds / 1000 if milliseconds else datetime.fromisoformat(word(data, "timestamp")).timestamp()
    except (ValueError, OverflowError, OSError):
        return now
    return told if now - _LONGEST_LIMIT < told < now + 3600 else now


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


def unwrapped(text: str) -> str:
    """The message inside of an error that is told as JSON, alone or in the middle of a sentence."""
    data = parse(text[max(0, text.find("{")) : text.rfind("}") + 1].encode(errors="replace"))
    return word(inner(data, "error") or data, "message") or text


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
    return moment if moment is not None and now - 86400 < moment < now + _LONGEST_LIMIT else None


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


@dataclass
class Meter:
    """Turns running totals into what was used since the last time."""

    told: Usage = field(default_factory=Usage)

    def rise(self, spoken: int, heard: int, cost: float | None = None) -> Iterator[AgentEvent]:
        """What was used more than was told of, where it is anything."""
        before = self.told
        more = Usage(
            max(0, spoken - before.input_tokens),
            max(0, heard - before.output_tokens),
            None if cost is None else max(0.0, cost - (before.cost or 0.0)),
        )
        if more.tokens or more.cost is not None:
            self.told = before + more
            yield AgentEvent(Kind.USAGE, usage=more)


@dataclass
class Complaints:
    """Tells of a failure once, however often an agent comes back to it."""

    last: Failure | None = None

    def about(
        self, error: str, now: float, kind: Failure | None = None, resets_at: float | None = None
    ) -> Iterator[AgentEvent]:
        """The event for an error, where it is a new one."""
        error = error[:TEXT_CHARS]
        kind = kind or failure_of(error)
        if kind is self.last:
            return
        self.last, text = kind, prose(unwrapped(error))
        if kind is Failure.LIMIT:
            resets_at = sensible(resets_at, now) or end_of_limit(error, now)
            yield AgentEvent(Kind.LIMIT, text, resets_at=resets_at, failure=kind)
        else:
            yield AgentEvent(Kind.ERROR, text, is_error=True, failure=kind)


def gone_wrong(error: str, kind: Failure | None = None) -> AgentEvent:
    """The end of a turn that failed."""
    error = error[:TEXT_CHARS]
    return AgentEvent(Kind.RESULT, prose(unwrapped(error)), is_error=True, failure=kind or failure_of(error))


def well_done(text: str) -> AgentEvent:
    """The end of a turn that went well."""
    return AgentEvent(Kind.RESULT, prose(text))


def signed_in(
    environment: Mapping[str, str], keys: tuple[str, ...], switches: tuple[str, ...] = ()
) -> tuple[bool | None, str] | None:
    """What the environment says of signing in: a key, or another service that has its own way."""
    if key := next((key for key in keys if environment.get(key)), ""):
        return True, key
    if switch := next((one for one in switches if environment.get(one, "0").lower() not in ("", "0", "false")), ""):
        return None, f"{switch} is set: what it needs to sign in is not looked at"
    return None
