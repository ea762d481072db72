"""Engines, keepers and agents that are killed, interrupted, paused and aborted, through the real command line."""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from test_loop import DONE, NEVER_DONE, SUCCEEDS, Done, Project, eventually, is_alive, make_project

UNTIL_GO = "while [ ! -e go ]; do sleep 0.02; done"
PATIENT = f"""
turns:
  - steps:
      - run: echo $RALPH_TURN >> starts
      - usage: {{input_tokens: 100, output_tokens: 20, cost: 0.01}}
      - run: "{UNTIL_GO}"
      - write: {{path: done.txt, content: x}}
      - answer: {{summary: worked on}}
"""
"""An agent that works until it is told to go on, and notes each time it is started."""


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    yield from make_project(tmp_path)


def begin(project: Project, *args: str, until: str = DONE) -> "subprocess.Popen[str]":
    """A loop with the patient agent, whose turn is in progress."""
    engine = project.start(*project.playing(PATIENT, *args, until=until))
    eventually(lambda: (project.root / "starts").exists())
    return engine


def stopped(project: Project, *tasks: str) -> list[str]:
    """Runs that ended at their limit, one after the other."""
    names: list[str] = []
    for task in tasks:
        assert project.ralph(*project.working("true", "--max-iterations", "1", task=task)).code == 3
        names += [run.name for run in project.runs if run.name not in names]
    return names


def run_into_deadline(project: Project) -> Done:
    """A loop whose agent works until the deadline ends it. A slow machine gets more time to start it."""
    for seconds in (1.5, 6, 24):
        soon = (datetime.now() + timedelta(seconds=seconds)).isoformat(timespec="milliseconds")
        done = project.work("while [ ! -e done.txt ]; do sleep 0.1; done", "--deadline", soon)
        if "is in the past" not in done.err:
            break
    return done


def kill(engine: "subprocess.Popen[str]") -> None:
    engine.kill()
    engine.communicate()


def starts(project: Project) -> list[str]:
    return (project.root / "starts").read_text().split()


def command_of(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:-1]
    except OSError:
        return []


def turn_processes(project: Project) -> list[int]:
    """The processes that carry the mark of a turn of this project's runs."""
    return [pid for run in project.runs for pid in project.living(f"RALPH_TURN={run.name}/")]


class TestKilledEngine:
    def test_a_resume_takes_over_the_running_agent_and_its_result(self, project: Project) -> None:
        kill(begin(project))
        assert project.ralph("status", "--json").json["runs"][0]["state"] == "interrupted"
        resumed = project.start("resume", "--json")
        eventually(lambda: len(project.journal("run.started")) == 2)
        assert project.ralph("signal", "info", "you are the second engine").code == 0
        eventually(lambda: project.journal("signal.accepted"))
        assert project.journal("turn.ended") == [], "it waits for the agent that it took over"
        (project.root / "go").touch()
        out, err = resumed.communicate(timeout=120)
        told = json.loads(out)
        assert (resumed.returncode, told["outcome"]) == (0, "success"), err
        assert starts(project) == [f"{project.run.name}/00001"]
        assert (told["spent"]["iterations"], told["spent"]["turns"], told["spent"]["cost"]) == (1, 1, 0.01)
        [ended] = project.journal("turn.ended")
        assert (ended["result"]["end"], ended["result"]["answer"]["summary"]) == ("finished", "worked on")
        assert project.living() == []

    def test_a_turn_that_ended_while_no_engine_was_there_is_not_repeated(self, project: Project) -> None:
        kill(begin(project))
        (project.root / "go").touch()
        eventually(lambda: not project.living())
        done = project.ralph("resume", "--json").json
        assert done["outcome"] == "success"
        assert starts(project) == [f"{project.run.name}/00001"]
        assert done["spent"]["cost"] == 0.01

    @pytest.mark.slow
    def test_counters_and_money_carry_on(self, project: Project) -> None:
        second = f"case $RALPH_TURN in */00002) {UNTIL_GO};; esac"
        engine = project.start(*project.playing(NEVER_DONE + f'      - run: "{second}"\n', "--max-iterations", "3"))
        eventually(lambda: len(project.journal("turn.started")) == 2)
        kill(engine)
        (project.root / "go").touch()
        done = project.ralph("resume", "--json").json
        assert (done["outcome"], done["spent"]["iterations"], done["spent"]["turns"]) == ("limit-iterations", 3, 3)
        assert done["spent"]["cost"] == pytest.approx(0.03)
        assert done["spent"]["input_tokens"] == 300

    @pytest.mark.slow
    def test_the_tree_is_not_free_while_the_agent_lives(self, project: Project) -> None:
        kill(begin(project))
        name = project.run.name
        done = project.play(SUCCEEDS)
        assert done.code == 10
        assert name in done.err
        resumed = project.start("resume", name)
        eventually(lambda: len(project.journal("run.started", run=project.root / ".ralph" / "runs" / name)) == 2)
        (project.root / "go").touch()
        resumed.communicate(timeout=120)
        assert resumed.returncode == 0
        (project.root / "done.txt").unlink()
        again = project.play(SUCCEEDS)
        assert again.code == 0
        assert "whose engine is gone" not in again.out, "that run has ended in order"

    @pytest.mark.slow
    def test_two_resumes_at_once_are_one(self, project: Project) -> None:
        kill(begin(project))
        both = [project.start("resume") for _ in range(2)]
        eventually(lambda: any(process.poll() is not None for process in both))
        (project.root / "go").touch()
        for process in both:
            process.communicate(timeout=120)
        assert sorted(process.returncode for process in both) in ([0, 0], [0, 2], [0, 10])
        assert starts(project) == [f"{project.run.name}/00001"]

    @pytest.mark.slow
    def test_reader_of_the_lock_does_not_block_an_engine(self, project: Project) -> None:
        kill(begin(project))
        (project.root / "go").touch()
        look = (
            "import pathlib, sys\nfrom ralph.store.locks import is_held\nlock = pathlib.Path(sys.argv[1])\n"
            "print(is_held(lock), flush=True)\nwhile True: is_held(lock)"
        )
        words = [sys.executable, "-c", look, str(project.run / "lock")]
        looker = subprocess.Popen(words, env=project.environment, stdout=subprocess.PIPE, text=True)
        try:
            assert looker.stdout and looker.stdout.readline() == "False\n", "it looks from now on"
            assert project.ralph("resume").code == 0
        finally:
            looker.kill()
            looker.communicate()

    @pytest.mark.slow
    def test_an_engine_killed_before_its_first_snapshot_still_knows_how_the_tree_was(self, project: Project) -> None:
        shim = project.home / "bin"
        shim.mkdir()
        (shim / "git").write_text('#!/bin/sh\ncase "$*" in *" add "*) sleep 300;; esac\nexec /usr/bin/git "$@"\n')
        (shim / "git").chmod(0o755)
        engine = project.start(*project.playing(SUCCEEDS), PATH=f"{shim}:{os.environ['PATH']}")
        eventually(lambda: project.journal("run.started"))
        eventually(lambda: any(command_of(pid) == [b"sleep", b"300"] for pid in project.living()))
        kill(engine)
        project.end()
        assert project.ralph("resume").code == 0
        assert "+done" in project.ralph("diff").out
        assert project.ralph("undo").code == 0
        assert not (project.root / "done.txt").exists()


class TestReboot:
    def test_a_turn_that_died_with_everything_is_interrupted_and_the_run_continues(self, project: Project) -> None:
        kill(begin(project))
        (project.root / "half.txt").write_text("half\n")
        project.end()
        (project.root / "go").touch()
        done = project.ralph("resume", "--json").json
        assert done["outcome"] == "success"
        first, second = project.journal("turn.ended")
        assert (first["turn"], first["result"]["end"]) == (1, "interrupted")
        assert (second["turn"], second["result"]["end"]) == (2, "finished")
        assert (done["spent"]["iterations"], done["spent"]["turns"]) == (1, 2)
        assert "+half" in project.ralph("diff", "1").out

    @pytest.mark.parametrize("key", [pytest.param("baseline", marks=pytest.mark.slow), "iteration-1"])
    @pytest.mark.slow
    def test_a_check_that_died_with_everything_is_run_again(self, project: Project, key: str) -> None:
        touched = "true" if key == "baseline" else "test -f done.txt"
        until = f"`{touched} && echo $$ >> checks && {UNTIL_GO}; test -f done.txt`"
        engine = project.start(*project.playing(SUCCEEDS, until=until))
        eventually(lambda: (project.root / "checks").exists())
        assert project.journal("checks.started")[-1]["key"] == key
        kill(engine)
        project.end()
        (project.root / "go").touch()
        assert project.real("resume").code == 0
        assert len(project.journal("turn.started")) == 1

    @pytest.mark.slow
    def test_a_check_whose_engine_was_killed_is_ended_before_it_is_run_again(self, project: Project) -> None:
        until = f"`echo $$ >> checks; {UNTIL_GO}; test -f done.txt`"
        # A clean checkout would wait for a file that is only in the work tree.
        engine = project.start(*project.playing(SUCCEEDS, "--no-clean-room", until=until))
        eventually(lambda: (project.root / "checks").exists())
        kill(engine)
        resumed = project.start("resume")
        eventually(lambda: len((project.root / "checks").read_text().split()) == 2)
        first, _ = map(int, (project.root / "checks").read_text().split())
        assert not is_alive(first)
        (project.root / "go").touch()
        resumed.communicate(timeout=120)
        assert resumed.returncode == 0

    @pytest.mark.slow
    def test_a_new_run_takes_the_tree_over_with_a_notice(self, project: Project) -> None:
        kill(begin(project))
        name = project.run.name
        project.end()
        done = project.play(SUCCEEDS)
        assert done.code == 0
        assert f"took over the work tree from run {name}" in done.out

    @pytest.mark.slow
    def test_a_worktree_that_is_gone_is_made_again_from_its_branch(self, project: Project) -> None:
        until = "`test -f first.txt && test -f go.txt`"
        assert (
            project.work(
                "touch first.txt; pwd >> $HOME/places", "--worktree", "--max-iterations", "1", until=until
            ).code
            == 3
        )
        tree = project.root / ".ralph" / "worktrees" / project.run.name
        shutil.rmtree(tree)
        done = project.ralph("resume")
        assert done.code == 3, done.said
        assert (tree / "first.txt").exists(), "what the first turn did is on the branch"
        assert project.git("rev-parse", "--show-toplevel", cwd=tree).strip() == str(tree)
        assert project.git("status", "--short") == ""

    @pytest.mark.slow
    def test_two_resumes_at_once_make_a_worktree_that_is_gone_once(self, project: Project) -> None:
        project.work("touch first.txt", "--worktree", "--max-iterations", "1")
        tree = project.root / ".ralph" / "worktrees" / project.run.name
        shutil.rmtree(tree)
        both = [project.start("resume") for _ in range(2)]
        said = "".join("".join(process.communicate(timeout=120)) for process in both)
        assert 3 in [process.returncode for process in both], said
        assert {process.returncode for process in both} <= {0, 2, 3, 10}, said
        assert (tree / "first.txt").exists()


@pytest.mark.slow
class TestRandomKills:
    def test_however_often_the_engine_is_killed_every_turn_happens_once(self, project: Project) -> None:
        steps = 8
        chance = random.Random(20261116)
        scenario = """
turns:
  - steps:
      - run: echo $RALPH_TURN >> starts
      - sleep: 0.1
      - run: echo >> steps
      - answer: {summary: one more}
      - usage: {cost: 0.01}
"""
        args = project.playing(
            scenario, "--max-iterations", "40", until=f"`sleep 0.05; wc -l steps; test $(wc -l < steps) -ge {steps}`"
        )
        engine, args = project.start(*args), ("resume",)
        eventually(lambda: project.journal("run.started"))
        kills = 0
        while kills < 15 and engine.poll() is None:
            time.sleep(chance.uniform(0.0, 0.5))
            kill(engine)
            kills += 1
            if kills in (5, 10):
                project.end()
            engine = project.start(*args)
            seen = len(project.journal())
            if kills % 3:  # the others are killed while they start
                eventually(lambda seen=seen, engine=engine: len(project.journal()) > seen or engine.poll() is not None)
        kill(engine)
        last = project.real(*args)
        assert last.code == 0 or project.journal("run.ended"), last.said
        assert project.journal("run.ended")[-1]["outcome"] == "success"
        assert kills >= 8
        started = [entry["turn"] for entry in project.journal("turn.started")]
        ended = {entry["turn"]: entry["result"]["end"] for entry in project.journal("turn.ended")}
        assert started == list(range(1, len(started) + 1))
        assert sorted(ended) == started
        assert set(ended.values()) <= {"finished", "interrupted"}
        assert len(starts(project)) == len(set(starts(project))), "an agent was started twice for a turn"
        finished = [turn for turn, end in ended.items() if end == "finished"]
        spent = project.journal("run.ended")[-1]["spent"]
        assert spent["iterations"] == len(finished) <= len((project.root / "steps").read_text().splitlines())
        assert spent["cost"] == pytest.approx(0.01 * len(finished), abs=0.021)
        assert project.ralph("doctor").code == 0
        assert project.living() == []


class TestAbort:
    BROOD = "setsid sleep 300 & (setsid sleep 300 &); (trap '' TERM; exec setsid sleep 300) & "

    def test_a_living_engine_ends_its_turn_and_every_process_of_it(self, project: Project) -> None:
        (project.root / "ralph.yml").write_text("turn: {grace_seconds: 0.5}\n")
        engine = project.start(*project.working(f"{self.BROOD} touch here; sleep 300"))
        eventually(lambda: (project.root / "here").exists())
        done = project.ralph("abort", "--message", "changed my mind")
        assert (done.code, "aborted" in done.out) == (0, True)
        assert turn_processes(project) == []
        engine.communicate(timeout=120)
        assert engine.returncode == 8
        assert project.journal("run.ended")[-1]["reason"] == "changed my mind"
        assert project.journal("turn.ended")[-1]["result"]["end"] == "stopped"
        assert project.ralph("resume").code == 2

    @pytest.mark.slow
    def test_without_an_engine_the_living_agent_is_ended_too(self, project: Project) -> None:
        (project.root / "ralph.yml").write_text("turn: {grace_seconds: 0.5}\n")
        engine = project.start(*project.working(f"{self.BROOD} touch here; sleep 300"))
        eventually(lambda: (project.root / "here").exists())
        kill(engine)
        assert turn_processes(project) != []
        done = project.ralph("abort", "--json").json
        assert done["outcome"] == "aborted"
        assert turn_processes(project) == []
        assert project.journal("turn.ended")[-1]["result"]["end"] == "stopped"
        eventually(lambda: not project.living())
        assert project.play(SUCCEEDS).code == 0, "the tree is free"

    @pytest.mark.slow
    def test_agent_that_died_with_its_engine_does_not_block_the_run(self, project: Project) -> None:
        kill(begin(project))
        project.end()
        assert project.ralph("abort").code == 0
        assert project.journal("run.ended")[-1]["outcome"] == "aborted"

    @pytest.mark.slow
    def test_a_check_is_ended_with_the_run_and_the_tree_is_free_at_once(self, project: Project) -> None:
        until = "`trap '' TERM; touch checking; while :; do sleep 0.1; done`"
        engine = project.start(*project.playing(SUCCEEDS, until=until))
        eventually(lambda: (project.root / "checking").exists())
        assert project.ralph("abort").code == 0
        assert project.living(f"RALPH_CHECK={project.run.name}/") == []
        engine.communicate(timeout=120)
        assert engine.returncode == 8
        again = project.play(SUCCEEDS)
        assert again.code == 0, again.said

    @pytest.mark.slow
    def test_a_run_that_is_over_cannot_be_aborted(self, project: Project) -> None:
        project.play(SUCCEEDS)
        assert project.ralph("abort").code == 2
        assert project.ralph("abort", project.run.name).code == 2

    @pytest.mark.slow
    def test_clean_ends_processes_of_a_run_without_engine(self, project: Project) -> None:
        kill(begin(project))
        name = project.run.name
        doctor = project.ralph("doctor")
        assert doctor.code == 2
        assert f"ralph abort {name}" in doctor.out
        assert project.ralph("clean", name).code == 0
        assert project.living(f"RALPH_TURN={name}/") == []
        eventually(lambda: not project.living())
        assert project.runs == []


class TestInterrupts:
    @pytest.mark.slow
    def test_ctrl_c_pauses_after_the_turn_and_a_resume_continues(self, project: Project) -> None:
        engine = begin(project, until="`test -f more.txt`")
        engine.send_signal(signal.SIGINT)
        eventually(lambda: project.journal("signal.accepted"))
        assert project.ralph("signal", "info", "take your time").code == 0
        eventually(lambda: len(project.journal("signal.accepted")) == 2)
        assert project.journal("turn.ended") == [], "the engine goes on with the turn after it was asked to pause"
        (project.root / "go").touch()
        out, _ = engine.communicate(timeout=120)
        assert engine.returncode == 7
        assert "ralph resume" in out
        assert project.journal("turn.ended")[0]["result"]["end"] == "finished"
        assert len(project.journal("turn.started")) == 1
        (project.root / "more.txt").touch()
        assert project.ralph("resume").code == 0
        assert len(project.journal("turn.started")) == 1, "the finished turn was not repeated"

    @pytest.mark.slow
    def test_a_pause_starts_no_new_try_of_a_turn_that_failed(self, project: Project) -> None:
        engine = project.start(*project.working(f"echo >> starts; {UNTIL_GO}; exit 1"))
        eventually(lambda: (project.root / "starts").exists())
        engine.send_signal(signal.SIGINT)
        eventually(lambda: project.journal("signal.accepted"))
        (project.root / "go").touch()
        engine.communicate(timeout=120)
        assert engine.returncode == 7
        assert len(project.journal("turn.started")) == 1

    @pytest.mark.slow
    def test_ctrl_c_twice_interrupts_the_turn_and_a_resume_continues(self, project: Project) -> None:
        engine = begin(project)
        engine.send_signal(signal.SIGINT)
        eventually(lambda: project.journal("signal.accepted"))
        engine.send_signal(signal.SIGINT)
        out, _ = engine.communicate(timeout=120)
        assert engine.returncode == 7
        assert "Pausing after this turn. Press Ctrl-C again to interrupt it now." in out
        assert "Interrupting the turn now." in out
        assert turn_processes(project) == []
        assert project.living() == []
        [ended] = project.journal("turn.ended")
        assert ended["result"]["end"] == "steered"
        (project.root / "go").touch()
        assert project.ralph("resume").code == 0
        assert project.journal("run.ended")[-1]["spent"]["iterations"] == 1

    @pytest.mark.more_are_slow(1)
    @pytest.mark.parametrize("way", ["Ctrl-C twice", "SIGTERM"])
    def test_work_of_an_interrupted_turn_is_verified_before_the_next_turn(self, project: Project, way: str) -> None:
        engine = project.start(*project.working("echo x >> done.txt; sleep 300"))
        eventually(lambda: (project.root / "done.txt").exists())
        if way == "SIGTERM":
            engine.terminate()
        else:
            engine.send_signal(signal.SIGINT)
            eventually(lambda: project.journal("signal.accepted"))
            engine.send_signal(signal.SIGINT)
        out, _ = engine.communicate(timeout=120)
        assert "the turn was interrupted (not verified yet; `ralph resume` verifies it first)" in out, out
        status = project.ralph("status").out
        assert "what the last turn changed is not verified yet" in status, status
        assert "same as before the first turn" not in status
        done = project.ralph("resume")
        assert done.code == 0, done.said
        assert len(project.journal("turn.started")) == 1
        assert "Iterations: 1\n" in done.out

    @pytest.mark.slow
    def test_sigterm_leaves_a_run_that_can_be_resumed(self, project: Project) -> None:
        engine = begin(project)
        engine.terminate()
        engine.communicate(timeout=120)
        assert engine.returncode == 143
        assert project.living() == []
        [ended] = project.journal("turn.ended")
        assert ended["result"]["end"] == "interrupted"
        (project.root / "go").touch()
        assert project.ralph("resume").code == 0
        assert starts(project) == [f"{project.run.name}/0000{number}" for number in (1, 2)]
        assert project.journal("run.ended")[-1]["spent"]["iterations"] == 1

    @pytest.mark.slow
    def test_signal_at_the_start_of_a_turn_is_received(self, project: Project) -> None:
        """Twice, for it is a matter of milliseconds."""
        args = project.working("sleep 300")
        for number in range(1, 3):
            engine = project.start(*args)
            journal = project.root / ".ralph" / "runs"
            deadline = time.monotonic() + 120
            while time.monotonic() < deadline:
                texts = [path.read_bytes() for path in journal.glob("*/journal.jsonl")]
                if texts and texts[0].count(b'"turn.started"') == number:
                    break
            engine.terminate()
            engine.communicate(timeout=120)
            assert engine.returncode == 143
            args = ("resume",)
        assert project.living() == []


class TestSignalFiles:
    @pytest.mark.more_are_slow(1)
    @pytest.mark.parametrize(
        ("content", "code"),
        [("type: PAUSE\n", 7), ("type: stop # an old name of ABORT\nmessage: enough\nfrom: me\n", 8)],
        ids=["PAUSE", "STOP"],
    )
    def test_signal_file_written_by_hand_is_accepted_and_archived(
        self, project: Project, content: str, code: int
    ) -> None:
        engine = begin(project, until="`test -f more.txt`")
        inputs = project.run / "signals" / "inputs"
        inputs.mkdir(parents=True, exist_ok=True)
        (inputs / "by-hand.yaml").write_text(content)
        processed = project.run / "signals" / "processed" / "by-hand.yaml"
        eventually(processed.exists)
        (project.root / "go").touch()
        engine.communicate(timeout=120)
        assert engine.returncode == code
        assert processed.read_text().startswith(content)
        assert "handling_metadata" in processed.read_text()
        assert list(inputs.iterdir()) == []
        assert len(project.journal("signal.accepted")) == 1

    @pytest.mark.slow
    def test_invalid_signal_file_is_rejected_with_the_reason(self, project: Project) -> None:
        engine = begin(project)
        signals = project.run / "signals"
        (signals / "inputs" / "dir").mkdir(parents=True, exist_ok=True)
        junk = {
            "a.yaml": b"type: DANCE\n",
            "b.yaml": b"\xff\xfe",
            "c.yaml": b"x" * 100_000,
            "d.yaml": b"[" * 800,
            "e.yaml": b"- 1\n",
            "f.yaml": b"type: [PAUSE]\n",
        }
        for name, content in junk.items():
            (signals / "inputs" / name).write_bytes(content)
        (signals / "inputs" / "g.yaml").symlink_to("/etc/passwd")
        os.mkfifo(signals / "inputs" / "h.yaml")
        eventually(lambda: not list((signals / "inputs").iterdir()))
        for name in [*junk, "g.yaml", "h.yaml", "dir"]:
            assert (signals / "rejected" / f"{name}.reason").read_text().strip()
        (project.root / "go").touch()
        engine.communicate(timeout=120)
        assert engine.returncode == 0

    @pytest.mark.slow
    def test_short_message_that_expands_to_a_huge_one_is_refused(self, project: Project) -> None:
        engine = begin(project)
        names = "abcd"
        lines = ["a: &a [x, x, x, x, x, x, x, x, x]"]
        lines += [f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]" for old, new in pairwise(names)]
        inputs = project.run / "signals" / "inputs"
        inputs.mkdir(parents=True, exist_ok=True)
        (inputs / "bomb.yaml").write_text("\n".join([*lines, "type: RESUME", "message: *d"]))
        eventually(lambda: not list(inputs.iterdir()))
        (project.root / "go").touch()
        engine.communicate(timeout=120)
        assert engine.returncode == 0
        assert (project.run / "journal.jsonl").stat().st_size < 20_000

    def test_resume_cancels_an_earlier_pause(self, project: Project) -> None:
        project.work("true", "--max-iterations", "1")
        inputs = project.run / "signals" / "inputs"
        inputs.mkdir(parents=True, exist_ok=True)
        (inputs / "zz-pause.yaml").write_text("type: PAUSE\n")
        done = project.ralph("resume", "--json").json
        assert done["outcome"] == "limit-iterations"


class TestResume:
    def test_abort_lists_stopped_runs_with_state_age_and_task(self, project: Project) -> None:
        names = stopped(project, "first", "second")
        done = project.ralph("abort")
        assert done.code == 2
        for name, task in zip(names, ("first", "second"), strict=True):
            assert re.search(rf"{name}  limit-iterations +just now +{task}", done.err), done.err

    @pytest.mark.slow
    def test_bare_resume_takes_the_run_that_stopped_last_and_says_which(self, project: Project) -> None:
        first, second = stopped(project, "first", "second")
        done = project.ralph("resume")
        assert re.match(rf"Resuming {second}  limit-iterations +just now +second\n", done.out), done.out
        project.ralph("resume", first)
        assert project.ralph("resume").out.startswith(f"Resuming {first} "), "it stopped last now"

    @pytest.mark.slow
    def test_a_later_success_on_the_same_task_closes_runs_that_stopped(self, project: Project) -> None:
        [older] = stopped(project, "same")
        project.ralph(*project.working("touch done.txt", task="same"))
        done = project.ralph("resume")
        assert (done.code, "nothing to resume: every run has ended" in done.err) == (2, True)
        assert "there is no run to abort" in project.ralph("abort").err
        [newer] = {run.name for run in project.runs} - {older}
        assert f"run {newer} has since done the same task" in project.ralph("status").out
        assert project.ralph("resume", older).code == 0, "by its name it still can"

    @pytest.mark.slow
    def test_bare_commands_mean_the_run_that_is_alive(self, project: Project) -> None:
        [older] = stopped(project, "older")
        engine = begin(project)
        [alive] = {run.name for run in project.runs} - {older}
        said = project.ralph("steer", "hello")
        assert (said.code, f"to run {alive}" in said.out) == (0, True)
        assert project.ralph("signal", "info", "hello").code == 0
        done = project.ralph("abort")
        assert (done.code, done.out.startswith(f"Run {alive}: aborted")) == (0, True)
        engine.communicate(timeout=120)
        assert project.ralph("status", older, "--json").json["runs"][0]["state"] == "limit-iterations"

    @pytest.mark.slow
    def test_a_deadline_that_has_passed_can_be_lifted_or_moved(self, project: Project) -> None:
        done = run_into_deadline(project)
        assert done.code == 3, done.said
        run = project.run.name
        assert f"- ralph resume {run} --no-deadline   (without a deadline)" in done.out
        assert f"- ralph resume {run} --deadline 20" in done.out
        refused = project.ralph("resume")
        assert (refused.code, "--no-deadline" in refused.err) == (2, True)
        past = project.ralph("resume", "--deadline", "2020-01-01")
        assert (past.code, "is in the past" in past.err) == (2, True)
        later = (datetime.now() + timedelta(hours=1)).isoformat(timespec="minutes")
        assert project.ralph("resume", "--deadline", later, "--no-deadline").code == 2
        (project.root / "done.txt").touch()
        assert project.ralph("resume", "--deadline", later).code == 0
        assert project.journal("limit.extended")[-1]["limits"]["deadline"] > time.time()

    @pytest.mark.slow
    def test_a_run_continues_without_its_deadline(self, project: Project) -> None:
        assert run_into_deadline(project).code == 3
        (project.root / "done.txt").touch()
        assert project.ralph("resume", "--no-deadline").code == 0

    @pytest.mark.parametrize(
        ("option", "value", "offer"),
        [
            ("--max-iterations", "1", r"--max-iterations 2   \(1 more iteration\)"),
            pytest.param(
                "--timeout",
                "0.03",
                r"--timeout 0\.\d+   \(0\.0\d+ more minutes of active time\)",
                marks=pytest.mark.slow,
            ),
            ("--max-cost", "0.01", r"--max-cost 0\.0\d   \(\$0\.01 more\)"),
            ("--max-tokens", "100", r"--max-tokens \d+   \(100 more tokens\)"),
        ],
    )
    def test_limit_offers_the_exact_command_and_what_it_grants(
        self, project: Project, option: str, value: str, offer: str
    ) -> None:
        slow = "      - sleep: 3\n" if option == "--timeout" else ""
        scenario = NEVER_DONE.replace("  - steps:\n", f"  - steps:\n{slow}")
        done = project.play(scenario, option, value)
        assert done.code == 3, done.said
        assert "Continuing" not in done.out
        found = re.search(rf"^- ralph resume {project.run.name} {offer}$", done.out, re.MULTILINE)
        assert found, done.out
        again = project.ralph(*found[0].removeprefix("- ralph ").partition("   ")[0].split())
        assert again.code == 3
        assert len(project.journal("turn.started")) >= 2, "the command that was offered grants a turn"

    def test_a_stuck_run_continues_with_another_agent(self, project: Project) -> None:
        done = project.work("true")
        run = project.run.name
        assert (done.code, f"- ralph resume {run} --agent NAME" in done.out) == (4, True)
        resumed = project.ralph("resume", "--agent-command", project.agent("touch done.txt"), "--yes")
        assert resumed.code == 0, resumed.said
        assert "runs the turns from now on" in project.ralph("logs").out
        assert [entry["agent"] for entry in project.journal("turn.started")][-1] != "true"

    @pytest.mark.slow
    def test_a_run_stuck_on_its_last_iteration_offers_commands_that_continue(self, project: Project) -> None:
        done = project.play(NEVER_DONE, "--max-iterations", "4")
        assert done.code == 4, done.said
        run = project.run.name
        for offer in (f"{run} --agent NAME", f'{run} --guidance "what to do differently"', run):
            assert f"- ralph resume {offer}" in done.out, done.out
        assert f'ralph resume {run} --guidance "..."' in project.ralph("status", run).out
        assert f'`ralph resume {run} --guidance "..."`' in project.ralph("report").out
        other = ("--agent-command", project.agent("touch done.txt"), "--yes")
        resumed = project.ralph("resume", run, *other)
        assert resumed.code == 0, resumed.said

    @pytest.mark.slow
    def test_another_agent_stays_for_later_resumes_and_keeps_the_limits(self, project: Project) -> None:
        project.work("true", "--max-iterations", "1")
        project.ralph("resume", "--agent-command", project.agent("echo other"), "--yes", "--max-iterations", "2")
        project.ralph("resume", "--max-iterations", "3")
        labels = [entry["agent"] for entry in project.journal("turn.started")]
        assert labels[0] != labels[1] == labels[2]

    def test_another_model_is_refused_if_the_agent_of_the_run_cannot_use_it(self, project: Project) -> None:
        project.work("true", "--max-iterations", "1")
        done = project.ralph("resume", "--model", "larger", "--yes")
        assert (done.code, "add it to its command (--agent-command 'PROGRAM ...')" in done.err) == (2, True), done.said
        assert len(project.journal("turn.started")) == 1

    @pytest.mark.slow
    def test_the_agent_of_a_run_in_progress_is_not_changed(self, project: Project) -> None:
        engine = begin(project)
        done = project.ralph("resume", project.run.name, "--model", "larger")
        assert (done.code, "you cannot change its limits and agents now" in done.err) == (2, True)
        (project.root / "go").touch()
        engine.communicate(timeout=120)

    @pytest.mark.slow
    def test_counters_after_a_resume_name_the_new_limit(self, project: Project) -> None:
        project.work("true", "--max-iterations", "2")
        project.ralph("resume", "--max-iterations", "3")
        assert re.search(r"limit-iterations +3/3 ", project.ralph("status").out)
        said = project.ralph("logs").out
        assert ("Iteration 2/2" in said, "Iteration 3/3" in said, "3/2" in said) == (True, True, False)

    @pytest.mark.slow
    def test_a_limit_is_granted_once_more(self, project: Project) -> None:
        project.work("true", "--max-iterations", "2", "--on-stuck", "continue")
        done = project.ralph("resume", "--json").json
        assert (done["outcome"], done["spent"]["iterations"]) == ("limit-iterations", 4)
        assert project.journal("limit.extended")[0]["limits"]["iterations"] == 4
        (project.root / "done.txt").touch()
        assert project.ralph("resume").code in (0, 3)
        assert project.journal("run.ended")[-1]["spent"]["iterations"] <= 6

    def test_run_that_is_over_or_running_is_not_resumed(self, project: Project) -> None:
        engine = begin(project)
        running = project.ralph("resume", project.run.name)
        assert (running.code, "already running" in running.out) == (0, True)
        (project.root / "go").touch()
        engine.communicate(timeout=120)
        over = project.ralph("resume", project.run.name)
        assert (over.code, "over: success" in over.err) == (2, True)
        assert starts(project) == [f"{project.run.name}/00001"]

    def test_a_document_cannot_say_that_the_work_is_done(self, project: Project) -> None:
        project.work("true", "--max-iterations", "1")
        [path] = (project.root / ".aiwg" / "ralph" / "loops").glob("*/state.json")
        for forged in (
            {"phase": "done", "outcome": "success"},
            {"phase": "done", "outcome": "nothing-to-do", "iterations": []},
        ):
            path.write_text(json.dumps({**json.loads(path.read_text()), **forged}))
            assert project.ralph("resume").code == 3

    def test_edits_of_the_user_are_accepted(self, project: Project) -> None:
        project.work("true", "--max-iterations", "1")
        [path] = (project.root / ".aiwg" / "ralph" / "loops").glob("*/state.json")
        path.write_text(json.dumps({**json.loads(path.read_text()), "task": "another task", "mine": {"a": 1}}))
        assert project.ralph("resume").code == 3
        assert "another task" in project.turn(2).joinpath("prompt.md").read_text()
        assert json.loads(path.read_text())["mine"] == {"a": 1}
        assert [entry["path"] for entry in project.journal("document.edited")] == [str(path.relative_to(project.root))]

    @pytest.mark.slow
    def test_a_note_in_a_report_is_noticed_at_most_once(self, project: Project) -> None:
        project.work("true", "--max-iterations", "1")
        [report] = (project.root / ".aiwg" / "ralph").glob("completion-*.md")
        report.write_text(report.read_text() + "\nmy note\n")
        assert project.ralph("resume").code == 3
        assert len(project.journal("document.edited")) <= 1
        assert "my note" in report.read_text()

    def test_changed_run_record_is_refused(self, project: Project) -> None:
        project.work("true", "--max-iterations", "1")
        path = project.run / "run.json"
        record = json.loads(path.read_text())
        record["checks"] = [{"command": "true"}]
        path.write_text(json.dumps(record))
        done = project.ralph("resume")
        assert (done.code, "run.json was changed" in done.err) == (2, True)


def test_clean_removes_stopped_runs_only_if_asked(project: Project) -> None:
    stopped(project, "first", "second")
    asked = project.ralph("clean", "--keep", "0", "--older-than", "0").out
    hint = "2 runs can be resumed. To remove these, too: ralph clean --stopped --keep 0 --older-than 0\n"
    assert asked == f"Removed 0 runs.\n{hint}"
    assert project.ralph("clean").out == "Removed 0 runs.\n", "--stopped would remove nothing either"
    assert project.ralph("abort", project.runs[0].name).code == 0
    assert "1 ended run is recent, or among the latest" in project.ralph("clean").out
    assert "Removed 1 run:" in project.ralph("clean", "--keep", "1", "--older-than", "0", "--stopped").out
    assert len(project.runs) == 1


def test_init_shows_the_command_of_each_phrase(project: Project) -> None:
    (project.root / "Makefile").write_text("test:\nlint:\n")
    said = project.ralph("init").out
    assert re.search(r"tests pass +make test\n", said)
    assert re.search(r"no lint errors +make lint\n", said)
    assert re.search(r"it builds +-\n", said)


def test_resume_with_another_agent_asks_only_about_the_agent(project: Project) -> None:
    assert project.play(NEVER_DONE, "--max-iterations", "1").code == 3
    same = project.ralph("resume", "--scenario", project.scenario(SUCCEEDS), "--max-iterations", "2")
    assert same.code == 0, same.said
    (project.root / "done.txt").unlink()
    assert project.play(NEVER_DONE, "--max-iterations", "1").code == 3
    other = project.ralph("resume", "--agent-command", "touch done.txt", "--max-iterations", "2")
    assert other.code == 2
    assert "agent    touch" in other.err, other.err
    assert "check " not in other.err, "the user agreed to the checks when the run started"
