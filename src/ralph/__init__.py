"""Ralph runs AI coding agents in loops until the work is verified done.

The public Python API is here: `ralph.loop`, `ralph.session`, `ralph.hats`, `ralph.runs`, `ralph.open`, `ralph.verify`, and
the values that they return. See docs/api.md. It is loaded on first use, because every command of Ralph imports this package.
"""

# `ralph emit` and `ralph tools` import this package, and `typing` is slow to import. Type checkers know this name.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from ralph.api import Ack, Message, Result, RunChange, RunHandle, WaitTimeout, hats, loop, runs, session, verify
    from ralph.api import open_run as open
    from ralph.callable_agent import AgentTurn
    from ralph.core.checks import CheckResult
    from ralph.core.errors import RalphError
    from ralph.core.outcomes import Outcome
    from ralph.view.model import RunRow, RunView

__version__ = "0.1.0"
__all__ = [
    "Ack",
    "AgentTurn",
    "CheckResult",
    "Message",
    "Outcome",
    "RalphError",
    "Result",
    "RunChange",
    "RunHandle",
    "RunRow",
    "RunView",
    "WaitTimeout",
    "__version__",
    "hats",
    "loop",
    "open",
    "runs",
    "session",
    "verify",
]
_HOMES = {
    "AgentTurn": "ralph.callable_agent",
    "CheckResult": "ralph.core.checks",
    "Outcome": "ralph.core.outcomes",
    "RalphError": "ralph.core.errors",
    "RunRow": "ralph.view.model",
    "RunView": "ralph.view.model",
}


def __getattr__(name: str) -> object:
    """Load a name of the public API."""
    if name not in __all__:
        raise AttributeError(f"module 'ralph' has no attribute {name!r}")
    from importlib import import_module

    home = import_module(_HOMES.get(name, "ralph.api"))
    return getattr(home, "open_run" if name == "open" else name)


def __dir__() -> list[str]:
    return sorted(__all__)
