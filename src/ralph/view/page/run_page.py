"""A run as one page that opens without a network: evidence, checks and findings, changes, timeline and cost."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ralph.core.checks import CheckStatus
from ralph.core.events import NOT_ISOLATED
from ralph.core.text import count
from ralph.documents.hats.definition import show_role
from ralph.view.labels import (
    CHECKS,
    LIMITS,
    Label,
    describe_attribution,
    describe_end,
    describe_means,
    describe_signal,
    describe_task,
    label_grade,
    label_state,
)
from ralph.view.model import (
    CheckPoint,
    CheckView,
    CommentView,
    CostGroup,
    CostPoint,
    FindingView,
    LimitView,
    RunView,
    SignalView,
    Sums,
    TurnView,
)
from ralph.view.page.markup import (
    Markup,
    amount,
    badge,
    box,
    clock,
    day,
    empty,
    icon,
    moment,
    money,
    prose,
    span,
    tag,
    tokens,
)
from ralph.view.work import describe_work

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
"""No script can run, and nothing is loaded, whatever a run contains."""
_MAX_MOMENTS = 600
_KINDS = {"+": "add", "-": "del"}
_OPEN_FILES = 12
"""How many files are unfolded. A page with hundreds of files stays readable."""


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
    crumb = [project, view.workflow, run.id, _name_agent(view.agent or ", ".join(run.agents))]
    named = [tag("span", one) for one in crumb if one]
    if run.branch:
        named += [icon("branch"), tag("code", run.branch)]
    if view.started_at:
        named.append(tag("span", f"started {moment(view.started_at)}"))
    labels = dict.fromkeys((label_state(view), label_grade(view)))
    line = tag("div", tag("h1", title), [badge(label) for label in labels], class_="line1")
    limits = [_show_limit(limit) for limit in view.limits if limit.name != "deadline"]
    links = [("evidence", "Evidence"), ("findings", "Findings")]
    links += [("tasks", "Tasks")] if view.tasks else []
    links += [("diff", "Diff"), ("timeline", "Timeline"), ("cost", "Cost")]
    toc = tag("nav", [tag("a", name, href=f"#{id}") for id, name in links], class_="toc", aria_label="Sections")
    return tag(
        "header",
        tag("div", _join(named), class_="crumb"),
        line,
        tag("p", *prose(f"{view.headline[:1].upper()}{view.headline[1:]}"), class_="headline"),
        tag("p", "Until: ", *prose(run.criterion), class_="headline") if run.criterion else "",
        _show_warnings(view),
        tag("div", limits, class_="limits") if limits else "",
        toc,
        class_="rhead",
    )


def _name_agent(agent: str) -> str:
    """The name of an agent. A command of the user's own is shown without the directories of its programs."""
    return " ".join(word.rpartition("/")[2] for word in agent.split(" "))


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


@dataclass(frozen=True)
class Moment:
    """Something that happened."""

    at: float
    symbol: str
    tone: str
    title: str
    text: str = ""


def show_timeline(view: RunView) -> Markup:
    """Everything that happened, the oldest first."""
    moments = list_moments(view)
    if not moments:
        return box("Timeline", empty("Nothing happened yet"), id="timeline")
    shown = moments[-_MAX_MOMENTS:]
    rows: list[Markup] = []
    today = ""
    for one in shown:
        if day(one.at) != today:
            today = day(one.at)
            rows.append(tag("tr", tag("td", today, colspan="3"), class_="day"))
        said = tag("span", " ", *prose(one.text), class_="dim") if one.text else ""
        what = tag("td", tag("b", *prose(one.title)), said)
        rows.append(tag("tr", tag("td", clock(one.at)), tag("td", icon(one.symbol, one.tone)), what))
    earlier = view.more_turns or len(moments) > len(shown)
    note = "the latest; `ralph logs` has all" if earlier else count(len(moments), "entry", "entries")
    return box("Timeline", tag("table", rows, class_="tl"), id="timeline", note=prose(note))


def list_moments(view: RunView) -> list[Moment]:
    """What the view knows of turns, checks, signals, questions, merges, commits and notices, by time."""
    found = [_turn_moment(turn) for turn in view.turns]
    found += _check_moments(view)
    found += [_signal_moment(view, signal) for signal in view.signals if signal.at]
    for one in view.questions:
        answer = f"Answered by {one.question.by}: {one.question.answer}" if one.question.answer is not None else "Open"
        found.append(Moment(one.at, "ask", "need", f"Question: {one.question.question}", answer))
    for merge in view.merges:
        is_merged = merge.end is not None and merge.end.value == "merged"
        title = f"Merge of {merge.workspace}: {merge.end.value if merge.end else 'in progress'}"
        tone = "pass" if is_merged else "need"
        found.append(Moment(merge.ended_at or merge.started_at, "branch", tone, title, merge.notice))
    found += [Moment(one.at, "check", "idle", f"Commit {one.commit[:10]}", one.key) for one in view.commits]
    found += [Moment(one.at, "none", "idle", "Notice:", one.text) for one in view.notices]
    if view.started_at:
        found.append(Moment(view.started_at, "work", "idle", "The run started"))
    if view.ended and view.ended_at:
        tone = "pass" if view.ended.outcome.succeeded and not view.doubt else "idle"
        found.append(
            Moment(
                view.ended_at, "stop", tone, f"The run ended: {view.ended.outcome.replace('-', ' ')}", view.ended.reason
            )
        )
    return sorted(found, key=lambda one: one.at)


def _turn_moment(turn: TurnView) -> Moment:
    tone = {None: "work", "finished": "idle"}.get(turn.end and turn.end.value, "need")
    took = f", {span(turn.ended_at - turn.started_at)}" if turn.ended_at else ""
    state = describe_end(turn.end) if turn.end else "running"
    title = f"Turn {turn.number}, {show_role(turn.role)}{f' on {turn.task}' if turn.task else ''}: {state}{took}"
    changed = f"{count(turn.files, 'file')}, +{turn.added} −{turn.removed}" if turn.files else ""
    text = ". ".join(part.rstrip(".") for part in (turn.summary or turn.error, changed) if part)
    return Moment(turn.started_at, "work", tone, title, text)


def _check_moments(view: RunView) -> list[Moment]:
    """One moment for each time that checks ran."""
    runs: dict[tuple[float, str], list[tuple[str, str, str]]] = {}
    for check in view.checks:
        for point in check.history:
            label = label_of(point.status, flaky=point.flaky)
            runs.setdefault((point.at, point.key), []).append((check.command or check.title, label[1], label[2]))
    found = []
    for (at, key), results in runs.items():
        passed = sum(word == "Passed" for _, word, _ in results)
        failing = ", ".join(f"{name}: {word.lower()}" for name, word, _ in results if word != "Passed")
        tone = "pass" if passed == len(results) else "fail"
        if any(word == "Could not run" for _, word, _ in results):
            tone = "need"
        symbol = {"pass": "pass", "fail": "failo"}.get(tone, "norun")
        when = describe_work(view.workflow, key, view.tasks)
        found.append(
            Moment(
                at,
                symbol,
                tone,
                f"Checks {when}: {passed} / {len(results)} passed",
                failing,
            )
        )
    return found


def _signal_moment(view: RunView, signal: SignalView) -> Moment:
    effect = " ".join(text for _, _, text in describe_signal(signal, view.at))
    said = f": {' '.join(signal.message.split())}" if signal.message else ""
    if comments := sum(comment.signal == signal.id for comment in view.comments):
        said = f": {count(comments, 'comment')} on the changes"
    return Moment(signal.at, "note", "work", f"{signal.type or 'Refused signal'}{said}", effect)


def show_cost(view: RunView) -> Markup:
    """What the run cost, by role, agent and model, and over time."""
    total = view.cost.total
    if not total.turns:
        return box("Cost", empty("No turn has ended yet"), id="cost")
    groups = (("role", view.cost.by_role), ("agent", view.cost.by_agent), ("model", view.cost.by_model))
    body = [row for name, group in groups for row in _group_rows(name, group)]
    body.append(_sum_row("Total", total, class_="g"))
    heads = ("", "Turns", "Tokens in", "Tokens out", "Cost")
    head = tag("thead", tag("tr", [tag("th", name, scope="col", class_="num" if name else None) for name in heads]))
    table = tag("div", tag("table", head, tag("tbody", body), class_="sums"), class_="scroll", tabindex="0")
    unpriced = f", {count(total.unpriced_turns, 'turn')} without a price" if total.unpriced_turns else ""
    return box("Cost", _chart(view.cost.over_time), table, id="cost", note=f"{money(total.cost)}{unpriced}")


def _group_rows(name: str, group: tuple[CostGroup, ...]) -> list[Markup]:
    if not group:
        return []
    head = tag("tr", tag("th", f"By {name}", colspan="5", scope="colgroup"), class_="g")
    shown = {"role": show_role, "agent": _name_agent}.get(name, str)
    names = [shown(one.name) or "not reported" for one in group]
    return [head, *(_sum_row(title, one.sums) for title, one in zip(names, group, strict=True))]


def _sum_row(name: str, sums: Sums, class_: str | None = None) -> Markup:
    values = (str(sums.turns), tokens(sums.input_tokens), tokens(sums.output_tokens), money(sums.cost))
    return tag("tr", tag("th", name, scope="row"), [tag("td", value, class_="num") for value in values], class_=class_)


def _chart(points: tuple[CostPoint, ...]) -> Markup | str:
    """The money spent over the turns, or the tokens if no price is known."""
    values = [point.cost for point in points]
    what = "Money"
    if not any(values):
        values, what = [float(point.tokens) for point in points], "Tokens"
    if len(set(values)) < 2 or not values[-1]:
        return ""
    step = 1000 / (len(values) - 1)
    line = " ".join(f"{number * step:.0f},{58 - 56 * value / values[-1]:.1f}" for number, value in enumerate(values))
    title = f"{what} spent over {len(values)} turns"
    drawn = (tag("title", title), tag("polyline", points=line))
    return tag("svg", *drawn, class_="chart", viewBox="0 0 1000 60", preserveAspectRatio="none", role="img")


def show_diff(view: RunView, files: Sequence[dict[str, Any]], problem: str) -> Markup:
    """The changed files with their hunks, or why there is no diff."""
    placed: set[int] = set()
    shown = [_file(view, file, number < _OPEN_FILES, placed) for number, file in enumerate(files)]
    rest = [_comment(one) for number, one in enumerate(view.comments) if number not in placed]
    others = tag("div", tag("h3", "Comments on lines that have changed since"), rest, class_="in cmts") if rest else ""
    if problem:
        return box("Diff", empty("There is no diff", problem), others, id="diff")
    if not files:
        return box("Diff", empty("No changes", "The run changed no file."), others, id="diff")
    total = _stat(sum(file["added"] for file in files), sum(file["removed"] for file in files))
    return box("Diff", *shown, others, id="diff", note=[f"{count(len(files), 'file')} ", total])


def _stat(added: int, removed: int) -> Markup:
    plus, minus = tag("span", f"+{added}", class_="plus"), tag("span", f"−{removed}", class_="minus")
    return tag("span", plus, minus, class_="dstat")


def _file(view: RunView, file: dict[str, Any], is_open: bool, placed: set[int]) -> Markup:
    status = "" if file["status"] == "changed" else file["status"]
    turns = [str(turn.number) for turn in view.turns if file["path"] in turn.names]
    by = f"changed in {'turns' if len(turns) > 1 else 'turn'} {', '.join(turns[-8:])}" if turns else ""
    summary = tag(
        "summary",
        icon("down"),
        tag("code", file["path"]),
        _stat(file["added"], file["removed"]),
        tag("span", status, class_="dim sm"),
        tag("span", class_="grow"),
        tag("span", by, class_="dimmer sm"),
    )
    if file["binary"]:
        return tag("details", summary, empty("Binary file"), open=is_open)
    rows = [row for hunk in file["hunks"] for row in _hunk(view, file["path"], hunk, placed)]
    left_out = f"{count(file['left_out'], 'more line')}; `ralph diff` shows all." if file["left_out"] else ""
    cut = tag("p", *prose(left_out), class_="in sm dimmer") if left_out else ""
    return tag("details", summary, tag("table", tag("tbody", rows), class_="hunk"), cut, open=is_open)


def _hunk(view: RunView, path: str, hunk: dict[str, Any], placed: set[int]) -> list[Markup]:
    at = (tag("td", class_="n"), tag("td", class_="n"), tag("td", class_="s"))
    rows = [tag("tr", *at, tag("td", f"{hunk['head']} {hunk['context']}"), class_="at")]
    for sign, old, new, text in hunk["lines"]:
        shown = "−" if sign == "-" else sign
        numbers = (tag("td", old or "", class_="n"), tag("td", new or "", class_="n"), tag("td", shown, class_="s"))
        rows.append(tag("tr", *numbers, tag("td", text), class_=_KINDS.get(sign)))
        for number, comment in enumerate(view.comments):
            if number not in placed and _is_at(comment, path, sign, old, new, text):
                placed.add(number)
                rows.append(tag("tr", tag("td", _comment(comment), class_="cm", colspan="4")))
    return rows


def _is_at(comment: CommentView, path: str, sign: str, old: int | None, new: int | None, text: str) -> bool:
    """Whether a comment is about a line that still has the text on which it was written."""
    line = comment.last_line or comment.line
    is_here = sign == "-" and line == old if comment.side == "old" else sign != "-" and line == new
    known = {quoted[1:].rstrip() for quoted in comment.snippet.splitlines()}
    return comment.path == path and is_here and text.rstrip() in known


def _comment(comment: CommentView) -> Markup:
    lines = f"lines {comment.line} to {comment.last_line}" if comment.last_line else f"line {comment.line}"
    place = f"{comment.path}, {'removed ' if comment.side == 'old' else ''}{lines}"
    meta = tag("div", tag("b", "Comment"), tag("span", place), class_="meta")
    acks = []
    for receipt in comment.receipts[:1]:
        acks.append(
            (
                "pass",
                "pass",
                f"Received by turn {receipt.turn} ({show_role(receipt.role)}), {describe_means(receipt.means)}",
            )
        )
    if not acks:
        acks.append(("wait", "idle", "No turn has received it"))
    if comment.changed_by:
        acks.append(("check", "pass", f"Turn {comment.changed_by} changed these lines"))
    elif comment.file_changed_by:
        acks.append(("none", "idle", f"Turn {comment.file_changed_by} changed the file, but not these lines"))
    listed = [tag("p", icon(symbol, tone), tag("span", text), class_="ack") for symbol, tone, text in acks]
    return tag("div", meta, tag("p", comment.text), listed, class_="cmt")


def show_checks(view: RunView) -> Markup:
    """The matrix of checks by iteration, and the details of each check."""
    if not view.checks:
        named = ", ".join(view.run.checks)
        text = f"{named} would have run before the first turn." if named else "Its result could not be verified."
        return box("Evidence", empty("Not checked" if named else "This run has no checks", text), id="evidence")
    scopes = dict.fromkeys(check.scope for check in view.checks)
    passed = sum(check.status is CheckStatus.PASSED for check in view.checks)
    parts = _grade(view)
    parts += [_matrix(scope, [one for one in view.checks if one.scope == scope]) for scope in scopes]
    parts += [_detail(view, check) for check in view.checks]
    return box("Evidence", *parts, id="evidence", note=f"{passed} / {count(len(view.checks), 'check')} passed")


def _grade(view: RunView) -> list[Markup]:
    """What the verdict rests on. There is none before the end, and nothing that this machine did not verify."""
    evidence = view.ended.evidence if view.ended else None
    if evidence is None or view.alive or view.doubt:
        return []
    facts: list[tuple[str, Sequence[Markup | str]]] = [
        ("Grade", [badge(label_grade(view))]),
        ("Why", prose(evidence.reason)),
        ("Compared", prose(evidence.compared)),
        ("As before the run", [tag("code", path) for path in evidence.restored]),
        ("To be judged", [tag("code", path) for path in evidence.to_judge]),
    ]
    kept = [(name, shown) for name, shown in facts if any(shown)]
    listed = tag("dl", [[tag("dt", name), tag("dd", _separate(shown))] for name, shown in kept], class_="kv wide")
    return [tag("div", listed, class_="in")]


def _separate(parts: Sequence[Markup | str]) -> list[Markup | str]:
    """The parts with spaces between pieces of code that follow each other."""
    separated: list[Markup | str] = []
    for part in parts:
        if separated and isinstance(separated[-1], Markup) and isinstance(part, Markup):
            separated.append(" ")
        separated.append(part)
    return separated


def show_findings(view: RunView) -> Markup:
    """What the guards found, the open findings first."""
    found = sorted(view.findings, key=lambda one: not one.is_open)
    if not found:
        return box("Findings", empty("No findings", "The guards found no signs of gaming."), id="findings")
    is_open = sum(one.is_open for one in found)
    return box(
        "Findings", *(_finding(view, one) for one in found), id="findings", note=f"{is_open} open of {len(found)}"
    )


def label_of(status: CheckStatus | None, *, flaky: bool) -> Label:
    """The symbol, word and color of a result."""
    return CHECKS["flaky" if flaky else status or ""]


def _column(point: CheckPoint) -> int:
    return 0 if point.key == "baseline" else point.iteration


def _matrix(scope: str, checks: list[CheckView]) -> Markup:
    columns = sorted({_column(point) for check in checks for point in check.history})
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


def _detail(view: RunView, check: CheckView) -> Markup:
    label = label_of(check.status, flaky=check.flaky)
    when = f" {describe_work(view.workflow, check.history[-1].key, view.tasks)}" if check.history else ""
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
        ("Since", describe_work(view.workflow, check.since.key, view.tasks) if check.since else ""),
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


def _finding(view: RunView, one: FindingView) -> Markup:
    finding = one.finding
    label = "open" if one.is_open else "no longer there"
    tone = "need" if one.is_open else "idle"
    head = tag("p", icon("warn", tone), tag("span", *prose(finding.sentence)), class_="row top-row")
    where = (tag("code", finding.rule), " · ", tag("code", finding.place.replace("`", "")))
    when = describe_work(view.workflow, one.key, view.tasks)
    meta = tag("p", *where, f" · {when} · {clock(one.at)} · {label}", class_="sm dim")
    excerpt = tag("pre", finding.excerpt, class_="out below") if finding.excerpt else ""
    return tag("div", head, meta, excerpt, class_="finding")
