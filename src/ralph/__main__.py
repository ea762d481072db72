"""`python -m ralph`, and the `ralph` command: commands that agents call start without importing the CLI."""

import sys


def main() -> None:
    """Run the command line."""
    if sys.argv[1:2] in (["emit"], ["tools"], ["wave"]):
        from ralph.tools.main import run

        sys.exit(run(sys.argv[1:]))
    from ralph.cli.main import main as cli

    cli()


if __name__ == "__main__":
    main()
