"""Where the keys of a preset stand: the file and the line, over all the files that it is read from."""

import posixpath
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from ruamel.yaml.comments import CommentedMap, CommentedSeq

from ralph.documents.config import read_yaml

Path = tuple[str, ...]
"""The keys down to a value; an item of a list by what it is, a part of a text by its words."""


@dataclass(frozen=True)
class Place:
    """A line of a file; 0 where it is no file, but an option."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


@dataclass(frozen=True)
class _Document:
    name: str
    lines: tuple[str, ...]
    data: CommentedMap


class Places:
    """The files of a preset, the last one over the others; `fetch` reads what they import."""

    def __init__(self, files: Iterable[tuple[str, str]], options: Iterable[str], fetch: Callable[[str], str]) -> None:
        self._files = [_document(name, text) for name, text in files]
        self._options, self._fetch = tuple(options), fetch

    def of(self, path: Path) -> Place:
        """Where a value is set; where it is not, the nearest key above it."""
        if path and path[0].startswith("-"):
            return Place(path[0], 0)
        for option in reversed(self._options):
            if option.partition("=")[0].strip() == ".".join(path[: option.partition("=")[0].count(".") + 1]):
                return Place(f"-c {option}", 0)
        found = [self._walk(one, path) for one in reversed(self._files)]
        best = max(found, key=lambda one: one[0], default=(0, Place("-c", 0)))
        return best[1]

    def _walk(self, document: _Document, path: Path) -> tuple[int, Place]:
        """How much of a path there is in a file, and where that is."""
        node: Any = document.data
        line = 1
        for depth, part in enumerate(path):
            if isinstance(node, CommentedMap) and part not in node and isinstance(node.get("import"), str):
                name = posixpath.join(posixpath.dirname(document.name), node["import"])
                document = _document(name, self._fetch(name))
                node, line = document.data, 1
            if isinstance(node, CommentedMap) and part in (node.lc.data or ()):
                line = node.lc.key(part)[0] + 1
                node = node[part]
            elif isinstance(node, CommentedSeq) and part in node:
                line = node.lc.item(node.index(part))[0] + 1
                node = None
            elif isinstance(node, str):
                below = enumerate(document.lines[line - 1 :], line)
                return depth + 1, Place(document.name, next((at for at, text in below if part in text), line))
            else:
                return depth, Place(document.name, line)
        return len(path), Place(document.name, line)


def _document(name: str, text: str) -> _Document:
    return _Document(name, tuple(text.splitlines()), read_yaml(text, name))
