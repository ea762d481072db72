"""The real agent programs, in pinned versions from npm, installed once for all runs of the tests."""

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SECONDS = 300
"""That an installation may take: up to 440 MB are fetched."""


class Unavailable(Exception):
    """The program cannot be had here; the message says why."""


@dataclass(frozen=True)
class Package:
    """An agent's package on npm."""

    name: str
    """Of the agent and its program."""
    package: str
    version: str
    scripts: bool = False
    """Whether it runs only after its own installation script."""

    @property
    def place(self) -> Path:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        return cache / "ralph-agents" / f"{self.name}-{self.version}"

    @property
    def directory(self) -> Path:
        """Where the program is, once it is installed; the place exists as a whole or not at all."""
        return self.place / "node_modules" / ".bin"


def directory_of(package: Package, *, may_install: bool) -> Path:
    """The directory of an agent's program, installed first where that is allowed; else Unavailable."""
    name = package.name
    if package.place.exists():
        return package.directory
    if not may_install:
        raise Unavailable(f"{name} {package.version} is not in {package.place.parent}; RALPH_REAL_AGENTS=1 installs it")
    if shutil.which("npm") is None:
        raise Unavailable(f"{name} cannot be installed: there is no npm")
    try:
        package.place.parent.mkdir(parents=True, exist_ok=True)
        with _lock(package.place):
            if not package.place.exists():
                _install(package)
    except OSError as error:
        raise Unavailable(f"{name} cannot be installed: {error}") from error
    return package.directory


def _install(package: Package) -> None:
    """Install beside the place, see that the program runs, and only then give it its name."""
    aside = Path(tempfile.mkdtemp(prefix=f".{package.name}-", dir=package.place.parent))
    words = ["npm", "install", "--prefix", str(aside), "--prefer-offline", "--fetch-retries=1", "--no-audit"]
    words += ["--no-fund", "--loglevel=error", *([] if package.scripts else ["--ignore-scripts"])]
    try:
        _finish([*words, f"{package.package}@{package.version}"], aside, package)
        with tempfile.TemporaryDirectory() as home:
            said = _finish([str(aside / "node_modules" / ".bin" / package.name), "--version"], Path(home), package)
        if package.version not in said:
            raise Unavailable(f"{package.name} was installed, and says that its version is {said.strip()[:80]!r}")
        aside.rename(package.place)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _finish(words: list[str], place: Path, package: Package) -> str:
    dropped = ("RALPH_", "PYTEST_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    if words[0] != "npm":
        environment["HOME"] = str(place)
    try:
        done = subprocess.run(
            words,
            cwd=place,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        raise Unavailable(f"{package.name} cannot be installed: {words[0]} took over {SECONDS} seconds") from late
    if done.returncode:
        said = " ".join((done.stderr or done.stdout).split())
        raise Unavailable(f"{package.name} {package.version} cannot be installed (no registry?): {said[:300]}")
    return done.stdout


@contextmanager
def _lock(place: Path) -> Iterator[None]:
    """One installation of a package at a time, over all processes."""
    with place.with_name(f".{place.name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
