"""Puts `progress.md` and `tasks.md` of a classic session right from its other files, by rule; everything readable stays."""

from collections.abc import Mapping

from ralph.documents.session import questions, reports, task_list
from ralph.documents.session.layout import ClassicLayout
from ralph.documents.session.markers import Marker
from ralph.documents.session.progress import CLASSIC, MISSING, Progress, new_classic_progress, unmarked
from ralph.documents.session.repair import PLANNING
from ralph.documents.session.task_names import is_planning
from ralph.documents.session.tasks import Task


def is_begun(layout: ClassicLayout, files: Mapping[str, str]) -> bool:
    """Whether there is anything of a session but what a person put there before it began."""
    return any(files.get(path, "").strip() for path in (layout.plan(1), layout.task_list, layout.progress(1)))


def repair(layout: ClassicLayout, files: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """The documents that have to be different, and what was done to them; none where nothing is wrong."""
    files = {path: text for path, text in files.items() if text.strip()}
    if not is_begun(layout, files):
        return {}, []
    listed, done = _progress(layout, files)
    changed = {} if listed.text == files.get(layout.progress(1)) else {layout.progress(1): listed.text}
    known = task_list.parse(files.get(layout.task_list, ""))
    missing = [item for item in listed.items.values() if item.id not in known and not item.is_planning]
    if missing or not files.get(layout.task_list, "").strip():
        text = files.get(layout.task_list, "")
        text = text if text.strip() else task_list.new_tasks()
        told = [item for item in missing if item.words]
        changed[layout.task_list] = task_list.merged(
            text, "".join(task_list.render(Task(item.id, title=item.words, objective=item.words)) for item in told), ()
        )
        done += [f"tasks.md: {item.id} is defined by what progress.md says of it" for item in told]
        if changed[layout.task_list] == files.get(layout.task_list):
            del changed[layout.task_list]
    return changed, done


def _progress(layout: ClassicLayout, files: Mapping[str, str]) -> tuple[Progress, list[str]]:
    """The markers: none that is none, a line for every task, and the planning steps where there is no task yet."""
    text = files.get(layout.progress(1), "")
    text, done = unmarked(text, Progress(text, CLASSIC).bad)
    known = task_list.parse(files.get(layout.task_list, ""))
    work = [id for id in known if not is_planning(id)]
    listed = Progress(text, CLASSIC)
    if not text.strip():
        asked = questions.last_cycle(files[path] for path in layout.questions_in(files))
        over = PLANNING if work else PLANNING[: 2 if asked else 1]
        listed = new_classic_progress(over, [id for id in known if is_planning(id)] or ([] if work else PLANNING))
        done.append("written anew")
    elif not listed.items and not work:
        listed = listed.with_items([(id, Marker.DONE if id == PLANNING[0] else Marker.TODO, "") for id in PLANNING])
        done.append("the planning steps were put in")
    missing = [id for id in work if id not in listed.items]
    if missing:
        listed = listed.with_items([(id, *_recovered(layout, files, id)) for id in missing])
        done.append(f"lines for {', '.join(missing)} were put in")
    restored = [id for id in work if MISSING in listed.items[id].note and not known[id].is_missing]
    for id in restored:
        listed = listed.with_item(id, *_recovered(layout, files, id))
        done.append(f"{id} has a definition again")
    return listed, [f"progress.md: {one}" for one in done]


def _recovered(layout: ClassicLayout, files: Mapping[str, str], id: str) -> tuple[Marker, str]:
    """The marker that the last report on a task tells of."""
    found = layout.reports_in(files, 1, id)
    if not found:
        return Marker.TODO, ""
    attempt, path = list(found.items())[-1]
    verdict = reports.parse(files[path]).verdict
    if verdict is reports.Verdict.FAILED:
        return Marker.TODO, f"Attempt {attempt} failed, recovered"
    return Marker.PENDING, f"Attempt {attempt}, recovered"
