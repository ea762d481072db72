"""A function of the user as the agent: `ralph.loop(..., agent=my_function)` starts this module once for every turn.

The function gets an `AgentTurn` and works in the current directory. It returns its last message, or a dictionary with its
answer (`summary`, `status` and so on). An exception fails the turn.
"""

import ast
import importlib
import importlib.util
import json
import os
import shlex
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from ralph.core.errors import UsageError

STARTS = frozenset({"loop", "session", "hats"})
"""The functions of `ralph` that start a run."""
GUARD = 'put what starts the run below `if __name__ == "__main__":`, or move the function to another file'


@dataclass(frozen=True)
class AgentTurn:
    """What a function that acts as the agent is given."""

    prompt: str
    role: str
    number: int
    outbox: Path
    """The directory for its answer and documents."""


def command_for(function: Callable[..., object]) -> str:
    """The command that calls a function in another process. It must be at the top level of a module that can be imported."""
    name = getattr(function, "__qualname__", "")
    module = sys.modules.get(getattr(function, "__module__", ""))
    file = getattr(module, "__file__", None)
    if not name.isidentifier() or file is None:
        todo = "define it with `def` at the top level of a file; a lambda or an inner function cannot be called there"
        raise UsageError("this function cannot be the agent: every turn runs in another process", where=name, todo=todo)
    if line := _find_start_of_run(Path(file)):
        raise UsageError(
            f"{Path(file).name} starts a run whenever it is imported, and every turn imports it to call {name}",
            where=f"{file}:{line}",
            todo=GUARD,
        )
    return shlex.join([sys.executable, "-P", "-m", "ralph.callable_agent", str(Path(file).resolve()), name])


def _find_start_of_run(path: Path) -> int:
    """The line that starts a run when the file is imported; 0 if there is none."""
    try:
        body = ast.parse(path.read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        return 0
    modules, functions = {"ralph"}, set()
    for statement in body:
        if isinstance(statement, ast.Import):
            modules |= {alias.asname for alias in statement.names if alias.name == "ralph" and alias.asname}
        elif isinstance(statement, ast.ImportFrom) and statement.module == "ralph":
            functions |= {alias.asname or alias.name for alias in statement.names if alias.name in STARTS}
    for call in _find_calls_on_import(body):
        match call.func:
            case ast.Attribute(value=ast.Name(id=module), attr=name) if module in modules and name in STARTS:
                return call.lineno
            case ast.Name(id=name) if name in functions:
                return call.lineno
    return 0


def _find_calls_on_import(body: list[ast.stmt]) -> Iterator[ast.Call]:
    """The calls that importing a module makes by itself, as far as its text shows."""
    for statement in body:
        is_definition = isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        is_guard = isinstance(statement, ast.If) and "__name__" in ast.unparse(statement.test)
        if not is_definition and not is_guard:
            yield from (node for node in ast.walk(statement) if isinstance(node, ast.Call))


def main() -> int:
    """Call the function for one turn."""
    path, name = sys.argv[1:3]
    function: Callable[[AgentTurn], object] = getattr(_load(Path(path)), name)
    outbox = Path(os.environ.get("RALPH_OUTBOX", "."))
    turn = AgentTurn(
        prompt=sys.stdin.read(),
        role=os.environ.get("RALPH_ROLE", ""),
        number=int(os.environ.get("RALPH_TURN", "/0").rpartition("/")[2] or 0),
        outbox=outbox,
    )
    result: Any = function(turn)
    if isinstance(result, dict):
        outbox.mkdir(parents=True, exist_ok=True)
        (outbox / "result.json").write_text(json.dumps(result))
        result = result.get("summary", "")
    if result:
        sys.stdout.write(f"{result}\n")
    return 0


def _load(path: Path) -> ModuleType:
    """The module in a file. It is not called `__main__`, so what a script does when it is started does not happen."""
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except UsageError as error:
        raise SystemExit(f"importing {path} fails: {error.what}; {GUARD}") from None
    return module


if __name__ == "__main__":
    sys.exit(main())
