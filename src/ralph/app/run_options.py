"""Build the record of a new run from options, which win, and settings. Every workflow is built here, by the same rules."""

import difflib
import math
import os
import shlex
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from ralph.agents import registry
from ralph.app.sandbox import find_asked_level
from ralph.app.workflows import ROLES
from ralph.core.checks import Check, Rule
from ralph.core.errors import UsageError
from ralph.core.ids import SESSION_WORKFLOWS
from ralph.core.limits import Limits
from ralph.documents.config import Config, SlotSettings, WorkspaceSettings, explain_share, parse_share
from ralph.documents.hats.definition import HatsSettings
from ralph.documents.run_record import (
    AgentSelection,
    AgentSpec,
    LoopRunSettings,
    PoolSpec,
    RoomSettings,
    RunRecord,
    SessionRunSettings,
    SlotLimits,
    TreeSettings,
    TurnLimits,
)
from ralph.store.runs import Project
from ralph.store.settings import load_user_settings
from ralph.workspace.cluster_client import require_ray

N = TypeVar("N", int, float)
JUDGE = "judge"
"""The role that judges changed tests and settings."""


@dataclass(frozen=True)
class RunOptions:
    """The options of every workflow. If a field is None, empty or False, the settings decide."""

    agents: tuple[str, ...] = ()
    model: str = ""
    agent_args: tuple[str, ...] = ()
    no_sub_agents: bool = False
    agent_acp: str | None = None
    agent_command: str | None = None
    scenario: str | None = None
    max_iterations: int | None = None
    timeout: float | None = None
    deadline: str | None = None
    max_cost: float | None = None
    allow_unpriced: bool = False
    max_tokens: int | None = None
    max_quota: str | None = None
    turn_timeout: float | None = None
    idle_timeout: float | None = None
    check_timeout: float | None = None
    parallel: int | None = None
    allow: tuple[str, ...] = ()
    may_change: tuple[str, ...] = ()
    no_clean_room: bool = False
    require: str | None = None
    judge: str | None = None
    worktree: bool = False
    land: str | None = None
    no_snapshots: bool = False
    sandbox: str | None = None
    pool: str | None = None
    dry_run: bool = False
    """Only show the run: its agents need not be installed."""
    cwd: Path | None = None
    """The directory from which the user names files; None for the current one."""

    @property
    def name_an_agent(self) -> bool:
        """Whether they choose the agent, so that the settings do not."""
        others = (self.agent_acp, self.agent_command, self.scenario)
        return bool(self.agents) or any(value is not None for value in others)


def build_record(
    *,
    workflow: str,
    task: str,
    config: Config,
    options: RunOptions,
    agents: AgentSelection,
    id: str = "",
    criterion: str = "",
    checks: tuple[Check, ...] = (),
    loop: LoopRunSettings | None = None,
    session: SessionRunSettings | None = None,
    hats: HatsSettings | None = None,
    project: Project,
) -> RunRecord:
    """Build the record of a run: the common settings from options and settings, and what its workflow adds.

    Patterns begin in the directory in which the user stands.
    """
    usual_land = "ff" if workflow in SESSION_WORKFLOWS else "branch"
    return RunRecord(
        id=id,
        workflow=workflow,
        task=task,
        criterion=criterion,
        checks=checks,
        agents=agents,
        created_at=time.time(),
        limits=build_limits(workflow, config, options),
        turn_limits=TurnLimits(
            wall=60 * (require_positive("--turn-timeout", options.turn_timeout, config.turn.minutes) or 0),
            is_wall_set=options.turn_timeout is not None or "minutes" in config.turn.model_fields_set,
            idle=60 * (require_positive("--idle-timeout", options.idle_timeout, config.turn.idle_minutes) or 0),
            grace=config.turn.grace_seconds,
        ),
        check_seconds=check_seconds(config, options),
        snapshots=config.snapshots and not options.no_snapshots,
        allowed=parse_allowed_rules(options.allow),
        may_change=parse_globs("--may-change", options.may_change, project.directory),
        clean_room=load_user_settings().clean_room and not options.no_clean_room,
        require=options.require or ("judged" if options.judge else load_user_settings().require),
        push=config.push,
        instructions=config.instructions,
        most_steps=config.max_steps,
        prices=config.prices,
        sandbox=find_asked_level(options.sandbox),
        pool=choose_pool(options.pool, dry_run=options.dry_run),
        land=options.land or config.land or usual_land,
        slots=_read_slot_limits(config.slots, require_positive("--parallel", options.parallel, None)),
        tree_settings=_read_tree_settings(config.workspace, project),
        room=_read_room_settings(config, project),
        directory=project.directory,
        loop=loop or LoopRunSettings(),
        session=session or SessionRunSettings(),
        hats=hats,
    )


def choose_pool(option: str | None, *, dry_run: bool = False) -> PoolSpec:
    """Where the turns run: by `--pool`, or by the user's own settings. A repository has no say.

    The option is `local`, `ray`, or the address of a Ray cluster.
    """
    settings = load_user_settings().pool
    kind: str = settings.kind
    address = settings.address
    if option in ("local", "ray"):
        kind = option
    elif option:
        host, _, port = option.removeprefix("ray://").rpartition(":")
        if not host or not port.isdigit():
            todo = "use `local`, `ray`, or the address of a cluster: `--pool 10.0.0.5:6379`"
            raise UsageError(f"--pool {option} is not a pool", todo=todo)
        kind, address = "ray", option
    if kind == "local":
        return PoolSpec()
    if not dry_run:
        require_ray()
    return PoolSpec(
        kind=kind,
        address=address,
        namespace=settings.namespace,
        resources=settings.resources,
        labels=settings.labels,
    )


def build_limits(workflow: str, config: Config, options: RunOptions) -> Limits:
    """What a run may spend.

    Feedback of the user starts an iteration of a session, and a session takes as long as its plan. So only limits that the
    user set apply to it.
    """
    settings = config.limits
    minutes = settings.minutes
    if workflow in SESSION_WORKFLOWS:
        if options.max_iterations is not None:
            raise UsageError(
                "--max-iterations is not for sessions: your feedback starts each iteration",
                todo="limit it with --timeout, --deadline, --max-cost or --max-tokens",
            )
        minutes = minutes if "minutes" in settings.model_fields_set else None
    minutes = require_positive("--timeout", options.timeout, minutes)
    iterations = require_positive("--max-iterations", options.max_iterations, settings.iterations)
    return Limits(
        iterations=None if workflow in SESSION_WORKFLOWS else iterations,
        active_seconds=None if minutes is None else minutes * 60,
        deadline=parse_deadline(options.deadline),
        tokens=require_positive("--max-tokens", options.max_tokens, settings.tokens),
        cost=require_positive("--max-cost", options.max_cost, settings.cost),
        allow_unpriced=options.allow_unpriced or settings.allow_unpriced,
        quota=settings.quota if options.max_quota is None else read_share(options.max_quota),
    )


def read_share(text: str) -> float:
    """The share of a subscription that `--max-quota` names."""
    share = parse_share(text)
    if share is None:
        raise UsageError(f"--max-quota {text} is not a share of a subscription", todo=explain_share(text))
    return share


def check_seconds(config: Config, options: RunOptions) -> float:
    """The seconds after which a check is ended."""
    return require_positive("--check-timeout", options.check_timeout, config.check_timeout) or 0


def require_positive(name: str, given: N | None, default: N | None) -> N | None:
    """An option's value, or the default. Zero and less are refused."""
    if given is None:
        return default
    if not 0 < given < math.inf:
        raise UsageError(f"{name} {given} is not a valid limit", todo=f"use a number above 0, or omit {name}")
    return given


def parse_globs(option: str, globs: tuple[str, ...], directory: str) -> tuple[str, ...]:
    """The patterns of an option, from the root. One that could never match is refused."""
    for glob in globs:
        if not glob.strip() or glob.startswith("/") or ".." in glob.split("/"):
            todo = "write it like 'tests/**' or '*.py'"
            raise UsageError(f"{option} {glob!r} is not a pattern for files in this project", todo=todo)
    return tuple(rebase_glob(glob, directory) for glob in globs)


def rebase_glob(glob: str, directory: str) -> str:
    """A pattern for files below a directory, as a pattern from the root."""
    if directory == ".":
        return glob
    is_for_any_depth = "/" not in glob.removeprefix("./").rstrip("/")
    return f"{directory}/**/{glob}" if is_for_any_depth else f"{directory}/{glob.removeprefix('./')}"


def build_agent_selection(project: Project, config: Config, options: RunOptions) -> AgentSelection:
    """Choose the agents. A scenario of the settings is looked for beside them, one of an option in this directory."""
    cwd = (options.cwd or Path.cwd()) if options.name_an_agent else project.settings_dir
    # On a cluster, the workers have the agents, and this machine need not.
    must_be_installed = not options.dry_run and choose_pool(options.pool, dry_run=True).kind == "local"
    selection = registry.select_agents(
        config,
        names=options.agents,
        command=options.agent_command,
        scenario_file=options.scenario,
        cwd=cwd,
        acp=options.agent_acp,
        must_be_installed=must_be_installed,
    )
    if options.judge:
        judge = registry.select_agents(
            config,
            names=(options.judge,),
            command=None,
            scenario_file=None,
            cwd=cwd,
            must_be_installed=must_be_installed,
        ).chain
        selection = replace(selection, roles={**selection.roles, JUDGE: judge})
    elif JUDGE not in selection.roles and len(selection.chain) > 1:
        # A judge should not be the agent whose work it judges.
        selection = replace(selection, roles={**selection.roles, JUDGE: selection.chain[1:]})
    without = ("sub-agents",) if options.no_sub_agents else ()

    def limit_tools(spec: AgentSpec) -> AgentSpec:
        command = spec.command
        if cwd.resolve() != project.root.resolve() or project.directory != ".":
            command = tuple(_make_absolute_if_file(word, cwd) for word in command)
        spec = replace(spec, command=command, without_tools=tuple(dict.fromkeys((*spec.without_tools, *without))))
        spec = replace(spec, takes_model=registry.make_adapter(spec).abilities.model)
        return registry.keep_own_mode(spec, project.work_dir)

    first, *rest = selection.chain
    first = replace(first, arguments=(*first.arguments, *options.agent_args))
    if options.model:
        first = registry.choose_model(first, options.model)
    return replace(
        selection,
        chain=tuple(limit_tools(spec) for spec in (first, *rest)),
        roles={role: tuple(limit_tools(spec) for spec in order) for role, order in selection.roles.items()},
        escalation=limit_tools(selection.escalation) if selection.escalation else None,
    )


def _make_absolute_if_file(word: str, base: Path) -> str:
    """A word of a command that names a file by its relative path, by its absolute path: the agent starts elsewhere."""
    is_file = os.sep in word or "." in word
    return str((base / word).resolve()) if is_file and (base / word).is_file() else word


def refuse_landing(options: RunOptions, *, on_own_branch: bool) -> None:
    """Refuse --land for a run that has no branch of its own to land."""
    if options.land and not on_own_branch:
        raise UsageError("--land needs a branch to land", todo="add --worktree")


def refuse_judge(options: RunOptions, *, has_checks: bool, kind: str) -> None:
    """Refuse options about the judge if nothing is judged. `kind` is what the user starts: a run or a session."""
    is_demanded = options.require not in (None, "auto")
    if (options.judge or is_demanded) and not has_checks:
        named = f"--require {options.require}" if is_demanded else "--judge"
        what = f"{named} has no effect on a {kind} without checks"
        raise UsageError(what, todo="add --check '`COMMAND` passes', or omit the option")


def find_settings_without_effect(config: Config, workflow: str, roles: tuple[str, ...]) -> Iterator[str]:
    """Say which settings that the user wrote have no effect in this workflow, or in any. `roles` are those of its turns."""
    if workflow in SESSION_WORKFLOWS and "iterations" in config.limits.model_fields_set:
        yield "`limits.iterations` has no effect in a session: your feedback starts each iteration"
    of_other_workflows = {role for others in ROLES.values() for role in others}
    for role in config.roles:
        if role not in roles and role not in of_other_workflows:
            near = difflib.get_close_matches(role, roles, 1)
            guess = f"did you mean `{near[0]}`?" if near else f"known values: {', '.join(sorted(roles))}"
            yield f"`roles.{role}` has no effect: no turn has this role; {guess}"


def _read_slot_limits(settings: SlotSettings, run: int | None) -> SlotLimits:
    return SlotLimits(run=run or settings.run, machine=settings.machine, agents=settings.agents)


def _read_tree_settings(settings: WorkspaceSettings, project: Project) -> TreeSettings:
    """How worktrees are set up. Paths and commands of settings below the root are meant in the directory of the settings."""
    base = project.settings_dir.relative_to(project.root)
    most = None if settings.disk_gib is None else int(settings.disk_gib * (1 << 30))
    return TreeSettings(
        setup=_run_in(base, settings.setup),
        copy=tuple((base / name).as_posix() for name in settings.copy_files),
        share=tuple((base / name).as_posix() for name in settings.share),
        most_bytes=most,
        setup_seconds=settings.setup_minutes * 60,
    )


def _read_room_settings(config: Config, project: Project) -> RoomSettings:
    """What a clean room needs: its own settings, or else those of worktrees."""
    base = project.settings_dir.relative_to(project.root)
    settings = config.clean_room
    keep = dict.fromkeys((*settings.keep, *config.workspace.copy_files))
    return RoomSettings(
        setup=_run_in(base, settings.setup or config.workspace.setup),
        keep=tuple((base / name).as_posix() for name in keep),
        services=_run_in(base, settings.services),
        setup_seconds=settings.timeout or config.workspace.setup_minutes * 60,
    )


def _run_in(directory: Path, commands: Sequence[str]) -> tuple[str, ...]:
    """The commands, each in a directory below the root."""
    if not directory.parts:
        return tuple(commands)
    return tuple(f"cd {shlex.quote(directory.as_posix())} && {command}" for command in commands)


def parse_allowed_rules(given: tuple[str, ...]) -> dict[str, str]:
    """The guard rules that the user switches off, each with the reason: `RULE=REASON`."""
    known = [rule.value for rule in Rule]
    allowed: dict[str, str] = {}
    for text in given:
        rule, _, reason = (part.strip() for part in text.partition("="))
        if rule not in known:
            near = difflib.get_close_matches(rule, known, 1)
            raise UsageError(f"there is no rule {rule!r}", todo=f"the rules are {', '.join(near or known)}")
        if not reason:
            raise UsageError(f"--allow {rule} gives no reason", todo=f"write --allow '{rule}=the reason'")
        allowed[rule] = reason
    return allowed


def parse_deadline(text: str | None) -> float | None:
    """The time of `--deadline`. One in the past is refused."""
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text).astimezone()
    except ValueError:
        raise UsageError(f"--deadline {text!r} is not a date and time", todo="write it like 2026-11-16T07:00") from None
    if moment.timestamp() <= time.time():
        raise UsageError(f"--deadline {text} is in the past", todo="use a later time")
    return moment.timestamp()
