"""Gemini CLI: how it is started and what its stream says. Measured with 0.61.0."""

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ralph.agents.adapter import (
    EDITS,
    FULL_AUTO,
    PLAN,
    READ_ONLY,
    Abilities,
    Adapter,
    Call,
    build_hooks,
    cache_path,
    options_in,
    point_link,
    short_hash,
    write_if_changed,
)
from ralph.agents.failures import classify_failure, failure_from_stderr
from ralph.agents.reader import StreamReader
from ralph.agents.stream_lines import TEXT_CHARS, Data, one_line, read_model
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


_STRING_OR_COMMENT = re.compile(r'"(?:\\.|[^"\\])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
"""Its settings are JSON with comments. A string can contain what looks like a comment."""


def _drop_comment(match: re.Match[str]) -> str:
    return match[0] if match[0].startswith('"') else ""


def _limit_attempts(path: Path) -> str:
    """The user's settings with our limit of attempts; empty if they have one, or if Ralph cannot read them."""
    try:
        text = path.read_text(encoding="utf-8") if path.exists() else "{}"
        settings = Data.of(json.loads(_STRING_OR_COMMENT.sub(_drop_comment, text)))
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


class Gemini(Adapter):
    """Gemini CLI, by Google. Its limits are in the user's files, which Ralph does not change, not even for our hooks."""

    name = "gemini"
    install = "npm install -g @google/gemini-cli"
    advice = "run `gemini` and choose how to sign in, or set GEMINI_API_KEY"
    abilities = Abilities(resume=True, session=True, hooks=True, tokens=True, names_model=True)
    keys = ("GEMINI_API_KEY", "GOOGLE_API_KEY")
    services = ("GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_GENAI_USE_GCA")
    settings = ("GEMINI_CLI_HOME", ".")
    credentials = (".gemini/oauth_creds.json",)
    may_hold = (".gemini/.env",)

    instruction_files = ("GEMINI.md",)
    permission_modes = _MODES
    permission_options = ("--approval-mode", "--yolo", "-y")

    def command(self, call: Call) -> tuple[str, ...]:
        """The prompt comes from standard input. The directory is trusted for this turn."""
        return (
            self.program,
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
