"""What commands run: recipes, scripts of package.json and programs, followed to the commands within."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from posixpath import normpath

from ralph.core.patterns import regex
from ralph.verify.guards.changes import language_of
from ralph.verify.guards.commands import NEUTRAL, lines_of
from ralph.verify.guards.settings import settings_of
from ralph.verify.judge_files import is_recipe, is_test_path

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
_CHANGES_TO = regex(r"(?:^|[\s(\"'])cd (?:-- )?([\w./-]+)$")


@dataclass(frozen=True)
class _Expansion:
    """What a command runs, and the files that say so."""

    lines: tuple[str, ...]
    reached: frozenset[str]


class Tree:
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
                settings = settings_of(path, text)
                self._scripts += [
                    (path, key, "\n".join(settings[key])) for key in settings if key.startswith("scripts.")
                ]
            elif is_recipe(path):
                if not self._is_shadowed(path):
                    self._recipes.append(path)
            elif not is_test_path(path):
                self._programs.setdefault(path.rsplit("/", 1)[-1], []).append(path)

    def run_by(self, commands: Sequence[str], reached: set[str] | None = None) -> list[str]:
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
                here = _moved(command, here)
        return _Expansion(tuple(found), reached)

    def _expand(self, command: str, directory: str, depth: int) -> _Expansion:
        key = (command, directory, depth)
        if key not in self._expanded:
            bodies = list(self._bodies(command, directory)) if depth else []
            text = "\n".join(body for _, body in bodies)
            inner = self._expand_all(lines_of(text), directory, depth - 1) if bodies else _Expansion((), frozenset())
            kept = (command,) if not inner.lines or NEUTRAL.search(command) else ()
            reached = inner.reached.union(path for path, _ in bodies)
            self._expanded[key] = _Expansion((*kept, *inner.lines), reached)
        return self._expanded[key]

    def _bodies(self, command: str, directory: str) -> Iterator[tuple[str, str]]:
        """What a command runs, with the file that says so."""
        targets = _targets(command)
        for path in self._recipes if targets else ():
            yield from ((path, body) for target in targets if (body := _recipe(self._texts[path], target)))
        scripts = self._scripts if _PACKAGE_RUNNER.search(command) else ()
        yield from ((path, body) for path, key, body in scripts if _runs_script(key, command))
        names = {word.strip("'\"()`@;|&").rsplit("/", 1)[-1] for word in _WORDS.split(command)}
        for path in (path for name in sorted(names) for path in self._programs.get(name, ())):
            if is_run(path, command, directory):
                yield path, self._texts[path] if language_of(path) is None else ""

    def _is_shadowed(self, path: str) -> bool:
        """Whether `make` takes a GNUmakefile before this file."""
        first = re.sub(r"(?<!GNU)[Mm]akefile$", "GNUmakefile", path)
        return first != path and first in self._texts


def is_run(path: str, command: str, directory: str = "") -> bool:
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
        directory = _moved(part.strip(), directory)
    return False


def _moved(command: str, directory: str) -> str:
    """The directory after a command."""
    to = _CHANGES_TO.search(command)
    return normpath(f"{directory or '.'}/{to[1]}") if to else directory


def _runs_script(key: str, command: str) -> bool:
    """Whether a command runs a script of package.json, or one that npm runs before or after it."""
    name = re.escape(re.sub(r"^(pre|post)(?=\w)", "", key.removeprefix("scripts.")))
    short = r"|\bnpm (t|tst)\b" if name == "test" else ""
    runs = rf"\b(npm|yarn|pnpm|bun)( run| run-script|)( -\S+)* ({name})(?![\w:-])"
    return bool(re.search(runs + short, command))


def _targets(command: str) -> list[str]:
    """The targets that `make` and `just` are asked for."""
    found: list[str] = []
    for words in re.findall(r"(?:\b(?:make|just)|\$\(MAKE\))((?: +(?:-C +\S+|[\w.=/-]+))*)", command):
        found += [word for word in words.split() if word[0] != "-" and "=" not in word] or ["all"]
    return list(dict.fromkeys(found))


def _recipe(text: str, target: str, depth: int = 4) -> str:
    """What a target runs, its prerequisites included, variables replaced by their values."""
    header = re.search(rf"(?m)^{re.escape(target)}[ \t]*:(?!=)(.*)\n((?:[ \t]+.*\n?|\n)*)", text + "\n")
    if not header:
        return ""
    needs = header[1].split("#")[0].partition(";")[0].split()
    needed = "".join(_recipe(text, name, depth - 1) for name in needs if depth and name != target)
    body = "\n".join(line.strip() for line in header[2].splitlines() if line.strip()) + "\n"
    variables = dict(re.findall(r"(?m)^(\w+)[ \t]*[:?+]?=[ \t]*(.*)$", text))
    for _ in range(3):
        body = re.sub(r"\$[({](\w+)[)}]", lambda name: variables.get(name[1], name[0]), body)
    return needed + body
