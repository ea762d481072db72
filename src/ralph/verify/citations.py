"""What a report cites: `src/app.py:12` or `src/app.py:12-20`, in backticks; the lines have to be there."""

import os
import re
from collections.abc import Callable

_CITED = re.compile(r"`([^`\s:]+):(\d+)(?:-(\d+))?`")
_FINDING = re.compile(r"^### (.+)$", re.MULTILINE)
_FENCED = re.compile(r"^(```|~~~).*?^\1", re.DOTALL | re.MULTILINE)
_ADDRESS = re.compile(r"[\d.]+|localhost|.*//.*")
SHOWN = 5


def fault_of(text: str, report: str, lines_of: Callable[[str], int | None]) -> str:
    """Why the citations of a report do not hold; empty where they do. Every `###` section must cite something.

    What is beside the report was written for it, and proves nothing; of one at the top, that is itself alone. `lines_of`
    says how many lines a file has; None where it is none that can be read.
    """
    text = _FENCED.sub("", text)
    cited = _cited(text)
    if not cited:
        return "it cites no line; write them in backticks: `src/app.py:12`"
    report = os.path.normpath(report)
    beside = os.path.dirname(report)
    within = {os.path.normpath(path) for path, _, _ in cited}
    if report in within or (beside and any(path.startswith(f"{beside}/") for path in within)):
        return f"it cites what is in {beside}/ itself" if beside else "it cites itself"
    known = {path: lines_of(os.path.normpath(path)) for path, _, _ in cited}
    faults = [fault for one in cited if (fault := _fault(*one, known[one[0]]))]
    parts = _FINDING.split(text)[1:]
    faults += [
        f"`### {title}` cites no line"
        for title, body in zip(parts[::2], parts[1::2], strict=True)
        if not _cited(title + body)
    ]
    more = f", and {len(faults) - SHOWN} more" if len(faults) > SHOWN else ""
    return "; ".join(faults[:SHOWN]) + more


def _cited(text: str) -> list[tuple[str, int, int]]:
    """The lines that a text cites, each once; addresses with a port are none."""
    found = ((path, int(first), int(last or first)) for path, first, last in _CITED.findall(text))
    return [one for one in dict.fromkeys(found) if not _ADDRESS.fullmatch(one[0])]


def _fault(path: str, first: int, last: int, lines: int | None) -> str:
    where = f"{path}:{first}" + (f"-{last}" if last != first else "")
    if lines is None:
        return f"{where}: there is no such file"
    return "" if 1 <= first <= last <= lines else f"{where}: the file has {lines} lines"
