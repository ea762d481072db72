"""An engine for a run of the graph workflow: `engine.py ROOT RUN`, to be started, killed and started again."""

import asyncio
import sys
from pathlib import Path

from graph import workflow

from ralph.app import build_kernel, run_engine
from ralph.app.workflows import WorkflowKind
from ralph.core.entries import Record
from ralph.core.turns import AgentEvent, Turn
from ralph.store.runs import Project


class Silent:
    def on_record(self, record: Record) -> None:
        """Nobody looks on."""

    def on_agent_event(self, turn: Turn, event: AgentEvent) -> None:
        """Nobody looks on."""


def main(root: str, run: str) -> int:
    run_engine.find_workflow_kind = build_kernel.find_workflow_kind = lambda name: WorkflowKind(workflow)
    project = Project(Path(root))
    stop = asyncio.run(run_engine.run_engine(project, project.run(run), Silent()))
    print(stop.outcome, stop.reason)
    return stop.outcome.exit_code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
