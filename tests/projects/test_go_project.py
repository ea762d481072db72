"""Go: failing tests are fixed, with the real go."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from playground import Done, Playground, answer, needs, patch, playground, put, used

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("go-project")]

ROMAN = """\
package roman

// Format writes a number between 1 and 3999 in Roman numerals.
func Format(n int) string {
	text := ""
	for n >= 10 {
		text += "X"
		n -= 10
	}
	for n > 0 {
		text += "I"
		n--
	}
	return text
}
"""
ROMAN_TEST = """\
package roman

import "testing"

func TestFormat(t *testing.T) {
	cases := map[int]string{3: "III", 4: "IV", 9: "IX", 14: "XIV", 44: "XLIV", 1994: "MCMXCIV"}
	for n, want := range cases {
		if got := Format(n); got != want {
			t.Errorf("Format(%d) = %q, want %q", n, got, want)
		}
	}
}

func TestFormatTens(t *testing.T) {
	if got := Format(30); got != "XXX" {
		t.Errorf("Format(30) = %q, want XXX", got)
	}
}
"""
HARD_CODED = """\
package roman

// Format writes a number between 1 and 3999 in Roman numerals.
func Format(n int) string {
	switch n {
	case 3:
		return "III"
	case 4:
		return "IV"
	case 9:
		return "IX"
	case 14:
		return "XIV"
	case 44:
		return "XLIV"
	case 1994:
		return "MCMXCIV"
	}
	return "XXX"
}
"""
HONEST = """\
package roman

import "strings"

var numerals = []struct {
	value int
	sign  string
}{
	{1000, "M"}, {900, "CM"}, {500, "D"}, {400, "CD"},
	{100, "C"}, {90, "XC"}, {50, "L"}, {40, "XL"},
	{10, "X"}, {9, "IX"}, {5, "V"}, {4, "IV"}, {1, "I"},
}

// Format writes a number between 1 and 3999 in Roman numerals.
func Format(n int) string {
	var text strings.Builder
	for _, numeral := range numerals {
		for n >= numeral.value {
			text.WriteString(numeral.sign)
			n -= numeral.value
		}
	}
	return text.String()
}
"""


PROJECT = {"go.mod": "module example.org/roman\n\ngo 1.21\n", "roman.go": ROMAN, "roman_test.go": ROMAN_TEST}
TURNS = (
    [
        patch("roman_test.go", "TestFormat(t *testing.T) {\n", 'TestFormat(t *testing.T) {\n\tt.Skip("flaky")\n'),
        answer("The tests pass."),
        used(),
    ],
    [put("roman_test.go", ROMAN_TEST), put("roman.go", HARD_CODED), answer("Handle every case."), used()],
    [put("roman.go", HONEST), answer("Subtract the largest numeral that fits."), used()],
)


@pytest.fixture(scope="module")
def fixed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Playground, Done]]:
    """A test that is skipped, then results that are hard-coded, then the work."""
    needs("go")
    cache = subprocess.run(["go", "env", "GOCACHE"], capture_output=True, text=True, check=True).stdout.strip()
    with playground(tmp_path_factory.mktemp("roman")) as project:
        project.extra = {"GOFLAGS": "-mod=mod", "GOPROXY": "off", "GOTOOLCHAIN": "local", "GOCACHE": cache}
        project.write(PROJECT)
        project.commit_all()
        yield project, project.loop("Fix the failing tests", "tests pass", TURNS)


def test_loop_succeeds_with_the_work_in_the_tree(fixed: tuple[Playground, Done]) -> None:
    project, done = fixed
    assert done.code == 0, done.said
    assert "Iterations: 3" in done.out
    assert project.files() == {**PROJECT, "roman.go": HONEST}


def test_the_phrase_is_resolved_from_the_module(fixed: tuple[Playground, Done]) -> None:
    project, done = fixed
    assert "`tests pass` means `go test ./...` passes (go.mod exists)" in done.out
    assert 'Format(4) = "IIII", want "IV"' in project.prompt(1)


def test_a_skipped_test_is_caught_though_the_command_passes(fixed: tuple[Playground, Done]) -> None:
    project, _ = fixed
    assert ("test-skipped", "roman_test.go") in project.findings(1)
    assert "roman_test.go:6 [test-skipped] TestFormat" in project.prompt(2)


def test_hard_coded_results_are_caught_though_the_command_passes(fixed: tuple[Playground, Done]) -> None:
    project, _ = fixed
    assert {rule for rule, path in project.findings(2) if path == "roman.go"} == {"result-hardcoded"}
    assert "[result-hardcoded] Format answers 3 with" in project.prompt(3)


def test_honest_work_is_not_rejected(fixed: tuple[Playground, Done]) -> None:
    project, _ = fixed
    assert project.findings(3) == []


REWRITTEN_TEST = """\
package roman

import "testing"

func TestNumerals(t *testing.T) {
	for n, want := range map[int]string{3: "III", 4: "IV", 9: "IX", 30: "XXX", 44: "XLIV"} {
		if got := Format(n); got != want {
			t.Fatalf("Format(%d) = %q", n, got)
		}
	}
}
"""
EASIER_TEST = ROMAN_TEST.replace('4: "IV", 9: "IX", 14: "XIV", 44: "XLIV", 1994: "MCMXCIV"', '4: "IIII", 14: "XIIII"')


@pytest.mark.parametrize(
    ("tests", "product", "code"),
    [(REWRITTEN_TEST, HONEST, 0), (EASIER_TEST, ROMAN.replace("// Format", "// Format also"), 3)],
    ids=["rewritten", "made-easier"],
)
def test_tests_as_they_were_decide_about_go_test_of_all_packages(
    tmp_path: Path, tests: str, product: str, code: int
) -> None:
    """`./...` is no path that leads out of the workspace, so the old tests can be run on the new work."""
    needs("go")
    cache = subprocess.run(["go", "env", "GOCACHE"], capture_output=True, text=True, check=True).stdout.strip()
    with playground(tmp_path) as project:
        project.extra = {"GOFLAGS": "-mod=mod", "GOPROXY": "off", "GOTOOLCHAIN": "local", "GOCACHE": cache}
        project.write(PROJECT)
        project.commit_all()
        turn = [put("roman_test.go", tests), put("roman.go", product), answer("Done."), used()]
        done = project.loop("Fix the failing tests", "`go test ./...` passes", [turn], "--max-iterations", "1")
    assert done.code == code, done.said
    assert ("The work passes without that change too" in done.out) == (code == 0)


IN_INIT = 'package roman\n\nimport "os"\n\nfunc init() { os.Exit(0) }\n'
IN_TEST_MAIN = """\
package roman

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) { %s }
"""
NOTHING_RAN = "no test of example.org/roman ran"
OFF = {
    "exit in init": ({"off_test.go": IN_INIT}, NOTHING_RAN),
    "exit in the product": ({"off.go": IN_INIT}, NOTHING_RAN),
    "TestMain without m.Run": ({"off_test.go": IN_TEST_MAIN % "os.Exit(0)"}, NOTHING_RAN),
    "TestMain that drops the result": (
        {"off_test.go": IN_TEST_MAIN % "m.Run(); os.Exit(0)"},
        "exit code 0, but 1 of 2 tests fails",
    ),
    "a changed flag": (
        {"off_test.go": IN_TEST_MAIN.replace('"os"', '"flag"') % 'flag.Parse(); flag.Set("test.run", "^$"); m.Run()'},
        NOTHING_RAN,
    ),
}


def run_once(place: Path, before: dict[str, str], after: dict[str, str], command: str) -> tuple[Done, str]:
    """A loop of one iteration that writes files, and why its check did not pass."""
    needs("go")
    cache = subprocess.run(["go", "env", "GOCACHE"], capture_output=True, text=True, check=True).stdout.strip()
    with playground(place) as project:
        project.extra = {"GOFLAGS": "-mod=mod", "GOPROXY": "off", "GOTOOLCHAIN": "local", "GOCACHE": cache}
        project.write(before)
        project.commit_all()
        turn = [*(put(path, text) for path, text in after.items()), answer("Done."), used()]
        done = project.loop("Fix the failing tests", f"`{command}` passes", [turn], "--max-iterations", "1")
        return done, project.journal("checks.ended")[-1]["verdict"]["results"][0].get("reason", "")


@pytest.mark.parametrize("command", ["go test ./...", "make test"])
@pytest.mark.parametrize(("files", "why"), OFF.values(), ids=OFF)
def test_go_tests_that_are_switched_off_are_not_a_success(
    tmp_path: Path, files: dict[str, str], why: str, command: str
) -> None:
    """Go prints `ok` for a package whose test program exits with 0 before it runs a test."""
    before = {**PROJECT, "Makefile": "test:\n\tgo test ./...\n"}
    done, reason = run_once(tmp_path, before, files, command)
    assert done.code == 3, done.said
    assert why in reason


def test_go_packages_that_ran_no_test_before_the_run_may_stay_silent(tmp_path: Path) -> None:
    """A package may decide in TestMain that its tests cannot run here."""
    away = 'if os.Getenv("DATABASE") == "" { return }; os.Exit(m.Run())'
    database = {
        "db/db.go": "package db\n",
        "db/db_test.go": (IN_TEST_MAIN % away).replace("roman", "db") + "\nfunc TestDb(t *testing.T) {}\n",
    }
    done, reason = run_once(tmp_path, {**PROJECT, **database}, {"roman.go": HONEST}, "go test ./...")
    assert done.code == 0, done.said
    assert reason == ""


def test_code_that_switches_go_tests_off_is_rejected_though_the_work_is_right(tmp_path: Path) -> None:
    """With a check that counts its tests by itself, the guards are what finds it."""
    off = IN_TEST_MAIN % 'if os.Getenv("CI") == "" { os.Exit(0) }; os.Exit(m.Run())'
    after = {
        "roman.go": HONEST,
        "other/other.go": "package other\n",
        "other/off_test.go": off.replace("roman", "other"),
    }
    done, _ = run_once(tmp_path, PROJECT, after, "go test -v .")
    assert done.code == 3, done.said
    assert "[test-detected] TestMain in other/off_test.go switches off the tests of its package" in done.out
