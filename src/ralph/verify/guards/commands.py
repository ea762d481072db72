"""Commands: which checks they run, through recipes and scripts, on what, and whether other commands ask as much.

A command may be wrapped, renamed by a variable, given more arguments or replaced by another tool of its kind. What
counts is that every kind of check still runs, on no less, and that its failure still counts.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from posixpath import normpath

from ralph.core.text import regex
from ralph.verify.changed_files import detect_language, find_gained, is_recipe, is_test_path
from ralph.verify.guards.settings import read_settings

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
_NO_CHECK = regex(r"(?<![\w./-])(install|add|which|command -v|cache|echo|printf)(?![\w/-])|--version\b|^-? *(name|uses|image|key|path)\s*:|^#")  # fmt: skip
"""What a command begins with that only names a tool, or installs it."""
_NOT_RUN = regex(r"^ (install|add|cache)(?![\w/-])|--version\b")
"""Arguments with which a tool checks nothing, such as `playwright install`."""
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
    r"--no-error-on-unmatched-pattern|--testNamePattern|(?:jest|vitest|(?:npm|yarn|pnpm|bun) (?:run )?test)\b[^\n|;&]*\s-t |--grep\b|--lib\b|--runxfail|-run[= ]|-short\b"
)  # fmt: skip
_DEMANDS = regex(
    r"--strict\S*|-W[= ]?error\S*|--cov-fail-under[= ]\d+|--cov[= ]\S+|--cov\b|--max-warnings[= ]\S+|--maxWarnings\S*|--doctest-modules|-race\b|--check\b|-D warnings"
)
_PRODUCTS = regex(r"node_modules|(^|/|=)\.?(dist|build|vendor|venv|out|coverage|generated|migrations|target)\b")
_SEVERAL = 2
"""As many steps that do parts of one are taken to do the whole."""


@dataclass(frozen=True)
class CheckStep:
    """One check that is run."""

    text: str
    kind: str
    paths: frozenset[str] = frozenset()

    @property
    def is_known(self) -> bool:
        """Whether it runs a tool that checks, and not just any program."""
        return self.kind in _KINDS

    def covers(self, other: "CheckStep") -> bool:
        """Whether it checks all that another of its kind checked."""
        if not other.paths:
            return not any(map(_SPECIFIC.search, self.paths))
        return not self.paths or all(any(_is_within(path, own) for own in self.paths) for path in other.paths)


def _is_within(path: str, own: str) -> bool:
    return own in (".", "./...", path) or path.startswith(own.rstrip("/") + "/") or not _SPECIFIC.search(path + own)


def split_commands(text: str) -> list[str]:
    """The commands of a text, without comments, continued lines joined."""
    joined = re.sub(r"\\\n\s*", " ", text)
    lines = (re.sub(r"(^|\s)#.*", "", line).strip().lstrip("@") for line in joined.splitlines())
    return [" ".join(line.split()) for line in lines if line]


def find_steps(lines: Sequence[str]) -> Iterator[CheckStep]:
    """The checks that lines run."""
    for part in (part.strip() for line in lines for part in re.split(r"&&|;", line)):
        tool = _TOOL.search(part)
        # Options such as `--cache-dir` and names such as `tests/add` come after the tool, and say nothing about it.
        if not part or _NO_CHECK.search(part[: tool.start()] if tool else part):
            continue
        if tool:
            goals = re.match(r"mvn|gradle", tool[0])
            if not goals and _NOT_RUN.search(part[tool.end() :]):
                continue
            arguments = re.split(r"[|>&]", part[tool.end() :])[0].split()
            if not goals or _GOALS.search(part):
                yield CheckStep(part, str(tool.lastgroup), frozenset(() if goals else _find_paths(arguments)))
        elif named := _NAMED.search(part):
            meant = (kind for word, kind in _MEANINGS.items() if word in named["name"])
            yield CheckStep(part, next(meant, named["name"]))
        elif script := _SCRIPT.search(part):
            yield CheckStep(part, script[1])
        elif not _PLUMBING.match(part.split()[0]):
            yield CheckStep(part, part.split()[0])


def _find_paths(arguments: list[str]) -> Iterator[str]:
    for before, word in pairwise(["", *(word.strip("'\"") for word in arguments)]):
        is_operand = word[:1] not in ("", "-", "$") and "=" not in word and (before[:1] != "-" or "/" in word)
        if is_operand and word not in ("run", "check", "test", "."):
            yield word


def find_eased(was: Sequence[str], now: Sequence[str]) -> Iterator[str]:
    """Lines, flags and checks by which commands ask for less than before."""
    yield from (line for line in find_gained(was, now) if NEUTRAL.search(line) and _counted_before(line, was))
    yield from find_lost_flags("\n".join(was), "\n".join(now))
    if not any("pipefail" in line for line in now):
        yield from (line for line in now if line not in was and re.search(r"[^|]\|[^|]", line) and runs_check(line))
    stops, stop = (any(re.match(r"set -\w*e|set -o errexit", line) for line in lines) for lines in (was, now))
    if stops and now and not stop:
        yield "set -e is gone"


def _counted_before(line: str, was: Sequence[str]) -> bool:
    """Whether a failure that a line drops was one that counted: of a check, or of what ran before."""
    bare = NEUTRAL.sub("", line).strip(" ;-'\"")
    return not bare or runs_check(line) or (bool(was) and ":" in line) or any(bare in old for old in was)


def runs_check(line: str) -> bool:
    """Whether a line runs a check."""
    return any(step.is_known for step in find_steps([line]))


def find_lost_steps(was: Sequence[str], now: Sequence[str]) -> Iterator[CheckStep]:
    """Checks that are no longer run, or on less."""
    current: dict[str, list[CheckStep]] = {}
    for other in dict.fromkeys(find_steps(now)):
        current.setdefault(other.kind, []).append(other)
    for step in dict.fromkeys(find_steps(was)):
        others = current.get(step.kind, [])
        parts = [other for other in others if any(_is_within(path, own) for path in other.paths for own in step.paths)]
        if len(parts) < _SEVERAL and not any(other.covers(step) for other in others):
            yield step


def find_lost_flags(was: str, now: str) -> Iterator[str]:
    """Flags that leave something out, or that no longer insist."""
    more = find_gained(_FLAGS.findall(was), _FLAGS.findall(now))
    yield from (flag.strip() for flag in more if not _PRODUCTS.search(flag))
    limit = max(map(int, re.findall(r"--cov-fail-under[= ](\d+)", now)), default=-1)
    for flag in (flag for flag in _DEMANDS.findall(was) if flag not in now):
        if "fail-under" not in flag or limit < int(re.split("[= ]", flag)[1]):
            yield flag


_SHELL = regex(r"\.(sh|bash|zsh)$")
_LAUNCHES = regex(
    r"-.*|\w+=.*|\w+:|\d+\w?|!|if|then|do|while|until|exec|time|timeout|nice|sudo|env|xvfb-run|command|source|\.|run|RUN|npx|bunx|uv|uvx|poetry|pipenv|hatch|"
    r"(?:\S*/)?(?:ba|z|da|k)?sh|(?:\S*/)?python[\d.]*|node|deno|bun|tsx|ts-node|ruby|perl|php|Rscript|lua|coverage|"
    r"bats|hurl|newman|k6|robot|venom|goss|expect"
)
"""Words that may stand before a program that is run."""
_LOOKS = regex(r"test|\[+|grep|egrep|rg|ls|wc|diff|cmp|jq|yq|cat|head|tail|stat|find|tee|file|sha\w+sum|md5sum|shellcheck|shfmt|git|chmod|rm|cp|mv")  # fmt: skip
"""Programs that look at files, or move them, and run none."""
_FROM_FILE = ("-f", "--file")
_REDIRECTS = regex(r"[\d&]*[<>]+&?")
_PACKAGE_RUNNER = regex(r"\b(npm|yarn|pnpm|bun)\b")
_WORDS = regex(r"[\s|;&<>]+")
_DEEPEST = 4
_NESTED_VARIABLES = 3
"""How deep the values of a Makefile name other variables."""
_CHANGES_TO = regex(r"(?:^|[\s(\"'])cd (?:-- )?([\w./-]+)$")


@dataclass(frozen=True)
class _Expansion:
    """What a command runs, and the files that say so."""

    lines: tuple[str, ...]
    reached: frozenset[str]


class CommandTree:
    """The files of one tree that commands may run, read once for all commands."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = texts
        self._recipes: list[str] = []
        self._scripts: list[tuple[str, str, str]] = []
        """Path, key and text of every script in a package.json."""
        self._programs: dict[str, list[str]] = {}
        """Other files, by the last part of their paths."""
        self._expanded: dict[tuple[str, str, int], _Expansion] = {}
        for path, text in texts.items():
            if path.endswith("package.json"):
                settings = read_settings(path, text)
                self._scripts += [
                    (path, key, "\n".join(settings[key])) for key in settings if key.startswith("scripts.")
                ]
            elif is_recipe(path):
                if not self._is_shadowed(path):
                    self._recipes.append(path)
            elif not is_test_path(path):
                self._programs.setdefault(path.rsplit("/", 1)[-1], []).append(path)

    def expand(self, commands: Sequence[str], reached: set[str] | None = None) -> list[str]:
        """The commands, with recipes and scripts replaced by what they run; `reached` is given the files that say so."""
        expansion = self._expand_all(commands, "", _DEEPEST)
        if reached is not None:
            reached |= expansion.reached
        return list(expansion.lines)

    def _expand_all(self, lines: Sequence[str], directory: str, depth: int) -> _Expansion:
        found: list[str] = []
        reached: frozenset[str] = frozenset()
        for line in lines:
            here = directory
            for command in (part.strip() for part in line.split("&&")):
                expansion = self._expand(command, here, depth)
                found += expansion.lines
                reached |= expansion.reached
                here = _change_directory(command, here)
        return _Expansion(tuple(found), reached)

    def _expand(self, command: str, directory: str, depth: int) -> _Expansion:
        key = (command, directory, depth)
        if key not in self._expanded:
            bodies = list(self._find_bodies(command, directory)) if depth else []
            text = "\n".join(body for _, body in bodies)
            inner = (
                self._expand_all(split_commands(text), directory, depth - 1) if bodies else _Expansion((), frozenset())
            )
            kept = (command,) if not inner.lines or NEUTRAL.search(command) else ()
            reached = inner.reached.union(path for path, _ in bodies)
            self._expanded[key] = _Expansion((*kept, *inner.lines), reached)
        return self._expanded[key]

    def _find_bodies(self, command: str, directory: str) -> Iterator[tuple[str, str]]:
        """What a command runs, with the file that says so."""
        targets = _find_targets(command)
        for path in self._recipes if targets else ():
            yield from ((path, body) for target in targets if (body := _read_recipe(self._texts[path], target)))
        scripts = self._scripts if _PACKAGE_RUNNER.search(command) else ()
        yield from ((path, body) for path, key, body in scripts if _runs_script(key, command))
        names = {word.strip("'\"()`@;|&").rsplit("/", 1)[-1] for word in _WORDS.split(command)}
        for path in (path for name in sorted(names) for path in self._programs.get(name, ())):
            if is_started_by(path, command, directory):
                yield path, self._texts[path] if detect_language(path) is None else ""

    def _is_shadowed(self, path: str) -> bool:
        """Whether `make` takes a GNUmakefile before this file."""
        first = re.sub(r"(?<!GNU)[Mm]akefile$", "GNUmakefile", path)
        return first != path and first in self._texts


def is_started_by(path: str, command: str, directory: str = "") -> bool:
    """Whether a command runs the file as a program; what it only looks at, or writes, is data."""
    if path.rsplit("/", 1)[-1] not in command:
        return False
    for part in re.split(r"[|;&]+", re.sub(r"\d?>&\d?", " ", command)):
        words = [word.strip("'\"()`@") for word in part.split()]
        program = next((word for word in words if not _LAUNCHES.fullmatch(word)), "")
        for index, word in enumerate(words):
            if not word or path not in (normpath(word), normpath(f"{directory or '.'}/{word}")):
                continue
            before = words[:index]
            if all(map(_LAUNCHES.fullmatch, before)) and "-m" not in before:
                return True
            is_script = _SHELL.search(path) and not _REDIRECTS.fullmatch(before[-1])
            if (is_script or before[-1] in _FROM_FILE) and not _LOOKS.fullmatch(program):
                return True
        directory = _change_directory(part.strip(), directory)
    return False


def _change_directory(command: str, directory: str) -> str:
    """The directory after a command."""
    to = _CHANGES_TO.search(command)
    return normpath(f"{directory or '.'}/{to[1]}") if to else directory


def _runs_script(key: str, command: str) -> bool:
    """Whether a command runs a script of package.json, or one that npm runs before or after it."""
    name = re.escape(re.sub(r"^(pre|post)(?=\w)", "", key.removeprefix("scripts.")))
    short = r"|\bnpm (t|tst)\b" if name == "test" else ""
    runs = rf"\b(npm|yarn|pnpm|bun)( run| run-script|)( -\S+)* ({name})(?![\w:-])"
    return bool(re.search(runs + short, command))


def _find_targets(command: str) -> list[str]:
    """The targets that `make` and `just` are asked for."""
    found: list[str] = []
    for words in re.findall(r"(?:\b(?:make|just)|\$\(MAKE\))((?: +(?:-C +\S+|[\w.=/-]+))*)", command):
        found += [word for word in words.split() if word[0] != "-" and "=" not in word] or ["all"]
    return list(dict.fromkeys(found))


def _read_recipe(text: str, target: str, depth: int = 4) -> str:
    """What a target runs, its prerequisites included, variables replaced by their values."""
    header = re.search(rf"(?m)^{re.escape(target)}[ \t]*:(?!=)(.*)\n((?:[ \t]+.*\n?|\n)*)", text + "\n")
    if not header:
        return ""
    needs = header[1].split("#")[0].partition(";")[0].split()
    needed = "".join(_read_recipe(text, name, depth - 1) for name in needs if depth and name != target)
    body = "\n".join(line.strip() for line in header[2].splitlines() if line.strip()) + "\n"
    variables = dict(re.findall(r"(?m)^(\w+)[ \t]*[:?+]?=[ \t]*(.*)$", text))
    for _ in range(_NESTED_VARIABLES):
        body = re.sub(r"\$[({](\w+)[)}]", lambda name: variables.get(name[1], name[0]), body)
    return needed + body
