"""What of a project can start a program: what the user is shown and agrees to before anything runs."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ralph.agents import plugins, registry
from ralph.core.checks import Check
from ralph.core.errors import AgentUnavailableError, RalphError
from ralph.documents.config import Config, read_yaml
from ralph.documents.run_record import Crew
from ralph.store.files import read_limited, to_text
from ralph.store.trust import Item

_LIMITS_ONLY = frozenset(
    (
        *("limits", "turn", "check_timeout", "max_steps", "slots", "retention", "permissions"),
        *("max_iterations", "max_runtime", "max_cost", "tui", "verbose", "_suppress_warnings"),
    )
)
"""The keys of ralph.yml that neither start anything nor lower a protection. All others have to be agreed to."""
_DIRECTORIES = (".ralph/prompts", ".ralph/roles")
_READ_ON_RESUME = ("notify",)
"""The keys of ralph.yml that a run reads again when it goes on; the others were fixed when it was created."""


def items_to_start(
    root: Path, crew: Crew, checks: Sequence[Check], typed: Sequence[str], files: Sequence[str]
) -> list[Item]:
    """What a new run reads and starts. Check commands that the user typed themselves are agreed to by typing them."""
    commands = dict.fromkeys(check.command for check in checks if check.command)
    return [
        *_agents(crew),
        *(Item(f"check {one}", one) for one in commands if not any(one in text for text in typed)),
        *project_items(root, files),
    ]


def items_of_project(root: Path, config: Config) -> list[Item]:
    """What a run with nothing but the project's own settings reads and starts."""
    try:
        crew = registry.crew(config, names=(), command=None, scenario_file=None, cwd=root)
    except AgentUnavailableError:  # there is no agent to agree to; a run says how to get one
        return project_items(root)
    return [*_agents(crew), *project_items(root)]


def items_to_resume(root: Path) -> list[Item]:
    """What a run reads again when it goes on."""
    return [*_settings(root, _READ_ON_RESUME), *_files(root)]


def project_items(root: Path, files: Sequence[str] = ()) -> list[Item]:
    """What is in the project: its settings, its prompts and roles, and the presets that are read."""
    inside = [Path(file).resolve() for file in files]
    presets = [path for path in inside if path.is_relative_to(root) and path != root / "ralph.yml" and path.is_file()]
    imports = [other for path in presets for other in _imports(path, read_yaml(to_text(read_limited(path)), str(path)))]
    return [*_settings(root), *_files(root), *(_file(root, path) for path in (*presets, *imports) if path.is_file())]


def _agents(crew: Crew) -> Iterator[Item]:
    claimed = plugins.claims() if any(spec.kind not in ("command", "acp") for spec in crew.everyone.values()) else {}
    for label, spec in crew.everyone.items():
        yield Item(f"agent {label}", label)
        for entry in claimed.get(spec.kind, ()):
            package = f"{entry.dist.name} {entry.dist.version}" if entry.dist else "an unnamed package"
            yield Item(f"plug-in {entry.name}", f"{entry.value} of {package}")


def _settings(root: Path, only: Sequence[str] = ()) -> Iterator[Item]:
    """The keys of ralph.yml that can start something, each with its lines; and the files that they name."""
    path = root / "ralph.yml"
    if not path.is_file():
        return
    text = to_text(read_limited(path, follow=True))
    data = read_yaml(text, str(path))
    lines = text.splitlines()
    starts = [data.lc.data[key][0] if key in data.lc.data else 0 for key in data]
    for key, start, end in zip(data, starts, [*starts[1:], len(lines)], strict=True):
        if (key in _LIMITS_ONLY and not _lifts_cost_limit(data[key])) or (only and key not in only):
            continue
        value = json.dumps(data[key], default=str)
        yield Item(f"ralph.yml: {key}", "\n".join(lines[start:end]).rstrip(), value)
    if not only:
        scenario = [root / str(data["scenario"])] if data.get("scenario") else []
        yield from (_file(root, other) for other in (*_imports(path, data), *scenario) if other.is_file())


def _lifts_cost_limit(value: object) -> bool:
    """Whether a section of limits lets a run start although its limit on cost cannot hold."""
    return isinstance(value, dict) and bool(value.get("allow_unpriced"))


def _imports(path: Path, data: Mapping[str, Any]) -> list[Path]:
    """The files whose hats a file imports."""
    hats = data.get("hats")
    found = [hat["import"] for hat in hats.values() if isinstance(hat, dict) and "import" in hat] if hats else []
    return [path.parent / str(name) for name in dict.fromkeys(found)]


def _files(root: Path) -> Iterator[Item]:
    for directory in _DIRECTORIES:
        for path in sorted((root / directory).glob("*.md")):
            yield _file(root, path)


def _file(root: Path, path: Path) -> Item:
    name = path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)
    try:
        return Item(name, to_text(read_limited(path, follow=True)))
    except (RalphError, OSError) as error:
        return Item(name, f"(cannot be read: {error})")
