"""What the readers of the agents' JSON lines share: careful access, and texts as long as they may be."""

import json
import math
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from time import time
from typing import Any

from ralph.core.codec import json_object
from ralph.core.stream import clean_text

TOOL_CHARS, TEXT_CHARS = 300, 20_000
_MOST_TOKENS, _MOST_MONEY = 10**12, 10**6
_LARGEST_SETTINGS = 1024 * 1024
LONGEST_LIMIT = 45 * 86400.0
"""No limit ends later than in a month and a half: another date was misread."""


class Data(dict[str, Any]):
    """An object of an agent's JSON, read with care: what is not there, or is of another kind, is empty."""

    @classmethod
    def of(cls, found: object) -> "Data":
        """What was found, where it is an object."""
        return cls(found) if isinstance(found, dict) else cls()

    def inner(self, *keys: str) -> "Data":
        """The object under the keys."""
        found: object = self
        for key in keys:
            found = found.get(key) if isinstance(found, dict) else None
        return Data.of(found)

    def objects(self, key: str) -> "list[Data]":
        """The objects in a list."""
        found = self.get(key)
        return [Data(one) for one in found if isinstance(one, dict)] if isinstance(found, list) else []

    def word(self, *keys: str) -> str:
        """The text under the first of the keys that has one."""
        return next((found for key in keys if isinstance(found := self.get(key), str) and found), "")

    def said(self, key: str) -> str:
        """The text of a message or of a tool's result: a string, or blocks of which some are text."""
        return said(self.get(key))

    def number(self, key: str) -> float | None:
        """The number under a key, where it can be counted with."""
        found = self.get(key)
        if isinstance(found, bool) or not isinstance(found, int | float) or not 0 <= found < math.inf:
            return None
        try:
            return float(found)
        except OverflowError:
            return None

    def count(self, *keys: str) -> int:
        """The tokens under the keys in all; what is no number of tokens is nothing."""
        found = [self.number(key) or 0.0 for key in keys]
        return sum(int(one) for one in found if one <= _MOST_TOKENS)

    def money(self, key: str) -> float | None:
        """The US dollars under a key; None for what no turn can have cost."""
        found = self.number(key)
        return found if found is not None and found <= _MOST_MONEY else None


def parse(line: bytes) -> Data:
    """The JSON object in a line; an empty one where there is none."""
    return Data(json_object(line) if line.lstrip()[:1] == b"{" else {})


def named_model(*files: Path) -> str:
    """The model (`model.name`, or `model`) in the first of some settings files that names one; comments are passed over."""
    for path in files:
        try:
            lines = path.read_bytes()[:_LARGEST_SETTINGS].splitlines()
        except OSError:
            continue
        settings = parse(b"\n".join(line for line in lines if not line.lstrip().startswith(b"//")))
        if name := settings.inner("model").word("name") or settings.word("model"):
            return name
    return ""


def prose(text: str) -> str:
    """What an agent says, as long as it may be."""
    return clean_text(text[:TEXT_CHARS]).strip()


def brief(text: str) -> str:
    """A text in one short line."""
    line = " ".join(clean_text(text[: TOOL_CHARS * 8]).split())
    return line if len(line) <= TOOL_CHARS else line[: TOOL_CHARS - 1] + "…"


_TELLING = (
    *("command", "cmd", "file_path", "absolute_path", "path", "notebook_path"),
    *("pattern", "query", "url", "prompt", "description"),
)


def tool_text(name: str, given: object) -> str:
    """The name of a tool and the part of its input that says most."""
    data = Data.of(given)
    if todos := data.objects("todos"):
        what = todo_text(todos, "content", lambda item: item.word("status") == "completed")
    else:
        what = data.word(*_TELLING) or (json.dumps(given, ensure_ascii=False) if given else "")
    return brief(f"{name or 'a tool'}: {what}" if what else name or "a tool")


def said(content: object) -> str:
    """The text of a message or a tool's result: a string, or blocks of which some are text and some are images."""
    if isinstance(content, list):
        return "\n".join(said(block) for block in content[:100] if isinstance(block, dict | str))
    if isinstance(content, str):
        return content
    block = Data.of(content)
    return "[image]" if block.word("type") in ("image", "input_image", "image_url") else block.word("text")


def todo_text(items: "list[Data]", text: str, is_done: Callable[[Data], bool]) -> str:
    """A list of things to do in one line: how many are done, and the first that is not. `text` is the key of an item."""
    done = [item for item in items if is_done(item)]
    left = [item.word(text) for item in items if not is_done(item)]
    following = f": {left[0]}" if left else ""
    return brief(f"{len(done)} of {len(items)} done{following}")


def moment(data: Data) -> float:
    """When a line was written, by its own word (a date, or milliseconds) where it can be true, else by the clock."""
    now, milliseconds = time(), data.number("timestamp")
    try:
        told = milliseconds / 1000 if milliseconds else datetime.fromisoformat(data.word("timestamp")).timestamp()
    except (ValueError, OverflowError, OSError):
        return now
    return told if now - LONGEST_LIMIT < told < now + 3600 else now


def unwrapped(text: str) -> str:
    """The message inside of an error that is told as JSON, alone or in the middle of a sentence."""
    data = parse(text[max(0, text.find("{")) : text.rfind("}") + 1].encode(errors="replace"))
    return (data.inner("error") or data).word("message") or text
