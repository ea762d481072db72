"""Files that are product and judge at once: only the part that decides what passes is put back."""

import json
import tomllib

import pytest

from ralph.verify.changed_files import FileChange
from ralph.verify.judge_parts import restore_judge_part, touches_judge_part

PACKAGE = {
    "name": "shop",
    "scripts": {"test": "vitest run"},
    "dependencies": {"left": "^1.0.0"},
    "devDependencies": {"vitest": "^3.0.0"},
}
PYPROJECT = """\
[project]
name = "shop"
dependencies = ["click"]

[tool.pytest.ini_options]
addopts = "-ra"  # short

[tool.hatch.build]
include = ["src"]
"""
CARGO = """\
[package]
name = "shop"

[dependencies]
serde = "1"

[workspace]
members = ["a", "b"]
"""
GO_MOD = "module shop\n\ngo 1.22\n\nrequire example.com/check v1.0.0\n"
POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <properties><maven.compiler.release>17</maven.compiler.release></properties>
  <modules><module>core</module></modules>
  <build><plugins>
    <plugin><artifactId>maven-surefire-plugin</artifactId><version>3.2.5</version></plugin>
  </plugins></build>
</project>
"""
RUST = """\
pub fn double(n: i64) -> i64 { n + n }

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles() {
        assert_eq!(double(2), 4); // }
    }
}
"""
VITEST = """\
export const double = (n: number) => n + n
if (import.meta.vitest) {
  const { it, expect } = import.meta.vitest
  it('doubles', () => { expect(double(2)).toBe(4) })
}
"""


def change_package(**changes: object) -> FileChange:
    return FileChange("web/package.json", json.dumps(PACKAGE), json.dumps({**PACKAGE, **changes}))


@pytest.mark.parametrize(
    "change",
    [
        change_package(version="2.0.0", dependencies={"left": "^2.0.0", "right": "file:../right"}),
        FileChange("pyproject.toml", PYPROJECT, PYPROJECT.replace('"click"', '"click", "rich"').replace("src", "lib")),
        FileChange("Cargo.toml", CARGO, CARGO.replace("[workspace]", 'log = "0.4"\n\n[workspace]')),
        FileChange("Cargo.toml", CARGO, CARGO.replace('"b"', '"b", "c"')),
        FileChange("go.mod", GO_MOD, GO_MOD.replace("v1.0.0", "v1.2.0")),
        FileChange("pom.xml", POM, POM.replace(">17<", ">21<")),
        FileChange("src/lib.rs", RUST, RUST.replace("n + n", "2 * n")),
        FileChange("src/lib.rs", RUST, RUST.replace("    #[test]", "    #[test]\n    fn zero() {}\n\n    #[test]", 1)),
        FileChange("src/double.ts", VITEST, VITEST.replace("n + n", "2 * n")),
        FileChange("src/double.ts", VITEST, VITEST.replace("  it(", "  it('more', () => {})\n  it(")),
    ],
    ids=lambda change: change.path,
)
def test_work_on_the_product_part_leaves_the_judge_part(change: FileChange) -> None:
    assert not touches_judge_part(change)


def test_scripts_of_a_package_go_back_and_its_dependencies_stay() -> None:
    change = change_package(scripts={"test": "true", "pretest": "x"}, dependencies={"left": "^2.0.0"})
    restored = json.loads(restore_judge_part(change) or "")
    assert touches_judge_part(change)
    assert restored["scripts"] == PACKAGE["scripts"]
    assert restored["dependencies"] == {"left": "^2.0.0"}


def test_test_runner_from_another_place_goes_back() -> None:
    change = change_package(devDependencies={"vitest": "file:./fake"})
    assert json.loads(restore_judge_part(change) or "")["devDependencies"] == {"vitest": "^3.0.0"}


def test_settings_of_tools_go_back_and_dependencies_stay() -> None:
    new = PYPROJECT.replace("-ra", "--deselect tests").replace('"click"', '"rich"')
    new += '\n[tool.mypy]\nignore_errors = true\n\n[project.entry-points.pytest11]\nshop = "shop.plugin"\n'
    restored = tomllib.loads(restore_judge_part(FileChange("pyproject.toml", PYPROJECT, new)) or "")
    assert restored["project"] == {"name": "shop", "dependencies": ["rich"]}
    assert restored["tool"] == tomllib.loads(PYPROJECT)["tool"]


def test_tests_and_members_of_a_crate_go_back() -> None:
    new = CARGO.replace('"1"', '"2"').replace('"a", "b"', '"a", "c"').replace('"shop"', '"shop"\nautotests = false')
    new += 'exclude = ["b"]\n'
    restored = tomllib.loads(restore_judge_part(FileChange("Cargo.toml", CARGO, new)) or "")
    assert restored["package"] == {"name": "shop"}
    assert restored["dependencies"] == {"serde": "2"}
    assert restored["workspace"] == {"members": ["a", "c", "b"]}


@pytest.mark.parametrize(
    "added", ["replace example.com/check => ./fake\n", "replace (\n\texample.com/check => ./fake\n)\n"]
)
def test_replaced_package_of_go_goes_back(added: str) -> None:
    new = GO_MOD.replace("v1.0.0", "v1.2.0") + added
    restored = restore_judge_part(FileChange("go.mod", GO_MOD, new)) or ""
    assert "v1.2.0" in restored and "fake" not in restored


def test_test_settings_of_maven_are_restored() -> None:
    skipped = "<version>3.2.5</version><configuration><skipTests>true</skipTests></configuration>"
    new = POM.replace("<version>3.2.5</version>", skipped).replace(">17<", ">21<").replace("core", "other")
    new = new.replace("</properties>", "<maven.test.skip>true</maven.test.skip></properties>")
    restored = restore_judge_part(FileChange("pom.xml", POM, new)) or ""
    assert "skip" not in restored and "other" not in restored
    assert "<module>core</module>" in restored and ">21<" in restored and "3.2.5" in restored


@pytest.mark.parametrize(
    "new",
    [
        RUST.replace("double(2), 4", "1, 1"),
        RUST.replace("    #[test]", "    #[test]\n    #[ignore]"),
        RUST.replace("use super::*;", "use super::*;\n    macro_rules! assert_eq { ($($x:tt)*) => {} }"),
        RUST.split("#[cfg")[0],
    ],
    ids=["weakened", "ignored", "another macro", "removed"],
)
def test_tests_in_a_rust_file_go_back_and_its_code_stays(new: str) -> None:
    change = FileChange("src/lib.rs", RUST, new.replace("n + n", "2 * n"))
    assert touches_judge_part(change)
    restored = restore_judge_part(change) or ""
    assert " ".join(restored.split()) == " ".join(RUST.replace("n + n", "2 * n").split())


def test_tests_in_a_script_go_back_and_its_code_stays() -> None:
    change = FileChange("src/double.ts", VITEST, VITEST.replace("toBe(4)", "toBe(5)").replace("n + n", "2 * n"))
    assert restore_judge_part(change) == VITEST.replace("n + n", "2 * n")


@pytest.mark.parametrize(
    "change",
    [
        FileChange("package.json", json.dumps(PACKAGE), "{"),
        FileChange("pyproject.toml", PYPROJECT, "[tool"),
        FileChange("pom.xml", POM, "<project>"),
        FileChange("src/lib.rs", RUST, RUST.replace("fn double(", "fn double((")),
        FileChange("package.json", None, "{}"),
        FileChange("package.json", "{}", None),
    ],
    ids=["json", "toml", "xml", "rust", "new", "deleted"],
)
def test_file_that_cannot_be_split_counts_as_a_whole(change: FileChange) -> None:
    assert restore_judge_part(change) is None
    assert touches_judge_part(change)
