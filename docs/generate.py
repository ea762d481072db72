"""Writes docs/reference.md from the code itself; `--check` only says whether it is up to date."""

import sys
from pathlib import Path

import click

from ralph.cli.main import COMMANDS, cli
from ralph.core.outcomes import EXIT_CODES
from ralph.documents.config import Config

TARGET = Path(__file__).with_name("reference.md")


def main() -> int:
    """Write the page, or compare it."""
    text = "\n\n".join([HEAD, commands(), settings(), outcomes()]) + "\n"
    if "--check" not in sys.argv:
        TARGET.write_text(text)
        return 0
    if TARGET.read_text() == text:
        return 0
    print(f"{TARGET.name} is out of date: run `make docs`", file=sys.stderr)
    return 1


HEAD = "# Reference\n\nGenerated from the code by `make docs`; do not edit."


def commands() -> str:
    """The help of every command."""
    parts = ["## Commands"]
    context = click.Context(cli, info_name="ralph", max_content_width=100, terminal_width=100)
    for name in COMMANDS:
        command = cli.get_command(context, name)
        assert command is not None
        with click.Context(command, info_name=name, parent=context, max_content_width=100, terminal_width=100) as own:
            parts.append(f"### ralph {name}\n\n```\n{command.get_help(own)}\n```")
    return "\n\n".join(parts)


def settings() -> str:
    """Every key of ralph.yml."""
    rows = ["## Settings in ralph.yml", "", "| key | default | meaning |", "| --- | --- | --- |"]
    rows += [f"| `{key}` | {default} | {meaning} |" for key, default, meaning in keys(Config, "")]
    return "\n".join(rows)


def keys(model, prefix):
    """The keys of a section and of the sections in it."""
    for name, field in model.model_fields.items():
        if hasattr(field.annotation, "model_fields"):
            yield from keys(field.annotation, f"{prefix}{name}.")
        else:
            default = "none" if field.default is None else f"`{field.default}`".lower()
            yield f"{prefix}{name}", default, field.description


def outcomes() -> str:
    """Every outcome with its exit code."""
    rows = ["## Outcomes and exit codes", "", "| exit code | outcome | `ralph resume` goes on |", "| --- | --- | --- |"]
    rows += [f"| {code} | {outcome} | {'yes' if outcome.resumable else 'no'} |" for outcome, code in EXIT_CODES.items()]
    return "\n".join(rows)


if __name__ == "__main__":
    sys.exit(main())
