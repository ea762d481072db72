"""Codex: how it is started and what its stream says. Measured with 0.166.0."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ralph.agents.adapter import Adapter
from ralph.agents.agent import EDITS, FULL_AUTO, READ_ONLY, Abilities, Call
from ralph.agents.hook_config import hook_command, lay, own_place, short_hash
from ralph.agents.reader import Meter, StreamReader
from ralph.agents.stream_lines import Data, parse
from ralph.core.errors import StorageError
from ralph.core.limits import Usage
from ralph.core.stream import AgentEvent

_PATIENCE = 10.0
_GREETING = (
    {"id": 0, "method": "initialize", "params": {"clientInfo": {"name": "ralph", "title": "Ralph", "version": "1"}}},
    {"method": "initialized"},
)


def hook_settings() -> tuple[str, ...]:
    """The hooks as settings of its command line."""
    return (
        f'hooks.PostToolUse=[{{matcher=".*",hooks=[{_hook("PostToolUse")}]}}]',
        f"hooks.Stop=[{{hooks=[{_hook('Stop')}]}}]",
    )


def _hook(event: str) -> str:
    return f'{{type="command",command={json.dumps(hook_command("codex", event))},timeout=10}}'


def trust(program: str, environment: Mapping[str, str]) -> str:
    """The setting by which the hooks are trusted, as this program wants it; empty where it does not tell."""
    found = shutil.which(program, path=environment.get("PATH"))
    if not found:
        return ""
    real = Path(found).resolve()
    stand = real.stat()
    about = (str(real), stand.st_ino, stand.st_ctime_ns, hook_settings())
    kept = own_place(environment, "codex-hooks", short_hash(repr(about)))
    try:
        return kept.read_text()
    except OSError:
        told = _asked(found, environment)
    if told:
        with contextlib.suppress(OSError, StorageError):
            lay(kept, told)
    return told


def _asked(program: str, environment: Mapping[str, str]) -> str:
    """What its server says of the hooks, in a home that is not the user's."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        settings = (part for one in (*hook_settings(), "features.plugins=false") for part in ("-c", one))
        server = subprocess.Popen(
            [program, *settings, "app-server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**environment, "CODEX_HOME": home},
            cwd=home,
            start_new_session=True,
        )
        timer = threading.Timer(_PATIENCE, os.killpg, (server.pid, signal.SIGKILL))
        timer.start()
        try:
            return _answer(server, home)
        except OSError:
            return ""
        finally:
            timer.cancel()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGKILL)
            server.communicate()


def _answer(server: "subprocess.Popen[bytes]", home: str) -> str:
    assert server.stdin and server.stdout
    for message in (*_GREETING, {"id": 1, "method": "hooks/list", "params": {"cwds": [home]}}):
        server.stdin.write(json.dumps(message).encode() + b"\n")
    server.stdin.flush()
    for line in server.stdout:
        answer = parse(line)
        if answer.get("id") == 1:
            hooks = [hook for place in answer.inner("result").objects("data") for hook in place.objects("hooks")]
            own = [hook for hook in hooks if hook.word("source") == "sessionFlags"]
            ours = {hook.word("key"): hook.word("currentHash") for hook in own}
            known = len(ours) == len(hook_settings()) and all(ours.values())
            pairs = (f"{json.dumps(key)}={{trusted_hash={json.dumps(hash_)}}}" for key, hash_ in ours.items())
            return f"hooks.state={{{','.join(pairs)}}}" if known else ""
    return ""


_FEATURES = {"sub-agents": "multi_agent"}
_USES = ("command_execution", "file_change", "mcp_tool_call", "web_search", "collab_tool_call")
_MODES = {
    FULL_AUTO: ("--dangerously-bypass-approvals-and-sandbox",),
    EDITS: ("--sandbox", "workspace-write"),
    READ_ONLY: ("--sandbox", "read-only"),
}


class Codex(Adapter):
    """Codex of OpenAI."""

    name = "codex"
    install = "npm install -g @openai/codex"
    advice = "run `codex login`, or set CODEX_API_KEY"
    abilities = Abilities(resume=True, session=True, hooks=True, tokens=True, sandbox=True, tool_limits=True)
    keys = ("CODEX_API_KEY", "CODEX_ACCESS_TOKEN", "OPENAI_API_KEY")
    settings = ("CODEX_HOME", ".codex")
    credentials = ("auth.json",)
    permission_modes = _MODES
    permission_options = (
        *("--dangerously-bypass-approvals-and-sandbox", "--yolo", "--full-auto", "--sandbox", "-s"),
        *("--ask-for-approval", "-a", "sandbox_mode", "approval_policy"),
    )
    """The last two are settings, as in `-c sandbox_mode="read-only"`."""

    def command(self, call: Call) -> tuple[str, ...]:
        """`exec` with the prompt from standard input. Tools are switched off as features."""
        without = [_FEATURES.get(name, name) for name in call.without_tools]
        return (
            self.program,
            *("exec", "--json", *self.permission_words(call), "--skip-git-repo-check"),
            *("-c", "check_for_update_on_startup=false"),
            # A login shell sets PATH anew, and `ralph` is gone from it. Versions that do not know the setting ignore it.
            *("-c", "allow_login_shell=false"),
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
