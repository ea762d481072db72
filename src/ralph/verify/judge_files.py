"""Judge files: the files that decide what passes. Tests, the settings of tools, build recipes and pipelines.

This is the one list. The guards, the counter-proof and the record of held-up trees all ask here.
"""

import re

from ralph.core.patterns import regex

_TEST = regex(
    r"(^|/)(tests?|__tests__|specs?|e2e|cypress|testdata|__snapshots__|integration[-_]tests?|test[-_]?(utils?|helpers?|support|kit))/"
    r"|(^|/)(test_[^/]*|[^/]*_(test|spec)|[^/]*[._-](test|spec|cy|e2e)|[^/]*[a-z0-9](Test|Tests|IT|Spec|TestCase))\.\w+$"
    r"|(^|/)(conftest|tests?)\.py$|(jest|vitest)[.-]setup"
)
_BUILD_CODE = regex(
    r"\.(config|conf|setup)\.[cm]?[jt]s$|(^|/)(setup|noxfile|conftest|tasks|fabfile|build)\.(py|rs)$|(^|/)\.\w+rc\."
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


def is_judge_file(path: str) -> bool:
    """Whether a file decides what passes. Everything else is the product, in whatever language."""
    kinds = (is_test_path, is_build_code, is_tool_settings, is_pipeline, is_recipe)
    return any(is_kind(path) for is_kind in kinds) or bool(_OTHER.search(path))


def is_test_path(path: str) -> bool:
    """Whether the file belongs to the tests: cases, fixtures, helpers."""
    return bool(_TEST.search(path))


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
