"""The bridge to any agent that speaks the Agent Client Protocol: `python -P -m ralph.agents.acp_bridge -- PROGRAM ...`.

It reads a prompt from standard input, lets the agent work on it in the current directory, and prints events in Ralph's
own format, one per line. It grants every permission, except for forbidden tools.

The bridge offers to write files, which keeps an agent that writes through it inside the workspace. It does not offer to
read them: Gemini CLI does not understand any answer for a missing file, and could then create no new ones. It still
answers an agent that reads through it, within the workspace. Terminals are the agent's own.
"""

import argparse
import asyncio
import contextlib
import importlib.util
import logging
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ralph import __version__
from ralph.agents.acp_program import (
    REFUSED,
    SUB_AGENTS,
    AcpSteering,
    AgentProgram,
    RequestRefused,
    ToolUse,
    TurnFailed,
    UpdateReader,
    read_text,
    write_text,
)
from ralph.agents.adapter import EDITS, FULL_AUTO, PERMISSIONS, PLAN, READ_ONLY, is_ralph_command
from ralph.agents.failures import classify_failure
from ralph.agents.programs import event_line
from ralph.agents.reader import ErrorReporter, failed_result, success_result
from ralph.agents.stream_lines import Data, one_line, unwrap_error
from ralph.core.turns import AgentEvent, EventKind, Failure

CANCEL_SECONDS = 2.0
"""How long an agent may take to end a turn that is cancelled."""
HEARTBEAT_SECONDS = 5.0
"""If an agent works without an event for this long, the bridge prints an empty line, so that it does not count as idle."""
MISSING_SDK = "the SDK of the Agent Client Protocol is missing; install it with `pip install 'ralph-engine[acp]'`"
PROTOCOL_VERSION = 1
HANDSHAKE_SECONDS = 60.0
"""How long an agent may take to answer `initialize`."""
HISTORY_SILENCE = 1.0
"""After this many seconds without an update, the history of a loaded conversation is complete."""
FULL_ACCESS = ("full-access", "agent-full-access", "bypassPermissions", "yolo")
"""Modes in which an agent asks about nothing. In other modes, some agents refuse silently instead of asking."""
MODES = {
    # Goose asks only in its mode `approve`; its mode `auto` runs every command. `auto` of codex-acp is a sandbox.
    EDITS: ("acceptEdits", "auto_edit", "auto-edit", "autoEdit", "workspace-write", "approve", "auto"),
    READ_ONLY: ("read-only", "readOnly", "ask", "approve", "default"),
    PLAN: ("plan", "architect"),
}
"""The agents' names for modes of the other levels of permissions, best first."""
ALLOWED_KINDS = {
    EDITS: frozenset(("read", "search", "think", "fetch", "edit", "delete", "move")),
    READ_ONLY: frozenset(("read", "search", "think", "fetch")),
    PLAN: frozenset(("read", "search", "think", "fetch", "switch_mode")),
}
"""The kinds of tools that the bridge allows if the agent asks."""
ASKING_MODES = ("approve", "default")
"""Modes in which an agent asks before it uses a tool. The bridge chooses one if a tool is forbidden."""
COUNTS_COST_PER_PROCESS = ("@agentclientprotocol/claude-agent-acp",)
"""Agents that report the cost since they started. Others report that of the whole conversation."""
OWN_ERRORS = {
    "goose": ("Ran into this error", "Network error: ", "I've reached the maximum number of actions"),
    "Copilot": ("Error: ",),
}
"""Prefixes of errors that some agents report as if they were an answer of their model."""
OWN_WARNINGS = {"@agentclientprotocol/codex-acp": ("Warning: ",)}
"""The same for warnings."""
AUTH_REQUIRED, METHOD_NOT_FOUND = -32000, -32601
STOPPED = {
    "max_tokens": "it reached the token limit of its model",
    "max_turn_requests": "it reached its own turn limit",
    "refusal": "its model refused to continue",
    "cancelled": "it was cancelled",
}


@dataclass(frozen=True)
class BridgeRequest:
    """What one turn asks of an agent, beside its prompt."""

    command: Sequence[str]
    """The agent's program and its arguments."""
    model: str = ""
    session: str = ""
    """The conversation to continue; empty for a new one."""
    without_tools: Sequence[str] = ()
    handshake_seconds: float = HANDSHAKE_SECONDS
    permissions: str = FULL_AUTO
    keeps_mode: bool = False
    """Whether the user chose the mode. What the agent then asks for is refused, unless it only reads."""


class AcpTurn:
    """One turn of one agent. The SDK transports messages; their content is read here."""

    def __init__(self, request: BridgeRequest, program: AgentProgram, emit: Callable[..., None]) -> None:
        from acp.connection import Connection

        self.request = request
        self.program = program
        self.emit = emit
        forbidden: list[str] = []
        for name in request.without_tools:
            forbidden += SUB_AGENTS if name == "sub-agents" else (name,)
        self.updates = UpdateReader(emit, frozenset(tool.lower() for tool in forbidden))
        self.root = Path.cwd()
        self.session = ""
        self.agent = Data()
        """Its answer to `initialize`."""
        self.steering: AcpSteering | None = None
        self.cancelled = False
        self.forbidden_tool_used = asyncio.Event()
        self.connection = Connection(self._answer, program)

    @property
    def name(self) -> str:
        """The agent's name for itself."""
        return self.agent.inner("agentInfo").text("name")

    async def run(self, prompt: str) -> None:
        """Initialize the agent, start or continue a conversation, and send the prompt."""
        await self._initialize()
        session_info = await self._open_session()
        self.updates.model = await self._choose_mode_and_model(session_info)
        steering = AcpSteering(self.name, self.ask, self.session)
        self.steering = steering
        try:
            results = await steering.converse(prompt)
        finally:
            self.updates.flush()
        self.updates.report_total(results)
        self._raise_failure(results[-1].text("stopReason"))
        self.emit(success_result(self.updates.buffer.last_message))

    async def cancel(self) -> None:
        """Ask it to stop."""
        self.cancelled = True
        if self.session:
            await self.connection.send_notification("session/cancel", {"sessionId": self.session})

    async def _initialize(self) -> None:
        client = {"name": "ralph", "title": "Ralph", "version": __version__}
        capabilities = {"fs": {"readTextFile": False, "writeTextFile": True}, "terminal": False}
        answer = self.ask(
            "initialize", protocolVersion=PROTOCOL_VERSION, clientCapabilities=capabilities, clientInfo=client
        )
        command, seconds = " ".join(self.request.command), self.request.handshake_seconds
        todo = f"`{command}` must be a command that speaks the Agent Client Protocol on its standard input and output"
        try:
            self.agent = await asyncio.wait_for(answer, seconds)
        except TimeoutError:
            printed = f"; it printed: {self.program.unexpected_output}" if self.program.unexpected_output else ""
            message = f"it did not answer `initialize` within {seconds:g} seconds{printed}; {todo}"
            raise TurnFailed(message, Failure.ACCESS) from None
        except TurnFailed as error:
            if self.cancelled:
                raise
            kind = Failure.ACCESS if error.failure in (None, Failure.AGENT) else error.failure
            raise TurnFailed(f"it does not start working: {error}; {todo}", kind) from None
        version = self.agent.get("protocolVersion")
        if version != PROTOCOL_VERSION:
            message = f"it speaks version {version!r} of the protocol, and Ralph version {PROTOCOL_VERSION}"
            raise TurnFailed(f"{message}: use another version of it, or of Ralph", Failure.ACCESS)
        self.updates.error_prefixes = OWN_ERRORS.get(self.name, ())
        self.updates.warning_prefixes = OWN_WARNINGS.get(self.name, ())
        self.emit(None)

    async def _open_session(self) -> Data:
        """Start or continue a conversation. Returns what the agent says about it."""
        capabilities = self.agent.inner("agentCapabilities")
        location: dict[str, Any] = {"cwd": str(self.root), "mcpServers": []}
        resume_methods: list[str] = []
        if capabilities.get("loadSession") is True:
            resume_methods.append("session/load")
        if isinstance(capabilities.inner("sessionCapabilities").get("resume"), dict):
            resume_methods.append("session/resume")
        if self.request.session:
            self.session = self.request.session
            session_info = await self._resume_session(resume_methods, location)
        else:
            session_info = await self._ask_signed_in("session/new", location)
            self.session = session_info.text("sessionId")
        if not self.session:
            raise TurnFailed("it started a conversation without an id")
        if resume_methods:
            self.emit(AgentEvent(EventKind.SESSION, session=self.session))
        return session_info

    async def _resume_session(self, methods: list[str], location: dict[str, Any]) -> Data:
        """Continue a conversation. An agent that loads one repeats its history, sometimes only after its answer."""
        if self.name == "gemini-cli":
            # It loses a conversation that is loaded in the minute in which it began.
            await asyncio.sleep(60.5 - time.time() % 60)
        self.updates.is_history = True
        self.updates.whole_cost = self.name not in COUNTS_COST_PER_PROCESS
        for method in methods:
            try:
                session_info = await self._ask_signed_in(method, {"sessionId": self.session, **location})
            except TurnFailed as error:
                if error.code != METHOD_NOT_FOUND:
                    raise
                continue
            count = -1
            while count != self.updates.update_count:
                count = self.updates.update_count
                await asyncio.sleep(HISTORY_SILENCE)
            self.updates.is_history = False
            return session_info
        raise TurnFailed("it cannot continue a conversation", Failure.AGENT)

    async def _ask_signed_in(self, method: str, params: dict[str, Any]) -> Data:
        """Send a request that can require a sign-in. If it does, sign in with a key from the environment and try again."""
        try:
            return await self.ask(method, **params)
        except TurnFailed as error:
            usable = [auth_method for auth_method in self.agent.objects("authMethods") if _has_key_for(auth_method)]
            if error.code != AUTH_REQUIRED or not usable:
                raise
        await self.ask("authenticate", methodId=usable[0].text("id"))
        return await self.ask(method, **params)

    async def _choose_mode_and_model(self, session_info: Data) -> str:
        """Choose mode and model. Returns the model, if it is known."""
        mode = self._choose_mode(list(_list_choices(session_info, "mode")))
        if mode:
            try:
                await self._set_option(session_info, "mode", mode)
            except TurnFailed as error:
                if self.request.permissions != FULL_AUTO:
                    raise TurnFailed(f"it refused its mode {mode}: {error}", Failure.ACCESS) from None
                # It stays in its default mode. If it uses a forbidden tool without asking, the turn fails.
                sys.stderr.write(f"ralph: it refused its mode {mode}: {error}\n")
        models, wanted = _list_choices(session_info, "model"), self.request.model
        if not wanted:
            current = session_info.inner("models").text("currentModelId")
            current = current or _find_option(session_info, "model").text("currentValue")
            # Qwen Code has ids such as `$runtime|openai|gpt-5(openai)`. Their name is that of the model.
            return models.get(current, current) if "|" in current else current
        if not models:
            message = "its model cannot be chosen through the protocol; pass it as an argument of its program instead"
            raise TurnFailed(message, Failure.ACCESS)
        for key, name in models.items():
            if wanted in (key, name):
                await self._set_option(session_info, "model", key)
                return key
        raise TurnFailed(f"it has no model {wanted!r}; it has {', '.join(list(models)[:30])}", Failure.ACCESS)

    def _choose_mode(self, known: list[str]) -> str:
        """The mode for the permissions of the turn; empty to keep its default mode."""
        level = self.request.permissions
        if self.request.keeps_mode:
            return ""
        if level == FULL_AUTO:
            wanted = ASKING_MODES if self.updates.forbidden else FULL_ACCESS
            return next((mode for mode in wanted if mode in known), "")
        found = next((mode for mode in MODES[level] if mode in known), "")
        if not found:
            modes = f"its modes are {', '.join(known)}" if known else "it names no modes"
            message = f"it has no mode for `permissions: {level}`; {modes}"
            raise TurnFailed(f"{message}. Leave `permissions` out, or use another agent", Failure.ACCESS)
        return found

    def _is_kind_allowed(self, kind: str) -> bool:
        """Whether the permissions of the turn allow a kind of tool."""
        if self.request.keeps_mode:
            return kind in ALLOWED_KINDS[READ_ONLY]
        return self.request.permissions == FULL_AUTO or kind in ALLOWED_KINDS[self.request.permissions]

    async def _set_option(self, session_info: Data, category: str, value: str) -> None:
        """Set the mode or the model, by its own method or as an option of the conversation."""
        if value in _list_own_choices(session_info, category):
            await self.ask(f"session/set_{category}", sessionId=self.session, **{f"{category}Id": value})
        else:
            key = _find_option(session_info, category).text("id")
            await self.ask("session/set_config_option", sessionId=self.session, configId=key, value=value)

    def _raise_failure(self, reason: str) -> None:
        """Raise TurnFailed, unless the agent ended the turn by itself and its last message is not an error."""
        if self.updates.forbidden_use:
            raise TurnFailed(f"it used a tool that it may not use: {self.updates.forbidden_use}", Failure.AGENT)
        if reason != "end_turn":
            message = STOPPED.get(reason) or f"it stopped: {one_line(reason) or 'it does not say why'}"
            raise TurnFailed(message, Failure.AGENT)
        if self.updates.own_error:
            # What follows an empty line is advice for a user at a terminal.
            raise self._read_refusal(None, self.updates.own_error.partition("\n\n")[0], None)

    async def ask(self, method: str, **params: object) -> Data:
        """Send a request and return its answer. Raises TurnFailed if there is none."""
        from acp.exceptions import RequestError

        try:
            return Data.of(await self.connection.send_request(method, params))
        except RequestError as error:
            raise self._read_refusal(error.code, str(error), error.data) from None
        except (ConnectionError, OSError):
            failure, exit_description = await self.program.describe_exit()
            if self.cancelled:
                raise TurnFailed("it was ended") from None
            raise TurnFailed(exit_description, failure) from None

    def _read_refusal(self, code: object, message: str, data: object) -> TurnFailed:
        """The failure in an error of the agent, with the ways to sign in if only the user can help."""
        status = code if isinstance(code, int) and 400 <= code < 600 else None
        message = unwrap_error(_add_details(message, data))
        kind = Failure.ACCESS if code == AUTH_REQUIRED else classify_failure(message, status)
        methods = [_describe_sign_in(method) for method in self.agent.objects("authMethods")]
        if kind is Failure.ACCESS and methods:
            message = f"{message}; it offers these ways to sign in: {'; '.join(methods)}"
        return TurnFailed(message, kind, code)

    async def _answer(self, method: str, params: object, is_notification: bool) -> object:
        """Answer a notification or request of the agent."""
        from acp.exceptions import RequestError

        arguments = Data.of(params)
        try:
            match method:
                case "session/update":
                    self._update(arguments)
                    return None
                case "session/request_permission":
                    return self._answer_permission(arguments)
                case "fs/read_text_file":
                    lines = arguments.count("limit") if arguments.get("limit") is not None else None
                    text = read_text(self.root, arguments.text("path"), arguments.count("line"), lines)
                    return {"content": text}
                case "fs/write_text_file":
                    if not self.request.keeps_mode and not self._is_kind_allowed("edit"):
                        raise RequestRefused(REFUSED, f"this turn has the permissions {self.request.permissions}")
                    write_text(self.root, arguments.text("path"), arguments.text("content"))
                    return {}
        except RequestRefused as refusal:
            self.emit(AgentEvent(EventKind.DENIED, one_line(f"{method}: {refusal}")))
            raise RequestError(refusal.code, str(refusal)) from None
        raise RequestError.method_not_found(str(method))

    def _update(self, params: Data) -> None:
        """Read an update of our session. Sub-agents have sessions of their own."""
        if params.text("sessionId") in (self.session, ""):
            self.updates.update(params.inner("update"))
            if self.steering:
                self.steering.update(params.inner("update"))
            if self.updates.forbidden_use:
                self.forbidden_tool_used.set()

    def _answer_permission(self, request: Data) -> object:
        """Allow it once, except for forbidden tools and what the permissions of the turn do not allow."""
        tool = self.updates.update_tool(request.inner("toolCall"))
        self.updates.report_use(tool)
        is_our_command = is_ralph_command(tool.arguments.text("command", "cmd"), os.environ.get("RALPH_BIN", ""))
        is_allowed = self.updates.is_allowed(tool) and (self._is_kind_allowed(_find_kind(tool)) or is_our_command)
        wanted = ("allow_once", "allow_always") if is_allowed else ("reject_once", "reject_always")
        options = {option.text("kind"): option.text("optionId") for option in reversed(request.objects("options"))}
        choice = next((options[kind] for kind in wanted if kind in options), "")
        if not is_allowed or not choice:
            tool.denied = True
            self.emit(AgentEvent(EventKind.DENIED, tool.text))
        if not choice:
            return {"outcome": {"outcome": "cancelled"}}
        return {"outcome": {"outcome": "selected", "optionId": choice}}


def _find_kind(tool: ToolUse) -> str:
    """The kind of a tool. Goose calls all of its own tools `other`."""
    return "edit" if tool.kind == "other" and tool.names & {"write", "edit"} else tool.kind


def _list_own_choices(session_info: Data, category: str) -> dict[str, str]:
    """The modes or models for which the agent has a method, with their names."""
    key = {"mode": "id", "model": "modelId"}[category]
    own = session_info.inner(f"{category}s").objects(f"available{category.title()}s")
    return {choice.text(key): choice.text("name") for choice in own}


def _list_choices(session_info: Data, category: str) -> dict[str, str]:
    """All modes or models of a conversation, with their names. Those of an option can be in groups.

    In codex-acp, `gpt-5.5[low]` is a model with a method, and `gpt-5.5` the value of an option.
    """
    choices = _list_own_choices(session_info, category)
    for entry in _find_option(session_info, category).objects("options"):
        for choice in entry.objects("options") or [entry]:
            choices.setdefault(choice.text("value"), choice.text("name"))
    return choices


def _find_option(session_info: Data, category: str) -> Data:
    """The option of a conversation that is its mode, or its model."""
    for option in session_info.objects("configOptions"):
        if option.text("category") == category:
            return option
    return Data()


def _has_key_for(method: Data) -> bool:
    """Whether the environment has the variables that a sign-in method needs.

    Agents name them in `vars`, in the description, or only in the id of the method. codex-acp names only the provider.
    """
    if provider := method.inner("_meta", "api-key").text("provider"):
        return any(os.environ.get(f"{name}_API_KEY") for name in ("CODEX", provider.upper()))
    variables = [variable.text("name") for variable in method.objects("vars") if variable.get("optional") is not True]
    if not variables:
        text = f"{method.text('description')} {re.sub(r'[^a-zA-Z0-9]', '_', method.text('id')).upper()}"
        variables = re.findall(r"\b[A-Z][A-Z0-9_]*_(?:KEY|TOKEN)\b", text)[:1]
    return bool(variables) and all(os.environ.get(name) for name in variables)


def _describe_sign_in(method: Data) -> str:
    name, description = one_line(method.text("name") or method.text("id")), one_line(method.text("description"))
    return f"{name} ({description})" if description else name


def _add_details(message: str, data: object) -> str:
    """An error message with the details from its data."""
    fields = Data.of(data)
    details = data if isinstance(data, str) else fields.text("details", "message", "error")
    details = details or fields.inner("error").text("message")
    if not details or details in message:
        return message
    if message.lower() in ("internal error", "error", ""):
        return details
    return f"{message}: {details}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one turn. The exit code is 0 only if the agent ends it by itself."""
    request, output = _parse_arguments(arguments), EventOutput()
    logging.disable()
    try:
        if importlib.util.find_spec("acp") is None:
            raise TurnFailed(MISSING_SDK, Failure.ACCESS)
        prompt = sys.stdin.buffer.read().decode(errors="replace")
        return asyncio.run(run_turn(request, prompt, output))
    except TurnFailed as error:
        output.report_error(error)
        return 1


async def run_turn(request: BridgeRequest, prompt: str, output: "EventOutput") -> int:
    """Run one turn to its end, or until a signal ends it. Returns the exit code."""
    signals: asyncio.Queue[int] = asyncio.Queue()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, signals.put_nowait, number)
    program = await AgentProgram.start(request.command)
    try:
        turn = AcpTurn(request, program, output.emit)
        work = asyncio.create_task(turn.run(prompt))
        stopped = asyncio.create_task(signals.get())
        forbidden = asyncio.create_task(turn.forbidden_tool_used.wait())
        await asyncio.wait({work, stopped, forbidden}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            with contextlib.suppress(OSError, TimeoutError):
                await asyncio.wait_for(turn.cancel(), CANCEL_SECONDS)
            await asyncio.wait({work}, timeout=CANCEL_SECONDS)
            work.cancel()
        await asyncio.wait({work})
        error = None if work.cancelled() else work.exception()
        if isinstance(error, TurnFailed) and stopped.done():
            output.report_error(error)
        elif error:
            raise error
        return 128 + stopped.result() if stopped.done() else 0
    finally:
        await program.end()


class EventOutput:
    """Prints events at once."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def emit(self, event: AgentEvent | None, **more: object) -> None:
        """Print an event. Without one, print an empty line now and then to show that the agent is alive."""
        now = time.monotonic()
        if event or now - self._last > HEARTBEAT_SECONDS:
            self._last = now
            sys.stdout.buffer.write(event_line(event, **more) if event else b"\n")
            sys.stdout.buffer.flush()

    def report_error(self, error: TurnFailed) -> None:
        """Print why a turn failed, and that it is over."""
        kind = error.failure or classify_failure(str(error))
        for event in ErrorReporter().report(str(error), time.time(), kind):
            self.emit(event)
        self.emit(failed_result(str(error), kind))


def _parse_arguments(arguments: Sequence[str] | None) -> BridgeRequest:
    parser = argparse.ArgumentParser(prog="ralph acp-bridge", description=main.__doc__)
    parser.add_argument("--model", default="", help="the model that the agent uses")
    parser.add_argument("--session", default="", help="the conversation to continue")
    parser.add_argument("--without-tool", action="append", default=[], help="a tool that the agent must not use")
    parser.add_argument(
        "--permissions", default=FULL_AUTO, choices=PERMISSIONS, help="what the agent may do without an approval"
    )
    parser.add_argument("--keep-mode", action="store_true", help="do not choose the agent's permission mode")
    parser.add_argument(
        "--patience", type=float, default=HANDSHAKE_SECONDS, help="seconds to wait for the agent's first answer"
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- PROGRAM ...", help="the agent")
    options = parser.parse_args(arguments)
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        parser.error("the program of the agent is missing")
    return BridgeRequest(
        command=command,
        model=options.model,
        session=options.session,
        without_tools=options.without_tool,
        handshake_seconds=options.patience,
        permissions=options.permissions,
        keeps_mode=options.keep_mode,
    )


if __name__ == "__main__":
    sys.exit(main())
