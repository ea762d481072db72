"""One turn with an agent by the Agent Client Protocol: the greeting, the conversation, the prompt, and what it asks us."""

import asyncio
import os
import re
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ralph import __version__
from ralph.agents.acp_events import SUB_AGENTS, UpdateReader
from ralph.agents.acp_program import LONGEST_LINE, AgentProgram, Trouble
from ralph.agents.acp_steering import AcpSteering
from ralph.agents.agent import EDITS, FULL_AUTO, PLAN, READ_ONLY
from ralph.agents.failures import failure_of
from ralph.agents.reader import well_done
from ralph.agents.stream_lines import Data, brief, unwrapped
from ralph.core.errors import RalphError
from ralph.core.stream import AgentEvent, Failure, Kind
from ralph.store.files import read_limited, write_atomic

NOT_FOUND, REFUSED = -32002, -32602


class Unfit(Exception):
    """A request that is not fulfilled, and the code of the protocol for it."""

    def __init__(self, code: int, told: str) -> None:
        super().__init__(told)
        self.code = code


def read_text(root: Path, path: str, first: int, lines: int | None) -> str:
    """The text of a file, from a line on (the first is 1), as many as asked for."""
    target = _inside(root, path)
    try:
        text = read_limited(target, LONGEST_LINE, follow=True).decode()
    except FileNotFoundError:
        raise Unfit(NOT_FOUND, f"Resource not found: {path} does not exist") from None
    except UnicodeDecodeError:
        raise Unfit(REFUSED, f"{path} is not UTF-8 text") from None
    except (OSError, RalphError) as error:
        raise Unfit(REFUSED, f"{path} cannot be read: {error}") from None
    if first <= 1 and lines is None:
        return text
    begin = max(0, first - 1)
    return "".join(text.splitlines(keepends=True)[begin : None if lines is None else begin + max(0, lines)])


def write_text(root: Path, path: str, content: str) -> None:
    """Replace a file as a whole, or make it and its directories; who may do what with it stays as it was."""
    target = _inside(root, path)
    parts = target.relative_to(os.path.realpath(root)).parts
    if ".git" in parts or parts[:2] == (".ralph", "runs"):
        raise Unfit(REFUSED, f"{path} is git's or Ralph's own: it is not written here")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        before = target.stat().st_mode & 0o7777 if target.exists() else None
        write_atomic(target, content.encode(errors="replace"), mode=0o666, durable=False)
        if before is not None:
            target.chmod(before)
    except (OSError, RalphError) as error:
        raise Unfit(REFUSED, f"{path} cannot be written: {error}") from None


def _inside(root: Path, path: str) -> Path:
    """The file itself, its links followed, which must be in the workspace."""
    base = os.path.realpath(root)
    target = Path(os.path.realpath(os.path.join(base, path.replace("\0", ""))))
    if "\0" in path or not target.is_relative_to(base) or target == Path(base):
        raise Unfit(REFUSED, f"{path} is no file in the workspace {base}: nothing else is read or written here")
    return target


VERSION = 1
"""Of the protocol."""
PATIENCE = 60.0
"""Seconds in which an agent must have greeted us."""
SILENCE = 1.0
"""Seconds without an update after which the past of a conversation has been told."""
FULL_ACCESS = ("full-access", "bypassPermissions", "yolo")
"""Modes in which an agent asks about nothing; without one, some refuse silently what nobody is asked about."""
MODES = {
    EDITS: ("acceptEdits", "auto_edit", "auto-edit", "autoEdit", "auto"),
    READ_ONLY: ("read-only", "readOnly", "ask", "approve", "default"),
    PLAN: ("plan", "architect"),
}
"""The names that agents give to the modes of the other levels of permissions, best first."""
ALLOWED_KINDS = {
    EDITS: frozenset(("read", "search", "think", "fetch", "edit", "delete", "move")),
    READ_ONLY: frozenset(("read", "search", "think", "fetch")),
    PLAN: frozenset(("read", "search", "think", "fetch", "switch_mode")),
}
"""The kinds of tools that an agent is allowed to use if it asks."""
ASKING = ("approve", "default")
"""Modes in which it asks, where it may not use all of its tools."""
COUNT_ANEW = ("@agentclientprotocol/claude-agent-acp",)
"""Agents whose money is that since they were started; of others it is that of the whole conversation."""
IN_WORDS = {
    "goose": ("Ran into this error", "Network error: ", "I've reached the maximum number of actions"),
    "Copilot": ("Error: ",),
}
"""How the words begin by which some agents tell of an error, as if it were an answer of their model."""
AUTH_REQUIRED, NO_SUCH_METHOD = -32000, -32601
STOPPED = {
    "max_tokens": "it reached the limit of its model's tokens",
    "max_turn_requests": "it reached its own limit of turns",
    "refusal": "its model refused to go on",
    "cancelled": "it was cancelled",
}


@dataclass(frozen=True)
class Asked:
    """What one turn asks of an agent, beside its prompt."""

    words: Sequence[str]
    """The agent's program and its arguments."""
    model: str = ""
    session: str = ""
    """The conversation to go on with; empty for a new one."""
    without_tools: Sequence[str] = ()
    patience: float = PATIENCE
    permissions: str = FULL_AUTO


class AcpTurn:
    """One turn of one agent. Its messages are the SDK's matter; what is in them is ours."""

    def __init__(self, asked: Asked, program: AgentProgram, tell: Callable[..., None]) -> None:
        from acp.connection import Connection

        self.asked = asked
        self.program = program
        self.tell = tell
        tools = [tool for name in asked.without_tools for tool in (SUB_AGENTS if name == "sub-agents" else (name,))]
        self.teller = UpdateReader(tell, frozenset(tool.lower() for tool in tools))
        self.root = Path.cwd()
        self.session = ""
        self.agent = Data()
        """What it said of itself when it greeted us."""
        self.steering: AcpSteering | None = None
        self.cancelled = False
        self.halted = asyncio.Event()
        """Whether it did what it may not."""
        self.connection = Connection(self._answer, program)

    @property
    def name(self) -> str:
        """What the agent calls itself."""
        return self.agent.inner("agentInfo").word("name")

    async def run(self, prompt: str) -> None:
        """Greet the agent, begin or go on with a conversation, and have it work on the prompt."""
        await self._greet()
        about = await self._begin()
        model = await self._settle(about)
        steering = AcpSteering(self.name, self.ask, self.session)
        self.steering = steering
        try:
            results = await steering.converse(prompt)
        finally:
            self.teller.flush()
        self.teller.total(results, model)
        self._refuse_failure(results[-1].word("stopReason"))
        self.tell(well_done(self.teller.speech.last_words))

    async def cancel(self) -> None:
        """Ask it to leave off."""
        self.cancelled = True
        if self.session:
            await self.connection.send_notification("session/cancel", {"sessionId": self.session})

    async def _greet(self) -> None:
        about = {"name": "ralph", "title": "Ralph", "version": __version__}
        can = {"fs": {"readTextFile": False, "writeTextFile": True}, "terminal": False}
        asked = self.ask("initialize", protocolVersion=VERSION, clientCapabilities=can, clientInfo=about)
        words = " ".join(self.asked.words)
        todo = f"`{words}` must be a command that speaks the Agent Client Protocol on its standard input and output"
        try:
            self.agent = await asyncio.wait_for(asked, self.asked.patience)
        except TimeoutError:
            printed = f"; it printed: {self.program.strange}" if self.program.strange else ""
            told = f"it did not answer the greeting within {self.asked.patience:g} seconds{printed}; {todo}"
            raise Trouble(told, Failure.ACCESS) from None
        except Trouble as trouble:
            if self.cancelled:
                raise
            kind = Failure.ACCESS if trouble.failure in (None, Failure.AGENT) else trouble.failure
            raise Trouble(f"it does not begin to work: {trouble}; {todo}", kind) from None
        if (version := self.agent.get("protocolVersion")) != VERSION:
            told = f"it speaks version {version!r} of the protocol, and Ralph version {VERSION}"
            raise Trouble(f"{told}: take another version of it, or of Ralph", Failure.ACCESS)
        self.teller.complaints = IN_WORDS.get(self.name, ())
        self.tell(None)

    async def _begin(self) -> Data:
        """A new conversation, or the one that is gone on with; what the agent tells of it."""
        can = self.agent.inner("agentCapabilities")
        place: dict[str, Any] = {"cwd": str(self.root), "mcpServers": []}
        ways = [
            *(["session/load"] if can.get("loadSession") is True else []),
            *(["session/resume"] if isinstance(can.inner("sessionCapabilities").get("resume"), dict) else []),
        ]
        if self.asked.session:
            self.session = self.asked.session
            about = await self._go_on(ways, place)
        else:
            about = await self._signed_in("session/new", place)
            self.session = about.word("sessionId")
        if not self.session:
            raise Trouble("it began a conversation and did not name it")
        if ways:
            self.tell(AgentEvent(Kind.SESSION, session=self.session))
        return about

    async def _go_on(self, ways: list[str], place: dict[str, Any]) -> Data:
        """Go on with a conversation; one that is loaded is told again, by some only after they have answered."""
        if self.name == "gemini-cli":
            # It loses a conversation that is loaded in the minute in which it was begun.
            await asyncio.sleep(60.5 - time.time() % 60)
        self.teller.history = True
        self.teller.whole_cost = self.name not in COUNT_ANEW
        for method in ways:
            try:
                about = await self._signed_in(method, {"sessionId": self.session, **place})
            except Trouble as trouble:
                if trouble.code != NO_SUCH_METHOD:
                    raise
                continue
            heard = -1
            while heard != self.teller.heard:
                heard = self.teller.heard
                await asyncio.sleep(SILENCE)
            self.teller.history = False
            return about
        raise Trouble("it cannot go on with a conversation", Failure.AGENT)

    async def _signed_in(self, method: str, params: dict[str, Any]) -> Data:
        """The answer to what it may have to be signed in for; that it does by a key in the environment, if there is one."""
        try:
            return await self.ask(method, **params)
        except Trouble as trouble:
            ways = [one for one in self.agent.objects("authMethods") if _key_for(one)]
            if trouble.code != AUTH_REQUIRED or not ways:
                raise
        await self.ask("authenticate", methodId=ways[0].word("id"))
        return await self.ask(method, **params)

    async def _settle(self, about: Data) -> str:
        """Choose mode and model; the model that it uses then, where that is known."""
        modes, models, wanted = _choices(about, "mode"), _choices(about, "model"), self.asked.model
        mode = self._mode(list(modes))
        if mode:
            try:
                await self._set(about, "mode", mode)
            except Trouble as trouble:
                if self.asked.permissions != FULL_AUTO:
                    raise
                # It stays in its own: it asks and is answered, or does not ask and is found out.
                sys.stderr.write(f"ralph: it refused its mode {mode}: {trouble}\n")
        if not wanted:
            return about.inner("models").word("currentModelId") or _option(about, "model").word("currentValue")
        if not models:
            told = "it lets nobody choose its model by the protocol; give it as an argument of its own program instead"
            raise Trouble(told, Failure.ACCESS)
        found = [key for key, name in models.items() if wanted in (key, name)]
        if not found:
            raise Trouble(f"it has no model {wanted!r}; it has {', '.join(list(models)[:30])}", Failure.ACCESS)
        await self._set(about, "model", found[0])
        return found[0]

    def _mode(self, known: list[str]) -> str:
        """The mode for the permissions of the turn; empty if it stays in its own."""
        level = self.asked.permissions
        if level == FULL_AUTO:
            wanted = ASKING if self.teller.forbidden else FULL_ACCESS
            return next((mode for mode in wanted if mode in known), "")
        found = next((mode for mode in MODES[level] if mode in known), "")
        if not found:
            told = f"it has no mode for `permissions: {level}`; its modes are {', '.join(known) or 'not told'}"
            raise Trouble(f"{told}. Leave `permissions` out, or take another agent", Failure.ACCESS)
        return found

    def _may_use(self, kind: str) -> bool:
        """Whether the permissions of the turn allow a kind of tool."""
        return self.asked.permissions == FULL_AUTO or kind in ALLOWED_KINDS[self.asked.permissions]

    async def _set(self, about: Data, what: str, value: str) -> None:
        """Set the mode or the model, by its own method or as an option of the conversation."""
        if about.inner(f"{what}s"):
            await self.ask(f"session/set_{what}", sessionId=self.session, **{f"{what}Id": value})
        else:
            key = _option(about, what).word("id")
            await self.ask("session/set_config_option", sessionId=self.session, configId=key, value=value)

    def _refuse_failure(self, reason: str) -> None:
        """Only a turn that the agent has ended by itself, and not with an error in words, has gone well."""
        if self.teller.trespass:
            raise Trouble(f"it used a tool that it may not use: {self.teller.trespass}", Failure.AGENT)
        if reason != "end_turn":
            raise Trouble(STOPPED.get(reason) or f"it stopped: {brief(reason) or 'it does not say why'}", Failure.AGENT)
        if self.teller.complaint:
            # What follows an empty line is advice for people at a prompt.
            raise self._refusal(None, self.teller.complaint.partition("\n\n")[0], None)

    async def ask(self, method: str, **params: object) -> Data:
        """The answer to a request; Trouble where there is none."""
        from acp.exceptions import RequestError

        try:
            return Data.of(await self.connection.send_request(method, params))
        except RequestError as error:
            raise self._refusal(error.code, str(error), error.data) from None
        except (ConnectionError, OSError):
            failure, fate = await self.program.fate()
            raise (Trouble("it was ended") if self.cancelled else Trouble(fate, failure)) from None

    def _refusal(self, code: object, told: str, data: object) -> Trouble:
        """What an error of the agent says, with what a person can do where only a person can."""
        status = code if isinstance(code, int) and 400 <= code < 600 else None
        told = unwrapped(_details(told, data))
        kind = Failure.ACCESS if code == AUTH_REQUIRED else failure_of(told, status)
        ways = [_way(one) for one in self.agent.objects("authMethods")]
        if kind is Failure.ACCESS and ways:
            told = f"{told}; it offers these ways to sign in: {'; '.join(ways)}"
        return Trouble(told, kind, code)

    async def _answer(self, method: str, params: object, is_notification: bool) -> object:
        """What the agent tells or asks us."""
        from acp.exceptions import RequestError

        asked = Data.of(params)
        try:
            match method:
                case "session/update":
                    self._update(asked)
                    return None
                case "session/request_permission":
                    return self._permission(asked)
                case "fs/read_text_file":
                    lines = asked.count("limit") if asked.get("limit") is not None else None
                    return {"content": read_text(self.root, asked.word("path"), asked.count("line"), lines)}
                case "fs/write_text_file":
                    if not self._may_use("edit"):
                        raise Unfit(REFUSED, f"this turn has the permissions {self.asked.permissions}")
                    write_text(self.root, asked.word("path"), asked.word("content"))
                    return {}
        except Unfit as unfit:
            self.tell(AgentEvent(Kind.DENIED, brief(f"{method}: {unfit}")))
            raise RequestError(unfit.code, str(unfit)) from None
        raise RequestError.method_not_found(str(method))

    def _update(self, params: Data) -> None:
        """Sub-agents have sessions of their own; only what is said in ours is told."""
        if params.word("sessionId") in (self.session, ""):
            self.teller.update(params.inner("update"))
            if self.steering:
                self.steering.update(params.inner("update"))
            if self.teller.trespass:
                self.halted.set()

    def _permission(self, asked: Data) -> object:
        """Whatever it wants, once, except for forbidden tools and what the permissions of the turn do not allow."""
        tool = self.teller.tool(asked.inner("toolCall"))
        self.teller.use(tool)
        may = self.teller.may(tool) and self._may_use(tool.kind)
        wanted = ("allow_once", "allow_always") if may else ("reject_once", "reject_always")
        options = {one.word("kind"): one.word("optionId") for one in reversed(asked.objects("options"))}
        choice = next((options[kind] for kind in wanted if kind in options), "")
        if not may or not choice:
            tool.denied = True
            self.tell(AgentEvent(Kind.DENIED, tool.text))
        return {"outcome": {"outcome": "selected", "optionId": choice} if choice else {"outcome": "cancelled"}}


def _choices(about: Data, what: str) -> dict[str, str]:
    """The modes or models of a conversation, with their names; those of an option may be in groups."""
    key = {"mode": "id", "model": "modelId"}[what]
    own = about.inner(f"{what}s").objects(f"available{what.title()}s")
    if own:
        return {one.word(key): one.word("name") for one in own}
    listed = _option(about, what).objects("options")
    flat = [choice for one in listed for choice in (one.objects("options") or [one])]
    return {one.word("value"): one.word("name") for one in flat}


def _option(about: Data, category: str) -> Data:
    """The option of a conversation that is its mode, or its model."""
    return next((one for one in about.objects("configOptions") if one.word("category") == category), Data())


def _key_for(method: Data) -> bool:
    """Whether the environment has what a way to sign in wants; its variables are named in one place or another."""
    named = [one.word("name") for one in method.objects("vars") if one.get("optional") is not True]
    text = f"{method.word('description')} {re.sub(r'[^a-zA-Z0-9]', '_', method.word('id')).upper()}"
    named = named or re.findall(r"\b[A-Z][A-Z0-9_]*_(?:KEY|TOKEN)\b", text)[:1]
    return bool(named) and all(os.environ.get(name) for name in named)


def _way(method: Data) -> str:
    about = brief(method.word("description"))
    return brief(method.word("name") or method.word("id")) + (f" ({about})" if about else "")


def _details(told: str, data: object) -> str:
    """An error with what was added to it."""
    added = Data.of(data)
    more = data if isinstance(data, str) else added.word("details", "message", "error")
    more = more or added.inner("error").word("message")
    if not more or more in told:
        return told
    return more if told.lower() in ("internal error", "error", "") else f"{told}: {more}"
