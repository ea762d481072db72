"""What a repository tests, lints, type-checks, builds and formats with, and which phrase ("tests pass") asks for it."""

import fnmatch
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from shutil import which

from ralph.core.codec import parse_json_object
from ralph.verify.makefile import MAKEFILES, MakeTarget, find_changing_command, find_changing_recipe, read_targets

READ = 256 * 1024
"""How much of a configuration file is read."""


class CheckKind(StrEnum):
    """What a phrase asks for."""

    TESTS = "tests"
    LINT = "lint"
    TYPES = "types"
    BUILD = "build"
    FORMAT = "format"
    COVERAGE = "coverage"


@dataclass(frozen=True)
class RepositoryCommand:
    """A command of the repository that does what was asked for."""

    command: str
    because: str


_ELSEWHERE = {
    CheckKind.TESTS: "pytest, tox, nox, unittest, go.mod, Cargo.toml, Maven, Gradle",
    CheckKind.LINT: "settings of ruff, flake8, pylint, ESLint, XO or Biome, go.mod, Cargo.toml",
    CheckKind.TYPES: "settings of mypy or pyright, tsconfig.json, go.mod, Cargo.toml, Maven, Gradle",
    CheckKind.BUILD: "a [build-system] in pyproject.toml, tsconfig.json, go.mod, Cargo.toml, Maven, Gradle",
    CheckKind.FORMAT: "settings of black, ruff, Prettier or Biome, go.mod, Cargo.toml",
    CheckKind.COVERAGE: "pytest-cov, coverage.py, Jest, Vitest, go.mod, cargo-llvm-cov, cargo-tarpaulin",
}
_TARGETS = {
    CheckKind.TESTS: ("test", "tests", "check"),
    CheckKind.LINT: ("lint", "lint-check", "check-lint"),
    CheckKind.TYPES: ("typecheck", "type-check", "types", "mypy"),
    CheckKind.BUILD: ("build",),
    CheckKind.FORMAT: ("format-check", "fmt-check", "check-format"),
    CheckKind.COVERAGE: ("coverage", "cov", "test-coverage", "test-cov"),
}
_SCRIPTS = {
    CheckKind.TESTS: ("test", "test:unit"),
    CheckKind.LINT: ("lint:check", "lint:ci", "check:lint", "lint"),
    CheckKind.TYPES: ("typecheck", "type-check", "check-types", "check:types", "check:type", "types", "tsc"),
    CheckKind.BUILD: ("build", "compile"),
    CheckKind.FORMAT: ("format:check", "check:format", "format-check", "fmt:check", "prettier:check"),
    CheckKind.COVERAGE: ("coverage", "test:coverage", "test:cov", "test-coverage", "test-cov", "cov"),
}
_PYTHON_TOOLS: dict[CheckKind, tuple[tuple[str, str, tuple[str, ...], str], ...]] = {
    CheckKind.LINT: (
        ("ruff", "check", ("ruff.toml", ".ruff.toml"), r"\[tool\.ruff"),
        ("flake8", "", (".flake8",), r"\[flake8\]"),
        ("pylint", "SOURCE", (".pylintrc", "pylintrc"), r"\[tool\.pylint"),
    ),
    CheckKind.TYPES: (
        ("mypy", "SOURCE", ("mypy.ini", ".mypy.ini"), r"\[(?:tool\.)?mypy\]"),
        ("pyright", "", ("pyrightconfig.json",), r"\[tool\.pyright\]"),
    ),
    CheckKind.FORMAT: (
        ("black", "--check .", (), r"\[tool\.black\]"),
        ("ruff", "format --check", ("ruff.toml", ".ruff.toml"), r"\[tool\.ruff"),
    ),
}
_SETTINGS = ("pyproject.toml", "setup.cfg", "tox.ini")
_NAMED_IN = (
    "pyproject.toml",
    "setup.cfg",
    "tox.ini",
    "requirements.txt",
    "requirements-dev.txt",
    "dev-requirements.txt",
    "Pipfile",
)
_GO = {
    CheckKind.TESTS: "go test ./...",
    CheckKind.LINT: "go vet ./...",
    CheckKind.TYPES: "go vet ./...",
    CheckKind.BUILD: "go build ./...",
    CheckKind.FORMAT: 'test -z "$(gofmt -l .)"',
    CheckKind.COVERAGE: "p=$(mktemp) && go test -coverprofile=$p ./... && go tool cover -func=$p",
}
_RUST = {
    CheckKind.TESTS: "cargo test",
    CheckKind.LINT: "cargo clippy -- -D warnings",
    CheckKind.TYPES: "cargo check",
    CheckKind.BUILD: "cargo build",
    CheckKind.FORMAT: "cargo fmt --check",
}
_RUST_WORKSPACE = {
    CheckKind.TESTS: "cargo test --workspace",
    CheckKind.LINT: "cargo clippy --workspace -- -D warnings",
    CheckKind.TYPES: "cargo check --workspace",
    CheckKind.BUILD: "cargo build --workspace",
    CheckKind.FORMAT: "cargo fmt --all --check",
}
"""Without these options cargo looks at one package of a workspace."""
_RUNS_SCRIPTS = re.compile(r"\b(?:npm|pnpm|yarn|bun|run-s|run-p|npm-run-all\d?|concurrently|wireit|turbo|nx)\b")
_MAVEN = {CheckKind.TESTS: "-B test", CheckKind.TYPES: "-B compile", CheckKind.BUILD: "-B package -DskipTests"}
_GRADLE = {CheckKind.TESTS: "test", CheckKind.TYPES: "classes", CheckKind.BUILD: "assemble"}


_MAX_TEST_FILES = 50
"""Test files in which Ralph looks for the test framework."""


@dataclass(frozen=True)
class _Repo:
    root: Path

    def has(self, *names: str) -> str:
        """The first of these files that is there."""
        return next((name for name in names if (self.root / name).is_file()), "")

    def text(self, name: str) -> str:
        try:
            with (self.root / name).open("rb") as file:
                return file.read(READ).decode(errors="replace") if self.has(name) else ""
        except OSError:
            return ""

    def find_mention(self, expression: str, *names: str) -> str:
        """The first of these files in which the expression occurs."""
        return next((name for name in names if re.search(expression, self.text(name), re.MULTILINE)), "")

    @cached_property
    def package(self) -> Mapping[str, Mapping[str, object]]:
        """package.json: its sections."""
        data = parse_json_object(self.text("package.json"))
        return {name: part for name, part in data.items() if isinstance(part, dict)}

    def tool(self, name: str) -> str:
        """How a Python tool of this repository is started."""
        if directory := next((d for d in (".venv", "venv") if (self.root / d / "bin" / name).exists()), ""):
            return f"{directory}/bin/{name}"
        locks = {"uv.lock": "uv", "poetry.lock": "poetry", "pdm.lock": "pdm", "Pipfile.lock": "pipenv"}
        runner = locks.get(self.has(*locks))
        return f"{runner} run {name}" if runner and which(runner) else name

    @property
    def source(self) -> str:
        return "src" if (self.root / "src").is_dir() else "."

    def ci_files(self) -> list[str]:
        """The files that say what runs on every change."""
        workflows = sorted((self.root / ".github" / "workflows").glob("*.y*ml"))
        return [*(str(path.relative_to(self.root)) for path in workflows), ".gitlab-ci.yml"]

    def test_files(self) -> list[Path]:
        """Some of the Python tests."""
        places = [self.root, *(path for name in ("tests", "test") if (path := self.root / name).is_dir())]
        found = [path for place in places for form in ("test_*.py", "*_test.py") for path in place.glob(form)]
        nested = [path for place in places[1:] for path in place.glob("*/test_*.py")]
        return sorted(path for path in (*found, *nested) if path.is_file())[:_MAX_TEST_FILES]


def find_commands(kind: CheckKind, root: Path, language: str = "", tool: str = "") -> tuple[RepositoryCommand, ...]:
    """What a repository has for a kind of check: the Makefile's target, else one command for each language at its top."""
    repo = _Repo(root)
    if not language and not tool and (target := _find_make_target(repo, kind)):
        return (target,)
    found = [one for name, look in _ECOSYSTEMS.items() if language in ("", name) and (one := look(repo, kind))]
    return tuple(one for one in found if tool in one.command + one.because)


def describe_search(kind: CheckKind, root: Path) -> str:
    """What Ralph looked for, for the user whose repository has none of it."""
    targets, scripts = "/".join(_TARGETS[kind]), "/".join(_SCRIPTS[kind])
    changing = [
        f"; `make {name}` does not count, because it changes files: {command[:60]}"
        for name, command in _find_targets(_Repo(root), kind).items()
        if command
    ]
    return f"a Makefile target ({targets}), a script in package.json ({scripts}), {_ELSEWHERE[kind]}{''.join(changing[:1])}"


def _find_make_target(repo: _Repo, kind: CheckKind) -> RepositoryCommand | None:
    for target, changing in _find_targets(repo, kind).items():
        if not changing:
            return RepositoryCommand(f"make {target}", f"{repo.has(*MAKEFILES)} has the target `{target}`")
    return None


def _find_targets(repo: _Repo, kind: CheckKind) -> dict[str, str]:
    """The targets of the Makefile for a kind of check, the likeliest first, each with the command in it that edits files."""
    targets = _read_makefile(repo)
    # Many projects format their code before each build and test run. That does not decide whether tests pass.
    judges_files = kind in (CheckKind.LINT, CheckKind.TYPES, CheckKind.FORMAT)
    return {
        name: find_changing_recipe(targets, name, with_needs=judges_files) for name in _TARGETS[kind] if name in targets
    }


def _read_makefile(repo: _Repo) -> dict[str, MakeTarget]:
    return read_targets(repo.text(repo.has(*MAKEFILES) or "Makefile"))


def read_make_targets(root: Path) -> frozenset[str]:
    """The targets that a Makefile names."""
    return frozenset(_read_makefile(_Repo(root)))


def _find_python(repo: _Repo, kind: CheckKind) -> RepositoryCommand | None:
    if kind is CheckKind.TESTS:
        return _find_python_tests(repo)
    if kind is CheckKind.COVERAGE:
        return _find_python_coverage(repo)
    if kind is CheckKind.BUILD:
        if not repo.find_mention(r"^\[build-system\]", "pyproject.toml"):
            return None
        builder = f"{repo.tool('python3')} -m build"
        if repo.has("uv.lock") or (which("uv") and not any(repo.root.glob(".venv/lib/*/site-packages/build"))):
            builder = "uv build"
        elif repo.has("poetry.lock"):
            builder = "poetry build"
        return RepositoryCommand(builder, "pyproject.toml has a [build-system]")
    for tool, arguments, files, section in _PYTHON_TOOLS[kind]:
        if because := _find_configuration(repo, tool, files, section):
            names_files = tool == "mypy" and repo.find_mention(r"^(?:files|packages|modules)\s*=", *files, *_SETTINGS)
            arguments = arguments.replace("SOURCE", "" if names_files else repo.source)
            return RepositoryCommand(f"{repo.tool(tool)} {arguments}".strip(), because)
    return _find_python_in_ci(repo, kind)


_CI_COMMAND = (
    r"^\s*(?:-\s+)?(?:run:\s*)?[\"']?(?P<command>"
    r"(?:(?:uvx|uv run|poetry run|pdm run|pipenv run|hatch run|pipx run|python3? -m)\s+)*"
    r"(?:TOOLS)(?:\s[^|&;<>#$\n]*)?)[\"']?\s*$"
)
"""A line of a CI file that only runs one of these tools."""
_CI_TOOLS = {
    CheckKind.TESTS: r"pytest|unittest(?=\s)|tox|nox",
    CheckKind.LINT: r"ruff check|(?:flake8|pylint)(?=\s)",
    CheckKind.TYPES: r"(?:mypy|pyright)(?=\s)",
    CheckKind.FORMAT: r"ruff format(?=.*--(?:check|diff))|black(?=.*--check)",
}


def _find_python_in_ci(repo: _Repo, kind: CheckKind) -> RepositoryCommand | None:
    """The command that CI runs for a kind of check in Python."""
    if kind not in _CI_TOOLS:
        return None
    pattern = re.compile(_CI_COMMAND.replace("TOOLS", _CI_TOOLS[kind]), re.MULTILINE)
    for file in repo.ci_files():
        for match in pattern.finditer(repo.text(file)):
            command = match["command"].strip()
            if find_changing_command(command):
                continue
            program, _, arguments = command.partition(" ")
            started = repo.tool("python3" if program == "python" else program)
            return RepositoryCommand(f"{started} {arguments}".strip(), f"{file} runs it")
    return None


def _find_configuration(repo: _Repo, tool: str, files: tuple[str, ...], section: str) -> str:
    """Why a Python tool is thought to be used here."""
    if place := repo.has(*files) or repo.find_mention(rf"^{section}", *_SETTINGS):
        return f"{tool} is configured in {place}"
    place = repo.find_mention(rf"(?:^|[\"'\s]){tool}(?![\w./-])", *_NAMED_IN)
    return f"{tool} is named in {place}" if place else ""


def _find_python_tests(repo: _Repo) -> RepositoryCommand | None:
    pytest = _find_configuration(
        repo, "pytest", ("pytest.ini", "conftest.py", "tests/conftest.py"), r"\[(?:tool[.:])?pytest"
    )
    if pytest:
        return RepositoryCommand(f"{repo.tool('pytest')} -q", pytest)
    if place := repo.has("noxfile.py", "tox.ini"):
        return RepositoryCommand(repo.tool("nox" if place == "noxfile.py" else "tox"), f"{place} exists")
    if in_ci := _find_python_in_ci(repo, CheckKind.TESTS):
        return in_ci
    files = repo.test_files()
    names = [str(path.relative_to(repo.root)) for path in files]
    if not names:
        return None
    if not repo.find_mention(r"^(?:import|from) unittest", *names) or repo.find_mention(
        r"^(?:import|from) pytest", *names
    ):
        return RepositoryCommand(f"{repo.tool('pytest')} -q", f"{names[0]} exists")
    folder = Path(names[0]).parts[0] if "/" in names[0] else ""
    start = f" -s {folder}" if folder and not repo.has(f"{folder}/__init__.py") else ""
    return RepositoryCommand(f"{repo.tool('python3')} -m unittest discover{start}", f"{names[0]} exists")


def _find_python_coverage(repo: _Repo) -> RepositoryCommand | None:
    tests = _find_python_tests(repo)
    if tests is None or "pytest" not in tests.command:
        return None
    installed = next(repo.root.glob(".venv/lib/*/site-packages/pytest_cov"), None)
    place = repo.find_mention(r"pytest[-_]cov", *_NAMED_IN) or (".venv" if installed else "")
    if place and repo.find_mention(r"addopts.*--cov", "pytest.ini", *_SETTINGS):
        return RepositoryCommand(tests.command, f"pytest-cov is switched on by `addopts`, and named in {place}")
    if place:
        is_configured = repo.has(".coveragerc") or repo.find_mention(r"^\[(?:tool\.)?coverage[.:]", *_SETTINGS)
        return RepositoryCommand(
            f"{tests.command} --cov{'' if is_configured else '=' + repo.source}", f"pytest-cov is named in {place}"
        )
    if because := _find_configuration(repo, "coverage", (".coveragerc",), r"\[(?:tool\.)?coverage[.:]"):
        coverage = repo.tool("coverage")
        return RepositoryCommand(f"{coverage} run -m pytest -q && {coverage} report", because)
    return None


def _find_javascript(repo: _Repo, kind: CheckKind) -> RepositoryCommand | None:
    managers = {"pnpm-lock.yaml": "pnpm", "yarn.lock": "yarn", "bun.lock": "bun", "bun.lockb": "bun"}
    manager = managers.get(repo.has(*managers), "npm")
    scripts = repo.package.get("scripts", {})
    for name in _SCRIPTS[kind]:
        body = str(scripts.get(name, ""))
        whole = _expand_script(scripts, name)
        never_checks = (
            "no test specified" in body or re.search(r"--watch(?!\w*=false)", whole) or find_changing_command(whole)
        )
        if body and not never_checks:
            run = f"{manager} test" if name == "test" and manager != "bun" else f"{manager} run {name}"
            return RepositoryCommand(run, f"package.json has the script `{name}`: {body[:40]}")
    # Without --no-install, npx downloads a tool that is not there.
    execute = {"npm": "npx --no-install", "pnpm": "pnpm exec"}.get(manager, f"{manager} run")
    return next(
        (RepositoryCommand(f"{execute} {tool}", because) for tool, because in _find_node_tools(repo, kind)), None
    )


def _expand_script(scripts: Mapping[str, object], name: str) -> str:
    """A script of package.json with the scripts that it calls, also those that run before and after it."""
    found: dict[str, str] = {}
    names = [name]
    while names:
        one = names.pop()
        if one in found or one not in scripts:
            continue
        found[one] = str(scripts[one])
        names += [f"pre{one}", f"post{one}"]
        if _RUNS_SCRIPTS.search(found[one]):
            words = [word.strip("\"'").removeprefix("npm:") for word in found[one].split()]
            names += [other for other in scripts if any(fnmatch.fnmatchcase(other, word) for word in words)]
    return "\n".join(found.values())


def _find_node_tools(repo: _Repo, kind: CheckKind) -> list[tuple[str, str]]:
    """The Node tools that a repository is set up for, the likeliest first."""
    needs = {**repo.package.get("dependencies", {}), **repo.package.get("devDependencies", {})}
    eslint = repo.has(*(f"eslint.config.{end}" for end in ("js", "mjs", "cjs", "ts")), *_eslintrc())
    prettier = repo.has(
        ".prettierrc", ".prettierrc.json", ".prettierrc.yml", "prettier.config.js", "prettier.config.mjs"
    )
    biome, tsconfig = repo.has("biome.json", "biome.jsonc"), repo.has("tsconfig.json")
    vitest_coverage = "vitest" in needs and any(name.startswith("@vitest/coverage") for name in needs)
    tools = {
        CheckKind.TESTS: (("vitest run", "vitest" in needs), ("jest", "jest" in needs), ("mocha", "mocha" in needs)),
        CheckKind.COVERAGE: (("vitest run --coverage", vitest_coverage), ("jest --coverage", "jest" in needs)),
        CheckKind.LINT: (("xo", "xo" in needs), ("eslint .", eslint), ("biome lint", biome)),
        CheckKind.FORMAT: (("prettier --check .", prettier), ("biome format", biome)),
        CheckKind.TYPES: (("tsc --noEmit", tsconfig),),
        CheckKind.BUILD: (("tsc --noEmit", tsconfig),),
    }
    return [
        (tool, f"{sign} exists" if isinstance(sign, str) else "package.json names it")
        for tool, sign in tools[kind]
        if sign
    ]


def _eslintrc() -> tuple[str, ...]:
    return (".eslintrc", *(f".eslintrc.{end}" for end in ("js", "cjs", "json", "yml", "yaml")))


def _find_go(repo: _Repo, kind: CheckKind) -> RepositoryCommand | None:
    if not repo.has("go.mod"):
        return None
    settings = repo.has(*(f".golangci.{end}" for end in ("yml", "yaml", "toml", "json")))
    if kind is CheckKind.LINT and settings:
        return RepositoryCommand("golangci-lint run", f"{settings} exists")
    return RepositoryCommand(_GO[kind], "go.mod exists")


def _find_rust(repo: _Repo, kind: CheckKind) -> RepositoryCommand | None:
    if not repo.has("Cargo.toml"):
        return None
    if kind is CheckKind.COVERAGE:
        tool = next((tool for tool in ("llvm-cov", "tarpaulin") if which(f"cargo-{tool}")), "")
        return RepositoryCommand(f"cargo {tool}", f"Cargo.toml exists, and cargo-{tool} is installed") if tool else None
    if repo.find_mention(r"^\[workspace\]", "Cargo.toml"):
        return RepositoryCommand(_RUST_WORKSPACE[kind], "Cargo.toml has a [workspace]")
    return RepositoryCommand(_RUST[kind], "Cargo.toml exists")


def _find_java(repo: _Repo, kind: CheckKind) -> RepositoryCommand | None:
    if (place := repo.has("pom.xml")) and kind in _MAVEN:
        maven = "./mvnw" if repo.has("mvnw") else "mvn"
        if kind is CheckKind.TESTS and (ci := repo.find_mention(r"\bmvnw?\b.*\bverify\b", *repo.ci_files())):
            return RepositoryCommand(f"{maven} -B verify", f"{ci} runs it")
        return RepositoryCommand(f"{maven} {_MAVEN[kind]}", f"{place} exists")
    if (place := repo.has("build.gradle", "build.gradle.kts")) and kind in _GRADLE:
        return RepositoryCommand(
            f"{'./gradlew' if repo.has('gradlew') else 'gradle'} {_GRADLE[kind]}", f"{place} exists"
        )
    return None


_ECOSYSTEMS: dict[str, Callable[[_Repo, CheckKind], RepositoryCommand | None]] = {
    "python": _find_python,
    "javascript": _find_javascript,
    "go": _find_go,
    "rust": _find_rust,
    "java": _find_java,
}


_GOOD = r"(?:pass|passes|passing|succeeds?|green|ok|clean)"
_BAD = r"(?:errors?|issues|problems|violations|failures)"
_PHRASES = {
    CheckKind.TESTS: rf"(?:tests|test (?:suite|run|cases)) {_GOOD}|no (?:failing|failed|broken) tests?"
    r"|no tests? (?:fail|failures)|passing tests",
    CheckKind.LINT: rf"(?:lint|linting|linter|lints|ruff|flake8|pylint|eslint|clippy) {_GOOD}|passes lint(?:ing)?|lint free"
    rf"|no (?:lint|linting|linter|ruff|flake8|pylint|eslint|clippy) {_BAD}",
    CheckKind.TYPES: rf"types? ?check(?:s|ed|ing)?(?: {_GOOD})?|types {_GOOD}|(?:mypy|pyright|tsc) {_GOOD}"
    rf"|no (?:type|types|typing|type ?checking|typescript|mypy|pyright|tsc) {_BAD}",
    CheckKind.BUILD: rf"builds|builds? {_GOOD}|compiles|no (?:build|compile|compiler|compilation) {_BAD}",
    CheckKind.FORMAT: rf"(?:well )?formatted|format(?:ting)?(?: check)? {_GOOD}|no format(?:ting)? {_BAD}",
}
_FILLERS = re.compile(
    r"the|all|our|my|a|of|its?|is|are|be|still|now|again|there|any|every|everything|should|must|unit|code|project|program|app|repo"
    r"|repository|package|codebase|existing|whole|entire|full|remaining|successfully|cleanly|correctly|properly"
)
_LONGEST_PHRASE = 6
"""Words of a phrase beside fillers; longer sentences say more than a phrase."""
_TOOLS = re.compile(r"ruff|flake8|pylint|eslint|clippy|mypy|pyright|tsc")
_LANGUAGES = {
    "python": "python",
    **dict.fromkeys(("javascript", "js", "typescript", "ts", "node"), "javascript"),
    **dict.fromkeys(("go", "golang"), "go"),
    "rust": "rust",
    "java": "java",
}


@dataclass(frozen=True)
class ResolvedPhrase:
    """A phrase that was understood, and what the repository has for it: nothing, one command, or one for each language."""

    kind: CheckKind
    found: tuple[RepositoryCommand, ...]


EXAMPLES = {
    CheckKind.TESTS: "tests pass",
    CheckKind.LINT: "no lint errors",
    CheckKind.TYPES: "no type errors",
    CheckKind.BUILD: "it builds",
    CheckKind.FORMAT: "well formatted",
    CheckKind.COVERAGE: "coverage >= 80%",
}
"""A phrase of each kind, as users write it."""


def describe_phrases(root: Path) -> list[tuple[str, str]]:
    """What each phrase would run in this repository; the command is empty if there is none."""
    found = {kind: find_commands(kind, root) for kind in EXAMPLES}
    return [(phrase, " and ".join(one.command for one in found[kind])) for kind, phrase in EXAMPLES.items()]


def resolve_phrase(phrase: str, root: Path) -> ResolvedPhrase | None:
    """What a phrase means in this repository; None if Ralph does not know the phrase."""
    words = [
        word
        for word in re.findall(r"[\w'-]+", re.sub(r"\b(?:0|zero)\b", "no", phrase.lower()))
        if not _FILLERS.fullmatch(word)
    ]
    if (
        re.search(r"[^\w\s'.!-]", phrase)
        or len(words) > _LONGEST_PHRASE
        or re.match(r"go (?:test|build)\b", " ".join(words))
    ):
        return None
    language = next((_LANGUAGES[word] for word in words if word in _LANGUAGES), "")
    for wording in (words, [word for word in words if word not in _LANGUAGES]):
        for kind, form in _PHRASES.items():
            if re.fullmatch(form, " ".join(wording)):
                tool = next((word for word in wording if _TOOLS.fullmatch(word)), "")
                return ResolvedPhrase(kind, find_commands(kind, root, language, tool))
    return None
