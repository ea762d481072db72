"""A limit on cost holds, or the run does not start; a price that turns out to be unknown stops the run."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_agents import CODEX_DONE, UNTIL, program
from test_loop import Done, Project, make_project


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    yield from make_project(tmp_path)


@pytest.fixture
def bin_dir(project: Project) -> Path:
    place = project.home / "bin"
    place.mkdir()
    project.extra = {"PATH": f"{place}:/usr/bin:/bin"}
    return place


def loop(project: Project, *options: str) -> Done:
    return project.ralph("loop", "Say hello", "--until", UNTIL, "--yes", *options)


SETTINGS = {
    "codex": (".codex/config.toml", 'model = "{model}"\n'),
    "qwen": (".qwen/settings.json", '{{"model": {{"name": "{model}"}}}}'),
    "gemini": (".gemini/settings.json", '{{"model": {{"name": "{model}"}}}}'),
    "copilot": (".copilot/config.json", '// written by /model\n{{"model": "{model}"}}'),
}


def configure(project: Project, agent: str, model: str) -> None:
    name, text = SETTINGS[agent]
    path = project.home / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text.format(model=model))


@pytest.mark.parametrize("agent", ["codex", "amp", "kiro", "cursor"])
def test_max_cost_is_refused_if_the_cost_cannot_be_known(project: Project, bin_dir: Path, agent: str) -> None:
    names = {"kiro": "kiro-cli", "cursor": "cursor-agent"}
    program(bin_dir, names.get(agent, agent), "touch started")
    done = loop(project, "--agent", agent, "--max-cost", "0.01")
    assert done.code == 2
    assert "cannot be enforced: " in done.err
    assert "--allow-unpriced" in done.err
    assert not (project.root / "started").exists()


def test_max_cost_is_refused_for_a_program_that_reports_no_usage(project: Project) -> None:
    done = loop(project, "--agent-command", "touch done.txt", "--max-cost", "1")
    assert done.code == 2
    assert "reports neither cost nor tokens" in done.err


@pytest.mark.parametrize("agent", SETTINGS)
def test_model_in_the_agents_own_settings_without_a_price_is_named(project: Project, bin_dir: Path, agent: str) -> None:
    program(bin_dir, agent, "true")
    configure(project, agent, "my-own-model")
    done = loop(project, "--agent", agent, "--max-cost", "1")
    assert done.code == 2
    assert "the price of my-own-model" in done.err
    assert "prices: {my-own-model: [IN, CACHED, OUT]}" in done.err


@pytest.mark.parametrize("agent", SETTINGS)
def test_model_in_the_agents_own_settings_with_a_price_starts(project: Project, bin_dir: Path, agent: str) -> None:
    program(bin_dir, agent, "true")
    configure(project, agent, "gpt-5.1")
    done = loop(project, "--agent", agent, "--max-cost", "1", "--dry-run")
    assert done.code == 0, done.said


def test_only_agents_of_this_workflow_need_a_price(project: Project, bin_dir: Path) -> None:
    program(bin_dir, "claude", "true")
    program(bin_dir, "codex", "true")
    settings = project.root / "ralph.yml"
    settings.write_text("agent: claude\nroles: {executor: codex}\n")
    assert loop(project, "--max-cost", "1", "--dry-run").code == 0
    settings.write_text("agent: claude\nroles: {judge: codex}\n")
    done = loop(project, "--max-cost", "1", "--dry-run")
    assert (done.code, "name the model in ralph.yml (`{agent: codex, model: NAME}`)" in done.err) == (2, True), (
        done.said
    )


def test_codex_is_priced_by_the_model_of_its_configuration(project: Project, bin_dir: Path) -> None:
    program(bin_dir, "codex", CODEX_DONE)
    configure(project, "codex", "gpt-5")
    done = loop(project, "--agent", "codex", "--max-cost", "1")
    assert done.code == 0, done.said
    [ended] = project.journal("turn.ended")
    assert ended["result"]["usage"]["cost"] == pytest.approx((1000 * 1.25 + 100 * 10) / 1e6)


def test_limit_holds_for_codex_that_has_a_model_by_configuration(project: Project, bin_dir: Path) -> None:
    program(bin_dir, "codex", CODEX_DONE.replace("echo hello > done.txt", "true"))
    configure(project, "codex", "gpt-5")
    done = loop(project, "--agent", "codex", "--max-cost", "0.001")
    assert done.code == 3
    assert "the cost limit of $0.001 was reached" in done.out


def test_profile_of_codex_says_which_model(project: Project, bin_dir: Path) -> None:
    program(bin_dir, "codex", "true")
    configure(project, "codex", "gpt-5")
    with (project.home / ".codex/config.toml").open("a") as file:
        file.write('[profiles.own]\nmodel = "my-own-model"\n')
    given = ("--agent", "codex", "--max-cost", "1", "--dry-run")
    assert loop(project, *given).code == 0
    assert "my-own-model" in loop(project, *given, "--agent-arg=--profile", "--agent-arg=own").err
    assert "my-own-model" in loop(project, *given, "--agent-arg=-c", '--agent-arg=model="my-own-model"').err


def test_price_of_the_user_counts(project: Project, bin_dir: Path) -> None:
    program(bin_dir, "codex", CODEX_DONE)
    configure(project, "codex", "my-own-model")
    (project.root / "ralph.yml").write_text("prices: {my-own-model: [1, 1, 1]}\n")
    done = loop(project, "--agent", "codex", "--max-cost", "1")
    assert done.code == 0, done.said
    assert project.ralph("cost", "--json").json["total"]["cost"] == pytest.approx(0.0011)


def test_allowed_unknown_cost_is_shown_on_every_screen(project: Project, bin_dir: Path) -> None:
    program(bin_dir, "codex", CODEX_DONE)
    done = loop(project, "--agent", "codex", "--max-cost", "1", "--allow-unpriced")
    assert done.code == 0, done.said
    assert "note: cost unknown: codex reports tokens" in done.out, "the start"
    assert "cost unknown" in done.out.partition("COMPLETE")[2], "the end"
    assert "unknown" in project.ralph("status").out
    assert "cost unknown" in project.ralph("cost").out


def test_session_refuses_and_says_the_same(project: Project, bin_dir: Path) -> None:
    program(bin_dir, "codex", CODEX_DONE)
    start = ("session", "new", "Build it", "--agent", "codex", "--max-cost", "1", "--yes")
    assert "cannot be enforced: " in project.ralph(*start).err
    planned = project.ralph(*start, "--allow-unpriced", "--dry-run")
    assert planned.code == 0, planned.said
    assert "cost unknown" in planned.out


SCENARIO = """
turns:
  - when: {turn: 1}
    steps:
      - usage: {input_tokens: 10, output_tokens: 5, cost: 0.01}
  - when: {turn: 2}
    steps:
      - usage: {input_tokens: 900, output_tokens: 5}
  - steps:
      - run: touch done.txt
"""


@pytest.mark.slow
def test_price_that_becomes_unknown_stops_the_run_until_it_is_allowed(project: Project) -> None:
    done = project.play(SCENARIO, "--max-cost", "5", until=UNTIL)
    assert done.code == 3
    assert len(project.journal("turn.started")) == 2
    [ended] = project.journal("run.ended")
    assert ended["outcome"] == "cost-unknown"
    assert "cannot enforce" in ended["reason"]
    run = project.run.name
    assert f"ralph resume {run} --allow-unpriced" in done.out
    again = project.ralph("resume", run)
    assert again.code == 3, "nothing has changed"
    assert len(project.journal("turn.started")) == 2
    resumed = project.ralph("resume", run, "--allow-unpriced")
    assert resumed.code == 0, resumed.said
    assert "at least $0.0100" in resumed.out


def test_price_that_becomes_unknown_without_a_limit_is_nothing_to_stop_for(project: Project) -> None:
    done = project.play(SCENARIO, until=UNTIL)
    assert done.code == 0, done.said


def test_resume_refuses_a_limit_that_cannot_hold(project: Project) -> None:
    assert project.ralph(*project.working("true", "--max-iterations", "1")).code == 3
    refused = project.ralph("resume", "--max-cost", "1")
    assert refused.code == 2
    assert "cannot be enforced: " in refused.err
    resumed = project.ralph("resume", "--max-cost", "1", "--allow-unpriced", "--json")
    assert json.loads(resumed.out)["outcome"] == "limit-iterations"


PARTLY_PRICED = """
turns:
  - when: {turn: 1}
    steps:
      - usage: {input_tokens: 10, output_tokens: 5, cost: 0.5}
  - steps:
      - write: {path: work.txt, content: "{turn}"}
"""


@pytest.mark.slow
def test_status_shows_a_lower_bound_if_some_turns_have_no_price(project: Project) -> None:
    project.play(PARTLY_PRICED, "--max-iterations", "2", until="`false`")
    assert "≥ $0.5000" in project.ralph("status").out
    project.ralph("resume", "--max-iterations", "4")
    assert "≥ $0.5000" in project.ralph("status").out
    [row] = project.ralph("status", "--json").json["runs"]
    assert row["cost"] == "at least $0.5000, 3 turns without a price"


def test_status_says_that_no_cost_is_known(project: Project) -> None:
    project.work("true", "--max-iterations", "1")
    assert "cost unknown" in project.ralph("status").out


def test_dry_run_does_not_promise_a_limit_that_cannot_hold(project: Project) -> None:
    options = ("--max-cost", "2", "--allow-unpriced", "--agent-command", "true", "--dry-run")
    planned = loop(project, *options)
    [worst] = [line for line in planned.out.splitlines() if line.startswith("Worst case:")]
    assert "no cost limit" in worst
    assert "Ralph cannot enforce $2" in worst
    priced = project.play(SCENARIO, "--max-cost", "2", "--dry-run", until=UNTIL)
    assert "Worst case: 10 iterations, each with up to 5 attempts of 60 minutes; $2\n" in priced.out
