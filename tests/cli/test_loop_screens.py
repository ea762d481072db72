"""What a loop prints: each sentence once, with its content, and paths that the user can type."""

import io
import re
import resource
import shlex
import signal
import subprocess
import time

import pytest
from test_live_view import on_a_color_terminal, on_a_terminal
from test_loop import NEVER_DONE, RALPH, Project, eventually, project  # noqa: F401 - the fixture

from ralph.cli.render.journal import Renderer
from ralph.cli.render.live import LiveView
from ralph.cli.render.status_line import StatusLine
from ralph.cli.terminal import wrap_line
from ralph.core.entries import Record
from ralph.core.events import NOT_ISOLATED, DocumentEdited, TaskState
from ralph.core.limits import Limits, Spent
from ralph.core.turns import AgentEvent, EventKind, TurnEnd
from ralph.view.model import ChecksRun, RunView, TaskView, TurnView

SLOW = """
turns:
  - steps:
      - say: I begin.
      - write: {path: part.txt, content: "x\\n"}
      - hang: true
"""
REMOVES_THE_LAST_LINE = "sed -i '$ d' faults.txt"
PRINTS_TEN_FAULTS = """
n=0
while read -r line; do
  n=$((n + 1))
  if [ $n -gt 10 ]; then echo 'a.go:11:1: too many errors'; exit 1; fi
  echo "a.go:$n:1: error: $line"
done < faults.txt
[ $n -eq 0 ]
"""


def test_tools_are_shown_with_their_argument_and_their_failure(project: Project) -> None:  # noqa: F811
    scenario = """
turns:
  - steps:
      - run: echo looking; exit 3
      - write: {path: src/done.py, content: "x = 1\\n"}
"""
    done = project.play(scenario, until="`test -f src/done.py`")
    assert done.code == 0, done.said
    assert "  > run: echo looking; exit 3\n  ! failed: looking (exit code 3)\n" in done.out
    assert "  > write: src/done.py\n" in done.out


@pytest.mark.slow
def test_lesson_is_printed_once(project: Project) -> None:  # noqa: F811
    scenario = """
turns:
  - steps:
      - run: echo x >> work.txt
      - answer: {summary: A try, why: the file has another name, next: rename it}
"""
    done = project.play(scenario, "--max-iterations", "2", until="`echo app.py:3: error; test -f done.txt`")
    assert done.code == 3, done.said
    before_the_end = done.out.partition("LIMIT REACHED")[0]
    assert before_the_end.count("Next approach: ") == 2
    assert "Previous learnings" not in before_the_end, "it was printed above"
    assert "Learning: Next to try" not in done.out
    learned = done.out.partition("Learnings accumulated:\n")[2]
    assert learned.startswith("- Iterations 1, 2: "), learned
    again = project.ralph("resume", "--max-iterations", "3")
    assert again.out.count("Previous learnings: ") == 1, "a new screen repeats what was learned"


def test_failures_and_missing_progress_are_counted(project: Project) -> None:  # noqa: F811
    check = "`echo 'a.py:1: error: one'; echo 'Found 1 error in 1 file'; false`"
    done = project.play(NEVER_DONE, "--max-iterations", "2", until=check)
    assert "(failed: exit code 1, 1 failure)" in done.out
    assert "No progress in 1 iteration.\n" in done.out
    assert "No progress in 2 iterations.\n" in done.out


def test_stuck_loop_lists_what_was_tried(project: Project) -> None:  # noqa: F811
    done = project.play(NEVER_DONE)
    assert done.code == 4, done.said
    pivot = done.out.partition("Ralph asks the agent for a different approach.\n")[2]
    assert pivot.startswith("Tried so far:\n- All done! -> "), pivot
    again = project.ralph("resume", "--max-iterations", "20")
    assert again.code == 4, again.said
    assert "Learnings accumulated:\n- Iterations 2, 3, 4, 5, 6, 7, 8: the turn changed no files." in again.out, (
        again.out
    )


def test_paths_on_the_last_screen_exist_where_the_user_stands(project: Project) -> None:  # noqa: F811
    package = project.root / "packages" / "app"
    package.mkdir(parents=True)
    done = project.ralph(*project.playing(NEVER_DONE, "--max-iterations", "1"), cwd=package)
    for label in ("Report", "State saved to"):
        found = re.search(rf"^{label}: (.+)$", done.out, re.M)
        assert found and (package / found[1]).is_file(), done.out


@pytest.mark.slow
def test_capped_output_fixed_from_its_end_is_progress(project: Project) -> None:  # noqa: F811
    (project.root / "faults.txt").write_text("".join(f"fault {number}\n" for number in range(1, 19)))
    (project.root / "build.sh").write_text(PRINTS_TEN_FAULTS)
    project.git("add", "-A")
    project.git("commit", "-qm", "faults")
    done = project.work(REMOVES_THE_LAST_LINE, "--max-iterations", "20", until="`sh build.sh` passes")
    assert done.code == 0, done.said
    assert "Stuck" not in done.out
    assert "Iterations: 18\n" in done.out


class TestCtrlC:
    """Ctrl-C pauses after the turn; a second one interrupts it. Both can be resumed."""

    def test_first_waits_for_the_turn_and_second_interrupts_it(self, project: Project) -> None:  # noqa: F811
        process = project.start(*project.playing(SLOW))
        eventually(lambda: (project.root / "part.txt").exists())
        process.send_signal(signal.SIGINT)
        eventually(lambda: project.journal("signal.accepted"))
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
        assert process.returncode == 7, out + err
        assert "Pausing after this turn. Press Ctrl-C again to interrupt it now.\n" in out
        assert "Interrupting the turn now. `ralph resume` continues it.\n" in out
        assert re.search(r"^  turn 1 was interrupted after ", out, re.M), out
        assert "steered" not in out and "next try" not in out
        assert f"- ralph resume {project.run.name}   (continue from here)" in out
        [scenario] = project.home.glob("scenario-*.yaml")
        scenario.write_text("turns:\n  - steps:\n      - write: {path: done.txt, content: x}\n")
        again = project.ralph("resume")
        assert again.code == 0, again.said
        assert re.search(r"^- Changes: 2 files, .*\(part\.txt, done\.txt\)$", again.out, re.M), again.out
        assert "received RESUME" not in again.out, "that it continues was said"

    def test_turn_that_continues_is_not_asked_to_pause(self, project: Project) -> None:  # noqa: F811
        waits = SLOW.replace("- hang", "- run: until test -f go; do sleep 0.1; done\n      - hang")
        process = project.start(*project.playing(waits))
        eventually(lambda: (project.root / "part.txt").exists())
        process.send_signal(signal.SIGINT)
        eventually(lambda: project.journal("signal.accepted"))
        (project.root / "go").touch()
        eventually(lambda: project.journal("signal.received"))
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=120) == 7
        [scenario] = project.home.glob("scenario-*.yaml")
        scenario.write_text("turns:\n  - steps:\n      - write: {path: done.txt, content: x}\n")
        again = project.ralph("resume")
        assert again.code == 0, again.said
        assert "received in its prompt" not in again.out
        [prompt] = (project.run / "turns").glob("00002-*/prompt.md")
        assert "PAUSE" not in prompt.read_text()

    @pytest.mark.more_are_slow(1)
    @pytest.mark.parametrize("when", ["baseline", "after-turn"])
    def test_second_stops_a_check_that_runs(self, project: Project, when: str) -> None:  # noqa: F811
        is_slow = "true" if when == "baseline" else "test -f work.txt"
        check = f"`if {is_slow} && ! test -f quick; then touch checking; sleep 300; fi; test -f done.txt`"
        process = project.start(*project.playing(NEVER_DONE, until=check))
        eventually(lambda: (project.root / "checking").exists())
        process.send_signal(signal.SIGINT)
        eventually(lambda: project.journal("signal.accepted"))
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
        assert process.returncode == 7, out + err
        assert "Pausing after these checks. Press Ctrl-C again to stop them now.\n" in out
        assert "Stopping the checks now. `ralph resume` runs them again.\n" in out
        assert "Interrupting" not in out
        assert project.living() == [], "the check has ended, too"
        for name in ("quick", "done.txt"):
            (project.root / name).touch()
        again = project.ralph("resume")
        assert again.code == 0, again.said
        assert "PASS" in again.out

    @pytest.mark.slow
    def test_turn_that_was_not_verified_is_named(self, project: Project) -> None:  # noqa: F811
        scenario = """
turns:
  - steps:
      - write: {path: part.txt, content: "x\\n"}
      - listen: 100
      - answer: {summary: Made a start.}
"""
        process = project.start(*project.playing(scenario))
        eventually(lambda: (project.root / "part.txt").exists())
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
        assert process.returncode == 7, out + err
        assert "Made a start. (not verified yet; `ralph resume` verifies it first)\n" in out
        assert "Iterations completed: 0, and 1 not verified\n" in out
        assert "Last failure (before the run):\n" in out
        assert "received your request to pause" in out


def test_abort_after_a_limit_grants_nothing(project: Project) -> None:  # noqa: F811
    assert project.play(NEVER_DONE, "--max-iterations", "2").code == 3
    assert project.ralph("abort").code == 0
    assert project.journal("limit.extended") == []
    status = project.ralph("status").out
    assert "2/2" in status and "2/4" not in status, status


def test_resume_after_a_limit_says_what_it_grants(project: Project) -> None:  # noqa: F811
    assert project.play(NEVER_DONE, "--max-iterations", "1", "--max-cost", "5").code == 3
    again = project.ralph("resume")
    assert "limits from now on: 1 more iteration, 2 in all\n" in again.out
    assert "--max-iterations 3   (1 more iteration)\n" in again.out, "what `ralph resume` alone grants"
    higher = project.ralph("resume", "--max-iterations", "3", "--max-cost", "7")
    assert "limits from now on: 1 more iteration, 3 in all; $6.98 more, $7 in all\n" in higher.out


def test_lesson_of_a_turn_that_a_limit_cut_says_so(project: Project) -> None:  # noqa: F811
    done = project.work("echo x > work.txt; sleep 300", "--timeout", "0.05")
    assert done.code == 3, done.said
    assert "a limit of the run ended the turn before the agent had finished" in done.out
    assert re.search(r"^  turn 1 was ended after \S+ s\n  the run reached a limit\n", done.out, re.M), done.out
    assert "Last attempt:\nthe agent reported nothing\n" in done.out
    again = project.ralph("resume", "--timeout", "60", "--agent-command", project.agent("touch done.txt"), "--yes")
    assert "Why: a limit of the run ended the turn" in (project.turn(2) / "prompt.md").read_text(), again.said


def test_last_failure_has_no_code_fences(project: Project) -> None:  # noqa: F811
    many = "`for n in 1 2 3 4 5 6 7 8 9 10 11 12 13 14; do echo line $n; done; false`"
    done = project.play(NEVER_DONE, "--max-iterations", "1", until=many)
    shown = done.out.partition("Last failure (iteration 1):\n")[2].partition("\n\n")[0]
    assert shown.endswith("line 14") and "```" not in shown, shown


@pytest.mark.slow
def test_pause_means_the_live_run(project: Project) -> None:  # noqa: F811
    process = project.start(*project.playing(SLOW))
    eventually(lambda: (project.root / "part.txt").exists())
    done = project.ralph("pause", "--now")
    assert done.code == 0, done.said
    assert f"Sent PAUSE to run {project.run.name}." in done.out
    out, err = process.communicate(timeout=120)
    assert process.returncode == 7, out + err
    again = project.ralph("pause")
    assert again.code == 2
    assert "ralph resume" in again.err


@pytest.mark.slow
def test_pause_of_one_of_several_live_runs_needs_its_name(project: Project) -> None:  # noqa: F811
    for _ in range(2):
        project.real(*project.playing(SLOW, "--worktree", "--detach"))
    names = [path.name for path in project.runs]
    refused = project.ralph("pause")
    assert refused.code == 2
    assert all(name in refused.err for name in names)
    assert "--run ID" in refused.err
    for how in (("--run", names[0]), (names[1],)):
        assert project.ralph("pause", *how, "--now").code == 0
    for name in names:
        project.ralph("abort", name)


def test_pause_takes_one_message(project: Project) -> None:  # noqa: F811
    refused = project.ralph("pause", "until", "tomorrow")
    assert (refused.code, "put it in quotes" in refused.err) == (2, True), refused.said


def test_pause_without_a_run_says_so(project: Project) -> None:  # noqa: F811
    done = project.ralph("pause")
    assert done.code == 2
    assert "ralph status" in done.err


def test_doctor_shows_what_phrases_run(project: Project) -> None:  # noqa: F811
    (project.root / "package.json").write_text('{"scripts": {"typecheck": "tsc --noEmit"}}')
    done = project.ralph("doctor")
    assert "ok   criteria   'no type errors' runs npm run typecheck\n" in done.out
    assert "-    criteria   'tests pass' runs nothing here: name the command instead\n" in done.out


@pytest.mark.parametrize("most", [9, 24], ids=["for the engine", "for the program of the agent"])
def test_advice_on_too_few_file_descriptors(project: Project, most: int) -> None:  # noqa: F811
    def allow_few_files() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))

    done = subprocess.run(
        [str(RALPH), *project.playing(NEVER_DONE)],
        cwd=project.root,
        env=project.environment,
        capture_output=True,
        text=True,
        preexec_fn=allow_few_files,
    )
    assert done.returncode != 0
    said = done.stderr + done.stdout
    # With more descriptors, it depends on the machine what fails first.
    assert "ulimit -n" in said or (most > 9 and "Too many open files" not in said), said


@pytest.mark.more_are_slow(1)
@pytest.mark.parametrize("columns", ["80", "140"])
def test_later_parts_of_a_long_line_are_indented(project: Project, columns: str) -> None:  # noqa: F811
    words = " ".join(f"word{number}" for number in range(60))
    scenario = f"turns:\n  - steps:\n      - say: {words}\n      - write: {{path: done.txt, content: x}}\n"
    _, seen = on_a_terminal(project, list(project.playing(scenario)), COLUMNS=columns)
    lines = [line for line in seen.partition("turn 1 finished")[0].split("\n") if re.search(r"word\d", line)]
    starts = [line.strip("\r").rpartition("\r")[2][:4] for line in lines]
    assert starts[0] == "  | "
    assert len(starts) > 2
    assert set(starts[1:]) == {"    "}, lines


@pytest.mark.slow
def test_cost_of_the_running_turn_is_on_the_status_line(project: Project) -> None:  # noqa: F811
    scenario = """
turns:
  - steps:
      - usage: {input_tokens: 5, output_tokens: 1, cost: 0.25}
      - sleep: 2
      - write: {path: done.txt, content: x}
"""
    _, seen = on_a_terminal(project, [*project.playing(scenario), "--max-cost", "3"], COLUMNS="80")
    during = seen.partition("turn 1 finished")[0]
    assert "$0.25 of $3" in during, seen
    clocks = set(re.findall(r"\$0\.25 of \$3 · (\d+\.\d) s", during))
    assert len(clocks) > 1, "the clock of the run runs while the turn does"


def test_receipts_quote_what_the_user_said(project: Project) -> None:  # noqa: F811
    project.play(NEVER_DONE, "--max-iterations", "1")
    project.ralph("steer", "use tabs,\nplease")
    done = project.ralph("resume", "--max-iterations", "2")
    assert '  received in its prompt: "use tabs, please"\n' in done.out, done.out
    assert '  received in its prompt: "use tabs, please"\n' in project.ralph("logs").out


def test_another_branch_is_called_changed_and_not_missing(project: Project) -> None:  # noqa: F811
    done = project.work("git switch -q -c side", "--max-iterations", "1")
    assert "CHANGED: HEAD is on side and was on main before the run; `git switch main` switches back" in done.out
    assert "MISSING" not in done.out


def test_a_success_on_another_branch_needs_nothing_of_the_user(project: Project) -> None:  # noqa: F811
    assert project.work("git switch -q -c side; touch done.txt").code == 0
    status = project.ralph("status").out
    assert "NEEDS YOU" not in status
    assert "CHANGED: HEAD is on side and was on main" in status, status
    report = project.ralph("report").out
    assert "## Changed in the repository\n\n- HEAD is on side" in report
    assert "Missing" not in report


def test_a_document_that_an_editor_wrote_twice_is_named_once() -> None:
    renderer = Renderer("a-run")
    edits = [DocumentEdited("tasks/a.md", "1"), DocumentEdited("tasks/a.md", "2"), DocumentEdited("tasks/b.md", "1")]
    lines = [renderer.lines(Record(number, 0.0, edit)) for number, edit in enumerate(edits)]
    assert lines == [["read your change to tasks/a.md"], [], ["read your change to tasks/b.md"]]


@pytest.mark.parametrize("columns", [40, 80, 140])
def test_the_status_line_fits_the_terminal(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    long = RunView(checking=(ChecksRun("baseline", ("x" * 300,), 0.0),))
    view = LiveView(Renderer("a-run"), long, io.StringIO())
    assert len(view._now().plain) < columns


def test_the_reason_of_a_retry_is_printed_once_and_in_the_next_prompt(project: Project) -> None:  # noqa: F811
    script = (
        f"test -f {project.home}/again && touch done.txt && exit; touch {project.home}/again; echo no luck >&2; exit 3"
    )
    done = project.work(script)
    assert done.code == 0, done.said
    assert done.out.count("no luck") == 1, done.out
    assert "it ended as failed (exit code 3: no luck)." in project.turn(2).joinpath("prompt.md").read_text()
    assert re.search(r"^  next attempt at \d\d:\d\d:\d\d$", done.out, re.MULTILINE), done.out


def test_the_status_line_of_a_session_keeps_cost_and_clock_at_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    tasks = [
        TaskView(f"task-{n}", "Words", TaskState.DONE if n < 3 else TaskState.PLANNED, wave=n) for n in range(1, 7)
    ]
    turns = [TurnView(n, f"task-{n}", "executor", task=f"task-{n}", started_at=time.time()) for n in (3, 4)]
    spent = Spent(turns=2, cost=0.42, active_seconds=192)
    view = RunView(
        sandbox=NOT_ISOLATED,
        iteration=1,
        allowed=Limits(cost=5.0),
        spent=spent,
        spent_at=time.time(),
        tasks=tuple(tasks),
        turns=tuple(turns),
    )
    line = LiveView(Renderer("a-run"), view, io.StringIO())._now().plain
    assert re.search(r"2 of 6 done · task-3, task-4 running · \$0\.42 of \$5 · 3 min 12 s$", line), line


def test_the_clock_of_a_turn_counts_from_its_start_although_others_ended() -> None:
    """Turns of other tasks that start and end beside it do not set its clock back."""
    turns = (
        TurnView(1, "task-1", "executor", task="task-1", started_at=time.time() - 600),
        TurnView(2, "task-2", "executor", task="task-2", started_at=time.time() - 500, end=TurnEnd.FINISHED),
    )
    assert "task-1: executor at work (10 min" in StatusLine(RunView(turns=turns)).text()


@pytest.mark.slow
def test_logs_on_a_terminal_have_colors_and_wrap_at_words(project: Project) -> None:  # noqa: F811
    words = " ".join(f"word{number}" for number in range(40))
    scenario = f"turns:\n  - steps:\n      - say: {words}\n      - write: {{path: done.txt, content: x}}\n"
    assert project.play(scenario).code == 0
    _, seen = on_a_color_terminal(project, ["logs", "--tools"], COLUMNS="80")
    assert "\x1b[32m  PASS" in seen
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen).replace("\r", "").splitlines()
    assert max(map(len, lines)) <= 80, seen
    said = [
        line for line in "\n".join(lines).partition("turn 1 finished")[0].splitlines() if re.search(r"word\d", line)
    ]
    assert len(said) > 3
    assert all(line.startswith(" " * 12) for line in said)
    assert all(f"word{number}" in seen for number in range(40)), "no word is cut"
    _, plain = on_a_color_terminal(project, ["logs"], NO_COLOR="1")
    assert "\x1b[32m" not in plain
    assert "\x1b" not in project.ralph("logs").out


def test_reports_say_how_many_failures_are_left(project: Project) -> None:  # noqa: F811
    check = "`printf 'a.py:1: error: x\\nFound 3 errors in 1 file (checked 1 source file)\\n'; exit 1` passes"
    done = project.play(NEVER_DONE, "--max-iterations", "1", until=check)
    assert done.code == 3, done.said
    assert done.out.count("(failed: exit code 1, 3 failures)") == 3, "before the run, after it, and at the end"
    report = project.ralph("report").out
    [best] = [line for line in report.splitlines() if line.startswith("| Best iteration")]
    [iteration] = [line for line in report.splitlines() if line.startswith("| 1 |")]
    assert "failed: exit code 1, 3 failures" in best
    assert "failed: exit code 1, 3 failures" in iteration


@pytest.mark.slow
def test_an_aborted_run_is_not_said_to_be_resumable(project: Project) -> None:  # noqa: F811
    process = project.start(*project.playing(SLOW))
    eventually(lambda: (project.root / "part.txt").exists())
    assert project.ralph("abort", "--revert", "--yes").code == 0
    out, err = process.communicate(timeout=120)
    assert process.returncode == 8, out + err
    assert "ABORTED" in out
    assert "ralph resume" not in out


@pytest.mark.slow
def test_a_lower_limit_is_not_called_extended(project: Project) -> None:  # noqa: F811
    assert project.play(NEVER_DONE, "--max-iterations", "9", "--max-tokens", "1").code == 3
    lower = project.ralph("resume", "--max-iterations", "2", "--max-tokens", "1000")
    assert "limits from now on: 1 more iteration, 2 in all" in lower.out, lower.out
    assert "extended" not in lower.out


def test_time_limit_after_a_resume_is_a_short_number(project: Project) -> None:  # noqa: F811
    assert project.work("sleep 300", "--timeout", "0.03").code == 3
    again = project.ralph("resume").out
    granted = re.search(r"^limits from now on: \S+ more minutes of active time, (\S+) in all$", again, re.M)
    assert granted and re.fullmatch(r"0\.\d\d?", granted[1]), again
    assert f"the limit of {granted[1]} minutes of active time was reached" in again


def test_rate_limit_is_said_once(project: Project) -> None:  # noqa: F811
    limited = """
turns:
  - when: {turn: 1}
    steps: [{rate_limit: 1}]
  - when: {turn: 2}
    steps: [{error: the network is down}, {exit: 1}]
  - steps: [{write: {path: done.txt, content: ok}}]
"""
    done = project.play(limited)
    assert done.code == 0, done.said
    logs = project.ralph("logs").out
    followed = project.ralph("logs", "--tools").out
    for said, shown in (("rate limit reached", "  | "), ("the network is down", "  ! ")):
        assert f"{shown}{said}\n  turn" in done.out
        assert done.out.count(said) == logs.count(said) == followed.count(said) == 1
    assert "  exit code 1\n" in done.out


def test_failing_check_without_a_count_shows_its_first_complaint(project: Project) -> None:  # noqa: F811
    (project.root / "check.sh").write_text("echo looking; echo 'notes.md: section Upgrading is missing'; exit 1\n")
    done = project.play(NEVER_DONE, "--max-iterations", "1", until="`sh check.sh` passes")
    complaint = "failed: exit code 1: notes.md: section Upgrading is missing"
    assert f"({complaint})" in done.out
    assert complaint in project.ralph("report").out
    assert "`sh check.sh` fails: notes.md: section Upgrading is missing" in project.ralph("status").out


def test_check_that_prints_nothing_is_stuck_and_the_screen_says_why(project: Project) -> None:  # noqa: F811
    done = project.work("date +%N > work.txt", until="`test -f done.txt` passes")
    assert done.code == 4, done.said
    assert len(project.journal("turn.ended")) == 4, "three turns without progress, and one with another approach"
    assert "`test -f done.txt` prints nothing, so Ralph sees no progress until it passes" in done.out


@pytest.mark.slow
def test_iterations_before_an_aborted_turn_count_as_completed(project: Project) -> None:  # noqa: F811
    scenario = f"turns:\n  - when: {{turn: 1}}\n    steps: [{{run: echo x >> work.txt}}]\n{SLOW.partition('turns:')[2]}"
    process = project.start(*project.playing(scenario))
    eventually(lambda: (project.root / "part.txt").exists())
    assert project.ralph("abort").code == 0
    out, err = process.communicate(timeout=120)
    assert process.returncode == 8, out + err
    assert "Iterations completed: 1, and 1 not verified\n" in out
    assert "Last attempt:\nI begin. (not verified)\n" in out


@pytest.mark.slow
def test_guidance_to_a_run_stuck_on_its_last_iteration_grants_more(project: Project) -> None:  # noqa: F811
    stuck = project.play(NEVER_DONE, "--max-iterations", "4")
    assert stuck.code == 4, stuck.said
    assert f'- ralph resume {project.run.name} --guidance "what to do differently"\n' in stuck.out
    assert f"- ralph resume {project.run.name}   (continue from here, with 4 more iterations)\n" in stuck.out
    again = project.ralph("resume", "--guidance", "write done.txt")
    assert "limits from now on: 4 more iterations, 8 in all\n" in again.out
    assert re.search(r'^turn 5: .*\n  received in its prompt: "write done.txt"$', again.out, re.M), again.out


def test_a_tool_that_has_ended_is_not_on_the_status_line() -> None:
    line = StatusLine(RunView(turns=(TurnView(1, "iteration-1", "implementer", started_at=time.time()),)))
    line.add_event(1, AgentEvent(EventKind.TOOL, "run: pytest -q"))
    assert "turn 1: run: pytest -q (" in line.text()
    line.add_event(1, AgentEvent(EventKind.TOOL_RESULT, ""))
    assert "turn 1: implementer at work (" in line.text()


def test_evidence_of_a_success_is_said_once(project: Project) -> None:  # noqa: F811
    done = project.work("touch done.txt")
    assert done.code == 0, done.said
    assert done.out.count("The checks also pass in a clean checkout.") == 1
    assert project.ralph("logs").out.count("The checks also pass in a clean checkout.") == 1


RESUME = 'ralph resume 261118-000440-2cb3 --guidance "what to do differently"'


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("An agent can change every file.", ["An agent can change every", "  file."]),
        ("  | a sentence that goes on and on", ["  | a sentence that goes", "    on and on"]),
        (f"- {RESUME}   (another approach)", [f"- {RESUME}", "  (another approach)"]),
        (f"  next:  type `{RESUME}` now", ["  next:  type", f"         `{RESUME}`", "         now"]),
        ("  where: /a/path with spaces/and more", ["  where: /a/path with spaces/and more"]),
        ("  FAIL `echo one two; test -f done.txt`", ["  FAIL `echo one two; test", "    -f done.txt`"]),
        ("文件文件文件 文件文件文件文件", ["文件文件文件", "  文件文件文件文件"]),
        ("  | " + "文" * 15, ["  | " + "文" * 11, "    " + "文" * 4]),
    ],
)
def test_long_lines_wrap_at_words_and_commands_stay_whole(line: str, parts: list[str]) -> None:
    assert wrap_line(line, 26) == parts


@pytest.mark.slow
def test_errors_wrap_at_words(project: Project) -> None:  # noqa: F811
    assert project.play(NEVER_DONE, "--max-iterations", "1").code == 3
    _, seen = on_a_terminal(project, ["resume", "--max-iterations", "1"], COLUMNS="50")
    name = project.run.name
    assert f"ralph: run {name} has already used 1\r\n  of its iterations: --max-iterations 1 is too low\r\n" in seen
    assert f"  where: {project.run}\r\n" in seen, "a path is one line, so that it can be copied"


@pytest.mark.more_are_slow(1)
@pytest.mark.parametrize("redirect", ["> run.log 2>&1", "2>&1 | cat | tee run.log > /dev/null"])
def test_output_in_the_project_is_no_change_of_the_run(project: Project, redirect: str) -> None:  # noqa: F811
    (project.root / "run.log").write_text("of an earlier run\n")
    (project.root / "src").mkdir()
    project.git("add", "-A")
    project.git("commit", "-qm", "a log that git knows")

    def run(command: list[str], redirect: str) -> None:
        line = f"{shlex.join([str(RALPH), *command])} {redirect}"
        subprocess.run(["/bin/sh", "-c", line], cwd=project.root, env=project.environment, check=False)

    play = "turns: [{when: {turn: 1}, steps: [{say: Hm.}]}, {steps: [{write: {path: src/done.txt, content: x}}]}]"
    run(project.playing(play, "--scope", "src/**", until="`test -f src/done.txt` passes"), redirect)
    log = (project.root / "run.log").read_text()
    assert "Status: SUCCESS" in log and "- Files modified: 1\n" in log, log
    assert "- Changes: no files\n" in log and "scope" not in log, log
    run(["diff", "--stat"], "> what.txt")
    assert (project.root / "what.txt").read_text().splitlines()[-1].strip().startswith("1 file changed")
    assert project.ralph("undo").code == 0
    assert not (project.root / "src" / "done.txt").exists()
    assert (project.root / "run.log").read_text() == log, "an undo in another process leaves it, too"
