"""Honest work inside the sandbox: turns of every kind do what they do outside."""

import os
import pwd
import signal
import time
from collections.abc import Callable
from pathlib import Path

from sandbox_place import DONE, Place


def eventually(condition: Callable[[], object], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.02)


class TestWork:
    def test_an_agent_commits_and_uses_its_tools(self, place: Place) -> None:
        place.loop(
            "touch done.txt; git add done.txt; git commit -qm 'the work'; git branch side; git status > /dev/null || exit 3\n"
            '"$RALPH_BIN" tools task add "a task" && "$RALPH_BIN" tools interact progress "half way" || exit 4'
        )
        assert place.git("log", "-1", "--format=%s") == "the work"
        assert "a task" in (place.root / ".ralph" / "agent" / "tasks.jsonl").read_text()
        assert "half way" in (place.run / "progress.jsonl").read_text()

    def test_a_scripted_agent_runs_inside(self, place: Place) -> None:
        scenario = place.home / "scenario.yml"
        scenario.write_text(
            "turns:\n  - steps:\n"
            "      - run: {command: 'touch ~/escaped'}\n"
            "      - write: {path: done.txt, content: x}\n"
        )
        place.ralph("loop", "t", "--until", DONE, "--scenario", str(scenario), "--yes")
        assert (place.root / "done.txt").exists()
        assert not (place.home / "escaped").exists()

    def test_a_run_in_a_worktree_commits_there_and_not_elsewhere(self, place: Place) -> None:
        place.loop(
            f"echo x > {place.root}/escaped; touch done.txt; git add done.txt; git commit -qm 'in the tree'",
            "--worktree",
        )
        assert not (place.root / "escaped").exists()
        assert "in the tree" in place.git("log", "--all", "--format=%s")

    def test_a_turn_without_git_works(self, place: Place, tmp_path: Path) -> None:
        place.root = tmp_path / "plain"
        place.root.mkdir()
        place.loop("touch done.txt ~/escaped")
        assert not (place.home / "escaped").exists()

    def test_a_turn_below_the_top_can_change_the_whole_repository(self, place: Place) -> None:
        (place.root / "sub").mkdir()
        place.loop("touch ../beside.txt done.txt", "--dir", "sub")
        assert (place.root / "beside.txt").exists()

    def test_a_question_is_answered(self, place: Place) -> None:
        agent = place.agent('"$RALPH_BIN" tools interact ask "Which?" > answer.txt; touch done.txt')
        with place.start("loop", "t", "--until", DONE, "--agent-command", agent, "--yes") as run:
            eventually(lambda: list(place.root.glob(".ralph/runs/*/questions/q1.json")))
            place.ralph("answer", "this one")
            run.communicate(timeout=120)
        assert (place.root / "answer.txt").read_text() == "this one\n"

    def test_a_message_reaches_the_turn(self, place: Place) -> None:
        agent = place.agent(
            'touch started; until "$RALPH_BIN" tools signals | grep -q blue; do sleep 0.1; done; touch done.txt'
        )
        with place.start("loop", "t", "--until", DONE, "--agent-command", agent, "--yes") as run:
            eventually((place.root / "started").exists)
            place.ralph("steer", "make it blue")
            run.communicate(timeout=120)
        assert place.journal("signal.received")

    def test_the_repository_of_maven_is_writable_and_starts_from_the_users(self, place: Place) -> None:
        theirs = place.home / ".m2" / "repository" / "org" / "x"
        theirs.mkdir(parents=True)
        (theirs / "_remote.repositories").write_text("old\n")
        (theirs / "x.jar").write_bytes(b"x" * 100_000)
        check = "`sh -c 'test -s ${MAVEN_OPTS#-Dmaven.repo.local=}/org/x/x.jar'` passes"
        place.loop(
            'own="${MAVEN_OPTS#-Dmaven.repo.local=}"/org/x; echo new > "$own/_remote.repositories" && touch "$own/y.jar"'
            ' && cmp "$own/x.jar" ~/.m2/repository/org/x/x.jar && touch done.txt; echo evil > "$own/x.jar"',
            until=f"`test -f done.txt` passes and {check}",
        )
        assert (theirs / "_remote.repositories").read_text() == "old\n"
        assert sorted(path.name for path in theirs.iterdir()) == ["_remote.repositories", "x.jar"]
        assert (theirs / "x.jar").read_bytes() == b"x" * 100_000

    def test_the_file_of_users_names_the_home_directory(self, place: Place) -> None:
        """Java takes the home directory from there."""
        code = "import os, pwd; open('home.txt', 'w').write(pwd.getpwuid(os.getuid()).pw_dir)"
        place.loop(f'python3 -c "{code}"; touch done.txt')
        expected = str(place.home) if os.geteuid() == 0 else pwd.getpwuid(os.getuid()).pw_dir
        assert (place.root / "home.txt").read_text() == expected

    def test_caches_of_package_managers_are_private_to_the_run(self, place: Place) -> None:
        agent = 'echo x > "$XDG_CACHE_HOME/file"; echo "$XDG_CACHE_HOME" > place; mkdir -p "$GOMODCACHE" "$CARGO_HOME"'
        place.loop(f"{agent} && touch done.txt")
        assert Path((place.root / "place").read_text().strip()).is_relative_to(place.run / "private" / "cache")
        assert not (place.home / ".cache").exists() or not (place.home / ".cache" / "file").exists()

    def test_caches_are_removed_with_the_end_of_a_run_and_filled_again_by_a_resume(self, place: Place) -> None:
        crates = place.home / ".cargo" / "registry" / "cache"
        crates.mkdir(parents=True)
        (crates / "a.crate").write_text("crate\n")
        agent = place.agent('ls "$CARGO_HOME/registry/cache" >> seen; test -f go && touch done.txt')
        place.ralph("loop", "t", "--until", DONE, "--agent-command", agent, "--max-iterations", "1", "--yes", code=3)
        private = place.run / "private"
        assert {path.name for path in private.iterdir() if "cache" in path.name} <= {"room-cache", "room-cache.filled"}
        (place.root / "go").touch()
        place.ralph("resume")
        assert len((place.root / "seen").read_text().split()) == 2, "the second turn has the user's crates, too"
        assert not [path for path in private.iterdir() if "cache" in path.name]
        for name in ("cache", "room-cache"):
            (private / name / "go-build").mkdir(parents=True)
        place.ralph("clean")
        assert not [path for path in private.iterdir() if "cache" in path.name], "what an older version left"

    def test_variables_of_the_session_are_not_passed_on(self, place: Place) -> None:
        place.loop(
            "env > variables; touch done.txt",
            DBUS_SESSION_BUS_ADDRESS="unix:path=/run/user/0/bus",
            SSH_AUTH_SOCK="/tmp/agent",
            GPG_AGENT_INFO="x",
            TMUX="/tmp/tmux",
        )
        names = {line.partition("=")[0] for line in (place.root / "variables").read_text().splitlines()}
        assert names.isdisjoint({"DBUS_SESSION_BUS_ADDRESS", "SSH_AUTH_SOCK", "GPG_AGENT_INFO", "TMUX"})
        assert "RALPH_RUN" in names

    def test_only_a_private_temporary_directory_is_passed_on(self, place: Place) -> None:
        script = 'echo "$TMPDIR" >> seen.txt; mktemp >> made.txt; touch done.txt'
        place.loop(script, TMPDIR="/var/tmp")
        (place.root / "done.txt").unlink()
        place.loop(script, TMPDIR="/home")
        assert (place.root / "seen.txt").read_text() == "/var/tmp\n\n"
        assert not Path((place.root / "made.txt").read_text().split()[0]).exists()


class TestEnd:
    def test_no_process_outlives_a_turn(self, place: Place) -> None:
        mark = f"sandbox-left-{os.getpid()}"
        place.loop(f"touch done.txt; setsid sh -c ': {mark}; sleep 1000' > /dev/null 2>&1 &")
        assert not find_processes(mark)

    def test_an_agent_that_is_stopped_can_clean_up(self, place: Place) -> None:
        agent = place.agent("trap 'touch cleaned; exit 1' TERM; touch started; while :; do sleep 0.1; done")
        with place.start("loop", "t", "--until", DONE, "--agent-command", agent, "--yes") as run:
            eventually((place.root / "started").exists)
            place.ralph("abort")
            run.communicate(timeout=120)
        assert (place.root / "cleaned").exists()

    def test_a_killed_engine_leaves_a_turn_that_the_next_one_adopts(self, place: Place) -> None:
        agent = place.agent("echo x >> turns; until [ -f go ]; do sleep 0.1; done; touch done.txt")
        run = place.start("loop", "t", "--until", DONE, "--agent-command", agent, "--yes")
        eventually((place.root / "turns").exists)
        run.send_signal(signal.SIGKILL)
        run.communicate()
        again = place.start("resume")
        (place.root / "go").touch()
        out = again.communicate(timeout=120)[0]
        assert again.returncode == 0, out
        assert (place.root / "turns").read_text() == "x\n"
        assert len(place.journal("turn.started")) == 1

    def test_a_program_that_cannot_start_is_reported(self, place: Place) -> None:
        agent = place.home / "broken"
        agent.write_text("#!/no/such/interpreter\n")
        agent.chmod(0o755)
        said = place.ralph("loop", "t", "--until", DONE, "--agent-command", str(agent), "--yes", code=6)
        assert "No such file or directory" in said


def find_processes(mark: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if mark.encode() in path.read_bytes():
                found.append(path.parent.name)
        except OSError:
            continue
    return found


class TestAgentState:
    """A program named claude, with a home directory as the real one has it."""

    def test_settings_are_read_only_and_conversations_stay(self, place: Place) -> None:
        home = place.home / ".claude"
        (home / "projects").mkdir(parents=True)
        (home / "settings.json").write_text("{}")
        (place.home / ".codex").mkdir()
        (place.home / ".codex" / "auth.json").write_text("secret of another agent")
        self.write_claude(
            place,
            "echo hook > ~/.claude/settings.json; echo hook > ~/.claude/CLAUDE.md; echo talk > ~/.claude/projects/talk.jsonl;"
            " cat ~/.codex/auth.json; touch done.txt",
        )
        said = place.ralph("loop", "t", "--until", DONE, "--agent-command", "claude", "--yes", PATH=self.path(place))
        assert (home / "settings.json").read_text() == "{}"
        assert not (home / "CLAUDE.md").exists()
        assert (home / "projects" / "talk.jsonl").read_text() == "talk\n"
        assert "secret of another agent" not in said + place.turn_output()

    def test_an_implementer_leaves_nothing_for_its_judge(self, place: Place) -> None:
        self.write_claude(
            place,
            'cat ~/.claude/CLAUDE.md >> "seen-$RALPH_ROLE"; mkdir -p ~/.claude;'
            ' echo "by the $RALPH_ROLE" > ~/.claude/CLAUDE.md; touch done.txt',
        )
        command = ("loop", "t", "--until", DONE, "--agent-command", "claude", "--require", "judged", "--yes")
        place.ralph(*command, code=None, PATH=self.path(place))
        roles = [entry["role"] for entry in place.journal("turn.started")]
        assert roles[:2] == ["implementer", "judge"]
        assert "implementer" not in (place.root / "seen-judge").read_text()

    def test_renewed_credentials_are_kept(self, place: Place) -> None:
        home = place.home / ".claude"
        home.mkdir()
        (home / ".credentials.json").write_text('{"token": "old"}')
        self.write_claude(
            place,
            """cp ~/.claude/.credentials.json had.json; echo '{"token": "new"}' > ~/.claude/new;"""
            " mv ~/.claude/new ~/.claude/.credentials.json && touch done.txt",
        )
        place.ralph("loop", "t", "--until", DONE, "--agent-command", "claude", "--yes", PATH=self.path(place))
        assert (place.root / "had.json").read_text() == '{"token": "old"}'
        assert (home / ".credentials.json").read_text() == '{"token": "new"}\n'

    @staticmethod
    def write_claude(place: Place, script: str) -> None:
        program = place.home / "programs" / "claude"
        program.parent.mkdir()
        program.write_text(f"#!/bin/sh\ncat > /dev/null\n{script}\n")
        program.chmod(0o755)

    @staticmethod
    def path(place: Place) -> str:
        return f"{place.home / 'programs'}{os.pathsep}{os.environ['PATH']}"
