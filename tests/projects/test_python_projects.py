"""Python: a loop that fixes real pytest tests, and one that raises real coverage."""

from collections.abc import Iterator

import pytest
from playground import Done, Playground, answer, patch, playground, put, run, say, used

pytestmark = [pytest.mark.xdist_group("python-projects"), pytest.mark.slow]
IGNORED = "__pycache__/\n.coverage\n.pytest_cache/\n.ruff_cache/\n"


# A shop with five red tests of eight.

SHOP_SETTINGS = """\
[project]
name = "shop"
version = "1.0"

[tool.pytest.ini_options]
pythonpath = ["."]

[tool.ruff]
line-length = 100
"""
CART = """\
class Cart:
    def __init__(self) -> None:
        self.lines: list[tuple[str, int, int]] = []

    def add(self, name: str, cents: int, count: int = 1) -> None:
        self.lines.append((name, cents, count))

    def total(self) -> int:
        return sum(cents for _, cents, _ in self.lines)

    def count(self) -> int:
        return len(self.lines)
"""
PRICES = """\
def discounted(cents: int, percent: int) -> int:
    return cents - percent


def formatted(cents: int) -> str:
    return f"{cents / 100} EUR"


def parsed(text: str) -> int:
    return round(float(text.removesuffix(" EUR")) * 100)
"""
TEST_CART = """\
from shop.cart import Cart


def test_an_empty_cart_costs_nothing():
    assert Cart().total() == 0


def test_the_total_counts_every_piece():
    cart = Cart()
    cart.add("tea", 350, 2)
    cart.add("cup", 900)
    assert cart.total() == 1600


def test_pieces_are_counted():
    cart = Cart()
    cart.add("tea", 350, 2)
    assert cart.count() == 2
"""
TEST_PRICES = """\
import pytest

from shop.prices import discounted, formatted, parsed


@pytest.mark.parametrize("cents, percent, expected", [(1000, 10, 900), (999, 0, 999), (250, 50, 125)])
def test_a_discount_is_a_share_of_the_price(cents, percent, expected):
    assert discounted(cents, percent) == expected


def test_a_price_has_two_decimals():
    assert formatted(350) == "3.50 EUR"


def test_a_price_is_read_back():
    assert parsed("3.50 EUR") == 350
"""
SHOP = {
    "pyproject.toml": SHOP_SETTINGS,
    ".gitignore": IGNORED,
    "shop/__init__.py": "",
    "shop/cart.py": CART,
    "shop/prices.py": PRICES,
    "tests/test_cart.py": TEST_CART,
    "tests/test_prices.py": TEST_PRICES,
}
GOOD_CART = CART.replace("sum(cents for _, cents, _ in", "sum(cents * count for _, cents, count in").replace(
    "len(self.lines)", "sum(count for _, _, count in self.lines)"
)
GOOD_PRICES = PRICES.replace("cents - percent", "cents - cents * percent // 100").replace("/ 100}", "/ 100:.2f}")
FIXES = (
    [say("All tests pass now!"), answer("Fixed all failing tests."), used()],
    [
        put("shop/cart.py", GOOD_CART),
        answer("Made the cart count pieces.", learned="a line of the cart has a count", next="look at prices.py"),
        used(),
    ],
    [
        # What was red is green now, but a test that was green is red, and so is the linter.
        put("shop/prices.py", "import os\n\n\n" + GOOD_PRICES.replace("* 100)", "* 10)")),
        answer("Rewrote prices.py."),
        used(),
    ],
    [
        put("shop/prices.py", GOOD_PRICES),
        run("python -m pytest -q"),
        answer("Read cents again, and dropped an import."),
        used(),
    ],
)


@pytest.fixture(scope="module")
def fixed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Playground, Done]]:
    with playground(tmp_path_factory.mktemp("shop")) as project:
        project.write(SHOP)
        project.commit_all()
        yield project, project.loop("Fix the failing tests", "tests pass AND no lint errors", FIXES)


class TestFixingTests:
    """A false claim, half of it, a regression, then all of it."""

    def test_loop_succeeds_with_the_work_in_the_tree(self, fixed: tuple[Playground, Done]) -> None:
        project, done = fixed
        assert done.code == 0, done.said
        assert "Ralph Loop: COMPLETE" in done.out
        assert "Iterations: 4" in done.out
        changed = {"shop/cart.py": GOOD_CART, "shop/prices.py": GOOD_PRICES}
        assert project.files() == {**SHOP, **changed}
        assert "- Files modified: 2" in done.out
        assert "cost $0.0400" in done.out

    def test_the_phrases_are_resolved_from_the_repository_and_the_commands_are_shown(
        self, fixed: tuple[Playground, Done]
    ) -> None:
        project, done = fixed
        assert "`tests pass` means `pytest -q` passes (pytest is configured in pyproject.toml)" in done.out
        assert "`no lint errors` means `ruff check` passes (ruff is configured in pyproject.toml)" in done.out
        assert "- `pytest -q` passes\n- `ruff check` passes" in project.prompt(1)

    def test_the_claim_of_the_first_turn_changes_nothing(self, fixed: tuple[Playground, Done]) -> None:
        project, _ = fixed
        first = project.state()["iterations"][0]
        assert not first.get("passed", False)
        assert "5 of 8 tests fail" in first["result"]
        assert "the turn changed no files" in project.prompt(2)

    def test_progress_is_measured_and_lessons_go_into_the_next_prompt(self, fixed: tuple[Playground, Done]) -> None:
        project, _ = fixed
        iterations = project.state()["iterations"]
        counts = [
            {check["title"]: check.get("tests_failed") for check in one["checks"]}["`pytest -q` passes"]
            for one in iterations
        ]
        assert counts == [5, 3, 1, 0]
        assert "a line of the cart has a count" in project.prompt(3)
        assert "look at prices.py" in project.prompt(3)
        assert "3 of 8 tests fail" in project.prompt(3)

    def test_a_check_that_passed_before_the_run_is_called_regressed(self, fixed: tuple[Playground, Done]) -> None:
        project, done = fixed
        assert "the changes broke `ruff check`" in done.out
        assert "$ ruff check\n(failed: exit code 1, 1 failure, and passed before this run)" in project.prompt(4)
        regressed = project.state()["iterations"][2]["checks"][1]
        assert (regressed["title"], regressed["attribution"]) == ("`ruff check` passes", "regressed")

    def test_a_test_that_passed_before_the_run_is_called_regressed(self, fixed: tuple[Playground, Done]) -> None:
        project, _ = fixed
        told = project.prompt(4).replace(project.prompt(4).partition("FAILURES")[2].partition("$ ruff")[0], "")
        assert "test_a_price_is_read_back" in told

    def test_failed_iterations_quote_telling_lines(self, fixed: tuple[Playground, Done]) -> None:
        project, _ = fixed
        said = [one["what_failed"] for one in project.state()["iterations"][:3]]
        assert not [text for text in said if "= FAILURES =" in text]
        assert "990 == 900" in said[1]
        assert "imported but unused" in said[2]

    def test_the_report_has_the_evidence(self, fixed: tuple[Playground, Done]) -> None:
        project, _ = fixed
        report = project.ralph("report").out
        for part in (
            "success (all checks pass)",
            "8 passed",
            "(passed; failed before the run)",
            "(passed; passed before the run, too)",
            "| 4 of 10 |",
        ):
            assert part in report
        assert "shop/cart.py | 2 | 2" in report


# A service with 53% coverage.

SETTINGS = """\
[tool.pytest.ini_options]
pythonpath = ["."]
testpaths = ["tests"]
"""
RATES = """\
ZONES = {"home": 490, "near": 990, "far": 1990}


def rate(zone, grams):
    if zone not in ZONES:
        raise ValueError(f"unknown zone: {zone}")
    if grams <= 0:
        raise ValueError("a parcel weighs something")
    price = ZONES[zone]
    if grams > 1000:
        price += 200 * ((grams - 1) // 1000)
    if grams > 20000:
        raise ValueError("too heavy")
    return price


def label(zone, grams, express=False):
    text = f"{zone.upper()} {grams / 1000:.1f} kg"
    if express:
        text += " EXPRESS"
    return text
"""
TEST_RATES = """\
from app.rates import rate


def test_a_light_parcel():
    assert rate("home", 500) == 490
"""
HOLLOW = """\
from app.rates import label, rate


def test_rates_of_heavy_parcels():
    rate("home", 2000)
    rate("far", 30)


def test_labels():
    label("home", 1, express=True)
"""
HONEST = """\
import pytest

from app.rates import label, rate


@pytest.mark.parametrize(("zone", "grams"), [("moon", 1), ("home", 0), ("far", 20001)])
def test_what_cannot_be_sent_is_refused(zone, grams):
    with pytest.raises(ValueError):
        rate(zone, grams)


def test_every_further_kilogram_costs():
    assert rate("near", 3000) == 990 + 400


def test_a_label_says_express():
    assert label("far", 1500, express=True) == "FAR 1.5 kg EXPRESS"
"""
EXCLUDED = SETTINGS + '\n[tool.coverage.report]\nexclude_also = ["if ", "raise", "def label"]\n'
SERVICE = {
    "pyproject.toml": SETTINGS,
    ".gitignore": IGNORED,
    "app/__init__.py": "",
    "app/rates.py": RATES,
    "tests/test_rates.py": TEST_RATES,
}
ENOUGH = "coverage from `python -m pytest --cov=app` >= 80% AND `python -m ruff check .` passes"
COVERED = (
    [
        patch("app/rates.py", "def rate(zone, grams):", "def rate(zone, grams):  # pragma: no cover"),
        patch("app/rates.py", "express=False):", "express=False):  # pragma: no cover"),
        answer("What needs no tests is left out."),
    ],
    [put("app/rates.py", RATES), put("pyproject.toml", EXCLUDED), answer("Configured the coverage.")],
    [put("pyproject.toml", SETTINGS), put("tests/test_more.py", HONEST), answer("Tested refusals, weights, labels.")],
)


ACCEPTS_TESTS = [
    {"answer": {"files": [{"path": "tests/test_more.py", "accept": True, "why": "they test what is there"}]}}
]


def a_service(project: Playground) -> None:
    project.extra = {"PYTEST_PLUGINS": "pytest_cov.plugin"}
    project.write(SERVICE)
    project.commit_all()


@pytest.fixture(scope="module")
def covered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Playground, Done]]:
    with playground(tmp_path_factory.mktemp("service")) as project:
        a_service(project)
        # `--type coverage` is what one would write; see test_options_with_choices_accept_the_same_words_as_settings.
        options = ("--scope", "tests/**")
        yield project, project.loop("Raise the test coverage", ENOUGH, COVERED, *options, judge=ACCEPTS_TESTS)


class TestRaisingCoverage:
    """Code that is left out by comments, then by settings, then honest tests."""

    def test_loop_succeeds_with_honest_tests(self, covered: tuple[Playground, Done]) -> None:
        project, done = covered
        assert done.code == 0, done.said
        assert project.files() == {**SERVICE, "tests/test_more.py": HONEST}
        assert "Iterations: 3" in done.out

    def test_a_test_engineer_works_within_the_scope(self, covered: tuple[Playground, Done]) -> None:
        project, _ = covered
        assert project.role(1) == "test-engineer"
        prompt = project.prompt(1)
        assert "never by tests that assert nothing" in prompt
        assert "Change only files that match `tests/**`" in prompt

    def test_the_number_is_measured(self, covered: tuple[Playground, Done]) -> None:
        project, done = covered
        assert "coverage is 53%, must be >= 80%" in done.out
        assert "coverage is 53%, must be >= 80%" in project.prompt(1)
        assert "100 was measured" in project.ralph("report").out

    def test_excluded_code_is_not_coverage(self, covered: tuple[Playground, Done]) -> None:
        project, _ = covered
        assert ("check-disabled", "app/rates.py") in project.findings(1)
        assert ("out-of-scope", "app/rates.py") in project.findings(1)
        assert "pragma: no cover" in project.prompt(2)

    def test_settings_that_exclude_code_are_not_coverage(self, covered: tuple[Playground, Done]) -> None:
        project, _ = covered
        assert ("check-disabled", "pyproject.toml") in project.findings(2)
        assert ("out-of-scope", "pyproject.toml") in project.findings(2)
        assert "app/rates.py" not in [path for _, path in project.findings(2)], "that was taken back"
        assert "exclude_also" in project.prompt(3)
        assert project.findings(3) == []


def test_tests_that_assert_nothing_are_not_coverage(project: Playground) -> None:
    a_service(project)
    turns = [[put("tests/test_more.py", HOLLOW), answer("Added tests.")]]
    done = project.loop("Raise the test coverage", ENOUGH, turns, "--scope", "tests/**", "--max-iterations", "1")
    assert done.code == 3, done.said
    assert ("test-emptied", "tests/test_more.py") in project.findings(1)


UNDER = "`python -m pytest -q --cov=app --cov-fail-under=80` passes"


@pytest.mark.parametrize("criterion", [ENOUGH, UNDER])
def test_new_tests_that_notice_functions_that_do_nothing_need_no_judge(project: Playground, criterion: str) -> None:
    a_service(project)
    done = project.loop("Raise the test coverage", criterion, [[put("tests/test_more.py", HONEST), answer("Tests.")]])
    assert done.code == 0, done.said
    said = " ".join(done.out.split())
    assert "Evidence: judged." in said
    assert "each of 5 new tests fails if the functions of the project do nothing." in said
    assert len(project.journal("turn.started")) == 1


def test_judge_also_looks_at_tests_that_notice_something_if_the_user_wants_one(project: Playground) -> None:
    a_service(project)
    turns = [[put("tests/test_more.py", HONEST), answer("Tests.")]]
    judge = [{"answer": {"work": {"accept": True, "why": "they test what is there"}}}]
    done = project.loop("Raise the test coverage", UNDER, turns, "--require", "judged", judge=judge)
    assert done.code == 0, done.said
    assert [entry["role"] for entry in project.journal("turn.started")] == ["test-engineer", "judge"]
    assert "Evidence: judged." in done.out


POINTLESS = """\
from app.rates import label, rate


def test_rates_of_heavy_parcels():
    prices = [rate("home", 2000), rate("far", 30)]
    assert len(prices) == 2


def test_labels():
    text = label("home", 1, express=True)
    assert text == text
"""


def test_new_tests_that_notice_nothing_are_left_to_a_judge(project: Playground) -> None:
    a_service(project)
    options = ("--require", "proven")
    done = project.loop(
        "Raise the test coverage", UNDER, [[put("tests/test_more.py", POINTLESS), answer("Tests.")]], *options
    )
    assert done.code == 7, done.said
    said = " ".join(done.out.split())
    assert "These also pass if the functions of the project do nothing: " in said
    assert "test_rates_of_heavy_parcels" in said


def test_tests_that_notice_something_are_no_proof(project: Playground) -> None:
    a_service(project)
    turns = [[put("tests/test_more.py", HONEST), answer("Tests.")]]
    done = project.loop("Raise the test coverage", UNDER, turns, "--require", "proven")
    assert done.code == 7, done.said
    assert "each of 5 new tests fails" in " ".join(done.out.split())


def test_files_written_by_checks_are_not_blamed_on_the_agent(project: Playground) -> None:
    a_service(project)
    project.git("rm", "-q", ".gitignore")
    project.commit_all("No .gitignore")
    turns = [[put("tests/test_more.py", HONEST), answer("Honest tests.")]]
    options = ("--scope", "tests/**", "--max-iterations", "1")
    done = project.loop("Raise the test coverage", ENOUGH, turns, *options, judge=ACCEPTS_TESTS)
    assert done.code == 0, done.said


@pytest.mark.parametrize(
    ("option", "value", "setting"),
    [
        ("--type", "coverage", "type"),
        ("--on-stuck", "ask", "on_stuck"),
    ],
)
def test_options_with_choices_accept_the_same_words_as_settings(
    project: Playground, option: str, value: str, setting: str
) -> None:
    project.write({"README": "first\n"})
    turns = [[answer("Nothing.")]]
    done = project.loop("Do something", "`false` passes", turns, option, value, "--dry-run", "--json")
    assert done.code == 0, done.said
    assert done.json["settings"]["loop"][setting] == value
