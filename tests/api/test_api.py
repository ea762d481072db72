"""The public Python API: its names, its examples, and its errors."""

import asyncio
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import ralph
import ralph.aio
from ralph.core.errors import UsageError
from ralph.core.outcomes import Outcome

PAGE = Path(__file__).parents[2] / "docs" / "api.md"
SCENARIO = """
turns:
  - steps:
      - run: touch started
      - run: while [ ! -e go ]; do sleep 0.05; done
      - write: {path: done.txt, content: "done"}
      - answer: {summary: Made it.}
      - usage: {input_tokens: 10, output_tokens: 5, cost: 0.25}
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty repository, and a state directory of its own."""
    place = tmp_path / "project"
    place.mkdir()
    for name, value in {
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "HOME": str(tmp_path),
        "GIT_CONFIG_GLOBAL": "/dev/null",
    }.items():
        monkeypatch.setenv(name, value)
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.com")
    for arguments in (("init", "-q"), (*identity, "commit", "-q", "--allow-empty", "-m", "first")):
        subprocess.run(["git", *arguments], cwd=place, check=True)
    (tmp_path / "scenario.yaml").write_text(SCENARIO)
    return place


def test_the_public_names_are_these() -> None:
    assert ralph.__all__ == [
        "Ack", "AgentTurn", "CheckResult", "Message", "Outcome", "RalphError", "Result", "RunChange", "RunHandle", "RunRow",
        "RunView", "WaitTimeout", "__version__", "hats", "loop", "open", "runs", "session", "verify",
    ]  # fmt: skip
    for name in ralph.__all__:
        assert getattr(ralph, name) is not None
    assert ralph.aio.__all__ == ["AsyncMessage", "AsyncRun", "hats", "loop", "open", "runs", "session", "verify"]


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        ralph.nothing  # type: ignore[attr-defined]  # noqa: B018


def test_the_mirror_for_asyncio_has_every_method_of_a_run() -> None:
    def public(kind: type) -> set[str]:
        return {name for name in dir(kind) if not name.startswith("_")}

    from ralph import api

    assert public(api.RunHandle) - public(ralph.aio.AsyncRun) <= {"alive", "cost", "project", "directory"}


def test_the_api_imports_no_terminal_library(root: Path) -> None:
    code = (
        "import sys, ralph, ralph.aio; ralph.loop; ralph.runs(); "
        "print([name for name in ('click', 'rich', 'textual') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.slow
def test_every_example_of_the_page_runs(root: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) >= 9
    (root / "my_agent.py").write_text(blocks[0])
    (root / "example.py").write_text("\n".join(blocks[1:]))
    environment = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run(
        [sys.executable, "example.py"], cwd=root, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "proven: the check passes after 2 iterations" in done.stdout
    assert "fixed iteration-2" in done.stdout
    assert "aborted" in done.stdout


def test_a_run_is_followed_steered_and_waited_for(root: Path) -> None:
    scenario = str(root.parent / "scenario.yaml")
    run = ralph.loop("Make it", until="`test -f done.txt` passes", cwd=root, scenario=scenario, consent=True)
    assert run.alive
    with pytest.raises(ralph.WaitTimeout, match="is still working"):
        run.wait(timeout=0.01)
    with pytest.raises(TimeoutError):
        run.steer("use tabs", to="test-engineer").wait(timeout=0.01)
    (root / "go").touch()
    live = list(run.follow())
    kinds = [change.kind for change in live]
    assert kinds[0] == "RunStarted" and kinds[-1] == "RunEnded"
    assert "event" in kinds
    stored = [(change.kind, change.text) for change in run.follow()]
    events = [text for kind, text in stored if kind == "event"]
    assert events == [change.text for change in live if change.kind == "event"]
    for at, change in enumerate(run.follow()):
        rest = [(later.kind, later.text) for later in run.follow(change.position)]
        assert rest == stored[at + 1 :], f"after {change.position}, nothing is repeated or lost"
    with pytest.raises(UsageError, match="is not a position"):
        next(run.follow("x"))
    result = run.wait(timeout=120)
    assert (result.outcome, result.exit_code, result.succeeded) == (Outcome.SUCCESS, 0, True)
    assert (result.cost, run.cost) == (0.25, 0.25)
    assert [check.command for check in run.evidence] == ["test -f done.txt"]
    assert "+done" in run.diff()
    assert [row.id for row in ralph.runs(root)] == [run.id]
    assert ralph.open(run.id[:8], root).view == run.view


def test_the_same_with_asyncio(root: Path) -> None:
    (root / "go").touch()

    async def work() -> tuple[list[str], Outcome]:
        scenario = str(root.parent / "scenario.yaml")
        until = "`test -f done.txt` passes"
        run = await ralph.aio.loop("Make it", until=until, cwd=root, scenario=scenario, consent=True)
        kinds = [change.kind async for change in run.follow()]
        again = [change.kind async for change in run.follow()]
        assert again.count("event") == kinds.count("event") > 0
        return kinds, (await run.wait(timeout=120)).outcome

    kinds, outcome = asyncio.run(work())
    assert (kinds[-1], outcome) == ("RunEnded", Outcome.SUCCESS)


def session_command(root: Path) -> str:
    """An agent that plays every role of a session."""
    agent = Path(__file__).parents[1] / "cli" / "session_agent.py"
    script = root.parent / "script.json"
    script.write_text("{}")
    return shlex.join(["env", f"SCRIPT={script}", sys.executable, "-I", str(agent)])


@pytest.mark.slow
def test_a_session_is_started_waited_for_and_exported(root: Path) -> None:
    command = session_command(root)
    run = ralph.session("Build the files", checks=("`test -f d.txt`",), cwd=root, agent_command=command, consent=True)
    result = run.wait(timeout=300)
    assert result.succeeded, result.reason
    assert [task.state.value for task in result.view.tasks] == ["done"] * 4
    assert run.view.workflow == "session"
    assert "Make d.txt" in run.export_html()


HATS = """
turns:
  - steps:
      - write: {path: done.txt, content: "done"}
      - emit: {topic: LOOP_COMPLETE, payload: done}
      - answer: {summary: Made it.}
"""


def test_a_run_of_hats_is_started_and_waited_for(root: Path) -> None:
    scenario = root.parent / "hats.yaml"
    scenario.write_text(HATS)
    (root / "one.yml").write_text("event_loop: {completion_promise: LOOP_COMPLETE}\n")
    run = ralph.hats(
        "Make it", preset="one.yml", checks=("`test -f done.txt`",), cwd=root, scenario=str(scenario), consent=True
    )
    result = run.wait(timeout=120)
    assert (result.outcome, run.view.workflow) == (Outcome.SUCCESS, "hats"), result.reason
    assert [check.command for check in result.evidence] == ["test -f done.txt"]


def test_a_criterion_is_verified_without_a_run(root: Path) -> None:
    (root / "a.txt").write_text("x")
    passed, failed = ralph.verify("`test -f a.txt` passes AND `test -f b.txt` passes", root)
    assert (passed.passed, failed.passed) == (True, False)
    assert asyncio.run(ralph.aio.verify("`test -f a.txt` passes", root))[0].passed
    assert ralph.runs(root) == []


def test_comments_through_the_mirror_for_asyncio_have_an_ack(root: Path) -> None:
    async def work() -> tuple[int, str]:
        scenario = str(root.parent / "scenario.yaml")
        run = await ralph.aio.loop(
            "Make it", until="`test -f done.txt` passes", cwd=root, scenario=scenario, consent=True
        )
        while not (root / "started").exists():
            await asyncio.sleep(0.05)
        message = await run.comment(("README.md:1", "Say more."), to="implementer")
        (root / "go").touch()
        ack = await message.wait(timeout=120)
        await run.wait(timeout=120)
        [comment] = (await run.view()).comments
        return ack.turn, comment.text

    (root / "README.md").write_text("one\n")
    subprocess.run(["git", "add", "README.md"], cwd=root, check=True)
    turn, text = asyncio.run(work())
    assert (turn > 0, text) == (True, "Say more.")


def test_nothing_starts_without_consent(root: Path) -> None:
    with pytest.raises(ralph.RalphError, match="you have not agreed") as caught:
        ralph.loop("Make it", until="`true`", cwd=root, agent_command="touch started")
    assert (caught.value.exit_code, "consent=True" in caught.value.todo) == (2, True)
    assert ralph.runs(root) == []
    assert not (root / "started").exists()


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"agent": lambda turn: None}, "this function cannot be the agent"),
        ({"agent": "nobody"}, "nobody"),
        ({"max_iteration": 3}, "there is no option max_iteration"),
        ({"until": "it is nice"}, "cannot verify"),
        ({"cwd": "/nowhere/at/all"}, "there is no directory"),
    ],
)
def test_wrong_input_is_refused_with_what_to_do(root: Path, options: dict[str, object], what: str) -> None:
    given = {"until": "`true`", "cwd": root, "consent": True, **options}
    with pytest.raises(ralph.RalphError, match=what) as caught:
        ralph.loop("Make it", **given)  # type: ignore[arg-type]
    assert caught.value.todo
    assert caught.value.exit_code in (2, 6)


SCRIPT = """
import ralph
{imports}

def agent(turn):
    open("done.txt", "w").close()

def work():
    run = {start}("Make done.txt", until="`test -f done.txt`", agent=agent, consent=True, max_iterations=1)
    print(run.wait(timeout=120).outcome, flush=True)

{call}
"""


@pytest.mark.parametrize(
    ("imports", "start", "call", "says"),
    [
        ("", "ralph.loop", 'if __name__ == "__main__":\n    work()', "success"),
        (
            "",
            "ralph.loop",
            'ralph.loop("Make it", until="`true`", agent=agent)',
            "starts a run whenever it is imported",
        ),
        ("from ralph import loop as go", "go", 'go("Make it", until="`true`", agent=agent)', "it is imported"),
    ],
)
def test_script_that_is_its_own_agent_must_not_start_a_run_when_imported(
    root: Path, imports: str, start: str, call: str, says: str
) -> None:
    script = root / "script.py"
    script.write_text(SCRIPT.format(imports=imports, start=start, call=call))
    done = subprocess.run([sys.executable, str(script)], cwd=root, text=True, capture_output=True)
    assert says in done.stdout + done.stderr
    assert len(ralph.runs(root)) == (says == "success")


def test_a_turn_says_what_to_do_if_importing_its_function_starts_a_run(root: Path) -> None:
    script = root / "script.py"
    script.write_text(SCRIPT.format(imports="", start="ralph.loop", call="work()"))
    environment = {**os.environ, "RALPH_TURN": "261117-093000-k3x9/00001"}
    command = [sys.executable, "-P", "-m", "ralph.callable_agent", str(script), "agent"]
    done = subprocess.run(command, cwd=root, env=environment, text=True, capture_output=True, stdin=subprocess.DEVNULL)
    assert (done.returncode, "an agent cannot start" in done.stderr, "__main__" in done.stderr) == (1, True, True)


def test_an_agent_cannot_start_a_run_through_the_api(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RALPH_TURN", "261117-093000-k3x9/00001")
    with pytest.raises(ralph.RalphError, match="an agent cannot start"):
        ralph.loop("Make it", until="`true`", cwd=root, agent_command="true", consent=True)


def test_verify_runs_the_checks_of_a_criterion(root: Path) -> None:
    (root / "present.txt").touch()
    results = ralph.verify("`test -f present.txt` passes AND `echo no; false` passes", root)
    assert [(result.status, result.code) for result in results] == [("passed", 0), ("failed", 1)]
    assert "no" in results[1].output


@pytest.mark.parametrize(
    ("option", "value", "todo"),
    [
        ("max_cost", "five", "give a number"),
        ("max_iterations", True, "give a whole number"),
        ("on_stuck", "perhaps", "use one of stop, ask, continue"),
        ("commit", "yes", "give True or False"),
        ("worktree", "yes", "give True or False"),
        ("model", 5, "give a text"),
        ("may_change", 5, "give a text, or a list of texts"),
    ],
)
def test_option_of_another_type_is_an_error_of_usage(root: Path, option: str, value: object, todo: str) -> None:
    with pytest.raises(ralph.RalphError) as caught:
        ralph.loop("Make it", until="`false` passes", cwd=root, agent="scripted", consent=True, **{option: value})
    assert (caught.value.where, caught.value.todo, caught.value.exit_code) == (option, todo, 2)
    assert not ralph.runs(root)


CHANGES_TEST = """
turns:
  - steps:
      - write: {path: test_it.py, content: "print('2 passed')"}
"""


@pytest.mark.slow
def test_unproven_work_is_accepted(root: Path) -> None:
    (root / "test_it.py").write_text("raise SystemExit(1)")
    (root / "scenario.yaml").write_text(CHANGES_TEST)
    for arguments in (("add", "-A"), ("-c", "user.name=t", "-c", "user.email=t@e.org", "commit", "-qm", "test")):
        subprocess.run(["git", *arguments], cwd=root, check=True)
    until, scenario = "`python3 -B test_it.py` passes", str(root / "scenario.yaml")
    options = {"require": "proven", "may_change": "test_it.py", "consent": True}
    run = ralph.loop("Mend the test", until=until, cwd=root, scenario=scenario, **options)
    result = run.wait(timeout=120)
    assert (result.outcome, result.grade, result.exit_code) == (Outcome.UNPROVEN, "unproven", 7)
    with pytest.raises(ralph.RalphError, match="the reason is empty"):
        run.accept(" ")
    action = run.accept("the test was wrong")
    assert run.wait(timeout=120).grade == "accepted"
    assert [one.id for one in run.view.actions] == [action]
    with pytest.raises(ralph.RalphError, match="is over"):
        run.accept("again")
