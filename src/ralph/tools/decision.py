"""`ralph tools decision`: what was decided without being sure."""

import os

from ralph.documents.agent import decisions
from ralph.documents.agent.decisions import FIELDS, Decision
from ralph.documents.agent.json_text import dumps
from ralph.tools import place
from ralph.tools.arguments import FORMAT, Argument, Command, ToolError, non_empty, number_in, run_group, say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ABOUT = "What was decided without being sure: how sure, what else was possible, why, and how to take it back."
FILE = "decisions.md"


def _add(given: "dict[str, Any]") -> int:
    if not given["decision"].strip():
        raise ToolError("the decision is empty", "say in a sentence what was decided")
    whose = {"role": os.environ.get("RALPH_HAT") or os.environ.get("RALPH_ROLE", ""), "run": place.run_id(given)}
    fields = {**{name: str(given[name]) for name in FIELDS}, **whose, "date": place.day()}
    kept: list[Decision] = []

    def add(data: bytes) -> bytes:
        text, decision = decisions.added(data.decode(errors="surrogateescape"), given["decision"], fields)
        kept[:] = [decision]
        return text.encode(errors="surrogateescape")

    place.change(place.shared(given, FILE), add)
    texts = {"json": dumps(kept[0].row()), "quiet": kept[0].id}
    return say(texts.get(given["format"], f"Decision recorded: {kept[0].id}"))


def _list(given: "dict[str, Any]") -> int:
    found = decisions.parse(place.read(place.shared(given, FILE)).decode(errors="surrogateescape"))
    if given["format"] == "json":
        return say(dumps([decision.row() for decision in found], 2))
    if given["format"] == "quiet":
        return say("\n".join(decision.id for decision in found)) if found else 0
    if not found:
        return say("No decisions yet")
    return say("\n".join(f"{one.id}  {one.fields.get('confidence', '-'):>4}  {one.title}" for one in found))


COMMANDS = (
    Command(
        "add",
        "Record a decision, under the next number.",
        _add,
        Argument("decision", nargs="+", help="What was decided, in a sentence."),
        Argument(
            "-c", "--confidence", metavar="0-100", type=number_in(range(101)), required=True, help="How sure you are."
        ),
        Argument("--alternatives", metavar="TEXT", type=non_empty, required=True, help="What else was possible."),
        Argument("--reasoning", metavar="TEXT", type=non_empty, required=True, help="Why this."),
        Argument(
            "--reversibility",
            metavar="TEXT",
            type=non_empty,
            required=True,
            help="How to undo it, and what that costs.",
        ),
        FORMAT,
    ),
    Command("list", "All decisions, the oldest first.", _list, FORMAT),
)


def run(words: list[str]) -> int:
    """Do what `ralph tools decision WORDS...` says."""
    return run_group("ralph tools decision", ABOUT, COMMANDS, words)
