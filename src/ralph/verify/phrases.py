"""What people say instead of a command ("tests pass", "no lint errors"), resolved from what a repository has."""

import re
from dataclasses import dataclass
from pathlib import Path

from ralph.verify.toolchains import Found, Kind, commands_for

_GOOD = r"(?:pass|passes|passing|succeeds?|green|ok|clean)"
_BAD = r"(?:errors?|issues|problems|violations|failures)"
_PHRASES = {
    Kind.TESTS: rf"(?:tests|test (?:suite|run|cases)) {_GOOD}|no (?:failing|failed|broken) tests?"
    r"|no tests? (?:fail|failures)|passing tests",
    Kind.LINT: rf"(?:lint|linting|linter|lints|ruff|flake8|pylint|eslint|clippy) {_GOOD}|passes lint(?:ing)?|lint free"
    rf"|no (?:lint|linting|linter|ruff|flake8|pylint|eslint|clippy) {_BAD}",
    Kind.TYPES: rf"types? ?check(?:s|ed|ing)?(?: {_GOOD})?|types {_GOOD}|(?:mypy|pyright|tsc) {_GOOD}"
    rf"|no (?:type|types|typing|type ?checking|typescript|mypy|pyright|tsc) {_BAD}",
    Kind.BUILD: rf"builds|builds? {_GOOD}|compiles|no (?:build|compile|compiler|compilation) {_BAD}",
    Kind.FORMAT: rf"(?:well )?formatted|format(?:ting)?(?: check)? {_GOOD}|no format(?:ting)? {_BAD}",
}
_FILLERS = re.compile(
    r"the|all|our|my|a|of|its?|is|are|be|still|now|again|there|any|every|everything|should|must|unit|code|project|program|app|repo"
    r"|repository|package|codebase|existing|whole|entire|full|remaining|successfully|cleanly|correctly|properly"
)
_TOOLS = re.compile(r"ruff|flake8|pylint|eslint|clippy|mypy|pyright|tsc")
_LANGUAGES = {
    "python": "python",
    **dict.fromkeys(("javascript", "js", "typescript", "ts", "node"), "javascript"),
    **dict.fromkeys(("go", "golang"), "go"),
    "rust": "rust",
    "java": "java",
}


@dataclass(frozen=True)
class Resolved:
    """A phrase that was understood, and what the repository has for it: nothing, one command, or one for each language."""

    kind: Kind
    found: tuple[Found, ...]


EXAMPLES = {
    Kind.TESTS: "tests pass",
    Kind.LINT: "no lint errors",
    Kind.TYPES: "no type errors",
    Kind.BUILD: "it builds",
    Kind.FORMAT: "well formatted",
    Kind.COVERAGE: "coverage >= 80%",
}
"""A phrase of each kind, as users write it."""


def phrases_here(root: Path) -> list[tuple[str, str]]:
    """What each phrase would run in this repository; the command is empty if there is none."""
    found = {kind: commands_for(kind, root) for kind in EXAMPLES}
    return [(phrase, " and ".join(one.command for one in found[kind])) for kind, phrase in EXAMPLES.items()]


def resolve(phrase: str, root: Path) -> Resolved | None:
    """What a phrase means in this repository; None where it is no phrase that Ralph knows."""
    words = [
        word
        for word in re.findall(r"[\w'-]+", re.sub(r"\b(?:0|zero)\b", "no", phrase.lower()))
        if not _FILLERS.fullmatch(word)
    ]
    if re.search(r"[^\w\s'.!-]", phrase) or len(words) > 6 or re.match(r"go (?:test|build)\b", " ".join(words)):
        return None
    language = next((_LANGUAGES[word] for word in words if word in _LANGUAGES), "")
    for said in (words, [word for word in words if word not in _LANGUAGES]):
        for kind, form in _PHRASES.items():
            if re.fullmatch(form, " ".join(said)):
                tool = next((word for word in said if _TOOLS.fullmatch(word)), "")
                return Resolved(kind, commands_for(kind, root, language, tool))
    return None
