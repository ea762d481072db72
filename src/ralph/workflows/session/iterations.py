"""How an iteration ends: the review of the whole, what was learned, and the feedback that begins the next."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ralph.core.checks import Evidence, Grade, Verdict
from ralph.core.errors import RalphError
from ralph.core.events import Decision, Do, Promote, Stop
from ralph.core.outcomes import Outcome
from ralph.core.signals import ASKED_FOR, Signal, SignalType, Stage
from ralph.core.text import count
from ralph.core.turns import TurnEnd, TurnResult
from ralph.documents.session import knowledge, progress
from ralph.documents.session.layout import ClassicLayout
from ralph.documents.session.markdown import Page
from ralph.documents.session.metadata import IterationMetadata, State, Status, describe_iteration
from ralph.documents.session.plan import hash_feedback
from ralph.documents.session.progress import FINAL_MARKERS, Marker, count_markers
from ralph.documents.session.repair import PLANNING, REPLANNING, UPDATE
from ralph.documents.session.reports import (
    Assessment,
    ClassicReview,
    compose_classic_review,
    parse_classic_review,
    parse_review,
)
from ralph.documents.session.values import read_front_values, with_front_matter
from ralph.documents.session.values import render_timestamp as stamp
from ralph.workflows.judging import mark_judged
from ralph.workflows.session.execution import add_update, describe_verdict, withdraw_attempt
from ralph.workflows.session.planning import accept_breakdown, add_listed_tasks, find_next_step
from ralph.workflows.session.state import SessionSettings, SessionState, Step, describe_failure
from ralph.workflows.session.work_keys import SessionKey, SessionWork

MAX_REVIEWS = 3
"""Reviews of the whole by which a reviewer may add tasks, before the user has to say how it continues."""
_SHOWN_FINDINGS = 3
_SHOWN_GAPS, _GAP_CHARS = 3, 160
"""How much the reason of a stop says about the gaps of a review."""
_JUDGE = "The reviewer of the session"
PAUSED, ABORTED = "Paused by signal", "Aborted by signal"
_OVER = (State.SESSION_REVIEW, State.KNOWLEDGE_EXTRACTION, State.KNOWLEDGE_APPROVAL, State.COMPLETE)
"""States in which the tasks of the iteration are done."""
_PLANS = (State.INITIALIZING, State.PLANNING, State.REPLANNING)
"""States in which the tasks of the iteration are not known yet. Its row stays as it began."""


def accept_session_checks(settings: SessionSettings, state: SessionState, verdict: Verdict, now: float) -> SessionState:
    """After the checks of the session. A session that only lacked a proof is complete if the user accepted the work."""
    evidence, findings = verdict.evidence, tuple(one.sentence for one in verdict.blocking_findings[:_SHOWN_FINDINGS])
    # The reviewer of the session is the judge of changed tests and settings, unless the user wants a proof.
    is_left_to_judge = verdict.awaits_judge and not settings.requires_proof
    if evidence and is_left_to_judge and verdict.snapshot and verdict.snapshot == state.flow.judged_snapshot:
        evidence = mark_judged(evidence, judge=_JUDGE)
    if settings.requires_proof and evidence and evidence.grade is Grade.JUDGED:
        evidence = replace(evidence, grade=Grade.UNPROVEN)
    is_proof_missing = evidence is not None and evidence.grade is Grade.UNPROVEN
    state = state.with_flow(
        check_results=describe_verdict(verdict) or "all pass",
        failed_checks=tuple(f"`{result.command}`" if result.command else result.title for result in verdict.not_passed),
        session_checks_passed=is_left_to_judge or (verdict.passed and not is_proof_missing),
        evidence=evidence,
        findings=findings,
        checked_snapshot=verdict.snapshot,
        checked_after_ends=state.flow.ends,
    )
    if state.flow.review_accepted and state.state is State.COMPLETE and not state.flow.lacks_proof and verdict.passed:
        return _end_iteration(settings, state.with_flow(review_accepted=False), Status.COMPLETED, now)
    return state


def _accept_judgment(state: SessionState, answer: Mapping[str, Any]) -> SessionState:
    """The state after the reviewer of the session judged the changed tests and settings.

    Only if it accepts all of them, nothing is left to judge.
    """
    opinions = {one["path"].removeprefix("./"): one["accept"] for one in answer.get("files", ())}
    to_judge, evidence = state.flow.to_judge, state.flow.evidence
    if evidence is None or not to_judge or not all(opinions.get(path) for path in to_judge):
        return state
    return state.with_flow(evidence=mark_judged(evidence, judge=_JUDGE), judged_snapshot=state.flow.checked_snapshot)


def _add_rejected_files(state: SessionState, answer: Mapping[str, Any], review: str) -> str:
    """The review with a gap for each changed test or settings file that the reviewer rejects."""
    rejected = [one for one in answer.get("files", ()) if one["path"].removeprefix("./") in state.flow.to_judge]
    rejected = [one for one in rejected if not one["accept"]]
    if not rejected:
        return review
    gaps = [f"- {one['path']}: {one['why']} Undo this change, and do the work instead." for one in rejected]
    return "\n".join((review.rstrip(), "", "## Gaps Identified", *gaps, ""))


def accept_session_review(
    settings: SessionSettings, state: SessionState, result: TurnResult, now: float
) -> SessionState:
    """After the review of the whole session: complete only if every task is, and the checks of the session pass."""
    if settings.layout.reviewer_adds_tasks:
        return _accept_review_with_tasks(settings, state, result, now)
    answer, text = result.answer or {}, result.documents.get("review.md") or str(result.answer)
    text = _add_rejected_files(state, answer, text)
    state = state.with_texts({settings.layout.review(state.metadata.iteration): text})
    threshold = state.limits.severity_threshold
    found = parse_review(text)
    good = answer.get("assessment") == "Complete"
    # Gaps that Ralph cannot read from a review may be real, so they count.
    good = good or (threshold != "any" and bool(found.issues) and not found.active(threshold))
    all_in = all(state.marker(name) in FINAL_MARKERS for name in state.tasks)
    state = _accept_judgment(state, answer)
    # A change of tests or settings that the reviewer does not accept is a gap, whatever its severity.
    good = good and not state.flow.to_judge
    passed = state.flow.session_checks_passed or not settings.checks
    complete = good and all_in and passed
    lacks_proof = good and all_in and state.flow.lacks_proof
    state = state.with_flow(review_accepted=lacks_proof)
    cycle = state.metadata.critique_cycle
    # Cycles that the user caused with a STEER do not count.
    is_left_to_user = lacks_proof and not state.flow.findings
    if (
        not complete
        and not is_left_to_user
        and all_in
        and cycle < state.limits.max_critique_cycles + state.flow.replans
    ):
        # Nothing failed, and yet it is not what was asked for: it is sent back by itself before the user is asked.
        return state.with_metadata(critique_cycle=cycle + 1).with_state(State.CRITIQUE)
    return _end_iteration(settings, state, Status.COMPLETED if complete else Status.AWAITING_FEEDBACK, now)


def _accept_review_with_tasks(
    settings: SessionSettings, state: SessionState, result: TurnResult, now: float
) -> SessionState:
    """After a review that may add tasks itself: it is complete, or gaps become tasks, or the user has to say."""
    answer, number = result.answer or {}, review_number(state)
    state = _accept_judgment(state, answer)
    is_accepted = answer.get("assessment") == Assessment.COMPLETE and not state.flow.to_judge
    # If only a proof is missing, the review stays as it is, and the run ends as unproven.
    is_left_to_user = state.flow.lacks_proof and not state.flow.findings
    passed = state.flow.session_checks_passed or not settings.checks
    good = is_accepted and (passed or is_left_to_user)
    body = result.documents.get("review.md") or f"# Session Review {number}\n\n{answer.get('summary', '')}"
    body = _add_rejected_files(state, answer, body)
    assessment = Assessment.COMPLETE if good else Assessment.GAPS
    text = compose_classic_review(number, body, assessment, state.progress.items)
    state = state.with_texts({settings.layout.review(number): text})
    if state.flow.checks_again:
        state = state.with_flow(check_results="", session_checks_passed=False)
    state = state.with_flow(reviewing=False, checks_again=False)
    if not good and count_review_rounds(state) < MAX_REVIEWS:
        after = add_listed_tasks(state, result.documents.get("tasks.md", ""))
        if not after.fault and after.has_work_left:
            return after.with_state(State.BATCHING)
    return state.with_metadata(status=Status.COMPLETED if good else Status.AWAITING_FEEDBACK).with_state(State.COMPLETE)


def plan_new_scope(settings: SessionSettings, state: SessionState, asked: str) -> SessionState:
    """The state in which a planner makes tasks of what the user asked for during the review of the whole."""
    if settings.layout.is_classic:
        return add_update(state, asked, "asked for during the review of the session")
    path, cycle = settings.layout.review(state.metadata.iteration), state.metadata.critique_cycle
    said = state.texts.get(settings.layout.notes, "")
    before = state.texts.get(path, "") if state.state is State.CRITIQUE else ""
    found = f"The user asked for this during the review:\n\n- {asked}\n\n{said}"
    review = before or f"# Session Review\n\n## Overall Assessment\n{Assessment.GAPS}\n"
    state = state.with_texts({path: f"{review.rstrip()}\n\n{found}".rstrip() + "\n"})
    return state.with_metadata(critique_cycle=cycle + 1).with_state(State.CRITIQUE)


def reviews(state: SessionState) -> list[ClassicReview]:
    """The reviews of the whole, if each has a file of its own."""
    layout = state.layout
    if not isinstance(layout, ClassicLayout):
        return []
    found = layout.reviews_in(state.texts)
    return [parse_classic_review(number, state.texts[path]) for number, path in found.items()]


def find_last_review(state: SessionState) -> ClassicReview | None:
    """The last review, if it is one of all that is there now; one that does not tell is believed if it is good."""
    last = next(iter(reviews(state)[::-1]), None)
    if last is None:
        return None
    covers = last.complete if last.covers is None else state.progress.items.keys() <= set(last.covers)
    return last if covers else None


def count_review_rounds(state: SessionState) -> int:
    """How many reviews there were since the user last asked for something."""
    asked = [id for id in state.progress.items if id.startswith(UPDATE)][-1:]
    return sum(not asked or (one.covers is not None and asked[0] in one.covers) for one in reviews(state))


def review_number(state: SessionState) -> int:
    """The number of the review that holds, or that comes next."""
    last = find_last_review(state)
    return last.number if last else max((one.number for one in reviews(state)), default=0) + 1


def make_session_key(state: SessionState, kind: SessionWork) -> SessionKey:
    """The key of the checks or the review of the whole."""
    if not state.layout.is_classic:
        return SessionKey(kind, iteration=state.metadata.iteration, cycle=state.metadata.critique_cycle)
    return SessionKey(kind, iteration=review_number(state))


def infer_metadata(state: SessionState) -> SessionState:
    """The state of a session that has no metadata, by its markers and its reviews."""
    active = [state.flow_of(name).step for name in state.tasks]
    status, found = Status.IN_PROGRESS, State.SESSION_REVIEW
    if Step.CHECK in active or Step.REVIEW in active:
        found = State.REVIEWING_BATCH
    elif find_next_step(state):
        is_begun = bool(state.texts.get(state.layout.plan(1), "").strip())
        found = State.PLANNING if is_begun or find_next_step(state) != PLANNING[0] else State.INITIALIZING
    elif Step.EXECUTE in active:
        found = State.EXECUTING_BATCH
    elif state.has_work_left:
        found = State.BATCHING
    elif (last := find_last_review(state)) or count_review_rounds(state) >= MAX_REVIEWS:
        found = State.COMPLETE
        status = Status.COMPLETED if last and last.complete else Status.AWAITING_FEEDBACK
    return state.with_metadata(state=found, status=status)


def accept_critique(
    settings: SessionSettings, state: SessionState, result: TurnResult | None, now: float
) -> SessionState:
    """After the gaps of a review became tasks: continue with them. If none could be made, the user has to decide."""
    if result is None or not result.documents:
        return _end_iteration(settings, state, Status.AWAITING_FEEDBACK, now)
    cycle = state.metadata.critique_cycle
    step = f"plan-critique-{cycle}"
    title = f"Critique Planning Progress (Iteration {state.metadata.iteration}, Cycle {cycle})"
    state = replace(state, progress=state.progress.with_section(title, [(step, Marker.TODO, "")]))
    return (
        accept_breakdown(settings, state, step, result, now).with_flow(learned_iteration=0).with_state(State.BATCHING)
    )


def accept_knowledge(settings: SessionSettings, state: SessionState, result: TurnResult, now: float) -> SessionState:
    """After a librarian: what was learned waits for approval; if nothing was, the session is over."""
    number, texts = state.metadata.iteration, {}
    for name, text in result.documents.items():
        _, category, file = name.split("/")
        if category in knowledge.CATEGORIES:
            path = settings.layout.knowledge(number, category, file)
            facts = {"category": category, "source_session": settings.id, "source_iteration": number}
            carried = read_front_values(Page(state.texts.get(path, ""))).get("carried_from")
            facts |= {"carried_from": carried} if carried is not None else {}
            texts[path] = with_front_matter(text, name, {**facts, "staged_at": stamp(now)})
    state = state.with_texts(texts)
    state = state.with_flow(
        approval_asked_at=now,
        approval_message="",
        approved=False,
        approved_items=(),
        undecided=False,
        learned_iteration=number,
    )
    staged = list_staged_knowledge(settings, state)
    if result.end is not TurnEnd.FINISHED:
        why = describe_failure(result) or f"its turn ended as {result.end}"
        state = state.with_notice(f"the librarian wrote down nothing that was learned: {why}")
    if not staged:
        return state.with_state(State.COMPLETE)
    minutes = state.limits.approval_minutes
    if state.limits.approval == "signal" and minutes is not None:
        state = state.with_notice(
            f"{_describe_learned(settings, state, len(staged))}: `ralph session approve {settings.id}` keeps it,"
            f" `ralph session skip {settings.id}` does not; Ralph waits {minutes:g} minutes for it"
        )
    return state.with_state(State.KNOWLEDGE_APPROVAL)


def accept_selection(settings: SessionSettings, state: SessionState, result: TurnResult) -> SessionState:
    """After a librarian selected what to keep by the words of the user: only that is kept."""
    number, layout = state.metadata.iteration, settings.layout
    if (result.answer or {}).get("status") != "completed":
        blockers = describe_failure(result)
        state = state.with_flow(approved=False, approval_message="")
        return state.with_notice(f"the librarian could not follow your approval: {blockers or 'it gave no reason'}")
    known = set(layout.knowledge_in(state.texts, number))
    texts, kept = {}, []
    for name, text in result.documents.items():
        _, category, file = name.split("/")
        if (category, file) in known:
            texts[layout.knowledge(number, category, file)] = text
            kept.append(layout.knowledge_target(category, file))
    state = state.with_texts(texts).with_flow(approval_message="")
    if not kept:
        return (
            state.with_flow(approved=False)
            .with_state(State.COMPLETE)
            .with_notice("Ralph keeps nothing of what was learned")
        )
    return state.with_flow(approved_items=tuple(kept))


def list_staged_knowledge(settings: SessionSettings, state: SessionState) -> dict[str, str]:
    """What was learned in this iteration, by where it is to be kept."""
    number, layout = state.metadata.iteration, settings.layout
    found = layout.knowledge_in(state.texts, number)
    return {layout.knowledge_target(*one): state.texts[layout.knowledge(number, *one)] for one in found}


def decide_approval(settings: SessionSettings, state: SessionState, now: float) -> Decision:
    """Keep what was learned, or ask whether to. If nobody answers in time, it goes over into the next iteration."""
    number, found = (
        state.metadata.iteration,
        _select_items(list_staged_knowledge(settings, state), state.flow.approved_items),
    )
    if state.limits.approval == "signal" and not state.flow.approved:
        minutes = state.limits.approval_minutes
        if minutes is not None and now < state.flow.approval_asked_at + minutes * 60:
            return Do(())
        if minutes is not None:
            end = decide_end(settings, state)
            late = (
                f"nobody approved what was learned within {minutes:g} {'minute' if minutes == 1 else 'minutes'},"
                f" so the next iteration decides about it; until then, `ralph session approve {settings.id}` still keeps it"
            )
            return replace(end, reason=f"{end.reason}; {late}")
        left = [] if state.metadata.status == Status.COMPLETED else describe_unfinished(settings, state)
        reason = "; ".join([*left, f"{_describe_learned(settings, state, len(found))} waits for your approval"])
        return Stop(Outcome.AWAITING_APPROVAL, reason, unfinished=tuple(left))
    message = f"docs: what session {settings.id} learned in iteration {number}"
    return Do((Promote(str(SessionKey(SessionWork.PROMOTE, iteration=number)), f"knowledge/{number}", message, found),))


def _describe_learned(settings: SessionSettings, state: SessionState, number: int) -> str:
    """Say how many files the session wrote about what it learned, and in which directory they are."""
    place = settings.layout.knowledge_directory(state.metadata.iteration)
    return f"what the session learned ({count(number, 'file')} in {place})"


def waits_for_approval(state: SessionState) -> bool:
    """Whether the user can say if what was learned is kept: the session asks for it, or did so until the time was over."""
    return state.state is State.KNOWLEDGE_APPROVAL or (state.state is State.COMPLETE and state.flow.undecided)


def leave_knowledge_undecided(state: SessionState) -> SessionState:
    """End the iteration because its time for an approval is over. The user can still approve or skip later."""
    return state.with_flow(undecided=True).with_state(State.COMPLETE)


def describe_stage(settings: SessionSettings, state: SessionState) -> Stage:
    """How far the session has come, and whether it waits to be told if what was learned is kept."""
    waits = waits_for_approval(state)
    is_complete = state.state is State.COMPLETE and state.metadata.status == Status.COMPLETED
    return Stage(
        iteration=state.metadata.iteration,
        asks_for=ASKED_FOR if waits else frozenset(),
        is_complete=is_complete and not find_new_feedback(settings, state),
        choices=_name_items(list_staged_knowledge(settings, state)) if waits else {},
    )


def accept_signal(settings: SessionSettings, state: SessionState, signal: Signal) -> SessionState:
    """The user said whether what was learned is kept, or that a pause is over."""
    match signal.type:
        case SignalType.APPROVE if wrong := describe_stage(settings, state).find_wrong_items(signal.items):
            return state.with_notice(wrong)
        case SignalType.APPROVE:
            message = "" if signal.items else signal.message.strip()
            state = state.with_state(State.KNOWLEDGE_APPROVAL) if waits_for_approval(state) else state
            return state.with_flow(
                approved=True, approved_items=signal.items, approval_message=message, undecided=False
            )
        case SignalType.SKIP:
            return state.with_flow(undecided=False).with_state(State.COMPLETE)
        case SignalType.RESUME:
            for name, item in state.progress.items.items():
                if PAUSED in item.note:
                    state = state.with_marker(name, item.marker, item.note.replace(PAUSED, "").strip(" ,"))
            return state
        case _:
            return state


def mark_paused(state: SessionState, reason: str) -> SessionState:
    """The user paused the session: its list says where."""
    if state.flow.is_pause:
        return state
    if state.layout.is_classic:
        return state.with_stop(reason, is_pause=True)
    active = [name for name in state.tasks if state.marker(name) in (Marker.WIP, Marker.PENDING)]
    for name in active or [name for name in (find_next_step(state),) if name in state.progress.items]:
        item = state.progress.items[name]
        state = state.with_marker(name, item.marker, ", ".join(part for part in (item.note, PAUSED) if part))
    return state.with_stop(reason, is_pause=True)


def _grade_session(settings: SessionSettings, state: SessionState) -> Evidence:
    """What supports the success of a session: checks of what was merged, and the review of the whole."""
    reviewed = "A reviewer that did none of the tasks accepted the whole session."
    if not settings.checks:
        return Evidence(Grade.UNVERIFIED, f"The session has no checks. {reviewed}")
    evidence = state.flow.evidence
    if evidence is None:
        return Evidence(Grade.JUDGED, f"The checks pass. Nothing could be compared in a clean checkout. {reviewed}")
    return replace(evidence, reason=f"{evidence.reason.rstrip('.')}. {reviewed}")


def decide_end(settings: SessionSettings, state: SessionState) -> Stop:
    """Why the run ends when the iteration is over."""
    if state.metadata.status == Status.ABORTED:
        return Stop(Outcome.ABORTED, "the session was aborted")
    is_accepted = state.flow.review_accepted or state.metadata.status == Status.COMPLETED
    if settings.checks and is_accepted and state.flow.lacks_proof:
        why = state.flow.why_not_proven
        compared = state.flow.evidence or Evidence(Grade.UNPROVEN, "")
        evidence = replace(compared, grade=Grade.UNPROVEN, reason=why)
        return Stop(Outcome.UNPROVEN, f"all checks pass, but the work is not proven: {why}", evidence=evidence)
    is_green = not settings.layout.is_classic or not settings.checks or state.flow.session_checks_passed
    if state.metadata.status == Status.COMPLETED and is_green:
        place = (
            f"; the review is in {settings.layout.review(review_number(state))}"
            if settings.layout.reviewer_adds_tasks
            else ""
        )
        done = f"the session is complete: {count(count_tasks(state)['completed'], 'task')}{place}"
        reason = "; ".join([done, *describe_removed_tasks(state)])
        return Stop(Outcome.SUCCESS, reason, evidence=_grade_session(settings, state))
    return Stop(Outcome.AWAITING_FEEDBACK, "; ".join(describe_unfinished(settings, state)))


def describe_removed_tasks(state: SessionState) -> list[str]:
    """The tasks that the user deleted or cancelled and that keep nothing from its end: the user should know."""
    lines = []
    for name, task in state.tasks.items():
        marker = state.marker(name)
        note = state.progress.items[name].note if marker is Marker.CANCELLED else ""
        if task.is_missing and marker is Marker.DONE:
            lines.append(f"{name} stays done, though its definition was deleted")
        elif progress.DELETED in note:
            lines.append(f"{name} was not done: it was deleted while the session was stopped")
        elif progress.BY_USER in note:
            lines.append(f"{name} was not done: you cancelled it")
    return lines


def mark_aborted(settings: SessionSettings, state: SessionState, now: float) -> SessionState:
    """Mark running tasks as failed and end the iteration. Files and a session that is complete stay as they are."""
    if state.state is State.COMPLETE and state.metadata.status == Status.COMPLETED:
        return state
    for name in state.tasks:
        if state.marker(name) in (Marker.WIP, Marker.PENDING):
            state = state.with_annotation(name, Marker.FAILED, "aborted", stamp(now))
            state = state.with_task_flow(name, step=Step.REST, why=ABORTED)
        elif state.flow_of(name).step is Step.EXECUTE:
            state = withdraw_attempt(state, name)
    return _record_end(state, Status.ABORTED, now).with_state(State.COMPLETE)


def with_late_feedback(settings: SessionSettings, state: SessionState) -> SessionState:
    """Feedback about the iteration in progress begins no other: the roles find it in their inboxes from now on.

    When its tasks are done, no role would act on it any more: it waits for the next iteration.
    """
    if state.state in _OVER:
        return state
    late = find_new_feedback(settings, state, state.metadata.iteration)
    return state.with_metadata(processed={**state.metadata.processed, **late}) if late else state


def list_misplaced_feedback(settings: SessionSettings, state: SessionState) -> dict[str, str]:
    """The new batches in the directories of iterations that are over, by path of their text, and where they belong.

    Ralph reads feedback only in the directory of the iteration that it is for.
    """
    if settings.layout.is_classic:
        return {}
    layout, number = settings.layout, state.metadata.iteration
    target = number + 1 if state.state in _OVER else number
    found = [(old, batch) for old in range(1, target) for batch in layout.batches_in(state.texts, old)]
    return {
        layout.feedback(old, batch): layout.feedback(target, batch)
        for old, batch in found
        if batch not in state.metadata.processed and layout.feedback(target, batch) not in state.texts
    }


def find_new_feedback(settings: SessionSettings, state: SessionState, number: int = 0) -> dict[str, str]:
    """The new batches of feedback for an iteration, by default the next, with the hashes of their contents."""
    layout, known, number = settings.layout, state.metadata.processed, number or state.metadata.iteration + 1
    found = layout.batches_in(state.texts, number)
    hashes = {batch: hash_feedback(state.texts[layout.feedback(number, batch)]) for batch in found}
    return {batch: one for batch, one in hashes.items() if known.get(batch) != one}


def start_replanning(
    settings: SessionSettings, state: SessionState, batches: Mapping[str, str], now: float
) -> SessionState:
    """The user gave feedback: the next iteration begins with planning."""
    number = state.metadata.iteration + 1
    if waits_for_approval(state):
        state = _carry_knowledge(settings, state, number)
    steps = [(name, Marker.TODO, "") for name in REPLANNING]
    listed = progress.render_new_progress(number, REPLANNING) if settings.layout.nested else state.progress
    if not settings.layout.nested and state.metadata.status != Status.ABORTED:
        # The iteration before waits for nothing any more.
        listed = _with_row(settings, state, describe_iteration(State.COMPLETE, Status.COMPLETED)).progress
    listed = listed.with_section(progress.planning_title(number), steps)
    listed = listed.with_section(progress.implementation_title(number), _list_tasks_to_carry(settings, state))
    listed = listed.with_iteration_row(number, "Replanning", "0/0", ", ".join(sorted(batches)))
    if settings.layout.nested:
        defined = [name for name, task in state.tasks.items() if not task.is_missing]
        before = state.metadata.iteration
        own = {
            settings.layout.task(number, name): settings.layout.definition(state.texts, before, name)
            for name in defined
        }
        state = state.with_texts(own)
    state = replace(state, progress=listed, iteration=IterationMetadata(number, stamp(now)), last_graph=None)
    processed = {**state.metadata.processed, **batches}
    state = state.with_metadata(iteration=number, status=Status.IN_PROGRESS, processed=processed, critique_cycle=0)
    return state.with_flow(
        cycle=1, categories_asked=(), check_results="", session_checks_passed=False, replans=0, undecided=False
    ).with_state(State.REPLANNING)


def count_tasks(state: SessionState) -> dict[str, int]:
    """How many tasks there are, by result; the graph knows without counting, if there is one."""
    try:
        return count_markers(state.graph.markers)
    except RalphError:
        return count_markers(Counter(state.marker(name) for name in state.tasks))


def _end_iteration(settings: SessionSettings, state: SessionState, status: Status, now: float) -> SessionState:
    """The iteration is over; what was learned is written down, unless that was done before the whole was reviewed again."""
    unfinished = tuple(name for name in state.tasks if state.marker(name) not in FINAL_MARKERS)
    state = state.with_flow(reviewed_iteration=state.metadata.iteration, unfinished=unfinished)
    after = State.KNOWLEDGE_EXTRACTION
    if state.limits.approval == "skip" or state.flow.review_accepted:
        # Work that only lacks a proof is accepted as it is. What was learned from it is written down after that.
        after = State.COMPLETE
    elif state.flow.learned_iteration == state.metadata.iteration:
        is_undecided = state.metadata.previous_state == State.KNOWLEDGE_APPROVAL
        after = State.KNOWLEDGE_APPROVAL if is_undecided else State.COMPLETE
    return _record_end(state, status, now).with_state(after)


def _record_end(state: SessionState, status: Status, now: float) -> SessionState:
    own = replace(state.iteration, completed_at=stamp(now))
    if status is Status.COMPLETED:
        state = state.with_flow(completed_iteration=own.iteration)
    return replace(state, iteration=own).with_metadata(status=status)


def with_current_row(settings: SessionSettings, before: SessionState, after: SessionState) -> SessionState:
    """The state after an event, with a table of iterations that says how this one stands."""
    if settings.layout.is_classic or after.state in _PLANS or _collect_row_facts(before) == _collect_row_facts(after):
        return after
    return _with_row(settings, after, describe_iteration(after.state, Status(after.metadata.status)))


def _collect_row_facts(state: SessionState) -> tuple[object, ...]:
    """What the row of the iteration depends on. Writing it for every event would cost more with every task."""
    data = state.metadata
    return data.iteration, data.state, data.status, len(data.processed), count_tasks(state)


def _with_row(settings: SessionSettings, state: SessionState, status: str) -> SessionState:
    number, done = state.metadata.iteration, count_tasks(state)
    batches = ", ".join(settings.layout.batches_in(state.texts, number)) or "N/A"
    figures = f"{done['completed']}/{done['total'] - done['cancelled']}"
    return replace(state, progress=state.progress.with_iteration_row(number, status, figures, batches))


def describe_unfinished(settings: SessionSettings, state: SessionState) -> list[str]:
    """Why an iteration is not complete."""
    in_order = state.sort_tasks(state.tasks)
    failed = [name for name in in_order if state.marker(name) is Marker.FAILED]
    causes = state.blocked_tasks
    blocked = [f"{name} (by {causes[name]})" for name in in_order if name in causes]
    reasons = []
    if failed:
        reasons.append(f"failed: {', '.join(failed)}")
    if blocked:
        reasons.append(f"blocked: {', '.join(blocked)}")
    without_need = [name for name in in_order if name in causes and state.marker(causes[name]) is Marker.CANCELLED]
    if without_need and not failed:
        them = "it" if len(without_need) == 1 else "them"
        reasons.append(f"to end the session without {', '.join(without_need)}, mark {them} [C] in progress.md too")
    reasons += [state.flow_of(name).why for name in failed if state.flow_of(name).rescoped]
    reasons += [_describe_missing_task(settings, state, name) for name in failed if state.tasks[name].is_missing]
    if state.flow.lacks_proof and not state.flow.session_checks_passed:
        reasons.append(f"the checks of the session pass, but the work does not count: {state.flow.why_not_proven}")
    elif state.flow.check_results and not state.flow.session_checks_passed:
        names = ", ".join(state.flow.failed_checks)
        reasons.append("the checks of the session do not pass" + (f": {names}" if names else ""))
    if reasons:
        return [*reasons, *describe_removed_tasks(state)]
    if state.layout.reviewer_adds_tasks and state.state is State.COMPLETE:
        number = review_number(state)
        return [f"review {number} found gaps that are left to you{_describe_gaps(settings, state, number)}"]
    return [f"the review found gaps{_describe_gaps(settings, state, state.metadata.iteration)}"]


def _describe_gaps(settings: SessionSettings, state: SessionState, number: int) -> str:
    """What the review of that number found, and the file that says more; empty if there is none."""
    path = settings.layout.review(number)
    text = state.texts.get(path)
    if text is None:
        return ""
    gaps = [gap if len(gap) <= _GAP_CHARS else gap[: _GAP_CHARS - 1] + "…" for gap in parse_review(text).gaps]
    more = f"; and {len(gaps) - _SHOWN_GAPS} more" if len(gaps) > _SHOWN_GAPS else ""
    return f": {'; '.join(gaps[:_SHOWN_GAPS])}{more} ({path})" if gaps else f" ({path})"


def _describe_missing_task(settings: SessionSettings, state: SessionState, task: str) -> str:
    path = settings.layout.place_of_task(state.metadata.iteration, task)
    return (
        f"{task} has no definition: restore it in {path} and resume, mark it [C] to leave it out,"
        " or give feedback so that it is planned again"
    )


def _select_items(found: Mapping[str, str], items: Sequence[str]) -> dict[str, str]:
    """Those that were named; all if none was."""
    names = _name_items(found)
    return {path: text for path, text in found.items() if not items or not names[path].isdisjoint(items)}


def _name_items(found: Iterable[str]) -> dict[str, frozenset[str]]:
    """How the user can name each item: by path, file name, its stem, or category."""
    return {
        path: frozenset({path, *path.split("/")[1:], path.partition("/")[2], path.split("/")[-1][:-3]})
        for path in found
    }


def _list_tasks_to_carry(settings: SessionSettings, state: SessionState) -> list[tuple[str, Marker, str]]:
    """What carries over to an iteration with its own list: every task with its marker."""
    if not settings.layout.nested:
        return []
    items = state.progress.items
    return [(name, items[name].marker, items[name].note) for name in state.tasks if name in items]


def _carry_knowledge(settings: SessionSettings, state: SessionState, number: int) -> SessionState:
    """Carry knowledge that the user neither approved nor rejected into the next iteration."""
    layout, before, texts = settings.layout, state.metadata.iteration, {}
    for category, name in layout.knowledge_in(state.texts, before):
        text = state.texts[layout.knowledge(before, category, name)]
        texts[layout.knowledge(number, category, name)] = with_front_matter(text, name, {"carried_from": before})
    return state.with_texts(texts)
