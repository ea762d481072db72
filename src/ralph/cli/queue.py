"""`ralph land --queue`: what waits to be merged, what was merged, and what could not be."""

from collections.abc import Iterator
from typing import Any

import click

from ralph.cli.console import here, json_option, note_old_name, tell
from ralph.core.entries import MergeStarted
from ralph.core.errors import RalphError
from ralph.core.events import Landed, Merged
from ralph.git.command import Git
from ralph.git.history import contains
from ralph.store.files import read_limited, to_text
from ralph.store.journal import read_claimed
from ralph.store.runs import Project, RunDir
from ralph.workflows.merging import queue_path, read_queue


@click.command("queue", hidden=True)
@click.argument("run", required=False)
@click.option("--all", "everything", is_flag=True, help="Also what is merged or landed.")
@json_option
def command(run: str | None, everything: bool, as_json: bool) -> int:
    """The old name of `ralph land --queue`."""
    note_old_name("queue", "land --queue")
    return show_queue(run, everything=everything, as_json=as_json)


def show_queue(run: str | None, *, everything: bool, as_json: bool) -> int:
    """Print what waits to be merged: the tasks of a run, or of all, and runs whose work is not on your branch yet."""
    project = here()
    runs = [project.run(run)] if run else project.runs()
    rows = [row for one in runs for row in _rows(project, one) if everything or run or not row["done"]]
    lines = [f"{row['run']}  {row['task']:<12} {row['state']:<10} {row['told']}" for row in rows]
    lines = lines or ["Nothing waits to be merged."]
    return tell(as_json, lines, command="queue", root=str(project.root), queue=rows)


def _rows(project: Project, run: RunDir) -> Iterator[dict[str, Any]]:
    try:
        record = run.record()
        if not record.branch:
            return
        entries = [one.entry for one in read_claimed(run.path / "journal.jsonl")]
    except (RalphError, FileNotFoundError):
        return
    waiting = _waiting(project, run)
    under_way = ""
    last: dict[str, Merged] = {}
    landed: Landed | None = None
    for entry in entries:
        match entry:
            case MergeStarted(workspace=under_way):
                pass
            case Merged(workspace=workspace):
                last[workspace] = entry
                under_way = ""
            case Landed():
                landed = entry
    for workspace, resolves in waiting.items():
        state = "resolving" if resolves else "merging" if run.alive and workspace == under_way else "waiting"
        yield _row(run, workspace, state, _told(last[workspace]) if workspace in last else "")
    for workspace, merged in last.items():
        if workspace not in waiting:
            yield _row(run, workspace, "merged" if merged.is_in else "failed", _told(merged), done=merged.is_in)
    if landed:
        outcome, there = run.outcome(), f"on {landed.branch}"
        done = landed.moved or contains(Git(project.root), "HEAD", landed.commit)
        if not landed.moved:
            land = f"{there}; `ralph land {run.id}` brings it in"
            there = "on your branch" if done else land if outcome and outcome.succeeded else landed.notice
        yield _row(run, "the run", "landed" if done else "to land", there, done=done)


def _waiting(project: Project, run: RunDir) -> dict[str, bool]:
    """The workspaces that wait, and whether a resolver is at them."""
    path = queue_path(run.id)
    try:
        queue = read_queue(to_text(read_limited(project.root / path)), path)
    except (RalphError, FileNotFoundError):
        return {}
    return {one.workspace: one.resolving for one in queue.waiting}


def _told(merged: Merged) -> str:
    if merged.is_in:
        return f"as {merged.commit[:10]}"
    why = ", ".join(merged.files[:3]) or next((r.title for r in merged.verdict.failed), "") if merged.verdict else ""
    return f"{merged.end}: {why or ', '.join(merged.files[:3]) or merged.notice}; its work is on {merged.branch}"


def _row(run: RunDir, task: str, state: str, told: str, *, done: bool = False) -> dict[str, Any]:
    return {"run": run.id, "task": task, "state": state, "told": told, "done": done}
