"""What follows from the turns of planners and questioners."""

from collections.abc import Mapping
from dataclasses import replace

from ralph.core.errors import RalphError
from ralph.core.graphs import natural
from ralph.core.turns import TurnResult
from ralph.documents.session import instructions, progress, questions, tasks
from ralph.documents.session.instructions import Guardrails
from ralph.documents.session.markers import OVER, Marker
from ralph.documents.session.metadata import State
from ralph.documents.session.repair import PLANNING, REPLANNING
from ralph.documents.session.timestamps import render as stamp
from ralph.workflows.session import planning_classic
from ralph.workflows.session.board import Board
from ralph.workflows.session.keys import WorkKey
from ralph.workflows.session.state import SessionState
from ralph.workflows.session.terms import SessionTerms

FEEDBACK_DRIVEN = "feedback-driven"
_OPEN = (Marker.FAILED, Marker.TODO)


def next_step(state: SessionState) -> str:
    """The first step of planning that is not over."""
    if not state.layout.has_metadata:
        steps_listed = [item for item in state.progress.items.values() if item.is_planning]
        return next((item.id for item in steps_listed if item.marker not in OVER), "")
    steps = REPLANNING if state.state is State.REPLANNING else PLANNING
    return next((name for name in steps if state.marker(name) not in OVER), "")


def to_ask(state: SessionState) -> list[tuple[str, str]]:
    """The categories to ask about now, each with the workspace of one who only looks: one after the other in each."""
    most = state.guardrails.max_questioners
    found: dict[str, str] = {}
    for index, category in enumerate(state.guardrails.categories):
        if category not in state.flow.asked:
            found.setdefault(f"look/{index % most + 1}", category)
    return [(category, place) for place, category in found.items()]


def planned(terms: SessionTerms, state: SessionState, key: WorkKey, result: TurnResult, now: float) -> SessionState:
    """After a step of planning: what it handed over is filed, and the step is done."""
    if not terms.layout.has_metadata:
        return with_guardrails(terms, planning_classic.planned(terms, state, key.step, result, now))
    number, layout, step = state.metadata.iteration, terms.layout, key.step
    match step:
        case "plan-init":
            texts = {layout.plan(number): result.papers["plan.md"]}
            if (text := result.papers.get("instructions.md")) and layout.instructions not in state.texts:
                texts[layout.instructions] = text
            state = done(with_guardrails(terms, state.with_texts(texts)), "plan-init", now)
            return state if state.guardrails.max_cycles else _without_questions(state)
        case "plan-update":
            before = state.texts.get(layout.plan(number), "") or state.texts.get(layout.plan(number - 1), "")
            texts = {} if layout.snapshot(number - 1) in state.texts else {layout.snapshot(number - 1): before}
            texts[layout.plan(number)] = result.papers["plan.md"]
            if text := result.papers.get("delta.md"):
                texts[layout.delta(number)] = text
            return done(state.with_texts(texts), "plan-update", now)
        case "plan-breakdown" | "plan-rebreakdown":
            return broken_down(terms, state, step, result, now)
        case _:
            return _asked(terms, state.with_texts(_questions(terms, state, result.papers)), step, key.category, now)


def broken_down(terms: SessionTerms, state: SessionState, step: str, result: TurnResult, now: float) -> SessionState:
    """After a breakdown: the tasks are filed and listed; of those that are there already, what is done or under way stays."""
    number, layout = state.metadata.iteration, terms.layout
    texts, known, fresh = {}, dict(state.tasks), []
    for name, task, text in _handed_over(result.papers):
        if name in state.tasks and state.marker(name) not in _OPEN:
            state = state.noting(f"the planner wanted to change {name}, which stays as it was defined")
            continue
        if name in state.tasks and not state.tasks[name].is_missing:
            texts[layout.old_task(number, name)] = layout.definition(state.texts, number, name)
        elif name not in state.tasks:
            fresh.append((name, Marker.TODO, ""))
        texts[layout.task(number, name)], known[name] = text, task
    try:
        Board(known, state.metadata.replaced)
    except RalphError as error:
        return state.stopped(f"the tasks cannot be put in order: {error.what}; say in the instructions what is wrong")
    listed = state.progress.with_section(progress.implementation_title(number), fresh)
    own = replace(state.iteration, tasks_defined=len(known))
    return done(replace(state.with_texts(texts), tasks=known, progress=listed, iteration=own), step, now)


def done(state: SessionState, step: str, now: float) -> SessionState:
    """A step of planning is done."""
    own = replace(state.iteration, planning_tasks={**state.iteration.planning_tasks, step: "completed"})
    return replace(state, iteration=own).annotated(step, Marker.DONE, "planned", stamp(now))


def guardrails_of(terms: SessionTerms, texts: Mapping[str, str]) -> Guardrails:
    """The limits of a session, by its instructions."""
    path = terms.layout.instructions_in(texts)
    return instructions.parse(texts.get(path, ""), path)


def _handed_over(papers: Mapping[str, str]) -> list[tuple[str, tasks.Task, str]]:
    found = [(tasks.parse(text, name), text) for name, text in papers.items()]
    return sorted(((task.id, task, text) for task, text in found), key=lambda one: natural(one[0]))


def with_guardrails(terms: SessionTerms, state: SessionState) -> SessionState:
    """Limits that a planner wrote and that cannot be read are left out, and said."""
    try:
        return replace(state, guardrails=guardrails_of(terms, state.texts))
    except RalphError as error:
        return state.noting(f"the limits in the instructions are not taken: {error.what}")


def _without_questions(state: SessionState) -> SessionState:
    for step in ("plan-brainstorm", "plan-research"):
        state = state.marked(step, Marker.CANCELLED, questions.SKIPPED)
    return state


def _questions(terms: SessionTerms, state: SessionState, papers: Mapping[str, str]) -> dict[str, str]:
    """The files of questions that were handed over; what was asked earlier is never lost."""
    texts = {}
    for name, text in papers.items():
        path = terms.layout.questions(state.metadata.iteration, name.removeprefix("questions/").removesuffix(".md"))
        old = state.texts.get(path, "")
        if not questions.parse(old).questions.keys() <= questions.parse(text).questions.keys():
            text = f"{old.rstrip()}\n\n{text}"
        texts[path] = text
    return texts


def _asked(terms: SessionTerms, state: SessionState, step: str, category: str, now: float) -> SessionState:
    """After questions or answers: the other categories, another cycle, or on."""
    if step == "plan-brainstorm":
        state = state.with_flow(asked=(*state.flow.asked, category))
        return state if to_ask(state) else done(state, step, now)
    state, cycle = done(state, step, now), state.flow.cycle
    if step != "plan-research" or cycle >= state.guardrails.max_cycles:
        return state
    paths = [terms.layout.questions(state.metadata.iteration, one) for one in state.guardrails.categories]
    if not any(questions.parse(state.texts.get(path, "")).open_high for path in paths):
        return state
    again = state.progress
    for one in ("plan-brainstorm", "plan-research"):
        again = again.with_item(one, Marker.TODO, f"cycle {cycle + 1}")
    return replace(state, progress=again).with_flow(cycle=cycle + 1, asked=())
