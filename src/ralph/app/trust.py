"""Consent: what of a project can start a program, and whether the user agreed to exactly that.

An interface gets a `Consent`, shows what is new in it, asks the user and calls `give`. Starting and continuing a run refuse if
consent is missing, so no interface can forget the question.
"""

import hashlib
import json
import os
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import PathFinder
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

from ralph.agents import registry, third_party
from ralph.app.sandbox import open_sandbox
from ralph.core.errors import AgentUnavailableError, RalphError, UsageError
from ralph.documents.config import Config, read_yaml
from ralph.documents.run_record import AgentSelection, AgentSpec, RunRecord
from ralph.git.command import find_repository
from ralph.git.programs import list_new_programs
from ralph.store.files import read_limited, to_text
from ralph.store.runs import SETTINGS, Project
from ralph.store.settings import load_config, load_user_settings, user_settings_path
from ralph.store.user_state import Item, find_new, record_trust
from ralph.verify.toolchains import EXAMPLES, find_commands

_LIMITS_ONLY = frozenset(
    (
        *("limits", "turn", "check_timeout", "max_steps", "slots", "retention", "permissions", "sandbox", "pool"),
        *("max_iterations", "max_runtime", "max_cost", "tui", "verbose", "_suppress_warnings"),
    )
)
"""The keys of ralph.yml that neither start anything nor lower a protection. All others have to be agreed to."""
_DIRECTORIES = (".ralph/prompts", ".ralph/roles")
_READ_ON_RESUME = ("notify",)
"""The keys of ralph.yml that a run reads again when it continues; the others were fixed when it was created."""


@dataclass(frozen=True)
class Consent:
    """What the user has to agree to before a run starts or continues."""

    root: Path
    new: tuple[tuple[Item, str | None], ...]
    """What the user has not agreed to yet, each with the text that they agreed to before, if any."""
    about: str
    """What the consent means."""

    @property
    def is_required(self) -> bool:
        """Whether the user has to be asked. `permissions: full-auto` in the user's own settings agrees to everything."""
        return bool(self.new) and load_user_settings().permissions != "full-auto"

    @property
    def digest(self) -> str:
        """A short name of what the user is shown. It is another one if anything of it changes."""
        shown = [self.about, *([item.name, item.text] for item, _ in self.new)]
        return hashlib.sha256(json.dumps(shown).encode()).hexdigest()[:24]

    @property
    def todo(self) -> str:
        """How to agree without a terminal."""
        return (
            f"answer once in a terminal, pass --yes, or set `permissions: full-auto` in {user_settings_path()};"
            " `permissions` in a repository has no effect"
        )

    def give(self) -> None:
        """Record that the user agreed."""
        record_trust(self.root, (item for item, _ in self.new))


def find_consent_to_start(
    project: Project, record: RunRecord, criteria_typed: Sequence[str], files: Sequence[str]
) -> Consent:
    """The consent that a run needs before its agents and checks start.

    Check commands that the user typed are agreed to by typing them. `files` are the settings and presets that were read.
    """
    root = project.root
    commands = dict.fromkeys(check.command for check in record.checks if check.command)
    items = [
        *_list_agents(record.agents),
        *_list_scripts(root, record.agents, _list_setup_commands(record)),
        *(Item(f"check {one}", one) for one in commands if not any(one in text for text in criteria_typed)),
        *list_project_items(root, files, settings_dir=project.find_settings_dir(record.directory)),
        *_list_git_programs(root),
    ]
    push = "It may push to remotes." if record.push else "It cannot push to remotes."
    undo = f"Snapshots are off: you cannot undo its changes in {root}."
    if record.snapshots:
        undo = f"Ralph records its changes in {root} after every turn; `ralph undo` undoes them."
    reach = "An agent can read and change every file that you can, and run any program."
    if open_sandbox(record.sandbox, os.environ, record.agents).is_on:
        reach = f"An agent can change every file in {root}, run any program, and use the network. It cannot change other files."
    about = f"{reach} {push}\n{undo}"
    return Consent(root, tuple(find_new(root, items)), about)


def find_consent_to_resume(project: Project, record: RunRecord) -> Consent:
    """The consent that a run needs to continue. It covers what the run reads again: the scripts behind its commands, too."""
    root = project.root
    settings_dir = project.find_settings_dir(record.directory)
    items = [
        *_list_settings(root, settings_dir, _READ_ON_RESUME),
        *_list_files(root),
        *_list_scripts(root, record.agents, _list_setup_commands(record)),
    ]
    return Consent(root, tuple(find_new(root, items)), f"Runs in {root} read this.")


def find_consent_to_project(project: Project) -> Consent:
    """The consent to a run with only the project's own settings, and to what phrases such as `tests pass` run here."""
    root, config = project.root, load_config(project.settings_dir)
    items = [*_list_project_agents(project, config)]
    for kind in EXAMPLES:
        items += [Item(f"check {one.command}", one.command) for one in find_commands(kind, project.work_dir)]
    items += list_project_items(root, settings_dir=project.settings_dir)
    return Consent(root, tuple(find_new(root, dict.fromkeys(items))), "")


def record_written_settings(project: Project) -> None:
    """Record that the user agreed to a `ralph.yml` that Ralph wrote for them.

    Other files of the project are not covered, not even those that the settings name: nobody has shown them to the user.
    """
    path = project.settings_dir / SETTINGS
    if path.is_file():
        record_trust(project.root, _list_keys(project.root, path))


def refuse_without_consent(consent: Consent) -> None:
    """Refuse to start what the user has not agreed to."""
    if consent.is_required:
        names = ", ".join(item.name for item, _ in consent.new)
        raise UsageError(f"you have not agreed to this yet: {names}", where=str(consent.root), todo=consent.todo)


def _list_git_programs(root: Path) -> Iterator[Item]:
    """The filters, drivers and hooks of the repository that were not there when the latest run started."""
    repository = find_repository(root) if shutil.which("git") else None
    if repository is not None:
        yield from (Item(name, text) for name, text in list_new_programs(repository.git).items())


def _list_project_agents(project: Project, config: Config) -> Iterator[Item]:
    root, cwd = project.root, project.settings_dir
    try:
        selection = registry.select_agents(config, names=(), command=None, scenario_file=None, cwd=cwd)
    except AgentUnavailableError:  # there is no agent to agree to; a run says how to get one
        yield from _list_scripts(root, None, config.setup_commands)
        return
    yield from _list_agents(selection)
    yield from _list_scripts(root, selection, config.setup_commands)


def list_project_items(root: Path, files: Sequence[str] = (), *, settings_dir: Path) -> list[Item]:
    """What Ralph reads of the project: its settings, prompts and roles, and the presets in `files`."""
    own = settings_dir / SETTINGS
    inside = [Path(file).resolve() for file in files]
    presets = [path for path in inside if path.is_relative_to(root) and path != own and path.is_file()]
    paths = list(presets)
    for path in presets:
        paths += _imports(path, read_yaml(to_text(read_limited(path)), str(path)).data)
    items = [_read_item(root, path) for path in paths if path.is_file()]
    return [*_list_settings(root, settings_dir), *_list_files(root), *items]


def _list_agents(selection: AgentSelection) -> Iterator[Item]:
    for label, spec in selection.by_label.items():
        yield Item(f"agent {label}", label)
        for entry in _list_plugins(spec):
            package = f"{entry.dist.name} {entry.dist.version}" if entry.dist else "an unnamed package"
            yield Item(f"plugin {entry.name}", f"{entry.value} of {package}")


def _list_plugins(spec: AgentSpec) -> Sequence[EntryPoint]:
    """The plugins that claim to be an agent. Programs that the user names need none, so none is looked for."""
    if spec.kind in ("command", "acp"):
        return ()
    return third_party.find_entry_points().get(spec.kind, ())


def _list_setup_commands(record: RunRecord) -> tuple[str, ...]:
    return (*record.tree_settings.setup, *record.room.setup, *record.room.services)


def _list_scripts(root: Path, selection: AgentSelection | None, setup: Sequence[str]) -> list[Item]:
    """The files of the project that commands of agents and of the setup name, and plugins that are in the project.

    A pull can change them behind a command that stays the same. The scripts of checks are not among them: an agent may
    have to change them, and the guards judge that.
    """
    arguments: list[str] = []
    sources: list[Path | None] = []
    for spec in selection.by_label.values() if selection else ():
        arguments += [*spec.command, *spec.arguments]
        sources += [_find_source(entry) for entry in _list_plugins(spec)]
    for command in setup:
        arguments += _split_command(command)
    # An option and its path can be one argument: --config=tools/agent.toml.
    names = [*arguments, *(argument.rpartition("=")[2] for argument in arguments)]
    paths = [*(Path(os.path.normpath(root / name)) for name in names if name), *filter(None, sources)]
    inside = dict.fromkeys(path for path in paths if path.is_relative_to(root) and path.is_file())
    return [_read_item(root, path) for path in inside]


def _split_command(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:
        return command.split()


def _find_source(entry: EntryPoint) -> Path | None:
    """The file of a plugin's module. The module is not imported for it: that would start it."""
    package, *rest = entry.module.split(".")
    spec = PathFinder.find_spec(package)
    if spec is None:
        return None
    if rest and spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations)), *rest).with_suffix(".py")
    return Path(spec.origin) if spec.origin else None


def _list_settings(root: Path, settings_dir: Path, only: Sequence[str] = ()) -> Iterator[Item]:
    """The keys of ralph.yml that can start something, each with its lines; and the files that they name."""
    path = settings_dir / SETTINGS
    if not path.is_file():
        return
    yield from _list_keys(root, path, only)
    if not only:
        data = read_yaml(to_text(read_limited(path, follow=True)), str(path)).data
        scenario = [settings_dir / str(data["scenario"])] if data.get("scenario") else []
        yield from (_read_item(root, other) for other in (*_imports(path, data), *scenario) if other.is_file())


def _list_keys(root: Path, path: Path, only: Sequence[str] = ()) -> Iterator[Item]:
    name = path.relative_to(root).as_posix()
    text = to_text(read_limited(path, follow=True))
    document = read_yaml(text, str(path))
    data = document.data
    lines = text.splitlines()
    starts = [document.line_of([key]) - 1 for key in data]
    for key, start, end in zip(data, starts, [*starts[1:], len(lines)], strict=True):
        if (key in _LIMITS_ONLY and not _lifts_cost_limit(data[key])) or (only and key not in only):
            continue
        value = json.dumps(data[key], default=str)
        yield Item(f"{name}: {key}", "\n".join(lines[start:end]).rstrip(), value)


def _lifts_cost_limit(value: object) -> bool:
    """Whether a section of limits lets a run start although its limit on cost cannot hold."""
    return isinstance(value, dict) and bool(value.get("allow_unpriced"))


def _imports(path: Path, data: Mapping[str, Any]) -> list[Path]:
    """The files whose hats a file imports."""
    names: list[str] = []
    for hat in (data.get("hats") or {}).values():
        if isinstance(hat, dict) and "import" in hat:
            names.append(str(hat["import"]))
    return [path.parent / name for name in dict.fromkeys(names)]


def _list_files(root: Path) -> Iterator[Item]:
    for directory in _DIRECTORIES:
        for path in sorted((root / directory).glob("*.md")):
            yield _read_item(root, path)


def _read_item(root: Path, path: Path) -> Item:
    name = path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)
    try:
        return Item(name, to_text(read_limited(path, follow=True)))
    except (RalphError, OSError) as error:
        return Item(name, f"(cannot be read: {error})")
