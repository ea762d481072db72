"""How the keepers and the engine speak: JSON, a line each, over Unix sockets; and how signals wake a keeper."""

import contextlib
import json
import os
import signal
import socket
from typing import Any

Message = dict[str, Any]


def listen(path: str) -> socket.socket:
    """A Unix socket in the current directory, by a short relative name; who can see it can connect to it."""
    unready = f"{path}.{os.getpid()}"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(unready)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(unready)
    listener.listen(64)
    os.rename(unready, path)
    return listener


def wake_on_signals(*numbers: signal.Signals) -> int:
    """A descriptor that becomes readable when one of the signals arrives."""
    read, write = os.pipe()
    os.set_blocking(read, False)
    os.set_blocking(write, False)
    for number in numbers:
        signal.signal(number, lambda *_: None)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    return read


def drain(descriptor: int) -> bytes:
    """All that can be read at once."""
    try:
        return os.read(descriptor, 65536)
    except BlockingIOError:
        return b""


def first_message(connection: socket.socket) -> Message:
    """The request that a connection opens with; one that does not come soon is as none."""
    connection.settimeout(5.0)
    data = b""
    try:
        while not data.endswith(b"\n"):
            chunk = connection.recv(1 << 20)
            if not chunk:
                return {}
            data += chunk
        message = json.loads(data)
    except (OSError, ValueError):
        return {}
    return message if isinstance(message, dict) else {}


def say(connection: socket.socket, message: Message) -> None:
    """Send one message; a peer that does not listen is not waited for."""
    with contextlib.suppress(OSError):
        connection.sendall(json.dumps(message).encode() + b"\n")
