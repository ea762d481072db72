"""`ralph session`: plan a request, do its tasks in parallel, review them, take feedback, plan again."""

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import click

from ralph.app.resume import ResumeOptions, plan_next_iteration, prepare_resume, withdraw_pause
from ralph.app.runs import refuse_inside_a_turn
from ralph.app.sessions import (
    FeedbackBatch,
    SessionRequest,
    UserSession,
    answer_approval,
    build_session_workflow,
    choose_session_and_text,
    find_next_batch,
    find_session,
    find_unread_feedback,
    is_complete,
    list_sessions,
    plan_session,
    plan_takeover,
    refuse_aborted,
    refuse_attachments,
    refuse_unread_guidance,
    repair_session,
)
from ralph.app.trust import find_consent_to_resume
from ralph.app.views import open_view
from ralph.cli.console import complete_runs, json_option, open_project, print_result
from ralph.cli.render.session import build_status_document, session_lines
from ralph.cli.resume import guidance_option, resume_options
from ralph.cli.start import detach, options_from, run_in_foreground, run_options, start_or_show
from ralph.cli.terminal import print_text
from ralph.cli.trust import ask_consent
from ralph.core.codec import to_plain
from ralph.core.errors import RalphError, UsageError
from ralph.core.limits import Spent, describe_cost
from ralph.core.signals import Signal, SignalType
from ralph.core.text import count, shorten
from ralph.documents.session.tasks import make_natural_key
from ralph.store.files import read_limited, to_bytes
from ralph.store.runs import Project, RunDir
from ralph.workflows.loop.report import format_duration


@click.group("session")
def session() -> None:
    """Plan a request, do its tasks in parallel, review them, accept feedback and plan again."""


_SESSION_OPTIONS = (
    click.option(
        "--check",
        "criteria",
        multiple=True,
        help="What must pass before the session is complete, in the syntax of --until. Can be repeated.",
    ),
    click.option("--waves", is_flag=True, help="Finish each wave of tasks before the next one starts."),
)


def _session_options(command: Callable[..., int]) -> Callable[..., int]:
    """Give a command the options that start a session, or continue one that Ralph did not start."""
    command = run_options(command)
    for option in reversed(_SESSION_OPTIONS):
        command = option(command)
    return command


@session.command("new")
@click.argument("request")
@click.option("--classic", is_flag=True, help="Use the flat layout: one task at a time, in your own tree.")
@click.option("--new", "anew", is_flag=True, help="Start a session even if one for the same request is open.")
@_session_options
def new(request: str, classic: bool, anew: bool, **params: Any) -> int:
    """Start a session for REQUEST."""
    refuse_inside_a_turn()
    wanted = SessionRequest(request, params["criteria"], waves=params["waves"], classic=classic)
    project = open_project(params["directory"])
    planned = plan_session(project, wanted, options_from(params), even_if_open=anew)
    return start_or_show(planned, params, _describer(project))


def _describer(project: Project, **sent: str) -> Callable[[RunDir], Mapping[str, Any]]:
    """Describes a session of the project as other tools know it, with the name of a signal that was sent."""
    named = {field: name for field, name in sent.items() if name}
    return lambda run: {**_contract_of(UserSession(project, run.id, run)), **named}


@session.command("list")
@json_option
def listing(as_json: bool) -> int:
    """List the sessions of this project, oldest first."""
    project = open_project()
    rows = [_row(one) for one in list_sessions(project)]
    lines = [] if rows else [f"No sessions in {project.root}."]
    for row in rows:
        count, status = row["tasks_summary"], row["status"].replace("_", " ")
        done = f"{count['completed']}/{count['total'] - count.get('cancelled', 0)} tasks"
        about = shorten(row.get("request", ""), 60)
        lines.append(f"{row['session_id']:<15}  {status:<18} {row['current_state']:<20} {done:<12} {about}".rstrip())
    return print_result(as_json, lines, command="session list", sessions=rows)


def _row(found: UserSession) -> dict[str, Any]:
    """A session in the list. One that Ralph did not start and cannot read is listed as unreadable."""
    try:
        return _contract_of(found)
    except RalphError as error:
        if found.run:
            raise
        return {
            "session_id": found.id,
            "status": "unreadable",
            "current_state": "",
            "next_action": error.what,
            "tasks_summary": {"completed": 0, "total": 0},
        }


def _contract_of(found: UserSession) -> dict[str, Any]:
    """A session in the form that other tools know."""
    rules = build_session_workflow(found.record, found.project.root)
    return build_status_document(rules.settings, found.state(), alive=found.alive, aborted=found.is_aborted)


@session.command("show")
@click.argument("session", required=False, shell_complete=complete_runs)
@json_option
def show(session: str | None, as_json: bool) -> int:
    """Show the state and tasks of SESSION, and what happens next. Default: the latest open session."""
    found = find_session(open_project(), session)
    view = open_view(found.project, found.run) if found.run else None
    spent = view.spent if view else Spent()
    missing = view.missing if view else ()
    if as_json:
        facts = {"spent": to_plain(spent) if view else {}, "missing": missing}
        return print_result(True, (), command="session show", **_contract_of(found), **facts)
    rules = build_session_workflow(found.record, found.project.root)
    lines = session_lines(rules.settings, found.state(), _money(spent), alive=found.alive, aborted=found.is_aborted)
    unread = [f"note: {sentence}" for sentence in find_unread_feedback(found)]
    print_text("\n".join([*lines, *unread, *(f"CHANGED: {sentence}" for sentence in missing)]))
    if found.run is None:
        print_text(f"Ralph did not start this session. `ralph session resume {found.id}` continues it from its files.")
    return 0


def _money(spent: Spent) -> str:
    if not spent.turns:
        return ""
    return f"{count(spent.turns, 'turn')}, {format_duration(spent.active_seconds)} active, cost {describe_cost(spent)}"


@session.command("resume")
@click.argument("session", required=False, shell_complete=complete_runs)
@guidance_option
@_session_options
def resume(session: str | None, guidance: str, **params: Any) -> int:
    """Continue SESSION. Default: the latest open session. If you gave feedback, the next iteration starts.

    You can change the agents and the limits. If Ralph did not start the session, or its run is lost, Ralph continues it from its
    files, and all options apply.
    """
    refuse_inside_a_turn()
    project = open_project(params["directory"])
    found = find_session(project, session)
    if found.run is None:
        record = found.record
        classic = record.workflow == "classic"
        wanted = SessionRequest(record.task, params["criteria"], waves=params["waves"], classic=classic)
        refuse_unread_guidance(found, guidance)
        taken_over = plan_takeover(found, wanted, options_from(params))
        return start_or_show(taken_over, params, _describer(project), guidance)
    refuse_aborted(found)
    _refuse_fixed(found.id, params)
    options = resume_options(params)
    if found.alive:
        name = withdraw_pause(found.run, options, guidance)
        lines = [f"Session {found.id} is already running. If you had paused it, it continues."]
        return print_result(params["as_json"], lines, command="session resume", run=found.id, signalled=True, name=name)
    refuse_unread_guidance(found, guidance)
    if is_complete(found) and not options.changes_run:
        lines = [
            f"Session {found.id} is complete. There is nothing to do.",
            *(f"note: {sentence}" for sentence in find_unread_feedback(found)),
            f'Next:   ralph session feedback {found.id} "..."',
            f"        ralph session resume {found.id}",
        ]
        return print_result(params["as_json"], lines, command="session resume", run=found.id, **_contract_of(found))
    planned = plan_next_iteration(project, found.run, options, guidance=guidance)
    for consent in planned.find_consents():
        ask_consent(consent, yes=params["yes"])
    describe = _describer(project, name=prepare_resume(planned, guidance))
    if params["detached"]:
        arguments = options.as_arguments()
        return detach(
            project,
            found.run,
            as_json=params["as_json"],
            command=("session", "resume"),
            options=arguments,
            describe=describe,
        )
    return run_in_foreground(
        project,
        found.run,
        (*planned.notices, *find_unread_feedback(found)),
        as_json=params["as_json"],
        granted=planned.limits,
        resumes=True,
        describe=describe,
    )


_NO_FEEDBACK = ("an agent cannot give feedback for the user", "put it into your answer instead")
_START_ONLY = ("yes", "detached", "as_json")


def _refuse_fixed(session: str, params: Mapping[str, Any]) -> None:
    """Refuse options that only a new session takes; the others are those of `ralph resume`."""
    changeable = {*_START_ONLY, *(one.name for one in fields(ResumeOptions))}
    named = [name for name, value in params.items() if value and name not in changeable]
    if not named:
        return
    parameters = {str(one.name): one.opts[0] for one in click.get_current_context().command.params}
    options = ", ".join(sorted(parameters[name] for name in named))
    todo = f"omit them; `ralph resume {session} --help` lists what can be changed"
    raise UsageError(f"session {session} was started with its own settings: {options} cannot be changed", todo=todo)


@session.command("feedback")
@click.argument("words", nargs=-1, metavar="[SESSION] [TEXT]")
@click.option(
    "--from",
    "source",
    type=click.Path(path_type=Path),
    help="The file with the feedback. `-` reads standard input. Default: an editor opens.",
)
@click.option(
    "--attach",
    multiple=True,
    type=click.Path(path_type=Path),
    help="A file to attach, for example a log. Can be repeated.",
)
@json_option
def give_feedback(words: tuple[str, ...], source: Path | None, attach: tuple[Path, ...], as_json: bool) -> int:
    """Say what is wrong or missing in SESSION. Then `ralph session resume` plans again.

    TEXT is the feedback. Without TEXT and --from, an editor opens with a form. Default: the latest open session.

    \b
    ralph session feedback "The totals are rounded wrongly" --attach app.log
    """
    refuse_inside_a_turn(*_NO_FEEDBACK)
    found, text = choose_session_and_text(open_project(), words, "feedback")
    if not all(word.strip() for word in words):
        raise _make_empty_error(found.id)
    if text and source:
        raise UsageError("the feedback is given twice: as text and with --from", todo="use only one of them")
    refuse_attachments(attach, source)
    batch = find_next_batch(found)
    attached = [path.name for path in attach]
    template = batch.template(attached)
    if source:
        text = _read_feedback(source)
    elif not text:
        _refuse_without_editor(found.id)
        text = click.edit(template, extension=".md") or ""
    if not text.strip() or text == template:
        raise _make_empty_error(found.id)
    batch.give(batch.complete(text, attached), attach)
    return _show_batch(batch, as_json=as_json)


def _make_empty_error(session: str) -> UsageError:
    return UsageError("the feedback is empty", todo=f'say what is wrong: ralph session feedback {session} "..."')


def _read_feedback(source: Path) -> str:
    """What the user wrote into a file, or to the standard input. Other files can only be attached."""
    is_stdin = str(source) == "-"
    try:
        data = to_bytes(sys.stdin.read()) if is_stdin else read_limited(source, follow=True)
        return data.decode()
    except UnicodeDecodeError as error:
        what = "the standard input" if is_stdin else str(source)
        todo = "write your feedback as text, and attach other files with --attach FILE"
        raise UsageError(f"{what} is not text in UTF-8", todo=todo) from error


def _refuse_without_editor(id: str) -> None:
    """Refuse to open the default editor without a terminal. One that the user chose may need none."""
    if not sys.stdin.isatty() and not (os.environ.get("VISUAL") or os.environ.get("EDITOR")):
        todo = f'pass the text: ralph session feedback {id} "...", or --from FILE'
        raise UsageError("there is no terminal for an editor", todo=todo)


@session.command("update")
@click.argument("words", nargs=-1, metavar="[SESSION] REQUIREMENT")
@json_option
def update(words: tuple[str, ...], as_json: bool) -> int:
    """Add a requirement to SESSION. Then `ralph session resume` plans again. Default: the latest open session."""
    refuse_inside_a_turn(*_NO_FEEDBACK)
    found, requirement = choose_session_and_text(open_project(), words, "requirement")
    wanted = " ".join(requirement.split())
    if not wanted:
        raise UsageError("the requirement is empty", todo=f'say what you want: ralph session update {found.id} "..."')
    batch = find_next_batch(found)
    batch.give(batch.requirement(wanted))
    return _show_batch(batch, as_json=as_json)


def _show_batch(batch: FeedbackBatch, *, as_json: bool) -> int:
    session = batch.session
    what = "Update" if session.is_classic else "Feedback for iteration"
    lines = [f"{what} {batch.number}: {batch.path}", f"Next:   ralph session resume {session.id}"]
    facts = {"session_id": session.id, "iteration": batch.number, "path": batch.path}
    return print_result(as_json, lines, command="session feedback", **facts)


@session.command("approve")
@click.argument("words", nargs=-1, metavar="[SESSION] [MESSAGE]", shell_complete=complete_runs)
@click.option(
    "--item", "items", multiple=True, help="What to keep, by file or category. Can be repeated. Default: all."
)
@click.option("--message", default="", help="The same as MESSAGE.")
@json_option
def approve(words: tuple[str, ...], items: tuple[str, ...], message: str, as_json: bool) -> int:
    """Keep what SESSION learned, and continue it. If SESSION has not asked yet, your answer waits until it does.

    MESSAGE says in your own words what to keep; a librarian selects it. Default: all.
    """
    refuse_inside_a_turn()
    if "" in words:
        # An empty message would keep everything, which is the opposite of naming something.
        raise UsageError("the message is empty", todo="say what to keep, or leave it out to keep all")
    found, text = choose_session_and_text(open_project(), words, "message")
    if (bool(items) + bool(message) + bool(text)) > 1:
        raise UsageError("--item, --message and MESSAGE all say what to keep", todo="use only one of them")
    return _answer(found.id, Signal("", SignalType.APPROVE, message or text, items=items), as_json=as_json)


@session.command("skip")
@click.argument("session", required=False, shell_complete=complete_runs)
@json_option
def skip(session: str | None, as_json: bool) -> int:
    """Drop what SESSION learned, and continue it. If SESSION has not asked yet, your answer waits until it does."""
    return _answer(session, Signal("", SignalType.SKIP), as_json=as_json)


@session.command("tree")
@click.argument("session", required=False, shell_complete=complete_runs)
def tree(session: str | None) -> int:
    """List the files of SESSION."""
    home = find_session(open_project(), session).home
    beside = [home.with_name(f"{home.name}.instructions.md"), home]
    below = sorted(home.rglob("*"), key=lambda path: [make_natural_key(part.split(".md")[0]) for part in path.parts])
    for path in (one for one in (*beside, *below) if one.exists()):
        inside = path.relative_to(home.parent)
        print_text(f"{'  ' * (len(inside.parts) - 1)}{inside.name}{'/' if path.is_dir() else ''}")
    return 0


@session.command("repair")
@click.argument("session", required=False, shell_complete=complete_runs)
@json_option
def repair(session: str | None, as_json: bool) -> int:
    """Repair the documents of SESSION, and remove stray lines. Default: the latest open session.

    Ralph keeps a copy of what it changes.
    """
    refuse_inside_a_turn("an agent cannot repair sessions", "leave that to the user")
    found = find_session(open_project(), session)
    done = repair_session(found)
    return print_result(
        as_json, done or ["Nothing was wrong."], command="session repair", session_id=found.id, done=done
    )


def _answer(session: str | None, answer: Signal, *, as_json: bool) -> int:
    refuse_inside_a_turn()
    project = open_project()
    found = find_session(project, session)
    ask_consent(find_consent_to_resume(project, found.record), yes=False)
    done = answer_approval(found, answer)
    if not found.alive and not done.is_early:
        describe = _describer(project, signal=done.signal)
        return run_in_foreground(project, done.run, (), as_json=as_json, describe=describe)
    lines = [f"Sent. Session {found.id} continues within a few seconds."]
    if done.is_early:
        lines = [
            f"Sent. Session {found.id} has not asked yet whether to keep what it learns. "
            "Your answer waits until it does, in this iteration."
        ]
        if not found.alive:
            lines.append(f"Next:   ralph session resume {found.id}")
    facts = {"session_id": found.id, "signal": done.signal, "waits": done.is_early}
    return print_result(as_json, lines, command=f"session {answer.type.lower()}", **facts)
