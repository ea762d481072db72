"""`ralph.yml`: the project's own settings. Options on the command line win over it."""

import difflib
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from ralph.core.errors import UsageError

SIZE_LIMIT = 1024 * 1024
DEEPEST = 50


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class LimitSettings(_Section):
    """What a run may spend."""

    iterations: int | None = Field(default=10, ge=1, description="iterations a run may take")
    minutes: float | None = Field(default=60, gt=0, description="active minutes a run may take")
    cost: float | None = Field(default=None, gt=0, description="US dollars a run may spend")
    tokens: int | None = Field(default=None, ge=1, description="tokens a run may use")


class TurnSettings(_Section):
    """What one turn may take."""

    minutes: float = Field(default=60, gt=0, description="minutes after which a turn is ended")
    idle_minutes: float = Field(default=15, gt=0, description="minutes without output after which a turn is ended")
    grace_seconds: float = Field(default=5, ge=0, description="seconds between asking a turn to end and killing it")


class LoopSettings(_Section):
    """How a loop works."""

    confirm: int = Field(default=1, ge=1, le=20, description="how often in a row the checks must pass on the same tree")
    on_stuck: Literal["stop", "ask", "continue"] = Field(
        default="stop", description="what follows where the same failure comes again and again"
    )
    reflector: bool = Field(default=False, description="whether a turn of its own reflects on every failed iteration")
    commit: bool = Field(default=False, description="whether every iteration is committed")
    recall: bool = Field(default=True, description="whether prompts tell what loops before this one learned")


class RetentionSettings(_Section):
    """What `ralph clean` keeps."""

    runs: int = Field(default=20, ge=0, description="the latest ended runs that are kept")
    days: float = Field(default=30, ge=0, description="days for which every ended run is kept")


class Config(_Section):
    """All settings."""

    agent: str | None = Field(default=None, description="the agent that does the turns")
    agent_command: str | None = Field(default=None, description="any program as the agent")
    scenario: str | None = Field(default=None, description="the scenario file of the scripted agent")
    limits: LimitSettings = LimitSettings()
    turn: TurnSettings = TurnSettings()
    loop: LoopSettings = LoopSettings()
    check_timeout: float = Field(default=600, gt=0, description="seconds after which a check is ended")
    snapshots: bool = Field(default=True, description="whether the tree is recorded after every turn")
    push: bool = Field(default=False, description="whether agents may push to remote repositories")
    permissions: Literal["ask", "full-auto"] = Field(
        default="ask", description="`full-auto` says that agents may act here without being asked about"
    )
    retention: RetentionSettings = RetentionSettings()


def parse(text: str, name: str) -> Config:
    """The settings in a file, or one error that names every fault with its line."""
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
        return Config()
    if not isinstance(data, CommentedMap):
        raise UsageError("the file must hold `key: value` lines", where=name)
    try:
        return Config.model_validate(data)
    except ValidationError as error:
        faults = [_fault(fault, data, name) for fault in error.errors()]
        raise UsageError(
            "\n".join(faults), where=name, todo="correct the file; docs/reference.md lists the keys"
        ) from None


def _fault(fault: Any, data: CommentedMap, name: str) -> str:
    path = [str(part) for part in fault["loc"]]
    where = f"line {_line(path, data)}: `{'.'.join(path)}`"
    if fault["type"] != "extra_forbidden":
        return f"{where}: {fault['msg']}"
    near = difflib.get_close_matches(path[-1], _known(path[:-1]), 1)
    return f"{where} is not a setting" + (f"; did you mean `{near[0]}`?" if near else "")


def _line(path: list[str], data: CommentedMap) -> int:
    node: Any = data
    line = 1
    for part in path:
        if not isinstance(node, CommentedMap) or part not in node:
            break
        line = node.lc.key(part)[0] + 1
        node = node[part]
    return line


def _known(path: list[str]) -> list[str]:
    model: Any = Config
    for part in path:
        model = model.model_fields[part].annotation
    return list(model.model_fields)
