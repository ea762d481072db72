"""The journal of a run as lines that the user reads."""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ralph.cli.console import clock_time, one_line
from ralph.core.checks import CheckResult, Verdict
from ralph.core.entries import (
    ActionDone,
    AgentsChanged,
    ChecksStarted,
    Entry,
    GuardRulesChanged,
    HistoryChanged,
    LimitExtended,
    MergeStarted,
    Notice,
    QuestionAnswered,
    QuestionAsked,
    Record,
    RefsRecorded,
    RunAdopted,
    RunStarted,
    SignalReceived,
    SignalRefused,
    SnapshotTaken,
    TurnPlaced,
)
from ralph.core.errors import StateError
from ralph.core.events import (
    ChecksEnded,
    DocumentEdited,
    Landed,
    MergeEnded,
    MergeResult,
    RunEnded,
    SignalAccepted,
    TaskChanged,
    TaskState,
    TurnEnded,
    TurnStarted,
    WorkCommitted,
)
from ralph.core.ids import SESSION_WORKFLOWS, describe_worktree
from ralph.core.limits import Limits, describe_cost, list_options_to_continue
from ralph.core.signals import CTRL_C, RESUMED, SignalType
from ralph.core.speakers import show_speaker
from ralph.core.text import count, shorten
from ralph.core.turns import IMAGE, EventKind, TurnEnd
from ralph.documents.hats.definition import show_role
from ralph.documents.run_record import RunRecord
from ralph.store.files import read_limited
from ralph.store.runs import Project
from ralph.view.labels import describe_means
from ralph.workflows.loop.report import describe_change, explain_result, format_duration

RULE, DOUBLE = "─" * 60, "═" * 60


_TEXT_CHARS = 300
_MESSAGE_CHARS = 60
_SIGNS = {
    EventKind.TEXT: "|",
    EventKind.LIMIT: "|",
    EventKind.ERROR: "!",
    EventKind.TOOL: ">",
    EventKind.TOOL_RESULT: "! failed:",
    EventKind.DENIED: "! denied:",
    EventKind.RETRY: "! retry:",
    EventKind.THINKING: "~",
    EventKind.PROGRESS: "| reports:",
}
"""What stands before each kind of event of an agent."""


def _agent_event_line(kind: str, text: str, *, is_error: bool = False, prefix: str = "") -> str:
    """The line for an event of an agent; empty if it is of no interest."""
    if kind == EventKind.TOOL_RESULT and not is_error:
        return f"  {prefix}< image" if IMAGE in text else ""
    if kind not in _SIGNS:
        return ""
    first = next((line for line in text.splitlines() if line.strip()), "")
    shown = shorten(one_line(first), _TEXT_CHARS)
    return f"  {prefix}{_SIGNS[EventKind(kind)]} {shown}" if shown else ""


@dataclass
class Renderer:
    """Renders the records of one run, in order."""

    noun: ClassVar[str] = "run"
    run: str
    agent: str = ""
    """The agent that was named last. It is named again only if another one takes over."""
    has_snapshots: bool = True
    """Whether `ralph diff`, `ralph undo` and `--revert` work on the run."""
    root: str = "."
    """The path from the user's directory to the project."""
    committing_turns: list[int] = field(default_factory=list)
    """The turns in which the agent made commits."""
    messages: dict[str, str] = field(default_factory=dict)
    """What the user said in each signal, by its id; its type if that was nothing."""
    running: set[int] = field(default_factory=set)
    """The turns that run."""
    checking: set[str] = field(default_factory=set)
    """The work whose checks run."""
    shown_faults: dict[int, list[str]] = field(default_factory=dict)
    """The errors and limits that agents reported and the user has read, by turn."""
    last_edit: str = ""
    """The document of the last record, if the user changed it. An editor may write a file several times."""

    def lines(self, record: Record) -> list[str]:
        """The lines that the user reads for a record; none if it is of no interest."""
        match record.entry:
            case TurnStarted(turn=turn):
                self.running.add(turn)
            case TurnEnded(turn=turn):
                self.running.discard(turn)
            case ChecksStarted(key=key):
                self.checking.add(key)
            case ChecksEnded(key=key):
                self.checking.discard(key)
            case RunStarted():
                # Checks are run again after a resume. Turns may still run.
                self.checking.clear()
        edited = record.entry.path if isinstance(record.entry, DocumentEdited) else ""
        is_repeated = bool(edited) and edited == self.last_edit
        self.last_edit = edited
        lines = self.entry_lines(record)
        return [] if is_repeated else lines

    def entry_lines(self, record: Record) -> list[str]:
        """The lines for a record. The renderers of workflows have their own."""
        return LINES[type(record.entry)](self, record.entry)

    def agent_line(self, turn: int, kind: str, text: str, *, is_error: bool = False, prefix: str = "") -> str:
        """The line for an event of an agent; empty if it is of no interest."""
        line = _agent_event_line(kind, text, is_error=is_error, prefix=prefix)
        if line and kind in (EventKind.LIMIT, EventKind.ERROR):
            self.shown_faults.setdefault(turn, []).append(text.strip())
        return line

    def turn_ended_lines(self, entry: TurnEnded) -> list[str]:
        """How a turn ended, without an error that the user has just read."""
        return _turn_ended_lines(entry, self.shown_faults.pop(entry.turn, []))

    def quote_message(self, name: str) -> str:
        """What the user said in a signal, cut to a few words; its name if that is not known."""
        message = self.messages.get(name, "")
        if not message:
            return name
        return message if message in tuple(SignalType) else f'"{shorten(message, _MESSAGE_CHARS)}"'

    def locate(self, path: str) -> str:
        """A path of the project as the user can type it."""
        return os.path.normpath(os.path.join(self.root, path))

    def about(self, key: str) -> str:
        """What a turn or a check is for, as the user reads it."""
        return key

    def closing(self, ended: RunEnded, report: str) -> list[str]:
        """The banner at the end: what happened, where the evidence is, and what to type next."""
        facts = [count(ended.spent.turns, "turn"), f"{format_duration(ended.spent.active_seconds)} active"]
        facts.append(f"cost {describe_cost(ended.spent)}")
        outcome = ended.outcome.replace("-", " ")
        if ended.missing:
            outcome += ", but work of yours is missing from the repository"
        lines = [DOUBLE, f"{self.noun.title()} {self.run}: {outcome}", DOUBLE, "", ended.reason]
        return [*lines, f"Spent:  {', '.join(facts)}", f"Next:   {self.then(ended)}", DOUBLE]

    def then(self, ended: RunEnded) -> str:
        """What to type next."""
        if ways := list_options_to_continue(ended.outcome, ended.limits, ended.spent, ended.allowance):
            return f"ralph resume {self.run} {ways[0].option}   ({ways[0].grants})"
        if ended.outcome.resumable:
            return f"ralph resume {self.run}"
        return f"ralph diff {self.run}" if self.has_snapshots else f"ralph report {self.run}"


_ENDINGS = {
    TurnEnd.WALL: "was ended",
    TurnEnd.IDLE: "was ended",
    TurnEnd.CUT: "was ended",
    TurnEnd.LIMITED: "reached the provider's limit",
    TurnEnd.INTERRUPTED: "was interrupted",
    TurnEnd.STEERED: "was interrupted",
}
"""How turns end, if the name of the end is not a verb."""


def _turn_ended_lines(entry: TurnEnded, shown: list[str]) -> list[str]:
    result = entry.result
    ending = _ENDINGS.get(result.end, result.end)
    if result.end is TurnEnd.STEERED and result.is_own_end:
        ending = "ended before your message reached it," if entry.missed_messages else "paused"
    facts = [f"turn {entry.turn} {ending} after {format_duration(result.seconds)}"]
    if result.usage.cost:
        facts.append(f"${result.usage.cost:.4f}")
    if result.survivors:
        facts.append(f"{count(result.survivors, 'leftover process', 'leftover processes')} ended")
    lines = ["  " + " · ".join(facts)]
    error = _remove_shown(result.error, shown)
    if error and result.end not in (TurnEnd.STOPPED, TurnEnd.STEERED):
        lines.append(f"  {error}")
    lines += [f"  DENIED: {denied}" for denied in result.denied[:5]]
    lines += [f"  warning: {warning}" for warning in result.warnings]
    if result.left:
        more = f" and {len(result.left) - 8} more" if len(result.left) > 8 else ""
        lines.append(f"  ignored (the turn cannot write it, or it is too large): {', '.join(result.left[:8])}{more}")
    if entry.retry_at is not None and result.end not in (TurnEnd.INTERRUPTED, TurnEnd.STEERED):
        reason = f": {entry.retry_reason}" if entry.retry_reason != result.error else ""
        lines.append(f"  next attempt at {clock_time(entry.retry_at)}{reason}")
    if not entry.is_iteration or entry.retry_at is not None:
        return lines
    change = entry.change
    last_line = shorten(one_line(result.text.strip().rpartition("\n")[2]), 200)
    summary = str((result.answer or {}).get("summary", "")) or last_line or "(not reported)"
    lines += ["", "This iteration:", f"- Approach: {summary}"]
    if not change:
        return lines
    more = f" and {change.files - len(change.names)} more" if change.files > len(change.names) else ""
    names = f" ({', '.join(change.names)}{more})" if change.names else ""
    return [*lines, f"- Changes: {describe_change(change)}{names}"]


def _remove_shown(error: str, shown: list[str]) -> str:
    """What an error says beside what was shown. `exit code 1: MESSAGE` repeats the message of the agent."""
    for fault in shown:
        if fault and error.endswith(fault):
            return error.removesuffix(fault).rstrip(": ")
    return error


def received_line(renderer: Renderer, entry: TurnStarted) -> str:
    """Which messages of the user a turn receives in its prompt."""
    if not entry.messages:
        return ""
    more = f" and {len(entry.messages) - 5} others" if len(entry.messages) > 5 else ""
    quoted = ", ".join(renderer.quote_message(name) for name in entry.messages[:5])
    return f"\n  received in its prompt: {quoted}{more}"


def _signal_accepted(renderer: Renderer, entry: SignalAccepted) -> list[str]:
    signal = entry.signal
    if signal.name.startswith(CTRL_C):
        return [_describe_ctrl_c(renderer, now=signal.now)]
    if signal.name.startswith(RESUMED):
        return []
    target = f" for {signal.target}" if signal.target else ""
    message = " ".join(signal.message.split())
    renderer.messages[signal.id] = message or f"{signal.type}"
    return [f"received {signal.type}{target}" + (f": {message}" if message else "")]


def _describe_ctrl_c(renderer: Renderer, *, now: bool) -> str:
    """What Ctrl-C does, which depends on what runs."""
    if not renderer.checking and not renderer.running:
        return "Pausing now. `ralph resume` continues the run."
    if renderer.checking and not renderer.running:
        if now:
            return "Stopping the checks now. `ralph resume` runs them again."
        return "Pausing after these checks. Press Ctrl-C again to stop them now."
    if now:
        return "Interrupting the turn now. `ralph resume` continues it."
    return "Pausing after this turn. Press Ctrl-C again to interrupt it now."


def _signal_received(renderer: Renderer, entry: SignalReceived) -> list[str]:
    what = "your request to pause" if entry.id.startswith(CTRL_C) else renderer.quote_message(entry.id)
    return [f"  turn {entry.turn} ({show_role(entry.role)}) received {what} ({describe_means(entry.means)})"]


def _question_asked(renderer: Renderer, entry: QuestionAsked) -> list[str]:
    asked = entry.question
    options = f" [{' | '.join(asked.options)}]" if asked.options else ""
    default = f"; after that, {asked.default!r} is the answer" if asked.default else ""
    return [
        "",
        f"QUESTION {asked.id} ({show_role(asked.role)}): {asked.question}{options}",
        f'  answer it with: ralph answer {asked.id} "..."   (until {clock_time(asked.asked_at + asked.timeout)}{default})',
    ]


def merged_lines(entry: MergeEnded) -> list[str]:
    files, what = ", ".join(entry.files[:5]), describe_worktree(entry.worktree)
    results = {
        MergeResult.MERGED: f"merged {what}" + (f" as {entry.commit[:10]}" if entry.commit else ""),
        MergeResult.NOTHING: f"{what} changed nothing: nothing to merge",
        MergeResult.CONFLICT: f"{what} conflicts with merged work: {files}",
        MergeResult.REVERTS: f"{what} would revert merged work: {files}",
        MergeResult.CHECKS_FAILED: f"{what} merges, but the checks fail on the merged tree",
    }
    checks = [check_line(result) for result in entry.verdict.results if not result.passed] if entry.verdict else []
    return ["  " + results[entry.end], *checks, *([f"note: {entry.notice}"] if entry.notice else [])]


def checked_lines(verdict: Verdict) -> list[str]:
    """The results of checks, and the findings of the guards."""
    found = [f"  {f.severity.upper()} {f.place} [{f.rule}] {f.sentence}" for f in verdict.findings]
    # The evidence of a success is said at the end of the run. Until then a judge or a reviewer may still decide.
    is_open = verdict.evidence and not verdict.passed and not verdict.blocking_findings
    evidence = [f"  Not proven so far: {verdict.evidence.reason}"] if verdict.evidence and is_open else []
    problem = verdict.rehearsal.problem if verdict.rehearsal else ""
    if problem:
        found.append(f"note: a clean checkout does not give the same result: {problem} {_HOW_TO_PREPARE}")
    return [*map(check_line, verdict.results), *found, *evidence]


_HOW_TO_PREPARE = (
    "A success may stay unproven. In ralph.yml, `clean_room: {setup: [...], keep: [...]}` prepares the checkout."
)


def check_line(result: CheckResult) -> str:
    mark = "PASS" if result.passed else "????"
    if result.status == "failed":
        mark = "FAIL"
    reason = explain_result(result)
    return f"  {mark} {result.title}  {format_duration(result.seconds)}" + (
        "" if reason == "passed" else f" ({reason})"
    )


def _history_changed(renderer: Renderer, entry: HistoryChanged) -> list[str]:
    lines = [f"turn {entry.turn}: {sentence}" for sentence in entry.change.commits]
    if lines:
        renderer.committing_turns.append(entry.turn)
    lines += [f"CHANGED: {sentence}" for sentence in entry.change.missing]
    return lines or ["branches, tags and stash are as they were before the run"]


def _turn_started(renderer: Renderer, entry: TurnStarted) -> list[str]:
    role = f"{entry.role} ({entry.agent})" if entry.agent != renderer.agent else entry.role
    renderer.agent = entry.agent
    purpose = "asked to correct its answer" if entry.is_repair else renderer.about(entry.key)
    return [f"turn {entry.turn}: {role}, {purpose}{received_line(renderer, entry)}"]


def _task_changed(renderer: Renderer, entry: TaskChanged) -> list[str]:
    name = f"{entry.task} {entry.title}".strip()
    reason = shorten(one_line(entry.reason), 300).rstrip(".")
    next_attempt = f"another attempt follows ({entry.attempt + 1} of {entry.most_attempts} in this iteration)"
    used_up = f"no attempt is left in this iteration ({entry.attempt} of {entry.most_attempts})"
    match entry.state:
        case TaskState.PLANNED:
            return [f"  wave {entry.wave}: {name}" + (f" ({reason})" if reason else "")]
        case TaskState.RETRY:
            return [f"✗ {name}: {reason}; {next_attempt}"]
        case TaskState.FAILED:
            has_no_attempts = 0 < entry.most_attempts <= entry.attempt
            return [f"✗ {name}: {reason or 'failed'}" + (f"; {used_up}" if has_no_attempts else "")]
        case TaskState.BLOCKED:
            return [f"✗ {name}: blocked {reason}"]
        case TaskState.CANCELLED:
            # The note of a task that the user cancelled begins with the same word.
            by = re.sub(r"(?i)^cancelled,? ?", "", reason)
            return [f"- {name}: cancelled" + (f" ({by})" if by else "")]
        case TaskState.QUALIFIED:
            return [f"✓ {name}: qualified"]
        case TaskState.DONE:
            return [f"✓ {name}: done"]


def _render_landed(renderer: Renderer, entry: Landed) -> list[str]:
    return [f"landed {entry.commit[:10]} on {entry.branch}" if entry.moved else entry.notice]


def _no_lines(renderer: Renderer, entry: Entry) -> list[str]:
    return []


LINES: dict[type[Entry], Callable[[Renderer, Any], list[str]]] = {
    RunStarted: lambda run, entry: [f"{run.noun} {run.run} {'continues' if entry.resumed else 'starts'}"],
    RunAdopted: lambda run, entry: [
        f"run {run.run} was adopted ({entry.reason}); its earlier claims are in {entry.claimed}"
    ],
    RefsRecorded: _no_lines,
    HistoryChanged: _history_changed,
    AgentsChanged: lambda run, entry: [f"{entry.label} runs the turns from now on"],
    GuardRulesChanged: lambda run, entry: [
        *(f"the guard rule {rule} is off from now on: {reason}" for rule, reason in entry.allowed.items()),
        *(f"tests and settings of checks that match {glob} may change from now on" for glob in entry.may_change),
        *(f"the work so far is accepted: {why}" for why in entry.accepted.values()),
    ],
    LimitExtended: lambda run, entry: [f"limits from now on: {entry.reason}"],
    TurnStarted: _turn_started,
    TurnEnded: lambda run, entry: run.turn_ended_lines(entry),
    ChecksStarted: lambda run, entry: [f"checking {run.about(entry.key)}: {' AND '.join(entry.checks)}"],
    ChecksEnded: lambda run, entry: checked_lines(entry.verdict),
    MergeStarted: lambda run, entry: [f"merging {describe_worktree(entry.worktree)}"],
    MergeEnded: lambda run, entry: merged_lines(entry),
    Landed: _render_landed,
    SignalAccepted: _signal_accepted,
    SignalReceived: _signal_received,
    TurnPlaced: lambda run, entry: [f"  turn {entry.turn} runs on {entry.place}"],
    SignalRefused: lambda run, entry: [f"note: signal {entry.name} was rejected: {entry.reason}"],
    QuestionAsked: _question_asked,
    QuestionAnswered: lambda run, entry: [
        f"question {entry.id} was answered by {show_speaker(entry.by)}: {entry.answer}"
    ],
    DocumentEdited: lambda run, entry: [f"read your change to {entry.path}"],
    Notice: lambda run, entry: [f"note: {entry.text}"],
    ActionDone: lambda run, entry: [f"{show_speaker(entry.by)}: {entry.result}"],
    TaskChanged: _task_changed,
    SnapshotTaken: _no_lines,
    RunEnded: _no_lines,
    WorkCommitted: _no_lines,
}
"""The lines of every kind of entry, unless the renderer of a workflow has its own."""


def renderer_for(project: Project, record: RunRecord, limits: Limits, *, from_the_start: bool = False) -> Renderer:
    """The renderer of a run, from its current state or from its beginning."""
    root = os.path.relpath(project.root)
    if record.workflow in SESSION_WORKFLOWS:
        from ralph.cli.render.session import SessionRenderer

        return SessionRenderer(record.id, has_snapshots=record.snapshots, root=root)
    if record.hats:
        from ralph.app.workflows import build_hats_workflow
        from ralph.cli.render.hats import HatsRenderer

        events = project.root / build_hats_workflow(record, project.root).context.events_path
        return HatsRenderer(record.id, has_snapshots=record.snapshots, root=root, events=events)
    from ralph.app.workflows import build_loop_workflow
    from ralph.cli.render.loop import LoopRenderer

    loop = build_loop_workflow(record, project.root, limits)
    path = project.root / loop.state_path
    try:
        text = "" if from_the_start else read_limited(path).decode(errors="replace")
    except (OSError, StateError):
        text = ""
    try:
        state = loop.load({loop.state_path: text} if text else {})
    except StateError:
        state = loop.load({})
    return LoopRenderer(record.id, has_snapshots=record.snapshots, root=root, loop=loop, state=state)
