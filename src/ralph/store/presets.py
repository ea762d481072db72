"""Finding presets and settings: those of the user, of the project, of options and of the environment, one over the other."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from ralph.core.errors import UsageError
from ralph.documents.config import SIZE_LIMIT, Config
from ralph.documents.hats.preset import Preset
from ralph.documents.hats.reading import Layer, merged, notices, read_layer, read_override, refuse, split
from ralph.store.files import read_limited

_OVERRIDE = re.compile(r"[A-Za-z_][\w.]*=")
BUILTIN = "builtin:"


@dataclass(frozen=True)
class Loaded:
    """What all layers come to."""

    preset: Preset
    config: Config
    notices: tuple[str, ...]
    files: tuple[str, ...]
    """The files that were read, the last one over the others."""


def load_preset(root: Path, given: Sequence[str], hats: str | None) -> Loaded:
    """The preset and settings for a run; `given` are files and `KEY=VALUE`s, `hats` is a preset over them."""
    overrides = [one for one in given if _OVERRIDE.match(one) and not Path(one).exists()]
    named = [one for one in given if one not in overrides]
    if not named and (place := os.environ.get("RALPH_CONFIG")):
        named = [place]
    home = Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser() / "ralph" / "ralph.yml"
    usual = [path for path in (Path("~/.ralph/config.yml").expanduser(), home, root / "ralph.yml") if path.is_file()]
    warnings: list[str] = []
    read = {str(path): _layer(str(path), path, warnings) for path in usual}
    for source in (*named, *([hats] if hats else [])):
        name, path = _found(source)
        read[name] = _layer(name, path, warnings)
    settled = [read_override(one, "-c") for one in overrides]
    settled += [read_override(one, "RALPH_SET") for one in os.environ.get("RALPH_SET", "").split(";") if one.strip()]
    preset, config = split(merged([*read.values()], settled))
    refuse(preset, ", ".join(read) or "-c")
    return Loaded(preset, config, tuple(dict.fromkeys((*warnings, *notices(preset)))), tuple(read))


def shipped() -> list[str]:
    """The names of the presets that Ralph brings along."""
    return sorted(file.name.removesuffix(".yml") for file in _presets().iterdir() if file.name.endswith(".yml"))


def text_of(name: str) -> str:
    """A preset that Ralph brings along."""
    if name not in shipped():
        raise UsageError(f"there is no preset {name!r}", todo=f"there are {', '.join(shipped())}")
    return (_presets() / f"{name}.yml").read_text()


def _presets() -> "resources.abc.Traversable":
    return resources.files("ralph") / "presets"


def _found(source: str) -> tuple[str, Path | None]:
    """The file that is meant, by its path; a shipped preset has none."""
    if source.startswith(("http:", "https:")):
        raise UsageError(f"{source} is not fetched", todo="save it as a file that you have read, and name that")
    if source.startswith(BUILTIN) or (source in shipped() and not Path(source).exists()):
        return source, None
    return source, Path(source)


def _layer(name: str, path: Path | None, warnings: list[str]) -> Layer:
    if path is None:
        return read_layer(text_of(name.removeprefix(BUILTIN)), name, warnings, _no_imports)
    return read_layer(_text(path), name, warnings, lambda other: _text(path.parent / other))


def _text(path: Path) -> str:
    try:
        return read_limited(path, SIZE_LIMIT, follow=True).decode()
    except OSError as error:
        todo = f"give the path of a file, or one of {', '.join(f'{BUILTIN}{name}' for name in shipped())}"
        raise UsageError(f"it cannot be read: {error.strerror}", where=str(path), todo=todo) from error
    except UnicodeDecodeError as error:
        raise UsageError("it is not UTF-8 text", where=str(path), todo="save it as UTF-8") from error


def _no_imports(path: str) -> str:
    raise UsageError(f"a preset that Ralph brings along imports {path}")
