"""The JSON Schema of what commands print with `--json`, from the types that they print."""

from typing import Any

from ralph.app.doctor import Diagnosis
from ralph.app.landing import QueueRow
from ralph.app.runs import RunWorktree
from ralph.app.steer import SignalRow
from ralph.app.workers import ClusterNode, LocalWorker, WorkerProof
from ralph.core.entries import ENTRY_TYPES
from ralph.core.outcomes import Outcome
from ralph.core.prompt import PartSize
from ralph.documents.reflection import Reflection
from ralph.memory.learning import Pattern
from ralph.view.json_form import describe_type
from ralph.view.model import SCHEMA, RunRow, RunView, Sums

_REPORT = {"run": str, "outcome": str, "at": str, "path": str}
_COST_TURN: dict[str, Any] = {"run": str, "turn": int, "work": str, "role": str, "agent": str, "model": str | None}
_COST_TURN |= {"input_tokens": int, "output_tokens": int, "cached_tokens": int, "reasoning_tokens": int}
_SUMS_BY_NAME = dict[str, Sums]
_TEXTS = tuple[str, ...]
_SESSION: dict[str, Any] = {"session_id": str, "status": str, "current_state": str, "next_action": str}
_SESSION |= {"tasks_summary": dict[str, int], "request?": str, "iteration?": int, "current_wave?": int | None}
_SESSION |= {"last_action?": str, "summary?": str}
"""A session as other tools know it. The last two are those of the classic layout."""
_PRESET: dict[str, Any] = {"name": str, "origin": str, "path": str}
_SIGNAL = {"run": str, "name": str}
"""The name of a signal is the id by which `ralph signals` shows what became of it."""

COMMANDS: dict[str, dict[str, Any]] = {
    "status": {"root": str, "runs": ("StatusRow",), "view?": RunView},
    "report": {"text": str, "doubt": str, "since": str, "hand_overs": _TEXTS, **_REPORT},
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
    "signal": {**_SIGNAL, "type": str, "to": str, "alive": bool},
    "answer": {"run": str, "question": str, "answer": str},
    "comment": {**_SIGNAL, "comments": int, "feedback": str, "alive": bool},
    "abort": {
        **_SIGNAL,
        "outcome": Outcome | None,
        "alive": bool,
        "reverted": bool,
        "action?": str,
        "before?": str,
        "files?": _TEXTS,
        "commits?": _TEXTS,
        "notices?": _TEXTS,
        "not_restored?": _TEXTS,
        "kept?": _TEXTS,
    },
    "resume": {**_SIGNAL, "signalled": bool},
    "session resume": {**_SIGNAL, "signalled": bool},
    "session approve": {"session_id": str, "signal": str, "waits": bool},
    "session skip": {"session_id": str, "signal": str, "waits": bool},
    "allow": {**_SIGNAL, "hosts": _TEXTS},
    "land": {
        "run": str,
        "action": str,
        "landed": bool,
        "branch": str,
        "commit": str,
        "notice": str,
        "failed": _TEXTS,
    },
    "undo": {"run": str, "action": str, "undone": str, "files": _TEXTS, "notices": _TEXTS},
    "restore": {
        "run": str,
        "action": str,
        "iteration": int,
        "snapshot": str,
        "before": str,
        "files": _TEXTS,
        "notices": _TEXTS,
        "kept": _TEXTS,
        "shared": _TEXTS,
    },
    "clean": {"action": str, "dry_run": bool, "removed": _TEXTS, "kept": _TEXTS, "recent": int, "resumable": int},
    "export": {"run": str, "path": str, "bytes": int},
    "run": {
        "run": str,
        "outcome": Outcome,
        "reason": str,
        "exit_code": int,
        "spent": dict[str, float],
        "report": str,
        "name?": str,
        "signal?": str,
        "action?": str,
        **{f"{name.removesuffix('?')}?": kind for name, kind in _SESSION.items()},
    },
    "detach": {
        "run": str,
        "pid": int,
        "log": str,
        "notices": _TEXTS,
        "name?": str,
        **{f"{name.removesuffix('?')}?": kind for name, kind in _SESSION.items()},
    },
    "doctor": {"version": str, "findings": tuple[Diagnosis, ...]},
    "reflect": {"loop": str | None, "reflections": tuple[Reflection, ...], "faults": _TEXTS},
    "reflect patterns": {"patterns": tuple[Pattern, ...], "faults": _TEXTS},
    "reflect clear": {"archive": str | None, "loops": int},
    "trust": {"root": str, "agreed?": _TEXTS, "new?": _TEXTS, "revoked?": bool},
    "hats list": {"presets": ("Preset",)},
    "hats show": {**_PRESET, "text": str},
    "hats check": {
        "files": _TEXTS,
        "hats": _TEXTS,
        "shortest": ("RouteTurn",),
        "findings": ("HatsFinding",),
        "notes": _TEXTS,
    },
    "session list": {"sessions": ("Session",)},
    "session show": {**_SESSION, "spent": dict[str, float], "missing": _TEXTS},
    "session feedback": {"session_id": str, "iteration": int, "path": str},
    "session repair": {"session_id": str, "done": _TEXTS},
    "diff": {"run": str, "old": str, "new": str, "diff": str, "mixed": tuple[str, ...]},
    "workers": {"workers": tuple[ClusterNode, ...]},
    "workers check": {"workers": tuple[WorkerProof, ...]},
    "workers start": {"worker": LocalWorker},
    "workers stop": {"ended": tuple[LocalWorker, ...]},
    "worktrees": {"root": str, "worktrees": tuple[RunWorktree, ...]},
    "land --queue": {"root": str, "queue": tuple[QueueRow, ...]},
    "plan": {"settings": dict[str, object], "prompt": str, "worst_case": str, "notes": _TEXTS},
    "init": {"path?": str, "preset?": str, "presets?": _TEXTS},
    "web": {"address": str, "link": str, "new": bool, "pid": int | None, "ignored": _TEXTS},
    "web token add": {"name": str, "role": str, "token": str},
    "web token list": {"tokens": ("WebToken",)},
    "web token remove": {"name": str},
    "web passphrase": {},
}
"""The fields of each command, with their types. Those with a question mark are not always there.

`run` is what a command prints when its run ends, `detach` if the run continues in the background, `plan` with --dry-run, and
`signal` is that of all commands that send one.
"""
SAME_AS = {"loop": "run", "session new": "run", "accept": "run", "steer": "signal", "pause": "signal"}
SAME_AS |= {"session update": "session feedback", "reflect show": "reflect", "presets": "hats list"}
SAME_AS |= {"queue": "land --queue", "events": "logs --events"}
"""Commands that print what another one prints."""
_PRINTED = {"land --queue": "queue", "report --list": "report", "signals --watch": "signals"}
_PRINTED |= {"hats list": "presets", "hats show": "presets"}
"""The field `command`, if it is not the name of the command."""
_SPECIAL: dict[str, dict[str, Any]] = {
    "Report": _REPORT,
    "CostTurn": {**_COST_TURN, "cost": float | None},
    "Preset": {**_PRESET, "shadowed": bool, "use": str, "hats": int, "fault": str},
    "RouteTurn": {"who": str, "topic": str, "said": _TEXTS},
    "HatsFinding": {
        **{"code": str, "severity": str, "file": str, "line": int, "key": str, "hat": str},
        **{"what": str, "todo": str},
    },
    "Session": _SESSION,
    "WebToken": {"name": str, "role": str, "expires": float | None},
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
        described = _describe_object(fields, definitions)
        own = {"schema": {"const": SCHEMA}, "command": {"const": _PRINTED.get(name, name)}}
        required = ["schema", "command", *described["required"]]
        commands[name] = {**described, "properties": {**own, **described["properties"]}, "required": required}
    error = {"what": str, "where": str, "todo": str, "outcome": str, "exit_code": int}
    definitions["Error"] = _describe_object(error, definitions)
    commands["error"] = {
        "type": "object",
        "properties": {"schema": {"const": SCHEMA}, "error": {"$ref": "#/$defs/Error"}},
        "required": ["schema", "error"],
    }
    commands["logs"] = {
        "description": "One line of the journal. The other fields depend on its type.",
        "type": "object",
        "properties": {
            "schema": {"const": SCHEMA},
            "seq": {"type": "integer"},
            "at": {"type": "string"},
            "type": {"enum": [*ENTRY_TYPES, "turn.progress"]},
        },
        "required": ["schema", "at", "type"],
        "additionalProperties": True,
    }
    commands["logs --events"] = {
        "description": "One event of a run of hats. The other fields are those that its hat published.",
        "type": "object",
        "properties": {"schema": {"const": SCHEMA}, "topic": {"type": "string"}},
        "required": ["schema", "topic"],
        "additionalProperties": True,
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "What the commands of Ralph print with --json",
        "description": "`ralph logs --json` prints one object per line; all others print one object.",
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
