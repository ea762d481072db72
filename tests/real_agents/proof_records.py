"""Saves the results of these tests as the proof of each agent.

Only a run of all cases makes a new proof. A run of some of them updates those cases in a proof of the same version. With
xdist, only the controlling process writes.
"""

import ast
import fcntl
import json
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from pathlib import Path

from ralph import agents
from ralph.agents.registry import Proof, parse_proofs
from ralph.store.files import write_atomic

PROOFS_FILE = Path(agents.__path__[0]) / "proofs.json"


@dataclass
class CaseResults:
    """The results of the cases of one agent."""

    version: str
    has_passed: dict[str, bool] = field(default_factory=dict)
    """Whether a case passed, by its name."""
    cannot: dict[str, str] = field(default_factory=dict)
    """The cases that are not possible, each with the reason."""

    def add(self, case: str, *, failed: bool, passed: bool, why_not: str = "") -> None:
        """Add the result of one phase of a test: setup, call or teardown."""
        if failed or passed:
            self.has_passed[case] = self.has_passed.get(case, True) and not failed
        elif why_not:
            self.cannot[case] = why_not

    @property
    def cases(self) -> set[str]:
        """All cases that have a result."""
        return {*self.has_passed, *self.cannot}

    def proof(self, day: str, before: Proof | None = None) -> Proof:
        """The proof from these results, with earlier results for the other cases."""
        other = before or Proof(self.version, day)
        passed = {
            *(case for case in other.passed if case not in self.cases),
            *(one for one in self.has_passed if self.has_passed[one]),
        }
        failed = {*(case for case in other.failed if case not in self.cases), *self.has_passed} - passed
        cannot = {case: why for case, why in other.cannot.items() if case not in self.cases} | self.cannot
        return Proof(self.version, day, tuple(sorted(passed)), tuple(sorted(failed)), cannot)


def case_name(function: str) -> str:
    """The name of a case, from the name of its test."""
    return function.removeprefix("test_").replace("_", " ")


def all_cases(directory: Path = Path(__file__).parent) -> set[str]:
    """The names of all cases: the tests with the parameter `agent`."""
    found = set()
    for path in directory.glob("test_*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                found |= {case_name(node.name) for one in node.args.args if one.arg == "agent"}
    return found


def update_proofs(
    known: dict[str, Proof], results: dict[str, CaseResults], cases: Collection[str], day: str
) -> dict[str, Proof]:
    """The proofs after a run of the tests. Those of agents that did not run stay."""
    found = dict(known)
    for agent, one in results.items():
        before = _drop_removed_cases(known[agent], cases) if agent in known else None
        if one.has_passed and one.cases >= set(cases):
            found[agent] = one.proof(day)
        elif one.has_passed and before and before.version == one.version:
            found[agent] = one.proof(before.date, before)
    return found


def _drop_removed_cases(proof: Proof, cases: Collection[str]) -> Proof:
    return replace(
        proof,
        passed=tuple(case for case in proof.passed if case in cases),
        failed=tuple(case for case in proof.failed if case in cases),
        cannot={case: why for case, why in proof.cannot.items() if case in cases},
    )


def save_proofs(results: dict[str, CaseResults], path: Path = PROOFS_FILE) -> dict[str, Proof]:
    """Update the file. Returns the proofs that are new in it."""
    with _lock(path.parent):
        known = parse_proofs(path.read_text())
        found = update_proofs(known, results, all_cases(), date.today().isoformat())
        if found != known:
            write_atomic(path, render_proofs(found).encode())
    return {agent: one for agent, one in found.items() if known.get(agent) != one}


def render_proofs(proofs: Mapping[str, Proof]) -> str:
    """The text of the file: agents and cases sorted by name, one case per line."""
    plain = {}
    for name, proof in sorted(proofs.items()):
        plain[name] = {
            **asdict(proof),
            "passed": sorted(proof.passed),
            "failed": sorted(proof.failed),
            "cannot": dict(sorted(proof.cannot.items())),
        }
    return json.dumps(plain, indent=2, ensure_ascii=False) + "\n"


@contextmanager
def _lock(directory: Path) -> Iterator[None]:
    """Let one process at a time update the file."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
