"""`ralph loop`: work on one task until its criterion is verified."""

import difflib
import shlex
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path

import click

from ralph.agents import registry
from ralph.agents.agent import Call
from ralph.cli.console import here, json_option, positive, say_json
from ralph.cli.engine import detach, refuse_inside_a_turn, work_on
from ralph.core.errors import RalphError, UsageError
from ralph.core.findings import Rule
from ralph.core.limits import Limits
from ralph.documents.config import Config
from ralph.documents.run_record import AgentSpec, Crew, LoopSettings, RunRecord, TurnLimits
from ralph.git.commits import clean_for_commit
from ralph.git.history import HEADS, head_of
from ralph.git.repository import repository
from ralph.memory.recall import recall
from ralph.store.files import read_limited
from ralph.store.runs import Project
from ralph.store.settings import give_consent, has_consent, load_config
from ralph.verify.criterion import Criterion, compile_criterion, compile_yaml
from ralph.verify.inputs import input_hashes
from ralph.wiring import create_run, loop_workflow
from ralph.workflows.loop.kinds import TaskType, guess, too_few
from ralph.workflows.loop.state import OnStuck, Phase


@click.command("loop")
@click.argument("task")
@click.option(
    "--until",
    "criterion",
    required=True,
    help="What must hold: commands in backticks, metrics, files, phrases like 'tests pass', joined by AND; or @FILE.",
)
@click.option(
    "--type",
    "kind",
    type=click.Choice([kind.value for kind in TaskType]),
    help="The kind of task (else judged by its words).",
)
@click.option("--scope", multiple=True, metavar="GLOB", help="Only files that match may be changed; can be repeated.")
@click.option("--confirm", type=int, help="How often in a row the checks must pass on the same tree (1).")
@click.option(
    "--on-stuck",
    type=click.Choice([choice.value for choice in OnStuck]),
    help="What follows when nothing moves any more (stop).",
)
@click.option(
    "--no-stuck", is_flag=True, help="Go on however often the same failure comes; the same as --on-stuck continue."
)
@click.option("--reflector", is_flag=True, help="Have a turn of its own reflect on every failed iteration.")
@click.option("--no-recall", is_flag=True, help="Do not tell the agent what loops before this one learned.")
@click.option("--commit/--no-commit", "commits", default=None, help="Commit every iteration on the current branch.")
@click.option(
    "--agent", "agents", multiple=True, help="The agent: claude, codex, gemini, ...; again for one that takes over."
)
@click.option("--model", default="", help="The model that the agent uses, by the name that it gives it.")
@click.option(
    "--agent-arg", "agent_args", multiple=True, metavar="ARG", help="A further argument for the agent's program."
)
@click.option(
    "--no-sub-agents", is_flag=True, help="Keep the agent from starting agents of its own, where it can be kept."
)
@click.option("--agent-command", help="Any program as the agent: prompt on stdin, working in this directory.")
@click.option("--scenario", help="The scenario file of the scripted agent.")
@click.option("--max-iterations", type=int, help="Iterations at most (10).")
@click.option("--timeout", type=float, help="Active minutes at most (60).")
@click.option("--deadline", help="A moment after which no work is done, e.g. 2026-11-16T07:00 (local time).")
@click.option("--max-cost", type=float, help="US dollars at most.")
@click.option("--max-tokens", type=int, help="Tokens at most.")
@click.option("--turn-timeout", type=float, help="Minutes after which one turn is ended (60).")
@click.option("--idle-timeout", type=float, help="Minutes without output after which a turn is ended (15).")
@click.option("--check-timeout", type=float, help="Seconds after which a check is ended (600).")
@click.option("--allow", multiple=True, metavar="RULE", help="Lift a rule of the guards; needs --because.")
@click.option("--because", help="Why the rules are lifted; it is journaled.")
@click.option("--worktree", is_flag=True, help="Work in a git worktree of its own, on the branch ralph/<run>/run.")
@click.option("--no-snapshots", is_flag=True, help="Do not record the tree (no `ralph diff`, no `ralph undo`).")
@click.option("--detach", "detached", is_flag=True, help="Work in the background, whatever happens to this terminal.")
@click.option("--dry-run", is_flag=True, help="Show prompt, checks, settings and the worst case; start nothing.")
@click.option("--yes", is_flag=True, help="Agree that the agent acts here without asking.")
@json_option
def command(
    task: str,
    criterion: str,
    kind: str | None,
    scope: tuple[str, ...],
    confirm: int | None,
    on_stuck: str | None,
    no_stuck: bool,
    reflector: bool,
    no_recall: bool,
    commits: bool | None,
    agents: tuple[str, ...],
    model: str,
    agent_args: tuple[str, ...],
    no_sub_agents: bool,
    agent_command: str | None,
    scenario: str | None,
    max_iterations: int | None,
    timeout: float | None,
    deadline: str | None,
    max_cost: float | None,
    max_tokens: int | None,
    turn_timeout: float | None,
    idle_timeout: float | None,
    check_timeout: float | None,
    allow: tuple[str, ...],
    because: str | None,
    worktree: bool,
    no_snapshots: bool,
    detached: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> int:
    """Work on TASK (- reads it from standard input) until the commands in --until pass; the engine runs them itself.

    \b
    ralph loop "Fix the failing tests" --until '`pytest -q` passes' --agent-command "python3 my_agent.py"
    """
    refuse_inside_a_turn()
    project = here()
    config = load_config(project.root)
    task = sys.stdin.read() if task == "-" else task
    _refuse_blank(task)
    asked = _criterion(criterion, positive("--check-timeout", check_timeout, config.check_timeout) or 0, project.root)
    crew = _crew(project, config, agents, agent_command, scenario)
    crew = _with_options(crew, model, agent_args, no_sub_agents=no_sub_agents)
    limits = Limits(
        positive("--max-iterations", max_iterations, config.limits.iterations),
        _seconds(positive("--timeout", timeout, config.limits.minutes)),
        _moment(deadline),
        positive("--max-tokens", max_tokens, config.limits.tokens),
        positive("--max-cost", max_cost, config.limits.cost),
    )
    turn_limits = TurnLimits(
        _seconds(positive("--turn-timeout", turn_timeout, config.turn.minutes)) or 0,
        _seconds(positive("--idle-timeout", idle_timeout, config.turn.idle_minutes)) or 0,
        config.turn.grace_seconds,
    )

    if no_stuck and on_stuck not in (None, OnStuck.CONTINUE):
        raise UsageError(f"--no-stuck and --on-stuck {on_stuck} exclude each other", todo="give one of them")
    task_type = TaskType(kind) if kind else guess(task, asked.text)
    recalls = config.loop.recall and not no_recall
    loop = LoopSettings(
        type=task_type,
        scope=tuple(_scope(glob) for glob in scope),
        confirm=positive("--confirm", confirm, config.loop.confirm) or 1,
        on_stuck=OnStuck.CONTINUE if no_stuck else on_stuck or config.loop.on_stuck,
        reflector=reflector or config.loop.reflector,
        commit=config.loop.commit if commits is None else commits,
        recalled=recall(project.root, f"{task} {asked.text}", exclude="", task_type=task_type) if recalls else (),
        inputs=input_hashes(asked.checks, project.root),
    )
    snapshots = config.snapshots and not no_snapshots
    _refuse_unworkable(project, loop, snapshots=snapshots, in_worktree=worktree)

    def record(run: str, workspace: str, branch: str) -> RunRecord:
        return RunRecord(
            id=run,
            workflow="loop",
            task=task,
            criterion=asked.text,
            checks=asked.checks,
            crew=crew,
            created_at=time.time(),
            workspace=workspace,
            branch=branch,
            limits=limits,
            turn_limits=turn_limits,
            snapshots=snapshots,
            allowed=_allowed(allow, because),
            push=config.push,
            most_steps=config.max_steps,
            prices=config.prices,
            loop=loop,
        )

    if dry_run:
        return show_plan(project, record("000000-000000", ".", ""), asked.notes, as_json=as_json)
    ask_consent(project, config, crew, yes=yes)
    run, notices = create_run(project, record, in_worktree=worktree)
    notices = (*notices, *asked.notes, *_notices(project, limits, record(run.id, ".", "")))
    try:
        return detach(project, run, as_json=as_json) if detached else work_on(project, run, notices, as_json=as_json)
    except RalphError:
        if not (run.path / "journal.jsonl").exists():
            project.remove(run)
        raise


def ask_consent(project: Project, config: Config, crew: Crew, *, yes: bool) -> None:
    """Say once in every project what the agents may do, and have a person agree."""
    new = [label for label in crew.everyone if not has_consent(project.root, label)]
    if yes or config.permissions == "full-auto" or not new:
        return
    push = "may push to remotes" if config.push else "cannot push to remotes"
    click.echo(
        f"To be started without asking: {', '.join(f'`{label}`' for label in new)}. Such an agent can read and change\n"
        f"every file you can, run any program, and {push}.\n"
        f"Its changes in {project.root} are recorded after every turn; `ralph undo` takes them back.",
        err=True,
    )
    if not sys.stdin.isatty():
        raise UsageError(
            "nobody is here to agree",
            where=f"first run with this agent in {project.root}",
            todo="give --yes, or put `permissions: full-auto` into ralph.yml",
        )
    if not click.confirm("Go ahead?", err=True):
        raise click.Abort
    for label in new:
        give_consent(project.root, label)


def show_plan(project: Project, record: RunRecord, notes: tuple[str, ...], *, as_json: bool) -> int:
    """What a run would do, and what it could cost at worst."""
    loop = loop_workflow(record, project.root)
    state = loop.load({})
    first = loop.decide(replace(state, phase=Phase.ACT, iteration=1), time.time())
    prompt = first.turns[0].prompt if hasattr(first, "turns") else ""
    limits = record.limits
    money = f"${limits.cost:g}" if limits.cost else "no limit on money: give --max-cost"
    tries = f"each up to 5 tries of {record.turn_limits.wall / 60:g} min"
    worst = f"{limits.iterations or 'any number of'} iterations, {tries}; {money}"
    if as_json:
        say_json(command="plan", settings=asdict(record), prompt=prompt, worst_case=worst, notes=notes)
        return 0
    click.echo("Checks:")
    for check in record.checks:
        click.echo(f"  {check.title}" + (f"   (at most {check.timeout:g} s)" if check.command else ""))
    for note in notes:
        click.echo(f"  note: {note}")
    click.echo(f"Type:       {record.loop.type}")
    for label, spec in record.crew.everyone.items():
        agent = registry.make(spec, record.prices)
        words = agent.command(Call(project.root, spec.model, spec.arguments, limits.cost, record.most_steps))
        click.echo(f"Agent:      {label}: {shlex.join(words)} < prompt")
    click.echo(f"Root:       {project.root}")
    click.echo(f"Worst case: {worst}")
    for name, value in (*asdict(limits).items(), *asdict(record.turn_limits).items()):
        click.echo(f"  {name.replace('_', ' '):<16} {'no limit' if value is None else f'{value:g}'}")
    click.echo(f"\nFirst prompt:\n\n{prompt}")
    return 0


def _crew(
    project: Project, config: Config, agents: tuple[str, ...], agent_command: str | None, scenario: str | None
) -> Crew:
    """Who does the turns; a scenario of the settings is beside them, one of an option where we are."""
    named = agents or agent_command is not None or scenario is not None
    return registry.crew(config, agents, agent_command, scenario, Path.cwd() if named else project.root)


def _with_options(crew: Crew, model: str, arguments: tuple[str, ...], *, no_sub_agents: bool) -> Crew:
    """The crew with what options say of its first agent, and of all where it is about what they may do."""

    def one(spec: AgentSpec, *, first: bool) -> AgentSpec:
        without = ("sub-agents",) if no_sub_agents else ()
        return replace(
            spec,
            model=model if model and first else spec.model,
            arguments=(*spec.arguments, *(arguments if first else ())),
            without_tools=tuple(dict.fromkeys((*spec.without_tools, *without))),
        )

    roles = {role: tuple(one(spec, first=False) for spec in order) for role, order in crew.roles.items()}
    chain = tuple(one(spec, first=number == 0) for number, spec in enumerate(crew.chain))
    return replace(crew, chain=chain, roles=roles)


def _criterion(text: str, timeout: float, root: Path) -> Criterion:
    """The criterion that is meant: the text itself, or what is in the file that `@FILE` names."""
    if not text.startswith("@"):
        return compile_criterion(text, timeout, root)
    path = Path.cwd() / text[1:]
    try:
        content = read_limited(path, 256 * 1024, follow=True).decode()
    except OSError as error:
        raise UsageError(
            f"the criteria cannot be read: {error.strerror}", where=str(path), todo="give --until @FILE"
        ) from error
    except UnicodeDecodeError as error:
        raise UsageError("the criteria are not UTF-8 text", where=str(path), todo="write them as UTF-8") from error
    return compile_yaml(content, str(path), timeout, root)


def _scope(glob: str) -> str:
    """A pattern of `--scope`, refused where it could never match."""
    if not glob.strip() or glob.startswith("/") or ".." in glob.split("/"):
        raise UsageError(
            f"--scope {glob!r} is no pattern of files in this project", todo="write it like 'src/**' or '*.py'"
        )
    return glob


def _refuse_unworkable(project: Project, loop: LoopSettings, *, snapshots: bool, in_worktree: bool) -> None:
    """Refuse what the settings ask for and cannot have here."""
    if not snapshots and (loop.commit or loop.scope):
        what = "--commit" if loop.commit else "--scope"
        raise UsageError(f"{what} needs snapshots of the tree", todo="leave --no-snapshots out (`snapshots: true`)")
    if not loop.commit:
        return
    place = repository(project.root)
    if place is None:
        raise UsageError("--commit needs a git repository", where=str(project.root), todo="`git init`, or leave it out")
    if not in_worktree and not head_of(place.git).startswith(HEADS):
        raise UsageError(
            "--commit needs a branch to commit to; HEAD is detached",
            todo="`git switch` to a branch, or give --worktree",
        )
    if not in_worktree and (dirty := clean_for_commit(place)):
        raise UsageError(
            "--commit needs a tree without uncommitted changes, so that yours and the agent's stay apart",
            where=", ".join(dirty[:10]),
            todo="commit them first, or give --worktree",
        )


def _notices(project: Project, limits: Limits, record: RunRecord) -> Iterator[str]:
    """What a person may not expect."""
    allowed, loop = record.allowed, record.loop
    if note := too_few(TaskType(loop.type), limits.iterations):
        yield note
    if loop.recalled:
        yield f"lessons of earlier loops are in the prompt: {len(loop.recalled)} (--no-recall leaves them out)"
    if project.root != Path.cwd():
        yield f"agent and checks work in {project.root}, the root of the project"
    for rule, reason in allowed.items():
        yield f"the rule {rule} is lifted: {reason}"
    for label, spec in record.crew.everyone.items():
        can = registry.make(spec).abilities
        if (limits.cost and not can.cost and not can.tokens) or (limits.tokens and not can.tokens):
            yield f"{label} reports neither cost nor tokens: the limits on them cannot hold"
        if spec.without_tools and not can.tool_limits:
            yield f"{label} cannot be kept from using {', '.join(spec.without_tools)}"
        if record.most_steps and not can.step_limit:
            yield f"{label} has no limit of steps: max_steps does not hold for it"


def _allowed(rules: tuple[str, ...], because: str | None) -> dict[str, str]:
    """The rules that a person lifts, each with the reason."""
    known = [rule.value for rule in Rule]
    for rule in rules:
        if rule not in known:
            near = difflib.get_close_matches(rule, known, 1)
            raise UsageError(f"there is no rule {rule!r}", todo=f"known are {', '.join(near or known)}")
    if bool(rules) != bool(because and because.strip()):
        raise UsageError("--allow and --because go together", todo='write --allow RULE --because "the reason"')
    return dict.fromkeys(rules, because or "")


def _refuse_blank(task: str) -> None:
    if not task.strip():
        raise UsageError(
            "the task is empty", todo='say what is to be done: ralph loop "Fix the failing tests" --until ...'
        )


def _seconds(minutes: float | None) -> float | None:
    return None if minutes is None else minutes * 60


def _moment(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text).astimezone()
    except ValueError:
        raise UsageError(f"--deadline {text!r} is no moment", todo="write it like 2026-11-16T07:00") from None
    if moment.timestamp() <= time.time():
        raise UsageError(f"--deadline {text} has passed already", todo="give a moment that is still to come")
    return moment.timestamp()
