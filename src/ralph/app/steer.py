"""Message a run: send signals and list their effect, answer questions, end the run."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ralph.app.runs import find_latest_run, find_live_run, refuse_inside_a_turn
from ralph.app.views import open_view
from ralph.app.workflows import list_roles
from ralph.core.codec import format_time
from ralph.core.errors import UsageError
from ralph.core.signals import (
    ASKED_FOR,
    INTERRUPTING,
    Question,
    Signal,
    SignalType,
    choose_target,
    is_known,
    normalize_target,
)
from ralph.core.speakers import COMMAND_LINE, name_user
from ralph.documents.hats.definition import show_role
from ralph.engine.ports import Observer
from ralph.store.files import read_limited, to_bytes, to_text, write_atomic
from ralph.store.runs import ALLOWED_HOSTS_FILE, Project, RunDir
from ralph.supervisor.sandbox import STRICT
from ralph.view.model import CommentView, ReceiptView, SignalView

_HOSTS_LIMIT = 64 * 1024


@dataclass(frozen=True)
class PostedSignal:
    """A signal that was left for a run."""

    run: RunDir
    signal: Signal
    name: str
    """Its name in the mailbox, by which the view shows what became of it."""


def post_signal(project: Project, signal: Signal, role: str, wanted: str | None) -> PostedSignal:
    """Leave a signal for a run; an ABORT ends it."""
    refuse_inside_a_turn("an agent cannot send signals", "put it into your answer instead")
    kind = signal.type.lower()
    if signal.is_empty_message:
        command = "steer" if signal.type is SignalType.STEER else f"signal {kind}"
        raise UsageError("the message is empty", todo=f'write it in quotes: ralph {command} "..."')
    if signal.now and signal.type not in INTERRUPTING:
        raise UsageError(f"--now does not work with {kind}", todo="omit it; it is for steer and pause")
    if signal.items and signal.type is not SignalType.APPROVE:
        raise UsageError(f"--item does not work with {kind}", todo="omit it; it is for approve")
    run = _find_run_to_signal(project, wanted)
    if signal.type in ASKED_FOR and run.record().workflow != "session":
        raise UsageError(
            f"run {run.id} will not ask for {kind}: only a session asks whether to keep what it learned",
            todo="name a session with --run; classic sessions do not ask either",
        )
    signal = _address_signal(signal, role, run)
    if signal.type is SignalType.ABORT:
        return PostedSignal(
            run, signal, end_run(project, run, signal.message or "aborted by `ralph signal`", by=signal.by)
        )
    run.refuse_doubtful()
    if not run.alive and signal.type in (SignalType.PAUSE, SignalType.RESUME):
        todo = f"`ralph resume {run.id}` continues it"
        raise UsageError(f"run {run.id} is not running, so you cannot {kind} it", todo=todo)
    return PostedSignal(run, signal, run.mailbox.post(signal).name)


def allow_hosts(project: Project, hosts: Sequence[str], wanted: str | None) -> tuple[RunDir, list[str], str]:
    """Let the agents and checks of a run reach hosts, and tell the agents.

    Returns the hosts that are new, and the name of the signal that says so; no name if there are none.
    """
    refuse_inside_a_turn("an agent cannot allow hosts", "ask the user")
    run = _find_run_to_signal(project, wanted)
    run.refuse_doubtful()
    if run.record().sandbox != STRICT:
        raise UsageError(f"run {run.id} can reach every host", todo="only the sandbox level `strict` limits that")
    from ralph.app.sandbox import check_host_rule  # reads the user's settings, which steering does not need

    rules = [check_host_rule(host, "ralph allow") for host in hosts]
    path = run.path / ALLOWED_HOSTS_FILE
    known = to_text(read_limited(path, _HOSTS_LIMIT)).split() if path.exists() else []
    new = [rule for rule in dict.fromkeys(rules) if rule not in known]
    if not new:
        return run, [], ""
    write_atomic(path, to_bytes("".join(f"{rule}\n" for rule in (*known, *new))))
    said = Signal("", SignalType.INFO, f"You can reach {', '.join(new)} now. The user allowed it.")
    return run, new, run.mailbox.post(said).name


def _find_run_to_signal(project: Project, wanted: str | None) -> RunDir:
    """The named run, the one that is alive, or the only one that can be resumed."""
    if not wanted:
        return find_live_run(project, None, "signal", "--run ID")
    run = project.run(wanted)
    outcome = run.outcome()
    if outcome and not outcome.resumable:
        raise UsageError(f"run {run.id} is over: {outcome}", todo="`ralph status` lists the others")
    return run


def _address_signal(signal: Signal, role: str, run: RunDir) -> Signal:
    """The signal with its normalized target; a role that the workflow does not have is refused."""
    record = run.record()
    known = list_roles(record)
    target = choose_target(normalize_target(role), known)
    if not is_known(target, known):
        kind = "run of hats" if record.hats else record.workflow.replace("classic", "classic session")
        raise UsageError(f"a {kind} has no role {role!r}", todo=f"it has {', '.join(map(show_role, known))}")
    return replace(signal, target=target)


def answer_question(
    project: Project, wanted: str | None, id: str, answer: str, by: str = ""
) -> tuple[RunDir, Question]:
    """Answer an open question: the one of that id, or the only one."""
    refuse_inside_a_turn("an agent cannot answer questions", "wait for the answer, or for the default")
    if not answer.strip():
        raise UsageError("the answer is empty", todo='write it in quotes: ralph answer "..."')
    run, question = _find_question(project, wanted, id)
    run.refuse_doubtful()
    if not run.questions.answer(question.id, answer, by or name_user(COMMAND_LINE), time.time()):
        raise UsageError(f"question {question.id} has already been answered", where=str(run.questions.answers))
    return run, question


def _find_question(project: Project, wanted: str | None, id: str) -> tuple[RunDir, Question]:
    if wanted:
        runs = [project.run(wanted)]
    else:
        runs = [run for run in project.runs() if run.alive]
    found: list[tuple[RunDir, Question]] = []
    for run in runs:
        for question in run.questions.open(time.time()):
            if id in ("", question.id):
                found.append((run, question))
    if len(found) == 1:
        return found[0]
    if found:
        lines = [f"    {one.id} of run {run.id}: {one.question.splitlines()[0][:80]}" for run, one in found]
        listing = "\n".join(lines)
        raise UsageError(
            "several questions are open", where=f"candidates:\n{listing}", todo="name one; --run names its run"
        )
    for run in runs:
        for question in run.questions.read_all():
            if question.id == id:
                answer = question.answer or question.default
                raise UsageError(f"question {id} is no longer open; its answer is: {answer}")
    raise UsageError(f"there is no open question {id}".rstrip(), todo="`ralph status` shows the open questions")


def find_run_to_abort(project: Project, wanted: str | None, *, revert: bool) -> RunDir:
    """The run to end, or whose changes to revert. The latest, if all runs are over."""
    if revert and not wanted and not project.open_runs():
        return find_latest_run(project, None)
    run = find_live_run(project, wanted, "abort")
    if is_over(run) and not revert:
        todo = f"there is nothing to abort; `ralph abort {run.id} --revert` undoes its changes"
        raise UsageError(f"run {run.id} is over: {run.outcome()}", todo=todo)
    return run


def is_over(run: RunDir) -> bool:
    """Whether a run has ended for good."""
    outcome = run.outcome()
    return outcome is not None and not outcome.resumable


def end_run(project: Project, run: RunDir, message: str, by: str = "") -> str:
    """End a run, by its engine if it has one. Returns the name of the signal when the run is over, or after a minute."""
    signal = Signal("", SignalType.ABORT, message, by=by)
    if not run.alive:
        # The engine takes long to import, and commands that only talk to a run do not need it.
        from ralph.app.run_engine import abort_on_disk

        return abort_on_disk(project, run, Observer(), signal)
    name = run.mailbox.post(signal).name
    # The engine needs this long at most to end its turn: grace, kill, and the report.
    deadline = time.monotonic() + 60
    while run.alive and time.monotonic() < deadline:
        time.sleep(0.05)
    return name


@dataclass
class ReceiptRow:
    """A turn that received a signal."""

    role: str
    turn: int
    means: str
    at: str
    response: str = ""
    note: str = ""


@dataclass
class SignalRow:
    """One signal, and its effect."""

    name: str
    type: str
    state: str
    """`waiting`, `accepted` or `refused`."""
    at: str = ""
    target: str = "ALL"
    message: str = ""
    reason: str = ""
    receipts: list[ReceiptRow] = field(default_factory=list)
    comments: list[CommentView] = field(default_factory=list)
    """The comments on lines of the diff that it has."""


def list_signals(project: Project, run: RunDir) -> list[SignalRow]:
    """The signals in the journal and in the mailbox of a run, and feedback with comments, the oldest first."""
    view = open_view(project, run)
    done: list[SignalView] = []
    waiting: list[SignalView] = []
    for signal in view.signals:
        if signal.state == "waiting":
            waiting.append(signal)
        else:
            done.append(signal)
    done.sort(key=lambda signal: signal.at)

    def build_rows(signals: list[SignalView]) -> list[SignalRow]:
        rows = []
        for signal in signals:
            comments = [comment for comment in view.comments if comment.signal == signal.id]
            rows.append(_build_row(signal, comments))
        return rows

    return [*build_rows(done), *_build_feedback_rows(view.comments), *build_rows(waiting)]


def _build_feedback_rows(comments: Sequence[CommentView]) -> list[SignalRow]:
    """A row for each file of feedback that has comments."""
    rows: dict[str, SignalRow] = {}
    for comment in comments:
        if not comment.feedback:
            continue
        if comment.feedback not in rows:
            receipts = list(map(_build_receipt_row, comment.receipts))
            rows[comment.feedback] = SignalRow(
                name=comment.feedback,
                type="FEEDBACK",
                state="accepted" if receipts else "waiting",
                at=format_time(comment.at),
                reason="" if receipts else "waits for `ralph session resume`",
                receipts=receipts,
            )
        rows[comment.feedback].comments.append(comment)
    return list(rows.values())


def _build_receipt_row(receipt: ReceiptView) -> ReceiptRow:
    return ReceiptRow(
        role=receipt.role,
        turn=receipt.turn,
        means=receipt.means,
        at=format_time(receipt.at),
        response=receipt.response,
        note=receipt.note,
    )


def _build_row(signal: SignalView, comments: list[CommentView]) -> SignalRow:
    return SignalRow(
        name=signal.name,
        type=str(signal.type or ""),
        state=signal.state,
        at="" if signal.state == "waiting" else format_time(signal.at),
        target=signal.target or "ALL",
        message=signal.message,
        reason=signal.reason,
        receipts=list(map(_build_receipt_row, signal.receipts)),
        comments=comments,
    )
