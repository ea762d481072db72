"""One run in detail: its checks, findings, tasks, turns, signals and limits."""

from ralph.cli.console import clock_time, one_line
from ralph.core.checks import CheckStatus
from ralph.core.ids import BASELINE
from ralph.core.speakers import show_speaker
from ralph.core.text import count, shorten
from ralph.documents.hats.definition import show_role
from ralph.view.attention import span
from ralph.view.headline import describe_failure
from ralph.view.labels import describe_attribution, describe_means, shorten_agent
from ralph.view.model import ActionView, CheckView, CommentView, RunView
from ralph.view.work import describe_work

_MARKS = {CheckStatus.PASSED: "PASS", CheckStatus.FAILED: "FAIL"}


def view_lines(view: RunView) -> list[str]:
    """Everything that matters about one run."""
    lines = _section("Checks", [_check_line(view, check) for check in view.checks])
    is_valid = not (view.alive or view.doubt or view.taken_back)
    evidence = view.ended.evidence if view.ended and is_valid else None
    lines += _section("Evidence", [one_line(evidence.sentence)] if evidence else [])
    open_findings = [one.finding for one in view.findings if one.is_open]
    lines += _section("Findings", [f"{one.severity}: {one.place} [{one.rule}] {one.sentence}" for one in open_findings])
    lines += _section(
        "Tasks", [f"{task.state:<10} {task.id}  {shorten(one_line(task.title), 80)}" for task in view.tasks]
    )
    lines += _section("Turns", _turn_lines(view))
    lines += _section("Signals", [_signal_line(view, number) for number in range(len(view.signals))][-5:])
    lines += _section("Actions", [_action_line(one) for one in view.actions][-5:])
    lines += _section("Comments", [comment_text(one) for one in view.comments][-10:])
    lines += _section(
        "Limits", [_limit_line(limit.name, limit.used, limit.limit, limit.share) for limit in view.limits]
    )
    if view.landed:
        lines += _section(
            "Landed", [f"{view.landed.commit[:10]} on {view.landed.branch}  {view.landed.notice}".rstrip()]
        )
    if view.reports:
        lines += _section("Report", [view.reports[-1].path])
    return [*lines, "", f"Next:   {view.next or f'ralph logs -f {view.run.id}'}"]


def _section(title: str, lines: list[str]) -> list[str]:
    return ["", title, *(f"  {line}" for line in lines)] if lines else []


def _check_line(view: RunView, check: CheckView) -> str:
    mark = "    " if check.status is None else _MARKS.get(check.status, "????")
    facts = [describe_attribution(check.attribution)] if check.attribution else []
    if check.since and check.runs > 1 and check.since.key != str(BASELINE):
        when = describe_work(view.workflow, check.since.key, view.tasks)
        facts.append(f"since {when.removeprefix('in ')}")
    facts += ["flaky"] if check.flaky else []
    scope = f"{check.scope}: " if check.scope else ""
    text = f"{mark} {scope}{check.title}" + (f"  ({', '.join(facts)})" if facts else "")
    if check.status in (CheckStatus.PASSED, None):
        return text
    failure = describe_failure(check)
    return text if failure == f"`{check.command}` fails" else f"{text}\n       {failure}"


def _turn_lines(view: RunView) -> list[str]:
    """The last turns."""
    lines = []
    for turn in view.turns[-5:]:
        state = "running" if turn.end is None else str(turn.end)
        said = turn.summary or turn.error
        if turn.activity and turn.activity.text:
            said = f"{turn.activity.kind}: {turn.activity.text}"
        place = f" on {turn.place}" if turn.place else ""
        facts = f"{turn.number:<4} {show_role(turn.role):<14} {shorten_agent(turn.agent, 24):<24} {state + place:<12}"
        lines.append(f"{facts} {shorten(one_line(said), 80)}".rstrip())
    earlier = len(view.turns) + view.more_turns - len(lines)
    return [f"({earlier} earlier: ralph logs {view.run.id})", *lines] if earlier else lines


def _signal_line(view: RunView, number: int) -> str:
    signal = view.signals[number]
    effect = signal.reason or "done"
    if signal.receipts:
        first = signal.receipts[0]
        effect = f"{show_role(first.role)}, turn {first.turn}, {describe_means(first.means)}"
    elif signal.is_message and not signal.reason:
        effect = "no turn has received it yet"
    said = shorten(one_line(signal.message or signal.name), 60)
    if comments := sum(comment.signal == signal.id for comment in view.comments):
        said = f"{count(comments, 'comment')} on the changes"
    return f"{signal.type or 'refused'}: {said}  ({effect})"


def _action_line(action: ActionView) -> str:
    by = f" by {show_speaker(action.by)}"
    return f"{clock_time(action.at)}{by}: {one_line(action.result)}  ({action.id})"


def comment_text(comment: CommentView) -> str:
    """A comment in one line: its place, its text, and its result."""
    place = f"{comment.path}:{comment.line}" + (f"-{comment.last_line}" if comment.last_line else "")
    removed = " (removed)" if comment.side == "old" else ""
    return f"{place}{removed}  {shorten(one_line(comment.text), 100)}  ({_comment_effect(comment)})"


def _comment_effect(comment: CommentView) -> str:
    if not comment.receipts:
        return "no turn has received it yet"
    first = comment.receipts[0]
    received = f"{show_role(first.role)} received it in turn {first.turn}"
    if comment.changed_by:
        return f"{received}; turn {comment.changed_by} changed these lines"
    if comment.file_changed_by:
        return f"{received}; turn {comment.file_changed_by} changed the file, but not these lines"
    return f"{received}; not changed yet"


def _limit_line(name: str, used: float, limit: float, share: float) -> str:
    if name in ("time", "deadline"):
        return f"{name:<11} {span(used)} of {span(limit)} ({share:.0%})"
    money = "$" if name == "cost" else ""
    return f"{name:<11} {money}{used:g} of {money}{limit:g} ({share:.0%})"
