"""What a loop does besides: it notices that it is stuck, knows its best iteration, commits, and does not trust to luck."""

import re
from collections.abc import Iterator

import pytest
from playground import Done, Playground, answer, delete, playground, put, say
from slugs import HYPHENS, PROJECT, RIGHT, SHOUTED, TASK, UNDERSCORES, slugs

pytestmark = [pytest.mark.xdist_group("loops"), pytest.mark.slow]
SAME = ([put("slugs.py", UNDERSCORES), answer("Joined the words by underscores.")],)


class TestStuck:
    """An agent that tries the same again and again."""

    def test_another_approach_is_asked_for_after_three_and_then_it_ends(self, stuck: tuple[Playground, Done]) -> None:
        project, done = stuck
        assert done.code == 4, done.said
        assert len(list((project.run / "turns").iterdir())) == 4
        asked = [turn for turn in range(1, 5) if "# Another approach" in project.prompt(turn)]
        assert asked == [4]
        assert "Stuck: 3 iterations without progress." in done.out
        assert "Ralph Loop: STUCK" in done.out
        assert f'ralph resume {project.run.name} --guidance "' in done.out

    def test_the_prompt_lists_what_was_tried_and_a_debugger_gets_it(self, stuck: tuple[Playground, Done]) -> None:
        project, _ = stuck
        assert project.prompt(4).startswith("You are a debugger.")
        tried = project.prompt(4).partition("# Another approach")[2].partition("# Your answer")[0]
        assert "- Iterations 1, 2, 3: Joined the words by underscores." in tried
        assert "fundamentally different approach" in tried
        roles = [project.role(turn) for turn in range(1, 5)]
        assert roles == ["implementer", "implementer", "debugger", "debugger"]

    @pytest.mark.slow
    def test_restore_is_not_offered_if_it_changes_nothing(self, stuck: tuple[Playground, Done]) -> None:
        project, done = stuck
        assert "Nothing was written" in project.ralph("restore", "best").out
        assert "ralph restore best" not in done.out

    def test_the_user_is_asked_and_the_answer_counts(self, project: Playground) -> None:
        slugs(project, **{"ralph.yml": "loop:\n  on_stuck: ask\n"})
        turns = [*SAME * 4, [put("slugs.py", RIGHT), answer("Only letters and digits.")]]
        done = project.loop(TASK, "tests pass", turns)
        assert done.code == 7, done.said
        assert "AWAITING GUIDANCE" in done.out
        assert "awaiting-guidance" in project.ralph("status").out
        resumed = project.ralph("resume", project.run.name, "--guidance", "Hyphens, and see section 4.2 of the guide")
        assert resumed.code == 0, resumed.said
        assert re.search(
            "^- RESUME, .* UTC: Hyphens, and see section 4.2 of the guide$", project.prompt(5), re.MULTILINE
        )
        assert "section 4.2" not in project.prompt(4)
        assert project.read("slugs.py") == RIGHT

    @pytest.mark.slow
    def test_on_stuck_continue_runs_to_the_limit(self, project: Playground) -> None:
        slugs(project)
        done = project.loop(TASK, "tests pass", SAME, "--on-stuck", "continue", "--max-iterations", "7")
        assert done.code == 3, done.said
        assert "Status: MAX_ITERATIONS (the limit of 7 iterations was reached)" in done.out
        assert "# Another approach" in project.prompt(7), "it is asked for until something moves"


@pytest.fixture(scope="module")
def stuck(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Playground, Done]]:
    with playground(tmp_path_factory.mktemp("stuck")) as project:
        slugs(project)
        yield project, project.loop(TASK, "tests pass", SAME)


def test_the_best_iteration_can_be_brought_back(project: Playground) -> None:
    slugs(project)
    turns = [
        [put("notes.md", "one\n"), answer("Wrote notes.")],
        [put("slugs.py", HYPHENS), put("notes.md", "two\n"), answer("Hyphens.")],
        [put("slugs.py", SHOUTED), delete("notes.md"), put("extra.py", "x = 1\n"), answer("Simplified.")],
        [put("slugs.py", "def slug(text:\n"), answer("A typo.")],
    ]
    first = {**PROJECT, "notes.md": "one\n"}
    best = {**PROJECT, "slugs.py": HYPHENS, "notes.md": "two\n"}
    third = {**PROJECT, "slugs.py": SHOUTED, "extra.py": "x = 1\n"}
    last = {**PROJECT, "slugs.py": "def slug(text:\n", "extra.py": "x = 1\n"}

    done = project.loop(TASK, "tests pass", turns, "--max-iterations", "4")
    assert done.code == 3, done.said
    assert f"ralph restore best {project.run.name}   (iteration 2 was the best:" in done.out
    assert project.files() == last
    assert "Best iteration | 2 (" in project.ralph("report").out

    said = project.ralph("restore", "best")
    assert (said.code, "as iteration 2 left them" in said.out) == (0, True)
    assert project.files() == best
    assert project.ralph("undo").code == 0
    assert project.files() == last, "the way back from a restore"
    assert project.ralph("restore", "1").code == 0
    assert project.files() == first
    assert project.ralph("undo").code == 0
    assert project.ralph("undo").code == 0
    assert project.files() == third, "what the last turn did is taken back"
    assert project.git("status", "--porcelain", "--", "test_slugs.py") == ""


COMMITTED = (
    [put("notes.md", "first thoughts\n"), answer("Wrote notes.")],
    [say("Let me look around."), answer("Looked around.")],
    [put("slugs.py", HYPHENS), delete("notes.md"), put("helpers/text.py", "x = 1\n"), answer("Joined by hyphens.")],
    [put("slugs.py", RIGHT), answer("Only letters and digits are left.")],
)


def test_every_iteration_is_a_commit_and_all_can_be_reverted(project: Playground) -> None:
    slugs(project)
    project.write({"mine.txt": "not committed\n"})
    before = everything(project)
    done = project.loop(TASK, "tests pass", COMMITTED, "--commit")
    assert done.code == 0, done.said

    log = project.git("log", "--reverse", "--format=%s").splitlines()
    assert log == [
        "first",
        "ralph: iteration 1 - Wrote notes.",
        "ralph: iteration 3 - Joined by hyphens.",
        "ralph: iteration 4 - Only letters and digits are left.",
    ]
    assert changed(project, "HEAD~2") == {"A notes.md"}
    assert changed(project, "HEAD~1") == {"M slugs.py", "D notes.md", "A helpers/text.py"}
    assert changed(project, "HEAD") == {"M slugs.py"}
    message = project.git("log", "-1", "--format=%B")
    for part in (f"Task: {TASK}", "Checks: `python3 -m unittest discover` passed", f"Ralph-Run: {project.run.name}"):
        assert part in message
    assert "1 of 3 tests fails" in project.git("log", "-1", "--format=%B", "HEAD~1")
    assert project.git("status", "--porcelain") == "?? mine.txt\n"
    assert "committed as" in done.out

    aborted = project.ralph("abort", project.run.name, "--revert", "--yes")
    assert aborted.code == 0, aborted.said
    assert everything(project) == before
    assert not (project.root / "helpers").exists()


def everything(project: Playground) -> tuple[str, ...]:
    """HEAD, the index, the state of the tree, and every file with its content."""
    parts = (project.git("symbolic-ref", "HEAD"), project.git("rev-parse", "HEAD"), project.git("ls-files", "-s"))
    return (*parts, project.git("status", "--porcelain"), str(project.files()))


def changed(project: Playground, commit: str) -> set[str]:
    lines = project.git("show", "--name-status", "--format=", commit).splitlines()
    return {" ".join(line.split()) for line in lines}


STEPS = ([put("slugs.py", HYPHENS), answer("Hyphens.")], [put("slugs.py", RIGHT), answer("Letters and digits.")])


@pytest.mark.slow
def test_files_written_by_checks_are_not_committed(project: Playground) -> None:
    slugs(project, **{".gitignore": "*.log\n"})
    project.extra = {"PYTHONDONTWRITEBYTECODE": ""}
    done = project.loop(TASK, "tests pass", STEPS, "--commit")
    assert done.code == 0, done.said
    assert [changed(project, commit) for commit in ("HEAD~1", "HEAD")] == [{"M slugs.py"}] * 2
    assert project.git("status", "--porcelain", "--untracked-files=no") == ""


@pytest.mark.slow
def test_a_check_may_write_a_log(project: Playground) -> None:
    slugs(project)
    check = "python3 -m unittest -q > test.log 2>&1"
    done = project.loop(TASK, f"`{check}` passes", STEPS, "--max-iterations", "2")
    assert project.findings(2) == []
    assert done.code == 0, done.said


OUTSIDE = ("--sandbox", "off")
"""The flaky check counts in a file that it could not write in the sandbox."""


def flaky_check(project: Playground) -> str:
    """A check that passes every second time, whatever the files are, but not the first time."""
    project.write({"README": "first\n"})
    project.commit_all()
    counter, script = project.home / "counter", project.home / "check.sh"
    script.write_text(
        f"n=$(cat {counter} 2>/dev/null || echo 0)\n"
        f"n=$((n + 1))\n"
        f"echo $n > {counter}\n"
        # It fails before the first turn, in the workspace. Its second run is in the clean checkout.
        f'[ $n -gt 1 ] && [ $((n % 2)) -eq 1 ] || {{ echo "connection reset by peer"; exit 1; }}\n'
    )
    return f"`sh {script}` passes"


@pytest.fixture(scope="module")
def lucky(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Playground, Done]]:
    """Each turn changes something, and the check passes at first."""
    with playground(tmp_path_factory.mktemp("lucky")) as project:
        check = flaky_check(project)
        turns = [[put("a.txt", f"{n}\n"), answer(f"Attempt {n}.")] for n in (1, 2, 3)]
        yield project, project.loop("Make it answer", check, turns, "--confirm", "3", "--max-iterations", "3", *OUTSIDE)


class TestFlakyChecks:
    """Luck is no success."""

    def test_flaky_check_does_not_pass_with_confirm(self, lucky: tuple[Playground, Done]) -> None:
        project, done = lucky
        assert done.code == 3, done.said
        assert "it gave different results for the same tree: it is flaky, or" in done.out
        assert "flaky" in project.prompt(2)
        assert "connection reset by peer" in project.prompt(2)
        assert "flaky" in project.ralph("report").out

    @pytest.mark.slow
    def test_flaky_check_does_not_pass_on_a_tree_that_failed(self, project: Playground) -> None:
        turns = [[answer("I did nothing.")]]
        done = project.loop("Make it answer", flaky_check(project), turns, "--max-iterations", "2", *OUTSIDE)
        assert done.code == 3, done.said
        assert "it is flaky" in done.out

    def test_the_lesson_says_that_the_check_is_flaky(self, lucky: tuple[Playground, Done]) -> None:
        project, _ = lucky
        assert "flaky" in project.state()["iterations"][0]["learnings"]


@pytest.mark.slow
def test_a_reflector_has_its_own_turn_and_its_lesson_is_in_the_next_prompt(project: Playground) -> None:
    slugs(project)
    why, then = "signs of punctuation survive replace()", "keep only letters and digits, with re.findall"
    done = project.loop(
        TASK,
        "tests pass",
        [
            [put("slugs.py", HYPHENS), answer("Hyphens.")],
            [say("...")],
            [put("slugs.py", RIGHT), answer("Letters and digits.")],
        ],
        "--reflector",
        reflector=[say("Let me think."), {"answer": {"why": why, "next": then}}],
    )
    assert done.code == 0, done.said
    assert [project.role(turn) for turn in (1, 2, 3)] == ["implementer", "reflector", "implementer"]
    assert "Change no file of the project" in project.prompt(2)
    assert "what?-yes!" in project.prompt(2), "it is told what the checks said"
    assert f"  Why: {why}\n  Next: {then}\n" in project.prompt(3)
    assert f"Learning: {why}\nNext approach: {then}" in done.out
    assert "Iterations: 2" in done.out, "a reflector's turn is none"
