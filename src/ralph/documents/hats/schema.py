"""The JSON Schema of `ralph.yml`: a preset and the settings beside it."""

from typing import Any

from ralph.documents.config import Config
from ralph.documents.hats.preset import Preset


def schema() -> dict[str, Any]:
    """One schema for the whole file, for editors; short forms that Ralph takes as well are in the docs."""
    preset, config = Preset.model_json_schema(), Config.model_json_schema()
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "ralph.yml",
        "type": "object",
        "properties": {**config["properties"], **preset["properties"]},
        "$defs": {**config["$defs"], **preset["$defs"]},
        "additionalProperties": False,
    }
