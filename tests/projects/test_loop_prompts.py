"""What the agent of a loop is told, in real runs."""

import pytest
from playground import Playground, answer, put, run

NOISY = """
import pathlib, sys
if pathlib.Path("done.txt").exists():
    sys.exit(0)
print("src/app.ts(3,7): error TS2304: Cannot find name 'Invoice'.")
for number in range(6000):
    print(f"  at step {number} of the build")
print("Build stopped.")
sys.exit(1)
"""


def test_cause_in_the_first_of_6000_lines_is_in_the_prompt(project: Playground) -> None:
    project.write({"build.py": NOISY})
    project.commit_all()
    inbox = ".ralph/turn/inbox/checks/1.txt"
    turns = [[run(f"wc -l < {inbox} > seen.txt"), put("done.txt", "yes"), answer("Named the type.")]]
    done = project.loop("Fix the build", "`python build.py` passes", turns)
    assert done.code == 0, done.said
    prompt = project.prompt(1)
    assert "src/app.ts(3,7): error TS2304: Cannot find name 'Invoice'.\n" in prompt
    assert "lines left out\n" in prompt and "\nBuild stopped.\n" in prompt
    assert f"The whole output is in `{inbox}`." in prompt
    assert project.read("seen.txt").strip() == "6002"


def test_parts_of_a_prompt_are_shown_with_their_tokens(project: Playground) -> None:
    done = project.loop("Write done.txt", "file done.txt exists", [[put("done.txt", "yes"), answer("Wrote it.")]])
    assert done.code == 0, done.said
    shown = project.ralph("prompt", "--turn", "1", "--parts").out
    rows = {line.split()[0]: line for line in shown.splitlines()[1:]}
    assert list(rows)[:3] == ["loop-actor", "rules", "task"]
    assert "of 2500" in rows["check-results"] and "What the checks said last." in rows["check-results"]
    whole = project.ralph("prompt", "--json").json
    assert abs(sum(part["tokens"] for part in whole["parts"]) - whole["tokens"]) < 20


@pytest.mark.slow
def test_recall_is_asked_with_what_fails_at_the_baseline(project: Playground) -> None:
    failing = "def test_zone_of_invoices():\n    raise ValueError('naive datetime in ledger')\n"
    project.write({"test_ledger.py": failing, "setup.cfg": ""})
    project.commit_all()
    right = "def test_zone_of_invoices():\n    assert True\n"
    turns = [[put("fixed.py", "x = 1\n"), answer("Touched.", learned="the ledger keeps naive datetimes in invoices")]]
    first = project.loop("Fix the failing tests", "`pytest -q` passes", turns, "--max-iterations", "1")
    assert first.code == 3, first.said
    second = project.loop(
        "Fix the failing tests",
        "`pytest -q` passes",
        [[put("test_ledger.py", right), answer("x")]],
        "--max-iterations",
        "1",
    )
    assert "the prompt contains 1 lesson from earlier loops" in second.said
    recalled = project.prompt(1).partition("# Lessons of earlier runs")[2]
    assert "the ledger keeps naive datetimes" in recalled


@pytest.mark.slow
def test_lesson_about_the_same_failing_test_is_recalled_without_common_words(project: Playground) -> None:
    project.write({"test_it.py": "def test_add():\n    assert 1 + 1 == 3\n"})
    project.commit_all()
    turns = [[put("x.py", "y = 1\n"), answer("Tried one.", learned="three is wrong")]]
    for _ in range(2):
        project.loop("Fix the failing tests", "`pytest -q` passes", turns, "--max-iterations", "1")
    assert "because three is wrong" in project.prompt(1).partition("# Lessons of earlier runs")[2]
