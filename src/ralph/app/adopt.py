"""Taking over a run that Ralph cannot know to be its own: cloned, written by an older version, or changed."""

import os
from collections.abc import Iterator
from datetime import datetime

from ralph.core.entries import RunAdopted
from ralph.documents.run_record import RunRecord
from ralph.store.files import storage
from ralph.store.journal import Journal
from ralph.store.runs import Project, RunDir
from ralph.workflows.loop import HOME as LOOPS


def programs_of(record: RunRecord) -> Iterator[tuple[str, str]]:
    """What a run starts: what it is for, and its command."""
    for label, spec in record.crew.everyone.items():
        words = " ".join((label, *spec.arguments))
        variables = "".join(f"{name}={value} " for name, value in spec.environment.items())
        yield "agent", f"{variables}{words}" + (f" (scenario {spec.scenario})" if spec.scenario else "")
    for check in record.checks:
        yield "check", check.command or check.title
    for command in record.trees.setup:
        yield "set-up", command


def adopt(project: Project, run: RunDir, reason: str, at: datetime) -> str:
    """Make a run the user's own, and journal it; says how it goes on. What it claims is kept beside it."""
    lock = run.lock()
    try:
        goes_on, aside = run.adopt(at)
        documents = project.root / LOOPS / "loops" / run.id
        if not goes_on and documents.is_dir():
            with storage(documents):
                os.rename(documents, aside / "loop")
        journal, _ = Journal.open(run.path / "journal.jsonl")
        journal.append(at.timestamp(), RunAdopted(reason, aside.name, goes_on))
    finally:
        lock.release()
    if goes_on:
        return f"adopted: it goes on from the last line that Ralph wrote; what was added is in {aside}"
    return f"adopted: it starts over on the files as they are; what it claims of earlier turns and checks is in {aside}"
