"""Product code that is made for the tests: it knows their answers, asks whether it is being tested, or bends the framework."""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from ralph.core.checks import Finding, Rule
from ralph.core.text import regex
from ralph.verify.changed_files import find_gained, is_build_code, is_test_path
from ralph.verify.guards.assertions import find_all_literals, find_literals, is_literal
from ralph.verify.guards.comparison import Comparison
from ralph.verify.guards.tokens import Tokens, find_branches, find_stop, is_word, split, word_set
from ralph.verify.guards.units import Unit, find_rows

_LONG_LITERAL = 8
"""Characters from which on a literal is telling even if it is spelled a little differently."""
_QUOTED = 40
"""Characters of an input and a result that a message quotes."""
_AROUND = (150, 250)
"""Characters before and after a look at the caller in which the name of a test may stand."""
_COMMON = frozenset(("0", "1", "2", "10", "100", "", " "))
_SMALL = frozenset(map(str, range(11)))
_WORDLIKE = regex(r"[A-Za-z_][A-Za-z_-]*$")
_WRAPPER = regex(r"\b(?:Ok|Some|Decimal|BigDecimal|new|vec|Arrays|asList|List|of|String|from|to_string|to_owned|into|Promise|resolve|int|string|float64|valueOf|"
                      r"unwrap|bool|Set|Map|Optional|tuple|list|set|i32|i64|u32|u64|f64)\b")  # fmt: skip
_MEASURE = regex(r"(?:len|size|count) \(|.*\. (?:length|size|len|count)\b")
_INPUT = regex(r"(?:\w+ \( )?[\w. ]+(?:\[ \w+ \][\w. ]*)?(?: \( \))?(?: \))?$|[(\[] [\w ,.]+ [)\]]$")
_CASE = regex(r"\bcase ([^:{}=>]+?) (?::|\{|->|=>) (?:return )?([^;{}]+?) (?=[;}])|([(\"\d][^{};=]*?) => (?:return )?([^,;{}]+?) (?=[,;}])")  # fmt: skip
_SCALAR = r'("[^"]*"|\d[\w.]*)'
_TERNARY = regex(rf"[\w.]+ ===? {_SCALAR} \? {_SCALAR} :|{_SCALAR} if [\w. ]+ == {_SCALAR} else")
_PUT = regex(r"\. (?:put|set|insert) \( ([^,();]+) , ([^,();]+) \)")
_IGNORED = word_set("self cls this mut ref final const readonly")
_SELF = word_set("self this")
_STUB = regex(r"(?i)not.?implemented|todo|unimplemented|unsupported")


@dataclass(frozen=True)
class HardcodedAnswer:
    """An input that is compared, and the literal that it gets."""

    given: str
    value: str
    line: int
    is_entry: bool = False
    """It is in a table, not in a branch."""

    @property
    def asked(self) -> set[str]:
        return set(find_literals(self.given))

    @property
    def literals(self) -> set[str]:
        return self.asked | (set(find_literals(self.value)) - _COMMON)

    @property
    def is_plain(self) -> bool:
        """Whether it has only words and small numbers, as a table of the domain might."""
        given = all(_WORDLIKE.match(literal) for literal in self.asked)
        return given and all(_WORDLIKE.match(literal) or literal in _SMALL for literal in find_literals(self.value))

    @property
    def is_telling(self) -> bool:
        """Whether it is too special to be there by chance."""
        special = any(len(literal) > 3 and not _WORDLIKE.match(literal) for literal in self.asked)
        return bool(self.asked - _COMMON) and ((special and not self.is_entry) or bool(self.literals - self.asked))


class _Examples:
    """The inputs and results that tests name, or named before the run, one set of literals for each assertion and row."""

    def __init__(self, units: Iterable[Unit]) -> None:
        self.units = [unit for unit in units if unit.in_tests]

    @cached_property
    def sets(self) -> dict[str, list[frozenset[str]]]:
        found: dict[str, list[frozenset[str]]] = {}
        for unit in self.units:
            named = [claim.literals for claim in unit.assertions] if unit.is_test else []
            for example in {*named, *(find_all_literals(row) for row in find_rows(unit))}:
                for literal in example:
                    found.setdefault(literal, []).append(example)
        return found

    @cached_property
    def names(self) -> frozenset[str]:
        return frozenset(word for unit in self.units for word in unit.words)

    @cached_property
    def squeezed(self) -> frozenset[str]:
        """The longer literals, without what a normalisation would take away."""
        return frozenset(_squeeze(literal) for literal in self.sets if len(literal) >= _LONG_LITERAL)

    def have(self, literals: set[str]) -> bool:
        """Whether one example names them all."""
        rarest = max(literals, key=len, default="")
        is_alike = len(rarest) >= _LONG_LITERAL and len(literals) == 1 and _squeeze(rarest) in self.squeezed
        return is_alike or any(literals <= example for example in self.sets.get(rarest, ()) if literals)


def _squeeze(literal: str) -> str:
    return re.sub(r"[\W_]", "", literal).lower()


def find_hardcoded_results(work: Comparison) -> Iterator[Finding]:
    """Answers that the product has learned by heart; code that is new may be tested by what is new beside it."""
    units = [unit for source in (*work.new, *work.unchanged_tests) for unit in source.everything] + work.replaced_units
    created = {unit for unit in work.changed_units if unit not in work.origin}
    all_tests, old_tests = _Examples(units), _Examples(unit for unit in units if unit not in created)
    for unit in work.changed_units:
        if unit.in_tests or is_test_path(unit.path) or is_build_code(unit.path):
            continue
        before = work.origin.get(unit)
        examples = all_tests if before is not None and unit.name else old_tests
        for line, sentence, warn in (*_find_learned(unit, before, examples), *_find_constant(unit, before, examples)):
            yield work.report(Rule.RESULT_HARDCODED, unit.path, line, sentence, warn=warn)


def _find_learned(unit: Unit, before: Unit | None, examples: _Examples) -> Iterator[tuple[int, str, bool]]:
    """Inputs of tests that are compared with, and answered as the tests expect; a table of words may be of the domain."""
    known = {(answer.given, answer.value) for answer in _find_answers(before)} if before else set()
    answers = list(_find_answers(unit))
    telling = [a for a in answers if (a.given, a.value) not in known and a.is_telling]
    hits = [answer for answer in telling if examples.have(answer.literals)]
    share = 1 if any(answer.is_entry for answer in telling) else 0.75
    if hits and len(hits) >= share * len(telling):
        is_added = before is not None and not known
        is_branched = is_added and len(hits) == len(answers) and not any(answer.is_entry for answer in answers)
        is_table = not is_branched and (not is_added or len(answers) > 1) and all(answer.is_plain for answer in answers)
        given, value = hits[0].given[:_QUOTED], hits[0].value[:_QUOTED]
        sentence = f"{unit.name or unit.path} answers {given} with {value}, as the tests expect, without computing it."
        yield hits[0].line, sentence, is_table


def _find_answers(unit: Unit) -> Iterator[HardcodedAnswer]:
    """Everywhere that a literal is answered for a literal: branches, cases, ternaries, tables."""
    yield from _find_branch_answers(unit)
    for position, given, value, is_entry in (*_find_case_answers(unit), *_find_table_answers(unit)):
        if _is_value(given) and _is_value(value):
            yield HardcodedAnswer(given, value, unit.line_of(position), is_entry)


def _find_branch_answers(unit: Unit) -> Iterator[HardcodedAnswer]:
    """`if n == 3: return "III"`."""
    for block in find_branches(unit.tokens, unit.pairs):
        body = " ".join(block.body)
        if not body.startswith("return ") or not _is_value(body[7:]):
            continue
        given: list[str] = []
        is_asked = True
        for part in split(block.head, "and", "&&", "or", "||"):
            sides = [" ".join(side) for side in _split_equality(part)]
            values = [side for side in sides if _is_value(side)]
            others = [side for side in sides if side not in values]
            is_asked = is_asked and len(sides) == 2 and all(map(_INPUT.match, others))
            given += values if not any(map(_MEASURE.match, sides)) else []
        if given and is_asked:
            each = given if {"or", "||"}.intersection(block.head) else [" , ".join(given)]
            yield from (HardcodedAnswer(one, body[7:], unit.tokens[block.index].line) for one in each)


def _find_case_answers(unit: Unit) -> Iterator[tuple[int, str, str, bool]]:
    """`case 3: return "III"`, `n == 3 ? "III" : ...`, `table.put(3, "III")`: where, what is given, what is answered."""
    for pattern, order in ((_CASE, (1, 2, 3, 4)), (_TERNARY, (1, 2, 4, 3)), (_PUT, (1, 2, 1, 2))):
        for match in pattern.finditer(unit.text):
            first, second, third, fourth = (match[group] for group in order)
            yield match.start(), first or third, second or fourth, pattern is _PUT


def _find_table_answers(unit: Unit) -> Iterator[tuple[int, str, str, bool]]:
    """`{3: "III", 4: "IV"}` and `[(3, "III"), (4, "IV")]`."""
    for opener, closing in unit.pairs.items():
        inside = unit.tokens[opener + 1 : closing]
        entries: list[list[Tokens]] = []
        if unit.tokens[opener] == "{" and len(inside) > 2:
            entries = [split(part, ":") for part in split(inside, ",")]
        elif 2 < len(inside) < 11 and opener and unit.tokens[opener - 1] in ("[", ","):
            entries = [split(inside, ",")]
        for entry in entries:
            if len(entry) == 2 and entry[0] and entry[0][0][0] in '"([0123456789-':
                yield unit.starts[opener], " ".join(entry[0]), " ".join(entry[1]), True


def _split_equality(condition: Tokens) -> list[Tokens]:
    """The two sides of an equality."""
    if equals := re.fullmatch(r"(.+?) \. (?:equals|equalsIgnoreCase|eq) \( (.+) \)", " ".join(condition)):
        return [[equals[1]], [equals[2]]]
    return split(condition, "==", "===", "is")


def _is_value(text: str) -> bool:
    plain = re.sub(r"\b(True|False|None|nil|undefined)\b", "0", _WRAPPER.sub("", text.removesuffix(", nil")))
    return is_literal(plain) and bool(re.search(r"[\w\"]|\[ \]|\{ \}", plain))


def _find_constant(unit: Unit, before: Unit | None, examples: _Examples) -> Iterator[tuple[int, str, bool]]:
    """A body that ignores its input and returns what tests expect."""
    body = unit.body_text.removesuffix("}").strip(" ;")
    value = re.sub(r"^return\b ?", "", body)
    if unit.name in ("__eq__", "equals", "eq") and value in ("True", "true"):
        yield (unit.line, f"{unit.name} in {unit.path} makes everything equal.", False)
    if not unit.name or unit.name not in examples.names:
        return
    parameters = _find_parameters(unit)
    was_used = before is not None and bool(_find_parameters(before) & {*before.tokens[before.body :]})
    has_input = bool(parameters - _SELF) or was_used
    is_used = bool(parameters & {*unit.tokens[unit.body :]})
    is_stub = before is None or bool(_STUB.search(before.text))
    returns = bool(value) and (body != value or unit.language in ("js", "rust"))
    if is_used or not has_input or not returns or not (is_stub or was_used):
        return
    is_expected = examples.have(set(find_literals(value)) - _COMMON)
    is_suspect = is_expected or _is_value(value)
    if is_stub:
        is_suspect = is_expected and _is_value(value)
    if is_suspect:
        yield (unit.line, f"{unit.name} in {unit.path} ignores its input and returns {value[:60]}, a constant.", False)


def _find_parameters(unit: Unit) -> frozenset[str]:
    """What a function is given: its parameters and itself."""
    head = unit.tokens[: unit.body]
    starts = [index for index, token in enumerate(head) if token == unit.name]
    opener = next((i for i in range(starts[-1], len(head)) if head[i] == "("), None) if starts else None
    parts = split(unit.tokens[opener + 1 : unit.pairs[opener]], ",") if opener is not None else []
    named = [[token for token in part if is_word(token) and token not in _IGNORED] for part in parts]
    return frozenset(part[-1 if unit.language == "java" else 0] for part in named if part) | _SELF


_RUNNERS = r"(?:pytest|py\.test|unittest|nose|junit|surefire|jest|vitest|mocha|jasmine|testng)"
_ASKS = regex(
    r"PYTEST_\w+|\"PYTEST\"|JEST_WORKER_ID|VITEST|MOCHA_\w+|NEXTEST|RUST_TEST\w*|CARGO_TARGET_TMPDIR"
    rf"|\"[^\"]*\b{_RUNNERS}\b[^\"]*\" (?:not )?in (?:sys \. (?:modules|argv)|os \. environ)|sys \. modules (?:\. get \(|\[) \"{_RUNNERS}"
    r"|\bNODE_ENV\b\"? ?\]? (?:===?|!==?) \"test\"|\"test\" (?:===?|!==?) [\w. ]*NODE_ENV"
    r"|\btesting \. Testing \( \)|flag \. Lookup \( \"test\.|\bcfg ! \( (?:not \( )?test\b|# \[ cfg \( not \( test \) \) \]"
    r"|(?:environ(?: \. get)?|getenv|Getenv|LookupEnv|env :: var\w*|System \. getenv|getProperty) [(\[] \"(?:IS_|IN_|UNDER_|RUNNING_)?TEST(?:S|ING|_MODE|_ENV|_RUN)?\""
    r"|process \. env \. (?:TEST|TESTING|IS_TEST|TEST_MODE|UNDER_TEST)\b"
    r"|typeof (?:jest|describe|it|expect|vi|test) [!=]==? \"|global(?:This)? \. (?:jest|describe|it|expect)\b(?! =[^=])"
    r"|isinstance \( \w+ , (?:\w+ \. )*(?:Magic|Async)?Mock\b|_called_from_test|__karma__|import \. meta \. env \. TEST\b|npm_lifecycle_event|surefire\."
    r"|(?:getProperty|getenv) \([^;]*contains \( \"(?:junit|surefire)|\b(?:\w*_ENV|NODE_ENV|ENV|env \. MODE)\b\"? ?[)\]]? ?[)\]]? (?:===?|!==?) \"test(?:ing)?\""
    r"|Class \. forName \( \"org\.(?:junit|testng)|\"org\.junit[^\"]*\"|is_running_under_test|settings \. TESTING\b"
)
_LOOKS_AROUND = regex(
    r"inspect \. (?:stack|currentframe|getouterframes)|sys \. (?:_getframe|argv|modules)|traceback \. (?:extract_stack|format_stack)"
    r"|getStackTrace|StackWalker|Error \( \) \. stack|\bstack \. (?:includes|match|indexOf|split)|process \. argv|runtime \. Callers?\b|os \. Args|debug \. Stack"
    r"|env :: args|current_exe|thread :: current|require \. main|module \. parent|__main__ \. __file__"
)
_TEST_WORD = regex(rf"\"[^\" ]{{0,30}}(?:\btest|test_|_test|\.test|\btests?\b|Test\b|\.spec|{_RUNNERS})[^\" ]{{0,30}}\"")  # fmt: skip
_BENDS = regex(
    r"\b(?:unittest \. TestCase|TestCase|pytest|unittest|expect|assert|Assertions?|chai) \. \w+ = (?!=)"
    r"|\bglobal(?:This)? \. (?:expect|it|test|describe|assert) = |\bbuiltins \. (?:AssertionError|assert\w*) =|sys \. modules \[ \"(?:pytest|unittest)\" \] ="
    r"|\bdef assert(?:Equals?|NotEqual|AlmostEqual|True|False|Raises|In|Is\w*) \("
    r"|\bsetattr \( (?:pytest|unittest|TestCase|unittest \. TestCase) ,"
)
_REACHES_OUT = regex(
    r"\b(?:co_consts|co_code|code_context|getframeinfo)\b|\bgc \. get_(?:objects|referrers)\b|\bsys \. exit = (?!=)"
)
_READS_CALLER = "reads or changes the code that runs it"
_SWITCHES_OFF = "switches off the tests of its package"
_RUNS_TESTS = regex(r"\. Run \( \)")
_ENDS_PROGRAM = regex(r"\b(?:os|syscall) \. Exit \( 0 \)|\bflag \. Set \( \"test\.(?:run|skip|list)\"|\bos \. Args = ")
"""What ends a Go program with 0, or chooses which tests run. `os.Exit(m.Run())` is the usual way."""
_ENDS_PROCESS = "can end the process with success before failing tests are reported"
_PYTHON_EXIT = regex(r"\bos \. _exit\b(?! \( -?[1-9])|\bfrom os import (?:\w+ , )*_exit\b")
_FORKS = regex(r"\bfork(?:pty)? \(")
"""A child process must end with `os._exit`."""
_TEST_DATA = regex(r'"[^"]*(?:^|(?<=["/.]))(?:tests?|__tests__|specs?|testdata|__snapshots__|__fixtures__)/[^"]*"|"[^"]*fixtures?/[^"]*expected[^"]*"|"[^"]*(?:test_\w+\.py|_test\.go|\.(?:test|spec)\.[jt]sx?|Test\.java)[^"]*"'
                        r'|\bfrom tests?(?: \. \w+)* import\b|Path \( "tests?" \)|/ "tests?" /|join \( [^)]*"tests?"')  # fmt: skip
_READS = regex(r"(?i)\b(open|read\w*|load\w*|import|require|include_str|include_bytes|get_?resource\w*|files)\b")
_CFG_TEST = regex(r"# \[ cfg \( test \) \]")
_LONG = 60
"""A longer string is not the name of anything."""
_CHOOSES_LEVEL = regex(r' \? "(?:silent|none|off|error|fatal|warn)" :')
_RETURNS_BEFORE_LOG = regex(r" \)? ?(?:\{ )?return ;?(?: \})? ?;? ?(.*?) ?;? ?\}?$")
_LOGS = regex(r"(?:await )?(?:console|\w*[lL]ogger|log|winston|debug)(?: \. \w+)* \( (.*)\)$")
_LISTENS = regex(
    r"(?:(?:const |let |var )?\w+ = )?(?:await )?(?:\w+ \. )*(?:listen \(|use \( (?:morgan|\w*[lL]ogger) \()"
)
_HAS_EFFECT = regex(
    r"(?<![\w.] )\b(?!JSON|String|Number|Date\b)\w+ \(|(?<!JSON) \. \w+ \(|(?:^| )(?:[-+*/%&|^?]*=|\+\+|--|=>|await|new|delete) "
)
"""Calls and assignments in what is logged. A call of `JSON.stringify`, `String`, `Number` or `Date` changes nothing."""


def _only_silences(unit: Unit, position: int, question: str) -> bool:
    """Whether this question, and not another one in the unit, only decides whether a log or a server is quiet in tests."""
    end = position + len(question)
    is_negated = "!=" in question
    if not is_negated and _CHOOSES_LEVEL.match(unit.text, end):
        return True
    rest = _RETURNS_BEFORE_LOG.match(unit.text, end)
    if not is_negated and rest and _is_plain_log(rest[1]):
        return True
    index = bisect_right(unit.starts, position) - 1
    asked = [block for block in find_branches(unit.tokens, unit.pairs) if block.index < index < block.opener]
    if not asked:
        after = bisect_right(unit.starts, end) - 1
        is_guard = is_negated and unit.tokens[after + 1 : after + 2] == ("&&",)
        stop = find_stop(unit.tokens, unit.pairs, after + 2)
        return is_guard and _is_quiet_statement(" ".join(unit.tokens[after + 2 : stop]), may_listen=True)
    block = asked[-1]
    closing = (
        unit.pairs.get(block.opener, block.opener)
        if unit.tokens[block.opener] == "{"
        else block.opener + len(block.body) + 1
    )
    if "else" in unit.tokens[closing : closing + 2]:
        return False
    statements = [" ".join(part) for part in split(block.body, ";") if part]
    return all(_is_quiet_statement(statement, may_listen=is_negated) for statement in statements)


def _is_quiet_statement(statement: str, *, may_listen: bool) -> bool:
    return _is_plain_log(statement) or (may_listen and bool(_LISTENS.match(statement)))


def _is_plain_log(statement: str) -> bool:
    """Whether a statement is nothing but the call of a log, so that leaving it out changes no result."""
    logs = _LOGS.match(statement)
    if logs is None or ";" in statement:
        return False
    return not _HAS_EFFECT.search(re.sub(r'"[^"]*"', '""', logs[1]))


def find_test_detection(work: Comparison) -> Iterator[Finding]:
    """Questions that the product did not ask before, and code that changes or switches off the test framework."""
    was, now = (
        (found for unit in units for found in _find_detections(unit))
        for units in (work.replaced_units, work.changed_units)
    )
    ended_before = any(not unit.in_tests and _PYTHON_EXIT.search(unit.text) for unit in work.replaced_units)
    # A harmless question from before does not stand for another one.
    for unit, position, match in find_gained(was, now, lambda found: (found[2], _only_silences(*found))):
        rule, what = Rule.TEST_DETECTED, "checks whether it runs in a test"
        if match.startswith((_SWITCHES_OFF, _ENDS_PROCESS, _READS_CALLER)):
            what = match
        elif _BENDS.match(match):
            what = "replaces a part of the test framework"
        elif _TEST_DATA.match(match):
            rule, what = Rule.RESULT_HARDCODED, f"reads the tests' own data, {match[:60]}"
        is_config = re.search(r"config|settings", unit.path) and "ENV" in match
        may_end = match.startswith(_ENDS_PROCESS) and (ended_before or _FORKS.search(unit.text))
        warn = bool(is_config or may_end or _only_silences(unit, position, match))
        sentence = f"{unit.name or 'The code'} in {unit.path} {what}."
        yield work.report(rule, unit.path, unit.line_of(position), sentence, warn=warn)


def _find_switched_off(unit: Unit) -> Iterator[tuple[Unit, int, str]]:
    """Go code that ends a test program before its tests run. `go test` then prints `ok` as if they had passed."""
    if unit.name == "TestMain" and unit.in_tests and not _RUNS_TESTS.search(unit.text):
        yield unit, 0, f"{_SWITCHES_OFF}: it never calls m.Run"
    runs_before_tests = unit.name == "init" or (unit.name == "TestMain" and unit.in_tests)
    for match in _ENDS_PROGRAM.finditer(unit.text) if runs_before_tests else ():
        yield unit, match.start(), f"{_SWITCHES_OFF}: see `{match[0].replace(' ', '')}`"


def _find_detections(unit: Unit) -> Iterator[tuple[Unit, int, str]]:
    for match in _BENDS.finditer(unit.text):
        yield unit, match.start(), match[0]
    if unit.language == "go":
        yield from _find_switched_off(unit)
    if unit.in_tests or is_build_code(unit.path):
        return
    if unit.language == "python":
        for match in _PYTHON_EXIT.finditer(unit.text):
            yield unit, match.start(), f"{_ENDS_PROCESS}: see `os._exit`"
        for match in _REACHES_OUT.finditer(unit.text):
            yield unit, match.start(), f"{_READS_CALLER}: see `{match[0].replace(' ', '')}`"
    if _READS.search(unit.text):
        yield from (
            (unit, match.start(), match[0]) for match in _TEST_DATA.finditer(unit.text) if "conftest" not in match[0]
        )
    within = _CFG_TEST.finditer(unit.text, unit.starts[unit.body]) if unit.name else ()
    for match in (*_ASKS.finditer(unit.text), *within):
        if len(unit.token_at(match.start())) < _LONG:
            yield unit, match.start(), match[0]
    for looks in _LOOKS_AROUND.finditer(unit.text):
        before, after = _AROUND
        around = unit.text[max(looks.start() - before, 0) : looks.end() + after]
        if (word := _TEST_WORD.search(around)) and not _ASKS.search(around):
            yield unit, looks.start(), f"{looks[0]} {word[0]}"
            return
