"""The server process: one per user, on this machine only unless the user says otherwise.

It holds no state of runs. Starting it twice finds the first. It can be killed at any moment.
"""

import importlib.util
import ipaddress
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ralph.app.runs import refuse_inside_a_turn
from ralph.core.errors import StateError, UsageError
from ralph.store.files import read_limited, to_bytes, to_text, write_atomic
from ralph.store.locks import Lock
from ralph.store.projects import claim_server, ensure_web_directory, find_server, register_project, web_directory
from ralph.store.runs import Project, RunDir
from ralph.web.access import AccessControl, owner_token
from ralph.web.guard import Guard, HostRules, loopback_hosts
from ralph.web.runs import FoundRun, RunIndex, Snoozes, run_key

if TYPE_CHECKING:
    import uvicorn
    from starlette.types import ASGIApp

LOOPBACK = "127.0.0.1"
_BACKLOG = 128
_END_SECONDS = 3.0
"""How long a server for one run stays after the run has ended, so that pages see the end."""


@dataclass(frozen=True)
class ServerOptions:
    """How the server is reached, and what it shows."""

    port: int | None = None
    """None for the port of the last time, or a free one."""
    bind: str = LOOPBACK
    unix: Path | None = None
    read_only: bool = False
    once: str = ""
    """The only run that is shown. The server ends with it."""
    certificate: Path | None = None
    key: Path | None = None
    behind_proxy: bool = False
    public_url: str = ""
    """The address under which users reach the server through a proxy or from other machines."""


@dataclass(frozen=True)
class Started:
    """A server that is ready."""

    address: str
    """Without the token."""
    link: str
    """With the token, to open in a browser. Empty for a Unix socket."""
    is_new: bool
    pid: int = 0
    """The process of the server that was running already."""
    ignored: tuple[str, ...] = ()
    """The options that a server that was running already does not follow."""


def serve(project: Project, options: ServerOptions, announce: Callable[[Started], object]) -> None:
    """Run the server until it is ended. If one runs already, only announce that one."""
    refuse_inside_a_turn("an agent cannot start the web server", "leave that to the user")
    _refuse_missing_packages()
    refuse_open_server(options)
    if (project.root / ".ralph" / "runs").is_dir():
        register_project(project.root)
    run = project.run(options.once) if options.once else None
    wanted = run_key(project, run) if run else ""
    address, pid = find_server()
    if address:
        announce(_describe_running(address, pid, options, wanted))
        return
    once = FoundRun(wanted, project, _refuse_ended(run)) if run else None
    with _listen(options) as listener:
        address = _address(options, listener)
        lock = None if once else claim_server(address)
        if isinstance(lock, str):
            announce(_describe_running(lock, 0, options, wanted))
            return
        if options.unix is None and options.port is None and not once:
            _keep_port(listener.getsockname()[1])
        announce(Started(address, _link(address, wanted), is_new=True))
        try:
            _run(listener, options, _rules(options, listener), once)
        finally:
            if isinstance(lock, Lock):
                lock.release()


def build_application(
    rules: HostRules, *, read_only: bool = False, once: FoundRun | None = None
) -> "tuple[ASGIApp, Callable[[], None]]":
    """The whole application with the guard around it, and the function that ends its streams."""
    from ralph.web.routes import Site

    gate = AccessControl(read_only=read_only)
    snoozes = Snoozes(ensure_web_directory() / "snoozes.json")
    site = Site(RunIndex(once), gate, snoozes, read_only=read_only)
    return Guard(site.application(), rules=rules, gate=gate), site.end_streams


def refuse_open_server(options: ServerOptions) -> None:
    """Refuse to be reached from other machines without encryption."""
    if bool(options.certificate) != bool(options.key):
        raise UsageError("--cert and --key belong together", todo="give both files")
    for file in (options.certificate, options.key):
        if file and not file.is_file():
            raise UsageError(f"there is no file {file}", where="--cert, --key", todo="name a file that exists")
    if options.public_url and urlsplit(options.public_url).scheme not in ("http", "https"):
        raise UsageError("--public-url is no address", where=options.public_url, todo="write https://HOST")
    needs_name = options.behind_proxy or not _is_loopback(options.bind)
    if not _is_loopback(options.bind) and not options.certificate and not options.behind_proxy:
        todo = "give --cert and --key, or put a proxy with TLS in front of it and pass --behind-proxy"
        raise UsageError(f"{options.bind} can be reached from other machines without encryption", todo=todo)
    if needs_name and not options.public_url:
        raise UsageError("users need a name for this server", todo="add --public-url https://HOST")
    if options.unix and (options.port is not None or options.certificate or options.bind != LOOPBACK):
        raise UsageError("--unix does not work with --port, --bind or --cert", todo="omit them")


def _refuse_missing_packages() -> None:
    missing = [name for name in ("starlette", "uvicorn") if importlib.util.find_spec(name) is None]
    if missing:
        what = f"the web page needs {' and '.join(missing)}, which this installation does not have"
        raise UsageError(what, todo="install them: pip install 'ralph-engine[web]'")


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def _describe_running(address: str, pid: int, options: ServerOptions, run: str) -> Started:
    """A server that runs already, and which options have no effect on it."""
    port = options.port if options.port and urlsplit(address).port != options.port else None
    socket_path = options.unix if options.unix and address != f"unix:{options.unix.absolute()}" else None
    given = {
        "--port": port,
        "--unix": socket_path,
        "--bind": options.bind != LOOPBACK,
        "--cert": options.certificate,
        "--behind-proxy": options.behind_proxy,
        "--public-url": options.public_url and options.public_url.rstrip("/") != address,
        "--read-only": options.read_only,
    }
    ignored = tuple(name for name, value in given.items() if value)
    return Started(address, _link(address, run), is_new=False, pid=pid, ignored=ignored)


def _refuse_ended(run: RunDir) -> RunDir:
    """Refuse to serve a run alone that has ended: the server would end at once."""
    if not run.alive:
        todo = f"`ralph web` shows it; `ralph export {run.id} --html` writes it to a file"
        raise UsageError(f"run {run.id} is not running, so the server would end at once", where="--once", todo=todo)
    return run


@contextmanager
def _listen(options: ServerOptions) -> Iterator[socket.socket]:
    """The socket on which the server listens."""
    if options.unix:
        yield from _listen_unix(options.unix)
        return
    family = socket.AF_INET6 if ":" in options.bind else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _bind(listener, options)
        # A browser may connect as soon as the link is printed. The system queues connections until the application is loaded.
        listener.listen(_BACKLOG)
        yield listener
    finally:
        listener.close()


def _bind(listener: socket.socket, options: ServerOptions) -> None:
    wanted = [options.port] if options.port is not None else [_kept_port(), 0]
    for port in wanted:
        try:
            listener.bind((options.bind, port))
        except OSError as error:
            if port == wanted[-1]:
                todo = "choose another one with --port, or omit it"
                raise UsageError(
                    f"port {port} cannot be used: {error.strerror}", where=options.bind, todo=todo
                ) from None
        else:
            return


def _listen_unix(path: Path) -> Iterator[socket.socket]:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        if path.is_socket() and not _answers(path):
            path.unlink()
        listener.bind(str(path))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise UsageError(
            f"the socket cannot be made: {error.strerror}", where=str(path), todo="choose a free path"
        ) from None
    finally:
        os.umask(before)
    try:
        yield listener
    finally:
        listener.close()
        path.unlink(missing_ok=True)


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True


def _address(options: ServerOptions, listener: socket.socket) -> str:
    if options.unix:
        return f"unix:{options.unix.absolute()}"
    if options.public_url:
        return options.public_url.rstrip("/")
    scheme = "https" if options.certificate else "http"
    host = f"[{options.bind}]" if ":" in options.bind else options.bind
    return f"{scheme}://{host}:{listener.getsockname()[1]}"


def _link(address: str, run: str = "") -> str:
    if not address.startswith("http"):
        return ""
    return f"{address}/{f'r/{run}' if run else ''}?token={owner_token()}"


def _rules(options: ServerOptions, listener: socket.socket) -> HostRules:
    if options.unix:
        return HostRules(frozenset(("localhost", LOOPBACK)), any_port=True, trusts_proxy=options.behind_proxy)
    hosts = loopback_hosts(listener.getsockname()[1]) | {urlsplit(_address(options, listener)).netloc.lower()}
    scheme = "https" if options.certificate else "http"
    return HostRules(hosts, scheme=scheme, trusts_proxy=options.behind_proxy)


def _kept_port() -> int:
    try:
        port = int(to_text(read_limited(web_directory() / "port", 20)))
    except (OSError, StateError, ValueError):
        return 0
    return port if 1024 <= port < 65536 else 0


def _keep_port(port: int) -> None:
    """Keep the port, so that links and open pages still work after a restart."""
    write_atomic(ensure_web_directory() / "port", to_bytes(f"{port}\n"), mode=0o600, durable=False)


def _run(listener: socket.socket, options: ServerOptions, rules: HostRules, once: FoundRun | None) -> None:
    import uvicorn

    application, end_streams = build_application(rules, read_only=options.read_only, once=once)
    config = uvicorn.Config(
        application,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="off",
        ws="none",
        http="h11",
        timeout_graceful_shutdown=1,
        h11_max_incomplete_event_size=32 * 1024,
        ssl_certfile=str(options.certificate) if options.certificate else None,
        ssl_keyfile=str(options.key) if options.key else None,
    )
    server = uvicorn.Server(config)
    # uvicorn raises the signal again after its shutdown, which would leave the socket file behind.
    server.capture_signals = partial(_end_on_signals, server, end_streams)  # type: ignore[method-assign]
    if once:
        threading.Thread(target=_end_with, args=(once,), daemon=True).start()
    server.run(sockets=[listener])


@contextmanager
def _end_on_signals(server: "uvicorn.Server", end_streams: Callable[[], None]) -> Iterator[None]:
    """End the server with SIGINT and SIGTERM. A stream that uvicorn had to cut off would print a traceback."""

    def end(number: int, stack: FrameType | None) -> None:
        server.handle_exit(number, stack)
        end_streams()

    ends = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, end) for number in ends}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end_with(once: FoundRun) -> None:
    """End this process some seconds after its run, as the user would."""
    while once.run.alive:
        time.sleep(0.5)
    time.sleep(_END_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)
