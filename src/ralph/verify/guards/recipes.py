"""What commands run: recipes, scripts of package.json and programs, followed to the commands within."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from posixpath import normpath

from ralph.core.patterns import regex
from ralph.verify.guards.changes import language_of
from ralph.verify.guards.commands import NEUTRAL, lines_of
from ralph.verify.guards.settings import settings_of
from ralph.verify.judge_files import is_test_path

_RECIPES = regex(r"(^|/)(GNU)?([Mm]akefile|[Jj]ustfile)$|\.mk$")
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
_CHANGES_TO = regex(r"(?:^|[\s(\"'])cd (?:-- )?([\w./-]+)$")


@dataclass(frozen=True)
class Tree:
    """The files of one tree that commands may run."""

    texts: Mapping[str, str]
    reached: set[str] = field(default_factory=set)
    """The files that were found to say what is run."""

    def run_by(self, commands: Sequence[str], directory: str = "", depth: int = 4) -> list[str]:
        """The commands, with recipes and scripts replaced by what they run."""
        found: list[str] = []
        for line in commands:
            here = directory
            for command in (part.strip() for part in line.split("&&")):
                paths = self.texts if depth else ()
                bodies = [body for path in paths for body in self._bodies(path, command, here)]
                inner = self.run_by(lines_of("\n".join(bodies)), here, depth - 1) if bodies else []
                found += [command, *inner] if not inner or NEUTRAL.search(command) else inner
                here = _moved(command, here)
        return found

    def _bodies(self, path: str, command: str, directory: str) -> list[str]:
        """What a command runs of a file; `make` takes a GNUmakefile before any other."""
        text, bodies, first = self.texts[path], list[str](), re.sub(r"(?<!GNU)[Mm]akefile$", "GNUmakefile", path)
        if _RECIPES.search(path):
            is_shadowed = first != path and first in self.texts
            bodies = [body for target in _targets(command) if not is_shadowed and (body := _recipe(text, target))]
        elif path.endswith("package.json"):
            bodies = ["\n".join(value) for key, value in settings_of(path, text).items() if _runs_script(key, command)]
        elif not is_test_path(path) and is_run(path, command, directory):
            bodies = [text if language_of(path) is None else ""]
        self.reached.update([path] if bodies else [])
        return bodies


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
    return key.startswith("scripts.") and bool(re.search(runs + short, command))


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
