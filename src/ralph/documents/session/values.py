"""Values of YAML, front matter and fields, read as users mean them; moments are written as RFC 3339.

A reader of a value raises a ValueError that says what it expects.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta, timezone
from functools import lru_cache
from typing import Any, TypeAlias, TypeVar

from ralph.core.errors import StateError
from ralph.documents import yaml_codec
from ralph.documents.session.markdown import Page
from ralph.documents.yaml_codec import YamlDocument, YamlError, render_inline

T = TypeVar("T")
CORRECT = "correct the file by hand, or let `ralph session repair` rebuild it"
Reader: TypeAlias = Callable[[Any], Any]


def read_text(value: object) -> str:
    """A value as text: null is none, and a word that YAML takes for something else is what was written."""
    if value is None:
        return ""
    return value.strip() if isinstance(value, str) else render_inline(value)


def number_of(value: object) -> int | None:
    """A value as a whole number, quoted or not; None for what is none."""
    if isinstance(value, str) and value.strip().isascii() and value.strip().isdigit() and len(value) < 20:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def read_words(value: object) -> tuple[str, ...]:
    """A list of words, or the words of a text between commas."""
    parts = value if isinstance(value, list) else read_text(value).strip("[]").split(",")
    return tuple(word for part in parts if (word := read_text(part).strip("\"'` ")))


def find_first(text: str, words: Iterable[tuple[str, T]]) -> T | None:
    """What the first of these words in a text stands for; None for a choice, `A | B`, that is still open."""
    found: list[tuple[int, T]] = []
    for pattern, meaning in words:
        found += [(match.start(), meaning) for match in re.finditer(pattern, text, re.IGNORECASE)]
    is_open_choice = "|" in text and len({meaning for _, meaning in found}) > 1
    if not found or is_open_choice:
        return None
    return min(found, key=lambda one: one[0])[1]


def count(least: int) -> Reader:
    """Whole numbers from that one on."""

    def read(value: Any) -> int:
        number = number_of(value)
        if number is None or number < least:
            raise ValueError(f"a whole number from {least}")
        return number

    return read


def choice(words: tuple[str, ...], also: Mapping[str, str] | None = None) -> Reader:
    """One of these words in either case; `also` are other words for some of them."""
    known = {word.casefold(): word for word in words} | {word.casefold(): one for word, one in (also or {}).items()}

    def read(value: Any) -> str:
        word = read_text(value).strip("\"'`").casefold()
        if word not in known:
            raise ValueError(f"one of {', '.join(words)}")
        return known[word]

    return read


def moment(value: Any) -> str:
    """A moment, as it was written."""
    if parse_timestamp(read_text(value)) is None:
        raise ValueError("a date and time such as 2026-02-10T16:39:00+07:00")
    return read_text(value)


def word(value: Any) -> str:
    """Text of any kind."""
    if isinstance(value, dict | list) or not read_text(value):
        raise ValueError("a word")
    return read_text(value)


def flag(value: Any) -> bool:
    return {"true": True, "false": False}[choice(("true", "false"), {"yes": "true", "no": "false"})(value)]


def optional(reader: Reader, nothing: Any) -> Reader:
    """What the reader reads, and that value for an empty key or null."""
    return lambda value: reader(value) if read_text(value) else nothing


def mapping(reader: Reader) -> Reader:
    """A mapping to what the reader reads; a list has no more to say than its keys."""

    def read(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict | list):
            raise ValueError("a mapping")
        value = value if isinstance(value, dict) else dict.fromkeys(map(read_text, value), "")
        return {key: reader(one) for key, one in value.items()}

    return read


def read_all(
    document: YamlDocument, readers: Mapping[str, tuple[str, Reader]]
) -> tuple[dict[str, Any], dict[str, str]]:
    """The values at these paths by name, and a sentence for each that cannot be read."""
    values, faults = {}, {}
    for name, (path, reader) in readers.items():
        if document.has(path):
            try:
                values[name] = reader(document.get(path))
            except ValueError as expected:
                got = read_text(document.get(path))[:80] or "empty"
                faults[name] = f"line {document.line(path)}: `{path}` must be {expected}, and is {got}"
    return values, faults


def read_mapping(text: str, where: str, first_line: int = 1) -> YamlDocument:
    """The `key: value` lines of a session's file; a StateError with the line if it is not readable."""
    try:
        return _load_once(text, first_line)
    except YamlError as error:
        place = where if error.line is None else f"{where}, line {error.line}"
        raise StateError(error.what, where=place, todo=CORRECT) from error


@lru_cache(maxsize=512)
def _load_once(text: str, first_line: int) -> YamlDocument:
    """The rules read the same few hundred files at every step, and parsed documents never change."""
    return yaml_codec.load_mapping(text, first_line=first_line)


def describe_fault(error: StateError) -> str:
    """An error as one of a list of problems: a sentence that begins with its line."""
    _, _, line = error.where.rpartition("line ")
    return f"line {line if line.isdigit() else 1}: {error.what}"


def read_front_matter(page: Page, where: str) -> YamlDocument:
    """The front matter of a page; empty if it has none, a StateError if it is not readable."""
    return read_mapping(page.front, where, page.front_start + 1)


def read_front_values(page: Page) -> dict[str, Any]:
    """The front matter of a page that can be read without; empty if it is not readable."""
    try:
        return dict(read_front_matter(page, "").data)
    except StateError:
        return {}


def with_front_matter(text: str, where: str, values: Mapping[str, Any]) -> str:
    """The text with these values in its front matter, which it gets if it has none."""
    page = Page(text)
    front = yaml_codec.edit(read_front_matter(page, where).text, values)
    return (
        page.with_front(front) if page.body else page.replace_lines(0, 0, ["---", *front.split("\n")[:-1], "---", ""])
    )


_MOMENT = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)(?:[T ](\d\d):(\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)?)?\s*(Z|(?:UTC|GMT)?[+-]\d\d?(?::?\d\d)?|UTC|GMT)?",
    re.IGNORECASE,
)
_STAMP = re.compile(
    r"(\d{2}|\d{4})(\d\d)(\d\d)[-T](\d\d)(\d\d)(\d\d)()(Z|[+-]\d\d:?\d\d)?(?:-[0-9a-z]{1,4})?", re.IGNORECASE
)
_OFFSET = re.compile(r"([+-])(\d\d?):?(\d\d)?$")


def parse_timestamp(text: str) -> datetime | None:
    """The time in a text, in any common format; None if there is none.

    Without an offset it is UTC. The stamp in the name of a session or a batch is local time.
    """
    text = text.strip().strip("\"'")
    stamp = _STAMP.fullmatch(text)
    match = _MOMENT.fullmatch(text) or stamp
    if match is None:
        return None
    *numbers, fraction, zone = match.groups()
    year, month, day, hour, minute, second = (int(number or 0) for number in numbers)
    year += 2000 if len(match[1]) == 2 else 0
    try:
        at = datetime(year, month, day, hour, minute, second)
        at = at.astimezone() if stamp and not zone else at.replace(tzinfo=_parse_offset(zone or ""))
        at.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return at.replace(microsecond=int(f"{fraction or 0:0<6}"[:6]))


def render_timestamp(at: datetime | float) -> str:
    """A moment to the second, with its offset; seconds since 1970 are written in local time."""
    if not isinstance(at, datetime):
        at = datetime.fromtimestamp(at, UTC).astimezone()
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return at.isoformat(timespec="seconds").replace("+00:00", "Z")


def _parse_offset(text: str) -> timezone:
    match = _OFFSET.search(text)
    if match is None:
        return UTC
    offset = timedelta(hours=int(match[2]), minutes=int(match[3] or 0))
    return timezone(-offset if match[1] == "-" else offset)
