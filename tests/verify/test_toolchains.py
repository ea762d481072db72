"""What people say instead of a command, in repositories of all kinds."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ralph.verify.toolchains import CheckKind, describe_search, find_commands, read_make_targets, resolve_phrase

Files = dict[str, str]

PYTHON_CI = """\
steps:
  - run: pip install ruff mypy
  - run: uvx ruff check src
  - name: mypy
    run: |
      mypy --strict src
      python -m unittest discover -s tests -v
"""


def repository(root: Path, files: Files) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def commands(phrase: str, root: Path) -> list[str] | None:
    resolved = resolve_phrase(phrase, root)
    return None if resolved is None else [found.command for found in resolved.found]


def package(**scripts: str) -> Files:
    return {"package.json": json.dumps({"scripts": scripts})}


EVERYTHING = {"Makefile": "test:\nlint:\ntypecheck:\nbuild:\nformat-check:\n"}
WORDS = {
    "make test": [
        "tests pass",
        "all tests pass",
        "All tests are green.",
        "all the tests pass",
        "no failing tests",
        "there are no failing tests",
        "no test failures",
        "no tests fail",
        "0 failing tests",
        "zero test failures",
        "the test suite passes",
        "test suite is green",
        "unit tests pass",
        "tests are passing",
    ],
    "make lint": [
        "no lint errors",
        "lint clean",
        "lint is clean",
        "linting passes",
        "no linting issues",
        "lint passes",
    ],
    "make typecheck": ["no type errors", "types check", "type checks", "type checking passes", "typecheck passes"],
    "make build": [
        "it builds",
        "builds successfully",
        "the project builds",
        "compiles",
        "the code compiles",
        "no compile errors",
        "build succeeds",
        "build passes",
    ],
    "make format-check": ["formatted", "the code is formatted", "no formatting issues", "formatting passes"],
}


@pytest.mark.parametrize(
    ("phrase", "command"), [(phrase, command) for command, said in WORDS.items() for phrase in said]
)
def test_phrases_that_are_understood(tmp_path: Path, phrase: str, command: str) -> None:
    assert commands(phrase, repository(tmp_path, EVERYTHING)) == [command]


@pytest.mark.parametrize(
    "phrase",
    [
        "no errors",
        "no warnings",
        "no lint warnings",
        "integration tests pass",
        "tests pass quickly",
        "tests do not pass",
        "tests are not green",
        "the code is clean",
        "app works",
        "feature is done",
        "tests",
        "make test passes",
        "npm test passes",
        "go test passes",
        "",
        "build it",
        "write tests that pass",
        "tests pass, lint clean",
        "tests pass > 3",
    ],
)
def test_phrases_that_are_not(tmp_path: Path, phrase: str) -> None:
    assert commands(phrase, repository(tmp_path, EVERYTHING)) is None


PYPROJECT = "pyproject.toml"
CASES: list[tuple[str, Files, list[str]]] = [
    ("tests pass", {}, []),
    ("tests pass", {"pytest.ini": ""}, ["pytest -q"]),
    ("tests pass", {PYPROJECT: "[tool.pytest.ini_options]\n"}, ["pytest -q"]),
    ("tests pass", {"setup.cfg": "[tool:pytest]\n"}, ["pytest -q"]),
    ("tests pass", {PYPROJECT: '[dependency-groups]\ndev = ["pytest>=8"]\n'}, ["pytest -q"]),
    ("tests pass", {"requirements-dev.txt": "pytest==8.0\n"}, ["pytest -q"]),
    ("tests pass", {"pytest.ini": "", ".venv/bin/pytest": ""}, [".venv/bin/pytest -q"]),
    ("tests pass", {"noxfile.py": ""}, ["nox"]),
    ("tests pass", {"tox.ini": "[tox]\n"}, ["tox"]),
    ("tests pass", {"tests/test_a.py": "def test_a(): pass\n"}, ["pytest -q"]),
    ("tests pass", {"test_a.py": "import unittest\n"}, ["python3 -m unittest discover"]),
    ("tests pass", {"tests/test_a.py": "import unittest\n"}, ["python3 -m unittest discover -s tests"]),
    ("tests pass", {"tests/test_a.py": "import unittest\n", "tests/__init__.py": ""}, ["python3 -m unittest discover"]),
    ("tests pass", package(test="vitest run"), ["npm test"]),
    ("tests pass", {**package(test="vitest run"), "pnpm-lock.yaml": ""}, ["pnpm test"]),
    ("tests pass", {**package(test="jest"), "yarn.lock": ""}, ["yarn test"]),
    ("tests pass", {**package(test="jest"), "bun.lock": ""}, ["bun run test"]),
    ("tests pass", package(test='echo "Error: no test specified" && exit 1'), []),
    ("tests pass", package(test="jest --watch"), []),
    ("tests pass", {"package.json": '{"devDependencies": {"vitest": "1"}}'}, ["npx --no-install vitest run"]),
    ("tests pass", {"package.json": '{"devDependencies": {"jest": "1"}}', "pnpm-lock.yaml": ""}, ["pnpm exec jest"]),
    ("tests pass", {"package.json": "not json"}, []),
    ("tests pass", {"package.json": "[1]"}, []),
    ("tests pass", {"package.json": '{"scripts": ["test"]}'}, []),
    ("tests pass", {"go.mod": ""}, ["go test ./..."]),
    ("tests pass", {"Cargo.toml": ""}, ["cargo test"]),
    ("tests pass", {"pom.xml": ""}, ["mvn -B test"]),
    ("tests pass", {"pom.xml": "", "mvnw": ""}, ["./mvnw -B test"]),
    ("tests pass", {"build.gradle.kts": "", "gradlew": ""}, ["./gradlew test"]),
    ("tests pass", {"Makefile": "check:\n", "pytest.ini": ""}, ["make check"]),
    ("tests pass", {"Makefile": "deploy:\n", "pytest.ini": ""}, ["pytest -q"]),
    (
        "tests pass",
        {"pytest.ini": "", "go.mod": "", **package(test="jest")},
        ["pytest -q", "npm test", "go test ./..."],
    ),
    ("python tests pass", {"Makefile": "test:\n", "pytest.ini": "", "go.mod": ""}, ["pytest -q"]),
    ("go tests pass", {"pytest.ini": "", "go.mod": ""}, ["go test ./..."]),
    ("the rust code compiles", {"Cargo.toml": "", "go.mod": ""}, ["cargo build"]),
    ("java tests pass", {"go.mod": ""}, []),
    ("no lint errors", {"ruff.toml": ""}, ["ruff check"]),
    ("no lint errors", {PYPROJECT: "[tool.ruff]\n", ".venv/bin/ruff": ""}, [".venv/bin/ruff check"]),
    ("no lint errors", {".flake8": ""}, ["flake8"]),
    ("no lint errors", {".pylintrc": "", "src/a.py": ""}, ["pylint src"]),
    ("no lint errors", package(lint="eslint ."), ["npm run lint"]),
    ("no eslint errors", {**package(lint="eslint ."), "ruff.toml": ""}, ["npm run lint"]),
    ("ruff is clean", {**package(lint="eslint ."), "ruff.toml": ""}, ["ruff check"]),
    ("no lint errors", {"eslint.config.mjs": ""}, ["npx --no-install eslint ."]),
    ("no lint errors", {"biome.json": ""}, ["npx --no-install biome lint"]),
    ("no lint errors", {"go.mod": ""}, ["go vet ./..."]),
    ("no lint errors", {"go.mod": "", ".golangci.yml": ""}, ["golangci-lint run"]),
    ("no clippy errors", {"Cargo.toml": ""}, ["cargo clippy -- -D warnings"]),
    ("no type errors", {PYPROJECT: "[tool.mypy]\n"}, ["mypy ."]),
    ("no type errors", {PYPROJECT: "[tool.mypy]\n", "src/a.py": ""}, ["mypy src"]),
    ("no type errors", {PYPROJECT: '[tool.mypy]\npackages = ["a"]\n', "src/a.py": ""}, ["mypy"]),
    ("no type errors", {"pyrightconfig.json": "{}"}, ["pyright"]),
    ("no type errors", {"tsconfig.json": "{}"}, ["npx --no-install tsc --noEmit"]),
    ("no typescript errors", {"tsconfig.json": "{}", "mypy.ini": ""}, ["npx --no-install tsc --noEmit"]),
    ("no type errors", package(typecheck="tsc -b"), ["npm run typecheck"]),
    ("no type errors", {"Cargo.toml": ""}, ["cargo check"]),
    ("it builds", {PYPROJECT: "[build-system]\n"}, ["python3 -m build"]),
    ("it builds", {PYPROJECT: "[build-system]\n", "uv.lock": ""}, ["uv build"]),
    ("it builds", package(build="vite build"), ["npm run build"]),
    ("it builds", {"tsconfig.json": "{}"}, ["npx --no-install tsc --noEmit"]),
    ("it builds", {"go.mod": ""}, ["go build ./..."]),
    ("it builds", {"pom.xml": ""}, ["mvn -B package -DskipTests"]),
    ("formatted", {PYPROJECT: "[tool.black]\n"}, ["black --check ."]),
    ("formatted", {"ruff.toml": ""}, ["ruff format --check"]),
    ("formatted", {".prettierrc": ""}, ["npx --no-install prettier --check ."]),
    ("formatted", {"go.mod": "", "Cargo.toml": ""}, ['test -z "$(gofmt -l .)"', "cargo fmt --check"]),
]


@pytest.mark.parametrize(("phrase", "files", "expected"), CASES)
def test_phrase_finds_the_command_of_the_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, phrase: str, files: Files, expected: list[str]
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert commands(phrase, repository(tmp_path, files)) == expected


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"pytest.ini": ""}, []),
        ({"pytest.ini": "", PYPROJECT: '["pytest-cov"]', "src/a.py": ""}, ["pytest -q --cov=src"]),
        ({PYPROJECT: '["pytest-cov", "pytest"]\n[tool.coverage.run]\n'}, ["pytest -q --cov"]),
        ({PYPROJECT: '["pytest-cov"]\n[tool.pytest.ini_options]\naddopts = "--cov=a"\n'}, ["pytest -q"]),
        ({"pytest.ini": "", ".coveragerc": ""}, ["coverage run -m pytest -q && coverage report"]),
        ({"pytest.ini": "", ".venv/lib/python3.11/site-packages/pytest_cov/x.py": ""}, ["pytest -q --cov=."]),
        (package(coverage="vitest run --coverage"), ["npm run coverage"]),
        ({"package.json": '{"devDependencies": {"jest": "1"}}'}, ["npx --no-install jest --coverage"]),
        ({"package.json": '{"devDependencies": {"vitest": "1"}}'}, []),
        (
            {"package.json": '{"devDependencies": {"vitest": "1", "@vitest/coverage-v8": "1"}}'},
            ["npx --no-install vitest run --coverage"],
        ),
        ({"Makefile": "cov:\n"}, ["make cov"]),
        ({"Cargo.toml": ""}, []),
    ],
)
def test_coverage_command_of_the_repository_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: Files, expected: list[str]
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert [found.command for found in find_commands(CheckKind.COVERAGE, repository(tmp_path, files))] == expected


def test_lock_file_names_the_runner_if_it_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository(tmp_path, {"pytest.ini": "", "poetry.lock": "", "bin/poetry": ""})
    (tmp_path / "bin/poetry").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert commands("tests pass", tmp_path) == ["poetry run pytest -q"]


def test_found_command_says_why(tmp_path: Path) -> None:
    repository(tmp_path, {"Makefile": "lint:\n", **package(test="vitest run")})
    assert [found.because for found in find_commands(CheckKind.LINT, tmp_path)] == ["Makefile has the target `lint`"]
    assert [found.because for found in find_commands(CheckKind.TESTS, tmp_path)] == [
        "package.json has the script `test`: vitest run"
    ]


@pytest.mark.parametrize(
    ("text", "targets"),
    [
        (".PHONY: a b\na b: c\n\tx\nd::\nv := 1\nw ::= 2\n\te:\n%.o: %.c\n", {"a", "b"}),
        ("", set()),
        ("test:\r\n\techo\r\n", {"test"}),
    ],
)
def test_the_targets_of_a_makefile(tmp_path: Path, text: str, targets: set[str]) -> None:
    assert read_make_targets(repository(tmp_path, {"Makefile": text})) == targets


def test_search_reports_what_it_looked_for(tmp_path: Path) -> None:
    assert all("Makefile" in describe_search(kind, tmp_path) for kind in CheckKind)


def test_directory_with_the_name_of_a_file_does_not_count(tmp_path: Path) -> None:
    for name in ("Makefile", "package.json", "go.mod", "pytest.ini"):
        (tmp_path / name).mkdir()
    assert commands("tests pass", tmp_path) == []


@settings(deadline=None)
@given(st.text(max_size=60))
def test_no_text_makes_it_fail(text: str) -> None:
    resolve_phrase(text, Path("/nonexistent"))


class TestWhatTheProjectRuns:
    @pytest.mark.parametrize(
        ("files", "phrase", "command"),
        [
            ({"Cargo.toml": '[workspace]\nmembers = ["a"]\n'}, "tests pass", "cargo test --workspace"),
            ({"Cargo.toml": "[workspace]\n"}, "well formatted", "cargo fmt --all --check"),
            ({"Cargo.toml": "[package]\n"}, "tests pass", "cargo test"),
            (
                package(**{"lint": "biome check --write", "lint:check": "biome check"}),
                "lint passes",
                "npm run lint:check",
            ),
            (package(**{"test-cov": "jest --coverage"}), "", "npm run test-cov"),
            (
                {"tsconfig.json": "{}", **package(**{"check:type": "tsc -p tsconfig.js.json && tsd"})},
                "no type errors",
                "npm run check:type",
            ),
            ({"package.json": '{"devDependencies": {"xo": "1"}}'}, "no lint errors", "npx --no-install xo"),
            ({"pom.xml": ""}, "tests pass", "mvn -B test"),
            *(
                ({"tests/test_a.py": "import unittest\n", ".github/workflows/ci.yml": PYTHON_CI}, phrase, command)
                for phrase, command in (
                    ("tests pass", "python3 -m unittest discover -s tests -v"),
                    ("no lint errors", "uvx ruff check src"),
                    ("no type errors", "mypy --strict src"),
                )
            ),
            (
                {"pom.xml": "", ".github/workflows/ci.yml": "run: mvn -B verify --file pom.xml"},
                "tests pass",
                "mvn -B verify",
            ),
        ],
    )
    def test_a_phrase_means_what_runs_on_every_change(
        self, tmp_path: Path, files: Files, phrase: str, command: str
    ) -> None:
        root = repository(tmp_path, files)
        found = commands(phrase, root) if phrase else [one.command for one in find_commands(CheckKind.COVERAGE, root)]
        assert found == [command]

    @pytest.mark.parametrize("body", ["eslint . --fix", "prettier --write ."])
    def test_script_that_changes_files_is_not_a_check(self, tmp_path: Path, body: str) -> None:
        assert commands("lint passes", repository(tmp_path, package(lint=body))) == []

    @pytest.mark.parametrize(
        "scripts",
        [
            {"lint": "npm run lint:js", "lint:js": "eslint . --fix"},
            {"lint": "yarn style", "style": "pnpm run write", "write": "prettier --write ."},
            {"lint": "run-s 'lint:*'", "lint:js": "eslint .", "lint:css": "stylelint --fix ."},
            {"lint": "eslint .", "prelint": "prettier --write ."},
            {"lint": "concurrently npm:fix", "fix": "eslint --fix ."},
        ],
    )
    def test_script_that_calls_one_that_changes_files_is_not_a_check(
        self, tmp_path: Path, scripts: dict[str, str]
    ) -> None:
        assert commands("lint passes", repository(tmp_path, package(**scripts))) == []

    def test_a_script_beside_one_that_changes_files_is_a_check(self, tmp_path: Path) -> None:
        scripts = {"lint": "npm run lint:js", "lint:js": "eslint .", "fix": "eslint --fix ."}
        assert commands("lint passes", repository(tmp_path, package(**scripts))) == ["npm run lint"]


class TestMakeTargetsThatChangeFiles:
    @pytest.mark.parametrize(
        "recipe",
        [
            "ruff check --fix .",
            "@eslint --fix src",
            "-prettier --write .",
            "npx prettier -w src",
            "gofmt -w .",
            "gofmt -s -w .",
            "go fmt ./...",
            "black .",
            "$(VENV)/bin/black -q src",
            "uv run ruff format",
            "cd app && isort src; flake8",
            "cargo fmt --all",
            "rubocop -A",
            "clang-format -i src/*.c",
            "flake8 && \\\n\t  ruff check --fix-only .",
            "$(RUFF) $(FLAGS) .",
            "$(MAKE) fix",
            "command -v black && black .",
        ],
    )
    def test_target_that_changes_files_is_not_a_check(self, tmp_path: Path, recipe: str) -> None:
        makefile = f"FLAGS = check $(FIX)\nFIX := --fix\nlint:\n\t{recipe}\nfix:\n\tblack .\n"
        assert commands("no lint errors", repository(tmp_path, {"Makefile": makefile})) == []

    @pytest.mark.parametrize(
        "recipe",
        [
            "ruff check .",
            "black --check . && isort -c src",
            "ruff format --diff",
            "cargo fmt -- --check",
            "gofmt -l .",
            "eslint --fix-dry-run src",
            '@echo "run ruff check --fix ."; ruff check',
            "pip install black isort && flake8",
            "command -v black >/dev/null; flake8",
            "# black .",
            "flake8 black/ --config=black.cfg",
        ],
    )
    def test_target_that_only_looks_is_a_check(self, tmp_path: Path, recipe: str) -> None:
        makefile = f"lint:\n\t{recipe}\nfix:\n\truff check --fix .\n"
        assert commands("no lint errors", repository(tmp_path, {"Makefile": makefile})) == ["make lint"]

    @pytest.mark.parametrize(
        "makefile",
        [
            "lint: style\n\tflake8\nstyle:\n\tblack .\n",
            "lint: | style ## lint it\nstyle: ; black .\n",
            "lint: a\na: b\nb: lint\n\teslint --fix src\n",
        ],
    )
    def test_target_that_needs_one_that_changes_files_is_not_a_check(self, tmp_path: Path, makefile: str) -> None:
        assert commands("no lint errors", repository(tmp_path, {"Makefile": makefile})) == []

    def test_another_check_is_found_instead(self, tmp_path: Path) -> None:
        files = {"Makefile": "lint:\n\teslint --fix src\n", **package(**{"lint:check": "eslint src"})}
        assert commands("no lint errors", repository(tmp_path, files)) == ["npm run lint:check"]
        repository(tmp_path, {"Makefile": files["Makefile"] + "lint-check:\n\teslint src\n"})
        assert commands("no lint errors", tmp_path) == ["make lint-check"]

    def test_formatter_before_tests_does_not_hide_the_target(self, tmp_path: Path) -> None:
        makefile = "test: fmt\n\tgo test ./...\nfmt:\n\tgo fmt ./...\n"
        assert commands("tests pass", repository(tmp_path, {"Makefile": makefile, "go.mod": ""})) == ["make test"]

    def test_test_target_that_changes_files_itself_is_not_a_check(self, tmp_path: Path) -> None:
        files = {"Makefile": "test:\n\tblack .\n\tpytest\n", "pytest.ini": "", ".venv/bin/pytest": ""}
        assert commands("tests pass", repository(tmp_path, files)) == [".venv/bin/pytest -q"]

    def test_error_says_why_the_target_does_not_count(self, tmp_path: Path) -> None:
        repository(tmp_path, {"Makefile": "lint:\n\t@ruff check --fix .\n"})
        assert "`make lint` does not count, because it changes files: ruff check --fix ." in describe_search(
            CheckKind.LINT, tmp_path
        )
