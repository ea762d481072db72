"""The view of a run as values: what the command line, the web page and the Python API show.

`fold` fills the facts, one journal record after the other. `assess` adds what depends on the time and on whether an engine
is at work: state, attention, headline and needs. Long lists keep their newest items; sums always cover the whole run.
"""

from dataclasses import field

from ralph.core.checks import Attribution, CheckStatus, Counts, Finding
from ralph.core.events import HandOver, Landed, MergeResult, RunEnded, TaskState
from ralph.core.limits import Limits, Spent, Usage
from ralph.core.signals import Question, SignalType
from ralph.core.turns import TurnEnd
from ralph.core.values import value
from ralph.view.rows import GROUPS, Need, NeedKind, RunRow, Tier

__all__ = ["GROUPS", "Need", "NeedKind", "RunRow", "RunView", "Tier"]

SCHEMA = 1
"""The version of the JSON form. It changes only if a field is removed or gets another meaning."""
MOST = 500
"""How many turns, signals, checks, findings, merges and commits a view lists. The newest stay."""
MAX_NOTICES, MAX_HISTORY, MAX_POINTS = 50, 200, 500
OUTPUT_CHARS, TEXT_CHARS = 4000, 500


@value
class RunFacts:
    """How a run was started."""

    id: str = ""
    project: str = ""
    """The root of its project."""
    workflow: str = ""
    task: str = ""
    criterion: str = ""
    agents: tuple[str, ...] = ()
    workspace: str = "."
    directory: str = "."
    branch: str = ""
    onto: str = ""
    land: str = ""
    created_at: float = 0.0
    has_snapshots: bool = True
    checks: tuple[str, ...] = ()
    """The titles of its checks."""
    by: str = ""
    """Who started it, if it was not started in a terminal or by a program of the user."""


@value
class Activity:
    """What the agent of a running turn reported so far."""

    events: int = 0
    tools: int = 0
    kind: str = ""
    """The kind of its last event that has a text."""
    text: str = ""
    at: float = 0.0
    """When it last reported something."""
    usage: Usage = field(default_factory=Usage)


@value
class TurnView:
    """One turn."""

    number: int
    key: str
    role: str
    agent: str = ""
    attempt: int = 1
    place: str = ""
    """The worker of a cluster on which it runs or ran; empty for this machine."""
    task: str = ""
    is_iteration: bool = False
    is_repair: bool = False
    started_at: float = 0.0
    ended_at: float | None = None
    end: TurnEnd | None = None
    """How it ended; None while it runs."""
    is_final: bool = False
    """Whether it settled its work."""
    usage: Usage = field(default_factory=Usage)
    summary: str = ""
    error: str = ""
    files: int = 0
    added: int = 0
    removed: int = 0
    names: tuple[str, ...] = ()
    snapshot: str = ""
    head_before: str = ""
    """The commit that HEAD was at when it started, if it works in the user's tree."""
    head_after: str = ""
    """The same when it ended."""
    session: str = ""
    """The agent's own name for the conversation."""
    denied: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    retry_at: float | None = None
    retry_reason: str = ""
    activity: Activity | None = None
    """What the agent reported so far; only while the turn runs."""


@value
class CheckPoint:
    """One result of a check."""

    seq: int
    at: float
    key: str
    """The work that was checked, for example `iteration-3`."""
    iteration: int
    status: CheckStatus
    seconds: float
    flaky: bool = False
    failing: int = 0
    """How many tests failed, as far as the output names them."""


@value
class CheckView:
    """A check: its latest result, what the work did to it, and its history."""

    scope: str
    """The task that it belongs to; empty for a check of the whole run."""
    title: str
    command: str = ""
    status: CheckStatus | None = None
    """None until it was run."""
    baseline: CheckStatus | None = None
    """Its result before the first turn."""
    attribution: Attribution | None = None
    code: int | None = None
    reason: str = ""
    seconds: float = 0.0
    output: str = ""
    log: str = ""
    """The file with the whole output, relative to the run directory."""
    value: float | None = None
    tests: Counts | None = None
    failing: tuple[str, ...] = ()
    flaky: bool = False
    since: CheckPoint | None = None
    """The first of the latest results with this status."""
    same_since: CheckPoint | None = None
    """The first of the latest results with exactly these failures."""
    failures: str = ""
    """A short name for the set of failures."""
    runs: int = 0
    history: tuple[CheckPoint, ...] = ()


@value
class FindingView:
    """Something that a guard found."""

    finding: Finding
    key: str
    seq: int
    at: float
    is_open: bool = True
    """Whether the latest verdict on the same work still has it."""


@value
class ReceiptView:
    """A turn that received a signal, and what it made of it."""

    role: str
    turn: int
    means: str
    """`prompt`, `hook`, `live`, `tool` or `turn`."""
    at: float
    response: str = ""
    note: str = ""


@value
class SignalView:
    """A signal of the user and its effect."""

    id: str
    name: str
    type: SignalType | None
    """None for an invalid signal file."""
    state: str
    """`waiting`, `accepted` or `refused`."""
    at: float = 0.0
    message: str = ""
    target: str = ""
    """The role that is meant; empty for all."""
    now: bool = False
    reason: str = ""
    """Why it was refused, or what it waits for."""
    iteration: int | None = None
    """The iteration that it is for; None for any."""
    is_message: bool = False
    """Whether its message is for the agents."""
    receipts: tuple[ReceiptView, ...] = ()
    by: str = ""
    """Who sent it, for example `web:phone`; empty for the command line."""


@value
class CommentView:
    """A comment of the user on lines of the diff: who received it, and which turn changed these lines."""

    signal: str
    """The id of the signal that brought it; empty if it is part of feedback."""
    feedback: str
    """The file of the feedback that it is part of; empty if a signal brought it."""
    path: str
    line: int
    last_line: int
    """The last line that is meant; 0 for one line."""
    side: str
    """`new`, or `old` for removed lines."""
    snippet: str
    """The lines of the diff around it when the user wrote it."""
    marks: tuple[int, ...]
    """Which lines of the snippet are meant, counted from 0; empty if that is not known."""
    text: str
    at: float = 0.0
    """When the run took it, or when the feedback was written."""
    receipts: tuple[ReceiptView, ...] = ()
    changed_by: int = 0
    """The first turn that changed these lines, from the one that received it; 0 if none did."""
    file_changed_by: int = 0
    """The first such turn that changed the file; 0 if none did."""


@value
class ActionView:
    """Something that the user did with the run while it was not running."""

    id: str
    """What the command returned."""
    action: str
    """`undo`, `restore`, `revert` or `land`."""
    result: str
    by: str
    """Who did it; empty for the command line."""
    at: float


TAKEN_BACK = {"revert": "reverted", "undo": "undone", "restore": "restored"}
"""The state of a run that succeeded, if the user changed its files afterwards, by the action."""


@value
class QuestionView:
    """A question of an agent, with its answer if there is one."""

    question: Question
    at: float


@value
class TaskView:
    """A task of a session."""

    id: str
    title: str
    state: TaskState
    reason: str = ""
    attempt: int = 0
    most_attempts: int = 0
    wave: int = 0
    needs: tuple[str, ...] = ()
    """The tasks that it depends on."""
    since: float = 0.0
    turn: int = 0
    """The turn that works on it now; 0 if none does."""


@value
class MergeView:
    """A merge into the branch of the run."""

    key: str
    workspace: str
    started_at: float
    ended_at: float | None = None
    end: MergeResult | None = None
    """None while it is made."""
    branch: str = ""
    commit: str = ""
    files: tuple[str, ...] = ()
    notice: str = ""
    failed: tuple[str, ...] = ()
    """The checks that failed on the merged tree."""

    @property
    def is_merged(self) -> bool:
        """Whether all of the work is on the branch of the run."""
        return self.end in (MergeResult.MERGED, MergeResult.NOTHING)


@value
class CommitView:
    """A commit that the engine made."""

    key: str
    commit: str
    at: float


@value
class ReportView:
    """A completion report. A run has one for every time that it ended."""

    path: str
    """Relative to the root of the project."""
    hash: str
    """The hash of what Ralph wrote."""
    outcome: str
    at: float


@value
class NoticeView:
    """A notice for the user."""

    seq: int
    at: float
    text: str


@value
class Sums:
    """What turns used together."""

    turns: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    cost: float | None = None
    """The sum of the known costs, in US dollars; None if no cost is known."""
    unpriced_turns: int = 0


@value
class CostGroup:
    """What the turns of one role, agent or model used."""

    name: str
    sums: Sums


@value
class CostPoint:
    """What the run had used in all when a turn ended."""

    turn: int
    at: float
    cost: float
    tokens: int


@value
class CostView:
    """Money and tokens of a run."""

    total: Sums = field(default_factory=Sums)
    by_role: tuple[CostGroup, ...] = ()
    by_agent: tuple[CostGroup, ...] = ()
    by_model: tuple[CostGroup, ...] = ()
    over_time: tuple[CostPoint, ...] = ()
    """Every `stride`-th turn."""
    stride: int = 1


@value
class LimitView:
    """An allowance of the run, and how much of it is used."""

    name: str
    """`iterations`, `time`, `deadline`, `cost` or `tokens`."""
    used: float
    limit: float
    share: float
    """From 0 to 1, or more if it is exceeded."""


@value
class GraphNode:
    """A task or a hat in the graph of a run."""

    id: str
    title: str
    state: str
    """The state of the task; of a hat `running`, `used` or `unused`."""
    x: int
    """The column: the wave of a task, the distance of a hat from the first event."""
    y: int
    count: int = 0
    """How many turns there were for it."""


@value
class GraphEdge:
    """A dependency between tasks, or a topic that goes from one hat to another."""

    source: str
    target: str
    label: str = ""


@value
class RunGraph:
    """The tasks of a session, or the hats of a run, with their places."""

    kind: str = ""
    """`tasks`, `hats`, or empty if the workflow has no graph."""
    nodes: tuple[GraphNode, ...] = ()
    edges: tuple[GraphEdge, ...] = ()


@value
class ChecksRun:
    """Checks that run now."""

    key: str
    titles: tuple[str, ...]
    since: float


@value
class RunView:
    """Everything that an interface shows of a run."""

    run: RunFacts = field(default_factory=RunFacts)
    workflow: str = ""
    seq: int = 0
    """The number of the last journal line that it contains."""
    at: float = 0.0
    """The time of that line."""

    sandbox: str = ""
    """How its agents are isolated: the level, or `not isolated` with the reason; empty if that was not recorded."""

    # Set by `assess`.
    alive: bool = False
    """Whether an engine works on the run now."""
    doubt: str = ""
    """Why this user's Ralph may not have written the run; empty if it has."""
    has_feedback: bool = False
    """Whether the user gave feedback to a session since it ended, so that it continues when it is resumed."""
    state: str = "new"
    """`new`, `running`, `waiting`, `interrupted`, or the outcome."""
    attention: Tier = Tier.DONE
    group: str = "done"
    """The heading of its tier."""
    reasons: tuple[str, ...] = ()
    """Why it is in this tier, if that is not obvious from its state."""
    since: float = 0.0
    """Since when it is in this state."""
    headline: str = ""
    doing: str = ""
    """What is in progress, or what the run waits for; empty if no engine works on it."""
    cost_text: str = ""
    """The money spent in words, honest about turns without a price."""
    needs: tuple[Need, ...] = ()
    limits: tuple[LimitView, ...] = ()
    graph: RunGraph = field(default_factory=RunGraph)
    next: str = ""
    """The command to type next; empty while the run works."""

    # Facts of the journal.
    iteration: int = 0
    """The iteration in progress, or the last one."""
    spent: Spent = field(default_factory=Spent)
    spent_at: float = 0.0
    """When these counters were last brought up to date."""
    allowed: Limits = field(default_factory=Limits)
    hand_overs: tuple[HandOver, ...] = ()
    """The turns that agents did for others, which were not available."""
    turns: tuple[TurnView, ...] = ()
    more_turns: int = 0
    """How many earlier turns are not listed."""
    checks: tuple[CheckView, ...] = ()
    checking: tuple[ChecksRun, ...] = ()
    findings: tuple[FindingView, ...] = ()
    signals: tuple[SignalView, ...] = ()
    more_signals: int = 0
    comments: tuple[CommentView, ...] = ()
    """The user's comments on lines of the diff. Set by `assess`, because some wait beside the journal."""
    questions: tuple[QuestionView, ...] = ()
    actions: tuple[ActionView, ...] = ()
    tasks: tuple[TaskView, ...] = ()
    merges: tuple[MergeView, ...] = ()
    commits: tuple[CommitView, ...] = ()
    cost: CostView = field(default_factory=CostView)
    notices: tuple[NoticeView, ...] = ()
    missing: tuple[str, ...] = ()
    """What of the user's branches, tags and stash is not as it was, a sentence each."""
    missing_places: tuple[str, ...] = ()
    """The branch, tag or stash entry that each sentence is about."""
    landed: Landed | None = None
    ended: RunEnded | None = None
    ended_at: float | None = None
    reports: tuple[ReportView, ...] = ()
    """The completion reports, the oldest first."""
    changed_files: tuple[str, ...] = ()
    """The files that differed from before the run when it last ended, as far as they are listed."""
    changed_at: float = 0.0
    """When that was."""
    unproven_snapshot: str = ""
    """What `ralph accept` accepts: the last verdict was on this snapshot, and its checks pass without a proof. Else empty."""
    paused: bool = False
    started_at: float = 0.0
    """When an engine first worked on it."""
    resumed_at: float | None = None
    """When the last engine took it over."""
    resumes: int = 0
    agent: str = ""
    """The agent of the latest turn, or the one that the user changed to."""
    snapshot: str = ""
    """The latest snapshot of the tree."""
    adopted: str = ""
    """Why the run was not known to be the user's own before they adopted it."""

    @property
    def taken_back(self) -> ActionView | None:
        """The last change of the user to the files of a run that has ended; None if its work is as the run left it."""
        if self.ended_at is None:
            return None
        changes: list[ActionView] = []
        for one in self.actions:
            last = changes[-1].action if changes else ""
            if one.at < self.ended_at or one.action not in TAKEN_BACK:
                continue
            if one.action == "undo" and last in ("revert", "restore"):
                changes.pop()
            elif one.action != last or last == "undo":
                changes.append(one)
        return changes[-1] if changes else None

    @property
    def running_turns(self) -> tuple[TurnView, ...]:
        """The turns in progress."""
        return tuple(turn for turn in self.turns if turn.end is None)

    @property
    def run_checks(self) -> tuple[CheckView, ...]:
        """The checks of the whole run, without those of single tasks."""
        return tuple(check for check in self.checks if not check.scope)


@value
class RunTurns:
    """The turns and the merges of a run, without a limit to their number."""

    turns: tuple[TurnView, ...]
    merges: tuple[MergeView, ...]
