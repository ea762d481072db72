"""The findings about a preset with the files and lines that they are about."""

from dataclasses import dataclass
from pathlib import Path

from ralph.core.errors import UsageError
from ralph.core.limits import Limits
from ralph.documents.config import SIZE_LIMIT
from ralph.documents.hats.definition import HatsSettings
from ralph.documents.hats.places import Place, Places
from ralph.documents.hats.preset import Preset
from ralph.store.files import read_limited
from ralph.store.presets import BUILTIN, Loaded, text_of
from ralph.workflows.hats.checking.check import check
from ralph.workflows.hats.checking.finding import Finding, Severity


@dataclass(frozen=True)
class Located:
    """A finding, and where in which file it is."""

    finding: Finding
    place: Place

    def __str__(self) -> str:
        return f"{self.place}: {self.finding.severity}: {self.finding.what} [{self.finding.code}]"


def findings(
    loaded: Loaded, preset: Preset, settings: HatsSettings, limits: Limits, given: tuple[str, ...]
) -> list[Located]:
    """What is wrong with a preset, errors first, then in the order of the file; `given` are the keys set by options."""
    places = Places(((name, _text(name)) for name in loaded.files), given, _imported)
    found = [Located(one, places.of(one.path)) for one in check(preset, settings, limits)]
    return sorted(found, key=lambda one: (one.finding.severity, one.place.file, one.place.line))


def checked(
    loaded: Loaded, preset: Preset, settings: HatsSettings, limits: Limits, given: tuple[str, ...]
) -> list[str]:
    """What a run is warned of; an error where it could not be done."""
    found = findings(loaded, preset, settings, limits, given)
    if errors := [one for one in found if one.finding.severity is Severity.ERROR]:
        told = "\n".join(f"{one}\n    {one.finding.todo}" for one in errors)
        todo = "mend the preset (`ralph hats check` tells all of it), or begin all the same with --unchecked"
        raise UsageError(f"the run could not be done:\n{told}", where=", ".join(loaded.files), todo=todo)
    return [f"{one}; {one.finding.todo}" for one in found]


def _text(name: str) -> str:
    path = Path(name)
    return (
        read_limited(path, SIZE_LIMIT, follow=True).decode() if path.is_file() else text_of(name.removeprefix(BUILTIN))
    )


def _imported(name: str, path: str) -> str:
    return _text(str(Path(name).parent / path))
