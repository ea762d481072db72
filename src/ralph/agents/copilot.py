"""GitHub Copilot CLI: how it is started and what its stream says. Measured with 1.0.102."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

from ralph.agents.adapter import (
    EDITS,
    FULL_AUTO,
    READ_ONLY,
    Abilities,
    Adapter,
    Call,
    cache_path,
    hook_command,
    short_hash,
    write_if_changed,
)
from ralph.agents.failures import classify_failure, find_limit_end
from ralph.agents.reader import Meter, StreamReader, failed_result
from ralph.agents.stream_lines import TEXT_CHARS, Data, content_text, parse_line, read_model, unwrap_error
from ralph.core.errors import StateError
from ralph.core.limits import Usage
from ralph.core.turns import AgentEvent, Failure
from ralph.store.files import read_limited

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
_SETTINGS_LIMIT = 1024 * 1024
_MODES = {
    FULL_AUTO: ("--allow-all",),
    EDITS: ("--allow-tool=write",),
    READ_ONLY: ("--deny-tool=write", "--deny-tool=shell"),
}


class Copilot(Adapter):
    """Copilot CLI, by GitHub. At its end it writes its usage into a file beside the prompt."""

    name = "copilot"
    install = "npm install -g @github/copilot"
    advice = "run `copilot` and type /login, or set COPILOT_GITHUB_TOKEN; for your own provider, check its key"
    abilities = Abilities(resume=True, session=True, hooks=True, tokens=True, names_model=True, tool_limits=True)
    keys = ("COPILOT_PROVIDER_BASE_URL", "COPILOT_GITHUB_TOKEN", "GH_TOKEN", "GITHUB_TOKEN")
    settings = ("COPILOT_HOME", ".copilot")

    instruction_files = ("AGENTS.md", "CLAUDE.md", "GEMINI.md")
    permission_modes = _MODES
    permission_options = ("--allow-all", "--allow-all-tools", "--allow-tool", "--yolo", "--mode", "--plan")
    reading_arguments = ("--plan", "--mode=plan")

    def command(self, call: Call) -> tuple[str, ...]:
        """No questions. Ralph chooses the id of a new conversation: Copilot would report it only at its end."""
        tools: list[str] = []
        for name in call.without_tools:
            tools += _TOOLS.get(name, (name,))
        return (
            self.program,
            *("--output-format", "json", *self.permission_arguments(call), "--no-ask-user"),
            *("--usage-output-file", str(_usage_file(call))),
            *((f"--excluded-tools={','.join(tools)}",) if tools else ()),
            *(("--model", call.model) if call.model else ()),
            *self.hook_arguments,
            f"--resume={call.session}" if call.session else f"--session-id={_session(call)}",
            *call.arguments,
        )

    def find_own_directory(self, call: Call) -> Path | None:
        """For the file with what it used."""
        return call.own_files

    def configured_model(self, call: Call, environment: Mapping[str, str]) -> str:
        """`COPILOT_MODEL`, or the model that `/model` saved."""
        if model := environment.get("COPILOT_MODEL", ""):
            return model
        home = self.settings_home(environment)
        return read_model(home / "settings.json", home / "config.json")

    def install_hooks(self, environment: Mapping[str, str]) -> str:
        """Write them as a plugin, which Copilot loads beside those of the user."""
        manifest = {
            "name": "ralph",
            "version": "1.0.0",
            "description": "Passes messages from the user to the agent",
            "hooks": "hooks.json",
        }
        ours = {
            event: [{"type": "command", "bash": hook_command(self.name, event), "timeoutSec": 10}]
            for event in ("postToolUse", "agentStop")
        }
        hooks = json.dumps({"version": 1, "hooks": ours})
        directory = cache_path(environment, f"copilot-{short_hash(hooks)}")
        write_if_changed(directory / "plugin.json", json.dumps(manifest))
        write_if_changed(directory / "hooks.json", hooks)
        self.hook_arguments = ("--plugin-dir", str(directory))
        return ""

    def reader(self, call: Call, before: Usage) -> "CopilotReader":
        """The usage that it reports is that of the whole conversation."""
        return CopilotReader(self.prices, meter=Meter(before), usage=_usage_file(call), session_name=_session(call))

    def sign_in(self, environment: Mapping[str, str], home: Path) -> tuple[bool | None, str]:
        """A token, a custom provider, or an account in its settings. The account of `gh` can work too."""
        signed_in, detail = super().sign_in(environment, home)
        if signed_in is not False:
            return signed_in, detail
        account = self.settings_in(environment, home) / "config.json"
        if any(map(_read_json(account).get, _ACCOUNTS)):
            return True, str(account)
        github_cli = Path(environment.get("XDG_CONFIG_HOME") or home / ".config") / "gh" / "hosts.yml"
        if github_cli.is_file():
            return None, str(github_cli)
        return False, detail


def _usage_file(call: Call) -> Path:
    return call.own_files / "copilot-usage.json"


def _session(call: Call) -> str:
    """The id of the conversation: the one to continue, or one that is always the same for this turn."""
    return call.session or str(uuid5(NAMESPACE_URL, str(call.prompt)))


def _read_json(path: Path) -> Data:
    """The JSON object in a file, which can begin with comment lines; an empty one if there is none."""
    try:
        lines = read_limited(path, _SETTINGS_LIMIT, follow=True).splitlines()
    except (OSError, StateError):
        return Data()
    return parse_line(b"\n".join(line for line in lines if not line.lstrip().startswith(b"//")))


@dataclass
class CopilotReader(StreamReader):
    """Reads one turn of Copilot CLI."""

    usage: Path = Path()
    """The usage file. It exists before the last line comes."""
    session_name: str = ""
    """The id that Ralph chose for the conversation."""
    failed_call: str = ""
    """The error of the last request to its model, if that failed."""
    error: str = ""
    kind: Failure | None = None

    def events(self, line: Data) -> Iterator[AgentEvent]:
        """The events in a line."""
        data = line.inner("data")
        key = data.text("toolCallId")
        match line.get("type"):
            case "user.message":
                yield from self.start_session(self.session_name)
            case "assistant.message":
                self.failed_call = ""
                if not data.get("parentToolCallId"):
                    yield from self.think(data.text("reasoningText"))
                    yield from self.say(data.text("content"))
            case "tool.execution_start":
                is_sub_agent = bool(data.get("parentToolCallId"))
                yield from self.start_tool(key, data.text("toolName"), data.get("arguments"), is_sub_agent=is_sub_agent)
            case "session.warning":
                yield from self.warn(data.text("message"))
            case "tool.execution_complete":
                error = data.inner("error")
                failed = data.get("success") is not True or bool(data.inner("shellExecution").number("exitCode"))
                result = data.inner("result")
                text = (
                    content_text(result.get("binaryResultsForLlm")) or result.text("content") or error.text("message")
                )
                yield from self.finish_tool(key, text, failed=failed, denied=error.text("code") == "denied")
            case "model.call_failure":
                self.failed_call = data.text("errorMessage")[:TEXT_CHARS]
            case "assistant.turn_retry":
                yield from self.retry(f"{data.text('reason')}: {unwrap_error(self.failed_call)}")
            case "session.error":
                yield from self._session_error(data)
            case "result":
                yield from self._finish(line)

    def _finish(self, line: Data) -> Iterator[AgentEvent]:
        """The end of the turn. Its usage is in a file, by model."""
        yield from self.start_session(line.text("sessionId"))
        models = _read_json(self.usage).inner("modelMetrics")
        by_model = {name: Data.of(metrics).inner("usage") for name, metrics in models.items()}
        if by_model:
            reasoning = sum(usage.count("reasoningTokens") for usage in by_model.values())
            used = {name: _read_tokens(usage) for name, usage in by_model.items()}
            yield from self.report_total(used, reasoning=reasoning)
        if line.number("exitCode") == 0:
            yield from self.succeed()
        else:
            yield failed_result(self.error or "it failed", self.kind or Failure.AGENT)

    def _session_error(self, data: Data) -> Iterator[AgentEvent]:
        """An error that ends the turn. The end of a limit can be only in the provider's earlier message."""
        self.error = data.text("message")[:TEXT_CHARS] or "it failed"
        self.kind = _ERRORS.get(data.text("errorType")) or classify_failure(self.error, data.number("statusCode"))
        yield from self.report_error(self.error, self.kind, find_limit_end(self.failed_call, self.now))


def _read_tokens(usage: Data) -> tuple[int, int, int]:
    """Tokens in, the cached ones among them, and out."""
    return usage.count("inputTokens"), usage.count("cacheReadTokens"), usage.count("outputTokens")
