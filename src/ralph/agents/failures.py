"""What the error text of an agent or its provider means: the class of the failure, and when a limit ends."""

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from ralph.agents.stream_lines import LONGEST_LIMIT, one_line
from ralph.core.turns import Failure

_STATUS = re.compile(r"(?:\b(?:status|error|code)\b[\"':=\s(]{0,4}|rejected \()([45]\d\d)\b", re.IGNORECASE)
_PATH = re.compile(r"(?<![^\s\"'(){}<>\[\],])[^\s/\"'(){}<>\[\],]*/[^\s/\"'(){}<>\[\],]*/[^\s\"'(){}<>\[\],]*")
"""Paths and URLs: a word in them says nothing about the failure."""
_NOISE = re.compile(r"reading prompt|warning|yolo mode|ripgrep", re.IGNORECASE)
_BACKTRACE = re.compile(
    r"(?:stack )?backtrace:|traceback \(most recent|\d+: (?:<unknown>|0x|[\w<].*::)|at .*:\d+\)?$|at <anonymous>"
    r"|File \".*\", line \d+|\d* *\|.*|[\^~]+|note: run with `RUST_BACKTRACE|node\.js v\d|node:internal",
    re.IGNORECASE,
)
"""Frames of Rust, Node and Python, and the marked lines of a settings file: they follow or precede the sentence that counts."""
_ERROR = re.compile(r"(?:[\w.]*(?:error|exception)|fatal|panicked)\b", re.IGNORECASE)
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
    r"|model provider\b.{0,80}not found"
)
_SETTINGS = (
    r"unknown (?:option|argument)|unexpected argument|unrecognized (?:option|argument)|no longer supported"
    r"|error loading config|invalid (?:config|settings)"
)
"""Arguments and settings that the program refuses. Only the user can correct them, and a sign-in does not help."""
_OVERLOAD = (
    r"overloaded|high demand|at capacity|service unavailable|internal server error|bad gateway|server-side"
    r"|stream (?:disconnected|closed|ended|error)|connection|network|\be(?:connre\w+|timedout|notfound|ai_again|pipe)\b"
    r"|timed out|timeout|failed to lookup|fetch failed|socket hang up|api error: terminated|temporarily"
    r"|capacity .{0,20}unavailable|(?:unable to|cannot|could not|failed to) connect"
)
_PATTERNS = (
    (_UNPAID, Failure.ACCESS),
    (_LIMIT, Failure.LIMIT),
    (_SETTINGS, Failure.ACCESS),
    (_ACCESS, Failure.ACCESS),
    (_OVERLOAD, Failure.OVERLOAD),
)
"""The first that matches decides: a message about unpaid credits also mentions limits."""


def classify_failure(text: str, status: float | None = None) -> Failure:
    """The class of an error that a provider or an agent program reports."""
    text = _PATH.sub(" ", text)
    named = _STATUS.search(text)
    code = int(status or (named and named[1]) or 0)
    if code == 429:
        return Failure.LIMIT
    if code in (401, 402, 403, 404):
        return Failure.ACCESS
    if code == 408 or 500 <= code < 600:
        return Failure.OVERLOAD
    for pattern, kind in _PATTERNS:
        if re.search(pattern, text, re.IGNORECASE):
            return kind
    return Failure.AGENT


def is_settings_error(text: str) -> bool:
    """Whether the program refuses its arguments or its settings."""
    return bool(re.search(_SETTINGS, text, re.IGNORECASE))


def failure_from_stderr(stderr: str) -> tuple[Failure, str] | None:
    """The failure that the end of standard error names; if none does, its last error or sentence as an agent error."""
    lines = [line for line in describe_stderr(stderr) if len(line.split()) > 2 and not _NOISE.match(line)]
    for line in reversed(lines):
        if (kind := classify_failure(line)) is not Failure.AGENT:
            return kind, line
    errors = [line for line in lines if _ERROR.match(line)]
    return (Failure.AGENT, (errors or lines)[-1]) if lines else None


def describe_stderr(stderr: str) -> list[str]:
    """The last lines of standard error without backtraces. The lines of a paragraph that begins with an error are one."""
    described: list[str] = []
    continues_error = False
    for line in map(one_line, stderr.splitlines()[-200:]):
        if not line or _BACKTRACE.match(line):
            continues_error = False
        elif continues_error and not _ERROR.match(line):
            described[-1] = one_line(f"{described[-1]} {line}")
        else:
            described.append(line)
            continues_error = bool(_ERROR.match(line))
    return described


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


def find_limit_end(text: str, now: float) -> float | None:
    """When a limit ends, as its error says: a moment, a time of the day, or a time to wait."""
    if match := _EPOCH.search(text):
        return plausible_reset(float(match[1]), now)
    if match := _IN.search(text):
        spans = re.findall(_SPAN, match[1], re.IGNORECASE)
        return plausible_reset(now + sum(float(size) * _unit_seconds(unit.lower()) for size, unit in spans), now)
    if match := _SECONDS.search(text):
        return plausible_reset(now + float(match[1]), now)
    if match := _CLOCK.search(text):
        return _next_clock_time(match, now)
    return None


def plausible_reset(moment: float | None, now: float) -> float | None:
    """The moment in seconds, if a limit can end then; else None. Some providers name it in milliseconds."""
    if moment is not None and moment > 1e11:
        moment /= 1000
    return moment if moment is not None and now - 86400 < moment < now + LONGEST_LIMIT else None


def _unit_seconds(name: str) -> float:
    if name == "ms" or name.startswith("milli"):
        return _UNITS["ms"]
    return _UNITS[name[0]]


def _next_clock_time(match: re.Match[str], now: float) -> float | None:
    """The next time that a clock shows the time in an error."""
    if not match["half"] and not match["minute"]:
        return None
    try:
        zone = ZoneInfo(match["zone"]) if match["zone"] else None
        today = datetime.fromtimestamp(now, zone) if zone else datetime.fromtimestamp(now).astimezone()
        hour = int(match["hour"])
        if match["half"]:
            hour = hour % 12 + (12 if match["half"].lower() == "pm" else 0)
        moment = today.replace(hour=hour, minute=int(match["minute"] or 0), second=0, microsecond=0)
        if match["month"]:
            month = _MONTHS.index(match["month"].lower()) + 1
            moment = moment.replace(year=int(match["year"] or today.year), month=month, day=int(match["day"]))
            if not match["year"] and moment < today - timedelta(days=180):
                moment = moment.replace(year=today.year + 1)
        elif moment + timedelta(minutes=2) <= today:
            moment += timedelta(days=1)
        elif moment <= today:
            # The error names only the minute, which is the current one or the one before.
            moment = today + timedelta(minutes=1)
        return plausible_reset(moment.timestamp(), now)
    except (ValueError, KeyError, OSError, OverflowError):
        return None


_LITELLM_KINDS = {
    "AuthenticationError": Failure.ACCESS,
    "PermissionDeniedError": Failure.ACCESS,
    "NotFoundError": Failure.ACCESS,
    "RateLimitError": Failure.LIMIT,
    "RouterRateLimitError": Failure.LIMIT,
    "InternalServerError": Failure.OVERLOAD,
    "ServiceUnavailableError": Failure.OVERLOAD,
    "BadGatewayError": Failure.OVERLOAD,
    "APIConnectionError": Failure.OVERLOAD,
    "APIError": Failure.OVERLOAD,
    "Timeout": Failure.OVERLOAD,
}
_LITELLM_NAME = re.compile(r"^litellm\.(\w+): ", re.MULTILINE)
LITELLM_KEYS = (
    *("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "OPENROUTER_API_KEY", "DEEPSEEK_API_KEY"),
    *("MISTRAL_API_KEY", "GROQ_API_KEY", "XAI_API_KEY", "COHERE_API_KEY", "FIREWORKS_API_KEY", "AZURE_API_KEY"),
)
"""Variables that hold a key for one of the providers that LiteLLM knows."""


def keep_needed_keys(environment: Mapping[str, str], model: str) -> dict[str, str]:
    """The environment without keys of other providers, if the name of a model begins with its provider (`openai/gpt-5`)."""
    provider, slash, _ = model.partition("/")
    needed = f"{provider.upper()}_API_KEY"
    if not slash or needed not in LITELLM_KEYS:
        return dict(environment)
    return {name: value for name, value in environment.items() if name == needed or name not in LITELLM_KEYS}


def classify_litellm_failure(error: str, name: str = "") -> Failure:
    """The class of an error by its LiteLLM name, which its text begins with if `name` is empty."""
    named = _LITELLM_NAME.search(error)
    if not name and named:
        name = named[1]
    return _LITELLM_KINDS.get(name) or classify_failure(error)
