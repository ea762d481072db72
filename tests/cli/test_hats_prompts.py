"""What hats are told in real runs, as `ralph prompt` prints it: waves, refuted claims, receivers, and what is left out."""

import re
import subprocess

import pytest
from test_hats_gates import run_seed
from test_loop import Done, Project, project  # noqa: F401 - the fixture

WAVE = """\
event_loop: {starting_event: go.on}
events:
  piece.built: {evidence: true, otherwise: piece.broken}
hats:
  splitter: {triggers: [go.on], publishes: [piece.ready], instructions: Split.}
  builder: {triggers: [piece.ready], publishes: [piece.built], concurrency: 2, instructions: Build., may_ask: false}
  critic: {triggers: [piece.built, piece.broken], publishes: [all.done], aggregate: {}, instructions: Review.}
  last: {triggers: [all.done], publishes: [LOOP_COMPLETE], instructions: End.}
"""
AGENT = """\
case $RALPH_HAT in
splitter) for n in 1 2; do
    id=$("$RALPH_BIN" tools task ensure "Build part $n" --key part:$n --format quiet)
    "$RALPH_BIN" emit piece.ready "task_id: $id, part $n"
  done;;
builder) id=$(grep -o 'task-[0-9a-f-]*' "$RALPH_EVENT" | head -1); part=$(grep -o 'part [12]' "$RALPH_EVENT" | head -1)
  echo "$part" > "${part#part }.txt"; "$RALPH_BIN" tools memory add "Use the logging module" -t pattern
  "$RALPH_BIN" tools task close "$id"; "$RALPH_BIN" emit piece.built "task_id: $id, built $part";;
critic) "$RALPH_BIN" emit all.done reviewed;;
last) "$RALPH_BIN" emit LOOP_COMPLETE;;
esac
"""


def run(project: Project, preset: str, script: str, *options: str) -> Done:  # noqa: F811
    """Run a preset with an agent in shell that finds its event in the file $RALPH_EVENT."""
    (project.root / "ralph.yml").write_text(preset)
    project.git("add", "-A")
    project.git("commit", "-qm", "preset", "--allow-empty")
    event = 'RALPH_EVENT=$(mktemp); sed -n "/^<event-for-you>/,/^<.event-for-you>/p" > "$RALPH_EVENT"\n'
    return project.ralph("run", "-p", "Do it", "--agent-command", project.agent(event + script), "--yes", *options)


def prompt_of(project: Project, turn: int) -> str:  # noqa: F811
    text: str = project.ralph("prompt", "--turn", str(turn), "--json").json["prompt"]
    return text


def part(prompt: str, name: str) -> str:
    found = re.search(rf"^<{name}[^>]*>\n(.*?)^</{name}>$", prompt, re.DOTALL | re.MULTILINE)
    return found[1] if found else ""


def show(project: Project, command: str) -> str:  # noqa: F811
    """What a command from a prompt prints in the tree of the run."""
    tree = next((project.root / ".ralph" / "worktrees").glob("*"), project.root)
    done = subprocess.run(command, shell=True, cwd=tree, capture_output=True, text=True, check=True)
    return done.stdout


def turns_of(project: Project, hat: str) -> list[int]:  # noqa: F811
    return [entry["turn"] for entry in project.journal("turn.started") if entry["role"] == hat]


@pytest.mark.slow
class TestWaves:
    def test_critic_can_see_the_work_on_each_event(self, project: Project) -> None:  # noqa: F811
        done = run(project, WAVE, AGENT, "--check", "`true`")
        assert done.code == 0, done.said
        [turn] = turns_of(project, "critic")
        prompt = prompt_of(project, turn)
        event = part(prompt, "event-for-you")
        assert "2 events, all of them yours now. If they are about different tasks, publish an event for each" in event
        for number in (1, 2):
            [about] = [text for text in event.split("\n\n") if f"built part {number}" in text]
            assert "It answers: `piece.ready` task_id: task-" in about and f", part {number}\n" in about
            assert f"(closed): Build part {number}" in about, "the title of the task"
            command = re.search(r"Its work is merged: `(git diff \w+~ \w+)`", about)
            assert command and f"+part {number}" in show(project, command[1])
            assert f"+part {3 - number}" not in show(project, command[1]), "only its own work"
        changes = part(prompt, "changes-so-far")
        assert len(re.findall(r"- turn \d \(builder, task-[\w-]+\): 1 file, \+1 -0, `git diff", changes)) == 2
        for turn in turns_of(project, "builder"):
            assert project.ralph("diff", project.run.name, str(turn), "--stat").out.count(".txt") == 1

    def test_worker_knows_what_the_others_do(self, project: Project) -> None:  # noqa: F811
        assert run(project, WAVE, AGENT, "--check", "`true`").code == 0
        for turn in turns_of(project, "builder"):
            prompt = prompt_of(project, turn)
            own = re.search(r"part [12]", part(prompt, "event-for-you"))
            other = re.search(
                r"own copy of the tree: `piece.ready` task_id: [\w-]+, (part [12])\.", part(prompt, "notes")
            )
            assert own and other and {own[0], other[1]} == {"part 1", "part 2"}

    def test_same_memory_is_shown_once(self, project: Project) -> None:  # noqa: F811
        assert run(project, WAVE, AGENT, "--check", "`true`").code == 0
        assert (project.root / ".ralph" / "agent" / "memories.md").read_text().count("Use the logging module") == 2
        assert prompt_of(project, turns_of(project, "critic")[0]).count("Use the logging module") == 1

    def test_refuted_result_of_a_worker_still_says_what_it_answers(self, project: Project) -> None:  # noqa: F811
        script = AGENT.replace("critic)", "critic) touch fixed;").replace('$part" > ', '$part" > ')
        done = run(project, WAVE.replace("evidence: true", "evidence: fails"), script, "--check", "`true`")
        assert done.code == 0, done.said
        event = part(prompt_of(project, turns_of(project, "critic")[0]), "event-for-you")
        refuted = (
            "`piece.broken` from builder, published by the engine instead of `piece.built`, which the checks did not"
        )
        assert event.count(refuted) == 2 and event.count("It answers: `piece.ready`") == 2
        assert "piece.broken (the checks did not confirm piece.built)" in done.out


class TestEvents:
    def test_prompt_names_the_hat_that_the_engine_chooses(self, project: Project) -> None:  # noqa: F811
        """An exact trigger comes before a pattern, also if the hat with the pattern is first in the file."""
        preset = (
            "event_loop: {starting_event: go.on}\nhats:\n"
            "  any: {triggers: ['*'], publishes: [LOOP_COMPLETE], instructions: Read.}\n"
            "  first: {triggers: [go.on], publishes: [review.ready], instructions: Go.}\n"
            "  critic: {triggers: [review.ready], publishes: [LOOP_COMPLETE], instructions: Review.}\n"
        )
        script = 'case $RALPH_HAT in first) "$RALPH_BIN" emit review.ready;; *) "$RALPH_BIN" emit LOOP_COMPLETE;; esac'
        assert run(project, preset, script).code == 0
        assert [entry["role"] for entry in project.journal("turn.started")] == ["first", "critic"]
        assert "- `review.ready`: goes to critic\n" in prompt_of(project, 1)

    def test_prompt_does_not_call_a_hat_silent_if_the_checks_refuted_it(self, project: Project) -> None:  # noqa: F811
        preset = (
            "event_loop: {starting_event: go.on}\nevents: {work.done: {evidence: true, otherwise: work.left}}\n"
            "hats:\n  one: {triggers: [go.on, work.left], publishes: [work.done], instructions: Work.}\n"
            "  last: {triggers: [work.done], publishes: [LOOP_COMPLETE], instructions: End.}\n"
        )
        script = (
            'case $RALPH_HAT in one) [ -e tried ] && touch done.txt; touch tried; "$RALPH_BIN" emit work.done;;'
            ' *) "$RALPH_BIN" emit LOOP_COMPLETE;; esac'
        )
        done = run(project, preset, script, "--check", "`test -f done.txt`")
        assert done.code == 0, done.said
        event = part(prompt_of(project, 2), "event-for-you")
        assert "published by the engine instead of `work.done`, which the checks did not confirm" in event
        assert "published nothing" not in event
        checks = part(prompt_of(project, 1), "checks")
        assert "before it accepts that everything is done, and before it accepts some events. They must pass." in checks
        assert "- `work.done`: the engine runs the checks first, and they must pass; goes to last\n" in prompt_of(
            project, 1
        )

    def test_hat_sees_all_events_of_its_last_turn(self, project: Project) -> None:  # noqa: F811
        preset = (
            "event_loop: {starting_event: go.on}\nhats:\n"
            "  splitter: {triggers: [go.on, all.built], publishes: [piece.ready, LOOP_COMPLETE], instructions: Split.}\n"
            "  builder: {triggers: [piece.ready], publishes: [all.built, piece.built], instructions: Build.}\n"
            "  clerk: {triggers: [piece.built], publishes: [piece.noted], instructions: Note.}\n"
        )
        script = (
            'case $RALPH_HAT in splitter) grep -q all.built "$RALPH_EVENT" && exec "$RALPH_BIN" emit LOOP_COMPLETE;\n'
            '"$RALPH_BIN" emit piece.ready "part 1"; "$RALPH_BIN" emit piece.ready "part 2";;\n'
            'builder) date +%N > w.txt; grep -q "part 2" "$RALPH_EVENT" && exec "$RALPH_BIN" emit all.built;'
            ' "$RALPH_BIN" emit piece.built;; clerk) date +%N > w.txt; "$RALPH_BIN" emit piece.noted;;\n'
            '*) "$RALPH_BIN" emit piece.ready "part 2";; esac'
        )
        done = run(project, preset, script, "--max-iterations", "9", "--unchecked")
        last = part(prompt_of(project, turns_of(project, "splitter")[1]), "your-last-event")
        assert "In turn 1 you published `piece.ready`:\npart 1\n`piece.ready`:\npart 2\n" in last, done.said


def test_critic_sees_the_changes_of_a_task_also_if_nothing_is_new(project: Project) -> None:  # noqa: F811
    """The builder comes back without a change. The critic must still be able to read all of the task."""
    critic = "[ -e .git/seen ] && exec \"$RALPH_BIN\" emit review.passed 'task_id: t-1'; touch .git/seen;"
    critic += " emit review.rejected 'task_id: t-1'"
    builder = "[ -e work.txt ] || date > work.txt; emit review.ready 'task_id: t-1'"
    planner = "date > plan.txt; emit tasks.ready 'task_id: t-1'"
    done = run_seed(project, critic=critic, builder=builder, planner=planner)
    assert done.code == 0, done.said
    changes = part(prompt_of(project, turns_of(project, "critic")[1]), "since-your-last-turn")
    assert "Nobody else has changed a file since then.\n" in changes
    command = re.search(r"See all changes since the work on t-1 began: `(git diff \w+ \w+)`", changes)
    assert command and "work.txt" in show(project, command[1]) and "plan.txt" not in show(project, command[1])


@pytest.mark.slow
def test_ask_line_is_only_for_hats_that_may_ask(project: Project) -> None:  # noqa: F811
    assert run(project, WAVE, AGENT, "--check", "`true`").code == 0
    splitter, builder = (prompt_of(project, turns_of(project, hat)[0]) for hat in ("splitter", "builder"))
    assert "tools interact ask" in splitter and "tools interact ask" not in builder
    assert "Do not ask the user." in builder and "Do not ask the user." not in splitter
