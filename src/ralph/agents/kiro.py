"""Kiro CLI: how it is started and what it prints. From its documentation, never tested with the real program."""

import re
import sys
from collections.abc import Iterable

from ralph.agents.adapter import EDITS, FULL_AUTO, READ_ONLY, Adapter, Call
from ralph.agents.prices import Prices
from ralph.agents.reader import StreamReader
from ralph.agents.stream_lines import TEXT_CHARS, Data, read_timestamp
from ralph.core.limits import Usage
from ralph.core.text import clean_text
from ralph.core.turns import AgentEvent, Failure

_COLORS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_CREDITS = re.compile(r"▸ Credits: [\d.,]+ • Time: .*\ds$")
"""Kiro prints this only after a turn in which its model answered."""
_SIGNED_OUT = "Authentication failed."
"""Kiro exits with 0 after this message."""
_ERROR = re.compile(r"error: ", re.IGNORECASE)
_EXITS = {3: "a server that it needs did not start", 4: "it has no agent of that name"}
_MODES = {
    FULL_AUTO: ("--trust-all-tools",),
    EDITS: ("--trust-tools=fs_read,fs_write",),
    READ_ONLY: ("--trust-tools=fs_read",),
}


class Kiro(Adapter):
    """Kiro CLI, by Amazon Web Services. It prints text only: no tokens, and no id of a conversation."""

    name = "kiro"
    install = "curl -fsSL https://cli.kiro.dev/install | bash"
    advice = "set KIRO_API_KEY: an unattended run needs one"
    keys = ("KIRO_API_KEY",)

    instruction_files = ("AGENTS.md",)
    permission_modes = _MODES
    permission_options = ("--trust-all-tools", "--trust-tools", "-a")

    def __init__(self, program: str = "", prices: Prices | None = None) -> None:
        super().__init__(program or "kiro-cli", prices)

    def command(self, call: Call) -> tuple[str, ...]:
        """No questions, every tool trusted, the prompt from a pipe. The line with the credits is on standard error."""
        return (
            *(sys.executable, "-P", "-m", "ralph.agents.wrap_program", "pipe-prompt"),
            *("sh", "-c", 'exec "$0" "$@" 2>&1', self.program),
            *("chat", "--no-interactive", *self.permission_arguments(call), "--wrap", "never"),
            *(("--model", call.model) if call.model else ()),
            *call.arguments,
        )

    def reader(self, call: Call, before: Usage) -> "KiroReader":
        return KiroReader()

    def failure(self, code: int | None, stderr: str) -> tuple[Failure, str] | None:
        """Its own exit codes, else standard error."""
        if code in _EXITS:
            return Failure.ACCESS, _EXITS[code]
        return super().failure(code, stderr)


class KiroReader(StreamReader):
    """Reads one turn of Kiro CLI."""

    def read(self, line: bytes) -> Iterable[AgentEvent]:
        """The events in a line: text, an error, or the end."""
        text = clean_text(_COLORS.sub("", line[:TEXT_CHARS].decode(errors="replace"))).strip()
        self.now = read_timestamp(Data())
        if _CREDITS.search(text):
            return list(self.succeed())
        if text.startswith(_SIGNED_OUT):
            return list(self.fail(text, Failure.ACCESS))
        if _ERROR.match(text):
            return list(self.report_error(text))
        return list(self.say(text.removeprefix("> ")))
