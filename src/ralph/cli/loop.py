"""`ralph loop`: work on one task until its criterion is verified."""

import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from ralph.app.create_run import Ground, create_run
from ralph.app.run_options import build_crew, build_record, check_seconds, positive, refuse_landing
from ralph.app.start_checks import start_notices
from ralph.cli.console import here
from ralph.cli.engine import begin, refuse_inside_a_turn
from ralph.cli.options import options_from, run_options
from ralph.cli.plan import show_plan
from ralph.cli.trust import ask_consent
from ralph.core.errors import UsageError
from ralph.documents.config import Config
from ralph.documents.run_record import LoopSettings
from ralph.git.commits import clean_for_commit
from ralph.git.history import HEADS, head_of
from ralph.git.repository import repository
from ralph.memory.recall import recall
from ralph.store.files import read_text
from ralph.store.runs import Project
from ralph.store.settings import load_config
from ralph.verify.criterion import Criterion, compile_criterion, compile_yaml
from ralph.verify.run_findings import hash_inputs
from ralph.verify.toolchains import Kind, commands_for
from ralph.workflows.loop.kinds import TaskType, guess
from ralph.workflows.loop.state import OnStuck


@click.command("loop")
@click.argument("task")
@click.option(
    "--until",
    "criterion",
    help="The criterion: commands in backticks, metrics, files, phrases like 'tests pass', joined by AND; or @FILE.",
)
@click.option(
    "--type",
    "kind",
    type=click.Choice([kind.value for kind in TaskType]),
    help="The type of task. Default: guessed from its words.",
)
@click.option("--scope", multiple=True, metavar="GLOB", help="Allow changes only to files that match. Can be repeated.")
@click.option("--confirm", type=int, help="How often in a row the checks must pass on the same tree. Default: 1.")
@click.option(
    "--on-stuck",
    type=click.Choice([choice.value for choice in OnStuck]),
    help="What to do when the loop is stuck. Default: stop.",
)
@click.option("--reflector", is_flag=True, help="Add a turn that reflects on every failed iteration.")
@click.option("--no-recall", is_flag=True, help="Don't tell the agent what earlier loops learned.")
@click.option("--commit/--no-commit", "commits", default=None, help="Commit every iteration on the current branch.")
@run_options
def command(task: str, criterion: str | None, as_json: bool, **given: Any) -> int:
    """Work on TASK until the criterion in --until holds. The engine checks it itself. TASK `-` reads standard input.

    \b
    ralph loop "Fix the failing tests" --until '`pytest -q` passes' --agent-command "python3 my_agent.py"
    """
    refuse_inside_a_turn()
    project = here()
    config = load_config(project.root)
    task = sys.stdin.read() if task == "-" else task
    if not task.strip():
        todo = 'say what is to be done: ralph loop "Fix the failing tests" --until ...'
        raise UsageError("the task is empty", todo=todo)
    options = options_from(given)
    if options.parallel:
        raise UsageError("a loop has one turn at a time", todo="leave --parallel out, or plan a `ralph session`")
    sentence = _criterion_in(task, project.root) if criterion is None else criterion
    asked = _criterion(sentence, check_seconds(config, options), project.root)
    record = build_record(
        "loop",
        task,
        config,
        options,
        build_crew(project, config, options),
        criterion=asked.text,
        checks=asked.checks,
        loop=_settings(project, config, task, asked, given),
    )
    refuse_landing(options, on_own_branch=options.worktree)
    _refuse_unworkable(project, record.loop, snapshots=record.snapshots, in_worktree=options.worktree)
    taken = (f"the criterion is taken from the task: {asked.text}",) if criterion is None else ()
    notices = (*taken, *asked.notes, *start_notices(project, config, record))
    if given["dry_run"]:
        return show_plan(project, replace(record, id="000000-000000"), notices, as_json=as_json)
    ask_consent(project, record, typed=(sentence,), yes=given["yes"])
    run, more = create_run(project, record, Ground.WORKTREE if options.worktree else Ground.HERE)
    return begin(project, run, (*more, *notices), detached=given["detached"], as_json=as_json)


def _settings(project: Project, config: Config, task: str, asked: Criterion, given: Mapping[str, Any]) -> LoopSettings:
    """How the loop works, by options and settings."""
    kind = TaskType(given["kind"]) if given["kind"] else guess(task, asked.text)
    recalls = config.loop.recall and not given["no_recall"]
    return LoopSettings(
        type=kind,
        scope=tuple(_scope(glob) for glob in given["scope"]),
        confirm=positive("--confirm", given["confirm"], config.loop.confirm) or 1,
        on_stuck=given["on_stuck"] or config.loop.on_stuck,
        reflector=given["reflector"] or config.loop.reflector,
        commit=config.loop.commit if given["commits"] is None else given["commits"],
        recalled=recall(project.root, f"{task} {asked.text}", exclude="", task_type=kind) if recalls else (),
        inputs=hash_inputs(asked.checks, project.root),
    )


def _criterion_in(task: str, root: Path) -> str:
    """The criterion that a task names after the word `until`; without one, the user is told what this repository has."""
    if match := re.search(r"\buntil\s+(\S.*?)[.!]?\s*$", task, re.DOTALL):
        return match[1]
    found = [
        f"`{one.command}` passes" for kind in (Kind.TESTS, Kind.LINT, Kind.TYPES) for one in commands_for(kind, root)
    ]
    example = " AND ".join(dict.fromkeys(found)) or "`COMMAND` passes"
    what = "the task does not say when it is done"
    raise UsageError(what, todo=f"add --until '{example}', or end the task with: until COMMAND passes")


def _criterion(text: str, timeout: float, root: Path) -> Criterion:
    """The criterion that is meant: the text itself, or what is in the file that `@FILE` names."""
    if not text.startswith("@"):
        return compile_criterion(text, timeout, root)
    path = Path.cwd() / text[1:]
    content = read_text(path, 256 * 1024, "the file of criteria", "give --until @FILE")
    return compile_yaml(content, str(path), timeout, root)


def _scope(glob: str) -> str:
    """A pattern of `--scope`, refused where it could never match."""
    if not glob.strip() or glob.startswith("/") or ".." in glob.split("/"):
        raise UsageError(
            f"--scope {glob!r} is no pattern of files in this project", todo="write it like 'src/**' or '*.py'"
        )
    return glob


def _refuse_unworkable(project: Project, loop: LoopSettings, *, snapshots: bool, in_worktree: bool) -> None:
    """Refuse what the settings ask for and cannot have here."""
    if not snapshots and (loop.commit or loop.scope):
        what = "--commit" if loop.commit else "--scope"
        raise UsageError(f"{what} needs snapshots of the tree", todo="leave --no-snapshots out (`snapshots: true`)")
    if not loop.commit:
        return
    place = repository(project.root)
    if place is None:
        raise UsageError("--commit needs a git repository", where=str(project.root), todo="`git init`, or leave it out")
    if not in_worktree and not head_of(place.git).startswith(HEADS):
        raise UsageError(
            "--commit needs a branch to commit to; HEAD is detached",
            todo="`git switch` to a branch, or give --worktree",
        )
    if not in_worktree and (dirty := clean_for_commit(place)):
        raise UsageError(
            "--commit needs a tree without uncommitted changes, so that yours and the agent's stay apart",
            where=", ".join(dirty[:10]),
            todo="commit them first, or give --worktree",
        )
