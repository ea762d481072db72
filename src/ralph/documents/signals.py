"""Signal files: what people drop into a mailbox, and what is added when a signal was taken."""

import io
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.events import AliasEvent, CollectionEndEvent, CollectionStartEvent

from ralph.core.errors import StateError
from ralph.core.signals import Signal, SignalType, addressee
from ralph.documents.session.yaml_lines import YamlLines

SIZE_LIMIT = 64 * 1024
DEEPEST = 20


def parse(name: str, text: str) -> Signal:
    """The signal in a file, or a StateError with the reason why it is none."""
    try:
        _refuse_bombs(name, text)
        data = YAML(typ="safe", pure=True).load(text)
    except (YAMLError, ArithmeticError, ValueError, TypeError, AttributeError, LookupError, RecursionError) as error:
        raise StateError(f"not readable as YAML: {' '.join(str(error).split())[:200]}", where=name) from error
    if not isinstance(data, dict):
        raise StateError("a signal is a mapping with at least `type:`", where=name)
    word = data.get("type")
    try:
        kind = SignalType.named(str(word))
    except ValueError:
        known = ", ".join(SignalType)
        raise StateError(f"unknown type {word!r}; known are {known}", where=name) from None
    message = _text(data, "message", name)
    if kind in (SignalType.STEER, SignalType.INFO) and not message.strip():
        raise StateError(f"{kind} without a message says nothing", where=name)
    return Signal(
        name,
        kind,
        message,
        target=addressee(_text(data, "target", name)),
        iteration=_iteration(data.get("iteration"), name),
        items=_items(data.get("items"), name),
        now=data.get("now") is True,
    )


def _text(data: Mapping[Any, Any], key: str, name: str) -> str:
    value = data.get(key)
    if isinstance(value, dict | list):
        raise StateError(f"the {key} of a signal is text", where=name)
    return "" if value is None else str(value)


def _iteration(value: object, name: str) -> int | None:
    if value is None:
        return None
    try:
        number = int(str(value))
    except ValueError:
        number = -1
    if not 0 <= number < 1_000_000:
        raise StateError(f"the iteration of a signal is a number, not {str(value)[:40]!r}", where=name)
    return number


def _items(value: object, name: str) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise StateError("the items of a signal are a list of names", where=name)
    return tuple(value)


def _refuse_bombs(name: str, text: str) -> None:
    """Refuse what a few bytes make large or slow: aliases, and nesting deeper than any signal has."""
    depth = 0
    for event in YAML(typ="safe", pure=True).parse(io.StringIO(text)):
        depth += isinstance(event, CollectionStartEvent) - isinstance(event, CollectionEndEvent)
        if isinstance(event, AliasEvent):
            raise StateError("a signal has no use for aliases", where=name)
        if depth > DEEPEST:
            raise StateError(f"nested deeper than {DEEPEST} levels", where=name)


def render(signal: Signal) -> str:
    """A signal file as Ralph itself writes it."""
    facts = {
        "type": signal.type.value,
        "target": signal.target or "ALL",
        "message": signal.message,
        "iteration": signal.iteration,
        "items": list(signal.items),
        "now": signal.now,
    }
    return _dump({name: value for name, value in facts.items() if value or name == "message"})


def with_handling(text: str, *, action: str, at: datetime, missed: tuple[str, ...] | None = None) -> str:
    """The file as it was written, comments and unknown keys included, with what was done about it.

    `missed` are the roles that a signal to all did not reach; None where it was not for the roles.
    """
    handling: dict[str, object] = {"handled_by": "Ralph", "handled_at": _stamp(at), "action_taken": action}
    if missed is not None:
        handling |= {"delivery_status": "partial" if missed else "delivered", "unacked_agents": list(missed)}
    return YamlLines(text, "a signal").edited({"handling_metadata": handling})


def acknowledgement(signal: Signal, role: str, at: datetime, facts: Mapping[str, object]) -> str:
    """That a role has taken a signal in: how, by which turn, and what came of it."""
    return _dump({"signal": signal.name, "type": signal.type.value, "role": role, "at": _stamp(at), **facts})


def _stamp(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def _dump(data: object) -> str:
    yaml = YAML()
    yaml.default_flow_style = False
    buffer = io.StringIO()
    yaml.dump(data, buffer)
    return buffer.getvalue()
