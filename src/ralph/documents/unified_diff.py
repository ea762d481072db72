"""A diff as git prints it, turned into files, hunks and numbered lines for a page and for comments."""

import re
from typing import Any

_HUNK = re.compile(r"^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@(.*)$")
LINES_PER_FILE, LINES_IN_ALL, LINE_CHARS = 2000, 12_000, 1000


def parse_diff(text: str) -> list[dict[str, Any]]:
    """The files of a diff. Long files are cut, and say how many lines are left out."""
    files: list[dict[str, Any]] = []
    shown = 0
    old = new = 0
    for line in text.split("\n"):
        if line.startswith("diff --git "):
            files.append(_new_file(line))
            continue
        if not files:
            continue
        file = files[-1]
        if match := _HUNK.match(line):
            old, new = int(match[1]), int(match[2])
            file["hunks"].append({"head": line.partition(" @@")[0] + " @@", "context": match[3].strip(), "lines": []})
            continue
        if not file["hunks"]:
            _read_header(file, line)
            continue
        sign = line[:1]
        if sign not in ("+", "-", " "):
            continue
        file["added"] += sign == "+"
        file["removed"] += sign == "-"
        if file["shown"] < LINES_PER_FILE and shown < LINES_IN_ALL:
            numbers = [old if sign != "+" else None, new if sign != "-" else None]
            file["hunks"][-1]["lines"].append([sign, *numbers, line[1 : LINE_CHARS + 1]])
            file["shown"] += 1
            shown += 1
        else:
            file["left_out"] += 1
        old += sign != "+"
        new += sign != "-"
    return files


def _new_file(line: str) -> dict[str, Any]:
    path = line.removeprefix("diff --git ")
    half = path[: len(path) // 2]
    name = half.removeprefix("a/") if path == f"{half} {half.replace('a/', 'b/', 1)}" else path
    return {
        "path": name,
        "old_path": "",
        "status": "changed",
        "added": 0,
        "removed": 0,
        "binary": False,
        "hunks": [],
        "shown": 0,
        "left_out": 0,
    }


def _read_header(file: dict[str, Any], line: str) -> None:
    if line.startswith("+++ ") and line != "+++ /dev/null":
        file["path"] = _unquote(line[4:])
    elif line.startswith("--- ") and line != "--- /dev/null":
        file["old_path"] = _unquote(line[4:])
    elif line.startswith("new file"):
        file["status"] = "new"
    elif line.startswith("deleted file"):
        file["status"] = "deleted"
    elif line.startswith("rename to "):
        file["path"], file["status"] = line.removeprefix("rename to "), "renamed"
    elif line.startswith(("Binary files", "GIT binary patch")):
        file["binary"] = True
    if file["status"] == "deleted" and file["old_path"]:
        file["path"] = file["old_path"]


def _unquote(name: str) -> str:
    """A path as it is: git quotes names with special characters, and puts `a/` or `b/` before them."""
    name = name.split("\t")[0]
    if name.startswith('"') and name.endswith('"'):
        raw = name[1:-1].encode("latin-1", "replace").decode("unicode_escape", "replace")
        name = raw.encode("latin-1", "replace").decode("utf-8", "replace")
    return name[2:] if name[:2] in ("a/", "b/") else name
