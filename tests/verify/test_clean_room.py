"""The clean room: what it takes from the work tree, what it leaves out, and the grade that follows."""

import asyncio
import json
import os
import py_compile
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ralph.core.checks import Check, Evidence, Grade, Rule, Verdict
from ralph.git.snapshots import Snapshots
from ralph.supervisor.client import KeeperClient
from ralph.supervisor.sandbox import OFF, WRITE, Sandbox, probe
from ralph.verify.clean_room import CleanRoomSettings, find_setup
from ralph.verify.runner import CheckRunner, check_environment
from ralph.verify.verifier import VerdictSettings, Verifier, find_scripts
from ralph.workspace.isolation import Isolation

RUN = "261115-093000-k3x9"
WRONG, RIGHT = "def add(a, b):\n    return a - b\n", "def add(a, b):\n    return a + b\n"
TESTS = "from app import add\n\nassert add(1, 2) == 3, 'add is wrong'\nprint('1 passed')\n"
CHECK = Check("python3 check.py")
needs_bubblewrap = pytest.mark.skipif(not probe().works, reason="needs bubblewrap: `make sandbox` installs it")
Change = Callable[[Path], None]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    (root / ".gitignore").write_text("local.py\nvendor/\n.env\n__pycache__/\n")
    (root / "app.py").write_text(WRONG)
    (root / "check.py").write_text(TESTS)
    return root


def verify(
    root: Path,
    change: Change,
    *,
    check: Check = CHECK,
    settings: CleanRoomSettings | None = None,
    level: str = OFF,
) -> Verdict:
    """The last verdict on what a turn changed, after the baseline."""

    async def engine() -> Verdict:
        run_dir = root / ".ralph" / "runs" / RUN
        run_dir.mkdir(parents=True)
        snapshots = Snapshots.open(root, root, RUN, run_dir)
        keeper = KeeperClient(run_dir)
        isolation = Isolation(sandbox=Sandbox(level), root=root, run_dir=run_dir, top=root).move(root)
        runner = CheckRunner(run_dir, RUN, root, keeper, check_environment(os.environ), isolate=isolation.isolate_check)
        rules = VerdictSettings(clean_room=settings or CleanRoomSettings())
        verifier = Verifier(runner, snapshots, rules, isolation=isolation)
        try:
            snapshots.take("before")
            await verifier.run("baseline", [check])
            verifier.note_turn()
            change(root)
            snapshots.take("after")
            return await verifier.run("iteration-1", [check], is_final=True)
        finally:
            await keeper.close()

    return asyncio.run(asyncio.wait_for(engine(), 120))


def test_rooms_of_a_run_do_not_disturb_each_other(root: Path) -> None:
    """Tasks of a session are checked at the same time, and all their rooms are in the directory of the run."""

    async def engine() -> list[Verdict]:
        run_dir = root / ".ralph" / "runs" / RUN
        run_dir.mkdir(parents=True)
        snapshots = Snapshots.open(root, root, RUN, run_dir)
        snapshots.take("before")
        keeper = KeeperClient(run_dir)
        runner = CheckRunner(run_dir, RUN, root, keeper, check_environment(os.environ))
        first = Verifier(runner, snapshots, VerdictSettings())
        second = replace(first, worktree="task-2/1")
        try:
            checks = [[Check(f"sleep 0.3; test -f {name}")] for name in ("one.py", "two.py")]
            return await asyncio.gather(
                first.run_with_tests("first", checks[0], {"one.py": ""}),
                second.run_with_tests("second", checks[1], {"two.py": ""}),
            )
        finally:
            await keeper.close()

    verdicts = asyncio.run(asyncio.wait_for(engine(), 120))
    assert [one.results[0].reason for one in verdicts if not one.results[0].passed] == []


def fix(root: Path) -> None:
    (root / "app.py").write_text(RIGHT)


def fix_with_local_file(root: Path) -> None:
    (root / "local.py").write_text(RIGHT)
    (root / "app.py").write_text("from local import add\n")


def evidence_of(verdict: Verdict) -> Evidence:
    assert verdict.evidence is not None
    return verdict.evidence


@pytest.mark.more_are_slow(1)
@pytest.mark.parametrize("level", [OFF, pytest.param(WRITE, marks=needs_bubblewrap)])
def test_work_that_passes_in_a_clean_checkout_is_proven(root: Path, level: str) -> None:
    verdict = verify(root, fix, level=level)
    assert verdict.passed, verdict.findings
    assert evidence_of(verdict).grade is Grade.PROVEN


@pytest.mark.more_are_slow(1)
@pytest.mark.parametrize("level", [OFF, pytest.param(WRITE, marks=needs_bubblewrap)])
def test_work_that_needs_a_new_ignored_file_is_disproven(root: Path, level: str) -> None:
    verdict = verify(root, fix_with_local_file, level=level)
    assert not verdict.passed
    assert evidence_of(verdict).grade is Grade.DISPROVEN
    [finding] = verdict.blocking_findings
    assert finding.rule is Rule.CLEAN_ROOM
    assert "The run made local.py, which git ignores" in finding.sentence
    assert "No module named 'local'" in finding.sentence


def test_ignored_file_that_is_as_before_the_run_is_in_the_room(root: Path) -> None:
    (root / "local.py").write_text(RIGHT)
    assert verify(root, lambda root: (root / "app.py").write_text("from local import add\n") and None).passed


def test_ignored_file_that_the_run_changed_is_left_out(root: Path) -> None:
    (root / "local.py").write_text(WRONG)
    verdict = verify(root, fix_with_local_file)
    assert (verdict.passed, evidence_of(verdict).grade) == (False, Grade.UNPROVEN)
    assert "The checkout has no local.py, which git ignores and the run changed" in evidence_of(verdict).reason


def test_file_with_its_old_time_and_size_counts_as_changed(root: Path) -> None:
    """The time of a file can be set back. The time of the last change of its inode cannot."""
    local = root / "local.py"
    local.write_text(WRONG)
    before = local.stat()

    def set_time_back(root: Path) -> None:
        fix_with_local_file(root)
        os.utime(local, ns=(before.st_atime_ns, before.st_mtime_ns))

    assert not verify(root, set_time_back).passed


def test_setup_command_makes_what_was_left_out(root: Path) -> None:
    (root / "local.py").write_text(WRONG)
    (root / "make_local.py").write_text(f"open('local.py', 'w').write({RIGHT!r})\n")
    settings = CleanRoomSettings(setup=("python3 make_local.py",))
    verdict = verify(root, fix_with_local_file, settings=settings)
    assert verdict.passed, verdict.findings


def test_setup_command_that_fails_leaves_the_work_unproven(root: Path) -> None:
    (root / "local.py").write_text(WRONG)
    verdict = verify(root, fix_with_local_file, settings=CleanRoomSettings(setup=("exit 3",)))
    assert (verdict.passed, evidence_of(verdict).grade) == (False, Grade.UNPROVEN)
    assert "the setup command `exit 3` failed there: exit code 3" in evidence_of(verdict).reason


def test_setup_command_that_takes_too_long_leaves_the_work_unproven(root: Path) -> None:
    (root / "local.py").write_text(WRONG)
    settings = CleanRoomSettings(setup=("sleep 30",), setup_seconds=0.2)
    verdict = verify(root, fix_with_local_file, settings=settings)
    assert (verdict.passed, evidence_of(verdict).grade) == (False, Grade.UNPROVEN)
    assert "the setup command `sleep 30` failed there" in evidence_of(verdict).reason


@pytest.mark.parametrize("keep", [(), (".env",)])
def test_kept_file_is_as_it_was_before_the_run(root: Path, keep: tuple[str, ...]) -> None:
    (root / ".env").write_text("right\n")

    def change_both(root: Path) -> None:
        fix(root)
        (root / ".env").write_text("wrong\n")
        (root / "local.py").write_text("")

    # The run added local.py, which git ignores: it is here, and not in the room.
    check = Check("python3 check.py && { test -e local.py || grep -q right .env; }")
    verdict = verify(root, change_both, check=check, settings=CleanRoomSettings(keep=keep))
    assert verdict.passed is bool(keep), verdict.evidence


@pytest.mark.parametrize("services", [(), ('cd . && python3 -c \'import time; open("up", "w"); time.sleep(600)\'',)])
def test_service_runs_beside_each_check_of_the_room_and_ends_with_it(root: Path, services: tuple[str, ...]) -> None:
    (root / ".gitignore").write_text(".gitignore\nup\n__pycache__/\n")
    (root / "up").write_text("a service runs here\n")
    wait = "for n in 1 2 3 4 5 6 7 8 9 10; do test -e up && break; sleep 0.3; done; test -e up"

    def restart(root: Path) -> None:
        fix(root)
        (root / "up").write_text("it runs again\n")

    settings = CleanRoomSettings(services=services)
    verdict = verify(root, restart, check=Check(f"python3 check.py && {{ {wait}; }}"), settings=settings)
    assert verdict.passed is bool(services), verdict.evidence


def test_packages_are_installed_again_by_their_lock_file() -> None:
    paths = {"requirements.txt", "web/package-lock.json", "web/yarn.lock", "uv.lock"}
    commands = find_setup([".venv", "web/node_modules", "dist", "api/node_modules"], paths)
    assert commands == ["uv sync --frozen", "cd web && npm ci"]
    venv = "python3 -m venv .venv && .venv/bin/pip install -q -r requirements.txt"
    assert find_setup([".venv"], {"requirements.txt"}) == [venv]


@needs_bubblewrap
def test_checkout_has_the_path_of_the_work_tree(root: Path) -> None:
    check = Check(f"cd {root} && test -f {root}/app.py && python3 {root}/check.py")
    verdict = verify(root, fix_with_local_file, check=check)
    assert evidence_of(verdict).grade is Grade.DISPROVEN
    assert verify_again_is_clean(root)


def verify_again_is_clean(root: Path) -> bool:
    """Whether the work tree itself has no trace of the room."""
    return not (root / ".ralph" / "runs" / RUN / "clean-room" / "tree").exists()


def test_planted_bytecode_does_not_count(root: Path) -> None:
    """Python trusts a compiled file whose source has the recorded time and size."""

    def plant(root: Path) -> None:
        app = root / "app.py"
        app.write_text(RIGHT)
        py_compile.compile(str(app), str(root / "__pycache__" / f"app.{sys.implementation.cache_tag}.pyc"))
        state = app.stat()
        app.write_text(WRONG)
        os.utime(app, ns=(state.st_atime_ns, state.st_mtime_ns))

    verdict = verify(root, plant, check=Check(f"{sys.executable} check.py"))
    assert not verdict.passed
    assert verdict.results[0].passed, "the planted file is used in the work tree"


@needs_bubblewrap
def test_check_that_compiles_python_can_write_what_it_compiled(root: Path) -> None:
    (root / "app.py").write_text("def add(:\n")
    verdict = verify(root, fix, check=Check("python3 -m compileall -q ."), level=WRITE)
    assert verdict.passed, verdict.findings
    assert evidence_of(verdict).grade is Grade.PROVEN


def test_room_that_differs_from_the_start_cannot_disprove(root: Path) -> None:
    """The check asks whether it runs in the room, before the run as well."""
    check = Check('test -z "$PYTHONPYCACHEPREFIX" && python3 check.py')
    (root / "check.py").write_text(TESTS.replace("== 3", "in (-1, 3)"))
    verdict = verify(root, fix, check=check)
    assert (verdict.passed, evidence_of(verdict).grade) == (False, Grade.UNPROVEN)
    assert "The clean checkout also differed before the run" in evidence_of(verdict).reason


def test_changed_check_is_left_to_a_judge(root: Path) -> None:
    def weaken(root: Path) -> None:
        (root / "check.py").write_text(TESTS.replace("== 3", "== -1"))

    verdict = verify(root, weaken)
    assert (verdict.passed, verdict.awaits_judge) == (False, True)
    assert evidence_of(verdict).to_judge == ("check.py",)


def test_new_test_file_that_replaces_the_product_proves_nothing(root: Path) -> None:
    (root / "test_app.py").write_text("import app\n\ndef test_add():\n    assert app.add(1, 2) == 3\n")

    def patch_from_a_test(root: Path) -> None:
        (root / "app.py").write_text("adds = [lambda a, b: a - b]\n\ndef add(a, b):\n    return adds[-1](a, b)\n")
        hook = "import app\n\napp.adds.append(lambda a, b: a + b)\n\ndef test_more():\n    assert app.add(2, 2) == 4\n"
        (root / "test_a_first.py").write_text(hook)

    verdict = verify(root, patch_from_a_test, check=Check("python3 -m pytest -q"))
    assert (verdict.passed, verdict.awaits_judge) == (False, True)
    assert evidence_of(verdict).to_judge == ("test_a_first.py",)
    assert "test_app.py" not in evidence_of(verdict).restored


def test_new_test_file_beside_right_work_needs_no_judge(root: Path) -> None:
    (root / "test_app.py").write_text("import app\n\ndef test_add():\n    assert app.add(1, 2) == 3\n")

    def fix_with_a_test(root: Path) -> None:
        fix(root)
        (root / "test_more.py").write_text("import app\n\ndef test_more():\n    assert app.add(2, 2) == 4\n")

    verdict = verify(root, fix_with_a_test, check=Check("python3 -m pytest -q"))
    assert (verdict.passed, evidence_of(verdict).grade) == (True, Grade.PROVEN)
    assert evidence_of(verdict).restored == ("test_more.py",)


RUN_SCRIPT = Check(
    """sh -c "$(python3 -c 'import json; print(json.load(open("package.json"))["scripts"]["test"])')" """
)
"""What `npm test` does, without npm."""


def write_package(root: Path, script: str, **dependencies: str) -> None:
    text = json.dumps({"name": "shop", "scripts": {"test": script}, "dependencies": dependencies})
    (root / "package.json").write_text(text)


def test_only_the_scripts_of_package_json_are_restored(root: Path) -> None:
    write_package(root, "python3 check.py")

    def fix_with_a_dependency(root: Path) -> None:
        # The work needs the new dependency, so it fails if all of package.json is put back.
        (root / "app.py").write_text(f"assert 'right' in open('package.json').read()\n{RIGHT}")
        write_package(root, "python3 check.py && echo done", right="^1.0.0")

    verdict = verify(root, fix_with_a_dependency, check=RUN_SCRIPT)
    assert (verdict.passed, evidence_of(verdict).grade) == (True, Grade.PROVEN)
    assert evidence_of(verdict).restored == ("package.json",)


def test_script_that_passes_everything_proves_nothing(root: Path) -> None:
    write_package(root, "python3 check.py")
    verdict = verify(root, lambda root: write_package(root, "echo 1 passed"), check=RUN_SCRIPT)
    assert not verdict.passed


@pytest.mark.parametrize(
    ("command", "scripts"),
    [
        ("./check.sh", ["./check.sh"]),
        ("cd app && bash -e run/check.sh --all", ["app/run/check.sh"]),
        ("X=1 python3 -B check.py; node test.js", ["check.py", "test.js"]),
        ("python3 -m pytest tests", []),
        ("python3 -c 'import app'", []),
        ("python3 app.py | grep -q hello", []),
        ("mypy app.py", []),
        ("sh -c 'exit 1'", []),
        ("echo 'unclosed", []),
    ],
)
def test_scripts_that_a_check_executes_are_judge_files(command: str, scripts: list[str]) -> None:
    assert find_scripts(command) == scripts


def test_success_without_a_clean_room_is_accepted_by_the_user(root: Path) -> None:
    verdict = verify(root, fix_with_local_file, settings=replace(CleanRoomSettings(), is_on=False))
    assert (verdict.passed, evidence_of(verdict).grade) == (True, Grade.ACCEPTED)


def test_directory_that_became_a_link_can_be_put_back(root: Path) -> None:
    (root / "tests").mkdir()
    (root / "tests" / "test_app.py").write_text(TESTS)
    (root / "app.py").write_text(WRONG)

    def move_and_weaken(root: Path) -> None:
        (root / "tests").rename(root / "other")
        (root / "tests").symlink_to("other")
        (root / "other" / "test_app.py").write_text("print('1 passed')\n")

    verdict = verify(root, move_and_weaken, check=Check("PYTHONPATH=. python3 tests/test_app.py"))
    assert not verdict.passed


def test_file_that_became_a_directory_can_be_put_back(root: Path) -> None:
    (root / "tests").write_text(TESTS)

    def split(root: Path) -> None:
        fix(root)
        (root / "tests").unlink()
        (root / "tests").mkdir()
        (root / "tests" / "test_app.py").write_text("print('1 passed')\n")

    assert not verify(root, split).not_passed
