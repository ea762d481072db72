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
    r"|bugs?|issues?|warnings?|problems?|quickly|correctly|properly|passes|succeeds|prints|outputs|shows|says|reports|returns|finds"
    r"|nothing",
    re.IGNORECASE,
)
_WORDY = re.compile(
    r"\[|cd|test|time|find|sort|which|who|look|write|file|cut|split|join|less|more|kill|watch|install|yes|date|at|let|type|read"
    r"|wait|command|open|man|link|sleep|clear|last|touch|fix|check|build|expect|stat|head|tail|top|free|host|nice|script|display"
)
"""Programs whose names are also words, so that only an option or an existing file marks them as a command."""
_INTERPRETER = re.compile(r"python[\d.]*|node|ruby|perl|php|java|sh|bash|zsh|deno|lua|Rscript|julia")
_SEARCHES = re.compile(r"[ef]?grep|rg|ag|ack")
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
    if reads_as_prose(_leave_out_values(program, arguments)):
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


def _leave_out_values(program: str, arguments: list[str]) -> list[str]:
    """The arguments without those that can be any word: options with their values, and what a program searches for."""
    takes_value = re.compile("-[a-z]" if program in ("test", "[") else "-[A-Z]")
    after = ["", *arguments]
    words = [
        word
        for option, word in zip(after, arguments, strict=False)
        if not word.startswith("-") and not takes_value.fullmatch(option)
    ]
    return words[1:] if _SEARCHES.fullmatch(program) else words


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


_LIMITED = re.compile(
    r"(?P<command>.+?)(?:\s+(?:passes|succeeds|runs|finishes|completes|ends|takes|is done|returns))?(?:\s+(?:in|within))?"
    r"(?:\s+(?:under|below|less than|at most|no more than|up to))?\s+(?P<number>\d+(?:\.\d+)?)\s*"
    r"(?P<unit>s|secs?|seconds?|min|minutes?)",
    re.IGNORECASE,
)
"""A command that must not take longer than some time."""
_REPEATED = re.compile(
    r"(?P<command>.+?)\s+(?:passes|succeeds)\s+(?P<number>\d+)\s+times(?:\s+in\s+a\s+row)?", re.IGNORECASE
)
_AMOUNT = re.compile(
    r"(?:the )?(?:number of )?(?P<what>lines|size|bytes)(?: in| of) (?P<path>\S+)\s+(?:is |are )?"
    r"(?P<bound>[<>]=?|==?|at least|at most|exactly|more than|less than|over|under)\s*(?P<number>\d+)(?: lines| bytes)?",
    re.IGNORECASE,
)
"""How many lines or bytes a file has."""
_TEST_OPERATORS = {
    **dict.fromkeys((">=", "at least"), "-ge"),
    **dict.fromkeys(("<=", "at most"), "-le"),
    **dict.fromkeys((">", "more than", "over"), "-gt"),
    **dict.fromkeys(("<", "less than", "under"), "-lt"),
    **dict.fromkeys(("=", "==", "exactly"), "-eq"),
}
_FINE = re.compile(
    r"(.+?) (?:is|are|stays|comes back) (?:all )?(?:clean|happy|fine|ok|okay|good|error-free)", re.IGNORECASE
)
_COUNT_FIRST = re.compile(
    r"(?:(?P<bound>at least|at most|more than|less than|fewer than|under|below|exactly|only)\s+)?(?P<number>\d+|no|zero)\s*%?\s+"
    r"(?P<metric>coverage|tests|failures|skipped|errors|warnings)\s+(?:from|in|by|with)\s+(?P<command>.+)",
    re.IGNORECASE,
)
_COVERS = re.compile(
    r"(?P<command>.+?)\s+(?:has|reports|shows|gives|prints|reaches)\s+(?:at least\s+|more than\s+|>=?\s*)?(?P<number>\d+)\s*%"
    r"(?:\s+(?:test |line |code )?coverage)?",
    re.IGNORECASE,
)
_BOUND_END = re.compile(
    r"(?P<command>.+?)\s*(?:\b(?:is|are|prints|returns)\s+)?(?P<bound>[<>]=?|==|\bat least|\bat most|\bmore than|\bless than)"
    r"\s*(?P<number>-?\d+(?:\.\d+)?)\s*%?",
    re.IGNORECASE,
)
_PRINTS_NUMBERS = re.compile(r"wc|du|df|stat|cat|grep|rg|ls|find|awk|jq|cloc|curl|echo|bc")
"""Programs that find no errors."""
_TALKS = re.compile(r"(?:ruff|mypy|pyright|pytest|black|isort|bandit|cargo|npm|npx|yarn|pnpm|make|mvn|gradle|dotnet)\b")
"""Programs that print something even if they find nothing, so that `prints nothing` never holds."""
_SIGNS = {
    "at least": ">=",
    "at most": "<=",
    "more than": ">",
    **dict.fromkeys(("less than", "fewer than", "under", "below"), "<"),
}
_REACHES = re.compile(
    r"curl (?:-\S+ )*(\S+) (?:returns|answers|responds with|gives) (?:HTTP )?2\d\d(?: OK)?", re.IGNORECASE
)


def suggest_rewrite(part: str, root: Path) -> str:
    """How to write what may have been meant, with the commands of this repository."""
    if "\n" in part or (len(part) > 200 and "`" not in part):
        return "did the shell run what you put in backticks? Use single quotes: --until '`pytest -q` passes'"
    if re.search(r"\s(?:OR|or)\s", part):
        return "write the alternatives as one command: --until '`first || second` passes'"
    if match := _MEASURED.fullmatch(part):
        unit = "%" if match[1] == "coverage" else ""
        return f"write {_until(f'{match[1]} from `{match[2]}` == {match[3]}{unit}')}"
    if rewrite := _suggest_for_amount(part, root) or _suggest_for_output(part) or _suggest_for_coverage(part, root):
        return rewrite
    if match := _BOUND_END.fullmatch(part):
        return _suggest_for_number(match, root)
    if (match := _FINE.fullmatch(part)) and (command := _guess_command(match[1], root, anyway=True)):
        return _suggest_for_command(command, "clean")
    if command := _guess_command(part, root, anyway=True):
        return f"if that is a command, write {_until(f'`{command}` passes')}"
    return f"write a command that shows it, for example {_until(_suggest_example(part, root))}"


def _suggest_for_output(part: str) -> str:
    """The rewrite for what a command or a file must say."""
    if match := re.search(r"`([^`]+)`(.*)", part):
        return _suggest_for_command(match[1].strip(), match[2])
    if match := re.fullmatch(
        r"(.+?) (?:has|reports|shows|finds|prints) ((?:no|0|zero) (?:errors|warnings|issues))", part
    ):
        return _suggest_for_command(match[1], match[2])
    if match := re.fullmatch(r"(.+?) (prints|outputs|shows|says) (?!nothing)(.+)", part):
        return _suggest_for_command(match[1], f"{match[2]} {match[3]}")
    if match := re.fullmatch(
        r"(.+?) (?:(?:has|gives|finds|shows) no (?:match(?:es)?|results?|hits?)|finds nothing)", part
    ):
        return f"write {_until(f'`! {match[1]}` passes')}"
    if match := re.fullmatch(r"(?:the )?(?:file )?(\S*[./]\S*) (?:contains|has|includes|mentions) (?!no\b)(.+)", part):
        text = match[2].strip("\"'‘’“” ")
        criterion = f'{match[1]} contains "{text}"'
        return f"write {_until(criterion)}" if '"' not in text else ""
    if match := re.fullmatch(r"(?:there is )?(?:the|an?) file (?:called |named )?(\S+)(?: exists| is there)?", part):
        return f"write {_until(f'file {match[1]} exists')}"
    if match := re.match(r"(?:file )?(\S+) (?:does not|doesn't) contain (.+)", part):
        text = _quote_inside(match[2].strip("\"'‘’“” "))
        return f"write {_until(f'`! grep -q {text} {match[1]}` passes')}"
    return ""


def _suggest_for_coverage(part: str, root: Path) -> str:
    if match := re.fullmatch(r"(.*--cov\S*.*?)\s*([<>]=?|==)\s*(\d+(?:\.\d+)?)\s*%?", part):
        return f"write {_until(f'coverage from `{match[1]}` {match[2]} {match[3]}%')}"
    if (match := _COVERS.fullmatch(part)) and (command := _guess_command(match["command"], root, anyway=True)):
        return f"write {_until(f'coverage from `{command}` >= {match[2]}%')}"
    if not re.search(r"\bcoverage\b", part, re.IGNORECASE):
        return ""
    found = find_commands(CheckKind.COVERAGE, root)
    number = re.search(r"\d+(?:\.\d+)?", part)
    source = found[0].command if found else "pytest --cov"
    wanted = number[0] if number else "80"
    return f"say what it must be at least: {_until(f'coverage from `{source}` >= {wanted}%')}"


def _suggest_for_amount(part: str, root: Path) -> str:
    """The rewrite for the times that a command must pass or may take, the size of a file, or an address that must answer."""
    if match := _REACHES.fullmatch(part):
        return f"write {_until(f'`curl -fsS -o /dev/null {match[1]}` passes')}"
    if (match := _COUNT_FIRST.fullmatch(part)) and (command := _guess_command(match["command"], root, anyway=True)):
        sign = _SIGNS.get((match["bound"] or "").lower(), "==")
        number = match["number"] if match["number"].isdigit() else "0"
        metric = match["metric"].lower()
        unit = "%" if metric == "coverage" else ""
        return f"write {_until(f'{metric} from `{command}` {sign} {number}{unit}')}"
    if match := _AMOUNT.fullmatch(part):
        option = "-l" if match["what"].lower() == "lines" else "-c"
        test = f"test $(wc {option} < {match['path']}) {_TEST_OPERATORS[match['bound'].lower()]} {match['number']}"
        return f"write {_until(f'`{test}` passes')}"
    if match := _REPEATED.fullmatch(part):
        command = _guess_command(match["command"].strip("`"), root)
        return f"write {_until(f'`{command}` passes')} --confirm {match['number']}" if command else ""
    if match := _LIMITED.fullmatch(part):
        command = _guess_command(match["command"].strip("`"), root)
        seconds = float(match["number"]) * (60 if match["unit"].lower().startswith("m") else 1)
        if command:
            return f"write {_until(f'`timeout {seconds:g} {command}` passes')}"
    return ""


def _suggest_for_number(match: re.Match[str], root: Path) -> str:
    """The rewrite for a number that a command prints. What is no command has to become one."""
    bound = f"{_SIGNS.get(match['bound'].lower(), match['bound'])} {match['number']}"
    command = _guess_command(match["command"], root, anyway=True)
    if not command:
        example = _until(rf"/(\d+)/ from `COMMAND` {bound}")
        return f"write a command that prints the number: {example}"
    pattern = _until(rf"/(\d+)/ from `{command}` {bound}")
    if _PRINTS_NUMBERS.fullmatch(command.split()[0]):
        return f"write {pattern}"
    return f"say which number: {pattern}, or {shlex.quote(f'errors from `{command}` {bound}')}"


def _suggest_for_command(command: str, after: str) -> str:
    if match := re.match(r"\s*(?:prints|outputs|shows|says|reports)\s+(?!(?:no|0|zero)\b)(.+)", after):
        text = _quote_inside(match[1].strip("\"'‘’“” "))
        program = f"python3 {command}" if re.match(r"[\w-]+\.py\b", command) else command
        return f"write {_until(f'`{program} | grep -q {text}` passes')}"
    passes = _until(f"`{command}` passes")
    if re.search(r"\b(?:fails?|exits|returns)\b", after):
        return f"for a command that must fail, write {_until(f'`! {command}` passes')}"
    if re.search(r"\b(?:clean|no|errors?|warnings?|issues?)\b", after):
        metric = "warnings" if "warning" in after.lower() else "errors"
        number = shlex.quote(f"{metric} from `{command}` == 0")
        silent = "" if _TALKS.match(command) else f"{shlex.quote(f'`{command}` prints nothing')}, "
        return f"write {passes} (exit code 0), {silent}or {number} (the number that it prints)"
    return f"write {passes}; {FORM}"


_SENTENCE_END = re.compile(
    rf"\s+(?:{EXITS}|works|is|are|has|must|should|takes|runs|prints|returns|fails)\b.*", re.IGNORECASE
)


def _guess_command(part: str, root: Path, *, anyway: bool = False) -> str:
    """The text as a command, if its first word is a program or a script; `anyway` accepts a program that is not installed."""
    command = _SENTENCE_END.sub("", part).strip("\"'‘’“” ")
    words = command.split()
    program = [*words, ""][0]
    has_option = any(word.startswith("-") for word in words[1:2])
    if not program or (reads_as_prose(words) and not has_option):
        return ""
    if program.startswith(("./", "../", "/")):
        return command
    for directory in ("./", ".venv/bin/", "venv/bin/"):
        if os.path.isfile(root / directory / program):
            return directory + command
    if _WORDY.fullmatch(program) and not has_option and not find_bare_command(command, root):
        return ""
    is_shaped = any(word == "." or word.startswith("-") or _SHAPED.search(word) for word in words[1:])
    is_likely = anyway and (is_shaped or any(map(_VERB.fullmatch, words[1:2])))
    return command if is_likely or shutil.which(program) else ""


def _suggest_example(part: str, root: Path) -> str:
    """Criteria that this repository can verify, nearest to what the user wrote."""
    kinds = [kind for kind, words in _NEAR.items() if re.search(words, part, re.IGNORECASE)]
    found = [one for kind in (CheckKind.TESTS, *kinds) for one in find_commands(kind, root)[:1]]
    return " AND ".join(dict.fromkeys(f"`{one.command}` passes" for one in found)) or "`./check.sh` passes"
