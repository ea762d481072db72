"""Gemini CLI: how it is started and what its stream says. Measured with 0.61.0."""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ralph.agents.adapter import (
    CANNOT_ASK,
    EDITS,
    FULL_AUTO,
    PERMISSIONS,
    PLAN,
    READ_ONLY,
    Abilities,
    Adapter,
    Call,
    OwnMode,
    build_hooks,
    cache_path,
    list_ralph_commands,
    options_in,
    point_link,
    short_hash,
    write_if_changed,
)
from ralph.agents.failures import classify_failure, failure_from_stderr
from ralph.agents.reader import StreamReader
from ralph.agents.stream_lines import TEXT_CHARS, Data, one_line, parse_settings, read_model, read_settings
from ralph.core.limits import Usage
from ralph.core.turns import AgentEvent, Failure

_EVENTS = ("AfterTool", "AfterAgent")
_EXTENSION = "ralph"
_MAX_ATTEMPTS = 3
"""How often it asks a model that fails. By default, it asks ten times within four minutes before the engine knows."""


def make_home(environment: Mapping[str, str]) -> str:
    """Make or update a home directory with our hooks and links to everything in the user's; empty if that cannot work.

    Gemini CLI has no option for hooks, only extensions in its home. Its own sandbox sees neither the links nor the hooks.
    The settings are a copy that also limits its retries, unless the user's settings do.
    """
    theirs = Path(environment.get("GEMINI_CLI_HOME") or environment.get("HOME") or Path.home())
    if _may_use_sandbox(environment, theirs):
        return ""
    ours = json.dumps({"hooks": build_hooks("gemini", _EVENTS, 10_000)})
    home = cache_path(environment, f"gemini-{short_hash(f'{theirs}{ours}')}")
    extension = home / ".gemini" / "extensions" / _EXTENSION
    _mirror(theirs, home)
    write_if_changed(extension / "gemini-extension.json", json.dumps({"name": _EXTENSION, "version": "1.0.0"}))
    write_if_changed(
        extension / ".gemini-extension-install.json", json.dumps({"source": str(extension), "type": "local"})
    )
    write_if_changed(extension / "hooks" / "hooks.json", ours)
    return str(home)


def _may_use_sandbox(environment: Mapping[str, str], home: Path) -> bool:
    """Whether it may run in its sandbox. Ralph only searches its settings for the word."""
    settings = home / ".gemini" / "settings.json"
    return bool(environment.get("GEMINI_SANDBOX")) or (settings.exists() and b'"sandbox"' in settings.read_bytes())


def _mirror(theirs: Path, home: Path) -> None:
    """Link to all that it looks for in a home. `tmp` has its conversations, so it must be the user's."""
    real, own = theirs / ".gemini", home / ".gemini"
    for directory in (real / "tmp", real / "history", own / "extensions"):
        directory.mkdir(parents=True, exist_ok=True)
    wanted = {own / path.name: path for path in real.iterdir() if path.name != "extensions"}
    if settings := _limit_attempts(real / "settings.json"):
        wanted.pop(own / "settings.json", None)
        write_if_changed(own / "settings.json", settings, mode=0o600)
    if (real / "extensions").is_dir():
        others = (path for path in (real / "extensions").iterdir() if path.name != _EXTENSION)
        wanted |= {own / "extensions" / path.name: path for path in others}
    wanted |= {home / name: theirs / name for name in (".env", ".agents") if (theirs / name).exists()}
    for directory in (home, own, own / "extensions"):
        for link in directory.iterdir():
            if link.is_symlink() and link not in wanted:
                link.unlink(missing_ok=True)
    for link, target in wanted.items():
        point_link(link, target)


def _limit_attempts(path: Path) -> str:
    """The user's settings with our limit of attempts; empty if they have one, or if Ralph cannot read them."""
    try:
        text = path.read_text(encoding="utf-8") if path.exists() else "{}"
        settings = parse_settings(text)
    except ValueError:
        return ""
    general = settings.inner("general")
    if "maxAttempts" in general:
        return ""
    return json.dumps({**settings, "general": {**general, "maxAttempts": _MAX_ATTEMPTS}})


_DENIALS = ("tool_not_registered", "policy_violation", "path_not_in_workspace")
_OWN_LIMIT = "it reached its own turn limit"
_EXITS = {
    41: (Failure.ACCESS, "it is not signed in"),
    42: (Failure.AGENT, "it refused its input"),
    44: (Failure.ACCESS, "its sandbox does not work"),
    52: (Failure.ACCESS, "its settings are not valid"),
    53: (Failure.AGENT, _OWN_LIMIT),
    54: (Failure.AGENT, "a tool failed in a way that it could not recover from"),
}
"""Its own exit codes. Any other is the HTTP status of the model's answer, of which only the last byte is left."""
_STATUSES = {status % 256: status for status in (401, 403, 404, 408, 429, 500, 502, 503, 504, 529)}
_MODES = {
    FULL_AUTO: ("--yolo",),
    EDITS: ("--approval-mode", "auto_edit"),
    READ_ONLY: ("--approval-mode", "default"),
    PLAN: ("--approval-mode", "plan"),
}


def _find_method(environment: Mapping[str, str]) -> tuple[str, str]:
    """The way to sign in that the environment chooses, and the variable that does; empty if none does."""
    if environment.get("GOOGLE_GENAI_USE_GCA") == "true":
        return "oauth-personal", "GOOGLE_GENAI_USE_GCA"
    if environment.get("GOOGLE_GENAI_USE_VERTEXAI") == "true":
        return "vertex-ai", "GOOGLE_GENAI_USE_VERTEXAI"
    if environment.get("GOOGLE_GEMINI_BASE_URL"):
        return "gateway", "GOOGLE_GEMINI_BASE_URL"
    if environment.get("GEMINI_API_KEY"):
        return "gemini-api-key", "GEMINI_API_KEY"
    if "true" in (environment.get("CLOUD_SHELL"), environment.get("GEMINI_CLI_USE_COMPUTE_ADC")):
        return "compute-default-credentials", "the machine's own credentials"
    return "", ""


def _check_method(method: str, source: str, directory: Path, environment: Mapping[str, str]) -> tuple[bool | None, str]:
    """Whether what a way to sign in needs is there. `source` says who chose it."""
    match method:
        case "oauth-personal":
            path = directory / "oauth_creds.json"
            if read_settings(path).text("access_token", "refresh_token"):
                return True, str(path)
            choice = "or choose `gemini-api-key` there and set GEMINI_API_KEY"
            return False, f"run `gemini` and sign in, {choice}: {source} asks for a Google account, and there is none"
        case "gemini-api-key":
            has_key = bool(environment.get("GEMINI_API_KEY"))
            return has_key, "GEMINI_API_KEY" if has_key else f"set GEMINI_API_KEY: {source} asks for it"
        case "vertex-ai":
            has_project = environment.get("GOOGLE_CLOUD_PROJECT") and environment.get("GOOGLE_CLOUD_LOCATION")
            if has_project or environment.get("GOOGLE_API_KEY"):
                return None, f"{source}; Ralph does not check the sign-in of that service"
            needed = "GOOGLE_CLOUD_PROJECT and GOOGLE_CLOUD_LOCATION, or GOOGLE_API_KEY"
            return False, f"set {needed}: {source} asks for them"
        case "gateway":
            return False, f"run `gemini` and choose how to sign in: {source} alone does not"
        case "":
            return False, ""
    return None, f"{source}; Ralph does not check the sign-in of that service"


_OWN_LEVELS = {"auto_edit": EDITS, "plan": PLAN}
"""The modes that its settings can choose. The mode `default` is that of users who chose none."""


def allow_ralph_commands(call: Call) -> tuple[str, str]:
    """The arguments that allow the commands of `ralph`, and no command that does anything else.

    A comma would separate two rules.
    """
    rules = [f"run_shell_command({command})" for command in list_ralph_commands(call) if "," not in command]
    return "--allowed-tools", ",".join(rules)


class Gemini(Adapter):
    """Gemini CLI, by Google. Its limits are in the user's files, which Ralph does not change, not even for our hooks."""

    name = "gemini"
    install = "npm install -g @google/gemini-cli"
    advice = "run `gemini` and choose how to sign in, or set GEMINI_API_KEY"
    abilities = Abilities(resume=True, session=True, hooks=True, tokens=True, names_model=True)
    settings = ("GEMINI_CLI_HOME", ".")

    instruction_files = ("GEMINI.md",)
    permission_modes = _MODES
    permission_options = ("--approval-mode", "--yolo", "-y")
    reading_arguments = ("--approval-mode=plan",)
    asking_arguments = ("--approval-mode=default",)
    levels_with_ralph = PERMISSIONS

    def command(self, call: Call) -> tuple[str, ...]:
        """The prompt comes from standard input. The directory is trusted for this turn."""
        return (
            self.program,
            *(allow_ralph_commands(call) if self.is_restricted(call) else ()),
            *("-o", "stream-json", *self.permission_arguments(call), "--skip-trust"),
            *(("-m", call.model) if call.model else ()),
            *(("--resume", call.session) if call.session else ()),
            *call.arguments,
        )

    def configured_model(self, call: Call, environment: Mapping[str, str]) -> str:
        """`GEMINI_MODEL`, or `model.name` in its settings, the project's first."""
        home = self.settings_home(environment)
        return environment.get("GEMINI_MODEL", "") or read_model(
            call.workspace / ".gemini" / "settings.json", home / ".gemini" / "settings.json"
        )

    def sign_in(self, environment: Mapping[str, str], home: Path) -> tuple[bool | None, str]:
        """By the method in its settings, else by the variables, as Gemini CLI itself decides without a terminal.

        A method in its settings wins over a key in the environment.
        """
        directory = self.settings_in(environment, home) / ".gemini"
        method = read_settings(directory / "settings.json").inner("security", "auth").text("selectedType")
        source = f"`security.auth.selectedType: {method}` in {directory / 'settings.json'}"
        if not method:
            method, source = _find_method(environment)
        signed_in, detail = _check_method(method, source, directory, environment)
        if signed_in is False and method != "gateway":
            for name in (".env", "gemini-credentials.json"):
                if (directory / name).is_file():
                    return None, f"set up in {directory / name}; Ralph does not check the key"
        return signed_in, detail or self.advice

    def allows_tools(self, call: Call, environment: Mapping[str, str]) -> bool:
        """Also in its settings."""
        files = self._list_settings(call, environment)
        is_allowed = any(read_settings(path).inner("tools").get("allowed") for path in files)
        return is_allowed or super().allows_tools(call, environment)

    def _list_settings(self, call: Call, environment: Mapping[str, str]) -> list[Path]:
        """Its settings files, the project's first."""
        return [call.workspace / ".gemini/settings.json", self.settings_home(environment) / ".gemini/settings.json"]

    def find_own_mode(self, call: Call, environment: Mapping[str, str]) -> OwnMode | None:
        """`general.defaultApprovalMode`, the project's first. With `security.disableYoloMode`, it refuses --yolo."""
        for path in self._list_settings(call, environment):
            settings = read_settings(path)
            mode = settings.inner("general").text("defaultApprovalMode") or settings.inner("tools").text("approvalMode")
            if level := _OWN_LEVELS.get(mode):
                return OwnMode(level, f"general.defaultApprovalMode: {mode}", path)
            if settings.inner("security").get("disableYoloMode") is True:
                return OwnMode(EDITS, "security.disableYoloMode", path)
            if mode == "default":
                return OwnMode("", "general.defaultApprovalMode: default", path, CANNOT_ASK)
        return None

    def environment(self, call: Call) -> Mapping[str, str]:
        """One process instead of two. On GitHub, it would hide RALPH_TURN, the mark of the turn, from its tools."""
        github = {name: "" for name in ("GITHUB_SHA", "SURFACE") if os.environ.get(name)}
        return {
            "GEMINI_CLI_NO_RELAUNCH": "true",
            **github,
            **(self.hook_environment if self.can_receive_messages(call) else {}),
        }

    def install_hooks(self, environment: Mapping[str, str]) -> str:
        """Make a home directory with them."""
        home = make_home(environment)
        self.hook_environment = {"GEMINI_CLI_HOME": home} if home else {}
        return "" if home else "its sandbox does not run our hooks"

    def can_receive_messages(self, call: Call) -> bool:
        """Through hooks, if they are installed and the user's arguments do not disable them."""
        disabling = ("-s", "--sandbox", "-e", "--extensions")
        return super().can_receive_messages(call) and options_in(call.arguments).isdisjoint(disabling)

    def reader(self, call: Call, before: Usage) -> "GeminiReader":
        """The stream names the model, and its usage is that of the turn."""
        return GeminiReader(self.prices, call.model)

    def failure(self, code: int | None, stderr: str) -> tuple[Failure, str] | None:
        """The failure that the exit code shows, with the text of standard error if it is about the same failure."""
        if not code:
            return None
        from_stderr = failure_from_stderr(stderr)
        if code in _EXITS:
            kind, text = _EXITS[code]
            return kind, f"{text}: {from_stderr[1]}" if from_stderr else text
        if code in _STATUSES:
            kind = classify_failure("", _STATUSES[code])
            if from_stderr and from_stderr[0] is kind:
                return from_stderr
            return kind, f"its model answered with status {_STATUSES[code]}"
        return from_stderr


@dataclass
class GeminiReader(StreamReader):
    """Reads one turn of Gemini CLI."""

    def events(self, data: Data) -> Iterator[AgentEvent]:
        """The events in a line. A line of another type ends the pieces of a message."""
        key = data.text("tool_id")
        if data and data.get("type") != "message":
            yield from self.buffer.flush()
        match data.get("type"):
            case "message" if data.text("role") == "assistant":
                yield from self.buffer.add(data.text("content"))
                if data.get("delta") is not True:
                    yield from self.buffer.flush()
            case "init":
                self.model = data.text("model") or self.model
                yield from self.start_session(data.text("session_id"))
            case "tool_use":
                yield from self.start_tool(key, data.text("tool_name"), data.get("parameters"))
            case "tool_result":
                error, failed = data.inner("error"), data.text("status") == "error"
                text = data.text("output") or error.text("message")
                yield from self.finish_tool(key, text, failed=failed, denied=error.text("type") in _DENIALS)
            case "error" if data.text("severity") == "warning":
                # "Loop detected, stopping execution" is such a warning. The result after it reports a success.
                yield from self.warn(data.text("message"))
            case "error":
                yield from self.report_error(*_read_error(data))
            case "result":
                yield from self._report_stats(data.inner("stats"))
                if data.get("status") == "success":
                    yield from self.succeed()
                else:
                    yield from self.fail(*_read_error(data.inner("error")))

    def _report_stats(self, stats: Data) -> Iterator[AgentEvent]:
        by_model = stats.inner("models") or {self.model: stats}
        used, reasoning = {}, 0
        for name, value in by_model.items():
            model_stats = Data.of(value)
            used[name] = _read_tokens(model_stats)
            reasoning += used[name][2] - model_stats.count("output_tokens")
        yield from self.report_total(used, reasoning=max(0, reasoning))


def _read_error(data: Data) -> tuple[str, Failure]:
    """The message of an error, and its class. Everything about quotas is a limit."""
    error = data.text("message") or "it failed"
    if data.text("type") == "FatalTurnLimitedError":
        return f"{_OWN_LIMIT} ({one_line(error)})", Failure.AGENT
    if "quota" in error.lower():
        return error, Failure.LIMIT
    return error, classify_failure(error[:TEXT_CHARS])


def _read_tokens(stats: Data) -> tuple[int, int, int]:
    """Tokens in, the cached ones among them, and out. Thoughts count only in the total, and cost as much as output."""
    input_tokens = stats.count("input_tokens")
    return (
        input_tokens,
        stats.count("cached"),
        max(stats.count("output_tokens"), stats.count("total_tokens") - input_tokens),
    )
