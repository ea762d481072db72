"""Who takes an event: the hat whose trigger says it best, else the coordinator."""

from collections.abc import Collection

from ralph.documents.agent.events import matches
from ralph.documents.hats.definition import COORDINATOR, HatsSettings
from ralph.workflows.hats.state import RESUME, START, Published


def hat_for(settings: HatsSettings, event: Published, exhausted: Collection[str] = ()) -> str:
    """The id of the hat that takes an event: exact triggers before patterns, in the order of the preset."""
    able = [hat for hat in settings.hats if hat.id not in exhausted]
    if event.target:
        return event.target if event.target in {hat.id for hat in able} else COORDINATOR
    if event.topic in (START, RESUME):
        return COORDINATOR
    found = [
        (_vague(pattern), number, hat.id)
        for number, hat in enumerate(able)
        for pattern in hat.triggers
        if matches(pattern, event.topic)
    ]
    return min(found)[2] if found else COORDINATOR


def _vague(pattern: str) -> int:
    return 1000 if pattern == "*" else pattern.split(".").count("*")
