"""What tokens cost, for agents that report tokens but no cost."""

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

Prices = Mapping[str, tuple[float, ...]]
"""US dollars per million tokens by model: in, cached, out."""
_EDITION = re.compile(r"(?:[-@:](?:latest|preview|exp|\d{3}|\d{4}|\d{8}|\d{4}-\d\d-\d\d|\d\d-\d{4}))*(?:\[1m\])?")
"""What can follow the name of a model and leave it the same model: `-2026-03-17`, `-preview-09-2025`, `@20251101`."""
_MILLION = 1_000_000


def has_price(model: str, overrides: Prices) -> bool:
    """Whether the user or the table names a price for a model."""
    return cost_of(model, 0, 0, 0, overrides) is not None


def cost_of(model: str, input_tokens: int, cached_tokens: int, output_tokens: int, overrides: Prices) -> float | None:
    """US dollars for tokens of a model; None if its price is not known.

    Cached tokens are part of the input tokens. `overrides`, from the user, win over the table of this package.
    """
    price = _find_price(model, overrides) or _find_price(model, _load_table())
    if price is None:
        return None
    cached = min(cached_tokens, input_tokens)
    fresh, reused, out = price
    return ((input_tokens - cached) * fresh + cached * reused + output_tokens * out) / _MILLION


def _find_price(model: str, table: Prices) -> tuple[float, float, float] | None:
    """The price under the longest name that the model's name begins with, if the rest is only a version."""
    name = _normalize(model.rpartition("/")[2])
    fitting = [key for key in table if name.startswith(_normalize(key)) and _EDITION.fullmatch(name[len(key) :])]
    price = table[max(fitting, key=len)] if fitting else ()
    return (price[0], price[1], price[2]) if len(price) == 3 else None


def _normalize(name: str) -> str:
    """A name for comparison: some agents write `claude-sonnet-4.5`, others `claude-sonnet-4-5`."""
    return name.strip().lower().replace(".", "-")


@cache
def _load_table() -> Prices:
    table: dict[str, tuple[float, ...]] = {}
    vendors = tomllib.loads(Path(__file__).with_name("prices.toml").read_text(encoding="utf-8"))
    for models in vendors.values():
        for model, price in models.items():
            table[model] = tuple(map(float, price))
    return table
