"""`ralph run`: hats that work on one objective, event by event, until it is done."""

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from ralph.app.create_run import Ground, create_run
from ralph.app.hats import hats_workflow
from ralph.app.preset_options import hats_crew, with_limits
from ralph.app.run_options import RunOptions, build_record, refuse_landing
from ralph.app.start_checks import start_notices
from ralph.cli.console import here
from ralph.cli.engine import begin, refuse_inside_a_turn
from ralph.cli.hats_findings import refuse_broken_preset
from ralph.cli.options import options_from, run_options
from ralph.cli.plan import show_plan
from ralph.cli.trust import ask_consent
from ralph.core.checks import Check
from ralph.core.errors import NoCommandError, StateError, UsageError
from ralph.documents.config import Config
from ralph.documents.hats.definition import HatsSettings
from ralph.documents.hats.preset import Preset
from ralph.documents.hats.reading import filled, settings
from ralph.documents.hats.source import Source, source_of
from ralph.documents.run_record import LoopSettings, RunRecord
from ralph.git.commits import clean_for_commit
from ralph.git.history import HEADS, head_of
from ralph.git.repository import repository
from ralph.git.worktree import can_have_worktrees
from ralph.store.files import read_limited, remove, to_bytes, write_atomic
from ralph.store.presets import load_preset
from ralph.store.runs import Project, RunDir
from ralph.verify.criterion import Criterion, compile_criterion
from ralph.verify.run_findings import hash_inputs
from ralph.workflows.hats.prompt import SHARED as SHARED_FILES


@click.command("run")
@click.option(
    "-c",
    "--config",
    "given",
    multiple=True,
    metavar="FILE|KEY=VALUE",
    help="A file or one key that wins over ralph.yml.",
)
@click.option(
    "-H",
    "--hats",
    metavar="FILE|NAME",
    help="A preset that wins over all files: a file, or a name from `ralph hats list`.",
)
@click.option("-p", "--prompt", help="The objective. `-` reads standard input.")
@click.option("-P", "--prompt-file", help="The file with the objective. Default: PROMPT.md.")
@click.option("-b", "--backend", help="The same as --agent.")
@click.option("--completion-promise", help="The event or last line that says that all is done. Default: LOOP_COMPLETE.")
@click.option("--check", "criteria", multiple=True, help="A criterion beside those of the preset, as in --until.")
@click.option("--unchecked", is_flag=True, help="Start even if `ralph hats check` finds errors in the preset.")
@run_options
def command(
    given: tuple[str, ...],
    hats: str | None,
    prompt: str | None,
    prompt_file: str | None,
    backend: str | None,
    completion_promise: str | None,
    criteria: tuple[str, ...],
    unchecked: bool,
    **more: Any,
) -> int:
    """Let the hats of ralph.yml work on an objective, one turn for each event, until it is done and verified.

    \b
    ralph init --preset code-assist && ralph run -p "Add --verbose to the CLI" --check 'tests pass'
    """
    refuse_inside_a_turn()
    project = here()
    loaded = load_preset(project.root, given, hats)
    preset, config = _with_promise(loaded.preset, completion_promise), with_limits(loaded.preset, loaded.config)
    objective = _objective(project, preset, prompt, prompt_file)
    source = source_of(objective, preset.core.specs_dir, lambda path: _look(project.root / path))
    options = options_from(more)
    options = replace(options, agents=(*options.agents, *([backend] if backend else [])))
    record = build_record("hats", objective, config, options, hats_crew(project, preset, config, options))
    own = filled(preset, source, preset.event_loop.checks)
    asked, left_out = _asked(own, criteria, lambda text: compile_criterion(text, record.check_seconds, project.root))
    checks = tuple(dict.fromkeys(check for one in asked for check in one.checks))
    wearing = settings(preset, source, checks=bool(checks))
    apart = options.worktree or (wearing.has_waves and can_have_worktrees(project.root))
    refuse_landing(options, on_own_branch=apart)
    notices = [*loaded.notices, *dict.fromkeys(note for one in asked for note in one.notes), *left_out]
    notices += [*_told(source, checks=bool(checks)), *_side_by_side(wearing, apart=apart)]
    why_not = _no_checkpoints(project, snapshots=record.snapshots, in_worktree=apart)
    if wearing.checkpoint and why_not:
        wearing = replace(wearing, checkpoint=0)
        notices.append(f"checkpoints are not committed: {why_not}; every turn is recorded as a snapshot all the same")
    if not unchecked:
        # Whoever asks for a few turns by option means them, and goes on with `ralph resume`.
        allowed = replace(record.limits, iterations=None) if options.max_iterations else record.limits
        notices += refuse_broken_preset(loaded, preset, wearing, allowed, given)
    scope = filled(preset, source, preset.event_loop.scope)
    record = _with_hats(record, wearing, checks, scope, project.root, _most_at_once(wearing, config, options))
    notices += start_notices(project, config, record)
    if more["dry_run"]:
        return show_plan(project, record, tuple(notices), as_json=more["as_json"])
    ask_consent(project, record, typed=criteria, files=loaded.files, yes=more["yes"])
    run, said = create_run(project, record, Ground.WORKTREE if apart else Ground.HERE)
    back, told = _take_the_floor(project, run, record), (*said, *notices)
    return begin(project, run, told, back.close, detached=more["detached"], as_json=more["as_json"])


def _with_promise(preset: Preset, promise: str | None) -> Preset:
    """The preset with the word that an option gives it."""
    if promise is None:
        return preset
    if not promise.strip():
        raise UsageError("--completion-promise is empty", todo="give a word that hats say when all is done")
    return preset.model_copy(update={"completion_promise": promise.strip()})


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
        raise UsageError("`event_loop.scope` needs snapshots", todo="leave --no-snapshots out (`snapshots: true`)")
    return replace(
        record,
        criterion=" AND ".join(check.title for check in checks),
        checks=checks,
        slots=replace(record.slots, run=most or record.slots.run),
        loop=LoopSettings(scope=scope, inputs=hash_inputs(checks, root)),
        hats=hats,
    )


def _asked(
    own: Sequence[str], given: Sequence[str], compiled: Callable[[str], Criterion]
) -> tuple[list[Criterion], list[str]]:
    """The checks of the preset and those that are given beside them, and what is said of those that are left out.

    A phrase of the preset that means nothing in this repository is, where a person says what does.
    """
    asked, left_out = [], []
    for text in dict.fromkeys((*own, *given)):
        where = "--check" if text in given else "event_loop.checks"
        try:
            asked.append(compiled(text))
        except UsageError as error:
            if isinstance(error, NoCommandError) and given and text not in given:
                left_out.append(f"`{text}` of the preset is left out, --check stands for it: {error.what}")
                continue
            raise UsageError(error.what, where=where, todo=error.todo.replace("--until", "--check")) from None
    return asked, left_out


def _objective(project: Project, preset: Preset, prompt: str | None, prompt_file: str | None) -> str:
    """What is to be done: by option, by preset, or in `PROMPT.md`."""
    if prompt is not None and prompt_file is not None:
        raise UsageError("-p and -P exclude each other", todo="give one of them")
    text = sys.stdin.read() if prompt == "-" else prompt
    if text is None and prompt_file is None:
        text = preset.event_loop.prompt or None
    if text is None:
        named = prompt_file or preset.prompt_file or preset.event_loop.prompt_file or "PROMPT.md"
        path = (Path.cwd() if prompt_file else project.root) / named
        try:
            text = read_limited(path, 256 * 1024, follow=True).decode(errors="replace")
        except (OSError, StateError) as error:
            todo = f'say what is to be done: ralph run -p "...", or write it into {named}'
            why = error.strerror if isinstance(error, OSError) else error.what
            raise UsageError(f"there is no objective: {why}", where=str(path), todo=todo) from error
    if not text.strip():
        raise UsageError("the objective is empty", todo='say what is to be done: ralph run -p "..."')
    return text.strip()


def _look(path: Path) -> str:
    """What a path of the objective is: a file, or a directory with a plan or tasks in it."""
    signs = ("plan.md", "design.md", "context.md", "tasks")
    if path.is_dir():
        return "directory" if any((path / sign).exists() for sign in signs) else ""
    return "file" if path.is_file() else ""


def _told(source: Source, *, checks: bool) -> Iterator[str]:
    yield f"a {source.kind}: the hats share their documents in {source.documents}"
    if not checks:
        yield "no checks are given (--check, event_loop.checks): the engine can verify nothing, and believes the hats"


def _side_by_side(hats: HatsSettings, *, apart: bool) -> Iterator[str]:
    """Where a run with waves works."""
    if hats.has_waves and apart:
        yield "hats work side by side, so each has a worktree, and all that they do comes together on a branch"
    elif hats.has_waves:
        yield "one turn at a time: worktrees need a git repository with a commit"
    pads = {hats.scratchpad, *(hat.scratchpad for hat in hats.hats)}
    if apart and (unseen := [pad for pad in pads if pad and not pad.startswith(SHARED_FILES)]):
        yield f"{', '.join(unseen)} stays in a worktree: prompts show scratchpads only from {SHARED_FILES} there"


def _most_at_once(hats: HatsSettings, config: Config, options: RunOptions) -> int | None:
    """How many turns a run may have at once: what its hats say, unless an option or the settings do."""
    most = max((hat.concurrency for hat in hats.hats), default=1)
    return None if options.parallel or "run" in config.slots.model_fields_set else max(most, 1)


def _no_checkpoints(project: Project, *, snapshots: bool, in_worktree: bool) -> str:
    """Why the work cannot be committed between turns; empty where it can."""
    if not snapshots:
        return "no snapshots are taken"
    place = repository(project.root) if shutil.which("git") else None
    if place is None:
        return "there is no git repository"
    if in_worktree:
        return ""
    if not head_of(place.git).startswith(HEADS):
        return "HEAD is detached"
    dirty = clean_for_commit(place)
    return f"there are uncommitted changes of yours ({', '.join(dirty[:3])})" if dirty else ""


def _take_the_floor(project: Project, run: RunDir, record: RunRecord) -> ExitStack:
    """Be the latest run for those who look; scratchpads of earlier ones go aside, unless somebody still works with them.

    What is returned puts it all back where it is closed.
    """
    back, hats = ExitStack(), hats_workflow(record, project.root)
    for name, text in (("current-events", f".ralph/events-{run.id}.jsonl"), ("current-loop-id", run.id)):
        path = project.root / ".ralph" / name
        back.callback(write_atomic, path, read_limited(path)) if path.is_file() else back.callback(remove, path)
        write_atomic(path, to_bytes(f"{text}\n"))
    if any(one.alive for one in project.runs()):
        return back
    for pad in (project.root / pad for pad in hats.scratchpads):
        if pad.is_file():
            aside = run.path / "before" / pad.relative_to(project.root).as_posix().replace("/", "-")
            aside.parent.mkdir(exist_ok=True)
            os.rename(pad, aside)
            back.callback(os.rename, aside, pad)
    return back
