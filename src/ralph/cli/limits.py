"""The limits of a run and of its turns, by options and settings."""

import time
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ralph.cli.console import positive
from ralph.core.errors import UsageError
from ralph.core.limits import Limits
from ralph.documents.config import Config
from ralph.documents.run_record import TurnLimits

if TYPE_CHECKING:
    from ralph.documents.hats.preset import Preset


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
        parse_deadline(deadline),
        positive("--max-tokens", tokens, config.limits.tokens),
        positive("--max-cost", cost, config.limits.cost),
    )


def with_limits(preset: "Preset", config: Config) -> Config:
    """The settings with the limits of the preset, where it sets any, or nobody does."""
    loop_keys, own = preset.event_loop, config.limits.model_fields_set
    iterations, seconds, cost = preset.max_iterations, preset.max_runtime, preset.max_cost
    given: dict[str, Any] = {}
    if iterations or "max_iterations" in loop_keys.model_fields_set or "iterations" not in own:
        given["iterations"] = iterations or loop_keys.max_iterations
    if seconds or "max_runtime_seconds" in loop_keys.model_fields_set or "minutes" not in own:
        given["minutes"] = (seconds or loop_keys.max_runtime_seconds) / 60
    if cost or loop_keys.max_cost_usd:
        given["cost"] = cost or loop_keys.max_cost_usd
    turn = config.turn
    if found := preset.adapters.get(preset.cli.backend or "claude"):
        turn = turn.model_copy(update={"idle_minutes": found.timeout / 60})
    return config.model_copy(update={"limits": config.limits.model_copy(update=given), "turn": turn})


def turn_limits(config: Config, minutes: float | None, idle_minutes: float | None) -> TurnLimits:
    """What one turn may take."""
    return TurnLimits(
        _seconds(positive("--turn-timeout", minutes, config.turn.minutes)) or 0,
        _seconds(positive("--idle-timeout", idle_minutes, config.turn.idle_minutes)) or 0,
        config.turn.grace_seconds,
    )


def _seconds(minutes: float | None) -> float | None:
    return None if minutes is None else minutes * 60


def parse_deadline(text: str | None) -> float | None:
    """The moment that `--deadline` names; one that has passed is refused."""
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text).astimezone()
    except ValueError:
        raise UsageError(f"--deadline {text!r} is no moment", todo="write it like 2026-11-16T07:00") from None
    if moment.timestamp() <= time.time():
        raise UsageError(f"--deadline {text} has passed already", todo="give a moment that is still to come")
    return moment.timestamp()
