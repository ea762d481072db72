"""`ralph diff`, `ralph undo`, `ralph restore` and `ralph abort`: what a run changed, how to take it back, how to end the run."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from ralph.app.changes import (
    Restored,
    Reverted,
    describe_written,
    diff_run,
    name_files,
    refuse_revert,
    restore_iteration,
    revert_run,
    undo_turn,
)
from ralph.app.runs import find_latest_run, refuse_inside_a_turn
from ralph.app.steer import end_run, find_run_to_abort, is_over
from ralph.app.views import find_changes_of_others
from ralph.cli.console import agree, complete_tasks, json_option, open_project, print_result, run_argument
from ralph.cli.terminal import print_json, print_patch, print_text
from ralph.core.errors import UsageError
from ralph.core.text import clean_for_terminal, count
from ralph.store.runs import RunDir

_force_option = click.option(
    "--force",
    is_flag=True,
    help="Also restore the files that you changed. Ralph records your version first.",
)


@click.command("diff")
@run_argument
@click.argument("part", required=False, metavar="[TURN|TASK]", shell_complete=complete_tasks)
@click.option("--stat", is_flag=True, help="Show only the files and how many lines changed.")
@json_option
def diff(run: str | None, part: str | None, stat: bool, as_json: bool) -> int:
    """Show what RUN changed, or what one TURN or one TASK of it changed. Default: the latest run."""
    project = open_project()
    if run and not part and (_is_turn(run) or run.startswith("task-")):
        run, part = None, run
    chosen = find_latest_run(project, run)
    if part and _is_turn(part):
        found = diff_run(project, chosen, int(part), stat=stat)
    else:
        found = diff_run(project, chosen, task=part or "", stat=stat)
    if as_json:
        facts = {"old": found.old, "new": found.new, "diff": found.text, "mixed": found.mixed}
        print_json(command="diff", run=chosen.id, **facts)
        return 0
    if found.text:
        print_patch(found.text)
    else:
        print_text(f"Run {chosen.id} changed nothing.")
    if clean_for_terminal(found.text) != found.text:
        todo = f"`ralph diff {chosen.id} --json` has them"
        print_text(f"note: control characters are left out, so the patch may not apply: {todo}", err=True)
    if found.mixed:
        others = find_changes_of_others(project, chosen)
        for author, files in _group_by_author(found.mixed, others).items():
            # Not on the standard output, so that the patch can be applied.
            print_text(f"note: these files also contain changes by {author or 'you'}: {_join(files)}", err=True)
    return 0


def _is_turn(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 6


@click.command("undo")
@run_argument
@click.option(
    "--force",
    is_flag=True,
    help="Undo even if you changed the same files afterwards. Ralph records your version first.",
)
@json_option
def undo(run: str | None, force: bool, as_json: bool) -> int:
    """Undo what the last turn of RUN changed. Repeat the command to undo the turn before. Default: the latest run.

    Ralph records the tree first, and writes only files that the turn changed.
    """
    project = open_project()
    chosen = find_latest_run(project, run)
    others = find_changes_of_others(project, chosen)
    done = undo_turn(project, chosen, force=force)
    undone = done.undone
    label, restored = undone.undone.label, undone.restored
    lines = [f"Undid {label}: {describe_written(restored)}.", *_written_lines(restored, others)]
    outcome = chosen.outcome()
    if not undone.is_last:
        lines.append(f"Next:   ralph diff {chosen.id}   ralph undo {chosen.id} (undoes the turn before)")
    elif outcome is None or outcome.resumable:
        lines.append(f"No earlier turn is left to undo. Next:   ralph resume {chosen.id}")
    else:
        lines.append("No earlier turn is left to undo.")
    facts = {
        "run": chosen.id,
        "action": done.action,
        "undone": label,
        "files": restored.files,
        "notices": restored.notices,
    }
    return print_result(as_json, lines, command="undo", **facts)


@click.command("restore")
@click.argument("which", metavar="best|N|base")
@run_argument
@_force_option
@json_option
def restore(which: str, run: str | None, force: bool, as_json: bool) -> int:
    """Restore your files to their state after iteration N of RUN, after the best iteration, or before the run (base).

    Default: the latest run. Ralph records the tree first, and writes only files that differ. What you changed while the run
    was stopped stays as it is.
    """
    project = open_project()
    chosen = find_latest_run(project, run)
    others = find_changes_of_others(project, chosen)
    done = restore_iteration(project, chosen, which, force=force)
    number, restored = done.number, done.restored
    state = f"iteration {number} left them" if number else "they were before the run"
    lines = [
        f"Nothing was written: the files are already as {state}.",
        *_written_lines(restored, others),
        *_kept_lines(restored, others, f"ralph restore {which} {chosen.id} --force"),
    ]
    if restored.files:
        lines[0] = (
            f"The files are as {state}{_except_later(restored, others)} (run {chosen.id}): {describe_written(restored)}."
        )
        lines.append(f"Next:   ralph diff {chosen.id}   ralph undo {chosen.id} (undoes this)")
    facts = {"action": done.action, "iteration": number, "snapshot": done.snapshot, "before": restored.before}
    facts |= {"files": restored.files, "notices": restored.notices, "kept": restored.kept, "shared": restored.shared}
    return print_result(as_json, lines, command="restore", run=chosen.id, **facts)


def _group_by_author(paths: Sequence[str], others: Mapping[str, str]) -> dict[str, list[str]]:
    """The files of each other run, which is named as `run ID`, and those of the user under an empty name."""
    groups: dict[str, list[str]] = {}
    for path in paths:
        author = f"run {others[path]}" if path in others else ""
        groups.setdefault(author, []).append(path)
    return groups


def _join(paths: Sequence[str]) -> str:
    return ", ".join(name_files(paths))


def _except_later(restored: Restored, others: Mapping[str, str]) -> str:
    """That files which someone changed later are not restored."""
    authors = _group_by_author([*restored.shared, *restored.kept], others)
    names = [author or "you" for author in sorted(authors)]
    return f", except those that {' and '.join(names)} changed" if names else ""


def _written_lines(restored: Restored, others: Mapping[str, str]) -> Iterator[str]:
    """Which files were written or deleted, and which snapshot has them as they were."""
    users = {*restored.kept, *restored.shared}
    written = [path for path in restored.files if path not in restored.deleted and path not in users]
    yield from (f"  {name}" for name in name_files(written))
    theirs = [path for path in restored.files if path in users and path not in restored.deleted]
    for author, paths in _group_by_author(theirs, others).items():
        whose = f"the changes of {author}" if author else "your changes"
        yield from (f"  {name} ({whose} stay)" for name in name_files(paths))
    yield from (f"  {name} (deleted)" for name in name_files(restored.deleted))
    yield from (f"note: {notice}" for notice in restored.notices)
    if restored.files:
        yield f"Nothing is lost: snapshot {restored.before[:12]} contains the files as they were."


def _kept_lines(restored: Restored, others: Mapping[str, str], command: str) -> Iterator[str]:
    """What stays as the user or another run left it, and the command that restores that, too."""
    written = set(restored.files)
    kept = [path for path in restored.kept if path not in written]
    for author, paths in _group_by_author(kept, others).items():
        yield f"Kept as {author or 'you'} left them: {_join(paths)}"
    shared = [path for path in restored.shared if path not in written]
    for author, paths in _group_by_author(shared, others).items():
        yield f"NOT RESTORED, because {author or 'you'} changed them after the run did: {_join(paths)}"
    mixed = [path for path in restored.shared if path in written]
    for author, paths in _group_by_author(mixed, others).items():
        yield f"Changes that the run made before {author or 'you'} did are still in: {_join(paths)}"
    if authors := _group_by_author([*restored.kept, *restored.shared], others):
        whose = "your changes" if set(authors) == {""} else "these later changes"
        yield f"To undo {whose}, too: {command}"


@click.command("abort")
@run_argument
@click.option("--message", default="", help="The reason, for the journal.")
@click.option(
    "--revert/--keep-changes",
    help="Restore the files as they were before the run, even if the run is over. Default: keep the changes.",
)
@_force_option
@click.option("--yes", is_flag=True, help="Revert without asking.")
@json_option
def abort(run: str | None, message: str, revert: bool, force: bool, yes: bool, as_json: bool) -> int:
    """End RUN for good. Default: the live run. If there is none, the only one that can be resumed.

    Ralph ends the turn with all its processes and leaves your files as they are. With --revert, it restores the files as they
    were before the run, and the branch too if only the run committed to it. What you changed while the run was stopped stays
    as it is. If all runs are over, --revert reverts the latest.

    --revert also restores files in submodules. It does not restore files that git ignores, commits inside submodules, or
    submodules that were added during the run. Ralph names those submodules.
    """
    refuse_inside_a_turn("an agent cannot end a run", "end your turn, and say why the work cannot continue")
    if force and not revert:
        raise UsageError("--force works only with --revert", todo="add --revert, or omit --force")
    project = open_project()
    chosen = find_run_to_abort(project, run, revert=revert)
    if revert:
        refuse_revert(chosen)
        if not yes:
            yours = "What you changed while it was stopped stays as you left it."
            if force:
                yours = "So does every file that you changed since."
            print_text(
                f"Every file that the run changed goes back to its state before run {chosen.id}. {yours}", err=True
            )
        todo = f"pass --yes; `ralph diff {chosen.id}` shows what the run changed"
        agree(yes=yes, where=str(project.root), todo=todo)
    name = ""
    others = find_changes_of_others(project, chosen) if revert else {}
    if not is_over(chosen):
        name = end_run(project, chosen, message or "aborted by `ralph abort`")
    reverted = revert_run(project, chosen, force=force) if revert else None
    facts: dict[str, Any] = {"name": name, "outcome": chosen.outcome(), "alive": chosen.alive}
    facts["reverted"] = reverted is not None
    if reverted:
        files, history = reverted.files, reverted.history
        facts |= {"before": files.before, "files": files.files, "commits": history.commits}
        facts["notices"] = (*files.notices, *history.notices)
        facts["not_restored"] = (*reverted.submodules, *files.shared)
        facts["kept"] = files.kept
        facts["action"] = reverted.action
    return print_result(as_json, _abort_lines(chosen, reverted, others), command="abort", run=chosen.id, **facts)


def _abort_lines(run: RunDir, reverted: Reverted | None, others: Mapping[str, str]) -> Iterator[str]:
    outcome = run.outcome() or "still ending its turn"
    if run.record().on_branch:
        yield f"Run {run.id}: {outcome}. Its merged work is on the branch {run.record().branch}."
        yield f"Next:   ralph diff {run.id}   ralph worktrees"
        return
    if reverted is None:
        yield f"Run {run.id}: {outcome}. The files are as the last turn left them."
        if not run.record().snapshots:
            yield f"Next:   ralph report {run.id}"
            return
        yield f"Next:   ralph diff {run.id}   ralph undo {run.id}   ralph abort {run.id} --revert"
        return
    files, history = reverted.files, reverted.history
    what = f"All files that git does not ignore are as they were before the run{_except_later(files, others)}"
    yield f"Run {run.id}: {outcome}. {what}: {describe_written(files)}."
    yield from _written_lines(files, others)
    yield from _kept_lines(files, others, f"ralph abort {run.id} --revert --force")
    yield "Not restored: files that git ignores, such as build output and .env files."
    yield from (f"note: {notice}" for notice in history.notices)
    for path in reverted.submodules:
        status = f"git -C {shlex.quote(path)} status"
        yield f"NOT RESTORED: the submodule {path}, which was not checked out before the run. Look at it with: {status}"
    back = [f"ralph undo {run.id}"] if files.files else []
    if commits := history.commits:
        yield f"Removed {count(len(commits), 'commit')} of the run from the branch; the last was {commits[0]}."
        back.append(f"git reset {commits[0][:12]}")
    if back:
        yield f"Next:   {'   '.join(back)} (undoes this)"
