"""The map of the code names files and functions that exist."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^\| `(?P<file>[\w/]+\.py)` \| `(?P<function>\w+)` \|", re.MULTILINE)


def test_every_step_of_the_walks_names_a_function_of_that_file() -> None:
    steps = ROW.findall((ROOT / "docs/architecture.md").read_text())
    assert len(steps) > 40
    unknown = [f"{file}: {function}" for file, function in steps if function not in functions_of(file)]
    assert unknown == []


def test_every_name_in_the_text_of_the_walks_exists() -> None:
    page = (ROOT / "docs/architecture.md").read_text()
    walks = page.partition("## Follow the code")[2].partition("## How nothing is lost")[0]
    quoted = set(re.findall(r"`([^`]+)`", walks))
    files = {name for name in quoted if name.endswith(".py")}
    assert [name for name in sorted(files) if not (ROOT / "src/ralph" / name).exists()] == []
    names = {
        name for name in quoted if re.fullmatch(r"(?:[A-Z]\w+\.)?_?[A-Za-z]+_\w+|[A-Z][a-z]+(?:[A-Z][a-z]+)+", name)
    }
    assert len(names) > 50
    defined = names_of_source()
    unknown = [name for name in sorted(names) if not set(name.split(".")) <= defined]
    assert unknown == []


def test_no_walk_is_longer_than_fifteen_steps() -> None:
    walks = (ROOT / "docs/architecture.md").read_text().split("\n### ")[1:]
    assert [len(ROW.findall(walk)) for walk in walks if len(ROW.findall(walk)) > 15] == []


def test_every_package_is_on_the_map() -> None:
    page = (ROOT / "docs/architecture.md").read_text()
    packages = {path.parent.name for path in (ROOT / "src/ralph").glob("*/__init__.py")}
    assert [name for name in sorted(packages) if f"`{name}`" not in page] == []


DEFINED = re.compile(
    r"^\s*(?:(?:async )?def |class |(?=[\w, ]+(?::[^=\n]+)? = )|(?=\w+: ))(\w+(?:, \w+)*)", re.MULTILINE
)


def names_of_source() -> set[str]:
    """Everything that the source defines: functions, classes, constants and fields."""
    texts = [path.read_text() for path in (ROOT / "src/ralph").rglob("*.py")]
    return {name for text in texts for names in DEFINED.findall(text) for name in names.split(", ")}


def functions_of(file: str) -> set[str]:
    path = ROOT / "src/ralph" / file
    if not path.exists():
        return set()
    tree = ast.parse(path.read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
