"""The user's sentence, compiled to checks: commands in backticks, joined by AND."""

import re
import shutil

from ralph.core.checks import Check
from ralph.core.errors import UsageError

_PART = re.compile(r"`([^`]+)`\s*(?:passes|succeeds|exits\s+(?:with\s+)?(?:code\s+)?0)?", re.IGNORECASE)
_AND = re.compile(r"\s+AND\s+")
_FORM = "write commands in backticks, joined by AND, inside single quotes: --until '`pytest -q` passes'"


def compile_criterion(text: str, timeout: float) -> tuple[Check, ...]:
    """The checks that a criterion asks for; text that no command can verify is refused with a rewrite."""
    if not text.strip():
        raise UsageError("the criterion is empty: nothing could ever be verified", todo=_FORM)
    if "\0" in text:
        raise UsageError("the criterion has a null byte in it", where="--until", todo=_FORM)
    return tuple(_check(part.strip(), timeout) for part in _split(text.strip()))


def _split(text: str) -> list[str]:
    """The parts between ANDs; an AND inside backticks belongs to the command."""
    pieces = re.split(r"(`[^`]*`)", text)
    marked = [piece if piece.startswith("`") else _AND.sub("\0", f" {piece} ") for piece in pieces]
    return "".join(marked).split("\0")


def _check(part: str, timeout: float) -> Check:
    matched = _PART.fullmatch(part)
    if matched and matched[1].strip():
        return Check(matched[1].strip(), timeout)
    raise UsageError(f"{_short(part)!r} cannot be verified by running it", where="--until", todo=_advice(part))


def _advice(part: str) -> str:
    if "\n" in part or (len(part) > 200 and "`" not in part):
        return "did the shell run what you put in backticks? Use single quotes: --until '`pytest -q` passes'"
    command = re.sub(r"\s+(passes|succeeds|is green|works)$", "", part.strip("` "))
    program = [*command.split(), ""][0]
    looks_like_command = program.startswith(("./", "../", "/")) or shutil.which(program) is not None
    return f"if {command!r} is a command, write --until '`{command}` passes'; {_FORM}" if looks_like_command else _FORM


def _short(text: str) -> str:
    return text if len(text) <= 80 else text[:77] + "..."
