"""`ralph completion`: the script with which a shell completes commands, options and the ids of runs.

A module of its own, because every new shell waits for it: it imports nothing that takes time.
"""

import click
from click.shell_completion import get_completion_class

from ralph.cli.terminal import print_text
from ralph.core.errors import UsageError

_WHERE = {
    "bash": "~/.bashrc",
    "zsh": "~/.zshrc",
    "fish": "~/.config/fish/completions/ralph.fish",
}


@click.command("completion")
@click.argument("shell", type=click.Choice(list(_WHERE)))
def completion(shell: str) -> int:
    """Print a script that lets your shell complete commands, options, run ids and task ids.

    \b
    bash, in ~/.bashrc:  eval "$(ralph completion bash)"
    zsh, in ~/.zshrc:    eval "$(ralph completion zsh)"
    fish:                ralph completion fish > ~/.config/fish/completions/ralph.fish
    """
    from ralph.cli.main import cli

    found = get_completion_class(shell)
    if found is None:
        raise UsageError(f"Ralph has no completion for {shell}", todo=f"choose one of {', '.join(_WHERE)}")
    # Only `source` would also start the shell to ask for its version.
    script = found(cli, {}, "ralph", "_RALPH_COMPLETE")
    print_text(script.source_template % script.source_vars(), wraps=False)
    return 0
