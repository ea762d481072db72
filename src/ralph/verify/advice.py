"""What to write instead of a criterion that nothing can verify."""

import os.path
import re
import shlex
import shutil
from pathlib import Path

from ralph.verify.bare_commands import EXITS, reads_as_prose
from ralph.verify.toolchains import Kind, commands_for

FORM = "write commands in backticks, joined by AND, inside single quotes: --until '`pytest -q` passes'"
_NEAR = {
    Kind.LINT: "clean|lint|quality|tidy|style|warning|error",
    Kind.TYPES: "typ(?:e|ing)|error",
    Kind.BUILD: "buil[dt]|compil|deploy",
    Kind.FORMAT: "clean|format|tidy|style",
}


def advice(part: str, root: Path) -> str:
    """How to write what may have been meant, with the commands of this repository."""
    if "\n" in part or (len(part) > 200 and "`" not in part):
        return "did the shell run what you put in backticks? Use single quotes: --until '`pytest -q` passes'"
    if re.search(r"\s(?:OR|or)\s", part):
        return "put what may hold instead into one command: --until '`first || second` passes'"
    if match := re.search(r"`([^`]+)`(.*)", part):
        return _for_command(match[1].strip(), match[2])
    if match := re.fullmatch(
        r"(.+?) (?:has|reports|shows|finds|prints) ((?:no|0|zero) (?:errors|warnings|issues))", part
    ):
        return _for_command(match[1], match[2])
    if match := re.fullmatch(r"(.+?) (prints|outputs|shows|says) (?!nothing)(.+)", part):
        return _for_command(match[1], f"{match[2]} {match[3]}")
    if match := re.match(r"(?:file )?(\S+) (?:does not|doesn't) contain (.+)", part):
        return f"write --until '`! grep -q {match[2]} {match[1]}` passes'"
    if (match := re.fullmatch(r"(.*--cov\S*.*?)\s*([<>]=?|==)\s*(\d+(?:\.\d+)?)\s*%?", part)) and "`" not in part:
        return f"write --until 'coverage from `{match[1]}` {match[2]} {match[3]}%'"
    if re.search(r"\bcoverage\b", part, re.IGNORECASE):
        found = commands_for(Kind.COVERAGE, root)
        number = re.search(r"\d+(?:\.\d+)?", part)
        source = found[0].command if found else "pytest --cov"
        return f"say what it must be at least: --until 'coverage from `{source}` >= {number[0] if number else 80}%'"
    if match := re.fullmatch(r"(.+?)\s*((?:[<>]=?|==)\s*-?\d+(?:\.\d+)?)\s*(%?)", part):
        metric = r"/(\d+)/"
        return f"say which number: --until '{metric} from `{match[1]}` {match[2]}', or 'errors from `{match[1]}` {match[2]}'"
    if command := _perhaps_command(part, root):
        return f"if that is a command, write --until '`{command}` passes'"
    return f"say how it can be seen, e.g. --until '{_example(part, root)}'"


def _for_command(command: str, after: str) -> str:
    if match := re.match(r"\s*(?:prints|outputs|shows|says|reports)\s+(.+)", after):
        text = shlex.quote(match[1].strip("\"'‘’“” "))
        program = f"python3 {command}" if re.match(r"[\w-]+\.py\b", command) else command
        return f"write --until '`{program} | grep -q {text}` passes'".replace("''", "'")
    if re.search(r"\b(?:fails?|exits|returns)\b", after):
        return f"for a command that must fail, write --until '`! {command}` passes'"
    if re.search(r"\b(?:clean|no|errors?|warnings?)\b", after):
        number = f"'errors from `{command}` == 0' (a number that it prints)"
        return f"write --until '`{command}` passes' (exit code 0), '`{command}` prints nothing', or {number}"
    return f"write --until '`{command}` passes'; {FORM}"


def _perhaps_command(part: str, root: Path) -> str:
    """The text as a command, where its first word is a program or a script."""
    command = re.sub(rf"\s+(?:{EXITS}|works)$", "", part, flags=re.IGNORECASE).strip("\"'‘’“” ")
    program = [*command.split(), ""][0]
    if reads_as_prose(command.split()[1:]) and " -" not in command:
        return ""
    if program.startswith(("./", "../", "/")):
        return command
    places = [
        place for place in ("./", ".venv/bin/", "venv/bin/") if program and os.path.isfile(root / place / program)
    ]
    return places[0] + command if places else command if shutil.which(program) else ""


def _example(part: str, root: Path) -> str:
    """Criteria that this repository can verify, nearest to what was said."""
    kinds = [kind for kind, words in _NEAR.items() if re.search(words, part, re.IGNORECASE)]
    found = [one for kind in (Kind.TESTS, *kinds) for one in commands_for(kind, root)[:1]]
    return " AND ".join(dict.fromkeys(f"`{one.command}` passes" for one in found)) or "`./check.sh` passes"
