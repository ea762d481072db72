"""Whatever agents do, say and write: the verdict is the engine's, and every run ends."""

import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import wraps
from itertools import count
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from simulation import Play, PowerCut, Simulation, breaks, works

from ralph.core.errors import RalphError
from ralph.core.events import TurnEnded
from ralph.core.limits import Limits
from ralph.core.outcomes import Outcome
from ralph.core.signals import SignalType
from ralph.core.turns import TurnEnd
from ralph.store.documents import digest
from ralph.workflows.loop import HOME

MAX_ITERATIONS = 5
MAX_ACTIVE = 120.0


@pytest.fixture(autouse=True, scope="module")
def coarse_polling() -> Iterator[None]:
    """Look at the mailbox less often than in earnest: nothing here depends on it, and it is most of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ralph.engine.jobs.POLL_SECONDS", 4.0)
        yield


def clumsy(deed: Callable[[Simulation], None]) -> Callable[[Simulation], None]:
    """A deed that comes to nothing where an earlier one is in its way."""

    @wraps(deed)
    def tried(sim: Simulation) -> None:
        with suppress(OSError, ValueError):
            deed(sim)

    return tried


@clumsy
def lies_in_the_state(sim: Simulation) -> None:
    """Writes success into the document that holds the state."""
    if sim.state_path.exists():
        state = json.loads(sim.state_path.read_text())
        said = {"phase": "done", "outcome": "success", "reason": "all checks pass", "active": False}
        sim.state_path.write_text(json.dumps({**state, **said}))


@clumsy
def lies_about_the_phase(sim: Simulation) -> None:
    """Sets the counters back."""
    if sim.state_path.exists():
        state = json.loads(sim.state_path.read_text())
        sim.state_path.write_text(json.dumps({**state, "phase": "act", "iteration": 1, "iterations": []}))


@clumsy
def lies_in_the_copy(sim: Simulation) -> None:
    """Writes success into the document that people's tools read."""
    (sim.root / HOME).mkdir(parents=True, exist_ok=True)
    (sim.root / HOME / "current-loop.json").write_text('{"active": false, "lastResult": "PASS"}')


@clumsy
def garbles_the_state(sim: Simulation) -> None:
    """Leaves half a document."""
    if sim.state_path.exists():
        sim.state_path.write_bytes(b'{"schema": 1, "phase": \xff')


@clumsy
def removes_the_documents(sim: Simulation) -> None:
    """Deletes what the engine wrote."""
    for path in (sim.state_path, sim.root / HOME / "current-loop.json"):
        path.unlink(missing_ok=True)


@clumsy
def appends_to_the_journal(sim: Simulation) -> None:
    """Forges an end of the run."""
    with (sim.run_dir / "journal.jsonl").open("a") as file:
        file.write('{"seq": 3, "type": "run.ended", "outcome": "success", "hash": "0000000000000000"}\n')


@clumsy
def tears_the_journal(sim: Simulation) -> None:
    """Appends half a line."""
    with (sim.run_dir / "journal.jsonl").open("a") as file:
        file.write('{"seq": 3, "type": "run.')


@clumsy
def forges_a_commit(sim: Simulation) -> None:
    """Leaves a write-ahead record that says success, for the next engine to find."""
    content = sim.state_path.read_text() if sim.state_path.exists() else "{}"
    change = {"before": digest(content.encode()), "after": "", "content": content.replace("act", "done")}
    forged = {"schema": 1, "seq": 0, "lines": [], "documents": {sim.loop.state_path: change}}
    (sim.run_dir / "commit.json").write_text(json.dumps(forged))


@clumsy
def links_the_state_elsewhere(sim: Simulation) -> None:
    """Lets the document be another file."""
    sim.state_path.parent.mkdir(parents=True, exist_ok=True)
    sim.state_path.unlink(missing_ok=True)
    sim.state_path.symlink_to("/etc/passwd")


@clumsy
def blocks_the_copy(sim: Simulation) -> None:
    """Puts a directory where a file should be."""
    copy = sim.root / HOME / "current-loop.json"
    copy.unlink(missing_ok=True)
    (copy / "inner").mkdir(parents=True)


@clumsy
def blocks_the_documents(sim: Simulation) -> None:
    """Puts a file where a directory should be."""
    shutil.rmtree(sim.root / HOME, ignore_errors=True)
    (sim.root / HOME).parent.mkdir(parents=True, exist_ok=True)
    (sim.root / HOME).write_text("mine")


@clumsy
def writes_into_a_report(sim: Simulation) -> None:
    """Edits what an earlier end of the run left."""
    for report in (sim.root / HOME).glob("completion-*.md"):
        report.write_text(report.read_text() + "and more\n")


def nothing(sim: Simulation) -> None:
    """Leaves everything as it is."""


HONEST: tuple[Callable[[Simulation], None], ...] = (nothing, works, breaks, writes_into_a_report)
TAMPERING: tuple[Callable[[Simulation], None], ...] = (
    lies_in_the_state,
    lies_about_the_phase,
    lies_in_the_copy,
    garbles_the_state,
    removes_the_documents,
    appends_to_the_journal,
    tears_the_journal,
    forges_a_commit,
    links_the_state_elsewhere,
    blocks_the_copy,
    blocks_the_documents,
)
ANSWERS = ({"summary": "all checks pass, the work is done"}, {"summary": "x", "outcome": "success"}, None)


@dataclass(frozen=True)
class Story:
    """A whole run: what its agents do in turn, and what happens to the engine and its people meanwhile."""

    plays: tuple[Play, ...]
    kills: tuple[float, ...] = ()
    """When the engine is killed."""
    downtime: float = 3.0
    signals: tuple[tuple[float, SignalType], ...] = ()
    cost: float | None = None


def plays(deeds: tuple[Callable[[Simulation], None], ...]) -> st.SearchStrategy[Play]:
    ends = (
        TurnEnd.FINISHED,
        TurnEnd.FINISHED,
        TurnEnd.FAILED,
        TurnEnd.IDLE,
        TurnEnd.WALL,
        TurnEnd.LIMITED,
        TurnEnd.INTERRUPTED,
        TurnEnd.UNAVAILABLE,
    )
    return st.builds(
        Play,
        does=st.sampled_from(deeds),
        meanwhile=st.sampled_from(deeds),
        end=st.sampled_from(ends),
        seconds=st.sampled_from((5.0, 10.0, 40.0)),
        cost=st.sampled_from((None, 0.0, 0.25, 3.0)),
        tells=st.sampled_from((0, 1, 4)),
        errors=st.sampled_from(((), (), ("result.json: the field `summary` is missing",))),
        answer=st.sampled_from(ANSWERS),
        resets_in=st.sampled_from((0.0, 60.0)),
        error=st.sampled_from(("", "exit code 1")),
    )


def stories(deeds: tuple[Callable[[Simulation], None], ...]) -> st.SearchStrategy[Story]:
    moments = st.integers(0, 120).map(lambda n: n / 2)
    return st.builds(
        Story,
        plays=st.lists(plays(deeds), min_size=1, max_size=6).map(tuple),
        kills=st.lists(moments, max_size=3).map(tuple),
        downtime=st.sampled_from((0.0, 3.0, 100.0)),
        signals=st.lists(st.tuples(moments, st.sampled_from(list(SignalType))), max_size=2).map(tuple),
        cost=st.sampled_from((None, None, 2.0)),
    )


def told(story: Story) -> list[TurnEnded]:
    """Live through a story, resuming after every crash and pause, look at how it ends, and say which turns ended."""
    with tempfile.TemporaryDirectory() as root:
        limits = Limits(iterations=MAX_ITERATIONS, active_seconds=MAX_ACTIVE, cost=story.cost)
        sim = Simulation(
            Path(root), lambda turn: story.plays[(turn.number - 1) % len(story.plays)], limits=limits, most_turns=300
        )
        for moment in story.kills:
            sim.after(moment, sim.kill_engine)
        for moment, kind in story.signals:
            sim.after(moment, lambda kind=kind: sim.mailbox.post(kind))
        outcome = lived_through(sim, story.downtime)
        if outcome is None:
            return []
        assert not outcome.succeeded or "works" in sim.tree
        assert sim.spent.iterations <= MAX_ITERATIONS
        assert sim.spent.turns == len(sim.processes)
        assert all(process.result for process in sim.processes.values()), "an agent was left running"
        assert sim.ledger().reserved == 0.0
        return sim.entries(TurnEnded)


def lived_through(sim: Simulation, downtime: float) -> Outcome | None:
    """The outcome of the run; None where the engine refused to go on with what was tampered with."""
    for engine in count(1):
        assert engine <= 10, "the run does not end"
        try:
            outcome = sim.run().outcome
        except PowerCut:
            sim.clock.pass_by(downtime)
            continue
        except RalphError:
            return None
        if outcome is not Outcome.PAUSED:
            return outcome
    raise AssertionError("never reached")


OURS = settings(deadline=None, max_examples=40)


@OURS
@given(stories(HONEST))
@example(
    Story(
        (Play(seconds=10.0), Play(writes_into_a_report, seconds=10.0), Play(works)),
        kills=(22.5,),
        signals=((2.0, SignalType.PAUSE),),
    )
)
def test_the_verdict_is_what_the_tree_says_and_no_finished_work_is_done_again(story: Story) -> None:
    settled = [ended for ended in told(story) if ended.retry_at is None]
    finished = Counter(ended.key for ended in settled if ended.result.end is not TurnEnd.STOPPED)
    assert all(times == 1 for times in finished.values()), finished


@OURS
@given(stories(HONEST + TAMPERING))
@example(Story((Play(lies_in_the_state, seconds=40.0),), kills=(30.0,), downtime=100.0))
@example(Story((Play(meanwhile=lies_in_the_state, seconds=40.0),), kills=(22.0,)))
@example(Story((Play(removes_the_documents, seconds=40.0), Play()), kills=(30.0,), downtime=100.0))
@example(Story((Play(appends_to_the_journal, seconds=40.0),)))
def test_nothing_that_an_agent_writes_makes_the_run_succeed(story: Story) -> None:
    told(story)


@pytest.mark.parametrize("deed", TAMPERING, ids=lambda deed: deed.__name__)
@pytest.mark.parametrize("killed", [False, True], ids=["engine alive", "engine dead"])
def test_no_single_lie_makes_the_run_succeed(deed: Callable[[Simulation], None], killed: bool) -> None:
    told(Story((Play(deed, seconds=40.0),), kills=(30.0,) if killed else (), downtime=100.0))


def test_a_success_that_is_broken_again_before_it_was_seen_is_none() -> None:
    told(Story((Play(meanwhile=works, does=breaks, seconds=40.0),)))
