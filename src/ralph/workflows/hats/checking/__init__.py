"""What can be said of a preset before it runs: can it finish, by which way, and what is wrong where."""

from ralph.core.limits import Limits
from ralph.documents.hats.definition import HatsSettings
from ralph.documents.hats.preset import Preset
from ralph.workflows.hats.checking.completion import check_completion
from ralph.workflows.hats.checking.findings import Finding, Severity
from ralph.workflows.hats.checking.instructions import check_instructions
from ralph.workflows.hats.checking.model import Model
from ralph.workflows.hats.checking.routes import check_routes


def check_preset(preset: Preset, settings: HatsSettings, limits: Limits) -> list[Finding]:
    """Every finding, errors first; none for a preset without hats, where one agent works alone."""
    if not settings.hats:
        return []
    model = Model(preset, settings)
    found = dict.fromkeys((*check_completion(model, limits), *check_routes(model), *check_instructions(model)))
    return sorted(found, key=lambda one: one.severity is not Severity.ERROR)
