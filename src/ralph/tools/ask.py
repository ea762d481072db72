"""`ralph tools interact ask`: a question to the person who looks on, with what counts where nobody answers."""

import os
import time
from pathlib import Path
from typing import Any

from ralph.core.questions import Question
from ralph.store.questions import Questions
from ralph.tools.arguments import ToolError, say

LONGEST = 4000
_LOOK = 0.2
NOBODY = "Nobody answered in time. Decide by your own judgement, and say in your answer what you decided and why."


def ask(given: dict[str, Any], run_dir: str) -> int:
    """Ask, wait until somebody answers or the time is over, and print the answer."""
    text, default = given["question"].strip(), given.get("default", "").strip()
    options = tuple(option.strip() for option in given.get("options", "").split("|") if option.strip())
    if not text or len(text) > LONGEST:
        raise ToolError(f"a question has 1 to {LONGEST} characters", "ask one thing, in a few sentences")
    if default and options and default not in options:
        raise ToolError(f"the default {default!r} is none of the options", f"take one of {', '.join(options)}")
    questions, now, seconds = Questions(Path(run_dir) / "questions"), time.time(), float(given["timeout"])
    turn, role = os.environ.get("RALPH_TURN", ""), os.environ.get("RALPH_HAT") or os.environ.get("RALPH_ROLE", "")
    asked = questions.ask(Question("", text, options, default, now, seconds, turn.rpartition("/")[2], role))
    while time.time() < now + seconds:
        if answer := _answer(questions, asked.id):
            return say(answer)
        time.sleep(_LOOK)
    questions.answer(asked.id, default or NOBODY, "default", time.time())
    return say(_answer(questions, asked.id) or default or NOBODY)


def _answer(questions: Questions, id: str) -> str:
    found = questions.get(id)
    return (found.answer or "") if found else ""
