"""What a user of hats sees: dry runs, warnings at the start, faults of a preset, progress, and runs that continue."""

from pathlib import Path

import pytest
from test_hats_gates import SEED
from test_live_view import on_a_terminal
from test_loop import DONE, SYSTEM_PATH, Project, project  # noqa: F401 - the fixture

from ralph.documents.hats.preset import PROMPT_KEYS
from ralph.store.presets import list_shipped

ROOT = Path(__file__).parents[2]
ONE_HAT = "event_loop: {starting_event: go.on}\nhats: {one: {triggers: [go.on], publishes: [LOOP_COMPLETE]}}\n"
FAULTY = """\
event_loop:
  max_iterations: -3
  starting_hat: nobody
cli:
  backend: custom
hats:
  first:
    triggers: [task.start]
    concurrency: 2
    aggregate: {}
  second:
    publishes: [work.done]
  third:
    triggers: [work.done, "not a topic"]
  fourth:
    triggers: [work.left, task.resume]
    max_activations: many
  fifth:
    triggers: [work.left]
hooks: {enabled: true}
"""
FAULTS = (
    (2, "event_loop.max_iterations"),
    (3, "event_loop.starting_hat"),
    (4, "cli.command"),
    (8, "hats.first.triggers.task.start"),
    (10, "hats.first.aggregate"),
    (11, "hats.second.triggers"),
    (14, "hats.third.triggers.1"),
    (16, "hats.fourth.triggers.task.resume"),
    (17, "hats.fourth.max_activations"),
    (19, "hats.fifth.triggers.work.left"),
    (20, "hooks.enabled"),
)


class TestDryRun:
    def test_works_with_a_preset_whose_agent_is_not_installed(self, project: Project) -> None:  # noqa: F811
        options = ("run", "-c", str(SEED), "-p", "Build it")
        shown = project.ralph(*options, "--dry-run", PATH=SYSTEM_PATH)
        assert shown.code == 0, shown.said
        assert "note: the program of kiro was not found: install it with `" in shown.out
        assert "Agent:      kiro:" in shown.out and "You are the hat 📋 Planner" in shown.out
        refused = project.ralph(*options, "--yes", PATH=SYSTEM_PATH)
        assert (refused.code, "the program of kiro was not found" in refused.err) == (6, True)
        assert project.runs == []

    @pytest.mark.parametrize(
        "command", [("loop", "the task", "--until", DONE), ("session", "new", "Build it"), ("run", "-p", "Build it")]
    )
    @pytest.mark.parametrize(
        ("agent", "missing"),
        [
            (("--agent", "kiro"), "the program of kiro was not found"),
            (("--agent-command", "no-such-program -x"), "the program 'no-such-program' was not found"),
            (("--agent-acp", "no-such-program acp"), "the program of `no-such-program acp` was not found"),
        ],
    )
    def test_works_without_the_agent_in_every_workflow(
        self,
        project: Project,  # noqa: F811
        command: tuple[str, ...],
        agent: tuple[str, str],
        missing: str,
    ) -> None:
        shown = project.ralph(*command, *agent, "--dry-run", PATH=SYSTEM_PATH)
        assert (shown.code, missing in shown.out) == (0, True), shown.said


class TestPromptMode:
    def test_run_and_docs_say_in_the_same_words_for_whom_it_holds(self, project: Project) -> None:  # noqa: F811
        (project.root / "ralph.yml").write_text(
            f"cli: {{backend: kiro, prompt_mode: stdin, prompt_flag: -p}}\n{ONE_HAT}"
        )
        shown = project.ralph("run", "-p", "x", "--dry-run", PATH=SYSTEM_PATH)
        assert f"note: `cli.prompt_mode` and `cli.prompt_flag` have no effect here. {PROMPT_KEYS}\n" in shown.out
        for page in ("hats.md", "reference.md"):
            assert PROMPT_KEYS in (ROOT / "docs" / page).read_text()


class TestChecks:
    def test_line_before_the_checks_names_commands_and_no_internal_key(self, project: Project) -> None:  # noqa: F811
        (project.root / "ralph.yml").write_text(ONE_HAT)
        agent = """sh -c '"$RALPH_BIN" emit LOOP_COMPLETE'"""
        done = project.ralph("run", "-p", "x", "--check", "`true`", "--agent-command", agent, "--yes")
        assert done.code == 0, done.said
        assert "\nrunning the checks: `true` passes\n" in done.out
        assert "claim" not in done.out


class TestStructuralErrors:
    def test_all_of_them_come_at_once_in_the_order_of_their_lines(self, project: Project) -> None:  # noqa: F811
        (project.root / "ralph.yml").write_text(FAULTY)
        refused = project.ralph("hats", "check")
        assert refused.code == 2
        said = refused.err.removeprefix("ralph: ").splitlines()[:-1]
        assert [line.partition(" ")[0] + line.split("`")[1] for line in said] == [
            f"{project.root}/ralph.yml:{line}:{key}" for line, key in FAULTS
        ], refused.err

    def test_a_value_that_is_left_out_is_not_reported_as_missing(self, project: Project) -> None:  # noqa: F811
        (project.root / "ralph.yml").write_text(
            "hats:\n  one:\n    triggers: [go on]\n    publishes: [LOOP_COMPLETE]\n"
        )
        refused = project.ralph("hats", "check")
        assert "'go on' is not a topic" in refused.err and "receives nothing" not in refused.err

    def test_hat_without_triggers_is_an_error(self, project: Project) -> None:  # noqa: F811
        (project.root / "ralph.yml").write_text(
            ONE_HAT.replace("hats: {", "hats: {idle: {publishes: [LOOP_COMPLETE]}, ")
        )
        refused = project.ralph("hats", "check")
        assert (refused.code, "ralph.yml:2: error: idle receives nothing" in refused.out) == (2, True), refused.said

    @pytest.mark.parametrize(
        ("loop", "hint"),
        [
            ("", "if one should begin, write `work.start` here, and `starting_event: work.start` under `event_loop:`"),
            ("event_loop: {starting_event: go.on}\n", "the run begins with `go.on` (`event_loop.starting_event`)"),
            ("event_loop: {starting_event: task.start}\n", "if one should begin, write `work.start` here"),
        ],
    )
    def test_the_hint_about_task_start_leads_to_a_run(self, project: Project, loop: str, hint: str) -> None:  # noqa: F811
        preset = f"{loop}hats: {{one: {{triggers: [task.start], publishes: [LOOP_COMPLETE], instructions: Go.}}}}\n"
        (project.root / "ralph.yml").write_text(preset)
        refused = project.ralph("hats", "check")
        assert (refused.code, hint in refused.err) == (2, True), refused.err
        topic = "go.on" if "go.on" in loop else "work.start"
        followed = preset.replace("task.start", topic) + ("" if loop else "event_loop: {starting_event: work.start}\n")
        (project.root / "ralph.yml").write_text(followed)
        checked = project.ralph("hats", "check")
        assert "1 hat, no problems; the shortest path to the end takes 1 turn: one" in checked.out, checked.said

    @pytest.mark.parametrize("path", ["tasks/a.code-task.md", "/nowhere/a.code-task.md", "../a.code-task.md"])
    def test_task_file_that_does_not_exist_is_an_error(self, project: Project, path: str) -> None:  # noqa: F811
        (project.root / "ralph.yml").write_text(ONE_HAT)
        refused = project.ralph("run", "-p", f"Build @{path}.", "--agent-command", "true", "--dry-run")
        assert (refused.code, f"where: {path}\n" in refused.err) == (2, True), refused.said

    def test_task_file_can_be_named_by_its_absolute_path(self, project: Project) -> None:  # noqa: F811
        task = project.root / "login.code-task.md"
        task.write_text("Build a login.\n")
        options = ("--check", "`true`", "--agent-command", "true", "--dry-run")
        shown = project.ralph("run", "-H", "code-assist", "-p", f"Build {task}", *options)
        assert "the objective is a single task file" in shown.out, shown.said


class TestWarningsAtTheStart:
    def run(self, project: Project, *options: str) -> str:  # noqa: F811
        agent = project.agent('date +%N > work.txt; "$RALPH_BIN" emit review.ready x')
        done = project.ralph("run", "-p", "x", "--agent-command", agent, "--yes", "--max-iterations", "1", *options)
        assert done.code in (0, 3), done.said
        return done.out.partition("turn 1: ")[0]

    def test_each_is_one_line_and_comes_once_for_a_preset(self, project: Project) -> None:  # noqa: F811
        (project.root / "ralph.yml").write_text(SEED.read_text() + "tui: {prefix_key: x}\n")
        first, again = self.run(project), self.run(project)
        warnings = [line for line in first.splitlines() if "warning: " in line or "has no effect" in line]
        assert len(warnings) == 4 and not any("add a hat that receives it" in line for line in warnings), first
        assert "warning: " not in again and "`tui`" not in again
        assert "note: ralph.yml has 4 warnings, as before: `ralph hats check` shows them\n" in again

    def test_later_runs_name_the_command_for_this_preset(self, project: Project) -> None:  # noqa: F811
        (project.root / "own.yml").write_text(SEED.read_text())
        self.run(project, "-H", "own.yml")
        assert "as before: `ralph hats check own.yml` shows them\n" in self.run(project, "-H", "own.yml")
        assert "warning: " in project.ralph("hats", "check", "own.yml").out

    @pytest.mark.slow
    def test_warnings_appear_again_for_a_changed_preset_and_in_dry_runs(self, project: Project) -> None:  # noqa: F811
        (project.root / "ralph.yml").write_text(SEED.read_text())
        self.run(project)
        assert "warning: " in self.run(project, "--dry-run")
        (project.root / "ralph.yml").write_text(f"# changed\n{SEED.read_text()}")
        assert "ralph.yml:28: warning: " in self.run(project)
        assert "seed-code-assist.yml has 2 warnings" not in self.run(project, "-H", str(SEED))

    def test_documents_are_named_only_if_the_preset_has_them(self, project: Project) -> None:  # noqa: F811
        (project.root / "ralph.yml").write_text(ONE_HAT)
        assert "share their documents" not in self.run(project)
        assert "share their documents" in self.run(project, "-H", "code-assist", "--check", "`true`", "--dry-run")


class TestProgress:
    @pytest.mark.slow
    def test_progress_of_an_agent_is_in_the_live_view(self, project: Project) -> None:  # noqa: F811
        (project.root / "ralph.yml").write_text(ONE_HAT)
        agent = project.agent(
            '"$RALPH_BIN" tools interact progress "the parser is done"; sleep 1.5; "$RALPH_BIN" emit LOOP_COMPLETE'
        )
        code, seen = on_a_terminal(project, ["run", "-p", "Do it", "--agent-command", agent, "--yes"])
        assert code == 0, seen
        assert "  | reports: the parser is done" in seen
        assert "turn 1: the parser is done (" in seen, "the status line shows it too"

    def test_progress_is_among_the_lines_of_a_run_without_a_terminal(self, project: Project) -> None:  # noqa: F811
        (project.root / "ralph.yml").write_text(ONE_HAT)
        agent = project.agent('"$RALPH_BIN" tools interact progress "half way"; "$RALPH_BIN" emit LOOP_COMPLETE')
        done = project.ralph("run", "-p", "Do it", "--agent-command", agent, "--yes")
        assert done.out.count("| reports: half way\n") == 1, done.said
        assert project.ralph("logs", "--tools").out.count("half way") == 1


def test_report_lists_the_decisions_of_this_run_also_those_written_by_hand(project: Project) -> None:  # noqa: F811
    (project.root / "ralph.yml").write_text(ONE_HAT)
    tool = (
        '"$RALPH_BIN" tools decision add "Use -v" -c 70 --alternatives "-V" --reasoning "usual" --reversibility "easy"'
    )
    earlier = project.ralph(
        *(run := ("run", "-p", "Do it", "--yes", "--agent-command")), project.agent(f"{tool}; {EMIT}")
    )
    assert earlier.code == 0, earlier.said
    known = set(project.runs)
    by_hand = r"printf '\n## DEC-002: Use argparse\n- Confidence: 60\n- Reasoning: it is there\n' >> .ralph/agent/decisions.md"
    done = project.ralph(*run, project.agent(f"{by_hand}; {EMIT}"))
    assert done.code == 0, done.said
    [new] = set(project.runs) - known
    report = project.ralph("report", new.name).out
    assert "## Decisions\n\n- DEC-002: Use argparse (confidence 60); it is there\n" in report
    assert "Use -v" not in report


EMIT = '"$RALPH_BIN" emit LOOP_COMPLETE'


def test_resume_with_yes_agrees_to_another_agent(project: Project) -> None:  # noqa: F811
    (project.root / "ralph.yml").write_text(ONE_HAT)
    first = project.agent('date +%N > work.txt; "$RALPH_BIN" emit go.on again')
    assert project.ralph("run", "-p", "x", "--agent-command", first, "--max-iterations", "1", "--yes").code == 3
    other = ("resume", "--max-iterations", "3", "--agent-command", project.agent(EMIT))
    refused = project.ralph(*other)
    assert (refused.code, "--yes" in refused.err) == (2, True), refused.said
    done = project.ralph(*other, "--yes")
    assert done.code == 0, done.said


@pytest.mark.parametrize("sandbox", ["off", pytest.param("auto", marks=pytest.mark.slow)])
def test_long_prompt_is_a_file_in_the_inbox_and_is_removed(project: Project, sandbox: str) -> None:  # noqa: F811
    agent = project.agent('for last; do :; done; echo "$last" > said.txt; "$RALPH_BIN" emit LOOP_COMPLETE')
    (project.root / "ralph.yml").write_text(
        f"event_loop: {{starting_event: go.on}}\ncli: {{backend: custom, command: '{agent}', prompt_flag: --prompt}}\n"
        f"hats: {{one: {{triggers: [go.on], publishes: [LOOP_COMPLETE], instructions: '{'All of it. ' * 20_000}'}}}}\n"
    )
    done = project.ralph("run", "-p", "Do it", "--yes", "--sandbox", sandbox)
    assert done.code == 0, done.said
    file = Path((project.root / "said.txt").read_text().removeprefix("Read the file ").partition(" and follow it")[0])
    assert file.is_relative_to(project.root / ".ralph"), "agents may read only their workspace"
    assert not file.exists()


@pytest.mark.parametrize("name", list_shipped())
def test_page_of_a_preset_says_that_checks_are_added(project: Project, name: str) -> None:  # noqa: F811
    page = (ROOT / "docs" / "presets" / f"{name}.md").read_text()
    assert "Each `--check` is added to these." in page and "repeat the check" not in page
    (project.root / "Makefile").write_text("test:\n\ttrue\n")
    shown = project.ralph(
        "run", "-H", name, "-p", "x", "--check", "`./own`", "--agent-command", "true", "--dry-run", "--json"
    )
    checks = [check["command"] for check in shown.json["settings"]["checks"]]
    assert len(checks) > 1 and checks[-1] == "./own", "those of the preset and the given one"


def test_counts_of_one_are_in_the_singular(project: Project) -> None:  # noqa: F811
    (project.root / "ralph.yml").write_text(ONE_HAT.replace("}}", ", max_activations: 1}}"))
    drawn = project.ralph("hats", "graph", "--format", "text").out
    assert "1 turn at most" in drawn
    (project.root / "ralph.yml").write_text(ONE_HAT)
    agent = project.agent('"$RALPH_BIN" tools task add "Left over"; "$RALPH_BIN" emit LOOP_COMPLETE; true')
    done = project.ralph("run", "-p", "x", "--agent-command", agent, "--yes", "--max-iterations", "1")
    assert "the limit of 1 iteration was reached" in done.out, done.said
    state = project.ralph("resume", "--max-iterations", "2")
    assert "1 task is not closed" in project.ralph("prompt", "--turn", "2", "--json").json["prompt"], state.said
