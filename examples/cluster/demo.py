"""A session with six parallel tasks on a Ray cluster of two workers, which this program starts and stops.

Everything is on this machine and real: Ray, git, the sandbox, the processes. Only the agent is scripted. `--keep DIR` makes
the project there, and keeps it.
"""

import argparse
import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
RALPH = [sys.executable, "-P", "-m", "ralph"]
AGENT = shlex.join([sys.executable, "-I", str(HERE / "agent.py")])


def main() -> int:
    """Start the cluster, run the session, show where each task ran, and stop the cluster."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, metavar="DIR", help="make the project there, and keep it")
    keep = parser.parse_args().keep
    # A short path: Ray puts Unix sockets below it.
    home = Path(tempfile.mkdtemp(prefix="rd", dir="/tmp"))
    os.environ.update(XDG_STATE_HOME=str(home / "state"), XDG_CONFIG_HOME=str(home / "config"), RAY_TMPDIR=str(home))
    try:
        address = f"127.0.0.1:{find_free_port()}"
        start_workers(address, home)
        return run_session(address, keep.resolve() if keep else home / "project")
    finally:
        ralph("workers", "stop")
        shutil.rmtree(home, ignore_errors=True)


def find_free_port() -> int:
    """A port on which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start_workers(address: str, home: Path) -> None:
    """A head that runs no turns, and two workers with different labels."""
    host, port = address.split(":")
    ralph("workers", "start", "--head", "--host", host, "--port", port, "--cpus", "0", "--name", "head")
    for name, label in (("oak", "small"), ("elm", "big")):
        where = ("--host", host, "--name", name, "--label", label, "--home", str(home / name))
        ralph("workers", "start", "--join", address, "--cpus", "3", *where)
    ralph("workers", "--pool", address)


def run_session(address: str, project: Path) -> int:
    """Run the session in a new project, and print where each task ran."""
    project.mkdir(parents=True)
    for command in ("init -q -b main", "config user.name Demo", "config user.email demo@example.org"):
        subprocess.run(["git", *command.split()], cwd=project, check=True)
    (project / "README.md").write_text("A project for the demonstration.\n")
    subprocess.run(["git", "add", "-A"], cwd=project, check=True)
    subprocess.run(["git", "commit", "-q", "-m", "First"], cwd=project, check=True)
    options = ("--agent-command", AGENT, "--pool", address, "--parallel", "6", "--yes")
    code = ralph("session", "new", "Make six files", *options, cwd=project)
    run = next((project / ".ralph" / "runs").iterdir()).name
    shown = subprocess.run([*RALPH, "status", run, "--json"], cwd=project, capture_output=True, text=True, check=True)
    print("\nWhere each task ran:")
    for turn in json.loads(shown.stdout)["view"]["turns"]:
        if turn["role"] == "executor":
            print(f"  {turn['task']:<8} turn {turn['number']:<3} on {turn['place']}")
    print()
    subprocess.run(["git", "log", "--oneline", "-8"], cwd=project, check=True)
    return code


def ralph(*words: str, cwd: Path | None = None) -> int:
    """Type a command, and show it."""
    print(f"\n$ ralph {shlex.join(words)}", flush=True)
    return subprocess.run([*RALPH, *words], cwd=cwd, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
