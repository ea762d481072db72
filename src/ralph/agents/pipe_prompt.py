"""Becomes a program whose standard input is a pipe, for some pass over a file there.

python -m ralph.agents.pipe_prompt PROGRAM ARGUMENT ...
"""

import os
import shutil
import sys


def main(words: list[str]) -> int:
    """Leave a copy of this process behind that fills the pipe, and become the program."""
    out, into = os.pipe()
    if os.fork() == 0:
        os.close(out)
        try:
            with os.fdopen(into, "wb") as pipe:
                shutil.copyfileobj(sys.stdin.buffer, pipe)
        except BrokenPipeError:
            pass  # it has read what it wanted
        os._exit(0)
    os.close(into)
    os.dup2(out, 0)
    os.close(out)
    try:
        os.execvp(words[0], words)
    except OSError as error:
        sys.stderr.write(f"{words[0]} cannot be started: {error.strerror}\n")
        return 127


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
