"""What scripted sessions of both layouts decide and write, kept as texts under `sessions/`.

Their prompts are golden files of `tests/prompts`.

`RECORD=1 pytest tests/workflows/test_session_parity.py` writes the texts anew; read the difference before you commit it.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import pytest
from test_classic_rules import entry
from test_classic_rules import rules as classic_rules
from test_session_rules import ID, NOW, PLAN, TASK, session, turn_starts, with_settings

from ralph.core.checks import CheckResult, CheckStatus, Verdict
from ralph.core.events import (
    ChecksEnded,
    DocumentEdited,
    Event,
    Merge,
    MergeEnded,
    MergeResult,
    Promote,
    RunChecks,
    RunEnded,
    SignalAccepted,
    Stop,
    TaskChanged,
    TaskState,
    TurnEnded,
    Work,
)
from ralph.core.limits import Limits, Spent
from ralph.core.outcomes import Outcome
from ralph.core.signals import Signal, SignalType
from ralph.core.turns import Change, TurnEnd, TurnRequest, TurnResult
from ralph.documents.session.layout import Layout
from ralph.store.settings import load_role
from ralph.workflows.session.prompts import TURN
from ralph.workflows.session.state import Flow, Roles, TaskFlow

HOME = f".ralph-sessions/{ID}"
GOLDEN = Path(__file__).with_name("sessions")
FAILED_REVIEW = {"status": "completed", "verdict": "Failed", "feedback": "It does not read well."}
GAPS = {"status": "completed", "assessment": "Gaps Identified", "gaps": ["no help text"]}
PAUSED = {"status": "paused", "blockers": ["told to stop"]}
CLASSIC_PLAN = "# Plan\n\n## Goal & Success Criteria\nDo it\n\n- it is done\n"


def task(name: str, needed: str = "", kind: str = "Parallelizable", file: str = "") -> str:
    return TASK.format(id=name, type=kind, file=file or f"{name}.py", needed=needed)


def describe_flow(before: Flow, after: Flow) -> list[str]:
    """What the engine keeps beside the documents, as far as it changed."""
    lines = []
    for one in fields(Flow):
        old, new = getattr(before, one.name), getattr(after, one.name)
        if one.name not in ("tasks", "queue") and old != new:
            lines.append(f"  engine: {one.name} = {new!r}")
    for name in dict.fromkeys((*before.tasks, *after.tasks)):
        known = after.tasks.get(name)
        if known != before.tasks.get(name):
            changed = {one.name: getattr(known, one.name) for one in fields(TaskFlow)} if known else {}
            lines.append(
                f"  engine: {name}: " + ", ".join(f"{key}={value!r}" for key, value in changed.items() if value)
            )
    if before.queue != after.queue:
        lines.append(f"  engine: queue: {', '.join(one.worktree for one in after.queue.waiting)}")
    return lines


def roles() -> Roles:
    names = ("planner", "questioner", "executor", "reviewer", "librarian", "classic", "forms", "classic-forms")
    shipped = {name: load_role(name, Path("/nowhere"))[0] for name in names}
    return Roles(shipped, "{{why}}{{task}}{{inbox}}{{details}}{{checks}}")


@dataclass
class Play:
    """Drives the rules with fixed answers, and writes down what happens."""

    rules: Any
    says: dict[str, Any] = field(default_factory=dict)
    """The result of a turn or a check, by key: changes to the result, a verdict, or False for a check that fails."""
    reloads: bool = False
    is_brief: bool = False
    """Whether only the list of markers and the metadata are kept of the documents."""
    last_first: bool = False
    """Whether the last of several works is done first."""
    documents: dict[str, str] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)
    changed: list[TaskChanged] = field(default_factory=list)
    requests: list[TurnRequest] = field(default_factory=list)
    now: float = NOW
    turns: int = 0
    state: Any = None

    def __post_init__(self) -> None:
        self.is_classic = self.rules.settings.layout.is_classic
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
            self.start(decision.work)
            work = decision.work[-1 if self.last_first else 0]
            self.take(self.answer(work))
            if self.reloads and isinstance(work, TurnRequest):
                self.load()
        raise AssertionError("the session does not come to an end")

    def start(self, works: tuple[Work, ...]) -> None:
        """The turns that were asked for start at once."""
        for started in turn_starts(self.state, works):
            self.now -= 60
            self.take(started)

    def resume(self, **says: Any) -> "Play":
        self.says = says
        self.load()
        return self.run()

    def edit(self, path: str, text: str) -> None:
        self.documents[path] = text
        self.take(DocumentEdited(path, text))

    def until(self, key: str) -> "Play":
        """Do what is asked for before the work of this key, which is then in progress."""
        for _ in range(200):
            decision = self.rules.decide(self.state, self.now)
            assert not isinstance(decision, Stop), decision
            self.start(decision.work)
            if key in [work.key for work in decision.work]:
                return self
            self.take(self.answer(decision.work[0]))
        raise AssertionError(f"nobody asks for {key}")

    def end(self, outcome: Outcome, reason: str = "") -> "Play":
        self.take(RunEnded(outcome, reason, Spent(), Limits()))
        return self

    def note_stop(self) -> None:
        decision = self.rules.decide(self.state, self.now)
        self.told.append(f"STOP {decision.outcome}: {decision.reason}")

    def signal(self, kind: SignalType, message: str = "", *items: str) -> None:
        self.take(SignalAccepted(Signal(f"s{self.now:.0f}", kind, message, items=items)))

    def rewrite(self, name: str, old: str, new: str) -> "Play":
        """The user changes a document while no engine runs."""
        path = f"{HOME}/{name}"
        assert old in self.documents[path], f"{old!r} is not in {path}"
        self.documents[path] = self.documents[path].replace(old, new)
        return self

    def take(self, event: Event) -> None:
        self.now += 60
        before = self.state.flow
        transition = self.rules.accept(self.state, event, self.now)
        self.state = transition.state
        self.told += describe_flow(before, self.state.flow)
        for path in sorted(transition.documents):
            if path.startswith(HOME):
                self.told.append(f"  writes {path.removeprefix(HOME)}")
                self.told += self.new_lines(path, transition.documents[path])
        self.told += [f"  notice: {notice}" for notice in transition.notices]
        self.changed += transition.tasks
        self.documents.update(transition.documents)

    def new_lines(self, path: str, text: str) -> list[str]:
        if not path.endswith("progress.md"):
            return []
        old = self.documents.get(path, "").splitlines()
        return [f"    {line}" for line in text.splitlines() if line.startswith("- [") and line not in old]

    def answer(self, work: Work) -> Event:
        said = self.says.get(work.key, {})
        match work:
            case RunChecks(key=key, checks=checks):
                titles = ", ".join(check.title for check in checks)
                self.told.append(f"  checks {titles} in {work.worktree or 'the tree'}: {said is not False}")
                if isinstance(said, Verdict):
                    return ChecksEnded(key, said)
                status = CheckStatus.FAILED if said is False else CheckStatus.PASSED
                found = (CheckResult(check.title, status, 0.1, command=check.command) for check in checks)
                return ChecksEnded(key, Verdict(tuple(found)))
            case Merge(key=key, worktree=workspace):
                titles = ", ".join(check.title for check in work.checks)
                self.told.append(f"  merges {workspace} ({work.message}) with checks {titles}")
                return MergeEnded(key, workspace, said or MergeResult.MERGED, f"ralph/{ID}/{workspace}", "abc")
            case Promote(key=key, worktree=workspace):
                self.told.append(f"  promotes {', '.join(work.files)} in {workspace}: {work.message}")
                return MergeEnded(key, workspace, MergeResult.MERGED)
            case TurnRequest():
                self.tell(work)
                self.turns += 1
                result = TurnResult(TurnEnd.FINISHED, self.now, self.now + 1)
                answer, documents = self.content(work)
                if self.is_classic and work.role == "executor":
                    result = replace(result, change=Change("s", 1))
                result = replace(result, answer=answer, documents=documents)
                result = replace(result, **said)
                return TurnEnded(work.key, self.turns, work.role, 1, result)
            case _:
                raise AssertionError(work)

    def tell(self, work: TurnRequest) -> None:
        self.requests.append(work)
        text = work.prompt.text
        head = (text.partition(f"{TURN}\n")[2] or text).partition("\n\n")[0]
        place = work.worktree or "the tree"
        self.told.append(f"  turn of the {work.role} in {place}, reads only: {work.reads_only}, wall: {work.wall}")
        self.told += [f"    {line}" for line in head.splitlines()]
        self.told.append(
            f"    schema {work.answer_schema}, hands over {', '.join(work.outputs)}, retries {work.retries}"
        )
        self.told.append(f"    inbox: {', '.join(work.inbox)}")
        if work.drafts:
            self.told.append(f"    drafts: {', '.join(work.drafts)}")
            self.told += [f"    takes {path} as {name}" for path, name in work.draft_outputs]
        self.told += [f"    lends {name}: {path}" for name, path in work.copied_files.items()]

    def content(self, work: TurnRequest) -> tuple[dict[str, Any], dict[str, str]]:
        mode = work.prompt.text.split("MODE: ")[1].split("\n")[0] if "MODE: " in work.prompt.text else ""
        done: dict[str, Any] = {"status": "completed", "summary": "done"}
        if work.role == "questioner":
            return done, self.questions(work)
        if work.role == "resolver":
            return done, {}
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
            case "EXTRACT" | "PROMOTE":
                return done, {"knowledge/how-to/build.md": "---\ncategory: how-to\n---\n# Build\n\n## How\nRun it.\n"}
        raise AssertionError(work)

    def questions(self, work: TurnRequest) -> dict[str, str]:
        asked = "### Question 1\n- **ID**: Q-TECH-001\n- **Priority**: High\n- **Status**: {}\n"
        status = "Answered" if "MODE: research" in work.prompt.text else "Unanswered"
        [name] = list(work.outputs) if "*" not in work.outputs[0] else ["questions/technical.md"]
        if "CATEGORY: feedback-driven" in work.prompt.text:
            name = "questions/feedback-driven.md"
        return {name: f"# Questions\n\n## Cycle 1\n\n{asked.format(status)}"}

    @property
    def text(self) -> str:
        """Everything that happened, and every document of the session as it is in the end."""
        own = {path: text for path, text in sorted(self.documents.items()) if path.startswith(HOME)}
        if self.is_brief:
            own = {path: text for path, text in own.items() if path.endswith(("progress.md", "metadata.yaml"))}
        parts = [f"==== {path.removeprefix('.ralph-sessions/')}\n{text}" for path, text in own.items()]
        return "\n".join(["\n".join(self.told), *parts])


def classic(*checks: str, reloads: bool = False, says: dict[str, Any] | None = None) -> Play:
    return Play(with_settings(classic_rules(*checks), roles=roles()), says or {}, reloads)


def play_standard(says: dict[str, Any] | None = None, *checks: str, reloads: bool = False) -> Play:
    return Play(with_settings(session(checks), roles=roles()), says or {}, reloads)


def with_instructions(play: Play, text: str) -> Play:
    play.documents[f"{HOME}.instructions.md"] = text
    play.load()
    return play


def standard_rework() -> Play:
    return play_standard({"review:task-1-1": {"answer": FAILED_REVIEW}, "check:task-2-1": False}, "all").run()


def standard_gaps() -> Play:
    return play_standard({"review:session-1.0": {"answer": GAPS}, "session-1.0": False}, "all").run()


def standard_split() -> Play:
    late = {"end": TurnEnd.WALL, "answer": None, "documents": {}}
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
    play.take(SignalAccepted(Signal("a", SignalType.APPROVE)))
    return play.run()


def classic_rework() -> Play:
    return classic("all", says={"review:task-1-1": {"answer": FAILED_REVIEW}, "check:task-2-1": False}).run()


def classic_gaps() -> Play:
    gap = {"answer": GAPS, "documents": {"review.md": "# Session Review\n", "tasks.md": entry(4, "task-3")}}
    return classic("all", says={"review:session-1": gap, "session-1": False}).run()


def classic_update() -> Play:
    bad = {f"review:task-1-{n}": {"answer": FAILED_REVIEW} for n in (1, 2, 3)}
    play = classic(says=bad).run()
    play.edit(f"{HOME}/plan.update1.md", "# Update 1\n\n- A fourth one.\n")
    return play.resume()


def classic_paused() -> Play:
    return classic(says={"execute:task-1-1": {"answer": PAUSED}}).run().resume()


def classic_late() -> Play:
    late = {"end": TurnEnd.WALL, "answer": None, "documents": {}}
    return classic(says={"execute:task-1-1": late, "execute:task-1-2": late}).run()


def classic_changed_by_a_reviewer() -> Play:
    return classic(says={"review:task-1-1": {"change": Change("s", 1)}}).run()


LATE: dict[str, Any] = {"end": TurnEnd.WALL, "answer": None, "documents": {}}
OVER: dict[str, Any] = {"end": TurnEnd.FAILED, "answer": None, "documents": {}, "error": "the agent crashed"}
DONE = {"status": "completed", "summary": "done"}
FEEDBACK = "# Feedback\n\n- **ISS-001**: wrong\n"
OPEN_QUESTION = (
    "# Questions\n\n## Cycle 1\n\n### Question 1\n"
    "- **ID**: Q-TECH-00{n}\n- **Priority**: High\n- **Status**: {status}\n"
)


def brief(says: dict[str, Any] | None = None, *checks: str) -> Play:
    """A standard session without questions."""
    play = play_standard(says, *checks)
    play.is_brief = True
    return with_instructions(play, "- max_cycles: 0\n")


def brief_classic(*checks: str, says: dict[str, Any] | None = None) -> Play:
    play = classic(*checks, says=says)
    play.is_brief = True
    return with_instructions(play, "- max_cycles: 0\n")


def plan_of(instructions: str) -> dict[str, Any]:
    return {"answer": DONE, "documents": {"plan.md": PLAN, "instructions.md": instructions}}


def tasks_of(**texts: str) -> dict[str, Any]:
    return {"answer": DONE, "documents": {f"tasks/{name.replace('_', '-')}.md": text for name, text in texts.items()}}


def standard_waves() -> Play:
    play = brief()
    play.rules = with_settings(play.rules, by_waves=True)
    play.says["plan:plan-breakdown@1"] = tasks_of(
        task_1=task("task-1"), task_2=task("task-2", "task-1"), task_3=task("task-3"), task_4=task("task-4", "task-3")
    )
    return play.run()


def standard_files() -> Play:
    """Two tasks change the same file, one has to be alone, and there is room for two executors."""
    play = brief()
    limits = "concurrency: {max_parallel_executors: 2, max_parallel_reviewers: 1}"
    with_instructions(play, f"---\nplanning: {{max_cycles: 0}}\n{limits}\n---\n")
    play.says["plan:plan-breakdown@1"] = tasks_of(
        task_1=task("task-1", file="a.py"),
        task_2=task("task-2", file="a.py"),
        task_3=task("task-3", kind="Sequential"),
        task_4=task("task-4"),
        task_5=task("task-5"),
    )
    play.last_first = True
    return play.run()


def standard_conflict() -> Play:
    ends = {"merge-task-1-1-1": MergeResult.CONFLICT, "merge-task-2-1-1": MergeResult.CHECKS_FAILED}
    ends |= {f"merge-task-2-1-{n}": MergeResult.CHECKS_FAILED for n in (2, 3, 4)}
    return brief(ends, "all").run()


def standard_nested() -> Play:
    """Everything is below `iterations/<N>/`; knowledge that nobody decided about is carried over."""
    rules = with_settings(session(), layout=Layout(HOME, nested=True), roles=roles())
    bad = {f"review:task-3-{n}": {"answer": FAILED_REVIEW} for n in (1, 2, 3)}
    play = with_instructions(Play(rules, bad, is_brief=True), "- approval: signal\n- max_cycles: 0\n").run()
    play.edit(f"{HOME}/iterations/2/feedbacks/20261116-100000/feedbacks.md", FEEDBACK)
    return play.resume()


def standard_foreign() -> Play:
    play = brief({"review:session-1.0": {"answer": GAPS}})
    names = frozenset(("planner", "questioner", "executor", "reviewer", "librarian"))
    play.rules = replace(
        play.rules,
        settings=replace(
            play.rules.settings, roles=replace(play.rules.settings.roles, foreign=names, skills=(".skills", "more"))
        ),
    )
    return play.run()


def standard_aborted() -> Play:
    play = brief({}, "all").until("review:task-1-1").end(Outcome.ABORTED)
    play.load()
    play.note_stop()
    play.edit(f"{HOME}/iterations/2/feedbacks/20261116-100000/feedbacks.md", FEEDBACK)
    return play.resume()


def standard_paused_by_the_user() -> Play:
    play = brief({}, "all").until("plan:plan-breakdown@1").end(Outcome.PAUSED, "Paused by signal")
    play.load()
    play.signal(SignalType.RESUME)
    play.until("execute:task-2-1").end(Outcome.PAUSED, "Paused by signal")
    play.load()
    play.signal(SignalType.RESUME)
    return play.run()


def standard_edited() -> Play:
    """While no engine runs the user cancels a task, resets one, calls one done, deletes one and adds one."""
    bad = {f"execute:task-1-{n}": {"answer": {"status": "failed", "blockers": ["no database"]}} for n in (1, 2, 3)}
    play = brief(bad).run()
    play.rewrite("progress.md", "- [F] task-1", "- [ ] task-1").rewrite("progress.md", "- [x] task-2", "- [C] task-2")
    play.documents[f"{HOME}/tasks/task-7.md"] = task("task-7", "task-1")
    play.documents[f"{HOME}/tasks/task-8.md"] = task("task-8", "task-2")
    play.load()
    play.edit(f"{HOME}/progress.md", play.documents[f"{HOME}/progress.md"])
    play.run()
    del play.documents[f"{HOME}/tasks/task-8.md"]
    return play.resume()


def standard_forgotten() -> Play:
    """The engine's own facts are lost at different moments; the markers and the reports tell what to do."""
    play = brief({}, "all")
    for key in ("execute:task-1-1", "check:task-1-1", "review:task-1-1", "merge-task-1-1-1", "execute:task-3-1"):
        play.until(key)
        play.documents = {path: text for path, text in play.documents.items() if path.startswith(HOME)}
        play.load()
    return play.run()


def standard_crashed() -> Play:
    """An agent fails for good: its task is split, and a part that fails again is not split once more."""
    says: dict[str, Any] = {"execute:task-1-1": OVER, "execute:task-1.1-1": OVER}
    says["split:task-1-1"] = tasks_of(
        **{"task-1.1": task("task-1.1", "task-1"), "task-1.2": task("task-1.2", "task-1.1")}
    )
    return brief(says).run()


def standard_split_in_vain() -> Play:
    says: dict[str, Any] = {f"execute:task-1-{n}": OVER for n in (1, 2, 3)}
    says["split:task-1-1"] = tasks_of(**{"task-1.1": task("task-1.1")})
    says["split:task-1-2"] = {"end": TurnEnd.FAILED, "documents": {}}
    parts = {f"task-1.{n}": task(f"task-1.{n}") for n in range(1, 6)}
    says["split:task-1-3"] = tasks_of(**parts)
    return brief(says).run()


def standard_knowledge() -> Play:
    learned = {f"knowledge/{name}.md": "# X\n\n## Y\nz\n" for name in ("how-to/build", "reference/api", "gossip/boss")}
    play = brief({"extract:1": {"answer": DONE, "documents": learned}})
    play = with_instructions(play, "- approval: signal\n- max_cycles: 0\n").run()
    play.signal(SignalType.APPROVE, "", "nothing of that name")
    play.note_stop()
    play.signal(SignalType.APPROVE, "", "api")
    return play.run()


def standard_knowledge_skipped() -> Play:
    bad = {f"review:task-3-{n}": {"answer": FAILED_REVIEW} for n in (1, 2, 3)}
    play = with_instructions(brief(bad), "- approval: signal\n- max_cycles: 0\n").run()
    play.signal(SignalType.SKIP)
    return play.run()


def standard_without_knowledge() -> Play:
    return with_instructions(brief({"extract:1": {"documents": {}}}), "- approval: skip\n- max_cycles: 0\n").run()


def standard_questions() -> Play:
    """Questions of high priority stay open: they are asked again, and earlier ones are never lost."""
    says = {"plan:plan-init@1": plan_of("---\nplanning: {max_cycles: 2, categories: [technical, risks]}\n---\n")}
    for cycle in (1, 2):
        asked = {"questions/technical.md": OPEN_QUESTION.format(n=cycle, status="Unanswered")}
        says[f"plan:plan-brainstorm@1.{cycle}.technical"] = {"answer": DONE, "documents": asked}
        says[f"plan:plan-brainstorm@1.{cycle}.risks"] = {"answer": {**DONE, "no_questions": True}, "documents": {}}
        found = {"questions/technical.md": OPEN_QUESTION.format(n=cycle, status="Research Needed")}
        says[f"plan:plan-research@1.{cycle}."] = {"answer": DONE, "documents": found}
    play = brief(says)
    play.documents = {}
    play.load()
    return play.run()


def standard_bad_instructions() -> Play:
    bad = "---\nconcurrency: {max_parallel_executors: many}\n---\n"
    play = brief({"plan:plan-init@1": plan_of(bad)})
    play.documents = {}
    play.load()
    play.until("execute:task-1-1")
    play.edit(f"{HOME}.instructions.md", bad + "still\n")
    play.edit(f"{HOME}.instructions.md", "---\nconcurrency: {max_parallel_executors: 1}\n---\n")
    play.edit(f"{HOME}/plan.md", "# My own plan\n")
    return play.run()


def standard_order_that_cannot_be() -> Play:
    circle = tasks_of(task_1=task("task-1", "task-2"), task_2=task("task-2", "task-1"))
    return brief({"plan:plan-breakdown@1": circle}).run().resume()


def standard_redefined() -> Play:
    """After feedback the planner changes a task that failed, and tries to change one that is done."""
    bad = {f"review:task-3-{n}": {"answer": FAILED_REVIEW} for n in (1, 2, 3)}
    play = brief(bad).run()
    play.documents[f"{HOME}/iterations/2/feedbacks/20261116-100000/feedbacks.md"] = FEEDBACK
    play.edit(f"{HOME}/iterations/2/feedbacks/20261117-100000/feedbacks.md", FEEDBACK)
    play.edit(f"{HOME}/iterations/2/feedbacks/20261116-100000/feedbacks.md", FEEDBACK)
    changed = {"tasks/task-1.md": task("task-1", file="other.py"), "tasks/task-3.md": task("task-3", file="other.py")}
    return play.resume(**{"plan:plan-rebreakdown@2": {"answer": DONE, "documents": changed}})


def standard_stopped_roles() -> Play:
    """A reviewer without a verdict, a planner that fails, and a librarian that cannot write: each is asked again."""
    play = brief({"plan:plan-init@1": OVER}).run()
    blocked = {"answer": {"status": "blocked", "blockers": ["no access", "no time"]}, "documents": {}}
    play.resume(**{"review:task-1-1": blocked}).resume(**{"review:session-1.0": blocked})
    return play.resume(**{"extract:1": {"answer": None, "documents": {}}})


def standard_critique() -> Play:
    """A review finds gaps again and again: two cycles of critique, and then the user has to decide."""
    says: dict[str, Any] = {f"review:session-1.{n}": {"answer": GAPS} for n in (0, 1, 2, 3)}
    for n in (1, 2):
        says[f"critique:1.{n}"] = tasks_of(**{f"task-critique-{n}-1": task(f"task-critique-{n}-1")})
    limits = "---\nplanning: {max_cycles: 0}\nsession_review: {max_critique_cycles: 2}\n---\n"
    return with_instructions(brief(says), limits).run()


def standard_critique_in_vain() -> Play:
    return brief({"review:session-1.0": {"answer": GAPS}, "critique:1.1": {"documents": {}}}).run()


def standard_rescoped() -> Play:
    asked = {"answer": {"status": "blocked", "blockers": ["STEER scope change: build B instead"]}}
    play = brief({"execute:task-1-1": asked, "review:task-2-1": asked}).run()
    return play.resume()


def classic_questions() -> Play:
    """Questions of high priority stay open until the limit of cycles."""
    play = brief_classic()
    for cycle in (1, 2, 3):
        text = OPEN_QUESTION.format(n=cycle, status="Unanswered").replace("Cycle 1", f"Cycle {cycle}")
        play.says[f"plan:plan-brainstorm.{cycle}"] = {"answer": DONE, "documents": {"plan.questions.md": text}}
        play.says[f"plan:plan-research.{cycle}"] = {"answer": DONE, "documents": {}}
    return with_instructions(play, "- max_cycles: 2\n").run()


def classic_written_by_others() -> Play:
    """A session whose files another program left, with a step that nobody knows and a task in progress."""
    play = brief_classic("all")
    play.documents = {
        f"{HOME}/plan.md": CLASSIC_PLAN,
        f"{HOME}/tasks.md": entry(1) + entry(2, "task-1") + entry(3),
        f"{HOME}/progress.md": "- [ ] plan-init\n- [ ] plan-polish\n- [x] task-1\n- [/] task-2\n- [P] task-3\n- [ ] task-4\n",
        f"{HOME}/tasks.task-3-report-r2.md": "# Task Report: task-3\n\n## PART 1: IMPLEMENTATION REPORT\nDone.\n",
        f"{HOME}/{ID}.instructions.md": "- max_rework_attempts: 2\n",
    }
    play.load()
    return play.run()


def classic_aborted() -> Play:
    play = brief_classic("all").until("execute:task-1-1").end(Outcome.ABORTED)
    play.edit(f"{HOME}/plan.update1.md", "# Update 1\n\n- Another way.\n")
    return play.resume()


def classic_update_in_progress() -> Play:
    """An update that comes while a task is in progress waits until it has been reviewed."""
    play = brief_classic(says={"review:task-1-1": {"answer": FAILED_REVIEW}}).until("execute:task-1-1")
    play.edit(f"{HOME}/plan.update1.md", "# Update 1\n\n- A fourth one.\n")
    play.documents[f"{HOME}/plan.update1/picture.png"] = "x"
    return play.run()


def classic_three_reviews() -> Play:
    """Each review finds gaps and adds a task; after the third the user has to decide."""
    says = {}
    for n in (1, 2, 3):
        documents = {"review.md": f"# Session Review {n}\n", "tasks.md": entry(3 + n)}
        says[f"review:session-{n}"] = {"answer": GAPS, "documents": documents}
    play = brief_classic(says=says).run()
    play.edit(f"{HOME}/plan.update1.md", "# Update 1\n\n- More.\n")
    return play.resume(
        **{"review:session-4": {"answer": GAPS, "documents": {"review.md": "# R\n", "tasks.md": entry(9)}}}
    )


def classic_foreign() -> Play:
    play = brief_classic("all", says={"review:session-1": {"answer": GAPS, "documents": {"review.md": "# R\n"}}})
    names = frozenset(("planner", "questioner", "executor", "reviewer"))
    play.rules = replace(
        play.rules, settings=replace(play.rules.settings, roles=replace(play.rules.settings.roles, foreign=names))
    )
    return play.run()


def classic_missing_task() -> Play:
    """A task is only listed, and another was done and lost its definition."""
    play = brief_classic("all").until("execute:task-2-1").end(Outcome.PAUSED, "Paused by signal")
    text = entry(2) + entry(3)
    play.documents[f"{HOME}/tasks.md"] = text
    play.rewrite("progress.md", "- [/] task-2", "- [ ] task-7\n- [/] task-2")
    return play.resume()


def classic_rescoped() -> Play:
    asked = {"answer": {"status": "blocked", "blockers": ["STEER scope change: build B instead"]}}
    return brief_classic(says={"execute:task-1-1": asked}).run().resume()


def classic_checked_again() -> Play:
    """A complete session whose tree may have changed since: its checks run again, and they fail."""
    play = brief_classic("all").run()
    return play.resume(**{"session-1": False})


MORE_PLAYS = (
    standard_waves,
    standard_files,
    standard_conflict,
    standard_nested,
    standard_foreign,
    standard_aborted,
    standard_paused_by_the_user,
    standard_edited,
    standard_forgotten,
    standard_crashed,
    standard_split_in_vain,
    standard_knowledge,
    standard_knowledge_skipped,
    standard_without_knowledge,
    standard_questions,
    standard_bad_instructions,
    standard_order_that_cannot_be,
    standard_redefined,
    standard_stopped_roles,
    standard_critique,
    standard_critique_in_vain,
    standard_rescoped,
    classic_questions,
    classic_written_by_others,
    classic_aborted,
    classic_update_in_progress,
    classic_three_reviews,
    classic_foreign,
    classic_missing_task,
    classic_rescoped,
    classic_checked_again,
)
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
    **{play.__name__.replace("_", "-"): play for play in MORE_PLAYS},
}


@pytest.mark.parametrize("name", PLAYS)
def test_session_decides_asks_and_writes_as_recorded(name: str) -> None:
    text = PLAYS[name]().text
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("RECORD"):
        path.write_text(text)
    assert text == path.read_text()


def test_work_that_cannot_be_merged_fails_and_promises_no_further_attempt() -> None:
    states = [one.state for one in standard_conflict().changed if one.task == "task-2"]
    assert states == [TaskState.PLANNED, TaskState.QUALIFIED, TaskState.FAILED]


def test_an_aborted_session_promises_no_further_attempt() -> None:
    play = brief({}, "all").until("review:task-1-1").end(Outcome.ABORTED)
    states = {one.task: one.state for one in play.changed}
    assert states["task-1"] is TaskState.FAILED
