"""`ralph acp-bridge`: one turn with an agent that speaks the Agent Client Protocol, told in Ralph's own form."""

import click

from ralph.agents import acp_bridge


@click.command(
    "acp-bridge",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    options_metavar="[--model NAME] [--session ID] [--without-tool TOOL]... [--patience SECONDS]",
)
@click.argument("words", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- PROGRAM [ARG]...")
def command(words: tuple[str, ...]) -> int:
    """Start PROGRAM here, hand it the prompt from standard input, and print one event a line.

    `ralph loop --agent-acp` does it for every turn; alone it shows whether an agent can be worked with:

    \b
    echo "Say hello in hello.txt" | ralph acp-bridge -- opencode acp

    Every permission is given, except for tools of --without-tool. --session goes on with a conversation, and --patience is
    how long the agent may take to greet (60). The exit code is 0 only where the agent has ended its turn by itself.
    """
    return acp_bridge.main(words)
