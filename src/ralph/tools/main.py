"""`ralph emit` and `ralph tools ...`: which module does it, and what becomes of errors."""

import errno
import os
import sys

from ralph.tools.arguments import Command, ToolError, listing, say, unknown

ABOUT = "What agents call while they work. People may call it too."
TOOLS = {
    "task": "The queue of work that the agents of a project share.",
    "memory": "What agents learned, for those that come after them.",
    "decision": "What was decided without being sure, and how to take it back.",
    "interact": "Words to the people who look on, and questions.",
    "signals": "What the person has said to this turn.",
}
"""Every tool: its module in this package, and its line in the help."""


def run(words: list[str]) -> int:
    """Do what `ralph WORDS...` says; what cannot be done is said in a sentence."""
    try:
        code = _run(words)
        sys.stdout.flush()
        return code
    except ToolError as error:
        return _fail(error.what, error.where, error.todo, error.code)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        return 130
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
        what, where = f"cannot do it: {error.strerror or error}", str(error.filename or "")
        return _fail(what, where, "make that place usable, then try again", 7 if full else 2)


def _run(words: list[str]) -> int:
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    if words[0] == "emit":
        from ralph.tools import emit

        return emit.run(words[1:])
    if words[0] == "wave":
        from ralph.tools import wave

        return wave.run(words[1:])
    if len(words) < 2 or words[1] in ("--help", "-h"):
        return say(help_text())
    if words[1] not in TOOLS:
        raise unknown("ralph tools", words[1], list(TOOLS))
    code: int = _module(words[1]).run(words[2:])  # type: ignore[attr-defined]  # typing would cost its import
    return code


def _module(name: str) -> object:
    """By hand, because importlib is not imported yet."""
    return __import__(f"ralph.tools.{name}", fromlist=["run"])


def commands(tool: str) -> "tuple[Command, ...]":
    """The commands of a tool; none where it is one command itself."""
    return getattr(_module(tool), "COMMANDS", ())


def help_text() -> str:
    """What `ralph tools --help` prints: every command, for who has to know them all."""
    parts = [f"usage: ralph tools TOOL COMMAND ...\n\n{ABOUT}"]
    for tool, about in TOOLS.items():
        rows = [(f"{tool} {command.short}", command.about) for command in commands(tool)]
        parts.append(f"{about}\n{listing(rows or [(tool, about)])}")
    return "\n\n".join(parts)


def _fail(what: str, where: str, todo: str, code: int) -> int:
    lines = [f"ralph: {what}", f"  where: {where}" if where else "", f"  next:  {todo}" if todo else ""]
    text = "\n".join(line for line in lines if line)
    if "RALPH_EVENTS_FILE" in os.environ:
        from ralph.documents.agent.program import name_program

        text = name_program(text)
    print(text, file=sys.stderr)
    return code
