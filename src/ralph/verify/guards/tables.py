"""Tables that drive tests, row by row."""

import re
from collections import Counter
from collections.abc import Sequence

from ralph.verify.guards.units import Unit

_DRIVEN = re.compile(r"parametrize|\. each \(|Source \(|values")
_CASES = re.compile(r"# \[ (?:case|test_case)[^(]*\( (.*?) \) \]")
_NOTHING = re.compile(r"@ Null(AndEmpty)?Source\b")
_MAKES_ROW = re.compile(r"pytest|param|[aA]rguments")


def rows(unit: Unit) -> Counter[str]:
    """The rows of the tables that a unit holds, each in its canonical form."""
    found: Counter[str] = Counter(_CASES.findall(unit.head_text))
    found["null"] += bool(_NOTHING.search(unit.head_text))
    driven = bool(_DRIVEN.search(unit.head_text))
    for opener, closing in unit.pairs.items():
        if closing - opener < 4:
            continue
        parts = _parts(unit, opener, closing)
        shapes = {_shape(part) for part in parts}
        is_list = unit.tokens[opener] in "[{"
        is_table = (len(shapes) == 1 and "" not in shapes and (is_list or "row" in shapes)) or _is_map(
            unit, opener, closing
        )
        if len(parts) > 1 and (is_table or (driven and is_list and closing < unit.body)):
            found.update(" ".join(part) for part in parts)
    return found


def _is_map(unit: Unit, opener: int, closing: int) -> bool:
    """Whether a mapping is gone through, entry by entry."""
    start = opener
    if unit.tokens[opener - 1] == "}":
        start = next((first for first, last in unit.pairs.items() if last == opener - 1), opener)
    before, after = " ".join(unit.tokens[max(start - 8, 0) : start]), " ".join(unit.tokens[closing : closing + 3])
    is_struct = before.endswith("struct") and start == opener
    typed = re.search(r"map \[ \w+ \] [\w. \[\]*]+$|Object \. entries \($", before)
    return unit.tokens[opener] == "{" and not is_struct and (bool(typed) or after.startswith("} . items"))


def _parts(unit: Unit, opener: int, closing: int) -> list[Sequence[str]]:
    parts: list[Sequence[str]] = []
    start = at = opener + 1
    while at < closing:
        at = unit.pairs.get(at, at) + 1
        if at >= closing or unit.tokens[at] in (",", ";"):
            parts.append(unit.tokens[start : min(at, closing)])
            start = at = at + 1
    return [part for part in parts if part]


def _shape(part: Sequence[str]) -> str:
    """What a row looks like: its bracket, or a call that makes one."""
    if part[0] in "([{":
        return part[0]
    return "row" if part[-1] == ")" and _MAKES_ROW.match(part[0]) else ""
