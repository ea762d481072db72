"""How signals leave the mailbox: what is refused, what waits, and what is written on a signal when it is archived."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from ralph.core.entries import Notice, Record, SignalRefused
from ralph.core.events import SignalAccepted, TurnStarted
from ralph.core.limits import Limits
from ralph.core.outcomes import Outcome
from ralph.core.signals import InvalidSignalFile, Signal, SignalType, Stage
from ralph.engine.ledger import Ledger
from ralph.engine.signal_delivery import SignalDelivery

STEER, INFO = SignalType.STEER, SignalType.INFO


class Mailbox:
    def __init__(self, *found: Signal | InvalidSignalFile) -> None:
        self.found = list(found)
        self.archived: list[tuple[str, str, Any]] = []
        self.acks: list[tuple[str, str, Any]] = []

    def read_inputs(self) -> list[Signal | InvalidSignalFile]:
        return list(self.found)

    def archive(self, signal: Signal, action: str, missed: Any = None) -> None:
        self.archived.append((signal.name, action, missed))

    def reject(self, signal: Signal | InvalidSignalFile, reason: str) -> None:
        self.archived.append((signal.name, f"rejected: {reason}", None))

    def record_receipt(self, signal: Signal, action: str, at: float) -> None:
        self.archived.append((signal.name, f"delivered: {action}", None))

    def acknowledge(self, signal: Signal, role: str, facts: Any) -> None:
        self.acks.append((signal.name, role, facts))


class Post:
    """A delivery without an engine: what it journals is applied at once."""

    def __init__(
        self, *found: Signal | InvalidSignalFile, required_roles: tuple[str, ...] = (), stage: Stage | None = None
    ) -> None:
        self.mailbox = Mailbox(*found)
        self.ledger = Ledger(Limits())
        self.ledger.signals.required_roles = required_roles
        self.journal: list[Any] = []
        self.stage = stage or Stage()
        self.delivery = SignalDelivery(
            ports=SimpleNamespace(mailbox=self.mailbox, turns=None),  # type: ignore[arg-type]
            ledger=self.ledger,
            jobs=SimpleNamespace(running_turns=[]),  # type: ignore[arg-type]
            message_template="{{messages}}",
            accept_event=self.apply,
            journal=self.apply,
        )

    def apply(self, entry: Any) -> None:
        self.journal.append(entry)
        self.ledger.apply(Record(len(self.journal), float(len(self.journal)), entry, {}))

    def take(self) -> list[Signal]:
        return asyncio.run(self.delivery.process_mailbox(lambda: self.stage))


def signal(name: str = "s.yaml", kind: SignalType = STEER, message: str = "x", **more: Any) -> Signal:
    return Signal(name, kind, message, stamp="1", **more)


def started(turn: int, role: str, *ids: str) -> TurnStarted:
    return TurnStarted(turn=turn, key=f"k{turn}", role=role, attempt=1, agent="a", messages=ids)


def test_invalid_signal_file_is_journaled_as_refused() -> None:
    post = Post(InvalidSignalFile("bad.yaml", "not YAML", "1"))
    assert post.take() == []
    assert post.journal == [SignalRefused("bad.yaml", "not YAML", "1")]
    assert post.mailbox.archived == [("bad.yaml", "rejected: not YAML", None)]


@pytest.mark.parametrize(
    ("kind", "action"),
    [
        (SignalType.PAUSE, "pausing after the current turn"),
        (SignalType.RESUME, "resumed"),
        (SignalType.ABORT, "aborting"),
    ],
)
def test_signal_to_the_engine_is_archived_with_what_follows(kind: SignalType, action: str) -> None:
    post = Post(signal(kind=kind, message=""))
    assert [one.type for one in post.take()] == [kind]
    assert post.mailbox.archived == [("s.yaml", action, None)]


def test_message_to_one_role_is_kept_for_its_next_turn() -> None:
    post = Post(signal(target="reviewer"))
    post.take()
    assert post.mailbox.archived == [("s.yaml", "waits for the next reviewer", None)]


def test_message_that_a_role_got_from_an_earlier_engine_is_archived_with_the_turn() -> None:
    post = Post(signal(target="reviewer"))
    post.apply(SignalAccepted(signal(target="reviewer")))
    post.apply(started(4, "reviewer", "s.yaml"))
    assert post.take() == [], "it was taken before"
    assert post.mailbox.archived == [("s.yaml", "received by reviewer (turn 4, prompt)", None)]


def test_message_to_all_stays_until_every_role_has_it() -> None:
    post = Post(signal(), required_roles=("planner", "executor"))
    post.take()
    assert post.mailbox.archived == []
    post.apply(started(1, "planner", "s.yaml"))
    post.take()
    assert post.mailbox.archived == []
    post.apply(started(2, "executor", "s.yaml"))
    post.take()
    action = "received by planner (turn 1, prompt), executor (turn 2, prompt)"
    assert post.mailbox.archived == [("s.yaml", action, ())]


def test_signal_that_an_earlier_engine_refused_is_archived_with_its_last_reason() -> None:
    post = Post(signal())
    post.apply(SignalRefused("s.yaml", "an older file of that name", "0"))
    post.apply(SignalRefused("s.yaml", "expired", "1"))
    post.take()
    assert post.mailbox.archived == [("s.yaml", "expired", None)]


@pytest.mark.parametrize(
    ("iteration", "archived", "taken"),
    [
        (1, "expired: it was for iteration 1, and this is iteration 2", 0),
        (2, "waits for the next reviewer", 1),
        (3, "", 0),
    ],
)
def test_signal_for_an_iteration_expires_counts_or_waits(iteration: int, archived: str, taken: int) -> None:
    post = Post(signal(iteration=iteration, target="reviewer"), stage=Stage(2))
    assert len(post.take()) == taken
    assert [action for _, action, _ in post.mailbox.archived] == ([archived] if archived else [])


def test_signal_for_an_iteration_counts_if_the_run_has_none() -> None:
    assert len(Post(signal(iteration=5), stage=Stage(None)).take()) == 1


@pytest.mark.parametrize("kind", [SignalType.APPROVE, SignalType.SKIP])
def test_answer_waits_until_the_run_asks_for_it(kind: SignalType) -> None:
    post = Post(signal(kind=kind, message="", iteration=1), stage=Stage(2))
    assert (post.take(), post.journal) == ([], []), "nor does it expire"
    post.stage = Stage(1, frozenset({SignalType.APPROVE, SignalType.SKIP}))
    assert len(post.take()) == 1


def test_second_signal_of_the_same_name_gets_an_id_of_its_own() -> None:
    post = Post(signal())
    post.apply(SignalAccepted(signal()))
    again = Signal("s.yaml", STEER, "y", stamp="2")
    post.mailbox.found = [again]
    [taken] = post.take()
    assert taken.id == "2-s.yaml"


@pytest.mark.parametrize(("length", "is_short"), [(150, True), (151, False)])
def test_name_that_is_too_long_for_a_file_gets_a_short_id(length: int, is_short: bool) -> None:
    name = "n" * length
    [taken] = Post(signal(name)).take()
    assert (taken.id == name) is is_short
    assert len(taken.id) <= 150


def test_receipt_is_acknowledged_with_turn_and_means_and_later_with_the_response() -> None:
    post = Post()
    post.apply(SignalAccepted(signal()))
    opened = Record(2, 2.0, started(1, "executor", "s.yaml", "unknown"), {})
    post.ledger.apply(opened)
    post.delivery.write_acks_for(opened)
    assert post.mailbox.acks == [("s.yaml", "executor", {"turn": 1, "means": "prompt"})]


class TestClose:
    def closed(self, outcome: Outcome, *entries: Any, required_roles: tuple[str, ...] = ()) -> Post:
        post = Post(signal(), required_roles=required_roles)
        post.apply(SignalAccepted(signal()))
        for entry in entries:
            post.apply(entry)
        post.delivery.archive_unreceived(outcome)
        return post

    def test_run_that_can_be_resumed_leaves_messages_where_they_are(self) -> None:
        assert self.closed(Outcome.PAUSED).mailbox.archived == []

    def test_undelivered_message_is_archived_and_named(self) -> None:
        post = self.closed(Outcome.SUCCESS, required_roles=("planner",))
        action = "the run was over before a turn could receive it"
        assert post.mailbox.archived == [("s.yaml", action, ("planner",))]
        assert post.journal[-1] == Notice("the run was over before a turn could receive s.yaml")

    def test_message_that_no_turn_of_a_loop_got_names_no_role(self) -> None:
        post = self.closed(Outcome.SUCCESS)
        assert post.mailbox.archived == [("s.yaml", "the run was over before a turn could receive it", None)]

    def test_message_that_some_got_is_archived_with_the_others(self) -> None:
        post = self.closed(Outcome.SUCCESS, started(1, "planner", "s.yaml"), required_roles=("planner", "executor"))
        assert post.mailbox.archived == [("s.yaml", "received by planner (turn 1, prompt)", ("executor",))]
        assert not [entry for entry in post.journal if isinstance(entry, Notice)]

    def test_aborted_run_names_nothing(self) -> None:
        post = self.closed(Outcome.ABORTED)
        assert not [entry for entry in post.journal if isinstance(entry, Notice)]

    def test_five_messages_are_named(self) -> None:
        post = Post()
        for number in range(7):
            post.apply(SignalAccepted(signal(f"s{number}", INFO)))
        post.delivery.archive_unreceived(Outcome.SUCCESS)
        assert post.journal[-1] == Notice("the run was over before a turn could receive s0, s1, s2, s3, s4")
