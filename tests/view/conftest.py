"""What the tests of views share."""

from collections.abc import Callable

import pytest

from ralph.core.entries import Record
from ralph.core.events import TurnStarted


@pytest.fixture
def start_turn() -> Callable[[int], Record]:
    """A record that starts a turn of a loop."""

    def start(number: int) -> Record:
        entry = TurnStarted(
            number, f"iteration-{number}", "implementer", attempt=1, agent="scripted", is_iteration=True
        )
        return Record(number, 1000.0 + number, entry)

    return start
