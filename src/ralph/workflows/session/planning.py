"""Accepts the turns of planners and questioners.

The standard layout has fixed steps, a file for each task and a file for each category of questions. The classic layout has
the steps that `progress.md` lists, one file of tasks, one file of questions, and a step for each update of the user.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from ralph.core.errors import RalphError
from ralph.core.ids import name_read_only_worktree
from ralph.core.turns import TurnEnd, TurnResult
from ralph.documents.session import progress, task_list, tasks
from ralph.documents.session.layout import ClassicLayout
from ralph.documents.session.metadata import State
from ralph.documents.session.plan import (
    CYCLE_SKIPPED,
    PlanQuestions,
    SessionLimits,
    count_cycles,
    merge_questions,
    parse_instructions,
    parse_questions,
    render_instructions,
    with_request,
)
from ralph.documents.session.progress import FINAL_MARKERS, Marker
from ralph.documents.session.repair import PLANNING, REPLANNING, UPDATE
from ralph.documents.session.tasks import make_natural_key
from ralph.documents.session.values import render_timestamp as stamp
from ralph.workflows.session.execution import add_update, reopen_failed_tasks, reopen_task
from ralph.workflows.session.state import SessionSettings, SessionState, Step, with_listed_tasks
from ralph.workflows.session.task_graph import TaskGraph
from ralph.workflows.session.work_keys import SessionKey

FEEDBACK_DRIVEN = "feedback-driven"
RESCOPED = "the user asked for something else"
_OPEN = (Marker.FAILED, Marker.TODO)


def find_next_step(state: SessionState) -> str:
    """The first step of planning that is not over."""
    if state.layout.is_classic:
        steps_listed = [item for item in state.progress.items.values() if item.is_planning]
        return next((item.id for item in steps_listed if item.marker not in FINAL_MARKERS), "")
    steps = REPLANNING if state.state is State.REPLANNING else PLANNING
    return next((name for name in steps if state.marker(name) not in FINAL_MARKERS), "")


def is_question_step(step: str) -> bool:
    """Whether questions are asked or answered in a step."""
    return step.endswith(("brainstorm", "research"))


def list_categories_to_ask(state: SessionState) -> list[tuple[str, str]]:
    """The categories to ask about now, each with a worktree; those that share a worktree follow each other."""
    most = state.limits.max_questioners
    found: dict[str, str] = {}
    for index, category in enumerate(state.limits.categories):
        if category not in state.flow.categories_asked:
            found.setdefault(name_read_only_worktree(index % most + 1), category)
    return [(category, worktree) for worktree, category in found.items()]


def find_cycle(state: SessionState, step: str) -> int:
    """The cycle of questions; the classic layout counts it in the files. Questions start a new cycle, answers do not."""
    if not state.layout.is_classic:
        return state.flow.cycle
    last = count_cycles(state.texts[path] for path in _classic(state).questions_in(state.texts))
    return last + 1 if step.endswith("brainstorm") else max(1, last)


def accept_turn(
    settings: SessionSettings, state: SessionState, key: SessionKey, result: TurnResult, now: float
) -> SessionState:
    """After a step of planning: file what it handed over, and complete the step."""
    step = key.step
    if step == PLANNING[0]:
        state = complete_step(_store_plan(settings, state, result.documents), step, now)
        is_without_questions = not state.layout.is_classic and not state.limits.max_cycles
        return _cancel_questions(state) if is_without_questions else state
    if is_question_step(step):
        state = state.with_texts(_merge_questions(state, result.documents))
        return _continue_questions(state, step, key.category, now)
    if step.startswith("plan-update"):
        state = _store_update(settings, state, step, result.documents)
    if not state.layout.is_classic and step == "plan-update":
        return complete_step(state, step, now)
    return accept_breakdown(settings, state, step, result, now)


def accept_breakdown(
    settings: SessionSettings, state: SessionState, step: str, result: TurnResult, now: float
) -> SessionState:
    """After a breakdown: the tasks are filed and listed. Those that are done or in progress stay as they are."""
    if not settings.layout.is_classic:
        state, fault = _store_tasks(settings, state, result.documents)
    else:
        missing = [name for name, task in state.tasks.items() if task.is_missing]
        state = add_listed_tasks(state, result.documents.get("tasks.md", ""))
        for name in missing:
            # The planner has defined it again, so it can be done.
            if not state.tasks[name].is_missing and state.marker(name) is Marker.FAILED:
                state = reopen_task(settings, state, name)
        fault = state.fault
    if fault:
        return state.with_stop(
            f"the dependencies of the tasks are invalid: {fault}; say in the instructions what is wrong"
        )
    return complete_step(state, step, now)


def accept_replan(
    settings: SessionSettings, state: SessionState, task: str, result: TurnResult, now: float
) -> SessionState:
    """After a planner changed a task because the user asked for something else: it is done as it is defined now."""
    state = state.with_task_flow(task, step=Step.REST)
    is_done = result.end is TurnEnd.FINISHED and (result.answer or {}).get("status") == "completed"
    if not is_done or not result.documents:
        return state.with_notice(f"the planner could not change {task} to what you asked for; it waits for feedback")
    after, fault = _store_tasks(settings, state, result.documents)
    if fault:
        return state.with_notice(f"the planner's change of {task} is ignored: its dependencies are invalid: {fault}")
    after = reopen_task(settings, after, task)
    for name in state.tasks:
        if name != task and after.tasks[name] != state.tasks[name] and after.marker(name) is Marker.FAILED:
            # The planner changed another task that failed, too: as it is defined now, it was never tried.
            after = reopen_task(settings, after, name)
    if after.tasks[task] == state.tasks[task]:
        return after.with_notice(f"the planner left {task} as it was; the next attempt gets your message")
    return after.with_notice(f"{task} was planned again: {after.tasks[task].title or after.tasks[task].objective}")


def begin_again(state: SessionState, step: str, asked: str) -> SessionState:
    """The state in which a planner plans again, because the user asked for something else during a step of planning.

    The first plan is written again with all that follows it. Later on, an update of the plan replaces the steps that are left.
    """
    if step == PLANNING[0] or (not state.layout.is_classic and state.state is not State.REPLANNING):
        for name in PLANNING:
            state = state.with_marker(name, Marker.TODO)
        return state.with_flow(cycle=1, categories_asked=())
    left = [item.id for item in state.progress.items.values() if item.is_planning and item.marker not in FINAL_MARKERS]
    for name in left:
        if state.layout.is_classic or is_question_step(name):
            state = state.with_marker(name, Marker.CANCELLED, RESCOPED)
    if state.layout.is_classic:
        return add_update(state, asked, f"asked for during {step}")
    return state.with_marker("plan-update", Marker.TODO)


def complete_step(state: SessionState, step: str, now: float) -> SessionState:
    """The state in which a step of planning is done."""
    iteration = replace(state.iteration, planning_tasks={**state.iteration.planning_tasks, step: "completed"})
    return replace(state, iteration=iteration).with_annotation(step, Marker.DONE, "planned", stamp(now))


def add_listed_tasks(state: SessionState, handed: str) -> SessionState:
    """The state with the tasks of a `tasks.md` that was handed over; tasks that have not started may be redefined."""
    layout = _classic(state)
    open_ones = [id for id in state.tasks if state.marker(id) is Marker.TODO]
    text = task_list.merge_tasks(state.texts.get(layout.task_list, ""), handed, open_ones)
    state = state.with_texts({layout.task_list: text})
    new = [id for id in layout.read_tasks(state.texts, 1) if id not in state.progress.items]
    listed = state.progress.with_items([(id, Marker.TODO, "") for id in new])
    return with_listed_tasks(replace(state, progress=listed))


def add_update_steps(state: SessionState) -> SessionState:
    """The state with a step for each update of the user; while a task is in progress, updates wait."""
    is_begun = bool(state.texts.get(state.layout.plan(1), "").strip())
    if not is_begun or any(state.marker(name) is Marker.WIP for name in state.tasks):
        return state
    steps = [f"{UPDATE}{number}" for number in state.layout.updates_in(state.texts)]
    new = [(step, Marker.TODO, "") for step in steps if step not in state.progress.items]
    return replace(state, progress=state.progress.with_items(new)) if new else state


def skip_steps(state: SessionState) -> SessionState:
    """The state after the next steps that need no turn, in a layout whose list of steps others may have written."""
    if not state.layout.is_classic:
        return state
    for item in state.progress.items.values():
        if item.is_planning and item.marker not in FINAL_MARKERS:
            after = _skip_step(state, item.id)
            if after is state:
                return state
            state = after
    return state


def keep_plan_copy(settings: SessionSettings, state: SessionState) -> SessionState:
    """The state with a copy of the plan of this iteration, which is never overwritten."""
    number, layout = state.metadata.iteration, settings.layout
    text, path = state.texts.get(layout.plan(number), ""), layout.plan_copy(number)
    if layout.is_classic or layout.nested or not text or path in state.texts:
        return state
    return state.with_texts({path: text})


def read_session_limits(settings: SessionSettings, texts: Mapping[str, str]) -> SessionLimits:
    """The limits of a session, by its instructions."""
    path = settings.layout.instructions_in(texts)
    return parse_instructions(texts.get(path, ""), path)


def add_instructions(settings: SessionSettings, state: SessionState) -> SessionState:
    """The state with instructions that contain the request, also if others began the session without any."""
    if state.state is State.INITIALIZING:
        return state
    path = settings.layout.instructions_in(state.texts)
    before = state.texts.get(path) or build_default_instructions(settings)
    text = with_request(before, state.metadata.request or settings.request)
    return state.with_texts({path: text}) if text != state.texts.get(path) else state


def build_default_instructions(settings: SessionSettings) -> str:
    """The instructions of a session for which nobody wrote any."""
    layout = settings.layout
    return render_instructions(settings.id, layout.root, is_parallel=not layout.is_classic)


def _skip_step(state: SessionState, step: str) -> SessionState:
    """A step that needs no turn: the plan exists, the limit of cycles is reached, or the step is unknown."""
    if step == PLANNING[0] and state.texts.get(state.layout.plan(1), "").strip():
        return state.with_marker(step, Marker.DONE, "recovered")
    if is_question_step(step) and find_cycle(state, step) > state.limits.max_cycles:
        return state.with_marker(step, Marker.DONE, CYCLE_SKIPPED)
    is_known = step in PLANNING or step.startswith(UPDATE) or is_question_step(step)
    return state if is_known else state.with_marker(step, Marker.CANCELLED, "not a step that can be done")


def _store_plan(settings: SessionSettings, state: SessionState, documents: Mapping[str, str]) -> SessionState:
    """The first documents. Instructions that the user wrote stay; limits in them that cannot be read are left out."""
    layout = settings.layout
    texts = {layout.plan(state.metadata.iteration): documents["plan.md"]}
    path = layout.instructions_in(state.texts)
    instructions = state.texts.get(path) or documents.get("instructions.md") or build_default_instructions(settings)
    texts[path] = with_request(instructions, settings.request)
    if isinstance(layout, ClassicLayout) and layout.task_list not in state.texts:
        texts[layout.task_list] = task_list.render_new_task_list()
    state = state.with_texts(texts)
    try:
        return replace(state, limits=read_session_limits(settings, state.texts))
    except RalphError as error:
        return state.with_notice(f"the limits in the instructions are ignored: {error.what}")


def _store_update(
    settings: SessionSettings, state: SessionState, step: str, documents: Mapping[str, str]
) -> SessionState:
    """The new plan beside a copy of the one before, which is never overwritten."""
    number, layout = state.metadata.iteration, settings.layout
    if isinstance(layout, ClassicLayout):
        copy, before = layout.plan_copy(int(step.removeprefix(UPDATE))), state.texts.get(layout.plan(1), "")
        state = state.with_texts({copy: before, layout.plan(1): documents["plan.md"]})
        for name in [name for name, flow in state.flow.tasks.items() if flow.rescoped]:
            # The planner has read what the user asked for instead.
            state = state.with_task_flow(name, rescoped=False)
        return reopen_failed_tasks(settings, state)
    before = state.texts.get(layout.plan(number), "")
    texts = {} if layout.plan_copy(number - 1) in state.texts else {layout.plan_copy(number - 1): before}
    texts[layout.plan(number)] = documents["plan.md"]
    if text := documents.get("delta.md"):
        texts[layout.delta(number)] = text
    return state.with_texts(texts)


def _store_tasks(
    settings: SessionSettings, state: SessionState, documents: Mapping[str, str]
) -> tuple[SessionState, str]:
    """The state with the tasks of files that were handed over, and what is wrong with their dependencies."""
    number, layout = state.metadata.iteration, settings.layout
    texts, known, fresh = {}, dict(state.tasks), []
    found = [(tasks.parse_task(text, name), text) for name, text in documents.items()]
    for task, text in sorted(found, key=lambda one: make_natural_key(one[0].id)):
        name = task.id
        if name in state.tasks and state.marker(name) not in _OPEN:
            state = state.with_notice(f"the planner tried to change {name}; its definition stays as it was")
            continue
        if name in state.tasks and not state.tasks[name].is_missing:
            texts[layout.old_task(number, name)] = layout.definition(state.texts, number, name)
        elif name not in state.tasks:
            fresh.append((name, Marker.TODO, ""))
        texts[layout.task(number, name)], known[name] = text, task
    try:
        TaskGraph(known, state.metadata.replaced)
    except RalphError as error:
        return state, error.what
    listed = state.progress.with_section(progress.implementation_title(number), fresh)
    iteration = replace(state.iteration, tasks_defined=len(known))
    return replace(state.with_texts(texts), tasks=known, progress=listed, iteration=iteration), ""


def _cancel_questions(state: SessionState) -> SessionState:
    for step in ("plan-brainstorm", "plan-research"):
        state = state.with_marker(step, Marker.CANCELLED, CYCLE_SKIPPED)
    return state


def _merge_questions(state: SessionState, documents: Mapping[str, str]) -> dict[str, str]:
    """The files of questions that were handed over; what was asked earlier is never lost."""
    layout = state.layout
    if isinstance(layout, ClassicLayout):
        old = state.texts.get(layout.question_list, "")
        new = documents.get("plan.questions.md", "")
        return {layout.question_list: merge_questions(old, new)} if new.strip() else {}
    texts = {}
    for name, text in documents.items():
        path = layout.questions(state.metadata.iteration, name.removeprefix("questions/").removesuffix(".md"))
        old = state.texts.get(path, "")
        if not parse_questions(old).questions.keys() <= parse_questions(text).questions.keys():
            text = f"{old.rstrip()}\n\n{text}"
        texts[path] = text
    return texts


def _continue_questions(state: SessionState, step: str, category: str, now: float) -> SessionState:
    """After questions or answers: the other categories, another cycle, or the next step."""
    if not state.layout.is_classic and step == "plan-brainstorm":
        state = state.with_flow(categories_asked=(*state.flow.categories_asked, category))
        if list_categories_to_ask(state):
            return state
    state = complete_step(state, step, now)
    if step.endswith("brainstorm"):
        return _skip_research(state, step)
    return _ask_again(state, step) if step == "plan-research" or state.layout.is_classic else state


def _skip_research(state: SessionState, step: str) -> SessionState:
    """After questions: skip the research if no question is open."""
    research = step.replace("brainstorm", "research")
    if research not in state.progress.items or _find_questions(state, step, lambda one: one.unanswered):
        return state
    return state.with_marker(research, Marker.CANCELLED, "no questions")


def _ask_again(state: SessionState, step: str) -> SessionState:
    """After research: if a question of high priority is open, another cycle of both steps."""
    layout, cycle = state.layout, find_cycle(state, step)
    if cycle >= state.limits.max_cycles or not _find_questions(state, step, lambda one: one.open_high):
        return state
    note = f"cycle {cycle + 1}" if not layout.is_classic else "another cycle"
    for name in (step.replace("research", "brainstorm"), step):
        if name in state.progress.items:
            state = state.with_marker(name, Marker.TODO, note)
    return state.with_flow(cycle=cycle + 1, categories_asked=()) if not layout.is_classic else state


def _find_questions(state: SessionState, step: str, select: Callable[[PlanQuestions], list[str]]) -> list[str]:
    """The questions of a step that are selected, of all files of them."""
    layout = state.layout
    if isinstance(layout, ClassicLayout):
        paths = layout.questions_in(state.texts)
    else:
        is_replanning = step in REPLANNING
        categories = (FEEDBACK_DRIVEN,) if is_replanning else state.limits.categories
        paths = [layout.questions(state.metadata.iteration, one) for one in categories]
    return [id for path in paths for id in select(parse_questions(state.texts.get(path, "")))]


def _classic(state: SessionState) -> ClassicLayout:
    assert isinstance(state.layout, ClassicLayout)
    return state.layout
