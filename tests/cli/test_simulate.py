"""`ralph simulate` through the command line: what it takes, what it prints, and what it exits with."""

import xml.etree.ElementTree as ElementTree

import pytest
from test_loop import Project, project  # noqa: F401 - the fixture
from test_sessions_of_others import LATER, QUICK, lay

CHECKED = ("code-assist", "--check", "it works")


def test_the_table_the_picture_and_the_json_tell_the_same(project: Project) -> None:  # noqa: F811
    done = project.ralph("simulate", *CHECKED, "--runs", "8", "--svg", "runs.svg")
    assert done.code == 0, done.said
    assert "seeds 1 to 8" in done.out
    told = project.ralph("simulate", *CHECKED, "--runs", "8", "--json").json
    assert f"Completed  {told['completed']:.1%}" in done.out
    assert (told["runs"], told["false_successes"], told["agent"]) == (8, 0, "competent")
    assert set(told["takes"]) == {"turns", "tokens", "money", "hours"}
    svg = ElementTree.parse(project.root / "runs.svg")
    bars = [one.text for one in svg.iter("{http://www.w3.org/2000/svg}title") if one.text and "completed" in one.text]
    turns = sum(int(text.split(": ")[1].split()[0]) for text in bars) / 4
    assert turns == 8, "every run is in each of the four histograms"
    assert project.runs == [], "nothing was run in earnest"


def test_what_is_required_decides_the_exit_code(project: Project) -> None:  # noqa: F811
    for agent, checks, share, code in (
        ("competent", CHECKED, "0.99", 0),
        ("mute", CHECKED, "0.01", 9),
        ("lying", CHECKED, "0", 0),
        ("lying", ("code-assist", "-c", "event_loop.checks=[]"), "0", 9),
    ):
        done = project.ralph("simulate", *checks, "--runs", "6", "--agent", agent, "--require", share, "--no-signals")
        assert done.code == code, (agent, checks, done.said)


def test_a_replay_tells_the_run_of_its_seed(project: Project) -> None:  # noqa: F811
    told = project.ralph("simulate", *CHECKED, "--runs", "3", "--seed", "20", "--json").json
    seed = str(told["worst"]["most turns"])
    done = project.ralph("simulate", *CHECKED, "--replay", seed)
    assert done.code == 0 and "planner" in done.out and "publishes tasks.ready" in done.out
    assert f"{told['takes']['turns']['most']} turns" in done.out
    assert done.out == project.ralph("simulate", *CHECKED, "--replay", seed).out


def test_the_ralph_yml_of_the_project_is_meant_where_nothing_is_named(project: Project) -> None:  # noqa: F811
    assert project.ralph("init", "--preset", "code-assist").code == 0
    told = project.ralph("simulate", "-c", "event_loop.checks=['works']", "--runs", "4", "--json").json
    assert told["assumed"] == "planner makes, builder makes, critic judges, finalizer judges and completes"


def test_where_there_is_no_preset_that_is_said_and_the_picture_may_go_on(project: Project) -> None:  # noqa: F811
    assert project.ralph("simulate", "--runs", "2").out.startswith("no preset, agent competent")
    picture = project.ralph("simulate", "--runs", "2", "--svg", "-").out
    assert "no preset" in "".join(ElementTree.fromstring(picture).itertext())
    assert not (project.root / "-").exists()
    assert project.ralph("simulate", "--runs", "2", "--svg", "-", "--json").code == 2


def test_a_loop_and_a_run_of_one(project: Project) -> None:  # noqa: F811
    told = project.ralph("simulate", "loop", "--max-iterations", "2", "--runs", "20", "--agent", "lazy", "--json").json
    assert {one["outcome"] for one in told["outcomes"]} <= {"success", "limit-iterations", "limit-time"}
    assert project.work("exit 0", "--max-iterations", "1").code == 3
    told = project.ralph("simulate", project.run.name, "--runs", "20", "--agent", "looping", "--json").json
    assert told["takes"]["turns"]["median"] <= 2, "with the limits of that run"


def test_a_session_goes_on_from_where_it_is(project: Project) -> None:  # noqa: F811
    id, files, _ = LATER["1.0-state-files"]
    home = lay(project, id, files)
    (project.root / ".ralph-sessions" / f"{id}.instructions.md").write_text(QUICK)
    told = project.ralph("simulate", id, "--runs", "12", "--json").json
    assert told["completed"] > 0.5
    assert told["turns_by_role"]["executor"] < 3, "one of two tasks is left"
    assert "planner" not in told["turns_by_role"] or told["turns_by_role"]["planner"] < 0.5
    found = {path.relative_to(home).as_posix(): path.read_text() for path in home.rglob("*") if path.is_file()}
    assert found == files, "nothing is changed by it"


def test_a_profile_of_ones_own_and_what_is_wrong_with_it(project: Project) -> None:  # noqa: F811
    (project.root / "mine.yml").write_text("right: 0\nnotices: 1\npieces: [1, 1]\n")
    told = project.ralph("simulate", "loop", "--profile", "mine.yml", "--runs", "10", "--no-signals", "--json").json
    assert (told["completed"], told["agent"]) == (0, "mine.yml")
    for text, words in (
        ("rigth: 1\n", "line 1: `rigth` is not a setting; did you mean `right`?"),
        ("right: 2\n", "`right`"),
        ("publishes: {fitting: 0, any: 0, nothing: 0}\n", "one of the weights must be above 0"),
        ("pieces: [3, 2]\n", "line 1: `pieces` are from fewer to more"),
        ("publishes: 5\n", "`publishes`: it must hold `key: value` lines"),
        ("acts: 5\n", "docs/simulate.md lists the keys"),
    ):
        (project.root / "mine.yml").write_text(text)
        done = project.ralph("simulate", "loop", "--profile", "mine.yml")
        assert (done.code, words in done.err) == (2, True), done.said


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("no-such-preset",), "no-such-preset"),
        (("loop", "--agent", "brilliant"), "there are adversarial, competent"),
        (("loop", "--runs", "0"), "--runs"),
        (("loop", "--require", "99"), "from 0 to 1"),
        (("loop", "--replay", "1", "--require", "1"), "--replay is about one run"),
        (("loop", "--agent", "lazy", "--profile", "x.yml"), "--agent and --profile exclude each other"),
        (("loop", "-c", "a=b"), "-c is not for loop"),
        (("session", "--max-iterations", "3"), "--max-iterations is not for session"),
        (("code-assist", "--on-stuck", "ask"), "--on-stuck is not for hats"),
        (("loop", "--profile", "gone.yml"), "gone.yml"),
        (("loop", "--svg", "gone/x.svg", "--runs", "1000000"), "nothing can be written there"),
        (("code-assist", "-c", "hats.buildr.model=x"), "did you mean hats.builder?"),
    ],
)
def test_what_cannot_be_simulated_is_said(project: Project, options: tuple[str, ...], words: str) -> None:  # noqa: F811
    done = project.ralph("simulate", *options)
    assert (done.code, words in done.err) == (2, True), done.said
