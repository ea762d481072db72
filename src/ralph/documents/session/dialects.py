"""What sessions of other releases tell in other places: their state, iteration and status."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ralph.core.errors import StateError
from ralph.documents.plain_yaml import lines_of
from ralph.documents.session import metadata
from ralph.documents.session.layout import Layout
from ralph.documents.session.markdown import Page
from ralph.documents.session.values import text_of
from ralph.documents.session.yaml_lines import YamlLines

_KEYS = {
    "orchestrator.state": ("orchestrator.current_state", "orchestrator_state", "current_state", "state"),
    "orchestrator.current_wave": ("current_wave",),
    "iteration": ("orchestrator.iteration", "current_iteration", "iteration"),
    "status": ("session_status", "status"),
    "created_at": ("created", "started_at", "created_at"),
    "request": ("user_request", "USER_REQUEST", "request"),
}
"""What is meant, by the keys in use; the last one that is there counts."""
_LINE = re.compile(
    r"\s*(?:[-*+]\s+)?[*_`]*(state|iteration|status)[*_`]*\s*:[*_`]*\s*[*_`\"']*([\w-]+).*", re.IGNORECASE
)
_STATES = re.compile(r"(?:.*/)?(?:state/current|iterations/\d+/state)\.ya?ml")


def told_elsewhere(layout: Layout, files: Mapping[str, str]) -> dict[str, Any]:
    """The values of the metadata that other files and keys tell, by field, as far as they can be read."""
    found: dict[str, Any] = {}
    for values in _sources(layout, files):
        for path, names in _KEYS.items():
            for name in names:
                if value := text_of(values.get(name)):
                    text = lines_of(_nested(path, value))
                    found |= metadata.readable(text)
    return found


def _sources(layout: Layout, files: Mapping[str, str]) -> Iterator[Mapping[str, Any]]:
    """What tells, the most trusted last: a section of progress.md, files of the state, and the metadata themselves."""
    for path in sorted(path for path in files if path.startswith(f"{layout.root}/") and path.endswith("progress.md")):
        section = Page(files[path]).section("current state")
        matches = (_LINE.fullmatch(line) for line in (section.lines if section else ()))
        yield {match[1].casefold(): match[2] for match in matches if match}
    states = sorted(path for path in files if path.startswith(f"{layout.root}/") and _STATES.fullmatch(path))
    for path in (*states, layout.metadata):
        try:
            lines = YamlLines(files.get(path, ""), path)
        except StateError:
            continue
        yield {name: lines.get(name) for names in _KEYS.values() for name in names if lines.has(name)}


def _nested(path: str, value: str) -> dict[str, Any]:
    head, _, rest = path.partition(".")
    return {head: {rest: value} if rest else value}
