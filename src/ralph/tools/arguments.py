"""The command line of the tools as tables: what a command takes, how it is read, and the help that tells of it."""

import os

from ralph.core.secrets import MASK, secret_values

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Refused(Exception):
    """What cannot be done: what is wrong, where, what to do, and the exit code."""

    def __init__(self, what: str, todo: str, *, where: str = "", code: int = 2) -> None:
        super().__init__(what)
        self.what, self.where, self.todo, self.code = what, where, todo, code


class Option:
    """An option; without `value` it is a switch."""

    def __init__(
        self,
        name: str,
        about: str,
        *,
        short: str = "",
        value: str = "",
        choices: "Sequence[str]" = (),
        numbers: range | None = None,
        default: str = "",
        required: bool = False,
    ) -> None:
        self.name, self.about, self.short, self.value = name, about, short, value or "|".join(choices)
        self.choices, self.numbers, self.default, self.required = choices, numbers, default, required

    @property
    def flags(self) -> str:
        """How it is written."""
        flags = f"-{self.short}, --{self.name}" if self.short else f"    --{self.name}"
        return f"{flags} {self.value}" if self.value else flags

    def read(self, text: str) -> str:
        """A value for it, or what is wrong with that."""
        text = text.lower().replace("-", "_") if self.choices else text
        if self.choices and text not in self.choices:
            raise Refused(f"--{self.name} {text!r} is none of {', '.join(self.choices)}", "give one of these")
        if self.numbers:
            lowest, highest = self.numbers[0], self.numbers[-1]
            if not (text.isascii() and text.isdigit() and len(text) < 16 and int(text) in self.numbers):
                raise Refused(f"--{self.name} {text!r} is no number from {lowest} to {highest}", "give one")
        return text


ROOT = Option("root", "The project (else the one of the run, or the one around this directory).", value="DIR")
COUNT = range(1, 1_000_000)


def formats(*names: str) -> Option:
    """The option that says in which form the result is printed."""
    return Option("format", "How the result is printed.", choices=names, default=names[0])


FORMAT = formats("table", "json", "quiet")


class Command:
    """One command: the words that it takes, those in brackets if given, those with dots many, its options, and what it does."""

    def __init__(
        self,
        name: str,
        about: str,
        act: "Callable[[dict[str, str]], int]",
        words: "Sequence[str]" = (),
        options: "Sequence[Option]" = (),
    ) -> None:
        self.name, self.about, self.act, self.words, self.options = name, about, act, words, (*options, ROOT)

    @property
    def usage(self) -> str:
        """How it is typed."""
        needed = [f"--{option.name} {option.value}" for option in self.options if option.required]
        return " ".join([self.name, *self.words, *needed, "[OPTIONS]"])

    @property
    def short(self) -> str:
        """Its name and the words that it takes."""
        return " ".join([self.name, *self.words])

    def help(self, before: str) -> str:
        """What `--help` prints."""
        rows = [(option.flags, _with_default(option)) for option in self.options]
        return f"Usage: {before} {self.usage}\n\n  {self.about}\n\nOptions:\n{listing(rows)}"

    def run(self, before: str, given: list[str]) -> int:
        """Read the words that were given, and do it."""
        if "--help" in given or "-h" in given:
            return say(self.help(before))
        try:
            values = self._values(given)
        except Refused as error:
            error.where = error.where or f"{before} {self.usage}"
            raise
        return self.act(values)

    def _values(self, given: list[str]) -> dict[str, str]:
        values = {option.name: option.default for option in self.options if option.default}
        loose: list[str] = []
        rest = iter(given)
        for word in rest:
            if word == "--":
                loose += rest
            elif word == "-" or not word.startswith("-") or len(word.partition("=")[0].split()) > 1:
                loose.append(word)
            else:
                option, value = self._option(word)
                if not option.value:
                    if value:
                        raise Refused(f"--{option.name} takes no value", "leave it out")
                    value = "yes"
                elif value is None and (value := next(rest, None)) is None:
                    raise Refused(f"--{option.name} needs a value", f"give it: --{option.name} {option.value}")
                values[option.name] = option.read(value)
        for option in self.options:
            if option.required and not values.get(option.name, "").strip():
                raise Refused(f"--{option.name} is missing", f"give it: --{option.name} {option.value}")
        return {name: without_secrets(value) for name, value in {**values, **self._words(loose)}.items()}

    def _option(self, word: str) -> tuple[Option, str | None]:
        """The option that a word names, and the value in the same word."""
        name, equals, value = word[2:].partition("=") if word.startswith("--") else (word[1:2], word[2:], word[2:])
        for option in self.options:
            if name == (option.name if word.startswith("--") else option.short):
                return option, value if equals else None
        raise Refused(f"there is no option {word}", "what begins with a dash and is no option goes behind --")

    def _words(self, loose: list[str]) -> dict[str, str]:
        needed = [word for word in self.words if not word.startswith("[")]
        if len(loose) < len(needed):
            raise Refused(f"{needed[len(loose)].strip('.')} is missing", "give it, in quotes if it has spaces")
        if self.words and "..." in self.words[-1]:
            last = len(self.words) - 1
            loose = [*loose[:last], *([" ".join(loose[last:])] if loose[last:] else [])]
        if len(loose) > len(self.words):
            raise Refused(f"there is no place for {loose[len(self.words)]!r}", "leave it out")
        names = [word.strip("[].").lower() for word in self.words]
        return {name: _from_input() if word == "-" else word for name, word in zip(names, loose, strict=False)}


def run_group(before: str, about: str, commands: "Sequence[Command]", words: list[str]) -> int:
    """Run the command that the first word names."""
    if not words or words[0] in ("--help", "-h"):
        rows = listing([(command.short, command.about) for command in commands])
        return say(f"Usage: {before} COMMAND ...\n\n  {about}\n\nCommands:\n{rows}")
    for command in commands:
        if command.name == words[0]:
            return command.run(before, words[1:])
    raise unknown(before, words[0], [command.name for command in commands])


def unknown(before: str, word: str, known: list[str]) -> Refused:
    """No such command, with the one that may be meant."""
    import difflib

    near = difflib.get_close_matches(word, known, 1)
    todo = f"did you mean {near[0]}?" if near else f"it has {', '.join(known)}"
    return Refused(f"{before} has no command {word!r}", f"{todo} (`{before} --help`)")


def listing(rows: list[tuple[str, str]]) -> str:
    """Names and what is said of them, in two columns; a long name has a line of its own."""
    width = min(max(len(name) for name, _ in rows), 40)
    return "\n".join(
        f"  {name:<{width}}  {about}" if len(name) <= width else f"  {name}\n  {'':<{width}}  {about}"
        for name, about in rows
    )


_CONTROL = dict.fromkeys((*range(9), *range(11, 32), *range(127, 160)))


def say(text: str) -> int:
    """Print, without what would move about in a terminal, and be done."""
    print(text.translate(_CONTROL))
    return 0


def _with_default(option: Option) -> str:
    return f"{option.about} ({option.default})" if option.default else option.about


def without_secrets(text: str) -> str:
    """What was given, as it may be written down."""
    for secret in sorted(secret_values(os.environ), key=len, reverse=True):
        text = text.replace(secret, MASK)
    return text


def _from_input() -> str:
    import sys

    return sys.stdin.read().strip()
