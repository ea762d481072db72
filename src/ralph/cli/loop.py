"""`ralph loop`: work on one task until its criterion is verified."""

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from ralph.app.create_run import Ground, create_run
from ralph.cli.console import here, json_option, positive
from ralph.cli.crew import crew_for, with_options
from ralph.cli.engine import begin, refuse_inside_a_turn
from ralph.cli.plan import show_plan
from ralph.cli.starting import check_seconds, notices_of, record_for, refuse_to_land
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
from ralph.verify.inputs import input_hashes
from ralph.workflows.loop.kinds import TaskType, guess
from ralph.workflows.loop.state import OnStuck


@click.command("loop")
@click.argument("task")
@click.option(
    "--until",
    "criterion",
    required=True,
    help="What must hold: commands in backticks, metrics, files, phrases like 'tests pass', joined by AND; or @FILE.",
)
@click.option(
    "--type",
    "kind",
    type=click.Choice([kind.value for kind in TaskType]),
    help="The kind of task (else judged by its words).",
)
@click.option("--scope", multiple=True, metavar="GLOB", help="Only files that match may be changed; can be repeated.")
@click.option("--confirm", type=int, help="How often in a row the checks must pass on the same tree (1).")
@click.option(
    "--on-stuck",
    type=click.Choice([choice.value for choice in OnStuck]),
    help="What to do when the loop is stuck. Default: stop.",
)
@click.option("--no-stuck", is_flag=True, help="Don't stop when there is no progress; the same as --on-stuck continue.")
@click.option("--reflector", is_flag=True, help="Have a turn of its own reflect on every failed iteration.")
@click.option("--no-recall", is_flag=True, help="Do not tell the agent what loops before this one learned.")
@click.option("--commit/--no-commit", "commits", default=None, help="Commit every iteration on the current branch.")
@click.option(
    "--agent", "agents", multiple=True, help="The agent: claude, codex, gemini, ...; again for one that takes over."
)
@click.option("--model", default="", help="The model that the agent uses, by the name that it gives it.")
@click.option(
    "--agent-arg", "agent_args", multiple=True, metavar="ARG", help="A further argument for the agent's program."
)
@click.option(
    "--no-sub-agents", is_flag=True, help="Keep the agent from starting agents of its own, where it can be kept."
)
@click.option("--agent-acp", help="Any agent that speaks the Agent Client Protocol, by its command: 'opencode acp'.")
@click.option("--agent-command", help="Any program as the agent: prompt on stdin, working in this directory.")
@click.option("--scenario", help="The scenario file of the scripted agent.")
@click.option("--max-iterations", type=int, help="Iterations at most (10).")
@click.option("--timeout", type=float, help="Active minutes at most (60).")
@click.option("--deadline", help="A moment after which no work is done, e.g. 2026-11-16T07:00 (local time).")
@click.option("--max-cost", type=float, help="US dollars at most.")
@click.option("--max-tokens", type=int, help="Tokens at most.")
@click.option("--turn-timeout", type=float, help="Minutes after which one turn is ended (60).")
@click.option("--idle-timeout", type=float, help="Minutes without output after which a turn is ended (15).")
@click.option("--check-timeout", type=float, help="Seconds after which a check is ended (600).")
@click.option("--allow", multiple=True, metavar="RULE", help="Lift a rule of the guards; needs --because.")
@click.option("--because", help="Why the rules are lifted; it is journaled.")
@click.option("--worktree", is_flag=True, help="Work in a git worktree of its own, on the branch ralph/<run>/run.")
@click.option(
    "--land",
    type=click.Choice(["ff", "branch", "push"]),
    help="With --worktree, on success: fast-forward your branch, leave the work on its own (branch), or push that.",
)
@click.option("--no-snapshots", is_flag=True, help="Do not record the tree (no `ralph diff`, no `ralph undo`).")
@click.option("--detach", "detached", is_flag=True, help="Work in the background, whatever happens to this terminal.")
@click.option("--dry-run", is_flag=True, help="Show prompt, checks, settings and the worst case; start nothing.")
@click.option("--yes", is_flag=True, help="Agree that the agent acts here without asking.")
@json_option
def command(task: str, criterion: str, as_json: bool, **given: Any) -> int:
    """Work on TASK (- reads it from standard input) until the commands in --until pass; the engine runs them itself.

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
    asked = _criterion(criterion, check_seconds(config, given), project.root)
    crew = crew_for(project, config, given["agents"], given["agent_command"], given["scenario"], given["agent_acp"])
    crew = with_options(crew, given["model"], given["agent_args"], no_sub_agents=given["no_sub_agents"])
    record = replace(
        record_for("loop", task, crew, config, given),
        criterion=asked.text,
        checks=asked.checks,
        loop=_settings(project, config, task, asked, given),
    )
    refuse_to_land(given, apart=given["worktree"])
    _refuse_unworkable(project, record.loop, snapshots=record.snapshots, in_worktree=given["worktree"])
    notices = (*asked.notes, *notices_of(project, record))
    if given["dry_run"]:
        return show_plan(project, replace(record, id="000000-000000"), notices, as_json=as_json)
    ask_consent(project, record, typed=(criterion,), yes=given["yes"])
    run, more = create_run(project, record, Ground.WORKTREE if given["worktree"] else Ground.HERE)
    return begin(project, run, (*more, *notices), detached=given["detached"], as_json=as_json)


def _settings(project: Project, config: Config, task: str, asked: Criterion, given: Mapping[str, Any]) -> LoopSettings:
    """How the loop works, by options and settings."""
    if given["no_stuck"] and given["on_stuck"] not in (None, OnStuck.CONTINUE):
        what = f"--no-stuck and --on-stuck {given['on_stuck']} exclude each other"
        raise UsageError(what, todo="give one of them")
    kind = TaskType(given["kind"]) if given["kind"] else guess(task, asked.text)
    recalls = config.loop.recall and not given["no_recall"]
    return LoopSettings(
        type=kind,
        scope=tuple(_scope(glob) for glob in given["scope"]),
        confirm=positive("--confirm", given["confirm"], config.loop.confirm) or 1,
        on_stuck=OnStuck.CONTINUE if given["no_stuck"] else given["on_stuck"] or config.loop.on_stuck,
        reflector=given["reflector"] or config.loop.reflector,
        commit=config.loop.commit if given["commits"] is None else given["commits"],
        recalled=recall(project.root, f"{task} {asked.text}", exclude="", task_type=kind) if recalls else (),
        inputs=input_hashes(asked.checks, project.root),
    )


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
