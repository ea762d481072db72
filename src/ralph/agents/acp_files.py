"""The files that an agent reads and writes through us: those of the workspace, and no others."""

import os
from pathlib import Path

from ralph.agents.acp_program import LONGEST_LINE
from ralph.core.errors import RalphError
from ralph.store.files import read_limited, write_atomic

NOT_FOUND, REFUSED = -32002, -32602


class Unfit(Exception):
    """A request that is not fulfilled, and the code of the protocol for it."""

    def __init__(self, code: int, told: str) -> None:
        super().__init__(told)
        self.code = code


def read_text(root: Path, path: str, first: int, lines: int | None) -> str:
    """The text of a file, from a line on (the first is 1), as many as asked for."""
    target = _inside(root, path)
    try:
        text = read_limited(target, LONGEST_LINE, follow=True).decode()
    except FileNotFoundError:
        raise Unfit(NOT_FOUND, f"Resource not found: {path} does not exist") from None
    except UnicodeDecodeError:
        raise Unfit(REFUSED, f"{path} is not UTF-8 text") from None
    except (OSError, RalphError) as error:
        raise Unfit(REFUSED, f"{path} cannot be read: {error}") from None
    if first <= 1 and lines is None:
        return text
    begin = max(0, first - 1)
    return "".join(text.splitlines(keepends=True)[begin : None if lines is None else begin + max(0, lines)])


def write_text(root: Path, path: str, content: str) -> None:
    """Replace a file as a whole, or make it and its directories; who may do what with it stays as it was."""
    target = _inside(root, path)
    parts = target.relative_to(os.path.realpath(root)).parts
    if ".git" in parts or parts[:2] == (".ralph", "runs"):
        raise Unfit(REFUSED, f"{path} is git's or Ralph's own: it is not written here")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        before = target.stat().st_mode & 0o7777 if target.exists() else None
        write_atomic(target, content.encode(errors="replace"), mode=0o666, durable=False)
        if before is not None:
            target.chmod(before)
    except (OSError, RalphError) as error:
        raise Unfit(REFUSED, f"{path} cannot be written: {error}") from None


def _inside(root: Path, path: str) -> Path:
    """The file itself, its links followed, which must be in the workspace."""
    base = os.path.realpath(root)
    target = Path(os.path.realpath(os.path.join(base, path.replace("\0", ""))))
    if "\0" in path or not target.is_relative_to(base) or target == Path(base):
        raise Unfit(REFUSED, f"{path} is no file in the workspace {base}: nothing else is read or written here")
    return target
