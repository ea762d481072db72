"""Output as it should not be: what the contract of the adapters puts before their readers."""

import json
import random
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

from ralph.core.codec import json_object

POISON = "\x1b[31m\x00\x7f\x9b\ud800 " * 4_000
"""A text without an end, full of what commands a terminal."""
NOISE = (
    *(b"", b"  ", b"Welcome! A new version is there.", b"\xff\xfe\x00\x1b[31m", b"{", b"}", b"null", b"[]", b'"a"'),
    *(b"{}", b'{"type": null}', b'{"type": ["a"]}', b'{"type": {"a": 1}}', b'{"type": "nobody-knows-it"}'),
)
"""Lines that are no events of anybody's."""
MONSTERS = (b'{"a":' * 100_000, b"x" * 2_000_000)
"""The same, deeper and longer than anybody's."""
_WRONG: tuple[Any, ...] = (
    *(None, True, False, -1, 7, 10**400, 1e308, float("nan")),
    *("", POISON, [], [[]], {}, {"a": [1]}),
)


def spoilt(line: bytes, chance: random.Random) -> list[bytes]:
    """A line cut, doubled, torn, between garbage, or with other values in it; often as it was."""
    garbage = chance.randbytes(chance.randrange(40))
    at = chance.randrange(len(line) + 1)
    match chance.randrange(9):
        case 0:
            return [line[:at]]
        case 1:
            return [line, line]
        case 2:
            return [garbage, line, b"{" + garbage]
        case 3:
            return [line[:at] + garbage, line[at:]]
        case 4 | 5 | 6:
            return [_changed(line, chance)]
        case _:
            return [line]


def _changed(line: bytes, chance: random.Random) -> bytes:
    """A line with some of its values changed or dropped; some of its bytes where it holds no object."""
    data = json_object(line)
    if not data:
        return bytes(chance.randrange(256) if chance.random() < 0.1 else byte for byte in line)
    for _ in range(chance.randrange(1, 4)):
        if places := list(_places(data)):
            holder, key = chance.choice(places)
            if chance.random() < 0.3:
                del holder[key]
            else:
                holder[key] = deepcopy(chance.choice(_WRONG))
    return json.dumps(data).encode()


def poisoned(line: bytes, chance: random.Random) -> bytes:
    """A line with poison in some of its texts."""
    data = json_object(line)
    if not data:
        return line + POISON.encode(errors="replace") + line
    for holder, key in list(_places(data)):
        if isinstance(holder[key], str) and chance.random() < 0.5:
            holder[key] += POISON
    return json.dumps(data).encode()


def _places(data: Any) -> Iterator[tuple[Any, Any]]:
    """Every place in it that holds a value, as its holder and its key there."""
    for key in list(data) if isinstance(data, dict) else range(len(data)):
        yield data, key
        if isinstance(data[key], dict | list):
            yield from _places(data[key])
