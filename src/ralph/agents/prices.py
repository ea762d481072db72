"""What tokens cost, where an agent tells tokens and no money."""

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

Prices = Mapping[str, tuple[float, ...]]
"""US dollars for a million tokens by model (in, cached, out), where the user knows better than the table."""
_EDITION = re.compile(r"(?:[-@:](?:latest|preview|exp|\d{3}|\d{4}|\d{8}|\d{4}-\d\d-\d\d|\d\d-\d{4}))*(?:\[1m\])?")
"""What may follow the name of a model without making it another one: `-2026-03-17`, `-preview-09-2025`, `@20251101`."""
_MILLION = 1_000_000


def has_price(model: str, overrides: Prices) -> bool:
    """Whether the price of a model is known."""
    return cost_of(model, 0, 0, 0, overrides) is not None


def cost_of(model: str, input_tokens: int, cached_tokens: int, output_tokens: int, overrides: Prices) -> float | None:
    """US dollars for tokens of a model, the cached ones being part of those put in; None where its price is not known.

    What the user says in `overrides` (in, cached, out) wins over the table of this package.
    """
    price = _price(model, overrides) or _price(model, _table())
    if price is None:
        return None
    cached = min(cached_tokens, input_tokens)
    fresh, reused, out = price
    return ((input_tokens - cached) * fresh + cached * reused + output_tokens * out) / _MILLION


def _price(model: str, table: Prices) -> tuple[float, float, float] | None:
    """The price of the longest name that the model's begins with, where what follows is only its edition."""
    name = _plain(model.rpartition("/")[2])
    fitting = [key for key in table if name.startswith(_plain(key)) and _EDITION.fullmatch(name[len(key) :])]
    price = table[max(fitting, key=len)] if fitting else ()
    return (price[0], price[1], price[2]) if len(price) == 3 else None


def _plain(name: str) -> str:
    """A name as it is compared: some agents write `claude-sonnet-4.5` where others write `claude-sonnet-4-5`."""
    return name.strip().lower().replace(".", "-")


@cache
def _table() -> Prices:
    makers = tomllib.loads(Path(__file__).with_name("prices.toml").read_text(encoding="utf-8"))
    return {model: tuple(map(float, price)) for models in makers.values() for model, price in models.items()}
