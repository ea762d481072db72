"""How an iteration ends: the review of the whole, what was learned, and the feedback that begins the next."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ralph.core.errors import RalphError
from ralph.core.events import Decision, Do, Promote, Stop
from ralph.core.outcomes import Outcome
from ralph.core.signals import ASKED_FOR, Signal, SignalType, Stage
from ralph.core.turns import TurnResult
from ralph.documents.session import feedback, knowledge, markers, progress, review
from ralph.documents.session.layout import ClassicLayout
from ralph.documents.session.markers import OVER, Marker
from ralph.documents.session.metadata import IterationMetadata, State, Status
from ralph.documents.session.repair import PLANNING, REPLANNING
from ralph.documents.session.review import Assessment
from ralph.documents.session.timestamps import render as stamp
from ralph.documents.session.yaml_lines import with_front_matter
from ralph.workflows.session.keys import Kind, WorkKey
from ralph.workflows.session.planning import broken_down, next_step
from ralph.workflows.session.planning_classic import UPDATE, with_tasks
from ralph.workflows.session.state import SessionState, Step
from ralph.workflows.session.terms import SessionTerms

MOST_REVIEWS = 3
"""Reviews of the whole by which a reviewer may add tasks, before the user has to say how it goes on."""
PAUSED, ABORTED = "Paused by signal", "Aborted by signal"
_ENDS = {Status.COMPLETED: "Complete", Status.AWAITING_FEEDBACK: "Awaiting feedback", Status.ABORTED: "Aborted"}
"""How the table of iterations tells of an end."""


def judged(terms: SessionTerms, state: SessionState, result: TurnResult, now: float) -> SessionState:
    """After the review of the whole: complete only if every task is, and the checks of the session pass."""
    if terms.layout.reviewer_adds_tasks:
        return _judged_with_tasks(terms, state, result, now)
    answer, text = result.answer or {}, result.papers.get("review.md") or str(result.answer)
    state = state.with_texts({terms.layout.review(state.metadata.iteration): text})
    threshold = state.guardrails.severity_threshold
    found = review.parse(text)
    good = answer.get("assessment") == "Complete"
    # Of gaps that cannot be read out of a review, nobody knows that they do not count.
    good = good or (threshold != "any" and bool(found.issues) and not found.active(threshold))
    all_in = all(state.marker(name) in OVER for name in state.tasks)
    complete = good and all_in and (state.flow.passed or not terms.checks)
    cycle = state.metadata.critique_cycle
    if not complete and all_in and cycle < state.guardrails.max_critique_cycles:
        # Nothing failed, and yet it is not what was asked for: it is sent back by itself before a person is asked.
        return state.with_metadata(critique_cycle=cycle + 1).to(State.CRITIQUE)
    return _ended(terms, state, Status.COMPLETED if complete else Status.AWAITING_FEEDBACK, now)


def _judged_with_tasks(terms: SessionTerms, state: SessionState, result: TurnResult, now: float) -> SessionState:
    """After a review that may add tasks itself: it is complete, or gaps become tasks, or the user has to say."""
    answer, number = result.answer or {}, review_number(state)
    good = answer.get("assessment") == Assessment.COMPLETE and (state.flow.passed or not terms.checks)
    body = result.papers.get("review.md") or f"# Session Review {number}\n\n{answer.get('summary', '')}"
    assessment = Assessment.COMPLETE if good else Assessment.GAPS
    text = review.compose_classic(number, body, assessment, state.progress.items)
    state = state.with_texts({terms.layout.review(number): text})
    if not good and rounds(state) < MOST_REVIEWS:
        after = with_tasks(state, result.papers.get("tasks.md", ""))
        if not after.fault and after.has_work_left:
            return after.to(State.BATCHING)
    return state.with_metadata(status=Status.COMPLETED if good else Status.AWAITING_FEEDBACK).to(State.COMPLETE)


def reviews(state: SessionState) -> list[review.Reviewed]:
    """The reviews of the whole, if each has a file of its own."""
    layout = state.layout
    if not isinstance(layout, ClassicLayout):
        return []
    found = layout.reviews_in(state.texts)
    return [review.parse_classic(number, state.texts[path]) for number, path in found.items()]


def last_review(state: SessionState) -> review.Reviewed | None:
    """The last review, if it is one of all that is there now; one that does not tell is believed if it is good."""
    last = next(iter(reviews(state)[::-1]), None)
    if last is None:
        return None
    covers = last.complete if last.covers is None else state.progress.items.keys() <= set(last.covers)
    return last if covers else None


def rounds(state: SessionState) -> int:
    """How many reviews there were since the user last asked for something."""
    asked = [id for id in state.progress.items if id.startswith(UPDATE)][-1:]
    return sum(not asked or (one.covers is not None and asked[0] in one.covers) for one in reviews(state))


def review_number(state: SessionState) -> int:
    """The number of the review that holds, or that comes next."""
    last = last_review(state)
    return last.number if last else max((one.number for one in reviews(state)), default=0) + 1


def key_of_whole(state: SessionState, kind: Kind) -> WorkKey:
    """The key of the checks or the review of the whole."""
    if state.layout.has_metadata:
        return WorkKey(kind, iteration=state.metadata.iteration, cycle=state.metadata.critique_cycle)
    return WorkKey(kind, iteration=review_number(state))


def infer_metadata(state: SessionState) -> SessionState:
    """The state with what the markers and the reviews tell of where the session is."""
    active = [state.of(name).step for name in state.tasks]
    status, where = Status.IN_PROGRESS, State.SESSION_REVIEW
    if Step.CHECK in active or Step.REVIEW in active:
        where = State.REVIEWING_BATCH
    elif next_step(state):
        is_begun = bool(state.texts.get(state.layout.plan(1), "").strip())
        where = State.PLANNING if is_begun or next_step(state) != PLANNING[0] else State.INITIALIZING
    elif Step.EXECUTE in active:
        where = State.EXECUTING_BATCH
    elif state.has_work_left:
        where = State.BATCHING
    elif (last := last_review(state)) or rounds(state) >= MOST_REVIEWS:
        where = State.COMPLETE
        status = Status.COMPLETED if last and last.complete else Status.AWAITING_FEEDBACK
    return state.with_metadata(state=where, status=status)


def criticised(terms: SessionTerms, state: SessionState, result: TurnResult | None, now: float) -> SessionState:
    """After the gaps of a review were made tasks: on with them; where none could be made, a person has to say."""
    if result is None or not result.papers:
        return _ended(terms, state, Status.AWAITING_FEEDBACK, now)
    cycle = state.metadata.critique_cycle
    step = f"plan-critique-{cycle}"
    title = f"Critique Planning Progress (Iteration {state.metadata.iteration}, Cycle {cycle})"
    state = replace(state, progress=state.progress.with_section(title, [(step, Marker.TODO, "")]))
    return broken_down(terms, state, step, result, now).to(State.BATCHING)


def extracted(terms: SessionTerms, state: SessionState, result: TurnResult, now: float) -> SessionState:
    """After a librarian: what was learned waits for approval; where nothing was, the session is over."""
    number, texts = state.metadata.iteration, {}
    for name, text in result.papers.items():
        _, category, file = name.split("/")
        if category in knowledge.CATEGORIES:
            facts = {"category": category, "source_session": terms.id, "source_iteration": number}
            text = with_front_matter(text, name, {**facts, "staged_at": stamp(now)})
            texts[terms.layout.knowledge(number, category, file)] = text
    state = state.with_texts(texts)
    return state.to(State.KNOWLEDGE_APPROVAL if staged(terms, state) else State.COMPLETE)


def staged(terms: SessionTerms, state: SessionState) -> dict[str, str]:
    """What was learned in this iteration, by where it is to be kept."""
    number, layout = state.metadata.iteration, terms.layout
    found = layout.knowledge_in(state.texts, number)
    return {layout.promoted(*one): state.texts[layout.knowledge(number, *one)] for one in found}


def approval(terms: SessionTerms, state: SessionState) -> Decision:
    """Keep what was learned, or ask whether to."""
    number, found = state.metadata.iteration, _wanted(staged(terms, state), state.flow.items)
    if state.guardrails.approval == "signal" and not state.flow.approved:
        what, it = ("1 thing was", "it") if len(found) == 1 else (f"{len(found)} things were", "them")
        how = f"`ralph session approve {terms.id}` keeps {it}, `ralph session skip {terms.id}` does not"
        left = [] if state.metadata.status == Status.COMPLETED else unfinished(terms, state)
        return Stop(Outcome.AWAITING_APPROVAL, "; ".join([*left, f"{what} learned: {how}"]))
    message = f"docs: what session {terms.id} learned in iteration {number}"
    return Do((Promote(str(WorkKey(Kind.PROMOTE, iteration=number)), f"knowledge/{number}", message, found),))


def stage(state: SessionState) -> Stage:
    """How far the session has come, and whether it waits to be told if what was learned is kept."""
    waits = state.state is State.KNOWLEDGE_APPROVAL
    return Stage(state.metadata.iteration, ASKED_FOR if waits else frozenset())


def heard(terms: SessionTerms, state: SessionState, signal: Signal) -> SessionState:
    """A person said whether what was learned is kept, or that a pause is over."""
    match signal.type:
        case SignalType.APPROVE if not _wanted(staged(terms, state), signal.items):
            return state.noting(
                f"nothing that was learned is called {', '.join(signal.items)}: it waits for another word"
            )
        case SignalType.APPROVE:
            return state.with_flow(approved=True, items=signal.items)
        case SignalType.SKIP:
            return state.to(State.COMPLETE)
        case SignalType.RESUME:
            for name, item in state.progress.items.items():
                if PAUSED in item.note:
                    state = state.marked(name, item.marker, item.note.replace(PAUSED, "").strip(" ,"))
            return state
        case _:
            return state


def paused(state: SessionState, reason: str) -> SessionState:
    """A person paused the session: its list says where."""
    if state.flow.paused or not state.layout.has_metadata:
        return state
    active = [name for name in state.tasks if state.marker(name) in (Marker.WIP, Marker.PENDING)]
    for name in active or [name for name in (next_step(state),) if name in state.progress.items]:
        item = state.progress.items[name]
        state = state.marked(name, item.marker, ", ".join(part for part in (item.note, PAUSED) if part))
    return state.stopped(reason, paused=True)


def over(terms: SessionTerms, state: SessionState) -> Stop:
    """Why the run ends where the iteration is over."""
    if state.metadata.status == Status.ABORTED:
        return Stop(Outcome.ABORTED, "the session was aborted")
    is_green = not terms.layout.shares_tree or not terms.checks or state.flow.passed
    if state.metadata.status == Status.COMPLETED and is_green:
        place = f", {terms.layout.review(review_number(state))}" if terms.layout.reviewer_adds_tasks else ""
        return Stop(Outcome.SUCCESS, f"the session is complete: {counts(state)['completed']} tasks{place}")
    return Stop(Outcome.AWAITING_FEEDBACK, "; ".join(unfinished(terms, state)))


def aborted(terms: SessionTerms, state: SessionState, now: float) -> SessionState:
    """The checklist of an abort, all at once; no file is taken back."""
    for name in state.tasks:
        if state.marker(name) in (Marker.WIP, Marker.PENDING):
            state = state.annotated(name, Marker.FAILED, "aborted", stamp(now))
            state = state.with_task(name, step=Step.REST, why=ABORTED)
    return _over(terms, state, Status.ABORTED, now).to(State.COMPLETE)


def with_late_feedback(terms: SessionTerms, state: SessionState) -> SessionState:
    """Feedback about the iteration under way begins no other: the roles find it in their inboxes from now on."""
    late = new_feedback(terms, state, state.metadata.iteration)
    return state.with_metadata(processed={**state.metadata.processed, **late}) if late else state


def new_feedback(terms: SessionTerms, state: SessionState, number: int = 0) -> dict[str, str]:
    """The batches for an iteration, the next by default, that were not taken in, with the hashes of what they say."""
    layout, known, number = terms.layout, state.metadata.processed, number or state.metadata.iteration + 1
    found = layout.batches_in(state.texts, number)
    hashes = {batch: feedback.content_hash(state.texts[layout.feedback(number, batch)]) for batch in found}
    return {batch: one for batch, one in hashes.items() if known.get(batch) != one}


def replanning(terms: SessionTerms, state: SessionState, batches: Mapping[str, str], now: float) -> SessionState:
    """A person gave feedback: the next iteration begins with planning."""
    number = state.metadata.iteration + 1
    if state.state is State.KNOWLEDGE_APPROVAL:
        state = _carried(terms, state, number)
    steps = [(name, Marker.TODO, "") for name in REPLANNING]
    listed = progress.new_progress(number, REPLANNING) if terms.layout.nested else state.progress
    listed = listed.with_section(progress.planning_title(number), steps)
    listed = listed.with_section(progress.implementation_title(number), _left(terms, state))
    listed = listed.with_iteration_row(number, "Replanning", "0/0", ", ".join(sorted(batches)))
    if terms.layout.nested:
        defined = [name for name, task in state.tasks.items() if not task.is_missing]
        before = state.metadata.iteration
        own = {terms.layout.task(number, name): terms.layout.definition(state.texts, before, name) for name in defined}
        state = state.with_texts(own)
    state = replace(state, progress=listed, iteration=IterationMetadata(number, stamp(now)), stamp=None)
    processed = {**state.metadata.processed, **batches}
    state = state.with_metadata(iteration=number, status=Status.IN_PROGRESS, processed=processed, critique_cycle=0)
    return state.with_flow(cycle=1, asked=(), checked="", passed=False).to(State.REPLANNING)


def counts(state: SessionState) -> dict[str, int]:
    """How many tasks there are, by what came of them; the board knows without counting, if there is one."""
    try:
        return markers.counts(state.board.markers)
    except RalphError:
        return markers.counts(Counter(state.marker(name) for name in state.tasks))


def _ended(terms: SessionTerms, state: SessionState, status: Status, now: float) -> SessionState:
    """The iteration is over; what was learned is written down."""
    return _over(terms, state, status, now).to(
        State.COMPLETE if state.guardrails.approval == "skip" else State.KNOWLEDGE_EXTRACTION
    )


def _over(terms: SessionTerms, state: SessionState, status: Status, now: float) -> SessionState:
    own = replace(state.iteration, completed_at=stamp(now))
    return replace(with_row(terms, state, _ENDS[status]), iteration=own).with_metadata(status=status)


def with_row(terms: SessionTerms, state: SessionState, word: str) -> SessionState:
    """The state whose table of iterations says how this one stands, in a layout that has one."""
    if not terms.layout.has_metadata:
        return state
    number, done = state.metadata.iteration, counts(state)
    batches = ", ".join(terms.layout.batches_in(state.texts, number)) or "N/A"
    told = f"{done['completed']}/{done['total'] - done['cancelled']}"
    return replace(state, progress=state.progress.with_iteration_row(number, word, told, batches))


def unfinished(terms: SessionTerms, state: SessionState) -> list[str]:
    """Why an iteration is not complete."""
    failed = [name for name in state.tasks if state.marker(name) is Marker.FAILED]
    blocked = [f"{name} (by {by})" for name, by in state.board.blocked.items()]
    told = [f"failed: {', '.join(failed)}"] if failed else []
    told += [f"blocked: {', '.join(blocked)}"] if blocked else []
    told += [state.of(name).why for name in failed if state.of(name).rescoped]
    told += [_without_definition(terms, state, name) for name in failed if state.tasks[name].is_missing]
    told += ["the checks of the session do not pass"] if state.flow.checked and not state.flow.passed else []
    if not told and state.layout.reviewer_adds_tasks and state.state is State.COMPLETE:
        return [f"review {review_number(state)} found gaps that are left to you"]
    return told or ["the review found gaps"]


def _without_definition(terms: SessionTerms, state: SessionState, task: str) -> str:
    path = terms.layout.place_of_task(state.metadata.iteration, task)
    return f"{task} has no definition: restore it in {path} and resume, or give feedback so that it is planned again"


def _wanted(found: Mapping[str, str], items: Sequence[str]) -> dict[str, str]:
    """Those that were named: by path, file name, its stem, or category; all where none was."""
    names = {path: {path, *path.split("/")[1:], path.partition("/")[2], path.split("/")[-1][:-3]} for path in found}
    return {path: text for path, text in found.items() if not items or not names[path].isdisjoint(items)}


def _left(terms: SessionTerms, state: SessionState) -> list[tuple[str, Marker, str]]:
    """What goes over into an iteration that has its own list: every task as it stands."""
    if not terms.layout.nested:
        return []
    items = state.progress.items
    return [(name, items[name].marker, items[name].note) for name in state.tasks if name in items]


def _carried(terms: SessionTerms, state: SessionState, number: int) -> SessionState:
    """What was learned and nobody decided about goes over into the next iteration."""
    layout, before, texts = terms.layout, state.metadata.iteration, {}
    for category, name in layout.knowledge_in(state.texts, before):
        text = state.texts[layout.knowledge(before, category, name)]
        texts[layout.knowledge(number, category, name)] = with_front_matter(text, name, {"carried_from": before})
    return state.with_texts(texts)
