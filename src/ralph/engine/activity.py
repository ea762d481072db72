"""Active time: the time in which at least one turn or check of the run was under way."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Activity:
    """A stopwatch that runs while anybody works."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._workers = 0
        self._since = 0.0
        self._collected = 0.0

    @contextmanager
    def working(self) -> Iterator[None]:
        """Time spent in here is active time, counted once however many work at once."""
        if self._workers == 0:
            self._since = self._now()
        self._workers += 1
        try:
            yield
        finally:
            self._collect()
            self._workers -= 1

    def credit(self, seconds: float) -> None:
        """Count work that went on while no engine was there."""
        self._collected += max(0.0, seconds)

    def take(self) -> float:
        """The active seconds since they were last taken."""
        self._collect()
        taken, self._collected = self._collected, 0.0
        return taken

    def peek(self) -> float:
        """The active seconds that were not taken yet."""
        self._collect()
        return self._collected

    def _collect(self) -> None:
        if self._workers:
            now = self._now()
            self._collected += max(0.0, now - self._since)
            self._since = now
