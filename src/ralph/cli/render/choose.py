"""Choose the renderer of a run by its workflow."""

from ralph.app.workflows import SESSIONS
from ralph.cli.render.journal import Renderer
from ralph.core.errors import StateError
from ralph.core.limits import Limits
from ralph.documents.run_record import RunRecord
from ralph.store.files import read_limited
from ralph.store.runs import Project


def renderer_for(project: Project, record: RunRecord, limits: Limits, *, from_the_start: bool = False) -> Renderer:
    """The renderer of a run, from where its documents are, or from its beginning."""
    if record.workflow in SESSIONS:
        from ralph.cli.render.session import SessionRenderer

        return SessionRenderer(record.id)
    if record.hats:
        from ralph.app.hats import hats_workflow
        from ralph.cli.render.hats import HatsRenderer

        return HatsRenderer(record.id, events=project.root / hats_workflow(record, project.root).events_path)
    from ralph.app.loops import loop_workflow
    from ralph.cli.render.loop import LoopRenderer

    loop = loop_workflow(record, project.root, limits)
    path = project.root / loop.state_path
    try:
        text = "" if from_the_start else read_limited(path).decode(errors="replace")
    except (OSError, StateError):
        text = ""
    try:
        state = loop.load({loop.state_path: text} if text else {})
    except StateError:
        state = loop.load({})
    return LoopRenderer(record.id, loop=loop, state=state)
