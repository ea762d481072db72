"""Who a signal is for."""

import pytest

from ralph.core.signals import Signal, SignalType, choose_target, normalize_target


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


@pytest.mark.parametrize(
    ("target", "roles", "expected"),
    [
        ("Ralph", ("builder", "ralph"), "ralph"),
        ("coordinator", ("builder", "ralph"), "ralph"),
        ("coordinator", ("coordinator", "ralph"), "coordinator"),
        ("ralph", ("planner", "executor"), ""),
        ("orchestrator", ("builder", "ralph"), ""),
        ("builder", ("builder", "ralph"), "builder"),
    ],
)
def test_ralph_is_the_coordinator_of_hats_and_everybody_elsewhere(
    target: str, roles: tuple[str, ...], expected: str
) -> None:
    assert choose_target(normalize_target(target), roles) == expected
