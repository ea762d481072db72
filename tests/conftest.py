"""Where the tests work: in memory, if there is enough of it, for most of them wait for a disk and for nothing else.

Most start programs of ours anew, so their modules are compiled once, and so are the tests themselves; the little projects
that they work on are never compiled, for what was written twice in a second would then be run as it was before.

Properties are tried on the same examples each time, so that a change is judged by itself; `RALPH_EXPLORE=1` tries others.
"""

import compileall
import os
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")
ENOUGH = 3 << 30
SOURCE = Path(__file__).parent.parent / "src" / "ralph"


def pytest_configure(config: pytest.Config) -> None:
    sys.dont_write_bytecode = False
    from hypothesis import HealthCheck, settings

    settings.register_profile(
        "ralph",
        derandomize=not os.environ.get("RALPH_EXPLORE"),
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    )
    settings.load_profile("ralph")
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    # The tests of other areas are about other things, and many machines have no bubblewrap. tests/sandbox covers the default;
    # `RALPH_SANDBOX=write` runs everything inside.
    os.environ.setdefault("RALPH_SANDBOX", "off")
    # Sessions write local times, and what they write is compared with files.
    os.environ["TZ"] = "UTC"
    time.tzset()
    if not hasattr(config, "workerinput"):
        compileall.compile_dir(SOURCE, quiet=2)
    if MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ENOUGH:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


def pytest_xdist_auto_num_workers() -> int:
    """One more than there are cores: tests that start programs spend a third of their time waiting for them."""
    return len(os.sched_getaffinity(0)) + 1 if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1) + 1


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The first cases of a test that is marked `more_are_slow(N)` are run by default, the others by `make test-slow`."""
    seen: Counter[str] = Counter()
    for item in items:
        if mark := item.get_closest_marker("more_are_slow"):
            test = item.nodeid.partition("[")[0]
            seen[test] += 1
            if seen[test] > mark.args[0]:
                item.add_marker(pytest.mark.slow)


def pytest_collection_finish() -> None:
    sys.dont_write_bytecode = True


@pytest.fixture(autouse=True, scope="session")
def _own_state_directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What Ralph keeps for the user is of the tests, unless one has a home of its own."""
    before = os.environ.get("XDG_STATE_HOME")
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))
    yield
    if before is None:
        del os.environ["XDG_STATE_HOME"]
    else:
        os.environ["XDG_STATE_HOME"] = before


@pytest.fixture(autouse=True)
def _no_heads_of_other_tests() -> None:
    """Pytest gives the directory of a test to the next one of that name, and its journal is not the one from before."""
    shutil.rmtree(Path(os.environ["XDG_STATE_HOME"]) / "ralph" / "heads", ignore_errors=True)
