"""Keeps agents from pushing to other machines, by git's own settings in their environment.

Fetching, and pushing to a repository on this machine, work as ever. It is a guard against accidents, not a sandbox: a
program that sets its mind to it can take the settings out of its environment again.
"""

from collections.abc import Mapping

_OFF = "ralph-does-not-let-agents-push::"
_LOCAL = ("/", "./", "../", "file://")
"""Longer prefixes win: these are rewritten to themselves, everything else to a protocol that does not exist."""
_SSH = (
    'ralph_ssh() { case "$*" in *git-receive-pack*) echo "ralph: agents may not push" >&2; exit 1;; esac; '
    'ssh=$(git config core.sshCommand); eval "exec ${SSH_BEFORE_RALPH:-${ssh:-ssh}} \\"\\$@\\""; }; ralph_ssh'
)


def push_guard(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables to add to an agent's environment."""
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
