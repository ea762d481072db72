"""What each role of a session is asked, and what lies before it: one role, one mode, one thing to hand over."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ralph.core.turns import TurnRequest
from ralph.documents import contracts
from ralph.documents.session.instructions import Guardrails
from ralph.documents.session.markers import Marker
from ralph.workflows.session.planning import FEEDBACK_DRIVEN, task_path
from ralph.workflows.session.state import LOOK, SessionState, SessionTerms, Terms, workspace

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
    role, mode, papers = _MODES[step]
    number, cycle = state.metadata.iteration, str(state.flow.cycle)
    keys, inbox, tail = {}, {}, ""
    match step:
        case "plan-init":
            keys = {"USER_REQUEST": "the file request.md in the inbox"}
        case "plan-brainstorm":
            papers, tail = (f"questions/{category}.md",), f".{cycle}.{category}"
            keys, inbox = {"CYCLE": cycle, "CATEGORY": category}, _questions(terms, state, (category,))
        case "plan-research":
            tail = f".{cycle}."
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
    key = f"plan:{step}@{number}{tail}"
    return _request(terms, state, key, role, papers, {"MODE": mode, **keys}, inbox, place=place)


def execute(terms: SessionTerms, state: SessionState, task: str) -> TurnRequest:
    """The turn of an executor."""
    flow = state.of(task)
    inbox = {"task.md": state.texts[task_path(terms, state, task)]}
    needed = [one for name in state.tasks[task].depends_on for one in state.metadata.replaced.get(name, (name,))]
    inherited = ((one, terms.report(state, one)) for one in needed)
    inbox |= {f"inherited/{one}-report.md": text for one, text in inherited if text}
    if flow.why:
        inbox["why-it-failed.md"] = flow.why + "\n"
    keys = {"TASK_ID": task, "ATTEMPT_NUMBER": str(flow.attempt)}
    if flow.attempt > 1 and (text := terms.report(state, task, flow.attempt - 1)):
        inbox["previous-report.md"] = text
        keys["PREVIOUS_BRANCH"] = f"ralph/{terms.id}/{workspace(state, task, flow.attempt - 1)}"
    if criteria := terms.criteria(state.tasks[task]):
        inbox["checks.md"] = "".join(f"- `{check.command or check.title}`\n" for check in criteria)
    return _request(terms, state, f"execute:{task}-{flow.attempt}", "executor", ("report.md",), keys, inbox, task)


def review(terms: SessionTerms, state: SessionState, task: str) -> TurnRequest:
    """The turn of a reviewer of one task."""
    flow = state.of(task)
    inbox = {"task.md": state.texts[task_path(terms, state, task)]}
    inbox |= {"report.md": terms.report(state, task, flow.attempt), **_seen(flow.checked)}
    keys = {"MODE": "TASK_REVIEW", "TASK_ID": task, "REPORT_PATH": f"{INBOX}/report.md"}
    keys["RUN_BRANCH"] = f"ralph/{terms.id}/run"
    return _request(terms, state, f"review:{task}-{flow.attempt}", "reviewer", ("review.md",), keys, inbox, task)


def session_review(terms: SessionTerms, state: SessionState) -> TurnRequest:
    """The turn of the reviewer of the whole."""
    inbox = {"progress.md": state.progress.text, **_reports(terms, state, state.tasks), **_seen(state.flow.checked)}
    key = f"review:session-{state.metadata.iteration}.{state.metadata.critique_cycle}"
    return _request(terms, state, key, "reviewer", ("review.md",), {"MODE": "SESSION_REVIEW"}, inbox)


def criticise(terms: SessionTerms, state: SessionState) -> TurnRequest:
    """The turn of a planner who makes tasks of what a review found missing."""
    number, cycle = state.metadata.iteration, state.metadata.critique_cycle
    inbox = {"review.md": state.texts.get(terms.layout.review(number), ""), **_seen(state.flow.checked)}
    inbox |= _tasks(terms, state)
    keys = {"MODE": "CRITIQUE_BREAKDOWN", "CRITIQUE_CYCLE": str(cycle)}
    return _request(terms, state, f"critique:{number}.{cycle}", "planner", ("tasks/*.md",), keys, inbox)


def extract(terms: SessionTerms, state: SessionState) -> TurnRequest:
    """The turn of a librarian."""
    number = state.metadata.iteration
    inbox = {"review.md": state.texts.get(terms.layout.review(number), ""), **_reports(terms, state, state.tasks)}
    for category, name in terms.layout.knowledge_in(state.texts, number):
        inbox[f"knowledge/{category}/{name}"] = state.texts[terms.layout.knowledge(number, category, name)]
    papers, keys = ("knowledge/*/*.md",), {"MODE": "EXTRACT"}
    return _request(terms, state, f"extract:{number}", "librarian", papers, keys, inbox)


def split(terms: SessionTerms, state: SessionState, task: str) -> TurnRequest:
    """The turn of a planner who splits a task that was too large."""
    flow = state.of(task)
    keys = {"MODE": "REBREAKDOWN_TASK", "TASK_ID": task, "REASON": " ".join(flow.why.split())[:300]}
    inbox = {**_tasks(terms, state), "report.md": terms.report(state, task)}
    return _request(terms, state, f"split:{task}-{flow.attempt}", "planner", ("tasks/*.md",), keys, inbox)


def _request(
    terms: SessionTerms,
    state: SessionState,
    key: str,
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
    given = {
        "request.md": state.metadata.request + "\n",
        "plan.md": state.texts.get(layout.plan(number)) or state.texts.get(layout.plan(max(1, number - 1)), ""),
        "instructions.md": state.texts.get(layout.instructions, ""),
        **inbox,
    }
    path = f"{OUTBOX}/{DRAFTS}/" if foreign else f"{layout.root}/"
    head = {"SESSION_PATH": path, **keys, "ITERATION": str(number)}
    batches = [one for one in layout.batches_in(state.texts, number) if one in state.metadata.processed]
    if batches:
        given |= {f"feedbacks/{one}/feedbacks.md": state.texts[layout.feedback(number, one)] for one in batches}
        head |= dict.fromkeys(_FEEDBACK.get(role, ()), f"{INBOX}/feedbacks/")
    if terms.roles.skills:
        given["skills.md"] = "".join(f"- {skills}\n" for skills in terms.roles.skills)
    request = TurnRequest(
        key,
        role,
        terms.roles.section(role, mode),
        contract=_CONTRACTS.get(mode, f"session.{role}.{mode}"),
        task=task,
        workspace=workspace(state, task) if task else place,
        inbox=given,
        lends={f"feedbacks/{one}": layout.feedback(number, one).rpartition("/")[0] for one in batches},
        hands_over=papers,
        drafts=drafts(layout.root, state.texts) if foreign else {},
        takes=_takes(terms, state, role, task) if foreign else (),
    )
    return turn(terms, state.guardrails, request, head)


def turn(terms: Terms[Any], limits: Guardrails, request: TurnRequest, head: Mapping[str, str]) -> TurnRequest:
    """The turn with its whole prompt: the keys, what the role is told, what lies before it and what it hands over."""
    foreign = request.role in terms.roles.foreign
    if terms.roles.skills:
        head = {**head, "SKILLS_DIR": ", ".join(terms.roles.skills)}
    block = "\n".join(f"{name}: {value}" for name, value in head.items())
    handed = "" if foreign else "".join(f"- `{OUTBOX}/{paper}`\n" for paper in request.hands_over)
    prompt = f"{block}\n\n{request.prompt}\n\n# What lies before you\n{COPY if foreign else PAPERS}\n"
    closing = (
        f"# What to hand over\n{handed}- `{OUTBOX}/result.json`, as `{INBOX}/result.schema.json` says, for example\n"
        f"  `{contracts.example(request.contract)}`\n"
    )
    return replace(
        request,
        prompt=prompt,
        closing=closing,
        answer_required=True,
        reads_only=request.role != "executor",
        wall=limits.task_wip_minutes * 60 if request.task else None,
        retries=limits.max_retries,
        inbox={name: text for name, text in request.inbox.items() if text.strip()},
    )


def drafts(root: str, texts: Mapping[str, str]) -> dict[str, str]:
    """A copy of the session, for those who know nothing but its files."""
    home = f"{root}/"
    return {f"{DRAFTS}/{path.removeprefix(home)}": text for path, text in texts.items() if path.startswith(home)}


def _takes(terms: SessionTerms, state: SessionState, role: str, task: str) -> tuple[tuple[str, str], ...]:
    """What of the copy is a role's own, and as which paper it is handed over."""
    number, layout = state.metadata.iteration, terms.layout
    flow = state.of(task)
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
    return {f"tasks/{name}.md": state.texts[task_path(terms, state, name)] for name in defined}


def _reports(terms: SessionTerms, state: SessionState, names: Mapping[str, object] | list[str]) -> dict[str, str]:
    return {f"reports/{name}.md": text for name in names if (text := terms.report(state, name))}


def _questions(terms: SessionTerms, state: SessionState, names: tuple[str, ...]) -> dict[str, str]:
    paths = {name: terms.layout.questions(state.metadata.iteration, name) for name in names}
    return {f"questions/{name}.md": state.texts[path] for name, path in paths.items() if path in state.texts}
