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

COMMANDS = {
    "loop": ("ralph.cli.loop", "Work on one task until its criterion is verified."),
    "session": ("ralph.cli.session", "Plan a request, do its tasks side by side, review, take feedback."),
    "run": ("ralph.cli.run", "Have hats work on an objective, event by event, until it is done."),
    "hats": ("ralph.cli.hats", "Check a preset before it costs anything, or draw it."),
    "init": ("ralph.cli.init", "Write a ralph.yml, from a preset if you want."),
    "presets": ("ralph.cli.presets", "List the presets, and when to use each; show one."),
    "prompt": ("ralph.cli.prompt", "Show what a turn was told, with the tokens of each part."),
    "status": ("ralph.cli.status", "Show the runs of this project."),
    "logs": ("ralph.cli.logs", "Show what happened in a run, or follow it."),
    "resume": ("ralph.cli.resume", "Go on with a run that was paused, interrupted, or reached a limit."),
    "steer": ("ralph.cli.steer", "Say something to the agents of a run, also in the middle of a turn."),
    "signal": ("ralph.cli.signal", "Pause, resume, abort, inform or approve a run that is under way."),
    "signals": ("ralph.cli.signals", "Show what was said to a run, who took it in, how, and what came of it."),
    "answer": ("ralph.cli.answer", "Answer a question that an agent asked."),
    "abort": ("ralph.cli.abort", "End a run for good; files stay as they are, or go back with --revert."),
    "events": ("ralph.cli.events", "Show what agents published in a run, or follow it."),
    "report": ("ralph.cli.report", "Show the completion report of a run."),
    "cost": ("ralph.cli.cost", "Print what a run cost: by turn, role and agent."),
    "diff": ("ralph.cli.diff", "Show what a run changed."),
    "undo": ("ralph.cli.undo", "Take back the last change that a run made to the files."),
    "restore": ("ralph.cli.restore", "Bring the files back as an iteration left them, the best one for example."),
    "reflect": ("ralph.cli.reflect", "Show what loops learned, or the patterns in it."),
    "trust": ("ralph.cli.trust", "Agree to what this project lets Ralph start; show or revoke it."),
    "doctor": ("ralph.cli.doctor", "Check this machine and this project."),
    "queue": ("ralph.cli.queue", "Show what waits to be merged, and what could not be."),
    "land": ("ralph.cli.land", "Bring the work of a run onto your branch, with its checks."),
    "worktrees": ("ralph.cli.worktrees", "List the worktrees of runs, and remove those that are merged."),
    "clean": ("ralph.cli.clean", "Remove old runs."),
    "emit": ("ralph.cli.emit", "Publish an event (for agents)."),
    "wave": ("ralph.cli.wave", "Publish several events at once (for agents)."),
    "tools": ("ralph.cli.tools", "Tasks, memories, decisions and progress (for agents)."),
    "acp-bridge": ("ralph.cli.acp_bridge", "Have one turn with an agent that speaks the Agent Client Protocol."),
}
"""Every subcommand: the module that has it as `command`, and its line in the help."""
INTERNAL = ("acp-bridge",)
"""Those that programs call, not people: the list in the help leaves them out."""


class LazyGroup(click.Group):
    """A group that imports a subcommand only when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of the table: by what a person wants."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The subcommand itself."""
        if cmd_name not in COMMANDS:
            return None
        module = COMMANDS[cmd_name][0]
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
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items() if name not in INTERNAL])


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
