"""Signal files: what users put into a mailbox, and what Ralph adds when it handles a signal."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from ralph.core.errors import StateError
from ralph.core.signals import Signal, SignalType, normalize_target
from ralph.documents.session.values import render_timestamp
from ralph.documents.yaml_codec import YamlError, YamlRules, dump, edit, load

SIZE_LIMIT = 64 * 1024
_BY_CHARS = 120


def parse_signal(name: str, text: str) -> Signal:
    """The signal in a file, or a StateError with the reason why it is none."""
    try:
        data = load(text, YamlRules(size_limit=SIZE_LIMIT, allow_repeated_keys=False)).data
    except YamlError as error:
        raise StateError(error.what, where=name if error.line is None else f"{name}, line {error.line}") from error
    if not isinstance(data, dict):
        raise StateError("a signal is a mapping with at least `type:`", where=name)
    word, known = data.get("type"), ", ".join(SignalType)
    if word is None or word == "":
        raise StateError(f"the signal has no `type:`; add one of {known}", where=name)
    try:
        kind = SignalType.parse(str(word))
    except ValueError:
        raise StateError(f"unknown type {word!r}; known values: {known}", where=name) from None
    message = _read_text(data, "message", name)
    if kind in (SignalType.STEER, SignalType.INFO) and not message.strip():
        raise StateError(f"{kind} needs a message", where=name)
    return Signal(
        name,
        kind,
        message,
        target=normalize_target(_read_text(data, "target", name)),
        iteration=_read_iteration(data.get("iteration"), name),
        items=_read_items(data.get("items"), name),
        now=data.get("now") is True,
        by=_read_text(data, "by", name)[:_BY_CHARS],
    )


def _read_text(data: Mapping[Any, Any], key: str, name: str) -> str:
    value = data.get(key)
    if isinstance(value, dict | list):
        raise StateError(f"the {key} of a signal is text", where=name)
    return "" if value is None else str(value)


def _read_iteration(value: object, name: str) -> int | None:
    if value is None:
        return None
    try:
        number = int(str(value))
    except ValueError:
        number = -1
    if not 0 <= number < 1_000_000:
        raise StateError(f"the iteration of a signal is a number, not {str(value)[:40]!r}", where=name)
    return number


def _read_items(value: object, name: str) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise StateError("the items of a signal are a list of names", where=name)
    return tuple(value)


def render_signal(signal: Signal) -> str:
    """A signal file as Ralph itself writes it."""
    facts = {
        "type": signal.type.value,
        "target": signal.target or "ALL",
        "message": signal.message,
        "iteration": signal.iteration,
        "items": list(signal.items),
        "now": signal.now,
        "by": signal.by,
    }
    return dump({name: value for name, value in facts.items() if value or name == "message"})


def record_delivery(text: str, *, action: str, at: datetime) -> str:
    """The processed file of a signal to one role, with when that role received it."""
    data = load(text, YamlRules(size_limit=SIZE_LIMIT)).data
    known = data.get("handling_metadata") if isinstance(data, dict) else None
    handling = {**(known or {}), "action_taken": action, "delivered_at": _render_stamp(at)}
    return edit(text, {"handling_metadata": handling})


def record_handling(text: str, *, action: str, at: datetime, missed: tuple[str, ...] | None = None) -> str:
    """The file as it was written, comments and unknown keys included, with what was done about it.

    `missed` are the roles that a signal to all did not reach; None if it was not for the roles.
    """
    handling: dict[str, object] = {"handled_by": "Ralph", "handled_at": _render_stamp(at), "action_taken": action}
    if missed is not None:
        handling |= {"delivery_status": "partial" if missed else "delivered", "unacked_agents": list(missed)}
    return edit(text, {"handling_metadata": handling})


def render_ack(signal: Signal, role: str, at: datetime, facts: Mapping[str, object]) -> str:
    """That a role has taken a signal in: how, by which turn, and what came of it."""
    return dump({"signal": signal.name, "type": signal.type.value, "role": role, "at": _render_stamp(at), **facts})


def _render_stamp(at: datetime) -> str:
    """The local time with its offset, as in the other files of a session."""
    return render_timestamp(at.astimezone())
