"""Measures what a turn on a Ray cluster costs beside a turn on this machine, and what many at once need.

python bench/cluster.py                 the time per turn of a loop, on both pools
python bench/cluster.py --at-once 20    also so many turns at once: time until all run, and memory of their workers

The cluster is started on this machine and stopped afterwards, so both share its cores.
"""

import argparse
import asyncio
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ralph.documents.run_record import PoolSpec
from ralph.workspace.cluster_client import ClusterClient

RALPH = [sys.executable, "-P", "-m", "ralph"]
AGENT = "#!/bin/sh\ncat > /dev/null\nread n < count\necho $((n + 1)) > count\n"


def main() -> None:
    """Start a cluster, measure, stop it."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--turns", type=int, default=10)
    options.add_argument("--at-once", type=int, default=0)
    asked = options.parse_args()
    home = Path(tempfile.mkdtemp(prefix="rb", dir="/tmp"))
    os.environ.update(XDG_STATE_HOME=str(home / "state"), XDG_CONFIG_HOME=str(home / "config"), RAY_TMPDIR=str(home))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    port = address.rpartition(":")[2]
    start = ("workers", "start", "--head", "--host", "127.0.0.1", "--port", port, "--cpus", "1000", "--name", "bench")
    try:
        subprocess.run([*RALPH, *start, "--home", str(home / "worker")], check=True, stdout=subprocess.DEVNULL)
        local, ray = (time_turn(home / pool, pool, asked.turns) for pool in ("local", address))
        print(f"a turn on this machine      {local:6.2f} s")
        print(f"a turn on the cluster       {ray:6.2f} s   ({ray - local:+.2f} s)")
        if asked.at_once:
            asyncio.run(start_many(address, home, asked.at_once))
    finally:
        subprocess.run([*RALPH, "workers", "stop"], check=False, stdout=subprocess.DEVNULL)
        shutil.rmtree(home, ignore_errors=True)


def time_turn(place: Path, pool: str, turns: int) -> float:
    """Seconds for one iteration of a loop whose agent does nearly nothing, without the start and the end of the run."""
    few = time_loop(place.with_name(f"{place.name}-1"), pool, 1)
    return (time_loop(place.with_name(f"{place.name}-n"), pool, turns + 1) - few) / turns


def time_loop(place: Path, pool: str, turns: int) -> float:
    place.mkdir()
    (place / "agent.sh").write_text(AGENT)
    (place / "agent.sh").chmod(0o755)
    (place / "count").write_text("0\n")
    for words in ("init -q", "add -A", "-c user.name=b -c user.email=b@b commit -q -m first"):
        subprocess.run(["git", *words.split()], cwd=place, check=True)
    until = f"`test $(cat count) -ge {turns}` passes"
    command = ("loop", "count", "--until", until, "--agent-command", "./agent.sh", "--max-iterations", str(turns + 5))
    options = ("--pool", pool, "--no-clean-room", "--sandbox", "off", "--on-stuck", "continue", "--yes")
    began = time.perf_counter()
    subprocess.run([*RALPH, *command, *options], cwd=place, stdout=subprocess.DEVNULL, check=False)
    seconds = time.perf_counter() - began
    if int((place / "count").read_text()) < turns:
        raise SystemExit(f"the loop in {place} did not finish")
    return seconds


async def start_many(address: str, home: Path, count: int) -> None:
    """Start so many workers at once, and measure them."""
    cluster = ClusterClient(PoolSpec("ray", address), home / "cluster.log")
    names = [f"bench/{number}" for number in range(count)]
    try:
        began = time.perf_counter()
        for name in names:
            await cluster.create(name, {"CPU": 1.0})
        facts = await asyncio.gather(*(cluster.call(name, "describe") for name in names))
        seconds = time.perf_counter() - began
        memory = sum(read_private_memory(int(one["pid"])) for one in facts)
        print(f"{count} workers at once        {seconds:6.2f} s   ({seconds / count:.2f} s each)")
        print(f"their memory                {memory / count / 1e6:6.0f} MB each, shared pages counted once")
        for name in names:
            await cluster.kill(name)
    finally:
        await cluster.close()


def read_private_memory(pid: int) -> int:
    """The memory of a process in bytes, with its share of what it shares with others."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


if __name__ == "__main__":
    main()
