"""One server for all tests of a module that do not change how it runs."""

from collections.abc import Iterator

import pytest
from web_server import Server, make_project, serving


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("web")
    with serving(make_project(directory), directory / "state") as running:
        yield running
