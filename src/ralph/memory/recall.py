"""Recall: lessons of other loops about a similar task or failure, by full-text search, within a budget of characters."""

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ralph.core.codec import parse_time
from ralph.core.errors import StateError
from ralph.documents.reflection import Reflection, fit_parts
from ralph.memory.learning import ADVICE, Pattern, make_signature, read_patterns
from ralph.memory.reflections import Reflections

if TYPE_CHECKING:
    import sqlite3

MAX_FILES = 2000
"""How many of the newest files are read."""
PER_LOOP = 50
MAX_PARSED = 400
"""How many of those that contain words of the query are parsed and ranked."""
MAX_DAYS = 90
LONGEST = 400
"""Most characters of one lesson."""
SHORTEST = 80
"""Fewest characters of a useful lesson."""
MAX_WORDS = 40
"""How many words of the query are searched for."""
SAME_TEST = 5.0
"""Added to the score of a lesson about a test that fails now."""
WORTH = 0.3
"""The share of the best hit's score below which a hit is noise."""
SAME_TYPE_FACTOR = 1.3
"""Multiplies the score of a lesson from a task of the same type."""
MANY_LOOPS = 12
"""From this number of loops on, a word that most of them contain is ignored."""


@dataclass(frozen=True)
class _Memory:
    """A searchable text, and the lesson in it."""

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
        """How much it helps, whatever it is about: a solution counts most, then the number of its parts."""
        return (1.3 if self.solved else 1.0) * (1 + 0.1 * sum(text != "" for _, text in self.parts))


def recall(
    root: Path,
    query: str,
    *,
    exclude: str,
    failing: Sequence[str] = (),
    task_type: str = "",
    most: int = 3,
    budget: int = 1200,
    now: float | None = None,
) -> tuple[str, ...]:
    """Lessons of other loops, the best first: about one of the failing tests, or with two specific words of the query."""
    now = time.time() if now is None else now
    words = _find_specific_words(query)[:MAX_WORDS]
    failing = failing[:MAX_WORDS]
    if len(words) < 2 and not failing:
        return ()
    memories, loops = _find_memories(root, words, failing, exclude, now - MAX_DAYS * 86400)
    scored = []
    for memory, score in _score(memories, words, failing, loops):
        score *= memory.worth
        if memory.task_type == task_type:
            score *= SAME_TYPE_FACTOR
        scored.append((score, memory.at, memory))
    scored.sort(key=lambda item: item[:2], reverse=True)
    good = [memory for score, _, memory in scored if score >= WORTH * scored[0][0]]
    return _choose_lessons(good, now, most, budget)


def _choose_lessons(ranked: Sequence[_Memory], now: float, most: int, budget: int) -> tuple[str, ...]:
    """The first lessons that fit into the budget: one for each loop, and no lesson twice."""
    lessons: list[str] = []
    seen: set[str] = set()
    for one in ranked:
        signature = make_signature("; ".join(text for _, text in one.parts))
        if one.loop in seen or signature in seen:
            continue
        room = min(LONGEST, budget - sum(map(len, lessons)))
        if len(lessons) >= most or room < SHORTEST:
            break
        seen |= {one.loop, signature}
        days = max(0, int((now - one.at) // 86400))
        head = (f"({_describe_age(days)}, {'solved' if one.solved else 'not solved'}) ", one.task[:80])
        lessons.append(fit_parts((head, *one.parts), room).encode(errors="replace").decode())
    return tuple(lessons)


def _describe_age(days: int) -> str:
    if days == 0:
        return "today"
    return "1 day ago" if days == 1 else f"{days} days ago"


def _find_memories(
    root: Path, words: Sequence[str], failing: Sequence[str], exclude: str, oldest: float
) -> tuple[list[_Memory], int]:
    """The memories that may fit, and the number of loops that were searched.

    Only files that contain two of the words, or one of the failing tests, are parsed.
    """
    stems = {_stem(word) for word in words}

    def is_relevant(text: str) -> bool:
        small = text.lower()
        return sum(stem in small for stem in stems) >= 2 or any(test in text for test in failing)

    memories: list[_Memory] = []
    loops = 0
    for found in Reflections(root).newest(MAX_FILES, PER_LOOP, is_relevant, exclude=exclude):
        loops += 1
        memories += [_build_memory_from_reflection(one, found[-1]) for one in found]
        if len(memories) >= MAX_PARSED:
            break
    for kind in ADVICE:
        try:
            patterns = read_patterns(root, kind)
        except StateError:
            continue
        for one in patterns:
            loop = one.source_loops[-1] if one.source_loops else exclude
            if loop != exclude:
                memories.append(_build_memory_from_pattern(one, loop))
    return [one for one in memories if one.at >= oldest], loops


def _build_memory_from_reflection(one: Reflection, last: Reflection) -> _Memory:
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
    return _Memory(
        loop=one.loop,
        task_type=one.task_type,
        at=one.at,
        solved=last.succeeded,
        task=one.task[:1000],
        problem=problem,
        remedy=remedy,
        parts=tuple(parts),
    )


def _build_memory_from_pattern(one: Pattern, loop: str) -> _Memory:
    labels = {"error": ("what fixed it: ", ""), "success": ("what worked: ", ""), "anti": ("better: ", "do not: ")}
    label, warning = labels[one.kind]
    parts = ((warning, (one.text or one.signature) if warning else ""), ("because ", one.because), (label, one.advice))
    task = "" if warning else one.text or one.signature
    try:
        at = parse_time(one.last_seen)
    except ValueError:
        at = 0.0
    return _Memory(
        loop=loop,
        task_type=one.task_type,
        at=at,
        solved=bool(one.advice),
        task=task,
        problem=f"{one.signature} {one.because}",
        remedy=one.advice,
        parts=parts,
    )


def _score(
    memories: Sequence[_Memory], words: Sequence[str], failing: Sequence[str], loops: int
) -> Iterator[tuple[_Memory, float]]:
    """How well each memory fits. One that names none of the failing tests needs two of the specific words."""
    base = _open_search()
    if base is None:
        ranks = dict.fromkeys(range(len(memories)), 0.0)
    else:
        with closing(base):
            ranks, words = _rank(base, memories, words, loops)
    wanted = {_stem(word) for word in words}
    for number, one in enumerate(memories):
        names_test = any(test in one.problem for test in failing)
        if number not in ranks and not names_test:
            continue
        common = len(wanted.intersection(map(_stem, _find_specific_words(f"{one.task} {one.problem} {one.remedy}"))))
        if common >= 2 or names_test:
            yield one, ranks.get(number, 0.0) + 0.2 * common + (SAME_TEST if names_test else 0.0)


def _open_search() -> "sqlite3.Connection | None":
    """A database for full-text search, in memory; None if this Python has no SQLite with FTS5."""
    try:
        import sqlite3

        base = sqlite3.connect(":memory:")
        base.execute("CREATE VIRTUAL TABLE memory USING fts5(task, problem, remedy, tokenize = 'porter unicode61')")
    except ImportError:
        return None
    except sqlite3.OperationalError:
        return None
    return base


def _rank(
    base: "sqlite3.Connection", memories: Sequence[_Memory], words: Sequence[str], loops: int
) -> tuple[dict[int, float], list[str]]:
    """The best memories by bm25, and the words that distinguish loops.

    Words consist of letters, so that nothing in them is query syntax.
    """
    rows = (
        (n, _separate_words(one.task), _separate_words(one.problem), _separate_words(one.remedy))
        for n, one in enumerate(memories)
    )
    base.executemany("INSERT INTO memory(rowid, task, problem, remedy) VALUES (?, ?, ?, ?)", rows)
    specific = []
    for word in words:
        hits = base.execute("SELECT rowid FROM memory WHERE memory MATCH ?", (f'"{word}"',))
        having = len({memories[number].loop for (number,) in hits})
        if having and (loops < MANY_LOOPS or having <= loops / 2):
            specific.append(word)
    query = " OR ".join(f'"{word}"' for word in specific) or '""'
    best = "SELECT rowid, -bm25(memory, 2, 2, 1) FROM memory WHERE memory MATCH ? ORDER BY 2 DESC LIMIT 200"
    return dict(base.execute(best, (query,)).fetchall()), specific


def _separate_words(text: str) -> str:
    """Text for the search: `parseDate` becomes two words, and half a surrogate pair, which SQLite refuses, is replaced."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text).encode(errors="replace").decode()


def _find_specific_words(text: str) -> list[str]:
    """The different words of a text without ordinary ones."""
    words = re.findall(r"[^\W\d_]{3,}", _separate_words(text).lower())
    return [word for word in dict.fromkeys(words) if word not in _ORDINARY]


def _stem(word: str) -> str:
    """A word without its ending, so that `parser` and `parsing` match."""
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
"""Words that any reflection may contain. They do not make two texts similar."""
