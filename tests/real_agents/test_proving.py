"""What is written down of a run of the tests: whole matrices as proofs, parts of them only where they fit to one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from proving import PLACE, Seen, all_cases, case_of, updated, write_down

from ralph.agents.proofs import Proof, Standing, parse, proofs, render

CASES = {"a", "b", "c"}
OLD = Proof("1.0", "2026-01-01", ("a", "b"), ("c",))


def seen(version: str = "1.0", cannot: str = "", **well: bool) -> Seen:
    return Seen(version, well, {cannot: "it has none"} if cannot else {})


class TestProofs:
    """Which proofs there are after a run."""

    def test_a_whole_matrix_is_a_new_proof(self) -> None:
        found = updated({"x": OLD}, {"x": seen("2.0", a=True, b=False, cannot="c")}, CASES, "2026-02-02")
        assert found == {"x": Proof("2.0", "2026-02-02", ("a",), ("b",), {"c": "it has none"})}

    def test_a_part_of_it_is_none(self) -> None:
        assert updated({}, {"x": seen(a=True, b=True)}, CASES, "2026-02-02") == {}
        assert updated({"x": OLD}, {"x": seen("2.0", a=True)}, CASES, "2026-02-02") == {"x": OLD}

    def test_a_part_of_it_mends_a_proof_of_the_same_version(self) -> None:
        found = updated({"x": OLD}, {"x": seen(a=False, c=True)}, CASES, "2026-02-02")["x"]
        assert found == Proof("1.0", "2026-01-01", ("b", "c"), ("a",))
        found = updated({"x": OLD}, {"x": seen(a=True, cannot="c")}, CASES, "2026-02-02")["x"]
        assert found == Proof("1.0", "2026-01-01", ("a", "b"), (), {"c": "it has none"})

    def test_agents_that_did_not_run_stay(self) -> None:
        whole = seen(a=True, b=True, c=True)
        assert updated({"x": OLD}, {"y": whole, "z": seen(cannot="a")}, CASES, "d") == {"x": OLD, "y": whole.proof("d")}

    def test_cases_that_are_no_more_go_with_the_next_whole_matrix(self) -> None:
        old = Proof("1.0", "d", ("a", "z"))
        assert updated({"x": old}, {"x": seen(a=True, b=True, c=True)}, CASES, "d")["x"].passed == ("a", "b", "c")

    def test_a_test_that_fails_when_it_ends_has_failed(self) -> None:
        one = Seen("1.0")
        one.take("a", failed=False, passed=True)
        one.take("a", failed=True, passed=False)
        one.take("b", failed=False, passed=False, why_not="it has none")
        one.take("c", failed=False, passed=False)
        assert (one.well, one.cannot) == ({"a": False}, {"b": "it has none"})


class TestFile:
    """The file that it is written down in."""

    def test_it_is_read_as_it_was_written(self) -> None:
        known = {"x": OLD, "y (acp)": Proof("2", "d", cannot={"b": "é"})}
        assert parse(render(known)) == known

    def test_a_case_is_a_line_and_order_does_not_matter(self) -> None:
        text = render({"y": OLD, "x": Proof("1", "d", ("b", "a"))})
        assert text == render({"x": Proof("1", "d", ("a", "b")), "y": OLD})
        assert '\n      "a",\n      "b"\n' in text

    def test_ours_is_in_that_form(self) -> None:
        assert PLACE.read_text() == render(proofs())

    def test_what_is_new_is_told(self, tmp_path: Path) -> None:
        place = tmp_path / "proofs.json"
        place.write_text(render({"x": OLD}))
        assert write_down({"x": seen(a=False)}, place)["x"].failed == ("a", "c")
        assert write_down({"x": seen(a=False)}, place) == {}
        assert os.listdir(tmp_path) == ["proofs.json"]

    def test_the_cases_are_the_tests_for_every_agent(self) -> None:
        cases = all_cases()
        assert case_of("test_a_loop_ends_when_the_check_passes") in cases
        assert not any("overcomes" in case for case in cases), "the bench itself proves nothing"


@pytest.mark.parametrize(
    ("version", "said", "standing"),
    [
        ("1.0.1", "parrot 1.0.1 (grey)", Standing.PROVEN),
        ("1.0.1", "v1.0.10", Standing.OTHER_VERSION),
        ("1.0.1", "parrot-11.0.1", Standing.OTHER_VERSION),
        ("0.0.1-g7", "0.0.1-g7", Standing.PROVEN),
    ],
)
def test_what_a_proof_says_of_a_version(version: str, said: str, standing: Standing) -> None:
    assert Proof(version, "d").standing(said) is standing


MATRIX = """
import pytest
@pytest.fixture(autouse=True)
def _programs(): pass
def test_a_loop_ends_when_the_check_passes(agent): pass
"""


@pytest.mark.parametrize("options", [[], ["-n", "2"]], ids=["alone", "xdist"])
def test_outcomes_reach_whoever_writes(options: list[str], tmp_path: Path) -> None:
    """With the true conftest, and a matrix that runs nothing."""
    here = Path(__file__).parent
    for path in here.glob("*.py"):
        if not path.name.startswith("test_"):
            (tmp_path / path.name).write_text(path.read_text())
    (tmp_path / "subjects").symlink_to(here / "subjects")
    place = tmp_path / "proofs.json"
    place.write_text("{}\n")
    text = (
        (tmp_path / "proving.py")
        .read_text()
        .replace('Path(agents.__path__[0]) / "proofs.json"', f"Path({str(place)!r})")
    )
    (tmp_path / "proving.py").write_text(text)
    (tmp_path / "test_matrix.py").write_text(MATRIX)
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, "test_matrix.py"]
    done = subprocess.run(
        words, cwd=tmp_path, env={**os.environ, "RALPH_REAL_AGENTS": "1"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "proofs.json is brought up to date" in done.stdout
    assert parse(place.read_text())["claude"].passed == ("a loop ends when the check passes",)
