"""The scenario format: what it means, and how it refuses what is wrong."""

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ralph.core.errors import UsageError
from ralph.core.limits import Usage
from ralph.documents import scenario
from ralph.documents.scenario import Identity, parse_scenario


def action_of(step: str) -> object:
    """The one action of a scenario with that step."""
    ((step_read,),) = [entry.steps for entry in parse_scenario(f"turns: [{{steps: [{step}]}}]", "s.yaml").turns]
    return step_read.action


def matches(when: str, turn: Identity) -> bool:
    return parse_scenario(f"turns: [{{when: {{{when}}}, steps: [say: hi]}}]", "s.yaml").steps_for(turn) is not None


def refusal(text: str) -> UsageError:
    with pytest.raises(UsageError) as caught:
        parse_scenario(text, "s.yaml")
    return caught.value


@pytest.mark.parametrize(
    ("step", "action"),
    [
        ("say: hello", scenario.Say("hello")),
        ("write: {path: a/b.py, content: ''}", scenario.Write("a/b.py", "")),
        ("patch: {path: a, find: x, replace: y}", scenario.Patch("a", "x", "y")),
        ("delete: old.py", scenario.Delete("old.py")),
        ("delete: {path: old.py, optional: true}", scenario.Delete("old.py", optional=True)),
        ("run: make test", scenario.Run("make test")),
        ("run: {command: make, check: true}", scenario.Run("make", check=True)),
        (
            "answer: {n: 1, due: 2026-01-02}",
            scenario.Outbox("result.json", '{\n  "n": 1,\n  "due": "2026-01-02"\n}\n'),
        ),
        ("answer_raw: '{broken'", scenario.Outbox("result.json", "{broken")),
        ("outbox: {path: plan.md, content: '# Plan'}", scenario.Outbox("plan.md", "# Plan")),
        ("emit: build.done", scenario.Emit("build.done")),
        ("emit: {topic: t, payload: [1, -2.5, null, yes]}", scenario.Emit("t", [1, -2.5, None, "yes"])),
        ("usage: {input_tokens: 5, cost: 1}", Usage(5, 0, 1.0)),
        ("usage: {cached_tokens: 4, model: m}", Usage(cached_tokens=4, model="m")),
        ("rate_limit: 2", scenario.RateLimit(2.0)),
        ("rate_limit: {resets_in: 2}", scenario.RateLimit(2.0)),
        ("error: no credit", scenario.Error("no credit")),
        ("sleep: 0.5", scenario.Sleep(0.5)),
        ("hang: true", scenario.Hang()),
        ("ignore_term: true", scenario.IgnoreTerm()),
        ("orphan: 60", scenario.Orphan(60.0)),
        (
            "orphan: {seconds: 1, setsid: false, writes: late}",
            scenario.Orphan(1.0, setsid=False, writes="late"),
        ),
        ("spew: 0x10", scenario.Spew(16)),
        ("spew: {bytes: 9, stream: stderr, line: 0}", scenario.Spew(9, line=0, stream="stderr")),
        ("crash: SIGSEGV", scenario.Crash("SIGSEGV")),
        ("exit: 3", scenario.Exit(3)),
    ],
)
def test_a_step_is_read(step: str, action: object) -> None:
    assert action_of(step) == action


def test_a_choice_holds_steps_that_know_their_lines() -> None:
    read = parse_scenario(
        "turns:\n- steps:\n  - choose:\n    - weight: 3\n      steps: [say: a]\n    - [say: b]\n", "s.yaml"
    )
    (step,) = read.turns[0].steps
    assert step == scenario.ScriptStep(
        scenario.Choose(
            (
                scenario.Option((scenario.ScriptStep(scenario.Say("a"), 5),), 3.0),
                scenario.Option((scenario.ScriptStep(scenario.Say("b"), 6),), 1.0),
            )
        ),
        3,
    )


def test_aliases_repeat_steps() -> None:
    read = parse_scenario("turns:\n- when: {turn: 1}\n  steps: &s [say: a]\n- steps: *s\n", "s.yaml")
    assert read.turns[0].steps == read.turns[1].steps


@pytest.mark.parametrize(
    ("when", "turn"),
    [
        ("", Identity()),
        ("role: actor", Identity(role="actor", hat="builder")),
        ("role: [actor, critic]", Identity(role="critic")),
        ("role: ''", Identity()),
        ("hat: builder, task: 'T-1'", Identity(hat="builder", task="T-1")),
        ("turn: 3", Identity(turn=3)),
        ("turn: 00003", Identity(turn=3)),
        ("turn: 3-5", Identity(turn=5)),
        ("turn: '>=3'", Identity(turn=4000)),
        ("turn: [1, 7-8]", Identity(turn=7)),
        ("attempt: 2", Identity(attempt=2)),
        ("prompt: 'fix .* bug'", Identity(prompt="Please fix the bug.")),
    ],
)
def test_a_turn_is_matched(when: str, turn: Identity) -> None:
    assert matches(when, turn)


@pytest.mark.parametrize(
    ("when", "turn"),
    [
        ("role: actor", Identity(role="actors")),
        ("role: actor, turn: 2", Identity(role="actor", turn=1)),
        ("turn: 3-5", Identity(turn=6)),
        ("turn: '>=3'", Identity(turn=2)),
        ("turn: 0-9", Identity()),
        ("attempt: '>=0'", Identity(turn=3)),
        ("prompt: '^bug'", Identity(prompt="the bug")),
    ],
)
def test_another_turn_is_not_matched(when: str, turn: Identity) -> None:
    assert not matches(when, turn)


def test_the_first_entry_that_matches_is_played() -> None:
    read = parse_scenario("turns:\n- {when: {turn: 1}, steps: [say: a]}\n- steps: [say: b]\n", "s.yaml")
    assert [read.steps_for(Identity(turn=n))[0].action.text for n in (1, 2)] == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "line", "what", "todo"),
    [
        ("turns:\n- steps:\n  - pach: {path: a}\n", 3, "unknown key: 'pach'", "did you mean 'patch'?"),
        ("turns:\n- steps:\n  - patch:\n      pth: a\n", 4, "unknown key: 'pth'", "did you mean 'path'?"),
        ("turns:\n- wen: {}\n  steps: []\n", 2, "unknown key: 'wen'", "did you mean 'when'?"),
        ("turns:\n- when: {rol: a}\n  steps: []\n", 2, "unknown key: 'rol'", "did you mean 'role'?"),
        (
            "turns: [[say: a]]\notherwise: finnish\n",
            2,
            "unknown otherwise: 'finnish'",
            "did you mean 'finish'?",
        ),
        ("turns: [[crash: SIGSEG]]\n", 1, "unknown crash: 'SIGSEG'", "did you mean 'SIGSEGV'?"),
        ("seed: 1\n", 1, "a scenario has no 'turns'", "turns, seed, otherwise"),
        ("turns: []\n", 1, "turns cannot be an empty list", "at least one item"),
        ("turns: [[write: app.py]]\n", 1, "write has no 'content'", "path, content"),
        ("turns:\n- steps:\n  - sleep: soon\n", 3, "sleep cannot be 'soon'", "a number"),
        ("turns: [[sleep: -1]]\n", 1, "sleep cannot be '-1'", "a number"),
        ("turns: [[sleep: .inf]]\n", 1, "sleep cannot be '.inf'", "a finite number"),
        ("turns: [[sleep: true]]\n", 1, "sleep cannot be 'true'", "a number"),
        ("turns: [[exit: 256]]\n", 1, "exit cannot be '256'", "from 0 to 255"),
        ("turns: [[hang: false]]\n", 1, "hang cannot be 'false'", "true"),
        ("turns: [[say: 1.5]]\n", 1, "say cannot be '1.5'", "quotes"),
        ("turns: [[say: [a]]]\n", 1, "say cannot be a list", "text"),
        ("turns: [[say: !mine x]]\n", 1, "say cannot be 'x'", "text"),
        ("turns: [[answer: done]]\n", 1, "answer cannot be 'done'", "answer_raw"),
        ("turns: [[usage: {unpriced: m}]]\n", 1, "unknown key: 'unpriced'", "input_tokens"),
        ("turns: [[usage: 5]]\n", 1, "usage cannot be '5'", "input_tokens"),
        ("turns: [[say]]\n", 1, "a step has one key", "a dash"),
        ("turns:\n- steps:\n  - say: a\n    run: b\n", 3, "a step has one key", "a dash"),
        ("turns: [[choose: [{weight: 0, steps: [say: a]}]]]\n", 1, "choose: every weight is 0", "weight"),
        ("turns:\n- steps: [say: a]\n- steps: [say: b]\n", 3, "never played", "`when`"),
        ("turns:\n- when: {turn: 5-3}\n  steps: [say: a]\n", 2, "turn cannot be '5-3'", "3-5"),
        (
            "turns:\n- when: {role: []}\n  steps: [say: a]\n",
            2,
            "role cannot be an empty list",
            "at least one",
        ),
        ("turns:\n- when: {prompt: '('}\n  steps: [say: a]\n", 2, "not a valid regular expression", "backslash"),
        ("turns:\n- when: {turn: >=3}\n  steps: [say: a]\n", 2, "not readable as YAML", "quote"),
        ("seed: 1\nturns: [[say: a]]\nseed: 2\n", 3, "'seed' appears twice", "keep one"),
        ("seed: 1\nturns: [[say: '\\x']]\n? [a]\n: b\n", 3, "a key must be a word", "key: value"),
        ('turns: [[say: "\\ud800"]]\n', 1, "invalid Unicode character", "quote"),
        ("a: 1\n---\nb: 2\n", 2, "not readable as YAML", "indentation"),
        ("[" * 100 + "]" * 100, 1, "nested deeper", "fewer levels"),
    ],
)
def test_a_mistake_is_refused_with_its_line_and_what_to_do(text: str, line: int, what: str, todo: str) -> None:
    error = refusal(text)
    assert error.where == f"s.yaml:{line}"
    assert what in error.what
    assert todo in error.todo


@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "a/../../x", ".", "", '"a\\0"'])
def test_a_path_that_leaves_the_workspace_is_refused(path: str) -> None:
    assert "a relative path" in refusal(f"turns: [[delete: {path or repr('')}]]").todo


@pytest.mark.parametrize("text", ["", "# nothing\n", "a: \x07"])
def test_text_that_is_not_a_document_is_refused(text: str) -> None:
    assert refusal(text).where.startswith("s.yaml")


def test_aliases_that_stand_for_billions_of_values_are_refused() -> None:
    levels = "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))
    assert "aliases" in refusal(f"a0: &a0 [x]\n{levels}").what


def test_an_alias_of_itself_is_refused() -> None:
    assert "aliases" in refusal("turns: &t [*t]\n").what


WORDS = """turns: steps: when: say: choose: answer: turn: - [ ] { } , ' " > | & * ! # % @ 1 -1 .nan 1e999 ~"""
ODD = (
    "\n",
    "\n  ",
    "\n- ",
    " ",
    "&a ",
    "*a",
    "!!int x",
    "0o9",
    "true",
    "2026-01-01",
    "\ud800",
    "\t",
    "9" * 5000,
)
fragments = st.sampled_from([*WORDS.split(), *ODD])


@settings(deadline=None)
@given(st.lists(fragments, max_size=25).map("".join) | st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    for tried in (
        text,
        f"turns: [[emit: {{topic: t, payload: {text}}}]]",
        f"turns: [{{when: {{turn: {text}}}}}]",
    ):
        try:
            parse_scenario(tried, "s.yaml")
        except UsageError as error:
            assert error.where.startswith("s.yaml")
            assert error.todo


def test_the_documentation_is_of_this_format() -> None:
    text = (Path(__file__).parents[2] / "docs/scripted-agent.md").read_text()
    examples = re.findall(r"^```yaml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert len([parse_scenario(example, "docs") for example in examples]) > 1
    steps = re.search("known values: (.*)", refusal("turns: [[x: y]]").todo)
    assert steps
    assert [step for step in steps[1].split(", ") if f"| `{step}` |" not in text] == []
