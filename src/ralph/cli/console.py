"""What all commands share: the project around us, and how JSON is printed."""

import json
import os
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from ralph.store.runs import Project

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")


def here() -> Project:
    """The project around the current directory; in a turn, the one whose run it is of."""
    main_root = os.environ.get("RALPH_WORKSPACE_ROOT") if os.environ.get("RALPH_TURN") else None
    return Project(Path(main_root)) if main_root else Project.around(Path.cwd())


def say_json(**data: Any) -> None:
    """One versioned JSON object on standard output."""
    click.echo(json.dumps({"schema": 1, **data}, ensure_ascii=False, default=str))


def clock_time(at: float) -> str:
    """A moment of today as people read it."""
    return datetime.fromtimestamp(at).strftime("%H:%M:%S")
