"""Hats, as the engine runs them."""

from pathlib import Path

from ralph.app.workflows import Kind
from ralph.core.limits import Limits
from ralph.documents.hats.definition import HatsSettings
from ralph.documents.run_record import RunRecord
from ralph.store import prompts
from ralph.workflows.hats.rules import Hats


def hats_workflow(record: RunRecord, root: Path, limits: Limits | None = None) -> Hats:
    """The rules of a run of hats."""
    templates = prompts.load("hats", root), prompts.load("resolver", root)
    return Hats(record.id, record.task, record.hats or HatsSettings(), record.checks, *templates)


HATS = Kind(hats_workflow, lambda record, root: hats_workflow(record, root).watched)
