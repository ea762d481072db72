"""`ralph session`: plan a request, do its tasks side by side, review them, take feedback, plan again."""

import os
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from ralph.app.create_run import Ground, create_run
from ralph.app.run_options import build_crew, build_record, check_seconds, refuse_landing
from ralph.app.sessions import session_workflow
from ralph.app.start_checks import start_notices
from ralph.app.workflows import kind_of
from ralph.cli.console import here, json_option, tell
from ralph.cli.engine import begin, detach, refuse_inside_a_turn, work_on
from ralph.cli.options import options_from, run_options
from ralph.cli.plan import show_plan
from ralph.cli.render.session import contract, shown
from ralph.cli.sessions_here import Found, chosen, for_request, sessions
from ralph.cli.trust import ask_consent, ask_consent_again
from ralph.core.codec import to_plain
from ralph.core.errors import RalphError, UsageError
from ralph.core.graphs import natural
from ralph.core.signals import Signal, SignalType
from ralph.documents.config import Config
from ralph.documents.run_record import LoopSettings, RunRecord, SessionSettings
from ralph.documents.session import feedback
from ralph.documents.session.layout import FEEDBACK, ClassicLayout
from ralph.documents.session.metadata import State
from ralph.documents.session.timestamps import render
from ralph.store.files import read_limited, to_bytes, write_atomic
from ralph.store.runs import Project
from ralph.store.settings import load_config
from ralph.verify.criterion import compile_criterion
from ralph.verify.run_findings import hash_inputs
from ralph.workflows.loop.report import duration
from ralph.workspace.turn_files import LENT_LIMIT


@click.group("session")
def command() -> None:
    """Plan a request, do its tasks in parallel, review them, take feedback, plan again."""


_SESSION_OPTIONS = (
    click.option(
        "--check", "criteria", multiple=True, help="What must pass before the session is complete, as in --until."
    ),
    click.option("--waves", is_flag=True, help="Finish a wave of tasks before the next begins."),
)


def _session_options(command: Callable[..., int]) -> Callable[..., int]:
    """Give a command the options with which a session is started, or one of somebody else is continued."""
    command = run_options(command)
    for option in reversed(_SESSION_OPTIONS):
        command = option(command)
    return command


@command.command("new")
@click.argument("request")
@click.option("--classic", is_flag=True, help="Use flat files, and do one task at a time in your own tree.")
@click.option("--new", "anew", is_flag=True, help="Start another session even if one for the same request is open.")
@_session_options
def new(request: str, classic: bool, anew: bool, **given: Any) -> int:
    """Start a session for REQUEST."""
    refuse_inside_a_turn()
    project = here()
    if not request.strip():
        raise UsageError("the request is empty", todo='say what is to be built: ralph session new "Build ..."')
    if not anew and (known := next(for_request(project, request), None)):
        raise UsageError(
            f"session {known.id} for the same request is open",
            todo=f"`ralph session resume {known.id}`, or --new for another one",
        )
    return _begin(project, "", "classic" if classic else "session", request, given)


def _begin(project: Project, id: str, kind: str, request: str, given: Mapping[str, Any]) -> int:
    """Make the run of a session, new or of others, and work on it."""
    config = load_config(project.root)
    record = _record(project, config, id, kind, request, given)
    notices = tuple(start_notices(project, config, record))
    if given["dry_run"]:
        return show_plan(project, replace(record, id=id or "000000-000000"), notices, as_json=given["as_json"])
    ask_consent(project, record, typed=given["criteria"], yes=given["yes"])
    ground = Ground.WORKTREE if given["worktree"] else Ground.HERE
    if kind == "session":
        ground = Ground.BRANCH
    run, more = create_run(project, record, ground, plain_id=True)
    return begin(project, run, (*more, *notices), detached=given["detached"], as_json=given["as_json"])


def _record(project: Project, config: Config, id: str, kind: str, request: str, given: Mapping[str, Any]) -> RunRecord:
    """What a session is started with, by options and settings."""
    options = options_from(given)
    if kind == "classic":
        if options.parallel or given["waves"]:
            raise UsageError("a classic session does one task at a time", todo="leave --parallel and --waves out")
        refuse_landing(options, on_own_branch=options.worktree)
    elif options.worktree:
        raise UsageError("the tasks of a session have worktrees of their own", todo="leave --worktree out")
    seconds = check_seconds(config, options)
    compiled = [compile_criterion(text, seconds, project.root) for text in given["criteria"]]
    checks = tuple(check for one in compiled for check in one.checks)
    places = [project.root / os.path.expanduser(name) for name in config.session.skills]
    skills = tuple(str(place) for place in places if place.is_dir())
    return build_record(
        kind,
        request,
        config,
        options,
        build_crew(project, config, options),
        id=id,
        criterion=" AND ".join(given["criteria"]),
        checks=checks,
        loop=LoopSettings(inputs=hash_inputs(checks, project.root)),
        session=SessionSettings(by_waves=given["waves"] or config.session.waves, skills=skills),
    )


@command.command("list")
@json_option
def listing(as_json: bool) -> int:
    """The sessions of this project, the latest last."""
    project = here()
    rows = [_row(one) for one in sessions(project)]
    lines = [] if rows else [f"No sessions in {project.root}."]
    for row in rows:
        count, status = row["tasks_summary"], row["status"].replace("_", " ")
        done = f"{count['completed']}/{count['total'] - count.get('cancelled', 0)} tasks"
        about = row.get("request", "")[:60]
        lines.append(f"{row['session_id']:<15}  {status:<18} {row['current_state']:<20} {done:<12} {about}".rstrip())
    return tell(as_json, lines, command="session list", sessions=rows)


def _row(found: Found) -> dict[str, Any]:
    """A session in the list; one of others that cannot be read is told of, and does not hide the rest."""
    try:
        return _told(found)
    except RalphError as error:
        if found.run:
            raise
        nothing = {"completed": 0, "total": 0}
        told = {"session_id": found.id, "status": "unreadable", "current_state": "", "next_action": error.what}
        return {**told, "tasks_summary": nothing}


def _told(found: Found) -> dict[str, Any]:
    """A session in the form that other tools know."""
    terms = session_workflow(found.record, found.project.root)
    return contract(terms, found.state(), alive=found.alive, aborted=found.is_aborted)


@command.command("show")
@click.argument("session", required=False)
@json_option
def show(session: str | None, as_json: bool) -> int:
    """A session at a glance: its state, its tasks with their markers, and what happens next."""
    found = chosen(here(), session)
    spent = to_plain(found.run.tail_summary().spent) if found.run else {}
    if as_json:
        return tell(True, (), command="session show", **_told(found), spent=spent)
    terms = session_workflow(found.record, found.project.root)
    lines = shown(terms, found.state(), _money(spent), alive=found.alive, aborted=found.is_aborted)
    click.echo("\n".join(lines))
    if found.run is None:
        click.echo(f"Others began this session; `ralph session resume {found.id}` takes it up.")
    return 0


def _money(spent: dict[str, Any]) -> str:
    turns, unpriced = spent.get("turns", 0), spent.get("unpriced_turns", 0)
    facts = [f"{spent.get('turns', 0)} turns", f"{duration(float(spent.get('active_seconds') or 0))} active"]
    cost = "cost unknown" if unpriced == turns else f"${float(spent.get('cost') or 0):.4f}"
    return ", ".join([*facts, f"at least {cost}" if 0 < unpriced < turns else cost]) if turns else ""


@command.command("resume")
@click.argument("session", required=False)
@_session_options
def resume(session: str | None, **given: Any) -> int:
    """Go on with SESSION (the latest open one); feedback that was given begins the next iteration.

    The session of others, or one whose run is lost, is taken up from its files; the options say with which agents.
    """
    refuse_inside_a_turn()
    project = here()
    found = chosen(project, session)
    if found.run is None:
        record = found.record
        _told(found)
        return _begin(project, found.id, record.workflow, record.task, given)
    if found.is_aborted:
        todo = f'`ralph session update {found.id} "..."`, or `feedback`, says how it goes on; or begin another'
        raise UsageError(f"session {found.id} was aborted", todo=todo)
    if named := [name for name, value in given.items() if value and name not in ("yes", "detached", "as_json")]:
        told = ", ".join(sorted(named))
        todo = f"leave the options out; `ralph resume {found.run.id} --help` lists what can be changed on a resume"
        raise UsageError(f"session {found.id} was begun with its own settings ({told})", todo=todo)
    ask_consent_again(project, yes=given["yes"])
    if given["detached"]:
        return detach(project, found.run, as_json=given["as_json"], command=("session", "resume"))
    return work_on(project, found.run, (), as_json=given["as_json"], resumes=True)


@command.command("feedback")
@click.argument("session", required=False)
@click.option(
    "--from", "source", type=click.Path(path_type=Path), help="The file with the feedback. Default: an editor opens."
)
@click.option("--attach", multiple=True, type=click.Path(path_type=Path), help="A file that shows what you mean.")
@json_option
def give_feedback(session: str | None, source: Path | None, attach: tuple[Path, ...], as_json: bool) -> int:
    """Say what is wrong or missing; `ralph session resume` then plans again."""
    found = chosen(here(), session)
    missing = [str(path) for path in (*attach, *([source] if source else [])) if not path.is_file()]
    if missing:
        raise UsageError(f"there is no file {', '.join(missing)}", todo="give paths of files that exist")
    names = [path.name for path in attach]
    if double := next((name for name in names if names.count(name) > 1 or name == FEEDBACK), ""):
        raise UsageError(f"{double} would take the place of another file of that name", todo="give it another name")
    if large := next((path.name for path in attach if path.stat().st_size > LENT_LIMIT), ""):
        raise UsageError(f"{large} is larger than the {LENT_LIMIT >> 20} MiB that agents are given", todo="cut it down")
    batch = _next_batch(found)
    template = batch.template([path.name for path in attach])
    text = (
        read_limited(source, follow=True).decode(errors="replace") if source else click.edit(template, extension=".md")
    )
    if not text or not text.strip() or text == template:
        raise UsageError("no feedback was written", todo="give --from FILE, or write into the editor and save")
    return batch.give(text, attach, as_json=as_json)


@command.command("update")
@click.argument("session")
@click.argument("requirement")
@json_option
def update(session: str, requirement: str, as_json: bool) -> int:
    """Ask SESSION for something more; `ralph session resume` then plans again."""
    found = chosen(here(), session)
    wanted = " ".join(requirement.split())
    if not wanted:
        raise UsageError("the requirement is empty", todo='say what is wanted: ralph session update ID "..."')
    batch = _next_batch(found)
    return batch.give(batch.requirement(wanted), (), as_json=as_json)


@command.command("approve")
@click.argument("session", required=False)
@json_option
def approve(session: str | None, as_json: bool) -> int:
    """Keep what SESSION learned, and go on with it."""
    return _answered(session, SignalType.APPROVE, as_json=as_json)


@command.command("skip")
@click.argument("session", required=False)
@json_option
def skip(session: str | None, as_json: bool) -> int:
    """Do not keep what SESSION learned, and go on with it."""
    return _answered(session, SignalType.SKIP, as_json=as_json)


@command.command("tree")
@click.argument("session", required=False)
def tree(session: str | None) -> int:
    """The files of SESSION."""
    home = chosen(here(), session).home
    beside = [home.with_name(f"{home.name}.instructions.md"), home]
    below = sorted(home.rglob("*"), key=lambda path: [natural(part.split(".md")[0]) for part in path.parts])
    for path in (one for one in (*beside, *below) if one.exists()):
        inside = path.relative_to(home.parent)
        click.echo(f"{'  ' * (len(inside.parts) - 1)}{inside.name}{'/' if path.is_dir() else ''}")
    return 0


@command.command("repair")
@click.argument("session")
@json_option
def repair(session: str, as_json: bool) -> int:
    """Put the documents of SESSION right by what its other files say; what was there is kept beside them."""
    found = chosen(here(), session)
    if found.alive:
        raise UsageError(f"session {found.id} is under way", todo="pause it first")
    done = kind_of(found.record.workflow).mend(found.project.root, found.record, time.time())
    return tell(as_json, done or ["Nothing was wrong."], command="session repair", session_id=found.id, done=done)


def _answered(session: str | None, signal: SignalType, *, as_json: bool) -> int:
    refuse_inside_a_turn()
    project = here()
    found = chosen(project, session)
    if found.run is None or found.is_classic or found.state().state is not State.KNOWLEDGE_APPROVAL:
        raise UsageError(
            f"session {found.id} does not wait for an approval",
            todo=f"`ralph session show {found.id}` says what it does",
        )
    ask_consent_again(project, yes=False)
    found.run.mailbox.post(Signal("", signal))
    return 0 if found.alive else work_on(project, found.run, (), as_json=as_json)


@dataclass(frozen=True)
class _Batch:
    """What a person says of a session: a batch of feedback for the next iteration, or an update of a classic one."""

    found: Found
    number: int
    stamp: str

    def template(self, attached: list[str]) -> str:
        """What the editor opens with."""
        if self.found.is_classic:
            return "".join(f"- see {name}\n" for name in attached)
        return feedback.template(self.number, self.stamp, render(time.time()), attached)

    def requirement(self, wanted: str) -> str:
        """One new requirement in the form that it has there."""
        if self.found.is_classic:
            return f"# Update {self.number}\n\n- {wanted}\n"
        heading = "## New Requirements\n"
        head, _, tail = self.template([]).partition(heading)
        return f"{head}{heading}- {wanted}\n\n{tail[tail.find('## ') :]}"

    def give(self, text: str, attach: tuple[Path, ...], *, as_json: bool) -> int:
        """Write it with what is attached; the text last, for it is what the engine looks for."""
        root, id = self.found.project.root, self.found.id
        place = root / self.path
        beside = place.with_suffix("") if self.found.is_classic else place.parent
        for path in attach:
            beside.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, beside / path.name)
        place.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(place, to_bytes(text))
        what = "Update" if self.found.is_classic else "Feedback for iteration"
        lines = [f"{what} {self.number}: {self.path}", f"Next:   ralph session resume {id}"]
        return tell(as_json, lines, command="session feedback", session_id=id, iteration=self.number, path=self.path)

    @property
    def path(self) -> str:
        """Where it is written."""
        if self.found.is_classic:
            return ClassicLayout.of(self.found.id).update(self.number)
        return session_workflow(self.found.record, self.found.project.root).layout.feedback(self.number, self.stamp)


def _next_batch(found: Found) -> _Batch:
    """The next thing that a person says of a session."""
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    if found.is_classic:
        known = ClassicLayout.of(found.id).updates_in(found.texts())
        return _Batch(found, max(known, default=0) + 1, stamp)
    return _Batch(found, found.state().metadata.iteration + 1, stamp)
