"""The prompts of a session: what the agent is, where it works, what it has, and what it hands over.

The words are data: `prompts/roles/` has a text for each role with a section for each mode, and the documents to hand over as
filled-in examples (`forms.md`, `classic-forms.md`). A prompt is whole by itself: it names everything that the agent needs.
"""

from collections.abc import Iterable, Iterator, Mapping

from ralph.core.prompt import Place, Prompt, PromptPart, build_prompt, fill_template, name_program
from ralph.core.turns import INBOX, OUTBOX, TurnRequest
from ralph.documents import answers
from ralph.documents.session.answers import JUDGE_FILES
from ralph.workflows.session.state import SessionSettings, SessionState

REQUEST_BUDGET = 1500
"""Tokens of the user's request in a prompt; all of it is in the inbox."""
WHY_BUDGET = 600
"""Tokens of the reason for which the previous attempt failed."""
TURN = "# This turn"
"""The heading of the fields of a turn."""
_MAX_NAMES = 20
_READS_REQUEST = ("planner", "questioner")
_GETS_CHECKS = ("planner", "questioner", "executor", "reviewer", "librarian")
_OWN_TREE = (
    "This directory is a copy of the project for your task alone, with all work of this session that has been merged so far."
    " Others work on other tasks at the same time, each in a copy of their own."
)
_USERS_TREE = "You work in the user's own tree, one turn after another: the next turn finds what you leave."
_DISCARDS = (
    f"You may run builds and tests: the engine discards what they leave here. It keeps only what is in `{OUTBOX}`."
)
_READS_COPY = (
    f"This directory is a copy of the project with all work of this session that has been merged so far. {_DISCARDS}"
)
_READS_TASK_TREE = f"This directory is the tree of the task. {_DISCARDS}"
_READS_USERS_TREE = (
    f"This directory is the user's own tree. Change and add no file outside `{OUTBOX}`. You may run builds and tests. Before you"
    " stop, remove the new files that they left, unless git ignores them, each by its name. Never use `git clean`, `checkout`,"
    " `restore`, `reset` or `stash`: they destroy the user's changes."
)
_FOREIGN_INBOX = (
    "SESSION_PATH is a copy of the session for this turn. The engine takes your own documents from there when you are done;"
    f" it alone decides about markers and metadata. `{INBOX}` holds what else you may need:"
)
_FILES = {
    "request.md": "what the user asked for",
    "plan.md": "the plan of this session",
    "tasks.md": "all tasks, with their definitions",
    "instructions.md": "rules for everyone in this session; follow them",
    "task.md": "the definition of the task",
    "report.md": "the report on the task, by its executor",
    "why-it-failed.md": "why the previous attempt failed",
    "previous-report.md": "the report on the previous attempt, with its review at the end",
    "previous-review.md": "the previous review of the whole session",
    "progress.md": "the state of every step and task",
    "review.md": "the review of the whole session",
    "delta.md": "what changed in the plan, and why",
    "plan.questions.md": "questions so far, with their answers",
    "update.md": "what the user asks for now",
    "steer.md": "what the user asked for while the task was in progress, with everything that the user said in this session",
    "approval.md": "what the user said when approving the result",
    "skills.md": "directories with skills that you may use",
    "inherited/": "reports on the tasks that yours builds on; keep to the interfaces and names that they established",
    "reports/": "the latest report on each task, with its review",
    "tasks/": "the definitions of the tasks that exist",
    "questions/": "questions so far, by category, with their answers",
    "feedbacks/": "what the user said about the previous result, with the files that belong to it",
    "update/": "files that belong to the update",
    "knowledge/": "what this session has written down so far",
    "checks.md": "what the engine saw when it ran the checks; what failed there counts as failed",
    JUDGE_FILES: "the tests and settings that the session changed, and how to judge each of them",
}
"""What is in the files of an inbox, in half a sentence."""
_FILES_OF_ROLES = {
    ("executor", "checks.md"): "the commands among your success criteria; the engine runs them when you are done",
    ("reviewer", "checks.md"): "what the engine saw when it ran the commands; what failed there does not hold",
    ("reviewer", "previous-review.md"): (
        "the previous review of the whole session; check whether each of its gaps is closed"
    ),
}
"""What is in a file of the inbox, if it means something else to a role."""
_READ_REPORT = f"Read `{INBOX}/previous-report.md` before you start. Do not repeat what did not work."
_STILL_THERE = "What the previous attempt changed is still in the files."
_CATEGORIES = {
    "technical": "how the code works now, and whether the approach of the plan fits it",
    "requirements": "what exactly the user wants, and for which cases",
    "constraints": "what must not change: interfaces, versions, formats, performance",
    "assumptions": "what the plan takes for granted without evidence",
    "risks": "what could go wrong, how likely it is, and how to notice it",
}
"""What the questions of a category are about."""


def build_session_prompt(
    settings: SessionSettings,
    state: SessionState,
    request: TurnRequest,
    fields: Mapping[str, str],
    form_values: Mapping[str, str],
) -> Prompt:
    """The whole prompt of a turn, without the messages of the user."""
    mode = fields.get("MODE", "")
    task = request.inbox.get("task.md", "") if request.role == "executor" else ""
    inbox = _describe_inbox(request, _FOREIGN_INBOX if request.role in settings.roles.foreign else f"`{INBOX}` holds:")
    answer = _describe_answer(settings, request, mode, form_values)
    # What is the same for every turn of a role comes first.
    parts = _list_lasting_parts(settings, state, request, fields)
    parts += [
        PromptPart("keys", _describe_turn(fields), "What this turn is for, and where things are.", heading=TURN),
        PromptPart("task", task, "The task.", heading="# Your task", is_quoted=True),
        *_describe_previous_attempt(settings, state, request, fields),
        PromptPart("inbox", inbox, "Files to read.", heading="# Your inbox"),
        PromptPart("answer", answer, "What to hand over.", Place.ANSWER, heading="# What to hand over"),
    ]
    return build_prompt(parts)


def _list_lasting_parts(
    settings: SessionSettings, state: SessionState, request: TurnRequest, fields: Mapping[str, str]
) -> list[PromptPart]:
    """The parts that hold for every turn of a role in a mode. A prompt begins with the role: it says who is addressed."""
    role, mode = request.role, fields.get("MODE", "")
    wants_request = role in _READS_REQUEST or mode == "SESSION_REVIEW"
    reads_request = wants_request and role not in settings.roles.foreign
    user_request = PromptPart(
        "request",
        request.inbox.get("request.md", "") if reads_request else "",
        "What the user asked for.",
        Place.RUN,
        budget=REQUEST_BUDGET,
        heading="# The user's request",
        source=f"{INBOX}/request.md",
        is_quoted=True,
    )
    workspace = _describe_workspace(settings, state, request, fields)
    purpose = "What it may change, and what becomes of it."
    checks = _describe_checks(settings, state, role)
    knowledge, title = _describe_knowledge(settings, role), "What earlier sessions learned"
    return [
        PromptPart("role", _select_role_text(settings, request, mode), "What the role does in this mode.", Place.RUN),
        PromptPart("workspace", workspace, purpose, Place.RUN, heading="# Where you work"),
        user_request,
        PromptPart("checks", checks, "What must pass.", Place.RUN, heading="# Checks"),
        PromptPart("knowledge", knowledge, f"{title}.", Place.RUN, heading=f"# {title}"),
    ]


def _describe_answer(settings: SessionSettings, request: TurnRequest, mode: str, form_values: Mapping[str, str]) -> str:
    """What to hand over: the form of the role and mode, and what its fields may be."""
    if request.role in settings.roles.foreign:
        answer = f"`{OUTBOX}/result.json`, for example `{answers.render_example(request.answer_schema)}`\n"
    else:
        form = fill_template("forms", _select_form(settings, request, mode), form_values).rstrip()
        answer = (
            f"Write these files to `{OUTBOX}`, then stop. The contents are examples: keep the headings and the names of"
            f" fields, and replace the example text with your own.\n\n{form}\n"
        )
    return f"{answer}\n{_describe_values(request.answer_schema)}"


def _select_role_text(settings: SessionSettings, request: TurnRequest, mode: str) -> str:
    """The text of a role for its mode; the classic layout may have its own, and so may a change that the user asked for."""
    roles, role = settings.roles, request.role
    if role in roles.foreign:
        return roles.whole(role)
    if "steer.md" in request.inbox:
        own = roles.section(role, f"{mode} after a STEER")
    else:
        other = roles.section("classic", f"{role} {mode}".strip()) if settings.layout.is_classic else ""
        own = other.replace(f"## {role} {mode}", f"## {mode}", 1) or roles.section(role, mode)
    return "\n\n".join(part for part in (roles.opening(role), own) if part)


def _select_form(settings: SessionSettings, request: TurnRequest, mode: str) -> str:
    """The documents to hand over. A document that exists already is continued, if there is a form for that."""
    name = "classic-forms" if settings.layout.is_classic else "forms"
    title = f"{request.role} {mode}".strip()
    continues = any(document in request.inbox for document in request.outputs)
    form = settings.roles.section(name, f"{title} again") if continues else ""
    return (form or settings.roles.section(name, title)).partition("\n")[2]


def _describe_workspace(
    settings: SessionSettings, state: SessionState, request: TurnRequest, fields: Mapping[str, str]
) -> str:
    """Where a turn works, and what becomes of what it changes."""
    has_one_tree = settings.has_one_tree
    if request.role == "executor":
        return _USERS_TREE if has_one_tree else _OWN_TREE
    diff = f"`{name_program('ralph diff')} {settings.id}` shows what the session has changed so far."
    if has_one_tree:
        return f"{_READS_USERS_TREE} {diff}" if request.role == "reviewer" else _READS_USERS_TREE
    if fields.get("MODE") == "SESSION_REVIEW":
        return f"{_READS_COPY} {diff}"
    if not request.task:
        return _READS_COPY
    return f"{_READS_TASK_TREE} `git diff {fields['RUN_BRANCH']}...HEAD` shows what the task changed."


def _describe_turn(fields: Mapping[str, str]) -> str:
    """The fields of a turn, and what the questions of its category are about."""
    block = "\n".join(f"{name}: {value}" for name, value in fields.items())
    category = fields.get("CATEGORY", "")
    about = _CATEGORIES.get(category, "")
    return f"{block}\n\nThe category `{category}` is about {about}." if about else block


def _describe_previous_attempt(
    settings: SessionSettings, state: SessionState, request: TurnRequest, fields: Mapping[str, str]
) -> Iterator[PromptPart]:
    """Why the previous attempt failed and where its work is, for the executor of the next one."""
    if request.role != "executor":
        return
    has_report = "previous-report.md" in request.inbox
    source = next((name for name in ("why-it-failed.md", "previous-report.md") if name in request.inbox), "")
    yield PromptPart(
        "previous attempt",
        state.flow_of(request.task).why or ("The previous attempt failed." if has_report else ""),
        "Why the previous attempt failed.",
        budget=WHY_BUDGET,
        heading="# Why the previous attempt failed\nThe engine or the reviewer said:",
        ending=" ".join(
            filter(None, (_READ_REPORT if has_report else "", _STILL_THERE if settings.has_one_tree else ""))
        ),
        source=f"{INBOX}/{source}" if source else "",
        is_quoted=True,
    )
    branch = fields.get("PREVIOUS_BRANCH", "")
    text = (
        f"It is on the branch `{branch}`. This directory does not contain it: `git diff HEAD...{branch}` shows it, and"
        f" `git restore --source={branch} -- FILE` copies one file from it. Take over what was right and change what failed"
        " or what the review objects to. Start over only if the approach was wrong."
    )
    yield PromptPart(
        "previous work",
        text if branch else "",
        "Where the work of the previous attempt is.",
        heading="# The work of the previous attempt",
    )


def _describe_checks(settings: SessionSettings, state: SessionState, role: str) -> str:
    """What must pass in the end, and how it stood before."""
    if not settings.checks or not state.flow.has_baseline or role not in _GETS_CHECKS:
        return ""
    lines = ["The engine runs these itself. The session is complete only if all of them pass."]
    if role == "executor":
        lines.append(
            "Break none that passed before. One that failed before may still fail after your task, unless your task is to"
            " make it pass."
        )
    for check in settings.checks:
        before = "passed" if check.title in state.flow.passed_before else "failed"
        reason = state.flow.failed_before.get(check.title, "")
        why = f": {reason}" if reason else ""
        lines.append(f"- `{check.command or check.title}` ({before} before the session started{why})")
    return "\n".join(lines)


def _describe_knowledge(settings: SessionSettings, role: str) -> str:
    if not settings.knowledge or role not in ("planner", "questioner", "executor"):
        return ""
    named = ", ".join(f"`{path}`" for path in settings.knowledge[:_MAX_NAMES])
    more = len(settings.knowledge) - _MAX_NAMES
    return f"Read what concerns your work: {named}" + (f", and {more} more in `.docs/`." if more > 0 else ".")


def _describe_inbox(request: TurnRequest, opening: str) -> str:
    """The files of the inbox, each with half a sentence; those of a directory in one line."""
    lines = [opening]
    for name, inside in _group_names((*request.inbox, *(f"{name}/" for name in request.copied_files))).items():
        text = _FILES_OF_ROLES.get((request.role, name)) or _FILES.get(name, "")
        if len(inside) > 1:
            text += f" ({', '.join(inside[:_MAX_NAMES])}{', ...' if len(inside) > _MAX_NAMES else ''})"
        lines.append(f"- `{name}`: {text}" if text else f"- `{name}`")
    if request.answer_schema:
        lines.append("- `result.schema.json`: the fields of `result.json`, your answer")
    return "\n".join(lines)


def _group_names(names: Iterable[str]) -> dict[str, list[str]]:
    """Files by name; the files of a directory below its name."""
    found: dict[str, list[str]] = {}
    for name in names:
        first, slash, rest = name.partition("/")
        inside = found.setdefault(first + slash, [])
        if rest.strip("/") and rest.endswith(".md"):
            inside.append(rest)
    return found


def _describe_values(schema: str) -> str:
    """What the fields of an answer may be, and what to answer if the work cannot be done."""
    choices = answers.list_choices(schema)
    fields = ", ".join(f"`{name}` is {' | '.join(values)}" for name, values in choices.items())
    return (
        f"In `result.json` {fields}; `{INBOX}/result.schema.json` has every field. If you cannot do what is asked here,"
        " write only `result.json`: set `status` to `blocked`, and list in `blockers` what is missing. Set it to `paused` only"
        " if a message from the user asks you to pause."
    )
