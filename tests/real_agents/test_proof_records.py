"""The proofs after a run of these tests: from all cases, or from some of them for the same version."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from proof_records import PROOFS_FILE, CaseResults, all_cases, case_name, render_proofs, save_proofs, update_proofs

from ralph.agents.registry import Proof, ProofStatus, load_proofs, parse_proofs

CASES = {"a", "b", "c"}
OLD = Proof("1.0", "2026-01-01", ("a", "b"), ("c",))


def results(version: str = "1.0", cannot: str = "", **well: bool) -> CaseResults:
    return CaseResults(version, well, {cannot: "it has none"} if cannot else {})


class TestProofs:
    """The proofs after a run."""

    def test_a_run_of_all_cases_is_a_new_proof(self) -> None:
        found = update_proofs({"x": OLD}, {"x": results("2.0", a=True, b=False, cannot="c")}, CASES, "2026-02-02")
        assert found == {"x": Proof("2.0", "2026-02-02", ("a",), ("b",), {"c": "it has none"})}

    def test_a_run_of_some_cases_is_not(self) -> None:
        assert update_proofs({}, {"x": results(a=True, b=True)}, CASES, "2026-02-02") == {}
        assert update_proofs({"x": OLD}, {"x": results("2.0", a=True)}, CASES, "2026-02-02") == {"x": OLD}

    def test_a_run_of_some_cases_updates_a_proof_of_the_same_version(self) -> None:
        found = update_proofs({"x": OLD}, {"x": results(a=False, c=True)}, CASES, "2026-02-02")["x"]
        assert found == Proof("1.0", "2026-01-01", ("b", "c"), ("a",))
        found = update_proofs({"x": OLD}, {"x": results(a=True, cannot="c")}, CASES, "2026-02-02")["x"]
        assert found == Proof("1.0", "2026-01-01", ("a", "b"), (), {"c": "it has none"})

    def test_agents_that_did_not_run_stay(self) -> None:
        whole = results(a=True, b=True, c=True)
        assert update_proofs({"x": OLD}, {"y": whole, "z": results(cannot="a")}, CASES, "d") == {
            "x": OLD,
            "y": whole.proof("d"),
        }

    def test_removed_cases_disappear_with_the_next_run(self) -> None:
        old = Proof("1.0", "d", ("a", "z"))
        assert update_proofs({"x": old}, {"x": results(b=True)}, CASES, "d")["x"].passed == ("a", "b")
        assert update_proofs({"x": old}, {"x": results(a=True, b=True, c=True)}, CASES, "d")["x"].passed == (
            "a",
            "b",
            "c",
        )

    def test_a_test_that_fails_when_it_ends_has_failed(self) -> None:
        one = CaseResults("1.0")
        one.add("a", failed=False, passed=True)
        one.add("a", failed=True, passed=False)
        one.add("b", failed=False, passed=False, why_not="it has none")
        one.add("c", failed=False, passed=False)
        assert (one.has_passed, one.cannot) == ({"a": False}, {"b": "it has none"})


class TestFile:
    """The file with the proofs."""

    def test_proofs_survive_a_round_trip(self) -> None:
        known = {"x": OLD, "y (acp)": Proof("2", "d", cannot={"b": "é"})}
        assert parse_proofs(render_proofs(known)) == known

    def test_a_case_is_a_line_and_order_does_not_matter(self) -> None:
        text = render_proofs({"y": OLD, "x": Proof("1", "d", ("b", "a"))})
        assert text == render_proofs({"x": Proof("1", "d", ("a", "b")), "y": OLD})
        assert '\n      "a",\n      "b"\n' in text

    def test_the_shipped_file_has_that_form(self) -> None:
        assert PROOFS_FILE.read_text() == render_proofs(load_proofs())

    def test_new_proofs_are_returned(self, tmp_path: Path) -> None:
        path = tmp_path / "proofs.json"
        path.write_text(render_proofs({"x": OLD}))
        assert save_proofs({"x": results(a=False)}, path)["x"].failed == ("a",), "`c` is no case any more"
        assert save_proofs({"x": results(a=False)}, path) == {}
        assert os.listdir(tmp_path) == ["proofs.json"]

    def test_the_cases_are_the_tests_for_every_agent(self) -> None:
        cases = all_cases()
        assert case_name("test_a_loop_ends_when_the_check_passes") in cases
        assert not any("recovers from" in case for case in cases), (
            "tests of the scripted model prove nothing about an agent"
        )


@pytest.mark.parametrize(
    ("version", "printed", "status"),
    [
        ("1.0.1", "parrot 1.0.1 (grey)", ProofStatus.PROVEN),
        ("1.0.1", "v1.0.10", ProofStatus.NEWER_VERSION),
        ("1.0.1", "parrot-11.0.1", ProofStatus.NEWER_VERSION),
        ("1.0.10", "v1.0.2", ProofStatus.OTHER_VERSION),
        ("1.0.1", "unknown version", ProofStatus.OTHER_VERSION),
        ("0.0.1-g7", "0.0.1-g7", ProofStatus.PROVEN),
    ],
)
def test_a_proof_is_for_exactly_its_version(version: str, printed: str, status: ProofStatus) -> None:
    assert Proof(version, "d").status_of(printed) is status


MATRIX = """
import pytest
@pytest.fixture(autouse=True)
def _programs(): pass
def test_a_loop_ends_when_the_check_passes(agent): pass
"""


@pytest.mark.parametrize("options", [[], ["-n", "2"]], ids=["alone", "xdist"])
def test_outcomes_are_written_to_proofs_json(options: list[str], tmp_path: Path) -> None:
    """With the real conftest, and a case that does nothing."""
    here = Path(__file__).parent
    for path in here.glob("*.py"):
        if not path.name.startswith("test_"):
            (tmp_path / path.name).write_text(path.read_text())
    (tmp_path / "subjects").symlink_to(here / "subjects")
    proofs_file = tmp_path / "proofs.json"
    proofs_file.write_text("{}\n")
    text = (
        (tmp_path / "proof_records.py")
        .read_text()
        .replace('Path(agents.__path__[0]) / "proofs.json"', f"Path({str(proofs_file)!r})")
    )
    (tmp_path / "proof_records.py").write_text(text)
    (tmp_path / "test_matrix.py").write_text(MATRIX)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, "test_matrix.py"]
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "RALPH_REAL_AGENTS": "1"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "proofs.json is up to date" in done.stdout
    assert parse_proofs(proofs_file.read_text())["claude"].passed == ("a loop ends when the check passes",)
