"""Going on with other agents: journaled, since `run.json` stays as it was written."""

import time
from dataclasses import replace

from ralph.core.codec import from_plain, read_json, to_json
from ralph.core.entries import AgentsChanged
from ralph.core.errors import UsageError
from ralph.documents.run_record import Crew, RunRecord
from ralph.engine.ledger import Ledger
from ralph.store.journal import Journal
from ralph.store.runs import RunDir


def with_changed_crew(record: RunRecord, ledger: Ledger) -> RunRecord:
    """The record with the agents that the user chose last."""
    if not ledger.crew:
        return record
    where = "journal.jsonl: agents.changed"
    return replace(record, crew=from_plain(Crew, read_json(ledger.crew, where, "start a new run"), where))


def change_agents(run: RunDir, crew: Crew) -> None:
    """Have other agents do the turns of a run from here on.

    A turn that is still open belongs to the agent that began it, so it has to end first.
    """
    lock = run.lock()
    try:
        journal, records = Journal.open(run.path / "journal.jsonl")
        ledger = Ledger.of(run.record().limits, records)
        if any(work.open for work in ledger.work.values()):
            todo = f"`ralph resume {run.id}` first, then pause it, or abort it"
            raise UsageError(f"a turn of run {run.id} has not ended, and belongs to its agent", todo=todo)
        journal.append(time.time(), AgentsChanged(crew=to_json(crew), label=crew.chain[0].label))
    finally:
        lock.release()
