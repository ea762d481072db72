"""With which version each agent was last tried from end to end, and what came of it. `make test-agents` writes it down."""

import json
from dataclasses import dataclass
from importlib import resources


@dataclass(frozen=True)
class Proof:
    """What the tests with the real program of an agent saw."""

    version: str
    date: str
    """The day, as YYYY-MM-DD."""
    passed: tuple[str, ...] = ()
    """The cases that went well, by name."""
    failed: tuple[str, ...] = ()


def proofs() -> dict[str, Proof]:
    """The last proof of every agent that has one."""
    told = json.loads(resources.files("ralph.agents").joinpath("proofs.json").read_text())
    return {
        name: Proof(**{**one, "passed": tuple(one["passed"]), "failed": tuple(one["failed"])})
        for name, one in told.items()
    }
