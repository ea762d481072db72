"""HTML as values, with times, spans and amounts. Every text is escaped; only `Markup` that was built here is not."""

from collections.abc import Iterable
from datetime import datetime
from html import escape

from ralph.core.text import clean_text
from ralph.view.labels import Label
from ralph.view.model import LimitView

_EMPTY = frozenset(("meta", "use", "rect", "polyline"))
_BIDI = {code: f"⟨U+{code:04X}⟩" for code in (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))}
"""Characters that reorder text. They are shown by their numbers, because they can make code look like other code."""


class Markup:
    """A piece of HTML that is safe to insert."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        return self.text


def render(child: object) -> str:
    """The HTML of a child of an element: text is escaped, and control characters are left out."""
    if isinstance(child, Markup):
        return child.text
    if isinstance(child, str | int | float):
        return _escape(str(child))
    if isinstance(child, Iterable):
        return "".join(map(render, child))
    raise TypeError(f"{type(child).__name__} is neither text nor markup")


def _escape(text: str) -> str:
    return escape(clean_text(text).translate(_BIDI))


def tag(name: str, /, *children: object, **attributes: object) -> Markup:
    """An element. `class_` is the attribute `class`; underscores in names are dashes; None leaves an attribute out."""
    parts = [name]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        attribute = key.rstrip("_").replace("_", "-")
        parts.append(attribute if value is True else f'{attribute}="{_escape(str(value))}"')
    opening = f"<{' '.join(parts)}>"
    if name in _EMPTY:
        return Markup(opening if name == "meta" else f"<{' '.join(parts)}/>")
    return Markup(f"{opening}{render(children)}</{name}>")


def icon(name: str, tone: str = "", label: str = "") -> Markup:
    """A symbol. With a label, it says something by itself."""
    kind = f"i c-{tone}" if tone else "i"
    use = tag("use", href=f"#i-{name}")
    if label:
        return tag("svg", tag("title", label), use, class_=kind, role="img", aria_label=label)
    return tag("svg", use, class_=kind, aria_hidden="true")


def badge(label: Label) -> Markup:
    """A state as symbol, word and color."""
    return tag("span", icon(label[0]), label[1], class_=f"badge {label[2]}")


def prose(text: str) -> list[Markup | str]:
    """A sentence. What is between backticks is code; everything else stays text."""
    parts = text.split("`")
    return [tag("code", part) if number % 2 else part for number, part in enumerate(parts)]


def box(title: str, *children: object, id: str, note: object = "") -> Markup:
    """A section of the page with a heading."""
    heading = tag("h2", title, id=f"{id}-title")
    head = tag("header", heading, tag("span", note, class_="dim sm") if note else "")
    return tag("section", head, *children, class_="box", id=id, aria_labelledby=f"{id}-title")


def empty(title: str, text: str = "") -> Markup:
    """What is shown in place of something that is not there."""
    return tag("div", tag("b", title), text, class_="empty")


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
