"""The git directory of a turn: the agent works in it as in the user's, and the user's stays as it is."""

import hashlib
from pathlib import Path

import pytest
from sandbox_place import DONE, Place

EVERYTHING = """
set -e
echo x > done.txt; git add done.txt; git commit -qm 'the work'
git branch side; git tag v1; echo y >> README; git stash -q; git stash pop -q; git checkout -q README
git fsck > /dev/null; git log --oneline > /dev/null; git reflog > /dev/null; git worktree list > /dev/null
git config alias.evil '!touch evil'; git config core.fsmonitor 'touch evil'; git config filter.evil.clean 'touch evil; cat'
mkdir -p "$(git rev-parse --git-common-dir)/hooks"
printf '#!/bin/sh\\ntouch evil\\n' > "$(git rev-parse --git-common-dir)/hooks/post-checkout"
chmod +x "$(git rev-parse --git-common-dir)/hooks/post-checkout"
echo '* filter=evil' > "$(git rev-parse --git-common-dir)/info/attributes"
"""


def settings_of(git_dir: Path) -> dict[str, str]:
    """The content of everything in a git directory that starts programs or changes what git reports."""
    paths = [path for name in ("config", "hooks", "info", "commondir", "gitdir") for path in [git_dir / name]]
    files = [file for path in paths for file in ([path] if path.is_file() else sorted(path.rglob("*")))]
    return {str(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in files if file.is_file()}


class TestClone:
    def test_commits_branches_and_tags_are_imported_and_settings_are_not(self, place: Place) -> None:
        place.ralph("status")
        place.loop("touch done.txt")  # Ralph adds its directories to info/exclude once
        (place.root / "done.txt").unlink()
        before = settings_of(place.root / ".git")
        said = place.loop(EVERYTHING)
        assert settings_of(place.root / ".git") == before
        assert place.git("log", "-1", "--format=%s", "main") == "the work"
        assert place.git("rev-parse", "side") == place.git("rev-parse", "v1") == place.git("rev-parse", "main")
        assert "the agent made 1 commit on main" in said
        assert place.git("status", "--porcelain") == ""
        assert not (place.root / "evil").exists()
        place.git("fsck", "--strict")

    def test_libraries_that_are_strict_about_packed_refs_can_read_them(self, place: Place) -> None:
        place.git("tag", "-a", "-m", "a release", "v0")
        packed = '"$(git rev-parse --git-common-dir)/packed-refs"'
        place.loop(f"cp {packed} packed.txt; git rev-parse 'v0^{{commit}}' > peeled.txt; touch done.txt")
        lines = (place.root / "packed.txt").read_text().splitlines()
        # GitPython refuses a header without `peeled`, and a file with that word must have the peeled tags.
        assert lines and not [line for line in lines if line.startswith("#")]
        assert (place.root / "peeled.txt").read_text().strip() == place.git("rev-parse", "main")

    def test_staged_files_stay_staged(self, place: Place) -> None:
        place.loop("echo x > done.txt; git add done.txt; echo y > other.txt")
        assert place.git("status", "--porcelain").splitlines() == ["A  done.txt", "?? other.txt"]
        assert place.git("show", ":done.txt") == "x"

    def test_index_flags_that_hide_files_are_not_imported(self, place: Place) -> None:
        place.loop(
            "git update-index --assume-unchanged README; echo changed > README; touch done.txt; git add done.txt"
        )
        assert place.git("status", "--porcelain").splitlines() == ["M README", "A  done.txt"]

    def test_amended_commit_is_imported(self, place: Place) -> None:
        place.loop("touch done.txt; git add .; git commit -qm one; git commit -q --amend -m two")
        assert place.git("log", "--format=%s").splitlines() == ["two", "first"]

    def test_a_deleted_branch_stays(self, place: Place) -> None:
        place.git("branch", "precious")
        place.loop("git branch -D precious; touch done.txt")
        assert place.git("rev-parse", "precious") == place.git("rev-parse", "main")

    def test_another_branch_that_would_lose_commits_stays(self, place: Place) -> None:
        place.git("switch", "-q", "-c", "precious")
        place.git("commit", "-q", "--allow-empty", "-m", "kept")
        tip = place.git("rev-parse", "HEAD")
        place.git("switch", "-q", "main")
        said = place.loop("git branch -f precious main; touch done.txt")
        assert place.git("rev-parse", "precious") == tip
        assert "would lose commits; it stays where it was" in said

    def test_stashed_work_is_kept(self, place: Place) -> None:
        (place.root / "README").write_text("changed by the user\n")
        said = place.loop("git stash -q; touch done.txt")
        [command] = [line.split("`")[1] for line in said.splitlines() if "the agent stashed changes" in line]
        place.git(*command.split()[1:])
        assert (place.root / "README").read_text() == "changed by the user\n"

    def test_a_commit_with_a_forged_object_is_refused(self, place: Place) -> None:
        script = (
            "echo x > done.txt; git add done.txt; git commit -qm forged\n"
            "blob=$(git rev-parse HEAD:done.txt); cd .git/objects/$(echo $blob | cut -c1-2)\n"
            "chmod u+w *; echo garbage > $(echo $blob | cut -c3-)"
        )
        tip = place.git("rev-parse", "main")
        said = place.loop(script, code=None)
        assert place.git("rev-parse", "main") == tip
        assert "could not be imported" in said
        place.git("fsck", "--strict")

    def test_links_in_the_place_of_refs_and_objects_are_ignored(self, place: Place) -> None:
        secret = place.home / "secret"
        secret.write_text(f"{place.git('rev-parse', 'main')}\n")
        place.loop(f"ln -s {secret} .git/refs/heads/linked; touch done.txt")
        assert "linked" not in place.git("branch")

    def test_ralphs_own_refs_are_not_visible(self, place: Place) -> None:
        place.loop("git for-each-ref > refs.txt; touch done.txt")
        assert "refs/ralph" not in (place.root / "refs.txt").read_text()


class TestWorktree:
    def test_a_turn_in_a_linked_worktree_commits_to_its_branch(self, place: Place) -> None:
        said = place.loop(EVERYTHING, "--worktree")
        assert "evil" not in (place.root / ".git" / "config").read_text()
        branch = place.git("for-each-ref", "--format=%(refname:short)", "refs/heads/ralph")
        assert "the work" in place.git("log", "--format=%s", branch), said
        assert place.git("rev-parse", "side")
        place.git("fsck", "--strict")

    def test_a_project_that_is_a_linked_worktree_itself(self, place: Place, tmp_path: Path) -> None:
        place.git("worktree", "add", "-q", "-b", "own", str(tmp_path / "linked"))
        main, place.root = place.root, tmp_path / "linked"
        place.loop(EVERYTHING)
        assert place.git("log", "-1", "--format=%s", "own") == "the work"
        assert place.git("status", "--porcelain") == ""
        assert place.git("rev-parse", "main", cwd=main) != place.git("rev-parse", "own", cwd=main)


class TestSubmodule:
    @pytest.fixture
    def parent(self, place: Place, tmp_path: Path) -> Place:
        library = tmp_path / "library"
        library.mkdir()
        place.git("init", "-q", "-b", "main", cwd=library)
        (library / "lib.txt").write_text("lib\n")
        place.git("add", ".", cwd=library)
        place.git("commit", "-q", "-m", "library", cwd=library)
        place.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(library), "lib")
        place.git("commit", "-q", "-m", "with a submodule")
        return place

    def test_an_agent_reads_and_changes_files_of_a_submodule(self, parent: Place) -> None:
        parent.loop(
            "git submodule status && git -C lib log -1 --format=%s > log.txt && echo x > lib/new.txt && touch done.txt"
        )
        assert (parent.root / "log.txt").read_text() == "library\n"
        assert (parent.root / "lib" / "new.txt").exists()

    def test_commits_in_a_submodule_are_imported(self, parent: Place) -> None:
        parent.loop(
            "cd lib && echo x > new.txt && git add new.txt && git -c user.name=A -c user.email=a@b commit -qm inner && cd .."
            " && git add lib && git -c user.name=A -c user.email=a@b commit -qm outer && touch done.txt"
        )
        assert parent.git("log", "-1", "--format=%s") == "outer"
        assert parent.git("log", "-1", "--format=%s", cwd=parent.root / "lib") == "inner"
        assert parent.git("status", "--porcelain", "--untracked-files=no") == ""

    def test_its_settings_and_hooks_stay(self, parent: Place) -> None:
        module = parent.root / ".git" / "modules" / "lib"
        before = settings_of(module)
        parent.loop(
            "git -C lib config core.fsmonitor evil; echo x > .git/modules/lib/hooks/post-checkout; touch done.txt"
        )
        assert settings_of(module) == before


def test_checks_can_use_git_and_change_nothing(place: Place) -> None:
    place.loop("touch done.txt", until="`git config alias.evil x; git status > /dev/null && test -f done.txt` passes")
    assert "evil" not in (place.root / ".git" / "config").read_text()


def test_next_engine_uses_the_result_of_a_turn_of_a_killed_engine(place: Place) -> None:
    agent = place.agent(
        "touch started; until [ -f go ]; do sleep 0.1; done; echo x > done.txt; git add done.txt; git commit -qm late"
    )
    run = place.start("loop", "t", "--until", DONE, "--agent-command", agent, "--yes")
    while not (place.root / "started").exists():
        assert run.poll() is None
    run.kill()
    run.communicate()
    (place.root / "go").touch()
    place.ralph("resume")
    assert place.git("log", "-1", "--format=%s") == "late"


def test_a_bad_value_in_gitmodules_does_not_stop_the_engine(place: Place) -> None:
    """Git refuses to compare trees with it, because it would start a program."""
    script = (
        "git init -q sub; git -C sub -c user.name=a -c user.email=a@b commit -q --allow-empty -m s;"
        r" printf '[submodule \"sub\"]\n path = sub\n url = ./x\n update = !true\n' > .gitmodules;"
        " git add sub .gitmodules; git commit -qm subs; touch done.txt"
    )
    said = place.loop(script.replace('\\"', '"'))
    assert "Status: SUCCESS" in said
    assert "the commits of turn 1 could not be imported" in said, "git refuses the commit"
    assert "disallowed submodule update setting: !true" in " ".join(said.split())


def test_files_that_can_start_programs_later_are_named(place: Place) -> None:
    said = place.loop(
        "mkdir .husky; echo 'echo evil' > .husky/pre-commit; git init -q sub;"
        " git -C sub -c user.name=a -c user.email=a@b commit -q --allow-empty -m s;"
        " git -C sub config core.fsmonitor evil; git add sub; git commit -qm sub; touch done.txt"
    )
    assert ".husky/pre-commit can start programs later: read the change" in said
    assert "sub is a separate git repository that starts programs (core.fsmonitor)" in said


def test_a_repository_that_the_user_made_before_the_run_is_not_named(place: Place) -> None:
    place.git("init", "-q", "mine")
    place.git("-C", "mine", "commit", "-q", "--allow-empty", "-m", "m")
    place.git("-C", "mine", "config", "core.fsmonitor", "my-monitor")
    place.git("add", "mine")
    place.git("commit", "-qm", "mine")
    (place.root / ".vscode").mkdir()
    (place.root / ".vscode" / "tasks.json").write_text("{}")
    said = place.loop("git -C mine status > /dev/null; touch done.txt")
    assert "starts programs" not in said
    assert "can start programs" not in said


@pytest.mark.parametrize(
    ("script", "named"),
    [
        ("git init -q sub; git -C sub config core.fsmonitor evil", "sub is a separate git repository"),
        ("git init -q --bare deep.d; git -C deep.d config core.fsmonitor evil", "deep.d is a separate git repository"),
        ("git init -q ignored/sub; git -C ignored/sub config core.fsmonitor evil", "ignored/sub is a separate git"),
        (
            "git init -q --separate-git-dir=other sub; git -C sub config core.fsmonitor evil",
            "sub is a separate git repository",
        ),
        ("mkdir sub; mv prepared sub/.git", "sub is a separate git repository"),
        ("printf 'notify: {command: evil}\\n' > ralph.yml", "ralph.yml can start programs later"),
        ("mkdir -p package; echo 'checks: {}' > package/ralph.yml", "package/ralph.yml can start programs later"),
        ("echo evil > ignored/.envrc", "ignored/.envrc can start programs later"),
    ],
)
def test_planted_programs_are_named_on_the_screen_and_in_the_report(place: Place, script: str, named: str) -> None:
    (place.root / ".gitignore").write_text("ignored\nprepared\n")
    (place.root / "ignored").mkdir()
    place.git("init", "-q", "--bare", "prepared")
    place.git("-C", "prepared", "config", "core.fsmonitor", "evil")
    place.git("-C", "prepared", "config", "core.bare", "false")
    said = place.loop(f"{script}; touch done.txt", code=None)
    [report] = place.root.glob(".aiwg/ralph/completion-*.md")
    assert named in " ".join(said.split())
    assert named in report.read_text()


@pytest.mark.parametrize("script", ["mkfifo .envrc", "ln -s /dev/zero .envrc"])
def test_search_for_planted_programs_does_not_wait_for_pipes_and_devices(place: Place, script: str) -> None:
    assert ".envrc can start programs later" in place.loop(f"{script}; touch done.txt", code=None)
