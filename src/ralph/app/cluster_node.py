"""Keeps one Ray node running on this machine: if it ends because the cluster was lost, it is started again.

Ray ends a node whose head is gone for about a minute. Started again, the node joins the next head at the same address.
`ralph workers start` runs this program with the command line of `ray start`.
"""

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

READY = "Ray runtime started"
"""What Ray prints when a node runs."""
_PAUSE_SECONDS = 5.0
_GIVE_UP_SECONDS = 600.0
"""How long a node tries to join again."""


def main() -> int:
    """Run a node: `cluster_node LOG COMMAND...`. Its output goes to the log, which is also standard output."""
    log, command = Path(sys.argv[1]), sys.argv[2:]
    code, was_ready = _run_node(log, command)
    if not was_ready:
        return code
    deadline = time.monotonic() + _GIVE_UP_SECONDS
    while time.monotonic() < deadline:
        with log.open("a") as file:
            file.write("ralph: the node has ended; starting it again\n")
        time.sleep(_PAUSE_SECONDS)
        code, was_ready = _run_node(log, command)
        if was_ready:
            deadline = time.monotonic() + _GIVE_UP_SECONDS
    return code


def _run_node(log: Path, command: Sequence[str]) -> tuple[int, bool]:
    """Run a node to its end; return its exit code, and whether it was ready before."""
    start = log.stat().st_size
    code = subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode
    with log.open("rb") as file:
        file.seek(start)
        return code, READY.encode() in file.read()


if __name__ == "__main__":
    sys.exit(main())
