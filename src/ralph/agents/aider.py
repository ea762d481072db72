"""Aider: how it is started and what it prints. Measured with 0.86.2."""

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from ralph.agents import litellm
from ralph.agents.adapter import Adapter
from ralph.agents.agent import EDITS, FULL_AUTO, READ_ONLY, Abilities, Call
from ralph.agents.reader import StreamReader
from ralph.agents.stream_lines import TEXT_CHARS, Data, moment, parse, prose, tool_text
from ralph.core.limits import Usage
from ralph.core.stream import AgentEvent, Kind, clean_text

_QUIET = (
    *("--yes-always", "--no-pretty", "--no-stream", "--no-auto-commits", "--no-dirty-commits", "--no-gitignore"),
    *("--no-check-update", "--no-show-release-notes", "--no-show-model-warnings", "--no-detect-urls"),
    *("--no-suggest-shell-commands", "--no-analytics"),
)
_MODES = {FULL_AUTO: (), EDITS: (), READ_ONLY: ("--chat-mode", "ask")}
"""It never runs commands, so that edits are all that it may do."""
_MOST_LINES = 1000
_ANSWER = ".ralph/turn/outbox/result.json"
_HISTORY = "aider.chat.history.md"
_RETRY = re.compile(r"Retrying in \d+\.\d seconds\.\.\.")
_COUNTED = re.compile(r"Tokens: \S+ sent, .*received\.")
_EDITED = "Applied edit to "
_TOO_LONG = re.compile(r"Model \S+ has hit a token limit!")


class Aider(Adapter):
    """Aider, with the models of many providers. It has no tools: its model answers with edits of files.

    Its log of what it would tell its makers goes to standard output, and to nobody else: those lines are JSON.
    """

    name = "aider"
    install = "python -m pip install aider-chat"
    advice = "name a model, and set the key of its provider, as OPENAI_API_KEY or ANTHROPIC_API_KEY"
    abilities = Abilities(resume=True, session=True, tokens=True, cost=True)
    keys = litellm.KEYS
    credentials = (".aider/oauth-keys.env",)
    may_hold = (".aider.conf.yml",)
    permission_modes = _MODES
    permission_options = ("--chat-mode",)

    def command(self, call: Call) -> tuple[str, ...]:
        """One message from a file, everything confirmed, and no commits. Its history is beside the prompt.

        The answer that Ralph may ask for is named, as it edits no other file that Git ignores. Only its map of the
        repository has a cache in the tree.
        """
        here = call.prompt.parent
        history = here.parent / call.session / _HISTORY if call.session else here / _HISTORY
        return (
            self.program,
            *_QUIET,
            *self.permission_words(call),
            *("--analytics-log", "/dev/stdout", "--message-file", str(call.prompt)),
            *("--add-gitignore-files", "--file", str(call.workspace / _ANSWER)),
            *("--input-history-file", str(here / "aider.input.history"), "--chat-history-file", str(history)),
            *(("--restore-chat-history",) if call.session else ()),
            *(("--model", call.model) if call.model else ()),
            *call.arguments,
        )

    def environment(self, call: Call) -> Mapping[str, str]:
        """Lines as long as they are; and no browser: the pages that an error names would be opened, as all is confirmed."""
        return {"COLUMNS": "10000", "BROWSER": "true", "PYTHONUNBUFFERED": "1"}

    def reader(self, call: Call, before: Usage) -> "AiderReader":
        """Who reads a turn. A conversation has the name of the turn that began it, whose directory has its history."""
        return AiderReader(self.prices, call.model, named=call.session or call.prompt.parent.resolve().name)


@dataclass
class AiderReader(StreamReader):
    """Reads one turn of Aider."""

    named: str = ""
    """What the conversation is called by us."""
    asking: bool = False
    """Whether its model was asked, and no event has told of an answer."""
    counted: bool = False
    """Whether the answer is over: after it come its tokens, in words."""
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=_MOST_LINES))
    """What was printed since: the answer, or why there is none."""
    trouble: str = ""
    """Why the last answer came to nothing."""

    def read(self, line: bytes) -> Iterable[AgentEvent]:
        """What a line tells: an event of its own log, or text."""
        data = parse(line)
        self.now = moment(data)
        if data.word("user_id") and "time" in data:
            return list(self._event(data.word("event"), data.inner("properties")))
        return list(self._text(clean_text(line[:TEXT_CHARS].decode(errors="replace")).rstrip()))

    def _event(self, name: str, about: Data) -> Iterator[AgentEvent]:
        match name:
            case "launched":
                yield from self.begin(self.named)
            case "message_send_starting":
                self.asking, self.counted, self.trouble = True, False, ""
                self.lines.clear()
            case "message_send":
                self.asking = False
                if text := self._said():
                    self.speech.last_words = ""
                    yield from self.say(text)
                tokens = about.count("prompt_tokens"), 0, about.count("completion_tokens")
                yield from self.spend(*tokens, about.money("cost"))
            case "message_send_exception":
                self.lines.append(about.word("exception"))
            case "exit":
                yield from self._end(about.word("reason"))

    def _text(self, text: str) -> Iterator[AgentEvent]:
        """Text counts as an answer once it is counted; what is tried again was an error."""
        if self.asking and _RETRY.fullmatch(text):
            yield from self.retry(f"{text} {self._said()}")
            self.lines.clear()
        elif self.asking and _COUNTED.match(text):
            self.counted = True
        elif self.asking and not self.counted:
            self.lines.append(text)
        elif text.startswith(_EDITED):
            yield AgentEvent(Kind.TOOL, tool_text("edit", {"path": text.removeprefix(_EDITED)}))
        elif _TOO_LONG.match(text):
            self.trouble = text

    def _end(self, reason: str) -> Iterator[AgentEvent]:
        """The end, which is told whatever came of it: it has worked where its last question was answered."""
        answered = not self.asking and not self.trouble and self.speech.last_words
        if reason == "Completed --message-file" and answered:
            return self.done()
        error = self.trouble or (self.asking and self._said()) or reason
        return self.fail(error, litellm.failure_named(error))

    def _said(self) -> str:
        return prose("\n".join(self.lines))
