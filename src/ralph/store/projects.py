"""The user's projects and their web server, both in the user's state directory.

One page can show the runs of all projects in which this user has used Ralph. Each project is one small file that holds its
path. A project that was moved or deleted drops out. The lock of the web server says that it runs, and holds its address.
"""

import hashlib
import os
from pathlib import Path

from ralph.core.errors import RalphError
from ralph.store import locks
from ralph.store.files import read_limited, to_bytes, to_text, write_atomic
from ralph.store.runs import Project
from ralph.store.user_state import ensure_state_directory, state_directory

_KEY_DIGITS = 10
_PATH_LIMIT = 16 * 1024


def name_project(root: Path) -> str:
    """The short name of a project in links: it stays the same for a path."""
    return hashlib.sha256(os.fsencode(root)).hexdigest()[:_KEY_DIGITS]


def register_project(root: Path) -> None:
    """Remember a project. Nothing depends on it but the list of projects, so a state directory that is full is no error."""
    path = _directory() / name_project(root)
    if path.exists():
        return
    try:
        ensure_state_directory()
        path.parent.mkdir(exist_ok=True, mode=0o700)
        write_atomic(path, to_bytes(f"{root}\n"), mode=0o600, durable=False)
    except (RalphError, OSError):
        return


def list_registered_projects() -> list[Project]:
    """The projects that still have runs, by path."""
    found = []
    try:
        names = sorted(entry.name for entry in os.scandir(_directory()))
    except OSError:
        return []
    for name in names:
        try:
            root = Path(to_text(read_limited(_directory() / name, _PATH_LIMIT)).rstrip("\n"))
        except (RalphError, OSError):
            continue
        if name_project(root) == name and (root / ".ralph" / "runs").is_dir():
            found.append(Project(root))
    return sorted(found, key=lambda project: str(project.root))


def _directory() -> Path:
    return state_directory() / "projects"


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


def find_server() -> tuple[str, int]:
    """The address of the web server that runs, without a token, and its process; empty if there is none."""
    path = web_directory() / "server.lock"
    if not locks.is_held(path):
        return "", 0
    holder = locks.read_holder(path)
    pid = holder.get("pid", 0)
    return str(holder.get("address", "")), pid if isinstance(pid, int) else 0


def run_address(root: Path, run: str) -> str:
    """The address of a run's page; empty if no web server runs."""
    address, _ = find_server()
    if not address.startswith("http"):
        return ""
    return f"{address}/r/{run}@{name_project(root)}"
