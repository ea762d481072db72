"""The published schema describes what programs get."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import given, settings
from journals import journals
from test_fold import SETTINGS, empty_view

from ralph.cli.main import cli
from ralph.cli.schema import COMMANDS, SAME_AS, command_schema
from ralph.core.entries import Record
from ralph.view.attention import Present, assess, row_of
from ralph.view.fold import fold_all
from ralph.view.json_form import to_full, to_json, view_schema

SCENARIO = """turns:
  - steps:
      - write: {path: value.txt, content: "wrong\\n"}
      - usage: {input_tokens: 1000, output_tokens: 20, cost: 0.25}
"""
SESSIONS = ("session show", "session feedback", "session repair")
CLUSTER = {"workers", "workers check", "workers start"}
"""Commands that need Ray: see tests/workspace."""
ACTING = {"signal", "answer", "comment", "abort", "undo", "restore", "clean", "export", "run", "detach"} | {*SESSIONS}
ACTING |= {"signals --watch", "trust", "hats show", "hats check", "reflect clear", "session list"}
ACTING |= {"land", "allow", "resume", "session resume", "session approve", "session skip", "plan", "init"}
WEB = {"web", "web token add", "web token list", "web token remove", "web passphrase"}
ACTING |= WEB
"""Commands that change something, or that need arguments."""
NEED_A_LIVE_RUN = {"answer", "signals --watch", "allow", "resume", "session resume", "session approve", "session skip"}
PUBLISHED = Path(__file__).parents[2] / "docs" / "schema" / "run-view.schema.json"


def find_faults(value: Any, schema: dict[str, Any], definitions: dict[str, Any], where: str = "view") -> list[str]:
    """Where a value does not fit its schema, for the few keywords that ours uses."""
    if not schema:
        return []
    if "$ref" in schema:
        return find_faults(value, definitions[schema["$ref"].rpartition("/")[2]], definitions, where)
    if "anyOf" in schema:
        found = [find_faults(value, one, definitions, where) for one in schema["anyOf"]]
        return [] if any(not faults for faults in found) else found[0]
    if "enum" in schema:
        return [] if value in schema["enum"] else [f"{where}: {value!r}"]
    if "const" in schema:
        return [] if value == schema["const"] else [f"{where}: {value!r}"]
    kinds = {"string": str, "integer": int, "number": (int, float), "boolean": bool, "null": type(None)}
    if schema["type"] in kinds:
        fits = isinstance(value, kinds[schema["type"]])  # type: ignore[arg-type]
        return [] if fits else [f"{where}: {value!r}"]
    if schema["type"] == "array":
        if not isinstance(value, list):
            return [f"{where}: {value!r}"]
        faults = [find_faults(one, schema["items"], definitions, f"{where}[{i}]") for i, one in enumerate(value)]
        return [fault for some in faults for fault in some]
    if not isinstance(value, dict):
        return [f"{where}: {value!r}"]
    faults = [[f"{where}: {name} is missing"] for name in schema.get("required", ()) if name not in value]
    known = schema.get("properties", {})
    more = schema.get("additionalProperties")
    faults += [[f"{where}: {name} is not described"] for name in value if known and not more and name not in known]
    if isinstance(more, dict):
        faults += [find_faults(one, more, definitions, f"{where}.{name}") for name, one in value.items()]
    faults += [
        find_faults(value[name], one, definitions, f"{where}.{name}") for name, one in known.items() if name in value
    ]
    return [fault for some in faults for fault in some]


def test_the_published_schema_is_that_of_the_code() -> None:
    assert json.loads(PUBLISHED.read_text()) == view_schema()


@settings(max_examples=100, **SETTINGS)
@given(journals())
def test_every_view_and_row_fits_the_schema(records: list[Record]) -> None:
    schema = view_schema()
    view = assess(fold_all(empty_view(), records), Present(now=5000.0, alive=False))
    plain = json.loads(json.dumps(to_json(view)))
    assert find_faults(plain, schema, schema["$defs"]) == []
    row = json.loads(json.dumps(to_full(row_of(view))))
    assert find_faults(row, schema["$defs"]["RunRow"], schema["$defs"], "row") == []


@dataclass
class Printer:
    """Runs commands with --json in a project, and compares what they print with the published schema."""

    root: Path
    seen: set[str] = field(default_factory=set)

    def print(self, name: str, *arguments: str) -> Any:
        """The last object that a command prints. It must fit the schema with that name."""
        state = {"HOME": str(self.root / "home"), "XDG_STATE_HOME": str(self.root / "state")}
        state |= {"GIT_AUTHOR_NAME": "t", "GIT_AUTHOR_EMAIL": "t@e.org"}
        state |= {"GIT_COMMITTER_NAME": "t", "GIT_COMMITTER_EMAIL": "t@e.org"}
        command = [sys.executable, "-P", "-m", "ralph", *arguments, "--json"]
        done = subprocess.run(command, cwd=self.root, env={**os.environ, **state}, capture_output=True, text=True)
        assert done.stdout, done.stderr
        definitions = command_schema()["$defs"]
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        for printed in lines if name == "logs" else lines[-1:]:
            assert find_faults(printed, definitions[f"ralph {name}"], definitions, name) == []
        self.seen.add(name)
        return lines[-1]


@pytest.fixture
def printer(tmp_path: Path) -> Printer:
    (tmp_path / "value.txt").write_text("first\n")
    (tmp_path / ".gitignore").write_text("home\nstate\n")
    for command in (("init", "-q"), ("add", "-A"), ("-c", "user.name=t", "-c", "user.email=t@e", "commit", "-qm", "x")):
        subprocess.run(("git", *command), cwd=tmp_path, check=True)
    (tmp_path / "scenario.yaml").write_text(SCENARIO)
    return Printer(tmp_path)


def test_commands_print_what_their_schema_says(printer: Printer) -> None:
    assert json.loads((PUBLISHED.parent / "commands.schema.json").read_text()) == command_schema()
    start = ("loop", "Make it right", "--until", "`grep right value.txt` passes", "--scenario", "scenario.yaml")
    run = printer.print("run", *start, "--yes", "--max-iterations", "1")["run"]
    sent = printer.print("signal", "steer", "use tabs", "--run", run)
    commented = printer.print("comment", "comment", run, "value.txt:1", "Why?")
    printer.print("error", "answer", "yes", "--run", run)
    for name in COMMANDS.keys() - ACTING - CLUSTER:
        printer.print(name, *name.split())
    for name in ("status", "logs", "reflect"):
        printer.print(name, name, run)
    printer.print("hats show", "hats", "show", "tdd")
    printer.print("hats check", "hats", "check", "tdd")
    printer.print("trust", "trust", "--show")
    printer.print("trust", "trust", "--revoke")
    printer.print("error", "diff", "unknown")
    done = [printer.print("undo", "undo", run)["action"], printer.print("restore", "restore", "1", run)["action"]]
    printer.print("export", "export", run, "--html", "-o", "page.html")
    aborted = printer.print("abort", "abort", run, "--revert", "--yes")
    view = printer.print("status", "status", run)["view"]
    assert [one["id"] for one in view["actions"]] == [*done, aborted["action"]]
    assert {sent["name"], commented["name"], aborted["name"]} == {one["name"] for one in view["signals"]}
    printer.print("reflect clear", "reflect", "clear", "--yes")
    printer.print("clean", "clean", run)
    printer.print("session list", "session", "list")
    printer.print("plan", *start, "--dry-run")
    printer.print("init", "init", "--list-presets")
    for name, more in (("add", ("phone",)), ("list", ()), ("remove", ("phone",))):
        printer.print(f"web token {name}", "web", "token", name, *more)
    # The server and its passphrase need a process and a terminal of their own: see tests/web.
    elsewhere = NEED_A_LIVE_RUN | CLUSTER | {"land", "detach", "web", "web passphrase", *SESSIONS}
    assert COMMANDS.keys() - printer.seen == elsewhere


def test_every_command_with_json_has_a_schema() -> None:
    described = {name.removeprefix("ralph ") for name in command_schema()["$defs"] if name.startswith("ralph ")}
    missing = {name for name in list_commands_with_json() if SAME_AS.get(name, name) not in described}
    assert missing == set()
    assert SAME_AS.keys() <= set(list_commands_with_json())


def list_commands_with_json(group: Any = None, context: Any = None, prefix: str = "") -> Iterator[str]:
    """The names of all commands that take --json, hidden ones too."""
    group = group or cli
    context = context or click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if any("--json" in one.opts for one in command.params):
            yield f"{prefix}{name}"
        if isinstance(command, click.Group):
            yield from list_commands_with_json(command, click.Context(command, parent=context), f"{prefix}{name} ")


@pytest.mark.slow
def test_commands_of_sessions_print_what_their_schema_says(printer: Printer) -> None:
    # The first turn uses up the budget, so the session stops. An agent that just fails would be tried again for minutes.
    agent = ("--scenario", "scenario.yaml", "--max-cost", "0.1", "--yes")
    begun = printer.print("run", "session", "new", "Make it right", "--check", "`grep right value.txt` passes", *agent)
    for name in SESSIONS:
        more = ("Use tabs",) if name == "session feedback" else ()
        assert printer.print(name, *name.split(), begun["run"], *more)["session_id"] == begun["run"]
    [listed] = printer.print("session list", "session", "list")["sessions"]
    assert listed["session_id"] == begun["run"]
    sent = printer.print("detach", "session", "resume", begun["run"], "--detach", "--yes")
    printer.print("abort", "abort", sent["run"])
