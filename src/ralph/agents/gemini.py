"""Gemini CLI: how it is started and what its stream says. Measured with 0.61.0."""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ralph.agents.adapter import Adapter
from ralph.agents.agent import EDITS, FULL_AUTO, PLAN, READ_ONLY, Abilities, Call
from ralph.agents.failures import failure_in, failure_of
from ralph.agents.hook_config import hooks, lay, own_place, point, short_hash
from ralph.agents.reader import StreamReader
from ralph.agents.stream_lines import TEXT_CHARS, Data, brief, named_model
from ralph.core.limits import Usage
from ralph.core.stream import AgentEvent, Failure

_EVENTS = ("AfterTool", "AfterAgent")
_OURS = "ralph"


def make_home(environment: Mapping[str, str]) -> str:
    """Bring it up to date; empty where it is of no use, for the sandbox sees neither links nor hooks."""
    theirs = Path(environment.get("GEMINI_CLI_HOME") or environment.get("HOME") or Path.home())
    if _is_boxed(environment, theirs):
        return ""
    ours = json.dumps({"hooks": hooks("gemini", _EVENTS, 10_000)})
    home = own_place(environment, f"gemini-{short_hash(f'{theirs}{ours}')}")
    extension = home / ".gemini" / "extensions" / _OURS
    _mirror(theirs, home)
    lay(extension / "gemini-extension.json", json.dumps({"name": _OURS, "version": "1.0.0"}))
    lay(extension / ".gemini-extension-install.json", json.dumps({"source": str(extension), "type": "local"}))
    lay(extension / "hooks" / "hooks.json", ours)
    return str(home)


def _is_boxed(environment: Mapping[str, str], home: Path) -> bool:
    """Whether it may run in its sandbox, as far as can be told without reading its settings as it does."""
    settings = home / ".gemini" / "settings.json"
    return bool(environment.get("GEMINI_SANDBOX")) or (settings.exists() and b'"sandbox"' in settings.read_bytes())


def _mirror(theirs: Path, home: Path) -> None:
    """Link to all that it looks for in a home. Its conversations are in `tmp`, which must not be in ours alone."""
    real, own = theirs / ".gemini", home / ".gemini"
    for place in (real / "tmp", real / "history", own / "extensions"):
        place.mkdir(parents=True, exist_ok=True)
    wanted = {own / path.name: path for path in real.iterdir() if path.name != "extensions"}
    if (real / "extensions").is_dir():
        others = (path for path in (real / "extensions").iterdir() if path.name != _OURS)
        wanted |= {own / "extensions" / path.name: path for path in others}
    wanted |= {home / name: theirs / name for name in (".env", ".agents") if (theirs / name).exists()}
    for place in (home, own, own / "extensions"):
        for link in place.iterdir():
            if link.is_symlink() and link not in wanted:
                link.unlink(missing_ok=True)
    for link, target in wanted.items():
        point(link, target)


_DENIALS = ("tool_not_registered", "policy_violation", "path_not_in_workspace")
_OWN_LIMIT = "it reached its own limit of turns"
_EXITS = {
    41: (Failure.ACCESS, "it is not signed in"),
    42: (Failure.AGENT, "it refused what it was given"),
    44: (Failure.ACCESS, "its sandbox does not work"),
    52: (Failure.ACCESS, "its settings are not valid"),
    53: (Failure.AGENT, _OWN_LIMIT),
    54: (Failure.AGENT, "a tool failed in a way that it could not go on from"),
}
"""Its own exit codes; others of an error are the status of the model's answer, of which only the last byte is left."""
_STATUSES = {status % 256: status for status in (401, 403, 404, 408, 429, 500, 502, 503, 504, 529)}
_MODES = {
    FULL_AUTO: ("--yolo",),
    EDITS: ("--approval-mode", "auto_edit"),
    READ_ONLY: ("--approval-mode", "default"),
    PLAN: ("--approval-mode", "plan"),
}


class Gemini(Adapter):
    """Gemini CLI of Google. Its limits are in files of the user's, which are not touched; nor is any for our hooks."""

    name = "gemini"
    install = "npm install -g @google/gemini-cli"
    advice = "run `gemini` and choose how to sign in, or set GEMINI_API_KEY"
    abilities = Abilities(resume=True, session=True, hooks=True, tokens=True, names_model=True)
    keys = ("GEMINI_API_KEY", "GOOGLE_API_KEY")
    services = ("GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_GENAI_USE_GCA")
    settings = ("GEMINI_CLI_HOME", ".")
    credentials = (".gemini/oauth_creds.json",)
    may_hold = (".gemini/.env",)

    permission_modes = _MODES
    permission_options = ("--approval-mode", "--yolo", "-y")

    def command(self, call: Call) -> tuple[str, ...]:
        """In a directory that is trusted for this turn; the prompt from standard input."""
        return (
            self.program,
            *("-o", "stream-json", *self.permission_words(call), "--skip-trust"),
            *(("-m", call.model) if call.model else ()),
            *(("--resume", call.session) if call.session else ()),
            *call.arguments,
        )

    def configured_model(self, call: Call, environment: Mapping[str, str]) -> str:
        """`GEMINI_MODEL`, or `model.name` in its settings, those of the project first."""
        home = self.settings_home(environment)
        return environment.get("GEMINI_MODEL", "") or named_model(
            call.workspace / ".gemini" / "settings.json", home / ".gemini" / "settings.json"
        )

    def environment(self, call: Call) -> Mapping[str, str]:
        """One process instead of two. On GitHub it would keep the mark of the turn from its tools."""
        github = {name: "" for name in ("GITHUB_SHA", "SURFACE") if os.environ.get(name)}
        return {"GEMINI_CLI_NO_RELAUNCH": "true", **github, **(self.hook_variables if self.hears(call) else {})}

    def lay_hooks(self, environment: Mapping[str, str]) -> str:
        """Make a home with them."""
        home = make_home(environment)
        self.hook_variables = {"GEMINI_CLI_HOME": home} if home else {}
        return "" if home else "its sandbox runs no hooks of ours"

    def hears(self, call: Call) -> bool:
        """By hooks, where they could be laid, and the user's arguments do not keep them out."""
        out = {"-s", "--sandbox", "-e", "--extensions"}
        return super().hears(call) and not out & {word.partition("=")[0] for word in call.arguments}

    def reader(self, call: Call, before: Usage) -> "GeminiReader":
        """Who reads a turn; the stream names the model, and its usage is that of the turn."""
        return GeminiReader(self.prices, call.model)

    def failure(self, code: int | None, stderr: str) -> tuple[Failure, str] | None:
        """What the exit code says, in the words of standard error where they speak of the same."""
        if not code:
            return None
        told = failure_in(stderr)
        if code in _EXITS:
            kind, text = _EXITS[code]
            return kind, f"{text}: {told[1]}" if told else text
        if code in _STATUSES:
            kind = failure_of("", _STATUSES[code])
            return kind, told[1] if told and told[0] is kind else f"its model answered with status {_STATUSES[code]}"
        return told


@dataclass
class GeminiReader(StreamReader):
    """Reads one turn of Gemini CLI."""

    def events(self, data: Data) -> Iterator[AgentEvent]:
        """What a line tells; the pieces of a message end with a line of another kind."""
        key = data.word("tool_id")
        if data and data.get("type") != "message":
            yield from self.speech.end()
        match data.get("type"):
            case "message" if data.word("role") == "assistant":
                yield from self.speech.hear(data.word("content"))
                yield from self.speech.end() if data.get("delta") is not True else ()
            case "init":
                self.model = data.word("model") or self.model
                yield from self.begin(data.word("session_id"))
            case "tool_use":
                yield from self.use(key, data.word("tool_name"), data.get("parameters"))
            case "tool_result":
                why, failed = data.inner("error"), data.word("status") == "error"
                text = data.word("output") or why.word("message")
                yield from self.used(key, text, failed=failed, denied=why.word("type") in _DENIALS)
            case "error" if data.word("severity") == "warning":
                # "Loop detected, stopping execution" comes so, and then a result that tells of success.
                yield from self.warn(data.word("message"))
            case "error":
                yield from self.complain(*_trouble(data))
            case "result":
                stats = data.inner("stats")
                models = {name: Data.of(one) for name, one in stats.inner("models").items()} or {self.model: stats}
                used = {name: _tokens(one) for name, one in models.items()}
                thoughts = sum(used[name][2] - one.count("output_tokens") for name, one in models.items())
                yield from self.total(used, reasoning=max(0, thoughts))
                yield from self.done() if data.get("status") == "success" else self.fail(*_trouble(data.inner("error")))


def _trouble(data: Data) -> tuple[str, Failure]:
    """What an error says, and its class: all that it says of quotas is a limit."""
    error = data.word("message") or "it failed"
    if data.word("type") == "FatalTurnLimitedError":
        return f"{_OWN_LIMIT} ({brief(error)})", Failure.AGENT
    return error, Failure.LIMIT if "quota" in error.lower() else failure_of(error[:TEXT_CHARS])


def _tokens(stats: Data) -> tuple[int, int, int]:
    """Tokens in, those of them that were cached, and out: those of thoughts are in the total only, and cost the same."""
    spoken = stats.count("input_tokens")
    return spoken, stats.count("cached"), max(stats.count("output_tokens"), stats.count("total_tokens") - spoken)
