"""Adapters of third parties: classes that installed packages name by entry points of the group `ralph.agents`.

They are only looked for where an agent is named that Ralph does not know itself, and where agents are listed.
"""

from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from inspect import isabstract

from ralph.agents.adapter import Adapter
from ralph.agents.plugin_errors import Guarded
from ralph.agents.prices import Prices
from ralph.agents.programs import Program
from ralph.core.errors import AgentUnavailableError
from ralph.core.stream import Failure

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
