"""Claims: what an assertion says, in one vocabulary for all languages and libraries, and how strong it is."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from ralph.core.patterns import regex
from ralph.verify.guards.lexer import partners, words
from ralph.verify.guards.syntax import Tokens, split, unwrapped


class Kind(StrEnum):
    """What is claimed about the subject; the text completes "checks only for ..."."""

    EQUAL = "equality"
    PATTERN = "a pattern"
    APPROX = "approximate equality"
    RAISES = "a specific error"
    CALLED_WITH = "the arguments of a call"
    CUSTOM = "what a helper checks"
    MEMBER = "containment"
    ORDER = "a bound"
    TYPE = "a type"
    BOOL = "truth"
    NOT_EQUAL = "inequality"
    FAILS = "any error"
    ANY = "one of several things"
    PASSES = "no error"
    CALLED = "a call"
    EXISTS = "presence"
    TRIVIAL = "nothing"


RANK = {
    Kind.EQUAL: 9, Kind.PATTERN: 8, Kind.APPROX: 8, Kind.RAISES: 8, Kind.CALLED_WITH: 7, Kind.CUSTOM: 6, Kind.MEMBER: 5,
    Kind.ORDER: 5, Kind.TYPE: 3, Kind.BOOL: 3, Kind.NOT_EQUAL: 3, Kind.FAILS: 3, Kind.ANY: 2, Kind.PASSES: 2,
    Kind.CALLED: 3, Kind.EXISTS: 1, Kind.TRIVIAL: 0,
}  # fmt: skip

_NAMES: tuple[tuple[Kind, str], ...] = (
    (Kind.APPROX, r"\w*(almostequal|allclose)\w*|indelta\w*|inepsilon\w*|(tobe|is)?closeto|approx\w*|relativeeq|absdiffeq"),
    (Kind.NOT_EQUAL, r"\w*not(deep|strict|deepstrict)?(equals?|eq|same|be)(to)?|ne|isnot|arenotequal"),
    (Kind.CALLED_WITH, r"(tohavebeen)?(last|nth)?(called|awaited)(once)?(with|exactly)|anycall|hascalls"),
    (Kind.ORDER, r"(is|tobe)?(greater|less)(than)?(or)?(equal)?(to)?|above|below|(at)?least|(at)?most|(is)?(positive|negative)|"
                 r"isbetween|within"),
    (Kind.EQUAL, r"\w*equals?(to)?|eq|eql|eqs|be|is|same(instance)?|tobe|issameas|tohave(length|count|text|value)|lengthof|hassize|"
                 r"len|length|containsexactly\w*|containsonly|elementsmatch|jsoneq|\w*snapshot|shouldbe|notcalled|hasvalue|"
                 r"(tohavebeen)?calledtimes|isequalcomparing\w*|hastostring|consistof|havelen"),
    (Kind.MEMBER, r"(to)?(contains?|includes?)\w*|not(contains?|in)|in|regexp?|notregex|(to|does)?match(es|object|regexp?)?|"
                  r"(to)?(have)?property|haskey|hasentry|startswith|endswith|\w*subset|oneof|keys|isin|tohave(class|attribute)"),
    (Kind.RAISES, r"(raises|throws?|tothrow|panics)\w*|error(is|as|contains)|equalerror|matcherror|warns"),
    (Kind.PASSES, r"noerror|doesnot(throw|raise|reject)\w*|notpanics|succeed"),
    (Kind.FAILS, r"error|haveoccurred|iserr|thatthrownby"),
    (Kind.EXISTS, r"(is)?not(none|null|nil|empty|undefined|zero|blank)(value)?|tobedefined|exists?|ispresent|isdefined|isok|issome"),
    (Kind.BOOL, r"(is|tobe|be)?(true|false|truthy|falsy|none|null|nil|undefined|empty|nan|zero)|ok|condition|notok|that|"
                r"tobeinthedocument|tobevisible"),
    (Kind.TYPE, r"(not)?(is(exactly)?)?instance(of)?|tobeinstanceof|typeof|an?|istype|implements|isa"),
    (Kind.CALLED, r"(tohavebeen)?(called|awaited)(once)?"),
)  # fmt: skip
_TABLE = [(kind, regex(f"(?:{names})$")) for kind, names in _NAMES]
_FALSE = regex(r"(is|tobe|be)?(false|falsy)$|notok$")
_NOTHING = regex(r"(is|tobe|be)?(none|null|nil|undefined)$")
_STATE = regex(r"(empty|nan|zero|thedocument|visible)$")
_BROAD = words("Exception BaseException Throwable RuntimeException Error")
_NO_TYPE = words("class new errors expected_exception")
_CODE = words("=> -> { | lambda ;")
_NEGATED = {"==": "!=", "<": ">=", ">": "<=", "in": "not in", "instanceof": "not instanceof"}
_NEGATED |= {negated: operator for operator, negated in _NEGATED.items()}
_OTHERS = {"in": Kind.MEMBER, "instanceof": Kind.TYPE}
_FLIPPED = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}
_SAME = {"===": "==", "!==": "!=", "is": "==", "None": "null", "nil": "null", "undefined": "null", "True": "true", "False": "false"}  # fmt: skip
_ERROR_NAME = regex(r"e$|err\d*$|\w*[eE]rr\d*$|error$")
_WILD = regex(r"expect \. (any|anything|objectContaining|arrayContaining|stringContaining|stringMatching)\b|\bANY\b|\bany \( \)")  # fmt: skip
_PREDICATES: tuple[tuple[str, Kind, Kind], ...] = (
    (r"equals|isEqual|(deep_?)?equal|eq|is_deeply", Kind.EQUAL, Kind.NOT_EQUAL),
    (r"isinstance|issubclass|is_instance", Kind.TYPE, Kind.TYPE),
    (r"isclose|allclose|approx(_eq)?", Kind.APPROX, Kind.APPROX),
    (r"matches", Kind.PATTERN, Kind.PATTERN),
    (r"is_err", Kind.FAILS, Kind.EXISTS),
    (r"is_ok|is_some|ispresent", Kind.EXISTS, Kind.EQUAL),
    (r"is_none", Kind.EQUAL, Kind.EXISTS),
    (r"(contains|includes|has|starts_?with|ends_?with|match|search|test|any)\w*", Kind.MEMBER, Kind.MEMBER),
)
"""What functions ask that answer yes or no, and what is claimed when they must answer no."""
_TOLERANCES = ("delta", "atol", "rtol", "abs", "rel", "rel_tol", "abs_tol", "epsilon")
_LONGEST = 300
"""Conditions of more tokens are not taken apart."""


@dataclass(frozen=True)
class Claim:
    """One thing that is claimed."""

    kind: Kind
    sides: tuple[Tokens, ...]
    detail: str = ""
    """The error expected, the direction of a bound, the truth value."""
    tolerance: float = 0.0


def _plain(name: str) -> str:
    return re.sub(r"^(debug|prop)?assert", "", name.lower().replace("_", ""))


def kind_of(name: str) -> Kind | None:
    """What an assertion's name says it claims."""
    plain = _plain(name)
    return next((kind for kind, names in _TABLE if names.match(plain)), None)


def named(name: str, operands: Sequence[Tokens], negated: bool = False) -> list[Claim]:
    """The claim of an assertion that goes by a name: `assertEqual(a, b)`, `expect(a).toBe(b)`."""
    plain, kind = _plain(name), kind_of(name) or Kind.CUSTOM
    first = operands[0] if operands else ()
    tolerance = _tolerance(plain, operands) if kind is Kind.APPROX else 0.0
    detail = "not" if negated else ""
    if kind is Kind.EXISTS or (kind is Kind.BOOL and _NOTHING.match(plain)):
        return _compared(first, "==" if negated == (kind is Kind.EXISTS) else "!=", ("null",))
    if kind in (Kind.RAISES, Kind.FAILS, Kind.PASSES):
        return [_raising(kind, plain, operands, negated)]
    if kind in (Kind.EQUAL, Kind.NOT_EQUAL) and len(operands) > 1 and not plain.startswith(("contains", "consistof")):
        if len(operands) > 2 and (given := number_in(operands[2])) is not None:
            return [Claim(Kind.APPROX, tuple(operands[:2]), tolerance=given)]
        subject = [*first, ".", "length"] if re.search(r"len|size|count", plain) else first
        return _compared(subject, "!=" if (kind is Kind.EQUAL) == negated else "==", operands[1])
    if kind is Kind.BOOL:
        if not _STATE.search(plain):
            return condition(first, negated != bool(_FALSE.match(plain)))
        operands, detail = (first,), "false" if negated else "true"
    elif kind is Kind.ORDER:
        operator = ">" if re.search(r"greater|above|least|positive", plain) else "<"
        operands, detail = operands[:2], _NEGATED[operator] if negated else operator
    elif kind is Kind.CUSTOM:
        detail = name
    return [Claim(kind, tuple(operands), detail, tolerance)]


def _raising(kind: Kind, plain: str, operands: Sequence[Tokens], negated: bool) -> Claim:
    """`raises(Type, match="...")`, `toThrow(Type)`, `assertThrows(Type.class, () -> ...)`, `ErrorIs(err, Type)`."""
    if negated or kind is Kind.PASSES:
        return Claim(Kind.FAILS if negated and kind is Kind.PASSES else Kind.PASSES, tuple(operands[:1]))
    types: list[str] = []
    message = ""
    calls: list[Tokens] = []
    for part in filter(None, operands):
        value = part[2:] if len(part) > 2 and part[1] == "=" else part
        fields = dict(re.findall(r'(name|message) : ("[^"]*")', " ".join(value))) if value[0] == "{" else {}
        is_call = value[-1] == ")" and part is value and value[0] != "("
        is_value = plain.startswith(("error", "equalerror", "matcherror")) and _ERROR_NAME.match(value[-1])
        if fields:
            types, message = [fields.get("name", "Error").strip('"')], fields.get("message", "")
        elif value[0][0] == '"':
            message = "" if value[0] in ('""', '".*"', '"/.*/"') else value[0]
        elif _CODE.intersection(value) or is_call or is_value or types or len(value) > 11 or kind is Kind.FAILS:
            calls.append(part)
        else:
            types = [token for token in value if token[0].isalpha() and token not in _NO_TYPE]
    known = [] if _BROAD.intersection(types) else sorted(types)
    exact = kind is Kind.RAISES and (known or message)
    return Claim(Kind.RAISES if exact else Kind.FAILS, tuple(calls), " ".join([*known, message]).strip())


def _tolerance(plain: str, operands: Sequence[Tokens]) -> float:
    """How far off a value may be; digits count the other way round."""
    given = {part[0]: number_in(part[2:]) for part in operands if len(part) > 2 and part[1] == "="}
    amount = next((amount for name in _TOLERANCES if (amount := given.get(name))), None)
    digits = given.get("places") or given.get("decimal")
    third = number_in(operands[2]) if len(operands) > 2 else None
    if digits or (amount is None and re.search(r"closeto$|almostequal", plain) and (third is None or third >= 1)):
        return float(10 ** -(digits or third or (2 if plain == "tobecloseto" else 7)))
    return amount or third or 1e-6


def number_in(tokens: Tokens) -> float | None:
    """The value of a number literal, also with a sign or a call such as `within(0.1)` around it."""
    numbers = [token for token in tokens if re.fullmatch(r"\d[\d_]*(\.\d+)?([eE][+-]?\d+)?[fdFDL]?", token)]
    if len(numbers) != 1 or any(token[0] == '"' for token in tokens):
        return None
    value = float(numbers[0].rstrip("fdFDL").replace("_", ""))
    return -value if tokens[0] == "-" else value


def condition(tokens: Tokens, negated: bool = False) -> list[Claim]:
    """The claims of a condition that must hold (negated: must not)."""
    tokens = [_SAME.get(token, token) for token in unwrapped(tokens[:_LONGEST])]
    for joiners, joined in ((("or", "||"), negated), (("and", "&&"), not negated)):
        parts = split(tokens, *joiners)
        if len(parts) > 1 and joined:
            return [claim for part in parts for claim in condition(part, negated)]
        if len(parts) > 1:
            always = any(unwrapped(part) in (["false"] if negated else ["true"], ["1"]) for part in parts)
            return [Claim(Kind.TRIVIAL if always else Kind.ANY, (tokens,), "loosened" if always else "")]
    if tokens[:1] in (["not"], ["!"]):
        return condition(tokens[1:], not negated)
    depth = 0
    for index, token in enumerate(tokens):
        depth += (token in "([{") - (token in ")]}")
        if depth == 0 and index and token in _NEGATED:
            before, after = tokens[index - 1] == "not", tokens[index + 1 : index + 2] == ["not"]
            operator = _NEGATED[token] if negated != (before or after) else token
            return _compared(tokens[: index - before], operator, tokens[index + 1 + after :])
    return [_predicate(tokens, negated)]


def _compared(left: Tokens, operator: str, right: Tokens) -> list[Claim]:
    left, right = ([_SAME.get(t, t) for t in unwrapped(side)] for side in (left, right))
    if kind := _OTHERS.get(operator.removeprefix("not ")):
        return [Claim(kind, (left, right), "not" if operator[0] == "n" else "")]
    if operator not in ("==", "!="):
        if number_in(left) is not None and number_in(right) is None:
            left, right, operator = right, left, _FLIPPED[operator]
        if {"abs", "Abs", "fabs"}.intersection(left) and operator[0] == "<":
            return [Claim(Kind.APPROX, (left,), tolerance=number_in(right) or 1e-6)]
        return [Claim(Kind.ORDER, (left, right), operator)]
    equal = operator == "=="
    for subject, value in ((left, right), (right, left)):
        if value == ["null"]:
            if subject and _ERROR_NAME.match(subject[-1]):
                return [Claim(Kind.PASSES if equal else Kind.FAILS, (subject,))]
            return [Claim(Kind.EQUAL if equal else Kind.EXISTS, (subject, value))]
        if value in (["true"], ["false"]):
            return condition(subject, (value == ["false"]) == equal)
        if value[:1] in (["pytest"], ["approx"]) and "(" in value:
            operands = split(value[value.index("(") + 1 : -1], ",")
            return [Claim(Kind.APPROX, (subject, operands[0]), tolerance=_tolerance("", operands))]
    is_wild = equal and _WILD.search(" ".join((*left, *right)))
    return [Claim(Kind.MEMBER if is_wild else Kind.EQUAL if equal else Kind.NOT_EQUAL, (left, right))]


def _predicate(tokens: list[str], negated: bool) -> Claim:
    """A condition that is one value or call."""
    last = len(tokens) - 1
    opener = min((first for first, end in partners(tokens).items() if end == last and tokens[first] == "("), default=0)
    name = tokens[opener - 1 - (tokens[opener - 1] == "!")].lower() if opener else ""
    receiver, operands = tokens[: max(opener - 2, 0)], split(tokens[opener + 1 : -1], ",")
    if name in ("is", "as") and len(operands) == 2:
        return Claim(Kind.PASSES if negated else Kind.RAISES, (operands[0],), "" if negated else " ".join(operands[1]))
    for names, kind, opposite in _PREDICATES if opener else ():
        if re.fullmatch(names, name):
            sides = operands if len(operands) > 1 else [side for side in (receiver, *operands) if side]
            tolerance = _tolerance(name, operands) if kind is Kind.APPROX else 0.0
            return Claim(opposite if negated else kind, tuple(sides), "not" * (negated and kind is opposite), tolerance)
    return Claim(Kind.BOOL, (tokens,), "false" if negated else "true")
