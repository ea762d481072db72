"""Runs an agent program with a changed standard input or output. Two commands:

python -m ralph.agents.wrap_program pipe-prompt PROGRAM ARGUMENT ...
python -m ralph.agents.wrap_program filter-output PREFIX ... -- PROGRAM ARGUMENT ...
"""

import json
import os
import shutil
import signal
import subprocess
import sys


def pipe_prompt(command: list[str]) -> int:
    """Replace this process with a program whose standard input is a pipe: some programs ignore a file there.

    A forked child fills the pipe.
    """
    read_end, write_end = os.pipe()
    if os.fork() == 0:
        os.close(read_end)
        try:
            with os.fdopen(write_end, "wb") as pipe:
                shutil.copyfileobj(sys.stdin.buffer, pipe)
        except BrokenPipeError:
            pass  # the program has read all that it wants
        os._exit(0)
    os.close(write_end)
    os.dup2(read_end, 0)
    os.close(read_end)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        return _report_missing(command[0], error)


def filter_output(prefixes: tuple[bytes, ...], command: list[str]) -> int:
    """Run a program, drop output lines that begin with one of the prefixes, and exit with its code.

    Some programs repeat the whole message with each new word. After the last line, this prints how the program ended:
    {"type": "exit", "code": 0}.
    """
    # The keeper signals the whole group. The program uses its grace period, and its last lines must still come through.
    signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        program = subprocess.Popen(command, stdout=subprocess.PIPE)
    except OSError as error:
        return _report_missing(command[0], error)
    out, line = sys.stdout.buffer, b"\n"
    with program:
        for line in program.stdout or ():
            if not line.startswith(prefixes):
                out.write(line)
                out.flush()
    code = program.returncode if program.returncode >= 0 else 128 - program.returncode
    if not line.endswith(b"\n"):
        out.write(b"\n")
    out.write(json.dumps({"type": "exit", "code": code}).encode() + b"\n")
    return code


def _report_missing(program: str, error: OSError) -> int:
    sys.stderr.write(f"{program} cannot be started: {error.strerror}\n")
    return 127


def main(arguments: list[str]) -> int:
    """Run the command that the first argument names."""
    if arguments[0] == "pipe-prompt":
        return pipe_prompt(arguments[1:])
    separator = arguments.index("--")
    prefixes = tuple(prefix.encode() for prefix in arguments[1:separator])
    return filter_output(prefixes, arguments[separator + 1 :])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
