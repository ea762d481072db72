"""What runs inside of mini-swe-agent, in its own Python: its agent, with the task from standard input and events as JSON.

mini prints for people alone, without the tokens; a class of the user's is what its option --agent-class is there for.
"""

import json
import os
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from minisweagent.agents.default import DefaultAgent  # type: ignore[import-not-found]
from minisweagent.exceptions import Submitted  # type: ignore[import-not-found]

_HOOK = spec_from_file_location("ralph_hook", Path(__file__).parent.with_name("hook.py"))
assert _HOOK and _HOOK.loader
hook = module_from_spec(_HOOK)
_HOOK.loader.exec_module(hook)

_KEPT = ("role", "content")
_KEPT_OF_EXTRA = ("actions", "cost", "raw_output", "returncode", "exception_info", "exit_status", "interrupt_type")


class JsonAgent(DefaultAgent):  # type: ignore[misc]
    """The agent of mini that asks nothing, and prints each message in a line."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        _forget_how_this_was_found()
        if steps := os.environ.pop("RALPH_MINI_STEPS", ""):
            self.config.step_limit = int(steps)

    def run(self, task: str = "", **more: Any) -> Any:
        """Do what standard input says: an argument could not hold it."""
        return super().run(sys.stdin.read(), **more)

    def query(self) -> Any:
        """Ask the model, after words that a person has for it."""
        if words := _claim():
            self.add_messages(self.model.format_message(role="user", content=words))
        return super().query()

    def execute_actions(self, message: dict[str, Any]) -> Any:
        """Do what the model wants; it ends only where nobody has words for it."""
        try:
            return super().execute_actions(message)
        except Submitted:
            if not (words := _claim()):
                raise
            told = [{"output": words, "returncode": 1, "exception_info": ""} for _ in message["extra"]["actions"]]
            return self.add_messages(*self.model.format_observation_messages(message, told, self.get_template_vars()))

    def add_messages(self, *messages: dict[str, Any]) -> Any:
        """Print what is added; the prompt was seen already."""
        for message in messages:
            extra = message.get("extra") or {}
            if message.get("role") == "system" or not (extra or self.n_calls):
                continue
            response = extra.get("response")
            told = {name: message[name] for name in _KEPT if name in message}
            told |= {name: extra[name] for name in _KEPT_OF_EXTRA if name in extra}
            told |= {name: response.get(name) for name in ("usage", "model")} if isinstance(response, dict) else {}
            print(json.dumps({"mini": told}, default=str), flush=True)  # noqa: T201
        return super().add_messages(*messages)


def _claim() -> str:
    return "\n\n".join(hook.claim(os.environ.get("RALPH_WORDS", ""), "hook"))


def _forget_how_this_was_found() -> None:
    """The commands of the agent have the PYTHONPATH that the user has."""
    here = str(Path(__file__).parent)
    kept = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path and path != here]
    os.environ.pop("PYTHONPATH", None)
    os.environ.update({"PYTHONPATH": os.pathsep.join(kept)} if kept else {})
