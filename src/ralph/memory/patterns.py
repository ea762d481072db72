"""Patterns: what came up more than once, what worked and what did harm, distilled from loops that have ended."""

import re
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ralph.core.codec import from_plain
from ralph.core.errors import StateError
from ralph.core.fingerprints import normalised
from ralph.documents.reflection import HOME, SCHEMA, Reflection, iso
from ralph.memory import yaml_store
from ralph.memory.reflections import Reflections

MOST = 200
"""Patterns in a file; those that were not seen for longest give way."""
MOST_SOURCES = 20
MOST_TEXT = 600
PER_LOOP = 200
SCANNED = 300
"""Reflections of other loops among which a failure is looked for."""

ADVICE = {"error": "fix", "success": "approach", "anti": "alternative"}
"""The kinds of patterns, and the key under which each file gives its advice."""


@dataclass(frozen=True)
class Pattern:
    """One thing that was seen, and what to do about it."""

    kind: str
    signature: str
    """What identifies it: the failure, the task or the action, without what differs from time to time."""
    text: str = ""
    """The same as it was said the last time."""
    advice: str = ""
    because: str = ""
    """An anti-pattern's harm."""
    task_type: str = ""
    iterations: int = 0
    """How many a success took."""
    source_loops: tuple[str, ...] = ()
    occurrences: int = 1
    last_seen: str = ""
    id: str = ""


def read_patterns(root: Path, kind: str) -> list[Pattern]:
    """The patterns of a kind, the last seen first; a StateError where the file is broken."""
    path = _path(root, kind)
    items = yaml_store.read(path).get("patterns") or []
    if not isinstance(items, list):
        raise StateError("expected a list", where=f"{path}: patterns")
    return [_entry(kind, item, f"{path}: patterns[{number}]") for number, item in enumerate(items)]


def learn(root: Path, loop: str) -> list[Pattern]:
    """Take into the pattern files what a loop taught that has ended; learning from it again changes nothing."""
    reflections = Reflections(root)
    mine = reflections.of(loop, PER_LOOP)
    if not mine:
        return []
    elsewhere = _failures_elsewhere(reflections, loop) if any(map(_failure, mine)) else {}
    found = [*_errors(mine, elsewhere), *_successes(mine), *_harms(mine)]
    with yaml_store.alone(root):
        for kind in {pattern.kind for pattern in found}:
            path = _path(root, kind)
            try:
                known = read_patterns(root, kind)
            except StateError:
                yaml_store.set_aside(path)
                known = []
            merged = _merged(known, [pattern for pattern in found if pattern.kind == kind], loop, elsewhere)
            yaml_store.write(
                path, {"schema": SCHEMA, "updated": iso(time.time()), "patterns": [_plain(one) for one in merged]}
            )
    return found


def signature(text: str) -> str:
    """The part of a text that stays the same when the same thing happens again."""
    return " ".join(normalised(text[:4000]).split())[:300]


def _failures_elsewhere(reflections: Reflections, loop: str) -> Mapping[str, list[str]]:
    """The failures of other loops, and the loops in which they came up, once for each time."""
    seen: dict[str, list[str]] = defaultdict(list)
    for found in reflections.newest(SCANNED, PER_LOOP):
        for one in found:
            if one.loop != loop and (failure := _failure(one)):
                seen[failure].append(one.loop)
    return seen


def _failure(one: Reflection) -> str:
    return "" if one.succeeded else signature(_said(one))


def _said(one: Reflection) -> str:
    reasons = "; ".join(f"{check.title}: {check.reason}" for check in one.checks if check.status != "passed")
    return one.what_failed or reasons


def _errors(mine: Sequence[Reflection], elsewhere: Mapping[str, list[str]]) -> Iterator[Pattern]:
    """Failures that came up again, with what ended them where the loop got through."""
    times: dict[str, list[int]] = defaultdict(list)
    for position, one in enumerate(mine):
        if failure := _failure(one):
            times[failure].append(position)
    for failure, positions in times.items():
        if len(positions) > 1 or elsewhere.get(failure):
            fix = mine[positions[-1] + 1].action if mine[-1].succeeded else ""
            last = mine[positions[-1]]
            yield replace(_seen("error", _said(last), fix, last), occurrences=len(positions))


def _successes(mine: Sequence[Reflection]) -> Iterator[Pattern]:
    """What the passing iteration did, and how many it took."""
    if mine[-1].succeeded:
        yield replace(_seen("success", mine[-1].task, mine[-1].action, mine[-1]), iterations=mine[-1].iteration)


def _harms(mine: Sequence[Reflection]) -> Iterator[Pattern]:
    """Actions after which the work was worth less, or that the guards caught."""
    found: dict[str, Pattern] = {}
    for one in mine:
        fell = one.reward_before is not None and one.reward < one.reward_before
        if not (one.gaming or fell) or not (action := signature(one.action)):
            continue
        harm = " ".join(one.gaming) or f"the reward fell from {one.reward_before:.2f} to {one.reward:.2f}"
        instead = mine[-1].action if mine[-1].succeeded else one.try_next
        times = found[action].occurrences + 1 if action in found else 1
        found[action] = replace(_seen("anti", one.action, instead, one), because=harm[:MOST_TEXT], occurrences=times)
    yield from found.values()


def _seen(kind: str, text: str, advice: str, seen: Reflection) -> Pattern:
    return Pattern(
        kind,
        signature(text),
        " ".join(text.split())[:300],
        advice[:MOST_TEXT],
        task_type=seen.task_type,
        source_loops=(seen.loop,),
        last_seen=iso(seen.at),
    )


def _merged(
    known: Sequence[Pattern], found: Sequence[Pattern], loop: str, elsewhere: Mapping[str, list[str]]
) -> list[Pattern]:
    """The known patterns with the found ones: the same signature is the same pattern."""
    patterns = {_same(pattern): pattern for pattern in known}
    number = max((int(match[1]) for p in known if (match := re.search(r"-([0-9]{1,9})$", p.id))), default=0)
    for new in found:
        old = patterns.get(_same(new))
        if old is None:
            number += 1
            earlier = elsewhere.get(new.signature, []) if new.kind == "error" else []
            slug = re.sub(r"[^a-z0-9]+", "-", new.signature.lower())[:30].strip("-")
            old = replace(
                new,
                id=f"pat-{new.kind}-{slug or 'x'}-{number:03d}",
                source_loops=tuple(sorted(set(earlier))),
                occurrences=len(earlier),
            )
        again = loop in old.source_loops
        patterns[_same(new)] = replace(
            new,
            id=old.id,
            advice=new.advice or old.advice,
            source_loops=old.source_loops if again else (*old.source_loops, loop)[-MOST_SOURCES:],
            occurrences=max(old.occurrences, new.occurrences) if again else old.occurrences + new.occurrences,
            last_seen=max(old.last_seen, new.last_seen),
        )
    return sorted(patterns.values(), key=lambda pattern: pattern.last_seen, reverse=True)[:MOST]


def _same(pattern: Pattern) -> tuple[str, str]:
    return (pattern.task_type if pattern.kind == "success" else "", pattern.signature.casefold())


def _plain(pattern: Pattern) -> dict[str, object]:
    """As the file has it: the id first, and nothing that this kind has no use for."""
    optional = {"because": pattern.because, "task_type": pattern.task_type, "iterations": pattern.iterations}
    return {
        "id": pattern.id,
        "signature": pattern.signature,
        "text": pattern.text,
        ADVICE[pattern.kind]: pattern.advice,
        **{key: value for key, value in optional.items() if value},
        "source_loops": pattern.source_loops,
        "occurrences": pattern.occurrences,
        "last_seen": pattern.last_seen,
    }


def _entry(kind: str, item: object, where: str) -> Pattern:
    if not isinstance(item, dict):
        raise StateError("expected an entry with `signature:`", where=where)
    return from_plain(Pattern, {**item, "kind": kind, "advice": item.get(ADVICE[kind], "")}, where)


def _path(root: Path, kind: str) -> Path:
    return root / HOME / "patterns" / f"{kind}-patterns.yaml"
