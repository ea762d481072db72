"""Commands without backticks: told from sentences that begin, by accident, with the name of a program."""

import os.path
import re
import shutil
from pathlib import Path

from ralph.verify.toolchains import make_targets

EXITS = (
    r"(?:pass(?:es)?(?: with (?:0|no) failures)?|succeeds?|is green|(?:exits|returns)(?: with)?(?: code)? 0)"
).replace(" ", r"\s+")
"""How people say that a command exits with 0."""
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


def bare_command(part: str, root: Path) -> str:
    """The command in a text without backticks, where it is one beyond doubt."""
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
        known = make_targets(root) | {"all"}
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
