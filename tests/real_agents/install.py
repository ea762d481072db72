"""The real agent programs, in pinned versions from npm and PyPI, installed once for all runs of the tests."""

import fcntl
import os
import shutil
import subprocess
import sys
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
    within: str = ".bin"
    """The directory of its program, in that of the modules."""
    tells_version: bool = True
    """Whether its program says which version it is; else only its package does."""

    tool = "npm"
    """The program that installs it."""

    @property
    def place(self) -> Path:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        return cache / "ralph-agents" / f"{self.name}-{self.version}"

    @property
    def directory(self) -> Path:
        """Where the program is, once it is installed as a whole."""
        return self.place / "node_modules" / self.within

    def install(self) -> None:
        """Install beside the place, see that the program runs, and only then give it its name."""
        aside = Path(tempfile.mkdtemp(prefix=f".{self.name}-", dir=self.place.parent))
        words = ["npm", "install", "--prefix", str(aside), "--prefer-offline", "--fetch-retries=1", "--no-audit"]
        words += ["--no-fund", "--loglevel=error", *([] if self.scripts else ["--ignore-scripts"])]
        try:
            _finish([*words, f"{self.package}@{self.version}"], self)
            modules = aside / "node_modules"
            said = _said_by(self, modules / self.within, "--version")
            _compare(self, said if self.tells_version else (modules / self.package / "package.json").read_text())
            aside.rename(self.place)
        finally:
            shutil.rmtree(aside, ignore_errors=True)


@dataclass(frozen=True)
class PythonPackage(Package):
    """An agent's package on PyPI."""

    beside: tuple[str, ...] = ()
    """What it needs and does not ask for, in pinned versions."""
    version_by: str = "--version"
    """The option with which the program tells its version."""

    tool = sys.executable

    @property
    def directory(self) -> Path:
        return self.place / "bin"

    def install(self) -> None:
        """Install in the place, as its programs know where they are; what tells that all is there comes last."""
        shutil.rmtree(self.place, ignore_errors=True)
        inside = self.place / "venv"
        _finish([sys.executable, "-m", "venv", str(inside)], self)
        wanted = (f"{self.package}=={self.version}", *self.beside)
        _finish([str(inside / "bin" / "python"), "-m", "pip", "install", "--quiet", *wanted], self)
        programs = inside / "bin"
        _compare(self, _said_by(self, programs, self.version_by))
        aside = Path(tempfile.mkdtemp(prefix=".programs-", dir=self.place))
        (aside / self.name).symlink_to(programs / self.name)
        aside.rename(self.directory)


def directory_of(package: Package, *, may_install: bool) -> Path:
    """The directory of an agent's program, installed first where that is allowed; else Unavailable."""
    name = package.name
    if package.directory.exists():
        return package.directory
    if not may_install:
        raise Unavailable(f"{name} {package.version} is not in {package.place.parent}; RALPH_REAL_AGENTS=1 installs it")
    if shutil.which(package.tool) is None:
        raise Unavailable(f"{name} cannot be installed: there is no {package.tool}")
    try:
        package.place.parent.mkdir(parents=True, exist_ok=True)
        with _lock(package.place):
            if not package.directory.exists():
                package.install()
    except OSError as error:
        raise Unavailable(f"{name} cannot be installed: {error}") from error
    return package.directory


def _said_by(package: Package, directory: Path, option: str) -> str:
    """What the program says, which shows that it runs."""
    with tempfile.TemporaryDirectory() as home:
        return _finish([str(directory / package.name), option], package, HOME=home)


def _compare(package: Package, said: str) -> None:
    if package.version not in said:
        raise Unavailable(f"{package.name} was installed, and says that its version is {said.strip()[:80]!r}")


def _finish(words: list[str], package: Package, **variables: str) -> str:
    dropped = ("RALPH_", "PYTEST_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    try:
        done = subprocess.run(
            words,
            cwd=variables.get("HOME", package.place.parent),
            env={**kept, **variables},
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
    return done.stdout + done.stderr


@contextmanager
def _lock(place: Path) -> Iterator[None]:
    """One installation of a package at a time, over all processes."""
    with place.with_name(f".{place.name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
