"""Messages between the user and a run: signals of the user, and questions of agents with their answers."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from datetime import UTC, datetime, timedelta, timezone
from enum import StrEnum
from typing import Any

from ralph.core.codec import former_name
from ralph.core.values import value


class SignalType(StrEnum):
    """What a signal asks for."""

    STEER = "STEER"
    """Change direction: the work takes the message into account, or says that it cannot."""
    INFO = "INFO"
    """Information only: nothing is restarted, paused or asked for."""
    PAUSE = "PAUSE"
    """Finish the turn in progress, start no other, and end with `paused`."""
    RESUME = "RESUME"
    """End a pause."""
    ABORT = "ABORT"
    """End the turn in progress and the run; files are left as they are."""
    APPROVE = "APPROVE"
    """Keep what was learned."""
    SKIP = "SKIP"
    """Do not keep it."""

    @classmethod
    def parse(cls, word: str) -> "SignalType":
        """The type by its name in any case; STOP is an old name of ABORT."""
        upper = word.strip().upper()
        return cls.ABORT if upper == "STOP" else cls(upper)


IN_PROMPT = "prompt"
"""How a turn got a message that was in its prompt."""
CTRL_C = "ctrl-c."
"""The prefix of the names of signals that the user sent with Ctrl-C."""
RESUMED = "resumed."
"""The prefix of the names of signals that a resumed run sends to itself, to end a pause."""
ASKED_FOR = frozenset((SignalType.APPROVE, SignalType.SKIP))
"""Types that wait in the mailbox until the work asks for them."""
INTERRUPTING = (SignalType.STEER, SignalType.PAUSE)
"""Types that interrupt a running turn if the user wants that (`now`)."""
MESSAGE_ONLY_TYPES = frozenset((SignalType.STEER, SignalType.INFO))
"""Types that do nothing but deliver a message. They are archived with the roles that received it."""
_MESSAGE_TYPES = frozenset((SignalType.STEER, SignalType.INFO, SignalType.PAUSE, SignalType.RESUME))
"""Types whose message agents receive."""
_GUIDANCE_TYPES = frozenset((SignalType.STEER, SignalType.RESUME))
"""Types whose message holds for the whole run."""
_EVERYBODY = frozenset(("", "all", "everyone", "orchestrator", "engine", "v2"))
"""The target of a signal to every role or to the engine."""
_RALPH, _COORDINATOR = "ralph", "coordinator"
"""The coordinator in a run of hats. In any other workflow it is the engine, so every role is meant."""
_ACTORS = frozenset(("actor", "executor"))
"""Targets that mean the role that does the work, in every workflow."""


@value
class Signal:
    """One signal, as it was found in the mailbox."""

    name: str
    """The name of its file."""
    type: SignalType
    message: str = ""
    stamp: str = ""
    """Distinguishes this file from a later one of the same name."""
    target: str = ""
    """The role that is meant, as `normalize_target` has it; empty for all."""
    iteration: int | None = None
    """The iteration that it is for; None for any."""
    items: tuple[str, ...] = ()
    """What exactly is approved; empty for all of it."""
    now: bool = False
    """Whether a running turn is interrupted, so that the agent gets the message at once. Only `INTERRUPTING` types do that."""
    assigned_id: str = field(default="", metadata=former_name("key"))
    """The id in the journal, if the name of the file is not unique or is too long."""
    by: str = ""
    """Who sent it, if another interface than the command line did: `web:NAME`."""

    @property
    def id(self) -> str:
        """What the journal and acks call it: the name of its file, unless it was assigned another id."""
        return self.assigned_id or self.name

    @property
    def has_message_for_agents(self) -> bool:
        """Whether its message is for the agents."""
        return self.type in _MESSAGE_TYPES and bool(self.message.strip())

    @property
    def is_empty_message(self) -> bool:
        """Whether it makes no sense without a message, and has none."""
        return self.type in MESSAGE_ONLY_TYPES and not self.message.strip()

    @property
    def is_guidance(self) -> bool:
        """Whether its message holds for the whole run."""
        return self.type in _GUIDANCE_TYPES and self.has_message_for_agents

    def is_for(self, role: str, *, is_actor: bool = False) -> bool:
        """Whether a role is meant; `is_actor` says that it does the work itself."""
        return is_meant(self.target, role, is_actor=is_actor)


@value
class DatedSignal:
    """A signal, and when the run accepted it."""

    signal: Signal
    at: float


@value
class InvalidSignalFile:
    """A file in the mailbox that is not a valid signal."""

    name: str
    """As it is on disk. It can contain any characters."""
    reason: str
    stamp: str


@value
class Stage:
    """How far the work has come, as far as signals depend on it."""

    iteration: int | None = None
    """The iteration in progress; None if there is nothing to go by."""
    asks_for: frozenset[SignalType] = frozenset()
    """The types that it waits for."""
    is_complete: bool = False
    """Whether everything is done, so that there is nothing to abort."""
    choices: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """What an APPROVE can name while it is asked for: each item by its path, with all its names."""

    def find_wrong_items(self, items: Sequence[str]) -> str:
        """Why an APPROVE with these items cannot be followed; empty if it can."""
        known = frozenset[str]().union(*self.choices.values())
        wrong = ", ".join(item for item in items if item not in known)
        if not wrong:
            return ""
        return (
            f"no learned item is called {wrong}; choose from {', '.join(self.choices)}, or approve all without --item"
        )


def normalize_target(target: str) -> str:
    """The role that a target names: `Ralph-v2-Executor`, `Executor` and `executor` are one; empty for all.

    What `ralph` and `coordinator` mean depends on the workflow (`choose_target`).
    """
    name = re.sub(r"[-_\s]+", "-", target.strip().lower())
    name = re.sub(r"^ralph-(v\d+-)?", "", name)
    return "" if name in _EVERYBODY else name


def choose_target(target: str, roles: Sequence[str]) -> str:
    """The role that a normalized target means in a run with these roles; empty for all."""
    if target == _COORDINATOR and _COORDINATOR not in roles:
        target = _RALPH
    return "" if target == _RALPH and _RALPH not in roles else target


def is_meant(target: str, role: str, *, is_actor: bool) -> bool:
    """Whether a normalized target means a role; `is_actor` says that the role does the work itself."""
    name = normalize_target(role)
    if not target or target == name:
        return True
    return target in _ACTORS and (is_actor or name in _ACTORS)


def is_known(target: str, roles: Sequence[str]) -> bool:
    """Whether a target is one of these roles, all of them, or the role that does the work. True if no roles are known."""
    return not roles or not target or target in _ACTORS or target in map(normalize_target, roles)


SCOPE_CHANGE = "STEER scope change"
"""The key with which an answer says that the user asks for another task."""


def find_scope_change(answer: Mapping[str, Any] | None) -> str:
    """What the user asks for instead of the task, if the answer says so; empty otherwise."""
    answer = answer or {}
    for blocker in map(str, answer.get("blockers") or ()):
        if blocker.lower().startswith(SCOPE_CHANGE.lower()):
            return blocker
    steering = answer.get("steering") or {}
    if steering.get("response") != "scope-change":
        return ""
    return f"{SCOPE_CHANGE}: {steering.get('note') or answer.get('summary') or 'it did not say what'}"


_ZONE = r"(Z|[+]\d\d:?\d\d|-\d\d:\d\d)?"
_TIME = re.compile(
    r"(?<!\d)(\d{4}|\d\d)-?(\d\d)-?(\d\d)[-_T ](\d\d)[:-]?(\d\d)[:-]?(\d\d)"
    rf"{_ZONE}(?:[-.](\d{{6}}|\d{{3}})(?![0-9a-zA-Z]))?{_ZONE}",
    re.IGNORECASE,
)


def parse_time_in_name(name: str) -> float | None:
    """The moment in the name of a file, in any style that people and programs use; without a zone it is local time."""
    found = _TIME.search(name)
    if not found:
        return None
    year, month, day, hour, minute, second = (int(part) for part in found.group(1, 2, 3, 4, 5, 6))
    year = year + 2000 if year < 100 else year
    zone, fraction = _zone(found[7] or found[9]), int((found[8] or "0").ljust(6, "0"))
    try:
        return datetime(year, month, day, hour, minute, second, fraction, zone).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def _zone(text: str | None) -> timezone | None:
    if not text:
        return None
    if text in "Zz":
        return UTC
    digits = text[1:].replace(":", "")
    away = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return timezone(-away if text[0] == "-" else away)


@value
class Question:
    """One question, with its answer if there is one."""

    id: str
    question: str
    options: tuple[str, ...] = ()
    default: str = ""
    """The answer if the user does not answer in time."""
    asked_at: float = 0.0
    timeout: float = 0.0
    """Seconds for which it waits."""
    turn: str = ""
    role: str = ""
    answer: str | None = None
    by: str = ""
    """`person` if the user answered, `web:NAME` if they did so in the browser, `default` if the time was over."""

    def waits(self, now: float) -> bool:
        """Whether the agent still waits for the answer."""
        return self.answer is None and now < self.asked_at + self.timeout
