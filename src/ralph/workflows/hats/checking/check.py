"""All that is wrong with a preset, worst first."""

from ralph.core.limits import Limits
from ralph.documents.hats.definition import HatsSettings
from ralph.documents.hats.preset import Preset
from ralph.workflows.hats.checking.finding import Finding, Severity
from ralph.workflows.hats.checking.gates import gates
from ralph.workflows.hats.checking.model import Model
from ralph.workflows.hats.checking.routes import routes
from ralph.workflows.hats.checking.words import words


def check(preset: Preset, settings: HatsSettings, limits: Limits) -> list[Finding]:
    """Every finding; none for a preset without hats, where one agent works alone."""
    if not settings.hats:
        return []
    model = Model(preset, settings)
    found = dict.fromkeys((*gates(model, limits), *routes(model), *words(model)))
    return sorted(found, key=lambda one: one.severity is not Severity.ERROR)
