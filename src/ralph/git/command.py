"""The one runner of the git command; its failures become our errors here.

It starts no hook, asks nothing and collects no garbage. Of the programs that a repository names in its settings, it starts
only those that were there when a run started (`programs`).

`Git` is the command in a directory, `Repository` the repository around a workspace.
"""

import errno
import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO

from ralph.core.errors import RalphError, StorageError, UsageError
from ralph.core.outcomes import Outcome
from ralph.core.redaction import without_agent_keys
from ralph.git.programs import list_overrides

_CONFIG = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "safe.bareRepository=explicit",
    "protocol.ext.allow=never",
    "log.showSignature=false",
    "core.fsync=committed",
    "core.fsyncMethod=batch",
    "gc.auto=0",
    "maintenance.auto=false",
    "commit.gpgSign=false",
    "submodule.recurse=false",
    "advice.addEmbeddedRepo=false",
)
_READS_TREE = frozenset(
    (
        *("add", "checkout", "checkout-index", "clean", "commit", "diff", "diff-files", "diff-index", "merge", "push"),
        *("read-tree", "reset", "restore", "rm", "stash", "status", "submodule", "update-index", "worktree"),
    )
)
"""Commands that may start git in repositories inside the work tree."""
_COMPARES = frozenset(("diff", "diff-files", "diff-index", "diff-tree", "status"))
_PASSED_VARIABLES = ("GIT_CONFIG", "GIT_AUTHOR_", "GIT_COMMITTER_", "GIT_CEILING_", "GIT_EXEC_PATH")
_ENVIRONMENT = {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0", "GIT_ADVICE": "0"}
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
_FULL_MESSAGES = (*(os.strerror(code) for code in _FULL), "Out of diskspace", "couldn't write", "unable to write")
_TEMPORARY = re.compile(
    rb"failed to read .*worktrees/[^/]+/(?:commondir|gitdir|HEAD)"
    rb"|Invalid path '.*worktrees/[^/]+': No such file"
    rb"|could not create directory of '.*worktrees/[^/]+': No such file"
    rb"|bad object worktrees/[^/]+/HEAD"
    rb"|Unable to create '.*\.lock': File exists"
    rb"|could not lock config file .*: File exists"
    rb"|(?:unable to stat '|open\(\"|readlink\(\").*: No such file"
    rb"|short read while indexing"
)
"""Messages of failures that pass by themselves: another git creates or removes a worktree or holds a lock, or another process
removes or truncates a file while git stages it. Git has changed nothing when it prints them."""
_TRIES, _PAUSE = 40, 0.05
GIT_TIMEOUT = 600
"""Seconds after which a git command is ended."""
_MAKE_ROOM = "free some disk space or make the disk writable, then `ralph resume`"
_MORE_FILES = "allow more open files with `ulimit -n 4096`, then try again"


class GitTimeoutError(RalphError):
    """Git was ended because it took too long."""


class GitError(RalphError):
    """Git refused or failed; `stderr` is what it printed."""

    outcome = Outcome.FAILED

    def __init__(self, what: str, *, where: str = "", todo: str = "", stderr: str = "") -> None:
        super().__init__(
            what, where=where, todo=todo or "`git status` shows what is wrong; fix it, then run `ralph resume`"
        )
        self.stderr = stderr


@dataclass(frozen=True)
class Output:
    """The result of a git command."""

    code: int
    out: bytes
    err: bytes

    @property
    def text(self) -> str:
        """The output without its last line break. Bytes that are not UTF-8 are preserved, as in file names."""
        return os.fsdecode(self.out).rstrip("\n")

    @property
    def names(self) -> list[str]:
        """The items of output with option `-z`."""
        return [os.fsdecode(name) for name in self.out.split(b"\0") if name]


@dataclass(frozen=True)
class Git:
    """The git command in one directory."""

    cwd: Path
    env: Mapping[str, str] = field(default_factory=dict)
    config: tuple[str, ...] = ()
    plain: bool = False
    """Whether to use the user's hooks and settings as they are."""

    def with_options(self, *config: str, **env: str) -> "Git":
        """The same with more configuration or environment."""
        return replace(self, config=(*self.config, *config), env={**self.env, **env})

    def resolve_commit(self, name: str = "HEAD") -> str:
        """The id of a commit; empty if there is none of that name."""
        return self.run("rev-parse", "-q", "--verify", f"{name}^{{commit}}", ok=(0, 1, 128)).text

    def resolve_tree(self, commit: str) -> str:
        """The id of the tree of a commit."""
        return self.run("rev-parse", f"{commit}^{{tree}}").text

    def run(self, *args: str, stdin: bytes = b"", ok: tuple[int, ...] = (0,), timeout: float = GIT_TIMEOUT) -> Output:
        """Run one git command. An exit code that is not in `ok` is an error."""
        settings = self.config if self.plain else (*_CONFIG, *self.config)
        options: list[str] = []
        for setting in settings:
            options += ["-c", setting]
        with disk(self.cwd):
            environment = {**_environment(), **self.env}
            if not self.plain:
                args = _with_all_submodules(args)
                reads_tree = not _READS_TREE.isdisjoint(args)
                environment |= _number_settings(environment, list_overrides(self, reads_tree=reads_tree))
            output = self._start(["git", *options, *args], stdin, timeout, environment)
            for _ in range(_TRIES):
                if not (output.code and _TEMPORARY.search(output.err)):
                    break
                time.sleep(_PAUSE)
                output = self._start(["git", *options, *args], stdin, timeout, environment)
        if output.code not in ok or (output.code and _is_full(output)):
            raise _failure(args[0], self.cwd, output)
        return output

    def ask(self, *args: str, **env: str) -> bytes:
        """What a command prints, with the settings of the repository as they are. Only for commands that start nothing."""
        return self._start(["git", *args], b"", GIT_TIMEOUT, {**_environment(), **self.env, **env}).out

    def _start(self, command: list[str], stdin: bytes, timeout: float, environment: Mapping[str, str]) -> Output:
        try:
            with _stdin_file(stdin) as source:
                # In a session of its own, git does not receive Ctrl-C, which would interrupt a snapshot.
                process = subprocess.Popen(
                    command,
                    cwd=self.cwd,
                    env=environment,
                    stdin=source,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    start_new_session=True,
                )
        except FileNotFoundError as error:
            if error.filename != "git":
                raise
            todo = "install git, or run without it: `--no-snapshots`"
            raise UsageError("git is not installed", todo=todo) from error
        with process, _deadline(process, timeout) as late:
            out, err = process.communicate()
        if late.is_set():
            todo = "find out what git waits for, then `ralph resume`"
            raise GitTimeoutError(f"git did not finish within {timeout:g} s", where=str(self.cwd), todo=todo)
        return Output(process.returncode, out, err)


def _with_all_submodules(args: tuple[str, ...]) -> tuple[str, ...]:
    """A comparison that looks at submodules and does not read `.gitmodules`: git stops if that has a bad value."""
    if any(one.startswith("--ignore-submodules") for one in args):
        return args
    for at, one in enumerate(args):
        if one in _COMPARES:
            return (*args[: at + 1], "--ignore-submodules=none", *args[at + 1 :])
        if not one.startswith("-") and "=" not in one:
            break
    return args


@contextmanager
def _stdin_file(stdin: bytes) -> Iterator[IO[bytes] | int]:
    """Input in a file. If the engine is killed, git would take the part that it has read from a pipe for the whole."""
    if not stdin:
        yield subprocess.DEVNULL
        return
    with os.fdopen(os.memfd_create("git"), "w+b") if hasattr(os, "memfd_create") else tempfile.TemporaryFile() as file:
        file.write(stdin)
        file.seek(0)
        yield file


@contextmanager
def _deadline(process: subprocess.Popen[bytes], seconds: float) -> Iterator[threading.Event]:
    """Kill a command and its children after a time. `communicate(timeout=...)` polls, which takes as long as a quick git."""
    late = threading.Event()

    def end() -> None:
        if process.poll() is None:
            late.set()
            os.killpg(process.pid, signal.SIGKILL)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield late
    finally:
        timer.cancel()


@contextmanager
def disk(where: Path) -> Iterator[None]:
    """Map errors of the file system to errors with advice."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise StorageError(str(error), where=str(where), todo=_MAKE_ROOM) from error
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise GitError(str(error), where=str(where), todo=_MORE_FILES) from error
        raise GitError(str(error), where=str(where)) from error


def _environment() -> dict[str, str]:
    """Ralph's environment without the agents' keys, which no hook or filter needs.

    The variables of a surrounding git (a hook, a rebase) would redirect the command.
    """
    passed = {}
    for name, value in without_agent_keys(os.environ).items():
        if not name.startswith("GIT_") or name.startswith(_PASSED_VARIABLES):
            passed[name] = value
    return passed | _ENVIRONMENT


def _number_settings(environment: Mapping[str, str], settings: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Settings as variables for git. Unlike `-c`, they can have any sign in their names, and git started by git gets them."""
    first = environment.get("GIT_CONFIG_COUNT", "")
    start = int(first) if first.isdigit() else 0
    named: dict[str, str] = {}
    for number, (key, value) in enumerate(settings, start):
        named |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return {**named, "GIT_CONFIG_COUNT": str(start + len(settings))} if named else {}


def _is_full(output: Output) -> bool:
    return any(message.encode() in output.err for message in _FULL_MESSAGES)


def _failure(verb: str, cwd: Path, output: Output) -> RalphError:
    stderr = output.err.decode(errors="replace").strip()
    faults = [line for line in stderr.splitlines() if line.startswith(("fatal:", "error:"))]
    # What follows the reason only says which part of git gave up.
    reasons = [line for line in faults if "index-pack failed" not in line and "fsck error in" not in line]
    fault = (reasons or faults)[-1] if faults else stderr or f"code {output.code}"
    if fault.endswith(":"):
        # Git lists files below such a line, each after a tab.
        listed = [line.strip() for line in stderr.partition(fault)[2].splitlines() if line.startswith("\t")]
        more = f" and {len(listed) - 5} more" if len(listed) > 5 else ""
        fault = f"{fault} {', '.join(listed[:5])}{more}"
    what = f"`git {verb}` failed: {fault}"
    if _is_full(output):
        return StorageError(what, where=str(cwd), todo=_MAKE_ROOM)
    if "dubious ownership" in stderr:
        todo = f"if you trust it: `git config --global --add safe.directory {cwd}`"
        return UsageError("git does not trust this repository: it belongs to someone else", where=str(cwd), todo=todo)
    if output.code == 129:
        return UsageError(what, where=str(cwd), todo="install git 2.34 or newer, or use `--no-snapshots`")
    return GitError(what, where=str(cwd), stderr=stderr)


OWN_DIRECTORIES = (".ralph", ".aiwg/ralph", ".ralph-sessions")
"""Ralph's directories in a project."""

RALPH_IDENTITY = {
    "GIT_AUTHOR_NAME": "Ralph",
    "GIT_AUTHOR_EMAIL": "ralph@localhost",
    "GIT_COMMITTER_NAME": "Ralph",
    "GIT_COMMITTER_EMAIL": "ralph@localhost",
}
"""The author and committer of snapshots, and of commits if git does not know the user."""

_SIGNING = 30.0
"""Seconds that a signature may take. A program that asks for a passphrase takes longer."""
_NO_REPOSITORY = ("not a git repository", "must be run in a work tree")


@dataclass(frozen=True)
class Repository:
    """A work tree and the repository that it belongs to."""

    top: Path
    git_dir: Path
    common: Path
    """The directory with refs, objects and `info/exclude`; the git directory itself except in a linked worktree."""
    private: bool = False
    """Whether Ralph made it because there was none."""

    @property
    def git(self) -> Git:
        """The git command on it, even if an agent has put another repository around or into it."""
        return Git(self.top, {"GIT_DIR": str(self.git_dir), "GIT_WORK_TREE": str(self.top)})


def find_repository(path: Path) -> Repository | None:
    """The repository around a directory, if there is one with a work tree."""
    try:
        found = Git(path).run("rev-parse", "--path-format=absolute", "--show-toplevel", "--git-dir", "--git-common-dir")
    except GitError as error:
        if any(reason in error.stderr for reason in _NO_REPOSITORY):
            return None
        raise
    top, git_dir, common = found.text.split("\n") if found.text.count("\n") == 2 else _ask_one_by_one(path)
    return Repository(Path(top), Path(git_dir), Path(common))


def identify_repository(repository: Repository) -> str:
    """What a repository and its copies have in common; empty if there is nothing yet.

    It is the first commit, which clones have too. A repository of Ralph's own has an id in a file.
    """
    if not repository.private:
        # Sorted, because histories that were joined have several first commits in no fixed order.
        return min(repository.git.run("rev-list", "--max-parents=0", "HEAD", ok=(0, 128)).text.split(), default="")
    file = repository.git_dir / "ralph-id"
    with disk(file):
        if not file.exists() and repository.git_dir.is_dir():
            file.write_text(os.urandom(16).hex())
        return file.read_text() if file.is_file() else ""


def _ask_one_by_one(path: Path) -> list[str]:
    """The same three paths, if one of them contains a line break."""
    what = ("--show-toplevel", "--git-dir", "--git-common-dir")
    return [
        Git(path).run("rev-parse", "--path-format=absolute", each).out.decode(errors="surrogateescape")[:-1]
        for each in what
    ]


def committer_identity(git: Git) -> dict[str, str]:
    """The committer of commits for the user: empty if git knows the user, else Ralph."""
    anonymous = git.with_options("user.useConfigOnly=true").run("var", "GIT_COMMITTER_IDENT", ok=(0, 128)).code
    return RALPH_IDENTITY if anonymous else {}


def wants_signatures(git: Git) -> bool:
    """Whether the user's own configuration asks for signed commits."""
    listed = git.run("config", "--show-scope", "--bool", "--get-all", "commit.gpgSign", ok=(0, 1)).text.split("\n")
    wanted = False
    for line in listed:
        scope, _, value = line.partition("\t")
        # Our own `-c commit.gpgSign=false` is of the scope `command`.
        if scope != "command":
            wanted = value == "true"
    return wanted


def commit_tree(git: Git, tree: str, parents: Sequence[str], message: str) -> str:
    """Commit a tree for the user, signed if they want that and the program for it needs no answer."""
    arguments = ["commit-tree", tree]
    for parent in parents:
        arguments += ["-p", parent]
    own, text = git.with_options(**committer_identity(git)), message.encode(errors="replace")
    if wants_signatures(git):
        try:
            return own.run(*arguments, "-S", stdin=text, timeout=_SIGNING).text
        except RalphError:
            pass  # landing refuses commits that are not signed
    return own.run(*arguments, stdin=text).text


def list_own_paths(top: Path, *projects: Path) -> tuple[str, ...]:
    """Ralph's directories in some projects, relative to the top of the work tree."""
    found: set[str] = set()
    for project in projects:
        if project.is_relative_to(top):
            found.update((project.relative_to(top) / name).as_posix() for name in OWN_DIRECTORIES)
    return tuple(sorted(found))


def exclude_paths(common: Path, paths: tuple[str, ...]) -> None:
    """Add paths to `info/exclude`, once, so that the user's `git status` does not list them."""
    file = common / "info" / "exclude"
    with disk(file):
        old = file.read_bytes() if file.exists() else b""
        patterns = [os.fsencode("/" + re.sub(r"([\\*?\[])", r"\\\1", path) + "/") for path in paths]
        new = [pattern + b"\n" for pattern in patterns if pattern not in old.splitlines()]
        if not new:
            return
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("ab") as stream:
            stream.write((b"\n" if old and not old.endswith(b"\n") else b"") + b"".join(new))


def printable(path: str) -> str:
    """A file name with escapes for what cannot be printed."""
    return "".join(part if part.isprintable() else repr(part.encode("utf-8", "surrogateescape"))[2:-1] for part in path)
