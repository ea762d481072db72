"""`tasks/<id>.md`: what is to be done, how it is known to be done, and what must be done before."""

import re
from dataclasses import dataclass
from typing import Any

from ralph.core.errors import StateError
from ralph.documents.plain_yaml import lines_of
from ralph.documents.session.markdown import Page, bare, bullets, contained, fields, name_of, one_line
from ralph.documents.session.task_names import is_planning
from ralph.documents.session.values import number_of, text_of
from ralph.documents.session.yaml_lines import CORRECT, front_matter, front_values, told

TYPES = ("Sequential", "Parallelizable")
_ID = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?")
_HEADING = re.compile(r"task[: ]\s*`?([A-Za-z0-9][\w.-]*)`?\s*(?:[:—–-]+\s*)?(.*)", re.IGNORECASE)
_REFERENCE = re.compile(r"\b(?:Q|ISS|REQ)(?:-[A-Za-z]{1,8})?-\d+\b")
NONE = re.compile(r"(?:none|n/?a|nothing|-|\[\s*\]|\[to be .*\]|tbd)?\.?", re.IGNORECASE)
_LIKE_ID = re.compile(r"\b(?:task|plan)-[\w.-]*\w")
_DEPENDENCY = re.compile(r"\s*(?:[-*+]\s+)?[*_`]*(depends[_ ]on|inherited[_ ]by)[*_`]*\s*:[*_`]*\s*(.*)", re.IGNORECASE)
_PATH = re.compile(r"`([^`]+)`|(\S+(?: \S+)*?)(?=\s+(?:[-—–(:]|#)|:?\s*$|:\s)")

_SEVERAL = re.compile(r"`?[\w./-]+`?(?:\s*,\s*`?[\w./-]+`?)+")


@dataclass(frozen=True)
class Task:
    """A task as the planner defined it."""

    id: str
    iteration: int = 1
    type: str = "Sequential"
    """`Sequential` runs alone, `Parallelizable` beside others."""
    title: str = ""
    files: tuple[str, ...] = ()
    objective: str = ""
    grounded_in: tuple[str, ...] = ()
    """The questions, issues and requirements that it comes from."""
    criteria: tuple[str, ...] = ()
    depends_on: tuple[str, ...] = ()
    notes: str = ""
    wave: int | None = None
    inherited_by: tuple[str, ...] = ()
    """The reverse of `depends_on`, for readers."""
    inherits: tuple[str, ...] = ()
    """The tasks on whose reports it builds, where a layout tells them from `depends_on`."""
    is_missing: bool = False
    """Whether `progress.md` lists the task and nothing defines it."""

    @property
    def needs(self) -> tuple[str, ...]:
        """All tasks that must be done before it; planning always is."""
        return tuple(dict.fromkeys(one for one in (*self.inherits, *self.depends_on) if not is_planning(one)))


def is_task_id(text: str) -> bool:
    """Whether a text could be the id of a task."""
    return bool(_ID.fullmatch(text)) and len(text) <= 100 and ".." not in text and not text.endswith(".lock")


def valid_task_id(text: str) -> str:
    """The id itself, or an error: an id is used in paths and branch names, so nothing else may pass."""
    if not is_task_id(text):
        raise StateError(
            f"{text[:80]!r} cannot be the id of a task",
            where="an id looks like task-3, task-3.1 or task-critique-1-2",
            todo="use letters, digits, - _ .",
        )
    return text


def parse(text: str, where: str = "") -> Task:
    """The task in a file; a StateError where it has no id, or where its front matter is not readable."""
    page = Page(text)
    front = front_matter(page, where).data
    heading, heading_title = _heading(page)
    id = text_of(front.get("id") or front.get("task_id")) or heading or where.rpartition("/")[2].removesuffix(".md")
    if not id:
        raise StateError("the task has no id", where=where, todo=CORRECT)
    kind = text_of(front.get("type") or fields(page.prose).get("type")).casefold()
    criteria = page.section("success criteria", "acceptance criteria", "criteria")
    files = page.section("files", "target files", "files to modify")
    return Task(
        id=valid_task_id(id),
        iteration=number_of(front.get("iteration")) or 1,
        type=TYPES[1] if kind.startswith("parallel") else TYPES[0],
        title=one_line(bare(page.says("title").split("\n")[0]) or text_of(front.get("title")) or heading_title),
        files=_unique(path for bullet in bullets(files.lines if files else ()) for path in _paths(bullet.text)),
        objective=page.says("objective", "description"),
        grounded_in=_unique(_REFERENCE.findall(page.says("grounded in", "grounding"))),
        criteria=tuple(
            one.whole for one in bullets(criteria.lines if criteria else ()) if not NONE.fullmatch(one.text)
        ),
        depends_on=_dependencies(page, front, "depends_on"),
        notes=page.says("notes"),
        wave=number_of(front.get("wave")),
        inherited_by=_dependencies(page, front, "inherited_by"),
    )


def render(task: Task, created_at: str, updated_at: str = "") -> str:
    """The file's text."""
    front: dict[str, Any] = {"id": task.id, "iteration": task.iteration}
    front |= {} if task.wave is None else {"wave": task.wave}
    front |= {"type": task.type, "created_at": created_at, "updated_at": updated_at or created_at}
    parts = {
        "Title": one_line(task.title),
        "Files": "\n".join(f"- `{one_line(file)}`" for file in task.files) or "- None",
        "Objective": contained(task.objective),
        "Grounded In": "\n".join(f"- {one}" for one in task.grounded_in),
        "Success Criteria": "\n".join("- [ ] " + _indented(one) for one in task.criteria),
        "Dependencies": f"depends_on: [{', '.join(task.depends_on)}]\ninherited_by: [{', '.join(task.inherited_by)}]",
        "Notes": contained(task.notes),
    }
    body = "".join(
        f"\n## {title}\n{text}\n" for title, text in parts.items() if text or title not in ("Grounded In", "Notes")
    )
    return f"---\n{lines_of(front)}---\n\n# Task: {task.id}\n{body}"


def problems(text: str) -> list[str]:
    """What is wrong with a task, a sentence each."""
    page = Page(text)
    try:
        task = parse(text, "")
        front = front_matter(page, "")
    except StateError as error:
        return [told(error)]
    found = []
    if not page.body:
        found.append("line 1: the front matter with `id`, `iteration` and `type` is missing")
    heading = _heading(page)[0]
    if heading and heading != task.id:
        found.append(f"line {front.line('id')}: the id is {task.id}, and the heading says {heading}")
    if front.has("iteration") and (number_of(front.get("iteration")) or 0) < 1:
        found.append(f"line {front.line('iteration')}: `iteration` must be a whole number from 1")
    if front.has("type") and text_of(front.get("type")).split(" ")[0] not in TYPES:
        found.append(
            f"line {front.line('type')}: `type` must be {' or '.join(TYPES)}, and is {text_of(front.get('type'))[:40]}"
        )
    for name, value in (("Title", task.title), ("Objective", task.objective), ("Success Criteria", task.criteria)):
        if not value:
            found.append(f"line {_line(page, name)}: the section `## {name}` says nothing")
    for file in task.files:
        if is_outside(file):
            found.append(f"line {_line(page, 'Files')}: {file[:120]} is no path inside the project")
    if task.id in task.depends_on:
        found.append(f"line {_line(page, 'Dependencies')}: the task depends on itself")
    return found


def is_outside(path: str) -> bool:
    """Whether a path is none inside the project."""
    return path.startswith(("/", "~")) or ".." in path.split("/") or "\\" in path


def iteration_of(text: str) -> int:
    """The iteration in which a task was last defined; 1 where it does not tell."""
    return number_of(front_values(Page(text)).get("iteration")) or 1


def _heading(page: Page) -> tuple[str, str]:
    """The id and the title in `# Task: <id>`."""
    for section in page.sections:
        if section.level == 1 and (match := _HEADING.fullmatch(bare(section.title))):
            return match[1].rstrip(".-"), match[2]
    return "", ""


def _line(page: Page, title: str) -> int:
    section = page.section(name_of(title))
    return section.start + 1 if section else 1


def _dependencies(page: Page, front: dict[str, Any], key: str) -> tuple[str, ...]:
    """The ids behind a key, in the front matter and in the body."""
    value = front.get(key)
    said = [text_of(one) for one in value] if isinstance(value, list) else [text_of(value)]
    lines = page.prose
    for index, line in enumerate(lines):
        match = _DEPENDENCY.fullmatch(line)
        if match and match[1].casefold().replace(" ", "_") == key:
            said.append(match[2].partition(" #")[0])
            if not said[-1].strip():
                below = lines[index + 1 :]
                end = next(
                    (i for i, one in enumerate(below) if not one.strip() or _DEPENDENCY.fullmatch(one)), len(below)
                )
                said += [bullet.text for bullet in bullets(below[:end])]
    return _unique(id for one in said for id in _ids(one))


def _ids(text: str) -> list[str]:
    found = []
    for part in text.strip().strip("[]").split(","):
        word = part.strip().strip("\"'`*[] ")
        if _ID.fullmatch(word) and not NONE.fullmatch(word):
            found.append(word)
        else:
            found += _LIKE_ID.findall(word)
    return found


def _paths(text: str) -> list[str]:
    """The files that a bullet names, without what is said of them."""
    parts = text.split(",") if _SEVERAL.fullmatch(text) else [text]
    found = (_PATH.match(part.strip()) for part in parts if not NONE.fullmatch(part.strip()))
    return [(match[1] or match[2]).strip().removeprefix("./") for match in found if match]


def _indented(text: str) -> str:
    first, *rest = contained(text).split("\n")
    return "\n".join([first, *(f"  {line}" if line else "" for line in rest)])


def _unique(words: Any) -> tuple[str, ...]:
    return tuple(dict.fromkeys(word for word in words if word))
