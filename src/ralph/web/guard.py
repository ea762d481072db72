"""What every request must fulfil before a route sees it: host, origin, method, form, size and login.

Host names are checked against a list, because a page of another site can make the browser send requests here under its own
name (DNS rebinding). There are no cookies: a browser sends them to every port of a host, also to one that an agent serves.
"""

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ralph.web.access import AccessControl, User

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

BODY_LIMIT = 256 * 1024
TARGET_LIMIT = 4096
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)


@dataclass(frozen=True)
class HostRules:
    """The names under which the server may be addressed."""

    hosts: frozenset[str]
    """Allowed values of `Host`, with the port."""
    any_port: bool = False
    """Whether the port may be any: behind a Unix socket, ssh chooses it."""
    scheme: str = "http"
    trusts_proxy: bool = False
    """Whether `X-Forwarded-User` of a request from this machine names the user."""

    def allows_host(self, host: str) -> bool:
        """Whether a request may be addressed to this host."""
        if self.any_port:
            host = urlsplit(f"//{host}").hostname or ""
        return host.lower() in self.hosts

    def allows_origin(self, origin: str, host: str) -> bool:
        """Whether a request comes from our own page."""
        return origin == f"{self.scheme}://{host}" or (self.trusts_proxy and origin == f"https://{host}")


def loopback_hosts(port: int) -> frozenset[str]:
    """The names of this machine for itself, with a port."""
    return frozenset(f"{name}:{port}" for name in ("127.0.0.1", "localhost", "[::1]"))


@dataclass
class Refusal(Exception):
    """Why a request is not served, and what to do."""

    status: int
    what: str
    todo: str = ""


class Guard:
    """Checks each request, then calls the application."""

    def __init__(self, app: "ASGIApp", *, rules: HostRules, gate: AccessControl) -> None:
        self._app, self._rules, self._gate = app, rules, gate

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Serve one request."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        path = scope["path"]
        is_api = path.startswith("/api/")

        async def send_with_headers(message: "Message") -> None:
            if message["type"] == "http.response.start":
                headers = [*message.get("headers", ()), *HEADERS]
                if is_api:
                    headers.append((b"cache-control", b"no-store"))
                message = {**message, "headers": headers}
            await send(message)

        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        try:
            self._check_form(scope, headers)
            if is_api:
                scope.setdefault("state", {})["user"] = self._identify(scope, headers)
            body = await _read_body(receive, headers) if scope["method"] == "POST" else b""
        except Refusal as refusal:
            await _send_refusal(send_with_headers, refusal)
            return
        await self._app(scope, _replay(body, receive), send_with_headers)

    def _check_form(self, scope: "Scope", headers: dict[str, str]) -> None:
        host, method, path = headers.get("host", ""), scope["method"], scope["path"]
        if sum(name == b"host" for name, _ in scope["headers"]) != 1 or not self._rules.allows_host(host):
            raise Refusal(421, "this server does not have that name", "open the address that `ralph web` prints")
        if len(scope["raw_path"]) + len(scope["query_string"]) > TARGET_LIMIT:
            raise Refusal(414, f"the address is longer than {TARGET_LIMIT} bytes")
        if method not in ("GET", "HEAD", "POST") or (method == "POST" and not path.startswith("/api/")):
            raise Refusal(405, f"{method} does not work here")
        origin, site = headers.get("origin"), headers.get("sec-fetch-site", "same-origin")
        is_foreign = origin is not None and not self._rules.allows_origin(origin, host)
        if is_foreign or (path.startswith("/api/") and site not in ("same-origin", "none")):
            raise Refusal(403, "the request comes from another page")
        if method == "POST":
            if origin is None:
                raise Refusal(
                    403, "the request has no Origin", "send the header `Origin` with the address of this server"
                )
            if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
                raise Refusal(415, "only JSON is accepted", "send the header `Content-Type: application/json`")

    def _identify(self, scope: "Scope", headers: dict[str, str]) -> User:
        scheme, _, secret = headers.get("authorization", "").partition(" ")
        client = (scope.get("client") or ("socket",))[0]
        login = headers.get("x-forwarded-user", "")[:80] if self._rules.trusts_proxy and _is_local(client) else ""
        if scheme.lower() != "bearer" or not secret:
            raise Refusal(401, "there is no token", "open the address that `ralph web` prints")
        found = self._gate.identify(client, secret.strip(), login)
        if found == "locked":
            raise Refusal(429, "too many wrong tokens", "wait for 15 minutes, or restart `ralph web`")
        if isinstance(found, str):
            raise Refusal(401, "the token is wrong or has expired", "open the address that `ralph web` prints")
        return found


def _is_local(client: str) -> bool:
    return client in ("127.0.0.1", "::1", "socket")


async def _read_body(receive: "Receive", headers: dict[str, str]) -> bytes:
    """The whole body of a request. It is refused before it is read, if it says that it is too large."""
    too_large = Refusal(413, f"the body is larger than {BODY_LIMIT // 1024} KB")
    length = headers.get("content-length", "0")
    if not length.isascii() or not length.isdigit() or int(length) > BODY_LIMIT:
        raise too_large
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise Refusal(400, "the request ended early")
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > BODY_LIMIT:
            raise too_large
        if not message.get("more_body"):
            return b"".join(parts)


def _replay(body: bytes, receive: "Receive") -> "Receive":
    """A `receive` that gives a body that was read already, then what follows."""
    given = False

    async def again() -> "Message":
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


async def _send_refusal(send: "Send", refusal: Refusal) -> None:
    error = {"what": refusal.what, "where": "", "todo": refusal.todo}
    body = json.dumps({"schema": 1, "error": error}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if refusal.status == 413:
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
