"""What people mistype, what others leave on the disk, and a disk that gives out: never a traceback, always a next step."""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_loop import DONE, NEVER_DONE, SUCCEEDS, Project, make_project


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    yield from make_project(tmp_path)


def loop(*args: str, task: str = "the task", until: str = DONE) -> tuple[str, ...]:
    return ("loop", task, "--until", until, *args)


class TestCommandLine:
    @pytest.mark.parametrize(
        ("args", "code", "says"),
        [
            (loop("--agent", "scriptd"), 2, "did you mean scripted?"),
            (loop("--agent", "command"), 2, "--agent-command"),
            (("steer", "- use httpx"), 2, 'put text that begins with - after --: ralph steer -- "- ..."'),
            (loop("--agent", "scripted"), 2, "--scenario"),
            (loop("--agent", "scripted", "--agent-command", "true"), 2, "cannot be used together"),
            (loop(), 6, "--agent-command"),
            (loop("--agent-command", "no-such-program --fast"), 6, "no-such-program"),
            (loop("--agent-command", ""), 2, "empty"),
            (loop("--agent-command", "sh 'unclosed"), 2, "unclosed"),
            (loop("--scenario", "missing.yaml"), 2, "missing.yaml"),
            (loop("--scenario", "."), 2, "where:"),
            (loop("--agent-command", "sleep 1; true"), 2, "--agent-command 'sh -c '\"'\"'sleep 1; true'\"'\"''"),
            (loop("--agent-command", "true", task=""), 2, "task is empty"),
            (loop("--agent-command", "true", task=" \n\t"), 2, "task is empty"),
            (loop("--agent-command", "true", until=""), 2, "criterion is empty"),
            (loop("--agent-command", "true", until="  "), 2, "criterion is empty"),
            (loop("--agent-command", "true", until="the code is clean"), 2, "--until '`"),
            (loop("--agent-command", "true", until="pytest passes soon"), 2, "--until '`"),
            (loop("--agent-command", "true", until=" passes"), 2, "--until '`"),
            (loop("--agent-command", "true", until="`` passes"), 2, "--until '`"),
            (loop("--agent-command", "true", until="`a` AND nice"), 2, "'nice'"),
            (loop("--agent-command", "true", until="`a` `b`"), 2, "AND"),
            (loop("--agent-command", "true", until="== 3 failed ==\nE  assert\n"), 2, "single quotes"),
            (loop("--timeout", "90s"), 2, "'90s' is not a number of minutes"),
            (loop("--max-cost", "$5"), 2, "'$5' is not a number of US dollars"),
            (("loop", "task"), 2, "--until"),
            (("loop",), 2, "TASK"),
            (("lop",), 2, "ralph --help"),
            (("status", "../../etc"), 2, "is not a run id"),
            (("status", "261116-000000-aaaa"), 2, "there is no run"),
            (("diff", "../../../etc/passwd"), 2, "is not a run id"),
            (("diff", "²"), 2, "²"),
            (("diff", "99999"), 2, "no run"),
            (("logs", "a\nb"), 2, "is not a run id"),
            (("clean", ".."), 2, "is not a run id"),
            (("clean", ""), 2, ""),
            (("resume", "1" * 5000), 2, "is not a run id"),
            (("abort", ".."), 2, "is not a run id"),
            (("undo", "."), 2, "is not a run id"),
        ],
        ids=lambda value: " ".join(value)[:40] if isinstance(value, tuple) else None,
    )
    def test_usage_error_says_what_to_type_instead(
        self,
        project: Project,
        args: tuple[str, ...],
        code: int,
        says: str,
    ) -> None:
        done = project.ralph(*args)
        if args == ("clean", ""):
            assert done.code in (0, 2)
            return
        assert done.code == code, done.said
        assert says in done.err
        assert "next:" in done.err or "--help" in done.err
        assert not (project.root / ".ralph" / "runs").exists()

    @pytest.mark.parametrize(
        "option",
        [
            *("--max-iterations", "--timeout", "--max-cost", "--max-tokens"),
            *("--turn-timeout", "--idle-timeout", "--check-timeout"),
        ],
    )
    def test_a_limit_that_leaves_nothing_or_limits_nothing_is_refused(self, project: Project, option: str) -> None:
        whole = option in ("--max-iterations", "--max-tokens")
        for value in ("0", "-1", "-0", "many", "", "nan", *(("1.5",) if whole else ("-inf", "-0.0"))):
            done = project.ralph(*loop("--agent-command", "true", "--dry-run", option, value))
            assert done.code == 2, f"{option} {value!r}: {done.said}"
            assert option in done.err

    @pytest.mark.more_are_slow(1)
    @pytest.mark.parametrize("value", ["1e9", "1e300", "inf"])
    def test_a_limit_may_be_large(self, project: Project, value: str) -> None:
        options = [
            word
            for name in ("--timeout", "--turn-timeout", "--idle-timeout", "--check-timeout")
            for word in (name, value)
        ]
        done = project.play(SUCCEEDS, *options, "--max-cost", value)
        assert done.code in (0, 2), done.said

    @pytest.mark.parametrize(
        "moment", ["yesterday", "2020-01-01T00:00", "", "0001-01-01", "9999-12-31T23:59:59", "2026-13-01", "²"]
    )
    def test_unusable_deadline_is_refused(self, project: Project, moment: str) -> None:
        done = project.ralph(*loop("--agent-command", "true", "--dry-run", "--deadline", moment))
        assert done.code == 0 if moment.startswith("9999") else done.code == 2
        assert moment.startswith("9999") or "--deadline" in done.err

    def test_whatever_the_task_says_it_arrives_as_it_was_written(self, project: Project) -> None:
        task = 'Füge "x" hinzu 😀\n\n## Not a heading\n{{failure}} $(touch pwned) `touch pwned` \\n ]]>\ttab'
        agent = project.agent("cat > prompt.txt; touch done.txt")
        done = project.ralph("loop", task, "--until", DONE, "--agent-command", agent, "--yes")
        assert done.code == 0
        assert task in (project.root / "prompt.txt").read_text()
        assert not (project.root / "pwned").exists()
        assert project.ralph("status", "--json").json["runs"][0]["task"] == task

    def test_task_that_is_not_text_is_refused_or_accepted_without_a_crash(self, project: Project) -> None:
        agent = project.agent("touch done.txt")
        done = project.real("loop", os.fsdecode(b"fix \xff it"), "--until", DONE, "--agent-command", agent, "--yes")
        assert done.code in (0, 2), done.said
        assert project.ralph("status").code == 0


class TestSettings:
    @pytest.mark.parametrize(
        ("text", "says"),
        [
            ("limts: {iterations: 3}\n", "did you mean `limits`?"),
            ("limits: {iteration: 3}\n", "did you mean `iterations`?"),
            ("# first\n\nturn:\n  minuts: 3\n", "line 4"),
            ("limits: {iterations: 0}\n", "limits.iterations"),
            ("limits: {cost: -1}\n", "limits.cost"),
            ("limits: {minutes: .nan}\n", "limits.minutes"),
            ("limits: 5\n", "limits"),
            ("limits: [1]\n", "limits"),
            ("permissions: sudo\n", "permissions"),
            ("push: perhaps\n", "push"),
            ("- a\n- b\n", "key: value"),
            ("just text\n", "key: value"),
            ("a: [1\n", "line"),
            ("a: 1\na: 2\n", "ralph.yml"),
            ("{[1]: 2}\n", "ralph.yml"),
            ("? {a: 1}\n: 2\n", "ralph.yml"),
            ("1: 2\n", "ralph.yml"),
            ("!!python/object/apply:os.system ['touch pwned']\n", "ralph.yml"),
            ("agent: !!python/name:os.system x\n", "ralph.yml"),
            ("agent: " + "x" * 11_000_000, "larger"),
            ("[" * 1000, "ralph.yml"),
            ("a: &a [*a]\nagent: *a\n", "ralph.yml"),
            ("\0", "ralph.yml"),
            ("agent: scriptd\n", "did you mean scripted?"),
            ("scenario: missing.yaml\n", "missing.yaml"),
        ],
        ids=lambda value: value[:30].strip() if isinstance(value, str) else None,
    )
    def test_a_fault_in_ralph_yml_is_named(self, project: Project, text: str, says: str) -> None:
        (project.root / "ralph.yml").write_text(text)
        done = project.ralph(*loop("--dry-run"))
        assert done.code == 2, done.said
        assert says in done.err
        assert "ralph.yml" in done.err or "scenario" in done.err or "agent" in done.err
        doctor = project.ralph("doctor")
        assert (doctor.code, "BAD" in doctor.out) == (2, True)
        assert not (project.root / "pwned").exists()

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "turns: []",
            "turns: [{steps: [{pacth: x}]}]",
            "turns: [{steps: [{write: {path: ../x, content: y}}]}]",
            "turns: [{steps: [{say: " + "x" * 11_000_000 + "}]}]",
            "turns: " + "[" * 3000,
            "\xff\xfe",
            "turns: [{steps: [{sleep: .inf}]}]",
        ],
        ids=["empty", "none", "typo", "escape", "large", "deep", "strange", "endless"],
    )
    def test_a_fault_in_a_scenario_is_named_before_anything_starts(self, project: Project, text: str) -> None:
        done = project.ralph(*loop("--yes", "--scenario", project.scenario(text)))
        assert done.code == 2, done.said
        assert "scenario-" in done.err
        assert project.runs == []

    @pytest.mark.parametrize("kind", ["unknown", "binary", "large", "directory", "link"])
    def test_a_fault_in_a_prompt_of_the_project_is_named(self, project: Project, kind: str) -> None:
        path = project.root / ".ralph" / "prompts" / "loop-actor.md"
        path.parent.mkdir(parents=True)
        if kind == "directory":
            path.mkdir()
        elif kind == "link":
            path.symlink_to(path)
        else:
            path.write_bytes({"unknown": b"{{tsak}}", "binary": b"\xff\xfe{{task}}", "large": b"x" * 300_000}[kind])
        done = project.ralph(*loop("--dry-run", "--agent-command", "true"))
        assert done.code == 2, done.said
        assert "loop-actor" in done.err


class TestPlaces:
    @pytest.mark.more_are_slow(3)
    @pytest.mark.parametrize(
        "name", ["with space", 'quote\'s "double"', "ünï-😀", "-dash", "semi;$(touch x)", "new\nline", "%s{}"]
    )
    def test_a_workspace_may_have_any_name(self, tmp_path: Path, name: str) -> None:
        for project in make_project(tmp_path, name=name):
            assert project.play(SUCCEEDS).code == 0
            assert "+done" in project.ralph("diff").out
            assert project.ralph("undo").code == 0

    def test_a_workspace_whose_name_is_not_text_works(self, tmp_path: Path) -> None:
        for project in make_project(tmp_path, name=os.fsdecode(b"a\xffb")):
            assert project.real(*project.playing(SUCCEEDS)).code == 0

    @pytest.mark.parametrize("place", [".ralph", ".ralph/runs", ".aiwg", ".aiwg/ralph", ".ralph/turn"])
    def test_file_in_the_place_of_a_directory_is_named(self, project: Project, place: str) -> None:
        path = project.root / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine\n")
        for command in (("status",), ("doctor",), loop("--agent-command", "touch done.txt", "--yes")):
            done = project.ralph(*command)
            assert done.code != 1, done.said
        if place != ".ralph/turn":
            assert done.code in (2, 7)
            assert str(path) in done.err
            assert path.read_text() == "mine\n"

    def test_a_directory_that_is_gone_is_named(self, project: Project) -> None:
        gone = project.root / "gone"
        gone.mkdir()
        command = f"cd {gone} && rmdir {gone} && {sys.executable} -P -m ralph status"
        done = subprocess.run(["sh", "-c", command], env=project.environment, capture_output=True, text=True)
        assert done.returncode != 1
        assert "Traceback" not in done.stderr

    def test_without_git_a_run_says_how_to_continue_and_can(self, project: Project) -> None:
        tools = project.home / "tools"
        tools.mkdir()
        for tool in ("test", "touch", "sh", "cat", "env"):
            (tools / tool).symlink_to(str(shutil.which(tool)))
        done = project.play(SUCCEEDS, PATH=str(tools))
        assert done.code == 2
        assert "--no-snapshots" in done.err
        assert project.runs == [], "a run that could not begin is no candidate for a resume"
        assert project.play(SUCCEEDS, "--no-snapshots", PATH=str(tools)).code == 0
        assert project.ralph("status", PATH=str(tools)).code == 0
        assert project.ralph("doctor", PATH=str(tools)).code == 2

    def test_a_read_only_disk_is_named(self, project: Project) -> None:
        if (
            os.geteuid() != 0
            or subprocess.run(["mount", "--bind", project.root, project.root], capture_output=True).returncode
        ):
            pytest.skip("needs to mount, which needs root")
        try:
            subprocess.run(["mount", "-o", "remount,ro,bind", project.root], check=True)
            done = project.play(SUCCEEDS)
            assert done.code == 7
            assert ".ralph" in done.err
            assert "ead-only" in done.err
            assert "make the disk writable, then start again" in done.err, "there is no run to resume"
            assert project.ralph("status").code == 0
            doctor = project.ralph("doctor")
            assert (doctor.code, "not writable" in doctor.out) == (2, True)
        finally:
            subprocess.run(["umount", "-l", project.root], check=True)

    def test_a_repository_that_cannot_be_written_is_named_and_can_be_done_without(self, project: Project) -> None:
        git = project.root / ".git"
        if os.geteuid() != 0 or subprocess.run(["mount", "--bind", git, git], capture_output=True).returncode:
            pytest.skip("needs to mount, which needs root")
        try:
            subprocess.run(["mount", "-o", "remount,ro,bind", git], check=True)
            done = project.play(SUCCEEDS)
            assert (done.code, "make the disk writable, then start again" in done.err) == (7, True), done.said
            assert f"{git} is not writable" in project.ralph("doctor").out
            done = project.play(SUCCEEDS, "--no-snapshots")
            assert (done.code, "as untracked files" in done.out) == (0, True), done.said
        finally:
            subprocess.run(["umount", "-l", git], check=True)

    def test_a_link_in_place_of_a_lock_is_not_written_through(self, project: Project) -> None:
        victim = project.home / "victim"
        victim.write_text("precious\n")
        (project.root / ".ralph").mkdir()
        (project.root / ".ralph" / "tree.lock").symlink_to(victim)
        done = project.play(SUCCEEDS)
        assert victim.read_text() == "precious\n"
        assert done.code in (0, 2)

    @pytest.mark.parametrize("place", [".aiwg", ".aiwg/ralph"])
    def test_a_link_that_leads_out_of_the_project_is_not_followed(self, project: Project, place: str) -> None:
        """As a repository of somebody else may have one."""
        outside = project.home / "outside"
        outside.mkdir()
        (project.root / place).parent.mkdir(parents=True, exist_ok=True)
        (project.root / place).symlink_to(outside)
        done = project.play(SUCCEEDS)
        assert done.code in (2, 7), done.said
        assert list(outside.iterdir()) == []


JUNK = {
    "empty": b"",
    "truncated": b'{"schema": 1, "id": "26',
    "list": b"[]\n",
    "deep": b"[" * 100_000 + b"\n",
    "binary": b"\xff\xfe\0\n",
    "future": b'{"schema": 99}\n',
    "types": b'{"schema": 1, "seq": "x", "at": 5, "type": ["run.ended"], "run": {}, "agents": 5, "documents": 7, "line": 1}\n',
    "forged": b'{"seq": 1, "at": "2026-11-16T00:00:00Z", "type": "run.ended", "spent": [1], "outcome": {}}\n',
}


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """A project whose only run has reached its limit, and could go on."""
    for project in make_project(tmp_path_factory.mktemp("stopped")):
        project.never_ask()
        assert project.work("touch work.txt", "--max-iterations", "1").code == 3
        yield project


@pytest.fixture(scope="module")
def kept(stopped: Project, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copies of that project and of the user's state, from which each test gets both back."""
    place = tmp_path_factory.mktemp("kept")
    shutil.copytree(stopped.root, place / "root", symlinks=True)
    shutil.copytree(stopped.home, place / "home", symlinks=True)
    return place


@pytest.fixture
def copy(stopped: Project, kept: Path) -> Iterator[Project]:
    """The stopped project as it was, in the place in which its run was started: elsewhere it would only be claimed."""
    for name, place in (("root", stopped.root), ("home", stopped.home)):
        shutil.rmtree(place)
        shutil.copytree(kept / name, place, symlinks=True)
    project = Project(stopped.root, stopped.home)
    yield project
    project.end()


def spoil(path: Path, kind: str, victim: Path) -> None:
    """Put something else where a file of Ralph's was."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    match kind:
        case "directory":
            (path / "inside").mkdir(parents=True)
        case "link":
            path.symlink_to(victim)
        case "fifo":
            os.mkfifo(path)
        case "large":
            path.write_bytes(b" " * 9_000_000)
        case _:
            path.write_bytes(JUNK[kind])


class TestDamagedFiles:
    FIRST = ("types", "directory", "link")
    KINDS = (*FIRST, *(pytest.param(kind, marks=pytest.mark.slow) for kind in (*JUNK, "large") if kind != "types"))
    LOOKING = (("status",), ("status", "--json"), ("logs",), ("doctor",), ("diff",), ("clean", "--dry-run"))

    @pytest.mark.more_are_slow(3)
    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("name", ["run.json", "journal.jsonl"])
    def test_the_files_of_a_run(self, copy: Project, tmp_path: Path, name: str, kind: str) -> None:
        victim = tmp_path / "victim"
        victim.write_text("precious\n")
        run = copy.run
        spoil(run / name, kind, victim)
        for command in (*self.LOOKING, ("resume", run.name), ("abort", run.name), ("undo",)):
            done = copy.ralph(*command)
            assert done.code in (0, 2, 3, 7), f"{command}: {done.said}"
            if done.code == 2 and command[0] in ("resume", "abort"):
                assert name in done.err
                assert "next:" in done.err, f"{command}: {done.err}"
        assert victim.read_text() == "precious\n"
        assert copy.ralph("clean", run.name).code == 0
        assert copy.runs == []

    @pytest.mark.more_are_slow(5)
    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("name", ["commit.json", "state.json", "current-loop.json", "lock", "tree.lock"])
    def test_files_that_are_read_to_continue(self, copy: Project, tmp_path: Path, name: str, kind: str) -> None:
        victim = tmp_path / "victim"
        victim.write_text("precious\n")
        run, loops = copy.run, copy.root / ".aiwg" / "ralph"
        paths = {
            "commit.json": run / name,
            "lock": run / name,
            "state.json": loops / "loops" / run.name / name,
            "current-loop.json": loops / name,
            "tree.lock": copy.root / ".ralph" / name,
        }
        spoil(paths[name], kind, victim)
        assert copy.ralph("status").code == 0
        done = copy.ralph("resume")
        assert done.code in (2, 3), done.said
        if done.code == 2:
            assert name in done.err
            assert "next:" in done.err, done.err
        assert victim.read_text() == "precious\n"

    @pytest.mark.more_are_slow(2)
    @pytest.mark.parametrize("name", ["run.json", "journal.jsonl", "lock", "commit.json"])
    def test_a_pipe_in_place_of_a_file_is_not_waited_for(self, copy: Project, name: str) -> None:
        spoil(copy.run / name, "fifo", copy.root)
        for command in ("status", "resume"):
            assert copy.real(command).code in (0, 2)

    def test_a_run_from_the_future_is_refused_by_its_version(self, copy: Project) -> None:
        path = copy.run / "run.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "schema": 2}))
        done = copy.ralph("resume", copy.run.name)
        assert (done.code, "schema version 2" in done.err) == (2, True)

    @pytest.mark.parametrize("workspace", ["../outside", "OUTSIDE", "no-such-directory", "\0"])
    def test_a_run_whose_workspace_leads_elsewhere_is_refused_and_nothing_is_written_there(
        self, copy: Project, tmp_path: Path, workspace: str
    ) -> None:
        outside = tmp_path / "outside"
        outside.mkdir()
        path = copy.run / "run.json"
        changed = {**json.loads(path.read_text()), "workspace": workspace.replace("OUTSIDE", str(outside))}
        path.write_text(json.dumps(changed))
        for command in ("resume", "abort", "undo"):
            done = copy.ralph(command, copy.run.name)
            assert done.code == 2, f"{command}: {done.said}"
        assert list(outside.iterdir()) == []
        assert not (copy.root / "no-such-directory").exists()

    def test_a_torn_last_line_is_set_aside_and_the_run_continues(self, copy: Project) -> None:
        journal = copy.run / "journal.jsonl"
        before = journal.read_bytes()
        journal.write_bytes(before + b'{"seq": 99, "at": "20')
        assert copy.ralph("status").code == 0
        assert copy.ralph("resume").code == 3
        assert journal.read_bytes().startswith(before)

    def test_a_changed_line_is_evident(self, copy: Project) -> None:
        journal = copy.run / "journal.jsonl"
        journal.write_text(journal.read_text().replace('"failed"', '"passed"', 1))
        done = copy.ralph("resume")
        assert done.code == 2
        assert re.search(r"line \d", done.err)
        assert copy.ralph("doctor").code == 2

    def test_stray_files_among_the_runs_are_not_runs(self, copy: Project) -> None:
        runs = copy.run.parent
        (runs / "notes.txt").write_text("x")
        (runs / "261116-000000-zzzz").write_text("a file")
        (runs / "261116-000001-zzzz").symlink_to("/etc")
        (runs / "261116-000002-zzzz").mkdir()
        (runs / "..x").mkdir()
        for command in self.LOOKING:
            assert copy.ralph(*command).code in (0, 2)
        assert copy.ralph("resume").code == 3, "a directory without run.json is no candidate"

    def test_latest_run_is_found_among_runs_of_the_same_second(self, copy: Project) -> None:
        first = copy.run
        later = first.with_name(first.name[:14] + "0000")
        earlier = first.rename(first.with_name(first.name[:14] + "ffff"))
        shutil.copytree(earlier, later)
        for run, moment in ((earlier, 100.0), (later, 100.5)):
            record = json.loads((run / "run.json").read_text())
            (run / "run.json").write_text(json.dumps({**record, "id": run.name, "created_at": moment}))
        rows = copy.ralph("status", "--json").json["runs"]
        assert [row["run"] for row in rows] == [earlier.name, later.name]


class TestCleanAndDoctor:
    def test_clean_keeps_the_latest_and_resumable_runs(self, project: Project) -> None:
        resumable = project.play(NEVER_DONE, "--max-iterations", "1", "--json").json["run"]
        (project.root / "done.txt").touch()
        assert project.play(SUCCEEDS).code == 0
        [last] = [run.name for run in project.runs if run.name != resumable]
        ended = ["260101-000000-bbbb", "260101-000001-aaaa", last]
        snapshot = project.git("rev-parse", f"refs/ralph/{last}").strip()
        for name in ended[:2]:
            shutil.copytree(project.runs[-1].with_name(last), project.runs[-1].with_name(name))
            path = project.runs[-1].with_name(name) / "run.json"
            path.write_text(json.dumps({**json.loads(path.read_text()), "id": name}))
            project.git("update-ref", f"refs/ralph/{name}", snapshot)
        assert project.ralph("clean").out.startswith("Removed 0 runs")
        dry = project.ralph("clean", "--keep", "1", "--older-than", "0", "--dry-run", "--json").json
        assert dry["removed"] == ended[:2]
        assert len(project.runs) == 4
        done = project.ralph("clean", "--keep", "1", "--older-than", "0", "--json").json
        assert done["removed"] == ended[:2]
        assert [run.name for run in project.runs] == sorted([ended[2], resumable])
        assert project.git("for-each-ref", "--format=%(refname)", "refs/ralph").split() == [
            f"refs/ralph/{name}" for name in sorted([ended[2], resumable])
        ]
        assert project.ralph("clean", "--keep", "0", "--older-than", "0").code == 0
        assert [run.name for run in project.runs] == [resumable]
        assert project.ralph("resume").code == 0
        assert project.ralph("clean", resumable).code == 0
        assert project.runs == []
        assert not list((project.root / ".ralph" / "runs").iterdir())

    def test_clean_does_not_lose_work_that_is_not_merged(self, project: Project) -> None:
        project.play(SUCCEEDS, "--worktree")
        run = project.run
        branch = json.loads((run / "run.json").read_text())["branch"]
        done = project.ralph("clean", run.name)
        assert "not merged" in done.out
        assert project.git("show", f"{branch}:done.txt") == "done\n"

    def test_clean_does_not_touch_a_run_in_progress(self, project: Project) -> None:
        engine = project.start(*project.working("while [ ! -e go ]; do sleep 0.02; done; touch done.txt"))
        while not project.journal("turn.started"):
            time.sleep(0.02)
        assert project.ralph("clean", "--keep", "0", "--older-than", "0").code == 0
        assert project.ralph("clean", project.run.name).code == 2
        assert project.ralph("undo").code == 2
        (project.root / "go").touch()
        engine.communicate(timeout=120)
        assert engine.returncode == 0

    def test_doctor_finds_a_healthy_project_healthy(self, project: Project) -> None:
        (project.root / "ralph.yml").write_text("agent_command: cat\n")
        done = project.ralph("doctor")
        assert done.code == 0, done.said
        subjects = {line.split()[1] for line in done.out.splitlines()}
        assert subjects >= {"ralph", "system", "git", "disk", "ralph.yml", "agent"}
        marks = {line.split()[2]: line.split()[0] for line in done.out.splitlines() if " agent " in line}
        assert (marks["amp:"], marks["scripted:"]) == ("-", "ok"), "what is not installed is no fault, and not fine"

    def test_doctor_names_broken_parts(self, copy: Project) -> None:
        (copy.run / "run.json").write_text("{")
        (copy.root / "ralph.yml").write_text("agent: nobody\n")
        done = copy.ralph("doctor")
        assert done.code == 2
        assert copy.run.name in done.out
        assert "nobody" in done.out


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Project]:
    """A project on a disk of its own, of 4 MiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if (
        os.geteuid() != 0
        or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", disk], capture_output=True).returncode
    ):
        pytest.skip("needs to mount a small disk, which needs root")
    try:
        for project in make_project(disk):
            project.home = tmp_path / "home"
            project.home.mkdir()
            yield project
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


class TestFullDisk:
    FILL = "dd if=/dev/zero of=fill bs=64k 2> /dev/null; dd if=/dev/zero of=fill2 bs=1 count=4096 2> /dev/null"

    @pytest.mark.parametrize("snapshots", [(), ("--no-snapshots",)], ids=["snapshots", "plain"])
    def test_a_run_that_fills_the_disk_pauses_and_continues_when_there_is_room(
        self, small_disk: Project, snapshots: tuple[str, ...]
    ) -> None:
        project = small_disk
        project.git("config", "core.excludesFile", str(project.home / "ignored"))
        (project.home / "ignored").write_text("fill*\n")
        done = project.work(f"touch done.txt; test -e filled || {{ touch filled; {self.FILL}; }}", *snapshots)
        assert done.code == 7, done.said
        assert "ralph resume" in done.said
        for name in ("fill", "fill2"):
            (project.root / name).unlink(missing_ok=True)
        again = project.ralph("resume")
        assert again.code == 0, again.said
        assert project.living() == []

    @pytest.mark.slow
    def test_a_disk_with_hardly_any_room_breaks_nothing(self, small_disk: Project) -> None:
        """Page by page: at each the run pauses, or goes on, and never says that it is a defect of Ralph."""
        project = small_disk
        assert project.work("echo >> work.txt", "--max-iterations", "1", "--no-snapshots").code == 3
        fill = project.root / "fill"
        with contextlib.suppress(OSError), fill.open("wb", buffering=0) as file:
            while file.write(b"\0" * 4096) == 4096:
                pass
        size = fill.stat().st_size
        for pages in (0, 1, 2, 4, 6, 9):
            os.truncate(fill, size - 4096 * pages)
            done = project.ralph("resume")
            assert done.code in (3, 7), f"with {pages} pages: {done.said}"
        fill.unlink()
        assert project.ralph("resume").code == 3
        (project.root / "done.txt").touch()
        assert project.ralph("doctor").code in (0, 2)
        turns = [entry["turn"] for entry in project.journal("turn.started")]
        assert turns == sorted(set(turns))


class TestWithoutUntil:
    def test_criterion_in_the_task_is_extracted_and_shown(self, project: Project) -> None:
        done = project.ralph(
            "loop", "Make the file until test -f done.txt passes.", "--agent-command", "touch done.txt", "--yes"
        )
        assert done.code == 0, done.said
        assert "the task names the criterion: `test -f done.txt` passes" in done.out
        assert "- Changes: 1 file, +0, -0 (done.txt)" in done.out

    def test_without_one_the_commands_of_this_repository_are_proposed(self, project: Project) -> None:
        (project.root / "Makefile").write_text("test:\nlint:\n")
        done = project.ralph("loop", "Make it nice", "--agent-command", "true", "--yes")
        assert done.code == 2
        assert "add --until '`make test` passes AND `make lint` passes'" in done.err

    @pytest.mark.parametrize("task", ["Make test -f done.txt pass", "Get `test -f done.txt` to pass, quickly"])
    def test_a_command_that_the_task_wants_to_pass_is_the_criterion(self, project: Project, task: str) -> None:
        done = project.ralph("loop", task, "--agent-command", "true", "--yes", "--dry-run")
        assert done.code == 0, done.said
        assert "the task names the criterion: `test -f done.txt` passes" in done.out

    def test_a_criterion_in_the_task_that_cannot_be_verified_is_said_to_be_there(self, project: Project) -> None:
        done = project.ralph("loop", "Work on it until everything is fine", "--agent-command", "true", "--yes")
        assert (done.code, "where: the task" in done.err, "where: --until" in done.err) == (2, True, False)
