"""Values of YAML and of fields, read for what people mean by them. A reader raises a ValueError that says what it expects."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias, TypeVar

from ralph.documents.plain_yaml import flow
from ralph.documents.session import timestamps
from ralph.documents.session.yaml_lines import YamlLines

T = TypeVar("T")
Reader: TypeAlias = Callable[[Any], Any]


def text_of(value: object) -> str:
    """A value as text: null is none, and a word that YAML takes for something else is what was written."""
    return "" if value is None else value.strip() if isinstance(value, str) else flow(value)


def number_of(value: object) -> int | None:
    """A value as a whole number, quoted or not; None for what is none."""
    if isinstance(value, str) and value.strip().isascii() and value.strip().isdigit() and len(value) < 20:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def words_of(value: object) -> tuple[str, ...]:
    """A list of words, or the words of a text between commas."""
    parts = value if isinstance(value, list) else text_of(value).strip("[]").split(",")
    return tuple(word for part in parts if (word := text_of(part).strip("\"'` ")))


def first_of(text: str, words: Iterable[tuple[str, T]]) -> T | None:
    """What the first of these words in a text stands for; None for a choice, `A | B`, that nobody made."""
    found = [(match.start(), one) for pattern, one in words for match in re.finditer(pattern, text, re.IGNORECASE)]
    if not found or ("|" in text and len({one for _, one in found}) > 1):
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
        word = text_of(value).strip("\"'`").casefold()
        if word not in known:
            raise ValueError(f"one of {', '.join(words)}")
        return known[word]

    return read


def moment(value: Any) -> str:
    """A moment, as it was written."""
    if timestamps.parse(text_of(value)) is None:
        raise ValueError("a moment, such as 2026-02-10T16:39:00+07:00")
    return text_of(value)


def word(value: Any) -> str:
    """Text of any kind."""
    if isinstance(value, dict | list) or not text_of(value):
        raise ValueError("a word")
    return text_of(value)


def flag(value: Any) -> bool:
    return {"true": True, "false": False}[choice(("true", "false"), {"yes": "true", "no": "false"})(value)]


def optional(reader: Reader, nothing: Any) -> Reader:
    """What the reader reads, and that value for an empty key or null."""
    return lambda value: reader(value) if text_of(value) else nothing


def mapping(reader: Reader) -> Reader:
    """A mapping to what the reader reads; a list has no more to say than its keys."""

    def read(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict | list):
            raise ValueError("a mapping")
        value = value if isinstance(value, dict) else dict.fromkeys(map(text_of, value), "")
        return {key: reader(one) for key, one in value.items()}

    return read


def read_all(lines: YamlLines, readers: Mapping[str, tuple[str, Reader]]) -> tuple[dict[str, Any], dict[str, str]]:
    """The values at these paths by name, and a sentence for each that cannot be read."""
    values, faults = {}, {}
    for name, (path, reader) in readers.items():
        if lines.has(path):
            try:
                values[name] = reader(lines.get(path))
            except ValueError as expected:
                got = text_of(lines.get(path))[:80] or "empty"
                faults[name] = f"line {lines.line(path)}: `{path}` must be {expected}, and is {got}"
    return values, faults
