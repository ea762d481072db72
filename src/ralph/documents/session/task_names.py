"""The ids of tasks as people write them: `task-3`, `Task 3`, `task-2, 3`, `task-4 to 8`."""

import re

ID = r"(?:(?:plan|qa|task)-[A-Za-z0-9](?:[\w.-]*\w)?|tasks?\s+#?\d+(?:\.\d+)*)"
"""What an id looks like, in either case."""
STATUS = re.compile(
    r"not[ -]started|pending review|review[ -]pending|in[ -]progress|completed?|done|failed|cancelled|todo|attempt \d+",
    re.IGNORECASE,
)
"""The words for a marker."""
_NUMBERED = re.compile(r"tasks?[\s-]+#?(\d+(?:\.\d+)*)", re.IGNORECASE)
_LISTED = re.compile(
    rf"(?:(?P<join>,|;|&|\band\b|\bto\b|\bthrough\b|\.\.+|–|—|\s-\s)\s*)?(?P<id>{ID}|(?P<bare>\d+(?:\.\d+)*)\b)",
    re.IGNORECASE,
)
_PLURAL = re.compile(r"(tasks\s+\d+)-(\d+)", re.IGNORECASE)
_RANGE = ("to", "through", "–", "—", "-")
_ASIDE = re.compile(r"\([^)]*\)")
_MARKS = re.compile(r"[*`_]{1,2}(?=\S)|(?<=\S)[*`_]{1,2}|[\[\]]")
MOST = 1000
"""The longest range that is taken for one."""


def named(text: str) -> str:
    """The id in the one form that is used inside: `Task 3` is `task-3`."""
    text = text.strip()
    match = _NUMBERED.fullmatch(text)
    return f"task-{match[1]}" if match else text


def is_planning(id: str) -> bool:
    """Whether an id is that of a planning step."""
    return id.startswith(("plan-", "qa-"))


def ids_in(text: str) -> tuple[str, ...]:
    """The ids in a list that somebody wrote, ranges written out; a number counts only behind an id."""
    text = _PLURAL.sub(r"\1 to \2", _MARKS.sub("", _ASIDE.sub("", text)))
    found: list[str] = []
    end = -1
    for match in _LISTED.finditer(text):
        join = (match["join"] or "").strip().lower()
        follows = bool(join) and end >= 0 and not text[end : match.start()].strip()
        if match["bare"] and not follows:
            continue
        id = f"task-{match['bare']}" if match["bare"] else named(match["id"])
        is_range = follows and (join in _RANGE or join.startswith(".."))
        found += _between(found[-1], id) if is_range else [id]
        end = match.end()
    return tuple(dict.fromkeys(found))


def _between(first: str, last: str) -> list[str]:
    """The ids after the first up to the last, where both have whole numbers; else the last."""
    low, high = first.removeprefix("task-"), last.removeprefix("task-")
    if low.isdecimal() and high.isdecimal() and int(low) < int(high) <= int(low) + MOST:
        return [f"task-{number}" for number in range(int(low) + 1, int(high) + 1)]
    return [last]
