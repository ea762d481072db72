"""How prompts name the `ralph` command.

Codex and others start tools in a login shell, and `/etc/profile` sets PATH anew: a bare `ralph` is not found there. Exported
variables survive, so commands for agents are written with `$RALPH_BIN`, the absolute path that every turn is given.
"""

import re

PROGRAM = '"$RALPH_BIN"'
_COMMAND = re.compile(r"(?<![\w/.$-])ralph(?= (?:emit|tools|wave|diff)\b)")
NOT_FOUND = re.compile(r"\bralph: (?:command )?not found|command not found: ralph\b")
"""What shells say if `ralph` is not on their PATH."""


def name_program(text: str) -> str:
    """A text for an agent, with commands that work whatever PATH its shell has."""
    return _COMMAND.sub(PROGRAM, text)
