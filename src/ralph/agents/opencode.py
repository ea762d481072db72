"""OpenCode: how it is started and what its stream says. Measured with 1.18.33."""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from ralph.agents.adapter import EDITS, FULL_AUTO, PLAN, READ_ONLY, Abilities, Adapter, Call
from ralph.agents.failures import classify_failure, find_limit_end
from ralph.agents.reader import StreamReader
from ralph.agents.stream_lines import TEXT_CHARS, Data, parse_line, read_model
from ralph.core.limits import Usage
from ralph.core.turns import IMAGE, AgentEvent, Failure

_TOOLS = {"sub-agents": "task"}
_DENIED = {EDITS: ("bash",), READ_ONLY: ("bash", "edit"), PLAN: ("bash",)}
"""The tools that each level of permissions takes away. Its agent `plan` edits nothing, but runs any command."""
_DENIALS = ("The user rejected permission", "The user has specified a rule")
_CONFIG_VARIABLE = "OPENCODE_CONFIG_CONTENT"
_PLUGIN = Path(__file__).with_name("plugins") / "opencode.ts"
_SETTINGS = ("config.json", "opencode.json", "opencode.jsonc")
"""Its settings files. In a project, the first is not one of them."""
_SETTINGS_LIMIT = 1024 * 1024
_MODES = {FULL_AUTO: ("--auto",), EDITS: (), READ_ONLY: (), PLAN: ("--agent", "plan")}
"""`--auto` approves what it would ask about. `environment` denies tools."""


class OpenCode(Adapter):
    """OpenCode, with many providers. It reports the cost if it knows the price, but not what sub-agents use.

    If its provider names the end of a limit, OpenCode waits for it by itself, for any time, and reports nothing.
    """

    name = "opencode"
    install = "npm install -g opencode-ai"
    advice = "run `opencode auth login`, or set the key of a provider, e.g. ANTHROPIC_API_KEY"
    abilities = Abilities(resume=True, session=True, hooks=True, tokens=True, cost=True, tool_limits=True)
    keys = (
        *("OPENCODE_API_KEY", "OPENCODE_AUTH_CONTENT", "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENROUTER_API_KEY"),
        *("GEMINI_API_KEY", "GOOGLE_GENERATIVE_AI_API_KEY", "GROQ_API_KEY", "MISTRAL_API_KEY", "XAI_API_KEY"),
        *("DEEPSEEK_API_KEY", "AWS_BEARER_TOKEN_BEDROCK"),
    )
    services = ("OPENCODE_CONFIG", "OPENCODE_CONFIG_CONTENT")
    settings = ("XDG_DATA_HOME", ".local/share")
    credentials = ("opencode/auth.json",)
    run_environment: Mapping[str, str] | None = None
    """The environment of the run, once it is known."""

    instruction_files = ("AGENTS.md", "CLAUDE.md")
    permission_modes = _MODES
    permission_options = ("--auto",)

    def chooses_mode(self, arguments: tuple[str, ...]) -> bool:
        """Its agent `plan` is a mode."""
        is_plan = "--agent=plan" in arguments or ("--agent", "plan") in pairwise(arguments)
        return is_plan or super().chooses_mode(arguments)

    def command(self, call: Call) -> tuple[str, ...]:
        """Everything allowed that the user did not deny.

        Without `--dir`, it would trust $PWD. Without `--title`, it would ask its model for a title and not report what
        that used. An empty title makes it the beginning of the prompt.
        """
        return (
            self.program,
            *("run", "--format", "json", "--thinking", *self.permission_arguments(call), "--dir", str(call.workspace)),
            *(("--model", call.model) if call.model else ()),
            *(("--session", call.session) if call.session else ("--title=",)),
            *call.arguments,
        )

    def environment(self, call: Call) -> Mapping[str, str]:
        """The tools that it must not use, and our plugin, added to what the user configured in the same variables."""
        denied = {_TOOLS.get(name, name): "deny" for name in call.without_tools}
        denied |= dict.fromkeys(_DENIED.get(call.permissions, ()), "deny")
        theirs = parse_line(os.environ.get("OPENCODE_PERMISSION", "").encode(errors="replace"))
        permission = {"OPENCODE_PERMISSION": json.dumps({**theirs, **denied})} if denied else {}
        return {**permission, **({_CONFIG_VARIABLE: self._with_plugin()} if self.can_receive_messages(call) else {})}

    def install_hooks(self, environment: Mapping[str, str]) -> str:
        """Our plugin needs no installation. `can_receive_messages` decides for each turn whether it can be loaded."""
        self.run_environment = environment
        return ""

    def can_receive_messages(self, call: Call) -> bool:
        """Through a plugin, if OpenCode can load it at once.

        With any plugin, it first installs a package in each of its settings directories. Without a network, that takes
        70 seconds and fails.
        """
        if self.run_environment is None or "--pure" in call.arguments or not self._with_plugin():
            return False
        home = Path(self.run_environment.get("HOME") or Path.home())
        general = Path(self.run_environment.get("XDG_CONFIG_HOME") or home / ".config") / "opencode"
        directories = [general]
        if custom := self.run_environment.get("OPENCODE_CONFIG_DIR"):
            directories.append(Path(custom))
        for parent in (call.workspace, *call.workspace.parents, home):
            if (parent / ".opencode").is_dir():
                directories.append(parent / ".opencode")
        return all(map(_has_package, directories))

    def _with_plugin(self) -> str:
        """The settings in its environment with our plugin added; empty if Ralph cannot read the user's."""
        theirs = (self.run_environment or {}).get(_CONFIG_VARIABLE, "") or "{}"
        settings = parse_line(theirs.encode(errors="replace"))
        plugins = settings.get("plugin", [])
        is_readable = bool(settings) or theirs == "{}"
        if not is_readable or not isinstance(plugins, list):
            return ""
        return json.dumps({**settings, "plugin": [*plugins, _PLUGIN.as_uri()]})

    def reader(self, call: Call, before: Usage) -> "OpenCodeReader":
        """Each step reports what it used."""
        return OpenCodeReader(self.prices, self.model_of(call))

    def configured_model(self, call: Call, environment: Mapping[str, str]) -> str:
        """The `model` of its settings: in the environment, the workspace, a file that the environment names, or the home."""
        in_environment = parse_line(environment.get(_CONFIG_VARIABLE, "").encode(errors="replace")).text("model")
        home = Path(environment.get("XDG_CONFIG_HOME") or Path(environment.get("HOME") or Path.home()) / ".config")
        files = [call.workspace / name for name in _SETTINGS[1:]]
        if named := environment.get("OPENCODE_CONFIG"):
            files.append(Path(named))
        files += [home / "opencode" / name for name in _SETTINGS]
        return in_environment or read_model(*files)

    def sign_in(self, environment: Mapping[str, str], home: Path) -> tuple[bool | None, str]:
        """A key, or the file that `auth login` writes. A provider in its settings can have its own key, or need none."""
        signed_in, detail = super().sign_in(environment, home)
        directory = Path(environment.get("XDG_CONFIG_HOME") or home / ".config") / "opencode"
        if signed_in is False:
            for name in _SETTINGS:
                if _names_provider(directory / name):
                    return None, str(directory / name)
        return signed_in, detail


def _has_package(directory: Path) -> bool:
    """Whether the package that plugins import is installed in one of its settings directories."""
    try:
        lock = (directory / "package-lock.json").read_bytes()
        return (directory / "node_modules").is_dir() and b"@opencode-ai/plugin" in lock
    except OSError:
        return False


def _names_provider(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return b'"provider"' in file.read(_SETTINGS_LIMIT)
    except OSError:
        return False


@dataclass
class OpenCodeReader(StreamReader):
    """Reads one turn of OpenCode. There is no final event: the turn ends with a step that does not use a tool."""

    last_retry: Data = field(default_factory=Data)
    """The retry at which our plugin ended the turn."""

    def events(self, data: Data) -> Iterator[AgentEvent]:
        """The events in a line."""
        yield from self.start_session(data.text("sessionID"))
        part = data.inner("part")
        match data.get("type"):
            case "step_start":
                self.buffer.last_message = ""
            case "text":
                yield from self.say(part.text("text"))
            case "reasoning":
                yield from self.think(part.text("text"))
            case "tool_use":
                yield from self._use_tool(part, part.inner("state"))
            case "step_finish":
                yield from self._add_step_usage(part)
                if part.get("reason") == "length":
                    yield from self.warn("its model reached the token limit of one answer: the answer is cut off")
                if part.get("reason") == "stop":
                    yield from self.succeed()
            case "retry":
                yield from self._report_retry(data.inner("retry"))
            case "error" if self.last_retry:
                pass  # the turn was ended by our plugin, and has failed already
            case "error":
                details = data.inner("error", "data")
                error = details.text("message") or data.inner("error").text("name") or "it failed"
                kind = classify_failure(error[:TEXT_CHARS], details.number("statusCode"))
                yield from self.fail(error, kind, find_limit_end(details.text("responseBody")[:TEXT_CHARS], self.now))

    def _report_retry(self, retry: Data) -> Iterator[AgentEvent]:
        """A line of our plugin: OpenCode waits before it asks its model again, or the plugin ends the turn instead.

        OpenCode retries only limits and overloads.
        """
        error, next_at = retry.text("message") or "its model failed", (retry.number("next") or 0.0) / 1000
        if retry.get("ends") is not True:
            seconds = max(0, round(next_at - self.now))
            yield from self.retry(f"{error}: try {retry.count('attempt') + 1} in {seconds} s")
        elif not self.last_retry:
            self.last_retry = retry
            kind = Failure.LIMIT if classify_failure(error[:TEXT_CHARS]) is Failure.LIMIT else Failure.OVERLOAD
            yield from self.fail(error, kind, next_at or None)

    def _use_tool(self, part: Data, state: Data) -> Iterator[AgentEvent]:
        """A tool. OpenCode reports it once it is done."""
        error = state.text("error")
        failed = state.text("status") == "error" or bool(state.inner("metadata").number("exit"))
        has_image = any(one.text("mime").startswith("image/") for one in state.objects("attachments"))
        text = IMAGE if has_image else state.text("output") or error
        yield from self.start_tool("", part.text("tool"), state.get("input"))
        yield from self.finish_tool("", text, failed=failed, denied=error.startswith(_DENIALS))

    def _add_step_usage(self, part: Data) -> Iterator[AgentEvent]:
        """What a step used. Without a price, OpenCode reports a cost of 0."""
        tokens, cache = part.inner("tokens"), part.inner("tokens", "cache")
        input_tokens = tokens.count("input") + cache.count("read", "write")
        return self.add_usage(
            input_tokens,
            cache.count("read"),
            tokens.count("output", "reasoning"),
            part.money("cost"),
            reasoning=tokens.count("reasoning"),
        )
