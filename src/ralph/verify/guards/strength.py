"""Whether one claim is as strong as another."""

import re

from ralph.verify.guards.assertions import Assertion, is_literal
from ralph.verify.guards.claims import Kind, number_in

_CLOSE_ENOUGH, _FINE = 0.01, 1e-5
"""A tolerance that may replace equality, and one below which libraries only differ in their defaults."""
_TIME = re.compile(r"(?i)time|elapsed|duration|latency|seconds|\bms\b|perf|clock|\bnow\b|deadline")
_MEASURE = re.compile(r"^(?:len|type|typeof|set|count|size) \( |^Object \. keys \( | \. (?:length|size|count|len)(?: \( \))?$")  # fmt: skip
_NOTHING = re.compile(r"(?i)is_?(empty|none|null|absent)")
_EMPTY = frozenset(("[ ]", "{ }", '""', "0", "( )", "null"))


def as_strong(claim: Assertion, now: Assertion) -> bool:
    """Whether the second would fail where the first would, as far as their kinds tell."""
    kinds = {claim.kind, now.kind}
    if kinds == {Kind.EQUAL} and is_measure(now) and not is_measure(claim) and same_subject(now, claim, deep=True):
        return False
    if now.doubt and not claim.doubt:
        return False
    if kinds == {Kind.APPROX}:
        return now.tolerance <= max(claim.tolerance * 2, _FINE)
    if kinds == {Kind.RAISES}:
        return not claim.errors - now.errors or now.is_variable or all(e.strip('"') in now.text for e in claim.errors)
    if kinds == {Kind.BOOL}:
        return claim.detail == now.detail
    if kinds == {Kind.ORDER}:
        return not bound_eased(claim, now)
    if now.rank >= claim.rank or claim.kind is Kind.CUSTOM or kinds == {Kind.EQUAL, Kind.PATTERN}:
        return True
    if now.kind is Kind.APPROX:
        return now.tolerance <= _CLOSE_ENOUGH
    if now.kind in (Kind.RAISES, Kind.CUSTOM) and claim.literals and claim.literals <= now.literals:
        return True
    if now.kind is Kind.CALLED and "once" in now.text and re.search(r"call_count|called", claim.text):
        return claim.kind is Kind.EQUAL
    was_nothing = claim.kind is Kind.EQUAL and bool(_EMPTY & set(claim.sides))
    is_nothing = now.kind is Kind.BOOL and (now.detail == "false" or bool(_NOTHING.search(now.text)))
    return was_nothing and is_nothing


def bound_eased(claim: Assertion, now: Assertion) -> bool:
    """Whether a bound was moved so that more fits; bounds of time depend on the machine."""
    if {claim.kind, now.kind} != {Kind.ORDER} or len(claim.sides) < 2 or len(now.sides) < 2 or _TIME.search(claim.text):
        return False
    if not claim.detail or claim.detail[0] != now.detail[:1]:
        return False
    was, bound = number_in(claim.sides[-1].split()), number_in(now.sides[-1].split())
    return was is not None and bound is not None and (bound < was if claim.detail[0] == ">" else bound > was)


def is_measure(claim: Assertion) -> bool:
    """Whether it is about the size or the type of something, and not about the thing."""
    return any(map(_MEASURE.search, claim.sides))


def same_subject(claim: Assertion, other: Assertion, *, deep: bool = False) -> bool:
    """Whether the other is about what the claim is about, or more of it; deep: when measures are taken off."""
    subjects = [side for side in claim.sides if side and not is_literal(side)]
    if deep:
        subjects = [_MEASURE.sub("", side).removesuffix(" )") for side in subjects]
    return any(subject == side or f"{subject} " in f"{side} " for subject in subjects for side in other.sides)
