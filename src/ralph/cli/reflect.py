"""`ralph reflect`: what loops learned."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import click

from ralph.app.runs import refuse_inside_a_turn
from ralph.cli.console import agree, json_option, open_project, print_result, run_argument
from ralph.cli.terminal import print_text
from ralph.core.codec import format_time
from ralph.core.errors import StateError, UsageError
from ralph.core.ids import parse_run_id
from ralph.core.text import count
from ralph.documents.reflection import Reflection, lesson, render
from ralph.memory.learning import ADVICE, Pattern, read_patterns
from ralph.memory.reflections import Reflections, archive
from ralph.view.json_form import to_full


class _ShowByDefault(click.Group):
    """`show` is the default: `ralph reflect RUN` is `ralph reflect show RUN`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        known = (*self.commands, *ctx.help_option_names)
        return super().parse_args(ctx, args if args and args[0] in known else ["show", *args])


@click.group("reflect", cls=_ShowByDefault)
def reflect() -> None:
    """Show what loops learned, list the patterns, or archive both.

    \b
    ralph reflect                        the reflections of the latest loop
    ralph reflect RUN --last 3           the last three of one loop
    ralph reflect patterns               what happened more than once
    """


@reflect.command("show")
@run_argument
@click.option("--last", type=click.IntRange(min=1), help="Show only the last N iterations.", metavar="N")
@click.option(
    "--format",
    "form",
    type=click.Choice(["markdown", "yaml", "summary"]),
    default="markdown",
    help="The format of the output. Default: markdown.",
)
@json_option
def show(run: str | None, last: int | None, form: str, as_json: bool) -> int:
    """Show the reflections of RUN, or of the latest loop that has any."""
    reflections = Reflections(open_project().root)
    loop = _loop(reflections.loops(), run)
    found = reflections.of(loop, last) if loop else []
    if not found:
        lines = ["No reflections yet: a loop writes one after every iteration."]
        lines.append("Next:   ralph loop \"TASK\" --until '`COMMAND` passes'")
    elif form == "yaml":
        lines = ["---\n".join(render(one) for one in found).removesuffix("\n")]
    elif form == "summary":
        lines = [f"{one.iteration:>4}  {one.outcome}  {one.reward:.2f}  {lesson(one)}" for one in found]
    else:
        lines = [_markdown(found)]
    return _print_found(as_json, lines, reflections.faults, command="reflect", loop=loop, reflections=to_full(found))


@reflect.command("patterns")
@json_option
def patterns(as_json: bool) -> int:
    """List the errors that happened more than once, what worked, and what made things worse."""
    root = open_project().root
    faults: list[str] = []
    found: list[Pattern] = []
    for kind in ADVICE:
        try:
            found += read_patterns(root, kind)
        except StateError as error:
            faults.append(f"{error.where}: {error.what}")
    none = "No patterns yet. When a loop ends, Ralph records what failed twice, what worked and what made things worse."
    lines = [] if found else [none]
    for kind, title in (
        ("error", "Errors that happened more than once"),
        ("success", "What worked"),
        ("anti", "What made things worse"),
    ):
        if mine := [one for one in found if one.kind == kind]:
            lines.append("\n".join([f"# {title}", *map(_pattern_line, mine), ""]))
    return _print_found(as_json, lines, faults, command="reflect patterns", patterns=to_full(found))


@reflect.command("clear")
@click.option("--yes", is_flag=True, help="Archive without asking.")
@json_option
def clear(yes: bool, as_json: bool) -> int:
    """Move all reflections and patterns to an archive that loops do not read. The index stays."""
    refuse_inside_a_turn("an agent cannot archive what loops learned", "leave that to the user")
    project = open_project()
    if busy := next((run for run in project.runs() if run.alive), None):
        todo = f"wait for it, or `ralph abort {busy.id}` first"
        raise UsageError(f"run {busy.id} is running and uses the reflections", todo=todo)
    loops = len(Reflections(project.root).loops())
    agree(yes=yes, where=str(project.root), todo="pass --yes", question=f"Archive what {count(loops, 'loop')} learned?")
    target = archive(project.root, datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%S-%f"))
    moved = f"Archived what {count(loops, 'loop')} learned in {target}. Move it back to use it again."
    facts = {"archive": str(target), "loops": loops} if target else {"archive": None, "loops": 0}
    return print_result(
        as_json, [moved if target else "There is nothing to archive."], command="reflect clear", **facts
    )


def _print_found(as_json: bool, lines: list[str], faults: list[str], **facts: Any) -> int:
    """Print what was found, and which files could not be read."""
    for fault in () if as_json else faults:
        print_text(f"skipped: {fault}", err=True)
    return print_result(as_json, lines, **facts, faults=faults)


def _loop(loops: Sequence[str], wanted: str | None) -> str | None:
    """The named loop, or the latest. Loops that were removed long ago may still have reflections."""
    if not wanted:
        return loops[0] if loops else None
    matching = [loop for loop in loops if loop.startswith(wanted)]
    if len(matching) == 1 or wanted in matching:
        return wanted if wanted in matching else matching[0]
    if matching:
        raise UsageError(f"several loops begin with {wanted}", where=", ".join(matching), todo="name one of them")
    parse_run_id(wanted)
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
    head = f"## Iteration {one.iteration}: {one.outcome} (reward {one.reward:.2f}{change}; {format_time(one.at)})"
    return "\n".join([head, "", *(f"- **{name}**: {_line(text)}" for name, text in rows if text.strip())])


def _pattern_line(one: Pattern) -> str:
    advice = f" -> {_line(one.advice)}" if one.advice else ""
    because = f" ({_line(one.because)})" if one.because else ""
    times, loops = one.occurrences, len(one.source_loops)
    seen = f"{count(times, 'time')} in {count(loops, 'loop')}, last {one.last_seen[:10]}"
    return f"- {_line(one.text or one.signature)}{because}{advice}  [{seen}; {one.id}]"


def _line(text: str) -> str:
    return " ".join(text.split())
