"""`tasks.md`: all tasks of a classic session, as bullets, numbered lines or headings, with their fields below them."""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from textwrap import dedent

from ralph.documents.session.markdown import Page, Section, bare, one_line, parse_bullets
from ralph.documents.session.tasks import (
    ID,
    NONE,
    STATUS,
    TYPES,
    Task,
    find_order_faults,
    is_outside,
    is_planning,
    normalize_id,
    parse_ids,
)

_ENTRY = re.compile(
    rf"(\s*)(?:[-*+]|\d{{1,4}}[.)])\s+(?:\[.?\]\s*)?[*_`]*({ID})[*_`]*\s*(?:[:—–-]+[*_`]*\s*(.*)|(\(.*)|)",
    re.IGNORECASE,
)
_HEADING = re.compile(rf"[*_`]*({ID})[*_`]*\s*(?:[:—–-]+\s*(.*)|(\(.*)|)", re.IGNORECASE)
_BARE = re.compile(r"(\d{1,4})[.)]\s+(?:\[.?\]\s*)?(\S.*)")
_FIELD = re.compile(
    r"\s*(?:[-*+]\s+)?[*_`]*(type|files?|target files|objective|description|success criteria|acceptance criteria"
    r"|inherits?(?: from)?|depends on|dependencies|notes?)[*_`]*\s*:[*_`]*\s*(.*)",
    re.IGNORECASE,
)
_NO_TASKS = re.compile(r"legend|dependency graph|parallel groups.*|knowledge inheritance.*|current wave.*|notes?")
_DEPENDS = re.compile(r"\(?\s*depends on:?\s*([^)]*)\)?", re.IGNORECASE)
_RULE = re.compile(
    r"(.+?)\s*(?:\binherits?\b(?:\s+\w+)?\s*\bfrom\b|\binherits?\b:?|<-|←|⇐|:|->|→)\s*(.+)", re.IGNORECASE
)
_GRAPH = re.compile(rf"\s*(?:[-*+]\s+)?[*`]*({ID})[*`]*\s*:\s*\[(.*?)\].*", re.IGNORECASE)
_EARLIER = re.compile(r"\ball\b.*\b(?:previous|prior|earlier|preceding|above)\b", re.IGNORECASE)
_PARTS = re.compile(r"(?:`[^`]*`|[^;`])+")
_PATH = re.compile(r"`([^`]+)`|([^,`]+)")
PLANNING = {
    "plan-init": "Write the plan",
    "plan-brainstorm": "Find the questions that decide whether the plan holds",
    "plan-research": "Answer them from evidence",
    "plan-breakdown": "Break the plan down into tasks",
}
"""The planning steps, as a new session lists them."""
_NEEDS = {"inherits from", "inherit from", "inherits", "inherit", "depends on", "dependencies"}
"""The fields that name what a task builds on."""
IMPLEMENTATION = "## Implementation Tasks"


@dataclass(frozen=True)
class _Entry:
    id: str
    title: str
    start: int
    end: int
    level: int = 0
    """That of the heading; 0 for a line of a list."""


def parse_task_list(text: str) -> dict[str, Task]:
    """The tasks in a file by id, in its order, planning steps too; of two definitions, the last that says something counts."""
    page = Page(text)
    found: dict[str, Task] = {}
    for entry in _find_entries(page):
        earlier = tuple(one for one in found if not is_planning(one) and one != entry.id)
        found[entry.id] = _build_task(entry, page.lines[entry.start + 1 : entry.end], earlier)
    for section in page.sections:
        if section.name == "dependency graph":
            _read_graph(found, section)
        elif section.name.startswith("knowledge inheritance"):
            _read_inheritance(found, section)
    return found


def find_definition(text: str, id: str) -> str:
    """The lines that define a task, as they were written; empty if it is not defined."""
    page = Page(text)
    found = next((entry for entry in _find_entries(page) if entry.id == id), None)
    return "\n".join(page.lines[found.start : found.end]).strip("\n") + "\n" if found else ""


def render_new_task_list() -> str:
    """The file as a session begins: the planning steps, and room for the tasks."""
    legend = "\n".join(f"- `[{mark}]` {word}" for mark, word in ((" ", "Not Started"), ("/", "In Progress")))
    legend += "\n- `[P]` Review Pending\n- `[x]` Completed\n- `[F]` Failed"
    planning = "\n".join(f"- {id}: {title}" for id, title in PLANNING.items())
    return f"# Tasks\n\n## Legend\n{legend}\n\n## Planning Tasks\n{planning}\n\n{IMPLEMENTATION}\n"


def render_task_list_entry(task: Task) -> str:
    """The lines that define a task."""
    kind = task.type
    if task.depends_on:
        kind = f"{task.type} (depends on {', '.join(task.depends_on)})"
    lines = [
        f"- {task.id}: {one_line(task.title)}",
        f"    - **Type**: {kind}",
        f"    - **Files**: {', '.join(task.files) or 'None'}",
        f"    - **Objective**: {one_line(task.objective) or one_line(task.title)}",
        f"    - **Success Criteria**:{'' if task.criteria else ' '}",
    ]
    lines += [f"        - {one_line(criterion)}" for criterion in task.criteria]
    lines.append(f"    - **Inherits From**: {', '.join(task.inherits) or 'None'}")
    return "\n".join(lines) + "\n"


def merge_tasks(text: str, handed: str, may_change: Collection[str]) -> str:
    """The file with the tasks of another text: new ones are put in, and of those that are there only these are changed.

    Sections that it has not yet come along; everything else stays as it is.
    """
    given = Page(handed)
    wanted = {
        entry.id: given.lines[entry.start : entry.end] for entry in _find_entries(given) if not is_planning(entry.id)
    }
    for id, lines in wanted.items():
        page = Page(text)
        known = {entry.id: entry for entry in _find_entries(page)}
        if id not in known:
            text = _append_definition(page, _trim_lines(lines))
        elif id in may_change:
            old = known[id]
            end = old.start + len(_trim_lines(page.lines[old.start : old.end]))
            new = _as_heading(old.level, _trim_lines(lines))
            text = page.replace_lines(old.start, end, new if new[0] else new[1:])
    has = {section.name for section in Page(text).sections}
    for section in given.sections:
        if section.level == 2 and section.name not in has and _NO_TASKS.fullmatch(section.name):
            text = Page(text).append_lines(_trim_lines(given.lines[section.start : section.end]))
    return text


def find_task_list_problems(text: str, known: Collection[str] = ()) -> list[str]:
    """What is wrong with new tasks, one sentence each. `known` are the tasks that exist already."""
    page = Page(text)
    work = {id: task for id, task in parse_task_list(text).items() if not is_planning(id)}
    found = [] if work else ["line 1: there is no task; a task begins with `- task-1: What to do`"]
    for entry in _find_entries(page):
        if entry.id in work:
            told = _read_fields(page.lines[entry.start + 1 : entry.end])
            found += [f"{entry.id}: {problem}" for problem in _task_problems(work[entry.id], told.keys())]
    needs = {id: [one for one in task.needs if one != id] for id, task in work.items()}
    return found + find_order_faults({**dict.fromkeys(known, ()), **needs})


def _task_problems(task: Task, told: Collection[str]) -> list[str]:
    found = []
    if not task.criteria:
        found.append("it has no success criteria")
    if not task.files and not {"files", "file", "target files"}.intersection(told):
        found.append("the field `**Files**` is missing; name the files that it changes, or `None`")
    if not task.needs and not _NEEDS.intersection(told):
        found.append("the field `**Inherits From**` is missing; name the tasks that it builds on, or `None`")
    if task.id in task.needs:
        found.append("it inherits from itself")
    found += [f"{file} is not a path inside the project" for file in task.files if is_outside(file)]
    return found


@dataclass(frozen=True)
class _Start:
    """The line with which the definition of a task begins."""

    index: int
    id: str
    title: str
    level: int = 0
    """That of the heading; 0 for a line of a list."""
    indent: int = 0
    end: int = 0
    """Where the section of a heading ends."""


def _find_entries(page: Page) -> list[_Entry]:
    """The definitions with their lines: up to the next one, or to the next heading."""
    starts = _find_starts(page)
    ends = [start.index for start in starts[1:]] + [len(page.lines)]
    found: dict[str, _Entry] = {}
    for start, next_start in zip(starts, ends, strict=False):
        title = "" if STATUS.fullmatch(start.title.strip("()* ")) else start.title
        end = min(start.end or _find_end(page, start.index, start.indent), next_start)
        is_empty = not "".join(page.lines[start.index + 1 : end]).strip()
        if start.id not in found or not is_empty:
            found.pop(start.id, None)
            found[start.id] = _Entry(id=start.id, title=bare(title), start=start.index, end=end, level=start.level)
    return list(found.values())


def _find_starts(page: Page) -> list[_Start]:
    """Where the definitions of tasks begin. If the list has no ids, its numbers are the ids."""
    sections = {section.start: section for section in page.sections}
    named: list[_Start] = []
    numbered: list[_Start] = []
    is_skipped = False
    for index, line in enumerate(page.prose):
        if section := sections.get(index):
            is_skipped = bool(_NO_TASKS.fullmatch(section.name))
            match = _HEADING.fullmatch(section.title) if section.level > 1 else None
            if match and not is_skipped:
                title = match[2] or match[3] or ""
                named.append(_Start(index, normalize_id(match[1]), title, level=section.level, end=section.end))
        elif is_skipped:
            continue
        elif match := _ENTRY.fullmatch(line):
            named.append(_Start(index, normalize_id(match[2]), match[3] or match[4] or "", indent=len(match[1])))
        elif match := _BARE.fullmatch(line):
            numbered.append(_Start(index, f"task-{int(match[1])}", match[2]))
    return _leave_out_inner(named) or numbered


def _leave_out_inner(starts: list[_Start]) -> list[_Start]:
    """The starts without lines that stand inside another definition, as the names in a list of it do."""
    least = min((start.indent for start in starts if not start.level), default=0)
    sections = [range(start.index + 1, start.end) for start in starts if start.level]
    kept: list[_Start] = []
    for start in starts:
        is_inner = start.indent > least or any(start.index in section for section in sections)
        if start.level or not is_inner:
            kept.append(start)
    return kept


def _find_end(page: Page, start: int, indent: int) -> int:
    """Where the lines of an item of a list end: at a heading, or at a paragraph that is not below it."""
    heads = {section.start for section in page.sections}
    for index in range(start + 1, len(page.lines)):
        line = page.lines[index]
        is_apart = not page.lines[index - 1].strip() and len(line) - len(line.lstrip()) <= indent
        if index in heads or (page.prose[index].strip() and is_apart):
            return index
    return len(page.lines)


def _build_task(entry: _Entry, lines: list[str], earlier: tuple[str, ...]) -> Task:
    said = _read_fields(lines)

    def of(*names: str) -> list[str]:
        return next((said[name] for name in names if name in said), [])

    kind = " ".join(of("type"))
    inherits = " ".join(of("inherits from", "inherit from", "inherits", "inherit"))
    depends = [
        *parse_ids(match[1] if (match := _DEPENDS.search(kind)) else ""),
        *parse_ids(" ".join(of("depends on", "dependencies"))),
    ]
    depends += parse_ids(match[1]) if (match := _DEPENDS.search(entry.title)) else ()
    objective = "\n".join(line.strip() for line in of("objective", "description"))
    criteria = tuple(_split_items(of("success criteria", "acceptance criteria")))
    return Task(
        id=entry.id,
        title=entry.title,
        type=TYPES[1] if kind.strip(" *`").casefold().startswith("parallel") else TYPES[0],
        files=tuple(_find_files(of("files", "file", "target files"))),
        objective=objective,
        criteria=criteria,
        inherits=earlier if _EARLIER.search(inherits) else parse_ids(inherits),
        depends_on=tuple(dict.fromkeys(depends)),
        is_missing=not (entry.title or objective or criteria),
    )


def _read_fields(lines: list[str]) -> dict[str, list[str]]:
    """The lines of each field, by its name in small letters; what has no name is the objective."""
    said: dict[str, list[str]] = {}
    key = "objective"
    for line in lines:
        if match := _FIELD.fullmatch(line):
            key = match[1].casefold()
            said[key] = [match[2]] if match[2].strip() else []
        elif line.strip():
            said.setdefault(key, []).append(line)
    return said


def _split_items(lines: list[str]) -> Iterator[str]:
    """The items of a field: its bullets, or what stands on its line between semicolons."""
    items = [one.whole for one in parse_bullets(lines)] or [
        part.strip() for line in lines for part in _PARTS.findall(line)
    ]
    yield from (item for item in items if not NONE.fullmatch(item))


def _find_files(lines: list[str]) -> Iterator[str]:
    for item in [one.text for one in parse_bullets(lines)] or lines:
        for quoted, plain in _PATH.findall(item):
            path = quoted or bare(re.split(r"(?:^|\s+)[(—–#-]|:(?:\s|$)", plain.strip("[] "))[0])
            if not NONE.fullmatch(path.strip()):
                yield path.strip().removeprefix("./")


def _read_graph(found: dict[str, Task], section: Section) -> None:
    """The dependencies of a graph of `task-2: [task-1]` lines."""
    for line in section.lines:
        match = _GRAPH.fullmatch(line)
        if match and (task := found.get(normalize_id(match[1]))):
            more = tuple(dict.fromkeys((*task.depends_on, *parse_ids(match[2]))))
            found[task.id] = replace(task, depends_on=more)


def _read_inheritance(found: dict[str, Task], section: Section) -> None:
    """The rules of inheritance: `task-4 to 8 inherit from task-2, 3`."""
    for bullet in parse_bullets(section.lines):
        match = _RULE.fullmatch(bullet.text)
        if match is None:
            continue
        sources = parse_ids(match[2])
        for id in parse_ids(match[1]):
            if task := found.get(id):
                inherits = [one for one in (*task.inherits, *sources) if one != id]
                found[id] = replace(task, inherits=tuple(dict.fromkeys(inherits)))


def _append_definition(page: Page, lines: list[str]) -> str:
    """The text with a definition behind the last of its kind, in the form of that."""
    if page.open_fence:
        page = Page(page.replace_lines(len(page.lines), len(page.lines), [page.open_fence]))
    work = [entry for entry in _find_entries(page) if not is_planning(entry.id)]
    if work:
        last = max(work, key=lambda entry: entry.end)
        at = last.start + len(_trim_lines(page.lines[last.start : last.end]))
        return page.replace_lines(at, at, _as_heading(last.level, lines))
    section = page.section("implementation tasks")
    if section:
        return page.replace_lines(section.start + 1, section.start + 1, lines)
    return page.append_lines([IMPLEMENTATION, *lines])


def _as_heading(level: int, lines: list[str]) -> list[str]:
    """A definition below a heading, if the others have one: a line of a list would be taken for a part of theirs."""
    match = _ENTRY.fullmatch(lines[0]) if level else None
    if match is None:
        return ["", *lines] if level else lines
    below = dedent("\n".join(lines[1:])).split("\n")
    return ["", f"{'#' * level} {normalize_id(match[2])}: {match[3] or match[4] or ''}".rstrip(": "), *below]


def _trim_lines(lines: list[str]) -> list[str]:
    while lines and not lines[-1].strip():
        lines = lines[:-1]
    return lines
