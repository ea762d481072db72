"""Random journals: few names, so that entries meet the same turns, checks, tasks and signals again and again."""

from hypothesis import strategies as st

from ralph.core.checks import (
    CheckResult,
    CheckStatus,
    Counts,
    FailureSet,
    Finding,
    HistoryChange,
    Rule,
    Severity,
    Verdict,
)
from ralph.core.entries import (
    ActionDone,
    AgentsChanged,
    ChecksStarted,
    Entry,
    GuardRulesChanged,
    HistoryChanged,
    LimitExtended,
    MergeStarted,
    Notice,
    QuestionAnswered,
    QuestionAsked,
    Record,
    RefsRecorded,
    RunAdopted,
    RunStarted,
    SignalReceived,
    SignalRefused,
    SnapshotTaken,
)
from ralph.core.events import (
    ChecksEnded,
    DocumentEdited,
    Landed,
    MergeEnded,
    MergeResult,
    RunEnded,
    SignalAccepted,
    TaskChanged,
    TaskState,
    TurnEnded,
    TurnStarted,
    WorkCommitted,
)
from ralph.core.limits import Limits, Spent, Usage
from ralph.core.outcomes import Outcome
from ralph.core.signals import Question, Signal, SignalType
from ralph.core.turns import Change, TurnEnd, TurnResult

TEXTS = st.sampled_from(("", "it fails", "waits: é", "line one\nline two", "x" * 700))
KEYS = st.sampled_from(("baseline", "iteration-1", "iteration-2", "execute:task-1-1", "check:task-1-1", "session-1"))
ROLES = st.sampled_from(("implementer", "executor"))
NAMES = st.sampled_from(("s1", "s2", "s3"))
TURNS = st.integers(1, 4)
NUMBERS = st.integers(0, 5000)
MOMENTS = st.floats(0, 5000, allow_nan=False)
COSTS = st.none() | st.sampled_from((0.0, 0.01, 0.1, 1.5))
SPENT = st.builds(Spent, iterations=st.integers(0, 4), turns=TURNS, cost=MOMENTS, active_seconds=MOMENTS)
LIMITS = st.builds(
    Limits, iterations=st.none() | st.integers(1, 9), cost=st.none() | MOMENTS, tokens=st.none() | NUMBERS
)
USAGE = st.builds(
    Usage,
    input_tokens=NUMBERS,
    output_tokens=NUMBERS,
    cost=COSTS,
    cached_tokens=NUMBERS,
    model=st.sampled_from(("", "m")),
)
FINDINGS = st.builds(
    Finding,
    rule=st.sampled_from(Rule),
    path=st.just("test_a.py"),
    line=st.integers(0, 2),
    sentence=TEXTS,
    severity=st.sampled_from(Severity),
)
RESULTS = st.builds(
    CheckResult,
    title=st.sampled_from(("`pytest` passes", "`ruff` passes")),
    status=st.sampled_from(CheckStatus),
    seconds=MOMENTS,
    command=st.just("pytest"),
    output=st.sampled_from(("", "F", "long " * 2000)),
    failing=st.lists(NAMES, max_size=2).map(tuple),
    failures=st.none()
    | st.builds(FailureSet, count=st.none() | st.just(2.0), digest=st.sampled_from(("", "d1", "d2"))),
    tests=st.none() | st.builds(Counts, passed=NUMBERS, failed=NUMBERS),
    flaky=st.booleans(),
)
VERDICTS = st.builds(
    Verdict,
    results=st.lists(RESULTS, max_size=2).map(tuple),
    findings=st.lists(FINDINGS, max_size=2).map(tuple),
    snapshot=st.sampled_from(("", "abc")),
)
ANSWERS = st.sampled_from(
    (None, {"summary": "did it"}, {"steering": {"response": "followed", "note": "as you said"}}, {"steering": "no"})
)
TURN_RESULTS = st.builds(
    TurnResult,
    end=st.sampled_from(TurnEnd),
    started_at=MOMENTS,
    ended_at=MOMENTS,
    usage=USAGE,
    text=TEXTS,
    error=TEXTS,
    answer=ANSWERS,
    received=st.lists(NAMES, max_size=2).map(tuple),
    head=st.sampled_from(("", "def")),
    change=st.none() | st.builds(Change, snapshot=st.just("abc"), files=TURNS, names=st.just(("a.py",))),
)
SIGNALS = st.builds(
    Signal, name=NAMES, type=st.sampled_from(SignalType), message=TEXTS, target=st.sampled_from(("", "executor"))
)
QUESTIONS = st.builds(Question, id=NAMES, question=TEXTS, asked_at=MOMENTS, timeout=MOMENTS, role=ROLES)
WORDS = st.lists(NAMES, max_size=2).map(tuple)
TASKS = st.sampled_from(("task-1", "task-2"))
ENTRIES: st.SearchStrategy[Entry] = st.one_of(
    st.builds(RunStarted, pid=TURNS, version=st.just("1"), run=st.just("r"), frozen=st.just({}), resumed=st.booleans()),
    st.builds(RunAdopted, reason=TEXTS, claimed=TEXTS, goes_on=st.booleans()),
    st.builds(RefsRecorded, refs=st.just({"HEAD": "abc"})),
    st.builds(
        HistoryChanged, turn=TURNS, change=st.builds(HistoryChange, missing=st.lists(TEXTS, max_size=1).map(tuple))
    ),
    st.builds(LimitExtended, limits=LIMITS, reason=TEXTS),
    st.builds(AgentsChanged, agents=st.just("{}"), label=NAMES),
    st.builds(GuardRulesChanged, allowed=st.just({"test-skipped": "no database"}), may_change=st.just(("tests/**",))),
    st.builds(
        TurnStarted,
        turn=TURNS,
        key=KEYS,
        role=ROLES,
        attempt=TURNS,
        agent=NAMES,
        is_iteration=st.booleans(),
        messages=WORDS,
    ),
    st.builds(ActionDone, id=NAMES, action=st.sampled_from(("undo", "land")), result=TEXTS, by=NAMES),
    st.builds(ChecksStarted, key=KEYS, checks=st.just(("`pytest` passes",))),
    st.builds(MergeStarted, key=st.just("merge-task-1-1-1"), worktree=st.just("task-1/1")),
    st.builds(SnapshotTaken, label=TEXTS, snapshot=NAMES),
    st.builds(SignalReceived, id=NAMES, turn=TURNS, role=ROLES, means=st.sampled_from(("hook", "live", "tool"))),
    st.builds(SignalRefused, name=NAMES, reason=TEXTS),
    st.builds(QuestionAsked, question=QUESTIONS),
    st.builds(QuestionAnswered, id=NAMES, answer=TEXTS, by=st.just("person")),
    st.builds(Notice, text=TEXTS),
    st.builds(TaskChanged, task=TASKS, title=TEXTS, state=st.sampled_from(TaskState), wave=st.integers(0, 2)),
    st.builds(
        TurnEnded,
        key=KEYS,
        turn=TURNS,
        role=ROLES,
        attempt=TURNS,
        result=TURN_RESULTS,
        spent=SPENT,
        retry_at=st.none() | MOMENTS,
    ),
    st.builds(ChecksEnded, key=KEYS, verdict=VERDICTS, spent=SPENT),
    st.builds(WorkCommitted, key=KEYS, commit=st.sampled_from(("", "abc")), notice=TEXTS),
    st.builds(
        MergeEnded,
        key=st.just("merge-task-1-1-1"),
        worktree=st.just("task-1/1"),
        end=st.sampled_from(MergeResult),
        branch=st.sampled_from(("", "ralph/r/task-1/1")),
        files=st.lists(NAMES, max_size=2).map(tuple),
        verdict=st.none() | VERDICTS,
    ),
    st.builds(Landed, commit=st.just("abc"), branch=st.just("main"), moved=st.booleans()),
    st.builds(SignalAccepted, signal=SIGNALS),
    st.builds(DocumentEdited, path=st.just("progress.md")),
    st.builds(RunEnded, outcome=st.sampled_from(Outcome), reason=TEXTS, spent=SPENT, limits=LIMITS),
)


@st.composite
def journals(draw: st.DrawFn, most: int = 12) -> list[Record]:
    """A journal of any entries, numbered and timed as the engine does."""
    entries = draw(st.lists(ENTRIES, max_size=most))
    gaps = draw(st.lists(st.sampled_from((0.0, 1.0, 200.0)), min_size=len(entries), max_size=len(entries)))
    records, at = [], 1000.0
    for number, (entry, gap) in enumerate(zip(entries, gaps, strict=True), 1):
        at += gap
        documents = {".aiwg/ralph/completion-1.md": "h"} if isinstance(entry, RunEnded) else {}
        records.append(Record(number, at, entry, documents))
    return records
