"""Which sandbox a run gets: by the command line, the user's own settings, and what works on this machine."""

import os
from collections.abc import Mapping
from pathlib import Path

from ralph.agents.state_paths import is_proven
from ralph.core.errors import UsageError
from ralph.core.events import NOT_ISOLATED
from ralph.documents.config import SANDBOX_LEVELS, SandboxSettings
from ralph.documents.run_record import AgentSelection
from ralph.store.settings import load_user_settings
from ralph.store.user_state import state_directory
from ralph.supervisor import network_proxy, sandbox
from ralph.supervisor.sandbox import Sandbox
from ralph.workspace.isolation import find_hidden, find_needed

VARIABLE = "RALPH_SANDBOX"
AUTO = "auto"
_FIRST_OPEN_PORT = 1024
"""Inside, an agent has no right to listen on smaller ports, and neither has what opens ports for it."""
_NAMED_SOCKETS = {"docker": "/run/docker.sock", "podman": "/run/podman/podman.sock"}


def find_asked_level(option: str | None) -> str:
    """The level that the user asks for: by `--sandbox`, by the variable RALPH_SANDBOX, or in their own settings.

    A repository cannot decide this: a sandbox that it may switch off protects against nothing.
    """
    level = option or os.environ.get(VARIABLE) or load_user_settings().sandbox.level
    if level not in SANDBOX_LEVELS:
        raise UsageError(f"{level!r} is not a sandbox level", where=VARIABLE, todo=f"use {', '.join(SANDBOX_LEVELS)}")
    return level


def open_sandbox(asked: str, environment: Mapping[str, str], agents: AgentSelection | None = None) -> Sandbox:
    """The sandbox of a run with these agents. If the user insists on one that does not work here, refuse, and say what to do.

    `auto` isolates only agents that were seen to work inside: others could fail there for reasons that the user cannot see.
    """
    if asked == sandbox.OFF:
        return Sandbox(sandbox.OFF, reason="the sandbox is off (`--sandbox auto` turns it on)")
    found = sandbox.probe()
    if not found.works and asked == AUTO:
        return Sandbox(sandbox.OFF, reason=f"{found.problem}. To isolate agents: {found.cure}")
    if not found.works:
        todo = f"{found.cure}; or start without a sandbox: --sandbox off"
        raise UsageError(f"the sandbox does not work here: {found.problem}", where=f"sandbox: {asked}", todo=todo)
    if asked == AUTO and agents and (unproven := _find_unproven(agents)):
        names = ", ".join(unproven)
        reason = f"Ralph has not been tested with {names} in the sandbox. To isolate agents: pass --sandbox write"
        return Sandbox(sandbox.OFF, reason=reason)
    settings = load_user_settings().sandbox
    return Sandbox(
        level=sandbox.STRICT if asked == sandbox.STRICT else sandbox.WRITE,
        hidden=_without(find_hidden(environment, state_directory()), (*settings.visible, *settings.writable)),
        visible=(*find_needed(), *map(_expand, settings.visible)),
        writable=tuple(map(_expand, settings.writable)),
        connect=tuple(check_host_rule(rule, "sandbox.connect in your settings") for rule in settings.connect),
        sockets=tuple(Path(_NAMED_SOCKETS.get(name, name)).expanduser() for name in settings.sockets),
    )


def check_host_rule(rule: str, where: str) -> str:
    """The rule for a host that jobs may reach with `strict`, in lower case. Raises UsageError if it is wrong."""
    try:
        host, port = network_proxy.split_host(rule)
    except ValueError:
        todo = "write `host`, `host:port`, `*.domain` or `localhost:port`"
        raise UsageError(f"{rule!r} is not a host", where=where, todo=todo) from None
    if network_proxy.is_local(host) and port < _FIRST_OPEN_PORT:
        raise UsageError(
            f"the sandbox cannot open {rule!r}",
            where=where,
            todo=f"use a port of this machine that is {_FIRST_OPEN_PORT} or higher, for example localhost:5432",
        )
    return rule.strip().lower()


def is_of_this_machine(rule: str) -> bool:
    """Whether a valid rule is for a port of this machine."""
    return network_proxy.is_local(network_proxy.split_host(rule)[0])


def describe_sandbox(chosen: Sandbox) -> str:
    """The state of a run's isolation in a line: its level, or why there is none."""
    return chosen.level if chosen.is_on else f"{NOT_ISOLATED}: {chosen.reason}"


def list_sandbox_notices(chosen: Sandbox, settings: SandboxSettings) -> list[str]:
    """What the user should know about the isolation of a run when it starts."""
    if not chosen.is_on:
        return [f"{describe_sandbox(chosen)}. Agents can read and change every file that you can"]
    reachable = settings.connect if chosen.level == sandbox.STRICT else ()
    opened = [*settings.visible, *settings.writable, *settings.sockets, *reachable]
    return [f"your settings open the sandbox for {', '.join(opened)}"] if opened else []


def _find_unproven(agents: AgentSelection) -> list[str]:
    specs = agents.by_label.values()
    return list(dict.fromkeys(spec.label for spec in specs if not is_proven(spec.kind, spec.command)))


def _without(paths: tuple[Path, ...], visible: tuple[str, ...]) -> tuple[Path, ...]:
    shown = {os.path.realpath(_expand(path)) for path in visible}
    return tuple(path for path in paths if os.path.realpath(path) not in shown)


def _expand(path: str) -> Path:
    return Path(path).expanduser()
