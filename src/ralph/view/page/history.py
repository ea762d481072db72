"""What happened in a run, in order, and what it cost."""

from dataclasses import dataclass

from ralph.core.text import count
from ralph.documents.hats.definition import show_role
from ralph.view.labels import describe_signal
from ralph.view.model import CostGroup, CostPoint, RunView, SignalView, Sums, TurnView
from ralph.view.page.evidence import label_of
from ralph.view.page.markup import Markup, box, empty, icon, prose, tag
from ralph.view.page.times import clock, day, money, span, tokens

_MAX_MOMENTS = 600


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
        found.append(Moment(view.ended_at, "stop", tone, f"The run ended: {view.ended.outcome}", view.ended.reason))
    return sorted(found, key=lambda one: one.at)


def _turn_moment(turn: TurnView) -> Moment:
    tone = {None: "work", "finished": "idle"}.get(turn.end and turn.end.value, "need")
    took = f", {span(turn.ended_at - turn.started_at)}" if turn.ended_at else ""
    state = turn.end.value if turn.end else "running"
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
        found.append(Moment(at, symbol, tone, f"Checks of {key}: {passed} / {len(results)} passed", failing))
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
    names = [show_role(one.name) if name == "role" else one.name or "not reported" for one in group]
    return [head, *(_sum_row(shown, one.sums) for shown, one in zip(names, group, strict=True))]


def _sum_row(name: str, sums: Sums, class_: str | None = None) -> Markup:
    values = (str(sums.turns), tokens(sums.input_tokens), tokens(sums.output_tokens), money(sums.cost))
    return tag("tr", tag("th", name, scope="row"), [tag("td", value, class_="num") for value in values], class_=class_)


def _chart(points: tuple[CostPoint, ...]) -> Markup | str:
    """The money spent over the turns, or the tokens if no price is known."""
    values = [point.cost for point in points]
    what = "Money"
    if not any(values):
        values, what = [float(point.tokens) for point in points], "Tokens"
    if len(values) < 2 or not values[-1]:
        return ""
    step = 1000 / (len(values) - 1)
    line = " ".join(f"{number * step:.0f},{58 - 56 * value / values[-1]:.1f}" for number, value in enumerate(values))
    title = f"{what} spent over {len(values)} turns"
    drawn = (tag("title", title), tag("polyline", points=line))
    return tag("svg", *drawn, class_="chart", viewBox="0 0 1000 60", preserveAspectRatio="none", role="img")
