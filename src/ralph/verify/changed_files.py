"""Changed files, and what their paths say about them: which language they are in, and whether they decide what passes.

Judge files decide what passes: tests, the settings of tools, build recipes and pipelines. This is the one list of them.
The guards, the counter-proof and the record of rejected trees all ask here.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from ralph.core.checks import Finding, Rule, Severity
from ralph.core.text import regex

LARGEST = 1_000_000
"""Longer texts are data, not work: they are not judged."""
_HEADER = 600
"""Characters of a file in which a generator says that it wrote the file."""
_LONGEST_EXCERPT = 160

_T = TypeVar("_T")
_LANGUAGES = {
    **dict.fromkeys(("py", "pyi"), "python"),
    **dict.fromkeys(("js", "jsx", "mjs", "cjs", "ts", "tsx", "mts", "cts"), "js"),
    **dict.fromkeys(("java", "kt"), "java"),
    "go": "go",
    "rs": "rust",
}
_VENDORED = regex(
    r"(^|/)(node_modules|vendor|vendored|third_party|dist|\.venv|venv|site-packages|target|__pycache__|\.git)/"
    r"|\.min\.\w+$|\.lock$|(^|/)(package-lock\.json|pnpm-lock\.yaml|go\.sum|npm-shrinkwrap\.json)$"
)
_GENERATED_PATH = regex(r"_pb2(_grpc)?\.pyi?$|\.pb\.go$|\.gen\.\w+$|\.g\.\w+$|(^|/)(__)?generated(__)?/")
_GENERATED_TEXT = regex(
    r"(?i)code generated|auto(matically )?-?generated|@generated"
    r"|generated (by|from|with) .{0,60}|generated.{0,60}do not edit"
)
_COLLECTED = {
    "python": regex(r"(^|/)(test[^/]*|[^/]*_test)\.py$"),
    "js": regex(r"\.(test|spec|cy|e2e)\.[cm]?[jt]sx?$|(^|/)(__tests__|tests?|specs?|e2e)/[^.]*\.[cm]?[jt]sx?$"),
    "go": regex(r"_test\.go$"),
    "java": regex(r"(^|/)(Test[^/]*|[^/]*(Test|Tests|TestCase|IT|Spec))\.(java|kt)$"),
    "rust": regex(r"\.rs$"),
}
_PUT_AWAY = regex(
    r"(^|/)[._]?(disabled|skip(ped)?|attic|archived?|old|obsolete|quarantined?|bak|backup)[^/]*/", re.IGNORECASE
)
_TEST_PATH = regex(
    r"(^|/)(tests?|__tests__|specs?|e2e|cypress|testdata|__snapshots__|integration[-_]tests?|test[-_]?(utils?|helpers?|support|kit))/"
    r"|(^|/)(test_[^/]*|[^/]*_(test|spec)|[^/]*[._-](test|spec|cy|e2e)|[^/]*[a-z0-9](Test|Tests|IT|Spec|TestCase))\.\w+$"
    r"|(^|/)(conftest|tests?)\.py$|(jest|vitest)[.-]setup"
)
_BUILD_CODE = regex(
    r"\.(config|conf|setup)\.[cm]?[jt]s$|(^|/)(vitest|jest)\.[\w.-]+\.[cm]?[jt]s$|(^|/)(setup|noxfile|conftest|tasks|fabfile|build)\.(py|rs)$|(^|/)\.\w+rc\."
)
_TOOL_SETTINGS = regex(
    r"(^|/)(pyproject\.toml|setup\.cfg|tox\.ini|pytest\.(ini|toml)|\.?pytest\.ini|\.coveragerc|mypy\.ini|\.mypy\.ini|\.flake8|\.?ruff\.toml|\.pylintrc|pylintrc|pyrightconfig\.json|"
    r"tsconfig[\w.-]*\.json|package\.json|\.eslintrc[\w.]*|\w+\.(config|conf)\.[cm]?[jt]s(on)?|\.nycrc(\.json)?|\.c8rc(\.json)?|"
    r"biome\.jsonc?|\.golangci\.(ya?ml|toml)|\.?codecov\.ya?ml|pom\.xml|build\.gradle(\.kts)?|Cargo\.toml|clippy\.toml|\.mocharc[\w.]*|sonar-project\.properties|"
    r"\.pre-commit-config\.yaml|\.bandit|deno\.jsonc?|\.stylelintrc[\w.]*|tslint\.json|checkstyle\.xml|\.(eslint|stylelint|prettier|coverage|bandit|pylint)ignore)$"
)
_PIPELINE = regex(
    r"(^|/)\.(github/workflows|circleci|buildkite|woodpecker)/"
    r"|(^|/)(\.gitlab-ci\.ya?ml|\.travis\.ya?ml|azure-pipelines\.ya?ml|Jenkinsfile|bitbucket-pipelines\.yml|\.drone\.yml)$"
)
_RECIPE = regex(r"(^|/)(GNU)?([Mm]akefile|[Jj]ustfile)$|\.mk$|(^|/)package\.json$")
_OTHER = regex(
    r"(^|/)(\.github|\.config|\.husky|ci)/|(^|/)rakefile$|\.(sh|bash|zsh|ini|cfg|toml|gradle|kts|mk)$|(^|/)\.[\w-]+rc(\.\w+)?$"
    r"|(^|/)(jest|babel|nx|turbo|lerna|\.swcrc)\.jsonc?$|(^|/)(go\.mod|go\.work|lefthook\.ya?ml|taskfile\.ya?ml|appveyor\.ya?ml)$"
    r"|(^|/)[\w.-]*\.config\.\w+$|(^|/)(tox|noxfile|conftest|setup)\.\w+$|(^|/)\.golangci\.json$|(^|/)\.pre-commit-config\.yml$"
    r"|(^|/)(\.rspec|\.rubocop[\w.-]*\.yml|phpunit\.xml(\.dist)?|phpstan[\w.-]*|psalm\.xml|detekt\.yml|\.clang-tidy|\.editorconfig)$",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class FileChange:
    """One file in the tree before the run and in the tree now; None if it is absent. Binary files have neither."""

    path: str
    old: str | None
    new: str | None
    renamed_from: str | None = None


def detect_language(path: str) -> str | None:
    """The language a file is written in, also if the name got another ending (`test_x.py.bak`)."""
    parts = path.rsplit("/", 1)[-1].split(".")[1:]
    return next((_LANGUAGES[part] for part in reversed(parts) if part in _LANGUAGES), None)


def is_ignored(path: str) -> bool:
    """Code of others, build products and lock files."""
    return bool(_VENDORED.search(path))


def is_handwritten(path: str, text: str) -> bool:
    """Whether the file is written by hand. Tests always count, or else one comment could hide them."""
    generated = _GENERATED_PATH.search(path) or _GENERATED_TEXT.search(text[:_HEADER])
    return len(text) <= LARGEST and not is_ignored(path) and (is_test_path(path) or not generated)


def is_collected(path: str) -> bool:
    """Whether a test runner would find tests in the file by its name."""
    pattern = _COLLECTED.get(detect_language(path) or "")
    named_in_full = path.rsplit(".", 1)[-1] in _LANGUAGES
    return bool(pattern and named_in_full and pattern.search(path) and not _PUT_AWAY.search(path))


def is_judge_file(path: str) -> bool:
    """Whether a file decides what passes. Everything else is the product, in whatever language."""
    kinds = (is_test_path, is_build_code, is_tool_settings, is_pipeline, is_recipe)
    return any(is_kind(path) for is_kind in kinds) or bool(_OTHER.search(path))


def is_test_path(path: str) -> bool:
    """Whether the file belongs to the tests: cases, fixtures, helpers."""
    return bool(_TEST_PATH.search(path))


def is_build_code(path: str) -> bool:
    """Whether the file is code that configures tools and is not part of the product."""
    return bool(_BUILD_CODE.search(path))


def is_tool_settings(path: str) -> bool:
    """Whether the file has settings of tests, linters, types, coverage or the build that the guards can read."""
    return bool(_TOOL_SETTINGS.search(path))


def is_pipeline(path: str) -> bool:
    """Whether the file says what continuous integration runs."""
    return bool(_PIPELINE.search(path))


def is_recipe(path: str) -> bool:
    """Whether a build tool finds the file by its name, and takes from it what a target or script runs."""
    return bool(_RECIPE.search(path))


def make_finding(rule: Rule, path: str, line: int, sentence: str, excerpt: str = "", *, warn: bool = False) -> Finding:
    """A finding with its excerpt capped."""
    severity = Severity.WARNING if warn else Severity.ERROR
    return Finding(
        rule=rule,
        path=path,
        line=max(line, 1),
        sentence=sentence,
        severity=severity,
        excerpt=" ".join(excerpt.split())[:_LONGEST_EXCERPT],
    )


def find_gained(before: Iterable[_T], now: Iterable[_T], key: Callable[[_T], object] = lambda one: one) -> Iterator[_T]:
    """What is there now and was not before, or not as often."""
    known = Counter(map(key, before))
    for one in now:
        known[key(one)] -= 1
        if known[key(one)] < 0:
            yield one
