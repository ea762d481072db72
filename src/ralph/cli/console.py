"""What all commands share: the project around us, and how JSON is printed."""

import json
import os
import sys
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from ralph.core.errors import UsageError
from ralph.core.stream import clean_text
from ralph.store.runs import Project, RunDir

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")


def here() -> Project:
    """The project around the current directory; in a turn, the one whose run it is of."""
    main_root = os.environ.get("RALPH_WORKSPACE_ROOT") if os.environ.get("RALPH_TURN") else None
    return Project(Path(main_root)) if main_root else Project.around(Path.cwd())


def latest_run(project: Project, run: str | None) -> RunDir:
    """The run that is meant: the named one, or the latest."""
    runs = project.runs()
    if not run and not runs:
        raise UsageError("there is no run yet", where=str(project.root), todo="start one with `ralph loop`")
    return project.run(run) if run else runs[-1]


def agree(*, yes: bool, where: str, todo: str) -> None:
    """Have the user agree to what was just shown; if nobody is there to answer, an error says what to type."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError("nobody is here to agree", where=where, todo=todo)
    if not click.confirm("Go ahead?", err=True):
        raise click.Abort


def note_old_name(old: str, new: str) -> None:
    """Tell the user that a command has another name now."""
    click.echo(f"note: `ralph {old}` is now `ralph {new}`; the old name goes with the next release.", err=True)


def say_json(**data: Any) -> None:
    """One versioned JSON object on standard output."""
    click.echo(json.dumps({"schema": 1, **data}, ensure_ascii=False, default=str))


def tell(as_json: bool, lines: Iterable[str], **data: Any) -> int:
    """Say something to a program, or to a person line by line; the exit code of a command that did what it was for."""
    if as_json:
        say_json(**data)
    else:
        for line in lines:
            click.echo(line)
    return 0


def one_line(said: object) -> str:
    """What an agent said, on one line and without what would move about in a terminal."""
    return " ".join(clean_text(str(said)).split())


def clock_time(at: float) -> str:
    """A moment of today as people read it."""
    return datetime.fromtimestamp(at).strftime("%H:%M:%S")
