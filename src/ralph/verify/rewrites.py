"""Criteria outside of the grammar: find commands without backticks, and suggest a rewrite for the rest."""

import os.path
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

from ralph.verify.toolchains import CheckKind, find_commands, read_make_targets, resolve_phrase

EXITS = (
    r"(?:pass(?:es)?(?: with (?:0|no) failures)?|succeeds?|(?:is )?green|(?:exits|returns)(?: with)?(?: code)? 0)"
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
_VERB = re.compile(
    r"tests?|run|check|build|lint|ci|verify|exec|format|fmt|vet|clippy|compile|type-?check|coverage|validate"
)
_UNIT = r"\s*(?:%|ms|s|[kKMG]i?B|bytes)?"
_COMPARED = re.compile(rf"(?:^|\s)(?:[<>]=?|==|≥|≤)\s*-?\d+(?:\.\d+)?{_UNIT}\s*$")
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
        return os.path.isfile(root / program) and os.access(root / program, os.X_OK)
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
    """A word of a command that is in single quotes itself: with double quotes, if that is the same for the shell."""
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
    r"(?P<command>.+?)\s+(?:passes|succeeds)\s+(?:(?P<number>\d+)\s+times|twice)(?:\s+in\s+a\s+row)?", re.IGNORECASE
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
    r"(?:(?P<bound>at least|at most|no more than|more than|less than|fewer than|under|below|exactly|only)\s+)?"
    r"(?P<number>\d+|no|zero)\s*%?\s+"
    r"(?P<metric>coverage|tests|failures|skipped|errors|warnings)\s+(?:from|in|by|with)\s+(?P<command>.+)",
    re.IGNORECASE,
)
_COVERS = re.compile(
    r"(?P<command>.+?)\s+(?:has|reports|shows|gives|prints|reaches)\s+(?:at least\s+|more than\s+|>=?\s*)?(?P<number>\d+)\s*%"
    r"(?:\s+(?:test |line |code )?coverage)?",
    re.IGNORECASE,
)
_BOUND_END = re.compile(
    r"(?P<command>.+?)\s*(?:\b(?:is|are|prints|returns|outputs|shows|says)\s+)?"
    r"(?P<bound>[<>]=?|==|\bat least|\bat most|\bmore than|\bless than|\bbelow|\babove|\bunder|\bover)"
    rf"\s*(?P<number>-?\d+(?:\.\d+)?){_UNIT}",
    re.IGNORECASE,
)
_NAMED_NUMBER = re.compile(
    r"(?:the )?(?P<name>[a-z]\w*) (?:from|of|in|by) (?P<command>.+?)\s+(?:is\s+)?"
    r"(?P<bound>[<>]=?|==|at least|at most|more than|less than|above|below)\s*(?P<number>-?\d+(?:\.\d+)?)"
)
"""A number of which the name is no metric that Ralph knows."""
_PRINTS_NUMBERS = re.compile(r"wc|du|df|stat|cat|grep|rg|ls|find|awk|jq|cloc|curl|echo|bc")
"""Programs that find no errors."""
_TALKS = re.compile(r"(?:ruff|mypy|pyright|pytest|black|isort|bandit|cargo|npm|npx|yarn|pnpm|make|mvn|gradle|dotnet)\b")
"""Programs that print something even if they find nothing, so that `prints nothing` never holds."""
_TOOL = re.compile(
    r"npm|npx|pnpm|yarn|bun|deno|cargo|go|gradle|gradlew|mvn|mvnw|sbt|make|just|task|rake|bundle|tox|nox|poetry|uv|hatch|pdm|pipenv"
    r"|dotnet|swift|zig|mix|bazel|composer|flutter|dart|xcodebuild|cmake|ctest|ninja|meson|stack|cabal|nx|turbo|docker|ruff|dune|lein"
)
"""Tools whose first argument is a word such as `test`."""
_CHECKER = re.compile(
    r"pytest|mypy|pyright|flake8|pylint|black|isort|bandit|tox|nox|behave|jest|vitest|mocha|ava|tap|karma|cypress|playwright|eslint"
    r"|tsc|xo|biome|oxlint|stylelint|rspec|rubocop|phpunit|pest|phpstan|psalm|golangci-lint|staticcheck|ktlint|detekt|shellcheck"
    r"|hadolint|actionlint|yamllint|markdownlint|vale|clippy|ctest|credo|swiftlint"
)
"""Tools that can be named without an argument."""
_SIGNS = {
    "at least": ">=",
    **dict.fromkeys(("at most", "no more than"), "<="),
    **dict.fromkeys(("exactly", "only", "="), "=="),
    **dict.fromkeys(("more than", "above", "over"), ">"),
    **dict.fromkeys(("less than", "fewer than", "under", "below"), "<"),
}
_REACHES = re.compile(
    r"(?:curl (?:-\S+ )*(?P<address>\S+)|(?P<host>(?:https?://|localhost|127\.)\S*))"
    r" (?:returns|answers|responds|gives|is up|works)(?: with)?(?: (?:HTTP )?2\d\d(?: OK)?)?",
    re.IGNORECASE,
)


_NEGATION = (
    r"(?:do(?:es)?(?: not|n['’]t)|did(?: not|n['’]t)|never|no longer|cannot|can['’]t|must not|should not|won['’]t)"
)
_FAILS = r"(?:fails?|failed|(?:is|are) (?:red|broken|failing)|crashes|errors out)"
_MUST_PASS = re.compile(rf"(?P<subject>.+?)\s+{_NEGATION}\s+(?:fail|fails|crash|break|error out)", re.IGNORECASE)
_MUST_FAIL = re.compile(
    rf"not\s+(?P<negated>`.+`|\S+)|(?P<subject>.+?)(?<!\s-\w)\s+"
    rf"(?:(?:must|should|has to|still)\s+)?(?:{_NEGATION}\s+(?:pass|passes|succeed|work|run)|{_FAILS}|is not green)",
    re.IGNORECASE,
)
_EXIT_CODE = re.compile(
    r"(?:(?:the )?exit (?:code|status) (?:of|from) (?P<before>.+?)"
    r"|(?P<subject>.+?)(?:'s)?\s+(?:exits|returns|exit (?:code|status)))"
    r"(?:\s+(?:is|of|with|code|status|equals|==?))*\s+(?P<code>1?\d{1,2}|non-?zero)",
    re.IGNORECASE,
)
_COUNT_LAST = re.compile(
    r"(?P<command>.+?)\s+(?:(?:has|have|reports|shows|finds|gives|prints|with)\s+)?"
    r"(?P<bound>[<>]=?|==?|at least|at most|no more than|more than|less than|fewer than|under|below|exactly|only)\s*"
    r"(?P<number>\d+)\s+(?:(?:test|type|lint|mypy|eslint)\s+)?(?P<metric>tests|failures|skipped|errors|warnings)",
    re.IGNORECASE,
)
_WITHOUT = re.compile(
    r"(?P<command>.+?)\s+(?:(?:passes|succeeds|runs|builds|finishes|completes|works)\s+)?"
    r"(?:without(?: any)?|with (?:no|0|zero))\s+(?P<metric>errors|warnings|failures)",
    re.IGNORECASE,
)
_NONE = re.compile(
    r"(?:there (?:are|is) )?(?:no|zero|0) (?:more )?(?P<what>errors?|warnings?|failures?|issues?|problems?)",
    re.IGNORECASE,
)
_DOCUMENT = re.compile(
    r"(?:the )?(?P<name>readme|changelog|license)(?: file)? (?:mentions|contains|has|includes|describes) (?P<text>.+)",
    re.IGNORECASE,
)
_TESTS_COUNTED = re.compile(
    r"(?:(?P<bound>all|at least|exactly|more than)\s+)?(?:the\s+)?(?P<number>\d+)\s+tests?\s+(?:pass|passes|are green|run|exist)",
    re.IGNORECASE,
)
_FILE_ALONE = re.compile(
    r"(?:there (?:is|must be) (?:an? )?)?(?:the )?(?:file )?(?P<path>[\w./-]+\.[A-Za-z]\w{0,5})(?: file)?"
    r"(?: (?:is|was|gets|has been|must be|is being) (?:there|created|written|present|generated|made))?",
    re.IGNORECASE,
)
_NO_TEXT = re.compile(
    r"(?:there (?:are|is) )?no (?:more )?(?P<text>[A-Z]{3,}|\w+\.\w+)(?:(?<=[A-Z])s)?"
    r"(?:\s+(?:left|remaining|anymore|comments?|calls?|anywhere))*(?:\s+in\s+(?P<place>\S+))?(?:\s+(?:left|any ?more))?"
)
"""A word that must not be in the files: written in capitals, or as code."""
_START = re.compile(
    r"(?:please|make sure|ensure|check|verify|confirm|see|until|when|once|if|run|running|do|done when|it is done when|i want"
    r"|we want|then)(?:\s+that)?\s+(?:running\s+|run\s+)?",
    re.IGNORECASE,
)
"""Words before what must hold."""
_END = re.compile(
    r",?\s+(?:and\s+(?:make sure|ensure|check|verify|see)(?:\s+that)?\s+(?:it|they)\s+\w+"
    r"|please|until done|again|now|for me|first|always)$",
    re.IGNORECASE,
)
"""Words after it."""
_SEPARATOR = re.compile(
    r"[.;]\s+|\s*&&\s*|\s*;\s*|\s+(?:plus|as well as|also|then|but)\s+|,\s*|\s+&\s+|\s+and\s+", re.IGNORECASE
)
"""What stands between two sentences."""

Compiles = Callable[[str], bool]
"""Whether a text is a criterion."""


def suggest_rewrite(part: str, root: Path, compiles: Compiles) -> str:
    """How to write what may have been meant, with the commands of this repository."""
    if "\n" in part or (len(part) > 200 and "`" not in part):
        return "did the shell run what you put in backticks? Use single quotes: --until '`pytest -q` passes'"
    if len(part) > 300:
        return FORM
    if part.count("`") % 2:
        inside = _strip_verdict(part.replace("`", "").strip())
        return f"a backtick is missing: write {_until(f'`{inside}` passes')}" if inside else FORM
    if rewrite := suggest_for_verdict(part, root) or _suggest_for_sentences(part, compiles):
        return rewrite
    if re.search(r"\s(?:OR|or)\s", part):
        return _suggest_for_alternatives(part)
    if match := _MEASURED.fullmatch(part):
        unit = "%" if match[1] == "coverage" else ""
        return f"write {_until(f'{match[1]} from `{match[2]}` == {match[3]}{unit}')}"
    if rewrite := _suggest_for_count(part, root) or _suggest_for_file(part, root):
        return rewrite
    if (match := _NAMED_NUMBER.fullmatch(part)) and (command := _read_command(match["command"], root)):
        bound = f"{_SIGNS.get(match['bound'].lower(), match['bound'])} {match['number']}"
        criterion = rf"/{match['name']}\D*(\d+)/ from `{command}` {bound}"
        return f"write {_until(criterion)}"
    if rewrite := _suggest_for_amount(part, root):
        return rewrite
    if (match := _BOUND_END.fullmatch(part)) and re.match("`|\\./", part):
        return _suggest_for_number(match, root)
    if rewrite := _suggest_for_output(part) or _suggest_for_coverage(part, root):
        return rewrite
    return _suggest_for_words(part, root, compiles)


def _suggest_for_words(part: str, root: Path, compiles: Compiles) -> str:
    """The rewrite for a text of which only the first words may be a command."""
    if (match := re.fullmatch(rf"make (\S+)(?:\s+{EXITS})?", part)) and (targets := sorted(read_make_targets(root))):
        return f"the Makefile has no target {match[1]!r}; it has: {', '.join(targets)}"
    if re.fullmatch(r"[\w-]+", part) and compiles(f"{part} passes"):
        return f"write {_until(f'{part} passes')}"
    if match := _BOUND_END.fullmatch(part):
        return _suggest_for_number(match, root)
    if (match := _FINE.fullmatch(part)) and (command := _guess_command(match[1], root, anyway=True)):
        return _suggest_for_command(command, "clean")
    if command := _guess_command(part, root, anyway=True):
        return f"if that is a command, write {_until(f'`{command}` passes')}"
    return f"write a command that shows it, for example {_until(_suggest_example(part, root))}"


def _strip_verdict(text: str) -> str:
    """A command without the word that says that it passes."""
    return re.sub(rf"\s+{EXITS}$", "", text, flags=re.IGNORECASE)


def suggest_for_verdict(part: str, root: Path) -> str:
    """The rewrite for a command or a phrase that must fail, must not fail, or must exit with some code."""
    if re.fullmatch(r"(?:the )?exit (?:code|status)(?:\s+(?:is|of|=|==))*\s+\d+", part, re.IGNORECASE):
        return f"say which command: {_until('`COMMAND` passes')}"
    if match := _MUST_PASS.fullmatch(part):
        return _suggest_pass(match["subject"], root)
    if match := _EXIT_CODE.fullmatch(part):
        subject = (match["subject"] or match["before"]).strip()
        return _suggest_pass(subject, root) if match["code"] == "0" else _suggest_failure(subject, root)
    if match := _MUST_FAIL.fullmatch(part):
        return _suggest_failure(match["subject"] or match["negated"], root)
    return ""


def _suggest_pass(subject: str, root: Path) -> str:
    if command := _read_command(subject, root):
        return f"write {_until(f'`{command}` passes')}"
    found = resolve_phrase(f"{subject} pass", root)
    return f"write {_until(f'{subject} pass')}" if found and found.found else ""


def _suggest_failure(subject: str, root: Path) -> str:
    command = _read_command(subject, root)
    if not command:
        found = resolve_phrase(f"{subject} pass", root)
        command = found.found[0].command if found and found.found else ""
    return f"for a command that must fail, write {_until(f'`! {command}` passes')}" if command else ""


def _read_command(subject: str, root: Path) -> str:
    """The command that a subject names: in backticks, so that it is likely one, or what the repository has for a word."""
    if re.fullmatch(r"(?:the |our )?(?:linter|lint|type ?checker|type ?check|build|tests|test suite)", subject.strip()):
        kind = re.sub("type ?checker", "type check", subject.replace("linter", "lint"))
        found = resolve_phrase(f"{kind} passes", root)
        return found.found[0].command if found and found.found else ""
    if match := re.fullmatch(r"(?:the command )?`([^`]+)`", subject.strip()):
        return match[1].strip()
    return "" if "`" in subject else _guess_command(subject, root, anyway=True)


def _suggest_for_sentences(part: str, compiles: Compiles) -> str:
    """The rewrite for several sentences, or for one with words around it that say nothing."""
    pieces, start = [], 0
    text = _END.sub("", part.rstrip(".! "))
    for found in re.finditer(rf"`[^`]*`|(?P<between>{_SEPARATOR.pattern})", text, re.IGNORECASE):
        if found["between"]:
            pieces.append(text[start : found.start()])
            start = found.end()
    pieces = [piece for piece in map(_strip_words, (*pieces, text[start:])) if piece]
    if pieces and pieces != [part] and all(map(compiles, pieces)):
        return f"write {_until(' AND '.join(pieces))}"
    return ""


def _strip_words(text: str) -> str:
    """A condition without the words around it."""
    return _END.sub("", _START.sub("", text.strip(), count=1)).strip()


def _suggest_for_alternatives(part: str) -> str:
    """The rewrite for conditions of which one is enough."""
    commands = re.findall(r"`([^`]+)`", part)
    joined = " || ".join(map(str.strip, commands)) if len(commands) > 1 else "first || second"
    return f"write the alternatives as one command: {_until(f'`{joined}` passes')}"


def _suggest_for_count(part: str, root: Path) -> str:
    """The rewrite for errors, warnings, failures or tests that are counted after the command, or without one."""
    if (match := _COUNT_LAST.fullmatch(part)) and (command := _read_command(match["command"], root)):
        metric, bound = match["metric"].lower(), match["bound"].lower()
        return f"write {_until(f'{metric} from `{command}` {_SIGNS.get(bound, bound)} {match[3]}')}"
    if (match := _WITHOUT.fullmatch(part)) and (command := _read_command(match["command"], root)):
        return f"write {_until(f'{match[2].lower()} from `{command}` == 0')}"
    if match := _TESTS_COUNTED.fullmatch(part):
        sign = {"all": "==", "exactly": "==", "more than": ">"}.get((match["bound"] or "").lower(), ">=")
        found = find_commands(CheckKind.TESTS, root)
        command = found[0].command if found else "COMMAND"
        return f"write {_until(f'tests from `{command}` {sign} {match[2]}')}"
    if match := _NONE.fullmatch(part):
        return _suggest_kinds(match["what"], root)
    return ""


def _suggest_kinds(what: str, root: Path) -> str:
    """The rewrite for errors of which it is not clear who reports them."""
    phrases = {"tests pass": CheckKind.TESTS, "no lint errors": CheckKind.LINT, "no type errors": CheckKind.TYPES}
    phrases["it builds"] = CheckKind.BUILD
    if what.lower().startswith("fail"):
        phrases = {"tests pass": CheckKind.TESTS}
    if what.lower().startswith("warning"):
        reports = [one.command for one in find_commands(CheckKind.LINT, root)] or ["COMMAND"]
        return f"say which program reports them: {_until(f'warnings from `{reports[0]}` == 0')}"
    named = []
    for phrase, kind in phrases.items():
        if found := find_commands(kind, root):
            named.append(f"'{phrase}' (runs `{found[0].command}`)")
    if not named:
        return f"say which program reports the {what}: {_until('`COMMAND` passes')}"
    *others, last = named
    if not others:
        return f"write --until {last}"
    return f"say which {what}: --until {', '.join(others)} or {last}; join several with AND"


def _suggest_for_file(part: str, root: Path) -> str:
    """The rewrite for a file with tests or a script, and for words that must be in a file, or in none."""
    if match := re.fullmatch(rf"(?P<path>\S*\.\w+(?:::\S+)?)(?:\s+{EXITS})?", part, re.IGNORECASE):
        return _suggest_for_script(match["path"], root)
    if match := re.fullmatch(r"(?P<name>test_\w+|Test\w+)\s+\S+(?: green)?", part):
        runner = f"go test -run {match['name']} ./..." if (root / "go.mod").exists() else f"pytest -k {match['name']}"
        return f"write {_until(f'`{runner}` passes')}"
    if match := _DOCUMENT.fullmatch(part):
        there = sorted(path.name for path in root.glob("*") if path.stem.lower() == match["name"].lower())
        name, text = (there or [f"{match['name'].upper()}.md"])[0], match["text"].strip("\"'‘’“” ")
        criterion = f'{name} contains "{text}"'
        return f"write {_until(criterion)}" if '"' not in text else ""
    if match := _FILE_ALONE.fullmatch(part):
        return f"write {_until(f'file {match[1]} exists')}"
    if match := _NO_TEXT.fullmatch(part):
        place = f" -- {match['place']}" if match["place"] else ""
        return f"write {_until(f'`! git grep -n {match[1]}{place}` passes')}"
    return ""


_RUNNERS = {
    ".py": "python3",
    ".sh": "sh",
    ".bash": "bash",
    **dict.fromkeys((".js", ".mjs", ".cjs"), "node"),
    ".ts": "npx tsx",
    ".rb": "ruby",
    ".pl": "perl",
}
"""What starts a file, by its ending."""


def _suggest_for_script(path: str, root: Path) -> str:
    """The rewrite for a file that is named as if it could be started."""
    name = os.path.basename(path.partition("::")[0])
    if not os.path.isfile(root / path.partition("::")[0]):
        return ""
    suffix = os.path.splitext(name)[1]
    if suffix == ".py" and re.match(r"test_|.*_test\.py", name):
        return f"write {_until(f'`pytest {path}` passes')}"
    if re.search(r"[._](?:test|spec)\.[cm]?[jt]sx?$", name):
        return f"write {_until(f'`npx vitest run {path}` passes')}, or with the test runner of this project"
    if os.access(root / path, os.X_OK):
        program = path if "/" in path else f"./{path}"
        return f"write {_until(f'`{program}` passes')}"
    if suffix in _RUNNERS:
        return f"write {_until(f'`{_RUNNERS[suffix]} {path}` passes')}"
    return ""


def _suggest_for_output(part: str) -> str:
    """The rewrite for what a command or a file must say."""
    if match := re.fullmatch(
        r"(?P<output>(?:the )?(?:output|stdout) (?:of|from) )?`(?P<command>[^`]+)`(?P<after>.*)", part
    ):
        after = re.sub(r"^\s*is\b", " ==", match["after"]) if match["output"] else match["after"]
        return _suggest_for_command(match["command"].strip(), after)
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
    return f"say how high it must be: {_until(f'coverage from `{source}` >= {wanted}%')}"


def _suggest_for_amount(part: str, root: Path) -> str:
    """The rewrite for the times that a command must pass or may take, the size of a file, or an address that must answer."""
    if match := _REACHES.fullmatch(part):
        return f"write {_until(f'`curl -fsS -o /dev/null {match[1] or match[2]}` passes')}"
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
        return f"write {_until(f'`{command}` passes')} --confirm {match['number'] or 2}" if command else ""
    if match := _LIMITED.fullmatch(part):
        command = _guess_command(match["command"].strip("`"), root)
        seconds = float(match["number"]) * (60 if match["unit"].lower().startswith("m") else 1)
        if command:
            return f"write {_until(f'`timeout {seconds:g} {command}` passes')}"
    return ""


def _suggest_for_number(match: re.Match[str], root: Path) -> str:
    """The rewrite for a number that a command prints. What is no command has to become one."""
    bound = f"{_SIGNS.get(match['bound'].lower(), match['bound'])} {match['number']}"
    command = _read_command(match["command"], root)
    if not command:
        example = _until(rf"/(\d+)/ from `COMMAND` {bound}")
        return f"write a command that prints the number: {example}"
    pattern = _until(rf"/(\d+)/ from `{command}` {bound}")
    if _PRINTS_NUMBERS.fullmatch(command.split()[0]):
        return f"write {pattern}"
    return f"say which number: {pattern}, or {shlex.quote(f'errors from `{command}` {bound}')}"


def _suggest_for_command(command: str, after: str) -> str:
    program = f"python3 {command}" if re.match(r"[\w-]+\.py\b", command) else command
    if match := re.match(r"\s*(?:==?|equals|(?:is|prints|outputs|returns)\s+exactly)\s*(.+)", after):
        text = _quote_inside(match[1].strip("\"'‘’“” "))
        criterion = f'`test "$({program})" = {text}` passes'
        return f"write {_until(criterion)}"
    if match := re.match(
        r"\s*(?:prints|outputs|shows|says|reports|contains|includes|mentions)\s+(?!(?:no|0|zero)\b)(.+)", after
    ):
        text = _quote_inside(match[1].strip("\"'‘’“” "))
        return f"write {_until(f'`{program} | grep -q {text}` passes')}"
    passes = _until(f"`{command}` passes")
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
    command = _SENTENCE_END.sub("", part).strip()
    if quoted := re.fullmatch(r"[\"'‘“]([^\"'’”]*)[\"'’”]?", command):
        command = quoted[1].strip()
    program, *arguments = command.split() or [""]
    has_option = any(word.startswith("-") for word in arguments[:1])
    if not program or (reads_as_prose([program, *arguments]) and not has_option):
        return ""
    if program.startswith(("./", "../", "/")):
        return command
    for directory in ("./", ".venv/bin/", "venv/bin/"):
        if os.path.isfile(root / directory / program):
            return directory + command
    if _WORDY.fullmatch(program) and not has_option and not find_bare_command(command, root):
        return ""
    if shutil.which(program) or (anyway and _looks_like_command(program, arguments)):
        return command
    return ""


def _looks_like_command(program: str, arguments: list[str]) -> bool:
    """Whether words are a command, although its program is not installed."""
    if not arguments:
        return _CHECKER.fullmatch(program) is not None
    if _TOOL.fullmatch(program) and _VERB.fullmatch(arguments[0]):
        return True
    return any(word == "." or word.startswith("-") or _SHAPED.search(word) for word in arguments)


def _suggest_example(part: str, root: Path) -> str:
    """Criteria that this repository can verify, nearest to what the user wrote."""
    kinds = [kind for kind, words in _NEAR.items() if re.search(words, part, re.IGNORECASE)]
    found = [one for kind in (CheckKind.TESTS, *kinds) for one in find_commands(kind, root)[:1]]
    return " AND ".join(dict.fromkeys(f"`{one.command}` passes" for one in found)) or "`./check.sh` passes"
