"""Times, spans and amounts as a page shows them."""

from datetime import datetime

from ralph.view.model import LimitView


def clock(at: float) -> str:
    """A moment as `HH:MM:SS`, in local time."""
    return datetime.fromtimestamp(at).strftime("%H:%M:%S")


def day(at: float) -> str:
    """The day of a moment, in local time."""
    return datetime.fromtimestamp(at).strftime("%Y-%m-%d")


def moment(at: float) -> str:
    """A day and a time, in local time with its offset."""
    return datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d %H:%M %z")


def span(seconds: float) -> str:
    """A span of time: `0.4 s`, `12 s`, `6 min`, `1 h 40 min`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min" if minutes % 60 else f"{minutes // 60} h"


def tokens(number: float) -> str:
    """A number of tokens: `950`, `12.3 k`, `1.71 M`."""
    if number < 1000:
        return f"{number:.0f}"
    if number < 1_000_000:
        return f"{number / 1000:.1f} k"
    return f"{number / 1_000_000:.2f} M"


def money(dollars: float | None) -> str:
    """An amount of money; an unknown one says so."""
    if dollars is None:
        return "unknown"
    return f"${dollars:.2f}" if dollars >= 0.1 or not dollars else f"${dollars:.4f}"


def amount(limit: LimitView) -> str:
    """How much of a limit is used."""
    if limit.name == "time":
        return f"{span(limit.used)} of {span(limit.limit)}"
    if limit.name == "cost":
        return f"{money(limit.used)} of {money(limit.limit)}"
    if limit.name == "tokens":
        return f"{tokens(limit.used)} of {tokens(limit.limit)}"
    return f"{limit.used:g} of {limit.limit:g}"
