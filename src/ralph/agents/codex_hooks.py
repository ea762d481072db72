"""The hooks of ours in Codex, which runs only what is trusted: by a hash that it tells itself, asked for once and kept."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path

from ralph.agents.hook_config import hook_command, lay, own_place, short_hash
from ralph.agents.stream_lines import parse
from ralph.core.errors import StorageError

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
