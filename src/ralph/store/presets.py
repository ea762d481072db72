"""Finding presets and settings: those of the user, of the project, of options and of the environment, one over the other."""

import difflib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from ralph.core.errors import UsageError
from ralph.documents.config import SIZE_LIMIT, Config
from ralph.documents.hats.places import Places
from ralph.documents.hats.preset import Preset
from ralph.documents.hats.reading import Layer, find_faults, merged, notices, read_layer, read_override, split
from ralph.store.files import read_text

_OVERRIDE = re.compile(r"[A-Za-z_][\w.]*=")
_NAME = re.compile(r"[\w-]+")
BUILTIN, SUFFIX = "builtin:", ".yml"


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
    homes = (Path("~/.ralph/config.yml").expanduser(), _user_home() / "ralph.yml", root / "ralph.yml")
    usual = [path for path in homes if path.is_file()]
    warnings: list[str] = []
    read = {str(path): _layer(str(path), path, warnings) for path in usual}
    for source in (*named, *([] if hats is None else [hats])):
        name, layer = _named_layer(root, source, warnings)
        if source == hats and not layer.get("hats"):
            warnings.append(f"{source} has no hats of its own: those of the other files are meant, if any")
        read[name] = layer
    settled = [read_override(one, "-c", warnings) for one in overrides]
    given_by_environment = [one for one in os.environ.get("RALPH_SET", "").split(";") if one.strip()]
    settled += [read_override(one, "RALPH_SET", warnings) for one in given_by_environment]
    _refuse_unknown_hats(merged([*read.values()]).get("hats", {}), settled)
    preset, config = split(merged([*read.values()], settled))
    _refuse_faults(preset, tuple(read), overrides)
    return Loaded(preset, config, tuple(dict.fromkeys((*warnings, *notices(preset)))), tuple(read))


def text_at(name: str) -> str:
    """The text of a file of a preset, by the name that it was loaded with."""
    path = Path(name)
    return _text(path) if path.is_file() else text_of(name.removeprefix(BUILTIN))


def _refuse_faults(preset: Preset, files: Sequence[str], overrides: Sequence[str]) -> None:
    """One error for all that cannot be done, each with its line."""
    if not (faults := list(find_faults(preset))):
        return
    places = Places(((name, text_at(name)) for name in files), overrides, text_at)
    told = "\n".join(f"{places.of(path)}: `{'.'.join(path)}`: {what}" for path, what in faults)
    raise UsageError(told, todo="correct these keys; docs/hats.md says what each does")


def _refuse_unknown_hats(known: Layer, overrides: Sequence[Layer]) -> None:
    """A key of a hat that no file has is a slip, not a new hat."""
    for id in (id for layer in overrides for id in layer.get("hats", {}) if id not in known):
        near = difflib.get_close_matches(id, known, 1)
        todo = f"did you mean hats.{near[0]}?" if near else f"there are {', '.join(known) or 'none'}"
        raise UsageError(f"there is no hat {id!r} to set something of", where="-c", todo=todo)


def shipped() -> list[str]:
    """The names of the presets that Ralph brings along."""
    return sorted(file.name.removesuffix(SUFFIX) for file in _built_in().iterdir() if file.name.endswith(SUFFIX))


def text_of(name: str) -> str:
    """A preset that Ralph brings along."""
    if name not in shipped():
        raise UsageError(f"there is no preset {name!r}", todo=f"there are {', '.join(shipped())}")
    return (_built_in() / f"{name}{SUFFIX}").read_text()


@dataclass(frozen=True)
class Found:
    """A preset that can be named."""

    name: str
    origin: str
    """Where it is from: `project`, `user`, `RALPH_PRESETS`, `built in`, or `file` for one that was given by its path."""
    path: Path | None
    """None for those that Ralph brings along."""
    shadowed: bool = False
    """Whether another of the same name comes before it."""

    @property
    def text(self) -> str:
        """The file's text."""
        return text_of(self.name) if self.path is None else _text(self.path)

    def layer(self, warnings: list[str]) -> Layer:
        """Its keys."""
        return _layer(str(self.path or f"{BUILTIN}{self.name}"), self.path, warnings)


def presets(root: Path) -> list[Found]:
    """All presets that have a name here, those that come first before others: of the project, the user, the team, Ralph's own."""
    places = [("project", root / ".ralph" / "presets"), ("user", _user_home() / "presets")]
    shared = os.environ.get("RALPH_PRESETS", "").split(os.pathsep)
    places += [("RALPH_PRESETS", Path(place).expanduser()) for place in shared if place]
    files = [(origin, path) for origin, place in places for path in sorted(place.glob(f"*{SUFFIX}")) if path.is_file()]
    named = [(path.name.removesuffix(SUFFIX), origin, path) for origin, path in files]
    found: list[Found] = []
    for name, origin, path in (*named, *((name, "built in", None) for name in shipped())):
        found.append(Found(name, origin, path, shadowed=name in {one.name for one in found}))
    return found


def preset_named(root: Path, name: str) -> Found:
    """The preset of a path, or of a name, the first in the order; `builtin:NAME` is always Ralph's own."""
    if not name:
        raise UsageError("the name of the preset is empty", todo="`ralph hats list` lists them")
    if Path(name).is_file() or not (name.startswith(BUILTIN) or _NAME.fullmatch(name)):
        return Found(Path(name).stem, "file", Path(name))
    known = presets(root)
    own, plain = name.startswith(BUILTIN), name.removeprefix(BUILTIN)
    for one in known:
        if one.name == plain and (one.path is None or not own):
            return one
    names = dict.fromkeys(one.name for one in known if one.path is None or not own)
    near = difflib.get_close_matches(plain, names, 1)
    todo = f"did you mean {near[0]}? `ralph hats list` lists them" if near else f"there are {', '.join(names)}"
    raise UsageError(f"there is no preset {plain!r}", todo=todo)


def _built_in() -> "resources.abc.Traversable":
    return resources.files("ralph") / "presets"


def _user_home() -> Path:
    return Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser() / "ralph"


def _named_layer(root: Path, source: str, warnings: list[str]) -> tuple[str, Layer]:
    """The keys of what is meant, by its path or its name; a file goes before a preset of the same name."""
    if source.startswith(("http:", "https:")):
        raise UsageError(f"{source} is not fetched", todo="save it as a file that you have read, and name that")
    found = preset_named(root, source)
    if found.origin == "file":
        return source, found.layer(warnings)
    if found.path and found.name in shipped():
        warnings.append(f"{source} is {found.path}; {BUILTIN}{source} is the one that Ralph brings along")
    return (str(found.path) if found.path else source), found.layer(warnings)


def _layer(name: str, path: Path | None, warnings: list[str]) -> Layer:
    if path is None:
        return read_layer(text_of(name.removeprefix(BUILTIN)), name, warnings, _no_imports)
    return layer_of(_text(path), path, warnings)


def layer_of(text: str, path: Path, warnings: list[str]) -> Layer:
    """The keys of a text that is, or would be, at a path: what it imports is beside that."""
    return read_layer(text, str(path), warnings, lambda other: _text(path.parent / other))


def _text(path: Path) -> str:
    todo = f"give the path of a file, or one of {', '.join(f'{BUILTIN}{name}' for name in shipped())}"
    return read_text(path, SIZE_LIMIT, "it", todo)


def _no_imports(path: str) -> str:
    raise UsageError(f"a preset that Ralph brings along imports {path}")
