"""`run.json`: what a run was started with. Written once; what changes is in the journal."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from ralph.core.checks import Check
from ralph.core.codec import dump, from_plain, to_plain
from ralph.core.errors import StateError
from ralph.core.limits import Limits

SCHEMA = 1


@dataclass(frozen=True)
class AgentSpec:
    """Which agent does the turns, and how it is started."""

    kind: str
    """`scripted`, or `command` for any program."""
    command: tuple[str, ...] = ()
    scenario: str = ""
    """The scenario file of the scripted agent, as an absolute path."""

    @property
    def label(self) -> str:
        """What people are told."""
        return " ".join(self.command) if self.kind == "command" else self.kind


@dataclass(frozen=True)
class TurnLimits:
    """What one turn may take."""

    wall: float = 3600.0
    idle: float = 900.0
    grace: float = 5.0


@dataclass(frozen=True)
class LoopSettings:
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
    recalled: tuple[str, ...] = ()
    """What loops before this one learned about tasks like it."""
    inputs: Mapping[str, str] = field(default_factory=dict)
    """The hashes of files that the checks use and no snapshot holds."""


@dataclass(frozen=True)
class RunRecord:
    """The settings of a run, frozen when it was created."""

    id: str
    workflow: str
    task: str
    criterion: str
    checks: tuple[Check, ...]
    agent: AgentSpec
    created_at: float
    workspace: str = "."
    """The directory in which turns act, relative to the root."""
    branch: str = ""
    """The branch of its own worktree, where it has one."""
    limits: Limits = field(default_factory=Limits)
    turn_limits: TurnLimits = field(default_factory=TurnLimits)
    snapshots: bool = True
    allowed: Mapping[str, str] = field(default_factory=dict)
    """Rules of the guards that a person lifted for this run, with the reason."""
    push: bool = False
    """Whether agents may push to remote repositories."""
    loop: LoopSettings = field(default_factory=LoopSettings)
    schema: int = SCHEMA


def render(record: RunRecord) -> str:
    """The file's text."""
    fields = {"schema": record.schema, **to_plain(record)}
    return "{\n" + ",\n".join(f"  {dump(key)}: {dump(value)}" for key, value in fields.items()) + "\n}\n"


def parse(text: str, where: str) -> RunRecord:
    """The record in a file; one from another version is refused by name."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise StateError(f"not readable as JSON ({error})", where=where, todo=_CLEAN) from error
    require_schema(data, SCHEMA, where)
    return from_plain(RunRecord, data, where)


def require_schema(data: object, known: int, where: str) -> Mapping[str, object]:
    """The object, if its schema version is one that this Ralph reads."""
    if not isinstance(data, dict):
        raise StateError("the file holds no JSON object", where=where, todo=_CLEAN)
    version = data.get("schema")
    if version != known:
        raise StateError(
            f"the file has schema version {version!r}; this Ralph reads version {known}",
            where=where,
            todo="use the version of ralph-engine that wrote it" if version else _CLEAN,
        )
    return data


_CLEAN = "restore the file from a backup, or remove the run with `ralph clean RUN`"
