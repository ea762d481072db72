"""An agent for hats that work side by side: every piece is a file of its own, and a line in a file that all of them change.

SCRIPT names a JSON file with what is out of the ordinary: `slow` (seconds that a builder takes), `fails` (the piece whose
builder fails), `rounds` (how often there is a wave), `rash` (the piece whose builder only claims that all is done),
`stubborn` (resolvers that do nothing).
"""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

SCRIPT = Path(os.environ["SCRIPT"])


def ralph(*words: str) -> str:
    return subprocess.run([os.environ["RALPH_BIN"], *words], capture_output=True, text=True, check=True).stdout


def planner(script: dict, page: str) -> None:
    rounds = int(Path("round.txt").read_text()) if Path("round.txt").exists() else 0
    if rounds == script.get("rounds", 1):
        ralph("emit", "LOOP_COMPLETE", "all rounds are over")
        return
    Path("round.txt").write_text(str(rounds + 1))
    wave = [f"piece {rounds + 1}.{number}" for number in (1, 2, 3)]
    assert ralph("wave", "emit", "piece.ready", "--payloads", *wave).startswith("wave-")


def builder(script: dict, page: str) -> None:
    [piece] = re.findall(r"^piece (.*)$", page, re.MULTILINE)
    Path("round.txt").read_text()  # what was done before the wave is here
    time.sleep(script.get("slow", 0))
    if piece == script.get("fails"):
        sys.exit("I cannot")
    if piece == script.get("rash"):
        subprocess.run([os.environ["RALPH_BIN"], "emit", "LOOP_COMPLETE", "all"], capture_output=True, check=False)
        return
    Path(f"piece-{piece}.txt").write_text("built\n")
    with Path("shared.txt").open("a") as file:
        file.write(f"{piece}\n")
    ralph("tools", "task", "add", f"look at {piece}")
    ralph("tools", "memory", "add", f"{piece} was easy", "-t", "pattern")
    with Path(".ralph/agent/decisions.md").open("a") as file:
        file.write(f"\n## DEC-001: {piece} is a file\n\n- Confidence: 60\n")
    ralph("emit", "piece.done", f"built {piece}")


def resolver(script: dict, page: str) -> None:
    if not script.get("stubborn"):
        kept = [line for line in Path("shared.txt").read_text().splitlines() if not re.match(r"[<=>|]{7}", line)]
        Path("shared.txt").write_text("\n".join(sorted(set(kept))) + "\n")


def gatherer(script: dict, page: str) -> None:
    for task in json.loads(ralph("tools", "task", "list", "--format", "json")):
        ralph("tools", "task", "close", task["id"])
    Path("gathered.txt").write_text(page)
    ralph("emit", "round.done", "gathered")


def main() -> None:
    page, hat = sys.stdin.read(), os.environ["RALPH_HAT"]
    with SCRIPT.with_name("turns").open("a") as log:
        log.write(f"{hat} {os.environ['RALPH_TASK']}\n")
    globals()[hat](json.loads(SCRIPT.read_text()), page)


if __name__ == "__main__":
    main()
