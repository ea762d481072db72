"""`ralph trust`, and asking the user before anything of a project is started."""

import difflib
from collections.abc import Iterator

import click

from ralph.app.runs import refuse_inside_a_turn
from ralph.app.trust import Consent, find_consent_to_project
from ralph.cli.console import agree, json_option, open_project, print_result
from ralph.cli.terminal import print_text
from ralph.core.text import count, remove_controls
from ralph.store.user_state import Item, read_trust, revoke_trust

_MAX_LINES = 16


@click.command("trust")
@click.option("--show", "shows", is_flag=True, help="List what you agreed to, and what is new or changed.")
@click.option("--revoke", "revokes", is_flag=True, help="Withdraw your consent. The next run asks again.")
@click.option("--yes", is_flag=True, help="Agree without being asked.")
@json_option
def trust(shows: bool, revokes: bool, yes: bool, as_json: bool) -> int:
    """Agree to what Ralph may start in this project: the agent, and the settings, prompts and roles that can start programs."""
    if not shows:
        refuse_inside_a_turn("an agent cannot agree for the user", "ask the user")
    project = open_project()
    if revokes:
        was_there = revoke_trust(project.root)
        result = "Revoked. The next run asks again." if was_there else "You had not agreed to anything here."
        return print_result(as_json, [result], command="trust", root=str(project.root), revoked=was_there)
    consent = find_consent_to_project(project)
    agreed = sorted(read_trust(project.root))
    names = [item.name for item, _ in consent.new]
    if shows:
        known = [f"  {name}" for name in agreed if name not in names]
        lines = [
            f"You agreed to these in {project.root}:"
            if known
            else f"You have not agreed to anything in {project.root}."
        ]
        lines += known
        lines += ["You have not agreed to these:", *_item_lines(consent)] if names else ["Nothing is new."]
        return print_result(as_json, lines, command="trust", root=str(project.root), agreed=agreed, new=names)
    if names and not yes:
        print_text("\n".join([f"In {project.root}:", *_item_lines(consent)]), err=True)
        agree(yes=False, where=str(project.root), todo="pass --yes")
    consent.give()
    lines = ["Nothing is new: you agreed to all of it."]
    if names:
        lines = [f"Agreed to {count(len(names), 'new or changed item')}."]
    return print_result(
        as_json, lines, command="trust", root=str(project.root), agreed=sorted({*agreed, *names}), new=names
    )


def ask_consent(consent: Consent, *, yes: bool) -> None:
    """Show what the user has not agreed to, and have them agree. `yes` agrees without the question."""
    if yes and consent.new:
        consent.give()
    if yes or not consent.is_required:
        return
    lines = ["Ralph asks before it starts or reads these for the first time:", *_item_lines(consent), consent.about]
    print_text("\n".join(lines), err=True)
    agree(yes=False, where=str(consent.root), todo=consent.todo)
    consent.give()


def _item_lines(consent: Consent) -> list[str]:
    lines: list[str] = []
    for item, before in consent.new:
        lines += _lines_of(item, before)
    return lines


def _lines_of(item: Item, before: str | None) -> Iterator[str]:
    """One item, with what has changed in it if the user agreed to another version."""
    text = remove_controls(item.text)
    kind, _, rest = item.name.partition(" ")
    if rest == text:
        yield f"  {kind:<9}{text}"
        return
    yield f"  {remove_controls(item.name)}" + (" (changed since you agreed)" if before is not None else "")
    lines = text.splitlines()
    if before is not None:
        compared = difflib.unified_diff(remove_controls(before).splitlines(), lines, lineterm="", n=1)
        lines = [line for line in compared if not line.startswith(("---", "+++", "@@"))]
    yield from (f"    {line}" for line in lines[:_MAX_LINES])
    if len(lines) > _MAX_LINES:
        yield f"    ... and {len(lines) - _MAX_LINES} more lines"
