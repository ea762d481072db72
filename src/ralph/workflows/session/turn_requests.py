"""Builds the turn requests of a session: role and mode, the files of the inbox, and the documents to hand over."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from ralph.core.ids import READ_ONLY_WORKTREE, name_planning_worktree
from ralph.core.prompt import Prompt
from ralph.core.turns import INBOX, OUTBOX, TurnRequest
from ralph.documents.session.answers import JUDGE_FILES, render_judge_files
from ralph.documents.session.layout import ClassicLayout
from ralph.documents.session.plan import without_request
from ralph.documents.session.progress import Marker
from ralph.documents.session.repair import PLANNING, UPDATE
from ralph.documents.session.reports import ReviewVerdict
from ralph.workflows.session.iterations import make_session_key, review_number, reviews
from ralph.workflows.session.planning import FEEDBACK_DRIVEN, build_default_instructions, find_cycle
from ralph.workflows.session.prompts import build_session_prompt
from ralph.workflows.session.state import SessionSettings, SessionState, Step, name_task_worktree, without_front_matter
from ralph.workflows.session.work_keys import SessionKey, SessionWork

DRAFTS = "session"
_MODES = {
    "plan-init": ("planner", "INITIALIZE", ("plan.md", "instructions.md")),
    "plan-brainstorm": ("questioner", "brainstorm", ("questions/*.md",)),
    "plan-research": ("questioner", "research", ("questions/*.md",)),
    "plan-breakdown": ("planner", "TASK_BREAKDOWN", ("tasks/*.md",)),
    "plan-rebrainstorm": ("questioner", "feedback-analysis", ("questions/feedback-driven.md",)),
    "plan-reresearch": ("questioner", "research", ("questions/feedback-driven.md",)),
    "plan-update": ("planner", "UPDATE", ("plan.md", "delta.md")),
    "plan-rebreakdown": ("planner", "REBREAKDOWN", ("tasks/*.md",)),
}
"""The role and mode of each step of planning, and the documents that it hands over."""
_TASK_NUMBER = re.compile(r"task-(\d+)")
_PREFIXES = {
    "technical": "Q-TECH",
    "requirements": "Q-REQ",
    "constraints": "Q-CON",
    "assumptions": "Q-ASM",
    "risks": "Q-RSK",
    FEEDBACK_DRIVEN: "Q-FDB",
}
"""The prefix of the ids of questions, by category."""
_REWORK_FORM = "### Rework Context\nWhat the previous attempt got wrong, and what you do differently.\n"
_FEEDBACK_FORMS = {
    "executor": (
        "Add `### Feedback Context Applied` after Summary of Changes: which issues of the feedback this task settles, and how."
    ),
    "reviewer": """\
Add this after Success Criteria Validation, with a row for each issue of the feedback that this task is meant to settle:
````
### Feedback Resolution Validation
| Issue | Expected Fix | Evidence | Verdict |
| --- | --- | --- | --- |
| ISS-001 | The CSV has a header | the first line of the output is `id,name` | ✅ Resolved |
````
`Verdict` in this table is ✅ Resolved | ❌ Not Resolved. An issue that is not resolved is a reason to fail.""",
}
_ANSWER_SCHEMAS = {"": "session.executor", "TASK_REVIEW": "session.reviewer", "SESSION_REVIEW": "session.review"}
"""The answer schemas that are not named after role and mode, by mode."""


def request_planning(
    settings: SessionSettings, state: SessionState, step: str, category: str = "", worktree: str = READ_ONLY_WORKTREE
) -> TurnRequest:
    """The turn for a step of planning, and for one category of questions if it has several."""
    if settings.layout.is_classic:
        return _request_classic_planning(settings, state, step)
    role, mode, documents = _MODES[step]
    number, cycle = state.metadata.iteration, str(state.flow.cycle)
    fields, inbox = {}, {}
    key = SessionKey(SessionWork.PLAN, step=step, iteration=number)
    match step:
        case "plan-init":
            fields = {"USER_REQUEST": "the file request.md in the inbox"}
        case "plan-brainstorm":
            documents, key = (f"questions/{category}.md",), replace(key, cycle=state.flow.cycle, category=category)
            fields, inbox = {"CYCLE": cycle, "CATEGORY": category}, _collect_questions(settings, state, (category,))
        case "plan-research":
            key = replace(key, cycle=state.flow.cycle)
            fields = {"CYCLE": cycle, "CATEGORY": "ALL"}
            inbox = _collect_questions(settings, state, state.limits.categories)
        case "plan-rebrainstorm" | "plan-reresearch":
            fields = {"CYCLE": "1", "CATEGORY": FEEDBACK_DRIVEN, "QUESTION_CATEGORY": FEEDBACK_DRIVEN}
            inbox = _collect_questions(settings, state, (FEEDBACK_DRIVEN,)) | _collect_last_iteration(settings, state)
        case "plan-update":
            fields = {"PLAN_SNAPSHOT": f"{INBOX}/plan.md"}
            inbox = _collect_questions(settings, state, (FEEDBACK_DRIVEN,)) | _collect_last_iteration(settings, state)
        case _:
            inbox = _collect_tasks(settings, state) | _collect_questions(
                settings, state, (*state.limits.categories, FEEDBACK_DRIVEN)
            )
    if step == "plan-rebreakdown":
        failed = [name for name in state.tasks if state.marker(name) is Marker.FAILED]
        fields = {"FAILED_TASKS": ", ".join(failed) or "none"}
        inbox |= _collect_reports(settings, state, failed)
        inbox |= {"progress.md": state.progress.text, "delta.md": state.texts.get(settings.layout.delta(number), "")}
    return _request(
        settings,
        state,
        key,
        role=role,
        documents=documents,
        fields={"MODE": mode, **fields},
        inbox=inbox,
        worktree=worktree,
    )


def _request_classic_planning(settings: SessionSettings, state: SessionState, step: str) -> TurnRequest:
    """The turn of a step of planning in the classic layout, by its name."""
    layout = settings.layout
    assert isinstance(layout, ClassicLayout)
    key = SessionKey(SessionWork.PLAN, step=step)
    asked = {_base(path): state.texts[path] for path in layout.questions_in(state.texts)}
    if step.endswith(("brainstorm", "research")):
        mode = "brainstorm" if step.endswith("brainstorm") else "research"
        cycle = find_cycle(state, mode)
        fields = {"MODE": mode, "CYCLE": str(cycle)}
        handed = (_base(layout.question_list),)
        return _request(
            settings, state, replace(key, cycle=cycle), role="questioner", documents=handed, fields=fields, inbox=asked
        )
    if step.startswith(UPDATE):
        wanted = state.texts.get(layout.update(int(step.removeprefix(UPDATE))), "")
        failed = [id for id in state.tasks if state.marker(id) is Marker.FAILED]
        fields = {"MODE": "UPDATE", "UPDATE_REQUEST": f"{INBOX}/update.md", "FAILED_TASKS": ", ".join(failed) or "none"}
        inbox = {
            "update.md": wanted,
            "progress.md": state.progress.text,
            **_collect_reports(settings, state, state.tasks),
        }
        if earlier := reviews(state):
            inbox["previous-review.md"] = state.texts[layout.review(earlier[-1].number)]
        return _request(
            settings, state, key, role="planner", documents=("plan.md", "tasks.md"), fields=fields, inbox=inbox
        )
    if step == PLANNING[0]:
        fields = {"MODE": "INITIALIZE", "USER_REQUEST": f"{INBOX}/request.md"}
        return _request(
            settings, state, key, role="planner", documents=("plan.md", "instructions.md"), fields=fields, inbox={}
        )
    return _request(
        settings, state, key, role="planner", documents=("tasks.md",), fields={"MODE": "TASK_BREAKDOWN"}, inbox=asked
    )


def request_execution(settings: SessionSettings, state: SessionState, task: str) -> TurnRequest:
    """The turn of an executor."""
    flow = state.flow_of(task)
    inbox = {"task.md": _read_definition(state, task)}
    needed = [one for name in state.tasks[task].needs for one in state.metadata.replaced.get(name, (name,))]
    inherited = ((one, _find_inherited_report(state, one)) for one in needed)
    inbox |= {f"inherited/{_report_name(state, one)}": text for one, text in inherited if text}
    if flow.why and not settings.layout.is_classic:
        inbox["why-it-failed.md"] = flow.why + "\n"
    fields = {"TASK_ID": task, "ATTEMPT_NUMBER": str(flow.attempt)}
    if flow.attempt > 1 and (text := settings.report(state, task, flow.attempt - 1)):
        inbox["previous-report.md"] = text
        if not settings.has_one_tree:
            fields["PREVIOUS_BRANCH"] = f"ralph/{settings.id}/{name_task_worktree(state, task, flow.attempt - 1)}"
    if criteria := settings.compile_task_checks(state.tasks[task]):
        inbox["checks.md"] = "".join(f"- `{check.command or check.title}`\n" for check in criteria)
    key = SessionKey(SessionWork.EXECUTE, task=task, attempt=flow.attempt)
    return _request(
        settings, state, key, role="executor", documents=("report.md",), fields=fields, inbox=inbox, task=task
    )


def request_review(settings: SessionSettings, state: SessionState, task: str) -> TurnRequest:
    """The turn of a reviewer of one task."""
    flow = state.flow_of(task)
    inbox = {"task.md": _read_definition(state, task)}
    inbox |= {"report.md": settings.report(state, task, flow.attempt), **_render_checks_document(flow.check_results)}
    fields = {"MODE": "TASK_REVIEW", "TASK_ID": task, "REPORT_PATH": f"{INBOX}/report.md"}
    if settings.layout.is_classic and "reviewer" in settings.roles.foreign:
        fields["REPORT_PATH"] = _base(settings.layout.report(state.metadata.iteration, task, flow.attempt))
    if not settings.has_one_tree:
        fields["RUN_BRANCH"] = f"ralph/{settings.id}/run"
    key = SessionKey(SessionWork.REVIEW, task=task, attempt=flow.attempt)
    return _request(
        settings, state, key, role="reviewer", documents=("review.md",), fields=fields, inbox=inbox, task=task
    )


def request_session_review(settings: SessionSettings, state: SessionState) -> TurnRequest:
    """The turn of the reviewer of the session."""
    inbox = {
        "progress.md": state.progress.text,
        **_collect_reports(settings, state, state.tasks),
        **_render_checks_document(state.flow.check_results),
    }
    if to_judge := state.flow.to_judge:
        inbox[JUDGE_FILES] = render_judge_files(to_judge)
    key, fields = make_session_key(state, SessionWork.SESSION_REVIEW), {"MODE": "SESSION_REVIEW"}
    if not settings.layout.reviewer_adds_tasks:
        return _request(settings, state, key, role="reviewer", documents=("review.md",), fields=fields, inbox=inbox)
    if earlier := reviews(state):
        inbox["previous-review.md"] = state.texts[settings.layout.review(earlier[-1].number)]
    fields["ITERATION"] = str(review_number(state))
    return _request(
        settings, state, key, role="reviewer", documents=("review.md", "tasks.md"), fields=fields, inbox=inbox
    )


def request_critique(settings: SessionSettings, state: SessionState) -> TurnRequest:
    """The turn of a planner who makes tasks of what a review found missing."""
    number, cycle = state.metadata.iteration, state.metadata.critique_cycle
    inbox = {
        "review.md": state.texts.get(settings.layout.review(number), ""),
        "progress.md": state.progress.text,
        **_render_checks_document(state.flow.check_results),
    }
    inbox |= _collect_tasks(settings, state)
    fields = {"MODE": "CRITIQUE_BREAKDOWN", "CRITIQUE_CYCLE": str(cycle)}
    return _request(
        settings,
        state,
        SessionKey(SessionWork.CRITIQUE, iteration=number, cycle=cycle),
        role="planner",
        documents=("tasks/*.md",),
        fields=fields,
        inbox=inbox,
    )


def request_knowledge(settings: SessionSettings, state: SessionState) -> TurnRequest:
    """The turn of a librarian."""
    number = state.metadata.iteration
    inbox = {
        "review.md": state.texts.get(settings.layout.review(number), ""),
        **_collect_reports(settings, state, state.tasks),
    }
    for category, name in settings.layout.knowledge_in(state.texts, number):
        inbox[f"knowledge/{category}/{name}"] = state.texts[settings.layout.knowledge(number, category, name)]
    documents, fields = ("knowledge/*/*.md",), {"MODE": "EXTRACT"}
    return _request(
        settings,
        state,
        SessionKey(SessionWork.EXTRACT, iteration=number),
        role="librarian",
        documents=documents,
        fields=fields,
        inbox=inbox,
    )


def request_selection(settings: SessionSettings, state: SessionState) -> TurnRequest:
    """The turn of a librarian who selects what to keep by the words of the user."""
    number = state.metadata.iteration
    inbox = {"approval.md": state.flow.approval_message + "\n"}
    for category, name in settings.layout.knowledge_in(state.texts, number):
        inbox[f"knowledge/{category}/{name}"] = state.texts[settings.layout.knowledge(number, category, name)]
    key = SessionKey(SessionWork.SELECT, iteration=number)
    fields = {"MODE": "PROMOTE", "APPROVAL": f"{INBOX}/approval.md"}
    return _request(settings, state, key, role="librarian", documents=("knowledge/*/*.md",), fields=fields, inbox=inbox)


def request_replan(settings: SessionSettings, state: SessionState, task: str) -> TurnRequest:
    """The turn of a planner who changes a task, because the user asked for something else while it was done."""
    flow = state.flow_of(task)
    fields = {"MODE": "REBREAKDOWN", "FAILED_TASKS": task, "STEER": f"{INBOX}/steer.md"}
    inbox = {
        **_collect_tasks(settings, state),
        **_collect_reports(settings, state, (task,)),
        "progress.md": state.progress.text,
        "steer.md": _collect_user_messages(state, flow.why),
    }
    key = SessionKey(SessionWork.REPLAN, task=task, attempt=flow.attempt)
    return _request_planning_of_task(settings, state, key, fields=fields, inbox=inbox)


def request_split(settings: SessionSettings, state: SessionState, task: str) -> TurnRequest:
    """The turn of a planner who splits a task that was too large."""
    flow = state.flow_of(task)
    fields = {"MODE": "REBREAKDOWN_TASK", "TASK_ID": task, "REASON": " ".join(flow.why.split())[:300]}
    inbox = {
        **_collect_tasks(settings, state),
        "report.md": settings.report(state, task),
        "progress.md": state.progress.text,
    }
    key = SessionKey(SessionWork.SPLIT, task=task, attempt=flow.attempt)
    return _request_planning_of_task(settings, state, key, fields=fields, inbox=inbox)


def _request_planning_of_task(
    settings: SessionSettings,
    state: SessionState,
    key: SessionKey,
    *,
    fields: Mapping[str, str],
    inbox: Mapping[str, str],
) -> TurnRequest:
    """The turn of a planner who changes one task while others are in progress.

    It has a worktree of its own, because another task may be planned again at the same time.
    """
    return _request(
        settings,
        state,
        key,
        role="planner",
        documents=("tasks/*.md",),
        fields=fields,
        inbox=inbox,
        worktree=name_planning_worktree(key.task),
    )


def _request(
    settings: SessionSettings,
    state: SessionState,
    key: SessionKey,
    *,
    role: str,
    documents: tuple[str, ...],
    fields: Mapping[str, str],
    inbox: Mapping[str, str],
    task: str = "",
    worktree: str = READ_ONLY_WORKTREE,
) -> TurnRequest:
    """The turn, with what every role gets: the request, the plan, the instructions and the user's feedback.

    It runs in the worktree of its task; without a task, in `worktree`, which has what was merged.
    """
    number, layout = state.metadata.iteration, settings.layout
    mode, foreign = fields.get("MODE", ""), role in settings.roles.foreign
    inbox_texts = {**_collect_common_inbox(settings, state), **inbox}
    prompt_fields = dict(fields)
    if foreign:
        prompt_fields = {"SESSION_PATH": f"{OUTBOX}/{DRAFTS}/", **fields}
    if not layout.is_classic:
        prompt_fields["ITERATION"] = str(number)
    batches = [one for one in layout.batches_in(state.texts, number) if one in state.metadata.processed]
    copied_files = {f"feedbacks/{one}": layout.feedback(number, one).rpartition("/")[0] for one in batches}
    if batches:
        inbox_texts |= {f"feedbacks/{one}/feedbacks.md": state.texts[layout.feedback(number, one)] for one in batches}
        prompt_fields |= dict.fromkeys(_FEEDBACK.get(role, ()), f"{INBOX}/feedbacks/")
    if isinstance(layout, ClassicLayout) and key.step.startswith(UPDATE):
        copied_files = {"update": layout.update_directory(int(key.step.removeprefix(UPDATE)))}
    if settings.roles.skills:
        inbox_texts["skills.md"] = "".join(f"- {skills}\n" for skills in settings.roles.skills)
        prompt_fields["SKILLS_DIR"] = ", ".join(settings.roles.skills)
    limits = state.limits
    request = TurnRequest(
        key=str(key),
        role=role,
        prompt=Prompt(),
        answer_schema=_name_answer_schema(settings, role, mode),
        task=task,
        task_attempt=key.attempt if task else 0,
        worktree=_choose_worktree(state, task, worktree),
        inbox={name: text for name, text in inbox_texts.items() if text.strip()},
        copied_files=copied_files,
        outputs=documents,
        drafts=_collect_drafts(settings, state, task) if foreign else {},
        draft_outputs=_list_writable_drafts(settings, state, role, task) if foreign else (),
        answer_required=True,
        reads_only=role != "executor",
        wall=settings.limit_attempt(state) if task else None,
        retries=limits.max_retries,
        # An attempt at a task that runs out of time counts as failed, and after the second the task is split.
        retries_timeouts=role != "executor",
    )
    values = _form_values(settings, state, request, prompt_fields)
    return replace(request, prompt=build_session_prompt(settings, state, request, prompt_fields, values))


def _choose_worktree(state: SessionState, task: str, worktree: str) -> str:
    if state.layout.is_classic:
        return ""
    return name_task_worktree(state, task) if task else worktree


def _name_answer_schema(settings: SessionSettings, role: str, mode: str) -> str:
    if not settings.layout.is_classic:
        return _ANSWER_SCHEMAS.get(mode, f"session.{role}.{mode}")
    return f"classic.{role}" + (f".{mode}" if mode else "")


def _collect_common_inbox(settings: SessionSettings, state: SessionState) -> dict[str, str]:
    """What every role gets: the request with the updates of the user, the plan, the tasks and the instructions."""
    number, layout = state.metadata.iteration, settings.layout
    since = [without_front_matter(state.texts[path]).strip() for path in layout.updates_in(state.texts).values()]
    request = (
        "\n\n".join([settings.request.strip(), *since]) if isinstance(layout, ClassicLayout) else state.metadata.request
    )
    return {
        "request.md": request + "\n",
        "plan.md": state.texts.get(layout.plan(number)) or state.texts.get(layout.plan(max(1, number - 1)), ""),
        "tasks.md": state.texts.get(layout.task_list, "") if isinstance(layout, ClassicLayout) else "",
        "instructions.md": _find_instructions(settings, state),
    }


def _find_instructions(settings: SessionSettings, state: SessionState) -> str:
    """The instructions of the session. Those that only have the usual limits tell a role nothing."""
    layout = settings.layout
    text = without_request(state.texts.get(layout.instructions_in(state.texts), ""))
    return "" if text == build_default_instructions(settings) else text


def _form_values(
    settings: SessionSettings, state: SessionState, request: TurnRequest, fields: Mapping[str, str]
) -> dict[str, str]:
    """The values for the templates of the documents to hand over."""
    numbers = [int(found[1]) for name in state.tasks if (found := _TASK_NUMBER.match(name))]
    category = fields.get("CATEGORY", "")
    is_rework = fields.get("ATTEMPT_NUMBER", "1") != "1"
    has_feedback = any(name.startswith("feedbacks/") for name in request.inbox)
    feedback = _FEEDBACK_FORMS.get(request.role, "") if has_feedback else ""
    return {
        "iteration": str(state.metadata.iteration),
        "cycle": fields.get("CYCLE", "1"),
        "category": category,
        "file": next((name for name in request.inbox if name.startswith("questions/")), ""),
        "prefix": _PREFIXES.get(category, "Q-TECH"),
        "task": fields.get("TASK_ID", ""),
        "critique": fields.get("CRITIQUE_CYCLE", ""),
        "review": fields.get("ITERATION", ""),
        "next": str(max(numbers, default=0) + 1),
        "rework": _REWORK_FORM if is_rework else "",
        "feedback": feedback,
    }


def _collect_drafts(settings: SessionSettings, state: SessionState, task: str) -> dict[str, str]:
    """A copy of the session, for roles that edit its files themselves. Its executor finds its task in progress."""
    home = f"{settings.layout.root}/"
    copies = {
        f"{DRAFTS}/{path.removeprefix(home)}": text for path, text in state.texts.items() if path.startswith(home)
    }
    if state.flow_of(task).step is Step.EXECUTE:
        listed = state.layout.progress(state.metadata.iteration).removeprefix(home)
        note = f"Attempt {state.flow_of(task).attempt}"
        copies[f"{DRAFTS}/{listed}"] = state.progress.with_item(task, Marker.WIP, note).text
    if not settings.layout.is_classic:
        return copies
    return {f"{DRAFTS}/request.md": settings.request, **copies}


def _list_writable_drafts(
    settings: SessionSettings, state: SessionState, role: str, task: str
) -> tuple[tuple[str, str], ...]:
    """The files of the copy that a role may write, each with the document that it is handed over as."""
    number, layout = state.metadata.iteration, settings.layout
    flow = state.flow_of(task)
    if isinstance(layout, ClassicLayout):
        return _list_classic_writable_drafts(layout, state, role, task)
    drafts = {
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
    return tuple((f"{DRAFTS}/{path.removeprefix(layout.root + '/')}", name) for path, name in drafts.items())


def _list_classic_writable_drafts(
    layout: ClassicLayout, state: SessionState, role: str, task: str
) -> tuple[tuple[str, str], ...]:
    attempt = state.flow_of(task).attempt
    session_review = {layout.review(review_number(state)): "review.md", layout.task_list: "tasks.md"}
    drafts = {
        "planner": {layout.plan(1): "plan.md", layout.task_list: "tasks.md"},
        "questioner": {layout.question_list: "plan.questions.md"},
        "executor": {layout.report(1, task or "task", attempt): "report.md"},
        "reviewer": {layout.report(1, task, attempt): "review.md"} if task else session_review,
    }[role]
    return tuple((f"{DRAFTS}/{_base(path)}", name) for path, name in drafts.items())


_FEEDBACK = {
    "questioner": ("FEEDBACK_PATHS",),
    "planner": ("FEEDBACK_SOURCES",),
    "executor": ("FEEDBACK_CONTEXT",),
    "reviewer": ("FEEDBACK_CONTEXT",),
}
"""The fields of the prompt that name the feedback, by role."""


def _collect_last_iteration(settings: SessionSettings, state: SessionState) -> dict[str, str]:
    """The review, progress, tasks and reports of the iteration before, for roles that look for what is missing."""
    before = state.metadata.iteration - 1
    found = {"previous-review.md": state.texts.get(settings.layout.review(before), "")}
    found["progress.md"] = state.progress.text
    return found | _collect_tasks(settings, state) | _collect_reports(settings, state, state.tasks)


def _render_checks_document(check_results: str) -> dict[str, str]:
    return {"checks.md": f"What the engine itself saw:\n\n{check_results}\n"} if check_results else {}


def _collect_tasks(settings: SessionSettings, state: SessionState) -> dict[str, str]:
    defined = [name for name, task in state.tasks.items() if not task.is_missing]
    return {f"tasks/{name}.md": _read_definition(state, name) for name in defined}


def _collect_reports(settings: SessionSettings, state: SessionState, names: Iterable[str]) -> dict[str, str]:
    """The last report on each of these tasks."""
    found = {}
    for name in names:
        if text := settings.report(state, name):
            found[
                f"reports/{name}.md" if not settings.layout.is_classic else f"reports/{_report_name(state, name)}"
            ] = text
    return found


def _collect_user_messages(state: SessionState, why: str) -> str:
    """Why a task is planned again, and everything that the user said while the session was in progress."""
    return f"{why}\n\n{state.texts.get(state.layout.notes, '')}".strip() + "\n"


def _find_inherited_report(state: SessionState, task: str) -> str:
    """The report on a task for tasks that depend on it: the latest that was qualified, else the latest."""
    known = state.reports(task)
    good = [attempt for attempt, report in known.items() if report.verdict is ReviewVerdict.QUALIFIED]
    paths = state.layout.reports_in(state.texts, state.metadata.iteration, task)
    return state.texts[paths[max(good or known)]] if known else ""


def _report_name(state: SessionState, task: str) -> str:
    return _base(state.layout.report(state.metadata.iteration, task, 1))


def _read_definition(state: SessionState, task: str) -> str:
    return state.layout.definition(state.texts, state.metadata.iteration, task)


def _base(path: str) -> str:
    return path.rpartition("/")[2]


def _collect_questions(settings: SessionSettings, state: SessionState, names: tuple[str, ...]) -> dict[str, str]:
    paths = {name: settings.layout.questions(state.metadata.iteration, name) for name in names}
    return {f"questions/{name}.md": state.texts[path] for name, path in paths.items() if path in state.texts}
