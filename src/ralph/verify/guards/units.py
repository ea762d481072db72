"""Units: functions, methods and test cases, and which new one continues which old one."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate

from ralph.verify.guards.assertions import Assertion, all_literals
from ralph.verify.guards.changes import language_of
from ralph.verify.guards.claim_finder import assertions_in
from ralph.verify.guards.lexer import Token, is_word, partners, token_of, words

_COMMON = words(
    "self this t assert expect it test func function def return const let var if else for in is not and or with as fn new "
    "public void true false True False None null nil assertEquals assertEqual assert_eq equal toBe toEqual pass"
)
_NAMESAKE, _TWIN = 0.25, 0.6
"""How much alike units must be to be the same: with the same name, and with another."""


@dataclass(frozen=True, eq=False)
class Unit:
    """One function or test case; with an empty name, everything outside of them."""

    path: str
    scope: str
    name: str
    tokens: tuple[Token, ...]
    body: int
    """Where the body begins among the tokens; before it stand decorators and the signature."""
    is_test: bool = False
    collected: bool = False
    in_tests: bool = False
    """Test code in the wide sense: cases, their helpers and fixtures."""
    constants: Mapping[str, str] = field(default_factory=dict)
    """The numbers that the file gives names to."""

    @property
    def line(self) -> int:
        return self.tokens[0].line if self.tokens else 1

    @property
    def language(self) -> str:
        return language_of(self.path) or ""

    @cached_property
    def said(self) -> tuple[Token, ...]:
        """The tokens with named numbers written out."""
        named = self.constants
        return tuple(token_of(named.get(t, t), t.line) for t in self.tokens) if named else self.tokens

    @cached_property
    def text(self) -> str:
        """The tokens with one blank between them, for patterns."""
        return " ".join(self.tokens)

    @cached_property
    def head_text(self) -> str:
        return " ".join(self.tokens[: self.body])

    @cached_property
    def body_text(self) -> str:
        return " ".join(self.tokens[self.body :])

    @cached_property
    def pairs(self) -> dict[int, int]:
        return partners(self.tokens)

    @cached_property
    def words(self) -> Counter[str]:
        """What it is about: its names and literals, without the common words."""
        return Counter(t for t in self.tokens[self.body :] if (t[0].isalnum() or t[0] in '"_') and t not in _COMMON)

    @cached_property
    def assertions(self) -> tuple[Assertion, ...]:
        return assertions_in(self.said, self.pairs, self.body)

    @cached_property
    def literals(self) -> frozenset[str]:
        return all_literals(self.text)

    @cached_property
    def calls(self) -> frozenset[str]:
        follows = zip(self.tokens[self.body :], self.tokens[self.body + 1 :], strict=False)
        return frozenset(word for word, after in follows if after in ("(", "!") and is_word(word))

    @cached_property
    def starts(self) -> list[int]:
        """Where each token begins in `text`."""
        return [0, *accumulate(len(token) + 1 for token in self.tokens)]

    def token_at(self, position: int) -> Token:
        """The token at a place in `text`."""
        return self.tokens[min(bisect_right(self.starts, position), len(self.tokens)) - 1]

    def line_of(self, position: int) -> int:
        """The line of a place in `text`."""
        return self.token_at(position).line if self.tokens else 1


@dataclass(frozen=True)
class Source:
    """One file as units; `outside` holds what no unit has."""

    path: str
    units: tuple[Unit, ...]
    outside: Unit
    comments: tuple[tuple[int, str], ...]
    text: str

    @property
    def everything(self) -> tuple[Unit, ...]:
        return (*self.units, self.outside)


def likeness(one: Counter[str], other: Counter[str]) -> float:
    """How much two units are about the same, from 0 to 1."""
    union = sum((one | other).values())
    return sum((one & other).values()) / union if union else 0.0


def matched(old: Sequence[Unit], new: Sequence[Unit], renames: Mapping[str, str]) -> Iterator[tuple[Unit, Unit | None]]:
    """Every old unit with the new one that continues it: by place and name, else a fresh one by name or likeness."""
    places: dict[tuple[str, str, str], list[Unit]] = {}
    for unit in new:
        places.setdefault((unit.path, unit.scope, unit.name), []).append(unit)
    taken = {(renames.get(unit.path, unit.path), unit.scope, unit.name) for unit in old}
    holders: dict[str, list[Unit]] = {}
    for unit in (unit for place, units in places.items() if place not in taken for unit in units):
        for word in {*unit.words, f"name {unit.name}"}:
            holders.setdefault(word, []).append(unit)
    seen: Counter[tuple[str, str, str]] = Counter()
    for unit in old:
        place = (renames.get(unit.path, unit.path), unit.scope, unit.name)
        here = places.get(place, [])
        same = next((candidate for candidate in here if candidate.tokens == unit.tokens), None)
        yield (unit, same or (here[min(seen[place], len(here) - 1)] if here else _alike(unit, holders)))
        seen[place] += 1


def _alike(unit: Unit, holders: Mapping[str, list[Unit]]) -> Unit | None:
    shared = (holder for word in unit.words if len(holder := holders.get(word, [])) <= 40)
    near = Counter(candidate for holder in shared for candidate in holder)
    candidates = [*holders.get(f"name {unit.name}", [])[:20], *(candidate for candidate, _ in near.most_common(8))]
    best, best_score = None, 0.0
    for candidate in candidates:
        score = likeness(unit.words, candidate.words)
        is_namesake = candidate.name == unit.name
        if score >= (_NAMESAKE if is_namesake else _TWIN) and score + is_namesake > best_score:
            best, best_score = candidate, score + is_namesake
    return best
