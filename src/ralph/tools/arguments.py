"""The command line of the tools: argparse, with errors that say what is wrong and what to type next.

Agents call these commands hundreds of times in a run. They may take 3 times as long as `python -c pass`.
Measured with Python 3.11: 2.4x (26 ms against 11 ms), of which `json` and `argparse` take 1.1x.
Nothing else that is slow to import fits in; a test names what must not be imported.
"""

import argparse
import os
import sys
from collections.abc import Callable, Sequence

from ralph.core.redaction import MASK, find_secret_values

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

HELP_WIDTH = 100
COUNT = range(1, 1_000_000)


class ToolError(Exception):
    """A command that failed: what is wrong, where, what to do, and the exit code."""

    def __init__(self, what: str, todo: str, *, where: str = "", code: int = 2) -> None:
        super().__init__(what)
        self.what, self.where, self.todo, self.code = what, where, todo, code


class Argument:
    """A positional argument or an option of a command, with the parameters of `ArgumentParser.add_argument`."""

    def __init__(self, *names: str, **settings: "Any") -> None:
        self.names, self.settings = names, settings

    @property
    def short(self) -> str:
        """An argument as the list of commands shows it; empty for an option."""
        if self.names[0].startswith("-"):
            return ""
        shown = self.names[0].upper()
        by_count = {"+": f"{shown}...", "*": f"[{shown}...]", "?": f"[{shown}]"}
        return by_count.get(self.settings.get("nargs", ""), shown)


class Command:
    """One command: its name, what it does, and the arguments that it takes."""

    def __init__(self, name: str, about: str, act: "Callable[[dict[str, Any]], int]", *arguments: Argument) -> None:
        self.name, self.about, self.act, self.arguments = name, about, act, (*arguments, ROOT)

    @property
    def short(self) -> str:
        """Its name and its positional arguments."""
        return " ".join([self.name, *(argument.short for argument in self.arguments if argument.short)])

    def parser(self, before: str) -> argparse.ArgumentParser:
        """The parser for its arguments. `before` is what the caller types before its name."""
        parser = _Parser(
            prog=f"{before} {self.name}",
            description=self.about,
            formatter_class=_Formatter,
            allow_abbrev=False,
            add_help=False,
        )
        for argument in self.arguments:
            settings = dict(argument.settings)
            if argument.short:
                settings["metavar"] = argument.names[0].upper()
            parser.add_argument(*argument.names, **settings)
        return parser

    def _join_values(self, words: list[str]) -> list[str]:
        """Write each option and its value as one word.

        argparse takes a value that starts with a dash for an option (`--alternatives "-V"`); joined, it is a value.
        """
        options: set[str] = set()
        for argument in self.arguments:
            if not argument.short and "action" not in argument.settings:
                options.update(argument.names)
        joined: list[str] = []
        rest = iter(words)
        for word in rest:
            if word == "--":
                return [*joined, word, *rest]
            value = next(rest, None) if word in options else None
            if value is None:
                joined.append(word)
            else:
                joined.append(f"{word}={value}" if word.startswith("--") else f"{word}{value}")
        return joined

    def help(self, before: str) -> str:
        """What `--help` prints."""
        return self.parser(before).format_help().rstrip("\n")

    def run(self, before: str, words: list[str]) -> int:
        """Parse the words after its name, and run it. `act` gets only arguments that the caller typed or that have a default."""
        words = self._join_values(words)
        if "--help" in words or "-h" in words:
            return say(self.help(before))
        parsed = vars(self.parser(before).parse_intermixed_args(words))
        args = {name: _value(value) for name, value in parsed.items() if value not in (None, False, [])}
        return self.act(args)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> "NoReturn":
        todo = f"`{self.prog} --help` shows all options; put text that begins with - after --"
        raise ToolError(message, todo, where=" ".join(self.format_usage().split()[1:]))


class _Formatter(argparse.HelpFormatter):
    # A fixed width: asking for the width of the terminal imports shutil, which takes 2 ms.
    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=32, width=HELP_WIDTH)


def number_in(numbers: range) -> "Callable[[str], int]":
    """Parse a number that has to be in a range."""

    def parse(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) < 16 and int(text) in numbers):
            raise argparse.ArgumentTypeError(f"{text!r} is not a number from {numbers[0]} to {numbers[-1]}")
        return int(text)

    return parse


def non_empty(text: str) -> str:
    """Parse a text that must not be empty."""
    if not text.strip():
        raise argparse.ArgumentTypeError("the text is empty")
    return text


def choice(text: str) -> str:
    """Parse one of several names, however it is spelled: `in-progress` is `in_progress`."""
    return text.lower().replace("-", "_")


def formats(*names: str) -> Argument:
    """The option for the output format; the first name is the default."""
    about = "How to print the result. Default: %(default)s."
    return Argument("--format", type=choice, choices=names, default=names[0], help=about)


FORMAT = formats("table", "json", "quiet")
ROOT = Argument(
    "--root",
    metavar="DIR",
    help="The project directory. Default: that of the run, or the nearest one above this directory.",
)


def run_group(before: str, about: str, commands: Sequence[Command], words: list[str]) -> int:
    """Run the command that the first word names."""
    if not words or words[0] in ("--help", "-h"):
        rows = listing([(command.short, command.about) for command in commands])
        return say(f"usage: {before} COMMAND ...\n\n{about}\n\ncommands:\n{rows}")
    for command in commands:
        if command.name == words[0]:
            return command.run(before, words[1:])
    raise unknown(before, words[0], [command.name for command in commands])


def unknown(before: str, word: str, known: list[str]) -> ToolError:
    """The error for an unknown command, with the closest known one."""
    import difflib

    near = difflib.get_close_matches(word, known, 1)
    todo = f"did you mean {near[0]}?" if near else f"the commands are {', '.join(known)}"
    return ToolError(f"{before} has no command {word!r}", f"{todo} (`{before} --help`)")


def listing(rows: list[tuple[str, str]]) -> str:
    """Names and their descriptions in two columns. A long name has a line of its own."""
    width = min(max(len(name) for name, _ in rows), 40)
    lines = []
    for name, about in rows:
        if len(name) > width:
            lines.append(f"  {name}")
            name = ""
        lines.append(f"  {name:<{width}}  {about}")
    return "\n".join(lines)


_CONTROL = dict.fromkeys((*range(9), *range(11, 32), *range(127, 160)))


def say(text: str) -> int:
    """Print without control characters, and return exit code 0."""
    print(text.translate(_CONTROL))
    return 0


def without_secrets(text: str) -> str:
    """Replace the secrets of the environment in a text that is stored."""
    for secret in sorted(find_secret_values(os.environ), key=len, reverse=True):
        text = text.replace(secret, MASK)
    return text


def _value(value: "Any") -> "Any":
    """A parsed value as commands use it: words joined to one text, `-` replaced by standard input, no secrets."""
    if isinstance(value, list):
        value = " ".join(value)
    if value == "-":
        value = sys.stdin.read().strip()
    return without_secrets(value) if isinstance(value, str) else value
