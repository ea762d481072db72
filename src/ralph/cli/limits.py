"""The limits of a run and of its turns, by options and settings."""

import time
from datetime import datetime

from ralph.cli.console import positive
from ralph.core.errors import UsageError
from ralph.core.limits import Limits
from ralph.documents.config import Config
from ralph.documents.run_record import TurnLimits


def run_limits(
    config: Config,
    iterations: int | None,
    minutes: float | None,
    deadline: str | None,
    tokens: int | None,
    cost: float | None,
) -> Limits:
    """What a run may spend."""
    return Limits(
        positive("--max-iterations", iterations, config.limits.iterations),
        _seconds(positive("--timeout", minutes, config.limits.minutes)),
        _moment(deadline),
        positive("--max-tokens", tokens, config.limits.tokens),
        positive("--max-cost", cost, config.limits.cost),
    )


def turn_limits(config: Config, minutes: float | None, idle_minutes: float | None) -> TurnLimits:
    """What one turn may take."""
    return TurnLimits(
        _seconds(positive("--turn-timeout", minutes, config.turn.minutes)) or 0,
        _seconds(positive("--idle-timeout", idle_minutes, config.turn.idle_minutes)) or 0,
        config.turn.grace_seconds,
    )


def _seconds(minutes: float | None) -> float | None:
    return None if minutes is None else minutes * 60


def _moment(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text).astimezone()
    except ValueError:
        raise UsageError(f"--deadline {text!r} is no moment", todo="write it like 2026-11-16T07:00") from None
    if moment.timestamp() <= time.time():
        raise UsageError(f"--deadline {text} has passed already", todo="give a moment that is still to come")
    return moment.timestamp()
