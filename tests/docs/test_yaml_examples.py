"""Examples on the pages: what a user copies must be valid."""

import re
from pathlib import Path

import pytest

from ralph.documents import yaml_codec

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^```ya?ml\n(.*?)^```", re.MULTILINE | re.DOTALL)
EXAMPLES = [
    pytest.param(found[1], id=f"{page.name}-{number}")
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    for number, found in enumerate(FENCE.finditer(page.read_text(encoding="utf-8")), 1)
]


@pytest.mark.parametrize("text", EXAMPLES)
def test_yaml_on_the_pages_is_valid(text: str) -> None:
    assert yaml_codec.compose(text) is not None
