"""The options that `ralph loop`, `ralph session` and `ralph run` have in common."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, TypeVar

import click

from ralph.app.run_options import RunOptions
from ralph.cli.console import json_option

F = TypeVar("F", bound=Callable[..., Any])

_SETTINGS = (
    click.option(
        "--agent",
        "agents",
        multiple=True,
        help="The agent: claude, codex, gemini, ... Repeat it to name agents that take over while one is limited.",
    ),
    click.option("--model", default="", help="The model of the first agent, by the name that the agent uses for it."),
    click.option(
        "--agent-arg",
        "agent_args",
        multiple=True,
        metavar="ARG",
        help="Another argument for the first agent's program.",
    ),
    click.option(
        "--no-sub-agents", is_flag=True, help="Don't let agents start agents of their own, if they can be told."
    ),
    click.option(
        "--agent-acp", help="Any agent that speaks the Agent Client Protocol, by its command: 'opencode acp'."
    ),
    click.option(
        "--agent-command", help="Any program as the agent: it reads the prompt on stdin and works in this directory."
    ),
    click.option("--scenario", help="The scenario file of the scripted agent."),
    click.option(
        "--max-iterations",
        type=int,
        help="Iterations at most. Default: 10; in hats, what the preset says. Not for sessions.",
    ),
    click.option("--timeout", type=float, help="Active minutes at most. Default: 60; sessions have no limit."),
    click.option("--deadline", help="The local time at which all work stops, for example 2026-11-16T07:00."),
    click.option("--max-cost", type=float, help="US dollars at most. Refused if the cost of an agent cannot be known."),
    click.option(
        "--allow-unpriced", is_flag=True, help="Start although --max-cost cannot hold, because a cost is unknown."
    ),
    click.option("--max-tokens", type=int, help="Tokens at most."),
    click.option("--turn-timeout", type=float, help="Minutes after which one turn is ended. Default: 60."),
    click.option("--idle-timeout", type=float, help="Minutes without output after which a turn is ended. Default: 15."),
    click.option("--check-timeout", type=float, help="Seconds after which a check is ended. Default: 600."),
    click.option("--parallel", type=int, help="Turns that run at once, in sessions and waves of hats. Default: 3."),
    click.option(
        "--allow", multiple=True, metavar="RULE=REASON", help="Lift a rule of the guards. The reason is in the journal."
    ),
    click.option("--worktree", is_flag=True, help="Work in a git worktree, on the branch ralph/<run>/run."),
    click.option(
        "--land",
        type=click.Choice(["ff", "branch", "push"]),
        help="What to do with the run's branch on success: fast-forward yours, leave it, or push it."
        " Default: branch; for sessions: ff.",
    ),
    click.option("--no-snapshots", is_flag=True, help="Don't record the tree: no `ralph diff`, no `ralph undo`."),
)
"""The options of `RunOptions`: they become part of the run's record."""
_START = (
    click.option("--detach", "detached", is_flag=True, help="Work in the background, even if this terminal closes."),
    click.option("--dry-run", is_flag=True, help="Show prompt, checks, settings and the worst case. Start nothing."),
    click.option("--yes", is_flag=True, help="Agree that the agents act here without asking."),
    json_option,
)
"""How the run is started."""


def run_options(command: F) -> F:
    """Give a command the options with which a run of any workflow is started."""
    for option in reversed((*_SETTINGS, *_START)):
        command = option(command)
    return command


def options_from(given: Mapping[str, Any]) -> RunOptions:
    """What a command was given, as the options of a run."""
    return RunOptions(**{field.name: given[field.name] for field in fields(RunOptions)})
