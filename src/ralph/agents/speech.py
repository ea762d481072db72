"""What an agent says in pieces that end anywhere."""

from collections.abc import Iterator
from dataclasses import dataclass

from ralph.agents.lines import TEXT_CHARS, prose
from ralph.core.stream import AgentEvent, Kind


@dataclass
class Speech:
    """Tells it in whole lines, and keeps the last words."""

    half: str = ""
    """A line that has not ended yet."""
    last_words: str = ""
    """What it said since it last used a tool."""

    def hear(self, piece: str) -> Iterator[AgentEvent]:
        """The lines that a piece ends."""
        self.half += piece
        whole, newline, rest = self.half.rpartition("\n")
        if newline or len(self.half) > TEXT_CHARS:
            self.half = whole or self.half
            yield from self.end()
            self.half = rest if newline else ""

    def end(self) -> Iterator[AgentEvent]:
        """The rest: nothing more belongs to it."""
        text, self.half = prose(self.half), ""
        if text:
            self.last_words = f"{self.last_words}\n{text}".strip()[-TEXT_CHARS:]
            yield AgentEvent(Kind.TEXT, text)
