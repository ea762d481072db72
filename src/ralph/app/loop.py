"""Plan a loop: one task, until its criterion is verified. Or verify a criterion once, without a run."""

import asyncio
import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from ralph.app.run_options import (
    RunOptions,
    build_agent_selection,
    build_record,
    check_seconds,
    parse_globs,
    refuse_landing,
    require_positive,
)
from ralph.app.runs import refuse_inside_a_turn
from ralph.app.start import NewRun, WorkLocation, check_start
from ralph.core.checks import Verdict
from ralph.core.errors import UsageError
from ralph.core.redaction import find_secrets
from ralph.documents.config import Config
from ralph.documents.run_record import LoopRunSettings
from ralph.git.command import find_repository
from ralph.git.commits import list_uncommitted_files
from ralph.git.history import HEADS, read_head
from ralph.store.files import read_text
from ralph.store.runs import Project
from ralph.store.settings import load_config
from ralph.supervisor.client import KeeperClient
from ralph.verify.criterion import Criterion, compile_criterion, compile_yaml
from ralph.verify.rewrites import find_bare_command
from ralph.verify.runner import CheckRunner, check_environment
from ralph.verify.toolchains import CheckKind, find_commands
from ralph.verify.verifier import hash_inputs
from ralph.workflows.loop.state import TaskType, guess_task_type


@dataclass(frozen=True)
class LoopRequest:
    """The request for a loop. If a field is None, empty or False, the settings decide."""

    task: str
    criterion: str | None = None
    """None: the task names it after the word `until`. `@FILE`: the file has it."""
    kind: str | None = None
    scope: tuple[str, ...] = ()
    confirm: int | None = None
    on_stuck: str | None = None
    reflector: bool = False
    no_recall: bool = False
    commits: bool | None = None


def plan_loop(project: Project, request: LoopRequest, options: RunOptions) -> NewRun:
    """Check the request for a loop, and turn it into a run that can be created."""
    config = load_config(project.settings_dir)
    task = request.task
    if not task.strip():
        todo = 'say what to do: ralph loop "Fix the failing tests" --until ...'
        raise UsageError("the task is empty", todo=todo)
    if options.parallel:
        raise UsageError("a loop runs one turn at a time", todo="omit --parallel, or use `ralph session new`")
    sentence = _find_criterion_in_task(task, project.work_dir) if request.criterion is None else request.criterion
    seconds, where = check_seconds(config, options), "--until" if request.criterion is not None else "the task"
    criterion = _compile_criterion(sentence, seconds, project.work_dir, where)
    record = build_record(
        workflow="loop",
        task=task,
        config=config,
        options=options,
        agents=build_agent_selection(project, config, options),
        criterion=criterion.text,
        checks=criterion.checks,
        loop=_build_loop_settings(project, config, request, criterion),
        project=project,
    )
    refuse_landing(options, on_own_branch=options.worktree)
    _refuse_unworkable(project, record.loop, snapshots=record.snapshots, in_worktree=options.worktree)
    taken = (f"the task names the criterion: {criterion.text}",) if request.criterion is None else ()
    return NewRun(
        project=project,
        record=record,
        location=WorkLocation.WORKTREE if options.worktree else WorkLocation.HERE,
        notices=(*taken, *criterion.notes, *check_start(project, config, record)),
        criteria_typed=(sentence,),
    )


def _build_loop_settings(
    project: Project, config: Config, request: LoopRequest, criterion: Criterion
) -> LoopRunSettings:
    """The settings of the loop, from the request and the configuration."""
    kind = TaskType(request.kind) if request.kind else guess_task_type(request.task, criterion.text)
    return LoopRunSettings(
        type=kind,
        scope=parse_globs("--scope", request.scope, project.directory),
        confirm=require_positive("--confirm", request.confirm, config.loop.confirm) or 1,
        on_stuck=request.on_stuck or config.loop.on_stuck,
        reflector=request.reflector or config.loop.reflector,
        commit=config.loop.commit if request.commits is None else request.commits,
        recall=config.loop.recall and not request.no_recall,
        inputs=hash_inputs(criterion.checks, project.work_dir),
    )


_WANTS = re.compile(
    r"\b(?:make sure|ensure|make|get|let)\s+(?:that\s+)?(`[^`]+`|[^`]+?)\s+(?:to\s+)?(?:pass|passes|succeed|succeeds)\b",
    re.IGNORECASE,
)
"""A task that asks for a command to pass."""


def _find_criterion_in_task(task: str, root: Path) -> str:
    """The criterion that a task names: after the word `until`, or a command that must pass.

    Without one, the error suggests what this repository has.
    """
    if match := re.search(r"\buntil\s+(\S.*?)[.!]?\s*$", task, re.DOTALL):
        return match[1]
    if (match := _WANTS.search(task)) and (command := find_bare_command(match[1].strip("`"), root)):
        return f"`{command}` passes"
    found: list[str] = []
    for kind in (CheckKind.TESTS, CheckKind.LINT, CheckKind.TYPES):
        found += [f"`{one.command}` passes" for one in find_commands(kind, root)]
    example = " AND ".join(dict.fromkeys(found)) or "`COMMAND` passes"
    what = "there is no criterion for when the task is done"
    raise UsageError(what, todo=f"add --until '{example}', or end the task with: until COMMAND passes")


def _compile_criterion(text: str, timeout: float, root: Path, where: str) -> Criterion:
    """The compiled criterion: the text itself, or the file that `@FILE` names. `where` is where the user wrote it."""
    if not text.startswith("@"):
        try:
            return compile_criterion(text, timeout, root)
        except UsageError as error:
            error.where = where
            raise
    path = Path.cwd() / text[1:]
    content = read_text(path, 256 * 1024, "the criteria file", "pass --until @FILE")
    return compile_yaml(content, str(path), timeout, root)


def _refuse_unworkable(project: Project, loop: LoopRunSettings, *, snapshots: bool, in_worktree: bool) -> None:
    """Refuse settings that cannot work in this project."""
    if not snapshots and (loop.commit or loop.scope):
        what = "--commit" if loop.commit else "--scope"
        raise UsageError(f"{what} needs snapshots of the tree", todo="omit --no-snapshots (`snapshots: true`)")
    if not loop.commit:
        return
    place = find_repository(project.root)
    if place is None:
        raise UsageError(
            "--commit needs a git repository", where=str(project.root), todo="`git init`, or omit --commit"
        )
    if not in_worktree and not read_head(place.git).startswith(HEADS):
        raise UsageError(
            "--commit needs a branch to commit to; HEAD is detached",
            todo="`git switch` to a branch, or pass --worktree",
        )
    if not in_worktree and (dirty := list_uncommitted_files(place)):
        raise UsageError(
            "--commit needs a tree without uncommitted changes, so that your changes and the agent's stay separate",
            where=", ".join(dirty[:10]),
            todo="commit them first, or pass --worktree",
        )


def verify_criterion(project: Project, criterion: str, timeout: float = 600.0) -> Verdict:
    """Run the checks that a criterion asks for on the files as they are, each for at most `timeout` seconds."""
    refuse_inside_a_turn("an agent cannot verify its own work this way", "run the command of the check yourself")
    checks = compile_criterion(criterion, timeout, project.work_dir).checks

    async def run(directory: Path) -> Verdict:
        keeper = KeeperClient(directory)
        keeper.attach()
        try:
            runner = CheckRunner(
                run_dir=directory,
                run_id="verify",
                workspace=project.work_dir,
                keeper=keeper,
                environment=check_environment(os.environ),
                secrets=tuple(find_secrets(os.environ)),
            )
            return await runner.run("verify", checks)
        finally:
            await keeper.close()

    with tempfile.TemporaryDirectory(prefix="ralph-verify-") as directory:
        return asyncio.run(run(Path(directory)))
