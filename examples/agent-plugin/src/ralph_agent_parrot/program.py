"""A stand-in for the program of an agent, so that the template can be tried: it asks no model, and knows one sentence."""

import argparse
import json
import os
import re
import sys
import uuid
from pathlib import Path


def say(kind: str, **facts: object) -> None:
    """A line of the stream."""
    print(json.dumps({"type": kind, **facts}), flush=True)


def main() -> int:
    """Read a prompt, and do what it says: `Write WORD into FILE`."""
    parser = argparse.ArgumentParser(prog="parrot")
    parser.add_argument("--version", action="version", version="parrot 0.1.0")
    parser.add_argument("--json", action="store_true", required=True)
    parser.add_argument("--model", default="parrot-1")
    parser.add_argument("--resume", default="")
    asked = parser.parse_args()
    prompt = sys.stdin.read()
    say("hello", session=asked.resume or str(uuid.uuid4()), model=asked.model)
    if not os.environ.get("PARROT_API_KEY"):
        say("end", ok=False, error="401 Unauthorized: no API key")
        return 1
    if found := re.search(r"\bwrite (\S+) into (\S+)", prompt, re.IGNORECASE):
        text, path = found[1], found[2].strip("`'\".,")
        say("tool", name="write", input={"path": path})
        Path(path).write_text(f"{text}\n")
        say("tool_result", ok=True, text="written")
    say("usage", total={"input": len(prompt), "cached": 0, "output": 20})
    say("says", text="Polly is done.")
    say("usage", total={"input": len(prompt), "cached": len(prompt), "output": 30})
    say("end", ok=True, text="Polly is done.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
