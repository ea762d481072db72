"""Export a run as one page that opens without a network."""

import re
import time
from importlib.resources import files

from ralph import __version__
from ralph.app.changes import diff_run
from ralph.app.views import open_view
from ralph.core.errors import RalphError
from ralph.documents.unified_diff import parse_diff
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
