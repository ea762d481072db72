"""With which version each agent was last tried from end to end, and what came of it. `make test-agents` writes it down."""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from importlib import resources


class Standing(StrEnum):
    """How much is known of the version of an agent that is here."""

    PROVEN = "proven"
    OTHER_VERSION = "other-version"
    """Another one was tried."""
    UNPROVEN = "unproven"
    """None was."""


@dataclass(frozen=True)
class Proof:
    """What the tests with the real program of an agent saw."""

    version: str
    date: str
    """The day on which all of them ran, as YYYY-MM-DD."""
    passed: tuple[str, ...] = ()
    """The cases that went well, by name."""
    failed: tuple[str, ...] = ()
    cannot: Mapping[str, str] = field(default_factory=dict)
    """The cases that cannot be with this program, each with the reason."""

    @property
    def score(self) -> str:
        """How many of the cases went well."""
        return f"{len(self.passed)} of {len(self.passed) + len(self.failed)} cases"

    def standing(self, version: str) -> Standing:
        """How much this proves of the program that says this of its version."""
        known = re.search(rf"(?<![\w.]){re.escape(self.version)}(?![\w.])", version)
        return Standing.PROVEN if known else Standing.OTHER_VERSION


def proofs() -> dict[str, Proof]:
    """The last proof of every agent that has one."""
    return parse(resources.files("ralph.agents").joinpath("proofs.json").read_text())


def parse(text: str) -> dict[str, Proof]:
    """The proofs in a file."""
    lists = ("passed", "failed")
    return {name: Proof(**{**one, **{key: tuple(one[key]) for key in lists}}) for name, one in json.loads(text).items()}


def render(found: Mapping[str, Proof]) -> str:
    """The file's text: agents and cases in the order of their names, a case a line."""
    plain = {
        name: {
            **asdict(one),
            "passed": sorted(one.passed),
            "failed": sorted(one.failed),
            "cannot": dict(sorted(one.cannot.items())),
        }
        for name, one in sorted(found.items())
    }
    return json.dumps(plain, indent=2, ensure_ascii=False) + "\n"
