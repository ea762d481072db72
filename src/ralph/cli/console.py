"""What all commands share: the project around this directory, questions to the user, and output."""

import os
import sys
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from ralph.cli.terminal import print_json, print_text
from ralph.core.errors import RalphError, UsageError
from ralph.core.ids import SESSION_WORKFLOWS
from ralph.core.text import clean_for_terminal, clean_text
from ralph.store.runs import Project


class Amount(click.types.FloatParamType):
    """A number of some unit, which the help and the error name."""

    def __init__(self, unit: str) -> None:
        self.unit = unit
        self.name = unit.rpartition(" ")[2].upper()

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number; refuses everything else."""
        try:
            return float(value)
        except ValueError:
            self.fail(f"{value!r} is not a number of {self.unit}", param, ctx)


MINUTES, SECONDS, DOLLARS = Amount("minutes"), Amount("seconds"), Amount("US dollars")

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")


def complete_runs(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
    """The ids of runs that begin like this, those that need the user first."""

    def list_ids(project: Project) -> list[tuple[str, str]]:
        from ralph.app.views import read_run_list

        rows = read_run_list(project).rows
        if param.name == "session":
            rows = tuple(row for row in rows if row["workflow"] in SESSION_WORKFLOWS)
        return [(row["id"], row["headline"]) for row in rows]

    return _offer(list_ids, incomplete)


def complete_tasks(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
    """The tasks of the run that the command names, or of the latest run."""

    def list_tasks(project: Project) -> list[tuple[str, str]]:
        from ralph.app.runs import find_latest_run
        from ralph.app.views import read_facts

        tasks = read_facts(project, find_latest_run(project, ctx.params.get("run"))).tasks
        return [(task.id, task.title) for task in tasks]

    return _offer(list_tasks, incomplete)


def complete_roles(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
    """The roles of the run that the command names, or of the live run."""

    def list_names(project: Project) -> list[tuple[str, str]]:
        from ralph.app.runs import find_live_run
        from ralph.app.workflows import list_roles
        from ralph.documents.hats.definition import show_role

        run = find_live_run(project, ctx.params.get("run"), "signal")
        return [(show_role(role), "") for role in list_roles(run.record())]

    return _offer(list_names, incomplete)


def _offer(find: Callable[[Project], list[tuple[str, str]]], incomplete: str) -> list[Any]:
    """The words that begin like this, each with a help text. For shells: it never fails."""
    from click.shell_completion import CompletionItem

    try:
        found = find(open_project())
    except (RalphError, OSError):
        return []
    return [CompletionItem(word, help=text) for word, text in found if word.startswith(incomplete)]


run_argument = click.argument("run", required=False, shell_complete=complete_runs)


def open_project(directory: str | None = None) -> Project:
    """The project around a directory, by default the current one; in a turn, the project of its run."""
    main_root = os.environ.get("RALPH_WORKSPACE_ROOT") if os.environ.get("RALPH_TURN") else None
    if main_root:
        return Project(Path(main_root))
    path = Path.cwd() / (directory or ".")
    if not path.is_dir():
        raise UsageError(f"there is no directory {directory}", where="--dir", todo="name one that exists")
    return Project.around(path)


def agree(*, yes: bool, where: str, todo: str, question: str = "Go ahead?") -> None:
    """Ask the user to agree to what was just shown. Without a terminal, raise an error that says what to type."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError("there is no terminal to ask for your consent", where=where, todo=todo)
    if not click.confirm(clean_for_terminal(question), err=True):
        raise click.Abort


def note_old_name(old: str, new: str) -> None:
    """Print that a command has another name now."""
    print_text(f"note: `ralph {old}` is now `ralph {new}`. The next release removes the old name.", err=True)


def print_result(as_json: bool, lines: Iterable[str], **data: Any) -> int:
    """Print JSON for a program, or lines for the user. Returns exit code 0."""
    if as_json:
        print_json(**data)
    else:
        for line in lines:
            print_text(line)
    return 0


def one_line(text: object) -> str:
    """A text of an agent, on one line and without control characters."""
    return " ".join(clean_text(str(text)).split())


def clock_time(at: float) -> str:
    """A moment of today as `HH:MM:SS`."""
    return datetime.fromtimestamp(at).strftime("%H:%M:%S")
