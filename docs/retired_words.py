"""Fail if a retired word or name is back: `python docs/retired_words.py`, part of `make check`.

Words are searched in the source, in the names of tests, in the docs and in the prompts. Names are
searched in the source alone. To retire a word, bring it to zero and add it here with the reason and a replacement.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
QUOTING = ("CHANGELOG.md", "session-walkthrough.md")
"""Pages that quote what others wrote: older releases, and the scripted agent of the example session."""


class Retired(NamedTuple):
    """A word that is not used any more."""

    pattern: str
    reason: str
    instead: str


WORDS = (
    Retired(r"\ba person\b", "says less than who is meant", "the user"),
    Retired(r"\bin earnest\b", "idiom", "say what takes effect"),
    Retired(r"\bmend(s|ed|ing)?\b", "old-fashioned", "fix, or repair"),
    Retired(r"\bheed(s|ed|ing)?\b", "old-fashioned", "honor, follow, or apply"),
    Retired(r"\bwhoever\b", "hides who acts", "name the role or the component"),
    Retired(r"\bfurnish(es|ed|ing)?\b", "metaphor", "set up"),
    Retired(r"\b(desk|sieve|tellers|spoilt|hearing)\b", "metaphor", "the standard word of the field"),
    Retired(r"\bwhat is told\b", "unclear", "what is reported"),
    Retired(r"\b(came|comes) of\b", "idiom", "the result of"),
    Retired(r"\bput right\b", "idiom", "repair"),
    Retired(r"\b(goes|go|went) on\b(?! success)", "idiom", "continue"),
    Retired(r"\b(None|empty|none|nothing|only) where (it|there|that|they|nothing|none|no)\b", "translated", "if"),
    Retired(r"\bby somebody else\b", "hides who acts", "name the process, or say: something other than Ralph"),
    Retired(r"\bso many\b", "unclear which number is meant", "name the number"),
    Retired(r"\bset-up\b", "spelling", "setup (noun), or set up (verb)"),
    Retired(r"\bplug-ins?\b", "spelling", "plugin"),
    Retired(r"\bunder way\b", "two words for one thing", "in progress"),
    Retired(r"\bno word from\b", "idiom", "say who reported nothing"),
    Retired(
        r"\bmaximum (minutes|seconds|hours) of\b", "unclear what is measured", "maximum duration of ..., in minutes"
    ),
)

TEST_NAME = re.compile(r"^test_(it|they|what|where|who|nor)_")
"""The beginning of a test name that cannot be understood without reading the test."""

NAMES = (
    Retired(
        r"^(UNHURRIED|_?vagueness|takers?|_?but|Crew|Way|shelf|bell|rings?)$", "metaphor or unclear", "a plain noun"
    ),
    Retired(r"^(crew|has_words|unheard|addressee|hands_over|Brought|has_metadata)$", "dialect", "a plain noun or verb"),
    Retired(r"^_?MOST_", "two words for a limit", "MAX_"),
    Retired(r"^(MergeQueue|Red|red_in|newly_red|is_red|LOOK|papers|rested)$", "metaphor or unclear", "a plain noun"),
    Retired(r"^(\w+_)?tries$", "two words for an attempt", "attempts"),
    Retired(r"^(TurnOutcome|decide_outcome)$", "it is what follows a turn, not its outcome", "FollowUp"),
    Retired(
        r"^(news_text|draw_lesson|copy_lent_files|LeftQueue|by_defaults|shortest|too_few|doubt_of_line|FEWEST_\w+)$",
        "metaphor or unclear",
        "a plain verb phrase or noun",
    ),
    Retired(r"^(ways|option)_to_go_on$", "idiom", "to continue"),
    Retired(
        r"^(results|failure|findings|verification|lessons|tried|changes)_text$", "a noun for a function", "render_..."
    ),
    Retired(r"^(state|queue|current_loop)_json$", "a noun for a function", "render_..."),
    Retired(
        r"^(HatStep|refuse_claimed|unqueue_attempt|keep_snapshot|makes_tree|is_in|most_resolves|shares_tree)$",
        "misleading",
        "a plain name",
    ),
)

PARTICIPLES = frozenset(
    (
        *("told", "said", "kept", "given", "found", "left", "taken", "done", "seen", "known", "shown"),
        *("heard", "made", "written", "begun", "meant", "spent", "held", "lost", "chosen"),
    )
)
VERBS = frozenset(("feed", "need", "speed", "embed", "seed", "exceed", "proceed", "succeed"))


class Fault(NamedTuple):
    """A retired word, and where it is."""

    path: Path
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}: {self.what}"


def find_words(path: Path) -> Iterator[Fault]:
    """The retired words in the text of a file."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        for word in WORDS:
            if found := re.search(word.pattern, line, re.IGNORECASE):
                yield Fault(path, number, f"`{found[0]}` is retired ({word.reason}); write: {word.instead}")


def find_names(path: Path, tree: ast.Module) -> Iterator[Fault]:
    """The retired names that a module defines: functions, classes, parameters and variables."""
    for node in ast.walk(tree):
        name, line = defined_name(node), getattr(node, "lineno", 0)
        for retired in NAMES:
            if name and re.search(retired.pattern, name):
                yield Fault(path, line, f"the name `{name}` is retired ({retired.reason}); use: {retired.instead}")
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and is_bare_participle(node):
            yield Fault(path, node.lineno, f"the function `{name}` is a bare participle; use a verb phrase")


def defined_name(node: ast.AST) -> str:
    """The name that a node of a syntax tree defines, if any."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return node.name
    if isinstance(node, ast.arg):
        return node.arg
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return node.id
    return ""


def is_bare_participle(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a function is named `judged` or `_told` alone. A property is a value, and may be."""
    name = function.name.strip("_")
    if any("property" in ast.unparse(decorator) for decorator in function.decorator_list):
        return False
    return name in PARTICIPLES or ("_" not in name and name.endswith("ed") and name not in VERBS)


def find_test_names(path: Path, tree: ast.Module) -> Iterator[Fault]:
    """The retired words in the names of tests, read as sentences."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.name.lower().startswith(
            "test"
        ):
            words = node.name.replace("_", " ")
            if TEST_NAME.match(node.name):
                yield Fault(path, node.lineno, f"`{node.name}` does not say what it tests; begin with a noun")
            for word in WORDS:
                if found := re.search(word.pattern, words, re.IGNORECASE):
                    yield Fault(path, node.lineno, f"`{found[0]}` in a test name is retired; write: {word.instead}")


def find_duplicate_classes(classes: dict[str, list[Fault]]) -> Iterator[Fault]:
    """Class names that more than one module defines. Private classes are not counted."""
    for name, places in sorted(classes.items()):
        if len(places) > 1 and not name.startswith("_"):
            others = ", ".join(f"{one.path.relative_to(ROOT)}:{one.line}" for one in places[1:])
            yield Fault(places[0].path, places[0].line, f"the class name `{name}` is also in {others}; rename one")


def find_faults() -> Iterator[Fault]:
    """Every fault in the repository."""
    classes: dict[str, list[Fault]] = {}
    for path in sorted((ROOT / "src").rglob("*.py")):
        yield from find_words(path)
        tree = ast.parse(path.read_text(encoding="utf-8"))
        yield from find_names(path, tree)
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                classes.setdefault(node.name, []).append(Fault(path, node.lineno, node.name))
    yield from find_duplicate_classes(classes)
    for path in sorted((ROOT / "tests").rglob("*.py")):
        yield from find_test_names(path, ast.parse(path.read_text(encoding="utf-8")))
    docs = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "src").rglob("*.md"), *ROOT.glob("*.md")]
    for path in sorted(one for one in docs if one.name not in QUOTING):
        yield from find_words(path)


def main() -> int:
    """Print every fault; the exit code is 1 if there is one."""
    faults = [str(fault) for fault in find_faults()]
    if faults:
        print("\n".join(faults), file=sys.stderr)
        print(f"{len(faults)} retired words or names; see docs/retired_words.py", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
