"""What all agent adapters share: the request for a turn, what an agent can do, the base class, and hook configuration.

Each agent program has a small module that defines the rest. A third-party adapter is a class like those, named by an
entry point of the group `ralph.agents`.
"""

import functools
import hashlib
import os
import re
import shlex
import subprocess
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from ralph.agents.failures import failure_from_stderr
from ralph.agents.prices import Prices
from ralph.agents.state_paths import STATE_PATHS, StatePaths
from ralph.agents.stream_lines import Data
from ralph.core.errors import StorageError
from ralph.core.limits import Usage
from ralph.core.turns import AgentEvent, Failure
from ralph.store.files import write_atomic

FULL_AUTO, EDITS, READ_ONLY, PLAN = PERMISSIONS = ("full-auto", "edits", "read-only", "plan")
"""Do everything; change files but run no commands that need an approval; change nothing; plan and change nothing."""

TOOL_COMMANDS = ("emit", "tools", "wave", "diff")
"""The commands of `ralph` that prompts ask agents to run. None of them changes a file of the project."""

OWN_FILES = "agent"
"""The directory of a turn for files of the agent program, such as its history."""


@dataclass(frozen=True)
class Call:
    """What one turn asks of an agent program. The prompt comes on standard input, and is also in a file."""

    workspace: Path
    model: str = ""
    arguments: tuple[str, ...] = ()
    """More arguments for the program, from the user."""
    budget: float | None = None
    """US dollars that the turn may cost."""
    most_steps: int | None = None
    """How often the agent may ask its model."""
    session: str = ""
    """The conversation to continue; empty for a new one."""
    without_tools: tuple[str, ...] = ()
    """Tools that the agent must not use, by its own names for them. `sub-agents` works for every agent."""
    prompt: Path = Path("prompt.md")
    """The file with the prompt, for programs that do not read it from standard input."""
    permissions: str = FULL_AUTO
    """What the agent may do without an approval: one of `PERMISSIONS`."""
    ralph: str = "ralph"
    """The path of the `ralph` that prompts ask the agent to run."""

    @property
    def own_files(self) -> Path:
        """The directory for files that the agent program itself writes during the turn."""
        return self.prompt.parent / OWN_FILES


@dataclass(frozen=True)
class Abilities:
    """What an agent can do. Ralph works without what it cannot, and says so."""

    resume: bool = False
    """Can continue one of its conversations."""
    session: bool = False
    """Reports the id of the conversation."""
    live_input: bool = False
    """Receives messages while it works, through its own protocol."""
    hooks: bool = False
    """Receives messages while it works, through a hook of ours that it runs after its tools and before its end."""
    commands: bool = True
    """Runs commands that its prompt asks for. Without hooks and live input, the prompt tells it to ask for messages itself."""
    tokens: bool = False
    """Reports how many tokens it used."""
    cost: bool = False
    """Reports what they cost."""
    names_model: bool = False
    """Reports the model, so that Ralph can compute the cost."""
    quota: bool = False
    """Reports which share of a subscription is used."""
    budget: bool = False
    """Stops by itself when the budget is used up."""
    step_limit: bool = False
    sandbox: bool = False
    model: bool = True
    """Uses the model that it is asked for."""
    tool_limits: bool = False
    """Can be kept from using some of its tools."""


@dataclass(frozen=True)
class OwnMode:
    """A mode in the user's own settings of an agent in which it can do less than everything."""

    level: str
    """The level of permissions with the same meaning; empty if there is none."""
    setting: str
    """The setting, as `permissions.defaultMode: plan`."""
    path: Path
    """The file with the setting."""
    reason: str = "Ralph has no level of permissions for that mode"
    """Why Ralph does not keep a mode without a level."""
    prevents_acp: bool = False
    """Whether the program that speaks ACP does not start with it. Without ACP, Ralph overrides it on the command line."""

    @property
    def text(self) -> str:
        """The setting and its file."""
        return f"`{self.setting}` in {self.path}"


CANNOT_ASK = "in that mode it asks you, which it cannot do in a run"
"""The reason of an `OwnMode` in which the agent asks before everything that it does."""


class Reader(Protocol):
    """Reads the output of one turn, line by line. It may remember what it has read."""

    def read(self, line: bytes) -> Iterable[AgentEvent]:
        """The events in a line of standard output; none if it is not an event."""


def option_values(arguments: Sequence[str], *options: str) -> list[str]:
    """The values of an option among arguments, by all of its names: `--model NAME`, `-m NAME`, `--model=NAME`."""
    values = []
    for argument, following in pairwise((*arguments, "")):
        name, equals, value = argument.partition("=")
        if name in options:
            values.append(value if equals else following)
    return values


def model_in(arguments: Sequence[str]) -> str:
    """The model that the user's own arguments name."""
    return next(iter(option_values(arguments, "--model", "-m")), "")


def list_ralph_commands(call: Call) -> list[str]:
    """The prefixes of commands that an agent may run although it may run no others: `ralph` by its name and by its path."""
    programs = dict.fromkeys(("ralph", shlex.quote(call.ralph)))
    return [f"{program} {command}" for program in programs for command in TOOL_COMMANDS]


_SIMPLE_COMMAND = re.compile(r"""(?:'[^']*'|"[^"$`\\]*"|[^'"$`\\;|&<>()\n])*""")
"""A command line in which a shell starts one program, writes no file and expands no variable."""


def is_ralph_command(text: str, path: str) -> bool:
    """Whether a command line runs one of `TOOL_COMMANDS`, and does nothing else. `path` is the path of `ralph`."""
    if not _SIMPLE_COMMAND.fullmatch(text):
        return False
    words = shlex.split(text)
    return len(words) > 1 and words[0] in ("ralph", path) and words[1] in TOOL_COMMANDS


def join_options(arguments: Sequence[str]) -> set[str]:
    """The arguments, and each with the one after it, as `--option=value` without quotes."""
    joined = (f"{argument}={following}" for argument, following in pairwise((*arguments, "")))
    return {re.sub(r"[\"']", "", text) for text in (*arguments, *joined)}


def options_in(arguments: Sequence[str]) -> set[str]:
    """The options among arguments, without their values."""
    return {argument.partition("=")[0] for argument in arguments}


class Adapter(ABC):
    """How Ralph starts one agent program, reads its output and sends it messages."""

    name: str
    """The name that the user types. It is also the program, unless `program` names another."""
    install: str
    """The command that installs it."""
    advice: str
    """What the user can do if the agent is not signed in."""
    abilities: Abilities = Abilities()
    announces_end: bool = True
    """Whether its stream says that it has finished. If so, exit code 0 alone is not a success."""
    keys: tuple[str, ...] = ()
    """Variables that hold a key for its model."""
    services: tuple[str, ...] = ()
    """Variables that switch to a service with its own sign-in."""
    settings: tuple[str, str] = ("", ".")
    """The variable that names its settings directory, and the default directory, relative to the home directory."""
    credentials: tuple[str, ...] = ()
    """Files in that directory that exist once the user has signed in."""
    may_hold: tuple[str, ...] = ()
    """Files in that directory that can contain a key. Ralph does not read them."""
    refuses_variables: bool = False
    """Whether it refuses commands that start with a variable. Its prompts then name `ralph` by its path."""
    permission_modes: Mapping[str, tuple[str, ...]] = MappingProxyType({FULL_AUTO: ()})
    """Its own arguments for each level of permissions that it has."""
    permission_options: tuple[str, ...] = ()
    """Its options that choose a mode. If the user passes one of them, Ralph passes none."""
    reading_arguments: tuple[str, ...] = ()
    """Arguments of the user with which it changes no files, as `--option=value`."""
    asking_arguments: tuple[str, ...] = ()
    """Arguments of the user with which it refuses what it would ask about: everything, unless the user allowed some tools."""
    levels_with_ralph: tuple[str, ...] = (FULL_AUTO,)
    """The levels of permissions at which it can run `ralph emit` and `ralph tools`."""
    instruction_files: tuple[str, ...] = ()
    """The files with instructions of a project that it reads by itself. If several are there, it reads all of them."""
    hook_arguments: tuple[str, ...] = ()
    """Its arguments for our hooks, through which messages of the user reach it. `prepare` may set them."""
    hook_environment: Mapping[str, str] = MappingProxyType({})
    """Its variables for the same purpose."""

    def __init__(self, program: str = "", prices: Prices | None = None) -> None:
        self.program = program or self.name
        self.prices: Prices = prices or {}
        self.variables: Mapping[str, str] = {}
        """What the user's settings add to its environment."""

    def model_of(self, call: Call) -> str:
        """The model that a turn will use: the requested one, or the one in its own settings; empty if unknown."""
        return call.model or model_in(call.arguments) or self.configured_model(call, {**os.environ, **self.variables})

    def find_state_paths(self) -> tuple[StatePaths, ...]:
        """The files that it keeps in the user's home. A turn in the sandbox can use no others."""
        return (STATE_PATHS[self.name],) if self.name in STATE_PATHS else ()

    def find_own_directory(self, call: Call) -> Path | None:
        """The directory in which it writes files of its own, if its command names one. It is writable in the sandbox."""
        return None

    def settings_home(self, environment: Mapping[str, str]) -> Path:
        """The directory with its own settings."""
        return self.settings_in(environment, Path(environment.get("HOME") or Path.home()))

    def settings_in(self, environment: Mapping[str, str], home: Path) -> Path:
        """The same for a given home directory."""
        variable, default = self.settings
        return Path(environment.get(variable) or home / default)

    def configured_model(self, call: Call, environment: Mapping[str, str]) -> str:
        """The model that its own settings on this machine name; empty if none does."""
        return ""

    @abstractmethod
    def command(self, call: Call) -> tuple[str, ...]:
        """The command line, with `permission_arguments(call)`. The prompt comes from standard input or from a file."""

    @abstractmethod
    def reader(self, call: Call, before: Usage) -> Reader:
        """A new reader for the output of one turn. `before` is what the conversation used in earlier turns."""

    def permission_arguments(self, call: Call) -> tuple[str, ...]:
        """Its arguments for the permissions of a turn. A mode that the user passes wins over ours."""
        if self.chooses_mode(call.arguments):
            return ()
        return self.permission_modes[call.permissions]

    def chooses_mode(self, arguments: tuple[str, ...]) -> bool:
        """Whether the user's arguments choose its permission mode."""
        return not options_in(arguments).isdisjoint(self.permission_options)

    def find_own_mode(self, call: Call, environment: Mapping[str, str]) -> OwnMode | None:
        """The safer mode that its own settings choose, for a user who passes none."""
        return None

    def can_change_files(self, call: Call, environment: Mapping[str, str]) -> bool:
        """Whether it can change files in such a turn. In a mode of the user that Ralph does not know, it may."""
        options = join_options(call.arguments)
        if not options.isdisjoint(self.reading_arguments):
            return False
        if not options.isdisjoint(self.asking_arguments):
            return self.allows_tools(call, environment)
        return call.permissions in (FULL_AUTO, EDITS) or self.chooses_mode(call.arguments)

    def allows_tools(self, call: Call, environment: Mapping[str, str]) -> bool:
        """Whether the user allows it to use some tools without being asked."""
        return not options_in(call.arguments).isdisjoint(("--allowed-tools", "--allowedTools"))

    def is_restricted(self, call: Call) -> bool:
        """Whether it may refuse commands in this turn."""
        return call.permissions != FULL_AUTO or self.chooses_mode(call.arguments)

    def can_run_ralph(self, call: Call) -> bool:
        """Whether it can run the commands of `ralph` in its prompts. In a mode of the user, Ralph cannot know."""
        can_run = self.abilities.commands and call.permissions in self.levels_with_ralph
        return can_run and not self.chooses_mode(call.arguments)

    def needs_path_of_ralph(self, call: Call) -> bool:
        """Whether its prompts name `ralph` by its path. Agents that check commands cannot check a variable."""
        return self.refuses_variables or self.is_restricted(call)

    def reads_instructions(self, name: str, workspace: Path) -> bool:
        """Whether it reads such a file of the project by itself, or through a file of its own that names it or links to it."""
        if name in self.instruction_files:
            return True
        for own in self.instruction_files:
            path = workspace / own
            try:
                if path.samefile(workspace / name) or f"@{name}" in path.read_text(errors="replace"):
                    return True
            except OSError:
                continue
        return False

    def environment(self, call: Call) -> Mapping[str, str]:
        """Variables to add to its environment."""
        return {}

    def failure(self, code: int | None, stderr: str) -> tuple[Failure, str] | None:
        """The failure that its exit code and the end of standard error show, if its stream did not report one."""
        return failure_from_stderr(stderr) if code else None

    def find_wait_end(self, stderr: str) -> float | None:
        """When the limit ends for which it waits, if the end of standard error says so."""
        return None

    def prepare(self, environment: Mapping[str, str]) -> str:
        """Prepare what it needs on this machine, once per run. Returns a notice for the user, or nothing."""
        try:
            reason = self.install_hooks(environment)
        except (OSError, StorageError, ValueError, TypeError) as error:
            reason = str(error)
        return f"messages to {self.name} wait until its turn is over: {reason}" if reason else ""

    def install_hooks(self, environment: Mapping[str, str]) -> str:
        """Install our hooks, if that takes more than arguments. Returns why that is not possible, or nothing."""
        return ""

    def can_receive_messages(self, call: Call) -> bool:
        """Whether messages of the user reach it in the middle of such a turn."""
        return self.abilities.live_input or bool(self.hook_arguments or self.hook_environment)

    def sign_in(self, environment: Mapping[str, str], home: Path) -> tuple[bool | None, str]:
        """Whether it is signed in, and how, or what to run. None if that cannot be known offline."""
        for key in self.keys:
            if environment.get(key):
                return True, key
        for switch in self.services:
            if environment.get(switch, "").lower() not in ("", "0", "false"):
                return None, f"{switch} is set; Ralph does not check the sign-in of that service"
        directory = self.settings_in(environment, home)
        for name in self.credentials:
            if (directory / name).is_file():
                return True, str(directory / name)
        for name in self.may_hold:
            if (directory / name).is_file():
                return None, f"set up in {directory / name}; Ralph does not check the key"
        return False, self.advice


def has_key(account: Data) -> bool:
    """Whether an account in a file of credentials has a key, or the tokens of a sign-in."""
    return any(account.text(name).strip() for name in ("key", "access", "refresh", "token"))


def parse_version(text: str) -> tuple[int, ...] | None:
    """The first number with dots in a text, as numbers that can be compared."""
    found = re.search(r"\d+(?:\.\d+)+", text)
    return tuple(int(part) for part in found[0].split(".")) if found else None


@functools.cache
def read_version(program: str) -> tuple[int, ...] | None:
    """The version that a program prints; None if it prints none."""
    try:
        done = subprocess.run(
            [program, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=20,
            cwd=tempfile.gettempdir(),
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_version(done.stdout)


_HOOK = Path(__file__).with_name("live_messages.sh")


def hook_command(agent: str, event: str) -> str:
    """The command of a hook, for any shell. It starts Python only if messages wait."""
    return shlex.join(("sh", str(_HOOK), sys.executable, f"{agent}:{event}"))


def build_hooks(agent: str, events: Sequence[str], timeout: int = 10) -> dict[str, object]:
    """Hooks by event, in the format of Claude Code, which other agents adopted. Some count the timeout in milliseconds."""
    hooks: dict[str, object] = {}
    for event in events:
        command = {"type": "command", "command": hook_command(agent, event), "timeout": timeout}
        # Hooks before the end of a turn belong to no tool, so they have no matcher.
        matcher = {} if event in ("Stop", "AfterAgent") else {"matcher": "*"}
        hooks[event] = [{**matcher, "hooks": [command]}]
    return hooks


def add_hooks(theirs: Mapping[str, object], ours: Mapping[str, object]) -> dict[str, object]:
    """Add our hooks after those that are already configured for the same events."""
    both = {event: [*_hooks_of(theirs, event), *_hooks_of(ours, event)] for event in ours}
    return {**theirs, **both}


def _hooks_of(hooks: Mapping[str, object], event: str) -> list[object]:
    entries = hooks.get(event, [])
    return entries if isinstance(entries, list) else []


def cache_path(environment: Mapping[str, str], *names: str) -> Path:
    """A path in the cache directory that all runs of the user share."""
    cache = Path(environment.get("XDG_CACHE_HOME") or Path(environment.get("HOME") or Path.home()) / ".cache")
    return cache.joinpath("ralph", *names)


def write_if_changed(path: Path, text: str, *, mode: int = 0o644) -> Path:
    """Write a file, unless it has that content already."""
    data = text.encode(errors="surrogateescape")
    if not path.is_file() or path.read_bytes() != data:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, data, mode=mode, durable=False)
    return path


def short_hash(text: str) -> str:
    """Twelve hexadecimal digits that stand for a text in a file name."""
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:12]


def point_link(link: Path, target: Path) -> None:
    """Make a symbolic link point to a target. It replaces a file or link, but not a directory."""
    current = os.readlink(link) if link.is_symlink() else ""
    if current == str(target) or (link.is_dir() and not current):
        return
    temporary = link.with_name(f".{os.urandom(6).hex()}")
    temporary.symlink_to(target)
    os.replace(temporary, link)
