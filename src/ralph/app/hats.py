"""Plan a run of hats: read its preset, find what is wrong with it, and choose the agents of its hats."""

import hashlib
import os
import shlex
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import ralph.agents
from ralph.agents import registry
from ralph.app.run_options import (
    RunOptions,
    build_agent_selection,
    build_limits,
    build_record,
    rebase_glob,
    refuse_judge,
    refuse_landing,
)
from ralph.app.runs import refuse_inside_a_turn
from ralph.app.start import NewRun, WorkLocation, check_start
from ralph.app.trust import record_written_settings
from ralph.app.workflows import build_hats_workflow
from ralph.core.checks import Check, Severity
from ralph.core.errors import NoCommandError, StateError, UsageError
from ralph.core.limits import Limits
from ralph.core.text import count
from ralph.documents.config import AgentSettings, Config
from ralph.documents.hats.definition import HatsSettings, find_work_source
from ralph.documents.hats.preset import HatKeys, Preset
from ralph.documents.hats.reading import PresetFiles, SourceLine, build_settings, fill_names
from ralph.documents.run_record import AgentSelection, AgentSpec, LoopRunSettings, RunRecord
from ralph.git.command import find_repository
from ralph.git.commits import list_uncommitted_files
from ralph.git.history import HEADS, read_head
from ralph.git.worktree import can_have_worktrees
from ralph.store.files import is_inside, read_limited, remove, to_bytes, write_atomic
from ralph.store.presets import LoadedPreset, load_preset, parse_layer, read_preset_file
from ralph.store.runs import Project, RunDir
from ralph.verify.criterion import Criterion, compile_criterion
from ralph.verify.toolchains import describe_phrases
from ralph.verify.verifier import hash_inputs
from ralph.workflows.hats.preset_checks import check_preset
from ralph.workflows.hats.preset_model import Model, PresetFinding
from ralph.workflows.hats.state import SHARED as SHARED_FILES

_OTHER_BACKENDS = ("auto", "custom", "kiro-acp")
_PROMPT_AS_ARGUMENT = ("sh", str(Path(ralph.agents.__file__).with_name("prompt_argument.sh")))
"""Hands standard input to a program as its last argument, or as a file if it is too long for one."""
_SHOWN_WARNINGS = "shown-warnings"
"""The file in `.ralph/` with a hash of each list of warnings that a run has shown."""
_MAX_SHOWN = 100


def with_limits(preset: Preset, config: Config) -> Config:
    """The settings with the limits of the preset. A limit that only the settings have stays."""
    loop_keys, own = preset.event_loop, config.limits.model_fields_set
    iterations, seconds, cost = preset.max_iterations, preset.max_runtime, preset.max_cost
    given: dict[str, Any] = {}
    if iterations or "max_iterations" in loop_keys.model_fields_set or "iterations" not in own:
        given["iterations"] = iterations or loop_keys.max_iterations
    if seconds or "max_runtime_seconds" in loop_keys.model_fields_set or "minutes" not in own:
        given["minutes"] = (seconds or loop_keys.max_runtime_seconds) / 60
    if cost or loop_keys.max_cost_usd:
        given["cost"] = cost or loop_keys.max_cost_usd
    turn = config.turn
    if found := preset.adapters.get(preset.cli.backend or "claude"):
        turn = turn.model_copy(update={"idle_minutes": found.timeout / 60})
    return config.model_copy(update={"limits": config.limits.model_copy(update=given), "turn": turn})


@dataclass(frozen=True)
class Located:
    """A finding, with its file and line."""

    finding: PresetFinding
    place: SourceLine

    def __str__(self) -> str:
        return f"{shorten_path(str(self.place))}: {self.finding.severity}: {self.finding.what} [{self.finding.code}]"


def examine_preset(
    project: Project, preset: str | None, given: tuple[str, ...]
) -> tuple[LoadedPreset, Model, list[Located]]:
    """A preset, its model, and the findings about it."""
    loaded = load_preset(project.root, given, preset, settings_dir=project.settings_dir)
    source = find_work_source("", loaded.preset.core.specs_dir, lambda path: "")
    hats = build_settings(loaded.preset, source, checks=bool(loaded.preset.event_loop.checks))
    limits = build_limits("hats", with_limits(loaded.preset, loaded.config), RunOptions())
    return loaded, Model(loaded.preset, hats), locate_findings(loaded, loaded.preset, hats, limits, given)


def locate_findings(
    loaded: LoadedPreset, preset: Preset, hats: HatsSettings, limits: Limits, given: tuple[str, ...]
) -> list[Located]:
    """The findings about a preset, errors first, then in the order of the file. `given` are the keys set by options."""
    places = PresetFiles(((name, read_preset_file(name)) for name in loaded.files), given, read_preset_file)
    found = [Located(one, places.of(one.path)) for one in check_preset(preset, hats, limits)]
    return sorted(found, key=lambda one: (one.finding.severity, one.place.file, one.place.line))


def refuse_broken_preset(
    loaded: LoadedPreset, preset: Preset, hats: HatsSettings, limits: Limits, given: tuple[str, ...]
) -> list[str]:
    """The warnings about a preset. Raises an error if its hats cannot finish."""
    found = locate_findings(loaded, preset, hats, limits, given)
    if errors := [one for one in found if one.finding.severity is Severity.ERROR]:
        listing = "\n".join(f"{one}\n    {one.finding.todo}" for one in errors)
        todo = "correct the preset (`ralph hats check` lists all findings), or start it anyway with --unchecked"
        raise UsageError(f"the hats cannot finish:\n{listing}", where=", ".join(loaded.files), todo=todo)
    return [str(one) for one in found]


@dataclass(frozen=True)
class PresetWarnings:
    """The warnings about a preset. Runs of a project show them once, until the preset or its warnings change."""

    project: Project
    preset: str
    """The file, as the user types it."""
    warnings: tuple[str, ...]

    @property
    def _digest(self) -> str:
        return hashlib.sha256("\n".join((self.preset, *self.warnings)).encode(errors="replace")).hexdigest()

    @property
    def _command(self) -> str:
        return "`ralph hats check`" if self.preset == "ralph.yml" else f"`ralph hats check {self.preset}`"

    @property
    def _file(self) -> Path:
        return self.project.root / ".ralph" / _SHOWN_WARNINGS

    def notices(self, *, is_dry_run: bool) -> tuple[str, ...]:
        """One line for each warning, or one line for all of them if an earlier run showed them."""
        if not self.warnings:
            return ()
        if not is_dry_run and self._digest in self._read_shown():
            them = "it" if len(self.warnings) == 1 else "them"
            found = count(len(self.warnings), "warning")
            return (f"{self.preset} has {found}, as before: {self._command} shows {them}",)
        return self.warnings

    def remember(self) -> None:
        """Note that a run has shown them."""
        if self.warnings:
            digests = dict.fromkeys([*self._read_shown(), self._digest])
            write_atomic(self._file, to_bytes("".join(f"{digest}\n" for digest in [*digests][-_MAX_SHOWN:])))

    def _read_shown(self) -> list[str]:
        try:
            return read_limited(self._file).decode(errors="replace").split()
        except (OSError, StateError):
            return []


def shorten_path(path: str) -> str:
    """A path as the user types it in this directory."""
    return path.removeprefix(f"{Path.cwd()}/")


def build_hats_selection(project: Project, preset: Preset, config: Config, options: RunOptions) -> AgentSelection:
    """The agents of the run, and of hats that have an agent, a model or arguments of their own."""
    config = config if options.name_an_agent else _with_cli(config, preset)
    hats = {id: hat for id, hat in preset.hats.items() if hat.backend and hat.backend.type}
    roles = {id: _find_own_agent(hat) for id, hat in hats.items()}
    config = config.model_copy(update={"roles": {**config.roles, **roles}})
    agents = build_agent_selection(project, config, options)
    others = {id: _build_own_spec(hat, agents.chain[0], preset) for id, hat in preset.hats.items() if id not in hats}
    return replace(
        agents, roles={**agents.roles, **{id: (spec, *agents.chain[1:]) for id, spec in others.items() if spec}}
    )


def _with_cli(config: Config, preset: Preset) -> Config:
    """The settings with the agent that the preset names."""
    cli = preset.cli
    if cli.backend == "custom":
        words = _build_custom_spec(cli.command, cli.args, preset)
        return config.model_copy(update={"agent": None, "agents": (), "agent_command": shlex.join(words)})
    if preset.agent_priority and not config.agents:
        return config.model_copy(update={"agents": tuple(AgentSettings(agent=name) for name in preset.agent_priority)})
    if not cli.backend or cli.backend == "auto":
        chosen = config.agent if config.agent and config.agent.agent != "auto" else None
        return config.model_copy(update={"agent": chosen})
    agent = _read_agent_settings(cli.backend, program=cli.command, args=cli.args, model=cli.model)
    return config.model_copy(update={"agent": agent, "agents": ()})


def _read_agent_settings(backend: str, **more: Any) -> AgentSettings:
    return AgentSettings(acp="kiro-cli acp", **more) if backend == "kiro-acp" else AgentSettings(agent=backend, **more)


def _find_own_agent(hat: HatKeys) -> AgentSettings:
    """The agent that a hat names."""
    backend = hat.backend
    assert backend
    agent = ("--agent", backend.agent) if backend.agent else ()
    args = (*agent, *backend.args, *hat.backend_args)
    model = hat.model or backend.model
    return _read_agent_settings(backend.type, model=model, args=args, without_tools=hat.disallowed_tools)


def _build_own_spec(hat: HatKeys, usual: AgentSpec, preset: Preset) -> AgentSpec | None:
    """The usual agent with the changes of a hat, or the program that the hat names; None if it changes nothing."""
    if hat.backend and hat.backend.command:
        return AgentSpec(
            "command", _build_custom_spec(hat.backend.command, (*hat.backend.args, *hat.backend_args), preset)
        )
    spec = replace(
        usual,
        model=hat.model or usual.model,
        arguments=(*usual.arguments, *hat.backend_args),
        without_tools=tuple(dict.fromkeys((*usual.without_tools, *hat.disallowed_tools))),
    )
    return spec if spec != usual else None


def _build_custom_spec(program: str, args: tuple[str, ...], preset: Preset) -> tuple[str, ...]:
    """The command of any program, with its prompt on standard input or as its last argument."""
    words = (*shlex.split(program), *args)
    if preset.cli.prompt_mode == "stdin":
        return words
    flag = (preset.cli.prompt_flag,) if preset.cli.prompt_flag else ()
    return (*_PROMPT_AS_ARGUMENT, *words, *flag)


def write_settings(
    directory: Path, text: str, backend: str | None, *, force: bool, is_from_project: bool = False
) -> Path:
    """Write `ralph.yml` with these settings, and the agent if one is named.

    The user agrees to the settings by this, unless the text is from a file of the project.
    """
    refuse_inside_a_turn("an agent cannot write settings for the user", "leave that to the user")
    path = directory / "ralph.yml"
    if path.exists() and not force:
        raise UsageError("ralph.yml already exists", where=str(path), todo="--force overwrites it")
    if backend is not None:
        if backend not in _OTHER_BACKENDS:
            registry.known_name(backend)
        if "cli" in parse_layer(text, path, []):
            raise UsageError("the preset names its agent itself", todo="omit -b, and change `cli.backend` in the file")
        text += f'\ncli:\n  backend: "{backend}"\n'
    parse_layer(text, path, [])
    write_atomic(path, to_bytes(text))
    if not is_from_project:
        # The user chose this text just now, so Ralph asks about it only after it changes.
        record_written_settings(Project.around(directory))
    return path


def list_phrases(root: Path) -> list[tuple[str, str]]:
    """What each phrase of a criterion would run here."""
    return list(describe_phrases(root))


@dataclass(frozen=True)
class HatsRequest:
    """The request for a run of hats. If a field is None or empty, the preset decides."""

    prompt: str | None = None
    prompt_file: str | None = None
    preset: str | None = None
    """A preset that wins over all files."""
    given: tuple[str, ...] = ()
    """Files or single keys that win over ralph.yml."""
    completion_promise: str | None = None
    criteria: tuple[str, ...] = ()
    unchecked: bool = False


def plan_hats(project: Project, request: HatsRequest, options: RunOptions) -> NewRun:
    """Check the request for a run of hats, and turn it into a run that can be created."""
    loaded = load_preset(project.root, request.given, request.preset, settings_dir=project.settings_dir)
    preset = _with_completion(loaded.preset, request.completion_promise)
    config = with_limits(loaded.preset, loaded.config)
    objective = _read_objective(project, preset, request.prompt, request.prompt_file)
    source = find_work_source(
        objective, preset.core.specs_dir, lambda path: _look(project.work_dir / path), _name_preset(loaded)
    )
    record = build_record(
        workflow="hats",
        task=objective,
        config=config,
        options=options,
        agents=build_hats_selection(project, preset, config, options),
        project=project,
    )
    own = fill_names(preset, source, preset.event_loop.checks)
    compiled, left_out = _compile_checks(
        own, request.criteria, lambda text: compile_criterion(text, record.check_seconds, project.work_dir)
    )
    checks = tuple(dict.fromkeys(check for one in compiled for check in one.checks))
    hats = build_settings(preset, source, checks=bool(checks))
    refuse_judge(options, has_checks=bool(checks), kind="run")
    apart = options.worktree or (hats.has_waves and can_have_worktrees(project.root))
    refuse_landing(options, on_own_branch=apart)
    warnings = list(loaded.notices)
    notices = [*dict.fromkeys(note for one in compiled for note in one.notes), *left_out]
    notices += [*_list_source_notices(hats, checks=bool(checks)), *_list_parallel_notices(hats, apart=apart)]
    why_not = _explain_no_checkpoints(project, snapshots=record.snapshots, in_worktree=apart)
    if hats.checkpoint and why_not:
        hats = replace(hats, checkpoint=0)
        notices.append(f"Ralph does not commit checkpoints: {why_not}; Ralph still takes a snapshot after every turn")
    if not request.unchecked:
        # The user chose a limit on iterations knowingly, and `ralph resume` continues after it.
        allowed = replace(record.limits, iterations=None) if options.max_iterations else record.limits
        warnings += refuse_broken_preset(loaded, preset, hats, allowed, request.given)
    shown = PresetWarnings(project, shorten_path(loaded.files[-1]) if loaded.files else "the settings", tuple(warnings))
    patterns = fill_names(preset, source, preset.event_loop.scope)
    scope = tuple(rebase_glob(glob, project.directory) for glob in patterns)
    record = _with_hats(record, hats, checks, scope, project.work_dir, _choose_max_parallel(hats, config, options))
    notices += check_start(project, config, record)
    return NewRun(
        project=project,
        record=record,
        location=WorkLocation.WORKTREE if apart else WorkLocation.HERE,
        notices=(*shown.notices(is_dry_run=options.dry_run), *notices),
        criteria_typed=request.criteria,
        files=tuple(loaded.files),
        prepare=partial(_become_latest, shown),
    )


def _with_completion(preset: Preset, completion: str | None) -> Preset:
    """The preset with the completion promise that `--completion-promise` names."""
    if completion is None:
        return preset
    if not completion.strip():
        raise UsageError("--completion-promise is empty", todo="use a word that a hat publishes when the work is done")
    return preset.model_copy(update={"completion_promise": completion.strip()})


def _with_hats(
    record: RunRecord,
    hats: HatsSettings,
    checks: tuple[Check, ...],
    scope: tuple[str, ...],
    root: Path,
    most: int | None,
) -> RunRecord:
    """The record with the hats, what is checked, and how many turns there may be at once."""
    if scope and not record.snapshots:
        raise UsageError("`event_loop.scope` needs snapshots", todo="omit --no-snapshots (`snapshots: true`)")
    return replace(
        record,
        criterion=" AND ".join(check.title for check in checks),
        checks=checks,
        slots=replace(record.slots, run=most or record.slots.run),
        loop=LoopRunSettings(scope=scope, inputs=hash_inputs(checks, root)),
        hats=hats,
    )


def _compile_checks(
    own: Sequence[str], given: Sequence[str], compile_text: Callable[[str], Criterion]
) -> tuple[list[Criterion], list[str]]:
    """The checks of the preset and of the options, and a notice for each check that is left out.

    A phrase of the preset that means nothing in this repository is left out if the user gave checks.
    """
    asked, left_out = [], []
    for text in dict.fromkeys((*own, *given)):
        where = "--check" if text in given else "event_loop.checks"
        try:
            asked.append(compile_text(text))
        except UsageError as error:
            if isinstance(error, NoCommandError) and given and text not in given:
                left_out.append(f"`{text}` of the preset is ignored, and your --check counts instead: {error.what}")
                continue
            raise UsageError(error.what, where=where, todo=error.todo.replace("--until", "--check")) from None
    return asked, left_out


def _read_objective(project: Project, preset: Preset, prompt: str | None, prompt_file: str | None) -> str:
    """What is to be done: by option, by preset, or in `PROMPT.md`."""
    if prompt is not None and prompt_file is not None:
        raise UsageError("-p and -P cannot be used together", todo="use only one of them")
    text = prompt
    if text is None and prompt_file is None:
        text = preset.event_loop.prompt or None
    if text is None:
        named = prompt_file or preset.prompt_file or preset.event_loop.prompt_file or "PROMPT.md"
        path = (Path.cwd() if prompt_file else project.settings_dir) / named
        if not prompt_file and path.is_symlink() and not is_inside(path, project.root):
            # It may have come with a clone, and agents send their prompts to a model.
            what = f"{named} is a link that leads out of the project, to {path.resolve()}"
            raise UsageError(what, where=str(path), todo=f"if you want that, name it yourself: ralph run -P {named}")
        try:
            text = read_limited(path, 256 * 1024, follow=True).decode(errors="replace")
        except (OSError, StateError) as error:
            todo = f'say what to do: ralph run -p "...", or write it into {named}'
            why = error.strerror if isinstance(error, OSError) else error.what
            raise UsageError(f"there is no objective: {why}", where=str(path), todo=todo) from error
    if not text.strip():
        raise UsageError("the objective is empty", todo='say what to do: ralph run -p "..."')
    return text.strip()


def _name_preset(loaded: LoadedPreset) -> str:
    """The preset by the name of its file; in the project's own settings, where it has no name, by its hats."""
    name = Path(loaded.files[-1]).stem if loaded.files else ""
    return name if name not in ("", "ralph", "config") else ",".join(sorted(loaded.preset.hats))


def _look(path: Path) -> str:
    """What a path of the objective is: a file, or a directory with a plan or tasks in it."""
    signs = ("plan.md", "design.md", "context.md", "tasks")
    if path.is_dir():
        return "directory" if any((path / sign).exists() for sign in signs) else ""
    return "file" if path.is_file() else ""


def _list_source_notices(hats: HatsSettings, *, checks: bool) -> Iterator[str]:
    if hats.documents:
        yield f"the objective is a {hats.source}: the hats share their documents in {hats.documents}"
    if not checks:
        yield "there are no checks (--check, event_loop.checks): Ralph cannot verify the work, and relies on the hats"


def _list_parallel_notices(hats: HatsSettings, *, apart: bool) -> Iterator[str]:
    """What to expect of a run with waves."""
    if hats.has_waves and apart:
        yield "hats work in parallel: each has a worktree, and Ralph merges their work on one branch"
    elif hats.has_waves:
        yield "one turn at a time: worktrees need a git repository with a commit"
    pads = {hats.scratchpad, *(hat.scratchpad for hat in hats.hats)}
    if apart and (unseen := [pad for pad in pads if pad and not pad.startswith(SHARED_FILES)]):
        yield f"the prompts do not contain {', '.join(unseen)}: in worktrees, they show only scratchpads in {SHARED_FILES}"


def _choose_max_parallel(hats: HatsSettings, config: Config, options: RunOptions) -> int | None:
    """How many turns may run at once: what the hats say, unless an option or the settings decide."""
    most = max((hat.concurrency for hat in hats.hats), default=1)
    return None if options.parallel or "run" in config.slots.model_fields_set else max(most, 1)


def _explain_no_checkpoints(project: Project, *, snapshots: bool, in_worktree: bool) -> str:
    """Why the work cannot be committed between turns; empty if it can."""
    if not snapshots:
        return "no snapshots are taken"
    place = find_repository(project.root) if shutil.which("git") else None
    if place is None:
        return "there is no git repository"
    if in_worktree:
        return ""
    if not read_head(place.git).startswith(HEADS):
        return "HEAD is detached"
    dirty = list_uncommitted_files(place)
    return f"you have uncommitted changes ({', '.join(dirty[:3])})" if dirty else ""


def _become_latest(warnings: PresetWarnings, project: Project, run: RunDir) -> Callable[[], None]:
    """Make a run the one that tools find; move the scratchpads of earlier runs aside unless one of them is alive.

    The run shows the warnings about its preset, so later runs need not show them.

    Returns what undoes it.
    """
    warnings.remember()
    back, hats = ExitStack(), build_hats_workflow(run.record(), project.root)
    for name, text in (("current-events", f".ralph/events-{run.id}.jsonl"), ("current-loop-id", run.id)):
        path = project.root / ".ralph" / name
        back.callback(write_atomic, path, read_limited(path)) if path.is_file() else back.callback(remove, path)
        write_atomic(path, to_bytes(f"{text}\n"))
    if any(one.alive for one in project.runs()):
        return back.close
    for pad in (project.root / pad for pad in hats.context.scratchpads):
        if pad.is_file():
            aside = run.path / "before" / pad.relative_to(project.root).as_posix().replace("/", "-")
            aside.parent.mkdir(exist_ok=True)
            os.rename(pad, aside)
            back.callback(os.rename, aside, pad)
    return back.close
