"""What a hat may publish, as a few plain values: `ralph emit` refuses at once what the engine would refuse afterwards."""

from ralph.documents.agent.events import matches
from ralph.documents.agent.json_text import loads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

ACKNOWLEDGED, ASK = "human.guidance.ack", "human.interact"
RULES = "RALPH_PUBLISHES"
"""The variable that tells a turn's tools what it may publish, as JSON. `own`: the topics that the hat lists; null for the
coordinator. `strict`: whether it may publish nothing else. `gates`: topics that count only from others, with those others.
`requires`: the keys that a payload must have, by topic."""
NOTHING = {"own": [], "strict": True}
"""The rules of a turn that wears no hat: nobody would take what it publishes."""


def fault_of(rules: object, topic: str, payload: str) -> str:
    """Why an event may not be published; empty if it may."""
    known = rules if isinstance(rules, dict) else {}
    own, gates, requires = known.get("own"), known.get("gates"), known.get("requires")
    if topic == ACKNOWLEDGED:
        return ""
    if topic == ASK:
        return f"`{topic}` is not published: ask with `ralph tools interact ask`"
    if topic.startswith("human."):
        return f"`{topic}` is only for the user to say"
    if isinstance(gates, dict) and topic in gates:
        keepers = ", ".join(gates[topic])
        if not keepers:
            return f"`{topic}` counts from nobody: no hat lists it in `publishes`"
        lists = "" if keepers == "ralph" else ", which lists it in `publishes`"
        return f"`{topic}` counts only from {keepers}{lists}"
    if known.get("strict") and isinstance(own, list) and not any(matches(one, topic) for one in own):
        return f"`{topic}` is not yours to publish"
    wanted = requires.get(topic, ()) if isinstance(requires, dict) else ()
    if missing := [key for key in wanted if not has_key(payload, key)]:
        return f"`{topic}` lacks {', '.join(missing)} in its payload"
    return ""


def advice_for(rules: object, topic: str) -> str:
    """What to do instead of publishing what was refused."""
    known = rules if isinstance(rules, dict) else {}
    own, gates, requires = known.get("own"), known.get("gates"), known.get("requires")
    if isinstance(requires, dict) and requires.get(topic) and not (isinstance(gates, dict) and topic in gates):
        return "add to the payload: " + ", ".join(f"`{key}: ...`" for key in requires[topic])
    if isinstance(own, list):
        return f"publish one of: {', '.join(own)}" if own else "end the turn: there is nothing for you to publish"
    return "publish an event that gives that hat its turn"


def has_key(payload: str, key: str) -> bool:
    """Whether a payload, JSON or text, says something for a key."""
    try:
        data = loads(payload) if payload.lstrip().startswith("{") else None
    except ValueError:
        data = None
    if isinstance(data, dict):
        return data.get(key) not in (None, "", [], {})
    return any(_is_said(before, after) for before, after in _around(payload, key))


def _around(text: str, key: str) -> "Iterator[tuple[str, str]]":
    """What stands before and after a word, wherever it is in a text; by hand, because importing `re` takes too long."""
    at = text.find(key)
    while at >= 0:
        yield text[:at][-1:], text[at + len(key) :][:200]
        at = text.find(key, at + 1)


def _is_said(before: str, after: str) -> bool:
    """Whether a value follows, as in `key: value`, and the key is no part of another word."""
    sign, value = after.lstrip()[:1], after.lstrip()[1:].lstrip()
    value = value[1:] if value[:1] in ("'", '"', "`") else value
    apart = not (before.isalnum() or before in ("_", "-"))
    return apart and sign in (":", "=") and (value[:1].isalnum() or value[:1] == "_")
