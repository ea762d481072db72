"""Being the engine of a run from the command line: in the foreground, or detached."""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from ralph.app.create_run import discard
from ralph.app.engine import drive
from ralph.cli.console import tell
from ralph.cli.render.choose import renderer_for
from ralph.cli.render.live import view_for
from ralph.core.codec import to_plain
from ralph.core.errors import RalphError, UsageError
from ralph.core.limits import Limits
from ralph.core.outcomes import Outcome
from ralph.documents.run_record import RunRecord
from ralph.git.worktree import PLACE, find_worktrees
from ralph.store.files import signature
from ralph.store.runs import Project, RunDir


def refuse_inside_a_turn() -> None:
    """Turns do not start runs: a loop inside a loop has no limits that hold."""
    if os.environ.get("RALPH_TURN"):
        raise UsageError(
            "a turn may not start or resume a run",
            where=f"RALPH_TURN={os.environ['RALPH_TURN']}",
            todo="do the work yourself in this turn",
        )


def work_on(
    project: Project,
    run: RunDir,
    notices: tuple[str, ...],
    *,
    as_json: bool,
    granted: Limits | None = None,
    resumes: bool = False,
) -> int:
    """Drive a run in the foreground and say how it ended."""
    record = run.record()
    limits = granted or record.limits
    renderer = renderer_for(project, record, limits)
    with view_for(renderer, limits, as_json=as_json) as view:
        stop = asyncio.run(drive(project, run, view, notices, granted=granted, resumes=resumes))
    report = next((path for path in view.documents if "completion-" in path), "")
    lines = ["", *renderer.closing(view.ended, report)] if view.ended else []
    if landed := view.landed:
        where = f"on {landed.branch}, as {landed.commit[:10]}" if landed.moved else landed.notice
        lines.append(f"Work:   {where}")
    lines += [f"MISSING: {sentence}" for sentence in (view.ended.missing if view.ended else ())]
    lines += _trees_left(project, record) if not stop.outcome.resumable else ()
    spent = to_plain(view.ended.spent) if view.ended else {}
    facts = {"outcome": stop.outcome, "reason": stop.reason, "exit_code": stop.outcome.exit_code, "spent": spent}
    tell(as_json, lines, command="run", run=run.id, **facts, report=report)
    return stop.outcome.exit_code


def _trees_left(project: Project, record: RunRecord) -> list[str]:
    """What a run that is over leaves on the disk beside its work."""
    mine = [tree for tree in find_worktrees(project.root) if tree.run == record.id] if record.branch else []
    told = f"{len(mine)} in {PLACE}; `ralph worktrees` says what is in them, --prune removes what is merged"
    return [f"Trees:  {told}"] if mine else []


def begin(
    project: Project,
    run: RunDir,
    notices: tuple[str, ...],
    back: Callable[[], None] = lambda: None,
    *,
    detached: bool,
    as_json: bool,
) -> int:
    """Work on a new run, here or in the background; where it cannot begin, all is put `back`, and nothing of it is left."""
    try:
        if detached:
            return detach(project, run, as_json=as_json, notices=notices)
        return work_on(project, run, notices, as_json=as_json)
    except RalphError as error:
        if not (run.path / "journal.jsonl").exists():
            back()
            discard(project, run, error)
        raise


def detach(
    project: Project,
    run: RunDir,
    *,
    as_json: bool,
    command: tuple[str, ...] = ("resume",),
    options: tuple[str, ...] = (),
    notices: tuple[str, ...] = (),
) -> int:
    """Start an engine that outlives this terminal, and wait only until it has taken the run up."""
    log, journal = run.path / "engine.log", run.path / "journal.jsonl"
    before = signature(journal)
    with log.open("ab") as out:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "ralph", *command, run.id, "--json", *options],
            cwd=project.root,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    deadline = time.monotonic() + 30
    while process.poll() is None and signature(journal) == before and time.monotonic() < deadline:
        time.sleep(0.02)
    if process.poll() is not None and signature(journal) == before:
        raise _why(log)
    lines = [*(f"note: {notice}" for notice in notices if notice)]
    lines.append(f"Run {run.id} works in the background (process {process.pid}).")
    lines.append(f"Next:   ralph logs -f {run.id}   ralph status   ralph abort {run.id}")
    return tell(as_json, lines, command="detach", run=run.id, pid=process.pid, log=str(log), notices=notices)


def _why(log: Path) -> RalphError:
    """What a detached engine said before it went."""
    lines = log.read_text(errors="replace").strip().splitlines()
    try:
        said = json.loads(lines[-1])["error"]
        error = RalphError(said["what"], where=said["where"], todo=said["todo"])
        error.outcome = Outcome(said["outcome"])
    except (ValueError, KeyError, TypeError, IndexError):
        return RalphError("the detached engine did not start", where="; ".join(lines[-3:]))
    return error
