"""The page of one run: head, evidence, findings, changes, timeline and cost."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ralph.core.events import NOT_ISOLATED
from ralph.view.labels import LIMITS, describe_task, label_grade, label_state
from ralph.view.model import LimitView, RunView
from ralph.view.page.changes import show_diff
from ralph.view.page.evidence import show_checks, show_findings
from ralph.view.page.history import show_cost, show_timeline
from ralph.view.page.markup import Markup, badge, box, icon, prose, tag
from ralph.view.page.times import amount, moment

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
"""No script can run, and nothing is loaded, whatever a run contains."""


@dataclass(frozen=True)
class PageParts:
    """What a page contains besides the view."""

    css: str
    icons: str
    """The symbols, as the content of an SVG file."""
    version: str
    exported_at: float
    files: Sequence[dict[str, Any]] = field(default_factory=tuple)
    """The changed files of the diff."""
    diff_problem: str = ""
    """Why there is no diff; empty if there is one."""


def render_page(view: RunView, parts: PageParts) -> str:
    """One HTML document."""
    title = " ".join(view.run.task.split()) or view.run.id
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("meta", name="viewport", content="width=device-width,initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", f"{title[:80]} · Ralph"),
        tag("style", Markup(parts.css)),
    )
    sections = [show_checks(view), show_findings(view)]
    if view.tasks:
        sections.append(_show_tasks(view))
    sections += [show_diff(view, parts.files, parts.diff_problem), show_timeline(view), show_cost(view)]
    symbols = tag("svg", Markup(parts.icons), class_="defs", aria_hidden="true")
    footer = f"Run {view.run.id} of {view.run.project}, exported {moment(parts.exported_at)} by Ralph {parts.version}."
    body = tag("body", symbols, tag("main", _show_head(view, title), sections, tag("footer", footer), class_="sheet"))
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def _show_head(view: RunView, title: str) -> Markup:
    run = view.run
    project = run.project.rstrip("/").rpartition("/")[2]
    crumb = [project, view.workflow, run.id, view.agent or ", ".join(run.agents)]
    named = [tag("span", one) for one in crumb if one]
    if run.branch:
        named += [icon("branch"), tag("code", run.branch)]
    if view.started_at:
        named.append(tag("span", f"started {moment(view.started_at)}"))
    line = tag("div", tag("h1", title), badge(label_state(view)), badge(label_grade(view)), class_="line1")
    limits = [_show_limit(limit) for limit in view.limits if limit.name != "deadline"]
    links = [("evidence", "Evidence"), ("findings", "Findings")]
    links += [("tasks", "Tasks")] if view.tasks else []
    links += [("diff", "Diff"), ("timeline", "Timeline"), ("cost", "Cost")]
    toc = tag("nav", [tag("a", name, href=f"#{id}") for id, name in links], class_="toc", aria_label="Sections")
    return tag(
        "header",
        tag("div", _join(named), class_="crumb"),
        line,
        tag("p", *prose(view.headline), class_="headline"),
        tag("p", "Until: ", *prose(run.criterion), class_="headline") if run.criterion else "",
        _show_warnings(view),
        tag("div", limits, class_="limits") if limits else "",
        toc,
        class_="rhead",
    )


def _join(parts: list[Markup]) -> list[Markup | str]:
    joined: list[Markup | str] = []
    for part in parts:
        joined += [" · ", part] if joined else [part]
    return joined


def _show_warnings(view: RunView) -> list[Markup]:
    """What a reader must know before they believe the rest."""
    notes = []
    if view.doubt:
        notes.append(("fail", f"Not verified: {view.doubt}"))
    if view.sandbox.startswith(NOT_ISOLATED):
        notes.append(("need", f"{view.sandbox[:1].upper()}{view.sandbox[1:]}"))
    notes += [("need", sentence) for sentence in view.missing]
    return [tag("p", icon("warn", tone), tag("span", *prose(text)), class_=f"note {tone}") for tone, text in notes]


def _show_limit(limit: LimitView) -> Markup:
    share = min(1.0, max(0.0, limit.share))
    kind = "over" if limit.share >= 1 else "warn" if limit.share >= 0.8 else "fill"
    drawn = (
        tag("rect", class_="track", width="100", height="4"),
        tag("rect", class_=kind, width=f"{share * 100:.1f}", height="4"),
    )
    bar = tag("svg", *drawn, class_="meter", viewBox="0 0 100 4", preserveAspectRatio="none", aria_hidden="true")
    key = tag("div", tag("span", LIMITS.get(limit.name, limit.name)), tag("span", amount(limit)), class_="k")
    return tag("div", key, bar, class_="limit")


def _show_tasks(view: RunView) -> Markup:
    rows = []
    for task in view.tasks:
        symbol, word, tone = describe_task(task)
        text = f"{task.title}{f': {task.reason}' if task.reason else ''}"
        mark = tag("span", symbol, class_=f"mk c-{tone}")
        rows.append(
            tag("tr", tag("td", task.id), tag("td", mark), tag("td", text, tag("span", f" {word}", class_="dim")))
        )
    return box("Tasks", tag("table", rows, class_="tl"), id="tasks")
