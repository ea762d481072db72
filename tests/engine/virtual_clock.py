"""Time that passes at once: an event loop whose timers are those of a clock that jumps to what comes next."""

import asyncio
import heapq
import selectors
from collections.abc import Callable
from itertools import count

EPOCH = 1_800_000_000.0
"""When every simulated run begins."""


class Endless(AssertionError):
    """The run does not come to an end."""


class VirtualClock:
    """Time that passes only while everybody waits; what was planned for a moment happens at that moment."""

    def __init__(self) -> None:
        self._now = EPOCH
        self._order = count()
        self._plans: list[tuple[float, int, Callable[[], None]]] = []

    def now(self) -> float:
        """Seconds since the epoch."""
        return self._now

    async def sleep(self, seconds: float) -> None:
        """Let that much time pass."""
        await asyncio.sleep(seconds)

    def plan(self, at: float, action: Callable[[], None]) -> None:
        """Let something happen in the world, whether an engine is there or not."""
        heapq.heappush(self._plans, (max(at, self._now), next(self._order), action))

    def advance(self, seconds: float | None) -> None:
        """Let time pass, as far as the next plan."""
        if seconds is None and not self._plans:
            raise Endless("everybody waits, and nothing will ever happen")
        target = float("inf") if seconds is None else self._now + max(0.0, seconds)
        if not self._plans or self._plans[0][0] > target:
            self._now = target
            return
        self._now = self._plans[0][0]
        while self._plans and self._plans[0][0] <= self._now:
            heapq.heappop(self._plans)[2]()

    def pass_by(self, seconds: float) -> None:
        """Let time pass while there is no engine."""
        target = self._now + seconds
        while self._now < target:
            self.advance(target - self._now)


class _VirtualSelector(selectors.SelectSelector):
    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout != 0:
            self._clock.advance(timeout)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop on a virtual clock: every timer of asyncio is one of that clock."""

    def __init__(self, clock: VirtualClock) -> None:
        self._virtual = clock
        super().__init__(_VirtualSelector(clock))
        self._clock_resolution = 1e-6

    def time(self) -> float:
        """The moment that the clock shows."""
        return self._virtual.now()
