"""What each role of a session is asked, and what lies before it: one role, one mode, one thing to hand over."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from ralph.core.turns import TurnRequest
from ralph.documents import contracts
from ralph.documents.session.layout import ClassicLayout
from ralph.documents.session.markers import Marker
from ralph.documents.session.repair import PLANNING
from ralph.documents.session.reports import Verdict
from ralph.workflows.session.closing import key_of_whole, review_number, reviews
from ralph.workflows.session.keys import Kind, WorkKey
from ralph.workflows.session.planning import FEEDBACK_DRIVEN
from ralph.workflows.session.planning_classic import UPDATE, cycle_of
from ralph.workflows.session.state import LOOK, SessionState, workspace
from ralph.workflows.session.terms import SessionTerms

INBOX, OUTBOX, DRAFTS = ".ralph/turn/inbox", ".ralph/turn/outbox", "session"
PAPERS = (
    f"Everything you need of the session is in `{INBOX}`; its own directory is the engine's, and nothing that you write"
    " there is taken."
)
COPY = (
    "SESSION_PATH is a copy of the session for this turn. What is yours in it is taken from there when you are done; the"
    f" engine alone decides about markers and metadata. What else you may need is in `{INBOX}`."
)
_MODES = {
    "plan-init": ("planner", "INITIALIZE", ("plan.md", "instructions.md")),
    "plan-brainstorm": ("questioner", "brainstorm", ("questions/*.md",)),
    "plan-research": ("questioner", "research", ("questions/*.md",)),
    "plan-breakdown": ("planner", "TASK_BREAKDOWN", ("tasks/*.md",)),
    "plan-rebrainstorm": ("questioner", "feedback-analysis", ("questions/*.md",)),
    "plan-reresearch": ("questioner", "research", ("questions/*.md",)),
    "plan-update": ("planner", "UPDATE", ("plan.md", "delta.md")),
    "plan-rebreakdown": ("planner", "REBREAKDOWN", ("tasks/*.md",)),
}
"""Who does a step of planning, in which mode, and what they hand over."""
_CONTRACTS = {"": "session.executor", "TASK_REVIEW": "session.reviewer", "SESSION_REVIEW": "session.review"}
"""The contracts that are not called as role and mode are."""


def planning(terms: SessionTerms, state: SessionState, step: str, category: str = "", place: str = LOOK) -> TurnRequest:
    """The turn of a step of planning; of a category, where that is asked about."""
    if not terms.layout.has_metadata:
        return _classic_planning(terms, state, step)
    role, mode, papers = _MODES[step]
    number, cycle = state.metadata.iteration, str(state.flow.cycle)
    keys, inbox = {}, {}
    key = WorkKey(Kind.PLAN, step=step, iteration=number)
    match step:
        case "plan-init":
            keys = {"USER_REQUEST": "the file request.md in the inbox"}
        case "plan-brainstorm":
            papers, key = (f"questions/{category}.md",), replace(key, cycle=state.flow.cycle, category=category)
            keys, inbox = {"CYCLE": cycle, "CATEGORY": category}, _questions(terms, state, (category,))
        case "plan-research":
            key = replace(key, cycle=state.flow.cycle)
            keys = {"CYCLE": cycle, "CATEGORY": "ALL"}
            inbox = _questions(terms, state, state.guardrails.categories)
        case "plan-rebrainstorm" | "plan-reresearch":
            keys = {"CYCLE": "1", "CATEGORY": FEEDBACK_DRIVEN, "QUESTION_CATEGORY": FEEDBACK_DRIVEN}
            inbox = _questions(terms, state, (FEEDBACK_DRIVEN,))
        case "plan-update":
            keys = {"PLAN_SNAPSHOT": terms.layout.snapshot(number - 1).rpartition("/")[2]}
            inbox = _questions(terms, state, (FEEDBACK_DRIVEN,))
        case _:
            inbox = _tasks(terms, state) | _questions(terms, state, (*state.guardrails.categories, FEEDBACK_DRIVEN))
    if step == "plan-rebreakdown":
        failed = [name for name in state.tasks if state.marker(name) is Marker.FAILED]
        keys = {"FAILED_TASKS": ", ".join(failed) or "none"}
        inbox |= _reports(terms, state, failed)
    return _request(terms, state, key, role, papers, {"MODE": mode, **keys}, inbox, place=place)


def _classic_planning(terms: SessionTerms, state: SessionState, step: str) -> TurnRequest:
    """The turn of a step of planning in the classic layout, by its name."""
    layout = terms.layout
    assert isinstance(layout, ClassicLayout)
    key = WorkKey(Kind.PLAN, step=step)
    asked = {_base(path): state.texts[path] for path in layout.questions_in(state.texts)}
    if step.endswith(("brainstorm", "research")):
        mode = "brainstorm" if step.endswith("brainstorm") else "research"
        cycle = cycle_of(state, mode)
        keys = {"MODE": mode, "CYCLE": str(cycle)}
        handed = (_base(layout.question_list),)
        return _request(terms, state, replace(key, cycle=cycle), "questioner", handed, keys, asked)
    if step.startswith(UPDATE):
        wanted = state.texts.get(layout.update(int(step.removeprefix(UPDATE))), "")
        failed = [id for id in state.tasks if state.marker(id) is Marker.FAILED]
        keys = {"MODE": "UPDATE", "UPDATE_REQUEST": f"{INBOX}/update.md", "FAILED_TASKS": ", ".join(failed) or "none"}
        inbox = {"update.md": wanted, "progress.md": state.progress.text, **_reports(terms, state, failed)}
        return _request(terms, state, key, "planner", ("plan.md", "tasks.md"), keys, inbox)
    if step == PLANNING[0]:
        keys = {"MODE": "INITIALIZE", "USER_REQUEST": f"{INBOX}/request.md"}
        return _request(terms, state, key, "planner", ("plan.md", "instructions.md"), keys, {})
    return _request(terms, state, key, "planner", ("tasks.md",), {"MODE": "TASK_BREAKDOWN"}, asked)


def execute(terms: SessionTerms, state: SessionState, task: str) -> TurnRequest:
    """The turn of an executor."""
    flow = state.of(task)
    inbox = {"task.md": _definition(state, task)}
    needed = [one for name in state.tasks[task].needs for one in state.metadata.replaced.get(name, (name,))]
    inherited = ((one, _inherited_report(state, one)) for one in needed)
    inbox |= {f"inherited/{_report_name(state, one)}": text for one, text in inherited if text}
    if flow.why and not terms.layout.shares_tree:
        inbox["why-it-failed.md"] = flow.why + "\n"
    keys = {"TASK_ID": task, "ATTEMPT_NUMBER": str(flow.attempt)}
    if flow.attempt > 1 and (text := terms.report(state, task, flow.attempt - 1)):
        inbox["previous-report.md"] = text
        if not terms.layout.shares_tree:
            keys["PREVIOUS_BRANCH"] = f"ralph/{terms.id}/{workspace(state, task, flow.attempt - 1)}"
    if criteria := terms.criteria(state.tasks[task]):
        inbox["checks.md"] = "".join(f"- `{check.command or check.title}`\n" for check in criteria)
    key = WorkKey(Kind.EXECUTE, task=task, attempt=flow.attempt)
    return _request(terms, state, key, "executor", ("report.md",), keys, inbox, task)


def review(terms: SessionTerms, state: SessionState, task: str) -> TurnRequest:
    """The turn of a reviewer of one task."""
    flow = state.of(task)
    inbox = {"task.md": _definition(state, task)}
    inbox |= {"report.md": terms.report(state, task, flow.attempt), **_seen(flow.checked)}
    keys = {"MODE": "TASK_REVIEW", "TASK_ID": task, "REPORT_PATH": f"{INBOX}/report.md"}
    if terms.layout.shares_tree:
        keys["REPORT_PATH"] = _base(terms.layout.report(state.metadata.iteration, task, flow.attempt))
    else:
        keys["RUN_BRANCH"] = f"ralph/{terms.id}/run"
    key = WorkKey(Kind.REVIEW, task=task, attempt=flow.attempt)
    return _request(terms, state, key, "reviewer", ("review.md",), keys, inbox, task)


def session_review(terms: SessionTerms, state: SessionState) -> TurnRequest:
    """The turn of the reviewer of the whole."""
    inbox = {"progress.md": state.progress.text, **_reports(terms, state, state.tasks), **_seen(state.flow.checked)}
    key, keys = key_of_whole(state, Kind.SESSION_REVIEW), {"MODE": "SESSION_REVIEW"}
    if not terms.layout.reviewer_adds_tasks:
        return _request(terms, state, key, "reviewer", ("review.md",), keys, inbox)
    if earlier := reviews(state):
        inbox["previous-review.md"] = state.texts[terms.layout.review(earlier[-1].number)]
    keys["ITERATION"] = str(review_number(state))
    return _request(terms, state, key, "reviewer", ("review.md", "tasks.md"), keys, inbox)


def criticise(terms: SessionTerms, state: SessionState) -> TurnRequest:
    """The turn of a planner who makes tasks of what a review found missing."""
    number, cycle = state.metadata.iteration, state.metadata.critique_cycle
    inbox = {"review.md": state.texts.get(terms.layout.review(number), ""), **_seen(state.flow.checked)}
    inbox |= _tasks(terms, state)
    keys = {"MODE": "CRITIQUE_BREAKDOWN", "CRITIQUE_CYCLE": str(cycle)}
    return _request(
        terms, state, WorkKey(Kind.CRITIQUE, iteration=number, cycle=cycle), "planner", ("tasks/*.md",), keys, inbox
    )


def extract(terms: SessionTerms, state: SessionState) -> TurnRequest:
    """The turn of a librarian."""
    number = state.metadata.iteration
    inbox = {"review.md": state.texts.get(terms.layout.review(number), ""), **_reports(terms, state, state.tasks)}
    for category, name in terms.layout.knowledge_in(state.texts, number):
        inbox[f"knowledge/{category}/{name}"] = state.texts[terms.layout.knowledge(number, category, name)]
    papers, keys = ("knowledge/*/*.md",), {"MODE": "EXTRACT"}
    return _request(terms, state, WorkKey(Kind.EXTRACT, iteration=number), "librarian", papers, keys, inbox)


def split(terms: SessionTerms, state: SessionState, task: str) -> TurnRequest:
    """The turn of a planner who splits a task that was too large."""
    flow = state.of(task)
    keys = {"MODE": "REBREAKDOWN_TASK", "TASK_ID": task, "REASON": " ".join(flow.why.split())[:300]}
    inbox = {**_tasks(terms, state), "report.md": terms.report(state, task)}
    key = WorkKey(Kind.SPLIT, task=task, attempt=flow.attempt)
    return _request(terms, state, key, "planner", ("tasks/*.md",), keys, inbox)


def _request(
    terms: SessionTerms,
    state: SessionState,
    key: WorkKey,
    role: str,
    papers: tuple[str, ...],
    keys: Mapping[str, str],
    inbox: Mapping[str, str],
    task: str = "",
    place: str = LOOK,
) -> TurnRequest:
    """The turn, with what everybody gets: the request, the plan, the instructions, and what a person said.

    It acts in the workspace of its task; without one it only looks at what was merged.
    """
    number, layout = state.metadata.iteration, terms.layout
    mode, foreign = keys.get("MODE", ""), role in terms.roles.foreign
    given = {**_common(terms, state), **inbox}
    path = f"{OUTBOX}/{DRAFTS}/" if foreign else f"{layout.root}/"
    head = {"SESSION_PATH": path, **keys}
    if layout.has_metadata:
        head["ITERATION"] = str(number)
    batches = [one for one in layout.batches_in(state.texts, number) if one in state.metadata.processed]
    lends = {f"feedbacks/{one}": layout.feedback(number, one).rpartition("/")[0] for one in batches}
    if batches:
        given |= {f"feedbacks/{one}/feedbacks.md": state.texts[layout.feedback(number, one)] for one in batches}
        head |= dict.fromkeys(_FEEDBACK.get(role, ()), f"{INBOX}/feedbacks/")
    if isinstance(layout, ClassicLayout) and key.step.startswith(UPDATE):
        lends = {"update": layout.attached(int(key.step.removeprefix(UPDATE)))}
    if terms.roles.skills:
        given["skills.md"] = "".join(f"- {skills}\n" for skills in terms.roles.skills)
    request = TurnRequest(
        key=str(key),
        role=role,
        prompt=_role_text(terms, role, mode),
        contract=_contract(terms, role, mode),
        task=task,
        workspace=_workspace(state, task, place),
        inbox=given,
        lends=lends,
        hands_over=papers,
        drafts=_drafts(terms, state) if foreign else {},
        takes=_takes(terms, state, role, task) if foreign else (),
    )
    return _with_prompt(terms, state, request, head)


def _workspace(state: SessionState, task: str, place: str) -> str:
    if state.layout.shares_tree:
        return ""
    return workspace(state, task) if task else place


def _role_text(terms: SessionTerms, role: str, mode: str) -> str:
    """What a role is told; in the classic layout, what holds for all modes and then what is different there."""
    if terms.layout.has_metadata or role in terms.roles.foreign:
        return terms.roles.section(role, mode)
    own = terms.roles.section("classic", f"{role} {mode}".strip())
    return own if role == "executor" else f"{terms.roles.section(role, '')}\n\n{own}"


def _contract(terms: SessionTerms, role: str, mode: str) -> str:
    if terms.layout.has_metadata:
        return _CONTRACTS.get(mode, f"session.{role}.{mode}")
    return f"classic.{role}" + (f".{mode}" if mode else "")


def _common(terms: SessionTerms, state: SessionState) -> dict[str, str]:
    """What everybody gets: the request and what the user asked for since, the plan, the tasks and the instructions."""
    number, layout = state.metadata.iteration, terms.layout
    since = [state.texts[path].strip() for path in layout.updates_in(state.texts).values()]
    request = (
        "\n\n".join([terms.request.strip(), *since]) if isinstance(layout, ClassicLayout) else state.metadata.request
    )
    return {
        "request.md": request + "\n",
        "plan.md": state.texts.get(layout.plan(number)) or state.texts.get(layout.plan(max(1, number - 1)), ""),
        "tasks.md": state.texts.get(layout.task_list, "") if isinstance(layout, ClassicLayout) else "",
        "instructions.md": state.texts.get(layout.instructions_in(state.texts), ""),
    }


def _with_prompt(
    terms: SessionTerms, state: SessionState, request: TurnRequest, head: Mapping[str, str]
) -> TurnRequest:
    """The turn with its whole prompt: the keys, the role, the task, the checks, the inbox, and what to hand over."""
    foreign = request.role in terms.roles.foreign
    if terms.roles.skills:
        head = {**head, "SKILLS_DIR": ", ".join(terms.roles.skills)}
    block = "\n".join(f"{name}: {value}" for name, value in head.items())
    inbox = {name: text for name, text in request.inbox.items() if text.strip()}
    parts = [block, request.prompt, _task_text(request), _session_checks(terms, state, request.role)]
    parts.append(f"# What lies before you\n{COPY if foreign else PAPERS}\n{_inbox_list(inbox, request.lends)}")
    handed = "" if foreign else "".join(f"- `{OUTBOX}/{paper}`\n" for paper in request.hands_over)
    closing = (
        f"# What to hand over\n{handed}- `{OUTBOX}/result.json`, as `{INBOX}/result.schema.json` says, for example\n"
        f"  `{contracts.example(request.contract)}`\n"
    )
    limits = state.guardrails
    return replace(
        request,
        prompt="\n\n".join(part for part in parts if part) + "\n",
        closing=closing,
        answer_required=True,
        reads_only=request.role != "executor",
        wall=limits.task_wip_minutes * 60 if request.task else None,
        retries=limits.max_retries,
        inbox=inbox,
    )


def _task_text(request: TurnRequest) -> str:
    """The task of an executor: who does it should not have to look for it."""
    text = request.inbox.get("task.md", "").strip() if request.role == "executor" else ""
    return f"# Your task\n`````\n{text}\n`````" if text else ""


def _session_checks(terms: SessionTerms, state: SessionState, role: str) -> str:
    """What must pass in the end, and how it stood before: for those who plan or work."""
    if not terms.checks or not state.flow.baseline or role not in ("planner", "executor"):
        return ""
    lines = ["# The checks of the session", "The engine runs them before the session is complete."]
    for check in terms.checks:
        before = "passed" if check.title in state.flow.held else "failed"
        lines.append(f"- `{check.command or check.title}` ({before} before the session began)")
    return "\n".join(lines)


def _inbox_list(inbox: Mapping[str, str], lends: Mapping[str, str]) -> str:
    """What is in the inbox: files by name, the files of a directory by its name."""
    names = (*inbox, *(f"{name}/" for name in lends))
    shown = dict.fromkeys(name.partition("/")[0] + "/" * ("/" in name) for name in names)
    return "The inbox holds " + ", ".join(f"`{name}`" for name in shown) + "."


def _drafts(terms: SessionTerms, state: SessionState) -> dict[str, str]:
    """A copy of the session, for those who know nothing but its files."""
    home = f"{terms.layout.root}/"
    own = {f"{DRAFTS}/{path.removeprefix(home)}": text for path, text in state.texts.items() if path.startswith(home)}
    return own if terms.layout.has_metadata else {f"{DRAFTS}/request.md": terms.request, **own}


def _takes(terms: SessionTerms, state: SessionState, role: str, task: str) -> tuple[tuple[str, str], ...]:
    """What of the copy is a role's own, and as which paper it is handed over."""
    number, layout = state.metadata.iteration, terms.layout
    flow = state.of(task)
    if isinstance(layout, ClassicLayout):
        return _classic_takes(layout, state, role, task)
    places = {
        "planner": {
            layout.plan(number): "plan.md",
            f"{layout.tasks(number)}/*.md": "tasks/",
            layout.delta(number): "delta.md",
        },
        "questioner": {
            layout.questions(number, "x").replace("x.md", "*.md"): "questions/",
            layout.questions(number, FEEDBACK_DRIVEN): "questions/",
        },
        "executor": {layout.report(number, task or "task", flow.attempt): "report.md"},
        "reviewer": {
            layout.report(number, task or "task", flow.attempt) if task else layout.review(number): "review.md"
        },
        "librarian": {f"{layout.review(number).rpartition('/')[0]}/knowledge/*/*.md": "knowledge/"},
    }[role]
    return tuple((f"{DRAFTS}/{path.removeprefix(layout.root + '/')}", name) for path, name in places.items())


def _classic_takes(layout: ClassicLayout, state: SessionState, role: str, task: str) -> tuple[tuple[str, str], ...]:
    attempt = state.of(task).attempt
    whole = {layout.review(review_number(state)): "review.md", layout.task_list: "tasks.md"}
    mine = {
        "planner": {layout.plan(1): "plan.md", layout.task_list: "tasks.md"},
        "questioner": {layout.question_list: "plan.questions.md"},
        "executor": {layout.report(1, task or "task", attempt): "report.md"},
        "reviewer": {layout.report(1, task, attempt): "review.md"} if task else whole,
    }[role]
    return tuple((f"{DRAFTS}/{_base(path)}", name) for path, name in mine.items())


_FEEDBACK = {
    "questioner": ("FEEDBACK_PATHS",),
    "planner": ("FEEDBACK_SOURCES",),
    "executor": ("FEEDBACK_CONTEXT",),
    "reviewer": ("FEEDBACK_CONTEXT",),
}
"""What the roles know feedback as."""


def _seen(checked: str) -> dict[str, str]:
    return {"checks.md": f"What the engine itself saw:\n\n{checked}\n"} if checked else {}


def _tasks(terms: SessionTerms, state: SessionState) -> dict[str, str]:
    defined = [name for name, task in state.tasks.items() if not task.is_missing]
    return {f"tasks/{name}.md": _definition(state, name) for name in defined}


def _reports(terms: SessionTerms, state: SessionState, names: Iterable[str]) -> dict[str, str]:
    """The last report on each of these tasks."""
    found = {}
    for name in names:
        if text := terms.report(state, name):
            found[f"reports/{name}.md" if terms.layout.has_metadata else f"reports/{_report_name(state, name)}"] = text
    return found


def _inherited_report(state: SessionState, task: str) -> str:
    """The report on a task for who builds on it: the latest that was qualified, else the latest."""
    known = state.reports(task)
    good = [attempt for attempt, report in known.items() if report.verdict is Verdict.QUALIFIED]
    paths = state.layout.reports_in(state.texts, state.metadata.iteration, task)
    return state.texts[paths[max(good or known)]] if known else ""


def _report_name(state: SessionState, task: str) -> str:
    return _base(state.layout.report(state.metadata.iteration, task, 1))


def _definition(state: SessionState, task: str) -> str:
    return state.layout.definition(state.texts, state.metadata.iteration, task)


def _base(path: str) -> str:
    return path.rpartition("/")[2]


def _questions(terms: SessionTerms, state: SessionState, names: tuple[str, ...]) -> dict[str, str]:
    paths = {name: terms.layout.questions(state.metadata.iteration, name) for name in names}
    return {f"questions/{name}.md": state.texts[path] for name, path in paths.items() if path in state.texts}
