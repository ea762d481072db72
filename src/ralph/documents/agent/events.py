"""Event lines: what agents publish, one JSON object a line with `topic`, `payload` and `ts`."""

from ralph.documents.agent.json_text import dumps, loads

PAYLOAD_LIMIT = 16_000
"""Characters of a payload: what is longer belongs into a file."""
TOPIC_LIMIT = 200


class Event:
    """One event; what Ralph does not know in its line stays there."""

    __slots__ = ("row",)

    def __init__(self, row: dict[str, object]) -> None:
        self.row = row

    def __repr__(self) -> str:
        return f"Event({self.row})"

    @property
    def topic(self) -> str:
        """What it is about."""
        return str(self.row.get("topic", ""))

    @property
    def payload(self) -> object:
        """What it says: text, or any JSON value."""
        return self.row.get("payload")

    @property
    def ts(self) -> str:
        """When it was published."""
        return str(self.row.get("ts", ""))

    @property
    def text(self) -> str:
        """The payload as text."""
        payload = self.payload
        return payload if isinstance(payload, str) else "" if payload is None else dumps(payload)


def line(topic: str, payload: object, ts: str, **more: object) -> bytes:
    """An event as a line."""
    return (dumps({"topic": topic, "payload": payload, "ts": ts, **more}) + "\n").encode(errors="backslashreplace")


def parse(data: bytes) -> tuple[list[Event], list[tuple[int, str, str]], int]:
    """The events in whole lines, the lines that are none (number, what is wrong, the line), and how many bytes these lines have.

    A last line without an end is somebody's who is still writing: it is not counted, and read the next time.
    """
    whole = data[: data.rfind(b"\n") + 1]
    events: list[Event] = []
    broken: list[tuple[int, str, str]] = []
    for number, text in enumerate(whole.decode(errors="replace").split("\n")[:-1], 1):
        if not text.strip():
            continue
        try:
            events.append(_read(text))
        except ValueError as error:
            broken.append((number, str(error), text))
    return events, broken, len(whole)


def fault_of_topic(topic: str) -> str:
    """What is wrong with a topic; empty where it can be published."""
    if not topic:
        return "the topic is empty"
    if len(topic) > TOPIC_LIMIT:
        return f"the topic is longer than {TOPIC_LIMIT} characters"
    if "*" in topic:
        return f"{topic!r} is a pattern: events are published under one topic"
    if not all(part and all(letter.isalnum() or letter in "_-:" for letter in part) for part in topic.split(".")):
        return f"{topic!r} is not a topic: letters, digits, _, - and :, in parts that dots divide, as in build.done"
    return ""


def matches(pattern: str, topic: str) -> bool:
    """Whether a topic is one that a pattern means: `*` alone is every topic, within a pattern one part."""
    if pattern == "*":
        return True
    wanted, given = pattern.split("."), topic.split(".")
    return len(wanted) == len(given) and all(want in ("*", part) for want, part in zip(wanted, given, strict=True))


def _read(text: str) -> Event:
    row = loads(text)
    if not isinstance(row, dict):
        raise ValueError("it is not an object")
    if not isinstance(row.get("topic"), str):
        raise ValueError("it has no topic")
    if fault := fault_of_topic(row["topic"]):
        raise ValueError(fault)
    return Event(row)
