"""What a session's prompts say is enough: a program that knows only its prompts plans and finishes a session."""

import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest
from prompt_follower import answer
from test_loop import Project, eventually, project  # noqa: F401 - the fixture

pytestmark = pytest.mark.slow
"""Each plays a whole session with many turns."""

FOLLOWER = shlex.join([sys.executable, "-I", str(Path(__file__).with_name("prompt_follower.py"))])
GOLDEN = Path(__file__).parents[1] / "prompts" / "golden" / "session"
CHECK = "grep -qx 'the index' index.txt"
REQUEST = """\
Make these files:
- store.txt: the store
- report.txt: the report, uses store.txt
- index.txt: the index, uses report.txt and store.txt
- store.txt: more of the store
- notes.txt: the notes
"""
WAITS_IN_TASK_1 = """
prompt=$(cat)
case $prompt in
  *"TASK_ID: task-1"*)
    touch {home}/started
    while [ ! -e {home}/go ]; do sleep 0.05; done;;
esac
printf '%s\\n' "$prompt" | {follower}
"""


def prompts(project: Project) -> dict[str, list[str]]:  # noqa: F811
    """The prompts of all turns, by role, in their order."""
    found: dict[str, list[str]] = {}
    for path in sorted((project.root / ".ralph" / "runs").glob("*/turns/*/prompt.md")):
        found.setdefault(path.parent.name.partition("-")[2], []).append(path.read_text())
    return found


def start(project: Project, *options: str) -> None:  # noqa: F811
    command = ("session", "new", REQUEST, "--agent-command", FOLLOWER, "--check", f"`{CHECK}` passes", "--yes")
    done = project.ralph(*command, *options)
    assert done.code == 0, done.said


def find_sections(text: str, name: str) -> str:
    return text.partition(f"\n## {name}\n")[2].partition("\n## ")[0].strip()


def test_literal_planner_makes_a_graph_of_tasks_with_files_and_criteria(project: Project) -> None:  # noqa: F811
    start(project)
    tasks = {path.stem: path.read_text() for path in (project.root / ".ralph-sessions").glob("*/tasks/*.md")}
    assert {name: find_sections(text, "Dependencies") for name, text in tasks.items()} == {
        "task-1": "depends_on: []",
        "task-2": "depends_on: [task-1]",
        "task-3": "depends_on: [task-1, task-2]",
        "task-4": "depends_on: [task-1]",
        "task-5": "depends_on: []",
    }, "task-4 changes the same file as task-1"
    assert find_sections(tasks["task-3"], "Files") == "- index.txt"
    assert find_sections(tasks["task-3"], "Success Criteria") == f"- [ ] `{CHECK}` passes"
    assert (project.root / "store.txt").read_text() == "the store\nmore of the store\n"


def test_literal_planner_makes_a_list_of_tasks_in_a_classic_session(project: Project) -> None:  # noqa: F811
    start(project, "--classic")
    [path] = (project.root / ".ralph-sessions").glob("*/tasks.md")
    text = path.read_text()
    assert re.findall(r"\*\*Files\*\*: (.+)", text) == [
        "store.txt",
        "report.txt",
        "index.txt",
        "store.txt",
        "notes.txt",
    ]
    assert re.findall(r"\*\*Inherits From\*\*: (.+)", text) == ["None", "task-1", "task-1, task-2", "None", "None"]
    assert len(re.findall(r"`grep -qx '[^`]+` passes", text)) == 5


@pytest.mark.parametrize("layout", ["standard", "classic"])
def test_planner_whose_prompt_is_cut_makes_no_usable_tasks(layout: str) -> None:
    whole = (GOLDEN / layout / "planner-task_breakdown.md").read_text().replace("Build it", REQUEST)
    form = whole.index("depends_on: []") if layout == "standard" else whole.index("    - **Objective**")
    cut = f"{whole[:form]}````\n`result.json`:\n````\n{{}}\n````\n"
    assert "task-2" in str(answer(whole))
    assert all("depends_on" not in text and "Inherits" not in text for text in answer(cut).values())


@pytest.mark.parametrize("options", [(), ("--classic",)])
def test_planners_and_executors_get_the_check(project: Project, options: tuple[str, ...]) -> None:  # noqa: F811
    start(project, *options)
    told = f"- `{CHECK}` (failed before the session started: exit code 2)"
    found = prompts(project)
    for role in ("planner", "questioner", "executor", "reviewer"):
        assert found[role] and all(told in prompt for prompt in found[role]), role


def test_prompts_without_git_name_no_branch_and_no_copy(project: Project) -> None:  # noqa: F811
    shutil.rmtree(project.root / ".git")
    start(project)
    found = prompts(project)
    for prompt in (*found["executor"], *found["reviewer"]):
        assert "the user's own tree" in prompt
        assert "copy of the project" not in prompt and "ralph/" not in prompt.replace(".ralph/", "")


def test_steer_holds_until_the_last_turn_after_ten_infos(project: Project) -> None:  # noqa: F811
    script = project.home / "waits.sh"
    script.write_text(WAITS_IN_TASK_1.format(home=project.home, follower=FOLLOWER))
    command = ("session", "new", REQUEST, "--agent-command", f"sh {script}", "--check", f"`{CHECK}` passes", "--yes")
    process = project.start(*command)
    eventually(lambda: (project.home / "started").exists())
    assert project.ralph("steer", "Write no line twice.").code == 0
    for number in range(10):
        assert project.ralph("signal", "INFO", f"fact number {number}").code == 0
    eventually(lambda: len(project.journal("signal.accepted")) == 11)
    (project.home / "go").touch()
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, f"{out}\n{err}"
    found = prompts(project)
    later = [*found["executor"][2:], *found["reviewer"][1:], *found["librarian"]]
    assert any("TASK_ID: task-3\n" in prompt for prompt in later), "the last task"
    for prompt in later:
        guidance, _, answer_part = prompt.partition("\n# What to hand over\n")
        assert re.search(r"^- STEER, \d{4}-\d\d-\d\d \d\d:\d\d UTC: Write no line twice\.$", guidance, re.MULTILINE)
        assert answer_part
    [notes] = (project.root / ".ralph-sessions").glob("*/notes.md")
    assert re.search(r"^## STEER, .*\n\nWrite no line twice\.$", notes.read_text(), re.MULTILINE)
    assert "fact number" not in notes.read_text()
