"""`ralph session`: plan a request, do its tasks side by side, review them, take feedback, plan again."""

import os
import shutil
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from ralph.cli.console import here, json_option, positive, say_json
from ralph.cli.crew import ask_consent, crew_for
from ralph.cli.engine import detach, refuse_inside_a_turn, work_on
from ralph.cli.parallel import slot_limits, tree_settings
from ralph.cli.session_words import contract, shown
from ralph.core.errors import UsageError
from ralph.core.limits import Limits
from ralph.core.signals import SignalType
from ralph.documents.run_record import RunRecord, SessionSettings, TurnLimits
from ralph.documents.session import feedback
from ralph.documents.session.layout import HOME as SESSIONS
from ralph.documents.session.timestamps import render
from ralph.sessions import mend, session_texts, session_workflow
from ralph.store.files import read_limited, to_bytes, write_atomic
from ralph.store.runs import Project, RunDir
from ralph.store.settings import load_config
from ralph.verify.criterion import compile_criterion
from ralph.wiring import Ground, create_run
from ralph.workflows.loop.report import duration
from ralph.workflows.session.state import SessionState, State


@click.group("session")
def command() -> None:
    """Plan a request, do its tasks side by side, review them, take feedback, plan again."""


@command.command("new")
@click.argument("request")
@click.option("--agent", "agents", multiple=True, help="The agent; again for one that takes over.")
@click.option("--agent-acp", help="Any agent that speaks the Agent Client Protocol, by its command.")
@click.option("--agent-command", help="Any program as the agent.")
@click.option("--scenario", help="The scenario file of the scripted agent.")
@click.option(
    "--check", "criteria", multiple=True, help="What must pass before the session is complete, as in --until."
)
@click.option("--parallel", type=int, help="Tasks at once (3).")
@click.option("--waves", is_flag=True, help="Finish a wave before the next begins.")
@click.option("--land", type=click.Choice(["ff", "branch", "push"]), help="Where the work goes on success (ff).")
@click.option("--timeout", type=float, help="Active minutes at most.")
@click.option("--max-cost", type=float, help="US dollars at most.")
@click.option("--max-tokens", type=int, help="Tokens at most.")
@click.option("--new", "anew", is_flag=True, help="Begin another, though one for the same request is open.")
@click.option("--detach", "detached", is_flag=True, help="Work in the background.")
@click.option("--yes", is_flag=True, help="Agree that the agents act here without asking.")
@json_option
def new(
    request: str,
    agents: tuple[str, ...],
    agent_acp: str | None,
    agent_command: str | None,
    scenario: str | None,
    criteria: tuple[str, ...],
    parallel: int | None,
    waves: bool,
    land: str | None,
    timeout: float | None,
    max_cost: float | None,
    max_tokens: int | None,
    anew: bool,
    detached: bool,
    yes: bool,
    as_json: bool,
) -> int:
    """Begin a session for REQUEST."""
    refuse_inside_a_turn()
    project = here()
    config = load_config(project.root)
    if not request.strip():
        raise UsageError("the request is empty", todo='say what is to be built: ralph session new "Build ..."')
    if not anew and (known := next(_open(project, request), None)):
        raise UsageError(
            f"session {known.id} for the same request is open",
            todo=f"`ralph session resume {known.id}`, or --new for another one",
        )
    crew = crew_for(project, config, agents, agent_command, scenario, agent_acp)
    seconds = config.check_timeout
    checks = tuple(check for text in criteria for check in compile_criterion(text, seconds, project.root).checks)
    minutes = positive("--timeout", timeout, None)
    record = RunRecord(
        id="",
        workflow="session",
        task=request,
        criterion=" AND ".join(criteria),
        checks=checks,
        crew=crew,
        created_at=time.time(),
        limits=Limits(
            None,
            None if minutes is None else minutes * 60,
            None,
            positive("--max-tokens", max_tokens, config.limits.tokens),
            positive("--max-cost", max_cost, config.limits.cost),
        ),
        turn_limits=TurnLimits(config.turn.minutes * 60, config.turn.idle_minutes * 60, config.turn.grace_seconds),
        check_seconds=seconds,
        push=config.push,
        most_steps=config.max_steps,
        prices=config.prices,
        land=land or config.land or "ff",
        slots=slot_limits(config.slots, positive("--parallel", parallel, None)),
        trees=tree_settings(config.workspace),
        session=SessionSettings(waves or config.session.waves, tuple(_skills(project.root, config.session.skills))),
    )
    ask_consent(project, config, crew, yes=yes)
    run, notices = create_run(project, record, Ground.BRANCH, plain_id=True)
    return detach(project, run, as_json=as_json) if detached else work_on(project, run, notices, as_json=as_json)


@command.command("list")
@json_option
def listing(as_json: bool) -> int:
    """The sessions of this project, the latest last."""
    project = here()
    rows = [contract(_state(project, run)) for run in _sessions(project)]
    if as_json:
        say_json(command="session list", sessions=rows)
        return 0
    for row in rows:
        done = row["tasks_summary"]
        click.echo(
            f"{row['session_id']}  {row['status']:<18} {row['current_state']:<16} {done['completed']}/{done['total']}"
        )
    if not rows:
        click.echo(f"No sessions in {project.root}.")
    return 0


@command.command("show")
@click.argument("session", required=False)
@json_option
def show(session: str | None, as_json: bool) -> int:
    """A session at a glance: its state, its waves with their markers, and what happens next."""
    project = here()
    run = _chosen(project, session)
    state, spent = _state(project, run), run.last_words()["spent"]
    if as_json:
        say_json(command="session show", **contract(state), spent=spent)
    else:
        click.echo("\n".join(shown(session_workflow(run.record(), project.root), state, _money(spent))))
    return 0


@command.command("resume")
@click.argument("session", required=False)
@click.option("--detach", "detached", is_flag=True, help="Work in the background.")
@json_option
def resume(session: str | None, detached: bool, as_json: bool) -> int:
    """Go on with SESSION (the latest open one); feedback that was given begins the next iteration."""
    refuse_inside_a_turn()
    project = here()
    chosen = _chosen(project, session)
    return detach(project, chosen, as_json=as_json) if detached else work_on(project, chosen, (), as_json=as_json)


@command.command("feedback")
@click.argument("session", required=False)
@click.option(
    "--from", "source", type=click.Path(path_type=Path), help="A file with the feedback; else an editor opens."
)
@click.option("--attach", multiple=True, type=click.Path(path_type=Path), help="Files that show what is meant.")
@json_option
def give_feedback(session: str | None, source: Path | None, attach: tuple[Path, ...], as_json: bool) -> int:
    """Say what is wrong or missing; `ralph session resume` then plans again."""
    project = here()
    run = _chosen(project, session)
    number, stamp = _next_batch(project, run)
    missing = [str(path) for path in (*attach, *([source] if source else [])) if not path.is_file()]
    if missing:
        raise UsageError(f"there is no file {', '.join(missing)}", todo="give paths of files that exist")
    template = feedback.template(number, stamp, render(time.time()), [path.name for path in attach])
    text = (
        read_limited(source, follow=True).decode(errors="replace") if source else click.edit(template, extension=".md")
    )
    if not text or not text.strip() or text == template:
        raise UsageError("no feedback was written", todo="give --from FILE, or write into the editor and save")
    return _batch(project, run, number, stamp, text, attach, as_json=as_json)


@command.command("update")
@click.argument("session")
@click.argument("requirement")
@json_option
def update(session: str, requirement: str, as_json: bool) -> int:
    """Ask SESSION for something more; `ralph session resume` then plans again."""
    project = here()
    run = _chosen(project, session)
    number, stamp = _next_batch(project, run)
    text = feedback.template(number, stamp, render(time.time()))
    heading = "## New Requirements\n"
    if heading not in text or not requirement.strip():
        raise UsageError("the requirement is empty", todo='say what is wanted: ralph session update ID "..."')
    head, _, tail = text.partition(heading)
    wanted = " ".join(requirement.split())
    return _batch(
        project, run, number, stamp, f"{head}{heading}- {wanted}\n\n{tail[tail.find('## ') :]}", (), as_json=as_json
    )


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
    project = here()
    home = project.root / SESSIONS / _chosen(project, session).id
    for path in sorted(home.rglob("*")):
        inside = path.relative_to(home)
        click.echo(f"{'  ' * (len(inside.parts) - 1)}{inside.name}{'/' if path.is_dir() else ''}")
    return 0


@command.command("repair")
@click.argument("session")
@json_option
def repair(session: str, as_json: bool) -> int:
    """Put progress.md and metadata.yaml of SESSION right by what its other files say; what was there is kept beside them."""
    project = here()
    run = _chosen(project, session)
    if run.alive:
        raise UsageError(f"session {run.id} is under way", todo="pause it first")
    done = mend(project.root, run.record(), time.time())
    if as_json:
        say_json(command="session repair", session_id=run.id, done=done)
    else:
        click.echo("\n".join(done) or "Nothing was wrong.")
    return 0


def _money(spent: dict[str, Any]) -> str:
    cost = spent.get("cost")
    facts = [f"{spent.get('turns', 0)} turns", duration(float(spent.get("active_seconds") or 0))]
    return ", ".join([*facts, f"${cost:.4f}"] if cost else facts) if spent.get("turns") else ""


def _answered(session: str | None, signal: SignalType, *, as_json: bool) -> int:
    refuse_inside_a_turn()
    project = here()
    run = _chosen(project, session)
    if _state(project, run).state is not State.KNOWLEDGE_APPROVAL:
        raise UsageError(
            f"session {run.id} does not wait for an approval", todo=f"`ralph session show {run.id}` says what it does"
        )
    run.mailbox.post(signal)
    return 0 if run.alive else work_on(project, run, (), as_json=as_json)


def _next_batch(project: Project, run: RunDir) -> tuple[int, str]:
    """The iteration that feedback begins, and the name of a new batch of it."""
    return _state(project, run).metadata.iteration + 1, datetime.now().strftime("%Y%m%d-%H%M%S")


def _batch(
    project: Project, run: RunDir, number: int, stamp: str, text: str, attach: tuple[Path, ...], *, as_json: bool
) -> int:
    """Write a batch of feedback with what is attached to it; the text last, for it is what the engine looks for."""
    layout = session_workflow(run.record(), project.root).layout
    place = project.root / layout.feedback(number, stamp)
    place.parent.mkdir(parents=True, exist_ok=True)
    for path in attach:
        shutil.copy2(path, place.parent / path.name)
    write_atomic(place, to_bytes(text))
    if as_json:
        say_json(
            command="session feedback", session_id=run.id, iteration=number, path=str(place.relative_to(project.root))
        )
    else:
        click.echo(f"Feedback for iteration {number}: {place.relative_to(project.root)}")
        click.echo(f"Next:   ralph session resume {run.id}")
    return 0


def _skills(root: Path, names: tuple[str, ...]) -> Iterator[str]:
    """The directories with skills that there are."""
    for name in names:
        place = Path(os.path.expanduser(name)) if name.startswith("~") else root / name
        if place.is_dir():
            yield str(place)


def _sessions(project: Project) -> list[RunDir]:
    return [run for run in project.runs() if (run.path / "run.json").exists() and run.record().workflow == "session"]


def _open(project: Project, request: str) -> Iterator[RunDir]:
    """The sessions for a request that are not over."""
    for run in reversed(_sessions(project)):
        outcome = run.outcome()
        if run.record().task.strip() == request.strip() and (outcome is None or outcome.resumable):
            yield run


def _chosen(project: Project, session: str | None) -> RunDir:
    """The session that is meant: the named one, or the latest that is open, or the latest."""
    if session:
        return project.run(session)
    found = _sessions(project)
    if found:
        outcomes = {run.id: run.outcome() for run in found}
        is_open = [run for run in found if (outcome := outcomes[run.id]) is None or outcome.resumable]
        return [*found, *is_open][-1]
    raise UsageError("there is no session here", where=str(project.root), todo='begin one: ralph session new "..."')


def _state(project: Project, run: RunDir) -> SessionState:
    """A session as its documents tell of it now."""
    return session_workflow(run.record(), project.root).load(session_texts(project.root, run.record()))
