"""A command imports only what it needs, because the user waits for its start each time."""

import subprocess
import sys

import pytest

ENGINE = ("ralph.app.run_engine", "ralph.agents", "ralph.workspace", "asyncio", "pydantic")
ELSEWHERE = ("ralph.workflows.hats", "ralph.workflows.session", "ralph.documents.hats.preset")
LATER = ("ralph.verify.guards.comparison", "ralph.documents.scenario", "ralph.documents.session.tasks", "rich")


@pytest.mark.parametrize(
    ("modules", "unneeded"),
    [
        (("status", "logs", "steer", "changes", "reports"), (*ENGINE, *ELSEWHERE, *LATER)),
        (("start",), (*ELSEWHERE, *LATER)),
    ],
    ids=["watch and steer", "start a loop"],
)
def test_command_imports_only_what_it_needs(modules: tuple[str, ...], unneeded: tuple[str, ...]) -> None:
    code = f"import sys, {', '.join(f'ralph.cli.{name}' for name in modules)}\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert "ralph.store.runs" in loaded
    assert [name for name in loaded if name.startswith(tuple(f"{one}." for one in unneeded)) or name in unneeded] == []
