"""`ralph land`: bring the work of a run that is over onto the branch you are on."""

import asyncio

import click

from ralph.app.landing import land_run
from ralph.cli.console import here, json_option, tell
from ralph.cli.engine import refuse_inside_a_turn
from ralph.core.errors import UsageError
from ralph.core.outcomes import Outcome
from ralph.git.command import Git
from ralph.git.history import HEADS, contains
from ralph.store.runs import Project, RunDir


@click.command("land")
@click.argument("run", required=False)
@click.option("--queue", "queued", is_flag=True, help="Only show which tasks and runs wait to be merged or landed.")
@click.option("--all", "everything", is_flag=True, help="With --queue: also what is merged or landed.")
@json_option
def command(run: str | None, queued: bool, everything: bool, as_json: bool) -> int:
    """Bring the work of RUN onto the branch that you are on. Default: the latest run that waits for it.

    If your branch has moved, both are merged in a scratch worktree first, and the checks of the run must pass on the
    merged tree. Your branch only moves forward, and only if nothing of yours is uncommitted.
    """
    if queued:
        from ralph.cli.queue import show_queue

        return show_queue(run, everything=everything, as_json=as_json)
    if everything:
        raise UsageError("--all is for the queue", todo="give --queue with it")
    refuse_inside_a_turn()
    project = here()
    chosen = project.run(run) if run else _latest(project)
    landed, verdict = asyncio.run(land_run(project, chosen))
    failed = [] if verdict is None else [result for result in verdict.results if not result.passed]
    lines = [f"FAIL {result.title} ({result.reason})\n{result.output.strip()}\n" for result in failed]
    lines.append(f"Landed {landed.commit[:10]} on {landed.branch}." if landed.moved else landed.notice)
    facts = {"landed": landed.moved, "branch": landed.branch, "commit": landed.commit, "notice": landed.notice}
    tell(as_json, lines, command="land", run=chosen.id, **facts, failed=[result.title for result in failed])
    return 0 if landed.moved else Outcome.FAILED.exit_code


def _latest(project: Project) -> RunDir:
    """The latest run that waits for it."""
    git = Git(project.root)
    if waiting := [run for run in project.runs() if _waits(git, run)]:
        return waiting[-1]
    raise UsageError(
        "no run here waits to be landed", where=str(project.root), todo="`ralph land --queue --all` lists them"
    )


def _waits(git: Git, run: RunDir) -> bool:
    """Whether a run has succeeded on a branch of its own, and its work is not on the user's."""
    outcome = run.outcome()
    branch = run.record().branch if outcome and outcome.succeeded else ""
    tip = git.commit(HEADS + branch) if branch else ""
    return bool(tip) and not contains(git, "HEAD", tip)
