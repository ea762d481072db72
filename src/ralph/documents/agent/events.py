"""The events that agents publish, one JSON object per line with `topic`, `payload` and `ts`, and who may publish them.

Also reads and writes the JSON of all files that agents share: strict when read, compact UTF-8 when written.
"""

import json

# `typing` takes too long to import: agents wait for these commands.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PAYLOAD_LIMIT = 16_000
"""The most characters of a payload. Longer texts belong into a file."""
TOPIC_LIMIT = 200


class EventLine:
    """The line of one event. Keys that Ralph does not know are preserved."""

    __slots__ = ("row",)

    def __init__(self, row: dict[str, object]) -> None:
        self.row = row

    def __repr__(self) -> str:
        return f"EventLine({self.row})"

    @property
    def topic(self) -> str:
        return str(self.row.get("topic", ""))

    @property
    def payload(self) -> object:
        """Text, or any JSON value."""
        return self.row.get("payload")

    @property
    def ts(self) -> str:
        """The time at which it was published."""
        return str(self.row.get("ts", ""))

    @property
    def text(self) -> str:
        """The payload as text."""
        if self.payload is None:
            return ""
        return self.payload if isinstance(self.payload, str) else dump_json(self.payload)


def render_event(topic: str, payload: object, ts: str, **more: object) -> bytes:
    """An event as a line."""
    return (dump_json({"topic": topic, "payload": payload, "ts": ts, **more}) + "\n").encode(errors="backslashreplace")


REFUSED_EVENTS = "refused.jsonl"
"""The file beside the events of a turn with those that `ralph emit` refused."""
REFUSED_EXIT = 2
"""The exit code of `ralph emit` for an event that it refuses."""


def parse_refusals(text: str) -> list[str]:
    """Why events of a turn were refused, each reason once."""
    found, _, _ = parse_events(text.encode(errors="replace"))
    return list(dict.fromkeys(one.text for one in found))


def parse_events(data: bytes) -> tuple[list[EventLine], list[tuple[int, str, str]], int]:
    """The events of complete lines, the invalid lines (number, fault, text), and the number of bytes of complete lines.

    A last line without a line break may still be written. It is not counted, and is read the next time.
    """
    whole = data[: data.rfind(b"\n") + 1]
    events: list[EventLine] = []
    broken: list[tuple[int, str, str]] = []
    for number, text in enumerate(whole.decode(errors="replace").split("\n")[:-1], 1):
        if not text.strip():
            continue
        try:
            events.append(_parse_event(text))
        except ValueError as error:
            broken.append((number, str(error), text))
    return events, broken, len(whole)


def _is_topic_part(part: str) -> bool:
    """Whether a text can stand between two dots of a topic."""
    return bool(part) and all(letter.isalnum() or letter in "_-:" for letter in part)


def find_topic_fault(topic: str) -> str:
    """What is wrong with a topic; empty if it can be published."""
    if not topic:
        return "the topic is empty"
    if len(topic) > TOPIC_LIMIT:
        return f"the topic is longer than {TOPIC_LIMIT} characters"
    if "*" in topic:
        return f"{topic!r} is a pattern: events are published under one topic"
    if not all(map(_is_topic_part, topic.split("."))):
        return f"{topic!r} is not a topic: letters, digits, _, - and :, in parts separated by dots, as in build.done"
    return ""


def topic_matches(pattern: str, topic: str) -> bool:
    """Whether a topic matches a pattern. `*` alone matches every topic; as a part of a pattern it matches one part."""
    if pattern == "*":
        return True
    expected, parts = pattern.split("."), topic.split(".")
    return len(expected) == len(parts) and all(one in ("*", part) for one, part in zip(expected, parts, strict=True))


def _parse_event(text: str) -> EventLine:
    row = load_json(text)
    if not isinstance(row, dict):
        raise ValueError("it is not an object")
    if not isinstance(row.get("topic"), str):
        raise ValueError("it has no topic")
    if fault := find_topic_fault(row["topic"]):
        raise ValueError(fault)
    return EventLine(row)


COORDINATOR = "ralph"
"""The hat that receives events that no other hat receives, as files and variables name it. Other tools know this name."""
ACKNOWLEDGED, ASK = "human.guidance.ack", "human.interact"
PUBLISH_RULES_VARIABLE = "RALPH_PUBLISHES"
"""The variable with the rules for what a turn may publish, as JSON. `own`: the topics that the hat lists; null for the
coordinator. `strict`: whether it may publish nothing else. `reserved`: topics that only other hats may publish, with those hats.
`requires`: the keys that a payload must have, by topic. `completion`: the completion promise. If the turn may publish the
promise: `unfinished`, the `topics` that contradict it, as patterns, `except` for some; and `required`, the topics
that must come before it, each with why it did not let the run complete when the turn began (empty if it did)."""
NO_PUBLISHING = {"own": [], "strict": True}
"""The rules of a turn without a hat: no hat would receive its events."""


def find_publish_fault(rules: object, topic: str, payload: str) -> str:
    """Why an event may not be published; empty if it may."""
    known = rules if isinstance(rules, dict) else {}
    own, reserved, requires = known.get("own"), known.get("reserved"), known.get("requires")
    if topic == ACKNOWLEDGED:
        return ""
    if topic == ASK:
        return f"`{topic}` is not published: ask with `ralph tools interact ask`"
    if topic.startswith("human."):
        return f"`{topic}` cannot be published: `human.*` topics are reserved; the user runs `ralph steer` or `ralph answer`"
    if isinstance(reserved, dict) and topic in reserved:
        allowed = reserved[topic]
        if not allowed:
            return f"no hat may publish `{topic}`: none lists it in `publishes`"
        names = ", ".join("the coordinator" if one == COORDINATOR else one for one in allowed)
        lists = "" if COORDINATOR in allowed else ", which lists it in `publishes`"
        return f"`{topic}` counts only from {names}{lists}"
    if known.get("strict") and isinstance(own, list) and not any(topic_matches(one, topic) for one in own):
        return f"`{topic}` is not yours to publish"
    wanted = requires.get(topic, ()) if isinstance(requires, dict) else ()
    if missing := [key for key in wanted if not payload_has_key(payload, key)]:
        return f"`{topic}` lacks {', '.join(missing)} in its payload"
    return ""


FAILURES = ("failed", "rejected", "blocked")
"""The last part of topics that report a failure."""


def find_contradiction(rules: object, topics: "Iterable[str]") -> str:
    """The first of a turn's topics that contradicts the completion promise: it reports a failure, or asks for more work.

    Empty if there is none.
    """
    unfinished = rules.get("unfinished") if isinstance(rules, dict) else None
    if not isinstance(unfinished, dict):
        return ""
    for topic in topics:
        if topic in unfinished["except"]:
            continue
        if topic.rpartition(".")[2] in FAILURES or any(topic_matches(one, topic) for one in unfinished["topics"]):
            return topic
    return ""


def find_family(topic: str) -> str:
    """The family of a topic: the part before its last dot. Of each family, the latest event counts."""
    return topic.rpartition(".")[0] or topic


def list_gate_blockers(rules: object, topics: "Iterable[str]") -> list[str]:
    """Why required events do not let the run complete after a turn has published these topics."""
    required = rules.get("required") if isinstance(rules, dict) else None
    if not isinstance(required, dict):
        return []
    reasons = dict(required)
    for topic in topics:
        if topic in required:
            reasons[topic] = ""
            continue
        for one in required:
            if find_family(one) == find_family(topic):
                reasons[one] = f"the latest event is `{topic}`, not `{one}`"
    return [reason for reason in reasons.values() if reason]


def advise_instead(rules: object, topic: str) -> str:
    """What to do instead of publishing what was refused."""
    known = rules if isinstance(rules, dict) else {}
    own, reserved, requires = known.get("own"), known.get("reserved"), known.get("requires")
    if isinstance(requires, dict) and requires.get(topic) and not (isinstance(reserved, dict) and topic in reserved):
        return "add to the payload: " + ", ".join(f"`{key}: ...`" for key in requires[topic])
    if isinstance(own, list):
        own = [one for one in own if one != topic]
        return f"publish one of: {', '.join(own)}" if own else "end the turn: there is nothing for you to publish"
    return "publish an event that gives that hat its turn"


def payload_has_key(payload: str, key: str) -> bool:
    """Whether a payload, JSON or text, has a value for a key."""
    try:
        data = load_json(payload) if payload.lstrip().startswith("{") else None
    except ValueError:
        data = None
    if isinstance(data, dict):
        return data.get(key) not in (None, "", [], {})
    return any(_has_value(before, after) for before, after in _find_word(payload, key))


def _find_word(text: str, key: str) -> "Iterator[tuple[str, str]]":
    """The text before and after each occurrence of a word. Importing `re` would take too long."""
    at = text.find(key)
    while at >= 0:
        yield text[:at][-1:], text[at + len(key) :][:200]
        at = text.find(key, at + 1)


def _has_value(before: str, after: str) -> bool:
    """Whether a value follows, as in `key: value`, and the key is not a part of another word."""
    sign, value = after.lstrip()[:1], after.lstrip()[1:].lstrip()
    value = value[1:] if value[:1] in ("'", '"', "`") else value
    apart = not (before.isalnum() or before in ("_", "-"))
    return apart and sign in (":", "=") and (value[:1].isalnum() or value[:1] == "_")


MAX_DEPTH = 100
"""Deeper values are refused: the encoder could not write them again."""


def load_json(text: str) -> object:
    """Parse a JSON text. Raises ValueError with what is wrong, also for NaN, Infinity and values nested too deep."""
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError(f"it is nested more than {MAX_DEPTH} deep") from None
    if text.count("[") + text.count("{") > MAX_DEPTH and _is_deeper(value, MAX_DEPTH):
        raise ValueError(f"it is nested more than {MAX_DEPTH} deep")
    return value


def dump_json(value: object, indent: int | None = None) -> str:
    """Write a value as JSON: on one line without spaces, as other tools for these files do, or indented."""
    separators = (",", ":") if indent is None else None
    return json.dumps(value, indent=indent, separators=separators, ensure_ascii=False)


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


def _is_deeper(value: object, depth: int) -> bool:
    items: list[object] = []
    if isinstance(value, dict):
        items = list(value.values())
    elif isinstance(value, list):
        items = value
    return any(depth == 0 or _is_deeper(item, depth - 1) for item in items)
