"""Third-party adapters: classes that installed packages name by entry points of the group `ralph.agents`.

Ralph looks for them only if the user names an agent that Ralph does not ship, or if it lists agents.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from inspect import isabstract
from pathlib import Path
from typing import TypeVar

from ralph.agents.adapter import Adapter, Call, Reader
from ralph.agents.prices import Prices
from ralph.agents.programs import Program
from ralph.core.errors import AgentUnavailableError
from ralph.core.limits import Usage
from ralph.core.turns import AgentEvent, EventKind, Failure

T = TypeVar("T")


class Guarded(Adapter):
    """A third-party adapter. An exception in it becomes an error that names its package."""

    def __init__(self, inner: Adapter, package: str) -> None:
        super().__init__(inner.program, inner.prices)
        vars(self).update({name: getattr(inner, name) for name in Adapter.__annotations__})
        self._inner, self._package = inner, package

    def command(self, call: Call) -> tuple[str, ...]:
        """Without a command, no turn can start."""
        return self._call_safely("command", lambda: tuple(self._inner.command(call)))

    def environment(self, call: Call) -> Mapping[str, str]:
        """Without its environment, no turn can start."""
        return self._call_safely("environment", lambda: dict(self._inner.environment(call)))

    def reader(self, call: Call, before: Usage) -> Reader:
        """Its reader, until that fails."""
        return GuardedReader(
            self._call_safely("reader", lambda: self._inner.reader(call, before)), self._describe_fault
        )

    def failure(self, code: int | None, stderr: str) -> tuple[Failure, str] | None:
        """An exception in the adapter fails the turn."""
        return self._call_safely(
            "failure", lambda: self._inner.failure(code, stderr), lambda error: (Failure.AGENT, error)
        )

    def prepare(self, environment: Mapping[str, str]) -> str:
        """An exception in the adapter becomes a notice for the user."""
        return self._call_safely("prepare", lambda: self._inner.prepare(environment), lambda error: error)

    def can_receive_messages(self, call: Call) -> bool:
        """An adapter that fails receives none."""
        return self._call_safely(
            "can_receive_messages", lambda: self._inner.can_receive_messages(call), lambda _: False
        )

    def sign_in(self, environment: Mapping[str, str], home: Path) -> tuple[bool | None, str]:
        """An adapter that fails counts as not signed in."""
        return self._call_safely(
            "sign_in", lambda: self._inner.sign_in(environment, home), lambda error: (False, error)
        )

    def _call_safely(self, method: str, call: Callable[[], T], fallback: Callable[[str], T] | None = None) -> T:
        """Call a method of the adapter. If it raises, use the fallback for the error, or raise it for the user."""
        try:
            return call()
        except Exception as error:  # third-party code can raise anything
            message = self._describe_fault(method, error)
            if fallback:
                return fallback(message)
            raise AgentUnavailableError(message, todo="update or fix that package, or name another agent") from error

    def _describe_fault(self, method: str, error: Exception) -> str:
        return f"the adapter of {self.name} ({self._package}) fails in {method}(): {_describe(error)}"


@dataclass
class GuardedReader:
    """Reads until the reader raises. Then it reports a failed turn, and reads no further."""

    inner: Reader
    describe_fault: Callable[[str, Exception], str]
    failed: bool = False

    def read(self, line: bytes) -> Iterator[AgentEvent]:
        """The events in a line."""
        if self.failed:
            return
        try:
            for event in self.inner.read(line):
                if not isinstance(event, AgentEvent):
                    raise TypeError(f"{event!r:.100} is not an AgentEvent")
                yield event
        except Exception as error:  # noqa: BLE001 - third-party code can raise anything
            self.failed = True
            yield AgentEvent(EventKind.RESULT, self.describe_fault("read", error), is_error=True, failure=Failure.AGENT)


GROUP = "ralph.agents"
_REQUIRED_TEXTS = ("name", "install", "advice")
"""Attributes that every adapter must set."""


def find_entry_points() -> Mapping[str, tuple[EntryPoint, ...]]:
    """The entry points for adapters, by the name of the agent. Nothing is imported."""
    found: dict[str, tuple[EntryPoint, ...]] = {}
    for entry in sorted(entry_points(group=GROUP), key=_source):
        found[entry.name] = (*found.get(entry.name, ()), entry)
    return found


def load(name: str, program: str = "", prices: Prices | None = None) -> Adapter:
    """Load the adapter of an agent from its package. An error names the package and what is wrong."""
    found = find_entry_points().get(name, ())
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
    except (Exception, SystemExit) as error:  # third-party code can raise anything
        raise refusal(name, found, f"the adapter of {name} cannot be imported: {_describe(error)}") from error
    if fault := _find_class_fault(kind, name):
        raise refusal(name, found, f"the adapter of {name} cannot be used: {fault}")
    try:
        return Guarded(kind(program, prices), _source(entry).partition(" (")[0])
    except Exception as error:
        raise refusal(name, found, f"the adapter of {name} cannot be created: {_describe(error)}") from error


def refusal(name: str, found: tuple[EntryPoint, ...], what: str, todo: str = "") -> AgentUnavailableError:
    """The error for an adapter that cannot be used, with the packages that it comes from."""
    package = found[0].dist.name if found[0].dist else name
    todo = todo or f"update or fix that package, or `pip uninstall {package}`"
    return AgentUnavailableError(what, where="; ".join(map(_source, found)), todo=todo)


def _source(entry: EntryPoint) -> str:
    package = f"{entry.dist.name} {entry.dist.version}" if entry.dist else "an unnamed package"
    return f"{package} ({entry.name} = {entry.value})"


def _describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def _find_class_fault(kind: object, name: str) -> str:
    """Why a class is not an adapter; empty if it is one."""
    if not isinstance(kind, type) or not issubclass(kind, Adapter):
        return "it is not a subclass of ralph.agents.adapter.Adapter"
    if isabstract(kind):
        return f"{kind.__name__} does not define {', '.join(sorted(kind.__abstractmethods__))}"
    missing = []
    for attribute in _REQUIRED_TEXTS:
        value = getattr(kind, attribute, None)
        if not isinstance(value, str) or not value:
            missing.append(attribute)
    if missing:
        return f"{kind.__name__} does not set {', '.join(missing)}"
    return f"{kind.__name__} has the name {kind.name}" if kind.name != name else ""


class MissingAdapter(Program):
    """Replaces an adapter that is gone after its run was started. Its turns fail, and say why."""

    announces_end = True

    def __init__(self, name: str, advice: str, reason: str) -> None:
        super().__init__(name, ("false",))
        self.advice, self.reason = advice, reason

    def failure(self, code: int | None, stderr: str) -> tuple[Failure, str] | None:
        """Only the user can help."""
        return Failure.ACCESS, self.reason
