"""OpenCode: how it is started and what its stream says. Measured with 1.18.33."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ralph.agents.adapter import Adapter, Prices
from ralph.agents.agent import Abilities, Call
from ralph.agents.lines import (
    TEXT_CHARS,
    Complaints,
    Data,
    brief,
    count,
    end_of_limit,
    failure_of,
    gone_wrong,
    inner,
    moment,
    money,
    number,
    parse,
    prose,
    tool_text,
    well_done,
    word,
)
from ralph.agents.prices import cost_of
from ralph.core.limits import Usage
from ralph.core.stream import AgentEvent, Kind

_TOOLS = {"sub-agents": "task"}
_DENIALS = ("The user rejected permission", "The user has specified a rule")
_CONTENT = "OPENCODE_CONFIG_CONTENT"
_PLUGIN = Path(__file__).with_name("inside_node") / "opencode.ts"
_SETTINGS = ("config.json", "opencode.json", "opencode.jsonc")
_SETTINGS_LIMIT = 1024 * 1024


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

    def command(self, call: Call) -> tuple[str, ...]:
        """Everything allowed that the user did not deny.

        The directory is named, for it would trust $PWD. So is the title, which is the beginning of the prompt then: else
        it would ask its model for one, and tell nobody what that used.
        """
        return (
            self.program,
            *("run", "--format", "json", "--auto", "--dir", str(call.workspace)),
            *(("--model", call.model) if call.model else ()),
            *(("--session", call.session) if call.session else ("--title=",)),
            *call.arguments,
        )

    def environment(self, call: Call) -> Mapping[str, str]:
        """The tools that it may not use, and our plugin, beside what the user says in the same places."""
        denied = {_TOOLS.get(name, name): "deny" for name in call.without_tools}
        theirs = parse(os.environ.get("OPENCODE_PERMISSION", "").encode(errors="replace"))
        permission = {"OPENCODE_PERMISSION": json.dumps({**theirs, **denied})} if denied else {}
        return {**permission, **({_CONTENT: self._with_plugin()} if self.hears(call) else {})}

    def ready(self, environment: Mapping[str, str]) -> str:
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


@dataclass
class OpenCodeReader:
    """Reads one turn of OpenCode. There is no last event: it has ended with the step that was not to use a tool."""

    prices: Prices
    model: str
    session: str = ""
    complaints: Complaints = field(default_factory=Complaints)
    last_words: str = ""
    """What it said in this step."""

    def read(self, line: bytes) -> Iterable[AgentEvent]:
        """What a line tells."""
        data = parse(line)
        return [*self._session(data), *self._events(data)] if data else []

    def _session(self, data: Data) -> Iterator[AgentEvent]:
        session = brief(word(data, "sessionID"))
        if session and session != self.session:
            self.session = session
            yield AgentEvent(Kind.SESSION, session=session)

    def _events(self, data: Data) -> Iterator[AgentEvent]:
        part = inner(data, "part")
        match data.get("type"):
            case "step_start":
                self.last_words = ""
            case "text":
                if text := prose(word(part, "text")):
                    self.last_words = f"{self.last_words}\n{text}".strip()[-TEXT_CHARS:]
                    yield AgentEvent(Kind.TEXT, text)
            case "tool_use":
                yield from _use(part)
            case "step_finish":
                yield from self._used(part)
                if part.get("reason") == "stop":
                    yield well_done(self.last_words)
            case "error":
                yield from self._error(data)

    def _used(self, part: Data) -> Iterator[AgentEvent]:
        """What a step used. Where it does not know the price, it tells a cost of nothing."""
        tokens, cache = inner(part, "tokens"), inner(part, "tokens", "cache")
        cached = count(cache, "read")
        spoken, heard = count(tokens, "input") + cached + count(cache, "write"), count(tokens, "output", "reasoning")
        cost = money(part, "cost") or cost_of(self.model, spoken, cached, heard, self.prices)
        if spoken or heard or cost:
            yield AgentEvent(Kind.USAGE, usage=Usage(spoken, heard, cost))

    def _error(self, data: Data) -> Iterator[AgentEvent]:
        why, now = inner(data, "error", "data"), moment(data)
        error = word(why, "message") or word(inner(data, "error"), "name") or "it failed"
        kind = failure_of(error[:TEXT_CHARS], number(why, "statusCode"))
        resets_at = end_of_limit(word(why, "responseBody")[:TEXT_CHARS], now)
        yield from self.complaints.about(error, now, kind, resets_at)
        yield gone_wrong(error, kind)


def _use(part: Data) -> Iterator[AgentEvent]:
    """A tool, which is told once it is done."""
    state = inner(part, "state")
    used, why = tool_text(word(part, "tool"), state.get("input")), word(state, "error")
    yield AgentEvent(Kind.TOOL, used)
    if why.startswith(_DENIALS):
        yield AgentEvent(Kind.DENIED, used)
    failed = word(state, "status") == "error" or bool(number(inner(state, "metadata"), "exit"))
    yield AgentEvent(Kind.TOOL_RESULT, brief(word(state, "output") or why), is_error=failed)
