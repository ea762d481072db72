"""Planning in the classic layout: one list of tasks, one list of questions, and a step for each update of the user."""

from dataclasses import replace

from ralph.core.turns import TurnResult
from ralph.documents.session import questions, task_list
from ralph.documents.session.layout import ClassicLayout
from ralph.documents.session.markers import OVER, Marker
from ralph.documents.session.repair import PLANNING
from ralph.documents.session.timestamps import render as stamp
from ralph.workflows.session.state import SessionState, with_listed
from ralph.workflows.session.terms import SessionTerms
from ralph.workflows.session.working import reopened

UPDATE = "plan-update-"
"""What the steps begin with that bring the plan in line with what the user asked for afterwards."""


def planned(terms: SessionTerms, state: SessionState, step: str, result: TurnResult, now: float) -> SessionState:
    """After a step of planning: what it handed over is filed, and the step is done."""
    layout, handed = _layout(state), result.papers
    if step == PLANNING[0]:
        state = _begun(state, result)
    elif step.endswith(("brainstorm", "research")):
        old, new = state.texts.get(layout.question_list, ""), handed["plan.questions.md"]
        state = state.with_texts({layout.question_list: questions.with_earlier(old, new)})
    else:
        if step.startswith(UPDATE):
            number = int(step.removeprefix(UPDATE))
            before = state.texts.get(layout.plan(1), "")
            state = state.with_texts({layout.snapshot(number): before, layout.plan(1): handed["plan.md"]})
            state = reopened(terms, state)
        state = with_tasks(state, handed.get("tasks.md", ""))
        if fault := state.fault:
            return state.stopped(f"the tasks cannot be put in order: {fault}")
    state = state.annotated(step, Marker.DONE, "planned", stamp(now))
    return _ask_again(state, step) if step.endswith("research") else state


def with_tasks(state: SessionState, handed: str) -> SessionState:
    """The state with further tasks, defined and listed; those that nobody has begun may be defined anew."""
    layout = _layout(state)
    open_ones = [id for id in state.tasks if state.marker(id) is Marker.TODO]
    text = task_list.merged(state.texts.get(layout.task_list, ""), handed, open_ones)
    state = state.with_texts({layout.task_list: text})
    new = [id for id in layout.read_tasks(state.texts, 1) if id not in state.progress.items]
    listed = state.progress.with_items([(id, Marker.TODO, "") for id in new])
    return with_listed(replace(state, progress=listed))


def with_updates(state: SessionState) -> SessionState:
    """The state with a step for everything that the user asked for; while a task is under way, that waits."""
    is_begun = bool(state.texts.get(state.layout.plan(1), "").strip())
    if not is_begun or any(state.marker(name) is Marker.WIP for name in state.tasks):
        return state
    steps = [f"{UPDATE}{number}" for number in state.layout.updates_in(state.texts)]
    new = [(step, Marker.TODO, "") for step in steps if step not in state.progress.items]
    return replace(state, progress=state.progress.with_items(new)) if new else state


def skip_steps(state: SessionState) -> SessionState:
    """The state after the steps at the front that need no turn."""
    if state.layout.has_metadata:
        return state
    for item in state.progress.items.values():
        if item.is_planning and item.marker not in OVER:
            after = _skip(state, item.id)
            if after is state:
                return state
            state = after
    return state


def _skip(state: SessionState, step: str) -> SessionState:
    """A step that needs no turn: the plan is there already, there were cycles enough, or nobody knows the step."""
    if step == PLANNING[0] and state.texts.get(state.layout.plan(1), "").strip():
        return state.marked(step, Marker.DONE, "recovered")
    if step.endswith(("brainstorm", "research")) and cycle_of(state, step) > state.guardrails.max_cycles:
        return state.marked(step, Marker.DONE, questions.SKIPPED)
    is_known = step in PLANNING or step.startswith(UPDATE) or step.endswith(("brainstorm", "research"))
    return state if is_known else state.marked(step, Marker.CANCELLED, "not a step that can be done")


def cycle_of(state: SessionState, step: str) -> int:
    """The cycle of questions: a new one to ask in, the last one to answer."""
    last = questions.last_cycle(state.texts[path] for path in _layout(state).questions_in(state.texts))
    return last + 1 if step.endswith("brainstorm") else max(1, last)


def _begun(state: SessionState, result: TurnResult) -> SessionState:
    """The first documents; instructions that the user wrote stay."""
    layout = _layout(state)
    texts = {layout.plan(1): result.papers["plan.md"]}
    if layout.instructions_in(state.texts) not in state.texts and (text := result.papers.get("instructions.md")):
        texts[layout.instructions] = text
    if layout.task_list not in state.texts:
        texts[layout.task_list] = task_list.new_tasks()
    return state.with_texts(texts)


def _ask_again(state: SessionState, step: str) -> SessionState:
    """After research: if a question that matters is open, another cycle of both steps."""
    texts = [state.texts[path] for path in _layout(state).questions_in(state.texts)]
    if questions.last_cycle(texts) >= state.guardrails.max_cycles:
        return state
    if not any(questions.parse(text).open_high for text in texts):
        return state
    for name in (step.replace("research", "brainstorm"), step):
        state = state.marked(name, Marker.TODO, "another cycle") if name in state.progress.items else state
    return state


def _layout(state: SessionState) -> ClassicLayout:
    assert isinstance(state.layout, ClassicLayout)
    return state.layout
