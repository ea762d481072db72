"""`ralph loop` and what people do with its runs, through the real command line with real agents."""

import contextlib
import hashlib
import http.server
import io
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from ralph.cli.main import main
from ralph.store import locks

RALPH = Path(sys.executable).with_name("ralph")
MARK = "CLI_TEST"
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
DONE = "`test -f done.txt`"
SUCCEEDS = """
turns:
  - steps:
      - say: I make the file.
      - write: {path: done.txt, content: "done\\n"}
      - answer: {summary: Made the file.}
      - usage: {input_tokens: 100, output_tokens: 20, cost: 0.01}
"""
NEVER_DONE = """
turns:
  - steps:
      - write: {path: work.txt, content: "not what was asked for\\n"}
      - answer: {summary: All done!}
      - usage: {input_tokens: 100, output_tokens: 20, cost: 0.01}
"""


def eventually(condition: Callable[[], object], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


@dataclass(frozen=True)
class Done:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        [line] = self.out.splitlines()
        data: dict[str, Any] = json.loads(line)
        assert data["schema"] == 1
        return data

    @property
    def said(self) -> str:
        return self.out + self.err


@dataclass
class Project:
    """A directory, and the real command line in it."""

    root: Path
    home: Path
    mark: str = field(default_factory=lambda: f"cli-test-{uuid.uuid4().hex}")
    extra: dict[str, str] = field(default_factory=dict)
    started: "list[subprocess.Popen[str]]" = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("RALPH_", "GIT_", "XDG_STATE_"))
        }
        own = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1", "HOME": str(self.home), MARK: self.mark}
        return {**kept, **own, "RALPH_SANDBOX": os.environ["RALPH_SANDBOX"], **self.extra}

    def start(self, *args: str, cwd: Path | None = None, **variables: str) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [str(RALPH), *args],
            cwd=cwd or self.root,
            env={**self.environment, **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.started.append(process)
        return process

    def real(self, *args: str, cwd: Path | None = None, timeout: float = 120, **variables: str) -> Done:
        """Run a command to its end, in a process of its own."""
        with self.start(*args, cwd=cwd, **variables) as process:
            try:
                out, err = process.communicate(timeout=timeout)
            except subprocess.TimeoutExpired:
                process.kill()
                out, err = process.communicate()
                pytest.fail(f"`ralph {' '.join(args)}` did not end:\n{out}\n{err}")
        assert "Traceback" not in err, err
        return Done(process.returncode, out, err)

    def ralph(self, *args: str, cwd: Path | None = None, **variables: str) -> Done:
        """The same in this process, which is quicker; keepers, agents and checks are real processes all the same."""
        out, err = io.StringIO(), io.StringIO()
        before = os.getcwd()
        os.chdir(cwd or self.root)
        try:
            with (
                mock.patch.dict(os.environ, {**self.environment, **variables}, clear=True),
                mock.patch.object(sys, "argv", [str(RALPH), *args]),
                contextlib.redirect_stdout(out),
                contextlib.redirect_stderr(err),
                pytest.raises(SystemExit) as left,
            ):
                main()
        finally:
            os.chdir(before)
        assert "Traceback" not in err.getvalue(), f"`ralph {' '.join(args)[:200]}`: {err.getvalue()}"
        return Done(left.value.code if isinstance(left.value.code, int) else 0, out.getvalue(), err.getvalue())

    def never_ask(self) -> None:
        """Have the user's own settings agree to everything."""
        path = self.home / ".config" / "ralph" / "config.yml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("permissions: full-auto\n")

    def scenario(self, text: str) -> str:
        """A scenario file, beside the project."""
        path = self.home / f"scenario-{len(list(self.home.iterdir()))}.yaml"
        path.write_text(text)
        return str(path)

    def agent(self, script: str) -> str:
        """An agent in shell, for --agent-command."""
        path = self.home / f"agent-{len(list(self.home.iterdir()))}.sh"
        path.write_text(script)
        return shlex.join(["/bin/sh", str(path)])

    def play(self, scenario: str, *args: str, until: str = DONE, **variables: str) -> Done:
        """A loop with the scripted agent."""
        return self.ralph(*self.playing(scenario, *args, until=until), **variables)

    def playing(self, scenario: str, *args: str, until: str = DONE, task: str = "the task") -> tuple[str, ...]:
        return ("loop", task, "--until", until, "--scenario", self.scenario(scenario), "--yes", *args)

    def work(self, script: str, *args: str, until: str = DONE, **variables: str) -> Done:
        """A loop with a shell script as the agent."""
        return self.ralph(*self.working(script, *args, until=until), **variables)

    def working(self, script: str, *args: str, until: str = DONE, task: str = "the task") -> tuple[str, ...]:
        return ("loop", task, "--until", until, "--agent-command", self.agent(script), "--yes", *args)

    @property
    def runs(self) -> list[Path]:
        directory = self.root / ".ralph" / "runs"
        return sorted(directory.iterdir()) if directory.exists() else []

    @property
    def run(self) -> Path:
        [only] = self.runs
        return only

    def journal(self, *types: str, run: Path | None = None) -> list[dict[str, Any]]:
        """What was journaled; nothing while there is no run yet."""
        if run is None and not self.runs:
            return []
        try:
            # The last line may just be being written.
            lines = ((run or self.run) / "journal.jsonl").read_bytes().split(b"\n")[:-1]
        except FileNotFoundError:
            return []
        records = [json.loads(line) for line in lines]
        return [record for record in records if not types or record["type"] in types]

    def turn(self, number: int = 1, run: Path | None = None) -> Path:
        return next(((run or self.run) / "turns").glob(f"{number:05d}-*"))

    def git(self, *args: str, cwd: Path | None = None) -> str:
        command = ["git", "-c", "user.name=U", "-c", "user.email=u@example.org", *args]
        done = subprocess.run(command, cwd=cwd or self.root, env=self.environment, capture_output=True, check=True)
        return done.stdout.decode()

    def living(self, mark: str = "") -> list[int]:
        """The processes of this test; those with another mark in their environment, where one is given."""
        wanted = (mark or f"{MARK}={self.mark}").encode()
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                items = (entry / "environ").read_bytes().split(b"\0")
                if any(item.startswith(wanted) for item in items) and is_alive(int(entry.name)):
                    found.append(int(entry.name))
        return [pid for pid in found if pid != os.getpid()]

    def end(self) -> None:
        """Kill every process of this test."""
        for _ in range(200):
            if not (left := self.living()):
                return
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)


@cache
def repository_template() -> Path:
    """A repository with the first commit of every project: a copy of it is quicker than three git commands."""
    root = Path(tempfile.mkdtemp(prefix="template-", dir=os.environ["XDG_STATE_HOME"]))
    (root / "README").write_text("first\n")
    project = Project(root, root)
    project.git("init", "-q", "-b", "main")
    project.git("add", "README")
    project.git("commit", "-q", "-m", "first")
    return root


def make_project(tmp_path: Path, *, with_git: bool = True, name: str = "project") -> Iterator[Project]:
    """A project with one commit, and whatever it started ended afterwards."""
    project = Project(tmp_path / name, tmp_path / "home")
    project.root.mkdir(parents=True)
    project.home.mkdir()
    if os.environ["RALPH_SANDBOX"] != "off":
        # The agents of these tests leave notes in the home directory.
        (project.home / ".config" / "ralph").mkdir(parents=True)
        (project.home / ".config" / "ralph" / "config.yml").write_text("sandbox: {writable: ['~']}\n")
    (project.root / "README").write_text("first\n")
    if with_git:
        shutil.copytree(repository_template() / ".git", project.root / ".git", symlinks=True)
    try:
        yield project
    finally:
        project.end()
        for process in project.started:
            for pipe in (process.stdout, process.stderr):
                if pipe:
                    pipe.close()
            process.wait()


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    yield from make_project(tmp_path)


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[Project]:
    yield from make_project(tmp_path, with_git=False)


def fingerprint(root: Path) -> dict[str, str]:
    """Every file below a directory with its content, mode and time."""
    found = {}
    for path in sorted(root.rglob("*")):
        status = path.lstat()
        content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() and not path.is_symlink() else ""
        found[str(path.relative_to(root))] = f"{status.st_mode} {status.st_mtime_ns} {content}"
    return found


class TestVerdict:
    def test_work_that_the_checks_confirm_is_a_success_with_evidence(self, project: Project) -> None:
        done = project.real(*project.playing(SUCCEEDS))
        assert done.code == 0
        assert "COMPLETE" in done.out
        [report] = (project.root / ".aiwg" / "ralph").glob("completion-*.md")
        assert "Made the file." in report.read_text()
        assert "test -f done.txt" in report.read_text()
        assert str(report.relative_to(project.root)) in done.out
        [ended] = project.journal("run.ended")
        spent = ended["spent"]
        assert (ended["outcome"], spent["iterations"], spent["cost"], spent["input_tokens"]) == (
            "success",
            1,
            0.01,
            100,
        )
        assert project.git("status", "--short") == "?? done.txt\n"
        assert project.living() == []

    def test_a_criterion_that_is_met_already_costs_nothing(self, project: Project) -> None:
        (project.root / "done.txt").touch()
        done = project.play(SUCCEEDS)
        assert done.code == 0
        assert project.journal("turn.started") == []
        assert project.journal("run.ended")[0]["outcome"] == "nothing-to-do"

    def test_an_agent_that_only_says_so_runs_into_the_limit(self, project: Project) -> None:
        done = project.play(NEVER_DONE, "--max-iterations", "2")
        assert done.code == 3
        assert len(project.journal("turn.started")) == 2
        assert "ralph resume" in done.out
        assert "All done!" in project.turn(2).joinpath("prompt.md").read_text(), "what was tried before is told"

    def test_all_checks_are_run_and_each_must_pass(self, project: Project) -> None:
        done = project.play(SUCCEEDS, "--max-iterations", "1", until="`test -f done.txt` AND `test -f more.txt`")
        assert done.code == 3
        last = project.journal("checks.ended")[-1]["verdict"]["results"]
        assert [result["status"] for result in last] == ["passed", "failed"]

    def test_a_check_whose_program_is_missing_verifies_nothing(self, project: Project) -> None:
        done = project.play(SUCCEEDS, until="`no-such-tool --check`")
        assert done.code == 5
        assert "no-such-tool" in done.out
        assert project.journal("turn.started") == []

    def test_a_check_that_the_agent_has_yet_to_write_is_only_failing(self, project: Project) -> None:
        write = 'mkdir -p app; printf "#!/bin/sh\\nexit 0\\n" > app/check.sh; chmod +x app/check.sh'
        (project.root / "app").mkdir()
        done = project.work(write, until="`cd app && ./check.sh`")
        assert "FAIL `cd app && ./check.sh`" in done.out
        assert (done.code, "the judge did not say anything about app/check.sh" in done.out) == (7, True), done.said

    def test_a_check_that_runs_too_long_is_ended(self, project: Project) -> None:
        done = project.work("true", "--check-timeout", "0.3", "--max-iterations", "1", until="`sleep 300`")
        assert "still running" in done.out
        assert project.living() == []

    def test_money_is_a_limit_that_ends_a_turn(self, project: Project) -> None:
        scenario = "turns:\n  - steps:\n      - usage: {cost: 0.5}\n      - sleep: 300\n"
        done = project.play(scenario, "--max-cost", "0.3")
        assert done.code == 3
        assert project.journal("run.ended")[0]["spent"]["cost"] == 0.5
        assert project.journal("turn.ended")[0]["result"]["end"] == "cut"

    def test_the_agent_is_tried_again_at_once_when_it_fails_the_first_time(self, project: Project) -> None:
        process = project.start(*project.working("echo went wrong >&2; exit 3"))
        eventually(lambda: len(project.journal("turn.ended")) == 2)
        first, second = project.journal("turn.started")[:2]
        ended = project.journal("turn.ended")
        assert (first["attempt"], second["attempt"]) == (1, 2)
        assert (ended[0]["result"]["end"], ended[0]["result"]["code"]) == ("failed", 3)
        assert "went wrong" in ended[0]["result"]["error"]
        assert ended[1]["retry_at"] > time.time()
        assert project.ralph("abort").code == 0
        process.communicate(timeout=120)
        assert process.returncode == 8
        assert len(project.journal("turn.started")) == 2
        assert project.journal("run.ended")[0]["spent"].get("iterations", 0) == 0

    def test_an_agent_program_that_is_gone_is_unavailable(self, project: Project) -> None:
        agent = project.home / "agent"
        agent.write_text("#!/no/such/interpreter\n")
        agent.chmod(0o755)
        done = project.ralph("loop", "t", "--until", DONE, "--agent-command", str(agent), "--yes")
        assert done.code == 6
        assert "Iterations completed: 0\n" in done.out

        agent.write_text("#!/bin/sh\ntouch done.txt\n")
        done = project.ralph("resume")
        assert done.code == 0, done.said
        assert "Ralph Loop: Iteration 1/10" in done.out and "Iterations: 1\n" in done.out


class TestTheTurn:
    def test_a_large_prompt_reaches_standard_input_whole(self, project: Project) -> None:
        (project.root / ".ralph" / "prompts").mkdir(parents=True)
        template = "{{task}}\n" + "filler line\n" * 17_000 + "{{checks}}\nTHE END"
        (project.root / ".ralph" / "prompts" / "loop-actor.md").write_text(template)
        task = "begin " + "x" * 110_000 + " end of the task ü"
        agent = project.agent("cat > got.txt; touch done.txt")
        done = project.ralph("loop", task, "--until", DONE, "--agent-command", agent, "--yes")
        assert done.code == 0
        got = (project.root / "got.txt").read_text()
        assert len(got) > 300_000
        assert got == project.turn().joinpath("prompt.md").read_text()
        assert got.startswith(task)
        # Behind it is only the paragraph for agents without hooks.
        assert 0 < len(got.partition("THE END\n")[2]) < 1000

    def test_diff_shows_file_names_as_they_are(self, project: Project) -> None:
        assert project.work("echo x > größe.txt; touch done.txt").code == 0
        assert "+++ b/größe.txt" in project.ralph("diff").out
        assert "größe.txt | 1 +" in " ".join(project.ralph("diff", "--stat").out.split())

    def test_the_answer_is_filed_and_its_form_is_in_the_inbox(self, project: Project) -> None:
        look = "cp $RALPH_INBOX/result.schema.json schema.json; ls -A .ralph/turn > desk.txt; "
        answer = """echo '{"summary": "did it", "learned": "a lot"}' > $RALPH_OUTBOX/result.json"""
        done = project.work(f"{look}{answer}; echo note > $RALPH_OUTBOX/note.md; touch done.txt")
        assert done.code == 0
        assert "did it" in done.out
        assert "summary" in json.loads((project.root / "schema.json").read_text())["properties"]
        assert (project.root / "desk.txt").read_text().split() == ["inbox", "outbox"]
        outbox = project.turn() / "outbox"
        assert json.loads((outbox / "result.json").read_text())["learned"] == "a lot"
        assert (outbox / "note.md").read_text() == "note\n"
        assert not (project.root / ".ralph" / "turn").exists()

    def test_broken_answer_is_repaired_in_a_turn_that_does_not_count_as_an_iteration(self, project: Project) -> None:
        done = project.play(
            """
turns:
  - when: {turn: 1}
    steps:
      - write: {path: done.txt, content: x}
      - answer_raw: "{broken"
  - steps:
      - answer: {summary: now it fits}
"""
        )
        assert done.code == 0
        assert [turn.get("is_repair", False) for turn in project.journal("turn.started")] == [False, True]
        assert project.journal("run.ended")[0]["spent"]["iterations"] == 1
        prompt = project.turn(2).joinpath("prompt.md").read_text()
        assert "not valid JSON" in prompt
        assert "result.schema.json" in prompt
        assert "now it fits" in done.out

    def test_an_answer_that_stays_broken_does_not_stop_the_work(self, project: Project) -> None:
        broken = "turns:\n  - steps:\n      - write: {path: done.txt, content: x}\n      - answer: {summary: 5}\n"
        done = project.play(broken)
        assert done.code == 0
        assert len(project.journal("turn.started")) == 2

    def test_turn_has_its_role_and_finds_ralph(self, project: Project) -> None:
        script = """
env | grep ^RALPH_ | sort > env.txt
"$RALPH_BIN" status --json > status.json
ralph status > /dev/null && echo found > found.txt
"$RALPH_BIN" loop again --until '`true`' --agent-command true --yes 2> refused.txt; echo $? >> refused.txt
"$RALPH_BIN" resume 2> /dev/null; echo $? >> refused.txt
touch done.txt
"""
        assert project.work(script).code == 0
        run, root = project.run.name, project.root
        told = dict(line.split("=", 1) for line in (root / "env.txt").read_text().splitlines())
        assert Path(told.pop("RALPH_BIN")).exists()
        assert told == {
            "RALPH_RUN": run,
            "RALPH_TURN": f"{run}/00001",
            "RALPH_ROLE": "implementer",
            "RALPH_TASK": "",
            "RALPH_HAT": "",
            "RALPH_ATTEMPT": "1",
            "RALPH_INBOX": str(root / ".ralph/turn/inbox"),
            "RALPH_OUTBOX": str(root / ".ralph/turn/outbox"),
            "RALPH_MESSAGES": str(root / f".ralph/runs/{run}/turns/00001-implementer/messages"),
            "RALPH_EVENTS_FILE": str(root / ".ralph/turn/outbox/events.jsonl"),
            "RALPH_WORKSPACE_ROOT": str(root),
        }
        [row] = json.loads((root / "status.json").read_text())["runs"]
        assert (row["run"], row["state"]) == (run, "running")
        assert (root / "found.txt").exists()
        refused = (root / "refused.txt").read_text()
        assert "an agent cannot start" in refused
        assert refused.split()[-2:] == ["2", "2"]

    def test_a_turn_finds_the_programs_that_its_checks_find(self, project: Project) -> None:
        look = 'command -v python3 > "$0"'
        project.work(
            f"sh -c '{look}' turn.txt", until="`command -v python3 > check.txt; test -f turn.txt`", PATH=SYSTEM_PATH
        )
        assert (project.root / "turn.txt").read_text() == (project.root / "check.txt").read_text()

    @pytest.mark.slow
    def test_modules_of_the_project_do_not_replace_pythons_own(self, project: Project) -> None:
        for name in ("json", "socket", "signal", "selectors", "subprocess", "types", "asyncio", "yaml", "click"):
            (project.root / f"{name}.py").write_text(f"raise SystemExit('{name} of the project was imported')\n")
        assert project.play(SUCCEEDS).code == 0
        (project.root / "done.txt").unlink()
        assert project.real(*project.playing(SUCCEEDS, "--detach")).code == 0
        eventually(lambda: (project.root / "done.txt").exists())

    def test_a_turn_leaves_nothing_running(self, project: Project) -> None:
        mark = f"300.{uuid.uuid4().int % 10**9:09d}"
        script = f"(setsid sleep 300 &) ; env -i setsid sleep {mark} & sleep 0.2; touch done.txt"
        done = project.work(script)
        assert done.code == 0
        assert "2 leftover processes ended" in done.out
        assert project.living() == []
        found = subprocess.run(["pgrep", "-f", f"sleep {mark}"], capture_output=True).stdout.split()
        assert not [pid for pid in found if is_alive(int(pid))]


@pytest.fixture
def ssh(project: Project) -> Path:
    """A file that exists as soon as git tried to reach another machine by ssh."""
    program, called = project.home / "ssh", project.home / "called"
    program.write_text(f'#!/bin/sh\necho "$@" >> {called}\nexit 1\n')
    program.chmod(0o755)
    project.extra["GIT_SSH_COMMAND"] = str(program)
    return called


class TestPush:
    PUSH = "git push REMOTE HEAD:refs/heads/x > push.txt 2>&1 && echo PUSHED >> push.txt\n"

    def test_a_turn_cannot_push_by_ssh(self, project: Project, ssh: Path) -> None:
        hosts = ("ssh://git@one/x", "git@two:x", "deploy@three:x", "four:x", "git+ssh://five/x", "ssh+git://six/x")
        assert project.work("".join(self.PUSH.replace("REMOTE", host) for host in hosts) + "touch done.txt").code == 0
        assert not ssh.exists(), ssh.read_text()

    def test_a_turn_cannot_push_by_http(self, project: Project) -> None:
        asked: list[str] = []

        class Server(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked.append(self.path)
                self.send_error(404)

            def log_message(self, *_: object) -> None: ...

        with http.server.HTTPServer(("127.0.0.1", 0), Server) as server:
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            try:
                assert (
                    project.work(
                        self.PUSH.replace("REMOTE", f"http://127.0.0.1:{server.server_port}/x.git") + "touch done.txt"
                    ).code
                    == 0
                )
            finally:
                server.shutdown()
                thread.join()
        assert asked == []
        assert "ralph-does-not-let-agents-push" in (project.root / "push.txt").read_text()

    def test_own_push_url_does_not_bypass_the_guard(self, project: Project, ssh: Path) -> None:
        project.git("remote", "add", "origin", "https://localhost:1/x.git")
        project.git("remote", "set-url", "--push", "origin", "git@localhost:x.git")
        assert project.work(self.PUSH.replace("REMOTE", "origin") + "touch done.txt").code == 0
        assert not ssh.exists(), "git called ssh"

    def test_url_rewriting_of_the_user_does_not_bypass_the_guard(self, project: Project, ssh: Path) -> None:
        project.git("config", "url.git@localhost:.pushInsteadOf", "https://localhost:1/")
        assert project.work(self.PUSH.replace("REMOTE", "https://localhost:1/x.git") + "touch done.txt").code == 0
        assert not ssh.exists(), "git called ssh"

    def test_turn_can_push_if_the_settings_allow_it(self, project: Project, ssh: Path) -> None:
        fetch = "git fetch -q git@localhost:x.git 2> /dev/null; touch done.txt"
        assert project.work(fetch).code == 0
        assert "git-upload-pack" in ssh.read_text()
        (project.root / "done.txt").unlink()
        (project.root / "ralph.yml").write_text("push: true\n")
        assert project.work(self.PUSH.replace("REMOTE", "git@localhost:x.git") + "touch done.txt").code == 0
        assert "git-receive-pack" in ssh.read_text()


class TestBeforeTheRun:
    def test_a_dry_run_starts_and_writes_nothing(self, project: Project) -> None:
        before = fingerprint(project.root)
        done = project.play("turns:\n  - steps:\n      - run: touch started\n", "--dry-run", "--max-cost", "2")
        assert done.code == 0
        assert fingerprint(project.root) == before
        assert all(word in done.out for word in ("test -f done.txt", "the task", "10 iterations", "$2"))
        assert project.play(SUCCEEDS, "--dry-run", "--json").json["prompt"].startswith("You are")
        assert fingerprint(project.root) == before

    def test_start_without_a_terminal_for_consent_is_an_error(self, project: Project) -> None:
        args = ("loop", "t", "--until", DONE, "--scenario", project.scenario(SUCCEEDS))
        done = project.ralph(*args)
        assert done.code == 2
        assert "--yes" in done.err
        assert "permissions: full-auto" in done.err
        assert project.runs == []
        (project.root / "ralph.yml").write_text("permissions: full-auto\n")
        assert project.ralph(*args).code == 2, "a repository cannot agree for the user"
        project.never_ask()
        assert project.ralph(*args).code == 0

    def test_settings_of_the_project_hold_and_options_win(self, project: Project) -> None:
        project.never_ask()
        settings = f"scenario: {project.scenario(NEVER_DONE)}\nlimits: {{iterations: 1}}\n"
        (project.root / "ralph.yml").write_text(settings)
        assert project.ralph("loop", "t", "--until", DONE).code == 3
        assert len(project.journal("turn.started")) == 1
        done = project.ralph("loop", "t", "--until", DONE, "--scenario", project.scenario(SUCCEEDS), "--json")
        assert done.json["outcome"] == "success"


class TestDetached:
    def test_a_detached_run_continues_and_can_be_followed_to_its_end(self, project: Project) -> None:
        script = "echo working; while [ ! -e go ]; do sleep 0.02; done; touch done.txt"
        begun = project.real(*project.working(script, "--detach", "--max-tokens", "9"))
        assert "does not report tokens: Ralph cannot enforce --max-tokens" in begun.out
        assert begun.code == 0
        run = project.run.name
        assert f"ralph logs -f {run}" in begun.out
        eventually(lambda: project.journal("turn.started"))
        status = project.ralph("status", "--json").json["runs"][0]
        assert (status["state"], status["doing"]) == ("running", "turn 1 (implementer)")
        follower = project.start("logs", "-f")
        with contextlib.suppress(subprocess.TimeoutExpired):
            follower.wait(timeout=0.5)
        assert follower.poll() is None
        (project.root / "go").touch()
        out, _ = follower.communicate(timeout=120)
        assert follower.returncode == 0
        assert "  | working\n" in out, "what the agent says is in the stream"
        assert out.index("| working") < out.index("turn 1 finished") < out.index("ended: success")
        assert project.ralph("status", run).out.split()[1] == "success"
        eventually(lambda: not project.living())

    @pytest.mark.slow
    def test_a_detached_run_that_cannot_continue_says_why_with_its_own_code(self, project: Project) -> None:
        assert project.play(NEVER_DONE, "--max-iterations", "1").code == 3
        lock = locks.acquire(project.root / ".ralph" / "tree.lock", {"run": "another"})
        assert isinstance(lock, locks.Lock)
        done = project.real("resume", "--detach")
        lock.release()
        assert (done.code, "works in this tree" in done.err) == (10, True), done.said

    @pytest.mark.slow
    def test_a_detached_run_that_cannot_begin_says_why_with_its_own_code(self, project: Project) -> None:
        blocker = project.start(*project.working("sleep 300"))
        eventually(lambda: project.journal("turn.started"))
        done = project.real(*project.playing(SUCCEEDS, "--detach"))
        assert (done.code, "--worktree" in done.err) == (10, True), done.said
        blocker.kill()
        blocker.communicate()


class TestOneTree:
    def test_a_second_run_in_the_same_tree_is_refused_and_leaves_no_trace(self, project: Project) -> None:
        first = project.start(*project.working("while [ ! -e go ]; do sleep 0.02; done; touch done.txt"))
        eventually(lambda: project.journal("turn.started"))
        name = project.run.name
        done = project.play(SUCCEEDS)
        assert done.code == 10
        assert name in done.err
        assert "--worktree" in done.err
        (project.root / "go").touch()
        first.communicate(timeout=120)
        assert first.returncode == 0
        assert [run.name for run in project.runs] == [name]
        (project.root / "done.txt").unlink()
        assert project.play(SUCCEEDS).code == 0, "the tree is free again"

    def test_two_runs_work_at_once_in_trees_of_their_own_and_the_users_is_untouched(self, project: Project) -> None:
        (project.root / "README").write_text("dirty\n")
        (project.root / "staged").write_text("staged\n")
        project.git("add", "staged")
        (project.root / "staged").write_text("and changed again\n")
        (project.root / "untracked").write_text("mine\n")
        before = {path: text for path, text in fingerprint(project.root).items() if not path.startswith(".git")}
        index = project.git("ls-files", "-s")
        script = "echo $RALPH_RUN > README; touch here; while [ ! -e go ]; do sleep 0.02; done; touch done.txt"
        both = [project.start(*project.working(script, "--worktree")) for _ in range(2)]
        trees = project.root / ".ralph" / "worktrees"
        eventually(lambda: len(list(trees.glob("*/here"))) == 2)
        for tree in trees.iterdir():
            (tree / "go").touch()
        outs = [process.communicate(timeout=120)[0] for process in both]
        assert [process.returncode for process in both] == [0, 0]
        own = (".git", ".ralph", ".aiwg")
        assert {path: text for path, text in fingerprint(project.root).items() if not path.startswith(own)} == before
        assert project.git("ls-files", "-s") == index
        for run in project.runs:
            branch = project.journal("run.started", run=run) and json.loads((run / "run.json").read_text())["branch"]
            assert project.git("show", f"{branch}:README") == f"{run.name}\n"
            assert any(branch in out for out in outs)
            assert project.journal("document.edited", run=run) == [], "the runs wrote over each other's documents"

    def test_a_turn_in_a_worktree_finds_its_run(self, project: Project) -> None:
        script = '"$RALPH_BIN" status --json > status.json; pwd > where.txt; touch done.txt'
        assert project.work(script, "--worktree").code == 0
        tree = project.root / ".ralph" / "worktrees" / project.run.name
        [row] = json.loads((tree / "status.json").read_text())["runs"]
        assert (row["run"], row["state"]) == (project.run.name, "running")
        assert (tree / "where.txt").read_text() == f"{tree}\n"

    def test_a_worktree_needs_a_repository_with_a_commit(self, plain: Project) -> None:
        done = plain.play(SUCCEEDS, "--worktree")
        assert done.code == 2
        assert "git init" in done.err
        assert plain.runs == []


TWO_STEPS = """
turns:
  - when: {turn: 1}
    steps:
      - write: {path: README, content: "second\\n"}
      - write: {path: new.txt, content: "new\\n"}
      - answer: {summary: one}
  - steps:
      - write: {path: done.txt, content: "done\\n"}
      - delete: new.txt
      - answer: {summary: two}
"""


class TestTakingBack:
    @pytest.mark.parametrize("with_git", [True, False], ids=["git", "no-git"])
    def test_changes_are_shown_and_undone_turn_by_turn(self, tmp_path: Path, with_git: bool) -> None:
        for project in make_project(tmp_path, with_git=with_git):
            (project.root / "mine.txt").write_text("mine\n")
            assert project.play(TWO_STEPS).code == 0
            whole = project.ralph("diff").out
            assert "+second" in whole
            assert "+done" in whole
            assert "new.txt" not in whole
            assert "+new" in project.ralph("diff", "1").out
            assert "-new" in project.ralph("diff", "2").out
            assert "-new" in project.ralph("diff", project.run.name, "2").out
            assert "README" in project.ralph("diff", "--stat").out
            files = {"README", "mine.txt", "new.txt", "done.txt"}

            def tree(project: Project = project, files: set[str] = files) -> dict[str, str]:
                return {name: path.read_text() for name in files if (path := project.root / name).exists()}

            assert project.ralph("undo").code == 0
            assert tree() == {"README": "second\n", "mine.txt": "mine\n", "new.txt": "new\n"}
            assert project.ralph("undo").code == 0
            assert tree() == {"README": "first\n", "mine.txt": "mine\n"}
            third = project.ralph("undo")
            assert third.code == 2
            assert "nothing to undo" in third.err
            assert with_git != (project.root / ".ralph" / "git").exists()

    def test_later_changes_of_the_user_are_not_reverted(self, project: Project) -> None:
        project.play(SUCCEEDS)
        (project.root / "done.txt").write_text("my own version\n")
        done = project.ralph("undo")
        assert done.code == 2
        assert "done.txt" in done.err
        assert (project.root / "done.txt").read_text() == "my own version\n"
        assert project.ralph("undo", "--force").code == 0
        assert not (project.root / "done.txt").exists()

    def test_without_snapshots_nothing_is_recorded_and_a_notice_says_so(self, project: Project) -> None:
        assert project.play(SUCCEEDS, "--no-snapshots").code == 0
        assert project.git("for-each-ref", "refs/ralph") == ""
        assert project.git("status", "--short") == "?? done.txt\n"
        for command in ("diff", "undo"):
            done = project.ralph(command)
            assert done.code == 2
            assert "--no-snapshots" in done.err

    def test_the_users_index_branch_and_stash_are_untouched(self, project: Project) -> None:
        (project.root / "README").write_text("changed\n")
        project.git("add", "README")
        before = (project.git("ls-files", "-s"), project.git("show-ref", "--heads"), project.git("rev-parse", "HEAD"))
        project.play(SUCCEEDS)
        after = (project.git("ls-files", "-s"), project.git("show-ref", "--heads"), project.git("rev-parse", "HEAD"))
        assert after == before


class TestForPrograms:
    def test_every_command_prints_one_json_object(self, project: Project) -> None:
        ended = project.play(SUCCEEDS, "--json").json
        assert (ended["outcome"], ended["exit_code"], ended["spent"]["cost"]) == ("success", 0, 0.01)
        assert (project.root / ended["report"]).exists()
        run = ended["run"]
        assert project.ralph("status", "--json").json["runs"][0]["run"] == run
        assert project.ralph("status", run, "--json").json["runs"][0]["state"] == "success"
        assert "+done" in project.ralph("diff", "--json").json["diff"]
        assert project.ralph("doctor", "--json").json["findings"]
        assert project.ralph("undo", "--json").json["files"] == ["done.txt"]
        lines = [json.loads(line) for line in project.ralph("logs", "--json").out.splitlines()]
        assert [line["seq"] for line in lines] == list(range(1, len(lines) + 1))
        assert project.ralph("clean", "--dry-run", "--json").json["removed"] == []
        assert project.ralph("clean", run, "--json").json["removed"] == [run]

    @pytest.mark.parametrize(
        "args",
        [
            ("loop", "--json"),
            ("loop", "t", "--until", "it is nice", "--json"),
            ("loop", "t", "--until", "`true`", "--agent", "nobody", "--json"),
            ("status", "nope", "--json"),
            ("logs", "--json"),
            ("resume", "--json"),
            ("abort", "--json"),
            ("diff", "--json"),
            ("undo", "--json"),
            ("clean", "nope", "--json"),
            ("frobnicate", "--json"),
        ],
        ids=" ".join,
    )
    def test_an_error_is_a_json_object_too(self, project: Project, args: tuple[str, ...]) -> None:
        done = project.ralph(*args)
        error = done.json["error"]
        assert (done.code, error["exit_code"], error["outcome"]) == (2, 2, "usage")
        assert error["what"]
        assert error["todo"]


SECRET = "sk-live-4f9d8c7b6a5e"


class TestSecrets:
    @staticmethod
    def leaks(project: Project, secret: str) -> list[str]:
        places = [project.root / ".ralph", project.root / ".aiwg"]
        files = [path for place in places for path in place.rglob("*") if path.is_file()]
        return [str(path.relative_to(project.root)) for path in files if secret.encode() in path.read_bytes()]

    def test_a_secret_that_the_agent_prints_is_nowhere_on_the_disk(self, project: Project) -> None:
        script = """
env; env >&2
echo "{\\"summary\\": \\"used $MY_API_KEY\\", \\"more\\": \\"$MY_API_KEY\\"}" > $RALPH_OUTBOX/result.json
echo $MY_API_KEY > $RALPH_OUTBOX/notes.md
env > $RALPH_EVENTS_FILE
echo $MY_API_KEY > .ralph/turn/stray
printf '```json\\n{"summary": "%s"}\\n```\\n' $MY_API_KEY
echo $MY_API_KEY > printed-by-the-check.txt
touch done.txt
"""
        until = "`test -f done.txt && cat printed-by-the-check.txt`"
        assert project.work(script, until=until, MY_API_KEY=SECRET).code == 0
        assert (project.root / "printed-by-the-check.txt").read_text() == f"{SECRET}\n"
        assert self.leaks(project, SECRET) == []

    def test_a_secret_is_known_by_its_name_and_not_by_its_look(self, project: Project) -> None:
        """Keys of Amazon may begin with a slash; passwords have quotes and line ends, which JSON escapes."""
        secrets = {
            "AWS_SECRET_ACCESS_KEY": "/9Xk3bQ7+ZtR1s5VbNmA2",
            "TILDE_TOKEN": "~tilde-secret-value-1",
            "DB_PASSWORD": 'before"quoted\\zebra\nlast line',
        }
        steps = ["run: printenv AWS_SECRET_ACCESS_KEY TILDE_TOKEN DB_PASSWORD", "write: {path: done.txt, content: x}"]
        scenario = "turns:\n  - steps:\n" + "".join(f"      - {step}\n" for step in steps)
        assert project.play(scenario, **secrets).code == 0
        parts = ("/9Xk3bQ7+ZtR1s5VbNmA2", "tilde-secret-value-1", "zebra")
        assert {part: self.leaks(project, part) for part in parts} == {part: [] for part in parts}

    def test_a_secret_that_is_not_text_hinders_nothing(self, project: Project) -> None:
        assert project.work("touch done.txt", MY_TOKEN=os.fsdecode(b"\xff\xfe\xfd\xfc\xfb\xfa\xf9\xf8")).code == 0

    def test_checks_do_not_get_the_keys_of_agents(self, project: Project) -> None:
        keys = {"ANTHROPIC_API_KEY": "k" * 20, "OPENAI_API_KEY": "o" * 20, "RALPH_X": "x"}
        until = "`env | cut -d= -f1 | sort > names.txt; test -f done.txt`"
        assert project.work("touch done.txt", until=until, **keys).code == 0
        names = set((project.root / "names.txt").read_text().split())
        assert "HOME" in names
        assert not names & {*keys, "RALPH_TURN", "RALPH_RUN"}


class TestStrangeAgents:
    """Whatever an agent says or does, the engine stays in command: it is verified as any other, or ended in order."""

    @pytest.mark.slow
    def test_strange_output_of_an_agent_does_not_stop_the_engine(self, project: Project) -> None:
        lines = [
            r'{"type": "text", "text": "half a smiley \ud83d"}',
            r'{"type": "error", "message": "\udcff"}',
            '{"type": "usage", "input_tokens": 1e400, "cost": 1}',
            '{"type": "usage", "cost": 1e400}',
            '{"type": "usage", "input_tokens": "many", "cost": "much"}',
            '{"type": "usage", "cost": NaN}',
            '{"type": "text", "text": {"a": [1]}}',
            '{"type": ["text"]}',
            '{"type": "result", "text": "early", "is_error": true}',
            "[" * 100_000,
            '{"a":' * 100_000,
            "x" * 3_000_000,
        ]
        for number, line in enumerate(lines, 1):
            (project.home / f"{number:05d}").write_text(line + "\n")
        # A command's output goes to the scripted agent; this goes past it, into the agent's own stream.
        say = f"cat {project.home}/${{RALPH_TURN##*/}} > /proc/$PPID/fd/1"
        scenario = f"turns:\n  - steps:\n      - run: '{say}'\n      - run: 'echo >> lines'\n"
        done = project.play(
            scenario, "--max-iterations", "20", until=f"`wc -l lines; test $(wc -l < lines) -ge {len(lines)}`"
        )
        assert done.code == 0, f"after {len(project.journal('turn.started'))} lines: {done.said}"
        assert len(project.journal("turn.started")) == len(lines)

    @pytest.mark.more_are_slow(1)
    @pytest.mark.parametrize("moment", ["1e18", "1e400"])
    def test_a_limit_that_ends_at_an_impossible_moment_can_be_waited_for(self, project: Project, moment: str) -> None:
        (project.home / "line").write_text(f'{{"type": "limit", "resets_at": {moment}}}\n')
        say = f"cat {project.home}/line > /proc/$PPID/fd/1"
        process = project.start(*project.playing(f"turns: [{{steps: [{{run: '{say}'}}, {{exit: 1}}]}}]"))
        eventually(lambda: project.journal("turn.ended") or process.poll() is not None)
        assert project.ralph("abort").code == 0
        said = process.communicate(timeout=120)
        assert process.returncode == 8, said
        assert len(project.journal("turn.started")) == 1, "it waited until it was aborted"

    def test_strange_answers_of_an_agent_do_not_stop_the_engine(self, project: Project) -> None:
        answers = [
            r'{"summary": "x", "note": "\ud83d"}',
            r'{"summary": "\ud83d"}',
            '{"summary": "x", "deep": ' + "[" * 700 + "]" * 700 + "}",
            '{"summary": "x", "deep": ' + "[" * 200_000 + "]" * 200_000 + "}",
            '{"summary": "x", "n": 1e999, "nan": NaN}',
            '{"summary": "x", "' + "k" * 900_000 + '": 1}',
            '{"summary": "' + r"\u0000" * 1000 + '"}',
            '["summary"]',
            "null",
            "",
        ]
        for number, answer in enumerate(answers):
            (project.home / str(number)).write_text(answer)
        until = f"`wc -l answers; test $(wc -l < answers) -ge {len(answers)}`"
        script = f"cp {project.home}/$(cat answers | wc -l) $RALPH_OUTBOX/result.json; touch answers"
        done = project.work(
            f"grep -q 'Only your answer could' || echo >> answers; touch answers\n{script}",
            "--max-iterations",
            "20",
            until=until,
        )
        assert done.code == 0, f"after {len(project.journal('turn.started'))} turns: {done.said}"
        assert project.ralph("logs").code == 0
        assert project.ralph("status").code == 0

    @pytest.mark.slow
    def test_damage_to_ralphs_files_does_not_stop_the_engine(self, project: Project) -> None:
        state, run = ".aiwg/ralph/loops/$RALPH_RUN/state.json", ".ralph/runs/$RALPH_RUN"
        deeds = [
            "rm -rf .ralph/turn",
            "rm -rf .ralph/turn/outbox; ln -s / .ralph/turn/outbox",
            "rm -rf .ralph/turn; ln -s $HOME .ralph/turn",
            "rm -rf .ralph/turn; touch .ralph/turn",
            "ln -s /etc/passwd $RALPH_OUTBOX/result.json",
            "mkfifo $RALPH_OUTBOX/result.json",
            "mkdir $RALPH_OUTBOX/result.json",
            f"echo junk > {state}",
            "echo junk > .aiwg/ralph/current-loop.json",
            "rm -rf .aiwg",
            f"head -c 9000000 /dev/zero > {state}",
            f"printf '\\377' > {state}",
            f"rm {state}; mkdir {state}",
            f"rm {state}; mkfifo {state}",
            "f=.aiwg/ralph/current-loop.json; rm $f; mkdir $f",
            f"echo junk > {run}/turns/${{RALPH_TURN##*/}}-implementer/turn.json",
            f"mkdir -p {run}/checks/iteration-17-1 {run}/checks/iteration-17/1",
            f"mkdir -p {run}/signals/inputs/dir; mkfifo {run}/signals/inputs/fifo",
            f"rm -rf {run}/signals; echo x > {run}/signals",
            "rm -f .git/index; echo junk > .git/index.lock",
            "git init -q nested; touch nested/file",
            "chmod 000 README; touch \"$(printf 'a\\377b\\nc')\"",
        ]
        (project.home / "inbox").mkdir()
        (project.home / "inbox" / "precious").write_text("p\n")
        cases = "".join(f"{number:05d}) {deed} ;;\n" for number, deed in enumerate(deeds, 1))
        script = f"mkdir -p .aiwg/ralph/loops/$RALPH_RUN\ncase ${{RALPH_TURN##*/}} in\n{cases}esac\necho >> deeds"
        done = project.work(
            script, "--max-iterations", "30", until=f"`wc -l deeds; test $(wc -l < deeds) -ge {len(deeds)}`"
        )
        turns = len(project.journal("turn.started"))
        assert done.code == 0, f"after `{deeds[turns - 1]}`: {done.said}"
        assert (project.home / "inbox" / "precious").read_text() == "p\n"

    def test_a_turn_cannot_make_the_document_say_that_the_work_is_done(self, project: Project) -> None:
        forge = r"""sed -i 's/"phase": "[a-z]*"/"phase": "done", "outcome": "success"/' .aiwg/ralph/loops/$RALPH_RUN/state.json"""
        done = project.work(f"{forge}; sleep 0.6", "--max-iterations", "1")
        assert done.code == 3

    def test_control_characters_of_an_agent_do_not_reach_the_terminal(self, project: Project) -> None:
        scenario = r'turns: [{steps: [{say: "\e]0;owned\a\e[2J"}, {write: {path: done.txt, content: x}}]}]'
        done = project.play(scenario)
        assert done.code == 0
        assert "\x1b" not in done.out

    @pytest.mark.slow
    def test_a_terminal_that_knows_only_ascii_does_not_stop_the_engine(self, project: Project) -> None:
        scenario = 'turns: [{steps: [{say: "größer 😀"}, {write: {path: done.txt, content: x}}]}]'
        assert project.real(*project.playing(scenario), PYTHONIOENCODING="ascii").code == 0

    def test_closed_output_does_not_stop_the_engine(self, project: Project) -> None:
        process = project.start(*project.working("echo 1; sleep 0.3; echo 2; touch done.txt"))
        assert process.stdout
        process.stdout.close()
        process.stdout = None
        process.communicate(timeout=120)
        eventually(lambda: project.journal("run.ended"))
        assert project.journal("run.ended")[0]["outcome"] == "success"

    @pytest.mark.slow
    def test_a_terminal_that_goes_away_does_not_end_a_run_started_with_nohup(self, project: Project) -> None:
        args = project.working("while [ ! -e go ]; do sleep 0.02; done; touch done.txt")
        process = subprocess.Popen(
            ["nohup", str(RALPH), *args],
            cwd=project.root,
            env=project.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        eventually(lambda: project.journal("turn.started"))
        process.send_signal(signal.SIGHUP)
        assert project.ralph("signal", "info", "the terminal is gone").code == 0
        eventually(lambda: project.journal("signal.accepted"))
        (project.root / "go").touch()
        process.communicate(timeout=120)
        assert process.returncode == 0
