"""Prove the promises of the sandbox by trying to break each of them, for `ralph doctor`."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ralph.store.user_state import ensure_state_directory
from ralph.supervisor.sandbox import STRICT, NetworkAccess, Sandbox, writable

_SECONDS = 60
_PROGRAM = """
import json, os, socket, sys
given = json.loads(sys.argv[1])

def is_refused(action):
    try:
        action()
    except OSError:
        return True
    return False

def connect(port):
    with socket.socket() as client:
        client.settimeout(5)
        client.connect(("127.0.0.1", port))
        if given["open"] == port and client.recv(1) != b"x":
            raise OSError

def write(path):
    with open(path, "w") as file:
        file.write("x")

def see(path):
    return not os.path.isdir(path) or not os.listdir(path)

print(json.dumps({
    "home": is_refused(lambda: write(given["home"] + "/.ralph-doctor")),
    "system": is_refused(lambda: write("/usr/.ralph-doctor")) and is_refused(lambda: write("/etc/.ralph-doctor")),
    "kernel": is_refused(lambda: os.close(os.open("/proc/sys/kernel/core_pattern", os.O_WRONLY))),
    "state": see(given["state"]),
    "keys": all(see(path) for path in given["keys"]),
    "processes": not os.path.exists("/proc/%d/exe" % given["pid"]) and is_refused(lambda: os.kill(given["pid"], 0)),
    "workspace": not is_refused(lambda: write(given["workspace"] + "/file")),
    "temporary": not is_refused(lambda: write("/tmp/file")),
    "network": is_refused(lambda: connect(given["port"])),
    "names": is_refused(lambda: socket.getaddrinfo("example.com", 443)),
    "list": given["open"] == 0 or not is_refused(lambda: connect(given["open"])),
}))
"""
_PROMISES = {
    "home": "agents cannot change your home directory",
    "system": "agents cannot change the system",
    "kernel": "agents cannot change settings of the kernel",
    "state": "agents cannot read Ralph's keys and records",
    "keys": "agents cannot read your keys",
    "processes": "agents cannot see or signal other processes",
    "workspace": "agents can change the workspace",
    "temporary": "agents have a private /tmp",
}
_STRICT = {
    "network": "agents cannot reach this machine's own ports",
    "names": "agents cannot ask a name server",
    "list": "agents reach what is on the list",
}


@dataclass(frozen=True)
class TriedPromise:
    """A promise of the sandbox, and whether it held when it was tried."""

    promise: str
    is_kept: bool


def _greet(server: socket.socket) -> None:
    """Send one byte to the first client."""
    with contextlib.suppress(OSError):
        client, _ = server.accept()
        with client:
            client.sendall(b"x")


def prove(sandbox: Sandbox, environment: Mapping[str, str]) -> list[TriedPromise]:
    """Try every promise in a temporary workspace. Raises OSError if that is not possible."""
    network, opened = None, socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=_greet, args=(opened,), daemon=True).start()
    home = Path(environment.get("HOME") or Path.home())
    with tempfile.TemporaryDirectory(prefix="ralph-doctor-") as workspace, socket.socket() as listener, opened:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        given = {
            "home": str(home),
            "state": str(ensure_state_directory()),
            "keys": [str(path) for path in sandbox.hidden if path.is_dir()],
            "pid": os.getpid(),
            "workspace": os.path.realpath(workspace),
            "port": listener.getsockname()[1],
            "open": 0,
        }
        if sandbox.level == STRICT:
            given["open"] = opened.getsockname()[1]
            files = [Path(workspace, name) for name in ("allowed", "denied", "upstream")]
            network = NetworkAccess((f"localhost:{given['open']}",), *files)
        command = (sys.executable, "-S", "-I", "-c", _PROGRAM, json.dumps(given))
        argv, inside = sandbox.wrap(command, environment, Path(workspace), [writable(Path(workspace))], network)
        done = subprocess.run(
            argv, env=inside, capture_output=True, text=True, timeout=_SECONDS, stdin=subprocess.DEVNULL
        )
    if done.returncode != 0:
        raise OSError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit code {done.returncode}")
    results = json.loads(done.stdout)
    promises = {**_PROMISES, **_STRICT} if sandbox.level == STRICT else _PROMISES
    return [TriedPromise(text, bool(results[name])) for name, text in promises.items()]
