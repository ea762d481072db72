"""The JSON Schema of what the commands that read print with `--json`, from the types that they print."""

from typing import Any

from ralph.app.landing import QueueRow
from ralph.app.runs import RunWorktree
from ralph.app.steer import SignalRow
from ralph.core.prompt import PartSize
from ralph.view.json_form import describe_type
from ralph.view.model import SCHEMA, RunRow, RunView, Sums

_REPORT = {"run": str, "outcome": str, "at": str, "path": str}
_COST_TURN: dict[str, Any] = {"run": str, "turn": int, "work": str, "role": str, "agent": str, "model": str | None}
_COST_TURN |= {"input_tokens": int, "output_tokens": int, "cached_tokens": int, "reasoning_tokens": int}
_SUMS_BY_NAME = dict[str, Sums]

COMMANDS: dict[str, dict[str, Any]] = {
    "status": {"root": str, "runs": ("StatusRow",), "view?": RunView},
    "report": {"text": str, "doubt": str, **_REPORT},
    "report --list": {"reports": ("Report",)},
    "cost": {
        "runs": tuple[str, ...],
        "turns": ("CostTurn",),
        "total": Sums,
        "by_role": _SUMS_BY_NAME,
        "by_agent": _SUMS_BY_NAME,
        "by_model": _SUMS_BY_NAME,
        "by_run?": _SUMS_BY_NAME,
    },
    "prompt": {"run": str, "turn": int, "tokens": int, "parts": tuple[PartSize, ...], "prompt": str},
    "signals": {"run": str, "signals": tuple[SignalRow, ...]},
    "signals --watch": {"run": str, "signal": SignalRow},
    "diff": {"run": str, "old": str, "new": str, "diff": str, "mixed": tuple[str, ...]},
    "worktrees": {"root": str, "worktrees": tuple[RunWorktree, ...]},
    "land --queue": {"root": str, "queue": tuple[QueueRow, ...]},
}
"""The fields of each command, with their types. Those with a question mark are not always there."""
_SPECIAL: dict[str, dict[str, Any]] = {
    "Report": _REPORT,
    "CostTurn": {**_COST_TURN, "cost": float | None},
}


def command_schema() -> dict[str, Any]:
    """The schema of all these commands, and of the error that each can print instead."""
    definitions: dict[str, Any] = {}
    describe_type(RunRow, definitions)
    row = definitions["RunRow"]
    definitions["StatusRow"] = {
        **row,
        "properties": {"run": {"type": "string"}, **row["properties"]},
        "required": ["run", *row["required"]],
    }
    describe_type(RunView, definitions)
    definitions["RunView"]["properties"]["schema"] = {"const": SCHEMA}
    for name, fields in _SPECIAL.items():
        definitions[name] = _describe_object(fields, definitions)
    commands = {}
    for name, fields in COMMANDS.items():
        printed = {"land --queue": "queue"}.get(name, name.partition(" ")[0])
        described = _describe_object(fields, definitions)
        own = {"schema": {"const": SCHEMA}, "command": {"const": printed}}
        required = ["schema", "command", *described["required"]]
        commands[name] = {**described, "properties": {**own, **described["properties"]}, "required": required}
    error = {"what": str, "where": str, "todo": str, "outcome": str, "exit_code": int}
    definitions["Error"] = _describe_object(error, definitions)
    commands["error"] = {
        "type": "object",
        "properties": {"schema": {"const": SCHEMA}, "error": {"$ref": "#/$defs/Error"}},
        "required": ["schema", "error"],
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "What the commands of Ralph print with --json",
        "description": "`ralph logs --json` prints the lines of the journal, as they are in the file.",
        "anyOf": [{"$ref": f"#/$defs/ralph {name}"} for name in commands],
        "$defs": {
            **dict(sorted(definitions.items())),
            **{f"ralph {name}": one for name, one in commands.items()},
        },
    }


def _describe_object(fields: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    properties = {}
    for name, kind in fields.items():
        described = describe_type(kind, definitions) if not isinstance(kind, tuple) else _list_of(kind[0])
        properties[name.removesuffix("?")] = described
    required = [name for name in fields if not name.endswith("?")]
    return {"type": "object", "properties": properties, "required": required}


def _list_of(name: str) -> dict[str, Any]:
    return {"type": "array", "items": {"$ref": f"#/$defs/{name}"}}
