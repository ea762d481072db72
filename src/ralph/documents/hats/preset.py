"""The preset format: the keys of ralph-orchestrator. Each works, or is refused with a reason."""

import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from ralph.documents.config import Config, SettingsSection
from ralph.documents.hats.definition import COORDINATOR

TOPIC = re.compile(r"[A-Za-z0-9_*-]+(\.[A-Za-z0-9_*-]+)*")
_HAT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,59}")
GUARDRAILS = (
    "Each turn starts afresh: what the next one must know goes into tasks, memories or the shared documents.",
    "Nothing is done before its tests, types and lint pass.",
    "Build what was asked for and nothing else; the simplest thing that works.",
    "Score a decision from 0 to 100: above 80 go ahead; below, go ahead with the safest choice and record it with"
    " `ralph tools decision add`.",
)


def _topic(value: Any) -> Any:
    if not isinstance(value, str) or not TOPIC.fullmatch(value):
        raise PydanticCustomError(
            "topic", "{value} is not a topic; write it like `review.passed`", {"value": repr(value)}
        )
    return value


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _path_of(value: Any) -> Any:
    """`scratchpad: PATH`, or `{enabled, path}`."""
    if isinstance(value, dict):
        value = value.get("path", SCRATCHPAD) if value.get("enabled") is not False else False
    if value is True:
        value = SCRATCHPAD
    elif value is False:
        value = ""
    if isinstance(value, str) and (value.startswith(("/", "~")) or ".." in value.split("/")):
        raise PydanticCustomError("outside", "{value} is not a path inside the project", {"value": repr(value)})
    return value


def _evidence(value: Any) -> Any:
    if value not in (None, True, False, "fails"):
        raise PydanticCustomError(
            "evidence", "it must be `true`, `false` or `fails`, not {value}", {"value": repr(value)}
        )
    return value


TopicName = Annotated[str, BeforeValidator(_topic, str)]
Topics = Annotated[tuple[TopicName, ...], BeforeValidator(_as_list, list[str] | str)]
Words = Annotated[tuple[str, ...], BeforeValidator(_as_list, list[str] | str)]
Place = Annotated[str, BeforeValidator(_path_of, str | bool | dict[str, Any])]
SCRATCHPAD = ".ralph/agent/scratchpad.md"


@dataclass(frozen=True)
class NoEffect:
    """A key that other Ralphs know and that does nothing here."""

    instead: str = ""
    """What to use instead, or why nothing is needed."""
    usual: Any = None
    """The value that files have without meaning anything by it: it is not worth a word."""


_IDLE = "`adapters.NAME.timeout` ends idle turns"
NO_EFFECT = {
    "event_loop.mutation_score_warn_threshold": NoEffect("make it one of `checks`"),
    "event_loop.context_window_tokens": NoEffect("prompts have a fixed budget"),
    "event_loop.idle_timeout_secs": NoEffect(_IDLE),
    "cli.default_mode": NoEffect("runs are never interactive", usual="autonomous"),
    "cli.idle_timeout_secs": NoEffect("it applies only to interactive runs", usual=30),
    "cli.timeout": NoEffect(_IDLE),
    "cli.pty_mode": NoEffect("agents run without a terminal"),
    "cli.pty_interactive": NoEffect("runs are never interactive"),
    "adapters.NAME.enabled": NoEffect("name the agent with `cli.backend`", usual=True),
    "skills": NoEffect("agents find their own skills"),
    "features": NoEffect("`--worktree` gives a run its own tree"),
    "RObot": NoEffect("use `ralph steer` and `ralph answer`"),
    "tui": NoEffect(),
    "backpressure": NoEffect("put commands that must pass into `event_loop.checks`"),
    "verbose": NoEffect(usual=False),
    "_suppress_warnings": NoEffect(usual=False),
}
"""Keys that are read and left out; NAME stands for any key."""


class EventLoop(SettingsSection):
    """The rules of the event loop."""

    prompt: str = Field(default="", description="objective, if you do not pass -p")
    prompt_file: str = Field(
        default="", description="file with the objective, if there is no other; default `PROMPT.md`"
    )
    completion_promise: str = Field(
        default="LOOP_COMPLETE",
        min_length=1,
        description="event, or last line of a message, that declares the work done",
    )
    cancellation_promise: str = Field(default="", description="event that ends the run as cancelled")
    max_iterations: int = Field(default=100, ge=1, description="maximum number of turns of a run")
    max_runtime_seconds: float = Field(default=14400, gt=0, description="maximum active time of a run, in seconds")
    max_cost_usd: float | None = Field(default=None, gt=0, description="maximum cost of a run, in US dollars")
    max_consecutive_failures: int = Field(default=5, ge=1, description="how many failed turns in a row end the run")
    cooldown_delay_seconds: float = Field(default=0, ge=0, description="seconds between two turns")
    checkpoint_interval: int = Field(default=0, ge=0, description="commit after this many turns; 0 means never")
    max_default_events: int = Field(
        default=3,
        ge=0,
        description="how many turns of a hat in a row may end in its default event before the run asks you; 0 means never",
    )
    starting_event: Annotated[str, BeforeValidator(lambda value: _topic(value) if value else "", str)] = Field(
        default="", description="event that starts the run"
    )
    starting_hat: str = Field(default="", description="hat that starts, if no event does")
    required_events: Topics = Field(
        default=(), description="topics that a hat must publish in this run; defaults do not count"
    )
    enforce_hat_scope: bool = Field(default=False, description="refuse topics that a hat does not list")
    checks: Words = Field(
        default=(),
        description="checks that the engine runs before it accepts the completion promise, in the syntax of `ralph loop --until`",
    )
    scope: Words = Field(
        default=(), description="patterns for the files that the run can change, as in `ralph loop --scope`"
    )
    persistent: bool = Field(
        default=False,
        description="wait for events and guidance when everything is done, until you end the run",
    )

    @model_validator(mode="after")
    def _one_prompt(self) -> "EventLoop":
        if self.prompt and self.prompt_file:
            raise PydanticCustomError("exclusive", "`prompt` and `prompt_file` cannot be used together")
        return self


PROMPT_KEYS = (
    "Only for `backend: custom` and `backend: {command: ...}`; the adapters of other agents pass the prompt themselves"
)
"""For whom `prompt_mode` and `prompt_flag` hold. The notice of a run and the docs use the same words."""


class Backend(SettingsSection):
    """Who does the turns."""

    type: str = Field(default="", description="name of the agent; docs/agents.md lists all")
    command: str = Field(default="", description="any program")
    agent: str = Field(default="", description="the agent of that name inside kiro")
    model: str = Field(default="", description="model, by the agent's own name for it")
    args: Words = Field(default=(), description="additional arguments for the program")


class Cli(SettingsSection):
    """The agent of all hats that have none of their own."""

    backend: str = Field(
        default="",
        description="name of the agent; `auto` for the first one that is installed, `custom` for any program",
    )
    command: str = Field(
        default="", description="program to start, if it is not on the PATH, or any program for `custom`"
    )
    args: Words = Field(default=(), description="additional arguments for the program")
    model: str = Field(default="", description="model")
    prompt_mode: Literal["arg", "stdin"] = Field(
        default="arg",
        description="how your program gets its prompt: as its last argument, or on standard input. " + PROMPT_KEYS,
    )
    prompt_flag: str = Field(
        default="", description="option before the prompt, with `prompt_mode: arg`. " + PROMPT_KEYS
    )


class Core(SettingsSection):
    """What all hats share."""

    scratchpad: Place = Field(default=SCRATCHPAD, description="scratchpad that all hats share; `false` for none")
    specs_dir: str = Field(default=".agents/scratchpad/", description="value of `{specs_dir}`")
    guardrails: tuple[str, ...] = Field(default=GUARDRAILS, description="rules in every prompt, numbered")


class Aggregate(SettingsSection):
    """How a hat takes the results of a wave."""

    mode: Literal["wait_for_all"] = Field(default="wait_for_all", description="when all workers of the wave have ended")
    timeout: float | None = Field(
        default=None, gt=0, description="maximum duration of a wave, in seconds; workers that need longer fail"
    )


class HatKeys(SettingsSection):
    """One hat."""

    name: str = Field(default="", description="display name")
    description: str = Field(default="", description="purpose of the hat, in one sentence")
    triggers: Topics = Field(
        default=(), description="topics that the hat receives; `*` stands for one part, and `*` alone for every topic"
    )
    publishes: Topics = Field(default=(), description="topics that the hat publishes")
    instructions: str = Field(default="", description="instructions in the hat's prompt")
    extra_instructions: Words = Field(default=(), description="additional instructions")
    default_publishes: str = Field(default="", description="topic that Ralph publishes if the hat publishes nothing")
    backend: Backend | None = Field(default=None, description="agent of this hat: a name, or `{type, model, args}`")
    model: str = Field(default="", description="model of this hat")
    backend_args: Words = Field(default=(), alias="args", description="additional arguments for its agent")
    max_activations: int | None = Field(default=None, ge=1, description="maximum number of turns of this hat in a run")
    timeout: float | None = Field(default=None, gt=0, description="maximum duration of a turn of this hat, in seconds")
    disallowed_tools: Words = Field(default=(), description="tools that this hat cannot use, by its agent's names")
    may_ask: bool = Field(default=True, description="allow this hat to ask you questions")
    scratchpad: Place = Field(default="", description="scratchpad of this hat")
    concurrency: int = Field(default=1, ge=1, description="how many of its events this hat handles in parallel")
    aggregate: Aggregate | None = Field(default=None, description="receive all results of a wave in one turn")

    @model_validator(mode="before")
    @classmethod
    def _args(cls, value: Any) -> Any:
        if isinstance(value, dict) and "backend_args" in value:
            value = {("args" if key == "backend_args" else key): one for key, one in value.items()}
        return value

    @field_validator("backend", mode="before", json_schema_input_type=Backend | str | None)
    @classmethod
    def _read_backend_name(cls, value: Any) -> Any:
        return {"type": value} if isinstance(value, str) else value


class TopicKeys(SettingsSection):
    """One topic."""

    description: str = Field(default="", description="meaning of the event")
    on_trigger: str = Field(default="", description="text for the hat that receives it")
    on_publish: str = Field(default="", description="text for hats that can publish it")
    requires: Words = Field(default=(), description="keys that the payload must contain")
    evidence: Annotated[bool | Literal["fails"] | None, BeforeValidator(_evidence, bool | Literal["fails"] | None)] = (
        Field(
            default=None,
            description="true: counts only if the run's checks pass; `fails`: only if they fail",
        )
    )
    otherwise: str = Field(default="", description="topic that Ralph publishes instead if the evidence is missing")


class Tasks(SettingsSection):
    """The queue of tasks."""

    enabled: bool = Field(default=True, description="list tasks in prompts, and refuse completion while tasks are open")


class MemoryFilter(SettingsSection):
    """Which memories go into prompts."""

    types: Words = Field(default=(), description="`pattern`, `decision`, `fix`, `context`")
    tags: Words = Field(default=(), description="only memories with one of these tags")
    recent: int = Field(default=0, ge=0, description="only memories of the last N days; 0 means all")


class Memories(SettingsSection):
    """What earlier turns learned."""

    enabled: bool = Field(default=True, description="use memories")
    inject: Literal["auto", "manual", "none"] = Field(default="auto", description="`auto` puts memories into prompts")
    budget: int = Field(default=0, ge=0, description="maximum number of tokens of memories in a prompt; 0 means 2,000")
    filter: MemoryFilter = MemoryFilter()


class AdapterKeys(SettingsSection):
    """What holds for one agent."""

    timeout: float = Field(default=300, gt=0, description="maximum time without output in a turn, in seconds")


class Preset(SettingsSection):
    """All keys of a preset; the settings of docs/reference.md can stand beside them."""

    event_loop: EventLoop = EventLoop()
    cli: Cli = Cli()
    core: Core = Core()
    hats: dict[str, HatKeys] = Field(default={}, description="the hats, by their ids")
    events: dict[str, TopicKeys] = Field(default={}, description="rules for topics")
    tasks: Tasks = Tasks()
    memories: Memories = Memories()
    adapters: dict[str, AdapterKeys] = Field(default={}, description="settings for one agent, by its name")
    hooks: dict[str, Any] = Field(default={}, description="refused if `enabled`; use checks and `notify`")
    agent_priority: tuple[str, ...] = Field(default=(), description="deprecated: agents in order of preference")
    prompt_file: str = Field(default="", description="deprecated: `event_loop.prompt_file`")
    completion_promise: str = Field(default="", description="deprecated: `event_loop.completion_promise`")
    max_iterations: int | None = Field(default=None, ge=1, description="deprecated: `event_loop.max_iterations`")
    max_runtime: float | None = Field(default=None, gt=0, description="deprecated: `event_loop.max_runtime_seconds`")
    max_cost: float | None = Field(default=None, gt=0, description="deprecated: `event_loop.max_cost_usd`")

    @field_validator("hats")
    @classmethod
    def _ids(cls, value: dict[str, HatKeys]) -> dict[str, HatKeys]:
        for name in value:
            if not _HAT.fullmatch(name) or name == COORDINATOR:
                raise PydanticCustomError(
                    "hat", "{name} is not a valid hat id: use letters, digits, - and _", {"name": repr(name)}
                )
        return value


_SECTIONS = {"event_loop": "EventLoop", "cli": "Cli", "adapters": "AdapterKeys"}
"""The sections that hold keys without effect, by the names of their models."""


def schema() -> dict[str, Any]:
    """One schema for the whole file, for editors; short forms that Ralph takes as well are in the docs."""
    preset, config = Preset.model_json_schema(), Config.model_json_schema()
    properties = {**config["properties"], **preset["properties"]}
    sections = {**config["$defs"], **preset["$defs"]}
    for path, about in NO_EFFECT.items():
        section, _, key = path.rpartition(".")
        place = sections[_SECTIONS[section.partition(".")[0]]]["properties"] if section else properties
        place[key] = {"deprecated": True, "description": ": ".join(filter(None, ("no effect", about.instead)))}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "ralph.yml",
        "type": "object",
        "properties": properties,
        "$defs": sections,
        "additionalProperties": False,
    }
