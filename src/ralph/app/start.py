"""Start a run: check the request, show what it would do, create it.

`plan_loop`, `plan_session` and `plan_hats` turn what the user asked for into a `NewRun` and write nothing. An interface may show
its `preview_run`, asks for its consent, and enters `open_new_run`, which creates the run and removes it if it cannot begin.
"""

import contextlib
import posixpath
import re
import shlex
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from functools import partial
from pathlib import Path

from ralph.agents import registry
from ralph.agents.adapter import Call
from ralph.app.run_options import JUDGE, find_settings_without_effect
from ralph.app.trust import Consent, find_consent_to_start, refuse_without_consent
from ralph.app.workflows import find_workflow_kind, list_roles
from ralph.core.checks import Rule
from ralph.core.errors import RalphError, StateError, UsageError
from ralph.core.events import Do
from ralph.core.limits import Limits
from ralph.core.text import count
from ralph.core.turns import TurnRequest
from ralph.documents.config import Config
from ralph.documents.run_record import AgentSpec, RunRecord, TreeSettings
from ralph.git import worktree
from ralph.git.command import OWN_DIRECTORIES, Git, find_repository
from ralph.git.programs import remember_programs
from ralph.git.snapshots import Snapshots, identify_project
from ralph.store.files import is_inside, read_limited
from ralph.store.rejected_trees import RejectedTree, hash_content, open_rejected_trees
from ralph.store.runs import Project, RunDir
from ralph.store.settings import user_settings_path
from ralph.verify.changed_files import is_judge_file
from ralph.verify.tree_comparison import find_left_changes
from ralph.verify.verifier import compile_glob
from ralph.workflows.loop.state import Phase, TaskType, warn_if_few_iterations
from ralph.workspace.merger import read_current_branch

_WORD_OF_PATH = re.compile(r"[\w./-]+")
_MAKEFILES = frozenset(("Makefile", "makefile", "GNUmakefile"))
MAX_NAMED_FILES = 5
"""Files of a task that a notice names."""


class WorkLocation(StrEnum):
    """The tree that a run works in."""

    HERE = "here"
    """In the user's own tree."""
    WORKTREE = "worktree"
    """In a worktree of its own."""
    BRANCH = "branch"
    """Its tasks in a worktree each; their work comes together on a branch."""


@dataclass(frozen=True)
class NewRun:
    """A run that is ready to be created. Nothing of it is on disk yet."""

    project: Project
    record: RunRecord
    location: WorkLocation
    notices: tuple[str, ...]
    """What may surprise the user."""
    criteria_typed: tuple[str, ...] = ()
    """The criteria that the user typed: their commands need no further consent."""
    files: tuple[str, ...] = ()
    """The settings and presets that were read."""
    plain_id: bool = False
    """Whether the id is the moment alone, as for sessions."""
    prepare: Callable[[Project, RunDir], Callable[[], None]] | None = None
    """What to do once the run has its directory. Returns what undoes it."""

    def find_consent(self) -> Consent:
        """What the user has to agree to before the run is created."""
        return find_consent_to_start(self.project, self.record, self.criteria_typed, self.files)


@dataclass(frozen=True)
class Preview:
    """What a new run would do."""

    prompt: str
    """The first prompt."""
    agents: dict[str, str]
    """The command of each agent, by label."""
    unpriced: tuple[str, ...]
    """The agents for which a limit on cost does not hold."""


def preview_run(new: NewRun) -> Preview:
    """Show what a new run would do, without starting anything."""
    project, record = new.project, replace(new.record, id=new.record.id or "000000-000000")
    workflow = find_workflow_kind(record.workflow).workflow(record, project.root, None)
    state = workflow.load({})
    if record.workflow == "loop":
        state = replace(state, phase=Phase.ACT, iteration=1)
    first = workflow.decide(state, time.time())
    works = first.work if isinstance(first, Do) else ()
    prompt = next((work.prompt.text for work in works if isinstance(work, TurnRequest)), "")
    agents: dict[str, str] = {}
    for label, spec in record.agents.by_label.items():
        call = Call(
            workspace=project.work_dir,
            model=spec.model,
            arguments=spec.arguments,
            budget=record.limits.cost,
            most_steps=record.most_steps,
            without_tools=spec.without_tools,
            permissions=spec.permissions,
        )
        agents[label] = shlex.join(registry.make_adapter(spec, record.prices).command(call))
    return Preview(prompt, agents, tuple(find_unpriced_agents(project, record)))


def describe_worst_case(record: RunRecord, unpriced: tuple[str, ...]) -> str:
    """What the run may use at most, including a cost that nothing limits."""
    limits, attempts = record.limits, f"each with up to 5 attempts of {_format_minutes(record.turn_limits.wall)}"
    iterations = count(limits.iterations, "iteration") if limits.iterations else "any number of iterations"
    if limits.cost is None:
        money = "no cost limit (pass --max-cost to set one)"
    elif unpriced:
        money = f"no cost limit: Ralph cannot enforce ${limits.cost:g} for {', '.join(unpriced)}"
    else:
        money = f"${limits.cost:g}"
    return f"{iterations}, {attempts}; {money}"


def list_limits(record: RunRecord) -> list[tuple[str, str]]:
    """The limits of a run and of its turns, with units."""
    limits, turn = record.limits, record.turn_limits
    deadline = None if limits.deadline is None else datetime.fromtimestamp(limits.deadline).strftime("%Y-%m-%d %H:%M")
    rows = [
        ("iterations", limits.iterations),
        ("active time", None if limits.active_seconds is None else _format_minutes(limits.active_seconds)),
        ("deadline", deadline),
        ("tokens", limits.tokens),
        ("cost", None if limits.cost is None else f"${limits.cost:g}"),
        ("subscription", None if limits.quota is None else f"{limits.quota:.0%} of an agent's quota"),
        ("one turn", _format_minutes(turn.wall)),
        ("without output", _format_minutes(turn.idle)),
        ("time to stop", f"{turn.grace:g} seconds"),
    ]
    return [(name, "no limit" if value is None else str(value)) for name, value in rows]


def _format_minutes(seconds: float) -> str:
    minutes = seconds / 60
    return "1 minute" if minutes == 1 else f"{minutes:g} minutes"


def describe_place(new: NewRun) -> str:
    """Where a new run would work."""
    if new.location is WorkLocation.HERE:
        return str(new.project.work_dir)
    if new.location is WorkLocation.WORKTREE:
        return f"a worktree in {new.project.root / '.ralph' / 'worktrees'}, on a branch ralph/RUN/run"
    return f"a worktree for each task in {new.project.root / '.ralph' / 'worktrees'}, merged on a branch ralph/RUN/run"


@contextlib.contextmanager
def open_new_run(new: NewRun) -> Iterator[tuple[RunDir, tuple[str, ...]]]:
    """Create a run and yield it with its notices. If it cannot begin, nothing of it is left."""
    # Commands have asked already. The Python API and the web cannot ask.
    refuse_without_consent(new.find_consent())
    run, notices = create_run(new.project, new.record, new.location, plain_id=new.plain_id)
    undo = new.prepare(new.project, run) if new.prepare else None
    try:
        yield run, (*notices, *new.notices)
    except RalphError as error:
        if not (run.path / "journal.jsonl").exists():
            if undo:
                undo()
            remove_failed_run(new.project, run, error)
        raise


def create_run(
    project: Project, record: RunRecord, location: WorkLocation = WorkLocation.HERE, *, plain_id: bool = False
) -> tuple[RunDir, tuple[str, ...]]:
    """Claim an id, make the branch or worktree if the run needs one, and write the record.

    A record that already has an id is of a session that others began. Its run gets the same id.
    """
    refuse_links(project.root)
    try:
        run = project.claim_id(record.id) if record.id else project.claim(datetime.now(), plain=plain_id)
    except RalphError as error:
        _advise_to_start_again(error)
        raise
    record = replace(record, id=run.id)
    notices: tuple[str, ...] = ()
    try:
        _remember_git_programs(project.root)
        if location is WorkLocation.BRANCH and not worktree.can_have_worktrees(project.root):
            location = WorkLocation.HERE
            notices = ("one turn at a time: worktrees need a git repository with a commit",)
        if location is not WorkLocation.HERE:
            _refuse_tracked(project.root, record.tree_settings)
            record = replace(record, onto=read_current_branch(project.root))
        if location is WorkLocation.WORKTREE:
            tree = worktree.ensure_worktree(project.root, run.id)
            notices = tree.notices
            base = Git(tree.path).resolve_commit()
            workspace = str(tree.workspace.relative_to(project.root))
            record = replace(record, workspace=workspace, branch=tree.branch, base=base)
        elif location is WorkLocation.BRANCH:
            branch, base, notices = worktree.create_branch(project.root, run.id)
            record = replace(record, branch=branch, base=base)
        project.create(run, record)
    except BaseException as error:
        remove_failed_run(project, run, error)
        raise
    return run, notices


def _remember_git_programs(root: Path) -> None:
    """Record the filters, drivers and hooks of the repository, before an agent can add others."""
    repository = find_repository(root) if shutil.which("git") else None
    if repository is not None:
        remember_programs(repository.git)


def remove_failed_run(project: Project, run: RunDir, error: BaseException) -> None:
    """Remove a run that could not start, with its unused worktree."""
    with contextlib.suppress(RalphError):
        for tree in worktree.find_worktrees(project.root):
            if tree.run == run.id:
                worktree.remove(tree)
        worktree.delete_run_refs(project.root, run.id)
    project.remove(run)
    if isinstance(error, RalphError):
        _advise_to_start_again(error)


def _advise_to_start_again(error: RalphError) -> None:
    """A run that never started cannot be resumed."""
    error.todo = error.todo.replace("`ralph resume`", "start again")


def _refuse_tracked(root: Path, tree_settings: TreeSettings) -> None:
    """Refuse to copy tracked files. They are in every worktree already, and a copy would overwrite changes to them."""
    for setting, names in (("copy", tree_settings.copy), ("share", tree_settings.share)):
        for name in names:
            if Git(root).with_options(GIT_LITERAL_PATHSPECS="1").run("ls-files", "-z", "--", name).out:
                todo = f"take it out of `workspace.{setting}`: tracked files are in every worktree"
                raise UsageError(f"{name} is tracked by git", where="ralph.yml", todo=todo)


def refuse_links(root: Path) -> None:
    """Refuse links in the place of Ralph's directories: they would lead its state out of the project."""
    for own in OWN_DIRECTORIES:
        place = root / own
        if not place.resolve().is_relative_to(root.resolve()):
            raise StateError("a symbolic link leads out of the project", where=str(place), todo="remove the link")


def check_start(project: Project, config: Config, record: RunRecord) -> list[str]:
    """Refuse a run that cannot work or whose limits Ralph cannot enforce, and list what may surprise the user."""
    if project.inside:
        what = f"this is the worktree of run {project.inside}: no other run can work here"
        raise UsageError(what, where=str(Path.cwd()), todo=f"cd {project.root}")
    notices = [*check_read_only_agents(project, record), *check_cost_limit(project, record, record.limits)]
    if not record.snapshots:
        refuse_rejected_tree(project, record)
    return [*notices, *_list_start_notices(project, config, record)]


def _list_start_notices(project: Project, config: Config, record: RunRecord) -> Iterator[str]:
    if not record.snapshots:
        yield "snapshots are off: changes cannot be undone or compared with the state before the run"
    for_hats = user_settings_path().with_name("ralph.yml")
    if record.workflow != "hats" and for_hats.exists():
        yield f"{for_hats} has no effect here: only runs of hats read it; set its keys in the project's ralph.yml"
    limits, loop = record.limits, record.loop
    if record.workflow == "loop" and (note := warn_if_few_iterations(TaskType(loop.type), limits.iterations)):
        yield note
    if project.work_dir.resolve() != Path.cwd() or project.directory != ".":
        yield f"the agent and the checks work in {project.work_dir}; Ralph's state is in {project.root / '.ralph'}"
    for rule, reason in record.allowed.items():
        yield f"the guard rule {rule} is off: {reason}"
    yield from _describe_may_change(project, record)
    yield from _describe_judge(record)
    yield from find_settings_without_effect(config, record.workflow, list_roles(record))
    yield from _list_instruction_notices(project, record)
    modes = [describe_own_mode(spec, project.workspace(record)) for spec in find_working_agents(record).values()]
    yield from filter(None, dict.fromkeys(modes))
    yield from list_agent_notices(record, limits)


def find_working_agents(record: RunRecord) -> dict[str, AgentSpec]:
    """The agents that can get a turn, by label. `roles` in ralph.yml can also have the roles of other workflows."""
    known = list_roles(record)
    roles = {role: chain for role, chain in record.agents.roles.items() if role in known}
    return replace(record.agents, roles=roles).by_label


def describe_own_mode(spec: AgentSpec, workspace: Path) -> str:
    """What becomes of a safer mode in the agent's own settings; empty if they have none."""
    own = registry.find_own_mode(spec, workspace)
    if own is None:
        return ""
    if spec.permissions == own.level:
        todo = "" if spec.permissions_given else "; `permissions: full-auto` in ralph.yml gives it every permission"
        return (
            f"{spec.name} keeps the mode of your own settings ({own.text}), which is `permissions: {own.level}`{todo}"
        )
    why = "ralph.yml says so" if spec.permissions_given else own.reason
    return f"{spec.name} runs with `permissions: {spec.permissions}`, not with {own.text}: {why}"


_READING_ROLES = ("judge", "reflector", "reviewer")
"""The roles that answer and change no files."""


def check_read_only_agents(project: Project, record: RunRecord) -> list[str]:
    """Refuse an agent that can change no files for a role that must. Return a notice if hats without checks only read."""
    agents, workspace, roles = record.agents, project.workspace(record), list_roles(record)
    if record.hats:
        specs = [spec for role in roles for spec in agents.roles.get(role) or agents.chain]
        if any(registry.can_change_files(spec, workspace) for spec in specs):
            return []
        if record.checks:
            raise registry.refuse_reader(specs[0], registry.find_own_mode(specs[0], workspace))
        return [f"no hat of this run can change a file: {specs[0].label} can only read"]
    writers: list[tuple[str, AgentSpec]] = []
    for role in roles:
        if role in agents.roles and role not in _READING_ROLES:
            writers += [(role, spec) for spec in agents.roles[role]]
        elif role not in _READING_ROLES:
            writers += [("", spec) for spec in agents.chain]
    if agents.escalation:
        writers.append(("", agents.escalation))
    for role, spec in writers:
        if not registry.can_change_files(spec, workspace):
            reading_role = next(one for one in _READING_ROLES if one in roles)
            raise registry.refuse_reader(spec, registry.find_own_mode(spec, workspace), role, reading_role)
    return []


def list_agent_notices(record: RunRecord, limits: Limits) -> Iterator[str]:
    """What the agents of a run cannot do, although its options ask for it."""
    for label, spec in find_working_agents(record).items():
        if missing := registry.find_missing_program(spec):
            yield f"{missing.what}: {missing.todo}"
        agent = registry.make_adapter(spec)
        can = agent.abilities
        if limits.tokens and not can.tokens:
            reports = "may not report" if spec.kind == "acp" else "does not report"
            yield f"{label} {reports} tokens: Ralph cannot enforce --max-tokens"
        if limits.quota and not can.quota:
            yield f"{label} does not report how much of a subscription is used: the limit of {limits.quota:.0%} does not apply"
        if spec.model and not can.model:
            yield f"{label} has no option for the model: `model: {spec.model}` has no effect"
        if spec.without_tools and not can.tool_limits:
            yield f"{label} cannot switch off {', '.join(spec.without_tools)}"
        if record.most_steps and not can.step_limit:
            yield f"{label} has no step limit: max_steps does not apply to it"
        if record.hats and not agent.can_run_ralph(
            Call(Path(), arguments=spec.arguments, permissions=spec.permissions)
        ):
            yield (
                f"{label} may not be able to run `ralph emit` and `ralph tools`: its hats can publish events in their last"
                " message, but not use tasks and memories"
            )


def _describe_may_change(project: Project, record: RunRecord) -> Iterator[str]:
    """Say which tests and settings may change. Suggest it for those that the task names; never assume it."""
    if record.may_change:
        yield f"tests and settings of checks that match {', '.join(record.may_change)} may change"
    allowed = [compile_glob(glob) for glob in record.may_change]
    named = []
    for path in find_named_judge_files(record.task, project.work_dir):
        from_root = posixpath.normpath(f"{project.directory}/{path}")
        if not any(pattern.fullmatch(from_root) for pattern in allowed):
            named.append(path)
    if named and record.checks and record.snapshots:
        options = " ".join(f"--may-change {shlex.quote(path)}" for path in named)
        yield f"the task names files that decide what passes; if the run may change them, add {options}"


def _describe_judge(record: RunRecord) -> Iterator[str]:
    """Say what a judge costs. In a session, the reviewer of the whole judges anyway."""
    if (
        record.workflow not in ("loop", "hats")
        or not record.checks
        or not record.snapshots
        or record.require == "proven"
    ):
        return
    first = (record.agents.roles.get(JUDGE) or record.agents.chain)[0]
    cost = "one more turn, which counts toward the limits"
    if record.require == "judged":
        yield f"whenever the checks pass, a judge ({first.label}) looks at the work in {cost}"
    else:
        yield f"if tests or settings change, a judge ({first.label}) looks at them in {cost} (--require proven: no judge)"


def find_named_judge_files(task: str, directory: Path) -> list[str]:
    """The tests and settings of checks that a task names by their paths, relative to the directory."""
    words = dict.fromkeys(word.strip(".") for word in _WORD_OF_PATH.findall(task))
    # The system refuses paths that are much longer.
    paths = [word for word in words if len(word) < 256 and ("." in word or "/" in word or word in _MAKEFILES)]
    named = [path for path in paths if is_judge_file(path) and (directory / path).is_file()]
    return named[:MAX_NAMED_FILES]


def refuse_rejected_tree(project: Project, record: RunRecord) -> None:
    """Refuse to judge a rejected tree without snapshots: nothing could be compared."""
    workspace = project.workspace(record)
    for rejected in _find_rejected_trees(project, workspace):
        rules = sorted({finding.rule for finding in rejected.findings} - record.allowed.keys())
        if rules:
            allow = " ".join(f"--allow {rule}=REASON" for rule in rules)
            raise UsageError(
                f"run {rejected.run} had guard findings that are still in this tree, "
                "and Ralph cannot compare them without snapshots",
                where=", ".join(sorted(rejected.files)),
                todo=f"omit --no-snapshots, undo the change, or pass {allow}",
            )
    if Rule.VERIFIER_EDITED not in record.allowed:
        _refuse_unjudged_tree(project, workspace)


def _refuse_unjudged_tree(project: Project, workspace: Path) -> None:
    """Refuse a tree in which an earlier run changed judge files and was never judged: these would become the baseline."""
    if not shutil.which("git"):
        return
    own = open_rejected_trees(project.root)
    unjudged = list(own.list_unjudged())
    for copy in own.find_copies(partial(identify_project, project.root, workspace)):
        moved = (one.move(copy.root, own.root) for one in copy.list_unjudged())
        unjudged += [one for one in moved if (project.runs_dir / one.run).is_dir()]
    for one in unjudged:
        with tempfile.TemporaryDirectory() as home:
            snapshots = Snapshots.open(project.root, workspace, one.run, Path(home))
            run, now = RunDir(project.runs_dir / one.run), snapshots.tree_now()
            left = find_left_changes(one, run, snapshots=snapshots, workspace=workspace, now=now)
        files = [path for path in left.files if is_judge_file(path)] if left else []
        if left and (files or left.findings):
            raise UsageError(
                f"run {one.run} ended before its changes were verified, and Ralph cannot compare them without snapshots",
                where=", ".join(sorted(files)) or str(workspace),
                todo=f"omit --no-snapshots, undo the change, or pass --allow {Rule.VERIFIER_EDITED}=REASON",
            )


def _find_rejected_trees(project: Project, workspace: Path) -> Iterator[RejectedTree]:
    """The rejected trees, here or in a copy of the project, that this one still has files of."""
    own = open_rejected_trees(project.root)
    repository = find_repository(workspace) if shutil.which("git") else None
    # The paths in a record begin at the top of the repository, if there is one.
    top = repository.top if repository else workspace
    for rejected in own.all():
        if _find_same_files(top, rejected):
            yield rejected
    if not shutil.which("git"):
        return
    for copy in own.find_copies(partial(identify_project, project.root, workspace)):
        for rejected in copy.all():
            same = _find_same_files(top, rejected)
            is_clone = same == rejected.files.keys() and any(rejected.files.values())
            if is_clone or (same and (project.runs_dir / rejected.run).is_dir()):
                yield rejected


def _find_same_files(top: Path, rejected: RejectedTree) -> set[str]:
    """The files that are what they were when the guards rejected them."""
    same = set()
    for path, was in rejected.files.items():
        try:
            data: bytes | None = read_limited(top / path, follow=True)
        except (OSError, RalphError):
            data = None
        if hash_content(data) == was:
            same.add(path)
    return same


def _list_instruction_notices(project: Project, record: RunRecord) -> Iterator[str]:
    """Which agents do not read the project's instructions by themselves, and whether their prompts contain them."""
    workspace = project.workspace(record)
    for name in record.instructions:
        if not (workspace / name).is_file():
            yield f"`instructions` in ralph.yml names {name}, which is not a file in {workspace}"
        elif not (is_inside(workspace / name, project.root) or is_inside(workspace / name, workspace)):
            yield f"{name} is a link that leads out of the project: agents do not get it in their prompts"
    present = [name for name in record.instructions or ("AGENTS.md",) if (workspace / name).is_file()]
    specs = find_working_agents(record)
    agents = {label: registry.make_adapter(spec) for label, spec in specs.items()}
    for name in present:
        unaware = [label for label, agent in agents.items() if not agent.reads_instructions(name, workspace)]
        if not unaware:
            continue
        if record.instructions:
            yield f"agents that do not read {name} by themselves get it in their prompts: {', '.join(unaware)}"
        elif all(specs[label].kind in registry.ADAPTERS for label in unaware):
            todo = f"`instructions: [{name}]` in ralph.yml puts it into their prompts"
            yield f"agents that do not read {name} by themselves: {', '.join(unaware)}; {todo}"


def check_cost_limit(project: Project, record: RunRecord, limits: Limits) -> list[str]:
    """Refuse a cost limit that Ralph cannot enforce. If the user allows that, return a notice for each agent."""
    notices: list[str] = []
    if limits.cost is None:
        return notices
    for label, unknown in find_unpriced_agents(project, record).items():
        if not limits.allow_unpriced:
            what = f"the cost limit of ${limits.cost:g} cannot be enforced: {unknown.reason}"
            raise UsageError(what, where=label, todo=f"{unknown.todo}, or pass --allow-unpriced")
        limit = f"the limit of ${limits.cost:g} for {label}"
        notices.append(f"cost unknown: {unknown.reason}; Ralph cannot enforce {limit}")
    return notices


def find_unpriced_agents(project: Project, record: RunRecord) -> dict[str, registry.UnknownCost]:
    """The agents whose cost cannot be known, by label."""
    found: dict[str, registry.UnknownCost] = {}
    first = record.agents.chain[0].label
    for label, spec in find_working_agents(record).items():
        if unknown := registry.unknown_cost(spec, record.prices, project.workspace(record), is_first=label == first):
            found[label] = unknown
    return found
