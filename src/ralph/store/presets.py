"""Loading presets and settings: layers from the user, the project, the command line and the environment."""

import difflib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from ralph.core.errors import UsageError
from ralph.documents.config import SIZE_LIMIT, Config, KeyFault
from ralph.documents.hats.preset import Preset
from ralph.documents.hats.reading import (
    Layer,
    PresetFiles,
    SourceLine,
    find_faults,
    find_hats_without_triggers,
    list_notices,
    merge_layers,
    read_layer,
    read_override,
    split_layer,
)
from ralph.store.files import read_text
from ralph.store.runs import SETTINGS

_OVERRIDE = re.compile(r"[A-Za-z_][\w.]*=")
_NAME = re.compile(r"[\w-]+")
BUILTIN, SUFFIX = "builtin:", ".yml"


@dataclass(frozen=True)
class LoadedPreset:
    """The result of all layers."""

    preset: Preset
    config: Config
    notices: tuple[str, ...]
    files: tuple[str, ...]
    """The files that were read. Later ones override earlier ones."""


def load_preset(
    root: Path, options: Sequence[str], hats: str | None, *, settings_dir: Path | None = None
) -> LoadedPreset:
    """The preset and settings for a run. `options` are files and `KEY=VALUE`s, `hats` is a preset over them.

    `settings_dir` has the `ralph.yml`. Default: the root.
    """
    overrides = [one for one in options if _OVERRIDE.match(one) and not Path(one).exists()]
    named = [one for one in options if one not in overrides]
    if not named and (config_path := os.environ.get("RALPH_CONFIG")):
        named = [config_path]
    homes = (Path("~/.ralph/config.yml").expanduser(), _user_home() / "ralph.yml", (settings_dir or root) / SETTINGS)
    usual = [path for path in homes if path.is_file()]
    warnings: list[str] = []
    invalid: list[KeyFault] = []
    read = {str(path): _read_layer(str(path), path, warnings, invalid) for path in usual}
    for source in (*named, *([] if hats is None else [hats])):
        name, layer = _find_layer(root, source, warnings, invalid)
        if source == hats and not layer.get("hats") and not invalid:
            warnings.append(f"{source} has no hats; Ralph uses the hats of the other files, if any")
        read[name] = layer
    layers = [read_override(one, "-c", warnings) for one in overrides]
    from_environment = [one for one in os.environ.get("RALPH_SET", "").split(";") if one.strip()]
    layers += [read_override(one, "RALPH_SET", warnings) for one in from_environment]
    _refuse_unknown_hats(merge_layers([*read.values()]).get("hats", {}), layers)
    preset, config = split_layer(merge_layers([*read.values()], layers))
    _refuse_faults(preset, tuple(read), overrides, invalid, warnings)
    return LoadedPreset(preset, config, tuple(dict.fromkeys((*warnings, *list_notices(preset)))), tuple(read))


def read_preset_file(name: str) -> str:
    """The text of a file of a preset, by the name that it was loaded with."""
    path = Path(name)
    return _read_text(path) if path.is_file() else read_shipped(name.removeprefix(BUILTIN))


def _refuse_faults(
    preset: Preset,
    files: Sequence[str],
    overrides: Sequence[str],
    invalid: Sequence[KeyFault],
    warnings: Sequence[str],
) -> None:
    """Raise one error with all faults of a preset, each with its line: invalid values, and keys that contradict others.

    The warnings follow, because a misspelled key is often the reason why another one seems to be missing.
    """
    faults = list(find_faults(preset))
    if not faults and not invalid:
        return
    faults += find_hats_without_triggers(preset)
    sources = PresetFiles(((name, read_preset_file(name)) for name in files), overrides, read_preset_file)
    found = [(SourceLine(fault.file, fault.line), fault.path, fault.what) for fault in invalid]
    found += [(sources.of(path), path, what) for path, what in faults if not _follows_from(path, invalid)]
    found.sort(key=lambda one: (one[0].file, one[0].line))
    lines = [f"{place}: `{'.'.join(path)}`: {what}" for place, path, what in found]
    lines += [f"warning: {warning}" for warning in dict.fromkeys(warnings)]
    raise UsageError(
        "\n".join(lines), todo="correct these keys; docs/reference.md lists all, docs/hats.md describes them"
    )


def _follows_from(path: Sequence[str], invalid: Sequence[KeyFault]) -> bool:
    """Whether a key only seems to be missing, because its invalid value was left out."""
    left_out = [fault.path for fault in invalid]
    all_hats = path[-1] == "starting_hat" and ("hats",) in left_out
    return all_hats or any(one[: len(path)] == tuple(path) for one in left_out)


def _refuse_unknown_hats(known: Layer, overrides: Sequence[Layer]) -> None:
    """Refuse an override for a hat that no file defines: it is a typing error, not a new hat."""
    named: list[str] = []
    for layer in overrides:
        named += layer.get("hats", {})
    for id in named:
        if id in known:
            continue
        near = difflib.get_close_matches(id, known, 1)
        todo = f"did you mean hats.{near[0]}?" if near else f"the hats are {', '.join(known) or 'none'}"
        raise UsageError(f"there is no hat {id!r}", where="-c", todo=todo)


def list_shipped() -> list[str]:
    """The names of the presets that Ralph ships."""
    return sorted(file.name.removesuffix(SUFFIX) for file in _list_built_in().iterdir() if file.name.endswith(SUFFIX))


def read_shipped(name: str) -> str:
    """The text of a preset that Ralph ships."""
    if name not in list_shipped():
        raise UsageError(f"there is no preset {name!r}", todo=f"the presets are {', '.join(list_shipped())}")
    return (_list_built_in() / f"{name}{SUFFIX}").read_text()


@dataclass(frozen=True)
class NamedPreset:
    """A preset that the user can name."""

    name: str
    origin: str
    """`project`, `user`, `RALPH_PRESETS`, `built in`, or `file` for one that the user named by its path."""
    path: Path | None
    """None for those that Ralph ships."""
    shadowed: bool = False
    """Whether another of the same name comes before it."""

    @property
    def text(self) -> str:
        """The file's text."""
        return read_shipped(self.name) if self.path is None else _read_text(self.path)

    def layer(self, warnings: list[str], invalid: list[KeyFault] | None = None) -> Layer:
        """Its keys. Invalid values are an error, unless `invalid` is a list that collects them."""
        return _read_layer(str(self.path or f"{BUILTIN}{self.name}"), self.path, warnings, invalid)


def list_presets(root: Path) -> list[NamedPreset]:
    """All presets with a name, in the order in which they are found: the project's, the user's, the team's, Ralph's own."""
    directories = [("project", root / ".ralph" / "presets"), ("user", _user_home() / "presets")]
    shared = os.environ.get("RALPH_PRESETS", "").split(os.pathsep)
    directories += [("RALPH_PRESETS", Path(directory).expanduser()) for directory in shared if directory]
    named: list[tuple[str, str, Path | None]] = []
    for origin, directory in directories:
        files = (path for path in sorted(directory.glob(f"*{SUFFIX}")) if path.is_file())
        named += [(path.name.removesuffix(SUFFIX), origin, path) for path in files]
    named += [(name, "built in", None) for name in list_shipped()]
    found: list[NamedPreset] = []
    names: set[str] = set()
    for name, origin, path in named:
        found.append(NamedPreset(name, origin, path, shadowed=name in names))
        names.add(name)
    return found


def find_preset(root: Path, name: str) -> NamedPreset:
    """The preset at a path, or the first one with a name. `builtin:NAME` is always Ralph's own."""
    if not name:
        raise UsageError("the name of the preset is empty", todo="`ralph hats list` lists them")
    if Path(name).is_file() or not (name.startswith(BUILTIN) or _NAME.fullmatch(name)):
        return NamedPreset(Path(name).stem, "file", Path(name))
    known = list_presets(root)
    own, plain = name.startswith(BUILTIN), name.removeprefix(BUILTIN)
    for one in known:
        if one.name == plain and (one.path is None or not own):
            return one
    names = dict.fromkeys(one.name for one in known if one.path is None or not own)
    near = difflib.get_close_matches(plain, names, 1)
    todo = f"did you mean {near[0]}? `ralph hats list` lists them" if near else f"the presets are {', '.join(names)}"
    raise UsageError(f"there is no preset {plain!r}", todo=todo)


def _list_built_in() -> "resources.abc.Traversable":
    return resources.files("ralph") / "presets"


def _user_home() -> Path:
    return Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser() / "ralph"


def _find_layer(root: Path, source: str, warnings: list[str], invalid: list[KeyFault]) -> tuple[str, Layer]:
    """The name and the keys of a preset, by its path or its name. A file wins over a preset of the same name."""
    if source.startswith(("http:", "https:")):
        raise UsageError(f"{source} cannot be downloaded", todo="save it as a file, read it, and name the file")
    found = find_preset(root, source)
    if found.origin == "file":
        return source, found.layer(warnings, invalid)
    if found.path and found.name in list_shipped():
        warnings.append(f"{source} is {found.path}; {BUILTIN}{source} is the one that Ralph ships")
    return (str(found.path) if found.path else source), found.layer(warnings, invalid)


def _read_layer(name: str, path: Path | None, warnings: list[str], invalid: list[KeyFault] | None = None) -> Layer:
    if path is None:
        return read_layer(read_shipped(name.removeprefix(BUILTIN)), name, warnings, _refuse_import, invalid)
    return parse_layer(_read_text(path), path, warnings, invalid)


def parse_layer(text: str, path: Path, warnings: list[str], invalid: list[KeyFault] | None = None) -> Layer:
    """The keys of a text that is, or would be, at a path. It imports files relative to that path."""
    return read_layer(text, str(path), warnings, lambda other: _read_text(path.parent / other), invalid)


def _read_text(path: Path) -> str:
    todo = f"name a file, or one of {', '.join(f'{BUILTIN}{name}' for name in list_shipped())}"
    return read_text(path, SIZE_LIMIT, "it", todo)


def _refuse_import(path: str) -> str:
    raise UsageError(f"a preset that Ralph ships imports {path}")
