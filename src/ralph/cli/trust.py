"""`ralph trust`, and asking the user before anything of a project is started."""

import difflib
from collections.abc import Iterator, Sequence

import click

from ralph.app.trust import items_of_project, items_to_resume, items_to_start
from ralph.cli.console import agree, here, json_option, tell
from ralph.core.stream import clean_text
from ralph.documents.run_record import RunRecord
from ralph.store.runs import Project
from ralph.store.settings import load_config, load_user_settings, user_settings_path
from ralph.store.trust import Item, find_new, read_trust, record_trust, revoke_trust

_MOST_LINES = 16


@click.command("trust")
@click.option("--show", "shows", is_flag=True, help="List what you agreed to here, and what is new since.")
@click.option("--revoke", "revokes", is_flag=True, help="Forget what you agreed to here.")
@click.option("--yes", is_flag=True, help="Agree without a question.")
@json_option
def command(shows: bool, revokes: bool, yes: bool, as_json: bool) -> int:
    """Agree to what this project lets Ralph start: its agent, settings, prompts and roles."""
    project = here()
    if revokes:
        was_there = revoke_trust(project.root)
        said = "Revoked: the next run asks again." if was_there else "You had agreed to nothing here."
        return tell(as_json, [said], command="trust", root=str(project.root), revoked=was_there)
    new = find_new(project.root, items_of_project(project.root, load_config(project.root)))
    agreed = sorted(read_trust(project.root))
    names = [item.name for item, _ in new]
    if shows:
        known = [f"  {name}" for name in agreed if name not in names]
        lines = [f"You agreed to these in {project.root}:" if known else f"You agreed to nothing in {project.root}."]
        lines += known
        lines += ["You have not agreed to these:", *_shown(new)] if new else ["Nothing is new."]
        return tell(as_json, lines, command="trust", root=str(project.root), agreed=agreed, new=names)
    if new and not yes:
        click.echo("\n".join([f"In {project.root}:", *_shown(new)]), err=True)
        agree(yes=False, where=str(project.root), todo="give --yes")
    record_trust(project.root, (item for item, _ in new))
    items = "1 new or changed item" if len(new) == 1 else f"{len(new)} new or changed items"
    lines = [f"Agreed to {items}." if new else "Nothing is new: you agreed to all of it."]
    return tell(as_json, lines, command="trust", root=str(project.root), agreed=sorted({*agreed, *names}), new=names)


def ask_consent(
    project: Project, record: RunRecord, *, typed: Sequence[str] = (), files: Sequence[str] = (), yes: bool
) -> None:
    """Show what a new run would start that the user has not agreed to here, and have them agree.

    `typed` is what the user gave on the command line, `files` are the settings and presets that were read.
    """
    items = items_to_start(project.root, record.crew, record.checks, typed, files)
    push = "may push to remotes" if record.push else "cannot push to remotes"
    undo = (
        f"Its changes in {project.root} are recorded after every turn; `ralph undo` takes them back."
        if record.snapshots
        else f"Snapshots are off: its changes in {project.root} cannot be taken back."
    )
    about = f"An agent can read and change every file you can, run any program, and {push}.\n{undo}"
    _ask(project, items, about, yes=yes)


def ask_consent_again(project: Project, *, yes: bool) -> None:
    """Show what a run that goes on reads and the user has not agreed to, and have them agree."""
    _ask(project, items_to_resume(project.root), f"It is read by runs in {project.root}.", yes=yes)


def _ask(project: Project, items: Sequence[Item], about: str, *, yes: bool) -> None:
    new = find_new(project.root, items)
    if not new or (not yes and load_user_settings().permissions == "full-auto"):
        return
    if not yes:
        click.echo(
            "\n".join(["Ralph asks before it starts or uses for the first time:", *_shown(new), about]), err=True
        )
        todo = (
            "start it once in a terminal and answer, give --yes, or put `permissions: full-auto` into"
            f" {user_settings_path()}; what a repository says about permissions does not count"
        )
        agree(yes=False, where=str(project.root), todo=todo)
    record_trust(project.root, (item for item, _ in new))


def _shown(new: Sequence[tuple[Item, str | None]]) -> list[str]:
    return [line for item, before in new for line in _lines(item, before)]


def _lines(item: Item, before: str | None) -> Iterator[str]:
    """One item, with what has changed in it if the user agreed to another version."""
    text = clean_text(item.text)
    kind, _, rest = item.name.partition(" ")
    if rest == text:
        yield f"  {kind:<9}{text}"
        return
    yield f"  {clean_text(item.name)}" + (" (changed since you agreed)" if before is not None else "")
    lines = text.splitlines()
    if before is not None:
        compared = difflib.unified_diff(clean_text(before).splitlines(), lines, lineterm="", n=1)
        lines = [line for line in compared if not line.startswith(("---", "+++", "@@"))]
    yield from (f"    {line}" for line in lines[:_MOST_LINES])
    if len(lines) > _MOST_LINES:
        yield f"    ... and {len(lines) - _MOST_LINES} more lines"
