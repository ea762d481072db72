"""OpenCode: how it is started and what its stream says. Measured with 1.18.33."""

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from ralph.agents.adapter import Adapter
from ralph.agents.agent import EDITS, FULL_AUTO, PLAN, READ_ONLY, Abilities, Call
from ralph.agents.failures import end_of_limit, failure_of
from ralph.agents.reader import StreamReader
from ralph.agents.stream_lines import TEXT_CHARS, Data, parse
from ralph.core.limits import Usage
from ralph.core.stream import AgentEvent

_TOOLS = {"sub-agents": "task"}
_DENIED = {EDITS: ("bash",), READ_ONLY: ("bash", "edit")}
"""The tools that a level of permissions takes away."""
_DENIALS = ("The user rejected permission", "The user has specified a rule")
_CONTENT = "OPENCODE_CONFIG_CONTENT"
_PLUGIN = Path(__file__).with_name("plugins") / "opencode.ts"
_SETTINGS = ("config.json", "opencode.json", "opencode.jsonc")
_SETTINGS_LIMIT = 1024 * 1024
_MODES = {FULL_AUTO: ("--auto",), EDITS: (), READ_ONLY: (), PLAN: ("--agent", "plan")}
"""What `--auto` approves is what it would ask about; what it denies is in `environment`."""


class OpenCode(Adapter):
    """OpenCode, for many providers. It tells the cost itself, where it knows the price; what sub-agents use is not told.

    The end of a limit that its provider names is waited for by itself, however long that takes, and nothing is said of it.
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
    around: Mapping[str, str] | None = None
    """The environment of the run, once it is known."""

    permission_modes = _MODES
    permission_options = ("--auto",)

    def command(self, call: Call) -> tuple[str, ...]:
        """Everything allowed that the user did not deny.

        The directory is named, for it would trust $PWD. So is the title, which is the beginning of the prompt then: else
        it would ask its model for one, and tell nobody what that used.
        """
        return (
            self.program,
            *("run", "--format", "json", *self.permission_words(call), "--dir", str(call.workspace)),
            *(("--model", call.model) if call.model else ()),
            *(("--session", call.session) if call.session else ("--title=",)),
            *call.arguments,
        )

    def environment(self, call: Call) -> Mapping[str, str]:
        """The tools that it may not use, and our plugin, beside what the user says in the same places."""
        denied = {_TOOLS.get(name, name): "deny" for name in call.without_tools}
        denied |= dict.fromkeys(_DENIED.get(call.permissions, ()), "deny")
        theirs = parse(os.environ.get("OPENCODE_PERMISSION", "").encode(errors="replace"))
        permission = {"OPENCODE_PERMISSION": json.dumps({**theirs, **denied})} if denied else {}
        return {**permission, **({_CONTENT: self._with_plugin()} if self.hears(call) else {})}

    def lay_hooks(self, environment: Mapping[str, str]) -> str:
        """Our plugin is there; whether it can be loaded is seen turn by turn."""
        self.around = environment
        return ""

    def hears(self, call: Call) -> bool:
        """By a plugin, where that is loaded at once.

        For the sake of any plugin it waits until a package is installed in each of its directories, which it always begins
        to do: without a network that takes 70 seconds, and is in vain.
        """
        if self.around is None or "--pure" in call.arguments or not self._with_plugin():
            return False
        home = Path(self.around.get("HOME") or Path.home())
        general = Path(self.around.get("XDG_CONFIG_HOME") or home / ".config") / "opencode"
        named = [Path(self.around["OPENCODE_CONFIG_DIR"])] if self.around.get("OPENCODE_CONFIG_DIR") else []
        own = (place / ".opencode" for place in (call.workspace, *call.workspace.parents, home))
        return all(map(_has_package, (general, *named, *filter(Path.is_dir, own))))

    def _with_plugin(self) -> str:
        """The settings in its environment with our plugin; empty where those of the user are in a form of their own."""
        theirs = (self.around or {}).get(_CONTENT, "") or "{}"
        found = parse(theirs.encode(errors="replace"))
        plugins = found.get("plugin", [])
        known = (found or theirs == "{}") and isinstance(plugins, list)
        return json.dumps({**found, "plugin": [*plugins, _PLUGIN.as_uri()]}) if known else ""

    def reader(self, call: Call, before: Usage) -> "OpenCodeReader":
        """Who reads a turn; each step tells what it used."""
        return OpenCodeReader(self.prices, call.model)

    def sign_in(self, environment: Mapping[str, str], home: Path) -> tuple[bool | None, str]:
        """A key, or the file that `auth login` writes; a provider in its settings may have a key of its own, or need none."""
        told = super().sign_in(environment, home)
        place = Path(environment.get("XDG_CONFIG_HOME") or home / ".config") / "opencode"
        found = [place / name for name in _SETTINGS if told[0] is False and _names_provider(place / name)]
        return (None, str(found[0])) if found else told


def _has_package(place: Path) -> bool:
    """Whether the package with which plugins are written is installed in a directory of its settings."""
    try:
        return (place / "node_modules").is_dir() and b"@opencode-ai/plugin" in (
            place / "package-lock.json"
        ).read_bytes()
    except OSError:
        return False


def _names_provider(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return b'"provider"' in file.read(_SETTINGS_LIMIT)
    except OSError:
        return False


class OpenCodeReader(StreamReader):
    """Reads one turn of OpenCode. There is no last event: it has ended with the step that was not to use a tool."""

    def events(self, data: Data) -> Iterator[AgentEvent]:
        """What a line tells."""
        yield from self.begin(data.word("sessionID"))
        part = data.inner("part")
        match data.get("type"):
            case "step_start":
                self.speech.last_words = ""
            case "text":
                yield from self.say(part.word("text"))
            case "reasoning":
                yield from self.think(part.word("text"))
            case "tool_use":
                yield from self._used(part, part.inner("state"))
            case "step_finish":
                yield from self._spent(part)
                if part.get("reason") == "length":
                    yield from self.warn("its model reached the limit of tokens of one answer: the answer is cut off")
                yield from self.done() if part.get("reason") == "stop" else ()
            case "error":
                why = data.inner("error", "data")
                error = why.word("message") or data.inner("error").word("name") or "it failed"
                kind = failure_of(error[:TEXT_CHARS], why.number("statusCode"))
                yield from self.fail(error, kind, end_of_limit(why.word("responseBody")[:TEXT_CHARS], self.now))

    def _used(self, part: Data, state: Data) -> Iterator[AgentEvent]:
        """A tool, which is told once it is done."""
        why = state.word("error")
        failed = state.word("status") == "error" or bool(state.inner("metadata").number("exit"))
        yield from self.use("", part.word("tool"), state.get("input"))
        yield from self.used("", state.word("output") or why, failed=failed, denied=why.startswith(_DENIALS))

    def _spent(self, part: Data) -> Iterator[AgentEvent]:
        """What a step used. Where it does not know the price, it tells a cost of nothing."""
        tokens, cache = part.inner("tokens"), part.inner("tokens", "cache")
        spoken = tokens.count("input") + cache.count("read", "write")
        return self.spend(
            spoken,
            cache.count("read"),
            tokens.count("output", "reasoning"),
            part.money("cost"),
            reasoning=tokens.count("reasoning"),
        )
