"""Commands: which checks a text of shell commands runs, on what, and whether another text asks as much.

A command may be wrapped, renamed by a variable, given more arguments or replaced by another tool of its kind; what
counts is that every kind of check is still run, on no less, and that its failure still counts.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ralph.core.patterns import regex
from ralph.verify.guards.changes import gained

_KINDS = {
    "tests": r"pytest|py\.test|unittest|tox|nox|jest|vitest|mocha|ava|karma|bats|playwright|cypress|rspec|ctest|node --test|mvnw?|gradlew?|"
             r"(?:go|cargo|bun|deno|dotnet|swift|manage\.py) test|cargo nextest|(?:npm|yarn|pnpm|bun) (?:t|test\S*)|run_tests\S*",
    "lint": r"ruff|flake8|pylint|eslint|golangci-lint|staticcheck|go vet|cargo clippy|shellcheck|biome|oxlint|bandit",
    "types": r"mypy|dmypy|pyright|basedpyright|pyre|ty check|(?:vue-)?tsc|svelte-check|cargo check",
    "format": r"black|isort|prettier|cargo fmt|rustfmt|gofmt",
    "coverage": r"coverage report|nyc|c8",
}  # fmt: skip
_TOOL = regex(r"(?<![\w.:-])(?:" + "|".join(f"(?P<{kind}>{tools})" for kind, tools in _KINDS.items()) + r")(?![\w.:=-])")  # fmt: skip
_NAMED = regex(
    r"\b(?:npm|yarn|pnpm|bun|make|just|turbo|nx|lerna|task|inv|invoke|poe|rake|hatch|pdm)(?: run)? (?P<name>[\w:-]+)"
)
_MEANINGS = {"test": "tests", "lint": "lint", "type": "types", "format": "format", "fmt": "format"}
"""What recipes and scripts are for, by a part of their names."""
_SCRIPT = regex(r"(?:\./)?([\w./-]+\.(?:sh|bash|py|js|mjs))\b")
_PLUMBING = regex(
    r"(cd|echo|printf|mkdir|export|set|source|\.|local|if|then|elif|else|fi|for|do|done|while|case|esac|function|return|exit|trap|rm|cp|mv|cat|"
    r"touch|sleep|shift|read|import|from|def|class|on|jobs|steps|name|uses|with|pip|uv|apt-get|docker|git|time|\W.*|\w+=.*|\w+\(\)|.*:)$"
)
_NO_CHECK = regex(r"\b(install|add|which|--version|command -v|cache|echo|printf)\b|^-? *(name|uses|image|key|path)\s*:|^#")  # fmt: skip
_GOALS = regex(r"(?<!-)\b(test|verify|check|build|install|package|integrationTest)\b")
_SPECIFIC = regex(r"/|::|\.\w+$")
NEUTRAL = regex(
    r"\|\|\s*(?:true|:|exit 0|echo\b)|;\s*(?:true|exit 0|:)\s*(?:$|[\"'])|&\s*exit 0|^\s*set \+\w*e|(?:^|\s)(?:exit|return) 0\s*$|"
    r"continue-on-error:\s*true|allow_failure:\s*true|^\s*(?:- )?if:\s*(?:\$\{\{ *)?[\"']?false|trap\s.*exit 0|--exit-zero|"
    r"when:\s*(?:manual|never)|^-\w"
)  # fmt: skip
"""What makes a failure not count."""
_FLAGS = regex(
    r"--ignore(?:-glob)?[= ]\S+|--deselect[= ]\S+|(?<!\S)-k[= ]|-m[= ]\S*[\"']?not\b|--no-cov\b|-p[= ]no:(?!cacheprovider)\w+|--co\b|--collect-only|"
    r"--continue-on-collection-errors|--testPath\w+|--onlyChanged|--changedSince|--findRelatedTests|--passWithNoTests|--exclude\b|--skip\b|--no-verify|-DskipTests\S*|-Dmaven\.test\.\S+|"
    r"-x test\b|--maxfail|--suppress-no-test-exit-code|--exit-zero|--no-fail\S*|--quiet-errors|--allow-empty|--pass-with-no-tests|"
    r"--no-error-on-unmatched-pattern|--testNamePattern|(?<!\S)-t |--grep\b|--lib\b|--runxfail|-run[= ]|-short\b"
)  # fmt: skip
_DEMANDS = regex(
    r"--strict\S*|-W[= ]?error\S*|--cov-fail-under[= ]\d+|--cov[= ]\S+|--cov\b|--max-warnings[= ]\S+|--maxWarnings\S*|--doctest-modules|-race\b|--check\b|-D warnings"
)
_PRODUCTS = regex(r"node_modules|(^|/|=)\.?(dist|build|vendor|venv|out|coverage|generated|migrations|target)\b")
_SEVERAL = 2
"""As many steps that do parts of one are taken to do the whole."""


@dataclass(frozen=True)
class Step:
    """One check that is run."""

    text: str
    kind: str
    paths: frozenset[str] = frozenset()

    @property
    def is_known(self) -> bool:
        """Whether it runs a tool that checks, and not just any program."""
        return self.kind in _KINDS

    def covers(self, other: "Step") -> bool:
        """Whether it checks all that another of its kind checked."""
        if not other.paths:
            return not any(map(_SPECIFIC.search, self.paths))
        return not self.paths or all(any(_within(path, own) for own in self.paths) for path in other.paths)


def _within(path: str, own: str) -> bool:
    return own in (".", "./...", path) or path.startswith(own.rstrip("/") + "/") or not _SPECIFIC.search(path + own)


def lines_of(text: str) -> list[str]:
    """The commands of a text, without comments, continued lines joined."""
    joined = re.sub(r"\\\n\s*", " ", text)
    lines = (re.sub(r"(^|\s)#.*", "", line).strip().lstrip("@") for line in joined.splitlines())
    return [" ".join(line.split()) for line in lines if line]


def steps(lines: Sequence[str]) -> Iterator[Step]:
    """The checks that lines run."""
    for part in (part.strip() for line in lines for part in re.split(r"&&|;", line)):
        if not part or _NO_CHECK.search(part):
            continue
        if tool := _TOOL.search(part):
            goals = re.match(r"mvn|gradle", tool[0])
            arguments = re.split(r"[|>&]", part[tool.end() :])[0].split()
            if not goals or _GOALS.search(part):
                yield Step(part, str(tool.lastgroup), frozenset(() if goals else _paths(arguments)))
        elif named := _NAMED.search(part):
            meant = (kind for word, kind in _MEANINGS.items() if word in named["name"])
            yield Step(part, next(meant, named["name"]))
        elif script := _SCRIPT.search(part):
            yield Step(part, script[1])
        elif not _PLUMBING.match(part.split()[0]):
            yield Step(part, part.split()[0])


def _paths(arguments: list[str]) -> Iterator[str]:
    for before, word in pairwise(["", *(word.strip("'\"") for word in arguments)]):
        is_operand = word[:1] not in ("", "-", "$") and "=" not in word and (before[:1] != "-" or "/" in word)
        if is_operand and word not in ("run", "check", "test", "."):
            yield word


def eased(was: Sequence[str], now: Sequence[str]) -> Iterator[str]:
    """Lines, flags and checks by which commands ask for less than before."""
    yield from (line for line in gained(was, now) if NEUTRAL.search(line) and _counts(line, was))
    yield from lost_flags("\n".join(was), "\n".join(now))
    if not any("pipefail" in line for line in now):
        yield from (line for line in now if line not in was and re.search(r"[^|]\|[^|]", line) and runs_check(line))
    stops, stop = (any(re.match(r"set -\w*e|set -o errexit", line) for line in lines) for lines in (was, now))
    if stops and now and not stop:
        yield "set -e is gone"


def _counts(line: str, was: Sequence[str]) -> bool:
    """Whether a failure that a line drops was one that counted: of a check, or of what ran before."""
    bare = NEUTRAL.sub("", line).strip(" ;-'\"")
    return not bare or runs_check(line) or (bool(was) and ":" in line) or any(bare in old for old in was)


def runs_check(line: str) -> bool:
    """Whether a line runs a check."""
    return any(step.is_known for step in steps([line]))


def lost(was: Sequence[str], now: Sequence[str]) -> Iterator[Step]:
    """Checks that are no longer run, or on less."""
    current: dict[str, list[Step]] = {}
    for other in dict.fromkeys(steps(now)):
        current.setdefault(other.kind, []).append(other)
    for step in dict.fromkeys(steps(was)):
        others = current.get(step.kind, [])
        parts = [other for other in others if any(_within(path, own) for path in other.paths for own in step.paths)]
        if len(parts) < _SEVERAL and not any(other.covers(step) for other in others):
            yield step


def lost_flags(was: str, now: str) -> Iterator[str]:
    """Flags that leave something out, or that no longer insist."""
    more = gained(_FLAGS.findall(was), _FLAGS.findall(now))
    yield from (flag.strip() for flag in more if not _PRODUCTS.search(flag))
    limit = max(map(int, re.findall(r"--cov-fail-under[= ](\d+)", now)), default=-1)
    for flag in (flag for flag in _DEMANDS.findall(was) if flag not in now):
        if "fail-under" not in flag or limit < int(re.split("[= ]", flag)[1]):
            yield flag
