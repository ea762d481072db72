"""The scripted model: a server on the loopback interface that answers from a script, in the wire format of the request."""

import gzip
import json
import re
import socket
import sys
import threading
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import cast

from script import NAME_IN_PROMPT, Fault, Script, Step, build_calls, render_edits, say
from wire import Answer, Event, Json, Refusal, Tokens, Wire, encode, new_id
from wire_anthropic import Messages
from wire_gemini import GenerateContent
from wire_openai import Chat, Responses

MAX_REQUESTS = 400
MAX_BODY_BYTES = 16 * 1024 * 1024
WIRES: Sequence[tuple[re.Pattern[str], str, Wire]] = (
    (re.compile(r"/messages$"), "anthropic", Messages()),
    (re.compile(r"/responses$"), "responses", Responses()),
    (re.compile(r"/chat/completions$"), "chat", Chat()),
    (re.compile(r":(?:stream)?generateContent$", re.I), "gemini", GenerateContent()),
)
QUOTA_SECONDS = 3600
"""When the window of a quota ends, from now."""
COUNTS = {"/messages/count_tokens": "input_tokens", ":countTokens": "totalTokens"}
"""Requests that only count."""


@dataclass(frozen=True)
class Request:
    """A request of an agent."""

    at: float
    path: str
    api: str
    """The wire format; empty if it is not a request to the model."""
    model: str
    user_text: str
    """All user messages in it."""
    text: str
    """The whole body."""
    tools: tuple[str, ...]
    fault: Fault | None
    headers: Mapping[str, str]
    """With lower-case names."""
    is_main: bool
    """Whether it is part of the work. Other requests ask for titles or summaries."""
    inbox: frozenset[str] = frozenset()
    """The files in the inboxes of the project at that time."""


class Model:
    """The script of the server, and the requests that it received."""

    def __init__(self, workspace: Path) -> None:
        self.workspace = workspace
        self.tokens = Tokens()
        """The usage of every answer, unless its step has its own."""
        self.has_no_tools = False
        """Whether the agent has no tools and reads file edits from the text."""
        self.ending = ""
        """The command that ends a turn, if a message does not end it."""
        self.closing = threading.Event()
        self.url = ""
        self._lock = threading.Lock()
        self._requests: list[Request] = []
        self._scripts: dict[str, Script] = {}
        self.play()

    def play(self, *steps: Step, api: str = "") -> None:
        """Start another script; for one wire format only if `api` names it."""
        self._scripts[api] = Script(steps)

    def next(self, api: str) -> Step:
        """The step that answers a request in a wire format."""
        script = self._scripts.get(api, self._scripts[""])
        return script.next_without_tools() if self.has_no_tools else script.next()

    def record(self, request: Request) -> bool:
        """Record a request; False if there are too many for a test."""
        with self._lock:
            self._requests.append(request)
            return len(self._requests) <= MAX_REQUESTS

    def list_inboxes(self) -> frozenset[str]:
        """The files that turns can read now, by their paths in an inbox; every worktree has an inbox."""
        inboxes = list(self.workspace.rglob(".ralph/turn/inbox"))
        return frozenset(str(path.relative_to(inbox)) for inbox in inboxes for path in inbox.rglob("*"))

    @property
    def requests(self) -> list[Request]:
        """The requests that are part of the work."""
        with self._lock:
            return [one for one in self._requests if one.is_main]

    @property
    def all_requests(self) -> list[Request]:
        with self._lock:
            return list(self._requests)


class Handler(BaseHTTPRequestHandler):
    """Answers one connection."""

    protocol_version = "HTTP/1.1"
    timeout = 900

    @property
    def model(self) -> Model:
        return cast(Server, self.server).model

    def log_message(self, format: str, *args: object) -> None:
        """Requests are recorded instead."""

    def do_HEAD(self) -> None:
        self._send({})

    def do_GET(self) -> None:
        self.model.record(self._request("", None, {}, ""))
        path = self.path.partition("?")[0]
        if "/models" not in path:
            return self._send({"error": {"message": f"mock: no such page {path}"}}, 404)
        names = ("claude-sonnet-4-5", "gpt-5", "gemini-2.5-pro")
        data = [{"id": name, "object": "model", "type": "model", "display_name": name} for name in names]
        models = [{"name": f"models/{name}", "displayName": name} for name in names]
        return self._send({"object": "list", "has_more": False, "data": data, "models": models})

    def do_POST(self) -> None:
        path, text = self.path.partition("?")[0], self._body().decode(errors="replace")
        if name := next((name for end, name in COUNTS.items() if path.endswith(end)), ""):
            return self._send({name: max(1, len(text) // 4)})
        for pattern, api, wire in WIRES:
            if pattern.search(path):
                return self._answer(api, wire, text)
        self.model.record(self._request("", None, {}, text))
        return self._send({"error": {"message": f"mock: no such page {path}"}}, 404)

    def _answer(self, api: str, wire: Wire, text: str) -> None:
        body: Json = json.loads(text)
        offers = wire.offers(body)
        step = self.model.next(api) if offers or self.model.has_no_tools else say("A title")
        if not self.model.record(self._request(api, wire, body, text, step)):
            return self._refuse(wire.refusal(400, "mock: too many requests for a test"), 400)
        if step.fault is Fault.STATUS:
            return self._refuse(wire.refusal(step.status, step.text), step.status)
        if step.fault is Fault.LIMIT:
            return self._refuse(wire.limit(time.time() + step.seconds, of_plan=step.of_plan), 429)
        if NAME_IN_PROMPT in step.shell:
            step = replace(step, shell=step.shell.replace(NAME_IN_PROMPT, _find_name_of_ralph(wire.user_text(body))))
        calls = [] if self.model.has_no_tools else build_calls(step, offers, self.model.workspace, self.model.ending)
        text = render_edits(step) if self.model.has_no_tools else step.text
        tokens = step.tokens or self.model.tokens
        answer = Answer(_model_of(body, self.path), text, calls, tokens, step.thought)
        headers = wire.quota(step.quota, time.time() + QUOTA_SECONDS) if step.quota else {}
        if body.get("stream") or ":stream" in self.path:
            return self._stream(wire, wire.events(answer), step, headers)
        if step.fault is Fault.HANG:
            (step.until or self.model.closing).wait(step.seconds)
        return self._send(wire.render(answer), headers=headers, cut=step.fault is Fault.CUT)

    def _stream(self, wire: Wire, events: list[Event], step: Step, headers: Mapping[str, str]) -> None:
        self.send_response(200)
        for name, value in {"content-type": "text/event-stream", "cache-control": "no-cache", **headers}.items():
            self.send_header(name, value)
        self.send_header("request-id", new_id("req_"))
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        if step.fault is Fault.HANG:
            (step.until or self.model.closing).wait(step.seconds)
        half = len(events) // 2
        if step.fault is Fault.CUT:
            for event in events[:half]:
                self._chunk(encode(event))
            return self._break_off(encode(events[half]))
        if step.fault is Fault.BROKEN:
            events = [*events[:half], wire.broken("mock: overloaded in the middle")]
        for event in events:
            self._chunk(encode(event))
        self.wfile.write(b"0\r\n\r\n")
        return None

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def _break_off(self, data: bytes) -> None:
        """Announce a chunk, send half of it, and close."""
        self.wfile.write(b"%x\r\n%s" % (len(data), data[: len(data) // 2]))
        self.wfile.flush()
        self.close_connection = True

    def _refuse(self, refusal: Refusal, status: int) -> None:
        self._send(refusal.body, status, refusal.headers)

    def _send(
        self, body: Json, status: int = 200, headers: Mapping[str, str] | None = None, *, cut: bool = False
    ) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        own = {"content-type": "application/json", "content-length": str(len(data)), "request-id": new_id("req_")}
        for name, value in {**own, **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data[: len(data) // 2] if cut else data)
        self.close_connection = self.close_connection or cut

    def _body(self) -> bytes:
        raw = b""
        if "chunked" in self.headers.get("transfer-encoding", ""):
            while size := int(self.rfile.readline(100).split(b";")[0] or b"0", 16):
                raw += self.rfile.read(min(size, MAX_BODY_BYTES - len(raw)))
                self.rfile.readline(100)
            self.rfile.readline(100)
        else:
            raw = self.rfile.read(min(int(self.headers.get("content-length", 0)), MAX_BODY_BYTES))
        match self.headers.get("content-encoding", "").lower():
            case "gzip":
                return gzip.decompress(raw)
            case "deflate":
                return zlib.decompress(raw)
            case _:
                return raw

    def _request(self, api: str, wire: Wire | None, body: Json, text: str, step: Step | None = None) -> Request:
        tools = tuple(offer.name for offer in wire.offers(body)) if wire else ()
        return Request(
            at=time.time(),
            path=self.path,
            api=api,
            model=_model_of(body, self.path) if wire else "",
            user_text=wire.user_text(body) if wire else "",
            text=text,
            tools=tools,
            fault=step.fault if step else None,
            headers={name.lower(): value for name, value in self.headers.items()},
            is_main=bool(tools or (wire and self.model.has_no_tools)),
            inbox=self.model.list_inboxes(),
        )


class Server(ThreadingHTTPServer):
    """Serves a model on a socket that listens already."""

    daemon_threads = True

    def __init__(self, listener: socket.socket, model: Model) -> None:
        super().__init__(("127.0.0.1", 0), Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self.server_address = listener.getsockname()
        self.model = model

    def handle_error(self, request: object, client_address: object) -> None:
        """An agent that was ended closes its connections: that is not an error of the server."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


@contextmanager
def serve(model: Model, listener: socket.socket) -> Iterator[Model]:
    """Serve a model while the block runs."""
    server = Server(listener, model)
    model.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield model
    finally:
        model.closing.set()
        server.shutdown()
        server.server_close()
        thread.join(10)


def _find_name_of_ralph(prompt: str) -> str:
    named = re.search(r"`([^`]+) emit TOPIC", prompt)
    return named[1] if named else "ralph-is-not-in-the-prompt"


def _model_of(body: Json, path: str) -> str:
    named = re.search(r"models/([^:/]+):", path)
    return str(body.get("model") or (named[1] if named else "mock-model"))
