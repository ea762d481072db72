"""`ralph tools signals`: what the person has said to this turn since it was last asked; for agents, between two steps."""

import os

from ralph.agents.hook import claim
from ralph.tools.arguments import ToolError, say

USAGE = """usage: ralph tools signals

  Print what the person has said to you since you last asked, once. Call it between the steps of your work."""


def run(words: list[str]) -> int:
    """Take in the words that wait for this turn, and print them."""
    if words[:1] in (["--help"], ["-h"]):
        return say(USAGE)
    if words:
        raise ToolError(f"there is no place for {words[0]!r}", "leave it out")
    place = os.environ.get("RALPH_WORDS")
    if not place:
        raise ToolError("this is no turn of a run", "people see the signals of a run with `ralph signals`")
    return say("\n".join(claim(place, "tool")) or "Nothing was said.")
