"""Required events: the last word of a topic family counts, and only from a hat that owns the topic.

The family of `review.passed` is `review`: a later `review.rejected` or `review.ready` makes the pass stale. If payloads carry a
`task_id`, this holds for each task by itself.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from ralph.documents.hats.definition import HatsSettings

NAMED = 3
"""Tasks that a reason names at most."""
_TASK_ID = re.compile(r"(?<![\w-])task_id[\"'`]?\s*[:=]\s*[\"'`]?(\w[\w.:-]*\w|\w)")


@dataclass(frozen=True)
class Gate:
    """What was said about one required topic so far."""

    passed: bool = False
    """Whether a hat that owns it has published it."""
    stale: Mapping[str, str] = field(default_factory=dict)
    """The last word, by `task_id`, if it is another of the family; the empty id stands for events without one."""


def record_word(
    settings: HatsSettings, gates: Mapping[str, Gate], topic: str, payload: str, *, source: str, default: bool
) -> Mapping[str, Gate]:
    """The gates after one more event."""
    touched = [one for one in settings.required if _family(one) == _family(topic)]
    if not touched:
        return gates
    task = task_id(payload)
    after = dict(gates)
    for required in touched:
        gate = gates.get(required, Gate())
        if topic == required:
            keepers = settings.gatekeepers(topic)
            if not default and (keepers is None or source in keepers):
                after[required] = _pass(gate, task)
        elif topic not in settings.required:
            after[required] = replace(gate, stale={**_without(gate.stale, ""), task: topic})
    return after


def gate_reasons(settings: HatsSettings, gates: Mapping[str, Gate], given_up: Collection[str]) -> list[str]:
    """Why required events keep the run from being done. Tasks in `given_up` failed for good and need no pass."""
    reasons = []
    for topic in settings.required:
        gate = gates.get(topic, Gate())
        stale = {task: word for task, word in gate.stale.items() if task not in given_up}
        if not gate.passed:
            who = " or ".join(settings.gatekeepers(topic) or ()) or "nobody"
            verb = "published" if who == "nobody" else "has not published"
            reasons.append(f"{who} {verb} `{topic}` in this run")
        elif stale:
            words = [f"the last word{f' on {task}' if task else ''} is `{word}`" for task, word in stale.items()]
            more = f" and {len(words) - NAMED} more" if len(words) > NAMED else ""
            reasons.append(f"{', '.join(words[:NAMED])}{more}, not `{topic}`")
    return reasons


def task_id(payload: str) -> str:
    """The `task_id` in a payload, JSON or text; empty if there is none."""
    found = _TASK_ID.search(payload)
    return found[1] if found else ""


def _pass(gate: Gate, task: str) -> Gate:
    """A pass without a `task_id` is about all tasks; one with an id is also later than every word without one."""
    if not task:
        return Gate(passed=True)
    return Gate(passed=True, stale=_without(_without(gate.stale, task), ""))


def _without(words: Mapping[str, str], task: str) -> dict[str, str]:
    return {one: word for one, word in words.items() if one != task}


def _family(topic: str) -> str:
    return topic.rpartition(".")[0] or topic
