"""`ralph doctor`: is this machine, and this project, fit to be left alone?"""

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path

import click

from ralph import __version__
from ralph.agents import registry
from ralph.agents.proofs import Standing, proofs
from ralph.cli.console import here, json_option, tell
from ralph.core.errors import RalphError
from ralph.core.outcomes import Outcome
from ralph.git.repository import repository
from ralph.notify import services_for
from ralph.store.journal import adopt_advice
from ralph.store.runs import Project
from ralph.store.settings import load_config, user_settings_path
from ralph.supervisor.processes import TURN_MARK, marked

_LOW_ROOM = 1 << 30
_CHECKED_RUNS = 20


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    subject: str
    ok: bool
    said: str
    todo: str = ""
    absent: bool = False
    """Whether it is only not there, which is no fault."""
    facts: Mapping[str, object] = field(default_factory=dict)
    """The same for programs, where there is more to it than a line."""

    @property
    def mark(self) -> str:
        """What the line of a finding begins with."""
        if not self.ok:
            return "BAD"
        return "-" if self.absent else "ok"


@click.command("doctor")
@json_option
def command(as_json: bool) -> int:
    """Check Python, git, the disk, ralph.yml, the agents and the state of past runs."""
    findings = list(examine(here()))
    lines = []
    for finding in findings:
        lines.append(f"{finding.mark:<4} {finding.subject:<10} {finding.said}")
        lines += [f"{'':16}next: {finding.todo}"] if finding.todo else []
    tell(as_json, lines, command="doctor", version=__version__, findings=[asdict(finding) for finding in findings])
    return 0 if all(finding.ok for finding in findings) else Outcome.USAGE.exit_code


def examine(project: Project) -> Iterator[Finding]:
    """All findings, in the order in which a person would look."""
    yield Finding("ralph", True, f"{__version__} with Python {platform.python_version()} ({sys.executable})")
    yield _platform()
    yield _git(project)
    yield from _disk(project)
    yield _configuration(project)
    yield from _notifications(project)
    yield from _agents(project)
    yield from _runs(project)


def _platform() -> Finding:
    if platform.system() == "Linux":
        return Finding("system", True, f"Linux {platform.release()}: every process of a turn is found and ended")
    told = f"{platform.system()}: processes that detach themselves from a turn may be missed"
    return Finding("system", True, told)


def _git(project: Project) -> Finding:
    if not shutil.which("git"):
        return Finding("git", False, "not found", "install git, or start runs with --no-snapshots")
    said = subprocess.run(["git", "--version"], capture_output=True, text=True, timeout=10).stdout.strip()
    try:
        place = repository(project.root)
    except RalphError as error:
        return Finding("git", False, f"{said}; {error.what}", error.todo)
    if place and not os.access(place.common, os.W_OK):
        todo = f"make it writable, or start runs with --no-snapshots: `chmod u+w {place.common}`"
        return Finding("git", False, f"{said}; {place.common} is not writable", todo)
    return Finding("git", True, said)


def _disk(project: Project) -> Iterator[Finding]:
    place = project.root / ".ralph" if (project.root / ".ralph").exists() else project.root
    if not os.access(place, os.W_OK):
        yield Finding("disk", False, f"{place} is not writable", f"chmod u+w {place}")
        return
    free = shutil.disk_usage(place).free
    todo = "make room; `ralph clean` removes old runs" if free < _LOW_ROOM else ""
    yield Finding("disk", free >= _LOW_ROOM, f"{free / (1 << 30):.1f} GiB free in {project.root}", todo)


def _configuration(project: Project) -> Finding:
    try:
        config = load_config(project.root)
    except RalphError as error:
        return Finding("ralph.yml", False, error.what.replace("\n", "; "), error.todo)
    if config.permissions == "full-auto":
        told = "valid; `permissions` has no effect here: a repository cannot agree for you"
        return Finding("ralph.yml", True, told, f"`ralph trust`, or set it in {user_settings_path()}")
    there = (project.root / "ralph.yml").exists()
    return Finding("ralph.yml", True, "valid" if there else "none here; the defaults hold")


def _notifications(project: Project) -> Iterator[Finding]:
    """Whether people that are away can be told; an address itself is never shown."""
    try:
        wanted = load_config(project.root).notify
    except RalphError:
        return
    try:
        found = services_for(((one.url, one.events) for one in wanted), os.environ)
    except RalphError as error:
        yield Finding("notify", False, error.what, error.todo)
        return
    for service in found:
        yield Finding("notify", True, f"{service.name}: {', '.join(service.events)}")


def _agents(project: Project) -> Iterator[Finding]:
    others = registry.third_parties()
    with ThreadPoolExecutor() as pool:
        yield from pool.map(_agent, registry.ADAPTERS)
    yield from (_third_party(name, wrong) for name, wrong in others.items())
    for name, what in registry.OTHERS.items():
        yield Finding("agent", True, f"{name}: {what}")
    try:
        config = load_config(project.root)
    except RalphError:
        return
    named = bool(config.agents or config.agent or config.agent_command or config.scenario)
    try:
        crew = registry.crew(config, (), None, None, project.root)
        yield Finding("agent", True, f"this project uses {', then '.join(spec.label for spec in crew.chain)}")
    except RalphError as error:
        yield Finding("agent", not named, error.what.replace("\n", "; "), error.todo, absent=True)


def _third_party(name: str, wrong: RalphError | None) -> Finding:
    """An agent whose adapter an installed package brings along, which may not work."""
    if wrong:
        return Finding("agent", False, f"{name}: {wrong.what} ({wrong.where})", wrong.todo, facts={"name": name})
    return _agent(name)


def _agent(name: str) -> Finding:
    """One agent program: found, its version and whether that is proven, signed in as far as can be told, what it can do."""
    agent = registry.known(name)
    path = shutil.which(agent.program)
    if path is None:
        told = f"{name}: not installed (`{agent.install}`)"
        return Finding("agent", True, told, absent=True, facts={"name": name, "path": None})
    signed_in, how = agent.sign_in(os.environ, Path.home())
    state = {True: f"signed in ({how})", False: "not signed in", None: "whether it is signed in cannot be told offline"}
    can = [field.replace("_", " ") for field, able in asdict(agent.abilities).items() if able]
    version = _version(path)
    tried, proof = _proof(name, version)
    told = f"{name}: {version}, {tried}, {state[signed_in]}; can: {', '.join(can)}"
    facts = {"name": name, "path": path, "version": version, "signed_in": signed_in, "can": can, **proof}
    return Finding("agent", signed_in is not False, told, how if signed_in is False else "", facts=facts)


def _proof(name: str, version: str) -> tuple[str, Mapping[str, object]]:
    """Whether this version of an agent was tried from end to end: in words, and as facts."""
    proof = proofs().get(name)
    if proof is None:
        return "unproven", {"standing": Standing.UNPROVEN, "proof": None}
    standing = proof.standing(version)
    said = f"proven ({proof.score})" if standing is Standing.PROVEN else f"not the proven version {proof.version}"
    return said, {"standing": standing, "proof": asdict(proof)}


def _version(path: str) -> str:
    try:
        said = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=20, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return "does not tell its version"
    return (said.stdout.strip().splitlines() or ["no version"])[0][:60]


def _runs(project: Project) -> Iterator[Finding]:
    for run in project.runs()[-_CHECKED_RUNS:]:
        try:
            run.record()
            if doubt := run.find_doubt():
                yield Finding("run", False, f"{run.id}: {doubt}; what it says is only claimed", adopt_advice(run.id))
        except RalphError as error:
            yield Finding("run", False, f"{run.id}: {error.what} ({error.where})", error.todo)
            continue
        if not run.alive and (left := marked(TURN_MARK, f"{run.id}/")):
            told = f"{run.id}: its engine is gone, {len(left)} of its processes still work"
            yield Finding(
                "run", False, told, f"`ralph resume {run.id}` takes them over, `ralph abort {run.id}` ends them"
            )
