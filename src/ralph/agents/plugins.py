"""Adapters of third parties: classes that installed packages name by entry points of the group `ralph.agents`.

They are only looked for where an agent is named that Ralph does not know itself, and where agents are listed.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from inspect import isabstract
from pathlib import Path
from typing import TypeVar

from ralph.agents.adapter import Adapter
from ralph.agents.agent import Call, Reader
from ralph.agents.prices import Prices
from ralph.agents.programs import Program
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


GROUP = "ralph.agents"
_SAID = ("name", "install", "advice")
"""What a class must say of itself."""


def claims() -> Mapping[str, tuple[EntryPoint, ...]]:
    """Who claims to have the adapter of which agent, by name; nothing of it is imported."""
    found: dict[str, tuple[EntryPoint, ...]] = {}
    for entry in sorted(entry_points(group=GROUP), key=_source):
        found[entry.name] = (*found.get(entry.name, ()), entry)
    return found


def load(name: str, program: str = "", prices: Prices | None = None) -> Adapter:
    """The adapter of an agent, from the package that has it; an error says which package that is and what is wrong."""
    found = claims().get(name, ())
    if not found:
        raise AgentUnavailableError(
            f"no installed package has an adapter for {name}",
            todo=f"install the package that had it beside Ralph; it has an entry point `{name}` of the group `{GROUP}`",
        )
    if len(found) > 1:
        raise refusal(name, found, f"{len(found)} packages claim the agent {name}", "uninstall all but one of them")
    [entry] = found
    try:
        kind = entry.load()
    except (Exception, SystemExit) as error:  # what is imported is code of others
        raise refusal(name, found, f"the adapter of {name} cannot be imported: {_told(error)}") from error
    if wrong := _wrong_with(kind, name):
        raise refusal(name, found, f"the adapter of {name} cannot be used: {wrong}")
    try:
        return Guarded(kind(program, prices), _source(entry).partition(" (")[0])
    except Exception as error:
        raise refusal(name, found, f"the adapter of {name} cannot be made: {_told(error)}") from error


def refusal(name: str, found: tuple[EntryPoint, ...], what: str, todo: str = "") -> AgentUnavailableError:
    """The error of an adapter that is not used, with the packages that it comes from."""
    package = found[0].dist.name if found[0].dist else name
    todo = todo or f"update or mend that package, or `pip uninstall {package}`"
    return AgentUnavailableError(what, where="; ".join(map(_source, found)), todo=todo)


def _source(entry: EntryPoint) -> str:
    package = f"{entry.dist.name} {entry.dist.version}" if entry.dist else "an unnamed package"
    return f"{package} ({entry.name} = {entry.value})"


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def _wrong_with(kind: object, name: str) -> str:
    """Why something is no adapter; empty where it is one."""
    if not isinstance(kind, type) or not issubclass(kind, Adapter):
        return "it is no class derived from ralph.agents.adapter.Adapter"
    if isabstract(kind):
        left = sorted(kind.__abstractmethods__)
        return f"{kind.__name__} does not define {', '.join(left)}"
    if unsaid := [one for one in _SAID if not isinstance(getattr(kind, one, None), str) or not getattr(kind, one)]:
        return f"{kind.__name__} does not say its {', '.join(unsaid)}"
    return f"{kind.__name__} calls itself {kind.name}" if kind.name != name else ""


class Absent(Program):
    """Stands in for an adapter that went missing after a run was started: its turns fail, and say why."""

    announces_end = True

    def __init__(self, name: str, advice: str, why: str) -> None:
        super().__init__(name, ("false",))
        self.advice, self.why = advice, why

    def failure(self, code: int | None, stderr: str) -> tuple[Failure, str] | None:
        """Only a person can help."""
        return Failure.ACCESS, self.why
