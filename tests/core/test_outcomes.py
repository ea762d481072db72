"""Why a run ended: one exit code each, as the design has it."""

import pytest

from ralph.core import errors
from ralph.core.outcomes import EXIT_CODES, Outcome

DESIGNED = {
    0: {"success", "nothing-to-do"},
    1: {"internal-error"},
    2: {"usage"},
    3: {
        "limit-iterations",
        "limit-time",
        "limit-deadline",
        "limit-cost",
        "limit-tokens",
        "limit-quota",
        "cost-unknown",
    },
    4: {"stuck"},
    5: {"unverifiable"},
    6: {"agent-unavailable"},
    7: {"awaiting-guidance", "awaiting-feedback", "awaiting-approval", "paused", "unproven"},
    8: {"aborted"},
    9: {"failed", "blocked"},
    10: {"locked"},
    143: {"interrupted"},
}


def test_every_outcome_has_the_exit_code_of_the_design() -> None:
    found: dict[int, set[str]] = {}
    for outcome in Outcome:
        found.setdefault(outcome.exit_code, set()).add(outcome.value)
    assert found == DESIGNED


def test_the_table_is_exhaustive_and_has_nothing_else() -> None:
    assert set(EXIT_CODES) == set(Outcome)


@pytest.mark.parametrize("outcome", Outcome)
def test_only_verified_work_succeeds(outcome: Outcome) -> None:
    assert outcome.succeeded == (outcome in (Outcome.SUCCESS, Outcome.NOTHING_TO_DO)) == (outcome.exit_code == 0)


@pytest.mark.parametrize("outcome", Outcome)
def test_every_run_can_be_resumed_unless_it_succeeded_or_was_aborted(outcome: Outcome) -> None:
    assert outcome.resumable == (outcome not in (Outcome.SUCCESS, Outcome.NOTHING_TO_DO, Outcome.ABORTED))


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.RalphError, 1),
        (errors.UsageError, 2),
        (errors.StateError, 2),
        (errors.AgentUnavailableError, 6),
        (errors.StorageError, 7),
        (errors.LockedError, 10),
    ],
)
def test_every_error_has_an_exit_code(error: type[errors.RalphError], code: int) -> None:
    assert error("what").outcome.exit_code == code


def test_the_docstring_draws_every_error() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.RalphError)]
    assert len(kinds) >= 6
    for kind in kinds:
        assert kind.__name__ in (errors.__doc__ or "")


def test_an_error_says_what_where_and_what_next() -> None:
    error = errors.UsageError("it broke", where="ralph.yml, line 3", todo="mend it")
    assert str(error) == "it broke\n  where: ralph.yml, line 3\n  next:  mend it"
    assert str(errors.UsageError("it broke")) == "it broke"
