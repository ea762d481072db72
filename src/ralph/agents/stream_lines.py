"""Reading the JSON lines that agents print: careful access to values, and texts of limited length."""

import json
import math
import re
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from time import time
from typing import Any

from ralph.core.codec import parse_json_object
from ralph.core.text import clean_text
from ralph.core.turns import IMAGE

TOOL_CHARS, TEXT_CHARS = 300, 20_000
_MAX_TOKENS, _MAX_COST = 10**12, 10**6
_SETTINGS_LIMIT = 1024 * 1024
LONGEST_LIMIT = 45 * 86400.0
"""Seconds. No usage limit lasts longer than a month and a half: a later date was misread."""


class Data(dict[str, Any]):
    """A JSON object from an agent. A value that is missing or of another type reads as empty."""

    @classmethod
    def of(cls, value: object) -> "Data":
        """The value, if it is an object; else an empty one."""
        return cls(value) if isinstance(value, dict) else cls()

    def inner(self, *keys: str) -> "Data":
        """The object under a path of keys."""
        value: object = self
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        return Data.of(value)

    def objects(self, key: str) -> "list[Data]":
        """The objects in a list."""
        items = self.get(key)
        if not isinstance(items, list):
            return []
        return [Data(item) for item in items if isinstance(item, dict)]

    def text(self, *keys: str) -> str:
        """The first text under the keys that is not empty."""
        for key in keys:
            value = self.get(key)
            if isinstance(value, str) and value:
                return value
        return ""

    def content_text(self, key: str) -> str:
        """The text of a message or of a tool's result: a string, or blocks of which some are text."""
        return content_text(self.get(key))

    def number(self, key: str) -> float | None:
        """The number under a key; None if it is negative or not finite."""
        value = self.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
            return None
        try:
            return float(value)
        except OverflowError:
            return None

    def count(self, *keys: str) -> int:
        """The sum of the token counts under the keys; an implausible one counts as 0."""
        numbers = [self.number(key) or 0.0 for key in keys]
        return sum(int(number) for number in numbers if number <= _MAX_TOKENS)

    def money(self, key: str) -> float | None:
        """The US dollars under a key; None for what no turn can have cost."""
        number = self.number(key)
        return number if number is not None and number <= _MAX_COST else None


def parse_line(line: bytes) -> Data:
    """The JSON object in a line; an empty one if there is none."""
    return Data(parse_json_object(line) if line.lstrip()[:1] == b"{" else {})


_STRING_OR_COMMENT = re.compile(r'"(?:\\.|[^"\\])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
"""Agents' settings are JSON with comments. A string can contain what looks like a comment."""


def parse_settings(text: str) -> Data:
    """The settings in a text. Raises ValueError if they are not JSON with comments."""
    return Data.of(json.loads(_STRING_OR_COMMENT.sub(lambda found: found[0] if found[0][0] == '"' else "", text)))


def read_settings(path: Path) -> Data:
    """The settings in an agent's file; empty if there are none, or if they cannot be read."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return parse_settings(file.read(_SETTINGS_LIMIT))
    except (OSError, ValueError, RecursionError):
        return Data()


def read_model(*files: Path) -> str:
    """The model (`model.name`, or `model`) in the first settings file that names one."""
    for path in files:
        settings = read_settings(path)
        if name := settings.inner("model").text("name") or settings.text("model"):
            return name
    return ""


def limit_text(text: str) -> str:
    """A text without control characters, cut to `TEXT_CHARS`."""
    return clean_text(text[:TEXT_CHARS]).strip()


def one_line(text: str) -> str:
    """A text in one line, cut to `TOOL_CHARS`."""
    line = " ".join(clean_text(text[: TOOL_CHARS * 8]).split())
    return line if len(line) <= TOOL_CHARS else line[: TOOL_CHARS - 1] + "…"


_MAIN_ARGUMENTS = (
    *("command", "cmd", "file_path", "filePath", "absolute_path", "path", "notebook_path"),
    *("pattern", "query", "url", "prompt", "instructions", "description", "source"),
)
"""The arguments of a tool that say most, best first."""
SUB_AGENT_TOOLS = frozenset(("agent", "task", "invoke_agent", "delegate", "spawn_agent"))
"""The names of the tools that start a sub-agent. Some agents report nothing else about it."""
IMAGE_NOTICE = "Read image file: "
"""The prefix of the result of a tool that gave the model an image, in Gemini CLI and Qwen Code."""


def describe_tool(name: str, arguments: object) -> str:
    """The name of a tool and the argument that says most."""
    data = Data.of(arguments)
    if todos := data.objects("todos"):
        detail = describe_todos(todos, "content", lambda item: item.text("status") == "completed")
    else:
        detail = data.text(*_MAIN_ARGUMENTS) or (json.dumps(arguments, ensure_ascii=False) if arguments else "")
    name = name or "a tool"
    if name.lower() in SUB_AGENT_TOOLS:
        name = f"sub-agent ({name})"
    return one_line(f"{name}: {detail}" if detail else name)


def content_text(content: object) -> str:
    """The text of a message or a tool's result: a string, or blocks of which some are text and some are images."""
    if isinstance(content, list):
        return "\n".join(content_text(block) for block in content[:100] if isinstance(block, dict | str))
    if isinstance(content, str):
        return content
    block = Data.of(content)
    return IMAGE if block.text("type") in ("image", "input_image", "image_url") else block.text("text")


def describe_todos(items: "list[Data]", key: str, is_done: Callable[[Data], bool]) -> str:
    """A to-do list in one line: how many items are done, and the first that is not. `key` is that of an item's text.

    In Gemini CLI, the text of an item is its description.
    """
    open_items = [item.text(key, "description") for item in items if not is_done(item)]
    following = f": {open_items[0]}" if open_items else ""
    return one_line(f"{len(items) - len(open_items)} of {len(items)} done{following}")


def read_timestamp(data: Data) -> float:
    """When a line was written: its own timestamp (a date, or milliseconds) if that is plausible, else the clock's."""
    now, milliseconds = time(), data.number("timestamp")
    try:
        moment = milliseconds / 1000 if milliseconds else datetime.fromisoformat(data.text("timestamp")).timestamp()
    except (ValueError, OverflowError, OSError):
        return now
    return moment if now - LONGEST_LIMIT < moment < now + 3600 else now


def unwrap_error(text: str) -> str:
    """The message inside an error that is JSON, or that has JSON in the middle of a sentence."""
    data = parse_line(text[max(0, text.find("{")) : text.rfind("}") + 1].encode(errors="replace"))
    return (data.inner("error") or data).text("message") or text
