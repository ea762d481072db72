"""The check for retired words finds what it is for. `make check` runs it on the whole repository."""

import ast
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def check() -> ModuleType:
    spec = importlib.util.spec_from_file_location("retired_words", ROOT / "docs" / "retired_words.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_retired_word_is_found_with_its_line_and_a_replacement(check: ModuleType, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("It waits.\nIt waits for a person.\n")
    [fault] = check.find_words(page)
    assert (fault.line, "write: the user" in fault.what) == (2, True)


@pytest.mark.parametrize(
    ("code", "faults"),
    [
        ("def judged() -> None: ...", 1),
        ("def _told() -> None: ...", 1),
        ("def taker(topic: str) -> None: ...", 1),
        ("@property\ndef judged(self) -> bool: ...", 0),
        ("def find_judged() -> None: ...", 0),
        ("def feed() -> None: ...", 0),
    ],
)
def test_a_retired_name_is_found(check: ModuleType, code: str, faults: int) -> None:
    assert len(list(check.find_names(Path("x.py"), ast.parse(code)))) == faults


@pytest.mark.parametrize(
    ("name", "faults"), [("test_what_is_none_is_none", 1), ("test_invalid_timestamp_is_none", 0), ("test_itself", 0)]
)
def test_a_test_name_that_says_nothing_is_found(check: ModuleType, name: str, faults: int) -> None:
    assert len(list(check.find_test_names(Path("x.py"), ast.parse(f"def {name}() -> None: ...")))) == faults
