"""Find out what works on this machine: git, the sandbox and each of its promises, settings, agents and runs."""

import contextlib
import json
import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ralph import __version__
from ralph.agents import registry
from ralph.agents.registry import ProofStatus, load_proofs
from ralph.app.sandbox import describe_sandbox, find_asked_level, open_sandbox
from ralph.core.errors import RalphError
from ralph.core.text import count, count_are
from ralph.git.command import find_repository
from ralph.notify import services_for
from ralph.store.journal import advise_to_adopt
from ralph.store.runs import Project
from ralph.store.settings import load_config, user_settings_path
from ralph.store.user_state import ensure_state_directory
from ralph.supervisor.processes import TURN_MARK, find_marked
from ralph.supervisor.sandbox import OFF, STRICT, NetworkAccess, Sandbox, probe, writable
from ralph.verify.toolchains import describe_phrases

_LOW_ROOM = 1 << 30
_CHECKED_RUNS = 20
_PROOF_SECONDS = 60
_PROOF_PROGRAM = """
import json, os, socket, sys
given = json.loads(sys.argv[1])

def is_refused(action):
    try:
        action()
    except OSError:
        return True
    return False

def connect(port):
    with socket.socket() as client:
        client.settimeout(5)
        client.connect(("127.0.0.1", port))
        if given["open"] == port and client.recv(1) != b"x":
            raise OSError

def write(path):
    with open(path, "w") as file:
        file.write("x")

def see(path):
    return not os.path.isdir(path) or not os.listdir(path)

print(json.dumps({
    "home": is_refused(lambda: write(given["home"] + "/.ralph-doctor")),
    "system": is_refused(lambda: write("/usr/.ralph-doctor")) and is_refused(lambda: write("/etc/.ralph-doctor")),
    "kernel": is_refused(lambda: os.close(os.open("/proc/sys/kernel/core_pattern", os.O_WRONLY))),
    "state": see(given["state"]),
    "keys": all(see(path) for path in given["keys"]),
    "processes": not os.path.exists("/proc/%d/exe" % given["pid"]) and is_refused(lambda: os.kill(given["pid"], 0)),
    "workspace": not is_refused(lambda: write(given["workspace"] + "/file")),
    "temporary": not is_refused(lambda: write("/tmp/file")),
    "network": is_refused(lambda: connect(given["port"])),
    "names": is_refused(lambda: socket.getaddrinfo("example.com", 443)),
    "list": given["open"] == 0 or not is_refused(lambda: connect(given["open"])),
}))
"""
_PROMISES = {
    "home": "agents cannot change your home directory",
    "system": "agents cannot change the system",
    "kernel": "agents cannot change kernel settings",
    "state": "agents cannot read Ralph's keys and records",
    "keys": "agents cannot read your keys",
    "processes": "agents cannot see or signal other processes",
    "workspace": "agents can change the workspace",
    "temporary": "agents have a private /tmp",
}
_STRICT = {
    "network": "agents cannot reach this machine's own ports",
    "names": "agents cannot ask a name server",
    "list": "agents can reach the hosts on the list",
}


@dataclass(frozen=True)
class Diagnosis:
    """The result of one check of the machine or the project."""

    subject: str
    ok: bool
    said: str
    todo: str = ""
    absent: bool = False
    """Whether it is only absent, which is not a fault."""
    facts: Mapping[str, object] = field(default_factory=dict)
    """The same for programs, if a line is not enough."""

    @property
    def mark(self) -> str:
        """How the line of a finding starts."""
        if not self.ok:
            return "BAD"
        return "-" if self.absent else "ok"


def examine(project: Project) -> Iterator[Diagnosis]:
    """All findings, the most basic first."""
    yield Diagnosis("ralph", True, f"{__version__} with Python {platform.python_version()} ({sys.executable})")
    yield _check_platform()
    yield _check_git(project)
    yield from _check_sandbox()
    yield from _check_disk(project)
    yield _check_configuration(project)
    yield from _check_phrases(project)
    yield from _check_notifications(project)
    yield from _check_agents(project)
    yield from _runs(project)


def _check_platform() -> Diagnosis:
    if platform.system() == "Linux":
        return Diagnosis("system", True, f"Linux {platform.release()}: Ralph finds and ends every process of a turn")
    limits = f"{platform.system()}: Ralph may miss processes that detach themselves from a turn"
    return Diagnosis("system", True, limits)


def _check_git(project: Project) -> Diagnosis:
    if not shutil.which("git"):
        return Diagnosis("git", False, "not found", "install git, or start runs with --no-snapshots")
    version = subprocess.run(["git", "--version"], capture_output=True, text=True, timeout=10).stdout.strip()
    try:
        place = find_repository(project.root)
    except RalphError as error:
        return Diagnosis("git", False, f"{version}; {error.what}", error.todo)
    if place and not os.access(place.common, os.W_OK):
        todo = f"{_advise_on_writing(place.common)}, or start runs with --no-snapshots"
        return Diagnosis("git", False, f"{version}; {place.common} is not writable", todo)
    return Diagnosis("git", True, version)


def _check_sandbox() -> Iterator[Diagnosis]:
    """Whether agents are isolated here. Each promise of the sandbox is tried."""
    try:
        asked = find_asked_level(None)
        chosen = open_sandbox(asked, os.environ)
    except RalphError as error:
        yield Diagnosis("sandbox", False, error.what, error.todo)
        return
    if not chosen.is_on:
        todo = "" if asked == OFF else probe().cure
        yield Diagnosis("sandbox", asked == OFF, describe_sandbox(chosen).partition(". To")[0], todo, absent=True)
        return
    try:
        proofs = prove(chosen, os.environ)
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        yield Diagnosis("sandbox", False, f"{chosen.level}, but it does not start: {error}", "pass --sandbox off")
        return
    broken = [proof.promise for proof in proofs if not proof.is_kept]
    yield Diagnosis("sandbox", not broken, f"{chosen.level}; Ralph tested {count(len(proofs), 'guarantee')}")
    for proof in proofs:
        todo = "" if proof.is_kept else "report this; until then, run Ralph in a container or a virtual machine"
        yield Diagnosis(
            "sandbox", proof.is_kept, proof.promise if proof.is_kept else f"DOES NOT HOLD: {proof.promise}", todo
        )


def _advise_on_writing(place: Path) -> str:
    """How to make a directory writable."""
    if os.statvfs(place).f_flag & os.ST_RDONLY:
        return "its disk is mounted read-only: make the disk writable, or work in a directory on another one"
    return f"chmod u+w {place}"


def _check_disk(project: Project) -> Iterator[Diagnosis]:
    place = project.root / ".ralph" if (project.root / ".ralph").exists() else project.root
    if not os.access(place, os.W_OK):
        yield Diagnosis("disk", False, f"{place} is not writable", _advise_on_writing(place))
        return
    free = shutil.disk_usage(place).free
    todo = "free some disk space; `ralph clean` removes old runs" if free < _LOW_ROOM else ""
    yield Diagnosis("disk", free >= _LOW_ROOM, f"{free / (1 << 30):.1f} GiB free in {project.root}", todo)


def _check_configuration(project: Project) -> Diagnosis:
    try:
        config = load_config(project.settings_dir)
    except RalphError as error:
        return Diagnosis("ralph.yml", False, error.what.replace("\n", "; "), error.todo)
    if config.permissions == "full-auto":
        what = "valid; `permissions` has no effect here: a repository cannot agree for you"
        return Diagnosis("ralph.yml", True, what, f"`ralph trust`, or set it in {user_settings_path()}")
    if config.sandbox is not None:
        what = "valid; `sandbox` has no effect here: a repository cannot lower your protection"
        return Diagnosis("ralph.yml", True, what, f"set it in {user_settings_path()}")
    path = project.settings_dir / "ralph.yml"
    return Diagnosis("ralph.yml", True, f"valid: {path}" if path.exists() else "none here; defaults apply")


def _check_phrases(project: Project) -> Iterator[Diagnosis]:
    """What the phrases of criteria would run in this directory."""
    for phrase, command in describe_phrases(project.work_dir):
        said = f"'{phrase}' runs {command}" if command else f"'{phrase}' runs nothing here: name the command instead"
        yield Diagnosis("criteria", True, said, absent=not command)


def _check_notifications(project: Project) -> Iterator[Diagnosis]:
    """Whether notifications can be sent. The addresses are secret and never shown."""
    try:
        wanted = load_config(project.settings_dir).notify
    except RalphError:
        return
    try:
        found = services_for(((one.url, one.events) for one in wanted), os.environ)
    except RalphError as error:
        yield Diagnosis("notify", False, error.what, error.todo)
        return
    for service in found:
        yield Diagnosis("notify", True, f"{service.name}: {', '.join(service.events)}")


def _check_agents(project: Project) -> Iterator[Diagnosis]:
    others = registry.list_third_party()
    with ThreadPoolExecutor() as pool:
        yield from pool.map(_check_agent, registry.ADAPTERS)
    yield from (_check_third_party(name, wrong) for name, wrong in others.items())
    for name, what in registry.OTHERS.items():
        yield Diagnosis("agent", True, f"{name}: {what}")
    try:
        config = load_config(project.settings_dir)
    except RalphError:
        return
    named = bool(config.agents or config.agent or config.agent_command or config.scenario)
    try:
        selection = registry.select_agents(config, names=(), command=None, scenario_file=None, cwd=project.settings_dir)
        yield Diagnosis("agent", True, f"this project uses {', then '.join(spec.label for spec in selection.chain)}")
    except RalphError as error:
        yield Diagnosis("agent", not named, error.what.replace("\n", "; "), error.todo, absent=True)


def _check_third_party(name: str, wrong: RalphError | None) -> Diagnosis:
    """An agent whose adapter comes from an installed package, which may be broken."""
    if wrong:
        return Diagnosis("agent", False, f"{name}: {wrong.what} ({wrong.where})", wrong.todo, facts={"name": name})
    return _check_agent(name)


def _check_agent(name: str) -> Diagnosis:
    """One agent program: whether it is installed, its version and proof, whether it is signed in, and what it can do."""
    agent = registry.get_adapter(name)
    path = shutil.which(agent.program)
    if path is None:
        what = f"{name}: not installed (`{agent.install}`)"
        return Diagnosis("agent", True, what, absent=True, facts={"name": name, "path": None})
    signed_in, how = agent.sign_in(os.environ, Path.home())
    state = {True: f"signed in ({how})", False: "not signed in", None: f"sign-in unknown ({how})"}
    can = [field.replace("_", " ") for field, able in asdict(agent.abilities).items() if able]
    version = read_version(path)
    tried, proof = _find_proof(name, version, agent.install)
    what = f"{name}: {version}, {tried}, {state[signed_in]}; can: {', '.join(can)}"
    facts = {"name": name, "path": path, "version": version, "signed_in": signed_in, "can": can, **proof}
    return Diagnosis("agent", signed_in is not False, what, how if signed_in is False else "", facts=facts)


def _find_proof(name: str, version: str, install: str) -> tuple[str, Mapping[str, object]]:
    """Whether this version of an agent was tried from end to end: in words, and as facts."""
    proof = load_proofs().get(name)
    if proof is None:
        return "not tested", {"standing": ProofStatus.UNPROVEN, "proof": None}
    standing = proof.status_of(version)
    said = f"not the tested version {proof.version}"
    if standing is ProofStatus.PROVEN:
        said = f"tested ({proof.score})"
    elif standing is ProofStatus.NEWER_VERSION:
        said = f"newer than the tested version {proof.version} (if its turns fail, {_install_tested(install, proof.version)})"
    return said, {"standing": standing, "proof": asdict(proof)}


def _install_tested(install: str, version: str) -> str:
    """What installs the version that was tested."""
    if install.startswith("npm install"):
        return f"run `{install}@{version}`"
    return f"install {version}"


def read_version(path: str) -> str:
    try:
        said = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=20, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return "unknown version"
    # Some end it with a full stop: `GitHub Copilot CLI 1.0.102.`
    return (said.stdout.strip().splitlines() or ["no version"])[0][:60].rstrip(".")


def _runs(project: Project) -> Iterator[Diagnosis]:
    for run in project.runs()[-_CHECKED_RUNS:]:
        try:
            run.record()
            if doubt := run.find_doubt():
                yield Diagnosis(
                    "run", False, f"{run.id}: {doubt}; Ralph has not verified what it claims", advise_to_adopt(run.id)
                )
        except RalphError as error:
            yield Diagnosis("run", False, f"{run.id}: {error.what} ({error.where})", error.todo)
            continue
        if not run.alive and (left := find_marked(TURN_MARK, f"{run.id}/")):
            what = f"{run.id}: its engine is gone, but {count_are(len(left), 'process', 'processes')} still running"
            todo = f"`ralph resume {run.id}` takes them over, `ralph abort {run.id}` ends them"
            yield Diagnosis("run", False, what, todo)


@dataclass(frozen=True)
class TriedPromise:
    """A promise of the sandbox, and whether it held when it was tried."""

    promise: str
    is_kept: bool


def _greet(server: socket.socket) -> None:
    """Send one byte to the first client."""
    with contextlib.suppress(OSError):
        client, _ = server.accept()
        with client:
            client.sendall(b"x")


def prove(sandbox: Sandbox, environment: Mapping[str, str]) -> list[TriedPromise]:
    """Try every promise in a temporary workspace. Raises OSError if that is not possible."""
    network, opened = None, socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=_greet, args=(opened,), daemon=True).start()
    home = Path(environment.get("HOME") or Path.home())
    with tempfile.TemporaryDirectory(prefix="ralph-doctor-") as workspace, socket.socket() as listener, opened:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        given = {
            "home": str(home),
            "state": str(ensure_state_directory()),
            "keys": [str(path) for path in sandbox.hidden if path.is_dir()],
            "pid": os.getpid(),
            "workspace": os.path.realpath(workspace),
            "port": listener.getsockname()[1],
            "open": 0,
        }
        if sandbox.level == STRICT:
            given["open"] = opened.getsockname()[1]
            files = [Path(workspace, name) for name in ("allowed", "denied", "upstream")]
            network = NetworkAccess((f"localhost:{given['open']}",), *files)
        command = (sys.executable, "-S", "-I", "-c", _PROOF_PROGRAM, json.dumps(given))
        argv, inside = sandbox.wrap(command, environment, Path(workspace), [writable(Path(workspace))], network)
        done = subprocess.run(
            argv, env=inside, capture_output=True, text=True, timeout=_PROOF_SECONDS, stdin=subprocess.DEVNULL
        )
    if done.returncode != 0:
        raise OSError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit code {done.returncode}")
    results = json.loads(done.stdout)
    promises = {**_PROMISES, **_STRICT} if sandbox.level == STRICT else _PROMISES
    return [TriedPromise(text, bool(results[name])) for name, text in promises.items()]
