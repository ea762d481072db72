"""An empty project in a git repository."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playground import Playground, playground


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Playground]:
    with playground(tmp_path) as place:
        yield place
