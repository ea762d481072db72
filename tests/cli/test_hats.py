"""`ralph run` through the real command line: hats that call the real tools on a real project."""

import json
import re
import shlex
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from test_loop import Done, Project, eventually, project  # noqa: F401 - the fixture

from ralph.store import locks

AGENT = Path(__file__).with_name("hats_agent.py")
OBJECTIVE = "Add --verbose to the CLI"
CHECK = f"`{sys.executable} -m unittest -q`"
DOCS = ".agents/scratchpad/implementation/add-verbose-to-the-cli-*"


def words(project: Project, **script: Any) -> list[str]:  # noqa: F811
    path = project.home / "script.json"
    path.write_text(json.dumps(script))
    project.extra["SCRIPT"] = str(path)
    return ["--agent-command", shlex.join([sys.executable, str(AGENT)]), "--yes"]


def begin(project: Project, *args: str, **script: Any) -> Done:  # noqa: F811
    if not (project.root / "ralph.yml").exists():
        assert project.ralph("init", "--preset", "code-assist").code == 0
        project.git("add", "-A")
        project.git("commit", "-qm", "preset")
    return project.ralph("run", "-p", OBJECTIVE, "--check", CHECK, *words(project, **script), *args)


def hats_of(project: Project) -> list[str]:  # noqa: F811
    return [line.split()[0] for line in (project.home / "turns").read_text().splitlines()]


def events(project: Project) -> list[dict[str, Any]]:  # noqa: F811
    [path] = (project.root / ".ralph").glob("events-*.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


ONE_TASK = ["builder", "critic", "finalizer"]


def test_code_assist_from_build_start_to_loop_complete(project: Project) -> None:  # noqa: F811
    done = begin(project, reject=1)
    assert done.code == 0, done.said
    cycle = ["planner", *ONE_TASK]
    assert hats_of(project) == ["planner", "builder", "critic", *ONE_TASK, *cycle, *cycle, "judge"]
    topics = [event["topic"] for event in events(project)]
    assert topics[:4] == ["build.start", "tasks.ready", "review.ready", "review.rejected"]
    assert (topics[-1], topics.count("queue.advance"), topics.count("review.passed")) == ("LOOP_COMPLETE", 2, 3)
    assert "VERBOSE = True" in (project.root / "cli.py").read_text()
    assert {path.name for path in next(project.root.glob(DOCS)).iterdir()} == {
        "context.md",
        "plan.md",
        "progress.md",
        "logs",
    }
    agent = project.root / ".ralph" / "agent"
    tasks = [json.loads(line) for line in (agent / "tasks.jsonl").read_text().splitlines()]
    assert [task["status"] for task in tasks] == ["closed"] * 3
    assert {task["loop_id"] for task in tasks} == {project.run.name}
    assert "DEC-001" in (agent / "decisions.md").read_text()
    assert "verbose is in cli.py" in (agent / "memories.md").read_text()
    subjects = project.git("log", "--format=%s").splitlines()
    assert [s for s in subjects if s.startswith("ralph: checkpoint")] == [
        "ralph: checkpoint after turn 14",
        "ralph: checkpoint after turn 10",
        "ralph: checkpoint after turn 5",
    ]
    assert project.git("status", "--porcelain") == ""


@pytest.mark.slow
def test_commands_for_runs_work_for_hats(project: Project) -> None:  # noqa: F811
    assert begin(project).code == 0
    report = project.ralph("report").out
    assert "| By hat | planner 3, builder 3, critic 3, finalizer 3 |" in report
    assert "## Decisions\n\n- DEC-001: The output stays as it is (confidence 70); nobody asked" in report
    assert "| Required events | review.passed passed |" in report
    logs = project.ralph("logs").out
    assert "-> tasks.ready {" in logs and "-> LOOP_COMPLETE all steps are done" in logs
    assert project.ralph("restore", "2").code == 0
    assert "VERBOSE = False" in (project.root / "cli.py").read_text()
    assert project.ralph("clean", project.run.name).code == 0
    assert not list((project.root / ".ralph").glob("events-*"))


def test_the_page_of_a_turn_is_shown_with_its_tokens(project: Project) -> None:  # noqa: F811
    assert begin(project, "--max-iterations", "3").code == 3
    told = project.ralph("prompt", "--turn", "3", "--json").json
    counts = {part["name"]: part["tokens"] for part in told["parts"]}
    assert {"frame", "guardrails", "objective", "hat", "event-for-you", "ready-tasks", "memories"} <= counts.keys()
    assert counts["frame"] <= 3200 / 3, "the fixed part"
    assert sum(counts.values()) <= told["tokens"]
    assert "(in progress)" in told["prompt"] and "entry-point is in cli.py" in told["prompt"]
    assert "frame" in project.ralph("prompt", "--parts").out
    assert (project.ralph("prompt", "--turn", "99").code, project.ralph("prompt").code) == (2, 0)
    assert "has no turn 0" in project.ralph("prompt", "--turn", "0").err


@pytest.mark.slow
def test_early_completion_is_refused_with_the_reason(project: Project) -> None:  # noqa: F811
    done = begin(project, rash=True)
    assert done.code == 0, done.said
    assert hats_of(project)[:5] == ["planner", "builder", "critic", "finalizer", "finalizer"]
    page = project.ralph("prompt", "--turn", "5", "--json").json["prompt"]
    assert "`LOOP_COMPLETE` was refused: 2 tasks are not closed" in page


@pytest.mark.slow
def test_a_mute_agent_is_stuck_long_before_its_iterations_are_used(project: Project) -> None:  # noqa: F811
    done = begin(project, "-c", "event_loop.max_default_events=0", mute=["builder", "critic"])
    assert done.code == 4, done.said
    assert "nothing changed in 8 turns" in done.out
    assert len(hats_of(project)) == 9
    assert [e["default"] for e in events(project)][2:] == [True] * 8


def test_nothing_is_believed_that_the_checks_deny(project: Project) -> None:  # noqa: F811
    done = begin(project, "--max-iterations", "16", "--check", "file cli.py exists", silent=True)
    assert done.code == 3, done.said
    page = project.ralph("prompt", "--turn", "13", "--json").json["prompt"]
    assert "the engine ran the checks, and they do not pass" in page
    assert "LOOP_COMPLETE" in {event["topic"] for event in events(project)}


@pytest.mark.parametrize("turn", [4, *(pytest.param(turn, marks=pytest.mark.slow) for turn in (1, 2))])
@pytest.mark.slow
def test_a_killed_engine_loses_and_repeats_no_event(project: Project, turn: int) -> None:  # noqa: F811
    project.ralph("init", "--preset", "code-assist")
    project.git("add", "-A")
    project.git("commit", "-qm", "preset")
    args = ["run", "-p", OBJECTIVE, "--check", CHECK, *words(project, slow=0.4)]
    engine = project.start(*args)
    eventually(lambda: len(project.journal("turn.started")) >= turn)
    engine.kill()
    engine.communicate()
    time.sleep(0.1 * turn)
    (project.home / "script.json").write_text("{}")
    done = project.real("resume")
    assert done.code == 0, done.said
    assert hats_of(project) == ["planner", *ONE_TASK] * 3 + ["judge"]
    keys = [entry["key"] for entry in project.journal("turn.started") if entry["role"] != "judge"]
    assert keys == [f"iteration-{number}" for number in range(1, 13)]
    assert [e["topic"] for e in events(project)].count("tasks.ready") == 3


@pytest.mark.slow
def test_nothing_leaks_from_one_run_to_the_next(project: Project) -> None:  # noqa: F811
    """Its events, its open tasks and its scratchpad are the first run's own."""
    assert begin(project, "--max-iterations", "3").code == 3
    [first] = project.runs
    pad = project.root / ".ralph" / "agent" / "scratchpad.md"
    pad.write_text("old notes\n")
    done = begin(project)
    assert done.code == 0, done.said
    [second] = [run for run in project.runs if run != first]
    page = project.ralph("prompt", second.name, "--turn", "1", "--json").json["prompt"]
    assert "old notes" not in page and "<ready-tasks" not in page
    assert (second / "before" / ".ralph-agent-scratchpad.md").read_text() == "old notes\n"
    state = json.loads((second / "hats.json").read_text())
    assert state["events_published"] == 13 and state["activations"]["planner"] == 3
    rows = [json.loads(line) for line in (pad.parent / "tasks.jsonl").read_text().splitlines()]
    assert {row["status"] for row in rows if row["loop_id"] == first.name} == {"open", "in_progress"}


@pytest.mark.slow
def test_guidance_reaches_the_next_hat_and_has_to_be_acknowledged(project: Project) -> None:  # noqa: F811
    begin(project, "--max-iterations", "2")
    assert "it has planner, builder, critic, finalizer" in project.ralph("steer", "x", "--to", "nobody").err
    done = project.ralph("resume", "--guidance", "Greet in capitals", "--max-iterations", "30")
    assert done.code != 0
    page = project.ralph("prompt", "--turn", "3", "--json").json["prompt"]
    assert page.count("Greet in capitals") == 1 and "publish `human.guidance.ack`" in page
    assert "the message from the user is not acknowledged" in project.ralph("prompt", "--json").json["prompt"]


@pytest.mark.slow
def test_the_user_publishes_an_event_and_a_hat_receives_it(project: Project) -> None:  # noqa: F811
    begin(project, "--max-iterations", "2")
    assert project.real("emit", "build.blocked", "look at the wires", "--run", project.run.name).code == 0
    assert project.ralph("resume", "--max-iterations", "4").code == 3
    topics = [(event["topic"], event["hat"]) for event in events(project)]
    assert project.ralph("abort").code == 0
    for run in ([], ["--run", project.run.name]):
        over = project.real("emit", "build.blocked", "too late", *run)
        assert (over.code, "is over (aborted)" in over.err) == (2, True), over.said
    assert "there is no run" in project.real("emit", "x.y", "z", "--run", "..").err
    assert topics[3:5] == [("build.blocked", "user"), ("review.passed", "critic")]
    assert (
        "`build.blocked` from user:\nlook at the wires"
        in project.ralph("prompt", "--turn", "4", "--json").json["prompt"]
    )


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["-c", "missing.yml"], "it cannot be read"),
        (["-H", "builtin:nothing"], "there is no preset 'nothing'"),
        (["-c", "event_loop.max_iteration=3"], "did you mean `max_iterations`?"),
        (
            ["-p", "x", "-c", "hats.finalizer.concurrency=3"],
            "a hat that publishes the completion promise cannot work in parallel",
        ),
        (["-p", "x", "-c", "hats.finaliser.model=large"], "did you mean hats.finalizer?"),
        (["-c", "https://example.org/x.yml"], "cannot be downloaded"),
        (["-P", "NOPE.md"], "there is no objective"),
        (["-P", "."], "there is no objective"),
        (["-p", "x", "-H", ""], "the name of the preset is empty"),
        (["-p", "x", "-H", "."], "name a file, or one of builtin:"),
        (["-p", " "], "the objective is empty"),
        (["-p", "Build tasks/missing.code-task.md"], "where: tasks/missing.code-task.md"),
        (
            ["-p", "x", "-c", "hats.planner.triggers=[task.start]"],
            "the run begins with `build.start` (`event_loop.starting_event`)",
        ),
        (["-p", "x", "--completion-promise", " "], "--completion-promise is empty"),
        (["-p", "x", "-b", "claud"], "did you mean claude?"),
        (["-p", "x", "--check", "`true`", "--land", "ff"], "--land needs a branch"),
        (["-p", "x", "--check", "`true`", "--max-iterations", "0"], "is not a valid limit"),
        (["-p", "x"], "write the command: --check '`COMMAND` passes'"),
        (["-p", "x", "-H", "review", "--no-snapshots"], "`event_loop.scope` needs snapshots"),
        (["-p", "See `we$(id)ird/plan` it", "-H", "review"], "its name cannot be used in a check"),
        (["-p", "x", "--check", "make it nice"], "ralph:"),
    ],
)
def test_bad_options_are_refused_before_anything_starts(project: Project, options: list[str], told: str) -> None:  # noqa: F811
    project.ralph("init", "--preset", "code-assist")
    (project.root / "we$(id)ird" / "plan" / "tasks").mkdir(parents=True)
    agent = [] if "-b" in options else ["--agent-command", "cat"]
    done = project.ralph("run", *options, *agent, "--yes")
    assert (done.code, told in done.err) == (2, True), done.said
    assert project.runs == []


def test_init_writes_once_and_knows_its_presets(project: Project) -> None:  # noqa: F811
    assert "code-assist" in project.ralph("init", "--list-presets").out.split()
    assert "did you mean codex?" in project.ralph("init", "-b", "codx").err
    assert project.ralph("init", "-b", "codex").code == 0
    again = project.ralph("init", "--force", "--preset", "./ralph.yml", "-b", "claude")
    assert "names its agent itself" in again.err, again.said
    assert "codex" in (project.root / "ralph.yml").read_text()
    assert project.ralph("init").code == 2
    assert project.ralph("init", "--force", "--preset", "code-assist").code == 0
    assert '"event_loop"' in project.ralph("init", "--schema").out


def test_checks_that_are_given_come_beside_those_of_the_preset(project: Project) -> None:  # noqa: F811
    plan = ("run", "-p", "x", "--agent-command", "true", "--dry-run", "--json")
    both = project.ralph(*plan, "-H", "spec-driven", "--check", "`./verify`", "--check", "`./verify`").json
    document, command = [one["command"] or one["path"] for one in both["settings"]["checks"]]
    # The name of the directory ends in a hash of objective and preset.
    assert re.fullmatch(r"\.agents/scratchpad/implementation/x-[0-9a-f]{6}/spec\.md", document)
    assert command == "./verify"
    assert any("`tests pass` of the preset is ignored" in told for told in both["notes"]), "no command for it here"
    (project.root / "Makefile").write_text("test:\n\ttrue\n")
    found = project.ralph(*plan, "-H", "tdd", "--check", "`./verify`").json
    assert [one["command"] for one in found["settings"]["checks"]] == ["make test", "./verify"]


def test_each_hat_has_its_own_agent_and_a_program_gets_its_prompt_as_an_argument(project: Project) -> None:  # noqa: F811
    one = project.agent('printf "%s" "$2" | head -c 8 > one.txt; "$RALPH_BIN" emit next.one go')
    two = project.agent('printf "%s" "$1" | head -c 8 > two.txt; "$RALPH_BIN" emit LOOP_COMPLETE')
    (project.root / "ralph.yml").write_text(
        f"event_loop: {{starting_event: go.on}}\n"
        f"cli: {{backend: custom, command: '{one}', prompt_flag: --prompt}}\n"
        f"hats:\n  first: {{triggers: [go.on], publishes: [next.one]}}\n"
        f"  second: {{triggers: [next.one], publishes: [LOOP_COMPLETE], backend: {{command: '{two}'}}}}\n"
    )
    (project.root / "PROMPT.md").write_text("Do it\n")
    done = project.ralph("run", "--yes")
    assert done.code == 0, done.said
    assert (project.root / "one.txt").read_text() == "This is "
    roles = [(entry["role"], entry["agent"]) for entry in project.journal("turn.started")]
    assert [role for role, _ in roles][:2] == ["first", "second"] and roles[0][1] != roles[1][1]


def test_a_prompt_that_is_too_long_for_an_argument_goes_into_a_file(project: Project) -> None:  # noqa: F811
    agent = project.agent(
        'echo "$1" > told.txt; file=${1#Read the file }; cat "${file%% *}" > page.txt; "$RALPH_BIN" emit LOOP_COMPLETE'
    )
    (project.root / "ralph.yml").write_text(
        f"event_loop: {{starting_event: go.on}}\ncli: {{backend: custom, command: '{agent}'}}\n"
        "hats: {one: {triggers: [go.on], publishes: [LOOP_COMPLETE], instructions: '"
        + "All of it. " * 20_000
        + "The end.'}}\n"
    )
    (project.root / "PROMPT.md").write_text("Do it.\n")
    done = project.ralph("run", "--yes")
    assert done.code == 0, done.said
    assert (project.root / "told.txt").read_text().startswith("Read the file /")
    page = (project.root / "page.txt").read_text()
    assert page.startswith("This is one turn") and "The end." in page


def test_events_of_a_failed_turn_count(project: Project) -> None:  # noqa: F811
    script = project.agent(
        'if [ "$RALPH_HAT" = one ]; then "$RALPH_BIN" emit go.further; exit 3; fi; "$RALPH_BIN" emit LOOP_COMPLETE'
    )
    (project.root / "ralph.yml").write_text(
        "event_loop: {starting_event: go.on}\nhats:\n  one: {triggers: [go.on], publishes: [go.further]}\n"
        "  two: {triggers: [go.further], publishes: [LOOP_COMPLETE]}\n"
    )
    done = project.ralph("run", "-p", "Do it", "--agent-command", script, "--yes")
    assert done.code == 0, done.said
    assert [entry["role"] for entry in project.journal("turn.started")] == ["one", "two"]


def test_a_hat_that_may_not_ask_is_refused_by_the_tool_itself(project: Project) -> None:  # noqa: F811
    script = project.agent(
        '"$RALPH_BIN" tools interact ask "May I?" > said.txt 2>&1; "$RALPH_BIN" emit LOOP_COMPLETE; echo "$RALPH_HAT" >> said.txt'
    )
    (project.root / "ralph.yml").write_text(
        "event_loop: {starting_event: go.on}\nhats: {quiet: {triggers: [go.on], publishes: [LOOP_COMPLETE], may_ask: false}}\n"
    )
    done = project.ralph("run", "-p", "Do it", "--agent-command", script, "--yes")
    assert done.code == 0, done.said
    said = (project.root / "said.txt").read_text()
    assert "this hat may not ask the user" in said and said.endswith("quiet\n")


def test_a_topic_that_is_not_the_hats_own_is_refused_by_the_tool_itself(project: Project) -> None:  # noqa: F811
    script = project.agent(
        'for topic in LOOP_COMPLETE other.topic work.done human.said; do "$RALPH_BIN" emit $topic x >> said.txt 2>&1; done;'
        ' "$RALPH_BIN" emit work.done "task_id: 7" >> said.txt; [ $RALPH_HAT = first ] || "$RALPH_BIN" emit LOOP_COMPLETE'
    )
    (project.root / "ralph.yml").write_text(
        "event_loop: {starting_event: go.on, enforce_hat_scope: true}\nevents: {work.done: {requires: [task_id]}}\n"
        "hats:\n  first: {triggers: [go.on], publishes: [work.done]}\n"
        "  last: {triggers: [work.done], publishes: [LOOP_COMPLETE]}\n"
    )
    done = project.ralph("run", "-p", "Do it", "--agent-command", script, "--yes")
    assert done.code == 0, done.said
    said = (project.root / "said.txt").read_text()
    assert "`LOOP_COMPLETE` counts only from last" in said
    assert "`other.topic` is not yours to publish\n  next:  publish one of: work.done" in said
    assert "`work.done` lacks task_id in its payload" in said
    assert "`human.said` cannot be published: `human.*` topics are reserved" in said
    assert "note:" not in done.out.partition("turn 1")[2].partition("turn 2")[0], "nothing was left to refuse"


def test_a_check_whose_program_was_replaced_proves_nothing(project: Project) -> None:  # noqa: F811
    """No snapshot holds what git ignores, so the programs of the checks are known by their hashes."""
    tool = project.root / ".venv" / "bin" / "judge"
    tool.parent.mkdir(parents=True)
    tool.write_text("#!/bin/sh\nexit 1\n")
    tool.chmod(0o755)
    (project.root / ".gitignore").write_text(".venv/\n")
    script = project.agent('echo "exit 0" > .venv/bin/judge; "$RALPH_BIN" emit LOOP_COMPLETE')
    (project.root / "ralph.yml").write_text(
        "event_loop: {starting_event: go.on}\nhats: {one: {triggers: [go.on], publishes: [LOOP_COMPLETE]}}\n"
    )
    asked = ("--check", "`.venv/bin/judge` passes", "--max-iterations", "2", "--agent-command", script, "--yes")
    done = project.ralph("run", "-p", "Do it", *asked)
    assert done.code != 0, done.said
    assert "is not what it was before the run" in project.ralph("prompt", "--turn", "2", "--json").json["prompt"]


@pytest.mark.slow
def test_persistent_run_waits_for_more_work(project: Project) -> None:  # noqa: F811
    script = project.agent('echo "$RALPH_TURN" >> work.txt; "$RALPH_BIN" emit LOOP_COMPLETE done')
    (project.root / "ralph.yml").write_text(
        "event_loop: {starting_event: go.on, persistent: true}\n"
        "hats: {worker: {triggers: [go.on, more.work], publishes: [LOOP_COMPLETE]}}\n"
    )
    engine = project.start("run", "-p", "Work", "--agent-command", script, "--yes")
    eventually(lambda: len(project.journal("turn.ended")) == 1)
    assert project.real("emit", "more.work", "another thing").code == 0
    eventually(lambda: len(project.journal("turn.ended")) == 2)
    assert project.real("signal", "pause").code == 0
    out, _ = engine.communicate(timeout=120)
    assert engine.returncode == 7, out
    assert [event["topic"] for event in events(project)] == ["go.on", "LOOP_COMPLETE", "more.work", "LOOP_COMPLETE"]


def test_notice_names_scratchpads_that_stay_in_a_worktree(project: Project) -> None:  # noqa: F811
    (project.root / "ralph.yml").write_text("core: {scratchpad: notes/pad.md}\n")
    shown = project.ralph("run", "-p", "x", "--worktree", "--dry-run", "--agent-command", "true")
    assert "the prompts do not contain notes/pad.md" in shown.out, shown.said


def test_done_on_the_last_allowed_turn_is_done(project: Project) -> None:  # noqa: F811
    script = project.agent('"$RALPH_BIN" emit LOOP_COMPLETE done')
    (project.root / "ralph.yml").write_text("hats: {worker: {triggers: [go.on], publishes: [LOOP_COMPLETE]}}\n")
    limits = ["-c", "event_loop.starting_event=go.on", "--max-iterations", "1"]
    done = project.ralph("run", "-p", "Work", "--check", "`true`", "--agent-command", script, "--yes", *limits)
    assert (done.code, len(project.journal("turn.started"))) == (0, 1), done.said


def test_a_preset_over_the_settings_drops_neither_required_events_nor_limits(project: Project) -> None:  # noqa: F811
    (project.root / "own.yml").write_text(
        "event_loop: {starting_event: go.on, required_events: [work.reviewed], max_iterations: 7, max_cost_usd: 2}\n"
        "core: {guardrails: [Be kind.]}\n"
        "hats: {worker: {triggers: [go.on], publishes: [work.reviewed, LOOP_COMPLETE]}}\n"
    )
    (project.root / "ralph.yml").write_text("event_loop: {max_runtime_seconds: 60}\n")
    for how in ("-H", "-c"):
        args = ["run", "-p", "x", how, "own.yml", "--agent-command", "true", "--allow-unpriced", "--dry-run", "--json"]
        plan = project.ralph(*args).json
        hats, limits = plan["settings"]["hats"], plan["settings"]["limits"]
        assert hats["required"] == ["work.reviewed"] and hats["guardrails"] == ["Be kind."]
        assert (limits["iterations"], limits["cost"], limits["active_seconds"]) == (7, 2.0, 60.0)


@pytest.mark.slow
def test_a_test_that_was_seen_red_has_to_be_green_as_it_was(project: Project) -> None:  # noqa: F811
    """It is new in this run, so nothing before the run tells that it was emptied."""
    body = "import app,unittest\n\nclass T(unittest.TestCase):\n    def test_two(self):\n        self.assertEqual(app.two(), 2)\n"
    (project.home / "test_app.py").write_text(body)
    (project.root / "app.py").write_text("def two():\n    return 1\n")
    (project.root / "ralph.yml").write_text(
        "event_loop: {starting_event: go.on, enforce_hat_scope: true}\n"
        "events: {test.red: {evidence: fails}, test.green: {evidence: true, otherwise: test.red}}\n"
        "hats:\n  tester: {triggers: [go.on], publishes: [test.red]}\n"
        "  coder: {triggers: [test.red], publishes: [test.green]}\n"
        "  last: {triggers: [test.green], publishes: [LOOP_COMPLETE]}\n"
    )
    script = project.agent(
        f'case $RALPH_ROLE in tester) cp {project.home}/test_app.py test_app.py; "$RALPH_BIN" emit test.red;;\n'
        "coder) if [ -e .git/tried ]; then sed -i s/1/2/ app.py; else touch .git/tried; sed -i 's/app.two()/2/' test_app.py; fi;"
        ' "$RALPH_BIN" emit test.green;;\n'
        'last) "$RALPH_BIN" emit LOOP_COMPLETE;;\n'
        """judge) echo '{"files": [{"path": "test_app.py", "accept": true, "why": "x"}]}' > $RALPH_OUTBOX/result.json;; esac"""
    )
    check = ("--check", f"`{sys.executable} -m unittest -q` passes")
    done = project.ralph("run", "-p", "Do it", *check, "--agent-command", script, "--yes", "--max-iterations", "6")
    assert done.code == 0, done.said
    assert "was seen to fail, and its original version still fails" in done.out
    roles = [entry["role"] for entry in project.journal("turn.started")]
    assert roles == ["tester", "coder", "coder", "last", "judge"]


@pytest.mark.slow
def test_a_run_that_cannot_begin_takes_nothing_from_the_one_before_it(project: Project) -> None:  # noqa: F811
    assert begin(project).code == 0
    home = project.root / ".ralph"
    kept = {home / name: (home / name).read_text() for name in ("current-events", "current-loop-id")}
    notes = home / "agent" / "scratchpad.md"
    notes.write_text("notes of hours\n")
    lock = locks.acquire(home / "tree.lock", {"run": "another"})
    assert isinstance(lock, locks.Lock)
    refused = begin(project)
    lock.release()
    assert (refused.code, notes.read_text()) == (10, "notes of hours\n"), refused.said
    assert {path: path.read_text() for path in kept} == kept
