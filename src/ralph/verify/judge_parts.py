"""The parts of a file that decide what passes, in files that are also part of the product.

A manifest such as `package.json` lists dependencies and says what `npm test` runs. A Rust file has code and its tests. To try the
work against the tests and settings as they were before the run, only these parts are put back; the rest stays the work.
`restore_judge_part` is the entry. Other judge files are put back whole, which needs no reading.
"""

import json
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from xml.etree import ElementTree

from ralph.verify.changed_files import FileChange
from ralph.verify.guards.tokens import word_set
from ralph.verify.inline_tests import has_inline_tests, restore_inline_tests

Restore = Callable[[str, str], str]


class PartError(Exception):
    """The parts of a file cannot be told apart. Then all of it counts."""


def restore_judge_part(change: FileChange) -> str | None:
    """The new text with the part that decides what passes as it was; None if the parts cannot be told apart.

    It is the new text itself if the change does not touch what decides.
    """
    if change.old is None or change.new is None:
        return None
    restore = _MIXED.get(change.path.rsplit("/", 1)[-1])
    try:
        if restore:
            return restore(change.old, change.new)
        if has_inline_tests(change.path, change.old, change.new):
            return restore_inline_tests(change.path, change.old, change.new)
    except (PartError, ValueError, ElementTree.ParseError):
        pass
    return None


def touches_judge_part(change: FileChange) -> bool:
    """Whether a change of a manifest or of a file with tests inside touches the part that decides what passes."""
    if not is_mixed(change.path) and not holds_inline_tests(change):
        return False
    restored = restore_judge_part(change)
    return restored is None or restored != change.new


def holds_inline_tests(change: FileChange) -> bool:
    """Whether a changed file has, or had, tests beside its code."""
    if change.old is None or change.new is None:
        return False
    return has_inline_tests(change.path, change.old, change.new)


def is_mixed(path: str) -> bool:
    """Whether a file is a manifest of which only a part decides what passes."""
    return path.rsplit("/", 1)[-1] in _MIXED


_PACKAGE_KEYS = word_set(
    "scripts jest mocha ava nyc c8 vitest tap eslintConfig eslintIgnore babel config workspaces packageManager overrides "
    "resolutions imports pnpm"
)
_DEPENDENCY_KEYS = ("dependencies", "devDependencies", "optionalDependencies", "peerDependencies")
_NOT_FROM_A_REGISTRY = re.compile(r"^(file|link|portal|workspace|npm|git|https?|github)[:+]|^[./~]|^[\w.-]+/[\w.-]+$")


def _restore_package_json(old: str, new: str) -> str:
    """`package.json` with the old scripts and settings of tools, and no package replaced by one from another place."""
    before, now = _load_object(old), _load_object(new)
    restored = {key: value for key, value in now.items() if key not in _PACKAGE_KEYS}
    for key in _PACKAGE_KEYS & before.keys():
        restored[key] = before[key]
    known = {name: spec for key in _DEPENDENCY_KEYS for name, spec in dict(before.get(key, {})).items()}
    for key in _DEPENDENCY_KEYS:
        for name, spec in dict(now.get(key, {})).items():
            # The test runner itself could be replaced by one that passes everything.
            if name in known and spec != known[name] and _NOT_FROM_A_REGISTRY.search(str(spec)):
                restored[key] = {**restored[key], name: known[name]}
    if restored == now:
        return new
    return json.dumps(restored, indent=2) + "\n"


def _load_object(text: str) -> dict[str, Any]:
    loaded = json.loads(text)
    if not isinstance(loaded, dict):
        raise PartError
    return loaded


_BUILD_TOOLS = word_set(
    "poetry setuptools setuptools_scm setuptools-git-versioning hatch flit pdm uv maturin scikit-build meson-python "
    "versioningit dynamic-versioning bumpversion bumpver towncrier commitizen semantic_release cibuildwheel"
)
"""Tables below `tool` that say how the product is built and released. All others are settings of what judges it."""
_JUDGING_TABLES = (
    ("tool", "hatch", "envs"),
    ("tool", "pdm", "scripts"),
    ("tool", "uv", "sources"),
    ("tool", "uv", "override-dependencies"),
    ("tool", "poetry", "plugins"),
    ("project", "entry-points"),
)


def _restore_pyproject(old: str, new: str) -> str:
    """`pyproject.toml` with the old settings of tools that test and check, and the old plugins of pytest."""
    before, now = tomllib.loads(old), tomllib.loads(new)
    names = {*_read_table(before, "tool"), *_read_table(now, "tool")} - _BUILD_TOOLS
    places = [*(("tool", name) for name in sorted(names)), *_JUDGING_TABLES]
    return _restore_toml(old, new, places)


_CARGO_TABLES = (
    ("test",),
    ("bench",),
    ("lib",),
    ("lints",),
    ("patch",),
    ("replace",),
    ("profile", "test"),
    ("profile", "dev"),
    ("workspace", "lints"),
    ("workspace", "exclude"),
    ("workspace", "default-members"),
    ("package", "autotests"),
    ("package", "autobins"),
    ("package", "autoexamples"),
    ("package", "autobenches"),
)


def _restore_cargo(old: str, new: str) -> str:
    """`Cargo.toml` with the old list of tests, lints and members; dependencies and features are the work."""
    restored = _restore_toml(old, new, _CARGO_TABLES)
    members = _read_table(tomllib.loads(old), "workspace").get("members", [])
    kept = _read_table(tomllib.loads(restored), "workspace").get("members", [])
    if missing := [member for member in members if member not in kept]:
        document = _parse_toml(restored)
        document["workspace"]["members"] = [*kept, *missing]
        restored = document.as_string()
    return restored


def _restore_toml(old: str, new: str, places: Sequence[tuple[str, ...]]) -> str:
    """The new text with some tables and values as in the old one, or absent as there."""
    before, now = tomllib.loads(old), tomllib.loads(new)
    changed = [place for place in places if _find(before, place) != _find(now, place)]
    if not changed:
        return new
    document, former = _parse_toml(new), _parse_toml(old)
    for place in changed:
        _put_back(document, former, place)
    restored: str = document.as_string()
    if any(_find(tomllib.loads(restored), place) != _find(before, place) for place in changed):
        raise PartError
    return restored


def _put_back(document: Any, former: Any, place: tuple[str, ...]) -> None:
    *parents, name = place
    for parent in parents:
        if parent not in document:
            document[parent] = {}
        document = document[parent]
    document.pop(name, None)
    if (value := _find(former.unwrap(), place)) is not None:
        document[name] = value


def _find(table: Mapping[str, Any], place: tuple[str, ...]) -> Any:
    for name in place:
        if not isinstance(table, Mapping) or name not in table:
            return None
        table = table[name]
    return table


def _read_table(table: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = table.get(name, {})
    return found if isinstance(found, Mapping) else {}


def _parse_toml(text: str) -> Any:
    import tomlkit  # Only work that changes a manifest needs it.

    return tomlkit.parse(text)


_GO_REPLACE = re.compile(r"^(?:replace|exclude|tool)\s*\([^)]*\)\n?|^(?:replace|exclude|tool)\s.*\n?", re.MULTILINE)


def _restore_go_mod(old: str, new: str) -> str:
    """`go.mod` with the old replacements: one of them could put another package in the place of the test library."""
    before, now = _GO_REPLACE.findall(old), _GO_REPLACE.findall(new)
    if before == now:
        return new
    rest = _GO_REPLACE.sub("", new).rstrip("\n")
    return f"{rest}\n\n{''.join(before)}"


_JUDGING_PLUGIN = re.compile(
    r"maven-(surefire|failsafe|checkstyle|pmd|enforcer)-plugin|jacoco|spotbugs|pitest|errorprone"
)
_JUDGING_PROPERTY = re.compile(
    r"^(skip\w*|maven\.test\..*|maven\.\w+\.skip|surefire\..*|failsafe\..*|test|it\.test|argLine|groups)$"
)
_JUDGING_BUILD = frozenset(("testSourceDirectory", "testResources", "testOutputDirectory"))


def _restore_pom(old: str, new: str) -> str:
    """`pom.xml` with the old plugins and properties that say which tests run, and with all modules that were there."""
    before, now = _parse_pom(old), _parse_pom(new)
    known = _list_judging_elements(before)
    found = _list_judging_elements(now)
    if [(place, _as_text(one)) for place, _, one in known] == [(place, _as_text(one)) for place, _, one in found]:
        return new
    for _, parent, element in found:
        parent.remove(element)
    for place, _, element in known:
        _make_place(now, place).append(element)
    return ElementTree.tostring(now, encoding="unicode")


def _parse_pom(text: str) -> ElementTree.Element:
    # Without its namespace a pom is read the same by Maven, and its tags have their plain names.
    return ElementTree.fromstring(re.sub(r"\sxmlns(:\w+)?=\"[^\"]*\"|\sxsi:\w+=\"[^\"]*\"", "", text))


def _list_judging_elements(
    root: ElementTree.Element,
) -> list[tuple[tuple[str, ...], ElementTree.Element, ElementTree.Element]]:
    """The elements that decide what passes, each with its place and parent."""
    found = []
    places: list[tuple[tuple[str, ...], ElementTree.Element]] = [((), root)]
    while places:
        place, parent = places.pop(0)
        for element in parent:
            if _decides(place, element):
                found.append((place, parent, element))
            else:
                places.append(((*place, _name_step(element)), element))
    return found


def _decides(place: tuple[str, ...], element: ElementTree.Element) -> bool:
    inside = place[-1] if place else ""
    if inside == "plugins":
        return bool(_JUDGING_PLUGIN.search(element.findtext("artifactId") or ""))
    if inside == "properties":
        return bool(_JUDGING_PROPERTY.search(element.tag))
    return inside == "modules" or (inside == "build" and element.tag in _JUDGING_BUILD)


def _name_step(element: ElementTree.Element) -> str:
    """A step of a path: profiles are told apart by their id."""
    name = element.findtext("id") if element.tag == "profile" else None
    return f"{element.tag}={name}" if name else str(element.tag)


def _make_place(root: ElementTree.Element, place: tuple[str, ...]) -> ElementTree.Element:
    """The element at a place, made if it is not there."""
    here = root
    for step in place:
        found = next((child for child in here if _name_step(child) == step), None)
        if found is None:
            tag, _, name = step.partition("=")
            found = ElementTree.SubElement(here, tag)
            if name:
                ElementTree.SubElement(found, "id").text = name
        here = found
    return here


def _as_text(element: ElementTree.Element) -> str:
    return re.sub(r"\s+", "", ElementTree.tostring(element, encoding="unicode"))


_MIXED: Mapping[str, Restore] = {
    "package.json": _restore_package_json,
    "pyproject.toml": _restore_pyproject,
    "Cargo.toml": _restore_cargo,
    "go.mod": _restore_go_mod,
    "pom.xml": _restore_pom,
}
