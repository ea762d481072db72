"""Where the web server of this user is. The lock says that it runs, and holds its address."""

import os
from pathlib import Path

from ralph.store import locks
from ralph.store.projects import name_project
from ralph.store.user_state import ensure_state_directory, state_directory


def web_directory() -> Path:
    """The directory of the web server's state. It may not exist yet."""
    return state_directory() / "web"


def ensure_web_directory() -> Path:
    """Create the directory of the web server's state if it is missing, closed to others."""
    ensure_state_directory()
    directory = web_directory()
    directory.mkdir(exist_ok=True, mode=0o700)
    return directory


def claim_server(address: str) -> locks.Lock | str:
    """Become the one web server of this user, or get the address of the one that runs."""
    taken = locks.acquire(ensure_web_directory() / "server.lock", {"pid": os.getpid(), "address": address})
    return taken if isinstance(taken, locks.Lock) else str(taken.get("address", ""))


def find_server_address() -> str:
    """The address of the web server that runs, without a token; empty if there is none."""
    path = web_directory() / "server.lock"
    if not locks.is_held(path):
        return ""
    return str(locks.read_holder(path).get("address", ""))


def run_address(root: Path, run: str) -> str:
    """The address of a run's page; empty if no web server runs."""
    address = find_server_address()
    if not address.startswith("http"):
        return ""
    return f"{address}/r/{run}@{name_project(root)}"
