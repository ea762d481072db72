"""What a run may spend: which limit is reached when, and what a resume grants."""

from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ralph.core.limits import Limits, Spent, Usage
from ralph.core.outcomes import Outcome

NONE = Limits(iterations=None, active_seconds=None)
NOW = 1_800_000_000.0
amounts = st.floats(0, 1e6, allow_nan=False)
counts = st.integers(0, 10**9)
usages = st.builds(Usage, counts, counts, st.none() | amounts)
spents = st.builds(Spent, counts, counts, amounts, counts, counts, amounts, counts)


class TestReached:
    @pytest.mark.parametrize(
        ("limits", "just_below", "outcome"),
        [
            (replace(NONE, active_seconds=60.0), Spent(active_seconds=59.999), Outcome.LIMIT_TIME),
            (replace(NONE, cost=1.0), Spent(cost=0.999), Outcome.LIMIT_COST),
            (replace(NONE, tokens=100), Spent(input_tokens=60, output_tokens=39), Outcome.LIMIT_TOKENS),
        ],
    )
    def test_a_limit_is_reached_at_it_and_not_below(self, limits: Limits, just_below: Spent, outcome: Outcome) -> None:
        at = replace(just_below, active_seconds=60.0, cost=1.0, output_tokens=40)
        assert limits.find_reached(just_below, NOW) is None
        assert limits.find_reached(at, NOW) is outcome

    def test_the_deadline_is_a_moment(self) -> None:
        limits = replace(NONE, deadline=NOW)
        assert limits.find_reached(Spent(), NOW - 0.001) is None
        assert limits.find_reached(Spent(), NOW) is Outcome.LIMIT_DEADLINE

    def test_usage_of_running_turns_counts_toward_limits(self) -> None:
        limits = replace(NONE, cost=1.0, tokens=100)
        spent = Spent(cost=0.5, input_tokens=50)
        assert limits.find_reached(spent, NOW, running=Usage(49, 0, 0.4)) is None
        assert limits.find_reached(spent, NOW, running=Usage(0, 0, 0.5)) is Outcome.LIMIT_COST
        assert limits.find_reached(spent, NOW, running=Usage(25, 25, None)) is Outcome.LIMIT_TOKENS

    def test_if_several_are_reached_the_first_of_a_fixed_order_is_named(self) -> None:
        spent = Spent(active_seconds=60.0, cost=5.0, input_tokens=100)
        every = Limits(deadline=10.0, active_seconds=60.0, cost=5.0, tokens=100)
        assert every.find_reached(spent, 10.0) is Outcome.LIMIT_DEADLINE
        assert replace(every, deadline=None).find_reached(spent, 10.0) is Outcome.LIMIT_TIME
        money = replace(every, deadline=None, active_seconds=None)
        assert money.find_reached(spent, 10.0) is Outcome.LIMIT_COST
        assert money.find_reached(replace(spent, unpriced="a model"), 10.0) is Outcome.LIMIT_COST
        assert money.find_reached(replace(spent, cost=4.0, unpriced="a model"), 10.0) is Outcome.COST_UNKNOWN
        only_tokens = Limits(deadline=None, active_seconds=None, cost=None, tokens=100)
        assert only_tokens.find_reached(spent, 10.0) is Outcome.LIMIT_TOKENS

    def test_without_limits_nothing_is_ever_reached(self) -> None:
        everything = Spent(10**9, 10**9, 1e12, 10**12, 10**12, 1e12)
        assert NONE.find_reached(everything, 1e12) is None
        assert not NONE.is_out_of_iterations(everything)

    @settings(deadline=None)
    @given(spents, usages)
    def test_spending_more_never_takes_a_limit_back(self, spent: Spent, more: Usage) -> None:
        limits = replace(NONE, cost=100.0, tokens=10_000, active_seconds=1000.0)
        assume(limits.find_reached(spent, NOW))
        assert limits.find_reached(spent.with_turn(more, is_iteration=True), NOW)
        assert limits.find_reached(spent, NOW, running=more)


class TestIterations:
    def test_the_last_allowed_one_may_begin_and_no_other(self) -> None:
        limits = Limits(iterations=3)
        assert [limits.is_out_of_iterations(Spent(iterations=n)) for n in range(5)] == [False, False, False, True, True]

    def test_iterations_do_not_end_a_run_that_is_being_verified(self) -> None:
        assert Limits(iterations=1).find_reached(Spent(iterations=1), NOW) is None


class TestMoney:
    @pytest.mark.parametrize(
        ("estimate", "fits"), [(0.0, True), (0.2, True), (0.25, True), (0.26, False), (5.0, False)]
    )
    def test_a_turn_beside_others_must_fit_into_what_is_left(self, estimate: float, fits: bool) -> None:
        assert Limits(cost=1.0).may_reserve(Spent(cost=0.5), reserved=0.25, estimate=estimate) is fits

    def test_without_a_limit_everything_fits(self) -> None:
        assert Limits().may_reserve(Spent(cost=1e9), reserved=1e9, estimate=1e9)

    def test_remaining_cost_is_never_negative(self) -> None:
        limits = Limits(cost=1.0)
        assert limits.compute_remaining_cost(Spent(cost=0.25), reserved=0.25) == 0.5
        assert limits.compute_remaining_cost(Spent(cost=3.0)) == 0.0
        assert Limits().compute_remaining_cost(Spent()) is None


class TestSpending:
    def test_a_turn_adds_up(self) -> None:
        spent = Spent().with_turn(Usage(10, 5, 0.5), is_iteration=True).with_turn(Usage(1, 1, None), is_iteration=False)
        assert spent == Spent(iterations=1, turns=2, input_tokens=11, output_tokens=6, cost=0.5, unpriced_turns=1)
        assert spent.tokens == 17

    def test_unknown_cost_stays_unknown_until_one_is_reported(self) -> None:
        assert (Usage(1) + Usage(2)).cost is None
        assert (Usage(1) + Usage(2, cost=0.5)).cost == 0.5
        assert (Usage(1, cost=0.0) + Usage(2)).cost == 0.0

    @settings(deadline=None)
    @given(usages, usages)
    def test_adding_usage_does_not_depend_on_the_order(self, one: Usage, other: Usage) -> None:
        assert one + other == other + one
        assert one + Usage() == one


class TestExtending:
    SPENT = Spent(iterations=12, active_seconds=4000.0, input_tokens=700, output_tokens=400, cost=5.5)
    GRANTED = Limits(iterations=10, active_seconds=3600.0, deadline=NOW, tokens=1000, cost=5.0)

    @pytest.mark.parametrize(
        ("outcome", "extended"),
        [
            (Outcome.LIMIT_ITERATIONS, {"iterations": 22}),
            (Outcome.LIMIT_TIME, {"active_seconds": 7600.2}),  # up to a hundredth of a minute
            (Outcome.LIMIT_TOKENS, {"tokens": 2100}),
            (Outcome.LIMIT_COST, {"cost": 10.5}),
        ],
    )
    def test_resume_extends_only_the_limit_that_was_reached(self, outcome: Outcome, extended: dict[str, float]) -> None:
        after = self.GRANTED.extend(outcome, self.SPENT, self.GRANTED)
        assert after == replace(self.GRANTED, **extended)

    @pytest.mark.parametrize("outcome", [outcome for outcome in Outcome if not outcome.startswith("limit-")])
    def test_other_ends_grant_nothing(self, outcome: Outcome) -> None:
        assert self.GRANTED.extend(outcome, self.SPENT, self.GRANTED) == self.GRANTED

    def test_a_deadline_is_not_moved(self) -> None:
        assert self.GRANTED.extend(Outcome.LIMIT_DEADLINE, self.SPENT, self.GRANTED) == self.GRANTED

    @settings(deadline=None)
    @given(spents)
    def test_after_an_extension_the_run_can_continue(self, spent: Spent) -> None:
        limits = replace(self.GRANTED, deadline=None)
        for _ in range(4):
            reached = limits.find_reached(spent, NOW)
            if reached is None:
                break
            limits = limits.extend(reached, spent, self.GRANTED)
        assert limits.find_reached(spent, NOW) is None
