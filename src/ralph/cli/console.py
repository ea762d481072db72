"""What all commands share: the project around us, and how JSON is printed."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from ralph.store.runs import Project

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")


def here() -> Project:
    """The project around the current directory."""
    return Project.around(Path.cwd())


def say_json(**data: Any) -> None:
    """One versioned JSON object on standard output."""
    click.echo(json.dumps({"schema": 1, **data}, ensure_ascii=False, default=str))


def clock_time(at: float) -> str:
    """A moment of today as people read it."""
    return datetime.fromtimestamp(at).strftime("%H:%M:%S")
