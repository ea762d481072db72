"""The targets of a Makefile: what they run, and whether that changes files instead of checking them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ralph.core.text import regex

MAKEFILES = ("GNUmakefile", "makefile", "Makefile")
"""The names that make looks for, in its order."""

_RULE = regex(r"^(?P<names>[\w./ -]+):(?![=:])(?P<needs>[^;#\n]*)(?:;(?P<recipe>[^\n]*))?")
_VARIABLE = regex(r"^(?:export +)?(?P<name>\w+) *[:?+!]*= *(?P<value>[^#\n]*)")
_REFERENCE = regex(r"\$[({](\w+)[)}]")
_NESTING = 3
"""How many variables deep a variable is expanded."""
_CALLS_MAKE = regex(r"(?:^|\s)(?:\$[({]MAKE[)}]|g?make)\s+(?P<arguments>.*)")
_COMMAND_ENDS = regex(r"&&|\|\||[;|\n]")
_ONLY_MENTIONS = regex(
    r"^[\s@+-]*(?:#|(?:echo|printf|which|command|type|if|test|\[)\s)|\s(?:install|add|--version|--help)(?!\S)"
)
"""A command that prints the name of a tool, looks for the tool, or installs it."""
_CHANGES_FILES = (
    regex(r"--(?:write|fix|fix-only|in-?place|auto-?correct(?:-all)?)(?![\w=-])"),
    regex(r"(?<![\w.-])(?:gofmt|gofumpt|goimports|shfmt|prettier)\s(?:.*\s)?-l?w(?!\S)"),
    regex(r"(?<![\w.-])(?:clang-format|autopep8|autoflake|yapf)\s(?:.*\s)?-i(?!\S)"),
    regex(r"(?<![\w.-])rubocop\s(?:.*\s)?-[aA](?!\S)"),
    regex(r"(?<![\w.-])go\s+fmt(?!\S)"),
    # These change files unless they have an option to look only.
    regex(r"(?<![\w.-])(?:black|isort)(?!\S)(?!.*\s(?:--check(?:-only)?|--diff|-c)(?!\S))"),
    regex(r"(?<![\w.-])(?:ruff|cargo|terraform)\s+(?:format|fmt)(?!\S)(?!.*\s(?:--?check|--diff)(?!\S))"),
    regex(r"(?<![\w.-])(?:mix|dotnet)\s+format(?!\S)(?!.*\s--(?:check-formatted|verify-no-changes)(?!\S))"),
)
"""Commands of linters and formatters that edit what they look at."""


@dataclass(frozen=True)
class MakeTarget:
    """A target of a Makefile."""

    needs: tuple[str, ...] = ()
    """The targets that make runs before it."""
    recipe: str = ""
    """Its commands, with the variables of the Makefile replaced."""


def find_changing_command(script: str) -> str:
    """The first command in a script that edits files, as linters and formatters do with `--fix`; empty if none does."""
    for command in _COMMAND_ENDS.split(script):
        if not _ONLY_MENTIONS.search(command) and any(form.search(command) for form in _CHANGES_FILES):
            return command.strip().lstrip("@+-").strip()
    return ""


def find_changing_recipe(targets: Mapping[str, MakeTarget], name: str, *, with_needs: bool) -> str:
    """The first command that edits files when make runs a target; `with_needs`: also in the targets that it needs."""
    seen: set[str] = set()
    names = [name]
    while names:
        one = names.pop()
        if one in seen or one not in targets:
            continue
        seen.add(one)
        target = targets[one]
        if changing := find_changing_command(target.recipe):
            return changing
        names += _find_make_calls(target.recipe)
        names += target.needs if with_needs else ()
    return ""


def read_targets(text: str) -> dict[str, MakeTarget]:
    """The targets that a Makefile names. A target with several rules has the needs and the recipes of all of them."""
    lines = re.sub(r"\\\r?\n[ \t]*", " ", text).splitlines()
    variables = _read_variables(lines)
    found: dict[str, MakeTarget] = {}
    current: list[str] = []
    for line in lines:
        rule = _RULE.match(line)
        if rule:
            current = [name for name in rule["names"].split() if not name.startswith(".")]
            needs = tuple(_expand(rule["needs"], variables).replace("|", " ").split())
            recipe = _expand(rule["recipe"] or "", variables)
        elif line.startswith("\t"):
            needs, recipe = (), _expand(line, variables)
        else:
            continue
        for name in current:
            known = found.get(name, MakeTarget())
            found[name] = MakeTarget((*known.needs, *needs), f"{known.recipe}\n{recipe}".strip())
    return found


def _read_variables(lines: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in lines:
        if match := _VARIABLE.match(line):
            found[match["name"]] = match["value"].strip()
    return found


def _expand(text: str, variables: Mapping[str, str]) -> str:
    """The text with the values of variables; those that the Makefile does not set stay."""
    for _ in range(_NESTING):
        text = _REFERENCE.sub(lambda match: variables.get(match[1], match[0]), text)
    return text


def _find_make_calls(recipe: str) -> list[str]:
    """The targets that a recipe runs with `$(MAKE)`."""
    found: list[str] = []
    for command in _COMMAND_ENDS.split(recipe):
        if not _ONLY_MENTIONS.search(command) and (call := _CALLS_MAKE.search(command)):
            found += call["arguments"].split()
    return found
