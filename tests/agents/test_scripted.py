"""The scripted agent, as a real process in a real workspace."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

COMMAND = (sys.executable, "-P", "-m", "ralph.agents.scripted", "--scenario")
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


@dataclass(frozen=True)
class Played:
    """What a turn left."""

    code: int
    stdout: bytes
    stderr: bytes

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.stdout.splitlines()]

    @property
    def error(self) -> str:
        return str(self.events[-1]["message"]) if self.events[-1]["type"] == "error" else ""


@dataclass(frozen=True)
class Stage:
    """A workspace, an outbox and an events file, with turns to play in them."""

    root: Path

    @property
    def workspace(self) -> Path:
        return self.root / "workspace"

    @property
    def environment(self) -> Mapping[str, str]:
        own = {
            "RALPH_TURN": "261115-093000/00001",
            "RALPH_ROLE": "actor",
            "RALPH_OUTBOX": str(self.root / "outbox"),
            "RALPH_EVENTS_FILE": str(self.root / "events.jsonl"),
        }
        return {**os.environ, **own}

    def start(self, scenario: str, **variables: str) -> "subprocess.Popen[bytes]":
        path = self.root / "s.yaml"
        path.write_text(scenario)
        return subprocess.Popen(
            [*COMMAND, str(path)],
            cwd=self.workspace,
            env={**self.environment, **variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def play(self, scenario: str, prompt: str = "", **variables: str) -> Played:
        with self.start(scenario, **variables) as process:
            stdout, stderr = process.communicate(prompt.encode(), timeout=120)
        return Played(process.returncode, stdout, stderr)

    def steps(self, *steps: str, **variables: str) -> Played:
        return self.play("turns:\n- steps:\n" + "".join(f"  - {step}\n" for step in steps), **variables)


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    for name in ("workspace", "outbox"):
        (tmp_path / name).mkdir()
    return Stage(tmp_path)


@pytest.fixture
def hanging(stage: Stage) -> Iterator[Callable[[str], "subprocess.Popen[bytes]"]]:
    """Starts a scenario that hangs, waits until it said its first line, and ends it after the test."""
    started = []

    def start(scenario: str) -> "subprocess.Popen[bytes]":
        started.append(process := stage.start(scenario))
        assert process.stdin and process.stdout
        process.stdin.close()
        assert json.loads(process.stdout.readline()) == {"type": "text", "text": "ready"}
        return process

    yield start
    for process in started:
        process.kill()
        process.stdin = None
        process.communicate()


def wait_for(condition: Callable[[], object]) -> None:
    for _ in range(10_000):
        if condition():
            return
        time.sleep(0.01)
    pytest.fail("it did not come to pass")


def test_work_is_done_in_the_workspace_and_reported_line_by_line(stage: Stage) -> None:
    played = stage.steps(
        "say: I fix it.",
        "write: {path: src/app.py, content: 'a - b # ü'}",
        "patch: {path: src/app.py, find: a - b, replace: a + b}",
        "run: cat src/app.py; exit 3",
        "write: {path: old/test.py, content: ''}",
        "delete: old",
    )
    assert played.code == 0
    assert (stage.workspace / "src/app.py").read_text() == "a + b # ü"
    assert not (stage.workspace / "old").exists()
    assert [event.get("name", event["type"]) for event in played.events] == [
        *("text", "write", "patch", "run", "write", "delete", "result")
    ]
    assert played.events[3] == {
        "type": "tool",
        "name": "run",
        "input": {"command": "cat src/app.py; exit 3"},
        "output": "a + b # ü",
        "code": 3,
    }
    assert played.events[-1] == {"type": "result", "text": "I fix it.", "is_error": False}
    assert played.stderr == b""


def test_an_answer_a_document_and_an_event_are_handed_back(stage: Stage) -> None:
    stage.steps(
        "answer: {status: done, summary: ü}",
        "outbox: {path: docs/plan.md, content: '# Plan'}",
        "emit: {topic: build.done, payload: {ok: true}}",
        "emit: again",
    )
    assert json.loads((stage.root / "outbox/result.json").read_text()) == {"status": "done", "summary": "ü"}
    assert (stage.root / "outbox/docs/plan.md").read_text() == "# Plan"
    first, second = map(json.loads, (stage.root / "events.jsonl").read_text().splitlines())
    assert (first["topic"], first["payload"]) == ("build.done", {"ok": True})
    assert (second["topic"], second["payload"]) == ("again", None)
    assert set(first) == {"topic", "payload", "ts"}


def test_a_broken_answer_is_handed_back_as_it_is(stage: Stage) -> None:
    stage.steps("answer_raw: '{\"status\": '")
    assert (stage.root / "outbox/result.json").read_text() == '{"status": '


def test_usage_has_a_cost_only_where_one_is_given(stage: Stage) -> None:
    played = stage.steps("usage: {input_tokens: 12, output_tokens: 3, cost: 0.5}", "usage: {output_tokens: 4}")
    assert played.events[:2] == [
        {"type": "usage", "input_tokens": 12, "output_tokens": 3, "cost": 0.5},
        {"type": "usage", "input_tokens": 0, "output_tokens": 4},
    ]


def test_a_rate_limit_says_when_it_is_over_and_ends_the_turn(stage: Stage) -> None:
    played = stage.steps("rate_limit: 60", "say: never")
    (limit,) = played.events
    assert played.code == 1
    assert limit["type"] == "limit"
    assert 0 < limit["resets_at"] - time.time() <= 60


def test_error_is_reported_and_the_turn_continues(stage: Stage) -> None:
    played = stage.steps("error: no credit", "exit: 4")
    assert played.events == [{"type": "error", "message": "no credit"}]
    assert played.code == 4


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ("patch: {path: app.py, find: x, replace: y}", "cannot patch app.py: 'x' is not in it"),
        ("patch: {path: gone.py, find: x, replace: y}", "No such file or directory"),
        ("delete: gone.py", "No such file or directory"),
        ("run: {command: exit 7, check: true}", "`exit 7` exited with 7"),
        ("write: {path: app.py/x, content: ''}", "File exists"),
        ("write: {path: outside/x, content: ''}", "leads out of"),
        ("write: {path: link, content: ''}", "leads out of"),
        ("patch: {path: outside/kept, find: safe, replace: y}", "leads out of"),
        ("delete: outside/kept", "leads out of"),
        ("outbox: {path: outside/x, content: ''}", "leads out of"),
        ("orphan: {seconds: 0, writes: outside/x}", "leads out of"),
        ("crash: SIGCHLD", "SIGCHLD did not end the agent"),
    ],
)
def test_step_that_cannot_be_done_fails_with_its_line(stage: Stage, step: str, message: str) -> None:
    outside = stage.root / "elsewhere"
    outside.mkdir()
    (outside / "kept").write_text("safe")
    (stage.workspace / "app.py").touch()
    (stage.workspace / "link").symlink_to(outside / "kept")
    for place in (stage.workspace, stage.root / "outbox"):
        (place / "outside").symlink_to(outside)
    played = stage.steps("say: hi", step, "say: never")
    assert played.code == 1
    assert message in played.error
    assert f"where: {stage.root}/s.yaml:4" in played.error
    assert {"type": "text", "text": "never"} not in played.events
    assert [path.read_text() for path in outside.iterdir()] == ["safe"]


def test_optional_file_may_be_missing(stage: Stage) -> None:
    (stage.workspace / "app.py").write_text("a")
    played = stage.steps(
        "patch: {path: app.py, find: x, replace: y, optional: true}",
        "patch: {path: gone.py, find: x, replace: y, optional: true}",
        "delete: {path: gone.py, optional: true}",
    )
    assert played.code == 0
    assert [path.read_text() for path in stage.workspace.iterdir()] == ["a"]


def test_deleting_a_symlink_leaves_what_it_points_to(stage: Stage) -> None:
    (stage.root / "kept").mkdir()
    (stage.workspace / "link").symlink_to(stage.root / "kept")
    assert stage.steps("delete: link").code == 0
    assert not (stage.workspace / "link").is_symlink()
    assert (stage.root / "kept").is_dir()


@pytest.mark.parametrize(("step", "variable"), [("answer: {a: 1}", "RALPH_OUTBOX"), ("emit: t", "RALPH_EVENTS_FILE")])
def test_a_place_that_the_environment_does_not_name_is_an_error(stage: Stage, step: str, variable: str) -> None:
    played = stage.steps(step, **{variable: ""})
    assert played.code == 1
    assert f"{variable} is not set" in played.error


def test_an_outbox_that_is_not_there_is_an_error(stage: Stage) -> None:
    assert "not a directory" in stage.steps("answer: {a: 1}", RALPH_OUTBOX="/nowhere").error


def test_a_command_may_leave_something_running_without_holding_the_turn(stage: Stage) -> None:
    played = stage.steps("run: 'sleep 60 & echo $!'")
    os.kill(int(played.events[0]["output"]), signal.SIGKILL)
    assert played.events[0]["code"] == 0


def test_end_of_a_long_output_is_reported(stage: Stage) -> None:
    played = stage.steps("run: \"seq 20000; printf '\\\\377 end'\"")
    output = played.events[0]["output"]
    assert len(output) == 4000
    assert output.endswith("20000\n\ufffd end")


def test_the_entry_is_found_by_identity_and_prompt(stage: Stage) -> None:
    when = "{role: actor, hat: builder, task: T-1, attempt: 2, turn: 3, prompt: 'bug #[0-9]+'}"
    scenario = f"turns: [{{when: {when}, steps: [say: this]}}, {{steps: [say: other]}}]"
    identity = {"RALPH_HAT": "builder", "RALPH_TASK": "T-1", "RALPH_ATTEMPT": "2", "RALPH_TURN": "x/00003"}
    assert stage.play(scenario, "fix bug #12", **identity).events[0]["text"] == "this"
    assert stage.play(scenario, "fix bugs", **identity).events[0]["text"] == "other"


def test_a_turn_without_an_entry_fails_and_says_which(stage: Stage) -> None:
    played = stage.play("turns: [{when: {turn: 9}, steps: [say: hi]}]", RALPH_TASK="T-1")
    assert played.code == 1
    assert "no entry matches this turn (role actor, task T-1, turn 1)" in played.error


def test_a_turn_without_an_entry_may_finish(stage: Stage) -> None:
    played = stage.play("turns: [{when: {turn: 9}, steps: [say: hi]}]\notherwise: finish")
    assert played.code == 0
    assert played.events == [{"type": "result", "text": "", "is_error": False}]


def test_nothing_is_played_of_a_scenario_with_a_mistake(stage: Stage) -> None:
    played = stage.steps("write: {path: a, content: ''}", "choose: [[wrote: b]]")
    assert played.code == 2
    assert "did you mean 'write'?" in played.error
    assert list(stage.workspace.iterdir()) == []


@pytest.mark.parametrize("variable", ["RALPH_TURN", "RALPH_ATTEMPT"])
def test_an_identity_without_a_number_is_an_error(stage: Stage, variable: str) -> None:
    played = stage.steps("say: hi", **{variable: "seven"})
    assert played.code == 2
    assert variable in played.error


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "cannot be read"), (b"\xff\xfe", "not UTF-8"), (b"#" * (1024 * 1024 + 1), "larger than")],
    ids=["absent", "binary", "huge"],
)
def test_file_that_is_not_a_scenario_is_an_error(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "s.yaml"
    if content is not None:
        path.write_bytes(content)
    run = subprocess.run([*COMMAND, str(path)], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    assert run.returncode == 2
    assert message in json.loads(run.stdout)["message"]


def test_modules_of_the_workspace_are_not_imported(stage: Stage) -> None:
    for name in ("json", "random", "subprocess"):
        (stage.workspace / f"{name}.py").write_text("raise SystemExit(9)")
    assert stage.steps("run: 'true'", "choose: [[say: hi]]").code == 0


def test_chance_is_the_same_for_the_same_turn_and_differs_between_turns(stage: Stage) -> None:
    choice = f"choose: [{', '.join(f'[say: {n}]' for n in range(6))}]"
    scenario = f"seed: 7\nturns: [[{', '.join([choice] * 8)}]]"

    def said(**variables: str) -> list[str]:
        return [event["text"] for event in stage.play(scenario.replace("say: ", "say: n"), **variables).events[:-1]]

    first = said(RALPH_TURN="one/00001")
    assert first == said(RALPH_TURN="two/00001")
    assert first != said(RALPH_TURN="one/00002")
    assert len(set(first)) > 1


def test_a_weight_of_zero_is_never_chosen(stage: Stage) -> None:
    choice = "choose: [{weight: 0, steps: [exit: 1]}, [say: ok]]"
    assert stage.steps(*[choice] * 10).code == 0


def test_exit_ends_the_turn_without_a_result(stage: Stage) -> None:
    played = stage.steps("say: hi", "choose: [[exit: 3]]", "say: never")
    assert played.code == 3
    assert played.events == [{"type": "text", "text": "hi"}]


@pytest.mark.parametrize("name", ["SIGSEGV", "SIGKILL", "SIGTERM"])
def test_a_crash_is_a_death_by_that_signal(stage: Stage, name: str) -> None:
    played = stage.steps("ignore_term: true", f"crash: {name}")
    assert played.code == -signal.Signals[name]
    assert list(stage.workspace.iterdir()) == []


def test_a_sleep_takes_its_time(stage: Stage) -> None:
    began = time.monotonic()
    stage.steps("sleep: 0.3")
    assert time.monotonic() - began > 0.3


def test_a_hanging_agent_is_silent_until_it_is_ended(
    hanging: Callable[[str], "subprocess.Popen[bytes]"],
) -> None:
    process = hanging("turns: [[{say: ready}, {hang: true}]]")
    process.terminate()
    assert process.wait(120) == -signal.SIGTERM


def test_an_agent_that_ignores_sigterm_must_be_killed(
    hanging: Callable[[str], "subprocess.Popen[bytes]"],
) -> None:
    process = hanging("turns: [[{ignore_term: true}, {say: ready}, {hang: true}]]")
    process.terminate()
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.2)
    process.kill()
    assert process.wait(120) == -signal.SIGKILL


def test_commands_of_an_agent_that_ignores_sigterm_do_not(stage: Stage) -> None:
    played = stage.steps("ignore_term: true", "run: 'kill -TERM $$; echo survived'")
    assert played.events[0]["code"] == -signal.SIGTERM


def test_an_orphan_writes_when_its_time_is_over(stage: Stage) -> None:
    assert stage.steps("orphan: {seconds: 0.3, writes: late.txt}").code == 0
    wait_for(lambda: (stage.workspace / "late.txt").exists())


def orphan_of(stage: Stage) -> int:
    """The process that will write the late file of that stage."""
    late = str(stage.workspace / "late.txt").encode()
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal() and late in (entry / "cmdline").read_bytes().split(b"\0"):
                return int(entry.name)
        except OSError:
            continue
    raise LookupError("no orphan is alive")


@linux_only
@pytest.mark.parametrize("setsid", [True, False])
@pytest.mark.parametrize("scrub_env", [True, False])
def test_an_orphan_is_as_hard_to_find_as_asked_for(stage: Stage, setsid: bool, scrub_env: bool) -> None:
    options = f"setsid: {setsid}, scrub_env: {scrub_env}".lower()
    played = stage.steps(f"orphan: {{seconds: 60, writes: late.txt, {options}}}", "run: echo $PPID")
    orphan, agent = orphan_of(stage), int(played.events[0]["output"])
    try:
        stat = Path(f"/proc/{orphan}/stat").read_text().rpartition(")")[2].split()
        assert int(stat[1]) != agent
        assert (os.getsid(orphan) != os.getsid(0)) is setsid
        assert (b"RALPH_TURN=" not in Path(f"/proc/{orphan}/environ").read_bytes()) is scrub_env
    finally:
        os.kill(orphan, signal.SIGKILL)


@linux_only
def test_an_orphan_may_hold_the_output_open(stage: Stage) -> None:
    with stage.start("turns: [[orphan: {seconds: 60, writes: late.txt, hold_output: true}]]") as process:
        assert process.stdin and process.stdout
        process.stdin.close()
        assert process.wait(120) == 0
        assert json.loads(process.stdout.readline())["type"] == "result"
        assert select.select([process.stdout], [], [], 0.1) == ([], [], [])
        os.kill(orphan_of(stage), signal.SIGKILL)
        assert process.stdout.read() == b""


@pytest.mark.parametrize("size", [0, 1, 99, 100, 250, 1_000_000])
def test_raw_output_has_the_size_asked_for_and_ends_its_line(stage: Stage, size: int) -> None:
    played = stage.steps(f"spew: {size}")
    raw = played.stdout[: played.stdout.index(b"{")]
    assert len(raw) == size
    assert all(len(line) <= 100 for line in raw.splitlines(keepends=True))
    assert raw.endswith(b"\n") or size == 0


def test_raw_output_may_be_one_line_that_is_not_utf8_on_stderr(stage: Stage) -> None:
    played = stage.steps("spew: {bytes: 100000, line: 0, stream: stderr, invalid_utf8: true}")
    assert len(played.stderr) == 100_000
    assert played.stderr.index(b"\n") == 99_999
    with pytest.raises(UnicodeDecodeError):
        played.stderr.decode()
    assert [event["type"] for event in played.events] == ["result"]


def test_messages_are_read_between_steps(stage: Stage) -> None:
    words = stage.root / "words"
    words.mkdir()
    (words / "a.txt").write_text("Use tabs.")
    played = stage.steps(
        "say: one",
        "run: echo Now. > $RALPH_MESSAGES/b.txt",
        "listen: {seconds: 60, into: told}",
        RALPH_MESSAGES=str(words),
    )
    assert [event["text"] for event in played.events if event["type"] == "text"][1:] == [
        "received: Use tabs.",
        "received: Now.\n",
    ]
    assert (stage.workspace / "told").read_text() == "Use tabs.\nNow.\n\n"
    assert sorted(os.listdir(words)) == ["a.received.hook", "b.received.hook"]


def test_listening_without_a_message_continues(stage: Stage) -> None:
    assert stage.steps("listen: 0.05", "say: nothing came").events[-1]["text"] == "nothing came"
