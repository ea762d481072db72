"""What a command loads before it does anything: no more than it needs, for people and tests wait for it each time."""

import subprocess
import sys

import pytest

ENGINE = ("ralph.app.engine", "ralph.agents", "ralph.workspace", "asyncio", "pydantic")
ELSEWHERE = ("ralph.workflows.hats", "ralph.workflows.session", "ralph.documents.hats.preset")
LATER = ("ralph.verify.guards.rules", "ralph.documents.scenario", "ralph.documents.session.tasks", "rich")


@pytest.mark.parametrize(
    ("commands", "unneeded"),
    [
        (("status", "logs", "steer", "signals", "answer", "report", "cost"), (*ENGINE, *ELSEWHERE, *LATER)),
        (("loop",), (*ELSEWHERE, *LATER)),
    ],
    ids=["to look and to steer", "to run a loop"],
)
def test_a_command_loads_what_it_needs(commands: tuple[str, ...], unneeded: tuple[str, ...]) -> None:
    code = f"import sys, {', '.join(f'ralph.cli.{name}' for name in commands)}\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert "ralph.store.runs" in loaded
    assert [name for name in loaded if name.startswith(tuple(f"{one}." for one in unneeded)) or name in unneeded] == []
