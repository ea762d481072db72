"""Patterns: what came up again, what worked, what did harm; merged, bounded, and the same when learned twice."""

from pathlib import Path

import pytest
from past import NOW, keep, keep_past, loop_id, reflection

from ralph.core.codec import format_time
from ralph.core.errors import StateError
from ralph.documents.reflection import HOME
from ralph.memory import learning
from ralph.memory.learning import Pattern, learn_patterns, make_signature, read_patterns

NAIVE = "tests/test_dates.py:{}: TypeError: can't compare offset-naive and offset-aware datetimes (took {} ms)"


def test_a_failure_that_came_twice_is_a_pattern_with_what_ended_it(tmp_path: Path) -> None:
    loop = loop_id(1)
    keep(
        tmp_path,
        reflection(loop, 1, what_failed=NAIVE.format(12, 3), action="strptime"),
        reflection(loop, 2, what_failed="something else", action="guessed"),
        reflection(loop, 3, what_failed=NAIVE.format(40, 77), action="fromisoformat"),
        reflection(loop, 4, what_failed="1 test left", action="convert to UTC first"),
        reflection(loop, 5, outcome="success", action="fixed the last test"),
    )
    learn_patterns(tmp_path, loop)
    [found] = read_patterns(tmp_path, "error")
    assert found == Pattern(
        "error",
        "test_dates.py:#: TypeError: can't compare offset-naive and offset-aware datetimes (took <time>)",
        " ".join(NAIVE.format(40, 77).split()),
        "convert to UTC first",
        task_type="test-fix",
        source_loops=(loop,),
        occurrences=2,
        last_seen=format_time(NOW - 86400),
        id="pat-error-test-dates-py-typeerror-can-t-001",
    )
    assert "fix: " in (tmp_path / HOME / "patterns" / "error-patterns.yaml").read_text()


def test_a_failure_that_two_loops_had_is_a_pattern(tmp_path: Path) -> None:
    keep(tmp_path, reflection(loop_id(1), 1, what_failed=NAIVE.format(1, 1)))
    learn_patterns(tmp_path, loop_id(1))
    assert read_patterns(tmp_path, "error") == []
    keep(tmp_path, reflection(loop_id(2), 1, what_failed=NAIVE.format(2, 2)))
    learn_patterns(tmp_path, loop_id(2))
    [found] = read_patterns(tmp_path, "error")
    assert (found.source_loops, found.occurrences, found.advice) == ((loop_id(1), loop_id(2)), 2, "")


def test_a_later_loop_adds_its_fix_and_none_takes_it_away(tmp_path: Path) -> None:
    def loop(number: int, fix: str) -> None:
        keep(tmp_path, *(reflection(loop_id(number), n, what_failed="the same", at=NOW + number) for n in (1, 2)))
        if fix:
            keep(tmp_path, reflection(loop_id(number), 3, outcome="success", action=fix, at=NOW + number))
        learn_patterns(tmp_path, loop_id(number))

    for number, fix in ((1, ""), (2, "the fix"), (3, "")):
        loop(number, fix)
    [found] = read_patterns(tmp_path, "error")
    assert (found.advice, found.occurrences, len(found.source_loops)) == ("the fix", 6, 3)
    assert found.last_seen == format_time(NOW + 3)


def test_learning_the_same_loop_again_changes_nothing(tmp_path: Path) -> None:
    loops = keep_past(tmp_path)
    for loop in loops:
        learn_patterns(tmp_path, loop)
    before = [read_patterns(tmp_path, kind) for kind in learning.ADVICE]
    for loop in loops:
        learn_patterns(tmp_path, loop)
    assert [read_patterns(tmp_path, kind) for kind in learning.ADVICE] == before
    assert [len(kind) for kind in before] == [21, 19, 0]
    ids = [one.id for kind in before for one in kind]
    assert len(set(ids)) == len(ids)


def test_a_success_is_stored_with_its_steps_and_iterations(tmp_path: Path) -> None:
    for number in (1, 2):
        done = reflection(loop_id(number), number + 1, task="Fix 3 tests", outcome="success", action=f"did {number}")
        keep(tmp_path, done)
        learn_patterns(tmp_path, loop_id(number))
    [found] = read_patterns(tmp_path, "success")
    assert (found.signature, found.advice, found.iterations, found.occurrences) == ("Fix # tests", "did 2", 3, 2)


def test_harmful_or_gaming_actions_are_stored_with_what_worked(tmp_path: Path) -> None:
    loop = loop_id(1)
    keep(
        tmp_path,
        reflection(loop, 1, action="deleted the tests", gaming=("Two tests were deleted.",), try_next="put them back"),
        reflection(loop, 2, action="rewrote it all", reward=0.2, reward_before=0.8),
        reflection(loop, 3, action="went on", reward=0.8, reward_before=0.2),
    )
    learn_patterns(tmp_path, loop)
    assert {(one.signature, one.because, one.advice) for one in read_patterns(tmp_path, "anti")} == {
        ("deleted the tests", "Two tests were deleted.", "put them back"),
        ("rewrote it all", "the reward fell from 0.80 to 0.20", ""),
    }
    keep(tmp_path, reflection(loop, 4, outcome="success", action="small steps", reward=1.0))
    learn_patterns(tmp_path, loop)
    assert {one.advice for one in read_patterns(tmp_path, "anti")} == {"small steps"}


def test_the_files_are_bounded_and_the_oldest_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learning, "MAX_PATTERNS", 3)
    for number in range(5):
        keep(tmp_path, reflection(loop_id(number), 1, task="T" * (number + 1), outcome="success", at=NOW + number))
        learn_patterns(tmp_path, loop_id(number))
    assert [one.signature for one in read_patterns(tmp_path, "success")] == ["TTTTT", "TTTT", "TTT"]


def test_a_broken_file_is_set_aside(tmp_path: Path) -> None:
    file = tmp_path / HOME / "patterns" / "success-patterns.yaml"
    file.parent.mkdir(parents=True)
    file.write_text("schema: 1\npatterns:\n  - just text\n")
    with pytest.raises(StateError, match="signature"):
        read_patterns(tmp_path, "success")
    keep(tmp_path, reflection(loop_id(1), outcome="success"))
    learn_patterns(tmp_path, loop_id(1))
    assert len(read_patterns(tmp_path, "success")) == 1
    assert "just text" in file.with_name("success-patterns.yaml.broken").read_text()


def test_a_loop_without_reflections_teaches_nothing(tmp_path: Path) -> None:
    assert learn_patterns(tmp_path, loop_id(1)) == []
    assert not (tmp_path / HOME / "patterns").exists()


@pytest.mark.parametrize("text", ["", "\n", "===", pytest.param("x" * 10_000, id="long"), "\ud800 surrogate", "1234"])
def test_a_signature_is_one_short_line(text: str) -> None:
    assert len(make_signature(text)) <= 300
    assert "\n" not in make_signature(text)
