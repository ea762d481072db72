"""The server is killed at random while a run works: the run does the same as without it."""

import http.client
import json
import os
import random
import signal
import subprocess
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from web_server import Server, make_project, serving, wait_until

TURNS = 4
CHANGES = "".join(
    f"""
  - when: {{turn: {number}}}
    steps:
      - say: Turn {number} begins.
      - sleep: 0.5
      - write: {{path: value.txt, content: "{"right" if number == TURNS else f"value {number}"}\\n"}}
      - answer: {{status: partial, summary: Wrote value {number}.}}"""
    for number in range(1, TURNS + 1)
)
SCENARIO = f"turns:{CHANGES}\n"


def read_facts(line: dict[str, Any]) -> tuple[Any, ...]:
    """What a journal line says, without times, ids and hashes, which no two runs share."""
    facts = [
        line["type"],
        *(line.get(name) for name in ("key", "role", "turn", "attempt", "outcome", "reason", "text")),
    ]
    if line["type"] == "turn.ended":
        result = line["result"]
        facts += [result["end"], result["answer"], result["change"]["names"]]
    if line["type"] == "checks.ended":
        facts += [(result["status"], result["code"], result["output"]) for result in line["verdict"]["results"]]
    return tuple(facts)


def wait_for_end(root: Path) -> list[dict[str, Any]]:
    def look() -> list[dict[str, Any]] | None:
        [path] = (root / ".ralph" / "runs").glob("*/journal.jsonl")
        lines = [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]
        return lines if lines and lines[-1]["type"] == "run.ended" else None

    found: list[dict[str, Any]] = wait_until(look)
    return found


def follow(server: Server, key: str, stopped: threading.Event) -> None:
    """A page that streams the run until its server dies."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    with suppress(OSError, http.client.HTTPException):
        connection.request("GET", f"/api/stream?run={key}", headers={"Authorization": f"Bearer {server.token}"})
        response = connection.getresponse()
        while not stopped.is_set() and response.read(256):
            pass
    connection.close()


def run_beside_killed_servers(root: Path, state: Path, chance: random.Random) -> list[dict[str, Any]]:
    """Start a loop, then kill one server after the other until the run is over."""
    key = ""
    stopped = threading.Event()
    while not key or not (is_over := has_ended(root)):
        with serving(root, state) as server:
            key = key or server.start_loop(SCENARIO)
            viewer = threading.Thread(target=follow, args=(server, key, stopped), daemon=True)
            viewer.start()
            with suppress(subprocess.TimeoutExpired):
                server.process.wait(chance.uniform(0.05, 0.8))
            os.kill(server.process.pid, signal.SIGKILL)
    stopped.set()
    assert is_over
    return wait_for_end(root)


def has_ended(root: Path) -> bool:
    return any('"run.ended"' in path.read_text() for path in (root / ".ralph" / "runs").glob("*/journal.jsonl"))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_a_run_does_the_same_if_the_server_is_killed_at_random(tmp_path: Path, seed: int) -> None:
    alone, watched = make_project(tmp_path / "alone"), make_project(tmp_path / "watched")
    with serving(alone, tmp_path / "state-alone") as server:
        server.start_loop(SCENARIO)
        expected = wait_for_end(alone)
    found = run_beside_killed_servers(watched, tmp_path / "state", random.Random(seed))
    assert [read_facts(line) for line in found] == [read_facts(line) for line in expected]
    assert found[-1]["outcome"] == "success" and (watched / "value.txt").read_text() == "right\n"
