"""The findings of `ralph hats check` with their files and lines, and the warnings that a run shows when it starts."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ralph.app.run_options import RunOptions, build_limits
from ralph.core.checks import Severity
from ralph.core.errors import StateError, UsageError
from ralph.core.limits import Limits
from ralph.core.text import count
from ralph.documents.config import Config
from ralph.documents.hats.definition import HatsSettings, find_work_source
from ralph.documents.hats.preset import Preset
from ralph.documents.hats.reading import PresetFiles, SourceLine, build_settings
from ralph.store.files import read_limited, to_bytes, write_atomic
from ralph.store.presets import LoadedPreset, load_preset, read_preset_file
from ralph.store.runs import Project
from ralph.workflows.hats.preset_checks import check_preset
from ralph.workflows.hats.preset_model import Model, PresetFinding

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
