"""Puts `progress.md` and `metadata.yaml` right from the other files of a session, by rule; everything readable stays."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from ralph.core.errors import StateError
from ralph.documents.session import feedback, metadata, plan, reports, review, tasks, timestamps
from ralph.documents.session.dialects import told_elsewhere
from ralph.documents.session.layout import Layout
from ralph.documents.session.markers import OVER, Marker, counts
from ralph.documents.session.metadata import State, Status
from ralph.documents.session.progress import (
    MISSING,
    Progress,
    implementation_title,
    mended,
    new_progress,
    planning_title,
    problems,
)

PLANNING = ("plan-init", "plan-brainstorm", "plan-research", "plan-breakdown")
REPLANNING = ("plan-rebrainstorm", "plan-reresearch", "plan-update", "plan-rebreakdown")
_BEGUN = (State.INITIALIZING, State.PLANNING, State.REPLANNING)
_ITERATION = re.compile(r"\(iteration (\d{1,6})\b")


@dataclass(frozen=True)
class Repaired:
    """Both files as they should be, and what was done to them."""

    progress: Progress
    metadata: metadata.Metadata
    metadata_text: str
    done: tuple[str, ...] = ()


def repair(layout: Layout, files: Mapping[str, str], at: str) -> Repaired:
    """The files of a session put right; nothing is done where nothing is wrong."""
    text = files.get(layout.metadata, "")
    known = {**told_elsewhere(layout, files), **metadata.readable(text)}
    iteration = known.get("iteration") or _iteration(layout, files)
    progress, done = _progress(layout, files, iteration)
    rebuilt = _metadata(layout, files, iteration, progress, at)
    if known.get("state") in _BEGUN and rebuilt.state not in _BEGUN:
        # Some never write another state after the first.
        known |= {"state": rebuilt.state, "status": rebuilt.status}
    elif not metadata.problems(text):
        return Repaired(progress, metadata.parse(text, layout.metadata), text, tuple(done))
    found = replace(rebuilt, **known)
    found = replace(found, version=known.get("version", 0) + 1, session_id=layout.session_id, updated_at=at)
    done.append(f"metadata.yaml: rebuilt from the files, in iteration {found.iteration} and state {found.state}")
    try:
        new = metadata.render(found, text)
        metadata.parse(new)
    except StateError:
        new = metadata.render(found)
    return Repaired(progress, found, new, tuple(done))


def inferred_state(progress: Progress, *, reviewed: bool) -> State:
    """The state that the markers tell of."""
    items = progress.items.values()
    steps = [item.id for item in items if item.is_planning and item.marker not in OVER]
    work = [item.marker for item in items if not item.is_planning]
    if Marker.PENDING in work:
        return State.REVIEWING_BATCH
    if any(step in REPLANNING for step in steps):
        return State.REPLANNING
    if any(step in PLANNING for step in steps):
        return State.PLANNING
    if Marker.TODO in work or Marker.WIP in work:
        return State.BATCHING
    if not reviewed:
        return State.SESSION_REVIEW
    for prefix, state in (("plan-critique-", State.CRITIQUE), ("plan-knowledge-", State.KNOWLEDGE_EXTRACTION)):
        if any(step.startswith(prefix) for step in steps):
            return state
    return State.COMPLETE


def _progress(layout: Layout, files: Mapping[str, str], iteration: int) -> tuple[Progress, list[str]]:
    """The markers with everything that must be there: legend, sections, and a line for every task that has a file."""
    text = files.get(layout.progress(iteration), "")
    is_new = not text.strip()
    steps = PLANNING if iteration == 1 else REPLANNING
    progress, done = (new_progress(iteration, steps), ["written anew"]) if is_new else mended(text)
    ids = layout.tasks_in(files, iteration)
    if is_new or not any(item.iteration == iteration and item.is_planning for item in progress.items.values()):
        planned = any(tasks.iteration_of(files[layout.task(iteration, id)]) >= iteration for id in ids)
        begun = ("plan-init",) if files.get(layout.plan(iteration), "").strip() else ()
        lines = [
            (one, Marker.DONE, "recovered") if planned or one in begun else (one, Marker.TODO, "") for one in steps
        ]
        progress = progress.with_section(planning_title(iteration), lines)
        done.append(f"the planning steps of iteration {iteration} were put in")
    if missing := [id for id in ids if id not in progress.items]:
        lines = [(id, *_recovered(layout, files, iteration, id)) for id in missing]
        progress = progress.with_section(implementation_title(iteration), lines)
        done.append(f"lines for {', '.join(missing)} were put in")
    elif any("Implementation" in problem for problem in problems(progress.text)):
        progress = progress.with_section(implementation_title(iteration), ())
        done.append("the section of the tasks was put in")
    restored = [id for id in ids if MISSING in progress.items[id].note]
    for id in restored:
        progress = progress.with_item(id, *_recovered(layout, files, iteration, id))
        done.append(f"{id} has a definition again")
    return progress, [f"progress.md: {one}" for one in done]


def _recovered(layout: Layout, files: Mapping[str, str], iteration: int, id: str) -> tuple[Marker, str]:
    """The marker that the reports of a task tell of; what was not seen to be merged is reviewed again."""
    home = layout.reports(iteration) + "/"
    found = {reports.attempt_of(path, id) or 0: path for path in files if path.startswith(home)}
    last = max(found, default=0)
    if not last:
        return Marker.TODO, ""
    report = reports.parse(files[found[last]])
    failed = report.verdict is reports.Verdict.FAILED
    note = f"Attempt {last}, Iteration {report.iteration}, {'failed' if failed else 'review-pending'}, recovered"
    return (Marker.FAILED if failed else Marker.PENDING), note


def _metadata(
    layout: Layout, files: Mapping[str, str], iteration: int, progress: Progress, at: str
) -> metadata.Metadata:
    """What the other files tell of a session."""
    begun = timestamps.parse(layout.session_id)
    found = files.get(layout.review(iteration), "")
    state = inferred_state(progress, reviewed=bool(found.strip()))
    status = Status.IN_PROGRESS
    if state is State.COMPLETE:
        over = all(item.marker in OVER for item in progress.items.values())
        good = over and review.parse(found).assessment is review.Assessment.COMPLETE
        status = Status.COMPLETED if good else Status.AWAITING_FEEDBACK
    taken = {
        stamp: feedback.content_hash(files[layout.feedback(number, stamp)])
        for number in range(2, iteration)
        for stamp in layout.batches_in(files, number)
    }
    split = {id: _children(id, progress) for id, item in progress.items.items() if item.marker is Marker.CANCELLED}
    work = Counter(item.marker for item in progress.items.values() if not item.is_planning)
    known = metadata.Metadata(
        session_id=layout.session_id,
        created_at=timestamps.render(begun) if begun else at,
        updated_at=at,
        status=status,
        iteration=iteration,
        state=state,
        processed=taken,
        replaced={id: children for id, children in split.items() if children},
        request=plan.parse(files.get(layout.plan(iteration), "")).goal,
    )
    return replace(known, **counts(work))


def _children(id: str, progress: Progress) -> tuple[str, ...]:
    return tuple(other for other in progress.items if other.startswith(f"{id}."))


def _iteration(layout: Layout, files: Mapping[str, str]) -> int:
    """The iteration that the files tell of: the last that was begun."""
    begun = layout.iterations_in(files)
    titles = _ITERATION.findall(files.get(layout.progress(1), "").casefold())
    return max([1, *begun, *map(int, titles)])
