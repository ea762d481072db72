"""Signal files: what people drop into a mailbox, and what is added when a signal was taken."""

import io
from datetime import datetime

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.events import AliasEvent, CollectionEndEvent, CollectionStartEvent

from ralph.core.errors import StateError
from ralph.core.signals import Signal, SignalType

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
    message = data.get("message")
    if isinstance(message, dict | list):
        raise StateError("the message of a signal is text", where=name)
    return Signal(name, kind, "" if message is None else str(message))


def _refuse_bombs(name: str, text: str) -> None:
    """Refuse what a few bytes make large or slow: aliases, and nesting deeper than any signal has."""
    depth = 0
    for event in YAML(typ="safe", pure=True).parse(io.StringIO(text)):
        depth += isinstance(event, CollectionStartEvent) - isinstance(event, CollectionEndEvent)
        if isinstance(event, AliasEvent):
            raise StateError("a signal has no use for aliases", where=name)
        if depth > DEEPEST:
            raise StateError(f"nested deeper than {DEEPEST} levels", where=name)


def render(signal: SignalType, message: str) -> str:
    """A signal file as Ralph itself writes it."""
    return _dump({"type": signal.value, "target": "ALL", "message": message})


def with_handling(text: str, *, action: str, at: datetime) -> str:
    """The file as it was written, comments and unknown keys included, with what was done about it."""
    body = text if not text or text.endswith("\n") else text + "\n"
    handling = {
        "handled_by": "Ralph",
        "handled_at": at.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "action_taken": action,
    }
    appended = body + _dump({"handling_metadata": handling})
    try:
        if "handling_metadata" in YAML(typ="safe", pure=True).load(appended):
            return appended
    except YAMLError:
        pass
    data = YAML().load(text)
    data["handling_metadata"] = handling
    return _dump(data)


def _dump(data: object) -> str:
    yaml = YAML()
    yaml.default_flow_style = False
    buffer = io.StringIO()
    yaml.dump(data, buffer)
    return buffer.getvalue()
