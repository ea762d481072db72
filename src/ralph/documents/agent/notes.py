"""What agents write down for each other and for the user, who may edit the files.

`memories.md` has what they learned, by kind and tags. Text that is not a memory stays.
`decisions.md` has what they decided without being sure, numbered from DEC-001, with what it takes to reverse it.
"""

MEMORY_SECTIONS = {"pattern": "Patterns", "decision": "Decisions", "fix": "Fixes", "context": "Context"}
"""The kinds of memories, and the heading that each kind is under."""
_KINDS = {heading.lower(): kind for kind, heading in MEMORY_SECTIONS.items()}
EMPTY_MEMORIES = "# Memories\n" + "".join(f"\n## {heading}\n" for heading in MEMORY_SECTIONS.values())
CHARACTERS_PER_TOKEN = 4


class Memory:
    """One thing that was learned."""

    __slots__ = ("content", "created", "id", "kind", "tags")

    def __init__(self, id: str, kind: str, content: str, tags: tuple[str, ...], created: str) -> None:
        self.id, self.kind, self.content, self.tags, self.created = id, kind, content, tags, created

    def row(self) -> dict[str, object]:
        """It for programs."""
        tags = list(self.tags)
        return {"id": self.id, "memory_type": self.kind, "content": self.content, "tags": tags, "created": self.created}

    def render(self) -> str:
        """Its text in the file."""
        quoted = "\n".join(f"> {line}".rstrip() for line in self.content.split("\n"))
        return f"### {self.id}\n{quoted}\n<!-- tags: {', '.join(self.tags)} | created: {self.created} -->\n"


def parse_memories(text: str) -> list[Memory]:
    """The memories in a file, in their order."""
    return [memory for memory, _, _ in _find_memories(text.split("\n"))]


def add_memory(text: str, memory: Memory) -> str:
    """The file with one memory more: the newest is the first of its section."""
    text = text if text.strip() else EMPTY_MEMORIES
    lines = text.rstrip("\n").split("\n")
    place = next((number for number, line in enumerate(lines, 1) if _read_kind(line) == memory.kind), None)
    if place is None:
        return "\n".join([*lines, "", f"## {MEMORY_SECTIONS[memory.kind]}", "", memory.render()])
    return "\n".join([*lines[:place], "", memory.render().rstrip("\n"), *lines[place:], ""])


def remove_memory(text: str, id: str) -> str:
    """The file without a memory, and otherwise as it was."""
    lines = text.split("\n")
    for memory, start, end in _find_memories(lines):
        if memory.id == id:
            return "\n".join(lines[:start] + lines[end:])
    return text


def render_memories(memories: list[Memory]) -> str:
    """Memories by kind, for a prompt."""
    if not memories:
        return ""
    parts = ["# Memories"]
    for kind, heading in MEMORY_SECTIONS.items():
        own = [memory.render().rstrip("\n") for memory in memories if memory.kind == kind]
        if own:
            parts += [f"## {heading}", *own]
    return "\n\n".join(parts) + "\n"


def fit_memories(memories: list[Memory], budget: int) -> list[Memory]:
    """The newest memories that fit into the given tokens, whole and in order. 0 means no limit."""
    if budget <= 0:
        return memories
    room = (
        budget * CHARACTERS_PER_TOKEN
        - len("# Memories\n")
        - sum(len(f"\n## {name}\n") for name in MEMORY_SECTIONS.values())
    )
    chosen = set()
    for memory in sorted(memories, key=creation_order, reverse=True):
        size = len(memory.render()) + 1
        if size <= room:
            chosen.add(memory.id)
            room -= size
    return [memory for memory in memories if memory.id in chosen]


def search_memories(memories: list[Memory], query: str) -> list[Memory]:
    """Those with words of the query in content or tags, the best first: rare words count for more, the whole phrase for most."""
    wanted = _split_words(query)
    if not wanted:
        return [memory for memory in memories if query.strip().lower() in memory.content.lower()]
    phrase = query.strip().lower()
    # A word counts in the content and in the tags. It does not have to be a whole word there.
    haystacks = ["\n".join([memory.content, *memory.tags]).lower() for memory in memories]
    memories_with = {word: sum(word in haystack for haystack in haystacks) for word in wanted}
    found = []
    for memory, haystack in zip(memories, haystacks, strict=True):
        text = memory.content.lower()
        tags = [tag.lower() for tag in memory.tags]
        words = _split_words(text)
        score = 0.0
        for word in wanted:
            if word not in haystack:
                continue
            times = words.count(word) + 0.5
            if word in tags:
                times += 3
            score += times / (times + 1) * len(memories) / memories_with[word]
        if score and phrase in text:
            score += len(memories)
        if score:
            found.append((score, creation_order(memory), memory))
    found.sort(key=lambda entry: entry[:2], reverse=True)
    return [memory for _, _, memory in found]


def _split_words(text: str) -> list[str]:
    letters = [letter if letter.isalnum() else " " for letter in text.lower()]
    return "".join(letters).split()


def creation_order(memory: Memory) -> tuple[str, str]:
    """What puts the older before the newer."""
    return memory.created, memory.id


def _find_memories(lines: list[str]) -> list[tuple[Memory, int, int]]:
    """Every memory with the lines that it has, from the first up to but without the last."""
    found: list[tuple[Memory, int, int]] = []
    kind, number = "context", 0
    while number < len(lines):
        line = lines[number].rstrip()
        if line.startswith("## "):
            kind = _read_kind(line) or "context"
        if line.startswith("### mem-"):
            end = number + 1
            while end < len(lines) and not lines[end].startswith(("#", "<!--")):
                end += 1
            quoted = [part for part in lines[number + 1 : end] if part.startswith(">")]
            about = lines[end] if end < len(lines) and lines[end].startswith("<!--") else ""
            end += bool(about)
            while end < len(lines) - 1 and not lines[end].strip():
                end += 1
            if quoted:
                content = "\n".join(part[1:].removeprefix(" ").rstrip() for part in quoted)
                found.append((Memory(line[4:].split()[0], kind, content, *_read_comment(about)), number, end))
            number = end - 1
        number += 1
    return found


def _read_kind(heading: str) -> str | None:
    """The kind of memories that a heading is over."""
    return _KINDS.get(heading[3:].strip().lower()) if heading.startswith("## ") else None


def _read_comment(comment: str) -> tuple[tuple[str, ...], str]:
    """The tags and the day in the comment below a memory."""
    fields = dict(part.partition(":")[::2] for part in comment[4:].rstrip().removesuffix("-->").split("|"))
    named = {name.strip(): value.strip() for name, value in fields.items()}
    tags = tuple(tag.strip() for tag in named.get("tags", "").split(",") if tag.strip())
    return tags, named.get("created", "")


DECISION_FIELDS = ("confidence", "alternatives", "reasoning", "reversibility")
"""What every decision says beside what it is."""
_DECISIONS_TITLE = "# Decisions\n"
_DECISION_MARK = "DEC-"


class Decision:
    """One decision."""

    __slots__ = ("fields", "number", "text", "title")

    def __init__(self, number: int, title: str, fields: dict[str, str], text: str = "") -> None:
        self.number, self.title, self.fields, self.text = number, title, fields, text

    @property
    def id(self) -> str:
        """DEC-001 and on."""
        return f"{_DECISION_MARK}{self.number:03d}"

    def row(self) -> dict[str, object]:
        """It for programs."""
        return {"id": self.id, "decision": self.title, **self.fields}

    def render(self) -> str:
        """Its entry in the file."""
        lines = [f"- {name.capitalize()}: {_fold_space(value)}" for name, value in self.fields.items() if value]
        return f"## {self.id}: {_fold_space(self.title)}\n\n" + "".join(f"{line}\n" for line in lines)


def parse_decisions(text: str) -> list[Decision]:
    """The decisions in a file, also those that agents wrote by hand in a form of their own."""
    return [_parse_decision(entry) for entry in _split_entries(text)[1]]


def add_decision(text: str, title: str, fields: dict[str, str]) -> tuple[str, Decision]:
    """The file with one decision more, under the next number."""
    text = renumber_decisions(text)
    decision = Decision(_highest_number(_split_entries(text)[1]) + 1, title, fields)
    return f"{(text if text.strip() else _DECISIONS_TITLE).rstrip()}\n\n{decision.render()}", decision


def renumber_decisions(text: str) -> str:
    """The file with every number once: where two agents took the same one by hand, the later entry gets the next."""
    head, entries = _split_entries(text)
    taken: set[int] = set()
    highest = _highest_number(entries)
    for place, entry in enumerate(entries):
        decision = _parse_decision(entry)
        if decision.number in taken:
            highest += 1
            entries[place] = entry.replace(f"{_DECISION_MARK}{_read_digits(entry)}", f"{_DECISION_MARK}{highest:03d}")
        taken.add(decision.number)
    return "".join([head, *entries]).removesuffix("\n")


def _highest_number(entries: list[str]) -> int:
    return max((_parse_decision(entry).number for entry in entries), default=0)


def _split_entries(text: str) -> tuple[str, list[str]]:
    """What is before the first decision, and every decision with all that follows it."""
    parts: list[list[str]] = [[]]
    for line in text.split("\n"):
        if line.startswith("#") and _read_number(line):
            parts.append([])
        parts[-1].append(line)
    head, *entries = ["\n".join(part) + "\n" for part in parts]
    return head, entries


def _parse_decision(entry: str) -> Decision:
    heading, *lines = entry.split("\n")
    title = heading.partition(f"{_DECISION_MARK}{_read_digits(heading)}")[2].strip(" :-—–*[]")
    fields: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.replace("*", "").strip(" -").partition(":")
        if colon and name.replace(" ", "").isalpha() and len(name) < 40:
            fields[name.strip().lower()] = value.strip()
    return Decision(_read_number(heading), title or fields.get("decision", ""), fields, entry)


def _read_digits(heading: str) -> str:
    """The digits behind the first mark in a heading; none if it has no mark with digits."""
    behind = heading.partition(_DECISION_MARK)[2]
    return behind[: len(behind) - len(behind.lstrip("0123456789"))]


def _read_number(heading: str) -> int:
    return int(_read_digits(heading)[:9] or 0)


def _fold_space(text: str) -> str:
    return " ".join(text.split())
