"""The findings about a preset with the files and lines that they are about."""

from dataclasses import dataclass
from pathlib import Path

import click

from ralph.app.preset_options import with_limits
from ralph.app.run_options import RunOptions, build_limits
from ralph.cli.console import here
from ralph.core.errors import UsageError
from ralph.core.limits import Limits
from ralph.documents.hats.definition import HatsSettings
from ralph.documents.hats.places import Place, Places
from ralph.documents.hats.preset import Preset
from ralph.documents.hats.reading import settings as run_settings
from ralph.documents.hats.source import source_of
from ralph.store.presets import Loaded, load_preset, text_at
from ralph.workflows.hats.checking import check_preset
from ralph.workflows.hats.checking.findings import Finding, Severity
from ralph.workflows.hats.checking.model import Model

GIVEN = click.option("-c", "--config", "given", multiple=True, metavar="FILE|KEY=VALUE", help="As in `ralph run`.")


@dataclass(frozen=True)
class Located:
    """A finding, and where in which file it is."""

    finding: Finding
    place: Place

    def __str__(self) -> str:
        return f"{shorten_path(str(self.place))}: {self.finding.severity}: {self.finding.what} [{self.finding.code}]"


def examine_preset(preset: str | None, given: tuple[str, ...]) -> tuple[Loaded, Model, list[Located]]:
    """A preset, its model, and what is wrong with it."""
    loaded = load_preset(here().root, given, preset)
    source = source_of("", loaded.preset.core.specs_dir, lambda path: "")
    hats = run_settings(loaded.preset, source, checks=bool(loaded.preset.event_loop.checks))
    limits = build_limits("hats", with_limits(loaded.preset, loaded.config), RunOptions())
    return loaded, Model(loaded.preset, hats), locate_findings(loaded, loaded.preset, hats, limits, given)


def locate_findings(
    loaded: Loaded, preset: Preset, settings: HatsSettings, limits: Limits, given: tuple[str, ...]
) -> list[Located]:
    """What is wrong with a preset, errors first, then in the order of the file; `given` are the keys set by options."""
    places = Places(((name, text_at(name)) for name in loaded.files), given, text_at)
    found = [Located(one, places.of(one.path)) for one in check_preset(preset, settings, limits)]
    return sorted(found, key=lambda one: (one.finding.severity, one.place.file, one.place.line))


def refuse_broken_preset(
    loaded: Loaded, preset: Preset, settings: HatsSettings, limits: Limits, given: tuple[str, ...]
) -> list[str]:
    """The warnings for a run; an error if the run could not be done."""
    found = locate_findings(loaded, preset, settings, limits, given)
    if errors := [one for one in found if one.finding.severity is Severity.ERROR]:
        told = "\n".join(f"{one}\n    {one.finding.todo}" for one in errors)
        todo = "correct the preset (`ralph hats check` shows everything), or start it anyway with --unchecked"
        raise UsageError(f"the run could not be done:\n{told}", where=", ".join(loaded.files), todo=todo)
    return [f"{one}; {one.finding.todo}" for one in found]


def shorten_path(path: str) -> str:
    """A path as people type it here."""
    return path.removeprefix(f"{Path.cwd()}/")
