"""Export a run as one page that opens without a network."""

import re
import time
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from ralph import __version__
from ralph.app.changes import diff_run
from ralph.app.views import open_view
from ralph.core.errors import RalphError, UsageError
from ralph.documents.diff import parse_diff
from ralph.store.files import to_bytes, write_atomic
from ralph.store.runs import Project, RunDir
from ralph.view.page.run_page import PageParts, render_page


def export_html(project: Project, run: RunDir) -> str:
    """The run as one HTML page: evidence, checks, findings, diff, timeline and cost."""
    view = open_view(project, run)
    problem, changed = "", []
    try:
        changed = parse_diff(diff_run(project, run).text)
    except RalphError as error:
        problem = f"{error.what[:1].upper()}{error.what[1:]}."
    static = files("ralph") / "web" / "static"
    icons = re.sub(r"</?svg[^>]*>", "", (static / "icons.svg").read_text(encoding="utf-8"))
    page_css = files("ralph") / "view" / "page" / "page.css"
    parts = PageParts(
        css=(static / "ralph.css").read_text(encoding="utf-8") + page_css.read_text(encoding="utf-8"),
        icons=icons,
        version=__version__,
        exported_at=time.time(),
        files=changed,
        diff_problem=problem,
    )
    return render_page(view, parts)


@dataclass(frozen=True)
class ExportedPage:
    """A page that was written to a file."""

    path: Path
    size: int


def write_page(project: Project, run: RunDir, output: str | None, *, force: bool = False) -> ExportedPage:
    """Write the page of a run to a file, by default `ralph-RUN.html` in the current directory."""
    name = f"ralph-{run.id}.html"
    place = Path(output or name)
    if place.is_dir():
        raise UsageError(f"{place} is a directory", todo=f"name a file in it: -o {place / name}")
    if not place.parent.is_dir():
        raise UsageError(f"there is no directory {place.parent}", todo="create it, or name another file")
    if place.exists() and not force:
        raise UsageError(f"{place} already exists", todo="add --force to replace it, or name another file with -o")
    page = to_bytes(export_html(project, run))
    write_atomic(place, page)
    return ExportedPage(place, len(page))
