"""GitHub Copilot CLI: how it is started and what its stream says. Measured with 1.0.102."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

from ralph.agents.adapter import Adapter, Prices
from ralph.agents.agent import Abilities, Call
from ralph.agents.hearing import hook_command, lay, own_place, short_hash, unheard
from ralph.agents.lines import (
    TEXT_CHARS,
    Complaints,
    Data,
    Meter,
    brief,
    count,
    end_of_limit,
    failure_of,
    gone_wrong,
    inner,
    moment,
    number,
    parse,
    prose,
    tool_text,
    unwrapped,
    well_done,
    word,
)
from ralph.agents.prices import cost_of
from ralph.core.errors import StorageError
from ralph.core.limits import Usage
from ralph.core.stream import AgentEvent, Failure, Kind

_TOOLS = {"sub-agents": ("task", "read_agent", "list_agents", "write_agent")}
_ERRORS = {
    "authentication": Failure.ACCESS,
    "authorization": Failure.ACCESS,
    "policy": Failure.ACCESS,
    "quota": Failure.LIMIT,
    "rate_limit": Failure.LIMIT,
    "context_limit": Failure.AGENT,
}
_ACCOUNTS = ("lastLoggedInUser", "loggedInUsers")
_LARGEST_FILE = 1024 * 1024


class Copilot(Adapter):
    """Copilot CLI of GitHub. What it used it tells at its end, in a file beside the prompt."""

    name = "copilot"
    install = "npm install -g @github/copilot"
    advice = "run `copilot` and type /login, or set COPILOT_GITHUB_TOKEN; for a provider of yours, check its key"
    abilities = Abilities(resume=True, session=True, hooks=True, tokens=True, tool_limits=True)
    keys = ("COPILOT_PROVIDER_BASE_URL", "COPILOT_GITHUB_TOKEN", "GH_TOKEN", "GITHUB_TOKEN")
    settings = ("COPILOT_HOME", ".copilot")

    def command(self, call: Call) -> tuple[str, ...]:
        """Everything allowed, and nobody to ask. A new conversation gets its id from us: it would tell it last of all."""
        tools = [tool for name in call.without_tools for tool in _TOOLS.get(name, (name,))]
        return (
            self.program,
            *("--output-format", "json", "--allow-all", "--no-ask-user"),
            *("--usage-output-file", str(_usage_file(call))),
            *((f"--excluded-tools={','.join(tools)}",) if tools else ()),
            *(("--model", call.model) if call.model else ()),
            *self.hook_words,
            f"--resume={call.session}" if call.session else f"--session-id={_session(call)}",
            *call.arguments,
        )

    def ready(self, environment: Mapping[str, str]) -> str:
        """Lay our hooks as a plugin, which is loaded beside those of the user."""
        about = {
            "name": "ralph",
            "version": "1.0.0",
            "description": "Hands on words of a person",
            "hooks": "hooks.json",
        }
        ours = {
            event: [{"type": "command", "bash": hook_command(self.name, event), "timeoutSec": 10}]
            for event in ("postToolUse", "agentStop")
        }
        hooks = json.dumps({"version": 1, "hooks": ours})
        place = own_place(environment, f"copilot-{short_hash(hooks)}")
        try:
            lay(place / "plugin.json", json.dumps(about))
            lay(place / "hooks.json", hooks)
        except (OSError, StorageError) as error:
            return unheard(self.name, str(error))
        self.hook_words = ("--plugin-dir", str(place))
        return ""

    def reader(self, call: Call, before: Usage) -> "CopilotReader":
        """Who reads a turn; `before` is what the conversation had used before, for its usage is that of all of it."""
        return CopilotReader(self.prices, _usage_file(call), _session(call), Meter(before))

    def sign_in(self, environment: Mapping[str, str], home: Path) -> tuple[bool | None, str]:
        """A token, a provider of the user's own, or an account in its settings; that of `gh` may do as well."""
        told = super().sign_in(environment, home)
        variable, usual = self.settings
        account = Path(environment.get(variable) or home / usual) / "config.json"
        if told[0] is False and any(map(_content(account).get, _ACCOUNTS)):
            return True, str(account)
        others = Path(environment.get("XDG_CONFIG_HOME") or home / ".config") / "gh" / "hosts.yml"
        return (None, str(others)) if told[0] is False and others.is_file() else told


def _usage_file(call: Call) -> Path:
    return call.prompt.with_name("copilot-usage.json")


def _session(call: Call) -> str:
    """The conversation that a turn is in: the one that it goes on with, or one of its own, always the same."""
    return call.session or str(uuid5(NAMESPACE_URL, str(call.prompt)))


def _content(path: Path) -> Data:
    """The JSON object in a file, which may begin with comments; an empty one where there is none."""
    try:
        with path.open("rb") as file:
            lines = file.read(_LARGEST_FILE).splitlines()
    except OSError:
        return {}
    return parse(b"\n".join(line for line in lines if not line.lstrip().startswith(b"//")))


@dataclass
class CopilotReader:
    """Reads one turn of Copilot CLI."""

    prices: Prices
    usage: Path
    """The file that is there before the last line is."""
    session: str
    meter: Meter
    complaints: Complaints = field(default_factory=Complaints)
    tools: dict[str, str] = field(default_factory=dict)
    """The tools in use, by id."""
    last_words: str = ""
    """What it said since it last used a tool."""
    failed_call: str = ""
    """What was said of the last call of its model, where it failed."""
    error: str = ""
    kind: Failure | None = None

    def read(self, line: bytes) -> Iterable[AgentEvent]:
        """What a line tells."""
        return list(self._events(parse(line)))

    def _events(self, line: Data) -> Iterator[AgentEvent]:
        data = inner(line, "data")
        key = word(data, "toolCallId")
        match line.get("type"):
            case "user.message":
                yield AgentEvent(Kind.SESSION, session=self.session)
            case "assistant.message":
                self.failed_call = ""
                text = prose(word(data, "content"))
                if text and not data.get("parentToolCallId"):
                    self.last_words = f"{self.last_words}\n{text}".strip()[-TEXT_CHARS:]
                    yield AgentEvent(Kind.TEXT, text)
            case "tool.execution_start":
                self.last_words = ""
                self.tools[key] = tool_text(word(data, "toolName"), data.get("arguments"))
                yield AgentEvent(Kind.TOOL, self.tools[key])
            case "tool.execution_complete":
                yield from self._used(self.tools.pop(key, "a tool"), data)
            case "model.call_failure":
                self.failed_call = word(data, "errorMessage")[:TEXT_CHARS]
            case "assistant.turn_retry":
                yield AgentEvent(Kind.RETRY, brief(f"{word(data, 'reason')}: {unwrapped(self.failed_call)}"))
            case "session.error":
                yield from self._error(data, moment(line))
            case "result":
                yield from self._result(line)

    def _used(self, used: str, data: Data) -> Iterator[AgentEvent]:
        why = inner(data, "error")
        if word(why, "code") == "denied":
            yield AgentEvent(Kind.DENIED, used)
        text = word(inner(data, "result"), "content") or word(why, "message")
        failed = data.get("success") is not True or bool(number(inner(data, "shellExecution"), "exitCode"))
        yield AgentEvent(Kind.TOOL_RESULT, brief(text), is_error=failed)

    def _error(self, data: Data, now: float) -> Iterator[AgentEvent]:
        """An error that it does not go on from; when a limit ends may only be in what the provider said before."""
        self.error = word(data, "message")[:TEXT_CHARS] or "it failed"
        self.kind = _ERRORS.get(word(data, "errorType")) or failure_of(self.error, number(data, "statusCode"))
        yield from self.complaints.about(self.error, now, self.kind, end_of_limit(self.failed_call, now))

    def _result(self, line: Data) -> Iterator[AgentEvent]:
        if (session := brief(word(line, "sessionId"))) and session != self.session:
            yield AgentEvent(Kind.SESSION, session=session)
        yield from self._total(inner(_content(self.usage), "modelMetrics"))
        if number(line, "exitCode") == 0:
            yield well_done(self.last_words)
            return
        yield gone_wrong(self.error or "it failed", self.kind)

    def _total(self, models: Data) -> Iterator[AgentEvent]:
        if not models:
            return
        used = {name: _tokens(inner(one, "usage")) for name, one in models.items()}
        spoken, _, heard = map(sum, zip(*used.values(), strict=True))
        costs = [cost_of(name, *tokens, self.prices) for name, tokens in used.items()]
        known = [cost for cost in costs if cost is not None]
        unknown = len(known) < len(costs) or (self.meter.told.tokens and self.meter.told.cost is None)
        yield from self.meter.rise(spoken, heard, None if unknown else sum(known))


def _tokens(usage: Data) -> tuple[int, int, int]:
    """Tokens in, those of them that were cached, and out."""
    return count(usage, "inputTokens"), count(usage, "cacheReadTokens"), count(usage, "outputTokens")
