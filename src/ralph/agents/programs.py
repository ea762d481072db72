"""Agents without an adapter: any command, the scripted agent, and any agent that speaks the Agent Client Protocol.

Also the events in Ralph's own format, which the scripted agent and the ACP bridge print.
"""

import importlib
import json
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from ralph.agents.acp_program import STEERABLE_PROGRAMS
from ralph.agents.adapter import EDITS, FULL_AUTO, PERMISSIONS, Abilities, Adapter, Call, OwnMode, Reader
from ralph.agents.prices import Prices, cost_of
from ralph.agents.state_paths import StatePaths, find_named_state_paths
from ralph.agents.stream_lines import Data, describe_tool, one_line, parse_line
from ralph.core.codec import parse_json_object
from ralph.core.limits import Usage
from ralph.core.text import clean_text
from ralph.core.turns import AgentEvent, EventKind, Failure

_YEAR_2100 = 4102444800.0
"""No limit ends later, and a calendar must be able to show the date."""


class Program(Adapter):
    """Any program as the agent: the prompt on standard input, text on standard output, exit 0 when it is done."""

    advice = ""
    abilities = Abilities(model=False)
    announces_end = False

    def __init__(self, name: str, arguments: tuple[str, ...]) -> None:
        self.name, self.arguments = name, arguments
        super().__init__(arguments[0])

    def command(self, call: Call) -> tuple[str, ...]:
        """The command of the user, with the arguments of the turn."""
        return (*self.arguments, *call.arguments)

    def reader(self, call: Call, before: Usage) -> Reader:
        """Every line is text."""
        return PlainText()

    def failure(self, code: int | None, stderr: str) -> tuple[Failure, str] | None:
        """Ralph knows nothing about the program's exit codes."""
        return None

    def sign_in(self, environment: Mapping[str, str], home: Path) -> tuple[bool | None, str]:
        """Ralph knows nothing about its sign-in either."""
        return None, ""

    def find_state_paths(self) -> tuple[StatePaths, ...]:
        """Those of the known agents that its command names."""
        return find_named_state_paths(self.arguments)


class Scripted(Program):
    """The agent that plays a scenario."""

    abilities = Abilities(hooks=True, tokens=True, cost=True, model=False)
    announces_end = True

    def reader(self, call: Call, before: Usage) -> Reader:
        """Events in Ralph's own format."""
        return EventLines()

    def can_receive_messages(self, call: Call) -> bool:
        """After each step."""
        return True


class PlainText:
    """Reads the output of a program that prints text: every line is a message."""

    def read(self, line: bytes) -> Iterable[AgentEvent]:
        """The line as a message."""
        text = clean_text(line.decode(errors="replace")).strip()
        return [AgentEvent(EventKind.TEXT, text)] if text else []


class EventLines:
    """Reads one event per line, in Ralph's own format. Other lines are ignored."""

    def read(self, line: bytes) -> Iterable[AgentEvent]:
        """The event in a line."""
        try:
            data = parse_line(line)
            event = _parse_event(data)
        except ValueError:
            return []
        if event.kind is not EventKind.TOOL or data.text("text", "message"):
            return [event]
        return list(_describe_call(event, data))


def _describe_call(event: AgentEvent, data: Data) -> Iterable[AgentEvent]:
    """A call of a tool with the argument that says most, and if it failed, how."""
    yield replace(event, text=describe_tool(data.text("name"), data.get("input")))
    if code := data.count("code"):
        output = one_line(data.text("output"))
        said = f"{output} (exit code {code})" if output else f"exit code {code}"
        yield AgentEvent(EventKind.TOOL_RESULT, said, is_error=True)


def _parse_event(data: Data) -> AgentEvent:
    kind, failure = EventKind(data.text("type")), data.text("failure")
    if kind is EventKind.RECEIVED:
        raise ValueError("only the message files show which messages an agent received")
    if kind is EventKind.USAGE:
        used = Usage(
            input_tokens=data.count("input_tokens"),
            output_tokens=data.count("output_tokens"),
            cost=data.number("cost"),
            cached_tokens=data.count("cached_tokens"),
            reasoning_tokens=data.count("reasoning_tokens"),
            model=one_line(data.text("model")),
        )
        return AgentEvent(kind, usage=used)
    resets_at = data.number("resets_at")
    return AgentEvent(
        kind,
        clean_text(data.text("text", "message", "name")),
        resets_at=resets_at if resets_at is not None and resets_at < _YEAR_2100 else None,
        is_error=bool(data.get("is_error")),
        session=clean_text(data.text("session")),
        failure=Failure(failure) if failure else None,
    )


def event_line(event: AgentEvent, **more: object) -> bytes:
    """An event as `EventLines` reads it. `more` adds keys that only its own reader knows."""
    content: dict[str, object] = {}
    if event.kind is EventKind.USAGE:
        content = {"input_tokens": event.usage.input_tokens, "output_tokens": event.usage.output_tokens}
        if event.usage.cost is not None:
            content["cost"] = event.usage.cost
    else:
        for name in ("text", "session", "failure", "resets_at", "is_error"):
            if value := getattr(event, name):
                content[name] = value
    return json.dumps({"type": event.kind, **content, **more}, ensure_ascii=False).encode(errors="replace") + b"\n"


_INSTRUCTION_FILES = {
    "claude-agent-acp": ("CLAUDE.md", "AGENTS.md"),
    "codex-acp": ("AGENTS.md",),
    "copilot": ("AGENTS.md", "CLAUDE.md", "GEMINI.md"),
    "goose": ("AGENTS.md",),
    "opencode": ("AGENTS.md", "CLAUDE.md"),
    "qwen": ("AGENTS.md", "QWEN.md"),
}
"""The files that known programs read by themselves if they speak ACP. Gemini CLI reads none then."""
_MODE_VARIABLES = {"codex-acp": "INITIAL_AGENT_MODE", "goose": "GOOSE_MODE"}
"""The variables in which the user can choose the mode of known programs."""
# The bridge chooses the agent's mode: only the running agent says which modes it has.
_ACP_MODES = {level: () if level == FULL_AUTO else ("--permissions", level) for level in PERMISSIONS}


class Acp(Adapter):
    """An agent that speaks the Agent Client Protocol, by its command. The bridge (`acp_bridge`) prints its events.

    Only the running agent shows whether it reports tokens or cost.
    """

    install = "pip install 'ralph-engine[acp]'"
    abilities = Abilities(resume=True, session=True, tool_limits=True)
    permission_modes = _ACP_MODES
    levels_with_ralph = (FULL_AUTO, EDITS)
    permission_options = (
        *("--approval-mode", "--permission-mode", "--mode", "--plan"),
        *("sandbox_mode", "approval_policy"),
    )
    """Those of the known programs; the last two are settings, as in `-c sandbox_mode="read-only"`."""

    def __init__(self, name: str, arguments: tuple[str, ...], prices: Prices | None = None) -> None:
        self.name = name
        self.advice = f"make sure that `{' '.join(arguments)}` works for you: it must be signed in, or find its key"
        super().__init__(arguments[0], prices)
        self.arguments = arguments
        names = [Path(argument).name for argument in arguments]
        self.program_names = names
        """The names of its program, and of its arguments if they are paths."""
        self.hooks_adapter = _find_hooks_adapter(names)
        """The adapter for the same program without ACP, if its hooks work here too."""
        if self.hooks_adapter:
            self.refuses_variables = self.hooks_adapter.refuses_variables
        for program in filter(None, map(_INSTRUCTION_FILES.get, names)):
            self.instruction_files = program
        can_steer = any(name in STEERABLE_PROGRAMS for name in names)
        self.abilities = replace(Acp.abilities, live_input=can_steer, hooks=self.hooks_adapter is not None)

    def command(self, call: Call) -> tuple[str, ...]:
        """The bridge, and behind it the agent."""
        forbidden: list[str] = []
        for tool in call.without_tools:
            forbidden += ["--without-tool", tool]
        return (
            *(sys.executable, "-P", "-m", "ralph.agents.acp_bridge"),
            *(("--model", call.model) if call.model else ()),
            *(("--session", call.session) if call.session else ()),
            *forbidden,
            *self.permission_arguments(call),
            "--",
            *self.arguments,
            *self._list_own_arguments(call),
            *self.hook_arguments,
            *call.arguments,
        )

    def _list_own_arguments(self, call: Call) -> tuple[str, ...]:
        """The arguments that a known program needs."""
        if "codex-acp" in self.program_names:
            return ("-c", "allow_login_shell=false")
        if "gemini" in self.program_names and self.is_restricted(call):
            # It does not say which command it asks about. In a directory that it does not trust, it has no mode for edits.
            from ralph.agents.gemini import allow_ralph_commands

            trust = ("--skip-trust",) if call.permissions == EDITS else ()
            return (*trust, *allow_ralph_commands(call))
        return ()

    def chooses_mode(self, arguments: tuple[str, ...]) -> bool:
        """With an option or a variable of the program."""
        environment = {**os.environ, **self.variables}
        variables = filter(None, map(_MODE_VARIABLES.get, self.program_names))
        has_option = super().chooses_mode((*self.arguments, *arguments))
        return has_option or any(environment.get(name) for name in variables)

    def permission_arguments(self, call: Call) -> tuple[str, ...]:
        """The bridge keeps a mode that the user chose."""
        return ("--keep-mode",) if self.chooses_mode(call.arguments) else self.permission_modes[call.permissions]

    def environment(self, call: Call) -> Mapping[str, str]:
        """The variables that a known program needs, and those for our hooks."""
        own = {}
        if "claude-agent-acp" in self.program_names:
            # After every turn, it would ask its model what the user could type next.
            own["CLAUDE_CODE_ENABLE_PROMPT_SUGGESTION"] = "false"
        if "codex-acp" in self.program_names:
            from ralph.agents.codex import Codex, move_temporary_directory

            environment = {**os.environ, **self.variables}
            own["CODEX_CONFIG"] = _forbid_login_shell(environment.get("CODEX_CONFIG", ""))
            own |= move_temporary_directory(Codex().settings_home(environment))
        if "opencode" in self.program_names and call.permissions != FULL_AUTO:
            from ralph.agents.opencode import build_rules

            # Its mode `plan` runs commands without asking.
            own |= build_rules(call)
        return {**own, **self.hook_environment}

    def prepare(self, environment: Mapping[str, str]) -> str:
        """Install our hooks in the same way as for the program without ACP."""
        if self.hooks_adapter is None:
            return ""
        notice = self.hooks_adapter.prepare(environment)
        self.hook_arguments = self.hooks_adapter.hook_arguments
        self.hook_environment = self.hooks_adapter.hook_environment
        return notice

    def find_state_paths(self) -> tuple[StatePaths, ...]:
        """Those of the known agents that its command names."""
        return find_named_state_paths(self.arguments)

    def sign_in(self, environment: Mapping[str, str], home: Path) -> tuple[bool | None, str]:
        """Only the running agent knows."""
        return None, "Ralph learns that only when the first turn starts"

    def reader(self, call: Call, before: Usage) -> "AcpReader":
        """Reads the events of the bridge."""
        return AcpReader(self.prices, before.cost or 0.0, self.model_of(call))

    def find_own_mode(self, call: Call, environment: Mapping[str, str]) -> OwnMode | None:
        """That of the program without ACP."""
        adapter = _find_plain_adapter(self.program_names)
        return adapter.find_own_mode(self._add_arguments(call), environment) if adapter else None

    def can_change_files(self, call: Call, environment: Mapping[str, str]) -> bool:
        """As the program without ACP, which the user's options and variables restrict in the same way."""
        if environment.get("INITIAL_AGENT_MODE") == "read-only" and "codex-acp" in self.program_names:
            return False
        adapter = _find_plain_adapter(self.program_names) or self.hooks_adapter
        if adapter and not adapter.can_change_files(
            replace(self._add_arguments(call), permissions=FULL_AUTO), environment
        ):
            return False
        return super().can_change_files(call, environment)

    def _add_arguments(self, call: Call) -> Call:
        """The call with the arguments in the command of the agent."""
        return replace(call, arguments=(*self.arguments[1:], *call.arguments))

    def configured_model(self, call: Call, environment: Mapping[str, str]) -> str:
        """That of the program without ACP. Copilot does not name the model of a custom provider."""
        return self.hooks_adapter.configured_model(call, environment) if self.hooks_adapter else ""


def _forbid_login_shell(settings: str) -> str:
    """The user's settings for Codex, with no login shell: in one, `ralph` is not on the PATH.

    Versions of codex-acp before 1.0 take the same setting as an argument, and later ones ignore that argument.
    """
    own = parse_json_object(settings)
    if settings and not own:
        return settings
    return json.dumps({"allow_login_shell": False, **own})


_PLAIN_ADAPTERS = {
    "claude-agent-acp": ("claude", "Claude"),
    "codex-acp": ("codex", "Codex"),
    "gemini": ("gemini", "Gemini"),
    "goose": ("goose", "Goose"),
    "opencode": ("opencode", "OpenCode"),
    "qwen": ("qwen", "Qwen"),
}
"""The modules and classes of the adapters whose settings known programs read if they speak ACP."""


def _find_plain_adapter(names: Iterable[str]) -> Adapter | None:
    for module, adapter in filter(None, map(_PLAIN_ADAPTERS.get, names)):
        found: Adapter = getattr(importlib.import_module(f"ralph.agents.{module}"), adapter)()
        return found
    return None


def _find_hooks_adapter(names: Iterable[str]) -> Adapter | None:
    from ralph.agents.copilot import Copilot
    from ralph.agents.qwen import Qwen

    adapters: dict[str, type[Adapter]] = {"copilot": Copilot, "qwen": Qwen}
    for name in names:
        if name in adapters:
            return adapters[name]()
    return None


class AcpReader(EventLines):
    """Reads the events of the bridge. If they report the tokens of a model and no cost, it computes the cost."""

    def __init__(self, prices: Prices, earlier_cost: float, model: str = "") -> None:
        self.prices = prices
        self.model = model
        """The model, if the agent does not name it."""
        self.earlier_cost = earlier_cost
        """US dollars that the conversation cost in earlier turns."""
        self.has_usage = False
        """Whether the agent has reported what it used."""

    def read(self, line: bytes) -> Iterable[AgentEvent]:
        """The event in a line. A turn without any usage has an unknown cost."""
        events = [self._add_price(event, line) for event in super().read(line)]
        if not self.has_usage and any(event.kind is EventKind.RESULT for event in events):
            return [AgentEvent(EventKind.USAGE, usage=Usage(unpriced="")), *events]
        return events

    def _add_price(self, event: AgentEvent, line: bytes) -> AgentEvent:
        if event.kind is not EventKind.USAGE:
            return event
        self.has_usage = True
        used, data = event.usage, parse_line(line)
        cost, model = used.cost, used.model or self.model
        if cost is None and data.get("has_no_price") is not True:
            cached = data.count("cached_tokens")
            cost = cost_of(model, used.input_tokens, cached, used.output_tokens, self.prices)
        elif cost is not None and data.get("whole_cost") is True and cost >= self.earlier_cost:
            cost -= self.earlier_cost
        return replace(event, usage=replace(used, cost=cost, model=model))
