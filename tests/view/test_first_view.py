"""The view knows every kind of journal entry."""

from ralph.core.entries import NAMES
from ralph.view.fold import _STEPS


def test_every_kind_of_entry_has_a_step() -> None:
    assert set(_STEPS) == set(NAMES.values())
