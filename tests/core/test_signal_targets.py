"""Who a signal is for."""

import pytest

from ralph.core.signals import Signal, SignalType


@pytest.mark.parametrize(
    ("target", "role", "is_actor", "expected"),
    [
        ("", "reviewer", False, True),
        ("reviewer", "Ralph-v2-Reviewer", False, True),
        ("reviewer", "executor", False, False),
        # In a loop and with hats, the role that does the work has a name of its own.
        ("actor", "implementer", True, True),
        ("executor", "implementer", True, True),
        ("actor", "reflector", False, False),
        # The executor of a session does the work, although its turns are not iterations.
        ("actor", "executor", False, True),
    ],
)
def test_signal_is_for_the_role_that_its_target_means(target: str, role: str, is_actor: bool, expected: bool) -> None:
    assert Signal("s", SignalType.STEER, "Use httpx", target=target).is_for(role, is_actor=is_actor) is expected
