"""What each role of a classic session is asked, and what lies before it."""

from collections.abc import Mapping

from ralph.core.turns import TurnRequest
from ralph.documents.session import task_list
from ralph.documents.session.markers import Marker
from ralph.workflows.classic.planning import cycle_of
from ralph.workflows.classic.state import UPDATE, ClassicState, ClassicTerms
from ralph.workflows.session.prompting import DRAFTS, INBOX, OUTBOX, drafts, turn


def planning(terms: ClassicTerms, state: ClassicState, step: str) -> TurnRequest:
    """The turn of a step of planning, by its name."""
    inbox = _common(terms, state)
    asked = {path.rpartition("/")[2]: state.texts[path] for path in state.layout.questions_in(state.texts)}
    if step.endswith(("brainstorm", "research")):
        mode = "brainstorm" if step.endswith("brainstorm") else "research"
        cycle = cycle_of(state, mode)
        keys = {"MODE": mode, "CYCLE": str(cycle)}
        handed = (state.layout.questions.rpartition("/")[2],)
        return _turn(terms, state, f"plan:{step}.{cycle}", "questioner", keys, {**inbox, **asked}, handed)
    if step.startswith(UPDATE):
        number = int(step.removeprefix(UPDATE))
        wanted = state.texts.get(state.layout.update(number), "")
        failed = [id for id in state.tasks if state.marker(id) is Marker.FAILED]
        keys = {"MODE": "UPDATE", "UPDATE_REQUEST": f"{INBOX}/update.md", "FAILED_TASKS": ", ".join(failed) or "none"}
        inbox |= {"update.md": wanted, "progress.md": state.progress.text, **_last_reports(state, failed)}
        return _turn(terms, state, f"plan:{step}", "planner", keys, inbox, ("plan.md", "tasks.md"))
    if step == "plan-init":
        keys = {"MODE": "INITIALIZE", "USER_REQUEST": f"{INBOX}/request.md"}
        return _turn(terms, state, "plan:plan-init", "planner", keys, inbox, ("plan.md", "instructions.md"))
    return _turn(terms, state, f"plan:{step}", "planner", {"MODE": "TASK_BREAKDOWN"}, {**inbox, **asked}, ("tasks.md",))


def execute(terms: ClassicTerms, state: ClassicState, task: str) -> TurnRequest:
    """The turn of an executor, with the reports that its task inherits from."""
    attempt = state.attempt(task)
    keys = {"TASK_ID": task, "ATTEMPT_NUMBER": str(attempt)}
    inbox = {**_common(terms, state), "task.md": _definition(state, task)}
    inbox |= {f"inherited/tasks.{id}-report.md": text for id, text in state.inherited(task).items()}
    if known := state.layout.reports_in(state.texts, task):
        inbox["previous-report.md"] = state.texts[known[max(known)]]
    if criteria := terms.criteria(state, task):
        inbox["checks.md"] = "".join(f"- `{check.command or check.title}`\n" for check in criteria)
    return _turn(terms, state, f"execute:{task}-{attempt}", "executor", keys, inbox, ("report.md",), task)


def review(terms: ClassicTerms, state: ClassicState, task: str) -> TurnRequest:
    """The turn of a reviewer of one task."""
    attempt = state.attempt(task)
    path = state.layout.report(task, attempt)
    keys = {"MODE": "TASK_REVIEW", "TASK_ID": task, "REPORT_PATH": path.rpartition("/")[2]}
    inbox = {**_common(terms, state), "task.md": _definition(state, task), "report.md": state.texts.get(path, "")}
    inbox |= _seen(state, f"check:{task}-{attempt}")
    return _turn(terms, state, f"review:{task}-{attempt}", "reviewer", keys, inbox, ("review.md",), task)


def session_review(terms: ClassicTerms, state: ClassicState, number: int) -> TurnRequest:
    """The turn of a reviewer of the whole."""
    keys = {"MODE": "SESSION_REVIEW", "ITERATION": str(number)}
    inbox = {**_common(terms, state), "progress.md": state.progress.text, **_last_reports(state, state.tasks)}
    inbox |= _seen(state, f"session-{number}")
    if state.reviews:
        last = state.layout.reviews_in(state.texts)[state.reviews[-1].number]
        inbox["previous-review.md"] = state.texts[last]
    return _turn(terms, state, f"review:session-{number}", "reviewer", keys, inbox, ("review.md", "tasks.md"))


def _turn(
    terms: ClassicTerms,
    state: ClassicState,
    key: str,
    role: str,
    keys: Mapping[str, str],
    inbox: Mapping[str, str],
    handed: tuple[str, ...],
    task: str = "",
) -> TurnRequest:
    mode = keys.get("MODE", "")
    contract = f"classic.{role}" + (f".{mode}" if mode else "")
    foreign = role in terms.roles.foreign
    head = {"SESSION_PATH": f"{OUTBOX}/{DRAFTS}/" if foreign else f"{state.layout.root}/", **keys}
    own = terms.roles.section("classic", f"{role} {mode}".strip())
    said = [terms.roles.section(role, "")] if foreign or role != "executor" else []
    said += [] if foreign else [own]
    return turn(
        terms,
        state.guardrails,
        TurnRequest(
            key,
            role,
            "\n\n".join(said),
            contract=contract,
            task=task,
            inbox=inbox,
            lends={"update": state.layout.attached(int(step))} if (step := key.partition(UPDATE)[2]) else {},
            hands_over=handed,
            drafts={f"{DRAFTS}/request.md": terms.request, **drafts(state.layout.root, state.texts)} if foreign else {},
            takes=_takes(state, role, keys) if foreign else (),
        ),
        head,
    )


def _takes(state: ClassicState, role: str, keys: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """What of the copy is a role's own, and as which paper it is handed over."""
    layout, task = state.layout, keys.get("TASK_ID", "")
    mine = {
        "planner": {layout.plan: "plan.md", layout.tasks: "tasks.md"},
        "questioner": {layout.questions: "plan.questions.md"},
        "executor": {layout.report(task, state.attempt(task)): "report.md"} if task else {},
        "reviewer": {layout.report(task, state.attempt(task)): "review.md"}
        if task
        else {layout.review(int(keys.get("ITERATION", 1))): "review.md", layout.tasks: "tasks.md"},
    }[role]
    return tuple((f"{DRAFTS}/{path.rpartition('/')[2]}", name) for path, name in mine.items())


def _common(terms: ClassicTerms, state: ClassicState) -> dict[str, str]:
    """What everybody gets: the request, what was asked for since, the plan, the tasks and the instructions."""
    asked = [state.texts[path].strip() for path in state.layout.updates_in(state.texts).values()]
    return {
        "request.md": "\n\n".join([terms.request.strip(), *asked]) + "\n",
        "plan.md": state.texts.get(state.layout.plan, ""),
        "tasks.md": state.texts.get(state.layout.tasks, ""),
        "instructions.md": state.texts.get(state.instructions, ""),
    }


def _definition(state: ClassicState, task: str) -> str:
    return task_list.definition(state.texts.get(state.layout.tasks, ""), task) or task_list.render(state.tasks[task])


def _last_reports(state: ClassicState, names: Mapping[str, object] | list[str]) -> dict[str, str]:
    known = {id: state.layout.reports_in(state.texts, id) for id in names}
    return {f"reports/tasks.{id}-report.md": state.texts[found[max(found)]] for id, found in known.items() if found}


def _seen(state: ClassicState, key: str) -> dict[str, str]:
    """What the engine's own checks gave, where they were of this."""
    return {"checks.md": f"What the engine itself saw:\n\n{state.flow.checked}\n"} if state.flow.key == key else {}
