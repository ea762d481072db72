"""`decisions.md`: what agents decided without being sure, numbered DEC-001 and on, with what somebody needs to take it back."""

FIELDS = ("confidence", "alternatives", "reasoning", "reversibility")
"""What every decision says beside what it is."""
TITLE = "# Decisions\n"
_MARK = "DEC-"


class Decision:
    """One decision, in the words of its entry."""

    __slots__ = ("fields", "number", "text", "title")

    def __init__(self, number: int, title: str, fields: dict[str, str], text: str = "") -> None:
        self.number, self.title, self.fields, self.text = number, title, fields, text

    @property
    def id(self) -> str:
        """DEC-001 and on."""
        return f"{_MARK}{self.number:03d}"

    def row(self) -> dict[str, object]:
        """It for programs."""
        return {"id": self.id, "decision": self.title, **self.fields}

    def render(self) -> str:
        """Its entry in the file."""
        told = [f"- {name.capitalize()}: {_folded(value)}" for name, value in self.fields.items() if value]
        return f"## {self.id}: {_folded(self.title)}\n\n" + "".join(f"{line}\n" for line in told)


def parse(text: str) -> list[Decision]:
    """The decisions in a file, also those that agents wrote by hand in a form of their own."""
    return [_read(entry) for entry in _entries(text)[1]]


def added(text: str, title: str, fields: dict[str, str]) -> tuple[str, Decision]:
    """The file with one decision more, under the next number."""
    text = settled(text)
    decision = Decision(_highest(_entries(text)[1]) + 1, title, fields)
    return f"{(text if text.strip() else TITLE).rstrip()}\n\n{decision.render()}", decision


def settled(text: str) -> str:
    """The file with every number once: where two agents took the same one by hand, the later entry gets the next."""
    head, entries = _entries(text)
    taken: set[int] = set()
    highest = _highest(entries)
    for place, entry in enumerate(entries):
        decision = _read(entry)
        if decision.number in taken:
            highest += 1
            entries[place] = entry.replace(f"{_MARK}{_digits(entry)}", f"{_MARK}{highest:03d}")
        taken.add(decision.number)
    return "".join([head, *entries]).removesuffix("\n")


def _highest(entries: list[str]) -> int:
    return max((_read(entry).number for entry in entries), default=0)


def _entries(text: str) -> tuple[str, list[str]]:
    """What is before the first decision, and every decision with all that follows it."""
    parts: list[list[str]] = [[]]
    for line in text.split("\n"):
        if line.startswith("#") and _number(line):
            parts.append([])
        parts[-1].append(line)
    head, *entries = ["\n".join(part) + "\n" for part in parts]
    return head, entries


def _read(entry: str) -> Decision:
    heading, *lines = entry.split("\n")
    title = heading.partition(f"{_MARK}{_digits(heading)}")[2].strip(" :-—–*[]")
    fields: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.replace("*", "").strip(" -").partition(":")
        if colon and name.replace(" ", "").isalpha() and len(name) < 40:
            fields[name.strip().lower()] = value.strip()
    return Decision(_number(heading), title or fields.get("decision", ""), fields, entry)


def _digits(heading: str) -> str:
    """The digits behind the first mark in a heading; none where it has no mark with digits."""
    behind = heading.partition(_MARK)[2]
    return behind[: len(behind) - len(behind.lstrip("0123456789"))]


def _number(heading: str) -> int:
    return int(_digits(heading)[:9] or 0)


def _folded(text: str) -> str:
    return " ".join(text.split())
