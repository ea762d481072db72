"""The network of a job at the level `strict`: a proxy that lets it reach only the hosts on a list.

The job has a network of its own, in which nothing can be reached. This program starts the job's bubblewrap. Inside, before the
agent, a few lines of Python (`INSIDE`) open listening sockets in the job's network and pass them out. This program accepts the
connections. It resolves names, connects from outside, and writes each refusal to a file. No process of Ralph is inside, and
the job has no socket to reach one with.

It runs without Ralph's other modules and uses only the standard library, because every job starts it.
"""

import base64
import contextlib
import ctypes
import ipaddress
import json
import os
import re
import select
import signal
import socket
import sys
import threading
import time
from typing import Any
from urllib.parse import unquote, urlsplit

PORT = 3128
"""Where the proxy listens in the network of the job. That network is new, so the port is free."""
CHANNEL = 100
"""The descriptor through which the listening sockets come out. A fixed number: both sides know it without being told."""
DENIED_FILE = "denied.jsonl"
"""The file in the directory of a job with the hosts that the proxy refused."""
WEB_PORTS = (80, 443)
"""The ports that a rule without a port means."""
INSIDE = f"""
import os, socket, sys
channel = socket.socket(fileno={CHANNEL})
listeners = [socket.create_server(("127.0.0.1", int(port)), backlog=128) for port in sys.argv[1].split(",")]
socket.send_fds(channel, [b"."], [one.fileno() for one in listeners])
channel.close()
try:
    os.execvp(sys.argv[2], sys.argv[2:])
except OSError as error:
    sys.exit(f"bwrap: execvp {{sys.argv[2]}}: {{error.strerror}}")
"""
_HEAD_LIMIT = 64 * 1024
_SECONDS = 30.0
_MAX_REFUSALS = 200
_PR_SET_PDEATHSIG = 1
_RULE = re.compile(
    r"(?:\[(?P<address>[0-9a-f:.]+)\]|(?P<name>(?:\*\.)?[a-z0-9_](?:[a-z0-9_.-]*[a-z0-9_])?)\.?)(?::(?P<port>[0-9]{1,5}))?"
)


class Refused(Exception):
    """The job may not reach a host, or asked for it in a way that the proxy does not understand."""

    def __init__(self, status: str, text: str) -> None:
        super().__init__(text)
        self.status = status


def split_host(text: str, port: int = 0) -> tuple[str, int]:
    """Host and port of `host`, `host:port`, `*.domain` or `[::1]:port`. Raises ValueError."""
    found = _RULE.fullmatch(text.strip().lower())
    number = int(found["port"] or port) if found else 0
    if not found or number > 65535:
        raise ValueError(f"{text!r} is not a host")
    return found["name"] or found["address"], number


def is_local(host: str) -> bool:
    """Whether a host is this machine, by its name."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def matches(rule: str, host: str, port: int) -> bool:
    """Whether a rule allows a host: `host` (ports 80 and 443), `host:port`, or `*.domain` for every host in a domain."""
    try:
        name, number = split_host(rule)
    except ValueError:
        return False
    if port != number and (number or port not in WEB_PORTS):
        return False
    if name.startswith("*."):
        return host.endswith(name[1:])
    return host == name or (is_local(host) and is_local(name))


def read_denied(directory: str) -> list[str]:
    """The hosts that the proxy refused to a job, in the order in which the job asked for them."""
    hosts = []
    try:
        with open(os.path.join(directory, DENIED_FILE), encoding="utf-8") as file:
            lines = file.read(_HEAD_LIMIT).splitlines()
    except OSError:
        return []
    for line in lines:
        with contextlib.suppress(ValueError, KeyError, TypeError):
            hosts.append(str(json.loads(line)["host"]))
    return hosts


class Proxy:
    """Connects one job with the hosts that it may reach."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.rules: list[str] = spec["allowed"]
        self.allow_file: str = spec["allow_file"]
        self.denied_file: str = spec["denied_file"]
        self.upstream = ""
        with contextlib.suppress(OSError), open(spec["upstream_file"], encoding="utf-8") as file:
            self.upstream = file.read().strip()
        self.refused: set[str] = set()
        self.lock = threading.Lock()

    def serve(self, listeners: list[tuple[socket.socket, int]]) -> None:
        """Accept connections until this process is ended. A listener with a port leads to that port of this machine."""
        by_descriptor = {listener.fileno(): (listener, port) for listener, port in listeners}
        while True:
            for descriptor in select.select(list(by_descriptor), [], [])[0]:
                listener, port = by_descriptor[descriptor]
                try:
                    client, _ = listener.accept()
                except OSError:
                    continue
                threading.Thread(target=self._serve_client, args=(client, port), daemon=True).start()

    def _serve_client(self, client: socket.socket, port: int) -> None:
        with client, contextlib.suppress(OSError):
            client.settimeout(_SECONDS)
            try:
                if port:
                    self.check("localhost", port)
                    server, first = self._connect("localhost", port), b""
                else:
                    server, first = self._open_request(client)
            except Refused as error:
                if not port:
                    body = f"{error}\n".encode()
                    head = f"HTTP/1.1 {error.status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n"
                    client.sendall(f"{head}Content-Type: text/plain\r\n\r\n".encode() + body)
                return
            with server:
                if first:
                    server.sendall(first)
                relay(client, server)

    def _open_request(self, client: socket.socket) -> tuple[socket.socket, bytes]:
        """Connect to the host that a request names. Returns the connection, and what to send first."""
        head, rest = read_head(client)
        try:
            method, target, version = head[0].split(" ")
            if method == "CONNECT":
                host, port = split_host(target, 443)
            else:
                url = urlsplit(target)
                host, port = split_host(url.netloc.rpartition("@")[2], 80)
                if url.scheme != "http":
                    raise ValueError(target)
        except ValueError:
            raise Refused("400 Bad Request", "the proxy of Ralph's sandbox does not understand this request") from None
        self.check(host, port)
        server = self._connect(host, port)
        if method == "CONNECT":
            client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            return server, rest
        # The connection carries this request only: another one could be for another host.
        kept = [line for line in head[1:] if not line.lower().startswith(("proxy-", "connection:", "keep-alive:"))]
        path = target.removeprefix(f"{url.scheme}://{url.netloc}") or "/"
        lines = [f"{method} {path} {version}", *kept, "Connection: close", "", ""]
        return server, "\r\n".join(lines).encode("latin-1") + rest

    def check(self, host: str, port: int) -> None:
        """Raise `Refused`, and record it, unless a rule allows the host. The user can add rules while the job runs."""
        rules = list(self.rules)
        with contextlib.suppress(OSError), open(self.allow_file, encoding="utf-8") as file:
            rules += file.read(_HEAD_LIMIT).split()
        if any(matches(rule, host, port) for rule in rules):
            return
        name = host if port in WEB_PORTS else f"{host}:{port}"
        self._record(name)
        raise Refused("403 Forbidden", f"denied: {name}. The user can allow it for this run: ralph allow {name}")

    def _record(self, name: str) -> None:
        with self.lock:
            if name in self.refused or len(self.refused) >= _MAX_REFUSALS:
                return
            self.refused.add(name)
            line = json.dumps({"host": name, "at": time.time()}) + "\n"
            with contextlib.suppress(OSError), open(self.denied_file, "a", encoding="utf-8") as file:
                file.write(line)

    def _connect(self, host: str, port: int) -> socket.socket:
        try:
            if self.upstream and not is_local(host):
                return connect_through(self.upstream, host, port)
            return connect_directly(host, port)
        except OSError as error:
            raise Refused("502 Bad Gateway", f"{host}:{port} cannot be reached: {error}") from None


def connect_directly(host: str, port: int) -> socket.socket:
    """Connect to a host. A name on the internet must not lead to this machine or its local network segment."""
    error: OSError = OSError("the name has no address")
    for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        ip = ipaddress.ip_address(str(address[0]).partition("%")[0])
        if not is_local(host) and str(ip) != host and (ip.is_loopback or ip.is_link_local or ip.is_unspecified):
            error = OSError(f"its address {ip} is local")
            continue
        server = socket.socket(family, kind, protocol)
        server.settimeout(_SECONDS)
        try:
            server.connect(address)
        except OSError as failure:
            server.close()
            error = failure
        else:
            return server
    raise error


def connect_through(upstream: str, host: str, port: int) -> socket.socket:
    """Connect to a host through the proxy that the user's own environment names."""
    url = urlsplit(upstream)
    server = socket.create_connection((url.hostname or "", url.port or 80), _SECONDS)
    shown = f"[{host}]" if ":" in host else host
    head = f"CONNECT {shown}:{port} HTTP/1.1\r\nHost: {shown}:{port}\r\n"
    if url.username:
        user = f"{unquote(url.username)}:{unquote(url.password or '')}"
        head += f"Proxy-Authorization: Basic {base64.b64encode(user.encode()).decode()}\r\n"
    try:
        server.sendall(f"{head}\r\n".encode())
        status = read_head(server)[0][0]
    except Refused as error:
        status = str(error)
    if status.split(" ")[1:2] != ["200"]:
        server.close()
        raise OSError(f"the proxy {url.hostname} answers: {status}")
    return server


def read_head(connection: socket.socket) -> tuple[list[str], bytes]:
    """The first lines of a request or an answer, and what follows them."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = connection.recv(65536)
        if not more or len(data) > _HEAD_LIMIT:
            raise Refused("400 Bad Request", "the proxy of Ralph's sandbox received no whole request")
        data += more
    head, _, rest = data.partition(b"\r\n\r\n")
    return head.decode("latin-1").split("\r\n"), rest


def relay(one: socket.socket, other: socket.socket) -> None:
    """Copy in both directions until both sides have sent everything."""
    peers = {one: other, other: one}
    for side in peers:
        side.settimeout(None)
    is_open = [one, other]
    while is_open:
        for side in select.select(is_open, [], [])[0]:
            data = side.recv(1 << 16)
            if data:
                peers[side].sendall(data)
                continue
            is_open.remove(side)
            with contextlib.suppress(OSError):
                peers[side].shutdown(socket.SHUT_WR)


def serve_outside(spec: dict[str, Any], channel: socket.socket, parent: int) -> None:
    """Be the proxy of a job until the job ends."""
    # The proxy must not outlive bubblewrap, and must not keep its output open.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        return
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # A job that is asked to end has some time left, and may need its network to finish.
        signal.signal(number, signal.SIG_IGN)
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    _, descriptors, _, _ = socket.recv_fds(channel, 1, 64)
    ports = [0, *spec["ports"]]
    listeners = [(socket.socket(fileno=descriptor), ports[at]) for at, descriptor in enumerate(descriptors)]
    if listeners:
        Proxy(spec).serve(listeners)


def main() -> None:
    """Start a command with its proxy: `network_proxy SPEC COMMAND...`."""
    spec, command = json.loads(sys.argv[1]), sys.argv[2:]
    ours, theirs = socket.socketpair()
    parent = os.getpid()
    if os.fork() == 0:
        theirs.close()
        with contextlib.suppress(BaseException):
            serve_outside(spec, ours, parent)
        os._exit(0)
    ours.close()
    os.dup2(theirs.fileno(), CHANNEL)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.exit(f"bwrap: execvp {command[0]}: {error.strerror}")


if __name__ == "__main__":
    main()
