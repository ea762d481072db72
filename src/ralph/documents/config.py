"""`ralph.yml`: the project's own settings. Options on the command line win over it."""

import contextlib
import difflib
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_core import PydanticCustomError

from ralph.core.errors import UsageError
from ralph.documents.faults import explain_fault
from ralph.documents.yaml_codec import YamlDocument, YamlError, YamlRules, load_mapping

SIZE_LIMIT = 1024 * 1024
_RULES = YamlRules(most_levels=50, size_limit=SIZE_LIMIT, allow_aliases=True, allow_repeated_keys=False)


def parse_share(value: object) -> float | None:
    """A percentage such as `80%`, or a number such as 80 or 0.8, as a share from 0 to 1; None if it is not one.

    The number 1 could mean 1% or 100%, so it is none.
    """
    text = str(value).strip()
    try:
        number = float(text.removesuffix("%"))
    except ValueError:
        return None
    if isinstance(value, bool) or (number == 1 and not text.endswith("%")):
        return None
    share = number if number < 1 and not text.endswith("%") else number / 100
    return share if 0 < share <= 1 else None


def explain_share(value: object) -> str:
    """What to write instead of a value that is not a share."""
    text = str(value).strip()
    with contextlib.suppress(ValueError):
        number = float(text.removesuffix("%"))
        if number == 1:
            return "write 1% or 100%"
        if number == 0:
            return "with 0%, no agent could work: write 1% or more, or leave the limit out"
    return "write a percentage from 1% to 100%, for example 80%"


def require_inside(names: tuple[str, ...]) -> tuple[str, ...]:
    """The names, if all of them are paths inside the project."""
    for name in names:
        if not name.strip() or name.startswith(("/", "~")) or ".." in name.split("/"):
            raise PydanticCustomError("outside", "{name} is not a path inside the project", {"name": repr(name)})
    return names


class SettingsSection(BaseModel):
    """Settings that belong together."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class AgentSettings(SettingsSection):
    """One agent, and how it is started."""

    agent: str | None = Field(
        default=None, description="name of the agent, for example `claude`; docs/agents.md lists all"
    )
    acp: str = Field(
        default="",
        description="instead of a name: the command of any agent that speaks the Agent Client Protocol, `opencode acp`",
    )
    model: str = Field(default="", description="model, by the agent's own name for it")
    args: tuple[str, ...] = Field(default=(), description="additional arguments for the program")
    env: dict[str, str] = Field(default={}, description="additional environment variables; no secrets")
    program: str = Field(default="", description="program to start if it is not on the PATH")
    without_tools: tuple[str, ...] = Field(
        default=(),
        description="tools that the agent cannot use, by its own names; `sub-agents` stands for starting other agents",
    )
    permissions: Literal["full-auto", "edits", "read-only", "plan"] | None = Field(
        default=None,
        description="what the agent can do without asking: everything (`full-auto`, the default), change files (`edits`),"
        " `read-only`, or only make a `plan`; refused for an agent that has no such mode",
    )

    @model_validator(mode="after")
    def _one_agent(self) -> "AgentSettings":
        if self.acp and (self.agent or self.program):
            other = "agent" if self.agent else "program"
            raise PydanticCustomError("exclusive", "`acp` and `{other}` cannot be used together", {"other": other})
        return self


class EscalationSettings(AgentSettings):
    """The agent that takes over if the usual agent makes no progress."""

    after: int = Field(
        default=2, ge=1, description="iterations without progress, or failed attempts, before it takes over"
    )


class LimitSettings(SettingsSection):
    """What a run may spend."""

    iterations: int | None = Field(
        default=10,
        ge=1,
        description="maximum number of iterations of a loop or a run of hats; a session has one iteration for each feedback",
    )
    minutes: float | None = Field(
        default=60,
        gt=0,
        description="maximum active time of a run, in minutes; a session has no limit unless you set one",
    )
    cost: float | None = Field(default=None, gt=0, description="maximum cost of a run, in US dollars")
    allow_unpriced: bool = Field(
        default=False, description="start a run with a cost limit even if an agent's cost is unknown"
    )
    tokens: int | None = Field(default=None, ge=1, description="maximum number of tokens of a run")
    quota: float | None = Field(
        default=None,
        description="share of an agent's subscription, for example `80%`: a run stops using an agent that reports more",
    )

    @field_validator("quota", mode="before", json_schema_input_type=float | str | None)
    @classmethod
    def _share(cls, value: Any) -> Any:
        """A percentage as a share."""
        share = None if value is None else parse_share(value)
        if value is not None and share is None:
            raise PydanticCustomError(
                "share",
                "{value} is not a share of a subscription; {todo}",
                {"value": repr(value), "todo": explain_share(value)},
            )
        return share


class TurnSettings(SettingsSection):
    """What one turn may take."""

    minutes: float = Field(default=60, gt=0, description="maximum duration of a turn, in minutes")
    idle_minutes: float = Field(default=15, gt=0, description="maximum time without output in a turn, in minutes")
    grace_seconds: float = Field(
        default=5, ge=0, description="seconds between SIGTERM and SIGKILL when Ralph ends a turn"
    )


class LoopSettings(SettingsSection):
    """How a loop works."""

    confirm: int = Field(
        default=1, ge=1, le=20, description="how many times in a row the checks must pass on the same tree"
    )
    on_stuck: Literal["stop", "ask", "continue"] = Field(
        default="stop", description="what to do when the loop is stuck: `stop`, `ask` or `continue`"
    )
    reflector: bool = Field(default=False, description="run a separate turn that reflects on every failed iteration")
    commit: bool = Field(default=False, description="commit every iteration")
    recall: bool = Field(default=True, description="put lessons of earlier loops into prompts")


class SessionDefaults(SettingsSection):
    """How sessions go, unless their instructions say otherwise."""

    waves: bool = Field(default=False, description="finish one wave of tasks before the next begins")
    skills: tuple[str, ...] = Field(
        default=("~/.copilot/skills", ".claude/skills"), description="directories with skills to mention in prompts"
    )


class WorkspaceSettings(SettingsSection):
    """How worktrees are set up."""

    model_config = ConfigDict(populate_by_name=True)

    setup: tuple[str, ...] = Field(default=(), description="commands that set up a new worktree, for example `npm ci`")
    copy_files: tuple[str, ...] = Field(
        default=(), alias="copy", description="untracked files to copy into a worktree, for example `.env`"
    )
    share: tuple[str, ...] = Field(
        default=(), description="untracked directories of the main tree to link into a worktree, for example caches"
    )
    disk_gib: float | None = Field(default=None, gt=0, description="maximum size of all worktrees together, in GiB")
    setup_minutes: float = Field(default=30, gt=0, description="maximum duration of a setup command, in minutes")

    @field_validator("copy_files", "share")
    @classmethod
    def _inside(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return require_inside(value)


class CleanRoomConfig(SettingsSection):
    """What a clean checkout needs for the checks."""

    setup: tuple[str, ...] = Field(
        default=(),
        description="commands that prepare the clean checkout, if it does not reproduce your result, or if the run changed a file"
        " that git ignores; default: `workspace.setup`, or what the lock files ask for",
    )
    keep: tuple[str, ...] = Field(
        default=(),
        description="ignored files that the clean checkout always has as they were before the run, for example `.env`; the files"
        " in `workspace.copy` are kept too",
    )
    services: tuple[str, ...] = Field(
        default=(),
        description="commands that run beside each check in the clean checkout and end with it, for example a server; a check"
        " that needs one must wait for it",
    )
    timeout: float | None = Field(
        default=None,
        gt=0,
        description="maximum duration of a setup command there, in seconds; default: `workspace.setup_minutes`",
    )

    @field_validator("keep")
    @classmethod
    def _inside(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return require_inside(value)


class SlotSettings(SettingsSection):
    """How many turns run at once."""

    run: int = Field(default=3, ge=1, description="maximum number of turns of one run at the same time")
    machine: int | None = Field(
        default=None,
        ge=1,
        description="maximum number of turns of all your runs on this machine at the same time; default: two per processor,"
        " but at least 8",
    )
    agents: dict[str, int] = Field(
        default={},
        description="maximum number of turns of an agent in all runs at the same time, by the name of the agent",
    )


class NotifySettings(SettingsSection):
    """One service to notify."""

    url: str = Field(
        min_length=1,
        description="address, as the documentation of apprise shows it; `$NAME` comes from the environment",
    )
    events: tuple[Literal["done", "stuck", "question", "limit", "failed"], ...] = Field(
        default=("done", "stuck", "question", "limit", "failed"), min_length=1, description="events to send"
    )


class RetentionSettings(SettingsSection):
    """What `ralph clean` keeps."""

    runs: int = Field(default=20, ge=0, description="number of ended runs to keep")
    days: float = Field(default=30, ge=0, description="number of days to keep every ended run")


def _expand_names(value: Any, key: str) -> Any:
    """A text in a list, or in the place of the list, stands for `{key: text}`."""
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, list):
        return value
    return [{key: item} if isinstance(item, str) else item for item in items]


class Config(SettingsSection):
    """All settings."""

    agent: AgentSettings | None = Field(
        default=None,
        description="agent for all turns: a name, `{acp: COMMAND}` or `{agent: NAME, model: ...}`",
    )
    agents: tuple[AgentSettings, ...] = Field(
        default=(), description="agents in order of preference; if one reaches a limit, the next one takes over"
    )
    roles: dict[str, AgentSettings] = Field(
        default={},
        description="agent or model for a role, `{executor: codex}` or `{reviewer: {agent: claude, model: opus}}`."
        " Roles of a loop: `implementer`, `test-engineer`, `debugger`, `reflector`, `judge`; of a session: `planner`,"
        " `questioner`, `executor`, `reviewer`, `librarian`, `resolver`; in a run of hats: the ids of the hats,"
        " `resolver` and `judge`",
    )
    escalate: EscalationSettings | None = Field(
        default=None, description="agent that takes over if the usual one makes no progress"
    )
    prices: dict[str, tuple[float, float, float]] = Field(
        default={}, description="US dollars per million tokens, by model: input, cached, output"
    )
    instructions: tuple[str, ...] = Field(
        default=(),
        description="files with instructions of the project, for example `[AGENTS.md]`; Ralph puts them into the prompts of"
        " agents that do not read them",
    )
    max_steps: int | None = Field(
        default=None, ge=1, description="maximum number of model calls in one turn, if the agent supports this"
    )
    agent_command: str | None = Field(default=None, description="command of any program to use as the agent")
    scenario: str | None = Field(default=None, description="scenario file of the scripted agent")
    limits: LimitSettings = LimitSettings()
    turn: TurnSettings = TurnSettings()
    loop: LoopSettings = LoopSettings()
    session: SessionDefaults = SessionDefaults()
    check_timeout: float = Field(default=600, gt=0, description="maximum duration of a check, in seconds")
    snapshots: bool = Field(default=True, description="take a snapshot of the tree after every turn")
    push: bool = Field(default=False, description="allow agents to push to remote repositories")
    permissions: Literal["ask", "full-auto"] = Field(
        default="ask",
        description="no effect here, because a repository cannot agree for you; set it in `~/.config/ralph/config.yml`",
    )
    sandbox: Any = Field(
        default=None,
        description="no effect here, because a repository cannot lower your protection; set it in `~/.config/ralph/config.yml`",
    )
    pool: Any = Field(
        default=None,
        description="no effect here, because a repository cannot decide on which machines your agents run; set it in"
        " `~/.config/ralph/config.yml`",
    )
    workspace: WorkspaceSettings = WorkspaceSettings()
    clean_room: CleanRoomConfig = CleanRoomConfig()
    slots: SlotSettings = SlotSettings()
    land: Literal["ff", "branch", "push"] | None = Field(
        default=None,
        description="what to do with the run's branch on success: `ff` fast-forwards yours to it, `push` pushes it, `branch`"
        " leaves it; default: `branch`, or `ff` for a session",
    )
    retention: RetentionSettings = RetentionSettings()
    notify: tuple[NotifySettings, ...] = Field(
        default=(),
        description="services to notify: addresses of apprise, or"
        " `{url: ..., events: [done, stuck, question, limit, failed]}`",
    )

    @property
    def setup_commands(self) -> tuple[str, ...]:
        """The commands of the project that prepare worktrees and clean checkouts."""
        return (*self.workspace.setup, *self.clean_room.setup, *self.clean_room.services)

    @field_validator("instructions")
    @classmethod
    def _inside(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return require_inside(value)

    @field_validator("clean_room", mode="before")
    @classmethod
    def _has_no_switch(cls, value: Any) -> Any:
        if isinstance(value, bool):
            what = "a repository cannot switch the clean room on or off; set it in ~/.config/ralph/config.yml"
            raise PydanticCustomError("switch", what)
        return value

    @field_validator("notify", mode="before", json_schema_input_type=list[NotifySettings | str] | str)
    @classmethod
    def _addresses(cls, value: Any) -> Any:
        """An address alone stands for a service that is notified of everything."""
        return _expand_names(value, "url")

    @field_validator("agent", mode="before", json_schema_input_type=AgentSettings | str | None)
    @classmethod
    def _name(cls, value: Any) -> Any:
        """A name alone stands for the agent of that name."""
        return {"agent": value} if isinstance(value, str) else value

    @field_validator("roles", mode="before", json_schema_input_type=dict[str, AgentSettings | str])
    @classmethod
    def _role_names(cls, value: Any) -> Any:
        """A name alone stands for the agent of that name."""
        if not isinstance(value, dict):
            return value
        return {role: {"agent": one} if isinstance(one, str) else one for role, one in value.items()}

    @field_validator("agents", mode="before", json_schema_input_type=list[AgentSettings | str] | str)
    @classmethod
    def _names(cls, value: Any) -> Any:
        """A name alone stands for the agent of that name."""
        return _expand_names(value, "agent")


SANDBOX_LEVELS = ("auto", "off", "write", "strict", "require")


class SandboxSettings(SettingsSection):
    """How agents and checks are isolated."""

    level: Literal["auto", "off", "write", "strict", "require"] = Field(
        default="auto",
        description="`write`: agents change only the workspace; `strict`: and reach only their model and the hosts in"
        " `connect`; `auto`: `write` if it works here; `require`: `write`, or refuse to start; `off`",
    )
    visible: tuple[str, ...] = Field(default=(), description="hidden files that agents may read, for example `~/.ssh`")
    writable: tuple[str, ...] = Field(
        default=(), description="directories outside the workspace that agents may change"
    )
    sockets: tuple[str, ...] = Field(default=(), description="Unix sockets that agents may use: `docker`, or a path")
    connect: tuple[str, ...] = Field(
        default=(),
        description="what agents and checks may reach with `strict`, besides the model: `host`, `host:port`, `*.domain`,"
        " `localhost:port`",
    )


class PoolSettings(SettingsSection):
    """Where turns run: on this machine, or on a Ray cluster (docs/cluster.md)."""

    kind: Literal["local", "ray"] = Field(default="local", description="`local`: this machine; `ray`: a Ray cluster")
    address: str = Field(
        default="auto", description="address of the cluster: `HOST:PORT`, or `auto` for the one of this machine"
    )
    namespace: str = Field(
        default="ralph", min_length=1, description="namespace in the cluster; only runs of the same one see each other"
    )
    resources: dict[str, float] = Field(
        default={},
        description="what one turn uses of a worker: `cpu` (default: 1), `memory` in GiB, and the cluster's own resources",
    )
    labels: dict[str, tuple[str, ...]] = Field(
        default={},
        description="labels that a worker must have, by role, hat or task, `{executor: [big]}`; `*` stands for all turns",
    )

    @field_validator("resources")
    @classmethod
    def _not_negative(cls, value: dict[str, float]) -> dict[str, float]:
        for name, amount in value.items():
            if amount < 0:
                raise PydanticCustomError("amount", "{name} is negative", {"name": repr(name)})
        return value


class UserSettings(SettingsSection):
    """`~/.config/ralph/config.yml`: what only the user can decide, whatever a repository says."""

    permissions: Literal["ask", "full-auto"] = Field(
        default="ask", description="`full-auto`: start what projects ask for without asking the user first"
    )
    sandbox: SandboxSettings = Field(
        default=SandboxSettings(), description="how agents and checks are isolated: a level, or a section"
    )
    clean_room: bool = Field(default=True, description="confirm every success in a clean checkout")
    pool: PoolSettings = Field(default=PoolSettings(), description="where turns run: `local`, `ray`, or a section")
    require: Literal["auto", "proven", "judged"] = Field(
        default="auto",
        description="what a success needs; with `proven`, no judge may accept changed tests; with `judged`, a judge also looks at"
        " work that is proven",
    )

    @field_validator("pool", mode="before", json_schema_input_type=PoolSettings | str)
    @classmethod
    def _kind(cls, value: Any) -> Any:
        """A kind alone stands for a section with that kind."""
        return {"kind": value} if isinstance(value, str) else value

    @field_validator("sandbox", mode="before", json_schema_input_type=SandboxSettings | str)
    @classmethod
    def _level(cls, value: Any) -> Any:
        """A level alone stands for a section with that level. YAML reads `off` as a boolean."""
        if value is False:
            return {"level": "off"}
        return {"level": value} if isinstance(value, str) else value


HATS = frozenset(
    (
        *("event_loop", "cli", "core", "hats", "events", "tasks", "memories", "skills", "hooks", "features", "RObot"),
        *("adapters", "tui", "verbose", "_suppress_warnings", "agent_priority", "prompt_file", "completion_promise"),
        *("max_iterations", "max_runtime", "max_cost", "backpressure"),
    )
)
"""The keys of a preset, which is in the same file: they are read where hats are run."""
M = TypeVar("M", bound=BaseModel)


def parse_config(text: str, name: str) -> Config:
    """The settings in a file, or one error that names every fault with its line; those of hats are passed over."""
    document = read_yaml(text, name)
    settings = {key: value for key, value in document.data.items() if key not in HATS}
    return validate_keys(Config, settings, document, name)


def read_yaml(text: str, name: str) -> YamlDocument:
    """The keys and values of a file that the user writes, with their lines."""
    try:
        return load_mapping(text, _RULES)
    except YamlError as error:
        where = name if error.line is None else f"{name}, line {error.line}"
        raise UsageError(error.what, where=where) from error


@dataclass(frozen=True)
class KeyFault:
    """A key whose value is invalid."""

    file: str
    line: int
    path: tuple[str, ...]
    what: str


def validate_keys(
    model: type[M],
    values: dict[str, Any],
    document: YamlDocument | None,
    name: str,
    *,
    unknown: list[str] | None = None,
    invalid: list[KeyFault] | None = None,
    manual: str = "docs/reference.md",
) -> M:
    """The values of a file as a model; without a document, those of an option.

    Unknown keys are faults, unless `unknown` is a list: it gets a sentence for each. Faults are an error, unless `invalid` is
    a list: it gets them, and the model does without these keys.
    """
    try:
        return model.model_validate(values)
    except ValidationError as error:
        errors = error.errors()
    extra = [one for one in errors if one["type"] == "extra_forbidden"] if unknown is not None else []
    faults = [one for one in errors if one not in extra]
    known_lines = {fault["loc"]: _find_line(fault, document) for fault in faults}
    faults.sort(key=lambda fault: known_lines[fault["loc"]])
    if invalid is not None and faults and () not in known_lines:
        invalid += [KeyFault(name, known_lines[one["loc"]], _plain_path(one), explain_fault(one)) for one in faults]
        left = _without(values, {_drop_indexes(fault["loc"]) for fault in faults})
        return validate_keys(model, left, document, name, unknown=unknown, invalid=invalid, manual=manual)
    if unknown is None or faults:
        what = "\n".join(_describe_fault(fault, document, model) for fault in faults)
        source = "file" if document else "option"
        raise UsageError(what, where=name, todo=f"correct the {source}; {manual} lists the keys")
    unknown += [f"{name}, {_describe_fault(fault, document, model)}" for fault in extra]
    known = _without(values, {fault["loc"] for fault in extra})
    return validate_keys(model, known, document, name, unknown=unknown, invalid=invalid, manual=manual)


def _plain_path(fault: Any) -> tuple[str, ...]:
    return tuple(str(part) for part in fault["loc"])


def _drop_indexes(path: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """The path of the list that an entry is in; a path without lists is itself."""
    first = next((at for at, part in enumerate(path) if isinstance(part, int)), len(path))
    return path[:first]


def _without(data: Any, paths: set[tuple[int | str, ...]], at: tuple[int | str, ...] = ()) -> Any:
    """The same data without what is at some paths."""
    if isinstance(data, dict):
        return {key: _without(value, paths, (*at, key)) for key, value in data.items() if (*at, key) not in paths}
    if isinstance(data, list):
        return [_without(value, paths, (*at, number)) for number, value in enumerate(data)]
    return data


def _find_line(fault: Any, document: YamlDocument | None) -> int:
    """The line of a fault; 0 if it is not in a file."""
    return document.line_of([str(part) for part in fault["loc"]]) if document else 0


def _describe_fault(fault: Any, document: YamlDocument | None, model: type[BaseModel]) -> str:
    path = [str(part) for part in fault["loc"]]
    line = [f"line {_find_line(fault, document)}"] if document else []
    where = ": ".join([*line, *([f"`{'.'.join(path)}`"] if path else [])])
    if fault["type"] != "extra_forbidden":
        return f"{where}: {explain_fault(fault)}"
    near = difflib.get_close_matches(path[-1], _known_keys(path[:-1], model), 1)
    return f"{where} is not a setting" + (f"; did you mean `{near[0]}`?" if near else "")


def _known_keys(path: list[str], top: type[BaseModel]) -> list[str]:
    model: Any = top
    for part in path:
        model = _section(model.model_fields[part].annotation) if part in model.model_fields else model
    return [field.alias or name for name, field in model.model_fields.items()]


def _section(kind: Any) -> Any:
    """The section that a setting holds: itself, or the one in its lists, tables and alternatives."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return kind
    return next((found for one in get_args(kind) if (found := _section(one)) is not SettingsSection), SettingsSection)
