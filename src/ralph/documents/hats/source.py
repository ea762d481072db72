"""What an objective is made of: a directory of tasks, one task file, or a description; and where its documents are."""

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass

from ralph.core.errors import UsageError

TASK_FILE = ".code-task.md"
_WORDS = 6
_TODO = "correct the path (it is relative to the project), or leave the file out of the objective"
_STRIP = "`'\"()[]<>,;:!?@"


@dataclass(frozen=True)
class Source:
    """Where the work of a run is described."""

    kind: str
    task_name: str
    documents: str
    """The directory of the documents that the hats share, relative to the root."""


def source_of(objective: str, specs_dir: str, look: Callable[[str], str]) -> Source:
    """The source that an objective names; `look` says of a path whether it is a `directory` of a plan or tasks, or a `file`."""
    for word in objective.split():
        path = word.strip(_STRIP).rstrip("./")
        if not path or path.startswith(("/", "~")) or ".." in path.split("/"):
            continue
        if _names_a_task_file(path):
            if look(path) != "file":
                raise UsageError("the objective names this task file, and it does not exist", where=path, todo=_TODO)
            name = slug(path.rpartition("/")[2].removesuffix(TASK_FILE))
            return Source("single task file", name, _home(specs_dir, name))
        if "/" in path and look(path) == "directory":
            return Source("directory of a plan", slug(path.rpartition("/")[2]), f"{path}/")
    name = slug(objective)
    return Source("rough description", name, _home(specs_dir, name))


def _names_a_task_file(path: str) -> bool:
    """Whether a word is the path of one task file; `.code-task.md` and `*.code-task.md` speak of such files in general."""
    return path.endswith(TASK_FILE) and path.rpartition("/")[2] != TASK_FILE and "*" not in path


def slug(text: str) -> str:
    """A few words as a name for files."""
    words = re.findall(r"[^\W_]+", unicodedata.normalize("NFC", text.lower()))[:_WORDS]
    return "-".join(words)[:48].strip("-") or "task"


def _home(specs_dir: str, name: str) -> str:
    return f"{specs_dir.rstrip('/')}/implementation/{name}/"
