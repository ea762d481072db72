"""What the environment of an agent needs: the `ralph` of this run, and settings that keep it from pushing."""

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

import ralph
from ralph.store.files import storage, to_bytes, write_atomic

_OFF = "ralph-does-not-let-agents-push::"
_LOCAL = ("/", "./", "../", "file://")
"""Longer prefixes win: these are rewritten to themselves, everything else to a protocol that does not exist."""
_SSH = (
    'ralph_ssh() { case "$*" in *git-receive-pack*) echo "ralph: agents may not push" >&2; exit 1;; esac; '
    'ssh=$(git config core.sshCommand); eval "exec ${SSH_BEFORE_RALPH:-${ssh:-ssh}} \\"\\$@\\""; }; ralph_ssh'
)


def write_launcher(run_dir: Path) -> Path:
    """Write the `ralph` that turns find: a script of the run, first on their path, so that no other program is run."""
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


def forbid_push(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that keep an agent from pushing to other machines, by git's own settings.

    Fetching, and pushing to a repository on this machine, work as ever. It prevents accidents and is no sandbox: a
    program can remove the settings from its environment.
    """
    rules = {_OFF: "", **{local: local for local in _LOCAL}}
    start = _count(environment)
    guard = {
        "GIT_CONFIG_COUNT": str(start + len(rules)),
        "GIT_SSH_COMMAND": _SSH,
        "GIT_SSH_VARIANT": "ssh",
        "SSH_BEFORE_RALPH": environment.get("GIT_SSH_COMMAND", ""),
    }
    for number, (base, prefix) in enumerate(rules.items(), start):
        guard[f"GIT_CONFIG_KEY_{number}"] = f"url.{base}.pushInsteadOf"
        guard[f"GIT_CONFIG_VALUE_{number}"] = prefix
    return guard


def _count(environment: Mapping[str, str]) -> int:
    try:
        return max(0, int(environment.get("GIT_CONFIG_COUNT", "0")))
    except ValueError:
        return 0
