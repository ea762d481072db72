"""The evidence of a run: its checks by iteration, their output, and what the guards found."""

from ralph.core.checks import CheckStatus
from ralph.core.text import count
from ralph.view.labels import CHECKS, Label, describe_attribution
from ralph.view.model import CheckPoint, CheckView, FindingView, RunView
from ralph.view.page.markup import Markup, box, empty, icon, prose, tag
from ralph.view.page.times import clock, span

_MAX_COLUMNS = 12


def show_checks(view: RunView) -> Markup:
    """The matrix of checks by iteration, and the details of each check."""
    if not view.checks:
        named = ", ".join(view.run.checks)
        text = f"{named} would have run before the first turn." if named else "Its result could not be verified."
        return box("Evidence", empty("Not checked" if named else "This run has no checks", text), id="evidence")
    scopes = dict.fromkeys(check.scope for check in view.checks)
    passed = sum(check.status is CheckStatus.PASSED for check in view.checks)
    parts = [_matrix(scope, [one for one in view.checks if one.scope == scope]) for scope in scopes]
    parts += [_detail(check) for check in view.checks]
    return box("Evidence", *parts, id="evidence", note=f"{passed} / {count(len(view.checks), 'check')} passed")


def show_findings(view: RunView) -> Markup:
    """What the guards found, the open findings first."""
    found = sorted(view.findings, key=lambda one: not one.is_open)
    if not found:
        return box("Findings", empty("No findings", "The guards found no gamed check."), id="findings")
    is_open = sum(one.is_open for one in found)
    return box("Findings", *map(_finding, found), id="findings", note=f"{is_open} open of {len(found)}")


def label_of(status: CheckStatus | None, *, flaky: bool) -> Label:
    """The symbol, word and color of a result."""
    return CHECKS["flaky" if flaky else status or ""]


def _column(point: CheckPoint) -> int:
    return 0 if point.key == "baseline" else point.iteration


def _matrix(scope: str, checks: list[CheckView]) -> Markup:
    columns = sorted({_column(point) for check in checks for point in check.history})[-_MAX_COLUMNS:]
    heads = [tag("th", one or tag("abbr", "Base", title="before the run"), scope="col") for one in columns]
    title = tag("th", f"Check of {scope}" if scope else "Check", scope="col")
    last = (tag("th", "Last", class_="num", scope="col"), tag("th", "Since the base", class_="l since", scope="col"))
    head = tag("thead", tag("tr", title, *heads, *last))
    body = tag("tbody", [_matrix_row(check, columns) for check in checks])
    caption = tag("caption", f"Checks by iteration{f' of {scope}' if scope else ''}", class_="sr")
    return tag("div", tag("table", caption, head, body, class_="mx"), class_="scroll", tabindex="0")


def _matrix_row(check: CheckView, columns: list[int]) -> Markup:
    cells = []
    for column in columns:
        points = [point for point in check.history if _column(point) == column]
        label = label_of(points[-1].status, flaky=points[-1].flaky) if points else CHECKS[""]
        cells.append(tag("td", tag("span", icon(label[0], label[2], label[1]), class_="cell")))
    name = tag("th", tag("code", check.command or check.title), scope="row", title=check.command or check.title)
    since = tag("td", describe_attribution(check.attribution), class_="l since")
    return tag("tr", name, *cells, tag("td", span(check.seconds), class_="num"), since)


def _detail(check: CheckView) -> Markup:
    label = label_of(check.status, flaky=check.flaky)
    when = f" in {check.history[-1].key}" if check.history else ""
    summary = tag(
        "summary",
        icon("down"),
        icon(label[0], label[2]),
        tag("code", check.command or check.title),
        tag("span", f"{label[1]}{when}", class_="dim"),
    )
    facts = [
        ("Check", check.title),
        ("Verdict", label[1] + (f", exit code {check.code}" if check.code is not None else "")),
        ("Reason", check.reason),
        ("Tests", _count_tests(check)),
        ("Failing", ", ".join(check.failing[:20])),
        ("Since", check.since.key if check.since else ""),
        ("Attribution", describe_attribution(check.attribution)),
        ("Took", span(check.seconds)),
        ("Ran", count(check.runs, "time")),
    ]
    kept = [(name, text) for name, text in facts if text]
    listed = tag("dl", [[tag("dt", name), tag("dd", text)] for name, text in kept], class_="kv")
    output = tag("pre", check.output, class_="out", tabindex="0") if check.output else empty("No output")
    is_open = check.status is not CheckStatus.PASSED
    return tag("details", summary, tag("div", listed, output, class_="detail"), open=is_open)


def _count_tests(check: CheckView) -> str:
    if check.tests is None:
        return ""
    skipped = f", {check.tests.skipped} skipped" if check.tests.skipped else ""
    return f"{check.tests.passed} passed, {check.tests.failed} failed{skipped}"


def _finding(one: FindingView) -> Markup:
    finding = one.finding
    label = "open" if one.is_open else "no longer there"
    tone = "need" if one.is_open else "idle"
    head = tag("p", icon("warn", tone), tag("span", *prose(finding.sentence)), class_="row top-row")
    where = (tag("code", finding.rule), " · ", tag("code", finding.place))
    meta = tag("p", *where, f" · {one.key} · {clock(one.at)} · {label}", class_="sm dim")
    excerpt = tag("pre", finding.excerpt, class_="out below") if finding.excerpt else ""
    return tag("div", head, meta, excerpt, class_="finding")
