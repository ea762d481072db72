"""The caches of package managers inside the sandbox: private to the run, and filled from the user's own.

The user's caches are read-only inside. Tools that can read a second cache (gradle, and go for modules) are told where the
user's is. For maven, cargo and what go has built, Ralph makes a directory with copies of the small files and links to the
large ones.
"""

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

_COPIED_BYTES = 64 * 1024
"""Larger files are linked. Tools rewrite only small ones, such as indexes and lists of where a file came from."""
_MAX_FILES = 100_000
"""A larger cache is left out: filling the private one would take longer than most downloads."""
_GO_PROXY = "https://proxy.golang.org,direct"
"""What go uses if the user sets no proxy."""


def cache_environment(directory: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that make package managers keep their caches in a directory of the run."""
    home = Path(environment.get("HOME") or Path.home())
    theirs = Path(environment.get("XDG_CACHE_HOME") or home / ".cache")
    own = {
        "XDG_CACHE_HOME": str(directory),
        "npm_config_cache": str(directory / "npm"),
        "PIP_CACHE_DIR": str(directory / "pip"),
        "UV_CACHE_DIR": str(directory / "uv"),
        "YARN_CACHE_FOLDER": str(directory / "yarn"),
        "CARGO_HOME": str(directory / "cargo"),
        "GRADLE_USER_HOME": str(directory / "gradle"),
        **_go_variables(directory, environment, home),
    }
    options = environment.get("MAVEN_OPTS", "")
    if "-Dmaven.repo.local=" not in options:
        own["MAVEN_OPTS"] = f"{options} -Dmaven.repo.local={directory / 'maven'}".strip()
    modules = Path(environment.get("GRADLE_USER_HOME") or home / ".gradle") / "caches"
    if "GRADLE_RO_DEP_CACHE" not in environment and (modules / "modules-2").is_dir():
        own["GRADLE_RO_DEP_CACHE"] = str(modules)
    # Downloads that are only read, and too large to fetch again for every run.
    for variable, name in (("PLAYWRIGHT_BROWSERS_PATH", "ms-playwright"), ("HF_HOME", "huggingface")):
        if variable not in environment and (theirs / name).is_dir():
            own[variable] = str(theirs / name)
    return own


def _go_variables(directory: Path, environment: Mapping[str, str], home: Path) -> dict[str, str]:
    flags = environment.get("GOFLAGS", "")
    own = {
        "GOCACHE": str(directory / "go-build"),
        "GOMODCACHE": str(directory / "go-mod"),
        # Without this, go makes its module cache read-only, and the run could not be removed.
        "GOFLAGS": flags if "-modcacherw" in flags else f"{flags} -modcacherw".strip(),
    }
    place = Path((environment.get("GOPATH") or str(home / "go")).split(os.pathsep)[0])
    modules = Path(environment.get("GOMODCACHE") or place / "pkg" / "mod") / "cache" / "download"
    if modules.is_dir():
        # The downloads in a module cache have the layout of a proxy.
        own["GOPROXY"] = f"file://{modules},{environment.get('GOPROXY') or _GO_PROXY}"
    return own


def fill_caches(directory: Path, environment: Mapping[str, str]) -> None:
    """Fill the caches of a run from the user's own, once."""
    home = Path(environment.get("HOME") or Path.home())
    cargo = Path(environment.get("CARGO_HOME") or home / ".cargo")
    caches = Path(environment.get("XDG_CACHE_HOME") or home / ".cache")
    sources = {
        "go-build": Path(environment.get("GOCACHE") or caches / "go-build"),
        "maven": _find_maven_repository(home),
        "cargo/registry/index": cargo / "registry" / "index",
        "cargo/registry/cache": cargo / "registry" / "cache",
        "cargo/git/db": cargo / "git" / "db",
    }
    for name, source in sources.items():
        target = directory / name
        if target.exists() or not source.is_dir() or _has_too_many_files(source):
            continue
        # If the engine is killed in the middle, the next one starts again.
        partial = target.with_name(f"{target.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        _copy_or_link(source, partial)
        partial.rename(target)
    for name in ("config.toml", "config"):
        _copy_file(cargo / name, directory / "cargo" / name)
    gradle = Path(environment.get("GRADLE_USER_HOME") or home / ".gradle")
    _copy_file(gradle / "gradle.properties", directory / "gradle" / "gradle.properties")


def _find_maven_repository(home: Path) -> Path:
    """The user's repository of artifacts, which the settings may move."""
    try:
        text = (home / ".m2" / "settings.xml").read_text(errors="replace")
    except OSError:
        text = ""
    named = re.search(r"<localRepository>\s*([^<$]+?)\s*</localRepository>", text)
    return Path(named[1]) if named else home / ".m2" / "repository"


def _has_too_many_files(source: Path) -> bool:
    number = 0
    for _, _, files in os.walk(source):
        number += len(files)
        if number > _MAX_FILES:
            return True
    return False


def _copy_or_link(source: Path, target: Path) -> None:
    """Copy a tree: directories and small files are copied, large files are links to the user's own."""
    for directory, _, files in os.walk(source):
        own = target / Path(directory).relative_to(source)
        own.mkdir(parents=True, exist_ok=True)
        for name in files:
            path = Path(directory, name)
            try:
                if path.stat().st_size > _COPIED_BYTES:
                    os.symlink(os.path.realpath(path), own / name)
                else:
                    shutil.copy2(path, own / name)
            except OSError:
                # It is gone, or the user may not read it.
                continue


def _copy_file(source: Path, target: Path) -> None:
    if source.is_file() and not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)


def write_user_file(path: Path, environment: Mapping[str, str], uid: int) -> None:
    """Write a file of users (`/etc/passwd`) in which a number is the user whose home directory the environment names.

    Java and others look up the home directory there and not in `HOME`.
    """
    try:
        lines = Path("/etc/passwd").read_text(errors="surrogateescape").splitlines()
    except OSError:
        lines = []
    name, home = environment.get("USER") or "user", environment.get("HOME") or "/"
    others = [line for line in lines if line.split(":")[2:3] != [str(uid)] and line.split(":")[0] != name]
    own = f"{name}:x:{uid}:{uid}::{home}:/bin/sh"
    path.write_text("".join(f"{line}\n" for line in (own, *others)), errors="surrogateescape")
