"""`ralph answer`: answer a question that an agent asked."""

import os
import re
import time

import click

from ralph.cli.console import here, json_option, tell
from ralph.cli.signal import run_option
from ralph.core.errors import UsageError
from ralph.core.questions import Question
from ralph.store.runs import Project, RunDir

_ID = re.compile(r"q[0-9]+")


@click.command("answer")
@click.argument("words", nargs=-1, required=True, metavar="[ID] ANSWER")
@run_option
@json_option
def command(words: tuple[str, ...], run: str | None, as_json: bool) -> int:
    """Answer the question ID, or the only one that waits; ANSWER is handed to the agent as it is."""
    if os.environ.get("RALPH_TURN"):
        raise UsageError("answers come from people, not from turns", todo="wait for the answer, or for the default")
    project = here()
    id = words[0] if len(words) > 1 and _ID.fullmatch(words[0]) else ""
    answer = " ".join(words[1:] if id else words).strip()
    if not answer:
        raise UsageError("the answer is empty", todo='say it: ralph answer "..."')
    chosen, question = _meant(project, run, id)
    if not chosen.questions.answer(question.id, answer, "person", time.time()):
        raise UsageError(f"question {question.id} was answered already", where=str(chosen.questions.directory))
    lines = [f"Answered {question.id} of run {chosen.id}: {question.question.splitlines()[0]}"]
    return tell(as_json, lines, command="answer", run=chosen.id, question=question.id, answer=answer)


def _meant(project: Project, wanted: str | None, id: str) -> tuple[RunDir, Question]:
    runs = [project.run(wanted)] if wanted else [run for run in project.runs() if run.alive]
    found = [(run, one) for run in runs for one in run.questions.open(time.time()) if id in ("", one.id)]
    if len(found) == 1:
        return found[0]
    if found:
        listing = "\n".join(f"    {one.id} of run {run.id}: {one.question.splitlines()[0][:80]}" for run, one in found)
        raise UsageError(
            "several questions wait", where=f"candidates:\n{listing}", todo="name one, with --run if need be"
        )
    known = [one for run in runs for one in run.questions.look() if one.id == id]
    if known:
        raise UsageError(f"question {id} waits no longer: {known[0].answer or known[0].default}")
    raise UsageError(f"there is no question {id}".rstrip() + " that waits", todo="`ralph status` shows those that do")
