"""OpenCode: how it is started and what its stream says. Measured with 1.18.33."""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from ralph.agents.adapter import (
    EDITS,
    FULL_AUTO,
    PLAN,
    READ_ONLY,
    Abilities,
    Adapter,
    Call,
    OwnMode,
    has_key,
    list_ralph_commands,
)
from ralph.agents.failures import classify_failure, find_limit_end
from ralph.agents.reader import StreamReader
from ralph.agents.stream_lines import TEXT_CHARS, Data, parse_line, read_model, read_settings
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


def build_rules(call: Call) -> dict[str, str]:
    """The variable with the tools that it must not use, added to what the user configured in the same variable."""
    rules: dict[str, object] = dict.fromkeys(_DENIED.get(call.permissions, ()), "deny")
    if call.permissions == EDITS:
        # It checks every command of a line by itself. A redirection can write a file, so other levels have no such rule.
        rules["bash"] = {"*": "deny", **{f"{command} *": "allow" for command in list_ralph_commands(call)}}
    rules |= {_TOOLS.get(name, name): "deny" for name in call.without_tools}
    theirs = parse_line(os.environ.get("OPENCODE_PERMISSION", "").encode(errors="replace"))
    return {"OPENCODE_PERMISSION": json.dumps({**theirs, **rules})} if rules else {}


_KEYS = {
    "anthropic": ("ANTHROPIC_API_KEY",),
    "openai": ("OPENAI_API_KEY",),
    "openrouter": ("OPENROUTER_API_KEY",),
    "google": ("GEMINI_API_KEY", "GOOGLE_GENERATIVE_AI_API_KEY"),
    "groq": ("GROQ_API_KEY",),
    "mistral": ("MISTRAL_API_KEY",),
    "xai": ("XAI_API_KEY",),
    "deepseek": ("DEEPSEEK_API_KEY",),
    "amazon-bedrock": ("AWS_BEARER_TOKEN_BEDROCK",),
    "opencode": ("OPENCODE_API_KEY",),
}
"""The variables in which it looks for the key of a provider."""


class OpenCode(Adapter):
    """OpenCode, with many providers. It reports the cost if it knows the price, but not what sub-agents use.

    If its provider names the end of a limit, OpenCode waits for it by itself, for any time, and reports nothing.
    """

    name = "opencode"
    install = "npm install -g opencode-ai"
    advice = "run `opencode auth login`, or set the key of a provider, for example ANTHROPIC_API_KEY"
    abilities = Abilities(resume=True, session=True, hooks=True, tokens=True, cost=True, tool_limits=True)
    settings = ("XDG_DATA_HOME", ".local/share")
    run_environment: Mapping[str, str] | None = None
    """The environment of the run, once it is known."""

    instruction_files = ("AGENTS.md", "CLAUDE.md")
    permission_modes = _MODES
    permission_options = ("--auto",)
    reading_arguments = ("--agent=plan",)
    levels_with_ralph = (FULL_AUTO, EDITS)

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
        return {
            **build_rules(call),
            **({_CONFIG_VARIABLE: self._with_plugin()} if self.can_receive_messages(call) else {}),
        }

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
        return in_environment or read_model(*_list_settings(call.workspace, environment))

    def find_own_mode(self, call: Call, environment: Mapping[str, str]) -> OwnMode | None:
        """What it asks about, which --auto would approve, and its agent `plan`. What its rules deny stays denied."""
        for path in _list_settings(call.workspace, environment):
            settings = read_settings(path)
            if settings.text("default_agent") == "plan":
                return OwnMode(PLAN, "default_agent: plan", path)
            rules = settings.get("permission")
            for tool, level in (("edit", READ_ONLY), ("bash", EDITS)):
                rule = rules if isinstance(rules, str) else Data.of(rules).get(tool, Data.of(rules).get("*"))
                if rule == "ask" or Data.of(rule).get("*") == "ask":
                    return OwnMode(level, f"permission.{tool}: ask", path)
        return None

    def sign_in(self, environment: Mapping[str, str], home: Path) -> tuple[bool | None, str]:
        """A key of the provider of its model, or an account of it in the file that `auth login` writes.

        A provider in its settings can have its own key, or need none. Without a model, OpenCode takes any provider that has a
        key, and without any key the free models of its own service.
        """
        login = self.settings_in(environment, home) / "opencode" / "auth.json"
        in_environment = parse_line(environment.get("OPENCODE_AUTH_CONTENT", "").encode(errors="replace"))
        accounts = Data({**read_settings(login), **in_environment})
        model = self.configured_model(Call(home), {**environment, "HOME": str(home)})
        provider = model.partition("/")[0] if "/" in model else ""
        for variables in [_KEYS.get(provider, ())] if provider else _KEYS.values():
            for name in variables:
                if environment.get(name):
                    return True, name
        with_key = [name for name in accounts if has_key(accounts.inner(name))]
        if provider in with_key if provider else with_key:
            return True, str(login)
        for path in _list_settings(home, {**environment, "HOME": str(home)}):
            options = read_settings(path).inner("provider", provider, "options")
            needs_key = provider in _KEYS and not options.text("apiKey") and not options.get("headers")
            if not needs_key and _names_provider(path):
                return None, f"set up in {path}; Ralph does not check the key"
        for variable in ("OPENCODE_CONFIG", _CONFIG_VARIABLE):
            if environment.get(variable):
                return None, f"{variable} is set; Ralph does not check the key"
        if provider in _KEYS:
            return False, f"set {_KEYS[provider][0]}, or run `opencode auth login`: its model is {model}"
        return None, "without a key, it uses free models of opencode.ai; `opencode auth login` signs in"


def _list_settings(workspace: Path, environment: Mapping[str, str]) -> list[Path]:
    """Its settings files: those of the workspace, one that the environment names, and those of the user."""
    home = Path(environment.get("XDG_CONFIG_HOME") or Path(environment.get("HOME") or Path.home()) / ".config")
    files = [workspace / name for name in _SETTINGS[1:]]
    if named := environment.get("OPENCODE_CONFIG"):
        files.append(Path(named))
    return [*files, *(home / "opencode" / name for name in _SETTINGS)]


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
