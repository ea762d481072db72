"""The answers of the model, request by request: steps that any agent can take, and faults."""

import json
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from wire import Json, Offer, Tokens, ToolCall

FOREVER = 1_000_000
NAME_IN_PROMPT = "{ralph}"
"""In a command: the name that the prompt has for `ralph`, which can be a variable or a path."""


class Fault(StrEnum):
    """How an answer fails."""

    STATUS = "status"
    """An HTTP error."""
    LIMIT = "limit"
    """429 for every request, until the time that it names."""
    CUT = "cut"
    """The connection ends in the middle of an event."""
    HANG = "hang"
    """The answer starts, and nothing follows."""
    BROKEN = "broken"
    """An error event in the middle of a stream."""


@dataclass(frozen=True)
class Step:
    """The answer to one request, or to several if it is a fault."""

    text: str = ""
    write: tuple[str, str] | None = None
    """A file in the workspace and its content, written with any tool that the agent offers."""
    writes: tuple[tuple[str, str], ...] = ()
    """Several files at once, for an agent without tools."""
    shell: str = ""
    """A command, run with any tool that the agent offers."""
    thought: str = ""
    """What it thinks before it answers."""
    call: tuple[tuple[str, Json], ...] = ()
    """Tools by name with their arguments; the first that the agent offers is called."""
    quota: float = 0.0
    """The share of a plan that is used, which the answer reports in its headers; 0 for no headers."""
    tokens: Tokens | None = None
    fault: Fault | None = None
    status: int = 0
    seconds: float = 0.0
    """How long a limit or a hang lasts."""
    until: threading.Event | None = None
    """What ends a hang earlier."""
    of_plan: bool = False
    """Whether it is the limit of a plan, not of requests per minute."""
    times: int = 1
    """How many requests it answers."""


def say(text: str, tokens: Tokens | None = None) -> Step:
    return Step(text, tokens=tokens)


def put(path: str, content: str, tokens: Tokens | None = None) -> Step:
    return Step(f"I write {path}.", write=(path, content), tokens=tokens)


def run(command: str, tokens: Tokens | None = None) -> Step:
    return Step("I run a command.", shell=command, tokens=tokens)


def run_as_told(arguments: str) -> Step:
    """Run `ralph` with arguments, by the name that the prompt has for it."""
    return run(f"{NAME_IN_PROMPT} {arguments}")


def think(thought: str, text: str, tokens: Tokens | None = None) -> Step:
    return Step(text, thought=thought, tokens=tokens)


def use(**tools: Json) -> Step:
    """Call the first of some tools that the agent offers, with its arguments."""
    return Step("I use a tool.", call=tuple(tools.items()))


def refuse(status: int, times: int = 1) -> Step:
    return Step(f"mock error {status}", fault=Fault.STATUS, status=status, times=times)


def limited(seconds: float, *, of_plan: bool = False) -> Step:
    return Step(fault=Fault.LIMIT, status=429, seconds=seconds, of_plan=of_plan)


def cut(times: int = 1) -> Step:
    return Step("This sentence is cut off before its end, without a reason.", fault=Fault.CUT, times=times)


def hang(seconds: float = 600) -> Step:
    return Step(fault=Fault.HANG, seconds=seconds)


def broken(times: int = 1) -> Step:
    return Step("This sentence is followed by an error.", fault=Fault.BROKEN, times=times)


class Script:
    """The position of a model in its steps. Several threads can use it."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps = tuple(steps)
        self._lock = threading.Lock()
        self._at = 0
        self._times = 0
        self._resets_at = 0.0

    def next(self) -> Step:
        """The step that answers this request. After the last step, the answer is `Done.`."""
        with self._lock:
            if self._current.fault is Fault.LIMIT:
                self._resets_at = self._resets_at or time.time() + self._current.seconds
                left = self._resets_at - time.time()
                if left > 0:
                    return replace(self._current, seconds=left)
                self._forward()
            step = self._current
            self._times += 1
            if self._times >= step.times:
                self._forward()
            return step

    def next_without_tools(self) -> Step:
        """The steps up to the next message, as one: an agent without tools takes them all at once."""
        step, writes = self.next(), []
        while step.fault is None and (step.write or step.shell):
            writes += [step.write] if step.write else []
            step = self.next()
        return replace(step, writes=tuple(writes))

    @property
    def _current(self) -> Step:
        return self._steps[self._at] if self._at < len(self._steps) else say("Done.")

    def _forward(self) -> None:
        self._at, self._times, self._resets_at = min(self._at + 1, len(self._steps)), 0, 0.0


WRITERS = ("write", "write_file")
SHELLS = ("bash", "shell", "exec_command", "shell_command", "run_shell_command", "execute_command", "run_commands")
PATHS = ("file_path", "filePath", "path", "absolute_path")
CONTENTS = ("content", "file_text", "contents")
COMMANDS = ("command", "cmd", "commands")
HARMLESS: Json = {"boolean": False, "integer": 1, "number": 1, "array": [], "object": {}}


def render_edits(step: Step) -> str:
    """A step as text: its files as edit blocks with an empty search part."""
    blocks = (
        f"{path}\n```\n<<<<<<< SEARCH\n=======\n{_whole_lines(content)}>>>>>>> REPLACE\n```\n"
        for path, content in step.writes
    )
    return "\n".join((*blocks, step.text))


def build_calls(step: Step, offers: Sequence[Offer], workspace: Path, ending: str = "") -> list[ToolCall]:
    """The calls of offered tools for a step. `ending` is the command that ends a turn."""
    calls = [ToolCall(offer.name, arguments) for offer, arguments in _offered_calls(step, offers)]
    if ending and not (step.write or step.shell or calls):
        return [_shell_call(ending, offers)]
    if step.write:
        path, content = step.write
        calls.append(_write_call(workspace / path, content, offers))
    if step.shell:
        calls.append(_shell_call(step.shell, offers))
    return calls


def _offered_calls(step: Step, offers: Sequence[Offer]) -> list[tuple[Offer, Json]]:
    """The first offered tool of a step, with those of the arguments that it knows, and harmless ones that it requires."""
    for name, arguments in step.call:
        if offer := _first(offers, (name.lower(),)):
            known = offer.schema.get("properties") or {}
            return [(offer, _fill_required(offer, {key: value for key, value in arguments.items() if key in known}))]
    return []


def _write_call(path: Path, content: str, offers: Sequence[Offer]) -> ToolCall:
    tool = _first(offers, WRITERS)
    names = (_key(tool, PATHS), _key(tool, CONTENTS)) if tool else ("", "")
    if tool and all(names):
        return ToolCall(tool.name, _fill_required(tool, {names[0]: str(path), names[1]: content}))
    command = f"mkdir -p '{path.parent}' && cat > '{path}' <<'MOCK_END'\n{_whole_lines(content)}MOCK_END"
    return _shell_call(command, offers)


def _whole_lines(content: str) -> str:
    return content if content.endswith("\n") else f"{content}\n"


def _shell_call(command: str, offers: Sequence[Offer]) -> ToolCall:
    if tool := _first(offers, SHELLS):
        name = _key(tool, COMMANDS) or "command"
        is_list = str(tool.schema.get("properties", {}).get(name, {}).get("type")).lower() == "array"
        arguments = [command] if name == "commands" else ["bash", "-lc", command]
        return ToolCall(tool.name, _fill_required(tool, {name: arguments if is_list else command}))
    if (tool := _first(offers, ("exec",))) and tool.freeform:
        # Codex in its "code mode" offers one tool that runs JavaScript, in which the others are functions.
        return ToolCall(
            tool.name, f"const r = await tools.exec_command({{cmd: {json.dumps(command)}}}); text(r.output);"
        )
    return ToolCall("no-tool-for-commands-was-offered", {"command": command})


def _first(offers: Sequence[Offer], names: Sequence[str]) -> Offer | None:
    by_name = {offer.name.lower(): offer for offer in offers}
    return next((by_name[name] for name in names if name in by_name), None)


def _key(tool: Offer, names: Sequence[str]) -> str:
    known = tool.schema.get("properties") or {}
    return next((name for name in names if name in known), "")


def _fill_required(tool: Offer, arguments: Json) -> Json:
    """Add harmless values for other required arguments."""
    known = tool.schema.get("properties") or {}
    for name in tool.schema.get("required") or []:
        kind = known.get(name, {})
        harmless = kind["enum"][0] if kind.get("enum") else HARMLESS.get(str(kind.get("type")).lower(), "mock")
        arguments.setdefault(name, harmless)
    return arguments
