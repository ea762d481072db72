"""A turn that fails after it changed files: the checks decide, before anything is tried again."""

from test_loop import DONE, Project, project  # noqa: F401 - the fixture


def test_work_of_a_failed_turn_that_passes_is_success(project: Project) -> None:  # noqa: F811
    done = project.ralph(*project.working("touch done.txt; exit 1"))
    assert done.code == 0, done.said
    assert len(project.journal("turn.started")) == 1, "nothing is tried again"


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
