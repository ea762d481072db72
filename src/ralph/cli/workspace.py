"""`ralph land`, `ralph worktrees` and `ralph clean`: the branches, worktrees and files that runs leave behind."""

import asyncio
from collections.abc import Iterator
from dataclasses import asdict

import click

from ralph.app.landing import find_run_to_land, land_run, list_queue
from ralph.app.runs import clean_runs, list_worktrees, refuse_inside_a_turn
from ralph.cli.console import json_option, note_old_name, open_project, print_result, run_argument
from ralph.core.errors import UsageError
from ralph.core.outcomes import Outcome
from ralph.core.text import count, count_are


@click.command("clean")
@run_argument
@click.option("--keep", type=click.IntRange(min=0), help="Keep the last N ended runs. Default: 20.", metavar="N")
@click.option(
    "--older-than",
    type=click.FloatRange(min=0),
    help="Remove only runs that ended more than N days ago. Default: 30.",
    metavar="N",
)
@click.option("--stopped", is_flag=True, help="Also remove runs that can be resumed.")
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
@json_option
def clean(
    run: str | None, keep: int | None, older_than: float | None, stopped: bool, dry_run: bool, as_json: bool
) -> int:
    """Remove RUN, or all ended runs except those to keep, and the processes that they left behind.

    A live run stays. A run that can be resumed stays, unless you name it or pass --stopped.
    """
    refuse_inside_a_turn("an agent cannot remove runs", "leave that to the user")
    cleaned = clean_runs(open_project(), run, keep=keep, days=older_than, stopped=stopped, dry_run=dry_run)
    summary = f"{'Would remove' if dry_run else 'Removed'} {count(len(cleaned.removed), 'run')}"
    lines = [f"{summary}: {', '.join(cleaned.removed)}." if cleaned.removed else f"{summary}."]
    lines += [f"Kept: {line}" for line in cleaned.kept]
    if cleaned.recent and not cleaned.removed:
        why = "recent, or among the latest. `--keep N` and `--older-than DAYS` change that"
        lines.append(f"{count_are(cleaned.recent, 'ended run')} {why}.")
    if cleaned.resumable:
        command = " ".join(("ralph clean --stopped", *_repeat_options(keep, older_than)))
        lines.append(f"{count(cleaned.resumable, 'run')} can be resumed. To remove these, too: {command}")
    return print_result(as_json, lines, command="clean", dry_run=dry_run, **asdict(cleaned))


def _repeat_options(keep: int | None, older_than: float | None) -> Iterator[str]:
    """The options of `ralph clean` that the user gave."""
    if keep is not None:
        yield f"--keep {keep}"
    if older_than is not None:
        yield f"--older-than {older_than:g}"


@click.command("worktrees")
@click.option("--prune", is_flag=True, help="Remove the worktrees of ended runs whose work is merged.")
@json_option
def worktrees(prune: bool, as_json: bool) -> int:
    """List the worktrees of runs, and what is not merged yet.

    --prune never removes a worktree with unmerged commits or uncommitted files.
    """
    if prune:
        refuse_inside_a_turn("an agent cannot remove worktrees of runs", "leave that to the user")
    project = open_project()
    rows = list_worktrees(project, prune=prune)
    lines = [] if rows else [f"No worktrees of runs in {project.root}."]
    for row in rows:
        lines.append(f"{row.run}  {row.what:<14} {row.state:<9} {row.path}")
        lines += [f"{'':20}{row.why}"] if row.why else []
    facts = {"root": str(project.root), "worktrees": [asdict(row) for row in rows]}
    return print_result(as_json, lines, command="worktrees", **facts)


@click.command("land")
@run_argument
@click.option("--queue", "queued", is_flag=True, help="Only show which tasks and runs wait to be merged or landed.")
@click.option("--all", "everything", is_flag=True, help="With --queue: also show what is merged or landed.")
@json_option
def land(run: str | None, queued: bool, everything: bool, as_json: bool) -> int:
    """Merge the work of RUN into your current branch. Default: the latest run that is not landed.

    If your branch has moved, Ralph merges both in a scratch worktree first, and the checks of the run must pass there. Your
    branch only moves forward, and only if you have no uncommitted changes.
    """
    if queued:
        return _show_queue(run, everything=everything, as_json=as_json)
    if everything:
        raise UsageError("--all works only with --queue", todo="add --queue")
    refuse_inside_a_turn()
    project = open_project()
    chosen = project.run(run) if run else find_run_to_land(project)
    done = asyncio.run(land_run(project, chosen))
    landed, verdict = done.landed, done.verdict
    failed = [] if verdict is None else [result for result in verdict.results if not result.passed]
    lines = [f"FAIL {result.title} ({result.reason})\n{result.output.strip()}\n" for result in failed]
    lines.append(f"Landed {landed.commit[:10]} on {landed.branch}." if landed.moved else landed.notice)
    facts = {
        "action": done.action,
        "landed": landed.moved,
        "branch": landed.branch,
        "commit": landed.commit,
        "notice": landed.notice,
    }
    print_result(as_json, lines, command="land", run=chosen.id, **facts, failed=[result.title for result in failed])
    return 0 if landed.moved else Outcome.FAILED.exit_code


@click.command("queue", hidden=True)
@run_argument
@click.option("--all", "everything", is_flag=True, help="Also what is merged or landed.")
@json_option
def queue(run: str | None, everything: bool, as_json: bool) -> int:
    """The old name of `ralph land --queue`."""
    note_old_name("queue", "land --queue")
    return _show_queue(run, everything=everything, as_json=as_json)


def _show_queue(run: str | None, *, everything: bool, as_json: bool) -> int:
    """Print what waits to be merged or landed."""
    project = open_project()
    rows = [row for row in list_queue(project, run) if everything or run or not row.done]
    lines = [f"{row.run}  {row.task:<12} {row.state:<10} {row.told}" for row in rows]
    facts = {"root": str(project.root), "queue": [asdict(row) for row in rows]}
    return print_result(as_json, lines or ["Nothing waits to be merged."], command="queue", **facts)
