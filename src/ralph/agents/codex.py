"""Codex: how it is started and what its stream says. Measured with 0.166.0."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from ralph.agents.adapter import Adapter
from ralph.agents.agent import EDITS, FULL_AUTO, READ_ONLY, Abilities, Call
from ralph.agents.hook_config import hook_command, lay, own_place, short_hash
from ralph.agents.reader import Meter, StreamReader
from ralph.agents.stream_lines import Data, brief, parse, todo_text
from ralph.core.errors import StorageError
from ralph.core.limits import Usage
from ralph.core.stream import AgentEvent, Kind

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
    keys = ("CODEX_API_KEY", "CODEX_ACCESS_TOKEN")
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

    def sign_in(self, environment: Mapping[str, str], home: Path) -> tuple[bool | None, str]:
        """As codex does it: a provider of the user's own by the variable that it names, else `codex login` or a key.

        The built-in provider does not send OPENAI_API_KEY (`codex login status`: not logged in).
        """
        variable, usual = self.settings
        config = Path(environment.get(variable) or home / usual) / "config.toml"
        try:
            settings = Data.of(tomllib.loads(config.read_text(encoding="utf-8")))
        except (OSError, ValueError):
            settings = Data()
        name = settings.word("model_provider")
        provider = settings.inner("model_providers", name)
        if provider and provider.get("requires_openai_auth") is not True:
            key = provider.word("env_key")
            if not key:
                return None, f"the provider {name} in {config}: whether it needs a key is not looked at"
            if environment.get(key):
                return True, key
            return False, f"set {key}, which the provider {name} in {config} needs"
        known, how = super().sign_in(environment, home)
        if known is False and environment.get("OPENAI_API_KEY"):
            how = f"{how}; OPENAI_API_KEY alone is not used: `printenv OPENAI_API_KEY | codex login --with-api-key`"
        return known, how

    def hears(self, call: Call) -> bool:
        """By hooks that it trusts, unless the user's arguments are in their place."""
        return super().hears(call) and not any(word.startswith("hooks.") for word in call.arguments)

    def reader(self, call: Call, before: Usage) -> "CodexReader":
        """Who reads a turn. The stream names no model, and its usage is that of the whole conversation.

        `before` is what the conversation had used before this turn, as its readers told.
        """
        return CodexReader(self.prices, self.model_of(call), meter=Meter(before))

    def model_of(self, call: Call) -> str:
        """As in any agent; its arguments can also set it as `-c model=NAME`."""
        return call.model or setting_in(call.arguments, "model") or super().model_of(call)

    def configured_model(self, call: Call, environment: Mapping[str, str]) -> str:
        """What `config.toml` says, in the profile that is chosen or for all; empty if a project's own file differs.

        Codex reads `.codex/config.toml` of a project only if the user trusts it, which is not looked at here.
        """
        asked = setting_in(call.arguments, "profile") or profile_in(call.arguments)
        models = {
            model
            for place in (self.settings_home(environment), call.workspace / ".codex")
            if (model := model_in_config(place, asked))
        }
        return models.pop() if len(models) == 1 else ""


def setting_in(arguments: Sequence[str], key: str) -> str:
    """What `-c KEY=VALUE` in the user's own arguments sets a key to."""
    for word, following in pairwise((*arguments, "")):
        text = following if word in ("-c", "--config") else word.removeprefix("--config=")
        name, equals, value = text.partition("=")
        if equals and name.strip() == key:
            return value.strip().strip("\"'")
    return ""


def profile_in(arguments: Sequence[str]) -> str:
    """The profile that the user's own arguments choose."""
    pairs = pairwise((*arguments, ""))
    return next((following for word, following in pairs if word in ("-p", "--profile")), "")


def model_in_config(place: Path, profile: str) -> str:
    """The model in the `config.toml` of a directory; empty if it names none, or cannot be read."""
    try:
        settings = Data.of(tomllib.loads((place / "config.toml").read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return ""
    chosen = profile or settings.word("profile")
    return settings.inner("profiles", chosen).word("model") or settings.word("model")


@dataclass
class CodexReader(StreamReader):
    """Reads one turn of Codex."""

    def events(self, data: Data) -> Iterator[AgentEvent]:
        """What a line tells."""
        item = data.inner("item")
        match data.get("type"):
            case "thread.started":
                yield from self.begin(data.word("thread_id"))
            case "item.started" | "item.updated" if item.word("type") == "todo_list":
                todo = todo_text(item.objects("items"), "text", lambda one: one.get("completed") is True)
                yield AgentEvent(Kind.TOOL, brief(f"todo: {todo}"))
            case "item.started":
                yield from self._use(item)
            case "item.completed":
                yield from self._item(item)
            case "turn.completed":
                usage = data.inner("usage")
                cached = usage.count("cached_input_tokens")
                yield from self.total(
                    {self.model: (usage.count("input_tokens"), cached, usage.count("output_tokens"))},
                    reasoning=usage.count("reasoning_output_tokens"),
                )
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
        """Something that is done; an item that is an error is only a warning."""
        if item.word("type") == "agent_message":
            self.speech.last_words = ""
            yield from self.say(item.word("text"))
        elif item.word("type") == "reasoning":
            yield from self.think(item.word("text"))
        elif item.word("type") == "error":
            yield from self.warn(item.word("message"))
        elif item.word("type") in _USES:
            yield from self._use(item)
            status = item.word("status")
            output = item.word("aggregated_output") or item.inner("result").said("content")
            text, failed = output or item.inner("error").word("message") or status, status in ("failed", "declined")
            yield from self.used(item.word("id"), text, failed=failed, denied=status == "declined")

    def _use(self, item: Data) -> Iterator[AgentEvent]:
        key = item.word("id")
        if item.word("type") in _USES and key not in self.tools:
            yield from self.use(key, *_tool(item), is_sub_agent=item.word("type") == "collab_tool_call")


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
