"""`ralph tools`, as the rest of the command line knows it; what is typed goes to the tools without coming by here."""

import click

from ralph.tools import main


class Passed(click.Command):
    """A command of the tools: its words go there as they are, and its help comes from there."""

    def __init__(self, name: str, help_text: str) -> None:
        words = click.Argument(["words"], nargs=-1, type=click.UNPROCESSED)
        settings = {"ignore_unknown_options": True, "allow_interspersed_args": False}
        super().__init__(name, settings, self._pass, [words], add_help_option=False)
        self.help_text = help_text

    def _pass(self, words: tuple[str, ...]) -> int:
        return main.run([str(self.name), *words])

    def get_help(self, ctx: click.Context) -> str:
        """The help of the tool itself."""
        return self.help_text


command = Passed("tools", main.help_text())
