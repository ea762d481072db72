"""Which files judge the work, and which are the work."""

import pytest

from ralph.core.checks import CheckResult, CheckStatus, Verdict
from ralph.core.findings import Rule
from ralph.verify.counterproof import _PARENT, _still_red
from ralph.verify.judge_files import is_judge_file

JUDGES = [
    *("tests/test_a.py", "src/a.test.ts", "pkg/a_test.go", "src/test/java/ATest.java", "spec/a_spec.rb", "conftest.py"),
    *("Makefile", "package.json", "pyproject.toml", "setup.cfg", "pytest.ini", "tsconfig.json", "vitest.config.ts"),
    *("Cargo.toml", "pom.xml", "build.gradle", "go.mod", ".eslintrc.json", ".coveragerc", ".github/workflows/ci.yml"),
    *("check.sh", "tests/fixtures/data.json", ".travis.yml", ".pre-commit-config.yaml", ".golangci.yml", ".flake8"),
    *(
        "Jenkinsfile",
        "biome.jsonc",
        "pyrightconfig.json",
        ".rubocop.yml",
        "phpunit.xml",
        "azure-pipelines.yml",
        "codecov.yml",
    ),
]
WORK = [
    *("src/main.c", "lib/a.rb", "app/models/user.php", "a.py", "src/index.ts", "cmd/main.go", "src/lib.rs", "App.java"),
    *("data/prices.json", "templates/mail.html", "README.md", "schema.sql", "Main.hs", "lib/a.ex"),
]


@pytest.mark.parametrize("path", JUDGES)
def test_tests_and_settings_judge(path: str) -> None:
    assert is_judge_file(path)


@pytest.mark.parametrize("path", WORK)
def test_everything_else_is_the_work_in_whatever_language(path: str) -> None:
    assert not is_judge_file(path)


def verdict(*failing: str) -> Verdict:
    status = CheckStatus.FAILED if failing else CheckStatus.PASSED
    return Verdict((CheckResult("`make` passes", status, 0.1, failing=failing),))


@pytest.mark.parametrize(
    ("failing", "red", "found"),
    [
        (("a",), {"a", "b"}, ["a"]),
        (("a", "c"), {"a", "b"}, []),
        (("c",), {"a"}, []),
        ((), {"a"}, []),
    ],
)
def test_only_what_was_red_and_nothing_else_may_still_be(
    failing: tuple[str, ...], red: set[str], found: list[str]
) -> None:
    """What else fails may fail for other reasons: a renamed function, a thing that the copy of the tree does not have."""
    findings = _still_red(verdict(*failing), red)
    assert [finding.path for finding in findings] == found
    assert all(finding.rule is Rule.VERIFIER_EDITED for finding in findings)


@pytest.mark.parametrize(
    ("command", "leaves"),
    [
        ("go test ./...", False),
        ("go test ./... && go vet ./...", False),
        ("git diff main...HEAD", False),
        ("seq 1..3", False),
        ("cd .. && make", True),
        ("../check.sh", True),
        ("pytest --rootdir=../other", True),
        ("sh a/../../b.sh", True),
        ("cd ..", True),
    ],
)
def test_only_a_path_leads_out_of_the_workspace(command: str, leaves: bool) -> None:
    assert bool(_PARENT.search(command)) is leaves
