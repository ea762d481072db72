"""What the user does on the page, as calls of `app`. Each returns what the page shows, and is journaled with who did it.

The engine checks everything again: these are the same functions that the command line calls.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ralph.app.changes import restore_iteration, undo_turn
from ralph.app.comments import MAX_CHARS, MAX_COMMENTS, NewComment, send_comments
from ralph.app.landing import land_run
from ralph.app.plan import plan_run
from ralph.app.resume import (
    ResumeOptions,
    accept_work,
    plan_acceptance,
    plan_next_iteration,
    plan_resume,
    prepare_resume,
)
from ralph.app.run_engine import start_detached
from ralph.app.runs import clean_runs, refuse_inside_a_turn
from ralph.app.sessions import answer_approval, find_next_batch, find_session
from ralph.app.start import NewRun, describe_place, describe_worst_case, list_limits, open_new_run, preview_run
from ralph.app.steer import answer_question, post_signal
from ralph.core.errors import UsageError
from ralph.core.ids import SESSION_WORKFLOWS
from ralph.core.outcomes import Outcome
from ralph.core.signals import Signal, SignalType
from ralph.core.text import clean_text, remove_controls
from ralph.store.runs import Project
from ralph.web.access import User
from ralph.web.runs import FoundRun, run_key

Body = Mapping[str, Any]
Action = Callable[[FoundRun, User, Body], dict[str, Any]]

TEXT_LIMIT = 20_000
_SIGNALS = (SignalType.STEER, SignalType.INFO, SignalType.PAUSE, SignalType.RESUME, SignalType.ABORT)


def read_text(body: Body, name: str, *, most: int = TEXT_LIMIT, required: bool = False) -> str:
    """A text of the body, or an error that names it."""
    value = body.get(name, "")
    if not isinstance(value, str):
        raise UsageError(f"`{name}` is a text", where=name, todo="send a string")
    if len(value) > most:
        raise UsageError(f"`{name}` is longer than {most} characters", where=name, todo="shorten it")
    if required and not value.strip():
        raise UsageError(f"`{name}` is empty", where=name, todo="write something")
    return value


def send(found: FoundRun, user: User, body: Body) -> dict[str, Any]:
    """Send a signal to a run."""
    kind = read_text(body, "type", most=20, required=True).upper()
    if kind not in _SIGNALS:
        known = ", ".join(_SIGNALS)
        raise UsageError(f"{kind[:20]!r} cannot be sent here", where="type", todo=f"use one of {known}")
    signal = Signal("", SignalType(kind), read_text(body, "text"), now=body.get("now") is True, by=user.by)
    if kind == SignalType.ABORT and not signal.message:
        signal = Signal("", SignalType.ABORT, "aborted in the browser", by=user.by)
    if kind == SignalType.ABORT and not found.run.alive and found.run.can_go_on:
        name = _abort_stopped_run(found, signal)
    else:
        name = post_signal(found.project, signal, read_text(body, "target", most=80), found.run.id).name
        if kind == SignalType.ABORT and not found.run.alive and found.run.can_go_on:
            # It stopped by itself before it took the signal, which still waits.
            _abort_stopped_run(found, None)
    return {"signal": name, "alive": found.run.alive}


def _abort_stopped_run(found: FoundRun, signal: Signal | None) -> str:
    """End a run that has no engine. The engine that ends it needs a process of its own."""
    refuse_inside_a_turn("an agent cannot send signals", "put it into your answer instead")
    found.run.refuse_untrusted()
    name = found.run.mailbox.post(signal).name if signal else ""
    start_detached(found.project, found.run, ("abort",))
    return name


def answer(found: FoundRun, user: User, body: Body) -> dict[str, Any]:
    """Answer a question of an agent."""
    id, text = read_text(body, "question", most=20, required=True), read_text(body, "text", required=True)
    _, question = answer_question(found.project, found.run.id, id, text, user.by)
    return {"question": question.id, "answer": text}


def comment(found: FoundRun, user: User, body: Body) -> dict[str, Any]:
    """Send comments on lines of the diff: as one STEER, or as a round of feedback to a session that has stopped."""
    comments = [_read_comment(one) for one in _read_items(body)]
    target = read_text(body, "target", most=80)
    sent = send_comments(found.project, found.run, comments, role=target, by=user.by)
    if sent.feedback:
        return {"feedback": sent.iteration, "comments": sent.count}
    return {"signal": sent.signal, "comments": sent.count, "alive": sent.run.alive}


def _read_items(body: Body) -> list[Any]:
    items = body.get("items")
    if not isinstance(items, list) or not 0 < len(items) <= MAX_COMMENTS:
        todo = f"send 1 to {MAX_COMMENTS} comments"
        raise UsageError("`items` is a list of comments", where="items", todo=todo)
    return items


def _read_comment(item: Any) -> NewComment:
    if not isinstance(item, dict):
        raise UsageError("a comment is an object", where="items", todo="send path, line, side, hunk and text")
    line, path, side = item.get("line"), read_text(item, "path", most=1000, required=True), item.get("side", "new")
    if not isinstance(line, int) or isinstance(line, bool) or not 0 < line < 10_000_000:
        raise UsageError("`line` must be a number, 1 or higher", where="items", todo="send the line of the diff")
    if side not in ("new", "old"):
        raise UsageError("`side` is `new` or `old`", where="items", todo="send one of them")
    if path.startswith("/") or ".." in path.split("/"):
        raise UsageError("`path` is not a file of the diff", where="items", todo="send a path as the diff has it")
    if any(character in path for character in "`\n\r"):
        raise UsageError("`path` has a character that no comment can name", where="items", todo="send a plain steer")
    return NewComment(
        path=path,
        line=line,
        side=side,
        quote=read_text(item, "hunk", most=MAX_CHARS),
        text=read_text(item, "text", most=MAX_CHARS, required=True),
        last_line=_read_last_line(item, line),
        marks=_read_marks(item),
    )


def _read_last_line(item: dict[str, Any], line: int) -> int:
    last = item.get("last_line", 0)
    if not isinstance(last, int) or isinstance(last, bool) or (last and not line <= last < 10_000_000):
        raise UsageError("`last_line` must be a line after `line`, or 0", where="items", todo="send the last line")
    return 0 if last == line else last


def _read_marks(item: dict[str, Any]) -> tuple[int, ...]:
    marks = item.get("marks", [])
    if not isinstance(marks, list) or not all(isinstance(one, int) and 0 <= one < 100 for one in marks):
        raise UsageError("`marks` is a list of lines of the hunk, from 0", where="items", todo="send numbers")
    return tuple(sorted(set(marks)))


def approve(found: FoundRun, user: User, body: Body) -> dict[str, Any]:
    """Keep or drop what a session learned, and let it continue."""
    refuse_inside_a_turn("an agent cannot approve", "leave that to the user")
    choice = read_text(body, "choice", most=20, required=True).upper()
    if choice not in (SignalType.APPROVE, SignalType.SKIP):
        raise UsageError("`choice` is approve or skip", where="choice", todo="send one of them")
    session = find_session(found.project, found.run.id)
    done = answer_approval(session, Signal("", SignalType(choice), read_text(body, "text"), by=user.by))
    if not done.is_early:
        _start(found, ("session", "resume"))
    return {"signal": done.signal, "choice": choice.lower(), "resumed": not done.is_early}


def accept(found: FoundRun, user: User, body: Body) -> dict[str, Any]:
    """Accept work that passes its checks but that Ralph could not prove. The run checks it once more, and ends."""
    refuse_inside_a_turn("an agent cannot accept its own work", "leave that to the user")
    because = read_text(body, "text", required=True)
    planned = plan_acceptance(found.project, found.run, because, user.by)
    action = accept_work(planned, because, user.by)
    _start(found, _resume_command(found))
    return {"action": action, "resumed": True}


def resume(found: FoundRun, user: User, body: Body) -> dict[str, Any]:
    """Continue a run that stopped. The text is guidance, or the feedback that a session waits for."""
    refuse_inside_a_turn()
    guidance = read_text(body, "text")
    is_session = found.run.record().workflow in SESSION_WORKFLOWS
    if is_session and guidance.strip() and found.run.outcome() is Outcome.AWAITING_FEEDBACK:
        batch = find_next_batch(find_session(found.project, found.run.id))
        batch.give(batch.complete(guidance, []))
        guidance = ""
    plan = plan_next_iteration if is_session else plan_resume
    planned = plan(found.project, found.run, ResumeOptions())
    prepare_resume(planned)
    name = found.run.mailbox.post(Signal("", SignalType.RESUME, guidance, by=user.by)).name
    _start(found, _resume_command(found))
    return {"signal": name, "resumed": True}


def _resume_command(found: FoundRun) -> tuple[str, ...]:
    return ("session", "resume") if found.run.record().workflow in SESSION_WORKFLOWS else ("resume",)


def _start(found: FoundRun, command: tuple[str, ...]) -> None:
    start_detached(found.project, found.run, command)


def land(found: FoundRun, user: User, body: Body) -> dict[str, Any]:
    """Bring the work of a run onto the user's branch."""
    refuse_inside_a_turn()
    done = asyncio.run(land_run(found.project, found.run, user.by))
    landed, verdict = done.landed, done.verdict
    failed = [] if verdict is None else [one.title for one in verdict.results if not one.passed]
    facts = {"landed": landed.moved, "branch": landed.branch, "notice": landed.notice, "failed": failed}
    return {"action": done.action, **facts}


def undo(found: FoundRun, user: User, body: Body) -> dict[str, Any]:
    """Undo what the last turn of a run changed."""
    refuse_inside_a_turn()
    done = undo_turn(found.project, found.run, by=user.by)
    undone = done.undone
    return {"action": done.action, "undone": undone.undone.label, "files": list(undone.restored.files)[:100]}


def restore(found: FoundRun, user: User, body: Body) -> dict[str, Any]:
    """Restore the files as an iteration left them."""
    refuse_inside_a_turn()
    which = read_text(body, "which", most=10, required=True)
    done = restore_iteration(found.project, found.run, which, by=user.by)
    return {"action": done.action, "iteration": done.number, "files": list(done.restored.files)[:100]}


def clean(found: FoundRun, user: User, body: Body) -> dict[str, Any]:
    """Remove a run that is not running."""
    refuse_inside_a_turn("an agent cannot remove runs", "leave that to the user")
    cleaned = clean_runs(found.project, found.run.id, by=user.by)
    return {"action": cleaned.action, "removed": list(cleaned.removed), "kept": list(cleaned.kept)}


def plan_new_run(project: Project, user: User, body: Body) -> NewRun:
    """The run that the user asks for. Nothing of it is on disk yet."""
    refuse_inside_a_turn()
    options = body.get("options", {})
    if not isinstance(options, dict):
        raise UsageError("`options` is an object", where="options", todo="send names and values")
    files = _OPTIONS_WITH_FILES & options.keys()
    if files or str(options.get("until", "")).startswith("@"):
        named = ", ".join(sorted(files)) or "until"
        raise UsageError(f"`{named}` reads a file", where="options", todo="start this run in a terminal")
    workflow = read_text(body, "workflow", most=20) or "loop"
    is_dry = body.get("dry_run", True) is not False
    new = plan_run(project, workflow, read_text(body, "task"), options, dry_run=is_dry, cwd=project.root)
    return replace(new, record=replace(new.record, by=user.by))


def describe_plan(new: NewRun) -> dict[str, Any]:
    """What a run would do: its checks and agents, what it may use at most, and what the user has to agree to."""
    shown, record, consent = preview_run(new), new.record, new.find_consent()
    items = [
        {
            "name": remove_controls(item.name),
            "text": remove_controls(item.text)[:TEXT_LIMIT],
            "is_changed": before is not None,
        }
        for item, before in consent.new
    ]
    return {
        "dry_run": True,
        "workflow": record.workflow,
        "project": str(new.project.root),
        "directory": describe_place(new),
        "checks": [{"title": one.title, "command": one.command or ""} for one in record.checks],
        "agents": shown.agents,
        "limits": list_limits(record),
        "worst_case": describe_worst_case(record, shown.unpriced),
        "notices": list(new.notices),
        "prompt": shown.prompt[:TEXT_LIMIT],
        "consent": {
            "is_required": consent.is_required,
            "items": items,
            "about": consent.about,
            "digest": consent.digest,
        },
    }


def start_new_run(new: NewRun, body: Body) -> dict[str, Any]:
    """Start a run in the background. The user has agreed to exactly what the last plan showed."""
    consent = new.find_consent()
    if consent.is_required and read_text(body, "consent", most=100) != consent.digest:
        names = ", ".join(clean_text(item.name) for item, _ in consent.new)
        todo = "read what the plan shows (`dry_run: true`), and send its `consent.digest` as `consent`"
        raise UsageError(f"you have not agreed to this yet: {names}", where="consent", todo=todo)
    consent.give()
    with open_new_run(new) as (run, notices):
        start_detached(new.project, run)
    return {"run": run.id, "key": run_key(new.project, run), "notices": list(notices)}


_OPTIONS_WITH_FILES = frozenset(("scenario", "prompt_file", "config"))
OPEN_ACTIONS: dict[str, Action] = {"signals": send, "answers": answer, "comments": comment}
"""What a token with the role admin may do."""
GUARDED_ACTIONS: dict[str, Action] = {
    "approve": approve,
    "accept": accept,
    "resume": resume,
    "land": land,
    "undo": undo,
    "restore": restore,
    "clean": clean,
}
"""What also needs the passphrase, because an agent that found the token could do it."""
