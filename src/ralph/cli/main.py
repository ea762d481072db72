"""The `ralph` command: subcommands are imported when they are used, so that help and status stay quick."""

import errno
import gc
import importlib
import io
import json
import sys
import traceback

import click

from ralph import __version__
from ralph.core.errors import RalphError
from ralph.core.outcomes import Outcome

GROUPS = {
    "Work": {
        "loop": "Work on one task until its criterion is verified.",
        "session": "Plan a request, do its tasks in parallel, review them, take feedback.",
        "run": "Let hats work on an objective, event by event, until it is done.",
        "resume": "Continue a run that was paused, was interrupted, or reached a limit.",
    },
    "Watch": {
        "status": "Show the runs of this project.",
        "logs": "Show what happened in a run, or follow it. Also: the events that agents published.",
        "prompt": "Show the prompt of a turn, with the tokens of each part.",
        "cost": "Show what a run cost, by turn, role and agent.",
    },
    "Steer": {
        "steer": "Tell the agents of a run something, also in the middle of a turn.",
        "signal": "Send a run another signal: pause, resume, abort, info, approve, skip.",
        "signals": "Show the signals of a run: who received each, how, and with what effect.",
        "answer": "Answer a question that an agent asked.",
        "abort": "End a run for good. Keeps its changes unless you give --revert.",
    },
    "Results": {
        "report": "Show the completion report of a run.",
        "diff": "Show what a run changed.",
        "undo": "Undo the last change that a run made to your files.",
        "restore": "Restore the files as an iteration left them, for example the best one.",
        "land": "Bring the work of a run onto your branch, or show what waits for that.",
        "reflect": "Show what loops learned, and the patterns in it.",
    },
    "Workspace": {
        "worktrees": "List the worktrees of runs, and remove those that are merged.",
        "clean": "Remove old runs.",
    },
    "Setup": {
        "init": "Write a ralph.yml, from a preset if you want.",
        "hats": "List, show, check or draw presets.",
        "trust": "Agree to what this project lets Ralph start; show or revoke it.",
        "doctor": "Check this machine and this project.",
    },
    "For agents": {
        "emit": "Publish an event.",
        "wave": "Publish several events at once.",
        "tools": "Tasks, memories, decisions and progress.",
    },
}
"""Every subcommand that users call, by what they want, with its line in the help. Its module is named like it."""
OLD_NAMES = ("presets", "events", "queue")
"""Commands that are parts of others now (`hats list`, `logs --events`, `land --queue`); they work for one more release."""
COMMANDS = (*(name for group in GROUPS.values() for name in group), *OLD_NAMES, "acp-bridge")
"""All subcommands. `acp-bridge` is for programs: the help leaves it out."""


class LazyGroup(click.Group):
    """A group that imports a subcommand only when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The subcommand itself."""
        if cmd_name not in COMMANDS:
            return None
        module = f"ralph.cli.{cmd_name.replace('-', '_')}"
        if module not in sys.modules:
            gc.disable()  # what modules define stays: there is no garbage to look for
            importlib.import_module(module)
            gc.freeze()
            gc.enable()
        command = sys.modules[module].command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list for `--help`, from the table alone."""
        for group, commands in GROUPS.items():
            with formatter.section(group):
                formatter.write_dl([(name.ljust(10), line) for name, line in commands.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="ralph")
def cli() -> None:
    """Run AI coding agents in loops until the work is verified done."""


def main() -> None:
    """Run the command line; every error leaves with its own exit code."""
    as_json = "--json" in sys.argv
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        code = cli.main(prog_name="ralph", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        sys.exit(Outcome.USAGE.exit_code)
    except click.ClickException as error:
        where = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "ralph"
        _fail(error.format_message(), "", f"`{where} --help` shows what it takes", Outcome.USAGE, as_json)
    except RalphError as error:
        _fail(error.what, error.where, error.todo, error.outcome, as_json)
    except (KeyboardInterrupt, click.Abort):
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(141)
    except OSError as error:
        outcome = Outcome.PAUSED if error.errno in (errno.ENOSPC, errno.EROFS, errno.EDQUOT) else Outcome.USAGE
        todo = "make that place usable, then try again"
        _fail(error.strerror or str(error), str(error.filename or ""), todo, outcome, as_json)
    except Exception as error:  # noqa: BLE001 - the last border: the person gets a sentence, the log the rest
        traceback.print_exc()
        todo = "this is a defect of Ralph; please report it with the lines above"
        _fail(f"{type(error).__name__}: {error}", "", todo, Outcome.INTERNAL_ERROR, as_json)
    sys.exit(code if isinstance(code, int) else 0)


def _fail(what: str, where: str, todo: str, outcome: Outcome, as_json: bool) -> None:
    if as_json:
        error = {"what": what, "where": where, "todo": todo, "outcome": outcome, "exit_code": outcome.exit_code}
        click.echo(json.dumps({"schema": 1, "error": error}))
    else:
        lines = [f"ralph: {what}", f"  where: {where}" if where else "", f"  next:  {todo}" if todo else ""]
        click.echo("\n".join(line for line in lines if line), err=True)
    sys.exit(outcome.exit_code)
