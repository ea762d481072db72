"""Product code that asks whether it is being tested, and code that bends the test framework."""

import re
from collections.abc import Iterator
from operator import itemgetter

from ralph.core.findings import Finding, Rule
from ralph.core.patterns import regex
from ralph.verify.guards.changes import gained
from ralph.verify.guards.comparison import Comparison
from ralph.verify.guards.units import Unit
from ralph.verify.judge_files import is_build_code

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
_TEST_DATA = regex(r'"[^"]*(?:^|(?<=["/.]))(?:tests?|__tests__|specs?|testdata|__snapshots__|__fixtures__)/[^"]*"|"[^"]*fixtures?/[^"]*expected[^"]*"|"[^"]*(?:test_\w+\.py|_test\.go|\.(?:test|spec)\.[jt]sx?|Test\.java)[^"]*"'
                        r'|\bfrom tests?(?: \. \w+)* import\b|Path \( "tests?" \)|/ "tests?" /|join \( [^)]*"tests?"')  # fmt: skip
_READS = regex(r"(?i)\b(open|read\w*|load\w*|import|require|include_str|include_bytes|get_?resource\w*|files)\b")
_CFG_TEST = regex(r"# \[ cfg \( test \) \]")
_LONG = 60
"""A longer string is not the name of anything."""
_QUIET = regex(r'(?:!==?|not =) "test" [^;]{0,40}\b(?:listen|morgan|log\w*) \(')
"""Known ways to keep a server from listening, or a log from growing, while tests run."""


def detection_findings(work: Comparison) -> Iterator[Finding]:
    """Questions that the product did not ask before."""
    was, now = ((found for unit in units for found in _found(unit)) for units in (work.stale, work.fresh))
    for unit, position, match in gained(was, now, itemgetter(2)):
        rule, what, line = Rule.TEST_DETECTED, "asks whether it runs under test", unit.line_of(position)
        if _BENDS.match(match):
            what = "replaces a part of the test framework"
        elif _TEST_DATA.match(match):
            rule, what = Rule.RESULT_HARDCODED, f"reads the tests' own data, {match[:60]}"
        is_config = re.search(r"config|settings", unit.path) and "ENV" in match
        warn = bool(is_config or _QUIET.search(unit.text, position))
        sentence = f"{unit.name or 'The code'} in {unit.path} {what}."
        yield work.found(rule, unit.path, line, sentence, warn=warn)


def _found(unit: Unit) -> Iterator[tuple[Unit, int, str]]:
    for match in _BENDS.finditer(unit.text):
        yield unit, match.start(), match[0]
    if unit.in_tests or is_build_code(unit.path):
        return
    if _READS.search(unit.text):
        yield from (
            (unit, match.start(), match[0]) for match in _TEST_DATA.finditer(unit.text) if "conftest" not in match[0]
        )
    within = _CFG_TEST.finditer(unit.text, unit.starts[unit.body]) if unit.name else ()
    for match in (*_ASKS.finditer(unit.text), *within):
        if len(unit.token_at(match.start())) < _LONG:
            yield unit, match.start(), match[0]
    for looks in _LOOKS_AROUND.finditer(unit.text):
        around = unit.text[max(looks.start() - 150, 0) : looks.end() + 250]
        if (word := _TEST_WORD.search(around)) and not _ASKS.search(around):
            yield unit, looks.start(), f"{looks[0]} {word[0]}"
            return
