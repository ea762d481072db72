"""The published schema describes what programs get."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from journals import journals
from test_fold import SETTINGS, empty_view

from ralph.cli.schema import COMMANDS, command_schema
from ralph.core.entries import Record
from ralph.view.attention import Present, assess, row_of
from ralph.view.fold import fold_all
from ralph.view.json_form import to_full, to_json, view_schema

SCENARIO = """turns:
  - steps:
      - write: {path: value.txt, content: "wrong\\n"}
      - usage: {input_tokens: 1000, output_tokens: 20, cost: 0.25}
"""
PUBLISHED = Path(__file__).parents[2] / "docs" / "schema" / "run-view.schema.json"


def find_faults(value: Any, schema: dict[str, Any], definitions: dict[str, Any], where: str = "view") -> list[str]:
    """Where a value does not fit its schema, for the few keywords that ours uses."""
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
        faults = [find_faults(one, schema["items"], definitions, f"{where}[{i}]") for i, one in enumerate(value)]
        return [fault for some in faults for fault in some]
    if not isinstance(value, dict):
        return [f"{where}: {value!r}"]
    faults = [[f"{where}: {name} is missing"] for name in schema.get("required", ()) if name not in value]
    known = schema.get("properties", {})
    faults += [[f"{where}: {name} is not described"] for name in value if known and name not in known]
    if more := schema.get("additionalProperties"):
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


def test_commands_print_what_their_schema_says(tmp_path: Path) -> None:
    published = json.loads((PUBLISHED.parent / "commands.schema.json").read_text())
    assert published == command_schema()
    definitions = published["$defs"]
    state = {"HOME": str(tmp_path / "home"), "XDG_STATE_HOME": str(tmp_path / "state")}

    def ralph(*arguments: str) -> Any:
        command = [sys.executable, "-P", "-m", "ralph", *arguments, "--json"]
        done = subprocess.run(command, cwd=tmp_path, env={**os.environ, **state}, capture_output=True, text=True)
        return json.loads(done.stdout.splitlines()[-1])

    (tmp_path / "scenario.yaml").write_text(SCENARIO)
    start = ("loop", "Make it right", "--until", "`grep right value.txt` passes", "--scenario", "scenario.yaml")
    run = ralph(*start, "--yes", "--max-iterations", "1")["run"]
    ralph("steer", "use tabs", "--run", run)
    for name in COMMANDS.keys() - {"signals --watch"}:
        faults = find_faults(ralph(*name.split()), definitions[f"ralph {name}"], definitions, name)
        assert faults == []
    assert find_faults(ralph("status", run), definitions["ralph status"], definitions, "status RUN") == []
    assert find_faults(ralph("diff", "unknown"), definitions["ralph error"], definitions, "error") == []
