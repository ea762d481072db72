"""The agent on the other side of the Agent Client Protocol: its process, its prompts, its files, and its updates."""

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ralph.agents import live_messages
from ralph.agents.failures import failure_from_stderr
from ralph.agents.reader import MessageBuffer, Meter
from ralph.agents.stream_lines import (
    IMAGE_NOTICE,
    SUB_AGENT_TOOLS,
    TEXT_CHARS,
    Data,
    describe_todos,
    describe_tool,
    limit_text,
    one_line,
    parse_line,
)
from ralph.core.errors import RalphError
from ralph.core.limits import Usage
from ralph.core.turns import IMAGE, AgentEvent, EventKind, Failure
from ralph.store.files import read_limited, write_atomic
from ralph.supervisor.processes import become_subreaper, descendants, signal_all

MAX_LINE_BYTES = 50_000_000
"""Some messages contain whole files."""
STDERR_TAIL = 8000
EXIT_SECONDS, TERM_SECONDS, KILL_SECONDS = 2.0, 1.5, 5.0
"""How long the program may take to exit: after its input is closed, after SIGTERM, and after SIGKILL."""


class TurnFailed(Exception):
    """Ends a turn early. The message is for the user."""

    def __init__(self, message: str, failure: Failure | None = None, code: object = None) -> None:
        super().__init__(message)
        self.failure = failure
        self.code = code
        """The code of the error with which the agent answered."""


class AgentProgram:
    """A running agent; what the SDK calls a transport."""

    def __init__(self, command: Sequence[str], process: Process) -> None:
        self.command = command
        self.unexpected_output = ""
        """The first line that it printed and that is not a message."""
        self._process = process
        self._stderr_tail = bytearray()
        self._stderr_task = asyncio.create_task(self._copy_stderr())

    @classmethod
    async def start(cls, command: Sequence[str]) -> "AgentProgram":
        """Start it in the current directory. This process becomes the parent of everything that it leaves behind."""
        become_subreaper()
        try:
            process = await asyncio.create_subprocess_exec(
                *command, stdin=PIPE, stdout=PIPE, stderr=PIPE, limit=MAX_LINE_BYTES, start_new_session=True
            )
        except OSError as error:
            message = f"{command[0]} cannot be started: {error.strerror}; install it, or use its full path"
            raise TurnFailed(message, Failure.ACCESS) from error
        return cls(command, process)

    async def send(self, message: dict[str, Any]) -> None:
        """Send one message."""
        assert self._process.stdin
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        await self._process.stdin.drain()

    async def receive(self) -> dict[str, Any] | None:
        """The next message; None if there are no more. The first line that is not a message is remembered."""
        assert self._process.stdout
        while True:
            try:
                line = await self._process.stdout.readline()
            except ValueError:
                self.unexpected_output = f"a line of more than {MAX_LINE_BYTES // 1_000_000} MB"
                return None
            if not line:
                return None
            if message := parse_line(line):
                return dict(message)
            self.unexpected_output = self.unexpected_output or one_line(line[:2000].decode(errors="replace"))

    async def close(self) -> None:
        """Close its standard input."""
        assert self._process.stdin
        with contextlib.suppress(OSError, RuntimeError):
            self._process.stdin.close()

    async def describe_exit(self) -> tuple[Failure | None, str]:
        """Why it sends nothing more: its exit code, what it printed, and the failure on standard error."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), EXIT_SECONDS)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._stderr_task), EXIT_SECONDS)
        code = self._process.returncode
        if code is None:
            end = "it closed its output"
        elif code < 0:
            end = f"it was killed by signal {-code}"
        else:
            end = f"it ended with exit code {code}"
        failure, error = failure_from_stderr(self._stderr_tail.decode(errors="replace")) or (None, "")
        printed = f"it printed: {self.unexpected_output}" if self.unexpected_output else ""
        details = "; ".join(filter(None, (printed, error)))
        return failure, f"{end} ({details})" if details else end

    async def end(self) -> None:
        """Let it exit by itself, then end what is left of it and of everything that it started."""
        await self.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), EXIT_SECONDS)
        for number, seconds in ((signal.SIGTERM, TERM_SECONDS), (signal.SIGKILL, KILL_SECONDS)):
            deadline = time.monotonic() + seconds
            signal_all(number)
            while descendants(os.getpid()) and time.monotonic() < deadline:
                await asyncio.sleep(0.02)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.gather(self._process.wait(), self._stderr_task), KILL_SECONDS)

    async def _copy_stderr(self) -> None:
        """Copy its standard error to ours, and keep the end of it."""
        assert self._process.stderr
        while chunk := await self._process.stderr.read(1 << 16):
            self._stderr_tail += chunk
            del self._stderr_tail[:-STDERR_TAIL]
            with contextlib.suppress(OSError):
                sys.stderr.buffer.write(chunk)
                sys.stderr.buffer.flush()


ANSWERS_SECOND_PROMPT = ("@agentclientprotocol/claude-agent-acp", "OpenCode")
"""Agents that add a second prompt to the first and answer both. The turn is over when all prompts are answered."""
IGNORES_SECOND_PROMPT = ("codex-acp",)
"""Agents that add it to the first, and answer only the first."""
STEER_METHODS = {"goose": "_goose/unstable/session/steer", "@agentclientprotocol/codex-acp": "_session/steering"}
"""Agents with a method for messages. That of goose takes the id of the current run."""
STEERABLE_PROGRAMS = ("claude-agent-acp", "codex-acp", "goose", "opencode")
"""The programs of all these agents."""
POLL_SECONDS, REFUSAL_SECONDS = 0.2, 0.5
"""Time between two looks for messages, and time in which an agent refuses a second prompt."""
_HELD, _RECEIVED_LIVE = ".held", f"{live_messages.RECEIVED}live"


class AcpSteering:
    """The prompts of one turn: the first, and messages of the user that come while the agent works on it."""

    def __init__(self, agent: str, ask: Callable[..., Awaitable[Data]], session: str) -> None:
        self.agent = agent
        self.ask = ask
        self.session = session
        self.run = ""
        """The current run of goose."""
        self._answers: list[asyncio.Future[Data]] = []
        self._is_over = False

    def update(self, update: Data) -> None:
        """Note the run id in an update of the session."""
        self.run = update.inner("_meta", "goose").text("activeRunId") or self.run

    async def converse(self, prompt: str) -> list[Data]:
        """Send the prompt, and messages that come meanwhile. Returns the agent's answers."""
        first = self._prompt(prompt)
        sender = asyncio.create_task(self._send_messages(os.environ.get("RALPH_MESSAGES", "")))
        try:
            while not first.done() or (self.agent in ANSWERS_SECOND_PROMPT and self._open_answers()):
                await asyncio.wait(self._open_answers(), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._is_over = True
            sender.cancel()
            await asyncio.wait({sender})
        return [answer.result() for answer in self._answers if answer.done()]

    def _open_answers(self) -> list[asyncio.Future[Data]]:
        return [answer for answer in self._answers if not answer.done()]

    def _prompt(self, text: str) -> asyncio.Future[Data]:
        content = [{"type": "text", "text": text}]
        answer = asyncio.ensure_future(self.ask("session/prompt", sessionId=self.session, prompt=content))
        self._answers.append(answer)
        return answer

    async def _send_messages(self, directory: str) -> None:
        """Claim messages and pass them on to the agent. If the agent refuses them, they wait for the next turn."""
        if not directory or self.agent not in (*ANSWERS_SECOND_PROMPT, *IGNORES_SECOND_PROMPT, *STEER_METHODS):
            return
        while not self._is_over:
            await asyncio.sleep(POLL_SECONDS)
            if self.agent == "goose" and not self.run:
                continue
            messages = live_messages.rename_waiting(directory, _HELD)
            if not messages:
                continue
            accepted = False
            try:
                accepted = await self._send("\n\n".join(text for _, text in messages))
            finally:
                for name, _ in messages:
                    ending = _RECEIVED_LIVE if accepted else live_messages.WAITING
                    live_messages.rename_message(directory, name, _HELD, ending)
            if not accepted:
                return

    async def _send(self, text: str) -> bool:
        """Send a message; whether the agent accepted it."""
        if method := STEER_METHODS.get(self.agent):
            return await self._steer(method, text)
        answer = self._prompt(text)
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait({answer}, timeout=REFUSAL_SECONDS)
        if answer.done() and answer.exception():
            self._answers.remove(answer)
            return False
        return True

    async def _steer(self, method: str, text: str) -> bool:
        """Send a message with the agent's own method; whether the agent accepted it."""
        params: dict[str, Any] = {"sessionId": self.session, "prompt": [{"type": "text", "text": text}]}
        if self.agent == "goose":
            params["expectedRunId"] = self.run
        else:
            # Without this, codex-acp starts a turn of its own with the message if the current one has just ended.
            params["_meta"] = {"steering": {"idleBehavior": "promptRequired"}}
        try:
            answer = await self.ask(method, **params)
        except TurnFailed:
            return False
        return self.agent == "goose" or answer.text("outcome") == "injected"


NOT_FOUND, REFUSED = -32002, -32602


class RequestRefused(Exception):
    """A request of the agent that the bridge refuses, with the error code of the protocol."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def read_text(root: Path, path: str, first_line: int, line_count: int | None) -> str:
    """The text of a file, from a line on (the first is 1)."""
    target = _resolve_inside(root, path)
    try:
        text = read_limited(target, MAX_LINE_BYTES, follow=True).decode()
    except FileNotFoundError:
        raise RequestRefused(NOT_FOUND, f"Resource not found: {path} does not exist") from None
    except UnicodeDecodeError:
        raise RequestRefused(REFUSED, f"{path} is not UTF-8 text") from None
    except (OSError, RalphError) as error:
        raise RequestRefused(REFUSED, f"{path} cannot be read: {error}") from None
    if first_line <= 1 and line_count is None:
        return text
    start = max(0, first_line - 1)
    end = None if line_count is None else start + max(0, line_count)
    return "".join(text.splitlines(keepends=True)[start:end])


def write_text(root: Path, path: str, content: str) -> None:
    """Replace a file as a whole, or create it and its directories. An existing file keeps its mode."""
    target = _resolve_inside(root, path)
    parts = target.relative_to(os.path.realpath(root)).parts
    if ".git" in parts or parts[:2] == (".ralph", "runs"):
        raise RequestRefused(REFUSED, f"{path} belongs to git or Ralph: an agent cannot write it")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        mode = target.stat().st_mode & 0o7777 if target.exists() else None
        write_atomic(target, content.encode(errors="replace"), mode=0o666, durable=False)
        if mode is not None:
            target.chmod(mode)
    except (OSError, RalphError) as error:
        raise RequestRefused(REFUSED, f"{path} cannot be written: {error}") from None


def _resolve_inside(root: Path, path: str) -> Path:
    """The file behind all links, which must be in the workspace."""
    base = os.path.realpath(root)
    target = Path(os.path.realpath(os.path.join(base, path.replace("\0", ""))))
    if "\0" in path or not target.is_relative_to(base) or target == Path(base):
        message = f"{path} is not a file in the workspace {base}: the agent can read and write only there"
        raise RequestRefused(REFUSED, message)
    return target


SUB_AGENTS = ("task", "agent", "subagent", "sub-agent", "delegate", "codebase_investigator")
_MAIN_ARGUMENTS = (
    "command",
    "cmd",
    "file_path",
    "filePath",
    "path",
    "pattern",
    "query",
    "url",
    "prompt",
    "instructions",
)
_OUTPUT_KEYS = ("output", "stdout", "content", "formatted_output", "message")


@dataclass
class ToolUse:
    """One use of a tool, as far as it is known."""

    title: str = ""
    kind: str = ""
    names: set[str] = field(default_factory=set)
    """The names by which a user can forbid it, in lower case."""
    arguments: Data = field(default_factory=Data)
    printed: str = ""
    """The end of what its command printed, if the agent reports that while the command runs."""
    reported: bool = False
    denied: bool = False
    """Whether the agent asked before it used it, and was refused."""

    @property
    def text(self) -> str:
        """What it is and what it does: its main argument, else its title."""
        if self.arguments.objects("todos"):
            return describe_tool("todo", self.arguments)
        if sub_agent := next((name for name in sorted(self.names) if name in SUB_AGENT_TOOLS), ""):
            return describe_tool(sub_agent, {"command": self.main_argument or self.title})
        if not self.kind:
            return self.title or "a tool"
        return describe_tool(self.kind, {"command": self.main_argument or self.title})

    @property
    def main_argument(self) -> str:
        """The argument that says most; empty if none is known."""
        return self.arguments.text(*_MAIN_ARGUMENTS)


@dataclass
class UpdateReader:
    """Turns the updates of one turn into events.

    It reads messages without the SDK's models: some agents are ahead of its schema, and some behind.
    """

    emit: Callable[..., None]
    """Takes an event, and more keys for its line."""
    forbidden: frozenset[str] = frozenset()
    """Tools that the agent must not use, in lower case."""
    model: str = ""
    """The agent's model, if it says so."""
    is_history: bool = False
    """Whether the updates are the past of a conversation that is continued."""
    update_count: int = 0
    buffer: MessageBuffer = field(default_factory=MessageBuffer)
    meter: Meter = field(default_factory=Meter)
    whole_cost: bool = False
    """Whether the first cost is that of the whole conversation, whose earlier part is not known here."""
    earlier_cost: float = 0.0
    """US dollars that the conversation cost before this turn, if the agent reported them."""
    tools: dict[str, ToolUse] = field(default_factory=dict)
    thought: str = ""
    """The agent's thoughts that are not reported yet."""
    message_id: str = ""
    error_prefixes: tuple[str, ...] = ()
    """How the agent's own error messages begin. They look like answers of its model."""
    own_error: str = ""
    """The last message, if it is such an error."""
    has_failed: bool = False
    """Whether the agent reported a state in which its next message without an id is an error."""
    warning_prefixes: tuple[str, ...] = ()
    """How the agent's own warnings begin. They look like answers too, but have no id."""
    forbidden_use: str = ""
    """The forbidden tool that the agent used."""

    def update(self, update: Data) -> None:
        """Read one update of the session."""
        kind = update.text("sessionUpdate")
        self.update_count += 1
        if kind == "usage_update":
            self._report_cost(update.inner("cost"))
        elif self.is_history:
            return
        elif kind == "agent_message_chunk":
            self._add_chunk(update)
        elif kind == "agent_thought_chunk":
            self.thought = (self.thought + update.content_text("content"))[:TEXT_CHARS]
            self.emit(None)
        elif kind in ("tool_call", "tool_call_update"):
            self._tool_call(update)
        elif kind == "plan":
            todos = describe_todos(update.objects("entries"), "content", lambda one: one.text("status") == "completed")
            self.flush()
            self.emit(AgentEvent(EventKind.TOOL, one_line(f"todo: {todos}")))
        else:
            self._read_codex_state(update.inner("_meta", "codex"))
            self.emit(None)

    def flush(self) -> None:
        """Report the thoughts and messages so far."""
        thought, self.thought = limit_text(self.thought), ""
        if thought:
            self.emit(AgentEvent(EventKind.THINKING, thought))
        for event in self.buffer.flush():
            self.emit(event)

    def update_tool(self, call: Data) -> ToolUse:
        """The use of a tool, with what a message adds to it."""
        tool = self.tools.setdefault(call.text("toolCallId"), ToolUse())
        tool.title = one_line(call.text("title")) or tool.title
        tool.kind = one_line(call.text("kind")) or tool.kind
        tool.arguments = call.inner("rawInput") or tool.arguments
        title, meta = call.text("title"), call.inner("_meta")
        tool.printed = (tool.printed + meta.inner("terminal_output_delta").text("data"))[-TEXT_CHARS:]
        names = (title, title.split(" ")[0], call.text("name"), call.text("kind"), *_find_tool_names(meta))
        tool.names |= {name.lower().strip(":`") for name in names if name}
        return tool

    def report_use(self, tool: ToolUse) -> None:
        """Report the use of a tool, once."""
        if not tool.reported:
            tool.reported = True
            self.flush()
            self.buffer.last_message = ""
            self.emit(AgentEvent(EventKind.TOOL, tool.text))

    def is_allowed(self, tool: ToolUse) -> bool:
        """Whether the user did not forbid it."""
        return not tool.names & self.forbidden

    def report_total(self, results: Sequence[Data]) -> None:
        """Report what the turn used in all, as the answers to its prompts say.

        Ralph can compute the cost if the agent reports none and says how many tokens were cached: those cost a tenth.
        """
        usages: list[Data] = []
        models: dict[str, None] = {}
        for result in results:
            rows = result.inner("_meta", "quota").objects("model_usage")
            models |= dict.fromkeys(row.text("model") for row in rows)
            usages += _read_usages(result, rows)
        input_tokens, output_tokens = (sum(counts) for counts in zip(*map(_read_tokens, usages), strict=True))
        details = _describe_usage(usages, ", ".join(filter(None, models)) or self.model)
        if self.meter.total != Usage():
            details["has_no_price"] = True
        for event in self.meter.add_total(input_tokens, output_tokens):
            self.emit(event, **details)

    def _read_codex_state(self, state: Data) -> None:
        """Note a failure of Codex, which codex-acp reports as a state. Its message then comes as if it were an answer."""
        if status := state.inner("threadStatus").text("type"):
            self.has_failed = status == "systemError"
        error = state.inner("error")
        if error.get("willRetry") is True:
            reason = f"{error.text('message')} {error.text('additionalDetails')}"
            self.emit(AgentEvent(EventKind.RETRY, one_line(reason)))

    def _add_chunk(self, update: Data) -> None:
        text, message_id = update.content_text("content"), update.text("messageId")
        if text.startswith(_MODE_NOTICE):
            return
        if not message_id and text.startswith(self.warning_prefixes):
            self.flush()
            self.emit(AgentEvent(EventKind.WARNING, one_line(text.partition(": ")[2])))
            return
        is_error = text.startswith(self.error_prefixes) or (self.has_failed and not message_id)
        if message_id != self.message_id or is_error or self.thought:
            self.flush()
        if text.strip():
            self.own_error = text if is_error else ""
        self.message_id = message_id
        for event in self.buffer.add(text):
            self.emit(event)
        if usage := update.inner("_meta", "usage"):
            input_tokens, output_tokens = _read_tokens(usage)
            before = self.meter.total
            for event in self.meter.add_total(before.input_tokens + input_tokens, before.output_tokens + output_tokens):
                self.emit(event, **_describe_usage([usage], self.model))
        self.emit(None)

    def _tool_call(self, update: Data) -> None:
        tool, status = self.update_tool(update), update.text("status")
        if tool.main_argument or status in ("in_progress", "completed", "failed"):
            self.report_use(tool)
        if status not in ("completed", "failed"):
            self.emit(None)
            return
        self.tools.pop(update.text("toolCallId"), None)
        output = _read_output(update) or tool.printed
        is_image = output.startswith(IMAGE_NOTICE) or "view_image" in tool.names
        text = IMAGE if is_image else one_line(output)
        self.emit(AgentEvent(EventKind.TOOL_RESULT, text, is_error=status == "failed"))
        if status == "completed" and not tool.denied and not self.is_allowed(tool):
            self.forbidden_use = tool.text

    def _report_cost(self, cost: Data) -> None:
        """Report the cost of the conversation so far, if it is in US dollars."""
        total = cost.money("amount") if cost.text("currency") in ("USD", "") else None
        if total is None:
            return
        before = self.meter.total
        if self.is_history:
            self.earlier_cost, self.whole_cost = total, False
        elif total - self.earlier_cost > (before.cost or 0.0):
            more = {"whole_cost": True} if self.whole_cost else {}
            for event in self.meter.add_total(before.input_tokens, before.output_tokens, total - self.earlier_cost):
                self.emit(event, **more)
            self.whole_cost = False


def _find_tool_names(meta: object, depth: int = 3) -> Iterator[str]:
    """The names of a tool in an agent's extensions of the protocol."""
    if isinstance(meta, dict) and depth:
        yield Data(meta).text("toolName")
        for value in meta.values():
            yield from _find_tool_names(value, depth - 1)


_MODE_NOTICE = "[MODE_UPDATE] "
"""How Gemini CLI says in its first message which mode Ralph chose."""
_CACHED = ("cachedReadTokens", "cachedInputTokens")
_REASONING = ("thoughtTokens", "reasoningOutputTokens")
"""The names that agents have for tokens from a cache, and for those of thoughts."""


def _read_usages(result: Data, rows: Sequence[Data]) -> list[Data]:
    """What an answer to a prompt used: by model if that is more, because claude-agent-acp leaves side requests out of the sum."""
    usage = result.inner("usage") or result.inner("_meta", "quota", "token_count")
    by_model = [row.inner("token_count") for row in rows]
    if sum(sum(_read_tokens(one)) for one in by_model) > sum(_read_tokens(usage)):
        return by_model
    return [usage]


def _describe_usage(usages: Sequence[Data], model: str) -> dict[str, object]:
    """What a usage event says beside its tokens. Without the number of cached tokens, the cost cannot be computed."""
    details: dict[str, object] = {
        "model": model,
        "cached_tokens": sum(usage.count(*_CACHED) for usage in usages),
        "reasoning_tokens": sum(usage.count(*_REASONING) for usage in usages),
    }
    if not any(usage.number(name) is not None for usage in usages for name in _CACHED):
        details["has_no_price"] = True
    return details


def _read_tokens(usage: Data) -> tuple[int, int]:
    """Tokens in and out. Some agents count cached tokens and thoughts separately."""
    input_tokens = usage.count("inputTokens", "input_tokens")
    output_tokens = usage.count("outputTokens", "output_tokens")
    cached, thoughts = usage.count(*_CACHED, "cachedWriteTokens"), usage.count(*_REASONING)
    # What the total has beyond input and output shows what was counted separately.
    separate = usage.count("totalTokens") - input_tokens - output_tokens
    if separate >= cached:
        input_tokens += cached
        separate -= cached
    if separate >= thoughts:
        output_tokens += thoughts
    return input_tokens, output_tokens


def _read_output(update: Data) -> str:
    """The result of a tool: its text, the files that it changed, or what it printed."""
    parts = [part.content_text("content") or part.text("path") for part in update.objects("content")]
    text = "\n".join(part for part in parts if part)
    raw = update.get("rawOutput")
    if text or isinstance(raw, str):
        return text or str(raw)
    for key in _OUTPUT_KEYS:
        if output := Data.of(raw).content_text(key):
            return output
    return ""
