"""Gates of a run of hats, through the command line: they count only from the hats that own them."""

import json
import shlex
from pathlib import Path

import pytest
from test_hats import events
from test_loop import Done, Project, eventually, project  # noqa: F401 - the fixture

SEED = Path(__file__).with_name("presets") / "seed-code-assist.yml"
HONEST = {
    "planner": "emit tasks.ready 'task_id: t-1'",
    "builder": "date +%N >> work.txt; emit review.ready 'task_id: t-1'",
    "critic": "emit review.passed 'task_id: t-1'",
    "finalizer": "emit LOOP_COMPLETE done",
    "ralph": "emit tasks.ready 'task_id: t-1'",
}
EMIT = (
    'emit() { "$RALPH_BIN" emit "$@" 2>> .git/said.txt; code=$?; echo "$RALPH_HAT $1 $code" >> .git/said.txt; '
    "return $code; }\n"
)
WRITE = (
    'write() { printf \'{"topic":"%s","payload":"","ts":"2026-11-16T09:30:00Z"}\\n\' "$1" >> "$RALPH_EVENTS_FILE"; }\n'
)


def run_seed(project: Project, *options: str, preset: Path = SEED, **hats: str) -> Done:  # noqa: F811
    """Run the seed's preset with an agent that does, for each hat, what its shell script says."""
    cases = "".join(f"{hat}) {script} ;;\n" for hat, script in {**HONEST, **hats}.items())
    agent = project.agent(f"{EMIT}{WRITE}case $RALPH_ROLE in\n{cases}esac\ntrue")
    return project.ralph("run", "-c", str(preset), "-p", "Build it", "--agent-command", agent, "--yes", *options)


def change_check(project: Project, *options: str, **hats: str) -> Done:  # noqa: F811
    """Run the seed's preset with a builder that replaces the check, which the user allows."""
    (project.root / "check.sh").write_text("test -s never.txt || { echo no; exit 1; }\n")
    project.git("add", "check.sh")
    project.git("commit", "-qm", "A check")
    builder = "echo x > work.txt; echo 'exit 0' > check.sh; emit review.ready 'task_id: t-1'"
    check = ("--check", "`sh check.sh` passes", "--may-change", "check.sh")
    return run_seed(project, *check, *options, builder=builder, **hats)


def turns(project: Project) -> list[str]:  # noqa: F811
    return [entry["role"] for entry in project.journal("turn.started")]


def said(project: Project) -> str:  # noqa: F811
    return (project.root / ".git" / "said.txt").read_text()


def topics(project: Project) -> list[str]:  # noqa: F811
    return [event["topic"] for event in events(project)]


def test_the_seed_preset_completes_with_honest_hats(project: Project) -> None:  # noqa: F811
    done = run_seed(project)
    assert done.code == 0, done.said
    assert turns(project) == ["planner", "builder", "critic", "finalizer"]
    assert f"Next:   ralph diff {project.run.name}" in done.out
    evidence = "unverified. The run has no checks. Ralph relies on its hats: critic published `review.passed`."
    assert f"Evidence: {evidence}" in done.out
    assert f"| Evidence | {evidence} |" in project.ralph("report").out


def test_work_that_needs_another_check_is_unproven_without_a_judge(project: Project) -> None:  # noqa: F811
    strict = change_check(project, "--require", "proven")
    assert strict.code == 7, strict.said
    accept = f'ralph accept {project.run.name} --because "..."'
    assert f"Next:   ralph diff {project.run.name}, then {accept}" in strict.out
    assert f"accept them: `{accept}`" in project.ralph("report").out
    assert "Tests and settings as they were before the run do not confirm the work" in strict.out
    accepted = project.ralph("accept", project.run.name, "--because", "I read check.sh")
    assert (accepted.code, "Evidence: accepted. By " in accepted.out) == (0, True), accepted.said


def answer_as_judge(**answer: object) -> str:
    """What a judge does, as a shell script."""
    return f"echo {shlex.quote(json.dumps(answer))} > $RALPH_OUTBOX/result.json"


def judge_check(*, accept: bool) -> str:
    return answer_as_judge(files=[{"path": "check.sh", "accept": accept, "why": "see the request"}])


def test_judge_decides_about_a_changed_check_whatever_the_hats_say(project: Project) -> None:  # noqa: F811
    done = change_check(project, judge=judge_check(accept=True))
    assert done.code == 0, done.said
    assert turns(project) == ["planner", "builder", "critic", "finalizer", "judge"]
    assert "Evidence: judged. The checks also pass in a clean checkout." in done.out
    assert "An independent turn read and accepted 1 changed test or settings file." in done.out


def test_change_that_the_judge_rejects_goes_back_and_ends_unproven_if_it_is_kept(project: Project) -> None:  # noqa: F811
    done = change_check(project, judge=judge_check(accept=False))
    assert done.code == 7, done.said
    assert turns(project)[:6] == ["planner", "builder", "critic", "finalizer", "judge", "finalizer"]
    prompt = project.ralph("prompt", "--turn", "6", "--json").json["prompt"]
    assert "rejects these changes" in prompt and "check.sh: see the request" in prompt
    assert "all checks pass, but the work is not proven" in done.out
    assert "A judge did not accept it, and nothing changed since." in done.out
    assert f'Next:   ralph diff {project.run.name}, then ralph accept {project.run.name} --because "..."' in done.out


def test_tests_of_the_judge_run_in_a_clean_checkout_and_can_refuse_the_completion(project: Project) -> None:  # noqa: F811
    (project.root / "check.sh").write_text("! test -e fails.sh && test -s work.txt\n")
    project.git("add", "check.sh")
    project.git("commit", "-qm", "A check")
    test = {"path": "fails.sh", "text": "exit 1", "why": "the request"}
    judge = answer_as_judge(work={"accept": True, "why": "it is done"}, tests=[test])
    builder = "echo x >> work.txt; emit review.ready 'task_id: t-1'"
    options = ("--check", "`sh check.sh` passes", "--require", "judged", "--max-iterations", "5")
    done = run_seed(project, *options, builder=builder, judge=judge)
    assert done.code != 0, done.said
    assert turns(project)[:6] == ["planner", "builder", "critic", "finalizer", "judge", "finalizer"]
    prompt = project.ralph("prompt", "--turn", "6", "--json").json["prompt"]
    assert "wrote tests from the request and the documentation. The work fails them" in prompt
    assert not (project.root / "fails.sh").exists()


def test_options_about_the_judge_are_refused_if_nothing_is_judged(project: Project) -> None:  # noqa: F811
    for options in (("--judge", "kiro"), ("--require", "judged"), ("--require", "proven")):
        refused = run_seed(project, *options, "--dry-run")
        assert (refused.code, "has no effect on a run without checks" in refused.err) == (2, True), refused.said


def test_a_builder_that_passes_its_own_review_is_refused_at_once(project: Project) -> None:  # noqa: F811
    done = run_seed(project, builder="emit review.passed 'task_id: t-1'; emit review.ready 'task_id: t-1'")
    assert done.code == 0, done.said
    assert turns(project) == ["planner", "builder", "critic", "finalizer"], "the critic has its turn"
    assert "builder review.passed 2\n" in said(project)
    assert "`review.passed` counts only from critic, which lists it in `publishes`" in said(project)
    assert "next:  publish one of: review.ready, build.blocked" in said(project)


@pytest.mark.more_are_slow(1)
@pytest.mark.parametrize("file", ['"$RALPH_EVENTS_FILE"', ".ralph/turn/../turn/outbox/events.jsonl"])
def test_a_builder_that_names_its_events_file_is_refused_at_once_too(project: Project, file: str) -> None:  # noqa: F811
    done = run_seed(
        project, builder=f"emit review.passed 'task_id: t-1' --file {file}; emit review.ready 'task_id: t-1'"
    )
    assert done.code == 0, done.said
    assert turns(project) == ["planner", "builder", "critic", "finalizer"], "the critic has its turn"
    assert "builder review.passed 2\n" in said(project)


def test_a_builder_that_writes_its_own_review_into_the_file_gains_nothing(project: Project) -> None:  # noqa: F811
    done = run_seed(project, "--max-iterations", "4", builder="write review.passed")
    assert done.code == 3, done.said
    assert turns(project) == ["planner", "builder", "builder", "builder"]
    assert "review.passed" not in topics(project)
    assert "`review.passed` counts only from critic" in project.ralph("prompt", "--turn", "3", "--json").json["prompt"]


def test_a_builder_cannot_pass_its_review_from_outside_of_its_turn(project: Project) -> None:  # noqa: F811
    outside = 'env -u RALPH_EVENTS_FILE -u RALPH_PUBLISHES "$RALPH_BIN" emit review.passed x 2>> .git/said.txt'
    wrote = 'printf \'{"topic":"review.passed","payload":"","ts":"now"}\\n\' >> .ralph/runs/$RALPH_RUN/emitted.jsonl'
    done = run_seed(project, "--max-iterations", "5", builder=f"{outside}; {wrote}; emit review.ready t", critic="true")
    assert done.code != 0, done.said
    assert "finalizer" not in turns(project) and "review.passed" not in topics(project)
    assert "`review.passed` counts only from critic" in said(project)


@pytest.mark.more_are_slow(1)
@pytest.mark.parametrize("attempt", ["emit LOOP_COMPLETE done", "write LOOP_COMPLETE", "echo LOOP_COMPLETE"])
def test_coordinator_cannot_complete_after_the_finalizer_refused(project: Project, attempt: str) -> None:  # noqa: F811
    hats = {
        "builder": "if [ -e .git/blocked ]; then emit build.blocked t; else touch .git/blocked; emit review.ready t; fi",
        "finalizer": "emit finalization.failed 'not yet'",
        "ralph": attempt,
    }
    done = run_seed(project, "--max-iterations", "8", **hats)
    assert done.code != 0, done.said
    assert turns(project)[:6] == ["planner", "builder", "critic", "finalizer", "builder", "ralph"]
    assert "LOOP_COMPLETE" not in topics(project)
    if attempt.startswith("emit"):
        assert "ralph LOOP_COMPLETE 2\n" in said(project)
        assert "`LOOP_COMPLETE` counts only from finalizer" in said(project)
    page = project.ralph("prompt", "--turn", "6", "--json").json["prompt"]
    assert "Only finalizer may publish `LOOP_COMPLETE`." in page
    assert "turn 6: coordinator" in done.out and "turn 6: ralph" not in done.out
    assert "  coordinator " in project.ralph("cost").out


PASSES_AND_REJECTS = (
    "if [ -e .git/looked ]; then emit review.passed 'task_id: t-1'; else touch .git/looked;"
    " emit review.passed 'task_id: t-1'; emit review.rejected 'task_id: t-1'; fi"
)
STALE = "`LOOP_COMPLETE` was refused: the latest event on t-1 is `review.rejected`, not `review.passed`"


def test_a_later_rejection_makes_an_earlier_pass_stale(project: Project) -> None:  # noqa: F811
    """The critic passes and then rejects in one turn; the finalizer completes on the pass that it was given."""
    done = run_seed(project, critic=PASSES_AND_REJECTS, finalizer="write LOOP_COMPLETE")
    assert STALE in project.ralph("prompt", "--turn", "5", "--json").json["prompt"]
    assert done.code == 0, done.said
    assert turns(project)[:5] == ["planner", "builder", "critic", "finalizer", "finalizer"]
    assert "critic" in turns(project)[5:], "it completes only after another review"


def test_promise_after_a_stale_review_is_refused_at_once(project: Project) -> None:  # noqa: F811
    done = run_seed(project, critic=PASSES_AND_REJECTS)
    assert done.code == 0, done.said
    advice = "next:  publish one of: queue.advance, finalization.failed"
    assert f"ralph: {STALE}\n  {advice}\nfinalizer LOOP_COMPLETE 2\n" in said(project)
    assert turns(project)[:4] == ["planner", "builder", "critic", "finalizer"]
    assert "critic" in turns(project)[4:], "it completes only after another review"


def test_promise_without_a_required_event_is_refused_at_once(project: Project) -> None:  # noqa: F811
    """The finalizer has its turn before the critic."""
    early = project.home / "early.yml"
    early.write_text(
        SEED.read_text().replace(
            '["review.passed"]\n    publishes', '["review.passed", "build.blocked"]\n    publishes'
        )
    )
    blocked_once = "if [ -e .git/early ]; then emit review.ready t; else touch .git/early; emit build.blocked t; fi"
    finalizer = "emit LOOP_COMPLETE done || emit queue.advance t"
    done = run_seed(project, preset=early, builder=f"date +%N >> work.txt; {blocked_once}", finalizer=finalizer)
    assert done.code == 0, done.said
    assert turns(project) == ["planner", "builder", "finalizer", "planner", "builder", "critic", "finalizer"]
    refused = "ralph: `LOOP_COMPLETE` was refused: critic has not published `review.passed` in this run\n"
    assert refused in said(project) and said(project).count("finalizer LOOP_COMPLETE 2\n") == 1


def test_promise_beside_a_failure_of_the_same_turn_is_refused_at_once(project: Project) -> None:  # noqa: F811
    finalizer = (
        "if [ -e .git/failed ]; then emit LOOP_COMPLETE done; else touch .git/failed;"
        " emit finalization.failed 'task_id: t-1'; emit LOOP_COMPLETE done; fi"
    )
    done = run_seed(project, finalizer=finalizer)
    assert done.code == 0, done.said
    assert turns(project) == ["planner", *["builder", "critic", "finalizer"] * 2], "the failure counts"
    assert "finalizer LOOP_COMPLETE 2\n" in said(project)
    assert "`LOOP_COMPLETE` contradicts `finalization.failed`, which you published in this turn" in said(project)


def test_hat_can_take_back_what_contradicts_its_promise(project: Project) -> None:  # noqa: F811
    takes_back = "emit queue.advance x; emit LOOP_COMPLETE no; sed -i /queue.advance/d $RALPH_EVENTS_FILE; emit LOOP_COMPLETE yes"
    done = run_seed(project, finalizer=takes_back)
    assert done.code == 0, done.said
    assert turns(project) == ["planner", "builder", "critic", "finalizer"]
    assert "finalizer LOOP_COMPLETE 2\n" in said(project) and "finalizer LOOP_COMPLETE 0\n" in said(project)


@pytest.mark.more_are_slow(1)
@pytest.mark.parametrize("promise", ["echo LOOP_COMPLETE", "write LOOP_COMPLETE"])
def test_hat_decides_between_a_failure_and_a_promise_that_it_wrote(project: Project, promise: str) -> None:  # noqa: F811
    done = run_seed(project, "--max-iterations", "5", finalizer=f"write finalization.failed; {promise}")
    assert done.code == 3, done.said
    assert turns(project) == ["planner", "builder", "critic", "finalizer", "finalizer"]
    assert not {"finalization.failed", "LOOP_COMPLETE"} & set(topics(project)), "neither counts until the hat decides"
    page = project.ralph("prompt", "--turn", "5", "--json").json["prompt"]
    assert "`finalization.failed` and `LOOP_COMPLETE` in one turn contradict each other" in page


def test_forged_events_are_not_shown_in_the_live_view(project: Project) -> None:  # noqa: F811
    """The file of events is for reading. An agent without a sandbox can write it, but no hat receives that."""
    forged = '{"topic":"review.passed","payload":"forged","ts":"2026-11-16T09:30:00Z","hat":"critic","turn":3}'
    write = f"printf '%s\\n' '{forged}' >> .ralph/events-$RALPH_RUN.jsonl"
    done = run_seed(project, "--max-iterations", "2", builder=f"{write}; emit review.ready 'task_id: t-1'")
    assert done.code == 3, done.said
    assert "forged" in (project.root / ".ralph" / f"events-{project.run.name}.jsonl").read_text()
    for shown in (done.out, project.ralph("logs").out):
        assert "-> review.ready task_id: t-1" in shown and "-> review.passed" not in shown


def test_user_cannot_pass_a_gate_and_gets_advice(project: Project) -> None:  # noqa: F811
    assert run_seed(project, "--max-iterations", "2").code == 3
    for topic, owner in (("review.passed", "critic"), ("LOOP_COMPLETE", "finalizer")):
        refused = project.real("emit", topic, "by hand", "--run", project.run.name)
        assert refused.code == 2, refused.said
        assert f"`{topic}` counts only from {owner}" in refused.err
    assert project.real("emit", "review.ready", "task_id: t-1", "--run", project.run.name).code == 0


@pytest.mark.slow
def test_a_hat_that_ends_in_its_default_event_three_times_makes_the_run_ask(project: Project) -> None:  # noqa: F811
    hats = {"critic": "true", "builder": "date +%N >> work.txt; emit review.ready 'task_id: t-1'"}
    done = run_seed(project, **hats)
    assert done.code == 7, done.said
    assert turns(project).count("critic") == 3 and turns(project)[-1] == "critic"
    assert "critic ended its last 3 turns without an event of its own (`review.rejected` by default)" in done.out
    assert "--guidance" in done.out
    again = project.ralph("resume", "--max-iterations", "9")
    assert again.code == 3, "its count starts again, and the limit comes first"
    never = run_seed(project, "-c", "event_loop.max_default_events=0", "--max-iterations", "9", **hats)
    assert never.code == 3, never.said


def test_prompt_of_a_reviewing_hat_shows_changes_since_its_last_turn(project: Project) -> None:  # noqa: F811
    critic = "if [ -e .git/seen ]; then emit review.passed t; else touch .git/seen; emit review.rejected t; fi"
    builder = "date +%N >> work.txt; date +%N > again-$$.txt; emit review.ready t"
    done = run_seed(project, critic=critic, builder=builder)
    assert done.code == 0, done.said
    first, second = (project.ralph("prompt", "--turn", turn, "--json").json["prompt"] for turn in ("3", "5"))
    assert "- turn 2 (builder, t-1): 2 files, +2 -0" in first
    changes = second.partition("<since-your-last-turn>")[2].partition("</since")[0]
    assert "- turn 4 (builder): 2 files" in changes and "turn 2" not in changes
    builder_again = project.ralph("prompt", "--turn", "4", "--json").json["prompt"]
    assert "Nobody else has changed a file since then." in builder_again
    assert "<changes-so-far>" in first and "<since-your-last-turn>" not in first


def test_refused_event_as_the_last_command_of_a_script_is_sent_back(project: Project) -> None:  # noqa: F811
    first = 'touch .git/tried; exec "$RALPH_BIN" emit review.passed mine'
    done = run_seed(project, builder=f"[ -e .git/tried ] && {{ {HONEST['builder']}; }} || {{ {first}; }}")
    assert done.code == 0, done.said
    assert turns(project) == ["planner", "builder", "builder", "critic", "finalizer"]
    ended = [entry for entry in project.journal("turn.ended") if entry["role"] == "builder"]
    assert [(one["result"]["end"], one["result"]["code"]) for one in ended] == [("finished", 2), ("finished", 0)]
    assert not any(one.get("retry_at") for one in ended), "no wait, and no failure that counts"
    prompt = (project.turn(3) / "prompt.md").read_text()
    assert "`review.passed` counts only from critic" in prompt


def test_refused_event_of_a_hat_that_just_ends_is_shown_to_the_user_and_to_the_hat(project: Project) -> None:  # noqa: F811
    critic = "if [ -e .git/seen ]; then emit review.passed t; else touch .git/seen; emit review.rejected t; fi"
    done = run_seed(project, critic=critic, builder="date +%N >> work.txt; emit review.passed t-1; true")
    assert done.code == 0, done.said
    assert turns(project) == ["planner", *["builder", "critic"] * 2, "finalizer"], "the default event counts"
    refusal = "an event of builder was refused: `review.passed` counts only from critic"
    assert refusal in done.out and refusal in project.ralph("logs").out
    prompts = {turn: project.ralph("prompt", "--turn", str(turn), "--json").json["prompt"] for turn in range(2, 7)}
    assert [turn for turn, text in prompts.items() if refusal in text] == [3, 4, 5]


def test_script_that_fails_after_a_refused_event_has_failed(project: Project) -> None:  # noqa: F811
    first = 'touch .git/tried; "$RALPH_BIN" emit review.passed mine; exit 1'
    done = run_seed(project, builder=f"[ -e .git/tried ] && {{ {HONEST['builder']}; }} || {{ {first}; }}")
    assert done.code == 0, done.said
    ended = [entry for entry in project.journal("turn.ended") if entry["role"] == "builder"]
    assert [one["result"]["end"] for one in ended] == ["failed", "finished"]


@pytest.mark.parametrize("name", ["ralph", pytest.param("coordinator", marks=pytest.mark.slow)])
def test_steer_to_ralph_is_for_the_coordinator_alone(project: Project, name: str) -> None:  # noqa: F811
    gate = project.home / "gate"
    waits = f"while [ ! -e {gate} ]; do sleep 0.05; done; "
    builder = f"{waits}{HONEST['builder']}"
    cases = "".join(f"{hat}) {script} ;;\n" for hat, script in {**HONEST, "builder": builder}.items())
    said_by_ralph = "ralph) emit human.guidance.ack; emit LOOP_COMPLETE done;;\n"
    agent = project.agent(f"{EMIT}case $RALPH_HAT in\n{said_by_ralph}{cases}esac\ntrue")
    words = ("run", "-c", str(SEED), "-p", "Build it", "--agent-command", agent, "--yes", "--max-iterations", "8")
    engine = project.start(*words)
    eventually(lambda: "builder" in turns(project))
    sent = project.ralph("steer", "Be brief", "--to", name)
    assert (sent.code, "Sent STEER for coordinator to run" in sent.out) == (0, True), sent.said
    eventually(lambda: project.journal("signal.accepted"))
    gate.touch()
    out, _ = engine.communicate(timeout=300)
    prompts = {entry["role"]: (project.turn(entry["turn"]) / "prompt.md") for entry in project.journal("turn.started")}
    got = {role for role, path in prompts.items() if "Be brief" in path.read_text()}
    assert got == {"ralph"}, out
    [row] = project.ralph("signals", "--json").json["signals"]
    assert row["target"] == "ralph" and {one["role"] for one in row["receipts"]} == {"ralph"}


FORGES_STATE = r"""
python3 - <<'PYTHON'
import json, os, signal, time
run = os.path.join(".ralph", "runs", os.environ["RALPH_RUN"])
os.kill(json.load(open(os.path.join(run, "lock")))["pid"], signal.SIGKILL)
time.sleep(0.2)
path = os.path.join(run, "hats.json")
state = json.load(open(path))
state |= {"phase": "done", "outcome": "success", "reason": "LOOP_COMPLETE by finalizer; all checks pass", "ended": True}
json.dump(state, open(path, "w"))
with open(f".ralph/events-{os.environ['RALPH_RUN']}.jsonl", "a") as file:
    file.write('{"topic":"review.passed","payload":"","ts":"2026-11-16T09:30:00Z","hat":"critic"}\n')
PYTHON
"""


def test_a_builder_that_kills_the_engine_and_forges_its_state_is_not_believed(project: Project) -> None:  # noqa: F811
    cases = "".join(f"{hat}) {script} ;;\n" for hat, script in {**HONEST, "builder": FORGES_STATE}.items())
    agent = project.agent(f"{EMIT}case $RALPH_HAT in\n{cases}esac\ntrue")
    killed = project.real("run", "-c", str(SEED), "-p", "Build it", "--agent-command", agent, "--yes")
    assert killed.code == -9
    eventually(lambda: "review.passed" in topics(project))
    project.end()

    shown = project.ralph("logs", "--events")
    assert [line.split()[1] for line in shown.out.splitlines()] == ["build.start", "tasks.ready"]
    assert "1 line of" in shown.err and "not in the journal" in shown.err
    refused = project.ralph("resume", project.run.name)
    assert refused.code == 2, refused.said
    assert "something other than Ralph changed or deleted its hats.json" in refused.err
    assert f"ralph resume {project.run.name} --adopt" in refused.err
    assert "NOT VERIFIED" in project.ralph("logs").out

    honest = "".join(f"{hat}) {script} ;;\n" for hat, script in HONEST.items())
    for path in project.home.glob("agent-*.sh"):
        path.write_text(f"{EMIT}case $RALPH_HAT in\n{honest}esac\ntrue")
    done = project.ralph("resume", project.run.name, "--adopt", "--yes")
    assert done.code == 0, done.said
    assert turns(project) == ["planner", "builder", "critic", "finalizer"], "it starts over"
    assert [line.split()[1] for line in project.ralph("logs", "--events").out.splitlines()][-1] == "LOOP_COMPLETE"


def test_evidence_topic_counts_only_if_a_clean_checkout_confirms_it(project: Project) -> None:  # noqa: F811
    (project.root / ".gitignore").write_text("local.txt\n")
    project.git("add", ".gitignore")
    project.git("commit", "-qm", "Ignore a file")
    (project.root / "own.yml").write_text(
        "event_loop: {starting_event: go.on}\n"
        "events: {piece.built: {evidence: true, otherwise: piece.broken}}\n"
        "hats:\n  builder: {triggers: [go.on, piece.broken], publishes: [piece.built]}\n"
        "  last: {triggers: [piece.built], publishes: [LOOP_COMPLETE]}\n"
    )
    builder = (
        "echo x >> work.txt; if [ -e local.txt ]; then touch kept.txt; else touch local.txt; fi; emit piece.built t"
    )
    agent = project.agent(f"{EMIT}case $RALPH_HAT in\nbuilder) {builder} ;;\nlast) emit LOOP_COMPLETE t ;;\nesac\ntrue")
    check = ("--check", "`test -f local.txt || test -f kept.txt` passes")
    done = project.ralph("run", "-c", "own.yml", "-p", "Build it", *check, "--agent-command", agent, "--yes")
    assert done.code == 0, done.said
    assert turns(project) == ["builder", "builder", "last"], done.said
    assert "piece.broken (the checks did not confirm piece.built)" in done.out
    assert "passes here and fails in a clean checkout" in done.out
    assert "Evidence: proven." in done.out
