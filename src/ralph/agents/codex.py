"""Codex: how it is started and what its stream says. Measured with 0.169.0."""

import base64
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from time import time

from ralph.agents.adapter import (
    EDITS,
    FULL_AUTO,
    READ_ONLY,
    Abilities,
    Adapter,
    Call,
    OwnMode,
    cache_path,
    hook_command,
    option_values,
    options_in,
    short_hash,
    write_if_changed,
)
from ralph.agents.failures import plausible_reset
from ralph.agents.reader import Meter, StreamReader
from ralph.agents.stream_lines import Data, describe_todos, one_line, parse_line, read_settings
from ralph.core.errors import StorageError
from ralph.core.limits import Usage
from ralph.core.turns import AgentEvent, EventKind

_APP_SERVER_SECONDS = 10.0
"""How long the app server may take to list the hooks."""
_HANDSHAKE = (
    {"id": 0, "method": "initialize", "params": {"clientInfo": {"name": "ralph", "title": "Ralph", "version": "1"}}},
    {"method": "initialized"},
)


def hook_settings() -> tuple[str, ...]:
    """The hooks, as settings for the command line."""
    return (
        f'hooks.PostToolUse=[{{matcher=".*",hooks=[{_hook_table("PostToolUse")}]}}]',
        f"hooks.Stop=[{{hooks=[{_hook_table('Stop')}]}}]",
    )


def _hook_table(event: str) -> str:
    return f'{{type="command",command={json.dumps(hook_command("codex", event))},timeout=10}}'


def find_hook_trust(program: str, environment: Mapping[str, str]) -> str:
    """The setting that makes this version of Codex trust our hooks; empty if Codex does not say how.

    Codex runs a hook only if its settings hold the hash that Codex computes for it. Only its app server reports that hash.
    """
    found = shutil.which(program, path=environment.get("PATH"))
    if not found:
        return ""
    real = Path(found).resolve()
    stat = real.stat()
    version = (str(real), stat.st_ino, stat.st_ctime_ns, hook_settings())
    cache = cache_path(environment, "codex-hooks", short_hash(repr(version)))
    try:
        return cache.read_text()
    except OSError:
        setting = _ask_app_server(found, environment)
    if setting:
        with contextlib.suppress(OSError, StorageError):
            write_if_changed(cache, setting)
    return setting


def _config_options(settings: Iterable[str]) -> list[str]:
    options = []
    for setting in settings:
        options += ["-c", setting]
    return options


def _ask_app_server(program: str, environment: Mapping[str, str]) -> str:
    """Ask its app server for the hashes of our hooks, in a temporary home."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        settings = _config_options((*hook_settings(), "features.plugins=false"))
        server = subprocess.Popen(
            [program, *settings, "app-server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**environment, "CODEX_HOME": home},
            cwd=home,
            start_new_session=True,
        )
        timer = threading.Timer(_APP_SERVER_SECONDS, os.killpg, (server.pid, signal.SIGKILL))
        timer.start()
        try:
            return _read_hook_hashes(server, home)
        except OSError:
            return ""
        finally:
            timer.cancel()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGKILL)
            server.communicate()


def _read_hook_hashes(server: "subprocess.Popen[bytes]", home: str) -> str:
    assert server.stdin and server.stdout
    for message in (*_HANDSHAKE, {"id": 1, "method": "hooks/list", "params": {"cwds": [home]}}):
        server.stdin.write(json.dumps(message).encode() + b"\n")
    server.stdin.flush()
    for line in server.stdout:
        answer = parse_line(line)
        if answer.get("id") == 1:
            return _format_trust(answer.inner("result").objects("data"))
    return ""


def _format_trust(directories: Iterable[Data]) -> str:
    """The trust setting for the hooks that came from our command line; empty if one of them has no hash."""
    hashes: dict[str, str] = {}
    for directory in directories:
        for hook in directory.objects("hooks"):
            if hook.text("source") == "sessionFlags":
                hashes[hook.text("key")] = hook.text("currentHash")
    if len(hashes) != len(hook_settings()) or not all(hashes.values()):
        return ""
    pairs = (f"{json.dumps(key)}={{trusted_hash={json.dumps(value)}}}" for key, value in hashes.items())
    return f"hooks.state={{{','.join(pairs)}}}"


_OWN_WAIT_SECONDS = 10.0
"""Without a time from its provider, Codex waits less than this between two requests."""
_RETRY_LOG = re.compile(r"(\d{4}-[\d-]+T[\d:.]+Z) +WARN [^(]*\(\d+/\d+ in ([\d.]+)s\)")
"""A wait before a retry in its log. Waits below a second, which it names in milliseconds, do not matter."""
_RECORD_TAIL = 256 * 1024
_MAX_RETRIES = {"request_max_retries": 1, "stream_max_retries": 2}
"""How often it repeats a request, and how often it does that again. Its own limits are four and five."""
_PLAIN_KEY = re.compile(r"[\w-]+")
_FEATURES = {"sub-agents": "multi_agent"}
_TOOL_ITEMS = ("command_execution", "file_change", "mcp_tool_call", "web_search", "collab_tool_call")
_MODES = {
    FULL_AUTO: ("--dangerously-bypass-approvals-and-sandbox",),
    EDITS: ("--sandbox", "workspace-write"),
    READ_ONLY: ("--sandbox", "read-only"),
}


_SANDBOX_OPTIONS = (
    *("--dangerously-bypass-approvals-and-sandbox", "--yolo", "--full-auto", "--sandbox", "-s"),
    *("sandbox_mode", "default_permissions"),
)
_OWN_LEVELS = {
    "read-only": READ_ONLY,
    ":read-only": READ_ONLY,
    "workspace-write": EDITS,
    ":workspace": EDITS,
    **dict.fromkeys(("untrusted", "on-request", "on-failure"), EDITS),
}
"""Its sandboxes, its own profiles of permissions, and its policies for approvals."""


class Codex(Adapter):
    """Codex, by OpenAI."""

    name = "codex"
    install = "npm install -g @openai/codex"
    advice = "run `codex login`, or set CODEX_API_KEY"
    abilities = Abilities(
        resume=True, session=True, hooks=True, tokens=True, quota=True, sandbox=True, tool_limits=True
    )
    keys = ("CODEX_API_KEY", "CODEX_ACCESS_TOKEN")
    settings = ("CODEX_HOME", ".codex")
    instruction_files = ("AGENTS.md",)
    permission_modes = _MODES
    levels_with_ralph = (FULL_AUTO, EDITS)
    permission_options = (*_SANDBOX_OPTIONS, "--ask-for-approval", "-a", "approval_policy")
    """Some of them are settings, as in `-c sandbox_mode="read-only"`."""
    reading_arguments = ("--sandbox=read-only", "-s=read-only", "sandbox_mode=read-only")

    def command(self, call: Call) -> tuple[str, ...]:
        """`exec` with the prompt from standard input. Codex switches tools off as features."""
        settings = [f"features.{_FEATURES.get(name, name)}=false" for name in call.without_tools]
        if not self.chooses_mode(call.arguments):
            # `exec` never asks, and 0.169 refuses to start with the policy `untrusted`, which the user's settings may have.
            settings.append('approval_policy="never"')
        return (
            self.program,
            *("exec", "--json", *self.permission_arguments(call), "--skip-git-repo-check"),
            *("-c", "check_for_update_on_startup=false"),
            # A login shell resets PATH, and `ralph` is no longer on it. Versions that do not know the setting ignore it.
            *("-c", "allow_login_shell=false"),
            *_config_options((*settings, *self._limit_retries(call))),
            *(("-m", call.model) if call.model else ()),
            *(self.hook_arguments if self.can_receive_messages(call) else ()),
            *call.arguments,
            *(("resume", call.session) if call.session else ()),
            "-",
        )

    def permission_arguments(self, call: Call) -> tuple[str, ...]:
        """As for any agent. A user who passes only a policy for approvals gets the sandbox of users who are asked.

        Without one, Codex changes nothing in a project that it does not trust.
        """
        chosen = options_in(call.arguments)
        if not self.chooses_mode(call.arguments) or not chosen.isdisjoint(_SANDBOX_OPTIONS):
            return super().permission_arguments(call)
        layers = read_layers(self.settings_home({**os.environ, **self.variables}), call.arguments)
        has_sandbox = any(find_setting(layers, key)[0] for key in ("sandbox_mode", "default_permissions"))
        return () if has_sandbox else _MODES[EDITS]

    def _limit_retries(self, call: Call) -> Iterator[str]:
        """Settings that limit its requests to a provider that fails to six, not thirty, unless the user's settings do.

        Codex refuses such settings for its built-in providers.
        """
        layers = read_layers(self.settings_home({**os.environ, **self.variables}), call.arguments)
        name = setting_in(call.arguments, "model_provider") or find_setting(layers, "model_provider")[0]
        provider = Data()
        for _, settings in reversed(layers):
            provider = Data({**provider, **settings.inner("model_providers", name)})
        if not provider or not _PLAIN_KEY.fullmatch(name):
            return
        for key, most in _MAX_RETRIES.items():
            option = f"model_providers.{name}.{key}"
            if key not in provider and not setting_in(call.arguments, option):
                yield f"{option}={most}"

    def environment(self, call: Call) -> Mapping[str, str]:
        """Make it log how long it waits before a retry. Only its log on standard error reports that."""
        variables = move_temporary_directory(self.settings_home({**os.environ, **self.variables}))
        if not os.environ.get("RUST_LOG"):
            variables["RUST_LOG"] = "error,codex_core::responses_retry=warn"
        return variables

    def find_wait_end(self, stderr: str) -> float | None:
        """The end of its last wait, as `2026-11-17T14:26:53.8Z  WARN ... retrying sampling request (1/5 in 24.9s)`."""
        for when, seconds in reversed(_RETRY_LOG.findall(stderr)):
            with contextlib.suppress(ValueError):
                return plausible_reset(datetime.fromisoformat(when).timestamp() + float(seconds), time())
        return None

    def install_hooks(self, environment: Mapping[str, str]) -> str:
        """Our hooks are settings on the command line; Codex must be made to trust them."""
        trust = find_hook_trust(self.program, environment)
        if not trust:
            return "it does not say how to trust a hook (hooks/list)"
        self.hook_arguments = tuple(_config_options((*hook_settings(), trust)))
        return ""

    def sign_in(self, environment: Mapping[str, str], home: Path) -> tuple[bool | None, str]:
        """The same as Codex itself: a custom provider by the variable that it names, else `codex login` or a key.

        The built-in provider does not send OPENAI_API_KEY (`codex login status`: not logged in).
        """
        config = self.settings_in(environment, home) / "config.toml"
        settings = read_config(config)
        name = settings.text("model_provider")
        provider = settings.inner("model_providers", name)
        if provider and provider.get("requires_openai_auth") is not True:
            key = provider.text("env_key")
            if not key:
                return None, f"{config} sets the provider {name}; Ralph does not check whether it needs a key"
            if environment.get(key):
                return True, key
            return False, f"set {key}, which the provider {name} in {config} needs"
        signed_in, detail = super().sign_in(environment, home)
        if signed_in is False:
            signed_in, detail = self._read_login(config.with_name("auth.json"))
        if signed_in is False and environment.get("OPENAI_API_KEY"):
            detail = (
                f"{detail}; OPENAI_API_KEY alone is not used: `printenv OPENAI_API_KEY | codex login --with-api-key`"
            )
        return signed_in, detail

    def _read_login(self, path: Path) -> tuple[bool, str]:
        """Whether the file of `codex login` has a key, or the tokens of an account. Codex refuses tokens that it cannot read."""
        if not path.exists():
            return False, self.advice
        login = read_settings(path)
        tokens = login.inner("tokens")
        names = ("id_token", "access_token", "refresh_token")
        if login.text("OPENAI_API_KEY") or (all(map(tokens.text, names)) and _is_token(tokens.text("id_token"))):
            return True, str(path)
        return False, f"{path} has neither a key nor the tokens of an account: {self.advice}"

    def find_own_mode(self, call: Call, environment: Mapping[str, str]) -> OwnMode | None:
        """The sandbox or the profile of permissions in `config.toml`, or a policy that asks. The project's file comes first.

        In `exec`, codex never asks the user: its policy then means its usual sandbox, in which it can change the workspace.
        """
        for directory in (call.workspace / ".codex", self.settings_home(environment)):
            layers = read_layers(directory, call.arguments)
            for key in ("sandbox_mode", "default_permissions", "approval_policy"):
                mode, path = find_setting(layers, key)
                if mode in _OWN_LEVELS:
                    return OwnMode(_OWN_LEVELS[mode], f'{key} = "{mode}"', path, prevents_acp=mode == "untrusted")
                if mode and key != "approval_policy":
                    break
        return None

    def can_receive_messages(self, call: Call) -> bool:
        """Through hooks that it trusts, unless the user's arguments set other hooks."""
        return super().can_receive_messages(call) and not any(
            argument.startswith("hooks.") for argument in call.arguments
        )

    def reader(self, call: Call, before: Usage) -> "CodexReader":
        """The stream names no model, and its usage is that of the whole conversation."""
        sessions = self.settings_home({**os.environ, **self.variables}) / "sessions"
        return CodexReader(self.prices, self.model_of(call), meter=Meter(before), sessions=sessions)

    def model_of(self, call: Call) -> str:
        """As in any agent. Its arguments can also set the model as `-c model=NAME`."""
        return call.model or setting_in(call.arguments, "model") or super().model_of(call)

    def configured_model(self, call: Call, environment: Mapping[str, str]) -> str:
        """The model in `config.toml`, of the chosen profile or of all; empty if a project's own file names another.

        Codex reads `.codex/config.toml` of a project only if the user trusts it. Ralph does not check that.
        """
        directories = self.settings_home(environment), call.workspace / ".codex"
        found = {find_setting(read_layers(directory, call.arguments), "model")[0] for directory in directories}
        models = found - {""}
        return models.pop() if len(models) == 1 else ""


def move_temporary_directory(codex_home: Path) -> dict[str, str]:
    """Variables that name a temporary directory in which the home of Codex is not; empty if it is in none.

    Codex puts the helper for its own sandbox into its home. It refuses to if that is inside the temporary directory, and then
    every command fails at `edits` and `read-only` ("execvp codex-linux-sandbox: No such file or directory").
    """
    home = codex_home.resolve()
    # In Ralph's sandbox, TMPDIR is not set, so it is `/tmp`.
    if not any(home.is_relative_to(Path(used).resolve()) for used in ("/tmp", os.environ.get("TMPDIR") or "/tmp")):
        return {}
    others = [other for other in ("/tmp", "/var/tmp") if not home.is_relative_to(Path(other).resolve())]
    return {"TMPDIR": others[0]} if others else {}


def _is_token(text: str) -> bool:
    """Whether it is a JSON Web Token: three parts, of which the second is a JSON object in base64."""
    parts = text.split(".")
    if len(parts) != 3:
        return False
    with contextlib.suppress(ValueError):
        return bool(parse_line(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))))
    return False


def setting_in(arguments: Sequence[str], key: str) -> str:
    """The value that `-c KEY=VALUE` in the user's own arguments gives a key."""
    for argument, following in pairwise((*arguments, "")):
        text = following if argument in ("-c", "--config") else argument.removeprefix("--config=")
        name, equals, value = text.partition("=")
        if equals and name.strip() == key:
            return value.strip().strip("\"'")
    return ""


def read_config(path: Path) -> Data:
    """The settings in a `config.toml`; empty if there are none, or if they cannot be read."""
    try:
        return Data.of(tomllib.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return Data()


def read_layers(directory: Path, arguments: Sequence[str]) -> list[tuple[Path, Data]]:
    """The settings in a directory with their files: those of the chosen profile, which count most, and those for all.

    A profile has a file of its own in versions such as 0.169, and was a section of `config.toml` in older ones.
    """
    path = directory / "config.toml"
    settings = read_config(path)
    passed = [setting_in(arguments, "profile"), *option_values(arguments, "--profile", "-p")]
    profile = next(filter(None, passed), "") or settings.text("profile")
    if not profile:
        return [(path, settings)]
    own = path.with_name(f"{Path(profile).name}.config.toml")
    return [(own, read_config(own)), (path, settings.inner("profiles", profile)), (path, settings)]


def find_setting(layers: Iterable[tuple[Path, Data]], key: str) -> tuple[str, Path]:
    """The first text that settings have for a key, and its file; empty if there is none."""
    for path, settings in layers:
        if text := settings.text(key):
            return text, path
    return "", Path()


@dataclass
class CodexReader(StreamReader):
    """Reads one turn of Codex. What its stream leaves out is in its own record of the conversation."""

    sessions: Path = Path()
    """The directory with the records of its conversations."""
    retried_at: float = 0.0
    """When it began to wait for the end of a limit."""

    def events(self, data: Data) -> Iterator[AgentEvent]:
        """The events in a line."""
        item = data.inner("item")
        match data.get("type"):
            case "thread.started":
                yield from self.start_session(data.text("thread_id"))
            case "item.started" | "item.updated" if item.text("type") == "todo_list":
                todos = describe_todos(item.objects("items"), "text", lambda todo: todo.get("completed") is True)
                yield AgentEvent(EventKind.TOOL, one_line(f"todo: {todos}"))
            case "item.started":
                yield from self._start_tool_item(item)
            case "item.completed":
                yield from self._finish_item(item)
            case "turn.completed":
                yield from self._read_record()
                usage = data.inner("usage")
                cached = usage.count("cached_input_tokens")
                yield from self.report_total(
                    {self.model: (usage.count("input_tokens"), cached, usage.count("output_tokens"))},
                    reasoning=usage.count("reasoning_output_tokens"),
                )
                yield from self.succeed()
            case "turn.failed":
                yield from self._read_record()
                error = data.inner("error").text("message") or "the turn failed"
                yield from self.fail(error, resets_at=self._estimate_limit_end(error))
            case "error":
                error = data.text("message")
                if error.startswith("Reconnecting"):
                    self.retried_at = self.now if "429" in error else 0.0
                    yield from self.retry(error)
                elif error:
                    yield from self.report_error(error, resets_at=self._estimate_limit_end(error))

    def _estimate_limit_end(self, error: str) -> float | None:
        """When a limit of requests ends. Codex waits as its provider says, and does not report for how long.

        So the last wait is the best estimate of the next. Short waits are Codex's own.
        """
        waited = self.now - self.retried_at
        if not self.retried_at or "429" not in error or waited < _OWN_WAIT_SECONDS:
            return None
        return self.now + waited

    def _read_record(self) -> Iterator[AgentEvent]:
        """Read the model and the share of the subscription that is used from the end of the conversation's record."""
        if not self.session or any(character in self.session for character in "/*?["):
            return
        for path in self.sessions.glob(f"*/*/*/rollout-*-{self.session}.jsonl"):
            for line in _read_last_lines(path):
                payload = parse_line(line).inner("payload")
                self.model = self.model or payload.inner("thread_settings").text("model") or payload.text("model")
                limits = payload.inner("rate_limits")
                windows = [limits.inner("primary"), limits.inner("secondary")]
                yield from self.report_quota(
                    ((window.number("used_percent") or 0.0) / 100, _name_window(window), window.number("resets_at"))
                    for window in windows
                    if window
                )

    def _finish_item(self, item: Data) -> Iterator[AgentEvent]:
        """An item that is complete. An item of the type `error` is only a warning."""
        if item.text("type") == "agent_message":
            self.buffer.last_message = ""
            yield from self.say(item.text("text"))
        elif item.text("type") == "reasoning":
            yield from self.think(item.text("text"))
        elif item.text("type") == "error":
            yield from self.warn(item.text("message"))
        elif item.text("type") in _TOOL_ITEMS:
            yield from self._start_tool_item(item)
            status = item.text("status")
            is_denied = status == "declined"
            failed = is_denied or status == "failed"
            yield from self.finish_tool(item.text("id"), _describe_result(item), failed=failed, denied=is_denied)

    def _start_tool_item(self, item: Data) -> Iterator[AgentEvent]:
        key = item.text("id")
        if item.text("type") in _TOOL_ITEMS and key not in self.tools:
            name, arguments = _name_tool(item)
            yield from self.start_tool(key, name, arguments, is_sub_agent=item.text("type") == "collab_tool_call")


def _read_last_lines(path: Path) -> list[bytes]:
    """The lines at the end of a file that say something about limits or the model."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _RECORD_TAIL))
            lines = file.read().splitlines()
    except OSError:
        return []
    told = [line for line in lines if b'"rate_limits":{' in line]
    settings = [line for line in lines if b'"thread_settings"' in line or b'"turn_context"' in line]
    return [*settings[-1:], *told[-1:]]


def _name_window(window: Data) -> str:
    minutes = window.count("window_minutes")
    return f"{minutes // 60}-hour" if minutes < 24 * 60 else f"{minutes // (24 * 60)}-day"


def _describe_result(item: Data) -> str:
    """What a tool printed; if that is nothing, its error, its exit code or its status."""
    code = item.count("exit_code")
    printed = item.text("aggregated_output") or item.inner("result").content_text("content")
    return printed or item.inner("error").text("message") or (f"exit code {code}" if code else item.text("status"))


def _name_tool(item: Data) -> tuple[str, object]:
    """The tool that an item uses, and its arguments."""
    match item.text("type"):
        case "command_execution":
            return "shell", {"command": item.text("command")}
        case "file_change":
            return "edit", {"path": ", ".join(change.text("path") for change in item.objects("changes"))}
        case "mcp_tool_call":
            return f"{item.text('server')}.{item.text('tool')}", item.get("arguments")
        case kind:
            return kind, {"query": item.text("query", "prompt")}
