"""Prices: known models by the longest name, never a guess, and the user's word first."""

import pytest

from ralph.agents.prices import cost_of

MILLION = 1_000_000


def test_tokens_cost_what_the_table_says_and_cached_ones_less() -> None:
    assert cost_of("gpt-5", MILLION, 0, 0, {}) == 1.25
    assert cost_of("gpt-5", MILLION, MILLION, 0, {}) == 0.125
    assert cost_of("gpt-5", 0, 0, MILLION, {}) == 10.0
    assert cost_of("gpt-5", 1500, 500, 57, {}) == pytest.approx((1000 * 1.25 + 500 * 0.125 + 57 * 10) / MILLION)


@pytest.mark.parametrize(
    ("model", "like"),
    [
        ("gpt-5.4-mini", 0.75),
        ("gpt-5.4-mini-2026-03-17", 0.75),
        ("GPT-5.4", 2.5),
        ("openai/gpt-5.4", 2.5),
        ("gemini-2.5-flash-lite", 0.1),
        ("gemini-2.5-flash-preview-09-2025", 0.3),
        ("gemini-3-pro-preview", 2.0),
        ("claude-opus-4-5-20251101", 5.0),
        ("claude-opus-4-8[1m]", 5.0),
        ("claude-opus-4-5@20251101", 5.0),
    ],
)
def test_the_longest_name_wins_whatever_the_edition(model: str, like: float) -> None:
    assert cost_of(model, MILLION, 0, 0, {}) == like


@pytest.mark.parametrize("model", ["", "gpt-5.9", "gpt-5-ultra", "gpt-50", "gpt", "mock-model", "gemini-9-pro", "[1m]"])
def test_a_model_that_is_not_known_has_no_price(model: str) -> None:
    assert cost_of(model, MILLION, 0, MILLION, {}) is None


def test_prices_of_the_user_win() -> None:
    mine = {"gpt-5": (7.0, 0.7, 70.0), "house-model": (1.0, 1.0, 2.0)}
    assert cost_of("gpt-5-2026-01-01", MILLION, 0, 0, mine) == 7.0
    assert cost_of("house-model", MILLION, 0, MILLION, mine) == 3.0
    assert cost_of("gpt-5-mini", MILLION, 0, 0, mine) == 0.25


def test_more_cached_tokens_than_tokens_are_not_a_refund() -> None:
    assert cost_of("gpt-5", 100, 10_000, 0, {}) == pytest.approx(100 * 0.125 / MILLION)
