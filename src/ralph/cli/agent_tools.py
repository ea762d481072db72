"""The commands for agents and programs: `ralph emit`, `ralph wave`, `ralph tools` and `ralph acp-bridge`."""

import contextlib

import click
from click.shell_completion import CompletionItem

from ralph.tools import main as tools_main
from ralph.tools import messages
from ralph.tools.arguments import ToolError
from ralph.tools.task import COMMANDS, list_open_tasks

_WITH_ID = frozenset(command.name for command in COMMANDS if any("id" in one.names for one in command.arguments))
"""The commands of `ralph tools task` that take the id of a task."""


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The next word of a tool: its name, its command, or the id of a task. For shells: it never fails."""
    if ctx.info_name != "tools":
        return []
    words = tuple(ctx.params.get("words") or ())
    offered: list[tuple[str, str]] = []
    if not words:
        offered = [(name, about) for name, (_, about) in tools_main.TOOLS.items()]
    elif len(words) == 1 and words[0] in tools_main.TOOLS:
        offered = [(command.name, command.about) for command in tools_main.commands(words[0])]
    elif len(words) == 2 and words[0] == "task" and words[1] in _WITH_ID:
        with contextlib.suppress(ToolError, OSError, ValueError):
            offered = list_open_tasks()
    return [CompletionItem(word, help=text) for word, text in offered if word.startswith(incomplete)]


class PassedOn(click.Command):
    """A command of the tools. Its arguments go there unchanged, and its help comes from there."""

    def __init__(self, name: str, help_text: str) -> None:
        words = click.Argument(["words"], nargs=-1, type=click.UNPROCESSED, shell_complete=_complete)
        settings = {"ignore_unknown_options": True, "allow_interspersed_args": False}
        super().__init__(name, settings, self._pass_on, [words], add_help_option=False)
        self.help_text = help_text

    def _pass_on(self, words: tuple[str, ...]) -> int:
        return tools_main.run([str(self.name), *words])

    def get_help(self, ctx: click.Context) -> str:
        """The help of the tool itself."""
        return self.help_text


emit = PassedOn("emit", messages.EMIT.help("ralph"))
wave = PassedOn("wave", messages.WAVE_HELP)
tools = PassedOn("tools", tools_main.help_text())


@click.command(
    "acp-bridge",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    options_metavar="[--model NAME] [--session ID] [--without-tool TOOL]... [--patience SECONDS]",
)
@click.argument("words", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- PROGRAM [ARG]...")
def acp_bridge(words: tuple[str, ...]) -> int:
    """Start PROGRAM here, give it the prompt from standard input, and print one event per line.

    `ralph loop --agent-acp` does this for every turn. Call it yourself to try an agent:

    \b
    echo "Say hello in hello.txt" | ralph acp-bridge -- opencode acp

    The agent gets every permission, except for the tools of --without-tool. --session continues a conversation. --patience
    is how long the agent may take to answer the first message. Default: 60 seconds. The exit code is 0 only if the agent ended
    its turn by itself.
    """
    from ralph.agents.acp_bridge import main

    return main(words)
