"""How agents are told of a hook of ours, by which words of a person reach them while they work."""

import hashlib
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from ralph.store.files import write_atomic

_HOOK = Path(__file__).with_name("hook.sh")


def hook_command(agent: str, event: str) -> str:
    """The command of a hook, for whatever shell: it starts little where no words wait."""
    return shlex.join(("sh", str(_HOOK), sys.executable, f"{agent}:{event}"))


def hooks(agent: str, events: Sequence[str], timeout: int = 10) -> dict[str, object]:
    """Hooks by event, in the form that Claude Code has and others took over."""
    commands = {event: {"type": "command", "command": hook_command(agent, event)} for event in events}
    tools = {event: {} if event in ("Stop", "AfterAgent") else {"matcher": "*"} for event in events}
    return {event: [{**tools[event], "hooks": [{**commands[event], "timeout": timeout}]}] for event in events}


def with_hooks(theirs: Mapping[str, object], ours: Mapping[str, object]) -> dict[str, object]:
    """Hooks of ours after those of others for the same events."""
    both = {event: [*_listed(theirs, event), *_listed(ours, event)] for event in ours}
    return {**theirs, **both}


def _listed(hooks: Mapping[str, object], event: str) -> list[object]:
    found = hooks.get(event, [])
    return found if isinstance(found, list) else []


def own_place(environment: Mapping[str, str], *names: str) -> Path:
    """Where files of ours are for all runs of a person."""
    cache = Path(environment.get("XDG_CACHE_HOME") or Path(environment.get("HOME") or Path.home()) / ".cache")
    return cache.joinpath("ralph", *names)


def lay(place: Path, text: str) -> Path:
    """Write a file, where it does not say that already."""
    data = text.encode(errors="surrogateescape")
    if not place.is_file() or place.read_bytes() != data:
        place.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(place, data, durable=False)
    return place


def short_hash(text: str) -> str:
    """A few letters that stand for a text in the name of a file."""
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:12]


def point(link: Path, target: Path) -> None:
    """Make a link lead to a target, in the place of whatever file or link is there."""
    led = os.readlink(link) if link.is_symlink() else ""
    if led == str(target) or (link.is_dir() and not led):
        return
    aside = link.with_name(f".{os.urandom(6).hex()}")
    aside.symlink_to(target)
    os.replace(aside, link)
