"""Criteria outside of the grammar: find commands without backticks, and suggest a rewrite for the rest."""

import os.path
import re
import shlex
import shutil
from pathlib import Path

from ralph.verify.toolchains import CheckKind, find_commands, read_make_targets

EXITS = (
    r"(?:pass(?:es)?(?: with (?:0|no) failures)?|succeeds?|is green|(?:exits|returns)(?: with)?(?: code)? 0)"
).replace(" ", r"\s+")
"""How users say that a command exits with 0."""
QUOTED = re.compile(r"\"[^\"]*\"|'[^']*'")
_PROSE = re.compile(
    r"the|an?|all|any|every|no|not|is|are|was|be|been|has|have|had|should|must|can|will|and|or|of|to|in|on|for|with|without|when"
    r"|that|this|these|it|its|we|our|my|us|good|bad|done|ready|clean|green|works?|working|better|faster|short|errors?|failures?"
    r"|bugs?|issues?|warnings?|problems?|quickly|correctly|properly|passes|succeeds|prints|outputs|shows|says|reports|returns",
    re.IGNORECASE,
)
_WORDY = re.compile(
    r"\[|cd|test|time|find|sort|which|who|look|write|file|cut|split|join|less|more|kill|watch|install|yes|date|at|let|type|read"
    r"|wait|command|open|man|link|sleep|clear|last|touch|fix|check|build|expect|stat|head|tail|top|free|host|nice|script|display"
)
"""Programs whose names are also words, so that only an option or a file that is there tells a command."""
_INTERPRETER = re.compile(r"python[\d.]*|node|ruby|perl|php|java|sh|bash|zsh|deno|lua|Rscript|julia")
_VERB = re.compile(r"tests?|run|check|build|lint|ci|verify|format|fmt|vet|clippy|compile|type-?check|coverage|validate")
_COMPARED = re.compile(r"(?:^|\s)(?:[<>]=?|==|≥|≤)\s*-?\d+(?:\.\d+)?\s*%?\s*$")
"""A number at the end that something is compared with: a shell would write to a file of that name."""
_SHAPED = re.compile(r"[\w.]/|/\w|\w\.\w|\w:\w|[=*$<>|&;'\[{]")
"""What words of a sentence do not look like."""


def find_bare_command(part: str, root: Path) -> str:
    """The command in a text without backticks, if it is certainly one."""
    command = re.sub(rf"\s+{EXITS}$", "", part, flags=re.IGNORECASE)
    if "\n" in command or "`" in command or _COMPARED.search(command):
        return ""
    words = QUOTED.sub("''", command).split()
    while words and (words[0] == "!" or re.fullmatch(r"[A-Za-z_]\w*=\S*", words[0])):
        words.pop(0)
    return command if words and _is_command(words[0], words[1:], root) else ""


def reads_as_prose(words: list[str]) -> bool:
    """Whether some of these words are of the kind that only sentences have."""
    return any(_PROSE.fullmatch(word.strip(",.!?:;")) for word in words)


def _is_command(program: str, arguments: list[str], root: Path) -> bool:
    if "/" in program:
        return os.path.isfile(root / program)
    if not shutil.which(program) and program not in ("test", "[", "cd"):
        return False
    if program == "make":
        known = read_make_targets(root) | {"all"}
        return all(word in known or _VERB.fullmatch(word) or re.match(r"-|\w+=", word) for word in arguments)
    if reads_as_prose(arguments):
        return False
    verb = bool(arguments) and _VERB.fullmatch(arguments[0]) is not None
    if program == "go":
        return verb
    there = [word for word in arguments if not word.startswith("-") and os.path.exists(root / word)]
    if any(re.match(r"--?\w", word) for word in arguments):
        return True
    if _INTERPRETER.fullmatch(program):
        return there[:1] == arguments[:1] != []
    if _WORDY.fullmatch(program):
        return bool(there)
    return not arguments or verb or bool(there) or any(map(_SHAPED.search, arguments))


FORM = "write commands in backticks, joined by AND, inside single quotes: --until '`pytest -q` passes'"
_NEAR = {
    CheckKind.LINT: "clean|lint|quality|tidy|style|warning|error",
    CheckKind.TYPES: "typ(?:e|ing)|error",
    CheckKind.BUILD: "buil[dt]|compil|deploy",
    CheckKind.FORMAT: "clean|format|tidy|style",
}


_MEASURED = re.compile(
    r"(coverage|tests|failures|skipped|errors|warnings) from `?([^`]+?)`? "
    r"(?:is|are|equals?|be|must be|should be|was) (?:exactly |equal to )?(\d+(?:\.\d+)?)\s*(%|percent)?"
)


def _until(criterion: str) -> str:
    """The option for a criterion, as it can be pasted into a shell."""
    return f"--until {shlex.quote(criterion)}"


def _quote_inside(text: str) -> str:
    """A word of a command that stands in single quotes itself: with double quotes, if that is the same for the shell."""
    if shlex.quote(text) == text:
        return text
    return f'"{text}"' if not re.search(r'["$`\\!]', text) else shlex.quote(text)


def suggest_rewrite(part: str, root: Path) -> str:
    """How to write what may have been meant, with the commands of this repository."""
    if "\n" in part or (len(part) > 200 and "`" not in part):
        return "did the shell run what you put in backticks? Use single quotes: --until '`pytest -q` passes'"
    if re.search(r"\s(?:OR|or)\s", part):
        return "write the alternatives as one command: --until '`first || second` passes'"
    if match := _MEASURED.fullmatch(part):
        unit = "%" if match[1] == "coverage" else ""
        return f"write {_until(f'{match[1]} from `{match[2]}` == {match[3]}{unit}')}"
    if match := re.search(r"`([^`]+)`(.*)", part):
        return _suggest_for_command(match[1].strip(), match[2])
    if match := re.fullmatch(
        r"(.+?) (?:has|reports|shows|finds|prints) ((?:no|0|zero) (?:errors|warnings|issues))", part
    ):
        return _suggest_for_command(match[1], match[2])
    if match := re.fullmatch(r"(.+?) (prints|outputs|shows|says) (?!nothing)(.+)", part):
        return _suggest_for_command(match[1], f"{match[2]} {match[3]}")
    if match := re.match(r"(?:file )?(\S+) (?:does not|doesn't) contain (.+)", part):
        text = _quote_inside(match[2].strip("\"'‘’“” "))
        return f"write {_until(f'`! grep -q {text} {match[1]}` passes')}"
    if (match := re.fullmatch(r"(.*--cov\S*.*?)\s*([<>]=?|==)\s*(\d+(?:\.\d+)?)\s*%?", part)) and "`" not in part:
        return f"write {_until(f'coverage from `{match[1]}` {match[2]} {match[3]}%')}"
    if re.search(r"\bcoverage\b", part, re.IGNORECASE):
        found = find_commands(CheckKind.COVERAGE, root)
        number = re.search(r"\d+(?:\.\d+)?", part)
        source = found[0].command if found else "pytest --cov"
        wanted = number[0] if number else "80"
        return f"say what it must be at least: {_until(f'coverage from `{source}` >= {wanted}%')}"
    if match := re.fullmatch(r"(.+?)\s*((?:[<>]=?|==)\s*-?\d+(?:\.\d+)?)\s*(%?)", part):
        source = f"from `{match[1]}` {match[2]}"
        pattern, errors = _until(rf"/(\d+)/ {source}"), shlex.quote(f"errors {source}")
        return f"say which number: {pattern}, or {errors}"
    if command := _guess_command(part, root):
        return f"if that is a command, write {_until(f'`{command}` passes')}"
    return f"write a command that shows it, for example {_until(_suggest_example(part, root))}"


def _suggest_for_command(command: str, after: str) -> str:
    if match := re.match(r"\s*(?:prints|outputs|shows|says|reports)\s+(.+)", after):
        text = _quote_inside(match[1].strip("\"'‘’“” "))
        program = f"python3 {command}" if re.match(r"[\w-]+\.py\b", command) else command
        return f"write {_until(f'`{program} | grep -q {text}` passes')}"
    passes = _until(f"`{command}` passes")
    if re.search(r"\b(?:fails?|exits|returns)\b", after):
        return f"for a command that must fail, write {_until(f'`! {command}` passes')}"
    if re.search(r"\b(?:clean|no|errors?|warnings?)\b", after):
        silent, number = shlex.quote(f"`{command}` prints nothing"), shlex.quote(f"errors from `{command}` == 0")
        return f"write {passes} (exit code 0), {silent}, or {number} (a number that it prints)"
    return f"write {passes}; {FORM}"


def _guess_command(part: str, root: Path) -> str:
    """The text as a command, if its first word is a program or a script."""
    command = re.sub(rf"\s+(?:{EXITS}|works)$", "", part, flags=re.IGNORECASE).strip("\"'‘’“” ")
    program = [*command.split(), ""][0]
    if reads_as_prose(command.split()[1:]) and " -" not in command:
        return ""
    if program.startswith(("./", "../", "/")):
        return command
    for directory in ("./", ".venv/bin/", "venv/bin/"):
        if program and os.path.isfile(root / directory / program):
            return directory + command
    return command if shutil.which(program) else ""


def _suggest_example(part: str, root: Path) -> str:
    """Criteria that this repository can verify, nearest to what the user wrote."""
    kinds = [kind for kind, words in _NEAR.items() if re.search(words, part, re.IGNORECASE)]
    found = [one for kind in (CheckKind.TESTS, *kinds) for one in find_commands(kind, root)[:1]]
    return " AND ".join(dict.fromkeys(f"`{one.command}` passes" for one in found)) or "`./check.sh` passes"
