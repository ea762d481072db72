"""`ralph tools interact`: words to the people who look on."""

import os

from ralph.documents.agent.json_text import dumps
from ralph.tools import place
from ralph.tools.arguments import Argument, Command, ToolError, number_in, run_group, say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ABOUT = "Words to the people who look on; nobody has to be there."
FEED = "progress.jsonl"
LONGEST = 2000


def _progress(given: "dict[str, Any]") -> int:
    message = given["message"].strip()
    if not message or len(message) > LONGEST:
        raise ToolError(f"a message has 1 to {LONGEST} characters", "say in a sentence or two how far you are")
    directory = _run_dir(given)
    turn = os.environ.get("RALPH_TURN", "").rpartition("/")[2]
    role = os.environ.get("RALPH_HAT") or os.environ.get("RALPH_ROLE", "")
    told = {"turn": int(turn) if turn.isdigit() else None, "role": role, "message": message}
    line = {"at": place.now(), "type": "turn.progress", **told}
    place.append(os.path.join(directory, FEED), (dumps(line) + "\n").encode(errors="backslashreplace"))
    return say("Sent.")


def _ask(given: "dict[str, Any]") -> int:
    from ralph.tools.ask import ask

    return ask(given, _run_dir(given))


def _run_dir(given: "dict[str, Any]") -> str:
    run = place.run_id(given)
    runs = os.path.join(place.root(given), ".ralph", "runs")
    directory = os.path.join(runs, run)
    if not run or run.startswith(".") or os.path.dirname(directory) != runs or not os.path.isdir(directory):
        raise ToolError(f"there is no run {run}".rstrip(), "this is for the agents of a run", where=runs)
    return directory


COMMANDS = (
    Command(
        "progress",
        "Say how far you are. `ralph logs` shows it.",
        _progress,
        Argument("message", nargs="+", help="A sentence or two."),
    ),
    Command(
        "ask",
        "Ask the user, wait for the answer, and print it.",
        _ask,
        Argument("question", nargs="+", help="One thing, in a few sentences."),
        Argument("--options", metavar="A|B|C", help="The answers to choose from, separated by |."),
        Argument("--default", metavar="TEXT", help="The answer if nobody answers in time."),
        Argument(
            "--timeout",
            metavar="SECONDS",
            type=number_in(range(1, 86_401)),
            default=300,
            help="How long to wait. Default: %(default)s.",
        ),
    ),
)


def run(words: list[str]) -> int:
    """Do what `ralph tools interact WORDS...` says."""
    if words[:1] == ["ask"] and os.environ.get("RALPH_MAY_ASK") == "no":
        raise ToolError(
            "this hat may not ask a person", "choose the safest way, and record it: ralph tools decision add"
        )
    return run_group("ralph tools interact", ABOUT, COMMANDS, words)
