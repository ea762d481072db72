"""Every prompt that a real agent received must have the properties of the golden files."""

import json
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

from model import Request

from ralph.core.prompt import PartSize

sys.path.insert(0, str(Path(__file__).parents[1] / "prompts"))
from prompt_properties import find_faults

PATHS = (".ralph/turn/outbox", ".ralph/agent", ".agents/scratchpad")
"""What agents read and write beside their inbox."""


def find_prompt_faults(root: Path, requests: Sequence[Request]) -> list[str]:
    """What is wrong with the prompts of all turns below a project; `requests` is what the model was asked."""
    faults = []
    prompts = []
    for path in sorted((root / ".ralph" / "runs").glob("*/turns/*/prompt.md")):
        text = path.read_text()
        prompts.append(_join_lines(text))
        sizes = [PartSize(**part) for part in json.loads((path.parent / "turn.json").read_text())["parts"]]
        received = [request for request in requests if prompts[-1] in _join_lines(request.user_text)]
        # A turn that ended before its first request has a prompt, too.
        inbox = {name for request in received for name in request.inbox} if received else None
        faults += [f"{path.parent.name}: {fault}" for fault in find_faults(text, inbox, PATHS, sizes)]
    return faults + _find_strays(requests, prompts) if prompts else []


def _find_strays(requests: Sequence[Request], prompts: Collection[str]) -> list[str]:
    """Requests without the whole prompt of a turn: the agent changed it on its way to the model."""
    strays = [
        request for request in requests if not any(prompt in _join_lines(request.user_text) for prompt in prompts)
    ]
    return [f"a request has no whole prompt: {request.user_text[:200]}" for request in strays]


def _join_lines(text: str) -> str:
    return " ".join(text.split())
