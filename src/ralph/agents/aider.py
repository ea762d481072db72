"""Aider: how it is started and what it prints. Measured with 0.86.2."""

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ralph.agents import failures
from ralph.agents.adapter import EDITS, FULL_AUTO, OWN_FILES, READ_ONLY, Abilities, Adapter, Call
from ralph.agents.reader import StreamReader
from ralph.agents.stream_lines import TEXT_CHARS, Data, describe_tool, limit_text, parse_line, read_timestamp
from ralph.core.limits import Usage
from ralph.core.text import clean_text
from ralph.core.turns import AgentEvent, EventKind

_QUIET = (
    *("--yes-always", "--no-pretty", "--no-stream", "--no-auto-commits", "--no-dirty-commits", "--no-gitignore"),
    *("--no-check-update", "--no-show-release-notes", "--no-show-model-warnings", "--no-detect-urls"),
    *("--no-suggest-shell-commands", "--no-analytics"),
)
_MODES = {FULL_AUTO: (), EDITS: (), READ_ONLY: ("--chat-mode", "ask")}
"""Aider never runs commands, so edits are all that it can do."""
_MAX_LINES = 1000
_ANSWER = ".ralph/turn/outbox/result.json"
_HISTORY = "aider.chat.history.md"
_RETRY = re.compile(r"Retrying in \d+\.\d seconds\.\.\.")
_TOKEN_LINE = re.compile(r"Tokens: \S+ sent, .*received\.")
_EDITED = "Applied edit to "
_MODEL_LINE = re.compile(r"(?:Main m|M)odel: (\S+)")
_TOO_LONG = re.compile(r"Model \S+ has hit a token limit!")


class Aider(Adapter):
    """Aider, with the models of many providers. It has no tools: its model answers with edits of files.

    Its analytics log goes to standard output, and nowhere else. Those lines are JSON.
    """

    name = "aider"
    install = "python -m pip install aider-chat"
    advice = "name a model, and set the key of its provider, for example OPENAI_API_KEY or ANTHROPIC_API_KEY"
    abilities = Abilities(commands=False, resume=True, session=True, tokens=True, cost=True)
    keys = failures.LITELLM_KEYS
    credentials = (".aider/oauth-keys.env",)
    may_hold = (".aider.conf.yml",)
    permission_modes = _MODES
    permission_options = ("--chat-mode",)
    reading_arguments = ("--chat-mode=ask", "--chat-mode=help")

    def sign_in(self, environment: Mapping[str, str], home: Path) -> tuple[bool | None, str]:
        """With the key for the provider of its model."""
        return super().sign_in(failures.keep_needed_keys(environment, environment.get("AIDER_MODEL", "")), home)

    def command(self, call: Call) -> tuple[str, ...]:
        """One message from a file, every question confirmed, no commits. Its history is in its own files.

        Aider edits no file that Git ignores unless it is named, so the answer file is. Only its repository map has a
        cache in the tree.
        """
        own = self.find_own_directory(call)
        return (
            self.program,
            *_QUIET,
            *self.permission_arguments(call),
            *("--analytics-log", "/dev/stdout", "--message-file", str(call.prompt)),
            *("--add-gitignore-files", "--file", str(call.workspace / _ANSWER)),
            *("--input-history-file", str(own / "aider.input.history"), "--chat-history-file", str(own / _HISTORY)),
            *(("--restore-chat-history",) if call.session else ()),
            *(("--model", call.model) if call.model else ()),
            *call.arguments,
        )

    def find_own_directory(self, call: Call) -> Path:
        """For the history. A conversation that is continued has it in the directory of the turn that began it."""
        return call.prompt.parent.parent / call.session / OWN_FILES if call.session else call.own_files

    def environment(self, call: Call) -> Mapping[str, str]:
        """Long lines stay whole. With every question confirmed, Aider would open the pages that an error names."""
        return {"COLUMNS": "10000", "BROWSER": "true", "PYTHONUNBUFFERED": "1"}

    def reader(self, call: Call, before: Usage) -> "AiderReader":
        """A conversation has the name of the turn that began it, whose directory has its history."""
        session_name = call.session or call.prompt.parent.resolve().name
        return AiderReader(self.prices, call.model, session_name=session_name)


@dataclass
class AiderReader(StreamReader):
    """Reads one turn of Aider."""

    session_name: str = ""
    """Our name for the conversation: Aider has none."""
    is_asking: bool = False
    """Whether the model was asked, and no log event has reported an answer."""
    has_answer_ended: bool = False
    """Whether the text of the answer is over. The line with its tokens ends it."""
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=_MAX_LINES))
    """What was printed since the model was asked: the answer, or why there is none."""
    last_error: str = ""
    """Why the last answer is useless."""

    def read(self, line: bytes) -> Iterable[AgentEvent]:
        """The events in a line: an event of its own log, or text."""
        data = parse_line(line)
        self.now = read_timestamp(data)
        if data.text("user_id") and "time" in data:
            return list(self._log_event(data.text("event"), data.inner("properties")))
        return list(self._text(clean_text(line[:TEXT_CHARS].decode(errors="replace")).rstrip()))

    def _log_event(self, name: str, properties: Data) -> Iterator[AgentEvent]:
        match name:
            case "launched":
                yield from self.start_session(self.session_name)
            case "message_send_starting":
                self.is_asking, self.has_answer_ended, self.last_error = True, False, ""
                self.lines.clear()
            case "message_send":
                self.is_asking = False
                if text := self._join_lines():
                    self.buffer.last_message = ""
                    yield from self.say(text)
                yield from self.add_usage(
                    properties.count("prompt_tokens"),
                    0,
                    properties.count("completion_tokens"),
                    properties.money("cost"),
                )
            case "message_send_exception":
                self.lines.append(properties.text("exception"))
            case "exit":
                yield from self._end(properties.text("reason"))

    def _text(self, text: str) -> Iterator[AgentEvent]:
        """Text counts as an answer once its tokens are reported. Text before a retry was an error."""
        if self.is_asking and _RETRY.fullmatch(text):
            yield from self.retry(f"{text} {self._join_lines()}")
            self.lines.clear()
        elif self.is_asking and _TOKEN_LINE.match(text):
            self.has_answer_ended = True
        elif self.is_asking and not self.has_answer_ended:
            self.lines.append(text)
        elif text.startswith(_EDITED):
            yield AgentEvent(EventKind.TOOL, describe_tool("edit", {"path": text.removeprefix(_EDITED)}))
        elif _TOO_LONG.match(text):
            self.last_error = text
        elif named := _MODEL_LINE.match(text):
            self.model = named[1]

    def _end(self, reason: str) -> Iterator[AgentEvent]:
        """Aider logs its exit in any case: it has succeeded only if its last request was answered."""
        is_answered = not self.is_asking and not self.last_error and self.buffer.last_message
        if reason == "Completed --message-file" and is_answered:
            return self.succeed()
        error = self.last_error
        if not error and self.is_asking:
            error = self._join_lines()
        error = error or reason
        return self.fail(error, failures.classify_litellm_failure(error))

    def _join_lines(self) -> str:
        return limit_text("\n".join(self.lines))
