"""`ralph.yml`: the project's own settings. Options on the command line win over it."""

import difflib
from typing import Any, Literal, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_core import PydanticCustomError
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from ralph.core.errors import UsageError

SIZE_LIMIT = 1024 * 1024
DEEPEST = 50


class Section(BaseModel):
    """Settings that belong together."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class AgentSettings(Section):
    """One agent, and how it is started."""

    agent: str | None = Field(default=None, description="its name, e.g. `claude`; docs/agents.md has all")
    acp: str = Field(
        default="",
        description="instead of a name: the command of any agent that speaks the Agent Client Protocol, `opencode acp`",
    )
    model: str = Field(default="", description="the model that it uses, by the name that it gives it")
    args: tuple[str, ...] = Field(default=(), description="further arguments for its program")
    env: dict[str, str] = Field(default={}, description="further variables for its environment; no secrets")
    program: str = Field(default="", description="its program, where that is not on the PATH")
    without_tools: tuple[str, ...] = Field(
        default=(), description="tools that it may not use, by its own names; `sub-agents` where it can start others"
    )
    permissions: Literal["full-auto", "edits", "read-only", "plan"] | None = Field(
        default=None,
        description="what it may do without being asked: everything (`full-auto`, the default), change files (`edits`),"
        " `read-only`, or only make a `plan`; refused for an agent that has no such mode",
    )

    @model_validator(mode="after")
    def _one_agent(self) -> "AgentSettings":
        if self.acp and (self.agent or self.program):
            other = "agent" if self.agent else "program"
            raise PydanticCustomError("exclusive", "`acp` and `{other}` exclude each other", {"other": other})
        return self


class EscalationSettings(AgentSettings):
    """Who takes over where the usual agent gets nowhere."""

    after: int = Field(default=2, ge=1, description="iterations without progress, or failed tries, before that")


class LimitSettings(Section):
    """What a run may spend."""

    iterations: int | None = Field(
        default=10,
        ge=1,
        description="iterations a loop or a run of hats may take; a session begins one for each feedback",
    )
    minutes: float | None = Field(
        default=60, gt=0, description="active minutes a run may take; a session has no limit unless you set one"
    )
    cost: float | None = Field(default=None, gt=0, description="US dollars a run may spend")
    allow_unpriced: bool = Field(
        default=False, description="whether a run with a limit on cost may start although an agent's cost is unknown"
    )
    tokens: int | None = Field(default=None, ge=1, description="tokens a run may use")


class TurnSettings(Section):
    """What one turn may take."""

    minutes: float = Field(default=60, gt=0, description="minutes after which a turn is ended")
    idle_minutes: float = Field(default=15, gt=0, description="minutes without output after which a turn is ended")
    grace_seconds: float = Field(default=5, ge=0, description="seconds between asking a turn to end and killing it")


class LoopSettings(Section):
    """How a loop works."""

    confirm: int = Field(default=1, ge=1, le=20, description="how often in a row the checks must pass on the same tree")
    on_stuck: Literal["stop", "ask", "continue"] = Field(
        default="stop", description="what follows where the same failure comes again and again"
    )
    reflector: bool = Field(default=False, description="whether a turn of its own reflects on every failed iteration")
    commit: bool = Field(default=False, description="whether every iteration is committed")
    recall: bool = Field(default=True, description="whether prompts tell what loops before this one learned")


class SessionSettings(Section):
    """How sessions go, unless their instructions say otherwise."""

    waves: bool = Field(default=False, description="whether a wave of tasks is finished before the next begins")
    skills: tuple[str, ...] = Field(
        default=("~/.copilot/skills", ".claude/skills"), description="directories with skills that agents are told of"
    )


class WorkspaceSettings(Section):
    """How worktrees are furnished."""

    model_config = ConfigDict(populate_by_name=True)

    setup: tuple[str, ...] = Field(default=(), description="commands that make a new worktree ready, e.g. `npm ci`")
    copy_files: tuple[str, ...] = Field(
        default=(), alias="copy", description="untracked files that are copied into it, e.g. `.env`"
    )
    share: tuple[str, ...] = Field(
        default=(), description="untracked directories of the main tree that it is linked to, e.g. caches"
    )
    disk_gib: float | None = Field(default=None, gt=0, description="GiB that all worktrees may take up together")
    setup_minutes: float = Field(default=30, gt=0, description="minutes after which a set-up command is ended")

    @field_validator("copy_files", "share")
    @classmethod
    def _inside(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            if not name.strip() or name.startswith(("/", "~")) or ".." in name.split("/"):
                raise PydanticCustomError("outside", "{name} is no path inside the project", {"name": repr(name)})
        return value


class SlotSettings(Section):
    """How many turns run at once."""

    run: int = Field(default=3, ge=1, description="turns of one run")
    machine: int | None = Field(
        default=None,
        ge=1,
        description="turns of all your runs on this machine; by default 8, or two for each processor",
    )
    agents: dict[str, int] = Field(default={}, description="turns of an agent in all runs, by its name")


class NotifySettings(Section):
    """One service that is told what happens."""

    url: str = Field(min_length=1, description="its address, as apprise has it; `$NAME` is taken from the environment")
    events: tuple[Literal["done", "stuck", "question", "limit", "failed"], ...] = Field(
        default=("done", "stuck", "question", "limit", "failed"), min_length=1, description="what it is told of"
    )


class RetentionSettings(Section):
    """What `ralph clean` keeps."""

    runs: int = Field(default=20, ge=0, description="the latest ended runs that are kept")
    days: float = Field(default=30, ge=0, description="days for which every ended run is kept")


class Config(Section):
    """All settings."""

    agent: AgentSettings | None = Field(
        default=None,
        description="the agent that does the turns: its name, or `{acp: COMMAND}`, `{agent: NAME, model: ...}`",
    )
    agents: tuple[AgentSettings, ...] = Field(
        default=(), description="several, in the order of preference: the next one takes over while one is limited"
    )
    roles: dict[str, AgentSettings] = Field(
        default={},
        description="another agent or model for a role, `{executor: codex}` or `{reviewer: {agent: claude, model: opus}}`."
        " Roles of a loop: `implementer`, `test-engineer`, `debugger`, `reflector`; of a session: `planner`, `questioner`,"
        " `executor`, `reviewer`, `librarian`, `resolver`; in a run of hats: the ids of the hats and `resolver`",
    )
    escalate: EscalationSettings | None = Field(
        default=None, description="who takes over where the usual agent gets nowhere"
    )
    prices: dict[str, tuple[float, float, float]] = Field(
        default={}, description="US dollars for a million tokens, by model: in, cached, out"
    )
    max_steps: int | None = Field(default=None, ge=1, description="how often an agent may ask its model in one turn")
    agent_command: str | None = Field(default=None, description="any program as the agent")
    scenario: str | None = Field(default=None, description="the scenario file of the scripted agent")
    limits: LimitSettings = LimitSettings()
    turn: TurnSettings = TurnSettings()
    loop: LoopSettings = LoopSettings()
    session: SessionSettings = SessionSettings()
    check_timeout: float = Field(default=600, gt=0, description="seconds after which a check is ended")
    snapshots: bool = Field(default=True, description="whether the tree is recorded after every turn")
    push: bool = Field(default=False, description="whether agents may push to remote repositories")
    permissions: Literal["ask", "full-auto"] = Field(
        default="ask",
        description="has no effect here: a repository cannot agree for you. Set it in `~/.config/ralph/config.yml`",
    )
    workspace: WorkspaceSettings = WorkspaceSettings()
    slots: SlotSettings = SlotSettings()
    land: Literal["ff", "branch", "push"] | None = Field(
        default=None,
        description="where the work of a branch of its own goes on success: `ff` onto yours, `push`, or it stays (`branch`)",
    )
    retention: RetentionSettings = RetentionSettings()
    notify: tuple[NotifySettings, ...] = Field(
        default=(),
        description="services that are told when a run is done, stuck, limited or failed, or asks: addresses of apprise, or"
        " `{url: ..., events: [done, stuck, question, limit, failed]}`",
    )

    @field_validator("notify", mode="before", json_schema_input_type=list[NotifySettings | str] | str)
    @classmethod
    def _addresses(cls, value: Any) -> Any:
        """An address alone stands for a service that is told everything."""
        value = [value] if isinstance(value, str) else value
        return [{"url": one} if isinstance(one, str) else one for one in value] if isinstance(value, list) else value

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
        value = [value] if isinstance(value, str) else value
        return [{"agent": one} if isinstance(one, str) else one for one in value] if isinstance(value, list) else value


class UserSettings(Section):
    """`~/.config/ralph/config.yml`: what only the user can decide, whatever a repository says."""

    permissions: Literal["ask", "full-auto"] = Field(
        default="ask", description="`full-auto`: start what projects ask for without asking the user first"
    )


HATS = frozenset(
    (
        *("event_loop", "cli", "core", "hats", "events", "tasks", "memories", "skills", "hooks", "features", "RObot"),
        *("adapters", "tui", "verbose", "_suppress_warnings", "agent_priority", "prompt_file", "completion_promise"),
        *("max_iterations", "max_runtime", "max_cost", "backpressure"),
    )
)
"""The keys of a preset, which is in the same file: they are read where hats are run."""
M = TypeVar("M", bound=BaseModel)


def parse(text: str, name: str) -> Config:
    """The settings in a file, or one error that names every fault with its line; those of hats are passed over."""
    data = read_yaml(text, name)
    return validated(Config, data, name, {key: value for key, value in data.items() if key not in HATS})


def read_yaml(text: str, name: str) -> CommentedMap:
    """The keys and values of a file, with their lines."""
    try:
        yaml = YAML(typ="rt", pure=True)
        yaml.max_depth = DEEPEST
        data = yaml.load(text)
    except MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise UsageError(f"not readable as YAML: {error.problem}", where=f"{name}{line}") from error
    except (YAMLError, ArithmeticError, ValueError, TypeError, AttributeError, LookupError, RecursionError) as error:
        raise UsageError(f"not readable as YAML: {[*str(error).splitlines(), '?'][0]}", where=name) from error
    if data is None:
        return CommentedMap()
    if not isinstance(data, CommentedMap):
        raise UsageError("the file must hold `key: value` lines", where=name)
    return data


def validated(
    model: type[M],
    data: CommentedMap,
    name: str,
    given: dict[str, Any],
    unknown: list[str] | None = None,
    *,
    manual: str = "docs/reference.md",
) -> M:
    """The part of a file that a model is for; unknown keys are faults, or are left out and listed."""
    try:
        return model.model_validate(given)
    except ValidationError as error:
        faults = [one for one in error.errors() if unknown is None or one["type"] != "extra_forbidden"]
        extra = [one for one in error.errors() if one not in faults]
        if faults or unknown is None:
            told = "\n".join(_fault(fault, data, model) for fault in faults)
            raise UsageError(told, where=name, todo=f"correct the file; {manual} lists the keys") from None
    unknown += [f"{name}, {_fault(fault, data, model)}" for fault in extra]
    return validated(model, data, name, _without(given, {fault["loc"] for fault in extra}), unknown, manual=manual)


def _without(data: Any, paths: set[tuple[int | str, ...]], at: tuple[int | str, ...] = ()) -> Any:
    """The same data without what is at some paths."""
    if isinstance(data, dict):
        return {key: _without(value, paths, (*at, key)) for key, value in data.items() if (*at, key) not in paths}
    if isinstance(data, list):
        return [_without(value, paths, (*at, number)) for number, value in enumerate(data)]
    return data


def _fault(fault: Any, data: CommentedMap, model: type[BaseModel]) -> str:
    path = [str(part) for part in fault["loc"]]
    where = f"line {_line(path, data)}" + (f": `{'.'.join(path)}`" if path else "")
    if fault["type"] in ("model_type", "dict_type"):
        return f"{where}: it must hold `key: value` lines"
    if fault["type"] != "extra_forbidden":
        return f"{where}: {fault['msg'].removeprefix('Value error, ')}"
    near = difflib.get_close_matches(path[-1], _known(path[:-1], model), 1)
    return f"{where} is not a setting" + (f"; did you mean `{near[0]}`?" if near else "")


def _line(path: list[str], data: CommentedMap) -> int:
    node: Any = data
    line = 1
    for part in path:
        if not isinstance(node, CommentedMap) or part not in node or part not in (node.lc.data or ()):
            break
        line = node.lc.key(part)[0] + 1
        node = node[part]
    return line


def _known(path: list[str], top: type[BaseModel]) -> list[str]:
    model: Any = top
    for part in path:
        model = _section(model.model_fields[part].annotation) if part in model.model_fields else model
    return [field.alias or name for name, field in model.model_fields.items()]


def _section(kind: Any) -> Any:
    """The section that a setting holds: itself, or the one in its lists, tables and alternatives."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return kind
    return next((found for one in get_args(kind) if (found := _section(one)) is not Section), Section)
