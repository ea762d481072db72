"""The public Python API: start runs, follow them, steer them, and read their evidence.

Everything here is in `ralph` itself (`import ralph; ralph.loop(...)`), and mirrored for asyncio in `ralph.aio`. Errors are
those of the command line: `ralph.RalphError` with `what`, `where`, `todo` and `exit_code`.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ralph.app.run_watch import Update
from ralph.app.views import follow, list_runs, open_view
from ralph.callable_agent import command_for
from ralph.core.checks import CheckResult
from ralph.core.errors import RalphError, UsageError
from ralph.core.outcomes import Outcome
from ralph.core.signals import Signal, SignalType
from ralph.core.speakers import PYTHON, name_user
from ralph.store.runs import Project, RunDir
from ralph.view.model import CheckView, CommitView, ReceiptView, RunRow, RunView

Agent = str | Callable[..., object]
"""The name of an agent, or a function at the top level of a module that is called for every turn."""
_POLL_SECONDS = 0.1


class WaitTimeout(RalphError, TimeoutError):
    """Something did not happen in the time that you allowed for it. The run continues."""

    outcome = Outcome.USAGE


@dataclass(frozen=True)
class RunChange:
    """Something that happened in a run."""

    view: RunView
    """The run after it."""
    kind: str
    """The type of the journal entry, for example `TurnEnded`, or `event` for something that an agent reported."""
    text: str = ""
    """What the agent reported."""
    position: str = ""
    """Where this is in the run; pass it to `follow` to continue after it."""

    @property
    def headline(self) -> str:
        """The run in one sentence."""
        return self.view.headline

    @property
    def seq(self) -> int:
        """The last journal line that the view contains. `follow` accepts it, and repeats the events of running turns."""
        return self.view.seq


@dataclass(frozen=True)
class Ack:
    """Who received a message, and how they responded."""

    how: str
    """`prompt`, `hook`, `live`, `tool` or `turn`; `engine` for a pause or an abort, which no turn has to receive."""
    role: str
    turn: int
    at: float
    outcome: str = ""
    """What the agent says that it made of the message; empty until its turn has ended."""
    note: str = ""


@dataclass(frozen=True)
class Message:
    """A message that was sent to a run."""

    run: "RunHandle"
    name: str
    """Its name in the mailbox, by which the view shows who received it; empty if it became feedback to a session."""
    feedback: str = ""
    """The file of the feedback, if comments became feedback to a session that had stopped."""

    @property
    def ack(self) -> Ack | None:
        """The first receipt; None if no turn has received the message yet."""
        view = self.run.view
        for comment in view.comments:
            if self.feedback and comment.feedback == self.feedback and comment.receipts:
                return _ack_of(comment.receipts[0])
        for signal in view.signals:
            if signal.name == self.name and signal.state == "refused":
                raise UsageError(f"the run refused the message: {signal.reason}", where=self.run.id)
            if signal.name == self.name and signal.receipts:
                return _ack_of(signal.receipts[0])
            if signal.name == self.name and signal.state == "accepted" and not signal.is_message:
                return Ack(how="engine", role="", turn=0, at=signal.at)
        return None

    def wait(self, timeout: float | None = 60.0) -> Ack:
        """Wait until a turn has received the message, for at most `timeout` seconds. None waits as long as it takes."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            if ack := self.ack:
                return ack
            if deadline is not None and time.monotonic() >= deadline:
                todo = f"`ralph signals --run {self.run.id}` shows whether a turn receives it later"
                raise WaitTimeout("no turn has received the message yet", where=self.run.id, todo=todo)
            if not self.run.alive:
                raise UsageError("the run ended before a turn received the message", where=self.run.id)
            time.sleep(_POLL_SECONDS)


def _ack_of(receipt: ReceiptView) -> Ack:
    return Ack(
        how=receipt.means,
        role=receipt.role,
        turn=receipt.turn,
        at=receipt.at,
        outcome=receipt.response,
        note=receipt.note,
    )


@dataclass(frozen=True)
class Result:
    """How a run ended."""

    outcome: Outcome
    reason: str
    evidence: tuple[CheckView, ...]
    """The checks with their commands, results and history."""
    cost: float | None
    """US dollars, as far as costs are known; None if none is."""
    commits: tuple[CommitView, ...]
    view: RunView

    @property
    def grade(self) -> str:
        """How well the verdict is supported, for example `proven` or `unproven`; empty without a verdict."""
        evidence = self.view.ended.evidence if self.view.ended else None
        return evidence.grade if evidence else ""

    @property
    def succeeded(self) -> bool:
        """Whether the work is verified done."""
        return self.outcome.succeeded

    @property
    def exit_code(self) -> int:
        """The exit code that `ralph` would end with."""
        return self.outcome.exit_code


@dataclass(frozen=True)
class RunHandle:
    """One run of a project. It works on its own: nothing here has to stay open for it."""

    project: Project
    directory: RunDir

    @property
    def id(self) -> str:
        """Its id."""
        return self.directory.id

    @property
    def alive(self) -> bool:
        """Whether an engine works on it."""
        return self.directory.alive

    @property
    def view(self) -> RunView:
        """Everything about it as it is now, as every interface of Ralph shows it."""
        return open_view(self.project, self.directory)

    def at(self, seq: int) -> RunView:
        """The view as it was after a line of the journal."""
        return open_view(self.project, self.directory, at=seq)

    @property
    def evidence(self) -> tuple[CheckView, ...]:
        """The checks with their commands, results and history."""
        return self.view.checks

    @property
    def cost(self) -> float | None:
        """US dollars, as far as costs are known; None if none is."""
        return self.view.cost.total.cost

    def follow(self, from_seq: int | str = 0) -> Iterator[RunChange]:
        """Everything that happens after a line of the journal or the position of a change, until no engine works on the run."""
        for update in follow(self.project, self.directory, from_seq):
            yield _change_of(update)

    def wait(self, timeout: float | None = None) -> Result:
        """Wait until no engine works on the run, for at most `timeout` seconds, and return how it ended."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while self.alive:
            if deadline is not None and time.monotonic() >= deadline:
                todo = f"call wait() again, or end it with `ralph abort {self.id}`"
                raise WaitTimeout(f"run {self.id} is still working", todo=todo)
            time.sleep(_POLL_SECONDS)
        view = self.view
        outcome = view.ended.outcome if view.ended else Outcome.INTERRUPTED
        reason = view.ended.reason if view.ended else "the engine stopped without an outcome"
        return Result(
            outcome=outcome,
            reason=reason,
            evidence=view.checks,
            cost=view.cost.total.cost,
            commits=view.commits,
            view=view,
        )

    def steer(self, text: str, *, to: str = "", now: bool = False) -> Message:
        """Change direction: the text stays in force until the run ends. `now` interrupts the turn in progress."""
        return self._send(Signal("", SignalType.STEER, text, now=now), to)

    def comment(self, *comments: tuple[str, str], to: str = "", removed: bool = False) -> Message:
        """Comment on lines of the diff: pairs of a place (`path:12` or `path:12-15`) and a text, sent together.

        `removed` means that the lines are ones that the run removed. `view.comments` shows the result of each.
        """
        from ralph.app.comments import NewComment, send_comments

        side = "old" if removed else "new"
        given = [NewComment.at(place, text, side) for place, text in comments]
        sent = send_comments(self.project, self.directory, given, role=to, directory=Path.cwd())
        return Message(self, sent.signal, sent.feedback)

    def inform(self, text: str, *, to: str = "") -> Message:
        """Tell the agents a fact."""
        return self._send(Signal("", SignalType.INFO, text), to)

    def pause(self, *, now: bool = False) -> Message:
        """Stop after the turn in progress; `now` interrupts it."""
        return self._send(Signal("", SignalType.PAUSE, now=now))

    def abort(self, reason: str = "aborted through the Python API") -> Message:
        """End the run for good. Its files stay as they are."""
        return self._send(Signal("", SignalType.ABORT, reason))

    def answer(self, text: str, question: str = "") -> str:
        """Answer an open question: the one with that id, or the only one. Returns its id in `view.questions`."""
        from ralph.app.steer import answer_question

        return answer_question(self.project, self.id, question, text)[1].id

    def resume(self) -> "RunHandle":
        """Continue a run that has stopped, in the background."""
        from ralph.app.run_engine import start_detached
        from ralph.app.runs import refuse_inside_a_turn

        refuse_inside_a_turn()
        start_detached(self.project, self.directory)
        return self

    def accept(self, because: str) -> str:
        """Accept work that passes its checks and that Ralph could not prove, and let the run end with the grade `accepted`.

        The text says why, and goes into the journal. Returns the id of the action in `view.actions`.
        """
        from ralph.app.resume import accept_work, plan_acceptance
        from ralph.app.run_engine import start_detached
        from ralph.app.runs import refuse_inside_a_turn

        refuse_inside_a_turn("an agent cannot accept its own work", "leave that to the user")
        action = accept_work(plan_acceptance(self.project, self.directory, because), because)
        start_detached(self.project, self.directory)
        return action

    def diff(self) -> str:
        """What the run has changed so far, as a unified diff."""
        from ralph.app.changes import diff_run

        return diff_run(self.project, self.directory).text

    def export_html(self) -> str:
        """The run as one page that needs no network: evidence, findings, diff, timeline and cost."""
        from ralph.app.export import export_html

        return export_html(self.project, self.directory)

    def _send(self, signal: Signal, to: str = "") -> Message:
        from ralph.app.steer import post_signal

        return Message(self, post_signal(self.project, replace(signal, by=name_user(PYTHON)), to, self.id).name)


def _change_of(update: Update) -> RunChange:
    if update.event is not None:
        return RunChange(update.view, "event", update.event.text, update.position)
    return RunChange(update.view, type(update.record.entry).__name__ if update.record else "", position=update.position)


def loop(
    task: str,
    *,
    until: str,
    agent: Agent | None = None,
    cwd: str | Path = ".",
    consent: bool = False,
    **options: Any,
) -> RunHandle:
    """Start a loop in the background: work on the task until the criterion holds.

    `agent` is the name of an agent, or a function. `consent=True` agrees to everything that the run starts, like `--yes`.
    `options` are those of `ralph loop`, with underscores: `max_iterations`, `max_cost`, `timeout`, `on_stuck`, `scope`,
    `model`, `worktree`, `agent_command`, `scenario` and so on.
    """
    given = {"until": until, **options}
    return _start(_plan(_project_of(cwd), "loop", task, agent, given), consent=consent)


def session(
    request: str,
    *,
    checks: tuple[str, ...] = (),
    agent: Agent | None = None,
    cwd: str | Path = ".",
    consent: bool = False,
    **options: Any,
) -> RunHandle:
    """Start a session in the background: plan the request, work on its tasks, review and merge them."""
    given = {"checks": checks, **options}
    return _start(_plan(_project_of(cwd), "session", request, agent, given), consent=consent)


def hats(
    objective: str,
    *,
    preset: str | None = None,
    checks: tuple[str, ...] = (),
    agent: Agent | None = None,
    cwd: str | Path = ".",
    consent: bool = False,
    **options: Any,
) -> RunHandle:
    """Start a run of hats in the background: one turn for each event, until the objective is done and verified.

    `preset` is the name of a preset, or a file; its path is relative to `cwd`.
    """
    if preset and (Path(cwd) / preset).is_file():
        preset = str((Path(cwd) / preset).resolve())
    given = {"preset": preset, "checks": checks, **options}
    return _start(_plan(_project_of(cwd), "hats", objective, agent, given), consent=consent)


def runs(root: str | Path = ".") -> list[RunRow]:
    """All runs of the project around a directory, those that need you first."""
    return list_runs(_project_of(root))


def open_run(id: str, root: str | Path = ".") -> RunHandle:
    """A run by its id, or by the beginning of its id. Its name in `ralph` is `open`."""
    project = _project_of(root)
    return RunHandle(project, project.run(id))


def verify(criterion: str, cwd: str | Path = ".", *, timeout: float = 600.0) -> tuple[CheckResult, ...]:
    """Run the checks of a criterion once, each for at most `timeout` seconds, and return their results."""
    from ralph.app.loop import verify_criterion

    return verify_criterion(_project_of(cwd), criterion, timeout).results


def _project_of(directory: str | Path) -> Project:
    path = Path(directory).resolve()
    if not path.is_dir():
        raise UsageError(f"there is no directory {directory}", todo="name one that exists")
    return Project.around(path)


def _plan(project: Project, workflow: str, task: str, agent: Agent | None, options: dict[str, Any]) -> Any:
    """A run that can be created. A function that is the agent becomes a command that calls it."""
    from ralph.app.plan import plan_run

    if callable(agent):
        options = {**options, "agent_command": command_for(agent)}
    elif agent is not None:
        options = {**options, "agents": (*options.get("agents", ()), agent)}
    return plan_run(project, workflow, task, options)


def _start(new: Any, *, consent: bool) -> RunHandle:
    from ralph.app.run_engine import start_detached
    from ralph.app.runs import refuse_inside_a_turn
    from ralph.app.start import open_new_run

    refuse_inside_a_turn()
    needed = new.find_consent()
    if needed.is_required and not consent:
        names = ", ".join(item.name for item, _ in needed.new)
        todo = "pass consent=True if you agree to everything that the run starts, or agree once with `ralph trust`"
        raise UsageError(f"you have not agreed to this yet: {names}", where=str(new.project.root), todo=todo)
    needed.give()
    with open_new_run(new) as (directory, _):
        start_detached(new.project, directory)
    return RunHandle(new.project, directory)
