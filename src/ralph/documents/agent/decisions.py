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
    highest = max((decision.number for decision in parse(text)), default=0)
    decision = Decision(highest + 1, title, fields)
    return f"{(text if text.strip() else TITLE).rstrip()}\n\n{decision.render()}", decision


def merged(ours: str, theirs: str) -> str:
    """Our file with what is new in theirs behind it: numbers that are taken become the next ones, wherever they are spoken of."""
    head, mine = _entries(ours)
    known = {_body(entry) for entry in mine}
    new = [entry for entry in _entries(theirs)[1] if _body(entry) not in known]
    taken = {_read(entry).number for entry in mine}
    highest = max(taken | {_read(entry).number for entry in new}, default=0)
    renamed: dict[int, int] = {}
    for entry in new:
        number = _read(entry).number
        if number in taken:
            highest += 1
            renamed[number] = highest
        taken.add(number)
    moved = [_renumbered(entry, renamed) for entry in new]
    parts = [part for part in (head.rstrip(), *(entry.rstrip() for entry in [*mine, *moved])) if part]
    return "\n\n".join(parts) + "\n" if parts else ours


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


def _body(entry: str) -> str:
    """An entry without its number: the same decision in two files is one decision."""
    heading, _, rest = entry.partition("\n")
    return heading.replace(f"{_MARK}{_digits(heading)}", "", 1).strip("# ") + "\n" + rest.strip()


def _renumbered(entry: str, renamed: dict[int, int]) -> str:
    """An entry with all the numbers that it speaks of as they are now."""
    first, *parts = entry.split(_MARK)
    told = [first]
    for part in parts:
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        number = int(digits[:9] or 0)
        told.append(f"{renamed[number]:03d}{part[len(digits) :]}" if number in renamed else part)
    return _MARK.join(told)


def _folded(text: str) -> str:
    return " ".join(text.split())
