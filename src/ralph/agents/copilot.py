"""GitHub Copilot CLI: how it is started and what its stream says. Measured with 1.0.102."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

from ralph.agents.adapter import Adapter
from ralph.agents.agent import EDITS, FULL_AUTO, READ_ONLY, Abilities, Call
from ralph.agents.failures import end_of_limit, failure_of
from ralph.agents.hook_config import hook_command, lay, own_place, short_hash
from ralph.agents.reader import Meter, StreamReader, gone_wrong
from ralph.agents.stream_lines import TEXT_CHARS, Data, named_model, parse, unwrapped
from ralph.core.limits import Usage
from ralph.core.stream import AgentEvent, Failure

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
_MODES = {
    FULL_AUTO: ("--allow-all",),
    EDITS: ("--allow-tool=write",),
    READ_ONLY: ("--deny-tool=write", "--deny-tool=shell"),
}


class Copilot(Adapter):
    """Copilot CLI of GitHub. What it used it tells at its end, in a file beside the prompt."""

    name = "copilot"
    install = "npm install -g @github/copilot"
    advice = "run `copilot` and type /login, or set COPILOT_GITHUB_TOKEN; for a provider of yours, check its key"
    abilities = Abilities(resume=True, session=True, hooks=True, tokens=True, names_model=True, tool_limits=True)
    keys = ("COPILOT_PROVIDER_BASE_URL", "COPILOT_GITHUB_TOKEN", "GH_TOKEN", "GITHUB_TOKEN")
    settings = ("COPILOT_HOME", ".copilot")

    permission_modes = _MODES
    permission_options = ("--allow-all", "--allow-all-tools", "--allow-tool", "--yolo", "--mode", "--plan")

    def command(self, call: Call) -> tuple[str, ...]:
        """Nobody is asked. A new conversation gets its id from us: it would tell it last of all."""
        tools = [tool for name in call.without_tools for tool in _TOOLS.get(name, (name,))]
        return (
            self.program,
            *("--output-format", "json", *self.permission_words(call), "--no-ask-user"),
            *("--usage-output-file", str(_usage_file(call))),
            *((f"--excluded-tools={','.join(tools)}",) if tools else ()),
            *(("--model", call.model) if call.model else ()),
            *self.hook_words,
            f"--resume={call.session}" if call.session else f"--session-id={_session(call)}",
            *call.arguments,
        )

    def configured_model(self, call: Call, environment: Mapping[str, str]) -> str:
        """`COPILOT_MODEL`, or the model that `/model` wrote down."""
        if named := environment.get("COPILOT_MODEL", ""):
            return named
        home = self.settings_home(environment)
        return named_model(home / "settings.json", home / "config.json")

    def lay_hooks(self, environment: Mapping[str, str]) -> str:
        """Lay them as a plugin, which is loaded beside those of the user."""
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
        lay(place / "plugin.json", json.dumps(about))
        lay(place / "hooks.json", hooks)
        self.hook_words = ("--plugin-dir", str(place))
        return ""

    def reader(self, call: Call, before: Usage) -> "CopilotReader":
        """Who reads a turn; `before` is what the conversation had used before, for its usage is that of all of it."""
        return CopilotReader(self.prices, meter=Meter(before), usage=_usage_file(call), named=_session(call))

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
        return Data()
    return parse(b"\n".join(line for line in lines if not line.lstrip().startswith(b"//")))


@dataclass
class CopilotReader(StreamReader):
    """Reads one turn of Copilot CLI."""

    usage: Path = Path()
    """The file that is there before the last line is."""
    named: str = ""
    """What the conversation is called by us."""
    failed_call: str = ""
    """What was said of the last call of its model, where it failed."""
    error: str = ""
    kind: Failure | None = None

    def events(self, line: Data) -> Iterator[AgentEvent]:
        """What a line tells."""
        data = line.inner("data")
        key = data.word("toolCallId")
        match line.get("type"):
            case "user.message":
                yield from self.begin(self.named)
            case "assistant.message":
                self.failed_call = ""
                if not data.get("parentToolCallId"):
                    yield from self.think(data.word("reasoningText"))
                    yield from self.say(data.word("content"))
            case "tool.execution_start":
                is_sub_agent = bool(data.get("parentToolCallId"))
                yield from self.use(key, data.word("toolName"), data.get("arguments"), is_sub_agent=is_sub_agent)
            case "session.warning":
                yield from self.warn(data.word("message"))
            case "tool.execution_complete":
                why = data.inner("error")
                failed = data.get("success") is not True or bool(data.inner("shellExecution").number("exitCode"))
                text = data.inner("result").word("content") or why.word("message")
                yield from self.used(key, text, failed=failed, denied=why.word("code") == "denied")
            case "model.call_failure":
                self.failed_call = data.word("errorMessage")[:TEXT_CHARS]
            case "assistant.turn_retry":
                yield from self.retry(f"{data.word('reason')}: {unwrapped(self.failed_call)}")
            case "session.error":
                yield from self._error(data)
            case "result":
                yield from self.begin(line.word("sessionId"))
                models = _content(self.usage).inner("modelMetrics")
                used = {name: _tokens(Data.of(one).inner("usage")) for name, one in models.items()}
                yield from self.total(used) if used else ()
                going_well = line.number("exitCode") == 0
                yield from (
                    self.done() if going_well else [gone_wrong(self.error or "it failed", self.kind or Failure.AGENT)]
                )

    def _error(self, data: Data) -> Iterator[AgentEvent]:
        """An error that it does not go on from; when a limit ends may only be in what the provider said before."""
        self.error = data.word("message")[:TEXT_CHARS] or "it failed"
        self.kind = _ERRORS.get(data.word("errorType")) or failure_of(self.error, data.number("statusCode"))
        yield from self.complain(self.error, self.kind, end_of_limit(self.failed_call, self.now))


def _tokens(usage: Data) -> tuple[int, int, int]:
    """Tokens in, those of them that were cached, and out."""
    return usage.count("inputTokens"), usage.count("cacheReadTokens"), usage.count("outputTokens")
