"""What a repository has to test, lint, type-check, build and format it with, by the files at its top."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from shutil import which

from ralph.core.codec import json_object

READ = 256 * 1024
"""How much of a configuration file is read."""


class Kind(StrEnum):
    """What a phrase asks for."""

    TESTS = "tests"
    LINT = "lint"
    TYPES = "types"
    BUILD = "build"
    FORMAT = "format"
    COVERAGE = "coverage"


@dataclass(frozen=True)
class Found:
    """A command of the repository that does what was asked for."""

    command: str
    because: str


_ELSEWHERE = {
    Kind.TESTS: "pytest, tox, nox, unittest, go.mod, Cargo.toml, Maven, Gradle",
    Kind.LINT: "settings of ruff, flake8, pylint, ESLint or Biome, go.mod, Cargo.toml",
    Kind.TYPES: "settings of mypy or pyright, tsconfig.json, go.mod, Cargo.toml, Maven, Gradle",
    Kind.BUILD: "a [build-system] in pyproject.toml, tsconfig.json, go.mod, Cargo.toml, Maven, Gradle",
    Kind.FORMAT: "settings of black, ruff, Prettier or Biome, go.mod, Cargo.toml",
    Kind.COVERAGE: "pytest-cov, coverage.py, Jest, Vitest, go.mod, cargo-llvm-cov, cargo-tarpaulin",
}
_TARGETS = {
    Kind.TESTS: ("test", "tests", "check"),
    Kind.LINT: ("lint",),
    Kind.TYPES: ("typecheck", "type-check", "types", "mypy"),
    Kind.BUILD: ("build",),
    Kind.FORMAT: ("format-check", "fmt-check", "check-format"),
    Kind.COVERAGE: ("coverage", "cov", "test-coverage", "test-cov"),
}
_SCRIPTS = {
    Kind.TESTS: ("test", "test:unit"),
    Kind.LINT: ("lint:check", "lint:ci", "check:lint", "lint"),
    Kind.TYPES: ("typecheck", "type-check", "check-types", "check:types", "types", "tsc"),
    Kind.BUILD: ("build", "compile"),
    Kind.FORMAT: ("format:check", "check:format", "format-check", "fmt:check", "prettier:check"),
    Kind.COVERAGE: ("coverage", "test:coverage", "test:cov", "test-coverage", "test-cov", "cov"),
}
_PYTHON_TOOLS: dict[Kind, tuple[tuple[str, str, tuple[str, ...], str], ...]] = {
    Kind.LINT: (
        ("ruff", "check", ("ruff.toml", ".ruff.toml"), r"\[tool\.ruff"),
        ("flake8", "", (".flake8",), r"\[flake8\]"),
        ("pylint", "SOURCE", (".pylintrc", "pylintrc"), r"\[tool\.pylint"),
    ),
    Kind.TYPES: (
        ("mypy", "SOURCE", ("mypy.ini", ".mypy.ini"), r"\[(?:tool\.)?mypy\]"),
        ("pyright", "", ("pyrightconfig.json",), r"\[tool\.pyright\]"),
    ),
    Kind.FORMAT: (
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
    Kind.TESTS: "go test ./...",
    Kind.LINT: "go vet ./...",
    Kind.TYPES: "go vet ./...",
    Kind.BUILD: "go build ./...",
    Kind.FORMAT: 'test -z "$(gofmt -l .)"',
    Kind.COVERAGE: "p=$(mktemp) && go test -coverprofile=$p ./... && go tool cover -func=$p",
}
_RUST = {
    Kind.TESTS: "cargo test",
    Kind.LINT: "cargo clippy -- -D warnings",
    Kind.TYPES: "cargo check",
    Kind.BUILD: "cargo build",
    Kind.FORMAT: "cargo fmt --check",
}
_RUST_WORKSPACE = {
    Kind.TESTS: "cargo test --workspace",
    Kind.LINT: "cargo clippy --workspace -- -D warnings",
    Kind.TYPES: "cargo check --workspace",
    Kind.BUILD: "cargo build --workspace",
    Kind.FORMAT: "cargo fmt --all --check",
}
"""Without these options cargo looks at one package of a workspace."""
_CHANGES_FILES = re.compile(r"--(?:write|fix)(?![\w=-])")
"""What a script must not have to count as a check."""
_MAVEN = {Kind.TESTS: "-B test", Kind.TYPES: "-B compile", Kind.BUILD: "-B package -DskipTests"}
_GRADLE = {Kind.TESTS: "test", Kind.TYPES: "classes", Kind.BUILD: "assemble"}


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

    def mentioned(self, expression: str, *names: str) -> str:
        """The first of these files in which the expression occurs."""
        return next((name for name in names if re.search(expression, self.text(name), re.MULTILINE)), "")

    @cached_property
    def package(self) -> Mapping[str, Mapping[str, object]]:
        """package.json: its sections."""
        data = json_object(self.text("package.json"))
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
        return sorted(path for path in (*found, *nested) if path.is_file())[:50]


def commands_for(kind: Kind, root: Path, language: str = "", tool: str = "") -> tuple[Found, ...]:
    """What a repository has for a kind of check: the Makefile's target, else one command for each language at its top."""
    repo = _Repo(root)
    if not language and not tool and (target := _make(repo, kind)):
        return (target,)
    found = [one for name, look in _ECOSYSTEMS.items() if language in ("", name) and (one := look(repo, kind))]
    return tuple(one for one in found if tool in one.command + one.because)


def sought(kind: Kind) -> str:
    """What was looked for, to tell a person whose repository has none of it."""
    targets, scripts = "/".join(_TARGETS[kind]), "/".join(_SCRIPTS[kind])
    return f"a Makefile target ({targets}), a script in package.json ({scripts}), {_ELSEWHERE[kind]}"


def _make(repo: _Repo, kind: Kind) -> Found | None:
    name = repo.has("GNUmakefile", "makefile", "Makefile")
    targets = make_targets(repo.root)
    target = next((target for target in _TARGETS[kind] if target in targets), "")
    return Found(f"make {target}", f"{name} has the target `{target}`") if target else None


def make_targets(root: Path) -> frozenset[str]:
    """The targets that a Makefile names."""
    repo = _Repo(root)
    text = repo.text(repo.has("GNUmakefile", "makefile", "Makefile") or "Makefile")
    lines = re.findall(r"^([\w./ -]+):(?![=:])", text, re.MULTILINE)
    return frozenset(target for line in lines for target in line.split() if not target.startswith("."))


def _python(repo: _Repo, kind: Kind) -> Found | None:
    if kind is Kind.TESTS:
        return _python_tests(repo)
    if kind is Kind.COVERAGE:
        return _python_coverage(repo)
    if kind is Kind.BUILD:
        if not repo.mentioned(r"^\[build-system\]", "pyproject.toml"):
            return None
        uv = repo.has("uv.lock") or (which("uv") and not any(repo.root.glob(".venv/lib/*/site-packages/build")))
        builder = "uv build" if uv else "poetry build" if repo.has("poetry.lock") else ""
        return Found(builder or f"{repo.tool('python3')} -m build", "pyproject.toml has a [build-system]")
    for tool, arguments, files, section in _PYTHON_TOOLS[kind]:
        if because := _configured(repo, tool, files, section):
            told = tool == "mypy" and repo.mentioned(r"^(?:files|packages|modules)\s*=", *files, *_SETTINGS)
            arguments = arguments.replace("SOURCE", "" if told else repo.source)
            return Found(f"{repo.tool(tool)} {arguments}".strip(), because)
    return None


def _configured(repo: _Repo, tool: str, files: tuple[str, ...], section: str) -> str:
    """Why a Python tool is thought to be used here."""
    if place := repo.has(*files) or repo.mentioned(rf"^{section}", *_SETTINGS):
        return f"{tool} is configured in {place}"
    place = repo.mentioned(rf"(?:^|[\"'\s]){tool}(?![\w./-])", *_NAMED_IN)
    return f"{tool} is named in {place}" if place else ""


def _python_tests(repo: _Repo) -> Found | None:
    pytest = _configured(repo, "pytest", ("pytest.ini", "conftest.py", "tests/conftest.py"), r"\[(?:tool[.:])?pytest")
    if pytest:
        return Found(f"{repo.tool('pytest')} -q", pytest)
    if place := repo.has("noxfile.py", "tox.ini"):
        return Found(repo.tool("nox" if place == "noxfile.py" else "tox"), f"{place} is there")
    files = repo.test_files()
    names = [str(path.relative_to(repo.root)) for path in files]
    if not names:
        return None
    if not repo.mentioned(r"^(?:import|from) unittest", *names) or repo.mentioned(r"^(?:import|from) pytest", *names):
        return Found(f"{repo.tool('pytest')} -q", f"{names[0]} is there")
    folder = Path(names[0]).parts[0] if "/" in names[0] else ""
    start = f" -s {folder}" if folder and not repo.has(f"{folder}/__init__.py") else ""
    return Found(f"{repo.tool('python3')} -m unittest discover{start}", f"{names[0]} is there")


def _python_coverage(repo: _Repo) -> Found | None:
    tests = _python_tests(repo)
    if tests is None or "pytest" not in tests.command:
        return None
    installed = next(repo.root.glob(".venv/lib/*/site-packages/pytest_cov"), None)
    place = repo.mentioned(r"pytest[-_]cov", *_NAMED_IN) or (".venv" if installed else "")
    if place and repo.mentioned(r"addopts.*--cov", "pytest.ini", *_SETTINGS):
        return Found(tests.command, f"pytest-cov is switched on by `addopts`, and named in {place}")
    if place:
        told = repo.has(".coveragerc") or repo.mentioned(r"^\[(?:tool\.)?coverage[.:]", *_SETTINGS)
        return Found(f"{tests.command} --cov{'' if told else '=' + repo.source}", f"pytest-cov is named in {place}")
    if because := _configured(repo, "coverage", (".coveragerc",), r"\[(?:tool\.)?coverage[.:]"):
        coverage = repo.tool("coverage")
        return Found(f"{coverage} run -m pytest -q && {coverage} report", because)
    return None


def _javascript(repo: _Repo, kind: Kind) -> Found | None:
    managers = {"pnpm-lock.yaml": "pnpm", "yarn.lock": "yarn", "bun.lock": "bun", "bun.lockb": "bun"}
    manager = managers.get(repo.has(*managers), "npm")
    scripts = repo.package.get("scripts", {})
    for name in _SCRIPTS[kind]:
        body = str(scripts.get(name, ""))
        never_checks = (
            "no test specified" in body or re.search(r"--watch(?!\w*=false)", body) or _CHANGES_FILES.search(body)
        )
        if body and not never_checks:
            run = f"{manager} test" if name == "test" and manager != "bun" else f"{manager} run {name}"
            return Found(run, f"package.json has the script `{name}`: {body[:40]}")
    execute = "npx --no-install" if manager == "npm" else "pnpm exec" if manager == "pnpm" else f"{manager} run"
    return next((Found(f"{execute} {tool}", because) for tool, because in _node_tools(repo, kind)), None)


def _node_tools(repo: _Repo, kind: Kind) -> list[tuple[str, str]]:
    """The Node tools that a repository is set up for, the likeliest first."""
    needs = {**repo.package.get("dependencies", {}), **repo.package.get("devDependencies", {})}
    eslint = repo.has(*(f"eslint.config.{end}" for end in ("js", "mjs", "cjs", "ts")), *_eslintrc())
    prettier = repo.has(
        ".prettierrc", ".prettierrc.json", ".prettierrc.yml", "prettier.config.js", "prettier.config.mjs"
    )
    biome, tsconfig = repo.has("biome.json", "biome.jsonc"), repo.has("tsconfig.json")
    vitest_coverage = "vitest" in needs and any(name.startswith("@vitest/coverage") for name in needs)
    tools = {
        Kind.TESTS: (("vitest run", "vitest" in needs), ("jest", "jest" in needs), ("mocha", "mocha" in needs)),
        Kind.COVERAGE: (("vitest run --coverage", vitest_coverage), ("jest --coverage", "jest" in needs)),
        Kind.LINT: (("xo", "xo" in needs), ("eslint .", eslint), ("biome lint", biome)),
        Kind.FORMAT: (("prettier --check .", prettier), ("biome format", biome)),
        Kind.TYPES: (("tsc --noEmit", tsconfig),),
        Kind.BUILD: (("tsc --noEmit", tsconfig),),
    }
    return [
        (tool, f"{sign} is there" if isinstance(sign, str) else "package.json names it")
        for tool, sign in tools[kind]
        if sign
    ]


def _eslintrc() -> tuple[str, ...]:
    return (".eslintrc", *(f".eslintrc.{end}" for end in ("js", "cjs", "json", "yml", "yaml")))


def _go(repo: _Repo, kind: Kind) -> Found | None:
    if not repo.has("go.mod"):
        return None
    settings = repo.has(*(f".golangci.{end}" for end in ("yml", "yaml", "toml", "json")))
    if kind is Kind.LINT and settings:
        return Found("golangci-lint run", f"{settings} is there")
    return Found(_GO[kind], "go.mod is there")


def _rust(repo: _Repo, kind: Kind) -> Found | None:
    if not repo.has("Cargo.toml"):
        return None
    if kind is Kind.COVERAGE:
        tool = next((tool for tool in ("llvm-cov", "tarpaulin") if which(f"cargo-{tool}")), "")
        return Found(f"cargo {tool}", f"Cargo.toml is there, and cargo-{tool} installed") if tool else None
    if repo.mentioned(r"^\[workspace\]", "Cargo.toml"):
        return Found(_RUST_WORKSPACE[kind], "Cargo.toml has a [workspace]")
    return Found(_RUST[kind], "Cargo.toml is there")


def _java(repo: _Repo, kind: Kind) -> Found | None:
    if (place := repo.has("pom.xml")) and kind in _MAVEN:
        maven = "./mvnw" if repo.has("mvnw") else "mvn"
        if kind is Kind.TESTS and (ci := repo.mentioned(r"\bmvnw?\b.*\bverify\b", *repo.ci_files())):
            return Found(f"{maven} -B verify", f"{ci} runs it")
        return Found(f"{maven} {_MAVEN[kind]}", f"{place} is there")
    if (place := repo.has("build.gradle", "build.gradle.kts")) and kind in _GRADLE:
        return Found(f"{'./gradlew' if repo.has('gradlew') else 'gradle'} {_GRADLE[kind]}", f"{place} is there")
    return None


_ECOSYSTEMS: dict[str, Callable[[_Repo, Kind], Found | None]] = {
    "python": _python,
    "javascript": _javascript,
    "go": _go,
    "rust": _rust,
    "java": _java,
}
