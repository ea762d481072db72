"""Questions to the user: files in the run's directory. Only the standard library, because agents wait for `ralph tools`.

Agents write into the directory of the questions: `ID.json` is a question, and `ID.expired.json` means that the user did not
answer in time. The user's answers are in another directory. Agents in the sandbox can only read it, so they cannot answer for
the user.
"""

import json
import os
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from ralph.core.errors import StateError, UsageError
from ralph.core.signals import Question
from ralph.core.speakers import FROM_FILE
from ralph.core.text import clean_text
from ralph.store.files import read_limited, storage_errors, to_bytes, write_atomic

_LARGEST, _MOST = 64 * 1024, 500
_TEXT = 4000
_ID = re.compile(r"q[0-9]{1,6}")
NO_ANSWER = "The user did not answer in time. Use your own judgment, and report what you decided and why."
QUESTIONS, ANSWERS = "questions", "answers"
"""Their directories in that of the run."""


@dataclass
class QuestionFiles:
    """The questions of one run."""

    run: Path
    """The directory of the run."""
    _seen: dict[Path, tuple[int, dict[str, Any]]] = field(default_factory=dict)

    @property
    def directory(self) -> Path:
        return self.run / QUESTIONS

    @property
    def answers(self) -> Path:
        return self.run / ANSWERS

    def ask(self, question: Question) -> Question:
        """Write a question, with a new id."""
        with storage_errors(self.directory):
            self.directory.mkdir(parents=True, exist_ok=True)
        for number in range(1, _MOST + 1):
            asked = replace(question, id=f"q{number}")
            if _create(self.directory / f"{asked.id}.json", asdict(asked)):
                return asked
        raise UsageError(f"{_MOST} questions have already been asked", where=str(self.directory))

    def answer(self, id: str, answer: str, by: str, at: float) -> bool:
        """Answer a question; False if it was answered already, or if its time is over."""
        if (self.directory / f"{id}.expired.json").exists():
            return False
        with storage_errors(self.answers):
            self.answers.mkdir(parents=True, exist_ok=True)
        return _create(self.answers / f"{id}.json", {"answer": answer, "by": by, "at": at})

    def expire(self, id: str, at: float) -> None:
        """Record that the user did not answer in time."""
        _create(self.directory / f"{id}.expired.json", {"at": at})

    def read_all(self) -> Sequence[Question]:
        """The questions so far with their answers, the oldest first. Other files are skipped."""
        try:
            names = {entry.name for entry in os.scandir(self.directory)}
        except OSError:
            return ()
        stems = [name.removesuffix(".json") for name in names if name.endswith(".json")]
        ids = [stem for stem in stems if _ID.fullmatch(stem)]
        ids.sort(key=lambda id: int(id[1:]))
        found = []
        for id in ids[:_MOST]:
            if question := self.get(id):
                found.append(question)
        return found

    def open(self, now: float) -> list[Question]:
        """The questions whose turns still wait for an answer."""
        return [question for question in self.read_all() if question.waits(now)]

    def get(self, id: str) -> Question | None:
        """One question; None if it cannot be read."""
        data = self._data(self.directory / f"{id}.json")
        if data is None or not isinstance(data.get("question"), str):
            return None
        default = _clean(data.get("default", ""))
        reply = self._data(self.answers / f"{id}.json") or {}
        if "answer" not in reply and self._data(self.directory / f"{id}.expired.json") is not None:
            reply = {"answer": default or NO_ANSWER, "by": "default"}
        options = data.get("options")
        return Question(
            id=id,
            question=_clean(data["question"]),
            options=tuple(_clean(one) for one in options[:20]) if isinstance(options, list) else (),
            default=default,
            asked_at=_number(data.get("asked_at")),
            timeout=_number(data.get("timeout")),
            turn=_clean(data.get("turn", "")),
            role=_clean(data.get("role", "")),
            answer=_clean(reply["answer"]) if "answer" in reply else None,
            by=_clean(reply.get("by") or FROM_FILE) if "answer" in reply else "",
        )

    def _data(self, path: Path) -> dict[str, Any] | None:
        try:
            seen = path.lstat().st_mtime_ns
            if path not in self._seen or self._seen[path][0] != seen:
                found = json.loads(read_limited(path, _LARGEST))
                self._seen[path] = (seen, found if isinstance(found, dict) else {})
            return self._seen[path][1]
        except (OSError, StateError, ValueError, RecursionError):
            return None


def _create(path: Path, data: dict[str, Any]) -> bool:
    """Create a file in one step; False if it exists. `os.link` fails if the target exists, `os.rename` would replace it."""
    temporary = path.with_name(f".{os.urandom(6).hex()}.tmp")
    write_atomic(temporary, to_bytes(json.dumps(data) + "\n"))
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        temporary.unlink(missing_ok=True)
    return True


def _clean(value: object) -> str:
    return clean_text(str(value))[:_TEXT]


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0.0
    return float(value) if 0 <= value < 1e12 else 0.0
