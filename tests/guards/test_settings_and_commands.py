"""How the guards read settings of tools, and which checks commands run."""

import pytest

from ralph.core.checks import Rule, Severity
from ralph.verify.guards import FileChange, scan
from ralph.verify.guards.commands import (
    CheckStep,
    CommandTree,
    find_eased,
    find_lost_flags,
    find_lost_steps,
    find_steps,
    is_started_by,
    split_commands,
)
from ralph.verify.guards.settings import read_settings


@pytest.mark.parametrize(
    ("path", "text", "settings"),
    [
        (
            "pyproject.toml",
            '[tool.pytest.ini_options]\naddopts = "-q"\ntestpaths = ["a", "b"]\n[tool.mypy]\nstrict = true\n',
            {"tool.pytest.ini_options.addopts": ["-q"], "tool.pytest.ini_options.testpaths": ["a", "b"], "tool.mypy.strict": ["true"]},
        ),
        (".golangci.yml", "linters:\n  enable: [vet, err]\n  fast: false\n  none: null\n", {"linters.enable": ["vet", "err"], "linters.fast": ["false"]}),
        ("setup.cfg", "[tool:pytest]\naddopts = -q --strict\n    -x\ntestpaths = a b, c\n", {"tool:pytest.addopts": ["-q --strict", "-x"], "tool:pytest.testpaths": ["a", "b", "c"]}),
        ("tox.ini", "[testenv]\ncommands =\n    pytest -q\n    mypy src\ndeps = x # y\nallow\n", {"testenv.commands": ["pytest -q", "mypy src"], "testenv.deps": ["x"]}),
        ("sonar-project.properties", "Sonar.Exclusions=a,b\n", {"Sonar.Exclusions": ["a", "b"]}),
        (".eslintignore", "# built\ndist\n\n  vendor/  \n", {"ignore": ["dist", "vendor/"]}),
        ("pom.xml", "<a><skipTests> true </skipTests><minimum>0.8</minimum></a>", {"skipTests": ["true"], "minimum": ["0.8"]}),
        ("build.gradle.kts", "ignoreFailures = true\nminimum.set(0.8)\nname = \"x\"\n", {"ignoreFailures": ["true"], "minimum": ["0.8"], "name": ["x"]}),
        (
            "package.json",
            '{"scripts": {"test": "jest --ci"}, "jest": {"coverageThreshold": {"global": {"lines": 80}}, "roots": ["a", "b"], "bail": true}}',
            {"scripts.test": ["jest --ci"], "jest.coverageThreshold.global.lines": ["80"], "jest.roots": ["a", "b"], "jest.bail": ["true"]},
        ),
        (
            "jest.config.js",
            "const base = require('./base')\nmodule.exports = {...base, testMatch: ['**/*.test.js'], rules: {'no-any': ['error', {max: 2}]}, verbose: isCi(), _x: 1}",
            {"": ["./base"], "testMatch": ["**/*.test.js"], "rules.no-any": ["error"], "rules.no-any.max": ["2"], "verbose": ["isCi ( )"], "_x": ["1"]},
        ),
        ("pyproject.toml", "this is = no [toml", {}),
        ("tox.ini", "[open\nx", {}),
        ("tox.ini", "[a]\nkey\n  continued\n", {}),
        ("windows/setup.cfg", "[mypy]\r\nstrict = True\r\n", {"mypy.strict": ["true"]}),
    ],
)  # fmt: skip
def test_settings_of_every_format_are_flat_keys_and_values(
    path: str, text: str, settings: dict[str, list[str]]
) -> None:
    assert read_settings(path, text) == settings


def test_settings_that_nest_too_deeply_are_left_out() -> None:
    assert read_settings("a.toml", "a." * 29 + "z = 1\n") == {"a." * 29 + "z": ["1"]}
    assert read_settings("a.toml", "a." * 30 + "z = 1\n") == {}
    assert read_settings("a.toml", "z = " + "[" * 29 + "1" + "]" * 29 + "\n") == {"z": ["1"]}
    assert read_settings("a.toml", "z = " + "[" * 30 + "1" + "]" * 30 + "\n") == {}


def steps(*lines: str) -> list[tuple[str, str, list[str]]]:
    return [(step.text, step.kind, sorted(step.paths)) for step in find_steps(lines)]


@pytest.mark.parametrize(
    ("line", "kind", "paths"),
    [
        ("pytest -q tests/unit tests/api", "tests", ["tests/unit", "tests/api"]),
        ("uv run pytest -k slow tests", "tests", ["tests"]),
        ("pytest 'tests'", "tests", ["tests"]),
        ("pytest -n 4 | tee log", "tests", []),
        ("pytest -c ci/pytest.ini", "tests", ["ci/pytest.ini"]),
        ("ruff check .", "lint", []),
        ("ruff check src", "lint", ["src"]),
        ("mypy src $EXTRA", "types", ["src"]),
        ("mypy src --cache-dir=/dev/null", "types", ["src"]),
        ("eslint src --cache", "lint", ["src"]),
        ("/opt/install/.cache/bin/ruff check src --no-cache", "lint", ["src"]),
        ("pytest tests/add", "tests", ["tests/add"]),
        ("pytest || echo failed", "tests", []),
        ("mvn -B install", "tests", []),
        ("cargo fmt --check", "format", []),
        ("coverage report --fail-under=80", "coverage", []),
        ("mvn -B verify -pl core", "tests", []),
        ("./gradlew test", "tests", []),
        ("npm run lint:all", "lint", []),
        ("make typecheck", "types", []),
        ("just fmt", "format", []),
        ("make smoke", "smoke", []),
        ("sh scripts/smoke.sh --fast", "scripts/smoke.sh", []),
        ("hurl a.hurl", "hurl", []),
    ],
)
def test_a_command_is_a_check_of_its_kind_on_its_paths(line: str, kind: str, paths: list[str]) -> None:
    assert steps(line) == [(line, kind, sorted(paths))]


@pytest.mark.parametrize(
    "line",
    ["pip install pytest", "echo pytest", "cd src", "export A=1", "mvn clean", "# pytest", "pytest --version", "name: pytest", "npx playwright install", ""],
)  # fmt: skip
def test_script_that_prepares_or_prints_is_not_a_check(line: str) -> None:
    assert steps(line) == []


def test_each_part_of_a_line_is_a_check() -> None:
    assert [kind for _, kind, _ in steps("cd a && pytest; ruff check . && mypy .")] == ["tests", "lint", "types"]


@pytest.mark.parametrize(
    ("own", "other", "covers"),
    [
        ((), (), True),
        ((), ("tests/a",), True),
        (("tests/a",), (), False),
        (("tests",), (), True),
        (("tests",), ("tests/a", "tests/b"), True),
        (("tests/",), ("tests/a",), True),
        (("tests/a",), ("tests/b",), False),
        (("tests/a",), ("tests/a", "tests/b"), False),
        (("./...",), ("pkg/a",), True),
        ((".",), ("pkg/a",), True),
        (("src",), ("lib",), True),
        (("a.py",), (), False),
        (("a.py::test",), ("a.py",), False),
    ],
)
def test_a_check_covers_another_if_it_looks_at_no_less(
    own: tuple[str, ...], other: tuple[str, ...], covers: bool
) -> None:
    step = CheckStep("pytest", "tests", frozenset(own))
    assert step.covers(CheckStep("pytest", "tests", frozenset(other))) is covers


@pytest.mark.parametrize(
    ("was", "now", "lost"),
    [
        (["pytest"], ["pytest -q"], []),
        (["pytest", "mypy ."], ["pytest"], ["mypy ."]),
        (["pytest tests"], ["pytest tests/a"], ["pytest tests"]),
        (["pytest tests"], ["pytest tests/a", "pytest tests/b"], []),
        (["eslint ."], ["biome lint"], []),
        (["pytest", "pytest"], [], ["pytest"]),
    ],
)
def test_a_check_is_lost_if_none_of_its_kind_covers_it(was: list[str], now: list[str], lost: list[str]) -> None:
    assert [step.text for step in find_lost_steps(was, now)] == lost


@pytest.mark.parametrize(
    ("was", "now", "flags"),
    [
        ("pytest", "pytest --ignore=tests/a", ["--ignore=tests/a"]),
        ("pytest --ignore=a", "pytest --ignore=a", []),
        ("pytest", "pytest --ignore=build", []),
        ("pytest --strict-markers", "pytest", ["--strict-markers"]),
        ("pytest --cov-fail-under=80", "pytest --cov-fail-under=79", ["--cov-fail-under=80"]),
        ("pytest --cov-fail-under=80", "pytest --cov-fail-under=90", []),
        ("pytest --cov-fail-under=80", "pytest", ["--cov-fail-under=80"]),
        ("go test -race", "go test", ["-race"]),
    ],
)
def test_flags_that_leave_out_or_no_longer_insist_are_found(was: str, now: str, flags: list[str]) -> None:
    assert list(find_lost_flags(was, now)) == flags


@pytest.mark.parametrize(
    ("was", "now", "eased"),
    [
        (["pytest"], ["pytest || true"], ["pytest || true"]),
        (["pytest"], ["pytest", "rm -f log || true"], []),
        (["make seed"], ["make seed || true"], ["make seed || true"]),
        (["set -e", "pytest"], ["pytest"], ["set -e is gone"]),
        (["set -e", "pytest"], [], []),
        (["pytest"], ["pytest | tee log"], ["pytest | tee log"]),
        (["pytest"], ["set -o pipefail", "pytest | tee log"], []),
        (["ls"], ["ls | wc -l"], []),
        (["steps:"], ["continue-on-error: true"], ["continue-on-error: true"]),
        ([], ["continue-on-error: true"], ["continue-on-error: true"]),
    ],
)
def test_lines_that_let_a_failure_pass_are_found(was: list[str], now: list[str], eased: list[str]) -> None:
    assert list(find_eased(was, now)) == eased


def test_commands_are_lines_without_comments_and_continuations() -> None:
    text = "# a\n@pytest \\\n   -q   # quick\n\necho '#1'\n"
    assert split_commands(text) == ["pytest -q", "echo '#1'"]


TREE = CommandTree(
    {
        "Makefile": "PY ?= python3\nRUN = $(PY) -m\ntest: lint\n\t@$(RUN) pytest -q\n\nlint:\n\truff check .\nall: test\n\techo done\nloop: loop\n\ttrue\n",
        "package.json": '{"scripts": {"pretest": "tsc", "test": "jest", "test:unit": "jest unit", "ci": "npm test && bash ci/all.sh"}}',
        "ci/all.sh": "cd ci\npytest -q\n./more.sh\n",
        "ci/more.sh": "mypy src || true\n",
        "tools/check.py": "import sys\n",
        "tests/run.sh": "pytest tests\n",
    }
)


@pytest.mark.parametrize(
    ("command", "lines", "reached"),
    [
        ("make test", ["ruff check .", "python3 -m pytest -q"], ["Makefile"]),
        ("make", ["ruff check .", "python3 -m pytest -q", "echo done"], ["Makefile"]),
        ("make -C . lint V=1", ["ruff check ."], ["Makefile"]),
        ("make loop", ["true"], ["Makefile"]),
        ("make test || true", ["make test || true", "ruff check .", "python3 -m pytest -q"], ["Makefile"]),
        ("npm test", ["tsc", "jest"], ["package.json"]),
        ("npm t", ["tsc", "jest"], ["package.json"]),
        ("npm run test:unit", ["jest unit"], ["package.json"]),
        ("npm run -s ci", ["tsc", "jest", "cd ci", "pytest -q", "./more.sh"], ["ci/all.sh", "package.json"]),
        ("cd ci && ./more.sh", ["cd ci", "mypy src || true"], ["ci/more.sh"]),
        ("cat ci/all.sh", ["cat ci/all.sh"], []),
        ("python3 tools/check.py", ["python3 tools/check.py"], ["tools/check.py"]),
        ("sh tests/run.sh", ["sh tests/run.sh"], []),
        ("make unknown", ["make unknown"], []),
    ],
)
def test_recipes_and_scripts_are_followed(command: str, lines: list[str], reached: list[str]) -> None:
    found: set[str] = set()
    assert TREE.expand([command], found) == lines
    assert sorted(found) == reached


def test_make_takes_a_gnumakefile_first() -> None:
    tree = CommandTree({"Makefile": "test:\n\tpytest\n", "GNUmakefile": "test:\n\ttrue\n"})
    assert tree.expand(["make test"]) == ["true"]


@pytest.mark.parametrize(
    ("command", "starts"),
    [
        ("./check.sh", True),
        ("bash -x check.sh", True),
        ("FOO=1 timeout 30s sh ./check.sh --all", True),
        ("make && ./check.sh", True),
        ("cat check.sh", False),
        ("grep x check.sh", False),
        ("wrap check.sh", True),
        ("run > check.sh", False),
        ("./other.sh", False),
        ("./sub/check.sh", False),
        ("./check.sh 2>&1 | tee log", True),
        ("(./check.sh)", True),
    ],
)
def test_a_file_is_started_or_only_looked_at(command: str, starts: bool) -> None:
    assert is_started_by("check.sh", command) is starts


def test_a_file_is_found_from_the_directory_of_the_command() -> None:
    assert is_started_by("sub/check.sh", "cd sub && ./check.sh")
    assert is_started_by("sub/check.sh", "./check.sh", "sub")
    assert not is_started_by("sub/check.sh", "./check.sh")
    assert is_started_by("sub/load.k6", "k6 -f sub/load.k6")
    assert is_started_by("load.js", "runner -f load.js")
    assert not is_started_by("load.js", "runner load.js")
    assert is_started_by("load.js", "node load.js")
    assert not is_started_by("load.py", "python3 -m load.py")


class TestAskedByTests:
    """A test that was red and passes unchanged may ask for less validation than before."""

    BEFORE = "def parse(text):\n    if not text:\n        raise ValueError('empty')\n    return text.split()\n"
    NOW = "def parse(text):\n    if not text:\n        return []\n    return text.split()\n"
    TEST = "from app import parse\n\n\ndef test_empty_text_has_no_words():\n    assert parse('') == []\n"

    def severities(self, *failed_before: str, test: str = TEST) -> list[Severity]:
        change = FileChange("app.py", self.BEFORE, self.NOW)
        found = scan([change], checks=["pytest"], unchanged={"tests/test_app.py": test}, failed_before=failed_before)
        return [finding.severity for finding in found if finding.rule is Rule.VALIDATION_REMOVED]

    def test_a_red_test_of_the_function_explains_it(self) -> None:
        assert self.severities("tests/test_app.py::test_empty_text_has_no_words") == [Severity.WARNING]

    def test_other_tests_explain_nothing(self) -> None:
        assert self.severities() == [Severity.ERROR]
        assert self.severities("tests/test_app.py::test_other") == [Severity.ERROR]
        other = "from app import join\n\n\ndef test_empty_text_has_no_words():\n    assert join([]) == ''\n"
        assert self.severities("tests/test_app.py::test_empty_text_has_no_words", test=other) == [Severity.ERROR]
