"""Snapshots, undo and restore in real repositories, with the trees that break simple ones."""

import errno
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from kills import KilledProgram
from repos import REAL_GIT, REF, RUN, git, held, latest_snapshot, opened, start_run_here, tree, write

from ralph.core.errors import RalphError, StorageError, UsageError
from ralph.core.turns import Change
from ralph.git import tree_index
from ralph.git.command import Git, GitError, disk
from ralph.git.snapshots import Snapshots


@pytest.fixture
def mortal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A git that file permissions hold for, though the tests may run as root."""
    if os.geteuid() != 0:
        return
    if not shutil.which("setpriv"):
        pytest.skip("root reads everything, and setpriv is not there")
    caps = "-dac_override,-dac_read_search"
    wrap_git(tmp_path, monkeypatch, f'exec setpriv --bounding-set={caps} {REAL_GIT} "$@"')


def wrap_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    bin_dir = tmp_path / "bin"
    bin_dir.mkdir(exist_ok=True)
    (bin_dir / "git").write_text(f"#!/bin/sh\n{script}\n")
    (bin_dir / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin_dir}:{os.environ['PATH']}")


def test_a_changed_tree_is_counted_and_an_unchanged_one_adds_nothing(repo: Path) -> None:
    snapshots = opened(repo)
    base = snapshots.take("base")
    assert base == Change(base.snapshot)
    assert snapshots.take("again") == base
    write(repo, {"a.txt": "one\n2\n3\n", "new.bin": b"\0\1", "src/c.py": "c\n"})
    first = snapshots.take("turn 1")
    assert (first.files, first.added, first.removed) == (3, 3, 1)
    assert snapshots.take("again") == Change(first.snapshot)
    assert (snapshots.base(), snapshots.latest()) == (base.snapshot, first.snapshot)
    assert [(e.number, e.sha, e.label, e.restores) for e in snapshots.log()] == [
        (0, base.snapshot, "base", None),
        (1, first.snapshot, "turn 1", None),
    ]
    assert latest_snapshot(repo) == first.snapshot


def test_a_new_process_continues_with_the_chain(repo: Path) -> None:
    base = opened(repo).take("base")
    assert opened(repo).take("resumed") == base
    write(repo, {"a.txt": "changed\n"})
    assert opened(repo).take("turn 1").files == 1
    again = opened(repo)
    assert (again.base(), len(again.log())) == (base.snapshot, 2)


def test_the_users_index_head_branches_stash_and_reflogs_are_untouched(repo: Path) -> None:
    hook = repo / ".git" / "hooks"
    for name in ("post-index-change", "reference-transaction", "pre-commit", "post-checkout"):
        write(hook, {name: "#!/bin/sh\ntouch ran\n"})
        (hook / name).chmod(0o755)
    git(repo, "config", "commit.gpgSign", "true")
    git(repo, "config", "core.logAllRefUpdates", "always")
    git(repo, "config", "core.hooksPath", str(repo / "nowhere"))
    write(repo, {"a.txt": "staged\n"})
    git(repo, "add", "a.txt")
    write(repo, {"a.txt": "unstaged\n"})
    git(repo, "config", "--unset", "core.hooksPath")
    before = {p: p.read_bytes() for p in (repo / ".git").rglob("*") if p.is_file() and "objects" not in p.parts}

    snapshots = opened(repo)
    snapshots.take("base")
    write(repo, {"a.txt": "turn\n", "new": "new\n"})
    snapshots.take("turn 1")
    snapshots.undo()
    after = {p: p.read_bytes() for p in (repo / ".git").rglob("*") if p.is_file() and "objects" not in p.parts}
    changed = {str(p.relative_to(repo / ".git")) for p in before.keys() | after.keys() if before.get(p) != after.get(p)}
    assert changed == {"info/exclude", REF}
    assert (repo / "a.txt").read_text() == "unstaged\n"
    assert git(repo, "status", "--porcelain") == "MM a.txt"
    assert git(repo, "log", "-1", "--format=%an <%ae> %cn", latest_snapshot(repo)) == "Ralph <ralph@localhost> Ralph"


def test_identity_and_paths_of_a_surrounding_git_are_not_inherited(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "other-index"))
    monkeypatch.setenv("GIT_AUTHOR_NAME", "Somebody")
    sha = opened(repo).take("base").snapshot
    monkeypatch.delenv("GIT_DIR")
    monkeypatch.delenv("GIT_INDEX_FILE")
    assert git(repo, "log", "-1", "--format=%an", sha) == "Ralph"
    assert not (tmp_path / "other-index").exists()


def test_ralphs_directories_are_excluded_once_after_what_the_user_wrote(repo: Path) -> None:
    exclude = repo / ".git" / "info" / "exclude"
    exclude.write_bytes(b"# mine\n*.tmp")
    opened(repo)
    opened(repo)
    assert exclude.read_bytes() == b"# mine\n*.tmp\n/.aiwg/ralph/\n/.ralph/\n/.ralph-sessions/\n"
    exclude.unlink()
    exclude.parent.rmdir()
    opened(repo)
    assert exclude.read_bytes() == b"/.aiwg/ralph/\n/.ralph/\n/.ralph-sessions/\n"


def test_ralphs_directories_stay_out_even_when_tracked_or_unignored(repo: Path) -> None:
    write(repo, {".ralph/state": "1", ".aiwg/ralph/x": "1", "lib/.ralph/theirs": "1", ".gitignore": "!.ralph/\n"})
    git(repo, "add", "-A", "-f")
    git(repo, "commit", "-q", "-m", "tracked")
    snapshots = opened(repo)
    base = snapshots.take("base").snapshot
    assert held(repo, base) == {"a.txt", "src/b.py", ".gitignore", "lib/.ralph/theirs"}
    write(repo, {".ralph/state": "2", ".ralph/new": "2", "a.txt": "turn\n"})
    assert snapshots.take("turn 1").files == 1
    snapshots.undo()
    assert (repo / ".ralph/state").read_text() == "2"
    assert (repo / ".ralph/new").exists()


def test_an_unborn_head_and_a_detached_one(tmp_path: Path, repo: Path) -> None:
    unborn = tmp_path / "unborn"
    unborn.mkdir()
    git(unborn, "init", "-q")
    snapshots = opened(unborn)
    base = snapshots.take("base")
    assert held(unborn, base.snapshot) == set()
    assert snapshots.take("again") == base
    write(unborn, {"x": "x"})
    assert snapshots.take("turn 1").files == 1
    snapshots.undo()
    assert tree(unborn) == {}

    git(repo, "checkout", "-q", "--detach")
    head = git(repo, "rev-parse", "HEAD")
    opened(repo).take("base")
    assert git(repo, "rev-parse", "HEAD") == head


def test_a_subdirectory_snapshots_the_whole_work_tree(repo: Path) -> None:
    sub = repo / "packages" / "odd [name]"
    write(sub, {"main.py": "1\n"})
    snapshots = Snapshots.open(sub, sub, RUN, sub / ".ralph" / "runs" / RUN)
    base = snapshots.take("base").snapshot
    assert held(repo, base) == {"a.txt", "src/b.py", ".gitignore", "packages/odd [name]/main.py"}
    assert git(repo, "status", "--porcelain", "--untracked-files=all", "--", "*.ralph*") == ""
    write(repo, {"a.txt": "outside the workspace\n"})
    (sub / "main.py").unlink()
    assert snapshots.take("turn 1").files == 2
    snapshots.undo()
    assert (repo / "a.txt").read_text() == "one\ntwo\n"
    (sub / "main.py").unlink()
    write(sub, {"only.py": "x"})
    snapshots.take("turn 2")


def test_the_workspace_itself_is_never_deleted(repo: Path) -> None:
    sub = repo / "packages" / "new"
    sub.mkdir(parents=True)
    snapshots = opened(repo, sub)
    snapshots.take("base")
    write(sub, {"deep/down/main.py": "1\n"})
    snapshots.take("turn 1")
    snapshots.undo()
    assert sub.is_dir()
    assert list(sub.iterdir()) == []


def test_nested_repositories_do_not_stop_a_run(repo: Path) -> None:
    for name in ("empty", "full"):
        (repo / name).mkdir()
        git(repo / name, "init", "-q")
        write(repo / name, {"file": "mine\n"})
    git(repo / "full", "commit", "-q", "--allow-empty", "-m", "x")
    snapshots = opened(repo)
    base = snapshots.take("base")
    assert "empty/file" not in held(repo, base.snapshot)
    assert [notice.split()[0] for notice in snapshots.notices] == ["empty", "full"]
    write(repo, {"a.txt": "turn\n", "full/file": "turn\n"})
    git(repo / "full", "commit", "-q", "--allow-empty", "-m", "y")
    snapshots.take("turn 1")
    undone = snapshots.undo()
    assert undone.restored.notices == ("full is a separate git repository: not changed",)
    assert undone.restored.files == ("a.txt",)
    assert (repo / "full/file").read_text() == "turn\n"
    assert git(repo / "full", "log", "--format=%s") == "y\nx"


@pytest.mark.usefixtures("mortal")
def test_files_without_read_permission_are_left_out_with_a_notice(repo: Path) -> None:
    write(repo, {"secret": "s", "locked/in": "s", "other": "o\n"})
    (repo / "secret").chmod(0)
    (repo / "locked").chmod(0)
    try:
        snapshots = opened(repo)
        base = snapshots.take("base")
        assert held(repo, base.snapshot) == {"a.txt", "src/b.py", ".gitignore", "other"}
        assert {notice.split()[0] for notice in snapshots.notices} == {"secret", "locked"}
        write(repo, {"other": "changed\n"})
        assert snapshots.take("turn 1").files == 1
    finally:
        (repo / "locked").chmod(0o755)


@pytest.mark.usefixtures("mortal")
def test_an_undo_never_writes_over_a_file_that_could_not_be_read(repo: Path) -> None:
    snapshots = opened(repo)
    snapshots.take("base")
    write(repo, {"a.txt": "turn\n"})
    snapshots.take("turn 1")
    write(repo, {"a.txt": "mine, and unreadable\n"})
    (repo / "a.txt").chmod(0)
    with pytest.raises(UsageError, match="in no snapshot") as refused:
        snapshots.undo(force=True)
    assert refused.value.where == "a.txt"
    (repo / "a.txt").chmod(0o644)
    assert (repo / "a.txt").read_text() == "mine, and unreadable\n"


def test_files_of_gigabytes_are_left_out_with_a_notice(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_index, "_SLOW", 0.3)
    snapshots = opened(repo)
    snapshots.take("base")
    for name in ("disk image", "a.txt"):
        (repo / name).touch()
        os.truncate(repo / name, 40 << 30)
    write(repo, {"small.txt": "small\n"})
    assert snapshots.take("turn 1").names == ("a.txt", "small.txt")
    assert [notice.partition(":")[0] for notice in snapshots.notices] == [
        "a.txt is larger than 1 GiB",
        "disk image is larger than 1 GiB",
    ]
    with pytest.raises(UsageError, match="in no snapshot would be overwritten"):
        snapshots.undo()
    os.truncate(repo / "a.txt", 2)
    write(repo, {"disk image": "none\n"})
    assert snapshots.take("turn 2").names == ("a.txt", "disk image"), "small again"


@pytest.mark.usefixtures("mortal")
def test_an_object_database_that_cannot_be_written_is_an_error(repo: Path) -> None:
    snapshots = opened(repo)
    snapshots.take("base")
    write(repo, {"new": "content\n"})
    objects = repo / ".git" / "objects"
    for path in (objects, *objects.iterdir()):
        path.chmod(0o555)
    with pytest.raises(RalphError, match="object database"):
        snapshots.take("turn 1")
    for path in (objects, *objects.iterdir()):
        path.chmod(0o755)
    assert snapshots.take("turn 1").files == 1


def test_bytes_modes_links_and_names_come_back_exactly(repo: Path) -> None:
    odd = os.fsdecode(b'bad\xff\n"name" :(top)*[x]')
    long = "n" * 255
    write(repo, {odd: b"\xff\0", long: "long\n", "run.sh": "#!/bin/sh\n", "crlf": "a\r\nb\nc\r\n", " lead ": "x"})
    (repo / "run.sh").chmod(0o755)
    (repo / "link").symlink_to("a.txt")
    (repo / "dangling").symlink_to(os.fsdecode(b"no\xffwhere"))
    snapshots = opened(repo)
    snapshots.take("base")
    before = tree(repo)
    for name in (odd, long, "link", "dangling"):
        (repo / name).unlink()
    write(repo, {"run.sh": "changed\n", "crlf": "a\nb\nc\n", " lead ": "y", "link": "now a file\n"})
    (repo / "run.sh").chmod(0o644)
    snapshots.take("turn 1")
    undone = snapshots.undo()
    assert tree(repo) == before
    assert os.access(repo / "run.sh", os.X_OK)
    assert set(undone.restored.files) == {odd, long, "link", "dangling", "run.sh", "crlf", " lead "}


def test_a_mode_change_alone_is_a_change(repo: Path) -> None:
    snapshots = opened(repo)
    snapshots.take("base")
    (repo / "a.txt").chmod(0o755)
    assert snapshots.take("turn 1").files == 1
    snapshots.undo()
    assert not os.access(repo / "a.txt", os.X_OK)


@pytest.mark.parametrize("setting", ["true", "input", "false"])
def test_line_ends_come_back_whatever_autocrlf_says(repo: Path, setting: str) -> None:
    git(repo, "config", "core.autocrlf", setting)
    git(repo, "config", "core.safecrlf", "true")
    lines = {"lf": "a\nb\n", "crlf": "a\r\nb\r\n", "mixed": "a\r\nb\n"}
    write(repo, lines)
    if setting == "true":
        git(repo, "-c", "core.safecrlf=false", "add", "-A")
        git(repo, "commit", "-q", "-m", "normalised")
        git(repo, "rm", "-q", "--cached", "-r", ".")
        git(repo, "reset", "-q", "--hard")
        write(repo, lines)
    before = tree(repo)
    snapshots = opened(repo)
    snapshots.take("base")
    write(repo, dict.fromkeys((*lines, "a.txt"), "turn\n"))
    snapshots.take("turn 1")
    snapshots.undo()
    assert tree(repo) == before


def test_attributes_say_how_files_are_stored_and_come_back(repo: Path) -> None:
    git(repo, "config", "filter.upper.clean", "tr a-z A-Z")
    git(repo, "config", "filter.upper.smudge", "tr A-Z a-z")
    start_run_here(repo)
    write(repo, {".gitattributes": "*.up filter=upper\n*.bat text eol=crlf\n", "x.up": "abc\n", "x.bat": "a\r\n"})
    before = tree(repo)
    snapshots = opened(repo)
    base = snapshots.take("base").snapshot
    assert git(repo, "show", f"{base}:x.up") == "ABC"
    write(repo, {"x.up": "def\n", "x.bat": "b\r\n"})
    snapshots.take("turn 1")
    snapshots.undo()
    assert tree(repo) == before


def test_files_hidden_from_git_by_the_user_are_seen(repo: Path) -> None:
    git(repo, "update-index", "--assume-unchanged", "a.txt")
    git(repo, "update-index", "--skip-worktree", "src/b.py")
    write(repo, {"a.txt": "local\n", "src/b.py": "local\n"})
    snapshots = opened(repo)
    snapshots.take("base")
    write(repo, {"a.txt": "turn\n", "src/b.py": "turn\n"})
    assert snapshots.take("turn 1").files == 2
    snapshots.undo()
    assert (repo / "a.txt").read_text() == (repo / "src/b.py").read_text() == "local\n"
    assert git(repo, "ls-files", "-v", "a.txt", "src/b.py") == "h a.txt\nS src/b.py"


def hide_in_own_index(repo: Path, flag: str, name: str) -> None:
    index = next((repo / ".ralph").rglob("snapshot.index"))
    command = [REAL_GIT, "update-index", flag, name]
    subprocess.run(command, cwd=repo, env={**os.environ, "GIT_INDEX_FILE": str(index)}, check=True)


def test_an_agent_cannot_hide_changes_in_ralphs_own_index(repo: Path) -> None:
    snapshots = opened(repo)
    snapshots.take("first")
    hide_in_own_index(repo, "--assume-unchanged", "a.txt")
    write(repo, {"a.txt": "hidden\n"})
    assert snapshots.take("second").names == ("a.txt",)
    hide_in_own_index(repo, "--skip-worktree", "src/b.py")
    write(repo, {"src/b.py": "hidden\n"})
    assert opened(repo).take("third").names == ("src/b.py",), "a new engine looks, too"


def test_settings_of_the_repository_do_not_hide_a_change_of_the_same_size_and_time(repo: Path) -> None:
    git(repo, "config", "core.checkStat", "minimal")
    git(repo, "config", "core.trustctime", "false")
    snapshots, path = opened(repo), repo / "a.txt"
    # Git reads a file anyway that is as new as its index.
    os.utime(path, (1_700_000_000, 1_700_000_000))
    snapshots.take("first")
    before = path.stat()
    # Git compares whole seconds of the time that no program can set.
    time.sleep(1.01)
    path.write_bytes(b"x" * before.st_size)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert snapshots.take("second").names == ("a.txt",)


def test_a_sparse_checkout(repo: Path) -> None:
    git(repo, "sparse-checkout", "set", "src")
    write(repo, {"src/b.py": "local\n", "outside/new": "1\n"})
    snapshots = opened(repo)
    snapshots.take("base")
    write(repo, {"src/b.py": "turn\n", "outside/new": "2\n", "outside/newer": "2\n"})
    assert snapshots.take("turn 1").files == 3
    snapshots.undo()
    assert tree(repo) == {
        "a.txt": b"one\ntwo\n",
        ".gitignore": b"*.log\n",
        "src/b.py": b"local\n",
        "outside/new": b"1\n",
    }


def test_a_split_index_and_a_conflicted_one(repo: Path) -> None:
    git(repo, "checkout", "-q", "-b", "other")
    write(repo, {"a.txt": "theirs\n"})
    git(repo, "commit", "-q", "-a", "-m", "theirs")
    git(repo, "checkout", "-q", "main")
    write(repo, {"a.txt": "ours\n"})
    git(repo, "commit", "-q", "-a", "-m", "ours")
    with pytest.raises(subprocess.CalledProcessError):
        git(repo, "merge", "other")
    git(repo, "update-index", "--split-index")
    assert list((repo / ".git").glob("sharedindex.*"))
    assert "UU a.txt" in git(repo, "status", "--porcelain")
    assert "a.txt" in held(repo, opened(repo).take("base").snapshot)
    assert "UU a.txt" in git(repo, "status", "--porcelain")


def test_files_that_a_killed_snapshot_left_are_removed(repo: Path) -> None:
    home = repo / ".ralph" / "runs" / RUN
    opened(repo).take("base")
    (home / "snapshot.index.lock").write_bytes(b"half")
    (repo / ".git" / f"{REF}.lock").write_bytes(b"")
    write(repo, {"a.txt": "turn\n"})
    assert opened(repo).take("turn 1").files == 1
    (home / "snapshot.index").write_bytes(b"DIRC, and then the power went")
    write(repo, {"a.txt": "next\n"})
    assert opened(repo).take("turn 2").files == 1


def test_objects_that_were_cleaned_away_are_written_again(repo: Path) -> None:
    snapshots = opened(repo)
    snapshots.take("base")
    write(repo, {"new": "staged by a git that was killed before the commit\n"})
    env = {**os.environ, "GIT_INDEX_FILE": str(repo / ".ralph" / "runs" / RUN / "snapshot.index")}
    subprocess.run([REAL_GIT, "add", "new"], cwd=repo, env=env, check=True)
    git(repo, "prune", "--expire=now")
    assert opened(repo).take("turn 1").files == 1


def test_without_a_repository_a_private_one_serves(tmp_path: Path) -> None:
    root = tmp_path / "plain"
    write(root, {"a.txt": "one\n", "empty/.keep": ""})
    snapshots = opened(root)
    base = snapshots.take("base")
    assert not (root / ".git").exists()
    write(root, {"a.txt": "two\n", "b": "b\n"})
    change = snapshots.take("turn 1")
    assert (change.files, change.added, change.removed) == (2, 2, 1)
    git(root, "init", "-q")
    write(root, {".gitignore": "*.log\n"})
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "the agent made a repository")
    resumed = opened(root)
    assert resumed.base() == base.snapshot
    resumed.take("turn 2")
    resumed.undo()
    resumed.undo()
    assert tree(root) == {"a.txt": b"one\n", "empty/.keep": b""}
    resumed.drop()
    assert opened(root).log() == []


def test_a_workspace_that_the_repository_around_it_ignores_has_its_own(tmp_path: Path) -> None:
    home = tmp_path / "home"
    write(home, {".gitignore": "*\n", "project/x": "1\n", "private.txt": "not to be snapshotted\n"})
    git(home, "init", "-q")
    project = home / "project"
    base = opened(project).take("base").snapshot
    listed = git(project / ".ralph" / "git", "ls-tree", "-r", "--name-only", base)
    assert listed == "x"
    assert git(home, "for-each-ref") == ""


def test_labels_are_one_printable_line(repo: Path) -> None:
    snapshots = opened(repo)
    snapshots.take("  turn 1: fix\nRalph-Restores: 0000\x00\udcff é\n\n")
    write(repo, {"a.txt": "x"})
    snapshots.take("")
    first, second = snapshots.log()
    assert first.label == "turn 1: fix Ralph-Restores: 0000   é"
    assert first.restores is None
    assert second.label == "snapshot"


def test_diff_between_snapshots_and_with_the_tree_as_it_is(repo: Path) -> None:
    snapshots = opened(repo)
    base = snapshots.take("base").snapshot
    write(repo, {"a.txt": "one\n2\n"})
    first = snapshots.take("turn 1").snapshot
    write(repo, {"new": b"\xff\n", ".ralph/x": "never shown"})
    assert "+2" in snapshots.diff(base, first)
    assert "a.txt | 2 +-" in snapshots.diff(base, first, stat=True)
    now = snapshots.diff(first)
    assert "+\N{REPLACEMENT CHARACTER}" in now and "never shown" not in now
    assert snapshots.latest() == first
    assert len(snapshots.log()) == 2
    git(repo, "config", "diff.external", "false")
    git(repo, "config", "diff.noprefix", "true")
    assert "diff --git a/a.txt b/a.txt" in opened(repo).diff(base, first)


def test_changed_files_are_counted_one_by_one_and_moves_are_followed(repo: Path) -> None:
    odd = os.fsdecode(b'tab\t\xff\n"name')
    write(repo, {"old name.py": "".join(f"{n}\n" for n in range(50)), "gone": "a\nb\n", "bin": b"\0\1", odd: "x\n"})
    snapshots = opened(repo)
    assert snapshots.changed_files() == []
    base = snapshots.take("base").snapshot
    assert snapshots.changed_files() == []
    (repo / "old name.py").rename(repo / "new\nname.py")
    with (repo / "new\nname.py").open("a") as file:
        file.write("more\n")
    (repo / "gone").unlink()
    (repo / "a.txt").chmod(0o755)
    write(repo, {"bin": b"\0\2\n", odd: "y\nz\n"})
    last = snapshots.take("turn 1").snapshot
    assert {file.path: (file.added, file.removed) for file in snapshots.files(base, last)} == {
        "new\nname.py": (1, 0),
        "gone": (0, 2),
        "a.txt": (0, 0),
        "bin": (0, 0),
        odd: (2, 1),
    }
    assert snapshots.changed_files() == snapshots.files(base, last)
    assert snapshots.read_changed(base, last)[odd] == (b"x\n", b"y\nz\n")
    assert snapshots.read_changed(base, last)["new\nname.py"][0] is None


def test_an_agent_cannot_put_other_objects_in_the_place_of_a_snapshot(repo: Path) -> None:
    snapshots = opened(repo)
    base = snapshots.take("base").snapshot
    write(repo, {"a.txt": "weakened\n"})
    last = snapshots.take("turn 1").snapshot
    git(repo, "replace", "-f", base, last)
    assert list(opened(repo).read_changed(base, last)) == ["a.txt"]
    assert opened(repo).base() == base


def test_diff_does_not_disturb_a_run_in_progress(repo: Path) -> None:
    base = opened(repo).take("base").snapshot
    home = repo / ".ralph" / "runs" / RUN
    lock = home / "snapshot.index.lock"
    lock.write_bytes(b"held by the engine")
    index = (home / "snapshot.index").read_bytes()
    write(repo, {"a.txt": "x\n"})
    assert "+x" in opened(repo).diff(base)
    assert lock.exists()
    assert (home / "snapshot.index").read_bytes() == index
    assert sorted(os.listdir(home)) == ["snapshot.index", "snapshot.index.lock", "starts-programs.json"]


def steps(repo: Path, *labels: str) -> Snapshots:
    snapshots = opened(repo)
    snapshots.take("base")
    for label in labels:
        write(repo, {"a.txt": f"{label}\n", f"{label}.py": label})
        snapshots.take(label)
    return snapshots


def test_undo_goes_back_step_by_step_to_the_base(repo: Path) -> None:
    start = tree(repo)
    snapshots = steps(repo, "one", "two", "three")
    assert snapshots.undo().undone.label == "three"
    assert (repo / "a.txt").read_text() == "two\n"
    assert opened(repo).undo().undone.label == "two"
    undone = opened(repo).undo()
    assert (undone.undone.label, set(undone.restored.files)) == ("one", {"a.txt", "one.py"})
    assert tree(repo) == start
    with pytest.raises(UsageError, match="nothing to undo"):
        opened(repo).undo()
    entries = opened(repo).log()
    assert [entry.label for entry in entries[4:]] == ["undo: three", "undo: two", "undo: one"]
    assert [entry.restores for entry in entries[4:]] == [entries[2].sha, entries[1].sha, entries[0].sha]


def test_a_turn_after_an_undo_is_undone_first(repo: Path) -> None:
    snapshots = steps(repo, "one", "two")
    snapshots.undo()
    write(repo, {"a.txt": "three\n"})
    snapshots.take("three")
    assert [snapshots.undo().undone.label for _ in range(2)] == ["three", "one"]
    with pytest.raises(UsageError, match="nothing to undo"):
        snapshots.undo()


def test_undo_leaves_other_edits_of_the_user_alone(repo: Path) -> None:
    snapshots = steps(repo, "one", "two")
    write(repo, {"src/b.py": "mine\n", "notes.txt": "mine\n"})
    snapshots.undo()
    snapshots.undo()
    expected = {".gitignore": b"*.log\n", "a.txt": b"one\ntwo\n", "src/b.py": b"mine\n", "notes.txt": b"mine\n"}
    assert tree(repo) == expected
    assert [entry.label for entry in snapshots.log()][3:] == ["before undo", "undo: two", "undo: one"]


def test_undo_refuses_to_take_back_what_the_user_edited_since(repo: Path) -> None:
    snapshots = steps(repo, "one")
    write(repo, {"a.txt": "mine\n"})
    (repo / "one.py").unlink()
    with pytest.raises(UsageError, match="edited since") as refused:
        snapshots.undo()
    assert refused.value.where == "a.txt"
    assert "--force" in refused.value.todo
    assert (repo / "a.txt").read_text() == "mine\n"
    undone = snapshots.undo(force=True)
    assert (repo / "a.txt").read_text() == "one\ntwo\n"
    assert git(repo, "show", f"{undone.restored.before}:a.txt") == "mine"


def test_edit_that_already_undid_a_file_is_not_a_conflict(repo: Path) -> None:
    snapshots = steps(repo, "one")
    write(repo, {"a.txt": "one\ntwo\n"})
    assert snapshots.undo().restored.files == ("one.py",)
    with pytest.raises(UsageError, match="nothing to undo"):
        snapshots.undo()


def test_ignored_files_in_the_way_are_never_written_over(repo: Path) -> None:
    snapshots = opened(repo)
    snapshots.take("base")
    (repo / "a.txt").unlink()
    write(repo, {".gitignore": "*.log\na.txt\n"})
    snapshots.take("turn 1")
    write(repo, {"a.txt": "mine, ignored, in no snapshot\n"})
    for attempt in (lambda: snapshots.undo(force=True), lambda: snapshots.restore(str(snapshots.base()), "base")):
        with pytest.raises(UsageError, match="in no snapshot") as refused:
            attempt()
        assert refused.value.where == "a.txt"
    assert (repo / "a.txt").read_text() == "mine, ignored, in no snapshot\n"
    (repo / "a.txt").unlink()
    snapshots.undo()
    assert (repo / "a.txt").read_text() == "one\ntwo\n"


def test_files_that_a_turn_only_stopped_ignoring_stay(repo: Path) -> None:
    write(repo, {"precious.log": "mine since before the run\n"})
    snapshots = opened(repo)
    snapshots.take("base")
    write(repo, {".gitignore": "nothing\n", "made.py": "x"})
    assert "precious.log" in held(repo, snapshots.take("turn 1").snapshot)
    undone = snapshots.undo()
    assert (repo / "precious.log").exists()
    assert not (repo / "made.py").exists()
    assert undone.restored.notices == ("precious.log is ignored in the restored tree: not changed",)


def test_files_become_directories_and_links_and_back(repo: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    write(outside, {"z": "not ours\n"})
    write(repo, {"d/x": "x\n", "d/z": "z\n"})
    (repo / "l").symlink_to(outside)
    before = tree(repo)
    snapshots = opened(repo)
    snapshots.take("base")
    shutil.rmtree(repo / "d")
    (repo / "d").symlink_to(outside)
    (repo / "l").unlink()
    (repo / "a.txt").unlink()
    write(repo, {"l/z": "z\n", "a.txt/in": "in\n"})
    after = tree(repo)
    snapshots.take("turn 1")
    snapshots.undo()
    assert tree(repo) == before
    snapshots.restore(snapshots.log()[1].sha, "restore 1")
    assert tree(repo) == after
    assert (outside / "z").read_text() == "not ours\n"


def test_a_directory_that_the_user_filled_is_not_replaced_by_a_file(repo: Path) -> None:
    snapshots = opened(repo)
    snapshots.take("base")
    (repo / "a.txt").unlink()
    write(repo, {"a.txt/made": "by the turn\n"})
    snapshots.take("turn 1")
    write(repo, {"a.txt/mine": "mine\n", "a.txt/mine.log": "ignored\n"})
    with pytest.raises(UsageError, match="in no snapshot") as refused:
        snapshots.undo(force=True)
    assert refused.value.where == "a.txt/mine.log"
    (repo / "a.txt/mine.log").unlink()
    with pytest.raises(UsageError, match="edited since") as refused:
        snapshots.undo()
    assert refused.value.where == "a.txt/mine"
    undone = snapshots.undo(force=True)
    assert (repo / "a.txt").read_text() == "one\ntwo\n"
    assert "a.txt/mine" in held(repo, undone.restored.before)


def test_restore_makes_the_tree_equal_and_undo_takes_it_back(repo: Path) -> None:
    snapshots = steps(repo, "one", "two", "three")
    shas = [entry.sha for entry in snapshots.log()]
    write(repo, {"a.txt": "mine\n", "notes": "mine\n"})
    unchanged = (repo / "one.py").stat().st_mtime_ns
    restored = snapshots.restore(shas[1], "restore 1", force=True)
    assert set(tree(repo)) == {".gitignore", "a.txt", "src/b.py", "one.py"}
    assert (repo / "one.py").stat().st_mtime_ns == unchanged
    assert set(restored.files) == {"a.txt", "notes", "two.py", "three.py"}
    assert snapshots.log()[-1].restores == shas[1]
    assert (
        git(repo, "log", "-1", "--format=%(trailers:key=Ralph-Restores,valueonly)", latest_snapshot(repo)).strip()
        == shas[1]
    )
    again = snapshots.restore(shas[1], "restore 1", force=True)
    assert again.files == () and again.snapshot == restored.snapshot

    assert opened(repo).undo().undone.label == "restore 1"
    assert (repo / "a.txt").read_text() == "mine\n"
    assert (repo / "three.py").exists()
    write(repo, {"a.txt": "three\n"})
    assert opened(repo).undo().undone.label == "three"
    assert (repo / "notes").read_text() == "mine\n"
    assert (repo / "a.txt").read_text() == "two\n"


def test_drop_forgets_the_run_and_nothing_else(repo: Path) -> None:
    snapshots = steps(repo, "one")
    head = git(repo, "for-each-ref", "refs/heads")
    snapshots.drop()
    snapshots.drop()
    assert git(repo, "for-each-ref") == head
    assert (snapshots.latest(), snapshots.base(), snapshots.log()) == (None, None, [])
    assert snapshots.take("base").files == 0


def test_a_linked_worktree_has_snapshots_of_its_own_tree(repo: Path) -> None:
    linked = repo / ".ralph" / "worktrees" / RUN
    git(repo, "worktree", "add", "-q", "-b", "w", str(linked))
    snapshots = opened(repo, linked)
    snapshots.take("base")
    write(linked, {"a.txt": "turn\n", ".ralph/turn/inbox": "never"})
    change = snapshots.take("turn 1")
    assert change.files == 1
    assert latest_snapshot(repo) == change.snapshot
    snapshots.undo()
    assert git(linked, "status", "--porcelain") == ""


def test_without_git_the_error_says_what_to_do(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(repo))
    with pytest.raises(UsageError, match="git is not installed") as missing:
        opened(repo)
    assert "--no-snapshots" in missing.value.todo


@pytest.mark.parametrize(
    "reason", ["No space left on device", "Read-only file system", "Disk quota exceeded", "Out of diskspace"]
)
def test_a_full_or_read_only_disk_is_a_storage_error(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    snapshots = opened(repo)
    snapshots.take("base")
    write(repo, {"new": "x"})
    says = f"echo 'error: unable to write file: {reason}' >&2; exit 1"
    wrap_git(tmp_path, monkeypatch, f'case "$*" in *" add "*) {says};; esac; exec {REAL_GIT} "$@"')
    with pytest.raises(StorageError, match=reason):
        snapshots.take("turn 1")
    (tmp_path / "bin" / "git").unlink()
    assert snapshots.take("turn 1").files == 1


def test_a_git_that_hangs_is_ended_with_its_children(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrap_git(tmp_path, monkeypatch, 'case "$*" in *status*) sleep 60 & sleep 60 ;; esac')
    with pytest.raises(RalphError, match="did not finish"):
        Git(repo).run("status", timeout=0.2)


def test_a_git_that_is_too_old_and_a_directory_that_is_gone(repo: Path, tmp_path: Path) -> None:
    with pytest.raises(GitError, match="No such file"):
        Git(tmp_path / "gone").run("status")
    with pytest.raises(UsageError, match="no-such-option") as too_old:
        Git(repo).run("add", "--no-such-option")
    assert "2.34" in too_old.value.todo
    with pytest.raises(StorageError), disk(repo):
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.skipif(os.geteuid() != 0, reason="giving files away needs root")
def test_a_repository_of_someone_else_is_refused_with_the_way_out(repo: Path) -> None:
    for path in (repo, repo / ".git"):
        os.chown(path, 65534, 65534)
    with pytest.raises(UsageError, match="does not trust") as refused:
        opened(repo)
    assert "safe.directory" in refused.value.todo


KILLED_UNDO = f"""
import sys
from pathlib import Path
from ralph.git.snapshots import Snapshots
root = Path(sys.argv[1])
Snapshots.open(root, root, {RUN!r}, root / ".ralph" / "runs" / {RUN!r}).undo()
"""


@pytest.mark.slow
@pytest.mark.parametrize("is_after", [True, False], ids=["after", "before"])
def test_a_kill_at_any_git_command_of_an_undo_loses_nothing(repo: Path, tmp_path: Path, is_after: bool) -> None:
    write(repo, {"gone": "gone\n"})
    snapshots = steps(repo, "one", "two")
    (repo / "gone").unlink()
    write(repo, {"made/new.py": "new\n", "a.txt": "three\n"})
    snapshots.take("three")
    write(repo, {"src/b.py": "mine\n"})
    copies = tmp_path / "copies"
    copies.mkdir()
    for copy in KilledProgram(KILLED_UNDO, copies, is_after).kill_copies(repo):
        assert (copy / "src/b.py").read_text() == "mine\n"
        labels = [entry.label for entry in opened(copy).log()]
        assert labels[:4] == ["base", "one", "two", "three"]
        if not labels[-1].startswith("undo"):
            opened(copy).undo()
        assert {"a.txt": b"two\n", "gone": b"gone\n", "src/b.py": b"mine\n"}.items() <= tree(copy).items()
        assert not (copy / "made").exists()
