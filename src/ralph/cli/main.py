"""The `ralph` command. Subcommands are imported only when they are called, so that help and status start fast."""

import errno
import gc
import importlib
import io
import sys

import click

from ralph import __version__
from ralph.cli.terminal import print_json, print_text
from ralph.core.errors import RalphError
from ralph.core.outcomes import Outcome

GROUPS = {
    "Work": {
        "loop": "Work on one task until its criterion is verified.",
        "session": "Plan a request, do its tasks in parallel and review them.",
        "run": "Work on an objective with hats: roles that publish events for each other.",
        "resume": "Continue a run that paused, stopped or reached a limit.",
        "accept": "Accept work that passes its checks but that Ralph could not prove.",
    },
    "Watch": {
        "status": "Show the runs of this project.",
        "logs": "Show or follow what happens in a run.",
        "prompt": "Show the prompt of a turn, with the tokens of each part.",
        "cost": "Show what a run cost, by turn, role and agent.",
        "web": "Show all your runs in the browser.",
    },
    "Steer": {
        "steer": "Give the agents of a run new guidance, even in the middle of a turn.",
        "comment": "Comment on lines of what a run changed.",
        "allow": "Let a run with a strict sandbox reach a host.",
        "pause": "Pause a run after its current turn, or now.",
        "signal": "Send a run a signal: information, an approval, and more.",
        "signals": "Show who received your signals, and with what effect.",
        "answer": "Answer a question that an agent asked.",
        "abort": "End a run for good. Keeps its changes unless you pass --revert.",
    },
    "Results": {
        "report": "Show the completion report of a run.",
        "export": "Write a run as one page that you can share.",
        "diff": "Show what a run changed.",
        "undo": "Undo the last change that a run made to your files.",
        "restore": "Restore the files of the best iteration, or of another one.",
        "land": "Merge the work of a run into your branch.",
        "reflect": "Show what loops learned.",
    },
    "Workspace": {
        "worktrees": "List the worktrees of runs. Remove those that are merged.",
        "clean": "Remove old runs.",
    },
    "Setup": {
        "init": "Write a ralph.yml, for example from a preset.",
        "hats": "List, show, check or draw presets.",
        "trust": "Agree to what Ralph may start in this project.",
        "doctor": "Check this machine and this project.",
        "workers": "List, check, start or stop the machines of a cluster.",
        "completion": "Complete commands, options, run ids and task ids in your shell.",
    },
    "For agents": {
        "emit": "Publish an event.",
        "wave": "Publish several events at once.",
        "tools": "Manage tasks, memories and decisions. Report progress. Ask the user.",
    },
}
"""Every subcommand for users, by its section in the help, with its line there."""
OLD_NAMES = ("presets", "events", "queue")
"""Commands that are now part of others (`hats list`, `logs --events`, `land --queue`). They work for one more release."""
COMMANDS = (*(name for group in GROUPS.values() for name in group), *OLD_NAMES, "acp-bridge")
"""All subcommands. `acp-bridge` is for programs: the help leaves it out."""
MODULES = {
    "agent_tools": ("emit", "wave", "tools", "acp-bridge"),
    "comment": ("comment",),
    "completion": ("completion",),
    "changes": ("diff", "undo", "restore", "abort"),
    "hats": ("hats", "presets"),
    "logs": ("logs", "events"),
    "reflect": ("reflect",),
    "reports": ("report", "cost", "prompt", "export"),
    "resume": ("resume", "accept"),
    "session": ("session",),
    "setup": ("init", "doctor"),
    "start": ("loop", "run"),
    "status": ("status",),
    "steer": ("steer", "pause", "signal", "signals", "answer", "allow"),
    "trust": ("trust",),
    "web": ("web",),
    "workers": ("workers",),
    "workspace": ("land", "queue", "worktrees", "clean"),
}
"""The module of every subcommand."""
_ADVICE = {
    errno.ENOSPC: "free some disk space (`ralph clean` removes old runs), then try again",
    errno.EDQUOT: "free some of your disk quota (`ralph clean` removes old runs), then try again",
    errno.EROFS: "make the disk writable, or work in a directory on another one, then try again",
    errno.EMFILE: "allow more open files with `ulimit -n 4096`, then try again",
    errno.ENFILE: "close other programs: this machine has too many open files; then try again",
}
"""What to do about errors of the operating system."""


class LazyGroup(click.Group):
    """A group that imports a subcommand only when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All subcommands, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of a subcommand if needed, and return the subcommand."""
        if cmd_name not in COMMANDS:
            return None
        module = next(f"ralph.cli.{name}" for name, commands in MODULES.items() if cmd_name in commands)
        if module not in sys.modules:
            gc.disable()  # what modules define stays, so a collection would only cost time
            importlib.import_module(module)
            gc.freeze()
            gc.enable()
        command = getattr(sys.modules[module], cmd_name.replace("-", "_"))
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list for `--help` without importing any subcommand."""
        for group, commands in GROUPS.items():
            with formatter.section(group):
                formatter.write_dl([(name.ljust(10), line) for name, line in commands.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="ralph")
def cli() -> None:
    """Run AI coding agents in loops until the work is verified done."""


def main() -> None:
    """Run the command line. Every error exits with its own code."""
    as_json = "--json" in sys.argv
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        code = cli.main(prog_name="ralph", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        print_text(error.format_message(), err=True)
        sys.exit(Outcome.USAGE.exit_code)
    except click.ClickException as error:
        command = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "ralph"
        todo = f"`{command} --help` shows what you can type"
        if isinstance(error, click.NoSuchOption) and any(word.startswith("-") and " " in word for word in sys.argv[1:]):
            todo = f'put text that begins with - after --: {command} -- "- ..."'
        _fail(error.format_message(), todo=todo, outcome=Outcome.USAGE, as_json=as_json)
    except RalphError as error:
        _fail(error.what, where=error.where, todo=error.todo, outcome=error.outcome, as_json=as_json)
    except (KeyboardInterrupt, click.Abort):
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(141)
    except OSError as error:
        outcome = Outcome.PAUSED if error.errno in (errno.ENOSPC, errno.EROFS, errno.EDQUOT) else Outcome.USAGE
        todo = _ADVICE.get(error.errno or 0, "make that path readable and writable, then try again")
        _fail(
            error.strerror or str(error), where=str(error.filename or ""), todo=todo, outcome=outcome, as_json=as_json
        )
    except Exception as error:  # noqa: BLE001 - nothing catches it above: the user gets a sentence and the traceback
        import traceback  # it takes long to import, and no other command needs it

        print_text(traceback.format_exc(), err=True, wraps=False)
        todo = "this is a bug in Ralph; please report it with the lines above"
        _fail(f"{type(error).__name__}: {error}", todo=todo, outcome=Outcome.INTERNAL_ERROR, as_json=as_json)
    sys.exit(code if isinstance(code, int) else 0)


def _fail(what: str, *, where: str = "", todo: str, outcome: Outcome, as_json: bool) -> None:
    """Print an error, and exit with its code."""
    if as_json:
        error = {"what": what, "where": where, "todo": todo, "outcome": outcome, "exit_code": outcome.exit_code}
        print_json(error=error)
    else:
        lines = [f"ralph: {what}", f"  where: {where}" if where else "", f"  next:  {todo}" if todo else ""]
        print_text("\n".join(line for line in lines if line), err=True)
    sys.exit(outcome.exit_code)
