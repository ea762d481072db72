"""Being the engine of a run from the command line: in the foreground, or detached."""

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from ralph.cli.console import tell
from ralph.cli.tellers import teller_for
from ralph.cli.view import view_for
from ralph.core.codec import to_plain
from ralph.core.errors import RalphError, UsageError
from ralph.core.limits import Limits
from ralph.core.outcomes import Outcome
from ralph.store.runs import Project, RunDir
from ralph.wiring.engine import drive


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
    teller = teller_for(project, record, limits)
    with view_for(teller, limits, as_json=as_json) as view:
        stop = asyncio.run(drive(project, run, view, notices, granted=granted, resumes=resumes))
    report = next((path for path in view.documents if "completion-" in path), "")
    lines = ["", *teller.closing(view.ended, report)] if view.ended else []
    if landed := view.landed:
        where = f"on {landed.branch}, as {landed.commit[:10]}" if landed.moved else landed.notice
        lines.append(f"Work:   {where}")
    spent = to_plain(view.ended.spent) if view.ended else {}
    facts = {"outcome": stop.outcome, "reason": stop.reason, "exit_code": stop.outcome.exit_code, "spent": spent}
    tell(as_json, lines, command="run", run=run.id, **facts, report=report)
    return stop.outcome.exit_code


def detach(project: Project, run: RunDir, *, as_json: bool, options: tuple[str, ...] = ()) -> int:
    """Start an engine that outlives this terminal, and wait only until it has taken the run up."""
    log = run.path / "engine.log"
    with log.open("ab") as out:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "ralph", "resume", run.id, "--json", *options],
            cwd=project.root,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    deadline = time.monotonic() + 30
    while process.poll() is None and not (run.path / "journal.jsonl").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    if process.poll() is not None and not (run.path / "journal.jsonl").exists():
        raise _why(log)
    lines = [f"Run {run.id} works in the background (process {process.pid})."]
    lines.append(f"Next:   ralph logs -f {run.id}   ralph status   ralph abort {run.id}")
    return tell(as_json, lines, command="detach", run=run.id, pid=process.pid, log=str(log))


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
