"""What loops leave for later ones beside their reflections: `patterns/*.yaml` and `index.yaml`.

A pattern is what came up more than once, what worked or what did harm. The index has one entry for each loop, newest first.
`LoopMemory` updates the index while a loop works, and learns patterns when the loop ends.
"""

import re
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from ralph.core.check_output import normalize_output, remove_directories
from ralph.core.codec import format_time, from_plain
from ralph.core.entries import Record
from ralph.core.errors import RalphError, StateError
from ralph.core.events import ChecksEnded, RunEnded, TurnEnded
from ralph.documents.reflection import HOME, SCHEMA, Reflection, lesson
from ralph.engine.ports import Observer
from ralph.memory.reflections import Reflections, lock_memory, read_yaml, set_aside, write_yaml

MAX_PATTERNS = 200
"""Most patterns in a file. Those that were not seen for longest are dropped."""
MAX_SOURCES = 20
MAX_TEXT = 600
PER_LOOP = 200
SCANNED = 300
"""How many reflections of other loops are searched for a failure."""

ADVICE = {"error": "fix", "success": "approach", "anti": "alternative"}
"""The kinds of patterns, and the key of the advice in each file."""


@dataclass(frozen=True)
class Pattern:
    """Something that was seen, and what to do about it."""

    kind: str
    signature: str
    """What identifies it: the failure, the task or the action, without numbers, times and paths."""
    text: str = ""
    """The same as it was last seen."""
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
    """The patterns of a kind, the last seen first; a StateError if the file is broken."""
    path = _patterns_path(root, kind)
    items = read_yaml(path).get("patterns") or []
    if not isinstance(items, list):
        raise StateError("expected a list", where=f"{path}: patterns")
    return [_read_pattern(kind, item, f"{path}: patterns[{number}]") for number, item in enumerate(items)]


def learn_patterns(root: Path, loop: str) -> list[Pattern]:
    """Add the patterns of a loop that has ended to the pattern files. A second call changes nothing."""
    reflections = Reflections(root)
    mine = reflections.of(loop, PER_LOOP)
    if not mine:
        return []
    elsewhere = _find_failures_elsewhere(reflections, loop) if any(map(_build_failure_signature, mine)) else {}
    found = [*_find_errors(mine, elsewhere), *_find_successes(mine), *_find_harms(mine)]
    with lock_memory(root):
        for kind in {pattern.kind for pattern in found}:
            path = _patterns_path(root, kind)
            try:
                known = read_patterns(root, kind)
            except StateError:
                set_aside(path)
                known = []
            merged = _merge_patterns(known, [pattern for pattern in found if pattern.kind == kind], loop, elsewhere)
            write_yaml(
                path,
                {"schema": SCHEMA, "updated": format_time(time.time()), "patterns": [_to_plain(one) for one in merged]},
            )
    return found


def make_signature(text: str) -> str:
    """The part of a text that is the same when the same failure or action is seen again."""
    return " ".join(remove_directories(normalize_output(text[:4000])).split())[:300]


def _find_failures_elsewhere(reflections: Reflections, loop: str) -> Mapping[str, list[str]]:
    """The failures of other loops, with the loop of each time."""
    seen: dict[str, list[str]] = defaultdict(list)
    for found in reflections.newest(SCANNED, PER_LOOP, exclude=loop):
        for one in found:
            if failure := _build_failure_signature(one):
                seen[failure].append(one.loop)
    return seen


def _build_failure_signature(one: Reflection) -> str:
    return "" if one.succeeded else make_signature(_describe_failure(one))


def _describe_failure(one: Reflection) -> str:
    reasons = "; ".join(f"{check.title}: {check.reason}" for check in one.checks if check.status != "passed")
    return one.what_failed or reasons


def _find_errors(mine: Sequence[Reflection], elsewhere: Mapping[str, list[str]]) -> Iterator[Pattern]:
    """Failures that repeated, with what fixed them if the loop succeeded."""
    times: dict[str, list[int]] = defaultdict(list)
    for position, one in enumerate(mine):
        if failure := _build_failure_signature(one):
            times[failure].append(position)
    for failure, positions in times.items():
        if len(positions) > 1 or elsewhere.get(failure):
            fix = mine[positions[-1] + 1].action if mine[-1].succeeded else ""
            last = mine[positions[-1]]
            yield replace(_make_pattern("error", _describe_failure(last), fix, last), occurrences=len(positions))


def _find_successes(mine: Sequence[Reflection]) -> Iterator[Pattern]:
    """The steps to a success: what each iteration did that improved the work, and the number of iterations."""
    last = mine[-1]
    if last.succeeded:
        steps = [one.action for one in mine[:-1] if one.is_improvement or (one.reward_before is None and one.reward)]
        way = "; then: ".join(dict.fromkeys(step.rstrip().removesuffix(".") for step in [*steps, last.action]))
        if len(way) > MAX_TEXT:
            # The last steps count most.
            way = f"...{way[len(way) - MAX_TEXT + 3 :]}"
        yield replace(_make_pattern("success", last.task, way, last), iterations=last.iteration)


def _find_harms(mine: Sequence[Reflection]) -> Iterator[Pattern]:
    """Actions that lowered the reward, or that the guards found."""
    found: dict[str, Pattern] = {}
    for one in mine:
        fell = one.reward_before is not None and one.reward < one.reward_before
        if not (one.gaming or fell) or not (action := make_signature(one.action)):
            continue
        harm = " ".join(one.gaming) or f"the reward fell from {one.reward_before:.2f} to {one.reward:.2f}"
        instead = mine[-1].action if mine[-1].succeeded else one.try_next
        times = found[action].occurrences + 1 if action in found else 1
        found[action] = replace(
            _make_pattern("anti", one.action, instead, one), because=harm[:MAX_TEXT], occurrences=times
        )
    yield from found.values()


def _make_pattern(kind: str, text: str, advice: str, seen: Reflection) -> Pattern:
    return Pattern(
        kind=kind,
        signature=make_signature(text),
        text=" ".join(text.split())[:300],
        advice=advice[:MAX_TEXT],
        task_type=seen.task_type,
        source_loops=(seen.loop,),
        last_seen=format_time(seen.at),
    )


def _merge_patterns(
    known: Sequence[Pattern], found: Sequence[Pattern], loop: str, elsewhere: Mapping[str, list[str]]
) -> list[Pattern]:
    """The known patterns with the found ones: the same signature is the same pattern."""
    patterns = {_identify_pattern(pattern): pattern for pattern in known}
    ids = (re.search(r"-([0-9]{1,9})$", pattern.id) for pattern in known)
    number = max((int(match[1]) for match in ids if match), default=0)
    for new in found:
        old = patterns.get(_identify_pattern(new))
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
        patterns[_identify_pattern(new)] = replace(
            new,
            id=old.id,
            advice=new.advice or old.advice,
            source_loops=old.source_loops if again else (*old.source_loops, loop)[-MAX_SOURCES:],
            occurrences=max(old.occurrences, new.occurrences) if again else old.occurrences + new.occurrences,
            last_seen=max(old.last_seen, new.last_seen),
        )
    return sorted(patterns.values(), key=lambda pattern: pattern.last_seen, reverse=True)[:MAX_PATTERNS]


def _identify_pattern(pattern: Pattern) -> tuple[str, str]:
    return (pattern.task_type if pattern.kind == "success" else "", pattern.signature.casefold())


def _to_plain(pattern: Pattern) -> dict[str, object]:
    """A pattern as it is written: the id first, and no empty optional keys."""
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


def _read_pattern(kind: str, item: object, where: str) -> Pattern:
    if not isinstance(item, dict):
        raise StateError("expected an entry with `signature:`", where=where)
    return from_plain(Pattern, {**item, "kind": kind, "advice": item.get(ADVICE[kind], "")}, where)


def _patterns_path(root: Path, kind: str) -> Path:
    return root / HOME / "patterns" / f"{kind}-patterns.yaml"


MAX_LOOPS = 500
"""Entries of the index."""
EVERY = 1.0
"""Seconds between two updates of the index: a loop of quick turns does not spend its time on it."""


@dataclass(frozen=True)
class LoopEntry:
    """The summary of a loop."""

    loop_id: str
    task: str = ""
    task_type: str = ""
    outcome: str = ""
    iterations: int = 0
    reflections: int = 0
    last_lesson: str = ""
    updated: str = ""
    """UTC, as `format_time` writes it."""


def read_index(root: Path) -> list[LoopEntry]:
    """The entries, the newest first; a StateError if the file is broken."""
    path = _index_path(root)
    data = read_yaml(path)
    found = from_plain(tuple[LoopEntry, ...], data.get("loops") or [], f"{path}: loops")
    return list(found)


def update_entry(root: Path, entry: LoopEntry) -> None:
    """Update a loop's entry in the index. An index that is missing or broken is rebuilt from the reflections."""
    path = _index_path(root)
    with lock_memory(root):
        try:
            entries = read_index(root) if path.exists() else rebuild_entries(root)
        except StateError:
            set_aside(path)
            entries = rebuild_entries(root)
        others = [other for other in entries if other.loop_id != entry.loop_id]
        loops = [dict(vars(one)) for one in _sort_newest([entry, *others])]
        write_yaml(path, {"schema": SCHEMA, "updated": format_time(time.time()), "loops": loops})


def read_entry(root: Path, loop: str, outcome: str = "") -> LoopEntry | None:
    """The entry of a loop from its reflections. The outcome is that of its last iteration, unless the run's is known."""
    reflections = Reflections(root)
    found = reflections.of(loop, 1)
    if not found:
        return None
    last, count = found[-1], len(reflections.iterations(loop))
    ended = outcome or last.outcome
    return LoopEntry(
        loop_id=loop,
        task=last.task[:200],
        task_type=last.task_type,
        outcome=ended,
        iterations=last.iteration,
        reflections=count,
        last_lesson=lesson(last, 300),
        updated=format_time(last.at),
    )


def rebuild_entries(root: Path) -> list[LoopEntry]:
    """The entries of all loops from their reflections."""
    loops = Reflections(root).loops()[:MAX_LOOPS]
    entries = (read_entry(root, loop) for loop in loops)
    return _sort_newest(entry for entry in entries if entry)


def _sort_newest(entries: Iterable[LoopEntry]) -> list[LoopEntry]:
    return sorted(entries, key=lambda entry: entry.updated, reverse=True)[:MAX_LOOPS]


def _index_path(root: Path) -> Path:
    return root / HOME / "index.yaml"


@dataclass
class LoopMemory(Observer):
    """Observes a run and updates the memory. Errors here never make the run fail."""

    root: Path
    loop: str
    updated: float = 0.0

    def on_record(self, record: Record) -> None:
        match record.entry:
            case RunEnded(outcome=outcome):
                self._update(outcome)
                with suppress(RalphError, OSError):
                    learn_patterns(self.root, self.loop)
            case ChecksEnded() | TurnEnded() if time.monotonic() - self.updated > EVERY:
                self._update("running")

    def _update(self, outcome: str) -> None:
        with suppress(RalphError, OSError):
            if entry := read_entry(self.root, self.loop, outcome):
                update_entry(self.root, entry)
            self.updated = time.monotonic()
