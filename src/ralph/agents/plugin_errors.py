"""Adapters of others, held off: what they raise is a fault of their package, told by its name, and ends no engine."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from ralph.agents.adapter import Adapter
from ralph.agents.agent import Call, Reader
from ralph.core.errors import AgentUnavailableError
from ralph.core.limits import Usage
from ralph.core.stream import AgentEvent, Failure, Kind

T = TypeVar("T")


class Guarded(Adapter):
    """An adapter of others."""

    def __init__(self, inner: Adapter, package: str) -> None:
        super().__init__(inner.program, inner.prices)
        vars(self).update({one: getattr(inner, one) for one in Adapter.__annotations__})
        self._inner, self._package = inner, package

    def command(self, call: Call) -> tuple[str, ...]:
        """Without its words no turn can be started."""
        return self._asked("command", lambda: tuple(self._inner.command(call)))

    def environment(self, call: Call) -> Mapping[str, str]:
        """The same holds for its environment."""
        return self._asked("environment", lambda: dict(self._inner.environment(call)))

    def reader(self, call: Call, before: Usage) -> Reader:
        """Who reads a turn, as long as it can."""
        return GuardedReader(self._asked("reader", lambda: self._inner.reader(call, before)), self._fault)

    def failure(self, code: int | None, stderr: str) -> tuple[Failure, str] | None:
        """A fault is a reason as well."""
        return self._asked("failure", lambda: self._inner.failure(code, stderr), lambda told: (Failure.AGENT, told))

    def ready(self, environment: Mapping[str, str]) -> str:
        """A fault is something to know."""
        return self._asked("ready", lambda: self._inner.ready(environment), lambda told: told)

    def hears(self, call: Call) -> bool:
        """Whoever cannot tell does not hear."""
        return self._asked("hears", lambda: self._inner.hears(call), lambda _: False)

    def sign_in(self, environment: Mapping[str, str], home: Path) -> tuple[bool | None, str]:
        """Whoever fails is not fit to be used."""
        return self._asked("sign_in", lambda: self._inner.sign_in(environment, home), lambda told: (False, told))

    def _asked(self, what: str, does: Callable[[], T], instead: Callable[[str], T] | None = None) -> T:
        try:
            return does()
        except Exception as error:  # the code is that of others
            told = self._fault(what, error)
            if instead:
                return instead(told)
            raise AgentUnavailableError(told, todo="update or mend that package, or name another agent") from error

    def _fault(self, what: str, error: Exception) -> str:
        said = " ".join(str(error).split())[:300]
        return f"the adapter of {self.name} ({self._package}) fails in {what}(): {type(error).__name__}: {said}"


@dataclass
class GuardedReader:
    """Reads until it fails: that is told, and no more is read of the turn, which has failed then."""

    inner: Reader
    fault: Callable[[str, Exception], str]
    failed: bool = False

    def read(self, line: bytes) -> Iterator[AgentEvent]:
        """What a line tells."""
        if self.failed:
            return
        try:
            for event in self.inner.read(line):
                if not isinstance(event, AgentEvent):
                    raise TypeError(f"{event!r:.100} is no AgentEvent")
                yield event
        except Exception as error:  # noqa: BLE001 - the code is that of others
            self.failed = True
            yield AgentEvent(Kind.RESULT, self.fault("read", error), is_error=True, failure=Failure.AGENT)
