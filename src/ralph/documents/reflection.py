"""Reflections: what an iteration did, how it was judged, and what to try next, as YAML that users read and edit.

One is written in every iteration, and thousands are read for a recall.
"""

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from functools import cache
from typing import Any, get_type_hints

from ralph.core.codec import format_time, from_plain, parse_time, to_plain
from ralph.core.errors import StateError
from ralph.documents.yaml_codec import SIZE_LIMIT, YamlError, YamlRules, dump, load_mapping

HOME = ".aiwg/ralph/reflections"
SCHEMA = 1
CORRECT = "correct the file, or delete it: only this memory is lost"


@dataclass(frozen=True)
class ReflectedCheck:
    """One check of the evaluator, as far as it teaches something."""

    title: str
    status: str
    reason: str = ""
    attribution: str = ""
    value: float | None = None
    tests_passed: int | None = None
    tests_failed: int | None = None


@dataclass(frozen=True)
class Reflection:
    """One iteration through three pairs of eyes: who acted, who judged, who learned."""

    loop: str
    iteration: int
    at: float
    task: str
    task_type: str
    outcome: str
    """`success` or `failure`."""
    action: str
    """What the actor did, in its words."""
    role: str = "implementer"
    files: int = 0
    added: int = 0
    removed: int = 0
    checks: tuple[ReflectedCheck, ...] = ()
    gaming: tuple[str, ...] = ()
    """What the guards found, a sentence each."""
    reward: float = 0.0
    """How good the work was, from 0 to 1."""
    reward_before: float | None = None
    what_failed: str = ""
    why: str = ""
    try_next: str = ""
    strategy: str = ""
    """`pivot` where a fundamentally different approach was asked for."""
    used: tuple[int, ...] = ()
    """The iterations whose reflections the actor was given."""
    window: int = 0
    """How many it could have been given."""

    @property
    def succeeded(self) -> bool:
        """Whether the iteration passed its checks and its guards."""
        return self.outcome == "success"

    @property
    def reward_change(self) -> float | None:
        """How much better the work became."""
        return None if self.reward_before is None else round(self.reward - self.reward_before, 6)

    @property
    def is_improvement(self) -> bool | None:
        """Whether it became better."""
        return None if self.reward_before is None else self.reward > self.reward_before

    @property
    def text(self) -> str:
        """The reflection in the first person: credit, cause, next action."""
        did = _sentence(self.action) if self.action.strip() else "nothing that I could name."
        if self.succeeded:
            return f"What I did made every check pass: {did}"
        failed = self.what_failed or "; ".join(self.gaming) or "the checks do not pass yet"
        cause = f" I think the cause is: {_sentence(self.why)}" if self.why else ""
        then = f" Next I will try: {_sentence(self.try_next)}" if self.try_next else ""
        return f"What I did was not enough: {did} What failed: {_sentence(failed)}{cause}{then}"


_KEYS = {
    "loop": "loop_id",
    "iteration": "iteration",
    "at": "timestamp",
    "task": "task_description",
    "task_type": "task_type",
    "outcome": "outcome",
    "action": "actor_output.summary",
    "role": "actor_output.role",
    "files": "actor_output.files_changed",
    "added": "actor_output.lines_added",
    "removed": "actor_output.lines_deleted",
    "succeeded": "evaluator_output.passed",
    "reward": "evaluator_output.reward_signal",
    "checks": "evaluator_output.results",
    "gaming": "evaluator_output.gaming",
    "what_failed": "self_reflection.what_failed",
    "why": "self_reflection.why",
    "try_next": "self_reflection.try_next",
    "text": "self_reflection.reflection_text",
    "window": "memory_metadata.omega_capacity",
    "used": "memory_metadata.reflections_in_context",
    "reward_before": "performance_delta.reward_before",
    "reward_change": "performance_delta.reward_change",
    "is_improvement": "performance_delta.is_improvement",
    "strategy": "strategy",
}
"""Where in the file everything is. Derived values are written for the user, and not read."""


def render(reflection: Reflection) -> str:
    """The file's text."""
    data: dict[str, Any] = {"schema": SCHEMA}
    for name, key in _KEYS.items():
        section, _, inside = key.rpartition(".")
        (data.setdefault(section, {}) if section else data)[inside] = getattr(reflection, name)
    data["timestamp"] = format_time(reflection.at)
    data["evaluator_output"]["results"] = [to_plain(check) for check in reflection.checks]
    return dump(data)


def parse(text: str, where: str) -> Reflection:
    """The reflection in a file, edited by hand or not; what is wrong with it is named by its key."""
    data = load(text, where)
    given: dict[str, Any] = {}
    for field in fields(Reflection):
        key = _KEYS[field.name]
        value = _at(data, key)
        if value is not None:
            given[field.name] = _value(field.name, value, f"{where}: {key}")
        elif field.default is MISSING:
            raise StateError(f"the key `{key}` is missing", where=where, todo=CORRECT)
    if given["outcome"] not in ("success", "failure"):
        what = f"expected success or failure, found {given['outcome'][:80]!r}"
        raise StateError(what, where=f"{where}: outcome", todo=CORRECT)
    return Reflection(**given)


def load(text: str, where: str, limit: int = SIZE_LIMIT) -> dict[str, Any]:
    """The mapping of this schema version that a file of the memory holds, or a StateError; moments stay text."""
    try:
        data: dict[str, Any] = load_mapping(text, YamlRules(size_limit=limit)).data
    except YamlError as error:
        place = where if error.line is None else f"{where}, line {error.line}"
        raise StateError(error.what, where=place, todo=CORRECT) from error
    if data.get("schema") != SCHEMA:
        what = f"`schema` is {str(data.get('schema'))[:40]}; this Ralph reads version {SCHEMA}"
        raise StateError(what, where=where, todo="use the version of ralph-engine that wrote it, or delete the file")
    return data


def lesson(reflection: Reflection, most: int = 400) -> str:
    """The reflection on one line of limited length."""
    r = reflection
    if r.succeeded:
        return fit_parts((("", r.action), ("this passed", ""), ("because ", r.why)), most)
    cause = r.why or r.what_failed or " ".join(r.gaming)
    return fit_parts(
        (("tried: ", r.action), ("failed because " if cause else "failed", cause), ("next: ", r.try_next)), most
    )


def fit_parts(parts: Sequence[tuple[str, str]], most: int) -> str:
    """Labelled texts on one line; if they are too long together, the longest give way first.

    A part whose text is empty is left out, unless its label says something on its own.
    """
    said = [
        (label, _without_period(text)) for label, text in parts if text.strip() or (label and label[-1] not in " :")
    ]
    room = most - sum(len(label) for label, _ in said) - 2 * max(0, len(said) - 1)
    share: dict[int, int] = {}
    for turn, index in enumerate(sorted(range(len(said)), key=lambda i: len(said[i][1]))):
        share[index] = max(0, min(len(said[index][1]), room // (len(said) - turn)))
        room -= share[index]
    return "; ".join(label + _cut(text, share[i]) for i, (label, text) in enumerate(said))[: max(0, most)]


def _without_period(text: str) -> str:
    """A text on one line. Other text follows it after a semicolon, so it ends without a period."""
    line = " ".join(text.split())
    return line if line.endswith("..") else line.removesuffix(".")


def _sentence(text: str) -> str:
    return _cut(" ".join(text.split()), 300).rstrip(".") + "."


def _cut(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    return f"{text[: most - 1].rstrip()}…" if most > 0 else ""


def _at(data: Mapping[str, Any], key: str) -> Any:
    section, _, name = key.rpartition(".")
    if not section:
        return data.get(name)
    inside = data.get(section)
    return inside.get(name) if isinstance(inside, dict) else None


def _without_nulls(check: Any) -> Any:
    if not isinstance(check, dict):
        return check
    return {key: value for key, value in check.items() if value is not None}


def _value(name: str, value: Any, where: str) -> Any:
    """A value of the field's type. An empty key counts as missing, and a number counts as text."""
    kind = _hints()[name]
    if type(value) is kind and name != "at":
        return value
    if name == "at":
        try:
            return parse_time(value)
        except (ValueError, TypeError, OverflowError):
            raise StateError(f"not a date and time: {str(value)[:80]!r}", where=where, todo=CORRECT) from None
    if name == "checks" and isinstance(value, list):
        value = [_without_nulls(check) for check in value]
    if kind is str and isinstance(value, int | float):
        return str(value)
    try:
        return from_plain(kind, value, where)
    except StateError as error:
        raise StateError(error.what, where=error.where, todo=CORRECT) from None


@cache
def _hints() -> dict[str, Any]:
    return get_type_hints(Reflection)
