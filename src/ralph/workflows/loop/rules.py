"""The rules of the loop: baseline, then act, verify and learn, until the checks pass or a limit is reached."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import assert_never

from ralph.core.checks import Check, CheckResult, CheckStatus, Verdict
from ralph.core.errors import StateError
from ralph.core.events import (
    Changes,
    ChecksEnded,
    Decision,
    DocumentEdited,
    Event,
    RunChecks,
    RunEnded,
    SignalTaken,
    StartTurns,
    Stop,
    TurnEnded,
)
from ralph.core.outcomes import Outcome
from ralph.core.turns import TurnEnd, TurnRequest, TurnResult
from ralph.documents.templates import fill
from ralph.workflows.loop.report import completion_report, report_path
from ralph.workflows.loop.state import (
    REMEMBERED,
    Fixed,
    Iteration,
    LoopState,
    Phase,
    current_loop_json,
    read_state,
    state_json,
)

HOME = ".aiwg/ralph"
INBOX, OUTBOX = ".ralph/turn/inbox", ".ralph/turn/outbox"
GIVE_UP_UNVERIFIED = 3
"""Iterations in a row whose checks could not be run, before the run ends as unverifiable."""
QUOTED = 3000
"""How many characters of a failing check's output the next prompt quotes."""


@dataclass(frozen=True)
class Loop:
    """One task and its checks."""

    task: str
    checks: tuple[Check, ...]
    template: str
    """The prompt of the actor."""
    fixed: Fixed

    @property
    def state_path(self) -> str:
        """Where the truth of this loop is."""
        return f"{HOME}/loops/{self.fixed.loop}/state.json"

    def load(self, documents: Mapping[str, str]) -> LoopState:
        """The state that the documents describe."""
        text = documents.get(self.state_path)
        if text is None:
            return LoopState(self.task)
        return _reopened(read_state(text, self.state_path, self.fixed))

    def decide(self, state: LoopState, now: float) -> Decision:
        """Verify when something was done, act when it was not enough."""
        match state.phase:
            case Phase.BASELINE:
                return RunChecks("baseline", self.checks)
            case Phase.ACT:
                return StartTurns((self._turn(state),))
            case Phase.VERIFY:
                return RunChecks(f"iteration-{state.iteration}", self.checks)
            case Phase.DONE:
                return Stop(state.outcome or Outcome.FAILED, state.reason)
            case _:
                assert_never(state.phase)

    def accept(self, state: LoopState, event: Event, now: float) -> Changes[LoopState]:
        """What follows from an event."""
        match event:
            case TurnEnded(result=result):
                return Changes(_acted(state, result))
            case ChecksEnded(verdict=verdict) if state.phase is Phase.BASELINE:
                return self._changes(_baselined(state, verdict))
            case ChecksEnded(verdict=verdict):
                return self._changes(_verified(state, verdict))
            case DocumentEdited(path=path, content=content):
                return self._edited(state, path, content)
            case RunEnded():
                return self._ended(state, event, now)
            case SignalTaken():
                return Changes(state)
            case _:
                assert_never(event)

    def _turn(self, state: LoopState) -> TurnRequest:
        values = {
            "task": state.task,
            "checks": "\n".join(f"- `{check.command}`" for check in self.checks),
            "iteration": str(state.iteration),
            "most": str(self.fixed.most or "as many as it takes"),
            "failure": f"The checks do not pass yet:\n{state.failure}" if state.failure else "",
            "lessons": _lessons(state),
            "inbox": INBOX,
            "outbox": OUTBOX,
        }
        prompt = fill("loop-actor", self.template, values)
        key = f"iteration-{state.iteration}"
        return TurnRequest(key, "actor", prompt, counts=True, contract="loop.actor")

    def _changes(self, state: LoopState) -> Changes[LoopState]:
        documents = {self.state_path: state_json(state, self.fixed)}
        return Changes(state, documents, {f"{HOME}/current-loop.json": current_loop_json(state, self.fixed)})

    def _edited(self, state: LoopState, path: str, content: str) -> Changes[LoopState]:
        """Take in what a person may change: the task and the notes. Phase, counters and verdicts stay the engine's.

        What cannot be read is not taken in; the store keeps a copy of it.
        """
        if path != self.state_path:
            return Changes(state)
        try:
            edited = read_state(content, path, self.fixed)
        except StateError:
            return self._changes(state)
        notes = {iteration.number: iteration.learnings for iteration in edited.iterations}
        iterations = tuple(
            replace(iteration, learnings=notes.get(iteration.number, iteration.learnings))
            for iteration in state.iterations
        )
        return self._changes(replace(state, task=edited.task, iterations=iterations, extra=edited.extra))

    def _ended(self, state: LoopState, event: RunEnded, now: float) -> Changes[LoopState]:
        """Close the documents. Where the loop itself was not done, it keeps its phase, so that it can go on."""
        phase = state.phase if event.outcome.resumable else Phase.DONE
        state = replace(state, phase=phase, outcome=event.outcome, reason=event.reason, ended=True, ends=state.ends + 1)
        report = completion_report(state, self.fixed, event, self.checks)
        changes = self._changes(state)
        return replace(
            changes, documents={**changes.documents, report_path(HOME, now, self.fixed.loop, state.ends): report}
        )


def _reopened(state: LoopState) -> LoopState:
    """Where a loop goes on: in its phase, or, where it had given up, with a new iteration.

    A document that says the work is done is only a document: the checks are run again.
    """
    if state.phase is Phase.DONE and state.outcome and state.outcome.succeeded:
        return replace(state, phase=Phase.VERIFY if state.iterations else Phase.BASELINE, outcome=None, ended=False)
    if not state.ended:
        return state
    done, state = state.phase is Phase.DONE, replace(state, outcome=None, reason="", agent_error="", ended=False)
    if not done:
        return state
    phase = Phase.ACT if state.iterations else Phase.BASELINE
    number = state.iterations[-1].number + 1 if state.iterations else 0
    return replace(state, phase=phase, iteration=number, unverified=0)


def _baselined(state: LoopState, verdict: Verdict) -> LoopState:
    """Before the first turn: already done, impossible to verify, or something to do."""
    state = replace(state, failure=failure_text(verdict), verification=verification_text(verdict))
    if verdict.passed:
        return _done(state, Outcome.NOTHING_TO_DO, "the checks pass already; no turn was started")
    missing = next((r for r in verdict.results if r.status is CheckStatus.NOT_FOUND), None)
    if missing:
        return _done(state, Outcome.UNVERIFIABLE, f"`{missing.command}` cannot be run: {missing.reason}")
    return replace(state, phase=Phase.ACT, iteration=1)


def _acted(state: LoopState, result: TurnResult) -> LoopState:
    """After a turn, however it ended: what the tree is worth is for the checks to say."""
    answer = result.answer or {}
    action = str(answer.get("summary") or _last_words(result.text) or result.error or "no word from the agent")
    learned = str(answer.get("learned") or "")
    if answer.get("next"):
        learned = f"{learned} Next to try: {answer['next']}".strip()
    change = result.change
    pending = Iteration(
        state.iteration,
        action,
        result="",
        learnings=learned,
        seconds=round(result.seconds, 1),
        cost=result.usage.cost,
        files=change.files if change else 0,
        added=change.added if change else 0,
        removed=change.removed if change else 0,
    )
    failed = result.end in (TurnEnd.FAILED, TurnEnd.IDLE, TurnEnd.INTERRUPTED)
    return replace(
        state, phase=Phase.VERIFY, pending=pending, agent_error=(result.error or result.end) if failed else ""
    )


def _verified(state: LoopState, verdict: Verdict) -> LoopState:
    """After the checks: success, another iteration, or an end for lack of anything to stand on."""
    iterations = state.iterations
    if state.pending:
        iterations = (*iterations, _judged(state.pending, verdict))[-REMEMBERED:]
    state = replace(
        state,
        iterations=iterations,
        pending=None,
        failure=failure_text(verdict),
        verification=verification_text(verdict),
        unverified=state.unverified + 1 if verdict.unrunnable else 0,
    )
    if verdict.passed:
        return _done(state, Outcome.SUCCESS, "all checks pass")
    if state.agent_error:
        return _done(state, Outcome.FAILED, f"the agent failed again and again: {state.agent_error}")
    if state.unverified >= GIVE_UP_UNVERIFIED:
        return _done(state, Outcome.UNVERIFIABLE, f"the checks could not be run {state.unverified} times in a row")
    return replace(state, phase=Phase.ACT, iteration=state.iteration + 1)


def _judged(pending: Iteration, verdict: Verdict) -> Iteration:
    """The iteration with its verdict; a check that could not run teaches nothing."""
    summary = verdict_summary(verdict)
    learnings = pending.learnings or ("" if verdict.passed or verdict.unrunnable else f"still failing: {summary}")
    return replace(pending, result=summary, learnings=learnings, passed=verdict.passed)


def _done(state: LoopState, outcome: Outcome, reason: str) -> LoopState:
    return replace(state, phase=Phase.DONE, outcome=outcome, reason=reason)


def _lessons(state: LoopState) -> str:
    lines = [f"- Iteration {i.number}: {i.action} -> {i.result}. {i.learnings}" for i in state.learned()]
    return "What earlier iterations did and learned:\n" + "\n".join(lines) if lines else ""


def _last_words(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""


def verdict_summary(verdict: Verdict) -> str:
    """One line: which checks passed, how the others did not, and what the guards found."""
    checks = "; ".join(f"`{r.command}` {_how(r)}" for r in (verdict.failed or verdict.results))
    return f"{checks}; but {'; '.join(f.sentence for f in verdict.gamed)}" if verdict.gamed else checks


def failure_text(verdict: Verdict) -> str:
    """What the next prompt quotes of the failing checks, or of the guards' findings."""
    share = QUOTED // max(1, len(verdict.failed))
    failed = [f"$ {r.command}\n({_how(r)})\n{r.output[-share:].strip()}" for r in verdict.failed]
    return "\n\n".join([*failed, _gaming(verdict)]).strip()


def _gaming(verdict: Verdict) -> str:
    if not verdict.gamed:
        return ""
    lines = [f"- {f.path}:{f.line} [{f.rule}] {f.sentence}" for f in verdict.gamed[:20]]
    return "The commands pass, but not by the work that was asked for. Undo these, and do the work:\n" + "\n".join(
        lines
    )


def verification_text(verdict: Verdict) -> str:
    """What the report shows of all checks, and of the guards."""
    checks = [f"$ {r.command}\n{r.output[-QUOTED:].strip()}\n({_how(r)})" for r in verdict.results]
    found = [f"{f.severity}: {f.path}:{f.line} [{f.rule}] {f.sentence}" for f in verdict.findings]
    return "\n\n".join([*checks, "\n".join(found)]).strip()


def _how(result: CheckResult) -> str:
    return "passed" if result.status is CheckStatus.PASSED else f"{result.status}: {result.reason}"
