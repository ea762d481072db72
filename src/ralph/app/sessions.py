"""Sessions on disk: their rules for a run, their documents, and how those are put right before they are taken up."""

import shutil
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from ralph.app.workflows import Kind
from ralph.core.errors import RalphError, StateError
from ralph.core.limits import Limits
from ralph.documents.run_record import RunRecord
from ralph.documents.session import HOME, metadata, repair_classic
from ralph.documents.session import repair as repairing
from ralph.documents.session.layout import ClassicLayout, Layout
from ralph.documents.session.metadata import IterationMetadata
from ralph.documents.session.timestamps import render
from ralph.store import prompts
from ralph.store.files import read_limited, to_bytes, to_text, write_atomic
from ralph.verify.criterion import commands_in
from ralph.workflows.merging import queue_path, read_queue
from ralph.workflows.session.rules import Session
from ralph.workflows.session.state import read_flow
from ralph.workflows.session.terms import Roles

ROLES = ("planner", "questioner", "executor", "reviewer", "librarian", "classic")


def session_workflow(record: RunRecord, root: Path, limits: Limits | None = None) -> Session:
    """The rules of a session, in the layout that it has."""
    texts, foreign = _roles(root, ROLES)
    return Session(
        id=record.id,
        request=record.task,
        layout=layout_of(record, root),
        checks=record.checks,
        compiled=lambda text: commands_in(text, record.check_seconds, root),
        roles=Roles(texts, prompts.load("resolver", root), record.session.skills, foreign),
        created_at=record.created_at,
        by_waves=record.session.by_waves,
    )


def layout_of(record: RunRecord, root: Path) -> Layout:
    """Where the files of a session are."""
    if record.workflow == "classic":
        return ClassicLayout.of(record.id)
    home = root / HOME / record.id
    paths = [path.relative_to(root).as_posix() for path in home.rglob("*.md")] if home.is_dir() else []
    return Layout.of(record.id, paths)


def _roles(root: Path, names: tuple[str, ...]) -> tuple[dict[str, str], frozenset[str]]:
    """The texts of the roles, and those that somebody else wrote."""
    found = {name: prompts.load_role(name, root) for name in names}
    return {name: text for name, (text, _) in found.items()}, frozenset(n for n, (_, other) in found.items() if other)


def watched(record: RunRecord, root: Path) -> tuple[str, ...]:
    """The files that people may put beside the documents of a session, as patterns."""
    home = f"{HOME}/{record.id}"
    return f"{home}/**/*.md", f"{home}/**/metadata.yaml", f"{home}.instructions.md"


def session_texts(root: Path, record: RunRecord) -> dict[str, str]:
    """The documents of a session, by path."""
    home = f"{HOME}/{record.id}"
    own = (
        f".ralph/runs/{record.id}/flow.json",
        queue_path(record.id),
        f"{home}/state/*.yaml",
        f"{home}/*/*/state.yaml",
    )
    paths = sorted({path for pattern in (*watched(record, root), *own) for path in root.glob(pattern)})
    return {path.relative_to(root).as_posix(): to_text(read_limited(path)) for path in paths if path.is_file()}


def mend(root: Path, record: RunRecord, now: float) -> tuple[str, ...]:
    """Put the engine's own documents right by what the others say, and say what was done; what was there is kept beside."""
    rules, texts = session_workflow(record, root), session_texts(root, record)
    layout = rules.layout
    if isinstance(layout, ClassicLayout):
        return _mend_classic(root, layout, texts, now)
    if not any(path.startswith(f"{layout.root}/") for path in texts):
        return ()
    repaired = repairing.repair(layout, texts, render(now))
    number, done = repaired.metadata.iteration, list(repaired.done)
    new = {layout.progress(number): repaired.progress.text, layout.metadata: repaired.metadata_text} if done else {}
    where = layout.iteration_metadata(number)
    if where in texts and metadata.iteration_problems(texts[where]):
        done.append(f"{where.removeprefix(layout.root + '/')}: rebuilt")
        new[where] = metadata.render_iteration(IterationMetadata(number, repaired.metadata.created_at))
    for path, text in new.items():
        _keep_beside(root / path, text, now)
        write_atomic(root / path, to_bytes(text))
    for path, read in ((rules.flow_path, read_flow), (queue_path(record.id), read_queue)):
        try:
            read(texts.get(path, "{}"), path)
        except RalphError:
            _keep_beside(root / path, "", now)
            (root / path).unlink()
            done.append(f"{path}: not readable, and made anew from the markers")
    return tuple(done)


def _mend_classic(root: Path, layout: ClassicLayout, texts: Mapping[str, str], now: float) -> tuple[str, ...]:
    changed, done = repair_classic.repair(layout, texts)
    for path, text in changed.items():
        _keep_beside(root / path, text, now)
        write_atomic(root / path, to_bytes(text))
    return tuple(done)


def _keep_beside(place: Path, text: str, now: float) -> None:
    """Keep a copy of what is about to change; a link is nothing that Ralph wrote."""
    if place.is_symlink():
        raise StateError("a symbolic link is in the place of a document", where=str(place), todo="remove the link")
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.exists() and to_text(read_limited(place)) != text:
        shutil.copy2(place, place.with_name(f"{place.name}.{datetime.fromtimestamp(now):%Y%m%d-%H%M%S}.bak"))


SESSION = Kind(session_workflow, watched, mend, quorum=("planner", "questioner", "executor", "reviewer"))
CLASSIC = Kind(session_workflow, watched, mend)
