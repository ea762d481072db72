"""What follows from planning: documents that are filed, steps that are done, tasks that are put in."""

from dataclasses import replace

from ralph.core.turns import TurnResult
from ralph.documents.session import questions, task_list
from ralph.documents.session.markers import Marker
from ralph.documents.session.progress import new_classic_progress
from ralph.documents.session.repair_classic import PLANNING
from ralph.documents.session.task_names import is_planning
from ralph.documents.session.timestamps import render as stamp
from ralph.workflows.classic.state import UPDATE, ClassicState, State


def planned(state: ClassicState, step: str, result: TurnResult, now: float) -> ClassicState:
    """After a step of planning: what it handed over is filed, and the step is done."""
    layout, handed = state.layout, result.papers
    if step == PLANNING[0]:
        state = _begun(state, result)
    elif step.endswith(("brainstorm", "research")):
        old, new = state.texts.get(layout.questions, ""), handed["plan.questions.md"]
        state = state.with_text(layout.questions, questions.with_earlier(old, new))
    else:
        if step.startswith(UPDATE):
            number = int(step.removeprefix(UPDATE))
            state = state.with_text(layout.old_plan(number), state.texts.get(layout.plan, ""))
            state = _reopened(state.with_text(layout.plan, handed["plan.md"]))
        state = with_tasks(state, handed.get("tasks.md", ""))
        if fault := state.fault():
            return replace(state, flow=replace(state.flow, outcome=f"the tasks cannot be put in order: {fault}"))
    state = state.marked(step, Marker.DONE, stamp(now))
    return _asked(state, step) if step.endswith("research") else state


def with_tasks(state: ClassicState, handed: str) -> ClassicState:
    """The state with further tasks, defined and listed; those that nobody has begun may be defined anew."""
    layout = state.layout
    open_ones = [id for id in state.tasks if state.marker(id) is Marker.TODO]
    text = task_list.merged(state.texts.get(layout.tasks, ""), handed, open_ones)
    new = [id for id in task_list.parse(text) if not is_planning(id) and id not in state.progress.items]
    listed = state.progress.with_items([(id, Marker.TODO, "") for id in new])
    return state.with_text(layout.tasks, text).with_text(layout.progress, listed.text)


def with_updates(state: ClassicState) -> ClassicState:
    """The state with a step for everything that a person asked for; while a task is under way, that waits."""
    if state.state is State.INITIALIZING or state.first(Marker.WIP):
        return state
    steps = [f"{UPDATE}{number}" for number in state.layout.updates_in(state.texts)]
    new = [(step, Marker.TODO, "") for step in steps if step not in state.progress.items]
    return state.with_text(state.layout.progress, state.progress.with_items(new).text) if new else state


def recovered(state: ClassicState, step: str) -> ClassicState:
    """A step that needs no turn: the plan is there already, there were cycles enough, or nobody knows the step."""
    if step == PLANNING[0] and state.texts.get(state.layout.plan, "").strip():
        return state.marked(step, Marker.DONE, "recovered")
    if step.endswith(("brainstorm", "research")) and cycle_of(state, step) > state.guardrails.max_cycles:
        return state.marked(step, Marker.DONE, questions.SKIPPED)
    known = step in PLANNING or step.startswith(UPDATE) or step.endswith(("brainstorm", "research"))
    return state if known else state.marked(step, Marker.CANCELLED, "not a step that can be done")


def cycle_of(state: ClassicState, step: str) -> int:
    """The cycle of questions: a new one to ask in, the last one to answer."""
    last = questions.last_cycle(state.texts[path] for path in state.layout.questions_in(state.texts))
    return last + 1 if step.endswith("brainstorm") else max(1, last)


def _begun(state: ClassicState, result: TurnResult) -> ClassicState:
    """The first documents; instructions that a person wrote stay."""
    layout = state.layout
    state = state.with_text(layout.plan, result.papers["plan.md"])
    if state.instructions not in state.texts and (text := result.papers.get("instructions.md")):
        state = state.with_text(layout.instructions, text)
    if layout.progress not in state.texts:
        state = state.with_text(layout.tasks, task_list.new_tasks())
        state = state.with_text(layout.progress, new_classic_progress((), PLANNING).text)
    return state


def _asked(state: ClassicState, step: str) -> ClassicState:
    """After research: where a question that matters is open, another cycle of both steps."""
    texts = [state.texts[path] for path in state.layout.questions_in(state.texts)]
    if questions.last_cycle(texts) >= state.guardrails.max_cycles:
        return state
    if not any(questions.parse(text).open_high for text in texts):
        return state
    for name in (step.replace("research", "brainstorm"), step):
        state = state.marked(name, Marker.TODO, "another cycle") if name in state.progress.items else state
    return state


def _reopened(state: ClassicState) -> ClassicState:
    """What had failed for good may be tried again; its tries are counted anew."""
    for id in state.tasks:
        if state.marker(id) is Marker.FAILED:
            state = state.marked(id, Marker.TODO, f"from Attempt {state.attempt(id)}")
    return state
