"""Kiro CLI: how it is started and what it prints. By its documentation, unproven."""

import re
import sys
from collections.abc import Iterable

from ralph.agents.adapter import Adapter
from ralph.agents.agent import EDITS, FULL_AUTO, READ_ONLY, Call
from ralph.agents.prices import Prices
from ralph.agents.reader import StreamReader
from ralph.agents.stream_lines import TEXT_CHARS, Data, moment
from ralph.core.limits import Usage
from ralph.core.stream import AgentEvent, Failure, clean_text

_COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_PAID = re.compile(r"▸ Credits: [\d.,]+ • Time: .*\ds$")
"""What it prints after a turn in which its model answered, and only then."""
_REFUSED = "Authentication failed."
"""It ends with exit code 0 after that."""
_ERROR = re.compile(r"error: ", re.IGNORECASE)
_EXITS = {3: "a server that it needs did not start", 4: "it has no agent of that name"}
_MODES = {
    FULL_AUTO: ("--trust-all-tools",),
    EDITS: ("--trust-tools=fs_read,fs_write",),
    READ_ONLY: ("--trust-tools=fs_read",),
}


class Kiro(Adapter):
    """Kiro CLI of Amazon Web Services. It prints for people alone: no tokens, and no id of a conversation."""

    name = "kiro"
    install = "curl -fsSL https://cli.kiro.dev/install | bash"
    advice = "set KIRO_API_KEY: a run without a person needs one"
    keys = ("KIRO_API_KEY",)

    permission_modes = _MODES
    permission_options = ("--trust-all-tools", "--trust-tools", "-a")

    def __init__(self, program: str = "", prices: Prices | None = None) -> None:
        super().__init__(program or "kiro-cli", prices)

    def command(self, call: Call) -> tuple[str, ...]:
        """No questions, every tool trusted, the prompt from a pipe. What tells the end is on standard error."""
        return (
            *(sys.executable, "-P", "-m", "ralph.agents.pipe_prompt", "sh", "-c", 'exec "$0" "$@" 2>&1', self.program),
            *("chat", "--no-interactive", *self.permission_words(call), "--wrap", "never"),
            *(("--model", call.model) if call.model else ()),
            *call.arguments,
        )

    def reader(self, call: Call, before: Usage) -> "KiroReader":
        """Who reads a turn."""
        return KiroReader()

    def failure(self, code: int | None, stderr: str) -> tuple[Failure, str] | None:
        """Its own exit codes."""
        return (Failure.ACCESS, _EXITS[code]) if code in _EXITS else super().failure(code, stderr)


class KiroReader(StreamReader):
    """Reads one turn of Kiro CLI."""

    def read(self, line: bytes) -> Iterable[AgentEvent]:
        """What a line tells: text, an error, or the end."""
        text = clean_text(_COLOURS.sub("", line[:TEXT_CHARS].decode(errors="replace"))).strip()
        self.now = moment(Data())
        if _PAID.search(text):
            return list(self.done())
        if text.startswith(_REFUSED):
            return list(self.fail(text, Failure.ACCESS))
        return list(self.complain(text) if _ERROR.match(text) else self.say(text.removeprefix("> ")))
