"""Steering, pausing, aborting, asking and notifying through the real command line, for loops and sessions."""

import http.server
import json
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML
from test_loop import Project, eventually, make_project

from ralph.core.speakers import name_user

AGENT = Path(__file__).with_name("session_agent.py")
LISTENS = """
turns:
  - when: {turn: 1}
    steps:
      - run: touch started
      - listen: {seconds: 300, into: heard.txt}
      - write: {path: done.txt, content: "done\\n"}
      - answer: {summary: Made it., steering: {response: adjusted, note: httpx it is}}
  - steps:
      - write: {path: done.txt, content: "done\\n"}
      - answer: {summary: Made it.}
"""
DEAF = """
touch started
while [ ! -e go ]; do sleep 0.02; done
cat > prompt-$RALPH_ATTEMPT-$(basename $RALPH_TURN).txt
touch done.txt
"""
"""An agent that has no way of hearing while it works."""


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    yield from make_project(tmp_path)


def began(project: Project, *args: str) -> "subprocess.Popen[str]":
    engine = project.start(*args)
    eventually(lambda: (project.root / "started").exists())
    return engine


def ended(engine: "subprocess.Popen[str]") -> int:
    engine.communicate(timeout=120)
    return engine.returncode


def signals(project: Project, *args: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = project.ralph("signals", *args, "--json").json["signals"]
    return found


def yaml(path: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = YAML(typ="safe").load(path.read_text())
    return loaded


def told(kind: str, message: str, prompt: str) -> bool:
    """Whether a prompt has a message of the user, with its type and time."""
    return re.search(rf"^- {kind}, \d{{4}}-\d\d-\d\d \d\d:\d\d UTC: {message}", prompt, re.MULTILINE) is not None


class TestTheBell:
    def test_engine_without_polling_is_woken_by_signals(self, project: Project) -> None:
        """With looks an hour apart, only an event of the file system can have told it."""
        patches = "from ralph.engine import jobs\nfrom ralph.app import run_engine\n"
        patches += "jobs.POLL = run_engine.SLOW_POLL_SECONDS = 3600.0\n"
        program = f"{patches}from ralph.__main__ import main\nraise SystemExit(main())"
        args = project.working("touch started; sleep 300")
        command = [sys.executable, "-c", program, *args]
        engine = subprocess.Popen(command, cwd=project.root, env=project.environment, stdout=subprocess.DEVNULL)
        project.started.append(engine)
        eventually(lambda: (project.root / "started").exists())
        project.ralph("signal", "info", "The sun shines")
        eventually(lambda: project.journal("signal.accepted"))
        # Whoever wants an end gets it, whatever name they give to whom.
        (project.run / "signals" / "inputs" / "by-hand.yaml").write_text(
            "type: ABORT\ntarget: Gardener\nmessage: enough\n"
        )
        assert engine.wait(timeout=60) == 8
        assert project.living() == []


class TestSteering:
    def test_a_sentence_reaches_the_agent_in_the_middle_of_its_turn(self, project: Project) -> None:
        engine = began(project, *project.playing(LISTENS))
        done = project.ralph("steer", "Use httpx, not requests")
        assert (done.code, "Sent STEER to run" in done.out) == (0, True)
        assert '"Use httpx, not requests"' in done.out
        assert ended(engine) == 0
        assert "Use httpx, not requests" in (project.root / "heard.txt").read_text()
        [row] = signals(project)
        [taken] = row["receipts"]
        assert (taken["means"], taken["turn"], taken["response"]) == ("hook", 1, "adjusted")
        told = project.ralph("signals").out
        assert (
            "STEER: Use httpx, not requests" in told
            and "after a tool call, at" in told
            and "adjusted, httpx it is" in told
        )
        stem = Path(row["name"]).stem
        assert yaml(project.run / "signals" / "acks" / stem / "implementer.yaml")["response"] == "adjusted"
        handling = yaml(project.run / "signals" / "processed" / row["name"])["handling_metadata"]
        assert "implementer (turn 1, hook)" in handling["action_taken"]

    def test_an_agent_that_cannot_hear_is_asked_again_before_its_work_counts(self, project: Project) -> None:
        engine = began(project, *project.working(DEAF))
        project.ralph("steer", "Use httpx, not requests", "--to", "executor")
        eventually(lambda: project.journal("signal.accepted"))
        (project.root / "go").touch()
        assert ended(engine) == 0
        log = project.ralph("logs").out
        assert "turn 1 ended before your message reached it, after" in log and "interrupted" not in log
        prompts = [path.read_text() for path in sorted(project.root.glob("prompt-1-*.txt"))]
        assert [told("STEER", "Use httpx", text) for text in prompts] == [False, True]
        assert [entry["result"]["end"] for entry in project.journal("turn.ended")] == ["steered", "finished"]
        assert project.journal("run.ended")[0]["spent"]["iterations"] == 1

    def test_signal_without_an_engine_is_listed_as_waiting(self, project: Project) -> None:
        project.work("true", "--max-iterations", "1")
        inputs = project.run / "signals" / "inputs"
        (inputs / "late.yaml").write_text("type: INFO\nmessage: by the way\n")
        assert "waits until you resume the run" in project.ralph("signals").out
        assert project.ralph("abort").code == 0
        (inputs / "later.yaml").write_text("type: INFO\nmessage: too late\n")
        assert "will not be delivered: the run is over" in project.ralph("signals").out

    def test_now_interrupts_the_turn(self, project: Project) -> None:
        engine = began(
            project, *project.working("touch started; cat > p.txt; grep -q STEER p.txt || sleep 300; touch done.txt")
        )
        assert project.ralph("steer", "stop and think", "--now").code == 0
        assert ended(engine) == 0
        ends = [entry["result"]["end"] for entry in project.journal("turn.ended")]
        assert ends == ["steered", "finished"]
        assert project.living() == []

    @pytest.mark.more_are_slow(3)
    @pytest.mark.parametrize(
        ("args", "why"),
        [
            (("steer", " "), 'write it in quotes: ralph steer "..."'),
            (("signal", "info", ""), 'write it in quotes: ralph signal info "..."'),
            (("signal", "info", "x", "--now"), "--now does not work with info"),
            (("signal", "pause", "--item", "x"), "--item does not work with pause"),
            (("steer", "x", "--to", "reviewer"), "a loop has no role 'reviewer'"),
            (("signal", "dance"), "'dance' is not one of"),
        ],
    )
    def test_impossible_signals_are_refused(self, project: Project, args: tuple[str, ...], why: str) -> None:
        project.work("true", "--max-iterations", "1")
        done = project.ralph(*args)
        assert (done.code, why in done.err) == (2, True), done.err

    @pytest.mark.slow
    def test_signal_goes_to_the_only_open_run_and_several_are_listed(self, project: Project) -> None:
        assert "there is no run to signal" in project.ralph("steer", "hello").err
        project.work("true", "--max-iterations", "1")
        assert "when you resume it" in project.ralph("steer", "write done.txt").out
        first = project.run.name
        project.work("true", "--max-iterations", "1")
        done = project.ralph("steer", "hello")
        assert done.code == 2
        assert all(run.name in done.err for run in project.runs) and "with --run ID" in done.err
        assert signals(project, "--run", first)[0]["state"] == "waiting"
        project.ralph("resume", first)
        assert signals(project, "--run", first)[0]["receipts"][0]["means"] == "prompt"

    def test_a_run_that_is_over_is_not_signalled(self, project: Project) -> None:
        project.work("touch done.txt")
        done = project.ralph("steer", "x", "--run", project.run.name)
        assert (done.code, "is over: success" in done.err) == (2, True)

    def test_only_sessions_receive_approvals(self, project: Project) -> None:
        project.work("true", "--max-iterations", "1")
        done = project.ralph("signal", "approve")
        assert (done.code, "only a session asks whether to keep what it learned" in done.err) == (2, True), done.said

    def test_turns_send_no_signals(self, project: Project) -> None:
        done = project.ralph("signal", "approve", RALPH_TURN="x/00001")
        assert (done.code, "an agent cannot send signals" in done.err) == (2, True)

    @pytest.mark.slow
    def test_watching_shows_each_as_it_comes(self, project: Project) -> None:
        engine = began(project, *project.playing(LISTENS))
        (project.run / "signals" / "inputs" / "nonsense.yaml").write_text("type: SHOUT\n")
        eventually(lambda: project.journal("signal.refused"))
        watch = project.start("signals", "--watch")
        assert watch.stdout and "nonsense.yaml" in watch.stdout.readline(), "it watches from now on"
        project.ralph("signal", "info", "the target is Azure")
        assert ended(engine) == 0
        out, _ = watch.communicate(timeout=120)
        assert "INFO: the target is Azure" in out and "after a tool call" in out

    def test_the_agent_can_ask_by_itself(self, project: Project) -> None:
        script = """touch started
        while ! "$RALPH_BIN" tools signals > said.txt || grep -q "No new messages" said.txt; do sleep 0.1; done
        cp said.txt done.txt"""
        engine = began(project, *project.working(script))
        project.ralph("steer", "Use httpx")
        assert ended(engine) == 0
        assert "- STEER: Use httpx" in (project.root / "done.txt").read_text()
        [row] = signals(project)
        assert [(taken["turn"], taken["means"]) for taken in row["receipts"]] == [(1, "tool")]


class TestLoops:
    def test_a_pause_holds_until_it_is_resumed_and_its_message_is_passed_on(self, project: Project) -> None:
        engine = began(project, *project.working(DEAF, until="`test -f never.txt`"), "--max-iterations", "2")
        assert project.ralph("signal", "pause", "until the API is reviewed").code == 0
        eventually(lambda: project.journal("signal.accepted"))
        (project.root / "go").touch()
        assert ended(engine) == 7
        assert project.journal("run.ended")[-1]["reason"] == "you paused it: until the API is reviewed"
        assert "is not running" in project.ralph("signal", "resume").err
        assert project.ralph("resume").code == 3
        assert told("PAUSE", "until the API is reviewed", (project.turn(2) / "prompt.md").read_text())

    @pytest.mark.slow
    def test_an_abort_leaves_the_files_and_no_process(self, project: Project) -> None:
        engine = began(project, *project.working("touch started; echo half > half.txt; sleep 300 & sleep 300"))
        assert project.ralph("signal", "abort", "wrong task").code == 0
        assert ended(engine) == 8
        assert (project.root / "half.txt").read_text() == "half\n"
        assert project.living() == []
        assert project.ralph("resume").code == 2

    def test_information_changes_nothing_but_the_next_prompt(self, project: Project) -> None:
        engine = began(project, *project.working(DEAF, until="`test -f never.txt`"), "--max-iterations", "2")
        project.ralph("signal", "info", "the target is Azure")
        eventually(lambda: project.journal("signal.accepted"))
        (project.root / "go").touch()
        assert ended(engine) == 3
        assert [entry["result"]["end"] for entry in project.journal("turn.ended")] == ["finished", "finished"]
        assert told("INFO", "the target is Azure", (project.turn(2) / "prompt.md").read_text())

    @pytest.mark.slow
    def test_a_change_of_scope_waits_for_the_user(self, project: Project) -> None:
        scope = LISTENS.replace(
            "response: adjusted, note: httpx it is", "response: scope-change, note: build B instead"
        )
        engine = began(project, *project.playing(scope))
        project.ralph("steer", "do not build A, build B")
        assert ended(engine) == 7
        end = project.journal("run.ended")[-1]
        assert (end["outcome"], "STEER scope change: build B instead" in end["reason"]) == ("awaiting-guidance", True)
        assert project.ralph("resume", "--guidance", "A after all").code == 0


def session(project: Project, *args: str, **script: Any) -> "subprocess.Popen[str]":
    path = project.home / "script.json"
    path.write_text(json.dumps(script))
    project.extra["SCRIPT"] = str(path)
    command = shlex.join([sys.executable, "-I", str(AGENT)])
    return project.start("session", "new", "Build the files", "--agent-command", command, "--yes", *args)


def home(project: Project) -> Path:
    [only] = [path for path in (project.root / ".ralph-sessions").iterdir() if path.is_dir()]
    return only


def executing(project: Project) -> bool:
    return any(entry["role"] == "executor" for entry in project.journal("turn.started"))


@pytest.mark.slow
class TestSessions:
    def test_a_pause_is_noted_and_holds_and_the_session_continues(self, project: Project) -> None:
        engine = session(project, slow=1.5)
        eventually(lambda: executing(project))
        assert project.ralph("signal", "pause", "have a look first").code == 0
        assert ended(engine) == 7
        text = (home(project) / "progress.md").read_text()
        assert "Paused by signal" in text
        assert yaml(home(project) / "metadata.yaml")["orchestrator"].get("paused", True) is not False
        assert not list((home(project) / "signals" / "inputs").iterdir())
        (project.home / "script.json").write_text("{}")
        done = project.ralph("session", "resume")
        assert done.code == 0, done.said
        assert "Paused by signal" not in (home(project) / "progress.md").read_text()
        prompts = [path.read_text() for path in (project.run / "turns").glob("*/prompt.md")]
        assert any(told("PAUSE", "have a look first", text) for text in prompts)

    def test_abort_ends_a_session_and_leaves_the_files(self, project: Project) -> None:
        engine = session(project, slow=60)
        eventually(lambda: executing(project))
        assert project.ralph("signal", "abort").code == 0
        assert ended(engine) == 8
        text, data = (home(project) / "progress.md").read_text(), yaml(home(project) / "metadata.yaml")
        assert "[/]" not in text.partition("## Legend")[2].partition("## ")[2]
        assert "Aborted by signal" in text
        assert (data["orchestrator"]["state"], data["status"]) == ("COMPLETE", "aborted")
        assert "(Attempt 1, Iteration 1, failed: " in text and "| 1 | Aborted |" in text
        assert project.living() == []
        (project.home / "script.json").write_text("{}")
        done = project.ralph("session", "resume")
        assert (done.code, "was aborted" in done.err) == (2, True), "it does not go on by itself"
        assert project.ralph("session", "update", home(project).name, "Make them small").code == 0
        assert "with your feedback" in project.ralph("session", "show").out
        done = project.ralph("session", "resume")
        assert done.code == 0, done.said

    def test_message_to_all_reaches_every_role_and_lists_those_it_missed(self, project: Project) -> None:
        engine = session(project, until=str(project.home / "go"))
        eventually(lambda: executing(project))
        inputs = home(project) / "signals" / "inputs"
        (inputs / "signal.261116-080000.yaml").write_text(
            "type: INFO\ntarget: ALL\nmessage: |\n  tabs,\n  not spaces\n"
        )
        eventually(lambda: project.journal("signal.accepted"))
        (project.home / "go").touch()
        assert ended(engine) == 0
        assert "INFO: tabs, not spaces\n" in project.ralph("signals").out
        acks = {path.stem for path in (home(project) / "signals" / "acks" / "signal.261116-080000").iterdir()}
        assert {"executor", "reviewer"} <= acks
        filed = yaml(home(project) / "signals" / "processed" / "signal.261116-080000.yaml")["handling_metadata"]
        missed = {"planner", "questioner", "executor", "reviewer"} - acks
        assert (filed["delivery_status"], set(filed["unacked_agents"])) == (
            "partial" if missed else "delivered",
            missed,
        )
        words = [entry for entry in project.journal("turn.started") if entry.get("messages")]
        assert len({entry["role"] for entry in words}) == len(words), "no role is told twice"

    def test_a_steer_that_changes_the_scope_has_a_planner_change_the_task(self, project: Project) -> None:
        engine = session(project, scope="task-1", until=str(project.home / "go"), large=["task-1"], also="task-4")
        eventually(lambda: executing(project))
        project.ralph("steer", "do not make a.txt, make z.txt", "--to", "Ralph-v2-Executor")
        eventually(lambda: project.journal("signal.accepted"))
        (project.home / "go").touch()
        assert ended(engine) == 0
        keys = [entry["key"] for entry in project.journal("turn.started") if "task-1-" in entry["key"]]
        assert list(dict.fromkeys(keys)) == [
            "execute:task-1-1",
            "replan:task-1-1",
            "execute:task-1-2",
            "review:task-1-2",
        ]
        defined = (home(project) / "tasks" / "task-1.md").read_text()
        assert "do not make a.txt, make z.txt" in defined, "the planner has the words of the user"
        assert (project.root / "z.txt").exists() and not (project.root / "a.txt").exists()
        assert "- [x] task-1 (Attempt 2" in (home(project) / "progress.md").read_text()
        assert "wave 3: task-4 Make y.txt (changed by the planner)" in project.ralph("logs", home(project).name).out

    def test_an_approval_waits_for_its_state_and_may_name_items(self, project: Project) -> None:
        asked = "# Instructions\n\n## Guardrails\n- approval: signal\n"
        engine = session(project, instructions=asked, until=str(project.home / "go"))
        eventually(lambda: executing(project))
        project.ralph("signal", "approve", "--item", "make-files")
        [row] = signals(project)
        assert (row["state"], "until the session asks" in row["reason"]) == ("waiting", True)
        (project.home / "go").touch()
        assert ended(engine) == 0
        assert (project.root / ".docs" / "how-to" / "make-files.md").exists()


PRESET = """
event_loop: {starting_event: work.start}
hats:
  builder: {name: B, description: Builds., triggers: [work.*], publishes: [work.more, LOOP_COMPLETE], instructions: Build.}
"""


class TestGuidanceStaysInForce:
    def test_a_steer_to_a_loop_reaches_every_later_turn_after_ten_infos(self, project: Project) -> None:
        """Each turn sends one INFO itself, as the user might, so that every later turn has news."""
        inputs = "$(dirname $(dirname $RALPH_MESSAGES))/../signals/inputs"
        agent = f"""cat > /dev/null
        n=$(basename $RALPH_TURN)
        mkdir -p {inputs}
        printf 'type: INFO\\nmessage: fact %s\\n' $n > {inputs}/info-$n.yaml
        echo $n > count.txt
        if [ $n = 00012 ]; then touch done.txt; fi"""
        args = project.working(agent, "--on-stuck", "continue", "--max-iterations", "20")
        engine = project.start(*args)
        eventually(lambda: project.journal("turn.started"))
        project.ralph("steer", "Use httpx")
        assert ended(engine) == 0
        [taken] = [entry for entry in project.journal("signal.accepted") if entry["signal"]["type"] == "STEER"]
        later = [entry["turn"] for entry in project.journal("turn.started") if entry["at"] > taken["at"]]
        assert len(later) > 5
        prompts = [(project.turn(number) / "prompt.md").read_text() for number in later]
        assert all(told("STEER", "Use httpx", prompt) for prompt in prompts)
        assert all(prompt.index("Use httpx") < prompt.index("# Your answer") for prompt in prompts)
        assert len(re.findall("^- INFO", prompts[-1], re.MULTILINE)) <= 4

    @pytest.mark.slow
    def test_a_steer_to_hats_reaches_every_later_turn_after_ten_infos(self, project: Project) -> None:
        (project.root / "hats.yml").write_text(PRESET)
        agent = project.agent('date +%N >> work.txt; "$RALPH_BIN" emit work.more')
        start = ("run", "-H", "hats.yml", "-p", "Build it", "--unchecked", "--agent-command", agent, "--yes")
        assert project.ralph(*start, "--max-iterations", "1").code == 3
        project.ralph("steer", "Use httpx")
        for number in range(10):
            project.ralph("signal", "info", f"fact {number}")
        assert project.ralph("resume", "--max-iterations", "5").code == 3
        prompts = [(project.turn(number) / "prompt.md").read_text() for number in range(2, 6)]
        assert all(told("STEER", "Use httpx", prompt) for prompt in prompts)
        assert "fact 9" in prompts[-1], "the latest of them stay in the prompt"

    @pytest.mark.slow
    def test_a_steer_to_a_session_reaches_tasks_that_have_not_started_and_is_noted(self, project: Project) -> None:
        engine = session(project, until=str(project.home / "go"))
        eventually(lambda: project.journal("turn.started"))
        project.ralph("steer", "Use httpx")
        for number in range(5):
            project.ralph("signal", "info", f"fact {number}")
        eventually(lambda: len(project.journal("signal.accepted")) == 6)
        [taken] = [entry for entry in project.journal("signal.accepted") if entry["signal"]["type"] == "STEER"]
        (project.home / "go").touch()
        assert ended(engine) == 0
        later = [entry["turn"] for entry in project.journal("turn.started") if entry["at"] > taken["at"]]
        prompts = [(project.turn(number) / "prompt.md").read_text() for number in later]
        assert len(prompts) > 3
        assert all(told("STEER", "Use httpx", prompt) for prompt in prompts)
        assert all(prompt.index("Use httpx") < prompt.index("# What to hand over") for prompt in prompts)
        notes = (home(project) / "notes.md").read_text()
        assert re.search(r"^## STEER, \d{4}-\d\d-\d\dT\S+(?:Z|[+-]\d\d:\d\d)\n\nUse httpx$", notes, re.MULTILINE)
        assert "fact" not in notes


@pytest.mark.slow
class TestHostileFiles:
    def test_hostile_signal_files_are_rejected_with_a_reason(self, project: Project) -> None:
        engine = began(project, *project.playing(LISTENS))
        inputs = project.run / "signals" / "inputs"
        (inputs / "wizard.yaml").write_text("type: STEER\ntarget: Ralph-Wizard\nmessage: nobody will hear this\n")
        (inputs / "a\x1b[31m.yaml").write_text("type: DANCE\n")
        (inputs / "big.yaml").write_text("type: STEER\nmessage: " + "x" * 100_000 + "\n")
        (inputs / "half.yaml").write_text("type: STEER\nmessage: [half\n")
        (inputs / "link.yaml").symlink_to("/etc/passwd")
        eventually(lambda: len(project.journal("signal.refused")) == 5)
        assert list(inputs.iterdir()) == []
        assert "\x1b" not in project.ralph("signals").out
        project.ralph("steer", "go on")
        assert ended(engine) == 0
        assert sorted(row["state"] for row in signals(project)) == ["accepted"] + ["refused"] * 5


ASKS = """touch started
"$RALPH_BIN" tools interact ask "Which database?" \\
  --options "sqlite|postgres" --default sqlite --timeout {seconds} > answer.txt
touch done.txt"""


class TestQuestions:
    def test_a_run_asks_shows_it_and_continues_with_the_answer(self, project: Project) -> None:
        engine = began(project, *project.working(ASKS.format(seconds=300)))
        eventually(lambda: project.journal("question.asked"))
        told = project.ralph("status").out
        assert "QUESTION q1: Which database?" in told and "ralph answer q1" in told
        assert project.ralph("answer", "postgres", "it", "is").code == 0
        assert project.ralph("answer", "q1", "again").code == 2
        out, _ = engine.communicate(timeout=120)
        assert engine.returncode == 0
        assert "QUESTION q1 (implementer): Which database? [sqlite | postgres]" in out
        assert (project.root / "answer.txt").read_text() == "postgres it is\n"
        [answered] = project.journal("question.answered")
        assert (answered["answer"], answered["by"]) == ("postgres it is", name_user("cli"))

    def test_default_is_the_answer_if_the_user_does_not_answer(self, project: Project) -> None:
        done = project.work(ASKS.format(seconds=1))
        assert done.code == 0
        assert (project.root / "answer.txt").read_text() == "sqlite\n"
        assert [entry["by"] for entry in project.journal("question.answered")] == ["default"]
        late = project.ralph("answer", "q1", "postgres")
        assert late.code == 2

    def test_turn_cannot_answer_questions(self, project: Project) -> None:
        assert "an agent cannot answer questions" in project.ralph("answer", "yes", RALPH_TURN="x/00001").err


class Listener:
    """A service on this machine that keeps what it is told."""

    def __init__(self, code: int = 200) -> None:
        told: list[dict[str, Any]] = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                told.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(code)
                self.end_headers()

            def log_message(self, *args: object) -> None:
                """Not in the output of the tests."""

        self.told = told
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"json://127.0.0.1:{self.server.server_address[1]}/hooks/very-secret-path"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def listener() -> Iterator[Listener]:
    one = Listener()
    yield one
    one.close()


class TestNotifications:
    def test_notifications_of_end_and_questions_have_no_secrets(self, project: Project, listener: Listener) -> None:
        project.extra |= {"HOOK": listener.url, "SERVICE_TOKEN": "s3cr3t-value-123"}
        (project.root / "ralph.yml").write_text("notify:\n  - $HOOK\n")
        script = """"$RALPH_BIN" tools interact ask "Is $SERVICE_TOKEN right?" --default yes --timeout 1
        touch done.txt"""
        done = project.real(*project.working(script))
        assert done.code == 0, done.said
        assert [told["title"] for told in listener.told] == ["Ralph asks: the task", "Ralph: success"]
        assert "s3cr3t-value-123" not in json.dumps(listener.told)
        written = b"".join(path.read_bytes() for path in project.run.rglob("*") if path.is_file())
        assert b"very-secret-path" not in written and "very-secret-path" not in done.said

    @pytest.mark.slow
    def test_services_receive_only_their_events(self, project: Project, listener: Listener) -> None:
        (project.root / "ralph.yml").write_text(f"notify:\n  - url: {listener.url}\n    events: [limit]\n")
        assert project.real(*project.working("touch done.txt")).code == 0
        assert project.real(*project.working("true", "--max-iterations", "1", until="`test -f x`")).code == 3
        assert [told["title"] for told in listener.told] == ["Ralph: limit-iterations"]

    @pytest.mark.slow
    def test_a_service_that_fails_is_noticed_once_and_the_run_continues(self, project: Project) -> None:
        (project.root / "ralph.yml").write_text("notify: json://127.0.0.1:9/very-secret-path\n")
        done = project.real(*project.working(ASKS.format(seconds=1)))
        assert done.code == 0, done.said
        notices = [entry["text"] for entry in project.journal("notice") if "notification" in entry["text"]]
        assert notices == ["notification 1 (json) could not be sent"]
        assert "very-secret-path" not in done.said + (project.run / "journal.jsonl").read_text()

    @pytest.mark.more_are_slow(1)
    @pytest.mark.parametrize(
        ("setting", "why"),
        [
            ("nonsense", "apprise does not support address 1"),
            ("json://$NOT_THERE/x", "uses $NOT_THERE, which is not set"),
        ],
    )
    def test_wrong_address_is_refused_at_the_start_and_shown_by_doctor(
        self, project: Project, setting: str, why: str
    ) -> None:
        (project.root / "ralph.yml").write_text(f"notify: [{setting}]\n")
        done = project.real(*project.working("touch done.txt"))
        assert (done.code, why in done.err) == (2, True), done.err
        assert why in project.real("doctor").out

    @pytest.mark.slow
    def test_address_that_breaks_later_does_not_stop_the_run(self, project: Project) -> None:
        project.work("true", "--max-iterations", "1")
        (project.root / "ralph.yml").write_text("notify: [nonsense]\n")
        assert project.real("resume", "--yes").code == 3, "ralph.yml has changed, so Ralph asks again"
        assert any("Ralph sends no notifications" in entry["text"] for entry in project.journal("notice"))
        assert project.real("abort").code == 0
