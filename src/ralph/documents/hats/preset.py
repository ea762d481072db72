"""The preset format: the keys that people know from the most used Ralph, each working or refused with a reason."""

import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from ralph.documents.config import Section

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
        raise PydanticCustomError("topic", "{value} is no topic; write it like `review.passed`", {"value": repr(value)})
    return value


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _path_of(value: Any) -> Any:
    """`scratchpad: PATH`, or `{enabled, path}`."""
    if isinstance(value, dict):
        value = "" if value.get("enabled") is False else value.get("path", SCRATCHPAD)
    value = SCRATCHPAD if value is True else "" if value is False else value
    if isinstance(value, str) and (value.startswith(("/", "~")) or ".." in value.split("/")):
        raise PydanticCustomError("outside", "{value} is no path inside the project", {"value": repr(value)})
    return value


TopicName = Annotated[str, BeforeValidator(_topic, str)]
Topics = Annotated[tuple[TopicName, ...], BeforeValidator(_listed, list[str] | str)]
Words = Annotated[tuple[str, ...], BeforeValidator(_listed, list[str] | str)]
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
    "cli.idle_timeout_secs": NoEffect("it is for interactive runs", usual=30),
    "cli.timeout": NoEffect(_IDLE),
    "cli.pty_mode": NoEffect("agents run without a terminal"),
    "cli.pty_interactive": NoEffect("runs are never interactive"),
    "adapters.NAME.enabled": NoEffect("name the agent with `cli.backend`", usual=True),
    "skills": NoEffect("agents find their own skills"),
    "features": NoEffect("`--worktree` gives a run a tree of its own"),
    "RObot": NoEffect("guidance and answers are given with `ralph`"),
    "tui": NoEffect(),
    "backpressure": NoEffect("commands that must pass go into `event_loop.checks`"),
    "verbose": NoEffect(usual=False),
    "_suppress_warnings": NoEffect(usual=False),
}
"""Keys that are read and left out; NAME stands for any key."""


class EventLoop(Section):
    """The rules of the event loop."""

    prompt: str = Field(default="", description="the objective, where no -p is given")
    prompt_file: str = Field(
        default="", description="the file with the objective (`PROMPT.md`), where there is none else"
    )
    completion_promise: str = Field(
        default="LOOP_COMPLETE", min_length=1, description="the event, or last line, that says that all is done"
    )
    cancellation_promise: str = Field(default="", description="the event that ends the run as cancelled")
    max_iterations: int = Field(default=100, ge=1, description="hat turns a run may take")
    max_runtime_seconds: float = Field(default=14400, gt=0, description="seconds of active time a run may take")
    max_cost_usd: float | None = Field(default=None, gt=0, description="US dollars a run may spend")
    max_consecutive_failures: int = Field(default=5, ge=1, description="failed tries in a row that end the run")
    cooldown_delay_seconds: float = Field(default=0, ge=0, description="seconds between two turns")
    checkpoint_interval: int = Field(
        default=0, ge=0, description="turns after which the work is committed; 0 for never"
    )
    max_default_events: int = Field(
        default=3,
        ge=0,
        description="turns of a hat in a row that end in its default event before the run asks you; 0 for never",
    )
    starting_event: Annotated[str, BeforeValidator(lambda value: _topic(value) if value else "", str)] = Field(
        default="", description="the event that the engine begins with"
    )
    starting_hat: str = Field(default="", description="the hat that begins, where no event does")
    required_events: Topics = Field(
        default=(), description="topics that must have been published in earnest in this run"
    )
    enforce_hat_scope: bool = Field(default=False, description="whether a hat may publish only what it lists")
    checks: Words = Field(
        default=(),
        description="what the engine itself checks before it believes that all is done, as `ralph loop --until`",
    )
    scope: Words = Field(
        default=(), description="patterns of the files that the run may change, as `ralph loop --scope`"
    )
    persistent: bool = Field(
        default=False,
        description="whether a run that has done all waits for events and guidance, until a person ends it",
    )

    @model_validator(mode="after")
    def _one_prompt(self) -> "EventLoop":
        if self.prompt and self.prompt_file:
            raise PydanticCustomError("exclusive", "`prompt` and `prompt_file` exclude each other")
        return self


class Backend(Section):
    """Who does the turns."""

    type: str = Field(default="", description="the name of an agent; docs/agents.md has all")
    command: str = Field(default="", description="any program")
    agent: str = Field(default="", description="the agent of that name inside kiro")
    model: str = Field(default="", description="the model, by the name that the agent gives it")
    args: Words = Field(default=(), description="further arguments for its program")


class Cli(Section):
    """The agent of all hats that have none of their own."""

    backend: str = Field(
        default="", description="its name; `auto` for the first that is there, `custom` for any program"
    )
    command: str = Field(default="", description="its program, where that is not on the PATH, or any (`custom`)")
    args: Words = Field(default=(), description="further arguments for its program")
    model: str = Field(default="", description="the model that it uses")
    prompt_mode: Literal["arg", "stdin"] = Field(
        default="arg",
        description="how a `custom` program gets its prompt; agents that Ralph knows get it as they want it",
    )
    prompt_flag: str = Field(default="", description="the option before the prompt of a `custom` program")


class Core(Section):
    """What all hats share."""

    scratchpad: Place = Field(default=SCRATCHPAD, description="the scratchpad of all hats, or false")
    specs_dir: str = Field(default=".agents/scratchpad/", description="what `{specs_dir}` stands for")
    guardrails: tuple[str, ...] = Field(default=GUARDRAILS, description="rules that every prompt carries, numbered")


class Aggregate(Section):
    """How a hat takes what comes of a wave."""

    mode: Literal["wait_for_all"] = Field(default="wait_for_all", description="when all of the wave have ended")
    timeout: float | None = Field(
        default=None, gt=0, description="seconds that a wave may take; who needs longer fails"
    )


class HatKeys(Section):
    """One hat."""

    name: str = Field(default="", description="what people call it")
    description: str = Field(default="", description="what it is for, in a sentence")
    triggers: Topics = Field(
        default=(), description="the topics that it takes; `*` stands for one part, or alone for all"
    )
    publishes: Topics = Field(default=(), description="the topics that it publishes")
    instructions: str = Field(default="", description="what it is told")
    extra_instructions: Words = Field(default=(), description="what it is told beside that")
    default_publishes: str = Field(default="", description="published in its name where it published nothing")
    backend: Backend | None = Field(default=None, description="its own agent: a name, or `{type, model, args}`")
    model: str = Field(default="", description="its own model")
    backend_args: Words = Field(default=(), alias="args", description="further arguments for its agent")
    max_activations: int | None = Field(default=None, ge=1, description="turns that it may take in a run")
    timeout: float | None = Field(default=None, gt=0, description="seconds that a turn of it may take")
    disallowed_tools: Words = Field(default=(), description="tools that it may not use, by its agent's names")
    may_ask: bool = Field(default=True, description="whether it may put questions to a person")
    scratchpad: Place = Field(default="", description="its own scratchpad")
    concurrency: int = Field(default=1, ge=1, description="how many of its events it takes side by side")
    aggregate: Aggregate | None = Field(default=None, description="it takes all that came of a wave in one turn")

    @model_validator(mode="before")
    @classmethod
    def _args(cls, value: Any) -> Any:
        if isinstance(value, dict) and "backend_args" in value:
            value = {("args" if key == "backend_args" else key): one for key, one in value.items()}
        return value

    @field_validator("backend", mode="before", json_schema_input_type=Backend | str | None)
    @classmethod
    def _named(cls, value: Any) -> Any:
        return {"type": value} if isinstance(value, str) else value


class TopicKeys(Section):
    """One topic."""

    description: str = Field(default="", description="what it means")
    on_trigger: str = Field(default="", description="what the hat that takes it is told")
    on_publish: str = Field(default="", description="what the hat that may publish it is told")
    requires: Words = Field(default=(), description="keys that its payload must have")
    evidence: bool | Literal["fails"] | None = Field(
        default=None,
        description="whether it counts only where the checks of the run pass; `fails` where they must fail",
    )
    otherwise: str = Field(default="", description="the topic that is published instead where they do not")


class Tasks(Section):
    """The queue of tasks."""

    enabled: bool = Field(
        default=True, description="whether prompts list tasks, and open ones keep a run from being done"
    )


class MemoryFilter(Section):
    """Which memories go into prompts."""

    types: Words = Field(default=(), description="`pattern`, `decision`, `fix`, `context`")
    tags: Words = Field(default=(), description="those with one of these tags")
    recent: int = Field(default=0, ge=0, description="those of so many days")


class Memories(Section):
    """What earlier turns learned."""

    enabled: bool = Field(default=True, description="whether there are memories")
    inject: Literal["auto", "manual", "none"] = Field(default="auto", description="`auto` puts them into prompts")
    budget: int = Field(default=0, ge=0, description="tokens of a prompt that they may take; 0 for 2000")
    filter: MemoryFilter = MemoryFilter()


class AdapterKeys(Section):
    """What holds for one agent."""

    timeout: float = Field(default=300, gt=0, description="seconds without output after which a turn is ended")


class Preset(Section):
    """All keys of a preset; the settings of docs/reference.md can stand beside them."""

    event_loop: EventLoop = EventLoop()
    cli: Cli = Cli()
    core: Core = Core()
    hats: dict[str, HatKeys] = Field(default={}, description="the hats, by their ids")
    events: dict[str, TopicKeys] = Field(default={}, description="what is known of topics")
    tasks: Tasks = Tasks()
    memories: Memories = Memories()
    adapters: dict[str, AdapterKeys] = Field(default={}, description="what holds for one agent, by its name")
    hooks: dict[str, Any] = Field(
        default={}, description="refused if `enabled`: checks and `notify` do what they are for"
    )
    agent_priority: tuple[str, ...] = Field(default=(), description="older: several agents, in the order of preference")
    prompt_file: str = Field(default="", description="older: `event_loop.prompt_file`")
    completion_promise: str = Field(default="", description="older: `event_loop.completion_promise`")
    max_iterations: int | None = Field(default=None, ge=1, description="older: `event_loop.max_iterations`")
    max_runtime: float | None = Field(default=None, gt=0, description="older: `event_loop.max_runtime_seconds`")
    max_cost: float | None = Field(default=None, gt=0, description="older: `event_loop.max_cost_usd`")

    @field_validator("hats")
    @classmethod
    def _ids(cls, value: dict[str, HatKeys]) -> dict[str, HatKeys]:
        for name in value:
            if not _HAT.fullmatch(name) or name == "ralph":
                raise PydanticCustomError(
                    "hat", "{name} is no id of a hat: letters, digits, - and _", {"name": repr(name)}
                )
        return value
