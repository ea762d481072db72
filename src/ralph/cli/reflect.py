"""`ralph reflect`: what loops learned, and what became of it."""

import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import click

from ralph.cli.console import here, json_option, tell
from ralph.core.codec import to_plain
from ralph.core.errors import StateError, UsageError
from ralph.core.ids import valid_run_id
from ralph.documents.reflection import Reflection, iso, lesson, render
from ralph.memory.patterns import ADVICE, Pattern, read_patterns
from ralph.memory.reflections import Reflections, archive


class _ShowByDefault(click.Group):
    """What is no subcommand is for `show`: `ralph reflect RUN` is `ralph reflect show RUN`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        known = (*self.commands, *ctx.help_option_names)
        return super().parse_args(ctx, args if args and args[0] in known else ["show", *args])


@click.group("reflect", cls=_ShowByDefault)
def command() -> None:
    """Show what loops learned (`show`, the default), list the patterns in it, or put it away.

    \b
    ralph reflect                        the reflections of the latest loop
    ralph reflect RUN --last 3           the last three of a certain one
    ralph reflect patterns               what came up again and again
    """


@command.command("show")
@click.argument("run", required=False)
@click.option("--last", type=click.IntRange(min=1), help="Show only the last iterations, this many.")
@click.option("--format", "form", type=click.Choice(["markdown", "yaml", "summary"]), default="markdown")
@json_option
def show(run: str | None, last: int | None, form: str, as_json: bool) -> int:
    """Show the reflections of RUN, or of the latest loop that has any."""
    reflections = Reflections(here().root)
    loop = _loop(reflections.loops(), run)
    found = reflections.of(loop, last) if loop else []
    if not found:
        lines = ["No reflections yet: a loop writes one after every iteration."]
        lines.append("Next:   ralph loop \"TASK\" --until '`COMMAND` passes'")
    elif form == "yaml":
        lines = ["---\n".join(render(one) for one in found).removesuffix("\n")]
    elif form == "summary":
        lines = [_safe(f"{one.iteration:>4}  {one.outcome}  {one.reward:.2f}  {lesson(one)}") for one in found]
    else:
        lines = [_safe(_markdown(found))]
    return _told(as_json, lines, reflections.faults, command="reflect", loop=loop, reflections=to_plain(found))


@command.command("patterns")
@json_option
def patterns(as_json: bool) -> int:
    """List what came up more than once, what worked, and what did harm."""
    root = here().root
    faults: list[str] = []
    found: list[Pattern] = []
    for kind in ADVICE:
        try:
            found += read_patterns(root, kind)
        except StateError as error:
            faults.append(f"{error.where}: {error.what}")
    none = "No patterns yet: they are drawn when a loop ends, from what failed twice, worked, or did harm."
    lines = [] if found else [none]
    for kind, title in (("error", "Errors that came up again"), ("success", "What worked"), ("anti", "What did harm")):
        if mine := [one for one in found if one.kind == kind]:
            lines.append(_safe("\n".join([f"# {title}", *map(_pattern_line, mine), ""])))
    return _told(as_json, lines, faults, command="reflect patterns", patterns=to_plain(found))


@command.command("clear")
@click.option("--yes", is_flag=True, help="Don't ask.")
@json_option
def clear(yes: bool, as_json: bool) -> int:
    """Put all reflections and patterns into an archive, where no loop finds them; the index stays."""
    project = here()
    if busy := next((run for run in project.runs() if run.alive), None):
        what, todo = f"run {busy.id} is under way, and remembers", f"wait for it, or `ralph abort {busy.id}` first"
        raise UsageError(what, todo=todo)
    loops = len(Reflections(project.root).loops())
    if not yes and not sys.stdin.isatty():
        raise UsageError("nobody is here to agree", todo="give --yes")
    if not yes and not click.confirm(f"Put away what {loops} loops learned?", err=True):
        raise click.Abort
    target = archive(project.root, datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%S-%f"))
    told = f"What {loops} loops learned is in {target} now; move it back to have it again."
    facts = {"archive": str(target), "loops": loops} if target else {"archive": None, "loops": 0}
    return tell(as_json, [told if target else "There is nothing to put away."], command="reflect clear", **facts)


def _told(as_json: bool, lines: list[str], faults: list[str], **facts: Any) -> int:
    """Say what was found, and which files were not read for it."""
    for fault in () if as_json else faults:
        click.echo(_safe(f"skipped: {fault}"), err=True)
    return tell(as_json, lines, **facts, faults=faults)


def _loop(loops: Sequence[str], wanted: str | None) -> str | None:
    """The loop that is meant; loops that were removed long ago may still have reflections."""
    if not wanted:
        return loops[0] if loops else None
    matching = [loop for loop in loops if loop.startswith(wanted)]
    if len(matching) == 1 or wanted in matching:
        return wanted if wanted in matching else matching[0]
    if matching:
        raise UsageError(f"several loops begin with {wanted}", where=", ".join(matching), todo="name one of them")
    valid_run_id(wanted)
    raise UsageError(f"there are no reflections of {wanted}", todo="`ralph status --all` lists the runs")


def _markdown(found: Sequence[Reflection]) -> str:
    first = found[0]
    return "\n\n".join([f"# {_line(first.task)}\n\nLoop {first.loop}, {first.task_type}", *map(_section, found)])


def _section(one: Reflection) -> str:
    change = "" if one.reward_change is None else f", {one.reward_change:+.2f}"
    checks = [f"{check.title}: {check.status} {check.reason} {check.attribution}" for check in one.checks]
    rows = [
        ("Did", one.action),
        ("Failed", one.what_failed),
        ("Why", one.why),
        ("Next", one.try_next),
        ("Strategy", one.strategy),
        *(("Check", check) for check in checks),
        *(("Guard", sentence) for sentence in one.gaming),
    ]
    head = f"## Iteration {one.iteration}: {one.outcome} (reward {one.reward:.2f}{change}; {iso(one.at)})"
    return "\n".join([head, "", *(f"- **{name}**: {_line(text)}" for name, text in rows if text.strip())])


def _pattern_line(one: Pattern) -> str:
    advice = f" -> {_line(one.advice)}" if one.advice else ""
    because = f" ({_line(one.because)})" if one.because else ""
    times, loops = one.occurrences, len(one.source_loops)
    seen = f"{times} time{'s'[: times > 1]} in {loops} loop{'s'[: loops > 1]}, last {one.last_seen[:10]}"
    return f"- {_line(one.text or one.signature)}{because}{advice}  [{seen}; {one.id}]"


def _line(text: str) -> str:
    return " ".join(text.split())


def _safe(text: str) -> str:
    """Text of agents, without what would steer the terminal."""
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", "", text)
