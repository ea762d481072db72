"""The clean room: the last verdict is reached in a checkout that no agent could write to.

When the checks pass in the workspace, they run again on what git would carry of it: without files that git ignores, caches and
processes of the agent. The checkout is mounted at the path of the work tree, because installed packages and settings name that
path. Without bubblewrap it is a copy at another path.

Two trees are tried. The first is the tree as it is. The second has the judge files as they were before the run, so that new
tests prove nothing and weakened ones change nothing; `counterproof` decides when and with which files. Before the first turn the
room is rehearsed on the unchanged tree. If it does not reproduce the baseline, something is missing in it, and what fails in it
later says nothing about the work.
"""

import asyncio
import os
import shlex
import shutil
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from types import MappingProxyType

from ralph.core.check_output import find_error_lines
from ralph.core.checks import (
    Check,
    CheckResult,
    CheckStatus,
    Evidence,
    Finding,
    Grade,
    Rehearsal,
    Rule,
    Verdict,
)
from ralph.core.text import count, regex
from ralph.git.command import list_own_paths
from ralph.git.snapshots import Snapshots
from ralph.supervisor.sandbox import Mount, probe
from ralph.verify.ignored_files import KeptFiles, copy_entry, fingerprint_all, list_ignored, read_record, write_record
from ralph.verify.runner import CheckRunner
from ralph.workspace.isolation import Isolation, RoomTree

MAX_FILES = 200_000
"""Files of a tree that is copied."""
_MAX_NAMED = 3
_MAX_QUOTED = 400
_MAX_READ = 50
_NAMES_ERROR = regex(r"^E\s|\w*(?:Error|Exception)\b|\berror\b.*:")
_HOME = "clean-room"


@dataclass(frozen=True)
class CleanRoomSettings:
    """What the user says about clean rooms."""

    is_on: bool = True
    setup: tuple[str, ...] = ()
    """Commands that make a fresh checkout ready for the checks."""
    setup_seconds: float = 1800.0
    keep: tuple[str, ...] = ()
    """Ignored files that the room has as they were before the run, even if the run changed them."""
    services: tuple[str, ...] = ()
    """Commands that run beside each check in the room."""


def find_ignored_record(run_dir: Path, worktree: str = "") -> Path:
    """The record of the ignored files of a worktree, or of the run's own tree."""
    name = worktree.replace("/", "-")
    return run_dir / (f"ignored-{name}.json" if name else "ignored.json")


class RoomError(Exception):
    """The clean room could not be made. The text is one sentence for the user."""


@dataclass
class CleanRoom:
    """Runs the checks of a run in clean checkouts."""

    runner: CheckRunner
    snapshots: Snapshots
    isolation: Isolation
    settings: CleanRoomSettings
    rehearsal: Rehearsal = field(default_factory=Rehearsal)
    """What the clean room did with the tree before the first turn."""
    is_mounted: bool = field(default_factory=lambda: probe().works)
    """Whether checkouts are mounted at the path of the work tree. Otherwise they are copies at another path."""
    worktree: str = ""
    """The name of the worktree whose work it confirms; empty for the run's own tree."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while a checkout exists. All rooms of a run use the same directories."""

    @property
    def _home(self) -> Path:
        return self.runner.run_dir / _HOME

    @property
    def _record_path(self) -> Path:
        return find_ignored_record(self.runner.run_dir, self.worktree)

    @property
    def _copies(self) -> Path:
        """The files that the user wants to keep, as they were before the run."""
        return self._record_path.with_suffix(".kept")

    @property
    def _own_paths(self) -> tuple[str, ...]:
        """Ralph's own directories, relative to the top of the work tree."""
        return list_own_paths(self.snapshots.repository.top, self.isolation.root, self.runner.workspace)

    async def rehearse(self, baseline: Verdict, checks: Sequence[Check]) -> Rehearsal:
        """Run the checks in a clean checkout of the tree before the first turn, and compare them with the baseline."""
        await asyncio.to_thread(self.record_ignored)
        self.rehearsal = Rehearsal(await self._try_baseline(baseline, checks))
        if self.rehearsal.problem and self.settings.setup:
            without_setup, self.rehearsal = self.rehearsal, Rehearsal(needs_setup=True)
            problem = await self._try_baseline(baseline, checks)
            self.rehearsal = replace(without_setup, problem=problem) if problem else self.rehearsal
        return self.rehearsal

    async def _try_baseline(self, baseline: Verdict, checks: Sequence[Check]) -> str:
        """How the room differs from the baseline; empty if it does not."""
        try:
            verdict = await self.run("rehearsal", checks, baseline.snapshot, is_rehearsal=True)
        except RoomError as error:
            return str(error)
        return _compare_with_baseline(baseline, verdict)

    def record_ignored(self) -> None:
        """Remember, once and before the first turn, what the files are that git ignores."""
        if not self._record_path.exists():
            self._copy_kept_files()
            write_record(self._record_path, self._fingerprint_ignored())

    def _copy_kept_files(self) -> None:
        """Copy the files that the user wants to keep, before an agent can change them."""
        top = self.snapshots.repository.top
        shutil.rmtree(self._copies, ignore_errors=True)
        for name in self.settings.keep:
            if os.path.lexists(top / name):
                copy_entry(top / name, self._copies / name)

    def _fingerprint_ignored(self) -> dict[str, str]:
        repository = self.snapshots.repository
        return fingerprint_all(repository.top, list_ignored(repository, self._own_paths))

    async def confirm(self, verdict: Verdict, checks: Sequence[Check], *, has_changes: bool) -> Verdict:
        """A passing verdict with its evidence. If the checks fail in the room, a finding says so."""
        latest = self.snapshots.latest()
        if latest is None:
            return verdict
        if not self.settings.is_on:
            reason = "You switched the clean room off. The checks pass in the workspace."
            return replace(verdict, evidence=Evidence(Grade.ACCEPTED, reason))
        try:
            inside = await self.run("clean-room", checks, latest)
        except RoomError as error:
            return _with_finding(verdict, Evidence(Grade.UNPROVEN, f"The clean room could not be created: {error}"))
        compared = "All checks ran again in a clean checkout, without the files that git ignores and the run changed."
        if not inside.not_passed:
            evidence = Evidence(Grade.PROVEN, "The checks also pass in a clean checkout.", compared)
            return replace(verdict, evidence=evidence)
        evidence = self._explain_failure(inside, compared, has_changes=has_changes)
        if not has_changes:
            return replace(verdict, evidence=evidence)
        return _with_finding(verdict, evidence, inside.not_passed[0])

    def _explain_failure(self, inside: Verdict, compared: str, *, has_changes: bool) -> Evidence:
        """Why the work is disproven or unproven if the checks pass in the workspace and fail in the room."""
        failed = inside.not_passed[0]
        what = f"`{failed.command or failed.title}` passes here and fails in a clean checkout: {failed.reason}."
        left_out = self._compare_ignored()
        if not has_changes:
            reason = f"{what} The run changed no file that git carries, so a clean checkout cannot confirm its work."
            return Evidence(Grade.UNPROVEN, reason, compared)
        if self.rehearsal.problem:
            reason = f"{what} The clean checkout also differed before the run: {self.rehearsal.problem}"
            return Evidence(Grade.UNPROVEN, reason, compared)
        if left_out.changed:
            names = _name_some(left_out.changed)
            reason = (
                f"{what} The checkout has no {names}, which git ignores and the run changed. If the checks need it, say how to "
                "make it, `clean_room: {setup: [...]}` in ralph.yml, or keep it as it was: `clean_room: {keep: [...]}`."
            )
            return Evidence(Grade.UNPROVEN, reason, compared)
        if left_out.added:
            what = f"{what} The run made {_name_some(left_out.added)}, which git ignores and a checkout does not have."
        return Evidence(Grade.DISPROVEN, f"{what} Make it pass with what git carries.", compared)

    async def run(
        self,
        key: str,
        checks: Sequence[Check],
        tree: str,
        *,
        back: Collection[str] = (),
        base: str = "",
        texts: Mapping[str, str] = MappingProxyType({}),
        is_rehearsal: bool = False,
    ) -> Verdict:
        """Run the checks in a clean checkout of a snapshot; raises RoomError.

        The files in `back` are as in the snapshot `base`, or absent as there. `texts` are the contents of further files.
        """
        async with self.lock, self._open(tree, back, base, texts, is_rehearsal=is_rehearsal) as runner:
            changed = self._compare_ignored().changed
            if self.rehearsal.needs_setup or changed:
                paths = set(self.snapshots.paths(tree))
                await self._set_up(runner, key, self.settings.setup or find_setup(changed, paths))
            return await self._run_beside_services(runner, key, checks)

    async def _run_beside_services(self, runner: CheckRunner, key: str, checks: Sequence[Check]) -> Verdict:
        """Run the checks, each beside the services that it needs."""
        services = self.settings.services
        if not services:
            return await runner.run(key, checks)
        started = [replace(check, command=_start_services(services, check.command)) for check in checks]
        verdict = await runner.run(key, started)
        results = [
            replace(result, title=check.title, command=check.command)
            for check, result in zip(checks, verdict.results, strict=True)
        ]
        return replace(verdict, results=tuple(results))

    async def _set_up(self, runner: CheckRunner, key: str, commands: Sequence[str]) -> None:
        """Make a checkout ready for the checks; raises RoomError."""
        checks = [Check(command, timeout=self.settings.setup_seconds) for command in commands]
        if not checks:
            return
        verdict = await runner.run(f"{key}-setup", checks)
        if verdict.not_passed:
            bad = verdict.not_passed[0]
            raise RoomError(f"the setup command `{bad.command}` failed there: {bad.reason}")

    @asynccontextmanager
    async def _open(
        self, tree: str, back: Collection[str], base: str, texts: Mapping[str, str], *, is_rehearsal: bool
    ) -> AsyncIterator[CheckRunner]:
        await asyncio.to_thread(self._remove_tree)
        try:
            room = await asyncio.to_thread(self._make_tree, tree, back, base, is_rehearsal)
            for path, text in texts.items():
                _write_inside(room.tree, path, text)
            yield self._make_runner(room, is_rehearsal=is_rehearsal)
        finally:
            await asyncio.to_thread(self._remove_tree)

    def _make_runner(self, room: RoomTree, *, is_rehearsal: bool) -> CheckRunner:
        top = self.snapshots.repository.top
        inside = self.runner.workspace.resolve().relative_to(top.resolve())
        environment = _make_environment(self.runner.environment, room.bytecode, is_rehearsal=is_rehearsal)
        if not self.is_mounted:
            return replace(self.runner, workspace=room.tree / inside, environment=environment)
        return replace(
            self.runner,
            environment=environment,
            files=room.tree / inside,
            isolate=lambda job: self.isolation.isolate_room(job, room),
        )

    def _make_tree(self, tree: str, back: Collection[str], base: str, is_rehearsal: bool) -> RoomTree:
        """Write the files of a snapshot, and what git ignores and is as it was before the run."""
        top = self.snapshots.repository.top
        paths = set(self.snapshots.paths(tree))
        if len(paths) > MAX_FILES:
            raise RoomError(f"the tree has more than {MAX_FILES} files")
        self._home.mkdir(parents=True, exist_ok=True, mode=0o700)
        restored = set(self.snapshots.paths(base)) & set(back) if back else set()
        self.snapshots.write_files(tree, _without_conflicts(paths - set(back), restored), self._home)
        if restored:
            self.snapshots.write_files(base, restored, self._home)
        place = self._home / "tree"
        place.mkdir(exist_ok=True)
        (place / self.runner.workspace.resolve().relative_to(top.resolve())).mkdir(parents=True, exist_ok=True)
        kept = self._compare_ignored()
        mounts: list[Mount] = []
        if self.is_mounted:
            mounts = kept.mount(top, place)
        else:
            kept.link(top, place)
        for name in self.settings.keep:
            if self.settings.is_on and os.path.lexists(self._copies / name) and not os.path.lexists(place / name):
                copy_entry(self._copies / name, place / name)
        bytecode = self._home / "bytecode"
        bytecode.mkdir(exist_ok=True)
        _forget_bytecode(bytecode / top.relative_to(top.anchor), kept.kept)
        return RoomTree(tree=place, kept=tuple(mounts), bytecode=bytecode, is_rehearsal=is_rehearsal)

    def _compare_ignored(self) -> KeptFiles:
        """The ignored files that are as they were before the run. Of those that the user wants to keep, the room has copies."""
        before = read_record(self._record_path) if self.settings.is_on else None
        if before is None:
            # In the worktree of a task, which Ralph set up itself, nothing was recorded. All that is there is used.
            return KeptFiles(tuple(self._fingerprint_ignored()), (), ())
        found = KeptFiles.compare(self.snapshots.repository, before, self._own_paths)
        return replace(found, changed=tuple(name for name in found.changed if name not in self.settings.keep))

    def _remove_tree(self) -> None:
        shutil.rmtree(self._home / "tree", ignore_errors=True)


def _start_services(services: Sequence[str], command: str) -> str:
    """A shell command that runs beside services. They end with it, and their output is not part of its result."""
    started = "".join(f"{{ {service}\n}} </dev/null >/dev/null 2>&1 &\n" for service in services)
    return f"{started}{command}"


def _without_conflicts(paths: Collection[str], restored: Collection[str]) -> set[str]:
    """The paths that can be beside the restored ones: what is a directory there cannot be a link or a file, nor the reverse."""
    directories = {parent for path in restored for parent in _list_parents(path)}
    return {
        path
        for path in paths
        if path not in directories and path not in restored and not any(one in restored for one in _list_parents(path))
    }


def _list_parents(path: str) -> list[str]:
    return [parent.as_posix() for parent in PurePosixPath(path).parents][:-1]


def _write_inside(tree: Path, path: str, text: str) -> None:
    """Write a file of a checkout; raises RoomError if its path leads out of it."""
    place = tree / path
    # The tree may hold links that an agent made, so the directories that exist have to be resolved first.
    if Path(path).is_absolute() or ".." in Path(path).parts or place.is_symlink():
        raise RoomError(f"{path} is not a path inside the project")
    if not place.parent.resolve().is_relative_to(tree.resolve()):
        raise RoomError(f"{path} leads out of the project")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text, encoding="utf-8")


_INSTALLERS = {
    "node_modules": {
        "package-lock.json": "npm ci",
        "npm-shrinkwrap.json": "npm ci",
        "pnpm-lock.yaml": "pnpm install --frozen-lockfile",
        "yarn.lock": "yarn install --frozen-lockfile",
    },
    "venv": {
        "uv.lock": "uv sync --frozen",
        "poetry.lock": "poetry install",
        "requirements-dev.txt": "python3 -m venv {0} && {0}/bin/pip install -q -r requirements-dev.txt",
        "requirements.txt": "python3 -m venv {0} && {0}/bin/pip install -q -r requirements.txt",
    },
}
"""How packages are installed, by the name of their directory and the file that lists them."""


def find_setup(left_out: Sequence[str], paths: Collection[str]) -> list[str]:
    """The commands that install the packages again that a run changed, going by the lock files of a tree."""
    commands = []
    for entry in left_out:
        directory, _, name = entry.rpartition("/")
        prefix = f"{directory}/" if directory else ""
        for lock, command in _INSTALLERS.get(name.lstrip("."), {}).items():
            if f"{prefix}{lock}" in paths:
                enter = f"cd {shlex.quote(directory)} && " if directory else ""
                commands.append(enter + command.format(name))
                break
    return commands


def _make_environment(environment: Mapping[str, str], bytecode: Path, *, is_rehearsal: bool) -> dict[str, str]:
    """The environment of checks in the room: without results that an earlier run of the same program left behind."""
    made = {
        **environment,
        # Python trusts compiled files beside the source by time and size, so an agent could plant them.
        "PYTHONPYCACHEPREFIX": str(bytecode),
        # `go test` otherwise prints results that are stored in a cache.
        "GOFLAGS": f"{environment.get('GOFLAGS', '')} -count=1".strip(),
    }
    if is_rehearsal:
        # The rehearsal compiles the installed packages once, before any agent has run.
        made.pop("PYTHONDONTWRITEBYTECODE", None)
    return made


def _forget_bytecode(compiled: Path, kept: Collection[str]) -> None:
    """Remove what Python compiled of an earlier checkout, except for installed packages.

    Python compares only the size and the second of a source file, and two checkouts can be made within one second.
    """
    for directory, subdirectories, files in os.walk(compiled):
        inside = os.path.relpath(directory, compiled)
        subdirectories[:] = [name for name in subdirectories if os.path.normpath(f"{inside}/{name}") not in kept]
        for name in files:
            os.unlink(os.path.join(directory, name))


def _compare_with_baseline(baseline: Verdict, inside: Verdict) -> str:
    """How a rehearsal differs from the baseline, in one sentence; empty if it does not."""
    for before, now in zip(baseline.results, inside.results, strict=True):
        if before.flaky:
            continue
        # A runner that stops at the first failure may name fewer tests, but no others.
        fails_otherwise = bool(set(now.failing) - set(before.failing)) or bool(before.failing and not now.failing)
        if before.status is not now.status or fails_otherwise:
            return f"`{now.command or now.title}` {_describe(now)} there, and {_describe(before)} in the workspace."
    return ""


def _describe(result: CheckResult) -> str:
    """How a check ended, as a verb with its reason."""
    verbs = {CheckStatus.PASSED: "passed", CheckStatus.FAILED: "failed"}
    verb = verbs.get(result.status, "could not run")
    if not result.reason:
        return verb
    tests = f" ({_name_some(result.failing)})" if result.failing else ""
    return f"{verb} with {result.reason}{tests}" if verb == "failed" else f"{verb} ({result.reason})"


def _with_finding(verdict: Verdict, evidence: Evidence, failed: CheckResult | None = None) -> Verdict:
    """The verdict, which is no longer a success, and the finding that goes back to the agent."""
    sentence = evidence.reason
    if failed and (printed := _quote_errors(failed.output)):
        sentence = f"{sentence} It printed: {printed}"
    finding = Finding(Rule.CLEAN_ROOM, failed.title if failed else "clean room", 0, sentence)
    return replace(verdict, findings=(*verdict.findings, finding), evidence=evidence)


def _quote_errors(output: str) -> str:
    """The lines of an output that name an error, or else those that look like one, such as the frames of a traceback."""
    lines = find_error_lines(output, _MAX_READ)
    errors = [line for line in lines if _NAMES_ERROR.search(line)]
    return " / ".join((errors or lines)[:_MAX_NAMED])[:_MAX_QUOTED]


def _name_some(names: Sequence[str]) -> str:
    """A few names, and how many more there are."""
    more = len(names) - _MAX_NAMED
    listed = ", ".join(names[:_MAX_NAMED])
    return f"{listed} and {count(more, 'other')}" if more > 0 else listed
