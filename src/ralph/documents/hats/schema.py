"""The JSON Schema of `ralph.yml`: a preset and the settings beside it."""

from typing import Any

from ralph.documents.config import Config
from ralph.documents.hats.preset import NO_EFFECT, Preset

_SECTIONS = {"event_loop": "EventLoop", "cli": "Cli", "adapters": "AdapterKeys"}
"""The sections that hold keys without effect, by the names of their models."""


def schema() -> dict[str, Any]:
    """One schema for the whole file, for editors; short forms that Ralph takes as well are in the docs."""
    preset, config = Preset.model_json_schema(), Config.model_json_schema()
    properties = {**config["properties"], **preset["properties"]}
    sections = {**config["$defs"], **preset["$defs"]}
    for path, about in NO_EFFECT.items():
        section, _, key = path.rpartition(".")
        place = sections[_SECTIONS[section.partition(".")[0]]]["properties"] if section else properties
        place[key] = {"deprecated": True, "description": ": ".join(filter(None, ("no effect", about.instead)))}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "ralph.yml",
        "type": "object",
        "properties": properties,
        "$defs": sections,
        "additionalProperties": False,
    }
