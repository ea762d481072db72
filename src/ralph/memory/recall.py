"""Recall: what other loops learned about something like this, by full-text search, within a budget of characters."""

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ralph.core.errors import StateError
from ralph.documents.reflection import Reflection, fitted, moment
from ralph.memory.patterns import ADVICE, Pattern, read_patterns, signature
from ralph.memory.reflections import Reflections

if TYPE_CHECKING:
    import sqlite3

MOST_FILES = 2000
"""The newest files that are looked at."""
PER_LOOP = 50
MOST_PARSED = 400
"""Those with words of the query in them that are parsed and ranked."""
MOST_DAYS = 90
LONGEST = 400
"""Characters of one lesson."""
SHORTEST = 80
"""Fewer characters than these say nothing."""
MOST_WORDS = 40
"""Words of the query that are looked for."""
WORTH = 0.3
"""The share of the best hit's score below which a hit is noise."""
MANY_LOOPS = 12
"""From so many loops on, a word that most of them have says nothing."""


@dataclass(frozen=True)
class _Memory:
    """One text that can be found, and the lesson that it is found for."""

    loop: str
    task_type: str
    at: float
    solved: bool
    """Whether it is known what worked."""
    task: str
    problem: str
    remedy: str
    parts: tuple[tuple[str, str], ...]

    @property
    def worth(self) -> float:
        """How much it helps, whatever it is about: what worked counts most, then whatever else it can say."""
        return (1.3 if self.solved else 1.0) * (1 + 0.1 * sum(text != "" for _, text in self.parts))


def recall(
    root: Path,
    query: str,
    *,
    exclude: str,
    task_type: str = "",
    most: int = 3,
    budget: int = 1200,
    now: float | None = None,
) -> tuple[str, ...]:
    """Lessons of other loops that have at least two telling words in common with the query, the best first."""
    now = time.time() if now is None else now
    words = _telling(query)[:MOST_WORDS]
    if len(words) < 2:
        return ()
    memories, loops = _memories(root, words, exclude, now - MOST_DAYS * 86400)
    scored = [
        (score * one.worth * (1.3 if one.task_type == task_type else 1.0), one.at, one)
        for one, score in _scored(memories, words, loops)
    ]
    scored.sort(key=lambda item: item[:2], reverse=True)
    return _chosen([one for score, _, one in scored if score >= WORTH * scored[0][0]], now, most, budget)


def _chosen(ranked: Sequence[_Memory], now: float, most: int, budget: int) -> tuple[str, ...]:
    """The first that fit: one for each loop, and none that says what another said."""
    lessons: list[str] = []
    seen: set[str] = set()
    for one in ranked:
        said = signature("; ".join(text for _, text in one.parts))
        if one.loop in seen or said in seen:
            continue
        room = min(LONGEST, budget - sum(map(len, lessons)))
        if len(lessons) >= most or room < SHORTEST:
            break
        seen |= {one.loop, said}
        days = max(0, int((now - one.at) // 86400))
        age = "today" if not days else f"{days} day{'s'[: days > 1]} ago"
        head = (f"({age}, {'solved' if one.solved else 'not solved'}) ", one.task[:80])
        lessons.append(fitted((head, *one.parts), room).encode(errors="replace").decode())
    return tuple(lessons)


def _memories(root: Path, words: Sequence[str], exclude: str, oldest: float) -> tuple[list[_Memory], int]:
    """What may fit, and the number of loops it was looked for in. Only files with two of the words in them are parsed."""
    stems = {_stem(word) for word in words}

    def wanted(text: str) -> bool:
        text = text.lower()
        return sum(stem in text for stem in stems) >= 2

    memories: list[_Memory] = []
    loops = 0
    for found in Reflections(root).newest(MOST_FILES, PER_LOOP, wanted):
        loops += 1
        memories += [_of_reflection(one, found[-1]) for one in found if one.loop != exclude]
        if len(memories) >= MOST_PARSED:
            break
    for kind in ADVICE:
        try:
            patterns = read_patterns(root, kind)
        except StateError:
            continue
        memories += [_of_pattern(one, loop) for one in patterns for loop in one.source_loops[-1:] if loop != exclude]
    return [one for one in memories if one.at >= oldest], loops


def _of_reflection(one: Reflection, last: Reflection) -> _Memory:
    failed = one.what_failed or " ".join(one.gaming)
    parts = [("tried: ", one.action), ("failed: ", failed), ("because ", one.why)]
    if one.succeeded:
        parts = [("what worked: ", one.action), ("because ", one.why)]
    elif last.succeeded:
        parts.append(("what worked then: ", last.action))
    else:
        parts.append(("idea: ", one.try_next))
    problem = f"{one.what_failed[:2000]} {one.why[:2000]} {' '.join(one.gaming)[:1000]}"
    remedy = f"{one.try_next[:1000]} {one.action[:1000]}"
    return _Memory(one.loop, one.task_type, one.at, last.succeeded, one.task[:1000], problem, remedy, tuple(parts))


def _of_pattern(one: Pattern, loop: str) -> _Memory:
    labels = {"error": ("what fixed it: ", ""), "success": ("what worked: ", ""), "anti": ("better: ", "do not: ")}
    label, warning = labels[one.kind]
    parts = ((warning, (one.text or one.signature) if warning else ""), ("because ", one.because), (label, one.advice))
    task = "" if warning else one.text or one.signature
    try:
        at = moment(one.last_seen)
    except ValueError:
        at = 0.0
    return _Memory(loop, one.task_type, at, bool(one.advice), task, f"{one.signature} {one.because}", one.advice, parts)


def _scored(memories: Sequence[_Memory], words: Sequence[str], loops: int) -> Iterator[tuple[_Memory, float]]:
    """How well each memory fits; those with fewer than two of the telling words in them are left out."""
    base = _search_base()
    if base is None:
        ranks = dict.fromkeys(range(len(memories)), 0.0)
    else:
        with closing(base):
            ranks, words = _ranked(base, memories, words, loops)
    wanted = {_stem(word) for word in words}
    for number, rank in ranks.items():
        one = memories[number]
        common = len(wanted.intersection(map(_stem, _telling(f"{one.task} {one.problem} {one.remedy}"))))
        if common >= 2:
            yield one, rank + 0.2 * common


def _search_base() -> "sqlite3.Connection | None":
    """A base for full-text search in memory; None where this Python has none."""
    try:
        import sqlite3

        base = sqlite3.connect(":memory:")
        base.execute("CREATE VIRTUAL TABLE memory USING fts5(task, problem, remedy, tokenize = 'porter unicode61')")
    except ImportError:
        return None
    except sqlite3.OperationalError:
        return None
    return base


def _ranked(
    base: "sqlite3.Connection", memories: Sequence[_Memory], words: Sequence[str], loops: int
) -> tuple[dict[int, float], list[str]]:
    """The best by bm25, and the words that tell loops apart. Words are letters alone: nothing in them is syntax."""
    rows = ((n, _spaced(one.task), _spaced(one.problem), _spaced(one.remedy)) for n, one in enumerate(memories))
    base.executemany("INSERT INTO memory(rowid, task, problem, remedy) VALUES (?, ?, ?, ?)", rows)
    telling = []
    for word in words:
        hits = base.execute("SELECT rowid FROM memory WHERE memory MATCH ?", (f'"{word}"',))
        having = len({memories[number].loop for (number,) in hits})
        if having and (loops < MANY_LOOPS or having <= loops / 2):
            telling.append(word)
    query = " OR ".join(f'"{word}"' for word in telling) or '""'
    best = "SELECT rowid, -bm25(memory, 2, 2, 1) FROM memory WHERE memory MATCH ? ORDER BY 2 DESC LIMIT 200"
    return dict(base.execute(best, (query,)).fetchall()), telling


def _spaced(text: str) -> str:
    """Text as the search sees it: `parseDate` is two words, and half a surrogate pair is no text."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text).encode(errors="replace").decode()


def _telling(text: str) -> list[str]:
    """The different words of a text that say what it is about."""
    words = re.findall(r"[^\W\d_]{3,}", _spaced(text).lower())
    return [word for word in dict.fromkeys(words) if word not in _ORDINARY]


def _stem(word: str) -> str:
    """What is left of a word without its ending: enough to see that `parser` and `parsing` belong together."""
    for ending in ("ations", "ation", "ings", "ing", "ers", "ies", "es", "ed", "er", "s", "e", "y"):
        if word.endswith(ending) and not word.endswith("ss") and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word


_ORDINARY = frozenset(re.findall("[a-z]+", """
    about above add added adding adds after again all also and another any anything are aren assert assertion
    assertionerror because been before being below between both bug bugs but call called calls can cannot cargo
    cause caused change changed changes check checks code correct correctly could create created current currently
    did didn does doesn doing don done down during each edit edited either else ensure error errors every exit
    expected expects fail failed failing fails failure failures false few file files first fix fixed fixes fixing
    for found from function functions further get gets given got had has hasn have having her here him his how
    however implement implementation implemented import into isn issue issues iteration iterations its itself just
    keep last let like line lines made make makes making many may method might missing more most much must need
    needed needs neither never new next none nor not nothing now npm off old once one only onto other our out output
    over own pass passed passes passing per pip pnpm problem problems project pytest python raise raised raises
    rather really result results return returned returns run running runs same see seems set she should since some
    something source src still such suite take task tasks test tested testing tests than that the their them then
    there these they thing things this those three through too traceback tried true try two under until update
    updated upon use used uses using value values very was wasn way well were weren what when where whether which
    while who why will with within without won work worked working works would write wrong wrote yarn yet you your
"""))  # fmt: skip
"""Words that any reflection may have: to have them in common means nothing."""
