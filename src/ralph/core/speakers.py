"""Who speaks to a run, as the journal names them: `cli:LOGIN`, `python:LOGIN`, `web:DEVICE`, or `file`."""

import os
import pwd

COMMAND_LINE, PYTHON = ("cli", "python")
"""How the user speaks, apart from the web."""
FROM_FILE = "file"
"""Somebody put a file that names no sender into the mailbox, or beside a question."""


def name_user(means: str) -> str:
    """The user of this process, with the means by which they speak. The login name is that of the account, not of a variable."""
    try:
        login = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        login = str(os.getuid())
    return f"{means}:{login}"


def show_speaker(by: str) -> str:
    """Who did something, for the user at the command line."""
    return "you" if not by or by.startswith(f"{COMMAND_LINE}:") else by
