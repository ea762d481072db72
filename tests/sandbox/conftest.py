"""Skips these tests if there is no sandbox here, and says how to get one."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sandbox_place import Place

from ralph.supervisor.sandbox import probe


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    found = probe()
    if not found.works:
        skip = pytest.mark.skip(reason=f"{found.problem}; `make sandbox` installs bubblewrap")
        for item in items:
            if Path(__file__).parent in item.path.parents:
                item.add_marker(skip)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path / "project", tmp_path / "home")
    place.root.mkdir()
    (place.home / ".ssh").mkdir(parents=True)
    (place.home / ".ssh" / "id_ed25519").write_text("private key\n")
    (place.root / "README").write_text("first\n")
    place.git("init", "-q", "-b", "main")
    place.git("config", "user.name", "User")
    place.git("config", "user.email", "user@example.com")
    place.git("add", "README")
    place.git("commit", "-q", "-m", "first")
    yield place
