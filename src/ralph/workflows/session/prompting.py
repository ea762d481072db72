"""What each role of a session is asked, and what lies before it: one role, one mode, one thing to hand over."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ralph.core.turns import TurnRequest
from ralph.documents.session.markers import Marker
from ralph.workflows.session.state import SessionState

if TYPE_CHECKING:
    from ralph.workflows.session.rules import Session

INBOX, OUTBOX = ".ralph/turn/inbox", ".ralph/turn/outbox"
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
FEEDBACK_DRIVEN = "feedback-driven"


@dataclass(frozen=True)
class Roles:
    """The texts of the roles, by name, with a section for each mode; and what else prompts name."""

    texts: Mapping[str, str]
    resolver: str
    skills: tuple[str, ...] = ()
    """Directories with skills that agents may use."""

    def section(self, role: str, mode: str) -> str:
        """What a role is told in a mode: what holds in all of them, and what in this one."""
        head, *sections = self.texts[role].split("\n## ")
        own = next((text for text in sections if text.partition("\n")[0].strip() == mode), "")
        return (
            f"{_without_front_matter(head).strip()}\n\n## {own.strip()}" if own else _without_front_matter(head).strip()
        )


def planning(session: "Session", state: SessionState, step: str) -> TurnRequest:
    """The turn of a step of planning."""
    role, mode, papers = _MODES[step]
    number, flow = state.metadata.iteration, state.flow
    keys = {"MODE": mode, "ITERATION": str(number)}
    inbox = _common(session, state)
    tail = ""
    if role == "questioner":
        again = step in ("plan-rebrainstorm", "plan-reresearch")
        category = FEEDBACK_DRIVEN if again else state.guardrails.categories[flow.category]
        keys |= {"CYCLE": str(flow.cycle), "CATEGORY": "ALL" if step == "plan-research" else category}
        names = [FEEDBACK_DRIVEN] if again else list(state.guardrails.categories)
        asked = {one: state.texts.get(session.layout.questions(number, one), "") for one in names}
        inbox |= {f"questions/{one}.md": text for one, text in asked.items() if text}
        tail = f".{flow.cycle}.{flow.category}"
    if step == "plan-init":
        keys["USER_REQUEST"] = "the file request.md in the inbox"
    if number > 1:
        inbox |= _feedback(session, state)
        keys["FEEDBACK_PATHS"] = f"{INBOX}/feedbacks/"
    if step == "plan-update":
        keys["PLAN_SNAPSHOT"] = session.layout.snapshot(number - 1).rpartition("/")[2]
    if step in ("plan-breakdown", "plan-rebreakdown"):
        inbox |= {f"tasks/{name}.md": state.texts[path] for name, path in _task_paths(session, state).items()}
        inbox |= {f"questions/{path.rpartition('/')[2]}": state.texts[path] for path in _questions(session, state)}
    if step == "plan-rebreakdown":
        failed = [name for name in state.tasks if state.marker(name) is Marker.FAILED]
        keys["FAILED_TASKS"] = ", ".join(failed) or "none"
        inbox |= {f"reports/{name}.md": text for name in failed if (text := session.latest_report(state, name))}
    return _request(
        session, state, f"plan:{step}@{number}{tail}", role, mode, keys, inbox, papers, f"session.{role}.{mode}"
    )


def execute(session: "Session", state: SessionState, task: str) -> TurnRequest:
    """The turn of an executor."""
    flow, number = state.of(task), state.metadata.iteration
    keys = {"TASK_ID": task, "ATTEMPT_NUMBER": str(flow.attempt), "ITERATION": str(number)}
    inbox = {**_common(session, state), "task.md": state.texts[_task_paths(session, state)[task]]}
    inbox |= {
        f"inherited/{one}-report.md": text
        for one in state.tasks[task].depends_on
        if (text := session.latest_report(state, one))
    }
    if number > 1:
        inbox |= _feedback(session, state)
        keys["FEEDBACK_CONTEXT"] = f"{INBOX}/feedbacks/"
    if flow.why:
        inbox["why-it-failed.md"] = flow.why + "\n"
    if flow.attempt > 1 and (text := session.latest_report(state, task)):
        inbox["previous-report.md"] = text
    criteria = session.criteria(state.tasks[task])
    if criteria:
        inbox["checks.md"] = "".join(f"- `{check.command or check.title}`\n" for check in criteria)
    return _request(
        session,
        state,
        f"execute:{task}-{flow.attempt}",
        "executor",
        "",
        keys,
        inbox,
        ("report.md",),
        "session.executor",
        task=task,
    )


def review(session: "Session", state: SessionState, task: str) -> TurnRequest:
    """The turn of a reviewer of one task."""
    flow, number = state.of(task), state.metadata.iteration
    report = session.layout.report(number, task, flow.attempt)
    keys = {"MODE": "TASK_REVIEW", "TASK_ID": task, "REPORT_PATH": f"{INBOX}/report.md", "ITERATION": str(number)}
    inbox = {
        **_common(session, state),
        "task.md": state.texts[_task_paths(session, state)[task]],
        "report.md": state.texts.get(report, ""),
    }
    if flow.checked:
        inbox["checks.md"] = f"What the engine itself saw:\n\n{flow.checked}\n"
    if number > 1:
        inbox |= _feedback(session, state)
    key = f"review:{task}-{flow.attempt}"
    return _request(
        *(session, state, key, "reviewer", "TASK_REVIEW", keys, inbox, ("review.md",), "session.reviewer"), task=task
    )


def session_review(session: "Session", state: SessionState) -> TurnRequest:
    """The turn of the reviewer of the whole."""
    number = state.metadata.iteration
    keys = {"MODE": "SESSION_REVIEW", "ITERATION": str(number)}
    inbox = {**_common(session, state), "progress.md": state.progress.text}
    inbox |= {f"reports/{name}.md": text for name in state.tasks if (text := session.latest_report(state, name))}
    if state.flow.checked:
        inbox["checks.md"] = f"What the engine itself saw:\n\n{state.flow.checked}\n"
    key = f"review:session-{number}.{state.metadata.critique_cycle}"
    return _request(*(session, state, key, "reviewer", "SESSION_REVIEW", keys, inbox, ("review.md",), "session.review"))


def criticise(session: "Session", state: SessionState) -> TurnRequest:
    """The turn of a planner who makes tasks of what a review found missing."""
    number, cycle = state.metadata.iteration, state.metadata.critique_cycle
    keys = {"MODE": "CRITIQUE_BREAKDOWN", "ITERATION": str(number), "CRITIQUE_CYCLE": str(cycle)}
    inbox = {**_common(session, state), "review.md": state.texts.get(session.layout.review(number), "")}
    inbox |= {f"tasks/{name}.md": state.texts[path] for name, path in _task_paths(session, state).items()}
    if state.flow.checked:
        inbox["checks.md"] = f"What the engine itself saw:\n\n{state.flow.checked}\n"
    return _request(
        *(session, state, f"critique:{number}.{cycle}", "planner", "CRITIQUE_BREAKDOWN", keys, inbox),
        *(("tasks/*.md",), "session.planner.CRITIQUE_BREAKDOWN"),
    )


def extract(session: "Session", state: SessionState) -> TurnRequest:
    """The turn of a librarian."""
    number = state.metadata.iteration
    keys = {"MODE": "EXTRACT", "ITERATION": str(number)}
    inbox = {**_common(session, state), "review.md": state.texts.get(session.layout.review(number), "")}
    inbox |= {f"reports/{name}.md": text for name in state.tasks if (text := session.latest_report(state, name))}
    return _request(
        *(session, state, f"extract:{number}", "librarian", "EXTRACT", keys, inbox),
        *(("knowledge/*/*.md",), "session.librarian.EXTRACT"),
    )


def split(session: "Session", state: SessionState, task: str) -> TurnRequest:
    """The turn of a planner who splits a task that was too large."""
    flow = state.of(task)
    keys = {"MODE": "REBREAKDOWN_TASK", "TASK_ID": task, "REASON": " ".join(flow.why.split())[:300]}
    inbox = {f"tasks/{name}.md": state.texts[path] for name, path in _task_paths(session, state).items()}
    inbox = {**_common(session, state), **inbox}
    if text := session.latest_report(state, task):
        inbox["report.md"] = text
    key = f"split:{task}-{flow.attempt}"
    return _request(
        *(
            session,
            state,
            key,
            "planner",
            "REBREAKDOWN_TASK",
            keys,
            inbox,
            ("tasks/*.md",),
            "session.planner.REBREAKDOWN_TASK",
        ),
    )


def _request(
    session: "Session",
    state: SessionState,
    key: str,
    role: str,
    mode: str,
    keys: Mapping[str, str],
    inbox: Mapping[str, str],
    papers: tuple[str, ...],
    contract: str,
    task: str = "",
) -> TurnRequest:
    from ralph.workflows.session.rules import LOOK, workspace

    head = {"SESSION_PATH": f".ralph-sessions/{session.id}/", **keys}
    block = "\n".join(f"{name}: {value}" for name, value in head.items())
    skills = "".join(f"- {place}\n" for place in session.roles.skills)
    handed = "\n".join(f"- `{OUTBOX}/{paper}`" for paper in papers)
    prompt = (
        f"{block}\n\n{session.roles.section(role, mode)}\n\n"
        f"# What lies before you\nEverything you need of the session is in `{INBOX}`;"
        " its own directory is the engine's, and nothing that you write there is taken.\n"
        + (f"Skills that you may use:\n{skills}" if skills else "")
        + f"\n# What to hand over\n{handed}\n- `{OUTBOX}/result.json`, as `{INBOX}/result.schema.json` says\n"
    )
    return TurnRequest(
        key,
        role,
        prompt,
        contract=contract,
        answer_required=True,
        task=task,
        workspace=workspace(state, task) if task else LOOK,
        reads_only=role != "executor",
        wall=state.guardrails.task_wip_minutes * 60 if task else None,
        retries=state.guardrails.max_retries,
        inbox=inbox,
        hands_over=papers,
    )


def _common(session: "Session", state: SessionState) -> dict[str, str]:
    """What everybody gets: the request, the plan, and the instructions of the session."""
    number = state.metadata.iteration
    found = {
        "request.md": state.metadata.request + "\n",
        "plan.md": state.texts.get(session.layout.plan(number), ""),
        "instructions.md": state.texts.get(session.layout.instructions, ""),
    }
    return {name: text for name, text in found.items() if text.strip()}


def _feedback(session: "Session", state: SessionState) -> dict[str, str]:
    number = state.metadata.iteration
    batches = session.layout.batches_in(state.texts, number)
    return {f"feedbacks/{batch}/feedbacks.md": state.texts[session.layout.feedback(number, batch)] for batch in batches}


def _task_paths(session: "Session", state: SessionState) -> dict[str, str]:
    """The file of each task: the newest, where an iteration has its own."""
    found: dict[str, str] = {}
    for name in state.tasks:
        for number in range(1, state.metadata.iteration + 1):
            if (path := session.layout.task(number, name)) in state.texts:
                found[name] = path
    return found


def _questions(session: "Session", state: SessionState) -> list[str]:
    names = (*state.guardrails.categories, FEEDBACK_DRIVEN)
    paths = [session.layout.questions(state.metadata.iteration, name) for name in names]
    return [path for path in paths if path in state.texts]


def _without_front_matter(text: str) -> str:
    if not text.startswith("---\n"):
        return text
    _, _, rest = text[4:].partition("\n---\n")
    return rest
