"""Which run a command means if the user names none."""

from ralph.core.errors import UsageError
from ralph.store.runs import Project, RunDir, describe_run, several_runs


def live_run(project: Project, wanted: str | None, verb: str, by: str = "") -> RunDir:
    """The named run, the one that is alive, or, if none is, the only one that can be resumed.

    `by` is the option that names a run, if it is not an argument.
    """
    if wanted:
        return project.run(wanted)
    open_runs = project.open_runs()
    found = [run for run in open_runs if run.alive] or open_runs
    if len(found) == 1:
        return found[0]
    if found:
        what = "several runs are alive" if found[0].alive else "no run is alive, and several can be resumed"
        raise several_runs(f"{what}: which one to {verb}?", found, by)
    raise UsageError(f"there is no run to {verb}", where=str(project.root), todo="`ralph status --all` lists all runs")


def stopped_run(project: Project, wanted: str | None) -> RunDir | None:
    """The named run, or the one that stopped last, or the only one that is alive; None if all runs are over."""
    if wanted:
        return project.run(wanted)
    open_runs = project.open_runs()
    stopped = [run for run in open_runs if not run.alive]
    if stopped:
        return max(stopped, key=lambda run: run.tail_summary().at)
    if len(open_runs) > 1:
        raise several_runs("no run has stopped, and several are alive", open_runs)
    return open_runs[0] if open_runs else None


def nothing_to_resume(project: Project) -> UsageError:
    """Why there is nothing to resume."""
    runs = project.runs()
    if not runs:
        todo = "start one: ralph loop \"TASK\" --until '`COMMAND` passes'"
        return UsageError("there is nothing to resume: there is no run yet", where=str(project.root), todo=todo)
    last = describe_run(runs[-1])
    return UsageError(
        "there is nothing to resume: every run is over", where=f"the latest is {last}", todo="start a new one"
    )
