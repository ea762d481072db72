"""Claims: what an assertion says, in one vocabulary for all languages and libraries, and how strong it is."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from ralph.core.text import regex
from ralph.verify.guards.tokens import Tokens, match_brackets, split, strip_brackets, word_set


class ClaimKind(StrEnum):
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
    ClaimKind.EQUAL: 9, ClaimKind.PATTERN: 8, ClaimKind.APPROX: 8, ClaimKind.RAISES: 8, ClaimKind.CALLED_WITH: 7, ClaimKind.CUSTOM: 6, ClaimKind.MEMBER: 5,
    ClaimKind.ORDER: 5, ClaimKind.TYPE: 3, ClaimKind.BOOL: 3, ClaimKind.NOT_EQUAL: 3, ClaimKind.FAILS: 3, ClaimKind.ANY: 2, ClaimKind.PASSES: 2,
    ClaimKind.CALLED: 3, ClaimKind.EXISTS: 1, ClaimKind.TRIVIAL: 0,
}  # fmt: skip

_NAMES: tuple[tuple[ClaimKind, str], ...] = (
    (ClaimKind.APPROX, r"\w*(almostequal|allclose)\w*|indelta\w*|inepsilon\w*|(tobe|is)?closeto|approx\w*|relativeeq|absdiffeq"),
    (ClaimKind.NOT_EQUAL, r"\w*not(deep|strict|deepstrict)?(equals?|eq|same|be)(to)?|ne|isnot|arenotequal"),
    (ClaimKind.CALLED_WITH, r"(tohavebeen)?(last|nth)?(called|awaited)(once)?(with|exactly)|anycall|hascalls"),
    (ClaimKind.ORDER, r"(is|tobe)?(greater|less)(than)?(or)?(equal)?(to)?|above|below|(at)?least|(at)?most|(is)?(positive|negative)|"
                 r"isbetween|within"),
    (ClaimKind.EQUAL, r"\w*equals?(to)?|eq|eql|eqs|be|is|same(instance)?|tobe|issameas|tohave(length|count|text|value)|lengthof|hassize|"
                 r"len|length|containsexactly\w*|containsonly|elementsmatch|jsoneq|\w*snapshot|shouldbe|notcalled|hasvalue|"
                 r"(tohavebeen)?calledtimes|isequalcomparing\w*|hastostring|consistof|havelen"),
    (ClaimKind.MEMBER, r"(to)?(contains?|includes?)\w*|not(contains?|in)|in|regexp?|notregex|(to|does)?match(es|object|regexp?)?|"
                  r"(to)?(have)?property|haskey|hasentry|startswith|endswith|\w*subset|oneof|keys|isin|tohave(class|attribute)"),
    (ClaimKind.RAISES, r"(raises|throws?|tothrow|panics)\w*|error(is|as|contains)|equalerror|matcherror|warns"),
    (ClaimKind.PASSES, r"noerror|doesnot(throw|raise|reject)\w*|notpanics|succeed"),
    (ClaimKind.FAILS, r"error|haveoccurred|iserr|thatthrownby"),
    (ClaimKind.EXISTS, r"(is)?not(none|null|nil|empty|undefined|zero|blank)(value)?|tobedefined|exists?|ispresent|isdefined|isok|issome"),
    (ClaimKind.BOOL, r"(is|tobe|be)?(true|false|truthy|falsy|none|null|nil|undefined|empty|nan|zero)|ok|condition|notok|that|"
                r"tobeinthedocument|tobevisible"),
    (ClaimKind.TYPE, r"(not)?(is(exactly)?)?instance(of)?|tobeinstanceof|typeof|an?|istype|implements|isa"),
    (ClaimKind.CALLED, r"(tohavebeen)?(called|awaited)(once)?"),
)  # fmt: skip
_TABLE = [(kind, regex(f"(?:{names})$")) for kind, names in _NAMES]
_FALSE = regex(r"(is|tobe|be)?(false|falsy)$|notok$")
_NOTHING = regex(r"(is|tobe|be)?(none|null|nil|undefined)$")
_STATE = regex(r"(empty|nan|zero|thedocument|visible)$")
_BROAD = word_set("Exception BaseException Throwable RuntimeException Error")
_NO_TYPE = word_set("class new errors expected_exception")
_CODE = word_set("=> -> { | lambda ;")
_NEGATED = {"==": "!=", "<": ">=", ">": "<=", "in": "not in", "instanceof": "not instanceof"}
_NEGATED |= {negated: operator for operator, negated in _NEGATED.items()}
_OTHERS = {"in": ClaimKind.MEMBER, "instanceof": ClaimKind.TYPE}
_FLIPPED = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}
_SAME = {"===": "==", "!==": "!=", "is": "==", "None": "null", "nil": "null", "undefined": "null", "True": "true", "False": "false"}  # fmt: skip
_ERROR_NAME = regex(r"e$|err\d*$|\w*[eE]rr\d*$|error$")
_WILD = regex(r"expect \. (any|anything|objectContaining|arrayContaining|stringContaining|stringMatching)\b|\bANY\b|\bany \( \)")  # fmt: skip
_PREDICATES: tuple[tuple[str, ClaimKind, ClaimKind], ...] = (
    (r"equals|isEqual|(deep_?)?equal|eq|is_deeply", ClaimKind.EQUAL, ClaimKind.NOT_EQUAL),
    (r"isinstance|issubclass|is_instance", ClaimKind.TYPE, ClaimKind.TYPE),
    (r"isclose|allclose|approx(_eq)?", ClaimKind.APPROX, ClaimKind.APPROX),
    (r"matches", ClaimKind.PATTERN, ClaimKind.PATTERN),
    (r"is_err", ClaimKind.FAILS, ClaimKind.EXISTS),
    (r"is_ok|is_some|ispresent", ClaimKind.EXISTS, ClaimKind.EQUAL),
    (r"is_none", ClaimKind.EQUAL, ClaimKind.EXISTS),
    (r"(contains|includes|has|starts_?with|ends_?with|match|search|test|any)\w*", ClaimKind.MEMBER, ClaimKind.MEMBER),
)
"""What functions ask that answer yes or no, and what is claimed when they must answer no."""
_TOLERANCES = ("delta", "atol", "rtol", "abs", "rel", "rel_tol", "abs_tol", "epsilon")
_LONGEST = 300
"""Conditions of more tokens are not taken apart."""


@dataclass(frozen=True)
class Claim:
    """One thing that is claimed."""

    kind: ClaimKind
    sides: tuple[Tokens, ...]
    detail: str = ""
    """The error expected, the direction of a bound, the truth value."""
    tolerance: float = 0.0


def _simplify_name(name: str) -> str:
    return re.sub(r"^(debug|prop)?assert", "", name.lower().replace("_", ""))


def find_kind(name: str) -> ClaimKind | None:
    """What an assertion's name says it claims."""
    plain = _simplify_name(name)
    return next((kind for kind, names in _TABLE if names.match(plain)), None)


def read_named(name: str, operands: Sequence[Tokens], negated: bool = False) -> list[Claim]:
    """The claim of an assertion that goes by a name: `assertEqual(a, b)`, `expect(a).toBe(b)`."""
    plain, kind = _simplify_name(name), find_kind(name) or ClaimKind.CUSTOM
    first = operands[0] if operands else ()
    if kind is ClaimKind.EXISTS:
        return _read_comparison(first, "==" if negated else "!=", ("null",))
    if kind is ClaimKind.BOOL:
        return _read_truth(plain, first, negated)
    if kind in (ClaimKind.RAISES, ClaimKind.FAILS, ClaimKind.PASSES):
        return [_read_raising(kind, plain, operands, negated)]
    is_of_two = len(operands) > 1 and not plain.startswith(("contains", "consistof"))
    if kind in (ClaimKind.EQUAL, ClaimKind.NOT_EQUAL) and is_of_two:
        return _read_equality(plain, operands, is_equal=(kind is ClaimKind.EQUAL) != negated)
    if kind is ClaimKind.ORDER:
        operator = ">" if re.search(r"greater|above|least|positive", plain) else "<"
        return [Claim(kind, tuple(operands[:2]), _NEGATED[operator] if negated else operator)]
    if kind is ClaimKind.CUSTOM:
        return [Claim(kind, tuple(operands), name)]
    tolerance = _read_tolerance(plain, operands) if kind is ClaimKind.APPROX else 0.0
    return [Claim(kind, tuple(operands), "not" if negated else "", tolerance)]


def _read_truth(plain: str, subject: Tokens, negated: bool) -> list[Claim]:
    """`assertTrue(a)`, `assertIsNone(a)`, `expect(a).toBeEmpty()`."""
    if _NOTHING.match(plain):
        return _read_comparison(subject, "!=" if negated else "==", ("null",))
    if not _STATE.search(plain):
        return read_condition(subject, negated != bool(_FALSE.match(plain)))
    return [Claim(ClaimKind.BOOL, (subject,), "false" if negated else "true")]


def _read_equality(plain: str, operands: Sequence[Tokens], *, is_equal: bool) -> list[Claim]:
    """`assertEqual(a, b)`; a number as the third operand is a tolerance."""
    tolerance = read_number(operands[2]) if len(operands) > 2 else None
    if tolerance is not None:
        return [Claim(ClaimKind.APPROX, tuple(operands[:2]), tolerance=tolerance)]
    subject = [*operands[0], ".", "length"] if re.search(r"len|size|count", plain) else operands[0]
    return _read_comparison(subject, "==" if is_equal else "!=", operands[1])


def _read_raising(kind: ClaimKind, plain: str, operands: Sequence[Tokens], negated: bool) -> Claim:
    """`raises(Type, match="...")`, `toThrow(Type)`, `assertThrows(Type.class, () -> ...)`, `ErrorIs(err, Type)`."""
    if kind is ClaimKind.PASSES:
        return Claim(ClaimKind.FAILS if negated else ClaimKind.PASSES, tuple(operands[:1]))
    if negated:
        return Claim(ClaimKind.PASSES, tuple(operands[:1]))
    types: list[str] = []
    message = ""
    calls: list[Tokens] = []
    names_error = plain.startswith(("error", "equalerror", "matcherror"))
    for part in filter(None, operands):
        value = part[2:] if len(part) > 2 and part[1] == "=" else part
        if fields := _read_error_fields(value):
            types, message = [fields.get("name", "Error").strip('"')], fields.get("message", "")
        elif value[0][0] == '"':
            message = "" if value[0] in _ANY_MESSAGE else value[0]
        elif types or kind is ClaimKind.FAILS or _is_code(part, value, names_error=names_error):
            calls.append(part)
        else:
            types = [token for token in value if token[0].isalpha() and token not in _NO_TYPE]
    known = [] if _BROAD.intersection(types) else sorted(types)
    is_exact = kind is ClaimKind.RAISES and (known or message)
    return Claim(ClaimKind.RAISES if is_exact else ClaimKind.FAILS, tuple(calls), " ".join([*known, message]).strip())


_ANY_MESSAGE = ('""', '".*"', '"/.*/"')


def _read_error_fields(value: Tokens) -> dict[str, str]:
    """The name and the message of an error that is described as an object: `{ name: "TypeError", message: "..." }`."""
    if value[0] != "{":
        return {}
    return dict(re.findall(r'(name|message) : ("[^"]*")', " ".join(value)))


def _is_code(part: Tokens, value: Tokens, *, names_error: bool) -> bool:
    """Whether an operand is what is tried, and not the error that is expected."""
    is_call = value[-1] == ")" and part is value and value[0] != "("
    is_error_value = names_error and _ERROR_NAME.match(value[-1])
    return bool(_CODE.intersection(value) or is_call or is_error_value or len(value) > 11)


def _read_tolerance(plain: str, operands: Sequence[Tokens]) -> float:
    """How far off a value may be; digits count the other way round."""
    given = {part[0]: read_number(part[2:]) for part in operands if len(part) > 2 and part[1] == "="}
    amount = next((amount for name in _TOLERANCES if (amount := given.get(name))), None)
    digits = given.get("places") or given.get("decimal")
    third = read_number(operands[2]) if len(operands) > 2 else None
    if digits or (amount is None and re.search(r"closeto$|almostequal", plain) and (third is None or third >= 1)):
        return float(10 ** -(digits or third or (2 if plain == "tobecloseto" else 7)))
    return amount or third or 1e-6


def read_number(tokens: Tokens) -> float | None:
    """The value of a number literal, also with a sign or a call such as `within(0.1)` around it."""
    numbers = [token for token in tokens if re.fullmatch(r"\d[\d_]*(\.\d+)?([eE][+-]?\d+)?[fdFDL]?", token)]
    if len(numbers) != 1 or any(token[0] == '"' for token in tokens):
        return None
    value = float(numbers[0].rstrip("fdFDL").replace("_", ""))
    return -value if tokens[0] == "-" else value


def read_condition(tokens: Tokens, negated: bool = False) -> list[Claim]:
    """The claims of a condition that must hold (negated: must not)."""
    tokens = [_SAME.get(token, token) for token in strip_brackets(tokens[:_LONGEST])]
    for joiners, joined in ((("or", "||"), negated), (("and", "&&"), not negated)):
        parts = split(tokens, *joiners)
        if len(parts) > 1 and joined:
            return [claim for part in parts for claim in read_condition(part, negated)]
        if len(parts) > 1:
            always = any(strip_brackets(part) in (["false"] if negated else ["true"], ["1"]) for part in parts)
            return [Claim(ClaimKind.TRIVIAL if always else ClaimKind.ANY, (tokens,), "loosened" if always else "")]
    if tokens[:1] in (["not"], ["!"]):
        return read_condition(tokens[1:], not negated)
    depth = 0
    for index, token in enumerate(tokens):
        depth += (token in "([{") - (token in ")]}")
        if depth == 0 and index and token in _NEGATED:
            before, after = tokens[index - 1] == "not", tokens[index + 1 : index + 2] == ["not"]
            operator = _NEGATED[token] if negated != (before or after) else token
            return _read_comparison(tokens[: index - before], operator, tokens[index + 1 + after :])
    return [_read_predicate(tokens, negated)]


def _read_comparison(left: Tokens, operator: str, right: Tokens) -> list[Claim]:
    left, right = ([_SAME.get(t, t) for t in strip_brackets(side)] for side in (left, right))
    if kind := _OTHERS.get(operator.removeprefix("not ")):
        return [Claim(kind, (left, right), "not" if operator[0] == "n" else "")]
    if operator not in ("==", "!="):
        return [_read_order(left, operator, right)]
    is_equal = operator == "=="
    for subject, value in ((left, right), (right, left)):
        if (claims := _read_special_value(subject, value, is_equal=is_equal)) is not None:
            return claims
    if not is_equal:
        return [Claim(ClaimKind.NOT_EQUAL, (left, right))]
    is_wild = _WILD.search(" ".join((*left, *right)))
    return [Claim(ClaimKind.MEMBER if is_wild else ClaimKind.EQUAL, (left, right))]


def _read_order(left: Tokens, operator: str, right: Tokens) -> Claim:
    """`a < 3`, also written `3 > a`; `abs(a - b) < 0.1` is an approximate equality."""
    if read_number(left) is not None and read_number(right) is None:
        left, right, operator = right, left, _FLIPPED[operator]
    if {"abs", "Abs", "fabs"}.intersection(left) and operator[0] == "<":
        return Claim(ClaimKind.APPROX, (left,), tolerance=read_number(right) or 1e-6)
    return Claim(ClaimKind.ORDER, (left, right), operator)


def _read_special_value(subject: Tokens, value: Tokens, *, is_equal: bool) -> list[Claim] | None:
    """What a comparison with nothing, a truth value or `approx(...)` claims; None for any other value."""
    if value == ["null"]:
        if subject and _ERROR_NAME.match(subject[-1]):
            return [Claim(ClaimKind.PASSES if is_equal else ClaimKind.FAILS, (subject,))]
        return [Claim(ClaimKind.EQUAL if is_equal else ClaimKind.EXISTS, (subject, value))]
    if value in (["true"], ["false"]):
        return read_condition(subject, (value == ["false"]) == is_equal)
    if value[:1] in (["pytest"], ["approx"]) and "(" in value:
        operands = split(value[value.index("(") + 1 : -1], ",")
        return [Claim(ClaimKind.APPROX, (subject, operands[0]), tolerance=_read_tolerance("", operands))]
    return None


def _read_predicate(tokens: list[str], negated: bool) -> Claim:
    """A condition that is one value or call."""
    last = len(tokens) - 1
    opener = min(
        (first for first, end in match_brackets(tokens).items() if end == last and tokens[first] == "("), default=0
    )
    name = tokens[opener - 1 - (tokens[opener - 1] == "!")].lower() if opener else ""
    receiver, operands = tokens[: max(opener - 2, 0)], split(tokens[opener + 1 : -1], ",")
    if name in ("is", "as") and len(operands) == 2:
        return Claim(
            ClaimKind.PASSES if negated else ClaimKind.RAISES, (operands[0],), "" if negated else " ".join(operands[1])
        )
    for names, kind, opposite in _PREDICATES if opener else ():
        if re.fullmatch(names, name):
            sides = operands if len(operands) > 1 else [side for side in (receiver, *operands) if side]
            tolerance = _read_tolerance(name, operands) if kind is ClaimKind.APPROX else 0.0
            return Claim(opposite if negated else kind, tuple(sides), "not" * (negated and kind is opposite), tolerance)
    return Claim(ClaimKind.BOOL, (tokens,), "false" if negated else "true")
