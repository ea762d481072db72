"""A turn that fails after it changed files: the checks decide, before anything is tried again."""

from test_loop import DONE, Project, project  # noqa: F401 - the fixture


def test_work_of_a_failed_turn_that_passes_is_success(project: Project) -> None:  # noqa: F811
    done = project.ralph(*project.working("touch done.txt; exit 1"))
    assert done.code == 0, done.said
    assert len(project.journal("turn.started")) == 1, "nothing is tried again"


LIMITED = """
turns:
  - when: {turn: 1}
    steps:
      - write: {path: half.txt, content: x}
      - write: {path: FILE, content: x}
      - rate_limit: SECONDS
  - steps: [{write: {path: done.txt, content: x}}]
"""


def test_work_of_a_turn_that_ran_into_a_limit_is_verified_before_the_wait(project: Project) -> None:  # noqa: F811
    done = project.play(LIMITED.replace("FILE", "done.txt").replace("SECONDS", "3000"))
    assert done.code == 0, done.said
    assert len(project.journal("turn.started")) == 1, "nobody waits for the limit"


def test_next_turn_waits_for_the_limit_if_the_work_does_not_pass(project: Project) -> None:  # noqa: F811
    done = project.play(LIMITED.replace("FILE", "other.txt").replace("SECONDS", "2"))
    assert done.code == 0, done.said
    assert "scripted waits for its provider's limit until " in done.out
    assert "turn 1 reached the provider's limit after " in done.out
    assert "No progress" not in done.out, "the limit says nothing about that"
    assert done.out.index("Result: FAIL") < done.out.index("scripted waits for its provider's limit until ")
    assert "the provider's limit ended the turn before the agent had finished" in project.ralph("prompt").out


def test_failed_turn_that_is_not_enough_is_followed_by_the_next(project: Project) -> None:  # noqa: F811
    done = project.ralph(*project.working("[ -e half.txt ] && touch done.txt && exit 0; touch half.txt; exit 1"))
    assert done.code == 0, done.said
    assert "the turn failed, and what it changed does not pass the checks; the next turn starts now" in done.said
    prompt = project.ralph("prompt", "--turn", "2").out
    assert "half.txt" in prompt, "the next turn knows what the failed one changed"
    assert "the agent's turn failed: exit code 1" in prompt


def test_failed_turn_without_changes_is_retried_as_the_same_iteration(project: Project) -> None:  # noqa: F811
    script = f"[ -e {project.home}/tried ] && touch done.txt && exit 0; touch {project.home}/tried; exit 1"
    done = project.ralph(*project.working(script))
    assert done.code == 0, done.said
    assert [entry["attempt"] for entry in project.journal("turn.started")] == [1, 2]
    assert DONE in done.said
