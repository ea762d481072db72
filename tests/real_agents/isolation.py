"""A network namespace for each test with only the loopback interface, if the system allows it."""

import fcntl
import functools
import shutil
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

AS_ROOT = ("--net",)
AS_USER = ("--user", "--map-root-user", "--net")
SECONDS = 20


@dataclass(frozen=True)
class Network:
    """The network in which a test starts programs."""

    prefix: tuple[str, ...]
    """The command prefix that starts a program in it."""
    listener: socket.socket
    """A socket that listens on its loopback interface."""


@functools.cache
def isolation() -> tuple[str, ...] | None:
    """The options with which `unshare` makes a network here; None if it cannot."""
    if shutil.which("unshare") is None or shutil.which("nsenter") is None:
        return None
    for options in (AS_ROOT, AS_USER):
        done = subprocess.run(["unshare", *options, "true"], capture_output=True, timeout=SECONDS, check=False)
        if done.returncode == 0:
            return options
    return None


def describe_isolation() -> str:
    """For the header of the test report."""
    options = isolation()
    if options is None:
        return "agents run WITHOUT a network of their own (no unshare): only their settings keep them on the loopback"
    return f"agents run in a network of their own (unshare {' '.join(options)}): nothing but the loopback"


@contextmanager
def network() -> Iterator[Network]:
    """A network while the block runs."""
    options = isolation()
    if options is None:
        with _listener() as listener:
            yield Network((), listener)
        return
    ours, theirs = socket.socketpair()
    command = ["unshare", *options, sys.executable, __file__, str(theirs.fileno())]
    holding = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, start_new_session=True)
    theirs.close()
    # The holder exits when our end is closed. `with` waits for it after that.
    with holding as holder, ours:
        ours.settimeout(SECONDS)
        _, descriptors, _, _ = socket.recv_fds(ours, 1, 1)
        entering = ("--user", "--preserve-credentials", "--net") if "--user" in options else ("--net",)
        with socket.socket(fileno=descriptors[0]) as listener:
            yield Network(("nsenter", "--target", str(holder.pid), *entering), listener)


def _listener() -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.bind(("127.0.0.1", 0))
    listener.listen(128)
    return listener


def _hold(channel: int) -> None:
    """In the new network: bring the loopback up, hand over a socket, and stay until the test is over."""
    with socket.socket(fileno=channel) as theirs, _listener_after_up() as listener:
        socket.send_fds(theirs, [b"x"], [listener.fileno()])
        listener.close()
        theirs.recv(1)


def _listener_after_up() -> socket.socket:
    get_flags, set_flags, up = 0x8913, 0x8914, 0x1
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sh14x", b"lo", 0)
        flags = struct.unpack("16sh14x", fcntl.ioctl(any_socket, get_flags, request))[1]
        fcntl.ioctl(any_socket, set_flags, struct.pack("16sh14x", b"lo", flags | up))
    return _listener()


if __name__ == "__main__":
    _hold(int(sys.argv[1]))
