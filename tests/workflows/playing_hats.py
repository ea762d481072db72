"""A world of hats without files, processes or time: the rules are driven step by step, and restarted after every one."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from ralph.core.checks import Check, CheckResult, CheckStatus, Verdict
from ralph.core.events import (
    ChecksEnded,
    Commit,
    Do,
    DocumentEdited,
    Event,
    Merge,
    MergeEnded,
    MergeResult,
    RunChecks,
    SignalAccepted,
    Stop,
    TurnEnded,
    WorkCommitted,
)
from ralph.core.prompt import Prompt
from ralph.core.signals import Signal, SignalType
from ralph.core.turns import Change, TurnEnd, TurnRequest, TurnResult
from ralph.documents.hats.definition import Hat, HatsSettings, Topic
from ralph.workflows.hats.events import EVENTS
from ralph.workflows.hats.routing import HatsContext
from ralph.workflows.hats.rules import Hats
from ralph.workflows.hats.state import TASKS, HatsPhase, HatsState, QueuedEvent
from ralph.workflows.merge_rules import RESOLVER

RUN = "261116-093000-k3x9"
OBJECTIVE = "Build the thing"


def hat(id: str, triggers: str, publishes: str, **more: Any) -> Hat:
    return Hat(id, id, f"The {id}.", tuple(triggers.split()), tuple(publishes.split()), f"Be the {id}.", **more)


HATS = (
    hat("planner", "build.start queue.advance", "tasks.ready", default_publishes="tasks.ready"),
    hat(
        "builder",
        "tasks.ready review.rejected finalization.failed",
        "review.ready build.blocked",
        default_publishes="review.ready",
    ),
    hat("critic", "review.ready", "review.passed review.rejected", default_publishes="review.rejected"),
    hat(
        "finalizer",
        "review.passed",
        "queue.advance finalization.failed LOOP_COMPLETE",
        default_publishes="finalization.failed",
    ),
)
CODE_ASSIST = HatsSettings(HATS, starting_event="build.start", required=("review.passed",))
CHECK = (Check("works"),)


def lines(*events: tuple[str, object]) -> str:
    return "".join(
        json.dumps({"topic": topic, "payload": payload, "ts": "2026-11-16T09:30:00Z"}) + "\n"
        for topic, payload in events
    )


@dataclass
class Turned:
    """What an agent makes of a turn."""

    events: tuple[tuple[str, object], ...] = ()
    raw: str = ""
    """The events file, where it is not what `events` say."""
    text: str = ""
    end: TurnEnd = TurnEnd.FINISHED
    files: int = 0
    tasks: str | None = None
    """What is in tasks.jsonl from now on."""


@dataclass
class Stage:
    """One run, played to its end."""

    rules: Hats
    works: bool | None = False
    """Whether the checks pass; None where they cannot be run."""
    """Whether the checks pass."""
    state: HatsState = field(init=False)
    documents: dict[str, str] = field(default_factory=dict)
    log: str = ""
    turns: list[tuple[str, str]] = field(default_factory=list)
    """The hat and the topic of every turn."""
    taken: list[int] = field(default_factory=list)
    """The number of the event of every turn."""
    commits: list[int] = field(default_factory=list)
    now: float = 1_800_000_000.0
    checked: int = 0
    prompt: Prompt = field(default_factory=Prompt)
    """The prompt of the last turn."""
    page: str = ""
    """The same as text."""
    during_checks: Callable[[], None] = lambda: None
    during_commit: Callable[[], None] = lambda: None
    pick: Callable[[int], int] = lambda count: 0
    """Which of several that are in progress ends next."""
    merges: Callable[[str], MergeResult] = lambda workspace: MergeResult.MERGED
    """The result of the merge of a workspace."""
    most: int = 1
    """The most turns that were in progress at once."""
    resolved: int = 0
    notices: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.state = self.rules.load({})

    def tell(self, event: Event) -> None:
        """Accept an event; an engine that starts anew from the documents knows the same."""
        transition = self.rules.accept(self.state, event, self.now)
        self.state = transition.state
        self.notices += transition.notices
        self.documents.update(transition.documents)
        self.log += "".join(transition.side_files.lines.values())
        if isinstance(event, TurnEnded | MergeEnded) and self.state.phase is not HatsPhase.DONE:
            again = self.rules.load({**self.documents, **self.state.texts})
            assert again == self.state, "a restart forgets or invents something"

    def says(self, words: str, target: str = "") -> None:
        self.tell(SignalAccepted(Signal("s", SignalType.RESUME, words, target=target)))

    def play(self, agent: Callable[["Stage", str], Turned], most: int = 200) -> Stop | None:
        """Have agents take turns until the run ends, or after so many."""
        while self.state.phase not in (HatsPhase.ACT, HatsPhase.WAVE) or len(self.turns) < most:
            decision = self.rules.decide(self.state, self.now)
            if isinstance(decision, Stop):
                return decision
            assert isinstance(decision, Do)
            if self.state.phase is HatsPhase.REST:
                return None
            if not decision.work:
                self.now += 1.0
                continue
            self.most = max(self.most, sum(isinstance(one, TurnRequest) for one in decision.work))
            self._do(decision.work[self.pick(len(decision.work))], agent)
        return None

    def _do(self, work: object, agent: Callable[["Stage", str], Turned]) -> None:
        match work:
            case TurnRequest(role=role) if role == RESOLVER:
                self.resolved += 1
                ended = TurnResult(TurnEnd.FINISHED, self.now, self.now)
                self.tell(TurnEnded(work.key, len(self.turns), role, 1, ended))
            case Merge():
                end = self.merges(work.worktree)
                branch = f"ralph/{RUN}/{work.worktree}"
                self.tell(MergeEnded(work.key, work.worktree, end, branch, "abc", snapshot=f"of {work.worktree}"))
            case TurnRequest():
                self.prompt, self.page = work.prompt, work.prompt.text
                given = self._given(work)
                self.turns.append((work.role, given[0].topic))
                self.taken += [event.number for event in given]
                began, made = self.now, agent(self, work.role)
                self.now += 10.0
                if made.tasks is not None and made.tasks != self.state.texts.get(TASKS, ""):
                    self.tell(DocumentEdited(TASKS, made.tasks))
                result = TurnResult(
                    made.end,
                    began,
                    self.now,
                    text=made.text,
                    error="" if made.end is TurnEnd.FINISHED else "it broke",
                    change=Change(f"snapshot-{len(self.turns)}", int(made.files)),
                    documents={EVENTS: made.raw or lines(*made.events)},
                )
                number = len(self.turns)
                tries = (work.retries or 0) + 1 if made.end is TurnEnd.FAILED else 1
                self.tell(TurnEnded(work.key, number, work.role, tries, result, is_iteration=True))
            case RunChecks():
                self.checked += 1
                self.during_checks()
                known = {True: CheckStatus.PASSED, False: CheckStatus.FAILED, None: CheckStatus.COULD_NOT_RUN}
                status = known[self.works]
                self.tell(
                    ChecksEnded(work.key, Verdict((CheckResult("works", status, 1.0, output="no", command="works"),)))
                )
            case Commit():
                self.commits.append(work.iteration)
                self.during_commit()
                self.tell(WorkCommitted(work.key, "abc"))
            case _:
                raise AssertionError(work)

    def _given(self, work: TurnRequest) -> tuple[QueuedEvent, ...]:
        """The events that a turn is about."""
        workers = self.state.wave.workers if self.state.wave and work.worktree else ()
        of_wave = tuple(
            worker.event for worker in workers if work.key == f"wave-{worker.event.number}-{worker.attempt}"
        )
        return of_wave or self.state.events

    @property
    def topics(self) -> list[str]:
        return [json.loads(line)["topic"] for line in self.log.splitlines()]


def stage(settings: HatsSettings = CODE_ASSIST, checks: tuple[Check, ...] = (), **more: Any) -> Stage:
    changed = replace(
        settings, **{key: value for key, value in more.items() if key in HatsSettings.__dataclass_fields__}
    )
    return Stage(Hats(HatsContext(RUN, OBJECTIVE, changed, checks, "Frame.")), works=more.get("works", False))


def task(id: str, status: str = "open", key: str = "", run: str = RUN) -> str:
    return (
        json.dumps(
            {"id": id, "title": id, "status": status, "key": key, "priority": 3, "blocked_by": [], "loop_id": run}
        )
        + "\n"
    )


EVIDENT = {"build.done": Topic(evidence=True, otherwise="build.blocked")}
