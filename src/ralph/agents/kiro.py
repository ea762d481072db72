"""Kiro CLI: how it is started and what it prints. By its documentation, unproven."""

import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from ralph.agents.adapter import Adapter, Prices
from ralph.agents.agent import Call
from ralph.agents.lines import TEXT_CHARS, Complaints, gone_wrong, moment, prose, well_done
from ralph.core.limits import Usage
from ralph.core.stream import AgentEvent, Failure, Kind, clean_text

_COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_PAID = re.compile(r"▸ Credits: [\d.,]+ • Time: .*\ds$")
"""What it prints after a turn in which its model answered, and only then."""
_REFUSED = "Authentication failed."
"""It ends with exit code 0 after that."""
_ERROR = re.compile(r"error: ", re.IGNORECASE)
_EXITS = {3: "a server that it needs did not start", 4: "it has no agent of that name"}


class Kiro(Adapter):
    """Kiro CLI of Amazon Web Services. It prints for people alone: no tokens, and no id of a conversation."""

    name = "kiro"
    install = "curl -fsSL https://cli.kiro.dev/install | bash"
    advice = "set KIRO_API_KEY: a run without a person needs one"
    keys = ("KIRO_API_KEY",)

    def __init__(self, program: str = "", prices: Prices | None = None) -> None:
        super().__init__(program or "kiro-cli", prices)

    def command(self, call: Call) -> tuple[str, ...]:
        """No questions, every tool trusted, the prompt from a pipe. What tells the end is on standard error."""
        return (
            *(sys.executable, "-P", "-m", "ralph.agents.piped", "sh", "-c", 'exec "$0" "$@" 2>&1', self.program),
            *("chat", "--no-interactive", "--trust-all-tools", "--wrap", "never"),
            *(("--model", call.model) if call.model else ()),
            *call.arguments,
        )

    def reader(self, call: Call, before: Usage) -> "KiroReader":
        """Who reads a turn."""
        return KiroReader()

    def failure(self, code: int | None, stderr: str) -> tuple[Failure, str] | None:
        """Its own exit codes."""
        return (Failure.ACCESS, _EXITS[code]) if code in _EXITS else super().failure(code, stderr)


@dataclass
class KiroReader:
    """Reads one turn of Kiro CLI."""

    complaints: Complaints = field(default_factory=Complaints)
    last_words: str = ""

    def read(self, line: bytes) -> Iterable[AgentEvent]:
        """What a line tells: text, an error, or the end."""
        text = _COLOURS.sub("", line[:TEXT_CHARS].decode(errors="replace"))
        return list(self._events(clean_text(text).strip()))

    def _events(self, text: str) -> Iterator[AgentEvent]:
        if _PAID.search(text):
            yield well_done(self.last_words)
        elif text.startswith(_REFUSED):
            yield from self.complaints.about(text, moment({}), Failure.ACCESS)
            yield gone_wrong(text, Failure.ACCESS)
        elif _ERROR.match(text):
            yield from self.complaints.about(text, moment({}))
        elif text := prose(text.removeprefix("> ")):
            self.last_words = f"{self.last_words}\n{text}".strip()[-TEXT_CHARS:]
            yield AgentEvent(Kind.TEXT, text)
