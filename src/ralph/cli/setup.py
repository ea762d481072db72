"""`ralph init` and `ralph doctor`: set up a project, and check whether it is fit to be left alone."""

import json
from dataclasses import asdict
from pathlib import Path

import click

from ralph import __version__
from ralph.app.doctor import examine
from ralph.app.hats import list_phrases, write_settings
from ralph.cli.console import json_option, open_project, print_result
from ralph.cli.terminal import print_json, print_text
from ralph.core.outcomes import Outcome
from ralph.documents.hats.preset import schema
from ralph.store.presets import find_preset, list_presets

_FIRST_SETTINGS = """\
# Settings of this project: docs/reference.md lists the keys, docs/hats.md those of presets.
event_loop:
  # Ralph runs these checks itself before it accepts that the work is done.
  checks: ["tests pass"]
"""


@click.command("init")
@click.option("--preset", "name", help="The preset to start from: a name or a file. --list-presets shows the names.")
@click.option("-b", "--backend", help="The agent to write into the file.")
@click.option(
    "--list-presets", "listing", is_flag=True, help="List the names of the presets. `ralph hats list` explains them."
)
@click.option("--schema", "as_schema", is_flag=True, help="Print the JSON Schema of ralph.yml.")
@click.option("--force", is_flag=True, help="Overwrite an existing ralph.yml.")
@json_option
def init(name: str | None, backend: str | None, listing: bool, as_schema: bool, force: bool, as_json: bool) -> int:
    """Write ralph.yml into this directory."""
    if as_schema:
        print_text(json.dumps(schema(), indent=2), wraps=False)
        return 0
    if listing:
        names = sorted({one.name for one in list_presets(open_project().root)})
        return print_result(as_json, names, command="init", presets=names)
    text, is_from_project = _FIRST_SETTINGS, False
    if name is not None:
        root = open_project().root
        preset = find_preset(root, name)
        text = preset.text
        is_from_project = preset.path is not None and preset.path.resolve().is_relative_to(root)
    path = write_settings(Path.cwd(), text, backend, force=force, is_from_project=is_from_project)
    if as_json:
        print_json(command="init", path=str(path), preset=name or "")
    else:
        print_text(f"Wrote {path}")
        print_text("What phrases in `checks` and --until run here (`-` means that Ralph finds no command):")
        for phrase, commands in list_phrases(open_project().work_dir):
            print_text(f"  {phrase:<16} {commands or '-'}")
        print_text('Next:   ralph run -p "what to do"   (or write it into PROMPT.md)')
    return 0


@click.command("doctor")
@json_option
def doctor(as_json: bool) -> int:
    """Check Python, git, the disk, ralph.yml, the agents and the state of past runs."""
    findings = list(examine(open_project()))
    lines = []
    for finding in findings:
        lines.append(f"{finding.mark:<4} {finding.subject:<10} {finding.said}")
        if finding.todo:
            lines.append(f"{'':16}next: {finding.todo}")
    print_result(
        as_json, lines, command="doctor", version=__version__, findings=[asdict(finding) for finding in findings]
    )
    return 0 if all(finding.ok for finding in findings) else Outcome.USAGE.exit_code
