"""The `ralph` that turns find: a script of the run's own, first on their path, so that no other program of that name is run."""

import shlex
import sys
from pathlib import Path

import ralph
from ralph.store.files import storage, to_bytes, write_atomic


def launcher(run_dir: Path) -> Path:
    """The script, written where it is not there as it should be."""
    path = run_dir / "bin" / "ralph"
    source = str(Path(ralph.__file__).parents[1])
    code = f"import sys; sys.path.append({source!r}); from ralph.__main__ import main; main()"
    # Agents call it often, so its modules are kept compiled, whatever the project wants for its own.
    start = f'unset PYTHONDONTWRITEBYTECODE\nexec {shlex.join([sys.executable, "-P", "-c", code])} "$@"'
    text = to_bytes(f"#!/bin/sh\n{start}\n")
    with storage(path):
        if not path.is_file() or path.read_bytes() != text:
            path.parent.mkdir(exist_ok=True)
            write_atomic(path, text, mode=0o755, durable=False)
    return path
