"""The sandbox of agents and checks: the bubblewrap command that a job runs in.

A job sees the machine read-only and without the user's secrets. It can write what its mounts name, and a private `/tmp`. It
cannot see or signal other processes. At the level `strict`, it reaches only the hosts on a list (`network_proxy`).

The order of the arguments matters: a later mount covers an earlier one. The list was measured with bubblewrap 0.8 as root and
as an ordinary user; tests/sandbox tries each promise again.
"""

import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

from ralph.supervisor import network_proxy

OFF, WRITE, STRICT = ("off", "write", "strict")
PROGRAM = "bwrap"
_HIDDEN_TREES = ("/tmp", "/var/tmp", "/run", "/dev/shm")
"""Directories that are empty and private inside."""
_FLAGS = (
    *("--unshare-user", "--cap-drop", "ALL", "--unshare-pid", "--unshare-ipc"),
    # Both are needed with `--unshare-pid`: then a killed job keeper leaves no process behind.
    *("--die-with-parent", "--new-session"),
)
_ROOT = (
    *("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"),
    # As root, a process could otherwise write kernel.core_pattern, which names a program that the kernel starts.
    *("--ro-bind", "/proc/sys", "/proc/sys"),
)
_RESOLVER = "/run/systemd/resolve"
"""The target of /etc/resolv.conf on many systems."""
_UNSET = (
    "DBUS_",
    "GPG_",
    "SSH_",
    "TMUX",
    "XDG_RUNTIME_DIR",
    "WAYLAND_",
    "DISPLAY",
    "XAUTHORITY",
    "TMPDIR",
    "TMP",
    "TEMP",
)
"""Prefixes of variables that lead to the user's session, or to a directory that does not exist in the sandbox."""
_KEPT = ("SSH_BEFORE_RALPH",)
USER_INSIDE = 1000
"""The number of the user inside, if Ralph runs as root."""
_SOCKET_LIMIT = 200
_CURE = {
    "kernel.unprivileged_userns_clone": ("0", "sudo sysctl kernel.unprivileged_userns_clone=1"),
    "user.max_user_namespaces": ("0", "sudo sysctl user.max_user_namespaces=15000"),
    "kernel.apparmor_restrict_unprivileged_userns": (
        "1",
        "allow bwrap in AppArmor (see docs/sandbox.md), or: sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0",
    ),
}
"""Settings of the kernel that keep ordinary users from making a sandbox: the bad value, and what to type."""


@dataclass(frozen=True)
class Mount:
    """A file or directory inside the sandbox. Mounts are applied in order; a later one covers an earlier one."""

    kind: Literal["bind", "ro-bind", "tmpfs", "null", "remount-ro"]
    """Writable, read-only, an empty directory, a file without content; or an empty directory that is now read-only."""
    path: Path
    """Where it is inside."""
    source: Path | None = None
    """Where it comes from; None if that is the same path."""

    def arguments(self) -> tuple[str, ...]:
        """Its arguments for bubblewrap."""
        # A destination must not contain links: bubblewrap would follow them in the wrong root.
        path = os.path.realpath(self.path)
        if self.kind in ("tmpfs", "remount-ro"):
            return (f"--{self.kind}", path)
        if self.kind == "null":
            return ("--ro-bind", os.devnull, path)
        return (f"--{self.kind}", os.path.realpath(self.source or self.path), path)


def writable(path: Path, source: Path | None = None) -> Mount:
    """A directory or file that the job can change."""
    return Mount("bind", path, source)


def read_only(path: Path, source: Path | None = None) -> Mount:
    """A directory or file that the job can only read."""
    return Mount("ro-bind", path, source)


@dataclass(frozen=True)
class NetworkAccess:
    """What a job may reach at the level `strict`."""

    allowed: tuple[str, ...]
    """`host` (ports 80 and 443), `host:port`, `*.domain`; or `localhost:port` for a port of this machine."""
    allow_file: Path
    """More rules, which the user adds while the run is going on."""
    denied_file: Path
    """Where the proxy writes what it refused."""
    upstream_file: Path
    """A file with the address of the user's own proxy, which can contain a password; it need not exist."""

    def wrap(self, sandboxed: Sequence[str], argv: Sequence[str]) -> tuple[str, ...]:
        """The command that starts a job with its proxy."""
        added = self.allow_file.read_text().split() if self.allow_file.is_file() else []
        rules = [network_proxy.split_host(rule) for rule in (*self.allowed, *added)]
        ports = sorted({port for host, port in rules if port and network_proxy.is_local(host)} - {network_proxy.PORT})
        spec = {
            "allowed": self.allowed,
            "allow_file": str(self.allow_file),
            "denied_file": str(self.denied_file),
            "ports": ports,
            "upstream_file": str(self.upstream_file),
        }
        python = (sys.executable, "-I", "-S")
        opened = ",".join(str(port) for port in (network_proxy.PORT, *ports))
        inside = (*python, "-c", network_proxy.INSIDE, opened, *argv)
        return (*python, network_proxy.__file__, json.dumps(spec), *sandboxed, *inside)


def proxy_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that make programs use the proxy. Ports of the job's own network are reached without it."""
    java = " ".join(
        f"-D{scheme}.proxyHost=127.0.0.1 -D{scheme}.proxyPort={network_proxy.PORT}" for scheme in ("http", "https")
    )
    address, direct = f"http://127.0.0.1:{network_proxy.PORT}", "localhost,127.0.0.1,::1"
    own = {"HTTP_PROXY": address, "HTTPS_PROXY": address, "ALL_PROXY": address, "NO_PROXY": direct}
    return {
        **own,
        **{name.lower(): value for name, value in own.items()},
        # Maven and Gradle do not read the variables above.
        **{name: f"{environment.get(name, '')} {java}".strip() for name in ("MAVEN_OPTS", "GRADLE_OPTS")},
        # Without it, `fetch` of Node does not use the proxy.
        "NODE_USE_ENV_PROXY": "1",
    }


TURN_FILE = Path("/run/ralph/turn.json")
"""The file that shows Ralph, inside the sandbox, that it runs in a turn. The keepers are not visible there."""
CHECK_FILE = Path("/run/ralph/check")
"""The same in a check: it holds the directory of the project that the check belongs to."""


def hide(path: Path) -> Mount:
    """An empty directory, or an empty file, in the place of one that the job must not read."""
    return Mount("tmpfs" if path.is_dir() else "null", path)


@dataclass(frozen=True)
class Sandbox:
    """The sandbox of one run: its level, and what holds for all of its jobs."""

    level: str
    reason: str = ""
    """Why jobs are not isolated, if the level is `off`; or how the level was chosen."""
    hidden: tuple[Path, ...] = ()
    """What no job may read."""
    visible: tuple[Path, ...] = ()
    """What every job may read, although it is in a directory that is empty inside."""
    writable: tuple[Path, ...] = ()
    """What every job may write, by the user's settings."""
    sockets: tuple[Path, ...] = ()
    """Unix sockets that every job may use, by the user's settings."""
    connect: tuple[str, ...] = ()
    """What every job may reach at the level `strict`, by the user's settings. See `NetworkAccess`."""

    @property
    def is_on(self) -> bool:
        """Whether jobs are isolated."""
        return self.level != OFF

    def wrap(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        cwd: Path,
        mounts: Sequence[Mount],
        network: NetworkAccess | None = None,
    ) -> tuple[tuple[str, ...], dict[str, str]]:
        """The command and the environment of a job inside the sandbox. Without `network`, `strict` has none at all.

        A program that does not exist is not wrapped: the keeper then reports it as it does without a sandbox.
        """
        if not self.is_on or not _finds_program(argv[0], environment, cwd):
            return tuple(argv), dict(environment)
        needed = [*self.visible, *_paths_in(argv, environment), cwd]
        listed = [*self._base_mounts(needed), *(writable(path) for path in self.sockets if path.exists()), *mounts]
        arguments = [PROGRAM, *_FLAGS, *_ROOT]
        for tree in _HIDDEN_TREES:
            if os.path.isdir(tree) and not os.path.islink(tree):
                arguments += ["--tmpfs", tree]
        for mount in listed:
            arguments += mount.arguments()
        if os.geteuid() == 0:
            # Nested sandboxes, such as codex's own, fail for a process that is root inside.
            arguments += ["--uid", str(USER_INSIDE), "--gid", str(USER_INSIDE)]
        if self.level == STRICT:
            arguments += ["--unshare-net"]
        arguments += ["--chdir", os.path.realpath(cwd), "--"]
        inside = clean_environment(environment)
        if self.level == STRICT and network is not None:
            return network.wrap(arguments, argv), {**inside, **proxy_environment(inside)}
        return (*arguments, *argv), inside

    def _base_mounts(self, needed: Iterable[Path]) -> list[Mount]:
        """What is visible although it is below an empty directory, what the user opens, and then what is hidden."""
        mounts = []
        if os.path.isdir(_RESOLVER):
            mounts.append(read_only(Path(_RESOLVER)))
        mounts += [read_only(path) for path in sort_parents_first(needed) if _is_below_hidden_tree(path)]
        mounts += [writable(path) for path in sort_parents_first(self.writable)]
        hidden = [path for path in sort_parents_first(self.hidden) if path.exists()]
        mounts += [hide(path) for path in hidden]
        covered = [Path(os.path.realpath(path)) for path in hidden]
        for socket in list_sockets():
            is_covered = any(socket.is_relative_to(path) for path in covered)
            if not is_covered and socket not in self.sockets:
                mounts.append(Mount("null", socket))
        return mounts


def wrap_mounts(argv: Sequence[str], cwd: Path, mounts: Sequence[Mount]) -> tuple[str, ...]:
    """A command that sees the machine as it is, except for some mounts. It is not isolated."""
    arguments = [PROGRAM, "--dev-bind", "/", "/", "--die-with-parent"]
    for mount in mounts:
        arguments += mount.arguments()
    return (*arguments, "--chdir", os.path.realpath(cwd), "--", *argv)


def sort_parents_first(paths: Iterable[Path]) -> list[Path]:
    """Existing paths without repetition, so that no mount covers one that comes before it."""
    found = {os.path.realpath(path): path for path in paths if path.exists()}
    return [found[real] for real in sorted(found)]


def clean_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment without what leads to the user's session: its buses, agents for keys, terminal multiplexers, displays.

    A temporary directory stays if it is one of those that are private inside.
    """
    kept = {name: value for name, value in environment.items() if name in _KEPT or not name.startswith(_UNSET)}
    if environment.get("TMPDIR") in _HIDDEN_TREES:
        kept["TMPDIR"] = environment["TMPDIR"]
    return kept


def list_sockets() -> list[Path]:
    """The Unix sockets with a path that a job could still connect to. A read-only mount does not prevent that."""
    try:
        lines = Path("/proc/net/unix").read_text(errors="replace").splitlines()[1:]
    except OSError:
        return []
    found: set[Path] = set()
    for line in lines:
        name = line.split(None, 7)[7:]
        if not name or not name[0].startswith("/"):
            continue
        path = Path(os.path.realpath(name[0]))
        if not _is_below_hidden_tree(path) and _is_socket(path):
            found.add(path)
    return sorted(found)[:_SOCKET_LIMIT]


def _is_socket(path: Path) -> bool:
    try:
        return stat.S_ISSOCK(path.stat().st_mode)
    except OSError:
        return False


def _is_below_hidden_tree(path: Path) -> bool:
    real = os.path.realpath(path)
    return any(real.startswith(f"{tree}/") for tree in _HIDDEN_TREES)


def _paths_in(argv: Sequence[str], environment: Mapping[str, str]) -> list[Path]:
    """Files that a command names, and the directories of its programs and its home: they stay visible."""
    names = [word for word in argv if word.startswith("/")]
    names += environment.get("PATH", "").split(os.pathsep)
    names += environment.get("PYTHONPATH", "").split(os.pathsep)
    names.append(environment.get("HOME", ""))
    return [Path(name) for name in names if name.startswith("/") and name not in _HIDDEN_TREES and os.path.exists(name)]


def _finds_program(program: str, environment: Mapping[str, str], cwd: Path) -> bool:
    if "/" in program:
        return os.access(cwd / program, os.X_OK) and not (cwd / program).is_dir()
    return shutil.which(program, path=environment.get("PATH", os.defpath)) is not None


@dataclass(frozen=True)
class Availability:
    """Whether the sandbox works on this machine."""

    works: bool
    problem: str = ""
    cure: str = ""


@lru_cache(maxsize=1)
def probe() -> Availability:
    """Try to start a program in the sandbox."""
    if not os.path.isdir("/proc/self/ns"):
        return Availability(
            False, "the sandbox needs Linux", "run Ralph in a container or a virtual machine with Linux"
        )
    if not shutil.which(PROGRAM):
        return Availability(False, "bubblewrap is not installed", install_advice())
    empty = Sandbox(WRITE)
    argv, environment = empty.wrap(("/bin/sh", "-c", "true"), os.environ, Path("/"), ())
    try:
        done = subprocess.run(
            argv, env=environment, capture_output=True, text=True, timeout=20, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Availability(False, f"bubblewrap does not start: {error}", "run `ralph doctor`")
    if done.returncode == 0:
        return Availability(True)
    lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
    return Availability(False, f"bubblewrap does not work here: {lines[-1].removeprefix('bwrap: ')}", _find_cure())


def install_advice() -> str:
    """The command that installs bubblewrap here."""
    commands = {
        "apt-get": "sudo apt-get install bubblewrap",
        "dnf": "sudo dnf install bubblewrap",
        "pacman": "sudo pacman -S bubblewrap",
        "apk": "sudo apk add bubblewrap",
        "zypper": "sudo zypper install bubblewrap",
    }
    for program, command in commands.items():
        if shutil.which(program):
            return command
    return "install the package bubblewrap"


def _find_cure() -> str:
    """What allows user namespaces here, if a setting of the kernel forbids them."""
    for name, (bad, cure) in _CURE.items():
        try:
            value = Path("/proc/sys", *name.split(".")).read_text().strip()
        except OSError:
            continue
        if value == bad and (os.geteuid() != 0 or name == "user.max_user_namespaces"):
            return cure
    return "in a container, allow user namespaces (docker: --security-opt seccomp=unconfined), or pass --sandbox off"
