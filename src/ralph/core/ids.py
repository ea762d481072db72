"""Run ids: made from a time, claimed by `mkdir`, validated wherever they come in."""

import re
from datetime import datetime

from ralph.core.errors import UsageError

_RUN_ID = re.compile(r"(?:[0-9]{2})?[0-9]{6}-[0-9]{6}(-[0-9a-z]{4})?")
"""Old sessions have years of four digits."""


def run_id(at: datetime, suffix: str = "") -> str:
    """The id of a run started at that time; loops and hats add four random characters."""
    stamp = at.strftime("%y%m%d-%H%M%S")
    return valid_run_id(f"{stamp}-{suffix}" if suffix else stamp)


def is_run_id(text: str) -> bool:
    """Whether a text could be the id of a run."""
    return bool(_RUN_ID.fullmatch(text))


def valid_run_id(text: str) -> str:
    """The id itself, or an error: an id is used in paths, so nothing else may pass."""
    if not is_run_id(text):
        raise UsageError(
            f"{text!r} is not a run id",
            where="an id looks like 261115-093000-k3x9 (date, time, four characters)",
            todo="list the runs with `ralph status --all`",
        )
    return text


def turn_name(number: int, role: str) -> str:
    """The directory of a turn: `00007-actor`."""
    return f"{number:05d}-{role}"
