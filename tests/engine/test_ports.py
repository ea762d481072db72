"""What the kernel does with each of its ports: questions, snapshots, the user's refs, commits, merges, landing, slots."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from simulation import EPOCH, Play, PowerCut, SimSnapshots, Simulation, works

from ralph.core.checks import HistoryChange
from ralph.core.entries import (
    HistoryChanged,
    LimitExtended,
    MergeStarted,
    Notice,
    QuestionAnswered,
    QuestionAsked,
    RefsRecorded,
    SnapshotTaken,
)
from ralph.core.errors import SnapshotsLostError
from ralph.core.events import (
    Commit,
    Decision,
    Do,
    Event,
    Landed,
    Merge,
    MergeEnded,
    MergeResult,
    Promote,
    RunEnded,
    Stop,
    Transition,
    TurnEnded,
    TurnStarted,
    Work,
    WorkCommitted,
)
from ralph.core.limits import Limits, Spent
from ralph.core.outcomes import Outcome
from ralph.core.prompt import Prompt
from ralph.core.signals import Question, Signal, SignalType
from ralph.core.turns import Change, FileStat, Turn, TurnEnd, TurnRequest
from ralph.engine.jobs import ActiveTime
from ralph.engine.kernel import describe_limit


@dataclass
class Works:
    """A workflow that asks for these works at once, and ends when all of them have ended."""

    works: tuple[Work, ...]
    ended: list[Event] = field(default_factory=list)

    def load(self, documents: Mapping[str, str]) -> frozenset[str]:
        return frozenset(work.key for work in self.works)

    def decide(self, state: frozenset[str], now: float) -> Decision:
        if not state:
            return Stop(Outcome.SUCCESS, "all of it ended")
        return Do(tuple(work for work in self.works if work.key in state))

    def accept(self, state: frozenset[str], event: Event, now: float) -> Transition[frozenset[str]]:
        if isinstance(event, TurnEnded | MergeEnded | WorkCommitted):
            self.ended.append(event)
            return Transition(state - {event.key})
        return Transition(state)


def turn(key: str = "a", **more: Any) -> TurnRequest:
    return TurnRequest(key, "executor", Prompt.of("do it"), **more)


@dataclass
class Questions:
    found: list[Question] = field(default_factory=list)

    def read_all(self) -> Sequence[Question]:
        return self.found


class TestQuestions:
    def test_a_question_and_its_answer_are_journaled_once_each(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(works, seconds=60.0)])
        asked = Question("q1", "Which port?", asked_at=EPOCH)
        questions = Questions([asked])
        sim.other_ports = {"questions": questions}
        sim.after(30.0, lambda: questions.found.__setitem__(0, replace(asked, answer="8080", by="the user")))
        sim.run()
        assert sim.entries(QuestionAsked) == [QuestionAsked(asked)]
        assert sim.entries(QuestionAnswered) == [QuestionAnswered("q1", "8080", "the user")]

    def test_the_next_engine_does_not_journal_them_again(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(), Play(works)], limits=Limits(iterations=1))
        answered = Question("q1", "Which port?", asked_at=EPOCH, answer="", by="the user")
        sim.other_ports = {"questions": Questions([answered])}
        assert sim.run().outcome is Outcome.LIMIT_ITERATIONS
        assert sim.run().outcome is Outcome.SUCCESS
        assert sim.entries(QuestionAsked) == [QuestionAsked(replace(answered, answer=None, by=""))]
        assert sim.entries(QuestionAnswered) == [QuestionAnswered("q1", "", "the user")]


class LostSnapshots(SimSnapshots):
    def take(self, label: str) -> Change:
        if label.startswith("turn"):
            raise SnapshotsLostError("the snapshots are gone", todo="restore them")
        return super().take(label)


class TestSnapshots:
    def test_a_run_whose_snapshots_are_lost_cannot_be_verified(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(works)], snapshots=True)
        sim.snapshots = LostSnapshots(sim.processes)
        stop = sim.run()
        assert stop.outcome is Outcome.UNVERIFIABLE
        assert stop.reason == "the snapshots are gone; restore them"

    def test_notice_of_a_snapshot_is_journaled_once(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(), Play(works)], snapshots=True)
        assert sim.snapshots is not None
        sim.snapshots.notices.append("a huge file is not recorded")
        sim.run()
        assert sim.entries(Notice) == [Notice("a huge file is not recorded")]

    def test_the_snapshot_before_the_run_is_taken_once(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(), Play(works)], snapshots=True, limits=Limits(iterations=1))
        sim.run()
        sim.run()
        assert sim.entries(SnapshotTaken) == [SnapshotTaken("before the run", "snapshot-1")]

    @pytest.mark.parametrize(("count", "listed", "more"), [(200, 200, 0), (201, 200, 1)])
    def test_the_end_lists_two_hundred_files_and_counts_the_rest(
        self, tmp_path: Path, count: int, listed: int, more: int
    ) -> None:
        class Many(SimSnapshots):
            def changed_files(self) -> Sequence[FileStat]:
                return [FileStat(f"{n}.py", 1, 0) for n in range(count)]

        sim = Simulation(tmp_path, [Play(works)], snapshots=True)
        sim.snapshots = Many(sim.processes)
        sim.run()
        assert sim.ended is not None
        assert (len(sim.ended.files), sim.ended.more_files) == (listed, more)

    def test_turns_in_a_workspace_of_their_own_take_no_snapshot(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play()], workflow=Works((turn(worktree="task-1/1"),)), snapshots=True)
        sim.run()
        assert sim.snapshots is not None and sim.snapshots.labels == ["before the run"]


@dataclass
class Refs:
    """The user's refs: what a look finds, and how often they were recorded."""

    change: HistoryChange
    before: Mapping[str, str] | None = None
    recorded: int = 0
    head: str = ""

    def record_branch_tips(self) -> None:
        self.head = "abc"

    def record(self) -> Mapping[str, str]:
        self.recorded += 1
        self.before = {"refs/heads/main": "abc"}
        return self.before

    def find_ref_changes(self) -> HistoryChange:
        return self.change


class TestTheUsersRefs:
    def test_refs_are_recorded_once_and_a_lost_ref_is_named_at_the_end(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(), Play(works)])
        refs = Refs(HistoryChange())
        sim.other_ports = {"user_refs": refs}
        sim.after(2.0, lambda: setattr(refs, "change", HistoryChange(missing=("branch feature is gone",))))
        sim.run()
        assert (refs.recorded, len(sim.entries(RefsRecorded))) == (1, 1)
        assert [entry.change.missing for entry in sim.entries(HistoryChanged)] == [("branch feature is gone",)]
        assert [entry.turn for entry in sim.entries(HistoryChanged)] == [1]
        assert sim.ended is not None and sim.ended.missing == ("branch feature is gone",)

    def test_a_loss_that_is_there_at_the_start_is_journaled_before_any_turn(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(works)])
        sim.other_ports = {"user_refs": Refs(HistoryChange(missing=("tag v1 is gone",), commits=("abc",)))}
        sim.run()
        changed = sim.entries(HistoryChanged)[0]
        assert (changed.turn, changed.change) == (0, HistoryChange(missing=("tag v1 is gone",)))

    def test_commits_count_only_for_turns_in_the_runs_tree(self, tmp_path: Path) -> None:
        for place, expected in (("", 1), ("task-1/1", 0)):
            sim = Simulation(
                tmp_path / (place or "tree").replace("/", "-"), [Play()], workflow=Works((turn(worktree=place),))
            )
            sim.other_ports = {"user_refs": Refs(HistoryChange(commits=("abc",)))}
            sim.run()
            assert len(sim.entries(HistoryChanged)) == expected, place or "in the tree"


@dataclass
class Committer:
    done: list[Commit] = field(default_factory=list)

    def commit(self, decision: Commit) -> WorkCommitted:
        self.done.append(decision)
        return WorkCommitted(decision.key, commit="abc")


@dataclass
class Merger:
    log: list[str] = field(default_factory=list)

    async def merge(self, decision: Merge) -> MergeEnded:
        return await self._do("merge", decision.key, decision.worktree)

    async def promote(self, decision: Promote) -> MergeEnded:
        return await self._do("promote", decision.key, decision.worktree)

    async def _do(self, what: str, key: str, workspace: str) -> MergeEnded:
        self.log.append(f"{what} {key} begins")
        await asyncio.sleep(1.0)
        self.log.append(f"{what} {key} ends")
        return MergeEnded(key, workspace, MergeResult.MERGED)


@dataclass
class Lander:
    succeeded: list[bool] = field(default_factory=list)

    async def land(self, *, succeeded: bool) -> Landed | None:
        self.succeeded.append(succeeded)
        return Landed("abc", "main", moved=True) if succeeded else None


class TestCommitsAndMerges:
    def test_a_commit_is_made_by_the_committer_and_without_one_it_says_so(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def call_now(function: Any, *args: Any) -> Any:
            """A clock that is simulated does not wait for threads."""
            return function(*args)

        monkeypatch.setattr(asyncio, "to_thread", call_now)
        work = Commit("commit-1", 1, "snapshot-1", "message")
        committer = Committer()
        for ports, expected in (
            ({"committer": committer}, WorkCommitted("commit-1", commit="abc")),
            ({}, WorkCommitted("commit-1", notice="nothing can be committed here")),
        ):
            workflow = Works((work,))
            sim = Simulation(tmp_path / str(len(ports)), workflow=workflow)
            sim.other_ports = ports
            sim.run()
            assert workflow.ended == [expected]
        assert committer.done == [work]

    def test_one_merge_runs_at_a_time_and_each_is_journaled(self, tmp_path: Path) -> None:
        works = (
            Merge("merge-a", "a/1", "a"),
            Promote("promote-1", "knowledge/1", "docs", {}),
            Merge("merge-b", "b/1", "b"),
        )
        merger = Merger()
        sim = Simulation(tmp_path, workflow=Works(works), merger=merger)
        assert sim.run().outcome is Outcome.SUCCESS
        assert merger.log == [
            line
            for what in ("merge merge-a", "promote promote-1", "merge merge-b")
            for line in (f"{what} begins", f"{what} ends")
        ]
        assert sim.entries(MergeStarted) == [MergeStarted(work.key, work.worktree) for work in works]
        assert sim.spent.active_seconds == pytest.approx(3.0)

    def test_work_lands_with_the_outcome_of_the_run(self, tmp_path: Path) -> None:
        for plays, outcome, landed in (([Play(works)], True, 1), ([Play()], False, 0)):
            sim = Simulation(tmp_path / str(outcome), plays, limits=Limits(iterations=1))
            lander = Lander()
            sim.other_ports = {"lander": lander}
            sim.run()
            assert lander.succeeded == [outcome]
            assert len(sim.entries(Landed)) == landed


@dataclass
class Slots:
    why_full: str = "no room"
    taken: list[tuple[str, str, bool, bool]] = field(default_factory=list)
    released: list[str] = field(default_factory=list)

    def take(self, key: str, agent: str, *, is_running: bool, needs_worktree: bool) -> bool:
        self.taken.append((key, agent, is_running, needs_worktree))
        return True

    def release(self, key: str) -> None:
        self.released.append(key)


class TestSlots:
    @pytest.mark.parametrize(
        ("request_", "needs_worktree"),
        [
            (turn(), False),
            (turn(worktree="task-1/1"), True),
            (turn(worktree="task-1/1", merges_run_branch=True), False),
            (turn(worktree="look/1", reads_only=True), False),
        ],
    )
    def test_only_a_turn_that_writes_needs_a_worktree_slot(
        self, tmp_path: Path, request_: TurnRequest, needs_worktree: bool
    ) -> None:
        sim = Simulation(tmp_path, [Play()], workflow=Works((request_,)))
        sim.slots = Slots()
        sim.run()
        assert sim.slots.taken == [("a", "simulated", False, needs_worktree)]
        assert sim.slots.released == ["a"]

    def test_an_adopted_turn_takes_its_slot_anyway(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(seconds=60.0)], workflow=Works((turn(),)))
        sim.slots = Slots()
        sim.after(30.0, sim.kill_engine)
        with pytest.raises(PowerCut):
            sim.run()
        sim.run()
        assert [is_running for _, _, is_running, _ in sim.slots.taken] == [False, True]


class Full(Slots):
    """There is no room until something is released."""

    is_full: bool = True

    def take(self, key: str, agent: str, *, is_running: bool, needs_worktree: bool) -> bool:
        super().take(key, agent, is_running=is_running, needs_worktree=needs_worktree)
        return not self.is_full


def test_a_turn_that_waited_for_its_next_attempt_also_waits_for_a_slot(tmp_path: Path) -> None:
    limited = Play(end=TurnEnd.LIMITED, seconds=1.0, resets_in=30.0)
    sim = Simulation(tmp_path, [limited, Play(works)])
    sim.slots = Full()
    sim.slots.is_full = False
    sim.after(10.0, lambda: setattr(sim.slots, "is_full", True))
    sim.after(50.0, lambda: setattr(sim.slots, "is_full", False))
    assert sim.run().outcome is Outcome.SUCCESS
    assert sim.starts[1] == pytest.approx(50.0, abs=1.0)
    assert [notice.text for notice in sim.entries(Notice)] == ["waiting for a slot: no room"]


class TestConversations:
    def test_a_turn_that_continues_a_conversation_knows_what_it_has_used(self, tmp_path: Path) -> None:
        interrupted = Play(end=TurnEnd.INTERRUPTED, session="s1", cost=0.5, tokens=100)
        sim = Simulation(tmp_path, [interrupted, Play(works, session="s1")])
        sim.run()
        first, second = (sim.processes[number].turn for number in (1, 2))
        assert (first.used_before.cost, second.used_before.cost, second.used_before.tokens) == (None, 0.5, 100)

    def test_an_adopted_turn_of_a_conversation_knows_it_too(self, tmp_path: Path) -> None:
        seen: list[Turn] = []
        interrupted = Play(end=TurnEnd.INTERRUPTED, session="s1", cost=0.5, tokens=100, seconds=4.0)
        sim = Simulation(tmp_path, [interrupted, Play(works, session="s1", seconds=60.0)])
        sim.after(30.0, sim.kill_engine)
        with pytest.raises(PowerCut):
            sim.run()
        sim.onlooker.on_agent_event = lambda turn, event: seen.append(turn)  # type: ignore[method-assign]
        sim.run()
        assert {(one.number, one.used_before.cost) for one in seen} == {(2, 0.5)}


class TestAdoption:
    def test_an_adopted_turn_keeps_its_request_and_its_number(self, tmp_path: Path) -> None:
        seen: list[Turn] = []
        sim = Simulation(tmp_path, [Play(seconds=60.0)], workflow=Works((turn(inbox={"task.md": "x"}, retries=7),)))
        sim.after(30.0, sim.kill_engine)
        with pytest.raises(PowerCut):
            sim.run()
        sim.onlooker.on_agent_event = lambda turn, event: seen.append(turn)  # type: ignore[method-assign]
        sim.run()
        assert {(one.number, one.attempt, one.request.retries, one.agent) for one in seen} == {(1, 1, 7, "simulated")}

    def test_a_turn_that_the_workflow_wants_no_more_is_adopted_by_what_the_journal_says(self, tmp_path: Path) -> None:
        seen: list[Turn] = []
        sim = Simulation(tmp_path, [Play(seconds=60.0)], workflow=Works((turn(),)))
        sim.after(30.0, sim.kill_engine)
        with pytest.raises(PowerCut):
            sim.run()
        sim.workflow = Works(())
        sim.onlooker.on_agent_event = lambda turn, event: seen.append(turn)  # type: ignore[method-assign]
        assert sim.run().outcome is Outcome.SUCCESS
        assert {(one.request.key, one.request.role, one.request.prompt.text.strip()) for one in seen} <= {
            ("a", "executor", "")
        }
        [ended] = sim.entries(TurnEnded)
        assert ended.result.end is TurnEnd.STOPPED


class TestWaking:
    def test_wake_ends_the_wait_at_once(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(works, seconds=100.0)])
        looks: list[float] = []
        mailbox = sim.mailbox
        peek = mailbox.read_inputs
        mailbox.read_inputs = lambda: (looks.append(sim.clock.now() - EPOCH), peek())[1]

        def poll_rarely() -> None:
            assert sim.kernel
            sim.kernel.poll_every(40.0)

        def wake() -> None:
            assert sim.kernel
            sim.kernel.wake()

        sim.after(2.0, poll_rarely)
        sim.after(61.5, wake)
        sim.run()
        assert any(61.5 <= look < 61.75 for look in looks), "the engine looks when it is woken"
        late = [look for look in looks if 30.0 < look < 99.0]
        assert len(late) < 12, "and else only as often as it was asked to"


class TestActiveTime:
    def clock(self) -> tuple[list[float], ActiveTime]:
        now = [100.0]
        return now, ActiveTime(lambda: now[0])

    def test_time_counts_once_however_many_work(self) -> None:
        now, active = self.clock()
        with active.working():
            now[0] += 10
            with active.working():
                now[0] += 5
            now[0] += 1
        now[0] += 100
        assert active.peek() == 16
        assert (active.drain(), active.drain()) == (16, 0.0)

    def test_active_time_includes_work_in_progress(self) -> None:
        now, active = self.clock()
        with active.working():
            now[0] += 3
            assert active.drain() == 3
            now[0] += 4
        assert active.drain() == 4

    def test_credit_is_never_negative(self) -> None:
        _, active = self.clock()
        active.credit(-5)
        active.credit(2)
        assert active.drain() == 2

    def test_a_clock_that_goes_back_takes_nothing_away(self) -> None:
        now, active = self.clock()
        with active.working():
            now[0] -= 50
            assert active.peek() == 0


@pytest.mark.parametrize(
    ("reached", "limits", "spent", "text"),
    [
        (Outcome.LIMIT_ITERATIONS, Limits(iterations=1), Spent(), "the limit of 1 iteration was reached"),
        (Outcome.LIMIT_ITERATIONS, Limits(iterations=7), Spent(), "the limit of 7 iterations was reached"),
        (
            Outcome.LIMIT_TIME,
            Limits(active_seconds=90.0),
            Spent(),
            "the limit of 1.5 minutes of active time was reached",
        ),
        (Outcome.LIMIT_COST, Limits(cost=2.5), Spent(), "the cost limit of $2.5 was reached"),
        (Outcome.LIMIT_TOKENS, Limits(tokens=1000), Spent(), "the limit of 1000 tokens was reached"),
        (
            Outcome.COST_UNKNOWN,
            Limits(cost=2.0),
            Spent(unpriced="mystery-1"),
            "the price of mystery-1 is not known, so Ralph cannot enforce the limit of $2",
        ),
        (
            Outcome.COST_UNKNOWN,
            Limits(cost=2.0),
            Spent(),
            "an agent used tokens whose price is not known, so Ralph cannot enforce the limit of $2",
        ),
    ],
)
def test_reached_limit_is_described(reached: Outcome, limits: Limits, spent: Spent, text: str) -> None:
    assert describe_limit(reached, limits, spent) == text


def test_extended_limits_are_journaled_with_the_reason(tmp_path: Path) -> None:
    sim = Simulation(tmp_path, [Play(), Play(works)], limits=Limits(iterations=1))
    sim.run()
    sim.run()
    [extended] = sim.entries(LimitExtended)
    assert (extended.limits.iterations, extended.reason) == (
        2,
        "1 more iteration, 2 in all",
    )


def test_abort_without_a_message_names_the_signal(tmp_path: Path) -> None:
    for message, reason in (("", "aborted by signal.001.yaml"), ("wrong branch", "wrong branch")):
        sim = Simulation(tmp_path / (message or "none"), [Play(seconds=60.0)])
        sim.after(10.0, lambda sim=sim, message=message: sim.mailbox.post(SignalType.ABORT, message))  # type: ignore[misc]
        stop = sim.run()
        assert (stop.outcome, stop.reason) == (Outcome.ABORTED, reason)


def test_broken_document_of_a_turn_is_not_journaled_whole(tmp_path: Path) -> None:
    sim = Simulation(tmp_path, [Play(documents={"report.md": "x" * 100})], workflow=Works((turn(),)))
    sim.run()
    [ended] = sim.entries(TurnEnded)
    assert ended.result.documents == {}


def test_turns_are_numbered_and_say_which_agent_and_attempt(tmp_path: Path) -> None:
    failed = Play(end=TurnEnd.FAILED, error="boom")
    sim = Simulation(tmp_path, [failed, Play(works)])
    sim.run()
    started = [(one.turn, one.key, one.attempt, one.agent, one.is_iteration) for one in sim.entries(TurnStarted)]
    assert started == [(1, "iteration-1", 1, "simulated", True), (2, "iteration-1", 2, "simulated", True)]


def test_direct_signal_is_accepted_with_the_others(tmp_path: Path) -> None:
    sim = Simulation(tmp_path, [Play(seconds=60.0)])

    def stop_now() -> None:
        assert sim.kernel
        sim.kernel.post_directly(Signal("ctrl-c", SignalType.ABORT, "Ctrl-C"))

    sim.after(5.0, stop_now)
    assert sim.run() == Stop(Outcome.ABORTED, "Ctrl-C")
    assert sim.clock.now() - EPOCH < 6.0
    assert isinstance(sim.records()[-1].entry, RunEnded)


def test_work_that_could_not_start_is_asked_for_again(tmp_path: Path) -> None:
    """A decision holds only while all that it asks for is in progress."""
    sim = Simulation(tmp_path, [Play(seconds=10.0), Play(seconds=10.0)], workflow=Works((turn("a"), turn("b"))))
    sim.slots = Full()
    sim.slots.is_full = False
    decide, asked = sim.workflow.decide, []
    sim.workflow.decide = lambda state, now: asked.append(now - EPOCH) or decide(state, now)
    first_slot = sim.slots.take

    def take_one(key: str, agent: str, *, is_running: bool, needs_worktree: bool) -> bool:
        is_free = key == "a" or sim.clock.now() - EPOCH > 5.0
        return bool(is_free and first_slot(key, agent, is_running=is_running, needs_worktree=needs_worktree))

    sim.slots.take = take_one
    assert sim.run().outcome is Outcome.SUCCESS
    assert sim.starts[1] == pytest.approx(5.0, abs=0.5), "b starts while a still runs"
    assert len([at for at in asked if at < 5.0]) > 10
