"""What the jobs of a run may read and write inside the sandbox: the workspace, their turn's files, the agent's own state.

Ralph's own directories are read-only. The runs of the project are hidden, except for the few files that an agent's tools read.

The caches of package managers are private to the run, and filled from the user's own, which are read-only inside. Tools that can
read a second cache (gradle, and go for modules) are told where the user's is. For maven, cargo and what go has built, Ralph
makes a directory with copies of the small files and links to the large ones.
"""

import contextlib
import hashlib
import os
import pwd
import re
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import ralph
from ralph.agents.adapter import Adapter
from ralph.agents.state_paths import (
    HOMES,
    SECRETS,
    SECRETS_OF_SYSTEM,
    SETTINGS_WITH_TOKENS,
    StatePaths,
    expand_all,
    find_hosts,
)
from ralph.git.command import Repository, find_repository
from ralph.git.import_commits import import_commits
from ralph.git.private_repository import PrivateRepository, can_be_private
from ralph.store.files import is_inside, write_atomic
from ralph.store.questions import ANSWERS, QUESTIONS
from ralph.store.runs import ALLOWED_HOSTS_FILE
from ralph.supervisor.client import JobRequest
from ralph.supervisor.network_proxy import DENIED_FILE
from ralph.supervisor.sandbox import (
    CHECK_FILE,
    STRICT,
    TURN_FILE,
    USER_INSIDE,
    Mount,
    NetworkAccess,
    Sandbox,
    hide,
    read_only,
    wrap_mounts,
    writable,
)
from ralph.verify.results import RESULTS

PRIVATE = "private"
"""The directory of a run for what its jobs see in the place of the user's own files."""
_FILLED = "filled"
"""The directory with a file for each cache that was filled."""
_SESSIONS = ".ralph-sessions"
_PROTECTED = (".ralph", _SESSIONS, ".aiwg", "ralph.yml")
"""What a job cannot change in a project, because the engine believes it or reads it later."""
_RUN_FILES = ("run.json", "hats.json", "bin")
"""What agents' tools read in the directory of their run."""
_CREDENTIAL_LIMIT = 1024 * 1024
_TOKEN = re.compile(rb"_auth|_password|auth_?token|auth_?ident|password|token\s*[=:]|://[^/\s]*:[^/\s]*@", re.I)
"""A line of settings that has a token, a password, or an address with one."""
_COPIED_BYTES = 64 * 1024
"""Larger files are linked. Tools rewrite only small ones, such as indexes and lists of where a file came from."""
_MAX_FILES = 100_000
"""A larger cache is left out: filling the private one would take longer than most downloads."""
_GO_PROXY = "https://proxy.golang.org,direct"
"""What go uses if the user sets no proxy."""


def find_hidden(environment: Mapping[str, str], state: Path) -> tuple[Path, ...]:
    """What no job may read: the user's keys, the state of all agents, and Ralph's own."""
    found = [*expand_all(SECRETS, environment), *expand_all(HOMES, environment), state]
    home = _find_account_home()
    if home and home != environment.get("HOME"):
        # The keys in the home directory of the account are the user's, too.
        found += expand_all(SECRETS, {"HOME": home})
    if os.geteuid() == 0:
        found += [path for pattern in SECRETS_OF_SYSTEM for path in Path("/").glob(pattern)]
    return tuple(dict.fromkeys(found))


def _find_account_home() -> str:
    """The home directory that the system knows for this user."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:
        return ""


def find_needed() -> tuple[Path, ...]:
    """Where Ralph and its Python are, for the tools of agents."""
    paths = [Path(sys.prefix), Path(sys.base_prefix), Path(sys.executable), Path(ralph.__file__).parents[1]]
    return tuple(paths + [Path(entry) for entry in sys.path if entry])


@dataclass(frozen=True)
class TurnPlace:
    """Where a turn finds its files."""

    directory: Path
    """The directory of the turn in its run."""
    outbox: Path
    messages: Path
    own: Path | None = None
    """The directory for files of the agent program."""


@dataclass(frozen=True)
class RoomTree:
    """A clean checkout that checks see in the place of the work tree."""

    tree: Path
    kept: tuple[Mount, ...]
    """What git ignores and the checkout has nevertheless."""
    bytecode: Path
    """The directory for what Python compiles."""
    is_rehearsal: bool
    """Whether no agent has run yet. Only then may a check leave something for later ones."""


@dataclass(frozen=True)
class Isolation:
    """Puts the jobs of one run into the sandbox."""

    sandbox: Sandbox
    root: Path
    """The root of the project."""
    run_dir: Path
    top: Path
    """The tree that jobs may change: the work tree around the workspace."""
    shared: tuple[Path, ...] = ()
    """Directories of the main tree that worktrees have links to."""
    place: Repository | None = None
    """The repository around the tree."""

    def move(self, tree: Path) -> "Isolation":
        """The same for jobs in another tree. The whole work tree of a repository around it can be changed."""
        place = find_repository(tree) if self.sandbox.is_on and shutil.which("git") else None
        return replace(self, top=place.top if place else tree, place=place)

    def isolate_turn(self, job: JobRequest, place: TurnPlace, agent: Adapter) -> JobRequest:
        """The job of a turn, inside the sandbox."""
        if not self.sandbox.is_on or (job.dir / "pid").exists():
            # A turn that has begun keeps its sandbox: the keeper only reports it.
            return job
        progress = self.run_dir / "progress.jsonl"
        progress.touch(mode=0o600)
        questions, answers = self.run_dir / QUESTIONS, self.run_dir / ANSWERS
        place.messages.mkdir(parents=True, exist_ok=True)
        questions.mkdir(exist_ok=True)
        answers.mkdir(exist_ok=True)
        state = AgentState(agent.find_state_paths(), self._find_home(place.directory), job.env)
        own = [place.directory / name for name in ("prompt.md", "turn.json")]
        mounts = [
            *state.prepare(),
            *self._project_mounts(job.cwd),
            *self._mount_git(self._private_git(place.directory.name)),
            *(read_only(path) for path in own if path.exists()),
            read_only(answers),
            read_only(TURN_FILE, place.directory / "turn.json"),
            *(writable(path) for path in (progress, questions, place.messages)),
            *(writable(path) for path in (self.root / ".ralph" / "agent",) if path.is_dir()),
            *(writable(path) for path in (place.own,) if path is not None),
            writable(place.outbox),
        ]
        hosts = find_hosts(state.paths, job.env)
        return self._wrap(job, mounts, "cache", visible=state.visible(), hosts=hosts)

    def isolate_check(self, job: JobRequest) -> JobRequest:
        """The job of a check, inside the sandbox. Its caches are not those of the agents, who could plant results there."""
        if not self.sandbox.is_on:
            return job
        tree = hashlib.sha256(os.fsencode(self.top)).hexdigest()[:12]
        mounts = [*self._project_mounts(job.cwd), *self._mount_git(self._private_git(f"check-{tree}"))]
        mounts.append(self._mark_check())
        if job.cwd.is_relative_to(self.run_dir):
            # A copy of the tree that the engine made to run the checks in.
            mounts.append(writable(self.run_dir / job.cwd.relative_to(self.run_dir).parts[0]))
        return self._wrap(job, [*mounts, *self._mount_reports(job)], "check-cache")

    def _mark_check(self) -> Mount:
        """What shows Ralph that it runs in a check of this project."""
        mark = self._private("etc") / "check"
        if not mark.exists():
            write_atomic(mark, os.fsencode(os.path.realpath(self.root)), mode=0o600)
        return read_only(CHECK_FILE, mark)

    def _mount_reports(self, job: JobRequest) -> list[Mount]:
        """The directory in which the test runner of a check writes its report."""
        reports = self.run_dir / RESULTS / job.dir.name
        return [writable(reports)] if reports.is_dir() else []

    def isolate_room(self, job: JobRequest, room: RoomTree) -> JobRequest:
        """The job of a check in a clean room: a checkout is mounted over the work tree. Needs bubblewrap."""
        bytecode = self._mount_bytecode(room)
        if not self.sandbox.is_on:
            git = self.top / ".git"
            link = [writable(git)] if git.is_dir() else [read_only(git)] if git.exists() else []
            shown = [bytecode, *self._mount_reports(job)]
            argv = wrap_mounts(job.argv, job.cwd, [writable(self.top, room.tree), *link, *room.kept, *shown])
            return replace(job, argv=argv, sandboxed=True)
        runs = self.root / ".ralph" / "runs"
        has_runs = runs.is_dir() and not runs.is_relative_to(self.top)
        mounts = [
            *([hide(runs)] if has_runs else []),
            writable(self.top, room.tree),
            *self._mount_git(self._private_git("clean-room")),
            *room.kept,
            bytecode,
            *self._mount_reports(job),
            self._mark_check(),
        ]
        return self._wrap(job, mounts, self._open_room_cache(room), hides_runs=has_runs)

    def _mount_bytecode(self, room: RoomTree) -> Mount:
        """What Python compiled in the rehearsal, or a copy that nothing else uses.

        Checks such as `python -m compileall` must write there, but code of the agent must not leave anything for later checks.
        """
        if room.is_rehearsal:
            return writable(room.bytecode)
        used = self.run_dir / PRIVATE / "bytecode-used"
        shutil.rmtree(used, ignore_errors=True)
        shutil.copytree(room.bytecode, used)
        return writable(room.bytecode, used)

    def _open_room_cache(self, room: RoomTree) -> str:
        """The tool caches of a check in a clean room: those of the rehearsal, or a copy that nothing else uses."""
        filled = self._private("room-cache")
        if room.is_rehearsal:
            return filled.name
        used = self.run_dir / PRIVATE / "room-cache-used"
        shutil.rmtree(used, ignore_errors=True)
        shutil.copytree(filled, used, symlinks=True)
        return used.name

    def finish_turn(self, directory: Path, environment: Mapping[str, str], agent: Adapter) -> list[str]:
        """Import the agent's commits, and copy back the credentials that it renewed. Returns notices."""
        if not self.sandbox.is_on:
            return []
        AgentState(agent.find_state_paths(), self._find_home(directory), environment).copy_back()
        private = self._private_git(directory.name)
        return import_commits(private, f"turn {int(directory.name[:5])}") if private else []

    def _find_home(self, turn: Path) -> Path:
        """The directory for the state of agents in turns of one role: an implementer must not leave hooks for its judge."""
        role = turn.name[6:] or "agent"
        return self._private("home") / role

    def _private_git(self, name: str) -> PrivateRepository | None:
        if self.place is None or not can_be_private(self.place):
            return None
        return PrivateRepository(self.place, self._private("git") / name)

    def _mount_git(self, private: PrivateRepository | None) -> Sequence[Mount]:
        """A git directory for one job; the user's own, read-only, if Ralph cannot make one."""
        if private:
            return private.prepare()
        return [read_only(self.place.common)] if self.place else []

    def _private(self, name: str) -> Path:
        path = self.run_dir / PRIVATE / name
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        return path

    def _wrap(
        self,
        job: JobRequest,
        mounts: Iterable[Mount],
        cache: str,
        *,
        visible: Iterable[Path] = (),
        hosts: Sequence[str] = (),
        hides_runs: bool = True,
    ) -> JobRequest:
        caches = self._private(cache)
        self._fill_once(caches, job.env)
        environment = {**job.env, **cache_environment(caches, job.env)}
        shown = {os.path.realpath(path) for path in (*visible, *self.sandbox.visible)}
        hidden = tuple(path for path in self.sandbox.hidden if os.path.realpath(path) not in shown)
        sandbox = replace(self.sandbox, hidden=hidden, visible=(*self.sandbox.visible, self.root, self.top))
        runs = self.root / ".ralph" / "runs"
        close = [Mount("remount-ro", runs)] if hides_runs and runs.is_dir() else []
        listed = [*mounts, writable(caches), *self._mount_users(job.env), *self._mount_settings(job.env), *close]
        network = None
        if sandbox.level == STRICT:
            allowed = (*hosts, *sandbox.connect)
            network = NetworkAccess(
                allowed=allowed,
                allow_file=self.run_dir / ALLOWED_HOSTS_FILE,
                denied_file=job.dir / DENIED_FILE,
                upstream_file=self._private("network") / "upstream",
            )
            upstream = job.env.get("HTTPS_PROXY") or job.env.get("https_proxy") or ""
            write_atomic(network.upstream_file, upstream.encode(), mode=0o600)
        argv, environment = sandbox.wrap(job.argv, environment, job.cwd, listed, network)
        return replace(job, argv=argv, env=environment, sandboxed=argv != job.argv)

    def _fill_once(self, caches: Path, environment: Mapping[str, str]) -> None:
        """Fill caches before the first job that can write to them. Later, a link in them could lead anywhere."""
        filled = self._private(_FILLED) / caches.name
        number = str(caches.stat().st_ino)
        if not any(caches.iterdir()) or not filled.exists() or filled.read_text() != number:
            fill_caches(caches, environment)
            filled.write_text(number)

    def _mount_settings(self, environment: Mapping[str, str]) -> list[Mount]:
        """The settings of package managers, without the lines that contain a token."""
        shown = {os.path.realpath(path) for path in self.sandbox.visible}
        mounts = []
        for path in expand_all(SETTINGS_WITH_TOKENS, environment):
            if not path.is_file() or os.path.realpath(path) in shown:
                continue
            lines = path.read_bytes().splitlines(keepends=True)
            kept = b"".join(line for line in lines if not _TOKEN.search(line))
            if kept != b"".join(lines):
                own = self._private("etc") / path.name
                write_atomic(own, kept, mode=0o600)
                mounts.append(read_only(path, own))
        return mounts

    def _mount_users(self, environment: Mapping[str, str]) -> list[Mount]:
        """A file of users for jobs whose user has another number inside than outside."""
        if os.geteuid() != 0:
            return []
        users = self._private("etc") / "passwd"
        if not users.exists():
            write_user_file(users, environment, USER_INSIDE)
        return [read_only(Path("/etc/passwd"), users)]

    def _project_mounts(self, cwd: Path) -> list[Mount]:
        """The work tree, writable, and Ralph's own files in it and around it, read-only."""
        is_in_tree = self.root.is_relative_to(self.top)
        mounts = [writable(self.top), *_protect(self.root)] if is_in_tree else [writable(self.top)]
        runs = self.root / ".ralph" / "runs"
        if runs.is_dir():
            mounts = [*mounts, hide(runs)]
        if not is_in_tree or self.top.is_relative_to(self.root / ".ralph"):
            mounts = [hide(runs), writable(self.top)] if runs.is_dir() else [writable(self.top)]
        if self.top != self.root:
            mounts += _protect(self.top)
        # A package can have its own settings.
        packages = [path for path in (cwd, *cwd.parents) if path.is_relative_to(self.top) and path != self.top]
        mounts += [read_only(path / "ralph.yml") for path in packages if (path / "ralph.yml").is_file()]
        mounts += [read_only(path) for name in _RUN_FILES if (path := self.run_dir / name).exists()]
        # An agent could have put a link in its place.
        mounts += [writable(path) for path in self.shared if path.is_dir() and is_inside(path, self.root)]
        return mounts


def _protect(directory: Path) -> list[Mount]:
    """Ralph's own files, read-only. The directory of sessions always exists, so that no agent can create one there."""
    with contextlib.suppress(OSError):
        (directory / _SESSIONS).mkdir(exist_ok=True)
    return [read_only(path) for name in _PROTECTED if (path := directory / name).exists()]


@dataclass(frozen=True)
class AgentState:
    """The state of an agent program inside the sandbox."""

    paths: tuple[StatePaths, ...]
    private: Path
    """The directory of the run for what is private."""
    environment: Mapping[str, str]

    def prepare(self) -> list[Mount]:
        """Make the private directories, copy credentials in, and return the mounts."""
        mounts = []
        for paths in self.paths:
            self._make_directories(paths)
            shared = paths.expand(paths.shared, self.environment)
            mounts += [writable(path) for path in shared if not self._is_in_private(path, paths)]
            for path in paths.expand(paths.private, self.environment):
                own = self._own(path)
                own.mkdir(parents=True, exist_ok=True, mode=0o700)
                mounts.append(writable(path, own))
            mounts += [writable(path) for path in shared if self._is_in_private(path, paths)]
            mounts += [read_only(path) for path in paths.expand(paths.read_only, self.environment)]
            for path in paths.expand((*paths.credentials, *paths.copied), self.environment):
                _copy_newer(path, self._own(path))
        if (home := self._hook_home()) is not None:
            own = self._own(home)
            if own.exists():
                shutil.rmtree(own)
            shutil.copytree(home, own, symlinks=True)
            mounts.append(writable(home, own))
        return mounts

    def visible(self) -> list[Path]:
        """The directories of this agent that are hidden from others."""
        found = []
        for paths in self.paths:
            listed = paths.expand((*paths.private, *paths.shared, *paths.read_only), self.environment)
            found += [*listed, *(path.parent for path in listed)]
        return found

    def copy_back(self) -> None:
        """Copy credentials that the agent renewed to the user's own."""
        for paths in self.paths:
            for path in paths.expand(paths.credentials, self.environment):
                own = self._own(path)
                if own.is_file() and not own.is_symlink() and own.stat().st_mtime_ns > path.stat().st_mtime_ns:
                    data = own.read_bytes()
                    if data and len(data) <= _CREDENTIAL_LIMIT and data != path.read_bytes():
                        write_atomic(path, data, mode=0o600)

    def _make_directories(self, paths: StatePaths) -> None:
        """Make the directories that the agent would make at its first start: inside, it cannot."""
        for name in (*paths.private, *paths.shared):
            for path in paths.locate(name, self.environment):
                path.mkdir(parents=True, exist_ok=True, mode=0o700)

    def _hook_home(self) -> Path | None:
        """The home directory that Ralph made for gemini. It consists of links, and gemini replaces files in it."""
        home = self.environment.get("GEMINI_CLI_HOME", "")
        return Path(home) if f"{os.sep}ralph{os.sep}gemini-" in home and os.path.isdir(home) else None

    def _is_in_private(self, path: Path, paths: StatePaths) -> bool:
        return any(path.is_relative_to(one) for one in paths.expand(paths.private, self.environment))

    def _own(self, path: Path) -> Path:
        return self.private / path.relative_to(path.anchor)


def _copy_newer(path: Path, own: Path) -> None:
    """Copy a file, unless the copy is the newer one. Times are kept, so that a renewed copy is the newer one."""
    if not path.is_file() or (own.exists() and own.stat().st_mtime_ns >= path.stat().st_mtime_ns):
        return
    own.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    shutil.copy2(path, own)


def cache_environment(directory: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that make package managers keep their caches in a directory of the run."""
    home = Path(environment.get("HOME") or Path.home())
    theirs = Path(environment.get("XDG_CACHE_HOME") or home / ".cache")
    own = {
        "XDG_CACHE_HOME": str(directory),
        # Chromium keeps its profile there, and fails if it cannot.
        "CHROME_CONFIG_HOME": str(directory / "chrome"),
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


def remove_caches(run_dir: Path, *, is_over: bool) -> None:
    """Remove the caches of a run in which nothing works; a resume fills them again.

    A run that can be resumed keeps those of the clean room: only the rehearsal, which is not repeated, may have downloaded
    what its checks need.
    """
    names = ["cache", "check-cache", "room-cache-used"]
    if is_over:
        names.append("room-cache")
    for name in names:
        shutil.rmtree(run_dir / PRIVATE / name, ignore_errors=True)
        (run_dir / PRIVATE / _FILLED / name).unlink(missing_ok=True)


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
