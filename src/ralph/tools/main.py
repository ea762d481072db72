"""The entry point of `ralph emit`, `ralph wave` and `ralph tools`: find the module, run it, print errors."""

import errno
import os
import sys
from collections.abc import Callable

from ralph.tools import files
from ralph.tools.arguments import Command, ToolError, listing, say, unknown

ABOUT = "Commands for agents while they work. You can use them too."
TOOLS = {
    "task": ("task", "The task queue that the agents of a project share."),
    "memory": ("memory", "What agents learned, for later agents."),
    "decision": ("memory", "Decisions that you made without being sure, and how to undo them."),
    "interact": ("messages", "Report your progress to the user, or ask a question."),
    "signals": ("messages", "Read the user's messages to this turn."),
}
"""Every tool: its module in this package, and its line in the help."""


def run(words: list[str]) -> int:
    """Run `ralph WORDS...`. Errors are printed as sentences."""
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
        what, where = str(error.strerror or error), str(error.filename or "")
        return _fail(what, where, "make that path readable and writable, then try again", 7 if full else 2)


def _run(words: list[str]) -> int:
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    files.restore_turn_variables()
    if words[0] == "emit":
        from ralph.tools import messages

        return messages.run_emit(words[1:])
    if words[0] == "wave":
        from ralph.tools import messages

        return messages.run_wave(words[1:])
    if len(words) < 2 or words[1] in ("--help", "-h"):
        return say(help_text())
    if words[1] not in TOOLS:
        raise unknown("ralph tools", words[1], list(TOOLS))
    run_tool, _ = _tool(words[1])
    return run_tool(words[2:])


def _tool(name: str) -> "tuple[Callable[[list[str]], int], tuple[Command, ...]]":
    """The function that runs a tool, and its commands. `__import__` avoids the cost of importlib."""
    module = __import__(f"ralph.tools.{TOOLS[name][0]}", fromlist=["TOOLS"])
    found: tuple[Callable[[list[str]], int], tuple[Command, ...]] = module.TOOLS[name]
    return found


def commands(tool: str) -> "tuple[Command, ...]":
    """The commands of a tool; none if the tool is a command itself."""
    return _tool(tool)[1]


def help_text() -> str:
    """What `ralph tools --help` prints: every command of every tool."""
    parts = [f"usage: ralph tools TOOL COMMAND ...\n\n{ABOUT}"]
    for tool, (_, about) in TOOLS.items():
        rows = [(f"{tool} {command.short}", command.about) for command in commands(tool)]
        parts.append(f"{about}\n{listing(rows or [(tool, about)])}")
    return "\n\n".join(parts)


def _fail(what: str, where: str, todo: str, code: int) -> int:
    lines = [f"ralph: {what}", f"  where: {where}" if where else "", f"  next:  {todo}" if todo else ""]
    text = "\n".join(line for line in lines if line)
    if program := os.environ.get("RALPH_BIN"):
        import shlex

        from ralph.core.prompt import name_program

        text = name_program(text, shlex.quote(program))
    print(text, file=sys.stderr)
    return code
