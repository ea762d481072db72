"""Where the tests work: in memory, if there is enough of it, for most of them wait for a disk and for nothing else.

Properties are tried on the same examples each time, so that a change is judged by itself; `RALPH_EXPLORE=1` tries others.
"""

import os
import shutil
from pathlib import Path

from hypothesis import settings

settings.register_profile("steady", derandomize=True)
if not os.environ.get("RALPH_EXPLORE"):
    settings.load_profile("steady")

MEMORY = Path("/dev/shm")
ENOUGH = 3 << 30


def pytest_configure() -> None:
    if MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ENOUGH:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))
