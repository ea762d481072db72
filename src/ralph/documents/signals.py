"""Signals as text: the files that users put into a mailbox, what Ralph adds when it handles a signal, and the user's messages
in a prompt, both new ones and those that hold for the whole run.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ralph.core.errors import StateError
from ralph.core.prompt import Place, PromptPart, fill_template, name_program, quote_text
from ralph.core.signals import MESSAGE_ONLY_TYPES, DatedSignal, Signal, SignalType, normalize_target
from ralph.core.turns import INBOX
from ralph.documents.session.values import render_timestamp
from ralph.documents.yaml_codec import YamlError, YamlRules, dump, edit, load

SIZE_LIMIT = 64 * 1024
_BY_CHARS = 120
GUIDANCE_FILE = "guidance.md"
"""The file of the inbox with every message in full, if the prompt has no room for all of them."""
IN_FORCE_BUDGET = 12_000
"""Characters of a prompt for messages that hold for the whole run."""
NEW_BUDGET = 20_000
"""Characters of a prompt for new messages."""
MESSAGE_BUDGET = 4000
"""Characters of a prompt for one message."""
_LINE_OVERHEAD = 32
"""Characters that the type and the time of a message take."""
_IN_FORCE = "These messages hold for the whole run, oldest first. If two contradict each other, follow the later one."
_ANSWER = (
    "Say in your `result.json` what you did about the STEER:"
    ' `"steering": {"response": "adjusted", "note": "one sentence"}`. The response is `restarted` if you redid work,'
    " `adjusted` if you included it, and `scope-change` if it asks for a different task."
)
_NO_STEER = "RESUME says how to continue. INFO and the text of a PAUSE need no action."
_CUT = f"(cut here; the whole message is in `{INBOX}/{GUIDANCE_FILE}`)"
POLL_FOR_MESSAGES = PromptPart(
    name="listen",
    text=name_program(
        "The user may send you messages while you work. Run `ralph tools signals` at the start, between steps and before you"
        " end. It prints new messages and how to respond to them, or that there are none."
    ),
    purpose="How to read messages while it works.",
    place=Place.MESSAGES,
    heading="# Messages while you work",
)
"""For agents without hooks and without live input."""


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
    if "to" in data:
        # The command line calls it --to. Without this, the message would go to everyone.
        raise StateError("a signal names its role as `target:`, not `to:`", where=name)
    message = _read_text(data, "message", name)
    if kind in MESSAGE_ONLY_TYPES and not message.strip():
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


def record_receipt(text: str, *, action: str, at: datetime) -> str:
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
    """The ack of a role: how and in which turn it received a signal, and how it responded."""
    return dump({"signal": signal.name, "type": signal.type.value, "role": role, "at": _render_stamp(at), **facts})


def _render_stamp(at: datetime) -> str:
    """The local time with its offset, as in the other files of a session."""
    return render_timestamp(at.astimezone())


@dataclass(frozen=True)
class Messages:
    """The user's messages for one turn, oldest first."""

    new: Sequence[DatedSignal] = ()
    in_force: Sequence[DatedSignal] = ()
    """Earlier ones that hold for the whole run."""
    facts: Sequence[DatedSignal] = ()
    """Earlier ones that the agent is reminded of and that ask for nothing."""


@dataclass(frozen=True)
class RenderedGuidance:
    """The user's messages as a turn gets them."""

    text: str = ""
    """A part of the prompt."""
    file: str = ""
    """The content of `guidance.md`; empty if the prompt has every message in full."""


def render_guidance(template: str, messages: Messages, *, writes_result: bool = True) -> RenderedGuidance:
    """Render the messages for a prompt; `template` is that of new ones, and says how to respond.

    `writes_result` says whether the turn writes a `result.json`; a hat publishes an event instead.
    """
    in_force, in_force_fits = _render_list(messages.in_force, IN_FORCE_BUDGET)
    facts, facts_fit = _render_list(messages.facts, IN_FORCE_BUDGET)
    new, new_fit = _render_list(messages.new, NEW_BUDGET)
    parts = []
    if in_force:
        parts.append(f"# Guidance from the user\n{_IN_FORCE}\n{in_force}\n")
    if facts:
        parts.append(f"# What the user told you earlier\n{facts}\n")
    if new:
        parts.append(_render_new(template, new, [one.signal for one in messages.new], writes_result=writes_result))
    everything = [*messages.in_force, *messages.facts, *messages.new]
    file = "" if in_force_fits and facts_fit and new_fit else _render_file(everything)
    return RenderedGuidance("\n".join(parts), file)


def render_message(template: str, signal: Signal, *, writes_result: bool = True) -> str:
    """Render a message for an agent that is at work."""
    return _render_new(template, f"- {signal.type}:{_quote(signal.message)}", [signal], writes_result=writes_result)


def render_pause(signal: Signal) -> str:
    """Ask an agent that is at work to pause."""
    reason = " ".join(signal.message.split())[:MESSAGE_BUDGET]
    why = f" ({reason})" if reason else ""
    return (
        f"The user asks for a pause{why}. Finish your current step, so that no file is left half-written. Write your"
        " answer. If it has a status and the work is not done, set it to `paused`. Then stop. The work continues later."
    )


def append_note(notes: str, received: DatedSignal) -> str:
    """Append a message to the notes of a session."""
    signal = received.signal
    whom = f" to {signal.target}" if signal.target else ""
    head = notes.rstrip() or "# Notes\n\nGuidance from the user. It holds until the session ends."
    return f"{head}\n\n## {signal.type}{whom}, {render_timestamp(received.at)}\n\n{signal.message.strip()}\n"


def _render_new(template: str, listed: str, signals: Iterable[Signal], *, writes_result: bool) -> str:
    """Render new messages. How to respond to a STEER is only said if there is one."""
    if any(signal.type is SignalType.STEER for signal in signals):
        return fill_template("steering", template, {"messages": listed, "answer": _ANSWER if writes_result else ""})
    return f"# New messages from the user\n{listed}\n\n{_NO_STEER}\n"


def _render_list(messages: Sequence[DatedSignal], budget: int) -> tuple[str, bool]:
    """Render as many as the budget allows, and say whether all of them are there in full.

    If there are too many, guidance goes before facts and later messages before earlier ones.
    """
    shown: set[str] = set()
    latest_first = messages[::-1]
    guidance = [one for one in latest_first if one.signal.is_guidance]
    facts = [one for one in latest_first if not one.signal.is_guidance]
    for one in [*guidance, *facts]:
        budget -= min(len(one.signal.message), MESSAGE_BUDGET) + _LINE_OVERHEAD
        if budget < 0:
            break
        shown.add(one.signal.id)
    lines = [_render_one(one) for one in messages if one.signal.id in shown]
    missing = len(messages) - len(shown)
    if missing:
        are = "1 message is" if missing == 1 else f"{missing} messages are"
        lines.insert(0, f"{are} not shown here. Read `{INBOX}/{GUIDANCE_FILE}` first: what it says counts as well.")
    fits = not missing and all(len(one.signal.message) <= MESSAGE_BUDGET for one in messages)
    return "\n".join(lines), fits


def _render_one(one: DatedSignal) -> str:
    message = one.signal.message.strip()
    cut = f"\n  {_CUT}" if len(message) > MESSAGE_BUDGET else ""
    return f"- {one.signal.type}, {_render_time(one.at)}:{_quote(message[:MESSAGE_BUDGET])}{cut}"


def _render_file(messages: Iterable[DatedSignal]) -> str:
    parts = ["# Messages from the user, oldest first"]
    for one in sorted(messages, key=lambda one: one.at):
        parts.append(f"## {one.signal.type}, {_render_time(one.at)}\n\n{quote_text(one.signal.message)}")
    return "\n\n".join(parts) + "\n"


def _render_time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _quote(text: str) -> str:
    """A message behind its type: on the same line, or in a code fence below it if it has several lines or code."""
    quoted = quote_text(text.strip())
    if len(quoted.splitlines()) <= 1:
        return f" {quoted}"
    return "".join(f"\n  {line}" for line in quoted.splitlines())
