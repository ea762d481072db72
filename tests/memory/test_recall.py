"""Recall: the lesson that helps, and silence where there is none."""

from pathlib import Path

import pytest
from past import DAY, NOW, PAST, keep, keep_past, loop_id, reflection

from ralph.documents.reflection import HOME
from ralph.memory import recall as module
from ralph.memory.learning import learn_patterns
from ralph.memory.recall import recall

TRACEBACK = """
    def test_monthly(report):
        start = datetime(2025, 1, 1)
>       assert report.between(start, now()) == 3
E       TypeError: can't compare offset-naive and offset-aware datetimes
src/report.py:33: TypeError
FAILED tests/test_report.py::test_monthly - TypeError: can't compare offset-naive and offset-aware datetimes
"""
RELEVANT = [
    ("fix failing date parsing tests", "to UTC"),
    ("Make the report tests pass" + TRACEBACK, "to UTC"),
    ("parseDate compares datetimes without a timezone", "to UTC"),
    ("make the CSS grid of the pricing page keep its layout", "minmax"),
    ("integration tests: connection refused by the database", "pg_isready"),
    ("JWT session is gone after a password reset", "token version"),
    ("mypy: Optional[Decimal] in the invoice total", "early return"),
    ("login with GitHub OAuth: the cookie is lost", "SameSite=Lax"),
    ("exporting CSV with umlauts raises UnicodeEncodeError", "BOM"),
    ("websocket reconnect times out against the mock server", "open event"),
    ("Kafka messages are processed twice by the consumer", "offsets are committed"),
]
IRRELEVANT = [
    "",
    "fix it",
    "Fix the failing tests until `pytest -q` passes",
    "make all tests pass and fix the errors",
    "Write a sorting algorithm in Rust",
    "implement a tokenizer for the query language",
    "fix failing tests in the parser: SyntaxError unexpected token",
    "Ωμέγα 你好 🙂",
    '" OR ( NEAR * : ^ -- AND',
]


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("past")
    keep_past(root)
    return root


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("learned")
    for loop in keep_past(root):
        learn_patterns(root, loop)
    return root


@pytest.fixture(params=["full-text", "overlap"])
def search(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With SQLite's full-text search, and on a Python without it."""
    if request.param == "overlap":
        monkeypatch.setattr(module, "_open_search", lambda: None)


@pytest.mark.usefixtures("search")
class TestRelevance:
    @pytest.mark.parametrize(("query", "lesson"), RELEVANT, ids=[query[:30] for query, _ in RELEVANT])
    def test_the_lesson_that_helps_comes_first(self, past: Path, query: str, lesson: str) -> None:
        found = recall(past, query, exclude="", now=NOW)
        assert found
        assert lesson in found[0]

    @pytest.mark.parametrize("query", IRRELEVANT)
    def test_there_is_no_lesson_if_nothing_fits(self, past: Path, query: str) -> None:
        assert recall(past, query, exclude="", now=NOW) == ()

    def test_the_date_lesson_comes_without_the_css_one(self, past: Path) -> None:
        found = recall(past, "fix failing date parsing tests", exclude="", task_type="test-fix", now=NOW)
        assert any("timezone" in lesson for lesson in found)
        assert not any("grid" in lesson or "CSS" in lesson for lesson in found)

    def test_with_patterns_it_is_still_one_lesson_a_loop(self, learned: Path) -> None:
        found = recall(learned, "fix failing date parsing tests", exclude="", now=NOW)
        assert "to UTC" in found[0]
        assert sum("to UTC" in lesson for lesson in found) == 1


def test_a_lesson_has_its_age_the_failure_and_the_solution(past: Path) -> None:
    [found] = recall(past, "fix failing date parsing tests", exclude="", now=NOW)
    assert found == (
        "(21 days ago, solved) Fix failing tests of the date parser; tried: Parsed with strptime; "
        "failed: tests/test_dates.py::test_offset: TypeError: can't compare offset-naive and offset-aware datetimes; "
        "because parse_date returns naive datetimes when the input has no timezone; "
        "what worked then: Convert every parsed date to UTC before it is compared"
    )


def test_the_loop_that_asks_is_left_out(past: Path) -> None:
    assert recall(past, "fix failing date parsing tests", exclude=loop_id(0), now=NOW) == ()


def test_old_lessons_are_not_recalled(past: Path) -> None:
    assert recall(past, "fix failing date parsing tests", exclude="", now=NOW + 80 * DAY) == ()
    assert recall(past, "fix failing date parsing tests", exclude="", now=NOW + 60 * DAY)


def test_lessons_of_the_same_type_with_a_known_fix_come_first(tmp_path: Path) -> None:
    for number, kind, solved in (
        (1, "lint", False),
        (2, "migration", True),
        (3, "migration", False),
        (4, "lint", True),
    ):
        task, loop = f"Upgrade webpack bundler {number}", loop_id(number)
        keep(
            tmp_path, reflection(loop, 1, task=task, task_type=kind, action=f"tried {kind}", what_failed=f"case {kind}")
        )
        done = "success" if solved else "failure"
        keep(tmp_path, reflection(loop, 2, task=task, task_type=kind, outcome=done, action=f"end of {number}"))
    found = recall(tmp_path, "webpack bundler upgrade", exclude="", task_type="migration", most=4, now=NOW)
    assert "end of 2" in found[0]
    assert recall(tmp_path, "webpack bundler upgrade", exclude="", task_type="lint", now=NOW)[0].count("end of 4")


def test_the_budget_and_the_number_hold(tmp_path: Path) -> None:
    for number in range(8):
        keep(
            tmp_path,
            reflection(
                loop_id(number), task=f"webpack bundler {chr(97 + number) * 3}", why=f"{chr(97 + number) * 4} " * 200
            ),
        )
    query = "webpack bundler"
    assert len(recall(tmp_path, query, exclude="", now=NOW)) == 3
    for budget in (0, 79, 80, 500, 1200):
        found = recall(tmp_path, query, exclude="", most=8, budget=budget, now=NOW)
        assert sum(map(len, found)) <= budget
        assert all(len(lesson) <= 400 and "\n" not in lesson for lesson in found)
    assert recall(tmp_path, query, exclude="", most=0, now=NOW) == ()


def test_the_same_lesson_of_two_loops_appears_once(tmp_path: Path) -> None:
    for number in range(4):
        keep(tmp_path, reflection(loop_id(number), task="Upgrade the webpack bundler", why="loader is gone"))
    assert len(recall(tmp_path, "webpack bundler", exclude="", now=NOW)) == 1


def test_words_that_every_loop_has_are_ignored(tmp_path: Path) -> None:
    for number in range(20):
        keep(
            tmp_path, reflection(loop_id(number), task="checkout service", what_failed=f"reason {chr(97 + number) * 4}")
        )
    assert recall(tmp_path, "Add gift cards to the checkout service", exclude="", now=NOW) == ()
    keep(tmp_path, reflection(loop_id(21), task="checkout service", what_failed="gift cards are charged twice"))
    assert len(recall(tmp_path, "Add gift cards to the checkout service", exclude="", now=NOW)) == 1


def test_unreadable_reflections_are_skipped(tmp_path: Path) -> None:
    keep_past(tmp_path)
    (tmp_path / HOME / "patterns").mkdir()
    (tmp_path / HOME / "patterns" / "error-patterns.yaml").write_text("{ date parsing")
    (tmp_path / HOME / "loops" / loop_id(0) / "iteration-2.yaml").write_text("date parsing: [")
    surrogate = '"date \\ud800 parsing"'
    file = tmp_path / HOME / "loops" / loop_id(0) / "iteration-1.yaml"
    file.write_text(file.read_text().replace('"Parsed with strptime"', surrogate))
    [found] = recall(tmp_path, "fix failing date parsing tests \ud800", exclude="", now=NOW)
    assert "what worked: Convert every parsed date to UTC" in found
    assert recall(tmp_path / "nowhere", "fix failing date parsing tests", exclude="", now=NOW) == ()


def test_the_past_is_as_large_as_it_says() -> None:
    assert len(PAST) >= 20
