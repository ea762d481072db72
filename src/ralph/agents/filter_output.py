"""Runs a program and keeps back those lines of its output that begin in certain ways, for some say all again with each word.

python -m ralph.agents.filter_output BEGINNING ... -- PROGRAM ARGUMENT ...

After the last line it says how the program ended: {"type": "exit", "code": 0}.
"""

import json
import signal
import subprocess
import sys


def main(words: list[str]) -> int:
    """Run it to its end, and end as it did."""
    at = words.index("--")
    unwanted = tuple(word.encode() for word in words[:at])
    # Who ends us ends the whole group: the program has the time that it is given, and its last lines come through.
    signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        program = subprocess.Popen(words[at + 1 :], stdout=subprocess.PIPE)
    except OSError as error:
        sys.stderr.write(f"{words[at + 1]} cannot be started: {error.strerror}\n")
        return 127
    out, line = sys.stdout.buffer, b"\n"
    with program:
        for line in program.stdout or ():
            if not line.startswith(unwanted):
                out.write(line)
                out.flush()
    code = program.returncode if program.returncode >= 0 else 128 - program.returncode
    out.write((b"" if line.endswith(b"\n") else b"\n") + json.dumps({"type": "exit", "code": code}).encode() + b"\n")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
