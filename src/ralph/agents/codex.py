"""Codex: how it is started and what its stream says. Measured with 0.166.0."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ralph.agents.adapter import Adapter
from ralph.agents.agent import Abilities, Call
from ralph.agents.codex_hooks import hook_settings, trust
from ralph.agents.reader import Meter, StreamReader
from ralph.agents.stream_lines import Data
from ralph.core.limits import Usage
from ralph.core.stream import AgentEvent

_FEATURES = {"sub-agents": "multi_agent"}
_USES = ("command_execution", "file_change", "mcp_tool_call", "web_search", "collab_tool_call")


class Codex(Adapter):
    """Codex of OpenAI."""

    name = "codex"
    install = "npm install -g @openai/codex"
    advice = "run `codex login`, or set CODEX_API_KEY"
    abilities = Abilities(resume=True, session=True, hooks=True, tokens=True, sandbox=True, tool_limits=True)
    keys = ("CODEX_API_KEY", "CODEX_ACCESS_TOKEN", "OPENAI_API_KEY")
    settings = ("CODEX_HOME", ".codex")
    credentials = ("auth.json",)

    def command(self, call: Call) -> tuple[str, ...]:
        """`exec` with all permissions and the prompt from standard input. Tools are switched off as features."""
        without = [_FEATURES.get(name, name) for name in call.without_tools]
        return (
            self.program,
            *("exec", "--json", "--dangerously-bypass-approvals-and-sandbox", "--skip-git-repo-check"),
            *("-c", "check_for_update_on_startup=false"),
            *(part for name in without for part in ("-c", f"features.{name}=false")),
            *(("-m", call.model) if call.model else ()),
            *(self.hook_words if self.hears(call) else ()),
            *call.arguments,
            *(("resume", call.session) if call.session else ()),
            "-",
        )

    def lay_hooks(self, environment: Mapping[str, str]) -> str:
        """Find out how they are trusted."""
        if told := trust(self.program, environment):
            self.hook_words = tuple(part for one in (*hook_settings(), told) for part in ("-c", one))
        return "" if told else "it does not tell how a hook is trusted (hooks/list)"

    def hears(self, call: Call) -> bool:
        """By hooks that it trusts, unless the user's arguments are in their place."""
        return super().hears(call) and not any(word.startswith("hooks.") for word in call.arguments)

    def reader(self, call: Call, before: Usage) -> "CodexReader":
        """Who reads a turn. The stream names no model, and its usage is that of the whole conversation.

        `before` is what the conversation had used before this turn, as its readers told.
        """
        return CodexReader(self.prices, call.model, meter=Meter(before))


@dataclass
class CodexReader(StreamReader):
    """Reads one turn of Codex."""

    def events(self, data: Data) -> Iterator[AgentEvent]:
        """What a line tells."""
        item = data.inner("item")
        match data.get("type"):
            case "thread.started":
                yield from self.begin(data.word("thread_id"))
            case "item.started":
                yield from self._use(item)
            case "item.completed":
                yield from self._item(item)
            case "turn.completed":
                usage = data.inner("usage")
                cached = usage.count("cached_input_tokens")
                yield from self.total({self.model: (usage.count("input_tokens"), cached, usage.count("output_tokens"))})
                yield from self.done()
            case "turn.failed":
                yield from self.fail(data.inner("error").word("message") or "the turn failed")
            case "error":
                error = data.word("message")
                if error.startswith("Reconnecting"):
                    yield from self.retry(error)
                elif error:
                    yield from self.complain(error)

    def _item(self, item: Data) -> Iterator[AgentEvent]:
        """Something that is done; an item that is an error is a warning, and nothing to tell."""
        if item.word("type") == "agent_message":
            self.speech.last_words = ""
            yield from self.say(item.word("text"))
        elif item.word("type") in _USES:
            yield from self._use(item)
            status = item.word("status")
            output = item.word("aggregated_output") or item.inner("result").said("content")
            text, failed = output or item.inner("error").word("message") or status, status in ("failed", "declined")
            yield from self.used(item.word("id"), text, failed=failed, denied=status == "declined")

    def _use(self, item: Data) -> Iterator[AgentEvent]:
        key = item.word("id")
        if item.word("type") in _USES and key not in self.tools:
            yield from self.use(key, *_tool(item))


def _tool(item: Data) -> tuple[str, object]:
    """The tool that an item uses, and what it is given."""
    match item.word("type"):
        case "command_execution":
            return "shell", {"command": item.word("command")}
        case "file_change":
            return "edit", {"path": ", ".join(change.word("path") for change in item.objects("changes"))}
        case "mcp_tool_call":
            return f"{item.word('server')}.{item.word('tool')}", item.get("arguments")
        case kind:
            return kind, {"query": item.word("query", "prompt")}
