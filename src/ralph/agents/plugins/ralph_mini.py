"""The agent class that runs inside mini-swe-agent, in its own Python: it reads the task from standard input, and prints JSON.

By itself, mini prints text without the tokens. Its option --agent-class takes a class like this one.
"""

import json
import os
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from minisweagent.agents.default import DefaultAgent  # type: ignore[import-not-found]
from minisweagent.exceptions import Submitted  # type: ignore[import-not-found]

_MESSAGES = spec_from_file_location("ralph_live_messages", Path(__file__).parent.with_name("live_messages.py"))
assert _MESSAGES and _MESSAGES.loader
live_messages = module_from_spec(_MESSAGES)
_MESSAGES.loader.exec_module(live_messages)

_MESSAGE_KEYS = ("role", "content")
_EXTRA_KEYS = ("actions", "cost", "raw_output", "returncode", "exception_info", "exit_status", "interrupt_type")


class JsonAgent(DefaultAgent):  # type: ignore[misc]
    """mini's agent, without questions. It prints each message in a line."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        _restore_python_path()
        if steps := os.environ.pop("RALPH_MINI_STEPS", ""):
            self.config.step_limit = int(steps)

    def run(self, task: str = "", **more: Any) -> Any:
        """Work on the task from standard input: it can be too long for an argument."""
        return super().run(sys.stdin.read(), **more)

    def query(self) -> Any:
        """Ask the model, after adding messages of the user."""
        if text := _claim_messages():
            self.add_messages(self.model.format_message(role="user", content=text))
        return super().query()

    def execute_actions(self, message: dict[str, Any]) -> Any:
        """Run the commands of the model. The turn ends only if no message of the user waits."""
        try:
            return super().execute_actions(message)
        except Submitted:
            text = _claim_messages()
            if not text:
                raise
            outputs = [{"output": text, "returncode": 1, "exception_info": ""} for _ in message["extra"]["actions"]]
            return self.add_messages(
                *self.model.format_observation_messages(message, outputs, self.get_template_vars())
            )

    def add_messages(self, *messages: dict[str, Any]) -> Any:
        """Print new messages, but not the prompt."""
        for message in messages:
            extra = message.get("extra") or {}
            if message.get("role") == "system" or not (extra or self.n_calls):
                continue
            response = extra.get("response")
            line = {name: message[name] for name in _MESSAGE_KEYS if name in message}
            line |= {name: extra[name] for name in _EXTRA_KEYS if name in extra}
            if isinstance(response, dict):
                line |= {name: response.get(name) for name in ("usage", "model")}
            print(json.dumps({"mini": line}, default=str), flush=True)  # noqa: T201
        return super().add_messages(*messages)


def _claim_messages() -> str:
    return "\n\n".join(live_messages.claim_messages(os.environ.get("RALPH_MESSAGES", ""), "hook"))


def _restore_python_path() -> None:
    """Remove our directory from PYTHONPATH: commands of the agent get the user's own."""
    here = str(Path(__file__).parent)
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path and path != here]
    os.environ.pop("PYTHONPATH", None)
    os.environ.update({"PYTHONPATH": os.pathsep.join(paths)} if paths else {})
