"""What the tests saw of each agent, written down as its proof.

Only all cases of an agent in one run make a new proof; a run of some of them brings up to date what a proof of the same
version says of those. With xdist, the process that hears of all the others writes.
"""

import ast
import fcntl
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

from ralph import agents
from ralph.agents.proofs import Proof, parse, render
from ralph.store.files import write_atomic

PLACE = Path(agents.__path__[0]) / "proofs.json"


@dataclass
class Seen:
    """What came of the cases of one agent."""

    version: str
    well: dict[str, bool] = field(default_factory=dict)
    """Whether a case went well, by its name."""
    cannot: dict[str, str] = field(default_factory=dict)
    """The reasons of those that cannot be."""

    def take(self, case: str, *, failed: bool, passed: bool, why_not: str = "") -> None:
        """Add what came of a part of a test: its preparation, its body, its end."""
        if failed or passed:
            self.well[case] = self.well.get(case, True) and not failed
        elif why_not:
            self.cannot[case] = why_not

    @property
    def cases(self) -> set[str]:
        """All that it tells something about."""
        return {*self.well, *self.cannot}

    def proof(self, day: str, before: Proof | None = None) -> Proof:
        """What was seen, and of other cases what was known before."""
        other = before or Proof(self.version, day)
        passed = {
            *(case for case in other.passed if case not in self.cases),
            *(one for one in self.well if self.well[one]),
        }
        failed = {*(case for case in other.failed if case not in self.cases), *self.well} - passed
        cannot = {case: why for case, why in other.cannot.items() if case not in self.cases} | self.cannot
        return Proof(self.version, day, tuple(sorted(passed)), tuple(sorted(failed)), cannot)


def case_of(function: str) -> str:
    """The name of a case, from that of its test."""
    return function.removeprefix("test_").replace("_", " ")


def all_cases(directory: Path = Path(__file__).parent) -> set[str]:
    """Every case that is there for each agent, whichever are run: the tests that ask for an `agent`."""
    found = set()
    for path in directory.glob("test_*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                found |= {case_of(node.name) for one in node.args.args if one.arg == "agent"}
    return found


def updated(known: dict[str, Proof], seen: dict[str, Seen], cases: Collection[str], day: str) -> dict[str, Proof]:
    """The proofs after a run of the tests; of agents that did not run, as before."""
    found = dict(known)
    for agent, one in seen.items():
        before = known.get(agent)
        if one.well and one.cases >= set(cases):
            found[agent] = one.proof(day)
        elif one.well and before and before.version == one.version:
            found[agent] = one.proof(before.date, before)
    return found


def write_down(seen: dict[str, Seen], place: Path = PLACE) -> dict[str, Proof]:
    """Bring the file up to date; the proofs that are new in it."""
    with _lock(place.parent):
        known = parse(place.read_text())
        found = updated(known, seen, all_cases(), date.today().isoformat())
        if found != known:
            write_atomic(place, render(found).encode())
    return {agent: one for agent, one in found.items() if known.get(agent) != one}


@contextmanager
def _lock(directory: Path) -> Iterator[None]:
    """One run of the tests at a time, over all processes."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
