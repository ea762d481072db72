"""`tasks/<id>.md`: what is to be done, how it is known to be done, what must be done before; ids and order of tasks."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter
from typing import Any

from ralph.core.errors import StateError, UsageError
from ralph.documents.session.markdown import Page, bare, contain_markdown, fields, name_of, one_line, parse_bullets
from ralph.documents.session.values import (
    CORRECT,
    describe_fault,
    number_of,
    read_front_matter,
    read_front_values,
    read_text,
)
from ralph.documents.yaml_codec import YamlDocument, dump

ID = r"(?:(?:plan|qa|task)-[A-Za-z0-9](?:[\w.-]*\w)?|tasks?\s+#?\d+(?:\.\d+)*)"
"""What an id looks like, in either case."""
STATUS = re.compile(
    r"not[ -]started|pending review|review[ -]pending|in[ -]progress|completed?|done|failed|cancelled|todo|attempt \d+",
    re.IGNORECASE,
)
"""The words for a marker."""
_NUMBERED = re.compile(r"tasks?[\s-]+#?(\d+(?:\.\d+)*)", re.IGNORECASE)
_LISTED = re.compile(
    rf"(?:(?P<join>,|;|&|\band\b|\bto\b|\bthrough\b|\.\.+|–|—|\s-\s)\s*)?(?P<id>{ID}|(?P<bare>\d+(?:\.\d+)*)\b)",
    re.IGNORECASE,
)
_PLURAL = re.compile(r"(tasks\s+\d+)-(\d+)", re.IGNORECASE)
_RANGE = ("to", "through", "–", "—", "-")
_ASIDE = re.compile(r"\([^)]*\)")
_MARKS = re.compile(r"[*`_]{1,2}(?=\S)|(?<=\S)[*`_]{1,2}|[\[\]]")
LONGEST_RANGE = 1000
"""The longest range that is taken for one."""


def normalize_id(text: str) -> str:
    """The id in the one form that is used inside: `Task 3` is `task-3`."""
    text = text.strip()
    match = _NUMBERED.fullmatch(text)
    return f"task-{match[1]}" if match else text


def is_planning(id: str) -> bool:
    """Whether an id is that of a planning step."""
    return id.startswith(("plan-", "qa-"))


def parse_ids(text: str) -> tuple[str, ...]:
    """The ids in a list, with ranges expanded. A bare number counts only after an id."""
    text = _PLURAL.sub(r"\1 to \2", _MARKS.sub("", _ASIDE.sub("", text)))
    found: list[str] = []
    end = -1
    for match in _LISTED.finditer(text):
        join = (match["join"] or "").strip().lower()
        follows = bool(join) and end >= 0 and not text[end : match.start()].strip()
        if match["bare"] and not follows:
            continue
        id = f"task-{match['bare']}" if match["bare"] else normalize_id(match["id"])
        is_range = follows and (join in _RANGE or join.startswith(".."))
        found += _expand_range(found[-1], id) if is_range else [id]
        end = match.end()
    return tuple(dict.fromkeys(found))


def _expand_range(first: str, last: str) -> list[str]:
    """The ids after the first up to the last, if both have whole numbers; else the last."""
    low, high = first.removeprefix("task-"), last.removeprefix("task-")
    if low.isdecimal() and high.isdecimal() and int(low) < int(high) <= int(low) + LONGEST_RANGE:
        return [f"task-{number}" for number in range(int(low) + 1, int(high) + 1)]
    return [last]


TYPES = ("Sequential", "Parallelizable")
_ID = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?")
_HEADING = re.compile(r"task[: ]\s*`?([A-Za-z0-9][\w.-]*)`?\s*(?:[:—–-]+\s*)?(.*)", re.IGNORECASE)
_REFERENCE = re.compile(r"\b(?:Q|ISS|REQ)(?:-[A-Za-z]{1,8})?-\d+\b")
NONE = re.compile(r"(?:none|n/?a|nothing|-|\[\s*\]|\[to be .*\]|tbd)?\.?", re.IGNORECASE)
_LIKE_ID = re.compile(r"\b(?:task|plan)-[\w.-]*\w")
_DEPENDENCY = re.compile(r"\s*(?:[-*+]\s+)?[*_`]*(depends[_ ]on|inherited[_ ]by)[*_`]*\s*:[*_`]*\s*(.*)", re.IGNORECASE)
_PATH = re.compile(r"`([^`]+)`|(\S+(?: \S+)*?)(?=\s+(?:[-—–(:]|#)|:?\s*$|:\s)")

_FILES = ("files", "target files", "files to modify")
"""What the section of the files is called."""
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
    """The tasks on whose reports it builds, if a layout distinguishes them from `depends_on`."""
    is_missing: bool = False
    """Whether `progress.md` lists the task and nothing defines it."""

    @property
    def needs(self) -> tuple[str, ...]:
        """All tasks that must be done before it; planning always is."""
        return tuple(dict.fromkeys(one for one in (*self.inherits, *self.depends_on) if not is_planning(one)))


def is_task_id(text: str) -> bool:
    """Whether a text could be the id of a task."""
    return bool(_ID.fullmatch(text)) and len(text) <= 100 and ".." not in text and not text.endswith(".lock")


def parse_task_id(text: str) -> str:
    """The id itself, or an error: an id is used in paths and branch names, so nothing else may pass."""
    if not is_task_id(text):
        raise StateError(
            f"{text[:80]!r} cannot be the id of a task",
            where="an id looks like task-3, task-3.1 or task-critique-1-2",
            todo="use letters, digits, - _ .",
        )
    return text


def parse_task(text: str, where: str = "") -> Task:
    """The task in a file; a StateError if it has no id, or if its front matter is not readable."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        # Bytes that are no text were read as half characters.
        raise StateError("the task is not text in UTF-8", where=where, todo=CORRECT) from error
    page = Page(text)
    front = read_front_matter(page, where).data
    heading, heading_title = _read_heading(page)
    id = read_text(front.get("id") or front.get("task_id")) or heading or where.rpartition("/")[2].removesuffix(".md")
    if not id:
        raise StateError("the task has no id", where=where, todo=CORRECT)
    kind = read_text(front.get("type") or fields(page.prose).get("type")).casefold()
    criteria = page.section("success criteria", "acceptance criteria", "criteria")
    files = page.section(*_FILES)
    return Task(
        id=parse_task_id(id),
        iteration=number_of(front.get("iteration")) or 1,
        type=TYPES[1] if kind.startswith("parallel") else TYPES[0],
        title=one_line(bare(page.says("title").split("\n")[0]) or read_text(front.get("title")) or heading_title),
        files=_unique_words(
            path for bullet in parse_bullets(files.lines if files else ()) for path in _find_paths(bullet.text)
        ),
        objective=page.says("objective", "description"),
        grounded_in=_unique_words(_REFERENCE.findall(page.says("grounded in", "grounding"))),
        criteria=tuple(
            one.whole for one in parse_bullets(criteria.lines if criteria else ()) if not NONE.fullmatch(one.text)
        ),
        depends_on=_read_dependencies(page, front, "depends_on"),
        notes=page.says("notes"),
        wave=number_of(front.get("wave")),
        inherited_by=_read_dependencies(page, front, "inherited_by"),
    )


def render_task(task: Task, created_at: str, updated_at: str = "") -> str:
    """The file's text."""
    front: dict[str, Any] = {"id": task.id, "iteration": task.iteration}
    if task.wave is not None:
        front["wave"] = task.wave
    front |= {"type": task.type, "created_at": created_at, "updated_at": updated_at or created_at}
    parts = {
        "Title": one_line(task.title),
        "Files": "\n".join(f"- `{one_line(file)}`" for file in task.files) or "- None",
        "Objective": contain_markdown(task.objective),
        "Grounded In": "\n".join(f"- {one}" for one in task.grounded_in),
        "Success Criteria": "\n".join("- [ ] " + _indent_text(one) for one in task.criteria),
        "Dependencies": f"depends_on: [{', '.join(task.depends_on)}]\ninherited_by: [{', '.join(task.inherited_by)}]",
        "Notes": contain_markdown(task.notes),
    }
    body = ""
    for title, text in parts.items():
        if text or title not in ("Grounded In", "Notes"):
            body += f"\n## {title}\n{text}\n"
    return f"---\n{dump(front)}---\n\n# Task: {task.id}\n{body}"


def find_task_problems(text: str) -> list[str]:
    """What is wrong with a task, a sentence each."""
    page = Page(text)
    try:
        task = parse_task(text, "")
        front = read_front_matter(page, "")
    except StateError as error:
        return [describe_fault(error)]
    return [*_front_problems(page, task, front), *_body_problems(page, task)]


def _front_problems(page: Page, task: Task, front: YamlDocument) -> list[str]:
    found = []
    if not page.body:
        found.append("line 1: the front matter with `id`, `iteration` and `type` is missing")
    heading = _read_heading(page)[0]
    if heading and heading != task.id:
        found.append(f"line {front.line('id')}: the id is {task.id}, and the heading says {heading}")
    if front.has("iteration") and (number_of(front.get("iteration")) or 0) < 1:
        found.append(f"line {front.line('iteration')}: `iteration` must be a whole number from 1")
    if front.has("type") and read_text(front.get("type")).split(" ")[0] not in TYPES:
        found.append(
            f"line {front.line('type')}: `type` must be {' or '.join(TYPES)}, and is {read_text(front.get('type'))[:40]}"
        )
    return found


def _body_problems(page: Page, task: Task) -> list[str]:
    found = []
    for name, value in (("Title", task.title), ("Objective", task.objective), ("Success Criteria", task.criteria)):
        if not value:
            found.append(f"line {_find_line(page, name)}: the section `## {name}` is empty")
    if not task.files and not _says_none(page.says(*_FILES)):
        found.append(
            f"line {_find_line(page, 'Files')}: the section `## Files` names no file; list the files that the task changes,"
            " or write `- None` if it changes none"
        )
    for file in task.files:
        if is_outside(file):
            found.append(f"line {_find_line(page, 'Files')}: {file[:120]} is not a path inside the project")
    if not task.depends_on and not _states_dependencies(page):
        found.append(
            f"line {_find_line(page, 'Dependencies')}: the section `## Dependencies` does not say `depends_on: [...]`;"
            " write `depends_on: []` if the task needs no other"
        )
    if task.id in task.depends_on:
        found.append(f"line {_find_line(page, 'Dependencies')}: the task depends on itself")
    return found


def _says_none(text: str) -> bool:
    """Whether a section says that there is nothing to name."""
    words = text.strip().removeprefix("- ")
    return bool(words) and bool(NONE.fullmatch(words))


def _states_dependencies(page: Page) -> bool:
    """Whether the task says what it depends on, be it nothing."""
    if "depends_on" in read_front_values(page) or _says_none(page.says("dependencies")):
        return True
    found = (_DEPENDENCY.fullmatch(line) for line in page.prose)
    return any(match and match[1].casefold().startswith("depends") for match in found)


def is_outside(path: str) -> bool:
    """Whether a path is none inside the project."""
    return path.startswith(("/", "~")) or ".." in path.split("/") or "\\" in path


def parse_iteration(text: str) -> int:
    """The iteration in which a task was last defined; 1 if it does not tell."""
    return number_of(read_front_values(Page(text)).get("iteration")) or 1


def _read_heading(page: Page) -> tuple[str, str]:
    """The id and the title in `# Task: <id>`."""
    for section in page.sections:
        if section.level == 1 and (match := _HEADING.fullmatch(bare(section.title))):
            return match[1].rstrip(".-"), match[2]
    return "", ""


def _find_line(page: Page, title: str) -> int:
    section = page.section(name_of(title))
    return section.start + 1 if section else 1


def _read_dependencies(page: Page, front: dict[str, Any], key: str) -> tuple[str, ...]:
    """The ids behind a key, in the front matter and in the body."""
    value = front.get(key)
    values = value if isinstance(value, list) else [value]
    texts = [read_text(one) for one in values]
    lines = page.prose
    for index, line in enumerate(lines):
        match = _DEPENDENCY.fullmatch(line)
        if match is None or match[1].casefold().replace(" ", "_") != key:
            continue
        text = match[2].partition(" #")[0]
        texts.append(text)
        if not text.strip():
            # The key stands alone: its ids are in the list below it.
            texts += [bullet.text for bullet in parse_bullets(_take_block(lines[index + 1 :]))]
    ids: list[str] = []
    for text in texts:
        ids += _find_ids(text)
    return _unique_words(ids)


def _take_block(lines: Sequence[str]) -> list[str]:
    """The lines up to the next empty line or the next key."""
    block: list[str] = []
    for line in lines:
        if not line.strip() or _DEPENDENCY.fullmatch(line):
            break
        block.append(line)
    return block


def _find_ids(text: str) -> list[str]:
    found = []
    for part in text.strip().strip("[]").split(","):
        word = part.strip().strip("\"'`*[] ")
        if _ID.fullmatch(word) and not NONE.fullmatch(word):
            found.append(word)
        else:
            found += _LIKE_ID.findall(word)
    return found


def _find_paths(text: str) -> list[str]:
    """The files that a bullet names, without what is said of them."""
    parts = text.split(",") if _SEVERAL.fullmatch(text) else [text]
    found = (_PATH.match(part.strip()) for part in parts if not NONE.fullmatch(part.strip()))
    return [(match[1] or match[2]).strip().removeprefix("./") for match in found if match]


def _indent_text(text: str) -> str:
    first, *rest = contain_markdown(text).split("\n")
    indented = [f"  {line}" if line else "" for line in rest]
    return "\n".join([first, *indented])


def _unique_words(words: Any) -> tuple[str, ...]:
    return tuple(dict.fromkeys(word for word in words if word))


_MAX_CYCLES = 10
"""A graph can have more cycles than anybody wants to read."""
_NUMBERS = re.compile(r"(\d+)")


def make_natural_key(name: str) -> list[tuple[int, int, str]]:
    """A key by which `task-2` comes before `task-10`."""
    key: list[tuple[int, int, str]] = []
    for part in filter(None, _NUMBERS.split(name)):
        if part.isdecimal():
            key.append((1, int(part), ""))
        else:
            key.append((0, 0, part))
    return key


@lru_cache(maxsize=16)
def compute_longest_chains(edges: tuple[tuple[str, tuple[str, ...]], ...]) -> Mapping[str, int]:
    """The length of the longest chain of tasks that starts with each task, dependents last.

    `edges` are the tasks, each with the tasks that it depends on.
    """
    above: dict[str, list[str]] = {name: [] for name, _ in edges}
    for name, needed in edges:
        for one in needed:
            above.setdefault(one, []).append(name)
    found: dict[str, int] = {}
    for name in TopologicalSorter(above).static_order():
        found[name] = 1 + max((found[one] for one in above[name]), default=0)
    return found


def order_waves(depends_on: Mapping[str, Collection[str]], where: str = "") -> list[list[str]]:
    """The tasks level by level, each after all that it depends on; in natural order within a level.

    Unknown ids and cycles are an error that names all of them.
    """
    if faults := find_order_faults(depends_on):
        raise UsageError("; ".join(faults), where=where, todo="correct the dependencies, or add what is missing")
    sorter = TopologicalSorter(depends_on)
    sorter.prepare()
    levels = []
    while sorter.is_active():
        ready = sorted(sorter.get_ready(), key=make_natural_key)
        levels.append(ready)
        sorter.done(*ready)
    return levels


def find_order_faults(depends_on: Mapping[str, Collection[str]]) -> list[str]:
    """Everything that keeps tasks from being put in order: each task with unknown ids, and each cycle."""
    faults = []
    known: dict[str, set[str]] = {}
    for name, needed in depends_on.items():
        known[name] = {one for one in needed if one in depends_on}
        if missing := sorted(set(needed) - known[name], key=make_natural_key):
            faults.append(f"{name} depends on {', '.join(missing)}, which does not exist")
    for _ in range(_MAX_CYCLES):
        if not (cycle := _find_cycle(known)):
            break
        faults.append(f"the tasks wait for each other: {' -> '.join(cycle)}")
        # Without one of its edges this cycle is gone, and the next one is found.
        known[cycle[0]].discard(cycle[1])
    return faults


def _find_cycle(depends_on: Mapping[str, Collection[str]]) -> list[str]:
    """A cycle, each task before one that it depends on; empty if there is none."""
    try:
        TopologicalSorter(depends_on).prepare()
    except CycleError as error:
        return [str(name) for name in reversed(error.args[1])]
    return []
