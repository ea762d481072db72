"""`run.json`: what a run was started with. Written once; what changes is in the journal."""

from collections.abc import Mapping
from dataclasses import field

from ralph.core.checks import Check
from ralph.core.codec import dump, former_name, from_plain, read_json, to_plain
from ralph.core.errors import StateError
from ralph.core.limits import Limits
from ralph.core.values import value
from ralph.documents.hats.definition import HatsSettings

SCHEMA = 1


@value
class AgentSpec:
    """Which agent does the turns, and how it is started."""

    kind: str
    """The name of an agent that Ralph knows, `scripted`, `acp`, or `command` for any program."""
    command: tuple[str, ...] = ()
    """The command of any program. For a known agent only its program, if it is not the usual one."""
    scenario: str = ""
    """The scenario file of the scripted agent, as an absolute path."""
    model: str = ""
    arguments: tuple[str, ...] = ()
    """Further arguments for its program."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Further variables for its environment; never secrets, for this is written down."""
    without_tools: tuple[str, ...] = ()
    permissions: str = "full-auto"
    """What it may do without being asked: `full-auto`, `edits`, `read-only` or `plan`."""
    permissions_given: bool = False
    """Whether ralph.yml names this level. If not, a safer mode in the agent's own settings counts."""
    takes_model: bool = True
    """Whether it has an option for the model. If not, `model` has no effect."""

    @property
    def name(self) -> str:
        """The name of its program."""
        return " ".join(self.command) if self.kind in ("command", "acp") else self.kind

    @property
    def label(self) -> str:
        """Its name for the user and in the journal."""
        details = [self.model] if self.model and self.takes_model else []
        if self.permissions != "full-auto":
            details.append(self.permissions)
        return f"{self.name} ({', '.join(details)})" if details else self.name


@value
class AgentSelection:
    """Who does the turns: the agents in the order in which they are preferred, for all roles or for one."""

    chain: tuple[AgentSpec, ...]
    roles: Mapping[str, tuple[AgentSpec, ...]] = field(default_factory=dict)
    escalation: AgentSpec | None = None
    """The agent that takes over if others fail."""
    escalate_after: int = 2
    """How many failures in a row bring in the escalation agent."""

    @property
    def by_label(self) -> dict[str, AgentSpec]:
        """All agents by their labels."""
        specs = list(self.chain)
        for chain in self.roles.values():
            specs += chain
        if self.escalation:
            specs.append(self.escalation)
        return {spec.label: spec for spec in specs}


@value
class TurnLimits:
    """What one turn may take."""

    wall: float = 3600.0
    is_wall_set: bool = False
    """Whether the user set `wall`. If not, the longer limit that a session has for an attempt at a task applies."""
    idle: float = 900.0
    grace: float = 5.0


@value
class SlotLimits:
    """How many turns may run at once."""

    run: int = 3
    """Of this run."""
    machine: int | None = None
    """Of all runs of this user on the machine; None if the machine decides."""
    agents: Mapping[str, int] = field(default_factory=dict)
    """Of an agent, by its name, in all runs."""


@value
class TreeSettings:
    """How the worktrees of tasks are set up."""

    setup: tuple[str, ...] = ()
    """Commands that make a new worktree ready to work in."""
    copy: tuple[str, ...] = ()
    """Untracked files that are copied into it."""
    share: tuple[str, ...] = ()
    """Untracked directories of the main tree that it has links to, such as caches."""
    most_bytes: int | None = None
    """What all worktrees of the project may take up."""
    setup_seconds: float = 1800.0


@value
class RoomSettings:
    """What a clean room needs for the checks."""

    setup: tuple[str, ...] = ()
    """Commands that prepare it, if it does not reproduce the baseline or the run changed ignored files."""
    keep: tuple[str, ...] = ()
    """Ignored files that it has as they were before the run."""
    services: tuple[str, ...] = ()
    """Commands that run beside each check."""
    setup_seconds: float = 1800.0


@value
class PoolSpec:
    """Where the turns of a run are done."""

    kind: str = "local"
    """`local`: on this machine; `ray`: on a Ray cluster."""
    address: str = "auto"
    """Of the cluster: `HOST:PORT`, or `auto` for the one that this machine belongs to."""
    namespace: str = "ralph"
    resources: Mapping[str, float] = field(default_factory=dict)
    """What one turn uses of a worker: `cpu`, `memory` in GiB, and resources by the cluster's own names."""
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The labels that a worker must have, by role, hat or task; `*` for all turns."""


@value
class LoopRunSettings:
    """What a loop was asked for beside its task and its criterion."""

    type: str = "general"
    scope: tuple[str, ...] = ()
    """Patterns of the files that may be changed; empty where all may."""
    confirm: int = 1
    """How often in a row the checks must pass on the same tree."""
    on_stuck: str = "stop"
    reflector: bool = False
    """Whether a turn of its own reflects on every failed iteration."""
    commit: bool = False
    """Whether every iteration is committed."""
    recall: bool = True
    """Whether prompts have what earlier loops learned about such failures."""
    inputs: Mapping[str, str] = field(default_factory=dict)
    """The hashes of files that the checks use and no snapshot holds."""


@value
class SessionRunSettings:
    """What a session was asked for beside its request."""

    by_waves: bool = False
    """Whether a wave is finished before the next begins; else a task begins when what it depends on is merged."""
    skills: tuple[str, ...] = ()
    """Directories with skills that agents may use."""


@value
class RunRecord:
    """The settings of a run, frozen when it was created."""

    id: str
    workflow: str
    task: str
    criterion: str
    checks: tuple[Check, ...]
    agents: AgentSelection = field(metadata=former_name("crew"))
    created_at: float
    workspace: str = "."
    """The tree of files that the run works on, relative to the root: the root itself, or a worktree."""
    directory: str = "."
    """The directory below the root, and below the top of a worktree, in which turns and checks run."""
    branch: str = ""
    """The branch that collects the work of the run, if it has its own branch."""
    limits: Limits = field(default_factory=Limits)
    turn_limits: TurnLimits = field(default_factory=TurnLimits)
    check_seconds: float = 600.0
    """After which a check is ended."""
    snapshots: bool = True
    allowed: Mapping[str, str] = field(default_factory=dict)
    """Rules of the guards that the user lifted for this run, with the reason."""
    may_change: tuple[str, ...] = ()
    """Patterns of judge files that the user lets the run change."""
    accepted: Mapping[str, str] = field(default_factory=dict)
    """Snapshots that the user accepted although Ralph could not prove them, with who, when and why."""
    clean_room: bool = True
    """Whether a success must be confirmed in a clean room."""
    room: RoomSettings = RoomSettings()
    require: str = "auto"
    """The grade that a success needs: `auto`, `proven` or `judged`."""
    push: bool = False
    """Whether agents may push to remote repositories."""
    instructions: tuple[str, ...] = ()
    """Files of the project that the prompts of agents contain that do not read them by themselves."""
    most_steps: int | None = None
    """How often an agent may call its model in one turn, if the agent can be limited."""
    prices: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """US dollars per million tokens by model (in, cached, out), if the user sets them."""
    sandbox: str = "off"
    """How its agents and checks are isolated: `auto`, `off`, `write`, `strict` or `require`."""
    land: str = "branch"
    """Where the work of its branch goes on success: `ff` onto the user's branch, `push`, or it stays on its `branch`."""
    base: str = ""
    """The commit that its branch began at."""
    onto: str = ""
    """The full name of the branch that the user was on; empty if they were on none."""
    slots: SlotLimits = field(default_factory=SlotLimits)
    pool: PoolSpec = field(default_factory=PoolSpec)
    tree_settings: TreeSettings = field(default_factory=TreeSettings, metadata=former_name("trees"))
    loop: LoopRunSettings = field(default_factory=LoopRunSettings)
    session: SessionRunSettings = field(default_factory=SessionRunSettings)
    hats: HatsSettings | None = None
    by: str = ""
    """Who started it, if it was not started in a terminal or by a program of the user."""
    schema: int = SCHEMA

    @property
    def on_branch(self) -> bool:
        """Whether only its tasks have worktrees: it never writes into the user's tree, and has none of its own."""
        return bool(self.branch) and self.workspace == "."


def render_record(record: RunRecord) -> str:
    """The file's text."""
    fields = {"schema": record.schema, **to_plain(record)}
    return "{\n" + ",\n".join(f"  {dump(key)}: {dump(value)}" for key, value in fields.items()) + "\n}\n"


def parse_record(text: str, where: str) -> RunRecord:
    """The record in a file; one from another version is refused by name."""
    return from_plain(RunRecord, require_schema(read_json(text, where, _CLEAN), SCHEMA, where), where)


def require_schema(data: object, known: int, where: str) -> Mapping[str, object]:
    """The object, if its schema version is one that this Ralph reads."""
    if not isinstance(data, dict):
        raise StateError("the file does not contain a JSON object", where=where, todo=_CLEAN)
    version = data.get("schema")
    if version != known:
        raise StateError(
            f"the file has schema version {version!r}; this Ralph reads version {known}",
            where=where,
            todo="use the version of ralph-engine that wrote it" if version else _CLEAN,
        )
    return data


_CLEAN = "restore the file from a backup, or remove the run with `ralph clean RUN`"
