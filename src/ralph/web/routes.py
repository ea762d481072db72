"""The routes of the server: the page, JSON to read, actions, and streams. Errors are JSON with what, where and what to do."""

import asyncio
import hashlib
import json
import os
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import islice
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from ralph import __version__
from ralph.app.changes import diff_run
from ralph.app.export import export_html
from ralph.app.reports import list_documents
from ralph.core.codec import parse_json_object
from ralph.core.errors import LockedError, RalphError, StateError, UsageError
from ralph.core.text import clean_text, show_directions
from ralph.documents.diff import parse_diff
from ralph.store.files import open_regular, to_bytes
from ralph.store.journal import read_raw
from ralph.store.projects import name_project
from ralph.view import labels
from ralph.view.ansi import split_colors
from ralph.view.json_form import to_json, view_schema
from ralph.web.access import PROOF_SECONDS, AccessControl, Role, User, has_passphrase
from ralph.web.actions import GUARDED_ACTIONS, OPEN_ACTIONS, describe_plan, plan_new_run, read_text, start_new_run
from ralph.web.feed import Feeds, StreamPosition, find_turn, shorten_event
from ralph.web.rows import RowsFeed, parse_filter, show_row
from ralph.web.runs import FoundRun, NoSuchRunError, RunIndex, Snoozes

STATIC = Path(__file__).parent / "static"
PAGE_ROWS = 100
RANGE_LINES, RANGE_BYTES, RAW_BYTES = 500, 256 * 1024, 64 * 1024
_TYPES = {".js": "text/javascript", ".css": "text/css", ".html": "text/html", ".svg": "image/svg+xml"}
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
Handler = Callable[[Request], Awaitable[Response]]


class Site:
    """What the routes share."""

    def __init__(self, index: RunIndex, gate: AccessControl, snoozes: Snoozes, *, read_only: bool = False) -> None:
        self.index, self.gate, self.snoozes, self.read_only = index, gate, snoozes, read_only
        self.feeds = Feeds()
        self.rows = RowsFeed(index, snoozes)
        self._done: dict[str, dict[str, Any]] = {}
        """The results of actions by idempotency key: a request that is sent twice acts once."""

    def application(self) -> Starlette:
        """The application, without the guard around it."""
        read, act = self._read, self._act
        routes = [
            Route("/healthz", _healthz),
            Route("/api/me", read(self.me)),
            Route("/api/runs", read(self.runs)),
            Route("/api/runs/{key}", read(self.view)),
            Route("/api/runs/{key}/turns/{turn:int}/events", read(self.turn_events)),
            Route("/api/runs/{key}/turns/{turn:int}/prompt", read(self.prompt)),
            Route("/api/runs/{key}/turns/{turn:int}/raw", read(self.raw_output)),
            Route("/api/runs/{key}/output", read(self.output)),
            Route("/api/runs/{key}/journal", read(self.journal)),
            Route("/api/runs/{key}/diff", read(self.diff)),
            Route("/api/runs/{key}/documents", read(self.documents)),
            Route("/api/runs/{key}/documents/{path:path}", read(self.document)),
            Route("/api/export/{key}.html", read(self.export)),
            Route("/api/schema", read(lambda request: view_schema())),
            Route("/api/stream", self.stream),
            Route("/api/unlock", act(self.unlock), methods=["POST"]),
            Route("/api/runs", act(self.start), methods=["POST"]),
            Route("/api/runs/{key}/snooze", act(self.snooze), methods=["POST"]),
            Route("/api/runs/{key}/{action}", act(self.action), methods=["POST"]),
            Route("/api/{rest:path}", _no_route),
            Route("/static/{path:path}", _static),
            Route("/", _page),
            Route("/runs", _page),
            Route("/new", _page),
            Route("/r/{key}", _page),
            Route("/r/{key}/{tab}", _page),
            Route("/{rest:path}", _no_page),
        ]
        return Starlette(routes=routes)

    def end_streams(self) -> None:
        """End all streams, so that the server can end without cutting them off."""
        self.feeds.end()
        self.rows.end()

    def _read(self, function: Callable[[Request], Any]) -> Handler:
        """A route that reads: the function runs in a thread, because it reads files."""

        async def handle(request: Request) -> Response:
            try:
                result = await asyncio.to_thread(function, request)
            except (RalphError, OSError) as error:
                return error_response(error)
            return result if isinstance(result, Response) else json_response(result)

        return handle

    def _act(self, function: Callable[[Request, dict[str, Any]], Any]) -> Handler:
        """A route that changes something. The body is a JSON object."""

        async def handle(request: Request) -> Response:
            try:
                body = json.loads(await request.body() or b"{}")
                if not isinstance(body, dict):
                    raise UsageError("the body is not a JSON object", todo="send an object")
                result = await asyncio.to_thread(function, request, body)
            except (ValueError, RecursionError) as error:
                return error_response(UsageError(f"the body is not JSON: {error}", todo="send a JSON object"))
            except (RalphError, OSError) as error:
                return error_response(error)
            return result if isinstance(result, Response) else json_response(result)

        return handle

    # What can be read

    def me(self, request: Request) -> dict[str, Any]:
        """Who the user is, and what they may do."""
        user = user_of(request)
        projects = [
            {"name": project.root.name, "root": str(project.root), "key": name_project(project.root)}
            for project in self.index.projects()
        ]
        return {
            "name": user.login or user.token,
            "role": user.role,
            "read_only": self.read_only,
            "has_passphrase": has_passphrase(),
            "version": __version__,
            "projects": projects,
            "can_start": self.index.shows_all,
            "groups": labels.GROUPS,
        }

    def runs(self, request: Request) -> Response:
        """The rows of the inbox, 100 a page."""
        query = request.query_params
        named = [f"{name}:{query[name]}" for name in ("state", "project") if query.get(name)]
        wanted = parse_filter(" ".join((query.get("q", ""), *named)))
        snoozed = self.snoozes.read()
        rows = [
            show_row(found, row, snoozed)
            for found, row in self.index.rows()
            if wanted.accepts(row, found.project.root.name)
        ]
        rows = put_snoozed_last(rows)
        cursor = _number(request.query_params.get("cursor", "0"), "cursor")
        page = rows[cursor : cursor + PAGE_ROWS]
        counts: dict[str, int] = {}
        for row in rows:
            counts[row["group"]] = counts.get(row["group"], 0) + 1
        more = cursor + PAGE_ROWS if len(rows) > cursor + PAGE_ROWS else None
        return tagged_response(
            request, {"rows": page, "counts": counts, "total": len(rows), "cursor": more, "version": self.rows.version}
        )

    def view(self, request: Request) -> Response:
        """The view of a run, now or at a line of its journal."""
        found = self.find(request)
        at = request.query_params.get("at")
        view = self.index.view(found, None if at is None else _number(at, "at"))
        now = time.time()
        data = {
            **to_json(view),
            "key": found.key,
            "project_name": found.project.root.name,
            "can_go_on": found.run.can_go_on,
            "now": now,
            "display": labels.describe_view(view, now),
        }
        return json_response(data)

    def turn_events(self, request: Request) -> dict[str, Any]:
        """The events of a turn from one on, 500 at most."""
        found, turn = self.find(request), int(request.path_params["turn"])
        first = max(1, _number(request.query_params.get("from", "1"), "from"))
        directory = find_turn(found.run.path, turn)
        events: list[dict[str, Any]] = []
        count = size = 0
        path = directory / "events.jsonl" if directory else None
        for _, line in read_raw(path) if path and path.exists() else ():
            count += 1
            if count < first or len(events) >= RANGE_LINES or size > RANGE_BYTES:
                continue
            events.append({"turn": turn, "index": count, **shorten_event(line)})
            size += len(events[-1]["text"])
        return {"turn": turn, "events": events, "total": count}

    def prompt(self, request: Request) -> dict[str, Any]:
        """The prompt of a turn."""
        directory = find_turn(self.find(request).run.path, int(request.path_params["turn"]))
        if directory is None:
            raise NoSuchRunError("there is no such turn", todo="choose another turn")
        return _read_range(directory / "prompt.md", 0)

    def raw_output(self, request: Request) -> dict[str, Any]:
        """The end of what the program of a turn printed, in parts with their colors."""
        directory = find_turn(self.find(request).run.path, int(request.path_params["turn"]))
        if directory is None:
            raise NoSuchRunError("there is no such turn", todo="choose another turn")
        return {name: _read_end(directory / name) for name in ("stdout", "stderr")}

    def output(self, request: Request) -> dict[str, Any]:
        """The whole output of a check, a range at a time."""
        found, log = self.find(request), request.query_params.get("log", "")
        parts = log.split("/")
        if len(parts) != 3 or parts[0] != "checks" or parts[2] != "stdout" or parts[1] in ("", ".", ".."):
            raise NoSuchRunError("there is no such output", where=log[:200], todo="use the `log` of a check")
        directory = found.run.path / "checks" / parts[1]
        if directory.is_symlink():
            raise NoSuchRunError("there is no such output", where=log[:200], todo="use the `log` of a check")
        return _read_range(directory / "stdout", _number(request.query_params.get("offset", "0"), "offset"))

    def journal(self, request: Request) -> dict[str, Any]:
        """Lines of the journal from one to another, 500 at most, or only those of one type."""
        path, query = self.find(request).run.path / "journal.jsonl", request.query_params
        first, last = _number(query.get("from", "1"), "from"), _number(query.get("to", "99999999999"), "to")
        kind, size = query.get("type", ""), 0
        lines: list[dict[str, Any]] = []
        with os.fdopen(open_regular(path, os.O_RDONLY), "rb") as file:
            # The lines are counted, and only those that are asked for are parsed.
            for line in islice(file, max(0, first - 1), last):
                found = parse_json_object(line) if line.endswith(b"\n") else {}
                if not found or (kind and found.get("type") != kind):
                    continue
                size += len(line)
                if len(lines) == RANGE_LINES or size > RANGE_BYTES:
                    return {"lines": lines, "next": found.get("seq")}
                lines.append(found)
        return {"lines": lines, "next": None}

    def export(self, request: Request) -> Response:
        """The run as one page that needs no network."""
        found = self.find(request)
        name = f'attachment; filename="ralph-{found.run.id}.html"'
        return Response(
            to_bytes(export_html(found.project, found.run)),
            media_type="text/html",
            headers={"content-disposition": name},
        )

    def documents(self, request: Request) -> dict[str, Any]:
        """The documents of a run: reports, and the files of its session or loop."""
        found = self.find(request)
        listed = []
        for path in list_documents(found.project, found.run):
            status = path.stat()
            name = path.relative_to(found.project.root).as_posix()
            listed.append({"path": name, "size": status.st_size, "changed_at": status.st_mtime})
        return {"documents": listed}

    def document(self, request: Request) -> dict[str, Any]:
        """One of these documents, a range at a time. Nothing else can be read, whatever the path says."""
        found, name = self.find(request), request.path_params["path"]
        for path in list_documents(found.project, found.run):
            if path.relative_to(found.project.root).as_posix() == name:
                return {"path": name, **_read_range(path, _number(request.query_params.get("offset", "0"), "offset"))}
        raise NoSuchRunError("there is no such document", where=clean_text(name)[:200], todo="choose one of the list")

    def diff(self, request: Request) -> dict[str, Any]:
        """What a run, one of its turns or one of its tasks changed, as files, hunks and lines."""
        found, query = self.find(request), request.query_params
        turn, task = query.get("turn"), query.get("task", "")
        ignores_space = query.get("space") == "ignore"
        number = _number(turn, "turn") if turn else None
        found_diff = diff_run(found.project, found.run, number, task=task, ignores_space=ignores_space)
        return {"old": found_diff.old, "new": found_diff.new, "files": parse_diff(found_diff.text)}

    def find(self, request: Request) -> FoundRun:
        """The run that a request is about."""
        return self.index.find(request.path_params["key"])

    # What changes something

    def unlock(self, request: Request, body: dict[str, Any]) -> Response | dict[str, Any]:
        """Exchange the passphrase for a proof that holds for 15 minutes."""
        user, client = user_of(request), request.client.host if request.client else "socket"
        if refusal := self._refuse(user):
            return refusal
        if not has_passphrase():
            return json_error(403, "no passphrase is set", "set one in a terminal: `ralph web passphrase`")
        if self.gate.passphrase_failures.is_locked(client):
            return json_error(429, "too many wrong passphrases", "wait for 15 minutes")
        proof = self.gate.unlock(user, client, read_text(body, "passphrase", most=1000))
        if not proof:
            return json_error(403, "that is not the passphrase", "try again; `ralph web passphrase` sets another")
        return {"proof": proof, "seconds": PROOF_SECONDS}

    def start(self, request: Request, body: dict[str, Any]) -> Response | dict[str, Any]:
        """Show what a run would do, or start it. Only the start needs the passphrase."""
        user = user_of(request)
        if refusal := self._refuse(user):
            return refusal
        if not self.index.shows_all:
            return json_error(403, "this server is for one run", "start `ralph web` without --once")
        is_dry = body.get("dry_run", True)
        if not isinstance(is_dry, bool):
            raise UsageError("`dry_run` is true or false", where="dry_run", todo="send one of them")
        if not is_dry and (refusal := self._refuse_without_proof(request)):
            return refusal
        wanted = read_text(body, "project", most=100, required=True)
        project = next((one for one in self.index.projects() if name_project(one.root) == wanted), None)
        if project is None:
            raise NoSuchRunError("there is no such project", where=wanted, todo="use a key of `projects` in /api/me")
        new = plan_new_run(project, user, body)
        if is_dry:
            return describe_plan(new)
        once = request.headers.get("idempotency-key", "")[:100]
        return self._act_once(user, once, lambda: start_new_run(new, body))

    def snooze(self, request: Request, body: dict[str, Any]) -> Response | dict[str, Any]:
        """Put a run aside for some minutes."""
        if refusal := self._refuse(user_of(request)):
            return refusal
        minutes = body.get("minutes", 60)
        if isinstance(minutes, bool) or not isinstance(minutes, int | float) or not 0 <= minutes <= 7 * 24 * 60:
            raise UsageError("`minutes` is a number from 0 to 10080", where="minutes", todo="send a number")
        self.snoozes.set(self.find(request).key, float(minutes))
        return {"minutes": minutes}

    def action(self, request: Request, body: dict[str, Any]) -> Response | dict[str, Any]:
        """Do something with a run."""
        user, name = user_of(request), request.path_params["action"]
        function = OPEN_ACTIONS.get(name) or GUARDED_ACTIONS.get(name)
        if function is None:
            return json_error(404, f"there is no action {clean_text(name)[:40]!r}")
        if refusal := self._refuse(user):
            return refusal
        if name in GUARDED_ACTIONS and (refusal := self._refuse_without_proof(request)):
            return refusal
        found = self.find(request)
        once = request.headers.get("idempotency-key", "")[:100]
        return self._act_once(user, once, lambda: function(found, user, body))

    def _act_once(self, user: User, once: str, act: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Act, unless a request with the same idempotency key did so already."""
        if once and (known := self._done.get(f"{user.token} {once}")):
            return known
        result = act()
        if once:
            if len(self._done) > 1000:
                self._done.clear()
            self._done[f"{user.token} {once}"] = result
        return result

    def _refuse_without_proof(self, request: Request) -> Response | None:
        if self.gate.has_proof(user_of(request), request.headers.get("x-ralph-proof", "")):
            return None
        if not has_passphrase():
            todo = "set one in a terminal: `ralph web passphrase`"
            return json_error(403, "this needs a passphrase, and none is set", todo, code="no-passphrase")
        return json_error(403, "this needs the passphrase", "type it", code="passphrase")

    def _refuse(self, user: User) -> Response | None:
        if self.read_only:
            return json_error(403, "this server is read-only", "start `ralph web` without --read-only")
        if user.role is not Role.ADMIN:
            return json_error(403, f"the token {user.token!r} may only view", "use a token with the role admin")
        return None

    # Streams

    async def stream(self, request: Request) -> Response:
        """What happens in a run, or in the list of runs, as server-sent events."""
        seen = request.headers.get("last-event-id", "")
        try:
            if key := request.query_params.get("run"):
                found = await asyncio.to_thread(self.index.find, key)
                feed = self.feeds.get(found.run.path)
                events: AsyncIterator[bytes] = feed.watch(StreamPosition.parse(seen) if seen else None)
            else:
                events = self.rows.watch(seen)
        except (RalphError, OSError) as error:
            return error_response(error)
        return StreamingResponse(events, media_type="text/event-stream", headers={"x-accel-buffering": "no"})


def put_snoozed_last(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows that the user put aside are waiting, at the end of that group."""
    awake = [row for row in rows if not row["snoozed_until"]]
    asleep = [{**row, "group": "waiting"} for row in rows if row["snoozed_until"]]
    at = sum(row["group"] != "done" for row in awake)
    return [*awake[:at], *asleep, *awake[at:]]


def user_of(request: Request) -> User:
    """Who sends a request, as the guard found out."""
    user: User = request.state.user
    return user


def _number(text: str, name: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 12):
        raise UsageError(f"`{name}` is a number, not {text[:40]!r}", where=name, todo="send digits")
    return int(text)


def _read_range(path: Path, offset: int) -> dict[str, Any]:
    """A part of a text file of a run, without control characters that are not layout."""
    with os.fdopen(open_regular(path, os.O_RDONLY), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(offset)
        data = file.read(RANGE_BYTES)
    text = clean_text(data.decode(errors="replace"))
    following = offset + len(data)
    return {"text": text, "offset": offset, "next": following if following < size else None, "size": size}


def _read_end(path: Path) -> dict[str, Any]:
    """The end of the output of a program, from a line break on."""
    try:
        descriptor = open_regular(path, os.O_RDONLY)
    except FileNotFoundError:
        return {"parts": [], "left_out": 0}
    with os.fdopen(descriptor, "rb") as file:
        left_out = max(0, os.fstat(descriptor).st_size - RAW_BYTES)
        file.seek(left_out)
        data = file.read(RAW_BYTES)
    if left_out:
        first, _, data = data.partition(b"\n")
        left_out += len(first) + 1
    return {"parts": split_colors(data.decode(errors="replace")), "left_out": left_out}


def json_response(data: Any, status: int = 200) -> Response:
    """JSON with the version of its form."""
    if isinstance(data, dict):
        data = {"schema": 1, **data}
    return JSONResponse(clean_texts(data), status)


def clean_texts(data: Any) -> Any:
    """The data without escapes of terminals, and with marks for characters that change the direction of a text.

    Tasks, titles, code and names of files can have them.
    """
    if isinstance(data, str):
        return show_directions(clean_text(data)) if _CONTROL.search(data) else data
    if isinstance(data, dict):
        return {name: clean_texts(value) for name, value in data.items()}
    if isinstance(data, list | tuple):
        return [clean_texts(value) for value in data]
    return data


def tagged_response(request: Request, data: dict[str, Any]) -> Response:
    """JSON with an ETag; only the status if the page has it already."""
    body = json.dumps(clean_texts({"schema": 1, **data})).encode()
    tag = f'"{hashlib.sha256(body).hexdigest()[:24]}"'
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers={"etag": tag})
    return Response(body, media_type="application/json", headers={"etag": tag})


def json_error(status: int, what: str, todo: str = "", *, where: str = "", code: str = "") -> Response:
    """An error as JSON."""
    return json_response({"error": {"what": what, "where": where, "todo": todo, "code": code}}, status)


def error_response(error: RalphError | OSError) -> Response:
    """The error of a use case as JSON."""
    if isinstance(error, FileNotFoundError):
        return json_error(404, "this no longer exists", "go back to the inbox")
    if isinstance(error, OSError):
        return json_error(500, error.strerror or "a file cannot be read", where=str(error.filename or ""))
    status = 400
    if isinstance(error, NoSuchRunError):
        status = 404
    elif isinstance(error, LockedError):
        status = 409
    elif isinstance(error, StateError):
        status = 422
    return json_error(status, clean_text(error.what), clean_text(error.todo), where=clean_text(error.where))


async def _healthz(request: Request) -> Response:
    return json_response({"ok": True})


async def _no_route(request: Request) -> Response:
    return json_error(404, "there is nothing at this address", "docs/web.md lists the addresses")


async def _no_page(request: Request) -> Response:
    """The page at an address that it does not know. It says so, and shows the way back."""
    return FileResponse(STATIC / "index.html", 404, media_type="text/html", headers={"cache-control": "no-cache"})


async def _page(request: Request) -> Response:
    return FileResponse(STATIC / "index.html", media_type="text/html", headers={"cache-control": "no-cache"})


def _static_files() -> dict[str, Path]:
    return {path.relative_to(STATIC).as_posix(): path for path in STATIC.rglob("*") if path.suffix in _TYPES}


async def _static(request: Request) -> Response:
    """A file of the page. Only files that were there when the server started can be served."""
    path = STATIC_FILES.get(request.path_params["path"])
    if path is None:
        return json_error(404, "there is no such file")
    return FileResponse(path, media_type=_TYPES[path.suffix], headers={"cache-control": "no-cache"})


STATIC_FILES = _static_files()
