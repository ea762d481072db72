"""Repairs the files of a session from its other files, by rule; everything readable stays.

In the standard layout `progress.md` and `metadata.yaml`, also from what other releases wrote elsewhere; in the classic
layout `progress.md` and `tasks.md`.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ralph.core.errors import StateError
from ralph.documents.session import metadata, plan, task_list, tasks
from ralph.documents.session.layout import ClassicLayout, Layout
from ralph.documents.session.markdown import Page
from ralph.documents.session.metadata import IterationMetadata, Metadata, State, Status
from ralph.documents.session.plan import count_cycles, hash_feedback
from ralph.documents.session.progress import (
    BY_USER,
    CANCELLED,
    CLASSIC,
    DELETED,
    FINAL_MARKERS,
    MISSING,
    STANDARD,
    Marker,
    Progress,
    count_markers,
    find_progress_problems,
    implementation_title,
    parse_progress,
    planning_title,
    remove_invalid_markers,
    render_new_classic_progress,
    render_new_progress,
    repair_progress,
)
from ralph.documents.session.reports import Assessment, ReviewVerdict, parse_report, parse_review
from ralph.documents.session.stray_lines import (
    remove_conflict_marks,
    remove_stray_progress_lines,
    remove_stray_yaml_lines,
)
from ralph.documents.session.tasks import Task, is_planning
from ralph.documents.session.values import parse_timestamp, read_mapping, read_text, render_timestamp
from ralph.documents.yaml_codec import dump

_KEYS = {
    "orchestrator.state": ("orchestrator.current_state", "orchestrator_state", "current_state", "state"),
    "orchestrator.current_wave": ("current_wave",),
    "iteration": ("orchestrator.iteration", "current_iteration", "iteration"),
    "status": ("session_status", "status"),
    "created_at": ("created", "started_at", "created_at"),
    "request": ("user_request", "USER_REQUEST", "request"),
}
"""What is meant, by the keys in use; the last one that is there counts."""
_STATE_LINE = re.compile(
    r"\s*(?:[-*+]\s+)?[*_`]*(state|iteration|status)[*_`]*\s*:[*_`]*\s*[*_`\"']*([\w-]+).*", re.IGNORECASE
)
_STATES = re.compile(r"(?:.*/)?(?:state/current|iterations/\d+/state)\.ya?ml")


def read_other_dialects(layout: Layout, files: Mapping[str, str]) -> dict[str, Any]:
    """The values of the metadata that other files and keys tell, by field, as far as they can be read."""
    found: dict[str, Any] = {}
    for values in _list_sources(layout, files):
        for path, names in _KEYS.items():
            for name in names:
                if value := read_text(values.get(name)):
                    text = dump(_nest_value(path, value))
                    found |= metadata.read_valid_fields(text)
    return found


def _list_sources(layout: Layout, files: Mapping[str, str]) -> Iterator[Mapping[str, Any]]:
    """The sources of the state, the most trusted last: a section of progress.md, files of the state, and the metadata."""
    inside = sorted(path for path in files if path.startswith(f"{layout.root}/"))
    for path in inside:
        if not path.endswith("progress.md"):
            continue
        section = Page(files[path]).section("current state")
        values: dict[str, Any] = {}
        for line in section.lines if section else ():
            if match := _STATE_LINE.fullmatch(line):
                values[match[1].casefold()] = match[2]
        yield values
    states = [path for path in inside if _STATES.fullmatch(path)]
    for path in (*states, layout.metadata):
        try:
            document = read_mapping(files.get(path, ""), path)
        except StateError:
            continue
        yield {name: document.get(name) for names in _KEYS.values() for name in names if document.has(name)}


def _nest_value(path: str, value: str) -> dict[str, Any]:
    head, _, rest = path.partition(".")
    return {head: {rest: value} if rest else value}


PLANNING = ("plan-init", "plan-brainstorm", "plan-research", "plan-breakdown")
UPDATE = "plan-update-"
"""A classic session has a planning step for every update of the user: this and its number."""
REPLANNING = ("plan-rebrainstorm", "plan-reresearch", "plan-update", "plan-rebreakdown")
_BEGUN = (State.INITIALIZING, State.PLANNING, State.REPLANNING)
_COUNTS = ("total", "completed", "failed", "pending", "cancelled")
_ITERATION = re.compile(r"\(iteration (\d{1,6})\b")


@dataclass(frozen=True)
class Repaired:
    """The files of a session as they should be, and what was done to them."""

    progress: Progress
    metadata: Metadata | None = None
    """What `metadata.yaml` should say, in a layout that has it."""
    documents: Mapping[str, str] = field(default_factory=dict)
    """The files that have to be different, by path."""
    done: tuple[str, ...] = ()


def repair(
    layout: Layout,
    files: Mapping[str, str],
    at: str,
    written: Iterable[str] = (),
    request: str = "",
    *,
    created_at: str = "",
    finished: Collection[str] = (),
    removes_stray_lines: bool = False,
) -> Repaired:
    """Repair the files of a session by what its other files say; nothing is done if nothing is wrong.

    `written` are the paths that the engine wrote: a task of which nothing else is left was deleted by the user.
    `request` is what the user asked for, if that is known; else the goal of the plan stands for it. `created_at` is when
    the session began; else its id says it, in the local time of this machine. `finished` are the tasks that the engine
    finished by its journal.
    """
    files = {path: text for path, text in files.items() if text.strip()}
    if isinstance(layout, ClassicLayout):
        repaired = _repair_classic(layout, files, finished, removes_stray_lines=removes_stray_lines)
    else:
        begun = parse_timestamp(layout.session_id)
        created_at = created_at or (render_timestamp(begun) if begun else at)
        repaired = _repair_standard(
            layout,
            files,
            at,
            written,
            request,
            created_at=created_at,
            finished=finished,
            removes_stray_lines=removes_stray_lines,
        )
    changed = {path: text for path, text in repaired.documents.items() if text != files.get(path)}
    return replace(repaired, documents=changed)


def _repair_classic(
    layout: ClassicLayout, files: Mapping[str, str], finished: Collection[str], *, removes_stray_lines: bool
) -> Repaired:
    if not _is_begun(layout, files):
        return Repaired(parse_progress("", CLASSIC))
    stray: list[str] = []
    if removes_stray_lines:
        files, stray = _remove_stray_lines(layout, files, 1)
    progress, done = _repair_progress(layout, files, 1, finished)
    progress, cancelled = _confirm_cancelled_tasks(layout, files, progress, 1, ())
    documents, defined = _define_listed_tasks(layout, files, progress)
    own = {path: files[path] for path in (layout.task_list,) if path in files}
    documents = {**own, **documents, layout.progress(1): progress.text}
    return Repaired(progress=progress, documents=documents, done=(*stray, *done, *cancelled, *defined))


def _repair_standard(
    layout: Layout,
    files: Mapping[str, str],
    at: str,
    written: Iterable[str],
    request: str,
    *,
    created_at: str,
    finished: Collection[str],
    removes_stray_lines: bool,
) -> Repaired:
    files, stray = _make_metadata_readable(layout, files)
    read = {**read_other_dialects(layout, files), **metadata.read_valid_fields(files.get(layout.metadata, ""))}
    iteration = read.get("iteration") or _iteration(layout, files)
    if removes_stray_lines:
        files, found = _remove_stray_lines(layout, files, iteration, _list_planned_tasks(layout, written))
        stray += found
    progress, done = _repair_progress(layout, files, iteration, finished)
    progress, deleted = _list_deleted_tasks(progress, layout.tasks_in(written, iteration), iteration)
    split = read.get("replaced") or ()
    progress, cancelled = _confirm_cancelled_tasks(layout, files, progress, iteration, split)
    done = [*stray, *done, *deleted, *cancelled]
    rebuilt = _rebuild_metadata(layout, files, iteration, progress, at)
    rebuilt = replace(rebuilt, request=request or rebuilt.request, created_at=created_at)
    known, text = _repair_metadata(layout, files, read, rebuilt)
    if text != files.get(layout.metadata):
        done.append(f"metadata.yaml: rebuilt from the files, in iteration {known.iteration} and state {known.state}")
    elif removes_stray_lines and any(getattr(known, name) != getattr(rebuilt, name) for name in _COUNTS):
        known = replace(known, **{name: getattr(rebuilt, name) for name in _COUNTS}, updated_at=at)
        text = metadata.render_metadata(known, text)
        done.append("metadata.yaml: the numbers of tasks are those of progress.md")
    if layout.progress(iteration) not in files and known.state not in _BEGUN:
        progress = _set_row(layout, files, progress, known)
    path = layout.iteration_metadata(known.iteration)
    own = files.get(path, "")
    if own and metadata.find_iteration_problems(own):
        valid = metadata.read_valid_iteration_fields(own)
        own = metadata.render_iteration_metadata(
            replace(IterationMetadata(known.iteration, known.created_at), **{**valid, "iteration": known.iteration})
        )
        done.append(f"{path.removeprefix(layout.root + '/')}: rebuilt")
    readable = {one: files[one] for one in map(layout.iteration_metadata, layout.iterations_in(files)) if one in files}
    documents = {**readable, layout.metadata: text, layout.progress(iteration): progress.text}
    if own:
        documents[path] = own
    return Repaired(progress=progress, metadata=known, documents=documents, done=tuple(done))


def _set_row(layout: Layout, files: Mapping[str, str], progress: Progress, known: Metadata) -> Progress:
    """The rebuilt list with the current row in its table of iterations."""
    status = metadata.describe_iteration(known.state, Status(known.status))
    batches = ", ".join(layout.batches_in(files, known.iteration)) or "N/A"
    return progress.with_iteration_row(
        known.iteration, status, f"{known.completed}/{known.total - known.cancelled}", batches
    )


def _make_metadata_readable(layout: Layout, files: Mapping[str, str]) -> tuple[Mapping[str, str], list[str]]:
    """The files with metadata without lines that are not YAML, and what was done: the other lines still count."""
    files, done = dict(files), []
    for path in (layout.metadata, *map(layout.iteration_metadata, layout.iterations_in(files))):
        if path in files:
            files[path], removed = remove_stray_yaml_lines(files[path])
            done += [f"{path.removeprefix(layout.root + '/')}: {one}" for one in removed]
    return files, done


def _list_planned_tasks(layout: Layout, written: Iterable[str]) -> set[str]:
    """The tasks whose definitions the engine ever wrote, in any iteration."""
    paths = list(written)
    return {id for number in {1, *layout.iterations_in(paths)} for id in layout.tasks_in(paths, number)}


def _remove_stray_lines(
    layout: Layout, files: Mapping[str, str], iteration: int, planned: Collection[str] = ()
) -> tuple[Mapping[str, str], list[str]]:
    """The files without stray lines in the lists of markers and of tasks, and what was done."""
    files, done = dict(files), list[str]()
    if isinstance(layout, ClassicLayout) and layout.task_list in files:
        files[layout.task_list], done = remove_conflict_marks(files[layout.task_list])
        done = [f"tasks.md: {one}" for one in done]
    path = layout.progress(iteration)
    if path in files:
        style = CLASSIC if isinstance(layout, ClassicLayout) else STANDARD
        defined = (
            _list_classic_tasks(layout, files)
            if isinstance(layout, ClassicLayout)
            else layout.tasks_in(files, iteration)
        )
        progress, removed = remove_stray_progress_lines(parse_progress(files[path], style), defined, planned)
        files[path] = progress.text
        done += [f"progress.md: {one}" for one in removed]
    return files, done


def _repair_metadata(
    layout: Layout, files: Mapping[str, str], read: dict[str, Any], rebuilt: Metadata
) -> tuple[Metadata, str]:
    """The metadata and their text; `read` has the fields that can be read, `rebuilt` is what the other files tell."""
    text = files.get(layout.metadata, "")
    if read.get("state") in _BEGUN and rebuilt.state not in _BEGUN:
        # Some never write another state after the first.
        read = {**read, "state": rebuilt.state, "status": rebuilt.status}
    elif not metadata.find_metadata_problems(text):
        return metadata.parse_metadata(text, layout.metadata), text
    found = replace(rebuilt, **read)
    version = read.get("version", 0) + 1
    found = replace(found, version=version, session_id=layout.session_id, updated_at=rebuilt.updated_at)
    try:
        new = metadata.render_metadata(found, text)
        metadata.parse_metadata(new)
    except StateError:
        new = metadata.render_metadata(found)
    return found, new


def infer_state(progress: Progress, *, reviewed: bool) -> State:
    """The state that follows from the markers."""
    items = progress.items.values()
    steps = [item.id for item in items if item.is_planning and item.marker not in FINAL_MARKERS]
    work = [item.marker for item in items if not item.is_planning]
    if Marker.PENDING in work:
        return State.REVIEWING_BATCH
    if any(step in REPLANNING for step in steps):
        return State.REPLANNING
    if any(step in PLANNING for step in steps):
        return State.INITIALIZING if PLANNING[0] in steps else State.PLANNING
    if Marker.TODO in work or Marker.WIP in work:
        return State.BATCHING
    if not reviewed:
        return State.SESSION_REVIEW
    for prefix, state in (("plan-critique-", State.CRITIQUE), ("plan-knowledge-", State.KNOWLEDGE_EXTRACTION)):
        if any(step.startswith(prefix) for step in steps):
            return state
    return State.COMPLETE


def _repair_progress(
    layout: Layout, files: Mapping[str, str], iteration: int, finished: Collection[str]
) -> tuple[Progress, list[str]]:
    """The list of markers: none that is not a marker, the planning steps, and a line for every task."""
    if isinstance(layout, ClassicLayout):
        defined = _list_classic_tasks(layout, files)
        progress, done = _repair_classic_steps(layout, files)
    else:
        defined = dict.fromkeys(layout.tasks_in(files, iteration), True)
        progress, done = _repair_steps(layout, files, iteration)
    missing = [id for id in defined if id not in progress.items]
    if missing:
        lines = [(id, *_recover_marker(layout, files, iteration, id, finished)) for id in missing]
        if not layout.is_classic:
            progress = progress.with_section(implementation_title(iteration), lines)
        else:
            progress = progress.with_items(lines)
        done.append(f"lines for {', '.join(missing)} were added")
    elif not layout.is_classic and any(
        "Implementation" in problem for problem in find_progress_problems(progress.text)
    ):
        progress = progress.with_section(implementation_title(iteration), ())
        done.append("the section of the tasks was added")
    restored = [id for id, has_definition in defined.items() if has_definition and MISSING in progress.items[id].note]
    for id in restored:
        progress = progress.with_item(id, *_recover_marker(layout, files, iteration, id, finished))
        done.append(f"{id} has a definition again")
    return progress, [f"progress.md: {one}" for one in done]


def _list_deleted_tasks(progress: Progress, known: Iterable[str], iteration: int) -> tuple[Progress, list[str]]:
    """The list with a line for every known task that is gone from it, and what was done."""
    gone = [id for id in known if id not in progress.items]
    if not gone:
        return progress, []
    lines = [(id, Marker.CANCELLED, DELETED) for id in gone]
    progress = progress.with_section(implementation_title(iteration), lines)
    return progress, [f"progress.md: {id} and its definition were deleted; it counts as cancelled" for id in gone]


def _confirm_cancelled_tasks(
    layout: Layout, files: Mapping[str, str], progress: Progress, iteration: int, split: Collection[str]
) -> tuple[Progress, list[str]]:
    """The list in which the line of a task that the user cancelled says so, and what that means. It is said once."""
    done = []
    for item in list(progress.items.values()):
        is_by_engine = item.id in split or bool(_children(item.id, progress))
        if item.marker is not Marker.CANCELLED or item.is_planning or is_by_engine or BY_USER in item.note:
            continue
        progress = progress.with_item(item.id, Marker.CANCELLED, BY_USER if progress.style.words else CANCELLED)
        blocked = _list_dependents(layout, files, iteration, item.id)
        line = f"{item.id} is cancelled, because you marked it [C] in progress.md"
        if blocked:
            verb = "needs" if len(blocked) == 1 else "need"
            line += f"; {', '.join(blocked)} {verb} it and cannot start"
        done.append(line)
    return progress, done


def _list_dependents(layout: Layout, files: Mapping[str, str], iteration: int, id: str) -> list[str]:
    """The tasks that need one, as far as their definitions can be read."""
    try:
        found = layout.read_tasks(files, iteration)
    except StateError:
        return []
    return [name for name, task in found.items() if id in task.needs]


def _repair_steps(layout: Layout, files: Mapping[str, str], iteration: int) -> tuple[Progress, list[str]]:
    """The list with its heading, its legend, and the planning steps of the iteration."""
    text = files.get(layout.progress(iteration), "")
    steps = PLANNING if iteration == 1 else REPLANNING
    progress, done = repair_progress(text) if text else (render_new_progress(iteration, steps), ["written anew"])
    has_steps = any(item.iteration == iteration and item.is_planning for item in progress.items.values())
    if text and has_steps:
        return progress, done
    ids = layout.tasks_in(files, iteration)
    is_planned = any(tasks.parse_iteration(files[layout.task(iteration, id)]) >= iteration for id in ids)
    has_plan = layout.plan(iteration) in files
    lines = []
    for step in steps:
        is_done = is_planned or (has_plan and step == "plan-init")
        lines.append((step, Marker.DONE, "recovered") if is_done else (step, Marker.TODO, ""))
    done.append(f"the planning steps of iteration {iteration} were added")
    return progress.with_section(planning_title(iteration), lines), done


def _repair_classic_steps(layout: ClassicLayout, files: Mapping[str, str]) -> tuple[Progress, list[str]]:
    """The list with the planning steps, if there is no task yet."""
    text = files.get(layout.progress(1), "")
    text, done = remove_invalid_markers(text, parse_progress(text, CLASSIC).invalid_markers)
    listed = parse_progress(text, CLASSIC)
    work = _list_classic_tasks(layout, files)
    if not text.strip():
        asked = count_cycles(files[path] for path in layout.questions_in(files))
        count = len(PLANNING)
        if not work:
            count = 2 if asked else 1
        over = PLANNING[:count]
        steps = [id for id in task_list.parse_task_list(files.get(layout.task_list, "")) if is_planning(id)]
        if not steps and not work:
            steps = list(PLANNING)
        # The plan is copied when the planner has followed an update.
        updates = [f"{UPDATE}{number}" for number in layout.updates_in(files) if layout.plan_copy(number) in files]
        return render_new_classic_progress([*over, *updates], [*steps, *updates]), [*done, "written anew"]
    if not listed.items and not work:
        listed = listed.with_items([(id, Marker.DONE if id == PLANNING[0] else Marker.TODO, "") for id in PLANNING])
        done.append("the planning steps were added")
    return listed, done


def _list_classic_tasks(layout: ClassicLayout, files: Mapping[str, str]) -> dict[str, bool]:
    """The tasks that `tasks.md` names, and whether it defines them."""
    found = task_list.parse_task_list(files.get(layout.task_list, ""))
    return {id: not task.is_missing for id, task in found.items() if not is_planning(id)}


def _define_listed_tasks(
    layout: ClassicLayout, files: Mapping[str, str], listed: Progress
) -> tuple[dict[str, str], list[str]]:
    """`tasks.md` with a definition of every task that only the list of markers describes, and what was done."""
    text = files.get(layout.task_list, "")
    known = task_list.parse_task_list(text)
    described = [
        item for item in listed.items.values() if item.id not in known and not item.is_planning and item.description
    ]
    definitions = [
        task_list.render_task_list_entry(Task(item.id, title=item.description, objective=item.description))
        for item in described
    ]
    if text and not definitions:
        return {}, []
    merged = task_list.merge_tasks(text or task_list.render_new_task_list(), "".join(definitions), ())
    return {layout.task_list: merged}, [
        f"tasks.md: {item.id} is defined by what progress.md says of it" for item in described
    ]


def _recover_marker(
    layout: Layout, files: Mapping[str, str], iteration: int, id: str, finished: Collection[str]
) -> tuple[Marker, str]:
    """The marker that follows from the last report on a task. Work that is not known to be merged is reviewed again."""
    found = layout.reports_in(files, iteration, id)
    if id in finished:
        return Marker.DONE, f"Attempt {max(found)}, recovered" if found else "recovered"
    if not found:
        return Marker.TODO, ""
    attempt = max(found)
    report = parse_report(files[found[attempt]])
    has_failed = report.verdict is ReviewVerdict.FAILED
    if layout.retries_as_todo:
        outcome = f"Attempt {attempt} failed" if has_failed else f"Attempt {attempt}"
        return (Marker.TODO if has_failed else Marker.PENDING), f"{outcome}, recovered"
    outcome = "failed" if has_failed else "review-pending"
    note = f"Attempt {attempt}, Iteration {report.iteration}, {outcome}, recovered"
    return (Marker.FAILED if has_failed else Marker.PENDING), note


def _rebuild_metadata(
    layout: Layout, files: Mapping[str, str], iteration: int, progress: Progress, at: str
) -> Metadata:
    """What the other files say about a session."""
    found = files.get(layout.review(iteration), "")
    state = infer_state(progress, reviewed=bool(found.strip()))
    status = Status.IN_PROGRESS
    if state is State.COMPLETE:
        over = all(item.marker in FINAL_MARKERS for item in progress.items.values())
        good = over and parse_review(found).assessment is Assessment.COMPLETE
        status = Status.COMPLETED if good else Status.AWAITING_FEEDBACK
    taken = {
        stamp: hash_feedback(files[layout.feedback(number, stamp)])
        for number in range(2, iteration + 1)
        for stamp in layout.batches_in(files, number)
    }
    split = {id: _children(id, progress) for id, item in progress.items.items() if item.marker is Marker.CANCELLED}
    work = Counter(item.marker for item in progress.items.values() if not item.is_planning)
    known = Metadata(
        session_id=layout.session_id,
        created_at=at,
        updated_at=at,
        status=status,
        iteration=iteration,
        state=state,
        processed=taken,
        replaced={id: children for id, children in split.items() if children},
        request=plan.parse_plan(files.get(layout.plan(iteration), "")).goal,
    )
    return replace(known, **count_markers(work))


def _children(id: str, progress: Progress) -> tuple[str, ...]:
    return tuple(other for other in progress.items if other.startswith(f"{id}."))


def _iteration(layout: Layout, files: Mapping[str, str]) -> int:
    """The iteration that follows from the files: the last one that began."""
    begun = layout.iterations_in(files)
    titles = _ITERATION.findall(files.get(layout.progress(1), "").casefold())
    return max([1, *begun, *map(int, titles)])


def _is_begun(layout: ClassicLayout, files: Mapping[str, str]) -> bool:
    """Whether there is more of a session than what the user put there before it began."""
    return any(path in files for path in (layout.plan(1), layout.task_list, layout.progress(1)))
