"""`memories.md`: what agents learned, by kind and tags, as Markdown that a person can edit: what is not a memory in it stays."""

SECTIONS = {"pattern": "Patterns", "decision": "Decisions", "fix": "Fixes", "context": "Context"}
"""The kinds of memories, and the heading that each kind is under."""
KINDS = {heading.lower(): kind for kind, heading in SECTIONS.items()}
EMPTY = "# Memories\n" + "".join(f"\n## {heading}\n" for heading in SECTIONS.values())
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
        """It as it stands in the file."""
        quoted = "\n".join(f"> {line}".rstrip() for line in self.content.split("\n"))
        return f"### {self.id}\n{quoted}\n<!-- tags: {', '.join(self.tags)} | created: {self.created} -->\n"


def parse(text: str) -> list[Memory]:
    """The memories in a file, in their order."""
    return [memory for memory, _, _ in _blocks(text.split("\n"))]


def added(text: str, memory: Memory) -> str:
    """The file with one memory more: the newest is the first of its section."""
    text = text if text.strip() else EMPTY
    lines = text.rstrip("\n").split("\n")
    place = next((number for number, line in enumerate(lines, 1) if _kind(line) == memory.kind), None)
    if place is None:
        return "\n".join([*lines, "", f"## {SECTIONS[memory.kind]}", "", memory.render()])
    return "\n".join([*lines[:place], "", memory.render().rstrip("\n"), *lines[place:], ""])


def without(text: str, id: str) -> str:
    """The file without a memory, and otherwise as it was."""
    lines = text.split("\n")
    for memory, start, end in _blocks(lines):
        if memory.id == id:
            return "\n".join(lines[:start] + lines[end:])
    return text


def markdown(memories: list[Memory]) -> str:
    """Memories by kind, for a prompt."""
    parts = ["# Memories"] if memories else []
    for kind, heading in SECTIONS.items():
        own = [memory.render() for memory in memories if memory.kind == kind]
        parts += [f"## {heading}", *own] if own else []
    return "\n\n".join(part.rstrip("\n") for part in parts) + ("\n" if parts else "")


def within(memories: list[Memory], budget: int) -> list[Memory]:
    """The newest memories that fit into so many tokens, whole, in their order; 0 is no limit."""
    if budget <= 0:
        return memories
    room = (
        budget * CHARACTERS_PER_TOKEN - len("# Memories\n") - sum(len(f"\n## {name}\n") for name in SECTIONS.values())
    )
    chosen = set()
    for memory in sorted(memories, key=age, reverse=True):
        size = len(memory.render()) + 1
        if size <= room:
            chosen.add(memory.id)
            room -= size
    return [memory for memory in memories if memory.id in chosen]


def search(memories: list[Memory], query: str) -> list[Memory]:
    """Those with words of the query in content or tags, the best first: rare words count for more, the whole phrase for most."""
    wanted = _words(query)
    if not wanted:
        return [memory for memory in memories if query.strip().lower() in memory.content.lower()]
    texts = [(memory, memory.content.lower(), [tag.lower() for tag in memory.tags]) for memory in memories]
    having = {word: sum(word in text or any(word in tag for tag in tags) for _, text, tags in texts) for word in wanted}
    found = []
    for memory, text, tags in texts:
        score, spoken = 0.0, _words(text)
        for word in wanted:
            times = 3 * (word in tags) + spoken.count(word) + 0.5 * (word in text or any(word in tag for tag in tags))
            score += times / (times + 1) * len(texts) / having[word] if times else 0.0
        if score:
            found.append((score + len(texts) * (query.strip().lower() in text), age(memory), memory))
    return [memory for _, _, memory in sorted(found, key=lambda entry: entry[:2], reverse=True)]


def _words(text: str) -> list[str]:
    return "".join(letter if letter.isalnum() else " " for letter in text.lower()).split()


def age(memory: Memory) -> tuple[str, str]:
    """What puts the older before the newer."""
    return memory.created, memory.id


def _blocks(lines: list[str]) -> list[tuple[Memory, int, int]]:
    """Every memory with the lines that it has, from the first up to but without the last."""
    found: list[tuple[Memory, int, int]] = []
    kind, number = "context", 0
    while number < len(lines):
        line = lines[number].rstrip()
        if line.startswith("## "):
            kind = _kind(line) or "context"
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
                found.append((Memory(line[4:].split()[0], kind, content, *_about(about)), number, end))
            number = end - 1
        number += 1
    return found


def _kind(heading: str) -> str | None:
    """The kind of memories that a heading is over."""
    return KINDS.get(heading[3:].strip().lower()) if heading.startswith("## ") else None


def _about(comment: str) -> tuple[tuple[str, ...], str]:
    """The tags and the day in the comment below a memory."""
    fields = dict(part.partition(":")[::2] for part in comment[4:].rstrip().removesuffix("-->").split("|"))
    named = {name.strip(): value.strip() for name, value in fields.items()}
    tags = tuple(tag.strip() for tag in named.get("tags", "").split(",") if tag.strip())
    return tags, named.get("created", "")
