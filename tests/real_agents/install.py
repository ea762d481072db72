"""The real agent programs, in pinned versions from npm and PyPI, installed once for all runs of the tests."""

import fcntl
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SECONDS = 1200
"""How long an installation may take: it downloads up to 440 MB, and the machine can be busy."""


NODE = "22.23.3"
"""The version of Node for programs that need a newer one than Debian's. It is installed beside each of them."""


class Unavailable(Exception):
    """The program is not available here; the message says why."""


_FAILED: dict[Path, str] = {}
"""Why an installation failed, by its directory. It would fail again, after minutes, in every test."""


@dataclass(frozen=True)
class Package:
    """An agent's package on npm."""

    name: str
    """The name of the agent and its program."""
    package: str
    version: str
    scripts: bool = False
    """Whether it needs its own installation script."""
    program_dir: str = ".bin"
    """The directory of its program, relative to `node_modules`."""
    prints_version: bool = True
    """Whether its program prints its version. If not, the package file has it."""
    node: str = ""
    """The version of Node that it gets, as a package beside it; empty for the one on PATH."""

    tool = "npm"
    """The program that installs it."""

    @property
    def path(self) -> Path:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        return cache / "ralph-agents" / f"{self.name}-{self.version}"

    @property
    def directory(self) -> Path:
        """The directory of the program. It exists only after a complete installation."""
        return self.path / "node_modules" / self.program_dir

    def install(self) -> None:
        """Install into a temporary directory, run the program, and only then rename the directory."""
        aside = Path(tempfile.mkdtemp(prefix=f".{self.name}-", dir=self.path.parent))
        command = ["npm", "install", "--prefix", str(aside), "--prefer-offline", "--fetch-retries=1", "--no-audit"]
        command += ["--no-fund", "--loglevel=error", *([] if self.scripts else ["--ignore-scripts"])]
        wanted = [f"{self.package}@{self.version}"]
        if self.node:
            wanted.append(f"{_node_package()}@{self.node}")
        try:
            _finish([*command, *wanted], self)
            modules = aside / "node_modules"
            option = "--version" if self.prints_version else "--help"
            printed = _run_program(self, modules / self.program_dir, option)
            _check_version(
                self, printed if self.prints_version else (modules / self.package / "package.json").read_text()
            )
            aside.rename(self.path)
        finally:
            shutil.rmtree(aside, ignore_errors=True)


@dataclass(frozen=True)
class PythonPackage(Package):
    """An agent's package on PyPI."""

    extra_packages: tuple[str, ...] = ()
    """Packages that it needs but does not require, in pinned versions."""
    version_option: str = "--version"
    """The option that makes the program print its version."""

    tool = sys.executable

    @property
    def directory(self) -> Path:
        return self.path / "bin"

    def install(self) -> None:
        """Install in place, because its programs contain their path. The program directory comes last: it marks success."""
        shutil.rmtree(self.path, ignore_errors=True)
        inside = self.path / "venv"
        _finish([sys.executable, "-m", "venv", str(inside)], self)
        wanted = (f"{self.package}=={self.version}", *self.extra_packages)
        _finish([str(inside / "bin" / "python"), "-m", "pip", "install", "--quiet", *wanted], self)
        programs = inside / "bin"
        _check_version(self, _run_program(self, programs, self.version_option))
        aside = Path(tempfile.mkdtemp(prefix=".programs-", dir=self.path))
        (aside / self.name).symlink_to(programs / self.name)
        aside.rename(self.directory)


def directory_of(package: Package, *, may_install: bool) -> Path:
    """The directory of an agent's program. Installs it first if that is allowed; else raises Unavailable."""
    name = package.name
    if package.directory.exists():
        return package.directory
    if not may_install:
        raise Unavailable(f"{name} {package.version} is not in {package.path.parent}; RALPH_REAL_AGENTS=1 installs it")
    if shutil.which(package.tool) is None:
        raise Unavailable(f"{name} cannot be installed: there is no {package.tool}")
    if package.path in _FAILED:
        raise Unavailable(_FAILED[package.path])
    try:
        package.path.parent.mkdir(parents=True, exist_ok=True)
        with _lock(package.path):
            if not package.directory.exists():
                package.install()
    except (OSError, Unavailable) as error:
        text = str(error) if isinstance(error, Unavailable) else f"{name} cannot be installed: {error}"
        _FAILED[package.path] = text
        raise Unavailable(text) from error
    return package.directory


def _run_program(package: Package, directory: Path, option: str) -> str:
    """Run the program and return its output."""
    path = os.pathsep.join((str(directory), os.environ["PATH"]))
    with tempfile.TemporaryDirectory() as home:
        return _finish([str(directory / package.name), option], package, HOME=home, PATH=path)


def _node_package() -> str:
    """The package with the program `node` for this machine."""
    processor = {"x86_64": "x64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    return f"node-{sys.platform}-{processor}"


def _check_version(package: Package, printed: str) -> None:
    if package.version not in printed:
        raise Unavailable(f"{package.name} was installed, and says that its version is {printed.strip()[:80]!r}")


def _finish(command: list[str], package: Package, **variables: str) -> str:
    dropped = ("RALPH_", "PYTEST_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    try:
        done = subprocess.run(
            command,
            cwd=variables.get("HOME", package.path.parent),
            env={**environment, **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        raise Unavailable(f"{package.name} cannot be installed: {command[0]} took over {SECONDS} seconds") from late
    if done.returncode:
        message = " ".join((done.stderr or done.stdout).split())
        raise Unavailable(f"{package.name} {package.version} cannot be installed (no registry?): {message[:300]}")
    return done.stdout + done.stderr


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Let one process at a time install a package."""
    with path.with_name(f".{path.name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
