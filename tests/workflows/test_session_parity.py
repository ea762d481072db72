"""What scripted sessions of both layouts decide, ask and write, kept as texts under `sessions/`.

`RECORD=1 pytest tests/workflows/test_session_parity.py` writes the texts anew; read the difference before you commit it.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from test_classic_rules import entry
from test_classic_rules import rules as classic_rules
from test_session_rules import ID, NOW, PLAN, TASK, session

from ralph.core.checks import CheckResult, CheckStatus, Verdict
from ralph.core.events import (
    ChecksEnded,
    DocumentEdited,
    Event,
    Merge,
    Merged,
    MergeEnd,
    Promote,
    RunChecks,
    RunEnded,
    SignalTaken,
    Stop,
    TurnEnded,
    Work,
)
from ralph.core.limits import Limits, Spent
from ralph.core.signals import Signal, SignalType
from ralph.core.turns import Change, TurnEnd, TurnRequest, TurnResult
from ralph.store.prompts import load_role
from ralph.workflows.session.terms import Roles

HOME = f".ralph-sessions/{ID}"
GOLDEN = Path(__file__).with_name("sessions")
FAILED_REVIEW = {"status": "completed", "verdict": "Failed", "feedback": "It does not read well."}
GAPS = {"status": "completed", "assessment": "Gaps Identified", "gaps": ["no help text"]}
PAUSED = {"status": "paused", "blockers": ["told to stop"]}
CLASSIC_PLAN = "# Plan\n\n## Goal & Success Criteria\nDo it\n\n- it is done\n"


def task(name: str, needed: str = "") -> str:
    return TASK.format(id=name, type="Parallelizable", file=f"{name}.py", needed=needed)


def roles() -> Roles:
    names = ("planner", "questioner", "executor", "reviewer", "librarian", "classic")
    shipped = {name: load_role(name, Path("/nowhere"))[0] for name in names}
    return Roles(shipped, "{{why}}{{task}}{{inbox}}{{details}}{{checks}}")


@dataclass
class Play:
    """Drives the rules with fixed answers, and writes down what happens."""

    rules: Any
    says: dict[str, Any] = field(default_factory=dict)
    """What comes of a turn or a check, by key: changes to the result, or False for a check that fails."""
    reloads: bool = False
    documents: dict[str, str] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)
    shown: set[tuple[str, str]] = field(default_factory=set)
    now: float = NOW
    turns: int = 0
    state: Any = None

    def __post_init__(self) -> None:
        self.is_classic = not self.rules.layout.has_metadata
        self.load()

    def load(self) -> None:
        self.state = self.rules.load(self.documents)

    def run(self) -> "Play":
        for _ in range(200):
            decision = self.rules.decide(self.state, self.now)
            if isinstance(decision, Stop):
                self.told.append(f"STOP {decision.outcome}: {decision.reason}\n")
                self.take(RunEnded(decision.outcome, decision.reason, Spent(), Limits()))
                return self
            self.told.append("DO " + ", ".join(work.key for work in decision.work))
            work = decision.work[0]
            self.take(self.answer(work))
            if self.reloads and isinstance(work, TurnRequest):
                self.load()
        raise AssertionError("the session does not come to an end")

    def resume(self, **says: Any) -> "Play":
        self.says = says
        self.load()
        return self.run()

    def edit(self, path: str, text: str) -> None:
        self.documents[path] = text
        self.take(DocumentEdited(path, text))

    def take(self, event: Event) -> None:
        self.now += 60
        changes = self.rules.accept(self.state, event, self.now)
        self.state = changes.state
        for path in sorted(changes.documents):
            if path.startswith(HOME):
                self.told.append(f"  writes {path.removeprefix(HOME)}")
                self.told += self.new_lines(path, changes.documents[path])
        self.told += [f"  notice: {notice}" for notice in changes.notices]
        self.documents.update(changes.documents)

    def new_lines(self, path: str, text: str) -> list[str]:
        if not path.endswith("progress.md"):
            return []
        old = self.documents.get(path, "").splitlines()
        return [f"    {line}" for line in text.splitlines() if line.startswith("- [") and line not in old]

    def answer(self, work: Work) -> Event:
        said = self.says.get(work.key, {})
        match work:
            case RunChecks(key=key, checks=checks):
                self.told.append(f"  checks {', '.join(check.title for check in checks)}: {said is not False}")
                status = CheckStatus.FAILED if said is False else CheckStatus.PASSED
                found = (CheckResult(check.title, status, 0.1, command=check.command) for check in checks)
                return ChecksEnded(key, Verdict(tuple(found)))
            case Merge(key=key, workspace=workspace):
                return Merged(key, workspace, said or MergeEnd.MERGED, f"ralph/{ID}/{workspace}", "abc")
            case Promote(key=key, workspace=workspace):
                return Merged(key, workspace, MergeEnd.MERGED)
            case TurnRequest():
                self.tell(work)
                self.turns += 1
                result = TurnResult(TurnEnd.FINISHED, self.now, self.now + 1)
                answer, papers = self.content(work)
                if self.is_classic and work.role == "executor":
                    result = replace(result, change=Change("s", 1))
                result = replace(result, answer=answer, papers=papers)
                result = replace(result, **said)
                return TurnEnded(work.key, self.turns, work.role, 1, result)
            case _:
                raise AssertionError(work)

    def tell(self, work: TurnRequest) -> None:
        head, _, rest = work.prompt.partition("\n\n")
        keys = dict(line.split(": ", 1) for line in head.splitlines())
        place = work.workspace or "the tree"
        self.told.append(f"  turn of the {work.role} in {place}, reads only: {work.reads_only}, wall: {work.wall}")
        self.told += [f"    {line}" for line in head.splitlines()]
        self.told.append(f"    inbox: {', '.join(work.inbox)}")
        self.told += [f"    lends {name}: {path}" for name, path in work.lends.items()]
        who = (work.role, keys.get("MODE", ""))
        if who not in self.shown:
            self.shown.add(who)
            self.told += [f"    | {line}".rstrip() for line in (rest + work.closing).splitlines()]

    def content(self, work: TurnRequest) -> tuple[dict[str, Any], dict[str, str]]:
        mode = work.prompt.split("MODE: ")[1].split("\n")[0] if "MODE: " in work.prompt else ""
        done: dict[str, Any] = {"status": "completed", "summary": "done"}
        if work.role == "questioner":
            return done, self.questions(work)
        if work.role == "executor":
            return {**done, "success_criteria_met": True}, {"report.md": "### Summary of Changes\nDone.\n"}
        match mode:
            case "INITIALIZE":
                return done, {"plan.md": CLASSIC_PLAN if self.is_classic else PLAN}
            case "UPDATE" if self.is_classic:
                return done, {"plan.md": CLASSIC_PLAN + "\nMore.\n", "tasks.md": entry(4, "task-1 to 2")}
            case "UPDATE":
                return done, {"plan.md": PLAN + "\nMore.\n", "delta.md": "# Delta\n"}
            case "TASK_BREAKDOWN" if self.is_classic:
                return done, {"tasks.md": entry(1) + entry(2, "task-1") + entry(3, criterion="It reads well")}
            case "TASK_BREAKDOWN":
                needed = {"task-1": "", "task-2": "", "task-3": "task-1, task-2"}
                return done, {f"tasks/{name}.md": task(name, needs) for name, needs in needed.items()}
            case "REBREAKDOWN":
                return done, {"tasks/task-3.md": task("task-3", "task-1"), "tasks/task-9.md": task("task-9")}
            case "REBREAKDOWN_TASK":
                return done, {f"tasks/task-1.{n}.md": task(f"task-1.{n}") for n in (1, 2)}
            case "CRITIQUE_BREAKDOWN":
                return done, {"tasks/task-critique-1-1.md": task("task-critique-1-1")}
            case "TASK_REVIEW":
                return {**done, "verdict": "Qualified"}, {"review.md": "### Review Summary\nSeen.\n"}
            case "SESSION_REVIEW":
                return {**done, "assessment": "Complete"}, {"review.md": "# Session Review\n\nIt is there.\n"}
            case "EXTRACT":
                return done, {"knowledge/how-to/build.md": "---\ncategory: how-to\n---\n# Build\n\n## How\nRun it.\n"}
        raise AssertionError(work)

    def questions(self, work: TurnRequest) -> dict[str, str]:
        asked = "### Question 1\n- **ID**: Q-TECH-001\n- **Priority**: High\n- **Status**: {}\n"
        status = "Answered" if "MODE: research" in work.prompt else "Unanswered"
        [name] = list(work.hands_over) if "*" not in work.hands_over[0] else ["questions/technical.md"]
        if "feedback-driven" in work.prompt.split("\n\n")[0]:
            name = "questions/feedback-driven.md"
        return {name: f"# Questions\n\n## Cycle 1\n\n{asked.format(status)}"}

    @property
    def text(self) -> str:
        """Everything that happened, and every document of the session as it is in the end."""
        own = {path: text for path, text in sorted(self.documents.items()) if path.startswith(HOME)}
        parts = [f"==== {path.removeprefix('.ralph-sessions/')}\n{text}" for path, text in own.items()]
        return "\n".join(["\n".join(self.told), *parts])


def classic(*checks: str, reloads: bool = False, says: dict[str, Any] | None = None) -> Play:
    return Play(replace(classic_rules(*checks), roles=roles()), says or {}, reloads)


def play_standard(says: dict[str, Any] | None = None, *checks: str, reloads: bool = False) -> Play:
    return Play(replace(session(checks), roles=roles()), says or {}, reloads)


def with_instructions(play: Play, text: str) -> Play:
    play.documents[f"{HOME}.instructions.md"] = text
    play.load()
    return play


def standard_rework() -> Play:
    return play_standard({"review:task-1-1": {"answer": FAILED_REVIEW}, "check:task-2-1": False}, "all").run()


def standard_gaps() -> Play:
    return play_standard({"review:session-1.0": {"answer": GAPS}, "session-1.0": False}, "all").run()


def standard_split() -> Play:
    late = {"end": TurnEnd.WALL, "answer": None, "papers": {}}
    return play_standard({"execute:task-1-1": late, "execute:task-1-2": late}).run()


def standard_feedback() -> Play:
    bad = {f"review:task-3-{n}": {"answer": FAILED_REVIEW} for n in (1, 2, 3)}
    play = play_standard(bad).run()
    play.edit(f"{HOME}/iterations/2/feedbacks/20261116-100000/feedbacks.md", "# Feedback\n\n- **ISS-001**: wrong\n")
    return play.resume()


def standard_paused() -> Play:
    return play_standard({"execute:task-1-1": {"answer": PAUSED}}).run().resume()


def standard_approval() -> Play:
    play = with_instructions(play_standard(), "- approval: signal\n- max_cycles: 0\n").run()
    play.load()
    play.take(SignalTaken(Signal("a", SignalType.APPROVE)))
    return play.run()


def classic_rework() -> Play:
    return classic("all", says={"review:task-1-1": {"answer": FAILED_REVIEW}, "check:task-2-1": False}).run()


def classic_gaps() -> Play:
    gap = {"answer": GAPS, "papers": {"review.md": "# Session Review\n", "tasks.md": entry(4, "task-3")}}
    return classic("all", says={"review:session-1": gap, "session-1": False}).run()


def classic_update() -> Play:
    bad = {f"review:task-1-{n}": {"answer": FAILED_REVIEW} for n in (1, 2, 3)}
    play = classic(says=bad).run()
    play.edit(f"{HOME}/plan.update1.md", "# Update 1\n\n- A fourth one.\n")
    return play.resume()


def classic_paused() -> Play:
    return classic(says={"execute:task-1-1": {"answer": PAUSED}}).run().resume()


def classic_late() -> Play:
    late = {"end": TurnEnd.WALL, "answer": None, "papers": {}}
    return classic(says={"execute:task-1-1": late, "execute:task-1-2": late}).run()


def classic_changed_by_a_reviewer() -> Play:
    return classic(says={"review:task-1-1": {"change": Change("s", 1)}}).run()


PLAYS: dict[str, Callable[[], Play]] = {
    "standard-success": lambda: play_standard({}, "all").run(),
    "standard-resumed": lambda: play_standard({}, "all", reloads=True).run(),
    "standard-rework": standard_rework,
    "standard-gaps": standard_gaps,
    "standard-split": standard_split,
    "standard-feedback": standard_feedback,
    "standard-paused": standard_paused,
    "standard-approval": standard_approval,
    "classic-success": lambda: classic("all").run(),
    "classic-resumed": lambda: classic("all", reloads=True).run(),
    "classic-rework": classic_rework,
    "classic-gaps": classic_gaps,
    "classic-update": classic_update,
    "classic-paused": classic_paused,
    "classic-late": classic_late,
    "classic-changed-by-a-reviewer": classic_changed_by_a_reviewer,
}


@pytest.mark.parametrize("name", PLAYS)
def test_session_decides_asks_and_writes_as_recorded(name: str) -> None:
    text = PLAYS[name]().text
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("RECORD"):
        path.write_text(text)
    assert text == path.read_text()
