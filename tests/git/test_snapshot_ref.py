"""The ref of a run's snapshots: out of `git log --all`, and safe from garbage collection."""

from pathlib import Path

import pytest
from repos import REF, RUN, git, latest_snapshot, opened, tree, write

from ralph.core.errors import SnapshotsLostError
from ralph.git import snapshot_ref
from ralph.git.command import Git, find_repository
from ralph.git.history import UserRefs
from ralph.git.snapshot_ref import SnapshotRef

GC = ("gc", "--quiet", "--prune=now")


def states(repo: Path, number: int) -> list[str]:
    """Some snapshots of a run, the first one included."""
    snapshots = opened(repo)
    made = [snapshots.take("base").snapshot]
    for turn in range(1, number):
        write(repo, {"a.txt": f"turn {turn}\n"})
        made.append(snapshots.take(f"turn {turn}").snapshot)
    return made


def test_git_log_does_not_show_snapshots(repo: Path) -> None:
    repository = find_repository(repo)
    assert repository
    UserRefs(repository, RUN).record()
    states(repo, 3)
    assert git(repo, "log", "--all", "--format=%s") == "first"
    assert git(repo, "rev-list", "--all", "--count") == "1"


def test_garbage_collection_in_the_middle_of_a_run_loses_nothing(repo: Path) -> None:
    snapshots = opened(repo)
    base = snapshots.take("base").snapshot
    write(repo, {"a.txt": "turn 1\n"})
    first = snapshots.take("turn 1").snapshot
    git(repo, *GC)
    assert not Git(repo).resolve_commit(base)
    write(repo, {"a.txt": "turn 2\n"})
    second = snapshots.take("turn 2").snapshot
    assert [entry.sha for entry in snapshots.log()] == [base, first, second]
    snapshots.undo()
    assert (repo / "a.txt").read_text() == "turn 1\n"


def test_garbage_collection_between_commands_loses_nothing(repo: Path) -> None:
    before = tree(repo)
    made = states(repo, 4)
    git(repo, *GC)
    snapshots = opened(repo)
    assert [entry.sha for entry in snapshots.log()] == made
    snapshots.restore(made[0], "the base")
    assert tree(repo) == before


def test_snapshots_of_an_older_version_are_read_and_continued(repo: Path) -> None:
    made = states(repo, 3)
    git(repo, "update-ref", REF, made[-1])
    snapshots = opened(repo)
    assert [entry.sha for entry in snapshots.log()] == made
    write(repo, {"a.txt": "more\n"})
    made.append(snapshots.take("turn 3").snapshot)
    assert git(repo, "cat-file", "-t", REF) == "tree"
    git(repo, *GC)
    assert [entry.sha for entry in opened(repo).log()] == made


def test_a_deleted_ref_is_written_again(repo: Path) -> None:
    snapshots = opened(repo)
    base = snapshots.take("base").snapshot
    git(repo, "update-ref", "-d", REF)
    assert snapshots.take("turn 1").snapshot == base
    assert latest_snapshot(repo) == base
    git(repo, "update-ref", "-d", REF)
    other = opened(repo)
    assert other.latest() is None
    other.bring_back([base], base)
    assert opened(repo).latest() == base


@pytest.mark.parametrize("text", ["", "tree x\n", "parent 1\n"])
def test_a_ref_that_something_else_wrote_counts_as_none(repo: Path, text: str) -> None:
    blob = Git(repo).run("hash-object", "-w", "--stdin", stdin=text.encode()).text
    made = Git(repo).run("mktree", stdin=f"100644 blob {blob}\tfirst\n100644 blob {blob}\tlatest\n".encode()).text
    git(repo, "update-ref", REF, made)
    assert opened(repo).latest() is None


def test_many_snapshots_are_kept_in_trees_of_limited_size(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_ref, "_WIDTH", 2)
    command = Git(repo)
    files = command.resolve_tree("HEAD")
    objects = repo / ".git" / "objects"
    ref = SnapshotRef(command, REF, objects)
    made = [ref.append(files, f"turn {number}\n") for number in range(5)]
    reopened = SnapshotRef(command, REF, objects)
    assert reopened.read() == ref.read()
    made += [reopened.append(files, f"turn {number}\n") for number in range(5, 12)]
    git(repo, *GC)
    again = SnapshotRef(command, REF, objects)
    latest = again.read()
    assert latest and latest.commit == made[-1] and latest.first == made[0]
    assert git(repo, "rev-list", "--reverse", made[-1]).split() == made
    again.rebuild(made[-1])
    assert git(repo, "ls-tree", "--name-only", REF).split() == [f"0000{number}" for number in range(6)] + [
        "first",
        "latest",
    ]
    git(repo, "fsck", "--strict")


def test_a_ref_that_was_deleted_before_garbage_collection_is_reported(repo: Path) -> None:
    snapshots = opened(repo)
    snapshots.take("base")
    git(repo, "update-ref", "-d", REF)
    git(repo, *GC)
    write(repo, {"a.txt": "turn 1\n"})
    with pytest.raises(SnapshotsLostError):
        snapshots.take("turn 1")
