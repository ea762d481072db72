"""Plan a run from values by name, as programs give them: the Python API, and the form of the web page."""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from ralph.app.run_options import RunOptions
from ralph.app.start import NewRun
from ralph.core.errors import UsageError
from ralph.store.runs import Project
from ralph.workflows.loop.state import OnStuck, TaskType

_OWN: dict[str, dict[str, str]] = {
    "loop": {
        "until": "criterion",
        "type": "kind",
        "scope": "scope",
        "confirm": "confirm",
        "on_stuck": "on_stuck",
        "reflector": "reflector",
        "no_recall": "no_recall",
        "commit": "commits",
    },
    "session": {"checks": "criteria", "waves": "waves", "classic": "classic"},
    "hats": {
        "preset": "preset",
        "checks": "criteria",
        "prompt_file": "prompt_file",
        "config": "given",
        "completion_promise": "completion_promise",
        "unchecked": "unchecked",
    },
}
"""The options of one workflow only, by name, and the fields of its request."""
_WHOLE_NUMBERS = frozenset(("max_iterations", "max_tokens", "parallel", "confirm"))
_NUMBERS = frozenset(("timeout", "max_cost", "turn_timeout", "idle_timeout", "check_timeout"))
_LISTS = frozenset(("agents", "agent_args", "allow", "may_change", "scope", "checks", "config"))
_FLAGS = frozenset(
    (
        *("allow_unpriced", "no_sub_agents", "no_clean_room", "no_snapshots", "worktree"),
        *("reflector", "no_recall", "commit", "waves", "classic", "unchecked"),
    )
)
_CHOICES: dict[str, tuple[str, ...]] = {
    "type": tuple(TaskType),
    "on_stuck": tuple(OnStuck),
    "require": ("auto", "proven", "judged"),
    "land": ("ff", "branch", "push"),
    "sandbox": ("auto", "off", "write", "strict", "require"),
}


def plan_run(
    project: Project,
    workflow: str,
    task: str,
    values: Mapping[str, Any],
    *,
    dry_run: bool = False,
    cwd: Path | None = None,
) -> NewRun:
    """Check what a run is asked for, and turn it into a run that can be created.

    The names are those of the options of the command line, with underscores. A value of None is as if it was not given.
    Files are named from `cwd`, by default the current directory.
    """
    if workflow not in _OWN:
        raise UsageError(f"there is no workflow {workflow!r}", where="workflow", todo=f"use one of {', '.join(_OWN)}")
    if not isinstance(task, str):
        raise UsageError(f"the task is {task!r}", where="task", todo="give a text")
    own = _OWN[workflow]
    common = {one.name for one in fields(RunOptions)} - {"dry_run", "cwd"}
    if unknown := sorted(values.keys() - common - own.keys()):
        known = ", ".join(sorted(common | own.keys()))
        raise UsageError(f"there is no option {', '.join(unknown)}", todo=f"the options are {known}")
    given = {name: _check_value(name, value) for name, value in values.items() if value is not None}
    options = RunOptions(**{name: given[name] for name in common & given.keys()}, dry_run=dry_run, cwd=cwd)
    request = {own[name]: given[name] for name in own.keys() & given.keys()}
    return _plan(project, workflow, task, request, options)


def _plan(project: Project, workflow: str, task: str, request: Mapping[str, Any], options: RunOptions) -> NewRun:
    # Each workflow is imported only if it is used.
    if workflow == "loop":
        from ralph.app.loop import LoopRequest, plan_loop

        return plan_loop(project, LoopRequest(task, **request), options)
    if workflow == "session":
        from ralph.app.sessions import SessionRequest, plan_session

        return plan_session(project, SessionRequest(task, **request), options, even_if_open=True)
    from ralph.app.hats import HatsRequest, plan_hats

    return plan_hats(project, HatsRequest(task, **request), options)


def _check_value(name: str, given: Any) -> Any:
    """The value of an option, if it has the right type. The command line checks that when it reads them."""
    if name in _LISTS:
        texts = (given,) if isinstance(given, str) else given
        if isinstance(texts, tuple | list) and all(isinstance(one, str) for one in texts):
            return tuple(texts)
        raise UsageError(f"{name} is {given!r}", where=name, todo="give a text, or a list of texts")
    kinds: tuple[type, ...] = (str,)
    wanted = "a text"
    if name in _FLAGS:
        kinds, wanted = (bool,), "True or False"
    elif name in _WHOLE_NUMBERS:
        kinds, wanted = (int,), "a whole number"
    elif name in _NUMBERS:
        kinds, wanted = (int, float), "a number"
    if not isinstance(given, kinds) or (isinstance(given, bool) and bool not in kinds):
        raise UsageError(f"{name} is {given!r}", where=name, todo=f"give {wanted}")
    if name in _CHOICES and given not in _CHOICES[name]:
        raise UsageError(f"{name} is {given!r}", where=name, todo=f"use one of {', '.join(_CHOICES[name])}")
    return given
