"""The published schema describes what programs get."""

import json
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from journals import journals
from test_fold import SETTINGS, empty_view

from ralph.core.entries import Record
from ralph.view.attention import Present, assess, row_of
from ralph.view.fold import fold_all
from ralph.view.json_form import to_full, to_json
from ralph.view.schema import view_schema

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
