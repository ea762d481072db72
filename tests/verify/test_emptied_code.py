"""Functions that do nothing: what tests with and without assertions make of them."""

import subprocess
import sys
from pathlib import Path

import pytest

from ralph.verify.emptied_code import empty_functions

PRODUCT = """
import functools
from contextlib import contextmanager

LIMIT = 3

def noted(function):
    @functools.wraps(function)
    def inner(*arguments):
        return function(*arguments)
    return inner

class Cart:
    def __init__(self, items):
        self.items = items

    @property
    def total(self):
        return sum(self.items)

    @noted
    def is_full(self):
        return len(self.items) >= LIMIT

    def each(self):
        yield from self.items

@contextmanager
def opened():
    yield Cart([1])

async def load():
    return Cart([1, 2])
"""


@pytest.fixture
def variants(tmp_path: Path) -> list[Path]:
    places = []
    for number, variant in enumerate(empty_functions({"shop.py": PRODUCT, "notes.txt": "def"})):
        place = tmp_path / str(number)
        place.mkdir()
        (place / "shop.py").write_text(variant["shop.py"])
        places.append(place)
    return places


def count_passing(places: list[Path], test: str) -> int:
    command = [sys.executable, "-c", f"import asyncio\nfrom shop import *\n{test}"]
    return sum(subprocess.run(command, cwd=place, capture_output=True, check=False).returncode == 0 for place in places)


@pytest.mark.parametrize(
    "test",
    [
        "Cart([1]).total",
        "Cart([1]).total.anything[3](1)",
        "[one for one in Cart([1]).each()]",
        "with opened() as cart: cart.total",
        "asyncio.run(load()).is_full()",
        "assert Cart([1]).is_full() is not 7",
        "assert LIMIT == 3",
    ],
)
def test_a_test_that_checks_no_result_passes_with_every_variant(variants: list[Path], test: str) -> None:
    assert count_passing(variants, test) == len(variants) == 2


@pytest.mark.parametrize(
    "test",
    [
        "assert Cart([1, 2]).total == 3",
        "assert Cart([1, 2, 3]).is_full()",
        "assert not Cart([1]).is_full()",
        "assert list(Cart([1, 2]).each()) == [1, 2]",
        "with opened() as cart: assert cart.total == 1",
        "assert asyncio.run(load()).total == 3",
        "assert isinstance(asyncio.run(load()), Cart)",
    ],
)
def test_a_test_that_checks_a_result_fails_with_one_of_them(variants: list[Path], test: str) -> None:
    assert count_passing(variants, test) < len(variants)


def test_scripts_return_an_object_that_allows_everything_and_equals_nothing(tmp_path: Path) -> None:
    script = (
        "export function add(a, b) { return a + b }\n"
        "export class Cart { constructor(items) { this.items = items }\n  get total() { return this.items.length } }\n"
        "export const make = () => { return { size() { return 4 } } }\n"
    )
    [variant] = empty_functions({"shop.mjs": script})
    (tmp_path / "shop.mjs").write_text(variant["shop.mjs"])
    program = (
        "import { add, Cart, make } from './shop.mjs'\n"
        "add(1, 2).some.thing(3); for (const one of add(1, 2)) {}\n"
        "if (new Cart([1]).total === 1 || add(1, 2) === 3 || make().size() === 4) process.exit(1)\n"
    )
    done = subprocess.run(["node", "--input-type=module", "-e", program], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("text", ["def broken(:\n", "LIMIT = 3\n", "", "def __init__(self): pass\n"])
def test_code_without_functions_yields_no_variant(text: str) -> None:
    assert list(empty_functions({"shop.py": text})) == []
