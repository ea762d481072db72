"""`ralph comment`: comment on lines of what a run changed."""

from pathlib import Path
from typing import IO

import click
from click.shell_completion import CompletionItem

from ralph.app.comments import NewComment, SentComments, list_changed_files, read_comment_list, send_comments
from ralph.app.runs import find_live_run
from ralph.cli.console import complete_runs, json_option, open_project, print_result
from ralph.cli.steer import to_option
from ralph.core.errors import RalphError, UsageError
from ralph.core.text import count
from ralph.documents.diff import parse_place


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The id of a run, or a file that the run changed. For shells: it never fails."""
    words = tuple(ctx.params.get("words") or ())
    if len(words) > 1 or (words and parse_place(words[0])):
        return []
    found = [] if words else complete_runs(ctx, param, incomplete)
    try:
        files = list_changed_files(open_project(), words[0] if words else None)
    except (RalphError, OSError):
        files = []
    return found + [CompletionItem(f"{path}:") for path in files if path.startswith(incomplete)]


@click.command("comment")
@click.argument("words", nargs=-1, metavar="[RUN] [PATH:LINE[-LINE] TEXT]", shell_complete=_complete)
@click.option(
    "--from",
    "source",
    type=click.File("r", encoding="utf-8", errors="replace"),
    metavar="FILE",
    help="Send all comments in FILE together: one `path:line: text` per line. Indented lines continue a comment. `-` reads"
    " standard input.",
)
@click.option("--removed", is_flag=True, help="LINE is a line that the run removed, as it was before the run.")
@to_option
@json_option
def comment(words: tuple[str, ...], source: IO[str] | None, removed: bool, role: str, as_json: bool) -> int:
    """Comment on lines of what RUN changed. Default: the live run, or the only run that can continue.

    LINE is the number of the line in the file as `ralph diff` shows it after the change. The agents get your text with the
    path, the lines and a quote: as one STEER, or as feedback if a session has stopped. `ralph signals` shows who received it,
    and which turn changed these lines.
    """
    project, side = open_project(), "old" if removed else "new"
    wanted, place, text = _split_comment(words)
    if source:
        if place:
            raise UsageError("the command has both a comment and --from", todo="put all comments into the file")
        comments = read_comment_list(source.read(), source.name, side=side)
    elif place:
        comments = [NewComment.at(place, text, side)]
    else:
        todo = 'type `ralph comment RUN path:line "text"`, or --from FILE for several comments'
        raise UsageError("there is no comment", todo=todo)
    run = find_live_run(project, wanted, "comment on")
    return _show_comments(send_comments(project, run, comments, role=role, directory=Path.cwd()), as_json=as_json)


def _split_comment(words: tuple[str, ...]) -> tuple[str | None, str, str]:
    """The run, the place and the text among the arguments; the run comes first if it is named."""
    rest = list(words)
    wanted = rest.pop(0) if rest and (len(rest) in (1, 3) and not parse_place(rest[0])) else None
    if not rest:
        return wanted, "", ""
    if len(rest) != 2 or (parse_place(rest[1]) and not parse_place(rest[0])):
        what = "the comment has no text" if len(rest) < 3 else "the comment is more than one argument"
        raise UsageError(what, todo='put the text in quotes after the place: ralph comment RUN path:line "text"')
    return wanted, rest[0], rest[1]


def _show_comments(sent: SentComments, *, as_json: bool) -> int:
    run = sent.run
    if sent.feedback:
        effect = f"as feedback for iteration {sent.iteration} ({sent.feedback})"
        next_command = f"ralph session resume {run.id}"
    elif run.alive:
        effect, next_command = "as one STEER", f"ralph signals --run {run.id} --watch"
    else:
        effect, next_command = "as one STEER, which the run receives when you resume it", f"ralph resume {run.id}"
    lines = [f"Sent {count(sent.count, 'comment')} to run {run.id} {effect}.", f"Next:   {next_command}"]
    facts = {"comments": sent.count, "name": sent.signal, "feedback": sent.feedback, "alive": run.alive}
    return print_result(as_json, lines, command="comment", run=run.id, **facts)
